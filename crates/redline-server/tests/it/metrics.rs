//! `/metrics`: the values, the names, the bounds of its series, its guide and its dashboard.

use std::collections::{BTreeMap, BTreeSet};

use redline_server::{ApiKey, METRICS, MetricInfo, MetricKind};
use serde_json::Value;

use crate::server::{Held, Running, held, model, start, start_with};

const GUIDE: &str = include_str!("../../../../docs/metrics.md");
const DASHBOARD: &str = include_str!("../../../../deploy/grafana/redline.json");

/// The values of `/metrics` by their names and labels.
pub(crate) fn values(server: &Running) -> BTreeMap<String, f64> {
    let answer = server.client.get("/metrics").unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = answer.text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    let mut all = BTreeMap::new();
    for line in lines {
        let (name, value) = value(line);
        assert!(all.insert(name, value).is_none(), "{line} occurs twice");
    }
    all
}

#[test]
fn requests_are_counted_by_tokens_times_and_routes() {
    let server = start();
    let before = values(&server);
    assert_eq!(before["redline_generation_tokens_total"], 0.0);
    // Long enough to be kept.
    let text = "In the beginning God created the heaven and the earth. And the earth was without form";
    let body = &format!(r#"{{"prompt":"{text}","max_tokens":5,"ignore_eos":true}}"#);
    let answer = server.ok("/v1/completions", body);
    let prompt = answer["usage"]["prompt_tokens"].as_f64().unwrap();
    server.ok("/v1/score", r#"{"query":"In the","items":[" beginning"," end"],"labels":[" God"," the"]}"#);
    server.client.post("/v1/completions", r#"{"prompt":"a","n":0}"#).unwrap();
    server.client.get("/nothing").unwrap();
    let now = values(&server);
    assert_eq!(now["redline_generation_tokens_total"], 5.0);
    assert!(now["redline_prompt_tokens_total"] > prompt);
    assert_eq!(now["redline_score_items_total"], 2.0);
    assert_eq!(now["redline_engine_requests_total{end=\"finished\"}"], 2.0);
    assert_eq!(now["redline_time_to_first_token_seconds_count"], 1.0);
    assert_eq!(now["redline_inter_token_latency_seconds_count"], 4.0);
    assert_eq!(now["redline_time_per_output_token_seconds_count"], 1.0);
    assert_eq!(now["redline_request_queue_seconds_count"], 2.0);
    assert_eq!(now["redline_engine_request_seconds_count"], 2.0);
    assert_eq!(now["redline_passes_total{kind=\"generating\"}"], 4.0);
    assert!(now["redline_pass_tokens_total{kind=\"prompt\"}"] >= prompt);
    assert!(now["redline_pass_seconds_total{kind=\"prompt\"}"] > 0.0);
    assert_eq!(now["redline_http_requests_total{route=\"/v1/completions\",status=\"200\"}"], 1.0);
    assert_eq!(now["redline_http_requests_total{route=\"/v1/completions\",status=\"400\"}"], 1.0);
    assert_eq!(now["redline_http_requests_total{route=\"(none)\",status=\"404\"}"], 1.0);
    assert_eq!(now["redline_request_duration_seconds_count{route=\"/v1/completions\"}"], 2.0);
    assert_eq!((now["redline_requests_waiting"], now["redline_requests_running"]), (0.0, 0.0));
    assert_eq!(now["redline_http_requests_in_flight"], 1.0, "this one");
    assert!(now["redline_kv_pages_used"] > 0.0 && now["redline_prefix_cache_tokens"] > 0.0);
    assert!(now["redline_http_connections"] >= 1.0 && now["redline_http_connections_total"] >= 6.0);
    assert!(now["redline_http_body_bytes_total"] >= body.len() as f64);
}

#[test]
fn waiting_and_running_requests_are_seen_while_the_engine_is_in_a_pass() {
    let Held { server, holding, go } = held(|config| config.limits.queue = 2);
    let body = r#"{"prompt":"In the beginning","max_tokens":3}"#;
    let send = || server.client.send("POST", "/v1/completions", body.as_bytes()).unwrap();
    let first = send();
    holding.recv().unwrap();
    let second = send();
    while values(&server)["redline_requests_waiting"] != 1.0 {}
    let now = values(&server);
    assert_eq!((now["redline_requests_running"], now["redline_queue_places_used"]), (1.0, 2.0));
    assert_eq!(server.client.post("/v1/completions", body).unwrap().status, 429);
    assert_eq!(values(&server)["redline_requests_refused_total{code=\"queue_full\"}"], 1.0);
    drop(go);
    drop((first, second));
}

#[test]
fn metrics_need_a_key_unless_they_are_public() {
    for public in [false, true] {
        let server = start_with(model(), |config| {
            config.keys = vec![ApiKey::new("alice", "secret")];
            config.public_metrics = public;
        });
        let status = server.client.get("/metrics").unwrap().status;
        assert_eq!(status, if public { 200 } else { 401 });
        let known = server.client.clone().with_header("x-api-key", "secret");
        assert_eq!(known.get("/metrics").unwrap().status, 200);
        assert_eq!(server.client.get("/v1/models").unwrap().status, 401);
    }
}

#[test]
fn every_metric_of_the_table_is_written_and_no_other() {
    let server = start_with(model(), |config| config.vllm_metrics = true);
    server.ok("/v1/completions", r#"{"prompt":"In the beginning","max_tokens":2}"#);
    let text = server.client.get("/metrics").unwrap().text();
    let types: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let optional = [
        "redline_kv_pages_limit",
        "redline_kv_limit_bytes",
        "redline_kv_cache_usage_ratio",
        "redline_cache_config_info",
        "redline_disk_pages",
        "redline_disk_pages_read_total",
        "redline_disk_pages_written_total",
        "redline_disk_pages_removed_total",
        "redline_disk_pages_damaged_total",
        "redline_disk_pages_not_written_total",
        "redline_requests_refused_total",
        "redline_adapter_requests",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_threads",
    ];
    let mut expect = BTreeSet::new();
    for MetricInfo { name, kind, vllm, .. } in METRICS {
        for name in std::iter::once(*name).chain(*vllm) {
            expect.insert(name);
            match types.get(name) {
                Some(found) => assert_eq!(*found, kind.name(), "{name}"),
                None => assert!(
                    optional.iter().any(|of| METRICS
                        .iter()
                        .any(|m| m.name == *of && (m.name == name || m.vllm == Some(name)))),
                    "{name} is missing"
                ),
            }
        }
    }
    assert!(types.keys().all(|name| expect.contains(name)), "{types:?}");
    assert!(text.contains("vllm:lora_requests_info{") && text.contains("model_name=\"demo\""));
    let plain = start().client.get("/metrics").unwrap().text();
    assert!(!plain.contains("vllm:"));
}

#[test]
fn the_number_of_series_does_not_grow_with_what_clients_send() {
    let server = start();
    let count = || values(&server).len();
    server.client.get("/no/such/path").unwrap();
    server.client.post("/v1/completions", r#"{"prompt":"a","model":"x"}"#).unwrap();
    let first = count();
    for n in 0..20 {
        server.client.get(&format!("/no/such/path/{n}?x={n}")).unwrap();
        server.client.post("/v1/completions", &format!(r#"{{"prompt":"a","model":"x{n}"}}"#)).unwrap();
    }
    // What `/metrics` itself adds was there from the second reading on.
    assert!(count() <= first + 30, "{first}, {}", count());
    let second = count();
    server.client.get("/another/path").unwrap();
    assert_eq!(count(), second);
    let text = server.client.get("/metrics").unwrap().text();
    assert!(!text.contains("/no/such"), "{text}");
}

#[test]
fn the_guide_has_every_metric_with_its_kind_and_labels() {
    let rows: BTreeSet<String> =
        GUIDE.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
    let expect: BTreeSet<String> = METRICS
        .iter()
        .map(|MetricInfo { name, kind, help, labels, vllm }| {
            let code = |text: &str| format!("`{text}`");
            let labels: Vec<String> = labels.iter().map(|label| code(label)).collect();
            let vllm = vllm.map(code).unwrap_or_default();
            let cell = |text: String| if text.is_empty() { " |".to_owned() } else { format!(" {text} |") };
            format!(
                "|{}{}{}{}{}",
                cell(code(name)),
                cell(kind.name().to_owned()),
                cell(labels.join(", ")),
                cell((*help).to_owned()),
                cell(vllm)
            )
        })
        .collect();
    let missing: Vec<_> = expect.difference(&rows).collect();
    let surplus: Vec<_> = rows.difference(&expect).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing: {missing:#?}\nsurplus: {surplus:#?}");
}

/// All texts of a JSON document under the key `expr`.
fn queries(document: &Value, into: &mut Vec<String>) {
    match document {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "expr" => into.push(text.clone()),
                    value => queries(value, into),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| queries(element, into)),
        _ => {}
    }
}

#[test]
fn every_query_of_the_dashboard_names_a_metric_and_known_labels() {
    let mut all = Vec::new();
    queries(&serde_json::from_str(DASHBOARD).unwrap(), &mut all);
    assert!(all.len() > 15, "{all:?}");
    let series = |metric: &MetricInfo| -> Vec<String> {
        match metric.kind {
            MetricKind::Histogram => {
                ["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", metric.name)).to_vec()
            }
            _ => vec![metric.name.to_owned()],
        }
    };
    for query in &all {
        let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: Vec<&str> =
            words.filter(|word| word.starts_with("redline_") || word.starts_with("process_")).collect();
        assert!(!names.is_empty(), "no metric in {query}");
        for name in names {
            assert!(
                METRICS.iter().any(|metric| series(metric).iter().any(|one| one == name)),
                "{name} in {query}"
            );
        }
        if let Some((_, rest)) = query.split_once("by (") {
            let labels = rest.split(')').next().unwrap_or_default().split(',').map(str::trim);
            for label in labels.filter(|label| *label != "le") {
                let named =
                    |metric: &MetricInfo| query.contains(metric.name) && metric.labels.contains(&label);
                assert!(METRICS.iter().any(named), "{label} in {query}");
            }
        }
    }
}
