//! Cuts text into words for the merges, equivalent to the regexes of the tokenizer families.
//!
//! Each family has a hand-written scanner that produces the same words as its regex on any text. Scanners only move
//! forward, look at each character a bounded number of times, and need no stack.

mod cl100k;
mod gpt2;
mod o200k;

pub(super) use cl100k::Cl100k;
pub(super) use gpt2::Gpt2;
pub(super) use o200k::O200k;

use super::classes::{Classes, LETTER, LINE_END, NUMBER, SPACE, TAIL};

/// A rule that cuts text.
pub(super) trait Family {
    /// The end of the word that begins at byte `at`, which is a character boundary before the end of the text.
    fn word(text: &mut Scan<'_>, at: usize) -> usize;
}

/// The rules by family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Gpt2,
    /// cl100k and Llama 3: numbers of up to three digits.
    Cl100k,
    /// Qwen2: single digits.
    Qwen2,
    O200k,
    /// Mistral's Tekken: single digits, no contractions.
    Tekken,
}

/// The regex of cl100k and Llama 3.
pub(crate) const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The regex of o200k.
pub(crate) const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The regex of Mistral's Tekken.
pub(crate) const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The `PRETOKENIZE_REGEX` of Qwen2's tokenizer.
pub(crate) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The regexes with a scanner, as written in `tokenizer.json` files.
const REGEXES: [(&str, Rule); 5] = [
    (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", Rule::Gpt2),
    (CL100K, Rule::Cl100k),
    (QWEN2, Rule::Qwen2),
    (O200K, Rule::O200k),
    (TEKKEN, Rule::Tekken),
];

impl Rule {
    /// The rule of a regex.
    pub(super) fn of_regex(regex: &str) -> Option<Self> {
        REGEXES.iter().find(|(known, _)| *known == regex).map(|(_, rule)| *rule)
    }
}

/// A text that is being cut.
pub(super) struct Scan<'a> {
    text: &'a str,
    classes: &'static Classes,
    /// Whether a scanner has reached the end of the text, so that more text could change the last word.
    pub(super) open: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, classes: Classes::get(), open: false }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// The byte at an offset; 0 at the end of the text.
    #[inline]
    fn byte(&mut self, at: usize) -> u8 {
        let byte = self.bytes().get(at).copied();
        self.open |= byte.is_none();
        byte.unwrap_or(0)
    }

    /// The class and the length of the character at an offset; both 0 at the end of the text.
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

    /// Like `class`, for a character of several bytes.
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

    /// The end of a run of letters.
    #[inline]
    fn letters(&mut self, at: usize) -> usize {
        self.eights(LETTER, leading::<true>, at)
    }

    /// The end of a run of `TAIL` characters, the continuation of a word in the o200k family.
    #[inline]
    fn tail(&mut self, at: usize) -> usize {
        self.eights(TAIL, leading::<false>, at)
    }

    /// The end of a run, eight ASCII bytes at a time where possible. `leading` counts how many of eight bytes belong to
    /// the run.
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

    /// The end of up to `most` numbers; the first one ends at `at`.
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

    /// `\s+(?!\S)|\s+`: a run of whitespace, without its last character if other text follows.
    #[inline]
    fn spaces(&mut self, at: usize) -> usize {
        self.space_run(at, false)
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last line end if there is one, else like `spaces`.
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

    /// The length of a contraction (`'s`, `'t`, `'re`, `'ve`, `'m`, `'ll`, `'d`) at an offset, or 0.
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
            // A case-insensitive regex treats the long s as an s.
            0xe5 | 0xc5 if any_case && self.bytes().get(at + 1..at + 3) == Some("ſ".as_bytes()) => 3,
            _ => 0,
        }
    }
}

/// How many of the eight bytes, from the lowest on, are ASCII letters: lower case only, or either case.
#[inline]
fn leading<const CAPITALS: bool>(eight: u64) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let small = if CAPITALS { eight | (EACH * 0x20) } else { eight };
    let low = small & (EACH * 0x7f);
    // The high bit of each byte marks: at least `a`, and above `z`.
    let (from_a, above_z) = (low + EACH * (0x80 - b'a' as u64), low + EACH * (0x7f - b'z' as u64));
    let letters = from_a & !above_z & !eight & (EACH * 0x80);
    (letters ^ (EACH * 0x80)).trailing_zeros() as usize / 8
}
