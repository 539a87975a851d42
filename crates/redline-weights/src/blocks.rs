//! Matrices of four-bit floats in a checkpoint (MXFP4), as gpt-oss has for its experts. A matrix `NAME` is two tensors of bytes:
//! `NAME_blocks`, `[.., rows, k / 32, 16]`, and `NAME_scales`, `[.., rows, k / 32]`.
//!
//! Blocks and scales are those of GGML's `MXFP4`, except for the order of nibbles: byte i has value 2i in its lower half, and value
//! 2i + 1 in its upper half. They are returned as blocks of GGML.

use crate::checkpoint::Checkpoint;
use crate::dtype::StoredDtype;
use crate::error::{Result, WeightsError};
use crate::gguf::GgufType;
use crate::safetensors::TensorInfo;
use crate::shard::Shard;

/// Values of a block.
const VALUES: usize = 32;
/// Bytes of the values of a block.
const BYTES: usize = VALUES / 2;

/// Some rows of a matrix of four-bit floats, counted over all matrices that a tensor stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRows {
    /// The first row.
    pub first: usize,
    /// The distance from each row to the next, at least 1.
    pub step: usize,
    /// Number of rows.
    pub count: usize,
}

impl Checkpoint {
    /// The names of the two tensors of a matrix: blocks and scales.
    pub fn block_tensors(name: &str) -> [String; 2] {
        [format!("{name}_blocks"), format!("{name}_scales")]
    }

    /// Checks that the matrix of four-bit floats `name` exists, and that its shape is `[.., rows, k]`.
    pub fn require_blocks(&self, name: &str, shape: &[usize]) -> Result<()> {
        let [blocks, scales] = Self::block_tensors(name);
        let mut needed = shape.to_vec();
        if let Some(k) = needed.last_mut() {
            // A number of columns that is not whole blocks does not fit any tensor.
            *k = if *k % VALUES == 0 { *k / VALUES } else { 0 };
        }
        let scale_shape = needed.clone();
        needed.push(BYTES);
        for (tensor, needed) in [(blocks, needed), (scales, scale_shape)] {
            let (info, shard) = self.bytes_of(&tensor)?;
            if info.shape != needed {
                let (found, dtype, file) = (info.shape.clone(), info.dtype, shard.file.clone());
                return Err(WeightsError::Shape { tensor, found, needed, dtype, file });
            }
        }
        Ok(())
    }

    /// Reads rows of `columns` values as blocks of GGML's `MXFP4`, one row after the other. The previous content of `blocks` is
    /// replaced. A scale that makes a value infinite is an error.
    pub fn read_blocks(
        &self,
        name: &str,
        columns: usize,
        rows: BlockRows,
        blocks: &mut Vec<u8>,
    ) -> Result<()> {
        blocks.clear();
        let BlockRows { first, step, count } = rows;
        let Some(last) = count.checked_sub(1) else { return Ok(()) };
        let of_row = columns / VALUES;
        let ([codes, scales], span) = (Self::block_tensors(name), last * step + 1);
        let (codes, scales) = (
            self.byte_range(&codes, first * of_row * BYTES, span * of_row * BYTES)?,
            self.byte_range(&scales, first * of_row, span * of_row)?,
        );
        blocks.reserve(count * of_row * (BYTES + 1));
        for row in (0..span).step_by(step) {
            for block in row * of_row..(row + 1) * of_row {
                blocks.push(scales[block]);
                push_as_ggml(&codes[block * BYTES..][..BYTES], blocks);
            }
        }
        self.refuse_infinite(name, columns, rows, blocks)
    }

    /// Returns an error if a value of `blocks`, which [`Self::read_blocks`] read, is not finite.
    fn refuse_infinite(&self, name: &str, columns: usize, rows: BlockRows, blocks: &[u8]) -> Result<()> {
        let of_row = columns / VALUES;
        for (i, block) in blocks.chunks_exact(BYTES + 1).enumerate() {
            if !GgufType::Mxfp4.may_exceed(block[0].into()) {
                continue;
            }
            let mut values = [0.0; VALUES];
            if GgufType::Mxfp4.decode(block, &mut values) && values.iter().all(|value| value.is_finite()) {
                continue;
            }
            let [_, tensor] = Self::block_tensors(name);
            let (_, shard) = self.bytes_of(&tensor)?;
            let index = (rows.first + i / of_row * rows.step) * of_row + i % of_row;
            return Err(WeightsError::BlockScale {
                tensor,
                index,
                scale: block[0],
                file: shard.file.clone(),
            });
        }
        Ok(())
    }

    /// A tensor of bytes.
    fn bytes_of(&self, name: &str) -> Result<(&TensorInfo, &Shard)> {
        let (info, shard) = self.locate(name)?;
        if info.dtype == StoredDtype::U8 {
            return Ok((info, shard));
        }
        let (tensor, dtype, file) = (name.to_owned(), info.dtype, shard.file.clone());
        Err(WeightsError::BlockDtype { tensor, dtype, file })
    }

    /// `count` bytes of a tensor of bytes, from `first` on.
    fn byte_range(&self, name: &str, first: usize, count: usize) -> Result<Vec<u8>> {
        let (info, shard) = self.bytes_of(name)?;
        shard.check_range(name, info.elements(), first, count)?;
        let mut bytes = vec![0; count];
        let read = shard.source.read_into(info.offset() + first as u64, &mut bytes);
        read.map_err(shard.read_error(info))?;
        Ok(bytes)
    }
}

/// Appends the values of a block in GGML's order: the first sixteen in lower halves, the others in upper halves.
fn push_as_ggml(bytes: &[u8], to: &mut Vec<u8>) {
    let nibble = |value: usize| bytes[value / 2] >> (value % 2 * 4) & 15;
    to.extend((0..BYTES).map(|i| nibble(i) | nibble(BYTES + i) << 4));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_a_block_keep_their_order() {
        let bytes: [u8; BYTES] =
            std::array::from_fn(|i| ((2 * i as u8) & 15) | ((2 * i as u8 + 1) & 15) << 4);
        let mut block = vec![127];
        push_as_ggml(&bytes, &mut block);
        let mut values = [0.0; VALUES];
        assert!(GgufType::Mxfp4.decode(&block, &mut values));
        let table = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let expected = |i: usize| if i % 16 < 8 { table[i % 8] } else { -table[i % 8] };
        assert!(values.iter().enumerate().all(|(i, value)| *value == expected(i)), "{values:?}");
    }
}
