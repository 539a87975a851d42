//! Templates: plain text with placeholders, filled in one pass.

use crate::error::EngineError;

/// A placeholder that has the same text in all prompts.
pub(super) struct Shared<'a> {
    /// Its name in the template, braces included.
    pub(super) name: &'static str,
    /// Whether a template must contain it.
    pub(super) required: bool,
    /// The text that replaces it.
    pub(super) text: &'a str,
}

/// The parts of the template before and after the text of each prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) head: String,
    pub(super) tail: String,
}

impl Frame {
    /// Splits the template at the placeholder `own`, with the shared placeholders filled in.
    pub(super) fn new(template: &str, own: &'static str, shared: &[Shared<'_>]) -> Result<Self, EngineError> {
        let names =
            std::iter::once((own, true)).chain(shared.iter().map(|place| (place.name, place.required)));
        for (name, required) in names {
            let times = template.matches(name).count();
            let fact = match times {
                0 if required => format!("the template has no `{name}`"),
                0 | 1 => continue,
                _ => format!("the template has `{name}` {times} times"),
            };
            return Err(EngineError::request(fact, rule(own, shared)));
        }
        let (head, tail) = template.split_once(own).unwrap_or((template, ""));
        Ok(Self { head: filled(head, shared), tail: filled(tail, shared) })
    }

    /// The prompt without the part before the text.
    pub(super) fn after_head(&self, text: &str) -> String {
        [text, &self.tail].concat()
    }
}

/// The rule for templates, for a hint.
fn rule(own: &str, shared: &[Shared<'_>]) -> String {
    let named = |required| {
        let names = shared.iter().filter(move |place| place.required == required);
        names.map(|place| format!("`{}`", place.name)).collect::<Vec<_>>()
    };
    let mut needed = named(true);
    needed.push(format!("`{own}`"));
    let mut rule = format!("a template has {} once", needed.join(" and "));
    let optional = named(false);
    if !optional.is_empty() {
        rule.push_str(&format!(", and may have {} once", optional.join(" and ")));
    }
    rule
}

/// Fills in the placeholders in a part of a template. Inserted text is not searched again, so it may contain braces.
fn filled(mut template: &str, shared: &[Shared<'_>]) -> String {
    let mut text = String::new();
    loop {
        let places = shared.iter().filter_map(|place| Some((template.find(place.name)?, place)));
        let Some((at, place)) = places.min_by_key(|(at, _)| *at) else {
            text.push_str(template);
            return text;
        };
        text.push_str(&template[..at]);
        text.push_str(place.text);
        template = &template[at + place.name.len()..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared<'a>(query: &'a str, note: &'a str) -> [Shared<'a>; 2] {
        [
            Shared { name: "{query}", required: true, text: query },
            Shared { name: "{note}", required: false, text: note },
        ]
    }

    #[test]
    fn a_prompt_is_head_text_and_tail() {
        let frame = |template| Frame::new(template, "{text}", &shared("Q", "N")).unwrap();
        let around = |head: &str, tail: &str| Frame { head: head.into(), tail: tail.into() };
        assert_eq!(frame("a {query} b {note}\n{text}: "), around("a Q b N\n", ": "));
        assert_eq!(frame("{text}{query}"), around("", "Q"));
        assert_eq!(frame("{query}{text}{note}"), around("Q", "N"));
        assert_eq!(frame("{other} {{query}} {{text}"), around("{other} {Q} {", ""));
    }

    #[test]
    fn what_is_filled_in_is_not_filled_again() {
        let frame =
            Frame::new("{note}{query}|{text}|", "{text}", &shared("{note}{text}", "{query}")).unwrap();
        assert_eq!(frame.head, "{query}{note}{text}|");
        assert_eq!(frame.after_head("{query}{text}"), "{query}{text}|");
    }

    #[test]
    fn placeholders_are_counted() {
        let refused = |template: &str| {
            let error = Frame::new(template, "{text}", &shared("", "")).unwrap_err();
            format!("{error}; {}", error.hint().unwrap())
        };
        let rule = "a template has `{query}` and `{text}` once, and may have `{note}` once";
        assert_eq!(refused("{query} {txt}"), format!("the template has no `{{text}}`; {rule}"));
        assert_eq!(refused("{text}"), format!("the template has no `{{query}}`; {rule}"));
        assert_eq!(refused("{query}{text}{text}"), format!("the template has `{{text}}` 2 times; {rule}"));
        assert_eq!(
            refused("{note}{query}{text}{note}{note}"),
            format!("the template has `{{note}}` 3 times; {rule}")
        );
    }
}
