//! Web pages of allowed origins: what browsers ask, and what they need in answers.

use redline_client::HttpAnswer;
use redline_server::ApiKey;

use crate::server::{Running, error, model, start, start_with};

const APP: &str = "https://app.example";

/// A server that allows pages of one origin, and has a key.
fn server() -> Running {
    start_with(model(), |config| {
        config.origins = vec![APP.to_owned()];
        config.keys = vec![ApiKey::new("alice", "secret")];
    })
}

/// Asks whether a page of this origin may send a request.
fn preflight(server: &Running, origin: &str, path: &str) -> HttpAnswer {
    let headers = [
        ("Origin", origin),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type,x-stainless-os"),
    ];
    let client =
        headers.iter().fold(server.client.clone(), |client, (name, value)| client.with_header(name, value));
    client.request("OPTIONS", path, b"").unwrap()
}

#[test]
fn a_page_of_an_allowed_origin_may_send_requests_and_read_answers_and_errors() {
    let server = server();
    for path in ["/v1/completions", "/v1/models/demo", "/nothing"] {
        let answer = preflight(&server, APP, path);
        assert_eq!((answer.status, answer.text().as_str()), (204, ""), "{path}");
        for (name, value) in [
            ("access-control-allow-origin", APP),
            ("access-control-allow-methods", "GET, POST"),
            ("access-control-allow-headers", "authorization,content-type,x-stainless-os"),
            ("access-control-max-age", "7200"),
            ("vary", "Origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
    }
    let page = server.client.clone().with_header("Origin", APP);
    let refused = page.get("/v1/models").unwrap();
    let known = page.with_header("Authorization", "Bearer secret").get("/v1/models").unwrap();
    assert_eq!((refused.status, known.status), (401, 200));
    for answer in [refused, known] {
        assert_eq!(answer.header("access-control-allow-origin"), Some(APP));
        assert_eq!(answer.header("access-control-expose-headers"), Some("x-request-id, retry-after"));
        assert_eq!(answer.header("vary"), Some("Origin"));
    }
    // Without an origin, a cache must know that there could be one.
    let plain = server.client.get("/health").unwrap();
    assert_eq!((plain.header("vary"), plain.header("access-control-allow-origin")), (Some("Origin"), None));
}

#[test]
fn pages_of_other_origins_stay_refused() {
    for server in [start(), server()] {
        for origin in ["https://evil.example", "null"] {
            let answer = preflight(&server, origin, "/v1/completions");
            assert_eq!(error(&answer), (403, "forbidden_origin".to_owned(), None));
            let sent = server.client.clone().with_header("Origin", origin).get("/health").unwrap();
            assert_eq!(error(&sent), (403, "forbidden_origin".to_owned(), None));
            for answer in [answer, sent] {
                assert_eq!(answer.header("access-control-allow-origin"), None);
            }
        }
    }
    // A request that is no preflight has no such method.
    let options =
        server().client.clone().with_header("Origin", APP).request("OPTIONS", "/health", b"").unwrap();
    assert_eq!(options.status, 405);
}

#[test]
fn all_origins_may_be_allowed_but_no_other_host() {
    let server = start_with(model(), |config| config.origins = vec!["*".to_owned()]);
    assert_eq!(
        preflight(&server, "null", "/v1/completions").header("access-control-allow-origin"),
        Some("*")
    );
    let rebound = "GET /health HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n";
    assert_eq!(error(&server.client.raw(rebound.as_bytes()).unwrap()).1, "forbidden_host");
}
