//! Whether a Linux binary needs other files to start.

use anyhow::{Context, Result, ensure};

/// The type of the program header that names the dynamic linker (`PT_INTERP`).
const INTERPRETER: u64 = 3;

/// The dynamic linker that a 64-bit little-endian ELF file names; `None` if it is static.
pub(super) fn interpreter(elf: &[u8]) -> Result<Option<String>> {
    ensure!(elf.starts_with(b"\x7fELF\x02\x01"), "the binary is no 64-bit little-endian ELF file");
    let number = |at: usize, bytes: usize| {
        let field = elf.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)))
    };
    let find = || {
        let (first, size, count) =
            (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
        for at in (0..count).map(|index| first.saturating_add(index * size)) {
            if number(at, 4)? == INTERPRETER {
                let (from, length) = (number(at + 8, 8)? as usize, number(at + 32, 8)? as usize);
                let path = elf.get(from..from.checked_add(length)?)?;
                return Some(Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned()));
            }
        }
        Some(None)
    };
    find().context("the program headers of the binary lie outside the file")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one program header of this type, which covers the text `/ld.so`.
    fn elf(kind: u8) -> Vec<u8> {
        let mut elf = vec![0; 64 + 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[32], elf[54], elf[56]) = (64, 56, 1);
        (elf[64], elf[64 + 8], elf[64 + 32]) = (kind, 120, 7);
        elf.extend(b"/ld.so\0");
        elf
    }

    #[test]
    fn the_dynamic_linker_is_found() {
        assert_eq!(interpreter(&elf(3)).unwrap().as_deref(), Some("/ld.so"));
        assert_eq!(interpreter(&elf(1)).unwrap(), None);
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        assert!(interpreter(b"MZ").is_err() && interpreter(b"").is_err());
        assert!(interpreter(&elf(3)[..100]).is_err());
        let mut beyond = elf(3);
        beyond[64 + 32] = 8;
        assert!(interpreter(&beyond).is_err());
    }
}
