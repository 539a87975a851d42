//! Flags that say what a text has to be.

use std::path::{Path, PathBuf};

use clap::Args;
use redline_api::grammar::GrammarKeys;

use crate::message::Failure;
use crate::text;

/// Longest file of a grammar.
const MAX_BYTES: u64 = 1 << 20;

/// What the text has to be.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Structured output")]
#[group(multiple = false)]
pub(super) struct GrammarFlags {
    /// The text is a value that a JSON schema allows: a file with it, or the schema itself
    #[arg(long, value_name = "FILE")]
    json_schema: Option<String>,
    /// The whole text matches this regular expression
    #[arg(long, value_name = "TEXT")]
    regex: Option<String>,
    /// The text is one of these (repeatable)
    #[arg(long, value_name = "TEXT")]
    choice: Vec<String>,
    /// The text matches the grammar in this file, in llguidance's variant of Lark or in GBNF
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
}

impl GrammarFlags {
    /// The same as keys of a request.
    pub(super) fn keys(&self) -> Result<GrammarKeys, Failure> {
        let schema = self.json_schema.as_deref().map(|given| {
            let schema = if given.trim_start().starts_with('{') {
                given.to_owned()
            } else {
                text::read_at_most(MAX_BYTES, Path::new(given))?
            };
            serde_json::from_str(&schema).map_err(|error| {
                let fact = format!("`--json-schema` is not valid JSON: {error}");
                Failure::usage(fact, "give a schema, such as '{\"type\": \"object\"}', or a file with one")
            })
        });
        let grammar = self.grammar.as_deref().map(|path| text::read_at_most(MAX_BYTES, path));
        Ok(GrammarKeys {
            json_schema: schema.transpose()?,
            regex: self.regex.clone(),
            choice: Some(self.choice.clone()).filter(|choices| !choices.is_empty()),
            grammar: grammar.transpose()?,
            ..GrammarKeys::default()
        })
    }
}
