//! Checks that an adapter fits a model: every tensor has its module, every targeted module its tensors, and all shapes agree.

use std::collections::BTreeMap;

use super::config::AdapterConfig;
use super::fault::AdapterFault;
use super::names::{Part, Parts};
use crate::checkpoint::Checkpoint;
use crate::error::{Result, WeightsError};

/// A module of a model, by the path that PEFT uses for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseModule {
    /// The path, like `model.layers.0.self_attn.q_proj`.
    pub path: String,
    /// What it is.
    pub kind: ModuleKind,
    /// Number of inputs; the size of the vocabulary for an embedding.
    pub inputs: usize,
    /// Number of outputs; the hidden width for an embedding.
    pub outputs: usize,
}

/// What a module is to an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleKind {
    /// A linear layer, whichever way its weight is stored (`nn.Linear`, `Conv1D`).
    Linear,
    /// The linear layer that computes logits; `all-linear` does not include it.
    Head,
    /// The token embedding.
    Embedding,
    /// A module that PEFT could adapt, but Redline cannot.
    Fixed,
}

/// The tensors of one module, checked; [`super::AdapterFiles::low_rank`] reads their values.
#[derive(Debug, Clone)]
pub struct FittedModule<'a> {
    /// Index in the modules of the model.
    pub module: usize,
    /// Rows of A and columns of B.
    pub rank: usize,
    /// The factor on B A.
    pub scaling: f32,
    pub(super) a: &'a str,
    pub(super) b: &'a str,
    pub(super) magnitude: Option<&'a str>,
    pub(super) base: Option<&'a str>,
}

/// An adapter and the limits of its caller.
pub(super) struct Fit<'a> {
    pub(super) config: &'a AdapterConfig,
    pub(super) tensors: &'a Checkpoint,
    pub(super) parts: &'a BTreeMap<String, Parts>,
    pub(super) max_rank: usize,
}

impl<'a> Fit<'a> {
    /// Checks everything but values; returns the modules in the order of the model.
    pub(super) fn check(&self, modules: &[BaseModule]) -> Result<Vec<FittedModule<'a>>> {
        let places: BTreeMap<&str, usize> =
            modules.iter().enumerate().map(|(index, module)| (module.path.as_str(), index)).collect();
        let mut fitted = Vec::with_capacity(self.parts.len());
        for (path, parts) in self.parts {
            let Some(&index) = places.get(path.as_str()) else {
                let tensor = any(parts).to_owned();
                return Err(self.refuse(AdapterFault::UnknownModule { module: path.clone(), tensor }));
            };
            fitted.push(self.module(index, &modules[index], parts)?);
        }
        self.refuse_missing(modules)?;
        fitted.sort_by_key(|fitted| fitted.module);
        Ok(fitted)
    }

    fn module(&self, index: usize, module: &BaseModule, parts: &'a Parts) -> Result<FittedModule<'a>> {
        let path = &module.path;
        let named = |fault: fn(String, String) -> AdapterFault| {
            Err(self.refuse(fault(path.clone(), any(parts).to_owned())))
        };
        let (a, b) = match module.kind {
            ModuleKind::Fixed => return named(|module, tensor| AdapterFault::Fixed { module, tensor }),
            ModuleKind::Embedding => (Part::EmbeddingA, Part::EmbeddingB),
            ModuleKind::Linear | ModuleKind::Head => (Part::A, Part::B),
        };
        let (Some(a), Some(b)) = (parts.get(&a), parts.get(&b)) else {
            return named(|module, tensor| AdapterFault::Kind { module, tensor });
        };
        if !self.config.targets(path, module.kind == ModuleKind::Linear)? {
            return named(|module, tensor| AdapterFault::Untargeted { module, tensor });
        }
        let rank = self.rank(path)?;
        self.shape(a, rank, &[rank, module.inputs], 0)?;
        self.shape(b, rank, &[module.outputs, rank], 1)?;
        let magnitude = self.magnitude(module, parts)?;
        let base = self.base(module, parts)?;
        let scaling = self.config.scaling(path)?;
        Ok(FittedModule { module: index, rank, scaling, a, b, magnitude, base })
    }

    fn rank(&self, path: &str) -> Result<usize> {
        let (rank, limit) = (self.config.rank(path)?, self.max_rank);
        if rank <= limit {
            return Ok(rank);
        }
        Err(self.refuse(AdapterFault::RankLimit { module: path.to_owned(), rank, limit }))
    }

    /// Checks the shape of A or B, in which the rank is dimension `at`.
    fn shape(&self, tensor: &str, rank: usize, needed: &[usize], at: usize) -> Result<()> {
        let Some(found) = self.found(tensor, needed)? else { return Ok(()) };
        let tensor = tensor.to_owned();
        if found.len() == 2 && found[at] != rank {
            return Err(self.refuse(AdapterFault::Rank { tensor, found, rank }));
        }
        Err(self.refuse(AdapterFault::Shape { tensor, found, needed: needed.to_owned() }))
    }

    fn magnitude(&self, module: &BaseModule, parts: &'a Parts) -> Result<Option<&'a str>> {
        let path = || module.path.clone();
        let Some(tensor) = parts.get(&Part::Magnitude) else {
            let fault = AdapterFault::NoMagnitude { module: path() };
            return if self.config.dora() { Err(self.refuse(fault)) } else { Ok(None) };
        };
        if !self.config.dora() {
            return Err(self.refuse(AdapterFault::Magnitude { module: path() }));
        }
        self.exact(tensor, &[module.outputs])?;
        Ok(Some(tensor))
    }

    /// The copy of the base weight of an embedding or a head.
    fn base(&self, module: &BaseModule, parts: &'a Parts) -> Result<Option<&'a str>> {
        let Some(tensor) = parts.get(&Part::Base) else { return Ok(None) };
        match module.kind {
            ModuleKind::Embedding => self.exact(tensor, &[module.inputs, module.outputs])?,
            ModuleKind::Head => self.exact(tensor, &[module.outputs, module.inputs])?,
            ModuleKind::Linear | ModuleKind::Fixed => {
                return Err(self.refuse(AdapterFault::UnknownTensor { tensor: tensor.clone() }));
            }
        }
        Ok(Some(tensor))
    }

    fn exact(&self, tensor: &str, needed: &[usize]) -> Result<()> {
        let Some(found) = self.found(tensor, needed)? else { return Ok(()) };
        let (tensor, needed) = (tensor.to_owned(), needed.to_owned());
        Err(self.refuse(AdapterFault::Shape { tensor, found, needed }))
    }

    /// The shape of a tensor if it is not the needed one. A type that cannot be read is an error.
    fn found(&self, tensor: &str, needed: &[usize]) -> Result<Option<Vec<usize>>> {
        match self.tensors.require(tensor, needed) {
            Ok(_) => Ok(None),
            Err(WeightsError::Shape { found, .. }) => Ok(Some(found)),
            Err(error) => Err(error),
        }
    }

    /// Refuses an adapter that lacks the tensors of a module that it targets. One that cannot be adapted may be no module for PEFT, such as
    /// an expert in transformers 5.
    fn refuse_missing(&self, modules: &[BaseModule]) -> Result<()> {
        let (mut count, mut first) = (0, None);
        let needed =
            |module: &&BaseModule| module.kind != ModuleKind::Fixed && !self.parts.contains_key(&module.path);
        for module in modules.iter().filter(needed) {
            if self.config.targets(&module.path, module.kind == ModuleKind::Linear)? {
                count += 1;
                first.get_or_insert(&module.path);
            }
        }
        first.map_or(Ok(()), |first| {
            Err(self.refuse(AdapterFault::NoTensorsFor { count, first: first.clone() }))
        })
    }

    fn refuse(&self, fault: AdapterFault) -> WeightsError {
        WeightsError::Adapter { place: self.tensors.origin().to_owned(), fault }
    }
}

/// The name of a tensor of a module, for messages.
fn any(parts: &Parts) -> &str {
    parts.values().next().map_or("", String::as_str)
}
