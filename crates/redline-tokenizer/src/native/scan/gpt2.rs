//! GPT-2: `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

use super::{Family, Scan};
use crate::native::classes::{LETTER, NUMBER, OTHER, SPACE};

pub(in crate::native) struct Gpt2;

impl Family for Gpt2 {
    #[inline]
    fn word(text: &mut Scan<'_>, at: usize) -> usize {
        let (mut class, mut len) = text.class(at);
        let mut end = at + len;
        if class & SPACE != 0 {
            let (next, next_len) = text.class(end);
            if text.byte(at) != b' ' || next & (LETTER | NUMBER | OTHER) == 0 {
                return text.spaces(at);
            }
            (class, len) = (next, next_len);
            end += len;
        } else if class & OTHER != 0 {
            let contraction = text.contraction(at, false);
            if contraction > 0 {
                return at + contraction;
            }
        }
        if class & LETTER != 0 { text.letters(end) } else { text.run(class & (NUMBER | OTHER), end) }
    }
}
