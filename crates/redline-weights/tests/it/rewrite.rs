//! Checkpoints that are written again: other files with the same tensors.

use std::fs;
use std::path::Path;

use redline_weights::{Checkpoint, DirWriter, WeightsError};
use serde_json::Value;

/// Writes the tensors of a checkpoint again as they are. Returns the names of the files.
fn rewritten(from: &Checkpoint, to: &Path) -> Vec<String> {
    let mut dir = DirWriter::create(to).unwrap();
    let written: Result<(), WeightsError> =
        from.rewrite(&mut dir, |info, writer| from.read_raw(&info.name, |raw: &[u8]| writer.write_raw(raw)));
    written.unwrap();
    dir.finish().unwrap();
    let entries = fs::read_dir(to).unwrap().map(|entry| entry.unwrap().file_name().display().to_string());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

#[test]
fn files_of_pytorch_become_safetensors_files_with_the_same_tensors() {
    let torch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/torch");
    let work = tempfile::tempdir().unwrap();
    let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let sharded = [&shards[..], &["model.safetensors.index.json"]].concat();
    for (name, files) in
        [("single", vec!["model.safetensors"]), ("wide", vec!["model.safetensors"]), ("sharded", sharded)]
    {
        let from = Checkpoint::open(&torch.join(name)).unwrap();
        let to = work.path().join(name);
        assert_eq!(rewritten(&from, &to), files, "{name}");
        let again = Checkpoint::open(&to).unwrap();
        assert_eq!(again.digest().unwrap(), from.digest().unwrap(), "{name}");
        let second = work.path().join(format!("{name}-again"));
        assert_eq!(rewritten(&again, &second), files, "{name}");
        for file in files {
            assert_eq!(
                fs::read(to.join(file)).unwrap(),
                fs::read(second.join(file)).unwrap(),
                "{name}/{file}"
            );
        }
    }
    let index = fs::read(work.path().join("sharded/model.safetensors.index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let all = Checkpoint::open(&torch.join("sharded")).unwrap();
    let bytes: u64 =
        all.names().filter_map(|name| all.info(name)).map(redline_weights::TensorInfo::bytes).sum();
    assert_eq!(index["metadata"]["total_size"], bytes);
    assert_eq!(index["weight_map"].as_object().unwrap().len(), all.names().count());
}
