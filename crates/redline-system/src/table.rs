//! Plain text in aligned columns.

use crate::{number, width};

/// A table with titles; every line has as many cells as there are titles.
#[derive(Debug)]
pub struct Table {
    /// Whether each column is aligned to the right.
    right: Vec<bool>,
    /// The titles, then the lines.
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these titles, separated by `|`. A column of numbers, with `>` before its title, is right-aligned.
    pub fn new(titles: &str) -> Self {
        let titles = titles.split('|');
        let right = titles.clone().map(|title| title.starts_with('>')).collect();
        Self { right, lines: vec![titles.map(|title| title.trim_start_matches('>').to_owned()).collect()] }
    }

    /// Adds a line; missing cells are blank.
    pub fn push(&mut self, mut line: Vec<String>) {
        line.resize(self.right.len(), String::new());
        self.lines.push(line);
    }

    /// The text, with two spaces between columns and none at the end of a line.
    pub fn render(&self) -> String {
        let widest = |column: usize| self.lines.iter().map(|l| width::of(&l[column])).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(widest).collect();
        let line = |cells: &Vec<String>| {
            let aligned = cells.iter().zip(&widths).zip(&self.right).map(|((cell, &columns), right)| {
                if *right { width::right(cell, columns) } else { width::left(cell, columns) }
            });
            aligned.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        self.lines.iter().map(line).collect()
    }
}

/// The text of a cell; empty without a value.
pub fn or_blank(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// A number with few digits; `-` without a value.
pub fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number::short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("case|>µs|note");
        table.push(vec!["a".into(), "1.5".into()]);
        table.push(vec!["longer".into(), "10.25".into(), "x".into()]);
        assert_eq!(table.render(), "case       µs  note\na         1.5\nlonger  10.25  x\n");
        let mut wide = Table::new("model|>µs");
        wide.push(vec!["模型".into(), "日".into()]);
        wide.push(vec!["e\u{301}".into(), "100".into()]);
        assert_eq!(wide.render(), "model   µs\n模型    日\ne\u{301}      100\n");
        assert_eq!(Table::new("a|>b").render(), "a  b\n", "an empty table is its titles");
        assert_eq!(Table::new("").render(), "\n");
    }
}
