//! Comparisons of runs: the ratio of every judged metric with its interval, next to the band of differences that do not matter.

use serde::Deserialize;

use super::page::{Figure, Fold, ForestLine, Group, Section, Table};
use super::quantity::{tick, with_unit};
use super::subject::{Subjects, cut, shown};
use super::svg::{Anchor, Drawing, Scale};
use crate::compare::{self, Rules};
use crate::number;
use crate::run::Run;
use crate::stats::Direction;
use crate::verdict::{THRESHOLD, Verdict};

const SIZE: (f64, f64) = (280.0, 24.0);
const AXIS: f64 = 30.0;
const ENDS: (f64, f64) = (10.0, 270.0);
/// Ratios beyond this are drawn as arrows.
const WIDEST: f64 = 16.0;
/// Maximum number of drawn lines per comparison; the table contains all.
const LINES: usize = 80;

/// A comparison as stored in a run.
#[derive(Debug, Deserialize)]
struct Compared {
    base: Option<Named>,
    new: Option<Named>,
    threshold: Option<f64>,
    #[serde(default)]
    differs: Vec<Differs>,
    #[serde(default)]
    lines: Vec<Line>,
    geometric_mean: Option<f64>,
    #[serde(default)]
    judged: usize,
}

#[derive(Debug, Deserialize)]
struct Named {
    engine: Option<String>,
    started_at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Differs {
    field: String,
    base: Option<String>,
    new: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Line {
    case: String,
    metric: Option<String>,
    unit: Option<String>,
    direction: Option<Direction>,
    base: Option<f64>,
    new: Option<f64>,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    verdict: Option<Verdict>,
    why: Option<String>,
}

/// Number of lines for each verdict, over all comparisons.
pub(super) type Counts = Vec<(Verdict, usize)>;

/// A group per comparison; `None` if there is none.
pub(super) fn section(subjects: &Subjects<'_>, base: &[Run]) -> Option<(Section, Counts)> {
    let mut groups = Vec::new();
    let mut notes = vec![
        "A ratio says how many times as good the new run is (new over base where more is better, base over new where less is); the \
         line is its 95 % interval (Welch's t over logarithms of process medians, or of samples where an arm has one process), \
         the shaded band the differences that do not matter."
            .to_owned(),
        "Same: the whole interval lies in the band. Faster, slower: an interval of 99 % (99.9 % where it is too noisy) leaves out 1 and the ratio lies beyond the band. \
         Inconclusive: neither; too noisy: and even five times the threshold could have been missed. Arrows go on beyond the \
         picture."
            .to_owned(),
    ];
    let mut all = Vec::new();
    for subject in &subjects.runs {
        let run = subject.run;
        if !run.comparison.is_null() {
            all.push((
                format!("{}: {}, as measured", shown(&run.lane), subject.name),
                run.comparison.clone(),
            ));
        }
        let others: Vec<&Run> = base.iter().filter(|b| b.lane == run.lane && *b != run).collect();
        for base in &others {
            let comparison = compare::compare(base, run, &Rules::default());
            let title = format!("{}: {}", shown(&run.lane), subject.name);
            all.push((title, serde_json::to_value(comparison).unwrap_or_default()));
        }
        let is_base = base.contains(run);
        if !base.is_empty() && others.is_empty() && !is_base {
            notes.push(format!(
                "The base holds no run of lane {}: {} is not compared.",
                shown(&run.lane),
                subject.name
            ));
        }
    }
    let mut counts: Counts = Vec::new();
    for (title, comparison) in all {
        match Compared::deserialize(&comparison) {
            Ok(compared) => {
                count(&compared, &mut counts);
                let folded = if groups.is_empty() { Fold::Open } else { Fold::Shut };
                groups.push(group(title, folded, &compared));
            }
            Err(error) => notes.push(format!("The comparison kept with {title} cannot be read: {error}.")),
        }
    }
    if groups.is_empty() && notes.len() == 2 {
        return None;
    }
    let intro =
        "Each line is a case and a metric: right of 1 is better, and the word is the verdict.".to_owned();
    Some((Section { id: "comparison", title: "Comparison", intro, groups, notes }, counts))
}

fn count(compared: &Compared, counts: &mut Counts) {
    for verdict in compared.lines.iter().filter_map(|line| line.verdict) {
        match counts.iter_mut().find(|(known, _)| *known == verdict) {
            Some((_, n)) => *n += 1,
            None => counts.push((verdict, 1)),
        }
    }
}

impl Line {
    /// The ratio and its interval, if they can be drawn.
    fn effect(&self) -> Option<(f64, Option<(f64, f64)>)> {
        let positive = |value: f64| (value.is_finite() && value > 0.0).then_some(value);
        let ends = self.low.and_then(positive).zip(self.high.and_then(positive));
        Some((self.ratio.and_then(positive)?, ends.filter(|(low, high)| low <= high)))
    }

    fn ratio_text(&self) -> String {
        match self.effect() {
            Some((ratio, Some((low, high)))) => {
                format!("{} [{}, {}]", number::short(ratio), number::short(low), number::short(high))
            }
            Some((ratio, None)) => number::short(ratio),
            None => String::new(),
        }
    }
}

/// The CSS class for the colour of a verdict.
fn tone(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "good",
        Verdict::Slower | Verdict::Missing | Verdict::Invalid | Verdict::Incorrect => "bad",
        Verdict::Same | Verdict::New => "plain",
        Verdict::Inconclusive | Verdict::TooNoisy | Verdict::NotComparable => "open",
    }
}

fn group(title: String, folded: Fold, compared: &Compared) -> Group {
    let threshold = compared.threshold.filter(|t| t.is_finite() && *t >= 0.0).unwrap_or(THRESHOLD);
    let judged: Vec<&Line> = compared.lines.iter().filter(|line| line.verdict.is_some()).collect();
    let scale = scale(&judged, threshold);
    let lines = judged.iter().take(LINES).map(|line| forest_line(line, &scale, threshold)).collect();
    let name = |named: &Option<Named>| {
        let text = |n: &Named| {
            let at = n.started_at.as_ref().map(|at| format!(", {at}")).unwrap_or_default();
            format!("{}{at}", n.engine.as_deref().unwrap_or("unknown engine"))
        };
        shown(&named.as_ref().map_or("unknown".to_owned(), text))
    };
    let mut about = format!(
        "Base: {}. New: {}. Differences from {} on matter.",
        name(&compared.base),
        name(&compared.new),
        number::percent(threshold)
    );
    if let Some(mean) = compared.geometric_mean {
        about.push_str(&format!(
            " Geometric mean of {}: {}.",
            number::count(compared.judged, "ratio"),
            number::short(mean)
        ));
    }
    for field in &compared.differs {
        let text = |t: &Option<String>| cut(t.as_deref().unwrap_or("unknown"), 80);
        about.push_str(&format!(
            " {} differs: {} against {}.",
            cut(&field.field, 40),
            text(&field.base),
            text(&field.new)
        ));
    }
    if judged.len() > LINES {
        about.push_str(&format!(" {} of {} lines are drawn; the table holds all.", LINES, judged.len()));
    }
    let figure = Figure {
        about,
        svg: axis(&scale, threshold),
        lines,
        table: Some(table(compared)),
        ..Figure::default()
    };
    Group { title, folded, figures: vec![figure], ..Group::default() }
}

/// A common scale for all lines, symmetric around 1, so that equal gains and losses look equal.
fn scale(lines: &[&Line], threshold: f64) -> Scale {
    let reach = |value: f64| value.max(1.0 / value);
    let effects = lines.iter().filter_map(|line| line.effect());
    let ends = effects.flat_map(|(ratio, ends)| {
        let (low, high) = ends.unwrap_or((ratio, ratio));
        [reach(ratio), reach(low), reach(high)]
    });
    let widest = ends.fold(1.0 + 2.5 * threshold, f64::max).clamp(1.02, WIDEST) * 1.02;
    Scale::log((1.0 / widest, widest), ENDS)
}

fn ground(drawing: &mut Drawing, scale: &Scale, threshold: f64, height: f64) {
    let (low, high) = (scale.at(1.0 / (1.0 + threshold)), scale.at(1.0 + threshold));
    drawing.rect("sameband", (low, 0.0), (high - low, height));
    drawing.line("one", (scale.at(1.0), 0.0), (scale.at(1.0), height));
}

fn axis(scale: &Scale, threshold: f64) -> String {
    let mut drawing = Drawing::new(
        "forestaxis",
        (SIZE.0, AXIS),
        "Ratio, new to base, from worse on the left to better on the right",
    );
    ground(&mut drawing, scale, threshold, AXIS);
    let mut last = f64::NEG_INFINITY;
    for value in scale.ticks(5) {
        let at = scale.at(value);
        if at - last > 30.0 {
            drawing.text("tick", (at, 14.0), Anchor::Middle, &tick(value));
            drawing.strokes("stroke", &[at], (20.0, AXIS));
            last = at;
        }
    }
    drawing.finish(false)
}

fn forest_line(line: &Line, scale: &Scale, threshold: f64) -> ForestLine {
    let verdict = line.verdict.unwrap_or(Verdict::NotComparable);
    let ratio = line.ratio_text();
    let label = format!("{} {}", if ratio.is_empty() { "no ratio" } else { &ratio }, verdict.name());
    let mut drawing = Drawing::new("forest", SIZE, &label);
    ground(&mut drawing, scale, threshold, SIZE.1);
    let middle = SIZE.1 / 2.0;
    if let Some((ratio, ends)) = line.effect() {
        let class = tone(verdict);
        if let Some((low, high)) = ends {
            let (from, to) = (scale.at(low), scale.at(high));
            drawing.line(&format!("interval {class}"), (from, middle), (to, middle));
            for (end, at, way) in [(low, from, 5.0), (high, to, -5.0)] {
                if scale.holds(end) {
                    drawing.strokes(&format!("interval {class}"), &[at], (middle - 4.0, middle + 4.0));
                } else {
                    let arrow = [(at + way, middle - 5.0), (at, middle), (at + way, middle + 5.0)];
                    drawing.polyline(&format!("interval {class}"), &arrow);
                }
            }
        }
        let title = format!("{} {}: {label}", line.case, line.metric.as_deref().unwrap_or_default());
        drawing.mark(usize::from(ends.is_some()), class, (scale.at(ratio), middle), &title);
    }
    ForestLine {
        case: shown(&line.case),
        metric: line.metric.as_deref().map(|m| cut(m, 40)).unwrap_or_default(),
        svg: drawing.finish(false),
        ratio,
        symbol: verdict.symbol(),
        verdict: verdict.name(),
        tone: tone(verdict),
        why: line.why.as_deref().map(|why| cut(why, 160)).unwrap_or_default(),
    }
}

fn table(compared: &Compared) -> Table {
    let columns = [
        ("case", false),
        ("metric", false),
        ("better", false),
        ("base", true),
        ("new", true),
        ("ratio [95 %]", true),
        ("verdict", false),
        ("why", false),
    ];
    let mut table = Table::new("The same as numbers, with metrics that are told and not judged", &columns);
    for line in &compared.lines {
        let value = |v: Option<f64>| {
            v.map(|v| with_unit(v, line.unit.as_deref().unwrap_or_default())).unwrap_or_default()
        };
        let verdict = line.verdict.map_or("told".to_owned(), |verdict| verdict.to_string());
        table.rows.push(vec![
            shown(&line.case).into(),
            line.metric.as_deref().map(|m| cut(m, 40)).unwrap_or_default().into(),
            line.direction.map(Direction::name).unwrap_or_default().into(),
            value(line.base).into(),
            value(line.new).into(),
            line.ratio_text().into(),
            verdict.into(),
            line.why.as_deref().map(shown).unwrap_or_default().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::tests::{row, run};

    #[test]
    fn runs_are_compared_with_the_base_of_their_lane() {
        let base = [run("score", vec![row("a", &[100.0, 101.0, 99.0, 100.0])])];
        let runs = [
            base[0].clone(),
            run("score", vec![row("a", &[120.0, 121.0, 119.0, 120.0]), row("b", &[1.0])]),
            run("gemm", vec![row("a", &[1.0])]),
        ];
        let (section, counts) = section(&Subjects::new(&runs), &base).unwrap();
        assert_eq!(counts, [(Verdict::Faster, 1), (Verdict::New, 1)]);
        let lines = &section.groups[0].figures[0].lines;
        assert_eq!((lines[0].symbol, lines[0].verdict, lines[0].tone), ("✓", "faster", "good"));
        assert!(lines[0].ratio.starts_with("1.200 [") && lines[1].ratio.is_empty(), "{lines:?}");
        for svg in lines.iter().map(|line| &line.svg).chain([&section.groups[0].figures[0].svg]) {
            roxmltree::Document::parse(svg).unwrap();
        }
        assert!(section.notes[2].contains("no run of lane gemm"), "{:?}", section.notes);
    }

    #[test]
    fn a_comparison_that_a_run_keeps_is_shown() {
        let mut runs = [run("score", vec![row("a", &[1.0])])];
        assert!(section(&Subjects::new(&runs), &[]).is_none());
        runs[0].comparison = json!({"base": {"engine": "x"}, "new": {"engine": "y"}, "threshold": 0.05, "lines": [
            {"case": "c", "metric": "m", "unit": "s", "direction": "lower", "base": 1.0, "new": 1e9, "ratio": 1e-9, "low": 1e-10,
             "high": 1e-8, "verdict": "slower"},
            {"case": "c", "metric": "told", "ratio": 2.0}]});
        let (told, counts) = section(&Subjects::new(&runs), &[]).unwrap();
        assert_eq!(
            (counts, told.groups[0].title.as_str()),
            (vec![(Verdict::Slower, 1)], "score: engine, as measured")
        );
        let figure = &told.groups[0].figures[0];
        assert_eq!((figure.lines.len(), figure.table.as_ref().unwrap().rows.len()), (1, 2));
        runs[0].comparison = json!({"lines": 3});
        let (told, _) = section(&Subjects::new(&runs), &[]).unwrap();
        assert!(told.groups.is_empty() && told.notes[2].contains("cannot be read"), "{:?}", told.notes);
    }
}
