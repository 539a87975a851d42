//! The small models embedded in the binary, with the texts that belong to them.

use redline_engine::Embedded;
use serde::Deserialize;

/// The name that `--model` takes.
pub(crate) const NAME: &str = "demo";
/// Its tokenizer, which models with random weights borrow.
pub(crate) const TOKENIZER: &[u8] = include_bytes!("../../../models/demo/tokenizer.json");
/// Text that it was never trained on.
pub(crate) const HELD_OUT: &str = include_str!("../../../models/demo/held-out.txt");

const CLOZE: &str = include_str!("../../../models/demo/cloze.jsonl");

/// The model.
pub(crate) const MODEL: Embedded = Embedded {
    name: NAME,
    config: include_bytes!("../../../models/demo/config.json"),
    generation_config: include_bytes!("../../../models/demo/generation_config.json"),
    tokenizer: TOKENIZER,
    weights: include_bytes!("../../../models/demo/model.safetensors"),
};

/// The model that fills masks, of the same shape and texts.
pub(crate) const DIFFUSION: Embedded = Embedded {
    name: "demo-diffusion",
    config: include_bytes!("../../../models/demo-diffusion/config.json"),
    generation_config: include_bytes!("../../../models/demo-diffusion/generation_config.json"),
    tokenizer: include_bytes!("../../../models/demo-diffusion/tokenizer.json"),
    weights: include_bytes!("../../../models/demo-diffusion/model.safetensors"),
};

/// Every one of them.
pub(crate) const EMBEDDED: &[&Embedded] = &[&MODEL, &DIFFUSION];

/// A question about held-out text: which word comes next?
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Question {
    /// What comes before the word.
    pub(crate) context: String,
    /// The candidates.
    pub(crate) choices: Vec<String>,
    /// Which of them the text goes on with.
    pub(crate) answer: usize,
}

/// The questions.
pub(crate) fn questions() -> Vec<Question> {
    CLOZE.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_is_read_and_has_its_answer() {
        let questions = questions();
        assert_eq!(questions.len(), CLOZE.lines().count());
        assert!(questions.len() >= 200);
        for question in &questions {
            assert_eq!(question.choices.len(), 4);
            assert!(question.answer < 4);
            assert!(question.choices.iter().all(|choice| choice.starts_with(' ')));
        }
    }

    #[test]
    fn there_is_text_that_was_never_trained_on() {
        assert!(HELD_OUT.len() >= 100_000);
    }
}
