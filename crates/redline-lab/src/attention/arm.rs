//! An arm: attention over keys and values of one format, ready to run, and the check of its outputs.

use redline_kernels::op::attention::{attention, scratch_words};
use redline_kernels::op::kv::{KvFormat, Segment};
use redline_kernels::{Buffer, Exec, Rows, RowsMut, Simd, Team, Tier};

use super::cache::Cache;
use super::case::Case;
use crate::bench::{CallTime, LaneError, Result, calls_within, same_bits, spread, verify};
use crate::limits::LimitError;
use redline_parity::ActivationDifference;
use redline_system::Clock;
use redline_system::digest::digest;

/// Target duration of a sample, which consists of consecutive calls.
const SAMPLE_NS: u64 = 10_000_000;
/// Maximum number of rows that run alone on the scalar tier.
const CHECKED_ROWS: usize = 4;

pub(super) struct Arm<'a> {
    exec: Exec<'a>,
    case: Case,
    cache: Cache,
    q: &'a [f32],
    out: Buffer<f32>,
    scratch: Buffer<u32>,
    /// The copy of keys and values that the next call reads.
    next: usize,
    /// The outputs that every call must give.
    expected: Vec<f32>,
}

/// Outputs that were found correct.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checked {
    /// Squared distance to the outputs over f32 keys and values, relative to their squared norm.
    pub(super) nmse: f64,
    pub(super) digest: String,
}

impl<'a> Arm<'a> {
    pub(super) fn new(exec: Exec<'a>, case: Case, cache: Cache, q: &'a [f32]) -> Result<Self> {
        let out = Buffer::zeroed(q.len())?;
        let scratch = Buffer::zeroed(scratch_words(case.head_dim))?;
        Ok(Self { exec, case, cache, q, out, scratch, next: 0, expected: Vec::new() })
    }

    pub(super) fn format(&self) -> KvFormat {
        self.cache.format()
    }

    /// Computes all rows over the next copy of keys and values.
    fn call(&mut self) {
        let segments = segments(&self.case, &self.cache, self.next);
        attend(self.exec, &self.case, &self.cache, &segments, self.q, &mut self.out, &mut self.scratch);
        self.next = (self.next + 1) % self.cache.copies();
    }

    /// The outputs of all rows.
    pub(super) fn outputs(&mut self) -> Vec<f32> {
        self.call();
        self.out.to_vec()
    }

    /// Checks that the outputs are the same bits on one thread, and that sampled rows are the same bits alone on the scalar tier.
    /// Compares them with the outputs over f32 keys and values.
    pub(super) fn check(&mut self, reference: &[f32]) -> Result<Checked> {
        let outputs = self.outputs();
        let team = Team::new(1).map_err(LimitError::Threads)?;
        let threads = self.exec.team.size();
        if threads > 1 {
            let (exec, segments) =
                (Exec { simd: self.exec.simd, team: &team }, segments(&self.case, &self.cache, 0));
            let mut out = vec![0f32; self.q.len()];
            attend(exec, &self.case, &self.cache, &segments, self.q, &mut out, &mut []);
            self.same(&outputs, &out, 0, &format!("with 1 thread, not {threads}"))?;
        }
        let simd = Simd::new(Tier::Scalar).map_err(|e| LaneError::Incorrect(e.to_string()))?;
        for row in spread(CHECKED_ROWS, self.case.tokens()) {
            let alone = self.alone(Exec { simd, team: &team }, row);
            let own = &outputs[row * self.case.width()..][..self.case.width()];
            self.same(own, &alone, row, "alone on the scalar tier")?;
        }
        let mut difference = ActivationDifference::default();
        let rows = outputs.chunks(self.case.width()).zip(reference.chunks(self.case.width()));
        rows.for_each(|(own, reference)| difference.add(own, reference));
        verify(difference.non_finite == 0, || {
            format!("{} outputs are not finite\n  in {}", difference.non_finite, self.place())
        })?;
        let digest = digest(outputs.iter().flat_map(|x| x.to_bits().to_le_bytes()));
        self.expected = outputs;
        Ok(Checked { nmse: difference.nmse(), digest })
    }

    /// The outputs of one row, run alone.
    fn alone(&self, exec: Exec<'_>, row: usize) -> Vec<f32> {
        let (case, rows) = (&self.case, self.case.rows);
        let segments = [case.segment(&self.cache.tables(0)[row / rows], row % rows, 1, 0)];
        let mut out = vec![0f32; case.width()];
        let q = &self.q[row * case.width()..][..case.width()];
        attend(exec, case, &self.cache, &segments, q, &mut out, &mut []);
        out
    }

    /// Returns an error for outputs, from row `first` on, that differ from `other` in any bit.
    fn same(&self, own: &[f32], other: &[f32], first: usize, how: &str) -> Result<()> {
        same_bits(own, other, (first, self.case.width()), how, &self.place())
    }

    fn place(&self) -> String {
        format!("attention over {} keys and values of {} tokens", self.format().name(), self.case.context)
    }

    /// The number of calls in a sample: a power of two.
    pub(super) fn calls(&mut self, clock: &Clock) -> usize {
        calls_within(clock, SAMPLE_NS, || self.call())
    }

    /// Measures one sample, and checks the outputs of its last call.
    pub(super) fn sample(&mut self, calls: usize, clock: &Clock) -> Result<CallTime> {
        let time = CallTime::of(clock, calls, || self.call());
        self.same(&self.out, &self.expected, 0, "when it was checked")?;
        Ok(time)
    }
}

/// The segments of all query rows, over a copy of keys and values.
fn segments<'a>(case: &Case, cache: &'a Cache, copy: usize) -> Vec<Segment<'a>> {
    let tables = cache.tables(copy).iter().enumerate();
    tables.map(|(i, pages)| case.segment(pages, 0, case.rows, i * case.rows)).collect()
}

/// Attention of the rows `q`.
fn attend(
    exec: Exec<'_>,
    case: &Case,
    cache: &Cache,
    segments: &[Segment<'_>],
    q: &[f32],
    out: &mut [f32],
    scratch: &mut [u32],
) {
    let (rows, width) = (q.len() / case.width(), case.width());
    let mut out = RowsMut::new(out, rows, width, width);
    let q = Rows::new(q, rows, width, width);
    attention(exec, case.attention(), cache.kv(), 0, segments, q, &mut out, scratch);
}

#[cfg(test)]
mod tests {
    use super::super::cache::queries;
    use super::super::case::tests::CASE;
    use super::*;
    use crate::bench::slowing_clock;

    /// Runs `f` with an arm of each format: f32, f16, w8.
    fn with_arms<T>(threads: usize, case: Case, f: impl FnOnce(&mut [Arm<'_>]) -> T) -> T {
        let team = Team::new(threads).unwrap();
        let exec = Exec { simd: Simd::best(), team: &team };
        let q = queries(&case);
        let formats = [(KvFormat::F32, 1), (KvFormat::F16, 1), (KvFormat::W8, 3)];
        let caches = Cache::filled(exec, &case, formats).unwrap();
        let arms = caches.into_iter().map(|cache| Arm::new(exec, case, cache, &q).unwrap());
        f(&mut arms.collect::<Vec<_>>())
    }

    #[test]
    fn smaller_formats_are_further_from_f32() {
        with_arms(2, CASE, |arms| {
            let reference = arms[0].outputs();
            let nmse: Vec<f64> = arms.iter_mut().map(|arm| arm.check(&reference).unwrap().nmse).collect();
            assert_eq!(nmse[0], 0.0);
            assert!(nmse[1] > 0.0 && nmse[1] < 1e-6 && nmse[2] > 1e-5 && nmse[2] < 1e-3, "{nmse:?}");
        });
    }

    #[test]
    fn outputs_have_one_digest_for_all_threads_and_copies() {
        let digests = [1, 3].map(|threads| {
            with_arms(threads, CASE, |arms| {
                let reference = arms[0].outputs();
                let first = arms[2].check(&reference).unwrap();
                assert_eq!(arms[2].check(&reference).unwrap(), first, "another copy");
                first.digest
            })
        });
        assert_eq!(digests[0], digests[1]);
    }

    #[test]
    fn other_bits_in_a_timed_run_are_incorrect() {
        let clock = Clock::ticking(1);
        with_arms(1, Case { rows: 1, ..CASE }, |arms| {
            let reference = arms[0].outputs();
            arms[1].check(&reference).unwrap();
            assert!(arms[1].sample(2, &clock).is_ok());
            arms[1].expected[CASE.width() + 3] = 9.0;
            let Err(LaneError::Incorrect(fact)) = arms[1].sample(2, &clock) else { panic!() };
            assert!(fact.starts_with("output 3 of row 1 is ") && fact.contains("but 9 when it"), "{fact}");
            assert!(fact.ends_with("over f16 keys and values of 300 tokens"), "{fact}");
        });
    }

    #[test]
    fn a_sample_is_time_over_calls_and_copies_take_turns() {
        let clock = slowing_clock();
        with_arms(1, Case { context: 20, ..CASE }, |arms| {
            let reference = arms[0].outputs();
            arms[2].check(&reference).unwrap();
            assert_eq!(arms[2].calls(&clock), 32, "1, 2, 4, 8, 16 calls took less than 10 ms");
            let sample = arms[2].sample(7, &clock).unwrap();
            assert_eq!(sample, CallTime { seconds: 13e6 * 1e-9 / 7.0, cpu_seconds: None });
            assert_eq!(arms[2].next, (1 + 63 + 7) % 3);
        });
    }
}
