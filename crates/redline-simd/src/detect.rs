//! Detects the tiers of this machine, and runs kernels on one of them.

use std::fmt;

use crate::isa::{Kernel, amx::Tiles, scalar::Scalar};
#[cfg(target_arch = "x86_64")]
use crate::isa::{amx, avx2::Avx2, avx512::Avx512};

/// An instruction-set tier, ordered from the most general to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Arrays of sixteen lanes: any machine.
    Scalar,
    /// AVX2, FMA, F16C; VNNI if available.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, VNNI; BF16 if available.
    Avx512,
    /// AVX-512 and tile registers for integers: AMX-TILE, AMX-INT8.
    Amx,
}

/// Why a tier cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The requested tier.
    pub tier: Tier,
    /// The features that are missing.
    pub missing: Vec<&'static str>,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` needs {}, which this machine lacks", self.tier.name(), self.missing.join(", "))
    }
}

impl std::error::Error for Unavailable {}

impl Tier {
    /// All tiers.
    pub const ALL: &[Tier] = &[Tier::Scalar, Tier::Avx2, Tier::Avx512, Tier::Amx];

    /// The name used by `--isa`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// Finds a tier by name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|t| t.name() == name)
    }

    /// The fastest tier of this machine.
    pub fn best() -> Self {
        Self::ALL.iter().copied().rev().find(|t| t.available().is_ok()).unwrap_or(Self::Scalar)
    }

    /// Checks that this machine has the tier.
    pub fn available(self) -> Result<(), Unavailable> {
        let missing = missing_features(self);
        if missing.is_empty() { Ok(()) } else { Err(Unavailable { tier: self, missing }) }
    }
}

/// Defines a trait that runs a kernel with all features of a list, and a function that names those that this machine lacks.
///
/// Every type has the trait, because the compiler generates the code of a method in the codegen unit of its type's module, but
/// that of all instances of a function in one: kernels of different modules are compiled in parallel.
macro_rules! entry {
    ($tier_trait:ident, $missing:ident, $isa:expr $(, $feature:tt)*) => {
        fn $missing() -> Vec<&'static str> {
            let features: &[(&str, bool)] = &[$(($feature, std::arch::is_x86_feature_detected!($feature))),*];
            features.iter().filter(|(_, present)| !present).map(|(feature, _)| *feature).collect()
        }

        trait $tier_trait<K: Kernel> {
            /// # Safety
            /// The machine has every feature of the list.
            unsafe fn run(kernel: K) -> K::Output;
        }

        impl<K: Kernel, Home> $tier_trait<K> for Home {
            $(#[target_feature(enable = $feature)])*
            unsafe fn run(kernel: K) -> K::Output {
                kernel.run($isa)
            }
        }
    };
}

/// As `entry`, for AVX-512 and further features.
#[cfg(target_arch = "x86_64")]
macro_rules! avx512_entry {
    ($tier_trait:ident, $missing:ident, $isa:expr $(, $more:tt)*) => {
        entry!(
            $tier_trait, $missing, $isa,
            "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx2", "fma", "f16c" $(, $more)*
        );
    };
}

// Most other architectures have an instruction for a multiply-add; on the rest, each is a call.
entry!(OnScalar, missing_scalar, Scalar::<{ cfg!(not(target_arch = "x86_64")) }>::new());
#[cfg(target_arch = "x86_64")]
entry!(OnScalarFma, missing_scalar_fma, Scalar::<true>::new(), "fma", "avx");
#[cfg(target_arch = "x86_64")]
entry!(
    OnAvx2,
    missing_avx2,
    // SAFETY: the contract of the entry function is that of the constructor.
    unsafe { Avx2::<false>::new() },
    "avx2",
    "fma",
    "f16c"
);
#[cfg(target_arch = "x86_64")]
entry!(
    OnAvx2Vnni,
    missing_avx2_vnni,
    // SAFETY: as above.
    unsafe { Avx2::<true>::new() },
    "avx2",
    "fma",
    "f16c",
    "avxvnni"
);
#[cfg(target_arch = "x86_64")]
avx512_entry!(
    OnAvx512,
    missing_avx512,
    // SAFETY: as above.
    unsafe { Avx512::<false>::new() }
);
#[cfg(target_arch = "x86_64")]
avx512_entry!(
    OnAvx512Bf16,
    missing_avx512_bf16,
    // SAFETY: as above.
    unsafe { Avx512::<true>::new() },
    "avx512bf16"
);

#[cfg(target_arch = "x86_64")]
fn missing_features(tier: Tier) -> Vec<&'static str> {
    match tier {
        Tier::Scalar => missing_scalar(),
        Tier::Avx2 => missing_avx2(),
        Tier::Avx512 => missing_avx512(),
        Tier::Amx => [missing_avx512(), amx::missing()].concat(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn missing_features(tier: Tier) -> Vec<&'static str> {
    match tier {
        Tier::Scalar => missing_scalar(),
        Tier::Avx2 | Tier::Avx512 | Tier::Amx => vec!["x86-64"],
    }
}

/// The vector extensions that kernels may use, each with whether this machine has it. `amx` includes the permission of the
/// operating system.
pub fn vector_extensions() -> [(&'static str, bool); 8] {
    #[cfg(target_arch = "x86_64")]
    macro_rules! has {
        ($feature:tt) => {
            std::arch::is_x86_feature_detected!($feature)
        };
    }
    #[cfg(not(target_arch = "x86_64"))]
    macro_rules! has {
        ($feature:tt) => {
            false
        };
    }
    [
        ("avx2", has!("avx2")),
        ("avx512f", has!("avx512f")),
        ("avx512bw", has!("avx512bw")),
        ("avx512dq", has!("avx512dq")),
        ("avx512vl", has!("avx512vl")),
        ("vnni", has!("avx512vnni") || has!("avxvnni")),
        ("bf16", has!("avx512bf16")),
        ("amx", Tier::Amx.available().is_ok()),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    ScalarFma,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx2Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
}

/// A tier that was detected on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd {
    tier: Tier,
    path: Path,
}

impl Simd {
    /// The fastest tier of this machine.
    pub fn best() -> Self {
        Self::new(Tier::best()).unwrap_or(Self { tier: Tier::Scalar, path: Path::Scalar })
    }

    /// A given tier, if the machine has it.
    pub fn new(tier: Tier) -> Result<Self, Unavailable> {
        tier.available()?;
        Ok(Self { tier, path: path_of(tier) })
    }

    /// The tier.
    pub fn tier(self) -> Tier {
        self.tier
    }

    /// The tier and the instructions chosen inside it, such as `avx512+bf16`.
    pub fn name(self) -> &'static str {
        match self.path {
            Path::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Path::ScalarFma => "scalar+fma",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2Vnni => "avx2+vnni",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 if self.tier == Tier::Amx => "amx",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512Bf16 if self.tier == Tier::Amx => "amx+bf16",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512Bf16 => "avx512+bf16",
        }
    }

    /// The tile registers, if the tier has them.
    pub fn tiles(self) -> Option<Tiles> {
        // SAFETY: a `Simd` of this tier is only made after the features were detected and the system was asked.
        (self.tier == Tier::Amx).then(|| unsafe { Tiles::new() })
    }

    /// Runs `kernel` with this tier's instructions, including the optional ones that it uses.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        self.run_in::<K, K>(kernel)
    }

    /// As [`Simd::run`], for kernels with many instances; `Home` is the type whose module gets the code.
    #[inline]
    pub fn run_in<Home, K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: a `Simd` with this path is only made after the features were detected.
        unsafe {
            match self.path {
                Path::Scalar => <Home as OnScalar<K>>::run(kernel),
                #[cfg(target_arch = "x86_64")]
                Path::ScalarFma => <Home as OnScalarFma<K>>::run(kernel),
                #[cfg(target_arch = "x86_64")]
                Path::Avx2Vnni if K::DOTS_BYTES => <Home as OnAvx2Vnni<K>>::run(kernel),
                #[cfg(target_arch = "x86_64")]
                Path::Avx2 | Path::Avx2Vnni => <Home as OnAvx2<K>>::run(kernel),
                #[cfg(target_arch = "x86_64")]
                Path::Avx512Bf16 if K::DOTS_BF16 => <Home as OnAvx512Bf16<K>>::run(kernel),
                #[cfg(target_arch = "x86_64")]
                Path::Avx512 | Path::Avx512Bf16 => <Home as OnAvx512<K>>::run(kernel),
            }
        }
    }

    /// All variants of all tiers that this machine can run, for tests and candidates. A tier has more than one variant if an
    /// instruction is optional.
    pub fn variants() -> Vec<Self> {
        let mut all = vec![Self { tier: Tier::Scalar, path: Path::Scalar }];
        #[cfg(target_arch = "x86_64")]
        {
            if missing_scalar_fma().is_empty() {
                all.push(Self { tier: Tier::Scalar, path: Path::ScalarFma });
            }
            if Tier::Avx2.available().is_ok() {
                all.push(Self { tier: Tier::Avx2, path: Path::Avx2 });
                if path_of(Tier::Avx2) == Path::Avx2Vnni {
                    all.push(Self { tier: Tier::Avx2, path: Path::Avx2Vnni });
                }
            }
            if Tier::Avx512.available().is_ok() {
                all.push(Self { tier: Tier::Avx512, path: Path::Avx512 });
                if path_of(Tier::Avx512) == Path::Avx512Bf16 {
                    all.push(Self { tier: Tier::Avx512, path: Path::Avx512Bf16 });
                }
            }
            all.extend(Self::new(Tier::Amx));
        }
        all
    }
}

#[cfg(target_arch = "x86_64")]
fn path_of(tier: Tier) -> Path {
    match tier {
        Tier::Scalar if missing_scalar_fma().is_empty() => Path::ScalarFma,
        Tier::Scalar => Path::Scalar,
        Tier::Avx2 if missing_avx2_vnni().is_empty() => Path::Avx2Vnni,
        Tier::Avx2 => Path::Avx2,
        Tier::Avx512 if missing_avx512_bf16().is_empty() && bf16_dot_is_sequential() => Path::Avx512Bf16,
        // On processors with tile registers, `vdpbf16ps` is slower than the two multiply-adds it replaces.
        Tier::Avx512 | Tier::Amx => Path::Avx512,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn path_of(_tier: Tier) -> Path {
    Path::Scalar
}

impl Tiles {
    /// Runs a kernel that uses tile registers beside vectors, on which such a processor always has AVX-512.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `self` proves that the machine has all features of the tier.
        return unsafe { <K as OnAvx512<K>>::run(kernel) };
        #[cfg(not(target_arch = "x86_64"))]
        Simd { tier: Tier::Amx, path: Path::Scalar }.run(kernel)
    }
}

/// Self-test: `vdpbf16ps` must equal two sequential fused multiply-adds, odd element first. A processor that computes it
/// differently would give other bits than the other tiers, and uses plain FMA instead.
#[cfg(target_arch = "x86_64")]
fn bf16_dot_is_sequential() -> bool {
    static VERDICT: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // SAFETY: called only after `avx512bf16` and the features of the tier were detected.
    *VERDICT.get_or_init(|| unsafe {
        <() as OnAvx512Bf16<_>>::run(crate::probe::Bf16Dot) == <() as OnAvx512<_>>::run(crate::probe::Bf16Dot)
    })
}

/// A kernel that returns the name of its type parameter, to check that the requested tier is entered.
#[cfg(test)]
struct NameOf<const BYTES: bool, const BF16: bool>;

#[cfg(test)]
impl<const BYTES: bool, const BF16: bool> Kernel for NameOf<BYTES, BF16> {
    type Output = &'static str;
    const DOTS_BYTES: bool = BYTES;
    const DOTS_BF16: bool = BF16;
    #[inline(always)]
    fn run<S: crate::Isa>(self, _isa: S) -> &'static str {
        std::any::type_name::<S>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_has_a_name_that_parses_back() {
        for &tier in Tier::ALL {
            assert_eq!(Tier::parse(tier.name()), Some(tier));
        }
        assert_eq!(Tier::parse("sse9"), None);
    }

    #[test]
    fn a_tier_is_entered_as_asked() {
        for simd in Simd::variants() {
            let vectors = if simd.tier() == Tier::Amx { Tier::Avx512 } else { simd.tier() };
            let name = simd.name();
            let optional = name.contains('+') || cfg!(not(target_arch = "x86_64"));
            let type_of = |optional: bool| format!("::{}<{optional}>", vectors.name());
            let entered = |kernel_name: &str, kept: bool| {
                let entered = kernel_name.to_lowercase();
                assert!(entered.ends_with(&type_of(optional && kept)), "{name} entered {entered}");
            };
            // A multiply-add is no option that a kernel asks for.
            let scalar = vectors == Tier::Scalar;
            entered(simd.run(NameOf::<true, true>), true);
            entered(simd.run_in::<Tier, _>(NameOf::<true, true>), true);
            entered(simd.run(NameOf::<true, false>), scalar || vectors == Tier::Avx2);
            entered(simd.run(NameOf::<false, true>), scalar || vectors == Tier::Avx512);
            entered(simd.run(NameOf::<false, false>), scalar);
        }
    }
}
