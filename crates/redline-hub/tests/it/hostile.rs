//! Answers that no honest hub gives.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::{message, model, options, pull, pull_with, resolved, tree};
use redline_testing::hub::{COMMIT, File, Reply, Request, TestHub};

/// The message of a pull from a hub whose replies are changed. Nothing must be visible afterwards.
#[track_caller]
fn refused(files: &[File], change: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) -> String {
    let outer = tempdir().unwrap();
    let cache = outer.path().join("a/cache");
    let hub = TestHub::changed(files, change);
    let text = message(pull(&hub, &cache), &hub);
    assert!(resolved(&cache).is_err());
    let visible = ["snapshots", "refs/"];
    for line in tree(outer.path()) {
        assert!(line.starts_with("a/cache/") && !visible.iter().any(|part| line.contains(part)), "{line}");
    }
    text
}

/// Changes the list of files.
fn list(
    change: impl Fn(&mut Value) + Send + Sync + 'static,
) -> impl Fn(&Request, Reply) -> Reply + Send + Sync {
    move |request, reply| {
        if !request.path.starts_with("/api/models/") {
            return reply;
        }
        let mut json = serde_json::from_slice(&reply.body).unwrap();
        change(&mut json);
        Reply::new(200, json.to_string())
    }
}

fn of_weights(
    change: impl Fn(Reply) -> Reply + Send + Sync,
) -> impl Fn(&Request, Reply) -> Reply + Send + Sync {
    move |request, reply| if request.path.starts_with("/blobs/") { change(reply) } else { reply }
}

#[test]
fn bytes_with_another_hash_are_removed() {
    let text = refused(&model(), of_weights(|reply| Reply { body: vec![0; 100_000], ..reply }));
    let [expected, url] = [model()[3].hash(), format!("HUB/org/name/resolve/{COMMIT}/model.safetensors")];
    assert!(text.starts_with("the hash of `model.safetensors` is "), "{text}");
    assert!(text.ends_with(&format!("but the hub names {expected}\n  in `{url}`")), "{text}");
    // Small files are checked by the hash of git.
    let text = refused(&model(), |request, reply| match request.path.as_str() {
        "/api/resolve-cache/tokenizer.json" => Reply::new(200, "[]"),
        _ => reply,
    });
    assert!(text.starts_with("the hash of `tokenizer.json` is "), "{text}");
}

#[test]
fn a_blob_with_another_hash_leaves_nothing_behind() {
    let cache = tempdir().unwrap();
    let hub = TestHub::changed(&model(), of_weights(|reply| Reply { body: vec![0; 100_000], ..reply }));
    pull(&hub, cache.path()).unwrap_err();
    let weights = model()[3].hash();
    let left = tree(cache.path());
    assert!(!left.iter().any(|line| line.contains(&format!("blobs/{weights}"))), "{left:?}");
}

#[test]
fn lengths_other_than_that_of_the_list_are_refused_before_anything_is_written() {
    for length in ["9223372036854775807", "18446744073709551615", "100001", "7"] {
        let text = refused(&model(), of_weights(move |reply| reply.with("Content-Length", length)));
        assert!(text.contains(&format!("is {length} bytes, not 100000 bytes")), "{text}");
    }
    // A body that ends with the connection.
    let text = refused(
        &model(),
        of_weights(|mut reply| {
            reply.headers.retain(|(name, _)| *name != "Content-Length");
            reply.body.push(0);
            reply
        }),
    );
    assert!(text.contains("more than the 100000 bytes that `model.safetensors` has"), "{text}");
}

#[test]
fn a_length_in_the_list_reserves_nothing() {
    let huge = |json: &mut Value| json["siblings"][3]["lfs"]["size"] = json!(u64::MAX);
    let text = refused(&model(), list(huge));
    assert!(text.contains("is 100000 bytes, not 18446744073709551615 bytes"), "{text}");
}

#[test]
fn names_that_lead_out_of_the_directory_are_not_downloaded() {
    let mut files = model();
    for name in [
        "../config.json",
        "/etc/passwd",
        "..\\tokenizer.json",
        "x/../../LICENSE",
        "additional_chat_templates/../x.jinja",
    ] {
        files.push(File::small(name, b"hostile"));
    }
    let outer = tempdir().unwrap();
    let cache = outer.path().join("a/cache");
    let hub = TestHub::start(&files);
    pull(&hub, &cache).unwrap();
    assert!(tree(outer.path()).iter().all(|line| line.starts_with("a/cache/")));
    assert!(hub.paths().iter().all(|path| !path.contains("..") && !path.contains("passwd")));
}

#[test]
fn an_index_that_names_no_plain_file_is_refused() {
    for shard in ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", ""] {
        let index = json!({"weight_map": {"a": shard}}).to_string();
        let files = [
            File::small("config.json", b"{}"),
            File::small("model.safetensors.index.json", index.as_bytes()),
            File::large(shard, b"hostile"),
        ];
        refused(&files, |_, reply| reply);
    }
}

#[test]
fn hashes_and_commits_that_are_paths_are_refused() {
    for commit in ["../../../x", "main", "", "0123"] {
        let text = refused(&model(), list(move |json| json["sha"] = json!(commit)));
        assert!(text.contains("`sha` is not a commit of 40 hexadecimal digits"), "{text}");
    }
    for hash in ["../../../x", "", "0123"] {
        // Such a hash does not count; that of the file itself does.
        let hub =
            TestHub::changed(&model(), list(move |json| json["siblings"][3]["lfs"]["sha256"] = json!(hash)));
        let cache = tempdir().unwrap();
        pull(&hub, cache.path()).unwrap();
        assert!(
            tree(cache.path()).iter().any(|line| line.ends_with(&format!("blobs/{}", model()[3].hash())))
        );
    }
    let text = refused(&model(), |request, reply| {
        if request.path.contains("/resolve/") { reply.with("X-Repo-Commit", "../x") } else { reply }
    });
    assert!(text.contains("the commit of `tokenizer.json` is ../x, not 0123456789"), "{text}");
}

#[test]
fn an_answer_that_is_no_list_is_refused() {
    for (body, expect) in [
        ("<html>", "not JSON: "),
        ("[]", "`sha` is not a commit"),
        ("{\"sha\": \"0123456789abcdef0123456789abcdef01234567\"}", "`siblings` is not a list"),
    ] {
        let text = refused(&model(), move |_, _| Reply::new(200, body));
        assert!(text.starts_with("the answer cannot be used: ") && text.contains(expect), "{text}");
    }
}

#[test]
fn redirects_end() {
    let text = refused(&model(), |_, _| Reply::new(302, "").with("Location", "/again"));
    assert!(text.contains("more than 10 redirects"), "{text}");
    for location in ["file:///etc/passwd", "ftp://host/x", "x", ""] {
        let text = refused(&model(), move |_, _| Reply::new(302, "").with("Location", location));
        assert!(text.contains(&format!("a redirect to `{location}`")), "{text}");
    }
    assert!(refused(&model(), |_, _| Reply::new(302, "")).contains("a redirect without `Location`"));
}

#[test]
fn texts_of_a_server_cannot_control_a_terminal() {
    let long = "a".repeat(1000);
    let text = refused(&model(), move |_, _| Reply::new(403, "").with("X-Error-Message", &*long));
    assert!(text.len() < 400 && text.starts_with("the hub answers with status 403: aaa"), "{text}");
    let hub = TestHub::changed(
        &model(),
        list(|json| {
            json["siblings"] = json!([{"rfilename": "\u{1b}[2Jconfig.json"}]);
        }),
    );
    let cache = tempdir().unwrap();
    assert!(!message(pull(&hub, cache.path()), &hub).contains('\u{1b}'));
}

#[test]
fn an_endpoint_without_a_host_is_refused() {
    for endpoint in ["", "huggingface.co", "ftp://huggingface.co", "http://", "https://user:secret@host"] {
        let cache = tempdir().unwrap();
        let (result, _) =
            pull_with(&options(endpoint), "a/b", cache.path(), redline_weights::Disk::default());
        let text = result.unwrap_err().to_string();
        let shown = endpoint.replace("user:secret@", "");
        assert!(text.starts_with(&format!("`{shown}` is not the address of a hub: ")), "{text}");
    }
}
