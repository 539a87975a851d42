//! What a request brought: read from the bytes of its answer and their times, after the run.

use redline_client::{EventReader, StreamedEvent};
use serde::Deserialize;
use serde_json::Value;

use super::drive::{Exchange, Fault};
use super::kind::Kind;

/// A request and its answer. Times are nanoseconds of the client's clock.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply {
    /// When it was due: in a closed loop, when it was sent.
    pub(super) due: u64,
    pub(super) sent: u64,
    /// When the last byte came, or the fault was seen.
    pub(super) end: u64,
    /// The chunks with tokens: when each came, and how many tokens it held. Empty if the answer was not streamed.
    pub(super) chunks: Vec<(u64, usize)>,
    pub(super) output_tokens: usize,
    /// `None` if the server does not report it.
    pub(super) prompt_tokens: Option<usize>,
    /// Prompt tokens that came from a prefix cache; `None` if the server does not report it.
    pub(super) cached_tokens: Option<usize>,
    pub(super) text: String,
    /// Why it failed.
    pub(super) fault: Option<Fault>,
}

/// The parts of OpenAI's answers that are read, streamed or whole.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    text: Option<String>,
    delta: Option<Content>,
    message: Option<Content>,
    finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Content {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens: Option<usize>,
    completion_tokens: Option<usize>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<usize>,
}

impl Answer {
    /// The text of all choices.
    fn text(&self) -> String {
        let content = |content: &Content| {
            let Content { content, reasoning_content, reasoning } = content;
            let parts = [reasoning_content, reasoning, content].into_iter().flatten();
            parts.map(String::as_str).collect::<String>()
        };
        let of = |choice: &Choice| {
            let said = choice.delta.iter().chain(&choice.message).map(content);
            choice.text.iter().cloned().chain(said).collect::<String>()
        };
        self.choices.iter().map(of).collect()
    }

    fn is_finished(&self) -> bool {
        self.choices.iter().any(|choice| choice.finish_reason.is_some())
    }
}

/// The message of an error in OpenAI's form, or in another one.
pub(super) fn message(error: &Value) -> String {
    let text = error["message"].as_str().or_else(|| error.as_str());
    text.map_or_else(|| error.to_string(), ToOwned::to_owned)
}

/// The message of an answer with an error status.
pub(super) fn message_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let whole = serde_json::from_str::<Value>(&text).unwrap_or(Value::Null);
    let found = ["error", "detail", "message"].iter().find_map(|name| whole.get(name)).map(message);
    found.unwrap_or_else(|| text.chars().take(200).collect::<String>().trim().to_owned())
}

impl Reply {
    /// Reads what an exchange brought.
    pub(super) fn of(exchange: &Exchange, kind: Kind) -> Self {
        let mut reply = Self {
            due: exchange.due,
            sent: exchange.sent,
            end: exchange.end,
            chunks: Vec::new(),
            output_tokens: 0,
            prompt_tokens: None,
            cached_tokens: None,
            text: String::new(),
            fault: exchange.fault.clone(),
        };
        if reply.fault.is_some() {
            return reply;
        }
        let body = &exchange.body;
        if !(200..300).contains(&exchange.status) {
            reply.fault = Some(Fault::status(exchange.status, message_of(body)));
        } else if exchange.is_events {
            reply.read_events(exchange);
        } else {
            match serde_json::from_slice::<Value>(body) {
                Ok(whole) => reply.read_whole(whole, kind),
                Err(error) => reply.fault = Some(Fault::new("malformed", error.to_string())),
            }
        }
        reply
    }

    /// Takes an answer that came as one document.
    fn read_whole(&mut self, whole: Value, kind: Kind) {
        if let Some(error) = whole.get("error").filter(|error| !error.is_null()) {
            self.fault = Some(Fault::new("error", message(error)));
            return;
        }
        if !kind.generates() {
            // What is compared between runs: the result without ids and times.
            let result = ["scores", "results", "answers", "data"].iter().find_map(|name| whole.get(name));
            self.text = result.unwrap_or(&whole).to_string();
        }
        match serde_json::from_value::<Answer>(whole) {
            Ok(answer) => self.read(&answer),
            Err(error) if kind.generates() => self.fault = Some(Fault::new("malformed", error.to_string())),
            // Some routes answer with a list, or give `usage` another form.
            Err(_) => {}
        }
    }

    /// Takes text and counts of a whole answer, or of a part of it.
    fn read(&mut self, answer: &Answer) {
        self.text.push_str(&answer.text());
        if let Some(usage) = answer.usage {
            self.output_tokens = usage.completion_tokens.unwrap_or(self.output_tokens);
            self.prompt_tokens = usage.prompt_tokens.or(self.prompt_tokens);
            let details = usage.prompt_tokens_details.unwrap_or_default();
            self.cached_tokens = details.cached_tokens.or(self.cached_tokens);
        }
    }

    /// Reads the events in the order in which they came. A chunk without text counts only if the server says that it holds a token, so
    /// the chunk that only names the role of a chat does not.
    fn read_events(&mut self, exchange: &Exchange) {
        let (mut reader, mut begin) = (EventReader::default(), 0);
        let (mut done, mut finished, mut texts) = (false, false, 0);
        for &(at, end) in &exchange.pieces {
            reader.push(&exchange.body[begin..end], |StreamedEvent { data, .. }| {
                if data == "[DONE]" {
                    done = true;
                    return;
                }
                let answer = match serde_json::from_str::<Answer>(data) {
                    Ok(answer) => answer,
                    Err(error) => {
                        self.fault.get_or_insert_with(|| Fault::new("malformed", error.to_string()));
                        return;
                    }
                };
                if let Some(error) = &answer.error {
                    self.fault.get_or_insert_with(|| Fault::new("error", message(error)));
                }
                finished |= answer.is_finished();
                let (before, has_text) = (self.output_tokens, !answer.text().is_empty());
                self.read(&answer);
                let new = self.output_tokens.saturating_sub(before);
                // The last event has the usage of the whole answer, but no choice.
                if has_text || (new > 0 && !answer.choices.is_empty()) {
                    self.chunks.push((at, new));
                }
                texts += usize::from(has_text);
            });
            begin = end;
        }
        if self.fault.is_none() && !done && !finished {
            self.fault = Some(Fault::new("incomplete", "the stream ended before its last event".to_owned()));
        }
        if self.output_tokens == 0 {
            self.output_tokens = texts;
        }
        self.divide();
    }

    /// Divides the tokens among the chunks, if the server did not report the count of each.
    fn divide(&mut self) {
        let reported: usize = self.chunks.iter().map(|chunk| chunk.1).sum();
        if reported == self.output_tokens && self.chunks.iter().all(|chunk| chunk.1 > 0) {
            return;
        }
        let (n, tokens) = (self.chunks.len(), self.output_tokens);
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            chunk.1 = tokens * (index + 1) / n - tokens * index / n;
        }
    }

    pub(super) fn is_ok(&self) -> bool {
        self.fault.is_none()
    }

    /// From the due time to the first token.
    pub(super) fn ttft_s(&self) -> Option<f64> {
        self.chunks.first().map(|chunk| seconds(self.due, chunk.0))
    }

    /// The mean time between tokens; `None` with fewer than two, or if all came at once.
    pub(super) fn tpot_s(&self) -> Option<f64> {
        if self.chunks.len() < 2 {
            return None;
        }
        let (first, last) = (self.chunks.first()?.0, self.chunks.last()?.0);
        let between = self.output_tokens.checked_sub(1).filter(|&n| n > 0)?;
        Some(seconds(first, last) / between as f64)
    }

    /// From the due time to the end of the answer.
    pub(super) fn e2e_s(&self) -> f64 {
        seconds(self.due, self.end)
    }

    /// The time before each token after the first chunk. The tokens of a chunk share the time since the chunk before.
    pub(super) fn gaps_s(&self) -> impl Iterator<Item = f64> {
        self.chunks.windows(2).flat_map(|pair| {
            let (gap, tokens) = (seconds(pair[0].0, pair[1].0), pair[1].1);
            std::iter::repeat_n(gap / tokens.max(1) as f64, tokens)
        })
    }

    /// The longest time between two chunks.
    pub(super) fn stall_s(&self) -> Option<f64> {
        self.chunks.windows(2).map(|pair| seconds(pair[0].0, pair[1].0)).max_by(f64::total_cmp)
    }
}

/// Seconds between two readings.
pub(super) fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 * 1e-9
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// An exchange that was due at 0 and sent at 1 ms, whose pieces came at these milliseconds.
    pub(in super::super) fn exchange(status: u16, pieces: &[(u64, &str)]) -> Exchange {
        let mut exchange = Exchange { sent: MS, status, ..Exchange::default() };
        for (at, piece) in pieces {
            exchange.body.extend_from_slice(piece.as_bytes());
            exchange.pieces.push((at * MS, exchange.body.len()));
            exchange.end = at * MS;
        }
        exchange
    }

    fn event(json: &str) -> String {
        format!("data: {json}\n\n")
    }

    fn chat(content: &str) -> String {
        event(&format!(r#"{{"choices":[{{"delta":{{"content":"{content}"}}}}]}}"#))
    }

    fn streamed(pieces: &[(u64, &str)]) -> Reply {
        Reply::of(&Exchange { is_events: true, ..exchange(200, pieces) }, Kind::Chat)
    }

    #[test]
    fn times_are_those_of_the_tokens() {
        let role = event(r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#);
        let last = event(r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#);
        let usage = event(
            r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}"#,
        );
        let (a, b, c) = (chat("a"), chat("b"), chat("c"));
        let (c1, c2) = c.split_at(9);
        let reply = streamed(&[
            (5, &role),
            (10, &a),
            (14, &format!("{b}{c1}")),
            (20, c2),
            (21, &format!("{last}{usage}data: [DONE]\n\n")),
        ]);
        assert_eq!(reply.fault, None);
        assert_eq!((reply.text.as_str(), reply.output_tokens), ("abc", 3));
        assert_eq!((reply.prompt_tokens, reply.cached_tokens), (Some(7), Some(2)));
        assert_eq!(reply.chunks, [(10 * MS, 1), (14 * MS, 1), (20 * MS, 1)]);
        assert_eq!((reply.ttft_s(), reply.e2e_s()), (Some(10e-3), 21e-3));
        assert_eq!(reply.tpot_s(), Some(5e-3));
        assert_eq!(reply.gaps_s().collect::<Vec<_>>(), [4e-3, 6e-3]);
        assert_eq!(reply.stall_s(), Some(6e-3));
    }

    #[test]
    fn chunks_of_several_tokens_share_their_time() {
        // The server reports the tokens so far with every chunk; the second one has no text yet.
        let part = |text: &str, so_far: usize| {
            event(&format!(r#"{{"choices":[{{"text":"{text}"}}],"usage":{{"completion_tokens":{so_far}}}}}"#))
        };
        let pieces = [
            part("a", 1),
            part("", 2),
            part("bcd", 5),
            event(r#"{"choices":[{"text":"","finish_reason":"stop"}]}"#),
        ];
        let reply = streamed(&[(2, &pieces[0]), (4, &pieces[1]), (10, &pieces[2]), (11, &pieces[3])]);
        assert_eq!(reply.fault, None);
        assert_eq!(reply.chunks, [(2 * MS, 1), (4 * MS, 1), (10 * MS, 3)]);
        assert_eq!(reply.gaps_s().collect::<Vec<_>>(), [2e-3, 2e-3, 2e-3, 2e-3]);
        assert_eq!(reply.tpot_s(), Some(2e-3));
        // Without counts, the total is divided; without a total, chunks are counted.
        let total = event(r#"{"choices":[],"usage":{"completion_tokens":5}}"#) + "data: [DONE]\n\n";
        let divided = streamed(&[(2, &chat("a")), (3, &chat("b")), (4, &total)]);
        assert_eq!(divided.chunks, [(2 * MS, 2), (3 * MS, 3)]);
        let counted = streamed(&[(2, &chat("a")), (3, &chat("b")), (4, "data: [DONE]\n\n")]);
        assert_eq!((counted.output_tokens, counted.chunks), (2, vec![(2 * MS, 1), (3 * MS, 1)]));
    }

    #[test]
    fn one_token_has_no_time_between_tokens() {
        let reply = streamed(&[(3, &chat("a")), (4, "data: [DONE]\n\n")]);
        assert_eq!((reply.ttft_s(), reply.tpot_s(), reply.stall_s()), (Some(3e-3), None, None));
        let none = streamed(&[(4, "data: [DONE]\n\n")]);
        assert_eq!((none.ttft_s(), none.tpot_s(), none.output_tokens), (None, None, 0));
    }

    #[test]
    fn an_answer_that_is_not_whole_is_a_fault() {
        let kind = |reply: &Reply| reply.fault.as_ref().map(|fault| fault.kind.clone());
        let of = |pieces: &[(u64, &str)]| kind(&streamed(pieces)).unwrap_or_default();
        assert_eq!(of(&[(3, &chat("a"))]), "incomplete");
        assert_eq!(of(&[(3, &chat("a")), (4, "data: {\n\n")]), "malformed");
        assert_eq!(of(&[(3, &chat("a")), (4, &event(r#"{"error":{"message":"x"}}"#))]), "error");
        let whole = |status, body: &str| Reply::of(&exchange(status, &[(2, body)]), Kind::Completion);
        let refused = whole(429, r#"{"error":{"message":"the queue is full"}}"#).fault.unwrap();
        assert_eq!((refused.kind.as_str(), refused.message.as_str()), ("status_429", "the queue is full"));
        assert_eq!(kind(&whole(503, "no JSON")).as_deref(), Some("status_503"));
        assert_eq!(kind(&whole(200, "no JSON")).as_deref(), Some("malformed"));
        assert_eq!(kind(&whole(200, r#"{"error":"x"}"#)).as_deref(), Some("error"));
        let answer =
            whole(200, r#"{"choices":[{"text":"ab"}],"usage":{"prompt_tokens":4,"completion_tokens":2}}"#);
        assert_eq!((answer.fault, answer.text.as_str(), answer.output_tokens), (None, "ab", 2));
        assert!(answer.chunks.is_empty());
        let list = Reply::of(&exchange(200, &[(2, r#"[{"index":0,"score":0.5}]"#)]), Kind::Rerank);
        assert!(list.is_ok() && !Reply::of(&exchange(200, &[(2, "[")]), Kind::Rerank).is_ok());
    }
}
