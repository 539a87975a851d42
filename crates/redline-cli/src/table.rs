//! Columns, aligned by their width in a terminal.

use redline_system::width;

/// Pads the first `columns` cells of each row to a common width. Further cells are left as they are.
pub(crate) fn align(rows: &[Vec<String>], columns: usize) -> String {
    let whole = |row: &&Vec<String>| row.len() >= columns;
    let widest = |column: usize| {
        let cells = rows.iter().filter(|row| column == 0 || whole(row)).filter_map(|row| row.get(column));
        cells.map(|cell| width::of(cell)).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(widest).collect();
    let mut text = String::new();
    for row in rows {
        let aligned = if whole(&row) { columns } else { 1 };
        let mut line = width::left(&row[0], widths[0]);
        for (cell, &columns) in row.iter().zip(&widths).take(aligned).skip(1) {
            line.push_str(&format!("  {}", width::right(cell, columns)));
        }
        for cell in row.iter().skip(aligned) {
            line.push_str(&format!("  {cell}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[test]
    fn columns_line_up() {
        let rows =
            cells(&[&["item", "a", "#12345"], &["\"żółw\"", "0.5", "0.25"], &["x", "error: far too long"]]);
        let expect = "\
item      a  #12345
\"żółw\"  0.5    0.25
x       error: far too long
";
        assert_eq!(align(&rows, 3), expect);
    }
    #[test]
    fn wide_characters_take_two_columns_and_combining_marks_none() {
        let rows = cells(&[&["item", "日本"], &["模型", "0.5"], &["e\u{301}", "1"], &["👩‍🔬", "2"]]);
        let expect = "item  日本\n模型   0.5\ne\u{301}        1\n👩‍🔬       2\n";
        assert_eq!(align(&rows, 2), expect);
    }
}
