//! The vocabulary of a GGUF file: its metadata, as the tokenizer takes them; and the chat template of a model.

use std::collections::BTreeMap;
use std::path::Path;

use redline_tokenizer::{ChatTemplate, GgufSpecialIds, GgufVocabulary};
use redline_weights::{Gguf, GgufArray, GgufMetadata, GgufValue, WeightsError};

use crate::error::EngineError;

/// The key of the chat template. Templates with names have `.NAME` after it.
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

/// The part of a GGUF file's metadata that describes its tokenizer; `None` if the file has no tokenizer.
///
/// # Errors
/// Names the key that has a value of the wrong type.
pub fn vocabulary(gguf: &Gguf) -> Result<Option<GgufVocabulary>, WeightsError> {
    let metadata = gguf.metadata();
    let Some(model) = metadata.opt_string(&key("model"))? else { return Ok(None) };
    let flag = |name| metadata.opt_bool(&key(name));
    let text = |name: &str| Ok::<_, WeightsError>(metadata.opt_string(name)?.map(str::to_owned));
    let given = |name: &str| metadata.get(&key(name)).is_some();
    let strings = |name: &str| -> Result<Vec<String>, WeightsError> {
        Ok(metadata.strings(&key(name))?.into_iter().map(str::to_owned).collect())
    };
    Ok(Some(GgufVocabulary {
        model: model.to_owned(),
        pre: text(&key("pre"))?,
        tokens: strings("tokens")?,
        scores: if given("scores") { Some(metadata.f32s(&key("scores"))?.to_vec()) } else { None },
        types: if given("token_type") { Some(metadata.i32s(&key("token_type"))?) } else { None },
        merges: if given("merges") { Some(strings("merges")?) } else { None },
        special: special(metadata)?,
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        add_space_prefix: flag("add_space_prefix")?,
        remove_extra_whitespaces: flag("remove_extra_whitespaces")?,
        lowercase: flag("normalizer.lowercase")?,
        strip_accents: flag("normalizer.strip_accents")?,
        precompiled_charsmap: charsmap(metadata)?,
        chat_templates: chat_templates(metadata)?,
        name: text("general.name")?,
        architecture: text("general.architecture")?,
    }))
}

/// The chat template of the model at `path`, if it has one, or the one in `file`, with the special tokens of the model.
pub fn chat_template(path: &Path, file: Option<&Path>) -> Result<Option<ChatTemplate>, EngineError> {
    let vocabulary = if Gguf::is(path) { vocabulary(&Gguf::open(path)?)? } else { None };
    let place = path.display().to_string();
    Ok(match (vocabulary, file) {
        (Some(vocabulary), Some(file)) => Some(vocabulary.chat_template_in(file, &place)?),
        (Some(vocabulary), None) => vocabulary.chat_template(&place)?,
        (None, Some(file)) => Some(ChatTemplate::from_file(file, path.is_dir().then_some(path))?),
        (None, None) if path.is_dir() => ChatTemplate::from_dir(path)?,
        (None, None) => None,
    })
}

/// The files of a model directory that say the same about a GGUF file's tokenizer, chat template and end of texts as its metadata: their
/// names and contents.
pub fn tokenizer_files(gguf: &Gguf) -> Result<Vec<(&'static str, Vec<u8>)>, EngineError> {
    let Some(vocabulary) = vocabulary(gguf)? else { return Ok(Vec::new()) };
    let place = gguf.origin().display().to_string();
    let ends = format!("{{\n  \"eos_token_id\": {:?}\n}}\n", vocabulary.end_ids(&place)?);
    Ok(vec![
        ("tokenizer.json", vocabulary.tokenizer_json(&place)?),
        ("tokenizer_config.json", vocabulary.tokenizer_config_json(&place)?),
        ("generation_config.json", ends.into_bytes()),
    ])
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

fn special(metadata: &GgufMetadata) -> Result<GgufSpecialIds, WeightsError> {
    let id = |name: &str| metadata.opt_u32(&key(&format!("{name}_token_id")));
    Ok(GgufSpecialIds {
        bos: id("bos")?,
        eos: id("eos")?,
        eot: id("eot")?,
        eom: id("eom")?,
        unk: id("unknown")?,
        sep: id("seperator")?,
        pad: id("padding")?,
        cls: id("cls")?,
        mask: id("mask")?,
        fim_pre: id("fim_pre")?,
        fim_suf: id("fim_suf")?,
        fim_mid: id("fim_mid")?,
        fim_pad: id("fim_pad")?,
        fim_rep: id("fim_rep")?,
        fim_sep: id("fim_sep")?,
    })
}

/// The compiled character map: an array of bytes, signed or not.
fn charsmap(metadata: &GgufMetadata) -> Result<Vec<u8>, WeightsError> {
    let key = key("precompiled_charsmap");
    match metadata.get(&key) {
        None => Ok(Vec::new()),
        Some(GgufValue::Array(GgufArray::U8(bytes))) => Ok(bytes.clone()),
        Some(GgufValue::Array(GgufArray::I8(bytes))) => {
            Ok(bytes.iter().map(|byte| byte.cast_unsigned()).collect())
        }
        Some(_) => Err(metadata.refuse(&key, "an array of bytes")),
    }
}

fn chat_templates(metadata: &GgufMetadata) -> Result<BTreeMap<String, String>, WeightsError> {
    let mut templates = BTreeMap::new();
    for key in metadata.keys() {
        let name = match key.strip_prefix(CHAT_TEMPLATE) {
            Some("") => "default",
            Some(rest) => match rest.strip_prefix('.') {
                Some(name) => name,
                None => continue,
            },
            None => continue,
        };
        if let Some(template) = metadata.opt_string(key)? {
            templates.insert(name.to_owned(), template.to_owned());
        }
    }
    Ok(templates)
}
