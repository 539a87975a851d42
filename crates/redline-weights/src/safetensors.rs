//! The safetensors format: 8 bytes of little-endian header length, a JSON header, then the data of all
//! tensors.
//!
//! Every rule of <https://github.com/huggingface/safetensors#format> is checked. Among them, tensors must cover the
//! data from the first byte to the last, without holes or overlaps, so that no second file can hide in it.

use crate::dtype::StoredDtype;
use crate::fault::HeaderFault;
use crate::header::{self, Entry};

/// Bytes of the header length at the beginning of a file.
pub(crate) const LENGTH_BYTES: u64 = 8;
/// The longest header that is read, in bytes.
pub(crate) const MAX_HEADER: u64 = 100_000_000;

/// One tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name in the checkpoint.
    pub name: String,
    /// Element type as stored.
    pub dtype: StoredDtype,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    elements: usize,
    bytes: u64,
    /// Offset of the first data byte in the file.
    offset: u64,
}

impl TensorInfo {
    /// Creates a tensor after its elements and bits were counted. Its data begins at `offset` in the file.
    pub(crate) fn at(
        name: String,
        dtype: StoredDtype,
        shape: Vec<usize>,
        elements: usize,
        offset: u64,
    ) -> Self {
        let bytes = elements as u64 * dtype.bits() as u64 / 8;
        Self { name, dtype, shape, elements, bytes, offset }
    }

    /// Number of elements: the product of the shape.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Bytes of the tensor in the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Offset of its first byte in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// The header length, checked against the file: how many bytes to read after the first 8.
pub(crate) fn header_length(first: [u8; 8], file: u64) -> Result<u64, HeaderFault> {
    let declared = u64::from_le_bytes(first);
    let available = file - LENGTH_BYTES;
    if declared > MAX_HEADER {
        return Err(HeaderFault::LengthLimit { declared, limit: MAX_HEADER });
    }
    if declared > available {
        return Err(HeaderFault::LengthBeyondFile { declared, available });
    }
    Ok(declared)
}

/// Parses the tensors of a header, in the order of their data; `file` is the length of the whole file.
pub(crate) fn parse_header(header: &[u8], file: u64) -> Result<Vec<TensorInfo>, HeaderFault> {
    let text =
        str::from_utf8(header).map_err(|error| HeaderFault::NotUtf8 { offset: error.valid_up_to() })?;
    if !text.starts_with('{') {
        return Err(HeaderFault::NotObject { begins: text.chars().take(8).collect() });
    }
    let mut entries: Vec<(String, Entry)> = header::parse(text)?.into_iter().collect();
    entries.sort_by_key(|(_, entry)| (entry.begin, entry.end));

    let start = LENGTH_BYTES + header.len() as u64;
    let data = file - start;
    let mut previous = 0;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let (begin, end) = (entry.begin, entry.end);
        let mut info = measure(name, entry)?;
        follows(&info.name, begin, previous)?;
        if end > data {
            return Err(HeaderFault::BeyondEnd { tensor: info.name, end, data });
        }
        info.offset = start + begin;
        tensors.push(info);
        previous = end;
    }
    if previous != data {
        return Err(HeaderFault::Trailing { end: previous, data });
    }
    Ok(tensors)
}

/// Checks the offsets of one entry against its shape and type. The file offset is not set yet.
fn measure(tensor: String, entry: Entry) -> Result<TensorInfo, HeaderFault> {
    let Entry { dtype, shape, begin, end } = entry;
    let Some(has) = end.checked_sub(begin) else {
        return Err(HeaderFault::Reversed { tensor, begin, end });
    };
    let Some((elements, bits)) = count(dtype, &shape) else {
        return Err(HeaderFault::ShapeOverflow { tensor, shape });
    };
    if bits % 8 != 0 {
        return Err(HeaderFault::PartialByte { tensor, dtype, shape, bits });
    }
    let needs = bits / 8;
    if needs != has {
        return Err(HeaderFault::Size { tensor, dtype, shape, needs, has });
    }
    Ok(TensorInfo::at(tensor, dtype, shape, elements, 0))
}

/// Elements and bits of a tensor, or `None` on overflow.
pub(crate) fn count(dtype: StoredDtype, shape: &[usize]) -> Option<(usize, u64)> {
    let elements = shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
    let bits = (elements as u64).checked_mul(dtype.bits() as u64)?;
    Some((elements, bits))
}

fn follows(tensor: &str, begin: u64, previous: u64) -> Result<(), HeaderFault> {
    let tensor = || tensor.to_owned();
    match begin.cmp(&previous) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(HeaderFault::Hole { tensor: tensor(), begin, previous }),
        std::cmp::Ordering::Less => Err(HeaderFault::Overlap { tensor: tensor(), begin, previous }),
    }
}
