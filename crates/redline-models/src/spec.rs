//! A decoder as data: its tensors with names and shapes, and how they are used.
//!
//! An architecture file makes it from a configuration; loading, checking and `synth` iterate over it.

use crate::plan::Site;

/// A tensor as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name without the family's prefix.
    pub name: String,
    /// Shape in the file.
    pub shape: Vec<usize>,
    /// Its role, for generating random values.
    pub role: Role,
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
    /// LayerNorm (with bias) instead of RMSNorm.
    pub layer_norm: bool,
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
    /// Number of keys that a query sees, itself included.
    pub window: Option<usize>,
    /// Queries, keys and values: `heads + 2 * kv_heads` heads of outputs.
    pub qkv: LinearSpec,
    /// Back to the hidden width.
    pub output: LinearSpec,
    /// RMSNorm over every head of the queries and of the keys, before rotation.
    pub head_norms: Option<(NormSpec, NormSpec)>,
}

/// The feed-forward part of one layer.
#[derive(Clone, Debug)]
pub enum MlpSpec {
    /// `down(gelu_new(up(x)))`.
    Gelu {
        /// To the inner width.
        up: LinearSpec,
        /// Back.
        down: LinearSpec,
    },
    /// `down(silu(gate(x)) * up(x))`.
    SwiGlu {
        /// Gate and up, side by side.
        gate_up: LinearSpec,
        /// Back.
        down: LinearSpec,
    },
}

/// One layer: `x + attention(norm(x))`, then `x + mlp(norm(x))`.
#[derive(Clone, Debug)]
pub struct LayerSpec {
    /// Before attention.
    pub attention_norm: NormSpec,
    /// Attention.
    pub attention: AttentionSpec,
    /// Before the feed-forward part.
    pub mlp_norm: NormSpec,
    /// The feed-forward part.
    pub mlp: MlpSpec,
}

/// How positions enter the model.
#[derive(Clone, Debug)]
pub enum PositionSpec {
    /// A learned embedding of this name, `[context, hidden]`, added to the token embedding.
    Learned(String),
    /// Rotation of queries and keys; one inverse frequency per pair of dimensions.
    Rotary(Vec<f64>),
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
}

/// A whole decoder.
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
    /// Positions.
    pub positions: PositionSpec,
    /// The layers.
    pub layers: Vec<LayerSpec>,
    /// After the last layer.
    pub final_norm: NormSpec,
    /// Whether the head is the embedding; otherwise it is a separate tensor.
    pub tied: bool,
    /// Name of the head's tensor: [`HEAD`], or another name, which then has the prefix.
    pub head: &'static str,
    /// What a row of the logits predicts, and which tokens it sees.
    pub objective: Objective,
    /// Suffixes of names of unused buffers in old checkpoints.
    pub ignored: &'static [&'static str],
}

/// The usual name of the head's tensor, never prefixed.
pub const HEAD: &str = "lm_head.weight";

impl DecoderSpec {
    /// Every tensor of the checkpoint, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut all = vec![weight(format!("{}.weight", self.embedding), [self.vocab, self.hidden])];
        if let PositionSpec::Learned(name) = &self.positions {
            all.push(weight(format!("{name}.weight"), [self.context, self.hidden]));
        }
        for layer in &self.layers {
            layer.attention_norm.tensors(&mut all);
            layer.attention.qkv.tensors(&mut all);
            if let Some((q, k)) = &layer.attention.head_norms {
                q.tensors(&mut all);
                k.tensors(&mut all);
            }
            layer.attention.output.tensors(&mut all);
            layer.mlp_norm.tensors(&mut all);
            let (first, second) = layer.mlp.parts();
            first.tensors(&mut all);
            second.tensors(&mut all);
        }
        self.final_norm.tensors(&mut all);
        if !self.tied {
            all.push(weight(self.head.into(), [self.vocab, self.hidden]));
        }
        all
    }

    /// The token embedding as a layer: `[vocab, hidden]`.
    pub fn token_table(&self) -> LinearSpec {
        LinearSpec::plain(self.embedding.clone(), self.hidden, self.vocab)
    }

    /// The learned positions as a layer: `[context, hidden]`.
    pub fn position_table(&self) -> Option<LinearSpec> {
        match &self.positions {
            PositionSpec::Learned(name) => Some(LinearSpec::plain(name.clone(), self.hidden, self.context)),
            PositionSpec::Rotary(_) => None,
        }
    }

    /// The head, unless it is the embedding.
    pub fn head_linear(&self) -> Option<LinearSpec> {
        let name = self.head.strip_suffix(".weight").unwrap_or(self.head);
        (!self.tied).then(|| LinearSpec::plain(name.to_owned(), self.hidden, self.vocab))
    }

    /// All matrices: the token embedding, the layers, the head.
    pub fn linears(&self) -> Vec<LinearSpec> {
        let mut all = vec![self.token_table()];
        for layer in &self.layers {
            let (first, second) = layer.mlp.parts();
            let linears = [&layer.attention.qkv, &layer.attention.output, first, second];
            all.extend(linears.into_iter().cloned());
        }
        all.extend(self.head_linear());
        all
    }

    /// The name with this family's prefix.
    pub fn prefixed(&self, name: &str) -> String {
        Names { prefix: self.prefix }.full(name)
    }

    /// Determines whether the files use the family's prefix; `present` says whether they contain a name.
    pub fn names(&self, present: impl Fn(&str) -> bool) -> Names {
        let embedding = self.prefixed(&format!("{}.weight", self.embedding));
        Names { prefix: if present(&embedding) { self.prefix } else { "" } }
    }
}

/// Maps names of a specification to names in files.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    prefix: &'static str,
}

impl Names {
    /// The name in files.
    pub fn full(self, name: &str) -> String {
        if name == HEAD { name.into() } else { format!("{}{name}", self.prefix) }
    }
}

fn weight(name: String, shape: [usize; 2]) -> TensorSpec {
    TensorSpec { name, shape: shape.to_vec(), role: Role::Weight }
}

impl LayerSpec {
    /// The linear layer at a site of the layer.
    pub fn linear(&self, site: Site) -> &LinearSpec {
        let (first, second) = self.mlp.parts();
        match site {
            Site::Qkv => &self.attention.qkv,
            Site::Output => &self.attention.output,
            Site::Up => first,
            Site::Down => second,
            Site::Head => unreachable!("the head belongs to no layer"),
        }
    }
}

impl MlpSpec {
    /// The two linear layers.
    pub fn parts(&self) -> (&LinearSpec, &LinearSpec) {
        match self {
            Self::Gelu { up, down } => (up, down),
            Self::SwiGlu { gate_up, down } => (gate_up, down),
        }
    }
}

impl NormSpec {
    fn tensors(&self, all: &mut Vec<TensorSpec>) {
        all.push(TensorSpec {
            name: format!("{}.weight", self.name),
            shape: vec![self.width],
            role: Role::Scale,
        });
        if self.layer_norm {
            all.push(TensorSpec {
                name: format!("{}.bias", self.name),
                shape: vec![self.width],
                role: Role::Bias,
            });
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
        let parts = parts.into_iter().map(|(name, outputs, bias)| PartSpec { name, outputs, bias }).collect();
        Self { inputs, orientation, parts }
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
            all.push(weight(
                format!("{}.weight", part.name),
                match self.orientation {
                    Orientation::OutIn => [part.outputs, self.inputs],
                    Orientation::InOut => [self.inputs, part.outputs],
                },
            ));
            if part.bias {
                let name = format!("{}.bias", part.name);
                all.push(TensorSpec { name, shape: vec![part.outputs], role: Role::Bias });
            }
        }
    }
}
