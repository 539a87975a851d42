//! Reads tensors: the blocks of a range of rows, or the values of any range of elements.

use super::block::GgufType;
use super::{Gguf, GgufFault, GgufParts, GgufTensor};
use crate::checksum::{Checksum, Hash};
use crate::error::{Result, WeightsError};
use crate::shard::Shard;

/// Bytes per read. Every read of values needs at most this much memory besides its destination.
const CHUNK: usize = 1 << 20;
/// Values of the largest block.
const LARGEST_BLOCK: usize = 256;

impl Gguf {
    /// Reads the blocks of `count` rows from row `first` on, as they are stored. `out` must have the bytes of these rows,
    /// `count * row_bytes()`. Tensors whose type is not read are refused by its name.
    pub fn read_blocks(&self, name: &str, first: usize, count: usize, out: &mut [u8]) -> Result<()> {
        let (tensor, shard) = self.locate(name)?;
        check_type(tensor, shard)?;
        let rows = tensor.rows();
        if first.checked_add(count).is_none_or(|end| end > rows) {
            let fault = GgufFault::Rows { tensor: name.to_owned(), rows, first, count };
            return Err(WeightsError::Gguf { file: shard.file.clone(), fault });
        }
        // No overflow: these rows are part of a tensor whose bytes were counted.
        let bytes = count as u64 * tensor.row_bytes();
        if bytes != out.len() as u64 {
            let (tensor, file, given) = (name.to_owned(), shard.file.clone(), out.len());
            return Err(WeightsError::BufferBytes { tensor, bytes, given, file });
        }
        let offset = tensor.offset() + first as u64 * tensor.row_bytes();
        shard
            .source
            .read_into(offset, out)
            .map_err(shard.read_error_of(name, tensor.offset() + tensor.bytes()))
    }

    /// Reads a whole tensor, row-major, like [`Self::read_f32_range`].
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Result<()> {
        let (tensor, shard) = self.locate(name)?;
        check_type(tensor, shard)?;
        shard.check_length(name, tensor.elements(), out.len())?;
        self.read_f32_range(name, 0, out)
    }

    /// Reads the `out.len()` elements that begin at element `first` of a tensor, counted row-major, which may be in the middle
    /// of a block. The values are those of [`GgufType::decode`]. A NaN or infinity is an error that names the element; `out`
    /// then holds a part of the values.
    pub fn read_f32_range(&self, name: &str, first: usize, out: &mut [f32]) -> Result<()> {
        self.read_f32_range_with(name, first, out, &mut Vec::new())
    }

    /// Like [`Self::read_f32_range`], with a buffer for the bytes of the file, which many calls can share.
    pub fn read_f32_range_with(
        &self,
        name: &str,
        first: usize,
        out: &mut [f32],
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let (tensor, shard) = self.locate(name)?;
        check_type(tensor, shard)?;
        shard.check_range(name, tensor.elements(), first, out.len())?;
        let block = tensor.ggml_type.block_values();
        let mut done = 0;
        while done < out.len() {
            let rest = &mut out[done..];
            let (nth, skipped) = ((first + done) / block, (first + done) % block);
            let whole = (rest.len() / block).min(CHUNK / tensor.ggml_type.block_bytes());
            let values = if skipped == 0 && whole > 0 {
                let values = &mut rest[..whole * block];
                decode(tensor, shard, nth, values, buffer)?;
                values
            } else {
                let mut decoded = [0.0; LARGEST_BLOCK];
                decode(tensor, shard, nth, &mut decoded[..block], buffer)?;
                let count = rest.len().min(block - skipped);
                rest[..count].copy_from_slice(&decoded[skipped..skipped + count]);
                &mut rest[..count]
            };
            refuse_non_finite(tensor, shard, values, first + done)?;
            done += values.len();
        }
        Ok(())
    }
}

impl Gguf {
    /// Splits the blocks of row `row` of a tensor, as [`Self::read_blocks`] returns them, into integers and scales. Like
    /// [`Self::read_f32_range`], it refuses a NaN or infinity.
    pub fn split_row(&self, name: &str, row: usize, blocks: &[u8], parts: GgufParts<'_>) -> Result<()> {
        let (tensor, shard) = self.locate(name)?;
        let GgufParts { codes, scales, minima, sub_scales, sub_minima } = parts;
        let reborrowed =
            GgufParts { codes, scales: &mut *scales, minima: &mut *minima, sub_scales, sub_minima };
        if !tensor.ggml_type.split(blocks, reborrowed) {
            return Err(unread(name, tensor.ggml_type, shard));
        }
        if scales.iter().chain(minima.iter()).any(|scale| tensor.ggml_type.may_exceed(*scale)) {
            // The values tell whether it does, and where.
            let columns = tensor.columns();
            self.read_f32_range(name, row * columns, &mut vec![0.0; columns])?;
        }
        Ok(())
    }

    /// Identifies the weights: a hash over name, type, shape and bytes of all tensors, in name order. Metadata and the division into
    /// files do not matter. Reads everything.
    pub fn digest(&self) -> Result<Checksum> {
        let (mut hash, mut buffer) = (Hash::new(), Vec::new());
        for (name, located) in &self.tensors {
            let (tensor, shard) = (&located.tensor, &self.shards[located.shard]);
            // Each text and list is preceded by its length, so that different models never hash the same bytes.
            for text in [name.as_str(), tensor.ggml_type.name()] {
                hash.write(&(text.len() as u64).to_le_bytes());
                hash.write(text.as_bytes());
            }
            hash.write(&(tensor.shape.len() as u64).to_le_bytes());
            tensor.shape.iter().for_each(|&dim| hash.write(&(dim as u64).to_le_bytes()));
            let end = tensor.offset() + tensor.bytes();
            for offset in (tensor.offset()..end).step_by(CHUNK) {
                let length = (end - offset).min(CHUNK as u64) as usize;
                let raw = shard.source.read(offset, length, &mut buffer);
                hash.write(raw.map_err(shard.read_error_of(name, end))?);
            }
        }
        Ok(hash.checksum())
    }
}

/// Reads the whole blocks from block `nth` on that hold the values of `out`.
fn decode(
    tensor: &GgufTensor,
    shard: &Shard,
    nth: usize,
    out: &mut [f32],
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let GgufTensor { name, ggml_type, .. } = tensor;
    let bytes = ggml_type.block_bytes();
    let offset = tensor.offset() + nth as u64 * bytes as u64;
    let length = out.len() / ggml_type.block_values() * bytes;
    let raw = shard.source.read(offset, length, buffer);
    let raw = raw.map_err(shard.read_error_of(name, tensor.offset() + tensor.bytes()))?;
    if ggml_type.decode(raw, out) { Ok(()) } else { Err(unread(name, *ggml_type, shard)) }
}

fn check_type(tensor: &GgufTensor, shard: &Shard) -> Result<()> {
    let GgufTensor { name, ggml_type, .. } = tensor;
    if ggml_type.is_read() { Ok(()) } else { Err(unread(name, *ggml_type, shard)) }
}

fn unread(tensor: &str, ggml_type: GgufType, shard: &Shard) -> WeightsError {
    let fault = GgufFault::Unread { tensor: tensor.to_owned(), ggml_type };
    WeightsError::Gguf { file: shard.file.clone(), fault }
}

/// Returns an error if a value is not finite. `values` begins at element `first` of the tensor.
fn refuse_non_finite(tensor: &GgufTensor, shard: &Shard, values: &[f32], first: usize) -> Result<()> {
    // A branch-free pass first; the position is searched only if a value is not finite.
    if values.iter().fold(true, |finite, value| finite & value.is_finite()) {
        return Ok(());
    }
    let place = values.iter().position(|value| !value.is_finite()).unwrap_or(0);
    let (ggml_type, name) = (tensor.ggml_type, tensor.name.clone());
    let fault = GgufFault::NonFinite { tensor: name, index: first + place, value: values[place], ggml_type };
    Err(WeightsError::Gguf { file: shard.file.clone(), fault })
}
