//! Names of the tensors of an adapter.

use std::collections::BTreeMap;

use super::fault::AdapterFault;

/// What PEFT puts before the path of every module.
const PREFIX: &str = "base_model.model.";

/// What a tensor is to its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// `[rank, inputs]`
    A,
    /// `[outputs, rank]`
    B,
    /// `[rank, vocab]`
    EmbeddingA,
    /// `[hidden, rank]`
    EmbeddingB,
    /// `[outputs]`, of DoRA.
    Magnitude,
    /// The weight of the base model, which PEFT stores for an adapted embedding or head.
    Base,
}

impl Part {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::A => "lora_A",
            Self::B => "lora_B",
            Self::EmbeddingA => "lora_embedding_A",
            Self::EmbeddingB => "lora_embedding_B",
            Self::Magnitude => "lora_magnitude_vector",
            Self::Base => "base_layer",
        }
    }
}

/// The ends of names. Files that were not written by `save_pretrained` may contain the name of the adapter, `default`.
const ENDS: &[(&str, Part)] = &[
    (".lora_A.weight", Part::A),
    (".lora_A.default.weight", Part::A),
    (".lora_B.weight", Part::B),
    (".lora_B.default.weight", Part::B),
    (".lora_embedding_A", Part::EmbeddingA),
    (".lora_embedding_A.default", Part::EmbeddingA),
    (".lora_embedding_B", Part::EmbeddingB),
    (".lora_embedding_B.default", Part::EmbeddingB),
    (".lora_magnitude_vector", Part::Magnitude),
    (".lora_magnitude_vector.weight", Part::Magnitude),
    (".lora_magnitude_vector.default", Part::Magnitude),
    (".lora_magnitude_vector.default.weight", Part::Magnitude),
    (".base_layer.weight", Part::Base),
];

/// The tensors of one module, by their part.
pub(super) type Parts = BTreeMap<Part, String>;

/// The tensors of an adapter, by the path of their module.
pub(super) fn group<'a>(
    names: impl Iterator<Item = &'a str>,
) -> Result<BTreeMap<String, Parts>, AdapterFault> {
    let mut modules: BTreeMap<String, Parts> = BTreeMap::new();
    for name in names {
        let unknown = || AdapterFault::UnknownTensor { tensor: name.to_owned() };
        let (module, part) = split(name).ok_or_else(unknown)?;
        let parts = modules.entry(module.to_owned()).or_default();
        if let Some(first) = parts.insert(part, name.to_owned()) {
            return Err(AdapterFault::Twice { first, second: name.to_owned() });
        }
    }
    for (module, parts) in &modules {
        pairs(module, parts)?;
    }
    if modules.is_empty() { Err(AdapterFault::Empty) } else { Ok(modules) }
}

/// The path of the module and the part of a tensor's name.
fn split(name: &str) -> Option<(&str, Part)> {
    let path = name.strip_prefix(PREFIX)?;
    let ended = |&(end, part): &(&str, Part)| Some((path.strip_suffix(end)?, part));
    ENDS.iter().find_map(ended).filter(|(module, _)| !module.is_empty())
}

/// Checks that a module has A and B of one kind.
fn pairs(module: &str, parts: &Parts) -> Result<(), AdapterFault> {
    let embedding = parts.contains_key(&Part::EmbeddingA) || parts.contains_key(&Part::EmbeddingB);
    let needed = if embedding { [Part::EmbeddingA, Part::EmbeddingB] } else { [Part::A, Part::B] };
    let other = if embedding { [Part::A, Part::B] } else { [Part::EmbeddingA, Part::EmbeddingB] };
    if let Some(missing) = needed.into_iter().find(|part| !parts.contains_key(part)) {
        let present = parts.values().next().cloned().unwrap_or_default();
        return Err(AdapterFault::Half { module: module.to_owned(), present, missing: missing.name() });
    }
    match other.into_iter().find_map(|part| parts.get(&part)) {
        Some(tensor) => Err(AdapterFault::UnknownTensor { tensor: tensor.clone() }),
        None => Ok(()),
    }
}
