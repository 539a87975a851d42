//! Runs a model by its specification, one value after the other: what every machine must compute to the bit. Only tests use it.
//!
//! It reads the same description as the loader, and takes its arithmetic from redline-reference. It has no cache, no threads and no
//! kernels: each text is computed as a whole, from its first token on.
#![forbid(unsafe_code)]

mod block;
mod distances;
mod element;

use redline_kernels::Format;
use redline_models::block::layer::Layer;
use redline_models::spec::{DecoderSpec, LayerInputsSpec, LinearSpec, Mask, PositionSpec, RotarySpec};
use redline_models::{Loader, ModelError};
use redline_reference::attention::KvStorage;
use redline_reference::elementwise::soft_capped;

use distances::Distances;
use element::{Builder, Linear, Literal, Norm};

/// Why a model cannot be interpreted.
#[derive(Debug, thiserror::Error)]
pub enum InterpreterError {
    /// Its tensors cannot be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A matrix has a format that is not interpreted.
    #[error("`{name}` is {format}, which is not interpreted")]
    Format {
        /// The tensor, as the specification calls it.
        name: String,
        /// Its format.
        format: Format,
    },
}

/// A row of activations.
type Row = Vec<f32>;

/// A model.
pub struct Interpreter<'a> {
    spec: &'a DecoderSpec,
    kv: KvStorage,
    tokens: Linear,
    types: Option<Linear>,
    positions: Option<Linear>,
    embedding_norm: Option<Norm>,
    projection: Option<Linear>,
    /// The table, the projection and the norm of per-layer inputs.
    layer_inputs: Option<(Linear, Linear, Norm)>,
    distances: Option<Distances>,
    layers: Vec<Layer<Literal>>,
    final_norm: Option<Norm>,
    head: Option<Linear>,
    transform: Option<(Linear, Option<Norm>, Row)>,
    classifier: Vec<(Linear, Option<Norm>)>,
}

/// What the blocks of a layer need to know of a text.
#[derive(Clone, Copy)]
struct Text<'a> {
    /// The number of the layer.
    layer: usize,
    mask: Mask,
    kv: KvStorage,
    rotations: &'a [RotarySpec],
    distances: Option<&'a Distances>,
}

impl<'a> Interpreter<'a> {
    /// Reads the weights of a model; its keys and values will have the format `kv`.
    pub fn new(loader: &'a Loader<'a>, kv: KvStorage) -> Result<Self, InterpreterError> {
        let spec = loader.spec();
        let mut builder = Builder { loader };
        let layers = spec.layers.iter().map(|layer| layer.map(&mut builder));
        let layers: Vec<_> = layers.collect::<Result<_, _>>()?;
        let table = |table: Option<LinearSpec>| table.map(|table| builder.table(&table)).transpose();
        let norm = |norm: &Option<_>| norm.as_ref().map(|norm| builder.read_norm(norm)).transpose();
        let classifier = spec.classifier_layers().iter().map(|layer| {
            let linear = builder.read_linear(&layer.linear, layer.activation)?;
            Ok::<_, InterpreterError>((linear, norm(&layer.norm)?))
        });
        let transform = spec.logits.transform.as_ref().map(|(layer, bias)| {
            let linear = builder.read_linear(&layer.linear, layer.activation)?;
            Ok::<_, InterpreterError>((linear, norm(&layer.norm)?, loader.values(bias, spec.vocab)?))
        });
        Ok(Self {
            spec,
            kv,
            tokens: builder.table(&spec.token_table())?,
            types: table(spec.type_table())?,
            positions: table(spec.position_table())?,
            embedding_norm: norm(&spec.embedding_norm)?,
            projection: match &spec.projection {
                Some(layer) => Some(builder.read_linear(&layer.linear, layer.activation)?),
                None => None,
            },
            layer_inputs: match &spec.layer_inputs {
                Some(LayerInputsSpec { table, projection, norm, .. }) => Some((
                    builder.table(table)?,
                    builder.read_linear(&projection.linear, projection.activation)?,
                    builder.read_norm(norm)?,
                )),
                None => None,
            },
            distances: match &spec.distances {
                Some(distances) => Some(Distances::read(builder, distances, &layers)?),
                None => None,
            },
            layers,
            final_norm: norm(&spec.final_norm)?,
            head: table(spec.head_linear())?,
            transform: transform.transpose()?,
            classifier: classifier.collect::<Result<_, _>>()?,
        })
    }

    /// The states of all tokens of a text, as the head and classifiers read them. Tokens from `second` on have type 1.
    pub fn states(&self, tokens: &[u32], second: Option<usize>) -> Vec<Row> {
        self.watched_states(tokens, second, |_, _| ())
    }

    /// The same; `watch` receives each layer's number, and the residual stream after it.
    pub fn watched_states(
        &self,
        tokens: &[u32],
        second: Option<usize>,
        mut watch: impl FnMut(usize, &[Row]),
    ) -> Vec<Row> {
        let mut rows = self.embedded(tokens, second);
        let (mask, rotations) = (self.spec.objective.mask, self.spec.rotations());
        let text = Text { layer: 0, mask, kv: self.kv, rotations, distances: self.distances.as_ref() };
        let inputs: Vec<Row> =
            tokens.iter().zip(&rows).map(|(token, row)| self.inputs(*token, row)).collect();
        let mut kept = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let own = |row| -> &[f32] {
                let row: &Row = row;
                &row[index * row.len() / self.layers.len()..][..row.len() / self.layers.len()]
            };
            let own: Vec<&[f32]> = inputs.iter().map(own).collect();
            rows = block::layer(layer, &rows, &own, &mut kept, Text { layer: index, ..text });
            watch(index, &rows);
        }
        rows.iter().map(|row| self.final_norm.as_ref().map_or(row.clone(), |norm| norm.apply(row))).collect()
    }

    /// The logits over the vocabulary of a state.
    pub fn logits(&self, state: &[f32]) -> Row {
        let mut state = state.to_vec();
        if let Some((linear, norm, _)) = &self.transform {
            state = linear.apply(&state);
            state = norm.as_ref().map_or(state.clone(), |norm| norm.apply(&state));
        }
        let mut logits = self.head.as_ref().unwrap_or(&self.tokens).apply(&state);
        if let Some((_, _, bias)) = &self.transform {
            logits.iter_mut().zip(bias).for_each(|(logit, bias)| *logit += bias);
        }
        let scaled = logits.into_iter().map(|logit| logit * self.spec.logits.scale);
        match self.spec.logits.softcap {
            Some(cap) => scaled.map(|logit| soft_capped(logit, cap)).collect(),
            None => scaled.collect(),
        }
    }

    /// What the layers of a classifier make of a pooled state.
    pub fn classes(&self, pooled: &[f32]) -> Row {
        self.classifier.iter().fold(pooled.to_vec(), |x, (linear, norm)| {
            let y = linear.apply(&x);
            norm.as_ref().map_or(y.clone(), |norm| norm.apply(&y))
        })
    }

    /// The per-layer inputs of all layers, of a token with this embedding.
    fn inputs(&self, token: u32, embedded: &[f32]) -> Row {
        let Some((table, projection, norm)) = &self.layer_inputs else { return Row::new() };
        let Some(spec) = &self.spec.layer_inputs else { return Row::new() };
        let projected: Row = projection.apply(embedded).iter().map(|x| x * spec.projection_scale).collect();
        let mut inputs = norm.apply_to_parts(&projected);
        add(&mut inputs, &table.weights(token as usize), spec.table_scale);
        inputs.iter().map(|x| x * std::f32::consts::FRAC_1_SQRT_2).collect()
    }

    /// The sum of all embeddings of each token.
    fn embedded(&self, tokens: &[u32], second: Option<usize>) -> Vec<Row> {
        let mut next = 0;
        let row = |(i, &token): (usize, &u32)| {
            let mut row: Row =
                self.tokens.weights(token as usize).iter().map(|x| x * self.spec.embedding_scale).collect();
            if let Some(types) = &self.types {
                add(&mut row, &types.weights(usize::from(second.is_some_and(|second| i >= second))), 1.0);
            }
            if let (Some(table), PositionSpec::Learned(spec)) = (&self.positions, &self.spec.positions) {
                // Padding does not count where its row lies before that of the first position.
                let is_padding = spec.unused.checked_sub(1) == Some(token as usize);
                let place = if is_padding { token as usize } else { spec.unused + next };
                next += usize::from(!is_padding);
                add(&mut row, &table.weights(place), 1.0);
            }
            row = self.embedding_norm.as_ref().map_or(row.clone(), |norm| norm.apply(&row));
            self.projection.as_ref().map_or(row.clone(), |layer| layer.apply(&row))
        };
        tokens.iter().enumerate().map(row).collect()
    }
}

/// `x += factor * a`
fn add(x: &mut [f32], a: &[f32], factor: f32) {
    x.iter_mut().zip(a).for_each(|(x, a)| *x = a.mul_add(factor, *x));
}
