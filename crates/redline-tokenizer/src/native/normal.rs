//! Normal forms of a text, with the places that their bytes come from.

use std::borrow::Cow;
use std::ops::Range;
use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// The mark that stands for a space in SentencePiece-style vocabularies.
pub(super) const MARK: char = '▁';

/// Characters below this neither change nor combine with what stands before them.
const FIRST_COMBINING: char = '\u{300}';

/// What is done to a text before added tokens are looked for again and words are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Normalizer {
    None,
    /// Unicode's NFC, in the version that the `tokenizers` crate uses.
    Nfc,
    /// Spaces become marks; with `lead` a mark is put before the text. Here it is marks that become spaces, and all that
    /// stands for text in the vocabulary is written so: the same rule, and texts without marks need no copy.
    Spaces {
        lead: bool,
    },
}

impl Normalizer {
    /// The normal form, without the leading space.
    pub(super) fn apply(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::None => Cow::Borrowed(text),
            Self::Nfc if is_nfc(text) => Cow::Borrowed(text),
            Self::Nfc => text.nfc().map(|(c, _)| c).collect(),
            Self::Spaces { .. } => spaces(text),
        }
    }

    /// The normal form, the leading space included.
    pub(super) fn whole(self, text: &str) -> Cow<'_, str> {
        let normal = self.apply(text);
        if self.leads() && !text.is_empty() { Cow::Owned(format!(" {normal}")) } else { normal }
    }

    /// Spaces of the normal form stand for marks.
    pub(super) fn marks(self) -> bool {
        matches!(self, Self::Spaces { .. })
    }

    /// A piece of normal form as the `tokenizers` crate has it.
    pub(super) fn shown(self, normal: &str) -> Cow<'_, str> {
        if self.marks() { normal.replace(' ', MARK.encode_utf8(&mut [0; 4])).into() } else { normal.into() }
    }

    pub(super) fn leads(self) -> bool {
        self == Self::Spaces { lead: true }
    }

    /// Where each byte of the normal form, without the leading space, comes from in `text`.
    pub(super) fn places(self, text: &str) -> Vec<Range<usize>> {
        match self {
            Self::Nfc if !is_nfc(text) => nfc_places(text),
            Self::None | Self::Nfc => places(text, str::len),
            Self::Spaces { .. } => space_places(text),
        }
    }
}

/// Marks as spaces.
pub(super) fn spaces(text: &str) -> Cow<'_, str> {
    if text.contains(MARK) { Cow::Owned(text.replace(MARK, " ")) } else { Cow::Borrowed(text) }
}

/// Where each byte of [`spaces`] comes from.
pub(super) fn space_places(text: &str) -> Vec<Range<usize>> {
    places(text, |c| if c.starts_with(MARK) { 1 } else { c.len() })
}

/// Each character's place as many times as it has bytes afterwards.
fn places(text: &str, bytes: impl Fn(&str) -> usize) -> Vec<Range<usize>> {
    let each = text.char_indices().flat_map(|(at, c)| {
        let end = at + c.len_utf8();
        std::iter::repeat_n(at..end, bytes(&text[at..end]))
    });
    each.collect()
}

/// The text is its own NFC, as a quick look shows it.
pub(super) fn is_nfc(text: &str) -> bool {
    text.is_ascii()
        || text.chars().all(|c| c < FIRST_COMBINING)
        || is_nfc_quick(text.chars()) == IsNormalized::Yes
}

/// A normal form stays one where it is cut before this character.
pub(super) fn begins_anew(c: char) -> bool {
    c < FIRST_COMBINING || canonical_combining_class(c) == 0
}

/// Where each byte of the NFC comes from: a composed character has the place of its first character, and so has what
/// comes out of a decomposition, as the `tokenizers` crate counts it.
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
