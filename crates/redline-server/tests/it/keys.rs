//! API keys guard every route that is not public.

use redline_server::{ApiKey, RouteInfo, routes};

use crate::server::{error, json, model, start_with};

/// The routes that need no key. A route joins this list on purpose only.
const PUBLIC: &[&str] = &["/health", "/ready", "/", "/page/{*file}"];

/// The routes whose errors have the form of Text Embeddings Inference and Text Generation Inference.
const TEI: &[&str] = &[
    "/",
    "/decode",
    "/embed",
    "/embed_all",
    "/embed_sparse",
    "/generate",
    "/generate_stream",
    "/predict",
    "/similarity",
];

#[test]
fn every_route_needs_a_key_unless_it_is_listed_as_public() {
    let server = start_with(model(), |config| {
        config.keys = vec![ApiKey::new("alice", "secret-one"), ApiKey::new("bob", "secret-two")];
        config.classes = vec!["good".to_owned(), "bad".to_owned()];
    });
    let all = routes();
    assert!(all.len() > 10, "{all:?}");
    for RouteInfo { method, path, public } in all {
        assert_eq!(public, PUBLIC.contains(&path) && method == "GET", "{method} {path}");
        let path = path.replace("{*id}", "demo").replace("{*file}", "page.css");
        let status = |header: Option<(&str, &str)>| {
            let client = match header {
                Some((name, value)) => server.client.clone().with_header(name, value),
                None => server.client.clone(),
            };
            let answer = client.request(method, &path, b"").unwrap();
            if answer.status == 401 {
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{path}");
                if TEI.contains(&path.as_str()) && method == "POST" {
                    assert_eq!(json(&answer)["error_type"], "validation");
                } else {
                    error(&answer);
                }
            }
            answer.status
        };
        // With a key, an empty body is refused as such.
        let known = if method == "POST" { 400 } else { 200 };
        let unknown = if public { known } else { 401 };
        assert_eq!(status(None), unknown, "{path}");
        assert_eq!(status(Some(("Authorization", "Bearer secret-on"))), unknown, "{path}");
        assert_eq!(status(Some(("Authorization", "Bearer secret-two"))), known, "{path}");
        assert_eq!(status(Some(("x-api-key", "secret-one"))), known, "{path}");
    }
    let (_, log) = server.end();
    let named = |name: &str| log.iter().filter(|line| line["key"] == name).count();
    assert!(named("alice") > 0 && named("bob") > 0);
    let log = serde_json::to_string(&log).unwrap();
    assert!(!log.contains("secret"), "a key is in the log");
}

#[test]
fn unknown_paths_and_methods_have_errors_of_the_same_shape() {
    let server = start_with(model(), |_| ());
    let answer = server.client.get("/v1/nothing").unwrap();
    assert_eq!(error(&answer), (404, "route_not_found".to_owned(), None));
    for RouteInfo { method, path, .. } in routes() {
        let path = path.replace("{*id}", "demo").replace("{*file}", "page.css");
        let answer = server.client.request("DELETE", &path, b"").unwrap();
        assert_eq!(error(&answer), (405, "method_not_allowed".to_owned(), None), "{path}");
        assert!(answer.header("allow").is_some_and(|allow| allow.contains(method)), "{path} {answer:?}");
    }
}

#[test]
fn a_slash_may_end_the_path_of_a_route_without_a_variable_part() {
    let server = start_with(model(), |_| ());
    for RouteInfo { method, path, .. } in routes().into_iter().filter(|route| !route.path.contains('{')) {
        let status = |path: &str| server.client.request(method, path, b"").unwrap().status;
        assert_eq!(status(&format!("{}/", path.trim_end_matches('/'))), status(path), "{path}");
        let other =
            server.client.request("DELETE", &format!("{}/", path.trim_end_matches('/')), b"").unwrap();
        assert_eq!(other.status, 405, "{path}");
    }
    let status = |path: &str| server.client.get(path).unwrap().status;
    assert_eq!(["/v1/models/", "/v1/models/demo", "/v1/models/demo/"].map(status), [200, 200, 404]);
    assert_eq!(["/page/", "/v1/models//", "//"].map(status), [404; 3]);
}

#[test]
fn a_request_keeps_its_id_or_gets_one() {
    let server = start_with(model(), |_| ());
    let named = server.client.clone().with_header("x-request-id", "mine-1");
    assert_eq!(named.get("/health").unwrap().header("x-request-id"), Some("mine-1"));
    let ids = [(); 2].map(|()| {
        let answer = server.client.get("/v1/models").unwrap();
        assert_eq!(json(&answer)["data"][0]["id"], "demo");
        answer.header("x-request-id").unwrap().to_owned()
    });
    assert_ne!(ids[0], ids[1]);
}
