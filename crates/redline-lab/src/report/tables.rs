//! Tables of every judged metric of every row, and problems of rows.

use super::page::{Cell, Fold, Group, Section, Table};
use super::quantity::{n_text, plain, readable};
use super::subject::{Entry, Subjects, cut, distinct, shown};
use crate::number;
use crate::stats::{Direction, Samples};

/// A table per lane and machine, with runs of the same case next to each other.
pub(super) fn section(subjects: &Subjects<'_>) -> Section {
    let entries: Vec<Entry<'_>> = subjects.entries().collect();
    let mut groups = Vec::new();
    for (lane, machine) in distinct(subjects.runs.iter().map(|s| (s.run.lane.as_str(), s.machine))) {
        let here =
            |entry: &&Entry<'_>| (entry.subject.run.lane.as_str(), entry.subject.machine) == (lane, machine);
        let of_lane: Vec<Entry<'_>> = entries.iter().filter(here).copied().collect();
        let title = format!("{} ({})", subjects.place(lane, machine), number::count(of_lane.len(), "row"));
        let folded = if groups.is_empty() { Fold::Open } else { Fold::Shut };
        groups.push(Group { title, folded, tables: vec![table(&of_lane)], ..Group::default() });
    }
    let notes = vec![
        "The headline is the median of the medians of the processes; its 95 % interval is Student's t over the logarithms of these \
         medians, with one process the order statistics of its median (from six samples on, else –). Mean, standard deviation \
         (divisor n − 1), least and most are over all samples."
            .to_owned(),
        "An exclamation mark before a case is a row that must not be believed or misses a gate; its last column says why."
            .to_owned(),
        "Metrics that are told and not judged stand in the data at the end of this file, as JSON.".to_owned(),
    ];
    let intro = "Rows of one case stand below each other, for all engines.".to_owned();
    Section { id: "results", title: "Results", intro, groups, notes }
}

fn table(entries: &[Entry<'_>]) -> Table {
    let columns = [
        ("case", false),
        ("run", false),
        ("metric", false),
        ("headline", true),
        ("95 % interval", true),
        ("mean ± std", true),
        ("min", true),
        ("max", true),
        ("n", true),
        ("of limit", true),
        ("limit", false),
        ("kernels", false),
        ("marks", false),
    ];
    let mut table = Table::new(String::new(), &columns);
    for case in distinct(entries.iter().map(|entry| entry.row.case.as_str())) {
        for entry in entries.iter().filter(|entry| entry.row.case == case) {
            table.rows.extend(lines(*entry));
        }
    }
    table
}

/// A line per judged metric, at least one. Values of the whole row are in its first line.
fn lines(entry: Entry<'_>) -> Vec<Vec<Cell>> {
    let row = entry.row;
    let metrics = row.metrics.iter().map(|(name, metric)| (name, metric.samples()));
    let mut judged: Vec<Vec<Cell>> = metrics
        .filter(|(_, samples)| samples.direction() != Direction::Info)
        .map(|(name, samples)| numbers(name, samples))
        .collect();
    if judged.is_empty() {
        judged.push(vec![Cell::default(); 7]);
    }
    let whole = |index: usize, text: String| Cell::from(if index == 0 { text } else { String::new() });
    let line = |(index, numbers): (usize, Vec<Cell>)| {
        let case = if index == 0 { entry.case_cell() } else { Cell::default() };
        let mut cells = vec![case, whole(index, entry.who())];
        cells.extend(numbers);
        cells.push(whole(index, row.share_of_limit.map(number::percent).unwrap_or_default()));
        cells.push(whole(index, row.limit.as_deref().map(|l| cut(l, 40)).unwrap_or_default()));
        cells.push(whole(index, row.kernel_path.as_deref().map(shown).unwrap_or_default()));
        let complaints = complaints(entry).join("; ");
        let marked = index == 0 && !complaints.is_empty();
        cells.push(if marked { Cell::bad(cut(&complaints, 300)) } else { Cell::default() });
        cells
    };
    judged.into_iter().enumerate().map(line).collect()
}

fn numbers(name: &str, s: &Samples) -> Vec<Cell> {
    let (factor, unit) = readable(s.unit(), s.headline().unwrap_or_default());
    let value = |v: Option<f64>| v.map_or("–".to_owned(), |v| plain(v * factor));
    let interval = s.interval();
    let interval = interval.map(|i| format!("{} – {}", plain(i.low * factor), plain(i.high * factor)));
    vec![
        format!("{}, {unit}", cut(name, 40)).into(),
        value(s.headline()).into(),
        interval.unwrap_or("–".to_owned()).into(),
        format!("{} ± {}", value(s.mean()), value(s.std())).into(),
        value(s.min()).into(),
        value(s.max()).into(),
        n_text(s).into(),
    ]
}

/// The problems of a row, in words.
pub(super) fn complaints(entry: Entry<'_>) -> Vec<String> {
    let invalid = entry.row.invalid().map(|why| format!("INVALID: {why}"));
    let missed = entry.row.missed().into_iter().map(|why| format!("MISSED: {why}"));
    let empty = entry.row.metrics.iter().all(|(_, metric)| metric.samples().n() == 0);
    let unfinished = empty.then(|| "UNFINISHED: no samples".to_owned());
    invalid.into_iter().chain(missed).chain(unfinished).collect()
}

/// A list of all marked rows; `None` if there are none.
pub(super) fn marks(subjects: &Subjects<'_>) -> Option<Section> {
    let columns = [("run", false), ("lane", false), ("case", false), ("what is wrong", false)];
    let mut table = Table::new(String::new(), &columns);
    for subject in &subjects.runs {
        let lane = shown(&subject.run.lane);
        if subject.run.rows.is_empty() {
            let why = Cell::bad("UNFINISHED: the run holds no rows");
            table.rows.push(vec![subject.name.clone().into(), lane.clone().into(), "".into(), why]);
        }
        for row in &subject.run.rows {
            let entry = Entry { subject, row };
            for why in complaints(entry) {
                let cells = vec![
                    entry.who().into(),
                    lane.clone().into(),
                    entry.case().into(),
                    Cell::bad(cut(&why, 300)),
                ];
                table.rows.push(cells);
            }
        }
    }
    if table.rows.is_empty() {
        return None;
    }
    let intro = "Rows that must not be believed, gates that were missed, runs that did not end. They stand in the figures too, marked."
        .to_owned();
    let title = number::count(table.rows.len(), "mark");
    let folded = if table.rows.len() > 12 { Fold::Shut } else { Fold::Open };
    let groups = vec![Group { title, folded, tables: vec![table], ..Group::default() }];
    Some(Section { id: "marks", title: "What is marked", intro, groups, notes: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Row;
    use crate::report::tests::{row, run};

    #[test]
    fn runs_of_one_case_stand_below_each_other() {
        let mut runs = [
            run("score", vec![row("a", &[1.0, 2.0]), row("b", &[1.0])]),
            run("score", vec![row("a", &[3.0])]),
        ];
        runs[1].engine.name = "other".into();
        let section = section(&Subjects::new(&runs));
        let table = &section.groups[0].tables[0];
        let names: Vec<_> = table.rows.iter().map(|r| (r[0].text.as_str(), r[1].text.as_str())).collect();
        assert_eq!(names, [("a", "engine"), ("a", "other"), ("b", "engine")]);
        assert_eq!((table.rows[0][5].text.as_str(), table.rows[0][4].text.as_str()), ("1.500 ± 0.7071", "–"));
    }

    #[test]
    fn what_is_wrong_is_listed() {
        let good = [run("score", vec![row("a", &[1.0])])];
        assert!(marks(&Subjects::new(&good)).is_none());
        let bad = [
            run(
                "score",
                vec![Row { checked: false, ..row("a", &[1.0]) }, row("b", &[1.0]).gate("rate", 2.0)],
            ),
            run("gemm", vec![Row { checked: true, ..Row::new("c") }]),
            run("memory", Vec::new()),
        ];
        let section = marks(&Subjects::new(&bad)).unwrap();
        let told: Vec<&str> =
            section.groups[0].tables[0].rows.iter().map(|row| row[3].text.as_str()).collect();
        assert_eq!(told.len(), 4);
        let results = super::section(&Subjects::new(&bad));
        let cases: Vec<&str> =
            results.groups.iter().flat_map(|g| &g.tables[0].rows).map(|row| row[0].text.as_str()).collect();
        assert_eq!(cases, ["! a", "! b", "c"]);
        for (told, expected) in told.iter().zip([
            "INVALID: not checked",
            "MISSED: rate is 1",
            "UNFINISHED: no samples",
            "UNFINISHED: the run",
        ]) {
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
