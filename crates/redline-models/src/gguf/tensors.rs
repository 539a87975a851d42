//! The tensors of a specification in a GGUF file: other names, and in some architectures the rows of queries and keys in pairs.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use redline_kernels::matrix::{QuantisedRow, QuantisedRows};
use redline_kernels::{Format, OutOfMemory};
use redline_weights::{Gguf, GgufFault, GgufParts, GgufTensor, GgufType, WeightsError};

use super::dialect::GgufDialect;
use super::keys::{CLASSES, CLASSIFIER, EMBEDDING, HEAD, TYPES};
use super::rotary::{FACTORS, LONG_FACTORS, SHORT_FACTORS};
use crate::ModelError;
use crate::block::{self, BlockElement, elements};
use crate::place::Place;
use crate::quantised::QuantisedTensors;
use crate::spec::{
    DecoderSpec, DenseLayerSpec, LayerSpec, NormSpec, PartSpec, PositionSpec, PositionTableSpec, Slice,
};

/// Where files have gate and up of all experts in one tensor.
const MERGED: &str = "ffn_gate_up_exps";

/// Tensors that the configuration was made from.
const OF_CONFIG: [&str; 3] = [FACTORS, LONG_FACTORS, SHORT_FACTORS];

/// The tensors of a specification in a file. All names are those of the specification.
pub(crate) struct GgufTensors<'a> {
    gguf: &'a Gguf,
    places: HashMap<String, Place>,
}

impl<'a> GgufTensors<'a> {
    /// Checks names, shapes and types of all tensors; reads no values.
    pub(crate) fn check(
        spec: &DecoderSpec,
        gguf: &'a Gguf,
        dialect: GgufDialect,
    ) -> Result<Self, ModelError> {
        let mut found = Self { gguf, places: places(spec, gguf, dialect) };
        let mut known: HashSet<String> = OF_CONFIG.map(str::to_owned).into();
        for expected in spec.tensors() {
            if let Some(place) = found.places.get_mut(&expected.name) {
                place.shape.clone_from(&expected.shape);
            }
            let tensor = found.tensor(&expected.name)?;
            known.insert(tensor.name.clone());
            let needed = found.places.get(&expected.name).map(Place::file_shape);
            let needed = needed.unwrap_or(expected.shape);
            // Dimensions of one may be left out there, and the norm of Mamba-2 has a row for each group of heads.
            let wide = |shape: &[usize]| shape.iter().copied().filter(|size| *size != 1).collect::<Vec<_>>();
            let is_cut = tensor.name.ends_with(".ssm_norm.weight") && needed[..] == [tensor.elements()];
            let fits = is_cut || wide(&tensor.shape) == wide(&needed);
            if !fits {
                let GgufTensor { name, shape, .. } = tensor;
                let fact = format!("`{name}` has the shape {shape:?}, but {needed:?} is needed");
                return Err(found.refuse(&tensor.name, fact));
            }
            if !tensor.ggml_type.is_read() {
                let fault = GgufFault::Unread { tensor: tensor.name.clone(), ggml_type: tensor.ggml_type };
                let file = gguf.file_of(&tensor.name).unwrap_or(gguf.origin()).to_owned();
                return Err(WeightsError::Gguf { file, fault }.into());
            }
        }
        // Layers after the others predict further tokens; nothing reads them.
        let further = gguf.metadata().opt_u32(&format!("{}.nextn_predict_layers", dialect.architecture))?;
        let further = spec.layers.len()..spec.layers.len() + further.unwrap_or(0) as usize;
        let is_read = |name: &str| {
            let in_layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
            let parsed = in_layer.and_then(|(layer, part)| Some((layer.parse().ok()?, part)));
            let Some((layer, part)) = parsed else { return true };
            let attention = spec.layers.get(layer).and_then(LayerSpec::attention);
            let unread = attention.map_or(&[][..], |attention| attention.unread());
            let part = part.rsplit_once('.').map_or(part, |(module, _)| module);
            !(further.contains(&layer) || unread.contains(&part))
        };
        let unexpected = gguf.names().filter(|name| !known.contains(*name) && is_read(name));
        ModelError::refuse_unexpected(unexpected, gguf.origin())?;
        Ok(found)
    }

    /// The name in the file.
    pub(crate) fn name(&self, name: &str) -> String {
        self.places.get(name).map_or(name, |place| &place.name).to_owned()
    }

    /// Elements `first..first + out.len()` of a tensor, row-major, with a buffer that many calls can share.
    pub(crate) fn read_with(
        &self,
        name: &str,
        first: usize,
        out: &mut [f32],
        buffer: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        let tensor = self.tensor(name)?;
        let mut read = |at, to: &mut [f32]| self.gguf.read_f32_range_with(&tensor.name, at, to, &mut *buffer);
        match self.places.get(name) {
            Some(place) => Ok(place.read(first, out, read)?),
            None => Ok(read(first, out)?),
        }
    }

    /// The format that holds the values of a matrix as they are stored.
    pub(crate) fn stored_format(&self, name: &str) -> Format {
        let ggml_type = self.tensor(name).ok().map(|tensor| tensor.ggml_type);
        match ggml_type {
            Some(GgufType::Bf16) => Format::Bf16,
            ggml_type => ggml_type.and_then(|it| Format::stored(it.name())).unwrap_or(Format::F32),
        }
    }

    fn tensor(&self, name: &str) -> Result<&'a GgufTensor, ModelError> {
        let name = self.name(name);
        // Files of Falcon-H1 have this norm without the ending.
        let without_ending = || {
            let norm = name.strip_suffix(".weight").filter(|name| name.ends_with(".ffn_norm"))?;
            self.gguf.tensor(norm)
        };
        self.gguf.tensor(&name).or_else(without_ending).ok_or_else(|| {
            WeightsError::MissingTensor { tensor: name, file: self.gguf.origin().to_owned() }.into()
        })
    }

    fn refuse(&self, name: &str, fact: String) -> ModelError {
        let file = self.gguf.file_of(name).unwrap_or(self.gguf.origin());
        ModelError::Config { fact, file: file.display().to_string() }
    }
}

impl QuantisedTensors for GgufTensors<'_> {
    fn read_quantised(
        &self,
        name: &str,
        rows: Range<usize>,
        to: &mut QuantisedRows,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ModelError> {
        let tensor = self.tensor(name)?;
        let row_bytes = usize::try_from(tensor.row_bytes()).map_err(|_| OutOfMemory { bytes: usize::MAX })?;
        buffer.resize(rows.len() * row_bytes, 0);
        let place = self.places.get(name);
        let in_order = place.is_none_or(Place::keeps_order);
        let stored = |row: usize| place.map_or(row, |place| place.row(row));
        if in_order {
            self.gguf.read_blocks(&tensor.name, stored(rows.start), rows.len(), buffer)?;
        }
        for (i, row) in rows.enumerate() {
            let blocks = &mut buffer[i * row_bytes..][..row_bytes];
            if !in_order {
                self.gguf.read_blocks(&tensor.name, stored(row), 1, blocks)?;
            }
            let QuantisedRow { codes, scales, minima, sub_scales, sub_minima } = to.row(i);
            let parts = GgufParts { codes, scales, minima, sub_scales, sub_minima };
            self.gguf.split_row(&tensor.name, stored(row), blocks, parts)?;
        }
        Ok(())
    }
}

/// The places of all tensors of a specification.
fn places(spec: &DecoderSpec, gguf: &Gguf, dialect: GgufDialect) -> HashMap<String, Place> {
    let mut places = Places::default();
    places.add(format!("{}.weight", spec.embedding), EMBEDDING.to_owned());
    if let PositionSpec::Learned(PositionTableSpec { name, unused }) = &spec.positions {
        let place = Place { name: "position_embd.weight".to_owned(), left_out: *unused, ..Place::default() };
        places.0.insert(format!("{name}.weight"), place);
    }
    if let Some(table) = spec.type_table() {
        places.add(table.parts[0].weight(), TYPES.to_owned());
    }
    if let Some(norm) = &spec.embedding_norm {
        places.add_norm(norm, "token_embd_norm");
    }
    if let Some(inputs) = &spec.layer_inputs {
        places.add_part(&inputs.table.parts[0], "per_layer_token_embd");
        places.add_part(&inputs.projection.linear.parts[0], "per_layer_model_proj");
        places.add_norm(&inputs.norm, "per_layer_proj_norm");
    }
    for (i, layer) in spec.layers.iter().enumerate() {
        places.add_layer(i, layer, gguf, dialect);
    }
    if let Some(norm) = &spec.final_norm {
        places.add_norm(norm, dialect.final_norm);
    }
    if let Some(head) = spec.head_linear() {
        places.add(head.parts[0].weight(), HEAD.to_owned());
    }
    places.add_classifier(spec.classifier_layers());
    places.0
}

#[derive(Default)]
struct Places(HashMap<String, Place>);

impl Places {
    fn add(&mut self, of: String, name: String) {
        self.0.insert(of, Place { name, ..Place::default() });
    }

    fn add_norm(&mut self, norm: &NormSpec, name: &str) {
        for end in [norm.kind.weight(), "bias"] {
            self.add(format!("{}.{end}", norm.name), format!("{name}.{end}"));
        }
    }

    fn add_part(&mut self, part: &PartSpec, name: &str) {
        self.add(part.weight(), format!("{name}.weight"));
        self.add(part.bias_name(), format!("{name}.bias"));
    }

    /// The last layer has an output for each class; there may be one before it.
    fn add_classifier(&mut self, layers: &[DenseLayerSpec]) {
        let Some((output, before)) = layers.split_last() else { return };
        self.add_part(&output.linear.parts[0], CLASSES);
        for layer in before {
            self.add_part(&layer.linear.parts[0], CLASSIFIER);
            if let Some(norm) = &layer.norm {
                self.add_norm(norm, "cls.norm");
            }
        }
    }

    /// The elements of a layer, under names that begin with `blk.{i}.`.
    fn add_layer(&mut self, i: usize, layer: &LayerSpec, gguf: &Gguf, dialect: GgufDialect) {
        let block = |name: &str| format!("blk.{i}.{name}");
        let is_merged = gguf.tensor(&block(&format!("{MERGED}.weight"))).is_some();
        for element in elements(layer) {
            match element {
                BlockElement::Linear(linear, role) => {
                    let block::GgufNames { whole, parts, rotated, stacked } = role.gguf;
                    let is_part = is_merged && stacked.is_some() && linear.parts.len() == 2;
                    let names: &[&str] = match linear.parts.len() {
                        1 => &[whole],
                        _ if is_part => &[MERGED; 2],
                        _ => parts,
                    };
                    let mut first = 0;
                    let pairs = rotated.filter(|_| dialect.pairs_rows && linear.parts.len() > 1);
                    for (part, (at, name)) in linear.parts.iter().zip(names.iter().enumerate()) {
                        let rows = is_part.then_some((first, linear.outputs()));
                        first += part.outputs;
                        let place = |end: &str| Place {
                            name: block(&format!("{name}.{end}")),
                            pairs: pairs.filter(|_| at + 1 < names.len()),
                            slice: stacked.map(|stacked| Slice {
                                stacked: Some(stacked),
                                rows,
                                alternating: (0, 1),
                                axis: 0,
                            }),
                            ..Place::default()
                        };
                        self.0.insert(part.weight(), place("weight"));
                        self.0.insert(part.bias_name(), place("bias"));
                    }
                }
                BlockElement::Norm(norm, "ffn_norm") => self.add_norm(norm, &block(dialect.mlp_norm)),
                BlockElement::Norm(norm, name) => self.add_norm(norm, &block(name)),
                BlockElement::Values(values, name) => self.add(values.name.clone(), block(name)),
            }
        }
    }
}
