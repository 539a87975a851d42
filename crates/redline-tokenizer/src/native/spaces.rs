//! Cuts text at spaces, for SentencePiece-style vocabularies. If no merge joins the end of a word to a space, merging
//! each piece alone gives the same result as merging the whole text.

use super::scan::Scan;

/// The places where text is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Before each space.
    Each,
    /// Before the first of several spaces.
    Runs,
    /// Nowhere.
    Never,
}

impl Cut {
    /// The end of the word that begins at byte `at`; the word may begin with spaces.
    pub(super) fn word(self, text: &mut Scan<'_>, at: usize) -> usize {
        let bytes = text.bytes();
        let rest = &bytes[at..];
        let len = match self {
            Self::Never => None,
            Self::Each => find_space(&rest[1..]).map(|len| len + 1),
            Self::Runs => {
                let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
                find_space(&rest[spaces..]).map(|len| len + spaces)
            }
        };
        text.open |= len.is_none();
        len.map_or(bytes.len(), |len| at + len)
    }
}

/// The offset of the first space.
fn find_space(bytes: &[u8]) -> Option<usize> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let mut chunks = bytes.chunks_exact(8);
    let mut at = 0;
    for chunk in chunks.by_ref() {
        let eight =
            chunk.first_chunk::<8>().map_or(0, |eight| u64::from_le_bytes(*eight)) ^ (EACH * b' ' as u64);
        // The lowest zero byte has the lowest high bit.
        let zero = eight.wrapping_sub(EACH) & !eight & (EACH * 0x80);
        if zero != 0 {
            return Some(at + zero.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    chunks.remainder().iter().position(|byte| *byte == b' ').map(|rest| at + rest)
}
