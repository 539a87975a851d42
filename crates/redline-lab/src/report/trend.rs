//! Trends over commits: the headline metric of each case, one point per run, separately for each machine.

use super::Detail;
use super::page::{Figure, Section, Table, colour};
use super::panels::panels;
use super::quantity::{n_text, readable, with_unit};
use super::subject::{Entry, Measured, Subjects, cut, distinct, gather, shown};
use super::svg::{Anchor, Drawing, Scale};

const SIZE: (f64, f64) = (340.0, 150.0);
const PLOT: (f64, f64, f64, f64) = (46.0, 326.0, 12.0, 112.0);

/// A chart per case that was measured by at least two dated runs; `None` if there is none.
pub(super) fn section(subjects: &Subjects<'_>, detail: Detail) -> Option<Section> {
    let lines = lines(subjects);
    if lines.is_empty() {
        return None;
    }
    let (groups, omitted) = panels(subjects, &lines, (detail.panels, "charts"), figure, table);
    let mut notes = vec![
        "Runs stand in the order of their start, evenly spaced; commits are cut to seven characters, and + is a dirty tree. \
         Upright bars are 95 % intervals of the headline (t over process medians, or order statistics of one process from six \
         samples on); hollow points must not be believed. The scale need not begin at 0."
            .to_owned(),
    ];
    notes.extend(omitted);
    let intro = "The first judged metric of each case, run by run.";
    Some(Section { id: "trend", title: "Trend over commits", intro, groups, notes })
}

/// The dated points of each case and metric of an engine on a machine.
fn lines<'a>(subjects: &'a Subjects<'_>) -> Vec<Vec<Measured<'a>>> {
    let mut dated: Vec<Entry<'a>> =
        subjects.entries().filter(|entry| entry.subject.run.started_at.is_some()).collect();
    dated.sort_by(|a, b| a.subject.run.started_at.cmp(&b.subject.run.started_at));
    let key = |point: &Measured<'a>| {
        let Entry { subject, row } = point.entry;
        (subject.place(), &subject.run.engine.name, &row.case, &row.arm, point.metric, point.samples.unit())
    };
    let points = dated.into_iter().filter_map(Entry::headline);
    let mut lines = gather(points, |line, point| key(&line[0]) == key(point));
    // Repeats of one run are not a trend.
    lines.retain(|line| distinct(line.iter().map(|point| &point.entry.subject.name)).len() > 1);
    lines
}

fn figure(line: &[Measured<'_>]) -> Figure {
    let (x0, x1, y0, y1) = PLOT;
    let first = line[0];
    let ends = line.iter().flat_map(|point| {
        let interval = point.samples.interval();
        [point.samples.headline(), interval.map(|i| i.low), interval.map(|i| i.high)]
    });
    let (low, high) =
        ends.flatten().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let (factor, unit) = readable(first.samples.unit(), high);
    let y = Scale::fitting((low * factor, high * factor), (y1, y0));
    let x = Scale::linear((0.0, (line.len() - 1) as f64), (x0 + 24.0, x1 - 24.0));
    let label = format!("{} of {} over {} runs", first.metric, cut(&first.entry.row.case, 96), line.len());
    let mut drawing = Drawing::new("chart small", SIZE, &label);
    drawing.rows(&y, 5, (x0, x1), 5.0);
    drawing.line("axis", (x0, y1), (x1, y1));
    let height = |point: &Measured<'_>| y.at(point.samples.headline().unwrap_or(low) * factor);
    let places: Vec<(f64, f64)> =
        line.iter().enumerate().map(|(index, point)| (x.at(index as f64), height(point))).collect();
    drawing.polyline(&format!("trendline {}", colour(0)), &places);
    let every = line.len().div_ceil(4);
    for (index, (measured, at)) in line.iter().zip(places).enumerate() {
        point(&mut drawing, &y, factor, measured, at);
        let left = line.len() - index;
        if left == 1 || (index % every == 0 && left > every.div_ceil(2)) {
            drawing.text("tick", (at.0, y1 + 16.0), Anchor::Middle, &name(measured.entry));
        }
    }
    let metric = cut(first.metric, 40);
    drawing.text("axislabel", (x1, SIZE.1 - 4.0), Anchor::End, &format!("{metric}, {unit}"));
    let headlines = first.samples.headline().zip(line[line.len() - 1].samples.headline());
    let change = headlines
        .filter(|(first, _)| *first != 0.0)
        .map(|(first, last)| format!(", {:+.1} % from first to last", (last / first - 1.0) * 100.0));
    let engine = shown(&first.entry.subject.run.engine.name);
    let about = format!("{engine}: {metric}{}", change.unwrap_or_default());
    Figure {
        title: cut(&first.entry.full_case(), 64),
        about,
        svg: drawing.finish(false),
        ..Figure::default()
    }
}

fn point(drawing: &mut Drawing, y: &Scale, factor: f64, point: &Measured<'_>, at: (f64, f64)) {
    let Measured { entry, samples, .. } = point;
    if let Some(interval) = samples.interval() {
        let (low, high) = (y.at(interval.low * factor), y.at(interval.high * factor));
        drawing.line(&format!("whisker {}", colour(0)), (at.0, low), (at.0, high));
    }
    let value = samples.headline().map(|v| with_unit(v, samples.unit())).unwrap_or_default();
    let started = entry.subject.run.started_at.as_deref().unwrap_or_default();
    let title = format!("{} {started}: {value}{}", entry.who(), entry.invalid_note());
    drawing.mark(0, &entry.mark_class(0), at, &title);
}

/// The commit, with + for a dirty tree, or the version if it is unknown.
fn name(entry: Entry<'_>) -> String {
    let engine = &entry.subject.run.engine;
    let dirty = if engine.dirty == Some(true) { "+" } else { "" };
    let commit = engine.git.as_ref().map(|git| git.chars().take(7).collect::<String>() + dirty);
    cut(&commit.or_else(|| engine.version.clone()).unwrap_or_else(|| "?".to_owned()), 9)
}

fn table(lines: &[&Vec<Measured<'_>>]) -> Table {
    let mut table = Table::of_chart("case,metric,engine,commit,started,#headline,#95 % interval,#n");
    for Measured { entry, metric, samples } in lines.iter().copied().flatten() {
        let run = entry.subject.run;
        let value = |value: f64| with_unit(value, samples.unit());
        let interval = samples.interval().map(|i| format!("{} – {}", value(i.low), value(i.high)));
        table.rows.push(vec![
            entry.case_cell(),
            cut(metric, 40).into(),
            shown(&run.engine.name).into(),
            name(*entry).into(),
            run.started_at.as_deref().map(shown).unwrap_or_default().into(),
            samples.headline().map(value).unwrap_or_default().into(),
            interval.unwrap_or_default().into(),
            n_text(samples).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{row, run};

    fn dated(lane: &str, at: Option<&str>, git: &str, rate: f64) -> crate::Run {
        let mut run = run(lane, vec![row("a", &[rate, rate * 1.01])]);
        run.started_at = at.map(ToOwned::to_owned);
        run.engine.git = Some(git.to_owned());
        run
    }

    #[test]
    fn points_stand_in_the_order_of_their_start() {
        let runs = [
            dated("score", Some("2026-11-22T00:00:00Z"), "bbbbbbbbbbbb", 2.0),
            dated("score", Some("2026-11-20T00:00:00Z"), "aaaaaaaaaaaa", 1.0),
            dated("score", None, "cccccccccccc", 3.0),
        ];
        let subjects = Subjects::new(&runs);
        let section = section(&subjects, Detail::FULL).unwrap();
        let figure = &section.groups[0].figures[0];
        let svg = &figure.svg;
        roxmltree::Document::parse(svg).unwrap();
        assert!(svg.find("aaaaaaa<").unwrap() < svg.find("bbbbbbb<").unwrap() && !svg.contains("ccccccc<"));
        assert!(figure.about.ends_with("+100.0 % from first to last"), "{}", figure.about);
        assert_eq!(section.groups[0].tables[0].rows.len(), 2);
    }

    #[test]
    fn other_lanes_and_machines_are_other_lines() {
        let at = |hour| format!("2026-11-22T0{hour}:00:00Z");
        let (one, two) = (at(1), at(2));
        let mut elsewhere = dated("a", Some(&two), "y", 1.0);
        elsewhere.machine = serde_json::from_value(serde_json::json!({"fingerprint": "other"})).unwrap();
        for other in [dated("b", Some(&two), "y", 1.0), elsewhere] {
            let runs = [dated("a", Some(&one), "x", 1.0), other];
            assert!(section(&Subjects::new(&runs), Detail::FULL).is_none());
        }
    }

    #[test]
    fn a_dirty_tree_is_marked_and_a_version_stands_for_an_unknown_commit() {
        let named = |dirty: Option<bool>, git: Option<&str>, version: Option<&str>| {
            let mut runs = [run("score", vec![row("a", &[1.0])])];
            runs[0].engine.dirty = dirty;
            runs[0].engine.git = git.map(ToOwned::to_owned);
            runs[0].engine.version = version.map(ToOwned::to_owned);
            let subjects = Subjects::new(&runs);
            name(subjects.entries().next().unwrap())
        };
        let commit = Some("0123456789ab");
        assert_eq!(named(Some(true), commit, Some("1.2")), "0123456+");
        assert_eq!([Some(false), None].map(|dirty| named(dirty, commit, None)), ["0123456"; 2]);
        assert_eq!(named(None, None, Some("1.2")), "1.2");
        assert_eq!(named(None, None, None), "?");
    }
}
