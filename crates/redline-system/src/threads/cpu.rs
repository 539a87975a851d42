//! Logical CPUs: on which one a thread runs, how to move it to another, and how to bind it.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// The logical CPU that a thread was last seen on.
pub(super) struct Place(AtomicU32);

/// No CPU has this number; it also stands for an unknown CPU.
const UNKNOWN: u32 = u32::MAX;

impl Default for Place {
    /// Not seen yet.
    fn default() -> Self {
        Self(AtomicU32::new(UNKNOWN))
    }
}

impl Place {
    /// Records that the calling thread, which owns this place, is on `cpu`. Other threads read this, so it is written only on
    /// change.
    pub(super) fn set(&self, cpu: u32) {
        if self.get() != cpu {
            self.0.store(cpu, Ordering::Relaxed);
        }
    }

    /// The logical CPU, or a number that no CPU has.
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether the thread was last seen on `cpu`.
    pub(super) fn is(&self, cpu: u32) -> bool {
        cpu != UNKNOWN && self.get() == cpu
    }
}

/// The logical CPU of the calling thread. The thread may have moved by the time the caller uses the number.
#[cfg(target_os = "linux")]
pub(super) fn current() -> u32 {
    // SAFETY: the call has no arguments and touches no memory of ours.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(UNKNOWN)
}

/// Moves the calling thread to a logical CPU that is not among `taken`. The set of CPUs it may use does not change. Returns
/// `false` if there is none, or the system does not move it.
#[cfg(target_os = "linux")]
pub(super) fn move_off(taken: impl Iterator<Item = u32>) -> bool {
    const SIZE: usize = size_of::<libc::cpu_set_t>();
    // SAFETY: a set of CPUs is plain bits.
    let mut usable: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable and of the size that is given; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, SIZE, &raw mut usable) } != 0 {
        return false;
    }
    let mut free = usable;
    for cpu in taken.filter(|&cpu| cpu < libc::CPU_SETSIZE as u32) {
        // SAFETY: the number is less than the set's size.
        unsafe { libc::CPU_CLR(cpu as usize, &mut free) };
    }
    // SAFETY: the set is readable and of the size that is given. An empty one is refused.
    let moved = unsafe { libc::sched_setaffinity(0, SIZE, &raw const free) } == 0;
    if moved {
        // SAFETY: as above.
        unsafe { libc::sched_setaffinity(0, SIZE, &raw const usable) };
    }
    moved
}

/// The logical CPUs that the calling thread may use, in ascending order.
///
/// # Errors
/// The system does not tell; only Linux does.
#[cfg(target_os = "linux")]
pub fn usable_cpus() -> io::Result<Vec<u32>> {
    // SAFETY: a set of CPUs is plain bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable and of the size that is given; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every number is less than the set's size.
    let usable = |&cpu: &u32| unsafe { libc::CPU_ISSET(cpu as usize, &set) };
    Ok((0..libc::CPU_SETSIZE as u32).filter(usable).collect())
}

/// Binds the calling thread, and the threads that it starts from now on, to these logical CPUs.
///
/// # Errors
/// The thread may use none of them, or the system does not bind threads; only Linux does.
#[cfg(target_os = "linux")]
pub fn bind_to_cpus(cpus: &[u32]) -> io::Result<()> {
    // SAFETY: a set of CPUs is plain bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as u32) {
        // SAFETY: the number is less than the set's size.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: the set is readable and of the size that is given; 0 is the calling thread.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The logical CPUs that the calling thread may use: not known on this system.
#[cfg(not(target_os = "linux"))]
pub fn usable_cpus() -> io::Result<Vec<u32>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system binds no thread to a CPU"))
}

/// Binds the calling thread to logical CPUs: not possible on this system.
#[cfg(not(target_os = "linux"))]
pub fn bind_to_cpus(_cpus: &[u32]) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system binds no thread to a CPU"))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn current() -> u32 {
    UNKNOWN
}

#[cfg(not(target_os = "linux"))]
pub(super) fn move_off(_taken: impl Iterator<Item = u32>) -> bool {
    false
}

#[cfg(test)]
#[cfg(target_os = "linux")]
pub(super) mod tests {
    use super::*;

    fn usable() -> Vec<u32> {
        usable_cpus().unwrap()
    }

    /// Lets the calling thread, and those that it starts, use one logical CPU only.
    pub(in super::super) fn use_one() {
        let first = usable()[0];
        bind_to_cpus(&[first]).unwrap();
        assert_eq!(usable(), [first]);
    }

    #[test]
    fn a_thread_moves_to_a_place_that_is_not_taken_and_may_use_the_same_ones() {
        let before = usable();
        for &free in &before {
            // Nothing pins it there, so on a busy machine it may be elsewhere by the time it checks.
            let arrived = (0..1000).any(|_| {
                move_off(before.iter().copied().filter(|&cpu| cpu != free));
                current() == free
            });
            assert!(arrived, "to {free}");
            assert_eq!(usable(), before);
        }
        assert!(!move_off(before.iter().copied()));
        assert_eq!(usable(), before);
    }

    #[test]
    fn a_thread_with_one_place_stays() {
        std::thread::spawn(|| {
            use_one();
            let here = current();
            assert!(!move_off([here, UNKNOWN].into_iter()));
            assert_eq!(current(), here);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_is_bound_to_some_that_it_may_use() {
        let all = usable();
        std::thread::spawn(move || {
            for &cpu in &all {
                bind_to_cpus(&[cpu]).unwrap();
                assert_eq!((usable(), current()), (vec![cpu], cpu));
                let of_child = std::thread::spawn(usable).join().unwrap();
                assert_eq!(of_child, [cpu], "threads that it starts are bound too");
            }
            bind_to_cpus(&all).unwrap();
            assert_eq!(usable(), all);
            assert!(bind_to_cpus(&[]).is_err() && bind_to_cpus(&[UNKNOWN]).is_err());
            assert_eq!(usable(), all, "a refusal changes nothing");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn places_are_compared() {
        let place = Place::default();
        assert!(!place.is(UNKNOWN) && !place.is(0));
        place.set(3);
        assert!(place.is(3) && !place.is(4));
        place.set(UNKNOWN);
        assert!(!place.is(UNKNOWN) && !place.is(3));
    }
}
