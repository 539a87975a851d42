//! The page at `/`: its files, their headers, and what it asks the server for.

use std::collections::BTreeMap;
use std::path::Path;

use redline_client::HttpAnswer;
use redline_server::ApiKey;

use crate::server::{chat, error, json, masked, model, start, start_with};

/// Most bytes of the page with all its files.
const LARGEST: usize = 60_000;
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The files of the page, by the path from which they are served.
fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
    let of_entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let served = if name == "index.html" { "/".to_owned() } else { format!("/page/{name}") };
        (served, std::fs::read_to_string(path).unwrap())
    };
    std::fs::read_dir(folder).unwrap().map(of_entry).collect()
}

/// The texts between `before` and the next quotation mark.
fn quoted<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    text.split(before).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

fn check_headers(path: &str, answer: &HttpAnswer) {
    let media = match path.rsplit_once('.') {
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        _ => "text/html; charset=utf-8",
    };
    for (name, value) in [
        ("content-type", media),
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{path}");
    }
}

#[test]
fn every_file_is_served_with_strict_headers_and_without_a_key() {
    let server = start_with(model(), |config| config.keys = vec![ApiKey::new("alice", "secret")]);
    let files = files();
    assert!(files.len() > 3);
    for (path, text) in &files {
        let answer = server.client.get(path).unwrap();
        assert_eq!((answer.status, &answer.text()), (200, text), "{path}");
        check_headers(path, &answer);
        let head = server.client.send_raw(
            format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        let mut headers = String::new();
        std::io::Read::read_to_string(&mut head.unwrap(), &mut headers).unwrap();
        assert!(headers.starts_with("HTTP/1.1 200") && headers.ends_with("\r\n\r\n"), "{path} {headers}");
        let posted = server.client.post(path, "{}").unwrap();
        // What is sent to `/` is no part of the page.
        if path == "/" {
            assert_eq!(posted.status, 401);
        } else {
            assert_eq!(error(&posted), (405, "method_not_allowed".to_owned(), None), "{path}");
        }
    }
    let size: usize = files.values().map(String::len).sum();
    assert!(size < LARGEST, "{size} bytes");
    for path in
        ["/page/", "/page/page.js/", "/page/none.js", "/page/..%2Fapp.rs", "/page/index.html", "/page/%FF"]
    {
        let answer = server.client.get(path).unwrap();
        assert_eq!(error(&answer), (404, "route_not_found".to_owned(), None), "{path}");
    }
    assert_eq!(server.client.get("/page/abilities").unwrap().status, 401);
}

#[test]
fn the_page_names_files_and_routes_that_exist_and_no_other_host() {
    let files = files();
    let routes: Vec<&str> = redline_server::routes().iter().map(|route| route.path).collect();
    let mut named = 0;
    for (path, text) in &files {
        let of_page = |name: &str| format!("/{}", name.trim_start_matches('/'));
        let imports = quoted(text, "from \"./").into_iter().map(|name| format!("/page/{name}"));
        let links = quoted(text, "href=\"").into_iter().chain(quoted(text, "src=\""));
        let links = links.filter(|link| !link.starts_with("data:")).map(of_page);
        for file in imports.chain(links) {
            named += 1;
            assert!(files.contains_key(&file), "{path} names {file}");
        }
        let asked = [" get(\"", "[get(\"", "getText(\"", "post(\"", "events(\"", "generate(\"", "PATH = \""];
        for route in asked.iter().flat_map(|before| quoted(text, before)).map(of_page) {
            named += 1;
            assert!(routes.contains(&route.as_str()), "{path} asks {route}");
        }
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for elsewhere in ["://", "\"//", "url(", "@import"] {
            assert!(!text.contains(elsewhere), "{path} has {elsewhere}");
        }
        for unsafe_way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            " style=\"",
            "onclick=",
        ] {
            assert!(!text.contains(unsafe_way), "{path} has {unsafe_way}");
        }
    }
    assert!(named > 30, "{named}");
}

#[test]
fn the_page_can_be_left_out() {
    let server = start_with(model(), |config| config.page = false);
    // Requests that are sent to `/` are no part of the page.
    assert_eq!(error(&server.client.get("/").unwrap()), (405, "method_not_allowed".to_owned(), None));
    for path in ["/page/page.js", "/page/abilities"] {
        for method in ["GET", "POST"] {
            let answer = server.client.request(method, path, b"").unwrap();
            assert_eq!(error(&answer), (404, "route_not_found".to_owned(), None), "{method} {path}");
        }
    }
    assert_eq!(server.client.get("/health").unwrap().status, 200);
}

#[test]
fn its_own_requests_are_answered_and_those_of_other_pages_are_not() {
    let server = start();
    let body = r#"{"prompt":"In the","max_tokens":1}"#;
    let own = format!("http://{}", server.address());
    for (origin, status) in [(own.as_str(), 200), ("null", 403), ("http://evil.example", 403)] {
        let client = server.client.clone().with_header("Origin", origin);
        assert_eq!(client.post("/v1/completions", body).unwrap().status, status, "{origin}");
        assert_eq!(client.get("/page/page.js").unwrap().status, status, "{origin}");
    }
}

#[test]
fn what_a_model_cannot_do_is_told_with_the_error_of_its_route() {
    let server = start();
    let told = json(&server.client.get("/page/abilities").unwrap());
    assert_eq!((&told["model"], &told["context"]), (&"demo".into(), &512.into()));
    let refused = json(
        &server
            .client
            .post("/v1/chat/completions", r#"{"messages":[{"role":"user","content":"a"}]}"#)
            .unwrap(),
    );
    assert_eq!(told["unavailable"]["chat"], refused["error"]["message"]);
    assert!(told["unavailable"]["diffusion"].as_str().unwrap().contains("fills no masks"), "{told}");
    assert_eq!(told["unavailable"].as_object().unwrap().len(), 2);

    let server = start_with(model(), |config| config.chat = Some(chat("parts.jinja")));
    let told = json(&server.client.get("/page/abilities").unwrap());
    let all: Vec<_> = told["unavailable"].as_object().unwrap().keys().collect();
    assert_eq!(all, ["diffusion"]);

    let server = start_with(masked(), |config| config.chat = Some(chat("parts.jinja")));
    let told = json(&server.client.get("/page/abilities").unwrap());
    assert_eq!(told["unavailable"], serde_json::json!({}));
    server.ok("/v1/completions", r#"{"prompt":"In the","max_tokens":2}"#);
    server.ok("/v1/chat/completions", r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":2}"#);
    let score = r#"{"query":"In the","items":[" beginning"],"labels":[" God"," the"]}"#;
    server.ok("/v1/score", score);
    server.ok("/v1/decisions", r#"{"input":"a","questions":[{"type":"predicate","instructions":"b"}]}"#);
}
