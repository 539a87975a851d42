//! Flags of chat templates, and prompts in their format.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use clap::Args;
use redline_api::chat::keys::ChatKeys;
use redline_api::chat::template::{Chat, ChatOptions};
use redline_api::json::input::TextOrIds;
use redline_api::json::text::JsonText;
use redline_engine::Prompt;
use redline_tokenizer::{ChatDate, ChatValue};

use crate::env::Environment;
use crate::message::{self, Failure};
use crate::model::ModelName;
use crate::{json, text, value};

/// What the options of a line of `--jsonl` are, and how lines are answered, for the help.
pub(super) const OPTIONS: &str = "adapter a name, or a list of names and of objects with name and scale, and receipt true, or an object \
    with layers. An absent key takes the value of the command's flag. Up to 64 lines are run together; answers come in the order of the \
    lines.";

/// Keys of a line of `--jsonl` that concern the chat template, for the help.
pub(super) const KEYS: &str = "messages, tools, documents, chat_template_kwargs, date, add_generation_prompt, \
    continue_final_message. The chat template formats `messages` (objects with `role` and `content`), with or without --chat.";

/// How a prompt is put to the model.
#[derive(Debug, Args)]
#[command(next_help_heading = "Chat template")]
pub(super) struct ChatFlags {
    /// Format every prompt with the model's chat template, as the user's message
    #[arg(long)]
    chat: bool,
    #[command(flatten)]
    template: TemplateFlags,
}

/// The template.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Chat template")]
pub(super) struct TemplateFile {
    /// A Jinja file to use instead of the model's chat template
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
}

impl TemplateFile {
    /// Reads the template. It is an error if the file is not a template, and no error if the model has none.
    pub(super) fn open(&self, model: &ModelName, environment: Environment) -> Result<Chat, Failure> {
        let options =
            ChatOptions { file: self.chat_template.clone(), formats_prompts: true, ..ChatOptions::default() };
        let chat = Chat::open(&model.name, &model.source(environment)?, options);
        if self.chat_template.is_some() {
            chat.check()?;
        }
        Ok(chat)
    }
}

/// The template, and what it formats besides the messages.
#[derive(Debug, Args)]
#[command(next_help_heading = "Chat template")]
pub(super) struct TemplateFlags {
    #[command(flatten)]
    file: TemplateFile,
    /// The system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Functions that the model may call: a JSON file with a list of their schemas; `-` is standard input
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Documents that the model may use: a JSON file with a list of objects; `-` is standard input
    #[arg(long, value_name = "FILE")]
    documents: Option<PathBuf>,
    /// A variable of the template, such as enable_thinking=false (repeatable); a value that is not JSON is text
    #[arg(long, value_name = "NAME=VALUE", value_parser = value::template_argument)]
    template_arg: Vec<(String, ChatValue)>,
    /// The date that the template may print, such as 2026-07-26; default: today in local time
    #[arg(long, value_name = "DATE", value_parser = value::date)]
    date: Option<ChatDate>,
}

impl ChatFlags {
    /// Reads the template. `has_lines` is whether requests are lines, which may have messages; otherwise the flags need `--chat`.
    pub(super) fn open(
        &self,
        model: &ModelName,
        environment: Environment,
        has_lines: bool,
        is_quiet: bool,
    ) -> Result<Prompts, Failure> {
        if let Some(flag) = self.template.given()
            && !self.chat
            && !has_lines
        {
            let hint = "add `--chat`, which formats the prompt with the chat template";
            return Err(Failure::usage(format!("`{flag}` without `--chat`"), hint));
        }
        let chat = self.template.open(model, environment, self.chat)?;
        if self.chat || self.template.file.chat_template.is_some() {
            chat.check()?;
        }
        let notes = !is_quiet && chat.leaves_prompts();
        let template_of = match self.template.file.chat_template {
            Some(_) => "`--chat-template` is for `messages`".to_owned(),
            None => format!("`{}` has a chat template", model.name),
        };
        Ok(Prompts { chat, template_of, notes: Cell::new(notes) })
    }
}

impl ChatFlags {
    /// See [`TemplateFlags::check_input`].
    pub(super) fn check_input(&self, others: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
        self.template.check_input(others)
    }

    /// Whether prompts are formatted.
    pub(super) fn is_requested(&self) -> bool {
        self.chat
    }

    /// The chat template, for a command without conversations; `None` without `--chat`.
    pub(super) fn requested(
        &self,
        model: &ModelName,
        environment: Environment,
        is_quiet: bool,
    ) -> Result<Option<Chat>, Failure> {
        let prompts = self.open(model, environment, false, is_quiet)?;
        if !self.chat {
            prompts.note();
        }
        Ok(self.chat.then_some(prompts.chat))
    }
}

impl TemplateFlags {
    /// Refuses to read standard input twice: for these flags, and for `others` of the command with their files.
    pub(super) fn check_input(&self, others: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
        let own = [("`--tools -`", self.tools.as_deref()), ("`--documents -`", self.documents.as_deref())];
        let files = others.iter().copied().chain(own);
        let mut readers = files.filter(|(_, path)| path.is_some_and(message::is_stdin)).map(|(flag, _)| flag);
        if let (Some(one), Some(other)) = (readers.next(), readers.next()) {
            let fact = format!("{one} and {other} both read standard input");
            return Err(Failure::usage(fact, "take one of them from a file"));
        }
        Ok(())
    }

    /// Reads the template and the files of the flags.
    pub(super) fn open(
        &self,
        model: &ModelName,
        environment: Environment,
        formats_prompts: bool,
    ) -> Result<Chat, Failure> {
        let list = |path: &Option<PathBuf>| path.as_deref().map(values).transpose();
        let options = ChatOptions {
            file: self.file.chat_template.clone(),
            formats_prompts,
            system: self.system.clone(),
            tools: list(&self.tools)?,
            documents: list(&self.documents)?,
            arguments: self.template_arg.clone(),
            date: Some(match self.date {
                Some(date) => date,
                None => today()?,
            }),
        };
        Ok(Chat::open(&model.name, &model.source(environment)?, options))
    }

    /// The first flag that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--chat-template", self.file.chat_template.is_some()),
            ("--system", self.system.is_some()),
            ("--tools", self.tools.is_some()),
            ("--documents", self.documents.is_some()),
            ("--template-arg", !self.template_arg.is_empty()),
            ("--date", self.date.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }
}

/// Today's date in local time.
fn today() -> Result<ChatDate, Failure> {
    let today = jiff::ZonedDateTime::now().date().to_string();
    ChatDate::parse(&today).map_err(|error| {
        let hint = "`--date 2026-07-26` gives the date".to_owned();
        Failure::failed(error.to_string(), Some(hint))
    })
}

/// Reads a JSON file with a list of values.
fn values(path: &Path) -> Result<Vec<ChatValue>, Failure> {
    let failed = |fact: String| {
        let hint = "the file holds one JSON list of objects".to_owned();
        Failure::failed(format!("{fact}\n  in {}", message::place(path)), Some(hint))
    };
    let list: Vec<JsonText> = serde_json::from_str(&text::read(path)?).map_err(|error| {
        failed(format!("{} at line {}, column {}", json::explained(&error), error.line(), error.column()))
    })?;
    let values = list.iter().map(|json| ChatValue::from_json(json.as_str()));
    values.collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))
}

/// Converts prompts to the format of the chat template, if they are to be.
pub(super) struct Prompts {
    pub(super) chat: Chat,
    /// Where the template comes from, as the beginning of a note.
    template_of: String,
    /// Whether the first plain text is to be noted.
    notes: Cell<bool>,
}

impl Prompts {
    /// Prompts of a model without a template, which stay as they are.
    #[cfg(test)]
    pub(super) fn unformatted() -> Self {
        let source = redline_engine::Source::Embedded(*redline_demo::EMBEDDED[0]);
        let chat = Chat::open("test", &source, ChatOptions::default());
        Self { chat, template_of: String::new(), notes: Cell::new(false) }
    }

    /// The prompt of the flags.
    pub(super) fn of_flags(&self, prompt: Prompt) -> Result<Prompt, Failure> {
        if prompt.is_text() {
            self.note();
        }
        Ok(self.chat.apply(prompt)?)
    }

    /// The prompt of a line: of its text or ids, whose key is `name`, or of its messages.
    pub(super) fn of_line(
        &self,
        name: &'static str,
        text: Option<TextOrIds>,
        messages: Option<Vec<JsonText>>,
        keys: ChatKeys,
    ) -> Result<Prompt, Failure> {
        let is_text = matches!(text, Some(TextOrIds::Text(_)));
        let prompt = self.chat.prompt(name, text, messages, keys)?;
        if is_text {
            self.note();
        }
        Ok(prompt)
    }

    /// Notes once that the model has a template that is not used.
    fn note(&self) {
        if self.notes.replace(false) {
            message::note(&format!(
                "{}, and the prompt is used as it is; --chat formats it as a message",
                self.template_of
            ));
        }
    }
}
