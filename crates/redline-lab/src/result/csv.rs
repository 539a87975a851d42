//! Rows as comma-separated values (RFC 4180), one line per row and metric.

use std::borrow::Cow;
use std::io::{self, Write};

use super::{LaneResult, Row};
use crate::stats::Samples;
use redline_system::number;
use redline_system::table::{or_blank, or_dash};

/// The columns of a line per row and metric, in order.
const COLUMNS: &str = "lane,case,metric,unit,median,mean,std,min,max,n";

/// A column of a line per row.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The name in the header.
    pub name: &'static str,
    /// The content.
    pub cell: Cell,
}

impl Column {
    /// Mean of the seconds.
    pub const MEAN_S: Self = Self { name: "mean_s", cell: Cell::Metric("seconds", Samples::mean, 1.0) };
    /// Standard deviation of the seconds.
    pub const STD_S: Self = Self { name: "std_s", cell: Cell::Metric("seconds", Samples::std, 1.0) };
    /// Minimum of the seconds.
    pub const MIN_S: Self = Self { name: "min_s", cell: Cell::Metric("seconds", Samples::min, 1.0) };
    /// Maximum of the seconds.
    pub const MAX_S: Self = Self { name: "max_s", cell: Cell::Metric("seconds", Samples::max, 1.0) };
    /// The limit that bounds the row.
    pub const LIMIT: Self = Self { name: "limit", cell: Cell::Limit };
    /// The share of that limit that was reached.
    pub const SHARE_OF_LIMIT: Self = Self { name: "share_of_limit", cell: Cell::Share };
    /// The kernels that ran.
    pub const KERNEL_PATH: Self = Self { name: "kernel_path", cell: Cell::Kernels };

    /// A column with the parameter of that name.
    pub const fn param(name: &'static str) -> Self {
        Self { name, cell: Cell::Param(name) }
    }

    /// A column with the median of the metric of that name.
    pub const fn median(name: &'static str) -> Self {
        Self { name, cell: Cell::Metric(name, Samples::median, 1.0) }
    }
}

/// The content of a cell; empty if the row does not have it.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// The case name.
    Case,
    /// A constant text.
    Text(&'static str),
    /// A parameter.
    Param(&'static str),
    /// A statistic of a metric, times a factor.
    Metric(&'static str, fn(&Samples) -> Option<f64>, f64),
    /// The medians of several metrics, each times a factor, between slashes; `-` for one that the row does not have.
    Metrics(&'static [&'static str], f64),
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
        let samples = |name: &str| row.metrics.get(name).map(super::Metric::samples);
        match self {
            Self::Case => row.case.clone(),
            Self::Text(text) => text.to_owned(),
            Self::Param(name) => or_blank(row.param_text(name)),
            Self::Metric(name, statistic, factor) => {
                or_blank(samples(name).and_then(statistic).map(|value| value * factor))
            }
            Self::Metrics(names, factor) => {
                let median = |name: &&str| samples(name).and_then(Samples::median);
                let shown = |name| or_dash(median(name).map(|value| value * factor));
                let shown: Vec<String> = names.iter().map(shown).collect();
                shown.join("/")
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
    pub fn write_columns(&self, columns: &[Column], mut out: impl Write) -> io::Result<()> {
        let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
        let cells = |row| columns.iter().map(|column| column.cell.of(row)).collect::<Vec<_>>();
        let rows = self.rows.iter().map(|row| line(&cells(row)));
        out.write_all((line(&names) + &rows.collect::<String>()).as_bytes())
    }

    /// Writes the header and one line per row and metric. Numbers have all their digits; undefined values are empty.
    pub fn write_csv(&self, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "{COLUMNS}")?;
        for row in &self.rows {
            for (name, metric) in row.metrics.iter() {
                let s = metric.samples();
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
pub(crate) fn line(cells: &[String]) -> String {
    let fields: Vec<_> = cells.iter().map(|cell| field(cell)).collect();
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
