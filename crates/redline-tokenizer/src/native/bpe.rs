//! The model: from the bytes of a word to its ids.

use super::merge::{Merges, Queue};
use super::words::{KEY_BYTES, Key, Known, LONG_KEY_BYTES, LongKey, MetLong, MetShort, Tokens};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::hash::BuildHasher;

/// Vocabulary and merges over bytes. Words are what the scanners cut, or what stands in for it (`super::spaces`).
pub(super) struct Bpe {
    /// Tokens of at most [`KEY_BYTES`] bytes.
    short: Tokens,
    /// Longer ones.
    long: HashTable<Long>,
    longest: usize,
    hasher: DefaultHashBuilder,
    first: First,
    merges: Merges,
    /// The bytes of each token, one after the other, and where each begins and the last ends.
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

/// A token of more bytes than a key holds, with what is known of it.
struct Long {
    id: u32,
    known: Known,
}

/// Words remembered: two to the power of these.
const SHORT_BITS: u32 = 14;
const LONG_BITS: u32 = 12;

/// The symbols that a word begins as.
pub(super) enum First {
    /// One per byte.
    Bytes(Box<[u32; 256]>),
    /// One per character that is a token, else one per byte of it.
    Characters { ascii: Box<[u32; 128]>, wide: HashMap<char, u32>, bytes: Box<[u32; 256]> },
}

/// What encoding needs besides the model; one per thread that encodes.
pub(super) struct Scratch {
    short: MetShort,
    /// Made when the first long word comes.
    long: Option<MetLong>,
    symbols: Vec<u32>,
    queue: Queue,
    /// Text that the words are cut from where that is not the text given.
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
    /// The memory of what grows with a text.
    pub(super) fn bytes(&self) -> usize {
        self.text.capacity() + 4 * self.symbols.capacity() + self.queue.bytes()
    }
}

/// What a [`Bpe`] is made of.
pub(super) struct Vocabulary<'a> {
    /// The bytes of the tokens by id, `None` where no word can be that token.
    pub(super) tokens: &'a [Option<Vec<u8>>],
    pub(super) first: First,
    pub(super) merges: &'a [[u32; 3]],
    /// A word that is a token is that token, whatever the merges would make of it.
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

    /// How many bytes of a word a token stands for, where it is not the whole word.
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

    /// A short word that has not been met.
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

    /// A word that goes through the merges, or has done so before.
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

    /// What the merges make of a word.
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
