//! Lossless compression of bf16 values to three quarters, restored at the speed of memory. The byte with the sign and most of the
//! exponent takes few values: half a byte holds an index of the 16 most frequent ones. Others are listed apart. The byte with
//! the significand is nearly random and stays as it is.
//!
//! ```text
//! [length of the original: u64] [the 16 most frequent bytes at odd places] [the bytes at even places]
//! [indices of those at odd places, the first of two in the low half] [place among them: u32, byte] ...
//! ```
//! Numbers are little-endian.

/// Compresses bytes.
#[allow(dead_code, reason = "only the build script compresses")]
pub(crate) fn pack(bytes: &[u8]) -> Vec<u8> {
    let odd: Vec<u8> = bytes.iter().skip(1).step_by(2).copied().collect();
    let mut counts = [0; 256];
    for &byte in &odd {
        counts[usize::from(byte)] += 1;
    }
    let mut frequent: Vec<u8> = (0..=255).collect();
    frequent.sort_by_key(|&byte| std::cmp::Reverse(counts[usize::from(byte)]));
    frequent.truncate(16);
    let index = |byte| frequent.iter().position(|&other| other == byte);

    let mut packed = (bytes.len() as u64).to_le_bytes().to_vec();
    packed.extend(&frequent);
    packed.extend(bytes.iter().step_by(2));
    let half = |byte: &u8| index(*byte).unwrap_or(0) as u8;
    packed.extend(odd.chunks(2).map(|two| half(&two[0]) | two.get(1).map_or(0, half) << 4));
    for (place, &byte) in odd.iter().enumerate().filter(|(_, byte)| index(**byte).is_none()) {
        packed.extend((place as u32).to_le_bytes());
        packed.push(byte);
    }
    packed
}

/// Restores what [`pack`] compressed; `None` if it is damaged.
#[allow(dead_code, reason = "the build script does not need it")]
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (length, packed) = packed.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (frequent, packed) = packed.split_first_chunk::<16>()?;
    let (even, packed) = packed.split_at_checked(length.div_ceil(2))?;
    let (halves, others) = packed.split_at_checked((length / 2).div_ceil(2))?;
    let mut bytes = vec![0; length];
    let (fours, rest) = bytes.as_chunks_mut::<4>();
    let (twos, last) = even.as_chunks::<2>();
    let of_half = |half: u8| frequent[usize::from(half & 15)];
    for ((four, even), &halves) in fours.iter_mut().zip(twos).zip(halves) {
        *four = [even[0], of_half(halves), even[1], of_half(halves >> 4)];
    }
    let last_odd = halves.last().map_or(0, |&halves| of_half(halves));
    let last = twos[fours.len()..].as_flattened().iter().chain(last);
    let last = last.flat_map(|&even| [even, last_odd]);
    rest.iter_mut().zip(last).for_each(|(to, byte)| *to = byte);
    let (others, []) = others.as_chunks::<5>() else { return None };
    for &[a, b, c, d, byte] in others {
        let place = u32::from_le_bytes([a, b, c, d]) as usize;
        *bytes.get_mut(2 * place + 1)? = byte;
    }
    Some(bytes)
}
