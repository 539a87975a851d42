//! The tensors of a specification in a Hugging Face checkpoint: as they are, or as parts of tensors that stack those of all experts.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use redline_kernels::Format;
use redline_kernels::matrix::{QuantisedRow, QuantisedRows};
use redline_weights::{BlockRows, Checkpoint, GgufParts, GgufType, StoredDtype};

use crate::ModelError;
use crate::formats::Formats;
use crate::place::Place;
use crate::quantised::QuantisedTensors;
use crate::spec::{DecoderSpec, HEAD, Names, Role, StoredAs, StoredSpec, TensorSpec};

/// The tensors of a specification in a checkpoint. Names are those of the specification, without the family's prefix.
pub(crate) struct CheckpointTensors<'a> {
    checkpoint: &'a Checkpoint,
    names: Names,
    /// The parts of other tensors.
    parts: HashMap<String, (Place, StoredAs)>,
}

impl<'a> CheckpointTensors<'a> {
    /// Checks names and shapes of all tensors; reads no values.
    pub(crate) fn check(spec: &DecoderSpec, checkpoint: &'a Checkpoint) -> Result<Self, ModelError> {
        let names = spec.names(|name| checkpoint.info(name).is_some());
        let (mut parts, mut expected) = (HashMap::new(), HashSet::new());
        for TensorSpec { name, shape, stored, .. } in spec.tensors() {
            let Some(StoredSpec { name: whole, slice, stored_as }) = stored else {
                let name = names.full(&name);
                checkpoint.require(&name, &shape)?;
                expected.insert(name);
                continue;
            };
            let place = Place { name: names.full(&whole), shape, slice: Some(slice), ..Place::default() };
            match stored_as {
                StoredAs::Floats => {
                    checkpoint.require(&place.name, &place.file_shape())?;
                    expected.insert(place.name.clone());
                }
                StoredAs::Mxfp4 => {
                    checkpoint.require_blocks(&place.name, &place.file_shape())?;
                    expected.extend(Checkpoint::block_tensors(&place.name));
                }
            }
            parts.insert(name, (place, stored_as));
        }
        if spec.tied && checkpoint.info(HEAD).is_some() {
            checkpoint.require(HEAD, &[spec.vocab, spec.hidden])?;
            expected.insert(HEAD.to_owned());
        }
        let unexpected = checkpoint.names().filter(|n| !expected.contains(*n) && !spec.ignores(n));
        ModelError::refuse_unexpected(unexpected, checkpoint.origin())?;
        Ok(Self { checkpoint, names, parts })
    }

    /// The checkpoint.
    pub(crate) fn checkpoint(&self) -> &'a Checkpoint {
        self.checkpoint
    }

    /// Maps names to those of tensors that are no parts.
    pub(crate) fn names(&self) -> Names {
        self.names
    }

    /// The name in the files; that of the whole for a part.
    pub(crate) fn name(&self, name: &str) -> String {
        match self.parts.get(name) {
            None => self.names.full(name),
            Some((place, StoredAs::Floats)) => place.name.clone(),
            Some((place, StoredAs::Mxfp4)) => {
                let [blocks, _] = Checkpoint::block_tensors(&place.name);
                blocks
            }
        }
    }

    /// Elements `first..first + out.len()` of a tensor, row-major, with a buffer that many calls can share.
    pub(crate) fn read_with(
        &self,
        name: &str,
        first: usize,
        out: &mut [f32],
        buffer: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        let Some((place, stored_as)) = self.parts.get(name) else {
            return Ok(self.checkpoint.read_f32_range_with(&self.names.full(name), first, out, buffer)?);
        };
        if *stored_as == StoredAs::Mxfp4 {
            return self.read_blocks(place, first, out, buffer);
        }
        let read =
            |at, to: &mut [f32]| self.checkpoint.read_f32_range_with(&place.name, at, to, &mut *buffer);
        Ok(place.read(first, out, read)?)
    }

    /// As [`Self::read_with`], of a matrix of four-bit floats.
    fn read_blocks(
        &self,
        place: &Place,
        first: usize,
        out: &mut [f32],
        buffer: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        let columns = place.columns();
        let (row, skipped) = (first / columns, first % columns);
        let count = (skipped + out.len()).div_ceil(columns);
        let rows = BlockRows { first: place.row(row), step: place.row_step(), count };
        self.checkpoint.read_blocks(&place.name, columns, rows, buffer)?;
        let mut values = vec![0.0; columns];
        let mut rest = out;
        for (i, blocks) in buffer.chunks_exact(row_bytes(columns)).enumerate() {
            assert!(GgufType::Mxfp4.decode(blocks, &mut values), "whole blocks of {columns} values");
            let from = &values[if i == 0 { skipped } else { 0 }..];
            let (now, later) = rest.split_at_mut(from.len().min(rest.len()));
            now.copy_from_slice(&from[..now.len()]);
            rest = later;
        }
        Ok(())
    }

    /// Whether a matrix is stored as integers with scales.
    pub(crate) fn is_quantised(&self, name: &str) -> bool {
        matches!(self.parts.get(name), Some((_, StoredAs::Mxfp4)))
    }

    /// The formats that the matrices are stored in: that of blocks, and of the others bf16 if all are, else f32.
    pub(crate) fn stored_formats(&self, spec: &DecoderSpec) -> Formats {
        let is_bf16 = |name: &str| {
            let info = self.checkpoint.info(&self.name(name));
            info.is_some_and(|info| info.dtype == StoredDtype::BF16)
        };
        let weights = spec.tensors().into_iter().filter(|t| t.role == Role::Weight);
        let all = weights.map(|weight| weight.name).filter(|name| !self.is_quantised(name));
        let floats = if all.into_iter().all(|name| is_bf16(&name)) { Format::Bf16 } else { Format::F32 };
        if !spec.stores_blocks() {
            return Formats::one(spec, floats);
        }
        Formats::each(spec, |weight| if self.is_quantised(weight) { Format::Mxfp4 } else { floats })
    }
}

impl QuantisedTensors for CheckpointTensors<'_> {
    fn read_quantised(
        &self,
        name: &str,
        rows: Range<usize>,
        to: &mut QuantisedRows,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        let (place, _) = self.parts.get(name).expect("a matrix that is stored as integers");
        let columns = place.columns();
        let read = BlockRows { first: place.row(rows.start), step: place.row_step(), count: rows.len() };
        self.checkpoint.read_blocks(&place.name, columns, read, buffer)?;
        for (i, blocks) in buffer.chunks_exact(row_bytes(columns)).enumerate() {
            let QuantisedRow { codes, scales, minima, sub_scales, sub_minima } = to.row(i);
            let parts = GgufParts { codes, scales, minima, sub_scales, sub_minima };
            assert!(GgufType::Mxfp4.split(blocks, parts), "whole blocks of {columns} values");
        }
        Ok(())
    }
}

/// Bytes of the blocks of a row.
fn row_bytes(columns: usize) -> usize {
    columns / GgufType::Mxfp4.block_values() * GgufType::Mxfp4.block_bytes()
}
