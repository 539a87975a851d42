//! The roofline: the computing rate of each case by operations per byte, below the measured limits of the machine.

use super::page::{Cell, Figure, Group, Key, Section, Table, colour};
use super::quantity::{percent, tick, with_unit};
use super::subject::{Entry, Subjects, distinct};
use super::svg::{Anchor, Drawing, Scale};
use crate::number;
use crate::result::Metric;
use crate::stats::Samples;

const SIZE: (f64, f64) = (640.0, 430.0);
/// Left, right, top, bottom of the plot.
const PLOT: (f64, f64, f64, f64) = (62.0, 624.0, 34.0, 378.0);
/// Minimum distance between labels of ceilings.
const APART: f64 = 20.0;

/// A case in the plot.
#[derive(Debug)]
struct Point<'a> {
    entry: Entry<'a>,
    /// Operations per byte, and operations per second.
    place: (f64, f64),
    /// Its interval; if there is none, the slowest and the fastest sample.
    spread: Option<(f64, f64)>,
    share: f64,
    kind: String,
}

/// Readings of one limit.
#[derive(Clone, Debug, PartialEq)]
struct Ceiling {
    name: String,
    low: f64,
    middle: f64,
    high: f64,
}

/// The limits of a machine with a given number of threads.
#[derive(Debug, Default, PartialEq)]
struct Roof {
    bandwidth: Option<Ceiling>,
    peaks: Vec<Ceiling>,
}

/// One plot per machine and number of threads; `None` if no run has limits.
pub(super) fn section(subjects: &Subjects<'_>) -> Option<Section> {
    let entries: Vec<Entry<'_>> = subjects.entries().collect();
    let key = |entry: &Entry<'_>| (entry.subject.machine, entry.param("threads"));
    let mut figures = Vec::new();
    for (machine, threads) in distinct(entries.iter().map(key)) {
        let group: Vec<Entry<'_>> =
            entries.iter().filter(|e| key(e) == (machine, threads.clone())).copied().collect();
        let roof = Roof::of(&group);
        let points: Vec<Point<'_>> = group.iter().filter_map(|entry| point(*entry)).collect();
        let Some(bandwidth) = &roof.bandwidth else { continue };
        if roof.peaks.is_empty() {
            continue;
        }
        let threads = match threads.as_deref() {
            Some("1") => "1 thread".to_owned(),
            Some(threads) => format!("{threads} threads"),
            None => "threads not told".to_owned(),
        };
        let title = format!("{threads}, {}", subjects.machines[machine].summary);
        figures.push(figure(title, bandwidth, &roof, &points));
    }
    if figures.is_empty() {
        return None;
    }
    let silent = entries.iter().filter(|e| e.row.share_of_limit.is_some() && point(**e).is_none()).count();
    let mut notes = vec![
        "Ceilings are medians of what was measured with the same threads around the samples (where no case was held against a \
         limit: by the lane limits); the dotted lines are the lowest and the highest reading of the bandwidth."
            .to_owned(),
        "A mark stands at its share of its own roof, so a case that mixes arithmetics stands below the line of its weights \
         even at 100 %. Its stroke is the 95 % interval of the share, or reaches from the slowest to the fastest sample where there are too few \
         for one; hollow marks must not be believed."
            .to_owned(),
    ];
    if silent > 0 {
        let rows = number::count(silent, "row");
        notes.push(format!(
            "{rows} with a share of a limit told neither bytes nor operations, and have no mark."
        ));
    }
    let groups = vec![Group { figures, ..Group::default() }];
    let intro = "What each case computes per second against what it must read: below the slope it waits for memory, below a \
                 flat line for arithmetic."
        .to_owned();
    Some(Section { id: "roofline", title: "Roofline", intro, groups, notes })
}

/// The point of a row, if its work and its limits are known.
fn point(entry: Entry<'_>) -> Option<Point<'_>> {
    let (work, ceilings) = (entry.row.work?, entry.row.ceilings.as_ref()?);
    let least = ceilings.limits().seconds(work);
    let operations = work.all_operations();
    let (intensity, roof) = (operations / work.bytes, operations / least);
    let positive = |value: f64| (value.is_finite() && value > 0.0).then_some(value);
    let samples = entry.row.metrics.get("share").map(Metric::samples);
    let share = entry.row.share_of_limit.or_else(|| samples.and_then(Samples::median)).and_then(positive)?;
    let place = (positive(intensity)?, positive(roof * share)?);
    let interval = samples.and_then(Samples::interval).map(|i| (i.low, i.high));
    let ends = interval.or_else(|| samples.and_then(|s| s.min().zip(s.max()))).filter(|(low, _)| *low > 0.0);
    let format = entry.param("format").or_else(|| ceilings.arithmetic.clone());
    let kind = format!("{}, {}", entry.subject.run.lane, format.as_deref().unwrap_or("any format"));
    Some(Point { entry, place, spread: ends.map(|(low, high)| (roof * low, roof * high)), share, kind })
}

impl Ceiling {
    fn of(name: &str, mut readings: Vec<f64>) -> Option<Self> {
        readings.retain(|reading| reading.is_finite() && *reading > 0.0);
        let samples = Samples::new("", crate::Direction::Info, readings).ok()?;
        let (low, middle, high) = (samples.min()?, samples.median()?, samples.max()?);
        Some(Self { name: name.to_owned(), low, middle, high })
    }
}

impl Roof {
    /// The limits from the readings around samples; missing ones from the lane `limits`.
    fn of(group: &[Entry<'_>]) -> Self {
        let around: Vec<_> = group.iter().filter_map(|entry| entry.row.ceilings.as_ref()).collect();
        let bandwidth = Ceiling::of("read", around.iter().map(|c| c.bandwidth).collect());
        let names = distinct(around.iter().filter_map(|c| c.arithmetic.as_deref()));
        let peak = |name: &&str| {
            let of = around.iter().filter(|c| c.arithmetic.as_deref() == Some(*name));
            Ceiling::of(name, of.map(|c| c.peak).collect())
        };
        let mut peaks: Vec<Ceiling> = names.iter().filter_map(peak).collect();
        let bandwidth = bandwidth.or_else(|| lane_ceiling(group, "read", "read_bandwidth"));
        let lane = group.iter().filter(|e| e.subject.run.lane == "limits");
        for arithmetic in distinct(lane.filter_map(|e| e.param("arithmetic"))) {
            if peaks.iter().all(|peak| peak.name != arithmetic) {
                peaks.extend(lane_ceiling(group, &arithmetic, &format!("{arithmetic}_peak")));
            }
        }
        peaks.sort_by(|a, b| a.middle.total_cmp(&b.middle));
        Self { bandwidth, peaks }
    }
}

/// The highest value measured by the lane `limits`, over all its methods.
fn lane_ceiling(group: &[Entry<'_>], name: &str, metric: &str) -> Option<Ceiling> {
    let rows = group.iter().filter(|e| e.subject.run.lane == "limits" && e.row.invalid().is_none());
    let best = rows.filter_map(|e| Some(e.row.metrics.get(metric)?.samples()));
    let best = best.max_by(|a, b| a.headline().unwrap_or(0.0).total_cmp(&b.headline().unwrap_or(0.0)))?;
    // GB/s and GOP/s.
    Ceiling::of(name, best.values().iter().map(|value| value * 1e9).collect())
}

fn figure(title: String, bandwidth: &Ceiling, roof: &Roof, points: &[Point<'_>]) -> Figure {
    let kinds = distinct(points.iter().map(|point| point.kind.as_str()));
    let label = format!("Roofline, {title}: {}", number::count(points.len(), "case"));
    let mut drawing = Drawing::new("chart roof", SIZE, &label);
    let (x, y) = scales(bandwidth, roof, points);
    axes(&mut drawing, &x, &y);
    ceilings(&mut drawing, (&x, &y), bandwidth, roof);
    for point in points {
        let series = kinds.iter().position(|kind| *kind == point.kind).unwrap_or(0);
        mark(&mut drawing, (&x, &y), series, point);
    }
    names(&mut drawing, (&x, &y), bandwidth, roof);
    let keys = kinds.iter().enumerate().map(|(series, kind)| Key::mark(series, *kind)).collect();
    let about = if points.is_empty() {
        "No case at this number of threads told its work.".to_owned()
    } else {
        String::new()
    };
    let svg = drawing.finish(false);
    Figure { title, about, svg, keys, table: Some(table(points)), ..Figure::default() }
}

fn scales(bandwidth: &Ceiling, roof: &Roof, points: &[Point<'_>]) -> (Scale, Scale) {
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let (lowest, highest) =
        (roof.peaks.first().map_or(1.0, |p| p.middle), roof.peaks.last().map_or(1.0, |p| p.middle));
    let ridges = (lowest / bandwidth.middle, highest / bandwidth.middle);
    let left = least(&mut points.iter().map(|p| p.place.0)).min(ridges.0 / 4.0);
    let right = most(&mut points.iter().map(|p| p.place.0)).max(ridges.1 * 2.0);
    let bottom = least(&mut points.iter().map(|p| p.spread.map_or(p.place.1, |s| s.0.min(p.place.1))));
    let top = most(&mut points.iter().map(|p| p.place.1)).max(highest);
    let bottom = bottom.min(bandwidth.middle * left * 2.0).min(lowest / 4.0);
    let (x0, x1, y0, y1) = PLOT;
    (Scale::log((left / 1.6, right * 1.6), (x0, x1)), Scale::log((bottom / 1.6, top * 2.2), (y1, y0)))
}

fn axes(drawing: &mut Drawing, x: &Scale, y: &Scale) {
    let (x0, x1, y0, y1) = PLOT;
    for value in y.ticks(6) {
        drawing.line("grid", (x0, y.at(value)), (x1, y.at(value)));
        drawing.text("tick", (x0 - 6.0, y.at(value) + 4.0), Anchor::End, &tick(value));
    }
    for value in x.ticks(7) {
        drawing.line("grid", (x.at(value), y0), (x.at(value), y1));
        drawing.text("tick", (x.at(value), y1 + 18.0), Anchor::Middle, &tick(value));
    }
    drawing.line("axis", (x0, y1), (x1, y1));
    drawing.text("axislabel", (4.0, 18.0), Anchor::Start, "operations per second");
    drawing.text("axislabel", (x1, SIZE.1 - 10.0), Anchor::End, "operations per byte read");
}

/// The line of a rate in bytes per second: it rises with the operations per byte, from the left edge to its ridge at
/// `top`.
fn slope((x, y): (&Scale, &Scale), rate: f64, top: f64) -> [(f64, f64); 2] {
    let (x0, _, _, y1) = PLOT;
    let begin = value_at(x, x0).max(value_at(y, y1) / rate);
    [(x.at(begin), y.at(rate * begin)), (x.at(top / rate), y.at(top))]
}

fn ceilings(drawing: &mut Drawing, scales: (&Scale, &Scale), bandwidth: &Ceiling, roof: &Roof) {
    let top = roof.peaks.last().map_or(1.0, |peak| peak.middle);
    for rate in [bandwidth.low, bandwidth.high] {
        drawing.polyline("band", &slope(scales, rate, top));
    }
    drawing.polyline("ceiling", &slope(scales, bandwidth.middle, top));
    for peak in &roof.peaks {
        let height = scales.1.at(peak.middle);
        drawing.line("ceiling", (scales.0.at(peak.middle / bandwidth.middle), height), (PLOT.1, height));
    }
}

/// Draws the names of the ceilings on top of everything else.
fn names(drawing: &mut Drawing, scales: (&Scale, &Scale), bandwidth: &Ceiling, roof: &Roof) {
    let top = roof.peaks.last().map_or(1.0, |peak| peak.middle);
    let [(fx, fy), (tx, ty)] = slope(scales, bandwidth.middle, top);
    let angle = (fy - ty).atan2(tx - fx);
    let place = (fx + 12.0, (fy - 12.0 * angle.tan() - 8.0).max(PLOT.2));
    let text = format!("{} {}/s", bandwidth.name, rate_text(bandwidth.middle, "B"));
    drawing.text_along("roofname", place, angle.to_degrees(), &text);
    let mut last = f64::INFINITY;
    for peak in &roof.peaks {
        last = (scales.1.at(peak.middle) - 6.0).min(last - APART);
        let text = format!("{} {}/s", peak.name, rate_text(peak.middle, "OP"));
        drawing.text("roofname", (PLOT.1 - 4.0, last), Anchor::End, &text);
    }
}

/// Finds the value at a position by bisection.
fn value_at(scale: &Scale, place: f64) -> f64 {
    let (mut low, mut high) = (1e-30_f64, 1e30_f64);
    let rising = scale.at(high) > scale.at(low);
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if (scale.at(middle) > place) == rising { high = middle } else { low = middle }
    }
    (low * high).sqrt()
}

fn rate_text(rate: f64, unit: &str) -> String {
    let (factor, prefix) = if rate >= 1e12 { (1e-12, "T") } else { (1e-9, "G") };
    format!("{} {prefix}{unit}", number::short(rate * factor))
}

fn mark(drawing: &mut Drawing, (x, y): (&Scale, &Scale), series: usize, point: &Point<'_>) {
    let at = (x.at(point.place.0), y.at(point.place.1));
    if let Some((low, high)) = point.spread {
        let class = format!("whisker {}", colour(series));
        drawing.line(&class, (at.0, y.at(low)), (at.0, y.at(high)));
    }
    let invalid = point.entry.row.invalid();
    let complaint = invalid.as_ref().map(|why| format!("; INVALID: {why}")).unwrap_or_default();
    let (entry, limit) = (&point.entry, point.entry.row.limit.as_deref().unwrap_or("its limit"));
    let title = format!(
        "{} ({}): {}/s at {} operations per byte, {} of {limit}{complaint}",
        entry.case(),
        entry.who(),
        rate_text(point.place.1, "OP"),
        number::short(point.place.0),
        percent(point.share),
    );
    let hollow = if invalid.is_some() { " hollow" } else { "" };
    drawing.mark(series, &format!("{}{hollow}", colour(series)), at, &title);
}

fn table(points: &[Point<'_>]) -> Table {
    let columns = [
        ("case", false),
        ("run", false),
        ("bytes", true),
        ("operations", true),
        ("per byte", true),
        ("OP/s", true),
        ("of limit", true),
        ("limit", false),
        ("", false),
    ];
    let mut table = Table::new("The same as numbers", &columns);
    for point in points {
        let row = point.entry.row;
        let work = row.work.unwrap_or_default();
        table.rows.push(vec![
            point.entry.case_cell(),
            point.entry.who().into(),
            with_unit(work.bytes, "bytes").into(),
            number::short(work.all_operations()).into(),
            number::short(point.place.0).into(),
            rate_text(point.place.1, "OP").into(),
            number::percent(point.share).into(),
            row.limit.clone().unwrap_or_default().into(),
            row.invalid().map(|why| Cell::bad(format!("INVALID: {why}"))).unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{row, run};
    use crate::roofline::{Ceilings, Work};
    use crate::{Direction, Row};

    fn with_work(row: Row) -> Row {
        let work = Work { bytes: 1e9, operations: 4e9, attention: 0.0 };
        let arithmetic = Some("int8".to_owned());
        let ceilings = Ceilings { bandwidth: 10e9, peak: 100e9, attention_peak: 50e9, arithmetic };
        Row { work: Some(work), ceilings: Some(ceilings), share_of_limit: Some(0.5), ..row }
    }

    #[test]
    fn a_case_stands_at_its_share_of_its_roof() {
        let runs = [run("gemm", vec![with_work(row("a", &[1.0, 2.0]).param("threads", 2))])];
        let subjects = Subjects::new(&runs);
        let found = point(subjects.entries().next().unwrap()).unwrap();
        // 1 GB at 10 GB/s takes 0.1 s, so 4 GOP run at 40 GOP/s at best.
        assert_eq!((found.place, found.share), ((4.0, 20e9), 0.5));
        let section = section(&subjects).unwrap();
        let svg = &section.groups[0].figures[0].svg;
        assert!(
            svg.contains("50 % of") && svg.contains("int8 100.0 GOP/s") && svg.contains("read 10.00 GB/s"),
            "{svg}"
        );
        roxmltree::Document::parse(svg).unwrap();
    }

    #[test]
    fn work_that_makes_no_sense_has_no_mark() {
        for work in [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (f64::MAX, 1e-300)] {
            let mut bad = with_work(row("a", &[1.0]));
            bad.work = Some(Work { bytes: work.0, operations: work.1, attention: 0.0 });
            let runs = [run("gemm", vec![bad])];
            let subjects = Subjects::new(&runs);
            assert!(point(subjects.entries().next().unwrap()).is_none(), "{work:?}");
            let told = section(&subjects).unwrap();
            assert!(told.notes.last().unwrap().starts_with("1 row with a share"), "{:?}", told.notes);
        }
    }

    #[test]
    fn the_lane_limits_gives_ceilings_alone() {
        let limit = |case: &str, metric: &str, value: f64| {
            let samples = Samples::new("GB/s", Direction::Higher, vec![value]).unwrap();
            Row { checked: true, ..Row::new(case) }.metric(metric, samples).param("threads", 1)
        };
        let rows = vec![
            limit("read/a", "read_bandwidth", 8.0),
            limit("read/b", "read_bandwidth", 10.0),
            limit("peak/a", "f32_peak", 60.0).param("arithmetic", "f32"),
        ];
        let runs = [run("limits", rows)];
        let subjects = Subjects::new(&runs);
        let group: Vec<Entry<'_>> = subjects.entries().collect();
        let roof = Roof::of(&group);
        assert_eq!(roof.bandwidth.unwrap().middle, 10e9);
        assert_eq!((roof.peaks.len(), roof.peaks[0].middle), (1, 60e9));
        assert!(section(&subjects).unwrap().groups[0].figures[0].about.starts_with("No case"));
    }
}
