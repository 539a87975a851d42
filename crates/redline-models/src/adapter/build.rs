//! Builds an adapter in memory from its matrices, beside the model that it updates.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use redline_kernels::op::linear::{Lora, LoraPart};
use redline_kernels::{Buffer, Exec, Matrix};
use redline_weights::Checksum;

use super::source::{AdapterWeights, ModuleDelta, ModulePlace};
use crate::adapter_rows::{Adapter, EmbeddingUpdate};
use crate::block::decoder::Decoder;
use crate::error::ModelError;
use crate::footprint::unquantised_format;
use crate::model::Model;
use crate::plan::Site;
use crate::spec::{DecoderSpec, LinearSpec};
use crate::step::padded;
use crate::tensors::check_magnitude;

/// Number of outputs in a strip.
pub(super) const STRIP: usize = 16;

/// What adapters of a model are built from. It shares the model's weights, so that a thread can build while the model runs.
#[derive(Clone, Debug)]
pub struct AdapterBuilder {
    pub(super) spec: Arc<DecoderSpec>,
    pub(super) decoder: Arc<Decoder>,
    pub(super) head: Option<Arc<Matrix>>,
    /// The checksums of weights that were computed so far; weights do not change.
    pub(super) sums: Arc<Mutex<BTreeMap<ModulePlace, Checksum>>>,
}

impl AdapterBuilder {
    /// A builder of adapters of a model.
    pub fn new(model: &Model) -> Self {
        let Model { spec, decoder, head, .. } = model;
        Self { spec: spec.clone(), decoder: decoder.clone(), head: head.clone(), sums: Arc::default() }
    }

    /// The specification of the model.
    pub fn spec(&self) -> &Arc<DecoderSpec> {
        &self.spec
    }

    /// Packs the matrices of an adapter.
    ///
    /// # Errors
    /// A layer's weights have several formats, or memory runs out.
    pub fn build(&self, exec: Exec<'_>, weights: &AdapterWeights) -> Result<Adapter, ModelError> {
        self.check_formats()?;
        let mut layers = Vec::with_capacity(self.spec.layers.len());
        for layer in 0..self.spec.layers.len() {
            let mut sites = [const { None }; Site::OF_LAYER.len()];
            for (update, &site) in sites.iter_mut().zip(Site::OF_LAYER) {
                let Some(linear) = self.spec.layers[layer].linear(site) else { continue };
                let modules = weights.modules.iter().filter_map(|module| match module.place {
                    ModulePlace::Part { layer: of, site: at, part } if (of, at) == (layer, site) => {
                        Some((part, module))
                    }
                    _ => None,
                });
                let modules: Vec<_> = modules.collect();
                *update = lora(exec, self.matrix(layer, site), linear, &modules)?;
            }
            layers.push(sites);
        }
        let at = |place| weights.modules.iter().filter(move |module| module.place == place);
        let head = self.head.as_deref().unwrap_or(&self.decoder.embedding.tokens);
        let linear = LinearSpec::plain("lm_head".to_owned(), self.spec.hidden, self.spec.vocab);
        let modules: Vec<_> = at(ModulePlace::Head).map(|module| (0, module)).collect();
        let head = lora(exec, head, &linear, &modules)?;
        let embedding = at(ModulePlace::Embedding).next();
        let embedding = embedding.map(|module| self.embedding(exec, module)).transpose()?;
        Ok(Adapter::new(layers, head, embedding))
    }

    /// The weights of a linear layer, which has one format ([`Self::check_formats`]).
    pub(super) fn matrix(&self, layer: usize, site: Site) -> &Matrix {
        let linear = self.decoder.layers[layer].linear(site).expect("a site of the layer");
        linear.only_matrix().expect("one format, as was checked")
    }

    /// Refuses a model in which a linear layer has weights of several formats.
    pub(super) fn check_formats(&self) -> Result<(), ModelError> {
        for (layer, (each, spec)) in self.decoder.layers.iter().zip(&self.spec.layers).enumerate() {
            let mut linears = spec.adaptable().filter_map(|(site, _)| each.linear(site));
            if let Some(linear) = linears.find(|linear| linear.only_matrix().is_none()) {
                let formats = linear.matrices().iter().map(|matrix| matrix.format().to_string());
                let formats = formats.collect::<Vec<_>>().join(" and ");
                return Err(ModelError::MixedFormats { layer, site: linear.site().name(), formats });
            }
        }
        Ok(())
    }

    pub(super) fn embedding(
        &self,
        exec: Exec<'_>,
        module: &ModuleDelta,
    ) -> Result<EmbeddingUpdate, ModelError> {
        let format = unquantised_format(self.decoder.embedding.tokens.format());
        let (rank, vocab, hidden) = (module.rank, self.spec.vocab, self.spec.hidden);
        let b = module.scaled_b();
        check_magnitude(&module.a, &format!("{}.lora_embedding_A", self.spec.embedding), format)?;
        check_magnitude(&b, &format!("{}.lora_embedding_B", self.spec.embedding), format)?;
        let mut down = Matrix::zeroed(format, vocab, rank)?;
        down.set_rows(exec, 0, &module.a);
        let mut up = Matrix::zeroed(format, hidden, rank)?;
        up.set_rows(exec, 0, &b);
        let gains =
            module.magnitude.as_ref().map(|magnitude| self.embedding_gains(module, magnitude)).transpose()?;
        Ok(EmbeddingUpdate { down, up, gains })
    }

    /// `magnitude / |E + scaling B A|` of every value of the embedding, over all tokens.
    fn embedding_gains(&self, module: &ModuleDelta, magnitude: &[f32]) -> Result<Buffer<f32>, ModelError> {
        let hidden = self.spec.hidden;
        let (mut row, mut squares) = (vec![0.0; hidden], vec![0f64; hidden]);
        let b = module.scaled_b();
        for (token, a) in module.a.chunks_exact(module.rank).enumerate() {
            self.decoder.embedding.tokens.row(token, &mut row);
            for ((square, e), b) in squares.iter_mut().zip(&row).zip(b.chunks_exact(module.rank)) {
                let e = a.iter().zip(b).fold(*e, |e, (a, b)| b.mul_add(*a, e));
                *square += f64::from(e) * f64::from(e);
            }
        }
        let mut gains = Buffer::zeroed(hidden)?;
        for ((gain, m), square) in gains.iter_mut().zip(magnitude).zip(&squares) {
            *gain = (f64::from(*m) / square.sqrt()) as f32;
        }
        Ok(gains)
    }
}

/// The update of a layer by the modules of its parts.
fn lora(
    exec: Exec<'_>,
    base: &Matrix,
    linear: &LinearSpec,
    modules: &[(usize, &ModuleDelta)],
) -> Result<Option<Lora>, ModelError> {
    let (mut parts, mut gains) = (Vec::new(), None);
    for &(part, module) in modules {
        let first: usize = linear.parts[..part].iter().map(|part| part.outputs).sum();
        if let Some(magnitude) = &module.magnitude {
            let gains = match &mut gains {
                Some(gains) => gains,
                none => none.insert(ones(padded(linear.outputs()))?),
            };
            module.gains(base, first, magnitude, &mut gains[first..]);
        }
        parts.push(module.part(exec, base, first, &linear.parts[part].name)?);
    }
    // An update that is zero leaves every bit alone, the sign of a zero too.
    let changes =
        modules.iter().any(|(_, module)| module.magnitude.is_some() || module.b.iter().any(|b| *b != 0.0));
    Ok(changes.then(|| Lora::new(parts, gains)))
}

pub(super) fn ones(len: usize) -> Result<Buffer<f32>, ModelError> {
    let mut ones = Buffer::zeroed(len)?;
    ones.fill(1.0);
    Ok(ones)
}

impl ModuleDelta {
    fn scaled_b(&self) -> Vec<f32> {
        self.b.iter().map(|b| b * self.scaling).collect()
    }

    /// Both matrices, for outputs of a layer with weights `base` from `first` on.
    fn part(&self, exec: Exec<'_>, base: &Matrix, first: usize, name: &str) -> Result<LoraPart, ModelError> {
        // Outputs of other projections in the first strip are zero.
        let (down, up) = self.matrices(exec, base, first % STRIP, name)?;
        Ok(LoraPart { down, up, first_strip: first / STRIP })
    }

    /// A, and B after `before` rows of zeros, for a layer with weights `base`.
    pub(super) fn matrices(
        &self,
        exec: Exec<'_>,
        base: &Matrix,
        before: usize,
        name: &str,
    ) -> Result<(Matrix, Matrix), ModelError> {
        let (down_format, up_format) = Lora::formats(base.format());
        let b = self.scaled_b();
        check_magnitude(&self.a, &format!("{name}.lora_A"), down_format)?;
        check_magnitude(&b, &format!("{name}.lora_B"), up_format)?;
        let columns = base.outlier_columns().to_vec();
        let mut down = Matrix::with_outliers(down_format, self.rank, base.cols(), columns)?;
        down.set_rows(exec, 0, &self.a);
        let mut up = Matrix::zeroed(up_format, before + self.b.len() / self.rank, self.rank)?;
        up.set_rows(exec, before, &b);
        Ok((down, up))
    }

    /// `magnitude / |W + scaling B A|` of every output (DoRA, Liu et al. 2024), where `base` has the weights of these outputs from
    /// `first` on.
    pub(super) fn gains(&self, base: &Matrix, first: usize, magnitude: &[f32], gains: &mut [f32]) {
        let mut row = vec![0.0; base.cols()];
        let updates = self.b.chunks_exact(self.rank);
        for (o, ((gain, m), b)) in gains.iter_mut().zip(magnitude).zip(updates).enumerate() {
            base.row(first + o, &mut row);
            for (b, a) in b.iter().zip(self.a.chunks_exact(base.cols())) {
                let b = b * self.scaling;
                row.iter_mut().zip(a).for_each(|(w, a)| *w = b.mul_add(*a, *w));
            }
            let squares: f64 = row.iter().map(|w| f64::from(*w) * f64::from(*w)).sum();
            *gain = (f64::from(*m) / squares.sqrt()) as f32;
        }
    }
}
