//! Errors of loading and converting models.

use redline_kernels::OutOfMemory;
use redline_settings::{Command, Hint, Setting, hint};
use redline_weights::WeightsError;

/// Why a checkpoint cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be read, or its contents are invalid.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The configuration names an architecture that is not in the list.
    #[error("architecture `{name}` is not known\n  in `{file}`")]
    UnknownArchitecture {
        /// The name in the configuration.
        name: String,
        /// The configuration.
        file: String,
        /// The names of all architectures.
        known: Vec<&'static str>,
    },
    /// The checkpoint holds tensors that no part of the architecture reads.
    #[error("{count} tensors are not part of this architecture: {names}\n  in `{file}`")]
    UnexpectedTensors {
        /// The number of tensors.
        count: usize,
        /// The first few names.
        names: String,
        /// The checkpoint.
        file: String,
    },
    /// Two configuration values contradict each other or exceed the limits of the kernels.
    #[error("{fact}\n  in `{file}`")]
    Config {
        /// What is wrong, with the numbers.
        fact: String,
        /// The configuration.
        file: String,
    },
    /// A weight is beyond the range of the requested format.
    #[error("`{name}` holds {magnitude:e}, but {format} holds at most {largest:e}")]
    TooLarge {
        /// The tensor.
        name: String,
        /// The largest magnitude in it.
        magnitude: f32,
        /// The format.
        format: String,
        /// Its largest magnitude.
        largest: f32,
    },
    /// Outlier columns were requested for a converted directory, which fixes them already.
    #[error("this model is converted: which columns it keeps apart is decided\n  in `{dir}`")]
    PackedOutliers {
        /// The directory.
        dir: String,
    },
    /// A model that is not converted was to be mapped.
    #[error(
        "only the weights of a converted model can be mapped, since others are packed when they are loaded"
    )]
    UnpackedMap,
    /// The directory to convert is a converted one already.
    #[error("this model is converted already\n  in `{dir}`")]
    AlreadyConverted {
        /// The directory.
        dir: String,
    },
    /// An adapter was to be merged into a converted directory.
    #[error("this model is converted: an adapter is merged into weights as they were trained\n  in `{dir}`")]
    MergeConverted {
        /// The directory.
        dir: String,
    },
    /// An adapter was to be merged into a GGUF file.
    #[error(
        "this model is a GGUF file: an adapter is merged into weights as they were trained\n  in `{file}`"
    )]
    MergeGguf {
        /// The file, or its directory.
        file: String,
    },
    /// A DoRA adapter was to be merged with a scale.
    #[error(
        "the adapter rescales the weights that it changes (DoRA), so it has no scale of {scale}\n  in `{adapter}`"
    )]
    MergeScale {
        /// The scale.
        scale: f32,
        /// The adapter's directory.
        adapter: String,
    },
    /// An adapter was to be merged into a tensor that is embedding and head.
    #[error(
        "module `{module}` is the {changed}, which the adapter changes alone, but in this model it is one tensor with the {other}"
    )]
    MergeTied {
        /// The path of the module.
        module: String,
        /// What the module is.
        changed: &'static str,
        /// What the same tensor is, too.
        other: &'static str,
    },
    /// A converted adapter belongs to a model in another format.
    #[error("the adapter was converted for {found} weights, but this model has {needed}\n  in `{dir}`")]
    AdapterFormat {
        /// The format of the model that it was converted for.
        found: String,
        /// The format of this model.
        needed: String,
        /// The adapter's directory.
        dir: String,
    },
    /// An adapter was to be loaded beside a model in which projections of one input have different formats.
    #[error("adapters need one format for {site} of a layer, but layer {layer} has {formats}")]
    MixedFormats {
        /// Number of the layer.
        layer: usize,
        /// The linear layer.
        site: &'static str,
        /// The formats.
        formats: String,
    },
    /// A converted adapter has a weight of a module that this model lacks.
    #[error("`{name}` belongs to no module of this model\n  in `{dir}`")]
    AdapterModule {
        /// The weight.
        name: String,
        /// The adapter's directory.
        dir: String,
    },
    /// A converted adapter belongs to another model.
    #[error("the adapter was converted for other weights than those of this model\n  in `{dir}`")]
    AdapterBase {
        /// The adapter's directory.
        dir: String,
    },
    /// An adapter of a model whose weights were multiplied by factors.
    #[error(
        "the weights of this model were multiplied by its factors, which an adapter of its checkpoint lacks\n  in `{file}`"
    )]
    AdapterFactors {
        /// The adapter's file.
        file: String,
    },
    /// An adapter changes a projection of the relative position embeddings, which loading computes.
    #[error(
        "module `{module}` projects the relative position embeddings too, which was done when the model was loaded\n  in `{file}`"
    )]
    AdapterPositions {
        /// The path of the module.
        module: String,
        /// The adapter's file.
        file: String,
    },
    /// The requested format differs from the format of a converted directory.
    #[error("this model is converted to {format}; {wanted} cannot be made of it\n  in `{dir}`")]
    Converted {
        /// The directory's format.
        format: String,
        /// The requested format.
        wanted: String,
        /// The directory.
        dir: String,
    },
    /// The caller cancelled the conversion.
    #[error("cancelled")]
    Cancelled,
    /// The operating system refused memory.
    #[error("{0}")]
    Memory(#[from] OutOfMemory),
    /// A shape name that `synth` does not know.
    #[error("there is no shape `{name}`")]
    UnknownShape {
        /// The name.
        name: String,
        /// The names of all shapes.
        known: Vec<&'static str>,
    },
}

impl ModelError {
    /// Returns an error that names the first few unexpected tensors, if there are any.
    pub(crate) fn refuse_unexpected<'a>(
        names: impl Iterator<Item = &'a str>,
        file: &std::path::Path,
    ) -> Result<(), Self> {
        let mut unexpected: Vec<&str> = names.collect();
        if unexpected.is_empty() {
            return Ok(());
        }
        unexpected.sort_unstable();
        let shown = unexpected.iter().take(4).map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        let names = if unexpected.len() > 4 { format!("{shown}, ...") } else { shown };
        Err(Self::UnexpectedTensors { count: unexpected.len(), names, file: file.display().to_string() })
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<Hint> {
        match self {
            Self::Weights(e) => e.hint(),
            Self::UnknownArchitecture { known, .. } => {
                Some(format!("known architectures: {}", known.join(", ")).into())
            }
            Self::UnexpectedTensors { .. } => Some(
                "`config.json` describes another variant (layers, biases, tied head) than these weights"
                    .into(),
            ),
            Self::UnknownShape { known, .. } => Some(format!("shapes: {}", known.join(", ")).into()),
            Self::Memory(_) => {
                Some(hint!["use a smaller ", Setting::Format, ", or a machine with more memory"])
            }
            Self::TooLarge { .. } => Some("hold it as f32 or bf16".into()),
            Self::PackedOutliers { .. } => {
                Some(hint![Setting::Outliers.unset(), ", or convert again with it"])
            }
            Self::UnpackedMap => {
                Some(hint![Setting::Mmap.unset(), ", or use a directory that ", Command::Convert, " wrote"])
            }
            Self::Converted { .. } => {
                Some(hint![Setting::Format.unset(), ", or load the model that was converted"])
            }
            Self::AlreadyConverted { .. } => Some("convert the model that it was made of".into()),
            Self::MergeConverted { .. } | Self::MergeGguf { .. } => {
                Some("merge into the model that it was made of, and convert the result".into())
            }
            Self::AdapterFormat { .. } | Self::AdapterModule { .. } | Self::AdapterBase { .. } => Some(
                "convert the adapter again for this model, or load the directory that was converted".into(),
            ),
            Self::AdapterFactors { .. } => {
                Some("load the checkpoint that the GGUF file was made from".into())
            }
            Self::AdapterPositions { .. } => Some("merge the adapter into the checkpoint of its base".into()),
            Self::MixedFormats { .. } => Some(hint!["load the model with ", Setting::Format.to("w8")]),
            Self::MergeScale { .. } => Some("use scale 1".into()),
            Self::MergeTied { .. } => {
                Some(hint!["merged, both would change; load it beside the model with ", Setting::Adapter])
            }
            Self::Config { .. } | Self::Cancelled => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn up_to_four_unexpected_tensors_are_named_in_order() {
        let refused = |names: &[&str]| {
            let refused = ModelError::refuse_unexpected(names.iter().copied(), Path::new("model"));
            refused.err().map(|error| error.to_string())
        };
        let fact = |fact: &str| Some(format!("{fact}\n  in `model`"));
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&["b"]), fact("1 tensors are not part of this architecture: `b`"));
        let four = "4 tensors are not part of this architecture: `a`, `b`, `c`, `d`";
        assert_eq!(refused(&["d", "b", "c", "a"]), fact(four));
        let five = "5 tensors are not part of this architecture: `a`, `b`, `c`, `d`, ...";
        assert_eq!(refused(&["d", "b", "e", "c", "a"]), fact(five));
    }
}
