//! Why there is no matcher for a grammar, or no further token.

use thiserror::Error;

/// Why a grammar cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{fact}")]
pub struct GrammarError {
    /// What is wrong.
    pub fact: String,
    /// What to do about it.
    pub hint: &'static str,
    /// Whether the same grammar fails again: `false` if only the time was too short or too many others were being compiled.
    pub is_certain: bool,
}

impl GrammarError {
    /// The grammar is wrong, or is not supported.
    pub(crate) fn new(fact: impl Into<String>, hint: &'static str) -> Self {
        Self { fact: fact.into(), hint, is_certain: true }
    }

    /// It could not be compiled now.
    pub(crate) fn now(fact: impl Into<String>, hint: &'static str) -> Self {
        Self { fact: fact.into(), hint, is_certain: false }
    }
}

/// What a message of the library says, without the grammar and the tokens that may follow in the next lines.
pub(crate) fn first_lines(message: &str) -> String {
    let lines = message.trim_end_matches("<non-verbose/>").lines().take_while(|line| !line.starts_with('<'));
    // Lines of the grammar with marks below them.
    let is_quote =
        |line: &&str| line.starts_with(['^', '(']) || line.starts_with(|c: char| c.is_ascii_digit());
    let text: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty() && !is_quote(line)).collect();
    let mut text = text.join("; ");
    if text.is_empty() {
        // It quotes the grammar only.
        return "it cannot be read".to_owned();
    }
    if let Some((end, _)) = text.char_indices().nth(400) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::first_lines;

    #[test]
    fn a_message_has_a_fact_also_where_it_quotes_the_grammar_only() {
        assert_eq!(first_lines("unexpected token\n1: start\n^\n<non-verbose/>"), "unexpected token");
        assert_eq!(first_lines("1: start\n   ^\n<non-verbose/>"), "it cannot be read");
    }
}
