//! The state of a conversation.

use std::path::Path;

use redline_api::chat::template::Chat;
use redline_api::jsonl;
use redline_api::jsonl::generate::GenerateLine;
use redline_api::model::LoadedModel;
use redline_engine::settings::{Setting, hint};
use redline_engine::{GenerateOutcome, GenerateRequest, Prompt};
use redline_system::number;
use redline_tokenizer::ChatMessage;

use crate::command::{finish, generate};
use crate::interrupt::Interrupt;
use crate::message::Failure;
use crate::output;
use crate::spelling::spelled;

/// A conversation with a model.
pub(super) struct Session<'a> {
    loaded: &'a LoadedModel,
    chat: Chat,
    defaults: GenerateLine,
    /// The system message.
    system: Option<String>,
    /// The messages of the user and the assistant, in turns.
    turns: Vec<ChatMessage>,
}

impl<'a> Session<'a> {
    /// Begins a conversation. The system message is that of the options of `chat`.
    pub(super) fn new(loaded: &'a LoadedModel, mut chat: Chat, defaults: GenerateLine) -> Self {
        let system = chat.take_system();
        Self { loaded, chat, defaults, system, turns: Vec::new() }
    }

    /// Sets or removes the system message.
    pub(super) fn set_system(&mut self, text: Option<&str>) {
        self.system = text.map(str::to_owned);
    }

    /// Forgets all messages but the system message.
    pub(super) fn reset(&mut self) {
        self.turns.clear();
    }

    /// Writes the messages as a JSON object on one line.
    pub(super) fn save(&self, path: &Path) -> Result<(), Failure> {
        let messages: Vec<String> = self.messages().iter().map(ChatMessage::to_json).collect();
        output::file(path, "/save", &format!("{{\"messages\":[{}]}}\n", messages.join(",")))
    }

    /// Answers a message, streaming the text, and returns a line of figures. An answer that Ctrl-C stops stays as far as it goes. If the
    /// answer fails, the message is forgotten.
    pub(super) fn answer(&mut self, text: &str, interrupt: &Interrupt) -> Result<String, Failure> {
        self.turns.push(ChatMessage::new("user", text));
        let outcome = self.generated(interrupt);
        match outcome {
            Ok(outcome) => {
                self.turns.push(ChatMessage::new("assistant", &outcome.text));
                Ok(summary(&outcome))
            }
            Err(failure) => {
                self.turns.pop();
                Err(failure)
            }
        }
    }

    fn generated(&self, interrupt: &Interrupt) -> Result<GenerateOutcome, Failure> {
        let request = self.request()?;
        interrupt.renew();
        generate::stream(&self.loaded.engine, interrupt, request)
    }

    /// The request for the next answer, with no more tokens than the context and the memory budget have room for.
    fn request(&self) -> Result<GenerateRequest, Failure> {
        let prompt = self.chat.conversation(self.messages())?;
        let (engine, mut request) =
            (&self.loaded.engine, jsonl::generate::request(GenerateLine::default(), prompt, &self.defaults)?);
        let tokens = match (engine.tokenizer(), &request.prompt) {
            (Some(tokenizer), Prompt::Formatted(text)) => {
                let encoded = tokenizer.encode(text, false);
                encoded.map_err(|error| Failure::failed(error.to_string(), error.hint()))?.len()
            }
            // The engine refuses a text that it cannot tokenise.
            _ => 0,
        };
        let context = engine.info().context;
        if tokens >= context {
            let fact = format!("the conversation of {tokens} tokens fills the context of {context}");
            let hint = hint!["`/reset` forgets the messages; or give more ", Setting::MaxContext];
            return Err(Failure::failed(fact, spelled(Some(hint))));
        }
        request.fit_context = true;
        let stop_id = self.chat.stop_id(&request.prompt, request.ignore_eos, engine);
        request.stop_ids.extend(stop_id);
        Ok(request)
    }

    /// All messages, the system message first.
    fn messages(&self) -> Vec<ChatMessage> {
        let system = self.system.iter().map(|text| ChatMessage::new("system", text));
        system.chain(self.turns.iter().cloned()).collect()
    }
}

/// A line with the token counts and timings of an answer.
pub(super) fn summary(outcome: &GenerateOutcome) -> String {
    let usage = outcome.usage;
    let cached = outcome.prefix_cache.map_or(0, |cache| cache.cached_tokens);
    let rate = outcome.decode_tokens_per_s.map_or_else(String::new, |rate| format!(" at {rate:.1} tokens/s"));
    format!(
        "{} ({cached} cached) in {}, {}{rate}{}\n",
        number::count(usage.prompt_tokens, "prompt token"),
        number::seconds(outcome.prefill_s),
        number::count(usage.completion_tokens, "new token"),
        finish::remark(outcome.finish_reason)
    )
}
