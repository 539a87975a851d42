//! Rows as comma-separated values (RFC 4180), one line per row and metric.

use std::borrow::Cow;
use std::io::{self, Write};

use super::{LaneResult, Row};
use crate::stats::{Samples, sorted};
use redline_system::number;
use redline_system::table::{or_blank, or_dash};

/// The columns of a line per row and metric, in order.
const COLUMNS: &str = "lane,case,metric,unit,median,mean,std,min,max,n";

/// A statistic of samples.
type Statistic = fn(&Samples) -> Option<f64>;

/// The statistics that columns name.
const STATISTICS: &[(&str, Statistic)] = &[
    ("mean", Samples::mean),
    ("std", Samples::std),
    ("min", Samples::min),
    ("max", Samples::max),
    ("sum", |s| (s.n() > 0).then(|| s.values().iter().sum())),
    // The inverse of the median.
    ("inverse", |s| s.median().map(|rate| 1.0 / rate)),
    // The rate of all runs together, from the rates of runs of equal size.
    ("overall", |s| {
        (s.n() > 0).then(|| s.n() as f64 / s.values().iter().map(|rate| 1.0 / rate).sum::<f64>())
    }),
    // The standard deviation, 0 for a single run, and values at ranks, as in the seed's score benchmark.
    ("deviation", |s| s.std().or(Some(0.0))),
    ("rank50", |s| rank(s, 50)),
    ("rank95", |s| rank(s, 95)),
    ("rank99", |s| rank(s, 99)),
];

/// The value at rank `n * percent / 100` of the sorted samples, for any number of samples, as in the seed's score benchmark.
fn rank(samples: &Samples, percent: usize) -> Option<f64> {
    let sorted = sorted(samples.values());
    sorted.get(sorted.len() * percent / 100).copied()
}

/// A column of a line per row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// The name in the header.
    pub(crate) name: &'static str,
    /// The content.
    pub(crate) cell: Cell,
}

impl Column {
    /// Reads columns, which `|` separates. A column is `name=content`, or only a content, which gives it the name:
    ///
    /// - `threads`: a parameter
    /// - `~seconds`: the median of a metric; `~a/b`: those of several, between slashes
    /// - `mean:seconds`: another statistic; `#seconds`: the number of samples
    /// - `@case`, `@share` (of the limit that was reached), `@limit` (its name), `@kernels` (that ran)
    /// - `'ns'`: this text
    ///
    /// A metric may be multiplied: `~seconds*1e3`. Columns of another form are left out.
    pub(crate) fn all(texts: &[&'static str]) -> Vec<Self> {
        texts.iter().flat_map(|text| text.split('|')).filter_map(Self::parse).collect()
    }

    fn parse(text: &'static str) -> Option<Self> {
        let (name, content) = text.split_once('=').unwrap_or((text.trim_start_matches(['~', '@']), text));
        let (content, factor) = match content.split_once('*') {
            Some((content, factor)) => (content, factor.parse().ok()?),
            None => (content, 1.0),
        };
        let begins = |with: char| content.strip_prefix(with);
        let cell = if let Some(text) = begins('\'') {
            Cell::Text(text.strip_suffix('\'')?)
        } else if let Some(metrics) = begins('~').filter(|metrics| metrics.contains('/')) {
            Cell::Metrics(metrics, factor)
        } else if let Some(metric) = begins('~') {
            Cell::Metric(metric, Samples::median, factor)
        } else if let Some(metric) = begins('#') {
            Cell::Samples(metric)
        } else if let Some(what) = begins('@') {
            match what {
                "case" => Cell::Case,
                "share" => Cell::Share,
                "limit" => Cell::Limit,
                "kernels" => Cell::Kernels,
                _ => return None,
            }
        } else if let Some((statistic, metric)) = content.split_once(':') {
            let (_, statistic) = STATISTICS.iter().find(|(known, _)| *known == statistic)?;
            Cell::Metric(metric, *statistic, factor)
        } else {
            Cell::Param(content)
        };
        Some(Self { name, cell })
    }
}

/// The content of a cell; empty if the row does not have it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell {
    /// The case name.
    Case,
    /// A constant text.
    Text(&'static str),
    /// A parameter.
    Param(&'static str),
    /// A statistic of a metric, times a factor.
    Metric(&'static str, Statistic, f64),
    /// The medians of several metrics, each times a factor, all between slashes; `-` for one that the row does not have.
    Metrics(&'static str, f64),
    /// The number of samples of a metric.
    Samples(&'static str),
    /// The share of the limit that was reached.
    Share,
    /// The limit's name.
    Limit,
    /// The kernels that ran.
    Kernels,
}

impl Cell {
    pub(crate) fn of(self, row: &Row) -> String {
        let samples = |name: &str| row.samples_of(name);
        match self {
            Self::Case => row.case.clone(),
            Self::Text(text) => text.to_owned(),
            Self::Param(name) => or_blank(row.param_text(name)),
            Self::Metric(name, statistic, factor) => {
                or_blank(samples(name).and_then(statistic).map(|value| value * factor))
            }
            Self::Metrics(names, factor) => {
                let median = |name| samples(name).and_then(Samples::median);
                let shown = |name| or_dash(median(name).map(|value| value * factor));
                names.split('/').map(shown).collect::<Vec<_>>().join("/")
            }
            Self::Samples(name) => or_blank(samples(name).map(Samples::n)),
            Self::Share => or_blank(row.share_of_limit),
            Self::Limit => or_blank(row.limit.as_ref()),
            Self::Kernels => or_blank(row.kernel_path.as_ref()),
        }
    }

    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Metric(..) | Self::Metrics(..) | Self::Samples(_) | Self::Share)
    }

    /// The text with few digits, for people.
    pub(crate) fn shown(self, row: &Row) -> String {
        match self {
            Self::Share => or_blank(row.share_of_limit.map(number::percent)),
            Self::Metric(..) => or_dash(self.of(row).parse().ok()),
            _ => self.of(row),
        }
    }
}

impl LaneResult {
    /// Writes the header and one line per row.
    pub fn write_columns(&self, columns: &[&'static str], mut out: impl Write) -> io::Result<()> {
        let columns = Column::all(columns);
        let names: Vec<_> = columns.iter().map(|column| column.name).collect();
        let cells = |row| columns.iter().map(|column| column.cell.of(row)).collect::<Vec<_>>();
        let rows = self.rows.iter().map(|row| line(&cells(row)));
        out.write_all((line(&names) + &rows.collect::<String>()).as_bytes())
    }

    /// Writes the header and one line per row and metric. Numbers have all their digits; undefined values are empty.
    pub fn write_csv(&self, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "{COLUMNS}")?;
        for row in &self.rows {
            for (name, s) in row.samples() {
                for text in [&self.lane, &row.case, name, s.unit()] {
                    write!(out, "{},", field(text))?;
                }
                for value in [s.median(), s.mean(), s.std(), s.min(), s.max()] {
                    write!(out, "{},", or_blank(value))?;
                }
                writeln!(out, "{}", s.n())?;
            }
        }
        Ok(())
    }
}

/// Joins cells to a line with its line end.
pub(crate) fn line(cells: &[impl AsRef<str>]) -> String {
    let fields: Vec<_> = cells.iter().map(|cell| field(cell.as_ref())).collect();
    fields.join(",") + "\n"
}

/// A field, quoted if needed.
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Direction;

    fn of(statistic: &str, values: &[f64]) -> Option<f64> {
        let samples = Samples::new("x", Direction::Info, values.to_vec()).unwrap();
        STATISTICS.iter().find(|(name, _)| *name == statistic).and_then(|(_, of)| of(&samples))
    }

    #[test]
    fn statistics_follow_the_formulas_of_the_seed() {
        let twenty: Vec<f64> = (0..20).rev().map(f64::from).collect();
        let ranks = ["rank50", "rank95", "rank99"];
        assert_eq!(ranks.map(|rank| of(rank, &twenty)), [10.0, 19.0, 19.0].map(Some));
        assert_eq!((of("rank99", &[7.0]), of("rank50", &[])), (Some(7.0), None));
        // 8 items in 1 s and 8 in 3 s are 16 in 4 s.
        assert_eq!((of("overall", &[8.0, 8.0 / 3.0]), of("overall", &[])), (Some(4.0), None));
        assert_eq!(
            (of("sum", &[4.0, 4.0]), of("inverse", &[4.0]), of("deviation", &[4.0])),
            (Some(8.0), Some(0.25), Some(0.0))
        );
    }

    #[test]
    fn a_column_is_a_text() {
        let samples = Samples::new("s", Direction::Lower, vec![1.0, 3.0]).unwrap();
        let row = Row::new("a").param("threads", 2).metric("seconds", samples).limit("peak", Some(0.5));
        let columns = "@case|threads|~seconds|ms=~seconds*1e3|least=min:seconds|n=#seconds|both=~seconds/none*1e3|unit='s'|@share|@limit|\
                       @kernels|t=threads|none";
        let columns = Column::all(&[columns, "last=''"]);
        let cells: Vec<String> =
            columns.iter().map(|column| format!("{}={}", column.name, column.cell.of(&row))).collect();
        let expected = "case=a|threads=2|seconds=2|ms=2000|least=1|n=2|both=2000/-|unit=s|share=0.5|limit=peak|kernels=|t=2|none=|last=";
        assert_eq!(cells.join("|"), expected);
        assert!(Column::all(&["x=~a*b", "x=@what", "x=most:a", "x='y"]).is_empty());
    }

    #[test]
    fn only_what_needs_quotes_gets_them() {
        let cases = [
            ("a b", "a b"),
            ("a,b", "\"a,b\""),
            ("\"", "\"\"\"\""),
            ("x\ny", "\"x\ny\""),
            ("\r", "\"\r\""),
            ("", ""),
        ];
        for (text, written) in cases {
            assert_eq!(field(text), written);
        }
    }
}
