//! cl100k, Llama 3 and Qwen2: `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}|`
//! ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

use super::{Family, Scan};
use crate::native::classes::{LETTER, LINE_END, NUMBER, OTHER, SPACE};

/// The rule with numbers of up to `DIGITS` digits.
pub(in crate::native) struct Cl100k<const DIGITS: usize>;

impl<const DIGITS: usize> Family for Cl100k<DIGITS> {
    #[inline]
    fn word(text: &mut Scan<'_>, at: usize) -> usize {
        let (class, len) = text.class(at);
        let end = at + len;
        if class & LETTER != 0 {
            return text.letters(end);
        }
        if class & NUMBER != 0 {
            return text.numbers(end, DIGITS);
        }
        if class & OTHER != 0 {
            let contraction = text.contraction(at, true);
            if contraction > 0 {
                return at + contraction;
            }
        }
        if class & LINE_END != 0 {
            return text.lines(at);
        }
        let (next, next_len) = text.class(end);
        if next & LETTER != 0 {
            return text.letters(end + next_len);
        }
        if class & SPACE == 0 || (next & OTHER != 0 && text.byte(at) == b' ') {
            let end = text.run(OTHER, end);
            return text.run(LINE_END, end);
        }
        text.lines(at)
    }
}
