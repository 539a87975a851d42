//! Finds added tokens in a text.

use super::classes::{Classes, WORD};
use super::form::shown;
use crate::AddedToken;
use aho_corasick::{AhoCorasick, MatchKind};

/// Finds added tokens of one kind, leftmost first, and the longest of several at the same place.
pub(super) struct Finder {
    /// `None` if there are no such tokens.
    automaton: Option<AhoCorasick>,
    wanted: Vec<Wanted>,
    /// Length in bytes of the longest token.
    pub(super) longest: usize,
    /// Whether no token depends on its surroundings.
    pub(super) plain: bool,
    /// Whether spaces represent marks, which do not count as whitespace.
    marks: bool,
}

/// A token to find.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    id: u32,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
}

/// A part of a text: an added token, or text without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) token: Option<u32>,
}

impl Finder {
    /// Creates a finder for these tokens, each with its text. `marks` says that spaces in the texts represent marks.
    pub(super) fn new(tokens: &[(String, &AddedToken, u32)], marks: bool) -> Result<Self, String> {
        let mut texts: Vec<&str> = tokens.iter().map(|(text, ..)| text.as_str()).collect();
        let wanted = tokens.iter().map(|(_, token, id)| Wanted {
            id: *id,
            single_word: token.single_word,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
        });
        let wanted: Vec<Wanted> = wanted.collect();
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let plain = !wanted.iter().any(|token| token.single_word || token.lstrip || token.rstrip);
        let automaton = if texts.is_empty() {
            None
        } else {
            let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts);
            Some(automaton.map_err(|error| format!("the added tokens cannot be searched for: {error}"))?)
        };
        texts.sort_unstable();
        match texts.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(format!("two added tokens are looked for as {}", shown(&two[0].into()))),
            None => Ok(Self { automaton, wanted, longest, plain, marks }),
        }
    }

    /// Whether there are no tokens to find.
    pub(super) fn is_empty(&self) -> bool {
        self.automaton.is_none()
    }

    /// Calls `part` for each part of a text, in order. A token that includes whitespace may begin before the end of the
    /// last part.
    pub(super) fn split(&self, text: &str, mut part: impl FnMut(Part)) {
        let is_space = |c: char| c.is_whitespace() && !(self.marks && c == ' ');
        let mut done = 0;
        if let Some(automaton) = &self.automaton {
            for found in automaton.find_iter(text) {
                let token = self.wanted[found.pattern().as_usize()];
                let (mut start, mut end) = (found.start(), found.end());
                if token.single_word && !stands_alone(text, start, end) {
                    continue;
                }
                // Text that was already passed on is not scanned again, so whitespace is read only once.
                if token.lstrip {
                    let from = done.min(start);
                    start = (from + text[from..start].trim_end_matches(is_space).len()).max(done);
                }
                if token.rstrip {
                    // If the last token took whitespace beyond this token's end, everything up to there is
                    // whitespace.
                    let from = end.max(done);
                    end = text.len() - text[from..].trim_start_matches(is_space).len();
                }
                if done < start {
                    part(Part { start: done, end: start, token: None });
                }
                // The last token may have taken this token completely.
                if start < end {
                    part(Part { start, end, token: Some(token.id) });
                }
                done = end;
            }
        }
        if done < text.len() {
            part(Part { start: done, end: text.len(), token: None });
        }
    }
}

fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| Classes::get().of(c as u32) & WORD != 0);
    !is_word(text[..start].chars().next_back()) && !is_word(text[end..].chars().next())
}
