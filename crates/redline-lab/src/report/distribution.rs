//! Distributions of times: the cumulative share of samples, and every sample in a strip per process.

use super::Detail;
use super::page::{Figure, Fold, Group, Key, Section, Table, colour};
use super::quantity::{n_text, percent, plain, readable, seconds_in, with_unit};
use super::subject::{Entry, Measured, Subjects, cut, gather};
use super::svg::{Anchor, Drawing, Scale};

const WIDTH: f64 = 340.0;
const PLOT: (f64, f64, f64, f64) = (42.0, 332.0, 10.0, 110.0);
const STRIP: f64 = 9.0;
/// Maximum number of strips per series; further processes appear only in the curve.
const STRIPS: usize = 8;
/// Maximum number of series per panel.
const SERIES: usize = 6;
const PERCENTILES: [f64; 4] = [50.0, 90.0, 95.0, 99.0];

/// One group per lane; `None` if no time has at least two samples.
pub(super) fn section(subjects: &Subjects<'_>, detail: Detail) -> Option<Section> {
    let curves = curves(subjects);
    if curves.is_empty() {
        return None;
    }
    let places = gather(curves.iter(), |group, curve| place(group[0]) == place(curve));
    let allotted = allot(&places.iter().map(Vec::len).collect::<Vec<_>>(), detail.panels);
    let mut groups: Vec<Group> = Vec::new();
    for (curves, &drawn) in places.iter().zip(&allotted) {
        groups.push(Group {
            title: subjects.place(place(curves[0])),
            folded: Fold::after(&groups),
            grid: true,
            figures: curves.iter().take(drawn).map(|series| figure(series, detail.strokes)).collect(),
            tables: vec![table(curves)],
        });
    }
    let mut notes = vec![
        format!(
            "A step rises where a sample lies; upright ticks on a curve are percentiles, given only where the samples suffice for \
             a 95 % interval (6 for the 50th, 36 for the 90th, 72 for the 95th, 368 for the 99th). Below, a strip per process: \
             every sample one stroke; at most {STRIPS} strips and {} strokes each, evenly chosen among the sorted samples.",
            detail.strokes
        ),
        "Times that are reported but not judged (direction info) are left out here.".to_owned(),
    ];
    let (all, drawn) = (curves.len(), allotted.iter().sum::<usize>());
    if drawn < all {
        notes.push(format!("{} of {all} curves are not drawn; the tables hold all of them.", all - drawn));
    }
    let intro = "The share of samples that took at most so long. Steep is steady; a long foot to the right is a tail.";
    Some(Section { id: "distributions", title: "Latency distributions", intro, groups, notes })
}

/// The lane and the machine of a panel.
fn place<'a>(curve: &[Measured<'a>]) -> (&'a str, usize) {
    curve[0].entry.subject.place()
}

/// Distributes `total` places among groups that want `wanted` each, in turns, so that places which a group does not need go to
/// others. Each group gets at least one.
fn allot(wanted: &[usize], total: usize) -> Vec<usize> {
    let mut given: Vec<usize> = wanted.iter().map(|&n| n.min(1)).collect();
    let mut left = total.saturating_sub(given.iter().sum());
    while left > 0 && given != wanted {
        for (given, &wanted) in given.iter_mut().zip(wanted) {
            if *given < wanted && left > 0 {
                *given += 1;
                left -= 1;
            }
        }
    }
    given
}

/// The times of each case and metric on a machine, with a series for each run.
fn curves<'a>(subjects: &'a Subjects<'_>) -> Vec<Vec<Measured<'a>>> {
    let is_time = |m: &Measured<'_>| m.samples.n() >= 2 && seconds_in(m.samples.unit()).is_some();
    let key = |m: &Measured<'a>| (m.entry.subject.place(), &m.entry.row.case, m.metric, m.samples.unit());
    let times = subjects.entries().flat_map(Entry::judged).filter(is_time);
    gather(times, |series, time| series.len() < SERIES && key(&series[0]) == key(time))
}

fn figure(series: &[Measured<'_>], strokes: usize) -> Figure {
    let strips: usize = series.iter().map(|s| s.samples.processes().len().min(STRIPS)).sum();
    let (x0, x1, y0, y1) = PLOT;
    let below = y1 + 6.0 + STRIP * strips as f64;
    let low = series.iter().filter_map(|s| s.samples.min()).fold(f64::INFINITY, f64::min);
    let high = series.iter().filter_map(|s| s.samples.max()).fold(f64::NEG_INFINITY, f64::max);
    let Measured { entry, metric, samples } = series[0];
    let (factor, unit) = readable(samples.unit(), high);
    let x = Scale::fitting((low * factor, high * factor), (x0, x1));
    let label = format!("Distribution of {metric} of {}", cut(&entry.row.case, 96));
    let metric = cut(metric, 40);
    let mut drawing = Drawing::new("chart small", (WIDTH, below + 34.0), &label);
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y1 - share * (y1 - y0);
        drawing.line("grid", (x0, at), (x1, at));
        if share != 0.25 && share != 0.75 {
            drawing.text("tick", (x0 - 5.0, at + 4.0), Anchor::End, &percent(share));
        }
    }
    drawing.columns(&x, 4, (y0, below), 14.0);
    drawing.text("axislabel", (x1, below + 29.0), Anchor::End, &format!("{metric}, {unit}"));
    let mut top = y1 + 6.0;
    for (index, series) in series.iter().enumerate() {
        let place = |value: f64| x.at(value * factor);
        curve(&mut drawing, place, index, series, strokes);
        for process in series.samples.processes().take(STRIPS) {
            let places: Vec<f64> =
                evenly_sorted(process, strokes).into_iter().map(|(_, v)| place(v)).collect();
            let class = format!("stroke thin {}", colour(index));
            drawing.strokes(&class, &places, (top + 1.0, top + STRIP - 2.0));
            top += STRIP;
        }
    }
    let invalid = |s: &Measured<'_>| s.entry.row.invalid().is_some();
    let key = |(index, series): (usize, &Measured<'_>)| {
        let marked = if invalid(series) { " (invalid)" } else { "" };
        Key::line(&curve_class(index), series.entry.who() + marked)
    };
    let keys = if series.len() > 1 { series.iter().enumerate().map(key).collect() } else { Vec::new() };
    let headline = samples.headline().map(|v| with_unit(v, samples.unit())).unwrap_or_default();
    let n = series.iter().map(|s| s.samples.n().to_string()).collect::<Vec<_>>().join(", ");
    let marked = if series.iter().any(invalid) { "; INVALID" } else { "" };
    let about = format!("{metric}: {headline}, n = {n}{marked}");
    Figure { title: cut(&entry.row.case, 64), about, svg: drawing.finish(), keys, ..Figure::default() }
}

fn curve_class(series: usize) -> String {
    format!("curve {} d{}", colour(series), series % SERIES)
}

/// Draws the share of samples up to each value, and the percentiles with their intervals.
fn curve(
    drawing: &mut Drawing,
    place: impl Fn(f64) -> f64,
    index: usize,
    series: &Measured<'_>,
    strokes: usize,
) {
    let (_, x1, y0, y1) = PLOT;
    let (samples, unit) = (series.samples, series.samples.unit());
    let height = |share: f64| y1 - share * (y1 - y0);
    let step = |(rank, value): (usize, f64)| (place(value), height((rank + 1) as f64 / samples.n() as f64));
    let mut points: Vec<(f64, f64)> =
        evenly_sorted(samples.values(), strokes).into_iter().map(step).collect();
    let begin = (points.first().map_or(x1, |p| p.0), y1);
    points.push((x1, y0));
    drawing.steps(&curve_class(index), begin, &points);
    for p in PERCENTILES {
        let Some(percentile) = samples.percentile(p) else { continue };
        let at = height(p / 100.0);
        let [value, low, high] = [percentile.value, percentile.low, percentile.high];
        let [value_text, low_text, high_text] = [value, low, high].map(|v| with_unit(v, unit));
        drawing.open(&format!("p{p}: {value_text} [{low_text}, {high_text}]"));
        drawing.line(&format!("whisker {}", colour(index)), (place(low), at), (place(high), at));
        drawing.strokes(&format!("stroke {}", colour(index)), &[place(value)], (at - 4.0, at + 4.0));
        drawing.close();
    }
}

/// At most `most` sorted values with their ranks.
fn evenly_sorted(values: &[f64], most: usize) -> Vec<(usize, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    chosen(sorted.len(), most).into_iter().map(|rank| (rank, sorted[rank])).collect()
}

/// At most `most` of `n` ranks, evenly selected, including both ends.
pub(super) fn chosen(n: usize, most: usize) -> Vec<usize> {
    let most = most.max(2);
    if n <= most {
        return (0..n).collect();
    }
    (0..most).map(|i| (i * (n - 1) + (most - 1) / 2) / (most - 1)).collect()
}

fn table(curves: &[&Vec<Measured<'_>>]) -> Table {
    let mut table = Table::of_chart("case,metric,run,#n,#min,#p50 [95 %],#p90,#p95,#p99,#max,#mean ± std,");
    for Measured { entry, metric, samples } in curves.iter().copied().flatten() {
        let (factor, unit) = readable(samples.unit(), samples.max().unwrap_or_default());
        let number = |v: f64| plain(v * factor);
        let value = |v: Option<f64>| v.map_or("–".to_owned(), number);
        let percentile = |p: f64| value(samples.percentile(p).map(|percentile| percentile.value));
        let interval = samples.percentile(50.0).map(|p| format!(" [{}, {}]", number(p.low), number(p.high)));
        table.rows.push(vec![
            entry.case_cell(),
            format!("{metric}, {unit}").into(),
            entry.who().into(),
            n_text(samples).into(),
            value(samples.min()).into(),
            (percentile(50.0) + &interval.unwrap_or_default()).into(),
            percentile(90.0).into(),
            percentile(95.0).into(),
            percentile(99.0).into(),
            value(samples.max()).into(),
            format!("{} ± {}", value(samples.mean()), value(samples.std())).into(),
            entry.invalid_cell(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::run;
    use crate::{Direction, Row, Samples};

    fn timed(case: &str, unit: &str, processes: &[Vec<f64>]) -> Row {
        let samples = Samples::by_process(unit, Direction::Lower, processes).unwrap();
        Row { checked: true, ..Row::new(case).metric("latency", samples) }
    }

    #[test]
    fn runs_that_measured_the_same_share_a_panel() {
        let mut runs = [
            run("score", vec![timed("a", "ms", &[vec![1.0, 2.0], vec![3.0]])]),
            run("score", vec![timed("a", "ms", &[vec![2.0; 8]])]),
        ];
        runs[1].engine.name = "other".into();
        let subjects = Subjects::new(&runs);
        let curves = curves(&subjects);
        assert_eq!((curves.len(), curves[0].len()), (1, 2));
        let section = section(&subjects, Detail::FULL).unwrap();
        let figure = &section.groups[0].figures[0];
        assert_eq!(figure.keys.len(), 2);
        roxmltree::Document::parse(&figure.svg).unwrap();
        // Six samples are enough to report a median; each process has a strip.
        assert_eq!(figure.svg.matches("p50: ").count(), 1);
        assert_eq!(figure.svg.matches("stroke thin").count(), 3);
        assert_eq!(section.groups[0].tables[0].rows.len(), 2);
    }

    #[test]
    fn what_is_no_time_or_sampled_once_has_no_curve() {
        let rows = vec![timed("a", "tokens/s", &[vec![1.0, 2.0]]), timed("b", "s", &[vec![1.0]])];
        let runs = [run("score", rows)];
        assert!(section(&Subjects::new(&runs), Detail::FULL).is_none());
    }

    #[test]
    fn strokes_are_chosen_evenly_with_both_ends() {
        assert_eq!(chosen(3, 5), [0, 1, 2]);
        assert_eq!(chosen(11, 3), [0, 5, 10]);
        let many = chosen(100_000, 200);
        assert!(many.len() == 200 && many[0] == 0 && many[199] == 99_999 && many.is_sorted());
    }

    #[test]
    fn panels_beyond_the_limit_are_told() {
        let rows = (0..9).map(|i| timed(&format!("c{i}"), "s", &[vec![1.0, 2.0]])).collect();
        let runs = [run("score", rows)];
        let section = section(&Subjects::new(&runs), Detail { panels: 4, ..Detail::FULL }).unwrap();
        assert_eq!((section.groups[0].figures.len(), section.groups[0].tables[0].rows.len()), (4, 9));
        assert!(section.notes.last().unwrap().starts_with("5 of 9 curves"), "{:?}", section.notes);
    }

    #[test]
    fn a_panel_holds_six_runs_and_eight_strips_of_each() {
        let mut runs: Vec<_> =
            (0..7).map(|_| run("score", vec![timed("a", "ms", &[vec![1.0, 2.0]])])).collect();
        for (index, run) in runs.iter_mut().enumerate() {
            run.engine.name = format!("engine {index}");
        }
        let subjects = Subjects::new(&runs);
        assert_eq!(curves(&subjects).iter().map(Vec::len).collect::<Vec<_>>(), [6, 1]);
        let runs = [run("score", vec![timed("a", "ms", &vec![vec![1.0]; 9])])];
        let section = section(&Subjects::new(&runs), Detail::FULL).unwrap();
        assert_eq!(section.groups[0].figures[0].svg.matches("stroke thin").count(), 8);
    }

    #[test]
    fn places_are_shared_out_in_turns() {
        assert_eq!(allot(&[10, 1, 4], 9), [4, 1, 4]);
        assert_eq!(allot(&[2, 0, 3], 100), [2, 0, 3]);
        assert_eq!(allot(&[5, 5], 1), [1, 1]);
        assert!(allot(&[], 3).is_empty());
    }
}
