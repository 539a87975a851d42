//! The typed getters of a configuration file, and their error messages.

use std::path::Path;

use redline_weights::{ConfigFile, Result};

use crate::check;

const CONFIG: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096, "head_dim": null,
    "rms_norm_eps": 1e-05, "rope_theta": 500000, "tie_word_embeddings": false, "eos_token_id": [128001, 128009],
    "bos_token_id": 128000, "pad_token_id": -1, "vocab_size": 128256.0, "big": 1e39,
    "rope_scaling": {"rope_type": "llama3", "factor": "8", "inner": {"high": true}}
}"#;

fn config() -> ConfigFile {
    ConfigFile::from_bytes("config.json", CONFIG.as_bytes()).unwrap()
}

fn says<T: std::fmt::Debug>(result: Result<T>, expect: &str) {
    check(result, Path::new("DIR"), expect);
}

#[test]
fn values_of_every_type() {
    let config = config();
    assert_eq!(config.usize("hidden_size").unwrap(), 4096);
    assert_eq!((config.usize_or("head_dim", 64).unwrap(), config.usize_or("absent", 7).unwrap()), (64, 7));
    assert_eq!(
        (config.opt_usize("head_dim").unwrap(), config.opt_usize("hidden_size").unwrap()),
        (None, Some(4096))
    );
    assert_eq!((config.f32("rms_norm_eps").unwrap(), config.f32("rope_theta").unwrap()), (1e-5, 500000.0));
    assert_eq!((config.f32_or("absent", 0.5).unwrap(), config.opt_f32("head_dim").unwrap()), (0.5, None));
    assert_eq!((config.f64("big").unwrap(), config.f64_or("absent", 2.0).unwrap()), (1e39, 2.0));
    assert_eq!(
        (config.bool_or("tie_word_embeddings", true).unwrap(), config.opt_bool("x").unwrap()),
        (false, None)
    );
    assert_eq!((config.str("hidden_act").unwrap(), config.opt_str("absent").unwrap()), ("silu", None));
    assert_eq!(config.strings("architectures").unwrap(), ["LlamaForCausalLM"]);
    assert!(config.strings("absent").unwrap().is_empty());
    assert_eq!(config.ids("eos_token_id").unwrap(), [128001, 128009]);
    assert_eq!(config.ids("bos_token_id").unwrap(), [128000]);
    assert!(config.ids("head_dim").unwrap().is_empty());
    assert!(config.object("absent").unwrap().is_none());
    assert_eq!(config.keys().count(), 13);
    assert_eq!(config.file(), Path::new("config.json"));
}

/// As Python writes it, and nowhere else.
#[test]
fn infinity_is_read_as_a_number_of_a_list() {
    let read =
        |json: &str| ConfigFile::from_bytes("config.json", json.as_bytes())?.numbers_or_infinity("limits");
    let infinite = r#"{"a": "\"Infinity", "limits": [0.0, Infinity], "b": "[Infinity]"}"#;
    assert_eq!(read(infinite).unwrap(), [0.0, f64::INFINITY]);
    let config = ConfigFile::from_bytes("config.json", infinite.as_bytes()).unwrap();
    assert_eq!((config.str("a").unwrap(), config.str("b").unwrap()), ("\"Infinity", "[Infinity]"));
    says(
        config.numbers("limits"),
        "`limits` is [0.0,\"∞\"], but a list of numbers is needed\n  in `config.json`",
    );
    for wrong in ["-Infinity", "NaN", "Infinit", "Infinity1", "\\Infinity"] {
        let error = read(&format!("{{\"limits\": [0.0, {wrong}]}}")).unwrap_err().to_string();
        assert!(error.contains("line 1 column"), "{wrong}: {error}");
    }
}

#[test]
fn a_missing_key() {
    says(config().usize("num_hidden_layers"), "the key `num_hidden_layers` is missing\n  in `config.json`");
    says(config().usize("head_dim"), "the key `head_dim` is missing\n  in `config.json`");
    says(config().f32("absent"), "the key `absent` is missing\n  in `config.json`");
    says(config().str("absent"), "the key `absent` is missing\n  in `config.json`");
}

#[test]
fn a_wrong_type_is_an_error_even_with_a_default() {
    let config = config();
    let place = "\n  in `config.json`";
    let whole = "but a whole number of 0 or more is needed";
    says(config.usize_or("vocab_size", 1), &format!("`vocab_size` is 128256.0, {whole}{place}"));
    says(config.usize_or("pad_token_id", 1), &format!("`pad_token_id` is -1, {whole}{place}"));
    says(config.opt_usize("hidden_act"), &format!("`hidden_act` is \"silu\", {whole}{place}"));
    says(
        config.f32_or("big", 1.0),
        &format!("`big` is 1e+39, but a number in the range of f32 is needed{place}"),
    );
    says(config.f64("hidden_act"), &format!("`hidden_act` is \"silu\", but a number is needed{place}"));
    says(
        config.bool_or("rope_theta", true),
        &format!("`rope_theta` is 500000, but true or false is needed{place}"),
    );
    says(config.opt_str("rope_theta"), &format!("`rope_theta` is 500000, but a string is needed{place}"));
    let ids = "but a token id or a list of token ids is needed";
    says(config.ids("pad_token_id"), &format!("`pad_token_id` is -1, {ids}{place}"));
    says(config.ids("architectures"), &format!("`architectures` is [\"LlamaForCausalLM\"], {ids}{place}"));
    let strings = "but a list of strings is needed";
    says(config.strings("eos_token_id"), &format!("`eos_token_id` is [128001,128009], {strings}{place}"));
    says(config.object("hidden_size"), &format!("`hidden_size` is 4096, but an object is needed{place}"));
}

#[test]
fn errors_in_an_inner_object_name_the_way_to_it() {
    let scaling = config().object("rope_scaling").unwrap().unwrap();
    assert_eq!(scaling.str("rope_type").unwrap(), "llama3");
    says(
        scaling.f32("factor"),
        "`rope_scaling.factor` is \"8\", but a number in the range of f32 is needed\n  in `config.json`",
    );
    let inner = scaling.object("inner").unwrap().unwrap();
    says(inner.usize("low"), "the key `rope_scaling.inner.low` is missing\n  in `config.json`");
}

#[test]
fn an_unsupported_value() {
    let config = config();
    let refused = config.refuse("hidden_act", "`gelu`");
    says(Err::<(), _>(refused), "`hidden_act` is \"silu\", but only `gelu` is supported\n  in `config.json`");
    let refused = config.object("rope_scaling").unwrap().unwrap().refuse("type", "`linear`");
    says(
        Err::<(), _>(refused),
        "`rope_scaling.type` is absent, but only `linear` is supported\n  in `config.json`",
    );
}

#[test]
fn a_file_that_is_no_config() {
    let parse = |json: &str| ConfigFile::from_bytes("c.json", json.as_bytes());
    let place = "\n  in `c.json`";
    says(parse(""), &format!("not a JSON object: EOF while parsing a value at line 1 column 0{place}"));
    says(parse("[1]"), &format!("not a JSON object: [1]{place}"));
    says(parse("{} {}"), &format!("not a JSON object: trailing characters at line 1 column 4{place}"));
    let twice = r#"{"a": {"b": 1, "b": 2}}"#;
    says(parse(twice), &format!("not a JSON object: the key `b` stands twice at line 1 column 18{place}"));
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    says(parse(&deep), &format!("not a JSON object: recursion limit exceeded at line 1 column 132{place}"));
    assert!(ConfigFile::from_bytes("c.json", b"{\"\xff\":1}").is_err());
}

#[test]
fn a_file_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    let expect = "cannot open the file: No such file or directory (os error 2)\n  in `DIR/config.json`";
    check(ConfigFile::open(&path), dir.path(), expect);
    std::fs::write(&path, CONFIG).unwrap();
    assert_eq!(ConfigFile::open(&path).unwrap().usize("hidden_size").unwrap(), 4096);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let expect = "the file has 1099511627776 bytes, but at most 4194304 are read\n  in `DIR/config.json`";
    check(ConfigFile::open(&path), dir.path(), expect);
}
