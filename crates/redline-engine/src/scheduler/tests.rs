//! Hand-written schedules.

use redline_kernels::op::kv::PAGE_TOKENS;
use redline_models::kv::KvCache;

use super::*;
use crate::simulator::Ledger;

/// Sequences that requests open, the last one first.
#[derive(Default)]
struct Unopened(BTreeMap<u64, Vec<Opening>>);

impl Openings for Unopened {
    fn next_rank(&self, task: u64) -> Option<u32> {
        Some(self.0.get(&task)?.last()?.rank)
    }

    fn open(&mut self, task: u64) -> Option<Opening> {
        self.0.get_mut(&task)?.pop()
    }
}

/// A scheduler, and the sequences of its requests that are not open yet.
struct Bench {
    scheduler: Scheduler,
    cache: Cache<Ledger>,
    waiting: Unopened,
    /// The request whose sequences end after one pass, and the request whose sequences are held.
    scored: Option<u64>,
    holds: Option<u64>,
    /// The drafts of all that generate, how many of them are right, and the request that then ends.
    drafts: Vec<u32>,
    right: usize,
    stores: Option<u64>,
}

impl Bench {
    fn new(rows: usize, pages: usize, stall_s: Option<f64>) -> Self {
        // A pass takes 0.1 s plus 1 ms per row.
        let mut cost = CostModel::new(0.0);
        for rows in [1, 8, 64, 500] {
            cost.learn(Work { rows, pairs: 0, outputs: 0 }, 0.1 + 1e-3 * rows as f64);
        }
        let limits = PassLimits { rows, open: 256, stall_s };
        let cache = Cache::new(KvCache::over(Ledger::default(), pages), Some(usize::MAX));
        Self {
            scheduler: Scheduler::new(limits, cost),
            cache,
            waiting: Unopened::default(),
            scored: None,
            holds: None,
            drafts: Vec::new(),
            right: 0,
            stores: None,
        }
    }

    /// Submits a request with one sequence.
    fn ask(&mut self, task: u64, salt: &str, tokens: Vec<u32>) {
        self.ask_for("", task, salt, tokens);
    }

    /// Submits a request of a tenant.
    fn ask_for(&mut self, tenant: &str, task: u64, salt: &str, tokens: Vec<u32>) {
        self.scheduler.arrive(task, tenant, salt.into());
        let wanted = tokens.len() - 1;
        let opening = Opening { tokens, wanted, shares: true, ..Opening::default() };
        self.waiting.0.insert(task, vec![opening]);
    }

    /// The next pass as (request, tokens stored, tokens run).
    fn pass(&mut self) -> Vec<(u64, usize, usize)> {
        let step = self.scheduler.next(&mut self.cache, &mut self.waiting).unwrap();
        for piece in &step.pieces {
            let (sequence, tokens) = self.scheduler.tokens(piece).unwrap();
            let end = piece.start + tokens.len();
            self.cache.kv.store(sequence, end);
        }
        let seconds = 0.1 + 1e-3 * step.pieces.iter().map(|piece| piece.tokens as f64).sum::<f64>();
        for (task, done) in self.scheduler.ran(&step.pieces, seconds) {
            for one in done {
                let next = match Some(task) {
                    task if task == self.scored => Next::Drop,
                    task if task == self.holds => Next::Hold,
                    task if task == self.stores => Next::Store,
                    _ => Next::Extend { token: 1, drafts: self.drafts.clone() },
                };
                self.scheduler.update(task, one.index, Next::Accept(self.right), &mut self.cache);
                self.scheduler.update(task, one.index, next, &mut self.cache);
            }
        }
        step.pieces.iter().map(|piece| (piece.key.task, piece.start, piece.tokens)).collect()
    }
}

fn tokens(n: u32, seed: u32) -> Vec<u32> {
    (0..n).map(|i| i * 31 + seed).collect()
}

#[test]
fn a_prompt_comes_in_pieces_while_somebody_generates() {
    for (stall_s, piece) in [(Some(0.0), MIN_PIECE), (Some(0.05), 50), (None, 80)] {
        let mut bench = Bench::new(512, 100, stall_s);
        bench.ask(0, "", tokens(100, 1));
        assert_eq!(bench.pass(), [(0, 0, 100)], "nobody generates yet: all at once");
        assert_eq!(bench.pass(), [(0, 100, 1)]);
        bench.ask(1, "", tokens(400, 2));
        let pass = bench.pass();
        assert_eq!(pass[0], (0, 101, 1), "the next token is always among them");
        // Without a limit: 4/5 of the 101 ms that the token alone takes.
        assert!(pass[1].0 == 1 && pass[1].2.abs_diff(piece) <= 1, "{stall_s:?}: {pass:?}");
    }
}

#[test]
fn a_request_waits_for_one_that_is_running_what_it_would_run() {
    let mut bench = Bench::new(64, 100, None);
    let both = tokens(200, 3);
    bench.ask(0, "", [both.clone(), tokens(10, 900)].concat());
    bench.ask(1, "", [both.clone(), tokens(10, 800)].concat());
    bench.ask(2, "other", [both, tokens(10, 700)].concat());
    let mut run = BTreeMap::new();
    for _ in 0..9 {
        for (task, stored, tokens) in bench.pass() {
            run.entry(task).or_insert_with(Vec::new).push((stored, tokens));
        }
    }
    let first = |task: u64| run[&task][0];
    assert_eq!((first(0).0, first(1).0), (0, 200), "the second begins where they part: {run:?}");
    assert_eq!(first(2).0, 0, "another salt shares nothing: {run:?}");
}

#[test]
fn nobody_waits_for_tokens_that_are_still_being_made() {
    let mut bench = Bench::new(512, 100, None);
    bench.ask(0, "", tokens(100, 5));
    bench.pass();
    bench.pass();
    // The second request's prompt is what the first one generates, token by token.
    bench.ask(1, "", [tokens(100, 5), vec![1; 60]].concat());
    assert!(bench.pass().iter().any(|&(task, stored, _)| (task, stored) == (1, 101)));
}

#[test]
fn the_latest_gives_way_and_none_that_comes_later_takes_its_room() {
    let mut bench = Bench::new(512, 4, None);
    bench.ask(0, "", tokens(120, 1));
    bench.ask(1, "", tokens(120, 2));
    for _ in 0..10 {
        bench.pass();
    }
    // Both need a third page now; only one is left, for the first, and the second is preempted.
    assert_eq!(bench.scheduler.preemptions(), 1);
    bench.ask(2, "", tokens(30, 3));
    let pass = bench.pass();
    assert!(pass.iter().all(|(task, ..)| *task == 0), "{pass:?}");
    bench.scheduler.leave(0, &mut bench.cache);
    let pass = bench.pass();
    assert!(pass.iter().any(|&(task, stored, tokens)| (task, stored) == (1, 0) && tokens > 120), "{pass:?}");
}

#[test]
fn a_request_of_many_tokens_lets_later_ones_have_their_turn() {
    let mut bench = Bench::new(512, 1000, None);
    bench.scheduler.arrive(0, "", String::new());
    bench.scored = Some(0);
    let opening = |i| Opening { tokens: tokens(400, i), wanted: 399, ..Opening::default() };
    bench.waiting.0.insert(0, (0..100).map(opening).collect());
    let all_first = |pass: &[(u64, usize, usize)]| pass.iter().all(|(task, ..)| *task == 0);
    (0..9).for_each(|_| assert!(all_first(&bench.pass())));
    bench.ask(1, "", tokens(50, 7));
    // The first request's turn ends, and the second runs before the first one's further prompts.
    let passes = [bench.pass(), bench.pass()];
    assert!(all_first(&passes[0]) && passes[1].contains(&(1, 0, 50)), "{passes:?}");
}

#[test]
fn tenants_take_turns_however_many_requests_each_has() {
    let run = |tenant: &str| {
        let mut bench = Bench::new(512, 10_000, None);
        (0..20).for_each(|task| bench.ask_for("flood", task, "", tokens(4000, 50 * task as u32)));
        // The flood has been served before.
        (0..40).for_each(|_| drop(bench.pass()));
        bench.ask_for(tenant, 20, "", tokens(4000, 7777));
        let passes = (0..12).flat_map(|_| bench.pass());
        passes.filter(|(task, ..)| *task == 20).map(|(.., tokens)| tokens).sum::<usize>()
    };
    // Half of 12 passes of 512 rows, or up to a turn less.
    let (of_own, of_flood) = (run("other"), run("flood"));
    assert!((2048..=4000).contains(&of_own), "{of_own}");
    assert!(of_flood <= 1024 + 512, "{of_flood}: one of 21 requests of a tenant");
}

#[test]
fn a_tenant_is_forgotten_with_its_last_request() {
    let mut bench = Bench::new(512, 100, None);
    bench.ask_for("a", 0, "", tokens(10, 1));
    bench.ask_for("a", 1, "", tokens(10, 2));
    bench.ask_for("b", 2, "", tokens(10, 3));
    for task in [0, 2, 1] {
        bench.scheduler.leave(task, &mut bench.cache);
    }
    assert!(bench.scheduler.tenants.is_empty());
}

#[test]
fn more_that_generate_than_rows_take_turns_and_leave_some_to_prompts() {
    let mut bench = Bench::new(8, 1000, None);
    for task in 0..12 {
        bench.ask(task, "", tokens(4, 100 * task as u32));
    }
    // All prompts are run, whatever their order.
    (0..40).for_each(|_| drop(bench.pass()));
    let tasks = |passes: &[Vec<(u64, usize, usize)>]| -> Vec<u64> {
        let mut all: Vec<u64> = passes.iter().flatten().map(|(task, ..)| *task).collect();
        all.sort_unstable();
        all
    };
    let three = [bench.pass(), bench.pass(), bench.pass()];
    assert!(three.iter().all(|pass| pass.len() == 8));
    let twice: Vec<u64> = (0..12).flat_map(|task| [task, task]).collect();
    assert_eq!(tasks(&three), twice, "two tokens each");
    bench.ask(12, "", tokens(40, 9));
    let read: usize =
        (0..20).flat_map(|_| bench.pass()).filter(|(task, ..)| *task == 12).map(|(.., n)| n).sum();
    assert!(read >= 40, "{read} tokens of the prompt in 20 passes of 8 rows");
}

#[test]
fn what_needs_no_run_may_give_way_in_the_same_step_and_is_not_told_of_then() {
    let mut bench = Bench::new(512, 3, None);
    bench.scored = Some(0);
    bench.ask(0, "", tokens(64, 1));
    // An earlier request has stored all tokens of the second one.
    bench.pass();
    let kept = bench.cache.begin("", &[]);
    bench.cache.reserve(kept, 64).unwrap();
    bench.cache.kv.store(kept, 64);
    bench.cache.keep("", &tokens(64, 2), kept);
    bench.cache.kv.release(kept);
    bench.scheduler.arrive(1, "", String::new());
    let opening = Opening { tokens: tokens(64, 2), wanted: 64, shares: true, ..Opening::default() };
    bench.waiting.0.insert(1, vec![opening]);
    let mut pass = Pass::default();
    let key = bench.scheduler.open(1, &mut bench.waiting).unwrap();
    assert_eq!(bench.scheduler.add(key, false, &mut bench.cache, &mut pass), Added::Stored);
    bench.scheduler.preempt(key, &mut bench.cache, &mut pass);
    assert!(pass.is_empty());
    // The request comes again, and uses what is still kept.
    let step = bench.scheduler.next(&mut bench.cache, &mut bench.waiting).unwrap();
    assert_eq!((step.pieces.len(), step.stored.len()), (0, 1));
}

#[test]
fn the_latest_of_several_gives_way() {
    let mut bench = Bench::new(512, 6, None);
    for task in 0..3 {
        bench.ask(task, "", tokens(126, 10 * task as u32));
    }
    // All six pages are taken. Each generates until the first needs a third page.
    bench.pass();
    (0..3).for_each(|_| drop(bench.pass()));
    let stored = |task| bench.scheduler.sequences[&Key { task, rank: 0, index: 0 }].kv.is_some();
    assert_eq!([0, 1, 2].map(stored), [true, true, false]);
    assert_eq!(bench.scheduler.preemptions(), 1, "its two pages are enough for both");
}

#[test]
fn nobody_gives_way_in_vain() {
    let mut bench = Bench::new(512, 4, None);
    bench.holds = Some(1);
    let retained = bench.cache.kv.create();
    bench.cache.kv.reserve(retained, 2 * PAGE_TOKENS).unwrap();
    bench.ask(0, "", tokens(150, 1));
    bench.ask(1, "", tokens(100, 2));
    // Two pages are taken by others: the first request, which needs three, waits, and the second continues.
    assert_eq!(bench.pass(), [(1, 0, 100)]);
    // The second one is held. Preempting it would not make enough room for the first.
    let stuck = bench.scheduler.next(&mut bench.cache, &mut bench.waiting).unwrap_err();
    assert_eq!((stuck.task, stuck.error), (0, Some(KvError::Full { pages: 4 })));
    assert_eq!(bench.scheduler.preemptions(), 0);
    bench.cache.kv.release(retained);
    assert_eq!(bench.pass(), [(0, 0, 150)]);
    assert_eq!(bench.scheduler.preemptions(), 1);
}

#[test]
fn what_a_sequence_found_at_first_stays_so_after_it_gave_way() {
    let mut bench = Bench::new(512, 4, None);
    bench.ask(0, "", tokens(120, 1));
    bench.ask(1, "", tokens(120, 2));
    let reused = |bench: &Bench| bench.scheduler.sequences[&Key { task: 1, rank: 0, index: 0 }].reused;
    bench.pass();
    assert_eq!(reused(&bench), Some((0, Origin::Parent)));
    // The second is preempted. Another request stores the same tokens meanwhile.
    (0..10).for_each(|_| drop(bench.pass()));
    assert_eq!(bench.scheduler.preemptions(), 1);
    bench.scheduler.leave(0, &mut bench.cache);
    let kept = bench.cache.kv.create();
    bench.cache.reserve(kept, 64).unwrap();
    bench.cache.kv.store(kept, 64);
    bench.cache.keep("", &tokens(64, 2), kept);
    bench.cache.kv.release(kept);
    let pass = bench.pass();
    assert!(pass[0].0 == 1 && pass[0].1 == 64, "it begins with that: {pass:?}");
    assert_eq!(reused(&bench), Some((0, Origin::Parent)));
}

/// A held prompt, and a sequence after it.
fn held_and_behind(bench: &mut Bench) -> (Key, Key) {
    let prompt = Opening { tokens: tokens(100, 1), wanted: 99, rank: 1, ..Opening::default() };
    let behind = Opening {
        tokens: tokens(101, 1),
        wanted: 100,
        rank: 1,
        parent: Some((0, 100)),
        ..Opening::default()
    };
    bench.scheduler.arrive(0, "", String::new());
    bench.waiting.0.insert(0, vec![behind, prompt]);
    (Key { task: 0, rank: 1, index: 0 }, Key { task: 0, rank: 1, index: 1 })
}

#[test]
fn a_held_sequence_that_gave_way_is_run_again_when_it_is_needed_and_not_before() {
    let mut bench = Bench::new(512, 10, None);
    let (prompt, behind) = held_and_behind(&mut bench);
    let later = bench.waiting.0.get_mut(&0).unwrap().remove(0);
    bench.holds = Some(0);
    bench.ask(1, "", tokens(30, 5));
    bench.pass();
    bench.scheduler.preempt(prompt, &mut bench.cache, &mut Pass::default());
    // There is room for it, but no sequence begins with it.
    for _ in 0..3 {
        assert!(bench.pass().iter().all(|(task, ..)| *task == 1));
    }
    bench.waiting.0.insert(0, vec![later]);
    // Now one does: the hundred tokens are run again, in pieces, then the sequence after them.
    let run: Vec<_> = (0..3).flat_map(|_| bench.pass()).filter(|(task, ..)| *task == 0).collect();
    assert_eq!(run.iter().map(|(.., n)| n).sum::<usize>(), 101, "{run:?}");
    assert_eq!((run[0].1, run[run.len() - 1].1), (0, 100));
    assert!(bench.scheduler.sequences[&behind].kv.is_some());
}

#[test]
fn a_sequence_stored_twice_takes_over_the_pages_of_the_one_that_begins_like_it() {
    let mut bench = Bench::new(512, 5, None);
    let (prompt, behind) = held_and_behind(&mut bench);
    bench.holds = Some(0);
    let later = bench.waiting.0.get_mut(&0).unwrap().remove(0);
    bench.pass();
    // The sequence after it was found elsewhere, on separate pages.
    let key = bench.scheduler.open(0, &mut Unopened(BTreeMap::from([(0, vec![later])]))).unwrap();
    assert_eq!(key, behind);
    let own = bench.cache.kv.create();
    bench.cache.reserve(own, 100).unwrap();
    bench.cache.kv.store(own, 100);
    bench.scheduler.sequences.get_mut(&behind).unwrap().kv = Some(own);
    assert_eq!(bench.cache.kv.pages_in_use(), 4);
    // Two more pages, and a copy of the page that both write to: one more than there are, unless they are joined.
    assert!(bench.scheduler.reserve(behind, 2 * PAGE_TOKENS, true, &mut bench.cache, &mut Pass::default()));
    assert_eq!(bench.cache.kv.pages_in_use(), 5);
    let kv = |key| bench.scheduler.sequences[&key].kv.unwrap();
    let shared = (bench.cache.kv.pages(kv(prompt)).to_vec(), bench.cache.kv.pages(kv(behind))[..1].to_vec());
    assert_eq!(shared.0[..1], shared.1);
    assert_eq!(bench.cache.kv.tokens(kv(prompt)), 100);
}

#[test]
fn a_request_that_comes_late_waits_for_one_turn_of_each_other_request() {
    let mut bench = Bench::new(512, 1000, None);
    (bench.scored, bench.holds) = (Some(0), Some(1));
    for task in 0..2 {
        bench.scheduler.arrive(task, "", String::new());
        let seed = 1000 * task as u32;
        let opening = |i: u32| Opening { tokens: tokens(400, seed + i), wanted: 399, ..Opening::default() };
        bench.waiting.0.insert(task, (0..40).map(opening).collect());
    }
    // Two turns of two passes each.
    (0..8).for_each(|_| drop(bench.pass()));
    // The third request begins where the other two are, although 4096 tokens were run for both together.
    bench.ask(2, "", tokens(50, 7));
    let passes: Vec<_> = (0..5).map(|_| bench.pass()).collect();
    assert!(passes[..4].iter().flatten().all(|(task, ..)| *task != 2), "{passes:?}");
    assert!(passes[4].contains(&(2, 0, 50)), "{passes:?}");
}

/// Two requests that generate in three of four pages, and a third one that needs two pages and waits.
fn one_that_waits() -> Bench {
    let mut bench = Bench::new(512, 4, None);
    bench.ask(0, "", tokens(30, 1));
    bench.ask(1, "", tokens(120, 2));
    bench.pass();
    bench.ask(2, "", tokens(120, 3));
    // The first of these passes measures the time without prompts; the others have time for some.
    for _ in 0..3 {
        assert!(bench.pass().iter().all(|(task, ..)| *task != 2));
    }
    assert_eq!(bench.scheduler.waiting.map(|key| key.task), Some(2));
    bench
}

#[test]
fn what_waits_for_room_is_run_once_there_is_some_though_others_generate() {
    let mut bench = one_that_waits();
    bench.scheduler.leave(1, &mut bench.cache);
    let passes = [bench.pass(), bench.pass()];
    assert!(passes.iter().all(|pass| pass.iter().any(|(task, ..)| *task == 0)), "{passes:?}");
    assert!(passes[1].iter().any(|&(task, stored, _)| (task, stored) == (2, 0)), "{passes:?}");
}

#[test]
fn what_waited_for_room_and_left_keeps_nobody_out() {
    let mut bench = one_that_waits();
    bench.scheduler.leave(2, &mut bench.cache);
    bench.ask(3, "", tokens(30, 4));
    let pass = bench.pass();
    assert!(pass.contains(&(3, 0, 30)), "{pass:?}");
}

#[test]
fn so_many_sequences_are_open_and_held_ones_do_not_count() {
    for holds in [None, Some(0)] {
        let mut bench = Bench::new(512, 1000, None);
        (bench.scheduler.limits.open, bench.holds) = (3, holds);
        bench.scheduler.arrive(0, "", String::new());
        let opening = |i: u32| Opening { tokens: tokens(20, 1000 * i), wanted: 19, ..Opening::default() };
        bench.waiting.0.insert(0, (0..9).map(opening).collect());
        for passes in 1..=3 {
            assert_eq!(bench.pass().len(), 3, "{holds:?}, pass {passes}");
            let open = if holds.is_some() { 3 * passes } else { 3 };
            assert_eq!(bench.scheduler.sequences.len(), open, "{holds:?}, pass {passes}");
        }
    }
}

#[test]
fn a_limited_number_of_a_requests_sequences_waits_for_room() {
    let mut bench = Bench::new(512, 4, None);
    let retained = bench.cache.kv.create();
    bench.cache.kv.reserve(retained, 4 * PAGE_TOKENS).unwrap();
    bench.scheduler.arrive(0, "", String::new());
    let opening = |i| Opening { tokens: tokens(20, i), wanted: 19, ..Opening::default() };
    bench.waiting.0.insert(0, (0..200).map(opening).collect());
    for _ in 0..100 {
        let stuck = bench.scheduler.next(&mut bench.cache, &mut bench.waiting).unwrap_err();
        assert_eq!(stuck.task, 0);
    }
    assert_eq!(bench.scheduler.sequences.len(), MAX_WAITING);
}

/// Opens a request's next sequence and adds it to a pass, in which it must begin after `stored` tokens.
fn add_after(bench: &mut Bench, pass: &mut Pass, task: u64, stored: usize) -> Key {
    let key = bench.scheduler.open(task, &mut bench.waiting).unwrap();
    assert_eq!(bench.scheduler.add(key, false, &mut bench.cache, pass), Added::Piece);
    assert_eq!(pass.pieces[&key].start, stored, "{key:?}");
    key
}

#[test]
fn what_gives_way_is_no_longer_work_of_its_pass() {
    let mut bench = Bench::new(512, 10, None);
    bench.ask(0, "", tokens(40, 1));
    bench.ask(1, "", tokens(60, 2));
    let mut pass = Pass::default();
    let keys = [0, 1].map(|task| add_after(&mut bench, &mut pass, task, 0));
    assert_eq!(pass.work, Work::of(0, 40, 1).and(Work::of(0, 60, 1)));
    bench.scheduler.preempt(keys[1], &mut bench.cache, &mut pass);
    assert_eq!(pass.work, Work::of(0, 40, 1));
    assert_eq!(pass.pieces.keys().collect::<Vec<_>>(), [&keys[0]]);
}

#[test]
fn what_shares_nothing_begins_at_its_first_token_though_its_beginning_is_stored() {
    let mut bench = Bench::new(512, 100, None);
    let prompt = tokens(100, 1);
    // A running request stores the tokens, and they are kept as well.
    bench.ask(0, "", prompt.clone());
    bench.pass();
    bench.scheduler.keep_all(0, &mut bench.cache);
    let mut pass = Pass::default();
    for (task, shares, stored) in [(1, false, 0), (2, true, 99)] {
        bench.scheduler.arrive(task, "", String::new());
        let opening = Opening { tokens: prompt.clone(), wanted: 99, shares, ..Opening::default() };
        bench.waiting.0.insert(task, vec![opening]);
        add_after(&mut bench, &mut pass, task, stored);
    }
}

#[test]
fn sequences_after_prompts_of_equal_length_share_nothing_if_the_prompts_differ() {
    let mut bench = Bench::new(512, 100, None);
    let mut pass = Pass::default();
    for task in 0..2 {
        // A prompt of forty tokens of its own, and a sequence that continues it with the same sixty.
        let own = tokens(40, 1 + task as u32);
        let both = [own.clone(), tokens(60, 9)].concat();
        let prompt = Opening { tokens: own, wanted: 40, shares: true, ..Opening::default() };
        let parent = Some((0, 40));
        let behind = Opening { tokens: both, wanted: 99, parent, shares: true, ..Opening::default() };
        bench.scheduler.arrive(task, "", String::new());
        bench.waiting.0.insert(task, vec![behind, prompt]);
        for (stored, end) in [(0, 40), (40, 100)] {
            let key = add_after(&mut bench, &mut pass, task, stored);
            bench.cache.kv.store(bench.scheduler.sequences[&key].kv.unwrap(), end);
        }
    }
}

#[test]
fn thirty_two_common_tokens_are_worth_waiting_for() {
    for (common, begins) in [(31, 0), (32, 32)] {
        let mut bench = Bench::new(512, 100, None);
        let stem = tokens(common, 1);
        bench.ask(0, "", [stem.clone(), tokens(50, 900)].concat());
        bench.ask(1, "", [stem, tokens(50, 800)].concat());
        let passes: Vec<_> = (0..3).flat_map(|_| bench.pass()).collect();
        let first = passes.iter().find(|(task, ..)| *task == 1).unwrap();
        assert_eq!(first.1, begins, "{common} common tokens: {passes:?}");
    }
}

#[test]
fn prompts_are_run_though_more_sequences_generate_than_a_pass_has_rows() {
    let mut bench = Bench::new(8, 1000, None);
    // Prompts of one token: after the first pass, eight requests generate at once, and four wait.
    for task in 0..12 {
        bench.ask(task, "", tokens(1, 100 * task as u32));
    }
    let passes: Vec<_> = (0..8).flat_map(|_| bench.pass()).collect();
    let begun = passes.iter().filter(|(_, stored, _)| *stored == 0).count();
    assert_eq!(begun, 12, "{passes:?}");
}

#[test]
fn drafts_run_in_the_rows_that_are_left_and_wrong_ones_are_taken_back() {
    for (rows, first, second) in [
        (8, vec![(0, 5, 4), (1, 2, 4)], vec![(0, 8, 4), (1, 5, 4)]),
        (6, vec![(0, 5, 4), (1, 2, 2)], vec![(0, 8, 4), (1, 4, 2)]),
        (2, vec![(0, 5, 1), (1, 2, 1)], vec![(0, 6, 1), (1, 3, 1)]),
        (1, vec![(0, 5, 1)], vec![(1, 2, 1)]),
    ] {
        let mut bench = Bench::new(512, 100, None);
        (bench.drafts, bench.right) = (vec![2, 3, 4], 2);
        bench.ask(0, "", tokens(5, 1));
        bench.ask(1, "other", tokens(2, 2));
        assert_eq!(bench.pass(), [(0, 0, 5), (1, 0, 2)]);
        assert_eq!(bench.scheduler.drafts(), (0, 0));
        bench.scheduler.limits.rows = rows;
        assert_eq!(bench.pass(), first, "{rows} rows");
        let run = first.iter().map(|(_, _, tokens)| tokens - 1);
        let right: usize = run.clone().map(|drafts| drafts.min(2)).sum();
        assert_eq!(bench.scheduler.drafts(), (run.sum::<usize>() as u64, right as u64));
        assert_eq!(bench.pass(), second, "{rows} rows");
        for sequence in bench.scheduler.sequences.values() {
            assert!(sequence.sure() > bench.cache.kv.tokens(sequence.kv.unwrap()));
        }
    }
}

#[test]
fn drafts_take_only_room_that_is_free() {
    let mut bench = Bench::new(512, 2, None);
    (bench.drafts, bench.right) = (vec![2, 3, 4], 0);
    bench.ask(0, "", tokens(62, 1));
    bench.ask(1, "other", tokens(10, 2));
    bench.pass();
    assert_eq!(bench.pass(), [(0, 62, 1), (1, 10, 4)]);
    // A page that is not in memory yet is free if sequences of earlier requests may have it.
    for (most_kept, run) in [(Some(usize::MAX), 4), (Some(1), 1), (None, 1)] {
        let mut bench = Bench::new(512, 9, None);
        bench.cache = Cache::new(KvCache::over(Ledger::default(), 9), most_kept);
        bench.drafts = vec![2, 3, 4];
        bench.ask(0, "", tokens(62, 1));
        bench.pass();
        assert_eq!(bench.pass(), [(0, 62, run)], "{most_kept:?}");
    }
}

#[test]
fn wrong_drafts_are_not_kept_for_later_requests() {
    for right in 0..4 {
        let mut bench = Bench::new(512, 9, None);
        (bench.drafts, bench.right) = (vec![2, 3, 4], right);
        bench.ask(0, "", tokens(20, 1));
        bench.pass();
        bench.stores = Some(0);
        assert_eq!(bench.pass(), [(0, 20, 4)]);
        assert_eq!(bench.cache.kept_tokens(), 21 + right);
    }
}

#[test]
fn passes_with_drafts_are_passes_without_prompts() {
    let mut bench = Bench::new(512, 9, None);
    bench.drafts = vec![2, 3, 4];
    bench.ask(0, "", tokens(20, 1));
    bench.pass();
    let step = bench.scheduler.next(&mut bench.cache, &mut bench.waiting).unwrap();
    assert_eq!(bench.scheduler.kind(&step.pieces), PassKind::Generating);
    bench.scheduler.ran(&step.pieces, 0.25);
    assert_eq!(bench.scheduler.cost.decode_only_seconds(4), Some(0.25));
}

#[test]
fn what_gives_way_loses_its_drafts() {
    let mut sequence = Sequence::new(Opening { tokens: vec![1, 2], ..Opening::default() });
    sequence.extend(3, &[4, 5]);
    assert_eq!((sequence.drafts(), sequence.sure()), (2, 3));
    sequence.give_way();
    assert_eq!((sequence.tokens, sequence.wanted), (vec![1, 2, 3], 2));
}
