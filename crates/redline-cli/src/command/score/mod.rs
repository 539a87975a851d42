//! `redline score`: the probability of each label as the next token after query and item.

mod labels;
mod request;
mod summary;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::json::finite::Finite;
use redline_api::jsonl::score::{self, ScoreLine, Scoring};
use redline_api::model::LoadedModel;
use redline_engine::{Cancel, EngineError, LongLabels, ScoreOutcome, ScoreRequest, Tokenization, Truncate};

use self::labels::Labels;
use super::Context;
use super::receipt::ReceiptFlags;
use super::template::{self, ChatFlags, Prompts};
use crate::adapters::AdapterFlags;
use crate::jsonl::{self, Answer, Answers, Done, Lines, TargetFlags};
use crate::message::{self, Failure};
use crate::model::{MachineFlags, ModelFlag};
use crate::output;
use crate::prefix_cache::PrefixCacheFlags;
use crate::value::{self, Ids};

/// Keys of a line of `--jsonl`, for the help.
fn keys() -> String {
    format!("{KEYS} Keys of a conversation, instead of query: {}", template::KEYS)
}

/// Keys that do not concern the chat template.
const KEYS: &str = "Keys of a line of --jsonl: id (any value; the answer repeats it), query (text or list of ids), items (text, list of texts, or list of \
    lists of ids), labels (list of texts) and/or label_token_ids, item_labels (a list of labels for each item), long_labels, apply_softmax (or softmax), item_first, full_logprobs, \
    tokenization, mc_samples, seed, truncate, item_errors, return_token_ids, cache_salt, adapter (a name, or a list of names and of objects with name and scale), timeout_s, receipt (true, or an object with layers). An absent key takes the \
    value of the command's flag. Up to 64 lines are run together; answers come in the order of the lines, and timeout_s counts \
    from the moment at which a line is begun.";

/// Flags of `score`.
#[derive(Debug, Args)]
#[command(after_help = keys())]
pub(super) struct ScoreArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// The text that all items share
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["query_ids", "item_ids"])]
    query: Option<String>,
    /// The query as token ids
    #[arg(long, value_name = "1,2,3", value_parser = value::ids, allow_hyphen_values = true)]
    query_ids: Option<Ids>,
    /// An item, which gets a row of scores (repeatable; may be empty)
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["query_ids", "item_ids", "items_file"])]
    item: Vec<String>,
    /// An item as token ids (repeatable)
    #[arg(long, value_name = "4,5", value_parser = value::ids, allow_hyphen_values = true)]
    item_ids: Vec<Ids>,
    /// Items from a file, one per line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query_ids", "item_ids"])]
    items_file: Option<PathBuf>,
    /// Requests from a file, one JSON object per line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "query_ids", "item", "item_ids", "items_file"])]
    jsonl: Option<PathBuf>,
    #[command(flatten)]
    target: TargetFlags,
    #[command(flatten)]
    labels: Labels,
    /// How to score a label of several tokens: by the probability of all of them (sum), by its geometric mean per token (mean) or
    /// per byte (bytes), or not at all, which is an error (refuse)
    #[arg(long, value_parser = value::choice::<LongLabels>(), default_value_t, value_name = "HOW")]
    long_labels: LongLabels,
    /// Softmax over the labels only, instead of the probability over the whole vocabulary
    #[arg(long)]
    softmax: bool,
    /// Put the item before the query
    #[arg(long)]
    item_first: bool,
    /// Evaluate the whole vocabulary even with --softmax, so that log-probabilities are those over the vocabulary
    #[arg(long)]
    full_logprobs: bool,
    /// How query and item become tokens: joined as text (concat), or tokenised separately (separate)
    #[arg(long, value_parser = value::choice::<Tokenization>(), default_value_t, value_name = "HOW")]
    tokenization: Tokenization,
    /// With a model that fills masks: maximum number of ways to mask the tokens of a label that are evaluated [default: 128]; a
    /// label that has no more ways (7 tokens or fewer by default) is scored exactly, for a longer one this number of ways is drawn
    #[arg(long, value_name = "N")]
    mc_samples: Option<usize>,
    /// With a model that fills masks: seed of these draws [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Which end of a prompt that exceeds the context is dropped; without this flag, such a prompt is an error
    #[arg(long, value_parser = value::choice::<Truncate>(), value_name = "END")]
    truncate: Option<Truncate>,
    /// Report an item's error in its place instead of failing the whole request
    #[arg(long)]
    item_errors: bool,
    /// Return the token ids of every scored prompt
    #[arg(long)]
    return_token_ids: bool,
    /// Time limit of a request in seconds; a request that exceeds it fails
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    timeout: Option<f64>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print only the scores, as JSON: for every request a line {"scores":[[a, b], [c, d]]} with a list per item, or null if it
    /// failed
    #[arg(long, conflicts_with = "json")]
    brief: bool,
    /// Print nothing but the answer
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    chat: ChatFlags,
    #[command(flatten)]
    receipt: ReceiptFlags,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    prefix_cache: PrefixCacheFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// Scores the request from the flags, or answers a file of requests.
pub(super) fn run(args: &ScoreArgs, context: &Context) -> Result<ExitCode, Failure> {
    args.target.check(args.jsonl.is_some())?;
    let inputs = [("`--jsonl -`", args.jsonl.as_deref()), ("`--items-file -`", args.items_file.as_deref())];
    args.chat.check_input(&inputs)?;
    let model = args.model.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args.prefix_cache.resolve(settings, context.environment)?.with_adapters(&args.adapters);
    let defaults = request::defaults(args);
    let prompts = args.chat.open(&model, context.environment, args.jsonl.is_some(), args.quiet)?;
    if let Some(path) = &args.jsonl {
        let lines = Lines::open(path)?;
        let loaded = settings.load(&model, context.environment)?;
        let mut scores =
            Scores { loaded: &loaded, defaults: &defaults, brief: args.brief, prompts: &prompts };
        return Ok(jsonl::answer_all(lines, &args.target, &mut scores, None)?.code());
    }
    let receipt = args.receipt.options();
    let request = ScoreRequest { receipt, ..request::complete(args, defaults, &prompts)? };
    let loaded = settings.load(&model, context.environment)?;
    score_once(&loaded, args, request)
}

fn score_once(loaded: &LoadedModel, args: &ScoreArgs, request: ScoreRequest) -> Result<ExitCode, Failure> {
    if args.json || args.brief {
        let outcome = loaded.engine.score(request)?;
        let receipt = outcome.receipt.clone();
        output::line(&document(&score::answer(loaded, outcome), args.brief)?)?;
        args.receipt.write(receipt.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (items, labels) = (request.items.clone(), request.labels.clone());
    let outcome = loaded.engine.score(request)?;
    output::piece(&table::render(&items, &labels, &outcome))?;
    args.receipt.write(outcome.receipt.as_deref())?;
    if !args.quiet {
        message::say(summary::summary(loaded, &outcome));
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer as JSON: only its scores if it is to be brief.
fn document(scoring: &Scoring, brief: bool) -> Result<String, Failure> {
    #[derive(serde::Serialize)]
    struct Brief<'a> {
        scores: &'a [Option<Vec<Finite<f32>>>],
    }
    if brief { output::json(&Brief { scores: &scoring.scores }) } else { output::json(scoring) }
}

/// Answers JSON lines with scores.
struct Scores<'a> {
    loaded: &'a LoadedModel,
    defaults: &'a ScoreRequest,
    brief: bool,
    prompts: &'a Prompts,
}

impl Answers for Scores<'_> {
    type Request = ScoreLine;
    type Context = ();
    type Outcome = Result<ScoreOutcome, EngineError>;

    fn begin(&mut self, mut line: ScoreLine, done: Done<Self::Outcome>) -> Result<(), Failure> {
        let query = self.prompts.of_line(
            "query",
            line.query.take(),
            line.messages.take(),
            std::mem::take(&mut line.chat),
        )?;
        let request = score::request(line, query, self.defaults)?;
        done.when_ended(self.loaded.engine.submit_score(request, &Cancel::new())?, |outcome| outcome);
        Ok(())
    }

    fn answer(&mut self, (): (), outcome: Self::Outcome) -> Result<Answer, Failure> {
        let json = document(&score::answer(self.loaded, outcome?), self.brief)?;
        Ok(Answer { json, stop: false })
    }
}
