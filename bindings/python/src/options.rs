//! How a model is loaded, as the arguments of `redline.Engine` say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use redline_api::chat::template::ChatOptions;
use redline_engine::{
    AdapterOptions, Buckets, Format, KvFormat, Options, PlanOptions, PrefixCacheSize, Source, Tier,
};
use redline_settings::bytes;
use redline_system::Machine;
use redline_weights::{HubRoots, resolve_model};
use serde::Deserialize;

use crate::error::{Class, Fault};

/// The arguments. Absent ones take their defaults.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoadOptions {
    model: String,
    format: Option<String>,
    group: Option<usize>,
    #[serde(default)]
    outliers: f64,
    threads: Option<usize>,
    tp_size: Option<usize>,
    isa: Option<String>,
    kv_format: Option<String>,
    memory: Option<Size>,
    max_context: Option<usize>,
    max_chunk: Option<usize>,
    #[serde(default)]
    mmap: bool,
    prefix_cache: Option<bool>,
    /// Directories by the names of adapters.
    #[serde(default)]
    pub(crate) adapters: BTreeMap<String, String>,
    adapter_memory: Option<Size>,
    #[serde(default)]
    chat: bool,
    chat_template: Option<PathBuf>,
    queue: Option<usize>,
    /// Where models of the hub may lie, as the environment says.
    hub_cache: Option<PathBuf>,
    hf_home: Option<PathBuf>,
    xdg_cache: Option<PathBuf>,
    home: Option<PathBuf>,
}

/// A number of bytes.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of bytes, or a text such as \"8GiB\"")]
enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    /// The size of an argument.
    fn bytes(&self, argument: &str) -> Result<u64, Fault> {
        match self {
            Self::Bytes(number) => Ok(*number),
            Self::Text(text) => bytes(text)
                .map_err(|error| Fault::new(Class::Load, format!("`{argument}`: {error}"), error.hint())),
        }
    }
}

/// Most requests that wait or run, unless an argument says how many. Programs of Python often submit all that they have.
const QUEUE: usize = 1 << 16;

impl LoadOptions {
    /// The chat template, and what is put into it.
    pub(crate) fn chat_options(&self) -> ChatOptions {
        ChatOptions { file: self.chat_template.clone(), formats_prompts: self.chat, ..ChatOptions::default() }
    }

    /// The name of the model in answers, and the engine's options.
    pub(crate) fn resolve(self) -> Result<(String, Options), Fault> {
        let source = self.source()?;
        let name = match &source {
            Source::Path(path) => {
                path.file_name().map_or_else(|| self.model.clone(), |name| name.display().to_string())
            }
            Source::Embedded(embedded) => embedded.name.to_owned(),
        };
        let machine = Machine::here();
        let memory = match &self.memory {
            Some(given) => Some(given.bytes("memory")?),
            None => machine.default_memory_bytes(),
        };
        let mut adapters = AdapterOptions::within(memory);
        if let Some(given) = &self.adapter_memory {
            adapters.memory = given.bytes("adapter_memory")?;
        }
        let buckets = match self.max_chunk {
            Some(max_chunk) => Buckets::new(Buckets::TOKENS, Buckets::ROWS, max_chunk),
            None => Buckets::default(),
        };
        let options = Options {
            format: self.weight_format()?,
            outliers: self.outliers,
            kv_format: self.kv_format.as_deref().map(kv_format).transpose()?,
            tier: self.isa.as_deref().map(tier).transpose()?.flatten(),
            threads: self.threads.unwrap_or_else(|| machine.default_threads()),
            adaptive_threads: self.threads.is_none(),
            tp: self.tp_size.unwrap_or(1),
            max_context: self.max_context,
            mmap: self.mmap,
            memory,
            adapters: (!self.adapters.is_empty()).then_some(adapters),
            queue: self.queue.unwrap_or(QUEUE),
            plans: PlanOptions { buckets, ..PlanOptions::default() },
            prefix_cache: self.prefix_cache.unwrap_or(true).then_some(PrefixCacheSize::Automatic),
            ..Options::new(source)
        };
        Ok((name, options))
    }

    fn source(&self) -> Result<Source, Fault> {
        if let Some(embedded) = redline_demo::EMBEDDED.iter().find(|embedded| embedded.name == self.model) {
            return Ok(Source::Embedded(**embedded));
        }
        let roots = HubRoots {
            hub_cache: self.hub_cache.clone(),
            hf_home: self.hf_home.clone(),
            xdg_cache: self.xdg_cache.clone(),
            home: self.home.clone(),
        };
        let found = resolve_model(&self.model, &roots);
        Ok(Source::Path(found.map_err(|error| Fault::advised(Class::Load, &error, error.hint()))?))
    }

    /// The format of weights, with its group.
    fn weight_format(&self) -> Result<Option<Format>, Fault> {
        let format = self.format.as_deref().map(format).transpose()?;
        let Some(group) = self.group else { return Ok(format) };
        let with_group = format.filter(|format| format.is_integer()).map(|format| format.with_group(group));
        match with_group {
            None => Err(Fault::new(
                Class::Load,
                format!("`group={group}` without a format of groups"),
                "`format=\"w8\"` and `format=\"w4\"` have groups",
            )),
            Some(Some(format)) => Ok(Some(format)),
            Some(None) => {
                let groups = format.map_or(&[][..], Format::groups).iter().map(usize::to_string);
                Err(Fault::new(
                    Class::Load,
                    format!("{} has no group of {group}", self.format.as_deref().unwrap_or_default()),
                    format!("one of {}", groups.collect::<Vec<_>>().join(", ")),
                ))
            }
        }
    }
}

fn format(name: &str) -> Result<Format, Fault> {
    let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
    Format::parse(name).ok_or_else(|| unknown("format of weights", name, &names))
}

fn kv_format(name: &str) -> Result<KvFormat, Fault> {
    let names: Vec<&str> = KvFormat::ALL.iter().map(|format| format.name()).collect();
    KvFormat::parse(name).ok_or_else(|| unknown("format of keys and values", name, &names))
}

/// The tier of a name; `None` for the fastest.
fn tier(name: &str) -> Result<Option<Tier>, Fault> {
    if name == "auto" {
        return Ok(None);
    }
    let names: Vec<&str> = ["auto"].into_iter().chain(Tier::ALL.iter().map(|tier| tier.name())).collect();
    Tier::parse(name).map(Some).ok_or_else(|| unknown("instruction set", name, &names))
}

fn unknown(what: &str, name: &str, names: &[&str]) -> Fault {
    Fault::new(Class::Load, format!("`{name}` is no {what}"), format!("one of {}", names.join(", ")))
}
