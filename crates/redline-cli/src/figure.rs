//! Formats numbers for people.

/// Formats bytes in decimal units.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}

/// Formats a count in decimal units.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.0} thousand", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} million", n as f64 / 1e6),
        _ => format!("{:.2} billion", n as f64 / 1e9),
    }
}

/// Formats seconds.
pub(crate) fn seconds(s: f64) -> String {
    if s < 1.0 { format!("{:.1} ms", s * 1e3) } else { format!("{s:.2} s") }
}

/// Formats a number of threads.
pub(crate) fn threads(n: usize) -> String {
    if n == 1 { "1 thread".to_owned() } else { format!("{n} threads") }
}

/// Formats memory, kernel path and threads, for the end of a summary line.
pub(crate) fn ran(peak_memory: Option<u64>, kernel_path: &str, thread_count: usize) -> String {
    let memory = peak_memory.map_or(String::new(), |peak| format!(", peak memory {}", bytes(peak)));
    format!("{memory}; {kernel_path}, {}\n", threads(thread_count))
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
    fn units() {
        assert_eq!(
            [bytes(999), bytes(1_000), bytes(8_000_000), bytes(2_500_000_000)].join("|"),
            "999 B|1.0 kB|8.0 MB|2.50 GB"
        );
        assert_eq!([count(9_999), count(12_000), count(4_100_000)].join("|"), "9999|12 thousand|4.1 million");
        assert_eq!([seconds(0.0125), seconds(2.0)].join("|"), "12.5 ms|2.00 s");
    }

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
}
