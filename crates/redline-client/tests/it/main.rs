//! Tests of the client against a server whose answers are known.

use std::time::Duration;

use redline_client::{EventReader, HttpClient};
use redline_testing::mock::{Mock, Script};

#[test]
fn a_stream_is_read_event_by_event_on_one_connection() {
    let mock = Mock::start(Script::default());
    let mut connection = HttpClient::new(&mock.address).open(Duration::from_secs(20));
    for tokens in 1..4 {
        let body = format!(r#"{{"stream":true,"max_tokens":{tokens}}}"#);
        let mut answer = connection.send("POST", "/v1/completions", body.as_bytes()).unwrap();
        let (mut reader, mut piece, mut events) = (EventReader::default(), Vec::new(), Vec::new());
        while answer.read(&mut piece).unwrap() > 0 {
            reader.push(&piece, |event| events.push(event.data.to_owned()));
            piece.clear();
        }
        assert_eq!(events.len(), tokens + 2, "{events:?}");
        assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    }
    assert_eq!(mock.connections(), 1);
}
