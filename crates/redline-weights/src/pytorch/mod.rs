//! `pytorch_model.bin`: a zip archive with a pickle that describes tensors and one entry per storage.
//!
//! Nothing is executed: the pickle machine implements only the operations and names that `torch.save` needs for a
//! state dict, and reports anything else by name. Entries are stored uncompressed, so that a tensor is a contiguous
//! range of the file, as in safetensors.

mod fault;
mod pickle;
mod zip;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Result, WeightsError};
use crate::safetensors::{TensorInfo, count};
use crate::shard::Shard;

pub use fault::PytorchFault;
use pickle::{Storage, Tensor};
use zip::Entry;

/// The longest pickle that is read, in bytes; a pickle of 1,000 tensors has 0.2 MB.
const MAX_PICKLE: u64 = 16 << 20;
const PICKLE: &str = "data.pkl";

/// Opens the file and lists its tensors.
pub(crate) fn open(path: &Path) -> Result<(Shard, Vec<TensorInfo>)> {
    let shard = Shard::open(path)?;
    let entries = zip::entries(&shard)?;
    let refuse = |fault| WeightsError::Pytorch { file: path.to_owned(), fault };
    let root = root(&entries).map_err(refuse)?;
    if let Some(&entry) = entries.get(&format!("{root}byteorder")) {
        let order = read(&shard, entry, "byte order", 16)?;
        if order != b"little" {
            let found = String::from_utf8_lossy(&order).into_owned();
            return Err(refuse(PytorchFault::ByteOrder { found }));
        }
    }
    let pickle = match entries.get(&format!("{root}{PICKLE}")) {
        Some(&entry) => read(&shard, entry, "pickle", MAX_PICKLE)?,
        None => return Err(refuse(PytorchFault::NoPickle { found: 0 })),
    };
    let tensors = pickle::state_dict(&pickle).map_err(refuse)?.into_iter();
    let placed = tensors.map(|(name, tensor)| place(name.to_owned(), tensor, &entries, &root));
    let placed = placed.collect::<Result<_, _>>().map_err(refuse)?;
    Ok((shard, placed))
}

/// The folder of the only `data.pkl`, with a final slash.
fn root(entries: &BTreeMap<String, Entry>) -> Result<String, PytorchFault> {
    let folders = entries.keys().filter_map(|name| name.strip_suffix(PICKLE));
    let mut folders = folders.filter(|folder| folder.ends_with('/') && folder.matches('/').count() == 1);
    match (folders.next(), folders.count()) {
        (Some(folder), 0) => Ok(folder.to_owned()),
        (first, more) => Err(PytorchFault::NoPickle { found: more + usize::from(first.is_some()) }),
    }
}

fn read(shard: &Shard, entry: Entry, what: &'static str, limit: u64) -> Result<Vec<u8>> {
    if entry.bytes > limit {
        let fault = PytorchFault::Limit { what, found: entry.bytes, limit };
        return Err(WeightsError::Pytorch { file: shard.file.clone(), fault });
    }
    let mut bytes = vec![0; entry.bytes as usize];
    shard.read_header(entry.offset, &mut bytes)?;
    Ok(bytes)
}

/// Checks a tensor against its storage, and the storage against the archive.
fn place(
    tensor: String,
    description: Tensor,
    entries: &BTreeMap<String, Entry>,
    root: &str,
) -> Result<TensorInfo, PytorchFault> {
    let Tensor { storage: Storage { dtype, type_name, key, elements: declared }, offset, shape, strides } =
        description;
    let Some(dtype) = dtype else {
        return Err(PytorchFault::StorageType { tensor, storage: type_name.to_owned() });
    };
    let Some(entry) = entries.get(&format!("{root}data/{key}")) else {
        return Err(PytorchFault::NoStorage { tensor, storage: key.to_owned() });
    };
    let size = dtype.bits() as u64 / 8;
    if declared.checked_mul(size) != Some(entry.bytes) {
        let (storage, bytes) = (key.to_owned(), entry.bytes);
        return Err(PytorchFault::StorageSize { tensor, storage, declared, dtype, bytes });
    }
    let Some((elements, _)) = count(dtype, &shape) else {
        return Err(PytorchFault::ShapeOverflow { tensor, shape });
    };
    if !is_contiguous(&shape, &strides) {
        return Err(PytorchFault::Strides { tensor, shape, strides });
    }
    if offset.checked_add(elements as u64).is_none_or(|end| end > declared) {
        return Err(PytorchFault::BeyondStorage {
            tensor,
            elements: elements as u64,
            offset,
            storage: declared,
        });
    }
    Ok(TensorInfo::at(tensor, dtype, shape, elements, entry.offset + offset * size))
}

/// Whether the elements are contiguous and row-major. The stride of a dimension of size one does not matter.
fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    if shape.len() != strides.len() || shape.contains(&0) {
        return shape.len() == strides.len();
    }
    let mut next = 1;
    shape.iter().zip(strides).rev().all(|(&dim, &stride)| {
        let fits = dim == 1 || stride == next;
        next *= dim;
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_dimensions_of_size_one_do_not_matter() {
        assert!(is_contiguous(&[2, 3], &[3, 1]) && !is_contiguous(&[2, 3], &[1, 2]));
        assert!(is_contiguous(&[2, 1, 3], &[3, 77, 1]) && is_contiguous(&[1, 3], &[0, 1]));
        assert!(is_contiguous(&[1], &[5]) && is_contiguous(&[], &[]) && is_contiguous(&[0, 3], &[9, 9]));
        assert!(!is_contiguous(&[2, 3], &[1]) && !is_contiguous(&[2], &[2]) && !is_contiguous(&[0], &[]));
    }
}
