//! Runs the binary in a controlled environment.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use redline_api::jsonl::generate::TextCompletion;
use redline_api::jsonl::score::Scoring;

/// The output and exit code of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The binary, with none of its environment variables set.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redline"));
    command.env_clear().env("HOME", "/nonexistent").args(arguments);
    command
}

/// Runs the binary.
pub(crate) fn redline(arguments: &[&str]) -> Run {
    finish(command(arguments).stdin(Stdio::null()).output().expect("the binary starts"))
}

/// A command that runs the binary from a shell after `before`, which may set limits.
#[cfg(unix)]
pub(crate) fn limited(before: &str, arguments: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    shell.args(["-c", &format!("{before} exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_redline")]);
    shell.args(arguments).output().expect("the shell starts")
}

/// Runs the binary under `strace`, which writes the calls in `trace` to the file `seen`, and may inject faults. `None` if `strace` is
/// missing or may not trace. Linux only.
pub(crate) fn traced(trace: &str, inject: Option<&str>, seen: &Path, arguments: &[&str]) -> Option<Output> {
    tracing(trace, inject, seen, arguments)?.output().ok()
}

/// The command of [`traced`].
pub(crate) fn tracing(trace: &str, inject: Option<&str>, seen: &Path, arguments: &[&str]) -> Option<Command> {
    let strace = |inject: Option<&str>, program: &str, arguments: &[&str]| {
        let mut strace = Command::new("strace");
        strace.env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
        strace.args(["-f", "-qq", "-o"]).arg(seen).args(["-e", &format!("trace={trace}")]);
        match inject {
            Some(inject) => strace.args(["-e", &format!("inject={inject}")]),
            // With this flag only traced calls stop the process. Injected calls are counted only without it.
            None => strace.arg("--seccomp-bpf"),
        };
        strace.arg(program).args(arguments);
        strace
    };
    if !strace(None, "true", &[]).output().is_ok_and(|output| output.status.success()) {
        redline_testing::skip("no `strace` that may trace here");
        return None;
    }
    Some(strace(inject, env!("CARGO_BIN_EXE_redline"), arguments))
}

/// Runs the binary with this standard input.
pub(crate) fn redline_reading(arguments: &[&str], input: &[u8]) -> Run {
    let mut command = command(arguments);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("piped");
    // The process may reject its arguments and exit before it reads.
    let _ = stdin.write_all(input);
    drop(stdin);
    finish(child.wait_with_output().expect("the binary ends"))
}

/// As [`redline_reading`], with a reader of standard output that has left before the binary writes.
pub(crate) fn unread(arguments: &[&str], input: &[u8]) -> Run {
    let mut command = command(arguments);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the binary starts");
    drop(child.stdout.take());
    child.stdin.take().expect("piped").write_all(input).expect("the binary reads");
    finish(child.wait_with_output().expect("the binary ends"))
}

pub(crate) fn finish(output: Output) -> Run {
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        err: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}

impl Run {
    /// Asserts success.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }

    /// Asserts a usage error with a hint, whose message contains all of `expect`.
    #[track_caller]
    pub(crate) fn usage(&self, expect: &[&str]) {
        self.refused(2, expect);
        assert!(self.err.contains("\nhint: "), "no hint: {}", self.err);
    }

    /// Asserts a failure with a message that contains all of `expect`.
    #[track_caller]
    pub(crate) fn failed(&self, expect: &[&str]) {
        self.refused(1, expect);
    }

    #[track_caller]
    fn refused(&self, code: i32, expect: &[&str]) {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        assert!(self.err.starts_with("error: ") || self.err.contains("\nerror: "), "{}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        assert_eq!(self.out, "", "data beside an error");
        for expect in expect {
            assert!(self.err.contains(expect), "no `{expect}` in: {}", self.err);
        }
    }

    /// Parses standard output as one score document.
    #[track_caller]
    pub(crate) fn scoring(&self) -> Scoring {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {} {}", self.out, self.err))
    }

    /// Parses standard output as one generation document.
    #[track_caller]
    pub(crate) fn completion(&self) -> TextCompletion {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {} {}", self.out, self.err))
    }
}

/// Runs a lane and judges only what does not depend on the speed of the machine.
#[track_caller]
pub(crate) fn measured(words: &[&str], more: &[&str]) -> Run {
    redline(&[words, more, &["--portable"]].concat()).ok()
}

/// The bits of a document's scores.
pub(crate) fn bits(scoring: &Scoring) -> Vec<Vec<u32>> {
    scoring.scores.iter().map(|row| row.iter().flatten().map(|score| score.0.to_bits()).collect()).collect()
}

/// Scores with `--model demo --json` and further arguments.
#[track_caller]
pub(crate) fn score(arguments: &[&str]) -> Scoring {
    redline(&[&["score", "--model", "demo", "--json"], arguments].concat()).ok().scoring()
}

/// Generates with `--model demo --json` and further arguments.
#[track_caller]
pub(crate) fn generate(arguments: &[&str]) -> TextCompletion {
    redline(&[&["generate", "--model", "demo", "--json"], arguments].concat()).ok().completion()
}

/// The commands that `redline --help` lists.
pub(crate) fn commands() -> Vec<String> {
    let help = redline(&["--help"]).ok().out;
    let list =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<_> =
        list.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).map(str::to_owned).collect();
    let names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).collect();
    assert!(names.len() >= 6, "{help}");
    names
}

/// The tiers of this machine, spelled as for `--isa`.
pub(crate) fn tiers() -> Vec<&'static str> {
    let has = |tier: &&str| redline(&["score", "--isa", tier]).err.contains("no model given");
    ["scalar", "avx2", "avx512", "amx"].into_iter().filter(has).collect()
}
