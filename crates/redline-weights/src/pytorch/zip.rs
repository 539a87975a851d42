//! The directory of a zip archive with uncompressed entries (PKWARE's APPNOTE, with zip64).

use std::collections::BTreeMap;

use super::fault::PytorchFault;
use crate::error::{Result, WeightsError};
use crate::shard::Shard;

/// The longest directory that is read, in bytes.
const MAX_DIRECTORY: u64 = 64 << 20;

const END: u32 = 0x0605_4b50;
const END_BYTES: u64 = 22;
const LOCATOR: u32 = 0x0706_4b50;
const LOCATOR_BYTES: u64 = 20;
const END64: u32 = 0x0606_4b50;
const END64_BYTES: u64 = 56;
const CENTRAL: u32 = 0x0201_4b50;
const CENTRAL_BYTES: usize = 46;
const LOCAL: u32 = 0x0403_4b50;
const LOCAL_BYTES: u64 = 30;
/// The extra field with the 64-bit sizes.
const ZIP64: u16 = 1;
/// Flag bits that change the meaning of the data: encrypted, patched, strongly encrypted, masked.
const CHANGED: u16 = 1 | 1 << 5 | 1 << 6 | 1 << 13;

/// The first bytes of files written before PyTorch 1.6: a pickled magic number.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";

/// The location of an entry's data in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The archive's directory: its offset, its length and its number of entries.
struct Directory {
    at: u64,
    bytes: u64,
    entries: u64,
}

/// Reads all entries by name. No entry may overlap another or lie outside the file, and its local header must agree.
pub(super) fn entries(shard: &Shard) -> Result<BTreeMap<String, Entry>> {
    let refuse = |fault| WeightsError::Pytorch { file: shard.file.clone(), fault };
    let directory = find(shard)?;
    let mut bytes = vec![0; directory.bytes as usize];
    shard.read_header(directory.at, &mut bytes)?;
    let mut listed = parse(&bytes, directory.entries).map_err(refuse)?;
    listed.sort_by_key(|listed| listed.header);

    let nexts: Vec<u64> = listed.iter().skip(1).map(|listed| listed.header).chain([directory.at]).collect();
    let mut entries = BTreeMap::new();
    for (listed, next) in listed.into_iter().zip(nexts) {
        let entry = locate(shard, &listed, directory.at)?;
        let end = entry.offset.saturating_add(entry.bytes);
        if end > next {
            return Err(refuse(PytorchFault::Overlap { entry: listed.name, end, next }));
        }
        if entries.insert(listed.name.clone(), entry).is_some() {
            return Err(refuse(PytorchFault::Duplicate { entry: listed.name }));
        }
    }
    Ok(entries)
}

/// Finds the directory through the record that ends the file, and the zip64 record before it.
fn find(shard: &Shard) -> Result<Directory> {
    let refuse = |fault| WeightsError::Pytorch { file: shard.file.clone(), fault };
    let bytes = shard.bytes()?;
    let mut first = [0; LEGACY.len()];
    if bytes >= first.len() as u64 {
        shard.read_header(0, &mut first)?;
    }
    if first == LEGACY {
        return Err(refuse(PytorchFault::Legacy));
    }
    let mut end = [0; END_BYTES as usize];
    let Some(end_at) = bytes.checked_sub(END_BYTES) else {
        return Err(refuse(PytorchFault::NotZip { bytes }));
    };
    shard.read_header(end_at, &mut end)?;
    // PyTorch writes no archive comment, so the record is the last 22 bytes.
    if u32_at(&end, 0) != END || u16_at(&end, 20) != 0 {
        return Err(refuse(PytorchFault::NotZip { bytes }));
    }
    let disks = u64::from(u16_at(&end, 4)) + u64::from(u16_at(&end, 6));
    exact("number of its disk", disks, 0).map_err(refuse)?;
    let short = [u16_at(&end, 10).into(), u32_at(&end, 12).into(), u32_at(&end, 16).into()];
    let unknown: [u64; 3] = [u16::MAX.into(), u32::MAX.into(), u32::MAX.into()];

    let (wide, records_at) = match find_wide(shard, end_at)? {
        Some((wide, at)) => (wide, at),
        None => (short, end_at),
    };
    let names = ["number of entries", "directory length", "directory offset"];
    for (nth, name) in names.into_iter().enumerate() {
        if short[nth] != unknown[nth] {
            exact(name, wide[nth], short[nth]).map_err(refuse)?;
        }
    }
    let [entries, length, at] = wide;
    if length > MAX_DIRECTORY {
        let fault = PytorchFault::Limit { what: "directory length", found: length, limit: MAX_DIRECTORY };
        return Err(refuse(fault));
    }
    // The directory ends where the records begin, so it lies inside the file.
    match at.checked_add(length) {
        Some(found) => exact("end of the directory", found, records_at).map_err(refuse)?,
        None => return Err(refuse(PytorchFault::BeyondEnd { what: "directory", at, length, bytes })),
    }
    Ok(Directory { at, bytes: length, entries })
}

/// Number of entries, length and offset of the directory from the zip64 record, and the offset of that record.
fn find_wide(shard: &Shard, end_at: u64) -> Result<Option<([u64; 3], u64)>> {
    let refuse = |fault| WeightsError::Pytorch { file: shard.file.clone(), fault };
    let mut locator = [0; LOCATOR_BYTES as usize];
    let Some(locator_at) = end_at.checked_sub(LOCATOR_BYTES) else { return Ok(None) };
    shard.read_header(locator_at, &mut locator)?;
    if u32_at(&locator, 0) != LOCATOR {
        return Ok(None);
    }
    let at = u64_at(&locator, 8);
    match at.checked_add(END64_BYTES) {
        Some(found) => exact("end of the zip64 record", found, locator_at).map_err(refuse)?,
        None => {
            let (what, length, bytes) = ("zip64 record", END64_BYTES, end_at + END_BYTES);
            return Err(refuse(PytorchFault::BeyondEnd { what, at, length, bytes }));
        }
    }
    let mut record = [0; END64_BYTES as usize];
    shard.read_header(at, &mut record)?;
    exact("zip64 signature", u32_at(&record, 0).into(), END64.into()).map_err(refuse)?;
    exact("zip64 record length", u64_at(&record, 4), END64_BYTES - 12).map_err(refuse)?;
    Ok(Some(([u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48)], at)))
}

/// An entry as listed in the directory; `header` is the offset of its local header.
struct Listed {
    name: String,
    header: u64,
    bytes: u64,
}

fn parse(directory: &[u8], entries: u64) -> Result<Vec<Listed>, PytorchFault> {
    let mut listed = Vec::new();
    let mut rest = directory;
    for nth in 0..entries {
        let short = || PytorchFault::Directory { nth };
        let (fixed, after) = rest.split_first_chunk::<CENTRAL_BYTES>().ok_or_else(short)?;
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(fixed, at)));
        let length = name + extra + comment;
        if u32_at(fixed, 0) != CENTRAL || after.len() < length {
            return Err(short());
        }
        let (fields, next) = after.split_at(length);
        let name_text = str::from_utf8(&fields[..name]).ok().filter(|name| !name.is_empty());
        let entry = name_text.ok_or_else(short)?.to_owned();
        let sizes = [u32_at(fixed, 24), u32_at(fixed, 20), u32_at(fixed, 42)];
        let [bytes, packed, header] = widen(sizes, &fields[name..name + extra]).ok_or_else(short)?;
        let flags = u16_at(fixed, 8);
        let how = match (flags & CHANGED, u16_at(fixed, 10)) {
            (0, 0) if bytes == packed => None,
            (0, 0) => Some("of two lengths"),
            (0, _) => Some("compressed"),
            _ => Some("encrypted"),
        };
        if let Some(how) = how {
            return Err(PytorchFault::NotStored { entry, how });
        }
        listed.push(Listed { name: entry, header, bytes });
        rest = next;
    }
    exact("rest of the directory", rest.len() as u64, 0)?;
    Ok(listed)
}

/// Replaces sizes that are marked as 64-bit with those from the zip64 field, which lists them in this order.
fn widen(sizes: [u32; 3], mut extra: &[u8]) -> Option<[u64; 3]> {
    let mut wide = sizes.map(u64::from);
    if !sizes.contains(&u32::MAX) {
        return Some(wide);
    }
    loop {
        let (head, rest) = extra.split_first_chunk::<4>()?;
        let (mut field, next) = rest.split_at_checked(u16_at(head, 2).into())?;
        if u16_at(head, 0) == ZIP64 {
            for (size, wide) in sizes.into_iter().zip(&mut wide) {
                if size == u32::MAX {
                    let (value, after) = field.split_first_chunk::<8>()?;
                    (*wide, field) = (u64::from_le_bytes(*value), after);
                }
            }
            return Some(wide);
        }
        extra = next;
    }
}

/// Locates the data of an entry: after its local header, which must have the same name.
fn locate(shard: &Shard, listed: &Listed, directory: u64) -> Result<Entry> {
    let refuse = |fault| WeightsError::Pytorch { file: shard.file.clone(), fault };
    let differs = || refuse(PytorchFault::LocalHeader { entry: listed.name.clone() });
    let mut fixed = [0; LOCAL_BYTES as usize];
    let length = LOCAL_BYTES + listed.name.len() as u64;
    if listed.header.checked_add(length).is_none_or(|end| end > directory) {
        let (what, at) = ("entry header", listed.header);
        return Err(refuse(PytorchFault::BeyondEnd { what, at, length, bytes: shard.bytes()? }));
    }
    shard.read_header(listed.header, &mut fixed)?;
    if u32_at(&fixed, 0) != LOCAL
        || u16_at(&fixed, 8) != 0
        || usize::from(u16_at(&fixed, 26)) != listed.name.len()
    {
        return Err(differs());
    }
    let mut name = vec![0; listed.name.len()];
    shard.read_header(listed.header + LOCAL_BYTES, &mut name)?;
    if name != listed.name.as_bytes() {
        return Err(differs());
    }
    let offset = listed.header + length + u64::from(u16_at(&fixed, 28));
    Ok(Entry { offset, bytes: listed.bytes })
}

fn exact(what: &'static str, found: u64, needed: u64) -> Result<(), PytorchFault> {
    if found == needed { Ok(()) } else { Err(PytorchFault::Archive { what, found, needed }) }
}

fn bytes_at<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|nth| record[at + nth])
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(record, at))
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(record, at))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(record, at))
}
