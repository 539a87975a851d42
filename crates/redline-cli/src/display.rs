//! Formats results for people.

use redline_system::{number, width};

/// Formats memory, kernel path and threads, for the end of a summary line.
pub(crate) fn ran(peak_memory: Option<u64>, kernel_path: &str, thread_count: usize) -> String {
    let memory = peak_memory.map_or(String::new(), |peak| format!(", peak memory {}", number::bytes(peak)));
    format!("{memory}; {kernel_path}, {}\n", number::count(thread_count, "thread"))
}

/// Formats a probability; small values keep their significant digits.
pub(crate) fn probability(p: f32) -> String {
    if p == 0.0 || p >= 1e-3 { format!("{p:.6}") } else { format!("{p:.3e}") }
}

/// The beginning of a text on one line, quoted, and marked if the text was cut: at most `most` columns between the quotes.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    /// Characters read per column. Characters without a width could otherwise be any number.
    const PER_COLUMN: usize = 8;
    let mut quoted = "\"\"".to_owned();
    let mut ends = text.char_indices().map(|(start, char)| start + char.len_utf8());
    for end in ends.by_ref().take(PER_COLUMN * most) {
        let longer = format!("{:?}", &text[..end]);
        if width::of(&longer) > most + 2 {
            return quoted + "…";
        }
        quoted = longer;
    }
    if ends.next().is_some() { quoted + "…" } else { quoted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_probabilities_do_not_vanish() {
        assert_eq!(
            [probability(0.25), probability(1e-9), probability(0.0)].join("|"),
            "0.250000|1.000e-9|0.000000"
        );
    }

    #[test]
    fn a_cut_text_says_so() {
        assert_eq!(shortened("one\ntwo", 10), "\"one\\ntwo\"");
        assert_eq!(shortened("żółw żółw", 4), "\"żółw\"…");
        assert_eq!((shortened("", 4), shortened("four", 4)), ("\"\"".to_owned(), "\"four\"".to_owned()));
    }

    #[test]
    fn a_text_is_cut_by_its_width() {
        assert_eq!(shortened("日本語の文", 6), "\"日本語\"…");
        assert_eq!(shortened("日本語", 5), "\"日本\"…", "half a character is not shown");
        assert_eq!(shortened("a\nb\nc", 4), "\"a\\nb\"…", "a line end is shown as two characters");
        assert_eq!(shortened("e\u{301}o", 9), r#""e\u{301}o""#, "a combining mark is shown by its code");
        assert_eq!(shortened("e\u{301}o", 8), r#""e\u{301}"…"#);
        let vowels = "a".to_owned() + &"\u{1160}".repeat(1000);
        assert_eq!(
            shortened(&vowels, 4).chars().count(),
            4 * 8 + 3,
            "letters without a width do not pile up"
        );
    }

    #[test]
    fn a_thousandth_is_the_smallest_probability_with_plain_digits() {
        assert_eq!([probability(1e-3), probability(9.994e-4)], ["0.001000", "9.994e-4"]);
    }

    #[test]
    fn a_text_that_just_fits_is_not_cut() {
        assert_eq!([shortened("żółw", 4), shortened("żółwie", 5)], ["\"żółw\"", "\"żółwi\"…"]);
    }
}
