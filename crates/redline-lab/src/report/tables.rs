//! Tables of every judged metric of every row, and problems of rows.

use super::page::{Cell, Fold, Group, Section, Table};
use super::quantity::{n_text, plain, readable};
use super::subject::{Entry, Measured, Subject, Subjects, cut, distinct, gather, shown};
use redline_system::number;

/// What is wrong with a row is cut after this many characters.
const COMPLAINT: usize = 1000;

/// A table per lane and machine, with runs of the same case next to each other.
pub(super) fn section(subjects: &Subjects<'_>) -> Section {
    let mut groups = Vec::new();
    for place in distinct(subjects.runs.iter().map(Subject::place)) {
        let entries: Vec<Entry<'_>> =
            subjects.entries().filter(|entry| entry.subject.place() == place).collect();
        let title = format!("{} ({})", subjects.place(place), number::count(entries.len(), "row"));
        let folded = Fold::after(&groups);
        groups.push(Group { title, folded, tables: vec![table(entries)], ..Group::default() });
    }
    let notes = [
        "The headline is the median of the medians of the processes; its 95 % interval is Student's t over the logarithms of these \
         medians, with one process the order statistics of its median (from six samples on, else –). Mean, standard deviation \
         (divisor n − 1), least and most are over all samples.",
        "An exclamation mark before a case is a row that must not be believed or misses a gate; the line below it says why.",
        "Metrics that are reported but not judged are in the data at the end of this file, as JSON.",
    ];
    let intro = "Rows of one case stand below each other, for all engines.";
    Section { id: "results", title: "Results", intro, groups, notes: notes.map(str::to_owned).to_vec() }
}

fn table(entries: Vec<Entry<'_>>) -> Table {
    let columns = "case,run,metric,#headline,#95 % interval,#mean ± std,#min,#max,#n,#of limit,limit,kernels";
    let mut table = Table::new(String::new(), columns);
    let cases = gather(entries.into_iter(), |group, entry| group[0].row.case == entry.row.case);
    table.rows = cases.into_iter().flatten().flat_map(lines).collect();
    table
}

/// A line per judged metric, at least one, and a line for what is wrong with the row. Values of the whole row are in its first line.
fn lines(entry: Entry<'_>) -> Vec<Vec<Cell>> {
    let row = entry.row;
    let complaints = complaints(entry).join("; ");
    let before = vec![entry.case_cell(), entry.who().into()];
    let after = vec![
        row.share_of_limit.map(number::percent).unwrap_or_default().into(),
        row.limit.as_deref().map(|limit| cut(limit, 40)).unwrap_or_default().into(),
        row.kernel_path.as_deref().map(shown).unwrap_or_default().into(),
    ];
    let mut judged: Vec<Vec<Cell>> = entry.judged().map(numbers).collect();
    if judged.is_empty() {
        judged.push(vec![Cell::default(); 7]);
    }
    let blank = |cells: &[Cell]| vec![Cell::default(); cells.len()];
    let line = |(index, numbers): (usize, Vec<Cell>)| match index {
        0 => [before.clone(), numbers, after.clone()].concat(),
        _ => [blank(&before), numbers, blank(&after)].concat(),
    };
    let mut lines: Vec<Vec<Cell>> = judged.into_iter().enumerate().map(line).collect();
    if !complaints.is_empty() {
        lines.push(vec![Cell::bad_line(cut(&complaints, COMPLAINT))]);
    }
    lines
}

fn numbers(measured: Measured<'_>) -> Vec<Cell> {
    let Measured { metric, samples: s, .. } = measured;
    let (factor, unit) = readable(s.unit(), s.headline().unwrap_or_default());
    let number = |v: f64| plain(v * factor);
    let value = |v: Option<f64>| v.map_or("–".to_owned(), number);
    let interval = s.interval().map(|i| format!("{} – {}", number(i.low), number(i.high)));
    vec![
        format!("{}, {unit}", cut(metric, 40)).into(),
        value(s.headline()).into(),
        interval.unwrap_or("–".to_owned()).into(),
        format!("{} ± {}", value(s.mean()), value(s.std())).into(),
        value(s.min()).into(),
        value(s.max()).into(),
        n_text(s).into(),
    ]
}

/// The problems of a row, in words.
fn complaints(entry: Entry<'_>) -> Vec<String> {
    let invalid = entry.row.invalid().map(|why| format!("INVALID: {why}"));
    let missed = entry.row.missed().into_iter().map(|why| format!("MISSED: {why}"));
    let empty = entry.metrics().all(|measured| measured.samples.n() == 0);
    let unfinished = empty.then(|| "UNFINISHED: no samples".to_owned());
    invalid.into_iter().chain(missed).chain(unfinished).collect()
}

/// A list of all marked rows; `None` if there are none.
pub(super) fn marks(subjects: &Subjects<'_>) -> Option<Section> {
    let mut table = Table::new(String::new(), "run,lane,case,what is wrong");
    for subject in &subjects.runs {
        let lane = shown(&subject.run.lane);
        let mut add = |who: String, case: String, why: &str| {
            table.rows.push(vec![who.into(), lane.clone().into(), case.into(), Cell::bad(why)]);
        };
        if subject.run.rows.is_empty() {
            add(subject.name.clone(), String::new(), "UNFINISHED: the run holds no rows");
        }
        for row in &subject.run.rows {
            let entry = Entry { subject, row };
            for why in complaints(entry) {
                add(entry.who(), entry.case(), &cut(&why, COMPLAINT));
            }
        }
    }
    if table.rows.is_empty() {
        return None;
    }
    let intro = "Rows that must not be believed, gates that were missed, runs that did not end. They stand in the figures too, marked.";
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
        let unchecked = Row { checked: false, ..row("a", &[1.0]) };
        let bad = [
            run("score", vec![unchecked, row("b", &[1.0]).gate("rate", 2.0)]),
            run("gemm", vec![Row { checked: true, ..Row::new("c") }]),
            run("memory", Vec::new()),
        ];
        let section = marks(&Subjects::new(&bad)).unwrap();
        let problems = &section.groups[0].tables[0].rows;
        assert_eq!(problems.len(), 4);
        let results = super::section(&Subjects::new(&bad));
        let cases: Vec<&str> =
            results.groups.iter().flat_map(|g| &g.tables[0].rows).map(|row| row[0].text.as_str()).collect();
        assert_eq!(
            cases,
            [
                "! a",
                "INVALID: not checked",
                "! b",
                "MISSED: rate is 1.000, but at least 2.000 is required",
                "c",
                "UNFINISHED: no samples"
            ]
        );
        let lines = results.groups.iter().flat_map(|group| &group.tables[0].rows).filter(|row| row[0].line);
        assert!(lines.clone().count() == 3 && lines.clone().all(|row| row.len() == 1));
        let expected = [
            "INVALID: not checked",
            "MISSED: rate is 1.000",
            "UNFINISHED: no samples",
            "UNFINISHED: the run",
        ];
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem[3].text.starts_with(expected), "{problem:?}");
        }
    }

    #[test]
    fn values_of_the_whole_row_stand_in_its_first_line() {
        let seconds = crate::Samples::new("s", crate::Direction::Lower, vec![3.0, 1.0, 2.0]).unwrap();
        let two = row("a", &[1.0, 4.0]).metric("seconds", seconds).limit("f32_peak", Some(0.5));
        let runs = [run("score", vec![two])];
        let section = section(&Subjects::new(&runs));
        let rows = &section.groups[0].tables[0].rows;
        let line = |at: usize| rows[at].iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join("|");
        assert_eq!(line(0), "a|engine|rate, tokens/s|2.500|–|2.500 ± 2.121|1.000|4.000|2|50.0 %|f32_peak|");
        assert_eq!(line(1), "||seconds, s|2.000|–|2.000 ± 1.000|1.000|3.000|3|||");
    }
}
