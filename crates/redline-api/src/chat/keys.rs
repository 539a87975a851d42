//! The keys of a request that concern its chat template.

use std::collections::BTreeMap;

use crate::chat::tools::{Effort, MAX_TOOLS, ToolShape};
use crate::json::parts::part;
use crate::json::shape;
use crate::json::text::JsonText;

part! {
    /// What a request says about its conversation, beside the messages.
    pub struct ChatKeys {
        /// The tools that the model may call, with JSON schemas of their arguments.
        #[schemars(with = "Option<Vec<ToolShape>>", length(max = MAX_TOOLS))]
        pub tools: Vec<JsonText>,
        /// Documents that the model may use, objects.
        #[schemars(with = "Option<Vec<shape::AnyObject>>")]
        pub documents: Vec<JsonText>,
        /// Further variables of the chat template by name.
        pub chat_template_kwargs: BTreeMap<String, JsonText>,
        /// The date that the chat template may print, such as `2026-07-26`.
        #[schemars(with = "Option<shape::Day>")]
        pub date: String,
        /// End the prompt where the assistant's answer begins.
        pub add_generation_prompt: bool,
        /// End the prompt with the content of the final message, so that the model continues it.
        pub continue_final_message: bool,
    }
}

impl ChatKeys {
    /// Says how much to reason, unless the variables of the template say so themselves.
    pub(crate) fn reason(&mut self, effort: Option<Effort>) {
        if let Some(effort) = effort {
            let variables = self.chat_template_kwargs.get_or_insert_default();
            for (name, value) in effort.variables() {
                variables.entry(name).or_insert(value);
            }
        }
    }
}
