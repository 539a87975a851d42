//! Loads a model from files: every tensor is checked against the specification, and the memory that the model needs is known,
//! before any value is read.

mod packed;
mod relative;
#[cfg(test)]
mod tests;
pub(crate) mod unpacked;

use std::sync::Arc;

use redline_kernels::op::attention::DistanceBias;
use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Buffer, Exec, Format, Matrix, RowsMut};
use redline_weights::{Checkpoint, ConfigFile, Gguf, Infq};

use crate::ModelError;
use crate::activation::ActivationName as Name;
use crate::block::decoder::Decoder;
use crate::block::dense::{Classifier, DenseLayers};
use crate::block::embedding::Embedding;
use crate::block::layer::Layer;
use crate::block::layer_inputs::LayerInputs;
use crate::block::{Described, LinearRole, Loaded, Map};
use crate::element::dense::DenseLayer;
use crate::element::distance::{Distances, learned_bucket, slope};
use crate::element::linear::Linear;
use crate::element::norm::Norm;
use crate::element::rotation::Rotation;
use crate::footprint::{Footprint, unquantised_format};
use crate::formats::Formats;
use crate::model::{Facts, Model};
use crate::packing::STRIP;
use crate::spec::{
    ClassifierSpec, DecoderSpec, DenseLayerSpec, DistanceSpec, LEARNED_BUCKETS, LayerInputsSpec, LinearSpec,
    NormKind, NormSpec, Objective, PartSpec, PositionSpec, PositionTableSpec, Role, TensorSpec,
};
use crate::step::padded;
use crate::tensors::{Source, Tensors as _, outlier_count};

use packed::Packed;
use relative::relative;
use unpacked::Unpacked;

/// Options for loading weights.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Weight format; `None`: the checkpoint's (f16 becomes f32).
    pub format: Option<Format>,
    /// Share of every layer's input columns, those with the largest weights, that integer formats keep as bf16, in `[0, 1]`. A
    /// converted directory has chosen them already.
    pub outliers: f64,
    /// Map the packed weights of a converted directory instead of copying them, where the places of tensors in the file allow
    /// it. The file must not be changed while the model exists ([`redline_kernels::Buffer::over`]).
    pub mmap: bool,
}

/// Source of the weights.
#[derive(Clone, Copy)]
pub enum Weights<'a> {
    /// Tensors as they were trained.
    Checkpoint(&'a Checkpoint),
    /// Tensors of a GGUF file.
    Gguf(&'a Gguf),
    /// Packed tensors of a converted directory.
    Infq(&'a Infq),
}

impl Weights<'_> {
    /// Whether there is a tensor of this name.
    fn contains(&self, name: &str) -> bool {
        match self {
            Self::Checkpoint(checkpoint) => checkpoint.info(name).is_some(),
            Self::Gguf(gguf) => gguf.tensor(name).is_some(),
            Self::Infq(infq) => infq.weight(name).is_some(),
        }
    }
}

/// Loads the model that `config` describes.
pub fn load(
    exec: Exec<'_>,
    config: &ConfigFile,
    weights: Weights<'_>,
    options: LoadOptions,
) -> Result<Model, ModelError> {
    Loader::new(config, weights, options)?.load(exec)
}

/// A model whose tensors were checked against its specification, and whose values were not read yet.
pub struct Loader<'a> {
    architecture: &'static str,
    spec: DecoderSpec,
    weights: Weights<'a>,
    from: Checked<'a>,
    formats: Formats,
    /// Share of every layer's input columns that are kept as bf16.
    outliers: f64,
    footprint: Footprint,
}

/// Source of checked tensors.
enum Checked<'a> {
    Unpacked(Source<'a>),
    Infq(Packed<'a>),
}

impl<'a> Loader<'a> {
    /// Checks names, shapes and formats of all tensors of the model that `config` describes.
    pub fn new(config: &ConfigFile, weights: Weights<'a>, options: LoadOptions) -> Result<Self, ModelError> {
        let (architecture, mut spec) = crate::arch::specification(config)?;
        spec.match_files(|name| weights.contains(name));
        let unpacked = |source: Source<'a>| {
            let formats = options
                .format
                .map_or_else(|| source.stored_formats(&spec), |format| Formats::one(&spec, format));
            (Checked::Unpacked(source), formats)
        };
        let (from, formats) = match weights {
            Weights::Checkpoint(_) | Weights::Gguf(_) if options.mmap => return Err(ModelError::UnpackedMap),
            Weights::Checkpoint(checkpoint) => unpacked(Source::check(&spec, checkpoint)?),
            Weights::Gguf(gguf) => unpacked(Source::of_gguf(&spec, gguf)?),
            Weights::Infq(infq) => {
                let packed = Packed::check(&spec, infq, options)?;
                let formats = packed.formats().clone();
                (Checked::Infq(packed), formats)
            }
        };
        // Stored formats keep no columns apart.
        let outliers = if options.format.is_some_and(Format::is_integer) { options.outliers } else { 0.0 };
        let footprint = Footprint::new(&spec, &formats, |linear, format| match &from {
            Checked::Unpacked(_) if format.is_integer() => outlier_count(linear, outliers),
            Checked::Unpacked(_) => 0,
            Checked::Infq(packed) => packed.columns(linear, format).map_or(0, <[u32]>::len),
        });
        check_runs(&spec, &formats, config)?;
        Ok(Self { architecture: architecture.name, spec, weights, from, formats, outliers, footprint })
    }

    /// A text that is equal only for models whose keys and values are equal for all tokens: it names the specification, the format,
    /// and a checksum over the weights, which are all read for it unless they are converted.
    pub fn identity(&self) -> Result<String, ModelError> {
        let weights = match self.weights {
            Weights::Checkpoint(checkpoint) => checkpoint.digest()?,
            Weights::Gguf(gguf) => gguf.digest()?,
            Weights::Infq(infq) => infq.digest(),
        };
        Ok(format!("{weights} {} {} {:?}", self.formats, self.outliers, self.spec))
    }

    /// The name of the architecture.
    pub fn architecture(&self) -> &'static str {
        self.architecture
    }

    /// The specification of the model.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// The format of the matrix `weight`, a name of the specification.
    pub fn format_of(&self, weight: &str) -> Format {
        let format = self.formats.of(weight);
        let mut unquantised = self.spec.unquantised().into_iter().flat_map(|linear| linear.parts);
        let is_unquantised = unquantised.any(|part| part.weight() == weight);
        if is_unquantised { unquantised_format(format) } else { format }
    }

    /// The values of a tensor, a name of the specification, as they were trained. Matrices of a converted directory have none.
    pub fn values(&self, name: &str, count: usize) -> Result<Vec<f32>, ModelError> {
        let mut values = vec![0.0; count];
        match &self.from {
            Checked::Unpacked(source) => source.read(name, 0, &mut values)?,
            Checked::Infq(packed) => packed.values(name, &mut values)?,
        }
        Ok(values)
    }

    /// How much memory the model needs.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// Format of the most weights.
    pub fn format(&self) -> Format {
        self.formats.common()
    }

    /// What the rows of the model see and give.
    pub fn objective(&self) -> Objective {
        self.spec.objective
    }

    /// Maximum sequence length in tokens.
    pub fn context(&self) -> usize {
        self.spec.context
    }

    /// Reads the weights.
    pub fn load(self, exec: Exec<'_>) -> Result<Model, ModelError> {
        let Self { architecture, spec, from, formats, outliers, footprint, .. } = self;
        let parts = match &from {
            Checked::Unpacked(source) => {
                source.check_tied(&spec)?;
                let from = Unpacked { exec, source, outliers };
                let builder = Builder { spec: &spec, from, formats: &formats };
                let pieces = (0..builder.pieces()).map(|i| builder.piece(i)).collect::<Result<_, _>>()?;
                builder.assemble(exec, pieces)?
            }
            Checked::Infq(packed) => {
                let builder = Builder { spec: &spec, from: packed, formats: &formats };
                let pieces = packed::in_parallel(exec.team, builder.pieces(), |i| builder.piece(i))?;
                builder.assemble(exec, pieces)?
            }
        };
        Ok(model(spec, architecture, &formats, parts, footprint))
    }
}

/// Refuses projections of one input that have different formats, unless each begins with a strip.
fn check_runs(spec: &DecoderSpec, formats: &Formats, config: &ConfigFile) -> Result<(), ModelError> {
    for linear in spec.linears() {
        let runs = formats.runs(&linear);
        if let Some((run, format)) = runs.iter().rev().skip(1).find(|(run, _)| run.outputs() % STRIP != 0) {
            let last = run.parts.last().map(PartSpec::weight).unwrap_or_default();
            let fact = format!(
                "`{last}` is {format} and the next tensor is not, so its outputs must be a multiple of {STRIP}, but there are {}",
                run.outputs()
            );
            return Err(ModelError::Config { fact, file: config.file().display().to_string() });
        }
    }
    Ok(())
}

/// Assembles a model from its parts.
fn model(
    spec: DecoderSpec,
    architecture: &'static str,
    formats: &Formats,
    parts: LoadedWeights,
    footprint: Footprint,
) -> Model {
    let LoadedWeights { decoder, head, transform, classifier, distances } = parts;
    let rotations = spec.rotations().iter().map(Rotation::new).collect();
    let parameters = spec.parameters();
    let facts = Facts {
        architecture,
        context: spec.context,
        vocab: spec.vocab,
        hidden: spec.hidden,
        objective: spec.objective,
        parameters,
        format: formats.common(),
        formats: formats.to_string(),
    };
    let cache_slots = spec.pages(KvFormat::F32).1;
    let (spec, decoder, head) = (Arc::new(spec), Arc::new(decoder), head.map(Arc::new));
    Model {
        facts,
        spec,
        decoder,
        head,
        transform: transform.map(Arc::new),
        classifier: classifier.map(Arc::new),
        rotations,
        distances,
        cache_slots,
        footprint,
    }
}

/// Everything that has weights.
struct LoadedWeights {
    decoder: Decoder,
    head: Option<Matrix>,
    transform: Option<(DenseLayer, Buffer<f32>)>,
    classifier: Option<Classifier>,
    distances: Option<Distances>,
}

/// Source of a model's matrices and vectors.
trait WeightSource {
    /// The weights of all projections of a layer, stacked by rows.
    fn matrix(&self, linear: &LinearSpec, format: Format) -> Result<Matrix, ModelError>;
    /// A tensor of `out.len()` values.
    fn values(&self, name: &str, out: &mut [f32]) -> Result<(), ModelError>;
}

/// A large part of a model; parts are built independently.
enum Piece {
    Tokens(Matrix),
    LayerInputs(Option<Box<LayerInputs>>),
    Head(Option<Matrix>),
    Layer(Box<Layer<Loaded>>),
}

struct Builder<'a, B> {
    spec: &'a DecoderSpec,
    from: B,
    formats: &'a Formats,
}

impl<B: WeightSource> Builder<'_, B> {
    fn pieces(&self) -> usize {
        self.spec.layers.len() + 3
    }

    fn piece(&self, i: usize) -> Result<Piece, ModelError> {
        Ok(match i {
            0 => Piece::Tokens(self.table(&self.spec.token_table())?),
            1 => {
                let inputs = self.spec.layer_inputs.as_ref().map(|it| self.layer_inputs(it)).transpose()?;
                Piece::LayerInputs(inputs.map(Box::new))
            }
            2 => Piece::Head(match self.spec.head_linear() {
                None => None,
                Some(head) => Some(self.table(&head)?),
            }),
            _ => Piece::Layer(Box::new(self.spec.layers[i - 3].map(&mut &*self)?)),
        })
    }

    fn assemble(&self, exec: Exec<'_>, pieces: Vec<Piece>) -> Result<LoadedWeights, ModelError> {
        let (mut tokens, mut head) = (Matrix::zeroed(Format::F32, 0, self.spec.embedding_width())?, None);
        let mut layers = Vec::with_capacity(self.spec.layers.len());
        let mut layer_inputs = None;
        for piece in pieces {
            match piece {
                Piece::Tokens(matrix) => tokens = matrix,
                Piece::LayerInputs(inputs) => layer_inputs = inputs.map(|inputs| *inputs),
                Piece::Head(matrix) => head = matrix,
                Piece::Layer(layer) => layers.push(*layer),
            }
        }
        let spec = self.spec;
        let positions = self.unquantised(spec.position_table())?;
        let positions = match (positions, &spec.positions) {
            (Some(table), PositionSpec::Learned(rows @ PositionTableSpec { unused: 1.., .. })) => {
                Some(table.gather(&rows.kept(spec.context).map(|row| row as u32).collect::<Vec<u32>>())?)
            }
            (positions, _) => positions,
        };
        let norm_name = if spec.projection.is_some() { Name::EmbeddingNorm } else { Name::Embedding };
        let embedding = Embedding {
            tokens,
            scale: spec.embedding_scale,
            types: self.unquantised(spec.type_table())?,
            positions,
            norm: self.opt_norm(spec.embedding_norm.as_ref(), norm_name)?,
            projection: spec.projection.as_ref().map(|layer| self.dense_layer(layer)).transpose()?,
        };
        let final_norm = self.opt_norm(spec.final_norm.as_ref(), Name::FinalNorm)?;
        let (transform, classifier) = (self.transform()?, self.classifier()?);
        let distances = self.distances(exec, &layers)?;
        let decoder =
            Decoder { embedding, layer_inputs, layers, narrowed_at: spec.narrowed_at(), final_norm };
        Ok(LoadedWeights { decoder, head, transform, classifier, distances })
    }

    /// A table that no integer format holds.
    fn unquantised(&self, table: Option<LinearSpec>) -> Result<Option<Matrix>, ModelError> {
        let matrix = |table: LinearSpec| {
            self.from.matrix(&table, unquantised_format(self.formats.of(&table.parts[0].weight())))
        };
        table.map(matrix).transpose()
    }

    /// What makes the per-layer inputs.
    fn layer_inputs(&self, spec: &LayerInputsSpec) -> Result<LayerInputs, ModelError> {
        Ok(LayerInputs {
            table: self.table(&spec.table)?,
            table_scale: spec.table_scale,
            projection: self.dense_layer(&spec.projection)?,
            projection_scale: spec.projection_scale,
            norm: self.read_norm(&spec.norm, Name::LayerInputs)?,
        })
    }

    /// What is added to logits.
    fn distances(&self, exec: Exec<'_>, layers: &[Layer<Loaded>]) -> Result<Option<Distances>, ModelError> {
        let context = self.spec.context;
        Ok(Some(match &self.spec.distances {
            None => return Ok(None),
            Some(DistanceSpec::Learned { name, heads }) => {
                let table = self.vector(&format!("{name}.weight"), LEARNED_BUCKETS * heads)?;
                Distances::Table(DistanceBias::new(*heads, context, |head, distance| {
                    table[learned_bucket(distance) * heads + head]
                })?)
            }
            Some(DistanceSpec::Slopes { heads }) => {
                Distances::Table(DistanceBias::new(*heads, context, |head, distance| {
                    slope(head, *heads) * distance.unsigned_abs() as f32
                })?)
            }
            Some(DistanceSpec::Relative(spec)) => {
                let count = 2 * spec.buckets_per_side;
                let mut embeddings = self.vector(&format!("{}.weight", spec.name), count * spec.hidden)?;
                if let Some(norm) = self.opt_norm(spec.norm.as_ref(), Name::EmbeddingNorm)? {
                    norm.apply_in_place(
                        exec,
                        &mut RowsMut::new(&mut embeddings, count, spec.hidden, spec.hidden),
                    );
                }
                Distances::Relative(relative(exec, spec, context, &embeddings, layers)?)
            }
        }))
    }

    /// The layer before the head, and the head's bias, padded with zeros to whole strips.
    fn transform(&self) -> Result<Option<(DenseLayer, Buffer<f32>)>, ModelError> {
        let Some((layer, bias)) = &self.spec.logits.transform else { return Ok(None) };
        let mut values = Buffer::zeroed(padded(self.spec.vocab))?;
        self.from.values(bias, &mut values[..self.spec.vocab])?;
        Ok(Some((self.dense_layer(layer)?, values)))
    }

    /// The layers on pooled states.
    fn classifier(&self) -> Result<Option<Classifier>, ModelError> {
        let Some(ClassifierSpec { pooling, padding, labels, .. }) = &self.spec.classifier else {
            return Ok(None);
        };
        let layers = self.spec.classifier_layers().iter().map(|layer| self.dense_layer(layer));
        let layers = DenseLayers::new(layers.collect::<Result<_, _>>()?);
        Ok(Some(Classifier { pooling: *pooling, padding: *padding, labels: labels.clone(), layers }))
    }

    /// A layer outside the decoder, which no integer format holds.
    fn dense_layer(&self, spec: &DenseLayerSpec) -> Result<DenseLayer, ModelError> {
        let DenseLayerSpec { linear, activation, norm } = spec;
        let format = unquantised_format(self.formats.of(&linear.parts[0].weight()));
        let (weights, bias) = (self.from.matrix(linear, format)?, self.bias(linear)?);
        let norm = self.opt_norm(norm.as_ref(), Name::FinalNorm)?;
        Ok(DenseLayer { weights, bias, activation: *activation, norm })
    }

    /// A matrix of one tensor.
    fn table(&self, linear: &LinearSpec) -> Result<Matrix, ModelError> {
        self.from.matrix(linear, self.formats.of(&linear.parts[0].weight()))
    }

    fn vector(&self, name: &str, len: usize) -> Result<Buffer<f32>, ModelError> {
        let mut values = Buffer::zeroed(len)?;
        self.from.values(name, &mut values)?;
        Ok(values)
    }

    /// The bias of all projections, padded with zeros to whole strips, if any has one.
    fn bias(&self, spec: &LinearSpec) -> Result<Option<Buffer<f32>>, ModelError> {
        if !spec.has_bias() {
            return Ok(None);
        }
        let mut bias = Buffer::zeroed(padded(spec.outputs()))?;
        let mut first = 0;
        for part in &spec.parts {
            if part.bias {
                self.from.values(&part.bias_name(), &mut bias[first..first + part.outputs])?;
            }
            first += part.outputs;
        }
        Ok(Some(bias))
    }

    fn read_norm(&self, spec: &NormSpec, name: Name) -> Result<Norm, ModelError> {
        let mut weight = Buffer::zeroed(spec.width)?;
        if spec.kind == NormKind::RmsUnweighted {
            weight.fill(1.0);
        } else {
            self.from.values(&format!("{}.{}", spec.name, spec.kind.weight()), &mut weight)?;
        }
        let bias = match spec.kind {
            NormKind::Rms | NormKind::RmsUnweighted => None,
            NormKind::RmsPlusOne => {
                weight.iter_mut().for_each(|weight| *weight += 1.0);
                None
            }
            NormKind::RmsOverRoot => {
                let root = (spec.width as f32).sqrt();
                weight.iter_mut().for_each(|weight| *weight /= root);
                None
            }
            NormKind::Layer => Some(self.vector(&format!("{}.bias", spec.name), spec.width)?),
            NormKind::LayerUnbiased => Some(Buffer::zeroed(spec.width)?),
        };
        Ok(Norm { name, weight, bias, eps: spec.eps })
    }

    fn opt_norm(&self, spec: Option<&NormSpec>, name: Name) -> Result<Option<Norm>, ModelError> {
        spec.map(|spec| self.read_norm(spec, name)).transpose()
    }
}

/// Loads the elements of a layer.
impl<'a, B: WeightSource> Map<'a, Described, Loaded> for &Builder<'_, B> {
    type Error = ModelError;

    fn linear(&mut self, spec: &'a LinearSpec, role: LinearRole) -> Result<Linear, ModelError> {
        let runs = self.formats.runs(spec).into_iter();
        let matrices = runs.map(|(run, format)| self.from.matrix(&run, format)).collect::<Result<_, _>>()?;
        Ok(Linear::new(matrices, self.bias(spec)?, role.activation, role.site))
    }

    fn norm(&mut self, spec: &'a NormSpec, name: Name, _: &'static str) -> Result<Norm, ModelError> {
        self.read_norm(spec, name)
    }

    fn values(&mut self, spec: &'a TensorSpec, _: &'static str) -> Result<Buffer<f32>, ModelError> {
        let mut values = self.vector(&spec.name, spec.shape.iter().product())?;
        match spec.role {
            Role::Taps => {}
            Role::LogDecay => {
                values.iter_mut().for_each(|value| *value = -libm::expf(*value));
                return Ok(values);
            }
            _ => return Ok(values),
        }
        let mut turned = Buffer::zeroed(values.len())?;
        let (channels, taps) = (spec.shape[0], values.len() / spec.shape[0].max(1));
        for (i, value) in values.iter().enumerate() {
            turned[i % taps * channels + i / taps] = *value;
        }
        Ok(turned)
    }
}
