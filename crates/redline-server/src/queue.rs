//! Who has the places of the queue, and when a refused request may come again.

use std::collections::{BTreeMap, VecDeque};

/// Longest and shortest advice of when to come again, in seconds.
const RETRY: std::ops::RangeInclusive<f64> = 1.0..=60.0;
/// Number of requests whose times are remembered.
const REMEMBERED: usize = 64;

/// How many places each key has, and how long the last requests had theirs.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) by_key: BTreeMap<String, usize>,
    /// Seconds, the latest last.
    times: VecDeque<f64>,
}

impl Queue {
    /// When a refused request may come again, in seconds: the median of the times for which the last requests had their places, the time
    /// in the queue included. About that long, a full queue takes to be full of other requests.
    pub(crate) fn retry_after(&self) -> u32 {
        let mut times: Vec<f64> = self.times.iter().copied().collect();
        times.sort_unstable_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
        median.ceil().clamp(*RETRY.start(), *RETRY.end()) as u32
    }

    pub(crate) fn remember(&mut self, seconds: f64) {
        if self.times.len() == REMEMBERED {
            self.times.pop_front();
        }
        self.times.push_back(seconds);
    }
}

/// How many of `all` places a key may have at most, among `keys` keys, if all others are free.
pub(crate) fn most_of_key(all: usize, keys: usize) -> usize {
    if keys <= 1 { all } else { (all / keys).max(all - all.div_ceil(4)) }
}

/// Whether a key that has `own` places may take `more` of the `free` ones of `all`, among `keys` keys. Up to an equal share, it may take
/// any. Beyond that, it leaves a quarter of all places to the others.
pub(crate) fn may_take(own: usize, more: usize, free: usize, all: usize, keys: usize) -> bool {
    let left = free.saturating_sub(more);
    more <= free && (keys <= 1 || own + more <= all / keys || left >= all.div_ceil(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_request_comes_again_when_about_as_many_were_answered() {
        let mut queue = Queue::default();
        let after = |queue: &mut Queue, times: &[f64]| {
            for &seconds in times {
                queue.remember(seconds);
            }
            queue.retry_after()
        };
        assert_eq!(after(&mut queue, &[]), 1);
        assert_eq!(after(&mut queue, &[0.01]), 1);
        assert_eq!(after(&mut queue, &[7.2, 7.4]), 8);
        assert_eq!(after(&mut queue, &[1e9; REMEMBERED]), 60);
        assert_eq!((after(&mut queue, &[2.0; REMEMBERED]), queue.times.len()), (2, REMEMBERED));
    }

    #[test]
    fn a_key_takes_all_places_only_if_it_is_the_only_one() {
        assert!(may_take(0, 8, 8, 8, 1) && may_take(7, 1, 1, 8, 0) && !may_take(0, 9, 8, 8, 1));
        // Two keys: an equal share is four places, and two are left to others beyond it.
        assert!(may_take(0, 4, 4, 8, 2) && may_take(3, 1, 1, 8, 2));
        assert!(may_take(4, 2, 4, 8, 2) && !may_take(4, 3, 4, 8, 2) && !may_take(6, 1, 2, 8, 2));
        assert!(!may_take(0, 5, 4, 8, 2));
        for (all, keys) in [(8, 2), (8, 3), (256, 2), (1, 2), (5, 1), (7, 100)] {
            let most = most_of_key(all, keys);
            assert!(most == 0 || may_take(0, most, all, all, keys), "{all} {keys}");
            assert!(!may_take(0, most + 1, all, all, keys), "{all} {keys}");
        }
        // However few places there are, a key within its share finds the free ones.
        assert!(may_take(0, 1, 1, 2, 2) && !may_take(1, 1, 1, 2, 2));
    }
}
