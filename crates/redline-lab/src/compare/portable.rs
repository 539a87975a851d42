//! Portable comparisons: values that must agree on every machine, which are output digests and the counts declared by
//! a lane.

use super::Line;
use super::pairs::Pair;
use crate::lanes::Lane;
use crate::result::{Metric, Row};
use crate::stats::Samples;
use crate::verdict::{THRESHOLD, Verdict};

/// The hint for a difference that is intended.
const MEANT: &str = "is that meant? then accept it: `--update-baseline --reason ..`";

/// Lines for the outputs and each count of a case; other metrics are not judged.
pub(super) fn pair_lines(pair: &Pair<'_>, lane: &str) -> Vec<Line> {
    let alone = |verdict, why| Line { why, ..Line::alone(pair.name(), verdict) };
    let counts: Vec<&'static str> = Lane::named(lane)
        .map_or(&[][..], |lane| lane.metrics)
        .iter()
        .filter(|told| told.portable)
        .map(|told| told.name)
        .collect();
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
    let told = base.metrics.iter().map(|(name, _)| name).filter(|name| !counts.contains(name));
    lines.extend(told.map(|name| {
        let line = super::metric_line(name, base.metrics.get(name), new.metrics.get(name), THRESHOLD);
        Line { case: pair.name(), verdict: None, why: None, ..line }
    }));
    lines
}

/// The line for a row without a counterpart.
fn judged_alone(case: String, row: &Row) -> Line {
    match row.invalid() {
        // The share of a limit depends on speed.
        Some(_) if row.checked => Line::alone(case, Verdict::Same),
        Some(why) => Line { why: Some(why), ..Line::alone(case, Verdict::Invalid) },
        None => Line::alone(case, Verdict::Same),
    }
}

fn counted(pair: &Pair<'_>, name: &str, base: &Row, new: &Row) -> Option<Line> {
    let of = |row: &Row| row.metrics.get(name).map(Metric::samples).and_then(Samples::headline);
    // A count differs if any sample differs.
    let range = |row: &Row| {
        let samples = row.metrics.get(name).map(Metric::samples);
        samples.map(|s| (s.min(), s.max()))
    };
    let samples = new.metrics.get(name).or(base.metrics.get(name))?.samples();
    let (b, n) = (of(base), of(new));
    let why = format!("a count that must agree; {MEANT}");
    let verdict = match (b, n) {
        (Some(b), Some(n)) if b == n && range(base) == range(new) => Verdict::Same,
        (None, Some(_)) => Verdict::New,
        (Some(_), None) => Verdict::Missing,
        _ => Verdict::Slower,
    };
    Some(Line {
        metric: Some(name.to_owned()),
        unit: Some(samples.unit().to_owned()),
        direction: Some(samples.direction()),
        base: b,
        new: n,
        why: (verdict == Verdict::Slower).then_some(why),
        ..Line::alone(pair.name(), verdict)
    })
}
