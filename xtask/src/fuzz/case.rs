//! One case: a model, requests, and two ways to run them whose answers must be the same.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use super::answer;
use super::model::Model;
use super::process::{Binary, CommandLine, Finished};
use super::random::Random;
use super::request::{self, Command};

/// Timeouts in seconds for the start of a process and for each request. A request takes milliseconds; the timeouts must
/// hold on a busy machine.
const START_S: u64 = 60;
const REQUEST_S: u64 = 10;

/// A case, generated from its seed.
pub(super) struct Case {
    model: Model,
    command: Command,
    /// Flags that determine the results; also used when a request runs alone.
    arithmetic: Vec<String>,
    /// Flags that must not change the results.
    execution: Vec<String>,
    /// Bytes of memory above the minimum with which the engine starts.
    spare: Option<u64>,
    /// Whether plans are made beforehand and must not be made later.
    precompiled: bool,
    requests: Vec<Value>,
}

/// The smallest `--memory` that works, by all arguments that it depends on.
pub(super) type Least = BTreeMap<Vec<String>, u64>;

/// A flag with its value.
fn flag(name: &str, value: impl ToString) -> [String; 2] {
    [format!("--{name}"), value.to_string()]
}

impl Case {
    /// Generates the case of a seed.
    pub(super) fn draw(seed: u64, models: &[Model], tiers: &[&'static str]) -> Self {
        let random = &mut Random::new(seed);
        // The embedded models are slower, so they get only one case in ten.
        let (embedded, golden): (Vec<_>, Vec<_>) = models.iter().partition(|model| model.text);
        let from = if random.once_in(10) { embedded } else { golden };
        let model = random.of(&from).clone();
        let command = match (model.mask.is_some(), random.once_in(2)) {
            (_, true) => Command::Score,
            (true, false) => Command::Diffuse,
            (false, false) => Command::Generate,
        };
        let arithmetic = arithmetic(random, &model);
        let precompiled = random.once_in(25);
        let (mut execution, spare) = execution(random, tiers, precompiled);
        if command == Command::Generate && random.once_in(4) {
            execution.extend(flag("stall-ms", random.of(&["0", "0.1", "5"])));
        }
        let requests = (0..random.between(1, 12)).map(|_| request::line(random, &model, command)).collect();
        Self { model, command, arithmetic, execution, spare, precompiled, requests }
    }

    /// Runs the case and counts the answers.
    pub(super) fn run(
        &self,
        binary: &Binary,
        least: &mut Least,
        counts: &mut Map<String, Value>,
    ) -> Result<()> {
        let mut expected = Vec::new();
        for request in &self.requests {
            let path = binary.requests("alone.jsonl", &format!("{request}\n"))?;
            let arguments = self.arguments(&[], &path);
            expected.extend(Self::answers(binary, &arguments, 1)?);
        }
        let mut execution = self.execution.clone();
        if let Some(spare) = self.spare {
            execution.extend(flag("memory", self.least(binary, least)? + spare));
        }
        if self.precompiled {
            execution.extend(flag("plan-cache", binary.folder.join("plans").display()));
            self.precompile(binary, &execution)?;
            execution.extend(flag("plan-policy", "forbid"));
        }
        let lines: String =
            self.requests.iter().flat_map(|request| [request.to_string(), "\n".into()]).collect();
        let path = binary.requests("requests.jsonl", &lines)?;
        let arguments = self.arguments(&execution, &path);
        let got = Self::answers(binary, &arguments, self.requests.len())?;
        answer::count(&got, counts);
        for (n, (alone, got)) in expected.iter().zip(&got).enumerate() {
            answer::compare(alone, got, self.spare.is_some()).with_context(|| {
                format!("line {} of the requests\n  {}", n + 1, CommandLine(binary, &arguments))
            })?;
        }
        Ok(())
    }

    /// The command line for a file of requests.
    fn arguments(&self, execution: &[String], path: &str) -> Vec<String> {
        let mut arguments = vec![self.command.name().to_owned()];
        arguments.extend(flag("model", &self.model.name));
        arguments.extend(self.arithmetic.iter().chain(execution).cloned());
        arguments.extend(flag("jsonl", path));
        arguments
    }

    /// Runs the binary and reads one answer per line.
    fn answers(binary: &Binary, arguments: &[String], lines: usize) -> Result<Vec<Value>> {
        let finished = binary.run(arguments, START_S + REQUEST_S * lines as u64)?;
        let answers = answer::parse(&finished.out);
        let output = || format!("{}\n{}", CommandLine(binary, arguments), finished.err);
        let answers = answers.with_context(output)?;
        let whole = answers.len() == lines && matches!(finished.code, Some(0 | 1));
        ensure!(
            whole && !finished.err.contains("panicked"),
            "{} answers to {lines} lines, exit code {:?}\n  {}",
            answers.len(),
            finished.code,
            output()
        );
        Ok(answers)
    }

    /// Makes a plan for every pass size.
    fn precompile(&self, binary: &Binary, execution: &[String]) -> Result<()> {
        let mut arguments = vec!["precompile".to_owned()];
        arguments.extend(flag("model", &self.model.name));
        // `precompile` takes no memory flags.
        let mut rest = self.arithmetic.iter().chain(execution);
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--memory" | "--prefix-cache" | "--stall-ms" => drop(rest.next()),
                _ => arguments.push(word.clone()),
            }
        }
        let finished = binary.run(&arguments, START_S + 100)?;
        ensure!(finished.code == Some(0), "{}\n{}", CommandLine(binary, &arguments), finished.err);
        Ok(())
    }

    /// Finds the smallest `--memory` with which the engine starts.
    fn least(&self, binary: &Binary, known: &mut Least) -> Result<u64> {
        let of = ["--max-chunk", "--tp", "--threads"];
        let mut key = self.arithmetic.clone();
        key.extend(self.execution.chunks(2).filter(|pair| of.contains(&&*pair[0])).flatten().cloned());
        key.push(self.model.name.clone());
        if let Some(&least) = known.get(&key) {
            return Ok(least);
        }
        let (mut refused, mut admitted) = (0, 1 << 34);
        ensure!(self.starts(binary, admitted)?, "no start with {admitted} bytes");
        while admitted - refused > 512 {
            let middle = u64::midpoint(refused, admitted);
            if self.starts(binary, middle)? { admitted = middle } else { refused = middle }
        }
        known.insert(key, admitted);
        Ok(admitted)
    }

    /// Whether the engine starts with this much memory. A failure for any reason other than the budget is an error.
    fn starts(&self, binary: &Binary, memory: u64) -> Result<bool> {
        let mut execution = self.execution.clone();
        execution.extend(flag("memory", memory));
        let arguments = self.arguments(&execution, "/dev/null");
        let Finished { code, err, .. } = binary.run(&arguments, START_S)?;
        match code {
            Some(0) => Ok(true),
            Some(1) if err.contains("a memory budget of ") && err.contains("--memory ") => Ok(false),
            _ => bail!("exit code {code:?}\n  {}\n{err}", CommandLine(binary, &arguments)),
        }
    }
}

/// Flags that determine the results.
fn arithmetic(random: &mut Random, model: &Model) -> Vec<String> {
    let mut flags = Vec::new();
    let format = random.of(&[None, Some("f32"), Some("bf16"), Some("w8"), Some("w4")]);
    if let Some(format) = format {
        flags.extend(flag("format", format));
        let groups: &[usize] = match format {
            "w8" => &[0, 128],
            "w4" => &[32, 64, 128],
            _ => &[],
        };
        if !groups.is_empty() && random.once_in(2) {
            flags.extend(flag("group", random.of(groups)));
        }
        if !groups.is_empty() && random.once_in(4) {
            flags.extend(flag("outliers", random.of(&[0.01, 0.1])));
        }
    }
    if let Some(kv) = random.of(&[None, Some("f32"), Some("bf16")]) {
        flags.extend(flag("kv-format", kv));
    }
    if random.once_in(10) {
        flags.extend(flag("max-context", random.between(model.context / 2, model.context)));
    }
    flags
}

/// Flags that must not change results, and the bytes above the minimum memory if there is a budget.
fn execution(random: &mut Random, tiers: &[&'static str], precompiled: bool) -> (Vec<String>, Option<u64>) {
    let mut flags = Vec::new();
    flags.extend(flag("threads", random.of(&[1, 1, 2, 2, 3])));
    if random.once_in(2) {
        flags.extend(flag("isa", random.of(tiers)));
    }
    if random.once_in(4) {
        flags.extend(flag("tp", random.of(&[2, 3, 8])));
    }
    if !random.once_in(3) {
        flags.extend(flag("max-chunk", random.of(&[1, 2, 3, 7, 16, 64, 65, 100, 200])));
    }
    flags.extend(flag("prefix-cache", random.of(&["on", "on", "off"])));
    if !precompiled && random.once_in(4) {
        flags.extend(flag("plan-policy", random.of(&["estimate", "off", "tune"])));
    }
    // Pages of the tiny models have 10 to 200 kB.
    let bits = random.between(9, 19);
    let spare = (!random.once_in(3)).then(|| random.below(1 << bits) as u64);
    (flags, spare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_case_and_seeds_reach_every_kind() {
        let models = super::super::model::all(crate::root()).unwrap();
        let draw = |seed| Case::draw(seed, &models, &["scalar"]);
        let shown =
            |case: &Case| format!("{:?}", (case.arguments(&case.execution, "x"), &case.requests, case.spare));
        assert_eq!(shown(&draw(5)), shown(&draw(5)));
        let cases: Vec<Case> = (0..400).map(draw).collect();
        for command in [Command::Score, Command::Generate, Command::Diffuse] {
            assert!(cases.iter().any(|case| case.command == command && case.spare.is_some()), "{command:?}");
        }
        for word in ["--max-context", "--outliers", "--isa", "--tp", "--stall-ms", "--plan-policy", "off"] {
            let has = |case: &Case| case.arguments(&case.execution, "x").iter().any(|w| w == word);
            assert!(cases.iter().any(has), "{word}");
        }
        let keys: Vec<&String> =
            cases.iter().flat_map(|c| &c.requests).filter_map(Value::as_object).flat_map(Map::keys).collect();
        for key in [
            "long_labels",
            "item_labels",
            "cache_salt",
            "mc_samples",
            "threshold",
            "cfg_scale",
            "min_p",
            "typical_p",
            "repetition_penalty",
            "presence_penalty",
            "frequency_penalty",
            "logit_bias",
            "best_of",
        ] {
            assert!(keys.iter().any(|k| *k == key), "{key}");
        }
        assert!(cases.iter().any(|case| case.precompiled));
    }
}
