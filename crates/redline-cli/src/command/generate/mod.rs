//! `redline generate`: continues a prompt, token by token.

mod answer;
mod request;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_engine::{Cancel, Engine, EngineError, FinishReason, GenerateOutcome, GenerateRequest, Ticket};

use redline_wire::GenerateLine;

use super::chat::{Chat, ChatFlags};
use super::{Context, ending};
use crate::interrupt::Interrupt;
use crate::jsonl::{self, Answer, Answers, Done};
use crate::model::{Loaded, MachineFlags, MemoryFlags, ModelFlag};
use crate::output::{self, Stream};
use crate::report::{self, Failure};
use crate::value::{self, Ids};

/// Keys of a line of `--jsonl`, for the help.
const KEYS: &str = "Keys of a line of --jsonl: prompt (text or list of ids), max_new_tokens, temperature, top_k, top_p, \
    min_p, seed, stop (text or list of texts), ignore_eos, kv_cache, logprobs, prompt_logprobs, prompt_logprobs_from, cache_salt, timeout_s. A key that is left out takes \
    the command's flag. Lines are run together, as many as there are; answers come in their order.";

/// Flags of `generate`.
#[derive(Debug, Args)]
#[command(after_help = KEYS)]
pub(super) struct GenerateArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// What is continued
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
    /// Most new tokens
    #[arg(long, value_name = "N", default_value = "128", value_parser = value::count)]
    max_new_tokens: usize,
    /// End before this text (repeatable)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Seconds that a request may take before it is given up
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    timeout: Option<f64>,
    /// With --jsonl: milliseconds that prompts may add to a step while others generate; default: 4/5 of the step without
    #[arg(long, value_name = "MS", value_parser = value::milliseconds, requires = "jsonl")]
    stall_ms: Option<f64>,
    /// Go on after an end-of-sequence token
    #[arg(long)]
    ignore_eos: bool,
    /// Recompute the whole sequence for every token (the reference arm of the cache)
    #[arg(long)]
    no_kv_cache: bool,
    /// Log-probabilities of every new token and of the N most probable ones
    #[arg(long, value_name = "N")]
    logprobs: Option<usize>,
    /// Log-probabilities of the prompt's tokens and of the N most probable ones in their place
    #[arg(long, value_name = "N")]
    prompt_logprobs: Option<usize>,
    /// With --prompt-logprobs: those from this token on; what lies before may come from the prefix cache
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
struct SamplingFlags {
    /// 0 is greedy; default: 1 if one of the next three is given, else 0
    #[arg(long, value_name = "T", value_parser = value::temperature, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Keep the K most probable tokens; 0 keeps all
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Keep the smallest set of tokens whose probability reaches P
    #[arg(long, value_name = "P", value_parser = value::top_p, allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Drop tokens below this share of the most probable one
    #[arg(long, value_name = "P", value_parser = value::min_p, allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Same seed, same text [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Continues the prompt from the flags, or answers a file of requests.
pub(super) fn run(args: &GenerateArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args.memory.resolve(settings, context.environment)?.with_stall(args.stall_ms);
    let template = request::template(args);
    let chat = args.chat.open(&model, context.environment)?;
    if let Some(path) = &args.jsonl {
        let input = jsonl::open(path)?;
        let loaded = settings.load(&model, context.environment)?;
        return generate_lines(&loaded, path, input, &template, &chat);
    }
    let mut request = request::complete(args, template)?;
    let loaded = settings.load(&model, context.environment)?;
    chat.put(&loaded.engine, &mut request.prompt)?;
    generate_once(&loaded, args, request)
}

fn generate_once(
    loaded: &Loaded,
    args: &GenerateArgs,
    request: GenerateRequest,
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    if args.json {
        let echo = answer::RequestEcho::of(&request);
        let outcome = interrupt
            .during(|cancel| loaded.engine.submit_generate(request, cancel).and_then(Ticket::wait))?;
        let code = ending::code(outcome.finish_reason);
        output::line(&output::json(&answer::completion(loaded, echo, outcome))?)?;
        return Ok(code);
    }
    let outcome = stream(&loaded.engine, &interrupt, request)?;
    if let Some(positions) = &outcome.prompt_logprobs {
        let echo: Vec<_> = positions.iter().flatten().cloned().collect();
        output::piece(&answer::logprobs(&echo))?;
    }
    if let Some(positions) = &outcome.logprobs {
        output::piece(&answer::logprobs(positions))?;
    }
    if !args.quiet {
        report::say(answer::summary(loaded, &outcome));
    }
    Ok(ending::code(outcome.finish_reason))
}

/// Prints the text as it is generated. Generation stops when standard output is closed.
fn stream(
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
    loaded: &Loaded,
    path: &Path,
    input: jsonl::Input,
    template: &request::Template,
    chat: &Chat<'_>,
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    let tally = interrupt.during(|cancel| {
        let mut completions = Completions { loaded, template, chat, cancel };
        jsonl::answer_all(path, input, &mut output::line, &mut completions, Some(&interrupt))
    })?;
    Ok(tally.code())
}

/// Answers JSON lines with continuations.
struct Completions<'a> {
    loaded: &'a Loaded,
    template: &'a request::Template,
    chat: &'a Chat<'a>,
    cancel: &'a Cancel,
}

impl Answers for Completions<'_> {
    type Request = GenerateLine;
    type Context = answer::RequestEcho;
    type Outcome = Result<GenerateOutcome, EngineError>;

    fn begin(
        &mut self,
        line: GenerateLine,
        done: Done<Self::Outcome>,
    ) -> Result<answer::RequestEcho, Failure> {
        let mut request = request::from_line(line, self.template);
        self.chat.put(&self.loaded.engine, &mut request.prompt)?;
        let echo = answer::RequestEcho::of(&request);
        done.with_outcome_of(self.loaded.engine.submit_generate(request, self.cancel)?);
        Ok(echo)
    }

    fn answer(&mut self, echo: answer::RequestEcho, outcome: Self::Outcome) -> Result<Answer, Failure> {
        let outcome = outcome?;
        let stop = outcome.finish_reason == FinishReason::Cancelled;
        let json = output::json(&answer::completion(self.loaded, echo, outcome))?;
        Ok(Answer { json, stop })
    }
}
