//! How an embedding model makes one vector of a text: `modules.json` of sentence-transformers, and the files it names.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::{Buffer, Exec, Format, Matrix};
use redline_settings::Pooling;
use redline_weights::{Checkpoint, ConfigFile, Gguf};

use crate::ModelError;
use crate::block::pooled::{DenseLayer, PooledLayers};
use crate::family;
use crate::step::padded;

/// How an embedding model makes one vector of a text.
#[derive(Debug)]
pub struct SentenceRules {
    /// How the states of a text become one vector.
    pub pooling: Pooling,
    /// Layers on that vector; may be none.
    pub layers: PooledLayers,
    /// Whether the vector is divided by its length.
    pub normalise: bool,
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

/// Whether a model directory has rules.
pub fn is_in(dir: &Path) -> Result<bool, ModelError> {
    Ok(dir.join(MODULES).is_file() && !is_cross_encoder(dir)?)
}

/// Reads the rules in a model directory; `None` if it has none. `hidden` is the width of the model's states.
pub fn read(exec: Exec<'_>, dir: &Path, hidden: usize) -> Result<Option<SentenceRules>, ModelError> {
    if !is_in(dir)? {
        return Ok(None);
    }
    let modules = ConfigFile::open_list(&dir.join(MODULES))?;
    let (mut pooling, mut normalise, mut layers, mut width) = (None, false, Vec::new(), hidden);
    for (index, module) in modules.iter().enumerate() {
        let kind = module.str("type")?;
        let file = |name| Ok::<_, ModelError>(file_of(dir, folder(module)?, name));
        match kind.rsplit('.').next() {
            Some("Transformer") if index == 0 => {}
            Some("Pooling") if index == 1 => pooling = Some(read_pooling(&file(CONFIG)?)?),
            Some("Dense") if pooling.is_some() && !normalise => {
                layers.push(read_dense(exec, [&file(CONFIG)?, &file(WEIGHTS)?], &mut width)?);
            }
            Some("Normalize") if pooling.is_some() => normalise = true,
            _ => {
                let supported = "`Transformer`, `Pooling`, `Dense` and `Normalize`, in this order";
                return Err(module.refuse("type", supported).into());
            }
        }
    }
    let Some(pooling) = pooling else {
        let fact = "no module says how the states of a text become one vector (`Pooling`)".to_owned();
        return Err(ModelError::Config { fact, file: dir.join(MODULES).display().to_string() });
    };
    let (max_tokens, lower_case) = read_limits(dir)?;
    let (prompts, default_prompt) = read_prompts(dir)?;
    let layers = PooledLayers::new(layers);
    Ok(Some(SentenceRules { pooling, layers, normalise, prompts, default_prompt, max_tokens, lower_case }))
}

/// `{architecture}.pooling_type` in GGUF files: how the states of a text become one vector, its number there, and its name in
/// configurations of sentence-transformers.
const POOLINGS: [(u32, Pooling, &str); 3] =
    [(1, Pooling::Mean, "mean"), (2, Pooling::First, "cls"), (3, Pooling::Last, "lasttoken")];

fn gguf_pooling(gguf: &Gguf) -> Result<Option<(Pooling, &'static str)>, ModelError> {
    let metadata = gguf.metadata();
    let key = format!("{}.pooling_type", metadata.string("general.architecture")?);
    match metadata.opt_u32(&key)? {
        // None, and that of a classifier.
        None | Some(0 | 4) => Ok(None),
        Some(number) => match POOLINGS.iter().find(|(known, ..)| *known == number) {
            Some((_, pooling, name)) => Ok(Some((*pooling, name))),
            None => Err(metadata.refuse(&key, "a number from 0 to 4").into()),
        },
    }
}

/// The rules of a GGUF file; `None` if it has none. It does not say whether vectors are divided by their length: they are, as in
/// llama.cpp.
pub fn of_gguf(gguf: &Gguf) -> Result<Option<SentenceRules>, ModelError> {
    Ok(gguf_pooling(gguf)?.map(|(pooling, _)| SentenceRules {
        pooling,
        layers: PooledLayers::default(),
        normalise: true,
        prompts: BTreeMap::new(),
        default_prompt: None,
        max_tokens: None,
        lower_case: false,
    }))
}

/// The files by which a converted directory has the rules of a GGUF file.
pub(crate) fn files_of_gguf(gguf: &Gguf) -> Result<Vec<(&'static str, Vec<u8>)>, ModelError> {
    let Some((_, name)) = gguf_pooling(gguf)? else { return Ok(Vec::new()) };
    let kinds = ["Transformer", "Pooling", "Normalize"];
    let modules = kinds.iter().enumerate().map(|(index, kind)| {
        let path = if index == 0 { String::new() } else { format!("{index}_{kind}") };
        format!(
            r#"{{"idx": {index}, "name": "{index}", "path": "{path}", "type": "sentence_transformers.models.{kind}"}}"#
        )
    });
    let modules = format!("[{}]\n", modules.collect::<Vec<_>>().join(", "));
    let pooling = format!("{{\"pooling_mode\": \"{name}\"}}\n");
    Ok(vec![(MODULES, modules.into_bytes()), ("1_Pooling.config.json", pooling.into_bytes())])
}

fn read_pooling(config: &Path) -> Result<Pooling, ModelError> {
    const MODES: [(&str, &str, Option<Pooling>); 7] = [
        ("pooling_mode_cls_token", "cls", Some(Pooling::First)),
        ("pooling_mode_mean_tokens", "mean", Some(Pooling::Mean)),
        ("pooling_mode_lasttoken", "lasttoken", Some(Pooling::Last)),
        ("pooling_mode_max_tokens", "max", None),
        ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", None),
        ("pooling_mode_weightedmean_tokens", "weightedmean", None),
        ("pooling_mode_weightedmean", "weightedmean", None),
    ];
    let config = ConfigFile::open(config)?;
    if !config.bool_or("include_prompt", true)? {
        return Err(config.refuse("include_prompt", "`true`").into());
    }
    let supported = "one of `cls`, `mean` and `lasttoken`";
    if let Some(mode) = config.opt_str("pooling_mode")? {
        let found = MODES.iter().find(|(_, name, _)| *name == mode).and_then(|(_, _, pooling)| *pooling);
        return found.ok_or_else(|| config.refuse("pooling_mode", supported).into());
    }
    let mut pooling = None;
    for (key, _, found) in MODES {
        if config.bool_or(key, false)? {
            if pooling.is_some() || found.is_none() {
                return Err(config.refuse(key, supported).into());
            }
            pooling = found;
        }
    }
    // As in the library, the mean if nothing is said.
    Ok(pooling.unwrap_or(Pooling::Mean))
}

/// Whether the modules judge pairs of texts, and embed none.
fn is_cross_encoder(dir: &Path) -> Result<bool, ModelError> {
    let path = dir.join(LIBRARY);
    Ok(path.is_file() && ConfigFile::open(&path)?.opt_str("model_type")? == Some("CrossEncoder"))
}

/// What a cross-encoder compares: the logits of two tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogitScore {
    /// Id of the token that the model writes for a relevant document.
    pub yes: u32,
    /// Id of the one that it writes for an irrelevant document.
    pub no: u32,
    /// The default prompt.
    pub prompt: Option<String>,
}

/// Reads what the cross-encoder in a model directory compares; `None` if it is none, or one with a classifier.
pub fn logit_score(dir: &Path) -> Result<Option<LogitScore>, ModelError> {
    if !dir.join(MODULES).is_file() || !is_cross_encoder(dir)? {
        return Ok(None);
    }
    for module in ConfigFile::open_list(&dir.join(MODULES))? {
        if module.str("type")?.rsplit('.').next() != Some("LogitScore") {
            continue;
        }
        let config = ConfigFile::open(&file_of(dir, folder(&module)?, CONFIG))?;
        let id = |key: &str| match config.ids(key)?[..] {
            [id] => Ok(id),
            _ => Err(config.refuse(key, "one id")),
        };
        let (mut prompts, default) = read_prompts(dir)?;
        let prompt = default.and_then(|name| prompts.remove(&name));
        return Ok(Some(LogitScore { yes: id("true_token_id")?, no: id("false_token_id")?, prompt }));
    }
    Ok(None)
}

/// A dense layer of `width` inputs; `width` becomes its number of outputs.
fn read_dense(
    exec: Exec<'_>,
    [config, weights]: [&Path; 2],
    width: &mut usize,
) -> Result<DenseLayer, ModelError> {
    let config = ConfigFile::open(config)?;
    if config.usize("in_features")? != *width {
        return Err(config.refuse("in_features", format!("`{width}`, as many as there are")).into());
    }
    for key in ["use_residual", "module_input_name", "module_output_name"] {
        let is_default =
            config.opt_str(key).is_ok_and(|name| matches!(name, None | Some("sentence_embedding")));
        if !is_default && config.opt_bool(key).ok() != Some(Some(false)) {
            return Err(config.refuse(key, "no such key").into());
        }
    }
    let outputs = family::positive(&config, "out_features")?;
    let activation = match config.opt_str("activation_function")?.and_then(|name| name.rsplit('.').next()) {
        Some("Identity") => ActivationFunction::None,
        None | Some("Tanh") => ActivationFunction::Tanh,
        Some("GELU") => ActivationFunction::Gelu,
        Some("SiLU") => ActivationFunction::Silu,
        Some("ReLU") => ActivationFunction::Relu,
        Some(_) => {
            return Err(config
                .refuse("activation_function", "`Identity`, `Tanh`, `GELU`, `ReLU` or `SiLU`")
                .into());
        }
    };
    let checkpoint = Checkpoint::open_file(weights)?;
    checkpoint.require("linear.weight", &[outputs, *width])?;
    let mut values = vec![0f32; outputs * *width];
    checkpoint.read_f32("linear.weight", &mut values)?;
    let mut weights = Matrix::zeroed(Format::F32, outputs, *width)?;
    weights.set_rows(exec, 0, &values);
    let bias = if config.bool_or("bias", true)? {
        checkpoint.require("linear.bias", &[outputs])?;
        let mut bias = Buffer::zeroed(padded(outputs))?;
        checkpoint.read_f32("linear.bias", &mut bias[..outputs])?;
        Some(bias)
    } else {
        None
    };
    *width = outputs;
    Ok(DenseLayer { weights, bias, activation, norm: None })
}

/// Maximum number of tokens, and whether texts are changed to lower case.
fn read_limits(dir: &Path) -> Result<(Option<usize>, bool), ModelError> {
    let path = dir.join("sentence_bert_config.json");
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
    let path = dir.join(LIBRARY);
    if !path.is_file() {
        return Ok((BTreeMap::new(), None));
    }
    let config = ConfigFile::open(&path)?;
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
