//! Two arms in one run: processes of this binary, or of another, in the order A B B A.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use redline_lab::Row;
use redline_lab::bench::ALIASES;
use redline_lab::compare::{self, Rules};
use redline_lab::lanes::Lane;
use redline_lab::result::LaneResult;
use redline_lab::run::{Build, Run, Start};
use redline_lab::versus::{self, Arm, MergeError};
use redline_system::Machine;
use serde_json::json;

use super::LaneArgs;
use super::record::{self, RecordArgs, Recorder};
use crate::command::Context;
use crate::message::{self, FAILED, Failure, INCORRECT, INVALID, USAGE};
use crate::{env, output, value, version};

/// Default number of processes per arm.
const PROCESSES: usize = 4;
/// Lines of a process's standard error that are shown.
const COMPLAINT: usize = 20;

/// Against what to run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Comparison")]
pub(super) struct VersusArgs {
    /// Compare with a second arm that has these flags in addition; both run in fresh processes, in the order A B B A
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, conflicts_with = "baseline")]
    versus: Option<String>,
    /// Compare with a second arm that has this format of weights, such as bf16: short for --versus '--format F'
    #[arg(long, value_name = "F", conflicts_with = "baseline")]
    versus_format: Option<String>,
    /// Compare with a second arm that runs this binary
    #[arg(long, value_name = "PATH", conflicts_with = "baseline")]
    versus_binary: Option<PathBuf>,
    /// Number of fresh processes per arm; with two arms: an even number, default 4; with one arm: default none, only this process
    #[arg(long, value_name = "N", value_parser = value::processes)]
    processes: Option<usize>,
}

impl VersusArgs {
    /// Whether a second arm was requested.
    pub(super) fn is_requested(&self) -> bool {
        self.versus.is_some() || self.versus_format.is_some() || self.versus_binary.is_some()
    }

    /// The requested number of processes.
    pub(super) fn processes(&self) -> Option<usize> {
        self.processes
    }

    /// Rejects flags that have a use only with two arms.
    pub(super) fn check(&self, record: &RecordArgs) -> Result<(), Failure> {
        let hint = "give `--versus 'FLAGS'`, `--versus-format F` or `--versus-binary PATH` too";
        if let Some(odd) = self.processes.filter(|n| self.is_requested() && n % 2 == 1) {
            let fact = format!("`--processes` is {odd}, but two arms take turns A B B A");
            return Err(Failure::usage(fact, "an even number from 2"));
        }
        if let Some(path) = record.csv().filter(|_| self.is_requested()) {
            let fact = format!("`--output {}` cannot be used with two arms", path.display());
            return Err(Failure::usage(
                fact,
                "`--output DIR` writes the rows of both arms, also as results.csv",
            ));
        }
        if record.rules.need_two_runs() && !self.is_requested() && record.baseline.is_none() {
            let fact = "`--threshold` and `--allow-different-..` are for a comparison, but there is none";
            return Err(Failure::usage(fact, format!("{hint}, or `--baseline RUN`")));
        }
        Ok(())
    }
}

/// The flags among `ids` that were given, each as one word with its value.
pub(super) fn given<'a>(ids: impl Iterator<Item = (&'a str, &'a str)>, matches: &ArgMatches) -> Vec<Word> {
    let mut words = Vec::new();
    for (id, long) in ids.filter(|(id, _)| matches.value_source(id) == Some(ValueSource::CommandLine)) {
        for value in matches.get_raw(id).into_iter().flatten() {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            words.push(Word { long: long.to_owned(), word });
        }
    }
    words
}

/// A flag with its value.
#[derive(Clone, Debug)]
pub(super) struct Word {
    long: String,
    word: OsString,
}

/// The flags among `given` that select the model and how it runs. Excludes the lane's own flags, threads and plans, which the
/// lane chooses, and traces, which belong to this process.
pub(super) fn besides(given: &[Word], lane: &Lane) -> Vec<OsString> {
    let plans = ["plan-cache", "plan-policy", "plan-tokens", "plan-rows"];
    let chosen =
        [&["model", "model-size", "threads", "profile", "precision-trace", "profile-trace"][..], &plans]
            .concat();
    let own = |word: &&Word| lane.flags.iter().any(|flag| flag.name == word.long);
    let kept = given.iter().filter(|word| !own(word) && !chosen.contains(&word.long.as_str()));
    kept.map(|word| word.word.clone()).collect()
}

/// Whether a flag names a file that only one process may write.
fn of_this_process(word: &Word) -> bool {
    ["precision-trace", "profile-trace"].contains(&word.long.as_str())
}

/// Runs this binary with these words. Returns its standard output, or its standard error if it fails.
pub(super) fn process(words: &[String], besides: &[OsString]) -> Result<String, String> {
    let (program, _) = env::binary();
    let words: Vec<OsString> = words.iter().map(OsString::from).chain(besides.iter().cloned()).collect();
    let output = start(&program, &words).map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An arm: a program and its flags.
struct Contestant {
    /// The executable to start.
    program: PathBuf,
    /// The path shown for it.
    path: PathBuf,
    words: Vec<OsString>,
    build: Build,
}

/// Runs both arms, judges B against A, and leaves with the code of the worst verdict.
pub(super) fn run(lane: &'static Lane, args: &LaneArgs, context: &Context) -> Result<ExitCode, Failure> {
    let record = &args.record;
    let contestants = contestants(lane, &args.versus, &repeated(args))?;
    let recorder = Recorder::new(record, lane, args.profile.profile, context)?;
    let processes = args.versus.processes.unwrap_or(PROCESSES);
    let mut measured: [Vec<Vec<Row>>; 2] = [Vec::new(), Vec::new()];
    for (at, arm) in versus::schedule(processes).enumerate() {
        let place = format!("process {} of {}, arm {}", at + 1, 2 * processes, arm.name());
        if !args.record.quiet {
            message::say(format_args!("{place}\n"));
        }
        let rows = contestants[arm as usize].measure(lane, &place).inspect_err(|_| recorder.leave())?;
        measured[arm as usize].push(rows);
        let so_far = [Arm::A, Arm::B].map(|arm| Ok(named(arm, merged(arm, &measured[arm as usize])?)));
        recorder.replace(so_far.into_iter().collect::<Result<Vec<_>, Failure>>()?.concat())?;
    }
    let machine = Machine::here();
    let result = |rows| LaneResult { lane: lane.name.to_owned(), machine: machine.clone(), rows };
    let [a, b] = [Arm::A, Arm::B].map(|arm| merged(arm, &measured[arm as usize]));
    let (a, b) = (a?, b?);
    let [base, new] = [(Arm::A, &a), (Arm::B, &b)].map(|(arm, rows)| {
        Run::new(contestants[arm as usize].build.clone(), Start::default(), result(rows.clone()))
    });
    let rules = Rules { arms: true, ..record.rules.rules() };
    let comparison = compare::compare(&base.map_err(unwritten)?, &new.map_err(unwritten)?, &rules);

    let mut run = recorder.run([named(Arm::A, a), named(Arm::B, b)].concat())?;
    run.arms = [Arm::A, Arm::B]
        .map(|arm| (arm.name().to_owned(), contestants[arm as usize].description()))
        .into_iter()
        .collect();
    run.comparison = serde_json::to_value(&comparison).map_err(unwritten)?;
    recorder.write(&run)?;
    if record.json {
        return output::verdict(&run.json().map_err(unwritten)?, comparison.exit_code);
    }
    let [a, b] = contestants.map(|arm| arm.line(lane));
    output::verdict(&format!("a     {a}\nb     {b}\n{}", comparison.table()), comparison.exit_code)
}

/// Labels rows with their arm.
fn named(arm: Arm, rows: Vec<Row>) -> Vec<Row> {
    rows.into_iter().map(|row| Row { arm: Some(arm.name().to_owned()), ..row }).collect()
}

/// Runs one arm in fresh processes, one after the other, and records them as one run.
pub(super) fn alone(
    lane: &'static Lane,
    processes: usize,
    args: &LaneArgs,
    context: &Context,
) -> Result<ExitCode, Failure> {
    let recorder = Recorder::new(&args.record, lane, args.profile.profile, context)?;
    let contestant = Contestant::ours(words_of(&repeated(args)));
    let mut measured = Vec::new();
    for at in 1..=processes {
        let place = format!("process {at} of {processes}");
        if !args.record.quiet {
            message::say(format_args!("{place}\n"));
        }
        measured.push(contestant.measure(lane, &place).inspect_err(|_| recorder.leave())?);
        recorder.replace(merged(Arm::A, &measured)?)?;
    }
    recorder.finish(Ok(()))
}

/// Arm A is this binary with the common flags. Arm B is this or the other binary, with flags that override or extend the
/// common ones.
fn contestants(lane: &'static Lane, args: &VersusArgs, common: &[Word]) -> Result<[Contestant; 2], Failure> {
    let mut flags = split(args.versus.as_deref().unwrap_or_default())?;
    flags.extend(args.versus_format.iter().map(|format| format!("--format={format}")));
    let replaced = |word: &Word| flags.iter().any(|flag| known_as(long(flag)) == Some(word.long.clone()));
    let kept = common.iter().filter(|word| !replaced(word)).map(|word| word.word.clone());
    let words: Vec<OsString> = kept.chain(flags.iter().map(OsString::from)).collect();
    let b = match &args.versus_binary {
        Some(other) => {
            Contestant { build: version(other)?, program: other.clone(), path: other.clone(), words }
        }
        None => {
            super::parses(lane, &words)?;
            Contestant::ours(words)
        }
    };
    Ok([Contestant::ours(words_of(common)), b])
}

/// The given flags that processes repeat.
fn repeated(args: &LaneArgs) -> Vec<Word> {
    args.given.iter().filter(|word| !of_this_process(word)).cloned().collect()
}

fn words_of(flags: &[Word]) -> Vec<OsString> {
    flags.iter().map(|flag| flag.word.clone()).collect()
}

/// Splits the text of `--versus` into flags.
fn split(text: &str) -> Result<Vec<String>, Failure> {
    let refused = |fact: String, hint: &str| Failure::usage(format!("{fact}\n  in `--versus`"), hint);
    let flags = shlex::split(text).ok_or_else(|| {
        refused(format!("`{text}` has a quote that does not end"), "write it as for a shell")
    })?;
    let ours = VersusArgs::augment_args(record::RecordArgs::augment_args(clap::Command::new("")));
    let ours: Vec<&str> =
        ours.get_arguments().filter_map(clap::Arg::get_long).chain(["help", "help-all"]).collect();
    let belongs = |flag: &&String| {
        long(flag).is_some_and(|name| ours.contains(&name)) || flag.starts_with("-o") || *flag == "-h"
    };
    match flags.iter().find(belongs) {
        Some(flag) => {
            let fact = format!("`{flag}` says what becomes of both arms");
            Err(refused(fact, "give it beside `--versus`; FLAGS are those of the measurement"))
        }
        None => Ok(flags),
    }
}

/// The name of a flag that begins with two dashes.
fn long(flag: &str) -> Option<&str> {
    Some(flag.strip_prefix("--")?.split('=').next().unwrap_or_default()).filter(|name| !name.is_empty())
}

/// The name under which this build knows a flag, resolving aliases.
fn known_as(name: Option<&str>) -> Option<String> {
    let name = name?.replace('_', "-");
    let known = ALIASES.iter().find(|(_, aliases)| aliases.contains(&name.as_str()));
    Some(known.map_or(name, |(known, _)| (*known).to_owned()))
}

/// Asks another binary for its build.
fn version(path: &Path) -> Result<Build, Failure> {
    let failed = |fact: String| {
        let hint = "`--versus-binary` takes a `redline` that was built elsewhere";
        Failure::failed(format!("{fact}\n  in `{}`", path.display()), Some(hint.to_owned()))
    };
    let output = start(path, &["--version"]).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().split_once(' ') {
        Some((name, version)) if output.status.success() && !text.trim().contains('\n') => {
            Ok(Build { name: name.to_owned(), version: Some(version.to_owned()), ..Build::default() })
        }
        _ => Err(failed(format!("`--version` ended with {} and no version", output.status))),
    }
}

fn start(program: &Path, words: &[impl AsRef<OsStr>]) -> io::Result<Output> {
    let mut command = Command::new(program);
    // Trace files belong to this process.
    for variable in [env::PRECISION_TRACE, env::PROFILE_TRACE] {
        command.env_remove(variable.name);
    }
    command.args(words).stdin(Stdio::null()).output()
}

impl Contestant {
    /// This binary with these flags.
    fn ours(words: Vec<OsString>) -> Self {
        let (program, path) = env::binary();
        Self { program, path, words, build: version::build() }
    }

    /// Runs a fresh process and returns its rows.
    fn measure(&self, lane: &Lane, place: &str) -> Result<Vec<Row>, Failure> {
        let words: Vec<&OsStr> = [OsStr::new("bench"), OsStr::new(lane.name), OsStr::new("--json")]
            .into_iter()
            .chain(self.words.iter().map(OsString::as_os_str))
            .collect();
        let shown = self.line(lane);
        let output = start(&self.program, &words)
            .map_err(|error| Failure::failed(format!("{error}\n  in {place}: `{shown}`"), None))?;
        let fact = |what: String| {
            let complaint = complaint(&output.stderr);
            format!("{what}\n  in {place}: `{shown}`{complaint}")
        };
        let code = output.status.code().and_then(|code| u8::try_from(code).ok());
        match code {
            // A process that missed a gate leaves a document too.
            Some(0 | INVALID | FAILED) if code != Some(FAILED) || !output.stdout.is_empty() => {
                let text = String::from_utf8_lossy(&output.stdout);
                versus::printed_rows(&text).map_err(|error| {
                    Failure::failed(fact(format!("its document cannot be read: {error}")), None)
                })
            }
            Some(USAGE) => Err(Failure::usage(
                fact("the process refused its flags".to_owned()),
                format!("`{} bench {} --help`", self.path.display(), lane.name),
            )),
            Some(INCORRECT) => Err(Failure::incorrect(fact("outputs are wrong".to_owned()))),
            _ => Err(Failure::failed(fact(format!("the process ended with {}", output.status)), None)),
        }
    }

    /// The command line of this arm.
    fn line(&self, lane: &Lane) -> String {
        let words = [self.path.to_string_lossy(), "bench".into(), lane.name.into()];
        let flags = self.words.iter().map(|word| word.to_string_lossy());
        words.into_iter().chain(flags).collect::<Vec<_>>().join(" ")
    }

    /// The entry of this arm in `run.json`.
    fn description(&self) -> serde_json::Value {
        let flags: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
        json!({"binary": self.path.display().to_string(), "flags": flags, "engine": self.build})
    }
}

/// The last lines of a process's standard error, indented.
fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(COMPLAINT)..];
    last.iter().flat_map(|line| ["\n  | ", line]).collect()
}

/// Merges the processes of an arm into one set of rows.
fn merged(arm: Arm, processes: &[Vec<Row>]) -> Result<Vec<Row>, Failure> {
    versus::merge(processes).map_err(|error| {
        let fact = format!("{error}\n  in arm {}", arm.name());
        match error {
            MergeError::Outputs(_) => Failure::incorrect(fact),
            _ => Failure::failed(fact, None),
        }
    })
}

fn unwritten(error: serde_json::Error) -> Failure {
    record::written(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_a_lane_get_only_what_the_lane_does_not_choose() {
        let word = |long: &str| Word { long: long.to_owned(), word: format!("--{long}=x").into() };
        let chosen = [
            "model",
            "model-size",
            "threads",
            "profile",
            "plan-cache",
            "plan-policy",
            "plan-tokens",
            "plan-rows",
        ];
        let (own, traces) = (["test", "sizes", "num-runs"], ["precision-trace", "profile-trace"]);
        let names = [&chosen[..], &own, &traces, &["format", "isa", "max-chunk"]].concat();
        let given: Vec<Word> = names.into_iter().map(word).collect();
        let lane = Lane::named("plan-cache").unwrap();
        assert_eq!(besides(&given, lane), ["--format=x", "--isa=x", "--max-chunk=x"]);
        let of_one: Vec<&str> =
            given.iter().filter(|word| of_this_process(word)).map(|word| word.long.as_str()).collect();
        assert_eq!(of_one, traces);
    }

    #[test]
    fn a_flag_is_known_by_each_of_its_names() {
        let known = |flag: &str| known_as(long(flag));
        for flag in ["--num-runs", "--num_runs=3", "--trials=3", "--benchmark_repetitions=3"] {
            assert_eq!(known(flag).as_deref(), Some("num-runs"), "{flag}");
        }
        assert_eq!(known("--format=w8").as_deref(), Some("format"));
        for word in ["--", "-o", "w8", ""] {
            assert_eq!(known(word), None, "{word}");
        }
    }

    #[test]
    fn a_complaint_is_the_end_of_what_was_said() {
        let said = (1..=25).map(|n| format!("line {n}\n \n")).collect::<Vec<_>>().concat();
        let shown = complaint(said.as_bytes());
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!((lines.len(), lines[1], lines[20]), (21, "  | line 6", "  | line 25"));
        assert_eq!(complaint(b" \n"), "");
    }
}
