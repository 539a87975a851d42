//! The arms of a case, which take turns: the layer alone, with its adapters fused, and with separate calls for the adapters.

use redline_kernels::op::add::add;
use redline_kernels::op::linear::{
    Epilogue, Lora, LoraPart, LoraRows, Variant, linear, lora_scratch_words, scratch_words,
};
use redline_kernels::{Buffer, Exec, Matrix, Rows, RowsMut, Simd, Team, Tier};

use super::case::Case;
use crate::bench::{CallTime, LaneError, Result, calls_within, same_bits, spread, verify};
use crate::lanes::gemm::linear::{Noise, copy};
use crate::limits::LimitError;
use redline_parity::ActivationDifference;
use redline_system::Clock;
use redline_system::digest::digest;

/// Minimum duration of the consecutive calls of an arm.
const TURN_NS: u64 = 5_000_000;
/// Maximum numbers of outputs and input rows that are compared with the reference.
const CHECKED: (usize, usize) = (32, 4);
/// Maximum squared error of the outputs, relative to their squared norm.
const MAX_NMSE: f64 = 1e-3;
/// Factor on the updates: alpha is twice the rank, as in most adapters.
const SCALE: f32 = 2.0;
/// The two matrices of the first adapter. With these spreads an update is about as large as what it is added to, so that outputs
/// without it would be far from the reference.
const DOWN: Noise = Noise { seed: 3, spread: 0.035 };
const UP: Noise = Noise { seed: 1003, spread: 0.25 };

/// A way to compute the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// Without adapters.
    Base,
    /// With adapters, in one call.
    Fused,
    /// With adapters: one call for the layer, then two calls and an addition for each adapter.
    TwoCall,
}

impl Arm {
    pub(super) const ALL: [Self; 3] = [Self::Base, Self::Fused, Self::TwoCall];

    /// The name in cases.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Fused => "fused",
            Self::TwoCall => "two-call",
        }
    }
}

/// Seconds of a call in each arm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Elapsed time.
    pub(super) seconds: [f64; 3],
    /// Processor time of all threads, including those that wait in a loop; `None` if the clock cannot tell.
    pub(super) cpu_seconds: [Option<f64>; 3],
}

impl Sample {
    pub(super) fn of(&self, arm: Arm) -> f64 {
        self.seconds[arm as usize]
    }
}

/// Outputs of an arm that were found correct.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checked {
    /// Squared distance to the reference, relative to its squared norm.
    pub(super) nmse: f64,
    pub(super) digest: String,
}

/// A layer in several copies, each with adapters of its own, and the buffers of all arms.
pub(super) struct Arms<'a> {
    exec: Exec<'a>,
    case: Case,
    layers: &'a [Matrix],
    /// The adapters of each copy.
    adapters: Vec<Vec<Lora>>,
    /// The copy that the next call reads.
    next: usize,
    /// One row more than the case has.
    x: &'a [f32],
    outputs: [Buffer<f32>; 3],
    buffers: Buffers,
    /// The outputs that every call must give.
    expected: [Vec<f32>; 3],
}

/// What calls need besides inputs and outputs.
struct Buffers {
    scratch: Buffer<u32>,
    /// Results of the first matrix of an adapter.
    t: Buffer<f32>,
    /// Results of the second one.
    update: Buffer<f32>,
}

impl<'a> Arms<'a> {
    pub(super) fn new(exec: Exec<'a>, case: Case, layers: &'a [Matrix], x: &'a [f32]) -> Result<Self> {
        let (down, up) = Lora::formats(case.format);
        let first = |i: usize| -> Result<Lora> {
            let of = |noise: Noise| Noise { seed: noise.seed + i as u64, ..noise };
            let down = of(DOWN).matrix(exec, down, (case.rank, case.inputs))?;
            let up = of(UP).matrix(exec, up, (case.outputs, case.rank))?;
            Ok(Lora::new(vec![LoraPart { down, up, first_strip: 0 }], None))
        };
        let mut adapters = vec![(0..case.adapters).map(first).collect::<Result<Vec<_>>>()?];
        while adapters.len() < layers.len() {
            let copied = adapters[0].iter().map(copied).collect::<Result<_>>()?;
            adapters.push(copied);
        }
        let output = || Buffer::zeroed(case.rows * case.stride());
        let outputs = [output()?, output()?, output()?];
        let buffers = Buffers::new(&case, layers[0].shape(), &adapters[0][0].parts()[0])?;
        let expected = [Vec::new(), Vec::new(), Vec::new()];
        Ok(Self { exec, case, layers, adapters, next: 0, x, outputs, buffers, expected })
    }

    /// The updates of a batch by the adapters of the first copy.
    fn updates(&self) -> Vec<LoraRows<'_>> {
        updates(&self.case, &self.adapters[0])
    }

    /// Runs the next copy in one arm.
    fn call(&mut self, arm: Arm) {
        let (w, adapters) = (&self.layers[self.next], &self.adapters[self.next]);
        let (case, k) = (self.case, self.case.inputs);
        let x = Rows::new(self.x, case.rows, k, k);
        let y = &mut self.outputs[arm as usize][..];
        match arm {
            Arm::Base => apply(self.exec, w, x, y, &[], &mut self.buffers.scratch),
            Arm::Fused => {
                apply(self.exec, w, x, y, &updates(&case, adapters), &mut self.buffers.scratch);
            }
            Arm::TwoCall => {
                apply(self.exec, w, x, y, &[], &mut self.buffers.scratch);
                for update in updates(&case, adapters) {
                    self.buffers.add(self.exec, &case, update, self.x, y);
                }
            }
        }
        self.next = (self.next + 1) % self.layers.len();
    }

    /// Checks the outputs of the layer and of both arms with adapters, and returns what was found for the two arms.
    pub(super) fn check(&mut self) -> Result<[Checked; 2]> {
        for arm in Arm::ALL {
            self.call(arm);
            self.expected[arm as usize] = self.outputs[arm as usize].to_vec();
        }
        self.check_mixed()?;
        self.check_alone()?;
        let [fused, two_call] = [Arm::Fused, Arm::TwoCall].map(|arm| -> Result<Checked> {
            let nmse = self.nmse(&self.expected[arm as usize]);
            verify(nmse <= MAX_NMSE, || {
                let fact = format!(
                    "outputs of arm {} have an NMSE of {nmse}, but at most {MAX_NMSE} is right",
                    arm.name()
                );
                format!("{fact}\n  in {}", self.case.place())
            })?;
            Ok(Checked { nmse, digest: self.digest(arm) })
        });
        Ok([fused?, two_call?])
    }

    /// Checks a batch that has one row without an adapter besides those of the case: that row has the bits of the layer alone, the
    /// others those that they had, with one thread too.
    fn check_mixed(&self) -> Result<()> {
        let (rows, k, stride) = (self.case.rows, self.case.inputs, self.case.stride());
        let team = Team::new(1).map_err(LimitError::Threads)?;
        let updates = self.updates();
        let x = Rows::new(self.x, rows + 1, k, k);
        for exec in [self.exec, Exec { simd: self.exec.simd, team: &team }] {
            let outputs = |loras: &[LoraRows<'_>]| -> Result<Vec<f32>> {
                let mut y = vec![0f32; (rows + 1) * stride];
                let mut scratch = Buffer::zeroed(words(&self.layers[0], rows + 1, self.case.padded_rank()))?;
                apply(exec, &self.layers[0], x, &mut y, loras, &mut scratch);
                Ok(y)
            };
            let (base, mixed) = (outputs(&[])?, outputs(&updates)?);
            let how = format!("beside a row without an adapter, with {} threads", exec.team.size());
            self.same(&base[..rows * stride], &self.expected[Arm::Base as usize], 0, &how)?;
            self.same(&mixed[..rows * stride], &self.expected[Arm::Fused as usize], 0, &how)?;
            self.same(
                &mixed[rows * stride..],
                &base[rows * stride..],
                rows,
                "in the layer without adapters",
            )?;
        }
        Ok(())
    }

    /// Checks sampled rows, each run alone on the scalar tier.
    fn check_alone(&self) -> Result<()> {
        let (k, stride) = (self.case.inputs, self.case.stride());
        let team = Team::new(1).map_err(LimitError::Threads)?;
        let simd = Simd::new(Tier::Scalar).map_err(|e| LaneError::Incorrect(e.to_string()))?;
        let mut scratch = Buffer::zeroed(words(&self.layers[0], 1, self.case.padded_rank()))?;
        for row in spread(CHECKED.1, self.case.rows) {
            let lora = &self.adapters[0][self.case.adapter_of(row)];
            let update = LoraRows { lora, scale: SCALE, first: 0, rows: 1 };
            let x = Rows::new(&self.x[row * k..], 1, k, k);
            let mut alone = vec![0f32; stride];
            apply(Exec { simd, team: &team }, &self.layers[0], x, &mut alone, &[update], &mut scratch);
            let own = &self.expected[Arm::Fused as usize][row * stride..][..stride];
            self.same(own, &alone, row, "alone on the scalar tier")?;
        }
        Ok(())
    }

    /// Returns an error for outputs, from row `first` on, that differ from `other` in any bit.
    fn same(&self, own: &[f32], other: &[f32], first: usize, how: &str) -> Result<()> {
        same_bits(own, other, (first, self.case.stride()), how, &self.case.place())
    }

    /// The error of sampled outputs, compared with the product of the same packed weights in f64.
    fn nmse(&self, y: &[f32]) -> f64 {
        let (k, stride) = (self.case.inputs, self.case.stride());
        let outputs = spread(CHECKED.0, self.case.outputs);
        let product = |matrix: &Matrix, row: usize, x: &[f64]| -> f64 {
            let mut weights = vec![0f32; matrix.cols()];
            matrix.row(row, &mut weights);
            weights.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()
        };
        let mut difference = ActivationDifference::default();
        for row in spread(CHECKED.1, self.case.rows) {
            let x: Vec<f64> = self.x[row * k..][..k].iter().map(|x| f64::from(*x)).collect();
            let LoraPart { down, up, .. } = &self.adapters[0][self.case.adapter_of(row)].parts()[0];
            let t = (0..self.case.rank).map(|r| product(down, r, &x) * f64::from(SCALE));
            let t: Vec<f64> = t.collect();
            let exact = |&o: &usize| (product(&self.layers[0], o, &x) + product(up, o, &t)) as f32;
            let own: Vec<f32> = outputs.iter().map(|o| y[row * stride + o]).collect();
            difference.add(&own, &outputs.iter().map(exact).collect::<Vec<_>>());
        }
        difference.nmse()
    }

    fn digest(&self, arm: Arm) -> String {
        let rows = self.expected[arm as usize].chunks(self.case.stride());
        let outputs = rows.flat_map(|row| &row[..self.case.outputs]);
        digest(outputs.flat_map(|y| y.to_bits().to_le_bytes()))
    }

    /// The number of consecutive calls of an arm: a power of two.
    pub(super) fn calls(&mut self, clock: &Clock) -> usize {
        calls_within(clock, TURN_NS, || self.call(Arm::Base))
    }

    /// Measures one sample of all arms, which take turns A B C C B A, and checks the outputs of the last call of each.
    pub(super) fn sample(&mut self, calls: usize, clock: &Clock) -> Result<Sample> {
        let mut sample = Sample { seconds: [0.0; 3], cpu_seconds: [Some(0.0); 3] };
        for arm in Arm::ALL.into_iter().chain(Arm::ALL.into_iter().rev()) {
            let turn = CallTime::of(clock, calls, || self.call(arm));
            let (seconds, cpu) = (&mut sample.seconds[arm as usize], &mut sample.cpu_seconds[arm as usize]);
            *seconds += turn.seconds / 2.0;
            *cpu = cpu.zip(turn.cpu_seconds).map(|(sum, seconds)| sum + seconds / 2.0);
        }
        for arm in Arm::ALL {
            let expected = &self.expected[arm as usize];
            self.same(&self.outputs[arm as usize], expected, 0, "when it was checked")?;
        }
        Ok(sample)
    }
}

impl Buffers {
    fn new(case: &Case, base: redline_kernels::matrix::MatrixShape, part: &LoraPart) -> Result<Self> {
        let rows = case.rows;
        let fused = scratch_words(base, rows) + lora_scratch_words(base, rows, case.padded_rank(), 1);
        let separate = [&part.down, &part.up].map(|matrix| scratch_words(matrix.shape(), rows));
        Ok(Self {
            scratch: Buffer::zeroed(separate.into_iter().fold(fused, usize::max))?,
            t: Buffer::zeroed(rows * case.padded_rank())?,
            update: Buffer::zeroed(rows * case.stride())?,
        })
    }

    /// Adds an update to the outputs of its rows with separate calls.
    fn add(&mut self, exec: Exec<'_>, case: &Case, update: LoraRows<'_>, x: &[f32], y: &mut [f32]) {
        let LoraPart { down, up, .. } = &update.lora.parts()[0];
        let (rows, k, n, stride, rank) = (update.rows, case.inputs, case.outputs, case.stride(), case.rank);
        let x = Rows::new(&x[update.first * k..], rows, k, k);
        apply(exec, down, x, &mut self.t, &[], &mut self.scratch);
        self.t[..rows * case.padded_rank()].iter_mut().for_each(|t| *t *= update.scale);
        let t = Rows::new(&self.t, rows, rank, case.padded_rank());
        apply(exec, up, t, &mut self.update, &[], &mut self.scratch);
        let mut y = RowsMut::new(&mut y[update.first * stride..], rows, n, stride);
        add(exec, &mut y, Rows::new(&self.update, rows, n, stride), 1.0);
    }
}

/// Runs a layer, with updates of its rows.
fn apply(
    exec: Exec<'_>,
    w: &Matrix,
    x: Rows<'_>,
    y: &mut [f32],
    loras: &[LoraRows<'_>],
    scratch: &mut [u32],
) {
    let rows = x.rows();
    let mut y = RowsMut::new(y, rows, w.rows(), w.rows().next_multiple_of(crate::lanes::gemm::linear::STRIP));
    let variant = Variant::estimate(exec.simd, w, rows);
    linear(exec, w, x, &mut y, Epilogue { loras, ..Epilogue::default() }, variant, scratch);
}

/// Scratch words of a layer with one update of each row.
fn words(w: &Matrix, rows: usize, rank: usize) -> usize {
    scratch_words(w.shape(), rows) + lora_scratch_words(w.shape(), rows, rank, 1)
}

/// The updates of a batch by some adapters.
fn updates<'a>(case: &Case, adapters: &'a [Lora]) -> Vec<LoraRows<'a>> {
    let rows = adapters.iter().zip(case.segments());
    rows.map(|(lora, rows)| LoraRows { lora, scale: SCALE, first: rows.start, rows: rows.len() }).collect()
}

/// Copies an adapter into its own memory.
fn copied(lora: &Lora) -> Result<Lora> {
    let LoraPart { down, up, .. } = &lora.parts()[0];
    let (down, up) = (copy(down)?, copy(up)?);
    Ok(Lora::new(vec![LoraPart { down, up, first_strip: 0 }], None))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use redline_kernels::Format;

    use super::super::case::tests::CASE;
    use super::super::{INPUTS, WEIGHTS};
    use super::*;
    use crate::bench::slowing_clock;
    use crate::lanes::gemm::linear::copies;

    fn with_arms<T>(threads: usize, case: Case, f: impl FnOnce(&mut Arms<'_>) -> T) -> T {
        let team = Team::new(threads).unwrap();
        let exec = Exec { simd: Simd::best(), team: &team };
        let matrix = WEIGHTS.matrix(exec, case.format, (case.outputs, case.inputs)).unwrap();
        let bytes = 3 * matrix.bytes();
        let layers = copies(matrix, bytes).unwrap();
        let mut x = vec![0f32; (case.rows + 1) * case.inputs];
        INPUTS.fill(0, &mut x);
        f(&mut Arms::new(exec, case, &layers, &x).unwrap())
    }

    #[track_caller]
    fn incorrect<T>(result: Result<T>, parts: &[&str]) {
        let Err(LaneError::Incorrect(fact)) = result else { panic!("accepted") };
        assert!(parts.iter().all(|part| fact.contains(part)), "{fact}");
        assert!(fact.ends_with("in f32 40 x 96, 5 rows, rank 6, 2 adapters"), "{fact}");
    }

    #[test]
    fn arms_agree_with_the_reference_in_every_format() {
        let mut before = 0.0;
        for name in ["f32", "bf16", "w8", "w4"] {
            let format = Format::parse(name).unwrap();
            for (rows, adapters) in [(1, 1), (5, 2), (30, 8)] {
                let case = Case { format, rows, adapters, ..CASE };
                let [one, three] =
                    [1, 3].map(|threads| with_arms(threads, case, |arms| arms.check().unwrap()));
                assert_eq!(one, three, "{name}: threads do not change bits");
                let [fused, two_call] = one;
                assert!(fused.nmse < 1e-4 && two_call.nmse < 1e-4, "{name}: {fused:?} {two_call:?}");
                assert_ne!(fused.digest, two_call.digest, "sums are rounded in another order");
                if rows == 30 {
                    assert!(fused.nmse > before, "{name}: {} {before}", fused.nmse);
                    before = if name == "w8" { 0.0 } else { fused.nmse };
                }
            }
        }
    }

    #[test]
    fn outputs_without_the_updates_are_far_from_the_reference() {
        with_arms(1, CASE, |arms| {
            arms.check().unwrap();
            let base = arms.nmse(&arms.expected[Arm::Base as usize]);
            assert!(base > 0.1 && arms.nmse(&arms.expected[Arm::Fused as usize]) < 1e-12, "{base}");
            // The outputs of a row of one adapter in place of those of a row of the other.
            let mut swapped = arms.expected[Arm::Fused as usize].clone();
            swapped.copy_within(0..48, 4 * 48);
            assert!(arms.nmse(&swapped) > 0.1);
        });
    }

    #[test]
    fn other_bits_are_incorrect() {
        let clock = Clock::ticking(1);
        with_arms(2, CASE, |arms| {
            arms.check().unwrap();
            assert!(
                arms.sample(2, &clock).is_ok() && arms.check_mixed().is_ok() && arms.check_alone().is_ok()
            );
            let mut with =
                |arm: Arm, at: usize, check: &dyn Fn(&mut Arms<'_>) -> Result<()>, parts: &[&str]| {
                    let before = std::mem::replace(&mut arms.expected[arm as usize][at], 9.0);
                    incorrect(check(arms), parts);
                    arms.expected[arm as usize][at] = before;
                };
            let sampled = |arms: &mut Arms<'_>| arms.sample(2, &Clock::ticking(1)).map(drop);
            for arm in Arm::ALL {
                with(arm, 48 + 3, &sampled, &["output 3 of row 1 is ", "but 9 when it was checked"]);
            }
            let mixed = |arms: &mut Arms<'_>| arms.check_mixed();
            with(
                Arm::Base,
                7,
                &mixed,
                &["output 7 of row 0 is ", "but 9 beside a row without an adapter, with 2"],
            );
            with(Arm::Fused, 2 * 48, &mixed, &["output 0 of row 2 is ", "but 9 beside a row without"]);
            let alone = |arms: &mut Arms<'_>| arms.check_alone();
            with(
                Arm::Fused,
                4 * 48 + 1,
                &alone,
                &["output 1 of row 4 is 9, but ", "alone on the scalar tier"],
            );
        });
    }

    #[test]
    fn arms_take_turns_and_so_do_copies() {
        // Consecutive readings are 0, 1, 4, 9, ... ms apart.
        let (step, now) = (AtomicU64::new(0), AtomicU64::new(0));
        let clock = Clock::scripted(move || {
            let step = step.fetch_add(1, Ordering::Relaxed);
            let ns = step * step * 1_000_000;
            now.fetch_add(ns, Ordering::Relaxed) + ns
        });
        with_arms(1, CASE, |arms| {
            arms.check().unwrap();
            assert_eq!((arms.layers.len(), arms.adapters.len(), arms.next), (3, 3, 0));
            // Turns take 1, 9, 25, 49, 81 and 121 ms, in the order A B C C B A.
            let sample = arms.sample(7, &clock).unwrap();
            let expected = [1 + 121, 9 + 81, 25 + 49].map(|ms: u32| f64::from(ms) * 1e-3 / 14.0);
            for (own, expected) in sample.seconds.iter().zip(expected) {
                assert!((own / expected - 1.0).abs() < 1e-12, "{sample:?}");
            }
            assert_eq!((sample.cpu_seconds, arms.next), ([None; 3], 6 * 7 % 3));
            arms.call(Arm::Fused);
            assert_eq!(arms.next, 1);
        });
    }

    #[test]
    fn a_turn_takes_five_milliseconds() {
        let clock = slowing_clock();
        with_arms(1, CASE, |arms| {
            arms.check().unwrap();
            assert_eq!(arms.calls(&clock), 4, "1 and 2 calls took less than 5 ms");
        });
    }
}
