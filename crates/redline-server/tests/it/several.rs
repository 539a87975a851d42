//! Several models in one server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redline_engine::{Engine, Options, Source, StageLog, Turns};
use redline_server::{ApiKey, ModelSet, ServedModel};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::encoder::reading_directory;
use crate::server::{Running, chat, error, hold, json as document, loaded_from, start_several, start_with};

/// The directories of a model that writes, one that embeds and one that ranks.
struct Directories {
    _root: TempDir,
    writes: PathBuf,
    embeds: PathBuf,
    ranks: PathBuf,
}

fn directories() -> Directories {
    let root = tempfile::tempdir().unwrap();
    let (embeds, ranks) = ("bert-a", "xlmr-b");
    Directories {
        writes: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo"),
        embeds: reading_directory(root.path(), embeds),
        ranks: reading_directory(root.path(), ranks),
        _root: root,
    }
}

fn options(dir: &Path) -> Options {
    Options { prefix_cache: None, ..Options::new(Source::Path(dir.to_owned())) }
}

/// A model that may take one unit of memory.
fn served(name: &str, options: Options) -> ServedModel {
    ServedModel {
        name: name.to_owned(),
        chat: (name == "chat").then(|| chat("qwen-3.jinja")),
        adapters: Vec::new(),
        summary: Engine::inspect(&options).unwrap(),
        memory: 1,
        load: Box::new(move || Engine::load(options.clone()).map_err(|error| error.to_string())),
    }
}

/// The three models, of which `memory` may be loaded at a time.
fn three(of: &Directories, memory: u64, idle: Option<Duration>) -> ModelSet {
    let turns = Turns::default();
    let model = |name, dir| served(name, Options { turns: Some(turns.clone()), ..options(dir) });
    let models = vec![model("chat", &of.writes), model("embed", &of.embeds), model("rerank", &of.ranks)];
    ModelSet { models, memory, idle }
}

/// A request for each of the models, which names none, and what its answer is about.
const REQUESTS: [(&str, &str, &str); 3] = [
    (
        "/v1/chat/completions",
        r#"{"messages":[{"role":"user","content":"Who is king?"}],"max_tokens":12}"#,
        "choices",
    ),
    ("/v1/embeddings", r#"{"input":["who is king ?","it rains ."]}"#, "data"),
    ("/v1/rerank", r#"{"query":"who is king ?","documents":["henry is king .","it rains ."]}"#, "results"),
];

/// What the answers of servers of one model are about.
fn alone(of: &Directories) -> Vec<Value> {
    let dirs = [&of.writes, &of.embeds, &of.ranks];
    let answer = |(dir, (path, body, key)): (&PathBuf, (&str, &str, &str))| {
        let model = loaded_from(dir, |options| options.prefix_cache = None);
        let server = start_with(model, |config| config.chat = Some(chat("qwen-3.jinja")));
        server.ok(path, body)[key].clone()
    };
    dirs.into_iter().zip(REQUESTS).map(answer).collect()
}

/// The names of the models that are in memory.
fn loaded(server: &Running) -> Vec<String> {
    let list = document(&server.client.get("/v1/models").unwrap());
    let names = list["data"].as_array().unwrap().iter().filter(|model| model["loaded"] == true);
    names.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_request_finds_its_model_by_name_or_by_what_it_is_for() {
    let of = directories();
    let server = start_several(three(&of, 3, None), |_| ());
    for ((path, body, key), expected) in REQUESTS.iter().zip(alone(&of)) {
        assert_eq!(server.ok(path, body)[key], expected, "{path}");
    }
    assert_eq!(loaded(&server), ["chat", "embed", "rerank"]);
    let named = |path: &str, body: &str, model: &str| {
        let body = body.replacen('{', &format!(r#"{{"model":"{model}","#), 1);
        server.client.post(path, &body).unwrap()
    };
    // A model that is named is asked, also for what another one was made for.
    let (path, body, _) = REQUESTS[1];
    assert_eq!(document(&named(path, body, "embed"))["model"], "embed");
    assert_eq!(error(&named(path, body, "chat")).2.as_deref(), Some("input"));
    assert_eq!(
        error(&named(path, body, "other")),
        (404, "model_not_found".to_owned(), Some("model".to_owned()))
    );
    for (path, body, name) in [
        ("/embed", r#"{"inputs":"king"}"#, "embed"),
        ("/similarity", r#"{"inputs":{"source_sentence":"king","sentences":["rose"]}}"#, "embed"),
        ("/api/embed", r#"{"model":"embed:latest","input":"king"}"#, "embed"),
        ("/score", r#"{"text_1":"who","text_2":["henry"]}"#, "rerank"),
        ("/v1/completions", r#"{"prompt":"In","max_tokens":1}"#, "chat"),
        ("/tokenize", r#"{"prompt":"In"}"#, "chat"),
    ] {
        let answer = server.ok(path, body);
        assert!(
            answer.get("model").is_none_or(|model| model.as_str().unwrap().starts_with(name)),
            "{answer}"
        );
    }
}

#[test]
fn the_server_says_what_its_models_can_do() {
    let of = directories();
    // One at a time: the others are known before they are loaded.
    let server = start_several(three(&of, 1, None), |_| ());
    let list = document(&server.client.get("/v1/models").unwrap());
    let abilities: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|model| model["abilities"].clone()).collect();
    let writes = json!(["generate", "score", "rerank", "classify"]);
    assert_eq!(abilities, [writes, json!(["embed"]), json!(["rerank"])]);
    assert_eq!(loaded(&server), ["chat"]);
    let one = document(&server.client.get("/v1/models/embed").unwrap());
    assert_eq!(
        (&one["id"], &one["loaded"], &one["generation"]),
        (&json!("embed"), &json!(false), &Value::Null)
    );
    let names = |path: &str| {
        let models = document(&server.client.get(path).unwrap())["models"].clone();
        models.as_array().unwrap().iter().map(|model| model["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names("/api/tags"), names("/api/ps")),
        (vec![json!("chat"), json!("embed"), json!("rerank")], vec![json!("chat")])
    );
    let metrics = server.client.get("/metrics").unwrap().text();
    let has = |line: &str| metrics.lines().any(|other| other == line);
    assert!(
        has(r#"redline_model_loaded{model="chat"} 1.0"#) && has(r#"redline_model_loaded{model="embed"} 0.0"#),
        "{metrics}"
    );
    assert!(has(r#"redline_requests_running{model="chat"} 0.0"#), "{metrics}");
    assert_eq!(server.client.get("/ready").unwrap().status, 200);
}

#[test]
fn answers_under_mixed_load_are_those_alone() {
    let of = directories();
    let expected = alone(&of);
    // With memory for all, and with so little that models leave for each other.
    for (memory, rounds) in [(3, 6), (2, 2)] {
        let server = start_several(three(&of, memory, None), |_| ());
        std::thread::scope(|scope| {
            for thread in 0..32 {
                let (server, expected) = (&server, &expected);
                scope.spawn(move || {
                    for round in 0..rounds {
                        let at = (thread + round) % 3;
                        let (path, body, key) = REQUESTS[at];
                        let answer = server.client.post(path, body).unwrap();
                        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
                        assert_eq!(document(&answer)[key], expected[at], "{path}");
                    }
                });
            }
        });
        let (summary, log) = server.end();
        assert_eq!((summary.ended, log.len()), (summary.admitted, 32 * rounds));
    }
}

/// What is seen of engines when one is loaded: how many were loaded, and how many were in memory then at most.
#[derive(Clone)]
struct Seen {
    loads: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    /// Every engine in memory owns one.
    probe: StageLog,
}

fn counted(name: &str, options: Options, seen: &Seen) -> ServedModel {
    let options = Options { stages: Some(seen.probe.clone()), ..options };
    let (model, seen) = (served(name, options.clone()), seen.clone());
    let load = move || {
        seen.loads.fetch_add(1, Ordering::SeqCst);
        seen.most.fetch_max(Arc::strong_count(&seen.probe), Ordering::SeqCst);
        Engine::load(options.clone()).map_err(|error| error.to_string())
    };
    ServedModel { load: Box::new(load), ..model }
}

#[test]
fn models_leave_and_come_back_a_hundred_times_without_a_lost_request() {
    let of = directories();
    let seen = Seen { loads: Arc::default(), most: Arc::default(), probe: Arc::new(|_| ()) };
    let model = |name, dir| counted(name, options(dir), &seen);
    let models = vec![model("embed", &of.embeds), model("rerank", &of.ranks)];
    let without_engines = Arc::strong_count(&seen.probe);
    let server = start_several(ModelSet { models, memory: 1, idle: None }, |_| ());
    let mut first = [Value::Null, Value::Null];
    for round in 0..100 {
        let (path, body, key) = REQUESTS[1 + round % 2];
        let answer = server.ok(path, body)[key].clone();
        if round < 2 {
            first[round] = answer;
        } else {
            assert_eq!(answer, first[round % 2], "{round}");
        }
        assert_eq!(loaded(&server).len(), 1);
    }
    // The first one was there from the start.
    assert_eq!(seen.loads.load(Ordering::SeqCst), 100);
    assert_eq!(seen.most.load(Ordering::SeqCst), without_engines);
}

#[test]
fn a_model_without_requests_leaves_memory_and_comes_back() {
    let of = directories();
    let server = start_several(three(&of, 3, Some(Duration::from_millis(1))), |_| ());
    for _ in 0..3 {
        for (path, body, _) in REQUESTS {
            server.ok(path, body);
        }
        while !loaded(&server).is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_model_that_cannot_be_loaded_fails_its_requests_only_and_is_tried_again() {
    let of = directories();
    let tries = Arc::new(AtomicUsize::new(0));
    let embed = served("embed", options(&of.embeds));
    let load = {
        let tries = tries.clone();
        move || match tries.fetch_add(1, Ordering::SeqCst) {
            0 => Err("the file is gone".to_owned()),
            1 => panic!("a bug"),
            _ => (embed.load)(),
        }
    };
    let embed = ServedModel { load: Box::new(load), ..served("embed", options(&of.embeds)) };
    let models = vec![served("chat", options(&of.writes)), embed];
    let server = start_several(ModelSet { models, memory: 1, idle: None }, |_| ());
    let (path, body, _) = REQUESTS[1];
    let refused = server.client.post(path, body).unwrap();
    assert_eq!(error(&refused), (500, "model_not_loaded".to_owned(), Some("model".to_owned())));
    assert!(refused.text().contains("`embed` cannot be loaded: the file is gone"), "{}", refused.text());
    let (chat, question, _) = REQUESTS[0];
    server.ok(chat, question);
    let refused = server.client.post(path, body).unwrap();
    assert!(refused.status == 500 && refused.text().contains("panicked"), "{}", refused.text());
    server.ok(path, body);
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    let (_, log) = server.end();
    let failures: Vec<_> = log.iter().filter(|line| line["event"] == "model_not_loaded").collect();
    assert_eq!(
        *failures[0],
        json!({ "event": "model_not_loaded", "model": "embed", "reason": "the file is gone" })
    );
    assert_eq!(failures.len(), 2);
}

#[test]
fn callers_with_a_key_are_not_told_why_a_model_cannot_be_loaded() {
    let of = directories();
    let lost = ServedModel {
        load: Box::new(|| Err("/secret/place is gone".to_owned())),
        ..served("embed", options(&of.embeds))
    };
    let models = vec![served("chat", options(&of.writes)), lost];
    let server = start_several(ModelSet { models, memory: 1, idle: None }, |config| {
        config.keys = vec![ApiKey::new("a", "secret")];
    });
    let (path, body, _) = REQUESTS[1];
    let refused = server.client.clone().with_header("x-api-key", "secret").post(path, body).unwrap();
    let message = "`embed` cannot be loaded: the log of the server says why";
    assert!(refused.text().contains(message), "{}", refused.text());
}

#[test]
fn a_request_that_finds_no_memory_in_time_is_refused_and_others_go_on() {
    let of = directories();
    let (hold, holding, go) = hold();
    let held = Options { stages: Some(hold), ..options(&of.writes) };
    let loads = Arc::new(AtomicUsize::new(0));
    let chat = served("chat", held);
    let load = {
        let loads = loads.clone();
        move || {
            loads.fetch_add(1, Ordering::SeqCst);
            (chat.load)()
        }
    };
    let chat = ServedModel { load: Box::new(load), ..served("chat", options(&of.writes)) };
    let models = vec![chat, served("embed", options(&of.embeds))];
    let server = start_several(ModelSet { models, memory: 1, idle: None }, |config| {
        config.limits.frozen_time = Duration::from_hours(1);
    });
    std::thread::scope(|scope| {
        let (path, body, _) = REQUESTS[0];
        let running = scope.spawn({
            let server = &server;
            move || server.client.post(path, body).unwrap()
        });
        holding.recv().unwrap();
        let (path, body, _) = REQUESTS[1];
        let body = body.replacen('{', r#"{"timeout_s":0.3,"#, 1);
        let refused = server.client.post(path, &body).unwrap();
        assert_eq!(error(&refused), (429, "model_waits".to_owned(), Some("model".to_owned())));
        assert!(refused.header("retry-after").is_some());
        // The time that requests may wait at most is also that for a model.
        let (_, body, _) = REQUESTS[1];
        let refused = server.client.clone().with_header("x-queue-timeout", "0.05").post(path, body).unwrap();
        assert_eq!(error(&refused).1, "model_waits");
        assert_eq!(loaded(&server), ["chat"], "it is there as long as it is used");
        drop(go);
        assert_eq!(running.join().unwrap().status, 200);
        // Nobody waits for its memory any more, so it stays.
        let (path, body, _) = REQUESTS[0];
        server.ok(path, body);
        assert_eq!((loaded(&server), loads.load(Ordering::SeqCst)), (vec!["chat".to_owned()], 1));
    });
}
