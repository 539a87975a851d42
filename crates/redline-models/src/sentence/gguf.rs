//! The rules of GGUF files, which know one kind of vector.

use redline_settings::Pooling;
use redline_weights::Gguf;

use super::{DenseRules, MODULES, SentenceRules};
use crate::ModelError;
use crate::block::dense::DenseLayers;

/// `{architecture}.pooling_type` in GGUF files: how the states of a text become one vector, its number there, and its name in
/// configurations of sentence-transformers.
const POOLINGS: [(u32, Pooling, &str); 3] =
    [(1, Pooling::Mean, "mean"), (2, Pooling::First, "cls"), (3, Pooling::Last, "lasttoken")];

fn gguf_pooling(gguf: &Gguf) -> Result<Option<(Pooling, &'static str)>, ModelError> {
    let metadata = gguf.metadata();
    let key = format!("{}.pooling_type", metadata.string("general.architecture")?);
    match metadata.opt_u32(&key)? {
        // None, and that of a classifier.
        None | Some(0 | 4) => Ok(None),
        Some(number) => match POOLINGS.iter().find(|(known, ..)| *known == number) {
            Some((_, pooling, name)) => Ok(Some((*pooling, name))),
            None => Err(metadata.refuse(&key, "a number from 0 to 4").into()),
        },
    }
}

/// The rules of a GGUF file; `None` if it has none. It does not say whether vectors are divided by their length: they are, as in
/// llama.cpp.
pub fn of_gguf(gguf: &Gguf) -> Result<Option<SentenceRules>, ModelError> {
    Ok(gguf_pooling(gguf)?.map(|(pooling, _)| SentenceRules {
        dense: Some(DenseRules { pooling, layers: DenseLayers::default(), normalise: true }),
        ..SentenceRules::default()
    }))
}

/// The files by which a converted directory has the rules of a GGUF file.
pub(crate) fn files_of_gguf(gguf: &Gguf) -> Result<Vec<(&'static str, Vec<u8>)>, ModelError> {
    let Some((_, name)) = gguf_pooling(gguf)? else { return Ok(Vec::new()) };
    let kinds = ["Transformer", "Pooling", "Normalize"];
    let modules = kinds.iter().enumerate().map(|(index, kind)| {
        let path = if index == 0 { String::new() } else { format!("{index}_{kind}") };
        format!(
            r#"{{"idx": {index}, "name": "{index}", "path": "{path}", "type": "sentence_transformers.models.{kind}"}}"#
        )
    });
    let modules = format!("[{}]\n", modules.collect::<Vec<_>>().join(", "));
    let pooling = format!("{{\"pooling_mode\": \"{name}\"}}\n");
    Ok(vec![(MODULES, modules.into_bytes()), ("1_Pooling.config.json", pooling.into_bytes())])
}
