//! Parallel regions: the leader opens one, workers that arrive in time enter it, and the leader closes it when all work is claimed.
//!
//! Work is claimed piece by piece, so a region needs no particular worker. A worker that the system descheduled before it
//! entered delays nothing: it finds the region closed and waits for the next one. After closing the region, the leader waits only
//! for the workers inside, each of which finishes the piece that it has claimed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::Duration;

use super::Padded;
use super::cpu::{self, Place};
use super::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, UnsafeCell, in_sequence, park, spin_loop,
};

/// Iterations of spinning before a worker parks: a few hundred microseconds, longer than any gap inside a forward pass.
const SPINS_BEFORE_PARK: u32 = if cfg!(loom) { 2 } else { 20_000 };
/// Iterations of spinning before the leader sleeps until the last worker has left. A worker that takes longer was probably
/// descheduled, and can use the leader's core.
const SPINS_BEFORE_SLEEP: u32 = if cfg!(loom) { 1 } else { 20_000 };
/// Iterations of spinning between two checks of a worker whether it shares the leader's logical CPU: about two microseconds.
const SPINS_BETWEEN_CPU_CHECKS: u32 = 64;
/// Time that a worker sleeps if it shares the leader's logical CPU and finds no other.
const SLEEP_ON_LEADER_CPU: Duration = Duration::from_millis(8);

/// The state: the low 16 bits count the workers inside the region, the next bit is set while the region is open, and the bits
/// above hold the number of the region.
const WORKERS_INSIDE: u64 = OPEN - 1;
const OPEN: u64 = 1 << 16;
const ONE_REGION: u64 = 1 << 17;

/// The number of a region, from the state.
fn number(state: u64) -> u64 {
    state / ONE_REGION
}

/// The work of a region: every thread that takes part calls it once, with the thread's number.
type Job = *const (dyn Fn(usize) + Sync);

/// State shared by the leader and its workers.
pub(super) struct Regions {
    state: Padded<AtomicU64>,
    job: UnsafeCell<Option<Job>>,
    /// Number of workers that may enter, counted from the first.
    admitted: Padded<AtomicUsize>,
    workers: Vec<Padded<Worker>>,
    /// The CPU on which the leader opened the last region.
    leader: Padded<Place>,
    /// Whether the workers are to end.
    stop: AtomicBool,
    /// Whether a worker panicked in the current region.
    panicked: AtomicBool,
    /// Whether the leader sleeps, or is about to, until no worker is inside.
    leader_sleeps: AtomicBool,
    sleep_lock: Mutex<()>,
    /// Notified when the last worker leaves while the leader sleeps.
    emptied: Condvar,
}

/// State of a worker, written by that worker only.
#[derive(Default)]
struct Worker {
    parked: AtomicBool,
    /// Number of regions that it has entered.
    entered: AtomicU64,
    /// The CPU on which it ran at its last check.
    place: Place,
}

// SAFETY: `job` is written by the leader only while the region is closed and nobody is inside, and read only by workers inside an open
// region, which they entered with acquire after the leader had opened it with release.
unsafe impl Sync for Regions {}
// SAFETY: the pointer in `job` is dereferenced only inside a region, while the leader keeps the closure alive.
unsafe impl Send for Regions {}

impl Regions {
    /// Creates regions for `workers` workers, all of which may enter.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            state: Padded(AtomicU64::new(0)),
            job: UnsafeCell::new(None),
            admitted: Padded(AtomicUsize::new(workers)),
            workers: (0..workers).map(|_| Padded(Worker::default())).collect(),
            leader: Padded(Place::default()),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            leader_sleeps: AtomicBool::new(false),
            sleep_lock: Mutex::new(()),
            emptied: Condvar::new(),
        }
    }

    /// Lets only the first `workers` workers enter, from the next region on. Called by the leader.
    pub(super) fn admit(&self, workers: usize) {
        self.admitted.0.store(workers, Ordering::Relaxed);
    }

    /// Number of workers that may enter.
    pub(super) fn admitted(&self) -> usize {
        self.admitted.0.load(Ordering::Relaxed)
    }

    /// Number of times that workers entered a region, summed over all workers.
    pub(super) fn entered(&self) -> u64 {
        self.workers.iter().map(|worker| worker.0.entered.load(Ordering::Relaxed)).sum()
    }

    /// Runs `job` on the leader, as thread 0, and on every worker that enters before the leader is done. Returns when all of
    /// them are done. `wake` unparks a worker. `sleep` calls its argument, which lets the leader sleep, and may measure how long
    /// that takes. Called by one thread at a time.
    pub(super) fn run(
        &self,
        job: &(dyn Fn(usize) + Sync),
        wake: impl Fn(usize),
        sleep: impl FnOnce(&dyn Fn()),
    ) {
        // SAFETY: erases the lifetime only: this function returns after every worker inside has left, and none enters later.
        let erased: Job = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(job) };
        // SAFETY: the region is closed and nobody is inside.
        self.job.with_mut(|job| unsafe { *job = Some(erased) });
        self.leader.0.set(cpu::current());
        self.state.0.fetch_add(ONE_REGION | OPEN, Ordering::SeqCst);
        in_sequence();
        for worker in 0..self.admitted() {
            if self.workers[worker].0.parked.load(Ordering::SeqCst) {
                wake(worker);
            }
        }
        let result = catch_unwind(AssertUnwindSafe(|| job(0)));
        self.state.0.fetch_sub(OPEN, Ordering::SeqCst);
        self.wait_until_empty(sleep);
        let worker_panicked = self.panicked.swap(false, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        assert!(!worker_panicked, "a worker of the team panicked");
    }

    /// Whether no worker is inside.
    fn is_empty(&self) -> bool {
        self.state.0.load(Ordering::SeqCst) & WORKERS_INSIDE == 0
    }

    /// Waits until no worker is inside: spins first, then sleeps.
    fn wait_until_empty(&self, sleep: impl FnOnce(&dyn Fn())) {
        for _ in 0..SPINS_BEFORE_SLEEP {
            if self.is_empty() {
                return;
            }
            spin_loop();
        }
        sleep(&|| {
            let mut guard = self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.leader_sleeps.store(true, Ordering::SeqCst);
            in_sequence();
            while !self.is_empty() {
                guard = self.emptied.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.leader_sleeps.store(false, Ordering::SeqCst);
        });
    }

    /// The loop of a worker, which is thread `worker + 1`.
    pub(super) fn work(&self, worker: usize) {
        let mut last = 0;
        while let Some(number) = self.enter(worker, last) {
            last = number;
            let entered = &self.workers[worker].0.entered;
            entered.store(entered.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // SAFETY: the leader wrote `job` before it opened the region that this thread entered.
            if let Some(job) = self.job.with(|job| unsafe { *job }) {
                // SAFETY: the leader keeps the closure alive until this thread has left.
                let job = unsafe { &*job };
                if catch_unwind(AssertUnwindSafe(|| job(worker + 1))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            self.leave();
        }
    }

    /// Waits for an open region other than `last`, the last one that the worker entered, and enters it. Returns its number, or
    /// `None` at the end of the team.
    fn enter(&self, worker: usize, last: u64) -> Option<u64> {
        let mut spins = 0u32;
        // The newest region when the worker last slept because it shared the leader's CPU.
        let mut slept_at = None;
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            // The threads of `loom` share one.
            let has_cpu = !cfg!(loom) && worker < self.admitted();
            let checks_cpu = has_cpu && spins.is_multiple_of(SPINS_BETWEEN_CPU_CHECKS);
            if checks_cpu && !self.keep_off_leader(worker) {
                // The two threads share a CPU, so the leader does not run while this thread does. Spinning or working here would
                // only delay the leader. This sleep ends by itself: the worker is not registered as parked, so the leader does not
                // spend time on waking it.
                let newest = number(self.state.0.load(Ordering::SeqCst));
                if slept_at.replace(newest) != Some(newest) {
                    std::thread::park_timeout(SLEEP_ON_LEADER_CPU);
                    spins = 0;
                    continue;
                }
                // No region was opened since then: the leader is idle, or is inside one and may be on another CPU by now.
                spins = SPINS_BEFORE_PARK;
            }
            if self.may_enter(worker, last, self.state.0.load(Ordering::SeqCst)) {
                let state = self.state.0.fetch_add(1, Ordering::SeqCst);
                if self.may_enter(worker, last, state) {
                    return Some(number(state));
                }
                // The region was closed between the two reads of the state.
                self.leave();
            }
            spins += 1;
            if spins < SPINS_BEFORE_PARK {
                spin_loop();
            } else {
                self.park(worker, last);
                spins = 0;
            }
        }
    }

    /// Moves the calling worker to another logical CPU if it is on the leader's. When other CPUs are busy, the system often puts
    /// both on one CPU and leaves them there, because it wakes workers on the leader's CPU. Returns `false` if there is no other
    /// CPU for the worker.
    fn keep_off_leader(&self, worker: usize) -> bool {
        let place = &self.workers[worker].0.place;
        let here = cpu::current();
        place.set(here);
        if !self.leader.0.is(here) {
            return true;
        }
        // The worker's own place stands for the leader's, which is the same.
        let moved = cpu::move_off(self.workers[..self.admitted()].iter().map(|member| member.0.place.get()));
        place.set(cpu::current());
        moved
    }

    /// Sleeps until the leader opens a region that the worker may enter, or the team ends.
    fn park(&self, worker: usize, last: u64) {
        let parked = &self.workers[worker].0.parked;
        parked.store(true, Ordering::SeqCst);
        in_sequence();
        // No wake-up is lost: the leader opens a region and then looks for parked workers, and this thread registers as parked and
        // then looks for an open region.
        let state = self.state.0.load(Ordering::SeqCst);
        if !self.may_enter(worker, last, state) {
            park();
        }
        parked.store(false, Ordering::SeqCst);
    }

    /// Whether the region of this state is open, is not the last one that the worker entered, and admits the worker.
    fn may_enter(&self, worker: usize, last: u64, state: u64) -> bool {
        state & OPEN != 0 && number(state) != last && worker < self.admitted()
    }

    /// Leaves the region. The last worker wakes the leader if that sleeps.
    fn leave(&self) {
        let before = self.state.0.fetch_sub(1, Ordering::SeqCst);
        in_sequence();
        if before & WORKERS_INSIDE == 1 && self.leader_sleeps.load(Ordering::SeqCst) {
            // The leader holds the lock from before it sets `leader_sleeps` until it waits or is done. So once the lock can be taken
            // here, the notification is not lost.
            drop(self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.emptied.notify_one();
        }
    }

    /// Tells the workers to end. The caller wakes them afterwards.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Pieces of work that a region claims one by one.
    struct Pieces {
        claimed: AtomicUsize,
        done: [UnsafeCell<u32>; 2],
    }

    // SAFETY: a piece is written by who claimed it, and read after the region.
    unsafe impl Sync for Pieces {}

    impl Pieces {
        /// Does the pieces that nobody else claims.
        fn work(&self, region: u32) {
            while let Some(piece) = self.done.get(self.claimed.fetch_add(1, Ordering::Relaxed)) {
                // SAFETY: this thread claimed it.
                piece.with_mut(|done| unsafe { *done += region });
            }
        }
    }

    /// Runs regions one after the other with these workers, in every interleaving of the threads with at most so many switches from a
    /// thread that could go on.
    fn model(workers: usize, regions: u32, sleeps: bool, switches: usize) {
        let mut interleavings = loom::model::Builder::new();
        interleavings.preemption_bound = Some(switches);
        interleavings.check(move || {
            let shared = Arc::new(Regions::new(workers));
            let work = |worker| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.work(worker))
            };
            let threads: Vec<_> = (0..workers).map(work).collect();
            let wake = |worker: usize| threads[worker].thread().unpark();
            for region in 1..=regions {
                let pieces =
                    Pieces { claimed: AtomicUsize::new(0), done: [UnsafeCell::new(0), UnsafeCell::new(0)] };
                let work = |member: usize| {
                    // A leader that leaves the work to the worker waits until it has come, and sleeps until it is done.
                    while sleeps && member == 0 && pieces.claimed.load(Ordering::Relaxed) == 0 {
                        thread::yield_now();
                    }
                    if member > 0 || !sleeps {
                        pieces.work(region);
                    }
                };
                shared.run(&work, wake, |sleep| sleep());
                for piece in &pieces.done {
                    // SAFETY: nobody is inside the region any more.
                    assert_eq!(piece.with(|done| unsafe { *done }), region);
                }
            }
            shared.end();
            (0..workers).for_each(wake);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn two_regions_with_a_worker() {
        model(1, 2, false, 4);
    }

    #[test]
    fn a_leader_that_sleeps_is_woken() {
        model(1, 2, true, 3);
    }

    #[test]
    fn a_region_with_two_workers() {
        model(2, 1, false, 2);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::thread::Thread;

    use super::*;

    /// Runs `leader` with regions for `workers` workers, of which only the first `alive` have a thread.
    fn with_workers(workers: usize, alive: usize, leader: impl FnOnce(&Regions, &[Thread])) {
        let regions = Regions::new(workers);
        std::thread::scope(|scope| {
            let threads: Vec<Thread> = (0..alive)
                .map(|worker| {
                    let regions = &regions;
                    scope.spawn(move || regions.work(worker)).thread().clone()
                })
                .collect();
            let panic = catch_unwind(AssertUnwindSafe(|| leader(&regions, &threads)));
            regions.end();
            threads.iter().for_each(Thread::unpark);
            panic.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    #[test]
    fn a_worker_that_never_arrives_is_not_waited_for() {
        // Worker 1 has no thread: it never arrives, like one that stays descheduled.
        with_workers(2, 1, |regions, threads| {
            for _ in 0..1000 {
                let claimed = AtomicUsize::new(0);
                let done = AtomicUsize::new(0);
                let work = |_| {
                    while claimed.fetch_add(1, Ordering::Relaxed) < 50 {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                };
                regions.run(
                    &work,
                    |worker| threads.get(worker).into_iter().for_each(Thread::unpark),
                    |sleep| sleep(),
                );
                assert_eq!(done.into_inner(), 50);
            }
        });
    }

    #[test]
    fn the_leader_sleeps_until_a_worker_inside_has_finished() {
        with_workers(1, 1, |regions, threads| {
            let inside = AtomicBool::new(false);
            let finished = AtomicBool::new(false);
            let slept = Cell::new(0);
            let work = |thread: usize| {
                if thread == 0 {
                    while !inside.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    return;
                }
                inside.store(true, Ordering::SeqCst);
                // Holds its work for longer than the leader spins, until the leader sleeps.
                while !regions.leader_sleeps.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                finished.store(true, Ordering::SeqCst);
            };
            let measure = |sleep: &dyn Fn()| {
                slept.set(slept.get() + 1);
                sleep();
            };
            regions.run(&work, |worker| threads[worker].unpark(), measure);
            assert!(finished.load(Ordering::SeqCst));
            assert_eq!(slept.get(), 1);
        });
    }

    /// Whether the calling worker moves away from the CPU on which the leader opened its last region.
    #[cfg(target_os = "linux")]
    fn is_apart(regions: &Regions) -> bool {
        regions.leader.0.set(cpu::current());
        regions.keep_off_leader(0)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_worker_leaves_the_cpu_of_the_leader_where_there_is_another() {
        let several = std::thread::available_parallelism().unwrap().get() > 1;
        assert_eq!(is_apart(&Regions::new(1)), several);
        std::thread::spawn(|| {
            cpu::tests::use_one();
            assert!(!is_apart(&Regions::new(1)), "there is no other");
        })
        .join()
        .unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_worker_on_the_only_cpu_enters_a_region_that_lasts() {
        let run = || {
            cpu::tests::use_one();
            with_workers(1, 1, |regions, threads| {
                for round in 1..=3 {
                    let work = |thread: usize| {
                        while thread == 0 && regions.entered() < round {
                            std::thread::yield_now();
                        }
                    };
                    regions.run(&work, |worker| threads[worker].unpark(), |sleep| sleep());
                }
            });
        };
        std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    }

    #[test]
    fn a_worker_enters_a_region_once_and_only_if_admitted() {
        with_workers(2, 2, |regions, threads| {
            for (round, admitted) in [2, 1, 0, 2, 1, 2].into_iter().enumerate() {
                regions.admit(admitted);
                let entered: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
                let all = || entered.iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>();
                let work = |thread: usize| {
                    entered[thread].fetch_add(1, Ordering::SeqCst);
                    // The leader keeps the region open until all that may enter have.
                    while thread == 0 && all() < 1 + admitted {
                        std::thread::yield_now();
                    }
                };
                regions.run(&work, |worker| threads[worker].unpark(), |sleep| sleep());
                let expected: Vec<usize> = (0..3).map(|thread| usize::from(thread <= admitted)).collect();
                let entered: Vec<usize> = entered.into_iter().map(AtomicUsize::into_inner).collect();
                assert_eq!(entered, expected, "round {round}");
            }
        });
    }
}
