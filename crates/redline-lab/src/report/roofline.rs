//! The roofline: the computing rate of each case by operations per byte, below the measured limits of the machine.

use super::page::{Figure, Group, Key, Section, Table, colour};
use super::quantity::{percent, with_unit};
use super::subject::{Entry, Subjects, UNKNOWN, distinct, gather};
use super::svg::{Anchor, Drawing, Scale};
use crate::stats::Samples;
use redline_system::number;

const SIZE: (f64, f64) = (640.0, 430.0);
/// Left, right, top, bottom of the plot.
const PLOT: (f64, f64, f64, f64) = (62.0, 624.0, 34.0, 378.0);
/// Minimum distance between labels of ceilings.
const APART: f64 = 20.0;

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

/// The limits of a machine with a given number of threads.
#[derive(Debug, PartialEq)]
struct Roof {
    /// Readings of the bandwidth: lowest, median, highest.
    bandwidth: [f64; 3],
    /// The median rate of each arithmetic, the lowest first; not empty.
    peaks: Vec<(String, f64)>,
}

/// One plot per machine and number of threads; `None` if no run has limits.
pub(super) fn section(subjects: &Subjects<'_>) -> Option<Section> {
    let key = |entry: &Entry<'_>| (entry.subject.machine, entry.param("threads"));
    let mut figures = Vec::new();
    for group in gather(subjects.entries(), |group, entry| key(&group[0]) == key(entry)) {
        let Some(roof) = Roof::of(&group) else { continue };
        let points: Vec<Point<'_>> = group.iter().filter_map(|entry| point(*entry)).collect();
        let threads = match group[0].param("threads").as_deref() {
            Some("1") => "1 thread".to_owned(),
            Some(threads) => format!("{threads} threads"),
            None => "threads unknown".to_owned(),
        };
        let machine = subjects.machines[group[0].subject.machine].summary();
        figures.push(figure(format!("{threads}, {}", machine.unwrap_or(UNKNOWN)), &roof, &points));
    }
    if figures.is_empty() {
        return None;
    }
    let mut notes = vec![
        "Ceilings are medians of what was measured with the same threads around the samples (where no case was held against a \
         limit: by the lane limits); the dotted lines are the lowest and the highest reading of the bandwidth."
            .to_owned(),
        "A mark stands at its share of its own roof, so a case that mixes arithmetics stands below the line of its weights \
         even at 100 %. Its stroke is the 95 % interval of the share, or reaches from the slowest to the fastest sample where there are too few \
         for one; hollow marks must not be believed."
            .to_owned(),
    ];
    let without_mark = |entry: &Entry<'_>| entry.row.share_of_limit.is_some() && point(*entry).is_none();
    let omitted = subjects.entries().filter(without_mark).count();
    if omitted > 0 {
        let rows = number::count(omitted, "row");
        notes.push(format!(
            "{rows} with a share of a limit could not be drawn: bytes or operations are missing."
        ));
    }
    let groups = vec![Group { figures, ..Group::default() }];
    let intro = "What each case computes per second against what it must read: below the slope it waits for memory, below a \
                 flat line for arithmetic.";
    Some(Section { id: "roofline", title: "Roofline", intro, groups, notes })
}

/// The point of a row, if its work and its limits are known.
fn point(entry: Entry<'_>) -> Option<Point<'_>> {
    let (work, ceilings) = (entry.row.work?, entry.row.ceilings.as_ref()?);
    let operations = work.all_operations();
    let (intensity, roof) = (operations / work.bytes, operations / ceilings.limits().seconds(work));
    let positive = |value: f64| (value.is_finite() && value > 0.0).then_some(value);
    let samples = entry.row.samples_of("share");
    let share = entry.row.share_of_limit.or_else(|| samples.and_then(Samples::median)).and_then(positive)?;
    let place = (positive(intensity)?, positive(roof * share)?);
    let interval = samples.and_then(Samples::interval).map(|i| (i.low, i.high));
    let ends = interval.or_else(|| samples.and_then(|s| s.min().zip(s.max()))).filter(|(low, _)| *low > 0.0);
    let format = entry.param("format").or_else(|| ceilings.arithmetic.clone());
    let kind = format!("{}, {}", entry.subject.run.lane, format.as_deref().unwrap_or("any format"));
    Some(Point { entry, place, spread: ends.map(|(low, high)| (roof * low, roof * high)), share, kind })
}

/// The lowest reading, the median and the highest.
fn readings(readings: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let readings = readings.filter(|reading| reading.is_finite() && *reading > 0.0).collect();
    let samples = Samples::new("", crate::Direction::Info, readings).ok()?;
    Some([samples.min()?, samples.median()?, samples.max()?])
}

/// Readings of the highest value measured by the lane `limits`, over all its methods.
fn readings_of_lane(group: &[Entry<'_>], metric: &str) -> Option<[f64; 3]> {
    let rows = group.iter().filter(|e| e.subject.run.lane == "limits" && e.row.invalid().is_none());
    let samples = rows.filter_map(|e| e.row.samples_of(metric));
    let headline = |samples: &Samples| samples.headline().unwrap_or(0.0);
    let best = samples.max_by(|a, b| headline(a).total_cmp(&headline(b)))?;
    // GB/s and GOP/s.
    readings(best.values().iter().map(|value| value * 1e9))
}

impl Roof {
    /// The limits from the readings around samples; missing ones from the lane `limits`.
    fn of(group: &[Entry<'_>]) -> Option<Self> {
        let around: Vec<_> = group.iter().filter_map(|entry| entry.row.ceilings.as_ref()).collect();
        let bandwidth = readings(around.iter().map(|c| c.bandwidth));
        let bandwidth = bandwidth.or_else(|| readings_of_lane(group, "read_bandwidth"))?;
        let used = around.iter().filter_map(|c| c.arithmetic.clone());
        let measured = group.iter().filter(|e| e.subject.run.lane == "limits");
        let names = distinct(used.chain(measured.filter_map(|e| e.param("arithmetic"))));
        let peak = |name: String| {
            let of_name = around.iter().filter(|c| c.arithmetic.as_ref() == Some(&name));
            let [_, peak, _] = readings(of_name.map(|c| c.peak))
                .or_else(|| readings_of_lane(group, &format!("{name}_peak")))?;
            Some((name, peak))
        };
        let mut peaks: Vec<(String, f64)> = names.into_iter().filter_map(peak).collect();
        peaks.sort_by(|a, b| a.1.total_cmp(&b.1));
        (!peaks.is_empty()).then_some(Self { bandwidth, peaks })
    }

    /// The lowest and the highest peak.
    fn peak_range(&self) -> (f64, f64) {
        (self.peaks[0].1, self.peaks[self.peaks.len() - 1].1)
    }
}

/// Both axes of a plot.
struct Axes {
    /// Operations per byte.
    x: Scale,
    /// Operations per second.
    y: Scale,
}

fn figure(title: String, roof: &Roof, points: &[Point<'_>]) -> Figure {
    let kinds = distinct(points.iter().map(|point| point.kind.as_str()));
    let label = format!("Roofline, {title}: {}", number::count(points.len(), "case"));
    let mut drawing = Drawing::new("chart roof", SIZE, &label);
    let axes = Axes::of(roof, points);
    axes.draw(&mut drawing);
    axes.ceilings(&mut drawing, roof);
    for point in points {
        let series = kinds.iter().position(|kind| *kind == point.kind).unwrap_or(0);
        axes.mark(&mut drawing, series, point);
    }
    axes.names(&mut drawing, roof);
    let keys = kinds.iter().enumerate().map(|(series, kind)| Key::mark(series, *kind)).collect();
    let about =
        if points.is_empty() { "No case at this number of threads has a record of its work." } else { "" };
    let (about, svg) = (about.to_owned(), drawing.finish());
    Figure { title, about, svg, keys, table: Some(table(points)), ..Figure::default() }
}

impl Axes {
    fn of(roof: &Roof, points: &[Point<'_>]) -> Self {
        let [_, bandwidth, _] = roof.bandwidth;
        let (lowest, highest) = roof.peak_range();
        let (x, y) = (|p: &Point<'_>| p.place.0, |p: &Point<'_>| p.place.1);
        let foot = |p: &Point<'_>| p.spread.map_or(y(p), |(low, _)| low.min(y(p)));
        let left = points.iter().map(x).fold(lowest / bandwidth / 4.0, f64::min);
        let right = points.iter().map(x).fold(highest / bandwidth * 2.0, f64::max);
        let bottom = points.iter().map(foot).fold((bandwidth * left * 2.0).min(lowest / 4.0), f64::min);
        let top = points.iter().map(y).fold(highest, f64::max);
        let (x0, x1, y0, y1) = PLOT;
        let x = Scale::log((left / 1.6, right * 1.6), (x0, x1));
        Self { x, y: Scale::log((bottom / 1.6, top * 2.2), (y1, y0)) }
    }

    fn draw(&self, drawing: &mut Drawing) {
        let (x0, x1, y0, y1) = PLOT;
        drawing.rows(&self.y, 6, (x0, x1), 6.0);
        drawing.columns(&self.x, 7, (y0, y1), 18.0);
        drawing.line("axis", (x0, y1), (x1, y1));
        drawing.text("axislabel", (4.0, 18.0), Anchor::Start, "operations per second");
        drawing.text("axislabel", (x1, SIZE.1 - 10.0), Anchor::End, "operations per byte read");
    }

    /// The line of a rate in bytes per second: it rises with the operations per byte, from the edge of the plot to its ridge
    /// at `top`.
    fn slope(&self, rate: f64, top: f64) -> [(f64, f64); 2] {
        let begin = self.x.low().max(self.y.low() / rate);
        [begin, top / rate].map(|intensity| (self.x.at(intensity), self.y.at(rate * intensity)))
    }

    fn ceilings(&self, drawing: &mut Drawing, roof: &Roof) {
        let ([low, bandwidth, high], (_, top)) = (roof.bandwidth, roof.peak_range());
        for (class, rate) in [("band", low), ("band", high), ("ceiling", bandwidth)] {
            drawing.polyline(class, &self.slope(rate, top));
        }
        for (_, peak) in &roof.peaks {
            let height = self.y.at(*peak);
            drawing.line("ceiling", (self.x.at(peak / bandwidth), height), (PLOT.1, height));
        }
    }

    /// Draws the names of the ceilings on top of everything else.
    fn names(&self, drawing: &mut Drawing, roof: &Roof) {
        let [_, bandwidth, _] = roof.bandwidth;
        let [(fx, fy), (tx, ty)] = self.slope(bandwidth, roof.peak_range().1);
        let angle = (fy - ty).atan2(tx - fx);
        let place = (fx + 12.0, (fy - 12.0 * angle.tan() - 8.0).max(PLOT.2));
        let text = format!("read {}/s", rate_text(bandwidth, "B"));
        drawing.text_along("roofname", place, angle.to_degrees(), &text);
        let mut last = f64::INFINITY;
        for (name, peak) in &roof.peaks {
            last = (self.y.at(*peak) - 6.0).min(last - APART);
            let text = format!("{name} {}/s", rate_text(*peak, "OP"));
            drawing.text("roofname", (PLOT.1 - 4.0, last), Anchor::End, &text);
        }
    }

    fn mark(&self, drawing: &mut Drawing, series: usize, point: &Point<'_>) {
        let at = (self.x.at(point.place.0), self.y.at(point.place.1));
        if let Some((low, high)) = point.spread {
            let class = format!("whisker {}", colour(series));
            drawing.line(&class, (at.0, self.y.at(low)), (at.0, self.y.at(high)));
        }
        let entry = &point.entry;
        let title = format!(
            "{} ({}): {}/s at {} operations per byte, {} of {}{}",
            entry.case(),
            entry.who(),
            rate_text(point.place.1, "OP"),
            number::short(point.place.0),
            percent(point.share),
            entry.row.limit.as_deref().unwrap_or("its limit"),
            entry.invalid_note(),
        );
        drawing.mark(series, &entry.mark_class(series), at, &title);
    }
}

fn rate_text(rate: f64, unit: &str) -> String {
    let (factor, prefix) = if rate >= 1e12 { (1e-12, "T") } else { (1e-9, "G") };
    format!("{} {prefix}{unit}", number::short(rate * factor))
}

fn table(points: &[Point<'_>]) -> Table {
    let mut table = Table::of_chart("case,run,#bytes,#operations,#per byte,#OP/s,#of limit,limit,");
    for point in points {
        let work = point.entry.row.work.unwrap_or_default();
        table.rows.push(vec![
            point.entry.case_cell(),
            point.entry.who().into(),
            with_unit(work.bytes, "bytes").into(),
            number::short(work.all_operations()).into(),
            number::short(point.place.0).into(),
            rate_text(point.place.1, "OP").into(),
            number::percent(point.share).into(),
            point.entry.row.limit.clone().unwrap_or_default().into(),
            point.entry.invalid_cell(),
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
        let point = point(subjects.entries().next().unwrap()).unwrap();
        // 1 GB at 10 GB/s takes 0.1 s, so 4 GOP run at 40 GOP/s at best.
        assert_eq!((point.place, point.share), ((4.0, 20e9), 0.5));
        let section = section(&subjects).unwrap();
        let svg = &section.groups[0].figures[0].svg;
        for text in ["50 % of", "int8 100.0 GOP/s", "read 10.00 GB/s"] {
            assert!(svg.contains(text), "{svg}");
        }
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
            let notes = section(&subjects).unwrap().notes;
            assert!(notes.last().unwrap().starts_with("1 row with a share"), "{notes:?}");
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
        let roof = Roof::of(&group).unwrap();
        assert_eq!((roof.bandwidth[1], roof.peaks), (10e9, vec![("f32".to_owned(), 60e9)]));
        assert!(section(&subjects).unwrap().groups[0].figures[0].about.starts_with("No case"));
    }

    #[test]
    fn no_ceiling_is_made_of_what_must_not_be_believed() {
        let read = |case: &str, rate: f64, checked: bool| {
            let samples = Samples::new("GB/s", Direction::Higher, vec![rate]).unwrap();
            Row { checked, ..Row::new(case).metric("read_bandwidth", samples) }
        };
        let runs = [run("limits", vec![read("read/a", 8.0, true), read("read/b", 99.0, false)])];
        let subjects = Subjects::new(&runs);
        let group: Vec<Entry<'_>> = subjects.entries().collect();
        assert_eq!(readings_of_lane(&group, "read_bandwidth"), Some([8e9; 3]));
    }

    #[test]
    fn what_was_read_around_samples_comes_before_the_lane_limits() {
        let reading = Samples::new("GB/s", Direction::Higher, vec![99.0]).unwrap();
        let limits = Row { checked: true, ..Row::new("read/a").metric("read_bandwidth", reading) };
        let mut other = with_work(row("b", &[1.0]));
        let arithmetic = Some("f32".to_owned());
        other.ceilings = Some(Ceilings { bandwidth: 10e9, peak: 60e9, attention_peak: 50e9, arithmetic });
        let rows = vec![with_work(row("a", &[1.0])), other];
        let runs = [run("gemm", rows), run("limits", vec![limits])];
        let subjects = Subjects::new(&runs);
        let group: Vec<Entry<'_>> = subjects.entries().collect();
        let roof = Roof::of(&group).unwrap();
        assert_eq!(roof.bandwidth, [10e9; 3]);
        assert_eq!(roof.peak_range(), (60e9, 100e9), "the lowest first");
    }
}
