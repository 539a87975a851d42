//! From a checkpoint to a model: every tensor is checked against the specification before any is read.

use redline_kernels::op::activation::Activation;
use redline_kernels::op::attention::AttentionShape;
use redline_kernels::op::rope::RopeTable;
use redline_kernels::{Buffer, Format, Matrix};
use redline_weights::{Checkpoint, ConfigFile, StoredDtype};

use crate::ModelError;
use crate::block::attention::Attention;
use crate::block::decoder::{Decoder, Layer};
use crate::block::embedding::Embedding;
use crate::block::linear::Linear;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::model::{Facts, Model};
use crate::spec::{
    AttentionSpec, DecoderSpec, HEAD, LayerSpec, LinearSpec, MlpSpec, NormSpec, Orientation, PositionSpec,
    Role,
};
use crate::step::padded;

/// How to hold what is loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Weight format; `None` takes the checkpoint's (f16 becomes f32).
    pub format: Option<Format>,
}

/// Loads the model that `config` describes from `checkpoint`.
pub fn load(config: &ConfigFile, checkpoint: &Checkpoint, options: LoadOptions) -> Result<Model, ModelError> {
    let architecture = crate::arch::find(config)?;
    let spec = (architecture.spec)(config)?;
    if spec.bidirectional {
        let file = config.file().display().to_string();
        return Err(ModelError::Bidirectional { name: architecture.name, file });
    }
    let source = Source::check(&spec, checkpoint)?;
    let format = options.format.unwrap_or_else(|| source.stored_format(&spec));
    let mut loader = Loader { source, format, values: Vec::new() };
    let tokens = loader.matrix(&spec.embedding, spec.vocab, spec.hidden)?;
    let (positions, rope) = match &spec.positions {
        PositionSpec::Learned(name) => (Some(loader.matrix(name, spec.context, spec.hidden)?), None),
        PositionSpec::Rotary(frequencies) => (None, Some(RopeTable::new(frequencies.clone())?)),
    };
    let layers = spec.layers.iter().enumerate().map(|(i, layer)| loader.layer(i, layer));
    let layers = layers.collect::<Result<Vec<_>, _>>()?;
    let final_norm = loader.norm(&spec.final_norm)?;
    let head = if spec.tied { loader.check_tied(&spec)? } else { Some(loader.head(&spec)?) };
    let parameters = spec.tensors().iter().map(|t| t.shape.iter().product::<usize>() as u64).sum();
    let facts = Facts {
        architecture: architecture.name,
        context: spec.context,
        vocab: spec.vocab,
        hidden: spec.hidden,
        parameters,
        format,
    };
    Ok(Model {
        facts,
        decoder: Decoder { embedding: Embedding { tokens, positions }, layers, final_norm },
        head,
        rope,
    })
}

/// A checkpoint whose tensors are those of the specification, no more and no fewer.
struct Source<'a> {
    checkpoint: &'a Checkpoint,
    prefix: &'static str,
}

impl<'a> Source<'a> {
    fn check(spec: &DecoderSpec, checkpoint: &'a Checkpoint) -> Result<Self, ModelError> {
        let first = format!("{}.weight", spec.embedding);
        let prefixed = checkpoint.info(&spec.prefixed(&first)).is_some();
        let source = Self { checkpoint, prefix: if prefixed { spec.prefix } else { "" } };
        let mut expected = std::collections::HashSet::new();
        for tensor in spec.tensors() {
            let name = source.name(&tensor.name);
            checkpoint.require(&name, &tensor.shape)?;
            expected.insert(name);
        }
        if spec.tied && checkpoint.info(HEAD).is_some() {
            checkpoint.require(HEAD, &[spec.vocab, spec.hidden])?;
            expected.insert(HEAD.to_owned());
        }
        let mut unexpected: Vec<&str> = checkpoint
            .names()
            .filter(|n| !expected.contains(*n) && !spec.ignored.iter().any(|end| n.ends_with(end)))
            .collect();
        if unexpected.is_empty() {
            return Ok(source);
        }
        unexpected.sort_unstable();
        let shown = unexpected.iter().take(4).map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        let names = if unexpected.len() > 4 { format!("{shown}, ...") } else { shown };
        Err(ModelError::UnexpectedTensors {
            count: unexpected.len(),
            names,
            file: checkpoint.origin().display().to_string(),
        })
    }

    fn name(&self, name: &str) -> String {
        if name == HEAD { name.into() } else { format!("{}{name}", self.prefix) }
    }

    /// The format that the checkpoint's matrices are stored in: bf16 if all are.
    fn stored_format(&self, spec: &DecoderSpec) -> Format {
        let weights = spec.tensors().into_iter().filter(|t| t.role == Role::Weight);
        let mut dtypes = weights.map(|t| self.checkpoint.info(&self.name(&t.name)).map(|info| info.dtype));
        if dtypes.all(|d| d == Some(StoredDtype::BF16)) { Format::Bf16 } else { Format::F32 }
    }
}

struct Loader<'a> {
    source: Source<'a>,
    format: Format,
    /// One tensor at a time, as f32.
    values: Vec<f32>,
}

impl Loader<'_> {
    fn read(&mut self, name: &str, len: usize) -> Result<&[f32], ModelError> {
        self.values.resize(len, 0.0);
        self.source.checkpoint.read_f32(&self.source.name(name), &mut self.values)?;
        Ok(&self.values)
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Buffer<f32>, ModelError> {
        Ok(Buffer::from_slice(self.read(name, len)?)?)
    }

    /// `{name}.weight`, `[rows, cols]`.
    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        let mut matrix = Matrix::zeroed(self.format, rows, cols)?;
        matrix.set_rows(0, self.read(&format!("{name}.weight"), rows * cols)?);
        Ok(matrix)
    }

    fn head(&mut self, spec: &DecoderSpec) -> Result<Matrix, ModelError> {
        let mut matrix = Matrix::zeroed(self.format, spec.vocab, spec.hidden)?;
        matrix.set_rows(0, self.read(spec.head, spec.vocab * spec.hidden)?);
        Ok(matrix)
    }

    /// Some tied checkpoints carry the head once more. One that differs from the embedding contradicts the
    /// configuration: the reference would use it with a warning.
    fn check_tied(&mut self, spec: &DecoderSpec) -> Result<Option<Matrix>, ModelError> {
        if self.source.checkpoint.info(HEAD).is_some() {
            let len = spec.vocab * spec.hidden;
            let head = self.read(HEAD, len)?.to_vec();
            if self.read(&format!("{}.weight", spec.embedding), len)? != head {
                let file = self.source.checkpoint.origin().display().to_string();
                let fact = format!("`tie_word_embeddings` is true, but `{HEAD}` differs from the embedding");
                return Err(ModelError::Config { fact, file });
            }
        }
        Ok(None)
    }

    fn linear(&mut self, spec: &LinearSpec, activation: Activation) -> Result<Linear, ModelError> {
        let mut matrix = Matrix::zeroed(self.format, spec.outputs(), spec.inputs)?;
        let mut bias = if spec.has_bias() { Some(Buffer::zeroed(padded(spec.outputs()))?) } else { None };
        let mut first = 0;
        for part in &spec.parts {
            let values = self.read(&format!("{}.weight", part.name), part.outputs * spec.inputs)?;
            match spec.orientation {
                Orientation::OutIn => matrix.set_rows(first, values),
                Orientation::InOut => matrix.set_rows_transposed(first, values),
            }
            if let (true, Some(bias)) = (part.bias, bias.as_mut()) {
                let values = self.read(&format!("{}.bias", part.name), part.outputs)?;
                bias[first..first + part.outputs].copy_from_slice(values);
            }
            first += part.outputs;
        }
        Ok(Linear::new(matrix, bias, activation))
    }

    fn norm(&mut self, spec: &NormSpec) -> Result<Norm, ModelError> {
        let weight = self.vector(&format!("{}.weight", spec.name), spec.width)?;
        let bias = if spec.layer_norm {
            Some(self.vector(&format!("{}.bias", spec.name), spec.width)?)
        } else {
            None
        };
        Ok(Norm { weight, bias, eps: spec.eps })
    }

    fn attention(&mut self, layer: usize, spec: &AttentionSpec) -> Result<Attention, ModelError> {
        let head_norms = match &spec.head_norms {
            Some((q, k)) => Some((self.norm(q)?, self.norm(k)?)),
            None => None,
        };
        Ok(Attention {
            layer,
            shape: AttentionShape { heads: spec.heads, scale: spec.scale, window: spec.window },
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            qkv: self.linear(&spec.qkv, Activation::None)?,
            output: self.linear(&spec.output, Activation::None)?,
            head_norms,
        })
    }

    fn mlp(&mut self, spec: &MlpSpec) -> Result<Mlp, ModelError> {
        Ok(match spec {
            MlpSpec::Gelu { up, down } => Mlp::Gelu {
                up: self.linear(up, Activation::GeluNew)?,
                down: self.linear(down, Activation::None)?,
            },
            MlpSpec::SwiGlu { gate_up, down } => Mlp::SwiGlu {
                gate_up: self.linear(gate_up, Activation::None)?,
                down: self.linear(down, Activation::None)?,
            },
        })
    }

    fn layer(&mut self, index: usize, spec: &LayerSpec) -> Result<Layer, ModelError> {
        Ok(Layer {
            attention_norm: self.norm(&spec.attention_norm)?,
            attention: self.attention(index, &spec.attention)?,
            mlp_norm: self.norm(&spec.mlp_norm)?,
            mlp: self.mlp(&spec.mlp)?,
        })
    }
}
