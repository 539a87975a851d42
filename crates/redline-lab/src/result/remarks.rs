//! Remarks on a result: the variation of the samples, and what disturbed them.

use super::{LaneResult, Row};
use crate::conditions;
use crate::stats::{Direction, Samples};
use redline_system::number;

/// Variation above this is marked.
const MARKED: f64 = 0.05;
/// Variation above this is reported with possible causes.
const HIGH: f64 = 0.10;

impl Row {
    /// The first judged metric, which represents the row.
    pub fn headline(&self) -> Option<(&str, &Samples)> {
        let judged = |(_, samples): &(&str, &Samples)| samples.direction() != Direction::Info;
        self.samples().find(judged)
    }
}

/// A variation for a table, with its mark.
pub(super) fn variation(samples: &Samples) -> String {
    match samples.variation() {
        None => "-".to_owned(),
        Some(v) if v > HIGH => format!("{} **", number::percent(v)),
        Some(v) if v > MARKED => format!("{} *", number::percent(v)),
        Some(v) => number::percent(v),
    }
}

impl LaneResult {
    /// Lines below a table: high variation, warm-up that did not converge, tainted samples.
    pub fn remarks(&self) -> String {
        let conditions = self.rows.iter().flat_map(|row| row.conditions.iter().flatten());
        self.variations() + &self.warmups() + &conditions::summary(conditions)
    }

    fn variations(&self) -> String {
        let of = |row: &Row| {
            let (name, samples) = row.headline()?;
            Some((samples.variation()?, format!("{}, {name}", row.case)))
        };
        let mut all: Vec<(f64, String)> = self.rows.iter().filter_map(of).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let Some((worst, case)) = all.first() else { return String::new() };
        let above = |limit| all.iter().filter(|(v, _)| *v > limit).count();
        let (marked, high) = (above(MARKED), above(HIGH));
        let mut text = format!(
            "variation from run to run: at most {} ({case}); above 5 % (*) {marked} of {}, above 10 % (**) {high}\n",
            number::percent(*worst),
            number::count(all.len(), "case")
        );
        if high > 0 {
            text.push_str(
                "  causes: other processes, a busy host, a changing clock frequency, too few runs\n  fixes: `redline doctor --noise` \
                 names what disturbs; more `--num-runs`, `--processes 8`; two arms of one run (`--versus`) share the noise\n",
            );
        }
        text
    }

    fn warmups(&self) -> String {
        let open = self.rows.iter().filter(|row| row.warmup.is_some_and(|w| !w.converged));
        let open: Vec<&str> = open.map(|row| row.case.as_str()).collect();
        let Some(first) = open.first() else { return String::new() };
        let n = number::count(open.len(), "case");
        format!("warm-up: plans, pages or memory were still new when {n} began to be timed ({first} first)\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warmup::Warmup;
    use redline_system::Machine;

    #[test]
    fn variation_is_marked_and_explained() {
        let row = |case: &str, values: &[f64]| {
            let info = Samples::new("x", Direction::Info, vec![1.0, 9.0]).unwrap();
            let judged = Samples::new("s", Direction::Lower, values.to_vec()).unwrap();
            Row::new(case).metric("info", info).metric("seconds", judged)
        };
        let rows = vec![
            row("calm", &[1.0, 1.01]),
            row("uneasy", &[1.0, 1.1]),
            row("wild", &[1.0, 1.5]),
            row("once", &[1.0]),
        ];
        let marks: Vec<String> = rows.iter().map(|row| variation(row.headline().unwrap().1)).collect();
        assert_eq!(marks, ["0.7 %", "6.7 % *", "28.3 % **", "-"]);
        let mut result = LaneResult { lane: "l".into(), machine: Machine::default(), rows };
        let text = result.remarks();
        assert!(text.contains("(wild, seconds); above 5 % (*) 2 of 3 cases, above 10 % (**) 1\n"), "{text}");
        assert!(text.contains("causes:") && text.contains("fixes:") && !text.contains("warm-up"), "{text}");
        result.rows.truncate(1);
        result.rows[0].warmup = Some(Warmup { runs: 3, seconds: 1.0, converged: false });
        let text = result.remarks();
        assert!(
            !text.contains("causes:") && text.contains("1 case began to be timed (calm first)"),
            "{text}"
        );
    }
}
