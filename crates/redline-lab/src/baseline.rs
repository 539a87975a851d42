//! Comma-separated values of an earlier run as a baseline: one value per case, and the largest drop that is allowed.
//!
//! Without samples there are no intervals, so this applies only the percent rule of the seed's benchmark.
//! [`crate::compare`] compares runs that were stored with their samples.

use std::collections::BTreeMap;

use crate::result::{Column, LaneResult};
use redline_system::table::{Table, or_dash};

/// The columns of a lane's baseline, and the allowed drop.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The columns that identify a case. If the file lacks some, rows that agree in the others are one case: a single line of
    /// the file is compared with all of them, several lines with one row each, in order.
    pub keys: &'static [&'static str],
    /// The column to compare; higher is better.
    pub value: &'static str,
    /// The largest allowed drop, as a fraction.
    pub most_drop: f64,
}

/// Why a file is not a valid baseline.
#[derive(Debug, thiserror::Error)]
pub enum BadBaseline {
    /// Not comma-separated values.
    #[error("{0}")]
    Csv(csv::Error),
    /// A column is missing.
    #[error("the column `{0}` is missing")]
    Column(&'static str),
    /// All columns that identify a case are missing.
    #[error("none of the columns {} is there", .0.join(", "))]
    Keys(&'static [&'static str]),
    /// A value is not a positive number; line and text.
    #[error("line {0}: `{1}` is no positive number")]
    Value(u64, String),
    /// A second line for the same case in a file with every identifying column; its number, and the case.
    #[error("line {0}: {1} stands twice")]
    Twice(u64, String),
    /// The file has no lines.
    #[error("there is no line of values")]
    Empty,
}

/// The result for one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Within the rule.
    Ok,
    /// The value dropped by more than the rule allows.
    Regression,
    /// The case is not in the baseline.
    New,
    /// The case is in the baseline only.
    Missing,
}

impl Standing {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Regression => "REGRESSION",
            Self::New => "NEW",
            Self::Missing => "MISSING",
        }
    }
}

/// The values of a case, and the result.
#[derive(Clone, Debug, PartialEq)]
pub struct BaselineLine {
    /// The values of the identifying columns that the file has, in the order of the rule.
    pub case: Vec<String>,
    /// The value of this run.
    pub current: Option<f64>,
    /// The value in the file.
    pub baseline: Option<f64>,
    /// The result.
    pub standing: Standing,
}

/// The results of all cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Standings {
    names: Vec<&'static str>,
    value: &'static str,
    /// Cases in the order of the run, then the missing ones.
    pub lines: Vec<BaselineLine>,
}

/// Compares a run with the text of an earlier one.
pub fn compare(
    rule: &Rule,
    columns: &[&'static str],
    result: &LaneResult,
    text: &str,
) -> Result<Standings, BadBaseline> {
    let (names, mut base) = read(rule, text)?;
    let columns = Column::all(columns);
    let cell = |row, name: &str| {
        let column = columns.iter().find(|column| column.name == name);
        column.map(|column| column.cell.of(row)).unwrap_or_default()
    };
    let mut lines = Vec::new();
    for row in &result.rows {
        let case: Vec<String> = names.iter().map(|name| cell(row, name)).collect();
        let current = cell(row, rule.value).parse().ok();
        let baseline = base.get_mut(&case).and_then(BaseValues::take);
        let standing = match (current, baseline) {
            (_, None) => Standing::New,
            (Some(current), Some(baseline)) if current >= baseline * (1.0 - rule.most_drop) => Standing::Ok,
            _ => Standing::Regression,
        };
        lines.push(BaselineLine { case, current, baseline, standing });
    }
    for (case, values) in base {
        let missing = |&value| {
            let (baseline, standing) = (Some(value), Standing::Missing);
            BaselineLine { case: case.clone(), current: None, baseline, standing }
        };
        lines.extend(values.missing().iter().map(missing));
    }
    Ok(Standings { names, value: rule.value, lines })
}

/// The value of a column in the line whose column `name` is `case`; `None` if the text has no such number.
pub fn value(text: &str, case: &str, column: &str) -> Option<f64> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().ok()?.clone();
    let place = |name: &str| header.iter().position(|column| column == name);
    let (name, value) = (place("name")?, place(column)?);
    let line = reader.records().flatten().find(|record| record.get(name) == Some(case))?;
    line.get(value)?.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The identifying columns in the file, and the values of each case.
type Base = (Vec<&'static str>, BTreeMap<Vec<String>, BaseValues>);

/// The values of one case in the file, in order.
#[derive(Default)]
struct BaseValues {
    values: Vec<f64>,
    /// Number of rows that were compared.
    compared: usize,
}

impl BaseValues {
    /// The value for the next row of the run: the only one, or the next.
    fn take(&mut self) -> Option<f64> {
        let at = if self.values.len() == 1 { 0 } else { self.compared };
        self.compared += 1;
        self.values.get(at).copied()
    }

    /// The values with which no row was compared.
    fn missing(&self) -> &[f64] {
        self.values.get(self.compared..).unwrap_or_default()
    }
}

fn read(rule: &Rule, text: &str) -> Result<Base, BadBaseline> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let header = reader.headers().map_err(BadBaseline::Csv)?.clone();
    let place = |name: &str| header.iter().position(|column| column == name);
    let value_at = place(rule.value).ok_or(BadBaseline::Column(rule.value))?;
    let keys: Vec<(&'static str, usize)> =
        rule.keys.iter().filter_map(|&name| Some((name, place(name)?))).collect();
    if keys.is_empty() {
        return Err(BadBaseline::Keys(rule.keys));
    }
    let mut base: BTreeMap<Vec<String>, BaseValues> = BTreeMap::new();
    for record in reader.records() {
        let record = record.map_err(BadBaseline::Csv)?;
        let cell = |at: usize| record.get(at).unwrap_or_default().to_owned();
        let value = cell(value_at).parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0);
        let line = record.position().map_or(0, csv::Position::line);
        let value = value.ok_or_else(|| BadBaseline::Value(line, cell(value_at)))?;
        let case: Vec<String> = keys.iter().map(|&(_, at)| cell(at)).collect();
        let named = keys.iter().zip(&case).map(|((name, _), value)| format!("{name} {value}"));
        let named = named.collect::<Vec<_>>().join(", ");
        let of_case = base.entry(case).or_default();
        if !of_case.values.is_empty() && keys.len() == rule.keys.len() {
            return Err(BadBaseline::Twice(line, named));
        }
        of_case.values.push(value);
    }
    if base.is_empty() {
        return Err(BadBaseline::Empty);
    }
    Ok((keys.into_iter().map(|(name, _)| name).collect(), base))
}

impl Standings {
    /// Whether no value dropped too far and no case is missing.
    pub fn passed(&self) -> bool {
        self.lines.iter().all(|line| matches!(line.standing, Standing::Ok | Standing::New))
    }

    /// One line per case, then a summary.
    pub fn table(&self) -> String {
        let titles = self.names.iter().chain([&self.value]).map(|name| format!(">{name}|"));
        let mut table = Table::new(&(titles.collect::<String>() + ">baseline|>change|"));
        for line in &self.lines {
            let change = line.current.zip(line.baseline).map(|(now, base)| (now - base) / base * 100.0);
            let change = change.map_or("-".to_owned(), |percent| format!("{percent:+.1} %"));
            let figures =
                [or_dash(line.current), or_dash(line.baseline), change, line.standing.word().to_owned()];
            table.push([line.case.clone(), figures.to_vec()].concat());
        }
        let count = |standing| self.lines.iter().filter(|line| line.standing == standing).count();
        let (fell, missing) = (count(Standing::Regression), count(Standing::Missing));
        format!("{}{fell} regressions, {missing} missing, of {} cases\n", table.render(), self.lines.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Row, Samples};

    const RULE: Rule = Rule { keys: &["a", "b", "c"], value: "v", most_drop: 0.10 };
    const COLUMNS: &[&str] = &["a|b|c|~v"];

    fn result(rows: &[(usize, usize, f64)]) -> LaneResult {
        let row = |&(a, b, v): &(usize, usize, f64)| {
            let samples = Samples::new("x", Direction::Higher, vec![v]).unwrap();
            Row::new("r").param("a", a).param("b", b).param("c", "warm").metric("v", samples)
        };
        let rows = rows.iter().map(row).collect();
        LaneResult { lane: "l".into(), machine: redline_system::Machine::default(), rows }
    }

    fn standings(rows: &[(usize, usize, f64)], text: &str) -> Standings {
        compare(&RULE, COLUMNS, &result(rows), text).unwrap()
    }

    #[test]
    fn a_tenth_may_be_lost_and_no_more() {
        // The file lacks column c and has an unknown one.
        let text = "b,a,other,v\n2,1,x,100\n4,1,y, 100\n8,1,z,100\n";
        let all = standings(&[(1, 2, 90.0), (1, 4, 89.9), (1, 16, 1.0)], text);
        let outcomes: Vec<Standing> = all.lines.iter().map(|line| line.standing).collect();
        let expected = [Standing::Ok, Standing::Regression, Standing::New, Standing::Missing];
        assert_eq!(outcomes, expected);
        assert!(!all.passed());
        let table = all.table();
        for words in
            ["-10.0 %", "-10.1 %", "OK", "REGRESSION", "NEW", "MISSING", "1 regressions, 1 missing, of 4"]
        {
            assert!(table.contains(words), "{words} in\n{table}");
        }
        assert!(standings(&[(1, 2, 100.0), (1, 4, 200.0), (1, 8, 95.0), (9, 9, 1.0)], text).passed());
        assert!(!standings(&[(1, 2, 100.0), (1, 4, 200.0)], text).passed(), "one was not run");
    }

    #[test]
    fn a_value_is_that_of_the_case_and_the_column() {
        let text = "name,wait,v\na,1.5,2\nb,,x\n";
        assert_eq!((value(text, "a", "wait"), value(text, "a", "v")), (Some(1.5), Some(2.0)));
        assert_eq!((value(text, "b", "wait"), value(text, "b", "v")), (None, None));
        assert_eq!((value(text, "c", "wait"), value(text, "a", "w")), (None, None));
        assert_eq!(value("wait\n1\n", "a", "wait"), None);
    }

    #[test]
    fn every_key_of_the_file_counts() {
        let text = "a,b,c,v\n1,2,cold,100\n1,2,warm,10\n";
        let all = standings(&[(1, 2, 10.0)], text);
        assert_eq!(all.lines[0].standing, Standing::Ok);
        assert_eq!((all.lines.len(), all.lines[1].standing), (2, Standing::Missing));
    }

    #[test]
    fn lines_of_a_file_with_fewer_columns_pair_with_rows_in_order() {
        // A cold and a warm row, as the ten columns of the score benchmark hold them.
        let text = "a,b,v\n1,2,100\n1,2,10\n";
        let outcomes = |rows: &[(usize, usize, f64)]| {
            let lines = standings(rows, text).lines;
            lines.iter().map(|line| (line.standing, line.baseline)).collect::<Vec<_>>()
        };
        let (ok, regression) = (Standing::Ok, Standing::Regression);
        assert_eq!(outcomes(&[(1, 2, 100.0), (1, 2, 10.0)]), [(ok, Some(100.0)), (ok, Some(10.0))]);
        assert_eq!(outcomes(&[(1, 2, 10.0), (1, 2, 100.0)]), [(regression, Some(100.0)), (ok, Some(10.0))]);
        assert_eq!(outcomes(&[(1, 2, 100.0)]), [(ok, Some(100.0)), (Standing::Missing, Some(10.0))]);
        let three = outcomes(&[(1, 2, 100.0), (1, 2, 10.0), (1, 2, 5.0)]);
        assert_eq!(three[2], (Standing::New, None));
    }

    #[test]
    fn what_is_no_baseline_is_refused() {
        let fact = |text: &str| compare(&RULE, COLUMNS, &result(&[]), text).unwrap_err().to_string();
        for (text, part) in [
            ("a,b\n1,2\n", "`v` is missing"),
            ("x,v\n1,2\n", "a, b, c"),
            ("a,v\n1,2\n2,fast\n", "line 3: `fast`"),
            ("a,v\n1,-2\n", "line 2"),
            ("a,v\n1,NaN\n", "line 2"),
            ("a,b,c,v\n1,2,x,3\n1,2,x,4\n", "line 3: a 1, b 2, c x stands twice"),
            ("\u{feff}a,v\n1,x\n", "line 2: `x`"),
            ("a,v\n", "no line"),
            ("a,v\n1\n", "fields"),
        ] {
            assert!(fact(text).contains(part), "{text:?}: {}", fact(text));
        }
        for bad in ["0", "-0", "inf", "1e999", ""] {
            assert_eq!(fact(&format!("a,v\n1,{bad}\n")), format!("line 2: `{bad}` is no positive number"));
        }
    }

    #[test]
    fn a_case_without_a_value_is_a_regression() {
        let mut bare = result(&[(1, 2, 100.0)]);
        bare.rows[0].metrics = crate::result::Ordered::default();
        let all = compare(&RULE, COLUMNS, &bare, "a,b,v\n1,2,100\n").unwrap();
        assert_eq!((all.lines[0].standing, all.lines[0].current), (Standing::Regression, None));
        assert!(!all.passed());
    }

    #[test]
    fn the_table_has_this_run_before_the_baseline() {
        let table = standings(&[(1, 2, 90.0)], "a,b,v\n1,2,100\n").table();
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["a", "b", "v", "baseline", "change"]);
        assert_eq!(lines[1], ["1", "2", "90.00", "100.0", "-10.0", "%", "OK"]);
    }
}
