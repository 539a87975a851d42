//! What an architecture's GGUF files have of their own, and the keys of `config.json` that are made from their metadata.

use std::cell::RefCell;
use std::collections::BTreeSet;

use redline_weights::{Gguf, GgufArray, GgufMetadata, GgufValue, WeightsError};
use serde_json::{Map, Value, json};

use super::rotary;
use crate::ModelError;

/// How llama.cpp stores the models of an architecture.
#[derive(Clone, Copy, Debug)]
pub struct GgufDialect {
    /// `general.architecture`
    pub architecture: &'static str,
    /// Whether the rows of queries and keys are stored in pairs that are rotated together.
    pub pairs_rows: bool,
    /// Adds the keys of `config.json` that say the same as the metadata, but for those that every architecture has.
    pub(crate) config: fn(&mut Keys<'_>) -> Result<(), ModelError>,
}

/// Whether a token sees only those before it; absent: it does.
const CAUSAL: &str = "attention.causal";
/// Keys of an architecture that never change a result.
const WITHOUT_EFFECT: &[&str] = &["vocab_size", "rope.scaling.finetuned", "tensor_data_layout", "pooling_type"];

/// A `config.json` in the making. It knows which keys of the metadata have been used.
pub(crate) struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: &'a str,
    used: RefCell<BTreeSet<String>>,
    config: Map<String, Value>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(gguf: &'a Gguf, architecture: &'a str) -> Self {
        Self { gguf, architecture, used: RefCell::default(), config: Map::new() }
    }

    /// Sets a key of `config.json`.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.config.insert(key.to_owned(), value.into());
    }

    pub(super) fn metadata(&self) -> &'a GgufMetadata {
        self.gguf.metadata()
    }

    /// The full name of a key of the architecture, which counts as used.
    fn key(&self, name: &str) -> String {
        let key = format!("{}.{name}", self.architecture);
        self.used.borrow_mut().insert(key.clone());
        key
    }

    /// Refuses the value of a key of the architecture.
    pub(crate) fn refuse(&self, name: &str, supported: impl Into<String>) -> ModelError {
        self.metadata().refuse(&self.key(name), supported).into()
    }

    /// A count that every model of the architecture has. A list with a number for each layer counts if all are equal.
    pub(crate) fn count(&self, name: &str) -> Result<u32, ModelError> {
        match self.opt_count(name)? {
            Some(count) => Ok(count),
            // Reading an absent key returns the error that names it.
            None => Ok(self.metadata().u32(&self.key(name))?),
        }
    }

    /// A count, if it is given.
    pub(crate) fn opt_count(&self, name: &str) -> Result<Option<u32>, ModelError> {
        let key = self.key(name);
        if let Some(GgufValue::Array(_)) = self.metadata().get(&key) {
            let counts = self.metadata().u32s(&key)?;
            return match counts.split_first() {
                Some((first, rest)) if rest.iter().all(|count| count == first) => Ok(Some(*first)),
                _ => Err(self.metadata().refuse(&key, "one number, or the same for all layers").into()),
            };
        }
        Ok(self.metadata().opt_u32(&key)?)
    }

    /// A number, if it is given.
    pub(crate) fn opt_number(&self, name: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.metadata().opt_f32(&self.key(name))?)
    }

    /// A number, `default` if it is not given.
    pub(crate) fn number_or(&self, name: &str, default: f32) -> Result<f32, ModelError> {
        Ok(self.opt_number(name)?.unwrap_or(default))
    }

    /// A text, if it is given.
    pub(super) fn opt_text(&self, name: &str) -> Result<Option<&'a str>, ModelError> {
        Ok(self.metadata().opt_string(&self.key(name))?)
    }

    /// Copies numbers that are given: pairs of a key of the metadata and one of `config.json`.
    pub(crate) fn copy_numbers(&mut self, names: &[(&str, &str)]) -> Result<(), ModelError> {
        for (name, key) in names {
            if let Some(number) = self.opt_number(name)? {
                self.set(key, f64::from(number));
            }
        }
        Ok(())
    }

    /// Whether each layer has a window: a list, or a number n, which stands for full attention in every nth layer only; 0: in none.
    pub(crate) fn slides(&self, default: u32) -> Result<Vec<bool>, ModelError> {
        const NAME: &str = "attention.sliding_window_pattern";
        let (key, layers) = (self.key(NAME), self.layers()?);
        match self.metadata().get(&key) {
            Some(GgufValue::Array(GgufArray::Bool(listed))) if listed.len() == layers => Ok(listed.clone()),
            Some(GgufValue::Array(_)) => {
                Err(self.refuse(NAME, format!("a number, or a list of booleans for {layers} layers")))
            }
            _ => match self.metadata().u32_or(&key, default)? {
                0 => Ok(vec![true; layers]),
                n => Ok((1..=layers).map(|layer| !layer.is_multiple_of(n as usize)).collect()),
            },
        }
    }

    /// Sets `layer_types` to what [`Keys::slides`] returns.
    pub(crate) fn set_layer_types(&mut self, slides: &[bool]) {
        let name = |slides: &bool| if *slides { "sliding_attention" } else { "full_attention" };
        self.set("layer_types", slides.iter().map(name).collect::<Vec<_>>());
    }

    /// Number of layers.
    pub(crate) fn layers(&self) -> Result<usize, ModelError> {
        Ok(self.count("block_count")? as usize)
    }

    /// Values of a head.
    pub(crate) fn head_dim(&self) -> Result<u32, ModelError> {
        let (hidden, heads) = (self.count("embedding_length")?, self.count("attention.head_count")?);
        let keys = match self.opt_count("attention.key_length")? {
            Some(length) => length,
            None if heads > 0 && hidden % heads == 0 => hidden / heads,
            None => {
                return Err(self.refuse("attention.head_count", format!("a divisor of {hidden}")));
            }
        };
        match self.opt_count("attention.value_length")? {
            Some(values) if values != keys => {
                Err(self.refuse("attention.value_length", format!("`{keys}`, like `attention.key_length`")))
            }
            _ => Ok(keys),
        }
    }

    /// Rows of the embedding.
    pub(crate) fn vocab(&self) -> Result<usize, ModelError> {
        Ok(self.gguf.tensor(EMBEDDING).map(|tensor| tensor.rows()).ok_or_else(|| {
            let (tensor, file) = (EMBEDDING.to_owned(), self.gguf.origin().to_owned());
            WeightsError::MissingTensor { tensor, file }
        })?)
    }

    /// Whether the file has a tensor of this name.
    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.gguf.tensor(tensor).is_some()
    }

    /// The values of a tensor of at most `most` values, if the file has it.
    pub(super) fn values(&self, tensor: &str, most: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(found) = self.gguf.tensor(tensor) else { return Ok(None) };
        if found.elements() > most {
            let fact = format!("`{tensor}` has {} values; at most {most} are supported", found.elements());
            return Err(ModelError::Config { fact, file: self.gguf.origin().display().to_string() });
        }
        let mut values = vec![0.0; found.elements()];
        self.gguf.read_f32(tensor, &mut values)?;
        Ok(Some(values))
    }

    /// Accepts attention to tokens on both sides.
    pub(crate) fn sees_both_sides(&self) {
        self.key(CAUSAL);
    }

    /// Removes a key of `config.json`, and returns its value.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.config.remove(key)
    }

    /// Sets the keys of the rotation: `rope_theta`, `rope_scaling` and `partial_rotary_factor`.
    pub(crate) fn set_rotation(&mut self) -> Result<(), ModelError> {
        rotary::set(self)
    }

    /// Gives layers with a window a rotation of their own, without scaling, as transformers 5 writes it. `default_theta` is its base if the
    /// file names none; `None`: that of the others.
    pub(crate) fn set_local_rotation(&mut self, default_theta: Option<f32>) -> Result<(), ModelError> {
        let global = self.take("rope_theta");
        let local = match self.opt_number("rope.freq_base_swa")?.or(default_theta) {
            Some(theta) => Some(Value::from(f64::from(theta))),
            None => global.clone(),
        };
        let mut full = match self.take("rope_scaling") {
            Some(Value::Object(scaling)) => scaling,
            _ => Map::new(),
        };
        full.extend(global.map(|theta| ("rope_theta".to_owned(), theta)));
        self.set("rope_parameters", json!({ "full_attention": full, "sliding_attention": { "rope_theta": local } }));
        Ok(())
    }

    /// Number of KV heads.
    pub(crate) fn kv_heads(&self) -> Result<u32, ModelError> {
        match self.opt_count("attention.head_count_kv")? {
            Some(heads) => Ok(heads),
            None => self.count("attention.head_count"),
        }
    }

    /// Whether the head is the embedding.
    pub(crate) fn is_tied(&self) -> bool {
        !self.has(HEAD)
    }

    /// Sets the keys that Llama's family has: sizes, the epsilon of the norms, the rotation, and whether the head is the embedding.
    pub(crate) fn set_common(&mut self) -> Result<(), ModelError> {
        let sizes = [
            ("max_position_embeddings", self.count("context_length")?),
            ("hidden_size", self.count("embedding_length")?),
            ("num_hidden_layers", self.count("block_count")?),
            ("intermediate_size", self.count("feed_forward_length")?),
            ("num_attention_heads", self.count("attention.head_count")?),
            ("head_dim", self.head_dim()?),
        ];
        for (key, size) in sizes {
            self.set(key, size);
        }
        self.set("num_key_value_heads", self.kv_heads()?);
        self.set("vocab_size", self.vocab()?);
        self.set("tie_word_embeddings", self.is_tied());
        self.copy_numbers(&[("attention.layer_norm_rms_epsilon", "rms_norm_eps")])?;
        self.set_rotation()
    }

    /// The finished object. Refuses keys of the architecture that have not been used and may change the result: any but those that are
    /// zero, false or empty.
    pub(super) fn finish(self) -> Result<Map<String, Value>, ModelError> {
        let prefix = format!("{}.", self.architecture);
        let used = self.used.into_inner();
        for key in self.gguf.metadata().keys() {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            let metadata = self.gguf.metadata();
            let value = metadata.get(key);
            let neutral = match name {
                CAUSAL => value == Some(&GgufValue::Bool(true)),
                _ => WITHOUT_EFFECT.contains(&name) || value.is_some_and(is_zero),
            };
            if !neutral && !used.contains(key) {
                let supported = if name == CAUSAL { "`true`" } else { "`0`, or no such key" };
                return Err(metadata.refuse(key, format!("{supported} (for this architecture)")).into());
            }
        }
        Ok(self.config)
    }
}

/// The token embedding.
pub(super) const EMBEDDING: &str = "token_embd.weight";
/// The head, if it is not the embedding.
pub(super) const HEAD: &str = "output.weight";

/// Whether a value is zero, false or empty.
fn is_zero(value: &GgufValue) -> bool {
    match value {
        GgufValue::Bool(set) => !set,
        GgufValue::String(text) => text.is_empty(),
        GgufValue::Array(list) => list.len() == 0,
        GgufValue::F32(number) => *number == 0.0,
        GgufValue::F64(number) => *number == 0.0,
        GgufValue::U8(number) => *number == 0,
        GgufValue::I8(number) => *number == 0,
        GgufValue::U16(number) => *number == 0,
        GgufValue::I16(number) => *number == 0,
        GgufValue::U32(number) => *number == 0,
        GgufValue::I32(number) => *number == 0,
        GgufValue::U64(number) => *number == 0,
        GgufValue::I64(number) => *number == 0,
    }
}
