//! `redline perplexity`: measures how well a model predicts a text, and how far it differs from another model or
//! format.

mod input;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::jsonl::perplexity;
use redline_api::model::LoadedModel;
use redline_engine::{Cancel, ComparisonOutcome, EngineError, PerplexityOutcome, PerplexityRequest};
use redline_kernels::Format;
use redline_kernels::op::kv::KvFormat;

use super::Context;
use crate::adapters::AdapterFlags;
use crate::interrupt::Interrupt;
use crate::message::{self, Failure, INTERRUPTED};
use crate::model::{MachineFlags, ModelFlag};
use crate::{output, progress, value};

/// What is measured, for the help.
const METHOD: &str = "The text is cut into windows that do not overlap. Each begins with the token that the tokenizer \
    puts in front of a text, if there is one; the first token of a window is not counted. Standard errors assume that tokens \
    are independent. The KL divergence is that of the reference M2 from the model M, KL(M2 || M), in nats per token.";

/// Flags of `perplexity`.
#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(super) struct PerplexityArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// The text
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["file", "ids"])]
    text: Option<String>,
    /// A file whose whole content is the text, line ends included; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "ids")]
    file: Option<PathBuf>,
    /// The text as token ids in a file, separated by spaces, commas or line ends; `-` is standard input
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
    /// Tokens in a window; default: 512, or the context if that is shorter
    #[arg(long, value_name = "N", value_parser = value::window)]
    window: Option<usize>,
    /// The reference: a second model, or the same model in another format
    #[arg(long, value_name = "M2")]
    against: Option<String>,
    /// Format of the reference's weights; default: that of its checkpoint
    #[arg(long, value_name = "F", value_parser = value::format, requires = "against")]
    against_format: Option<Format>,
    /// Format of the reference's KV cache; default: f32 with f32 weights, else bf16
    #[arg(long, value_name = "F", value_parser = value::kv_format, requires = "against")]
    against_kv_format: Option<KvFormat>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print nothing but the figures
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// The measurement of one model, or of a model and its reference.
enum Measured {
    Alone(PerplexityOutcome),
    Compared(Box<ComparisonOutcome>),
}

impl Measured {
    fn model(&self) -> &PerplexityOutcome {
        match self {
            Self::Alone(outcome) => outcome,
            Self::Compared(outcome) => &outcome.model,
        }
    }
}

/// Reads the text, then the models, and prints the figures.
pub(super) fn run(args: &PerplexityArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    if args.against.as_deref() == Some("") {
        return Err(Failure::usage("no reference given", "`--against M2` takes what `--model` takes"));
    }
    let interrupt = Interrupt::install()?;
    let text = input::read(args)?;
    let reference = settings.with_formats(args.against_format, args.against_kv_format);
    let loaded = settings.with_adapters(&args.adapters).load(&model, context.environment)?;
    let reference = args
        .against
        .as_deref()
        .map(|name| reference.load(&model.another(name), context.environment))
        .transpose()?;
    let request = PerplexityRequest { text, window: args.window, adapters: args.adapters.choices() };
    let measured = progress::during("predicting the text", || {
        interrupt.during(|cancel| measure(&loaded, reference.as_ref(), request, cancel))
    });
    let measured = match measured {
        Err(error @ EngineError::Cancelled) => {
            message::say(format_args!("{error}\n"));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        measured => measured?,
    };
    if args.json {
        let document = match (&measured, &reference) {
            (Measured::Compared(outcome), Some(reference)) => {
                perplexity::comparison(&loaded, reference, outcome)
            }
            (measured, _) => perplexity::answer(&loaded, measured.model()),
        };
        output::line(&output::json(&document)?)?;
    } else {
        output::piece(&summary::figures(reference.as_ref(), &measured))?;
        if !args.quiet {
            message::say(summary::summary(&loaded, &measured));
        }
    }
    Ok(if measured.model().cancelled { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

fn measure(
    loaded: &LoadedModel,
    reference: Option<&LoadedModel>,
    request: PerplexityRequest,
    cancel: &Cancel,
) -> Result<Measured, EngineError> {
    match reference {
        None => loaded.engine.perplexity(request, cancel).map(Measured::Alone),
        Some(reference) => {
            let outcome = loaded.engine.compare(&reference.engine, request, cancel)?;
            Ok(Measured::Compared(Box::new(outcome)))
        }
    }
}
