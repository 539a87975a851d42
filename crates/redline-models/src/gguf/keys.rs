//! A `config.json` in the making, from the metadata of a GGUF file.

use std::cell::RefCell;
use std::collections::BTreeSet;

use redline_weights::{ConfigObject, Gguf, GgufArray, GgufMetadata, GgufTensor, GgufValue, WeightsError};

use crate::ModelError;
use crate::family::MAX_LAYERS;

/// Whether a token sees only those before it; absent: it does.
const CAUSAL: &str = "attention.causal";
/// Keys of an architecture that never change a result.
const WITHOUT_EFFECT: &[&str] =
    &["vocab_size", "rope.scaling.finetuned", "tensor_data_layout", "pooling_type"];

/// A `config.json` in the making. It knows which keys of the metadata have been used.
pub(crate) struct Keys<'a> {
    gguf: &'a Gguf,
    architecture: &'a str,
    used: RefCell<BTreeSet<String>>,
    config: ConfigObject,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(gguf: &'a Gguf, architecture: &'a str) -> Self {
        Self { gguf, architecture, used: RefCell::default(), config: ConfigObject::default() }
    }

    /// The keys of `config.json` so far.
    pub(crate) fn config(&mut self) -> &mut ConfigObject {
        &mut self.config
    }

    pub(super) fn metadata(&self) -> &'a GgufMetadata {
        self.gguf.metadata()
    }

    /// Says that the model is one of another architecture, whose files have the same name.
    pub(crate) fn rename(&mut self, architecture: &str, model_type: &str) {
        self.config.set("architectures", vec![architecture]);
        self.config.set("model_type", model_type);
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

    /// The error about a file that is not supported.
    pub(crate) fn unsupported(&self, fact: String) -> ModelError {
        ModelError::Config { fact, file: self.gguf.origin().display().to_string() }
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

    /// A count of each layer: a list, or one number for all.
    pub(crate) fn counts(&self, name: &str) -> Result<Vec<u32>, ModelError> {
        let (key, layers) = (self.key(name), self.layers()?);
        match self.metadata().get(&key) {
            Some(GgufValue::Array(list)) if list.len() != layers => {
                Err(self.refuse(name, format!("a number for each of {layers} layers")))
            }
            Some(GgufValue::Array(_)) => Ok(self.metadata().u32s(&key)?),
            _ => Ok(vec![self.count(name)?; layers]),
        }
    }

    /// A boolean, if it is given.
    pub(crate) fn opt_bool(&self, name: &str) -> Result<Option<bool>, ModelError> {
        let key = self.key(name);
        match self.metadata().get(&key) {
            None => Ok(None),
            Some(GgufValue::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.refuse(name, "`true` or `false`")),
        }
    }

    /// Accepts keys that do not change the result of this model.
    pub(crate) fn leave_out(&self, names: &[&str]) {
        for name in names {
            self.key(name);
        }
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
    pub(crate) fn opt_text(&self, name: &str) -> Result<Option<&'a str>, ModelError> {
        Ok(self.metadata().opt_string(&self.key(name))?)
    }

    /// Copies numbers that are given: pairs of a key of the metadata and one of `config.json`.
    pub(crate) fn copy_numbers(&mut self, names: &[(&str, &str)]) -> Result<(), ModelError> {
        for (name, key) in names {
            if let Some(number) = self.opt_number(name)? {
                self.config.set(key, f64::from(number));
            }
        }
        Ok(())
    }

    /// Copies counts that every model of the architecture has: pairs of a key of the metadata and one of `config.json`.
    pub(crate) fn copy_counts(&mut self, names: &[(&str, &str)]) -> Result<(), ModelError> {
        for (name, key) in names {
            let count = self.count(name)?;
            self.config.set(key, count);
        }
        Ok(())
    }

    /// Number of layers without those at the end that predict further tokens, which are not read.
    pub(crate) fn own_layers(&self) -> Result<usize, ModelError> {
        const FURTHER: &str = "nextn_predict_layers";
        let further = self.opt_count(FURTHER)?.unwrap_or(0) as usize;
        let own = self.layers()?.checked_sub(further).filter(|layers| *layers > 0);
        own.ok_or_else(|| self.refuse(FURTHER, "fewer than `block_count`"))
    }

    /// Number of heads of a recurrence, and the width of each.
    pub(crate) fn recurrent_heads(&self) -> Result<(u32, u32), ModelError> {
        const INNER: &str = "ssm.inner_size";
        let (inner, heads) = (self.count(INNER)?, self.count("ssm.time_step_rank")?);
        if heads == 0 || inner % heads != 0 {
            return Err(self.refuse(INNER, format!("a multiple of `ssm.time_step_rank`, {heads}")));
        }
        Ok((heads, inner / heads))
    }

    /// Whether each layer has a window: a list, or a number n, which stands for full attention in every nth layer only; 0: in no layer.
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

    /// Whether each layer is a recurrence: a list, or a number n, which stands for all but every nth layer.
    pub(crate) fn recurs(&self, layers: usize) -> Result<Vec<bool>, ModelError> {
        const NAME: &str = "attention.recurrent_layers";
        let interval = self.opt_count("full_attention_interval")?.unwrap_or(4);
        let key = self.key(NAME);
        match self.metadata().get(&key) {
            None if interval > 0 => {
                Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval as usize)).collect())
            }
            None => Err(self.refuse("full_attention_interval", "a number of at least 1")),
            Some(GgufValue::Array(GgufArray::Bool(listed))) if listed.len() >= layers => {
                Ok(listed[..layers].to_vec())
            }
            Some(_) => Err(self.refuse(NAME, format!("a list of booleans for {layers} layers"))),
        }
    }

    /// Sets `layer_types` to what [`Keys::slides`] returns.
    pub(crate) fn set_layer_types(&mut self, slides: &[bool]) {
        let name = |slides: &bool| if *slides { "sliding_attention" } else { "full_attention" };
        self.config.set("layer_types", slides.iter().map(name).collect::<Vec<_>>());
    }

    /// Number of layers.
    pub(crate) fn layers(&self) -> Result<usize, ModelError> {
        let layers = self.count("block_count")? as usize;
        if layers > MAX_LAYERS {
            return Err(self.refuse("block_count", format!("at most {MAX_LAYERS}")));
        }
        Ok(layers)
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
        Ok(self.gguf.tensor(EMBEDDING).map(GgufTensor::rows).ok_or_else(|| {
            let (tensor, file) = (EMBEDDING.to_owned(), self.gguf.origin().to_owned());
            WeightsError::MissingTensor { tensor, file }
        })?)
    }

    /// The id of the padding token. Files of RoBERTa's family leave out the positions up to it; without an id, the converter keeps them.
    pub(crate) fn padding(&self) -> Result<u32, ModelError> {
        const PADDING: &str = "tokenizer.ggml.padding_token_id";
        let (id, vocab) = (self.metadata().u32(PADDING)?, self.vocab()?);
        if (id as usize) < vocab {
            return Ok(id);
        }
        Err(self.metadata().refuse(PADDING, format!("an id below {vocab}, the number of tokens")).into())
    }

    /// Rows of the embedding of token types.
    pub(crate) fn token_types(&self) -> usize {
        self.gguf.tensor(TYPES).map_or(1, GgufTensor::rows)
    }

    /// Sets the classes, if the file has a classifier. Returns whether it has one.
    pub(crate) fn set_classes(&mut self) -> Result<bool, ModelError> {
        let key = self.key("classifier.output_labels");
        let Some(tensor) = self.gguf.tensor(&format!("{CLASSES}.weight")) else { return Ok(false) };
        let (count, labels) = (tensor.rows(), self.metadata().strings(&key)?);
        if labels.len() == count {
            let mut named = ConfigObject::default();
            for (id, label) in labels.into_iter().enumerate() {
                named.set(&id.to_string(), label);
            }
            self.config.set("id2label", named);
        } else {
            self.config.set("num_labels", count);
        }
        Ok(true)
    }

    /// Refuses a file without the layer of a classifier before the last one.
    pub(crate) fn require_classifier(&self) -> Result<(), ModelError> {
        let tensor = format!("{CLASSIFIER}.weight");
        if self.has(&tensor) {
            return Ok(());
        }
        let fact = format!(
            "there is `{CLASSES}.weight`, but not `{tensor}`, the layer before it, which llama.cpp's converter leaves out of \
             `BertForSequenceClassification`; take the checkpoint that the file was made from"
        );
        Err(self.unsupported(fact))
    }

    /// Sets a key of `config.json` to whether the file has a tensor.
    pub(crate) fn set_presence(&mut self, key: &str, tensor: &str) {
        let has = self.has(tensor);
        self.config.set(key, has);
    }

    /// Whether the file has a tensor of this name.
    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.gguf.tensor(tensor).is_some()
    }

    /// The values of a tensor of at most `most` values, if the file has it.
    pub(crate) fn values(&self, tensor: &str, most: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(found) = self.gguf.tensor(tensor) else { return Ok(None) };
        if found.elements() > most {
            let fact = format!("`{tensor}` has {} values; at most {most} are supported", found.elements());
            return Err(self.unsupported(fact));
        }
        let mut values = vec![0.0; found.elements()];
        self.gguf.read_f32(tensor, &mut values)?;
        Ok(Some(values))
    }

    /// Accepts attention to tokens on both sides.
    pub(crate) fn sees_both_sides(&self) {
        self.key(CAUSAL);
    }

    /// Whether tokens see those on both sides.
    pub(crate) fn is_encoder(&self) -> Result<bool, ModelError> {
        Ok(self.opt_bool(CAUSAL)? == Some(false))
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

    /// The finished object. Refuses keys of the architecture that have not been used and may change the result: any but those that are
    /// zero, false or empty.
    pub(crate) fn finish(self) -> Result<ConfigObject, ModelError> {
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
/// The embedding of token types.
pub(super) const TYPES: &str = "token_types.weight";
/// The layer of a classifier with an output for each class, and the one before it, up to `.weight`.
pub(super) const CLASSES: &str = "cls.output";
pub(super) const CLASSIFIER: &str = "cls";

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
