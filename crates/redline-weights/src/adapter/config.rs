//! `adapter_config.json`: the configuration of a LoRA adapter, with PEFT's meaning of every key.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::by_module::{self, ByModule, check_count, refused};
use super::fault::AdapterFault;
use super::pattern::Expression;
use super::targets::{Names, Targets};
use crate::config::ConfigFile;
use crate::error::{Result, WeightsError};
use crate::file::read_file;

/// The longest configuration that is read, in bytes.
const MAX_CONFIG: u64 = 4 << 20;

/// Keys that are read here.
const HONOURED: &[&str] = &[
    "peft_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "use_dora",
    "rank_pattern",
    "alpha_pattern",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "bias",
    "init_lora_weights",
];

/// Keys that change nothing once the adapter is trained. PEFT sets `fan_in_fan_out` by the kind of each module, whatever the file
/// says. `lorap_*` are learning rates of ms-swift.
const WITHOUT_EFFECT: &[&str] = &[
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "eva_config",
    "fan_in_fan_out",
    "inference_mode",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "lorap_emb_lr",
    "lorap_lr_ratio",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// Values of `init_lora_weights` that leave the weights of the base model as they are.
const INITIAL: &[&str] = &["gaussian", "eva", "orthogonal", "mica"];

/// The configuration of a LoRA adapter.
#[derive(Debug, Clone)]
pub struct AdapterConfig {
    file: PathBuf,
    rank_stabilised: bool,
    dora: bool,
    base: Option<String>,
    targets: Targets,
    ranks: ByModule<usize>,
    alphas: ByModule<f64>,
}

impl AdapterConfig {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A key that would change the result and is not supported is refused by name.
    pub fn open(path: &Path) -> Result<Self> {
        Self::parse(path, &read_file(path, MAX_CONFIG)?)
    }

    /// Reads JSON held in memory; `origin` stands for its path in messages.
    pub fn from_bytes(origin: &str, json: &[u8]) -> Result<Self> {
        Self::parse(Path::new(origin), json)
    }

    /// The name or path of the model that the adapter was trained on (`base_model_name_or_path`), if the file has it.
    pub fn base_model(&self) -> Option<&str> {
        self.base.as_deref()
    }

    /// Whether every module has magnitudes (`use_dora`).
    pub fn dora(&self) -> bool {
        self.dora
    }

    /// Whether B A is scaled by alpha over the root of the rank instead of the rank (`use_rslora`).
    pub fn rank_stabilised(&self) -> bool {
        self.rank_stabilised
    }

    /// Whether the module of this path is adapted. `linear` says whether it is a linear layer other than the head, which are the
    /// modules of `all-linear`.
    pub fn targets(&self, module: &str, linear: bool) -> Result<bool> {
        self.targets.contain(module, linear).map_err(|fault| self.fault(fault))
    }

    /// The rank of a module: the value of the first key of `rank_pattern` that matches its path, or `r`.
    pub fn rank(&self, module: &str) -> Result<usize> {
        self.ranks.of(module).map_err(|fault| self.fault(fault))
    }

    /// The alpha of a module: the value of the first key of `alpha_pattern` that matches its path, or `lora_alpha`.
    pub fn alpha(&self, module: &str) -> Result<f64> {
        self.alphas.of(module).map_err(|fault| self.fault(fault))
    }

    /// The factor on B A of a module: its alpha over its rank, or over the root of its rank (rsLoRA).
    pub fn scaling(&self, module: &str) -> Result<f32> {
        let rank = self.rank(module)?;
        let alpha = self.alpha(module)?;
        let divisor = if self.rank_stabilised { (rank as f64).sqrt() } else { rank as f64 };
        let scaling = (alpha / divisor) as f32;
        if scaling.is_finite() {
            return Ok(scaling);
        }
        let module = module.to_owned();
        let (alpha, divisor) = (format!("{alpha:e}"), divisor.to_string());
        Err(self.fault(AdapterFault::Scaling { module, alpha, divisor }))
    }

    fn parse(path: &Path, json: &[u8]) -> Result<Self> {
        let config = ConfigFile::parse(path, json)?;
        if config.str("peft_type")? != "LORA" {
            return Err(config.refuse("peft_type", "`LORA`"));
        }
        refuse_unsupported(&config)?;
        refuse_changed_base(&config).map_err(|fault| refused(&config, fault))?;
        let (rank, alpha) = (positive(&config, "r", 8)?, config.f64_or("lora_alpha", 8.0)?);
        let (ranks, alphas) = by_module::read(&config, json, rank, alpha)?;
        Ok(Self {
            file: path.to_owned(),
            rank_stabilised: config.bool_or("use_rslora", false)?,
            dora: config.bool_or("use_dora", false)?,
            base: config.opt_str("base_model_name_or_path")?.map(str::to_owned),
            targets: targets(&config)?,
            ranks,
            alphas,
        })
    }

    fn fault(&self, fault: AdapterFault) -> WeightsError {
        WeightsError::Adapter { place: self.file.clone(), fault }
    }
}

/// Refuses every key that may change the result, unless its value is absent or empty.
fn refuse_unsupported(config: &ConfigFile) -> Result<()> {
    let known = |key: &&str| HONOURED.contains(key) || WITHOUT_EFFECT.contains(key);
    for key in config.keys().filter(|key| !known(key)) {
        if !config.is_empty(key) {
            return Err(config.refuse(key, "an absent or empty value"));
        }
    }
    match config.opt_str("bias")? {
        None | Some("none") => Ok(()),
        Some(_) => Err(config.refuse("bias", "`none`")),
    }
}

/// Refuses methods that change the base model before training (PiSSA and the like), unless the adapter was converted.
fn refuse_changed_base(config: &ConfigFile) -> Result<(), AdapterFault> {
    match config.value("init_lora_weights") {
        None | Some(Value::Bool(_) | Value::Null) => Ok(()),
        Some(Value::String(name)) if INITIAL.contains(&name.to_lowercase().as_str()) => Ok(()),
        Some(Value::String(name)) => Err(AdapterFault::ChangesBase { value: name.clone() }),
        Some(other) => Err(AdapterFault::ChangesBase { value: other.to_string() }),
    }
}

fn positive(config: &ConfigFile, key: &str, default: usize) -> Result<usize> {
    match config.usize_or(key, default)? {
        0 => Err(config.refuse(key, "a value of 1 or more")),
        value => Ok(value),
    }
}

fn targets(config: &ConfigFile) -> Result<Targets> {
    let Some(named) = names(config, "target_modules")? else {
        return Err(config.refuse("target_modules", "a list of module names or a pattern"));
    };
    let excluded = names(config, "exclude_modules")?;
    let listed = matches!(named, Names::List(_));
    for key in ["layers_to_transform", "layers_pattern"] {
        if !listed && config.value(key).is_some_and(|value| !value.is_null()) {
            return Err(config.refuse(key, "`null` beside a pattern in `target_modules`"));
        }
    }
    let layers = layers(config)?;
    if config.value("layers_to_transform").is_none_or(Value::is_null) && !config.is_empty("layers_pattern") {
        return Err(config.refuse("layers_pattern", "`null` without `layers_to_transform`"));
    }
    let patterns = one_or_more(config, "layers_pattern")?;
    check_count(config, "layers_pattern", patterns.len())?;
    let compile = |text: &String| {
        Expression::layer_index("layers_pattern", text).map_err(|fault| refused(config, fault))
    };
    // As in PEFT: an empty text is no pattern.
    let empty = config.is_empty("layers_pattern");
    let layer_names = if empty { Vec::new() } else { patterns.iter().map(compile).collect::<Result<_>>()? };
    Ok(Targets { named, excluded, layers, layer_names })
}

/// A list of names, or a text that is an expression.
fn names(config: &ConfigFile, key: &'static str) -> Result<Option<Names>> {
    match config.value(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(all)) if key == "target_modules" && all.to_lowercase() == "all-linear" => {
            Ok(Some(Names::AllLinear))
        }
        Some(Value::String(text)) => {
            let expression = Expression::whole(key, text).map_err(|fault| refused(config, fault))?;
            Ok(Some(Names::Matching(expression)))
        }
        Some(_) => Ok(Some(Names::List(config.strings(key)?.into_iter().collect()))),
    }
}

/// `layers_to_transform`: an index or a list of them.
fn layers(config: &ConfigFile) -> Result<BTreeSet<usize>> {
    let index = |value: &Value| value.as_u64()?.try_into().ok();
    let all = |value: &Value| match value {
        Value::Array(list) => list.iter().map(index).collect(),
        one => Some(BTreeSet::from([index(one)?])),
    };
    Ok(config.typed("layers_to_transform", "an index or a list of them", all)?.unwrap_or_default())
}

/// A text or a list of texts.
fn one_or_more(config: &ConfigFile, key: &str) -> Result<Vec<String>> {
    match config.value(key) {
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        _ => config.strings(key),
    }
}
