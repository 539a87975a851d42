//! Synthetic shapes: every shape describes a model that its architecture accepts.

use redline_kernels::Format;
use redline_models::synth::{self, SHAPES};

#[test]
fn names_are_unique_and_found() {
    for (i, shape) in SHAPES.iter().enumerate() {
        assert_eq!(synth::find(shape.name).unwrap().vocab, shape.vocab);
        assert!(SHAPES[..i].iter().all(|s| s.name != shape.name));
    }
    let hint = synth::find("gpt5").unwrap_err().hint().unwrap();
    assert!(SHAPES.iter().all(|s| hint.contains(s.name)));
}

#[test]
fn a_destination_with_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("keep"), "me").unwrap();
    let error = synth::write(synth::find("gpt2").unwrap(), dir.path(), Format::F32, 0, b"{}").unwrap_err();
    assert!(error.to_string().contains("not empty"), "{error}");
    assert_eq!(std::fs::read_to_string(dir.path().join("keep")).unwrap(), "me");
}
