//! `redline generate`: continues a prompt, token by token.

mod request;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_api::LoadedModel;
use redline_api::generate::{self, GenerateDefaults, RequestEcho, SamplingDefaults};
use redline_engine::{Cancel, Engine, EngineError, FinishReason, GenerateOutcome, GenerateRequest, Ticket};

use redline_wire::GenerateLine;

use super::template::{self, ChatFlags, Prompts};
use super::{Context, finish};
use crate::interrupt::Interrupt;
use crate::jsonl::{self, Answer, Answers, Done};
use crate::message::{self, Failure};
use crate::model::{MachineFlags, MemoryFlags, ModelFlag};
use crate::output::{self, Stream};
use crate::value::{self, Ids};

/// Keys of a line of `--jsonl`, for the help.
fn keys() -> String {
    format!("{KEYS} Keys of a conversation, instead of prompt: {}", template::KEYS)
}

/// Keys that do not concern the chat template.
const KEYS: &str = "Keys of a line of --jsonl: prompt (text or list of ids), max_new_tokens, temperature, top_k, top_p, \
    min_p, seed, stop (text or list of texts), ignore_eos, kv_cache, logprobs, prompt_logprobs, prompt_logprobs_from, cache_salt, timeout_s. An absent key takes \
    the value of the command's flag. Up to 64 lines are run together; answers come in the order of the lines.";

/// Flags of `generate`.
#[derive(Debug, Args)]
#[command(after_help = keys())]
pub(super) struct GenerateArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// The text to continue
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_ids")]
    prompt: Option<String>,
    /// The prompt as token ids
    #[arg(long, value_name = "1,2,3", value_parser = value::ids, allow_hyphen_values = true)]
    prompt_ids: Option<Ids>,
    #[command(flatten)]
    chat: ChatFlags,
    /// Requests from a file, one JSON object per line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "prompt_ids"])]
    jsonl: Option<PathBuf>,
    /// Maximum number of new tokens
    #[arg(long, value_name = "N", default_value_t = GenerateDefaults::MAX_NEW_TOKENS, value_parser = value::count)]
    max_new_tokens: usize,
    /// Stop before the first occurrence of this text (repeatable)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Time limit of a request in seconds; a request that exceeds it fails
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    timeout: Option<f64>,
    /// With --jsonl: milliseconds that prompts may add to a pass while other requests generate; default: 4/5 of its time without
    /// them
    #[arg(long, value_name = "MS", value_parser = value::milliseconds, requires = "jsonl")]
    stall_ms: Option<f64>,
    /// Continue after an end-of-sequence token
    #[arg(long)]
    ignore_eos: bool,
    /// Recompute the whole sequence for every token, to compare with the KV cache
    #[arg(long)]
    no_kv_cache: bool,
    /// Return the log-probability of every new token, and of the N most probable tokens at its position
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
    /// Print nothing but the text
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    memory: MemoryFlags,
}

/// How the next token is chosen: greedily, unless one of these is given.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling (greedy unless one of the first four is given)")]
pub(super) struct SamplingFlags {
    /// Temperature; 0 is greedy; default: 1 if one of the next three is given, else 0
    #[arg(long, value_name = "T", value_parser = value::temperature, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Keep the K most probable tokens; 0 keeps all
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Keep the smallest set of tokens whose probability reaches P
    #[arg(long, value_name = "P", value_parser = value::top_p, allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Drop tokens whose probability is below this share of that of the most probable token
    #[arg(long, value_name = "P", value_parser = value::min_p, allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Seed of the random numbers; the same seed gives the same text [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl SamplingFlags {
    /// The values that the flags give to all requests.
    pub(super) fn defaults(&self) -> SamplingDefaults {
        SamplingDefaults {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed,
        }
    }
}

/// Continues the prompt from the flags, or answers a file of requests.
pub(super) fn run(args: &GenerateArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args.memory.resolve(settings, context.environment)?.with_stall(args.stall_ms);
    let defaults = request::defaults(args);
    let prompts = args.chat.open(&model, context.environment, args.jsonl.is_some(), args.quiet)?;
    if let Some(path) = &args.jsonl {
        let input = jsonl::open(path)?;
        let loaded = settings.load(&model, context.environment)?;
        return generate_lines(&loaded, path, input, &defaults, &prompts);
    }
    let request = request::complete(args, &defaults, &prompts)?;
    let loaded = settings.load(&model, context.environment)?;
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
        let code = finish::code(outcome.finish_reason);
        output::line(&output::json(&generate::answer(loaded, echo, outcome))?)?;
        return Ok(code);
    }
    let outcome = stream(&loaded.engine, &interrupt, request)?;
    if let Some(positions) = &outcome.prompt_logprobs {
        let echo: Vec<_> = positions.iter().flatten().cloned().collect();
        output::piece(&summary::logprobs(&echo))?;
    }
    if let Some(positions) = &outcome.logprobs {
        output::piece(&summary::logprobs(positions))?;
    }
    if !args.quiet {
        message::say(summary::summary(loaded, &outcome));
    }
    Ok(finish::code(outcome.finish_reason))
}

/// Prints the text as it is generated. Generation stops when standard output is closed.
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
    stream.finish()?;
    Ok(outcome)
}

fn generate_lines(
    loaded: &LoadedModel,
    path: &Path,
    input: jsonl::Input,
    defaults: &GenerateDefaults,
    prompts: &Prompts,
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    let tally = interrupt.during(|cancel| {
        let mut completions = Completions { loaded, defaults, prompts, cancel };
        jsonl::answer_all(path, input, &mut output::line, &mut completions, Some(&interrupt))
    })?;
    Ok(tally.code())
}

/// Answers JSON lines with continuations.
struct Completions<'a> {
    loaded: &'a LoadedModel,
    defaults: &'a GenerateDefaults,
    prompts: &'a Prompts,
    cancel: &'a Cancel,
}

impl Answers for Completions<'_> {
    type Request = GenerateLine;
    type Context = RequestEcho;
    type Outcome = Result<GenerateOutcome, EngineError>;

    fn begin(&mut self, mut line: GenerateLine, done: Done<Self::Outcome>) -> Result<RequestEcho, Failure> {
        let prompt = self.prompts.of_line("prompt", line.prompt.take(), line.take_chat_keys())?;
        let request = generate::request(line, prompt, self.defaults);
        let echo = RequestEcho::of(&request);
        done.with_outcome_of(self.loaded.engine.submit_generate(request, self.cancel)?);
        Ok(echo)
    }

    fn answer(&mut self, echo: RequestEcho, outcome: Self::Outcome) -> Result<Answer, Failure> {
        let outcome = outcome?;
        let stop = outcome.finish_reason == FinishReason::Cancelled;
        let json = output::json(&generate::answer(self.loaded, echo, outcome))?;
        Ok(Answer { json, stop })
    }
}
