//! Lane `limits`: the machine's peak rates, with which all other lanes are compared.
//!
//! Reading: by threads, with and without huge pages; each thread reads one region, or several interleaved. Arithmetic:
//! multiply-adds on registers, by tier and threads. Each round covers all cases before the next round begins, so that a
//! drift of the machine's speed appears as spread and not as a difference between cases.

use redline_kernels::op::probe;
use redline_kernels::{Arithmetic, Buffer, Exec, Pages, Simd, Team, Tier, set_default_float_environment};

use super::{Lane, Run, higher, info};
use crate::bench::{Bench, Flag, LaneError, Values};
use crate::conditions::Condition;
use crate::limits::{self, FILL, LimitError};
use crate::machine::{Counters, Resident};
use crate::warmup::Warmup;
use crate::{Direction, Row, Samples};

/// The `limits` lane.
pub const LANE: Lane = Lane {
    name: "limits",
    asks: "How fast can this machine read memory, and multiply and add, with how many threads?",
    checks: "every way to read gives the sum of the words",
    against: "itself: other lanes are held against these figures, measured in their own process",
    metrics: &[
        higher("read_bandwidth", "GB/s"),
        higher("f32_peak", "GOP/s"),
        higher("bf16_peak", "GOP/s"),
        higher("int8_peak", "GOP/s"),
        info("spread", "share"),
        info("huge_page_bytes", "bytes"),
    ],
    threshold: 0.10,
    flags: &[
        Flag {
            name: "streams",
            value: "N,..",
            default: "1,2,4",
            help: "Regions that each thread reads in turn",
        },
        Flag { name: "huge-pages", value: "WHICH", default: "both", help: "Pages to read: on, off or both" },
        Flag {
            name: "buffer-mib",
            value: "N",
            default: "auto",
            help: "MiB to read; auto: four times the last-level cache, but no more than memory allows",
        },
        Flag::runs("5"),
        Flag::warmups("1"),
    ],
    smoke: &[("streams", "1,2"), ("buffer-mib", "4"), ("num-runs", "2")],
    standard: &[("streams", "1,4"), ("huge-pages", "on")],
    threads: |default| (1..=default).collect(),
    columns: None,
    shown: None,
    note: None,
    styles: &[],
    baseline: None,
    run: Run::Machine(run),
};

/// A buffer and how it was allocated.
struct Region {
    huge: bool,
    words: Buffer<u32>,
    /// Bytes on huge pages, if the system reports it.
    huge_bytes: Option<u64>,
}

fn run(bench: &Bench<'_>, values: &Values) -> Result<(), LaneError> {
    let streams = values.counts("streams")?;
    let pages: &[bool] = match values.choice("huge-pages", &["both", "on", "off"])? {
        "on" => &[true],
        "off" => &[false],
        _ => &[true, false],
    };
    let rounds = Rounds { runs: values.count("num-runs")?, warmups: values.count("warmup-runs")? };
    let bytes = match values.count_or_auto("buffer-mib")? {
        None => limits::buffer_bytes(&bench.machine, pages.len()),
        Some(mib) => {
            let bytes = mib as f64 * f64::from(1 << 20);
            bench.fits(&format!("{} of {mib} MiB", buffers(pages.len())), bytes * pages.len() as f64)?;
            mib << 20
        }
    };
    set_default_float_environment();
    let teams = bench.threads.iter().map(|&threads| Team::new(threads)).collect::<Result<Vec<_>, _>>();
    let teams = teams.map_err(LimitError::Threads)?;
    let regions = pages.iter().map(|&huge| Region::new(bytes, huge)).collect::<Result<Vec<_>, _>>()?;
    bench.done("read bandwidth", reading_rows(bench, &teams, &regions, &streams, rounds)?)?;
    drop(regions);
    bench.done("arithmetic", arithmetic_rows(bench, &teams, rounds)?)
}

/// Numbers of rounds, with and without counting.
#[derive(Clone, Copy)]
struct Rounds {
    runs: usize,
    warmups: usize,
}

fn buffers(n: usize) -> &'static str {
    if n == 1 { "a buffer" } else { "two buffers" }
}

impl Region {
    fn new(bytes: usize, huge: bool) -> Result<Self, LaneError> {
        let before = Resident::now().huge_page_bytes;
        let pages = if huge { Pages::Huge } else { Pages::Small };
        let mut words = Buffer::zeroed_on(bytes.div_ceil(4), pages)?;
        words.fill(FILL);
        let after = Resident::now().huge_page_bytes;
        let huge_bytes = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        Ok(Self { huge, words, huge_bytes })
    }
}

/// Readings of a case in billions per second, with their conditions. The readings serve as their own canary.
#[derive(Default)]
struct Readings {
    giga: Vec<f64>,
    conditions: Vec<Condition>,
}

impl Readings {
    fn take(&mut self, bench: &Bench<'_>, keep: bool, read: impl FnOnce() -> f64) {
        let (before, start_ns) = (Counters::now(), bench.clock.now_ns());
        let rate = read();
        let seconds = bench.clock.elapsed_s(start_ns);
        if keep {
            self.giga.push(rate * 1e-9);
            let condition = Condition::between(&before, &Counters::now(), seconds);
            self.conditions.push(Condition { start_ns, ..condition });
        }
    }
}

impl Rounds {
    /// Runs warm-up rounds, then the rounds that count.
    fn run(self, bench: &Bench<'_>, what: &str, round: &mut dyn FnMut(bool)) -> Result<Warmup, LaneError> {
        let warmup = bench.warm_up(
            self.warmups,
            || 0,
            |_| {
                round(false);
                Ok(())
            },
        )?;
        for at in 1..=self.runs {
            round(true);
            (bench.progress)(&format!("{what}, round {at} of {}", self.runs));
        }
        Ok(warmup)
    }
}

/// Reads every buffer with every team and every number of streams.
fn reading_rows(
    bench: &Bench<'_>,
    teams: &[Team],
    regions: &[Region],
    streams: &[usize],
    rounds: Rounds,
) -> Result<Vec<Row>, LaneError> {
    let simd = bench.simd();
    let mut cases: Vec<(&Team, &Region, usize, Readings)> = Vec::new();
    for team in teams {
        for region in regions {
            cases.extend(streams.iter().map(|&streams| (team, region, streams, Readings::default())));
        }
    }
    for (team, region, streams, _) in &cases {
        let sum = probe::read(Exec { simd, team }, &region.words, *streams);
        let expected = (region.words.len() as u32).wrapping_mul(FILL);
        if sum != expected {
            let fact = format!("{streams} streams of {} read a sum of {sum}, not {expected}", name(region));
            return Err(LaneError::Incorrect(fact));
        }
    }
    let mut round = |keep: bool| {
        for (team, region, streams, readings) in &mut cases {
            let exec = Exec { simd, team };
            readings.take(bench, keep, || limits::bandwidth(exec, &region.words, *streams, bench.clock));
        }
    };
    let warmup = rounds.run(bench, "read bandwidth", &mut round)?;
    let row = |(team, region, streams, readings): (&Team, &Region, usize, Readings)| {
        let threads = team.size();
        let mut row = Row::new(format!("read/{}/s{streams}/t{threads}", name(region)))
            .param("threads", threads)
            .param("huge_pages", region.huge)
            .param("streams", streams)
            .param("buffer_bytes", region.words.bytes());
        row.kernel_path = Some(simd.name().into());
        row = measured(row.warmed(warmup), "read_bandwidth", "GB/s", readings)?;
        Ok(match region.huge_bytes {
            None => row,
            Some(bytes) => {
                row.metric("huge_page_bytes", Samples::new("bytes", Direction::Info, vec![bytes as f64])?)
            }
        })
    };
    cases.into_iter().map(row).collect()
}

fn name(region: &Region) -> &'static str {
    if region.huge { "huge" } else { "small" }
}

/// Runs multiply-adds with every team on every tier.
fn arithmetic_rows(bench: &Bench<'_>, teams: &[Team], rounds: Rounds) -> Result<Vec<Row>, LaneError> {
    let all = bench.tier.map_or_else(|| Tier::ALL.to_vec(), |tier| vec![tier]);
    let tiers: Vec<Simd> = all.into_iter().filter_map(|tier| Simd::new(tier).ok()).collect();
    let mut cases: Vec<(Simd, Arithmetic, &Team, Readings)> = Vec::new();
    for &simd in &tiers {
        for &arithmetic in Arithmetic::ALL {
            cases.extend(teams.iter().map(|team| (simd, arithmetic, team, Readings::default())));
        }
    }
    let mut round = |keep: bool| {
        for (simd, arithmetic, team, readings) in &mut cases {
            let exec = Exec { simd: *simd, team };
            readings.take(bench, keep, || limits::peak(exec, *arithmetic, bench.clock));
        }
    };
    let warmup = rounds.run(bench, "arithmetic", &mut round)?;
    let row = |(simd, arithmetic, team, readings): (Simd, Arithmetic, &Team, Readings)| {
        let (tier, threads) = (simd.tier().name(), team.size());
        let mut row = Row::new(format!("peak/{}/{tier}/t{threads}", arithmetic.name()))
            .param("threads", threads)
            .param("tier", tier)
            .param("arithmetic", arithmetic.name());
        row.kernel_path = Some(simd.name().into());
        measured(row.warmed(warmup), &format!("{}_peak", arithmetic.name()), "GOP/s", readings)
    };
    cases.into_iter().map(row).collect()
}

/// Adds the limit and the spread of the readings to a row.
fn measured(row: Row, name: &str, unit: &str, readings: Readings) -> Result<Row, LaneError> {
    let limit = Samples::new(unit, Direction::Higher, readings.giga)?;
    let row = row.conditions(readings.conditions);
    let spread = Samples::new("share", Direction::Info, limit.spread().into_iter().collect())?;
    Ok(Row { checked: true, ..row.metric(name, limit).metric("spread", spread) })
}
