//! Digests of outputs: equal outputs have equal digests, independent of the engine.

/// The 64-bit FNV-1a hash as 16 hexadecimal digits.
pub fn digest(bytes: impl IntoIterator<Item = u8>) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The digest of token ids as little-endian 32-bit numbers.
pub fn of_ids(ids: &[u32]) -> String {
    digest(ids.iter().flat_map(|id| id.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_values() {
        assert_eq!(digest([]), "cbf29ce484222325");
        assert_eq!(digest(*b"a"), "af63dc4c8601ec8c");
        assert_eq!(digest(*b"foobar"), "85944171f73967e8");
        assert_eq!(of_ids(&[0x0201]), digest([1, 2, 0, 0]));
    }
}
