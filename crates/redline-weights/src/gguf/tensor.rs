//! Descriptions of tensors: read, then placed in the data of the file.

use super::block::GgufType;
use super::cursor::{Cursor, Part};
use super::fault::GgufFault;
use crate::error::Result;

/// The most dimensions of a tensor in GGML.
const MAX_RANK: u32 = 4;
/// The fewest bytes that describe a tensor: its name, which has one byte or more, number of dimensions, type and offset.
pub(super) const MIN_BYTES: u64 = 8 + 1 + 4 + 4 + 8;

/// One tensor of a GGUF file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufTensor {
    /// Name in the file.
    pub name: String,
    /// How its values are stored.
    pub ggml_type: GgufType,
    /// Dimensions, outermost first: the reverse of their order in the file. Empty for a scalar.
    pub shape: Vec<usize>,
    elements: usize,
    bytes: u64,
    /// Offset of the first byte: in the data until the tensor is placed, then in the file.
    offset: u64,
}

impl GgufTensor {
    /// Number of elements: the product of the shape.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Elements of a row: the last dimension, 1 for a scalar. A multiple of the values of a block.
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all dimensions but the last; 0 if there are no elements.
    pub fn rows(&self) -> usize {
        self.elements.checked_div(self.columns()).unwrap_or(0)
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        (self.columns() / self.ggml_type.block_values()) as u64 * self.ggml_type.block_bytes() as u64
    }

    /// Bytes of the tensor in the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Offset of the first byte in its file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the description of the tensor of this place. Its offset counts from the first byte of data.
    pub(super) fn read(cursor: &mut Cursor, nth: u64) -> Result<Self> {
        let name = cursor.string(Part::TensorName(nth))?;
        if name.is_empty() {
            return Err(cursor.refuse(GgufFault::TensorWithoutName { nth }));
        }
        let part = Part::Tensor(&name);
        let found = cursor.u32(part)?;
        if found > MAX_RANK {
            return Err(cursor.refuse(GgufFault::Rank { tensor: name, found, limit: MAX_RANK }));
        }
        let dimensions = (0..found).map(|_| cursor.u64(part));
        let mut shape = dimensions.collect::<Result<Vec<u64>>>()?;
        shape.reverse();
        let (number, offset) = (cursor.u32(part)?, cursor.u64(part)?);
        describe(name, number, shape, offset).map_err(|fault| cursor.refuse(fault))
    }
}

fn describe(name: String, number: u32, shape: Vec<u64>, offset: u64) -> Result<GgufTensor, GgufFault> {
    let Some(ggml_type) = GgufType::from_number(number) else {
        return Err(match GgufType::removed(number) {
            Some(removed) => GgufFault::RemovedType { tensor: name, removed },
            None => GgufFault::UnknownType { tensor: name, number },
        });
    };
    let (columns, block) = (shape.last().copied().unwrap_or(1), ggml_type.block_values() as u64);
    if columns % block != 0 {
        return Err(GgufFault::RowBlocks { tensor: name, ggml_type, columns, block });
    }
    let elements = shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
    // A row may be longer than the tensor, which may have no elements.
    let values = elements.map(|elements| elements.max(columns));
    let bytes_of = |values: u64| (values / block).checked_mul(ggml_type.block_bytes() as u64);
    let bytes = values.and_then(bytes_of).and(elements).and_then(bytes_of);
    let sizes = shape.iter().map(|&dim| usize::try_from(dim).ok()).collect::<Option<Vec<_>>>();
    let elements = elements.and_then(|elements| usize::try_from(elements).ok());
    match (elements, bytes, sizes) {
        (Some(elements), Some(bytes), Some(shape)) => {
            Ok(GgufTensor { name, ggml_type, shape, elements, bytes, offset })
        }
        _ => Err(GgufFault::ShapeOverflow { tensor: name, shape }),
    }
}

/// Places tensors in the data, which begins at byte `start` of a file of `end` bytes: each begins at a multiple of `alignment` and
/// lies in the file, and no two overlap.
pub(super) fn place(
    tensors: &mut [GgufTensor],
    alignment: u32,
    start: u64,
    end: u64,
) -> Result<(), GgufFault> {
    // The alignment may put the beginning of the data behind the end of the file.
    let data = end.saturating_sub(start);
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.bytes));
    let mut previous: Option<(u64, &str)> = None;
    for tensor in tensors.iter_mut() {
        let (offset, name) = (tensor.offset, || tensor.name.clone());
        if offset % u64::from(alignment) != 0 {
            return Err(GgufFault::Misaligned { tensor: name(), offset, alignment });
        }
        let Some(last) = offset.checked_add(tensor.bytes).filter(|&last| last <= data) else {
            let bytes = tensor.bytes;
            return Err(GgufFault::BeyondEnd { tensor: name(), offset, bytes, data });
        };
        match previous {
            Some((before, other)) if offset < before => {
                let other = other.to_owned();
                return Err(GgufFault::Overlap { tensor: name(), offset, other, end: before });
            }
            _ => {}
        }
        tensor.offset += start;
        previous = Some((last, &tensor.name));
    }
    Ok(())
}
