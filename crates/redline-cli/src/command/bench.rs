//! `redline bench`: asks one question of the machine. Each lane of the laboratory is a command with flags of its own.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use redline_engine::Engine;
use redline_lab::lanes::{self, Bench, Lane, LaneError, Values};
use redline_lab::{LaneResult, Machine};

use super::Context;
use crate::model::{self, BackendFlags, ModelFlag};
use crate::output;
use crate::report::{self, Failure, INVALID};
use crate::value::{self, ThreadCounts};

/// Arguments of `bench`: a lane with its flags, or nothing.
#[derive(Debug)]
pub(super) struct BenchArgs {
    list: bool,
    lane: Option<(&'static Lane, LaneArgs)>,
}

/// What every lane takes, and the values of its own flags.
#[derive(Debug)]
struct LaneArgs {
    common: CommonArgs,
    own: Vec<(&'static str, String)>,
}

#[derive(Debug, Args)]
struct CommonArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// Thread counts to run with, such as 1,2; default: the physical cores [env: REDLINE_THREADS]
    #[arg(long, value_name = "N,..", value_parser = value::thread_counts)]
    threads: Option<ThreadCounts>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Write comma-separated values; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    output: Option<PathBuf>,
    #[command(flatten)]
    backend: BackendFlags,
}

impl Args for BenchArgs {
    fn augment_args(command: Command) -> Command {
        let list = Arg::new("list").long("list").action(clap::ArgAction::SetTrue).help("List the lanes");
        lanes::ALL.iter().fold(command.arg(list), |command, lane| command.subcommand(definition(lane)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn definition(lane: &'static Lane) -> Command {
    let flags = lane.flags.iter().map(|flag| {
        let default = flag.default;
        Arg::new(flag.name).long(flag.name).value_name(flag.value).default_value(default).help(flag.help)
    });
    CommonArgs::augment_args(Command::new(lane.name).args(flags)).about(lane.asks)
}

impl FromArgMatches for BenchArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let lane = match matches.subcommand() {
            None => None,
            Some((name, matches)) => {
                let common = CommonArgs::from_arg_matches(matches)?;
                let value = |lane: &'static Lane| {
                    let own = lane
                        .flags
                        .iter()
                        .filter_map(|f| Some((f.name, matches.get_one::<String>(f.name)?.clone())));
                    (lane, LaneArgs { common, own: own.collect() })
                };
                lanes::ALL.iter().find(|lane| lane.name == name).map(value)
            }
        };
        Ok(Self { list: matches.get_flag("list"), lane })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs a lane, or lists them.
pub(super) fn run(args: &BenchArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.lane {
        Some((lane, lane_args)) => measure(lane, lane_args, context),
        None if args.list => {
            let line = |lane: &Lane| format!("{:<12} {}\n", lane.name, lane.asks);
            output::piece(&lanes::ALL.iter().map(line).collect::<String>())?;
            Ok(ExitCode::SUCCESS)
        }
        None => Err(Failure::usage(
            "no lane given",
            "`redline bench --list` lists them; `redline bench generate` is one",
        )),
    }
}

fn measure(lane: &'static Lane, args: &LaneArgs, context: &Context) -> Result<ExitCode, Failure> {
    let common = &args.common;
    let name = common.model.resolve(context.environment)?;
    let backend = common.backend.resolve(context.environment, &context.clock)?;
    let machine = Machine::here();
    let threads = match &common.threads {
        Some(counts) => counts.0.clone(),
        None => vec![model::threads(None, context.environment)?],
    };
    let source = model::source(&name, context.environment)?;
    let load = |threads| Engine::load(backend.options(source.clone(), threads));
    let progress = |case: &str| report::say(format_args!("{case}\n"));
    let bench = Bench { clock: &context.clock, machine, threads, load: &load, progress: &progress };
    let values = Values::new(lane.flags, args.own.iter().map(|(name, value)| (*name, value.as_str())));
    let result = (lane.run)(&bench, &values).map_err(|error| refused(lane, &error))?;
    show(&result, common)?;
    Ok(verdict(&result))
}

fn refused(lane: &Lane, error: &LaneError) -> Failure {
    match error {
        LaneError::Usage(fact) => {
            Failure::usage(fact.as_str(), format!("`redline bench {} --help`", lane.name))
        }
        LaneError::Incorrect(fact) => Failure::incorrect(fact.as_str()),
        other => Failure::failed(other.to_string(), other.hint()),
    }
}

fn show(result: &LaneResult, args: &CommonArgs) -> Result<(), Failure> {
    if args.json {
        return output::piece(&result.json().map_err(|error| Failure::failed(error.to_string(), None))?);
    }
    let Some(path) = &args.output else { return output::piece(&result.table()) };
    let mut csv = Vec::new();
    result.write_csv(&mut csv).map_err(|error| Failure::writing(&error))?;
    if report::is_stdin(path) {
        return output::piece(&String::from_utf8_lossy(&csv));
    }
    write_file(path, &csv)
        .map_err(|error| Failure::failed(format!("{error}\n  in `{}`", path.display()), None))?;
    output::piece(&result.table())
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(bytes)?;
    file.flush()
}

/// A row that must not be believed makes the whole run invalid.
fn verdict(result: &LaneResult) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for row in &result.rows {
        if let Some(why) = row.invalid() {
            report::say(format_args!("invalid: {}: {why}\n", row.case));
            code = ExitCode::from(INVALID);
        }
    }
    code
}
