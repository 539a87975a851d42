//! `redline adapter inspect`: what an adapter directory contains, and whether it fits a model.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_api::documents::adapter::{AdapterInspection, AdapterModelFit, AdapterTarget};
use redline_api::json::finite::Finite;
use redline_api::json::version::SchemaVersion;
use redline_engine::{AdapterOptions, Source};
use redline_models::adapter::{AdapterBuilder, AdapterFit, PackedFiles, fit};
use redline_models::{LoadOptions, ModelError};
use redline_system::number;
use redline_weights::{AdapterConfig, AdapterFiles, AdapterModule, Infq};

use super::super::Context;
use super::{base, opened};
use crate::message::Failure;
use crate::model::{self, SignedFlag, WeightFlags};
use crate::{output, progress, table};

/// The end of the help.
const ABOUT: &str = "\
Without `--model`, only the adapter's own files are read, and checked against
each other. A row of the table is all modules with one name, rank, scaling and
shape. Parameters are A, B and the magnitudes of DoRA; bytes are those of all
tensors in the file, with copies of base weights, which PEFT stores with an
adapter of embedding or head. The digest is the same for the same tensors with
the same scaling, whatever the file format.

Of an adapter that `adapter convert` wrote, the digest is that of its source,
and the parts of a layer that the adapter leaves unchanged are not listed.

With `--model`, the adapter is checked as `--adapter` would check it. An adapter
that does not fit ends the command with exit code 1 and names the first tensor
or module that is wrong.";

/// Flags that say something about the model only.
const OF_MODEL: &[&str] = &["require_signed", "format", "group", "outliers"];

/// Flags of `adapter inspect`.
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
#[command(mut_args(|flag| if OF_MODEL.contains(&flag.get_id().as_str()) { flag.requires("model") } else { flag }))]
pub(super) struct InspectArgs {
    /// The adapter: a directory that PEFT or `adapter convert` wrote
    #[arg(value_name = "DIR")]
    adapter: PathBuf,
    /// Check it against this model, and tell the memory that it takes beside it: a directory, a Hugging Face id in the local cache,
    /// `demo` or `demo-diffusion`
    #[arg(long, value_name = "M")]
    model: Option<String>,
    #[command(flatten)]
    signed: SignedFlag,
    #[command(flatten)]
    weights: WeightFlags,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The sum over all modules; `u64::MAX` if a damaged file claims more.
fn total(modules: &[AdapterModule], of: impl Fn(&AdapterModule) -> u64) -> u64 {
    modules.iter().map(of).fold(0, u64::saturating_add)
}

/// Prints the contents of the adapter.
pub(super) fn run(args: &InspectArgs, context: &Context) -> Result<ExitCode, Failure> {
    let failed = |error: ModelError| Failure::advised(&error, error.hint());
    let opened = Opened::open(&args.adapter).map_err(failed)?;
    let modules = opened.modules().map_err(failed)?;
    let digest = progress::during("reading the adapter", || opened.digest()).map_err(failed)?;
    let fit = args.model.as_deref().map(|model| fitted(args, model, &opened, context)).transpose()?;
    let config = opened.config();
    let inspection = AdapterInspection {
        object: "adapter".to_owned(),
        schema: SchemaVersion,
        adapter: args.adapter.display().to_string(),
        base_model: config.base_model().map(str::to_owned),
        rslora: config.rank_stabilised(),
        dora: config.dora(),
        modules: modules.len(),
        parameters: total(&modules, |module| module.parameters),
        bytes: total(&modules, |module| module.bytes),
        dtypes: modules.iter().fold(Vec::new(), |all, module| joined(all, &module.dtypes)),
        digest,
        targets: targets(&modules),
        fit,
    };
    if args.json {
        output::line(&output::json(&inspection)?)?;
    } else {
        output::piece(&text(&inspection))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The files of an adapter.
enum Opened {
    Peft(AdapterFiles),
    Packed(PackedFiles),
}

impl Opened {
    fn open(dir: &Path) -> Result<Self, ModelError> {
        Ok(if Infq::is(dir) {
            Self::Packed(PackedFiles::open(dir)?)
        } else {
            Self::Peft(AdapterFiles::open(dir)?)
        })
    }

    fn config(&self) -> &AdapterConfig {
        match self {
            Self::Peft(files) => files.config(),
            Self::Packed(files) => files.config(),
        }
    }

    fn modules(&self) -> Result<Vec<AdapterModule>, ModelError> {
        match self {
            Self::Peft(files) => Ok(files.contents()?),
            Self::Packed(files) => files.contents(),
        }
    }

    fn digest(&self) -> Result<String, ModelError> {
        match self {
            Self::Peft(files) => Ok(files.digest()?.to_string()),
            Self::Packed(files) => Ok(files.infq().source().to_string()),
        }
    }
}

/// Checks the adapter against a model.
fn fitted(
    args: &InspectArgs,
    model: &str,
    adapter: &Opened,
    context: &Context,
) -> Result<AdapterModelFit, Failure> {
    let failed = |error: ModelError| Failure::advised(&error, error.hint());
    let options = LoadOptions {
        format: args.weights.resolve(context.environment)?,
        outliers: args.weights.outliers,
        mmap: false,
    };
    let source = args.signed.of(model, context.environment)?.source(context.environment)?;
    let threads = model::threads(None, context.environment)?;
    let checked = progress::during("checking the adapter", || check(&source, options, adapter, threads))?;
    let (format, memory_bytes) = checked.map_err(failed)?;
    Ok(AdapterModelFit { model: model.to_owned(), format, memory_bytes })
}

/// The format of the model, and the bytes of the adapter in memory.
fn check(
    source: &Source,
    options: LoadOptions,
    adapter: &Opened,
    threads: usize,
) -> Result<Result<(String, u64), ModelError>, Failure> {
    let max_rank = AdapterOptions::default().max_rank;
    match adapter {
        Opened::Peft(files) => Ok(opened(source, |config, weights| {
            let AdapterFit { format, bytes, .. } = fit(config, weights, options, files, max_rank)?;
            Ok((format.to_string(), bytes))
        })),
        // What it was packed for are the weights in memory.
        Opened::Packed(files) => model::with_team(threads, None, |exec| {
            let model = base(source, options, exec)?;
            let (_, adapter) = AdapterBuilder::new(&model).load(files.infq(), max_rank)?;
            Ok((model.facts().format.to_string(), adapter.bytes()))
        }),
    }
}

/// The names of types, each once.
fn joined(mut all: Vec<String>, more: &[String]) -> Vec<String> {
    for name in more {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// The modules, those with one name, rank, scaling and shape together, by their names.
fn targets(modules: &[AdapterModule]) -> Vec<AdapterTarget> {
    let mut targets: Vec<AdapterTarget> = Vec::new();
    for module in modules {
        let path = &module.base.path;
        let target = AdapterTarget {
            name: path.rsplit_once('.').map_or(path.as_str(), |(_, name)| name).to_owned(),
            modules: 1,
            rank: module.rank,
            alpha: Finite(module.alpha),
            scaling: Finite(module.scaling),
            inputs: module.base.inputs,
            outputs: module.base.outputs,
            parameters: module.parameters,
            bytes: module.bytes,
            dtypes: joined(Vec::new(), &module.dtypes),
        };
        let kind = |of: &AdapterTarget| {
            (of.name.clone(), of.rank, of.alpha.0.to_bits(), of.inputs, of.outputs, of.dtypes.clone())
        };
        match targets.iter_mut().find(|of| kind(of) == kind(&target)) {
            None => targets.push(target),
            Some(of) => {
                of.modules += 1;
                of.parameters += target.parameters;
                of.bytes += target.bytes;
            }
        }
    }
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

/// Two tables: facts about the adapter, and its targets.
fn text(inspection: &AdapterInspection) -> String {
    let method = match (inspection.dora, inspection.rslora) {
        (false, false) => "LoRA",
        (false, true) => "LoRA, rank-stabilised",
        (true, false) => "DoRA",
        (true, true) => "DoRA, rank-stabilised",
    };
    let base = inspection.base_model.as_deref().unwrap_or("not named");
    let mut facts = vec![
        ("base model", base.to_owned()),
        ("method", method.to_owned()),
        ("modules", inspection.modules.to_string()),
        ("parameters", inspection.parameters.to_string()),
        ("in the file", format!("{} as {}", number::bytes(inspection.bytes), inspection.dtypes.join(", "))),
        ("digest", inspection.digest.clone()),
    ];
    if let Some(fit) = &inspection.fit {
        facts.push(("fits", fit.model.clone()));
        let bytes = number::bytes(fit.memory_bytes);
        facts.push(("in memory", format!("{bytes} beside {} weights", fit.format)));
    }
    let facts: Vec<_> = facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let titles =
        ["target", "modules", "rank", "alpha", "scaling", "inputs", "outputs", "parameters", "types"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(inspection.targets.iter().map(|target| {
        vec![
            target.name.clone(),
            target.modules.to_string(),
            target.rank.to_string(),
            target.alpha.0.to_string(),
            target.scaling.0.to_string(),
            target.inputs.to_string(),
            target.outputs.to_string(),
            target.parameters.to_string(),
            target.dtypes.join(", "),
        ]
    }));
    format!("{}\n{}", table::align(&facts, 1), table::align(&rows, 8))
}

#[cfg(test)]
mod tests {
    use redline_weights::{BaseModule, ModuleKind};

    use super::*;

    fn module(path: &str, rank: usize) -> AdapterModule {
        AdapterModule {
            base: BaseModule { path: path.to_owned(), kind: ModuleKind::Linear, inputs: 8, outputs: 4 },
            rank,
            alpha: 3.0,
            scaling: 3.0 / rank as f32,
            parameters: 12 * rank as u64,
            bytes: 48 * rank as u64,
            dtypes: vec!["F32".to_owned(), "BF16".to_owned()],
        }
    }

    #[test]
    fn modules_of_one_kind_are_one_row() {
        let modules =
            [module("a.0.q", 2), module("a.0.k", 2), module("a.1.q", 2), module("a.2.q", 4), module("q", 2)];
        let inspection = AdapterInspection {
            object: "adapter".to_owned(),
            schema: SchemaVersion,
            adapter: "a".to_owned(),
            base_model: None,
            rslora: true,
            dora: false,
            modules: 5,
            parameters: 144,
            bytes: 576,
            dtypes: joined(vec!["F32".to_owned()], &modules[0].dtypes),
            digest: "0f".to_owned(),
            targets: targets(&modules),
            fit: Some(AdapterModelFit { model: "m".into(), format: "w8".into(), memory_bytes: 2048 }),
        };
        let expected = "\
base model   not named
method       LoRA, rank-stabilised
modules      5
parameters   144
in the file  576 B as F32, BF16
digest       0f
fits         m
in memory    2 KiB beside w8 weights

target  modules  rank  alpha  scaling  inputs  outputs  parameters  types
k             1     2      3      1.5       8        4          24  F32, BF16
q             3     2      3      1.5       8        4          72  F32, BF16
q             1     4      3     0.75       8        4          48  F32, BF16
";
        assert_eq!(text(&inspection), expected);
    }
}
