//! Reads the header of a file from front to back, with every length checked against the bytes that follow.

use std::fmt;

use super::fault::GgufFault;
use super::strings::GgufStrings;
use crate::error::{Result, WeightsError};
use crate::quoted::Quoted;
use crate::shard::Shard;

/// The most bytes of header that are read. A vocabulary of 262,144 tokens takes less than 20 MB.
pub(super) const MAX_HEADER: u64 = 256 << 20;
/// Bytes that are read from the file at a time.
const WINDOW: usize = 64 << 10;

/// What the cursor reads, for messages.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Magic,
    Version,
    TensorCount,
    KeyCount,
    TensorList,
    KeyList,
    /// The key of this place.
    Key(u64),
    /// The value of this key.
    Value(&'a str),
    /// The name of the tensor of this place.
    TensorName(u64),
    /// Dimensions, type and offset of this tensor.
    Tensor(&'a str),
}

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("the file type"),
            Self::Version => f.write_str("the version"),
            Self::TensorCount => f.write_str("the number of tensors"),
            Self::KeyCount => f.write_str("the number of keys"),
            Self::TensorList => f.write_str("the list of tensors"),
            Self::KeyList => f.write_str("the list of keys"),
            Self::Key(nth) => write!(f, "key {nth}"),
            Self::Value(key) => write!(f, "the value of `{}`", Quoted(key)),
            Self::TensorName(nth) => write!(f, "the name of tensor {nth}"),
            Self::Tensor(name) => write!(f, "the description of tensor `{}`", Quoted(name)),
        }
    }
}

/// A place in the header of a file. All integers are little-endian.
pub(super) struct Cursor<'a> {
    shard: &'a Shard,
    /// Length of the file.
    bytes: u64,
    /// Offset of the next byte.
    at: u64,
    /// Bytes of the file from `begin` on.
    window: Vec<u8>,
    begin: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(shard: &'a Shard) -> Result<Self> {
        Ok(Self { shard, bytes: shard.bytes()?, at: 0, window: Vec::new(), begin: 0 })
    }

    /// Length of the file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Offset of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn refuse(&self, fault: GgufFault) -> WeightsError {
        WeightsError::Gguf { file: self.shard.file.clone(), fault }
    }

    pub(super) fn u32(&mut self, part: Part) -> Result<u32> {
        self.array(part).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, part: Part) -> Result<u64> {
        self.array(part).map(u64::from_le_bytes)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, part: Part) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, part)?);
        Ok(array)
    }

    /// A length in 64 bits, and a text of that many bytes.
    pub(super) fn string(&mut self, part: Part) -> Result<String> {
        let length = self.u64(part)?;
        self.check(length, part)?;
        let mut text = Vec::with_capacity(length as usize);
        self.append(length, part, &mut text)?;
        let at = self.at - length;
        String::from_utf8(text).map_err(|error| self.not_utf8(part, at, error.utf8_error().valid_up_to()))
    }

    /// A number of elements that take `least` bytes or more each: an error if the rest of the file cannot hold them.
    pub(super) fn count(&self, count: u64, least: u64, part: Part) -> Result<usize> {
        let needs = count.checked_mul(least).filter(|&needs| needs <= self.bytes - self.at);
        let Some(needs) = needs else {
            let (what, at, bytes) = (part.to_string(), self.at, self.bytes);
            return Err(self.refuse(GgufFault::Count { what, count, at, bytes }));
        };
        self.check(needs, part)?;
        Ok(count as usize)
    }

    /// An array of `count` numbers of `N` bytes.
    pub(super) fn numbers<const N: usize, T>(
        &mut self,
        count: u64,
        part: Part,
        convert: fn([u8; N]) -> T,
    ) -> Result<Vec<T>> {
        let count = self.count(count, N as u64, part)?;
        let mut numbers = self.room(count);
        while numbers.len() < count {
            let here = (count - numbers.len()).min(WINDOW / N);
            let (chunks, _) = self.take(here * N, part)?.as_chunks::<N>();
            numbers.extend(chunks.iter().map(|&bytes| convert(bytes)));
        }
        Ok(numbers)
    }

    /// An array of `count` strings.
    pub(super) fn strings(&mut self, count: u64, part: Part) -> Result<GgufStrings> {
        let count = self.count(count, size_of::<u64>() as u64, part)?;
        let (mut text, mut ends) = (Vec::new(), self.room(count));
        for _ in 0..count {
            let (length, begin) = (self.u64(part)?, text.len());
            self.check(length, part)?;
            self.append(length, part, &mut text)?;
            if let Err(error) = str::from_utf8(&text[begin..]) {
                return Err(self.not_utf8(part, self.at - length, error.valid_up_to()));
            }
            ends.push(text.len());
        }
        let checked = String::from_utf8(text);
        let text = checked.map_err(|error| self.not_utf8(part, self.at, error.utf8_error().valid_up_to()))?;
        Ok(GgufStrings::new(text, ends))
    }

    /// A vector with room for `count` values, which the file can hold.
    fn room<T>(&self, count: usize) -> Vec<T> {
        debug_assert!((count * size_of::<T>()) as u64 <= self.bytes);
        Vec::with_capacity(count)
    }

    fn append(&mut self, length: u64, part: Part, text: &mut Vec<u8>) -> Result<()> {
        let mut left = length;
        while left > 0 {
            let here = left.min(WINDOW as u64);
            text.extend_from_slice(self.take(here as usize, part)?);
            left -= here;
        }
        Ok(())
    }

    /// Checks that the file has `needs` more bytes, and that the header may have them.
    fn check(&self, needs: u64, part: Part) -> Result<()> {
        if needs > self.bytes - self.at {
            let (what, at, bytes) = (part.to_string(), self.at, self.bytes);
            return Err(self.refuse(GgufFault::End { what, needs, at, bytes }));
        }
        if self.at + needs > MAX_HEADER {
            return Err(self.refuse(GgufFault::HeaderLimit { what: part.to_string(), limit: MAX_HEADER }));
        }
        Ok(())
    }

    /// The next `length` bytes, at most [`WINDOW`].
    fn take(&mut self, length: usize, part: Part) -> Result<&[u8]> {
        self.check(length as u64, part)?;
        let mut from = (self.at - self.begin) as usize;
        if self.window.len() < from + length {
            let size = (self.bytes - self.at).min(WINDOW as u64);
            self.window.resize(size as usize, 0);
            self.shard.read_header(self.at, &mut self.window)?;
            (self.begin, from) = (self.at, 0);
        }
        self.at += length as u64;
        Ok(&self.window[from..from + length])
    }

    fn not_utf8(&self, part: Part, begin: u64, valid: usize) -> WeightsError {
        self.refuse(GgufFault::NotUtf8 { what: part.to_string(), at: begin + valid as u64 })
    }
}
