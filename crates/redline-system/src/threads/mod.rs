//! One persistent team of threads: bounded spinning, then parking.
//!
//! The calling thread is member 0, the leader. All work is claimed (`threads/claims.rs`): every member has a part, in the order
//! that suits its caches, and a member that is done takes work that others have not begun. A region ends when its work is done,
//! not when every member has arrived (`threads/region.rs`), so a member that is descheduled before it claims work delays no
//! other. Because of the canonical orders, it does not matter which member computes an element, nor how many members there are.

mod claims;
mod cpu;
mod pace;
mod region;
mod seating;
mod stopwatch;
mod sync;

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use redline_simd::{Simd, set_default_float_environment};

use self::claims::Claims;
pub use self::cpu::{bind_to_cpus, usable_cpus};
use self::pace::Working;
pub use self::pace::give_way;
pub(crate) use self::pace::may_pause;
use self::region::Regions;
pub use self::seating::share;
pub use self::seating::{Seat, Seating};
pub use self::stopwatch::{ClockFn, Stopwatch, UNLABELLED, WorkSpan};
use crate::Exec;

#[repr(align(128))]
struct Padded<T>(T);

/// A team of `size` threads, the creating thread included. It is used from one thread at a time (not `Sync`).
pub struct Team {
    regions: Arc<Regions>,
    workers: Vec<JoinHandle<()>>,
    devices: usize,
    /// Whether it is a member of a larger team.
    is_part: bool,
    /// Work that no member has begun.
    claims: Claims,
    /// Records when each member worked.
    stopwatch: Option<Arc<Stopwatch>>,
    /// Measures how long the leader sleeps.
    clock: Option<ClockFn>,
    /// Counts pieces of work of the whole team.
    progress: Option<Arc<AtomicU64>>,
    /// Nanoseconds that the leader has slept. (A cell also keeps a team from being used by two threads at a time.)
    slept_ns: Cell<u64>,
    /// Workers that could have entered a region, summed over all regions.
    requested: Cell<u64>,
    /// The sums when they were last read: workers that could have entered, and that entered.
    last_read: Cell<(u64, u64)>,
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Team({})", self.members())
    }
}

impl Team {
    /// A team of `size >= 1` members; `size - 1` threads are started.
    pub fn new(size: usize) -> io::Result<Self> {
        Self::with_devices(size, 1)
    }

    /// Creates a team of `devices` logical devices. Each device is a group of members, or, if there are more devices than
    /// members, one member is several devices. A device owns its part of the outputs of every linear layer and of the heads.
    /// All devices read the results in shared memory, so the only gathering is the barrier at the end of [`Team::run`].
    pub fn with_devices(size: usize, devices: usize) -> io::Result<Self> {
        Self::start(size, devices, None)
    }

    /// A team of the calling thread, a member of a larger team, on one device, that counts its pieces of work with `progress`. Nothing is
    /// started.
    pub fn single(progress: Option<Arc<AtomicU64>>) -> Self {
        let mut team = Self::of(0, 1);
        (team.progress, team.is_part) = (progress, true);
        team
    }

    /// Creates a team like [`Team::with_devices`] whose member `i`, the calling thread included, runs on logical CPU `cpus[i]` only.
    /// After an error the calling thread may be bound.
    pub fn bound(size: usize, devices: usize, cpus: &[u32]) -> io::Result<Self> {
        Self::start(size, devices, Some(cpus))
    }

    fn start(size: usize, devices: usize, cpus: Option<&[u32]>) -> io::Result<Self> {
        let helpers = size.max(1) - 1;
        // A thread begins on the CPUs of the thread that starts it.
        let bind = |member: usize| match cpus {
            None => Ok(()),
            Some(cpus) => match cpus.get(member) {
                Some(&cpu) => bind_to_cpus(&[cpu]),
                None => {
                    let fact = format!("there are {} logical CPUs to bind them to", cpus.len());
                    Err(io::Error::new(io::ErrorKind::InvalidInput, fact))
                }
            },
        };
        let mut team = Self::of(helpers, devices.max(1));
        for index in 0..helpers {
            bind(index + 1)?;
            let regions = Arc::clone(&team.regions);
            let worker =
                std::thread::Builder::new().name(format!("redline-{}", index + 1)).spawn(move || {
                    set_default_float_environment();
                    regions.work(index);
                })?;
            team.workers.push(worker);
        }
        bind(0)?;
        Ok(team)
    }

    /// A team whose helpers have not been started.
    fn of(helpers: usize, devices: usize) -> Self {
        Self {
            regions: Arc::new(Regions::new(helpers)),
            workers: Vec::with_capacity(helpers),
            devices,
            is_part: false,
            claims: Claims::new(helpers + 1),
            stopwatch: None,
            clock: None,
            progress: None,
            slept_ns: Cell::new(0),
            requested: Cell::new(0),
            last_read: Cell::new((0, 0)),
        }
    }

    /// Records work from now on. This costs a branch without a stopwatch, and two clock readings per member and region with
    /// one; results do not change.
    pub fn set_stopwatch(&mut self, stopwatch: Arc<Stopwatch>) {
        self.stopwatch = Some(stopwatch);
    }

    /// Measures the leader's sleep from now on ([`Team::take_slept_ns`]). The clock is read only when the leader sleeps.
    pub fn set_clock(&mut self, clock: ClockFn) {
        self.clock = Some(clock);
    }

    /// Increases this number before each piece of work that the team runs, so that other threads can see its progress.
    pub fn set_progress(&mut self, progress: Arc<AtomicU64>) {
        self.progress = Some(progress);
    }

    /// What counts pieces of work.
    pub fn progress(&self) -> Option<Arc<AtomicU64>> {
        self.progress.clone()
    }

    /// Begins a piece of work, which is counted. All members are at work meanwhile: those that do not take part leave their cores to other
    /// processes.
    fn begin(&self) -> Option<Working> {
        if let Some(progress) = &self.progress {
            progress.fetch_add(1, Ordering::Relaxed);
        }
        (!self.is_part).then(|| Working::begin(self.members()))
    }

    /// Nanoseconds that the leader has slept since the last call, because a member held work for longer than a piece of it
    /// takes; the system had probably descheduled that member. 0 without a clock.
    pub fn take_slept_ns(&self) -> u64 {
        self.slept_ns.take()
    }

    /// Participation of members in the regions since the last call.
    pub fn take_participation(&self) -> Participation {
        let now = (self.requested.get(), self.regions.entered());
        let before = self.last_read.replace(now);
        let (requested, joined) = (now.0 - before.0, now.1.saturating_sub(before.1));
        Participation { requested, joined: joined.min(requested) }
    }

    /// Lets only the first `size` members work from now on, at least 1 and at most all of them. The others park.
    pub fn resize(&mut self, size: usize) {
        self.regions.admit(size.clamp(1, self.members()) - 1);
    }

    /// Number of members that work.
    pub fn size(&self) -> usize {
        self.regions.admitted() + 1
    }

    /// Number of members, including those that do not work.
    pub fn members(&self) -> usize {
        self.workers.len() + 1
    }

    /// Number of logical devices of the team.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// The placement of members in devices.
    pub fn seating(&self) -> Seating {
        Seating::new(self.size(), self.devices)
    }

    /// Runs `f(range)` over `0..items`, the strips of a linear layer, split into contiguous ranges of whole `unit`s: first over
    /// the devices, if there are several, and then over the members of each.
    pub fn split_strips(
        &self,
        items: usize,
        unit: usize,
        distribution: Distribution,
        f: impl Fn(Range<usize>) + Sync,
    ) {
        if distribution == Distribution::Alone || items < 2 || (self.size() == 1 && self.devices == 1) {
            return self.alone(|| f(0..items));
        }
        if let Distribution::Stealing { least } = distribution
            && self.devices == 1
            && let Some(pieces) = self.claims.share_out(self.size(), items, unit, least)
        {
            return self.region(|member| {
                while let Some(piece) = pieces.next(member) {
                    f(piece);
                }
            });
        }
        let seating = self.seating();
        self.run(|member| {
            for seat in seating.of(member) {
                let range = seat.share(items, unit);
                if !range.is_empty() {
                    f(range);
                }
            }
        });
    }

    /// As [`Team::run`], for calls that take long: that the leader sleeps until other members are done with theirs is no sign of a
    /// busy machine, and [`Team::take_slept_ns`] does not count it.
    pub fn run_long(&self, f: impl Fn(usize) + Sync) {
        let slept = self.slept_ns.get();
        self.run(f);
        self.slept_ns.set(slept);
    }

    /// Calls `f(member)` once for every working member, and returns when all calls are done. Each runs on the member's own
    /// thread if that arrives in time; otherwise another member makes the call, after its own.
    pub fn run(&self, f: impl Fn(usize) + Sync) {
        let size = self.size();
        let Some(calls) = (size > 1).then(|| self.claims.share_out(size, size, 1, 1)).flatten() else {
            return self.alone(|| (0..size).for_each(f));
        };
        self.region(|member| {
            while let Some(mut call) = calls.next(member) {
                call.by_ref().for_each(&f);
            }
        });
    }

    /// Runs work on the calling thread.
    fn alone(&self, work: impl FnOnce()) {
        let _working = self.begin();
        let start = self.stopwatch.as_ref().map(|stopwatch| stopwatch.now());
        work();
        if let (Some(stopwatch), Some(start)) = (&self.stopwatch, start) {
            stopwatch.worked(0, start);
        }
    }

    /// Lets members take part in `work(member)`, each at most once, until all of it is claimed and done.
    fn region(&self, work: impl Fn(usize) + Sync) {
        match &self.stopwatch {
            None => self.open(&work),
            Some(stopwatch) => self.open(&|member| {
                let start = stopwatch.now();
                work(member);
                stopwatch.worked(member, start);
            }),
        }
    }

    fn open(&self, work: &(dyn Fn(usize) + Sync)) {
        let _working = self.begin();
        let wake = |index: usize| self.workers[index].thread().unpark();
        self.requested.set(self.requested.get() + self.regions.admitted() as u64);
        self.regions.run(work, wake, |sleep| match &self.clock {
            None => sleep(),
            Some(clock) => {
                let start = clock();
                sleep();
                self.slept_ns.set(self.slept_ns.get() + clock().saturating_sub(start));
            }
        });
    }

    /// Runs `f(range)` over `0..items` split into contiguous ranges of whole `unit`s, one per member. With fewer than `least`
    /// items, everything runs on the calling thread, because waking others would cost more than it gains.
    pub fn split(&self, items: usize, unit: usize, least: usize, f: impl Fn(Range<usize>) + Sync) {
        let members = self.size();
        if items < least || members == 1 {
            return self.alone(|| f(0..items));
        }
        self.run(|member| {
            let range = share(items, unit, member, members);
            if !range.is_empty() {
                f(range);
            }
        });
    }
}

/// Participation of a team's members in its regions. The leader is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Participation {
    /// Members that could have taken part, summed over all regions.
    pub requested: u64,
    /// Members that arrived before the work was done, summed over all regions.
    pub joined: u64,
}

impl Participation {
    /// Minimum share of members that arrive in time on a quiet machine, if regions take tens of microseconds or more.
    pub const QUIET: f64 = 0.9;

    /// The share of members that arrived in time, from 0 to 1; `None` if the leader worked alone.
    pub fn share(&self) -> Option<f64> {
        (self.requested > 0).then(|| self.joined as f64 / self.requested as f64)
    }
}

/// How the strips of a linear layer are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// The calling thread computes all of them.
    Alone,
    /// Every member has one range, which one member computes.
    Static,
    /// Every member has one range, in pieces of at least this many items; a member that is done takes pieces of others
    /// (`threads/claims.rs`).
    Stealing {
        /// Number of items.
        least: usize,
    },
}

/// Runs work with a team of `threads` on a separate thread, because the caller's thread may have a changed rounding mode. The
/// outer error means that threads could not be started, the inner one that the work panicked.
pub fn with_team<T: Send>(
    simd: Simd,
    threads: usize,
    work: impl FnOnce(Exec<'_>) -> T + Send,
) -> io::Result<std::thread::Result<T>> {
    let run = || {
        set_default_float_environment();
        Team::new(threads).map(|team| work(Exec { simd, team: &team }))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, run)?;
        thread.join().map_or_else(|panic| Ok(Err(panic)), |done| done.map(Ok))
    })
}

impl Drop for Team {
    fn drop(&mut self) {
        self.regions.end();
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker ends only by `end`; its panics were caught.
            let _ = worker.join();
        }
    }
}

/// A pointer that team members may share to write disjoint elements.
#[derive(Clone, Copy)]
pub struct Disjoint<T>(*mut T);

// SAFETY: users write disjoint elements only, as checked at each use of a `Disjoint`.
unsafe impl<T: Send> Send for Disjoint<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Disjoint<T> {}

impl<T> Disjoint<T> {
    /// The elements of a slice.
    pub fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr())
    }
    /// The elements from an address on.
    pub fn at(first: *mut T) -> Self {
        Self(first)
    }
    /// The address of the first element.
    pub fn get(self) -> *mut T {
        self.0
    }
    /// The same memory with elements of another type.
    pub fn cast<U>(self) -> Disjoint<U> {
        Disjoint(self.0.cast())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn members_of_a_bound_team_have_a_cpu_each() {
        let cpus = usable_cpus().unwrap();
        std::thread::spawn(move || {
            let few = Team::bound(cpus.len() + 1, 1, &cpus).unwrap_err().to_string();
            assert!(few.contains(&format!("there are {} logical CPUs", cpus.len())), "{few}");
            bind_to_cpus(&cpus).unwrap();
            let team = Team::bound(cpus.len(), 1, &cpus).unwrap();
            let allowed = std::sync::Mutex::new(std::collections::BTreeSet::new());
            // A call runs on another member's thread if its own is late, but every thread has one CPU.
            for _ in 0..20 {
                team.run(|_| {
                    allowed.lock().unwrap().insert(usable_cpus().unwrap());
                });
            }
            let allowed = allowed.into_inner().unwrap();
            assert!(allowed.contains(&cpus[..1]), "the leader is bound: {allowed:?}");
            assert!(allowed.iter().all(|one| one.len() == 1 && cpus.contains(&one[0])), "{allowed:?}");
        })
        .join()
        .unwrap();
    }

    /// Number of calls that `team.run` makes for each of `members` members.
    fn calls(team: &Team, members: usize) -> Vec<usize> {
        let calls: Vec<AtomicUsize> = (0..members).map(|_| AtomicUsize::new(0)).collect();
        team.run(|member| {
            calls[member].fetch_add(1, Ordering::Relaxed);
        });
        calls.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_call_is_made_once_even_after_parking() {
        for size in [1usize, 2, 5] {
            let team = Team::new(size).unwrap();
            for round in 0..50u32 {
                assert_eq!(calls(&team, size), vec![1; size], "round {round}");
                if round % 20 == 0 {
                    // Longer than the spin phase: the workers park.
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
            }
        }
    }

    #[test]
    fn a_smaller_team_calls_for_fewer_members() {
        let mut team = Team::new(4).unwrap();
        for (requested, size) in [(4, 4), (2, 2), (1, 1), (3, 3), (9, 4), (0, 1), (4, 4)] {
            team.resize(requested);
            assert_eq!((team.size(), team.members()), (size, 4));
            let expected: Vec<usize> = (0..4).map(|member| usize::from(member < size)).collect();
            for _ in 0..20 {
                assert_eq!(calls(&team, 4), expected, "{requested} requested");
            }
            let covered = AtomicUsize::new(0);
            team.split_strips(1000, 4, Distribution::Stealing { least: 1 }, |piece| {
                covered.fetch_add(piece.len(), Ordering::Relaxed);
            });
            assert_eq!(covered.into_inner(), 1000);
        }
    }

    #[test]
    fn strips_are_covered_once_in_whole_units_however_they_are_shared_out() {
        let all = [
            Distribution::Alone,
            Distribution::Static,
            Distribution::Stealing { least: 1 },
            Distribution::Stealing { least: 7 },
            Distribution::Stealing { least: usize::MAX },
        ];
        for (members, devices) in [(1, 1), (3, 1), (3, 2), (2, 5), (1, 3)] {
            let team = Team::with_devices(members, devices).unwrap();
            for distribution in all {
                for (items, unit) in [(0, 1), (1, 1), (100, 1), (100, 8), (513, 4)] {
                    let counts: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                    team.split_strips(items, unit, distribution, |piece| {
                        let whole = |at: usize| at.is_multiple_of(unit) || at == items;
                        assert!(
                            whole(piece.start) && whole(piece.end),
                            "{piece:?} of {items}, units of {unit}"
                        );
                        piece.for_each(|item| _ = counts[item].fetch_add(1, Ordering::Relaxed));
                    });
                    assert!(
                        counts.into_iter().all(|count| count.into_inner() == 1),
                        "{items} items, {members} members, {devices} devices, {distribution:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn members_that_arrive_in_time_are_counted() {
        let team = Team::new(3).unwrap();
        let entered = AtomicUsize::new(0);
        for _ in 0..10 {
            // Every call waits until all members are inside.
            entered.store(0, Ordering::SeqCst);
            team.run(|_| {
                entered.fetch_add(1, Ordering::SeqCst);
                while entered.load(Ordering::SeqCst) < 3 {
                    std::thread::yield_now();
                }
            });
        }
        let all = team.take_participation();
        assert_eq!((all.requested, all.joined, all.share()), (20, 20, Some(1.0)));
        team.split(1, 1, 8, |_| ());
        let none = team.take_participation();
        assert_eq!((none, none.share()), (Participation::default(), None));
    }

    #[test]
    fn a_team_has_at_least_one_member_and_one_device() {
        let team = Team::with_devices(0, 0).unwrap();
        assert_eq!((team.size(), team.members(), team.devices()), (1, 1, 1));
        assert_eq!(calls(&team, 1), [1]);
    }

    #[test]
    fn other_threads_see_that_a_team_gets_ahead() {
        for members in [1, 2] {
            let mut team = Team::new(members).unwrap();
            let progress = Arc::new(AtomicU64::new(0));
            team.run(|_| ());
            team.set_progress(progress.clone());
            let seen = || progress.load(Ordering::Relaxed);
            team.run(|_| ());
            assert_eq!(seen(), 1, "{members} members");
            team.split(1, 1, 8, |_| assert_eq!(seen(), 2));
        }
    }

    #[test]
    fn the_sleep_of_the_leader_is_summed_until_it_is_read() {
        let mut team = Team::new(2).unwrap();
        let readings = Arc::new(AtomicUsize::new(0));
        let clock = Arc::clone(&readings);
        // Between two readings pass 1000 ns.
        team.set_clock(Arc::new(move || 1000 * clock.fetch_add(1, Ordering::SeqCst) as u64));
        let leader = std::thread::current().id();
        let sleep_once = |team: &Team| {
            let before = readings.load(Ordering::SeqCst);
            let entered = AtomicBool::new(false);
            team.run(|_| {
                if std::thread::current().id() == leader {
                    // Leaves the other part to the worker.
                    while !entered.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    return;
                }
                entered.store(true, Ordering::SeqCst);
                // Holds its part until the leader reads the clock, which it does before it sleeps.
                while readings.load(Ordering::SeqCst) == before {
                    std::thread::yield_now();
                }
            });
        };
        sleep_once(&team);
        sleep_once(&team);
        assert_eq!(team.take_slept_ns(), 2000);
        assert_eq!(team.take_slept_ns(), 0);
        sleep_once(&team);
        assert_eq!(team.take_slept_ns(), 1000);
    }

    #[test]
    fn a_panic_of_work_with_a_team_is_returned() {
        let simd = Simd::variants()[0];
        let size = with_team(simd, 2, |exec| exec.team.size()).unwrap();
        assert_eq!(size.ok(), Some(2));
        let outcome = with_team(simd, 1, |_| -> usize { panic!("on purpose") }).unwrap();
        assert!(outcome.is_err());
    }

    #[test]
    fn a_panicking_member_is_reported_and_the_team_lives_on() {
        let team = Team::new(3).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| team.run(|m| assert!(m != 2, "on purpose"))));
        assert!(outcome.is_err());
        assert_eq!(calls(&team, 3), [1, 1, 1]);
    }

    #[test]
    fn a_panic_of_a_worker_is_reported_once() {
        let team = Team::new(2).unwrap();
        let leader = std::thread::current().id();
        let entered = AtomicBool::new(false);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            team.run(|_| {
                if std::thread::current().id() != leader {
                    entered.store(true, Ordering::SeqCst);
                    panic!("on purpose");
                }
                // Leaves the other part to the worker.
                while !entered.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(calls(&team, 2), [1, 1]);
    }
}
