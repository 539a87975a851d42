//! Decides what runs next: a pure step over the open sequences, the room for their keys and values, and the cost of passes.
//!
//! Nothing here reads a clock, starts a thread or runs a model, so the simulator runs the same code as the engine. A pass takes
//!
//! 1. the next token of every sequence that generates,
//! 2. then prompts, in pieces, from the least served request first, as long as the pass stays within its rows and,
//!    while any request generates, within its time.
//!
//! What happens when pages run out is in [`room`].

mod cost;
mod room;
mod sequence;

use std::collections::{BTreeMap, BTreeSet};

use redline_models::kv::{KvError, PageStore, SeqId};

pub(crate) use self::cost::{CostModel, Work};
use self::sequence::Sequence;
pub(crate) use self::sequence::{Drawing, Key, Next, Opening, Origin, Piece};
use crate::cache::Cache;

/// Tokens of a prompt that a pass runs in any case.
const LEAST_PIECE: usize = 16;
/// Maximum number of a request's sequences that wait for room, beyond the number that may be open.
const WAITING: usize = 64;
/// Requests take turns after this many tokens each; within a turn, first come, first served.
const TURN_TOKENS: f64 = 1024.0;
/// Share of the time of a pass without prompts that prompts may add to it, unless an option sets the time.
const STALL: f64 = 0.8;

/// Limits of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassLimits {
    /// Maximum number of tokens.
    pub(crate) rows: usize,
    /// Maximum number of open sequences, not counting held ones, which requests limit themselves.
    pub(crate) open: usize,
    /// Seconds that prompts may add to a pass while any request generates; `None`: most of its time without them.
    pub(crate) stall_s: Option<f64>,
}

/// A request's share of the machine.
#[derive(Debug)]
struct Flow {
    salt: String,
    /// Virtual time at the request's arrival.
    start: f64,
    /// Number of tokens run for the request.
    served: usize,
    /// The ranks of the request's sequences so far.
    ranks: Vec<u32>,
}

impl Flow {
    fn turn(&self) -> u64 {
        ((self.start + self.served as f64) / TURN_TOKENS) as u64
    }
}

/// A sequence that has been run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) index: u32,
    /// Number of tokens that were stored already when it was first admitted.
    pub(crate) began: usize,
    /// Where these tokens came from.
    pub(crate) origin: Origin,
}

/// A request that can never continue, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) task: u64,
    pub(crate) error: Option<KvError>,
}

/// Source of the sequences that requests have not opened yet.
pub(crate) trait Openings {
    /// The rank of a request's next sequence, if it may be lower than the rank of an open one.
    fn next_rank(&self, task: u64) -> Option<u32>;

    /// Opens a request's next sequence, if there is one yet.
    fn open(&mut self, task: u64) -> Option<Opening>;
}

/// A pass under construction.
#[derive(Debug, Default)]
struct Pass {
    pieces: BTreeMap<Key, Piece>,
    /// Sequences that need not be run, because all their tokens are stored.
    stored: BTreeSet<Key>,
    work: Work,
    /// Whether the pieces include prompts.
    prompts: bool,
    /// Time limit of the pass in seconds.
    limit: Option<f64>,
}

impl Pass {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.stored.is_empty()
    }
}

/// The scheduler's decision.
#[derive(Debug)]
pub(crate) struct Step {
    /// The pieces to run.
    pub(crate) pieces: Vec<Piece>,
    /// Sequences that reached their end without being run, by request.
    pub(crate) stored: Vec<(u64, Vec<Done>)>,
}

/// Result of adding a sequence to a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Added {
    /// A piece of the sequence runs.
    Piece,
    /// All of its tokens were stored elsewhere.
    Stored,
    /// The sequence waits for tokens that another one is about to store, or for a pass with more time.
    Waits,
    /// There is no room for its keys and values.
    NoRoom,
}

impl Added {
    fn goes_on(self) -> bool {
        matches!(self, Self::Piece | Self::Stored)
    }
}

/// The open sequences of all requests, and the state for choosing the next pass.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: PassLimits,
    sequences: BTreeMap<Key, Sequence>,
    flows: BTreeMap<u64, Flow>,
    cost: CostModel,
    /// Tokens that each request would have been served if all had got equal shares since the beginning.
    virtual_time: f64,
    /// The error of the last sequence that got no room.
    refusal: Option<KvError>,
    /// The earliest sequence that waits for room. No later one is admitted meanwhile, or it might wait forever.
    waiting: Option<Key>,
    /// The first generating sequence for which the previous pass had no row.
    left_out: Option<Key>,
    preemptions: u64,
}

impl Scheduler {
    pub(crate) fn new(limits: PassLimits, cost: CostModel) -> Self {
        Self {
            limits,
            sequences: BTreeMap::new(),
            flows: BTreeMap::new(),
            cost,
            virtual_time: 0.0,
            refusal: None,
            waiting: None,
            left_out: None,
            preemptions: 0,
        }
    }

    /// Maximum number of tokens in a pass.
    pub(crate) fn rows(&self) -> usize {
        self.limits.rows
    }

    /// Number of preemptions so far.
    pub(crate) fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Admits a request. Numbers must ascend.
    pub(crate) fn arrive(&mut self, task: u64, salt: String) {
        let flow = Flow { salt, start: self.virtual_time, served: 0, ranks: Vec::new() };
        self.flows.insert(task, flow);
    }

    /// Forgets a request and releases what it holds.
    pub(crate) fn leave<P: PageStore>(&mut self, task: u64, cache: &mut Cache<P>) {
        self.flows.remove(&task);
        for key in self.keys(task) {
            self.end(key, cache);
        }
    }

    fn keys(&self, task: u64) -> Vec<Key> {
        let end = Key { task, rank: u32::MAX, index: u32::MAX };
        self.sequences.range(Key { task, rank: 0, index: 0 }..=end).map(|(&key, _)| key).collect()
    }

    /// The key of a request's sequence.
    fn key(&self, task: u64, index: u32) -> Option<Key> {
        let rank = *self.flows.get(&task)?.ranks.get(index as usize)?;
        Some(Key { task, rank, index })
    }

    fn end<P: PageStore>(&mut self, key: Key, cache: &mut Cache<P>) {
        self.waiting = self.waiting.filter(|waiting| *waiting != key);
        if let Some(kv) = self.sequences.remove(&key).and_then(|sequence| sequence.kv) {
            cache.kv.release(kv);
        }
    }

    /// The next step.
    pub(crate) fn next<P: PageStore>(
        &mut self,
        cache: &mut Cache<P>,
        openings: &mut dyn Openings,
    ) -> Result<Step, Stuck> {
        let mut pass = Pass::default();
        self.refusal = None;
        let rows = self.rows_of_generating(cache);
        self.continue_generating(cache, &mut pass, rows);
        if pass.pieces.is_empty() {
            self.add_prompts(cache, &mut pass, openings);
        } else if let Some(quiet) = self.cost.quiet_seconds(pass.work.rows) {
            pass.limit = Some(quiet + self.limits.stall_s.unwrap_or(quiet * STALL));
            self.add_prompts(cache, &mut pass, openings);
        }
        // If no prompt was added, the pass takes the remaining generating sequences too, and measures the time without prompts.
        if self.left_out.is_some() {
            self.continue_generating(cache, &mut pass, self.limits.rows);
        }
        if pass.is_empty() {
            self.make_way(cache, &mut pass, openings);
        }
        if pass.is_empty()
            && let Some(&task) = self.flows.keys().next()
        {
            return Err(Stuck { task, error: self.refusal });
        }
        let stored = pass.stored.into_iter().map(|key| (key.task, vec![self.end_of(key)])).collect();
        Ok(Step { pieces: pass.pieces.into_values().collect(), stored })
    }

    /// Adds the next token of every sequence that generates.
    fn continue_generating<P: PageStore>(&mut self, cache: &mut Cache<P>, pass: &mut Pass, rows: usize) {
        let ready = |(_, s): &(&Key, &Sequence)| s.is_ready(&cache.kv);
        let mut keys: Vec<Key> = self.sequences.iter().filter(ready).map(|(&key, _)| key).collect();
        // If they do not all fit, those that were left out come first next time.
        if let Some(first) = self.left_out.take() {
            let at = keys.partition_point(|key| *key < first);
            keys.rotate_left(at);
        }
        for key in keys {
            if pass.work.rows >= rows {
                self.left_out.get_or_insert(key);
                return;
            }
            // The sequence may have been preempted meanwhile.
            let sequence = &self.sequences[&key];
            if sequence.kv.is_some()
                && !pass.pieces.contains_key(&key)
                && let Some(piece) = sequence.rest(key, &cache.kv)
            {
                self.run_piece(piece, cache, pass);
            }
        }
    }

    /// Number of rows of a pass for generating sequences; if prompts are waiting, some rows are left for them.
    fn rows_of_generating<P: PageStore>(&self, cache: &Cache<P>) -> usize {
        let ready = self.sequences.iter().filter(|(_, s)| s.is_ready(&cache.kv));
        let generating: BTreeSet<u64> = ready.map(|(key, _)| key.task).collect();
        let others = self.flows.keys().any(|task| !generating.contains(task));
        self.limits.rows - if others { self.limits.rows / 4 } else { 0 }
    }

    /// Adds pieces of prompts until the pass is full.
    fn add_prompts<P: PageStore>(
        &mut self,
        cache: &mut Cache<P>,
        pass: &mut Pass,
        openings: &mut dyn Openings,
    ) {
        let mut order: Vec<(u64, u64)> = self.flows.iter().map(|(&task, f)| (f.turn(), task)).collect();
        order.sort_unstable();
        let mut active = self.sequences.values().filter(|sequence| !sequence.held).count();
        for (_, task) in order {
            while active < self.limits.open && self.open_first(task, openings) {
                active += 1;
            }
            let mut room = true;
            for key in self.keys(task) {
                // A generating sequence that was left out is added with the other generating ones, not here.
                let left_out = self.left_out.is_some();
                let waits = |s: &Sequence| !(s.held || left_out && s.is_ready(&cache.kv));
                if self.sequences.get(&key).is_some_and(waits) && !pass.pieces.contains_key(&key) {
                    room &= self.add(key, false, cache, pass) != Added::NoRoom;
                    if self.full(pass) {
                        return;
                    }
                }
            }
            // Open sequences come before sequences that are not open yet.
            while room && active < self.limits.open {
                let Some(key) = self.open(task, openings) else { break };
                active += 1;
                room = self.add(key, false, cache, pass) != Added::NoRoom;
                if self.full(pass) {
                    return;
                }
            }
        }
    }

    fn full(&self, pass: &Pass) -> bool {
        pass.work.rows >= self.limits.rows
            || pass.limit.is_some() && pass.prompts && {
                let more = pass.work.and(Work::of(0, 1, 0));
                self.cost.seconds(more).is_none_or(|seconds| Some(seconds) > pass.limit)
            }
    }

    fn open(&mut self, task: u64, openings: &mut dyn Openings) -> Option<Key> {
        let opening = openings.open(task)?;
        let flow = self.flows.get_mut(&task)?;
        let key = Key { task, rank: opening.rank, index: flow.ranks.len() as u32 };
        flow.ranks.push(opening.rank);
        self.sequences.insert(key, Sequence::new(opening));
        Some(key)
    }

    /// Opens a request's next sequence if it comes before all of the request's open sequences that are not admitted yet.
    fn open_first(&mut self, task: u64, openings: &mut dyn Openings) -> bool {
        let Some(rank) = openings.next_rank(task) else { return false };
        let waits = |key: &Key| self.sequences.get(key).is_some_and(|s| !s.held && s.kv.is_none());
        let waiting = self.keys(task).into_iter().find(waits);
        waiting.is_none_or(|key| rank < key.rank) && self.open(task, openings).is_some()
    }

    /// Called when nothing fits: gives the earliest sequence that can run the room of later ones.
    fn make_way<P: PageStore>(&mut self, cache: &mut Cache<P>, pass: &mut Pass, openings: &mut dyn Openings) {
        let tasks: Vec<u64> = self.flows.keys().copied().collect();
        for task in tasks {
            self.open_first(task, openings);
            for key in self.keys(task) {
                let open = self.sequences.get(&key).is_some_and(|s| !s.held);
                if open && self.add(key, true, cache, pass).goes_on() {
                    return;
                }
            }
            // A request's next sequence may need less room. The number of waiting sequences is limited.
            let waiting = self.keys(task).iter().filter(|key| self.sequences[key].kv.is_none()).count();
            if waiting < WAITING
                && let Some(key) = self.open(task, openings)
                && self.add(key, true, cache, pass).goes_on()
            {
                return;
            }
        }
    }

    /// Adds a piece of a sequence to the pass, and admits the sequence first if needed.
    fn add<P: PageStore>(
        &mut self,
        key: Key,
        make_way: bool,
        cache: &mut Cache<P>,
        pass: &mut Pass,
    ) -> Added {
        let key = self.lost_beginning(key);
        if pass.pieces.contains_key(&key) || pass.stored.contains(&key) {
            return Added::Waits;
        }
        if self.sequences[&key].kv.is_none() {
            if !make_way && self.waiting.is_some_and(|waiting| waiting < key) {
                return Added::NoRoom;
            }
            let admitted = self.admit(key, make_way, cache, pass);
            if admitted == Added::NoRoom {
                self.waiting = Some(self.waiting.map_or(key, |waiting| waiting.min(key)));
            }
            if admitted != Added::Piece {
                return admitted;
            }
            self.waiting = self.waiting.filter(|waiting| *waiting != key);
        }
        let Some(rest) = self.sequences[&key].rest(key, &cache.kv) else {
            pass.stored.insert(key);
            return Added::Stored;
        };
        let Some(piece) = self.fitting(rest, pass) else { return Added::Waits };
        if !self.run_piece(piece, cache, pass) {
            return Added::NoRoom;
        }
        pass.prompts = true;
        Added::Piece
    }

    /// Returns the part of a piece that still fits the pass.
    fn fitting(&self, piece: Piece, pass: &Pass) -> Option<Piece> {
        let room = self.limits.rows.saturating_sub(pass.work.rows);
        let fits = |piece: &Piece, limit: f64| {
            self.cost.seconds(pass.work.and(piece.work())).is_some_and(|seconds| seconds <= limit)
        };
        if !piece.divides() {
            // The first prompt of a pass is taken whatever its size and time, because no other pass would suit it better.
            let suits = piece.tokens <= room && pass.limit.is_none_or(|limit| fits(&piece, limit));
            return (suits || !pass.prompts).then_some(piece);
        }
        let most = piece.tokens.min(room);
        let Some(limit) = pass.limit else { return (most > 0).then(|| piece.cut(most)) };
        let least = if pass.prompts { 0 } else { LEAST_PIECE.min(most) };
        // The first number from `least + 1` on that does not fit, by bisection.
        let (mut low, mut high) = (least, most + 1);
        while low + 1 < high {
            let middle = low.midpoint(high);
            *(if fits(&piece.clone().cut(middle), limit) { &mut low } else { &mut high }) = middle;
        }
        (low > 0).then(|| piece.cut(low))
    }

    /// Adds a piece of an admitted sequence if there is room for it.
    fn run_piece<P: PageStore>(&mut self, piece: Piece, cache: &mut Cache<P>, pass: &mut Pass) -> bool {
        let sequence = &self.sequences[&piece.key];
        let stored = sequence.kv.map_or(0, |kv| cache.kv.tokens(kv));
        let more = (piece.start + piece.tokens).saturating_sub(stored);
        if !self.reserve(piece.key, more, true, cache, pass) {
            return false;
        }
        pass.work = pass.work.and(piece.work());
        pass.pieces.insert(piece.key, piece);
        true
    }

    /// The KV sequence and the tokens of a piece.
    pub(crate) fn tokens(&self, piece: &Piece) -> Option<(SeqId, &[u32])> {
        let sequence = self.sequences.get(&piece.key)?;
        Some((sequence.kv?, sequence.tokens_of(piece)))
    }

    /// Called after a pass. Returns the sequences that have been run to their end, by request.
    pub(crate) fn ran(&mut self, pieces: &[Piece], seconds: f64) -> Vec<(u64, Vec<Done>)> {
        let mut work = Work::default();
        let mut done: Vec<(u64, Vec<Done>)> = Vec::new();
        for piece in pieces {
            work = work.and(piece.work());
            if let Some(flow) = self.flows.get_mut(&piece.key.task) {
                flow.served += piece.tokens;
            }
            let ended = self.sequences.get_mut(&piece.key).is_some_and(|sequence| sequence.ran(piece));
            if !ended {
                continue;
            }
            let one = self.end_of(piece.key);
            match done.last_mut().filter(|(task, _)| *task == piece.key.task) {
                Some((_, all)) => all.push(one),
                None => done.push((piece.key.task, vec![one])),
            }
        }
        self.virtual_time += work.rows as f64 / self.flows.len().max(1) as f64;
        self.cost.learn(work, seconds);
        let generates = |key| self.sequences.get(key).is_some_and(|s| s.generates);
        // A sequence that is run again after preemption counts as a prompt.
        if pieces.iter().all(|piece| piece.tokens == 1 && generates(&piece.key)) {
            self.cost.learn_quiet(work.rows, seconds);
        }
        done
    }

    /// Holds a sequence that has been run to its end until its request updates it.
    fn end_of(&mut self, key: Key) -> Done {
        let sequence = self.sequences.get_mut(&key);
        let began = sequence.and_then(|sequence| {
            sequence.held = true;
            sequence.began
        });
        let (began, origin) = began.unwrap_or((0, Origin::Parent));
        Done { index: key.index, began, origin }
    }

    /// Applies a request's update to one of its sequences.
    pub(crate) fn update<P: PageStore>(&mut self, task: u64, index: u32, next: Next, cache: &mut Cache<P>) {
        let Some(key) = self.key(task, index) else { return };
        let Some(sequence) = self.sequences.get_mut(&key) else { return };
        match next {
            Next::Extend(token) => {
                sequence.wanted = sequence.tokens.len();
                sequence.tokens.push(token);
                sequence.held = false;
                sequence.generates = true;
                if let Some(kv) = sequence.kv.filter(|_| sequence.afresh) {
                    cache.kv.truncate(kv, 0);
                }
            }
            Next::Draw(drawing) => sequence.draw(drawing),
            Next::Hold => sequence.held = true,
            Next::HoldAndKeep => {
                sequence.held = true;
                self.keep(key, cache);
            }
            Next::Keep => {
                self.keep(key, cache);
                self.end(key, cache);
            }
            Next::Drop => self.end(key, cache),
        }
    }

    /// Keeps the stored tokens of a sequence for later requests.
    fn keep<P: PageStore>(&self, key: Key, cache: &mut Cache<P>) {
        let Some(sequence) = self.sequences.get(&key).filter(|s| s.shares) else { return };
        if let (Some(kv), Some(flow)) = (sequence.kv, self.flows.get(&key.task)) {
            cache.keep(&flow.salt, &sequence.tokens, kv);
        }
    }

    /// Keeps the stored tokens of all sequences of a request that is about to leave.
    pub(crate) fn keep_all<P: PageStore>(&self, task: u64, cache: &mut Cache<P>) {
        for key in self.keys(task) {
            self.keep(key, cache);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
