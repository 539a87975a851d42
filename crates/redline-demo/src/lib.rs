//! The small models that are embedded in the binary and in the Python package, with their texts. They are statics, because a constant of
//! this size may be in a binary several times. The build script compresses the weights.

#![forbid(unsafe_code)]

mod merge;
mod planes;

use std::sync::LazyLock;

use redline_engine::Embedded;
use serde::Deserialize;

/// The name of the demo model in `--model`.
pub const NAME: &str = "demo";
/// The tokenizer of the demo model, also used by models with random weights.
pub static TOKENIZER: &[u8] = include_bytes!("../../../models/demo/tokenizer.json");
/// Text that the demo model was not trained on.
pub static HELD_OUT: &str = include_str!("../../../models/demo/held-out.txt");

static CLOZE: &str = include_str!("../../../models/demo/cloze.jsonl");

/// The demo model.
pub static MODEL: Embedded = Embedded {
    name: NAME,
    config: include_bytes!("../../../models/demo/config.json"),
    generation_config: include_bytes!("../../../models/demo/generation_config.json"),
    tokenizer: TOKENIZER,
    chat_template: None,
    weights: || &WEIGHTS,
};

/// The demo model with an adapter that was trained on conversations about a toy world: it calls functions and fills objects in JSON.
pub static CHAT: Embedded = Embedded {
    name: "demo-chat",
    chat_template: Some(include_str!("../../../models/demo-chat/chat_template.jinja")),
    weights: || &CHAT_WEIGHTS,
    ..MODEL
};

/// The model that fills masks, with the same shape and training texts.
pub static DIFFUSION: Embedded = Embedded {
    name: "demo-diffusion",
    config: include_bytes!("../../../models/demo-diffusion/config.json"),
    generation_config: include_bytes!("../../../models/demo-diffusion/generation_config.json"),
    tokenizer: include_bytes!("../../../models/demo-diffusion/tokenizer.json"),
    chat_template: None,
    weights: || &DIFFUSION_WEIGHTS,
};

static WEIGHTS: LazyLock<Vec<u8>> =
    LazyLock::new(|| unpacked(include_bytes!(concat!(env!("OUT_DIR"), "/demo.planes"))));
static DIFFUSION_WEIGHTS: LazyLock<Vec<u8>> =
    LazyLock::new(|| unpacked(include_bytes!(concat!(env!("OUT_DIR"), "/demo-diffusion.planes"))));

static CHAT_WEIGHTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let adapter = include_bytes!("../../../models/demo-chat/adapter_model.safetensors");
    let config = include_bytes!("../../../models/demo-chat/adapter_config.json");
    merge::merged(&WEIGHTS, adapter, config).unwrap_or_default()
});

/// Restores the weights. An error would be a defect of the binary; nothing else is read here.
fn unpacked(packed: &[u8]) -> Vec<u8> {
    planes::unpack(packed).unwrap_or_default()
}

/// All embedded models.
pub static EMBEDDED: &[&Embedded] = &[&MODEL, &CHAT, &DIFFUSION];

/// A question about held-out text: which word comes next?
#[derive(Clone, Debug, Deserialize)]
pub struct Question {
    /// The text before the word.
    pub context: String,
    /// The candidate words.
    pub choices: Vec<String>,
    /// The index of the correct candidate.
    pub answer: usize,
}

/// Parses the questions.
pub fn questions() -> Vec<Question> {
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
    fn weights_are_those_of_the_files() {
        for model in [&MODEL, &DIFFUSION] {
            let file =
                format!("{}/../../models/{}/model.safetensors", env!("CARGO_MANIFEST_DIR"), model.name);
            assert!((model.weights)() == std::fs::read(file).unwrap(), "{}", model.name);
        }
    }

    #[test]
    fn compression_loses_nothing() {
        for length in 0..90_u8 {
            let bytes: Vec<u8> = (0..length).map(|i| (i % 46).wrapping_mul(37)).collect();
            let packed = planes::pack(&bytes).unwrap();
            assert_eq!(planes::unpack(&packed).as_ref(), Some(&bytes));
            for cut in 0..packed.len() {
                // The last bytes may be no more than the end of the deflated ones.
                let restored = planes::unpack(&packed[..cut]);
                assert!(restored.is_none_or(|restored| restored == bytes), "{length}, {cut}");
            }
        }
    }

    #[test]
    fn there_is_text_that_was_never_trained_on() {
        assert!(HELD_OUT.len() >= 100_000);
    }
}
