//! Texts as an encoder reads them.

use super::cut::{self, Prompts};
use super::template::Frame;
use crate::answer::outcome::ItemError;
use crate::error::EngineError;
use crate::front::Engine;
use crate::mode::encode::EncodeText;
use crate::request::JudgeOptions;

/// Encodes every text with `encode`, cut to the maximum number of tokens that the options give, and if it stands in a frame, to what
/// the context leaves. Returns the encoded texts, and if the options allow errors of single texts, those of the others.
pub(super) fn all(
    engine: &Engine,
    texts: &mut [String],
    options: &JudgeOptions,
    frame: Option<(&Frame, &'static str)>,
    encode: impl Fn(usize, &str) -> Result<EncodeText, EngineError>,
) -> Result<(Vec<EncodeText>, Vec<ItemError>), EngineError> {
    let mut cut = match options.max_text_tokens {
        Some(most) => cut::to_tokens(engine.limits().tokenizer()?, texts, most)?,
        None => vec![false; texts.len()],
    };
    if let (Some((frame, noun)), Some(end)) = (frame, options.truncate) {
        let (limits, add_special_tokens) = (engine.encode_limits(), options.add_special_tokens);
        let prompts = Prompts { limits, frame, add_special_tokens, context: limits.context, noun };
        for (cut, also) in cut.iter_mut().zip(cut::all(&prompts, texts, end)?) {
            *cut |= also;
        }
    }
    let (mut encoded, mut failed) = (Vec::with_capacity(texts.len()), Vec::new());
    for (index, (text, cut)) in texts.iter().zip(cut).enumerate() {
        match encode(index, text) {
            Ok(text) => encoded.push(EncodeText { truncated: text.truncated || cut, ..text }),
            Err(error) if options.item_errors => {
                failed.push(ItemError { index, message: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    Ok((encoded, failed))
}
