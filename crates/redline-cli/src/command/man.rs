//! `redline man`: manual pages of all commands.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_mangen::Man;
use redline_weights::{Disk, write_file};

use crate::message::Failure;
use crate::output;
use crate::version;

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The directory to write, with a page for every command, such as redline-score.1; default: print the page of `redline`
    #[arg(value_name = "DIR", conflicts_with = "output")]
    dir: Option<PathBuf>,
    /// The directory, as a flag
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints the page of `definition`, or writes the pages of all its commands.
pub(super) fn run(args: &ManArgs, mut definition: Command) -> Result<ExitCode, Failure> {
    definition.build();
    let failed = |error: &io::Error| Failure::failed(error.to_string(), None);
    let Some(dir) = args.dir.as_ref().or(args.output.as_ref()) else {
        output::piece(&page(&definition).map_err(|error| failed(&error))?)?;
        return Ok(ExitCode::SUCCESS);
    };
    Disk::default().create_dir_all(dir).map_err(|error| Failure::reading(dir, &error))?;
    for command in all(&definition) {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let text = page(command).map_err(|error| failed(&error))?;
        let path = dir.join(format!("{name}.1"));
        write_file(&path, text.as_bytes())
            .map_err(|error| Failure::failed(format!("{error}\n  in `{}`", path.display()), None))?;
    }
    output::line(&dir.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The command and all commands below it.
fn all(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().flat_map(all);
    [command].into_iter().chain(below).collect()
}

/// The manual page of one command, in roff.
fn page(command: &Command) -> io::Result<String> {
    let mut page = Vec::new();
    Man::new(command.clone()).source(format!("redline {}", version::VERSION)).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
