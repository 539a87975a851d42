//! Distributions of times: the cumulative share of samples, and every sample in a strip per process.

use super::Detail;
use super::page::{Cell, Figure, Fold, Group, Key, Section, Table, allot, colour};
use super::quantity::{n_text, percent, plain, readable, seconds_in, tick, with_unit};
use super::subject::{Entry, Subjects, cut, distinct};
use super::svg::{Anchor, Drawing, Scale};
use crate::stats::{Direction, Samples};

const WIDTH: f64 = 340.0;
const PLOT: (f64, f64, f64, f64) = (42.0, 332.0, 10.0, 110.0);
/// Height of a strip.
const STRIP: f64 = 9.0;
/// Maximum number of strips per series; further processes appear only in the curve.
const STRIPS: usize = 8;
/// Maximum number of series per panel.
const SERIES: usize = 6;
/// Percentiles that are reported.
const PERCENTILES: [f64; 4] = [50.0, 90.0, 95.0, 99.0];

/// Samples of one case and metric.
struct Series<'a> {
    entry: Entry<'a>,
    samples: &'a Samples,
}

/// One case and metric on one machine, with a series for each run.
struct Panel<'a> {
    machine: usize,
    lane: &'a str,
    case: &'a str,
    metric: &'a str,
    series: Vec<Series<'a>>,
}

/// One group per lane; `None` if no time has at least two samples.
pub(super) fn section(subjects: &Subjects<'_>, detail: Detail) -> Option<Section> {
    let panels = panels(subjects);
    if panels.is_empty() {
        return None;
    }
    let places = distinct(panels.iter().map(|panel| (panel.lane, panel.machine)));
    let of = |&(lane, machine): &(&str, usize)| -> Vec<&Panel<'_>> {
        panels.iter().filter(|panel| (panel.lane, panel.machine) == (lane, machine)).collect()
    };
    let of_lanes: Vec<Vec<&Panel<'_>>> = places.iter().map(of).collect();
    let wanted: Vec<usize> = of_lanes.iter().map(Vec::len).collect();
    let mut groups: Vec<Group> = Vec::new();
    for (((lane, machine), of_lane), drawn) in
        places.into_iter().zip(of_lanes).zip(allot(&wanted, detail.panels))
    {
        let figures = of_lane.iter().take(drawn).map(|panel| figure(panel, detail)).collect();
        let folded = if groups.is_empty() { Fold::Open } else { Fold::Shut };
        let tables = vec![table(&of_lane)];
        groups.push(Group { title: subjects.place(lane, machine), folded, grid: true, figures, tables });
    }
    let left_out = panels.len() - groups.iter().map(|group| group.figures.len()).sum::<usize>();
    let mut notes = vec![
        format!(
            "A step rises where a sample lies; upright ticks on a curve are percentiles, given only where the samples suffice for \
             a 95 % interval (6 for the 50th, 36 for the 90th, 72 for the 95th, 368 for the 99th). Below, a strip per process: \
             every sample one stroke; at most {STRIPS} strips and {} strokes each, evenly chosen among the sorted samples.",
            detail.strokes
        ),
        "Times that are told but not judged (direction info) are left out here.".to_owned(),
    ];
    if left_out > 0 {
        notes.push(format!(
            "{left_out} of {} curves are not drawn; the tables hold all of them.",
            panels.len()
        ));
    }
    let intro =
        "The share of samples that took at most so long. Steep is steady; a long foot to the right is a tail.".to_owned();
    Some(Section { id: "distributions", title: "Latency distributions", intro, groups, notes })
}

fn panels<'a>(subjects: &'a Subjects<'_>) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    for entry in subjects.entries() {
        for (metric, samples) in entry.row.metrics.iter().map(|(name, metric)| (name, metric.samples())) {
            let judged = samples.direction() != Direction::Info;
            if !judged || samples.n() < 2 || seconds_in(samples.unit()).is_none() {
                continue;
            }
            let (lane, case, machine) =
                (entry.subject.run.lane.as_str(), entry.row.case.as_str(), entry.subject.machine);
            let series = Series { entry, samples };
            let same = |p: &&mut Panel<'_>| {
                (p.machine, p.lane, p.case, p.metric) == (machine, lane, case, metric)
                    && p.series.len() < SERIES
                    && p.series[0].samples.unit() == samples.unit()
            };
            match panels.iter_mut().find(same) {
                Some(panel) => panel.series.push(series),
                None => panels.push(Panel { machine, lane, case, metric, series: vec![series] }),
            }
        }
    }
    panels
}

fn figure(panel: &Panel<'_>, detail: Detail) -> Figure {
    let strips: usize = panel.series.iter().map(|s| s.samples.processes().len().min(STRIPS)).sum();
    let (x0, x1, y0, y1) = PLOT;
    let below = y1 + 6.0 + STRIP * strips as f64;
    let height = below + 34.0;
    let low = panel.series.iter().filter_map(|s| s.samples.min()).fold(f64::INFINITY, f64::min);
    let high = panel.series.iter().filter_map(|s| s.samples.max()).fold(f64::NEG_INFINITY, f64::max);
    let (factor, unit) = readable(panel.series[0].samples.unit(), high);
    let x = Scale::fitting((low * factor, high * factor), (x0, x1));
    let label = format!("Distribution of {} of {}", panel.metric, cut(panel.case, 96));
    let mut drawing = Drawing::new("chart small", (WIDTH, height), &label);
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y1 - share * (y1 - y0);
        drawing.line("grid", (x0, at), (x1, at));
        if share != 0.25 && share != 0.75 {
            drawing.text("tick", (x0 - 5.0, at + 4.0), Anchor::End, &percent(share));
        }
    }
    for value in x.ticks(4) {
        drawing.line("grid", (x.at(value), y0), (x.at(value), below));
        drawing.text("tick", (x.at(value), below + 14.0), Anchor::Middle, &tick(value));
    }
    drawing.text("axislabel", (x1, below + 29.0), Anchor::End, &format!("{}, {unit}", cut(panel.metric, 40)));
    let mut top = y1 + 6.0;
    for (index, series) in panel.series.iter().enumerate() {
        curve(&mut drawing, &x, factor, index, series, detail);
        for process in series.samples.processes().take(STRIPS) {
            strip(&mut drawing, &x, factor, index, process, (top, detail));
            top += STRIP;
        }
    }
    let who = |(index, series): (usize, &Series<'_>)| {
        let invalid = if series.entry.row.invalid().is_some() { " (invalid)" } else { "" };
        Key::line(&format!("curve {} d{}", colour(index), index % SERIES), series.entry.who() + invalid)
    };
    let keys =
        if panel.series.len() > 1 { panel.series.iter().enumerate().map(who).collect() } else { Vec::new() };
    let title = cut(panel.case, 64);
    let about = panel.series[0].samples.headline().map(|v| with_unit(v, panel.series[0].samples.unit()));
    let n = panel.series.iter().map(|s| s.samples.n().to_string()).collect::<Vec<_>>().join(", ");
    let invalid = panel.series.iter().any(|s| s.entry.row.invalid().is_some());
    let marked = if invalid { "; INVALID" } else { "" };
    let about = format!("{}: {}, n = {n}{marked}", cut(panel.metric, 40), about.unwrap_or_default());
    Figure { title, about, svg: drawing.finish(false), keys, ..Figure::default() }
}

fn curve(drawing: &mut Drawing, x: &Scale, factor: f64, index: usize, series: &Series<'_>, detail: Detail) {
    let (_, x1, y0, y1) = PLOT;
    let mut sorted = series.samples.values().to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len();
    let place = |rank: usize| (x.at(sorted[rank] * factor), y1 - (rank + 1) as f64 / n as f64 * (y1 - y0));
    let mut points: Vec<(f64, f64)> = chosen(n, detail.strokes).into_iter().map(place).collect();
    let begin = (points.first().map_or(x1, |p| p.0), y1);
    points.push((x1, y0));
    drawing.steps(&format!("curve {} d{}", colour(index), index % SERIES), begin, &points);
    let unit = series.samples.unit();
    for p in PERCENTILES {
        let Some(found) = series.samples.percentile(p) else { continue };
        let at = y1 - p / 100.0 * (y1 - y0);
        let (low, high) = (with_unit(found.low, unit), with_unit(found.high, unit));
        drawing.open(&format!("p{p}: {} [{low}, {high}]", with_unit(found.value, unit)));
        drawing.line(
            &format!("whisker {}", colour(index)),
            (x.at(found.low * factor), at),
            (x.at(found.high * factor), at),
        );
        drawing.strokes(
            &format!("stroke {}", colour(index)),
            &[x.at(found.value * factor)],
            (at - 4.0, at + 4.0),
        );
        drawing.close();
    }
}

fn strip(
    drawing: &mut Drawing,
    x: &Scale,
    factor: f64,
    index: usize,
    process: &[f64],
    (top, detail): (f64, Detail),
) {
    let mut sorted = process.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let places: Vec<f64> =
        chosen(sorted.len(), detail.strokes).into_iter().map(|rank| x.at(sorted[rank] * factor)).collect();
    drawing.strokes(&format!("stroke thin {}", colour(index)), &places, (top + 1.0, top + STRIP - 2.0));
}

/// At most `most` of `n` ranks, evenly selected, including both ends.
pub(super) fn chosen(n: usize, most: usize) -> Vec<usize> {
    let most = most.max(2);
    if n <= most {
        return (0..n).collect();
    }
    (0..most).map(|i| (i * (n - 1) + (most - 1) / 2) / (most - 1)).collect()
}

fn table(panels: &[&Panel<'_>]) -> Table {
    let columns = [
        ("case", false),
        ("metric", false),
        ("run", false),
        ("n", true),
        ("min", true),
        ("p50 [95 %]", true),
        ("p90", true),
        ("p95", true),
        ("p99", true),
        ("max", true),
        ("mean ± std", true),
        ("", false),
    ];
    let mut table = Table::new("The same as numbers", &columns);
    for (panel, series) in panels.iter().flat_map(|panel| panel.series.iter().map(move |s| (panel, s))) {
        let s = series.samples;
        let (factor, unit) = readable(s.unit(), s.max().unwrap_or_default());
        let value = |v: Option<f64>| v.map_or("–".to_owned(), |v| plain(v * factor));
        let percentile = |p: f64| match s.percentile(p) {
            Some(found) if p == 50.0 => {
                format!(
                    "{} [{}, {}]",
                    plain(found.value * factor),
                    plain(found.low * factor),
                    plain(found.high * factor)
                )
            }
            found => value(found.map(|found| found.value)),
        };
        let mut row: Vec<Cell> = vec![
            series.entry.case_cell(),
            format!("{}, {unit}", panel.metric).into(),
            series.entry.who().into(),
            n_text(s).into(),
            value(s.min()).into(),
        ];
        row.extend(PERCENTILES.map(|p| percentile(p).into()));
        row.push(value(s.max()).into());
        row.push(format!("{} ± {}", value(s.mean()), value(s.std())).into());
        row.push(
            series.entry.row.invalid().map(|why| Cell::bad(format!("INVALID: {why}"))).unwrap_or_default(),
        );
        table.rows.push(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row;
    use crate::report::tests::run;

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
        let found = panels(&subjects);
        assert_eq!((found.len(), found[0].series.len()), (1, 2));
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
}
