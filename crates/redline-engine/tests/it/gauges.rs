//! Gauges and the pulse of a running engine, as other threads read them.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use redline_engine::{
    Cancel, Engine, GenerateRequest, Options, PulseState, Queueing, RequestEnd, Stage, StageTime,
};

use crate::models::{demo_dir, generation, ids, options, refusal};

fn request() -> GenerateRequest {
    generation(ids(&[5, 9, 11]), 3)
}

#[test]
fn an_engine_that_is_in_a_pass_tells_what_waits_and_runs() {
    let (holds, holding) = channel();
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let hold = move |time: StageTime| {
        if matches!(time.stage, Stage::Pass) {
            let _ = holds.send(());
            let _ = gone.lock().unwrap().recv();
        }
    };
    let engine =
        Engine::load(Options { queue: 2, stages: Some(Arc::new(hold)), ..options(&demo_dir()) }).unwrap();
    while engine.pulse().state != PulseState::Idle {}
    assert!(engine.has_room(2) && !engine.has_room(3));
    let first = engine.submit_generate(request(), &Cancel::new()).unwrap();
    holding.recv().unwrap();
    let second = engine.submit_generate(request(), &Cancel::new()).unwrap();
    let requests = engine.gauges().requests;
    assert_eq!((requests.waiting, requests.running, requests.limit), (1, 1, 2));
    assert!(engine.has_room(0) && !engine.has_room(1));
    let pulse = engine.pulse();
    assert_eq!(pulse.state, PulseState::Working);
    assert_eq!(engine.pulse().beats, pulse.beats, "nothing runs");
    drop(go);
    first.wait().unwrap();
    second.wait().unwrap();
    assert_ne!(engine.pulse().beats, pulse.beats);
    // Counted before the answers are sent.
    let gauges = engine.gauges();
    assert_eq!((gauges.requests.waiting, gauges.requests.running), (0, 0));
    assert_eq!((gauges.prompt_tokens, gauges.generated_tokens), (6, 6));
    assert_eq!(gauges.ends[0], (RequestEnd::Finished, 2));
    assert_eq!(gauges.page_bytes, gauges.page_tokens * engine.info().kv_bytes_per_token);
}

#[test]
fn a_longest_wait_is_checked_and_a_tenant_changes_no_token() {
    let engine = Engine::load(options(&demo_dir())).unwrap();
    let with = |tenant: &str, longest_wait_s| GenerateRequest {
        queueing: Queueing { tenant: tenant.to_owned(), longest_wait_s },
        ..request()
    };
    let tokens =
        |request| engine.generate(request, &Cancel::new(), &mut |_| ()).map(|outcome| outcome.token_ids);
    assert_eq!(tokens(with("a", Some(60.0))).unwrap(), tokens(request()).unwrap());
    for bad in [-1.0, f64::NAN] {
        let told = refusal(tokens(with("a", Some(bad))));
        assert!(told.contains("a longest wait of") && told.contains("hint: give 0 or more"), "{told}");
    }
}
