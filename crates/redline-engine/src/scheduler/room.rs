//! Room for keys and values: which sequences are admitted, and which give way.
//!
//! A sequence is admitted only where all its tokens fit. When pages run out, what earlier requests left goes first; then a
//! later sequence gives way to an earlier one, and is run again from its tokens, with the same bits. Sequences are ordered
//! by their keys: arrival of the request, rank, number. A sequence that is *held* has been run to its end: it is stored for
//! others to begin like it, or waits for its request. The rules:
//!
//! 1. Only a later sequence gives way to an earlier one: the latest first, and only if the earlier one has room then.
//! 2. No sequence is admitted while an earlier one waits for room, except by rule 5.
//! 3. A held sequence that gave way is not run again for its own sake. It takes its place in the order again when its
//!    request goes on with it, or when a sequence that begins like it is about to be admitted.
//! 4. What a request opens next is opened before open sequences of higher rank are considered. So the labels that a held
//!    prompt waits for come before the prompts behind it.
//! 5. If nothing goes on, the first sequence in the order that is not held takes room from all later ones (`make_way`).
//!
//! Hence the earliest request always comes to its end. Let F be the first sequence of the earliest request that is not
//! held. By rule 4 all that is held before F is what F begins like, or belongs to the few sequences of a request
//! that are run in lockstep; the engine has checked that these fit together with F (`engine/budget.rs`), provided that a
//! sequence and the one it begins like share pages, which [`Scheduler::join`] sees to. So if nothing goes on, F is
//! admitted. By rule 1 only sequences before F could take its room back. These are held and need no room until F has come
//! to its end. So each application of rule 5 finishes a sequence, or a token of one that generates.
//!
//! This also bounds what is run twice. A sequence gives way only when an earlier one is admitted by rule 5 or grows by a
//! page. By rule 3 it is then run again at most once before the next such event.

use std::ops::Bound;

use redline_models::kv::{KvCache, PageStore, SeqId};

use super::sequence::Sequence;
use super::{Added, Key, Origin, Pass, Scheduler};
use crate::cache::Cache;

/// A sequence waits for another one that is filling so many tokens which it would run too.
const WORTH_WAITING: usize = 32;

impl Scheduler {
    /// Makes room for so many tokens more; later sequences may have to give way.
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

    /// Sequences that a sequence begins like, and that are stored twice because it found its beginning elsewhere, take over
    /// its pages.
    fn join<P: PageStore>(&mut self, key: Key, cache: &mut Cache<P>) {
        let mut child = key;
        while let Some(parent) = self.parent(child) {
            if let (Some(from), Some(sequence)) = (self.sequences[&child].kv, self.sequences.get_mut(&parent))
                && let Some(old) = sequence.kv
                && cache.kv.tokens(old) <= cache.kv.tokens(from).min(sequence.tokens.len())
            {
                sequence.kv = Some(cache.kv.fork(from, cache.kv.tokens(old)));
                cache.kv.release(old);
            }
            child = parent;
        }
    }

    /// The sequences after one.
    fn later(&self, key: Key) -> impl DoubleEndedIterator<Item = (&Key, &Sequence)> {
        self.sequences.range((Bound::Excluded(key), Bound::Unbounded))
    }

    /// Who gives way to a sequence: the latest one after it.
    fn victim(&self, key: Key) -> Option<Key> {
        self.later(key).rev().find(|(_, s)| s.kv.is_some()).map(|(&later, _)| later)
    }

    /// Takes a sequence's memory; it is run again when there is room.
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

    /// Gives a sequence its beginning, from wherever most of it is stored, and room for all its tokens.
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
        // What it found elsewhere may lie on other pages than what it begins like anyway.
        if origin != Origin::Parent
            && let Some(kv) = self.inherited(key, cache)
            && self.enter(key, kv, Origin::Parent, make_way, cache, pass)
        {
            return Added::Piece;
        }
        Added::NoRoom
    }

    /// Gives a sequence this beginning, if there is room for all its tokens.
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
        let remaining = sequence.tokens.len() - stored;
        let admitted = self.reserve(key, remaining, make_way, cache, pass);
        let Some(sequence) = self.sequences.get_mut(&key) else { return false };
        if admitted {
            sequence.began.get_or_insert((stored, origin));
        } else if let Some(kv) = sequence.kv.take() {
            cache.kv.release(kv);
        }
        admitted
    }

    /// What has to be admitted before a sequence can be: the first of those that it begins like which gave way, else itself.
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

    /// The open sequence that a sequence begins like.
    fn parent(&self, key: Key) -> Option<Key> {
        let (index, _) = self.sequences.get(&key)?.parent?;
        self.key(key.task, index).filter(|parent| self.sequences.contains_key(parent))
    }

    /// A sequence that begins as its request said; `None` while that is not stored.
    fn inherited<P: PageStore>(&self, key: Key, cache: &mut Cache<P>) -> Option<SeqId> {
        match self.sequences[&key].parent {
            None => Some(cache.kv.create()),
            Some((_, tokens)) => Some(cache.kv.fork(self.stored_parent(key, &cache.kv)?, tokens)),
        }
    }

    /// The keys and values that a sequence begins with; `None` while they are not stored.
    fn stored_parent<P: PageStore>(&self, key: Key, kv: &KvCache<P>) -> Option<SeqId> {
        let (_, tokens) = self.sequences[&key].parent?;
        let parent = &self.sequences[&self.parent(key)?];
        parent.kv.filter(|_| parent.stored(kv) >= tokens)
    }

    /// A sequence that begins with the tokens of another one; `None` while those are not stored yet.
    fn beginning<P: PageStore>(&self, key: Key, cache: &mut Cache<P>) -> Option<(SeqId, Origin)> {
        let sequence = &self.sequences[&key];
        let salt = &self.flows[&key.task].salt;
        let inherited = sequence.parent.map_or(0, |(_, tokens)| tokens);
        if sequence.parent.is_some() {
            self.stored_parent(key, &cache.kv)?;
        }
        let known = &sequence.tokens[..sequence.most_shared()];
        let kept = if sequence.shares { cache.matching(salt, known).unwrap_or(0) } else { 0 };
        if let Some((other, tokens)) = self.ahead(key, inherited.max(kept), &cache.kv) {
            let ahead = self.sequences.get(&other)?;
            let kv = ahead.kv.filter(|_| ahead.stored(&cache.kv) >= tokens)?;
            let origin = if other.task == key.task { Origin::Kept } else { Origin::Running };
            return Some((cache.kv.fork(kv, tokens), origin));
        }
        if kept > inherited {
            return Some((cache.begin(salt, known), Origin::Kept));
        }
        Some((self.inherited(key, cache)?, Origin::Parent))
    }

    /// An earlier sequence that stores, or is about to store, so many more of a sequence's tokens than `known` that taking
    /// them over is worth a wait; and how many they share.
    fn ahead<P: PageStore>(&self, key: Key, known: usize, kv: &KvCache<P>) -> Option<(Key, usize)> {
        let sequence = &self.sequences[&key];
        if !sequence.shares {
            return None;
        }
        let most = &sequence.tokens[..sequence.most_shared()];
        let salt = &self.flows[&key.task].salt;
        let mut best: Option<(Key, usize)> = None;
        for (&other, ahead) in self.sequences.range(..key) {
            if ahead.kv.is_none() || !ahead.shares || self.flows[&other.task].salt != *salt {
                continue;
            }
            // Children of one parent share that much without a look.
            let from = match (sequence.parent, ahead.parent) {
                (Some(own), Some(theirs)) if own == theirs && other.task == key.task => own.1,
                _ => 0,
            };
            let both = most[from.min(most.len())..].iter().zip(&ahead.tokens[from.min(ahead.tokens.len())..]);
            let mut common = from + both.take_while(|(a, b)| a == b).count();
            if ahead.generates {
                // Its next token may be the one: that is no reason to wait for every token it makes.
                common = common.min(ahead.stored(kv));
            }
            if common >= known + WORTH_WAITING && best.is_none_or(|(_, tokens)| common > tokens) {
                best = Some((other, common));
            }
        }
        best
    }
}
