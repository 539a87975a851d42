//! Corrects the samples of two arms for changes of the machine's speed during the run.
//!
//! Before and after every sample, the limit that bounds its case was read. A time is scaled by the machine's speed at that moment, a
//! rate by its inverse, both relative to the median of all readings of both arms. Verdicts between interleaved arms use these samples
//! if that makes smaller differences detectable, and say so. Both arms must have read the limit by the same method, so that one build
//! is not compared with another's measure.

use crate::result::Row;
use crate::stats::{Samples, sorted};

const TIMES: &[&str] = &["s", "ms", "us", "ns"];

/// Both sides of a metric at a steady speed. `None` if the speed is unknown for a sample, or if the metric is neither a time nor a
/// rate.
pub(super) fn steadied(base: &Row, new: &Row, name: &str) -> Option<(Samples, Samples)> {
    let (b, n) = limits(base, new)?;
    let all = sorted(&[b.values(), n.values()].concat());
    let middle = *all.get(all.len() / 2)?;
    Some((at(base, name, b, middle)?, at(new, name, n, middle)?))
}

/// The readings of the limit that bounds both rows, if they were taken by the same method.
pub(super) fn limits<'a>(base: &'a Row, new: &'a Row) -> Option<(&'a Samples, &'a Samples)> {
    if base.limit.is_none()
        || base.limit_method.is_none()
        || base.limit_method != new.limit_method
        || base.limit != new.limit
        || base.params.get("threads") != new.params.get("threads")
    {
        return None;
    }
    Some((readings(base)?, readings(new)?))
}

/// Whether a metric is a time or a rate, which follow the speed of the machine.
pub(super) fn follows_speed(name: &str, samples: &Samples) -> bool {
    name != "limit" && (TIMES.contains(&samples.unit()) || samples.unit().ends_with("/s"))
}

fn readings(row: &Row) -> Option<&Samples> {
    let readings = row.samples_of("limit")?;
    readings.values().iter().all(|&v| v > 0.0).then_some(readings)
}

fn at(row: &Row, name: &str, speeds: &Samples, middle: f64) -> Option<Samples> {
    let samples = row.samples_of(name)?;
    let time = TIMES.contains(&samples.unit());
    if !follows_speed(name, samples) || samples.process_numbers() != speeds.process_numbers() {
        return None;
    }
    let process = |(values, speeds): (&[f64], &[f64])| {
        let scaled = |(&value, &speed): (&f64, &f64)| {
            let relative = speed / middle;
            if time { value * relative } else { value / relative }
        };
        (values.len() == speeds.len()).then(|| values.iter().zip(speeds).map(scaled).collect::<Vec<f64>>())
    };
    let processes: Option<Vec<Vec<f64>>> = samples.processes().zip(speeds.processes()).map(process).collect();
    Samples::by_process(samples.unit(), samples.direction(), &processes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Direction;

    fn row(seconds: &[f64], speeds: &[f64]) -> Row {
        let seconds = Samples::new("s", Direction::Lower, seconds.to_vec()).unwrap();
        let rates = seconds.values().iter().map(|s| 6.0 / s).collect();
        let rates = Samples::new("items/s", Direction::Higher, rates).unwrap();
        let speeds = Samples::new("GOP/s", Direction::Info, speeds.to_vec()).unwrap();
        let row = Row::new("a").param("threads", 1).limit("f32_peak", None);
        row.metric("seconds", seconds).metric("rate", rates).metric("limit", speeds)
    }

    #[test]
    fn times_and_rates_at_the_middle_speed() {
        // The same work on a machine at half and at twice its usual speed.
        let (base, new) = (row(&[2.0, 4.0], &[100.0, 50.0]), row(&[1.0, 2.0], &[200.0, 100.0]));
        let (b, n) = steadied(&base, &new, "seconds").unwrap();
        assert_eq!((b.values(), n.values()), (&[2.0, 2.0][..], &[2.0, 2.0][..]));
        let (b, n) = steadied(&base, &new, "rate").unwrap();
        assert_eq!((b.values(), n.values()), (&[3.0, 3.0][..], &[3.0, 3.0][..]));
    }

    #[test]
    fn only_where_the_speed_is_known() {
        let good = row(&[1.0, 2.0], &[1.0, 1.0]);
        assert!(steadied(&good, &good, "seconds").is_some());
        assert!(steadied(&good, &good, "limit").is_none(), "the speed itself");
        for other in [
            row(&[1.0, 2.0], &[1.0]),
            row(&[1.0, 2.0], &[0.0, 1.0]),
            Row { limit: Some("read_bandwidth".into()), ..good.clone() },
            good.clone().param("threads", 2),
            // Another way to read the limit.
            Row { limit_method: Some("probe/0".into()), ..good.clone() },
        ] {
            assert!(steadied(&good, &other, "seconds").is_none(), "{other:?}");
        }
    }

    #[test]
    fn sizes_do_not_follow_the_speed() {
        let memory = Samples::new("bytes", Direction::Lower, vec![5.0, 6.0]).unwrap();
        let row = row(&[1.0, 2.0], &[1.0, 2.0]).metric("memory", memory);
        assert!(steadied(&row, &row, "seconds").is_some() && steadied(&row, &row, "memory").is_none());
    }
}
