//! Reads a model directory: the tokenizer files, and the configuration of special tokens.

use crate::{
    AddedToken, ByteLevelOptions, ChatTemplate, Encoder, Split, Tokenizer, TokenizerError, byte_level, chat,
    file::{read, read_at_most},
    json,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// The tokenizer classes whose `vocab.json` and `merges.txt` can be read, without the suffix `Fast`.
const CLASSES: [(&str, Split); 4] = [
    ("GPT2Tokenizer", Split::Gpt2),
    ("CodeGenTokenizer", Split::Gpt2),
    ("Qwen2Tokenizer", Split::Qwen2),
    ("DreamTokenizer", Split::Qwen2),
];

/// The `model_type`s of `config.json` that split like Qwen2, for directories without a tokenizer class.
const QWEN2_MODELS: [&str; 3] = ["qwen2", "qwen3", "Dream"];

/// The default special token of GPT-2 and its descendants.
const END_OF_TEXT: &str = "<|endoftext|>";

const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
const LISTED: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

impl Tokenizer {
    /// Loads the tokenizer of a model directory: `tokenizer.json` if it exists, else `vocab.json` and `merges.txt`.
    /// In the second case, `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` define added
    /// tokens, special tokens, BOS and EOS.
    pub fn from_dir(dir: &Path) -> Result<Self, TokenizerError> {
        Self::from_dir_with(dir, Encoder::default())
    }

    /// Like [`from_dir`](Self::from_dir), with a chosen encoder.
    pub fn from_dir_with(dir: &Path, encoder: Encoder) -> Result<Self, TokenizerError> {
        load(dir, encoder)
    }
}

impl ChatTemplate {
    /// Reads the template of a model directory: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`, which is a text or
    /// a list of templates with names. A template named `tool_use` applies if tools are given; it can also be the file `tool_use.jinja`
    /// in the folder `additional_chat_templates` or `chat_templates`. `None` if there is no template.
    pub fn from_dir(dir: &Path) -> Result<Option<Self>, TokenizerError> {
        chat_template(dir)
    }

    /// Reads a template from a file of its own. The special tokens are those of the model directory, if there is one.
    pub fn from_file(path: &Path, dir: Option<&Path>) -> Result<Self, TokenizerError> {
        let tokens = dir.map(|dir| Config::read(dir)?.named_tokens()).transpose()?.unwrap_or_default();
        Self::from_file_with(path, tokens)
    }

    /// Like [`from_file`](Self::from_file), with special tokens by their names.
    pub(crate) fn from_file_with(
        path: &Path,
        tokens: BTreeMap<String, String>,
    ) -> Result<Self, TokenizerError> {
        let bytes = read_at_most(path)?;
        let (place, source) = text(path, bytes)?;
        Self::new(&place, &source, tokens)
    }
}

fn load(dir: &Path, encoder: Encoder) -> Result<Tokenizer, TokenizerError> {
    if let Some(bytes) = read(&dir.join("tokenizer.json"))? {
        return Tokenizer::from_bytes_with(&place(dir, "tokenizer.json"), &bytes, encoder);
    }
    let (vocab, merges) = match (read(&dir.join("vocab.json"))?, read(&dir.join("merges.txt"))?) {
        (Some(vocab), Some(merges)) => (vocab, merges),
        (vocab, merges) => {
            let found = [vocab.map(|_| "vocab.json"), merges.map(|_| "merges.txt")];
            let found = found.into_iter().flatten().collect();
            return Err(TokenizerError::NotFound { dir: dir.to_owned(), found });
        }
    };
    let vocab = json::vocab(&place(dir, "vocab.json"), &vocab)?;
    let merges = json::merges(&place(dir, "merges.txt"), &merges)?;
    let options = Config::read(dir)?.options(vocab.iter().any(|(token, _)| token == END_OF_TEXT))?;
    byte_level::build(&dir.display().to_string(), vocab, merges, &options, encoder)
}

/// Folders of templates beside `chat_template.jinja`. The first is that of transformers.
const TEMPLATE_FOLDERS: [&str; 2] = ["additional_chat_templates", "chat_templates"];

/// Templates by name, each as its place and its source.
type Sources = BTreeMap<String, (String, String)>;

/// The chat template of a directory, if it has one.
fn chat_template(dir: &Path) -> Result<Option<ChatTemplate>, TokenizerError> {
    let config = Config::read(dir)?;
    let tokens = config.named_tokens()?;
    let path = dir.join("chat_template.jinja");
    let mut sources = match read(&path)? {
        Some(bytes) => Sources::from([("default".to_owned(), text(&path, bytes)?)]),
        None => config.chat_templates()?,
    };
    for folder in TEMPLATE_FOLDERS {
        for name in chat::NAMES {
            let path = dir.join(folder).join(format!("{name}.jinja"));
            if let Some(bytes) = read(&path)? {
                sources.insert(name.to_owned(), text(&path, bytes)?);
            }
        }
    }
    if sources.is_empty() {
        return Ok(None);
    }
    if !sources.contains_key("default") {
        return Err(config.wrong("chat_template", "a text, or a list with one named `default`"));
    }
    ChatTemplate::of_several(sources, tokens).map(Some)
}

/// The configuration files beside `vocab.json` and `merges.txt`. A missing file is an empty object.
struct Config {
    /// The place named in messages: `tokenizer_config.json`.
    place: String,
    tokenizer: Map<String, Value>,
    special: Map<String, Value>,
    added: Map<String, Value>,
    model: Map<String, Value>,
}

impl Config {
    fn read(dir: &Path) -> Result<Self, TokenizerError> {
        let object = |name: &str| match read(&dir.join(name))? {
            Some(bytes) => json::parse(&place(dir, name), &bytes),
            None => Ok(Map::new()),
        };
        let mut config = Self {
            place: place(dir, "tokenizer_config.json"),
            tokenizer: object("tokenizer_config.json")?,
            special: Map::new(),
            added: Map::new(),
            model: object("config.json")?,
        };
        // The two older files count only if the newer one does not list the added tokens.
        if !config.tokenizer.contains_key("added_tokens_decoder") {
            config.special = object("special_tokens_map.json")?;
            config.added = object("added_tokens.json")?;
        }
        Ok(config)
    }

    /// The special tokens that have a name, such as `bos_token`.
    fn named_tokens(&self) -> Result<BTreeMap<String, String>, TokenizerError> {
        let given = NAMED.into_iter().filter_map(|name| Some((name, self.get(name)?)));
        let tokens = given.filter(|(_, value)| !value.is_null());
        tokens.map(|(name, value)| Ok((name.to_owned(), self.token(name, value)?.content))).collect()
    }

    /// The templates of `chat_template`.
    fn chat_templates(&self) -> Result<Sources, TokenizerError> {
        let wrong = || self.wrong("chat_template", "a text, or a list with one named `default`");
        let source = |source: &str| (self.place.clone(), source.to_owned());
        match self.tokenizer.get("chat_template") {
            None | Some(Value::Null) => Ok(Sources::new()),
            Some(Value::String(text)) => Ok(Sources::from([("default".to_owned(), source(text))])),
            Some(Value::Array(several)) => {
                let known = several.iter().filter_map(|one| Some((one["name"].as_str()?, &one["template"])));
                let known = known.filter(|(name, _)| chat::NAMES.contains(name));
                let sources: Sources = known
                    .map(|(name, text)| Ok((name.to_owned(), source(text.as_str().ok_or_else(wrong)?))))
                    .collect::<Result<_, _>>()?;
                if sources.contains_key("default") { Ok(sources) } else { Err(wrong()) }
            }
            Some(_) => Err(wrong()),
        }
    }

    fn options(&self, has_end_of_text: bool) -> Result<ByteLevelOptions, TokenizerError> {
        let split = self.split()?;
        let mut added = self.stated()?;
        for token in self.specials()? {
            enter(&mut added, token);
        }
        if has_end_of_text && self.get("eos_token").is_none() {
            enter(&mut added, AddedToken::special(END_OF_TEXT));
        }
        // Qwen2 has no BOS by default.
        let bos = if split == Split::Gpt2 { Some(END_OF_TEXT) } else { None };
        Ok(ByteLevelOptions {
            split,
            add_prefix_space: self.flag("add_prefix_space")?,
            prefix: self.around("add_bos_token", "bos_token", bos)?,
            suffix: self.around("add_eos_token", "eos_token", Some(END_OF_TEXT))?,
            added,
        })
    }

    fn split(&self) -> Result<Split, TokenizerError> {
        let Some(class) = self.tokenizer.get("tokenizer_class").and_then(Value::as_str) else {
            let model = self.model.get("model_type").and_then(Value::as_str).unwrap_or("");
            return Ok(if QWEN2_MODELS.contains(&model) { Split::Qwen2 } else { Split::Gpt2 });
        };
        let name = class.strip_suffix("Fast").unwrap_or(class);
        let split = CLASSES.iter().find(|(known, _)| *known == name).map(|(_, split)| *split);
        split.ok_or_else(|| TokenizerError::Unsupported {
            place: self.place.clone(),
            part: "tokenizer class",
            found: class.to_owned(),
            known: format!("`{}`", CLASSES.map(|(name, _)| name).join("`, `")),
        })
    }

    /// The added tokens with a given id.
    fn stated(&self) -> Result<Vec<AddedToken>, TokenizerError> {
        let mut tokens = Vec::new();
        if let Some(decoder) = self.tokenizer.get("added_tokens_decoder") {
            let entries = decoder.as_object();
            let entries = entries.ok_or_else(|| self.wrong("added_tokens_decoder", "an object"))?;
            for (id, value) in entries {
                let id = id.parse().map_err(|_| self.wrong("added_tokens_decoder", "keyed by ids"))?;
                tokens.push(self.token("added_tokens_decoder", value)?.with_id(id));
            }
        }
        for (content, id) in &self.added {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let id = id.ok_or_else(|| {
                let place = self.place.replace("tokenizer_config.json", "added_tokens.json");
                json::form(&place, format!("the id of `{content}` is not a number of 32 bits"))
            })?;
            let plain = AddedToken { special: false, normalized: true, ..AddedToken::special(content) };
            tokens.push(plain.with_id(id));
        }
        tokens.sort_by_key(|token| token.id);
        Ok(tokens)
    }

    /// The special tokens by role; most have their id from another file.
    fn specials(&self) -> Result<Vec<AddedToken>, TokenizerError> {
        let mut tokens = Vec::new();
        for name in NAMED {
            if let Some(value) = self.get(name).filter(|value| !value.is_null()) {
                tokens.push(self.token(name, value)?);
            }
        }
        for name in LISTED {
            match self.get(name) {
                None | Some(Value::Null) => {}
                Some(Value::Array(list)) => {
                    for value in list {
                        tokens.push(self.token(name, value)?);
                    }
                }
                Some(Value::Object(map)) => {
                    for value in map.values() {
                        tokens.push(self.token(name, value)?);
                    }
                }
                Some(_) => return Err(self.wrong(name, "a list of tokens")),
            }
        }
        Ok(tokens)
    }

    /// Parses a token written as a string or as an object with flags.
    fn token(&self, name: &str, value: &Value) -> Result<AddedToken, TokenizerError> {
        match value {
            Value::String(content) => Ok(AddedToken::special(content)),
            Value::Object(_) => {
                let mut value = value.clone();
                // The place makes it special; only `added_tokens_decoder` has the flag.
                if name != "added_tokens_decoder" {
                    value["special"] = true.into();
                }
                serde_json::from_value(value).map_err(|error| self.wrong(name, &format!("a token: {error}")))
            }
            _ => Err(self.wrong(name, "a token")),
        }
    }

    /// The token to put before or after every text, if any.
    fn around(&self, add: &str, name: &str, otherwise: Option<&str>) -> Result<Vec<String>, TokenizerError> {
        if !self.flag(add)? {
            return Ok(Vec::new());
        }
        let token = match self.get(name) {
            None => otherwise.map(str::to_owned),
            Some(Value::Null) => None,
            Some(value) => Some(self.token(name, value)?.content),
        };
        Ok(token.into_iter().collect())
    }

    fn flag(&self, name: &str) -> Result<bool, TokenizerError> {
        match self.tokenizer.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(name, "true or false")),
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.special.get(name).or_else(|| self.tokenizer.get(name))
    }

    fn wrong(&self, name: &str, expected: &str) -> TokenizerError {
        json::form(&self.place, format!("`{name}` is not {expected}"))
    }
}

/// Adds a special token, or marks an existing token as special.
fn enter(tokens: &mut Vec<AddedToken>, token: AddedToken) {
    match tokens.iter_mut().find(|there| there.content == token.content) {
        Some(there) if there.special => {}
        // The token is from `added_tokens.json`, which has no flags.
        Some(there) => (there.special, there.normalized) = (true, false),
        None => tokens.push(token),
    }
}

fn place(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

/// The place and the text of a file.
fn text(path: &Path, bytes: Vec<u8>) -> Result<(String, String), TokenizerError> {
    let place = path.display().to_string();
    match String::from_utf8(bytes) {
        Ok(text) => Ok((place, text)),
        Err(error) => Err(TokenizerError::NotUtf8 { place, offset: error.utf8_error().valid_up_to() }),
    }
}
