//! Chooses what runs in the next pass, from the open sequences, the room for their keys and values, and the cost of passes.
//!
//! Nothing here reads a clock, starts a thread or runs a model, so the simulator runs the same code as the engine. A pass runs
//!
//! 1. the next token of every sequence that generates, with drafts of those after it as far as there are rows and room for them,
//! 2. then prompts, in pieces, from the least served request of the least served tenant first, as long as the pass stays within its
//!    maximum number of rows (a row is one token) and, while any request generates, within its time limit.
//!
//! [`room`] states what happens when pages run out.

mod cost;
mod room;
mod sequence;

use std::collections::{BTreeMap, BTreeSet};

use redline_kernels::op::kv::AttentionMask;
use redline_models::kv::{KvError, PageStore, SeqId};

pub(crate) use self::cost::{CostModel, WeightReads, Work};
use self::sequence::Sequence;
pub(crate) use self::sequence::{Key, Piece};
use crate::gauges::PassKind;
use crate::memory::cache::Cache;
use crate::task::sequence::{Done, Next, Opening, Origin};

/// Minimum number of tokens of the first prompt in a pass, whatever the time limit.
const MIN_PIECE: usize = 16;
/// Maximum number of a request's sequences that wait for room. These may exceed [`PassLimits::open`].
const MAX_WAITING: usize = 64;
/// Length of a request's turn. A request in an earlier turn goes first; within a turn, the earliest request goes first.
const TURN_TOKENS: f64 = 1024.0;
/// Time that prompts may add to a pass, as a share of its time without them, unless [`PassLimits::stall_s`] sets the time.
const STALL_SHARE: f64 = 0.8;

/// Limits of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassLimits {
    /// Maximum number of tokens.
    pub(crate) rows: usize,
    /// Maximum number of open sequences that are not held. Each request limits the number of its held sequences.
    pub(crate) open: usize,
    /// Seconds that prompts may add to a pass while any request generates; `None`: [`STALL_SHARE`] of its time without
    /// them.
    pub(crate) stall_s: Option<f64>,
}

/// The service that a request has received; requests are the flows of fair queueing.
#[derive(Debug)]
struct Flow {
    tenant: String,
    namespace: String,
    /// Virtual time at the request's arrival.
    start: f64,
    /// Number of tokens run for the request.
    served: usize,
    /// The ranks of the request's sequences so far.
    ranks: Vec<u32>,
}

/// The service that all requests of a tenant have received; tenants are served in turns first, and their requests within these.
#[derive(Debug)]
struct Tenant {
    /// Number of tenants that came before.
    number: u64,
    /// Virtual time of tenants when its first request arrived.
    start: f64,
    /// Number of tokens run for its requests.
    served: usize,
    /// Number of its requests.
    flows: usize,
}

impl Tenant {
    /// The number of the tenant's turn.
    fn turn(&self) -> u64 {
        ((self.start + self.served as f64) / TURN_TOKENS) as u64
    }
}

impl Flow {
    /// The number of the request's turn.
    fn turn(&self) -> u64 {
        ((self.start + self.served as f64) / TURN_TOKENS) as u64
    }
}

/// A request that can never continue, and the error of the last sequence that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) task: u64,
    pub(crate) error: Option<KvError>,
}

/// Source of the sequences that requests have not opened yet.
pub(crate) trait Openings {
    /// The rank of a request's next sequence. `None` if it cannot be lower than the rank of any open one.
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
    has_prompts: bool,
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
    /// Whether the sequence gets ahead in this pass.
    fn makes_progress(self) -> bool {
        matches!(self, Self::Piece | Self::Stored)
    }
}

/// The open sequences of all requests, and the state for choosing the next pass.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: PassLimits,
    sequences: BTreeMap<Key, Sequence>,
    flows: BTreeMap<u64, Flow>,
    /// The tenants that have requests.
    tenants: BTreeMap<String, Tenant>,
    /// Number of tenants so far; one that returns counts again.
    seen_tenants: u64,
    cost: CostModel,
    /// Number of tokens that each request would have been served if all requests had received equal shares since the start.
    virtual_time: f64,
    /// The same for tenants.
    tenant_time: f64,
    /// The error of the last sequence that found no room in this step.
    refusal: Option<KvError>,
    /// The earliest sequence that waits for room. Later ones are not admitted before it, because it might then wait forever.
    waiting: Option<Key>,
    /// The first generating sequence for which the last pass had no row.
    left_out: Option<Key>,
    preemptions: u64,
    /// Number of drafts that were run, and of those that were right.
    drafts: (u64, u64),
}

impl Scheduler {
    pub(crate) fn new(limits: PassLimits, cost: CostModel) -> Self {
        Self {
            limits,
            sequences: BTreeMap::new(),
            flows: BTreeMap::new(),
            tenants: BTreeMap::new(),
            seen_tenants: 0,
            cost,
            virtual_time: 0.0,
            tenant_time: 0.0,
            refusal: None,
            waiting: None,
            left_out: None,
            preemptions: 0,
            drafts: (0, 0),
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

    /// Number of drafts that were run so far, and of those that were right.
    pub(crate) fn drafts(&self) -> (u64, u64) {
        self.drafts
    }

    /// Admits a request of a tenant. Of two requests, the one with the smaller number takes precedence.
    pub(crate) fn arrive(&mut self, task: u64, tenant: &str, namespace: String) {
        let (seen, start) = (&mut self.seen_tenants, self.tenant_time);
        let of = self.tenants.entry(tenant.to_owned()).or_insert_with(|| {
            *seen += 1;
            Tenant { number: *seen, start, served: 0, flows: 0 }
        });
        of.flows += 1;
        let (tenant, start) = (tenant.to_owned(), self.virtual_time);
        self.flows.insert(task, Flow { tenant, namespace, start, served: 0, ranks: Vec::new() });
    }

    /// Forgets a request and releases what it holds.
    pub(crate) fn leave<P: PageStore>(&mut self, task: u64, cache: &mut Cache<P>) {
        if let Some(flow) = self.flows.remove(&task)
            && let Some(tenant) = self.tenants.get_mut(&flow.tenant)
        {
            tenant.flows -= 1;
            if tenant.flows == 0 {
                self.tenants.remove(&flow.tenant);
            }
        }
        for key in self.keys(task) {
            self.end(key, cache);
        }
    }

    /// The keys of a request's open sequences, in ascending order.
    fn keys(&self, task: u64) -> Vec<Key> {
        let end = Key { task, rank: u32::MAX, index: u32::MAX };
        self.sequences.range(Key { task, rank: 0, index: 0 }..=end).map(|(&key, _)| key).collect()
    }

    /// The key of a request's sequence.
    fn key(&self, task: u64, index: u32) -> Option<Key> {
        let rank = *self.flows.get(&task)?.ranks.get(index as usize)?;
        Some(Key { task, rank, index })
    }

    /// Ends a sequence and releases its keys and values.
    fn end<P: PageStore>(&mut self, key: Key, cache: &mut Cache<P>) {
        self.waiting = self.waiting.filter(|waiting| *waiting != key);
        if let Some(kv) = self.sequences.remove(&key).and_then(|sequence| sequence.kv) {
            cache.kv.release(kv);
        }
    }

    /// Chooses the next step. An error means that no request can continue, and names the earliest.
    pub(crate) fn next<P: PageStore>(
        &mut self,
        cache: &mut Cache<P>,
        openings: &mut dyn Openings,
    ) -> Result<Step, Stuck> {
        let mut pass = Pass::default();
        self.refusal = None;
        let rows = self.rows_of_generating(cache);
        self.continue_generating(cache, &mut pass, rows);
        let decode_only_s = self.cost.decode_only_seconds(pass.work.rows);
        if pass.pieces.is_empty() {
            self.add_prompts(cache, &mut pass, openings);
        } else if let Some(decode_only_s) = decode_only_s {
            let stall_s = self.limits.stall_s.unwrap_or(decode_only_s * STALL_SHARE);
            pass.limit = Some(decode_only_s + stall_s);
            self.add_prompts(cache, &mut pass, openings);
        }
        // Rows that prompts do not need go to the generating sequences that were left out. But while the time of a pass of this
        // number of rows without prompts is unknown, the pass runs as it is, which measures that time: otherwise the prompts would
        // wait until fewer sequences generate.
        if self.left_out.is_some() && decode_only_s.is_some() {
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
        let stored = pass.stored.into_iter().map(|key| (key.task, vec![self.hold_finished(key)])).collect();
        Ok(Step { pieces: pass.pieces.into_values().collect(), stored })
    }

    /// Adds the next token of every sequence that generates, and drafts in the rows that are left.
    fn continue_generating<P: PageStore>(&mut self, cache: &mut Cache<P>, pass: &mut Pass, rows: usize) {
        let ready = |(_, s): &(&Key, &Sequence)| s.is_ready(&cache.kv);
        let mut keys: Vec<Key> = self.sequences.iter().filter(ready).map(|(&key, _)| key).collect();
        // The sequences that the last pass left out come first.
        if let Some(first) = self.left_out.take() {
            let at = keys.partition_point(|key| *key < first);
            keys.rotate_left(at);
        }
        keys.retain(|key| !pass.pieces.contains_key(key));
        let mut spare = rows.saturating_sub(pass.work.rows + keys.len());
        for key in keys {
            if pass.work.rows >= rows {
                self.left_out.get_or_insert(key);
                return;
            }
            // A piece added before may have preempted this sequence.
            if self.sequences[&key].kv.is_none() {
                continue;
            }
            spare -= self.fit_drafts(key, spare, cache);
            if let Some(piece) = self.sequences[&key].rest(key, &cache.kv) {
                self.run_piece(piece, cache, pass);
            }
        }
    }

    /// Leaves out the drafts of an admitted sequence for which there are no rows, or no room that nothing else would lose. Returns the
    /// number of the others.
    fn fit_drafts<P: PageStore>(&mut self, key: Key, rows: usize, cache: &mut Cache<P>) -> usize {
        let Some(sequence) = self.sequences.get_mut(&key) else { return 0 };
        sequence.cut_drafts(rows.min(cache.kv.rollback_limit()));
        if let Some(kv) = sequence.kv.filter(|_| sequence.drafts() > 0)
            && !cache.reserve_free(kv, 1 + sequence.drafts())
        {
            sequence.cut_drafts(0);
        }
        sequence.drafts()
    }

    /// Maximum number of rows of a pass for generating sequences. A quarter of the rows is left to prompts if any wait.
    fn rows_of_generating<P: PageStore>(&self, cache: &Cache<P>) -> usize {
        let ready = self.sequences.iter().filter(|(_, s)| s.is_ready(&cache.kv));
        // Keys are in the order of requests.
        let (generating, _) = ready.fold((0, None), |(requests, last), (key, _)| {
            (requests + usize::from(last != Some(key.task)), Some(key.task))
        });
        let others = self.flows.len() > generating;
        let rows = self.limits.rows;
        rows - if others { (rows / 4).max(1).min(rows - 1) } else { 0 }
    }

    /// Adds pieces of prompts until the pass is full.
    fn add_prompts<P: PageStore>(
        &mut self,
        cache: &mut Cache<P>,
        pass: &mut Pass,
        openings: &mut dyn Openings,
    ) {
        let place = |(&task, flow): (&u64, &Flow)| {
            let tenant = self.tenants.get(&flow.tenant).map(|tenant| (tenant.turn(), tenant.number));
            (tenant, flow.turn(), task)
        };
        let mut order: Vec<_> = self.flows.iter().map(place).collect();
        order.sort_unstable();
        let mut active = self.sequences.values().filter(|sequence| !sequence.held).count();
        for (.., task) in order {
            while active < self.limits.open && self.open_first(task, openings) {
                active += 1;
            }
            let mut has_room = true;
            for key in self.keys(task) {
                // A generating sequence that was left out is added with the other generating ones, not here.
                let left_out = self.left_out.is_some();
                let may_run = |s: &Sequence| !(s.held || left_out && s.is_ready(&cache.kv));
                if self.sequences.get(&key).is_some_and(may_run) && !pass.pieces.contains_key(&key) {
                    has_room &= self.add(key, false, cache, pass) != Added::NoRoom;
                    if self.is_full(pass) {
                        return;
                    }
                }
            }
            // New sequences are opened only after all open ones have been considered.
            while has_room && active < self.limits.open {
                let Some(key) = self.open(task, openings) else { break };
                active += 1;
                has_room = self.add(key, false, cache, pass) != Added::NoRoom;
                if self.is_full(pass) {
                    return;
                }
            }
        }
    }

    /// Whether no further piece fits the pass.
    fn is_full(&self, pass: &Pass) -> bool {
        pass.work.rows >= self.limits.rows
            || pass.limit.is_some() && pass.has_prompts && {
                let more = pass.work.and(Work::of(0, 1, 0));
                self.cost.seconds(more).is_none_or(|seconds| Some(seconds) > pass.limit)
            }
    }

    /// Opens a request's next sequence, if there is one yet.
    fn open(&mut self, task: u64, openings: &mut dyn Openings) -> Option<Key> {
        let opening = openings.open(task)?;
        let flow = self.flows.get_mut(&task)?;
        let key = Key { task, rank: opening.rank, index: flow.ranks.len() as u32 };
        flow.ranks.push(opening.rank);
        self.sequences.insert(key, Sequence::new(opening));
        Some(key)
    }

    /// Opens a request's next sequence if its rank is lower than those of the request's open sequences without keys and values.
    fn open_first(&mut self, task: u64, openings: &mut dyn Openings) -> bool {
        let Some(rank) = openings.next_rank(task) else { return false };
        let is_waiting = |key: &Key| self.sequences.get(key).is_some_and(|s| !s.held && s.kv.is_none());
        let waiting = self.keys(task).into_iter().find(is_waiting);
        waiting.is_none_or(|key| rank < key.rank) && self.open(task, openings).is_some()
    }

    /// Called if the pass is empty: adds the first sequence that has room once later sequences have been preempted.
    fn make_way<P: PageStore>(&mut self, cache: &mut Cache<P>, pass: &mut Pass, openings: &mut dyn Openings) {
        let tasks: Vec<u64> = self.flows.keys().copied().collect();
        for task in tasks {
            self.open_first(task, openings);
            for key in self.keys(task) {
                let may_run = self.sequences.get(&key).is_some_and(|s| !s.held);
                if may_run && self.add(key, true, cache, pass).makes_progress() {
                    return;
                }
            }
            // A request's next sequence may need less room. The number of waiting sequences is limited.
            let waiting = self.keys(task).iter().filter(|key| self.sequences[key].kv.is_none()).count();
            if waiting < MAX_WAITING
                && let Some(key) = self.open(task, openings)
                && self.add(key, true, cache, pass).makes_progress()
            {
                return;
            }
        }
    }

    /// Adds a piece of a sequence to the pass. A sequence without keys and values is admitted first. If one of its ancestors was
    /// preempted, that ancestor is added instead.
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
        pass.has_prompts = true;
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
            return (suits || !pass.has_prompts).then_some(piece);
        }
        let most = piece.tokens.min(room);
        let Some(limit) = pass.limit else { return (most > 0).then(|| piece.cut(most)) };
        let least = if pass.has_prompts { 0 } else { MIN_PIECE.min(most) };
        // Bisection: `low` tokens fit, or are the minimum; `high` tokens do not fit.
        let (mut low, mut high) = (least, most + 1);
        while low + 1 < high {
            let middle = low.midpoint(high);
            *(if fits(&piece.clone().cut(middle), limit) { &mut low } else { &mut high }) = middle;
        }
        (low > 0).then(|| piece.cut(low))
    }

    /// Adds a piece of an admitted sequence. Returns whether there is room for it.
    fn run_piece<P: PageStore>(&mut self, piece: Piece, cache: &mut Cache<P>, pass: &mut Pass) -> bool {
        let sequence = &self.sequences[&piece.key];
        let stored = sequence.kv.map_or(0, |kv| cache.kv.tokens(kv));
        let missing = (piece.start + piece.tokens).saturating_sub(stored);
        if let Some(kv) = sequence.kv.filter(|_| sequence.shares && cache.kv.is_snapshot(stored)) {
            cache.kv.snapshot(kv);
        }
        if let Some(kv) = sequence.kv.filter(|_| sequence.generates) {
            cache.kv.release_out_of_window(kv);
        }
        if !self.reserve(piece.key, missing, true, cache, pass) {
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

    /// The position of the first token of the second text of a pair, if the sequence of a piece is one.
    pub(crate) fn second_text(&self, piece: &Piece) -> Option<usize> {
        self.sequences.get(&piece.key)?.second_text
    }

    /// Number of drafts at the end of a piece.
    pub(crate) fn drafts_of(&self, piece: &Piece) -> usize {
        self.sequences.get(&piece.key).map_or(0, Sequence::drafts)
    }

    /// What the pieces of a pass belong to.
    pub(crate) fn kind(&self, pieces: &[Piece]) -> PassKind {
        let generating = pieces.iter().filter(|piece| self.advances(piece)).count();
        match generating {
            _ if pieces.iter().any(|piece| piece.attention != AttentionMask::Causal) => PassKind::Canvas,
            0 => PassKind::Prompt,
            all if all == pieces.len() => PassKind::Generating,
            _ => PassKind::Mixed,
        }
    }

    /// Whether a piece is that of a generating sequence.
    fn advances(&self, piece: &Piece) -> bool {
        self.sequences.get(&piece.key).is_some_and(|sequence| sequence.advances(piece))
    }

    /// How long a pass of these pieces will probably take; `None` before there were enough passes.
    pub(crate) fn expected_seconds(&self, pieces: &[Piece]) -> Option<f64> {
        let work = pieces.iter().fold(Work::default(), |work, piece| work.and(piece.work()));
        self.cost.seconds(work)
    }

    /// Called after a pass. Returns the sequences that have been run to their end, by request.
    pub(crate) fn ran(&mut self, pieces: &[Piece], seconds: f64) -> Vec<(u64, Vec<Done>)> {
        let mut work = Work::default();
        let mut done: Vec<(u64, Vec<Done>)> = Vec::new();
        for piece in pieces {
            work = work.and(piece.work());
            if let Some(flow) = self.flows.get_mut(&piece.key.task) {
                flow.served += piece.tokens;
                if let Some(tenant) = self.tenants.get_mut(&flow.tenant) {
                    tenant.served += piece.tokens;
                }
            }
            let Some(sequence) = self.sequences.get_mut(&piece.key) else { continue };
            self.drafts.0 += sequence.drafts() as u64;
            if !sequence.ran(piece) {
                continue;
            }
            let finished = self.hold_finished(piece.key);
            match done.last_mut().filter(|(task, _)| *task == piece.key.task) {
                Some((_, of_task)) => of_task.push(finished),
                None => done.push((piece.key.task, vec![finished])),
            }
        }
        self.virtual_time += work.rows as f64 / self.flows.len().max(1) as f64;
        self.tenant_time += work.rows as f64 / self.tenants.len().max(1) as f64;
        self.cost.learn(work, seconds);
        // A sequence that is run again after preemption counts as a prompt.
        if pieces.iter().all(|piece| self.advances(piece)) {
            self.cost.learn_decode_only(work.rows, seconds);
        }
        done
    }

    /// Marks a sequence that has been run to its end as held: it does not run again before its request updates it.
    fn hold_finished(&mut self, key: Key) -> Done {
        let sequence = self.sequences.get_mut(&key);
        let reused = sequence.and_then(|sequence| {
            sequence.held = true;
            sequence.reused
        });
        let (reused, origin) = reused.unwrap_or((0, Origin::Parent));
        Done { index: key.index, reused, origin }
    }

    /// Applies a request's update to one of its sequences.
    pub(crate) fn update<P: PageStore>(&mut self, task: u64, index: u32, next: Next, cache: &mut Cache<P>) {
        let Some(key) = self.key(task, index) else { return };
        let Some(sequence) = self.sequences.get_mut(&key) else { return };
        if sequence.drafts() > 0 && !matches!(next, Next::Accept(_)) {
            sequence.cut_drafts(0);
            if let Some(kv) = sequence.kv.filter(|kv| cache.kv.tokens(*kv) > sequence.tokens.len()) {
                cache.kv.truncate(kv, sequence.tokens.len());
            }
        }
        match next {
            Next::Extend { token, drafts } => {
                // Later requests may begin with its prompt.
                if let Some(kv) = sequence.kv.filter(|_| sequence.shares && !sequence.generates) {
                    cache.kv.snapshot(kv);
                }
                sequence.extend(token, if sequence.afresh { &[] } else { &drafts });
                if let Some(kv) = sequence.kv.filter(|_| sequence.afresh) {
                    cache.kv.truncate(kv, 0);
                }
            }
            Next::Accept(right) => self.drafts.1 += sequence.accept(right) as u64,
            Next::RunCanvas(rows) => sequence.run_canvas(rows),
            Next::Hold => sequence.held = true,
            Next::HoldAndStore => {
                sequence.held = true;
                self.keep(key, cache);
            }
            Next::Store => {
                self.keep(key, cache);
                self.end(key, cache);
            }
            Next::Drop => self.end(key, cache),
        }
    }

    /// Keeps the stored tokens of a sequence in the prefix cache, for later requests.
    fn keep<P: PageStore>(&self, key: Key, cache: &mut Cache<P>) {
        let Some(sequence) = self.sequences.get(&key).filter(|s| s.shares) else { return };
        if let (Some(kv), Some(flow)) = (sequence.kv, self.flows.get(&key.task)) {
            cache.keep(&flow.namespace, &sequence.tokens, kv);
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
