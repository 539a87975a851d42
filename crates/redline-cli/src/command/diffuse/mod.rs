//! `redline diffuse`: fills masks, after a prompt or in it.

mod frames;
mod page;
mod request;
mod summary;

use std::mem::take;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::diffusion::DiffusionKeys;
use redline_api::jsonl::diffuse::{self, DiffuseLine, RequestEcho};
use redline_api::model::LoadedModel;
use redline_api::options::RequestOptions;
use redline_api::sampling::SamplingParameters;
use redline_engine::{
    Cancel, DiffuseOutcome, DiffuseRequest, DiffusionProgress, EngineError, FinishReason, Ticket,
};

use super::receipt::ReceiptFlags;
use super::template::{self, ChatFlags, Prompts};
use super::{Context, finish};
use crate::adapters::AdapterFlags;
use crate::interrupt::Interrupt;
use crate::jsonl::{self, Answer, Answers, Done, Lines, TargetFlags};
use crate::message::{self, Failure};
use crate::model::{MachineFlags, ModelFlag};
use crate::output::{self, Stream};
use crate::parameters::{FlagSet, ParameterFlags};
use crate::prefix_cache::PrefixCacheFlags;
use crate::value::{self, Ids};

/// Keys of a line of `--jsonl`, for the help.
fn keys() -> String {
    let names =
        [DiffusionKeys::NAMES, SamplingParameters::OF_CANVASES, RequestOptions::NAMES].concat().join(", ");
    format!(
        "Masks in the prompt are filled too: write the model's own mask token, such as `<|mask|>`.\n\n\
         Keys of a line of --jsonl: id (any value; the answer repeats it), prompt (text or list of ids), max_new_tokens, {names}. stop \
         is a text or a list of texts, {} Keys of a conversation, instead of prompt: {}",
        template::OPTIONS,
        template::KEYS
    )
}

/// Flags of `diffuse`.
#[derive(Debug, Args)]
#[command(after_help = keys())]
pub(super) struct DiffuseArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// The text before the masks
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
    /// Number of masks after the prompt; 0 fills only the masks in the prompt
    #[arg(long, value_name = "N", default_value_t = diffuse::MAX_NEW_TOKENS)]
    max_new_tokens: usize,
    /// Time limit of a request in seconds; a request that exceeds it fails
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    timeout: Option<f64>,
    /// Print one JSON document
    #[arg(long, conflicts_with = "show_steps")]
    json: bool,
    /// List every pass in the JSON document: rows, positions, tokens, confidences
    #[arg(long)]
    trace: bool,
    /// Show the canvas after every pass, instead of the text at the end
    #[arg(long, conflicts_with = "jsonl")]
    show_steps: bool,
    /// Write a small HTML page that shows the passes as an animation
    #[arg(long, value_name = "FILE", conflicts_with = "jsonl")]
    steps_html: Option<PathBuf>,
    /// Print nothing but the text, or with --show-steps the canvases
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    order: ParameterFlags<Order>,
    #[command(flatten)]
    chat: ChatFlags,
    #[command(flatten)]
    sampling: ParameterFlags<CanvasSampling>,
    #[command(flatten)]
    receipt: ReceiptFlags,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    prefix_cache: PrefixCacheFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// The order in which masks are filled.
#[derive(Debug)]
struct Order;

impl FlagSet for Order {
    type Parameters = DiffusionKeys;
    const NAMES: &'static [&'static str] = DiffusionKeys::NAMES;
    const HEADING: &'static str =
        "Order (exact unless a cache is given; fewer steps, a threshold or a cache trade quality for speed)";
}

/// How the token of a mask is chosen.
#[derive(Debug)]
struct CanvasSampling;

impl FlagSet for CanvasSampling {
    type Parameters = SamplingParameters;
    const NAMES: &'static [&'static str] = SamplingParameters::OF_CANVASES;
    const HEADING: &'static str = "Sampling (greedy unless a temperature is given)";
}

/// Fills the canvas from the flags, or answers a file of requests.
pub(super) fn run(args: &DiffuseArgs, context: &Context) -> Result<ExitCode, Failure> {
    args.target.check(args.jsonl.is_some())?;
    args.chat.check_input(&[("`--jsonl -`", args.jsonl.as_deref())])?;
    let model = args.model.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args.prefix_cache.resolve(settings, context.environment)?.with_adapters(&args.adapters);
    let defaults = request::defaults(args);
    let prompts = args.chat.open(&model, context.environment, args.jsonl.is_some(), args.quiet)?;
    if let Some(path) = &args.jsonl {
        let lines = Lines::open(path)?;
        let loaded = settings.load(&model, context.environment)?;
        return diffuse_lines(&loaded, (lines, &args.target), &defaults, (&prompts, args.trace));
    }
    let mut request = request::complete(args, &defaults, &prompts)?;
    request.check().map_err(Failure::senseless)?;
    let loaded = settings.load(&model, context.environment)?;
    let stop_id = prompts.chat.stop_id(&request.prompt, request.ignore_eos, &loaded.engine);
    request.stop_ids.extend(stop_id);
    request.receipt = args.receipt.options();
    diffuse_once(&loaded, args, request)
}

fn diffuse_once(
    loaded: &LoadedModel,
    args: &DiffuseArgs,
    request: DiffuseRequest,
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    let echo = RequestEcho::of(&request, args.trace);
    let outcome = if args.json {
        let outcome = interrupt
            .during(|cancel| loaded.engine.submit_diffuse(request, cancel).and_then(Ticket::wait))?;
        output::line(&output::json(&diffuse::answer(loaded, echo, &outcome))?)?;
        outcome
    } else {
        let outcome = interrupt.during(|cancel| shown(loaded, args, request, cancel))?;
        if !args.quiet {
            message::say(summary::summary(loaded, &outcome));
        }
        outcome
    };
    args.receipt.write(outcome.receipt.as_deref())?;
    if let Some(path) = &args.steps_html {
        let page = page::html(&loaded.engine, &loaded.name, &outcome);
        output::file(path, "--steps-html", &page)?;
    }
    Ok(finish::code(outcome.finish_reason))
}

/// Prints the text as it becomes final (without a tokenizer, the ids at the end), or the canvas after every pass. Stops when standard
/// output is closed.
fn shown(
    loaded: &LoadedModel,
    args: &DiffuseArgs,
    request: DiffuseRequest,
    cancel: &Cancel,
) -> Result<DiffuseOutcome, Failure> {
    let ticket = loaded.engine.submit_diffuse(request, cancel)?;
    let (mut text, mut steps) = (Stream::default(), Stream::default());
    let mut frames = None;
    let outcome = ticket.wait_with(|progress| {
        let read = match progress {
            DiffusionProgress::Canvas(tokens) => {
                frames = args.show_steps.then(|| frames::Frames::new(&loaded.engine, &tokens));
                true
            }
            DiffusionProgress::Pass(pass) => {
                frames.as_mut().is_none_or(|frames| steps.push(&frames.after(&pass)))
            }
            DiffusionProgress::Text(piece) => args.show_steps || text.push(&piece),
        };
        if !read {
            cancel.cancel();
        }
    })?;
    if args.show_steps {
        steps.finish()?;
    } else {
        if loaded.engine.tokenizer().is_none() {
            text.push(&output::ids(&outcome.token_ids));
        }
        text.finish()?;
    }
    Ok(outcome)
}

fn diffuse_lines(
    loaded: &LoadedModel,
    (lines, target): (Lines, &TargetFlags),
    defaults: &DiffuseLine,
    (prompts, trace): (&Prompts, bool),
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    let tally = interrupt.during(|cancel| {
        let mut canvases = Canvases { loaded, defaults, prompts, trace, cancel };
        jsonl::answer_all(lines, target, &mut canvases, Some(&interrupt))
    })?;
    Ok(tally.code())
}

/// Answers JSON lines with canvases.
struct Canvases<'a> {
    loaded: &'a LoadedModel,
    defaults: &'a DiffuseLine,
    prompts: &'a Prompts,
    trace: bool,
    cancel: &'a Cancel,
}

impl Answers for Canvases<'_> {
    type Request = DiffuseLine;
    type Context = RequestEcho;
    type Outcome = Result<DiffuseOutcome, EngineError>;

    fn begin(&mut self, mut line: DiffuseLine, done: Done<Self::Outcome>) -> Result<RequestEcho, Failure> {
        let prompt =
            self.prompts.of_line("prompt", line.prompt.take(), line.messages.take(), take(&mut line.chat))?;
        let mut request = diffuse::request(line, prompt, self.defaults)?;
        let stop_id = self.prompts.chat.stop_id(&request.prompt, request.ignore_eos, &self.loaded.engine);
        request.stop_ids.extend(stop_id);
        let echo = RequestEcho::of(&request, self.trace);
        done.when_ended(self.loaded.engine.submit_diffuse(request, self.cancel)?, |outcome| outcome);
        Ok(echo)
    }

    fn answer(&mut self, echo: RequestEcho, outcome: Self::Outcome) -> Result<Answer, Failure> {
        let outcome = outcome?;
        let stop = outcome.finish_reason == FinishReason::Cancelled;
        Ok(Answer { json: output::json(&diffuse::answer(self.loaded, echo, &outcome))?, stop })
    }
}
