//! `redline run`: answers a prompt, or converses.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::chat::{self, ConversationFlags};
use crate::message::Failure;
use crate::model::SignedFlag;

/// What follows the arguments in the help.
fn help() -> String {
    format!(
        "The chat template of the model formats the prompt; a model without one continues it.\n\nWithout a prompt: {}",
        chat::COMMANDS
    )
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(super) struct RunArgs {
    /// A directory, a GGUF file, a Hugging Face id in the local cache, or `demo`
    #[arg(value_name = "MODEL")]
    model: String,
    /// What to answer; several words are joined by spaces. Without it, each line of standard input is a message, as in `redline chat`
    #[arg(value_name = "PROMPT")]
    prompt: Vec<String>,
    #[command(flatten)]
    signed: SignedFlag,
    #[command(flatten)]
    flags: ConversationFlags,
}

/// Answers the prompt, or the lines of standard input.
pub(super) fn run(args: &RunArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = || args.signed.of(&args.model, context.environment);
    if args.prompt.is_empty() {
        args.flags.check_input()?;
        return chat::converse(&model()?, &args.flags, context);
    }
    chat::answer(&model()?, &args.prompt.join(" "), &args.flags, context)
}
