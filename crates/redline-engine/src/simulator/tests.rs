//! The engine without a model: every request gets the same answer as alone, and nothing is left over.

use super::{Report, simulate};

/// A number from the environment of `cargo xtask simulate`.
#[expect(clippy::disallowed_methods, reason = "xtask says how much to run")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn many_schedules() {
    let asked = number("REDLINE_SCHEDULES");
    let (count, first) = (asked.unwrap_or(1000), number("REDLINE_FIRST_SEED").unwrap_or(0));
    let mut sum = Report::default();
    for seed in first..first.saturating_add(count) {
        match simulate(seed) {
            Ok(report) => sum = sum.and(report),
            Err(fact) => panic!("{fact}\n\nhint: `cargo xtask simulate 1 {seed}` runs it again"),
        }
    }
    println!("{count} schedules: {sum:?}");
    if asked.is_some() {
        return;
    }
    // The schedules cover the intended cases.
    assert!(sum.answered > 3500 && sum.cancelled > 300 && sum.late > 300 && sum.refused > 1000, "{sum:?}");
    assert!(sum.preemptions > 300 && sum.cached_tokens > 4500, "{sum:?}");
    assert!(sum.adapted > 1000 && sum.unadapted > 1000, "{sum:?}");
    assert!(sum.published > 3000 && sum.restored > 300, "{sum:?}");
    assert!(sum.pages_read > 150 && sum.slow > 2, "{sum:?}");
    assert!(sum.resumed > 600, "{sum:?}");
    assert!(sum.accepted > 5000 && sum.drafted - sum.accepted > 2000, "{sum:?}");
    assert_eq!(simulate(7), simulate(7));
}
