//! Reads and parses bodies of requests, within limits.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use redline_api::json::parse::in_json_terms;
use redline_api::json::whole::WholeNumbers;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::blocking::blocking;
use crate::encoding::{DecodeError, Encoding};
use crate::fault::Fault;
use crate::nesting::is_deeper;
use crate::shared::Shared;

/// Bytes of a body that are parsed in less than a millisecond.
const LARGE_BODY: usize = 64 << 10;

/// A body, and its part of the memory for bodies.
#[derive(Default)]
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    reserved: Option<OwnedSemaphorePermit>,
}

impl ReadBody {
    /// Parses it, nested `depth` deep at most. A large one has a thread of its own, so that other connections do not wait.
    pub(crate) async fn parse<T: DeserializeOwned + Send + 'static>(&self, depth: usize) -> Result<T, Fault> {
        let bytes = self.bytes.clone();
        if bytes.len() <= LARGE_BODY {
            return parse(&bytes, depth);
        }
        blocking(move || parse(&bytes, depth)).await?
    }
}

/// Reads a body of JSON, which may be compressed. Its limit is that of the decoded body.
pub(crate) async fn read(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<ReadBody, Fault> {
    let limits = &shared.config.limits;
    is_json(headers)?;
    let encoding = Encoding::of(headers)?;
    let most = limits.body_bytes;
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(length) = declared.filter(|&length: &usize| length > most) {
        return Err(too_large(&format!("the body has {length} bytes"), most));
    }
    let mut reserved = reserve(shared, declared.unwrap_or(most))?;
    let reading = Limited::new(body, most).collect();
    let read = tokio::time::timeout(limits.body_time, reading).await.map_err(|_| {
        let message = format!("the body did not come within {} s", limits.body_time.as_secs());
        Fault::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message)
    })?;
    match read {
        Ok(body) => {
            let bytes = body.to_bytes();
            shared.metrics.read_body(bytes.len());
            // What was reserved beyond the body is given back.
            let kept = reserved.split(bytes.len());
            let read = ReadBody { bytes, reserved: kept };
            match encoding {
                Some(encoding) => decode(shared, read, encoding, most).await,
                None => Ok(read),
            }
        }
        Err(error) if error.is::<LengthLimitError>() => {
            Err(too_large(&format!("the body has more than {most} bytes"), most))
        }
        Err(_) => Err(Fault::invalid("invalid_body", "the body breaks off or is not valid HTTP")),
    }
}

/// Decodes a compressed body, on a thread of its own.
async fn decode(
    shared: &Shared,
    encoded: ReadBody,
    encoding: Encoding,
    most: usize,
) -> Result<ReadBody, Fault> {
    let ReadBody { bytes: encoded, reserved } = encoded;
    let mut place = reserve(shared, most.saturating_sub(encoded.len()))?;
    if let Some(reserved) = reserved {
        place.merge(reserved);
    }
    let (decoded, mut place) = blocking(move || (encoding.decode(&encoded, most), place)).await?;
    let bytes = decoded.map_err(|error| match error {
        DecodeError::TooLarge => {
            too_large(&format!("the body has more than {most} bytes after decoding"), most)
        }
        DecodeError::Damaged(error) => {
            let message = format!("the body is not valid {}: {error}", encoding.name());
            Fault::invalid("invalid_body", message)
        }
    })?;
    let kept = place.split(bytes.len());
    Ok(ReadBody { bytes: bytes.into(), reserved: kept })
}

/// Takes a part of the memory for bodies.
fn reserve(shared: &Shared, bytes: usize) -> Result<OwnedSemaphorePermit, Fault> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    shared.body_bytes.clone().try_acquire_many_owned(bytes).map_err(|_| {
        let message = "the bodies of other requests take the memory for bodies; try again later";
        Fault::overloaded("bytes_budget", message)
    })
}

fn too_large(fact: &str, most: usize) -> Fault {
    let message = format!("{fact}; send at most {most} bytes");
    Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

/// Refuses bodies in other formats.
fn is_json(headers: &HeaderMap) -> Result<(), Fault> {
    let Some(media) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let media = media.to_str().unwrap_or_default();
    let essence = media.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "the body is not JSON by its `Content-Type`; send `application/json`";
    Err(Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message))
}

/// Parses a body. An error names its field.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8], depth: usize) -> Result<T, Fault> {
    if is_deeper(body, depth) {
        let message = format!("the JSON is nested too deeply; nest at most {depth} arrays and objects");
        return Err(Fault::invalid("invalid_json", message));
    }
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Fault::invalid("invalid_json", "the body is not a JSON object; send one"));
    }
    let mut parser = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(WholeNumbers(&mut parser)).map_err(|error| {
        let path = error.path().to_string();
        of_parser(error.inner(), &path)
    })?;
    parser.end().map_err(|error| of_parser(&error, "."))?;
    Ok(value)
}

/// What begins the message about a number that its type cannot hold, although it is JSON.
const OUT_OF_RANGE: &str = "number out of range";
/// What begins the messages about fields, and the codes of these errors.
const FIELD_ERRORS: [(&str, &str); 3] = [
    ("missing field `", "missing_field"),
    ("unknown field `", "unknown_parameter"),
    ("duplicate field `", "duplicate_field"),
];

/// The fault of an error of the parser, at this path.
fn of_parser(error: &serde_json::Error, path: &str) -> Fault {
    let message = error.to_string();
    // The parser has no path of the body as a whole.
    let parent = if path == "." || path == "?" { "" } else { path };
    if message.starts_with(OUT_OF_RANGE) && !parent.is_empty() {
        return Fault::invalid("invalid_value", format!("`{path}`: {message}; give a number nearer to 0"))
            .of_field(path);
    }
    if !error.is_data() {
        return Fault::invalid("invalid_json", format!("the body is not JSON: {message}"));
    }
    for (begin, code) in FIELD_ERRORS {
        let Some(name) = message.strip_prefix(begin).and_then(|rest| rest.split('`').next()) else {
            continue;
        };
        let within = parent.is_empty() || parent == name || parent.ends_with(&format!(".{name}"));
        let param = match parent {
            "" => name.to_owned(),
            parent if within => parent.to_owned(),
            parent => format!("{parent}.{name}"),
        };
        return Fault::invalid(code, in_json_terms(&message)).of_field(param);
    }
    let fault = Fault::invalid("invalid_type", in_json_terms(&message));
    if parent.is_empty() { fault } else { fault.of_field(parent) }
}

#[cfg(test)]
mod tests {
    use redline_api::openai::completions::CompletionBody;

    use super::*;

    #[test]
    fn an_error_names_its_field() {
        let check = |json: &str, code: &str, param: Option<&str>| {
            let error = parse::<CompletionBody>(json.as_bytes(), 8).unwrap_err().body().error;
            assert_eq!(
                (error.code.as_str(), error.param.as_deref()),
                (code, param),
                "{json}: {}",
                error.message
            );
        };
        check("{}", "missing_field", Some("prompt"));
        check(r#"{"prompt":"p","tempratur":1}"#, "unknown_parameter", Some("tempratur"));
        check(r#"{"prompt":"p","prompt":"p"}"#, "duplicate_field", Some("prompt"));
        check(r#"{"prompt":"p","n":-1}"#, "invalid_type", Some("n"));
        check(r#"{"prompt":"p","n":1.5}"#, "invalid_type", Some("n"));
        check(r#"{"prompt":"p","top_k":-1.5}"#, "invalid_type", Some("top_k"));
        check(r#"{"prompt":"p","seed":18446744073709551616}"#, "invalid_type", Some("seed"));
        check(r#"{"prompt":["p",true]}"#, "invalid_type", Some("prompt[1]"));
        check(r#"{"prompt":"p","stop":["a",7]}"#, "invalid_type", Some("stop[1]"));
        check(r#"{"prompt":"p","stream_options":{"x":1}}"#, "unknown_parameter", Some("stream_options.x"));
        check(r#"{"prompt":"p","top_p":1e400}"#, "invalid_value", Some("top_p"));
        check(r#"{"prompt":"p","logit_bias":{"7":-1e400}}"#, "invalid_value", Some("logit_bias.7"));
        check(r#"{"prompt":"p","model":"\ud800"}"#, "invalid_json", None);
        check(r#"{"prompt":"p","model":}"#, "invalid_json", None);
        check(r#"{"prompt":"p"} x"#, "invalid_json", None);
        check(r#"["p"]"#, "invalid_json", None);
        check(r#"{"prompt":"#, "invalid_json", None);
        check(r#"{"prompt":[[[[[[[[[[]]]]]]]]]]}"#, "invalid_json", None);
        let message =
            |json: &str| parse::<CompletionBody>(json.as_bytes(), 8).unwrap_err().body().error.message;
        assert!(message(r#"{"prompt":"p","n":-1}"#).contains("expected a whole number of at least 0"));
        assert!(message(r#"{"prompt":"p","top_p":"a"}"#).contains("expected a number"));
        let fault = parse::<CompletionBody>(br#"{"prompt":"p","top_p":-1e400}"#, 8).unwrap_err();
        assert!(fault.body().error.message.ends_with("give a number nearer to 0"));
    }
}
