//! Connections that break, and disks that are full.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use redline_hub::{Hub, HubError, PullEvent};
use redline_weights::{Disk, HubId};
use tempfile::{TempDir, tempdir};

use crate::{message, model, options, pull, pull_with, resolved, tree};
use redline_testing::hub::{ID, Reply, Request, TestHub};

/// Whether this is a request for the content of the weights.
fn is_weights(request: &Request) -> bool {
    request.path.starts_with("/blobs/")
}

fn weights_blob(cache: &TempDir, suffix: &str) -> PathBuf {
    cache.path().join(format!("models--org--name/blobs/{}{suffix}", model()[3].hash()))
}

/// The first bytes that the requests for the weights name.
fn starts(hub: &TestHub) -> Vec<u64> {
    hub.requests().iter().filter(|request| is_weights(request)).map(|request| request.from).collect()
}

#[test]
fn a_broken_connection_is_continued_where_it_ended() {
    let hub = TestHub::changed(&model(), |request, reply| {
        let cut = is_weights(request).then_some(30_000);
        Reply { cut, ..reply }
    });
    let cache = tempdir().unwrap();
    let (dir, seen) = pull_with(&options(&hub.endpoint), ID, cache.path(), Disk::default());
    assert_eq!(fs::read(dir.unwrap().join("model.safetensors")).unwrap(), model()[3].content);
    assert_eq!(starts(&hub), [0, 30_000, 60_000, 90_000]);
    assert_eq!(seen.iter().filter(|line| line.starts_with("Retry")).count(), 3, "{seen:?}");
}

#[test]
fn a_hub_that_always_begins_again_and_breaks_is_given_up() {
    let hub = TestHub::changed(&model(), |request, reply| match (is_weights(request), request.from) {
        (true, 0) => Reply { cut: Some(30_000), ..reply },
        (true, _) => Reply::new(416, ""),
        _ => reply,
    });
    let cache = tempdir().unwrap();
    let failed = message(pull(&hub, cache.path()), &hub);
    assert!(failed.starts_with("the download of `model.safetensors` ended at byte "), "{failed}");
    assert_eq!(starts(&hub), [0, 30_000, 0, 30_000, 0, 30_000]);
}

#[test]
fn a_download_that_fails_is_continued_by_the_next_one() {
    let repaired = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&repaired);
    let hub = TestHub::changed(&model(), move |request, reply| {
        let length = if request.from == 0 { 30_000 } else { 0 };
        let cut = (is_weights(request) && !works.load(Ordering::SeqCst)).then_some(length);
        Reply { cut, ..reply }
    });
    let cache = tempdir().unwrap();
    let failed = message(pull(&hub, cache.path()), &hub);
    assert!(
        failed.starts_with("the download of `model.safetensors` ended at byte 30000 of 100000: "),
        "{failed}"
    );
    assert_eq!(starts(&hub), [0, 30_000, 30_000, 30_000, 30_000, 30_000]);
    assert_eq!(fs::metadata(weights_blob(&cache, ".incomplete")).unwrap().len(), 30_000);
    assert!(resolved(cache.path()).is_err());
    assert!(!tree(cache.path()).iter().any(|line| line.contains("snapshots") || line.contains("refs")));

    repaired.store(true, Ordering::SeqCst);
    let dir = pull(&hub, cache.path()).unwrap();
    assert_eq!(fs::read(dir.join("model.safetensors")).unwrap(), model()[3].content);
    assert_eq!(starts(&hub)[6..], [30_000]);
    assert!(!weights_blob(&cache, ".incomplete").exists());
}

#[test]
fn a_server_without_ranges_sends_the_file_again() {
    let first = AtomicBool::new(true);
    let hub = TestHub::changed(&model(), move |request, reply| match request.from {
        _ if !is_weights(request) => reply,
        _ if first.swap(false, Ordering::SeqCst) => Reply { cut: Some(30_000), ..reply },
        _ => Reply::new(200, model()[3].content.clone()),
    });
    let cache = tempdir().unwrap();
    let dir = pull(&hub, cache.path()).unwrap();
    assert_eq!(fs::read(dir.join("model.safetensors")).unwrap(), model()[3].content);
    assert_eq!(starts(&hub), [0, 30_000]);
}

#[test]
fn an_incomplete_file_with_other_bytes_is_downloaded_again() {
    let wrong = |length| vec![0; length];
    for length in [10, 100_000, 100_001] {
        let (hub, cache) = (TestHub::start(&model()), tempdir().unwrap());
        let partial = weights_blob(&cache, ".incomplete");
        fs::create_dir_all(partial.parent().unwrap()).unwrap();
        fs::write(&partial, wrong(length)).unwrap();
        let dir = pull(&hub, cache.path()).unwrap();
        assert_eq!(fs::read(dir.join("model.safetensors")).unwrap(), model()[3].content, "{length}");
    }
}

#[test]
fn a_refused_range_begins_again() {
    let hub = TestHub::changed(&model(), |request, reply| match request.from {
        1.. if is_weights(request) => Reply::new(416, ""),
        _ => reply,
    });
    let cache = tempdir().unwrap();
    let partial = weights_blob(&cache, ".incomplete");
    fs::create_dir_all(partial.parent().unwrap()).unwrap();
    fs::write(&partial, [1; 10]).unwrap();
    pull(&hub, cache.path()).unwrap();
    assert_eq!(starts(&hub), [10, 0]);
}

#[test]
fn a_busy_hub_is_tried_again() {
    let replies = Mutex::new(vec![429, 503]);
    let hub = TestHub::changed(&model(), move |request, reply| {
        let status = is_weights(request).then(|| replies.lock().unwrap().pop()).flatten();
        status.map_or(reply, |status| Reply::new(status, ""))
    });
    let cache = tempdir().unwrap();
    let (dir, seen) = pull_with(&options(&hub.endpoint), ID, cache.path(), Disk::default());
    dir.unwrap();
    let retries: Vec<_> = seen.iter().filter(|line| line.starts_with("Retry")).collect();
    assert_eq!(
        retries,
        [
            "Retry { file: \"model.safetensors\", cause: \"status 503\" }",
            "Retry { file: \"model.safetensors\", cause: \"status 429\" }"
        ]
    );
}

#[test]
fn a_hub_that_does_not_answer_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let cache = tempdir().unwrap();
    let (result, _) = pull_with(&options(&endpoint), ID, cache.path(), Disk::default());
    assert!(matches!(result, Err(HubError::Connection { .. })), "{result:?}");
    assert!(tree(cache.path()).is_empty());
}

/// A full disk and the death of the process, at every operation that changes the disk.
#[test]
fn a_model_is_found_only_if_it_is_complete_and_the_next_pull_completes_it() {
    let hub = TestHub::start(&model());
    let complete = |dir: PathBuf| fs::read(dir.join("model.safetensors")).unwrap() == model()[3].content;
    for dead in [false, true] {
        for n in 0.. {
            let cache = tempdir().unwrap();
            let (disk, count) = Disk::failing(n, dead);
            let (result, _) = pull_with(&options(&hub.endpoint), ID, cache.path(), disk);
            if count.load(Ordering::SeqCst) <= n {
                assert!(n > 20, "{n} operations");
                assert!(complete(result.unwrap()));
                break;
            }
            if let Ok(dir) = resolved(cache.path()) {
                assert!(complete(dir), "{n}");
            } else {
                assert!(matches!(result, Err(HubError::Disk(_))), "{n}: {result:?}");
            }
            assert!(complete(pull(&hub, cache.path()).unwrap()), "{n}");
            let left = tree(cache.path());
            assert!(dead || !left.iter().any(|line| line.contains("artial")), "{n}: {left:?}");
        }
    }
}

#[test]
fn a_file_that_another_process_downloads_is_waited_for() {
    let (hub, cache) = (TestHub::start(&model()), tempdir().unwrap());
    let locks = cache.path().join(".locks/models--org--name");
    fs::create_dir_all(&locks).unwrap();
    let lock = File::create(locks.join(format!("{}.lock", model()[3].hash()))).unwrap();
    lock.lock().unwrap();
    let mut lock = Some(lock);
    let id = HubId::parse(ID).unwrap();
    let mut waited = Vec::new();
    let mut observe = |event: PullEvent| {
        if let PullEvent::Waiting { file } = event {
            waited.push(file.to_owned());
            drop(lock.take());
        }
    };
    let hub = Hub::new(&options(&hub.endpoint)).unwrap();
    hub.pull(&id, None, cache.path(), Disk::default(), &mut observe).unwrap();
    assert_eq!(waited, ["model.safetensors"]);
}
