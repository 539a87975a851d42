//! `/api/generate`.

use redline_engine::{Engine, Prompt};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::chat::keys::ChatKeys;
use crate::chat::template::Chat;
use crate::chat::tools::ToolUse;
use crate::conversation::request::ChatRequest;
use crate::error::ApiError;
use crate::gap::{self, GapText};
use crate::generation::mode::{GenerationMode, GenerationRequest};
use crate::generation::unsupported;
use crate::json::cases::top_logprobs;
use crate::json::fields::refused;
use crate::json::parts::with_parts;
use crate::json::shape;
use crate::json::text::JsonText;
use crate::ollama::{OllamaFields, OllamaForm, reasons, request as unprompted};

/// Asks for the text after a prompt.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = top_logprobs)]
#[serde(deny_unknown_fields, remote = "OllamaGenerateBody")]
pub struct OllamaGenerateBody {
    /// The prompt: a message of the user, if the model has a chat template and `raw` is not given.
    pub prompt: Option<String>,
    /// The text after the gap: the answer is the text between the prompt and it.
    pub suffix: Option<String>,
    /// The system message.
    pub system: Option<String>,
    /// Whether the prompt is continued as it is, without the chat template.
    pub raw: Option<bool>,
    /// Not supported.
    #[schemars(length(max = 0))]
    pub template: Option<String>,
    /// Not supported.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub images: Option<JsonText>,
    /// Not supported.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub context: Option<JsonText>,
    /// How the answer is generated.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub fields: OllamaFields,
}

with_parts! {
    OllamaGenerateBody { fields: OllamaFields }
}

/// A request whose prompt is not made yet.
pub enum OllamaPrompt {
    /// It is a conversation.
    Chat(Box<ChatRequest>),
    /// It is a text, or a text with a gap.
    Text(Box<TextPrompt>),
}

/// A request for the text after a prompt, or between two texts.
pub struct TextPrompt {
    /// The request without its prompt.
    pub request: GenerationRequest,
    /// The field that gives its grammar, if it has one.
    pub grammar_param: Option<&'static str>,
    before: String,
    after: Option<String>,
}

impl TextPrompt {
    /// The request with its prompt.
    pub fn completed(self, engine: &Engine) -> Result<GenerationRequest, ApiError> {
        let Self { mut request, before, after, .. } = self;
        match after {
            None => *request.shared().prompt = Prompt::Text(before),
            Some(after) => {
                let text = GapText { before, after, ..GapText::default() };
                gap::set_prompt(&mut request, engine, &text, None, "suffix")?;
            }
        }
        Ok(request)
    }
}

/// Builds the engine's request, but for its prompt. `chat` is the template of the model, if it has one.
pub fn request(
    mode: GenerationMode,
    mut form: OllamaForm,
    body: OllamaGenerateBody,
    chat: Option<&Chat>,
) -> Result<(OllamaPrompt, OllamaForm), ApiError> {
    let images = body.images.is_some_and(|images| !images.is_empty_list());
    unsupported("images", images, "leave it out")?;
    let context = body.context.is_some_and(|context| !context.is_empty_list());
    unsupported("context", context, "give the messages so far to `/api/chat`")?;
    let template = body.template.is_some_and(|template| !template.is_empty());
    unsupported("template", template, "give `raw` = true and the prompt as the model reads it")?;
    let (prompt, system) = (body.prompt.unwrap_or_default(), body.system.filter(|text| !text.is_empty()));
    let after = body.suffix.filter(|text| !text.is_empty());
    let is_plain = body.raw == Some(true) || after.is_some() || chat.is_none();
    if is_plain {
        if system.is_some() {
            let fact = "`system` is given, and the prompt is not formatted by a chat template";
            return Err(refused("system", fact, "put it into the prompt, or leave out `raw` and `suffix`"));
        }
        let (request, grammar_param) = unprompted(mode, body.fields, &mut form)?;
        let text = TextPrompt { request, grammar_param, before: prompt, after };
        return Ok((OllamaPrompt::Text(Box::new(text)), form));
    }
    let mut keys = ChatKeys::default();
    let agent = reasons(body.fields.think.as_ref(), &mut keys)?;
    let system = system.map(|system| JsonText::message("system", &[system]));
    let messages = system.into_iter().chain([JsonText::message("user", &[prompt])]).collect();
    let (request, grammar_param) = unprompted(mode, body.fields, &mut form)?;
    let request = ChatRequest::new(request, "prompt", messages, keys, ToolUse::default(), &agent);
    Ok((OllamaPrompt::Chat(Box::new(ChatRequest { grammar_param, ..request })), form))
}
