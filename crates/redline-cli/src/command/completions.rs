//! `redline completions`: prints the script with which a shell completes commands and flags.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::message::Failure;
use crate::output;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Bash: write the script to ~/.local/share/bash-completion/completions/redline. Zsh: to a file `_redline` in a \
    directory of $fpath. Fish: to ~/.config/fish/completions/redline.fish."
)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for all commands of `definition`.
pub(super) fn run(args: &CompletionsArgs, mut definition: Command) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition, "redline", &mut script);
    output::piece(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
