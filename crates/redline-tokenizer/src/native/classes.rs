//! Character classes, in the Unicode version of the regexes that the scanners implement.

use regex_syntax::hir::{Class, HirKind};
use std::sync::OnceLock;

/// `\p{L}`
pub(super) const LETTER: u8 = 1;
/// `\p{N}`
pub(super) const NUMBER: u8 = 1 << 1;
/// `\s`
pub(super) const SPACE: u8 = 1 << 2;
/// `[^\s\p{L}\p{N}]`
pub(super) const OTHER: u8 = 1 << 3;
/// `[\r\n]`
pub(super) const LINE_END: u8 = 1 << 4;
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`: characters at the beginning of a word in the o200k family.
pub(super) const HEAD: u8 = 1 << 5;
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`: characters in the rest of such a word.
pub(super) const TAIL: u8 = 1 << 6;
/// `\w`
pub(super) const WORD: u8 = 1 << 7;

/// Number of code points.
const CODE_POINTS: usize = 0x11_0000;

/// The classes of every code point, as bits of the constants above.
pub(super) struct Classes(Box<[u8]>);

impl Classes {
    /// The table, built on first use.
    pub(super) fn get() -> &'static Self {
        static CLASSES: OnceLock<Classes> = OnceLock::new();
        CLASSES.get_or_init(Self::new)
    }

    fn new() -> Self {
        let mut table = vec![0_u8; CODE_POINTS];
        let kinds = [
            (r"\p{L}", LETTER),
            (r"\p{N}", NUMBER),
            (r"\s", SPACE),
            (r"[^\s\p{L}\p{N}]", OTHER),
            (r"[\r\n]", LINE_END),
            (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", HEAD),
            (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", TAIL),
            (r"\w", WORD),
        ];
        for (pattern, bit) in kinds {
            for (first, last) in ranges(pattern) {
                table[first as usize..=last as usize].iter_mut().for_each(|class| *class |= bit);
            }
        }
        Self(table.into_boxed_slice())
    }

    /// The class of a code point.
    #[inline]
    pub(super) fn of(&self, code: u32) -> u8 {
        self.0.get(code as usize).copied().unwrap_or(OTHER)
    }
}

/// The code points that a single-character regex matches.
fn ranges(pattern: &str) -> Vec<(u32, u32)> {
    match regex_syntax::parse(pattern).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => {
            class.ranges().iter().map(|range| (range.start() as u32, range.end() as u32)).collect()
        }
        _ => unreachable!("{pattern} is a class of characters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_regexes() {
        let classes = Classes::get();
        let of = |c: char| classes.of(c as u32);
        assert_eq!(of('a'), LETTER | TAIL | WORD);
        assert_eq!(of('A'), LETTER | HEAD | WORD);
        assert_eq!(of('漢'), LETTER | HEAD | TAIL | WORD);
        assert_eq!(of('\u{301}'), OTHER | HEAD | TAIL | WORD);
        assert_eq!(of('7'), NUMBER | WORD);
        assert_eq!(of('½'), NUMBER);
        assert_eq!(of('\n'), SPACE | LINE_END);
        assert_eq!(of('\u{85}'), SPACE);
        assert_eq!(of('_'), OTHER | WORD);
        assert_eq!(of('\u{200b}'), OTHER);
        // Each code point has exactly one of these four classes.
        for c in '\0'..=char::MAX {
            assert_eq!((of(c) & (LETTER | NUMBER | SPACE | OTHER)).count_ones(), 1, "{c:?}");
        }
    }
}
