//! The name of a model on the Hugging Face hub, with the revision.

use std::fmt;

use crate::file::is_plain_name;

/// Maximum length of an id on the hub.
const MAX_ID: usize = 96;
/// Maximum length of a revision.
const MAX_REVISION: usize = 128;
/// The revision that an id without one means.
pub(super) const MAIN: &str = "main";

/// `name` or `org/name`, and a branch, a tag or a commit. `Display` prints it as it is written: `org/name@revision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubId {
    model: String,
    revision: Option<String>,
}

impl HubId {
    /// Parses `model` or `model@revision`. `None` if the text does not have this form.
    ///
    /// A model is `name` or `org/name`, each of letters, digits, `-`, `_` and `.`, with no `-` or `.` at its ends and no `--` or
    /// `..` inside. A revision has the same characters, `+` and `/`, and none of its parts between `/` is `.` or `..`.
    pub fn parse(text: &str) -> Option<Self> {
        let (model, revision) = match text.split_once('@') {
            Some((model, revision)) => (model, Some(revision)),
            None => (text, None),
        };
        let valid = is_model(model) && revision.is_none_or(is_revision);
        valid.then(|| Self { model: model.to_owned(), revision: revision.map(str::to_owned) })
    }

    /// The model without the revision: `org/name`.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The branch, tag or commit; `main` unless another was given.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// The name of the model's folder in a cache: `models--org--name`.
    pub(super) fn folder(&self) -> String {
        format!("models--{}", self.model.replace('/', "--"))
    }
}

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.model)?;
        self.revision.iter().try_for_each(|revision| write!(f, "@{revision}"))
    }
}

fn is_model(model: &str) -> bool {
    let part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let edge = |c: char| c == '-' || c == '.';
        !part.is_empty() && part.chars().all(plain) && !part.starts_with(edge) && !part.ends_with(edge)
    };
    let inside = !model.contains("--") && !model.contains("..");
    inside && model.len() <= MAX_ID && model.split('/').count() <= 2 && model.split('/').all(part)
}

fn is_revision(revision: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
    revision.len() <= MAX_REVISION && revision.chars().all(plain) && revision.split('/').all(is_plain_name)
}

/// Whether this is a commit: 40 lower-case hexadecimal digits.
pub(super) fn is_commit(revision: &str) -> bool {
    is_hexadecimal(revision, 40)
}

/// Whether the text is this many lower-case hexadecimal digits.
pub(super) fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_a_model_and_a_revision() {
        let parsed = |text| HubId::parse(text).map(|id| (id.model().to_owned(), id.revision().to_owned()));
        let some = |model: &str, revision: &str| Some((model.to_owned(), revision.to_owned()));
        assert_eq!(parsed("org/name"), some("org/name", "main"));
        assert_eq!(parsed("gpt2@v1.0+x"), some("gpt2", "v1.0+x"));
        assert_eq!(parsed("org/name@refs/pr/1"), some("org/name", "refs/pr/1"));
        let long = format!("a@{}", "b".repeat(MAX_REVISION + 1));
        for bad in [
            "", "@main", "a@", "a@b@c", "a@../b", "a@b/", "a@/b", "a@b//c", "a@b c", "a@b\\c", "a/b/c", &long,
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
        assert!(HubId::parse(&long[..long.len() - 1]).is_some());
    }

    #[test]
    fn an_id_is_printed_as_it_was_written() {
        for text in ["gpt2", "org/name", "org/name@main", "org/name@refs/pr/1"] {
            assert_eq!(HubId::parse(text).unwrap().to_string(), text);
        }
    }
}
