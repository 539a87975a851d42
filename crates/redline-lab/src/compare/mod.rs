//! Compares two runs: a verdict for every metric of every case, and whether the runs are comparable at all.
//!
//! Absolute values are compared on one machine (equal fingerprints), in one lane, for cases with equal parameters. Metrics
//! without a direction are reported but not judged.

mod pairs;
mod portable;
mod steady;
mod table;
mod weak;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lanes::Lane;
use crate::result::Row;
use crate::run::Run;
use crate::stats::{Direction, Samples};
use crate::verdict::{self, CONFIDENCE, Effect, Judgement, THRESHOLD, Verdict, judge};
use pairs::Pair;

/// The schema of a comparison.
pub const SCHEMA: &str = "redline.bench.compare/1";

/// Parameters that identify the engine, not the case.
const WHO: &[&str] = &["engine", "version"];

/// Rules of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// The relative difference that matters; `None` for the lane's threshold.
    pub threshold: Option<f64>,
    /// Whether figures of different machines may be compared.
    pub different_machine: bool,
    /// Parameters that may differ.
    pub different_params: Vec<String>,
    /// Whether the two are arms of one run, whose flags, and therefore parameters and case names, differ on purpose.
    pub arms: bool,
    /// Whether to judge only values that do not depend on the machine's speed: digests of outputs, counts, bytes. Machines may
    /// then differ.
    pub portable: bool,
}

impl Rules {
    /// Rules with this threshold.
    pub fn new(threshold: f64) -> Self {
        Self { threshold: Some(threshold), ..Self::default() }
    }

    fn threshold(&self, lane: &str) -> f64 {
        let of_lane = || Lane::named(lane).map_or(THRESHOLD, |lane| lane.threshold);
        self.threshold.unwrap_or_else(of_lane)
    }
}

/// The result of a comparison. In a stored one, missing fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparison {
    /// [`SCHEMA`].
    #[serde(skip_deserializing)]
    pub schema: &'static str,
    /// The base.
    pub base: Side,
    /// The run that is judged.
    pub new: Side,
    /// The relative difference that matters.
    #[serde(default = "default_threshold")]
    pub threshold: f64,
    /// The confidence of the intervals.
    pub confidence: f64,
    /// Differences between the runs that make them incomparable.
    pub differs: Vec<FieldDifference>,
    /// One line per case and metric.
    pub lines: Vec<ComparedMetric>,
    /// The geometric mean of the judged ratios.
    pub geometric_mean: Option<f64>,
    /// Number of judged ratios.
    pub judged: usize,
    /// Whether the outputs agree.
    pub outputs: Outputs,
    /// The exit code.
    pub exit_code: u8,
}

/// The threshold of a stored comparison that names none.
fn default_threshold() -> f64 {
    THRESHOLD
}

/// Description of a run in a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Side {
    /// The run's name.
    pub run_id: Option<String>,
    /// When it began.
    pub started_at: Option<String>,
    /// Whether every case was run.
    pub finished: bool,
    /// The engine with its version.
    pub engine: String,
    /// The machine in one line.
    pub machine: Option<String>,
}

/// A field with different values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldDifference {
    /// Its name.
    pub field: String,
    /// Its value in the base.
    pub base: String,
    /// Its value in the other run.
    pub new: String,
}

/// A metric of a case. A case without metrics, or in one run only, has a single line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedMetric {
    /// The case; `a -> b` if the names differ.
    pub case: String,
    /// The metric.
    pub metric: Option<String>,
    /// Its unit.
    pub unit: Option<String>,
    /// The direction in which the metric improves.
    pub direction: Option<Direction>,
    /// The value in the base: the geometric mean of the units of the comparison, or without a ratio the headline.
    pub base: Option<f64>,
    /// The value in the new run.
    pub new: Option<f64>,
    /// The ratio and its interval.
    #[serde(flatten)]
    pub effect: Option<Effect>,
    /// `None` for metrics that are not judged.
    pub verdict: Option<Verdict>,
    /// The reason, if the numbers do not show it.
    pub why: Option<String>,
}

/// Case names by result of comparing output digests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outputs {
    /// Equal outputs.
    pub equal: Vec<String>,
    /// Different outputs.
    pub different: Vec<String>,
    /// At least one side has no digest.
    pub unknown: Vec<String>,
}

/// Compares `new` with `base`.
pub fn compare(base: &Run, new: &Run, rules: &Rules) -> Comparison {
    let differs = differences(base, new, rules);
    let threshold = rules.threshold(&new.lane);
    let mut outputs = Outputs::default();
    let mut lines = Vec::new();
    for pair in &pairs::pairs(&base.rows, &new.rows, rules.arms) {
        if let Pair::Both(b, n) = pair {
            let list = match (&b.digest, &n.digest) {
                (Some(b), Some(n)) if b == n => &mut outputs.equal,
                (Some(_), Some(_)) => &mut outputs.different,
                _ => &mut outputs.unknown,
            };
            list.push(pair.name());
        }
        lines.extend(if rules.portable {
            portable::pair_lines(pair, &base.lane)
        } else {
            pair_lines(pair, &differs, rules, threshold)
        });
    }
    lines.extend(whole(base, new, rules));
    // Runs that are not comparable may have no case in common, so no line above says so.
    if let Some(difference) = differs.first()
        && lines.iter().all(|line| line.verdict != Some(Verdict::NotComparable))
    {
        lines.push(ComparedMetric::alone("all", Verdict::NotComparable, Some(difference.why())));
    }
    let ratios: Vec<f64> = lines.iter().filter(|l| gates(l)).filter_map(|l| Some(l.effect?.ratio)).collect();
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    Comparison {
        schema: SCHEMA,
        base: Side::of(base),
        new: Side::of(new),
        threshold,
        confidence: CONFIDENCE,
        differs,
        geometric_mean: Some(mean).filter(|m| m.is_finite()),
        judged: ratios.len(),
        outputs,
        exit_code: verdict::exit_code(lines.iter().filter_map(|l| l.verdict)),
        lines,
    }
}

/// Lines about the runs as a whole. An unfinished run, and a base without cases, are invalid; a missed gate counts as
/// slower.
fn whole(base: &Run, new: &Run, rules: &Rules) -> Vec<ComparedMetric> {
    let invalid = |why: &str| ComparedMetric::alone("all", Verdict::Invalid, Some(why.to_owned()));
    let mut lines = Vec::new();
    lines.extend((!base.finished).then(|| invalid("base is not finished")));
    lines.extend((!new.finished).then(|| invalid("new is not finished")));
    let baseless = base.rows.is_empty() && !new.rows.is_empty() && !rules.arms;
    lines.extend(baseless.then(|| invalid("the base has no case")));
    for row in &new.rows {
        let missed = row.missed().into_iter().map(|why| Some(format!("gate missed: {why}")));
        lines.extend(missed.map(|why| ComparedMetric::alone(&row.case, Verdict::Slower, why)));
    }
    lines
}

/// Whether the ratio of a line counts.
fn gates(line: &ComparedMetric) -> bool {
    !matches!(line.verdict, None | Some(Verdict::NotComparable | Verdict::Invalid | Verdict::Incorrect))
}

impl Side {
    fn of(run: &Run) -> Self {
        Self {
            run_id: run.run_id.clone(),
            started_at: run.started_at.clone(),
            finished: run.finished,
            engine: run.engine.one_line(),
            machine: run.machine.summary().map(ToOwned::to_owned),
        }
    }
}

impl FieldDifference {
    fn new(field: &str, base: Option<&str>, new: Option<&str>) -> Self {
        let text = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
        Self { field: field.to_owned(), base: text(base), new: text(new) }
    }

    fn why(&self) -> String {
        format!("{} differs", self.field)
    }
}

/// Differences between two runs that make them incomparable.
fn differences(base: &Run, new: &Run, rules: &Rules) -> Vec<FieldDifference> {
    let mut differences = Vec::new();
    if base.lane != new.lane {
        differences.push(FieldDifference::new("lane", Some(&base.lane), Some(&new.lane)));
    }
    let (b, n) = (&base.machine, &new.machine);
    let fingerprints = (b.fingerprint(), n.fingerprint());
    let same = fingerprints.0.is_some() && fingerprints.0 == fingerprints.1;
    if same || rules.arms || rules.different_machine || rules.portable {
        return differences;
    }
    differences.push(FieldDifference::new("fingerprint", fingerprints.0, fingerprints.1));
    if fingerprints != (None, None) {
        let fields = b.identity_fields().into_iter().filter(|field| b.identity(field) != n.identity(field));
        differences.extend(fields.map(|f| FieldDifference::new(f, b.identity(f), n.identity(f))));
    }
    differences
}

impl ComparedMetric {
    /// Replaces the samples by the steadied ones, if those can detect a smaller difference. The choice depends on the scatter of
    /// the samples, not on their values.
    fn or_steadied(self, steadied: Option<(Samples, Samples)>, threshold: f64) -> Self {
        let Some((base, new)) = steadied else { return self };
        let mut judgement = judge(&base, &new, threshold);
        let detectable = |effect: Option<Effect>| effect.and_then(|effect| effect.detectable);
        match detectable(judgement.effect).zip(detectable(self.effect)) {
            Some((steady, plain)) if steady < plain => {
                judgement.effect = judgement.effect.map(|effect| Effect { steadied: true, ..effect });
                self.judged(judgement, (&base, &new))
            }
            _ => self,
        }
    }

    /// Leaves it open whether one is faster, if the evidence is too weak.
    fn unless_weak(self, rows: (&Row, &Row), threshold: f64, arms: bool) -> Self {
        let firm = matches!(self.verdict, Some(Verdict::Faster | Verdict::Slower));
        let parts = self.metric.as_ref().zip(self.effect.as_ref()).filter(|_| firm);
        match parts.and_then(|(name, effect)| weak::reason(rows, name, effect, threshold, arms)) {
            Some(why) => Self { verdict: Some(Verdict::Inconclusive), why: Some(why), ..self },
            None => self,
        }
    }

    /// A line with what was found. If there is a ratio, it is that of `base` and `new`.
    fn judged(self, judgement: Judgement, samples: (&Samples, &Samples)) -> Self {
        let Judgement { verdict, effect, why } = judgement;
        Self { verdict: Some(verdict), why, ..self.with(effect, samples) }
    }

    fn with(self, effect: Option<Effect>, (base, new): (&Samples, &Samples)) -> Self {
        let means = verdict::means(base, new).filter(|_| effect.is_some());
        let [base, new] = means.map_or([self.base, self.new], |means| means.map(Some));
        Self { base, new, effect, ..self }
    }

    /// A line for a case without a metric.
    fn alone(case: impl Into<String>, verdict: Verdict, why: Option<String>) -> Self {
        Self { case: case.into(), verdict: Some(verdict), why, ..Self::default() }
    }
}

fn pair_lines(
    pair: &Pair<'_>,
    differs: &[FieldDifference],
    rules: &Rules,
    threshold: f64,
) -> Vec<ComparedMetric> {
    let alone = |verdict, why| ComparedMetric::alone(pair.name(), verdict, why);
    let (base, new) = match pair {
        Pair::Base(_) => return vec![alone(Verdict::Missing, None)],
        Pair::New(row) => {
            let why = row.invalid();
            return vec![alone(if why.is_some() { Verdict::Invalid } else { Verdict::New }, why)];
        }
        Pair::Both(base, new) => (*base, *new),
    };
    let overruled = overruled(base, new, differs, rules);
    let only_new = new.samples().filter(|(name, _)| base.samples_of(name).is_none());
    let names = base.samples().chain(only_new).map(|(name, _)| name);
    let line = |name: &str| {
        let line = metric_line(pair.name(), name, base, new, threshold);
        let judged = rules.arms && line.verdict.is_some();
        let steadied = judged.then(|| steady::steadied(base, new, name)).flatten();
        let line = line.or_steadied(steadied, threshold);
        let line = line.unless_weak((base, new), threshold, rules.arms);
        // Cases of arms with other parameters may have metrics of their own.
        let of_one = rules.arms && base.case != new.case && (line.base.is_none() || line.new.is_none());
        let line = if of_one { ComparedMetric { verdict: None, ..line } } else { line };
        match (&overruled, line.verdict) {
            (Some((verdict, why)), Some(_)) => {
                ComparedMetric { verdict: Some(*verdict), why: Some(why.clone()), ..line }
            }
            _ => line,
        }
    };
    let mut lines: Vec<ComparedMetric> = names.map(line).collect();
    if lines.iter().all(|l| l.verdict.is_none()) {
        lines.extend(overruled.map(|(verdict, why)| alone(verdict, Some(why))));
    }
    lines
}

/// A verdict that overrides the samples of all metrics of two rows, if there is one.
fn overruled(base: &Row, new: &Row, differs: &[FieldDifference], rules: &Rules) -> Option<(Verdict, String)> {
    let invalid = |side, row: &Row| row.invalid().map(|why| (Verdict::Invalid, format!("{side}: {why}")));
    let difference = differs.first().map(FieldDifference::why).or_else(|| different_param(base, new, rules));
    let not_comparable = difference.map(|why| (Verdict::NotComparable, why));
    not_comparable.or_else(|| invalid("base", base)).or_else(|| invalid("new", new))
}

/// A parameter with different values in the two rows that may not differ.
fn different_param(base: &Row, new: &Row, rules: &Rules) -> Option<String> {
    let may =
        |name: &str| rules.arms || WHO.contains(&name) || rules.different_params.iter().any(|p| p == name);
    let equal = |b: &Value, n: &Value| b == n || b.as_f64().is_some_and(|b| Some(b) == n.as_f64());
    base.params.iter().filter(|(name, _)| !may(name)).find_map(|(name, b)| {
        let n = new.params.get(name).filter(|n| !equal(b, n))?;
        Some(format!("{name} is {b} against {n}"))
    })
}

fn metric_line(case: String, name: &str, base: &Row, new: &Row, threshold: f64) -> ComparedMetric {
    let (b, n) = (base.samples_of(name), new.samples_of(name));
    let any = b.or(n);
    let line = ComparedMetric {
        case,
        metric: Some(name.to_owned()),
        unit: any.map(|s| s.unit().to_owned()),
        direction: any.map(Samples::direction),
        base: b.and_then(Samples::headline),
        new: n.and_then(Samples::headline),
        ..ComparedMetric::default()
    };
    let info = |s: &Samples| s.direction() == Direction::Info;
    match (b, n) {
        (Some(b), Some(n)) if (info(b) && info(n)) || (b.n() == 0 && n.n() == 0) => {
            line.with(Effect::between(b, n), (b, n))
        }
        (Some(b), Some(n)) => line.judged(judge(b, n, threshold), (b, n)),
        (Some(b), None) if !info(b) => ComparedMetric { verdict: Some(Verdict::Missing), ..line },
        (None, Some(n)) if !info(n) => ComparedMetric { verdict: Some(Verdict::New), ..line },
        _ => line,
    }
}
