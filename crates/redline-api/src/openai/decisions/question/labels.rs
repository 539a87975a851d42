//! The labels by which options are read.

use redline_engine::{Engine, EngineError};

use crate::error::ApiError;
use crate::openai::decisions::question::Kind;

/// The labels of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labels {
    /// What the prompt shows for each option.
    pub(crate) shown: Vec<String>,
    /// What the model may write.
    pub(crate) written: Vec<String>,
    /// The option of each of these.
    pub(crate) options: Vec<usize>,
}

impl Labels {
    /// The labels of `count` options. `lead` stands before each where the model writes it.
    pub(crate) fn of(kind: Kind, count: usize, lead: &str, engine: &Engine) -> Result<Self, ApiError> {
        let shown: Vec<String> = match kind {
            Kind::YesNo => ["yes", "no"].map(str::to_owned).to_vec(),
            Kind::Score => (0..count).map(|level| level.to_string()).collect(),
            Kind::Choice if count <= LETTERS => (0..count).map(|at| letter(at).to_string()).collect(),
            Kind::Choice => pairs(count, lead, engine)?,
        };
        let (mut written, mut options) = (Vec::new(), Vec::new());
        for (option, label) in shown.iter().enumerate() {
            written.push(format!("{lead}{label}"));
            options.push(option);
            if kind == Kind::YesNo {
                written.push(format!("{lead}{}", capitalised(label)));
                options.push(option);
            }
        }
        Ok(Self { shown, written, options })
    }
}

/// Number of letters.
const LETTERS: usize = 26;

fn letter(at: usize) -> char {
    char::from(b'A' + (at % LETTERS) as u8)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// Pairs of letters: those that are one token each, if there are enough, and else the first ones. A label of several tokens costs a row
/// of its own.
fn pairs(count: usize, lead: &str, engine: &Engine) -> Result<Vec<String>, ApiError> {
    let tokenizer = engine.tokenizer().ok_or_else(|| EngineError::NoTokenizer(engine.info().name.clone()))?;
    let all: Vec<String> =
        (0..LETTERS * LETTERS).map(|at| [letter(at / LETTERS), letter(at)].into_iter().collect()).collect();
    let mut single = Vec::with_capacity(count);
    for pair in &all {
        if single.len() < count && tokenizer.encode(&format!("{lead}{pair}"), false)?.len() == 1 {
            single.push(pair.clone());
        }
    }
    Ok(if single.len() == count { single } else { all.into_iter().take(count).collect() })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn labels(kind: Kind, count: usize, lead: &str) -> Labels {
        Labels::of(kind, count, lead, &demo()).unwrap()
    }

    fn demo() -> Engine {
        use redline_engine::{Options, Source};
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
        Engine::load(Options { threads: 1, ..Options::new(Source::Path(dir)) }).unwrap()
    }

    #[test]
    fn each_kind_has_its_labels() {
        let noul = labels(Kind::YesNo, 2, " ");
        assert_eq!(noul.written, [" yes", " Yes", " no", " No"]);
        assert_eq!(noul.options, [0, 0, 1, 1]);
        assert_eq!(labels(Kind::Score, 10, "").written.concat(), "0123456789");
        assert_eq!(labels(Kind::Choice, 26, "").written.concat(), "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    }

    #[test]
    fn many_options_have_labels_of_one_length_that_differ() {
        for count in [27, 255] {
            let labels = labels(Kind::Choice, count, " ");
            assert!(labels.shown.iter().all(|label| label.len() == 2));
            assert_eq!(labels.shown.iter().collect::<HashSet<_>>().len(), count);
            assert_eq!(labels.options.last(), Some(&(count - 1)));
        }
    }
}
