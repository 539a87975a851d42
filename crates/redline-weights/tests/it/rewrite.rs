//! Checkpoints that are written again: other files with the same tensors.

use std::fs;
use std::path::Path;

use redline_weights::{Checkpoint, DirWriter, Dtype, TensorDeclaration, WeightsError};
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

/// A tensor longer than what is read at once, 1 MiB.
#[test]
fn a_long_tensor_comes_in_pieces_and_in_order() {
    let work = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..700_001).map(|i| i as f32).collect();
    let declared = [TensorDeclaration::new("w", Dtype::F32, [values.len()])];
    let mut dir = DirWriter::create(&work.path().join("from")).unwrap();
    dir.safetensors("model.safetensors", &declared, |writer| writer.write_f32(&values)).unwrap();
    dir.finish().unwrap();
    let from = Checkpoint::open(&work.path().join("from")).unwrap();
    let mut lengths = Vec::new();
    let read: Result<(), WeightsError> = from.read_raw("w", |raw| {
        lengths.push(raw.len());
        Ok(())
    });
    read.unwrap();
    assert_eq!(lengths, [1 << 20, 1 << 20, 4 * values.len() - (2 << 20)]);
    rewritten(&from, &work.path().join("to"));
    let mut again = vec![0.0; values.len()];
    Checkpoint::open(&work.path().join("to")).unwrap().read_f32("w", &mut again).unwrap();
    assert!(again == values);
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
