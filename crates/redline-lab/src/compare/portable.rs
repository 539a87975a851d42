//! Portable comparisons: values that must agree on every machine, which are output digests and the counts declared by
//! a lane.

use super::ComparedMetric;
use super::pairs::Pair;
use crate::lanes::Lane;
use crate::result::Row;
use crate::verdict::{THRESHOLD, Verdict};

/// The hint for a difference that is intended.
const MEANT: &str = "is that meant? then accept it: `--update-baseline --reason ..`";

/// Lines for the outputs and each count of a case; other metrics are not judged.
pub(super) fn pair_lines(pair: &Pair<'_>, lane: &str) -> Vec<ComparedMetric> {
    let alone = |verdict, why| ComparedMetric::alone(pair.name(), verdict, why);
    let metrics = Lane::named(lane).into_iter().flat_map(Lane::metrics);
    let counts: Vec<&str> = metrics.filter(|metric| metric.portable).map(|metric| metric.name).collect();
    let (base, new) = match pair {
        // Cases without outputs and counts, such as limits of tiers, depend on the machine.
        Pair::Base(row)
            if row.digest.is_none() && counts.iter().all(|&name| row.metrics.get(name).is_none()) =>
        {
            return Vec::new();
        }
        Pair::Base(_) => return vec![alone(Verdict::Missing, None)],
        Pair::New(row) => return vec![judged_alone(pair.name(), row)],
        Pair::Both(base, new) => (*base, *new),
    };
    let mut lines = vec![match (&base.digest, &new.digest) {
        (Some(b), Some(n)) if b != n => {
            alone(Verdict::Incorrect, Some(format!("outputs {n}, in the base {b}; {MEANT}")))
        }
        (Some(_), None) => alone(Verdict::Missing, Some("no digest of the outputs".to_owned())),
        _ => judged_alone(pair.name(), new),
    }];
    lines.extend(counts.iter().filter_map(|name| counted(pair, name, base, new)));
    let others = base.samples().map(|(name, _)| name).filter(|name| !counts.contains(name));
    lines.extend(others.map(|name| {
        let line = super::metric_line(pair.name(), name, base, new, THRESHOLD);
        ComparedMetric { verdict: None, why: None, ..line }
    }));
    lines
}

/// The line for a row without a counterpart.
fn judged_alone(case: String, row: &Row) -> ComparedMetric {
    // The share of a limit depends on speed.
    let why = row.invalid().filter(|_| !row.checked);
    ComparedMetric::alone(case, if why.is_some() { Verdict::Invalid } else { Verdict::Same }, why)
}

fn counted(pair: &Pair<'_>, name: &str, base: &Row, new: &Row) -> Option<ComparedMetric> {
    let line = super::metric_line(pair.name(), name, base, new, THRESHOLD);
    // A count differs if any sample differs.
    let range = |row: &Row| row.samples_of(name).map(|s| (s.min(), s.max()));
    let verdict = match (line.base, line.new) {
        (b, n) if b == n && range(base) == range(new) => Verdict::Same,
        (None, Some(_)) => Verdict::New,
        (Some(_), None) => Verdict::Missing,
        _ => Verdict::Slower,
    };
    let why = (verdict == Verdict::Slower).then(|| format!("a count that must agree; {MEANT}"));
    line.unit.is_some().then_some(ComparedMetric { effect: None, verdict: Some(verdict), why, ..line })
}
