//! Rewrites clap's usage errors in this program's style: every error carries a hint.

use std::error::Error as _;
use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use redline_api::json::parse::nearest;

use crate::message::Failure;
use crate::output;
use crate::value::BadValue;

/// Converts clap's error about `arguments`. Help and version are printed instead, and the result is `None`.
pub(crate) fn refusal(error: &clap::Error, arguments: &[OsString], definition: &Command) -> Option<Failure> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let open = output::piece("");
        return open.and_then(|()| error.print().map_err(|error| Failure::writing(&error))).err();
    }
    let mut path = vec![definition];
    for argument in arguments.iter().skip(1).map_while(|argument| argument.to_str()) {
        // What follows the commands are flags and their values.
        let Some(below) = path.last().and_then(|command| command.find_subcommand(argument)) else { break };
        path.push(below);
    }
    let names: Vec<&str> = path.iter().map(|command| command.get_name()).collect();
    let command = path.last().copied().unwrap_or(definition);
    Some(refused(error, command, &format!("{} --help", names.join(" "))))
}

/// The failure for clap's error about a command whose flags `help` lists.
pub(crate) fn refused(error: &clap::Error, command: &Command, help: &str) -> Failure {
    Failure::usage(fact(error), hint(error, command, help))
}

/// The text of clap's error up to the first blank line, without its prefix.
fn fact(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        || error.kind() == ErrorKind::MissingSubcommand
    {
        return "no command given".to_owned();
    }
    let rendered = error.render().to_string();
    let lines: Vec<_> = rendered.lines().take_while(|line| !line.trim().is_empty()).collect();
    let text = lines.join("\n");
    text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
}

fn hint(error: &clap::Error, command: &Command, help: &str) -> String {
    if let Some(bad) = error.source().and_then(|source| source.downcast_ref::<BadValue>()) {
        return bad.hint.clone();
    }
    if let Some(suggested) = suggested(error, command) {
        return format!("did you mean `{suggested}`? `{help}` lists what there is");
    }
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && !values.is_empty()
    {
        return format!("one of {}", values.join(", "));
    }
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::NoEquals | ErrorKind::WrongNumberOfValues => {
            format!("a text that begins with `-` is written `--flag='-text'`; `{help}` describes every flag")
        }
        ErrorKind::ArgumentConflict => format!("give one of the two, once; `{help}` says which go together"),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            format!("`redline demo` shows what it does; `{help}` lists the commands")
        }
        ErrorKind::InvalidSubcommand => {
            let names: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
            format!("one of {}", names.join(", "))
        }
        _ => format!("`{help}` lists what there is"),
    }
}

/// The name that was probably meant, of those that the help lists. (clap also suggests names that are not listed, and names that have only
/// their middle in common.)
fn suggested(error: &clap::Error, command: &Command) -> Option<String> {
    let given = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (given, names): (_, Vec<String>) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let names = |below: &Command| {
                let aliases = below.get_visible_aliases().map(str::to_owned);
                [below.get_name().to_owned()].into_iter().chain(aliases).collect::<Vec<_>>()
            };
            (given(ContextKind::InvalidSubcommand)?, command.get_subcommands().flat_map(names).collect())
        }
        ErrorKind::UnknownArgument => {
            let flags = command.get_arguments().filter_map(clap::Arg::get_long);
            (given(ContextKind::InvalidArg)?, flags.map(|flag| format!("--{flag}")).collect())
        }
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue)? {
            ContextValue::Strings(values) => (given(ContextKind::InvalidValue)?, values.clone()),
            _ => return None,
        },
        _ => return None,
    };
    nearest(given, names.iter().map(String::as_str)).map(str::to_owned)
}
