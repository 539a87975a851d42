//! A loaded model: the decoder and its head. `pass.rs` runs batches through them.

use std::fmt::Write as _;
use std::sync::Arc;

use redline_kernels::op::kv::{AttentionMask, KvFormat, PageShape};
use redline_kernels::op::linear::{Epilogue, Variant};
use redline_kernels::{Buffer, Format, Matrix, OutOfMemory};

use crate::activation::{ActivationId, ActivationName};
use crate::adapter_rows::{AdapterLimits, Adapters, HeadUpdates, loras_of};
use crate::block::attention::Attention;
use crate::block::decoder::Decoder;
use crate::block::delta_net::DeltaNet;
use crate::block::dense::Classifier;
use crate::block::ffn::Ffn;
use crate::block::layer::Layer;
use crate::block::mamba2::Mamba2;
use crate::block::mixer::Mixer;
use crate::block::short_conv::ShortConv;
use crate::block::{BlockElement, Loaded, MixerOperations, elements};
use crate::element::dense::DenseLayer;
use crate::element::distance::Distances;
use crate::element::linear::Linear;
use crate::element::norm::Norm;
use crate::element::rotation::Rotation;
use crate::footprint::Footprint;
use crate::kv::SeqId;
use crate::plan::Site;
use crate::spec::{DecoderSpec, LayerSpec, LinearSpec, Objective};
use crate::step::{Act, ArenaSize, Step};

/// Some rows of the head.
#[derive(Debug)]
pub struct LabelRows {
    /// `[labels, hidden]`
    rows: Matrix,
    /// Their updates by adapters.
    updates: Option<HeadUpdates>,
}

/// Facts about a loaded model.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The architecture's name in `config.json`.
    pub architecture: &'static str,
    /// Maximum sequence length in tokens.
    pub context: usize,
    /// Number of rows of the embedding.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// What a row of the logits predicts, and which tokens it sees.
    pub objective: Objective,
    /// Number of parameters, a tied head counted once.
    pub parameters: u64,
    /// Format of the weights.
    pub format: Format,
    /// All formats that matrices have, the most common first: `q4_k+q6_k`.
    pub formats: String,
}

/// A model, ready to run.
#[derive(Debug)]
pub struct Model {
    pub(crate) facts: Facts,
    pub(crate) spec: Arc<DecoderSpec>,
    pub(crate) decoder: Arc<Decoder>,
    /// `[vocab, hidden]`; `None`: the embedding.
    pub(crate) head: Option<Arc<Matrix>>,
    /// What states pass before the head, and the head's bias, padded with zeros to whole strips.
    pub(crate) transform: Option<Arc<(DenseLayer, Buffer<f32>)>>,
    pub(crate) classifier: Option<Arc<Classifier>>,
    pub(crate) rotations: Vec<Rotation>,
    /// What is added to the logits of attention.
    pub(crate) distances: Option<Distances>,
    /// For each layer, the index of its part of a page among those of its kind.
    pub(crate) cache_slots: Vec<usize>,
    pub(crate) footprint: Footprint,
}

/// Floating-point operations of a pass; a multiplication and an addition count as two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationCounts {
    /// For each token.
    pub per_token: f64,
    /// For each pair of a token and a key that it sees.
    pub per_key: f64,
    /// For each row of logits over the vocabulary.
    pub per_output: f64,
}

/// The experts of a model, of which a pass reads those that its rows go to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertCounts {
    /// Bytes of all experts.
    pub bytes: u64,
    /// The share of them that a single row goes to.
    pub share: f64,
}

impl ExpertCounts {
    /// Expected bytes of the experts that a pass over `rows` rows reads, if rows choose independently of each other.
    pub fn read_bytes(self, rows: f64) -> f64 {
        self.bytes as f64 * (1.0 - libm::pow(1.0 - self.share, rows))
    }
}

/// Some tokens of one sequence, to be run in one pass.
#[derive(Clone, Debug)]
pub struct BatchPart {
    /// The sequence. Earlier tokens that its rows see are in the cache, and room for the new ones is reserved.
    pub sequence: SeqId,
    /// Position of the first token.
    pub start: usize,
    /// Number of tokens; parts follow each other in the order of the batch's tokens.
    pub tokens: usize,
    /// Number of tokens at the end that are drafts.
    pub drafts: usize,
    /// The attention mask of the tokens.
    pub attention: AttentionMask,
    /// The adapters of the tokens.
    pub adapters: Adapters,
}

/// Tokens of several sequences, run in one pass.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    tokens: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    pub(crate) types: Vec<u32>,
    parts: Vec<BatchPart>,
}

impl Batch {
    /// Appends tokens of `sequence` from position `start` on. Earlier tokens that they see are stored. They are of type 0.
    pub fn push(
        &mut self,
        sequence: SeqId,
        start: usize,
        tokens: &[u32],
        attention: AttentionMask,
        adapters: Adapters,
    ) {
        self.tokens.extend_from_slice(tokens);
        self.positions.extend((start..start + tokens.len()).map(|p| p as u32));
        self.types.extend(tokens.iter().map(|_| 0));
        self.parts.push(BatchPart { sequence, start, tokens: tokens.len(), drafts: 0, attention, adapters });
    }

    /// Says that the last tokens of the last sequence that was pushed are drafts.
    pub fn set_drafts(&mut self, drafts: usize) {
        if let Some(part) = self.parts.last_mut() {
            part.drafts = drafts;
        }
    }

    /// Gives type 1 to the tokens of the last sequence that was pushed from position `second` on.
    pub fn set_second_text(&mut self, second: usize) {
        let Some(BatchPart { start, tokens, .. }) = self.parts.last() else { return };
        let first = self.types.len() - tokens + second.saturating_sub(*start).min(*tokens);
        self.types[first..].fill(1);
    }

    /// The row of each token in a table of learned positions that counts no tokens `padding`, which have the row `row`. Sequences
    /// are whole.
    pub(crate) fn places(&self, (padding, row): (u32, u32)) -> Vec<u32> {
        let mut places = Vec::with_capacity(self.tokens.len());
        for part in &self.parts {
            let mut next = 0;
            for token in &self.tokens[places.len()..][..part.tokens] {
                places.push(if *token == padding { row } else { next });
                next += u32::from(*token != padding);
            }
        }
        places
    }

    /// Empties the batch.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.types.clear();
        self.parts.clear();
    }

    /// Number of rows of the pass.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens, row by row.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The sequences that the rows belong to, in the order of the rows.
    pub fn parts(&self) -> &[BatchPart] {
        &self.parts
    }
}

impl Model {
    /// Facts.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The head, `[vocab, hidden]`.
    pub fn head(&self) -> &Matrix {
        self.head.as_deref().unwrap_or(&self.decoder.embedding.tokens)
    }

    /// Whether it is an encoder with the head of a model that fills masks.
    pub fn has_mask_head(&self) -> bool {
        self.spec.has_mask_head()
    }

    /// What the model makes of a text, if it was trained to classify.
    pub fn classifier(&self) -> Option<&Arc<Classifier>> {
        self.classifier.as_ref()
    }

    /// Number of token types, if the model has an embedding of them.
    pub fn token_types(&self) -> Option<usize> {
        self.spec.token_types.as_ref().map(|table| table.types)
    }

    /// Lets arenas that are reserved from now on have memory for adapters up to these limits.
    pub fn limit_adapters(&mut self, limits: AdapterLimits) {
        self.footprint = self.footprint.clone().with_adapters(limits);
    }

    /// Every shape that determines how a pass runs, as text: equal for models that differ only in their weights.
    pub fn shapes(&self) -> String {
        let Facts { architecture, vocab, hidden, .. } = self.facts;
        let mut text = format!("{architecture} vocab {vocab} hidden {hidden} layers {}", self.layers());
        for layer in &self.decoder.layers {
            if let Some(Attention { heads, kv_heads, head_dim, window, .. }) = layer.attention() {
                let _ = write!(text, "; {heads}/{kv_heads} x {head_dim} {window:?}");
            }
            if let Some(Mamba2 { shape, taps, .. }) = layer.mixer.mamba2() {
                let _ = write!(text, "; {shape:?} x {taps}");
            }
            let _ = match &layer.mixer {
                Mixer::ShortConv(ShortConv { channels, taps, .. }) => write!(text, "; {channels} x {taps}"),
                Mixer::DeltaNet(DeltaNet { shape, taps, .. }) => write!(text, "; {shape:?} x {taps}"),
                Mixer::Attention(_) | Mixer::Mamba2(_) | Mixer::Parallel(_) | Mixer::None => Ok(()),
            };
            for (_, linear) in layer.linears() {
                for matrix in linear.matrices() {
                    let outliers = matrix.outlier_columns().len();
                    let _ = write!(text, " {}x{}+{outliers}", matrix.rows(), matrix.cols());
                    if matrix.format() != self.facts.format {
                        let _ = write!(text, " {}", matrix.format());
                    }
                }
            }
        }
        text
    }

    /// The rows `ids` of the head, for sequences with these adapters.
    pub fn label_head(&self, ids: &[u32], adapters: &Adapters) -> Result<LabelRows, OutOfMemory> {
        Ok(LabelRows { rows: self.head().gather(ids)?, updates: HeadUpdates::new(adapters, ids)? })
    }

    /// The formats of all matrices at a site, in the order of the forward pass.
    pub fn formats_at(&self, site: Site) -> Vec<Format> {
        let linears = self.decoder.layers.iter().flat_map(Layer::linears).filter(|(of, _)| *of == site);
        linears.flat_map(|(_, linear)| linear.matrices()).map(Matrix::format).collect()
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.decoder.layers.len()
    }

    /// The largest number of keys that a row sees in any layer, itself included; `None` unless every layer with attention has a
    /// window. Layers share page tables, so pages can be given back only if no layer needs them.
    pub fn window(&self) -> Option<usize> {
        let windows = self.spec.layers.iter().filter_map(LayerSpec::attention).map(|it| it.window);
        windows.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// What a page holds, with keys and values in a given format.
    pub fn page_shape(&self, format: KvFormat) -> PageShape {
        self.footprint.page_shape(format)
    }

    /// Bytes of the resident weights.
    pub fn weight_bytes(&self) -> u64 {
        let embedding = &self.decoder.embedding;
        let mut bytes = embedding.tokens.bytes() + embedding.tables().map(Matrix::bytes).sum::<usize>();
        bytes += embedding.norm.iter().chain(&self.decoder.final_norm).map(Norm::bytes).sum::<usize>();
        bytes += self.head.as_ref().map_or(0, |head| head.bytes());
        bytes += self.transform.as_ref().map_or(0, |of_head| of_head.0.bytes() + of_head.1.bytes());
        bytes += self.classifier.as_ref().map_or(0, |classifier| classifier.layers.bytes());
        bytes += embedding.projection.as_ref().map_or(0, DenseLayer::bytes);
        bytes += self.distances.as_ref().map_or(0, Distances::bytes);
        if let Some(inputs) = &self.decoder.layer_inputs {
            bytes += inputs.table.bytes() + inputs.projection.bytes() + inputs.norm.bytes();
        }
        for layer in &self.decoder.layers {
            bytes += elements(layer)
                .into_iter()
                .map(|element| match element {
                    BlockElement::Linear(linear, _) => linear.bytes(),
                    BlockElement::Norm(norm, _) => norm.bytes(),
                    BlockElement::Values(values, _) => values.bytes(),
                })
                .sum::<usize>();
        }
        bytes as u64
    }

    /// Bytes of weights that one decoding step reads: everything but the embedding tables and the experts that a token does not go
    /// to, the head included. Of an encoder, those that a pass over one token reads.
    pub fn bytes_per_token(&self) -> u64 {
        let embedding = &self.decoder.embedding;
        let is_head = self.head.is_none() && self.facts.objective.predicts();
        let tables = embedding.tables().map(Matrix::bytes).sum::<usize>()
            + self.decoder.layer_inputs.as_ref().map_or(0, |inputs| inputs.table.bytes())
            + if is_head { 0 } else { embedding.tokens.bytes() };
        let unused: usize = self.decoder.layers.iter().map(|layer| layer.mlp.unused(Linear::bytes)).sum();
        self.weight_bytes() - (tables + unused) as u64
    }

    /// The experts that routers choose from; `None` without experts.
    pub fn experts(&self) -> Option<ExpertCounts> {
        let sum = |size: fn(&Ffn<Loaded>) -> usize| -> usize {
            self.decoder.layers.iter().map(|layer| size(&layer.mlp)).sum()
        };
        let bytes = sum(|mlp| mlp.experts().map_or(0, |experts| experts.routed(Linear::bytes)));
        let unused = sum(|mlp| mlp.unused(Linear::bytes));
        (bytes > 0).then(|| ExpertCounts { bytes: bytes as u64, share: 1.0 - unused as f64 / bytes as f64 })
    }

    /// The largest number of experts that a layer runs in a pass; 0 without experts.
    pub fn most_experts(&self) -> usize {
        let experts = self.decoder.layers.iter().filter_map(|layer| layer.mlp.experts());
        experts.map(|experts| experts.experts.len()).max().unwrap_or(0)
    }

    /// Floating-point operations of a pass. The work of the last layer with keys and values of its own after these, and that of
    /// layers after it, is counted per row of logits, because it is done for those rows only.
    pub fn operations(&self) -> OperationCounts {
        let (mut weights, mut keys, mut last) = (0usize, 0usize, 0usize);
        for (index, layer) in self.spec.layers.iter().enumerate() {
            let all = layer.linears().map(|(_, linear)| linear.size()).sum::<usize>();
            let MixerOperations { of_every_row, recurrence, per_key } = layer.mixer.operations();
            let used = all - layer.mlp.unused(LinearSpec::size);
            if index > self.decoder.narrowed_at {
                last += used;
                keys += per_key;
                continue;
            }
            weights += last + of_every_row + recurrence;
            last = used - of_every_row;
            keys += per_key;
        }
        weights +=
            self.spec.relative().map_or(0, |it| 4 * it.buckets_per_side * it.hidden * self.spec.layers.len());
        weights += self.spec.layer_inputs.as_ref().map_or(0, |inputs| inputs.projection.linear.size());
        let predicts = self.facts.objective.predicts();
        let head = if predicts { self.facts.vocab * self.facts.hidden } else { 0 };
        OperationCounts {
            per_token: 2.0 * weights as f64,
            per_key: 2.0 * keys as f64,
            per_output: 2.0 * (head + last) as f64,
        }
    }

    /// Memory for passes of up to `rows` tokens with logits for up to `outputs` rows.
    pub fn arena_size(&self, rows: usize, outputs: usize) -> ArenaSize {
        self.footprint.arena_size(rows, outputs)
    }

    /// Reserves memory for sequences of up to `positions` tokens. Rotations are computed by the first pass that reaches a
    /// position, so this is fast whatever the number.
    pub fn reserve_positions(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        self.rotations.iter_mut().try_for_each(|rotation| rotation.table.reserve(positions))
    }

    /// Number of positions whose rotations have been computed: at most the length of the longest sequence so far.
    pub fn computed_positions(&self) -> usize {
        self.rotations.iter().map(|rotation| rotation.table.computed()).max().unwrap_or(0)
    }

    /// The final states of the rows `rows` of `x`, `[rows, hidden]`.
    pub fn states(&self, x: Act, rows: &[usize], s: &mut Step<'_>) -> Act {
        let x = s.gather(x, rows);
        self.normed(x, s)
    }

    fn normed(&self, x: Act, s: &mut Step<'_>) -> Act {
        self.decoder.final_norm.as_ref().map_or(x, |norm| s.norm(x, norm))
    }

    /// Logits of the rows `rows` of `x` over the whole vocabulary, or over labels.
    pub fn logits(
        &self,
        x: Act,
        rows: &[usize],
        labels: Option<&LabelRows>,
        variant: Option<Variant>,
        s: &mut Step<'_>,
    ) -> Act {
        let x = s.gather(x, rows);
        let mut h = self.normed(x, s);
        let bias = self.transform.as_deref().map(|(layer, bias)| {
            h = s.dense(h, layer);
            &bias[..]
        });
        let logits = match labels {
            Some(LabelRows { rows, updates }) => {
                let loras = updates.as_ref().map_or(Vec::new(), |updates| updates.of_rows(h.rows()));
                s.head(h, rows, variant, Epilogue { loras: &loras, ..Epilogue::default() })
            }
            None => {
                let (adapters, mut loras) = (s.adapters_of(rows), Vec::new());
                loras_of(&adapters, (None, Site::Head), &mut loras);
                s.head(h, self.head(), variant, Epilogue { loras: &loras, bias, ..Epilogue::default() })
            }
        };
        s.scale(logits, self.spec.logits.scale);
        if let Some(cap) = self.spec.logits.softcap {
            s.softcap(logits, cap);
        }
        s.show(ActivationName::Logits, logits);
        logits
    }
}

impl Model {
    /// Every activation of a pass with the width of its rows, in the order in which a [`crate::step::Watchers`] receives them.
    pub fn activations(&self) -> Vec<(ActivationId, usize)> {
        use ActivationName as Name;
        let hidden = self.facts.hidden;
        let outside = |name, width| (ActivationId { layer: None, name }, width);
        let projected = self.spec.projection.as_ref().map(|layer| layer.linear.inputs);
        let mut all: Vec<_> =
            projected.map(|width| outside(Name::EmbeddingNorm, width)).into_iter().collect();
        all.push(outside(Name::Embedding, hidden));
        let inputs = self.spec.layer_inputs.as_ref().map(|inputs| inputs.table.inputs);
        all.extend(inputs.map(|width| outside(Name::LayerInputs, width)));
        for (index, layer) in self.spec.layers.iter().enumerate() {
            let id = |name| ActivationId { layer: Some(index), name };
            all.extend(layer.activations().into_iter().map(|(name, width)| (id(name), width)));
        }
        all.extend(self.decoder.final_norm.as_ref().map(|_| outside(Name::FinalNorm, hidden)));
        if self.spec.has_logits() {
            all.push(outside(Name::Logits, self.facts.vocab));
        }
        all
    }
}
