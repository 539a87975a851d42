//! Work that no member has begun. Every member claims pieces of its own part from the front; a member whose part is empty
//! claims from the back of another's. So no part is delayed by an owner that was descheduled.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Padded, share};

/// Maximum number of pieces in a member's part.
const PIECES: usize = 16;

/// The remaining range of each part: start and end, 32 bits each.
pub(super) struct Claims(Vec<Padded<AtomicU64>>);

/// Takes pieces of one size.
#[derive(Clone, Copy)]
pub(super) struct Pieces<'a> {
    /// One part for each working member.
    parts: &'a [Padded<AtomicU64>],
    /// Number of items in a piece: whole units.
    size: u32,
}

impl Claims {
    pub(super) fn new(members: usize) -> Self {
        Self((0..members).map(|_| Padded(AtomicU64::new(0))).collect())
    }

    /// Divides `0..items` among the first `members` members in whole `unit`s, in pieces of at least `least` items (the last
    /// ones may be cut). No thread may take pieces meanwhile. Returns `None` if there are more items than can be counted.
    pub(super) fn share_out(
        &self,
        members: usize,
        items: usize,
        unit: usize,
        least: usize,
    ) -> Option<Pieces<'_>> {
        let parts = &self.0[..members];
        let size = items.div_ceil(members * PIECES).max(least.min(items)).next_multiple_of(unit);
        let size = u32::try_from(items).and_then(|_| u32::try_from(size)).ok()?;
        for (member, left) in parts.iter().enumerate() {
            let part = share(items, unit, member, members);
            left.0.store(pack(part.start as u32, part.end as u32), Ordering::Relaxed);
        }
        Some(Pieces { parts, size })
    }
}

impl Pieces<'_> {
    /// The next piece for a member; `None` if all parts are empty.
    pub(super) fn next(self, member: usize) -> Option<Range<usize>> {
        let parts = self.parts;
        let own = take(&parts[member].0, |start, end| (start + self.size.min(end - start), end));
        own.or_else(|| {
            let mut others = (1..parts.len()).map(|distance| &parts[(member + distance) % parts.len()].0);
            // Pieces are counted from the front, so that they are whole units.
            let back = |start: u32, end: u32| (start, start + (end - start - 1) / self.size * self.size);
            others.find_map(|part| take(part, back))
        })
    }
}

/// Takes a piece of a non-empty part; `leave` returns the range that is left, all before or all after the piece.
fn take(part: &AtomicU64, leave: impl Fn(u32, u32) -> (u32, u32)) -> Option<Range<usize>> {
    let mut seen = part.load(Ordering::Relaxed);
    loop {
        let (start, end) = unpack(seen);
        if start >= end {
            return None;
        }
        let (first, last) = leave(start, end);
        // The end of the job publishes the results; this only decides who computes them.
        match part.compare_exchange_weak(seen, pack(first, last), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) if first == start => return Some(last as usize..end as usize),
            Ok(_) => return Some(start as usize..first as usize),
            Err(now) => seen = now,
        }
    }
}

fn pack(start: u32, end: u32) -> u64 {
    u64::from(start) << 32 | u64::from(end)
}

fn unpack(part: u64) -> (u32, u32) {
    ((part >> 32) as u32, part as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_takes_everything_in_whole_units() {
        for (items, unit, members) in
            [(0usize, 1usize, 1usize), (1, 4, 2), (100, 4, 3), (513, 1, 2), (33, 16, 8)]
        {
            let claims = Claims::new(members);
            let pieces = claims.share_out(members, items, unit, 1).unwrap();
            let mut taken: Vec<Range<usize>> = std::iter::from_fn(|| pieces.next(members - 1)).collect();
            taken.sort_by_key(|piece| piece.start);
            let covered = taken.iter().fold(0, |end, piece| {
                assert_eq!(piece.start, end, "{items} items, units of {unit}, {members} members");
                assert!(piece.start % unit == 0 && !piece.is_empty());
                piece.end
            });
            assert_eq!(covered, items);
            assert_eq!(pieces.next(0), None);
        }
    }

    #[test]
    fn members_take_their_own_from_the_front_and_of_others_from_the_back() {
        let claims = Claims::new(2);
        let pieces = claims.share_out(2, 64, 1, 1).unwrap();
        assert_eq!(pieces.next(0), Some(0..2));
        assert_eq!(pieces.next(1), Some(32..34));
        for first in (34..64).step_by(2) {
            assert_eq!(pieces.next(1), Some(first..first + 2));
        }
        assert_eq!(pieces.next(1), Some(30..32));
        assert_eq!(pieces.next(0), Some(2..4));
    }

    #[test]
    fn pieces_have_a_least_size() {
        let claims = Claims::new(2);
        for (items, unit, least, sizes) in [
            (64, 1, 5, vec![5, 5, 5, 5, 5, 5, 2]),
            (64, 4, 5, vec![8, 8, 8, 8]),
            (64, 1, usize::MAX, vec![32]),
            (640, 1, 5, vec![20; 16]),
        ] {
            let pieces = claims.share_out(2, items, unit, least).unwrap();
            let own: Vec<usize> = std::iter::from_fn(|| pieces.next(0)).map(|piece| piece.len()).collect();
            assert_eq!(own[..sizes.len()], sizes, "{items} items, units of {unit}, at least {least}");
            assert_eq!(own.iter().sum::<usize>(), items);
        }
    }

    #[test]
    fn more_items_than_can_be_counted_are_not_shared_out() {
        let claims = Claims::new(2);
        assert!(claims.share_out(2, u32::MAX as usize, 1, 1).is_some());
        assert!(claims.share_out(2, u32::MAX as usize + 1, 1, 1).is_none());
    }

    #[test]
    fn threads_take_every_piece_once() {
        let claims = Claims::new(3);
        let pieces = claims.share_out(3, 10_000, 1, 1).unwrap();
        let taken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|member| {
                    scope.spawn(move || std::iter::from_fn(|| pieces.next(member)).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let mut items: Vec<usize> = taken.into_iter().flatten().collect();
        items.sort_unstable();
        assert_eq!(items, (0..10_000).collect::<Vec<_>>());
    }
}
