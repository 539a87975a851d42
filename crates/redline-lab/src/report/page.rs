//! The data model of the page for the template.

use serde::Serialize;

use super::svg;

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

#[derive(Debug, Serialize)]
pub(super) struct Fact {
    pub(super) number: usize,
    pub(super) noun: String,
    pub(super) bad: bool,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Section {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) intro: &'static str,
    pub(super) groups: Vec<Group>,
    /// Footnotes: explanations and omissions.
    pub(super) notes: Vec<String>,
}

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

impl Fold {
    /// The first group is open, those after `groups` are folded.
    pub(super) fn after(groups: &[Group]) -> Self {
        if groups.is_empty() { Self::Open } else { Self::Shut }
    }
}

/// A chart with its legend, and the same numbers as a table.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) about: String,
    pub(super) svg: String,
    pub(super) keys: Vec<Key>,
    /// Lines of a forest plot, used instead of a chart.
    pub(super) lines: Vec<ForestLine>,
    pub(super) table: Option<Table>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Key {
    pub(super) mark: String,
    pub(super) text: String,
}

impl Key {
    /// A legend entry with the mark of a series.
    pub(super) fn mark(series: usize, text: impl Into<String>) -> Self {
        let class = format!("mark {}", colour(series));
        Self { mark: svg::key("keymark", 14, &class, &svg::shape(series, 7.0, 7.0)), text: text.into() }
    }

    /// A legend entry with a line.
    pub(super) fn line(class: &str, text: impl Into<String>) -> Self {
        Self { mark: svg::key("keyline", 26, class, "M1 7H25"), text: text.into() }
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

#[derive(Debug, Default, Serialize)]
pub(super) struct Table {
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A column title; numbers are right-aligned.
#[derive(Debug, Serialize)]
pub(super) struct Column {
    pub(super) title: String,
    pub(super) numeric: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Cell {
    pub(super) text: String,
    /// CSS class for marked cells.
    pub(super) tone: &'static str,
    /// Whether the cell is a line of its own, as wide as the table.
    pub(super) line: bool,
}

impl Cell {
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: "bad", line: false }
    }

    pub(super) fn bad_line(text: impl Into<String>) -> Self {
        Self { line: true, ..Self::bad(text) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl Table {
    /// Creates a table. `columns` are titles separated by commas; `#` before one marks a column of numbers.
    pub(super) fn new(caption: impl Into<String>, columns: &str) -> Self {
        let column = |title: &str| Column {
            title: title.trim_start_matches('#').to_owned(),
            numeric: title.starts_with('#'),
        };
        let columns = columns.split(',').map(column).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }

    /// A table below a chart.
    pub(super) fn of_chart(columns: &str) -> Self {
        Self::new("The same as numbers", columns)
    }
}

/// CSS class for the colour of a series. After six series shapes repeat, with other colours.
pub(super) fn colour(series: usize) -> &'static str {
    const COLOURS: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
    COLOURS[(series + series / COLOURS.len()) % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_and_colour_together_tell_series_apart() {
        let looks = (0..36).map(|series| (series % 6, colour(series)));
        assert_eq!(looks.collect::<std::collections::BTreeSet<_>>().len(), 36);
    }
}
