//! How a text becomes a vector for each of its tokens: late interaction (ColBERT, Khattab and Zaharia 2020).

use std::collections::BTreeMap;
use std::path::Path;

use redline_kernels::Exec;
use redline_weights::{Checkpoint, ConfigFile};

use super::dense::{self, linear};
use super::{CONFIG, LIMITS, WEIGHTS, file_of, folder};
use crate::ModelError;
use crate::block::dense::DenseLayers;
use crate::family::positive;

/// Beside the modules of bge-m3: the layer that makes a vector of each state.
pub(super) const TOKEN_VECTORS: &str = "colbert_linear.pt";
/// The task of a text that is searched for.
pub const QUERY: &str = "query";
/// The task of a text that is searched in.
pub const DOCUMENT: &str = "document";
/// `string.punctuation` of Python, which PyLate leaves out of documents.
const PUNCTUATION: &str = r##"!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"##;
/// Most tokens of a query that is filled up, where a file of PyLate says nothing.
pub(super) const QUERY_LENGTH: usize = 32;

/// How a text becomes a vector for each of its tokens.
#[derive(Debug, Default)]
pub struct MultiVectorRules {
    /// Layers on each state.
    pub layers: DenseLayers,
    /// Whether each vector is divided by its length.
    pub normalise: bool,
    /// Whether the first token has no vector.
    pub skips_first: bool,
    /// Tokens that have no vector in texts of the tasks `skipping`.
    pub skipped: Vec<String>,
    /// Tasks; a text without one is a document.
    pub skipping: Vec<String>,
    /// Most tokens of a text, special ones included, by its task.
    pub lengths: BTreeMap<String, usize>,
    /// What stands before a text as one token, after the tokens that begin every text, by its task. If the vocabulary has it not as a
    /// whole, its first word is meant, and if not that either, it is plain text.
    pub markers: BTreeMap<String, String>,
    /// How queries are filled up.
    pub expansion: Option<QueryExpansion>,
    /// Whether a similarity is divided by the number of the query's vectors.
    pub mean: bool,
}

/// How queries are filled up with tokens that get vectors too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryExpansion {
    /// Number of tokens that a query has at least, special ones included.
    pub length: usize,
    /// Whether it has no more.
    pub is_fixed: bool,
    /// Whether the tokens of the query see those that fill it up.
    pub is_seen: bool,
    /// The token that fills up.
    pub token: String,
}

/// How the modules of a library are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    SentenceTransformers,
    PyLate,
}

impl Library {
    /// The library whose modules make several vectors of a text, if they do.
    pub(super) fn of(config: Option<&ConfigFile>) -> Result<Option<Self>, ModelError> {
        Ok(match config.map(|config| config.opt_str("model_type")).transpose()?.flatten() {
            Some("MultiVectorEncoder") => Some(Self::SentenceTransformers),
            Some("ColBERT") => Some(Self::PyLate),
            _ => None,
        })
    }
}

/// Reads modules that make several vectors of a text.
pub(super) fn read(
    exec: Exec<'_>,
    dir: &Path,
    (library, config): (Library, &ConfigFile),
    modules: &[ConfigFile],
    hidden: usize,
) -> Result<MultiVectorRules, ModelError> {
    let mut rules = MultiVectorRules::default();
    let mut width = hidden;
    let mut has_mask = false;
    for (index, module) in modules.iter().enumerate() {
        let kind = module.str("type")?;
        let file = |name| Ok::<_, ModelError>(file_of(dir, folder(module)?, name));
        match kind.rsplit('.').next() {
            Some("Transformer") if index == 0 => {}
            Some("Dense") if index > 0 && !rules.normalise => {
                let input = if library == Library::PyLate { None } else { Some("token_embeddings") };
                let files = [&*file(CONFIG)?, &*file(WEIGHTS)?];
                rules.layers.push(dense::read_layer(exec, files, input, &mut width)?);
            }
            Some("MultiVectorMask") if index > 0 => {
                has_mask = true;
                read_mask(&ConfigFile::open(&file(CONFIG)?)?, &mut rules)?;
            }
            Some("Normalize") if index > 0 => {
                let config = ConfigFile::open(&file(CONFIG)?)?;
                if config.opt_str("module_input_name")? != Some("token_embeddings") {
                    return Err(config.refuse("module_input_name", "`token_embeddings`").into());
                }
                rules.normalise = true;
            }
            _ => {
                let supported = "`Transformer`, `Dense`, `MultiVectorMask` and `Normalize`";
                return Err(module.refuse("type", supported).into());
            }
        }
    }
    rules.mean = match config.opt_str("similarity_fn_name")? {
        Some("meanmaxsim") => true,
        // What a file of PyLate says is that of its base model.
        None | Some("maxsim" | "cosine" | "dot") => false,
        Some(_) => return Err(config.refuse("similarity_fn_name", "`maxsim` or `meanmaxsim`").into()),
    };
    match library {
        Library::PyLate => {
            rules.normalise = true;
            read_pylate(dir, config, !has_mask, &mut rules)?;
        }
        Library::SentenceTransformers if dir.join(LIMITS).is_file() => {
            let config = ConfigFile::open(&dir.join(LIMITS))?;
            read_lengths(&config, &[QUERY, DOCUMENT], &mut rules)?;
            if let Some(expansion) = config.object("query_expansion")? {
                rules.expansion = Some(QueryExpansion {
                    length: positive(&expansion, "length")?,
                    is_fixed: match expansion.opt_str("strategy")? {
                        Some("fixed") => true,
                        Some("min") => false,
                        _ => return Err(expansion.refuse("strategy", "`fixed` or `min`").into()),
                    },
                    is_seen: expansion.bool_or("attend", false)?,
                    token: filler(dir, expansion.opt_str("token")?)?,
                });
            }
        }
        Library::SentenceTransformers => {}
    }
    Ok(rules)
}

/// Which tokens have no vector.
fn read_mask(config: &ConfigFile, rules: &mut MultiVectorRules) -> Result<(), ModelError> {
    rules.skipped = config.strings("skiplist_words")?;
    rules.skipping = config.strings("skiplist_tasks")?;
    if rules.skipping.is_empty() {
        rules.skipping.push(DOCUMENT.to_owned());
    }
    if !config.ids("keep_only_token_ids")?.is_empty() {
        return Err(config.refuse("keep_only_token_ids", "`null`: it is for images").into());
    }
    Ok(())
}

fn read_lengths(config: &ConfigFile, tasks: &[&str], rules: &mut MultiVectorRules) -> Result<(), ModelError> {
    for task in tasks {
        let key = format!("{task}_length");
        if config.opt_usize(&key)?.is_some() {
            rules.lengths.insert((*task).to_owned(), positive(config, &key)?);
        }
    }
    Ok(())
}

/// What files of PyLate up to version 3 say beside their modules. `skips`: also which tokens have no vector.
fn read_pylate(
    dir: &Path,
    config: &ConfigFile,
    skips: bool,
    rules: &mut MultiVectorRules,
) -> Result<(), ModelError> {
    read_lengths(config, &[DOCUMENT], rules)?;
    for task in [QUERY, DOCUMENT] {
        if let Some(marker) = config.opt_str(&format!("{task}_prefix"))? {
            rules.markers.insert(task.to_owned(), marker.to_owned());
        }
    }
    if config.bool_or("do_query_expansion", true)? {
        rules.expansion = Some(QueryExpansion {
            length: config.opt_usize("query_length")?.filter(|length| *length > 0).unwrap_or(QUERY_LENGTH),
            is_fixed: true,
            is_seen: config.bool_or("attend_to_expansion_tokens", false)?,
            token: filler(dir, None)?,
        });
    } else {
        read_lengths(config, &[QUERY], rules)?;
    }
    if skips {
        skip_punctuation(rules);
        if config.keys().any(|key| key == "skiplist_words") {
            rules.skipped = config.strings("skiplist_words")?;
        }
    }
    Ok(())
}

/// Says that punctuation has no vectors in documents.
pub(super) fn skip_punctuation(rules: &mut MultiVectorRules) {
    rules.skipping = vec![DOCUMENT.to_owned()];
    rules.skipped = PUNCTUATION.chars().map(String::from).collect();
}

/// The token that fills up queries: the given one, or else the mask of the tokenizer, or else what ends its texts.
pub(super) fn filler(dir: &Path, given: Option<&str>) -> Result<String, ModelError> {
    if let Some(token) = given {
        return Ok(token.to_owned());
    }
    let config = ConfigFile::open(&dir.join("tokenizer_config.json"))?;
    for key in ["mask_token", "eos_token"] {
        let token = match config.object(key) {
            Ok(Some(token)) => Some(token.str("content")?.to_owned()),
            _ => config.opt_str(key)?.map(str::to_owned),
        };
        if let Some(token) = token {
            return Ok(token);
        }
    }
    Err(config.refuse("mask_token", "a token, which fills up queries").into())
}

/// The layer of bge-m3, if the directory has one.
pub(super) fn read_token_vectors(
    exec: Exec<'_>,
    dir: &Path,
    hidden: usize,
) -> Result<Option<MultiVectorRules>, ModelError> {
    let path = dir.join(TOKEN_VECTORS);
    if !path.is_file() {
        return Ok(None);
    }
    let checkpoint = Checkpoint::open_pytorch(&path)?;
    let outputs = checkpoint.info("weight").and_then(|info| info.shape.first().copied()).unwrap_or(hidden);
    let layer = linear(exec, &checkpoint, ("weight", Some("bias")), [hidden, outputs])?;
    Ok(Some(MultiVectorRules {
        layers: DenseLayers::new(vec![layer]),
        normalise: true,
        skips_first: true,
        mean: true,
        ..MultiVectorRules::default()
    }))
}
