//! How much memory a model needs, computed from its specification before any weight is read.

use redline_kernels::Format;
use redline_kernels::matrix::MatrixShape;
use redline_kernels::op::attention;
use redline_kernels::op::kv::{KvFormat, KvShape};
use redline_kernels::op::linear::{
    MAX_PARTS, can_group, grouped_scratch_words, lora_scratch_words, scratch_words,
};

use crate::adapter::resident::AdapterLimits;
use crate::formats::Formats;
use crate::plan::Site;
use crate::spec::{DecoderSpec, ExpertsSpec, FfnSpec, LinearSpec, MlpSpec, NormKind, NormSpec};
use crate::step::{ArenaSize, MOST_ROWS, padded};

/// Maximum bytes of the weights of a layer in batches that are cut into micro-batches, each of which reads them.
const MOST_LAYER_BYTES: u64 = 16 << 20;

/// The sizes of a model's weights, activations, keys and values.
#[derive(Clone, Debug)]
pub struct Footprint {
    hidden: usize,
    /// Number of values of an output row: logits, or a state.
    output: usize,
    /// Whether all layers keep their keys and values in one place.
    shares_keys: bool,
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
    /// Those of a linear layer are stacked by rows.
    linears: Vec<(Site, Vec<MatrixShape>)>,
    /// The linear layers of a mixture of experts are here instead.
    experts: Option<ExpertsFootprint>,
    /// Number of norms of the residual stream's width that have results of their own.
    norms: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// A mixture of experts.
#[derive(Clone, Debug)]
struct ExpertsFootprint {
    /// The shapes that matrices have, each once.
    shapes: Vec<MatrixShape>,
    /// Whether experts may run in groups.
    can_group: bool,
    /// For each row, number of values of the router's outputs and of the sum.
    kept: usize,
    /// For each row of an expert that runs alone, or of the shared one, number of values of activations. One may have all rows.
    alone: usize,
    /// For each choice in a group, whose inputs are not copied, number of values of activations.
    grouped: usize,
    /// Number of experts of a row.
    top_k: usize,
}

impl ExpertsFootprint {
    fn new(spec: &ExpertsSpec, shapes_of: impl Fn(&LinearSpec) -> Vec<MatrixShape>) -> Self {
        let of_experts: Vec<MatrixShape> =
            spec.experts.iter().flat_map(|mlp| [&mlp.up, &mlp.down]).flat_map(&shapes_of).collect();
        let can_group = of_experts.iter().copied().all(can_group);
        let shared = spec.shared.iter().flat_map(|shared| [&shared.gate, &shared.mlp.up, &shared.mlp.down]);
        let others = shared.chain([&spec.router]).flat_map(&shapes_of);
        let mut shapes = Vec::new();
        for shape in of_experts.into_iter().chain(others) {
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        let of =
            |mlp: &MlpSpec| padded(mlp.up.outputs()) + padded(mlp.down.inputs) + padded(mlp.down.outputs());
        let hidden = padded(spec.router.inputs);
        let grouped = spec.experts.iter().map(of).max().unwrap_or(0);
        // The rows of an expert that runs alone are copied, those of the shared expert are all.
        let shared = spec.shared.iter().map(|shared| padded(shared.gate.outputs()) + of(&shared.mlp));
        let alone = shared.chain([hidden + grouped]).max().unwrap_or(0);
        let kept = padded(spec.router.outputs()) + hidden;
        Self { shapes, can_group, kept, alone, grouped, top_k: spec.top_k }
    }

    /// Maximum number of choices in a group of experts, in a pass of `rows` rows.
    fn most_grouped(&self, rows: usize) -> usize {
        if self.can_group { rows.saturating_mul(self.top_k).min(MOST_ROWS) } else { 0 }
    }

    /// Number of values of activations in a pass of `rows` rows.
    fn values(&self, rows: usize) -> usize {
        rows * self.kept + (rows * self.alone).max(self.most_grouped(rows) * self.grouped)
    }

    /// Number of words of packed inputs of a group, in a pass of `rows` rows.
    fn words(&self, rows: usize) -> usize {
        let choices = self.most_grouped(rows);
        let shapes = self.shapes.iter().filter(|shape| can_group(**shape));
        shapes.map(|shape| grouped_scratch_words(*shape, choices)).max().unwrap_or(0)
    }
}

impl Footprint {
    /// The footprint of a model with weights of these formats. `outliers` is the number of input columns of a layer that are kept as
    /// bf16; 0 for formats other than integers.
    pub(crate) fn new(
        spec: &DecoderSpec,
        formats: &Formats,
        outliers: impl Fn(&LinearSpec, Format) -> usize,
    ) -> Self {
        let shapes = |linear: &LinearSpec| -> Vec<MatrixShape> {
            let runs = formats.runs(linear).into_iter();
            runs.map(|(run, format)| shape(&run, format, outliers(&run, format))).collect()
        };
        let table = |linear: &LinearSpec| {
            let format = formats.of(&linear.parts[0].weight());
            shape(linear, format, outliers(linear, format))
        };
        let tokens = table(&spec.token_table());
        let head = spec.head_linear().map(|head| table(&head));
        let pooled = spec.classifier_layers();
        // Rows of positions that no token has are not kept.
        let kept = spec.context + usize::from(spec.padding().is_some());
        let positions = spec.position_table().map(|table| (table, kept));
        let types = spec.type_table().map(|table| (table.clone(), table.outputs()));
        let of_pooled = pooled.iter().map(|layer| (layer.linear.clone(), layer.linear.outputs()));
        let unquantised = positions.into_iter().chain(types).chain(of_pooled).map(|(linear, rows)| {
            let format = unquantised_format(formats.of(&linear.parts[0].weight()));
            MatrixShape { rows, ..shape(&linear, format, 0) }
        });
        let tables = [Some(tokens), head].into_iter().flatten().chain(unquantised).map(MatrixShape::bytes);
        let norms = spec.embedding_norm.iter().chain(&spec.final_norm);
        let norms = norms.chain(pooled.iter().filter_map(|layer| layer.norm.as_ref())).map(norm_bytes);
        let biases = pooled.iter().map(|layer| bias_bytes(&layer.linear));
        let mut weights = tables.chain(norms).chain(biases).fold(0, u64::saturating_add);
        let mut layers = Vec::with_capacity(spec.layers.len());
        for layer in &spec.layers {
            let linears: Vec<(Site, Vec<MatrixShape>)> =
                layer.adaptable().map(|(site, linear)| (site, shapes(linear))).collect();
            let of_experts: Vec<MatrixShape> = match &layer.mlp {
                FfnSpec::Dense(_) => Vec::new(),
                FfnSpec::Experts(_) => layer.mlp.linears().flat_map(|(_, linear)| shapes(linear)).collect(),
            };
            let matrices = linears.iter().flat_map(|(_, shapes)| shapes).chain(&of_experts);
            let matrices = matrices.map(|shape| shape.bytes());
            let biases = layer.linears().map(|(_, linear)| bias_bytes(linear));
            let heads = layer.attention.head_norms.iter().flat_map(|(query, key)| [query, key]);
            let norms = layer.norms().chain(heads).map(norm_bytes);
            let sinks = layer.attention.sinks.iter().map(|_| vector_bytes(layer.attention.heads));
            weights = matrices.chain(biases).chain(norms).chain(sinks).fold(weights, u64::saturating_add);
            let (kv_heads, head_dim) = (layer.attention.kv_heads, layer.attention.head_dim);
            let experts = layer.mlp.experts();
            let experts = experts.map(|experts| ExpertsFootprint::new(experts, shapes));
            // Norms of sums are computed in place.
            let norms = [&layer.attention_norms, &layer.mlp_norms];
            let norms = norms.into_iter().flat_map(|norms| norms.before.iter().chain(&norms.after)).count();
            layers.push(LayerFootprint { linears, experts, norms, kv_heads, head_dim });
        }
        let adapters = AdapterLimits::default();
        // A row of states instead of one of logits.
        let (hidden, encodes) = (spec.hidden, !spec.objective.predicts());
        let output = if encodes { hidden } else { spec.vocab };
        let shares_keys = spec.shares_keys();
        Self { hidden, output, shares_keys, weights, head: head.unwrap_or(tokens), layers, adapters }
    }

    /// The footprint with memory for adapters up to these limits in every pass.
    pub fn with_adapters(self, adapters: AdapterLimits) -> Self {
        Self { adapters, ..self }
    }

    /// Bytes of the weights in memory.
    pub fn weight_bytes(&self) -> u64 {
        self.weights
    }

    /// Whether batches are cut into micro-batches if they have enough rows for the threads: those of encoders with small layers.
    pub fn cuts_batches(&self) -> bool {
        let bytes = |layer: &LayerFootprint| -> u64 {
            layer.linears.iter().flat_map(|(_, shapes)| shapes).map(|shape| shape.bytes()).sum()
        };
        self.shares_keys
            && self.layers.first().is_some_and(|it| it.experts.is_none() && bytes(it) <= MOST_LAYER_BYTES)
    }

    /// The head, or the embedding if the head is tied to it.
    pub(crate) fn head(&self) -> MatrixShape {
        self.head
    }

    /// The weights of the linear layer at a site of a layer; `None` if the layer has none there, or in several formats.
    pub(crate) fn linear(&self, layer: usize, site: Site) -> Option<MatrixShape> {
        let (_, shapes) = self.layers[layer].linears.iter().find(|(of, _)| *of == site)?;
        <[MatrixShape; 1]>::try_from(&shapes[..]).ok().map(|[shape]| shape)
    }

    /// Memory for passes of up to `rows` tokens with logits for up to `outputs` rows.
    pub fn arena_size(&self, rows: usize, outputs: usize) -> ArenaSize {
        let size = self.size(rows, outputs);
        let of_spans = self.layers.iter().map(|layer| attention::scratch_words(layer.head_dim)).max();
        // The results of micro-batches, of which encoders may want every row.
        let results = if self.shares_keys { rows * padded(self.hidden) } else { 0 };
        let values = size.values + results;
        ArenaSize { values, words: size.words.max(of_spans.unwrap_or(0)), ..size }
    }

    /// Memory for a micro-batch of up to `rows` tokens, without logits. One thread runs it, which needs no scratch for spans.
    pub(crate) fn micro_batch_size(&self, rows: usize) -> ArenaSize {
        self.size(rows, 0)
    }

    fn size(&self, rows: usize, outputs: usize) -> ArenaSize {
        let hidden = padded(self.hidden);
        let AdapterLimits { rank, uses } = self.adapters;
        let linear_words = |shape, rows| {
            scratch_words(shape, rows) + lora_scratch_words(shape, rows, MAX_PARTS * padded(rank), uses)
        };
        // The embedding, and an adapter's update of it.
        let mut values = rows * (hidden + padded(rank));
        let mut words = linear_words(self.head, outputs);
        words = words.max(scratch_words(MatrixShape { cols: rank, rows: self.hidden, ..self.head }, rows));
        let mut choices = 0;
        for layer in &self.layers {
            // The results of norms and linear layers, of attention and of the gate. The last two are the inputs of linear layers,
            // and no other input has memory of its own.
            let own_input = |site| matches!(site, Site::Output | Site::Down);
            let linears = layer.linears.iter().map(|(site, shapes)| {
                let rows = shapes.iter().map(|shape| shape.rows).sum();
                let cols = shapes.first().map_or(0, |shape| shape.cols);
                padded(rows) + if own_input(*site) { padded(cols) } else { 0 }
            });
            let of_every_row = rows * (layer.norms * hidden + linears.sum::<usize>());
            let experts = layer.experts.as_ref();
            values = values.max(of_every_row + experts.map_or(0, |experts| experts.values(rows)));
            choices = choices.max(experts.map_or(0, |experts| experts.top_k));
            words = words.max(experts.map_or(0, |experts| experts.words(rows)));
            let of_experts = experts.into_iter().flat_map(|experts| &experts.shapes);
            for shape in layer.linears.iter().flat_map(|(_, shapes)| shapes).chain(of_experts) {
                words = words.max(linear_words(*shape, rows));
            }
        }
        let logits = outputs * (2 * hidden + padded(self.output));
        ArenaSize { values: rows * hidden + values + logits, words, choices: rows * choices }
    }

    /// The shapes of the keys and values of every layer, in a given format.
    pub fn kv_shapes(&self, format: KvFormat) -> Vec<KvShape> {
        let shape =
            |layer: &LayerFootprint| KvShape { format, kv_heads: layer.kv_heads, head_dim: layer.head_dim };
        let layers = if self.shares_keys { &self.layers[..1] } else { &self.layers[..] };
        layers.iter().map(shape).collect()
    }
}

/// Integer formats keep as bf16 what is small compared with all other weights and enters every result: learned positions, token types
/// and layers on pooled states.
pub(crate) fn unquantised_format(format: Format) -> Format {
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
    let vectors = match norm.kind {
        NormKind::Rms | NormKind::RmsPlusOne => 1,
        NormKind::Layer | NormKind::LayerUnbiased => 2,
    };
    vectors * vector_bytes(norm.width)
}

fn vector_bytes(len: usize) -> u64 {
    (len * size_of::<f32>()) as u64
}

#[cfg(test)]
mod tests {
    use redline_weights::ConfigFile;

    use super::*;
    use crate::arch;

    /// A pass of one row has as many rows of inputs of experts as these are; with wide ones, they need the most memory.
    #[test]
    fn a_row_needs_memory_for_all_of_its_experts() {
        let json = r#"{"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 40, "max_position_embeddings": 512, "hidden_act": "silu",
            "hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 65536, "num_experts": 200, "num_experts_per_tok": 20,
            "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "norm_topk_prob": true, "tie_word_embeddings": false}"#;
        let config = ConfigFile::from_bytes("config.json", json.as_bytes()).unwrap();
        let spec = (arch::find(&config).unwrap().spec)(&config).unwrap();
        let of = |format, rows| {
            let formats = Formats::one(&spec, format);
            Footprint::new(&spec, &formats, |_, _| 0).arena_size(rows, 0)
        };
        let format = Format::W8 { group: 128 };
        let down = MatrixShape { format, rows: 16, cols: 65536, outliers: 0 };
        // Gate and up, hidden values, outputs.
        let chosen = 3 * 65536 + 16;
        for (rows, choices) in [(1, 20), (2, 40), (4, 64), (5, 64)] {
            let size = of(format, rows);
            assert_eq!(size.words, grouped_scratch_words(down, choices), "{rows} rows");
            // The residual stream, two norms, queries, keys and values, attention and its output; router and sum.
            let others = rows * (3 * 16 + 48 + 16 + 16 + 208 + 16);
            assert_eq!(size.values, others + choices * chosen, "{rows} rows");
            // Experts of floats run alone, on copies of their rows.
            assert_eq!(of(Format::F32, rows).values, others + rows * (16 + chosen), "{rows} rows");
        }
    }
}
