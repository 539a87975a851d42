//! Tables of words that are one token and of cached words, which cover most of a text.

use std::sync::atomic::{AtomicU8, Ordering};

/// Maximum bytes of a word in a [`Key`].
pub(super) const KEY_BYTES: usize = 15;

/// A short word as a number: its bytes, the first lowest, and its length in the highest byte. Equal keys mean equal
/// words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Key(u128);

impl Key {
    /// The key of the word `text[start..end]`, which has at most [`KEY_BYTES`] bytes.
    #[inline]
    pub(super) fn of(text: &[u8], start: usize, end: usize) -> Self {
        let len = end - start;
        let bytes = match text.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
            Some(bytes) => u128::from_le_bytes(*bytes),
            None => {
                let mut bytes = [0; 16];
                bytes[..len].copy_from_slice(&text[start..end]);
                u128::from_le_bytes(bytes)
            }
        };
        Self((bytes & !(u128::MAX << (8 * len))) | ((len as u128) << 120))
    }

    /// A hash with evenly spread bits, best in the high bits.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        let (low, high) = (self.0 as u64, (self.0 >> 64) as u64);
        let low = u128::from(low) * 0x9e37_79b9_7f4a_7c15;
        let high = u128::from(high) * 0xd6e8_feb8_6659_fd93;
        let mixed = low ^ high.rotate_left(32);
        (mixed as u64 ^ (mixed >> 64) as u64).wrapping_mul(0xa076_1d64_78bd_642f)
    }
}

/// The short tokens by their bytes.
pub(super) struct Tokens {
    slots: Box<[Slot]>,
    /// 64 minus the binary logarithm of the number of slots.
    shift: u32,
}

/// A token: its key, its id, and whether the merges produce it from its bytes.
#[derive(Default)]
struct Slot {
    key: Key,
    id: u32,
    known: Known,
}

/// Whether the merges produce one token from the bytes of a token; determined on first use.
#[derive(Default)]
pub(super) struct Known(AtomicU8);

/// The merges produce the token. The default value means not determined yet.
const WHOLE: u8 = 1;
/// The merges produce several tokens.
const PARTS: u8 = 2;

impl Known {
    /// With `whole`, a word that is a token becomes that token, even if the merges give another result.
    pub(super) fn new(whole: bool) -> Self {
        Self(AtomicU8::new(if whole { WHOLE } else { 0 }))
    }

    #[inline]
    pub(super) fn is_whole(&self, merged: impl FnOnce() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            0 => self.find_out(merged),
            known => known == WHOLE,
        }
    }

    #[cold]
    fn find_out(&self, merged: impl FnOnce() -> bool) -> bool {
        let whole = merged();
        // Another thread may store at the same time, but it stores the same value.
        self.0.store(if whole { WHOLE } else { PARTS }, Ordering::Relaxed);
        whole
    }
}

impl Tokens {
    /// Builds the table from tokens with their keys. With `whole`, a word that is a token becomes that token, even if
    /// the merges give another result.
    pub(super) fn new(tokens: &[(Key, u32)], whole: bool) -> Self {
        let bits = (2 * tokens.len()).next_power_of_two().trailing_zeros().max(1);
        let mut slots: Vec<Slot> = (0..1_usize << bits).map(|_| Slot::default()).collect();
        let shift = 64 - bits;
        for (key, id) in tokens {
            let mut at = (key.hash() >> shift) as usize;
            while slots[at].key != Key::default() {
                at = (at + 1) % slots.len();
            }
            slots[at] = Slot { key: *key, id: *id, known: Known::new(whole) };
        }
        Self { slots: slots.into_boxed_slice(), shift }
    }

    /// The token equal to a word, looked up by the word's key and hash. `merged` determines whether the merges produce the
    /// token; it is called once per token.
    #[inline]
    pub(super) fn get(&self, key: Key, hash: u64, merged: impl FnOnce() -> bool) -> Option<u32> {
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = &self.slots[at];
            if slot.key == key {
                return slot.known.is_whole(merged).then_some(slot.id);
            }
            if slot.key == Key::default() {
                return None;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }
}

/// A cache of the ids of words, checked first. Most words of a text are among a few thousand, which fit in the
/// second-level cache, unlike the table of all tokens. If two words share a slot, the later one replaces the earlier.
pub(super) struct Met<K, const IDS: usize>(Box<[Kept<K, IDS>]>);

/// Words that fit a [`Key`]: 512 KiB.
pub(super) type MetShort = Met<Key, 4>;
/// Longer words, and words with more ids.
pub(super) type MetLong = Met<LongKey, 14>;

/// A word and its ids, terminated by [`END`]. An empty slot has a key that no word has.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Kept<K, const IDS: usize> {
    key: K,
    ids: [u32; IDS],
}

/// Marks the end of the ids.
const END: u32 = u32::MAX;

/// Maximum bytes of a word in a [`LongKey`].
pub(super) const LONG_KEY_BYTES: usize = 55;

/// A word: its bytes, padded with zeros, and its length last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(8))]
pub(super) struct LongKey([u8; LONG_KEY_BYTES + 1]);

impl LongKey {
    /// The key of a word of at most [`LONG_KEY_BYTES`] bytes.
    pub(super) fn of(word: &[u8]) -> Self {
        let mut bytes = [0; LONG_KEY_BYTES + 1];
        bytes[..word.len()].copy_from_slice(word);
        bytes[LONG_KEY_BYTES] = word.len() as u8;
        Self(bytes)
    }
}

impl Default for LongKey {
    fn default() -> Self {
        Self([0; LONG_KEY_BYTES + 1])
    }
}

impl<K: Copy + Default + PartialEq, const IDS: usize> Met<K, IDS> {
    /// Creates a cache for 2^`bits` words.
    pub(super) fn new(bits: u32) -> Self {
        Self(vec![Kept { key: K::default(), ids: [END; IDS] }; 1 << bits].into_boxed_slice())
    }

    /// Appends the ids of a cached word, given by its key and hash. Returns whether it was found.
    #[inline]
    pub(super) fn append(&self, key: &K, hash: u64, to: &mut Vec<u32>) -> bool {
        let kept = &self.0[self.place(hash)];
        if kept.key != *key {
            return false;
        }
        to.push(kept.ids[0]);
        for id in kept.ids[1..].iter().take_while(|id| **id != END) {
            to.push(*id);
        }
        true
    }

    /// Stores a word, unless it has too many ids.
    #[inline]
    pub(super) fn keep(&mut self, key: K, hash: u64, ids: &[u32]) {
        if (1..=IDS).contains(&ids.len()) {
            let mut kept = Kept { key, ids: [END; IDS] };
            kept.ids[..ids.len()].copy_from_slice(ids);
            let place = self.place(hash);
            self.0[place] = kept;
        }
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash >> 24) as usize & (self.0.len() - 1)
    }
}
