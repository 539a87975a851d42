//! The peak memory of a request.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use redline_engine::{Cancel, Engine, Options, ProfileEvent};

use crate::models::{generation, golden_dir, ids, options};

/// The counters belong to the process: with two requests at once, neither has a peak. That a single request has one is tested
/// with the binary, whose process runs nothing else.
#[test]
fn requests_that_ran_at_the_same_time_have_no_peak() {
    let (submitted, both) = channel();
    let both = Mutex::new(Some(both));
    let options = Options {
        // After the first pass of the first request, the engine's thread waits for the second request.
        profile: Some(Arc::new(move |event| {
            if let ProfileEvent::Pass(_) = event
                && let Some(both) = both.lock().unwrap().take()
            {
                both.recv().unwrap();
            }
        })),
        ..options(&golden_dir())
    };
    let engine = Engine::load(options).unwrap();
    let cancel = Cancel::new();
    let first = engine.submit_generate(generation(ids(&[1, 2, 3]), 8), &cancel).unwrap();
    let second = engine.submit_generate(generation(ids(&[4, 5]), 2), &cancel).unwrap();
    submitted.send(()).unwrap();
    for ticket in [first, second] {
        assert_eq!(ticket.wait().unwrap().peak_memory_bytes, None);
    }
}
