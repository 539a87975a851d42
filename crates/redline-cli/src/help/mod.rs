//! The texts of `--help`: which flags they list, with examples and exit codes.

mod examples;
mod exit_codes;

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// Headings of the flags that many commands share and only `--help-all` lists.
const SHARED: &[&str] = &["Machine", "Memory", "Plans"];
/// The flag that lists all flags.
const ALL: &str = "help-all";

/// Which flags the help of a command lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// The command's own flags.
    Own,
    /// Also those for machine, memory and plans, which many commands share.
    All,
}

impl Listed {
    /// The flags that the help lists if a process has these arguments.
    pub(crate) fn for_arguments(arguments: &[OsString]) -> Self {
        let all =
            |word: &OsString| word.to_str().is_some_and(|word| word.replace('_', "-") == Self::All.flag());
        if arguments.iter().any(all) { Self::All } else { Self::Own }
    }

    /// The flag that prints this help.
    pub(crate) fn flag(self) -> String {
        match self {
            Self::Own => "--help".to_owned(),
            Self::All => format!("--{ALL}"),
        }
    }
}

/// Adds `--help-all`, examples and exit codes to a command and its subcommands.
pub(crate) fn complete(command: Command, listed: Listed) -> Command {
    completed(command, "", listed)
}

/// `path` names the command without `redline`, such as `bench generate`.
fn completed(command: Command, path: &str, listed: Listed) -> Command {
    let unlisted = command.get_arguments().any(is_shared);
    let flag = Arg::new(ALL)
        .long(ALL)
        .action(ArgAction::Help)
        .help("Print help, with the flags for machine, memory and plans")
        .help_heading(None)
        // Beside `--help`, at the end.
        .display_order(999)
        .hide(!unlisted);
    let hide = |flag: Arg| if is_shared(&flag) { flag.hide(listed == Listed::Own) } else { flag };
    let text = command.get_after_help().map(|text| text.to_string().trim_end().to_owned());
    let text = [examples::section(path), text.unwrap_or_default(), exit_codes::section(path)];
    let text: Vec<String> = text.into_iter().filter(|part| !part.is_empty()).collect();
    command.mut_args(hide).arg(flag).after_help(text.join("\n\n")).mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        completed(below, path.trim(), listed)
    })
}

/// Whether a flag is one of those that many commands share.
fn is_shared(flag: &Arg) -> bool {
    flag.get_help_heading().is_some_and(|heading| SHARED.contains(&heading))
}
