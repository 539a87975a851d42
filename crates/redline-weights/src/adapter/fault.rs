//! Why an adapter is refused.

use std::path::PathBuf;

use crate::quoted::{Dims, Quoted};

/// Why a directory with a LoRA adapter cannot be read, or does not fit the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
pub enum AdapterFault {
    #[error("there is no `adapter_config.json`")]
    NoConfig,
    #[error("there is no `adapter_model.safetensors` and no `adapter_model.bin`")]
    NoTensors,
    #[error("the adapter is converted: PEFT's own files are needed")]
    Converted,
    #[error("the adapter has no LoRA tensors")]
    Empty,
    #[error("`{}` lies outside the adapter directory `{}`", .path.display(), .root.display())]
    Outside { path: PathBuf, root: PathBuf },

    #[error("the pattern `{}` of `{key}` cannot be used: {}", Quoted(.pattern), Quoted(.message))]
    Pattern { key: &'static str, pattern: String, message: String },
    #[error("`{key}` has more than {limit} regular expressions")]
    Patterns { key: &'static str, limit: usize },
    #[error("`init_lora_weights` is `{}`, which changes the weights of the base model, too", Quoted(.value))]
    ChangesBase { value: String },
    #[error("the scaling of module `{}` is {alpha} / {divisor}, which is not a finite number", Quoted(.module))]
    Scaling { module: String, alpha: String, divisor: String },

    #[error("tensor `{}` is not part of a LoRA adapter", Quoted(.tensor))]
    UnknownTensor { tensor: String },
    #[error("tensors `{}` and `{}` are the same part of one module", Quoted(.first), Quoted(.second))]
    Twice { first: String, second: String },
    #[error("module `{}` has `{}`, but no `{missing}`", Quoted(.module), Quoted(.present))]
    Half { module: String, present: String, missing: &'static str },
    #[error("module `{}` has no magnitudes, but `use_dora` is true", Quoted(.module))]
    NoMagnitude { module: String },
    #[error("module `{}` has magnitudes, but `use_dora` is false", Quoted(.module))]
    Magnitude { module: String },

    #[error("tensor `{}` belongs to module `{}`, which this model does not have", Quoted(.tensor), Quoted(.module))]
    UnknownModule { module: String, tensor: String },
    #[error("tensor `{}` is not of the kind that adapts module `{}`", Quoted(.tensor), Quoted(.module))]
    Kind { module: String, tensor: String },
    #[error("tensor `{}` belongs to module `{}`, which cannot be adapted", Quoted(.tensor), Quoted(.module))]
    Fixed { module: String, tensor: String },
    #[error("tensor `{}` belongs to module `{}`, which the configuration does not target", Quoted(.tensor), Quoted(.module))]
    Untargeted { module: String, tensor: String },
    #[error("{count} modules are targeted, but have no tensors: `{}`{}", Quoted(.first), if *.count > 1 { ", ..." } else { "" })]
    NoTensorsFor { count: usize, first: String },
    #[error("module `{}` has rank {rank}, but at most {limit} is allowed", Quoted(.module))]
    RankLimit { module: String, rank: usize, limit: usize },
    #[error("tensor `{}` is {}, but the configuration gives this module rank {rank}", Quoted(.tensor), Dims(.found))]
    Rank { tensor: String, found: Vec<usize>, rank: usize },
    #[error("tensor `{}` is {}, but this model needs {}", Quoted(.tensor), Dims(.found), Dims(.needed))]
    Shape { tensor: String, found: Vec<usize>, needed: Vec<usize> },
    #[error("tensor `{}` is {found} at element {index}, but the base model has {needed} there", Quoted(.tensor))]
    OtherBase { tensor: String, index: usize, found: String, needed: String },
}

impl AdapterFault {
    pub(crate) fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoConfig | Self::NoTensors => {
                "an adapter is a directory that PEFT's `save_pretrained` wrote"
            }
            Self::Converted => "give the directory that it was converted from",
            Self::Outside { .. } => "move the adapter into that directory; links must not lead out of it",
            Self::Pattern { .. } => "a list of module names needs no regular expression",
            Self::Patterns { .. } => "write module names instead of regular expressions",
            Self::ChangesBase { .. } => {
                "save the adapter again with `path_initial_model_for_weight_conversion`, which makes it an \
                 ordinary LoRA adapter"
            }
            Self::UnknownTensor { .. } => {
                "only `lora_A`, `lora_B`, `lora_embedding_A`, `lora_embedding_B` and `lora_magnitude_vector` \
                 are read, with the prefix `base_model.model.`"
            }
            Self::Half { .. } | Self::Empty => {
                "the file is incomplete, or the training did not gather the parts of its weights before saving"
            }
            Self::UnknownModule { .. } | Self::Shape { .. } | Self::OtherBase { .. } => {
                "the adapter was trained on another base model"
            }
            Self::Kind { .. } => {
                "an embedding has `lora_embedding_A` and `lora_embedding_B`, a linear layer `lora_A` and `lora_B`"
            }
            Self::Fixed { .. } => "linear layers, the token embedding and the head can be adapted",
            Self::Untargeted { .. }
            | Self::NoTensorsFor { .. }
            | Self::Rank { .. }
            | Self::NoMagnitude { .. }
            | Self::Magnitude { .. } => "`adapter_config.json` and the tensors are not from one adapter",
            Self::Scaling { .. } | Self::RankLimit { .. } | Self::Twice { .. } => return None,
        })
    }
}
