//! Throughput by batch and context: a cell per case, labelled with its rate and its share of the limit.

use super::Detail;
use super::page::{Cell, Figure, Group, Section, Table};
use super::quantity::{percent, plain, with_unit};
use super::subject::{Entry, Subjects, cut, distinct, text};
use super::svg::{Anchor, Drawing};
use crate::number;
use crate::stats::{Direction, Samples};

/// Parameters that say how many sequences run together.
const BATCHES: &[&str] = &["batch", "batch_size", "streams"];
/// Parameters that say how long the sequences are, or how much work each has.
const CONTEXTS: &[&str] = &["context", "length", "prompt_tokens", "num_labels"];
/// Cells with at least this share of their limit are outlined.
const NEAR: f64 = 0.8;

const CELL: (f64, f64) = (72.0, 44.0);
const MARGIN: (f64, f64) = (52.0, 30.0);

/// A cell of a map.
struct Spot<'a> {
    entry: Entry<'a>,
    metric: &'a str,
    samples: &'a Samples,
    batch: f64,
    context: f64,
}

/// The common properties of the cells of a map: run, axes, other parameters, metric.
#[derive(Clone, PartialEq)]
struct Key {
    run: String,
    machine: usize,
    lane: String,
    axes: (&'static str, &'static str),
    others: Vec<(String, String)>,
    metric: String,
}

/// A map per run, metric and other parameters; `None` if no two cases differ in batch or context.
pub(super) fn section(subjects: &Subjects<'_>, detail: Detail) -> Option<Section> {
    let mut maps: Vec<(Key, Vec<Spot<'_>>)> = Vec::new();
    for (key, spot) in subjects.entries().filter_map(spot) {
        match maps.iter_mut().find(|(known, _)| *known == key) {
            Some((_, spots)) => spots.push(spot),
            None => maps.push((key, vec![spot])),
        }
    }
    maps.retain(|(_, spots)| places(spots, |s| s.batch).len().max(places(spots, |s| s.context).len()) > 1);
    if maps.is_empty() {
        return None;
    }
    let drawn = maps.len().min(detail.panels);
    let figures = maps.iter().take(drawn).map(|(key, spots)| figure(subjects, key, spots)).collect();
    let mut notes = vec![format!(
        "A darker cell is a higher rate within its map. Below the rate stands the share of the limit that bounds the case; cells \
         outlined reach {} of it or more, and an exclamation mark is a row that must not be believed.",
        percent(NEAR)
    )];
    if drawn < maps.len() {
        notes.push(format!(
            "{} of {} maps are not drawn; their rows stand in the results.",
            maps.len() - drawn,
            maps.len()
        ));
    }
    let intro = "What is gained by running more together, and what longer contexts cost.".to_owned();
    let groups = vec![Group { figures, ..Group::default() }];
    Some(Section { id: "throughput", title: "Throughput by batch and context", intro, groups, notes })
}

/// Converts a row to a cell, if it has a rate and a position.
fn spot(entry: Entry<'_>) -> Option<(Key, Spot<'_>)> {
    let params = &entry.row.params;
    let find = |names: &[&'static str]| {
        names.iter().find_map(|name| Some((*name, params.get(name)?.as_f64().filter(|v| v.is_finite())?)))
    };
    // A case with a context but without a batch counts as batch 1.
    let context = find(CONTEXTS)?;
    let batch = find(BATCHES).unwrap_or(("batch", 1.0));
    let rates = entry.row.metrics.iter().map(|(name, metric)| (name, metric.samples()));
    let (metric, samples) = rates.into_iter().find(|(_, s)| {
        s.direction() == Direction::Higher && s.unit().ends_with("/s") && s.headline().is_some()
    })?;
    let axes = (batch.0, context.0);
    let other = |(name, _): &(&str, _)| *name != axes.0 && *name != axes.1;
    let others = params.iter().filter(other).map(|(name, value)| (name.to_owned(), text(value))).collect();
    let key = Key {
        run: entry.who(),
        machine: entry.subject.machine,
        lane: entry.subject.run.lane.clone(),
        axes,
        others,
        metric: metric.to_owned(),
    };
    Some((key, Spot { entry, metric, samples, batch: batch.1, context: context.1 }))
}

/// The sorted values of an axis.
fn places(spots: &[Spot<'_>], axis: fn(&Spot<'_>) -> f64) -> Vec<f64> {
    let mut values = distinct(spots.iter().map(axis));
    values.sort_by(f64::total_cmp);
    values
}

fn figure(subjects: &Subjects<'_>, key: &Key, spots: &[Spot<'_>]) -> Figure {
    let (rows, columns) = (places(spots, |s| s.batch), places(spots, |s| s.context));
    let size = (MARGIN.0 + CELL.0 * columns.len() as f64 + 4.0, MARGIN.1 + CELL.1 * rows.len() as f64 + 26.0);
    let unit = spots[0].samples.unit();
    let title = format!("{}: {} ({unit})", subjects.place(&key.lane, key.machine), cut(&key.metric, 40));
    let label = format!("{title} by {} and {}", key.axes.0, key.axes.1);
    let mut drawing = Drawing::new("chart heat", size, &label);
    drawing.text("axislabel", (4.0, 12.0), Anchor::Start, &format!("{} ↓", key.axes.0));
    let bottom = size.1 - 8.0;
    drawing.text("axislabel", (size.0 - 4.0, bottom), Anchor::End, &format!("{} →", key.axes.1));
    let x = |column: usize| MARGIN.0 + CELL.0 * column as f64;
    let y = |row: usize| MARGIN.1 + CELL.1 * row as f64;
    for (index, value) in columns.iter().enumerate() {
        drawing.text("tick", (x(index) + CELL.0 / 2.0, MARGIN.1 - 8.0), Anchor::Middle, &value.to_string());
    }
    for (index, value) in rows.iter().enumerate() {
        drawing.text(
            "tick",
            (MARGIN.0 - 8.0, y(index) + CELL.1 / 2.0 + 4.0),
            Anchor::End,
            &value.to_string(),
        );
    }
    let most = spots.iter().filter_map(|s| s.samples.headline()).fold(0.0, f64::max);
    for spot in spots {
        let at = |values: &[f64], value: f64| values.iter().position(|v| *v == value).unwrap_or(0);
        let corner = (x(at(&columns, spot.context)), y(at(&rows, spot.batch)));
        cell(&mut drawing, corner, spot, most);
    }
    let others =
        key.others.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
    let about = cut(&format!("{}; {others}", key.run), 240);
    let svg = drawing.finish(true);
    Figure { title, about, svg, scroll: true, table: Some(table(key, spots)), ..Figure::default() }
}

fn cell(drawing: &mut Drawing, (x, y): (f64, f64), spot: &Spot<'_>, most: f64) {
    let rate = spot.samples.headline().unwrap_or(0.0);
    // Ten shades, which the style sheet defines by name.
    let shade = if most > 0.0 { (rate / most * 9.0).round().clamp(0.0, 9.0) } else { 0.0 };
    let share = spot.entry.row.share_of_limit;
    let invalid = spot.entry.row.invalid();
    let limit = spot.entry.row.limit.as_deref().unwrap_or("limit");
    let shares = share.map(|s| format!(", {} of {limit}", percent(s))).unwrap_or_default();
    let complaint = invalid.as_ref().map(|why| format!("; INVALID: {why}")).unwrap_or_default();
    let told = with_unit(rate, spot.samples.unit());
    drawing.open(&format!("{}: {} {told}{shares}{complaint}", spot.entry.case(), spot.metric));
    drawing.rect(&format!("cell h{shade:.0}"), (x + 1.0, y + 1.0), (CELL.0 - 2.0, CELL.1 - 2.0));
    let tone = if shade > 5.0 { " inv" } else { "" };
    if invalid.is_none() && share.is_some_and(|s| s >= NEAR) {
        drawing.rect(&format!("near{tone}"), (x + 3.5, y + 3.5), (CELL.0 - 7.0, CELL.1 - 7.0));
    }
    let mark = if invalid.is_some() { "! " } else { "" };
    let middle = x + CELL.0 / 2.0;
    drawing.text(
        &format!("cellname{tone}"),
        (middle, y + 20.0),
        Anchor::Middle,
        &format!("{mark}{}", plain(rate)),
    );
    let share = share.map_or("–".to_owned(), percent);
    drawing.text(&format!("cellshare{tone}"), (middle, y + 35.0), Anchor::Middle, &share);
    drawing.close();
}

fn table(key: &Key, spots: &[Spot<'_>]) -> Table {
    let columns = [
        ("case", false),
        (key.axes.0, true),
        (key.axes.1, true),
        ("rate", true),
        ("of limit", true),
        ("limit", false),
        ("", false),
    ];
    let mut table = Table::new("The same as numbers", &columns);
    for spot in spots {
        let row = spot.entry.row;
        table.rows.push(vec![
            spot.entry.case_cell(),
            spot.batch.to_string().into(),
            spot.context.to_string().into(),
            spot.samples
                .headline()
                .map(|rate| with_unit(rate, spot.samples.unit()))
                .unwrap_or_default()
                .into(),
            row.share_of_limit.map(number::percent).unwrap_or_default().into(),
            row.limit.clone().unwrap_or_default().into(),
            row.invalid().map(|why| Cell::bad(format!("INVALID: {why}"))).unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row;
    use crate::report::tests::{row, run};

    fn case(batch: Option<u32>, length: u32, rate: f64, threads: u32) -> Row {
        let row = row(&format!("b{batch:?}/l{length}/t{threads}"), &[rate])
            .param("threads", threads)
            .param("length", length);
        batch.map_or(row.clone(), |batch| row.param("batch", batch))
    }

    #[test]
    fn cells_are_grouped_by_all_other_parameters() {
        let rows = vec![
            case(Some(8), 64, 40.0, 1),
            case(None, 64, 10.0, 1),
            case(Some(8), 512, 20.0, 1),
            case(Some(1), 64, 5.0, 2),
        ];
        let runs = [run("forward", rows)];
        let section = section(&Subjects::new(&runs), Detail::FULL).unwrap();
        // The only case with two threads has no other case to form a map with.
        let figures = &section.groups[0].figures;
        assert_eq!(figures.len(), 1);
        roxmltree::Document::parse(&figures[0].svg).unwrap();
        assert_eq!(figures[0].svg.matches("class=\"cell ").count(), 3);
        assert!(
            figures[0].svg.contains("cell h9") && figures[0].svg.contains("cell h2"),
            "{}",
            figures[0].svg
        );
        assert!(figures[0].about.contains("threads 1") && figures[0].title.contains("tokens/s"));
    }

    #[test]
    fn without_two_cells_there_is_no_map() {
        for rows in [vec![], vec![case(Some(1), 64, 1.0, 1)], vec![row("a", &[1.0]), row("b", &[1.0])]] {
            let runs = [run("forward", rows)];
            assert!(section(&Subjects::new(&runs), Detail::FULL).is_none());
        }
    }
}
