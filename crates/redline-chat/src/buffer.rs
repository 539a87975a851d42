//! What a model has written and nobody has read yet.

/// A part of what a model writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Text.
    Text(&'a str),
    /// A token that marks a place.
    Marker(&'a Marker),
}

/// A token that marks a place in a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// The token.
    pub id: u32,
    /// How it is written, such as `<tool_call>`.
    pub name: String,
    /// Whether it is left out of texts.
    pub is_special: bool,
}

/// The marker with which a mark begins, and the text after it.
pub(crate) fn begin_of<'m, 'a>(mark: &'a str, markers: &'m [Marker]) -> Option<(&'m Marker, &'a str)> {
    markers.iter().find_map(|marker| Some((marker, mark.strip_prefix(&*marker.name)?)))
}

/// Begins a marker. Markers are kept between bytes that no UTF-8 contains.
const BEGIN: u8 = 0xFF;
/// Ends a marker that is left out of texts.
const END_SPECIAL: u8 = 0xFE;
/// Ends a marker that texts contain.
const END: u8 = 0xFD;

/// Something to look for: a marker, or characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Needle(Vec<u8>);

impl Needle {
    /// Characters.
    pub(crate) fn text(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// A marker, and characters after it.
    pub(crate) fn of(marker: &Marker, rest: &str) -> Self {
        Self([&written(marker), rest.as_bytes()].concat())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether this is a token.
    pub(crate) fn is_marker(&self) -> bool {
        self.0.first() == Some(&BEGIN)
    }

    /// Whether `bytes` begins with it; `None` if that shows only later.
    pub(crate) fn begins(&self, bytes: &[u8], ended: bool) -> Option<bool> {
        if bytes.starts_with(&self.0) {
            Some(true)
        } else {
            (ended || !self.0.starts_with(bytes)).then_some(false)
        }
    }
}

fn written(marker: &Marker) -> Vec<u8> {
    let end = if marker.is_special { END_SPECIAL } else { END };
    [&[BEGIN], marker.name.as_bytes(), &[end]].concat()
}

/// Bytes within which a name ends, with the mark after it.
const MAX_NAME: usize = 512;

/// What has been written and not given away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Number of bytes that were read, and may still turn out to be something else.
    read: usize,
    /// Whether nothing will follow.
    pub(crate) ended: bool,
}

impl Buffer {
    pub(crate) fn push(&mut self, input: Input<'_>) {
        match input {
            Input::Text(text) => self.bytes.extend_from_slice(text.as_bytes()),
            Input::Marker(marker) => self.bytes.extend_from_slice(&written(marker)),
        }
    }

    /// What was not read.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// Reads the next bytes.
    pub(crate) fn skip(&mut self, count: usize) {
        self.read = self.read.saturating_add(count).min(self.bytes.len());
    }

    /// Reads white space.
    pub(crate) fn skip_space(&mut self) {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.skip(count);
    }

    /// Reads this if it comes next; `None` if that shows only later.
    pub(crate) fn skip_if(&mut self, needle: &Needle) -> Option<bool> {
        let begins = needle.begins(self.rest(), self.ended)?;
        if begins {
            self.skip(needle.len());
        }
        Some(begins)
    }

    /// Reads up to the first of these, and it too; returns what came before, which is a name, and which it was. `None` if none has come.
    pub(crate) fn skip_until(&mut self, needles: &[&Needle]) -> Option<(Vec<u8>, usize)> {
        let rest = self.rest();
        let (at, which) = find(&rest[..rest.len().min(MAX_NAME)], needles)?;
        let before = self.rest()[..at].to_vec();
        self.skip(at + needles[which].len());
        Some((before, which))
    }

    /// Whether the end of a name will not come: nothing follows, or what came is too long for a name.
    pub(crate) fn has_no_name(&self) -> bool {
        self.ended || self.rest().len() >= MAX_NAME
    }

    /// What was read is what it seemed to be.
    pub(crate) fn commit(&mut self) {
        self.bytes.drain(..self.read);
        self.read = 0;
    }

    /// What was read is something else: it was not read.
    pub(crate) fn reset(&mut self) {
        self.read = 0;
    }

    /// Takes the next bytes.
    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        self.commit();
        self.skip(count);
        self.bytes.drain(..std::mem::take(&mut self.read)).collect()
    }
}

/// The earliest of these in `bytes`, and its place. Of two in the same place, the first in the list.
pub(crate) fn find(bytes: &[u8], needles: &[&Needle]) -> Option<(usize, usize)> {
    (0..bytes.len()).find_map(|at| {
        let which =
            needles.iter().position(|needle| !needle.0.is_empty() && bytes[at..].starts_with(&needle.0));
        which.map(|which| (at, which))
    })
}

/// The number of bytes at the end of `bytes` with which one of these may begin.
pub(crate) fn held(bytes: &[u8], needles: &[&Needle]) -> usize {
    let longest = |needle: &&Needle| {
        let most = needle.len().saturating_sub(1).min(bytes.len());
        (1..=most).rev().find(|count| needle.0.starts_with(&bytes[bytes.len() - count..])).unwrap_or(0)
    };
    needles.iter().map(longest).max().unwrap_or(0)
}

/// The length of the marker that begins here; `None` if none does.
pub(crate) fn marker_length(bytes: &[u8]) -> Option<usize> {
    (bytes.first() == Some(&BEGIN)).then(|| {
        let end = bytes.iter().position(|byte| matches!(*byte, END | END_SPECIAL));
        end.map_or(bytes.len(), |end| end + 1)
    })
}

/// The text without special tokens.
pub(crate) fn visible(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == BEGIN) {
        text.extend_from_slice(&rest[..at]);
        let length = marker_length(&rest[at..]).unwrap_or(1);
        let marker = &rest[at..at + length];
        if let [_, name @ .., END] = marker {
            text.extend_from_slice(name);
        }
        rest = &rest[at + length..];
    }
    text.extend_from_slice(rest);
    String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_not_their_characters() {
        let special = Marker { id: 7, name: "<a>".to_owned(), is_special: true };
        let plain = Marker { is_special: false, ..special.clone() };
        let mut buffer = Buffer::default();
        for input in [Input::Text("x<a>é"), Input::Marker(&special), Input::Text("y"), Input::Marker(&plain)]
        {
            buffer.push(input);
        }
        let place = |needle: &Needle| find(buffer.rest(), &[needle]).map(|(at, _)| at);
        assert_eq!(place(&Needle::text("<a>")), Some(1));
        assert_eq!(place(&Needle::of(&special, "")), Some(6));
        assert_eq!(place(&Needle::of(&plain, "")), Some(12));
        assert_eq!(visible(buffer.rest()), "x<a>éy<a>");
        assert_eq!(held(b"ab<", &[&Needle::text("<a>"), &Needle::text("b<c")]), 2);
    }
}
