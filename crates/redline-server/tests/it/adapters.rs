//! Adapters: chosen by requests, and loaded, replaced and removed while the server runs.

use std::path::{Path, PathBuf};

use redline_engine::AdapterOptions;
use serde_json::{Value, json};

use crate::server::{Held, Running, error, held_with, model_with, start_with};

/// The demo model's adapters: the folder is one, and holds another, `jargon`.
fn adapters() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-adapter")
}

/// A server that loads adapters from a root.
fn serving(root: &Path) -> Running {
    let model = model_with(|options| options.adapters = Some(AdapterOptions::default()));
    start_with(model, |config| config.adapter_root = Some(root.to_owned()))
}

fn load(server: &Running, name: &str, path: &str, replaces: bool) -> redline_client::HttpAnswer {
    let body = json!({ "lora_name": name, "lora_path": path, "load_inplace": replaces });
    server.client.post("/v1/load_lora_adapter", &body.to_string()).unwrap()
}

fn loaded(server: &Running, name: &str, path: &str) {
    let answer = load(server, name, path, false);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().starts_with("Success: LoRA adapter"), "{}", answer.text());
}

fn unload(server: &Running, name: &str) -> redline_client::HttpAnswer {
    let body = json!({ "lora_name": name }).to_string();
    server.client.post("/v1/unload_lora_adapter", &body).unwrap()
}

/// The text that follows a prompt, with these further fields.
fn text(server: &Running, more: Value) -> String {
    let mut body = json!({ "prompt": "It means", "max_tokens": 16 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = server.ok("/v1/completions", &body.to_string());
    assert_eq!(answer["model"], body.get("model").unwrap_or(&"demo".into()).clone());
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

const BASE: &str = " that the man might be in the same house, and the other is the man";
const JARGON: &str = " that the program is not a program.\n2. A program that is a";

#[test]
fn a_request_chooses_an_adapter_by_model_or_by_field() {
    let server = serving(&adapters());
    loaded(&server, "jargon", "jargon");
    assert_eq!(text(&server, json!({})), BASE);
    assert_eq!(text(&server, json!({ "model": "jargon" })), JARGON);
    assert_eq!(text(&server, json!({ "adapter": "jargon" })), JARGON);
    assert_eq!(text(&server, json!({ "adapter": [{ "name": "jargon", "scale": 1 }] })), JARGON);
    assert_eq!(text(&server, json!({ "adapter": "base" })), BASE);
    let half = " that the program is not a program, but it is not a program that is";
    assert_eq!(text(&server, json!({ "adapter": [{ "name": "jargon", "scale": 0.5 }] })), half);
    let refused = |body: Value| error(&server.client.post("/v1/completions", &body.to_string()).unwrap());
    let found = |param: &str| (404, "model_not_found".to_owned(), Some(param.to_owned()));
    assert_eq!(refused(json!({ "prompt": "a", "model": "tone" })), found("model"));
    assert_eq!(refused(json!({ "prompt": "a", "adapter": "tone" })), found("adapter"));
    assert_eq!(refused(json!({ "prompt": "a", "adapter": ["jargon", "tone"] })), found("adapter"));
    let bad = |code: &str, param: &str| (400, code.to_owned(), Some(param.to_owned()));
    assert_eq!(
        refused(json!({ "prompt": "a", "model": "jargon", "adapter": "jargon" })),
        bad("invalid_value", "adapter")
    );
    assert_eq!(refused(json!({ "prompt": "a", "adapter": 7 })), bad("invalid_type", "adapter"));
    let many = json!({ "prompt": "a", "adapter": vec!["jargon"; 64] });
    assert_eq!(refused(many), bad("invalid_value", "adapter"));
    for scale in ["1e39", "1e20", "-10001"] {
        let body = format!(r#"{{"prompt":"a","adapter":[{{"name":"jargon","scale":{scale}}}]}}"#);
        let (status, _, param) = error(&server.client.post("/v1/completions", &body).unwrap());
        assert_eq!(
            (status, param.as_deref().map(|param| param.starts_with("adapter"))),
            (400, Some(true)),
            "{scale}"
        );
    }
}

#[test]
fn every_kind_of_request_takes_adapters() {
    let server = serving(&adapters());
    loaded(&server, "jargon", "jargon");
    for (path, body) in [
        ("/v1/score", r#"{"query":"It","items":[" means"],"labels":[" the"," that"]}"#),
        ("/v1/classify", r#"{"input":["A daemon waits."],"classes":["good","bad"]}"#),
        ("/v1/rerank", r#"{"query":"Who is king?","documents":["It rains.","Henry is king."]}"#),
        ("/v1/embeddings", r#"{"input":"It means","pooling":"mean"}"#),
        ("/v1/completions", r#"{"prompt":"It means","max_tokens":4,"logprobs":0}"#),
    ] {
        let numbers = |more: &str| {
            let body = format!("{}{more}}}", body.strip_suffix('}').unwrap());
            let mut answer = server.ok(path, &body);
            for key in ["id", "created", "model", "usage"] {
                answer.as_object_mut().unwrap().remove(key);
            }
            answer.to_string()
        };
        let (base, by_model) = (numbers(""), numbers(r#","model":"jargon""#));
        assert_ne!(base, by_model, "{path}");
        assert_eq!(by_model, numbers(r#","adapter":["jargon"]"#), "{path}");
        assert_eq!(base, numbers(r#","model":"demo","adapter":[]"#), "{path}");
    }
    // The tokenizer is the model's.
    server.ok("/tokenize", r#"{"prompt":"a","model":"jargon"}"#);
}

#[test]
fn adapters_are_listed_as_models_with_a_parent() {
    let server = serving(&adapters());
    loaded(&server, "a/jargon", "jargon");
    let list = server.client.get("/v1/models").unwrap();
    let list: Value = serde_json::from_slice(&list.body).unwrap();
    let told: Vec<_> = list["data"].as_array().unwrap().iter().map(|of| (&of["id"], &of["parent"])).collect();
    assert_eq!(told, [(&json!("demo"), &Value::Null), (&json!("a/jargon"), &json!("demo"))]);
    let one = server.client.get("/v1/models/a/jargon").unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&one.body).unwrap()["parent"], "demo");
    let list = server.client.get("/v1/lora_adapters").unwrap();
    let list: Value = serde_json::from_slice(&list.body).unwrap();
    assert_eq!((&list["data"][0]["id"], &list["data"][0]["generation"]), (&json!("a/jargon"), &json!(1)));
    assert_eq!(unload(&server, "a/jargon").status, 200);
    assert_eq!(error(&unload(&server, "a/jargon")).0, 404);
    assert_eq!(error(&server.client.get("/v1/models/a/jargon").unwrap()).0, 404);
}

#[test]
fn a_name_is_replaced_only_on_request() {
    let server = serving(&adapters());
    loaded(&server, "x", "jargon");
    let again = error(&load(&server, "x", "jargon", false));
    assert_eq!(again, (400, "adapter_exists".to_owned(), Some("lora_name".to_owned())));
    let before = text(&server, json!({ "model": "x" }));
    assert_eq!(load(&server, "x", ".", true).status, 200);
    assert_ne!(text(&server, json!({ "model": "x" })), before);
    for name in ["demo", "base", "", "a b", &"x".repeat(300)] {
        let refused = error(&load(&server, name, "jargon", false));
        assert_eq!((refused.0, refused.2.as_deref()), (400, Some("lora_name")), "{name}");
    }
}

#[test]
fn errors_do_not_say_where_the_root_is() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir(root.join("empty")).unwrap();
    std::fs::create_dir(root.join("good")).unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(adapters().join("jargon").join(file), root.join("good").join(file)).unwrap();
    }
    let server = serving(root);
    loaded(&server, "x", "good");
    for (path, shown) in [("good", "`good`"), ("empty", "`empty`")] {
        let refused = load(&server, "y", path, false);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(
            refused.text().contains(shown) && !refused.text().contains(root.to_str().unwrap()),
            "{}",
            refused.text()
        );
    }
}

#[test]
fn without_a_root_nothing_is_loaded_or_removed() {
    let model = model_with(|options| options.adapters = Some(AdapterOptions::default()));
    let server = start_with(model, |_| ());
    let path = adapters().join("jargon");
    let fixed = (403, "adapters_fixed".to_owned(), None);
    assert_eq!(error(&load(&server, "jargon", path.to_str().unwrap(), false)), fixed);
    assert_eq!(error(&unload(&server, "jargon")), fixed);
    assert_eq!(server.client.get("/v1/lora_adapters").unwrap().status, 200);
}

#[cfg(unix)]
#[test]
fn paths_stay_within_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    let copy = |to: &Path| {
        std::fs::create_dir_all(to).unwrap();
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            std::fs::copy(adapters().join("jargon").join(file), to.join(file)).unwrap();
        }
    };
    copy(&root.join("good"));
    copy(&outside);
    let link = |from: &Path, to: PathBuf| std::os::unix::fs::symlink(from, to).unwrap();
    link(&outside, root.join("link-out"));
    link(&root.join("good"), root.join("link-in"));
    std::fs::create_dir(root.join("file-out")).unwrap();
    link(&outside.join("adapter_config.json"), root.join("file-out/adapter_config.json"));
    link(&outside.join("adapter_model.safetensors"), root.join("file-out/adapter_model.safetensors"));
    std::fs::create_dir(root.join("device")).unwrap();
    link(Path::new("/dev/zero"), root.join("device/adapter_config.json"));
    std::fs::create_dir(root.join("empty")).unwrap();
    std::fs::create_dir(root.join("pipe")).unwrap();
    let pipe = root.join("pipe/adapter_config.json");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let server = serving(&root);
    let absolute = outside.to_str().unwrap();
    for path in [
        "..",
        "../outside",
        "good/../../outside",
        "/etc",
        "/",
        absolute,
        "link-out",
        "file-out",
        "device",
        "pipe",
    ] {
        let refused = error(&load(&server, "x", path, false));
        assert_eq!(refused, (403, "forbidden_path".to_owned(), Some("lora_path".to_owned())), "{path}");
    }
    for path in ["", "nowhere", "good/adapter_config.json", "a\0b", &"x".repeat(2000)] {
        let refused = error(&load(&server, "x", path, false));
        assert_eq!((refused.0, refused.2.as_deref()), (400, Some("lora_path")), "{path}");
    }
    assert_eq!(error(&load(&server, "x", "empty", false)).1, "invalid_adapter");
    loaded(&server, "x", root.join("link-in").to_str().unwrap());
}

#[test]
fn a_request_keeps_the_adapter_that_is_removed_while_it_runs() {
    let change = |options: &mut redline_engine::Options| options.adapters = Some(AdapterOptions::default());
    let Held { server, holding, go } = held_with(change, |config| config.adapter_root = Some(adapters()));
    loaded(&server, "jargon", "jargon");
    let client = server.client.clone();
    let body = r#"{"prompt":"It means","max_tokens":16,"model":"jargon"}"#;
    let running = std::thread::spawn(move || client.post("/v1/completions", body).unwrap());
    holding.recv().unwrap();
    let metrics = server.client.get("/metrics").unwrap().text();
    assert!(
        metrics.contains("redline_adapter_requests{adapter=\"jargon\",state=\"running\"} 1.0"),
        "{metrics}"
    );
    assert!(metrics.contains("running_lora_adapters=\"jargon\",waiting_lora_adapters=\"\""), "{metrics}");
    assert_eq!(unload(&server, "jargon").status, 200);
    assert_eq!(error(&server.client.post("/v1/completions", body).unwrap()).0, 404);
    drop(go);
    let answer: Value = serde_json::from_slice(&running.join().unwrap().body).unwrap();
    assert_eq!(answer["choices"][0]["text"], JARGON);
}

#[test]
fn adapters_are_replaced_under_load_and_bad_ones_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (name, from) in [("one", adapters()), ("two", adapters().join("jargon"))] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            std::fs::copy(from.join(file), folder.path().join(name).join(file)).unwrap();
        }
    }
    let bad = folder.path().join("bad");
    std::fs::create_dir(&bad).unwrap();
    std::fs::copy(folder.path().join("two/adapter_config.json"), bad.join("adapter_config.json")).unwrap();
    let mut bytes = std::fs::read(folder.path().join("two/adapter_model.safetensors")).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(bad.join("adapter_model.safetensors"), bytes).unwrap();
    let server = serving(folder.path());
    let texts = ["one", "two"].map(|path| {
        assert_eq!(load(&server, "x", path, true).status, 200);
        text(&server, json!({ "model": "x" }))
    });
    assert_ne!(texts[0], texts[1]);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut answered = 0;
                    while !done.load(std::sync::atomic::Ordering::SeqCst) || answered == 0 {
                        let one = text(&server, json!({ "model": "x" }));
                        assert!(texts.contains(&one), "an answer of two adapters: {one}");
                        assert_eq!(text(&server, json!({})), BASE);
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        for n in 0..20 {
            assert_eq!(load(&server, "x", ["one", "two"][n % 2], true).status, 200);
            let refused = error(&load(&server, "x", ["bad", "none"][n % 2], true));
            assert_eq!((refused.0, refused.2.as_deref()), (400, Some("lora_path")));
            // The last good one is still there.
            assert_eq!(text(&server, json!({ "model": "x" })), texts[n % 2]);
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(asking.into_iter().all(|thread| thread.join().unwrap() > 0));
    });
    let list: Value = serde_json::from_slice(&server.client.get("/v1/lora_adapters").unwrap().body).unwrap();
    assert_eq!(list["data"][0]["generation"], 22);
}

#[test]
fn hostile_bodies_are_refused() {
    let server = serving(&adapters());
    for path in ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"] {
        for body in [
            "{}",
            "[]",
            "{",
            r#"{"lora_name":null}"#,
            r#"{"lora_name":1,"lora_path":[]}"#,
            r#"{"lora_nam":""}"#,
        ] {
            assert_eq!(server.client.post(path, body).unwrap().status, 400, "{path} {body}");
        }
    }
    let more = r#"{"lora_name":"x","lora_path":"jargon","lora_int_id":7}"#;
    let refused = error(&server.client.post("/v1/load_lora_adapter", more).unwrap());
    assert_eq!(refused, (400, "unknown_parameter".to_owned(), Some("lora_int_id".to_owned())));
}
