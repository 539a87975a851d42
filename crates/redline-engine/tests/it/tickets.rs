//! Tickets: the ways in which an answer reaches its caller, and the handling of abandoned requests.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use redline_engine::{
    Cancel, ClassifyTicket, DiffuseRequest, DiffuseTicket, DiffusionProgress, Engine, EngineError, EngineUse,
    Event, FinishReason, GenerateOutcome, GenerateRequest, GenerateTicket, GeneratedPiece, Options,
    PerplexityRequest, ProfileEvent, RerankTicket, Sampling, ScoreTicket,
};

use crate::mixture::Dice;
use crate::models::{
    bits, budget, demo, demo_dir, generation, golden_dir, ids, options, pledge, refusal, scores, text,
};

/// Types that must be `Sync`, and types that must be `Send` and `'static`.
const _: () = {
    const fn shared<T: Send + Sync + 'static>() {}
    const fn sent<T: Send + 'static>() {}
    shared::<Engine>();
    shared::<Arc<Engine>>();
    sent::<ScoreTicket>();
    sent::<GenerateTicket>();
    sent::<DiffuseTicket>();
    sent::<ClassifyTicket>();
    sent::<RerankTicket>();
};

/// Number of threads of this process that engines named.
fn engine_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.starts_with("redline")).count()
}

/// A demo engine with room for `queue` requests.
fn wide(queue: usize) -> Engine {
    Engine::load(Options { queue, ..options(&demo_dir()) }).unwrap()
}

/// Request number `n`: a few tokens after a prompt of its own.
fn nth(n: usize) -> GenerateRequest {
    generation(ids(&[5 + (n % 7) as i64, 9, 11 + (n % 31) as i64]), 1 + n % 3)
}

#[test]
fn a_thousand_requests_answer_through_callbacks_without_a_thread_each() {
    const COUNT: usize = 1000;
    let engine = wide(COUNT);
    let threads = engine_threads();
    let (send, answers) = channel();
    for n in 0..COUNT {
        let send = send.clone();
        engine.submit_generate(nth(n), &Cancel::new()).unwrap().send_to(move |event| {
            if let Event::Done(outcome) = event {
                send.send((n, outcome.unwrap().token_ids)).unwrap();
            }
        });
    }
    // Other tests start their own engines, but none starts hundreds of threads.
    assert!(engine_threads() < threads + COUNT / 4);
    drop(send);
    let answered: BTreeMap<usize, Vec<u32>> = answers.iter().collect();
    assert_eq!(answered.len(), COUNT);
    for n in [0, 1, 2, 500, COUNT - 1] {
        let alone = engine.generate(nth(n), &Cancel::new(), &mut |_| ()).unwrap();
        assert_eq!(answered[&n], alone.token_ids, "request {n}");
    }
}

/// Resources in use when no request runs.
fn at_rest(engine: &Engine) -> EngineUse {
    loop {
        let used = engine.in_use().unwrap();
        if used.requests == 0 {
            return used;
        }
        std::thread::yield_now();
    }
}

#[test]
fn tickets_that_are_dropped_cancel_their_requests_and_nothing_else() {
    const COUNT: usize = 300;
    let engine = Engine::load(Options { queue: COUNT, prefix_cache: None, ..options(&demo_dir()) }).unwrap();
    let mut dice = Dice(3);
    let mut kept = Vec::new();
    for n in 0..COUNT {
        let ticket = engine.submit_generate(nth(n), &Cancel::new()).unwrap();
        match dice.below(4) {
            0 => drop(ticket),
            // Abandoned later, while it runs or after its end.
            1 => kept.push((n, ticket, true)),
            _ => kept.push((n, ticket, false)),
        }
    }
    assert!(kept.len() < COUNT && kept.iter().any(|(.., later)| *later));
    for (n, ticket, later) in kept {
        if later {
            drop(ticket);
            continue;
        }
        let outcome = ticket.wait().unwrap();
        assert_eq!((outcome.token_ids.len(), outcome.finish_reason), (1 + n % 3, FinishReason::Length));
    }
    let used = at_rest(&engine);
    assert_eq!((used.sequences, used.pages), (0, 0));
}

/// Wakes a thread, and counts how often.
struct Wakes(Thread, AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

#[test]
fn a_ticket_is_a_future_that_is_woken_when_something_has_come() {
    let engine = demo();
    let wakes = Arc::new(Wakes(std::thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut ticket = pin!(engine.submit_score(pledge(), &Cancel::new()).unwrap());
    let mut polls = 0;
    let outcome = loop {
        polls += 1;
        match ticket.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => break outcome.unwrap(),
            Poll::Pending => {
                while wakes.1.load(Ordering::SeqCst) < polls {
                    std::thread::park();
                }
            }
        }
    };
    assert_eq!(polls, wakes.1.load(Ordering::SeqCst) + 1, "polled without having been woken");
    assert_eq!(bits(&scores(&outcome)), bits(&scores(&engine.score(pledge()).unwrap())));
    assert!(matches!(ticket.as_mut().poll(&mut context), Poll::Ready(Err(EngineError::Stopped))));
}

#[test]
fn events_come_in_their_order_and_end_with_the_outcome() {
    let engine = demo();
    let request = || generation(text("In the beginning"), 12);
    let mut ticket = engine.submit_generate(request(), &Cancel::new()).unwrap();
    let mut streamed = String::new();
    let outcome = loop {
        match ticket.event().unwrap() {
            Event::Progress(piece) => streamed.push_str(&piece.text),
            Event::Done(outcome) => break outcome.unwrap(),
        }
    };
    assert!(ticket.event().is_none() && ticket.is_ready());
    assert_eq!((&streamed, outcome.token_ids.len()), (&outcome.text, 12));
    assert!(matches!(ticket.wait(), Err(EngineError::Stopped)));
    // Events from before the function was given come first.
    let ticket = engine.submit_generate(request(), &Cancel::new()).unwrap();
    while !ticket.is_ready() {
        std::thread::yield_now();
    }
    let (send, events) = channel();
    ticket.send_to(move |event| send.send(event).unwrap());
    let mut late = String::new();
    for event in events {
        match event {
            Event::Progress(piece) => late.push_str(&piece.text),
            Event::Done(outcome) => assert_eq!(outcome.unwrap().text, late),
        }
    }
    assert_eq!(late, streamed);
}

/// The pieces of a generation, and its outcome.
fn in_pieces(engine: &Engine, request: GenerateRequest) -> (Vec<GeneratedPiece>, GenerateOutcome) {
    let mut pieces = Vec::new();
    let ticket = engine.submit_generate(request, &Cancel::new()).unwrap();
    let outcome = ticket.wait_with(|piece| pieces.push(piece)).unwrap();
    (pieces, outcome)
}

#[test]
fn the_pieces_of_a_generation_add_up_to_its_outcome() {
    let engine = demo();
    let sampling = Sampling { temperature: 1.0, seed: 8, ..Sampling::default() };
    let (_, whole) = in_pieces(&engine, generation(text("In the beginning"), 24));
    let middle: String = whole.text.chars().skip(8).take(3).collect();
    for (n, stop, logprobs) in [(1, None, Some(2)), (4, None, Some(0)), (3, Some(middle), None)] {
        let sampling = if n > 1 { sampling } else { Sampling::default() };
        let stop = stop.into_iter().collect();
        let plain = generation(text("In the beginning"), 24);
        let (pieces, mut outcome) =
            in_pieces(&engine, GenerateRequest { n, stop, logprobs, sampling, ..plain });
        let continuations = outcome.take_continuations();
        assert_eq!(continuations.len(), n);
        let first = pieces.iter().position(|piece| piece.continuation == 0);
        for (at, piece) in pieces.iter().enumerate() {
            let ids = piece.prompt.as_ref().map(|prompt| &prompt.token_ids);
            assert_eq!(ids, (Some(at) == first).then_some(&outcome.prompt_token_ids));
        }
        for (index, one) in continuations.into_iter().enumerate() {
            let own: Vec<&GeneratedPiece> =
                pieces.iter().filter(|piece| piece.continuation == index).collect();
            assert_eq!(own.iter().map(|piece| &*piece.text).collect::<String>(), one.text);
            assert_eq!(own.iter().filter_map(|piece| piece.token_id).collect::<Vec<_>>(), one.token_ids);
            let told: Vec<_> = own.iter().filter_map(|piece| piece.logprobs.clone()).collect();
            assert_eq!(told, one.logprobs.unwrap_or_default());
            let reasons: Vec<_> = own.iter().map(|piece| piece.finish_reason).collect();
            let (last, before) = reasons.split_last().unwrap();
            assert_eq!((*last, before.iter().flatten().count()), (Some(one.finish_reason), 0));
        }
    }
}

#[test]
fn pieces_of_a_choice_among_continuations_are_not_told() {
    let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    let plain = generation(text("In the beginning"), 6);
    let request = GenerateRequest { n: 2, best_of: Some(3), sampling, ..plain };
    let (pieces, outcome) = in_pieces(&demo(), request);
    assert_eq!((pieces.len(), outcome.others.len()), (0, 1));
}

#[test]
fn a_generation_that_is_cut_short_tells_its_end() {
    let engine = demo();
    let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    let request = GenerateRequest { n: 2, sampling, ..generation(text("In the beginning"), 400) };
    let mut ticket = engine.submit_generate(request, &Cancel::new()).unwrap();
    let mut pieces = Vec::new();
    let mut outcome = loop {
        match ticket.event().unwrap() {
            Event::Progress(piece) => pieces.push(piece),
            Event::Done(outcome) => break outcome.unwrap(),
        }
        ticket.cancel();
    };
    for (index, one) in outcome.take_continuations().into_iter().enumerate() {
        let own: Vec<&GeneratedPiece> = pieces.iter().filter(|piece| piece.continuation == index).collect();
        assert_eq!(own.iter().map(|piece| &*piece.text).collect::<String>(), one.text);
        assert_eq!(one.finish_reason, FinishReason::Cancelled);
        let last = own.last().unwrap();
        assert_eq!((last.token_id, last.finish_reason), (None, Some(FinishReason::Cancelled)));
    }
}

#[test]
fn a_canvas_reports_itself_then_its_passes() {
    let engine = Engine::load(options(&golden_dir().join("../dream-a"))).unwrap();
    let ticket = engine.submit_diffuse(DiffuseRequest::new(ids(&[5, 6, 7]), 6), &Cancel::new()).unwrap();
    let mut reported = Vec::new();
    let outcome = ticket.wait_with(|progress| reported.push(progress)).unwrap();
    let mask = engine.info().mask_id.unwrap();
    let canvas = [vec![5, 6, 7], vec![mask; 6]].concat();
    assert_eq!(reported[0], DiffusionProgress::Canvas(canvas));
    let passes: Vec<_> = reported.into_iter().skip(1).collect();
    assert_eq!(passes, outcome.passes.into_iter().map(DiffusionProgress::Pass).collect::<Vec<_>>());
}

#[test]
fn a_function_that_panics_ends_its_own_request_only() {
    let (engine, given, _) = waiting();
    let (send, ended) = channel::<()>();
    let long = engine.submit_generate(generation(text("In the beginning"), 400), &Cancel::new()).unwrap();
    // Dropped with the function, after its last call.
    let held = Mutex::new(send);
    long.send_to(move |_| {
        let _held = held.lock();
        panic!("on purpose");
    });
    given.send(()).unwrap();
    assert!(ended.recv().is_err());
    assert_eq!(engine.score(pledge()).unwrap().items.len(), 3);
    assert_eq!(at_rest(&engine).requests, 0);
}

#[test]
fn the_last_owner_of_an_engine_may_be_a_function_that_it_calls() {
    let engine = Arc::new(demo());
    let (send, done) = channel();
    let owner = engine.clone();
    let mut owner = Some(owner);
    let ticket = engine.submit_score(pledge(), &Cancel::new()).unwrap();
    drop(engine);
    ticket.send_to(move |event| {
        drop(owner.take());
        let Event::Done(outcome) = event;
        send.send(outcome.unwrap().items.len()).unwrap();
    });
    assert_eq!(done.recv(), Ok(3));
}

#[test]
fn tickets_outlive_the_engine_and_say_so() {
    let engine = demo();
    let long = || generation(text("In the beginning"), 400);
    let [mut first, second] = [(); 2].map(|()| engine.submit_generate(long(), &Cancel::new()).unwrap());
    let (send, stopped) = channel();
    let callback = engine.submit_generate(long(), &Cancel::new()).unwrap();
    callback.send_to(move |event| {
        if let Event::Done(outcome) = event {
            send.send(refusal(outcome)).unwrap();
        }
    });
    while !matches!(first.event(), Some(Event::Progress(_))) {}
    drop(engine);
    assert!(refusal(first.wait()).contains("stopped"));
    assert!(refusal(second.wait()).contains("stopped"));
    assert!(stopped.recv().unwrap().contains("stopped"));
}

#[test]
fn a_request_is_cancelled_through_what_is_left_of_its_ticket() {
    let engine = demo();
    let (send, ended) = channel();
    let long = engine.submit_generate(generation(text("In the beginning"), 400), &Cancel::new()).unwrap();
    let cancel = long.send_to(move |event| {
        if let Event::Done(outcome) = event {
            send.send(outcome.unwrap()).unwrap();
        }
    });
    cancel.cancel();
    let outcome = ended.recv().unwrap();
    assert_eq!(outcome.finish_reason, FinishReason::Cancelled);
    assert!(outcome.token_ids.len() < 400);
}

#[test]
fn a_panic_in_a_pass_fails_its_requests_and_the_engine_goes_on() {
    let panics = Arc::new(AtomicBool::new(false));
    let watched = panics.clone();
    let trace: redline_engine::TraceLog = Arc::new(move |_| {
        assert!(!watched.load(Ordering::SeqCst), "a broken pass");
    });
    let engine = Engine::load(Options { trace: Some(trace), ..options(&demo_dir()) }).unwrap();
    let before = engine.score(pledge()).unwrap();
    panics.store(true, Ordering::SeqCst);
    let both = [(); 2].map(|()| engine.submit_generate(nth(0), &Cancel::new()).unwrap());
    for ticket in both {
        let message = refusal(ticket.wait());
        assert!(message.contains("a broken pass") && message.contains("report"), "{message}");
    }
    let likelihood = PerplexityRequest { text: text("In the beginning"), window: None, adapters: Vec::new() };
    assert!(refusal(engine.perplexity(likelihood.clone(), &Cancel::new())).contains("a broken pass"));
    panics.store(false, Ordering::SeqCst);
    let broken: redline_engine::ActivationLog = Arc::new(|_, _| panic!("a broken observer"));
    assert!(refusal(engine.observe(vec![vec![5, 6]], broken)).contains("a broken observer"));
    engine.observe(vec![vec![5, 6]], Arc::new(|_, _| ())).unwrap();
    let after = engine.score(pledge()).unwrap();
    assert_eq!(bits(&scores(&before)), bits(&scores(&after)));
    assert!(engine.perplexity(likelihood, &Cancel::new()).is_ok());
    let used = at_rest(&engine);
    assert_eq!(used.sequences, used.kept, "{used:?}");
}

/// Outside of a pass, the state of the cache is unknown after a panic.
#[test]
fn a_panic_between_passes_ends_the_engine_and_its_requests_are_told_why() {
    let profile: redline_engine::ProfileLog = Arc::new(|event: &ProfileEvent<'_>| {
        assert!(!matches!(event, ProfileEvent::Pass(_)), "a broken log");
    });
    let engine = Engine::load(Options { profile: Some(profile), ..options(&demo_dir()) }).unwrap();
    let message = refusal(engine.generate(nth(0), &Cancel::new(), &mut |_| ()));
    assert!(message.contains("a broken log") && message.contains("report"), "{message}");
    assert!(matches!(engine.score(pledge()), Err(EngineError::Stopped)));
    assert!(matches!(engine.in_use(), Err(EngineError::Stopped)));
}

/// A window releases its keys and values if requests need the room, and is run again.
#[test]
fn likelihoods_are_the_same_beside_requests_in_tight_memory() {
    let plain = options(&demo_dir());
    let memory = budget(demo().info(), 12, 0);
    let engine = Engine::load(Options { memory: Some(memory), prefix_cache: None, ..plain }).unwrap();
    let likelihood = || {
        let text = text(&std::fs::read_to_string(demo_dir().join("held-out.txt")).unwrap()[..4000]);
        engine
            .perplexity(PerplexityRequest { text, window: Some(150), adapters: Vec::new() }, &Cancel::new())
            .unwrap()
    };
    let alone = likelihood();
    let together = std::thread::scope(|threads| {
        let texts: Vec<_> = (0..2).map(|_| threads.spawn(likelihood)).collect();
        let mut rounds = 0;
        while !texts.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let prompt: Vec<i64> = (0..100).map(|i| 5 + (i * 7 + rounds) % 200).collect();
            let tickets = [(); 3].map(|()| {
                let request = generation(ids(&prompt), 20);
                engine.submit_generate(request, &Cancel::new()).unwrap()
            });
            for ticket in tickets {
                ticket.wait().unwrap();
            }
            rounds += 1;
        }
        texts.into_iter().map(|text| text.join().unwrap()).collect::<Vec<_>>()
    });
    for outcome in together {
        assert_eq!(outcome.nll.value.to_bits(), alone.nll.value.to_bits());
        assert_eq!((outcome.tokens, outcome.windows), (alone.tokens, alone.windows));
    }
    assert_eq!(at_rest(&engine), EngineUse::default());
}

/// An engine whose first pass waits for a message, so that every event reaches a function on the engine's thread; and the number of its
/// passes.
fn waiting() -> (Engine, Sender<()>, Arc<AtomicUsize>) {
    let (given, function) = channel::<()>();
    let (function, passes) = (Mutex::new(Some(function)), Arc::new(AtomicUsize::new(0)));
    let counted = passes.clone();
    let profile: redline_engine::ProfileLog = Arc::new(move |event: &redline_engine::ProfileEvent<'_>| {
        if let redline_engine::ProfileEvent::Pass(_) = event {
            counted.fetch_add(1, Ordering::SeqCst);
            if let Some(function) = function.lock().unwrap().take() {
                function.recv().unwrap();
            }
        }
    });
    let engine = Engine::load(Options { profile: Some(profile), ..options(&demo_dir()) }).unwrap();
    (engine, given, passes)
}

#[test]
fn a_generation_whose_function_panics_is_not_continued() {
    let (engine, given, passes) = waiting();
    let long = engine.submit_generate(generation(text("In the beginning"), 400), &Cancel::new()).unwrap();
    long.send_to(|_| panic!("on purpose"));
    given.send(()).unwrap();
    assert_eq!(at_rest(&engine).requests, 0);
    let passes = passes.load(Ordering::SeqCst);
    assert!(passes < 20, "{passes} passes for nobody");
}
