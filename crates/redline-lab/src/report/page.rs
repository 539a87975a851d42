//! The data model of the page for the template.

use serde::Serialize;

use super::svg;

/// The whole page.
#[derive(Debug, Serialize)]
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    pub(super) css: &'static str,
    /// Counts, one per line: number and noun.
    pub(super) facts: Vec<Fact>,
    /// When the runs were started, if known.
    pub(super) span: Option<String>,
    pub(super) sections: Vec<Section>,
    pub(super) notes: Vec<String>,
    pub(super) data: String,
}

/// A count at the top.
#[derive(Debug, Serialize)]
pub(super) struct Fact {
    pub(super) number: String,
    pub(super) noun: String,
    /// Whether the count is bad news.
    pub(super) bad: bool,
}

/// A section of the page.
#[derive(Debug, Default, Serialize)]
pub(super) struct Section {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) intro: String,
    pub(super) groups: Vec<Group>,
    /// Footnotes: explanations and omissions.
    pub(super) notes: Vec<String>,
}

/// A group of figures and tables.
#[derive(Debug, Default, Serialize)]
pub(super) struct Group {
    pub(super) title: String,
    /// Whether the group can be folded, and its initial state.
    pub(super) folded: Fold,
    /// Whether figures are arranged side by side.
    pub(super) grid: bool,
    pub(super) figures: Vec<Figure>,
    pub(super) tables: Vec<Table>,
}

/// Whether a group can be folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fold {
    /// Cannot be folded.
    #[default]
    Never,
    /// Initially open.
    Open,
    /// Initially folded.
    Shut,
}

/// A chart with its legend, and the same numbers as a table.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) about: String,
    pub(super) svg: String,
    /// Whether the chart keeps its size and scrolls on narrow pages.
    pub(super) scroll: bool,
    pub(super) keys: Vec<Key>,
    /// Lines of a forest plot, used instead of a chart.
    pub(super) lines: Vec<ForestLine>,
    pub(super) table: Option<Table>,
}

/// An entry of a legend.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Key {
    pub(super) mark: String,
    pub(super) text: String,
}

impl Key {
    /// A legend entry with the mark of a series.
    pub(super) fn mark(series: usize, text: impl Into<String>) -> Self {
        Self { mark: svg::key_mark(series, colour(series)), text: text.into() }
    }

    /// A legend entry with a line.
    pub(super) fn line(class: &str, text: impl Into<String>) -> Self {
        Self { mark: svg::key_line(class), text: text.into() }
    }
}

/// A case in a forest plot.
#[derive(Debug, Serialize)]
pub(super) struct ForestLine {
    pub(super) case: String,
    pub(super) metric: String,
    pub(super) svg: String,
    pub(super) ratio: String,
    pub(super) symbol: &'static str,
    pub(super) verdict: &'static str,
    /// CSS class for its colour.
    pub(super) tone: &'static str,
    pub(super) why: String,
}

/// A table.
#[derive(Debug, Default, Serialize)]
pub(super) struct Table {
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A column title; numbers are right-aligned.
#[derive(Debug, Serialize)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) numeric: bool,
}

/// A table cell.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Cell {
    pub(super) text: String,
    /// CSS class for marked cells.
    pub(super) tone: &'static str,
}

impl Cell {
    /// A cell marked as bad.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: "bad" }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), tone: "" }
    }
}

impl Table {
    /// Creates a table with these columns: title, and whether cells are numbers.
    pub(super) fn new(caption: impl Into<String>, columns: &[(&'static str, bool)]) -> Self {
        let columns = columns.iter().map(|&(title, numeric)| Column { title, numeric }).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }
}

/// CSS class for the colour of a series. After six series shapes repeat, with other colours.
pub(super) fn colour(series: usize) -> &'static str {
    const COLOURS: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
    COLOURS[(series + series / COLOURS.len()) % COLOURS.len()]
}

/// Distributes `total` places among groups that want `wanted` each, in turns, so that places which a group does not need go to
/// others. Each group gets at least one.
pub(super) fn allot(wanted: &[usize], total: usize) -> Vec<usize> {
    let mut given: Vec<usize> = wanted.iter().map(|&n| n.min(1)).collect();
    let mut left = total.saturating_sub(given.iter().sum());
    while left > 0 && given != wanted {
        for (given, &wanted) in given.iter_mut().zip(wanted) {
            if *given < wanted && left > 0 {
                *given += 1;
                left -= 1;
            }
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_shared_out_in_turns() {
        assert_eq!(allot(&[10, 1, 4], 9), [4, 1, 4]);
        assert_eq!(allot(&[2, 0, 3], 100), [2, 0, 3]);
        assert_eq!(allot(&[5, 5], 1), [1, 1]);
        assert!(allot(&[], 3).is_empty());
    }

    #[test]
    fn shape_and_colour_together_tell_series_apart() {
        let looks = (0..36).map(|series| (series % 6, colour(series)));
        assert_eq!(looks.collect::<std::collections::BTreeSet<_>>().len(), 36);
    }
}
