//! Reads the answers to a conversation: reasoning, text and calls.

use std::collections::VecDeque;
use std::sync::Arc;

use redline_chat::{ChatFormat, Delta, Input, Marker, Parser, Tools, call_id};
use redline_tokenizer::{TextStream, Tokenizer, TokenizerError};
use serde_json::Value;

use crate::error::ApiError;
use crate::generation::mode::{GeneratedChoice, GenerationPiece};

/// Letters and digits in the id of a call, where the format of the model's calls does not say how many.
const ID_LENGTH: usize = 24;

/// How the answers to a conversation are read. By default, they are texts without parts.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Where answers have parts.
    pub(crate) format: Option<ChatFormat>,
    /// Where answers have parts, or say before which text they ended.
    pub(crate) tokenizer: Option<Arc<Tokenizer>>,
    /// The tools whose calls are read.
    pub(crate) tools: Tools,
    /// Most calls of an answer.
    pub(crate) most: usize,
    /// Whether the prompt ends where the model reasons.
    pub(crate) reasons: bool,
    /// Whether answers show their reasoning.
    pub(crate) shows_reasoning: bool,
    /// Whether the request names the tool that is called.
    pub(crate) is_named: bool,
    /// The prompt, from which the ids of calls come, if there may be calls.
    pub(crate) prompt: String,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Letters and digits that identify it.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments in JSON: an object, unless the model writes something else or the answer was cut.
    pub arguments: String,
}

impl Call {
    /// The arguments, if they are an object.
    pub(crate) fn object(&self) -> Option<Value> {
        serde_json::from_str(&self.arguments).ok().filter(Value::is_object)
    }

    /// The name and the arguments as a text, for answers that cannot show other arguments than objects.
    pub(crate) fn as_text(&self) -> String {
        format!("{}{}", self.name, self.arguments)
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// Reasoning.
    Reasoning(String),
    /// Text.
    Text(String),
    /// A call.
    Call(Call),
}

impl Reading {
    /// Reads an answer from its beginning.
    pub(crate) fn reader(&self) -> AnswerReader {
        let parser = self
            .format
            .as_ref()
            .map(|format| Parser::new(format.clone(), self.tools.clone(), self.reasons, self.most));
        AnswerReader {
            parser,
            stream: self.tokenizer.clone().map(TextStream::new),
            tokenizer: self.tokenizer.clone(),
            shows_reasoning: self.shows_reasoning,
            reasoning_tokens: 0,
            text: Pending::default(),
            given: 0,
            decoded: 0,
            ahead: Pending::default(),
            marks: VecDeque::new(),
        }
    }

    /// The parts of a whole answer in their order, and the number of tokens of its reasoning.
    pub(crate) fn parts(
        &self,
        answer: usize,
        choice: &GeneratedChoice,
    ) -> Result<(Vec<AnswerPart>, usize), ApiError> {
        let (parts, reader) = self.read(answer, choice)?;
        Ok((parts, reader.reasoning_tokens))
    }

    /// The parts of a whole answer in their order, and what read it.
    pub(crate) fn read(
        &self,
        answer: usize,
        choice: &GeneratedChoice,
    ) -> Result<(Vec<AnswerPart>, AnswerReader), ApiError> {
        let mut reader = self.reader();
        let mut deltas = reader.push(&choice.token_ids, &choice.text)?;
        deltas.extend(reader.finish());
        let (mut parts, mut calls) = (Vec::new(), 0);
        for delta in deltas {
            match (delta, parts.last_mut()) {
                (Delta::Content(text), Some(AnswerPart::Text(before)))
                | (Delta::Reasoning(text), Some(AnswerPart::Reasoning(before))) => before.push_str(&text),
                (Delta::Content(text), _) => parts.push(AnswerPart::Text(text)),
                (Delta::Reasoning(text), _) => parts.push(AnswerPart::Reasoning(text)),
                (Delta::Call(name), _) => {
                    parts.push(AnswerPart::Call(self.call(answer, calls, name)));
                    calls += 1;
                }
                (Delta::Arguments(json), Some(AnswerPart::Call(call))) => call.arguments.push_str(&json),
                (Delta::Arguments(_), _) => {}
            }
        }
        Ok((parts, reader))
    }

    /// The beginning of a call of an answer.
    pub(crate) fn call(&self, answer: usize, call: usize, name: String) -> Call {
        Call { id: self.call_id(answer, call), name, arguments: String::new() }
    }

    /// The id of a call of an answer.
    pub(crate) fn call_id(&self, answer: usize, call: usize) -> String {
        let length = self.format.as_ref().and_then(ChatFormat::id_length);
        call_id(&self.prompt, answer, call, length.unwrap_or(ID_LENGTH))
    }

    /// Whether ids of calls have a prefix such as `call_`.
    pub(crate) fn has_plain_ids(&self) -> bool {
        self.format.as_ref().is_some_and(|format| format.id_length().is_some())
    }
}

/// Reads an answer as it is generated.
pub(crate) struct AnswerReader {
    parser: Option<Parser>,
    /// Decodes the tokens again, to find the places of marks in the text.
    stream: Option<TextStream<Arc<Tokenizer>>>,
    tokenizer: Option<Arc<Tokenizer>>,
    shows_reasoning: bool,
    pub(crate) reasoning_tokens: usize,
    /// The text that the parser did not get yet.
    text: Pending,
    /// Number of bytes that it got.
    given: usize,
    /// Number of bytes that were decoded.
    decoded: usize,
    /// What was decoded and has not become final.
    ahead: Pending,
    /// Where marks begin, and how many bytes of the text each takes.
    marks: VecDeque<(usize, usize, Marker)>,
}

impl AnswerReader {
    /// Takes the next tokens, and the text that has become final.
    pub(crate) fn push(&mut self, tokens: &[u32], text: &str) -> Result<Vec<Delta>, ApiError> {
        if self.parser.is_none() {
            tokens.iter().try_for_each(|id| self.decode(*id))?;
            self.ahead.take(text.len());
            return Ok(if text.is_empty() { Vec::new() } else { vec![Delta::Content(text.to_owned())] });
        }
        self.text.push(text);
        let mut deltas = Vec::new();
        for &id in tokens {
            let reasoned = self.parser.as_ref().is_some_and(Parser::is_reasoning);
            self.decode(id)?;
            self.give(self.decoded, &mut deltas);
            let reasons = self.parser.as_ref().is_some_and(Parser::is_reasoning);
            self.reasoning_tokens += usize::from(reasoned || reasons);
        }
        self.give(usize::MAX, &mut deltas);
        self.ahead.take(text.len());
        Ok(self.shown(deltas))
    }

    /// Takes a piece of the answer, with what follows from its end if it is the last one.
    pub(crate) fn piece(&mut self, piece: &GenerationPiece) -> Result<Vec<Delta>, ApiError> {
        let mut deltas = self.push(piece.tokens.as_slice(), &piece.text)?;
        if piece.finish_reason.is_some() {
            deltas.extend(self.finish());
        }
        Ok(deltas)
    }

    /// Which of these texts, before which the answer ended, follows it.
    pub(crate) fn stopped_by(&self, stops: &[String]) -> Option<String> {
        stops
            .iter()
            .filter(|stop| self.ahead.rest().starts_with(&***stop))
            .max_by_key(|stop| stop.len())
            .cloned()
    }

    /// The answer has ended.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        self.marks.clear();
        self.give(usize::MAX, &mut deltas);
        deltas.extend(self.parser.as_mut().map(Parser::finish).unwrap_or_default());
        self.shown(deltas)
    }

    /// Number of calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.parser.as_ref().map_or(0, Parser::calls)
    }

    fn decode(&mut self, id: u32) -> Result<(), TokenizerError> {
        let (Some(stream), Some(tokenizer)) = (&mut self.stream, &self.tokenizer) else { return Ok(()) };
        let Some(name) = tokenizer.token(id) else { return Ok(()) };
        let piece = stream.push(id)?;
        if tokenizer.is_marker(id) {
            let own = if piece.ends_with(&name) { name.len() } else { 0 };
            let marker = Marker { id, name, is_special: own == 0 };
            self.marks.push_back((self.decoded + piece.len() - own, own, marker));
        }
        self.decoded += piece.len();
        self.ahead.push(&piece);
        Ok(())
    }

    /// Gives the parser the text up to a place, and the marks in it, as far as they have become final.
    fn give(&mut self, end: usize, deltas: &mut Vec<Delta>) {
        let Some(parser) = &mut self.parser else { return };
        let end = end.min(self.given + self.text.len());
        while let Some((at, own, marker)) = self.marks.pop_front() {
            if at + own > end {
                self.marks.push_front((at, own, marker));
                break;
            }
            let before = self.text.take(at.saturating_sub(self.given));
            if !before.is_empty() {
                deltas.extend(parser.push(Input::Text(&before)));
            }
            self.text.take(own);
            deltas.extend(parser.push(Input::Marker(&marker)));
            self.given = at + own;
        }
        let end = self.marks.front().map_or(end, |(at, ..)| end.min(*at));
        let text = self.text.take(end.saturating_sub(self.given));
        if !text.is_empty() {
            self.given += text.len();
            deltas.extend(parser.push(Input::Text(&text)));
        }
    }

    fn shown(&self, mut deltas: Vec<Delta>) -> Vec<Delta> {
        if !self.shows_reasoning {
            deltas.retain(|delta| !matches!(delta, Delta::Reasoning(_)));
        }
        deltas
    }
}

/// A text that is taken from its beginning.
#[derive(Default)]
struct Pending {
    text: String,
    /// Number of bytes that were taken.
    taken: usize,
}

impl Pending {
    fn push(&mut self, text: &str) {
        // What was taken is given up when it is the larger part, so that no text is moved often.
        if self.taken > self.text.len() / 2 {
            self.text.drain(..std::mem::take(&mut self.taken));
        }
        self.text.push_str(text);
    }

    fn rest(&self) -> &str {
        &self.text[self.taken..]
    }

    fn len(&self) -> usize {
        self.text.len() - self.taken
    }

    /// Takes this number of bytes; fewer, if they would end within a character.
    fn take(&mut self, count: usize) -> String {
        let end = self.text.floor_char_boundary(self.taken.saturating_add(count));
        let taken = self.text[self.taken..end].to_owned();
        self.taken = end;
        taken
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use redline_chat::Tool;

    use super::*;

    const JSON: &str = r#"{
        "added_tokens": [
            { "id": 6, "content": "<think>", "special": false },
            { "id": 7, "content": "</think>", "special": false },
            { "id": 8, "content": "<tool_call>", "special": false },
            { "id": 9, "content": "</tool_call>", "special": true },
            { "id": 10, "content": "<end>", "special": true },
            { "id": 11, "content": "\"now\",\"arguments\":{", "special": false }
        ],
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "vocab": { "a": 0, "b": 1, "{\"name\":": 2, "\"now\"}": 3, "Ã": 4, "©": 5 }, "merges": [] }
    }"#;

    /// Answers of a small vocabulary: reasoning between 6 and 7, and `2, 3` between 8 and 9 calls the tool `now`; after `2, 11`, its
    /// arguments are open.
    pub(crate) fn reading(shows_reasoning: bool) -> Reading {
        let tokenizer = Arc::new(Tokenizer::from_bytes("tokenizer.json", JSON.as_bytes()).unwrap());
        let marker = |name: &str| {
            let id = tokenizer.id(name)?;
            Some(Marker { id, name: name.to_owned(), is_special: id >= 9 })
        };
        let template = "<think></think><tool_call>\"arguments\"</tool_call>";
        let tool = Tool { name: "now".to_owned(), ..Tool::default() };
        Reading {
            format: Some(ChatFormat::of_template(template, &marker, vec![6, 7, 8, 9, 10])),
            tokenizer: Some(tokenizer.clone()),
            tools: Tools(vec![tool]),
            most: usize::MAX,
            reasons: false,
            shows_reasoning,
            is_named: false,
            prompt: "p".to_owned(),
        }
    }

    fn choice(ids: &[u32]) -> GeneratedChoice {
        let tokenizer = reading(true).tokenizer.unwrap();
        let text = tokenizer.decode(ids, true).unwrap();
        GeneratedChoice { text, token_ids: ids.to_vec(), ..GeneratedChoice::default() }
    }

    #[test]
    fn parts_are_found_by_their_tokens() {
        let reading = reading(true);
        // Reasoning, a character of two tokens, and a call; the last token has no text.
        let (parts, tokens) = reading.parts(0, &choice(&[6, 0, 4, 5, 7, 1, 4, 5, 8, 2, 3, 9, 10])).unwrap();
        let call = Call { id: reading.call_id(0, 0), name: "now".to_owned(), arguments: "{}".to_owned() };
        let expected = [
            AnswerPart::Reasoning("aé".to_owned()),
            AnswerPart::Text("bé".to_owned()),
            AnswerPart::Call(call),
        ];
        assert_eq!((parts.as_slice(), tokens), (&expected[..], 5));
        assert_ne!(reading.call_id(0, 0), reading.call_id(0, 1));
        assert_ne!(reading.call_id(0, 0), reading.call_id(1, 0));
    }

    #[test]
    fn a_stream_has_the_same_parts() {
        let ids = [6, 0, 4, 5, 7, 1, 4, 5, 8, 2, 3, 9, 0, 8, 1];
        let whole = reading(true).reader().push(&ids, &choice(&ids).text).unwrap();
        let mut reader = reading(true).reader();
        let mut stream = reading(true).tokenizer.map(TextStream::new).unwrap();
        let (mut deltas, mut held) = (Vec::new(), String::new());
        for id in ids {
            // As if it waited for a stop string: the text comes a token late.
            let text = stream.push(id).unwrap();
            deltas.extend(reader.push(&[id], &std::mem::replace(&mut held, text)).unwrap());
        }
        deltas.extend(reader.push(&[], &(held + &stream.finish())).unwrap());
        let joined = |deltas: Vec<Delta>| {
            let mut all: Vec<(u8, String)> = Vec::new();
            for delta in deltas {
                let (kind, text) = match delta {
                    Delta::Content(text) => (0, text),
                    Delta::Reasoning(text) => (1, text),
                    Delta::Call(name) => (2, name),
                    Delta::Arguments(json) => (3, json),
                };
                match all.last_mut() {
                    Some((last, before)) if *last == kind && kind != 2 => before.push_str(&text),
                    _ => all.push((kind, text)),
                }
            }
            all
        };
        assert_eq!(joined(deltas), joined(whole));
    }

    #[test]
    fn reasoning_is_hidden_on_request() {
        let (parts, tokens) = reading(false).parts(0, &choice(&[6, 0, 7, 1])).unwrap();
        assert_eq!((parts, tokens), (vec![AnswerPart::Text("b".to_owned())], 3));
    }
}
