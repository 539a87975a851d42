//! `--require-signed`: models signed with minisign by `tests/golden/sign.sh`, and others.

use std::fs;
use std::path::Path;

use crate::harness::{command, finish, redline};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/signed/minisign.pub");

fn copy(from: &str, to: &Path) {
    for entry in fs::read_dir(Path::new(GOLDEN).join(from)).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "minisign.pub" {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

const SCORE: &[&str] = &["score", "--query-ids", "1", "--item-ids", "2", "--label-id", "3", "--model"];

#[test]
fn only_a_signed_model_is_loaded() {
    let work = tempfile::tempdir().unwrap();
    let dir = work.path().join("model");
    fs::create_dir(&dir).unwrap();
    copy("llama-b", &dir);
    let model = dir.to_str().unwrap();
    let with_key = |args: &[&str]| redline(&[args, &["--require-signed", KEY]].concat());
    let unsigned = redline(&[SCORE, &[model]].concat()).ok();
    with_key(&[SCORE, &[model]].concat()).failed(&["there is no `SHA256SUMS`", model, "minisign -Sm"]);

    copy("signed", &dir);
    let signed = with_key(&[SCORE, &[model]].concat()).ok();
    assert_eq!(signed.out, unsigned.out);
    let typed = fs::read_to_string(KEY).unwrap();
    let typed = typed.lines().last().unwrap();
    redline(&[SCORE, &[model, "--require-signed", typed]].concat()).ok();
    let mut by_variable = command(&[SCORE, &[model]].concat());
    finish(by_variable.env("REDLINE_REQUIRE_SIGNED", typed).output().unwrap()).ok();

    // Every command that reads a model directory checks the signature.
    fs::write(dir.join("chat_template.jinja"), "{{ messages }}").unwrap();
    let packed = work.path().join("packed");
    let packed = packed.to_str().unwrap();
    let text = work.path().join("text");
    fs::write(&text, "1 2 3").unwrap();
    for args in [
        &[SCORE, &[model]].concat()[..],
        &["generate", "--model", model, "--prompt-ids", "1", "--max-new-tokens", "1"],
        &["convert", model, packed, "--format", "w8"],
        &["tokenize", "--model", model, "a"],
        &["bench", "generate", "--model", model, "--profile", "smoke"],
        &["perplexity", "--model", "demo", "--against", model, "--ids", text.to_str().unwrap()],
    ] {
        with_key(args).failed(&["`chat_template.jinja` is not listed in `SHA256SUMS`", model]);
    }
    assert!(!Path::new(packed).exists());
}

#[test]
fn embedded_models_need_no_signature_and_bad_keys_are_refused() {
    let demo = ["score", "--query", "a", "--item", " b", "--label-id", "7", "--model", "demo"];
    redline(&[&demo[..], &["--require-signed", KEY]].concat()).ok();
    for bad in ["RWQ", "/no/such/key", GOLDEN] {
        redline(&[&demo[..], &["--require-signed", bad]].concat()).usage(&["minisign"]);
    }
}
