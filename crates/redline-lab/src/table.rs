//! Plain text in aligned columns.

/// A table with titles; every line has as many cells as there are titles.
#[derive(Debug, Default)]
pub(crate) struct Table {
    titles: Vec<&'static str>,
    numeric: Vec<bool>,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns: title, and whether cells are numbers (right-aligned).
    pub(crate) fn new(columns: &[(&'static str, bool)]) -> Self {
        let (titles, numeric) = columns.iter().copied().unzip();
        Self { titles, numeric, lines: Vec::new() }
    }

    /// Adds a line; missing cells are blank.
    pub(crate) fn push(&mut self, mut line: Vec<String>) {
        line.resize(self.titles.len(), String::new());
        self.lines.push(line);
    }

    /// The text, with two spaces between columns and none at the end of a line.
    pub(crate) fn render(&self) -> String {
        let titles: Vec<String> = self.titles.iter().map(ToString::to_string).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&titles).chain(&self.lines).collect();
        let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..titles.len()).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let cells: Vec<String> = (0..titles.len()).map(|i| self.cell(i, &line[i], widths[i])).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    fn cell(&self, column: usize, cell: &str, width: usize) -> String {
        if self.numeric[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("case", false), ("µs", true), ("note", false)]);
        table.push(vec!["a".into(), "1.5".into()]);
        table.push(vec!["longer".into(), "10.25".into(), "x".into()]);
        assert_eq!(table.render(), "case       µs  note\na         1.5\nlonger  10.25  x\n");
    }

    #[test]
    fn an_empty_table_is_its_titles() {
        assert_eq!(Table::new(&[("a", false), ("b", true)]).render(), "a  b\n");
        assert_eq!(Table::new(&[]).render(), "\n");
    }
}
