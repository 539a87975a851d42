//! Limits of requests, and what happens to those beyond them.

use std::io::{BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use redline_client::HttpClient;

use crate::server::{Held, error, held, json, model, model_with, start, start_with};

const GENERATE: &str = r#"{"prompt":"In the beginning","max_tokens":200,"ignore_eos":true}"#;

#[test]
fn a_full_queue_refuses_valid_requests_and_names_faults_of_others() {
    let Held { server, holding, go } = held(|config| config.limits.queue = 2);
    let running =
        [(); 2].map(|()| server.client.send("POST", "/v1/completions", GENERATE.as_bytes()).unwrap());
    holding.recv().unwrap();
    // The second request may still be on its way, so the first attempts may be admitted, and held too.
    let attempt = |_| {
        let body = br#"{"query":"a","items":["b"],"labels":[" a"]}"#;
        let mut stream = server.client.send("POST", "/v1/score", body).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).is_ok().then_some(text)
    };
    let refused = (0..60).find_map(attempt).expect("a refusal");
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 1"), "{refused}");
    assert!(refused.contains(r#""code":"queue_full""#), "{refused}");
    let invalid = server.client.post("/v1/completions", r#"{"prompt":"a","n":0}"#).unwrap();
    assert_eq!(error(&invalid), (400, "invalid_value".to_owned(), Some("n".to_owned())));
    let too_many = server.client.post("/v1/completions", r#"{"prompt":["a","b","c"]}"#).unwrap();
    assert_eq!(error(&too_many), (400, "invalid_value".to_owned(), Some("prompt".to_owned())));
    assert_eq!(server.client.get("/health").unwrap().status, 200);
    assert_eq!(server.client.get("/ready").unwrap().status, 200, "busy is not unready");
    drop(go);
    drop(running);
}

#[test]
fn a_request_whose_client_leaves_gives_its_place_back() {
    let Held { server, holding, go } = held(|config| config.limits.queue = 1);
    let first = server.client.send("POST", "/v1/completions", GENERATE.as_bytes()).unwrap();
    holding.recv().unwrap();
    redline_client::hang_up(&first).unwrap();
    // Refused until the server has seen that the client left.
    let refused = |client: &HttpClient| {
        let body = r#"{"query":"a","items":[],"labels":[" a"]}"#;
        client.post("/v1/score", body).map(|answer| answer.status).unwrap()
    };
    drop(go);
    while refused(&server.client) == 429 {}
    let (summary, log) = server.end();
    assert_eq!(summary.admitted, summary.ended);
    let left: Vec<_> = log.iter().filter(|line| line["status"] == 499).collect();
    assert_eq!(left.len(), 1, "{log:?}");
    assert!(left[0]["completion_tokens"].is_null());
}

#[test]
fn bodies_have_a_largest_size_whether_they_declare_it_or_not() {
    let server = start_with(model(), |config| config.limits.body_bytes = 1000);
    let large = format!("{{\"prompt\":\"{}\"}}", "x".repeat(2000));
    let answer = server.client.post("/tokenize", &large).unwrap();
    assert_eq!(error(&answer), (413, "body_too_large".to_owned(), None));
    assert!(answer.header("retry-after").is_none());
    let head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = format!("{head}{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let answer = server.client.raw(chunked.as_bytes()).unwrap();
    assert_eq!(error(&answer), (413, "body_too_large".to_owned(), None));
    let fits = "{\"prompt\":\"x\"}";
    let chunked = format!("{head}{:x}\r\n{fits}\r\n0\r\n\r\n", fits.len());
    assert_eq!(server.client.raw(chunked.as_bytes()).unwrap().status, 200);
}

#[test]
fn bodies_that_are_read_have_a_common_budget() {
    let server = start_with(model(), |config| config.limits.all_body_bytes = 1000);
    let large = format!("{{\"prompt\":\"{}\"}}", "x".repeat(2000));
    let answer = server.client.post("/tokenize", &large).unwrap();
    assert_eq!(error(&answer), (429, "bytes_budget".to_owned(), None));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(server.client.post("/tokenize", "{\"prompt\":\"x\"}").unwrap().status, 200);
}

#[test]
fn other_formats_are_refused() {
    let server = start();
    let text = server.client.clone().with_header("Content-Type", "text/plain");
    let answer = text.post("/tokenize", "{\"prompt\":\"x\"}").unwrap();
    assert_eq!(error(&answer), (415, "unsupported_media_type".to_owned(), None));
    let typed = server.client.clone().with_header("Content-Type", "application/json; charset=utf-8");
    assert_eq!(typed.post("/tokenize", "{\"prompt\":\"x\"}").unwrap().status, 200);
}

#[test]
fn what_is_not_http_ends_its_connection_only() {
    let server = start();
    for bytes in [
        b"nonsense\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00".repeat(40),
        format!("GET /health HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(200_000)).into_bytes(),
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(),
    ] {
        // The connection may be reset before the answer is read.
        if let Ok(answer) = server.client.raw(&bytes) {
            assert!((400..500).contains(&answer.status), "{answer:?}");
        }
        assert_eq!(server.client.get("/health").unwrap().status, 200);
    }
}

#[test]
fn a_head_or_a_body_that_does_not_come_is_not_waited_for() {
    let server = start_with(model(), |config| config.limits.head_time = Duration::from_millis(50));
    let mut silent = server.client.send_raw(b"GET /health HT").unwrap();
    let mut rest = Vec::new();
    // Nothing but the end of the connection, or an error about the head, comes.
    let _ = silent.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200"), "{rest:?}");
    let server = start_with(model(), |config| config.limits.body_time = Duration::from_millis(50));
    let head =
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{";
    let answer = server.client.raw(head).unwrap();
    assert_eq!(error(&answer), (408, "body_timeout".to_owned(), None));
}

#[test]
fn connections_beyond_the_maximum_are_told_so() {
    let server = start_with(model(), |config| config.limits.connections = 1);
    let mut first = server.client.send_raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut byte = [0];
    first.read_exact(&mut byte).unwrap();
    let mut second = server.client.send_raw(b"").unwrap();
    let mut text = String::new();
    second.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 503") && text.contains("too_many_connections"), "{text}");
    // The first connection goes on.
    first.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut rest = String::new();
    first.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches("HTTP/1.1 200").count(), 1, "{rest}");
}

#[test]
fn a_request_that_takes_too_long_is_ended() {
    let server = start();
    let body = r#"{"prompt":"In the beginning","max_tokens":200,"ignore_eos":true,"timeout_s":1e-6}"#;
    let answer = server.client.post("/v1/completions", body).unwrap();
    assert_eq!(error(&answer), (408, "deadline_exceeded".to_owned(), None));
}

#[test]
fn keys_do_not_share_cached_prefixes() {
    let ids: Vec<i64> = (0..100).map(|id| 5 + id % 50).collect();
    let server = start_with(
        model_with(|options| options.prefix_cache = Some(redline_engine::PrefixCacheSize::Automatic)),
        |config| {
            let key = |name: &str| redline_server::ApiKey::new(name, name);
            config.keys = vec![key("alice"), key("bob")];
        },
    );
    let cached = |name: &str| {
        let client = server.client.clone().with_header("x-api-key", name);
        let body = serde_json::json!({ "prompt": ids, "max_tokens": 1 }).to_string();
        let answer = client.post("/v1/completions", &body).unwrap();
        json(&answer)["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached("alice"), 0);
    assert!(cached("alice") > 0);
    assert_eq!(cached("bob"), 0);
}

#[test]
fn a_body_that_its_client_breaks_off_is_refused_before_its_time() {
    let server = start_with(model(), |config| config.limits.body_time = Duration::from_hours(1));
    let head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
    let mut stream = server.client.send_raw(head).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("breaks off"), "{answer}");
}

#[test]
fn a_client_that_closes_its_half_gets_its_answer() {
    let Held { server, holding, go } = held(|_| ());
    let stream = server.client.send("POST", "/v1/completions", GENERATE.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    holding.recv().unwrap();
    // The server has seen the end of what the client sends when the probe comes.
    let mut reader = BufReader::new(stream);
    let mut probe = vec![0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    reader.read_exact(&mut probe).unwrap();
    assert_eq!(String::from_utf8(probe).unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    drop(go);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    let answer = rest.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"completion_tokens\":200"),
        "{answer}"
    );
    // Between requests, the connection ends.
    let mut idle = server.client.send_raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        let mut byte = [0];
        idle.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    idle.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).unwrap();
    assert_eq!(String::from_utf8(rest).unwrap(), "");
    let (_, log) = server.end();
    assert!(log.iter().all(|line| line["status"] == 200), "{log:?}");
}

#[test]
fn errors_of_the_http_parser_have_a_body() {
    let server = start();
    let long = "y".repeat(70_000);
    for (bytes, status, code) in [
        ("nonsense\r\n\r\n".to_owned(), 400, "invalid_http"),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\na b: c\r\n\r\n".to_owned(), 400, "invalid_http"),
        (
            format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "x: y\r\n".repeat(101)),
            431,
            "head_too_large",
        ),
        (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 414, "path_too_long"),
    ] {
        let answer = server.client.raw(bytes.as_bytes()).unwrap();
        assert_eq!(error(&answer), (status, code.to_owned(), None), "{}", &bytes[..20]);
    }
}
