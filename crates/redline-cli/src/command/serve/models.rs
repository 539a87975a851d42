//! The models of `redline serve`: one, or several that have names and share the memory.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use redline_engine::Turns;
use redline_server::{ModelSet, ServedModel};

use super::{ServeArgs, TemplateFile};
use crate::env::Environment;
use crate::message::{self, Failure};
use crate::model::{ModelFlag, ModelName, Settings, SignedFlag};
use crate::value::{self, BadValue};
use redline_system::number::bytes as size;

/// Which models.
#[derive(Debug, Args)]
pub(super) struct ServedModels {
    /// A directory, a GGUF file, a Hugging Face id in the local cache, `demo`, `demo-chat`, or `demo-diffusion`, which fills masks. Several
    /// models have names: `--model chat=DIR --model embed=DIR`; flags about adapters, classes, aliases and templates are then about
    /// the first [env: REDLINE_MODEL]
    #[arg(long, alias = "model-path", value_name = "[NAME=]M")]
    model: Vec<String>,
    #[command(flatten)]
    signed: SignedFlag,
    /// Memory of one of several models (repeatable); default: what it needs, and a part of what is left of --memory
    #[arg(long, value_name = "NAME=SIZE", value_parser = memory_of, help_heading = "Memory")]
    model_memory: Vec<(String, u64)>,
    /// Take each of several models out of memory that had no request for so many seconds; the next request loads it again. Default:
    /// when another one needs the memory
    #[arg(long, value_name = "S", value_parser = super::seconds, help_heading = "Memory")]
    unload_after: Option<f64>,
}

/// The models that are served.
pub(super) enum Which {
    /// One, for every request.
    One(ModelName),
    /// Some by name.
    Several(Vec<(String, ModelName)>),
}

/// Parses `--model-memory`.
fn memory_of(text: &str) -> Result<(String, u64), BadValue> {
    match text.split_once('=') {
        Some((name, size)) if !name.is_empty() => Ok((name.to_owned(), value::bytes(size)?)),
        _ => value::bad(format!("`{text}` has no name"), "NAME=SIZE, such as chat=8GiB"),
    }
}

/// The name and the model of `NAME=M`. A file may have such a name, too.
fn named(text: &str) -> Option<(&str, &str)> {
    let (name, model) = text.split_once('=')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_named = !name.is_empty() && !model.is_empty() && name.bytes().all(is_plain);
    (is_named && !Path::new(text).exists()).then_some((name, model))
}

impl ServedModels {
    /// The models, from the flags or the environment.
    pub(super) fn resolve(&self, environment: Environment) -> Result<Which, Failure> {
        let hint = "`--model chat=DIR --model embed=DIR` names them";
        let named: Vec<_> = self.model.iter().map(|text| named(text)).collect();
        if let [] | [None] = named.as_slice() {
            let flags = [
                ("--model-memory", !self.model_memory.is_empty()),
                ("--unload-after", self.unload_after.is_some()),
            ];
            if let Some((flag, _)) = flags.into_iter().find(|(_, given)| *given) {
                return Err(Failure::usage(format!("`{flag}` without models that have names"), hint));
            }
            let model = ModelFlag::one(self.model.first().cloned(), &self.signed);
            return model.resolve(environment).map(Which::One);
        }
        let named: Option<Vec<_>> = named.into_iter().collect();
        let named = named.ok_or_else(|| Failure::usage("several models, and one without a name", hint))?;
        let is_model = |name: &str| named.iter().any(|(other, _)| *other == name);
        for (index, (name, _)) in named.iter().enumerate() {
            if named[..index].iter().any(|(other, _)| other == name) {
                let fact = format!("two models are named `{name}`");
                return Err(Failure::usage(fact, "give each a name of its own"));
            }
        }
        if let Some((name, _)) = self.model_memory.iter().find(|(name, _)| !is_model(name)) {
            let fact = format!("`--model-memory {name}=...`, and no model is named `{name}`");
            return Err(Failure::usage(fact, "`--model NAME=DIR` names models"));
        }
        let model = |(name, model): (&str, &str)| Ok((name.to_owned(), self.signed.of(model, environment)?));
        named.into_iter().map(model).collect::<Result<_, _>>().map(Which::Several)
    }

    /// Several models, ready to be loaded, with their parts of the memory. Adapters, and a template of a file, are the first one's.
    pub(super) fn set(
        &self,
        models: &[(String, ModelName)],
        settings: &Settings,
        args: &ServeArgs,
        environment: Environment,
    ) -> Result<ModelSet, Failure> {
        let memory = settings.memory();
        let turns = Turns::default();
        let mut parts = Vec::new();
        for (index, (name, model)) in models.iter().enumerate() {
            let is_first = index == 0;
            let mut of_model = settings.of_several(&turns, is_first);
            if is_first {
                of_model = of_model.with_loaded_adapters(&args.adapters, args.adapter_root.is_some());
            }
            let summary = of_model.summary(model, environment)?;
            let given = self.model_memory.iter().rev().find(|(other, _)| other == name);
            let given = given.map(|(_, bytes)| *bytes);
            check_memory(name, summary.least_memory, given, memory)?;
            parts.push((of_model.with_context_of(&summary), summary, given));
        }
        let needs: Vec<_> = parts.iter().map(|(_, summary, given)| (summary.least_memory, *given)).collect();
        let shares = shares(&needs, memory);
        let mut served = Vec::new();
        for (((name, model), (of_model, summary, _)), &share) in models.iter().zip(parts).zip(&shares) {
            let is_first = served.is_empty();
            let template = if is_first { &args.template } else { &TemplateFile::default() };
            let adapters = args.adapters.named().filter(|_| is_first);
            served.push(ServedModel {
                name: name.clone(),
                chat: Some(template.open(model, environment)?),
                adapters: adapters.map(|adapter| adapter.name.clone()).collect(),
                summary,
                memory: share,
                load: of_model.with_memory(share).loader(model, environment)?,
            });
        }
        tell(models, &shares, memory);
        let idle = self.unload_after.map(Duration::from_secs_f64);
        Ok(ModelSet { models: served, memory, idle })
    }
}

/// Refuses a model that needs more memory than it may take, or is given more than there is for all.
fn check_memory(name: &str, least: u64, given: Option<u64>, memory: u64) -> Result<(), Failure> {
    if let Some(given) = given.filter(|given| *given > memory) {
        let fact = format!("`{name}` may take {}, and all models together {}", size(given), size(memory));
        return Err(Failure::usage(fact, "give less by `--model-memory`, or more by `--memory`"));
    }
    let most = given.unwrap_or(memory);
    if least > most {
        let fact =
            format!("`{name}` needs at least {} of memory, and it may take {}", size(least), size(most));
        let flag = if given.is_some() { "--model-memory" } else { "--memory" };
        let hint = format!("`{flag}` gives more, `--max-context` or `--format` make it smaller");
        return Err(Failure::usage(fact, hint));
    }
    Ok(())
}

/// The memory of each model, from what it needs at least and what it is given. If all fit, what is left is divided among those that are
/// given none; if not, each may take twice what it needs, and they leave memory for each other.
fn shares(needs: &[(u64, Option<u64>)], memory: u64) -> Vec<u64> {
    let all = needs.iter().fold(0_u64, |sum, (least, given)| sum.saturating_add(given.unwrap_or(*least)));
    let open = needs.iter().filter(|(_, given)| given.is_none()).count() as u64;
    let left = memory.checked_sub(all).map(|left| left / open.max(1));
    let share = |(least, given): &(u64, Option<u64>)| match (given, left) {
        (Some(given), _) => *given,
        (None, Some(left)) => least + left,
        (None, None) => least.saturating_mul(2).min(memory),
    };
    needs.iter().map(share).collect()
}

/// Says how the memory is divided.
fn tell(models: &[(String, ModelName)], shares: &[u64], memory: u64) {
    let mut taken = 0_u64;
    let mut parts = Vec::new();
    for ((name, _), share) in models.iter().zip(shares) {
        let fits = taken.saturating_add(*share) <= memory;
        if fits {
            taken += share;
        }
        let when = if fits { "" } else { ", loaded at its first request, in place of others" };
        parts.push(format!("{name} (up to {}{when})", size(*share)));
    }
    message::note(&format!("memory for models: {}: {}", size(memory), parts.join("; ")));
}

/// Refuses flags that are not for several models, and aliases that are names of theirs.
pub(super) fn check_flags(args: &ServeArgs, models: &[(String, ModelName)]) -> Result<(), Failure> {
    if let Some(alias) = args.model_alias.iter().find(|alias| models.iter().any(|(name, _)| name == *alias)) {
        let fact = format!("`{alias}` is the name of two models");
        return Err(Failure::usage(fact, "`--model-alias` gives the first model a further name"));
    }
    let flags = [
        ("--served-model-name", !args.served_model_name.is_empty(), "`--model NAME=DIR` gives the names"),
        ("--mode throughput", args.mode == super::ServeMode::Throughput, "it measures one model"),
    ];
    match flags.into_iter().find(|(_, given, _)| *given) {
        Some((flag, _, hint)) => Err(Failure::usage(format!("`{flag}` with several models"), hint)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_the_memory_is_divided() {
        assert_eq!(shares(&[(10, None), (20, None)], 100), [45, 55]);
        assert_eq!(shares(&[(10, Some(40)), (20, None), (5, None)], 100), [40, 37, 22]);
        assert_eq!(shares(&[(10, None), (20, None)], 30), [10, 20]);
        // Not all fit.
        assert_eq!(shares(&[(10, None), (60, None), (40, None)], 100), [20, 100, 80]);
        assert_eq!(shares(&[(10, Some(90)), (20, None)], 100), [90, 40]);
    }

    #[test]
    fn a_name_is_plain_and_no_part_of_a_path() {
        assert_eq!(named("chat=demo"), Some(("chat", "demo")));
        assert_eq!(named("a.b-c_1=/x=y"), Some(("a.b-c_1", "/x=y")));
        for text in ["demo", "=demo", "chat=", "/a/b=c", "org/name=x", "a b=c"] {
            assert_eq!(named(text), None, "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a=b");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(named(path.to_str().unwrap()), None);
    }
}
