//! `synth`.

use crate::harness::redline;

#[test]
fn a_folder_with_something_in_it_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), "mine").unwrap();
    let run = redline(&["synth", "gpt2", folder.path().to_str().unwrap()]);
    run.failed(&[folder.path().to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(folder.path().join("config.json")).unwrap(), "mine");
}
