//! Loads a model from files: every tensor is checked against the specification before any is read.

mod packed;
#[cfg(test)]
mod tests;
pub(crate) mod unpacked;

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::op::attention::AttentionShape;
use redline_kernels::op::rope::RopeTable;
use redline_kernels::{Buffer, Exec, Format, Matrix};
use redline_weights::{Checkpoint, ConfigFile, Infq};

use crate::ModelError;
use crate::activation::ActivationName as Name;
use crate::block::attention::Attention;
use crate::block::decoder::{Decoder, Layer};
use crate::block::embedding::Embedding;
use crate::block::linear::Linear;
use crate::block::mlp::Mlp;
use crate::block::norm::Norm;
use crate::model::{Facts, Model};
use crate::plan::Site;
use crate::spec::{AttentionSpec, DecoderSpec, LayerSpec, LinearSpec, MlpSpec, NormSpec, PositionSpec};
use crate::step::padded;
use crate::tensors::Source;

use packed::Packed;
use unpacked::Unpacked;

/// Options for loading weights.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Weight format; `None`: the checkpoint's (f16 becomes f32).
    pub format: Option<Format>,
    /// Share of every layer's input columns, those with the largest weights, that integer formats keep as bf16, in `[0, 1]`. A
    /// converted directory has chosen them already.
    pub outliers: f64,
}

/// Source of the weights.
#[derive(Clone, Copy)]
pub enum Weights<'a> {
    /// Tensors as they were trained.
    Checkpoint(&'a Checkpoint),
    /// Packed tensors of a converted directory.
    Infq(&'a Infq),
}

/// Loads the model that `config` describes.
pub fn load(
    exec: Exec<'_>,
    config: &ConfigFile,
    weights: Weights<'_>,
    options: LoadOptions,
) -> Result<Model, ModelError> {
    let architecture = crate::arch::find(config)?;
    let spec = (architecture.spec)(config)?;
    let (decoder, head, format) = match weights {
        Weights::Checkpoint(checkpoint) => {
            let source = Source::check(&spec, checkpoint)?;
            let format = options.format.unwrap_or_else(|| source.stored_format(&spec));
            let outliers = if format.is_integer() { options.outliers } else { 0.0 };
            let builder = Builder { spec: &spec, from: Unpacked { exec, source, outliers }, format };
            let pieces = (0..builder.pieces()).map(|i| builder.piece(i)).collect::<Result<_, _>>()?;
            let (decoder, head) = builder.assemble(pieces)?;
            (decoder, head, format)
        }
        Weights::Infq(infq) => {
            let from = Packed::check(&spec, infq, options)?;
            let format = from.format();
            let builder = Builder { spec: &spec, from, format };
            let pieces = packed::in_parallel(exec.team, builder.pieces(), |i| builder.piece(i))?;
            let (decoder, head) = builder.assemble(pieces)?;
            (decoder, head, format)
        }
    };
    Ok(model(&spec, architecture.name, decoder, head, format))
}

/// Assembles a model from its parts.
fn model(
    spec: &DecoderSpec,
    architecture: &'static str,
    decoder: Decoder,
    head: Option<Matrix>,
    format: Format,
) -> Model {
    let rope = match &spec.positions {
        PositionSpec::Learned(_) => None,
        PositionSpec::Rotary(frequencies) => Some(RopeTable::new(frequencies.clone())),
    };
    let parameters = spec.tensors().iter().map(|t| t.shape.iter().product::<usize>() as u64).sum();
    let facts = Facts {
        architecture,
        context: spec.context,
        vocab: spec.vocab,
        hidden: spec.hidden,
        objective: spec.objective,
        parameters,
        format,
    };
    Model { facts, decoder, head, rope }
}

/// Source of a model's matrices and vectors.
trait Blocks {
    /// The weights of all projections of a layer, stacked by rows.
    fn matrix(&self, linear: &LinearSpec, format: Format) -> Result<Matrix, ModelError>;
    /// A tensor of `out.len()` values.
    fn values(&self, name: &str, out: &mut [f32]) -> Result<(), ModelError>;
}

/// A large part of a model; parts are built independently.
enum Piece {
    Tokens(Matrix),
    Head(Option<Matrix>),
    Layer(Box<Layer>),
}

struct Builder<'a, B> {
    spec: &'a DecoderSpec,
    from: B,
    format: Format,
}

impl<B: Blocks> Builder<'_, B> {
    fn pieces(&self) -> usize {
        self.spec.layers.len() + 2
    }

    fn piece(&self, i: usize) -> Result<Piece, ModelError> {
        Ok(match i {
            0 => Piece::Tokens(self.from.matrix(&self.spec.token_table(), self.format)?),
            1 => Piece::Head(match self.spec.head_linear() {
                None => None,
                Some(head) => Some(self.from.matrix(&head, self.format)?),
            }),
            _ => Piece::Layer(Box::new(self.layer(i - 2, &self.spec.layers[i - 2])?)),
        })
    }

    fn assemble(&self, pieces: Vec<Piece>) -> Result<(Decoder, Option<Matrix>), ModelError> {
        let (mut tokens, mut head) = (Matrix::zeroed(self.format, 0, self.spec.hidden)?, None);
        let mut layers = Vec::with_capacity(self.spec.layers.len());
        for piece in pieces {
            match piece {
                Piece::Tokens(matrix) => tokens = matrix,
                Piece::Head(matrix) => head = matrix,
                Piece::Layer(layer) => layers.push(*layer),
            }
        }
        let positions = match self.spec.position_table() {
            None => None,
            Some(table) => Some(self.from.matrix(&table, position_format(self.format))?),
        };
        let final_norm = self.norm(&self.spec.final_norm, Name::FinalNorm)?;
        Ok((Decoder { embedding: Embedding { tokens, positions }, layers, final_norm }, head))
    }

    fn vector(&self, name: &str, len: usize) -> Result<Buffer<f32>, ModelError> {
        let mut values = Buffer::zeroed(len)?;
        self.from.values(name, &mut values)?;
        Ok(values)
    }

    fn linear(
        &self,
        spec: &LinearSpec,
        activation: ActivationFunction,
        site: Site,
    ) -> Result<Linear, ModelError> {
        let matrix = self.from.matrix(spec, self.format)?;
        let mut bias = if spec.has_bias() { Some(Buffer::zeroed(padded(spec.outputs()))?) } else { None };
        let mut first = 0;
        for part in &spec.parts {
            if let (true, Some(bias)) = (part.bias, bias.as_mut()) {
                self.from.values(&part.bias_name(), &mut bias[first..first + part.outputs])?;
            }
            first += part.outputs;
        }
        Ok(Linear::new(matrix, bias, activation, site))
    }

    fn norm(&self, spec: &NormSpec, name: Name) -> Result<Norm, ModelError> {
        let weight = self.vector(&format!("{}.weight", spec.name), spec.width)?;
        let bias = if spec.layer_norm {
            Some(self.vector(&format!("{}.bias", spec.name), spec.width)?)
        } else {
            None
        };
        Ok(Norm { name, weight, bias, eps: spec.eps })
    }

    fn attention(&self, layer: usize, spec: &AttentionSpec) -> Result<Attention, ModelError> {
        let head_norms = match &spec.head_norms {
            Some((q, k)) => Some((self.norm(q, Name::QueryNorm)?, self.norm(k, Name::KeyNorm)?)),
            None => None,
        };
        Ok(Attention {
            layer,
            shape: AttentionShape { heads: spec.heads, scale: spec.scale, window: spec.window },
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            qkv: self.linear(&spec.qkv, ActivationFunction::None, Site::Qkv)?,
            output: self.linear(&spec.output, ActivationFunction::None, Site::Output)?,
            head_norms,
        })
    }

    fn mlp(&self, spec: &MlpSpec) -> Result<Mlp, ModelError> {
        Ok(match spec {
            MlpSpec::Gelu { up, down } => Mlp::Gelu {
                up: self.linear(up, ActivationFunction::GeluNew, Site::Up)?,
                down: self.linear(down, ActivationFunction::None, Site::Down)?,
            },
            MlpSpec::SwiGlu { gate_up, down } => Mlp::SwiGlu {
                gate_up: self.linear(gate_up, ActivationFunction::None, Site::Up)?,
                down: self.linear(down, ActivationFunction::None, Site::Down)?,
            },
        })
    }

    fn layer(&self, index: usize, spec: &LayerSpec) -> Result<Layer, ModelError> {
        Ok(Layer {
            attention_norm: self.norm(&spec.attention_norm, Name::AttentionNorm)?,
            attention: self.attention(index, &spec.attention)?,
            mlp_norm: self.norm(&spec.mlp_norm, Name::MlpNorm)?,
            mlp: self.mlp(&spec.mlp)?,
        })
    }
}

/// Learned positions are added to every token and are small compared with all other weights, so integer formats keep them as
/// bf16.
pub(crate) fn position_format(format: Format) -> Format {
    if format.is_integer() { Format::Bf16 } else { format }
}
