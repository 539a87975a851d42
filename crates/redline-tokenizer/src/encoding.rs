//! Token ids with their offsets in the text.

use std::ops::Range;

/// The ids of a text and the bytes of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoding {
    /// The token ids.
    pub ids: Vec<u32>,
    /// The byte range of the text for each id, in whole characters: two tokens that share a character both contain
    /// all of it. Empty at 0 for ids that the post-processor adds.
    pub offsets: Vec<Range<usize>>,
}

impl Encoding {
    pub(crate) fn surround(&mut self, prefix: &[u32], suffix: &[u32]) {
        self.ids.splice(0..0, prefix.iter().copied());
        self.offsets.splice(0..0, prefix.iter().map(|_| 0..0));
        self.ids.extend(suffix);
        self.offsets.extend(suffix.iter().map(|_| 0..0));
    }
}

/// Ids and offsets, and the whitespace around each added token's text.
#[derive(Debug, Default)]
pub(crate) struct EncodedText {
    pub(crate) encoding: Encoding,
    /// The added tokens among the ids, in order.
    pub(crate) added: Vec<(usize, Whitespace)>,
}

/// Leading and trailing whitespace of a token in characters, counted like the `tokenizers` crate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whitespace {
    leading: usize,
    trailing: usize,
}

impl Whitespace {
    pub(crate) fn of(token: &str) -> Self {
        let is_space = |c: &char| *c == 'Ġ' || c.is_whitespace();
        let leading = token.chars().take_while(is_space).count();
        Self { leading, trailing: token.chars().rev().take_while(is_space).count() }
    }
}

impl EncodedText {
    /// Trims whitespace from the offsets. Like the `tokenizers` crate, this removes as many bytes as the token has
    /// whitespace characters at its ends. `keep_first` keeps a single space before the first token. `decoded` returns the
    /// text of a token as the decoder receives it, if there is such a token.
    pub(crate) fn trim<'a>(&mut self, keep_first: bool, decoded: impl Fn(u32) -> Option<&'a str>) {
        let Self { encoding, added } = self;
        let mut added = added.iter().peekable();
        for (i, (id, place)) in encoding.ids.iter().zip(&mut encoding.offsets).enumerate() {
            let Whitespace { mut leading, trailing } = match (added.next_if(|(at, _)| *at == i), decoded(*id))
            {
                (Some((_, whitespace)), _) => *whitespace,
                (None, Some(token)) => Whitespace::of(token),
                (None, None) => continue,
            };
            if (i == 0 || place.start == 0) && keep_first && leading == 1 {
                leading = 0;
            }
            place.start = (place.start + leading).min(place.end);
            if trailing > 0 && place.end >= trailing {
                place.end = (place.end - trailing).max(place.start);
            }
        }
    }
}
