//! The end of a server: running requests are answered, new ones are not taken, and the log is complete.

use std::io::Read as _;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redline_engine::{Stage, StageTime};

use crate::server::{Held, held, model_with, start, start_with};

#[test]
fn running_requests_are_answered_before_the_end() {
    let Held { server, holding, go } = held(|config| config.limits.drain_time = Duration::from_secs(100));
    let body = r#"{"prompt":"In the beginning","max_tokens":5}"#;
    let mut running = server.client.send("POST", "/v1/completions", body.as_bytes()).unwrap();
    holding.recv().unwrap();
    server.stop();
    // The port closes; until then, nothing but the state is answered.
    while server.client.get("/health").is_ok() {}
    drop(go);
    let mut text = String::new();
    running.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("text_completion"), "{text}");
    let (summary, _) = server.end();
    assert_eq!((summary.admitted, summary.ended, summary.forced), (1, 1, false));
}

#[test]
fn requests_that_run_longer_than_the_end_may_take_are_told_so() {
    // Every pass waits a little, so that the request lasts.
    let slow = |time: StageTime| {
        if matches!(time.stage, Stage::Pass) {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let (seen, begun) = channel();
    let seen = Mutex::new(seen);
    let model = model_with(|options| {
        options.stages = Some(Arc::new(move |time: StageTime| {
            let _ = seen.lock().unwrap().send(());
            slow(time);
        }));
    });
    let server = start_with(model, |config| config.limits.drain_time = Duration::ZERO);
    let body = r#"{"prompt":"In the beginning","max_tokens":400,"ignore_eos":true}"#;
    let mut running = server.client.send("POST", "/v1/completions", body.as_bytes()).unwrap();
    begun.recv().unwrap();
    server.stop();
    let mut text = String::new();
    running.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 503") && text.contains(r#""code":"draining""#), "{text}");
    let (summary, _) = server.end();
    assert_eq!((summary.admitted, summary.ended), (1, 1));
}

#[test]
fn the_log_has_a_line_per_request_and_no_text() {
    let server = start();
    server.ok("/v1/completions", r#"{"prompt":"a heartfelt secret","max_tokens":3}"#);
    let bad = server.client.post("/v1/completions", r#"{"prompt":"another secret","n":0}"#).unwrap();
    assert_eq!(bad.status, 400);
    server.client.get("/nothing?secret=1").unwrap();
    let (_, log) = server.end();
    let told: Vec<_> = log.iter().map(|line| (line["route"].clone(), line["status"].clone())).collect();
    let expect = [("/v1/completions", 200), ("/v1/completions", 400), ("(none)", 404)];
    assert_eq!(told, expect.map(|(route, status)| (route.into(), status.into())));
    assert_eq!(log[0]["completion_tokens"], 3);
    assert!(log[0]["request_id"].is_string() && log[0]["total_ms"].is_number());
    assert_eq!(log[1]["code"], "invalid_value");
    let text = serde_json::to_string(&log).unwrap();
    assert!(!text.contains("secret"), "{text}");
}
