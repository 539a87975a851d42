//! Trends over commits: the headline metric of each case, one point per run, separately for each machine.

use super::Detail;
use super::page::{Figure, Fold, Group, Section, Table, allot, colour};
use super::quantity::{n_text, readable, tick, with_unit};
use super::subject::{Entry, Subjects, commit, cut, distinct, shown};
use super::svg::{Anchor, Drawing, Scale};
use crate::stats::Samples;

const SIZE: (f64, f64) = (340.0, 150.0);
const PLOT: (f64, f64, f64, f64) = (46.0, 326.0, 12.0, 112.0);

/// A case and metric of one engine on one machine.
struct Line<'a> {
    machine: usize,
    lane: &'a str,
    engine: &'a str,
    case: &'a str,
    arm: Option<&'a str>,
    metric: &'a str,
    points: Vec<(Entry<'a>, &'a Samples)>,
}

/// A chart per case that was measured by at least two dated runs; `None` if there is none.
pub(super) fn section(subjects: &Subjects<'_>, detail: Detail) -> Option<Section> {
    let lines = lines(subjects);
    if lines.is_empty() {
        return None;
    }
    let places = distinct(lines.iter().map(|line| (line.lane, line.machine)));
    let of = |&(lane, machine): &(&str, usize)| -> Vec<&Line<'_>> {
        lines.iter().filter(|line| (line.lane, line.machine) == (lane, machine)).collect()
    };
    let of_lanes: Vec<Vec<&Line<'_>>> = places.iter().map(of).collect();
    let wanted: Vec<usize> = of_lanes.iter().map(Vec::len).collect();
    let mut groups: Vec<Group> = Vec::new();
    for (((lane, machine), of_lane), drawn) in
        places.into_iter().zip(of_lanes).zip(allot(&wanted, detail.panels))
    {
        let figures = of_lane.iter().take(drawn).map(|line| figure(line)).collect();
        let folded = if groups.is_empty() { Fold::Open } else { Fold::Shut };
        let tables = vec![table(&of_lane)];
        groups.push(Group { title: subjects.place(lane, machine), folded, grid: true, figures, tables });
    }
    let left_out = lines.len() - groups.iter().map(|group| group.figures.len()).sum::<usize>();
    let mut notes = vec![
        "Runs stand in the order of their start, evenly spaced; commits are cut to seven characters, and + is a dirty tree. \
         Upright bars are 95 % intervals of the headline (t over process medians, or order statistics of one process from six \
         samples on); hollow points must not be believed. The scale need not begin at 0."
            .to_owned(),
    ];
    if left_out > 0 {
        notes.push(format!(
            "{left_out} of {} charts are not drawn; the tables hold all of them.",
            lines.len()
        ));
    }
    let intro = "The first judged metric of each case, run by run.".to_owned();
    Some(Section { id: "trend", title: "Trend over commits", intro, groups, notes })
}

fn lines<'a>(subjects: &'a Subjects<'_>) -> Vec<Line<'a>> {
    let mut dated: Vec<Entry<'a>> =
        subjects.entries().filter(|entry| entry.subject.run.started_at.is_some()).collect();
    dated.sort_by(|a, b| a.subject.run.started_at.cmp(&b.subject.run.started_at));
    let mut lines: Vec<Line<'a>> = Vec::new();
    for entry in dated {
        let Some((metric, samples)) = entry.headline() else { continue };
        let run = entry.subject.run;
        let same = |line: &&mut Line<'_>| {
            (line.machine, line.lane, line.engine) == (entry.subject.machine, &run.lane, &run.engine.name)
                && (line.case, line.arm, line.metric) == (&entry.row.case, entry.row.arm.as_deref(), metric)
                && line.points[0].1.unit() == samples.unit()
        };
        match lines.iter_mut().find(same) {
            Some(line) => line.points.push((entry, samples)),
            None => lines.push(Line {
                machine: entry.subject.machine,
                lane: &run.lane,
                engine: &run.engine.name,
                case: &entry.row.case,
                arm: entry.row.arm.as_deref(),
                metric,
                points: vec![(entry, samples)],
            }),
        }
    }
    // Repeats of one run are not a trend.
    lines.retain(|line| distinct(line.points.iter().map(|(e, _)| &e.subject.name)).len() > 1);
    lines
}

fn figure(line: &Line<'_>) -> Figure {
    let (x0, x1, y0, y1) = PLOT;
    let ends = line.points.iter().flat_map(|(_, s)| {
        let interval = s.interval();
        [s.headline(), interval.map(|i| i.low), interval.map(|i| i.high)].into_iter().flatten()
    });
    let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let (factor, unit) = readable(line.points[0].1.unit(), high);
    let y = Scale::fitting((low * factor, high * factor), (y1, y0));
    let x = Scale::linear((0.0, (line.points.len() - 1) as f64), (x0 + 24.0, x1 - 24.0));
    let label = format!("{} of {} over {} runs", line.metric, cut(line.case, 96), line.points.len());
    let mut drawing = Drawing::new("chart small", SIZE, &label);
    for value in y.ticks(5) {
        drawing.line("grid", (x0, y.at(value)), (x1, y.at(value)));
        drawing.text("tick", (x0 - 5.0, y.at(value) + 4.0), Anchor::End, &tick(value));
    }
    drawing.line("axis", (x0, y1), (x1, y1));
    let places: Vec<(f64, f64)> = line
        .points
        .iter()
        .enumerate()
        .map(|(index, (_, s))| (x.at(index as f64), y.at(s.headline().unwrap_or(low) * factor)))
        .collect();
    drawing.polyline(&format!("trendline {}", colour(0)), &places);
    let every = line.points.len().div_ceil(4);
    for (index, ((entry, samples), at)) in line.points.iter().zip(places).enumerate() {
        point(&mut drawing, &y, factor, *entry, samples, at);
        let last = index + 1 == line.points.len();
        if last || (index % every == 0 && line.points.len() - index > every.div_ceil(2)) {
            drawing.text("tick", (at.0, y1 + 16.0), Anchor::Middle, &name(*entry));
        }
    }
    drawing.text("axislabel", (x1, SIZE.1 - 4.0), Anchor::End, &format!("{}, {unit}", cut(line.metric, 40)));
    let arm = line.arm.map(|arm| format!(" [{arm}]")).unwrap_or_default();
    let title = cut(&format!("{}{arm}", line.case), 64);
    let change = line.points[0].1.headline().zip(line.points[line.points.len() - 1].1.headline());
    let change = change.filter(|(first, _)| *first != 0.0);
    let change =
        change.map(|(first, last)| format!(", {:+.1} % from first to last", (last / first - 1.0) * 100.0));
    let about = format!("{}: {}{}", shown(line.engine), cut(line.metric, 40), change.unwrap_or_default());
    Figure { title, about, svg: drawing.finish(false), ..Figure::default() }
}

fn point(drawing: &mut Drawing, y: &Scale, factor: f64, entry: Entry<'_>, samples: &Samples, at: (f64, f64)) {
    if let Some(interval) = samples.interval() {
        let (low, high) = (y.at(interval.low * factor), y.at(interval.high * factor));
        drawing.line(&format!("whisker {}", colour(0)), (at.0, low), (at.0, high));
    }
    let invalid = entry.row.invalid();
    let complaint = invalid.as_ref().map(|why| format!("; INVALID: {why}")).unwrap_or_default();
    let value = samples.headline().map(|v| with_unit(v, samples.unit())).unwrap_or_default();
    let started = entry.subject.run.started_at.as_deref().unwrap_or_default();
    let title = format!("{} {started}: {value}{complaint}", entry.who());
    let hollow = if invalid.is_some() { " hollow" } else { "" };
    drawing.mark(0, &format!("{}{hollow}", colour(0)), at, &title);
}

/// The commit, or the version if it is unknown.
fn name(entry: Entry<'_>) -> String {
    let run = entry.subject.run;
    cut(&commit(run).or_else(|| run.engine.version.clone()).unwrap_or_else(|| "?".to_owned()), 9)
}

fn table(lines: &[&Line<'_>]) -> Table {
    let columns = [
        ("case", false),
        ("metric", false),
        ("engine", false),
        ("commit", false),
        ("started", false),
        ("headline", true),
        ("95 % interval", true),
        ("n", true),
    ];
    let mut table = Table::new("The same as numbers", &columns);
    for line in lines {
        for (entry, samples) in &line.points {
            let unit = samples.unit();
            let interval = samples.interval();
            let interval =
                interval.map(|i| format!("{} – {}", with_unit(i.low, unit), with_unit(i.high, unit)));
            table.rows.push(vec![
                entry.case_cell(),
                cut(line.metric, 40).into(),
                shown(line.engine).into(),
                name(*entry).into(),
                entry.subject.run.started_at.as_deref().map(shown).unwrap_or_default().into(),
                samples.headline().map(|v| with_unit(v, unit)).unwrap_or_default().into(),
                interval.unwrap_or_default().into(),
                n_text(samples).into(),
            ]);
        }
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
        assert!(
            section(
                &Subjects::new(&[dated("a", Some(&one), "x", 1.0), dated("b", Some(&two), "y", 1.0)]),
                Detail::FULL
            )
            .is_none()
        );
        let mut elsewhere = dated("a", Some(&two), "y", 1.0);
        elsewhere.machine = serde_json::from_value(serde_json::json!({"fingerprint": "other"})).unwrap();
        assert!(
            section(&Subjects::new(&[dated("a", Some(&one), "x", 1.0), elsewhere]), Detail::FULL).is_none()
        );
    }
}
