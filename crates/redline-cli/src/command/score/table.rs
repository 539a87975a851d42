//! The answer as an aligned table.

use redline_engine::{Label, Prompt, ScoreOutcome};

use crate::figure;

/// Characters of an item that are shown.
const ITEM_WIDTH: usize = 40;
/// Characters of a label that are shown.
const LABEL_WIDTH: usize = 16;

/// Ids of a label that are shown.
const LABEL_IDS: usize = 3;

/// One line per item, one column per label.
pub(super) fn render(items: &[Prompt], labels: &[Label], outcome: &ScoreOutcome) -> String {
    let mut header = vec!["item".to_owned()];
    header.extend(labels.iter().map(label));
    let mut rows = vec![header];
    for (item, scored) in items.iter().zip(&outcome.items) {
        let mut row = vec![prompt(item)];
        match scored {
            Ok(scored) => {
                row.extend(scored.scores.iter().map(|score| figure::probability(*score)));
                row.extend(scored.token_ids.as_deref().map(|ids| format!("ids {}", join(ids))));
            }
            Err(error) => row.push(format!("error: {}", error.message)),
        }
        rows.push(row);
    }
    align(&rows, labels.len() + 1)
}

/// Pads the first `columns` cells of each row to a common width; what follows (or stands in their place) is left as it
/// is.
fn align(rows: &[Vec<String>], columns: usize) -> String {
    let whole = |row: &&Vec<String>| row.len() >= columns;
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| column == 0 || whole(row)).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let aligned = if whole(&row) { columns } else { 1 };
        let mut line = format!("{:<w$}", row[0], w = widths[0]);
        for (cell, w) in row.iter().zip(&widths).take(aligned).skip(1) {
            line.push_str(&format!("  {cell:>w$}"));
        }
        for cell in row.iter().skip(aligned) {
            line.push_str(&format!("  {cell}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn label(label: &Label) -> String {
    match label {
        Label::Text(text) => figure::shortened(text, LABEL_WIDTH),
        Label::Ids(ids) => {
            let shown: Vec<_> = ids.iter().take(LABEL_IDS).map(i64::to_string).collect();
            format!("#{}{}", shown.join(","), if ids.len() > LABEL_IDS { ",…" } else { "" })
        }
    }
}

fn prompt(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(text) => figure::shortened(text, ITEM_WIDTH),
        Prompt::Ids(ids) if join(ids).len() <= ITEM_WIDTH => format!("[{}]", join(ids)),
        Prompt::Ids(ids) => format!("[{}]… {} ids", join(&ids[..ids.len().min(4)]), ids.len()),
    }
}

fn join(ids: &[impl ToString]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
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
    fn long_lists_of_ids_are_counted() {
        assert_eq!(prompt(&Prompt::Ids(vec![1, 2])), "[1,2]");
        assert_eq!(prompt(&Prompt::Ids((0..50).collect())), "[0,1,2,3]… 50 ids");
    }
}
