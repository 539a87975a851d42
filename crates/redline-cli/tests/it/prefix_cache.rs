//! `--prefix-cache`, `--memory` and `cache_salt`, through the binary.

use redline_api::cost::PrefixCacheUse;
use redline_api::jsonl::generate::TextCompletion;
use redline_api::jsonl::score::Scoring;

use crate::harness::{bits, redline, redline_reading};

/// Long enough that a request waits for a running one with the same prefix.
const QUERY: &str = "And it came to pass in those days that the king said unto the people of the land, Go up, and see \
    the great city that your fathers built by the river, and tell me what the men of that place say unto you";

fn scored(lines: &str, extra: &[&str]) -> Vec<Scoring> {
    let arguments =
        ["score", "--model", "demo", "--json", "--label-id", "20", "--label-id", "7", "--jsonl", "-"];
    let run = redline_reading(&[&arguments, extra].concat(), lines.as_bytes()).ok();
    run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn line(salt: &str) -> String {
    format!(r#"{{"query":"{QUERY}","items":[" him"," her"],"cache_salt":"{salt}"}}"#) + "\n"
}

#[test]
fn lines_that_begin_alike_share_what_was_computed() {
    let lines = [line(""), line(""), line("tenant")].concat();
    let on = scored(&lines, &[]);
    let off = scored(&lines, &["--prefix-cache", "off"]);
    let shared = on[0].meta.cost.shared_prefix_tokens;
    let used = |hits, misses, cached_tokens| Some(PrefixCacheUse { hits, misses, cached_tokens });
    assert_eq!(on[0].meta.cost.prefix_cache, used(0, 2, 0));
    assert_eq!(on[1].meta.cost.prefix_cache, used(2, 0, 2 * shared));
    assert_eq!(on[1].usage.prompt_tokens_details.cached_tokens, 2 * shared);
    assert_eq!(on[2].meta.cost.prefix_cache, used(0, 2, 0));
    assert_eq!(on[1].meta.cost.computed_tokens + shared, on[0].meta.cost.computed_tokens);
    for (on, off) in on.iter().zip(&off) {
        assert_eq!(bits(on), bits(off));
        assert_eq!((off.meta.cost.prefix_cache, off.usage.prompt_tokens_details.cached_tokens), (None, 0));
    }
}

#[test]
fn generation_takes_its_prompt_from_the_cache() {
    let line = format!(r#"{{"prompt":"{QUERY}","max_new_tokens":4}}"#) + "\n";
    let arguments = ["generate", "--model", "demo", "--json", "--jsonl", "-"];
    let run = redline_reading(&arguments, line.repeat(2).as_bytes()).ok();
    let answers: Vec<TextCompletion> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0].choices, answers[1].choices);
    let usage = answers[1].usage;
    assert_eq!(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens - 1);
    assert_eq!(answers[1].meta.prefix_cache.map(|used| used.hits), Some(1));
}

#[test]
fn generation_takes_nothing_from_lines_of_another_salt() {
    let line =
        |salt: &str| format!(r#"{{"prompt":"{QUERY}","max_new_tokens":2,"cache_salt":"{salt}"}}"#) + "\n";
    let unsalted = format!(r#"{{"prompt":"{QUERY}","max_new_tokens":2}}"#) + "\n";
    let lines = [unsalted, line("tenant"), line("other"), line("tenant"), line("")];
    let arguments = ["generate", "--model", "demo", "--json", "--jsonl", "-"];
    let run = redline_reading(&arguments, lines.concat().as_bytes()).ok();
    let answers: Vec<TextCompletion> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cached: Vec<_> = answers.iter().map(|a| a.usage.prompt_tokens_details.cached_tokens).collect();
    let all = answers[0].usage.prompt_tokens - 1;
    assert_eq!(cached, [0, 0, 0, all, all]);
    assert!(answers.iter().all(|answer| answer.choices == answers[0].choices));
}

#[test]
fn a_budget_is_held_against_the_model_and_the_request() {
    let score = |extra: &[&str]| {
        let arguments = ["score", "--model", "demo", "--query", QUERY, "--item", "", "--label-id", "7"];
        redline(&[&arguments, extra].concat())
    };
    score(&["--memory", "1GiB"]).ok();
    score(&["--memory", "2MiB"]).failed(&["a memory budget of 2 MiB", "`--memory "]);
    score(&["--memory", "lots"]).usage(&["--memory", "8GiB"]);
    score(&["--prefix-cache", "64MiB"]).ok();
    score(&["--prefix-cache", "maybe"]).usage(&["--prefix-cache", "on or off"]);
}

#[test]
fn prefixes_on_disk_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("prefixes");
    let dir = dir.to_str().unwrap();
    let query = [QUERY, QUERY, QUERY].join(" ");
    let line = format!(r#"{{"query":"{query}","items":[" him"," her"]}}"#) + "\n";
    let plain = scored(&line, &[]);
    let (first, second) =
        (scored(&line, &["--prefix-cache-dir", dir]), scored(&line, &["--prefix-cache-dir", dir]));
    let cached = |answers: &[Scoring]| answers[0].usage.prompt_tokens_details.cached_tokens;
    assert!(cached(&first) == 0 && cached(&second) >= 2 * 64 && cached(&second).is_multiple_of(2 * 64));
    for answers in [&first, &second] {
        assert_eq!(bits(&answers[0]), bits(&plain[0]));
    }
    for file in std::fs::read_dir(dir).unwrap() {
        std::fs::write(file.unwrap().path(), "no page").unwrap();
    }
    let arguments =
        ["score", "--model", "demo", "--json", "--label-id", "20", "--label-id", "7", "--jsonl", "-"];
    let run = redline_reading(&[&arguments, &["--prefix-cache-dir", dir][..]].concat(), line.as_bytes()).ok();
    let warning = "warning: a stored page is damaged and is computed again: it has 7 bytes";
    assert!(run.err.contains(warning) && run.err.contains("\n  in `"), "{}", run.err);
    let again: Scoring = serde_json::from_str(run.out.trim()).unwrap();
    assert_eq!(bits(&again), bits(&plain[0]));
}

#[test]
fn a_directory_that_cannot_keep_prefixes_is_reported_and_a_senseless_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let arguments = ["score", "--model", "demo", "--query", "a", "--item", " b", "--label-id", "20"];
    let with = |extra: &[&str]| redline(&[&arguments, extra].concat());
    let run = with(&["--prefix-cache-dir", file.to_str().unwrap()]).ok();
    assert!(run.err.contains("warning: the prefix cache is kept in memory only: "), "{}", run.err);
    let run = with(&["--prefix-cache-dir", folder.path().to_str().unwrap(), "--prefix-cache", "off"]);
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("`--prefix-cache-dir` needs the prefix cache, which is off\n\nhint: leave out"),
        "{}",
        run.err
    );
}
