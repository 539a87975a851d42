//! `redline bench`: asks one question of the machine. Each lane of the laboratory is a command with flags of its own.

mod record;
mod versus;

use std::cell::OnceCell;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use redline_engine::Engine;
use redline_lab::Machine;
use redline_lab::lanes::{
    self, Bench, Flag, Lane, LaneError, Model, OfMachine, OfModel, OfText, Run, Setup, Text, Values,
};

use super::Context;
use super::compare::EXIT_CODES;
use crate::env;
use crate::model::{self, BackendFlags, ModelFlag, TierFlags};
use crate::output;
use crate::report::{self, Failure};
use crate::tokenizer::{self, TokenizerFlags};
use crate::usage;
use crate::value::{self, ThreadCounts};
use record::{RecordArgs, Recorder};
use versus::{VersusArgs, Word};

/// Arguments of `bench`: a lane with its flags, or nothing.
#[derive(Debug)]
pub(super) struct BenchArgs {
    list: bool,
    lane: Option<(&'static Lane, LaneArgs)>,
}

/// What every lane takes, and the values of its own flags.
#[derive(Debug)]
struct LaneArgs {
    threads: ThreadFlag,
    subject: Subject,
    record: RecordArgs,
    versus: VersusArgs,
    own: Vec<(&'static str, String)>,
    /// The flags of the measurement that were given, for processes that repeat it.
    given: Vec<Word>,
}

/// How many threads.
#[derive(Debug, Args)]
struct ThreadFlag {
    /// Thread counts to run with, such as 1,2; default: the physical cores [env: REDLINE_THREADS]
    #[arg(long, value_name = "N,..", value_parser = value::thread_counts)]
    threads: Option<ThreadCounts>,
}

/// What is measured, and how.
#[derive(Debug)]
enum Subject {
    Machine(OfMachine, TierFlags),
    Model(OfModel, Box<ModelArgs>),
    Text(OfText, TokenizerFlags),
}

/// A model and how it runs.
#[derive(Debug, Args)]
struct ModelArgs {
    #[command(flatten)]
    model: ModelFlag,
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
    let command = RecordArgs::augment_args(measurement(lane));
    // The last word on what it is about is the lane's.
    VersusArgs::augment_args(command).about(lane.asks).after_help(EXIT_CODES)
}

/// The flags that say what is measured.
fn measurement(lane: &'static Lane) -> Command {
    let command = ThreadFlag::augment_args(Command::new(lane.name).args(lane.flags.iter().map(own)));
    match lane.run {
        Run::Machine(_) => TierFlags::augment_args(command),
        Run::Model(_) => ModelArgs::augment_args(command),
        Run::Text(_) => TokenizerFlags::augment_args(command),
    }
}

/// A lane's own flag. A switch may be given with its value too, as processes that repeat a measurement do.
fn own(flag: &'static Flag) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).default_value(flag.default).help(flag.help);
    if flag.value.is_empty() {
        let values = ["true", "false"];
        return arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_parser(values);
    }
    arg.value_name(flag.value)
}

/// Refuses flags of a measurement that this binary would refuse.
fn parses(lane: &'static Lane, words: &[OsString]) -> Result<(), Failure> {
    let line: Vec<OsString> = [lane.name.into()].into_iter().chain(words.iter().cloned()).collect();
    let mut definition = measurement(lane);
    match definition.try_get_matches_from_mut(&line) {
        Ok(_) => Ok(()),
        Err(error) => usage::refusal(&error, &line, &definition).map_or(Ok(()), Err),
    }
}

impl FromArgMatches for BenchArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let lane = match matches.subcommand() {
            None => None,
            Some((name, matches)) => {
                let lane = lanes::ALL.iter().find(|lane| lane.name == name);
                lane.map(|lane| Ok::<_, clap::Error>((lane, LaneArgs::of(lane, matches)?))).transpose()?
            }
        };
        Ok(Self { list: matches.get_flag("list"), lane })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl LaneArgs {
    fn of(lane: &'static Lane, matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |f: &&Flag| matches.value_source(f.name) == Some(ValueSource::CommandLine);
        let own = lane.flags.iter().filter(given);
        let own = own.filter_map(|f| Some((f.name, matches.get_one::<String>(f.name)?.clone())));
        let flags = measurement(lane);
        let names = flags.get_arguments().filter_map(|flag| Some((flag.get_id().as_str(), flag.get_long()?)));
        Ok(Self {
            threads: ThreadFlag::from_arg_matches(matches)?,
            subject: match lane.run {
                Run::Machine(run) => Subject::Machine(run, TierFlags::from_arg_matches(matches)?),
                Run::Model(run) => Subject::Model(run, Box::new(ModelArgs::from_arg_matches(matches)?)),
                Run::Text(run) => Subject::Text(run, TokenizerFlags::from_arg_matches(matches)?),
            },
            record: RecordArgs::from_arg_matches(matches)?,
            versus: VersusArgs::from_arg_matches(matches)?,
            own: own.collect(),
            given: versus::given(names, matches),
        })
    }
}

/// Runs a lane, or lists them.
pub(super) fn run(args: &BenchArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.lane {
        Some((lane, args)) => {
            args.versus.check(args.record.rules.given(), args.record.baseline.is_some())?;
            if args.versus.asked() {
                return versus::run(lane, &args.versus, &args.given, &args.record, context);
            }
            measure(lane, args, context)
        }
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
    let own = own_values(lane, args, context)?;
    let values = Values::new(lane.flags, own.iter().map(|(name, value)| (*name, value.as_str())));
    let threads = match &args.threads.threads {
        Some(counts) => counts.0.clone(),
        None => (lane.threads)(model::threads(None, context.environment)?),
    };
    let progress = |case: &str| report::say(format_args!("{case}\n"));
    let bench = |tier| Bench {
        clock: &context.clock,
        machine: Machine::here(),
        threads: threads.clone(),
        tier,
        progress: &progress,
    };
    let (recorder, result) = match &args.subject {
        Subject::Machine(run, flags) => {
            let bench = bench(flags.resolve(context.environment)?);
            (Recorder::new(&args.record, lane, context)?, run(&bench, &values))
        }
        Subject::Model(run, flags) => {
            let name = flags.model.resolve(context.environment)?;
            let backend = flags.backend.resolve(context.environment, &context.clock)?;
            let source = model::source(&name, context.environment)?;
            let packed_bytes = model::packed_bytes(&source)?;
            let told = OnceCell::new();
            let load = |setup: Setup| {
                let backend = backend.clone().for_lane(&setup);
                let engine = Engine::load(backend.options(source.clone(), setup.threads))?;
                told.get_or_init(|| engine.tokenizer().map(|it| tokenizer::tell_fallback(&name, it)));
                Ok(engine)
            };
            let process = |words: &[String]| versus::process(words, &versus::besides(&args.given, lane));
            let model = Model { load: &load, process: &process, packed_bytes };
            (Recorder::new(&args.record, lane, context)?, run(&bench(backend.tier()), &model, &values))
        }
        Subject::Text(run, flags) => {
            let source = flags.resolve(context.environment)?;
            let text = Text { name: &source.name, tokenizer: &|encoder| source.load(encoder) };
            (Recorder::new(&args.record, lane, context)?, run(&bench(None), &text, &values))
        }
    };
    recorder.finish(lane, result.map_err(|error| refused(lane, &error))?)
}

/// The values of the lane's own flags that were given, by the environment or, over it, on the command line.
fn own_values(
    lane: &Lane,
    args: &LaneArgs,
    context: &Context,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut values = Vec::new();
    for flag in lane.flags.iter().filter(|flag| args.own.iter().all(|(name, _)| *name != flag.name)) {
        let Some(variable) = env::of_lane(lane.name, flag.name) else { continue };
        if let Some(value) = context.environment.value(variable, value::factor)? {
            values.push((flag.name, value.to_string()));
        }
    }
    values.extend(args.own.iter().cloned());
    Ok(values)
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
