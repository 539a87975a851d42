//! The benchmark lanes: one file each, one line each in [`ALL`].

use std::fmt;
use std::path::PathBuf;

use redline_engine::{Engine, EngineError, MAX_BATCH, ModelInfo, PlanPolicy};
use redline_kernels::{OutOfMemory, Simd, Tier};
use redline_tokenizer::{Encoder, Tokenizer, TokenizerError};

use crate::baseline::Rule;
use crate::limits::LimitError;
use crate::number;
use crate::result::Column;
use crate::stats::NotFinite;
use crate::{Clock, LaneResult, Machine};

pub mod forward;
pub mod gemm;
pub mod generate;
pub mod limits;
pub mod memory;
pub mod mixed;
pub mod plan_cache;
pub mod score;
pub mod tokenizer;

/// Every lane there is.
pub const ALL: &[Lane] = &[
    generate::LANE,
    score::LANE,
    mixed::LANE,
    limits::LANE,
    gemm::LANE,
    forward::LANE,
    memory::LANE,
    plan_cache::LANE,
    tokenizer::LANE,
];

/// A benchmark: one question, its flags, and how to answer it.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// The name on the command line.
    pub name: &'static str,
    /// The question it answers.
    pub asks: &'static str,
    /// Its own flags, besides those that choose model and machine.
    pub flags: &'static [Flag],
    /// Values of its flags with which it runs in a moment, for tests.
    pub smoke: &'static [(&'static str, &'static str)],
    /// The numbers of threads to run with unless told otherwise, from how many are the machine's default.
    pub threads: fn(usize) -> Vec<usize>,
    /// The columns of its comma-separated values, a line per row; `None`: a line per row and metric.
    pub columns: Option<&'static [Column]>,
    /// The columns of its table for people, a line per row; `None`: a line per row and metric.
    pub shown: Option<&'static [Column]>,
    /// How comma-separated values of an earlier run are compared; `None`: they are no baseline.
    pub baseline: Option<Rule>,
    /// Answers the question.
    pub run: Run,
}

/// How a lane answers its question.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// By measuring the machine alone.
    Machine(OfMachine),
    /// By measuring a model.
    Model(OfModel),
    /// By measuring how text becomes ids.
    Text(OfText),
}

/// Measures the machine.
pub type OfMachine = fn(&Bench<'_>, &Values) -> Result<LaneResult, LaneError>;
/// Measures a model.
pub type OfModel = fn(&Bench<'_>, &Model<'_>, &Values) -> Result<LaneResult, LaneError>;

/// Measures how text becomes ids.
pub type OfText = fn(&Bench<'_>, &Text<'_>, &Values) -> Result<LaneResult, LaneError>;

/// Only as many threads as the machine has by default.
pub(crate) fn all_threads(default: usize) -> Vec<usize> {
    vec![default]
}

/// A flag of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// What stands for the value in help; empty for a switch, whose value is `true` or `false`.
    pub value: &'static str,
    /// Used where the flag is not given.
    pub default: &'static str,
    /// One line.
    pub help: &'static str,
}

/// What a lane runs with.
pub struct Bench<'a> {
    /// The clock.
    pub clock: &'a Clock,
    /// This computer.
    pub machine: Machine,
    /// Thread counts to run with, in this order.
    pub threads: Vec<usize>,
    /// The tier to run; `None`: the fastest.
    pub tier: Option<Tier>,
    /// Told after each case, for whoever waits.
    pub progress: &'a dyn Fn(&str),
}

/// The model that is measured.
pub struct Model<'a> {
    /// Loads it.
    pub load: &'a dyn Fn(Setup) -> Result<Engine, EngineError>,
    /// Runs a command of this program on it with the same settings, in a process of its own: what it printed, or its complaint.
    pub process: &'a dyn Fn(&[String]) -> Result<String, String>,
    /// Bytes of its weights in their file, where it was packed before, so that memory holds as many.
    pub packed_bytes: Option<u64>,
}

/// The tokenizer that is measured.
pub struct Text<'a> {
    /// Its model or its file.
    pub name: &'a str,
    /// Reads it, to encode like that.
    pub tokenizer: &'a dyn Fn(Encoder) -> Result<Tokenizer, TokenizerError>,
}

/// How a lane wants the model loaded; the rest is as on the command line.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Threads.
    pub threads: usize,
    /// Whether keys and values of earlier requests are kept.
    pub prefix_cache: bool,
    /// How passes are planned; `None`: as on the command line.
    pub plans: Option<PlanSetup>,
}

/// How a lane wants passes planned.
#[derive(Clone, Debug)]
pub struct PlanSetup {
    /// What a missing plan does.
    pub policy: PlanPolicy,
    /// Where plans are kept; `None`: nowhere.
    pub cache: Option<PathBuf>,
    /// Tokens of passes that have a plan.
    pub tokens: Vec<usize>,
    /// Rows that have one.
    pub rows: Vec<usize>,
}

impl Setup {
    /// With so many threads, and nothing kept from request to request.
    pub fn new(threads: usize) -> Self {
        Self { threads, prefix_cache: false, plans: None }
    }
}

impl Lane {
    /// A result of this lane for people.
    pub fn table(&self, result: &LaneResult) -> String {
        self.shown.map_or_else(|| result.table(), |columns| result.table_of(columns))
    }
}

impl Bench<'_> {
    /// The tier to run.
    pub fn simd(&self) -> Simd {
        self.tier.and_then(|tier| Simd::new(tier).ok()).unwrap_or_else(Simd::best)
    }

    /// Refuses what would take more memory than is free; `what` is told with its size.
    pub fn fits(&self, what: &str, bytes: f64) -> Result<(), LaneError> {
        let free = self.machine.free_bytes();
        if bytes <= free as f64 {
            return Ok(());
        }
        let (need, free) = (number::bytes(bytes as u64), number::bytes(free));
        Err(LaneError::Usage(format!("{what} would take {need}, but {free} of memory are free")))
    }
}

/// Refuses sequences longer than the model's context.
pub(crate) fn within_context(tokens: usize, info: &ModelInfo) -> Result<(), LaneError> {
    if tokens <= info.context {
        return Ok(());
    }
    let fact = format!("sequences of {tokens} tokens exceed the context of {}", info.context);
    Err(LaneError::Usage(format!("{fact}\n  in `{}`", info.name)))
}

/// Refuses batches that the engine does not decode.
pub(crate) fn within_batch(batches: &[usize]) -> Result<(), LaneError> {
    match batches.iter().find(|&&batch| batch > MAX_BATCH) {
        None => Ok(()),
        Some(batch) => {
            Err(LaneError::Usage(format!("`--batch` is {batch}, but at most {MAX_BATCH} decode together")))
        }
    }
}

/// The values of a lane's flags.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<(&'static str, String)>);

impl Values {
    /// The defaults of `flags`, then what was given.
    pub fn new<'a>(flags: &'static [Flag], given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut values: Vec<(&'static str, String)> =
            flags.iter().map(|f| (f.name, f.default.to_owned())).collect();
        for (name, value) in given {
            if let Some(slot) = values.iter_mut().find(|(known, _)| *known == name) {
                value.clone_into(&mut slot.1);
            }
        }
        Self(values)
    }

    fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// A count of at least 1.
    pub fn count(&self, name: &'static str) -> Result<usize, LaneError> {
        match self.text(name).parse() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(LaneError::Usage(format!(
                "`--{name}` is `{}`, but a number of at least 1 is needed",
                self.text(name)
            ))),
        }
    }

    /// Counts of at least 1, such as `1,2,4`.
    pub fn counts(&self, name: &'static str) -> Result<Vec<usize>, LaneError> {
        let number = |part: &str| part.trim().parse().ok().filter(|&n| n > 0);
        let counts: Option<Vec<usize>> = self.text(name).split(',').map(number).collect();
        counts.ok_or_else(|| {
            let fact = format!("`--{name}` is `{}`, but numbers of at least 1 are needed", self.text(name));
            LaneError::Usage(format!("{fact}, such as 1,2,4"))
        })
    }

    /// A count of at least 1; `None` for `auto`.
    pub fn count_or_auto(&self, name: &'static str) -> Result<Option<usize>, LaneError> {
        if self.text(name) == "auto" { Ok(None) } else { self.count(name).map(Some) }
    }

    /// A number of at least 0.
    pub fn number(&self, name: &'static str) -> Result<f64, LaneError> {
        match self.text(name).parse::<f64>() {
            Ok(x) if x >= 0.0 && x.is_finite() => Ok(x),
            _ => Err(LaneError::Usage(format!(
                "`--{name}` is `{}`, but a number of at least 0 is needed",
                self.text(name)
            ))),
        }
    }

    /// A file; `None` for `none`.
    pub fn file(&self, name: &'static str) -> Option<PathBuf> {
        Some(self.text(name)).filter(|text| *text != "none").map(PathBuf::from)
    }

    /// Whether a switch is on.
    pub fn switch(&self, name: &'static str) -> Result<bool, LaneError> {
        Ok(self.choice(name, &["true", "false"])? == "true")
    }

    /// One of `choices`.
    pub fn choice(&self, name: &'static str, choices: &[&'static str]) -> Result<&'static str, LaneError> {
        let given = self.text(name);
        choices.iter().copied().find(|c| *c == given).ok_or_else(|| {
            LaneError::Usage(format!("`--{name}` is `{given}`, but one of {} is needed", choices.join(", ")))
        })
    }
}

/// Why a lane has no answer.
#[derive(Debug)]
pub enum LaneError {
    /// A flag's value makes no sense: the caller's mistake.
    Usage(String),
    /// The engine refused or failed.
    Engine(EngineError),
    /// A limit could not be measured.
    Limit(LimitError),
    /// The system refused memory.
    Memory(OutOfMemory),
    /// A measurement is no number.
    Samples(NotFinite),
    /// A tokenizer cannot be read, or a text cannot be encoded.
    Tokenizer(TokenizerError),
    /// A file cannot be used: why, and where.
    Input(String),
    /// The outputs are wrong, so their speed means nothing.
    Incorrect(String),
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(fact) | Self::Incorrect(fact) | Self::Input(fact) => f.write_str(fact),
            Self::Engine(e) => e.fmt(f),
            Self::Limit(e) => e.fmt(f),
            Self::Memory(e) => e.fmt(f),
            Self::Samples(e) => e.fmt(f),
            Self::Tokenizer(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LaneError {}

impl LaneError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Engine(e) => e.hint(),
            Self::Tokenizer(e) => e.hint(),
            _ => None,
        }
    }
}

impl From<EngineError> for LaneError {
    fn from(e: EngineError) -> Self {
        Self::Engine(e)
    }
}

impl From<LimitError> for LaneError {
    fn from(e: LimitError) -> Self {
        Self::Limit(e)
    }
}

impl From<OutOfMemory> for LaneError {
    fn from(e: OutOfMemory) -> Self {
        Self::Memory(e)
    }
}

impl From<TokenizerError> for LaneError {
    fn from(e: TokenizerError) -> Self {
        Self::Tokenizer(e)
    }
}

impl From<NotFinite> for LaneError {
    fn from(e: NotFinite) -> Self {
        Self::Samples(e)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use redline_kernels::Format;
    use redline_kernels::op::kv::KvFormat;

    use super::*;

    /// A model of round numbers.
    pub(crate) fn info() -> ModelInfo {
        ModelInfo {
            name: "a".into(),
            architecture: "b".into(),
            parameters: 600,
            weight_bytes: 2000,
            bytes_per_token: 1000,
            head_bytes: 100,
            kv_bytes_per_token: 8,
            activation_bytes: 400,
            context: 100,
            vocab: 10,
            layers: 1,
            hidden: 4,
            threads: 1,
            tp: 1,
            max_chunk: 512,
            tier: Tier::Scalar,
            format: Format::F32,
            kv_format: KvFormat::F32,
            kernel_path: "k".into(),
            kv_budget_bytes: None,
            prefix_cache: false,
            operations: (100.0, 3.0, 50.0),
        }
    }

    #[test]
    fn lanes_say_what_their_flags_are() {
        for lane in ALL {
            for (name, _) in lane.smoke {
                assert!(lane.flags.iter().any(|flag| flag.name == *name), "{}: {name}", lane.name);
            }
            let switches = lane.flags.iter().filter(|flag| flag.value.is_empty());
            assert!(switches.into_iter().all(|flag| flag.default == "false"), "{}", lane.name);
            let names = lane.columns.unwrap_or_default().iter().map(|column| column.name);
            let distinct: std::collections::BTreeSet<_> = names.clone().collect();
            assert_eq!(distinct.len(), names.count(), "{}", lane.name);
        }
    }

    #[test]
    fn values_are_numbers_from_one() {
        const FLAGS: &[Flag] = &[Flag { name: "n", value: "N", default: "3", help: "" }];
        let with = |text| Values::new(FLAGS, [("n", text)]);
        assert_eq!(with("1, 2,3").counts("n").unwrap(), [1, 2, 3]);
        assert_eq!(
            (with("auto").count_or_auto("n").unwrap(), with("7").count_or_auto("n").unwrap()),
            (None, Some(7))
        );
        assert!(with("true").switch("n").unwrap() && !with("false").switch("n").unwrap());
        for bad in ["", "0", "1,", "1,0", "-1", "x", "99999999999999999999999"] {
            let LaneError::Usage(fact) = with(bad).counts("n").unwrap_err() else { panic!("{bad}") };
            assert!(fact.contains("`--n`") && fact.contains(&format!("`{bad}`")), "{fact}");
            assert!(with(bad).count("n").is_err() && with(bad).count_or_auto("n").is_err(), "{bad}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_numbers() {
        let mut machine = Machine::default();
        machine.memory.available_bytes = Some(3 << 20);
        let clock = Clock::scripted(|| 0);
        let bench = Bench { clock: &clock, machine, threads: vec![1], tier: None, progress: &|_| () };
        assert!(bench.fits("it", f64::from(3 << 20)).is_ok());
        let LaneError::Usage(fact) = bench.fits("it", 1e30).unwrap_err() else { panic!() };
        assert!(fact.starts_with("it would take") && fact.contains("3 MiB"), "{fact}");
        assert!(within_context(101, &info()).is_err() && within_context(100, &info()).is_ok());
        assert!(within_batch(&[1, 64]).is_ok() && within_batch(&[65]).is_err());
    }
}
