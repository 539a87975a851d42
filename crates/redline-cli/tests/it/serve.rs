//! `redline serve`, as a process: its first line, its routes, its guide, and its end.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use redline_client::HttpClient;
use serde_json::{Value, json};

use crate::harness::{command, redline};

const GUIDE: &str = include_str!("../../../../docs/serving.md");

/// A running server. It is killed if a test fails.
pub(crate) struct Process {
    child: Child,
    address: String,
    pub(crate) client: HttpClient,
}

impl Process {
    fn start(flags: &[&str]) -> Self {
        Self::of("demo", flags)
    }

    pub(crate) fn of(model: &str, flags: &[&str]) -> Self {
        Self::with(model, flags, &[])
    }

    /// Starts a server with these environment variables.
    fn with(model: &str, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command =
            command(&[&["serve", "--model", model, "--port", "0", "--threads", "1"], flags].concat());
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address =
            first.trim_end().strip_prefix("listening on http://").expect("the first line").to_owned();
        let client = HttpClient::new(address.clone());
        Self { child, address, client }
    }

    /// Sends a signal.
    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end. Returns the status and what was written to standard error.
    fn end(mut self) -> (ExitStatus, String) {
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap(), err)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The `curl` lines of the guide.
fn curl_lines() -> Vec<&'static str> {
    GUIDE.lines().filter(|line| line.starts_with("curl ")).collect()
}

#[test]
fn every_route_has_a_line_in_the_guide() {
    for route in redline_server::routes() {
        let path = route.path.replace("{*id}", "demo-chat").replace("{*file}", "page.css");
        let of_route = |line: &&str| {
            let rest = line.strip_prefix("curl http://127.0.0.1:8000").unwrap_or_default();
            let posts = line.contains(" --json ");
            rest.split(' ').next() == Some(path.as_str()) && posts == (route.method == "POST")
        };
        assert!(curl_lines().iter().any(of_route), "{} {path}", route.method);
    }
}

#[test]
fn the_lines_of_the_guide_are_answered() {
    if !Command::new("curl").arg("--version").output().is_ok_and(|output| output.status.success()) {
        redline_testing::skip("no `curl`");
        return;
    }
    let adapters = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo-adapter");
    let server = Process::of("demo-chat", &["--adapter-root", adapters, "--classes", "good,bad"]);
    let masked = Process::of("demo-diffusion", &[]);
    let lines = curl_lines();
    assert!(lines.len() > 10 && lines.iter().any(|line| line.contains("127.0.0.1:8001")));
    // The demo model has no tokens for gaps, and makes no sparse vectors.
    let others = ["/infill", "/embed_sparse"];
    for line in lines.into_iter().filter(|line| !others.iter().any(|path| line.contains(path))) {
        let line = line.replace("127.0.0.1:8000", &server.address).replace("127.0.0.1:8001", &masked.address);
        let line = line.replacen("curl ", "curl --silent --show-error --fail ", 1);
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{line}: {output:?}");
    }
}

#[test]
fn the_chat_model_calls_functions_and_fills_objects() {
    let server = Process::of("demo-chat", &[]);
    // The conversations of the guide.
    let asked = |word: &str| {
        let line = curl_lines().into_iter().find(|line| line.contains("/v1/chat/") && line.contains(word));
        let body = line.unwrap().split_once(" --json '").unwrap().1.trim_end_matches('\'');
        let answer = server.client.post("/v1/chat/completions", body).unwrap();
        let answer: Value = serde_json::from_str(&answer.text()).unwrap();
        answer["choices"][0].clone()
    };
    let called = asked("What is the weather");
    assert_eq!(called["finish_reason"], "tool_calls", "{called}");
    let call = &called["message"]["tool_calls"][0]["function"];
    assert_eq!((&call["name"], &call["arguments"]), (&json!("get_weather"), &json!("{\"city\": \"Paris\"}")));
    assert_eq!(asked("18 degrees")["message"]["content"], "It is 18 degrees and sunny in Paris.");
    assert_eq!(asked("Who is king?")["message"]["content"], "David is king.");
    let object = asked("Ruth is 32");
    let object: Value = serde_json::from_str(object["message"]["content"].as_str().unwrap()).unwrap();
    assert_eq!(object, json!({ "name": "Ruth", "age": 32, "city": "Paris" }));
}

#[test]
fn the_table_of_the_guide_has_every_flag_that_it_names() {
    let help = redline(&["serve", "--help-all"]).ok().out;
    for flag in [
        "--port",
        "--quiet",
        "--api-key-file",
        "--api-key",
        "--allow-origin",
        "--any-model",
        "--served-model-name",
        "--model-alias",
        "--queue",
        "--queue-timeout",
        "--prefix-cache-dir",
        "--prefix-cache-disk",
        "--watchdog",
        "--no-page",
        "--public-metrics",
        "--metrics-compat",
        "--adapter",
        "--adapter-root",
        "--max-body",
        "--max-connections",
        "--unix-socket",
        "--tls-cert",
        "--tls-key",
    ] {
        assert!(GUIDE.contains(flag) && help.contains(flag), "{flag}");
    }
}

#[test]
fn a_signal_ends_the_server_after_its_requests() {
    for signal in ["-TERM", "-INT"] {
        let server = Process::start(&[]);
        let body = r#"{"prompt":"In the beginning","max_tokens":64,"ignore_eos":true}"#;
        assert_eq!(server.client.post("/v1/completions", body).unwrap().status, 200);
        server.signal(signal);
        let (status, err) = server.end();
        assert_eq!(status.code(), Some(0), "{err}");
        assert!(err.contains(r#""route":"/v1/completions","status":200"#), "{err}");
        assert!(err.contains("note: 1 request admitted\n"), "{err}");
        assert!(!err.contains("beginning"), "{err}");
    }
}

#[test]
fn a_killed_server_finds_its_prefixes_again() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("prefixes");
    let flags = ["--prefix-cache-dir", dir.to_str().unwrap()];
    let prompt = "In the beginning God created the heaven and the earth. ".repeat(16);
    let body = format!(r#"{{"prompt":"{prompt}","max_tokens":8,"ignore_eos":true}}"#);
    let ask = |server: &Process| {
        let answer: Value =
            serde_json::from_str(&server.client.post("/v1/completions", &body).unwrap().text()).unwrap();
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        (answer["choices"][0]["text"].clone(), cached)
    };
    let server = Process::start(&flags);
    let (text, cached) = ask(&server);
    assert_eq!(cached, 0);
    // The files are written in the background.
    let counts = |server: &Process, line: &str| {
        server.client.get("/metrics").unwrap().text().lines().any(|other| other == line)
    };
    for _ in 0..6000 {
        if counts(&server, "redline_disk_pages_written_total 2.0") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(server);
    let server = Process::start(&flags);
    let (again, cached) = ask(&server);
    assert_eq!((again, cached), (text, 128));
    assert!(counts(&server, "redline_disk_pages_read_total 2.0"));
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let server = Process::start(&["--queue", "1"]);
    let long = r#"{"prompt":"In","max_tokens":500,"n":128,"temperature":1,"ignore_eos":true}"#;
    let running = server.client.send("POST", "/v1/completions", long.as_bytes()).unwrap();
    // Its place is taken once another request is refused.
    let score = r#"{"query":"a","items":["b"],"labels":[" a"]}"#;
    while server.client.post("/v1/score", score).unwrap().status != 429 {}
    server.signal("-INT");
    // The port closes when the first signal is handled.
    while server.client.send_raw(b"").is_ok() {}
    server.signal("-INT");
    let (status, err) = server.end();
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(err.contains("note: 1 request admitted, 1 not answered"), "{err}");
    drop(running);
}

#[test]
fn keys_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| {
        let path = folder.path().join("keys");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let server = Process::start(&["--quiet", "--api-key-file", &write("# keys\nalice secret-1\n\n")]);
    let path = "/v1/models";
    assert_eq!(server.client.get(path).unwrap().status, 401);
    let known = server.client.clone().with_header("Authorization", "Bearer secret-1");
    assert_eq!(known.get(path).unwrap().status, 200);
    server.signal("-TERM");
    let (status, err) = server.end();
    assert!(status.success() && !err.contains("request_id"), "{err}");
    for (text, fact) in [
        ("alice secret one\n", "line 1 has 3 words"),
        ("# none\n", "there is no key"),
        ("alice secret-1\n\nalice secret-2\n", "line 3 has the name of an earlier line"),
        ("alice secret-1\nbob secret-1\n", "line 2 has the key of an earlier line"),
    ] {
        let run = redline(&["serve", "--model", "demo", "--port", "0", "--api-key-file", &write(text)]);
        assert!(run.code == 1 && run.err.contains(fact) && !run.err.contains("secret"), "{}", run.err);
    }
}

#[test]
fn a_key_comes_from_a_flag_or_a_variable_and_is_not_shown() {
    let status = |server: &Process, key: &str| {
        let client = server.client.clone().with_header("Authorization", &format!("Bearer {key}"));
        client.get("/v1/models").unwrap().status
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "alice secret-1\n").unwrap();
    let server = Process::start(&["--api-key", "secret-2", "--api-key-file", file.to_str().unwrap()]);
    assert_eq!(["secret-1", "secret-2", "secret-3"].map(|key| status(&server, key)), [200, 200, 401]);
    server.signal("-TERM");
    let err = server.end().1;
    assert!(err.contains(r#""key":"alice""#) && err.contains(r#""key":"api key""#), "{err}");
    assert!(!err.contains("secret"), "{err}");
    let server = Process::with("demo", &[], &[("REDLINE_API_KEY", "secret-4")]);
    assert_eq!(["secret-4", "secret-3"].map(|key| status(&server, key)), [200, 401]);
    let server = Process::with("demo", &["--api-key", "secret-5"], &[("REDLINE_API_KEY", "secret-4")]);
    assert_eq!(["secret-5", "secret-4"].map(|key| status(&server, key)), [200, 401]);
    for key in ["", "secret key", "secret\u{e9}"] {
        let run = redline(&["serve", "--model", "demo", "--port", "0", "--api-key", key]);
        assert!(
            run.code == 2 && run.err.contains("`--api-key`") && !run.err.contains("secret"),
            "{}",
            run.err
        );
    }
}

#[test]
fn the_names_of_the_model_are_those_that_the_flags_give() {
    let flags =
        ["--served-model-name", "gpt-4o", "org/m", "--model-alias", "c", "--allow-origin", "http://a.b"];
    let server = Process::start(&flags);
    let list: Value = serde_json::from_str(&server.client.get("/v1/models").unwrap().text()).unwrap();
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|entry| entry["id"].clone()).collect();
    assert_eq!(ids, ["gpt-4o", "org/m", "c"]);
    let status = |server: &Process, model: &str| {
        let body = format!(r#"{{"model":"{model}","prompt":"a","max_tokens":1}}"#);
        server.client.post("/v1/completions", &body).unwrap().status
    };
    assert_eq!(["gpt-4o", "org/m", "c", "demo"].map(|name| status(&server, name)), [200, 200, 200, 404]);
    let page = server.client.clone().with_header("Origin", "http://a.b").get("/health").unwrap();
    assert_eq!(page.header("access-control-allow-origin"), Some("http://a.b"));
    assert_eq!(status(&Process::start(&["--any-model"]), "gpt-9"), 200);
}

#[test]
fn several_models_have_names_and_share_the_memory() {
    let flags = [
        "--model",
        "fill=demo-diffusion",
        "--memory",
        "60MiB",
        "--unload-after",
        "60",
        "--classes",
        "good,bad",
    ];
    let server = Process::of("chat=demo", &flags);
    let ask = |body: &str| {
        let answer = server.client.post("/v1/completions", body).unwrap();
        (answer.status, serde_json::from_str::<Value>(&answer.text()).unwrap())
    };
    let loaded = || {
        let list = server.client.get("/v1/models").unwrap().text();
        let list: Value = serde_json::from_str(&list).unwrap();
        list["data"].as_array().unwrap().iter().map(|model| model["loaded"] == true).collect::<Vec<_>>()
    };
    assert_eq!(loaded(), [true, true]);
    let (status, answer) = ask(r#"{"model":"fill","prompt":"In the","max_tokens":4}"#);
    assert_eq!((status, &answer["meta"]["algorithm"]), (200, &json!("entropy")));
    let (status, answer) = ask(r#"{"prompt":"In the","max_tokens":4}"#);
    assert_eq!((status, &answer["model"]), (200, &json!("chat")));
    assert_eq!(ask(r#"{"model":"demo","prompt":"In the"}"#).0, 404);
    assert_eq!(server.client.post("/predict", r#"{"inputs":"a"}"#).unwrap().status, 200);
    server.signal("-TERM");
    let (status, err) = server.end();
    assert!(status.success() && err.contains("note: memory for models: 60 MiB: chat (up to "), "{err}");

    // Memory for one of them at a time.
    let parts = ["--memory", "60MiB", "--model-memory", "chat=30MiB", "--model-memory", "fill=50MiB"];
    let server = Process::of("chat=demo", &[&["--model", "fill=demo-diffusion"][..], &parts].concat());
    let ask = |model: &str| {
        let body = format!(r#"{{"model":"{model}","prompt":"In the","max_tokens":1}}"#);
        server.client.post("/v1/completions", &body).unwrap().status
    };
    assert_eq!(["fill", "chat", "fill"].map(ask), [200; 3]);
    server.signal("-TERM");
    let (status, err) = server.end();
    assert!(
        status.success()
            && err.contains(
                "chat (up to 30 MiB); fill (up to 50 MiB, loaded at its first request, in place of others)"
            ),
        "{err}"
    );
}

#[test]
fn models_that_cannot_be_told_apart_or_do_not_fit_are_refused() {
    for (flags, fact) in [
        (&["--model", "demo", "--model", "demo"][..], "several models, and one without a name"),
        (&["--model", "a=demo", "--model", "a=demo"], "two models are named `a`"),
        (&["--model", "a=demo", "--model-memory", "b=1GiB"], "no model is named `b`"),
        (&["--model", "a=demo", "--model-memory", "1GiB"], "`1GiB` has no name"),
        (&["--model", "demo", "--unload-after", "3"], "`--unload-after` without models that have names"),
        (&["--model", "a=demo", "--served-model-name", "b"], "`--served-model-name` with several models"),
        (&["--model", "a=demo", "--mode", "throughput"], "`--mode throughput` with several models"),
        (&["--model", "a=demo", "--model-alias", "a"], "`a` is the name of two models"),
        (&["--model", "a=demo", "--memory", "1MiB"], "`a` needs at least"),
        (
            &["--model", "a=demo", "--memory", "1GiB", "--model-memory", "a=2GiB"],
            "`a` may take 2 GiB, and all models together 1 GiB",
        ),
        (&["--model", "a=demo", "--model-memory", "a=1MiB"], "and it may take 1 MiB"),
    ] {
        let run = redline(&[&["serve", "--port", "0"], flags].concat());
        assert!(
            run.code == 2 && run.err.contains(fact) && run.err.contains("hint: "),
            "{flags:?} {} {}",
            run.code,
            run.err
        );
    }
    let run = redline(&["serve", "--port", "0", "--model", "a=demo", "--model", "b=/no/such/model"]);
    assert!(run.code == 1 && run.err.contains("`/no/such/model`"), "{} {}", run.code, run.err);
}

#[test]
fn a_port_in_use_and_bad_flags_are_refused() {
    let server = Process::start(&[]);
    let port = server.address.rsplit(':').next().unwrap();
    let run = redline(&["serve", "--model", "demo", "--port", port]);
    assert!(run.code == 1 && run.err.contains(&format!("127.0.0.1:{port}")), "{}", run.err);
    assert!(run.err.contains("hint: `--port` takes another port"), "{}", run.err);
    for flags in [
        ["--queue", "0"],
        ["--queue", "257"],
        ["--max-connections", "0"],
        ["--port", "65536"],
        ["--request-timeout", "-1"],
        ["--drain-timeout", "1e30"],
        ["--queue-timeout", "-1"],
        ["--watchdog", "0"],
        ["--metrics-compat", "prometheus"],
        ["--max-body", "much"],
        ["--max-body", "5GiB"],
        ["--classes", "good"],
        ["--classes", "good,good"],
        ["--allow-origin", "app.example"],
        ["--allow-origin", "https://app.example/"],
        ["--allow-origin", "null"],
    ] {
        let run = redline(&[&["serve", "--model", "demo"], &flags[..]].concat());
        assert_eq!(run.code, 2, "{flags:?}: {}", run.err);
    }
    let run = redline(&["serve", "--model", "/no/such/model", "--port", "0"]);
    assert_eq!(run.code, 1);
}
