//! Shares of keys, the end of waits, and when a refused client may come again.

use redline_server::{ApiKey, ServerConfig};
use serde_json::Value;

use crate::server::{Held, error, held, model, start_with};

const GENERATE: &str = r#"{"prompt":"In the beginning","max_tokens":3}"#;
const SCORE: &str = r#"{"query":"a","items":["b"],"labels":[" a"]}"#;

fn two_keys(config: &mut ServerConfig) {
    config.keys = vec![ApiKey::new("alice", "one"), ApiKey::new("bob", "two")];
}

#[test]
fn a_key_leaves_places_to_others() {
    let Held { server, holding, go } = held(|config| {
        two_keys(config);
        config.limits.queue = 8;
    });
    let alice = server.client.clone().with_header("x-api-key", "one");
    let bob = server.client.clone().with_header("x-api-key", "two");
    let prompts = |n: usize| format!(r#"{{"prompt":[{}],"max_tokens":2}}"#, vec![r#""a""#; n].join(","));
    let first = alice.send("POST", "/v1/completions", prompts(6).as_bytes()).unwrap();
    holding.recv().unwrap();
    // Two of eight places are left, which is a quarter.
    let refused = alice.post("/v1/completions", GENERATE).unwrap();
    assert_eq!(error(&refused), (429, "queue_full".to_owned(), None));
    assert!(refused.text().contains("6 of 8 places are taken, 6 of them by this key"), "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
    let second = bob.send("POST", "/v1/completions", prompts(2).as_bytes()).unwrap();
    while !server_places(&bob).contains("redline_queue_places_used 8.0") {}
    assert_eq!(error(&bob.post("/v1/completions", GENERATE).unwrap()).0, 429);
    drop(go);
    drop((first, second));
    // Given back when they are answered.
    while server_places(&bob).contains("redline_queue_places_used 8.0") {}
}

fn server_places(client: &redline_client::HttpClient) -> String {
    client.get("/metrics").unwrap().text()
}

#[test]
fn a_key_alone_may_take_all_places() {
    let Held { server, holding, go } = held(|config| {
        config.keys = vec![ApiKey::new("alice", "one")];
        config.limits.queue = 2;
    });
    let alice = server.client.clone().with_header("x-api-key", "one");
    let running = alice.send("POST", "/v1/completions", br#"{"prompt":["a","b"],"max_tokens":2}"#).unwrap();
    holding.recv().unwrap();
    assert!(alice.post("/v1/completions", GENERATE).unwrap().text().contains("2 of 2 places"));
    drop((go, running));
}

#[test]
fn a_request_that_is_not_begun_in_time_is_told_so() {
    let Held { server, holding, go } = held(|_| ());
    let long = r#"{"prompt":"In the beginning","max_tokens":200,"ignore_eos":true}"#;
    let running = server.client.send("POST", "/v1/completions", long.as_bytes()).unwrap();
    holding.recv().unwrap();
    // It arrives while the engine is in a pass, and may not wait for the end of that.
    let brief = server.client.clone().with_header("X-Queue-Timeout", "0");
    let waiting = std::thread::spawn(move || brief.post("/v1/score", SCORE).unwrap());
    while !server_places(&server.client).contains("redline_requests_waiting 1.0") {}
    drop(go);
    let answer = waiting.join().unwrap();
    assert_eq!(error(&answer), (503, "queue_timeout".to_owned(), None));
    assert!(answer.header("retry-after").is_some());
    let metrics = server_places(&server.client);
    assert!(metrics.contains("redline_engine_requests_total{end=\"expired\"} 1.0"), "{metrics}");
    assert!(metrics.contains("redline_requests_refused_total{code=\"queue_timeout\"} 1.0"), "{metrics}");
    drop(running);
}

#[test]
fn the_wait_that_a_client_gives_is_checked_and_time_of_a_run_is_another() {
    let server = start_with(model(), |_| ());
    for bad in ["-1", "soon", "nan", "inf", "1e9", ""] {
        let client = server.client.clone().with_header("x-queue-timeout", bad);
        let refused = error(&client.post("/v1/score", SCORE).unwrap());
        assert_eq!(refused, (400, "invalid_value".to_owned(), Some("x-queue-timeout".to_owned())), "{bad}");
    }
    let patient = server.client.clone().with_header("x-queue-timeout", "60");
    assert_eq!(patient.post("/v1/score", SCORE).unwrap().status, 200);
    let late = r#"{"prompt":"In the beginning","max_tokens":200,"ignore_eos":true,"timeout_s":1e-6}"#;
    assert_eq!(error(&patient.post("/v1/completions", late).unwrap()).1, "deadline_exceeded");
}

#[test]
fn a_flood_of_one_key_does_not_keep_another_waiting() {
    let Held { server, holding, go } = held(|config| {
        two_keys(config);
        config.limits.queue = 100;
    });
    let alice = server.client.clone().with_header("x-api-key", "one");
    let bob = server.client.clone().with_header("x-api-key", "two");
    let text = "In the beginning God created the heaven and the earth. ".repeat(20);
    let prompts: Vec<String> = (0..60).map(|n| format!("{n} {text}")).collect();
    let flood = serde_json::json!({ "prompt": prompts, "max_tokens": 1 }).to_string();
    let flooding = std::thread::spawn(move || alice.post("/v1/completions", &flood).unwrap());
    holding.recv().unwrap();
    let one = bob.clone();
    let asking = std::thread::spawn(move || one.post("/v1/completions", GENERATE).unwrap());
    let in_engine = |text: &str| {
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        value("redline_requests_waiting ") + value("redline_requests_running ")
    };
    while in_engine(&server_places(&bob)) < 61.0 {}
    drop(go);
    let answer: Value = serde_json::from_slice(&asking.join().unwrap().body).unwrap();
    assert_eq!(answer["choices"].as_array().unwrap().len(), 1);
    // Most of the flood is not answered when the other key is.
    let metrics = server_places(&bob);
    let finished =
        metrics.lines().find(|line| line.starts_with("redline_engine_requests_total{end=\"finished\"}"));
    let finished: f64 = finished.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(finished < 30.0, "{finished} of 60 requests were finished before");
    assert_eq!(flooding.join().unwrap().status, 200);
}
