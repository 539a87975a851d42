//! Requests that end before they are finished.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use redline_kernels::op::kv::PAGE_TOKENS;
use redline_kernels::{Simd, Team};
use redline_models::adapter::Adapters;
use redline_models::kv::KvCache;
use redline_weights::PageKey;

use super::*;
use crate::adapters::resident::SequenceAdapters;
use crate::answer::outcome::{FinishReason, GenerateOutcome};
use crate::answer::ticket::{Event, GenerateTicket, Ticket};
use crate::answer::transcript::Transcript;
use crate::heartbeat::runner::Inbox;
use crate::memory::cache::WindowId;
use crate::memory::pages::{PageEvent, PageIndex, Unsaved};
use crate::mode::autoregressive::guide::{Allowed, Constraint, Drafter, Guides};
use crate::mode::autoregressive::{GenerateJob, GenerateTask};
use crate::mode::perplexity::{Evaluated, Wanted};
use crate::request::{Penalties, Sampling};
use crate::scheduler::{CostModel, PassLimits};
use crate::simulator::{Digests, Ledger};

/// What the simulator looks at.
impl<M: Machine> Core<M> {
    pub(crate) fn preemptions(&self) -> u64 {
        self.scheduler.preemptions()
    }

    pub(crate) fn drafts(&self) -> (u64, u64) {
        self.scheduler.drafts()
    }

    pub(crate) fn into_cache(self) -> Cache<M::Pages> {
        self.cache
    }
}

/// A core without a model, its clock, and the inbox that gives requests their places.
struct Bench {
    core: Core<Digests>,
    clock: Arc<AtomicU64>,
    inbox: Inbox,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(0));
        let machine = Digests::new(Team::new(1).unwrap(), clock.clone());
        let cache = Cache::new(KvCache::over(Ledger::default(), 10), Some(usize::MAX));
        let limits = PassLimits { rows: 64, open: 10, stall_s: None };
        let now = clock.clone();
        let now: ClockFn = Arc::new(move || now.load(Ordering::Relaxed));
        let core = Core::new(machine, cache, Scheduler::new(limits, CostModel::new(0.5)), now);
        Self { core, clock, inbox: Inbox::new(10).0 }
    }

    /// Starts to continue a prompt of three tokens by ten.
    fn generate(&mut self, timeout_s: Option<f64>) -> (GenerateTicket, Cancel) {
        self.generate_after(vec![1, 2, 3], timeout_s)
    }

    /// Starts to continue a prompt by ten tokens.
    fn generate_after(&mut self, prompt: Vec<u32>, timeout_s: Option<f64>) -> (GenerateTicket, Cancel) {
        self.generate_for(prompt, timeout_s, Queueing::default())
    }

    /// Starts to continue a prompt by ten tokens for a tenant.
    fn generate_for(
        &mut self,
        prompt: Vec<u32>,
        timeout_s: Option<f64>,
        queueing: Queueing,
    ) -> (GenerateTicket, Cancel) {
        let (ticket, cancel, mut arrival) = self.arrival(prompt, |task| task);
        (arrival.timeout_s, arrival.queueing) = (timeout_s, queueing);
        self.core.arrive(arrival);
        (ticket, cancel)
    }

    /// A request to continue a prompt by ten tokens.
    fn arrival(
        &mut self,
        prompt: Vec<u32>,
        with: impl FnOnce(GenerateTask) -> GenerateTask,
    ) -> (GenerateTicket, Cancel, Arrival) {
        let job = GenerateJob {
            prompt,
            max_new_tokens: 10,
            sampling: Sampling::default(),
            penalties: Penalties::default(),
            logit_bias: Vec::new(),
            n: 1,
            continuations: 1,
            end_ids: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            kv_cache: true,
            cache_salt: String::new(),
            kernel_path: String::new(),
        };
        let (ticket, reply) = Ticket::new();
        let cancel = Cancel::new();
        let task = GenerateTask::new(job, Simd::best(), Transcript::new(None, Vec::new()), reply);
        let arrival = Arrival {
            task: Box::new(with(task)),
            at: self.now(),
            cancels: vec![cancel.clone()],
            timeout_s: None,
            queueing: Queueing::default(),
            place: self.inbox.place().unwrap(),
            adapters: SequenceAdapters::default(),
            recorder: None,
        };
        (ticket, cancel, arrival)
    }

    fn wait(&self, nanoseconds: u64) {
        self.clock.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }
}

/// The answer, if it has come.
fn answer(ticket: &mut GenerateTicket) -> Option<Result<GenerateOutcome, EngineError>> {
    while ticket.is_ready() {
        if let Event::Done(answer) = ticket.event()? {
            return Some(answer);
        }
    }
    None
}

/// Drafts the next tokens of a known continuation.
struct Known {
    all: Vec<u32>,
    tokens: usize,
}

impl Drafter for Known {
    fn push(&mut self, tokens: &[u32]) {
        self.tokens += tokens.len();
    }

    fn draft(&mut self, most: usize) -> Vec<u32> {
        self.all[self.tokens..].iter().copied().take(most.min(3)).collect()
    }
}

#[test]
fn right_drafts_save_passes_and_a_receipt_is_made_without_any() {
    let prompt = vec![1, 2, 3];
    let mut bench = Bench::new();
    let (mut ticket, _) = bench.generate_after(prompt.clone(), None);
    for _ in 0..10 {
        bench.core.tick();
    }
    let plain = answer(&mut ticket).unwrap().unwrap();
    let all = [&prompt[..], &plain.token_ids].concat();
    let no_tokens = vec![u32::MAX; 20];
    let recorder = Some(Recorder::new(Vec::new(), None));
    for (recorder, all, passes, drafts) in
        [(None, &all, 4, (6, 6)), (recorder, &all, 10, (0, 0)), (None, &no_tokens, 10, (0, 0))]
    {
        let mut bench = Bench::new();
        let drafter = |_| Box::new(Known { all: all.clone(), tokens: 0 }) as Box<dyn Drafter>;
        let guides = Guides { drafter: Some(&drafter), ..Guides::default() };
        let (mut ticket, _, mut arrival) = bench.arrival(prompt.clone(), |task| task.guided(guides));
        arrival.recorder = recorder.map(Arc::new);
        bench.core.arrive(arrival);
        for _ in 1..passes {
            bench.core.tick();
            assert!(answer(&mut ticket).is_none());
        }
        bench.core.tick();
        let drafted = answer(&mut ticket).unwrap().unwrap();
        assert_eq!((&drafted.token_ids, drafted.token_s.len()), (&plain.token_ids, 10));
        assert_eq!(bench.core.drafts(), drafts);
    }
}

/// What delays a request before the engine's thread sees it, such as an adapter that is read, is part of its time.
#[test]
fn time_runs_from_the_submission_of_a_request() {
    let mut bench = Bench::new();
    let (mut ticket, _, mut arrival) = bench.arrival(vec![1, 2, 3], |task| task);
    arrival.timeout_s = Some(1.0);
    bench.wait(2_000_000_000);
    bench.core.arrive(arrival);
    bench.core.tick();
    let Some(Err(EngineError::Late { seconds, .. })) = answer(&mut ticket) else { panic!("not late") };
    assert_eq!(seconds, 2.0);
}

#[test]
fn a_request_that_cannot_begin_counts_as_failed() {
    let mut bench = Bench::new();
    let (mut ticket, _, arrival) = bench.arrival(vec![1, 2, 3], |task| task);
    bench.core.refuse(arrival, EngineError::Stopped);
    assert!(matches!(answer(&mut ticket), Some(Err(EngineError::Stopped))));
    let failed = bench.core.gauges.read().ends.into_iter().find(|(end, _)| *end == RequestEnd::Failed);
    assert_eq!(failed, Some((RequestEnd::Failed, 1)));
    assert_eq!(bench.inbox.free(), 10);
}

/// Allows fewer tokens after each one.
struct Fewer([u32; 1]);

impl Constraint for Fewer {
    fn allowed(&mut self) -> Allowed<'_> {
        Allowed::These(&self.0)
    }

    fn push(&mut self, _token: u32) {
        self.0[0] >>= 3;
    }
}

#[test]
fn a_request_whose_constraint_allows_no_token_fails_and_says_where() {
    let mut bench = Bench::new();
    let constraint = |_| Box::new(Fewer([1 << 7 | 1 << 4 | 1 << 1])) as Box<dyn Constraint>;
    let guides = Guides { constraint: Some(&constraint), ..Guides::default() };
    let (mut ticket, _, arrival) = bench.arrival(vec![1, 2, 3], |task| task.guided(guides));
    bench.core.arrive(arrival);
    for _ in 0..3 {
        assert!(answer(&mut ticket).is_none());
        bench.core.tick();
    }
    bench.core.tick();
    let error = answer(&mut ticket).unwrap().unwrap_err();
    assert_eq!(error.to_string(), "no token is allowed at position 6");
    assert_eq!(bench.core.in_use().requests, 0);
}

#[test]
fn a_deadline_before_the_first_pass_ends_a_request_that_never_ran() {
    let mut bench = Bench::new();
    let (mut late, _) = bench.generate(Some(1e-3));
    let (mut other, _) = bench.generate(Some(10.0));
    bench.wait(1_000_001);
    let before = bench.now();
    bench.core.tick();
    // The pass runs the other request only: three rows.
    assert_eq!(bench.now() - before, 10_000 + 3 * 300);
    let Some(Err(EngineError::Late { seconds, tokens })) = answer(&mut late) else { panic!("not late") };
    assert_eq!((seconds, tokens), (1_000_001.0 * 1e-9, Some(0)));
    assert!(answer(&mut other).is_none());
    for _ in 0..9 {
        bench.core.tick();
    }
    assert_eq!(answer(&mut other).unwrap().unwrap().token_ids.len(), 10);
}

#[test]
fn a_request_that_waits_too_long_expires_and_one_that_has_begun_does_not() {
    let mut bench = Bench::new();
    let brief = || Queueing { longest_wait_s: Some(1e-3), ..Queueing::default() };
    let (mut begun, _) = bench.generate_for(vec![1, 2, 3], None, brief());
    bench.core.tick();
    let (mut waiting, _) = bench.generate_for(vec![4, 5, 6], Some(10.0), brief());
    bench.wait(1_000_001);
    bench.core.tick();
    let Some(Err(EngineError::Expired { seconds })) = answer(&mut waiting) else { panic!("not expired") };
    assert_eq!(seconds, 1_000_001.0 * 1e-9);
    for _ in 0..9 {
        bench.core.tick();
    }
    assert_eq!(answer(&mut begun).unwrap().unwrap().token_ids.len(), 10);
}

#[test]
fn a_tenant_whose_requests_fill_the_memory_does_not_keep_others_out() {
    // Each request of the flood needs more than half of the pages.
    let flooded = |tenant: &str| {
        let mut bench = Bench::new();
        let of = |tenant: &str| Queueing { tenant: tenant.to_owned(), longest_wait_s: None };
        let flood = (0..6).map(|n| bench.generate_for(vec![n; 6 * PAGE_TOKENS], None, of("flood")).0);
        let mut flood: Vec<_> = flood.collect();
        bench.core.tick();
        let (mut other, _) = bench.generate_for(vec![9; 3], None, of(tenant));
        let mut answered = 0;
        while answer(&mut other).is_none() {
            bench.core.tick();
            answered += flood.iter_mut().filter_map(answer).count();
        }
        answered
    };
    assert!(flooded("other") <= 2, "{} requests of the flood came first", flooded("other"));
    assert!(flooded("flood") >= 5, "requests of one tenant keep their order");
}

#[test]
fn gauges_tell_what_was_run_and_what_is_held() {
    let gauges = Arc::new(Gauges::default());
    let mut bench = Bench::new();
    bench.core = bench.core.with_gauges(gauges.clone());
    let prompt: Vec<u32> = (0..40).map(|i| i % 20).collect();
    let (mut first, _) = bench.generate_after(prompt.clone(), None);
    bench.core.tick();
    let read = gauges.read();
    assert_eq!((read.sequences, read.pages, read.kept_tokens), (1, 1, 0));
    assert_eq!((read.prompt_tokens, read.generated_tokens, read.first_token_s.count()), (40, 1, 1));
    for _ in 0..9 {
        bench.core.tick();
    }
    assert!(answer(&mut first).is_some());
    let (_second, cancel) = bench.generate_after(prompt, None);
    bench.core.tick();
    cancel.cancel();
    bench.core.tick();
    let read = gauges.read();
    assert_eq!((read.sequences, read.kept_tokens), (0, 49));
    assert_eq!((read.prompt_tokens, read.cached_tokens, read.generated_tokens), (80, 39, 11));
    assert_eq!((read.between_tokens_s.count(), read.per_token_s.count(), read.request_s.count()), (9, 1, 1));
    assert!((read.per_token_s.sum - 10_300e-9).abs() < 1e-15, "{}", read.per_token_s.sum);
    let counts = read.passes.map(|totals| (totals.count, totals.rows));
    assert_eq!(counts, [(2, 41), (9, 9), (0, 0), (0, 0), (0, 0)]);
    let ends = read.ends.map(|(_, count)| count);
    assert_eq!(ends, [1, 1, 0, 0, 0]);
}

#[test]
fn a_deadline_is_met_until_it_has_passed() {
    let mut bench = Bench::new();
    let (mut exact, _) = bench.generate(Some(0.0));
    // No time has passed, so the request runs.
    bench.core.tick();
    assert!(answer(&mut exact).is_none());
    bench.core.tick();
    let Some(Err(EngineError::Late { tokens, .. })) = answer(&mut exact) else { panic!("not late") };
    assert_eq!(tokens, Some(1));
    assert!(bench.core.is_idle());
}

#[test]
fn a_request_cancelled_before_its_first_pass_waited_all_its_time() {
    let mut bench = Bench::new();
    let (mut ticket, cancel) = bench.generate(None);
    bench.wait(5_000);
    cancel.cancel();
    bench.core.tick();
    let outcome = answer(&mut ticket).unwrap().unwrap();
    assert_eq!((outcome.queue_s, outcome.prefill_s, outcome.decode_s), (5e-6, 5e-6, 0.0));
}

#[test]
fn a_request_that_was_cancelled_and_is_late_too_answers_with_what_it_has() {
    let mut bench = Bench::new();
    let (mut ticket, cancel) = bench.generate(Some(1e-3));
    bench.core.tick();
    cancel.cancel();
    bench.wait(2_000_000);
    bench.core.tick();
    let outcome = answer(&mut ticket).unwrap().unwrap();
    assert_eq!((outcome.finish_reason, outcome.token_ids.len()), (FinishReason::Cancelled, 1));
}

#[test]
fn what_a_cancelled_request_has_stored_is_kept_for_later_ones() {
    let mut bench = Bench::new();
    let prompt: Vec<u32> = (0..40).map(|i| i % 20).collect();
    let (mut first, cancel) = bench.generate_after(prompt.clone(), None);
    bench.core.tick();
    cancel.cancel();
    bench.core.tick();
    assert_eq!(answer(&mut first).unwrap().unwrap().finish_reason, FinishReason::Cancelled);
    assert_eq!(bench.core.in_use(), EngineUse { sequences: 1, kept: 1, pages: 1, ..EngineUse::default() });
    let (mut second, _) = bench.generate_after(prompt, None);
    for _ in 0..10 {
        bench.core.tick();
    }
    // The last token of the prompt is run for its logits.
    assert_eq!(answer(&mut second).unwrap().unwrap().usage.cached_tokens, 39);
}

#[test]
fn the_profile_tells_when_requests_come_and_how_they_end() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = events.clone();
    let mut bench = Bench::new();
    bench.core = bench.core.with_profile(Some(Arc::new(move |event| {
        let told = match *event {
            ProfileEvent::Arrived { request, at } => (request, at, None),
            ProfileEvent::Ended { request, at, computed_tokens, fault } => {
                (request, at, Some((computed_tokens, fault)))
            }
            ProfileEvent::Started { .. } | ProfileEvent::Pass(_) => return,
        };
        log.lock().unwrap().push(told);
    })));
    bench.wait(50);
    let (_first, cancel) = bench.generate(None);
    let (_second, _) = bench.generate(Some(1e-3));
    let (_third, _) = bench.generate(None);
    // The first pass takes nine rows.
    bench.core.tick();
    cancel.cancel();
    bench.wait(1_000_000);
    for _ in 0..9 {
        bench.core.tick();
    }
    assert!(bench.core.is_idle());
    let cut = 50 + 10_000 + 9 * 300 + 1_000_000;
    // The third request runs alone from the second token on.
    let end = cut + 9 * (10_000 + 300);
    let expected = [
        (0, 50, None),
        (1, 50, None),
        (2, 50, None),
        (0, cut, Some((3, Some("cancelled")))),
        (1, cut, Some((3, Some("late")))),
        (2, end, Some((12, None))),
    ];
    assert_eq!(*events.lock().unwrap(), expected);
}

/// Runs the next pass of a window of so many tokens.
fn evaluated(bench: &mut Bench, window: Option<WindowId>, tokens: usize) -> Evaluated {
    let (reply, result) = channel();
    let tokens = (0..tokens as u32).map(|i| i % 9).collect();
    bench.core.evaluate(EvaluateJob {
        window,
        tokens,
        adapters: Adapters::default(),
        next: vec![1],
        wanted: Wanted::Nothing,
        reply,
    });
    bench.core.tick();
    result.try_recv().unwrap().unwrap()
}

#[test]
fn a_request_takes_the_room_of_a_window_that_waits_while_another_request_runs() {
    let mut bench = Bench::new();
    let first = evaluated(&mut bench, None, 8 * PAGE_TOKENS);
    let (mut running, _) = bench.generate(None);
    bench.core.tick();
    let (mut large, _) = bench.generate_after(vec![7; 5 * PAGE_TOKENS], None);
    let mut answers = (None, None);
    while answers.0.is_none() || answers.1.is_none() {
        bench.core.tick();
        answers = (answers.0.or(answer(&mut running)), answers.1.or(answer(&mut large)));
    }
    // It waits for one pass, which measures the time of a pass without prompts, and not for the end of the other request.
    assert_eq!(answers.1.unwrap().unwrap().queue_s, 10_300.0 * 1e-9);
    // The window is run again, with the same result.
    let alone = evaluated(&mut Bench::new(), None, 9 * PAGE_TOKENS);
    let again = evaluated(&mut bench, Some(first.window), 9 * PAGE_TOKENS);
    assert_eq!(again.readings.nll, alone.readings.nll);
}

/// An archive that does nothing. It counts how often pages were too slow.
#[derive(Clone, Default)]
struct Idle(Arc<AtomicU64>);

impl PageArchive for Idle {
    fn read(&mut self, _job: u64, _keys: Vec<PageKey>) {}
    fn stop_reading(&mut self, slow: bool) {
        self.0.fetch_add(u64::from(slow), Ordering::Relaxed);
    }
    fn give_back(&mut self, _page: Vec<u8>) {}
    fn take_buffer(&mut self, _wait: bool) -> Option<Vec<u8>> {
        None
    }
    fn write(&mut self, _key: PageKey, _page: Vec<u8>) {}
}

/// A core that has three pages of [`stored`] on disk: the keys of the pages, and how often they were too slow.
fn bench_with_pages() -> (Bench, Vec<PageKey>, Idle) {
    let (mut bench, index, idle) = (Bench::new(), Arc::<PageIndex>::default(), Idle::default());
    let unsaved = Unsaved::new("model".into(), index.clone());
    let keys = unsaved.keys(&SequenceAdapters::default().namespace(""), &stored());
    assert_eq!(keys.len(), 3);
    for &key in &keys {
        index.add(key);
    }
    let Bench { core, clock, inbox } = bench;
    let Core { machine, cache, scheduler, clock: now, .. } = core;
    let core = Core::new(machine, cache.saving(Some(unsaved)), scheduler, now);
    bench = Bench { core: core.with_archive(Some(Box::new(idle.clone()))), clock, inbox };
    (bench, keys, idle)
}

/// A prompt that fills three pages and a part of a fourth.
fn stored() -> Vec<u32> {
    (0..200).map(|i| i % 20).collect()
}

fn page(job: u64, key: PageKey) -> PageEvent {
    PageEvent::Read { job, key, page: vec![0; PAGE_TOKENS * size_of::<u64>()] }
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn pages_are_kept_in_their_order_only() {
    let (mut bench, keys, _) = bench_with_pages();
    let _ticket = bench.generate_after(stored(), None);
    assert!(bench.core.waits_for_pages() && bench.core.is_idle());
    for (event, kept) in [
        (page(1, keys[1]), 0),
        (page(7, keys[0]), 0),
        (page(1, keys[0]), 64),
        (page(1, keys[0]), 64),
        (page(1, keys[2]), 64),
        (page(1, keys[1]), 128),
    ] {
        bench.core.page_event(event);
        assert_eq!(bench.core.cache.kept_tokens(), kept);
    }
    bench.core.page_event(PageEvent::Finished { job: 7 });
    assert!(bench.core.waits_for_pages());
    bench.core.page_event(PageEvent::Finished { job: 1 });
    assert!(!bench.core.waits_for_pages() && !bench.core.is_idle());
}

#[test]
fn a_page_that_does_not_come_lets_all_begin() {
    let (mut bench, keys, idle) = bench_with_pages();
    let tickets = [bench.generate_after(stored(), None), bench.generate_after(stored(), None)];
    bench.wait(SECOND / 5);
    bench.core.check_pages();
    assert!(bench.core.waits_for_pages());
    bench.core.page_event(page(1, keys[0]));
    bench.wait(SECOND / 5);
    bench.core.check_pages();
    assert!(bench.core.waits_for_pages(), "a page has come meanwhile");
    bench.wait(SECOND / 10);
    bench.core.check_pages();
    assert!(!bench.core.waits_for_pages() && bench.core.tasks.len() == 2);
    assert_eq!(idle.0.load(Ordering::Relaxed), 1);
    // Nobody waits for a disk that hangs.
    let _third = bench.generate_after(stored(), None);
    assert!(!bench.core.waits_for_pages());
    bench.core.page_event(PageEvent::Finished { job: 1 });
    let _fourth = bench.generate_after(stored(), None);
    assert!(bench.core.waits_for_pages(), "it is tried again");
    drop(tickets);
}

#[test]
fn pages_that_come_while_a_pass_runs_are_not_late() {
    let (mut bench, keys, idle) = bench_with_pages();
    let _ticket = bench.generate_after(stored(), None);
    bench.wait(3 * SECOND);
    // Other messages come first.
    bench.core.page_event(PageEvent::Written { key: keys[2] });
    bench.core.end_waits();
    for key in &keys {
        bench.core.page_event(page(1, *key));
        bench.core.end_waits();
    }
    assert_eq!((bench.core.cache.kept_tokens(), idle.0.load(Ordering::Relaxed)), (192, 0));
    bench.core.page_event(PageEvent::Finished { job: 1 });
    assert!(!bench.core.waits_for_pages() && bench.core.tasks.len() == 1);
    // A window does not make pages late either.
    let (mut bench, _, idle) = bench_with_pages();
    let (reply, _result) = channel();
    let job = EvaluateJob {
        window: None,
        tokens: vec![1; 8 * PAGE_TOKENS],
        adapters: Adapters::default(),
        next: vec![1],
        wanted: Wanted::Nothing,
        reply,
    };
    bench.core.evaluate(job);
    let _ticket = bench.generate_after(stored(), None);
    bench.wait(SECOND / 4 - 20_000);
    let before = bench.now();
    bench.core.tick();
    assert!(bench.now() - before > 20_000 && bench.core.waits_for_pages());
    assert_eq!(idle.0.load(Ordering::Relaxed), 0);
}

#[test]
fn a_request_that_was_cancelled_while_it_waited_does_not_make_the_disk_slow() {
    let (mut bench, _, idle) = bench_with_pages();
    let (_ticket, cancel) = bench.generate_after(stored(), None);
    cancel.cancel();
    bench.wait(SECOND);
    bench.core.check_pages();
    assert!(!bench.core.waits_for_pages() && bench.core.tasks.len() == 1);
    assert_eq!(idle.0.load(Ordering::Relaxed), 0);
    let _next = bench.generate_after(stored(), None);
    assert!(bench.core.waits_for_pages());
}

#[test]
fn a_request_waits_for_all_its_pages_for_a_limited_time() {
    let (mut bench, keys, idle) = bench_with_pages();
    let _ticket = bench.generate_after(stored(), None);
    for key in &keys[..2] {
        bench.wait(SECOND / 5);
        bench.core.page_event(page(1, *key));
        bench.core.check_pages();
        assert!(bench.core.waits_for_pages());
    }
    let (mut late, cancel) = bench.generate_after(stored(), None);
    cancel.cancel();
    bench.core.end_waits();
    assert!(
        bench.core.restores.waiting() == 1 && bench.core.tasks.len() == 1,
        "it does not wait for the first"
    );
    bench.core.tick();
    assert!(matches!(
        answer(&mut late),
        Some(Ok(GenerateOutcome { finish_reason: FinishReason::Cancelled, .. }))
    ));
    // Pages come, but not fast enough.
    bench.wait(2 * SECOND);
    bench.core.page_event(page(1, keys[2]));
    bench.core.check_pages();
    assert!(!bench.core.waits_for_pages() && bench.core.tasks.len() == 1);
    assert_eq!((bench.core.cache.kept_tokens(), idle.0.load(Ordering::Relaxed)), (192, 0));
}
