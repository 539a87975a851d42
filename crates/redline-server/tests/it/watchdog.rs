//! The watchdog: an engine that is frozen or has stopped, and one that is only busy.

use std::sync::Arc;
use std::time::Duration;

use redline_engine::{Stage, StageTime};

use crate::server::{Held, Running, error, held, json, model_with, start_with};

/// Asks until the answer has this status, for a minute at most.
fn until(server: &Running, path: &str, status: u16) -> redline_client::HttpAnswer {
    for _ in 0..6000 {
        let answer = server.client.get(path).unwrap();
        if answer.status == status {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("`{path}` does not get the status {status}");
}

#[test]
fn a_frozen_engine_is_not_ready_and_gets_ready_again() {
    let Held { server, holding, go } = held(|config| config.limits.frozen_time = Duration::from_millis(50));
    assert_eq!(server.client.get("/ready").unwrap().status, 200, "idle is not frozen");
    let body = r#"{"prompt":"In the beginning","max_tokens":3}"#;
    let running = server.client.send("POST", "/v1/completions", body.as_bytes()).unwrap();
    holding.recv().unwrap();
    let unready = until(&server, "/ready", 503);
    assert_eq!(error(&unready), (503, "engine_frozen".to_owned(), None));
    assert!(unready.header("retry-after").is_some());
    // New work is refused at once; the process itself works.
    let refused = server.client.post("/v1/completions", body).unwrap();
    assert_eq!(error(&refused), (503, "engine_frozen".to_owned(), None));
    assert_eq!(server.client.get("/health").unwrap().status, 200);
    let metrics = server.client.get("/metrics").unwrap().text();
    assert!(metrics.contains("\nredline_engine_frozen 1.0\n"), "{metrics}");
    assert!(metrics.contains("\nredline_requests_running 1.0\n"), "{metrics}");
    drop(go);
    until(&server, "/ready", 200);
    assert_eq!(server.client.post("/v1/completions", body).unwrap().status, 200);
    drop(running);
}

#[test]
fn a_busy_engine_stays_ready() {
    // A pass is short, and the request takes longer than an engine may stand still.
    let slow = |time: StageTime| {
        if matches!(time.stage, Stage::Pass) {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let model = model_with(|options| options.stages = Some(Arc::new(slow)));
    let server = start_with(model, |config| config.limits.frozen_time = Duration::from_secs(3));
    let body = r#"{"prompt":"In the beginning","max_tokens":250,"ignore_eos":true}"#;
    let client = server.client.clone();
    let busy = std::thread::spawn(move || client.post("/v1/completions", body).unwrap().status);
    while !busy.is_finished() {
        assert_eq!(server.client.get("/ready").unwrap().status, 200);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(busy.join().unwrap(), 200);
}

#[test]
fn a_stopped_engine_is_seen_without_a_request_that_finds_it() {
    let stop = |time: StageTime| assert!(!matches!(time.stage, Stage::Pass), "the engine's thread ends");
    let server = start_with(model_with(|options| options.stages = Some(Arc::new(stop))), |_| ());
    assert_eq!(server.client.get("/health").unwrap().status, 200);
    let body = r#"{"prompt":"In the beginning","max_tokens":3}"#;
    let failed = server.client.post("/v1/completions", body).unwrap();
    assert!(failed.status >= 500, "{failed:?}");
    for path in ["/health", "/ready"] {
        let unhealthy = until(&server, path, 503);
        assert_eq!(error(&unhealthy), (503, "engine_stopped".to_owned(), None));
        assert!(json(&unhealthy)["error"]["message"].as_str().unwrap().contains("has stopped"));
    }
}
