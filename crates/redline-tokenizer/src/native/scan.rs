//! Cutting text into the words that the merges see, as the regexes of the tokenizer families do.
//!
//! Each family is a hand-written scanner that gives the same words as its regex on any text: it goes forward only, looks at
//! each character a bounded number of times, and needs no stack.

mod cl100k;
mod gpt2;
mod o200k;

pub(super) use cl100k::Cl100k;
pub(super) use gpt2::Gpt2;
pub(super) use o200k::O200k;

use super::classes::{Classes, LETTER, LINE_END, NUMBER, SPACE, TAIL};

/// A rule by which text is cut.
pub(super) trait Family {
    /// Where the word that begins at byte `at` ends; `at` lies before the end of the text, at a character.
    fn word(text: &mut Scan<'_>, at: usize) -> usize;
}

/// The rules by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Gpt2,
    /// cl100k and Llama 3: numbers of up to three digits.
    Cl100k,
    /// Qwen2: digits one by one.
    Qwen2,
    O200k,
    /// Mistral's Tekken: digits one by one, no contractions.
    Tekken,
}

/// From the `PRETOKENIZE_REGEX` of Qwen2's tokenizer.
pub(crate) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The regexes that there is a scanner for, as `tokenizer.json` files write them.
const REGEXES: [(&str, Rule); 5] = [
    (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", Rule::Gpt2),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Rule::Cl100k,
    ),
    (QWEN2, Rule::Qwen2),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Rule::O200k,
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        Rule::Tekken,
    ),
];

impl Rule {
    /// The rule that a regex states.
    pub(super) fn of_regex(regex: &str) -> Option<Self> {
        REGEXES.iter().find(|(known, _)| *known == regex).map(|(_, rule)| *rule)
    }
}

/// A text being cut.
pub(super) struct Scan<'a> {
    text: &'a str,
    classes: &'static Classes,
    /// The end of the text has been seen: with more text behind it the last word could have come out otherwise.
    pub(super) open: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, classes: Classes::get(), open: false }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// The byte at a place; 0 at the end of the text.
    #[inline]
    fn byte(&mut self, at: usize) -> u8 {
        let byte = self.bytes().get(at).copied();
        self.open |= byte.is_none();
        byte.unwrap_or(0)
    }

    /// The class and the length of the character at a place; no class and no length at the end of the text.
    #[inline]
    fn class(&mut self, at: usize) -> (u8, usize) {
        match self.bytes().get(at) {
            Some(&byte) if byte < 0x80 => (self.classes.of(byte.into()), 1),
            Some(_) => self.wide(at),
            None => {
                self.open = true;
                (0, 0)
            }
        }
    }

    /// The same for a character of several bytes.
    fn wide(&self, at: usize) -> (u8, usize) {
        let tail = self.text.get(at..).and_then(|rest| rest.chars().next());
        tail.map_or((0, 0), |c| (self.classes.of(c as u32), c.len_utf8()))
    }

    /// The end of the run of characters of these classes that begins here.
    #[inline]
    fn run(&mut self, classes: u8, mut at: usize) -> usize {
        loop {
            let (class, len) = self.class(at);
            if class & classes == 0 {
                return at;
            }
            at += len;
        }
    }

    /// The same for letters.
    #[inline]
    fn letters(&mut self, at: usize) -> usize {
        self.eights(LETTER, leading::<true>, at)
    }

    /// The same for what may stand where a word goes on in the o200k family.
    #[inline]
    fn tail(&mut self, at: usize) -> usize {
        self.eights(TAIL, leading::<false>, at)
    }

    /// The same, eight bytes at a time while they are ASCII; `leading` counts those of eight bytes that belong to the run.
    #[inline]
    fn eights(&mut self, classes: u8, leading: impl Fn(u64) -> usize, mut at: usize) -> usize {
        loop {
            if let Some(eight) = self.bytes().get(at..).and_then(|rest| rest.first_chunk::<8>()) {
                let found = leading(u64::from_le_bytes(*eight));
                at += found;
                if found == 8 {
                    continue;
                }
                if eight[found] < 0x80 {
                    return at;
                }
            }
            let (class, len) = self.class(at);
            if class & classes == 0 {
                return at;
            }
            at += len;
        }
    }

    /// The end of up to `most` numbers, of which the first ends at `at`.
    #[inline]
    fn numbers(&mut self, mut at: usize, most: usize) -> usize {
        for _ in 1..most {
            let (class, len) = self.class(at);
            if class & NUMBER == 0 {
                break;
            }
            at += len;
        }
        at
    }

    /// `\s+(?!\S)|\s+`: a run of whitespace without its last character, where something else follows it.
    #[inline]
    fn spaces(&mut self, at: usize) -> usize {
        self.space_run(at, false)
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`: to the last end of a line where there is one, else like `spaces`.
    #[inline]
    fn lines(&mut self, at: usize) -> usize {
        self.space_run(at, true)
    }

    #[inline]
    fn space_run(&mut self, at: usize, lines: bool) -> usize {
        let (mut end, mut last, mut line) = (at, at, None);
        loop {
            let (class, len) = self.class(end);
            if class & SPACE == 0 {
                if let Some(line) = line.filter(|_| lines) {
                    return line;
                }
                return if len == 0 || last == at { end } else { last };
            }
            last = end;
            end += len;
            if class & LINE_END != 0 {
                line = Some(end);
            }
        }
    }

    /// The length of a contraction (`'s`, `'t`, `'re`, `'ve`, `'m`, `'ll`, `'d`) at a place, 0 where there is none.
    #[inline]
    fn contraction(&mut self, at: usize, any_case: bool) -> usize {
        if self.byte(at) != b'\'' {
            return 0;
        }
        let fold = if any_case { 0x20 } else { 0 };
        match self.byte(at + 1) | fold {
            b's' | b't' | b'm' | b'd' => 2,
            b'r' | b'v' if self.byte(at + 2) | fold == b'e' => 3,
            b'l' if self.byte(at + 2) | fold == b'l' => 3,
            // The long s is an s to a regex that ignores case.
            0xe5 | 0xc5 if any_case && self.bytes().get(at + 1..at + 3) == Some("ſ".as_bytes()) => 3,
            _ => 0,
        }
    }
}

/// How many of eight bytes, from the lowest on, are ASCII letters: small ones, or also capitals.
#[inline]
fn leading<const CAPITALS: bool>(eight: u64) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let small = if CAPITALS { eight | (EACH * 0x20) } else { eight };
    let low = small & (EACH * 0x7f);
    // The high bit of each byte: at least `a`, and above `z`.
    let (from_a, above_z) = (low + EACH * (0x80 - b'a' as u64), low + EACH * (0x7f - b'z' as u64));
    let letters = from_a & !above_z & !eight & (EACH * 0x80);
    (letters ^ (EACH * 0x80)).trailing_zeros() as usize / 8
}
