//! `redline diffuse`: fills masks, after a prompt or in it.

mod answer;
mod frames;
mod page;
mod request;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_engine::{
    Algorithm, BlockCache, Cancel, DiffuseOutcome, DiffuseRequest, DiffusionProgress, EngineError,
    FinishReason, Ticket,
};
use redline_wire::DiffuseLine;

use super::chat::{Chat, ChatFlags};
use super::{Context, ending};
use crate::interrupt::Interrupt;
use crate::jsonl::{self, Answer, Answers, Done};
use crate::model::{Loaded, MachineFlags, MemoryFlags, ModelFlag};
use crate::output::{self, Stream};
use crate::report::{self, Failure};
use crate::value::{self, Ids};

/// Keys of a line of `--jsonl`, for the help.
const KEYS: &str = "Masks in the prompt are filled too: write the model's own mask token, such as `<|mask|>`.\n\n\
    Keys of a line of --jsonl: prompt (text or list of ids), max_new_tokens, steps, algorithm, alg_temp, eps, temperature, \
    top_k, top_p, seed, block_length, cfg_scale, threshold, cache, refresh, stop (text or list of texts), ignore_eos, timeout_s. \
    A key that is left out takes the command's flag. Lines are run together, as many as there are; answers come in their order.";

/// Flags of `diffuse`.
#[derive(Debug, Args)]
#[command(after_help = KEYS)]
pub(super) struct DiffuseArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// What stands before the masks
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
    /// Masks after the prompt; 0 fills those of the prompt only
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_new_tokens: usize,
    /// End before this text (repeatable)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Seconds that a request may take before it is given up
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    timeout: Option<f64>,
    /// Go on after an end-of-sequence token
    #[arg(long)]
    ignore_eos: bool,
    /// Print one JSON document
    #[arg(long, conflicts_with = "show_steps")]
    json: bool,
    /// Every pass in the JSON document: rows, positions, tokens, confidences
    #[arg(long)]
    trace: bool,
    /// Show the canvas after every pass
    #[arg(long, conflicts_with = "jsonl")]
    show_steps: bool,
    /// Write the passes as a small animated page
    #[arg(long, value_name = "FILE", conflicts_with = "jsonl")]
    steps_html: Option<PathBuf>,
    /// Print nothing but the text
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    schedule: ScheduleFlags,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    memory: MemoryFlags,
}

/// Which masks are filled when.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Order (exact unless a cache is given; fewer steps, a threshold or a cache trade quality for speed)"
)]
struct ScheduleFlags {
    /// Steps, at most one per mask; default: one per mask
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Which masks first: origin, maskgit-plus, topk-margin, entropy (Dream), low-confidence, random (LLaDA); default: entropy or
    /// low-confidence, as the model's family has it
    #[arg(long, value_name = "NAME", value_parser = value::named::<Algorithm>)]
    algorithm: Option<Algorithm>,
    /// Temperature of the choice among masks; 0 takes the most confident [default: 0]
    #[arg(long, value_name = "T", value_parser = value::temperature, allow_negative_numbers = true)]
    alg_temp: Option<f32>,
    /// Last time of Dream's schedule [default: 0.001]
    #[arg(long, value_name = "T", value_parser = value::share_between)]
    eps: Option<f32>,
    /// Fill blocks of so many masks from left to right; must divide the new tokens; default: one block, or up to 32 masks with a
    /// threshold or a cache
    #[arg(long, value_name = "N")]
    block_length: Option<usize>,
    /// In every pass fill all masks whose token is at least so probable, and the most confident (Fast-dLLM; 0.9 is usual). Faster, but
    /// tokens chosen together do not know of each other: measure the quality
    #[arg(long, value_name = "P", value_parser = value::threshold, allow_negative_numbers = true)]
    threshold: Option<f32>,
    /// Within a block, keep the keys and values of what stands before it (prefix) or of everything else (dual) from the block's
    /// first pass (Fast-dLLM). Faster, but an approximation: measure the quality [default: none]
    #[arg(long, value_name = "WHICH", value_parser = value::named::<BlockCache>)]
    cache: Option<BlockCache>,
    /// With --cache: a pass over everything after so many passes of a block
    #[arg(long, value_name = "N", value_parser = value::count)]
    refresh: Option<usize>,
    /// Classifier-free guidance: move so far away from what the model says without the prompt [default: 0]
    #[arg(long, value_name = "S", value_parser = value::temperature, allow_negative_numbers = true)]
    cfg_scale: Option<f32>,
}

/// How the token of a mask is chosen.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling (greedy unless a temperature is given)")]
struct SamplingFlags {
    /// 0 is greedy [default: 0]
    #[arg(long, value_name = "T", value_parser = value::temperature, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Keep the K most probable tokens; 0 keeps all
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Keep the smallest set of tokens whose probability reaches P
    #[arg(long, value_name = "P", value_parser = value::top_p, allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Same seed, same text [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Fills the canvas from the flags, or answers a file of requests.
pub(super) fn run(args: &DiffuseArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args.memory.resolve(settings, context.environment)?;
    let template = request::template(args);
    let chat = args.chat.open(&model, context.environment)?;
    if let Some(path) = &args.jsonl {
        let input = jsonl::open(path)?;
        let loaded = settings.load(&model, context.environment)?;
        return diffuse_lines(&loaded, path, input, &template, (&chat, args.trace));
    }
    let mut request = request::complete(args, template)?;
    let loaded = settings.load(&model, context.environment)?;
    chat.put(&loaded.engine, &mut request.prompt)?;
    diffuse_once(&loaded, args, request)
}

fn diffuse_once(loaded: &Loaded, args: &DiffuseArgs, request: DiffuseRequest) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    let echo = answer::RequestEcho::of(&request, args.trace);
    let outcome = if args.json {
        let outcome = interrupt
            .during(|cancel| loaded.engine.submit_diffuse(request, cancel).and_then(Ticket::wait))?;
        output::line(&output::json(&answer::diffusion(loaded, echo, &outcome))?)?;
        outcome
    } else {
        let outcome = interrupt.during(|cancel| shown(loaded, args, request, cancel))?;
        if !args.quiet {
            report::say(answer::summary(loaded, &outcome));
        }
        outcome
    };
    if let Some(path) = &args.steps_html {
        let page = page::html(&loaded.engine, &loaded.name, &outcome);
        output::file(path, "--steps-html", &page)?;
    }
    Ok(ending::code(outcome.finish_reason))
}

/// Prints the text as it becomes final, or the canvas after every pass. Stops when standard output is closed.
fn shown(
    loaded: &Loaded,
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
        text.finish()?;
    }
    Ok(outcome)
}

fn diffuse_lines(
    loaded: &Loaded,
    path: &Path,
    input: jsonl::Input,
    template: &request::Template,
    (chat, trace): (&Chat<'_>, bool),
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    let tally = interrupt.during(|cancel| {
        let mut canvases = Canvases { loaded, template, chat, trace, cancel };
        jsonl::answer_all(path, input, &mut output::line, &mut canvases, Some(&interrupt))
    })?;
    Ok(tally.code())
}

/// Answers JSON lines with canvases.
struct Canvases<'a> {
    loaded: &'a Loaded,
    template: &'a request::Template,
    chat: &'a Chat<'a>,
    trace: bool,
    cancel: &'a Cancel,
}

impl Answers for Canvases<'_> {
    type Request = DiffuseLine;
    type Context = answer::RequestEcho;
    type Outcome = Result<DiffuseOutcome, EngineError>;

    fn begin(
        &mut self,
        line: DiffuseLine,
        done: Done<Self::Outcome>,
    ) -> Result<answer::RequestEcho, Failure> {
        let mut request = request::from_line(line, self.template);
        self.chat.put(&self.loaded.engine, &mut request.prompt)?;
        let echo = answer::RequestEcho::of(&request, self.trace);
        done.with_outcome_of(self.loaded.engine.submit_diffuse(request, self.cancel)?);
        Ok(echo)
    }

    fn answer(&mut self, echo: answer::RequestEcho, outcome: Self::Outcome) -> Result<Answer, Failure> {
        let outcome = outcome?;
        let stop = outcome.finish_reason == FinishReason::Cancelled;
        Ok(Answer { json: output::json(&answer::diffusion(self.loaded, echo, &outcome))?, stop })
    }
}
