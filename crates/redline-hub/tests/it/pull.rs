//! Which files are downloaded, and when.

use std::fs;

use redline_hub::HubError;
use redline_weights::Disk;
use serde_json::json;
use tempfile::tempdir;

use crate::{message, model, options, pull, pull_file, pull_with, resolved};
use redline_testing::hub::{COMMIT, File, ID, TestHub};

const LIST: &str = "GET /api/models/org/name/revision/main?blobs=true 0";

#[test]
fn a_model_is_found_under_its_name_with_the_content_of_the_hub() {
    let (hub, cache) = (TestHub::start(&model()), tempdir().unwrap());
    let dir = pull(&hub, cache.path()).unwrap();
    assert_eq!(resolved(cache.path()).unwrap(), dir);
    let mut names = Vec::new();
    for file in model() {
        if let Ok(content) = fs::read(dir.join(&file.name)) {
            assert_eq!(content, file.content, "{}", file.name);
            names.push(file.name);
        }
    }
    assert_eq!(names, ["config.json", "model.safetensors", "tokenizer.json"]);
}

#[test]
fn what_happens_is_reported_and_what_is_there_is_not_downloaded_again() {
    let (hub, cache) = (TestHub::start(&model()), tempdir().unwrap());
    let pulled = || pull_with(&options(&hub.endpoint), ID, cache.path(), Disk::default());
    let lines = |cached| {
        let done = |file, bytes| format!("Done {{ file: {file:?}, bytes: {bytes}, cached: {cached} }}");
        let start = "Start { files: 3, bytes: 100023 }".to_owned();
        [start, done("tokenizer.json", 2), done("model.safetensors", 100_000), done("config.json", 21)]
    };
    let (dir, seen) = pulled();
    assert_eq!(seen, lines(false));
    let before = hub.requests().len();
    let (again, seen) = pulled();
    assert_eq!((again.unwrap(), seen), (dir.unwrap(), lines(true).to_vec()));
    assert_eq!(hub.paths()[before..], [LIST]);
}

#[test]
fn a_revision_has_a_ref_and_a_commit_has_none() {
    let (hub, cache) = (TestHub::start(&model()), tempdir().unwrap());
    let refs = cache.path().join("models--org--name/refs");
    let pulled = |revision: &str| {
        let id = format!("{ID}@{revision}");
        pull_with(&options(&hub.endpoint), &id, cache.path(), Disk::default()).0
    };
    pulled(COMMIT).unwrap();
    assert!(!refs.exists());
    pulled("refs/pr/1").unwrap();
    assert_eq!(fs::read_to_string(refs.join("refs/pr/1")).unwrap(), COMMIT);
    assert!(resolved(cache.path()).is_err());
    assert_eq!(
        message(pulled("v9"), &hub),
        "the hub answers with status 404 RevisionNotFound: Invalid rev id\n  in `HUB/api/models/org/name/revision/v9?blobs=true`"
    );
}

#[test]
fn the_shards_of_the_index_are_downloaded_and_no_others() {
    let index = json!({"weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors"}}).to_string();
    let mut files = vec![
        File::small("config.json", b"{}"),
        File::small("model.safetensors.index.json", index.as_bytes()),
        File::large("model-1.safetensors", b"one"),
        File::large("model-2.safetensors", b"two"),
        File::large("model-3.safetensors", b"three"),
        File::large("pytorch_model.bin", b"other"),
    ];
    let (hub, cache) = (TestHub::start(&files), tempdir().unwrap());
    let (dir, seen) = pull_with(&options(&hub.endpoint), ID, cache.path(), Disk::default());
    let mut names: Vec<_> =
        fs::read_dir(dir.unwrap()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expect =
        ["config.json", "model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json"];
    assert_eq!(names, expect);
    // The index is downloaded before the others are known, and still counts as downloaded.
    assert!(seen.iter().all(|line| !line.contains("cached: true")), "{seen:?}");

    files.retain(|file| file.name != "model-2.safetensors");
    let (hub, cache) = (TestHub::start(&files), tempdir().unwrap());
    let expect = format!(
        "the answer cannot be used: `model.safetensors.index.json` names `model-2.safetensors`, which the repository does not \
         have\n  in `HUB/org/name/resolve/{COMMIT}/model.safetensors.index.json`"
    );
    assert_eq!(message(pull(&hub, cache.path()), &hub), expect);
    assert!(resolved(cache.path()).is_err());
}

#[test]
fn the_modules_of_an_embedding_model_come_with_it() {
    let list =
        |dense: &str| json!([{"path": ""}, {"path": "1_Pooling"}, {"path": dense}, {"path": "3_Normalize"}]);
    let files = |dense: &str| {
        let mut files = model();
        files.extend([
            File::small("modules.json", list(dense).to_string().as_bytes()),
            File::small("config_sentence_transformers.json", b"{}"),
            File::small("1_Pooling/config.json", b"{\"pooling_mode\": \"cls\"}"),
            File::small("2_Dense/config.json", b"{ }"),
            File::large("2_Dense/model.safetensors", b"dense"),
            File::small("2_Dense/run.py", b"raise SystemExit"),
            File::small("4_Other/config.json", b"{  }"),
        ]);
        files
    };
    let (hub, cache) = (TestHub::start(&files("2_Dense")), tempdir().unwrap());
    let dir = pull(&hub, cache.path()).unwrap();
    for name in [
        "modules.json",
        "config_sentence_transformers.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
    ] {
        let content = files("2_Dense").into_iter().find(|file| file.name == name).unwrap().content;
        assert_eq!(fs::read(dir.join(name)).unwrap(), content, "{name}");
    }
    assert!(!dir.join("2_Dense/run.py").exists() && !dir.join("4_Other").exists());
    for hostile in ["../2_Dense", "/2_Dense", "a/../../b", ".", "a\\b"] {
        let (hub, cache) = (TestHub::start(&files(hostile)), tempdir().unwrap());
        let expect = format!("`modules.json` names the folder `{hostile}`");
        assert!(message(pull(&hub, cache.path()), &hub).contains(&expect), "{hostile}");
        assert!(resolved(cache.path()).is_err(), "{hostile}");
    }
}

#[test]
fn a_model_in_gguf_files_is_chosen_by_name() {
    let files = [
        File::small("README.md", b"# Quantised"),
        File::large("m-Q4_K_M.gguf", b"four"),
        File::large("big/m-Q8_0-00001-of-00002.gguf", b"eight"),
        File::large("big/m-Q8_0-00002-of-00002.gguf", b"bits"),
    ];
    let hub = TestHub::start(&files);
    let pulled = |file: Option<&str>| {
        let cache = tempdir().unwrap();
        let pulled = pull_file(&options(&hub.endpoint), (ID, file), cache.path(), Disk::default()).0;
        (pulled, cache)
    };
    let (path, cache) = pulled(Some("Q8_0"));
    let path = path.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"eight");
    assert_eq!(fs::read(path.with_file_name("m-Q8_0-00002-of-00002.gguf")).unwrap(), b"bits");
    let snapshot = resolved(cache.path()).unwrap();
    assert_eq!(path, snapshot.join("big/m-Q8_0-00001-of-00002.gguf"));
    assert!(!snapshot.join("m-Q4_K_M.gguf").exists());
    let (path, cache) = pulled(Some("m-Q4_K_M.gguf"));
    assert_eq!(path.unwrap(), resolved(cache.path()).unwrap().join("m-Q4_K_M.gguf"));
    let Err(HubError::Choice { models, .. }) = pulled(None).0 else { panic!("two models") };
    let models: Vec<_> = models.iter().map(|it| (it.name.as_str(), it.files, it.bytes)).collect();
    let expect = [("m-Q4_K_M.gguf", 1, Some(4)), ("big/m-Q8_0-00001-of-00002.gguf", 2, Some(9))];
    assert_eq!(models, expect);
    // One that is named comes before weights in another format.
    let mut both = model();
    both.push(File::large("m.gguf", b"gguf"));
    let hub = TestHub::start(&both);
    let pulled = |file: Option<&str>| {
        let cache = tempdir().unwrap();
        let path = pull_file(&options(&hub.endpoint), (ID, file), cache.path(), Disk::default()).0.unwrap();
        (path.ends_with("m.gguf"), cache)
    };
    assert!(pulled(Some("m")).0 && !pulled(None).0);
}

#[test]
fn pytorch_weights_are_downloaded_if_there_are_no_others() {
    let mut files = model();
    files.retain(|file| file.name != "model.safetensors");
    let (hub, cache) = (TestHub::start(&files), tempdir().unwrap());
    let dir = pull(&hub, cache.path()).unwrap();
    assert_eq!(fs::read(dir.join("pytorch_model.bin")).unwrap(), b"the same weights");
}

#[test]
fn a_signed_model_comes_with_every_file_that_was_signed() {
    let mut files = model();
    let line = |name: &str| format!("{}  {name}\n", "0".repeat(64));
    let template = "chat_templates/list.txt";
    files.push(File::small(template, b"of templates"));
    let sums = line("README.md") + &line("../x") + &line("modeling_x.py") + &line(template) + "short\n";
    files.push(File::small("SHA256SUMS", sums.as_bytes()));
    files.push(File::small("SHA256SUMS.minisig", b"signature"));
    let (hub, cache) = (TestHub::start(&files), tempdir().unwrap());
    let dir = pull(&hub, cache.path()).unwrap();
    for name in ["README.md", "modeling_x.py", template, "SHA256SUMS", "SHA256SUMS.minisig"] {
        assert!(dir.join(name).is_file(), "{name}");
    }
    assert!(!dir.join("pytorch_model.bin").exists());
}

#[test]
fn hashes_that_the_list_lacks_come_from_the_file() {
    let hub = TestHub::changed(&model(), |request, mut reply| {
        if request.path.starts_with("/api/models") {
            let names: Vec<_> = model().iter().map(|file| json!({"rfilename": file.name})).collect();
            reply =
                redline_testing::hub::Reply::new(200, json!({"sha": COMMIT, "siblings": names}).to_string());
        }
        reply
    });
    let cache = tempdir().unwrap();
    let dir = pull(&hub, cache.path()).unwrap();
    assert_eq!(fs::read(dir.join("model.safetensors")).unwrap(), model()[3].content);
    assert!(hub.paths().contains(&format!("HEAD /org/name/resolve/{COMMIT}/model.safetensors 0")));
}
