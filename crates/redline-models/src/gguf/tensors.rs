//! The tensors of a specification in a GGUF file: other names, and in some architectures the rows of queries and keys in pairs.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use redline_kernels::matrix::{QuantisedRow, QuantisedRows};
use redline_kernels::{Format, OutOfMemory};
use redline_weights::{Gguf, GgufFault, GgufParts, GgufTensor, GgufType, WeightsError};

use super::keys::{CLASSES, CLASSIFIER, EMBEDDING, HEAD, TYPES};
use super::rotary::{FACTORS, LONG_FACTORS, SHORT_FACTORS};
use crate::ModelError;
use crate::spec::{
    AttentionSpec, DecoderSpec, ExpertsSpec, FfnSpec, HeadLayerSpec, LayerSpec, LinearSpec, MlpSpec,
    NormSpec, SharedExpertSpec, TensorSpec,
};

/// Tensors that the configuration was made from.
const OF_CONFIG: [&str; 3] = [FACTORS, LONG_FACTORS, SHORT_FACTORS];

/// The tensors of a specification in a file. All names are those of the specification.
pub(crate) struct GgufTensors<'a> {
    gguf: &'a Gguf,
    places: HashMap<String, Place>,
}

/// Where a tensor is.
#[derive(Clone, Debug)]
struct Place {
    /// Its name in the file.
    name: String,
    /// The number of values of a head whose rows are stored in pairs that are rotated together.
    pairs: Option<usize>,
    /// The id of an expert, and the number of all those whose matrices are one tensor, `[experts, rows, columns]`.
    expert: Option<(usize, usize)>,
}

impl Place {
    /// The shape of the tensor in the file.
    fn shape(&self, expected: &TensorSpec) -> Vec<usize> {
        let experts = self.expert.iter().map(|(_, count)| *count);
        experts.chain(expected.shape.iter().copied()).collect()
    }

    /// Number of values or rows before those of the expert, of `all`.
    fn skipped(&self, all: usize) -> usize {
        self.expert.map_or(0, |(id, count)| all / count * id)
    }
}

impl<'a> GgufTensors<'a> {
    /// Checks names, shapes and types of all tensors; reads no values.
    pub(crate) fn check(spec: &DecoderSpec, gguf: &'a Gguf, pairs_rows: bool) -> Result<Self, ModelError> {
        let found = Self { gguf, places: places(spec, pairs_rows) };
        for expected in spec.tensors() {
            let tensor = found.tensor(&expected.name)?;
            let needed = found.places.get(&expected.name).map(|place| place.shape(&expected));
            let needed = needed.unwrap_or(expected.shape);
            // A matrix of one row is a vector there.
            let fits = tensor.shape == needed || needed[0] == 1 && tensor.shape == needed[1..];
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
        let known: HashSet<&str> =
            found.places.values().map(|place| place.name.as_str()).chain(OF_CONFIG).collect();
        ModelError::refuse_unexpected(gguf.names().filter(|name| !known.contains(name)), gguf.origin())?;
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
        let place = self.places.get(name);
        let Some(head_dim) = place.and_then(|place| place.pairs) else {
            let first = first + place.map_or(0, |place| place.skipped(tensor.elements()));
            return Ok(self.gguf.read_f32_range_with(&tensor.name, first, out, buffer)?);
        };
        // A bias is one column.
        let columns = if tensor.shape.len() == 1 { 1 } else { tensor.columns() };
        let mut done = 0;
        while done < out.len() {
            let (row, skipped) = ((first + done) / columns, (first + done) % columns);
            let count = (columns - skipped).min(out.len() - done);
            let from = paired_row(row, head_dim) * columns + skipped;
            self.gguf.read_f32_range_with(&tensor.name, from, &mut out[done..done + count], buffer)?;
            done += count;
        }
        Ok(())
    }

    /// The rows `rows` of a matrix as integers and scales, with a buffer that many calls can share.
    pub(crate) fn read_quantised(
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
        let pairs = place.and_then(|place| place.pairs);
        let skipped = place.map_or(0, |place| place.skipped(tensor.rows()));
        let stored = |row: usize| pairs.map_or(skipped + row, |head_dim| paired_row(row, head_dim));
        if pairs.is_none() {
            self.gguf.read_blocks(&tensor.name, stored(rows.start), rows.len(), buffer)?;
        }
        for (i, row) in rows.enumerate() {
            let blocks = &mut buffer[i * row_bytes..][..row_bytes];
            if pairs.is_some() {
                self.gguf.read_blocks(&tensor.name, stored(row), 1, blocks)?;
            }
            let QuantisedRow { codes, scales, minima, sub_scales, sub_minima } = to.row(i);
            let parts = GgufParts { codes, scales, minima, sub_scales, sub_minima };
            self.gguf.split_row(&tensor.name, stored(row), blocks, parts)?;
        }
        Ok(())
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
        self.gguf.tensor(&name).ok_or_else(|| {
            WeightsError::MissingTensor { tensor: name, file: self.gguf.origin().to_owned() }.into()
        })
    }

    fn refuse(&self, name: &str, fact: String) -> ModelError {
        let file = self.gguf.file_of(name).unwrap_or(self.gguf.origin());
        ModelError::Config { fact, file: file.display().to_string() }
    }
}

/// The place of a row of a head whose rows are stored in pairs: row i beside row `i + head_dim / 2`.
fn paired_row(row: usize, head_dim: usize) -> usize {
    let (head, i) = (row / head_dim, row % head_dim);
    let half = head_dim / 2;
    head * head_dim + 2 * (i % half) + i / half
}

/// The places of all tensors of a specification.
fn places(spec: &DecoderSpec, pairs_rows: bool) -> HashMap<String, Place> {
    let mut places = Places::default();
    places.add(format!("{}.weight", spec.embedding), EMBEDDING.to_owned(), None);
    if let Some(table) = spec.position_table() {
        places.add(table.parts[0].weight(), "position_embd.weight".to_owned(), None);
    }
    if let Some(table) = spec.type_table() {
        places.add(table.parts[0].weight(), TYPES.to_owned(), None);
    }
    if let Some(norm) = &spec.embedding_norm {
        places.add_norm(norm, "token_embd_norm");
    }
    for (i, layer) in spec.layers.iter().enumerate() {
        places.add_layer(i, layer, pairs_rows);
    }
    if let Some(norm) = &spec.final_norm {
        places.add_norm(norm, "output_norm");
    }
    if let Some(head) = spec.head_linear() {
        places.add(head.parts[0].weight(), HEAD.to_owned(), None);
    }
    places.add_classifier(spec.classifier_layers());
    places.0
}

#[derive(Default)]
struct Places(HashMap<String, Place>);

impl Places {
    fn add(&mut self, of: String, name: String, pairs: Option<usize>) {
        self.0.insert(of, Place { name, pairs, expert: None });
    }

    fn add_norm(&mut self, norm: &NormSpec, name: &str) {
        for end in ["weight", "bias"] {
            self.add(format!("{}.{end}", norm.name), format!("{name}.{end}"), None);
        }
    }

    fn add_linear(&mut self, linear: &LinearSpec, names: &[(String, Option<usize>)]) {
        for (part, (name, pairs)) in linear.parts.iter().zip(names) {
            self.add(part.weight(), format!("{name}.weight"), *pairs);
            self.add(part.bias_name(), format!("{name}.bias"), *pairs);
        }
    }

    /// The last layer has an output for each class; there may be one before it.
    fn add_classifier(&mut self, layers: &[HeadLayerSpec]) {
        let Some((output, before)) = layers.split_last() else { return };
        self.add_linear(&output.linear, &[(CLASSES.to_owned(), None)]);
        for layer in before {
            self.add_linear(&layer.linear, &[(CLASSIFIER.to_owned(), None)]);
            if let Some(norm) = &layer.norm {
                self.add_norm(norm, "cls.norm");
            }
        }
    }

    /// `{ffn}_gate{end}`, `{ffn}_up{end}` and `{ffn}_down{end}`.
    fn add_mlp(&mut self, mlp: &MlpSpec, ffn: &str, end: &str) {
        let plain = |part: &str| (format!("{ffn}_{part}{end}"), None);
        let apart = [plain("gate"), plain("up")];
        self.add_linear(&mlp.up, if mlp.up.parts.len() == 1 { &apart[1..] } else { &apart });
        self.add_linear(&mlp.down, &[plain("down")]);
    }

    fn add_experts(&mut self, spec: &ExpertsSpec, ffn: &str) {
        let count = spec.experts.len();
        for (id, mlp) in spec.experts.iter().enumerate() {
            self.add_mlp(mlp, ffn, "_exps");
            for part in mlp.up.parts.iter().chain(&mlp.down.parts) {
                if let Some(place) = self.0.get_mut(&part.weight()) {
                    place.expert = Some((id, count));
                }
            }
        }
        self.add_linear(&spec.router, &[(format!("{ffn}_gate_inp"), None)]);
        if let Some(SharedExpertSpec { gate, mlp }) = &spec.shared {
            self.add_linear(gate, &[(format!("{ffn}_gate_inp_shexp"), None)]);
            self.add_mlp(mlp, ffn, "_shexp");
        }
    }

    fn add_layer(&mut self, i: usize, layer: &LayerSpec, pairs_rows: bool) {
        let LayerSpec { attention, attention_norms, mlp, mlp_norms, .. } = layer;
        let block = |part: &str| format!("blk.{i}.{part}");
        let plain = |part: &str| (block(part), None);
        let AttentionSpec { head_dim, qkv, output, head_norms, .. } = attention;
        let pairs = pairs_rows.then_some(*head_dim);
        let (fused, apart) =
            ([plain("attn_qkv")], [(block("attn_q"), pairs), (block("attn_k"), pairs), plain("attn_v")]);
        self.add_linear(qkv, if qkv.parts.len() == 1 { &fused[..] } else { &apart });
        self.add_linear(output, &[plain("attn_output")]);
        if let Some((query, key)) = head_norms {
            self.add_norm(query, &block("attn_q_norm"));
            self.add_norm(key, &block("attn_k_norm"));
        }
        match mlp {
            FfnSpec::Dense(mlp) => self.add_mlp(mlp, &block("ffn"), ""),
            FfnSpec::Experts(experts) => self.add_experts(experts, &block("ffn")),
        }
        for (norm, name) in [
            (&attention_norms.before, "attn_norm"),
            (&attention_norms.after, "post_attention_norm"),
            (&attention_norms.sum, "attn_output_norm"),
            (&mlp_norms.before, "ffn_norm"),
            (&mlp_norms.after, "post_ffw_norm"),
            (&mlp_norms.sum, "layer_output_norm"),
        ] {
            if let Some(norm) = norm {
                self.add_norm(norm, &block(name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_lies_beside_the_one_that_is_rotated_with_it() {
        let rows =
            |count: usize, head_dim| (0..count).map(|row| paired_row(row, head_dim)).collect::<Vec<_>>();
        assert_eq!(rows(8, 4), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(rows(6, 6), [0, 2, 4, 1, 3, 5]);
    }
}
