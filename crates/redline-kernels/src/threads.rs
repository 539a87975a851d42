//! One persistent team of threads: spin, then park.
//!
//! The calling thread is member 0. Small work is shared out for good by [`share`]; the strips of linear layers wait in parts that
//! others help with when they are done (`threads/claims.rs`). By the canonical orders it does not matter who computes an element.

mod claims;
mod stopwatch;

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use redline_simd::{Simd, set_default_float_environment};

use self::claims::Claims;
pub use self::stopwatch::{Clock, Stopwatch, UNLABELLED, Work};
use crate::Exec;

/// Rounds of spinning before a worker parks: some tens of microseconds, longer than any gap inside a forward pass.
const SPINS_BEFORE_PARK: u32 = 20_000;
/// Rounds of spinning before the waiting leader lets others run (matters when threads outnumber cores).
const SPINS_BEFORE_YIELD: u32 = 20_000;

type Job = *const (dyn Fn(usize) + Sync);

#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    generation: Padded<AtomicU64>,
    pending: Padded<AtomicUsize>,
    job: UnsafeCell<Option<Job>>,
    parked: Vec<Padded<AtomicBool>>,
    stop: AtomicBool,
    panicked: AtomicBool,
}

// SAFETY: `job` is written by the leader only while no worker runs (`pending` is 0) and read by workers only after
// they acquired the new generation.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is only followed between the two barriers of `run`, while the closure is alive.
unsafe impl Send for Shared {}

/// A team of `size` threads, the creating thread included. It is used from one thread at a time (not `Sync`).
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    devices: usize,
    /// What waits of the strips of a layer.
    claims: Claims,
    /// Takes down who worked when.
    stopwatch: Option<Arc<Stopwatch>>,
    not_sync: PhantomData<Cell<()>>,
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Team({})", self.size())
    }
}

impl Team {
    /// A team of `size >= 1` members; `size - 1` threads are started.
    pub fn new(size: usize) -> io::Result<Self> {
        Self::with_devices(size, 1)
    }

    /// The same as so many logical devices: each is a group of members, or, where there are more devices than members, several
    /// are one member. A device owns its part of the outputs of every linear layer and of the heads; what comes of it lies
    /// where all devices read it, so gathering is the barrier at the end of [`Team::run`].
    pub fn with_devices(size: usize, devices: usize) -> io::Result<Self> {
        let helpers = size.max(1) - 1;
        let shared = Arc::new(Shared {
            generation: Padded(AtomicU64::new(0)),
            pending: Padded(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            parked: (0..helpers).map(|_| Padded(AtomicBool::new(false))).collect(),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let mut team = Self {
            shared,
            workers: Vec::with_capacity(helpers),
            devices: devices.max(1),
            claims: Claims::new(helpers + 1),
            stopwatch: None,
            not_sync: PhantomData,
        };
        for index in 0..helpers {
            let shared = Arc::clone(&team.shared);
            let worker = std::thread::Builder::new()
                .name(format!("redline-{}", index + 1))
                .spawn(move || work(&shared, index))?;
            team.workers.push(worker);
        }
        Ok(team)
    }

    /// From now on, work is taken down. It costs a branch where there is no stopwatch, two readings of the clock per member and
    /// job where there is one; what is computed does not change.
    pub fn set_stopwatch(&mut self, stopwatch: Arc<Stopwatch>) {
        self.stopwatch = Some(stopwatch);
    }

    /// Members of the team.
    pub fn size(&self) -> usize {
        self.workers.len() + 1
    }

    /// Logical devices of the team.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// Who sits where.
    pub(crate) fn seating(&self) -> Seating {
        Seating { members: self.size(), devices: self.devices }
    }

    /// Runs `f(range)` over `0..items`, the strips of a linear layer, split into contiguous ranges of whole `unit`s. Where there
    /// are several devices, first over those and then over the members of each, for good.
    pub(crate) fn split_strips(
        &self,
        items: usize,
        unit: usize,
        sharing: Sharing,
        f: impl Fn(Range<usize>) + Sync,
    ) {
        if sharing == Sharing::Alone || items < 2 || (self.workers.is_empty() && self.devices == 1) {
            return self.alone(|| f(0..items));
        }
        if sharing == Sharing::Helping
            && self.devices == 1
            && let Some(pieces) = self.claims.share_out(items, unit)
        {
            return self.run(|member| {
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

    /// Calls `f(member)` once for every member, each on its own thread, and returns when all are done.
    pub fn run(&self, f: impl Fn(usize) + Sync) {
        if self.workers.is_empty() {
            return self.alone(|| f(0));
        }
        let job: &(dyn Fn(usize) + Sync) = &f;
        match &self.stopwatch {
            None => self.run_all(job),
            Some(stopwatch) => self.run_all(&|member| {
                let start = stopwatch.now();
                job(member);
                stopwatch.worked(member, start);
            }),
        }
    }

    /// Does work on the calling thread.
    fn alone(&self, work: impl FnOnce()) {
        let start = self.stopwatch.as_ref().map(|stopwatch| stopwatch.now());
        work();
        if let (Some(stopwatch), Some(start)) = (&self.stopwatch, start) {
            stopwatch.worked(0, start);
        }
    }

    /// [`Team::run`] where there are workers.
    fn run_all(&self, f: &(dyn Fn(usize) + Sync)) {
        // SAFETY: erases the lifetime only: this function returns after every worker has finished with `f`.
        let job: Job = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(f) };
        let shared = &*self.shared;
        // SAFETY: no worker runs between two calls of `run`.
        unsafe { *shared.job.get() = Some(job) };
        shared.pending.0.store(self.workers.len(), Ordering::Relaxed);
        shared.generation.0.fetch_add(1, Ordering::SeqCst);
        for (parked, worker) in shared.parked.iter().zip(&self.workers) {
            if parked.0.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        let mine = catch_unwind(AssertUnwindSafe(|| f(0)));
        let mut spins = 0u32;
        while shared.pending.0.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins < SPINS_BEFORE_YIELD { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let worker_panicked = shared.panicked.swap(false, Ordering::Relaxed);
        if let Err(panic) = mine {
            std::panic::resume_unwind(panic);
        }
        assert!(!worker_panicked, "a worker of the team panicked");
    }

    /// Runs `f(range)` over `0..items` split into contiguous ranges of whole `unit`s, one per member. With fewer than
    /// `least` items everything runs on the calling thread: waking others would cost more than it gains.
    pub fn split(&self, items: usize, unit: usize, least: usize, f: impl Fn(Range<usize>) + Sync) {
        if items < least || self.workers.is_empty() {
            return self.alone(|| f(0..items));
        }
        let members = self.size();
        self.run(|member| {
            let range = share(items, unit, member, members);
            if !range.is_empty() {
                f(range);
            }
        });
    }
}

/// Who computes the strips of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// The calling thread.
    Alone,
    /// Every member one range.
    ForGood,
    /// Every member one range in pieces; who is done takes pieces of others ([`Claims`]).
    Helping,
}

/// How members are placed in logical devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seating {
    members: usize,
    devices: usize,
}

impl Seating {
    /// Where a member works: in one device, or in several by itself.
    pub(crate) fn of(self, member: usize) -> impl Iterator<Item = Seat> {
        let Self { members, devices } = self;
        let own = if devices > members {
            share(devices, 1, member, members)
        } else {
            let device = (0..devices).find(|&d| share(members, 1, d, devices).contains(&member)).unwrap_or(0);
            device..device + 1
        };
        own.map(move |device| {
            let group =
                if devices > members { member..member + 1 } else { share(members, 1, device, devices) };
            Seat { device, devices, index: member - group.start, members: group.len() }
        })
    }
}

/// A member's place in a logical device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    device: usize,
    devices: usize,
    /// The member's number in the device.
    pub(crate) index: usize,
    /// Members of the device.
    pub(crate) members: usize,
}

impl Seat {
    /// The part of `0..items` that belongs to its device, in whole units (the last may be cut).
    pub(crate) fn shard(self, items: usize, unit: usize) -> Range<usize> {
        share(items, unit, self.device, self.devices)
    }

    /// The part of its device's that belongs to it.
    fn share(self, items: usize, unit: usize) -> Range<usize> {
        let shard = self.shard(items, unit);
        let own = share(shard.len(), unit, self.index, self.members);
        shard.start + own.start..shard.start + own.end
    }
}

/// Does work with a team of `threads`, on a thread of its own: somebody may have changed how the caller's thread rounds.
/// The outer error: threads could not be started; the inner one: the work panicked.
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
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.generation.0.fetch_add(1, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker only ends by `stop`; its panics were caught.
            let _ = worker.join();
        }
    }
}

fn work(shared: &Shared, index: usize) {
    set_default_float_environment();
    let mut seen = 0u64;
    loop {
        seen = wait_for_next(shared, index, seen);
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the leader wrote `job` before it published the generation that this thread acquired.
        if let Some(job) = unsafe { *shared.job.get() } {
            // SAFETY: the leader keeps the closure alive until `pending` reaches 0.
            let job = unsafe { &*job };
            if catch_unwind(AssertUnwindSafe(|| job(index + 1))).is_err() {
                shared.panicked.store(true, Ordering::Relaxed);
            }
        }
        shared.pending.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until the generation differs from `seen`; returns it.
fn wait_for_next(shared: &Shared, index: usize, seen: u64) -> u64 {
    let mut spins = 0u32;
    loop {
        let now = shared.generation.0.load(Ordering::Acquire);
        if now != seen {
            return now;
        }
        spins += 1;
        if spins < SPINS_BEFORE_PARK {
            std::hint::spin_loop();
            continue;
        }
        let parked = &shared.parked[index].0;
        parked.store(true, Ordering::SeqCst);
        while shared.generation.0.load(Ordering::SeqCst) == seen {
            std::thread::park();
        }
        parked.store(false, Ordering::SeqCst);
    }
}

/// The contiguous part of `0..items` that belongs to `member`, in whole units (the last may be cut).
pub fn share(items: usize, unit: usize, member: usize, members: usize) -> Range<usize> {
    let units = items.div_ceil(unit);
    let cut = |m: usize| (units * m / members * unit).min(items);
    cut(member)..cut(member + 1)
}

/// A pointer that members of a team may share to write disjoint elements.
#[derive(Clone, Copy)]
pub(crate) struct Disjoint<T>(*mut T);

// SAFETY: users write disjoint elements only; that is checked where a `Disjoint` is used.
unsafe impl<T: Send> Send for Disjoint<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Disjoint<T> {}

impl<T> Disjoint<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr())
    }
    pub(crate) fn get(self) -> *mut T {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once_in_order() {
        for items in [0usize, 1, 5, 16, 17, 100] {
            for unit in [1usize, 4, 6] {
                for members in [1usize, 2, 3, 8] {
                    let mut next = 0;
                    for m in 0..members {
                        let r = share(items, unit, m, members);
                        assert_eq!(r.start, next.min(items).max(r.start.min(next)));
                        assert!(r.start % unit == 0 || r.start == items);
                        next = r.end;
                    }
                    assert_eq!(next, items);
                }
            }
        }
    }

    #[test]
    fn devices_share_everything_out_once_in_order() {
        for members in 1usize..=9 {
            for devices in 1usize..=8 {
                let seating = Seating { members, devices };
                for (items, unit) in [(1usize, 1usize), (7, 1), (100, 4), (33, 16)] {
                    let mut ranges: Vec<_> =
                        (0..members).flat_map(|m| seating.of(m)).map(|s| s.share(items, unit)).collect();
                    ranges.retain(|range| !range.is_empty());
                    ranges.sort_by_key(|range| range.start);
                    let covered = ranges.iter().fold(0, |end, range| {
                        assert_eq!(range.start, end, "{members} members, {devices} devices, {items} items");
                        range.end
                    });
                    assert_eq!(covered, items);
                }
                let seats: Vec<Seat> = (0..members).flat_map(|m| seating.of(m)).collect();
                let of = |device| seats.iter().filter(|seat| seat.device == device).count();
                assert!((0..devices).all(|device| of(device) >= 1), "a device without a member");
                assert!(
                    seats.iter().all(|seat| seat.members == of(seat.device) && seat.index < seat.members)
                );
            }
        }
    }

    #[test]
    fn every_member_runs_once_per_call_even_after_parking() {
        for size in [1usize, 2, 5] {
            let team = Team::new(size).unwrap();
            for round in 0..50u32 {
                let hits: Vec<AtomicUsize> = (0..size).map(|_| AtomicUsize::new(0)).collect();
                team.run(|m| {
                    hits[m].fetch_add(1, Ordering::Relaxed);
                });
                assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "round {round}");
                if round % 20 == 0 {
                    // Longer than the spin phase: the workers park.
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
            }
        }
    }

    #[test]
    fn a_panicking_member_is_reported_and_the_team_lives_on() {
        let team = Team::new(3).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| team.run(|m| assert!(m != 2, "on purpose"))));
        assert!(outcome.is_err());
        let count = AtomicUsize::new(0);
        team.run(|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
