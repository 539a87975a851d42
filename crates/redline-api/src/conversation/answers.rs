//! Finds out in which format a model answers conversations.

use std::fmt::Display;

use redline_chat::{ChatFormat, Marker, Tool, Tools};
use redline_engine::Engine;
use redline_tokenizer::ChatMessage;
use serde_json::{Value, json};

use crate::chat::keys::ChatKeys;
use crate::chat::template::Chat;
use crate::conversation::reading::{AnswerPart, Reading};
use crate::error::ApiError;
use crate::generation::mode::GeneratedChoice;
use crate::generation::unsupported_by_canvases;
use crate::json::fields::refused;
use crate::json::text::JsonText;

impl Chat {
    /// The format of answers; `None` without a template or a tokenizer.
    pub(crate) fn answer_format(&self, engine: &Engine) -> Option<ChatFormat> {
        let known = self.known.format.get_or_init(|| {
            let tokenizer = engine.tokenizer()?;
            let template = self.template.as_ref().ok()?;
            let is_special = |id| tokenizer.decode(&[id], true).is_ok_and(|text| text.is_empty());
            let marker = |name: &str| {
                let id = tokenizer.id(name).filter(|id| tokenizer.is_marker(*id))?;
                Some(Marker { id, name: name.to_owned(), is_special: is_special(id) })
            };
            let special = (0..tokenizer.vocab_size() as u32).filter(|id| tokenizer.is_marker(*id)).collect();
            Some(ChatFormat::of_template(template.tool_source(), &marker, special))
        });
        known.clone()
    }

    /// Fails if calls of tools cannot be read: the template has none, or others than its format says. `fills_masks` says that the model
    /// does.
    pub(crate) fn check_calls(&self, engine: &Engine, fills_masks: bool) -> Result<(), ApiError> {
        if fills_masks {
            return unsupported_by_canvases("tools", true, "leave it out, or give `tool_choice` = \"none\"");
        }
        let why = self.known.no_calls.get_or_init(|| match self.answer_format(engine) {
            Some(format) if format.name().is_some() => self.calls_are_read(engine, format).err(),
            _ => Some("the chat template of this model has no calls of tools".to_owned()),
        });
        let hint = "leave it out, give `tool_choice` = \"none\", or serve a model whose chat template has calls of tools";
        why.as_ref().map_or(Ok(()), |fact| Err(refused("tools", fact, hint)))
    }

    /// Formats a call, and reads it.
    fn calls_are_read(&self, engine: &Engine, format: ChatFormat) -> Result<(), String> {
        let name = format.name().unwrap_or_default();
        let failed = |what: &dyn Display| {
            format!("the chat template of this model cannot write a call that is read as {name}: {what}")
        };
        let arguments =
            json!({ "text": "a \"b\"\n<é>", "count": 2, "on": true, "nested": { "list": [1, "c"] } });
        let schema = json!({ "type": "object", "properties": {
            "text": { "type": "string" }, "count": { "type": "integer" }, "on": { "type": "boolean" }, "nested": { "type": "object" }
        } });
        let function = json!({ "type": "function", "function": { "name": "probe", "description": "", "parameters": schema } });
        // Templates of some families take no other id.
        let call = json!({ "id": "abcdefghi", "type": "function", "function": { "name": "probe", "arguments": arguments } });
        let user = json!({ "role": "user", "content": "?" });
        let calling = json!({ "role": "assistant", "content": "", "tool_calls": [call] });
        let rendered = |messages: &[&Value], begins: bool| {
            let messages = messages.iter().enumerate();
            let messages =
                messages.map(|(index, message)| ChatMessage::from_json(index, &message.to_string()));
            let keys = ChatKeys {
                tools: Some(vec![JsonText::object(&function.to_string())]),
                add_generation_prompt: Some(begins),
                ..ChatKeys::default()
            };
            let messages = messages.collect::<Result<_, _>>().map_err(|error| failed(&error))?;
            self.rendered(messages, keys).map_err(|error| failed(&error))
        };
        let whole = rendered(&[&user, &calling], false)?;
        let (with, without) = (rendered(&[&user], true)?, rendered(&[&user], false)?);
        let answer = whole.strip_prefix(&*with).or_else(|| whole.strip_prefix(&*without)).unwrap_or(&whole);
        let tool = Tool { name: "probe".to_owned(), parameters: Some(schema), strict: false };
        let reading = Reading {
            format: Some(format),
            tokenizer: engine.shared_tokenizer(),
            tools: Tools(vec![tool]),
            most: usize::MAX,
            reasons: false,
            shows_reasoning: true,
            is_named: false,
            prompt: String::new(),
        };
        let token_ids = engine.encode(answer, false).map_err(|error| failed(&error))?;
        let tokenizer = reading.tokenizer.as_ref().map(|tokenizer| tokenizer.decode(&token_ids, true));
        let text = tokenizer.transpose().map_err(|error| failed(&error))?.unwrap_or_default();
        let choice = GeneratedChoice { text, token_ids, ..GeneratedChoice::default() };
        let (parts, _) = reading.parts(0, &choice).map_err(|error| failed(&error))?;
        let calls = parts.iter().filter_map(|part| match part {
            AnswerPart::Call(call) => {
                Some((&*call.name, serde_json::from_str::<Value>(&call.arguments).ok()))
            }
            _ => None,
        });
        if calls.eq([("probe", Some(arguments))]) {
            return Ok(());
        }
        Err(failed(&format_args!("it writes {answer:?}")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use redline_engine::{Options, Source};

    use super::*;
    use crate::chat::template::ChatOptions;

    /// Each template writes a call that is read as its family writes them.
    #[test]
    fn calls_of_templates_are_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let source = Source::Path(root.join("models/demo"));
        let engine = Engine::load(Options { threads: 1, ..Options::new(source.clone()) }).unwrap();
        for (file, family) in [
            ("qwen-2.5", Some("hermes")),
            ("qwen-3", Some("hermes")),
            ("llama-3.1", Some("llama")),
            ("llama-3.2", Some("llama")),
            ("mistral-v0.3", Some("mistral")),
            ("mistral-nemo", Some("mistral")),
            ("gemma-2", None),
            ("phi-4", None),
        ] {
            let file = root.join("tests/golden/chat").join(format!("{file}.jinja"));
            let chat =
                Chat::open("m", &source, ChatOptions { file: Some(file.clone()), ..ChatOptions::default() });
            assert_eq!(chat.answer_format(&engine).unwrap().name(), family, "{file:?}");
            let read = chat.check_calls(&engine, false).map_err(|error| error.to_string());
            match family {
                Some(_) => assert_eq!(read, Ok(()), "{file:?}"),
                None => assert!(read.unwrap_err().contains("no calls of tools"), "{file:?}"),
            }
        }
    }

    /// A template that looks like that of a family and writes something else.
    #[test]
    fn a_template_whose_calls_are_not_read_is_refused() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let source = Source::Path(root.join("models/demo"));
        let engine = Engine::load(Options { threads: 1, ..Options::new(source.clone()) }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let refused = |template: &str| {
            let file = folder.path().join("t.jinja");
            std::fs::write(&file, template).unwrap();
            let chat = Chat::open("m", &source, ChatOptions { file: Some(file), ..ChatOptions::default() });
            chat.check_calls(&engine, false).unwrap_err().to_string()
        };
        let told =
            refused("{{ tools }}<tool_call>arguments{% for m in messages %}{{ m.tool_calls }}{% endfor %}");
        assert!(told.contains("read as hermes: it writes"), "{told}");
        let told = refused("<tool_call>{{ raise_exception('no arguments') }}");
        assert!(told.contains("no arguments"), "{told}");
    }
}
