//! What runs next: a pure step over the open sequences, the room for their keys and values, and what passes cost.
//!
//! Nothing here reads a clock, starts a thread or does arithmetic of a model, so that it runs in the simulator as it runs
//! in the engine. A pass takes
//!
//! 1. the next token of every sequence that generates,
//! 2. then prompts, in pieces, the request that was served least first, as long as the pass stays within its rows and,
//!    while somebody generates, within its time.
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

/// Tokens of a prompt that are run in any case in a pass.
const LEAST_PIECE: usize = 16;
/// Most sequences of a request that wait for room beyond the number that may be open.
const WAITING: usize = 64;
/// Requests take turns after so many tokens each; within a turn, first come, first served.
const TURN_TOKENS: f64 = 1024.0;
/// Share of the time of a pass without prompts that prompts may add to it, unless an option says more.
const STALL: f64 = 0.8;

/// What a pass may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassLimits {
    /// Most tokens.
    pub(crate) rows: usize,
    /// Most sequences that are open at a time, not counting those that are held: requests bound those themselves.
    pub(crate) open: usize,
    /// Seconds that prompts may add to a pass while somebody generates; `None`: most of what it takes without them.
    pub(crate) stall_s: Option<f64>,
}

/// A request's share of the machine.
#[derive(Debug)]
struct Flow {
    salt: String,
    /// Virtual time at its arrival.
    start: f64,
    /// Tokens run for it.
    served: usize,
    /// The ranks of its sequences so far.
    ranks: Vec<u32>,
}

impl Flow {
    fn turn(&self) -> u64 {
        ((self.start + self.served as f64) / TURN_TOKENS) as u64
    }
}

/// A sequence of which everything was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) index: u32,
    /// Tokens it found stored when it was first admitted.
    pub(crate) began: usize,
    /// Where they came from.
    pub(crate) origin: Origin,
}

/// The request that can never go on, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) task: u64,
    pub(crate) error: Option<KvError>,
}

/// The sequences that requests have not opened.
pub(crate) trait Openings {
    /// The rank of a request's next sequence, where it may be lower than that of an open one.
    fn next_rank(&self, task: u64) -> Option<u32>;

    /// A request's next sequence, if it has one by now.
    fn open(&mut self, task: u64) -> Option<Opening>;
}

/// A pass in the making.
#[derive(Debug, Default)]
struct Pass {
    pieces: BTreeMap<Key, Piece>,
    /// Sequences that need not be run.
    stored: BTreeSet<Key>,
    work: Work,
    /// Prompts are among the pieces.
    prompts: bool,
    /// Seconds it may take.
    limit: Option<f64>,
}

impl Pass {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.stored.is_empty()
    }
}

/// What happens next.
#[derive(Debug)]
pub(crate) struct Step {
    /// What is run.
    pub(crate) pieces: Vec<Piece>,
    /// Sequences that came to their end without being run, by request.
    pub(crate) stored: Vec<(u64, Vec<Done>)>,
}

/// What became of an attempt to add a sequence to a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Added {
    /// A piece of it runs.
    Piece,
    /// All of it was stored elsewhere.
    Stored,
    /// It waits for tokens that another sequence is about to store, or for a pass with more time.
    Waits,
    /// There is no room for its keys and values.
    NoRoom,
}

impl Added {
    fn goes_on(self) -> bool {
        matches!(self, Self::Piece | Self::Stored)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: PassLimits,
    sequences: BTreeMap<Key, Sequence>,
    flows: BTreeMap<u64, Flow>,
    cost: CostModel,
    /// Tokens that a request would have been served if all had got the same share since the beginning.
    virtual_time: f64,
    /// Why the last sequence that got no room got none.
    refusal: Option<KvError>,
    /// The earliest sequence that waits for room: none after it is admitted meanwhile, or it might wait forever.
    waiting: Option<Key>,
    /// The first of those that generate for which the pass before had no row.
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

    /// Most tokens of a pass.
    pub(crate) fn rows(&self) -> usize {
        self.limits.rows
    }

    /// How often a sequence gave way to another.
    pub(crate) fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Takes a request in. Numbers grow with every one.
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
        // Else this pass is the one that tells what it takes without prompts.
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

    /// The next token of every sequence that generates.
    fn continue_generating<P: PageStore>(&mut self, cache: &mut Cache<P>, pass: &mut Pass, rows: usize) {
        let ready = |(_, s): &(&Key, &Sequence)| s.is_ready(&cache.kv);
        let mut keys: Vec<Key> = self.sequences.iter().filter(ready).map(|(&key, _)| key).collect();
        // Where they do not all fit, those that were left out go first the next time.
        if let Some(first) = self.left_out.take() {
            let at = keys.partition_point(|key| *key < first);
            keys.rotate_left(at);
        }
        for key in keys {
            if pass.work.rows >= rows {
                self.left_out.get_or_insert(key);
                return;
            }
            // One of them may have given way meanwhile.
            let sequence = &self.sequences[&key];
            if sequence.kv.is_some()
                && !pass.pieces.contains_key(&key)
                && let Some(piece) = sequence.rest(key, &cache.kv)
            {
                self.run_piece(piece, cache, pass);
            }
        }
    }

    /// Rows of a pass for those that generate: while others have prompts to be read, these have some.
    fn rows_of_generating<P: PageStore>(&self, cache: &Cache<P>) -> usize {
        let ready = self.sequences.iter().filter(|(_, s)| s.is_ready(&cache.kv));
        let generating: BTreeSet<u64> = ready.map(|(key, _)| key.task).collect();
        let others = self.flows.keys().any(|task| !generating.contains(task));
        self.limits.rows - if others { self.limits.rows / 4 } else { 0 }
    }

    /// Prompts, in pieces, as many as the pass takes.
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
                // One that generates and was left out has its turn.
                let left_out = self.left_out.is_some();
                let waits = |s: &Sequence| !(s.held || left_out && s.is_ready(&cache.kv));
                if self.sequences.get(&key).is_some_and(waits) && !pass.pieces.contains_key(&key) {
                    room &= self.add(key, false, cache, pass) != Added::NoRoom;
                    if self.full(pass) {
                        return;
                    }
                }
            }
            // What is open goes before what is not.
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

    /// Opens a request's next sequence if it comes before all of its open ones that still have to be admitted.
    fn open_first(&mut self, task: u64, openings: &mut dyn Openings) -> bool {
        let Some(rank) = openings.next_rank(task) else { return false };
        let waits = |key: &Key| self.sequences.get(key).is_some_and(|s| !s.held && s.kv.is_none());
        let waiting = self.keys(task).into_iter().find(waits);
        waiting.is_none_or(|key| rank < key.rank) && self.open(task, openings).is_some()
    }

    /// Nothing could go on within the room there is: the earliest sequence that can gets what later ones hold.
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
            // What a request opens next may need less room. It does not open more and more that wait.
            let waiting = self.keys(task).iter().filter(|key| self.sequences[key].kv.is_none()).count();
            if waiting < WAITING
                && let Some(key) = self.open(task, openings)
                && self.add(key, true, cache, pass).goes_on()
            {
                return;
            }
        }
    }

    /// Adds a piece of a sequence to the pass, admitting it first where needed.
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

    /// How much of a piece the pass still takes.
    fn fitting(&self, piece: Piece, pass: &Pass) -> Option<Piece> {
        let room = self.limits.rows.saturating_sub(pass.work.rows);
        let fits = |piece: &Piece, limit: f64| {
            self.cost.seconds(pass.work.and(piece.work())).is_some_and(|seconds| seconds <= limit)
        };
        if !piece.divides() {
            // Without other prompts it is taken as large and long as it is: no other pass would suit it better.
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

    /// Adds a piece of a sequence that is admitted, if there is room for it.
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

    /// A sequence's keys and values, and the tokens of a piece of it.
    pub(crate) fn tokens(&self, piece: &Piece) -> Option<(SeqId, &[u32])> {
        let sequence = self.sequences.get(&piece.key)?;
        Some((sequence.kv?, sequence.tokens_of(piece)))
    }

    /// After the pass that ran these pieces: which sequences have been run to their end, by request.
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
        // One that is run again after it gave way is a prompt like others.
        if pieces.iter().all(|piece| piece.tokens == 1 && generates(&piece.key)) {
            self.cost.learn_quiet(work.rows, seconds);
        }
        done
    }

    /// A sequence has been run to its end, and waits until its request says more.
    fn end_of(&mut self, key: Key) -> Done {
        let sequence = self.sequences.get_mut(&key);
        let began = sequence.and_then(|sequence| {
            sequence.held = true;
            sequence.began
        });
        let (began, origin) = began.unwrap_or((0, Origin::Parent));
        Done { index: key.index, began, origin }
    }

    /// Does what a request says of one of its sequences.
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

    /// Keeps what a sequence has stored, for later requests.
    fn keep<P: PageStore>(&self, key: Key, cache: &mut Cache<P>) {
        let Some(sequence) = self.sequences.get(&key).filter(|s| s.shares) else { return };
        if let (Some(kv), Some(flow)) = (sequence.kv, self.flows.get(&key.task)) {
            cache.keep(&flow.salt, &sequence.tokens, kv);
        }
    }

    /// Keeps what all sequences of a request have stored so far; it is about to leave.
    pub(crate) fn keep_all<P: PageStore>(&self, task: u64, cache: &mut Cache<P>) {
        for key in self.keys(task) {
            self.keep(key, cache);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
