//! Work for measuring the machine: reading memory, and multiply-adds from registers.
//!
//! These functions do a known amount of work; the laboratory reads the clock.

pub use redline_simd::CAN_EVICT;
use redline_simd::{Isa, Kernel, TILE_BYTES, Tiles};

use crate::format::BLOCK;
use crate::{Arithmetic, Exec};

const READ_CHAINS: usize = 8;
const READ_BLOCK: usize = READ_CHAINS * redline_simd::LANES;
const PREFETCH_BYTES: usize = 3072;

/// Reads every word of `data` once. Each team member reads a contiguous part, as `streams >= 1` regions in turn. Returns the
/// sum of the words, so that the reads cannot be optimised away.
pub fn read(exec: Exec<'_>, data: &[u32], streams: usize) -> u32 {
    assert!(streams > 0, "a part is read as at least one stream");
    let total = std::sync::atomic::AtomicU32::new(0);
    exec.team.split(data.len(), 1024, 2, |part| {
        let sum = exec.simd.run(Read { data: &data[part], streams });
        total.fetch_add(sum, std::sync::atomic::Ordering::Relaxed);
    });
    total.into_inner()
}

/// Removes `data` from all caches, where [`CAN_EVICT`]. Each team member evicts a contiguous part.
pub fn evict(exec: Exec<'_>, data: &[u32]) {
    exec.team.split(data.len(), 1024, 2, |part| redline_simd::evict(&data[part]));
}

struct Read<'a> {
    data: &'a [u32],
    streams: usize,
}

impl Kernel for Read<'_> {
    type Output = u32;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> u32 {
        let mut sums = [s.splat_word(0); READ_CHAINS];
        let (blocks, rest) = self.data.as_chunks::<READ_BLOCK>();
        let each = blocks.len() / self.streams;
        let (shared, last) = blocks.split_at(each * self.streams);
        for i in 0..each {
            for stream in 0..self.streams {
                add_block(s, &mut sums, &shared[stream * each + i]);
            }
        }
        for block in last {
            add_block(s, &mut sums, block);
        }
        let mut all = sums[0];
        for &sum in &sums[1..] {
            all = s.add_words(all, sum);
        }
        let words = s.words_to_array(all);
        words.iter().chain(rest).fold(0u32, |a, &b| a.wrapping_add(b))
    }
}

#[inline(always)]
fn add_block<S: Isa>(s: S, sums: &mut [S::W; READ_CHAINS], block: &[u32; READ_BLOCK]) {
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: vector `i` lies within the block; a prefetch may name any address.
        unsafe {
            let at = block.as_ptr().add(i * redline_simd::LANES);
            s.prefetch(at.cast::<u8>().wrapping_add(PREFETCH_BYTES));
            *sum = s.add_words(*sum, s.load_words(at));
        }
    }
}

/// Runs `rounds` rounds of independent multiply-adds from registers on every team member. Returns the number of operations; a
/// multiplication and an addition count as two.
pub fn multiply_add(exec: Exec<'_>, arithmetic: Arithmetic, rounds: usize) -> f64 {
    let total = std::sync::Mutex::new(0f64);
    exec.team.run(|_| {
        let done = match exec.simd.tiles() {
            Some(tiles) if arithmetic == Arithmetic::Int8 => by_tiles(tiles, rounds),
            _ => exec.simd.run(MultiplyAdd { arithmetic, rounds }),
        };
        if let Ok(mut total) = total.lock() {
            *total += done;
        }
    });
    total.into_inner().unwrap_or(0.0)
}

fn by_tiles(tiles: Tiles, rounds: usize) -> f64 {
    let mut unit = tiles.configure(TILE_BYTES);
    (0..rounds).map(|_| unit.multiply_registers()).sum::<usize>() as f64
}

struct MultiplyAdd {
    arithmetic: Arithmetic,
    rounds: usize,
}

impl Kernel for MultiplyAdd {
    type Output = f64;
    const DOTS_BYTES: bool = true;
    const DOTS_BF16: bool = true;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> f64 {
        // Enough sums to hide the latency, and few enough to fit the registers.
        if S::TILE_STRIPS > 1 { self.chains::<S, 12>(s) } else { self.chains::<S, 6>(s) }
    }
}

impl MultiplyAdd {
    #[inline(always)]
    fn chains<S: Isa, const N: usize>(self, s: S) -> f64 {
        let products = match self.arithmetic {
            Arithmetic::F32 => self.floats::<S, N>(s),
            Arithmetic::Bf16 => self.pairs::<S, N>(s),
            Arithmetic::Int8 => self.bytes::<S, N>(s),
        };
        (self.rounds * N * redline_simd::LANES * 2 * products) as f64
    }

    #[inline(always)]
    fn floats<S: Isa, const N: usize>(&self, s: S) -> usize {
        let (mut sums, a) = ([s.splat(0.0); N], s.splat(std::hint::black_box(0.5)));
        for _ in 0..self.rounds {
            for sum in &mut sums {
                *sum = s.fma(*sum, a, a);
            }
        }
        std::hint::black_box(sums.map(|sum| s.reduce_add(sum)));
        1
    }

    #[inline(always)]
    fn pairs<S: Isa, const N: usize>(&self, s: S) -> usize {
        let (mut sums, w) = ([s.splat(0.0); N], s.splat_word(std::hint::black_box(0x3f00_3f00)));
        for _ in 0..self.rounds {
            for sum in &mut sums {
                *sum = s.dot_bf16(*sum, w, w);
            }
        }
        std::hint::black_box(sums.map(|sum| s.reduce_add(sum)));
        2
    }

    #[inline(always)]
    fn bytes<S: Isa, const N: usize>(&self, s: S) -> usize {
        let (mut sums, w) = ([s.splat_word(0); N], s.splat_word(std::hint::black_box(0x0101_0101)));
        for _ in 0..self.rounds {
            s.multiply_add_bytes(&mut sums, w, w);
        }
        std::hint::black_box(sums.map(|sum| s.sum_words(sum)));
        BLOCK
    }
}
