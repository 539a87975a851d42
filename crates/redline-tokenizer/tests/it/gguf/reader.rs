//! Reads the metadata of a GGUF file, as far as these tests need it.

use redline_tokenizer::{GgufSpecialIds, GgufVocabulary};
use std::collections::BTreeMap;

/// A value of the metadata.
pub(crate) enum Value {
    Number(f64),
    Flag(bool),
    Text(String),
    List(Vec<Self>),
}

/// The key-value pairs of a file.
pub(crate) fn metadata(bytes: &[u8]) -> BTreeMap<String, Value> {
    let mut cursor = Cursor(bytes);
    assert_eq!(cursor.take::<4>(), *b"GGUF");
    let version = cursor.u32();
    assert!((2..=3).contains(&version), "version {version}");
    let (_tensors, pairs) = (cursor.u64(), cursor.u64());
    (0..pairs).map(|_| (cursor.text(), cursor.any())).collect()
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_first_chunk::<N>().unwrap();
        self.0 = rest;
        *head
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn text(&mut self) -> String {
        let len = self.u64() as usize;
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        String::from_utf8(head.to_vec()).unwrap()
    }

    fn any(&mut self) -> Value {
        let kind = self.u32();
        self.value(kind)
    }

    fn value(&mut self, kind: u32) -> Value {
        Value::Number(match kind {
            0 => self.take::<1>()[0].into(),
            1 => i8::from_le_bytes(self.take()).into(),
            2 => u16::from_le_bytes(self.take()).into(),
            3 => i16::from_le_bytes(self.take()).into(),
            4 => self.u32().into(),
            5 => i32::from_le_bytes(self.take()).into(),
            6 => f32::from_le_bytes(self.take()).into(),
            7 => return Value::Flag(self.take::<1>() != [0]),
            8 => return Value::Text(self.text()),
            9 => {
                let (kind, len) = (self.u32(), self.u64());
                return Value::List((0..len).map(|_| self.value(kind)).collect());
            }
            10 => self.u64() as f64,
            11 => i64::from_le_bytes(self.take()) as f64,
            12 => f64::from_le_bytes(self.take()),
            _ => panic!("type {kind}"),
        })
    }
}

/// The vocabulary of the metadata.
pub(crate) fn vocabulary(metadata: &BTreeMap<String, Value>) -> GgufVocabulary {
    let key = |name: &str| metadata.get(&format!("tokenizer.ggml.{name}"));
    let text = |value: Option<&Value>| match value {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let flag = |name: &str| match key(name) {
        Some(Value::Flag(flag)) => Some(*flag),
        _ => None,
    };
    let texts = |name: &str| match key(name) {
        Some(Value::List(list)) => Some(list.iter().map(|value| text(Some(value)).unwrap()).collect()),
        _ => None,
    };
    let numbers = |name: &str| match key(name) {
        Some(Value::List(list)) => {
            let number = |value: &Value| if let Value::Number(number) = value { *number } else { f64::NAN };
            Some(list.iter().map(number).collect::<Vec<_>>())
        }
        _ => None,
    };
    let id = |name: &str| match key(&format!("{name}_token_id")) {
        Some(Value::Number(id)) => Some(*id as u32),
        _ => None,
    };
    let template = |(key, value): (&String, &Value)| {
        let name = key.strip_prefix("tokenizer.chat_template")?;
        let name = if name.is_empty() { "default" } else { name.strip_prefix('.')? };
        Some((name.to_owned(), text(Some(value))?))
    };
    GgufVocabulary {
        model: text(key("model")).unwrap_or_default(),
        pre: text(key("pre")),
        tokens: texts("tokens").unwrap_or_default(),
        scores: numbers("scores").map(|list| list.into_iter().map(|score| score as f32).collect()),
        types: numbers("token_type").map(|list| list.into_iter().map(|kind| kind as i32).collect()),
        merges: texts("merges"),
        special: GgufSpecialIds {
            bos: id("bos"),
            eos: id("eos"),
            eot: id("eot"),
            eom: id("eom"),
            unk: id("unknown"),
            sep: id("seperator"),
            pad: id("padding"),
            cls: id("cls"),
            mask: id("mask"),
            fim_pre: id("fim_pre"),
            fim_suf: id("fim_suf"),
            fim_mid: id("fim_mid"),
            fim_pad: id("fim_pad"),
            fim_rep: id("fim_rep"),
            fim_sep: id("fim_sep"),
        },
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
        add_space_prefix: flag("add_space_prefix"),
        remove_extra_whitespaces: flag("remove_extra_whitespaces"),
        lowercase: flag("normalizer.lowercase"),
        strip_accents: flag("normalizer.strip_accents"),
        precompiled_charsmap: numbers("precompiled_charsmap")
            .unwrap_or_default()
            .into_iter()
            .map(|byte| byte as i32 as u8)
            .collect(),
        chat_templates: metadata.iter().filter_map(template).collect(),
        name: text(metadata.get("general.name")),
        architecture: text(metadata.get("general.architecture")),
    }
}
