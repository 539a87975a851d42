//! The grammar of an answer that has to be a call, or that begins after reasoning.

use redline_grammar::{Grammar, GrammarKind};

use crate::error::{ChatFormatError, Subject};
use crate::format::{ChatFormat, final_text};
use crate::rules::Rules;
use crate::tool::Tools;

/// White space before an answer: models write empty lines after their reasoning, and some vocabularies begin words with a space.
const SPACE: &str = r"/[\x20\x0A\x0D\x09]{1,8}/";

/// What an answer has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A call of one of the tools, or several.
    Calls,
    /// A text of a grammar.
    Text(Grammar),
    /// Either.
    CallsOrText(Grammar),
    /// Any text, or any text and then calls. The calls are restricted from their mark on, if it is a token.
    TextAndCalls,
    /// Any text or calls, after reasoning.
    Anything,
}

/// Whether reasoning comes before an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoned {
    /// The answer begins at once.
    No,
    /// The prompt ends in reasoning, which has to end first.
    Open,
    /// The model may begin to reason.
    Maybe,
}

impl ChatFormat {
    /// Whether an answer can be held to a call.
    pub fn can_demand(&self) -> bool {
        self.family().is_some()
    }

    /// Whether calls can be told from text by a token, with which they begin.
    pub fn marks_calls(&self) -> bool {
        let openers = self.openers();
        self.can_demand()
            && !openers.is_empty()
            && openers.iter().all(|open| self.marker(open).is_some())
            && !self.has_channels()
    }

    /// The grammar of an answer. There may be several calls if `parallel`. `most` is the number of tokens after which reasoning has to end.
    ///
    /// # Errors
    /// The format cannot be demanded; a schema or the grammar of a text cannot be met; or reasoning does not end with a token, so that its
    /// tokens cannot be counted.
    pub fn grammar(
        &self,
        tools: &Tools,
        demand: &Demand,
        parallel: bool,
        reasoned: Reasoned,
        most: Option<usize>,
    ) -> Result<Grammar, ChatFormatError> {
        let mut rules = self.new_rules(&tools.0, parallel);
        if matches!(demand, Demand::Calls | Demand::CallsOrText(_) | Demand::TextAndCalls) {
            self.rules(&mut rules)?;
        }
        // Messages in channels begin with a token, and a text has a channel of its own.
        let calls = if self.has_channels() { "calls" } else { "SPACE? calls" };
        let in_channel = |rules: &Rules<'_>, text: String| {
            if self.has_channels() { final_text(rules, &text) } else { text }
        };
        let body = match demand {
            Demand::Calls => calls.to_owned(),
            Demand::Text(text) => {
                let text = rules.nested(text)?;
                in_channel(&rules, text)
            }
            Demand::CallsOrText(text) => {
                let text = rules.nested(text)?;
                format!("({calls} | {})", in_channel(&rules, text))
            }
            Demand::TextAndCalls => format!("{} calls?", rules.any_text()),
            Demand::Anything => rules.any_output(),
        };
        let before = self.before(&mut rules, reasoned, most)?;
        let lark = format!("start: {before}{body}\nSPACE: {SPACE}\n{}", rules.lark);
        Ok(Grammar::new(GrammarKind::Lark, lark))
    }

    /// What comes before an answer.
    fn before(
        &self,
        rules: &mut Rules<'_>,
        reasoned: Reasoned,
        most: Option<usize>,
    ) -> Result<String, ChatFormatError> {
        let cannot_be_counted = || ChatFormatError {
            fact: "the reasoning of this model does not end with a token of its own, and cannot be cut"
                .to_owned(),
            subject: Subject::Reasoning,
            hint: "leave it out",
        };
        if most.is_some() && self.has_channels() {
            return Err(cannot_be_counted());
        }
        let Some(marks) = self.reasoning().filter(|_| reasoned != Reasoned::No) else {
            return Ok(String::new());
        };
        let thought = match (self.marker(&marks.close), most) {
            (Some((end, _)), most) => rules.tokens_before(end.id, most),
            (None, None) => rules.text_before(&marks.close),
            (None, Some(_)) => return Err(cannot_be_counted()),
        };
        let open = rules.mark(&marks.open);
        Ok(if reasoned == Reasoned::Open { format!("{thought} ") } else { format!("({open} {thought})? ") })
    }
}
