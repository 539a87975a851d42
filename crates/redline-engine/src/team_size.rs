//! How many threads a pass runs on, learnt from what passes cost.
//!
//! A result does not depend on the number of threads, so it may change from pass to pass. On a quiet machine all threads are usually
//! best; small passes may be faster on fewer, and beside other busy processes a thread that is put aside in the middle of its work
//! holds up all the others. So now and then passes run in turns on the present number and on the next smaller or larger one, and the
//! cheaper number stays. What such trials may cost is a budget, a small share of the time of all passes. It grows fast where the
//! leader had to sleep because of a thread that was put aside, so that a busy machine is noticed within a fraction of a second.
//!
//! Nothing here reads a clock: seconds come in, a number goes out.

/// Share of the time of passes that trials may cost while all threads are in use.
const QUIET_BUDGET: f64 = 0.0025;
/// The same while fewer are: what was busy may be quiet again.
const SMALL_BUDGET: f64 = 0.03;
/// Share of the leader's sleep that trials may cost.
const SLEEP_BUDGET: f64 = 0.5;
/// Seconds that trials may cost at the beginning.
const FIRST_BUDGET: f64 = 0.004;
/// Most seconds of budget that are saved.
const MOST_BUDGET: f64 = 0.25;
/// Turns of a trial, half of them on the present number of threads.
const TURNS: u32 = 8;
/// Part of a turn after a change of numbers that does not count.
const SETTLING: f64 = 0.7;
/// Seconds on each of the two numbers at least, where all passes take about the same time.
const QUIET_SECONDS: f64 = 0.005;
/// The same where they do not: longer than the turns in which the system shares out a core.
const NOISY_SECONDS: f64 = 0.06;
/// Passes after which it is known whether they all take the same time.
const LEAST_PASSES: u32 = 4;
/// Passes differ when they take this many times the least that any took, on the average.
const NOISY: f64 = 1.3;
/// A trial ends early where one number takes this many times as long as the other.
const PLAIN: f64 = 3.0;
/// Another number of threads must take less than this share of the time to replace the present one.
const CLEARLY: f64 = 0.95;
/// Seconds of passes after which they count half.
const MEMORY: f64 = 0.25;
/// Seconds of passes between two trials, at least and at most: the more trials change nothing, the longer.
const LEAST_PAUSE: f64 = 0.02;
const MOST_PAUSE: f64 = 1.0;
/// Share by which the least cost of a pass grows with every pass: machines change.
const DRIFT: f64 = 0.002;
/// Passes of less work are taken to cost the same: they read the same weights.
const LEAST_WORK: f64 = 8.0;

/// What passes cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    seconds: f64,
    work: f64,
}

impl Cost {
    fn add(&mut self, seconds: f64, work: f64) {
        (self.seconds, self.work) = (self.seconds + seconds, self.work + work);
    }

    /// Seconds of a unit of work; `None` before there was any.
    fn rate(self) -> Option<f64> {
        (self.work > 0.0).then(|| self.seconds / self.work)
    }
}

/// What passes cost lately, and how much they differ.
#[derive(Clone, Copy, Debug, Default)]
struct Lately {
    cost: Cost,
    passes: u32,
    /// Seconds of a unit of work at least.
    least: f64,
}

impl Lately {
    fn add(&mut self, seconds: f64, work: f64) {
        if self.cost.seconds > MEMORY {
            self.cost = Cost { seconds: self.cost.seconds / 2.0, work: self.cost.work / 2.0 };
        }
        self.cost.add(seconds, work);
        let (before, now) = (self.least * (1.0 + DRIFT), seconds / work);
        self.least = if self.passes == 0 { now } else { before.min(now) };
        self.passes = self.passes.saturating_add(1);
    }

    /// Seconds on each of the two numbers of a trial.
    fn enough(self) -> f64 {
        let noisy = self.cost.rate().is_some_and(|rate| rate > NOISY * self.least);
        if noisy { NOISY_SECONDS } else { QUIET_SECONDS }
    }
}

/// Passes in turns on two numbers of threads: the present one, the other twice, the present one twice, and so on, so that what changes
/// steadily meanwhile changes both alike.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The other number, by its place in the ladder.
    rung: usize,
    /// Seconds of a turn at least.
    turn_seconds: f64,
    /// The present turn, and its seconds so far.
    turn: u32,
    seconds: f64,
    /// Seconds after a change of numbers that do not count: a thread that has slept is given its core at once, for a moment.
    settling: f64,
    own: Cost,
    other: Cost,
}

impl Trial {
    fn new(rung: usize, enough: f64) -> Self {
        let turn_seconds = enough / f64::from(TURNS / 2);
        let (own, other) = (Cost::default(), Cost::default());
        Self { rung, turn_seconds, turn: 0, seconds: 0.0, settling: 0.0, own, other }
    }

    fn is_on_other(&self) -> bool {
        matches!(self.turn % 4, 1 | 2)
    }

    fn add(&mut self, seconds: f64, work: f64) {
        if self.settling > 0.0 {
            self.settling -= seconds;
            return;
        }
        let cost = if self.is_on_other() { &mut self.other } else { &mut self.own };
        cost.add(seconds, work);
        self.seconds += seconds;
        if self.seconds >= self.turn_seconds {
            let before = self.is_on_other();
            (self.turn, self.seconds) = (self.turn + 1, 0.0);
            self.settling = if self.is_on_other() == before { 0.0 } else { SETTLING * self.turn_seconds };
        }
    }

    /// What the other number costs over what the present one does, once enough is known.
    fn outcome(&self) -> Option<f64> {
        let ratio = self.other.rate()? / self.own.rate()?;
        let least = self.own.seconds.min(self.other.seconds);
        let plain = !(1.0 / PLAIN..PLAIN).contains(&ratio) && least > self.turn_seconds;
        (plain || self.turn >= TURNS).then_some(ratio)
    }

    /// Seconds that the other number took beyond what the present one would have.
    fn loss(&self) -> f64 {
        self.other.seconds - self.own.rate().unwrap_or(0.0) * self.other.work
    }
}

/// Passes of about as many rows.
#[derive(Clone, Debug)]
struct Kind {
    /// The number of threads in use, by its place in the ladder.
    rung: usize,
    lately: Lately,
    /// There was a pass: the first one finds nothing in the caches.
    warm: bool,
    trial: Option<Trial>,
    /// The next trial is on more threads, if there are any.
    upwards: bool,
    /// What the last trial downwards and the last one upwards came to.
    outcomes: [Option<f64>; 2],
    /// Seconds of passes between the last trial and the next, and what has gone by of them.
    pause: f64,
    rested: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct TeamSize {
    /// Numbers of threads to choose from, ascending; the last is all of them.
    ladder: Vec<usize>,
    /// By the logarithm of the rows.
    kinds: Vec<Kind>,
    /// Seconds that trials may cost.
    budget: f64,
}

/// A pass that was run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) rows: usize,
    /// Its work, in any unit.
    pub(crate) work: f64,
    pub(crate) seconds: f64,
    /// Seconds for which the leader slept.
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
    /// Of up to `most` threads; begins with all of them.
    pub(crate) fn new(most: usize) -> Self {
        let ladder = ladder(most);
        let kind = Kind {
            rung: ladder.len() - 1,
            lately: Lately::default(),
            warm: false,
            trial: None,
            upwards: false,
            outcomes: [None; 2],
            pause: LEAST_PAUSE,
            rested: 0.0,
        };
        Self { kinds: vec![kind; usize::BITS as usize], ladder, budget: FIRST_BUDGET }
    }

    fn kind(rows: usize) -> usize {
        rows.max(1).ilog2() as usize
    }

    /// Threads for a pass of so many rows.
    pub(crate) fn of(&self, rows: usize) -> usize {
        let kind = &self.kinds[Self::kind(rows)];
        self.ladder[kind.trial.filter(Trial::is_on_other).map_or(kind.rung, |trial| trial.rung)]
    }

    /// Learns what a pass took on the threads that were chosen for it.
    pub(crate) fn learn(&mut self, pass: Passed) {
        let Passed { rows, seconds, slept, .. } = pass;
        let work = pass.work.max(LEAST_WORK);
        let top = self.ladder.len() - 1;
        let kind = &mut self.kinds[Self::kind(rows)];
        let share = if kind.rung == top { QUIET_BUDGET } else { SMALL_BUDGET };
        let of_sleep = if kind.trial.is_none() { SLEEP_BUDGET * slept } else { 0.0 };
        self.budget = (self.budget + share * seconds + of_sleep).min(MOST_BUDGET);
        if !std::mem::replace(&mut kind.warm, true) {
            return;
        }
        if let Some(trial) = &mut kind.trial {
            trial.add(seconds, work);
            self.budget += kind.judge();
            return;
        }
        kind.lately.add(seconds, work);
        kind.rested += seconds;
        if let Some(rung) = kind.next_trial(top)
            && self.budget >= kind.price(rung, seconds)
        {
            kind.trial = Some(Trial::new(rung, kind.lately.enough()));
        }
    }
}

impl Kind {
    /// The number of threads to try next, once it is known how much passes differ.
    fn next_trial(&self, top: usize) -> Option<usize> {
        let up = (self.rung < top).then_some(self.rung + 1);
        let down = self.rung.checked_sub(1);
        let next = if self.upwards { up.or(down) } else { down.or(up) };
        next.filter(|_| self.lately.passes >= LEAST_PASSES && self.rested >= self.pause)
    }

    /// Seconds that a trial is likely to lose, where the last pass took `seconds`.
    fn price(&self, rung: usize, seconds: f64) -> f64 {
        let length = self.lately.enough().max(f64::from(TURNS / 2) * seconds);
        let lost = self.outcomes[usize::from(rung > self.rung)].map_or(0.5, |ratio| 1.0 - 1.0 / ratio);
        length * lost.max(0.1)
    }

    /// Ends a trial that has said enough; seconds by which that changes the budget.
    fn judge(&mut self) -> f64 {
        let ended = self.trial.and_then(|trial| Some((trial, trial.outcome()?)));
        let Some((trial, ratio)) = ended else { return 0.0 };
        let upwards = trial.rung > self.rung;
        (self.trial, self.rested) = (None, 0.0);
        if ratio < CLEARLY {
            (self.rung, self.upwards, self.pause) = (trial.rung, upwards, LEAST_PAUSE);
            (self.lately, self.outcomes) = (Lately::default(), [None; 2]);
            // What holds for these passes may hold for others, and for one step more.
            return 8.0 * trial.turn_seconds;
        }
        self.outcomes[usize::from(upwards)] = Some(ratio);
        self.upwards = !self.upwards;
        self.pause = (2.0 * self.pause).min(MOST_PAUSE);
        -trial.loss().max(0.0)
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

    /// What a pass takes and for how long its leader always sleeps, by the number of threads; and for how long the system puts a thread
    /// aside when it has worked for about 3 ms: the leader, which takes time, or a helper, for which the leader sleeps.
    struct Busy {
        seconds: fn(usize) -> f64,
        sleeps: fn(usize) -> f64,
        leader_aside: f64,
        helper_aside: f64,
    }

    impl Busy {
        fn pass(&self, threads: usize, random: &mut Random) -> (f64, f64) {
            let seconds = (self.seconds)(threads);
            let ends = |random: &mut Random| random.next() < seconds / 0.003;
            let aside = if ends(random) { self.leader_aside } else { 0.0 };
            let helpers = (1..threads).filter(|_| ends(random)).count();
            let slept = (self.sleeps)(threads) + if helpers > 0 { self.helper_aside } else { 0.0 };
            (seconds + aside + slept, slept)
        }

        /// Seconds of a pass on the average, on a fixed number of threads.
        fn fixed(&self, threads: usize) -> f64 {
            let mut random = Random(1);
            (0..20_000).map(|_| self.pass(threads, &mut random).0).sum::<f64>() / 20_000.0
        }

        /// Passes a second that a team of changing size runs in so many seconds.
        fn rate(&self, size: &mut TeamSize, rows: usize, seconds: f64, random: &mut Random) -> f64 {
            let (mut passes, mut time) = (0.0, 0.0);
            while time < seconds {
                let (seconds, slept) = self.pass(size.of(rows), random);
                size.learn(Passed { rows, work: rows as f64, seconds, slept });
                (passes, time) = (passes + 1.0, time + seconds);
            }
            passes / time
        }

        fn best(&self, most: usize) -> f64 {
            ladder(most).into_iter().map(|threads| 1.0 / self.fixed(threads)).fold(0.0, f64::max)
        }
    }

    const QUIET: Busy =
        Busy { seconds: |n| 0.002 / n as f64, sleeps: |_| 0.0, leader_aside: 0.0, helper_aside: 0.0 };

    #[test]
    fn a_ladder_ends_with_all_threads() {
        assert_eq!(ladder(0), [1]);
        assert_eq!(ladder(1), [1]);
        assert_eq!(ladder(2), [1, 2]);
        assert_eq!(ladder(5), [1, 2, 3, 4, 5]);
        assert_eq!(ladder(16), [1, 2, 3, 4, 6, 8, 12, 16]);
    }

    #[test]
    fn on_a_quiet_machine_trials_cost_next_to_nothing() {
        for most in [1, 2, 8, 16] {
            let mut size = TeamSize::new(most);
            let reached = QUIET.rate(&mut size, 1, 1.0, &mut Random(1)) * QUIET.fixed(most);
            assert!(reached > 0.99, "{most} threads: {reached} in the first second");
            let reached = QUIET.rate(&mut size, 1, 20.0, &mut Random(1)) * QUIET.fixed(most);
            assert!(reached > 0.995, "{most} threads: {reached}");
        }
    }

    #[test]
    fn passes_that_many_threads_slow_down_run_on_few() {
        // Best on four: each thread more costs time of its own.
        let small = Busy { seconds: |n| 1e-4 / n as f64 + 7e-6 * n as f64, ..QUIET };
        let mut size = TeamSize::new(16);
        small.rate(&mut size, 1, 10.0, &mut Random(1));
        let reached = small.rate(&mut size, 1, 5.0, &mut Random(2)) / small.best(16);
        assert!(reached > 0.97, "{reached} on {} threads", size.of(1));
        assert_eq!(size.of(512), 16, "of passes of other sizes nothing is known");
    }

    #[test]
    fn a_busy_machine_is_noticed_and_so_is_that_it_is_quiet_again() {
        for (leader_aside, helper_aside) in [(0.0, 0.003), (0.003, 0.003), (0.012, 0.012)] {
            // Two threads are as fast as one while they run; then one is put aside.
            let busy = Busy { seconds: |n| 1.3e-4 / (n as f64).sqrt(), leader_aside, helper_aside, ..QUIET };
            let best = busy.best(2);
            for seed in 0..8 {
                let mut random = Random(seed);
                let mut size = TeamSize::new(2);
                QUIET.rate(&mut size, 1, 1.0, &mut random);
                let reached = busy.rate(&mut size, 1, 2.0, &mut random) / best;
                assert!(reached > 0.7, "seed {seed}, {helper_aside}: {reached} at first");
                let reached = busy.rate(&mut size, 1, 10.0, &mut random) / best;
                assert!(reached > 0.85, "seed {seed}, {helper_aside}: {reached}");
                QUIET.rate(&mut size, 1, 5.0, &mut random);
                let reached = QUIET.rate(&mut size, 1, 5.0, &mut random) / QUIET.best(2);
                assert!(reached > 0.97, "seed {seed}, {helper_aside}: {reached} when it was quiet again");
            }
        }
    }

    #[test]
    fn the_least_busy_part_of_a_large_team_works() {
        // Half of sixteen cores are taken: what more than eight threads hold is put aside again and again.
        let half =
            Busy { seconds: |n| 0.02 / n as f64, sleeps: |n| 0.0015 * n.saturating_sub(8) as f64, ..QUIET };
        let mut size = TeamSize::new(16);
        half.rate(&mut size, 1, 3.0, &mut Random(3));
        let reached = half.rate(&mut size, 1, 10.0, &mut Random(4)) / half.best(16);
        assert!(reached > 0.95, "{reached} on {} threads", size.of(1));
    }
}
