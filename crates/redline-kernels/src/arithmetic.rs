//! Kinds of arithmetic.

/// The arithmetic of a format's multiplications, whose peak throughput bounds the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// f32 fused multiply-add.
    F32,
    /// Dot products of bf16 pairs into f32.
    Bf16,
    /// Dot products of four bytes into 32-bit integers.
    Int8,
}

impl Arithmetic {
    /// All kinds of arithmetic.
    pub const ALL: &[Arithmetic] = &[Self::F32, Self::Bf16, Self::Int8];

    /// Its name, such as `int8`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }
}
