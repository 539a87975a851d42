//! The header of one file: version, metadata, and descriptions of tensors.

use std::collections::{BTreeMap, BTreeSet};

use super::cursor::{Cursor, Part};
use super::fault::GgufFault;
use super::metadata::GgufMetadata;
use super::tensor::{self, GgufTensor};
use super::value;
use crate::error::Result;
use crate::shard::Shard;

/// The first bytes of every file.
pub(super) const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u32 = 32;
/// The fewest bytes of a key and its value: a length and one byte of key, a type, and one byte of value.
const MIN_KEY: u64 = 8 + 1 + 4 + 1;

/// What a file says about its tensors and about the model.
pub(super) struct Header {
    pub(super) metadata: GgufMetadata,
    /// In the order of their data.
    pub(super) tensors: Vec<GgufTensor>,
}

impl Header {
    /// Reads and checks the header of a file.
    pub(super) fn read(shard: &Shard) -> Result<Self> {
        let mut cursor = Cursor::new(shard)?;
        check_version(&mut cursor)?;
        let tensors = cursor.u64(Part::TensorCount)?;
        let keys = cursor.u64(Part::KeyCount)?;
        cursor.count(tensors, tensor::MIN_BYTES, Part::TensorList)?;
        cursor.count(keys, MIN_KEY, Part::KeyList)?;

        let metadata = GgufMetadata::new(shard.file.clone(), read_values(&mut cursor, keys)?);
        let alignment = metadata.u32_or(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)?;
        if !alignment.is_power_of_two() {
            return Err(cursor.refuse(GgufFault::Alignment { found: alignment }));
        }
        let mut tensors = read_tensors(&mut cursor, tensors)?;
        let start = cursor.at().next_multiple_of(alignment.into());
        let placed = tensor::place(&mut tensors, alignment, start, cursor.bytes());
        placed.map_err(|fault| cursor.refuse(fault))?;
        Ok(Self { metadata, tensors })
    }
}

fn check_version(cursor: &mut Cursor) -> Result<()> {
    let begins: [u8; 4] = cursor.array(Part::Magic)?;
    if begins != MAGIC {
        return Err(cursor.refuse(GgufFault::NotGguf { begins }));
    }
    let version = cursor.u32(Part::Version)?;
    let swapped = version.swap_bytes();
    if VERSIONS.contains(&version) {
        return Ok(());
    }
    Err(cursor.refuse(if VERSIONS.contains(&swapped) || swapped == 1 {
        GgufFault::BigEndian { version: swapped }
    } else {
        GgufFault::Version { found: version }
    }))
}

fn read_values(cursor: &mut Cursor, keys: u64) -> Result<BTreeMap<String, value::GgufValue>> {
    let mut values = BTreeMap::new();
    for nth in 0..keys {
        let key = cursor.string(Part::Key(nth))?;
        if key.is_empty() {
            return Err(cursor.refuse(GgufFault::EmptyKey { nth }));
        }
        if values.contains_key(&key) {
            return Err(cursor.refuse(GgufFault::DuplicateKey { key }));
        }
        let value = value::read(cursor, &key)?;
        values.insert(key, value);
    }
    Ok(values)
}

fn read_tensors(cursor: &mut Cursor, count: u64) -> Result<Vec<GgufTensor>> {
    let (mut tensors, mut names) = (Vec::new(), BTreeSet::new());
    for nth in 0..count {
        let tensor = GgufTensor::read(cursor, nth)?;
        if !names.insert(tensor.name.clone()) {
            return Err(cursor.refuse(GgufFault::DuplicateTensor { tensor: tensor.name }));
        }
        tensors.push(tensor);
    }
    Ok(tensors)
}
