//! Requests that end before they are finished.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_kernels::{Simd, Team};
use redline_models::kv::KvCache;

use super::*;
use crate::mode::autoregressive::{GenerateJob, GenerateTask};
use crate::outcome::GenerateOutcome;
use crate::request::Sampling;
use crate::runner::Inbox;
use crate::scheduler::{CostModel, PassLimits};
use crate::simulator::{Digests, Ledger};
use crate::ticket::{Event, GenerateTicket, Ticket};
use crate::transcript::Transcript;

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
        let cache = Cache::new(KvCache::over(Ledger::default(), 10), true);
        let limits = PassLimits { rows: 64, open: 10, stall_s: None };
        let now = clock.clone();
        let now: Clock = Arc::new(move || now.load(Ordering::Relaxed));
        let core = Core::new(machine, cache, Scheduler::new(limits, CostModel::new(0.5)), now);
        Self { core, clock, inbox: Inbox::new(10).0 }
    }

    /// Starts to continue a prompt by ten tokens.
    fn generate(&mut self, timeout_s: Option<f64>) -> (GenerateTicket, Cancel) {
        let job = GenerateJob {
            prompt: vec![1, 2, 3],
            max_new_tokens: 10,
            sampling: Sampling::default(),
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
        let place = self.inbox.place().unwrap();
        let cancels = vec![cancel.clone()];
        self.core.arrive(Arrival { task: Box::new(task), cancels, timeout_s, place });
        (ticket, cancel)
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
