//! Keys and values that outlive the process change how much is computed, and nothing else, whatever happens to their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use redline_engine::{
    AdapterChoice, AdapterOptions, Cancel, Engine, GenerateRequest, Label, LongLabels, Options, PageGauges,
    PrefixCacheSize, PrefixDir, PrefixDirEvent, PromptLogprobs, ScoreRequest,
};
use redline_kernels::op::kv::{KvFormat, PAGE_TOKENS};
use redline_kernels::{Format, Tier};

use crate::models::{
    LONG, WINDOWED, bits, budget, demo_dir, generation, golden_dir, ids, options, scores, tiny_of,
};

/// The events in the log of an engine.
type Reported = Arc<Mutex<Vec<PrefixDirEvent>>>;

/// An engine that keeps pages in a directory.
fn keeping(dir: &Path, base: Options) -> (Engine, Reported) {
    limited(dir, 1 << 30, base)
}

fn limited(dir: &Path, bytes: u64, base: Options) -> (Engine, Reported) {
    let reported = Reported::default();
    let heard = reported.clone();
    let log = Arc::new(move |event: &PrefixDirEvent| heard.lock().unwrap().push(event.clone()));
    let prefix_dir = Some(PrefixDir { dir: dir.to_owned(), bytes, log });
    (Engine::load(Options { prefix_dir, ..base }).unwrap(), reported)
}

fn gauges(engine: &Engine) -> PageGauges {
    engine.gauges().disk_pages.unwrap()
}

/// A prompt of a golden checkpoint.
fn prompt(first: i64, length: i64) -> Vec<i64> {
    (0..length).map(|i| (first + 7 * i + i / 90) % 100).collect()
}

/// A score request with a query of 100 tokens. The second of its items is kept, in three full pages.
fn asking(first: i64) -> ScoreRequest {
    of_lengths(first, [100, 40, 100])
}

/// The full pages of that request, and the number of tokens that it finds in them: the whole of the second item's pages, and the
/// query in them for the others.
const PAGES: usize = 3;
const CACHED: usize = 100 + 192 + 100;

/// A score request with a query and two items of these lengths, and a short item.
fn of_lengths(first: i64, [query, one, other]: [i64; 3]) -> ScoreRequest {
    let items = vec![ids(&prompt(1, one)), ids(&prompt(2, other)), ids(&[5])];
    let labels = vec![Label::Ids(vec![1]), Label::Ids(vec![2, 3]), Label::Ids(vec![40])];
    let long_labels = LongLabels::Sum;
    ScoreRequest { long_labels, ..ScoreRequest::new(ids(&prompt(first, query)), items, labels) }
}

/// The bits of the scores, and the number of cached tokens.
fn score(engine: &Engine, request: ScoreRequest) -> (Vec<Vec<u32>>, usize) {
    let outcome = engine.score(request).unwrap();
    (bits(&scores(&outcome)), outcome.cost.usage.cached_tokens)
}

fn generate(engine: &Engine, request: GenerateRequest) -> (Vec<u32>, usize) {
    let outcome = engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap();
    (outcome.token_ids, outcome.usage.cached_tokens)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_restarted_engine_reads_what_it_computed() {
    let folder = tempfile::tempdir().unwrap();
    for &kv_format in KvFormat::ALL.iter().filter(|format| format.holds(20)) {
        let base = || Options { kv_format: Some(kv_format), poison: true, ..options(&golden_dir()) };
        let plain = Engine::load(base()).unwrap();
        let expected = score(&plain, asking(3)).0;
        let continued = generate(&plain, generation(ids(&prompt(9, 150)), 80)).0;
        let (engine, _) = keeping(folder.path(), base());
        assert_eq!(score(&engine, asking(3)), (expected.clone(), 0));
        assert_eq!(generate(&engine, generation(ids(&prompt(9, 150)), 80)), (continued.clone(), 0));
        let before = files(folder.path()).len();
        drop(engine);
        // The prompt of 150 tokens and its continuation fill three pages, of which the prompt fills two.
        let (engine, reported) = keeping(folder.path(), base());
        let found = gauges(&engine);
        assert!(found.pages as usize >= before && found.read == 0, "{kv_format:?}: {found:?}");
        assert_eq!(score(&engine, asking(3)), (expected.clone(), CACHED), "{kv_format:?}");
        let longer = generation(ids(&prompt(9, 150)), 80);
        assert_eq!(generate(&engine, longer), (continued.clone(), 128), "{kv_format:?}");
        let read = gauges(&engine).read;
        assert_eq!(read, PAGES as u64 + 2, "every page is read once");
        // What was read is in memory now.
        assert_eq!(score(&engine, asking(3)).0, expected);
        assert_eq!(gauges(&engine).read, read);
        assert_eq!(engine.in_use().unwrap().requests, 0);
        assert!(reported.lock().unwrap().is_empty(), "{reported:?}");
    }
}

#[test]
fn tiers_and_threads_share_pages() {
    let folder = tempfile::tempdir().unwrap();
    let tiers: Vec<Tier> = Tier::ALL.iter().copied().filter(|tier| tier.available().is_ok()).collect();
    let expected = score(&Engine::load(options(&golden_dir())).unwrap(), asking(3)).0;
    for (at, &tier) in tiers.iter().enumerate() {
        let base = Options { tier: Some(tier), threads: 1 + at % 2, ..options(&golden_dir()) };
        let (engine, _) = keeping(folder.path(), base);
        let cached = if at == 0 { 0 } else { CACHED };
        assert_eq!(score(&engine, asking(3)), (expected.clone(), cached), "{tier:?}");
    }
    assert_eq!(files(folder.path()).len(), PAGES);
}

#[test]
fn models_formats_and_salts_share_no_page() {
    let folder = tempfile::tempdir().unwrap();
    let w8 = Some(Format::W8 { group: 128 });
    let models = tempfile::tempdir().unwrap();
    let tiny = |name: &str, change: f32| {
        let dir = models.path().join(name);
        fs::create_dir(&dir).unwrap();
        options(&tiny_of(LONG, &dir, |_, values| values[0] += change))
    };
    let bases = [
        options(&golden_dir()),
        Options { kv_format: Some(KvFormat::Bf16), ..options(&golden_dir()) },
        tiny("one", 0.0),
        tiny("other", 0.5),
        Options { format: w8, ..options(&golden_dir()) },
        Options { format: w8, outliers: 0.1, ..options(&golden_dir()) },
        Options { kv_format: Some(KvFormat::W8), ..options(&golden_dir()) },
    ];
    for base in bases {
        let (engine, _) = keeping(folder.path(), base);
        assert_eq!(score(&engine, asking(3)).1, 0);
        let salted = ScoreRequest { cache_salt: "tenant".into(), ..asking(3) };
        assert_eq!(score(&engine, salted.clone()).1, 0);
        assert_eq!(gauges(&engine).read, 0);
        drop(engine);
    }
    assert_eq!(files(folder.path()).len(), 7 * 2 * PAGES);
}

#[test]
fn adapters_have_pages_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let golden = golden_dir().with_file_name("llama-a");
    let base = || Options { adapters: Some(AdapterOptions::default()), ..options(&golden) };
    let with = |name: &str, scale| {
        let adapters = vec![AdapterChoice { name: name.into(), scale }];
        ScoreRequest { adapters, ..of_lengths(3, [70, 30, 50]) }
    };
    let load = |engine: &Engine, names: [&str; 2]| {
        for (name, dir) in names.into_iter().zip(["llama-plain", "llama-headless"]) {
            engine.load_adapter(name, &golden.with_file_name("adapters").join(dir), None).unwrap();
        }
    };
    let (engine, _) = keeping(folder.path(), base());
    load(&engine, ["one", "two"]);
    let all = || [of_lengths(3, [70, 30, 50]), with("one", 1.0), with("two", 1.0), with("one", 0.5)];
    let expected = all().map(|request| score(&engine, request));
    assert!(expected.iter().all(|(_, cached)| *cached == 0));
    drop(engine);
    let (engine, _) = keeping(folder.path(), base());
    // Under exchanged names, and then as other generations: names and generations are not what tells adapters apart.
    load(&engine, ["two", "one"]);
    assert_eq!(score(&engine, with("one", 1.0)), (expected[2].0.clone(), 3 * PAGE_TOKENS));
    drop(engine);
    let (engine, _) = keeping(folder.path(), base());
    load(&engine, ["two", "one"]);
    engine.unload_adapter("one", None).unwrap();
    engine.unload_adapter("two", None).unwrap();
    load(&engine, ["one", "two"]);
    for (request, (scores, _)) in all().into_iter().zip(&expected) {
        let (again, cached) = score(&engine, request);
        assert_eq!((&again, cached), (scores, 3 * PAGE_TOKENS));
    }
}

#[test]
fn damaged_files_are_reported_and_computed_again() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, _) = keeping(folder.path(), options(&golden_dir()));
    let (expected, _) = score(&engine, asking(3));
    drop(engine);
    let whole: Vec<(PathBuf, Vec<u8>)> =
        files(folder.path()).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert_eq!(whole.len(), PAGES);
    for round in 0..24 {
        for (path, bytes) in &whole {
            let mut damaged = bytes.clone();
            match round {
                0 => damaged.truncate(100),
                1 => damaged.clear(),
                2 => damaged.push(0),
                3 => damaged.fill(0),
                _ => {
                    let bit = (round * 2_654_435_761) % (8 * damaged.len());
                    damaged[bit / 8] ^= 1 << (bit % 8);
                }
            }
            fs::write(path, damaged).unwrap();
        }
        let (engine, reported) = keeping(folder.path(), options(&golden_dir()));
        assert_eq!(score(&engine, asking(3)), (expected.clone(), 0), "round {round}");
        let damaged = gauges(&engine).damaged;
        assert!(damaged > 0);
        drop(engine);
        let reported = reported.lock().unwrap();
        assert_eq!(reported.len() as u64, damaged);
        assert!(reported.iter().all(|event| matches!(event, PrefixDirEvent::Damaged { .. })), "{reported:?}");
        // They were written again, with the same bytes.
        let first = |path: &Path| {
            reported.iter().any(|event| matches!(event, PrefixDirEvent::Damaged { path: p, .. } if p == path))
        };
        for (path, bytes) in whole.iter().filter(|(path, _)| first(path)) {
            assert!(fs::read(path).unwrap() == *bytes, "round {round}");
        }
    }
    // Pages swapped by someone.
    fs::write(&whole[0].0, &whole[1].1).unwrap();
    fs::write(&whole[1].0, &whole[0].1).unwrap();
    let (engine, _) = keeping(folder.path(), options(&golden_dir()));
    assert_eq!(score(&engine, asking(3)).0, expected);
}

#[cfg(unix)]
#[test]
fn pages_that_cannot_be_opened_are_reported_once_and_computed() {
    let folder = tempfile::tempdir().unwrap();
    let asked = || [3, 9, 27].map(|first| generation(ids(&prompt(first, 150)), 1));
    let all = |engine: &Engine| asked().map(|request| generate(engine, request));
    let (engine, _) = keeping(folder.path(), options(&golden_dir()));
    let expected = all(&engine);
    drop(engine);
    for path in files(folder.path()) {
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
    }
    let (engine, reported) = keeping(folder.path(), options(&golden_dir()));
    assert_eq!(all(&engine), expected);
    let found = gauges(&engine);
    assert_eq!((found.read, found.damaged), (0, 0));
    drop(engine);
    let reported = reported.lock().unwrap();
    assert!(matches!(&reported[..], [PrefixDirEvent::NotRead { .. }]), "{reported:?}");
}

#[test]
fn missing_pages_end_what_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let asked = || generation(ids(&prompt(3, 250)), 1);
    let (engine, _) = keeping(folder.path(), options(&golden_dir()));
    let (expected, _) = generate(&engine, asked());
    drop(engine);
    let all = files(folder.path());
    assert_eq!(all.len(), 3);
    let mut cached = Vec::new();
    for gone in &all {
        let bytes = fs::read(gone).unwrap();
        fs::remove_file(gone).unwrap();
        let (engine, reported) = keeping(folder.path(), options(&golden_dir()));
        let (ids, reused) = generate(&engine, asked());
        assert_eq!(ids, expected);
        assert!(reported.lock().unwrap().is_empty());
        cached.push(reused);
        drop(engine);
        assert!(fs::read(gone).unwrap() == bytes, "it is written again");
    }
    cached.sort_unstable();
    assert_eq!(cached, [0, 64, 128]);
}

#[test]
fn echoed_prompts_are_computed_where_their_logits_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let asked = |from| {
        let prompt_logprobs = Some(PromptLogprobs { top: 1, from });
        GenerateRequest { prompt_logprobs, ..generation(ids(&prompt(3, 200)), 1) }
    };
    let (engine, _) = keeping(folder.path(), options(&golden_dir()));
    let expected = engine.generate(asked(0), &Cancel::new(), &mut |_| ()).unwrap();
    drop(engine);
    for (from, read) in [(0, 0), (130, 2), (129, 2), (128, 1)] {
        let (engine, _) = keeping(folder.path(), options(&golden_dir()));
        let got = engine.generate(asked(from), &Cancel::new(), &mut |_| ()).unwrap();
        assert_eq!(gauges(&engine).read, read, "{from}");
        let (all, own) = (expected.prompt_logprobs.as_ref().unwrap(), got.prompt_logprobs.unwrap());
        let first = own.iter().position(Option::is_some).unwrap();
        assert!(first <= from.max(1) && format!("{:?}", &all[first..]) == format!("{:?}", &own[first..]));
    }
}

#[test]
fn directories_that_cannot_be_used_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let mut bad = vec![file.clone(), file.join("below")];
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        bad.push(open);
    }
    let expected = score(&Engine::load(options(&golden_dir())).unwrap(), asking(3));
    for dir in bad {
        let (engine, reported) = keeping(&dir, options(&golden_dir()));
        assert_eq!(score(&engine, asking(3)), expected);
        let reported = reported.lock().unwrap();
        assert!(
            matches!(&reported[..], [PrefixDirEvent::Unusable { dir: at, .. }] if *at == dir),
            "{reported:?}"
        );
    }
}

#[test]
fn the_files_keep_within_their_budget() {
    let folder = tempfile::tempdir().unwrap();
    let base = || options(&golden_dir());
    let page = Engine::load(base()).unwrap().info().kv_bytes_per_token * PAGE_TOKENS as u64 + 64;
    let (engine, reported) = limited(folder.path(), 10 * page, base());
    for first in 0..8 {
        score(&engine, asking(first));
    }
    drop(engine);
    let bytes: u64 = files(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!((5 * page..=10 * page).contains(&bytes), "{bytes} bytes, {page} each");
    assert!(reported.lock().unwrap().is_empty());
    let small = folder.path().join("small");
    let (engine, reported) = limited(&small, page - 1, base());
    score(&engine, asking(3));
    score(&engine, asking(4));
    drop(engine);
    let reported = reported.lock().unwrap();
    assert!(
        matches!(&reported[..], [PrefixDirEvent::NotWritten { reason, .. }] if reason.contains("budget")),
        "{reported:?}"
    );
    assert!(files(&small).is_empty());
}

#[test]
fn little_memory_is_no_obstacle() {
    let folder = tempfile::tempdir().unwrap();
    let base = || options(&golden_dir());
    let plain = Engine::load(base()).unwrap();
    let (engine, _) = keeping(folder.path(), base());
    let expected: Vec<_> = (0..4).map(|first| score(&engine, asking(first)).0).collect();
    drop(engine);
    // A request needs eight pages. There are also those between memory and disk, and those that are kept.
    for (pages, kept) in [(9, 0), (9, 4), (12, 12), (40, 3)] {
        let memory = Some(budget(plain.info(), pages + 24, 0));
        let page = plain.info().kv_bytes_per_token * PAGE_TOKENS as u64;
        let prefix_cache = Some(PrefixCacheSize::Bytes(kept * page));
        let (engine, _) = keeping(folder.path(), Options { memory, prefix_cache, ..base() });
        std::thread::scope(|scope| {
            for (first, expected) in expected.iter().enumerate() {
                let engine = &engine;
                scope.spawn(move || {
                    for _ in 0..3 {
                        assert_eq!(score(engine, asking(first as i64)).0, *expected);
                    }
                });
            }
        });
        let held = engine.in_use().unwrap();
        assert_eq!((held.requests, held.sequences), (0, held.kept), "{held:?}");
    }
}

#[test]
fn sequences_that_gave_back_pages_are_not_saved_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let model = tiny_of(WINDOWED, folder.path(), |_, _| ());
    let pages = folder.path().join("pages");
    let asked = || generation(ids(&prompt(3, 330)), 200);
    let expected = generate(&Engine::load(options(&model)).unwrap(), asked()).0;
    for _ in 0..2 {
        let (engine, reported) = keeping(&pages, options(&model));
        assert_eq!(generate(&engine, asked()).0, expected);
        drop(engine);
        assert!(reported.lock().unwrap().is_empty());
    }
}

#[test]
fn the_demo_model_reads_the_state_of_its_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let text = "And it came to pass in those days that the king said unto the people. ".repeat(12);
    let asked = || {
        let items = vec![" yes".into(), " no".into()].into_iter().map(redline_engine::Prompt::Text).collect();
        let labels = vec![Label::Text(" the".into()), Label::Text(" a".into())];
        ScoreRequest::new(redline_engine::Prompt::Text(text.clone()), items, labels)
    };
    let base = || Options { kv_format: Some(KvFormat::W4), ..options(&demo_dir()) };
    let expected = score(&Engine::load(base()).unwrap(), asked()).0;
    let (engine, _) = keeping(folder.path(), base());
    assert_eq!(score(&engine, asked()), (expected.clone(), 0));
    drop(engine);
    let (engine, _) = keeping(folder.path(), base());
    let (again, cached) = score(&engine, asked());
    assert_eq!(again, expected);
    assert!(cached >= 2 * PAGE_TOKENS && cached.is_multiple_of(2 * PAGE_TOKENS), "{cached}");
}
