//! A decoder or encoder as data: its tensors with names and shapes, and how they are used.
//!
//! An architecture file makes it from a configuration; loading, checking and `synth` iterate over it.

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::op::kv::{KvFormat, PageShape};
use redline_settings::Pooling;

pub use crate::block::attention::{AttentionSpec, KeyValues};
pub use crate::block::delta_net::DeltaNetSpec;
pub use crate::block::dense_and_experts::DenseAndExpertsSpec;
pub use crate::block::experts::{ExpertsSpec, SharedExpertSpec, WeightingSpec};
pub use crate::block::ffn::FfnSpec;
pub use crate::block::layer::{LayerSpec, NormsSpec, Residual};
pub use crate::block::layer_end::{LayerEndSpec, PerLayerInputGateSpec};
pub use crate::block::mamba2::Mamba2Spec;
pub use crate::block::mixer::MixerSpec;
pub use crate::block::mlp::MlpSpec;
pub use crate::block::parallel::ParallelSpec;
pub use crate::block::short_conv::ShortConvSpec;
use crate::block::{BlockElement, elements};
pub use crate::element::distance::{DistanceSpec, LEARNED_BUCKETS, RelativeSpec};
pub use crate::element::linear::{LinearSpec, Orientation, PartSpec, StackSpec};
pub use crate::element::norm::{NormKind, NormSpec};
pub use crate::element::rotation::{QueryGrowth, RotarySpec, RotatedPairs};
pub use crate::element::tensor::{Role, Slice, StoredAs, StoredSpec, TensorSpec};
use crate::plan::Site;

/// How positions enter the model.
#[derive(Clone, Debug)]
pub enum PositionSpec {
    /// A learned embedding, added to the token embedding.
    Learned(PositionTableSpec),
    /// Rotations of queries and keys, which the layers name by their index.
    Rotary(Vec<RotarySpec>),
}

/// A learned embedding of positions, `[unused + context, hidden]`.
#[derive(Clone, Debug)]
pub struct PositionTableSpec {
    /// Name up to `.weight`.
    pub name: String,
    /// Number of rows before that of position 0 (RoBERTa: that of the padding token, and those before it).
    pub unused: usize,
}

impl PositionTableSpec {
    /// The row of the padding token, which has its id: the last one before that of position 0.
    fn padding(&self) -> Option<usize> {
        self.unused.checked_sub(1)
    }

    /// The rows that tokens have, in the order in which they are kept: those of positions, of `context`, and that of the padding token.
    pub(crate) fn kept(&self, context: usize) -> impl Iterator<Item = usize> {
        (self.unused..self.unused + context).chain(self.padding())
    }
}

/// Per-layer inputs: `(norm(factor * projection(embedding)) + factor * table[token]) / sqrt(2)` (Gemma 4).
#[derive(Clone, Debug)]
pub struct LayerInputsSpec {
    /// `[vocab, layers * width]`
    pub table: LinearSpec,
    /// Factor on it.
    pub table_scale: f32,
    /// Of the embedding, with its factor: `[layers * width, hidden]`.
    pub projection: DenseLayerSpec,
    /// Factor on it.
    pub projection_scale: f32,
    /// Of the projected input of each layer.
    pub norm: NormSpec,
}

/// A learned embedding of which text of a pair a token belongs to, `[types, hidden]`, added to the token embedding (BERT).
#[derive(Clone, Debug)]
pub struct TokenTypesSpec {
    /// Name up to `.weight`.
    pub name: String,
    /// Number of rows: 2, or 1 if the texts of a pair are not told apart.
    pub types: usize,
}

/// What a model without a head makes of a text: a number for each class.
#[derive(Clone, Debug)]
pub struct ClassifierSpec {
    /// How states become the input of the first layer.
    pub pooling: Pooling,
    /// The id that the last token of [`Pooling::Last`] does not have (`pad_token_id`).
    pub padding: Option<u32>,
    /// The layers; the last one has an output for each class.
    pub layers: Vec<DenseLayerSpec>,
    /// The classes (`id2label`), in the order of the outputs.
    pub labels: Vec<String>,
}

/// One layer outside the decoder: `norm(activation(x W^T + b))`.
#[derive(Clone, Debug)]
pub struct DenseLayerSpec {
    /// One projection.
    pub linear: LinearSpec,
    /// Applied to its outputs.
    pub activation: ActivationFunction,
    /// Applied last; a LayerNorm.
    pub norm: Option<NormSpec>,
}

/// How logits are made of states: `softcap(scale * (transform(x) E^T + bias))`, where E is the head.
#[derive(Clone, Debug)]
pub struct LogitSpec {
    /// What states pass before the head, and the name of the head's bias `[vocab]`: encoders that were trained to fill masks.
    pub transform: Option<(DenseLayerSpec, String)>,
    /// Factor; 1 in most families.
    pub scale: f32,
    /// Logits are capped to `cap * tanh(logit / cap)`.
    pub softcap: Option<f32>,
}

impl Default for LogitSpec {
    fn default() -> Self {
        Self { transform: None, scale: 1.0, softcap: None }
    }
}

/// What the rows of a model see and give: three facts that do not depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objective {
    /// Which rows of its sequence a row sees.
    pub mask: Mask,
    /// What is made of the rows after the last layer.
    pub output: Output,
    /// Row j of the logits predicts token `j + shift`; with 1, row 0 of a model that fills masks also predicts token 0.
    pub shift: usize,
}

/// Which rows of its sequence a row sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// Those before it, so that a sequence may run in pieces.
    Causal,
    /// All.
    Bidirectional,
}

/// What is made of the rows after the last layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Logits over the vocabulary, which predict tokens.
    Tokens,
    /// States, which represent a text or which a classifier judges.
    States,
}

impl Objective {
    /// The next token, from those before it: autoregressive.
    pub const NEXT: Self = Self { mask: Mask::Causal, output: Output::Tokens, shift: 1 };
    /// Masked tokens, from all others on either side: diffusion.
    pub const MASKED: Self = Self { mask: Mask::Bidirectional, output: Output::Tokens, shift: 0 };
    /// No token: an encoder.
    pub const STATES: Self = Self { mask: Mask::Bidirectional, output: Output::States, shift: 0 };

    /// Whether no row sees later rows, so that a sequence may run in pieces.
    pub fn is_causal(self) -> bool {
        self.mask == Mask::Causal
    }

    /// Whether it predicts tokens, by logits over the vocabulary.
    pub fn predicts(self) -> bool {
        self.output == Output::Tokens
    }

    /// Whether it predicts the tokens of masks.
    pub fn fills_masks(self) -> bool {
        self.predicts() && !self.is_causal()
    }
}

/// A whole decoder or encoder.
#[derive(Debug)]
pub struct DecoderSpec {
    /// Prefix that checkpoints of this family may put before every name but the head's, such as `model.`.
    pub prefix: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Maximum sequence length in tokens.
    pub context: usize,
    /// Name of the token embedding up to `.weight`.
    pub embedding: String,
    /// Factor on the token embedding; 1 in most families.
    pub embedding_scale: f32,
    /// Which text of a pair a token belongs to.
    pub token_types: Option<TokenTypesSpec>,
    /// Of the sum of all embeddings.
    pub embedding_norm: Option<NormSpec>,
    /// From the width of the embeddings to that of the residual stream, if they differ (ELECTRA).
    pub projection: Option<DenseLayerSpec>,
    /// Per-layer inputs.
    pub layer_inputs: Option<LayerInputsSpec>,
    /// Positions.
    pub positions: PositionSpec,
    /// What is added to the logits of attention in every layer, by how far keys are from their query.
    pub distances: Option<DistanceSpec>,
    /// The layers.
    pub layers: Vec<LayerSpec>,
    /// After the last layer.
    pub final_norm: Option<NormSpec>,
    /// Whether the head is the embedding; otherwise it is a separate tensor. Models that predict no tokens have none, and say `true`.
    pub tied: bool,
    /// Name of the head's tensor: [`HEAD`], or another name, which then has the prefix.
    pub head: &'static str,
    /// How logits are made of states.
    pub logits: LogitSpec,
    /// What a row of the logits predicts, and which tokens it sees.
    pub objective: Objective,
    /// What a model without a head makes of a text, if it was trained to classify.
    pub classifier: Option<ClassifierSpec>,
    /// Beginnings of names that never have the prefix.
    pub outside: &'static [&'static str],
    /// Unused tensors in checkpoints: suffixes of names; an entry that ends in a dot is a prefix.
    pub ignored: &'static [&'static str],
    /// Names, without the prefix, of tensors of layers that some checkpoints hold and nothing uses.
    pub unread: Vec<String>,
    /// Whether weights were multiplied by factors of the model, which its adapters would need too (Falcon-H1 in GGUF files).
    pub holds_factors: bool,
}

/// What most models have: no layers or sizes yet, and nothing that only some families have. The head is the embedding.
impl Default for DecoderSpec {
    fn default() -> Self {
        Self {
            prefix: "",
            hidden: 0,
            vocab: 0,
            context: 0,
            embedding: String::new(),
            embedding_scale: 1.0,
            token_types: None,
            embedding_norm: None,
            projection: None,
            layer_inputs: None,
            positions: PositionSpec::Rotary(Vec::new()),
            distances: None,
            layers: Vec::new(),
            final_norm: None,
            tied: true,
            head: HEAD,
            logits: LogitSpec::default(),
            objective: Objective::NEXT,
            classifier: None,
            outside: &[],
            ignored: &[],
            unread: Vec::new(),
            holds_factors: false,
        }
    }
}

/// The usual name of the head's tensor, never prefixed.
pub const HEAD: &str = "lm_head.weight";

impl DecoderSpec {
    /// Every tensor of the checkpoint, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut all = self.token_table().tensors();
        for table in [self.position_table(), self.type_table()].into_iter().flatten() {
            all.extend(table.tensors());
        }
        all.extend(self.embedding_norm.iter().flat_map(NormSpec::tensors));
        all.extend(self.distances.iter().flat_map(DistanceSpec::tensors));
        if let Some(inputs) = &self.layer_inputs {
            all.extend(inputs.table.tensors());
            all.extend(inputs.norm.tensors());
        }
        for element in self.layers.iter().flat_map(elements) {
            match element {
                BlockElement::Linear(linear, _) => all.extend(linear.tensors()),
                BlockElement::Norm(norm, _) => all.extend(norm.tensors()),
                BlockElement::Values(values, _) => all.push(values.clone()),
            }
        }
        all.extend(self.final_norm.iter().flat_map(NormSpec::tensors));
        if !self.tied {
            all.push(TensorSpec::new(self.head.into(), [self.vocab, self.hidden], Role::Weight));
        }
        for DenseLayerSpec { linear, norm, .. } in self.dense_layers() {
            all.extend(linear.tensors());
            all.extend(norm.iter().flat_map(NormSpec::tensors));
        }
        if let Some((_, bias)) = &self.logits.transform {
            all.push(TensorSpec::new(bias.clone(), [self.vocab], Role::Bias));
        }
        all
    }

    /// Number of parameters, a tied head counted once.
    pub fn parameters(&self) -> u64 {
        self.tensors().iter().map(|tensor| tensor.shape.iter().product::<usize>() as u64).sum()
    }

    /// Whether a tensor of a checkpoint is unused.
    pub(crate) fn ignores(&self, name: &str) -> bool {
        self.ignored.iter().any(|part| name.ends_with(part) || part.ends_with('.') && name.starts_with(part))
            || self.unread.iter().any(|unread| name.ends_with(unread.as_str()))
    }

    /// Width of the embeddings: that of the residual stream, unless a projection follows them.
    pub fn embedding_width(&self) -> usize {
        self.projection.as_ref().map_or(self.hidden, |layer| layer.linear.inputs)
    }

    /// The token embedding as a layer: `[vocab, width]`.
    pub fn token_table(&self) -> LinearSpec {
        LinearSpec::plain(self.embedding.clone(), self.embedding_width(), self.vocab)
    }

    /// The learned positions as a layer: `[unused + context, width]`.
    pub fn position_table(&self) -> Option<LinearSpec> {
        match &self.positions {
            PositionSpec::Learned(PositionTableSpec { name, unused, .. }) => {
                Some(LinearSpec::plain(name.clone(), self.embedding_width(), unused + self.context))
            }
            PositionSpec::Rotary(_) => None,
        }
    }

    /// The id of the padding token and the row that its tokens have in the table of positions as it is kept, if others do not count them.
    pub(crate) fn padding(&self) -> Option<(u32, u32)> {
        match &self.positions {
            PositionSpec::Learned(table) => table.padding().map(|id| (id as u32, self.context as u32)),
            PositionSpec::Rotary(_) => None,
        }
    }

    /// The embedding of token types as a layer: `[types, width]`.
    pub fn type_table(&self) -> Option<LinearSpec> {
        let table = self.token_types.as_ref();
        table.map(|TokenTypesSpec { name, types }| {
            LinearSpec::plain(name.clone(), self.embedding_width(), *types)
        })
    }

    /// The layers of the classifier.
    pub fn classifier_layers(&self) -> &[DenseLayerSpec] {
        self.classifier.as_ref().map_or(&[], |classifier| &classifier.layers)
    }

    /// The layers outside the decoder: those after the embeddings, those of the classifier, and that before the head.
    pub(crate) fn dense_layers(&self) -> impl Iterator<Item = &DenseLayerSpec> {
        let before_head = self.logits.transform.as_ref().map(|(layer, _)| layer);
        let of_inputs = self.layer_inputs.as_ref().map(|inputs| &inputs.projection);
        self.projection.iter().chain(of_inputs).chain(self.classifier_layers()).chain(before_head)
    }

    /// Whether it is an encoder with the head of a model that fills masks.
    pub fn has_mask_head(&self) -> bool {
        self.logits.transform.is_some()
    }

    /// Whether logits over the vocabulary can be made of its states.
    pub fn has_logits(&self) -> bool {
        self.objective.predicts() || self.has_mask_head()
    }

    /// Whether checkpoints hold matrices in blocks of integers with scales.
    pub fn stores_blocks(&self) -> bool {
        let parts = self.layers.iter().flat_map(LayerSpec::linears).flat_map(|(_, linear)| &linear.parts);
        parts.filter_map(|part| part.stack.as_ref()).any(|stack| stack.stored_as != StoredAs::Floats)
    }

    /// Matrices that no integer format holds: tables that are added to every token, and layers outside the decoder.
    pub fn unquantised(&self) -> Vec<LinearSpec> {
        let mut all: Vec<LinearSpec> =
            [self.position_table(), self.type_table()].into_iter().flatten().collect();
        all.extend(self.dense_layers().map(|layer| layer.linear.clone()));
        all
    }

    /// Whether all layers may keep their keys and values in one place, one after the other: no pass needs those of an earlier one.
    pub fn reuses_kv_buffer(&self) -> bool {
        self.objective == Objective::STATES
    }

    /// What pages hold of sequences, with keys and values in a format; and for each layer the index of its part among those of its kind.
    pub(crate) fn pages(&self, format: KvFormat) -> (PageShape, Vec<usize>) {
        let mut page = PageShape::default();
        let mut of_layers: Vec<usize> = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let has_place = self.reuses_kv_buffer() && !page.keys.is_empty();
            of_layers.push(if has_place { 0 } else { layer.mixer.add_to(&mut page, format) });
        }
        (page, of_layers)
    }

    /// The last layer in which rows need anything of each other. After that, only the wanted rows go on: later layers read what it and
    /// those before it stored.
    pub(crate) fn narrowed_at(&self) -> usize {
        let mixes = self.layers.iter().rposition(|layer| layer.mixer.mixes_rows());
        mixes.unwrap_or(0)
    }

    /// Relative position embeddings, if there are some.
    pub(crate) fn relative(&self) -> Option<&RelativeSpec> {
        self.distances.as_ref().and_then(DistanceSpec::relative)
    }

    /// Whether loading computes with a projection of a layer, by its index: an adapter of it would come too late.
    pub(crate) fn is_used_at_load(&self, site: Site, part: usize) -> bool {
        // Queries and keys of relative position embeddings.
        self.relative().is_some() && site == Site::Qkv && part < 2
    }

    /// The attention of every layer that has it, to change.
    pub fn attentions_mut(&mut self) -> impl Iterator<Item = &mut AttentionSpec> {
        self.layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut())
    }

    /// The rotations; none with learned positions.
    pub fn rotations(&self) -> &[RotarySpec] {
        match &self.positions {
            PositionSpec::Learned(_) => &[],
            PositionSpec::Rotary(rotations) => rotations,
        }
    }

    /// The head, unless it is the embedding.
    pub fn head_linear(&self) -> Option<LinearSpec> {
        let name = self.head.strip_suffix(".weight").unwrap_or(self.head);
        (!self.tied).then(|| LinearSpec::plain(name.to_owned(), self.hidden, self.vocab))
    }

    /// All matrices but [`DecoderSpec::unquantised`] ones: the token embedding, the layers, the head.
    pub fn linears(&self) -> Vec<LinearSpec> {
        let mut all = vec![self.token_table()];
        all.extend(self.layer_inputs.as_ref().map(|inputs| inputs.table.clone()));
        for layer in &self.layers {
            all.extend(layer.linears().map(|(_, linear)| linear.clone()));
        }
        all.extend(self.head_linear());
        all
    }

    /// The name with this family's prefix.
    pub fn prefixed(&self, name: &str) -> String {
        self.with_prefix(self.prefix, name)
    }

    /// The name with another prefix.
    pub(crate) fn with_prefix(&self, prefix: &'static str, name: &str) -> String {
        Names { prefix, outside: self.outside, legacy: false }.full(name)
    }

    /// Leaves out what makes logits if the files do not have it: encoders that are saved without their head keep the name of a model
    /// that fills masks. `present` says whether the files contain a name.
    fn leave_out_logits(&mut self, present: impl Fn(&str) -> bool) {
        let names = self.names(&present);
        let is_absent =
            |(layer, _): &mut (DenseLayerSpec, _)| !present(&names.full(&layer.linear.parts[0].weight()));
        self.logits.transform.take_if(is_absent);
    }

    /// Chooses among the forms that checkpoints of a family may have the one of these files; `present` says whether they contain a name.
    pub(crate) fn match_files(&mut self, present: impl Fn(&str) -> bool) {
        self.leave_out_logits(&present);
        let names = self.names(&present);
        for layer in &mut self.layers {
            if let FfnSpec::Experts(experts) = &mut layer.mlp {
                experts.stack_if(|name| present(&names.full(name)));
            }
        }
    }

    /// Determines whether the files use the family's prefix, and the old names of norms; `present` says whether they contain a name.
    pub fn names(&self, present: impl Fn(&str) -> bool) -> Names {
        let embedding = self.prefixed(&format!("{}.weight", self.embedding));
        let prefix = if present(&embedding) { self.prefix } else { "" };
        let names = Names { prefix, outside: self.outside, legacy: true };
        let norm = self.embedding_norm.as_ref().map(|norm| names.full(&format!("{}.weight", norm.name)));
        Names { legacy: norm.is_some_and(|norm| present(&norm)), ..names }
    }
}

/// Maps names of a specification to names in files.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    prefix: &'static str,
    outside: &'static [&'static str],
    /// Whether norms are named as in TensorFlow (old checkpoints of BERT).
    legacy: bool,
}

/// Ends of names of norms, and those in old checkpoints of BERT, which transformers renames too.
const LEGACY: [(&str, &str); 2] =
    [("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")];

impl Names {
    /// The name in files.
    pub fn full(self, name: &str) -> String {
        let is_outside = self.outside.iter().any(|start| name.starts_with(start));
        let prefix = if is_outside { "" } else { self.prefix };
        let mut legacy = LEGACY.iter().filter(|_| self.legacy);
        match legacy.find_map(|(end, old)| Some((name.strip_suffix(end)?, old))) {
            Some((start, old)) => format!("{prefix}{start}{old}"),
            None => format!("{prefix}{name}"),
        }
    }
}
