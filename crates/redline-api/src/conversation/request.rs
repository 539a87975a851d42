//! A request for answers to a conversation: its prompt, what its answers have to be, and how they are read.

use redline_chat::{ChatFormat, ChatFormatError, Demand, Reasoned, Subject, Tools};
use redline_engine::{Engine, Grammar};
use serde_json::Value;

use crate::chat::keys::ChatKeys;
use crate::chat::template::Chat;
use crate::chat::tools::{AgentKeys, Choice, MAX_BUDGET, ToolUse};
use crate::conversation::reading::Reading;
use crate::error::ApiError;
use crate::generation::mode::{GenerationRequest, SharedFields};
use crate::json::fields::{refused, within};
use crate::json::text::JsonText;

/// A request whose conversation is not formatted yet.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The request without its prompt.
    pub request: GenerationRequest,
    pub(crate) messages: Vec<JsonText>,
    pub(crate) keys: ChatKeys,
    /// The tools, and which of them are called.
    pub(crate) tools: ToolUse,
    /// Whether answers show their reasoning.
    pub(crate) shows_reasoning: bool,
    /// Number of tokens after which reasoning ends.
    pub(crate) budget: Option<usize>,
    /// The field that gives a grammar, if there is one.
    pub(crate) grammar_param: Option<&'static str>,
    /// The field that holds the messages.
    pub param: &'static str,
    /// The field that holds the number of tokens after which reasoning ends.
    pub(crate) budget_param: &'static str,
    /// Whether answers say which text of `stop` they ended before.
    pub(crate) tells_stop: bool,
}

/// A request whose conversation was formatted.
#[derive(Debug)]
pub struct FormattedChat {
    /// The request.
    pub request: GenerationRequest,
    /// How its answers are read.
    pub reading: Reading,
    /// The field that gives the grammar of the request, if it has one.
    pub grammar_param: Option<&'static str>,
}

impl ChatRequest {
    /// A request with these messages in a field.
    pub(crate) fn new(
        request: GenerationRequest,
        param: &'static str,
        messages: Vec<JsonText>,
        keys: ChatKeys,
        tools: ToolUse,
        agent: &AgentKeys,
    ) -> Self {
        let (budget, budget_param) = (agent.thinking_token_budget, "thinking_token_budget");
        let shows_reasoning = agent.include_reasoning.unwrap_or(true);
        Self {
            request,
            messages,
            keys,
            tools,
            shows_reasoning,
            budget,
            grammar_param: None,
            param,
            budget_param,
            tells_stop: false,
        }
    }

    /// Gives the template a date to print, such as `2026-07-26`, unless the request has one.
    #[must_use]
    pub fn dated(mut self, date: String) -> Self {
        self.keys.date.get_or_insert(date);
        self
    }

    /// Formats the conversation. The answer ends where the template ends answers.
    pub fn formatted(self, chat: &Chat, engine: &Engine) -> Result<FormattedChat, ApiError> {
        let Self { mut request, messages, mut keys, tools, shows_reasoning, budget, .. } = self;
        let (mut grammar_param, param, budget_param) = (self.grammar_param, self.param, self.budget_param);
        let budget = within(budget_param, budget, 1..=MAX_BUDGET)?;
        let continues = keys.continue_final_message == Some(true);
        let continued = messages.last().filter(|_| continues).map(last_text);
        if !tools.shown.is_empty() {
            keys.tools = Some(tools.shown.clone());
        }
        *request.shared().prompt = chat.of_messages(param, messages, keys)?;
        let SharedFields { prompt, ignore_eos, stop_ids, .. } = request.shared();
        stop_ids.extend(chat.stop_id(prompt, ignore_eos, engine));
        let prompt = prompt.text().unwrap_or_default().to_owned();
        let format = match &request {
            GenerationRequest::Autoregressive(_) => chat.answer_format(engine).filter(ChatFormat::has_parts),
            GenerationRequest::Diffusion(_) => None,
        };
        if tools.choice != Choice::None {
            chat.check_calls(engine, matches!(request, GenerationRequest::Diffusion(_)))?;
        }
        let reasoned =
            format.as_ref().map_or(Reasoned::No, |format| reasoned(format, &prompt, continued.as_deref()));
        if let Some(format) = &format {
            let given = request.grammar().cloned();
            let budget = budget.filter(|_| reasoned != Reasoned::No || format.has_channels());
            if let Some(demand) = demand(format, &tools, given, reasoned, budget)? {
                // A single call of a tool that is named.
                let parallel = tools.parallel && tools.choice != Choice::Named;
                let made = format.grammar(&tools.tools, &demand, parallel, reasoned, budget);
                let params = (grammar_param, budget_param);
                let made = made.map_err(|error| of_format(&tools, params, error))?;
                if matches!(demand, Demand::Calls | Demand::TextAndCalls) {
                    grammar_param = Some("tools");
                }
                request.restrict(grammar_param.get_or_insert(budget_param), made)?;
            }
        }
        let most = if tools.parallel { usize::MAX } else { 1 };
        let is_named = tools.choice == Choice::Named;
        let read_tools = if tools.choice == Choice::None { Tools::default() } else { tools.tools };
        // Texts without parts are what the engine says, unless it is asked which text stopped them.
        let decodes = format.is_some() || self.tells_stop;
        let reading = Reading {
            format,
            tokenizer: engine.shared_tokenizer().filter(|_| decodes),
            // What has no calls needs no ids of them.
            prompt: if read_tools.0.is_empty() { String::new() } else { prompt },
            tools: read_tools,
            most,
            reasons: reasoned == Reasoned::Open,
            shows_reasoning,
            is_named,
        };
        Ok(FormattedChat { request, reading, grammar_param })
    }
}

/// The text of a message, the last part of it if it has several.
fn last_text(message: &JsonText) -> String {
    let message: Value = serde_json::from_str(message.as_str()).unwrap_or_default();
    let content = message.get("content").unwrap_or(&Value::Null);
    let part = content.as_array().and_then(|parts| parts.last()?.get("text"));
    part.unwrap_or(content).as_str().unwrap_or_default().trim().to_owned()
}

/// Whether the answer to a prompt begins with reasoning. `continued` is the text with which the prompt ends, if it ends within a message.
fn reasoned(format: &ChatFormat, prompt: &str, continued: Option<&str>) -> Reasoned {
    let Some(marks) = format.reasoning() else { return Reasoned::No };
    let (open, close) = (marks.open.trim_end(), marks.close.trim_end());
    let text = prompt.trim_end();
    // Only the message that is continued: others may speak of marks.
    let own = continued.and_then(|own| text.get(text.rfind(own)?..)).unwrap_or_default();
    if text.ends_with(open) || own.rfind(open) > own.rfind(close) {
        Reasoned::Open
    } else if text.ends_with(close) || continued.is_some() {
        Reasoned::No
    } else {
        Reasoned::Maybe
    }
}

/// What the answer has to be; `None` if that is anything, or what the request says without the format.
fn demand(
    format: &ChatFormat,
    tools: &ToolUse,
    given: Option<Grammar>,
    reasoned: Reasoned,
    budget: Option<usize>,
) -> Result<Option<Demand>, ApiError> {
    let is_strict = tools.tools.0.iter().any(|tool| tool.strict) && format.marks_calls();
    Ok(match (tools.choice, given) {
        (Choice::Required | Choice::Named, None) => Some(Demand::Calls),
        (Choice::Required | Choice::Named, Some(_)) => {
            let fact = "`tool_choice` demands a call, and another field says what the text has to be";
            let hint = "give `tool_choice` = \"auto\", or leave the other field out";
            return Err(refused("tool_choice", fact, hint));
        }
        (Choice::Auto, Some(text)) if format.can_demand() => Some(Demand::CallsOrText(text)),
        (Choice::Auto, None) if is_strict => Some(Demand::TextAndCalls),
        (Choice::None | Choice::Auto, Some(text)) => {
            (reasoned != Reasoned::No || format.has_channels()).then_some(Demand::Text(text))
        }
        (_, None) => budget.map(|_| Demand::Anything),
    })
}

/// The error of a format that cannot do what is asked of it. `params` are the fields of the grammar and of the limit of reasoning.
fn of_format(
    tools: &ToolUse,
    (grammar_param, budget_param): (Option<&'static str>, &'static str),
    error: ChatFormatError,
) -> ApiError {
    let ChatFormatError { fact, subject, hint } = error;
    match subject {
        Subject::Tool(index) => {
            let name = tools.tools.0.get(index).map_or("", |tool| &tool.name);
            refused("tools", format!("the tool {name:?}: {fact}"), hint)
        }
        Subject::Tools => refused("tools", fact, hint),
        Subject::Demand => refused("tool_choice", fact, hint),
        Subject::Text => refused(grammar_param.unwrap_or("grammar"), fact, hint),
        Subject::Reasoning => refused(budget_param, fact, hint),
    }
}
