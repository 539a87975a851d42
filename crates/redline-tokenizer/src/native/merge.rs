//! Byte-pair merges: of all adjacent pairs, the one learned first is joined, the leftmost if there are several, until no
//! pair can be joined (Sennrich et al. 2016, <https://arxiv.org/abs/1508.07909>).

use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Words of up to this many symbols are searched for the best pair again after each merge; longer words use a queue.
const SHORT: usize = 32;
const NONE: u32 = u32::MAX;

/// Hash table from a pair of symbols to its merge.
pub(super) struct Merges {
    slots: Box<[Slot]>,
    /// 64 minus the binary logarithm of the number of slots.
    shift: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    pair: u64,
    to: Joined,
}

/// The result of a merge and its rank.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Joined {
    rank: u32,
    id: u32,
}

const NOTHING: Joined = Joined { rank: NONE, id: NONE };
/// An empty slot: ids are below 2^24, so no pair has this value.
const FREE: Slot = Slot { pair: u64::MAX, to: NOTHING };

impl Merges {
    /// Builds the table from left part, right part and result of each merge, best first. For a duplicate pair the
    /// last entry counts.
    pub(super) fn new(merges: &[[u32; 3]]) -> Self {
        let bits = (2 * merges.len()).next_power_of_two().trailing_zeros().max(1);
        let mut table = Self { slots: vec![FREE; 1 << bits].into_boxed_slice(), shift: 64 - bits };
        for (rank, [left, right, id]) in (0..).zip(merges) {
            let pair = pair(*left, *right);
            let at = table.place(pair);
            table.slots[at] = Slot { pair, to: Joined { rank, id: *id } };
        }
        table
    }

    /// The slot of a pair, or the free slot where it would be inserted.
    #[inline]
    fn place(&self, pair: u64) -> usize {
        let mixed = u128::from(pair ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        let mut at = ((mixed as u64 ^ (mixed >> 64) as u64) >> self.shift) as usize;
        while self.slots[at].pair != pair && self.slots[at].pair != FREE.pair {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    #[inline]
    fn joined(&self, left: u32, right: u32) -> Joined {
        self.slots[self.place(pair(left, right))].to
    }

    /// Merges the symbols of a word in place.
    pub(super) fn apply(&self, symbols: &mut Vec<u32>, queue: &mut Queue) {
        match symbols.len() {
            0 | 1 => {}
            2..=SHORT => self.apply_short(symbols),
            _ => self.apply_long(symbols, queue),
        }
    }

    fn apply_short(&self, symbols: &mut Vec<u32>) {
        let mut to = [NOTHING; SHORT];
        for (to, pair) in to.iter_mut().zip(symbols.windows(2)) {
            *to = self.joined(pair[0], pair[1]);
        }
        loop {
            let pairs = symbols.len() - 1;
            let mut best = 0;
            for i in 1..pairs {
                if to[i].rank < to[best].rank {
                    best = i;
                }
            }
            if pairs == 0 || to[best] == NOTHING {
                return;
            }
            symbols[best] = to[best].id;
            symbols.remove(best + 1);
            to.copy_within(best + 1..pairs, best);
            if best > 0 {
                to[best - 1] = self.joined(symbols[best - 1], symbols[best]);
            }
            if let Some(&next) = symbols.get(best + 1) {
                to[best] = self.joined(symbols[best], next);
            }
        }
    }

    fn apply_long(&self, symbols: &mut Vec<u32>, queue: &mut Queue) {
        queue.start(symbols.len());
        for (at, pair) in (0..).zip(symbols.windows(2)) {
            queue.push(self.joined(pair[0], pair[1]), at);
        }
        while let Some((rank, at)) = queue.pop() {
            // Skip a position whose symbol or neighbour was joined in the meantime.
            let next = queue.next[at as usize];
            if symbols[at as usize] == NONE || next == NONE {
                continue;
            }
            let to = self.joined(symbols[at as usize], symbols[next as usize]);
            if to.rank != rank {
                continue;
            }
            symbols[at as usize] = to.id;
            symbols[next as usize] = NONE;
            let after = queue.unlink(at, next);
            if after != NONE {
                queue.push(self.joined(to.id, symbols[after as usize]), at);
            }
            let before = queue.before[at as usize];
            if before != NONE {
                queue.push(self.joined(symbols[before as usize], to.id), before);
            }
        }
        symbols.retain(|&symbol| symbol != NONE);
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// The pairs of a long word, best first.
///
/// A heap holds the ranks, and a list holds the positions of each rank. The list fills from left to right with few
/// exceptions, so a long run of equal pairs takes linear time; a heap of pairs would take longer.
#[derive(Default)]
pub(super) struct Queue {
    /// The neighbours of each remaining symbol.
    before: Vec<u32>,
    next: Vec<u32>,
    /// Ranks that have positions.
    ranks: BinaryHeap<Reverse<u32>>,
    /// The index in `places` of each rank.
    lists: HashMap<u32, usize>,
    places: Vec<Places>,
    free: Vec<usize>,
}

/// The positions of one rank.
#[derive(Default)]
struct Places {
    /// Positions from `taken` on remain. They are sorted when the first is taken.
    list: Vec<u32>,
    taken: usize,
    /// Positions that were added after that.
    late: BinaryHeap<Reverse<u32>>,
}

impl Queue {
    fn start(&mut self, len: usize) {
        let len = len as u32;
        self.before.clear();
        self.before.extend((0..len).map(|at| at.wrapping_sub(1)));
        self.next.clear();
        self.next.extend((1..len).chain([NONE]));
    }

    /// The memory used by buffers that grow with a word.
    pub(super) fn bytes(&self) -> usize {
        let places = self.places.iter().map(|places| places.list.capacity() + places.late.capacity());
        4 * (self.before.capacity() + self.next.capacity() + places.sum::<usize>())
    }

    /// Removes a symbol and returns the next one.
    fn unlink(&mut self, at: u32, gone: u32) -> u32 {
        let after = self.next[gone as usize];
        self.next[at as usize] = after;
        if after != NONE {
            self.before[after as usize] = at;
        }
        after
    }

    #[inline]
    fn push(&mut self, to: Joined, at: u32) {
        if to == NOTHING {
            return;
        }
        let list = *self.lists.entry(to.rank).or_insert_with(|| {
            self.ranks.push(Reverse(to.rank));
            self.free.pop().unwrap_or_else(|| {
                self.places.push(Places::default());
                self.places.len() - 1
            })
        });
        let places = &mut self.places[list];
        if places.taken == 0 { places.list.push(at) } else { places.late.push(Reverse(at)) }
    }

    fn pop(&mut self) -> Option<(u32, u32)> {
        loop {
            let Reverse(rank) = *self.ranks.peek()?;
            let list = *self.lists.get(&rank)?;
            if let Some(at) = self.places[list].pop() {
                return Some((rank, at));
            }
            self.ranks.pop();
            self.lists.remove(&rank);
            self.free.push(list);
        }
    }
}

impl Places {
    /// Removes the leftmost position. An emptied list can be reused for another rank.
    fn pop(&mut self) -> Option<u32> {
        if self.taken == 0 {
            self.list.sort_unstable();
        }
        let first = self.list.get(self.taken).copied();
        let late = self.late.peek().map(|Reverse(at)| *at);
        match (first, late) {
            (first, Some(late)) if first.is_none_or(|first| late < first) => {
                self.late.pop();
                Some(late)
            }
            (Some(first), _) => {
                self.taken += 1;
                Some(first)
            }
            _ => {
                self.list.clear();
                self.taken = 0;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: the leftmost pair of the best rank is joined, until there is none.
    fn joined_one_by_one(merges: &[[u32; 3]], mut symbols: Vec<u32>) -> Vec<u32> {
        loop {
            let pairs = symbols.windows(2).enumerate();
            let ranked = pairs.filter_map(|(at, pair)| {
                let rank = merges.iter().position(|merge| merge[..2] == *pair)?;
                Some((rank, at))
            });
            let Some((rank, at)) = ranked.min() else { return symbols };
            symbols.splice(at..at + 2, [merges[rank][2]]);
        }
    }

    fn below(state: &mut u64, n: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % n
    }

    /// Ranks in any order: a merge may lead to a pair of a better rank, and that to one of the rank whose positions are being
    /// taken.
    #[test]
    fn words_of_every_length_are_joined_as_defined() {
        let mut state = 5;
        let mut queue = Queue::default();
        for _ in 0..3000 {
            let mut merges: Vec<[u32; 3]> = Vec::new();
            for id in 3..12 {
                let mut part = || below(&mut state, u64::from(id)) as u32;
                let (left, right) = (part(), part());
                if !merges.iter().any(|merge| merge[..2] == [left, right]) {
                    merges.insert(below(&mut state, merges.len() as u64 + 1) as usize, [left, right, id]);
                }
            }
            let table = Merges::new(&merges);
            let length = below(&mut state, 90) as usize;
            let word: Vec<u32> = (0..length).map(|_| below(&mut state, 3) as u32).collect();
            let mut symbols = word.clone();
            table.apply(&mut symbols, &mut queue);
            assert_eq!(symbols, joined_one_by_one(&merges, word), "{merges:?}");
        }
    }

    /// A queue is kept between words, so its memory must not grow with their number.
    #[test]
    fn lists_of_positions_are_used_again() {
        let table = Merges::new(&[[0, 0, 1], [1, 1, 2], [2, 2, 3], [3, 3, 4], [4, 4, 5], [5, 5, 6]]);
        let mut queue = Queue::default();
        let mut join = || {
            let mut symbols = vec![0; 64];
            table.apply(&mut symbols, &mut queue);
            assert_eq!(symbols, [6]);
            queue.places.len()
        };
        let lists = join();
        assert!(lists < 6, "{lists} lists for six ranks");
        assert!((0..20).all(|_| join() == lists));
    }
}
