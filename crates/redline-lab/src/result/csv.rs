//! Rows as comma-separated values (RFC 4180), one line per row and metric.

use std::borrow::Cow;
use std::io::{self, Write};

use super::LaneResult;

/// The columns, in their order.
const COLUMNS: &str = "lane,case,metric,unit,median,mean,std,min,max,n";

impl LaneResult {
    /// Writes the header and one line per row and metric. Numbers have all their digits; what is not defined is empty.
    pub fn write_csv(&self, mut out: impl Write) -> io::Result<()> {
        writeln!(out, "{COLUMNS}")?;
        for row in &self.rows {
            for (name, metric) in row.metrics.iter() {
                let s = metric.samples();
                for text in [&self.lane, &row.case, name, s.unit()] {
                    write!(out, "{},", field(text))?;
                }
                for value in [s.median(), s.mean(), s.std(), s.min(), s.max()] {
                    write!(out, "{},", value.map(|v| v.to_string()).unwrap_or_default())?;
                }
                writeln!(out, "{}", s.n())?;
            }
        }
        Ok(())
    }
}

/// Cells as a line with its end.
pub(crate) fn line(cells: &[String]) -> String {
    let fields: Vec<_> = cells.iter().map(|cell| field(cell)).collect();
    fields.join(",") + "\n"
}

/// A field, in quotes where it needs them.
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
        let cases = [("a b", "a b"), ("a,b", "\"a,b\""), ("\"", "\"\"\"\""), ("x\ny", "\"x\ny\""), ("", "")];
        for (text, written) in cases {
            assert_eq!(field(text), written);
        }
    }
}
