//! How a text becomes weights of tokens of the vocabulary, most of which are zero.

use std::path::Path;
use std::sync::Arc;

use redline_kernels::Exec;
use redline_kernels::op::activation::ActivationFunction;
use redline_weights::{Checkpoint, ConfigFile};

use super::CONFIG;
use super::dense::linear;
use crate::ModelError;
use crate::block::dense::DenseLayers;
use crate::element::dense::DenseLayer;

/// Beside the modules of bge-m3: the layer that weighs a text's own tokens.
pub(super) const TOKEN_WEIGHTS: &str = "sparse_linear.pt";

/// How a text becomes weights of tokens.
#[derive(Debug)]
pub enum SparseRules {
    /// By the logits of all its tokens over the vocabulary (SPLADE, Formal et al. 2021).
    Logits(LogitPooling),
    /// Tokens of the text weigh what a layer of one output makes of their states, each the most that it is given (BGE-M3, Chen et al.
    /// 2024).
    Tokens {
        /// The layer.
        layers: Arc<DenseLayers>,
        /// The tokens that begin and end texts, or fill them up, and weigh nothing. That for the unknown, whose id the tokenizer knows,
        /// does not either.
        weightless: Vec<u32>,
    },
}

/// How logits become weights: `ln(1 + max(0, x))` of the largest one that any token of the text gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogitPooling {
    /// Whether the weights that all tokens give are added, instead of the largest one.
    pub sum: bool,
    /// Whether `ln(1 + x)` is taken twice (OpenSearch).
    pub twice: bool,
}

/// Reads the configuration of `SpladePooling`.
pub(super) fn read_pooling(config: &Path) -> Result<LogitPooling, ModelError> {
    let config = ConfigFile::open(config)?;
    let sum = match config.opt_str("pooling_strategy")? {
        None | Some("max") => false,
        Some("sum") => true,
        Some(_) => return Err(config.refuse("pooling_strategy", "`max` or `sum`").into()),
    };
    let twice = match config.opt_str("activation_function")? {
        None | Some("relu") => false,
        Some("log1p_relu") => true,
        Some(_) => return Err(config.refuse("activation_function", "`relu` or `log1p_relu`").into()),
    };
    Ok(LogitPooling { sum, twice })
}

/// The layer that weighs tokens, if the directory has one.
pub(super) fn read_token_weights(
    exec: Exec<'_>,
    dir: &Path,
    hidden: usize,
) -> Result<Option<SparseRules>, ModelError> {
    let path = dir.join(TOKEN_WEIGHTS);
    if !path.is_file() {
        return Ok(None);
    }
    let checkpoint = Checkpoint::open_pytorch(&path)?;
    let layer = linear(exec, &checkpoint, ("weight", Some("bias")), [hidden, 1])?;
    let layer = DenseLayer { activation: ActivationFunction::Relu, ..layer };
    let config = ConfigFile::open(&dir.join(CONFIG))?;
    let keys = ["bos_token_id", "eos_token_id", "pad_token_id"];
    let weightless = keys.map(|key| config.ids(key)).into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    Ok(Some(SparseRules::Tokens { layers: Arc::new(DenseLayers::new(vec![layer])), weightless }))
}
