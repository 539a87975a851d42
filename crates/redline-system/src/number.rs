//! Formats numbers for people: four significant digits, binary sizes, counts with a noun.

/// Formats `value` with four significant digits, and with an exponent only if plain digits would be unreadable.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-3..1e7).contains(&size) {
        return format!("{value:.3e}");
    }
    // Rounding may add a digit: 9.9999 is 10.00.
    let rounded: f64 = format!("{size:.3e}").parse().unwrap_or(size);
    let digits_before = rounded.log10().floor() as i32 + 1;
    format!("{value:.*}", (4 - digits_before).max(0) as usize)
}

/// Rounds `value` to six significant digits.
pub fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Formats a share as a percentage with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a size in the largest binary unit of which it has at least 1, with one decimal if needed.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = bytes.ilog2() / 10;
    let value = format!("{:.1}", bytes as f64 / (1_u64 << (10 * power)) as f64);
    format!("{} {}", value.strip_suffix(".0").unwrap_or(&value), UNITS[power as usize - 1])
}

/// Formats a count with its noun: `1 core`, `2 cores`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Formats a large count with a word for its size.
pub fn large_count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.0} thousand", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} million", n as f64 / 1e6),
        _ => format!("{:.2} billion", n as f64 / 1e9),
    }
}

/// Formats seconds.
pub fn seconds(s: f64) -> String {
    if s < 1.0 { format!("{:.1} ms", s * 1e3) } else { format!("{s:.2} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits() {
        let values = [0.0, 1.0, -41.23456, 0.00123456, 123456.7, 99_999.0, 1.5e9, 2e-9];
        let four = ["0", "1.000", "-41.23", "0.001235", "123457", "99999", "1.500e9", "2.000e-9"];
        assert_eq!(values.map(short), four);
        let values = [0.1 + 0.2, 1_234_567.0, 0.0, -1e-300];
        assert_eq!(values.map(six_digits), [0.3, 1_234_570.0, 0.0, -1e-300]);
    }

    #[test]
    fn shares_counts_and_seconds() {
        assert_eq!([0.834, 0.0].map(percent), ["83.4 %", "0.0 %"]);
        assert_eq!([0, 1, 2].map(|n| count(n, "core")), ["0 cores", "1 core", "2 cores"]);
        let counts = [9_999, 12_000, 4_100_000, 1_235_000_000].map(large_count);
        assert_eq!(counts, ["9999", "12 thousand", "4.1 million", "1.24 billion"]);
        assert_eq!([0.0125, 2.0].map(seconds), ["12.5 ms", "2.00 s"]);
    }

    #[test]
    fn sizes_use_binary_units() {
        let sizes = [0, 1023, 1024, 32 << 20, 24_684_096 << 10, u64::MAX];
        assert_eq!(sizes.map(bytes), ["0 B", "1023 B", "1 KiB", "32 MiB", "23.5 GiB", "16 EiB"]);
    }

    #[test]
    fn forms_change_at_their_bounds() {
        let values = [9.99e-4, 9_999_999.0, 1e7, -1e7];
        assert_eq!(values.map(short), ["9.990e-4", "9999999", "1.000e7", "-1.000e7"]);
        let counts = [10_000, 1_000_000, 1_000_000_000].map(large_count);
        assert_eq!(counts, ["10 thousand", "1.0 million", "1.00 billion"]);
        assert_eq!(seconds(1.0), "1.00 s");
    }

    #[test]
    fn rounding_up_adds_no_digit() {
        let values = [9.99996, -0.99996, 99.999, 999.96, 9999.7];
        assert_eq!(values.map(short), ["10.00", "-1.000", "100.0", "1000", "10000"]);
    }
}
