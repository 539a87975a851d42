//! Formats numbers for people: four significant digits, binary sizes, counts with a noun.

/// Formats `value` with four significant digits, and with an exponent only if plain digits would be unreadable.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e7).contains(&size) {
        return format!("{value:.3e}");
    }
    let digits_before = size.log10().floor() as i32 + 1;
    format!("{value:.*}", (4 - digits_before).max(0) as usize)
}

/// Rounds `value` to six significant digits.
pub(crate) fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Formats a share as a percentage with one decimal.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a size in the largest binary unit of which it has at least 1, with one decimal if needed.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = bytes.ilog2() / 10;
    let value = format!("{:.1}", bytes as f64 / (1_u64 << (10 * power)) as f64);
    format!("{} {}", value.strip_suffix(".0").unwrap_or(&value), UNITS[power as usize - 1])
}

/// Formats a count with its noun: `1 core`, `2 cores`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_significant_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1.000"),
            (-41.23456, "-41.23"),
            (0.00123456, "0.001235"),
            (123456.7, "123457"),
            (99_999.0, "99999"),
            (1.5e9, "1.500e9"),
            (2e-9, "2.000e-9"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn six_significant_digits() {
        let cases = [(0.1 + 0.2, 0.3), (1_234_567.0, 1_234_570.0), (0.0, 0.0), (-1e-300, -1e-300)];
        assert!(cases.iter().all(|&(value, rounded)| six_digits(value) == rounded));
    }

    #[test]
    fn shares_are_percent() {
        assert_eq!(percent(0.834), "83.4 %");
        assert_eq!(percent(0.0), "0.0 %");
    }

    #[test]
    fn nouns_follow_their_count() {
        assert_eq!([0, 1, 2].map(|n| count(n, "core")), ["0 cores", "1 core", "2 cores"]);
    }

    #[test]
    fn sizes_use_binary_units() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (32 << 20, "32 MiB"),
            (24_684_096 << 10, "23.5 GiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (size, text) in cases {
            assert_eq!(bytes(size), text);
        }
    }
}
