//! How much memory a model needs, computed from its specification before any weight is read.

use redline_kernels::Format;
use redline_kernels::matrix::MatrixShape;
use redline_kernels::op::attention::{self, DistanceBias, DistanceTable};
use redline_kernels::op::kv::{KvFormat, KvShape, PageShape};
use redline_kernels::op::linear::{MAX_PARTS, lora_scratch_words, scratch_words};

use crate::adapter_rows::AdapterLimits;
use crate::block::experts::ExpertsMemory;
use crate::block::{BlockElement, elements};
use crate::element::distance::relative_format;
use crate::formats::Formats;
use crate::plan::Site;
use crate::spec::{DecoderSpec, DenseLayerSpec, DistanceSpec, LinearSpec, NormKind, NormSpec};
use crate::step::{ArenaSize, padded};

/// Maximum bytes of the weights of a layer in batches that are cut into micro-batches, each of which reads them.
const MAX_LAYER_BYTES: u64 = 16 << 20;

/// The sizes of a model's weights, activations, keys and values.
#[derive(Clone, Debug)]
pub struct Footprint {
    hidden: usize,
    /// Number of values of an output row: logits, or a state.
    output: usize,
    /// The matrix after the embeddings, if there is one.
    projection: Option<MatrixShape>,
    /// The matrix before the head, if there is one.
    transform: Option<MatrixShape>,
    /// The matrix that makes inputs of layers of the embedding, if there is one.
    inputs: Option<MatrixShape>,
    /// Whether all layers keep their keys and values in one place.
    reuses_kv_buffer: bool,
    /// Bytes of all weights.
    weights: u64,
    /// The head, or the embedding if the head is tied to it.
    head: MatrixShape,
    layers: Vec<LayerFootprint>,
    /// What a page holds, with keys and values in any format.
    page: PageShape,
    /// The largest adapters that passes need memory for.
    adapters: AdapterLimits,
}

/// The matrices of one layer, and its memory in a pass.
#[derive(Clone, Debug)]
struct LayerFootprint {
    /// Those of linear layers that adapters can change, stacked by rows.
    linears: Vec<(Site, Vec<MatrixShape>)>,
    /// For each row, number of values of activations outside a mixture of experts.
    values: usize,
    /// A mixture of experts.
    experts: Option<ExpertsMemory>,
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
        let dense: Vec<&DenseLayerSpec> = spec.dense_layers().collect();
        let unquantised_shape = |linear: &LinearSpec, rows| {
            let format = unquantised_format(formats.of(&linear.parts[0].weight()));
            MatrixShape { rows, ..shape(linear, format, 0) }
        };
        // Rows of positions that no token has are not kept.
        let kept = spec.context + usize::from(spec.padding().is_some());
        let positions = spec.position_table().map(|table| (table, kept));
        let types = spec.type_table().map(|table| (table.clone(), table.outputs()));
        let of_dense = dense.iter().map(|layer| (layer.linear.clone(), layer.linear.outputs()));
        let unquantised = positions.into_iter().chain(types).chain(of_dense);
        let unquantised = unquantised.map(|(linear, rows)| unquantised_shape(&linear, rows));
        let of_layers = spec.layer_inputs.as_ref();
        let inputs = of_layers.map(|inputs| table(&inputs.table));
        let tables = [Some(tokens), head, inputs].into_iter().flatten();
        let tables = tables.chain(unquantised).map(MatrixShape::bytes);
        let norms = spec.embedding_norm.iter().chain(&spec.final_norm);
        let norms = norms.chain(of_layers.map(|inputs| &inputs.norm));
        let norms = norms.chain(dense.iter().filter_map(|layer| layer.norm.as_ref())).map(norm_bytes);
        let biases = dense.iter().map(|layer| bias_bytes(&layer.linear));
        let biases = biases.chain(spec.logits.transform.iter().map(|_| vector_bytes(padded(spec.vocab))));
        let distances = spec.distances.iter().map(|distances| distance_bytes(distances, spec, formats));
        let mut weights = tables.chain(norms).chain(biases).chain(distances).fold(0, u64::saturating_add);
        for element in spec.layers.iter().flat_map(elements) {
            let bytes = match element {
                BlockElement::Linear(linear, _) => shapes(linear)
                    .into_iter()
                    .map(MatrixShape::bytes)
                    .fold(bias_bytes(linear), u64::saturating_add),
                BlockElement::Norm(norm, _) => norm_bytes(norm),
                BlockElement::Values(values, _) => vector_bytes(values.shape.iter().product()),
            };
            weights = weights.saturating_add(bytes);
        }
        // Words of their products are fewer than those of the layer's queries and keys, whose rows are longer.
        let relative = spec.relative();
        let of_distances =
            relative.map_or(0, |it| it.heads * padded(spec.context) + 2 * padded(2 * it.buckets_per_side));
        let layers = spec.layers.iter().map(|layer| LayerFootprint {
            linears: layer.adaptable().map(|(site, linear)| (site, shapes(linear))).collect(),
            values: layer.values_per_row(padded(spec.hidden)) + of_distances,
            experts: layer.mlp.experts().map(|experts| ExpertsMemory::new(experts, shapes)),
        });
        let layers = layers.collect();
        let adapters = AdapterLimits::default();
        // A row of states instead of one of logits.
        let hidden = spec.hidden;
        let output = if spec.has_logits() { spec.vocab } else { hidden };
        let transform =
            spec.logits.transform.as_ref().map(|(layer, _)| unquantised_shape(&layer.linear, hidden));
        let projection = spec.projection.as_ref().map(|layer| unquantised_shape(&layer.linear, hidden));
        let inputs = of_layers.map(|it| &it.projection.linear);
        let inputs = inputs.map(|linear| unquantised_shape(linear, linear.outputs()));
        let (reuses_kv_buffer, head) = (spec.reuses_kv_buffer(), head.unwrap_or(tokens));
        let page = spec.pages(KvFormat::F32).0;
        Self {
            hidden,
            output,
            projection,
            transform,
            inputs,
            reuses_kv_buffer,
            weights,
            head,
            layers,
            page,
            adapters,
        }
    }

    /// The footprint with memory for adapters up to these limits in every pass.
    pub fn with_adapters(self, adapters: AdapterLimits) -> Self {
        Self { adapters, ..self }
    }

    /// Bytes of the weights in memory.
    pub fn weight_bytes(&self) -> u64 {
        self.weights
    }

    /// Whether no pass needs keys and values of an earlier one, as in encoders.
    pub fn reuses_kv_buffer(&self) -> bool {
        self.reuses_kv_buffer
    }

    /// Whether batches are cut into micro-batches if they have enough rows for the threads: those of encoders with small layers.
    pub fn cuts_batches(&self) -> bool {
        let bytes = |layer: &LayerFootprint| -> u64 {
            layer.linears.iter().flat_map(|(_, shapes)| shapes).map(|shape| shape.bytes()).sum()
        };
        self.reuses_kv_buffer
            && self.layers.first().is_some_and(|it| it.experts.is_none() && bytes(it) <= MAX_LAYER_BYTES)
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
        let of_spans = self.page.keys.iter().map(|keys| attention::scratch_words(keys.head_dim)).max();
        // The results of micro-batches, of which encoders may want every row.
        let results = if self.reuses_kv_buffer { rows * padded(self.hidden) } else { 0 };
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
        // The embedding, and an adapter's update of it, which is as wide.
        let embedding = self.projection.map_or(self.hidden, |projection| projection.cols);
        let mut values = rows * (padded(embedding) + padded(rank));
        let mut words = linear_words(self.head, outputs);
        words = words.max(scratch_words(MatrixShape { cols: rank, rows: embedding, ..self.head }, rows));
        for before_layers in self.projection.iter().chain(&self.inputs) {
            words = words.max(scratch_words(*before_layers, rows));
        }
        // While they are made, twice as many.
        let inputs = rows * self.inputs.map_or(0, |inputs| padded(inputs.rows));
        values = values.max(inputs);
        words = words.max(self.transform.map_or(0, |transform| scratch_words(transform, outputs)));
        let mut choices = 0;
        for layer in &self.layers {
            let experts = layer.experts.as_ref();
            let of_experts = experts.map_or(0, |experts| experts.values(rows));
            values = values.max(rows * layer.values + of_experts);
            choices = choices.max(experts.map_or(0, |experts| experts.top_k));
            words = words.max(experts.map_or(0, |experts| experts.words(rows)));
            let of_experts = experts.into_iter().flat_map(|experts| &experts.shapes);
            for shape in layer.linears.iter().flat_map(|(_, shapes)| shapes).chain(of_experts) {
                words = words.max(linear_words(*shape, rows));
            }
        }
        let states = 2 + usize::from(self.transform.is_some());
        let logits = outputs * (states * hidden + padded(self.output));
        // The residual stream; before it lies the embedding that was projected to it.
        let projected = self.projection.map_or(0, |projection| padded(projection.cols));
        ArenaSize {
            values: rows * (hidden + projected) + inputs + values + logits,
            words,
            choices: rows * choices,
        }
    }

    /// What a page holds, with keys and values in a given format.
    pub fn page_shape(&self, format: KvFormat) -> PageShape {
        let keys = self.page.keys.iter().map(|shape| KvShape { format, ..*shape }).collect();
        PageShape { keys, ..self.page.clone() }
    }
}

/// Integer formats keep as bf16 what is small compared with all other weights and enters every result: learned positions, token types
/// and layers outside the decoder.
pub(crate) fn unquantised_format(format: Format) -> Format {
    if format.is_integer() { Format::Bf16 } else { format }
}

fn shape(linear: &LinearSpec, format: Format, outliers: usize) -> MatrixShape {
    MatrixShape { format, rows: linear.outputs(), cols: linear.inputs, outliers }
}

/// Bytes of what is added to logits by distances.
fn distance_bytes(distances: &DistanceSpec, spec: &DecoderSpec, formats: &Formats) -> u64 {
    let relative = match distances {
        DistanceSpec::Learned { heads, .. } | DistanceSpec::Slopes { heads } => {
            return DistanceBias::bytes_of(*heads, spec.context) as u64;
        }
        DistanceSpec::Relative(relative) => relative,
    };
    let of_layer = |linear: &LinearSpec| {
        let shape = relative.matrix(relative_format(formats.of(&linear.parts[0].weight())));
        (2 * relative.heads as u64).saturating_mul(shape.bytes())
    };
    let layers = spec.layers.iter().filter_map(|layer| layer.linear(Site::Qkv)).map(of_layer);
    layers.fold(DistanceTable::<u32>::bytes_of(1, spec.context) as u64, u64::saturating_add)
}

/// Bytes of a layer's biases, padded to whole strips.
fn bias_bytes(linear: &LinearSpec) -> u64 {
    if linear.has_bias() { vector_bytes(padded(linear.outputs())) } else { 0 }
}

fn norm_bytes(norm: &NormSpec) -> u64 {
    let vectors = match norm.kind {
        NormKind::Rms | NormKind::RmsPlusOne | NormKind::RmsUnweighted | NormKind::RmsOverRoot => 1,
        NormKind::Layer | NormKind::LayerUnbiased => 2,
    };
    vectors * vector_bytes(norm.width)
}

fn vector_bytes(len: usize) -> u64 {
    (len * size_of::<f32>()) as u64
}

#[cfg(test)]
mod tests {
    use redline_kernels::op::linear::grouped_scratch_words;
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
