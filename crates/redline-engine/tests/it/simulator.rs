//! The engine without a model: every request gets the same answer as alone, and nothing is left over.

use redline_engine::simulator::{Report, simulate};

#[test]
fn a_thousand_schedules() {
    let sum = (0..1000).map(|seed| simulate(seed).unwrap()).fold(Report::default(), Report::and);
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
