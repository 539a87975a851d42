//! The merges of a SentencePiece vocabulary. Its file stores scores instead, from which the merges follow.

use super::entries::Entries;
use super::kind::Kind;
use super::wrong;
use crate::TokenizerError;
use hashbrown::HashSet;
use std::cmp::Ordering;

/// Bytes of the longest token that may be a merge. SentencePiece makes tokens of at most 16 characters; runs of spaces are
/// somewhat longer. Limits keep the work and the memory proportional to the size of the file.
const LONGEST: usize = 256;

/// Bytes of all merges together, far more than those of any vocabulary that SentencePiece makes.
const MAX: usize = 1 << 28;

/// A token, and the place at which it is split.
struct Split<'t> {
    score: f32,
    /// Characters of both parts.
    chars: (usize, usize),
    id: u32,
    parts: (&'t str, &'t str),
}

/// The merges, best first, in the order of transformers (`generate_merges`): every way to split a token into two tokens,
/// by descending score, then by descending length of the left and of the right part in characters, then by id.
pub(super) fn from_scores<'t>(
    entries: &'t Entries<'_>,
    scores: &[f32],
) -> Result<Vec<(&'t str, &'t str)>, TokenizerError> {
    let pieces = entries.tokens.iter().zip(&entries.kinds).zip(scores).zip(0_u32..);
    let pieces = pieces.filter(|(((_, kind), _), _)| matches!(kind, Kind::Normal | Kind::UserDefined));
    let pieces = pieces.map(|(((token, _), score), id)| (&**token, *score, id));
    let known: HashSet<&str> = pieces.clone().map(|(token, ..)| token).collect();
    let mut splits = Vec::new();
    let mut bytes = 0;
    for (token, score, id) in pieces {
        if token.len() > LONGEST {
            let reason =
                format!("token {id} has {} bytes, at most {LONGEST} can be split into merges", token.len());
            return Err(wrong(entries.place, "tokenizer.ggml.tokens", reason));
        }
        let chars = token.chars().count();
        for (left, (at, _)) in token.char_indices().enumerate().skip(1) {
            let parts = token.split_at(at);
            if known.contains(parts.0) && known.contains(parts.1) {
                bytes += token.len();
                splits.push(Split { score, chars: (left, chars - left), id, parts });
            }
        }
        if bytes > MAX {
            let reason = format!("the merges of the first {id} tokens take more than {MAX} bytes");
            return Err(wrong(entries.place, "tokenizer.ggml.tokens", reason));
        }
    }
    splits.sort_unstable_by(|a, b| {
        let score = b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal);
        score.then(b.chars.cmp(&a.chars)).then(a.id.cmp(&b.id))
    });
    Ok(splits.into_iter().map(|split| split.parts).collect())
}
