//! `redline bench all`: runs every lane in its own process, so that a failing lane does not stop the others.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use redline_lab::lanes::{self, Lane, LaneFunction, LaneProfile};
use redline_lab::run::DOCUMENT;
use redline_weights::Disk;

use crate::command::Context;
use crate::message::{self, FAILED, Failure};
use crate::table::align;
use crate::value::{self, BadValue, ThreadCounts};
use crate::{env, output};

/// The name of the subcommand.
pub(super) const NAME: &str = "all";
/// The help text of the subcommand.
pub(super) const ABOUT: &str = "Every lane, one after the other, each in a process of its own";

/// Exit codes of lanes, the worst first.
const BY_SEVERITY: &[u8] = &[2, 6, 4, 5, 1, 3];
/// Exit code of a lane whose baseline is missing.
const MISSING: u8 = 1;

/// What every lane is run with.
#[derive(Debug, Args)]
pub(super) struct AllArgs {
    /// How much of each lane: smoke (a moment), standard (a minute or two) or full (every case)
    #[arg(long, value_name = "WHICH", value_parser = value::profile, default_value = "standard")]
    profile: LaneProfile,
    /// Lanes to run, such as gemm,score; default: all
    #[arg(long, value_name = "LANE,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Thread counts to run with, such as 1,2
    #[arg(long, value_name = "N,..", value_parser = value::thread_counts)]
    threads: Option<ThreadCounts>,
    /// The model for the lanes that run one: a directory, an id in the local cache, or `demo` [env: REDLINE_MODEL]
    #[arg(long, value_name = "M")]
    model: Option<String>,
    /// Device for the lanes of a machine or a model: auto (default) or cpu [env: REDLINE_DEVICE]
    #[arg(long, alias = "backend", value_name = "D", value_parser = device)]
    device: Option<String>,
    /// Write the run of each lane into DIR/LANE
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Compare with the baselines DIR/LANE.json, with --portable also with those of any machine, DIR/MACHINE/LANE.json; a lane
    /// without one counts as missing
    #[arg(long, value_name = "DIR")]
    baseline: Option<PathBuf>,
    /// Accept these runs as baselines
    #[arg(long, requires_all = ["baseline", "reason"])]
    update_baseline: bool,
    /// Why they are accepted
    #[arg(long, value_name = "TEXT", requires = "update_baseline")]
    reason: Option<String>,
    /// Judge only what does not depend on how fast the machine is: outputs, counts, bytes
    #[arg(long)]
    portable: bool,
    /// Print nothing but the results: no progress, no notes, no warnings
    #[arg(long)]
    quiet: bool,
}

/// The result of one lane.
struct Ended {
    lane: &'static str,
    code: u8,
    seconds: f64,
}

/// Runs the lanes and returns the worst of their exit codes.
pub(super) fn run(args: &AllArgs, context: &Context) -> Result<ExitCode, Failure> {
    let lanes = args.lanes()?;
    if let Some(dir) = &args.output
        && let Some(lane) = lanes.iter().find(|lane| dir.join(lane.name).join(DOCUMENT).exists())
    {
        let fact = format!("there is a run already\n  in `{}`", dir.join(lane.name).display());
        return Err(Failure::usage(
            fact,
            "samples are not overwritten: choose another directory, or remove it",
        ));
    }
    if let Some(dir) = args.baseline.as_deref().filter(|dir| !args.update_baseline && !dir.is_dir()) {
        let fact = format!("no such directory\n  in `{}`", dir.display());
        return Err(Failure::usage(fact, "`--update-baseline --reason TEXT` makes it"));
    }
    if let Some(dir) = args.baseline.as_deref().filter(|_| args.update_baseline) {
        Disk::default().create_dir_all(dir).map_err(|error| Failure::reading(dir, &error))?;
    }
    let mut ended = Vec::new();
    for (at, lane) in lanes.iter().enumerate() {
        if !args.quiet {
            message::say(format_args!("==> {} ({} of {}): {}\n", lane.name, at + 1, lanes.len(), lane.asks));
        }
        let begin = context.clock.now_ns();
        let code = if args.lacks_baseline(lane) { MISSING } else { args.process(lane) };
        ended.push(Ended { lane: lane.name, code, seconds: context.clock.elapsed_s(begin) });
    }
    let codes: Vec<u8> = ended.iter().map(|lane| lane.code).collect();
    output::verdict(&summary(&ended), worst(&codes))
}

/// Checks the name of a device. Lanes receive it as text.
fn device(text: &str) -> Result<String, BadValue> {
    value::device(text).map(|_| text.to_owned())
}

/// Returns the worst of these exit codes, or 0 if every lane passed.
fn worst(codes: &[u8]) -> u8 {
    BY_SEVERITY.iter().copied().find(|code| codes.contains(code)).unwrap_or(0)
}

/// The exit code of a lane's process, if a lane can end with it; otherwise the code of a failure.
fn lane_code(code: Option<i32>) -> u8 {
    let code = code.and_then(|code| u8::try_from(code).ok());
    code.filter(|code| *code == 0 || BY_SEVERITY.contains(code)).unwrap_or(FAILED)
}

impl AllArgs {
    fn lanes(&self) -> Result<Vec<&'static Lane>, Failure> {
        if self.only.is_empty() {
            return Ok(lanes::ALL.iter().collect());
        }
        let named = |name: &String| {
            let hint = "`redline bench --list` lists the lanes";
            Lane::named(name.trim()).ok_or_else(|| Failure::usage(format!("no lane `{name}`"), hint))
        };
        self.only.iter().map(named).collect()
    }

    /// Runs a lane in its own process. Returns its exit code, or 1 if it crashed or could not be started.
    fn process(&self, lane: &Lane) -> u8 {
        let (program, _) = env::binary();
        let code = match Command::new(program).args(self.words(lane)).stdin(Stdio::null()).status() {
            Ok(status) => status.code(),
            Err(error) => {
                message::say(format_args!("error: {error}\n  in lane {}\n", lane.name));
                None
            }
        };
        lane_code(code)
    }

    /// The path of a lane's baseline, if baselines are compared or written. What is portable may be compared with the baseline of
    /// any machine, here the first by name.
    fn baseline_of(&self, lane: &Lane) -> Option<PathBuf> {
        let dir = self.baseline.as_ref()?;
        let file = format!("{}.json", lane.name);
        let own = dir.join(&file);
        if own.exists() || self.update_baseline || !self.portable {
            return Some(own);
        }
        let machines = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let of_machines = machines.map(|entry| entry.path().join(&file)).filter(|path| path.is_file());
        Some(of_machines.min().unwrap_or(own))
    }

    /// Whether the baseline to compare with is missing. A gate without a baseline could never fail.
    fn lacks_baseline(&self, lane: &Lane) -> bool {
        let missing = self.baseline_of(lane).filter(|path| !self.update_baseline && !path.exists());
        if let Some(path) = &missing {
            let hint = "`--only LANE --baseline DIR --update-baseline --reason TEXT` makes it in DIR, such as \
                baselines/zen-4-2; `--only LANE,..` leaves the lane out";
            message::say(format_args!(
                "error: there is no baseline\n  in `{}`\n\nhint: {hint}\n",
                path.display()
            ));
        }
        missing.is_some()
    }

    fn words(&self, lane: &Lane) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["bench".into(), lane.name.into()];
        words.push(format!("--profile={}", self.profile.name()).into());
        let mut add = |flag: &str, value: Option<&std::ffi::OsStr>| {
            if let Some(value) = value {
                // One word, because a value may begin with `-`.
                let mut word = OsString::from(format!("{flag}="));
                word.push(value);
                words.push(word);
            }
        };
        let threads = self
            .threads
            .as_ref()
            .map(|counts| counts.0.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        add("--threads", threads.as_ref().map(AsRef::as_ref));
        let model = match lane.run {
            LaneFunction::Machine(_) => None,
            LaneFunction::Model(_) | LaneFunction::Text(_) | LaneFunction::Server(_) => self.model.as_deref(),
            // The two kinds of lane need different models, so this kind always runs the embedded one that fills
            // masks.
            LaneFunction::Masked(_) => Some(redline_demo::DIFFUSION.name),
        };
        add("--model", model.map(AsRef::as_ref));
        let device = self.device.as_deref().filter(|_| !matches!(lane.run, LaneFunction::Text(_)));
        add("--device", device.map(AsRef::as_ref));
        add("--output", self.output.as_ref().map(|dir| dir.join(lane.name)).as_deref().map(Path::as_os_str));
        let baseline = self.baseline_of(lane);
        add("--baseline", baseline.as_deref().map(Path::as_os_str));
        add("--reason", self.reason.as_ref().map(AsRef::as_ref));
        if self.update_baseline {
            words.push("--update-baseline".into());
        }
        for (flag, is_set) in [("--portable", self.portable), ("--quiet", self.quiet)] {
            if is_set {
                words.push(flag.into());
            }
        }
        words
    }
}

/// One line per lane.
fn summary(ended: &[Ended]) -> String {
    let words = |code: u8| match code {
        0 => "ok",
        1 => "slower, missing, a gate missed, or it failed",
        2 => "refused",
        3 => "inconclusive",
        4 => "not comparable",
        5 => "too noisy or invalid",
        6 => "wrong outputs",
        _ => "failed",
    };
    let line = |lane: &Ended| {
        vec![
            lane.lane.to_owned(),
            format!("{:.1}", lane.seconds),
            lane.code.to_string(),
            words(lane.code).to_owned(),
        ]
    };
    let titles = ["lane", "seconds", "code", ""].map(str::to_owned).to_vec();
    let lines: Vec<Vec<String>> = [titles].into_iter().chain(ended.iter().map(line)).collect();
    format!("\n{}", align(&lines, 3))
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    #[test]
    fn the_worst_code_of_all_lanes_counts() {
        assert_eq!(worst(&[]), 0);
        assert_eq!(worst(&[0, 0]), 0);
        // From worst to best: usage, wrong outputs, not comparable, invalid, slower or failed, inconclusive.
        let order = [2, 6, 4, 5, 1, 3, 0];
        for (at, code) in order.iter().enumerate() {
            for better in &order[at..] {
                assert_eq!((worst(&[*code, *better]), worst(&[*better, *code])), (*code, *code));
            }
        }
    }

    #[test]
    fn a_lane_that_crashes_failed() {
        for code in [0, 1, 2, 3, 4, 5, 6] {
            assert_eq!(i32::from(lane_code(Some(code))), code);
        }
        for crashed in [None, Some(7), Some(101), Some(134), Some(256), Some(-1)] {
            assert_eq!(lane_code(crashed), FAILED, "{crashed:?}");
        }
    }

    #[test]
    fn each_lane_gets_the_flags_that_fit_it() {
        let parsed = |arguments: &[&str]| {
            let command = AllArgs::augment_args(clap::Command::new("all").no_binary_name(true));
            AllArgs::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
        };
        let words = |args: &AllArgs, lane: &str| -> String {
            let words = args.words(Lane::named(lane).unwrap());
            words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        let bare = parsed(&[]);
        assert_eq!(words(&bare, "gemm"), "bench gemm --profile=standard");
        assert_eq!(words(&bare, "diffusion"), "bench diffusion --profile=standard --model=demo-diffusion");
        let accepting = ["--baseline=b", "--update-baseline", "--reason=-why", "--portable"];
        let common = ["--profile=smoke", "--threads=1,2", "--model=m", "--backend=cpu", "-o", "runs"];
        let whole = parsed(&[&common[..], &accepting].concat());
        for (lane, model) in [
            ("gemm", "--device=cpu "),
            ("generate", "--model=m --device=cpu "),
            ("tokenizer", "--model=m "),
            ("diffusion", "--model=demo-diffusion --device=cpu "),
        ] {
            let files = format!(
                "--output=runs/{lane} --baseline=b/{lane}.json --reason=-why --update-baseline --portable"
            );
            assert_eq!(
                words(&whole, lane),
                format!("bench {lane} --profile=smoke --threads=1,2 {model}{files}")
            );
        }
    }
}
