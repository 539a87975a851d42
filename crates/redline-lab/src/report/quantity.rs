//! Formats numbers with units.

use crate::stats::Samples;
use redline_system::number;

/// Units of time and the seconds in each.
const TIMES: &[(&str, f64)] =
    &[("s", 1.0), ("seconds", 1.0), ("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("μs", 1e-6), ("ns", 1e-9)];
const SHOWN_TIMES: [(&str, f64); 4] = [("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9)];
const SIZES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// The seconds in a unit of time; `None` for other units.
pub(super) fn seconds_in(unit: &str) -> Option<f64> {
    TIMES.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds)
}

/// The factor that makes values up to `largest` readable, and the resulting unit.
pub(super) fn readable(unit: &str, largest: f64) -> (f64, String) {
    let largest = largest.abs();
    if let Some(seconds) = seconds_in(unit) {
        let fits = |(_, per_second): &(_, f64)| largest == 0.0 || largest * seconds * per_second >= 1.0;
        let (name, per_second) = SHOWN_TIMES.into_iter().find(fits).unwrap_or(SHOWN_TIMES[3]);
        return (seconds * per_second, name.to_owned());
    }
    match unit {
        "bytes" => {
            let power = if largest < 1.0 { 0 } else { (largest.log2() / 10.0) as usize }.min(SIZES.len() - 1);
            (1.0 / 1024_f64.powi(power as i32), SIZES[power].to_owned())
        }
        "share" => (100.0, "%".to_owned()),
        "x" => (1.0, "×".to_owned()),
        _ => (1.0, unit.to_owned()),
    }
}

pub(super) fn with_unit(value: f64, unit: &str) -> String {
    let (factor, unit) = readable(unit, value);
    format!("{} {unit}", plain(value * factor)).trim_end().to_owned()
}

/// Four significant digits, with a unit prefix from a hundred thousand on.
pub(super) fn plain(value: f64) -> String {
    let (factor, prefix) = prefix(value);
    if (1e5..1e18).contains(&value.abs()) {
        return format!("{} {prefix}", number::short(value * factor));
    }
    number::short(value)
}

/// A round value on an axis, with as few digits as possible.
pub(super) fn tick(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e15).contains(&size) {
        return format!("{value:e}");
    }
    let (factor, prefix) = if size < 1e4 { (1.0, "") } else { prefix(value) };
    let text = number::six_digits(value * factor).to_string();
    format!("{text} {prefix}").trim_end().to_owned()
}

fn prefix(value: f64) -> (f64, &'static str) {
    const PREFIXES: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let prefix = PREFIXES.iter().find(|(least, _)| value.abs() >= *least);
    prefix.map_or((1.0, ""), |(least, prefix)| (1.0 / least, prefix))
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// `12`, or `12 in 3 processes`.
pub(super) fn n_text(samples: &Samples) -> String {
    match samples.processes().len() {
        0 | 1 => samples.n().to_string(),
        processes => format!("{} in {processes} processes", samples.n()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_people_read() {
        let cases = [
            (0.0123, "s", "12.30 ms"),
            (12.3, "ms", "12.30 ms"),
            (1500.0, "ms", "1.500 s"),
            (2e-8, "s", "20.00 ns"),
            (0.0, "s", "0 s"),
            (1536.0, "bytes", "1.500 KiB"),
            (0.5, "share", "50.00 %"),
            (1.25, "x", "1.250 ×"),
            (123_456.0, "tokens/s", "123.5 k tokens/s"),
            (42.0, "", "42.00"),
        ];
        for (value, unit, text) in cases {
            assert_eq!(with_unit(value, unit), text);
        }
    }

    #[test]
    fn ticks_have_few_digits() {
        let cases =
            [(0.0, "0"), (0.3, "0.3"), (1000.0, "1000"), (20_000.0, "20 k"), (5e11, "500 G"), (1e-9, "1e-9")];
        for (value, text) in cases {
            assert_eq!(tick(value), text);
        }
        assert_eq!(tick(0.1 + 0.2), "0.3");
    }
}
