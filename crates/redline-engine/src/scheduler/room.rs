//! Room for keys and values: which sequences are admitted, and which are preempted.
//!
//! A sequence is admitted only if all its tokens fit. When pages run out, kept sequences of earlier requests are evicted first.
//! Then a later sequence is preempted for an earlier one, and is run again from its tokens, with the same bits. Sequences are
//! ordered by their keys: arrival of the request, rank, number. A *held* sequence has been run to its end; it is stored so that
//! others can begin with its tokens, or waits for its request. The rules:
//!
//! 1. A sequence is preempted only for an earlier one: the latest first, and only if the earlier one then has room.
//! 2. No sequence is admitted while an earlier one waits for room, except by rule 5.
//! 3. A held sequence that was preempted is not run again for its own sake. It returns to its place in the order when
//!    its request continues it, or when a sequence that begins with its tokens is about to be admitted.
//! 4. A request's next sequence is opened before open sequences of higher rank are considered. So the labels that a held prompt
//!    waits for come before the prompts after it.
//! 5. If nothing can run, the first sequence in the order that is not held takes room from all later ones (`make_way`).
//!
//! Hence the earliest request always finishes. Let F be the first sequence of the earliest request that is not held. By rule 4,
//! the held sequences before F are F's ancestors. The engine has checked that these fit together with F (`front/budget.rs`),
//! provided that a sequence shares pages with its parent, which [`Scheduler::join`] ensures. So if nothing can run, F is
//! admitted. By rule 1 only sequences before F could take its room back. These are held, and need no room until F has
//! finished. So each application of rule 5 finishes a sequence, or a token of a generating one.
//!
//! If every layer has a sliding window, a sequence that generates gives pages back that no later row sees (`run_piece`). It is
//! then admitted if a window and a pass fit, instead of all its tokens: after preemption, it gives pages back while it runs
//! again. Other sequences keep all their pages, because sequences that begin with some of their tokens may need them.
//!
//! This also bounds the work that is done twice. A sequence is preempted only when an earlier one is admitted by rule 5 or
//! grows by a page. By rule 3 it is then run again at most once before the next such event.

use std::ops::Bound;

use redline_models::kv::{KvCache, PageStore, SeqId};

use super::sequence::Sequence;
use super::{Added, Key, Origin, Pass, Scheduler};
use crate::memory::cache::Cache;

/// Minimum number of tokens about to be stored by another sequence for which it is worth waiting.
const WORTH_WAITING: usize = 32;

impl Scheduler {
    /// Reserves room for `more` tokens; if `make_way` is set, later sequences may be preempted.
    pub(super) fn reserve<P: PageStore>(
        &mut self,
        key: Key,
        more: usize,
        make_way: bool,
        cache: &mut Cache<P>,
        pass: &mut Pass,
    ) -> bool {
        let Some(kv) = self.sequences[&key].kv else { return false };
        let Err(error) = cache.reserve(kv, more) else { return true };
        self.refusal = Some(error);
        if !make_way {
            return false;
        }
        self.join(key, cache);
        if !cache.kv.has_room_without(kv, more, self.later(key).filter_map(|(_, s)| s.kv)) {
            return false;
        }
        loop {
            let Err(error) = cache.reserve(kv, more) else { return true };
            self.refusal = Some(error);
            let Some(victim) = self.victim(key) else { return false };
            self.preempt(victim, cache, pass);
        }
    }

    /// Moves the ancestors of a sequence onto its pages, if their tokens are stored twice because it found its beginning
    /// elsewhere.
    fn join<P: PageStore>(&mut self, key: Key, cache: &mut Cache<P>) {
        let mut child = key;
        while let Some(parent) = self.parent(child) {
            if let (Some(from), Some(sequence)) = (self.sequences[&child].kv, self.sequences.get_mut(&parent))
                && let Some(old) = sequence.kv
                && cache.kv.tokens(old) <= cache.kv.tokens(from).min(sequence.tokens.len())
            {
                cache.kv.share(old, from);
            }
            child = parent;
        }
    }

    /// The sequences after `key`, in order.
    fn later(&self, key: Key) -> impl DoubleEndedIterator<Item = (&Key, &Sequence)> {
        self.sequences.range((Bound::Excluded(key), Bound::Unbounded))
    }

    /// The sequence that is preempted for `key`: the latest one after it.
    fn victim(&self, key: Key) -> Option<Key> {
        self.later(key).rev().find(|(_, s)| s.kv.is_some()).map(|(&later, _)| later)
    }

    /// Releases a sequence's keys and values; it is run again when there is room.
    pub(super) fn preempt<P: PageStore>(&mut self, key: Key, cache: &mut Cache<P>, pass: &mut Pass) {
        let Some(sequence) = self.sequences.get_mut(&key) else { return };
        if let Some(kv) = sequence.give_way() {
            cache.kv.release(kv);
        }
        pass.stored.remove(&key);
        if let Some(piece) = pass.pieces.remove(&key) {
            pass.work = pass.work.without(piece.work());
        }
        self.preemptions += 1;
    }

    /// Admits a sequence with the longest stored beginning and room for all its tokens.
    pub(super) fn admit<P: PageStore>(
        &mut self,
        key: Key,
        make_way: bool,
        cache: &mut Cache<P>,
        pass: &mut Pass,
    ) -> Added {
        let Some((kv, origin)) = self.beginning(key, cache) else { return Added::Waits };
        if self.enter(key, kv, origin, make_way, cache, pass) {
            return Added::Piece;
        }
        // A prefix found elsewhere may need pages of its own. Those of the parent are stored anyway.
        if origin != Origin::Parent
            && let Some(kv) = self.inherited(key, cache)
            && self.enter(key, kv, Origin::Parent, make_way, cache, pass)
        {
            return Added::Piece;
        }
        Added::NoRoom
    }

    /// Admits a sequence with the beginning `kv` if there is room for all its tokens.
    fn enter<P: PageStore>(
        &mut self,
        key: Key,
        kv: SeqId,
        origin: Origin,
        make_way: bool,
        cache: &mut Cache<P>,
        pass: &mut Pass,
    ) -> bool {
        let stored = cache.kv.tokens(kv);
        let Some(sequence) = self.sequences.get_mut(&key) else { return false };
        sequence.kv = Some(kv);
        let mut remaining = sequence.tokens.len() - stored;
        if let Some(window) = cache.kv.window().filter(|_| sequence.generates) {
            remaining = remaining.min(window + self.limits.rows);
        }
        let admitted = self.reserve(key, remaining, make_way, cache, pass);
        let Some(sequence) = self.sequences.get_mut(&key) else { return false };
        if admitted {
            sequence.reused.get_or_insert((stored, origin));
        } else if let Some(kv) = sequence.kv.take() {
            cache.kv.release(kv);
        }
        admitted
    }

    /// The sequence that must be admitted first: the first preempted ancestor of `key`, or `key` itself.
    pub(super) fn lost_beginning(&mut self, key: Key) -> Key {
        let mut first = key;
        while self.sequences[&first].kv.is_none()
            && let Some(parent) = self.parent(first).filter(|parent| self.sequences[parent].kv.is_none())
        {
            first = parent;
        }
        if first != key
            && let Some(sequence) = self.sequences.get_mut(&first)
        {
            sequence.held = false;
        }
        first
    }

    /// The open parent of a sequence.
    fn parent(&self, key: Key) -> Option<Key> {
        let (index, _) = self.sequences.get(&key)?.parent?;
        self.key(key.task, index).filter(|parent| self.sequences.contains_key(parent))
    }

    /// Creates a KV sequence with the tokens of the parent, or as many of them as it can be continued after; `None` while these are not
    /// stored.
    fn inherited<P: PageStore>(&self, key: Key, cache: &mut Cache<P>) -> Option<SeqId> {
        match self.sequences[&key].parent {
            None => Some(cache.kv.create()),
            Some((_, tokens)) => {
                let parent = self.stored_parent(key, &cache.kv)?;
                Some(cache.kv.fork(parent, cache.kv.continuable(parent, tokens)))
            }
        }
    }

    /// The KV sequence of the parent; `None` while the shared tokens are not stored.
    fn stored_parent<P: PageStore>(&self, key: Key, kv: &KvCache<P>) -> Option<SeqId> {
        let (_, tokens) = self.sequences[&key].parent?;
        let parent = &self.sequences[&self.parent(key)?];
        parent.kv.filter(|_| parent.stored(kv) >= tokens)
    }

    /// Creates the longest stored beginning of a sequence; `None` if it is worth waiting for more.
    fn beginning<P: PageStore>(&self, key: Key, cache: &mut Cache<P>) -> Option<(SeqId, Origin)> {
        let sequence = &self.sequences[&key];
        let namespace = &self.flows[&key.task].namespace;
        let inherited = sequence.parent.map_or(0, |(_, tokens)| tokens);
        if sequence.parent.is_some() {
            self.stored_parent(key, &cache.kv)?;
        }
        let known = &sequence.tokens[..sequence.most_shared()];
        let kept = if sequence.shares { cache.matching(namespace, known).unwrap_or(0) } else { 0 };
        if let Some((other, tokens)) = self.ahead(key, inherited.max(kept), &cache.kv) {
            let ahead = self.sequences.get(&other)?;
            let kv = ahead.kv.filter(|_| ahead.stored(&cache.kv) >= tokens)?;
            let origin = if other.task == key.task { Origin::Kept } else { Origin::Running };
            return Some((cache.kv.fork(kv, tokens), origin));
        }
        if kept > inherited {
            return Some((cache.begin(namespace, known), Origin::Kept));
        }
        Some((self.inherited(key, cache)?, Origin::Parent))
    }

    /// Finds an earlier sequence that stores, or is about to store, enough tokens beyond `known` that they are worth waiting
    /// for, and the number of shared tokens.
    fn ahead<P: PageStore>(&self, key: Key, known: usize, kv: &KvCache<P>) -> Option<(Key, usize)> {
        let sequence = &self.sequences[&key];
        if !sequence.shares {
            return None;
        }
        let most = &sequence.tokens[..sequence.most_shared()];
        let namespace = &self.flows[&key.task].namespace;
        let mut best: Option<(Key, usize)> = None;
        for (&other, ahead) in self.sequences.range(..key) {
            if ahead.kv.is_none() || !ahead.shares || self.flows[&other.task].namespace != *namespace {
                continue;
            }
            // Children of one parent share its tokens without a comparison.
            let from = match (sequence.parent, ahead.parent) {
                (Some(own), Some(theirs)) if own == theirs && other.task == key.task => own.1,
                _ => 0,
            };
            let both = most[from.min(most.len())..].iter().zip(&ahead.tokens[from.min(ahead.tokens.len())..]);
            let mut common = from + both.take_while(|(a, b)| a == b).count();
            if ahead.generates {
                // Its next token might match too, but that is no reason to wait for every token it generates.
                common = common.min(ahead.stored(kv));
            }
            // It may pass the last common token without an end there.
            if common < ahead.tokens.len() {
                common = kv.always_continuable(common);
            }
            let gone = |id: SeqId| ahead.stored(kv) >= common && !kv.can_continue(id, common);
            if ahead.kv.is_some_and(gone) {
                continue;
            }
            if common >= known + WORTH_WAITING && best.is_none_or(|(_, tokens)| common > tokens) {
                best = Some((other, common));
            }
        }
        best
    }
}
