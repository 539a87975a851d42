//! `redline rerank`: orders documents by their relevance to a query.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_engine::{ItemError, Label, Ranked, RerankOutcome, RerankRequest};
use redline_wire::{Finite, RerankResult, Reranking};

use super::judge::{self, JudgeFlags};
use super::{Context, taken};
use crate::model::{Loaded, ModelFlag};
use crate::report::{self, Failure};
use crate::{figure, output, table};

/// Longest part of a document that is shown, in characters.
const DOCUMENT_WIDTH: usize = 60;

/// Flags of `rerank`.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct RerankArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// What is looked for
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// A document (repeatable)
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    document: Vec<String>,
    /// Documents from a file, one per line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What stands around query and document: the model's own template (see below)
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// What the model writes for a relevant document; default: ` yes`
    #[arg(long, value_name = "TEXT", default_value = " yes", hide_default_value = true)]
    yes: String,
    /// What it writes for one that is not; default: ` no`
    #[arg(long, value_name = "TEXT", default_value = " no", hide_default_value = true)]
    no: String,
    /// Print only the most relevant documents (and those that failed); default: all
    #[arg(long, value_name = "N")]
    top_n: Option<usize>,
    #[command(flatten)]
    flags: JudgeFlags,
}

/// The help text about templates.
fn help() -> String {
    format!(
        "The template is a text with {{query}} and {{document}} once each, ending where the model is to write yes or no. The \
         default one is {:?}, for models that follow instructions; a model that was trained to rerank needs the template of its \
         training, and with another its order is worth nothing. With the default template a label gets a space in front; with \
         --template it is taken as it is, so mind the space.",
        RerankRequest::TEMPLATE
    )
}

/// Reranks the documents that the flags give.
pub(super) fn run(args: &RerankArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let request = request(args)?;
    let loaded = args.flags.load(&model, context)?;
    if args.flags.json {
        let answer = answer(&loaded, loaded.engine.rerank(request)?);
        output::line(&output::json(&answer)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let documents = request.documents.clone();
    let outcome = loaded.engine.rerank(request)?;
    output::piece(&render(&documents, &outcome))?;
    if !args.flags.quiet {
        let prompts = outcome.results.iter().map(|result| result.as_ref().ok());
        let prompts = prompts.map(|ranked| ranked.map(|ranked| (ranked.prompt_tokens, ranked.truncated)));
        report::say(taken::summary(&loaded, &outcome.taken, (documents.len(), "documents"), prompts));
    }
    Ok(ExitCode::SUCCESS)
}

fn request(args: &RerankArgs) -> Result<RerankRequest, Failure> {
    let Some(query) = args.query.clone() else {
        return Err(Failure::usage("no query given", "`--query TEXT`"));
    };
    if args.document.is_empty() && args.file.is_none() {
        let hint = "`--document TEXT` for each document, or `--file FILE`";
        return Err(Failure::usage("no document given", hint));
    }
    let request = RerankRequest {
        template: args.template.clone(),
        yes: Label::Text(args.yes.clone()),
        no: Label::Text(args.no.clone()),
        top_n: args.top_n,
        truncate: args.flags.truncate,
        item_errors: args.flags.item_errors,
        timeout_s: args.flags.timeout,
        ..RerankRequest::new(query, Vec::new())
    };
    request.check().map_err(judge::senseless)?;
    Ok(RerankRequest { documents: judge::texts(&args.document, args.file.as_deref())?, ..request })
}

/// Builds the JSON document.
fn answer(loaded: &Loaded, outcome: RerankOutcome) -> Reranking {
    let result = |result| match result {
        Ok(Ranked { index, relevance, prompt_tokens, truncated }) => RerankResult {
            index,
            relevance: Some(Finite(relevance)),
            prompt_tokens: Some(prompt_tokens),
            truncated: Some(truncated),
            error: None,
        },
        Err(ItemError { index, message }) => {
            RerankResult { index, error: Some(message), ..RerankResult::default() }
        }
    };
    Reranking {
        object: "rerank".to_owned(),
        model: loaded.name.clone(),
        results: outcome.results.into_iter().map(result).collect(),
        usage: taken::tokens(outcome.taken.usage),
        meta: judge::meta(loaded, outcome.label_token_ids, outcome.taken),
    }
}

/// One line per document, the most relevant first.
fn render(documents: &[String], outcome: &RerankOutcome) -> String {
    let document = |index: usize| documents.get(index).map(|text| figure::shortened(text, DOCUMENT_WIDTH));
    let mut rows = vec![["index", "relevance", "document"].map(str::to_owned).to_vec()];
    for result in &outcome.results {
        rows.push(match result {
            Ok(ranked) => {
                let relevance = figure::probability(ranked.relevance);
                vec![ranked.index.to_string(), relevance, document(ranked.index).unwrap_or_default()]
            }
            Err(error) => vec![error.index.to_string(), "-".to_owned(), format!("error: {}", error.message)],
        });
    }
    table::align(&rows, 2)
}
