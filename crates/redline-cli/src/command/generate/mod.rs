//! `redline generate`: continues a prompt, token by token.

mod request;
mod summary;

use std::mem::take;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::grammar::GrammarKeys;
use redline_api::jsonl::generate::{self, GenerateKeys, GenerateLine, RequestEcho};
use redline_api::model::LoadedModel;
use redline_api::options::RequestOptions;
use redline_api::sampling::SamplingParameters;
use redline_engine::{
    Cancel, Continuation, Engine, EngineError, FinishReason, GenerateOutcome, GenerateRequest,
    PositionLogprobs, Ticket,
};

use super::grammar::GrammarFlags;
use super::receipt::ReceiptFlags;
use super::template::{self, ChatFlags, Prompts};
use super::{Context, finish};
use crate::adapters::AdapterFlags;
use crate::interrupt::Interrupt;
use crate::jsonl::{self, Answer, Answers, Done, Lines, TargetFlags};
use crate::message::{self, Failure};
use crate::model::{MachineFlags, ModelFlag};
use crate::output::{self, Stream};
use crate::parameters::{FlagSet, ParameterFlags, SAMPLING};
use crate::prefix_cache::PrefixCacheFlags;
use crate::value::{self, Ids};

/// Keys of a line of `--jsonl`, for the help.
fn keys() -> String {
    let names = [GenerateKeys::NAMES, SamplingParameters::NAMES, GrammarKeys::NAMES, RequestOptions::NAMES]
        .concat()
        .join(", ");
    format!(
        "Keys of a line of --jsonl: id (any value; the answer repeats it), prompt (text or list of ids), {names}. logit_bias is an \
         object of ids and numbers, stop a text or a list of texts, {} Keys of a conversation, instead of prompt: {}",
        template::OPTIONS,
        template::KEYS
    )
}

/// Flags of `generate`.
#[derive(Debug, Args)]
#[command(after_help = keys())]
pub(super) struct GenerateArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// The text to continue
    #[arg(value_name = "PROMPT")]
    text: Option<String>,
    /// The same as a flag
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["text", "prompt_ids"])]
    prompt: Option<String>,
    /// The prompt as token ids
    #[arg(long, value_name = "1,2,3", conflicts_with = "text", value_parser = value::ids, allow_hyphen_values = true)]
    prompt_ids: Option<Ids>,
    /// Requests from a file, one JSON object per line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "prompt", "prompt_ids"])]
    jsonl: Option<PathBuf>,
    #[command(flatten)]
    target: TargetFlags,
    /// Maximum number of new tokens
    #[arg(long, value_name = "N", default_value_t = generate::MAX_NEW_TOKENS, value_parser = value::count)]
    max_new_tokens: usize,
    /// Time limit of a request in seconds; a request that exceeds it fails
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    timeout: Option<f64>,
    /// With --jsonl: milliseconds that prompts may add to a pass while other requests generate; default: 4/5 of its time without
    /// them
    #[arg(long, value_name = "MS", value_parser = value::milliseconds, requires = "jsonl")]
    stall_ms: Option<f64>,
    /// Recompute the whole sequence for every token, to compare with the KV cache
    #[arg(long)]
    no_kv_cache: bool,
    /// Return the log-probability of every new token, and of the N most probable tokens at its position, as the model gives them:
    /// before bias, penalties and sampling
    #[arg(long, value_name = "N")]
    logprobs: Option<usize>,
    /// Return the log-probability of every token of the prompt, and of the N most probable tokens at its position
    #[arg(long, value_name = "N")]
    prompt_logprobs: Option<usize>,
    /// With --prompt-logprobs: the first position for which they are returned; tokens before it may come from the prefix cache
    #[arg(long, value_name = "POSITION", default_value_t = 0, requires = "prompt_logprobs")]
    prompt_logprobs_from: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print nothing but the text (of several continuations, each after its heading)
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    chat: ChatFlags,
    #[command(flatten)]
    sampling: ParameterFlags<AllSampling>,
    #[command(flatten)]
    grammar: GrammarFlags,
    #[command(flatten)]
    receipt: ReceiptFlags,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    prefix_cache: PrefixCacheFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// All parameters of sampling.
#[derive(Debug)]
pub(super) struct AllSampling;

impl FlagSet for AllSampling {
    type Parameters = SamplingParameters;
    const NAMES: &'static [&'static str] = SamplingParameters::NAMES;
    const HEADING: &'static str = SAMPLING;
}

/// Continues the prompt from the flags, or answers a file of requests.
pub(super) fn run(args: &GenerateArgs, context: &Context) -> Result<ExitCode, Failure> {
    args.target.check(args.jsonl.is_some())?;
    args.chat.check_input(&[("`--jsonl -`", args.jsonl.as_deref())])?;
    let model = args.model.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args
        .prefix_cache
        .resolve(settings, context.environment)?
        .with_adapters(&args.adapters)
        .with_stall(args.stall_ms);
    let defaults = request::defaults(args)?;
    let prompts = args.chat.open(&model, context.environment, args.jsonl.is_some(), args.quiet)?;
    if let Some(path) = &args.jsonl {
        let lines = Lines::open(path)?;
        let loaded = settings.load(&model, context.environment)?;
        return generate_lines(&loaded, (lines, &args.target), &defaults, &prompts);
    }
    let mut request = request::complete(args, &defaults, &prompts)?;
    let loaded = settings.load(&model, context.environment)?;
    let stop_id = prompts.chat.stop_id(&request.prompt, request.ignore_eos, &loaded.engine);
    request.stop_ids.extend(stop_id);
    request.receipt = args.receipt.options();
    generate_once(&loaded, args, request)
}

fn generate_once(
    loaded: &LoadedModel,
    args: &GenerateArgs,
    request: GenerateRequest,
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    if args.json {
        let echo = RequestEcho::of(&request);
        let outcome = interrupt
            .during(|cancel| loaded.engine.submit_generate(request, cancel).and_then(Ticket::wait))?;
        let (code, receipt) = (code(&outcome), outcome.receipt.clone());
        output::line(&output::json(&generate::answer(loaded, echo, outcome))?)?;
        args.receipt.write(receipt.as_deref())?;
        return Ok(code);
    }
    let outcome = if request.continuations() == 1 {
        let outcome = stream(&loaded.engine, &interrupt, request)?;
        print_logprobs(outcome.prompt_logprobs.iter().flatten().flatten())?;
        print_logprobs(outcome.logprobs.iter().flatten())?;
        outcome
    } else {
        let outcome = interrupt
            .during(|cancel| loaded.engine.submit_generate(request, cancel).and_then(Ticket::wait))?;
        print_logprobs(outcome.prompt_logprobs.iter().flatten().flatten())?;
        print_all(outcome.clone().take_continuations())?;
        outcome
    };
    args.receipt.write(outcome.receipt.as_deref())?;
    if !args.quiet {
        message::say(summary::summary(loaded, &outcome));
    }
    Ok(code(&outcome))
}

/// The exit code of a request, which is interrupted if any of its continuations is.
fn code(outcome: &GenerateOutcome) -> ExitCode {
    finish::code(if outcome.cancelled { FinishReason::Cancelled } else { outcome.finish_reason })
}

/// Prints a table of log-probabilities, if there are any.
fn print_logprobs<'a>(positions: impl Iterator<Item = &'a PositionLogprobs>) -> Result<(), Failure> {
    output::piece(&summary::logprobs(positions))
}

/// Prints the continuations of a prompt, each after a heading if there are several.
fn print_all(continuations: Vec<Continuation>) -> Result<(), Failure> {
    let count = continuations.len();
    for (index, one) in continuations.into_iter().enumerate() {
        if count > 1 {
            output::line(&summary::heading(index, count, &one))?;
        }
        output::line(&one.text)?;
        print_logprobs(one.logprobs.iter().flatten())?;
    }
    Ok(())
}

/// Prints the text as it is generated; without a tokenizer, the ids at the end. Generation stops when standard output is closed.
pub(super) fn stream(
    engine: &Engine,
    interrupt: &Interrupt,
    request: GenerateRequest,
) -> Result<GenerateOutcome, Failure> {
    let mut stream = Stream::default();
    let outcome = interrupt.during(|cancel| {
        let mut on_text = |text: &str| {
            if !stream.push(text) {
                cancel.cancel();
            }
        };
        engine.generate(request, cancel, &mut on_text)
    })?;
    if engine.tokenizer().is_none() {
        stream.push(&output::ids(&outcome.token_ids));
    }
    stream.finish()?;
    Ok(outcome)
}

fn generate_lines(
    loaded: &LoadedModel,
    (lines, target): (Lines, &TargetFlags),
    defaults: &GenerateLine,
    prompts: &Prompts,
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    let tally = interrupt.during(|cancel| {
        let mut completions = Completions { loaded, defaults, prompts, cancel };
        jsonl::answer_all(lines, target, &mut completions, Some(&interrupt))
    })?;
    Ok(tally.code())
}

/// Answers JSON lines with continuations.
struct Completions<'a> {
    loaded: &'a LoadedModel,
    defaults: &'a GenerateLine,
    prompts: &'a Prompts,
    cancel: &'a Cancel,
}

impl Answers for Completions<'_> {
    type Request = GenerateLine;
    type Context = RequestEcho;
    type Outcome = Result<GenerateOutcome, EngineError>;

    fn begin(&mut self, mut line: GenerateLine, done: Done<Self::Outcome>) -> Result<RequestEcho, Failure> {
        let prompt =
            self.prompts.of_line("prompt", line.prompt.take(), line.messages.take(), take(&mut line.chat))?;
        let mut request = generate::request(line, prompt, self.defaults)?;
        let stop_id = self.prompts.chat.stop_id(&request.prompt, request.ignore_eos, &self.loaded.engine);
        request.stop_ids.extend(stop_id);
        let echo = RequestEcho::of(&request);
        done.when_ended(self.loaded.engine.submit_generate(request, self.cancel)?, |outcome| outcome);
        Ok(echo)
    }

    fn answer(&mut self, echo: RequestEcho, outcome: Self::Outcome) -> Result<Answer, Failure> {
        let outcome = outcome?;
        let stop = outcome.cancelled;
        let json = output::json(&generate::answer(self.loaded, echo, outcome))?;
        Ok(Answer { json, stop })
    }
}
