//! The tokens that are found in a text as written, before the model splits it.

use super::GgufVocabulary;
use super::document::Added;
use super::entries::Entries;
use super::kind::Kind;

/// The added tokens, ascending by id.
///
/// GGUF does not store which of them take the whitespace beside them; llama.cpp knows some models by name.
pub(super) fn added<'t>(vocabulary: &GgufVocabulary, entries: &'t Entries<'_>) -> Vec<Added<'t>> {
    let strips = Strips::of(vocabulary);
    let found = entries.tokens.iter().zip(&entries.kinds).zip(0..);
    let found =
        found.filter(|((_, kind), _)| matches!(kind, Kind::Control | Kind::UserDefined | Kind::Unknown));
    let token = |((token, kind), id): ((&'t std::borrow::Cow<'_, str>, &Kind), u32)| Added {
        id,
        content: token,
        single_word: false,
        lstrip: strips.left(token),
        rstrip: strips.right(token),
        normalized: false,
        special: *kind != Kind::UserDefined,
    };
    found.map(token).collect()
}

/// Which tokens take the whitespace beside them.
enum Strips {
    None,
    /// One token takes the whitespace on its left.
    Mask(&'static str),
    /// Phi-3: all tokens but three take the whitespace on their right.
    Phi3,
}

impl Strips {
    fn of(vocabulary: &GgufVocabulary) -> Self {
        let lower = |text: &Option<String>| text.as_deref().unwrap_or("").to_lowercase();
        let (pre, name) = (vocabulary.pre.as_deref().unwrap_or(""), lower(&vocabulary.name));
        let architecture = vocabulary.architecture.as_deref().unwrap_or("");
        let has = |text: &str, parts: &[&str]| parts.iter().any(|part| text.contains(part));
        if has(pre, &["jina-v2-de", "jina-v2-es", "jina-v2-code"])
            || has(architecture, &["nomic-bert-moe", "jina-bert-v3"])
        {
            Self::Mask("<mask>")
        } else if has(&name, &["phi-3", "phi3"]) {
            Self::Phi3
        } else if has(&name, &["modern-bert"]) {
            Self::Mask("[MASK]")
        } else {
            Self::None
        }
    }

    fn left(&self, token: &str) -> bool {
        matches!(self, Self::Mask(mask) if *mask == token)
    }

    fn right(&self, token: &str) -> bool {
        matches!(self, Self::Phi3) && !["<unk>", "<s>", "<|endoftext|>"].contains(&token)
    }
}
