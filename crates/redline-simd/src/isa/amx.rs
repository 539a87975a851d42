//! Tile registers (AMX): products of 16 rows by 16 outputs over 64 k in one instruction, integers only.
//!
//! The vectors of this tier are those of AVX-512. In linear layers, eight registers of a kilobyte hold two pairs of sums, so that one pair
//! can be stored and scaled while the other is being multiplied; in attention, four sums, queries, keys, weights and values.
#![cfg_attr(not(target_arch = "x86_64"), allow(unused, unreachable_code))]

#[cfg(target_arch = "x86_64")]
use core::arch::asm;
use std::marker::PhantomData;
use std::ops::Range;

/// On other processors, no [`Tiles`] value exists.
#[cfg(not(target_arch = "x86_64"))]
macro_rules! asm {
    ($($instructions:tt)*) => {
        unreachable!("tile registers on a processor without them")
    };
}

/// Number of rows in a tile.
pub const TILE_ROWS: usize = 16;
/// Number of bytes in a row of a tile: the maximum k of one multiplication.
pub const TILE_BYTES: usize = 64;

/// Proof that the machine has AVX-512, AMX-TILE and AMX-INT8, and that the system lets this process use them.
#[derive(Clone, Copy, Debug)]
pub struct Tiles(());

/// Configured tile registers of this thread; dropping it releases them.
#[derive(Debug)]
struct Configured(PhantomData<*const ()>);

/// The tile registers of this thread, configured for linear layers.
#[derive(Debug)]
pub struct TileUnit(Configured);

/// The tile registers of this thread, configured for attention.
#[derive(Debug)]
pub struct AttentionUnit(Configured);

/// `asm!` that declares every tile register as clobbered, so that the compiler keeps no values in them. Every block here except
/// a store changes them: `ldtilecfg` and `tilerelease` set all of them to zero.
///
/// Stable Rust supports tile registers as clobbers only. A block can declare that it changes them, but not that it reads them,
/// so the sums and inputs that one block leaves for the next are not operands. They are preserved for these reasons:
///
/// - Blocks are volatile: none is `pure`. The compiler runs them as often as the program says, and in its order.
/// - The compiler keeps values in tile registers only in functions with AMX intrinsics, and this project has none.
/// - For the same reason, no function called in between changes them. The system saves and restores them with the
///   thread's other registers.
/// - `&mut TileUnit` or `&mut AttentionUnit` grants the use of one thread's registers. It is not `Send`, and a unit is configured before
///   use and released afterwards.
#[cfg(target_arch = "x86_64")]
macro_rules! changing_tiles {
    ($($block:tt)*) => {
        asm!(
            $($block)*
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
        )
    };
}

/// On other processors, no [`Tiles`] value exists.
#[cfg(not(target_arch = "x86_64"))]
macro_rules! changing_tiles {
    ($($block:tt)*) => {
        asm!()
    };
}

/// The operand of `ldtilecfg` (Intel SDM, volume 1, 18.2).
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// Sums in registers 0 to 3, inputs of `depth` k in 4, weights of as many in those that `weights` names; others have full size.
    const fn new(depth: usize, weights: Range<usize>) -> Self {
        let mut config =
            Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut i = 0;
        while i < 8 {
            let is_weights = weights.start <= i && i < weights.end;
            config.row_bytes[i] = if i == 4 { depth as u16 } else { TILE_BYTES as u16 };
            config.rows[i] = if is_weights { (depth / 4) as u8 } else { TILE_ROWS as u8 };
            i += 1;
        }
        config
    }
}

impl Tiles {
    /// # Safety
    /// The machine has AVX-512, AMX-TILE and AMX-INT8, and the system has given its permission.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }

    /// Configures this thread's registers for `depth` k per multiplication: 32 or 64.
    pub fn configure(self, depth: usize) -> TileUnit {
        TileUnit(Configured::new(self, depth, 5..8))
    }

    /// Configures this thread's registers for attention over heads whose keys are multiplied `depth` dimensions at a time: 32 or 64.
    pub fn configure_attention(self, depth: usize) -> AttentionUnit {
        AttentionUnit(Configured::new(self, depth, 5..6))
    }
}

impl Configured {
    fn new(_machine: Tiles, depth: usize, weights: Range<usize>) -> Self {
        assert!(depth == 32 || depth == TILE_BYTES, "tiles of {depth} k");
        let config = Config::new(depth, weights);
        // SAFETY: a value of `Tiles` proves the instruction; the configuration is one that it accepts.
        unsafe {
            changing_tiles!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly),);
        }
        Self(PhantomData)
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: the registers are configured, so the instruction exists.
        unsafe { changing_tiles!("tilerelease", options(nostack, nomem),) };
    }
}

// Sums stay in the registers between method calls: see `changing_tiles`.
impl AttentionUnit {
    /// Sums `SUM` (0 to 3) = the products of sixteen queries with sixteen keys, over `steps >= 1` times the configured depth.
    /// Queries are signed bytes, `stride` bytes apart; keys `[dimensions / 4][16 keys][4]` unsigned bytes.
    ///
    /// # Safety
    /// Queries and keys are valid for reading `steps` times the depth.
    #[inline(always)]
    pub unsafe fn multiply_keys<const SUM: usize>(
        &mut self,
        queries: *const u8,
        stride: usize,
        keys: *const u8,
        depth: usize,
        steps: usize,
    ) {
        macro_rules! multiply {
            ($sum:literal) => {
                changing_tiles!(
                    concat!("tilezero ", $sum),
                    "2:",
                    "tileloadd tmm4, [{x} + {stride}]",
                    "tileloadd tmm5, [{w} + {row}]",
                    concat!("tdpbsud ", $sum, ", tmm4, tmm5"),
                    "add {x}, {depth}",
                    "add {w}, {w_step}",
                    "dec {steps}",
                    "jnz 2b",
                    x = inout(reg) queries => _,
                    w = inout(reg) keys => _,
                    steps = inout(reg) steps => _,
                    stride = in(reg) stride,
                    depth = in(reg) depth,
                    w_step = in(reg) depth * TILE_ROWS,
                    row = in(reg) TILE_BYTES,
                    options(nostack, readonly),
                )
            };
        }
        // SAFETY: reads what the contract names; the registers are this thread's.
        unsafe {
            match SUM {
                0 => multiply!("tmm0"),
                1 => multiply!("tmm1"),
                2 => multiply!("tmm2"),
                _ => multiply!("tmm3"),
            }
        }
    }

    /// Sets all sums to zero.
    #[inline(always)]
    pub fn clear(&mut self) {
        // SAFETY: touches registers of this thread only.
        unsafe {
            changing_tiles!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                options(nostack, nomem),
            );
        }
    }

    /// Adds the products of sixteen rows of weights with 64 values: sums 0 are those of the high parts of the weights with the
    /// first strip of values, 1 those of the low parts, 2 and 3 those with the second strip. Weights are `[2 parts][16 rows][64]`
    /// unsigned bytes, a strip `[16][16 dimensions][4]` signed bytes.
    ///
    /// # Safety
    /// Weights are valid for reading 2048 bytes, each strip for 1024.
    #[inline(always)]
    pub unsafe fn add_values(&mut self, weights: *const u8, first: *const u8, second: *const u8) {
        // SAFETY: reads what the contract names; the registers are this thread's.
        unsafe {
            changing_tiles!(
                "tileloadd tmm6, [{x} + {row}]",
                "tileloadd tmm7, [{first} + {row}]",
                "tdpbusd tmm0, tmm6, tmm7",
                "tileloadd tmm6, [{low} + {row}]",
                "tdpbusd tmm1, tmm6, tmm7",
                "tileloadd tmm7, [{second} + {row}]",
                "tdpbusd tmm3, tmm6, tmm7",
                "tileloadd tmm6, [{x} + {row}]",
                "tdpbusd tmm2, tmm6, tmm7",
                x = in(reg) weights,
                low = in(reg) weights.wrapping_add(TILE_ROWS * TILE_BYTES),
                first = in(reg) first,
                second = in(reg) second,
                row = in(reg) TILE_BYTES,
                options(nostack, readonly),
            );
        }
    }

    /// Writes sums `SUM`: sixteen rows of sixteen words, `stride` words apart.
    ///
    /// # Safety
    /// `to` is valid for writing them.
    #[inline(always)]
    pub unsafe fn store<const SUM: usize>(&mut self, to: *mut i32, stride: usize) {
        macro_rules! store {
            ($sum:literal) => {
                asm!(
                    concat!("tilestored [{to} + {stride}], ", $sum),
                    to = in(reg) to,
                    stride = in(reg) stride * size_of::<i32>(),
                    options(nostack),
                )
            };
        }
        // SAFETY: by contract.
        unsafe {
            match SUM {
                0 => store!("tmm0"),
                1 => store!("tmm1"),
                2 => store!("tmm2"),
                _ => store!("tmm3"),
            }
        }
    }
}

impl TileUnit {
    /// The proof that this machine has such registers.
    pub fn machine(&self) -> Tiles {
        Tiles(())
    }
}

// Sums stay in the registers between method calls: see `changing_tiles`.
impl TileUnit {
    /// Sets the sums of pair `PAIR` (0 or 1) to zero.
    #[inline(always)]
    pub fn clear<const PAIR: usize>(&mut self) {
        // SAFETY: touches registers of this thread only.
        unsafe {
            if PAIR == 0 {
                changing_tiles!("tilezero tmm0", "tilezero tmm1", options(nostack, nomem),);
            } else {
                changing_tiles!("tilezero tmm2", "tilezero tmm3", options(nostack, nomem),);
            }
        }
    }

    /// Loads inputs: sixteen rows of 64 signed bytes, of which the configured depth counts.
    ///
    /// # Safety
    /// `x` is valid for reading 1024 bytes.
    #[inline(always)]
    pub unsafe fn load(&mut self, x: *const u8) {
        // SAFETY: reads what the contract names; the register is this thread's.
        unsafe {
            changing_tiles!(
                "tileloadd tmm4, [{x} + {row}]",
                x = in(reg) x,
                row = in(reg) TILE_BYTES,
                options(nostack, readonly),
            );
        }
    }

    /// Adds to sums `SUM` of pair `PAIR` (both 0 or 1) the products of the loaded inputs with a strip of weights: `[depth/4][16
    /// outputs][4]` signed bytes.
    ///
    /// # Safety
    /// `w` is valid for reading 16 times the configured depth in bytes.
    #[inline(always)]
    pub unsafe fn add<const PAIR: usize, const SUM: usize>(&mut self, w: *const u8) {
        macro_rules! add {
            ($sum:literal $weights:literal) => {
                changing_tiles!(
                    concat!("tileloadd ", $weights, ", [{w} + {row}]"),
                    concat!("tdpbssd ", $sum, ", tmm4, ", $weights),
                    w = in(reg) w,
                    row = in(reg) TILE_BYTES,
                    options(nostack, readonly),
                )
            };
        }
        // SAFETY: reads what the contract names; the registers are this thread's.
        unsafe {
            match (PAIR, SUM) {
                (0, 0) => add!("tmm0" "tmm5"),
                (0, _) => add!("tmm1" "tmm6"),
                (_, 0) => add!("tmm2" "tmm5"),
                _ => add!("tmm3" "tmm6"),
            }
        }
    }

    /// Writes the sums of pair `PAIR`: `[16 rows][2 strips][16 outputs]`.
    ///
    /// # Safety
    /// `to` is valid for writing 512 words.
    #[inline(always)]
    pub unsafe fn store<const PAIR: usize>(&mut self, to: *mut i32) {
        macro_rules! store {
            ($sum0:literal $sum1:literal) => {
                asm!(
                    concat!("tilestored [{to} + {row}], ", $sum0),
                    concat!("tilestored [{to} + {row} + 64], ", $sum1),
                    to = in(reg) to,
                    row = in(reg) 2 * TILE_BYTES,
                    options(nostack),
                )
            };
        }
        // SAFETY: sixteen rows of two times 64 bytes, by contract.
        unsafe {
            if PAIR == 0 {
                store!("tmm0" "tmm1");
            } else {
                store!("tmm2" "tmm3");
            }
        }
    }

    /// Four multiplications from registers into separate sums. Returns the number of operations; a multiplication and an
    /// addition count as two. Measures the arithmetic without memory accesses.
    #[inline(always)]
    pub fn multiply_registers(&mut self) -> usize {
        // SAFETY: touches registers of this thread only.
        unsafe {
            changing_tiles!(
                "tdpbssd tmm0, tmm4, tmm5",
                "tdpbssd tmm1, tmm4, tmm5",
                "tdpbssd tmm2, tmm4, tmm5",
                "tdpbssd tmm3, tmm4, tmm5",
                options(nostack, nomem),
            );
        }
        4 * 2 * TILE_ROWS * TILE_ROWS * TILE_BYTES
    }
}

/// The tile features that this machine lacks.
#[cfg(target_arch = "x86_64")]
pub(crate) fn missing() -> Vec<&'static str> {
    const TILE: u32 = 1 << 24;
    const INT8: u32 = 1 << 25;
    let features = features();
    let mut missing = Vec::new();
    for (bit, name) in [(TILE, "amx-tile"), (INT8, "amx-int8")] {
        if features & bit == 0 {
            missing.push(name);
        }
    }
    if missing.is_empty() && !permitted() {
        missing.push("the system's permission for tile registers");
    }
    missing
}

/// EDX of CPUID leaf 7, which has the bits of AMX; read once, because CPUID traps in a virtual machine.
#[cfg(target_arch = "x86_64")]
fn features() -> u32 {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    static FEATURES: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *FEATURES.get_or_init(|| if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).edx } else { 0 })
}

/// Requests the tile registers from the system, once per process. Linux requires this because they add a kilobyte per register
/// to the saved state of each thread (Documentation/arch/x86/xstate.rst).
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    static VERDICT: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // SAFETY: the call takes two numbers and changes only what later threads may use.
    *VERDICT.get_or_init(|| unsafe {
        libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0
    })
}

/// Not implemented for other systems.
#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn permitted() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use crate::{Simd, Tier};

    /// Pseudorandom signed bytes.
    fn bytes(n: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..n).map(|_| next()).collect()
    }

    /// Compares only if the machine has tiles.
    #[test]
    fn products_are_those_of_the_definition() {
        let Ok(simd) = Simd::new(Tier::Amx) else { return };
        let Some(tiles) = simd.tiles() else { panic!("the tier without its tiles") };
        for depth in [32, 64] {
            for steps in [1, 3] {
                let (x, w) = (bytes(steps * 1024, 3), bytes(steps * 2 * 16 * depth, 5));
                let mut unit = tiles.configure(depth);
                let mut sums = [[0i32; 512]; 2];
                // SAFETY: the buffers hold `steps` tiles of inputs and twice as many of weights.
                unsafe {
                    unit.clear::<0>();
                    unit.clear::<1>();
                    for step in 0..steps {
                        let weights = |strip: usize| w[(2 * step + strip) * 16 * depth..].as_ptr();
                        unit.load(x[step * 1024..].as_ptr());
                        unit.add::<0, 0>(weights(0));
                        unit.add::<0, 1>(weights(1));
                        if step == 0 {
                            unit.add::<1, 0>(weights(0));
                            unit.add::<1, 1>(weights(1));
                        }
                    }
                    unit.store::<0>(sums[0].as_mut_ptr());
                    unit.store::<1>(sums[1].as_mut_ptr());
                }
                drop(unit);
                for (sums, steps) in sums.iter().zip([steps, 1]) {
                    for (i, &sum) in sums.iter().enumerate() {
                        let (row, strip, output) = (i / 32, i / 16 % 2, i % 16);
                        let product = |step: usize, k: usize| {
                            let x = x[step * 1024 + row * 64 + k].cast_signed();
                            let at = (2 * step + strip) * 16 * depth + k / 4 * 64 + output * 4 + k % 4;
                            i32::from(x) * i32::from(w[at].cast_signed())
                        };
                        let expected: i32 =
                            (0..steps).flat_map(|step| (0..depth).map(move |k| product(step, k))).sum();
                        assert_eq!(sum, expected, "depth {depth}, {steps} steps, {row} {strip} {output}");
                    }
                }
            }
        }
    }

    /// Compares only if the machine has tiles.
    #[test]
    fn products_of_attention_are_those_of_the_definition() {
        let Ok(simd) = Simd::new(Tier::Amx) else { return };
        let Some(tiles) = simd.tiles() else { panic!("the tier without its tiles") };
        for (depth, steps) in [(32, 1), (32, 3), (64, 2)] {
            let dims = depth * steps;
            let (queries, keys) = (bytes(16 * dims, 3), bytes(16 * dims, 5));
            let (weights, strips) = (bytes(2 * 2048, 7), bytes(2 * 2 * 1024, 9));
            let mut unit = tiles.configure_attention(depth);
            let (mut logits, mut sums) = ([0i32; 2 * 256], [[0i32; 256]; 4]);
            // SAFETY: the buffers hold sixteen queries and keys, two pages of weights and of both strips.
            unsafe {
                unit.multiply_keys::<1>(queries.as_ptr(), dims, keys.as_ptr(), depth, steps);
                unit.store::<1>(logits.as_mut_ptr(), 32);
                unit.clear();
                for page in 0..2 {
                    let strip = |i: usize| strips[(2 * page + i) * 1024..].as_ptr();
                    unit.add_values(weights[page * 2048..].as_ptr(), strip(0), strip(1));
                }
                unit.store::<0>(sums[0].as_mut_ptr(), 16);
                unit.store::<1>(sums[1].as_mut_ptr(), 16);
                unit.store::<2>(sums[2].as_mut_ptr(), 16);
                unit.store::<3>(sums[3].as_mut_ptr(), 16);
            }
            drop(unit);
            for (row, key) in (0..16).flat_map(|row| (0..16).map(move |key| (row, key))) {
                let product = |d: usize| {
                    let q = queries[row * dims + d].cast_signed();
                    i32::from(q) * i32::from(keys[d / 4 * 64 + key * 4 + d % 4])
                };
                assert_eq!(logits[row * 32 + key], (0..dims).map(product).sum::<i32>(), "{row} {key}");
                for (sum, sums) in sums.iter().enumerate() {
                    let (strip, part) = (sum / 2, sum % 2);
                    let product = |k: usize| {
                        let w = weights[k / 64 * 2048 + part * 1024 + row * 64 + k % 64];
                        let at = (2 * (k / 64) + strip) * 1024 + k % 64 / 4 * 64 + key * 4 + k % 4;
                        i32::from(w) * i32::from(strips[at].cast_signed())
                    };
                    assert_eq!(sums[row * 16 + key], (0..128).map(product).sum::<i32>(), "{row} {key} {sum}");
                }
            }
        }
    }
}
