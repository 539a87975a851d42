//! Work that only measures the machine: reading memory, and multiply-adds from registers.
//!
//! The clock stands elsewhere (the laboratory); these functions do a known amount of work.

use redline_simd::{Isa, Kernel};

use crate::{Exec, Format};

/// Independent accumulators: enough to hide the latency of two units.
const CHAINS: usize = 12;
const READ_CHAINS: usize = 8;
const PREFETCH_BYTES: usize = 3072;

/// Reads every word of `data` once, each member of the team a contiguous part. Returns a sum, so that nothing is skipped.
pub fn read(exec: Exec<'_>, data: &[u32]) -> u32 {
    let total = std::sync::atomic::AtomicU32::new(0);
    exec.team.split(data.len(), 1024, 2, |part| {
        let sum = exec.simd.run(Read(&data[part]));
        total.fetch_add(sum, std::sync::atomic::Ordering::Relaxed);
    });
    total.into_inner()
}

struct Read<'a>(&'a [u32]);

impl Kernel for Read<'_> {
    type Output = u32;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> u32 {
        let mut sums = [s.splat_word(0); READ_CHAINS];
        for block in self.0.chunks_exact(READ_CHAINS * redline_simd::LANES) {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: vector `i` lies within the block; a prefetch may name any address.
                unsafe {
                    let at = block.as_ptr().add(i * redline_simd::LANES);
                    s.prefetch(at.cast::<u8>().wrapping_add(PREFETCH_BYTES));
                    *sum = s.add_words(*sum, s.load_words(at));
                }
            }
        }
        let mut all = sums[0];
        for &sum in &sums[1..] {
            all = s.add_words(all, sum);
        }
        s.words_to_array(all).iter().fold(0u32, |a, &b| a.wrapping_add(b))
    }
}

/// Floating-point operations of one [`multiply_add`] round on one member, for a weight format's arithmetic.
pub fn operations_per_round(format: Format) -> f64 {
    (CHAINS * redline_simd::LANES * 2 * format.k_per_step()) as f64
}

/// Runs `rounds` rounds of independent multiply-adds on every member of the team.
pub fn multiply_add(exec: Exec<'_>, format: Format, rounds: usize) -> f32 {
    let total = std::sync::Mutex::new(0f32);
    exec.team.run(|_| {
        let sum = exec.simd.run(MultiplyAdd { format, rounds });
        if let Ok(mut total) = total.lock() {
            *total += sum;
        }
    });
    total.into_inner().unwrap_or(0.0)
}

struct MultiplyAdd {
    format: Format,
    rounds: usize,
}

impl Kernel for MultiplyAdd {
    type Output = f32;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); CHAINS];
        let half = std::hint::black_box(0.5f32);
        let (a, w) = (s.splat(half), s.splat_word(std::hint::black_box(0x3f00_3f00)));
        match self.format {
            Format::F32 => {
                for _ in 0..self.rounds {
                    for sum in &mut sums {
                        *sum = s.fma(*sum, a, a);
                    }
                }
            }
            Format::Bf16 => {
                for _ in 0..self.rounds {
                    for sum in &mut sums {
                        *sum = s.dot_bf16(*sum, w, w);
                    }
                }
            }
        }
        let mut all = sums[0];
        for &sum in &sums[1..] {
            all = s.add(all, sum);
        }
        s.reduce_add(all)
    }
}
