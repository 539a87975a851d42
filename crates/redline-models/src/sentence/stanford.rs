//! The rules of ColBERT as the library of its authors saves it, without a list of modules: `artifact.metadata`, and a layer beside the
//! encoder.

use std::path::Path;

use redline_kernels::Exec;
use redline_weights::{Checkpoint, ConfigFile, Dtype, SafetensorsWriter, TensorDeclaration};

use super::dense::linear;
use super::multi_vector::{self, DOCUMENT, MultiVectorRules, QUERY, QueryExpansion};
use super::{CONFIG, MODULES};
use crate::ModelError;
use crate::block::dense::DenseLayers;
use crate::family::positive;

/// In `config.json`.
pub(crate) const ARCHITECTURE: &str = "HF_ColBERT";
/// The layer that makes a vector of each state: `[dimensions, hidden]`.
pub(crate) const LAYER: &str = "linear.weight";
/// In converted directories: the file of that layer.
pub(crate) const LAYER_FILE: &str = "linear.safetensors";
/// What the model was trained with.
pub(crate) const METADATA: &str = "artifact.metadata";

/// Whether a directory holds such a model, and no modules.
pub(super) fn is_in(dir: &Path) -> Result<bool, ModelError> {
    if dir.join(MODULES).is_file() {
        return Ok(false);
    }
    let names = ConfigFile::open(&dir.join(CONFIG))?.strings("architectures")?;
    Ok(names.first().is_some_and(|name| name == ARCHITECTURE))
}

/// The layer as a file of its own, for a converted directory; `None` for any other model.
pub(crate) fn layer_file(dir: &Path, checkpoint: &Checkpoint) -> Result<Option<Vec<u8>>, ModelError> {
    if !is_in(dir)? {
        return Ok(None);
    }
    let [outputs, inputs] = shape(checkpoint)?;
    let mut values = vec![0f32; outputs * inputs];
    checkpoint.read_f32(LAYER, &mut values)?;
    let declared = TensorDeclaration::new(LAYER, Dtype::F32, [outputs, inputs]);
    let mut file = SafetensorsWriter::new(Vec::new(), &[declared])?;
    file.write_f32(&values)?;
    Ok(Some(file.finish()?))
}

fn shape(checkpoint: &Checkpoint) -> Result<[usize; 2], ModelError> {
    match checkpoint.info(LAYER).map(|info| &*info.shape) {
        Some(&[outputs, inputs]) if outputs > 0 => Ok([outputs, inputs]),
        _ => Err(ModelError::Config {
            fact: format!("`{ARCHITECTURE}` needs the layer `{LAYER}`, [dimensions, hidden]"),
            file: checkpoint.origin().display().to_string(),
        }),
    }
}

/// Reads the rules of such a model with states of `hidden` values.
pub(super) fn read(exec: Exec<'_>, dir: &Path, hidden: usize) -> Result<MultiVectorRules, ModelError> {
    let converted = dir.join(LAYER_FILE);
    let checkpoint =
        if converted.is_file() { Checkpoint::open_file(&converted)? } else { Checkpoint::open(dir)? };
    let [outputs, _] = shape(&checkpoint)?;
    let layer = linear(exec, &checkpoint, (LAYER, None), [hidden, outputs])?;
    let rules = MultiVectorRules {
        layers: DenseLayers::new(vec![layer]),
        normalise: true,
        ..MultiVectorRules::default()
    };
    settings(dir, outputs, rules)
}

/// Adds what `artifact.metadata` says; what it does not say is as in the library.
fn settings(dir: &Path, outputs: usize, mut rules: MultiVectorRules) -> Result<MultiVectorRules, ModelError> {
    let path = dir.join(METADATA);
    let config =
        if path.is_file() { ConfigFile::open(&path)? } else { ConfigFile::from_bytes(METADATA, b"{}")? };
    for (key, supported) in [("similarity", "cosine"), ("interaction", "colbert")] {
        if config.opt_str(key)?.is_some_and(|given| given != supported) {
            return Err(config.refuse(key, format!("`{supported}`")).into());
        }
    }
    if config.usize_or("dim", outputs)? != outputs {
        return Err(config.refuse("dim", format!("{outputs}, the rows of `{LAYER}`")).into());
    }
    let count = |key, default| config.opt_usize(key)?.map_or(Ok(default), |_| positive(&config, key));
    for (task, key, default) in
        [(QUERY, "query_token_id", "[unused0]"), (DOCUMENT, "doc_token_id", "[unused1]")]
    {
        rules.markers.insert(task.to_owned(), config.opt_str(key)?.unwrap_or(default).to_owned());
    }
    rules.lengths.insert(DOCUMENT.to_owned(), count("doc_maxlen", 220)?);
    rules.expansion = Some(QueryExpansion {
        length: count("query_maxlen", multi_vector::QUERY_LENGTH)?,
        is_fixed: true,
        is_seen: config.bool_or("attend_to_mask_tokens", false)?,
        token: multi_vector::filler(dir, None)?,
    });
    if config.bool_or("mask_punctuation", true)? {
        multi_vector::skip_punctuation(&mut rules);
    }
    Ok(rules)
}
