//! `redline pull`, from a hub on this machine.

use std::fs;
use std::path::Path;

use tempfile::tempdir;

use crate::harness::{Run, command, finish};
use redline_testing::hub::{COMMIT, File, ID, Reply, TestHub};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");

/// The demo model as a model of the hub.
fn demo() -> Vec<File> {
    let file = |name: &str| File::small(name, &fs::read(Path::new(DEMO).join(name)).unwrap());
    let mut files =
        ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"].map(file).to_vec();
    files[3].lfs = true;
    files.push(File::small("modeling_llama.py", b"raise SystemExit"));
    files
}

fn tiny() -> Vec<File> {
    vec![File::small("config.json", b"{}"), File::large("model.safetensors", b"weights")]
}

/// Runs the binary with this home directory, hub and further variables.
fn run(home: &Path, hub: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Run {
    let mut command = command(arguments);
    command.env("HOME", home).env("HF_ENDPOINT", hub).envs(variables.iter().copied());
    finish(command.output().unwrap())
}

fn snapshot(home: &Path) -> String {
    let dir = home.join(".cache/huggingface/hub/models--org--name/snapshots").join(COMMIT);
    dir.display().to_string()
}

#[test]
fn a_pulled_model_answers_under_its_name() {
    let (hub, home) = (TestHub::start(&demo()), tempdir().unwrap());
    let score = [
        "score",
        "--model",
        ID,
        "--query",
        "In the beginning",
        "--item",
        " God",
        "--label-id",
        "7",
        "--json",
    ];
    let missing = run(home.path(), &hub.endpoint, &[], &score);
    missing.failed(&["model `org/name` was not found", "hint: `redline pull org/name` downloads it"]);
    assert!(hub.requests().is_empty());

    let pulled = run(home.path(), &hub.endpoint, &[], &["pull", ID]).ok();
    assert_eq!(pulled.out, snapshot(home.path()) + "\n");
    let lines: Vec<_> = pulled.err.lines().collect();
    assert!(lines.len() == 5 && lines[0].starts_with("4 files, "), "{}", pulled.err);
    assert!(lines[4].starts_with("config.json: ") && !pulled.err.contains("in the cache"), "{}", pulled.err);
    let again = run(home.path(), &hub.endpoint, &[], &["pull", ID]).ok();
    assert_eq!((again.out, again.err.matches(", was in the cache").count()), (pulled.out, 4));

    let by_name = run(home.path(), &hub.endpoint, &[], &score).ok().scoring();
    let embedded = crate::harness::score(&score[3..9]);
    assert_eq!(crate::harness::bits(&by_name), crate::harness::bits(&embedded));
}

#[test]
fn gguf_files_are_listed_with_their_sizes_and_chosen_by_name() {
    let files = [File::large("m-Q4_K_M.gguf", &[4; 2048]), File::large("m-Q8_0.gguf", b"eight")];
    let (hub, home) = (TestHub::start(&files), tempdir().unwrap());
    let pull = |arguments: &[&str]| run(home.path(), &hub.endpoint, &[], arguments);
    pull(&["pull", ID]).failed(&[
        "there are 2 models in GGUF files",
        "`redline pull org/name --file NAME`",
        "m-Q4_K_M.gguf  2",
        "m-Q8_0.gguf  5",
    ]);
    let pulled = pull(&["pull", ID, "--file", "q4_k_m"]).ok();
    assert_eq!(pulled.out, snapshot(home.path()) + "/m-Q4_K_M.gguf\n");
    pull(&["pull", ID, "--file", "Q5_K"]).failed(&["no GGUF file is called `Q5_K`", "m-Q8_0.gguf"]);
    let offline = [("HF_HUB_OFFLINE", "1")];
    let cached = |file: &str| run(home.path(), &hub.endpoint, &offline, &["pull", ID, "--file", file]);
    assert_eq!(cached("m-Q4_K_M.gguf").ok().out, pulled.out);
    cached("m-Q8_0.gguf").failed(&["there is no file `m-Q8_0.gguf`", "HF_HUB_OFFLINE"]);
    cached("../refs/main").failed(&["there is no file"]);
}

#[test]
fn a_revision_is_found_under_the_same_words() {
    let (hub, home) = (TestHub::start(&demo()), tempdir().unwrap());
    let id = "org/name@refs/pr/1";
    let tokenize = |id: &str| run(home.path(), &hub.endpoint, &[], &["tokenize", "--model", id, "In"]);
    tokenize(id).failed(&["`redline pull org/name@refs/pr/1`"]);
    run(home.path(), &hub.endpoint, &[], &["pull", id]).ok();
    tokenize(id).ok();
    tokenize(&format!("{ID}@{COMMIT}")).ok();
    tokenize(ID).failed(&["`redline pull org/name`"]);
}

#[test]
fn the_cache_is_where_the_variables_of_hugging_face_say() {
    let (hub, home) = (TestHub::start(&tiny()), tempdir().unwrap());
    let folder = |name: &str| home.path().join(name).display().to_string();
    let (cache, hf, xdg) = (folder("cache"), folder("hf"), folder("xdg"));
    for (variables, expect) in [
        (vec![("HF_HUB_CACHE", &*cache), ("HF_HOME", &*hf)], "cache"),
        (vec![("HF_HOME", &*hf), ("XDG_CACHE_HOME", &*xdg)], "hf/hub"),
        (vec![("XDG_CACHE_HOME", &*xdg)], "xdg/huggingface/hub"),
    ] {
        let pulled = run(home.path(), &hub.endpoint, &variables, &["pull", ID]).ok();
        assert!(pulled.out.starts_with(&folder(expect)), "{}", pulled.out);
    }
    let mut homeless = command(&["pull", ID]);
    homeless.env("HF_ENDPOINT", &hub.endpoint).env_remove("HOME");
    finish(homeless.output().unwrap()).failed(&["no home directory", "HF_HUB_CACHE"]);
}

#[test]
fn the_token_comes_from_the_environment_or_a_file() {
    let hub = TestHub::changed(&tiny(), |request, reply| match request.authorization.as_deref() {
        Some("Bearer right") => reply,
        _ if request.to_storage => reply,
        _ => Reply::new(401, "").with("X-Error-Code", "GatedRepo"),
    });
    let home = tempdir().unwrap();
    let pull = |variables: &[(&str, &str)]| run(home.path(), &hub.endpoint, variables, &["pull", ID]);
    let page = format!("{}/{ID}", hub.endpoint);
    pull(&[]).failed(&["status 401 GatedRepo", &page, "set HF_TOKEN to a token of that account"]);
    pull(&[("HF_TOKEN", "wrong")]).failed(&["status 401", "with the account of the token"]);
    pull(&[("HF_TOKEN", " right\n")]).ok();
    let stored = home.path().join(".cache/huggingface/token");
    fs::write(&stored, "right\n").unwrap();
    pull(&[]).ok();
    fs::rename(&stored, home.path().join("elsewhere")).unwrap();
    pull(&[]).failed(&["status 401"]);
    pull(&[("HF_TOKEN_PATH", home.path().join("elsewhere").to_str().unwrap())]).ok();
    let before = hub.requests().len();
    let refused = pull(&[("HF_TOKEN", "se\ncret")]);
    refused.failed(&["the access token has a character that is not visible ASCII", "/settings/tokens"]);
    assert!(!refused.err.contains("cret") && hub.requests().len() == before, "{}", refused.err);
}

#[test]
fn errors_of_the_hub_say_what_to_do() {
    let (hub, home) = (TestHub::start(&tiny()), tempdir().unwrap());
    let pull = |id| run(home.path(), &hub.endpoint, &[], &["pull", id]);
    pull("org/nothing").failed(&[
        "status 401 RepoNotFound",
        "check the spelling of `org/nothing`",
        "HF_TOKEN",
    ]);
    pull("org/name@v9").failed(&["status 404 RevisionNotFound", "the model has no revision `v9`"]);
    for id in ["a/b/c", "../x", "org/name@", "org/name@../x", ""] {
        pull(id).usage(&["is not the id of a model", "`ORG/NAME`"]);
    }
    run(home.path(), "huggingface.co", &[], &["pull", ID])
        .failed(&["is not the address of a hub", "HF_ENDPOINT is"]);
    run(home.path(), "http://127.0.0.1:1", &[], &["pull", ID])
        .failed(&["no connection", "check the network"]);
    let no_file = [("SSL_CERT_FILE", "/nonexistent")];
    run(home.path(), &hub.endpoint, &no_file, &["pull", ID]).failed(&["/nonexistent"]);
    assert!(!home.path().join(".cache/huggingface/hub/models--org--name").exists());
}

#[test]
fn offline_only_the_cache_is_used() {
    let (hub, home) = (TestHub::start(&tiny()), tempdir().unwrap());
    let offline = || run(home.path(), &hub.endpoint, &[("HF_HUB_OFFLINE", "1")], &["pull", ID]);
    offline()
        .failed(&["model `org/name` was not found", "nothing is downloaded while HF_HUB_OFFLINE is set"]);
    assert!(hub.requests().is_empty());
    run(home.path(), &hub.endpoint, &[("HF_HUB_OFFLINE", "0")], &["pull", ID]).ok();
    let before = hub.requests().len();
    assert_eq!(offline().ok().out, snapshot(home.path()) + "\n");
    assert_eq!(hub.requests().len(), before);
}

#[test]
fn offline_a_directory_of_the_same_name_is_not_the_model() {
    let home = tempdir().unwrap();
    fs::create_dir(home.path().join("gpt2")).unwrap();
    let mut offline = command(&["pull", "gpt2"]);
    offline.env("HOME", home.path()).env("HF_HUB_OFFLINE", "1").current_dir(home.path());
    finish(offline.output().unwrap()).failed(&["model `gpt2` was not found", "models--gpt2"]);
}

#[test]
fn messages_show_no_signature_and_no_password() {
    let hub = TestHub::changed(&tiny(), |request, reply| match &*request.path {
        path if path.starts_with("/api/models/") => {
            Reply::new(302, "").with("Location", "http://127.0.0.1:1/file?Signature=secret")
        }
        _ => reply,
    });
    let home = tempdir().unwrap();
    let pull = |endpoint: &str| run(home.path(), endpoint, &[], &["pull", ID]);
    let refused = pull(&hub.endpoint);
    refused.failed(&["no connection", "in `http://127.0.0.1:1/file`"]);
    assert!(!refused.err.contains("secret"), "{}", refused.err);
    let refused = pull("https://user:secret@huggingface.co");
    refused.failed(&["`https://huggingface.co` is not the address of a hub: it contains a user name"]);
    assert!(!refused.err.contains("secret"), "{}", refused.err);
}

/// A limit on the size of files stands for a full disk.
#[cfg(unix)]
#[test]
fn a_download_that_cannot_be_written_leaves_no_model() {
    let files = vec![File::small("config.json", b"{}"), File::large("model.safetensors", &[7; 1 << 20])];
    let (hub, home) = (TestHub::start(&files), tempdir().unwrap());
    let variables = format!(
        "trap '' XFSZ; ulimit -f 128; export HOME='{}' HF_ENDPOINT={};",
        home.path().display(),
        hub.endpoint
    );
    let output = crate::harness::limited(&variables, &["pull", ID]);
    finish(output).failed(&["cannot write the file", "models--org--name/blobs/"]);
    assert!(!home.path().join(".cache/huggingface/hub/models--org--name/snapshots").exists());
    run(home.path(), &hub.endpoint, &[], &["pull", ID]).ok();
}
