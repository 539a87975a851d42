//! Which pages a sequence owns, and where it can be continued.

use super::*;
use redline_kernels::op::kv::{KvFormat, KvShape};

fn cache() -> KvCache {
    with_pages(5)
}

fn with_pages(pages: usize) -> KvCache {
    let keys = [KvShape { format: KvFormat::F32, kv_heads: 1, head_dim: 8 }];
    KvCache::new(&PageShape::from(&keys[..]), pages)
}

#[test]
fn a_fork_shares_full_pages_and_copies_the_partial_one_when_written() {
    let mut kv = cache();
    let parent = kv.create();
    kv.reserve(parent, 100).unwrap();
    kv.store(parent, 100);
    let child = kv.fork(parent, 100);
    assert_eq!(kv.pages_in_use(), 2);
    kv.reserve(child, 1).unwrap();
    assert_eq!(kv.pages(child)[0], kv.pages(parent)[0]);
    assert_ne!(kv.pages(child)[1], kv.pages(parent)[1]);
    assert_eq!(kv.pages_in_use(), 3);
    // The parent is now alone on its page and keeps it.
    let page = kv.pages(parent)[1];
    kv.reserve(parent, 1).unwrap();
    assert_eq!(kv.pages(parent)[1], page);
}

#[test]
fn pages_come_back_when_the_last_owner_lets_go() {
    let mut kv = cache();
    let parent = kv.create();
    kv.reserve(parent, 200).unwrap();
    kv.store(parent, 200);
    let child = kv.fork(parent, 64);
    kv.release(parent);
    assert_eq!(kv.pages_in_use(), 1);
    kv.release(child);
    assert_eq!(kv.pages_in_use(), 0);
    let again = kv.create();
    kv.reserve(again, 256).unwrap();
    assert_eq!(kv.pages.len(), 4, "free pages are used before new ones are made");
}

#[test]
fn there_are_never_more_pages_than_the_limit() {
    let mut kv = cache();
    let (first, second) = (kv.create(), kv.create());
    kv.reserve(first, 4 * PAGE_TOKENS + 1).unwrap();
    assert_eq!(kv.reserve(second, 1), Err(KvError::Full { pages: 5 }));
    kv.release(first);
    kv.reserve(second, 5 * PAGE_TOKENS).unwrap();
    assert_eq!((kv.pages_in_use(), kv.pages.len(), kv.room()), (5, 5, 0));
}

#[test]
fn room_is_foreseen_exactly() {
    let mut kv = cache();
    let parent = kv.create();
    kv.reserve(parent, 100).unwrap();
    kv.store(parent, 100);
    let (child, other) = (kv.fork(parent, 100), kv.create());
    kv.reserve(other, 3 * PAGE_TOKENS).unwrap();
    // All five pages are owned; the child needs a copy of the page that it shares.
    assert!(kv.has_room_without(child, 0, []) && !kv.has_room_without(child, 1, []));
    // Without the parent the child is alone on that page.
    assert!(kv.has_room_without(child, 28, [parent]) && !kv.has_room_without(child, 29, [parent]));
    let most = 28 + 3 * PAGE_TOKENS;
    assert!(kv.has_room_without(child, most, [parent, other]));
    assert!(!kv.has_room_without(child, most + 1, [parent, other]));
    // Without the other sequence, one page goes to the copy.
    assert!(kv.has_room_without(child, 28 + 2 * PAGE_TOKENS, [other]));
    assert!(!kv.has_room_without(child, 29 + 2 * PAGE_TOKENS, [other]));
    kv.release(other);
    kv.reserve(child, 28 + 2 * PAGE_TOKENS).unwrap();
    assert_eq!(kv.room(), 0);
}

#[test]
fn growth_is_what_reserving_adds() {
    let mut kv = cache();
    let parent = kv.create();
    assert_eq!((kv.growth(parent, 0), kv.growth(parent, 64), kv.growth(parent, 65)), (0, 1, 2));
    kv.reserve(parent, 100).unwrap();
    kv.store(parent, 100);
    assert_eq!((kv.growth(parent, 28), kv.growth(parent, 29), kv.allocated()), (0, 1, 2));
    let child = kv.fork(parent, 100);
    // The shared page is copied.
    assert_eq!((kv.growth(child, 0), kv.growth(child, 1), kv.growth(child, 29)), (0, 1, 2));
    let other = kv.create();
    kv.reserve(other, 64).unwrap();
    kv.release(other);
    assert_eq!((kv.growth(child, 1), kv.growth(child, 29)), (0, 1), "a free page is used first");
}

#[test]
fn truncating_gives_back_whole_pages() {
    let mut kv = cache();
    let id = kv.create();
    kv.reserve(id, 130).unwrap();
    kv.store(id, 130);
    kv.truncate(id, 64);
    assert_eq!((kv.tokens(id), kv.pages_in_use()), (64, 1));
    kv.truncate(id, 0);
    assert_eq!(kv.pages_in_use(), 0);
}

#[test]
fn a_page_that_cannot_be_copied_stays_shared() {
    let mut kv = cache();
    let parent = kv.create();
    kv.reserve(parent, 100).unwrap();
    kv.store(parent, 100);
    let (child, other) = (kv.fork(parent, 100), kv.create());
    kv.reserve(other, 3 * PAGE_TOKENS).unwrap();
    assert_eq!(kv.reserve(child, 0), Ok(()), "nothing will be written");
    assert_eq!(kv.reserve(child, 1), Err(KvError::Full { pages: 5 }));
    assert_eq!(kv.pages(child), kv.pages(parent));
    kv.release(parent);
    assert_eq!(kv.pages_in_use(), 5, "the child owns its pages");
    kv.reserve(child, 28).unwrap();
    assert_eq!((kv.pages_in_use(), kv.pages(child).len()), (5, 2));
    kv.release(child);
    kv.release(other);
    assert_eq!((kv.pages_in_use(), kv.sequences()), (0, 0));
}

#[test]
fn pages_that_no_later_row_sees_are_given_back() {
    // The row at position p sees the keys from p - 69 on.
    let mut kv = cache().windowed(Some(70));
    let id = kv.create();
    kv.reserve(id, 133).unwrap();
    kv.store(id, 132);
    kv.release_out_of_window(id);
    assert_eq!(kv.pages_in_use(), 3, "the next row sees token 63");
    let fork = kv.fork(id, 132);
    kv.store(id, 133);
    kv.release_out_of_window(id);
    assert_eq!(kv.pages_in_use(), 3, "the fork still owns the first page");
    assert!(kv.can_continue(id, 133) && kv.can_continue(fork, 132) && !kv.can_continue(id, 132));
    let late = kv.fork(id, 133);
    kv.release(fork);
    assert_eq!((kv.pages_in_use(), kv.pages(late).len()), (2, 3));
    // Pages that were given back are not needed again, and are not given back twice.
    kv.release_out_of_window(late);
    kv.reserve(late, 3 * PAGE_TOKENS - 133).unwrap();
    kv.store(late, 3 * PAGE_TOKENS);
    // Both have a copy of the last page, and share the one before.
    let has_room = |pages: usize, without: &[SeqId]| {
        kv.has_room_without(late, pages * PAGE_TOKENS, without.iter().copied())
    };
    assert!(has_room(2, &[]) && !has_room(3, &[]) && has_room(3, &[id]) && !has_room(4, &[id]));
    kv.release(id);
    kv.release_out_of_window(late);
    assert_eq!(kv.pages_in_use(), 2);
    kv.truncate(late, 0);
    assert_eq!((kv.pages_in_use(), kv.pages(late).len()), (0, 0));
    kv.reserve(late, 5 * PAGE_TOKENS).unwrap();
    assert!(kv.pages(late).iter().all(|page| *page < 5));
}

#[test]
#[should_panic(expected = "fork at 132, where nothing can continue")]
fn a_fork_that_needs_pages_that_are_gone_is_refused() {
    let mut kv = cache().windowed(Some(70));
    let id = kv.create();
    kv.reserve(id, 133).unwrap();
    kv.store(id, 133);
    kv.release_out_of_window(id);
    kv.fork(id, 132);
}

/// A layer with three inputs before a row, in five slots.
#[test]
fn a_sequence_with_inputs_continues_at_its_end_and_where_a_page_ends() {
    let inputs = vec![ConvInputs { channels: 8, rows: 3, slots: 5 }];
    let mut kv = KvCache::new(&PageShape { inputs, ..PageShape::default() }, 9);
    let id = kv.create();
    kv.reserve(id, 150).unwrap();
    kv.store(id, 150);
    let places =
        |kv: &KvCache, id| (0..=kv.tokens(id)).filter(|n| kv.can_continue(id, *n)).collect::<Vec<_>>();
    // Two more slots than inputs.
    assert_eq!((kv.rollback_limit(), cache().rollback_limit()), (2, usize::MAX));
    assert_eq!(places(&kv, id), [0, 62, 63, 64, 126, 127, 128, 148, 149, 150]);
    assert_eq!(
        [150, 149, 147, 130, 128, 100, 63, 20].map(|most| kv.continuable(id, most)),
        [150, 149, 128, 128, 128, 64, 63, 0]
    );
    // What was taken back has overwritten earlier inputs.
    kv.truncate(id, 149);
    assert_eq!(places(&kv, id), [0, 62, 63, 64, 126, 127, 128, 148, 149]);
    kv.store(id, 150);
    assert_eq!(places(&kv, id), [0, 62, 63, 64, 126, 127, 128, 148, 149, 150]);
    kv.truncate(id, 148);
    kv.store(id, 149);
    assert_eq!(places(&kv, id), [0, 62, 63, 64, 126, 127, 128, 148, 149]);
    let fork = kv.fork(id, 127);
    kv.reserve(fork, 2).unwrap();
    assert_eq!(places(&kv, fork), [0, 62, 63, 64, 126, 127]);
    kv.store(fork, 129);
    // The page after it is new.
    assert_eq!(places(&kv, fork), [0, 62, 63, 64, 126, 127, 128, 129]);
}

fn places(kv: &KvCache, id: SeqId) -> Vec<usize> {
    (0..=kv.tokens(id)).filter(|n| kv.can_continue(id, *n)).collect()
}

fn run(kv: &mut KvCache, id: SeqId, tokens: usize) {
    kv.reserve(id, tokens).unwrap();
    kv.store(id, kv.tokens(id) + tokens);
}

#[test]
fn a_sequence_with_a_state_continues_at_its_end_and_at_snapshots() {
    let states = StateShape { pages: 2, every: 64, log: 3 };
    let mut kv = with_pages(20).with_states(Some(states));
    let id = kv.create();
    assert_eq!((kv.growth(id, 70), kv.growth(id, 0)), (4, 0));
    run(&mut kv, id, 70);
    assert_eq!((kv.pages_in_use(), places(&kv, id), kv.state(id).1), (4, vec![0, 70], 70));
    let first = kv.state(id).0.to_vec();
    kv.snapshot(id);
    kv.snapshot(id);
    assert_eq!(kv.pages_in_use(), 4);
    // It goes on with a copy.
    assert_eq!(kv.growth(id, 10), 2);
    run(&mut kv, id, 10);
    assert_eq!((kv.pages_in_use(), places(&kv, id)), (6, vec![0, 70, 80]));
    assert!(kv.state(id).0.iter().all(|page| !first.contains(page)));
    assert_eq!([80, 79, 70, 69].map(|most| kv.continuable(id, most)), [80, 70, 70, 0]);
    let fork = kv.fork(id, 70);
    assert_eq!((kv.pages_in_use(), kv.state(fork)), (6, (&first[..], 70)));
    // A copy of the page that both write to, and of the state.
    run(&mut kv, fork, 1);
    assert_eq!((kv.pages_in_use(), places(&kv, fork)), (9, vec![0, 70, 71]));
    kv.release(id);
    assert_eq!((kv.pages_in_use(), places(&kv, fork)), (6, vec![0, 70, 71]));
    kv.truncate(fork, 70);
    assert_eq!((kv.pages_in_use(), kv.state(fork), kv.tokens(fork)), (4, (&first[..], 70), 70));
    kv.truncate(fork, 0);
    assert_eq!((kv.pages_in_use(), kv.state(fork)), (0, (&[][..], 0)));
    kv.release(fork);
}

#[test]
fn drafts_are_in_the_log_of_the_state_before_them() {
    let states = StateShape { pages: 1, every: 64, log: 3 };
    let mut kv = with_pages(20).with_states(Some(states));
    assert_eq!(kv.rollback_limit(), 3);
    let id = kv.create();
    run(&mut kv, id, 70);
    kv.reserve(id, 4).unwrap();
    kv.store_with_drafts(id, 74, 3);
    assert_eq!((kv.state(id).1, places(&kv, id)), (71, vec![0, 71, 72, 73, 74]));
    kv.truncate(id, 72);
    let fork = kv.fork(id, 72);
    assert_eq!((kv.state(id).1, kv.state(fork).1, places(&kv, id)), (71, 71, vec![0, 71, 72]));
    run(&mut kv, fork, 1);
    assert_eq!((kv.state(fork).1, places(&kv, fork)), (73, vec![0, 71, 73]));
}

#[test]
fn snapshots_are_few_and_given_up_for_room() {
    let states = StateShape { pages: 1, every: 64, log: 0 };
    let mut kv = with_pages(12).with_states(Some(states));
    let id = kv.create();
    for tokens in [5, 5, 1, 5, 5, 5, 5, 5, 5, 5] {
        run(&mut kv, id, tokens);
        kv.snapshot(id);
    }
    // Two of ten are gone: those that are nearest to others.
    assert_eq!(places(&kv, id), [0, 5, 11, 21, 26, 31, 36, 41, 46]);
    assert_eq!(kv.pages_in_use(), 9);
    run(&mut kv, id, 1);
    let other = kv.create();
    assert!(kv.has_room_without(other, 9 * 64, []) && !kv.has_room_without(other, 9 * 64 + 1, []));
    assert!(kv.reserve(other, 128).is_err());
    assert!(kv.forget_snapshot());
    assert_eq!(places(&kv, id), [0, 11, 21, 26, 31, 36, 41, 46, 47]);
    kv.reserve(other, 64).unwrap();
    while kv.forget_snapshot() {}
    assert_eq!(places(&kv, id), [0, 47]);
}

#[test]
fn prompts_are_divided_where_snapshots_are_kept() {
    let kv = with_pages(1).with_states(Some(StateShape { pages: 1, every: 128, log: 0 }));
    assert_eq!(
        [(0, 100), (0, 300), (127, 300), (128, 300)].map(|(a, b)| kv.next_snapshot(a, b)),
        [100, 128, 128, 256]
    );
    assert_eq!([0, 64, 128, 200, 256].map(|n| kv.is_snapshot(n)), [false, false, true, false, true]);
    assert_eq!([127, 128, 300].map(|n| kv.always_continuable(n)), [0, 128, 256]);
    assert_eq!((with_pages(1).next_snapshot(0, 300), with_pages(1).is_snapshot(128)), (300, false));
}

#[test]
fn a_sequence_moves_onto_the_pages_of_one_that_begins_with_its_tokens() {
    let keys = vec![KvShape { format: KvFormat::F32, kv_heads: 1, head_dim: 8 }];
    let inputs = vec![ConvInputs { channels: 8, rows: 2, slots: 2 }];
    for (inputs, own) in [(Vec::new(), 0), (inputs, 1)] {
        let mut kv = KvCache::new(&PageShape { keys: keys.clone(), inputs, ..PageShape::default() }, 9);
        let [parent, child] = [100, 130].map(|tokens| {
            let id = kv.create();
            kv.reserve(id, tokens).unwrap();
            kv.store(id, tokens);
            id
        });
        assert_eq!(kv.pages_in_use(), 5);
        kv.share(parent, child);
        assert_eq!((kv.pages_in_use(), kv.tokens(parent)), (3 + own, 100));
        assert_eq!(kv.pages(parent)[..1], kv.pages(child)[..1]);
        assert_eq!(kv.pages(parent)[1] == kv.pages(child)[1], own == 0);
        assert!(kv.can_continue(parent, 100));
        kv.release(child);
        assert_eq!(kv.pages_in_use(), 2);
        kv.release(parent);
        assert_eq!(kv.pages_in_use(), 0);
    }
}

#[test]
fn tokens_that_are_stored_again_are_no_end() {
    let mut kv = cache();
    let id = kv.create();
    kv.reserve(id, 100).unwrap();
    kv.store(id, 100);
    kv.store(id, 40);
    assert_eq!(kv.tokens(id), 100);
}
