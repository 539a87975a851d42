//! Records what each team member worked on, and when, for profiles. The only clock is the one passed in.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Nanoseconds since a fixed moment; never goes back.
pub type ClockFn = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Work with this label is not recorded.
pub const UNLABELLED: u32 = u32::MAX;

/// A work item: what one member worked on without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkSpan {
    /// The label set by the leader.
    pub label: u32,
    /// Start time.
    pub start: u64,
    /// End time.
    pub end: u64,
}

/// Records what team members work on, in memory that is reserved beforehand.
///
/// The leader sets the label and clears the tracks, both between two jobs of the team; each member writes only its own track.
pub struct Stopwatch {
    clock: ClockFn,
    label: AtomicU32,
    tracks: Vec<Track>,
}

/// The work items of one member, in separate cache lines.
#[repr(align(128))]
struct Track {
    slots: Vec<Slot>,
    used: AtomicUsize,
    dropped: AtomicU64,
}

struct Slot {
    label: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stopwatch({})", self.tracks.len())
    }
}

impl Stopwatch {
    /// Creates a stopwatch for `members` members, with room for `room` work items each.
    pub fn new(clock: ClockFn, members: usize, room: usize) -> Self {
        let slot = || Slot { label: AtomicU32::new(0), start: AtomicU64::new(0), end: AtomicU64::new(0) };
        let track = || Track {
            slots: (0..room).map(|_| slot()).collect(),
            used: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
        };
        Self { clock, label: AtomicU32::new(UNLABELLED), tracks: (0..members).map(|_| track()).collect() }
    }

    /// The time.
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Number of members.
    pub fn members(&self) -> usize {
        self.tracks.len()
    }

    /// Sets the label of all later work.
    pub fn set_label(&self, label: u32) {
        self.label.store(label, Ordering::Relaxed);
    }

    /// Records that a member worked from `start` until now. Called by that member only, within a job.
    pub(super) fn worked(&self, member: usize, start: u64) {
        let label = self.label.load(Ordering::Relaxed);
        let Some(track) = self.tracks.get(member).filter(|_| label != UNLABELLED) else { return };
        let used = track.used.load(Ordering::Relaxed);
        let Some(slot) = track.slots.get(used) else {
            track.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        slot.label.store(label, Ordering::Relaxed);
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(self.now(), Ordering::Relaxed);
        track.used.store(used + 1, Ordering::Relaxed);
    }

    /// The work items of a member since its track was cleared, in order. Complete only between jobs: the barrier at the end of
    /// a job publishes what members wrote.
    pub fn works(&self, member: usize) -> impl Iterator<Item = WorkSpan> {
        let track = self.tracks.get(member);
        let slots = track.map_or(&[][..], |track| &track.slots[..track.used.load(Ordering::Relaxed)]);
        slots.iter().map(|slot| WorkSpan {
            label: slot.label.load(Ordering::Relaxed),
            start: slot.start.load(Ordering::Relaxed),
            end: slot.end.load(Ordering::Relaxed),
        })
    }

    /// Number of work items of all members that found no room since their tracks were cleared.
    pub fn dropped(&self) -> u64 {
        self.tracks.iter().map(|track| track.dropped.load(Ordering::Relaxed)).sum()
    }

    /// Clears the tracks. Called by the leader, between jobs.
    pub fn clear(&self) {
        for track in &self.tracks {
            track.used.store(0, Ordering::Relaxed);
            track.dropped.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Team;

    /// A clock that returns 0, 1, 2, ... on successive readings.
    fn counting() -> ClockFn {
        let next = AtomicU64::new(0);
        Arc::new(move || next.fetch_add(1, Ordering::Relaxed))
    }

    /// Lets every member of the team take part: the leader leaves the region only after all have entered.
    fn run_all(team: &Team) {
        let (size, entered) = (team.size(), AtomicUsize::new(0));
        team.run(|_| {
            entered.fetch_add(1, Ordering::SeqCst);
            while entered.load(Ordering::SeqCst) < size {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn members_that_take_part_record_every_job_that_has_a_label() {
        for size in [1usize, 3] {
            let mut team = Team::new(size).unwrap();
            let watch = Arc::new(Stopwatch::new(counting(), size, 8));
            team.set_stopwatch(watch.clone());
            run_all(&team);
            assert!((0..size).all(|member| watch.works(member).count() == 0), "before there is a label");
            for label in [4, 7] {
                watch.set_label(label);
                run_all(&team);
            }
            // Too little to wake others: on the calling thread.
            team.split(3, 1, 100, |_| ());
            for member in 0..size {
                let works: Vec<WorkSpan> = watch.works(member).collect();
                let labels: Vec<u32> = works.iter().map(|work| work.label).collect();
                assert_eq!(labels, if member == 0 { vec![4, 7, 7] } else { vec![4, 7] }, "member {member}");
                assert!(works.iter().all(|work| work.start < work.end), "{works:?}");
                assert!(works.windows(2).all(|pair| pair[0].end <= pair[1].start), "{works:?}");
            }
            watch.clear();
            assert!((0..size).all(|member| watch.works(member).count() == 0));
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut team = Team::new(2).unwrap();
        let watch = Arc::new(Stopwatch::new(counting(), 2, 3));
        team.set_stopwatch(watch.clone());
        watch.set_label(1);
        for _ in 0..5 {
            run_all(&team);
        }
        assert_eq!((watch.works(0).count(), watch.works(1).count(), watch.dropped()), (3, 3, 4));
        watch.clear();
        run_all(&team);
        assert_eq!((watch.works(1).count(), watch.dropped()), (1, 0));
    }
}
