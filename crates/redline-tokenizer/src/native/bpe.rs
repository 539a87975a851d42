//! The BPE model: encodes the bytes of a word as ids.

use super::merge::{Merges, Queue};
use super::words::{KEY_BYTES, Key, Known, LONG_KEY_BYTES, LongKey, MetLong, MetShort, Tokens};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::hash::BuildHasher;

/// Vocabulary and merges over bytes. Words come from the scanners, or from `super::spaces`.
pub(super) struct Bpe {
    /// Tokens of up to [`KEY_BYTES`] bytes.
    short: Tokens,
    /// Longer tokens.
    long: HashTable<Long>,
    longest: usize,
    hasher: DefaultHashBuilder,
    first: First,
    merges: Merges,
    /// The bytes of all tokens, concatenated, and the offset of each token, followed by the end.
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

/// A token of more than [`KEY_BYTES`] bytes, and whether the merges produce it.
struct Long {
    id: u32,
    known: Known,
}

/// Base-2 logarithms of the numbers of cached words.
const SHORT_BITS: u32 = 14;
const LONG_BITS: u32 = 12;

/// The initial symbols of a word.
pub(super) enum First {
    /// One per byte.
    Bytes(Box<[u32; 256]>),
    /// One per character that is a token, else one per byte of the character.
    Characters { ascii: Box<[u32; 128]>, wide: HashMap<char, u32>, bytes: Box<[u32; 256]> },
}

/// Buffers for encoding, one set per thread.
pub(super) struct Scratch {
    short: MetShort,
    /// Allocated at the first long word.
    long: Option<MetLong>,
    symbols: Vec<u32>,
    queue: Queue,
    /// Buffer for modified text from which words are cut.
    pub(super) text: String,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self {
            short: MetShort::new(SHORT_BITS),
            long: None,
            symbols: Vec::new(),
            queue: Queue::default(),
            text: String::new(),
        }
    }
}

impl Scratch {
    /// The memory used by buffers that grow with the text.
    pub(super) fn bytes(&self) -> usize {
        self.text.capacity() + 4 * self.symbols.capacity() + self.queue.bytes()
    }
}

/// The data from which a [`Bpe`] is built.
pub(super) struct Vocabulary<'a> {
    /// The bytes of the tokens by id; `None` for tokens that no word can be.
    pub(super) tokens: &'a [Option<Vec<u8>>],
    pub(super) first: First,
    pub(super) merges: &'a [[u32; 3]],
    /// Whether a word that is a token becomes that token, even if the merges give another result.
    pub(super) whole: bool,
}

impl Bpe {
    pub(super) fn new(vocabulary: Vocabulary<'_>) -> Self {
        let Vocabulary { tokens, first, merges, whole } = vocabulary;
        let (mut bytes, mut starts) = (Vec::new(), vec![0]);
        let (mut short, mut long) = (Vec::new(), Vec::new());
        for (id, token) in (0..).zip(tokens) {
            let token = token.as_deref().unwrap_or_default();
            bytes.extend_from_slice(token);
            starts.push(bytes.len() as u32);
            match token.len() {
                0 => {}
                len @ 1..=KEY_BYTES => short.push((Key::of(token, 0, len), id)),
                _ => long.push(id),
            }
        }
        let mut bpe = Self {
            short: Tokens::new(&short, whole),
            long: HashTable::with_capacity(long.len()),
            longest: tokens.iter().flatten().map(Vec::len).max().unwrap_or(0),
            hasher: DefaultHashBuilder::default(),
            first,
            merges: Merges::new(merges),
            bytes,
            starts,
        };
        for id in long {
            let hash = bpe.hasher.hash_one(bpe.bytes_of(id));
            let known = Known::new(whole);
            let (bytes, starts, hasher) = (&bpe.bytes, &bpe.starts, &bpe.hasher);
            let rehash = |long: &Long| hasher.hash_one(slice(bytes, starts, long.id));
            bpe.long.insert_unique(hash, Long { id, known }, rehash);
        }
        bpe
    }

    fn bytes_of(&self, id: u32) -> &[u8] {
        slice(&self.bytes, &self.starts, id)
    }

    /// Length in bytes of the part of a word that a token covers, if it is not the whole word.
    pub(super) fn length(&self, id: u32) -> usize {
        match &self.first {
            First::Characters { bytes, .. } if bytes.contains(&id) => 1,
            _ => self.bytes_of(id).len(),
        }
    }

    /// Appends the ids of the word `text[start..end]`.
    #[inline]
    pub(super) fn encode(
        &self,
        text: &str,
        start: usize,
        end: usize,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) {
        if end - start > KEY_BYTES {
            return self.encode_long(&text[start..end], scratch, ids);
        }
        let key = Key::of(text.as_bytes(), start, end);
        let hash = key.hash();
        if !scratch.short.append(&key, hash, ids) {
            self.encode_new(&text[start..end], key, hash, scratch, ids);
        }
    }

    /// Encodes a short word that is not in the cache.
    #[inline(never)]
    fn encode_new(&self, word: &str, key: Key, hash: u64, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        if let Some(id) = self.short.get(key, hash, || self.merged(word, scratch).len() == 1) {
            ids.push(id);
            scratch.short.keep(key, hash, &[id]);
        } else {
            self.encode_merged(word, self.hasher.hash_one(word.as_bytes()), scratch, ids);
            scratch.short.keep(key, hash, &scratch.symbols);
        }
    }

    fn encode_long(&self, word: &str, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        if word.len() > self.longest.max(LONG_KEY_BYTES) {
            return ids.extend_from_slice(self.merged(word, scratch));
        }
        let hash = self.hasher.hash_one(word.as_bytes());
        if let Some(long) = self.long.find(hash, |long| self.bytes_of(long.id) == word.as_bytes())
            && long.known.is_whole(|| self.merged(word, scratch).len() == 1)
        {
            return ids.push(long.id);
        }
        self.encode_merged(word, hash, scratch, ids);
    }

    /// Encodes a word with the merges, or from the cache of earlier results.
    fn encode_merged(&self, word: &str, hash: u64, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        if word.len() > LONG_KEY_BYTES {
            return ids.extend_from_slice(self.merged(word, scratch));
        }
        let key = LongKey::of(word.as_bytes());
        scratch.symbols.clear();
        if scratch.long.as_ref().is_some_and(|met| met.append(&key, hash, &mut scratch.symbols)) {
            return ids.extend_from_slice(&scratch.symbols);
        }
        ids.extend_from_slice(self.merged(word, scratch));
        scratch.long.get_or_insert_with(|| MetLong::new(LONG_BITS)).keep(key, hash, &scratch.symbols);
    }

    /// Applies the merges to a word.
    fn merged<'a>(&self, word: &str, scratch: &'a mut Scratch) -> &'a [u32] {
        let Scratch { symbols, queue, .. } = scratch;
        symbols.clear();
        self.first.of(word, symbols);
        self.merges.apply(symbols, queue);
        symbols
    }
}

impl First {
    fn of(&self, word: &str, symbols: &mut Vec<u32>) {
        match self {
            Self::Bytes(ids) => symbols.extend(word.bytes().map(|byte| ids[byte as usize])),
            Self::Characters { ascii, wide, bytes } => {
                for c in word.chars() {
                    let id = ascii.get(c as usize).or_else(|| wide.get(&c)).copied();
                    match id {
                        Some(id) if id != u32::MAX => symbols.push(id),
                        _ => symbols
                            .extend(c.encode_utf8(&mut [0; 4]).bytes().map(|byte| bytes[byte as usize])),
                    }
                }
            }
        }
    }
}

fn slice<'a>(bytes: &'a [u8], starts: &[u32], id: u32) -> &'a [u8] {
    let at = id as usize;
    match (starts.get(at), starts.get(at + 1)) {
        (Some(start), Some(end)) => bytes.get(*start as usize..*end as usize).unwrap_or_default(),
        _ => &[],
    }
}
