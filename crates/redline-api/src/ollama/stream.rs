//! An answer that is sent in lines.

use std::sync::Arc;

use redline_chat::Delta;
use redline_engine::FinishReason;
use schemars::JsonSchema;
use serde::Serialize;

use crate::conversation::reading::{AnswerReader, Call, Reading};
use crate::cost::Usage;
use crate::error::ApiError;
use crate::error_body::{ErrorDetail, OllamaErrorBody};
use crate::generation::mode::{GenerationPiece, PromptEnd};
use crate::generation::reason;
use crate::generation::stream::{ServerEvent, StreamCounts, StreamFormat, StreamedAnswer};
use crate::ollama::{OllamaAnswer, OllamaEnd, OllamaForm, call};
use crate::openai::chat_completions::{ChatPosition, logprobs};

/// A line of a streamed answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OllamaEvent {
    /// What is new.
    Answer(Box<OllamaAnswer>),
    /// Why the answer ends before its time.
    Failed(OllamaErrorBody),
}

impl ServerEvent for OllamaEvent {}

/// An answer that is sent in lines.
pub struct OllamaStream {
    form: OllamaForm,
    reading: Arc<Reading>,
    reader: AnswerReader,
    counts: StreamCounts,
    /// The call that is being written, and the number of those before it.
    open: Option<Call>,
    calls: usize,
    /// What was not sent yet.
    logprobs: Vec<ChatPosition>,
    reason: FinishReason,
}

impl OllamaStream {
    /// The stream of the answer to a request.
    pub fn new(form: OllamaForm, reading: Arc<Reading>) -> Self {
        Self {
            form,
            reader: reading.reader(),
            reading,
            counts: StreamCounts::new(1),
            open: None,
            calls: 0,
            logprobs: Vec::new(),
            reason: FinishReason::Length,
        }
    }

    /// Appends a line.
    fn send(&mut self, mut line: OllamaAnswer, events: &mut Vec<OllamaEvent>) {
        if self.form.logprobs {
            line.logprobs = Some(std::mem::take(&mut self.logprobs));
        }
        events.push(OllamaEvent::Answer(Box::new(line)));
    }

    /// Appends the line of the call that was written. One whose arguments are no object is text, unless the answer was cut.
    fn end_call(&mut self, events: &mut Vec<OllamaEvent>) {
        let Some(open) = self.open.take() else { return };
        let line = match call(self.calls, open) {
            Ok(call) => self.form.answer(String::new(), String::new(), vec![call], None),
            Err(written) if self.reason == FinishReason::Stop => {
                self.form.answer(written, String::new(), Vec::new(), None)
            }
            Err(_) => return,
        };
        self.calls += 1;
        self.send(line, events);
    }

    fn add(&mut self, delta: Delta, events: &mut Vec<OllamaEvent>) {
        let (text, thinking) = match delta {
            Delta::Content(text) => (text, String::new()),
            Delta::Reasoning(text) => (String::new(), text),
            Delta::Call(name) => {
                self.end_call(events);
                self.open = Some(self.reading.call(0, self.calls, name));
                return;
            }
            Delta::Arguments(json) => {
                if let Some(open) = &mut self.open {
                    open.arguments.push_str(&json);
                }
                return;
            }
        };
        self.end_call(events);
        self.send(self.form.answer(text, thinking, Vec::new(), None), events);
    }
}

impl StreamedAnswer for OllamaStream {
    type Event = OllamaEvent;

    const FORMAT: StreamFormat = StreamFormat::Lines;

    fn piece(
        &mut self,
        prompt: usize,
        piece: GenerationPiece,
        events: &mut Vec<OllamaEvent>,
    ) -> Result<(), ApiError> {
        self.counts.add(prompt, &piece);
        if self.form.logprobs {
            self.logprobs.extend(logprobs(&self.form.model, piece.logprobs.as_slice())?.content);
        }
        let deltas = self.reader.piece(&piece)?;
        self.reason = piece.finish_reason.unwrap_or(self.reason);
        for delta in deltas {
            self.add(delta, events);
        }
        if piece.finish_reason.is_some() {
            self.end_call(events);
        }
        Ok(())
    }

    fn ended(&mut self, prompt: usize, end: PromptEnd) {
        self.counts.set(prompt, end);
    }

    fn end(&mut self, events: &mut Vec<OllamaEvent>) {
        let end = OllamaEnd::new(reason(self.reason), self.counts.sum());
        self.send(self.form.answer(String::new(), String::new(), Vec::new(), Some(end)), events);
    }

    fn fail(&mut self, error: ErrorDetail, events: &mut Vec<OllamaEvent>) {
        events.push(OllamaEvent::Failed(error.into()));
    }

    fn usage(&self) -> Usage {
        self.counts.total()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use redline_engine::{Engine, Options, Source};
    use serde_json::{Value, json};

    use super::*;
    use crate::conversation::reading::tests::reading;
    use crate::generation::mode::{GeneratedChoice, GenerationOutcome, PieceTokens};
    use crate::model::LoadedModel;
    use crate::ollama::answer;

    fn value(of: &impl Serialize) -> Value {
        serde_json::to_value(of).unwrap()
    }

    /// The whole answer of these tokens, and its lines.
    fn read(ids: &[u32], reason: FinishReason) -> (Value, Vec<Value>) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
        let engine = Engine::load(Options { threads: 1, ..Options::new(Source::Path(dir)) }).unwrap();
        let model = Arc::new(LoadedModel { name: "demo".to_owned(), engine });
        let mut form = OllamaForm::new(model, "demo".to_owned(), "now".to_owned());
        form.is_chat = true;
        let reading = Arc::new(reading(true));
        let tokenizer = reading.tokenizer.clone().unwrap();
        let text = |ids: &[u32]| tokenizer.decode(ids, true).unwrap();
        let choice = GeneratedChoice {
            text: text(ids),
            token_ids: ids.to_vec(),
            finish_reason: reason,
            logprobs: None,
        };
        let outcome = GenerationOutcome {
            end: PromptEnd::default(),
            prompt_token_ids: Vec::new(),
            prompt_logprobs: None,
            choices: vec![choice],
            receipt: None,
        };
        let whole = value(&answer(&form, &reading, outcome).unwrap().0);
        let (mut stream, mut lines) = (OllamaStream::new(form, reading.clone()), Vec::new());
        for (at, &id) in ids.iter().enumerate() {
            let piece = GenerationPiece {
                tokens: PieceTokens::One(id),
                text: text(&[id]),
                finish_reason: (at + 1 == ids.len()).then_some(reason),
                ..GenerationPiece::default()
            };
            stream.piece(0, piece, &mut lines).unwrap();
        }
        stream.ended(0, PromptEnd::default());
        stream.end(&mut lines);
        (whole, lines.iter().map(value).collect())
    }

    #[test]
    fn a_call_is_a_line_and_so_is_the_end() {
        let (whole, lines) = read(&[6, 0, 7, 1, 8, 2, 3, 9, 8, 2, 3, 9], FinishReason::Stop);
        let calls = whole["message"]["tool_calls"].as_array().unwrap();
        assert_eq!((calls.len(), &whole["message"]["content"]), (2, &json!("b")));
        assert_eq!((&whole["message"]["thinking"], &whole["done_reason"]), (&json!("a"), &json!("stop")));
        for (index, call) in calls.iter().enumerate() {
            let function = json!({ "index": index, "name": "now", "arguments": {} });
            assert_eq!(call["function"], function);
        }
        assert_ne!(calls[0]["id"], calls[1]["id"]);
        let mut expected = vec![json!({ "role": "assistant", "content": "", "thinking": "a" })];
        expected.push(json!({ "role": "assistant", "content": "b" }));
        for call in calls {
            expected.push(json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
        }
        expected.push(json!({ "role": "assistant", "content": "" }));
        let messages: Vec<_> = lines.iter().map(|line| line["message"].clone()).collect();
        assert_eq!(messages, expected);
        let done: Vec<_> = lines.iter().map(|line| line["done"] == true).collect();
        assert_eq!(done, [false, false, false, false, true]);
        assert_eq!(lines[4]["done_reason"], "stop");
    }

    #[test]
    fn a_call_that_was_cut_is_left_out() {
        for (reason, content) in [(FinishReason::Length, "b"), (FinishReason::Stop, "bnow")] {
            // The arguments are not closed.
            let (whole, lines) = read(&[1, 8, 2, 11], reason);
            let streamed: String =
                lines.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
            assert_eq!(whole["message"]["content"], json!(streamed));
            assert_eq!(streamed.get(..content.len()), Some(content));
            assert_eq!(streamed == "b", reason == FinishReason::Length, "{streamed}");
            assert!(whole["message"].get("tool_calls").is_none(), "{whole}");
        }
    }
}
