//! How much memory a model needs, computed from its specification before any weight is read.

use redline_kernels::Format;
use redline_kernels::matrix::MatrixShape;
use redline_kernels::op::attention;
use redline_kernels::op::kv::{KvFormat, KvShape};
use redline_kernels::op::linear::{MAX_PARTS, lora_scratch_words, scratch_words};

use crate::adapter::resident::AdapterLimits;
use crate::plan::Site;
use crate::spec::{DecoderSpec, LayerSpec, LinearSpec, NormSpec};
use crate::step::{ArenaSize, padded};

/// The sizes of a model's weights, activations, keys and values.
#[derive(Clone, Debug)]
pub struct Footprint {
    hidden: usize,
    vocab: usize,
    /// Bytes of all weights.
    weights: u64,
    /// The head, or the embedding if the head is tied to it.
    head: MatrixShape,
    layers: Vec<LayerFootprint>,
    /// The largest adapters that passes need memory for.
    adapters: AdapterLimits,
}

/// The matrices of one layer, and the shape of its keys and values.
#[derive(Clone, Debug)]
struct LayerFootprint {
    qkv: MatrixShape,
    output: MatrixShape,
    first: MatrixShape,
    second: MatrixShape,
    kv_heads: usize,
    head_dim: usize,
}

impl Footprint {
    /// The footprint of a model with weights of `format`. `outliers` is the number of input columns of a layer that are kept as
    /// bf16; 0 for formats other than integers.
    pub(crate) fn new(spec: &DecoderSpec, format: Format, outliers: impl Fn(&LinearSpec) -> usize) -> Self {
        let shape = |linear: &LinearSpec| shape(linear, format, outliers(linear));
        let tokens = shape(&spec.token_table());
        let head = spec.head_linear().map(|head| shape(&head));
        let positions = spec.position_table().map(|table| self::shape(&table, position_format(format), 0));
        let tables = [Some(tokens), head, positions].into_iter().flatten().map(MatrixShape::bytes);
        let mut weights = tables.chain([norm_bytes(&spec.final_norm)]).fold(0, u64::saturating_add);
        let mut layers = Vec::with_capacity(spec.layers.len());
        for layer in &spec.layers {
            let (first, second) = layer.mlp.parts();
            let linears = [&layer.attention.qkv, &layer.attention.output, first, second];
            let [qkv, output, first, second] = linears.map(&shape);
            let matrices = [qkv, output, first, second].map(MatrixShape::bytes);
            let biases = linears.map(bias_bytes);
            let all = matrices.into_iter().chain(biases).chain(layer_norms(layer).map(norm_bytes));
            weights = all.fold(weights, u64::saturating_add);
            let (kv_heads, head_dim) = (layer.attention.kv_heads, layer.attention.head_dim);
            layers.push(LayerFootprint { qkv, output, first, second, kv_heads, head_dim });
        }
        let (hidden, vocab) = (spec.hidden, spec.vocab);
        let adapters = AdapterLimits::default();
        Self { hidden, vocab, weights, head: head.unwrap_or(tokens), layers, adapters }
    }

    /// The footprint with memory for adapters up to these limits in every pass.
    pub fn with_adapters(self, adapters: AdapterLimits) -> Self {
        Self { adapters, ..self }
    }

    /// Bytes of the weights in memory.
    pub fn weight_bytes(&self) -> u64 {
        self.weights
    }

    /// The head, or the embedding if the head is tied to it.
    pub(crate) fn head(&self) -> MatrixShape {
        self.head
    }

    /// The linear layer at a site of a layer.
    pub(crate) fn linear(&self, layer: usize, site: Site) -> MatrixShape {
        let LayerFootprint { qkv, output, first, second, .. } = self.layers[layer];
        match site {
            Site::Qkv => qkv,
            Site::Output => output,
            Site::Up => first,
            Site::Down => second,
            Site::Head => self.head,
        }
    }

    /// Memory for passes of up to `rows` tokens with logits for up to `outputs` rows.
    pub fn arena_size(&self, rows: usize, outputs: usize) -> ArenaSize {
        let hidden = padded(self.hidden);
        let mut widest = hidden;
        let AdapterLimits { rank, uses } = self.adapters;
        let linear_words = |shape, rows| {
            scratch_words(shape, rows) + lora_scratch_words(shape, rows, MAX_PARTS * padded(rank), uses)
        };
        // The embedding, and an adapter's update of it.
        widest = widest.max(hidden + padded(rank));
        let mut words = linear_words(self.head, outputs);
        words = words.max(scratch_words(MatrixShape { cols: rank, rows: self.hidden, ..self.head }, rows));
        for &LayerFootprint { qkv, output, first, second, head_dim, .. } in &self.layers {
            let width = 4 * hidden
                + padded(qkv.rows)
                + padded(output.cols)
                + padded(first.rows)
                + padded(second.cols);
            widest = widest.max(width);
            words = words.max(attention::scratch_words(head_dim));
            for shape in [qkv, output, first, second] {
                words = words.max(linear_words(shape, rows));
            }
        }
        let logits = outputs * (2 * hidden + padded(self.vocab));
        ArenaSize { values: rows * (hidden + widest) + logits, words }
    }

    /// The shapes of the keys and values of every layer, in a given format.
    pub fn kv_shapes(&self, format: KvFormat) -> Vec<KvShape> {
        let shape =
            |layer: &LayerFootprint| KvShape { format, kv_heads: layer.kv_heads, head_dim: layer.head_dim };
        self.layers.iter().map(shape).collect()
    }
}

/// Learned positions are added to every token and are small compared with all other weights, so integer formats keep them as
/// bf16.
pub(crate) fn position_format(format: Format) -> Format {
    if format.is_integer() { Format::Bf16 } else { format }
}

fn shape(linear: &LinearSpec, format: Format, outliers: usize) -> MatrixShape {
    MatrixShape { format, rows: linear.outputs(), cols: linear.inputs, outliers }
}

/// Bytes of a layer's biases, padded to whole strips.
fn bias_bytes(linear: &LinearSpec) -> u64 {
    if linear.has_bias() { vector_bytes(padded(linear.outputs())) } else { 0 }
}

fn norm_bytes(norm: &NormSpec) -> u64 {
    vector_bytes(norm.width) * if norm.layer_norm { 2 } else { 1 }
}

fn vector_bytes(len: usize) -> u64 {
    (len * size_of::<f32>()) as u64
}

fn layer_norms(layer: &LayerSpec) -> impl Iterator<Item = &NormSpec> {
    let heads = layer.attention.head_norms.iter().flat_map(|(query, key)| [query, key]);
    [&layer.attention_norm, &layer.mlp_norm].into_iter().chain(heads)
}
