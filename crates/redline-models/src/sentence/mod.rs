//! What an embedding model makes of a text: `modules.json` of sentence-transformers, and the files it names.

mod cross_encoder;
mod dense;
mod gguf;
mod multi_vector;
mod sparse;
pub(crate) mod stanford;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use redline_kernels::Exec;
use redline_weights::ConfigFile;

use crate::ModelError;
use crate::spec::DecoderSpec;
use multi_vector::Library;

pub use cross_encoder::{LogitScore, logit_score};
pub use dense::DenseRules;
pub(crate) use gguf::files_of_gguf;
pub use gguf::of_gguf;
pub use multi_vector::{DOCUMENT, MultiVectorRules, QUERY, QueryExpansion};
pub use sparse::{LogitPooling, SparseRules};

/// What an embedding model makes of a text.
#[derive(Debug, Default)]
pub struct SentenceRules {
    /// How the states of a text become one vector, if they do.
    pub dense: Option<DenseRules>,
    /// How a text becomes weights of tokens of the vocabulary, if it does.
    pub sparse: Option<SparseRules>,
    /// How a text becomes a vector for each of its tokens, if it does.
    pub multi_vector: Option<Arc<MultiVectorRules>>,
    /// Texts that are put before a text, by the name of a task (`query`, `document`).
    pub prompts: BTreeMap<String, String>,
    /// The task of a text whose task is not named.
    pub default_prompt: Option<String>,
    /// Maximum number of tokens of a text, special tokens included, if it is less than the context.
    pub max_tokens: Option<usize>,
    /// Whether texts are changed to lower case.
    pub lower_case: bool,
}

/// The list of modules.
pub const MODULES: &str = "modules.json";
/// The library's own configuration.
const LIBRARY: &str = "config_sentence_transformers.json";
/// The configuration of the first module.
const LIMITS: &str = "sentence_bert_config.json";
/// Files of a module, in a folder of its own.
const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

/// A file of a module: in a folder of its own, or in a converted directory, which has no folders, beside the others with the
/// folder's name before its own.
fn file_of(dir: &Path, module: &str, name: &str) -> PathBuf {
    let flat = dir.join(flat_name(module, name));
    if flat.is_file() { flat } else { dir.join(module).join(name) }
}

fn flat_name(module: &str, name: &str) -> String {
    format!("{module}.{name}")
}

/// The name of a module's folder, which lies in the model directory; empty if it has none.
fn folder(module: &ConfigFile) -> Result<&str, ModelError> {
    let path = module.opt_str("path")?.unwrap_or_default();
    let mut parts = Path::new(path).components();
    match (parts.next(), parts.next()) {
        (None, _) => Ok(""),
        (Some(Component::Normal(name)), None) => Ok(name.to_str().unwrap_or(path)),
        _ => Err(module.refuse("path", "the name of a folder").into()),
    }
}

/// The files that modules have in folders of a model directory, with their names in a converted one.
pub(crate) fn files(dir: &Path) -> Result<Vec<(PathBuf, String)>, ModelError> {
    let mut all = Vec::new();
    if !dir.join(MODULES).is_file() {
        return Ok(all);
    }
    let at_the_root =
        [sparse::TOKEN_WEIGHTS, multi_vector::TOKEN_VECTORS].map(|name| (dir.join(name), name.to_owned()));
    all.extend(at_the_root.into_iter().filter(|(path, _)| path.is_file()));
    for module in ConfigFile::open_list(&dir.join(MODULES))? {
        let folder = folder(&module)?;
        for name in [CONFIG, WEIGHTS] {
            let path = dir.join(folder).join(name);
            if !folder.is_empty() && path.is_file() {
                all.push((path, flat_name(folder, name)));
            }
        }
    }
    Ok(all)
}

/// The forms of vectors that a model makes of texts without being told how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// One vector.
    pub dense: bool,
    /// Weights of tokens.
    pub sparse: bool,
    /// A vector for each token.
    pub multi_vector: bool,
}

/// The forms of vectors that the model in a directory makes.
pub fn forms(dir: &Path, spec: &DecoderSpec) -> Result<Forms, ModelError> {
    let has_head = spec.has_mask_head();
    if !is_in(dir)? {
        return Ok(Forms { sparse: has_head, multi_vector: stanford::is_in(dir)?, ..Forms::default() });
    }
    let is_pooling = |module: &ConfigFile| Ok(module.str("type")?.rsplit('.').next() == Some("Pooling"));
    let modules = ConfigFile::open_list(&dir.join(MODULES))?;
    let pools = modules.iter().map(is_pooling).collect::<Result<Vec<bool>, ModelError>>()?;
    let is_multi_vector = Library::of(library(dir)?.as_ref())?.is_some();
    Ok(Forms {
        dense: pools.contains(&true),
        sparse: has_head || dir.join(sparse::TOKEN_WEIGHTS).is_file(),
        multi_vector: is_multi_vector || dir.join(multi_vector::TOKEN_VECTORS).is_file(),
    })
}

/// Whether a model directory has rules.
fn is_in(dir: &Path) -> Result<bool, ModelError> {
    Ok(dir.join(MODULES).is_file() && !cross_encoder::is_in(dir)?)
}

/// Reads the rules in the directory of a model with states of `hidden` values. `has_head` says whether it is an encoder that makes logits;
/// without rules, it makes sparse vectors of them as SPLADE does.
pub fn read(
    exec: Exec<'_>,
    dir: &Path,
    (hidden, has_head): (usize, bool),
) -> Result<Option<SentenceRules>, ModelError> {
    let of_head = has_head.then(|| SparseRules::Logits(LogitPooling::default()));
    if stanford::is_in(dir)? {
        let multi_vector = Some(Arc::new(stanford::read(exec, dir, hidden)?));
        return Ok(Some(SentenceRules { multi_vector, ..SentenceRules::default() }));
    }
    if !is_in(dir)? {
        return Ok(of_head.map(|sparse| SentenceRules { sparse: Some(sparse), ..SentenceRules::default() }));
    }
    let modules = ConfigFile::open_list(&dir.join(MODULES))?;
    let mut rules = SentenceRules::default();
    (rules.max_tokens, rules.lower_case) = read_limits(dir)?;
    (rules.prompts, rules.default_prompt) = read_prompts(dir)?;
    let library = library(dir)?;
    if let (Some(kind), Some(config)) = (Library::of(library.as_ref())?, &library) {
        let of_tokens = multi_vector::read(exec, dir, (kind, config), &modules, hidden)?;
        for (task, marker) in &of_tokens.markers {
            // The prompt of a task may begin with its marker.
            if let Some(rest) = rules.prompts.get(task).and_then(|prompt| prompt.strip_prefix(marker)) {
                rules.prompts.insert(task.clone(), rest.to_owned());
            }
        }
        rules.multi_vector = Some(Arc::new(of_tokens));
        rules.sparse = of_head;
        return Ok(Some(rules));
    }
    let mut width = hidden;
    for (index, module) in modules.iter().enumerate() {
        let kind = module.str("type")?;
        let file = |name| Ok::<_, ModelError>(file_of(dir, folder(module)?, name));
        match (kind.rsplit('.').next(), &mut rules.dense) {
            (Some("Transformer" | "MLMTransformer"), _) if index == 0 => {}
            (Some("Pooling"), dense) if index == 1 => *dense = Some(dense::read_pooling(&file(CONFIG)?)?),
            (Some("Dense"), Some(dense)) if !dense.normalise => {
                let files = [&*file(CONFIG)?, &*file(WEIGHTS)?];
                let input = Some("sentence_embedding");
                dense.layers.push(dense::read_layer(exec, files, input, &mut width)?);
            }
            (Some("Normalize"), Some(dense)) => dense.normalise = true,
            (Some("SpladePooling"), _) if index == 1 => {
                if !has_head {
                    let fact = "`SpladePooling` needs the head of a model that fills masks, which the checkpoint lacks";
                    let file = dir.join(MODULES).display().to_string();
                    return Err(ModelError::Config { fact: fact.to_owned(), file });
                }
                rules.sparse = Some(SparseRules::Logits(sparse::read_pooling(&file(CONFIG)?)?));
            }
            _ => {
                let supported =
                    "`Transformer` and `Pooling`, `Dense` and `Normalize`, in this order, or `SpladePooling`";
                return Err(module.refuse("type", supported).into());
            }
        }
    }
    if rules.dense.is_none() && rules.sparse.is_none() {
        let fact = "no module says what a text becomes (`Pooling` or `SpladePooling`)".to_owned();
        return Err(ModelError::Config { fact, file: dir.join(MODULES).display().to_string() });
    }
    rules.sparse = sparse::read_token_weights(exec, dir, hidden)?.or(rules.sparse).or(of_head);
    rules.multi_vector = multi_vector::read_token_vectors(exec, dir, hidden)?.map(Arc::new);
    Ok(Some(rules))
}

/// The library's own configuration, if there is one.
fn library(dir: &Path) -> Result<Option<ConfigFile>, ModelError> {
    let path = dir.join(LIBRARY);
    Ok(if path.is_file() { Some(ConfigFile::open(&path)?) } else { None })
}

/// Maximum number of tokens, and whether texts are changed to lower case.
fn read_limits(dir: &Path) -> Result<(Option<usize>, bool), ModelError> {
    let path = dir.join(LIMITS);
    if !path.is_file() {
        return Ok((None, false));
    }
    let config = ConfigFile::open(&path)?;
    let most = config.opt_usize("max_seq_length")?;
    if most == Some(0) {
        return Err(config.refuse("max_seq_length", "at least 1, or `null`").into());
    }
    Ok((most, config.bool_or("do_lower_case", false)?))
}

/// The prompts by their names, and the name of the default one.
fn read_prompts(dir: &Path) -> Result<(BTreeMap<String, String>, Option<String>), ModelError> {
    let Some(config) = library(dir)? else { return Ok((BTreeMap::new(), None)) };
    let mut prompts = BTreeMap::new();
    if let Some(all) = config.object("prompts")? {
        for name in all.keys() {
            prompts.insert(name.to_owned(), all.str(name)?.to_owned());
        }
    }
    let default = config.opt_str("default_prompt_name")?.map(str::to_owned);
    match &default {
        Some(name) if !prompts.contains_key(name) => {
            Err(config.refuse("default_prompt_name", "the name of one of the `prompts`").into())
        }
        _ => Ok((prompts, default)),
    }
}
