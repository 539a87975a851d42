//! Queries to the processor: the floating-point environment, and the arithmetic of its bf16 dot product.

use crate::isa::{Isa, Kernel, LANES};

/// Whether this thread rounds to nearest, and neither flushes denormals nor reads them as zero. A host process may have changed
/// these settings; results would then differ.
pub fn float_environment_is_default() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut csr = 0u32;
        // SAFETY: stores the 32-bit control register to a local.
        unsafe { core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut csr, options(nostack, preserves_flags)) };
        // The low six bits are sticky exception flags.
        csr & !0x3f == 0x1f80
    }
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// Sets rounding to nearest with denormals on this thread. A new thread inherits the settings of its creator, and a host
/// process may have changed those.
pub fn set_default_float_environment() {
    #[cfg(target_arch = "x86_64")]
    {
        let csr = 0x1f80u32;
        // SAFETY: loads the control register with its architectural default, from a local.
        unsafe { core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const csr, options(nostack, readonly)) };
    }
}

/// Whether the hardware prefetches a sequential stream in time, so that software prefetches only cost. AMD's processors do;
/// Intel's stop at the end of every 4 KiB page. The processor is queried once.
pub fn follows_streams() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static VERDICT: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *VERDICT.get_or_init(|| {
            let leaf = core::arch::x86_64::__cpuid(0);
            [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether [`evict`] has an effect on this architecture.
pub const CAN_EVICT: bool = cfg!(target_arch = "x86_64");

/// Removes `data` from all caches, so that the next read comes from memory.
pub fn evict(data: &[u32]) {
    #[cfg(target_arch = "x86_64")]
    {
        const LINE_WORDS: usize = 16;
        let lines = data.iter().step_by(LINE_WORDS).chain(data.last());
        // SAFETY: every x86-64 processor has the instruction; the address is that of a valid word.
        lines.for_each(|word| unsafe { core::arch::x86_64::_mm_clflush((&raw const *word).cast()) });
        // SAFETY: as above. Later reads wait until the lines are gone.
        unsafe { core::arch::x86_64::_mm_mfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = data;
}

/// The processor's name, or the architecture's if it has none.
pub fn processor() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        const FIRST: u32 = 0x8000_0002;
        if __cpuid(0x8000_0000).eax >= FIRST + 2 {
            let words = (FIRST..FIRST + 3).map(__cpuid).flat_map(|r| [r.eax, r.ebx, r.ecx, r.edx]);
            let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|&byte| byte != 0).collect();
            return String::from_utf8_lossy(&bytes).trim().to_owned();
        }
    }
    std::env::consts::ARCH.to_owned()
}

/// Runs a fixed set of bf16 dot products and returns the bits of the results.
pub(crate) struct Bf16Dot;

impl Kernel for Bf16Dot {
    type Output = Vec<u32>;
    const DOTS_BF16: bool = true;

    #[inline(always)]
    fn run<S: Isa>(self, isa: S) -> Vec<u32> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bits = Vec::with_capacity(64 * LANES);
        for _ in 0..64 {
            let mut acc = isa.splat(0.37);
            for _ in 0..8 {
                let (mut w, mut x) = ([0u32; LANES], [0u32; LANES]);
                for i in 0..LANES {
                    w[i] = pair(&mut state);
                    x[i] = pair(&mut state);
                }
                // SAFETY: both arrays hold 16 words.
                let (w, x) = unsafe { (isa.load_words(w.as_ptr()), isa.load_words(x.as_ptr())) };
                acc = isa.dot_bf16(acc, w, x);
            }
            bits.extend(isa.to_array(acc).map(f32::to_bits));
        }
        bits
    }
}

/// Two bf16 numbers with exponents from 2^-40 to 2^24, either sign.
fn pair(state: &mut u64) -> u32 {
    let mut half = || {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let exponent = 87 + (*state >> 40) % 65;
        (((*state >> 20) & 1) << 15 | exponent << 7 | (*state >> 30) & 0x7f) as u32
    };
    half() << 16 | half()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simd;

    #[test]
    fn bf16_dot_gives_the_same_bits_on_every_variant() {
        let reference = Simd::variants()[0].run(Bf16Dot);
        for simd in Simd::variants() {
            assert_eq!(simd.run(Bf16Dot), reference, "{}", simd.name());
        }
    }

    #[test]
    fn eviction_leaves_the_values() {
        let data: Vec<u32> = (0..100).collect();
        for len in [0, 1, 16, 17, 100] {
            evict(&data[..len]);
        }
        assert!(data.iter().copied().eq(0..100));
    }

    #[test]
    fn the_test_thread_has_the_default_environment() {
        assert!(float_environment_is_default());
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_changed_environment_is_noticed_and_mended() {
        let flushing = 0x9fc0u32;
        // SAFETY: loads the control register of this thread; it is restored below.
        unsafe { core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const flushing, options(nostack, readonly)) };
        let changed = !float_environment_is_default();
        let inherited = std::thread::spawn(|| !float_environment_is_default()).join().unwrap_or(false);
        set_default_float_environment();
        assert!(changed && float_environment_is_default());
        assert!(inherited, "a thread inherits what its maker had set");
    }
}
