//! Normal forms of a text, with the source offsets of their bytes.

use std::borrow::Cow;
use std::ops::Range;
use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// The mark that represents a space in SentencePiece-style vocabularies.
pub(super) const MARK: char = '▁';

/// Characters below this neither change nor combine with the preceding character.
const FIRST_COMBINING: char = '\u{300}';

/// The normalisation of a text before added tokens are searched again and words are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Normalizer {
    None,
    /// Unicode NFC, in the version that the `tokenizers` crate uses.
    Nfc,
    /// Spaces become marks; with `lead`, a mark is put before the text. This implementation replaces marks by spaces
    /// instead, in the text and in the vocabulary. The result is the same, and texts without marks need no copy.
    Spaces {
        lead: bool,
    },
}

impl Normalizer {
    /// The normal form without the leading space.
    pub(super) fn apply(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::None => Cow::Borrowed(text),
            Self::Nfc if is_nfc(text) => Cow::Borrowed(text),
            Self::Nfc => text.nfc().map(|(c, _)| c).collect(),
            Self::Spaces { .. } => spaces(text),
        }
    }

    /// The normal form with the leading space.
    pub(super) fn whole(self, text: &str) -> Cow<'_, str> {
        let normal = self.apply(text);
        if self.leads() { Cow::Owned(format!(" {normal}")) } else { normal }
    }

    /// Whether spaces of the normal form represent marks.
    pub(super) fn marks(self) -> bool {
        matches!(self, Self::Spaces { .. })
    }

    /// A piece of the normal form as in the `tokenizers` crate.
    pub(super) fn shown(self, normal: &str) -> Cow<'_, str> {
        if self.marks() { normal.replace(' ', MARK.encode_utf8(&mut [0; 4])).into() } else { normal.into() }
    }

    pub(super) fn leads(self) -> bool {
        self == Self::Spaces { lead: true }
    }

    /// The source range in `text` of each byte of the normal form without the leading space.
    pub(super) fn places(self, text: &str) -> Vec<Range<usize>> {
        match self {
            Self::Nfc if !is_nfc(text) => nfc_places(text),
            Self::None | Self::Nfc => places(text, str::len),
            Self::Spaces { .. } => space_places(text),
        }
    }
}

/// Replaces marks by spaces.
pub(super) fn spaces(text: &str) -> Cow<'_, str> {
    if text.contains(MARK) { Cow::Owned(text.replace(MARK, " ")) } else { Cow::Borrowed(text) }
}

/// The source range of each byte of [`spaces`].
pub(super) fn space_places(text: &str) -> Vec<Range<usize>> {
    places(text, |c| if c.starts_with(MARK) { 1 } else { c.len() })
}

/// The range of each character, repeated for each byte of its replacement.
fn places(text: &str, bytes: impl Fn(&str) -> usize) -> Vec<Range<usize>> {
    let each = text.char_indices().flat_map(|(at, c)| {
        let end = at + c.len_utf8();
        std::iter::repeat_n(at..end, bytes(&text[at..end]))
    });
    each.collect()
}

/// Whether a quick check shows that the text is its own NFC.
pub(super) fn is_nfc(text: &str) -> bool {
    text.is_ascii()
        || text.chars().all(|c| c < FIRST_COMBINING)
        || is_nfc_quick(text.chars()) == IsNormalized::Yes
}

/// Whether a normal form may be cut before this character and stay normal.
pub(super) fn begins_anew(c: char) -> bool {
    c < FIRST_COMBINING || canonical_combining_class(c) == 0
}

/// The source range of each byte of the NFC. Like the `tokenizers` crate, a composed character gets the range of its
/// first character, and so do the results of a decomposition.
fn nfc_places(text: &str) -> Vec<Range<usize>> {
    let old = places(text, str::len);
    let mut chars = text.chars();
    let (mut at, mut new) = (0_usize, Vec::with_capacity(old.len()));
    for (c, change) in text.nfc() {
        let place = if change > 0 { at.checked_sub(1) } else { Some(at) };
        let place = place.map_or(0..0, |place| old.get(place).cloned().unwrap_or(text.len()..text.len()));
        if change <= 0 {
            let gone = 1 + change.unsigned_abs();
            at += chars.by_ref().take(gone).map(char::len_utf8).sum::<usize>();
        }
        new.extend(std::iter::repeat_n(place, c.len_utf8()));
    }
    new
}
