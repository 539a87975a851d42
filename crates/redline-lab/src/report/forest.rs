//! Comparisons of runs: the ratio of every judged metric with the intervals that decide its verdict, next to the band of
//! differences that do not matter.

use serde::Deserialize;

use super::page::{Figure, Fold, ForestLine, Group, Section, Table};
use super::quantity::{tick, with_unit};
use super::subject::{Subjects, cut, shown};
use super::svg::{Anchor, Drawing, Scale};
use crate::compare::{ComparedMetric, Comparison, Rules, Side, compare};
use crate::run::Run;
use crate::stats::Direction;
use crate::verdict::{Effect, Verdict};
use redline_system::number;

const SIZE: (f64, f64) = (280.0, 24.0);
const AXIS: f64 = 30.0;
const ENDS: (f64, f64) = (10.0, 270.0);
/// Ratios beyond this are drawn as arrows.
const WIDEST: f64 = 16.0;
/// Maximum number of drawn lines per comparison; the table contains all.
const LINES: usize = 80;

const NOTES: [&str; 3] = [
    "A ratio says how many times as good the new run is (new over base where more is better, base over new where less is). Its \
     intervals come from Welch's t over logarithms of process medians, or of samples where an arm has one process. The shaded band \
     holds the differences that do not matter. Arrows go on beyond the picture.",
    "The thick bar is the 90 % interval. Same: it lies wholly in the band, and so does the ratio of the headlines. The thin line is \
     the 99 % interval (99.9 % where the measurement is too noisy). Faster, slower: it leaves out 1, the ratio lies beyond the band, \
     and the headlines do not contradict. Inconclusive: neither; too noisy: and even five times the threshold could have been missed.",
    "The numbers in brackets are the 95 % interval, which decides nothing. A comparison that an older build kept has only this one: \
     there the thin line is the 95 % interval.",
];

/// A group per comparison, and the verdicts of all lines; `None` if there is no comparison.
pub(super) fn section(subjects: &Subjects<'_>, base: &[Run]) -> Option<(Section, Vec<Verdict>)> {
    let mut notes = NOTES.map(str::to_owned).to_vec();
    let mut comparisons: Vec<(String, Comparison)> = Vec::new();
    for subject in &subjects.runs {
        let run = subject.run;
        let lane = shown(&run.lane);
        let title = format!("{lane}: {}", subject.name);
        if !run.comparison.is_null() {
            let title = format!("{title}, as measured");
            match Comparison::deserialize(&run.comparison) {
                Ok(mut comparison) => {
                    // A file of another origin may hold what cannot be drawn.
                    let drawn = |effect: &Effect| {
                        effect.ratio > 0.0
                            && effect.low.is_none_or(|low| low > 0.0 && Some(low) <= effect.high)
                    };
                    for line in &mut comparison.lines {
                        line.effect = line.effect.filter(drawn);
                    }
                    comparisons.push((title, comparison));
                }
                Err(error) => {
                    notes.push(format!("The comparison kept with {title} cannot be read: {error}."));
                }
            }
        }
        let others: Vec<&Run> = base.iter().filter(|b| b.lane == run.lane && *b != run).collect();
        if !base.is_empty() && others.is_empty() && !base.contains(run) {
            notes.push(format!("The base holds no run of lane {lane}: {} is not compared.", subject.name));
        }
        let with = |base: &Run| (title.clone(), compare(base, run, &Rules::default()));
        comparisons.extend(others.into_iter().map(with));
    }
    if comparisons.is_empty() && notes.len() == NOTES.len() {
        return None;
    }
    let lines = comparisons.iter().flat_map(|(_, comparison)| &comparison.lines);
    let verdicts = lines.filter_map(|line| line.verdict).collect();
    let mut groups = Vec::new();
    for (title, comparison) in comparisons {
        let (folded, figures) = (Fold::after(&groups), vec![figure(&comparison)]);
        groups.push(Group { title, folded, figures, ..Group::default() });
    }
    let intro = "Each line is a case and a metric: right of 1 is better, and the word is the verdict.";
    Some((Section { id: "comparison", title: "Comparison", intro, groups, notes }, verdicts))
}

/// `1.200 [1.100, 1.300]`, with the 95 % interval.
fn ratio_text(line: &ComparedMetric) -> String {
    let Some(effect) = line.effect else { return String::new() };
    let ends = effect.low.zip(effect.high);
    let ends = ends.map(|(low, high)| format!(" [{}, {}]", number::short(low), number::short(high)));
    number::short(effect.ratio) + &ends.unwrap_or_default()
}

/// The interval that is drawn as a thin line.
fn thin_line(effect: &Effect) -> Option<[f64; 2]> {
    effect.alarm.or(effect.low.zip(effect.high).map(<[f64; 2]>::from))
}

/// The CSS class for the colour of a verdict.
pub(super) fn tone(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "good",
        Verdict::Slower | Verdict::Missing | Verdict::Invalid | Verdict::Incorrect => "bad",
        Verdict::Same | Verdict::New => "plain",
        Verdict::Inconclusive | Verdict::TooNoisy | Verdict::NotComparable => "open",
    }
}

fn figure(comparison: &Comparison) -> Figure {
    let threshold = comparison.threshold;
    let judged: Vec<(&ComparedMetric, Verdict)> =
        comparison.lines.iter().filter_map(|line| Some((line, line.verdict?))).collect();
    let effects = judged.iter().filter_map(|(line, _)| line.effect);
    let plot = Plot { scale: scale(effects, threshold), threshold };
    let lines = judged.iter().take(LINES).map(|(line, verdict)| plot.line(line, *verdict)).collect();
    let name = |side: &Side| {
        let started = side.started_at.as_ref().map(|at| format!(", {at}")).unwrap_or_default();
        let engine = if side.engine.is_empty() { "unknown engine" } else { &side.engine };
        shown(&format!("{engine}{started}"))
    };
    let (base, new) = (name(&comparison.base), name(&comparison.new));
    let percent = number::percent(threshold);
    let mut about = format!("Base: {base}. New: {new}. Differences from {percent} on matter.");
    if let Some(mean) = comparison.geometric_mean {
        let ratios = number::count(comparison.judged, "ratio");
        about.push_str(&format!(" Geometric mean of {ratios}: {}.", number::short(mean)));
    }
    for difference in &comparison.differs {
        let (base, new) = (cut(&difference.base, 80), cut(&difference.new, 80));
        about.push_str(&format!(" {} differs: {base} against {new}.", cut(&difference.field, 40)));
    }
    if judged.len() > LINES {
        about.push_str(&format!(" {LINES} of {} lines are drawn; the table holds all.", judged.len()));
    }
    Figure { about, svg: plot.axis(), lines, table: Some(table(comparison)), ..Figure::default() }
}

/// A common scale for all lines, symmetric around 1, so that equal gains and losses look equal.
fn scale(effects: impl Iterator<Item = Effect>, threshold: f64) -> Scale {
    let values = effects.flat_map(|effect| {
        let [low, high] = thin_line(&effect).unwrap_or([effect.ratio; 2]);
        [low, effect.ratio, high].map(|value| value.max(1.0 / value))
    });
    let widest = values.fold(1.0 + 2.5 * threshold, f64::max).clamp(1.02, WIDEST) * 1.02;
    Scale::log((1.0 / widest, widest), ENDS)
}

/// What all lines of a comparison share.
struct Plot {
    scale: Scale,
    threshold: f64,
}

impl Plot {
    /// A drawing with the band and the line at 1.
    fn drawing(&self, class: &'static str, height: f64, label: &str) -> Drawing {
        let mut drawing = Drawing::new(class, (SIZE.0, height), label);
        let (low, high) = (self.scale.at(1.0 / (1.0 + self.threshold)), self.scale.at(1.0 + self.threshold));
        drawing.rect("sameband", (low, 0.0), (high - low, height));
        drawing.line("one", (self.scale.at(1.0), 0.0), (self.scale.at(1.0), height));
        drawing
    }

    fn axis(&self) -> String {
        let label = "Ratio, new to base, from worse on the left to better on the right";
        let mut drawing = self.drawing("forestaxis", AXIS, label);
        let mut last = f64::NEG_INFINITY;
        for value in self.scale.ticks(5) {
            let at = self.scale.at(value);
            if at - last > 30.0 {
                drawing.text("tick", (at, 14.0), Anchor::Middle, &tick(value));
                drawing.strokes("stroke", &[at], (20.0, AXIS));
                last = at;
            }
        }
        drawing.finish()
    }

    fn line(&self, line: &ComparedMetric, verdict: Verdict) -> ForestLine {
        let ratio = ratio_text(line);
        let label = format!("{} {}", if ratio.is_empty() { "no ratio" } else { &ratio }, verdict.name());
        let mut drawing = self.drawing("forest", SIZE.1, &label);
        let metric = line.metric.as_deref().unwrap_or_default();
        if let Some(effect) = &line.effect {
            let title = format!("{} {metric}: {label}", line.case);
            self.effect(&mut drawing, effect, tone(verdict), &title);
        }
        ForestLine {
            case: shown(&line.case),
            metric: cut(metric, 40),
            svg: drawing.finish(),
            ratio,
            symbol: verdict.symbol(),
            verdict: verdict.name(),
            tone: tone(verdict),
            why: line.why.as_deref().map(|why| cut(why, 160)).unwrap_or_default(),
        }
    }

    fn effect(&self, drawing: &mut Drawing, effect: &Effect, tone: &str, title: &str) {
        let middle = SIZE.1 / 2.0;
        let class = format!("interval {tone}");
        let interval = thin_line(effect);
        if let Some([low, high]) = interval {
            let (from, to) = (self.scale.at(low), self.scale.at(high));
            drawing.line(&class, (from, middle), (to, middle));
            for (end, at, way) in [(low, from, 5.0), (high, to, -5.0)] {
                if self.scale.holds(end) {
                    drawing.strokes(&class, &[at], (middle - 4.0, middle + 4.0));
                } else {
                    let arrow = [(at + way, middle - 5.0), (at, middle), (at + way, middle + 5.0)];
                    drawing.polyline(&class, &arrow);
                }
            }
        }
        if let Some([from, to]) = effect.equivalence.map(|ends| ends.map(|end| self.scale.at(end))) {
            drawing.line(&format!("{class} thick"), (from, middle), (to, middle));
        }
        let series = usize::from(interval.is_some());
        drawing.mark(series, tone, (self.scale.at(effect.ratio), middle), title);
    }
}

fn table(comparison: &Comparison) -> Table {
    let caption = "The same as numbers, with metrics that are reported but not judged";
    let mut table = Table::new(caption, "case,metric,better,#base,#new,#ratio [95 %],verdict,why");
    for line in &comparison.lines {
        let unit = line.unit.as_deref().unwrap_or_default();
        let value = |v: Option<f64>| v.map(|v| with_unit(v, unit)).unwrap_or_default();
        table.rows.push(vec![
            shown(&line.case).into(),
            line.metric.as_deref().map(|m| cut(m, 40)).unwrap_or_default().into(),
            line.direction.map(Direction::name).unwrap_or_default().into(),
            value(line.base).into(),
            value(line.new).into(),
            ratio_text(line).into(),
            line.verdict.map_or("reported".to_owned(), |verdict| verdict.to_string()).into(),
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
        let (section, verdicts) = section(&Subjects::new(&runs), &base).unwrap();
        assert_eq!(verdicts, [Verdict::Faster, Verdict::New]);
        let lines = &section.groups[0].figures[0].lines;
        assert_eq!((lines[0].symbol, lines[0].verdict, lines[0].tone), ("✓", "faster", "good"));
        assert!(lines[0].ratio.starts_with("1.200 [") && lines[1].ratio.is_empty(), "{lines:?}");
        for svg in lines.iter().map(|line| &line.svg).chain([&section.groups[0].figures[0].svg]) {
            roxmltree::Document::parse(svg).unwrap();
        }
        assert!(section.notes.last().unwrap().contains("no run of lane gemm"), "{:?}", section.notes);
    }

    #[test]
    fn a_comparison_that_a_run_keeps_is_shown() {
        let mut runs = [run("score", vec![row("a", &[1.0])])];
        assert!(section(&Subjects::new(&runs), &[]).is_none());
        runs[0].comparison = json!({"base": {"engine": "x"}, "new": {"engine": "y"}, "threshold": 0.05, "lines": [
            {"case": "c", "metric": "m", "unit": "s", "direction": "lower", "base": 1.0, "new": 1e9, "ratio": 1e-9, "low": 1e-10,
             "high": 1e-8, "verdict": "slower"},
            {"case": "c", "metric": "told", "ratio": 2.0}]});
        let (shown, verdicts) = section(&Subjects::new(&runs), &[]).unwrap();
        assert_eq!(
            (verdicts, shown.groups[0].title.as_str()),
            (vec![Verdict::Slower], "score: engine, as measured")
        );
        let figure = &shown.groups[0].figures[0];
        assert_eq!((figure.lines.len(), figure.table.as_ref().unwrap().rows.len()), (1, 2));
        runs[0].comparison = json!({"lines": 3});
        let (shown, _) = section(&Subjects::new(&runs), &[]).unwrap();
        assert!(shown.groups.is_empty() && shown.notes[3].contains("cannot be read"), "{:?}", shown.notes);
    }

    #[test]
    fn the_drawn_intervals_decide_the_verdict() {
        // Logarithms of +-s, four times in each arm: see `the_same_is_what_an_interval_of_90_percent_says`. The 95 % interval leaves
        // the band of 3 %, the 90 % interval does not.
        let s = 0.999 * 1.03_f64.ln() / 1.943_180 / (2.0_f64 / 3.0).sqrt();
        let values = [s, -s, s, -s].map(f64::exp);
        let run = run("score", vec![row("a", &values)]);
        let comparison = compare(&run, &run, &Rules::new(0.03));
        let stored: Comparison = serde_json::from_value(serde_json::to_value(&comparison).unwrap()).unwrap();
        assert_eq!(stored.lines, comparison.lines, "a stored comparison is read as it was");
        let effect = stored.lines[0].effect.unwrap();
        assert_eq!(stored.lines[0].verdict, Some(Verdict::Same));
        let ([low, high], [wide_low, wide_high]) = (effect.equivalence.unwrap(), effect.alarm.unwrap());
        assert!(low > 1.0 / 1.03 && high < 1.03 && effect.high > Some(1.03), "{effect:?}");
        assert!(effect.low > Some(wide_low) && effect.high < Some(wide_high), "{effect:?}");
        let plot = Plot { scale: scale([effect].into_iter(), 0.03), threshold: 0.03 };
        let line = plot.line(&stored.lines[0], Verdict::Same);
        assert_eq!((line.svg.matches("thick").count(), line.verdict), (1, "same"));
        assert!(
            line.ratio.starts_with("1.000 [") && line.ratio.contains(&number::short(effect.high.unwrap()))
        );
    }

    #[test]
    fn an_interval_that_cannot_be_drawn_is_left_out() {
        let line = |low: f64, high: f64| json!({"case": "c", "ratio": 2.0, "low": low, "high": high, "verdict": "same"});
        let lines = [line(1.0, 3.0), line(0.0, 3.0), line(3.0, 1.0)];
        let mut runs = [run("score", vec![row("a", &[1.0])])];
        runs[0].comparison = json!({"base": {"engine": "x"}, "new": {"engine": "y"}, "lines": lines});
        let (shown, _) = section(&Subjects::new(&runs), &[]).unwrap();
        let figure = &shown.groups[0].figures[0];
        let ratios: Vec<&str> = figure.lines.iter().map(|line| line.ratio.as_str()).collect();
        assert_eq!(ratios, ["2.000 [1.000, 3.000]", "", ""]);
        assert!(figure.about.starts_with("Base: x. New: y. "), "{}", figure.about);
    }
}
