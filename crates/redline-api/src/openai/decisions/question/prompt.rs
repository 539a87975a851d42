//! The prompts of questions.

use redline_engine::Prompt;

use crate::chat::keys::ChatKeys;
use crate::chat::template::Chat;
use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::text::JsonText;
use crate::openai::decisions::question::{Kind, Question, State};

/// What stands for the question while a chat template is rendered.
const MARK: &str = "0x9DE57104";
/// The variable of chat templates that lets a model reason before it answers.
const THINKING: &str = "enable_thinking";
/// What encloses reasoning in most chat templates.
const REASONING: [&str; 2] = ["<think>", "</think>"];

/// The prompt around a question.
pub(crate) struct Frame {
    head: String,
    tail: String,
    /// Whether a chat template made it.
    is_chat: bool,
}

impl Frame {
    /// Puts the state into the chat template, if there is one.
    pub(crate) fn new(chat: Option<&Chat>, state: State) -> Result<Self, ApiError> {
        let instructions = state
            .instructions
            .filter(|text| !text.is_empty())
            .map(|text| format!("{text}\n\n"))
            .unwrap_or_default();
        let head = format!("{instructions}State:\n{}\n\n", state.text);
        let given = state.arguments.keys().next().is_some();
        let mut arguments = state.arguments;
        arguments.entry(THINKING.to_owned()).or_insert_with(|| JsonText::boolean(false));
        let mark = mark_outside(&head);
        let keys = ChatKeys { chat_template_kwargs: Some(arguments), ..ChatKeys::default() };
        let rendered = chat.map(|chat| chat.message(&format!("{head}{mark}"), keys)).transpose();
        let param = if given { "chat_template_kwargs" } else { "model" };
        let rendered = rendered.map_err(|error| match error {
            ApiError::Chat(error) => {
                let hint = "the chat template of the model cannot render the request";
                refused(param, error.to_string(), hint)
            }
            ApiError::InvalidTemplate(error) => {
                refused("model", error.to_string(), "the chat template of the model is invalid")
            }
            other => other,
        })?;
        let Some(rendered) = rendered.flatten() else {
            if given {
                let fact = "the model has no chat template for `chat_template_kwargs`";
                return Err(refused("chat_template_kwargs", fact, "leave it out"));
            }
            return Ok(Self { head, tail: "\n\nAnswer:".to_owned(), is_chat: false });
        };
        let Some((head, tail)) = rendered.rsplit_once(&mark) else {
            let fact = "the chat template leaves the question out";
            return Err(refused(param, fact, "a template renders the message of the user"));
        };
        if ends_in_reasoning(tail) {
            let fact = "the chat template lets the model reason before it answers";
            return Err(refused(param, fact, "give `enable_thinking` = false"));
        }
        Ok(Self { head: head.to_owned(), tail: tail.to_owned(), is_chat: true })
    }

    /// What the model writes before a label.
    pub(crate) fn lead(&self) -> &'static str {
        if self.is_chat { "" } else { " " }
    }

    /// What all prompts begin with.
    pub(crate) fn query(&self) -> Prompt {
        if self.is_chat { Prompt::Formatted(self.head.clone()) } else { Prompt::Text(self.head.clone()) }
    }

    /// The rest of the prompt of a question.
    pub(crate) fn item(&self, question: &str) -> String {
        [question, &self.tail].concat()
    }
}

/// A mark that the text does not contain.
fn mark_outside(text: &str) -> String {
    let mut mark = MARK.to_owned();
    while text.contains(&mark) {
        mark.push('0');
    }
    mark
}

/// Whether the text ends within reasoning.
fn ends_in_reasoning(text: &str) -> bool {
    let [begin, end] = REASONING.map(|tag| text.rfind(tag));
    begin.is_some_and(|begin| end.is_none_or(|end| end < begin))
}

/// The text of a question. `labels` are those of its options.
pub(crate) fn question(question: &Question, labels: &[String]) -> String {
    let default = match question.kind {
        Kind::YesNo => "Is it yes or no?",
        Kind::Choice => "Which option applies?",
        Kind::Score => "Which level applies?",
    };
    let mut text = format!("Question: {}\n", question.text.as_deref().unwrap_or(default));
    match question.kind {
        Kind::YesNo | Kind::Choice => {}
        Kind::Score => text.push_str("Levels:\n"),
    }
    for (option, label) in question.options.iter().zip(labels) {
        let description = option.description.as_deref();
        let line = match (question.kind, description) {
            (Kind::YesNo, None) => continue,
            (Kind::YesNo, Some(description)) => format!("{label} means: {description}\n"),
            (_, None) => format!("{label}. {}\n", option.name),
            (_, Some(description)) => format!("{label}. {}: {description}\n", option.name),
        };
        text.push_str(&line);
    }
    text.push_str(match question.kind {
        Kind::YesNo => "Reply with yes or no.",
        Kind::Choice => "Reply with one letter.",
        Kind::Score => "Reply with one number.",
    });
    text
}

#[cfg(test)]
mod tests {
    use redline_engine::Source;

    use super::*;
    use crate::chat::template::ChatOptions;
    use crate::openai::decisions::question::Choice;

    fn asked(kind: Kind, text: Option<&str>, options: &[(&str, Option<&str>)]) -> Question {
        let options = options.iter().map(|(name, description)| Choice {
            name: (*name).to_owned(),
            description: description.map(str::to_owned),
        });
        Question { place: String::new(), kind, text: text.map(str::to_owned), options: options.collect() }
    }

    fn labels(of: &[&str]) -> Vec<String> {
        of.iter().map(|label| (*label).to_owned()).collect()
    }

    #[test]
    fn a_question_shows_its_options() {
        let options = [("billing", Some("payments")), ("other", None)];
        assert_eq!(
            question(&asked(Kind::Choice, Some("Which team?"), &options), &labels(&["A", "B"])),
            "Question: Which team?\nA. billing: payments\nB. other\nReply with one letter."
        );
        assert_eq!(
            question(&asked(Kind::Score, None, &[("calm", None), ("angry", None)]), &labels(&["0", "1"])),
            "Question: Which level applies?\nLevels:\n0. calm\n1. angry\nReply with one number."
        );
        let options = [("yes", None), ("no", Some("all is well"))];
        assert_eq!(
            question(&asked(Kind::YesNo, Some("Urgent?"), &options), &labels(&["yes", "no"])),
            "Question: Urgent?\nno means: all is well\nReply with yes or no."
        );
    }

    fn chat(template: &str) -> Chat {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        Chat::open("m", &Source::Path(folder.path().to_owned()), ChatOptions::default())
    }

    fn state(text: &str) -> State {
        State { text: text.to_owned(), ..State::default() }
    }

    #[test]
    fn a_chat_template_surrounds_state_and_question() {
        let chat = chat(
            "<u>{{ messages[0].content | trim }}</u><a>{{ '' if enable_thinking else '<think></think>' }}",
        );
        let frame = Frame::new(Some(&chat), state("0x9DE57104 s")).unwrap();
        assert_eq!(frame.query(), Prompt::Formatted("<u>State:\n0x9DE57104 s\n\n".to_owned()));
        assert_eq!((frame.item("Q").as_str(), frame.lead()), ("Q</u><a><think></think>", ""));
    }

    #[test]
    fn without_a_chat_template_the_prompt_is_plain_text() {
        let context = State { instructions: Some("Be fair.".to_owned()), ..state("s") };
        let frame = Frame::new(None, context).unwrap();
        assert_eq!(frame.query(), Prompt::Text("Be fair.\n\nState:\ns\n\n".to_owned()));
        assert_eq!((frame.item("Q").as_str(), frame.lead()), ("Q\n\nAnswer:", " "));
    }

    #[test]
    fn templates_that_reason_or_forget_the_question_are_refused() {
        let refused =
            |template: &str| Frame::new(Some(&chat(template)), state("s")).err().unwrap().to_string();
        assert!(refused("{{ messages[0].content }}<think>\n").contains("reason before it answers"));
        assert!(refused("hello").contains("leaves the question out"));
        assert!(refused("{{ raise_exception('no') }}").contains("no"));
    }
}
