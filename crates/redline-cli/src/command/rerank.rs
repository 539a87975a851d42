//! `redline rerank`: orders documents by their relevance to a query.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::rerank;
use redline_engine::{Label, RerankOutcome, RerankRequest};

use super::judge::{self, JudgeFlags};
use super::{Context, cost};
use crate::message::{self, Failure};
use crate::model::ModelFlag;
use crate::{display, output, table};

/// Longest part of a document that is shown, in characters.
const DOCUMENT_WIDTH: usize = 60;

/// Flags of `rerank`.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct RerankArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// The query
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// A document (repeatable)
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    document: Vec<String>,
    /// Documents from a file, one per line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The template into which query and document are put; default: one for models that follow instructions (see below)
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// What the model writes for a relevant document; default: ` yes`
    #[arg(long, value_name = "TEXT", default_value = " yes", hide_default_value = true)]
    yes: String,
    /// What the model writes for an irrelevant document; default: ` no`
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
         training, and with any other template its order means nothing. With the default template a label gets a leading space; \
         with --template it is used unchanged, so it has to include a leading space if the model writes one.",
        RerankRequest::TEMPLATE
    )
}

/// Reranks the documents that the flags give.
pub(super) fn run(args: &RerankArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let request = request(args)?;
    let loaded = args.flags.load(&model, context)?;
    if args.flags.json {
        let answer = rerank::answer(&loaded, loaded.engine.rerank(request)?);
        output::line(&output::json(&answer)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let documents = request.documents.clone();
    let outcome = loaded.engine.rerank(request)?;
    output::piece(&render(&documents, &outcome))?;
    if !args.flags.quiet {
        let prompts = outcome.results.iter().map(|result| result.as_ref().ok());
        let prompts = prompts.map(|ranked| ranked.map(|ranked| (ranked.prompt_tokens, ranked.truncated)));
        message::say(cost::summary(&loaded, &outcome.cost, (documents.len(), "documents"), prompts));
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

/// One line per document, the most relevant first.
fn render(documents: &[String], outcome: &RerankOutcome) -> String {
    let document = |index: usize| documents.get(index).map(|text| display::shortened(text, DOCUMENT_WIDTH));
    let mut rows = vec![["index", "relevance", "document"].map(str::to_owned).to_vec()];
    for result in &outcome.results {
        rows.push(match result {
            Ok(ranked) => {
                let relevance = display::probability(ranked.relevance);
                vec![ranked.index.to_string(), relevance, document(ranked.index).unwrap_or_default()]
            }
            Err(error) => vec![error.index.to_string(), "-".to_owned(), format!("error: {}", error.message)],
        });
    }
    table::align(&rows, 2)
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;
    use redline_engine::Truncate;

    use super::*;

    #[test]
    fn every_flag_of_the_command_reaches_the_request() {
        let line = "--query q --document d --template {query}{document}: --yes y --no n --top-n 3 --truncate left --item-errors \
                    --timeout 2.5";
        let command = RerankArgs::augment_args(clap::Command::new("rerank").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        let request = request(&RerankArgs::from_arg_matches(&matches).unwrap()).unwrap();
        let expected = RerankRequest {
            template: Some("{query}{document}:".to_owned()),
            yes: Label::Text("y".to_owned()),
            no: Label::Text("n".to_owned()),
            top_n: Some(3),
            truncate: Some(Truncate::Left),
            item_errors: true,
            timeout_s: Some(2.5),
            ..RerankRequest::new("q".to_owned(), vec!["d".to_owned()])
        };
        assert_eq!(format!("{request:#?}"), format!("{expected:#?}"));
    }
}
