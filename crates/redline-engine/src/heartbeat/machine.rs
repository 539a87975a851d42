//! The interface that runs a pass: implemented by the model, and in tests by a stand-in and by the interpreter.

use redline_kernels::op::kv::KvPages;
use redline_kernels::{Exec, OutOfMemory, Simd, Team};
use redline_models::Model;
use redline_models::activation::Activation;
use redline_models::adapter::Adapters;
use redline_models::kv::{KvCache, PageStore};
use redline_models::model::{Batch, LabelRows};
use redline_models::plan::Site;
use redline_models::profile::Profile;
use redline_models::row_digests::RowDigests;
use redline_models::step::{Arena, Watchers};
use redline_models::trace::Observations;

use crate::heartbeat::team_size::{PassCost, TeamSize};
use crate::options::{ActivationLog, ClockFn, TraceLog};
use crate::plan::{Bucket, BucketMode, Forbidden, OUTPUT_ROWS, PlanEntry, Plans, Workshop};
use crate::task::RowOutput;
use crate::task::logits::Logits;

/// Rows of a pass whose values are wanted together; at most [`OUTPUT_ROWS`].
pub(crate) struct Outputs<'a, L> {
    /// Indices among the wanted rows of the pass.
    pub(crate) rows: Vec<usize>,
    /// What is made of each.
    pub(crate) output: RowOutput<&'a L>,
    /// Whether to compute the log-sum-exp of every row too.
    pub(crate) normalise: bool,
}

/// Runs passes over a batch of sequences.
pub(crate) trait Machine {
    /// Storage of keys and values.
    type Pages: PageStore;
    /// A selection of rows of the head.
    type Labels;

    /// Selects the rows of the head for these ids, for sequences with these adapters.
    fn labels(&self, ids: &[u32], adapters: &Adapters) -> Result<Self::Labels, OutOfMemory>;

    /// Prepares for sequences of up to so many positions, of which so many rows are run in one pass in addition to any others.
    fn reserve(&mut self, _positions: usize, _rows: usize) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// Prepares for a pass of so many tokens with groups of so many rows of logits over the vocabulary. Returns the number of plans that
    /// were missing and had to be made.
    fn prepare(&mut self, _tokens: usize, _rows: &[usize]) -> Result<u64, Forbidden> {
        Ok(0)
    }

    /// Runs a batch, of which the logits of some rows (ascending) are needed, and calls `read` with the index and the logits
    /// of each of `outputs`, in order. `digests` gets those that it has room for. [`Machine::prepare`] comes first.
    fn run(
        &mut self,
        kv: &mut KvCache<Self::Pages>,
        rows: (&Batch, &[usize]),
        outputs: &[Outputs<'_, Self::Labels>],
        digests: Option<&RowDigests>,
        read: &mut dyn FnMut(usize, Logits<'_>),
    );

    /// Restores a usable state after a pass that panicked.
    fn recover(&mut self) {}

    /// The profile of the last pass, which had `rows` rows, and its bucket; `None` without profiling.
    fn profiled(&self, _rows: usize) -> Option<(&Profile, Bucket)> {
        None
    }
}

/// The model, with the threads, memory and plans it runs with.
pub(crate) struct ModelMachine {
    pub(crate) model: Model,
    pub(crate) arena: Arena,
    /// Maximum number of tokens in a pass over several sequences.
    pub(crate) shared_rows: usize,
    /// Maximum number of tokens in a pass that the arena has room for.
    pub(crate) most_rows: usize,
    pub(crate) team: Team,
    /// Chooses the number of threads for a pass; `None`: always all.
    pub(crate) team_size: Option<TeamSize>,
    pub(crate) clock: ClockFn,
    pub(crate) simd: Simd,
    pub(crate) plans: Plans,
    /// Receives the observations of every pass.
    pub(crate) trace: Option<(TraceLog, Observations)>,
    /// Records where the time goes.
    pub(crate) spans: Option<Profile>,
    /// Receives the activations of the current step, with the step's number.
    pub(crate) observer: Option<(ActivationLog, usize)>,
    /// Overwrite the activations of the previous pass with NaN.
    pub(crate) poison: bool,
}

impl ModelMachine {
    /// Plans, and the resources needed to make them.
    fn plans(&mut self) -> (&mut Plans, Workshop<'_>) {
        let exec = Exec { simd: self.simd, team: &self.team };
        (&mut self.plans, Workshop { model: &self.model, arena: &mut self.arena, exec })
    }

    /// Ensures that every bucket has a plan.
    pub(crate) fn precompile(&mut self) -> Result<Vec<PlanEntry>, Forbidden> {
        let (plans, mut shop) = self.plans();
        plans.precompile(&mut shop)
    }
}

impl Machine for ModelMachine {
    type Pages = KvPages;
    type Labels = LabelRows;

    fn labels(&self, ids: &[u32], adapters: &Adapters) -> Result<LabelRows, OutOfMemory> {
        self.model.label_head(ids, adapters)
    }

    fn reserve(&mut self, positions: usize, rows: usize) -> Result<(), OutOfMemory> {
        let needed = self.shared_rows + rows;
        if rows > 0 && needed > self.most_rows {
            self.arena = Arena::new(self.model.arena_size(needed, OUTPUT_ROWS))?;
            self.most_rows = needed;
        }
        self.model.reserve_positions(positions)
    }

    fn prepare(&mut self, tokens: usize, rows: &[usize]) -> Result<u64, Forbidden> {
        let (plans, mut shop) = self.plans();
        let pass = plans.bucket(BucketMode::Pass, tokens);
        let mut missed = u64::from(plans.prepare(&mut shop, pass)?);
        let mut last = None;
        for &rows in rows {
            let bucket = plans.bucket(BucketMode::Logits, rows);
            // Groups with the same number of rows are adjacent.
            if last.replace(bucket) != Some(bucket) {
                missed += u64::from(plans.prepare(&mut shop, bucket)?);
            }
        }
        Ok(missed)
    }

    fn run(
        &mut self,
        kv: &mut KvCache,
        (batch, wanted): (&Batch, &[usize]),
        outputs: &[Outputs<'_, LabelRows>],
        digests: Option<&RowDigests>,
        read: &mut dyn FnMut(usize, Logits<'_>),
    ) {
        let Some(threads) = self.team_size.as_ref().map(|size| size.of(batch.rows())) else {
            return self.pass(kv, (batch, wanted), outputs, digests, read);
        };
        self.team.resize(threads);
        let start = (self.clock)();
        self.pass(kv, (batch, wanted), outputs, digests, read);
        let seconds = (self.clock)().saturating_sub(start) as f64 * 1e-9;
        // Plans are measured on all threads.
        self.team.resize(self.team.members());
        let slept = self.team.take_slept_ns() as f64 * 1e-9;
        let outputs = wanted.len();
        if let Some(size) = &mut self.team_size {
            size.learn(PassCost { rows: batch.rows(), outputs, seconds, slept });
        }
    }

    fn recover(&mut self) {
        self.team.resize(self.team.members());
    }

    fn profiled(&self, rows: usize) -> Option<(&Profile, Bucket)> {
        Some((self.spans.as_ref()?, self.plans.bucket(BucketMode::Pass, rows)))
    }
}

impl ModelMachine {
    /// Runs a pass on the team at its current size.
    fn pass(
        &mut self,
        kv: &mut KvCache,
        (batch, wanted): (&Batch, &[usize]),
        outputs: &[Outputs<'_, LabelRows>],
        digests: Option<&RowDigests>,
        read: &mut dyn FnMut(usize, Logits<'_>),
    ) {
        if self.poison {
            self.arena.poison();
        }
        let exec = Exec { simd: self.simd, team: &self.team };
        let plans = &self.plans;
        let plan = plans.get(plans.bucket(BucketMode::Pass, batch.rows()));
        let observations = self.trace.as_mut().map(|(_, observations)| {
            observations.clear();
            observations
        });
        let observer = self.observer.as_ref();
        let see = observer.map(|(log, step)| move |activation: Activation<'_>| log(*step, activation));
        if let Some(spans) = &mut self.spans {
            spans.begin_pass();
        }
        // Observers see all rows up to the end.
        let observed = observations.is_some() || see.is_some();
        let all: Vec<usize> = if observed { (0..batch.rows()).collect() } else { Vec::new() };
        let run = if observed { &all } else { wanted };
        let watchers = Watchers {
            observations,
            activations: see.as_ref().map(|see| see as &dyn Fn(Activation<'_>)),
            profile: self.spans.as_mut(),
            digests,
        };
        self.model.run(exec, &mut self.arena, kv, (batch, run), plan, watchers, |model, x, step| {
            for (index, output) in outputs.iter().enumerate() {
                let mark = step.mark();
                let planned = plans.get(plans.bucket(BucketMode::Logits, output.rows.len()));
                let of_batch: Vec<usize>;
                let rows = if observed {
                    of_batch = output.rows.iter().map(|&row| wanted[row]).collect();
                    &of_batch
                } else {
                    &output.rows
                };
                let logits = match output.output {
                    RowOutput::Vocabulary => {
                        let variant = planned.and_then(|plan| plan.of(Site::Head));
                        model.logits(x, rows, None, variant, step)
                    }
                    RowOutput::Labels(labels) => model.logits(x, rows, Some(labels), None, step),
                    RowOutput::State => model.states(x, rows, step),
                };
                let mut sums = [0f64; OUTPUT_ROWS];
                if output.normalise {
                    step.log_sum_exp(logits, &mut sums);
                }
                let log_sum_exp = &sums[..output.rows.len()];
                step.hand_over(logits, |exec, rows| read(index, Logits { exec, rows, log_sum_exp }));
                step.release(mark);
            }
        });
        if let Some(spans) = &mut self.spans {
            spans.end_pass();
        }
        if let Some((log, observations)) = &self.trace {
            log(observations.all());
        }
    }
}
