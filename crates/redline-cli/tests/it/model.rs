//! Where models are found.

use std::fs;

use crate::checkpoint::{Copy, copy_to};
use crate::harness::{bits, command, finish, score};

const SCORE: &[&str] = &["score", "--json", "--query", "And the", "--item", " king", "--label-id", "7"];

#[test]
fn a_directory_scores_as_the_embedded_model_does() {
    let copy = Copy::new();
    let embedded = score(&SCORE[2..]);
    let mut from_directory = command(SCORE);
    let directory = finish(from_directory.args(["--model", copy.dir()]).output().unwrap()).ok().scoring();
    assert_eq!(bits(&directory), bits(&embedded));
    let name = std::path::Path::new(copy.dir()).file_name().unwrap().to_str().unwrap();
    assert_eq!((&*directory.model, &*embedded.model), (name, "demo"));
}

#[test]
fn a_model_in_the_hub_cache_goes_by_its_id() {
    for (variable, below) in [
        ("HF_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let model = root.path().join(below).join("models--someone--small");
        let snapshot = model.join("snapshots/0123456789abcdef");
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(model.join("refs")).unwrap();
        fs::write(model.join("refs/main"), "0123456789abcdef").unwrap();
        copy_to(&snapshot);
        let mut from_cache = command(SCORE);
        from_cache.args(["--model", "someone/small"]).env(variable, root.path());
        assert_eq!(finish(from_cache.output().unwrap()).ok().scoring().model, "someone/small", "{variable}");
    }
}
