//! The width of text in a terminal: Chinese, Japanese and Korean characters and emoji take two columns, combining marks none.

use unicode_width::UnicodeWidthStr as _;

/// The number of columns that `text` takes.
pub fn of(text: &str) -> usize {
    text.width()
}

/// Pads `text` with spaces on the right to at least `columns` columns.
pub fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", padding(text, columns))
}

/// Pads `text` with spaces on the left to at least `columns` columns.
pub fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", padding(text, columns))
}

fn padding(text: &str, columns: usize) -> String {
    " ".repeat(columns.saturating_sub(of(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_and_combining_characters() {
        let widths = [("abc", 3), ("żółw", 4), ("日本語", 6), ("e\u{301}", 1), ("👩‍🔬", 2), ("한", 2), ("", 0)];
        for (text, columns) in widths {
            assert_eq!(of(text), columns, "{text}");
        }
    }

    #[test]
    fn text_is_padded_to_columns() {
        assert_eq!((left("日本", 6), right("日本", 6)), ("日本  ".to_owned(), "  日本".to_owned()));
        assert_eq!((left("e\u{301}", 2), right("long", 2)), ("e\u{301} ".to_owned(), "long".to_owned()));
    }
}
