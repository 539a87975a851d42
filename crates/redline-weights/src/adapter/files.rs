//! The files of an adapter, and the values of its matrices.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::config::AdapterConfig;
use super::fault::AdapterFault;
use super::fit::{BaseModule, Fit, FittedModule, ModuleKind};
use super::names::{self, Parts};
use super::root::path_in_root;
use crate::checkpoint::Checkpoint;
use crate::checksum::{Checksum, Hash};
use crate::error::{Result, WeightsError};
use crate::file::exists;
use crate::infq::Infq;

const CONFIG: &str = "adapter_config.json";
const SAFETENSORS: &str = "adapter_model.safetensors";
const PYTORCH: &str = "adapter_model.bin";

/// The configuration of an adapter and the names and shapes of its tensors.
pub struct AdapterFiles {
    config: AdapterConfig,
    tensors: Checkpoint,
    parts: BTreeMap<String, Parts>,
}

/// An adapter that fits a model.
#[derive(Debug, Clone, PartialEq)]
pub struct LowRankModules {
    /// The adapted modules, in the order of the modules of the model.
    pub modules: Vec<LowRank>,
    /// A hash over the modules with their rank, scaling and values: equal for adapters that change a model equally.
    pub digest: Checksum,
}

/// What an adapter adds to the weight of one module: `scaling * B A`.
#[derive(Debug, Clone, PartialEq)]
pub struct LowRank {
    /// The index of the module in the modules of the model.
    pub module: usize,
    /// Rows of A and columns of B.
    pub rank: usize,
    /// `[rank, inputs]`
    pub a: Vec<f32>,
    /// `[outputs, rank]`
    pub b: Vec<f32>,
    /// The factor.
    pub scaling: f32,
    /// `[outputs]`: the lengths of the rows of the adapted weight `W + scaling * B A` (DoRA, Liu et al. 2024).
    ///
    /// The weight of an embedding is taken as `[hidden, vocab]` here, so that there is one length for each hidden dimension.
    pub magnitude: Option<Vec<f32>>,
}

impl AdapterFiles {
    /// Opens the adapter directory `dir`. Reads the configuration and the names of all tensors, but no values.
    pub fn open(dir: &Path) -> Result<Self> {
        fs::metadata(dir).map_err(WeightsError::io("open the adapter directory", dir))?;
        let refuse = |fault| WeightsError::Adapter { place: dir.to_owned(), fault };
        if Infq::is(dir) {
            return Err(refuse(AdapterFault::Converted));
        }
        let config = dir.join(CONFIG);
        if !exists(&config)? {
            return Err(refuse(AdapterFault::NoConfig));
        }
        let config = AdapterConfig::open(&config)?;
        let (safetensors, pytorch) = (dir.join(SAFETENSORS), dir.join(PYTORCH));
        let tensors = if exists(&safetensors)? {
            Checkpoint::open_file(&safetensors)?
        } else if exists(&pytorch)? {
            Checkpoint::open_pytorch(&pytorch)?
        } else {
            return Err(refuse(AdapterFault::NoTensors));
        };
        let named = names::group(tensors.names());
        let place = tensors.origin().to_owned();
        let parts = named.map_err(|fault| WeightsError::Adapter { place, fault })?;
        Ok(Self { config, tensors, parts })
    }

    /// Like [`Self::open`], for a directory that must lie in `root`; so must the files in it, after all links are followed. A
    /// relative path begins at `root`. The files are opened after the check, so anyone who can write to `root` must be trusted.
    pub fn open_in(root: &Path, dir: &Path) -> Result<Self> {
        let dir = path_in_root(root, dir)?;
        for name in [CONFIG, SAFETENSORS, PYTORCH] {
            if exists(&dir.join(name))? {
                path_in_root(root, &dir.join(name))?;
            }
        }
        Self::open(&dir)
    }

    /// The configuration.
    pub fn config(&self) -> &AdapterConfig {
        &self.config
    }

    /// The file with the tensors.
    pub fn file(&self) -> &Path {
        self.tensors.origin()
    }

    /// The paths of the adapted modules, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    pub(super) fn parts(&self) -> &BTreeMap<String, Parts> {
        &self.parts
    }

    pub(super) fn tensors(&self) -> &Checkpoint {
        &self.tensors
    }

    /// Reads the adapter for the model that has these modules.
    ///
    /// # Errors
    /// - A tensor without a module, a targeted module without tensors, a shape or rank that does not fit, a rank above
    ///   `max_rank` ([`AdapterFault`]).
    /// - A value that is not finite.
    pub fn read(&self, modules: &[BaseModule], max_rank: usize) -> Result<LowRankModules> {
        let fitted = self.fit(modules, max_rank)?;
        let modules: Vec<LowRank> =
            fitted.iter().map(|fitted| self.low_rank(fitted)).collect::<Result<_>>()?;
        let digest = digest(&modules);
        Ok(LowRankModules { modules, digest })
    }

    /// Compares the copies of the base model's embedding and head, which PEFT stores with an adapter that changes them, with the
    /// weights of the base model. `base` gives row `first` and the following ones of the module with this index, `[rows, hidden]`.
    ///
    /// Values may differ by a rounding to bf16, since adapters may have been trained on a base in another format.
    ///
    /// # Errors
    /// [`AdapterFault::OtherBase`] names the first value that differs.
    pub fn check_base<E: From<WeightsError>>(
        &self,
        modules: &[BaseModule],
        max_rank: usize,
        mut base: impl FnMut(usize, usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        for fitted in self.fit(modules, max_rank)? {
            let Some(tensor) = fitted.base else { continue };
            let module = &modules[fitted.module];
            let (rows, width) = match module.kind {
                ModuleKind::Embedding => (module.inputs, module.outputs),
                _ => (module.outputs, module.inputs),
            };
            let (mut copy, mut needed) = (vec![0.0; width], vec![0.0; width]);
            for row in 0..rows {
                self.tensors.read_f32_range(tensor, row * width, &mut copy)?;
                base(fitted.module, row, &mut needed)?;
                self.same(tensor, row * width, &copy, &needed)?;
            }
        }
        Ok(())
    }

    /// Refuses a value that differs by more than a rounding to bf16.
    fn same(&self, tensor: &str, first: usize, copy: &[f32], needed: &[f32]) -> Result<()> {
        let differ = |(a, b): (&f32, &f32)| (a - b).abs() > a.abs().max(b.abs()) / 128.0;
        let Some(at) = copy.iter().zip(needed).position(differ) else { return Ok(()) };
        let fault = AdapterFault::OtherBase {
            tensor: tensor.to_owned(),
            index: first + at,
            found: copy[at].to_string(),
            needed: needed[at].to_string(),
        };
        Err(WeightsError::Adapter { place: self.file().to_owned(), fault })
    }

    /// Checks everything but values: the modules of the adapter, in the order of the modules of the model.
    ///
    /// # Errors
    /// Those of [`Self::read`] that do not concern values.
    pub fn fit(&self, modules: &[BaseModule], max_rank: usize) -> Result<Vec<FittedModule<'_>>> {
        let fit = Fit { config: &self.config, tensors: &self.tensors, parts: &self.parts, max_rank };
        fit.check(modules)
    }

    /// Reads the values of one module.
    pub fn low_rank(&self, fitted: &FittedModule<'_>) -> Result<LowRank> {
        let &FittedModule { module, rank, scaling, a, b, magnitude, .. } = fitted;
        let magnitude = magnitude.map(|tensor| self.values(tensor)).transpose()?;
        Ok(LowRank { module, rank, a: self.values(a)?, b: self.values(b)?, scaling, magnitude })
    }

    /// All values of a tensor.
    fn values(&self, tensor: &str) -> Result<Vec<f32>> {
        let mut values =
            vec![0.0; self.tensors.info(tensor).map_or(0, crate::safetensors::TensorInfo::elements)];
        self.tensors.read_f32(tensor, &mut values)?;
        Ok(values)
    }
}

fn digest(modules: &[LowRank]) -> Checksum {
    let mut hash = Hash::new();
    let mut raw = Vec::new();
    for low_rank in modules {
        let magnitude = low_rank.magnitude.as_deref().unwrap_or_default();
        // Each list is preceded by its length, so that different adapters never hash the same bytes.
        for number in [low_rank.module, low_rank.rank, low_rank.a.len(), low_rank.b.len(), magnitude.len()] {
            hash.write(&(number as u64).to_le_bytes());
        }
        hash.write(&low_rank.scaling.to_le_bytes());
        for values in [low_rank.a.as_slice(), &low_rank.b, magnitude] {
            raw.clear();
            raw.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            hash.write(&raw);
        }
    }
    hash.checksum()
}
