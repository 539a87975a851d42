//! Chooses the number of threads for a pass from the measured cost of passes.
//!
//! A result does not depend on the number of threads, so the number may change from pass to pass. On a quiet machine all threads are
//! usually best. Small passes may be faster on fewer. Beside other busy processes a thread that is descheduled in the middle of its
//! work holds up all the others. So now and then a trial runs passes alternately on the current number and on the next smaller or
//! larger one, and the cheaper number stays. A budget, a small share of the time of all passes, limits the cost of trials. It grows
//! quickly where the leader had to sleep because of a descheduled thread, so a busy machine is noticed within a fraction of a second.
//! A smaller number that the last trial found to cost much more is not tried again before passes have become as expensive, or minutes
//! have passed: streams wait for the slow passes of a trial, too.
//!
//! Nothing here reads a clock: seconds come in, a number goes out.

use crate::answer::statistics;

/// Share of the time of passes that trials may cost while all threads are in use.
const BUDGET_ON_ALL: f64 = 0.0025;
/// The same while fewer are in use: a machine that was busy may be quiet again.
const BUDGET_ON_FEWER: f64 = 0.03;
/// Share of the leader's sleep that trials may cost.
const BUDGET_OF_SLEEP: f64 = 0.1;
/// Seconds that trials may cost at the beginning.
const FIRST_BUDGET: f64 = 0.004;
/// Largest budget that is saved up, in seconds.
const MAX_BUDGET: f64 = 0.25;
/// Assumed share of a candidate's time that a trial loses, if nothing is known about it.
const TRIAL_LOSS: f64 = 0.5;
/// Turns of a block of a trial, half of them on the current number of threads.
const TURNS: u32 = 4;
/// Fewest blocks of a trial.
const MIN_BLOCKS: usize = 2;
/// Standard errors by which the mean of the blocks must differ from [`IMPROVEMENT`], by the number of blocks from
/// [`MIN_BLOCKS`] on: the quantiles for 90 % of Student's distribution. After the last of them the current number stays.
const ERRORS: [f64; 7] = [3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.42];
const MAX_BLOCKS: usize = MIN_BLOCKS + ERRORS.len() - 1;
/// Turns on each number in the shortest trial.
const MIN_TURNS: f64 = (MIN_BLOCKS * TURNS as usize / 2) as f64;
/// Part of a turn that is not measured after the number has changed.
const SETTLING: f64 = 0.7;
/// Least seconds of a turn, where passes of equal work take about equal time.
const STEADY_TURN: f64 = 0.00125;
/// The same if they do not: longer than the time slices in which the system shares out a core.
const NOISY_TURN: f64 = 0.015;
/// Passes before the first trial.
const MIN_PASSES: u32 = 4;
/// Passes are noisy if their mean cost is this many times the least.
const NOISY: f64 = 1.3;
/// A trial ends early if one number costs this many times as much as the other.
const DECISIVE: f64 = 3.0;
/// Another number of threads replaces the current one if it costs less than this share.
const IMPROVEMENT: f64 = 0.95;
/// Seconds of passes after which earlier ones count half.
const MEMORY: f64 = 0.25;
/// Seconds of passes between two trials, at least and at most. The time doubles with every trial that changes nothing.
const MIN_PAUSE: f64 = 0.02;
const MAX_PAUSE: f64 = 2.0;
/// Seconds of passes after which a smaller number of threads may cost half of what the last trial found.
const TRUST: f64 = 300.0;
/// Share by which the least cost grows with every pass, since machines change.
const DRIFT: f64 = 0.002;
/// Passes over fewer rows are assumed to cost the same, because they read the same weights.
const MIN_WORK: f64 = 8.0;

/// Total time and work of passes.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    seconds: f64,
    work: f64,
}

impl Cost {
    fn add(&mut self, seconds: f64, work: f64) {
        self.seconds += seconds;
        self.work += work;
    }

    /// Seconds per unit of work; `None` without any work.
    fn rate(self) -> Option<f64> {
        (self.work > 0.0).then(|| self.seconds / self.work)
    }
}

/// The cost of recent passes, and how much it varies.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    cost: Cost,
    passes: u32,
    /// Least seconds per unit of work.
    least: f64,
}

impl Recent {
    fn add(&mut self, seconds: f64, work: f64) {
        if self.cost.seconds > MEMORY {
            self.cost = Cost { seconds: self.cost.seconds / 2.0, work: self.cost.work / 2.0 };
        }
        self.cost.add(seconds, work);
        let rate = seconds / work;
        self.least = if self.passes == 0 { rate } else { rate.min(self.least * (1.0 + DRIFT)) };
        self.passes = self.passes.saturating_add(1);
    }

    /// Whether passes of equal work take noticeably different times.
    fn is_noisy(self) -> bool {
        self.passes >= MIN_PASSES && self.cost.rate().is_some_and(|rate| rate > NOISY * self.least)
    }

    /// Least seconds of a turn of a trial.
    fn turn_seconds(self) -> f64 {
        if self.is_noisy() { NOISY_TURN } else { STEADY_TURN }
    }
}

/// Passes on the current number of threads and on a candidate.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    current: Cost,
    candidate: Cost,
}

impl Pair {
    /// Cost of the candidate over that of the current number.
    fn ratio(self) -> Option<f64> {
        Some(self.candidate.rate()? / self.current.rate()?)
    }
}

/// Passes alternately on the current number of threads and on a candidate. The turns of a block are current, candidate, candidate,
/// current, so that a steady change of the machine affects both alike.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The candidate, by its place in the ladder.
    candidate: usize,
    /// Least seconds of a turn.
    turn_seconds: f64,
    /// The current turn of the block, and its seconds so far.
    turn: u32,
    seconds: f64,
    /// Seconds that are not measured because the number has just changed: a thread that has slept gets a core at once, for a
    /// moment.
    settling: f64,
    block: Pair,
    all: Pair,
    /// Blocks that are complete, and the logarithms of their ratios.
    blocks: usize,
    logs: [f64; MAX_BLOCKS],
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Outcome {
    /// Cost of the candidate over that of the current number.
    ratio: f64,
    /// Whether the candidate is to replace the current number.
    better: bool,
}

impl Trial {
    fn new(candidate: usize, turn_seconds: f64) -> Self {
        Self {
            candidate,
            turn_seconds,
            turn: 0,
            seconds: 0.0,
            settling: 0.0,
            block: Pair::default(),
            all: Pair::default(),
            blocks: 0,
            logs: [0.0; MAX_BLOCKS],
        }
    }

    fn runs_candidate(&self) -> bool {
        matches!(self.turn, 1 | 2)
    }

    fn add(&mut self, seconds: f64, work: f64) {
        if self.settling > 0.0 {
            self.settling -= seconds;
            return;
        }
        let ran_candidate = self.runs_candidate();
        for pair in [&mut self.block, &mut self.all] {
            let cost = if ran_candidate { &mut pair.candidate } else { &mut pair.current };
            cost.add(seconds, work);
        }
        self.seconds += seconds;
        if self.seconds >= self.turn_seconds {
            (self.turn, self.seconds) = ((self.turn + 1) % TURNS, 0.0);
            let changes = self.runs_candidate() != ran_candidate;
            self.settling = if changes { SETTLING * self.turn_seconds } else { 0.0 };
            if self.turn == 0
                && let Some(ratio) = std::mem::take(&mut self.block).ratio()
            {
                self.logs[self.blocks] = libm::log(ratio);
                self.blocks += 1;
            }
        }
    }

    /// The result of the trial, once enough was measured.
    fn outcome(&self) -> Option<Outcome> {
        let ratio = self.all.ratio()?;
        let measured = self.all.current.seconds.min(self.all.candidate.seconds);
        if !(1.0 / DECISIVE..DECISIVE).contains(&ratio) && measured > 2.0 * self.turn_seconds {
            return Some(Outcome { ratio, better: ratio < 1.0 });
        }
        let errors = *ERRORS.get(self.blocks.checked_sub(MIN_BLOCKS)?)?;
        let mean = statistics::mean(&self.logs[..self.blocks]);
        let reach = errors * mean.standard_error?;
        let improvement = libm::log(IMPROVEMENT);
        let better = mean.value + reach < improvement;
        let known = better || mean.value - reach >= improvement || self.blocks == MAX_BLOCKS;
        known.then(|| Outcome { ratio: libm::exp(mean.value), better })
    }

    /// Seconds that the candidate took beyond what the current number would have taken.
    fn loss(&self) -> f64 {
        let Pair { current, candidate } = self.all;
        (candidate.seconds - current.rate().unwrap_or(0.0) * candidate.work).max(0.0)
    }
}

/// State for passes over similar numbers of rows.
#[derive(Clone, Debug)]
struct SizeClass {
    /// The number of threads in use, by its place in the ladder.
    current: usize,
    recent: Recent,
    /// Whether recent passes were noisy.
    noisy: bool,
    /// Whether a pass has run. The first one fills the caches and does not count.
    warm: bool,
    trial: Option<Trial>,
    /// Whether the next candidate is a larger number, if there is one.
    upwards: bool,
    /// Outcomes of the last trial of a smaller and of a larger number.
    outcomes: [Option<f64>; 2],
    /// Cost of the current number in the last trial of a smaller one, in seconds per unit of work, and seconds of passes since then.
    rate_then: f64,
    since_fewer: f64,
    /// Seconds of passes before the next trial, and those since the last one.
    pause: f64,
    since_trial: f64,
}

/// Chooses the number of threads for every pass, from what earlier passes cost.
#[derive(Clone, Debug)]
pub(crate) struct TeamSize {
    /// Numbers of threads to choose from, ascending; the last is all of them.
    ladder: Vec<usize>,
    /// Indexed by the logarithm of the rows.
    classes: Vec<SizeClass>,
    /// Seconds that trials may cost.
    budget: f64,
    /// Rows of linear layers that a row of logits is worth.
    output_rows: f64,
}

/// A pass that has run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassCost {
    /// Rows of the batch.
    pub(crate) rows: usize,
    /// Rows of logits.
    pub(crate) outputs: usize,
    pub(crate) seconds: f64,
    /// Seconds during the pass that the leader slept.
    pub(crate) slept: f64,
}

/// 1, 2, 3, 4, 6, 8, 12, 16, ... below `most`, and `most`.
fn ladder(most: usize) -> Vec<usize> {
    let steps = std::iter::successors(Some(1usize), |&n| Some(n * 2)).flat_map(|n| [n, n + n / 2]);
    let mut ladder: Vec<usize> = steps.take_while(|&n| n < most).collect();
    ladder.dedup();
    ladder.push(most.max(1));
    ladder
}

impl TeamSize {
    /// Chooses among up to `most` threads, starting with all of them. `output_rows` is the number of operations for a row of
    /// logits over that for a row's linear layers.
    pub(crate) fn new(most: usize, output_rows: f64) -> Self {
        let ladder = ladder(most);
        let class = SizeClass {
            current: ladder.len() - 1,
            recent: Recent::default(),
            noisy: false,
            warm: false,
            trial: None,
            upwards: false,
            outcomes: [None; 2],
            rate_then: 0.0,
            since_fewer: 0.0,
            pause: MIN_PAUSE,
            since_trial: 0.0,
        };
        let classes = vec![class; usize::BITS as usize];
        Self { ladder, classes, budget: FIRST_BUDGET, output_rows }
    }

    fn class(rows: usize) -> usize {
        rows.max(1).ilog2() as usize
    }

    /// Number of threads for a pass over `rows` rows.
    pub(crate) fn of(&self, rows: usize) -> usize {
        let class = &self.classes[Self::class(rows)];
        let candidate = class.trial.filter(Trial::runs_candidate).map(|trial| trial.candidate);
        self.ladder[candidate.unwrap_or(class.current)]
    }

    /// Records the cost of a pass on the chosen number of threads.
    pub(crate) fn learn(&mut self, pass: PassCost) {
        let PassCost { rows, outputs, seconds, slept } = pass;
        let work = (rows as f64 + self.output_rows * outputs as f64).max(MIN_WORK);
        let largest = self.ladder.len() - 1;
        let class = &mut self.classes[Self::class(rows)];
        let share = if class.current == largest { BUDGET_ON_ALL } else { BUDGET_ON_FEWER };
        let for_sleep = if class.trial.is_none() { BUDGET_OF_SLEEP * slept } else { 0.0 };
        self.budget = (self.budget + share * seconds + for_sleep).min(MAX_BUDGET);
        if !std::mem::replace(&mut class.warm, true) {
            return;
        }
        if let Some(trial) = &mut class.trial {
            trial.add(seconds, work);
            self.budget += class.finish_trial();
            return;
        }
        class.recent.add(seconds, work);
        class.since_trial += seconds;
        class.since_fewer += seconds;
        // If a machine has just become busy, a trial is worthwhile at once.
        let was_noisy = std::mem::replace(&mut class.noisy, class.recent.is_noisy());
        if class.noisy && !was_noisy {
            self.budget = (self.budget + TRIAL_LOSS * class.least_trial(seconds)).min(MAX_BUDGET);
        }
        if let Some(candidate) = class.candidate(largest)
            && self.budget >= class.expected_loss(candidate, seconds)
        {
            class.trial = Some(Trial::new(candidate, class.recent.turn_seconds()));
        }
    }
}

impl SizeClass {
    /// The number of threads to try now, if any.
    fn candidate(&self, largest: usize) -> Option<usize> {
        let larger = (self.current < largest).then_some(self.current + 1);
        let smaller = self.current.checked_sub(1).filter(|_| self.could_fewer_gain());
        let candidate = if self.upwards { larger.or(smaller) } else { smaller.or(larger) };
        candidate.filter(|_| self.recent.passes >= MIN_PASSES && self.since_trial >= self.pause)
    }

    /// Whether a smaller number of threads could cost less than the current one costs now. The smaller one is assumed to cost as many times
    /// what the current one cost in their last trial as it did then, or as many times the least that the current one costs now.
    fn could_fewer_gain(&self) -> bool {
        let ([Some(ratio), _], Some(rate)) = (self.outcomes, self.recent.cost.rate()) else { return true };
        let trust = 1.0 + self.since_fewer / TRUST;
        rate * trust > IMPROVEMENT * ratio * self.rate_then.min(self.recent.least)
    }

    /// Seconds that a trial is likely to cost, where the last pass took `seconds`.
    fn expected_loss(&self, candidate: usize, seconds: f64) -> f64 {
        let last = self.outcomes[usize::from(candidate > self.current)];
        self.least_trial(seconds) * last.map_or(TRIAL_LOSS, |ratio| 1.0 - 1.0 / ratio).max(0.1)
    }

    /// Least seconds for which a trial measures a candidate, where the last pass took `seconds`.
    fn least_trial(&self, seconds: f64) -> f64 {
        MIN_TURNS * self.recent.turn_seconds().max(seconds)
    }

    /// Ends the trial if it has measured enough. Returns the change of the budget, in seconds.
    fn finish_trial(&mut self) -> f64 {
        let finished = self.trial.and_then(|trial| Some((trial, trial.outcome()?)));
        let Some((trial, outcome)) = finished else { return 0.0 };
        let upwards = trial.candidate > self.current;
        (self.trial, self.since_trial) = (None, 0.0);
        if outcome.better {
            (self.current, self.upwards, self.pause) = (trial.candidate, upwards, MIN_PAUSE);
            (self.recent, self.outcomes) = (Recent::default(), [None; 2]);
            // Other classes may gain as well, and so may one more step: this pays for two such trials.
            return 2.0 * MIN_TURNS * trial.turn_seconds;
        }
        self.outcomes[usize::from(upwards)] = Some(outcome.ratio);
        if !upwards {
            (self.rate_then, self.since_fewer) = (trial.all.current.rate().unwrap_or(0.0), 0.0);
        }
        self.upwards = !self.upwards;
        self.pause = (2.0 * self.pause).min(MAX_PAUSE);
        -trial.loss()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers between 0 and 1 (a linear congruential generator; Knuth, MMIX).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// A model of a machine: the time of a pass by number of threads, and how long the system deschedules a thread that has
    /// worked for about 3 ms. If it is the leader, the pass takes longer; if it is a helper, the leader sleeps.
    struct Busy {
        seconds: fn(usize) -> f64,
        sleeps: fn(usize) -> f64,
        leader_off: f64,
        helper_off: f64,
    }

    impl Busy {
        fn pass(&self, threads: usize, random: &mut Random) -> (f64, f64) {
            let seconds = (self.seconds)(threads);
            let ends = |random: &mut Random| random.next() < seconds / 0.003;
            let off = if ends(random) { self.leader_off } else { 0.0 };
            let helpers = (1..threads).filter(|_| ends(random)).count();
            let slept = (self.sleeps)(threads) + if helpers > 0 { self.helper_off } else { 0.0 };
            (seconds + off + slept, slept)
        }

        /// Mean seconds of a pass on a fixed number of threads.
        fn fixed(&self, threads: usize) -> f64 {
            let mut random = Random(1);
            (0..20_000).map(|_| self.pass(threads, &mut random).0).sum::<f64>() / 20_000.0
        }

        /// Passes per second of a team of changing size, over the given number of seconds.
        fn rate(&self, size: &mut TeamSize, rows: usize, seconds: f64, random: &mut Random) -> f64 {
            let (mut passes, mut time) = (0.0, 0.0);
            while time < seconds {
                let (seconds, slept) = self.pass(size.of(rows), random);
                size.learn(PassCost { rows, outputs: 0, seconds, slept });
                (passes, time) = (passes + 1.0, time + seconds);
            }
            passes / time
        }

        fn best(&self, most: usize) -> f64 {
            ladder(most).into_iter().map(|threads| 1.0 / self.fixed(threads)).fold(0.0, f64::max)
        }
    }

    const QUIET: Busy =
        Busy { seconds: |n| 0.002 / n as f64, sleeps: |_| 0.0, leader_off: 0.0, helper_off: 0.0 };

    #[test]
    fn a_ladder_ends_with_all_threads() {
        assert_eq!(ladder(0), [1]);
        assert_eq!(ladder(1), [1]);
        assert_eq!(ladder(2), [1, 2]);
        assert_eq!(ladder(5), [1, 2, 3, 4, 5]);
        assert_eq!(ladder(16), [1, 2, 3, 4, 6, 8, 12, 16]);
    }

    /// Runs a trial. `seconds` gives the time of a pass on the candidate and on the current number. Returns the outcome and the
    /// number of blocks.
    fn trial(mut seconds: impl FnMut(bool) -> f64) -> (Outcome, usize) {
        let mut trial = Trial::new(1, 0.015);
        loop {
            trial.add(seconds(trial.runs_candidate()), 1.0);
            if let Some(outcome) = trial.outcome() {
                return (outcome, trial.blocks);
            }
        }
    }

    #[test]
    fn a_trial_lasts_until_its_outcome_is_known() {
        for (cost, better) in [(0.5, true), (0.9, true), (0.99, false), (1.0, false), (2.0, false)] {
            let (outcome, blocks) = trial(|candidate| if candidate { 0.001 * cost } else { 0.001 });
            assert_eq!((outcome.better, blocks), (better, MIN_BLOCKS), "{cost}");
            assert!((outcome.ratio / cost - 1.0).abs() < 1e-9, "{cost}: {}", outcome.ratio);
        }
        // So much slower that one turn of each suffices.
        let (outcome, blocks) = trial(|candidate| if candidate { 0.004 } else { 0.001 });
        assert!(!outcome.better && outcome.ratio > 3.9 && blocks <= 1, "{outcome:?}");
    }

    #[test]
    fn noise_alone_seldom_changes_the_number() {
        // Passes of 1 ms, some of which take 5 ms: blocks differ by more than the required improvement.
        let mut random = Random(1);
        let mut changes = |cost: f64| {
            let outcomes = (0..400).map(|_| {
                trial(|candidate| {
                    let off = if random.next() < 0.1 { 0.004 } else { 0.0 };
                    (0.001 + off) * if candidate { cost } else { 1.0 }
                })
            });
            outcomes.filter(|(outcome, _)| outcome.better).count()
        };
        let (worse, equal, better) = (changes(1.4), changes(1.0), changes(0.7));
        assert!(worse < 20 && equal < 100 && better > 360, "{worse}, {equal} and {better} of 400");
    }

    #[test]
    fn on_a_quiet_machine_trials_cost_next_to_nothing() {
        for most in [1, 2, 8, 16] {
            let mut size = TeamSize::new(most, 0.0);
            let reached = QUIET.rate(&mut size, 1, 1.0, &mut Random(1)) * QUIET.fixed(most);
            assert!(reached > 0.99, "{most} threads: {reached} in the first second");
            let reached = QUIET.rate(&mut size, 1, 20.0, &mut Random(1)) * QUIET.fixed(most);
            assert!(reached > 0.995, "{most} threads: {reached}");
        }
    }

    #[test]
    fn passes_that_many_threads_slow_down_run_on_few() {
        // Fastest on four: each further thread adds time of its own.
        let small = Busy { seconds: |n| 1e-4 / n as f64 + 7e-6 * n as f64, ..QUIET };
        let mut size = TeamSize::new(16, 0.0);
        small.rate(&mut size, 1, 10.0, &mut Random(1));
        let reached = small.rate(&mut size, 1, 5.0, &mut Random(2)) / small.best(16);
        assert!(reached > 0.97, "{reached} on {} threads", size.of(1));
        assert_eq!(size.of(512), 16, "of passes of other sizes nothing is known");
    }

    #[test]
    fn a_busy_machine_is_noticed_and_so_is_that_it_is_quiet_again() {
        for (leader_off, helper_off) in [(0.0, 0.003), (0.003, 0.003), (0.012, 0.012)] {
            // Two threads are as fast as one while they run; then one is descheduled.
            let busy = Busy { seconds: |n| 1.3e-4 / (n as f64).sqrt(), leader_off, helper_off, ..QUIET };
            let best = busy.best(2);
            for seed in 0..8 {
                let mut random = Random(seed);
                let mut size = TeamSize::new(2, 0.0);
                QUIET.rate(&mut size, 1, 1.0, &mut random);
                let reached = busy.rate(&mut size, 1, 2.0, &mut random) / best;
                assert!(reached > 0.7, "seed {seed}, {helper_off}: {reached} at first");
                let reached = busy.rate(&mut size, 1, 10.0, &mut random) / best;
                assert!(reached > 0.85, "seed {seed}, {helper_off}: {reached}");
                QUIET.rate(&mut size, 1, 5.0, &mut random);
                let reached = QUIET.rate(&mut size, 1, 5.0, &mut random) / QUIET.best(2);
                assert!(reached > 0.97, "seed {seed}, {helper_off}: {reached} when it was quiet again");
            }
        }
    }

    #[test]
    fn noise_that_fewer_threads_cannot_mend_slows_few_passes() {
        // Now and then a helper is descheduled for a moment. One thread would take 1.8 times as long.
        let seconds = |n| if n == 1 { 0.0018 } else { 0.001 };
        let noisy = Busy { seconds, helper_off: 0.0005, ..QUIET };
        let (mut size, mut random) = (TeamSize::new(2, 0.0), Random(5));
        noisy.rate(&mut size, 1, 5.0, &mut random);
        let mut on_one = 0;
        for _ in 0..20_000 {
            on_one += usize::from(size.of(1) == 1);
            noisy.rate(&mut size, 1, 1e-9, &mut random);
        }
        assert!(on_one < 40, "{on_one} of 20000 passes");
        // Now every pass of two takes longer than one of one thread, and no pass stands out.
        let slow = Busy { seconds: |n| 0.0018 * n as f64, ..QUIET };
        slow.rate(&mut size, 1, 2.0, &mut random);
        assert_eq!(size.of(1), 1);
    }

    #[test]
    fn the_least_busy_part_of_a_large_team_works() {
        // Half of sixteen cores are taken: threads beyond eight are descheduled again and again.
        let half =
            Busy { seconds: |n| 0.02 / n as f64, sleeps: |n| 0.0015 * n.saturating_sub(8) as f64, ..QUIET };
        let mut size = TeamSize::new(16, 0.0);
        half.rate(&mut size, 1, 3.0, &mut Random(3));
        let reached = half.rate(&mut size, 1, 10.0, &mut Random(4)) / half.best(16);
        assert!(reached > 0.95, "{reached} on {} threads", size.of(1));
    }
}
