//! Lossless compression of bf16 values to two thirds: the bytes with the sign and most of the exponent take few values and are
//! deflated. The bytes with the significand are nearly random and stay as they are.
//!
//! ```text
//! [length of the original: u64, little-endian] [the bytes at even places] [those at odd places, deflated]
//! ```

use std::io::{self, Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Compresses bytes.
#[allow(dead_code, reason = "only the build script compresses")]
pub(crate) fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = (bytes.len() as u64).to_le_bytes().to_vec();
    packed.extend(bytes.iter().step_by(2));
    let odd: Vec<u8> = bytes.iter().skip(1).step_by(2).copied().collect();
    let mut deflated = DeflateEncoder::new(packed, Compression::best());
    deflated.write_all(&odd)?;
    deflated.finish()
}

/// Restores what [`pack`] compressed; `None` if it is damaged.
#[allow(dead_code, reason = "the build script does not need it")]
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (length, packed) = packed.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (even, deflated) = packed.split_at_checked(length.div_ceil(2))?;
    let mut odd = Vec::with_capacity(length / 2);
    DeflateDecoder::new(deflated).take(length as u64).read_to_end(&mut odd).ok()?;
    let mut bytes = vec![0; length];
    let (pairs, last) = bytes.as_chunks_mut();
    for ((pair, &even), &odd) in pairs.iter_mut().zip(even).zip(&odd) {
        *pair = [even, odd];
    }
    last.iter_mut().zip(even.last()).for_each(|(last, &even)| *last = even);
    (odd.len() == length / 2).then_some(bytes)
}
