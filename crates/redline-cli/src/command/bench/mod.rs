//! `redline bench`: runs one benchmark lane, or all. Each lane of the laboratory is a subcommand with its own flags.

mod all;
mod record;
mod served;
pub(super) mod throughput;
mod versus;

use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use all::AllArgs;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use record::{RecordArgs, Recorder};
use redline_engine::{Engine, EngineError, Source};
use redline_kernels::Tier;
use redline_lab::bench::{ALIASES, Bench, BenchModel, Flag, Judge, LaneError, Servers, Setup, Text, Values};
use redline_lab::doctor::noise;
use redline_lab::lanes::{self, Lane, LaneFunction, LaneProfile, OfMachine, OfModel, OfServers, OfText};
use redline_lab::limits;
use redline_models::synth::Shape;
use redline_system::Machine;
use served::ServerFlags;
use versus::{VersusArgs, Word};

use super::Context;
use super::compare::EXIT_CODES;
use super::synth::{self, Made};
use crate::message::{self, Failure};
use crate::model::{self, Backend, BackendFlags, ModelFlag, ModelName, TierFlags};
use crate::progress::Cases;
use crate::tokenizer::TokenizerFlags;
use crate::value::{self, ThreadCounts};
use crate::{env, output, usage};

/// Arguments of `bench`: a lane with its flags, all of them, or nothing.
#[derive(Debug)]
pub(super) struct BenchArgs {
    list: bool,
    benchmark: Option<Benchmark>,
}

/// The selected benchmark.
#[derive(Debug)]
enum Benchmark {
    One(&'static Lane, Box<LaneArgs>),
    All(Box<AllArgs>),
}

/// The flags common to all lanes, and the values of the lane's own flags.
#[derive(Debug)]
struct LaneArgs {
    threads: ThreadFlag,
    profile: ProfileFlag,
    subject: Subject,
    record: RecordArgs,
    versus: VersusArgs,
    own: Vec<(&'static str, String)>,
    /// The measurement flags on the command line, passed on to processes that repeat the measurement.
    given: Vec<Word>,
}

/// How many threads.
#[derive(Debug, Args)]
struct ThreadFlag {
    /// Thread counts to run with, such as 1,2; default: in most lanes, the number of physical cores [env: REDLINE_THREADS]
    #[arg(long, value_name = "N,..", value_parser = value::thread_counts)]
    threads: Option<ThreadCounts>,
}

/// How much of a lane.
#[derive(Debug, Args)]
struct ProfileFlag {
    /// How much to run: smoke (a moment), standard (a minute or two) or full (every case); the lane's own flags override it
    #[arg(long, value_name = "WHICH", value_parser = value::profile)]
    profile: Option<LaneProfile>,
}

/// The subject of a measurement, with its flags.
#[derive(Debug)]
enum Subject {
    Machine(OfMachine, TierFlags),
    /// A model, with the name of the embedded model used by default.
    Model(OfModel, &'static str, Box<ModelArgs>),
    Text(OfText, TokenizerFlags),
    /// Servers, or a model that one is started with.
    Server(OfServers, ServerFlags, Box<ModelArgs>),
}

/// A model and how it runs.
#[derive(Debug, Args)]
struct ModelArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// Run a model of this shape with random weights, such as small, as `redline synth` makes it
    #[arg(long, value_name = "SHAPE", conflicts_with = "model", value_parser = synth::shape)]
    model_size: Option<&'static Shape>,
    #[command(flatten)]
    backend: BackendFlags,
}

impl Args for BenchArgs {
    fn augment_args(command: Command) -> Command {
        let list = Arg::new("list").long("list").action(clap::ArgAction::SetTrue).help("List the lanes");
        let all = AllArgs::augment_args(Command::new(all::NAME)).about(all::ABOUT).after_help(EXIT_CODES);
        let command = command.arg(list).subcommand(all);
        lanes::ALL.iter().fold(command, |command, lane| command.subcommand(definition(lane)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn definition(lane: &'static Lane) -> Command {
    let command = RecordArgs::augment_args(measurement(lane));
    // Set `about` last, so that the lane's text replaces the one from the flags.
    VersusArgs::augment_args(command).about(lane.asks).after_help(format!("{}\n{EXIT_CODES}", lane.about()))
}

/// The flags that select what is measured.
fn measurement(lane: &'static Lane) -> Command {
    let command = ThreadFlag::augment_args(Command::new(lane.name).args(lane.flags.iter().map(own)));
    let command = ProfileFlag::augment_args(command);
    match lane.run {
        LaneFunction::Machine(_) => TierFlags::augment_args(command),
        LaneFunction::Model(_) | LaneFunction::Masked(_) => ModelArgs::augment_args(command),
        LaneFunction::Text(_) => TokenizerFlags::augment_args(command),
        LaneFunction::Server(_) => ServerFlags::augment_args(ModelArgs::augment_args(command)),
    }
}

/// A flag of the lane itself. A switch also accepts a value, because processes that repeat a measurement pass one.
fn own(flag: &'static Flag) -> Arg {
    let aliases = ALIASES.iter().filter(|(name, _)| *name == flag.name).flat_map(|(_, aliases)| *aliases);
    let arg =
        Arg::new(flag.name).long(flag.name).aliases(aliases).default_value(flag.default).help(flag.help);
    if flag.value.is_empty() {
        let values = ["true", "false"];
        return arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_parser(values);
    }
    arg.value_name(flag.value)
}

/// Rejects measurement flags that this binary does not accept.
fn parses(lane: &'static Lane, words: &[OsString]) -> Result<(), Failure> {
    let line: Vec<OsString> = [lane.name.into()].into_iter().chain(words.iter().cloned()).collect();
    let mut definition = measurement(lane).name(format!("redline bench {}", lane.name));
    match definition.try_get_matches_from_mut(&line) {
        Ok(matches) => {
            let own = own_values(lane, &matches);
            let given = own.iter().map(|(name, value)| (*name, value.as_str()));
            Values::new(lane.flags, given).map(drop).map_err(|error| record::failure(lane, &error))
        }
        Err(error) => {
            Err(usage::refused(&error, &definition, &format!("redline bench {} --help", lane.name)))
        }
    }
}

/// The values of the lane's own flags on the command line.
fn own_values(lane: &'static Lane, matches: &ArgMatches) -> Vec<(&'static str, String)> {
    let given = |f: &&Flag| matches.value_source(f.name) == Some(ValueSource::CommandLine);
    let own = lane.flags.iter().filter(given);
    own.filter_map(|f| Some((f.name, matches.get_one::<String>(f.name)?.clone()))).collect()
}

impl FromArgMatches for BenchArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let benchmark = match matches.subcommand() {
            None => None,
            Some((all::NAME, matches)) => Some(Benchmark::All(Box::new(AllArgs::from_arg_matches(matches)?))),
            Some((name, matches)) => match Lane::named(name) {
                Some(lane) => Some(Benchmark::One(lane, Box::new(LaneArgs::of(lane, matches)?))),
                None => None,
            },
        };
        Ok(Self { list: matches.get_flag("list"), benchmark })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl LaneArgs {
    fn of(lane: &'static Lane, matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = measurement(lane);
        let names = flags.get_arguments().filter_map(|flag| Some((flag.get_id().as_str(), flag.get_long()?)));
        Ok(Self {
            threads: ThreadFlag::from_arg_matches(matches)?,
            profile: ProfileFlag::from_arg_matches(matches)?,
            subject: match lane.run {
                LaneFunction::Machine(run) => Subject::Machine(run, TierFlags::from_arg_matches(matches)?),
                LaneFunction::Model(run) => {
                    Subject::Model(run, redline_demo::NAME, Box::new(ModelArgs::from_arg_matches(matches)?))
                }
                LaneFunction::Masked(run) => Subject::Model(
                    run,
                    redline_demo::DIFFUSION.name,
                    Box::new(ModelArgs::from_arg_matches(matches)?),
                ),
                LaneFunction::Text(run) => Subject::Text(run, TokenizerFlags::from_arg_matches(matches)?),
                LaneFunction::Server(run) => Subject::Server(
                    run,
                    ServerFlags::from_arg_matches(matches)?,
                    Box::new(ModelArgs::from_arg_matches(matches)?),
                ),
            },
            record: RecordArgs::from_arg_matches(matches)?,
            versus: VersusArgs::from_arg_matches(matches)?,
            own: own_values(lane, matches),
            given: versus::given(names, matches),
        })
    }

    /// The values of the lane's own flags. The command line overrides the environment, which overrides the profile.
    fn values(&self, lane: &Lane, context: &Context) -> Result<Values, Failure> {
        let mut set = Vec::new();
        for flag in lane.flags.iter().filter(|flag| self.own.iter().all(|(name, _)| *name != flag.name)) {
            let Some(variable) = env::of_lane(lane.name, flag.name) else { continue };
            set.extend(
                context.environment.value(variable, value::factor)?.map(|it| (flag.name, it.to_string())),
            );
        }
        let profile = self.profile.profile.into_iter().flat_map(|profile| lane.values(profile));
        let given = set.iter().chain(&self.own).map(|(name, value)| (*name, value.as_str()));
        Values::new(lane.flags, profile.chain(given)).map_err(|error| record::failure(lane, &error))
    }
}

/// Runs a lane or all lanes, or lists them.
pub(super) fn run(args: &BenchArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.benchmark {
        Some(Benchmark::One(lane, args)) => {
            args.record.check()?;
            args.versus.check(&args.record)?;
            let values = args.values(lane, context)?;
            // Processes that repeat a measurement pass `--json`; their parent has already checked the machine. With `--portable`, speed is
            // not judged.
            if !args.record.json && !args.record.quiet && !args.record.rules.portable {
                warn_if_unfit(context);
            }
            if args.versus.is_requested() {
                return versus::run(lane, args, context);
            }
            if let Some(processes) = args.versus.processes() {
                return versus::alone(lane, processes, args, context);
            }
            measure(lane, args, &values, context)
        }
        Some(Benchmark::All(args)) => all::run(args, context),
        None if args.list => {
            let line = |lane: &Lane| format!("{:<12} {}\n", lane.name, lane.asks);
            output::piece(&lanes::ALL.iter().map(line).collect::<String>())?;
            Ok(ExitCode::SUCCESS)
        }
        None => Err(Failure::usage(
            "no lane given",
            "`redline bench --list` lists them; `redline bench generate` is one, `redline bench all` runs them all",
        )),
    }
}

/// Warns about anything that would disturb a measurement now.
fn warn_if_unfit(context: &Context) {
    let (warnings, _) = noise::quick(&Machine::here(), None, &context.clock);
    for warning in &warnings {
        message::say(format_args!("warning: {warning}\n"));
    }
    if !warnings.is_empty() {
        message::say("hint: stop other programs, or compare two arms of one run (`--versus`)\n");
    }
}

fn measure(
    lane: &'static Lane,
    args: &LaneArgs,
    values: &Values,
    context: &Context,
) -> Result<ExitCode, Failure> {
    let threads = match &args.threads.threads {
        Some(counts) => counts.0.clone(),
        None => (lane.threads)(model::threads(None, context.environment)?),
    };
    let subject = args.subject.resolve(context)?;
    let recorder = Recorder::new(&args.record, lane, args.profile.profile, context)?;
    let progress = Cases::new(args.record.quiet);
    let process = |words: &[String]| {
        let besides = versus::besides(&args.given, lane);
        let model = subject.model.iter().map(|name| format!("--model={name}").into());
        versus::process(words, &model.chain(besides).collect::<Vec<_>>())
    };
    let bench = Bench {
        clock: &context.clock,
        machine: recorder.machine().clone(),
        threads,
        tier: subject.tier,
        reading_ns: args.profile.profile.map_or(limits::READING_NS, LaneProfile::reading_ns),
        progress: &|case| progress.done(case),
        note: &|text| {
            if !args.record.quiet {
                message::note(text);
            }
        },
        record: &|rows| recorder.take(rows),
        process: &process,
    };
    let result = (subject.measure)(&bench, values);
    progress.clear();
    recorder.finish(result)
}

/// The subject of a measurement, resolved from flags, environment and files.
struct Resolved {
    /// The name of the model, for processes that the lane starts.
    model: Option<String>,
    tier: Option<Tier>,
    measure: Box<Measure>,
}

/// Runs a lane.
type Measure = dyn Fn(&Bench<'_>, &Values) -> Result<(), LaneError>;

impl Resolved {
    fn new(
        model: Option<String>,
        tier: Option<Tier>,
        measure: impl Fn(&Bench<'_>, &Values) -> Result<(), LaneError> + 'static,
    ) -> Self {
        Self { model, tier, measure: Box::new(measure) }
    }
}

/// A model, resolved.
struct ResolvedModel {
    name: String,
    backend: Backend,
    source: Source,
    packed_bytes: Option<u64>,
    /// The plan directory that the user named.
    plan_cache: Option<PathBuf>,
    /// Set once the user has been warned that the tokenizer is not the native one.
    told_fallback: OnceCell<Option<()>>,
    /// The directory of a model that was made for this run; it is removed afterwards.
    _made: Option<Made>,
}

impl Subject {
    fn resolve(&self, context: &Context) -> Result<Resolved, Failure> {
        Ok(match self {
            &Self::Machine(run, ref flags) => {
                let tier = flags.resolve(context.environment)?;
                Resolved::new(None, tier, run)
            }
            &Self::Model(run, embedded, ref flags) => {
                let model = flags.resolve(embedded, context)?;
                let (name, tier) = (Some(model.name.clone()), model.backend.tier());
                Resolved::new(name, tier, move |bench, values| model.measure(run, bench, values))
            }
            &Self::Text(run, ref flags) => {
                let source = flags.or_demo(context.environment)?;
                Resolved::new(None, None, move |bench, values| {
                    let text = Text { name: &source.name, tokenizer: &|encoder| source.load(encoder) };
                    run(bench, &text, values)
                })
            }
            Self::Server(run, servers, flags) => {
                let (run, running, headers) = (*run, servers.running()?, servers.headers()?);
                let model =
                    running.is_empty().then(|| flags.resolve(redline_demo::NAME, context)).transpose()?;
                let (tier, asked) =
                    (model.as_ref().and_then(|it| it.backend.tier()), flags.model.model.clone());
                Resolved::new(None, tier, move |bench, values| {
                    let start = |threads| match &model {
                        Some(model) => {
                            let setup = Setup { prefix_cache: true, ..Setup::new(threads) };
                            served::start(&model.name, model.load(&setup)?)
                        }
                        None => Err(LaneError::Usage("no server is named".to_owned())),
                    };
                    let (running, model, headers) = (running.clone(), asked.clone(), headers.clone());
                    run(bench, &Servers { running, model, headers, start: &start }, values)
                })
            }
        })
    }
}

impl ModelArgs {
    /// The model, or `embedded` if none is named.
    fn resolve(&self, embedded: &str, context: &Context) -> Result<ResolvedModel, Failure> {
        let backend = self.backend.resolve(context.environment, &context.clock)?;
        let plan_cache = self.backend.named_plan_dir(context.environment)?;
        let made = self.model_size.map(|shape| Made::new(shape, context)).transpose()?;
        let model = match &made {
            Some(made) => ModelName::made(&made.path()),
            None => self.model.or(embedded, context.environment)?,
        };
        let source = model.source(context.environment)?;
        let packed_bytes = model::packed_bytes(&source)?;
        let (name, told_fallback) = (model.name, OnceCell::new());
        Ok(ResolvedModel { name, backend, source, packed_bytes, plan_cache, told_fallback, _made: made })
    }
}

impl ResolvedModel {
    fn load(&self, setup: &Setup) -> Result<Engine, EngineError> {
        let backend = self.backend.clone().for_lane(setup);
        let options = backend.options(self.source.clone(), setup.into());
        let engine = Engine::load(setup.served(options))?;
        self.told_fallback
            .get_or_init(|| engine.tokenizer().map(|it| message::warn_of_fallback(&self.name, it)));
        Ok(engine)
    }

    fn measure(&self, run: OfModel, bench: &Bench<'_>, values: &Values) -> Result<(), LaneError> {
        let load_judge = |threads| {
            let setup = Setup::new(threads);
            let backend = self.backend.clone().for_lane(&setup);
            Engine::load(backend.options(Source::Embedded(redline_demo::MODEL), (&setup).into()))
        };
        let knows = *self.name == *redline_demo::DIFFUSION.name;
        let judge = knows.then_some(Judge { load: &load_judge, text: redline_demo::HELD_OUT });
        let model = BenchModel {
            load: &|setup| self.load(&setup),
            packed_bytes: self.packed_bytes,
            plan_cache: self.plan_cache.clone(),
            kv_format: self.backend.kv_format(),
            text: redline_demo::HELD_OUT,
            judge,
        };
        run(bench, &model, values)
    }
}
