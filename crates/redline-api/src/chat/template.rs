//! Formats prompts and conversations with the model's chat template.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use redline_chat::ChatFormat;
use redline_engine::{Engine, EngineError, Prompt, Source};
use redline_settings::Hint;
use redline_tokenizer::{ChatDate, ChatMessage, ChatTemplate, ChatValue, Conversation, TokenizerError};

use crate::chat::keys::ChatKeys;
use crate::error::ApiError;
use crate::json::input::TextOrIds;
use crate::json::text::JsonText;

/// An answer that no template contains.
const ANSWER: &str = "0xA115E7";

/// The template to use, and the values of keys that requests leave out.
#[derive(Clone, Debug, Default)]
pub struct ChatOptions {
    /// A template file that is used instead of the model's template.
    pub file: Option<PathBuf>,
    /// Whether a prompt that is text is formatted, as the message of the user. Conversations are always formatted.
    pub formats_prompts: bool,
    /// The system message of prompts, and of conversations that do not begin with one.
    pub system: Option<String>,
    /// JSON schemas of the functions that the model may call.
    pub tools: Option<Vec<ChatValue>>,
    /// Documents that the model may use.
    pub documents: Option<Vec<ChatValue>>,
    /// Further variables of the template by name.
    pub arguments: Vec<(String, ChatValue)>,
    /// The date that the template may print. If `None`, a template prints a date of its own, if it has one, or fails.
    pub date: Option<ChatDate>,
}

/// A chat template and its defaults. The template is compiled when this is opened; clones share it.
#[derive(Clone, Debug)]
pub struct Chat {
    pub(crate) template: Result<ChatTemplate, NoTemplate>,
    options: ChatOptions,
    /// What was found out about it.
    pub(crate) known: Arc<Known>,
}

/// What is found out about a template when it is first needed. All calls are for the same engine.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The special token that ends an answer.
    stop_id: OnceLock<Option<i64>>,
    /// The format of answers.
    pub(crate) format: OnceLock<Option<ChatFormat>>,
    /// Why calls cannot be read, if they cannot.
    pub(crate) no_calls: OnceLock<Option<String>>,
}

/// Why there is no template.
#[derive(Clone, Debug)]
pub(crate) enum NoTemplate {
    /// The model of this name has none.
    Absent(String),
    /// It cannot be read or compiled.
    Invalid(Arc<EngineError>),
}

impl Chat {
    /// Reads the template of the model at `source`, which messages call `name`, or the file of the options. A model without a template,
    /// or with an invalid one, is an error only when something is to be formatted.
    pub fn open(name: &str, source: &Source, options: ChatOptions) -> Self {
        let file = options.file.as_deref();
        let template = match (source, file) {
            (Source::Path(path), file) => redline_engine::chat_template(path, file),
            (Source::Embedded(_), Some(file)) => {
                ChatTemplate::from_file(file, None).map(Some).map_err(EngineError::from)
            }
            (Source::Embedded(embedded), None) => {
                let compiled = |text| ChatTemplate::new("chat_template.jinja", text, BTreeMap::new());
                embedded.chat_template.map(compiled).transpose().map_err(EngineError::from)
            }
        };
        let template = match template {
            Ok(Some(template)) => Ok(template),
            Ok(None) => Err(NoTemplate::Absent(name.to_owned())),
            Err(error) => Err(NoTemplate::Invalid(Arc::new(error))),
        };
        Self { template, options, known: Arc::default() }
    }

    /// Fails if there is no valid template.
    pub fn check(&self) -> Result<(), ApiError> {
        self.template().map(|_| ())
    }

    /// Whether prompts that are text are left as they are although there is a template.
    pub fn leaves_prompts(&self) -> bool {
        self.template.is_ok() && !self.options.formats_prompts
    }

    /// Whether prompts that are text are formatted.
    pub fn formats_prompts(&self) -> bool {
        self.options.formats_prompts
    }

    /// Removes the system message from the options and returns it.
    pub fn take_system(&mut self) -> Option<String> {
        self.options.system.take()
    }

    /// The prompt of a request: its text or ids, or the text of its conversation. `name` is the key of the text, for messages.
    pub fn prompt(
        &self,
        name: &'static str,
        text: Option<TextOrIds>,
        messages: Option<Vec<JsonText>>,
        keys: ChatKeys,
    ) -> Result<Prompt, ApiError> {
        match (text, messages) {
            (None, None) => Err(ApiError::NoPrompt(name)),
            (Some(_), Some(_)) => Err(ApiError::TwoPrompts(name)),
            (None, Some(messages)) => {
                let messages = messages.iter().enumerate();
                let messages = messages.map(|(index, json)| ChatMessage::from_json(index, json.as_str()));
                self.format(messages.collect::<Result<_, _>>()?, keys)
            }
            (Some(text), None) => match keys.given() {
                Some(key) if !self.options.formats_prompts => Err(ApiError::NoMessages(key)),
                _ => self.formatted(text.into(), keys),
            },
        }
    }

    /// The prompt of a request whose field `param` holds the messages of a conversation.
    pub fn of_messages(
        &self,
        param: &'static str,
        messages: Vec<JsonText>,
        keys: ChatKeys,
    ) -> Result<Prompt, ApiError> {
        self.prompt(param, None, Some(messages), keys).map_err(|error| match error {
            // The template, or what it refuses, depends on the messages.
            ApiError::Chat(error) => of_field(param, error),
            error => error,
        })
    }

    /// Formats a prompt as the message of the user, if the options say so. It is an error if the prompt then consists of token ids.
    pub fn apply(&self, prompt: Prompt) -> Result<Prompt, ApiError> {
        self.formatted(prompt, ChatKeys::default())
    }

    /// Formats a conversation, with the values of the options. The text ends where the assistant's answer begins.
    pub fn conversation(&self, messages: Vec<ChatMessage>) -> Result<Prompt, ApiError> {
        self.format(messages, ChatKeys::default())
    }

    /// The text of a conversation with one message of the user, up to where the answer begins.
    pub fn text(&self, message: &str) -> Result<String, ApiError> {
        self.rendered(vec![ChatMessage::new("user", message)], ChatKeys::default())
    }

    /// The source of the template, if there is a valid one.
    pub fn source(&self) -> Option<&str> {
        self.template.as_ref().ok().map(ChatTemplate::source)
    }

    /// The special token of this name, such as `pad_token`, if there is a valid template and the configuration of the tokenizer names one.
    pub fn special_token(&self, name: &str) -> Option<&str> {
        self.template.as_ref().ok()?.special_token(name)
    }

    /// As [`text`](Self::text), with these keys; `None` if the model has no template.
    pub(crate) fn message(&self, message: &str, keys: ChatKeys) -> Result<Option<String>, ApiError> {
        match &self.template {
            Err(NoTemplate::Absent(_)) => Ok(None),
            _ => self.rendered(vec![ChatMessage::new("user", message)], keys).map(Some),
        }
    }

    /// The first token that the template puts after an answer; `None` if it puts nothing there.
    pub fn answer_end(&self, engine: &Engine) -> Result<Option<u32>, ApiError> {
        let messages = vec![ChatMessage::new("user", "?"), ChatMessage::new("assistant", ANSWER)];
        let keys = ChatKeys { add_generation_prompt: Some(false), ..ChatKeys::default() };
        let text = self.rendered(messages, keys)?;
        let after = text.rsplit_once(ANSWER).map_or("", |(_, after)| after);
        let tokenizer =
            engine.tokenizer().ok_or_else(|| EngineError::NoTokenizer(engine.info().name.clone()))?;
        Ok(tokenizer.encode(after, false)?.first().copied())
    }

    /// The token with which the template ends answers, as a further token that ends the answer to a formatted prompt; `None` for other
    /// prompts, and if the request ignores ends. A model's configuration may not list that token among its end-of-sequence tokens.
    /// All calls are for the same engine.
    pub fn stop_id(&self, prompt: &Prompt, ignore_eos: bool, engine: &Engine) -> Option<i64> {
        let ends = !ignore_eos && matches!(prompt, Prompt::Formatted(_));
        ends.then(|| *self.known.stop_id.get_or_init(|| self.special_end(engine))).flatten()
    }

    /// The token after an answer, if it is a special one. `None` too if the template cannot render an answer.
    fn special_end(&self, engine: &Engine) -> Option<i64> {
        let id = self.answer_end(engine).ok().flatten()?;
        let shown = |skip| engine.tokenizer()?.decode(&[id], skip).ok();
        (shown(true)?.is_empty() && !shown(false)?.is_empty()).then_some(i64::from(id))
    }

    fn formatted(&self, prompt: Prompt, keys: ChatKeys) -> Result<Prompt, ApiError> {
        match prompt {
            prompt if !self.options.formats_prompts => Ok(prompt),
            Prompt::Text(text) => self.format(vec![ChatMessage::new("user", &text)], keys),
            Prompt::Formatted(_) | Prompt::Ids(_) => Err(ApiError::ChatOfIds),
        }
    }

    fn template(&self) -> Result<&ChatTemplate, ApiError> {
        self.template.as_ref().map_err(|why| match why {
            NoTemplate::Absent(name) => ApiError::NoChatTemplate(name.clone()),
            NoTemplate::Invalid(error) => ApiError::InvalidTemplate(error.clone()),
        })
    }

    /// Formats messages. The template writes the special tokens itself.
    fn format(&self, messages: Vec<ChatMessage>, keys: ChatKeys) -> Result<Prompt, ApiError> {
        Ok(Prompt::Formatted(self.rendered(messages, keys)?))
    }

    pub(crate) fn rendered(
        &self,
        mut messages: Vec<ChatMessage>,
        keys: ChatKeys,
    ) -> Result<String, ApiError> {
        let options = &self.options;
        let is_system = |message: &ChatMessage| matches!(message.role(), Some("system" | "developer"));
        if let Some(system) = &options.system
            && !messages.first().is_some_and(is_system)
        {
            messages.insert(0, ChatMessage::new("system", system));
        }
        let mut arguments = options.arguments.clone();
        for (name, value) in keys.chat_template_kwargs.unwrap_or_default() {
            arguments.retain(|(other, _)| *other != name);
            let value = ChatValue::from_json(value.as_str());
            let value = value.map_err(|error| of_field(&format!("chat_template_kwargs.{name}"), error))?;
            arguments.push((name, value));
        }
        let date = keys.date.map(|date| ChatDate::parse(&date)).transpose();
        let date = date.map_err(|error| of_field("date", error))?;
        let continue_final_message = keys.continue_final_message.unwrap_or(false);
        let conversation = Conversation {
            messages,
            tools: values("tools", keys.tools)?.or_else(|| options.tools.clone()),
            documents: values("documents", keys.documents)?.or_else(|| options.documents.clone()),
            arguments,
            add_generation_prompt: keys.add_generation_prompt.unwrap_or(!continue_final_message),
            continue_final_message,
            date: date.or(options.date),
        };
        Ok(self.template()?.render(&conversation)?)
    }
}

/// Parses a list of values.
fn values(field: &str, list: Option<Vec<JsonText>>) -> Result<Option<Vec<ChatValue>>, ApiError> {
    let parse = |list: Vec<JsonText>| list.iter().map(|json| ChatValue::from_json(json.as_str())).collect();
    list.map(parse).transpose().map_err(|error| of_field(field, error))
}

/// The error of a field.
fn of_field(field: &str, error: TokenizerError) -> ApiError {
    ApiError::Field { param: field.to_owned(), hint: error.hint().map(Hint::from), fact: error.to_string() }
}

#[cfg(test)]
mod tests {
    use redline_engine::Embedded;

    use super::*;
    use crate::json::parts::with_parts;

    const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}{{ tools }} {{ documents }} \
        {{ mode }} {{ strftime_now('%d.%m.%Y') if strftime_now is defined }}{% if add_generation_prompt %}>{% endif %}";

    fn opened(template: Option<&str>, options: ChatOptions) -> Chat {
        let folder = tempfile::tempdir().unwrap();
        if let Some(template) = template {
            std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        }
        Chat::open("m", &Source::Path(folder.path().to_owned()), options)
    }

    /// The prompt of a request with these keys.
    fn prompt(
        chat: &Chat,
        name: &'static str,
        text: Option<TextOrIds>,
        json: &str,
    ) -> Result<Prompt, ApiError> {
        #[derive(serde::Deserialize)]
        #[serde(remote = "Keys")]
        struct Keys {
            messages: Option<Vec<JsonText>>,
            #[serde(skip)]
            chat: ChatKeys,
        }
        with_parts! { Keys { chat: ChatKeys } }
        let keys: Keys = serde_json::from_str(json).unwrap();
        chat.prompt(name, text, keys.messages, keys.chat)
    }

    fn text(text: &str) -> TextOrIds {
        TextOrIds::Text(text.to_owned())
    }

    #[test]
    fn keys_win_over_the_options() {
        let value = |json: &str| ChatValue::from_json(json).unwrap();
        let options = ChatOptions {
            file: None,
            formats_prompts: true,
            system: Some("s".to_owned()),
            tools: Some(vec![value("{\"a\":1}")]),
            documents: Some(vec![value("{\"b\":2}")]),
            arguments: vec![("mode".to_owned(), value("3"))],
            date: Some(ChatDate::parse("2026-07-26").unwrap()),
        };
        let chat = opened(Some(TEMPLATE), options);
        let of = |text, json: &str| prompt(&chat, "prompt", text, json).map_err(|e| e.to_string());
        let formatted = |text: &str| Ok(Prompt::Formatted(text.to_owned()));
        let defaults = "[{'a': 1}] [{'b': 2}] 3 26.07.2026";
        assert_eq!(of(Some(text("p")), "{}"), formatted(&format!("system=s;user=p;{defaults}>")));
        assert_eq!(chat.apply(Prompt::Text("p".into())).unwrap(), of(Some(text("p")), "{}").unwrap());
        let all = r#"{"messages":[{"role":"system","content":"t"},{"role":"user","content":"u"}],"tools":[{"c":4}],
            "documents":[{"d":5}],"chat_template_kwargs":{"mode":"x"},"date":"2027-01-02","add_generation_prompt":false}"#;
        assert_eq!(of(None, all), formatted("system=t;user=u;[{'c': 4}] [{'d': 5}] x 02.01.2027"));
        let one = r#"{"messages":[{"role":"user","content":"u"}]}"#;
        assert_eq!(of(None, one), formatted(&format!("system=s;user=u;{defaults}>")));
        let end = r#"{"messages":[{"role":"assistant","content":"so"}],"continue_final_message":true}"#;
        assert_eq!(of(None, end), formatted("system=s;assistant=so"));
        assert_eq!(
            of(Some(TextOrIds::Ids(vec![1])), "{}").unwrap_err(),
            "a chat template and a prompt of token ids"
        );
    }

    #[test]
    fn a_request_has_one_prompt() {
        let chat = opened(Some(TEMPLATE), ChatOptions::default());
        assert!(chat.leaves_prompts());
        let refused = |text, json: &str, expected: &str| {
            let error = prompt(&chat, "query", text, json).unwrap_err();
            assert!(error.hint().is_some());
            assert_eq!(error.to_string(), expected);
        };
        refused(None, "{}", "neither `query` nor `messages` is given");
        refused(Some(text("p")), r#"{"messages":[]}"#, "both `query` and `messages` are given");
        for key in ["tools", "documents"] {
            refused(
                Some(text("p")),
                &format!("{{\"{key}\":[]}}"),
                &format!("`{key}` is given without `messages`"),
            );
        }
        for (key, value) in [
            ("chat_template_kwargs", "{}"),
            ("date", "\"\""),
            ("add_generation_prompt", "true"),
            ("continue_final_message", "false"),
        ] {
            let expected = format!("`{key}` is given without `messages`");
            refused(Some(text("p")), &format!("{{\"{key}\":{value}}}"), &expected);
        }
        refused(None, r#"{"messages":[]}"#, "the conversation has 0 messages");
        refused(
            None,
            r#"{"messages":[{"role":"user","content":"u"}],"date":"today"}"#,
            "\"today\" is not a date",
        );
        assert_eq!(prompt(&chat, "query", Some(text("p")), "{}").unwrap(), Prompt::Text("p".to_owned()));
    }

    #[test]
    fn a_template_is_needed_only_to_format() {
        for (template, expected) in [(None, "`m` has no chat template"), (Some("{% if %}"), "(line 1)")] {
            let chat = opened(template, ChatOptions::default());
            assert!(!chat.leaves_prompts());
            assert!(chat.apply(Prompt::Text("p".into())).is_ok());
            let messages = || vec![ChatMessage::new("user", "u")];
            for error in [chat.check().unwrap_err(), chat.conversation(messages()).unwrap_err()] {
                assert!(error.to_string().contains(expected) && error.hint().is_some(), "{error}");
            }
        }
        let nothing: &[u8] = &[];
        let (config, generation_config, tokenizer) = (nothing, nothing, nothing);
        let embedded = Embedded {
            name: "e",
            config,
            generation_config,
            tokenizer,
            chat_template: None,
            weights: || &[],
        };
        assert!(Chat::open("e", &Source::Embedded(embedded), ChatOptions::default()).check().is_err());
    }
}
