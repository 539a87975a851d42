//! What a page is made of, as the template sees it.

use serde::Serialize;

use super::svg;

/// The whole page.
#[derive(Debug, Serialize)]
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    pub(super) css: &'static str,
    /// Counts in a line each: number, noun.
    pub(super) facts: Vec<Fact>,
    /// When the runs were started, where they say so.
    pub(super) span: Option<String>,
    pub(super) sections: Vec<Section>,
    pub(super) notes: Vec<String>,
    pub(super) data: String,
}

/// A number at the top.
#[derive(Debug, Serialize)]
pub(super) struct Fact {
    pub(super) number: String,
    pub(super) noun: String,
    /// Whether it is bad news.
    pub(super) bad: bool,
}

/// A chapter.
#[derive(Debug, Default, Serialize)]
pub(super) struct Section {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) intro: String,
    pub(super) groups: Vec<Group>,
    /// Footnotes: how to read it, and what was left out.
    pub(super) notes: Vec<String>,
}

/// Figures and tables that belong together.
#[derive(Debug, Default, Serialize)]
pub(super) struct Group {
    pub(super) title: String,
    /// Whether it can be opened and shut, and if it is open at first.
    pub(super) folded: Fold,
    /// Whether figures stand side by side.
    pub(super) grid: bool,
    pub(super) figures: Vec<Figure>,
    pub(super) tables: Vec<Table>,
}

/// Whether something can be shut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fold {
    /// It stands open.
    #[default]
    Never,
    /// It is open until it is shut.
    Open,
    /// It is shut until it is opened.
    Shut,
}

/// A picture with its legend, and the same numbers as a table.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) about: String,
    pub(super) svg: String,
    /// Whether the picture keeps its size and is moved under a window where the page is narrower.
    pub(super) scroll: bool,
    pub(super) keys: Vec<Key>,
    /// Lines of a forest plot instead of one picture.
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
    /// A series' mark.
    pub(super) fn mark(series: usize, text: impl Into<String>) -> Self {
        Self { mark: svg::key_mark(series, colour(series)), text: text.into() }
    }

    /// A stroke.
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
    /// A class for its colour.
    pub(super) tone: &'static str,
    pub(super) why: String,
}

/// Text in rows and columns.
#[derive(Debug, Default, Serialize)]
pub(super) struct Table {
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A title; numbers stand to the right.
#[derive(Debug, Serialize)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) numeric: bool,
}

/// What stands in a table.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Cell {
    pub(super) text: String,
    /// A class, for what is marked.
    pub(super) tone: &'static str,
}

impl Cell {
    /// A cell that is marked.
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
    /// A table with these columns: title, and whether its cells are numbers.
    pub(super) fn new(caption: impl Into<String>, columns: &[(&'static str, bool)]) -> Self {
        let columns = columns.iter().map(|&(title, numeric)| Column { title, numeric }).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }
}

/// The class of a series' colour. Shapes come round after six series, and then with other colours.
pub(super) fn colour(series: usize) -> &'static str {
    const COLOURS: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
    COLOURS[(series + series / COLOURS.len()) % COLOURS.len()]
}

/// How many of `total` places each group gets that wants `wanted`: in turns, so that what one leaves the others have; at least
/// one each.
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
