//! o200k and Tekken, where words are cut before capitals:
//! `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+CONTRACTION?|`
//! `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*CONTRACTION?|\p{N}{1,DIGITS}|`
//! ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

use super::{Family, Scan};
use crate::native::classes::{HEAD, LETTER, LINE_END, NUMBER, OTHER, SPACE, TAIL};

/// The rule with numbers of up to `DIGITS` digits, with or without `(?i:'s|'t|'re|'ve|'m|'ll|'d)`.
pub(in crate::native) struct O200k<const DIGITS: usize, const CONTRACTIONS: bool>;

impl<const DIGITS: usize, const CONTRACTIONS: bool> Family for O200k<DIGITS, CONTRACTIONS> {
    #[inline]
    fn word(text: &mut Scan<'_>, at: usize) -> usize {
        let (class, len) = text.class(at);
        let end = at + len;
        if class & NUMBER != 0 {
            return text.numbers(end, DIGITS);
        }
        // The first alternative with and without its optional first character, then the second one likewise.
        let leads = class & (LETTER | LINE_END) == 0;
        let starts = [if leads { Some(end) } else { None }, Some(at)];
        let found = starts.into_iter().flatten().find_map(|start| tailed(text, start));
        let found = found.or_else(|| starts.into_iter().flatten().find_map(|start| headed(text, start)));
        if let Some(end) = found {
            return if CONTRACTIONS { end + text.contraction(end, true) } else { end };
        }
        if class & SPACE == 0 || (text.byte(at) == b' ' && text.class(end).0 & OTHER != 0) {
            let mut end = text.run(OTHER, end);
            while text.class(end).0 & LINE_END != 0 || text.byte(end) == b'/' {
                end += 1;
            }
            return end;
        }
        text.lines(at)
    }
}

/// `HEAD*TAIL+`: up to the end of the tail after the heads; if there is none, up to the last head that is also a tail.
fn tailed(text: &mut Scan<'_>, start: usize) -> Option<usize> {
    let (mut at, mut last) = (start, None);
    loop {
        let (class, len) = text.class(at);
        if class & HEAD == 0 {
            return if class & TAIL == 0 { last } else { Some(text.tail(at + len)) };
        }
        at += len;
        if class & TAIL != 0 {
            last = Some(at);
        }
    }
}

/// `HEAD+TAIL*`, if no tail follows the heads.
fn headed(text: &mut Scan<'_>, start: usize) -> Option<usize> {
    let end = text.run(HEAD, start);
    if end > start { Some(text.tail(end)) } else { None }
}
