//! Bodies that are compressed.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use redline_client::HttpAnswer;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::server::{Running, error, model, start, start_with};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

fn post(server: &Running, encoding: &str, body: &[u8]) -> HttpAnswer {
    let client = server.client.clone().with_header("Content-Encoding", encoding);
    client.request("POST", "/v1/score", body).unwrap()
}

const SCORE: &str = r#"{"query":"In the","items":[" beginning"," end"],"labels":[" God"," the"]}"#;

/// The answer without id and time.
fn scores(answer: &HttpAnswer) -> serde_json::Value {
    let document = crate::server::json(answer);
    assert_eq!(answer.status, 200, "{document}");
    document["scores"].clone()
}

#[test]
fn a_compressed_body_is_answered_as_it_would_be_otherwise() {
    let server = start();
    let plain = scores(&server.client.post("/v1/score", SCORE).unwrap());
    assert!(plain.is_array());
    for (encoding, body) in [
        ("identity", SCORE.as_bytes().to_vec()),
        ("gzip", gzip(SCORE.as_bytes())),
        ("x-gzip", gzip(SCORE.as_bytes())),
        ("zstd", zstd(SCORE.as_bytes())),
        ("ZSTD", zstd(SCORE.as_bytes())),
    ] {
        assert_eq!(scores(&post(&server, encoding, &body)), plain, "{encoding}");
    }
}

#[test]
fn other_encodings_and_damaged_bodies_are_refused() {
    let server = start();
    for encoding in ["br", "deflate", "gzip, zstd", "gzip\r\nContent-Encoding: gzip"] {
        let answer = post(&server, encoding, &gzip(SCORE.as_bytes()));
        assert_eq!(error(&answer), (415, "unsupported_media_type".to_owned(), None), "{encoding}");
    }
    let cut = |body: Vec<u8>| body[..body.len() - 1].to_vec();
    for (encoding, body) in [
        ("gzip", SCORE.as_bytes().to_vec()),
        ("zstd", SCORE.as_bytes().to_vec()),
        ("gzip", cut(gzip(SCORE.as_bytes()))),
        ("zstd", cut(zstd(SCORE.as_bytes()))),
        ("gzip", Vec::new()),
    ] {
        let answer = post(&server, encoding, &body);
        assert_eq!(error(&answer), (400, "invalid_body".to_owned(), None), "{encoding}");
    }
    assert_eq!(server.client.get("/health").unwrap().status, 200);
}

#[test]
fn the_largest_size_is_that_of_the_decoded_body() {
    let spaces = " ".repeat(100_000 - SCORE.len());
    let large = format!("{SCORE}{spaces}");
    for (most, status) in [(100_000, 200), (99_999, 413)] {
        let server = start_with(model(), |config| {
            config.limits.body_bytes = most;
            // Room for one such body.
            config.limits.all_body_bytes = most;
        });
        for (encoding, body) in [("gzip", gzip(large.as_bytes())), ("zstd", zstd(large.as_bytes()))] {
            assert!(body.len() < 1000);
            // All memory is given back after each.
            for _ in 0..3 {
                assert_eq!(post(&server, encoding, &body).status, status, "{encoding}");
            }
        }
        assert_eq!(server.client.post("/v1/score", SCORE).unwrap().status, 200);
    }
}
