//! Lane `limits`: the machine's peak rates, with which all other lanes are compared.
//!
//! Reading: by threads, with and without huge pages; each thread reads one region, or several interleaved. Arithmetic:
//! multiply-adds on registers, by tier and threads. Each round covers all cases before the next round begins, so that a
//! drift of the machine's speed appears as spread and not as a difference between cases.

use redline_kernels::op::probe;
use redline_kernels::{Arithmetic, Buffer, Exec, Pages, Simd, Team, Tier, set_default_float_environment};

use super::prelude::*;
use crate::conditions::Condition;
use crate::limits::{self, FILL, LimitError, READING_NS};
use redline_system::machine::{Counters, Resident};

pub(super) const LANE: Lane = Lane {
    asks: "How fast can this machine read memory, and multiply and add, with how many threads?",
    checks: "every way to read gives the sum of the words",
    against: "itself: other lanes are held against these figures, measured in their own process",
    metrics: "+read_bandwidth GB/s|+f32_peak GOP/s|+bf16_peak GOP/s|+int8_peak GOP/s|spread share|\
              huge_page_bytes bytes",
    flags: &Flags::ALL,
    smoke: "streams=1,2 buffer-mib=4 num-runs=2",
    standard: "streams=1,4 huge-pages=on",
    threads: |default| (1..=default).collect(),
    ..Lane::new("limits", 0.10, LaneFunction::Machine(run))
};

flags! {
    struct Flags;
    streams: Vec<usize> = "streams", "N,..", "1,2,4", "Regions that each thread reads in turn";
    pages: &'static [bool] = "huge-pages", "WHICH", "both", "Pages to read: on, off or both", |flag, text| {
        flag.choice(text, &[("both", &[true, false][..]), ("on", &[true]), ("off", &[false])])
    };
    buffer_mib: Option<usize> = "buffer-mib", "N", "auto",
        "MiB to read; auto: four times the last-level cache, but no more than memory allows";
    timed: usize = "num-runs", "N", "5", RUNS;
    warmups: usize = "warmup-runs", "N", "1", WARMUPS;
}

struct Region {
    huge: bool,
    words: Buffer<u32>,
    /// Bytes on huge pages, if the system reports it.
    huge_bytes: Option<u64>,
}

fn run(bench: &Bench<'_>, values: &Values) -> Result<()> {
    let Flags { streams, pages, buffer_mib, timed, warmups } = Flags::of(values)?;
    let runs = Runs { timed, warmups };
    let bytes = match buffer_mib {
        None => limits::buffer_bytes(&bench.machine, pages.len()),
        Some(mib) => {
            let buffers = if pages.len() == 1 { "a buffer" } else { "two buffers" };
            let bytes = mib as f64 * f64::from(1 << 20);
            bench.fits(&format!("{buffers} of {mib} MiB"), bytes * pages.len() as f64)?;
            mib << 20
        }
    };
    set_default_float_environment();
    let teams = bench.threads.iter().map(|&threads| Team::new(threads)).collect::<Result<Vec<_>, _>>();
    let teams = teams.map_err(LimitError::Threads)?;
    let regions = pages.iter().map(|&huge| Region::new(bytes, huge)).collect::<Result<Vec<_>, _>>()?;
    bench.done("read bandwidth", reading_rows(bench, &teams, &regions, &streams, runs)?)?;
    drop(regions);
    bench.done("arithmetic", arithmetic_rows(bench, &teams, runs)?)
}

impl Region {
    fn new(bytes: usize, huge: bool) -> Result<Self> {
        let before = Resident::now().huge_page_bytes;
        let pages = if huge { Pages::Huge } else { Pages::Small };
        let mut words = Buffer::zeroed_on(bytes.div_ceil(4), pages)?;
        words.fill(FILL);
        let after = Resident::now().huge_page_bytes;
        let huge_bytes = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        Ok(Self { huge, words, huge_bytes })
    }

    fn name(&self) -> &'static str {
        if self.huge { "huge" } else { "small" }
    }
}

/// A case and its readings, which serve as their own canary.
struct Case<'a> {
    row: Row,
    metric: String,
    /// Takes a reading: a rate per second.
    read: Box<dyn Fn() -> f64 + 'a>,
    giga: Vec<f64>,
    conditions: Vec<Condition>,
    huge_page_bytes: Option<u64>,
}

impl<'a> Case<'a> {
    fn new(row: Row, metric: String, read: impl Fn() -> f64 + 'a) -> Self {
        let (giga, conditions) = (Vec::new(), Vec::new());
        Self { row, metric, read: Box::new(read), giga, conditions, huge_page_bytes: None }
    }

    fn take(&mut self, bench: &Bench<'_>) {
        let (before, start_ns) = (Counters::now(), bench.clock.now_ns());
        self.giga.push((self.read)() * 1e-9);
        let seconds = bench.clock.elapsed_s(start_ns);
        let condition = Condition::between(&before, &Counters::now(), seconds);
        self.conditions.push(Condition { start_ns, ..condition });
    }

    fn measured(self) -> Result<Row> {
        let spread = Samples::new("", Direction::Info, self.giga.clone())?.spread();
        let row = self.row.conditions(self.conditions).measured(LANE.metrics, &self.giga);
        let row = row.each(&self.metric, |reading| *reading)?.all("spread", spread.into_iter().collect())?;
        Ok(row.one("huge_page_bytes", self.huge_page_bytes.map(|bytes| bytes as f64))?.row)
    }
}

/// Runs warm-up rounds over all cases, then the rounds that count.
fn rounds(bench: &Bench<'_>, what: &str, runs: Runs, mut cases: Vec<Case<'_>>) -> Result<Vec<Row>> {
    let warmup = bench.warm_up(runs.warmups, |_| {
        for case in &cases {
            (case.read)();
        }
        Ok(())
    })?;
    for round in 1..=runs.timed {
        for case in &mut cases {
            case.take(bench);
        }
        (bench.progress)(&format!("{what}, round {round} of {}", runs.timed));
    }
    cases.into_iter().map(|case| Ok(case.measured()?.warmed(warmup))).collect()
}

/// Reads every buffer with every team and every number of streams.
fn reading_rows(
    bench: &Bench<'_>,
    teams: &[Team],
    regions: &[Region],
    streams: &[usize],
    runs: Runs,
) -> Result<Vec<Row>> {
    let simd = bench.simd();
    let mut cases = Vec::new();
    for team in teams {
        for region in regions {
            for &streams in streams {
                let (exec, name, threads) = (Exec { simd, team }, region.name(), team.size());
                let sum = probe::read(exec, &region.words, streams);
                let expected = (region.words.len() as u32).wrapping_mul(FILL);
                verify(sum == expected, || {
                    format!("{streams} streams of {name} read a sum of {sum}, not {expected}")
                })?;
                let row = Row::new(format!("read/{name}/s{streams}/t{threads}"))
                    .param("threads", threads)
                    .param("huge_pages", region.huge)
                    .param("streams", streams)
                    .param("buffer_bytes", region.words.bytes())
                    .checked_on(simd.name());
                let read = move || limits::bandwidth(exec, &region.words, streams, READING_NS, bench.clock);
                let case = Case::new(row, "read_bandwidth".to_owned(), read);
                cases.push(Case { huge_page_bytes: region.huge_bytes, ..case });
            }
        }
    }
    rounds(bench, "read bandwidth", runs, cases)
}

/// Runs multiply-adds with every team on every tier.
fn arithmetic_rows(bench: &Bench<'_>, teams: &[Team], runs: Runs) -> Result<Vec<Row>> {
    let tiers = bench.tier.map_or_else(|| Tier::ALL.to_vec(), |tier| vec![tier]);
    let mut cases = Vec::new();
    for simd in tiers.into_iter().filter_map(|tier| Simd::new(tier).ok()) {
        for &arithmetic in Arithmetic::ALL {
            for team in teams {
                let (tier, name, threads) = (simd.tier().name(), arithmetic.name(), team.size());
                let row = Row::new(format!("peak/{name}/{tier}/t{threads}"))
                    .param("threads", threads)
                    .param("tier", tier)
                    .param("arithmetic", name)
                    .checked_on(simd.name());
                let read = move || limits::peak(Exec { simd, team }, arithmetic, READING_NS, bench.clock);
                cases.push(Case::new(row, format!("{name}_peak"), read));
            }
        }
    }
    rounds(bench, "arithmetic", runs, cases)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::lanes::tests::{bench, samples};
    use redline_system::Clock;

    #[test]
    fn a_case_has_the_rates_of_the_rounds_that_count() {
        let (clock, told) = (Clock::ticking(1_000_000), RefCell::new(Vec::new()));
        let progress = |what: &str| told.borrow_mut().push(what.to_owned());
        let bench = Bench { progress: &progress, ..bench(&clock) };
        let case = |name: &str| Case::new(Row::new(name), "f32_peak".to_owned(), || 2e9);
        let huge = Case { huge_page_bytes: Some(7), ..case("b") };
        let rows = rounds(&bench, "peaks", Runs { timed: 2, warmups: 1 }, vec![case("a"), huge]).unwrap();
        assert_eq!(*told.borrow(), ["peaks, round 1 of 2", "peaks, round 2 of 2"]);
        for (row, (name, bytes)) in rows.iter().zip([("a", vec![]), ("b", vec![7.0])]) {
            assert_eq!((row.case.as_str(), samples(row, "huge_page_bytes")), (name, bytes));
            let values = ["f32_peak", "spread"].map(|name| samples(row, name));
            assert_eq!(values, [vec![2.0, 2.0], vec![0.0]], "billions per second");
            assert_eq!((row.conditions.len(), row.conditions[0].len()), (1, 2));
            assert!(row.warmup.is_some_and(|warmup| warmup.runs >= 1));
        }
        // All cases of a round come before the next round.
        let starts = |row: usize| rows[row].conditions[0].iter().map(|c| c.start_ns).collect::<Vec<_>>();
        let (a, b) = (starts(0), starts(1));
        assert!(a[0] < b[0] && b[0] < a[1] && a[1] < b[1], "{a:?} {b:?}");
    }
}
