//! `redline show`: what a model is, from its configuration and the headers of its files.

use std::process::ExitCode;

use clap::Args;
use redline_engine::Source;
use redline_models::{LoadOptions, Loader, ModelError};
use redline_system::number;

use super::Context;
use super::adapter::opened;
use super::template::TemplateFile;
use crate::message::Failure;
use crate::model::SignedFlag;
use crate::{output, table};

/// Arguments of `show`.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// A directory, a GGUF file, a Hugging Face id in the local cache, or `demo`
    #[arg(value_name = "MODEL")]
    model: String,
    #[command(flatten)]
    signed: SignedFlag,
    #[command(flatten)]
    template: TemplateFile,
}

/// Prints a line for each fact.
pub(super) fn run(args: &ShowArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.signed.of(&args.model, context.environment)?;
    let source = model.source(context.environment)?;
    let mut rows = opened(&source, |config, weights| {
        let loader = Loader::new(config, weights, LoadOptions::default())?;
        Ok(facts(&loader))
    })
    .map_err(|error: ModelError| Failure::advised(&error, error.hint()))?;
    let has_template = args.template.open(&model, context.environment)?.source().is_some();
    rows.push(("chat template", if has_template { "yes" } else { "no" }.to_owned()));
    if let Source::Path(path) = &source {
        rows.push(("place", path.display().to_string()));
    }
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    output::piece(&table::align(&rows, 1))?;
    Ok(ExitCode::SUCCESS)
}

fn facts(loader: &Loader<'_>) -> Vec<(&'static str, String)> {
    let (spec, objective) = (loader.spec(), loader.objective());
    let does = match (objective.predicts(), objective.is_causal()) {
        (true, true) => "predicts the next token",
        (true, false) => "fills masks",
        (false, _) => "encodes texts",
    };
    vec![
        ("architecture", loader.architecture().to_owned()),
        ("task", does.to_owned()),
        ("parameters", number::large_count(spec.parameters())),
        ("weights", format!("{} as {}", number::bytes(loader.footprint().weight_bytes()), loader.format())),
        ("context", format!("{} tokens", loader.context())),
        ("vocabulary", format!("{} tokens", spec.vocab)),
        ("layers", spec.layers.len().to_string()),
        ("hidden size", spec.hidden.to_string()),
    ]
}
