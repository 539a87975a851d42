//! `redline chat`: a conversation, line by line.

mod input;
mod session;

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use redline_api::error::ApiError;
use redline_api::jsonl::generate::{GenerateKeys, GenerateLine};
use redline_api::model::LoadedModel;
use redline_api::sampling::SamplingParameters;
use redline_engine::{Cancel, Prompt};

use self::input::Input;
use self::session::Session;
use super::template::TemplateFlags;
use super::{Context, generate};
use crate::adapters::AdapterFlags;
use crate::interrupt::Interrupt;
use crate::message::{self, FAILED, Failure, INTERRUPTED};
use crate::model::{MachineFlags, ModelFlag, ModelName};
use crate::parameters::{FlagSet, ParameterFlags, SAMPLING};
use crate::prefix_cache::PrefixCacheFlags;
use crate::value;

/// Commands within a conversation, for the help.
pub(super) const COMMANDS: &str = "Each line of standard input is a message; the answer is streamed. A line that begins with a slash is a command:\n  \
    /system TEXT  set the system message; without a text, remove it\n  \
    /reset        forget all messages but the system message\n  \
    /save FILE    write the messages as a line for `redline generate --jsonl`\n  \
    /exit         leave, as at the end of the input\n\
    A message that begins with a slash is written with two. Ctrl-C stops an answer, and otherwise leaves.";

/// Default maximum number of new tokens of an answer.
const MAX_NEW_TOKENS: usize = 1024;

/// Flags of `chat`.
#[derive(Debug, Args)]
#[command(after_help = COMMANDS)]
pub(super) struct ChatArgs {
    #[command(flatten)]
    model: ModelFlag,
    #[command(flatten)]
    flags: ConversationFlags,
}

/// Flags of a conversation.
#[derive(Debug, Args)]
pub(super) struct ConversationFlags {
    /// Maximum number of new tokens of an answer; it also ends where the context does
    #[arg(long, value_name = "N", default_value_t = MAX_NEW_TOKENS, value_parser = value::count)]
    max_new_tokens: usize,
    /// Time limit of an answer in seconds; an answer that exceeds it fails
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    timeout: Option<f64>,
    /// Print nothing but the answers
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    template: TemplateFlags,
    #[command(flatten)]
    sampling: ParameterFlags<ChatSampling>,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    prefix_cache: PrefixCacheFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// The parameters of sampling for one answer.
#[derive(Debug)]
struct ChatSampling;

impl FlagSet for ChatSampling {
    type Parameters = SamplingParameters;
    const NAMES: &'static [&'static str] = SamplingParameters::OF_ONE_TEXT;
    const HEADING: &'static str = SAMPLING;
}

impl ConversationFlags {
    /// Refuses flags that read the standard input of a conversation.
    pub(super) fn check_input(&self) -> Result<(), Failure> {
        self.template.check_input(&[("the conversation", Some(Path::new("-")))])
    }
}

/// Answers messages until the input ends.
pub(super) fn run(args: &ChatArgs, context: &Context) -> Result<ExitCode, Failure> {
    args.flags.check_input()?;
    converse(&args.model.resolve(context.environment)?, &args.flags, context)
}

/// Answers the lines of standard input.
pub(super) fn converse(
    model: &ModelName,
    flags: &ConversationFlags,
    context: &Context,
) -> Result<ExitCode, Failure> {
    let chat = flags.template.open(model, context.environment, true)?;
    chat.check()?;
    let loaded = load(model, flags, context)?;
    answer_lines(&mut Session::new(&loaded, chat, defaults(flags)), flags.quiet)
}

/// Answers one message. A model without a chat template continues it, unless flags concern the template.
pub(super) fn answer(
    model: &ModelName,
    message: &str,
    flags: &ConversationFlags,
    context: &Context,
) -> Result<ExitCode, Failure> {
    flags.template.check_input(&[])?;
    let chat = flags.template.open(model, context.environment, true)?;
    let continues =
        flags.template.given().is_none() && matches!(chat.check(), Err(ApiError::NoChatTemplate(_)));
    if !continues {
        chat.check()?;
    }
    let loaded = load(model, flags, context)?;
    let interrupt = Interrupt::install()?;
    let summary = if continues {
        let mut request = redline_api::jsonl::generate::request(
            GenerateLine::default(),
            Prompt::Text(message.to_owned()),
            &defaults(flags),
        )?;
        request.fit_context = true;
        session::summary(&generate::stream(&loaded.engine, &interrupt, request)?)
    } else {
        Session::new(&loaded, chat, defaults(flags)).answer(message, &interrupt)?
    };
    if !flags.quiet {
        message::say(summary);
    }
    Ok(if interrupt.during(Cancel::is_cancelled) { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Loads a model that answers.
fn load(model: &ModelName, flags: &ConversationFlags, context: &Context) -> Result<LoadedModel, Failure> {
    let settings = flags.machine.resolve(context.environment, &context.clock)?;
    let settings = flags.prefix_cache.resolve(settings, context.environment)?.with_adapters(&flags.adapters);
    let loaded = settings.load(model, context.environment)?;
    loaded.engine.check_predicts_next()?;
    Ok(loaded)
}

fn answer_lines(session: &mut Session<'_>, is_quiet: bool) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal() && !is_quiet;
    let mut has_failed = false;
    loop {
        if is_terminal {
            message::say("> ");
        }
        let Some(line) = next_line()? else { break };
        match Input::of(&line) {
            Input::Exit => return Ok(code(has_failed)),
            input => match handle(session, input, &interrupt, is_quiet) {
                Ok(()) => {}
                Err(end @ (Failure::Closed | Failure::Stopped(_))) => return Err(end),
                Err(failure) => {
                    has_failed = true;
                    failure.report();
                }
            },
        }
    }
    if is_terminal {
        message::say("\n");
    }
    Ok(code(has_failed))
}

/// The values that the flags give to all answers.
fn defaults(args: &ConversationFlags) -> GenerateLine {
    GenerateLine {
        keys: GenerateKeys { max_new_tokens: Some(args.max_new_tokens), ..GenerateKeys::default() },
        sampling: args.sampling.0.clone(),
        options: args.adapters.options(args.timeout),
        ..GenerateLine::default()
    }
}

/// The exit code: a failed line is a failure, although the conversation continues after it.
fn code(has_failed: bool) -> ExitCode {
    if has_failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

/// The next line of standard input without its end; `None` at the end of the input.
fn next_line() -> Result<Option<String>, Failure> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    let length = read.map_err(|error| Failure::reading(Path::new("-"), &error))?;
    line.truncate(line.trim_end_matches(['\n', '\r']).len());
    Ok((length > 0).then_some(line))
}

/// Answers a message or runs a command.
fn handle(
    session: &mut Session<'_>,
    input: Input<'_>,
    interrupt: &Interrupt,
    is_quiet: bool,
) -> Result<(), Failure> {
    match input {
        Input::Exit | Input::Blank => Ok(()),
        Input::Message(text) => {
            let summary = session.answer(text, interrupt)?;
            if !is_quiet {
                message::say(summary);
            }
            Ok(())
        }
        Input::System(text) => {
            session.set_system(text);
            Ok(())
        }
        Input::Reset => {
            session.reset();
            Ok(())
        }
        Input::Save(path) => session.save(Path::new(path)),
        Input::NoFile => Err(Failure::failed(
            "`/save` without a file",
            Some("`/save FILE` writes the messages to a file".to_owned()),
        )),
        Input::Unknown(command) => Err(Failure::failed(
            format!("`{command}` is not a command"),
            Some("one of /system, /reset, /save, /exit; a message that begins with a slash is written with two".to_owned()),
        )),
    }
}
