//! Results are the same bytes, however the work was divided and whatever interrupted it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redline_api::jsonl::model::ChatModel;
use redline_batch::{BatchError, BatchPlaces, BatchProgress, Shard, TableRequest, run};
use redline_engine::Cancel;
use redline_weights::{Disk, FileOperation};
use serde_json::json;

use crate::tables::{Folder, answer, content, loaded, model, places, request};

const WORDS: [&str; 7] = ["king", "ship", "sea", "war", "bread", "winter", "night"];

/// A table of 40 rows in groups of 15, of which two rows have no text.
fn table(folder: &Folder) -> std::path::PathBuf {
    let texts: Vec<String> =
        (0..40).map(|row| format!("{} and {}", WORDS[row % 7], WORDS[row % 5])).collect();
    let texts: Vec<Option<&str>> = texts
        .iter()
        .enumerate()
        .map(|(row, text)| (![7, 30].contains(&row)).then_some(text.as_str()))
        .collect();
    folder.parquet("in.parquet", &texts, 15)
}

fn asked() -> TableRequest {
    TableRequest { rows_per_file: 4, ..request("classify", json!({ "classes": ["war", "peace"] })) }
}

fn shard(places: &BatchPlaces, shard: &str) -> BatchPlaces {
    BatchPlaces { shard: shard.parse().unwrap(), ..places.clone() }
}

#[test]
fn shards_in_any_number_and_order_make_the_same_files() {
    let folder = Folder::new();
    let input = table(&folder);
    let whole = places(&input, &folder.path("whole"));
    let summary = answer(&asked(), &whole).unwrap();
    // Parts of at most four rows, none of two groups.
    assert_eq!((summary.rows, summary.answered, summary.failed), (40, 40, 2));
    assert_eq!((summary.done, summary.files), (11, 11));
    let expected = content(&whole.output);
    assert_eq!(expected.len(), 11 + 2, "{:?}", expected.keys());
    assert!(expected.keys().all(|name| !name.starts_with(".part")), "{:?}", expected.keys());
    let divided = places(&input, &folder.path("divided"));
    for (index, one) in ["3/3", "1/3", "1/4", "2/3"].into_iter().enumerate() {
        let summary = answer(&asked(), &shard(&divided, one)).unwrap();
        assert_eq!(summary.manifest.is_some(), index == 3, "{one}");
    }
    assert_eq!(content(&divided.output), expected);
    // Again: nothing is left to do.
    let summary = answer(&asked(), &divided).unwrap();
    assert_eq!((summary.rows, summary.answered, summary.manifest.is_some()), (40, 0, true));
    assert_eq!(content(&divided.output), expected);
    // Files are named by what they are of: other rows, another request and another model have other names.
    let names = |request: &TableRequest, name: &str, output: &str| {
        let places = places(&input, &folder.path(output));
        run(request, &places, model(name), &mut |_| (), &Cancel::new()).unwrap();
        content(&places.output).into_keys().filter(|name| name.starts_with("part")).collect::<Vec<_>>()
    };
    let own: Vec<_> = expected.into_keys().filter(|name| name.starts_with("part")).collect();
    let mut all = own.clone();
    all.extend(names(&TableRequest { prefix: "x".to_owned(), ..asked() }, "demo", "prefix"));
    let score = TableRequest {
        columns: [("items".to_owned(), "text".to_owned())].into(),
        ..request("score", json!({ "query": "", "labels": ["a"] }))
    };
    all.extend(names(&score, "demo", "demo"));
    all.extend(names(&score, "demo-diffusion", "diffusion"));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn work_that_dies_anywhere_goes_on_to_the_same_bytes() {
    let folder = Folder::new();
    let input = table(&folder);
    let undisturbed = places(&input, &folder.path("undisturbed"));
    let (disk, operations) = Disk::failing(usize::MAX, false);
    answer(&asked(), &BatchPlaces { disk, ..undisturbed.clone() }).unwrap();
    let expected = content(&undisturbed.output);
    let operations = operations.load(Ordering::Relaxed);
    assert!(operations > 40, "{operations}");
    for dead in [true, false] {
        for at in 0..operations {
            let disturbed = places(&input, &folder.path(&format!("disturbed-{dead}-{at}")));
            let (disk, _) = Disk::failing(at, dead);
            let first = answer(&asked(), &BatchPlaces { disk, ..disturbed.clone() });
            if let Err(error) = &first {
                assert!(matches!(error, BatchError::File { .. }), "operation {at}: {error}");
                let hint = error.hint().unwrap().to_string();
                assert!(hint.starts_with("make room, then run the same again"), "{hint}");
            }
            // What a killed process had open is left behind; others go on in another division.
            answer(&asked(), &shard(&disturbed, "2/2")).unwrap();
            answer(&asked(), &shard(&disturbed, "1/2")).unwrap();
            assert_eq!(content(&disturbed.output), expected, "operation {at}, dead: {dead}");
        }
    }
}

#[test]
fn cancelled_work_leaves_whole_files_only() {
    let folder = Folder::new();
    let input = table(&folder);
    let whole = places(&input, &folder.path("whole"));
    answer(&asked(), &whole).unwrap();
    let expected = content(&whole.output);
    let stopped = places(&input, &folder.path("stopped"));
    for after in [0, 1, 9, 15] {
        let cancel = Cancel::new();
        let stop = |at: BatchProgress| {
            if let BatchProgress::Answering { rows, before, .. } = at
                && rows >= before + after
            {
                cancel.cancel();
            }
        };
        let result = run(&asked(), &stopped, model("demo"), &mut { stop }, &cancel);
        assert!(matches!(result, Err(BatchError::Cancelled)), "after {after} rows: {result:?}");
        for (name, bytes) in content(&stopped.output) {
            assert_eq!(expected.get(&name), Some(&bytes), "{name}");
        }
    }
    answer(&asked(), &stopped).unwrap();
    assert_eq!(content(&stopped.output), expected);
}

#[test]
fn rows_that_fail_at_once_are_written_as_they_come() {
    let folder = Folder::new();
    let mut texts = vec![None; 3000];
    texts[0] = Some("the king");
    let input = folder.parquet("in.parquet", &texts, 3000);
    let (seen, first) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, at) = (seen.clone(), first.clone());
    let disk = Disk::observed(move |operation| {
        if matches!(operation, FileOperation::CreateFile(path) if path.to_string_lossy().contains(".part-")) {
            let _ =
                at.compare_exchange(0, count.load(Ordering::Relaxed), Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(())
    });
    let places = BatchPlaces { disk, ..places(&input, &folder.path("out")) };
    let mut watch = |at: BatchProgress| {
        if let BatchProgress::Answering { rows, .. } = at {
            seen.store(rows as usize, Ordering::Relaxed);
        }
    };
    let summary = run(&asked(), &places, model("demo"), &mut watch, &Cancel::new()).unwrap();
    assert_eq!((summary.answered, summary.failed), (3000, 2999));
    let first = first.load(Ordering::Relaxed);
    assert!((1..=20).contains(&first), "{first} rows before the first of 750 files was written");
}

#[test]
fn reading_the_inputs_can_be_cancelled() {
    let folder = Folder::new();
    let input = table(&folder);
    let cancel = Cancel::new();
    let mut stop = |at| {
        if matches!(at, BatchProgress::Reading { .. }) {
            cancel.cancel();
        }
    };
    let places = places(&input, &folder.path("out"));
    let stopped = run(&asked(), &places, model("demo"), &mut stop, &cancel);
    assert!(matches!(stopped, Err(BatchError::Cancelled)) && !places.output.exists(), "{stopped:?}");
}

#[test]
fn workers_may_finish_at_the_same_time() {
    let folder = Folder::new();
    let input = table(&folder);
    let whole = places(&input, &folder.path("whole"));
    answer(&asked(), &whole).unwrap();
    let places = places(&input, &folder.path("out"));
    let again = places.clone();
    // Another worker writes the manifest and cleans up, while this one is about to rename its own.
    let disk = Disk::observed(move |operation| {
        if matches!(operation, FileOperation::Rename(_, to) if to.ends_with("_manifest.json")) {
            assert!(answer(&asked(), &shard(&again, "1/2")).unwrap().manifest.is_some());
        }
        Ok(())
    });
    let summary = answer(&asked(), &BatchPlaces { disk, ..places.clone() }).unwrap();
    assert!(summary.manifest.is_some());
    assert_eq!(content(&places.output), content(&whole.output));
}

#[test]
fn a_full_queue_is_waited_for() {
    let folder = Folder::new();
    let input = table(&folder);
    let (small, chat) = loaded("demo", 2);
    let on = ChatModel { model: &small, chat: &chat, frames: None };
    let (one, other) = (places(&input, &folder.path("one")), places(&input, &folder.path("other")));
    run(&asked(), &one, on, &mut |_| (), &Cancel::new()).unwrap();
    answer(&asked(), &other).unwrap();
    assert_eq!(content(&one.output), content(&other.output));
}

#[test]
fn two_workers_do_not_share_a_shard() {
    let folder = Folder::new();
    let input = table(&folder);
    let places = places(&input, &folder.path("out"));
    let tries = Arc::new(AtomicUsize::new(0));
    let (again, count) = (places.clone(), tries.clone());
    // While the first worker writes, a second one begins.
    let disk = Disk::observed(move |operation| {
        if let FileOperation::CreateFile(path) = operation
            && path.to_string_lossy().contains("part-00000003")
        {
            count.fetch_add(1, Ordering::Relaxed);
            let refused = answer(&asked(), &again).unwrap_err();
            let fact = format!("process {} works on shard 1/1", std::process::id());
            assert!(refused.to_string().starts_with(&fact), "{refused}");
            // Another shard is free.
            answer(&asked(), &shard(&again, "2/2")).unwrap();
        }
        Ok(())
    });
    let summary = answer(&asked(), &BatchPlaces { disk, ..places.clone() }).unwrap();
    assert_eq!((tries.load(Ordering::Relaxed), summary.done, summary.files), (1, 11, 11));
    assert!(answer(&asked(), &places).is_ok_and(|summary| summary.answered == 0));
}

#[test]
fn shards_have_names() {
    assert_eq!(Shard::ALL.to_string(), "1/1");
    assert_eq!(Shard::new(0, 1), None);
}
