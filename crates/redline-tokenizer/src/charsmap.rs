//! The compiled character map of SentencePiece: its check, and the text in which `tokenizer.json` stores it.
//!
//! A map is a length in bytes (u32), a trie of that length as a double array of u32 ("XOR-compressed compact double
//! array", Kanda 2018), and the replacements, each ended by a zero byte. The `tokenizers` crate follows the links of the
//! trie without checking them, so that a damaged map would fail in the middle of a text; this check finds all such
//! links when the map is read.

/// Bytes before the trie.
const HEADER: usize = 4;

/// Checks a map in base64.
pub(crate) fn check_base64(text: &str) -> Result<(), String> {
    check(&from_base64(text)?)
}

/// Checks that every link of a map leads to a place inside it.
pub(crate) fn check(map: &[u8]) -> Result<(), String> {
    let (units, replacements) = parts(map)?;
    let node = |at: u32| units.get(at as usize).copied();
    let outside = |at: u32| format!("its trie links to unit {at} of {}", units.len());
    let root = node(0).ok_or("its trie is empty")?;
    let mut seen = vec![false; units.len()];
    let mut open = vec![offset(root)];
    while let Some(base) = open.pop() {
        for byte in 1..=255 {
            let at = base ^ byte;
            let unit = node(at).ok_or_else(|| outside(at))?;
            if unit & (1 << 31 | 0xff) != byte || std::mem::replace(&mut seen[at as usize], true) {
                continue;
            }
            let next = at ^ offset(unit);
            if unit >> 8 & 1 == 1 {
                let value = node(next).ok_or_else(|| outside(next))? & !(1 << 31);
                if !replacements.is_char_boundary(value as usize) {
                    let len = replacements.len();
                    return Err(format!("a replacement begins at byte {value} of {len}, in no character"));
                }
            }
            open.push(next);
        }
    }
    Ok(())
}

/// The distance from a unit to its children.
fn offset(unit: u32) -> u32 {
    (unit >> 10) << ((unit & (1 << 9)) >> 6)
}

/// The trie and the replacements.
fn parts(map: &[u8]) -> Result<(Vec<u32>, &str), String> {
    let has = map.len();
    let (size, rest) = map.split_first_chunk::<HEADER>().ok_or_else(|| format!("it has only {has} bytes"))?;
    let size = u32::from_le_bytes(*size) as usize;
    if size % 4 != 0 || size > rest.len() {
        return Err(format!("its trie takes {size} bytes of {}", rest.len()));
    }
    let (trie, replacements) = rest.split_at(size);
    let units = trie.chunks_exact(4).map(|unit| {
        let unit = unit.first_chunk::<4>().copied().unwrap_or_default();
        u32::from_le_bytes(unit)
    });
    let replacements = std::str::from_utf8(replacements).map_err(|error| {
        format!("its replacements are not UTF-8 at byte {} of {}", error.valid_up_to(), replacements.len())
    })?;
    Ok((units.collect(), replacements))
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The base64 of bytes, with padding.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let at = (bits >> (18 - 6 * digit) & 0x3f) as usize;
            text.push(if digit <= three.len() { DIGITS[at] as char } else { '=' });
        }
    }
    text
}

fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    let mut value = [None; 256];
    for (digit, at) in DIGITS.iter().zip(0_u32..) {
        value[*digit as usize] = Some(at);
    }
    let digits = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 3);
    let (mut bits, mut held) = (0_u32, 0);
    for (at, digit) in digits.bytes().enumerate() {
        let digit = value[digit as usize].ok_or_else(|| format!("its character {at} is no base64"))?;
        bits = (bits << 6 | digit) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map that replaces `a` by the text at byte `value`.
    fn map(value: u32, replacements: &[u8]) -> Vec<u8> {
        let mut units = vec![0_u32; 512];
        // The children of the root begin at 256; that of `a` holds its value at the same place as its offset 0.
        units[0] = 256 << 10;
        let a = 256 ^ u32::from(b'a');
        units[a as usize] = u32::from(b'a') | 1 << 8 | (1 << 10);
        units[(a ^ 1) as usize] = value | 1 << 31;
        let size = (4 * units.len() as u32).to_le_bytes();
        let trie = units.into_iter().flat_map(u32::to_le_bytes);
        size.into_iter().chain(trie).chain(replacements.iter().copied()).collect()
    }

    #[test]
    fn base64_comes_back() {
        for len in 0..40_u8 {
            let bytes: Vec<u8> = (0..len).map(|byte| byte.wrapping_mul(97)).collect();
            assert_eq!(from_base64(&to_base64(&bytes)).unwrap(), bytes);
        }
        assert_eq!(to_base64(b"foobar"), "Zm9vYmFy");
        assert_eq!(to_base64(b"foob"), "Zm9vYg==");
        assert!(from_base64("a-b").unwrap_err().contains("character 1"));
    }

    #[test]
    fn maps_are_checked() {
        assert_eq!(check(&map(0, "é\0".as_bytes())), Ok(()));
        let reason = |map: &[u8]| check(map).unwrap_err();
        assert!(reason(&map(1, "é\0".as_bytes())).contains("byte 1 of 3"));
        assert!(reason(&map(9, "é\0".as_bytes())).contains("byte 9 of 3"));
        assert!(reason(&map(0, b"\xff\0")).contains("UTF-8"));
        assert!(reason(&[1, 2]).contains("2 bytes"));
        assert!(reason(&[0, 0, 0, 0]).contains("empty"));
        assert!(reason(&[0xff, 0xff, 0xff, 0xff, 0]).contains("4294967295"));
        let mut outside = map(0, b"b\0");
        outside[4..8].copy_from_slice(&(100_000_u32 << 10).to_le_bytes());
        assert!(reason(&outside).contains("of 512"));
    }
}
