//! Splits a text into stretches without added tokens, and collects ids, offsets, or a prefix that can be cached.

use super::bpe::Scratch;
use super::form::{Lead, Words};
use super::normal::{self, Normalizer};
use super::scan::{Cl100k, Family, Gpt2, O200k, Rule, Scan};
use super::{Native, added::Part};
use crate::encoding::{Found, Whitespace};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Range;

/// A stretch of text without added tokens, from which words are cut.
pub(super) struct Stretch<'a> {
    /// Its normal form, including the added leading space.
    pub(super) text: &'a str,
    /// Number of bytes added before it.
    lead: usize,
    /// Its offset in the input text; `None` unless it is there byte for byte, except for the lead.
    origin: Option<usize>,
    /// The source range of each byte.
    places: &'a dyn Fn() -> Vec<Range<usize>>,
}

/// A stretch of text in normal form, before the pre-tokeniser's step.
struct Rough<'a> {
    text: &'a str,
    /// Whether the normaliser puts a space before it.
    lead: bool,
    /// Whether this is the beginning of the stretch.
    begins: bool,
    /// As in [`Stretch`].
    origin: Option<usize>,
    places: &'a dyn Fn() -> Vec<Range<usize>>,
}

/// Receives the parts of a text.
pub(super) trait Sink {
    /// Receives an added token: its id, the text it was found as, and its source range.
    fn added(&mut self, id: u32, text: &str, place: &dyn Fn() -> Range<usize>);
    fn stretch(&mut self, stretch: &Stretch<'_>, scratch: &mut Scratch);
}

impl Native {
    /// Passes the parts of a text from byte `from` on to the sink. A `from` above 0 lies within a stretch.
    pub(super) fn walk(&self, text: &str, from: usize, scratch: &mut Scratch, sink: &mut impl Sink) {
        self.raw.split(&text[from..], |Part { start, end, token }| {
            let part = from + start..from + end;
            match token {
                Some(id) => sink.added(id, &text[part.clone()], &|| part.clone()),
                None => self.normal(text, part, start > 0 || from == 0, scratch, sink),
            }
        });
    }

    /// Passes on the parts of a text that contains no added token as written. `begins` says that this is the beginning of
    /// the stretch.
    fn normal(
        &self,
        text: &str,
        part: Range<usize>,
        begins: bool,
        scratch: &mut Scratch,
        sink: &mut impl Sink,
    ) {
        let written = &text[part.clone()];
        let normal = self.normalizer.apply(written);
        let same = matches!(normal, Cow::Borrowed(_));
        let lead = begins && self.normalizer.leads();
        if self.cooked.is_empty() {
            let origin = same.then_some(part.start);
            let places = || shifted(self.normalizer.places(written), part.start);
            let rough = Rough { text: &normal, lead, begins, origin, places: &places };
            return self.finish(&rough, scratch, sink);
        }
        let led = if lead { Cow::Owned(format!(" {normal}")) } else { normal };
        let all = OnceCell::new();
        let places = || {
            all.get_or_init(|| {
                let mut places = shifted(self.normalizer.places(written), part.start);
                if lead && let Some(first) = places.first().cloned() {
                    places.insert(0, first);
                }
                places
            })
        };
        self.cooked.split(&led, |Part { start, end, token }| match token {
            Some(id) => {
                let text = self.normalizer.shown(&led[start..end]);
                sink.added(id, &text, &|| span(&places()[start..end]));
            }
            None => {
                let origin = if same && !lead { Some(part.start + start) } else { None };
                let places = || places()[start..end].to_vec();
                let (text, begins) = (&led[start..end], begins || start > 0);
                let rough = Rough { text, lead: false, begins, origin, places: &places };
                self.finish(&rough, scratch, sink);
            }
        });
    }

    /// Adds the leading space if the stretch gets one, and passes the stretch on.
    fn finish(&self, rough: &Rough<'_>, scratch: &mut Scratch, sink: &mut impl Sink) {
        let Rough { text, lead, begins, origin, places } = *rough;
        let respaced = match self.words {
            Words::Spaces { .. } if self.normalizer == Normalizer::None => normal::spaces(text),
            _ => Cow::Borrowed(text),
        };
        let wanted = match self.words {
            Words::Bytes { lead, .. } => lead,
            Words::Spaces { lead: Lead::Always, .. } => true,
            Words::Spaces { lead: Lead::First, .. } => origin == Some(0),
            Words::Spaces { lead: Lead::Never, .. } => false,
        };
        let origin = origin.filter(|_| matches!(respaced, Cow::Borrowed(_)));
        let lead = lead || (wanted && begins && !respaced.starts_with(' '));
        let places = || {
            let own = match respaced {
                Cow::Borrowed(_) => places(),
                Cow::Owned(_) => {
                    let outer = places();
                    normal::space_places(text).into_iter().map(|place| span(&outer[place])).collect()
                }
            };
            let first = if lead { own.first().cloned() } else { None };
            first.into_iter().chain(own).collect()
        };
        if lead {
            let mut led = std::mem::take(&mut scratch.text);
            led.clear();
            led.push(' ');
            led.push_str(&respaced);
            sink.stretch(&Stretch { text: &led, lead: 1, origin, places: &places }, scratch);
            scratch.text = led;
        } else {
            sink.stretch(&Stretch { text: &respaced, lead: 0, origin, places: &places }, scratch);
        }
    }

    /// Calls `each` for the words of a stretch: beginning, end, and whether more text could change the end.
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

fn shifted(mut places: Vec<Range<usize>>, by: usize) -> Vec<Range<usize>> {
    for place in &mut places {
        *place = place.start + by..place.end + by;
    }
    places
}

/// From the start of the first range to the end of the last.
fn span(places: &[Range<usize>]) -> Range<usize> {
    match (places.first(), places.last()) {
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
    pub(super) found: &'a mut Found,
}

impl Sink for Offsets<'_> {
    fn added(&mut self, id: u32, text: &str, place: &dyn Fn() -> Range<usize>) {
        let Found { encoding, added } = self.found;
        added.push((encoding.ids.len(), Whitespace::of(text)));
        encoding.ids.push(id);
        encoding.offsets.push(place());
    }

    fn stretch(&mut self, stretch: &Stretch<'_>, scratch: &mut Scratch) {
        let places = (stretch.places)();
        let Self { native, found: Found { encoding, .. } } = self;
        native.words(stretch.text, |start, end, _| {
            let first = encoding.ids.len();
            native.bpe.encode(stretch.text, start, end, scratch, &mut encoding.ids);
            let ids = &encoding.ids[first..];
            let mut at = start;
            for id in ids {
                let to = if ids.len() == 1 { end } else { (at + native.bpe.length(*id)).min(end) };
                encoding.offsets.push(span(&places[at..to]));
                at = to;
            }
        });
    }
}

/// The ids of a prefix of a text that stay the same whatever follows. Empty if no such prefix is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beginning {
    /// Length of the prefix in bytes.
    pub(crate) bytes: usize,
    pub(crate) ids: Vec<u32>,
}

/// Collects a prefix of a text.
pub(super) struct Begin<'a> {
    native: &'a Native,
    /// All added tokens that begin before this byte are known.
    limit: usize,
    ids: Vec<u32>,
    /// The end of the longest safe prefix so far, and its number of ids.
    safe: (usize, usize),
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
    fn added(&mut self, id: u32, _: &str, place: &dyn Fn() -> Range<usize>) {
        self.done |= place().start >= self.limit;
        self.ids.push(id);
    }

    fn stretch(&mut self, stretch: &Stretch<'_>, scratch: &mut Scratch) {
        let Self { native, limit, ids, safe, done } = self;
        let Some(origin) = stretch.origin else {
            // Ids must be contiguous, so nothing after this stretch can be kept either.
            *done = true;
            return;
        };
        if *done || origin >= *limit {
            *done = true;
            return;
        }
        // An added token may begin after the limit, so the stretch may end there.
        let whole = stretch.text.len();
        let seen = whole.min(*limit - origin + stretch.lead);
        let text = &stretch.text[..seen];
        let cut = seen < whole || origin + whole - stretch.lead >= *limit;
        native.words(text, |start, end, open| {
            native.bpe.encode(text, start, end, scratch, ids);
            let next = text[end..].chars().next();
            let anew = native.normalizer != Normalizer::Nfc || next.is_some_and(normal::begins_anew);
            // A word that is only the added leading space is not part of the text yet.
            if (!open || !cut) && next.is_some() && anew && origin + end > stretch.lead {
                *safe = (origin + end - stretch.lead, ids.len());
            }
        });
        *done |= cut;
    }
}
