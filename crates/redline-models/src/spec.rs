//! A decoder or encoder as data: its tensors with names and shapes, and how they are used.
//!
//! An architecture file makes it from a configuration; loading, checking and `synth` iterate over it.

use redline_kernels::op::activation::{ActivationFunction, Gating};
use redline_settings::Pooling;

use crate::plan::Site;

/// A tensor as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name without the family's prefix.
    pub name: String,
    /// Shape, in the file too unless that holds it as a part of another tensor.
    pub shape: Vec<usize>,
    /// Its role, for generating random values.
    pub role: Role,
    /// The tensor of a checkpoint that it is a part of.
    pub stored: Option<StoredSpec>,
}

/// The tensor of a checkpoint that another one is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSpec {
    /// Name without the family's prefix.
    pub name: String,
    /// The part.
    pub slice: Slice,
    /// How the values are stored.
    pub stored_as: StoredAs,
}

/// How a checkpoint stores values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredAs {
    /// As floats.
    Floats,
    /// As four-bit floats in blocks with scales, in two tensors ([`redline_weights::Checkpoint::require_blocks`]).
    Mxfp4,
}

/// The part of a tensor in a file that is a tensor of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The index of the part, and the number of those that are stacked in the first dimension.
    pub stacked: (usize, usize),
    /// The outputs of several parts alternate: the index of this one, and their number.
    pub alternating: (usize, usize),
    /// The dimension of the outputs, without the first one.
    pub axis: usize,
}

/// The role of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A matrix or an embedding.
    Weight,
    /// A norm's scale.
    Scale,
    /// Added to something.
    Bias,
}

/// How a linear layer's weight is oriented in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// `[out, in]` (`nn.Linear`).
    OutIn,
    /// `[in, out]` (GPT-2's `Conv1D`).
    InOut,
}

/// One or more projections of the same input, side by side.
#[derive(Clone, Debug)]
pub struct LinearSpec {
    /// Length of k.
    pub inputs: usize,
    /// Orientation of every part.
    pub orientation: Orientation,
    /// The parts, in the order of their outputs.
    pub parts: Vec<PartSpec>,
}

/// One projection: `{name}.weight` and, if it has one, `{name}.bias`.
#[derive(Clone, Debug)]
pub struct PartSpec {
    /// Name up to `.weight`.
    pub name: String,
    /// Number of outputs.
    pub outputs: usize,
    /// Whether `{name}.bias` exists.
    pub bias: bool,
    /// The tensors of a checkpoint that hold it; `None`: those of its name.
    pub stack: Option<StackSpec>,
}

/// Tensors of a checkpoint that stack the projections of all experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSpec {
    /// Name of the tensor of weights: `[experts, outputs, inputs]`, or `[experts, inputs, outputs]`.
    pub weight: String,
    /// Name of the tensor of biases: `[experts, outputs]`.
    pub bias: String,
    /// The expert, and the number of experts.
    pub expert: (usize, usize),
    /// The outputs of several projections alternate: the index of this one, and their number.
    pub alternating: (usize, usize),
    /// How the weights are stored.
    pub stored_as: StoredAs,
}

/// The kind of a normalisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormKind {
    /// RMSNorm.
    #[default]
    Rms,
    /// RMSNorm whose scale is 1 more than the weight that the checkpoint holds (Gemma).
    RmsPlusOne,
    /// LayerNorm, with bias.
    Layer,
    /// LayerNorm without bias.
    LayerUnbiased,
}

/// A normalisation: `{name}.weight` and for LayerNorm `{name}.bias`.
#[derive(Clone, Debug)]
pub struct NormSpec {
    /// Name up to `.weight`.
    pub name: String,
    /// Number of values.
    pub width: usize,
    /// Added to the mean square or variance.
    pub eps: f32,
    /// What it computes.
    pub kind: NormKind,
}

/// Self-attention of one layer.
#[derive(Clone, Debug)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Factor on the logits.
    pub scale: f32,
    /// A query sees keys at a distance of less than this, which includes itself: before it, and in an encoder also after it.
    pub window: Option<usize>,
    /// Logits are capped to `cap * tanh(logit / cap)`.
    pub softcap: Option<f32>,
    /// The rotation of queries and keys, an index of [`PositionSpec::Rotary`]; `None`: not rotated.
    pub rotation: Option<usize>,
    /// Queries, keys and values: `heads + 2 * kv_heads` heads of outputs.
    pub qkv: LinearSpec,
    /// Back to the hidden width.
    pub output: LinearSpec,
    /// RMSNorm of the queries and of the keys, before rotation: over every head, or if they are as wide as all heads, over these
    /// together.
    pub head_norms: Option<(NormSpec, NormSpec)>,
    /// Name of the tensor of sinks, `[heads]`: one logit for each query head that takes part in its softmax but has no value.
    pub sinks: Option<String>,
}

/// The feed-forward part of one layer: `down(f(up(x)))`, or with a gate such as `down(f(gate(x)) * up(x))` (Shazeer 2020).
#[derive(Clone, Debug)]
pub struct MlpSpec {
    /// f.
    pub activation: ActivationFunction,
    /// What becomes of gate and up, if there is a gate.
    pub gate: Option<Gating>,
    /// To the inner width; with a gate, gate and up, side by side.
    pub up: LinearSpec,
    /// Back.
    pub down: LinearSpec,
}

/// A mixture of experts (Shazeer et al. 2017): the feed-forward part of one layer as the weighted sum of a few of many.
#[derive(Clone, Debug)]
pub struct ExpertsSpec {
    /// One output for each expert, whose softmax is the experts' weights.
    pub router: LinearSpec,
    /// The experts.
    pub experts: Vec<MlpSpec>,
    /// Number of experts that a row goes to: those with the largest weights.
    pub top_k: usize,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalise: bool,
    /// An expert that every row goes to besides.
    pub shared: Option<SharedExpertSpec>,
}

/// An expert that every row goes to.
#[derive(Clone, Debug)]
pub struct SharedExpertSpec {
    /// One output, whose sigmoid is the expert's weight.
    pub gate: LinearSpec,
    /// The expert.
    pub mlp: MlpSpec,
}

/// The feed-forward part of one layer.
#[derive(Clone, Debug)]
pub enum FfnSpec {
    /// The same for every row.
    Dense(MlpSpec),
    /// A mixture of experts.
    Experts(ExpertsSpec),
}

/// The norms of attention or of the feed-forward part: `sum(x + after(f(before(x))))`.
#[derive(Clone, Debug, Default)]
pub struct NormsSpec {
    /// Of the input.
    pub before: Option<NormSpec>,
    /// Of the output, before it is added to the residual stream.
    pub after: Option<NormSpec>,
    /// Of the residual stream, after the addition.
    pub sum: Option<NormSpec>,
}

impl NormsSpec {
    /// A norm of the input only.
    pub fn before(norm: NormSpec) -> Self {
        Self { before: Some(norm), ..Self::default() }
    }

    /// Those that exist.
    pub fn iter(&self) -> impl Iterator<Item = &NormSpec> {
        self.before.iter().chain(&self.after).chain(&self.sum)
    }

    /// Those that exist, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut NormSpec> {
        self.before.iter_mut().chain(&mut self.after).chain(&mut self.sum)
    }
}

/// One layer: `x + residual_scale * attention(x)`, then `x + residual_scale * mlp(x)`, each between its norms.
#[derive(Clone, Debug)]
pub struct LayerSpec {
    /// Attention.
    pub attention: AttentionSpec,
    /// Its norms.
    pub attention_norms: NormsSpec,
    /// The feed-forward part.
    pub mlp: FfnSpec,
    /// Its norms.
    pub mlp_norms: NormsSpec,
    /// Factor on what is added to the residual stream; 1 in most families.
    pub residual_scale: f32,
}

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
    pub layers: Vec<HeadLayerSpec>,
    /// The classes (`id2label`), in the order of the outputs.
    pub labels: Vec<String>,
}

/// One layer on pooled states: `norm(activation(x W^T + b))`.
#[derive(Clone, Debug)]
pub struct HeadLayerSpec {
    /// One projection.
    pub linear: LinearSpec,
    /// Applied to its outputs.
    pub activation: ActivationFunction,
    /// Applied last; a LayerNorm.
    pub norm: Option<NormSpec>,
}

/// A rotation of queries and keys.
#[derive(Clone, Debug)]
pub struct RotarySpec {
    /// Values of a head.
    pub head_dim: usize,
    /// One inverse frequency per pair of dimensions, of the first dimensions of a head; the others are not rotated.
    pub inverse_frequencies: Vec<f64>,
    /// Factor on cosines and sines (the attention factor of YaRN).
    pub factor: f64,
    /// Growth of queries with their position.
    pub query_growth: Option<QueryGrowth>,
}

/// Factor `1 + beta ln(1 + floor(position / context))` on the queries after their rotation (Llama 4, Ministral 3).
#[derive(Clone, Copy, Debug)]
pub struct QueryGrowth {
    /// `llama_4_scaling_beta`.
    pub beta: f64,
    /// `original_max_position_embeddings`, positive.
    pub context: f64,
}

impl QueryGrowth {
    /// The factor at a position, computed in f64 and rounded once.
    pub fn factor(self, position: u32) -> f32 {
        (1.0 + self.beta * libm::log1p((f64::from(position) / self.context).floor())) as f32
    }
}

/// What becomes of the products with the head: `softcap(scale * x)`.
#[derive(Clone, Copy, Debug)]
pub struct LogitSpec {
    /// Factor; 1 in most families.
    pub scale: f32,
    /// Logits are capped to `cap * tanh(logit / cap)`.
    pub softcap: Option<f32>,
}

impl Default for LogitSpec {
    fn default() -> Self {
        Self { scale: 1.0, softcap: None }
    }
}

/// The prediction the model was trained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The next token, from those before it: autoregressive.
    Next,
    /// Masked tokens, from all others on either side: diffusion.
    Masked {
        /// Whether row j of the logits predicts token j + 1, as in the autoregressive model it was trained from, and row 0 also
        /// predicts token 0; otherwise row j predicts token j.
        shifted: bool,
    },
    /// No token: the states of tokens represent a text, or a classifier judges them.
    Encode {
        /// Whether a token sees only those before it, as in the autoregressive model it was trained from; otherwise tokens see each
        /// other on both sides.
        causal: bool,
    },
}

impl Objective {
    /// Whether no row sees later rows, so that a sequence may run in pieces.
    pub fn is_causal(self) -> bool {
        matches!(self, Self::Next | Self::Encode { causal: true })
    }

    /// Whether it predicts tokens, by logits over the vocabulary.
    pub fn predicts(self) -> bool {
        !matches!(self, Self::Encode { .. })
    }
}

/// A whole decoder or encoder.
#[derive(Clone, Debug)]
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
    /// Positions.
    pub positions: PositionSpec,
    /// The layers.
    pub layers: Vec<LayerSpec>,
    /// After the last layer.
    pub final_norm: Option<NormSpec>,
    /// Whether the head is the embedding; otherwise it is a separate tensor. Models that predict no tokens have none, and say `true`.
    pub tied: bool,
    /// Name of the head's tensor: [`HEAD`], or another name, which then has the prefix.
    pub head: &'static str,
    /// What becomes of the products with the head.
    pub logits: LogitSpec,
    /// What a row of the logits predicts, and which tokens it sees.
    pub objective: Objective,
    /// What a model without a head makes of a text, if it was trained to classify.
    pub classifier: Option<ClassifierSpec>,
    /// Beginnings of names that never have the prefix.
    pub outside: &'static [&'static str],
    /// Unused tensors in checkpoints: suffixes of names; an entry that ends in a dot is a prefix.
    pub ignored: &'static [&'static str],
}

/// The usual name of the head's tensor, never prefixed.
pub const HEAD: &str = "lm_head.weight";

impl DecoderSpec {
    /// Every tensor of the checkpoint, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut all = vec![weight(format!("{}.weight", self.embedding), [self.vocab, self.hidden])];
        for table in [self.position_table(), self.type_table()].into_iter().flatten() {
            table.tensors(&mut all);
        }
        if let Some(norm) = &self.embedding_norm {
            norm.tensors(&mut all);
        }
        for layer in &self.layers {
            layer.tensors(&mut all);
        }
        if let Some(norm) = &self.final_norm {
            norm.tensors(&mut all);
        }
        if !self.tied {
            all.push(weight(self.head.into(), [self.vocab, self.hidden]));
        }
        for HeadLayerSpec { linear, norm, .. } in self.classifier_layers() {
            linear.tensors(&mut all);
            if let Some(norm) = norm {
                norm.tensors(&mut all);
            }
        }
        all
    }

    /// Whether a tensor of a checkpoint is unused.
    pub(crate) fn ignores(&self, name: &str) -> bool {
        self.ignored.iter().any(|part| name.ends_with(part) || part.ends_with('.') && name.starts_with(part))
    }

    /// The token embedding as a layer: `[vocab, hidden]`.
    pub fn token_table(&self) -> LinearSpec {
        LinearSpec::plain(self.embedding.clone(), self.hidden, self.vocab)
    }

    /// The learned positions as a layer: `[unused + context, hidden]`.
    pub fn position_table(&self) -> Option<LinearSpec> {
        match &self.positions {
            PositionSpec::Learned(PositionTableSpec { name, unused, .. }) => {
                Some(LinearSpec::plain(name.clone(), self.hidden, unused + self.context))
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

    /// The embedding of token types as a layer: `[types, hidden]`.
    pub fn type_table(&self) -> Option<LinearSpec> {
        let table = self.token_types.as_ref();
        table.map(|TokenTypesSpec { name, types }| LinearSpec::plain(name.clone(), self.hidden, *types))
    }

    /// The layers of the classifier.
    pub fn classifier_layers(&self) -> &[HeadLayerSpec] {
        self.classifier.as_ref().map_or(&[], |classifier| &classifier.layers)
    }

    /// Whether checkpoints hold matrices in blocks of integers with scales.
    pub fn stores_blocks(&self) -> bool {
        let experts = self.layers.iter().filter_map(|layer| layer.mlp.experts());
        let parts = experts.flat_map(ExpertsSpec::linears).flat_map(|(_, linear)| &linear.parts);
        parts.filter_map(|part| part.stack.as_ref()).any(|stack| stack.stored_as != StoredAs::Floats)
    }

    /// Matrices that no integer format holds: tables that are added to every token, and layers on pooled states.
    pub fn unquantised(&self) -> Vec<LinearSpec> {
        let mut all: Vec<LinearSpec> =
            [self.position_table(), self.type_table()].into_iter().flatten().collect();
        all.extend(self.classifier_layers().iter().map(|layer| layer.linear.clone()));
        all
    }

    /// Whether all layers may keep their keys and values in one place, one after the other: no pass needs those of an earlier one.
    pub fn shares_keys(&self) -> bool {
        self.objective == Objective::Encode { causal: false }
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
        for layer in &self.layers {
            all.extend(layer.linears().map(|(_, linear)| linear.clone()));
        }
        all.extend(self.head_linear());
        all
    }

    /// The name with this family's prefix.
    pub fn prefixed(&self, name: &str) -> String {
        Names { prefix: self.prefix, outside: self.outside, legacy: false }.full(name)
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

fn weight(name: String, shape: [usize; 2]) -> TensorSpec {
    TensorSpec { name, shape: shape.to_vec(), role: Role::Weight, stored: None }
}

fn vector(name: String, width: usize, role: Role) -> TensorSpec {
    TensorSpec { name, shape: vec![width], role, stored: None }
}

impl LayerSpec {
    /// The linear layers with their sites, in the order of the forward pass. Those of all experts have the same sites.
    pub fn linears(&self) -> impl Iterator<Item = (Site, &LinearSpec)> {
        let Self { attention, mlp, .. } = self;
        [(Site::Qkv, &attention.qkv), (Site::Output, &attention.output)].into_iter().chain(mlp.linears())
    }

    /// The linear layers that adapters can change: those of every row.
    pub fn adaptable(&self) -> impl Iterator<Item = (Site, &LinearSpec)> {
        let of_every_row = match &self.mlp {
            FfnSpec::Dense(_) => Site::OF_LAYER,
            FfnSpec::Experts(_) => &[Site::Qkv, Site::Output],
        };
        self.linears().filter(|(site, _)| of_every_row.contains(site))
    }

    /// The linear layer at a site that adapters can change; `None` if the layer has none there.
    pub fn linear(&self, site: Site) -> Option<&LinearSpec> {
        self.adaptable().find(|(of, _)| *of == site).map(|(_, linear)| linear)
    }

    /// The linear layer at a site that the layer has.
    pub(crate) fn at(&self, site: Site) -> &LinearSpec {
        self.linear(site).expect("a site of the layer")
    }

    /// The norms of the residual stream's width.
    pub fn norms(&self) -> impl Iterator<Item = &NormSpec> {
        self.attention_norms.iter().chain(self.mlp_norms.iter())
    }

    fn tensors(&self, all: &mut Vec<TensorSpec>) {
        let norm = |norm: &Option<NormSpec>, all: &mut Vec<TensorSpec>| {
            if let Some(norm) = norm {
                norm.tensors(all);
            }
        };
        norm(&self.attention_norms.before, all);
        self.attention.qkv.tensors(all);
        if let Some((q, k)) = &self.attention.head_norms {
            q.tensors(all);
            k.tensors(all);
        }
        if let Some(name) = &self.attention.sinks {
            all.push(vector(name.clone(), self.attention.heads, Role::Bias));
        }
        self.attention.output.tensors(all);
        norm(&self.attention_norms.after, all);
        norm(&self.attention_norms.sum, all);
        norm(&self.mlp_norms.before, all);
        self.mlp.linears().for_each(|(_, linear)| linear.tensors(all));
        norm(&self.mlp_norms.after, all);
        norm(&self.mlp_norms.sum, all);
    }
}

impl FfnSpec {
    /// The linear layers with their sites, in the order of the forward pass.
    pub fn linears(&self) -> impl Iterator<Item = (Site, &LinearSpec)> {
        let dense = self.dense().into_iter().flat_map(MlpSpec::linears);
        dense.chain(self.experts().into_iter().flat_map(ExpertsSpec::linears))
    }

    /// The feed-forward part, unless it is a mixture of experts.
    pub fn dense(&self) -> Option<&MlpSpec> {
        match self {
            Self::Dense(mlp) => Some(mlp),
            Self::Experts(_) => None,
        }
    }

    /// The mixture of experts, if it is one.
    pub fn experts(&self) -> Option<&ExpertsSpec> {
        match self {
            Self::Dense(_) => None,
            Self::Experts(experts) => Some(experts),
        }
    }
}

impl ExpertsSpec {
    fn linears(&self) -> impl Iterator<Item = (Site, &LinearSpec)> {
        let Self { router, experts, shared, .. } = self;
        let shared = shared.iter().flat_map(|SharedExpertSpec { gate, mlp }| {
            [(Site::Router, gate)].into_iter().chain(mlp.linears())
        });
        [(Site::Router, router)].into_iter().chain(experts.iter().flat_map(MlpSpec::linears)).chain(shared)
    }
}

impl MlpSpec {
    fn linears(&self) -> impl Iterator<Item = (Site, &LinearSpec)> {
        [(Site::Up, &self.up), (Site::Down, &self.down)].into_iter()
    }
}

impl NormSpec {
    fn tensors(&self, all: &mut Vec<TensorSpec>) {
        all.push(vector(format!("{}.weight", self.name), self.width, Role::Scale));
        if self.kind == NormKind::Layer {
            all.push(vector(format!("{}.bias", self.name), self.width, Role::Bias));
        }
    }
}

impl PartSpec {
    /// Name of the weight's tensor.
    pub fn weight(&self) -> String {
        format!("{}.weight", self.name)
    }

    /// Name of the bias's tensor.
    pub fn bias_name(&self) -> String {
        format!("{}.bias", self.name)
    }
}

impl StackSpec {
    fn stored(&self, name: &str, axis: usize, stored_as: StoredAs) -> StoredSpec {
        let slice = Slice { stacked: self.expert, alternating: self.alternating, axis };
        StoredSpec { name: name.to_owned(), slice, stored_as }
    }
}

impl Slice {
    /// The shape of the tensor in the file.
    pub fn shape(&self, part: &[usize]) -> Vec<usize> {
        let mut shape = part.to_vec();
        if let Some(outputs) = shape.get_mut(self.axis) {
            *outputs *= self.alternating.1;
        }
        shape.insert(0, self.stacked.1);
        shape
    }
}

impl LinearSpec {
    /// One projection without bias, `nn.Linear`.
    pub fn plain(name: String, inputs: usize, outputs: usize) -> Self {
        Self::of(Orientation::OutIn, inputs, [(name, outputs, false)])
    }

    /// Several projections `(name, outputs, bias)` of the same input.
    pub fn of(
        orientation: Orientation,
        inputs: usize,
        parts: impl IntoIterator<Item = (String, usize, bool)>,
    ) -> Self {
        let part = |(name, outputs, bias)| PartSpec { name, outputs, bias, stack: None };
        Self { inputs, orientation, parts: parts.into_iter().map(part).collect() }
    }

    /// Total number of outputs.
    pub fn outputs(&self) -> usize {
        self.parts.iter().map(|p| p.outputs).sum()
    }

    /// Whether any part has a bias.
    pub fn has_bias(&self) -> bool {
        self.parts.iter().any(|p| p.bias)
    }

    fn tensors(&self, all: &mut Vec<TensorSpec>) {
        for part in &self.parts {
            let (shape, axis) = match self.orientation {
                Orientation::OutIn => ([part.outputs, self.inputs], 0),
                Orientation::InOut => ([self.inputs, part.outputs], 1),
            };
            let stack = part.stack.as_ref();
            let stored = stack.map(|stack| stack.stored(&stack.weight, axis, stack.stored_as));
            all.push(TensorSpec { stored, ..weight(part.weight(), shape) });
            if part.bias {
                let stored = stack.map(|stack| stack.stored(&stack.bias, 0, StoredAs::Floats));
                all.push(TensorSpec { stored, ..vector(part.bias_name(), part.outputs, Role::Bias) });
            }
        }
    }
}
