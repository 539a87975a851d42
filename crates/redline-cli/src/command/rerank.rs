//! `redline rerank`: orders documents by their relevance to a query.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::jsonl::judge::ChatFrames;
use redline_api::jsonl::rerank::{self, RerankLine};
use redline_api::model::LoadedModel;
use redline_engine::{Cancel, EngineError, JudgeOptions, Label, RerankOutcome, RerankRequest};

use super::judge::{self, JudgeFlags};
use super::receipt::ReceiptFlags;
use super::{Context, cost};
use crate::interrupt::Interrupt;
use crate::jsonl::{self, Answer, Answers, Done, Lines, TargetFlags};
use crate::message::{self, Failure};
use crate::model::ModelFlag;
use crate::{display, output, table, value};

/// Longest part of a document that is shown, in characters.
const DOCUMENT_WIDTH: usize = 60;

/// Flags of `rerank`.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct RerankArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// The query; with --jsonl: that of lines without one
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// A document (repeatable)
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    document: Vec<String>,
    /// Documents from a file, one per line, or from a table in CSV (`.csv`, see --column); `-` is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The column of --file with the documents; the file is a table in CSV then, with a header
    #[arg(long, value_name = "NAME", requires = "file")]
    column: Option<String>,
    /// Requests from a file, one JSON object per line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["document", "file", "json", "csv"])]
    jsonl: Option<PathBuf>,
    #[command(flatten)]
    target: TargetFlags,
    /// What the model writes for a relevant document; default: ` yes`, with --chat `yes`
    #[arg(long, value_name = "TEXT")]
    yes: Option<String>,
    /// What the model writes for an irrelevant document; default: ` no`, with --chat `no`
    #[arg(long, value_name = "TEXT")]
    no: Option<String>,
    /// Print only the most relevant documents (and those that failed); default: all
    #[arg(long, value_name = "N")]
    top_n: Option<usize>,
    /// Print only documents whose relevance is at least this (and those that failed)
    #[arg(long, value_name = "P", value_parser = value::fraction)]
    threshold: Option<f64>,
    #[command(flatten)]
    flags: JudgeFlags,
    #[command(flatten)]
    receipt: ReceiptFlags,
}

/// The help text about templates, labels and lines.
fn help() -> String {
    format!(
        "The template is a text with {{query}} and {{document}} once each, ending where the model is to write yes or no. The \
         default one is {:?}, for models that follow instructions, and for Qwen3-Reranker that of its training; any other model that was trained to rerank needs the template of its \
         training, and with any other template its order means nothing. With the default template a label gets a leading space; \
         with --template it is used unchanged, so it has to include a leading space if the model writes one. With --chat, the \
         template is the user's message in the model's chat template, {:?} unless given, and a label is the beginning of the \
         answer.\n\n{}\n\nKeys of a line of --jsonl: id (any value; the answer repeats it), query, documents, yes, no, top_n, {}",
        RerankRequest::TEMPLATE,
        RerankRequest::INSTRUCTION,
        judge::LABELS,
        judge::KEYS
    )
}

/// Reranks the documents that the flags give, or answers a file of requests.
pub(super) fn run(args: &RerankArgs, context: &Context) -> Result<ExitCode, Failure> {
    args.target.check(args.jsonl.is_some())?;
    let inputs = [("`--jsonl -`", args.jsonl.as_deref()), ("`--file -`", args.file.as_deref())];
    args.flags.check_input(&inputs)?;
    let model = args.model.resolve(context.environment)?;
    if let Some(path) = &args.jsonl {
        let lines = Lines::open(path)?;
        let (loaded, chat) = args.flags.load(&model, context)?;
        note_preset(&loaded, args);
        let mut rerankings =
            Rerankings { loaded: &loaded, defaults: defaults(args), chat, quiet: args.flags.quiet };
        let interrupt = Interrupt::install()?;
        let answered =
            interrupt.during(|_| jsonl::answer_all(lines, &args.target, &mut rerankings, Some(&interrupt)));
        return Ok(answered?.code());
    }
    let request = request(args)?;
    let (loaded, mut chat) = args.flags.load(&model, context)?;
    note_preset(&loaded, args);
    let options = judge::framed(chat.as_mut(), request.options, RerankRequest::INSTRUCTION)?;
    let options = JudgeOptions { receipt: args.receipt.options(), ..options };
    rerank_once(&loaded, args, RerankRequest { options, ..request })
}

/// Says that the model's own template is used.
fn note_preset(loaded: &LoadedModel, args: &RerankArgs) {
    let is_used = !args.flags.quiet && !args.flags.has_chat() && args.flags.options().template.is_none();
    if let Some(preset) = loaded.engine.rerank_preset().filter(|_| is_used) {
        message::note(&format!(
            "documents are judged in the template that the model was trained with ({}); `--template` replaces it",
            preset.source
        ));
    }
}

fn rerank_once(loaded: &LoadedModel, args: &RerankArgs, request: RerankRequest) -> Result<ExitCode, Failure> {
    let (documents, answers) = (request.documents.clone(), [request.yes.clone(), request.no.clone()]);
    let outcome = loaded.engine.rerank(request)?;
    let receipt = outcome.receipt.clone();
    warn(&answers, &outcome, args.flags.quiet);
    if args.flags.json {
        output::line(&output::json(&rerank::answer(loaded, outcome))?)?;
    } else if args.flags.csv {
        output::piece(&judge::csv(&values(&documents, &outcome))?)?;
    } else {
        output::piece(&render(&documents, &outcome))?;
        if !args.flags.quiet {
            let prompts = outcome.results.iter().map(|result| result.as_ref().ok());
            let prompts = prompts.map(|ranked| ranked.map(|ranked| (ranked.prompt_tokens, ranked.truncated)));
            message::say(cost::summary(loaded, &outcome.cost, (documents.len(), "document"), prompts));
        }
    }
    args.receipt.write(receipt.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The values that the flags give to all requests.
fn defaults(args: &RerankArgs) -> RerankRequest {
    let request = RerankRequest::new(args.query.clone().unwrap_or_default(), Vec::new());
    // An answer begins without a space in a chat template.
    let label = |given: &Option<String>, default: &str| {
        let space = if args.flags.has_chat() { "" } else { " " };
        Label::Text(given.clone().unwrap_or_else(|| format!("{space}{default}")))
    };
    RerankRequest {
        yes: label(&args.yes, "yes"),
        no: label(&args.no, "no"),
        top_n: args.top_n,
        threshold: args.threshold.map(|threshold| threshold as f32),
        options: args.flags.options(),
        ..request
    }
}

fn request(args: &RerankArgs) -> Result<RerankRequest, Failure> {
    if args.query.is_none() {
        return Err(Failure::usage("no query given", "`--query TEXT`"));
    }
    if args.document.is_empty() && args.file.is_none() {
        let hint = "`--document TEXT` for each document, `--file FILE`, or requests with `--jsonl FILE`";
        return Err(Failure::usage("no document given", hint));
    }
    let request = defaults(args);
    request.check().map_err(Failure::senseless)?;
    Ok(RerankRequest {
        documents: judge::texts(&args.document, args.file.as_deref(), args.column.as_deref())?,
        ..request
    })
}

/// Warns of an answer that begins the other one. `answers` are those for yes and no.
fn warn(answers: &[Label; 2], outcome: &RerankOutcome, quiet: bool) {
    let name = |index: usize| match answers.get(index) {
        Some(Label::Text(text)) => text.trim(),
        _ => "",
    };
    let prefix = outcome.prefix_label.filter(|_| !quiet);
    judge::warn_of_prefix(prefix.map(|(one, other)| (name(one), name(other))));
}

/// Answers JSON lines with rankings.
struct Rerankings<'a> {
    loaded: &'a LoadedModel,
    defaults: RerankRequest,
    chat: Option<ChatFrames>,
    /// Whether warnings are left out. A warning is printed once.
    quiet: bool,
}

impl Answers for Rerankings<'_> {
    type Request = RerankLine;
    /// The answers for yes and no.
    type Context = [Label; 2];
    type Outcome = Result<RerankOutcome, EngineError>;

    fn begin(&mut self, line: RerankLine, done: Done<Self::Outcome>) -> Result<[Label; 2], Failure> {
        let request = rerank::request(line, &self.defaults)?;
        let answers = [request.yes.clone(), request.no.clone()];
        let options = judge::framed(self.chat.as_mut(), request.options, RerankRequest::INSTRUCTION)?;
        let request = RerankRequest { options, ..request };
        done.when_ended(self.loaded.engine.submit_rerank(request, &Cancel::new())?, |outcome| outcome);
        Ok(answers)
    }

    fn answer(&mut self, answers: [Label; 2], outcome: Self::Outcome) -> Result<Answer, Failure> {
        let outcome = outcome?;
        warn(&answers, &outcome, self.quiet);
        self.quiet |= outcome.prefix_label.is_some();
        let json = output::json(&rerank::answer(self.loaded, outcome))?;
        Ok(Answer { json, stop: false })
    }
}

/// The rows of the comma-separated values: index, relevance, document, and error.
fn values(documents: &[String], outcome: &RerankOutcome) -> Vec<Vec<String>> {
    let document = |index: usize| documents.get(index).cloned().unwrap_or_default();
    let mut rows = vec![["index", "relevance", "document", "error"].map(str::to_owned).to_vec()];
    rows.extend(outcome.results.iter().map(|result| match result {
        Ok(ranked) => vec![
            ranked.index.to_string(),
            ranked.relevance.to_string(),
            document(ranked.index),
            String::new(),
        ],
        Err(error) => {
            vec![error.index.to_string(), String::new(), document(error.index), error.message.clone()]
        }
    }));
    rows
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
    use redline_engine::{JudgeOptions, LabelEnd, LongLabels, Truncate};

    use super::*;

    fn parsed(line: &str) -> RerankArgs {
        let command = RerankArgs::augment_args(clap::Command::new("rerank").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split_whitespace()).unwrap();
        RerankArgs::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn every_flag_of_the_command_reaches_the_request() {
        let line = "--query q --document d --template {query}{document}: --yes y --no n --top-n 3 --threshold 0.5 --length mean \
                    --label-end never --end . --calibrate=nothing --truncate left --item-errors --timeout 2.5";
        let request = request(&parsed(line)).unwrap();
        let text = |text: &str| Label::Text(text.to_owned());
        let expected = RerankRequest {
            yes: text("y"),
            no: text("n"),
            top_n: Some(3),
            threshold: Some(0.5),
            options: JudgeOptions {
                template: Some("{query}{document}:".to_owned()),
                long_labels: LongLabels::Mean,
                label_end: LabelEnd::Never,
                end: Some(text(".")),
                calibrate: Some("nothing".to_owned()),
                truncate: Some(Truncate::Left),
                item_errors: true,
                timeout_s: Some(2.5),
                ..JudgeOptions::default()
            },
            ..RerankRequest::new("q".to_owned(), vec!["d".to_owned()])
        };
        assert_eq!(format!("{request:#?}"), format!("{expected:#?}"));
    }

    #[test]
    fn an_answer_in_a_chat_begins_without_a_space() {
        let labels = |line: &str| {
            let request = defaults(&parsed(line));
            [request.yes, request.no].map(|label| format!("{label:?}")).join(" ")
        };
        assert_eq!(labels("--query q"), r#"Text(" yes") Text(" no")"#);
        assert_eq!(labels("--query q --chat --no nein"), r#"Text("yes") Text("nein")"#);
    }
}
