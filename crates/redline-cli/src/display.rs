//! Formats results for people.

use redline_lab::number;

/// Formats memory, kernel path and threads, for the end of a summary line.
pub(crate) fn ran(peak_memory: Option<u64>, kernel_path: &str, thread_count: usize) -> String {
    let memory = peak_memory.map_or(String::new(), |peak| format!(", peak memory {}", number::bytes(peak)));
    format!("{memory}; {kernel_path}, {}\n", number::count(thread_count, "thread"))
}

/// Formats a probability; small values keep their significant digits.
pub(crate) fn probability(p: f32) -> String {
    if p == 0.0 || p >= 1e-3 { format!("{p:.6}") } else { format!("{p:.3e}") }
}

/// The first `most` characters of a text on one line, quoted, and marked if the text was cut.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let cut: String = text.chars().take(most).collect();
    if cut.len() == text.len() { format!("{text:?}") } else { format!("{cut:?}…") }
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
