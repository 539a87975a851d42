//! Throughput by batch and context: a cell per case, labelled with its rate and its share of the limit.

use super::Detail;
use super::page::{Figure, Group, Section, Table};
use super::panels::omitted;
use super::quantity::{percent, plain, with_unit};
use super::subject::{Entry, Measured, Subjects, cut, distinct, gather, text};
use super::svg::{Anchor, Drawing};
use crate::number;
use crate::stats::Direction;

/// Parameters that say how many sequences run together.
const BATCHES: &[&str] = &["batch", "batch_size", "streams"];
/// Parameters that say how long the sequences are, or how much work each has.
const CONTEXTS: &[&str] = &["context", "length", "prompt_tokens", "num_labels"];
/// Cells with at least this share of their limit are outlined.
const NEAR: f64 = 0.8;

const CELL: (f64, f64) = (72.0, 44.0);
const MARGIN: (f64, f64) = (52.0, 30.0);

struct Spot<'a> {
    rate: Measured<'a>,
    /// The rate of the case in its unit.
    value: f64,
    /// The parameters of the axes with their values.
    batch: (&'static str, f64),
    context: (&'static str, f64),
    /// All other parameters.
    others: String,
}

/// A map per run, metric and other parameters; `None` if no two cases differ in batch or context.
pub(super) fn section(subjects: &Subjects<'_>, detail: Detail) -> Option<Section> {
    let mut maps = gather(subjects.entries().filter_map(spot), |map, spot| same_map(&map[0], spot));
    maps.retain(|map| places(map, |s| s.batch.1).len().max(places(map, |s| s.context.1).len()) > 1);
    if maps.is_empty() {
        return None;
    }
    let figures: Vec<Figure> = maps.iter().take(detail.panels).map(|map| figure(subjects, map)).collect();
    let mut notes = vec![format!(
        "A darker cell is a higher rate within its map. Below the rate stands the share of the limit that bounds the case; cells \
         outlined reach {} of it or more, and an exclamation mark is a row that must not be believed.",
        percent(NEAR)
    )];
    let left_out = maps.len() - figures.len();
    notes.extend(omitted(left_out, maps.len(), "maps", "their rows stand in the results."));
    let intro = "What is gained by running more together, and what longer contexts cost.";
    let groups = vec![Group { figures, ..Group::default() }];
    Some(Section { id: "throughput", title: "Throughput by batch and context", intro, groups, notes })
}

/// Converts a row to a cell, if it has a rate and a position.
fn spot(entry: Entry<'_>) -> Option<Spot<'_>> {
    let params = &entry.row.params;
    let find = |names: &[&'static str]| {
        names.iter().find_map(|name| Some((*name, params.get(name)?.as_f64().filter(|v| v.is_finite())?)))
    };
    // A case with a context but without a batch counts as batch 1.
    let context = find(CONTEXTS)?;
    let batch = find(BATCHES).unwrap_or(("batch", 1.0));
    let is_rate = |m: &Measured<'_>| {
        m.samples.direction() == Direction::Higher && m.samples.unit().ends_with("/s") && m.samples.n() > 0
    };
    let rate = entry.metrics().find(is_rate)?;
    let value = rate.samples.headline()?;
    let others = params.iter().filter(|(name, _)| *name != batch.0 && *name != context.0);
    let others: Vec<String> = others.map(|(name, value)| format!("{name} {}", text(value))).collect();
    Some(Spot { rate, value, batch, context, others: others.join(", ") })
}

/// Whether two cells belong to one map: run, axes, metric and other parameters are equal.
fn same_map<'a>(a: &Spot<'a>, b: &Spot<'a>) -> bool {
    let key = |spot: &Spot<'a>| {
        let Measured { entry: Entry { subject, row }, metric, .. } = spot.rate;
        (subject.place(), &subject.name, &row.arm, spot.batch.0, spot.context.0, metric)
    };
    key(a) == key(b) && a.others == b.others
}

/// The sorted values of an axis.
fn places(map: &[Spot<'_>], axis: fn(&Spot<'_>) -> f64) -> Vec<f64> {
    let mut values = distinct(map.iter().map(axis));
    values.sort_by(f64::total_cmp);
    values
}

fn figure(subjects: &Subjects<'_>, map: &[Spot<'_>]) -> Figure {
    let (rows, columns) = (places(map, |s| s.batch.1), places(map, |s| s.context.1));
    let size = (MARGIN.0 + CELL.0 * columns.len() as f64 + 4.0, MARGIN.1 + CELL.1 * rows.len() as f64 + 26.0);
    let Spot { rate: Measured { entry, metric, samples }, batch, context, others, .. } = &map[0];
    let place = subjects.place(entry.subject.place());
    let title = format!("{place}: {} ({})", cut(metric, 40), samples.unit());
    let label = format!("{title} by {} and {}", batch.0, context.0);
    let mut drawing = Drawing::new("chart heat", size, &label);
    drawing.text("axislabel", (4.0, 12.0), Anchor::Start, &format!("{} ↓", batch.0));
    drawing.text("axislabel", (size.0 - 4.0, size.1 - 8.0), Anchor::End, &format!("{} →", context.0));
    let x = |column: usize| MARGIN.0 + CELL.0 * column as f64;
    let y = |row: usize| MARGIN.1 + CELL.1 * row as f64;
    for (index, value) in columns.iter().enumerate() {
        let at = (x(index) + CELL.0 / 2.0, MARGIN.1 - 8.0);
        drawing.text("tick", at, Anchor::Middle, &value.to_string());
    }
    for (index, value) in rows.iter().enumerate() {
        let at = (MARGIN.0 - 8.0, y(index) + CELL.1 / 2.0 + 4.0);
        drawing.text("tick", at, Anchor::End, &value.to_string());
    }
    let most = map.iter().map(|spot| spot.value).fold(0.0, f64::max);
    for spot in map {
        let at = |values: &[f64], value: f64| values.iter().position(|v| *v == value).unwrap_or(0);
        let corner = (x(at(&columns, spot.context.1)), y(at(&rows, spot.batch.1)));
        cell(&mut drawing, corner, spot, most);
    }
    let about = cut(&format!("{}; {others}", entry.who()), 240);
    let svg = drawing.finish(true);
    Figure { title, about, svg, scroll: true, table: Some(table(map)), ..Figure::default() }
}

fn cell(drawing: &mut Drawing, (x, y): (f64, f64), spot: &Spot<'_>, most: f64) {
    let Measured { entry, metric, samples } = spot.rate;
    // Ten shades, which the style sheet defines by name.
    let shade = if most > 0.0 { (spot.value / most * 9.0).round().clamp(0.0, 9.0) } else { 0.0 };
    let tone = if shade > 5.0 { " inv" } else { "" };
    let share = entry.row.share_of_limit;
    let invalid = entry.row.invalid().is_some();
    let limit = entry.row.limit.as_deref().unwrap_or("limit");
    let of_limit = share.map(|s| format!(", {} of {limit}", percent(s))).unwrap_or_default();
    let rate = with_unit(spot.value, samples.unit());
    drawing.open(&format!("{}: {metric} {rate}{of_limit}{}", entry.case(), entry.invalid_note()));
    drawing.rect(&format!("cell h{shade:.0}"), (x + 1.0, y + 1.0), (CELL.0 - 2.0, CELL.1 - 2.0));
    if !invalid && share.is_some_and(|s| s >= NEAR) {
        drawing.rect(&format!("near{tone}"), (x + 3.5, y + 3.5), (CELL.0 - 7.0, CELL.1 - 7.0));
    }
    let middle = x + CELL.0 / 2.0;
    let rate = format!("{}{}", if invalid { "! " } else { "" }, plain(spot.value));
    drawing.text(&format!("cellname{tone}"), (middle, y + 20.0), Anchor::Middle, &rate);
    let share = share.map_or("–".to_owned(), percent);
    drawing.text(&format!("cellshare{tone}"), (middle, y + 35.0), Anchor::Middle, &share);
    drawing.close();
}

fn table(map: &[Spot<'_>]) -> Table {
    let (batch, context) = (map[0].batch.0, map[0].context.0);
    let mut table = Table::of_chart(&format!("case,#{batch},#{context},#rate,#of limit,limit,"));
    for spot in map {
        let Measured { entry, samples, .. } = spot.rate;
        table.rows.push(vec![
            entry.case_cell(),
            spot.batch.1.to_string().into(),
            spot.context.1.to_string().into(),
            with_unit(spot.value, samples.unit()).into(),
            entry.row.share_of_limit.map(number::percent).unwrap_or_default().into(),
            entry.row.limit.clone().unwrap_or_default().into(),
            entry.invalid_cell(),
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
        let svg = &figures[0].svg;
        assert!(svg.contains("cell h9") && svg.contains("cell h2"), "{svg}");
        assert!(figures[0].about.contains("threads 1") && figures[0].title.contains("tokens/s"));
    }

    #[test]
    fn without_two_cells_there_is_no_map() {
        for rows in [vec![], vec![case(Some(1), 64, 1.0, 1)], vec![row("a", &[1.0]), row("b", &[1.0])]] {
            let runs = [run("forward", rows)];
            assert!(section(&Subjects::new(&runs), Detail::FULL).is_none());
        }
    }

    #[test]
    fn each_run_has_a_map_of_its_own() {
        let rows = || vec![case(Some(1), 64, 10.0, 1), case(Some(8), 64, 40.0, 1)];
        let mut runs = [run("forward", rows()), run("forward", rows())];
        runs[1].engine.name = "other".into();
        let section = section(&Subjects::new(&runs), Detail::FULL).unwrap();
        assert_eq!(section.groups[0].figures.len(), 2);
    }

    #[test]
    fn cells_near_their_limit_are_outlined_if_they_may_be_believed() {
        let at = |batch: u32, share: f64, checked: bool| {
            let row = case(Some(batch), 64, 1.0, 1).limit("read_bandwidth", Some(share));
            Row { checked, ..row }
        };
        let outlined = |share: f64, checked: bool| {
            let runs = [run("forward", vec![at(1, 0.5, true), at(8, share, checked)])];
            let section = section(&Subjects::new(&runs), Detail::FULL).unwrap();
            section.groups[0].figures[0].svg.matches("class=\"near").count()
        };
        assert_eq!([outlined(0.8, true), outlined(0.79, true), outlined(0.9, false)], [1, 0, 0]);
    }
}
