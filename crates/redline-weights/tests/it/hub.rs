//! Resolving a `--model` argument to a directory.

use std::fs;
use std::path::{Path, PathBuf};

use redline_weights::{HubRoots, WeightsError, resolve_model};
use tempfile::tempdir;

use crate::check;

fn roots(dir: &Path) -> HubRoots {
    let root = |name: &str| Some(dir.join(name));
    HubRoots { hub_cache: root("cache"), hf_home: root("hf"), xdg_cache: root("xdg"), home: root("home") }
}

fn install(cache: &Path, folder: &str, revision: &str) -> PathBuf {
    let folder = cache.join(folder);
    let snapshot = folder.join("snapshots").join(revision);
    fs::create_dir_all(folder.join("refs")).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(folder.join("refs/main"), revision).unwrap();
    snapshot
}

#[test]
fn the_caches_are_searched_in_order() {
    let dir = tempdir().unwrap();
    let roots = roots(dir.path());
    for cache in ["home/.cache/huggingface/hub", "xdg/huggingface/hub", "hf/hub", "cache"] {
        let snapshot = install(&dir.path().join(cache), "models--org--name", "abc123");
        assert_eq!(resolve_model("org/name", &roots).unwrap(), snapshot);
    }
    let snapshot = install(&dir.path().join("hf/hub"), "models--gpt2", "def");
    assert_eq!(resolve_model("gpt2", &roots).unwrap(), snapshot);
}

#[test]
fn a_ref_may_end_in_a_newline() {
    let dir = tempdir().unwrap();
    let snapshot = install(&dir.path().join("cache"), "models--org--name", "abc");
    fs::write(dir.path().join("cache/models--org--name/refs/main"), "abc\n").unwrap();
    assert_eq!(resolve_model("org/name", &roots(dir.path())).unwrap(), snapshot);
}

#[test]
fn an_existing_directory_is_taken_as_it_is() {
    let dir = tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_eq!(resolve_model(path, &HubRoots::default()).unwrap(), dir.path());
    let file = dir.path().join("model.safetensors");
    fs::write(&file, "").unwrap();
    let expect = "a model directory is needed, but this is a file\n  in `DIR/model.safetensors`\n\n\
                  give the directory that holds `config.json` and the weights, or a GGUF file";
    check(resolve_model(file.to_str().unwrap(), &HubRoots::default()), dir.path(), expect);
}

#[test]
fn an_id_in_no_cache_lists_the_places_and_how_to_get_it() {
    let dir = tempdir().unwrap();
    let mut roots = roots(dir.path());
    roots.hf_home = Some(PathBuf::new());
    roots.xdg_cache = None;
    fs::create_dir_all(dir.path().join("cache/models--org--name")).unwrap();
    install(&dir.path().join("home/.cache/huggingface/hub"), "models--org--name", "abc");
    fs::remove_dir(dir.path().join("home/.cache/huggingface/hub/models--org--name/snapshots/abc")).unwrap();
    let expect = "model `org/name` was not found\n  \
                  in `org/name`\n  \
                  in `DIR/cache/models--org--name/refs/main`\n  \
                  in `DIR/home/.cache/huggingface/hub/models--org--name/snapshots/abc`\n\n\
                  `pull org/name` downloads it; or give a model directory";
    check(resolve_model("org/name", &roots), dir.path(), expect);
}

#[test]
fn a_path_that_does_not_exist_is_looked_up_nowhere_else() {
    let dir = tempdir().unwrap();
    let no_ids = [
        "./org/name",
        "/no/such/model",
        "a/b/c",
        "org/",
        "../name",
        "a..b",
        "a--b",
        "-a/b",
        "a/b.",
        "a b",
        "",
    ];
    for path in no_ids {
        let expect = format!(
            "model `{path}` was not found\n  in `{path}`\n\nthe path does not exist; check its spelling"
        );
        check(resolve_model(path, &roots(dir.path())), dir.path(), &expect);
    }
}

#[test]
fn a_ref_cannot_lead_out_of_the_cache() {
    let dir = tempdir().unwrap();
    install(&dir.path().join("cache"), "models--org--name", "abc");
    fs::create_dir_all(dir.path().join("cache/secret")).unwrap();
    let main = dir.path().join("cache/models--org--name/refs/main");
    for hostile in ["../../secret", "/", "..", "", "a\0b", &"a".repeat(300)] {
        fs::write(&main, hostile).unwrap();
        let message = resolve_model("org/name", &roots(dir.path())).unwrap_err().to_string();
        assert!(message.contains("models--org--name/refs/main`"), "{message}");
    }
}

#[test]
fn ids_are_those_of_the_hub() {
    let is_id = |model: &str| match resolve_model(model, &HubRoots::default()) {
        Err(WeightsError::NotFound { hub_id, .. }) => hub_id,
        other => panic!("{model}: {other:?}"),
    };
    let longest = format!("{}/{}", "o".repeat(40), "n".repeat(55));
    for id in ["gpt-no-such", "no-such-org/na.me-1_2", "_no_such_org_/_name_", &longest] {
        assert!(is_id(id), "{id}");
    }
    for other in ["no-such-org/name-", ".no-such-org/name", "no such/name", &format!("{longest}n")] {
        assert!(!is_id(other), "{other}");
    }
}

#[test]
fn a_cache_that_several_variables_name_is_searched_once() {
    let dir = tempdir().unwrap();
    let cache = dir.path().join(".cache/huggingface/hub");
    let roots = HubRoots {
        hub_cache: Some(cache.clone()),
        hf_home: Some(dir.path().join(".cache/huggingface")),
        xdg_cache: Some(dir.path().join(".cache")),
        home: Some(dir.path().to_owned()),
    };
    assert_eq!(roots.caches(), std::slice::from_ref(&cache));
    let other = dir.path().join("other");
    let roots = HubRoots { hf_home: Some(other.clone()), ..roots };
    assert_eq!(roots.caches(), [cache, other.join("hub")]);
}
