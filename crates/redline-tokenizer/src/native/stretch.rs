//! Splits a text into added tokens and the stretches between them, and collects ids, offsets, or a prefix that can be cached.

use super::bpe::Scratch;
use super::form::{Lead, Words};
use super::normal::{self, Normalizer};
use super::scan::{Cl100k, Family, Gpt2, O200k, Rule, Scan};
use super::{Native, added::Part};
use crate::encoding::{EncodedText, Whitespace};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Range;

/// A stretch of text without added tokens, from which words are cut.
pub(super) struct Stretch<'a> {
    /// Its normal form, including the leading space that was added, if any.
    pub(super) text: &'a str,
    /// Length in bytes of the leading space that was added: 0 or 1.
    lead: usize,
    /// The offset in the input text of what follows the added space; `None` if the two texts may differ.
    origin: Option<usize>,
    /// The range of the input text from which each byte comes.
    sources: &'a dyn Fn() -> Vec<Range<usize>>,
}

/// A stretch of text in normal form, before the pre-tokeniser's step.
struct Normalized<'a> {
    text: &'a str,
    /// Whether the normaliser puts a space before it.
    lead: bool,
    /// Whether this is the beginning of the stretch.
    begins: bool,
    /// As in [`Stretch`].
    origin: Option<usize>,
    /// As in [`Stretch`].
    sources: &'a dyn Fn() -> Vec<Range<usize>>,
}

/// Receives the parts of a text, in order.
pub(super) trait Sink {
    /// Receives an added token: its id, its text, and its range in the input text.
    fn added(&mut self, id: u32, text: &str, source: &dyn Fn() -> Range<usize>);

    /// Receives a stretch between added tokens.
    fn stretch(&mut self, stretch: &Stretch<'_>, scratch: &mut Scratch);
}

impl Native {
    /// Passes the parts of a text to the sink, beginning at byte `from`. A `from` above 0 lies within a stretch.
    pub(super) fn walk(&self, text: &str, from: usize, scratch: &mut Scratch, sink: &mut impl Sink) {
        self.added_as_written.split(&text[from..], |Part { start, end, token }| {
            let part = from + start..from + end;
            match token {
                Some(id) => sink.added(id, &text[part.clone()], &|| part.clone()),
                None => self.normalize(text, part, start > 0 || from == 0, scratch, sink),
            }
        });
    }

    /// Normalises a part of a text without added tokens as written, and passes it on: the added tokens that match its normal form,
    /// and the stretches between them. `begins` says that a stretch begins here.
    fn normalize(
        &self,
        text: &str,
        part: Range<usize>,
        begins: bool,
        scratch: &mut Scratch,
        sink: &mut impl Sink,
    ) {
        let written = &text[part.clone()];
        let normal = self.normalizer.apply(written);
        let unchanged = matches!(normal, Cow::Borrowed(_));
        let lead = begins && self.normalizer.leads();
        if self.added_normalized.is_empty() {
            let origin = unchanged.then_some(part.start);
            let sources = || shifted(self.normalizer.places(written), part.start);
            let normalized = Normalized { text: &normal, lead, begins, origin, sources: &sources };
            return self.finish(&normalized, scratch, sink);
        }
        let with_space = if lead { Cow::Owned(format!(" {normal}")) } else { normal };
        let computed = OnceCell::new();
        let sources = || {
            computed.get_or_init(|| {
                let mut sources = shifted(self.normalizer.places(written), part.start);
                if lead && let Some(first) = sources.first().cloned() {
                    sources.insert(0, first);
                }
                sources
            })
        };
        self.added_normalized.split(&with_space, |Part { start, end, token }| match token {
            Some(id) => {
                let text = self.normalizer.shown(&with_space[start..end]);
                sink.added(id, &text, &|| span(&sources()[start..end]));
            }
            None => {
                let origin = if unchanged && !lead { Some(part.start + start) } else { None };
                let sources = || sources()[start..end].to_vec();
                let (text, begins) = (&with_space[start..end], begins || start > 0);
                let normalized = Normalized { text, lead: false, begins, origin, sources: &sources };
                self.finish(&normalized, scratch, sink);
            }
        });
    }

    /// Takes the pre-tokeniser's step: replaces marks by spaces and adds the leading space if necessary. Passes the stretch on.
    fn finish(&self, normalized: &Normalized<'_>, scratch: &mut Scratch, sink: &mut impl Sink) {
        let Normalized { text, lead, begins, origin, sources } = *normalized;
        let respaced = match self.words {
            Words::Spaces { .. } if self.normalizer == Normalizer::None => normal::spaces(text),
            _ => Cow::Borrowed(text),
        };
        let gets_space = match self.words {
            Words::Bytes { lead, .. } => lead,
            Words::Spaces { lead: Lead::Always, .. } => true,
            Words::Spaces { lead: Lead::First, .. } => origin == Some(0),
            Words::Spaces { lead: Lead::Never, .. } => false,
        };
        let origin = origin.filter(|_| matches!(respaced, Cow::Borrowed(_)));
        let lead = lead || (gets_space && begins && !respaced.starts_with(' '));
        let sources = || {
            let of_text = match respaced {
                Cow::Borrowed(_) => sources(),
                Cow::Owned(_) => {
                    let before = sources();
                    normal::space_places(text).into_iter().map(|range| span(&before[range])).collect()
                }
            };
            let of_space = if lead { of_text.first().cloned() } else { None };
            of_space.into_iter().chain(of_text).collect()
        };
        if lead {
            let mut with_space = std::mem::take(&mut scratch.text);
            with_space.clear();
            with_space.push(' ');
            with_space.push_str(&respaced);
            sink.stretch(&Stretch { text: &with_space, lead: 1, origin, sources: &sources }, scratch);
            scratch.text = with_space;
        } else {
            sink.stretch(&Stretch { text: &respaced, lead: 0, origin, sources: &sources }, scratch);
        }
    }

    /// Calls `each` for every word of a stretch, with its start, its end, and whether more text could change the end.
    fn words(&self, text: &str, each: impl FnMut(usize, usize, bool)) {
        match self.words {
            Words::Spaces { cut, .. } => cut_by(text, |scan, at| cut.word(scan, at), each),
            Words::Bytes { rule, .. } => match rule {
                Rule::Gpt2 => cut_by(text, Gpt2::word, each),
                Rule::Cl100k => cut_by(text, Cl100k::<3>::word, each),
                Rule::Qwen2 => cut_by(text, Cl100k::<1>::word, each),
                Rule::O200k => cut_by(text, O200k::<3, true>::word, each),
                Rule::Tekken => cut_by(text, O200k::<1, false>::word, each),
            },
        }
    }
}

/// Cuts a text into words with a function that finds the end of the word at an offset.
#[inline]
fn cut_by(
    text: &str,
    mut word: impl FnMut(&mut Scan<'_>, usize) -> usize,
    mut each: impl FnMut(usize, usize, bool),
) {
    let mut scan = Scan::new(text);
    let mut at = 0;
    while at < text.len() {
        let end = word(&mut scan, at);
        each(at, end, scan.open);
        at = end;
    }
}

/// Adds an offset to every range.
fn shifted(mut ranges: Vec<Range<usize>>, by: usize) -> Vec<Range<usize>> {
    for range in &mut ranges {
        *range = range.start + by..range.end + by;
    }
    ranges
}

/// From the start of the first range to the end of the last.
fn span(ranges: &[Range<usize>]) -> Range<usize> {
    match (ranges.first(), ranges.last()) {
        (Some(first), Some(last)) => first.start..last.end,
        _ => 0..0,
    }
}

/// Collects ids.
pub(super) struct Ids<'a> {
    pub(super) native: &'a Native,
    pub(super) ids: &'a mut Vec<u32>,
}

impl Sink for Ids<'_> {
    fn added(&mut self, id: u32, _: &str, _: &dyn Fn() -> Range<usize>) {
        self.ids.push(id);
    }

    fn stretch(&mut self, stretch: &Stretch<'_>, scratch: &mut Scratch) {
        let Self { native, ids } = self;
        native.words(stretch.text, |start, end, _| {
            native.bpe.encode(stretch.text, start, end, scratch, ids);
        });
    }
}

/// Collects ids and their offsets.
pub(super) struct Offsets<'a> {
    pub(super) native: &'a Native,
    pub(super) out: &'a mut EncodedText,
}

impl Sink for Offsets<'_> {
    fn added(&mut self, id: u32, text: &str, source: &dyn Fn() -> Range<usize>) {
        let EncodedText { encoding, added } = self.out;
        added.push((encoding.ids.len(), Whitespace::of(text)));
        encoding.ids.push(id);
        encoding.offsets.push(source());
    }

    fn stretch(&mut self, stretch: &Stretch<'_>, scratch: &mut Scratch) {
        let sources = (stretch.sources)();
        let Self { native, out: EncodedText { encoding, .. } } = self;
        native.words(stretch.text, |start, end, _| {
            let first = encoding.ids.len();
            native.bpe.encode(stretch.text, start, end, scratch, &mut encoding.ids);
            let ids = &encoding.ids[first..];
            let mut token_start = start;
            for id in ids {
                let token_end =
                    if ids.len() == 1 { end } else { (token_start + native.bpe.length(*id)).min(end) };
                encoding.offsets.push(span(&sources[token_start..token_end]));
                token_start = token_end;
            }
        });
    }
}

/// A prefix of a text whose ids stay the same whatever follows it. Empty if no such prefix is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beginning {
    /// Length of the prefix in bytes.
    pub(crate) bytes: usize,
    pub(crate) ids: Vec<u32>,
}

/// Collects a prefix of a text whose ids no continuation can change.
pub(super) struct Begin<'a> {
    native: &'a Native,
    /// No continuation can change which added tokens begin before this byte.
    limit: usize,
    ids: Vec<u32>,
    /// The end of the longest such prefix so far, and its number of ids.
    safe: (usize, usize),
    /// Whether the prefix can grow no further.
    done: bool,
}

impl<'a> Begin<'a> {
    pub(super) fn new(native: &'a Native, limit: usize) -> Self {
        Self { native, limit, ids: Vec::new(), safe: (0, 0), done: false }
    }

    pub(super) fn finish(mut self) -> Beginning {
        let (bytes, ids) = self.safe;
        self.ids.truncate(ids);
        Beginning { bytes, ids: self.ids }
    }
}

impl Sink for Begin<'_> {
    fn added(&mut self, id: u32, _: &str, source: &dyn Fn() -> Range<usize>) {
        self.done |= source().start >= self.limit;
        self.ids.push(id);
    }

    fn stretch(&mut self, stretch: &Stretch<'_>, scratch: &mut Scratch) {
        let Self { native, limit, ids, safe, done } = self;
        let Some(origin) = stretch.origin else {
            // The ids of a prefix must be complete, so nothing after this stretch can be kept either.
            *done = true;
            return;
        };
        if *done || origin >= *limit {
            *done = true;
            return;
        }
        // A continuation may complete an added token that begins at the limit or after it, so the stretch may end there.
        let length = stretch.text.len();
        let before_limit = length.min(*limit - origin + stretch.lead);
        let text = &stretch.text[..before_limit];
        let reaches_limit = before_limit < length || origin + length - stretch.lead >= *limit;
        native.words(text, |start, end, open| {
            native.bpe.encode(text, start, end, scratch, ids);
            // A word that is only the added leading space covers no byte of the input text.
            let is_in_text = origin + end > stretch.lead;
            if (!open || !reaches_limit) && end < text.len() && is_in_text {
                *safe = (origin + end - stretch.lead, ids.len());
            }
        });
        *done |= reaches_limit;
    }
}
