//! The scores as an aligned table.

use redline_engine::{Label, Prompt, ScoreOutcome};

use crate::display;
use crate::table;

/// Longest part of an item that is shown, in characters.
const ITEM_WIDTH: usize = 40;
/// Longest part of a label that is shown, in characters.
const LABEL_WIDTH: usize = 16;

/// Number of a label's token ids that are shown.
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
                row.extend(scored.scores.iter().map(|score| display::probability(*score)));
                row.extend(scored.token_ids.as_deref().map(|ids| format!("ids {}", join(ids))));
            }
            Err(error) => row.push(format!("error: {}", error.message)),
        }
        rows.push(row);
    }
    table::align(&rows, labels.len() + 1)
}

fn label(label: &Label) -> String {
    match label {
        Label::Text(text) => display::shortened(text, LABEL_WIDTH),
        Label::Ids(ids) => {
            let shown: Vec<_> = ids.iter().take(LABEL_IDS).map(i64::to_string).collect();
            format!("#{}{}", shown.join(","), if ids.len() > LABEL_IDS { ",…" } else { "" })
        }
    }
}

fn prompt(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(text) | Prompt::Formatted(text) => display::shortened(text, ITEM_WIDTH),
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

    #[test]
    fn long_lists_of_ids_are_counted() {
        assert_eq!(prompt(&Prompt::Ids(vec![1, 2])), "[1,2]");
        assert_eq!(prompt(&Prompt::Ids((0..50).collect())), "[0,1,2,3]… 50 ids");
    }
}
