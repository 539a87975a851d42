//! Writes a token's keys and values in the cache's format.

use redline_simd::{Isa, LANES};

use super::{KvFormat, KvShape, MAX_HEAD_DIM, PAGE_TOKENS};
use crate::format::bf16;
use crate::op::quantise::quantise_head;

/// Added to the bytes of keys, which makes them unsigned.
const KEY_OFFSET: u32 = 0x8080_8080;

/// Writes one token of one head.
///
/// # Safety
/// `words` is valid for the words of a head, and no other thread touches those of this slot.
#[inline(always)]
pub(super) unsafe fn write_token<S: Isa>(
    s: S,
    shape: KvShape,
    words: *mut u32,
    slot: usize,
    k: &[f32],
    v: &[f32],
) {
    // SAFETY: by contract.
    unsafe {
        match shape.format {
            KvFormat::F32 => write_f32(shape, words, slot, k, v),
            KvFormat::Bf16 => write_bf16(shape, words, slot, k, v),
            KvFormat::F16 => write_f16(s, shape, words, slot, k, v),
            KvFormat::W8 => write_w8(s, shape, words, slot, k, v),
        }
    }
}

impl KvShape {
    /// The first word of the strip of keys that holds a slot.
    ///
    /// # Safety
    /// `words` is valid for the words of a head.
    #[inline(always)]
    unsafe fn keys_of(self, words: *mut u32, slot: usize) -> *mut u32 {
        // SAFETY: the strip lies within the head's words.
        unsafe { words.add(slot / LANES * self.key_strip_words()) }
    }

    /// The first word of a strip of values.
    ///
    /// # Safety
    /// `words` is valid for the words of a head, which has that strip.
    #[inline(always)]
    unsafe fn values_of(self, words: *mut u32, strip: usize) -> *mut u32 {
        // SAFETY: by contract.
        unsafe { words.add(self.key_words() + strip * self.value_strip_words()) }
    }
}

/// # Safety
/// As [`write_token`].
#[inline(always)]
unsafe fn write_f32(shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
    // SAFETY: keys and values of this slot lie within the head's words.
    unsafe {
        let keys = shape.keys_of(words, slot).add(slot % LANES);
        for (d, x) in k.iter().enumerate() {
            *keys.add(d * LANES) = x.to_bits();
        }
        for (strip, v) in v.chunks(LANES).enumerate() {
            let row = shape.values_of(words, strip).add(slot * LANES);
            for (i, x) in v.iter().enumerate() {
                *row.add(i) = x.to_bits();
            }
        }
    }
}

/// # Safety
/// As [`write_token`].
#[inline(always)]
unsafe fn write_bf16(shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
    // SAFETY: keys and values of this slot lie within the head's words.
    unsafe {
        let keys = shape.keys_of(words, slot).add(slot % LANES);
        for (d, &x) in k.iter().enumerate() {
            bf16::insert(&mut *keys.add(d / 2 * LANES), d, x);
        }
        for (strip, v) in v.chunks(LANES).enumerate() {
            let row = shape.values_of(words, strip).cast::<u16>().add(slot * LANES);
            for (i, &x) in v.iter().enumerate() {
                *row.add(i) = bf16::round(x);
            }
        }
    }
}

/// # Safety
/// As [`write_token`].
#[inline(always)]
unsafe fn write_f16<S: Isa>(s: S, shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
    // SAFETY: keys and values of this slot lie within the head's words; loads are of as many values as there are.
    unsafe {
        let keys = shape.keys_of(words, slot).cast::<u16>().add(slot % LANES);
        let mut halves = [0; LANES];
        for (chunk, x) in k.chunks(LANES).enumerate() {
            s.store_f16(halves.as_mut_ptr(), s.load_partial(x.as_ptr(), x.len()));
            for (i, &half) in halves.iter().enumerate().take(x.len()) {
                *keys.add((chunk * LANES + i) * LANES) = half;
            }
        }
        for (strip, x) in v.chunks(LANES).enumerate() {
            let row = shape.values_of(words, strip).cast::<u16>().add(slot * LANES);
            s.store_f16(row, s.load_partial(x.as_ptr(), x.len()));
        }
    }
}

/// # Safety
/// As [`write_token`].
#[inline(always)]
unsafe fn write_w8<S: Isa>(s: S, shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
    // SAFETY: keys, values and scales of this slot lie within the head's words. Four tokens share the words of values, so these
    // are written byte by byte.
    unsafe {
        let mut packed = [0; MAX_HEAD_DIM / 4];
        let scales = words.add(shape.scales());
        *scales.add(slot) = quantise_head(s, k, &mut packed).to_bits();
        let keys = shape.keys_of(words, slot).add(slot % LANES);
        for (step, word) in packed.iter().enumerate().take(shape.steps()) {
            *keys.add(step * LANES) = word ^ KEY_OFFSET;
        }
        *scales.add(PAGE_TOKENS + slot) = quantise_head(s, v, &mut packed).to_bits();
        for (strip, words_of_strip) in packed.chunks(LANES / 4).enumerate().take(shape.value_strips()) {
            let group = shape.values_of(words, strip).add(slot / 4 * LANES).cast::<u8>().add(slot % 4);
            for (i, byte) in words_of_strip.iter().flat_map(|word| word.to_le_bytes()).enumerate() {
                *group.add(4 * i) = byte;
            }
        }
    }
}
