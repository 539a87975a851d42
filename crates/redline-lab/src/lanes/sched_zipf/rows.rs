//! The figures of a run, and the row with them.

use redline_engine::{ModelInfo, Stage};

use super::METRICS;
use super::busy::{Busy, Times};
use super::case::Flags;
use super::run::{Answer, Block, Sample};
use crate::Row;
use crate::bench::Result;
use crate::roofline::Held;
use crate::stats::{percentile_of, sorted};

/// What the figures of a run refer to.
pub(super) struct Outcome<'a> {
    pub(super) case: &'a Flags,
    pub(super) info: &'a ModelInfo,
    /// Bytes of an adapter in memory.
    pub(super) adapter_bytes: u64,
    /// Bytes of memory for adapters.
    pub(super) adapter_memory: u64,
    /// Mean number of adapters of the requests.
    pub(super) mean_adapters: f64,
    pub(super) digest: String,
}

impl Outcome<'_> {
    pub(super) fn row(&self, samples: &[Held<Sample>]) -> Result<Row> {
        let new_tokens = self.case.new_tokens as f64;
        let busy: Vec<Busy> = samples.iter().map(|sample| self.busy(&sample.value)).collect();
        let each = |value: fn(&Busy) -> f64| busy.iter().map(value).collect::<Vec<_>>();
        let row = self
            .described()
            .measured(METRICS, samples)
            .each("p50_ms", |held| own(held).latency_ms(50.0))?
            .each("p95_ms", |held| own(held).latency_ms(95.0))?
            .each("base_p50_ms", |held| base(held).latency_ms(50.0))?
            .each("base_p95_ms", |held| base(held).latency_ms(95.0))?
            .each("lora_tax_pct", |held| held.value.tax_pct())?
            .each("p95_tax_pct", |held| {
                let (own, base) = (own(held).latency_ms(95.0)?, base(held).latency_ms(95.0)?);
                Some(100.0 * (own / base - 1.0))
            })?
            .each("hot_reload_ms_p95", |held| own(held).reload_ms())?
            .each("cold_load_ms_p95", |held| held.value.cold_load_ms())?
            .each("tokens_per_s", |held| new_tokens * own(held).rate())?
            .each("load_rps", |held| own(held).rate())?
            .each("queue_ms_p95", |held| own(held).p95_ms(|answer| answer.first_pass_s - answer.due_s))?
            .each("adapter_wait_ms_p95", |held| own(held).p95_ms(|answer| answer.ready_s - answer.due_s))?
            .each("late_ms_p95", |held| own(held).p95_ms(|answer| answer.submitted_s - answer.due_s))?
            .all("decode_util", each(|busy| busy.decode_util))?
            .all("adapter_util", each(|busy| busy.adapter_util))?
            .all("overlap_ratio", busy.iter().filter_map(|busy| busy.overlap_ratio).collect())?
            .each("cold_loads", |held| held.value.cold_loads().count() as f64)?
            .each("reloads", |held| own(held).reload_ns().count() as f64)?
            .one("mean_adapters_per_req", self.mean_adapters)?
            .one("requests", samples.first().map(|held| own(held).answers().count() as f64))?
            .row
            .conditions(samples.iter().map(|held| held.condition).collect());
        Ok(if self.case.max_tax > 0.0 { row.at_most("lora_tax_pct", self.case.max_tax) } else { row })
    }

    fn described(&self) -> Row {
        let &Flags { duration_s, rank, prompt_tokens, new_tokens, adapter_threads, pin_cores, .. } =
            self.case;
        let case = self.case;
        let arrivals = case.arrivals.with_shape(case.burstiness);
        Row::of_model(self.case.name(self.info.threads), self.info)
            .param("sched", "continuous")
            .param("alpha", case.alpha)
            .param("adapters_n", case.adapters)
            .param("mean_adapters", case.mean_adapters)
            .param("adapter_rank", rank)
            .param("offered_rps", case.rps)
            .param("arrivals", format!("{arrivals:?}").to_lowercase())
            .param("duration_s", duration_s)
            .param("decode_threads", self.info.threads)
            .param("adapter_threads", adapter_threads)
            .param("pin_cores", pin_cores)
            .param("prompt_tokens", prompt_tokens)
            .param("new_tokens", new_tokens)
            .param("adapter_bytes", self.adapter_bytes)
            .param("adapter_memory", self.adapter_memory)
            .digest(self.digest.clone())
    }

    fn busy(&self, sample: &Sample) -> Busy {
        let windows: Vec<Times> = sample.adapters.iter().map(|block| block.window).collect();
        Busy::of(&sample.times, &windows, self.case.adapter_threads)
    }
}

/// The blocks with adapters, or those without.
#[derive(Clone, Copy)]
struct Arm<'a>(&'a [Block]);

fn own(held: &Held<Sample>) -> Arm<'_> {
    Arm(&held.value.adapters)
}

fn base(held: &Held<Sample>) -> Arm<'_> {
    Arm(&held.value.base)
}

fn percentile(values: impl Iterator<Item = f64>, percent: f64) -> Option<f64> {
    percentile_of(&sorted(&values.collect::<Vec<_>>()), percent)
}

impl<'a> Arm<'a> {
    fn answers(self) -> impl Iterator<Item = &'a Answer> {
        self.0.iter().flat_map(|block| &block.answers)
    }

    /// A percentile of the time from a request's due time to its last token.
    fn latency_ms(self, percent: f64) -> Option<f64> {
        percentile(self.answers().map(|answer| 1e3 * (answer.end_s - answer.due_s)), percent)
    }

    /// The 95th percentile of a time in seconds.
    fn p95_ms(self, seconds: impl Fn(&Answer) -> f64) -> Option<f64> {
        percentile(self.answers().map(|answer| 1e3 * seconds(answer)), 95.0)
    }

    /// Answered requests per second of the windows.
    fn rate(self) -> f64 {
        let windows = self.0.iter().map(|block| (block.window.1 - block.window.0) as f64 * 1e-9);
        self.answers().count() as f64 / windows.sum::<f64>()
    }

    fn reload_ns(self) -> impl Iterator<Item = u64> + 'a {
        self.0.iter().flat_map(|block| &block.reload_ns).copied()
    }

    /// From the call that publishes an adapter until it is published.
    fn reload_ms(self) -> Option<f64> {
        percentile(self.reload_ns().map(|ns| ns as f64 * 1e-6), 95.0)
    }
}

impl Sample {
    /// The median over requests of what adapters add to the time from the first pass to the last token, in percent.
    fn tax_pct(&self) -> Option<f64> {
        let service = |answer: &Answer| answer.end_s - answer.first_pass_s;
        let pairs = Arm(&self.adapters).answers().zip(Arm(&self.base).answers());
        let taxes = pairs.map(|(own, base)| 100.0 * (service(own) / service(base) - 1.0));
        percentile(taxes.filter(|tax| tax.is_finite()), 50.0)
    }

    /// Nanoseconds in which each evicted adapter was read and packed.
    fn cold_loads(&self) -> impl Iterator<Item = u64> {
        let restored = self.times.iter().filter(|time| time.stage == Stage::Restore);
        restored.map(|time| time.end - time.start)
    }

    fn cold_load_ms(&self) -> Option<f64> {
        percentile(self.cold_loads().map(|ns| ns as f64 * 1e-6), 95.0)
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::StageTime;

    use super::*;
    use crate::lanes::tests::{info, samples, timed};

    /// An answer to a request that was due at a time, with the seconds until each event after it.
    fn answer(due_s: f64, [submitted, ready, first_pass, end]: [f64; 4]) -> Answer {
        Answer {
            due_s,
            submitted_s: due_s + submitted,
            ready_s: due_s + ready,
            first_pass_s: due_s + first_pass,
            end_s: due_s + end,
            ids: vec![1, 2],
        }
    }

    fn block(window: (u64, u64), answers: Vec<Answer>, reload_ns: &[u64]) -> Block {
        Block { window, answers, reload_ns: reload_ns.to_vec() }
    }

    fn sample(slower: f64) -> Sample {
        const S: u64 = 1_000_000_000;
        let time = |stage, start, end| StageTime { stage, start, end };
        let own = vec![
            block((0, S), vec![answer(0.25, [0.0, 0.25, 0.5, 0.5 + slower])], &[3_000_000]),
            block((3 * S, 4 * S), vec![answer(3.5, [0.0, 0.0, 0.25, 0.25 + slower])], &[]),
        ];
        let base = vec![
            block((S, 2 * S), vec![answer(1.25, [0.0, 0.0, 0.0, 0.5])], &[]),
            block((2 * S, 3 * S), vec![answer(2.5, [0.0, 0.0, 0.125, 0.625])], &[]),
        ];
        let times = vec![
            time(Stage::Pass, S / 2, S),
            time(Stage::Pass, S, 2 * S),
            time(Stage::Restore, S / 4, 3 * S / 4),
            time(Stage::Load, 3 * S, 3 * S + S / 2),
        ];
        Sample { adapters: own, base, times }
    }

    fn row(given: &[(&'static str, &'static str)], slower: f64) -> Row {
        let case = Flags::with(given).unwrap();
        let outcome = Outcome {
            case: &case,
            info: &info(),
            adapter_bytes: 5,
            adapter_memory: 50,
            mean_adapters: 4.5,
            digest: "d".to_owned(),
        };
        outcome.row(&[timed(sample(slower)), timed(sample(slower))]).unwrap()
    }

    #[test]
    fn figures_are_of_the_arm_with_adapters() {
        let row = row(&[], 0.75);
        let value = |name: &str| {
            let values = samples(&row, name);
            assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {values:?}");
            (values[0] * 1e6).round() / 1e6
        };
        // Latencies of 1.25 and 1 s, and without adapters of 0.5 and 0.625 s.
        assert_eq!((value("p50_ms"), value("p95_ms")), (1125.0, 1237.5));
        assert_eq!((value("base_p50_ms"), value("base_p95_ms")), (562.5, 618.75));
        assert_eq!(value("p95_tax_pct"), 100.0);
        // From first pass to last token 0.75 s each, without adapters 0.5 s.
        assert_eq!(value("lora_tax_pct"), 50.0);
        assert_eq!((value("queue_ms_p95"), value("adapter_wait_ms_p95")), (487.5, 237.5));
        assert_eq!((value("hot_reload_ms_p95"), value("reloads")), (3.0, 1.0));
        assert_eq!((value("cold_load_ms_p95"), value("cold_loads")), (500.0, 1.0));
        // Two requests of 32 tokens in windows of 2 s.
        assert_eq!((value("load_rps"), value("tokens_per_s"), value("requests")), (1.0, 32.0, 2.0));
        // In these windows passes take 0.5 s and adapters 1 s, of which 0.25 s are common.
        assert_eq!((value("decode_util"), value("adapter_util"), value("overlap_ratio")), (0.25, 0.5, 0.25));
        assert_eq!((value("mean_adapters_per_req"), row.digest.as_deref()), (4.5, Some("d")));
        assert!(row.gates.is_empty() && row.missed().is_empty());
    }

    #[test]
    fn a_tax_above_the_bound_misses_the_gate() {
        assert!(row(&[("max-tax", "50")], 0.75).missed().is_empty());
        assert_eq!(row(&[("max-tax", "49")], 0.75).missed().len(), 1);
    }

    #[test]
    fn a_run_without_adapters_to_read_has_no_time_of_reading() {
        let mut quiet = sample(0.75);
        quiet.times.retain(|time| time.stage == Stage::Pass);
        quiet.adapters.iter_mut().for_each(|block| block.reload_ns.clear());
        assert_eq!((Arm(&quiet.adapters).reload_ms(), quiet.cold_load_ms()), (None, None));
    }
}
