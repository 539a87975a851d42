//! Requests with adapters: same answers whatever runs beside them, and adapters that are replaced, evicted and refused.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use redline_engine::{
    AdapterChoice, AdapterOptions, Cancel, Engine, EngineError, GenerateRequest, Label, Options,
    PerplexityRequest, ScoreRequest, Stage, StageLog, StageTime,
};
use redline_kernels::Format;

use crate::models::{ids, options};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

fn adapter(name: &str) -> PathBuf {
    golden("adapters").join(name)
}

/// The base of several golden adapters, without any loaded.
fn engine(adapters: AdapterOptions) -> Engine {
    let options = options(&golden("llama-a"));
    Engine::load(Options { adapters: Some(adapters), format: Some(Format::W8 { group: 128 }), ..options })
        .unwrap()
}

/// The same with adapters by the names of their directories.
fn loaded(names: &[&str]) -> Engine {
    let engine = engine(AdapterOptions::default());
    for name in names {
        engine.load_adapter(name, &adapter(name), None).unwrap();
    }
    engine
}

fn one(name: &str) -> Vec<AdapterChoice> {
    vec![AdapterChoice { name: name.to_owned(), scale: 1.0 }]
}

fn tokens(first: i64) -> Vec<i64> {
    (0..24).map(|i| (first + 7 * i) % 100).collect()
}

fn request(first: i64, adapters: Vec<AdapterChoice>) -> ScoreRequest {
    let items = vec![ids(&[5, 6]), ids(&[9])];
    let labels = vec![Label::Ids(vec![1]), Label::Ids(vec![2]), Label::Ids(vec![40])];
    ScoreRequest { adapters, ..ScoreRequest::new(ids(&tokens(first)), items, labels) }
}

fn score(engine: &Engine, request: ScoreRequest) -> Result<Vec<u32>, EngineError> {
    let outcome = engine.score(request)?;
    let items = outcome.items.into_iter().map(Result::unwrap);
    Ok(items.flat_map(|item| item.scores).map(f32::to_bits).collect())
}

fn continued(engine: &Engine, adapters: Vec<AdapterChoice>) -> Vec<u32> {
    let request = GenerateRequest { adapters, ..GenerateRequest::new(ids(&tokens(3)), 12) };
    engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap().token_ids
}

#[test]
fn requests_with_different_adapters_run_together_as_alone() {
    let names = ["llama-plain", "llama-dora", "llama-headless", "llama-dora-embedding"];
    let choices: Vec<Vec<AdapterChoice>> = names.iter().map(|name| one(name)).chain([Vec::new()]).collect();
    let alone: Vec<Vec<u32>> =
        choices.iter().map(|choice| score(&loaded(&names), request(1, choice.clone())).unwrap()).collect();
    for (i, a) in alone.iter().enumerate() {
        assert!(alone[..i].iter().all(|b| a != b), "adapter {i} changes scores");
    }
    let engine = loaded(&names);
    let tickets: Vec<_> = (0..3)
        .flat_map(|_| &choices)
        .map(|choice| engine.submit_score(request(1, choice.clone()), &Cancel::new()).unwrap())
        .collect();
    for (i, ticket) in tickets.into_iter().enumerate() {
        let items = ticket.wait().unwrap().items.into_iter().map(Result::unwrap);
        let scores: Vec<u32> = items.flat_map(|item| item.scores).map(f32::to_bits).collect();
        assert_eq!(scores, alone[i % alone.len()], "request {i}");
    }
}

#[test]
fn every_kind_of_request_takes_adapters() {
    let engine = loaded(&["llama-plain", "llama-headless"]);
    let (base, plain) = (continued(&engine, Vec::new()), continued(&engine, one("llama-plain")));
    assert_ne!(base, plain);
    let nll = |adapters| {
        let request = PerplexityRequest { text: ids(&tokens(5)), window: Some(12), adapters };
        engine.perplexity(request, &Cancel::new()).unwrap().nll.value.to_bits()
    };
    assert_ne!(nll(Vec::new()), nll(one("llama-plain")));
    assert_eq!(nll(one("llama-plain")), nll(one("llama-plain")));
    let both = |first: &str, second: &str| {
        let choice = |name: &str, scale| AdapterChoice { name: name.to_owned(), scale };
        score(&engine, request(1, vec![choice(first, 1.0), choice(second, 0.5)])).unwrap()
    };
    let mixed = both("llama-plain", "llama-headless");
    assert_ne!(mixed, score(&engine, request(1, one("llama-plain"))).unwrap());
    assert_ne!(mixed, both("llama-headless", "llama-plain"), "the scale belongs to one of them");
}

#[test]
fn adapters_share_no_prefix() {
    let engine = loaded(&["llama-plain", "llama-headless"]);
    let cached = |adapters: Vec<AdapterChoice>| {
        let outcome = engine.score(request(1, adapters)).unwrap();
        outcome.cost.prefix_cache.map(|cache| cache.cached_tokens)
    };
    let scaled = vec![AdapterChoice { name: "llama-plain".into(), scale: 0.5 }];
    for adapters in [Vec::new(), one("llama-plain"), one("llama-headless"), scaled] {
        let (first, second) = (cached(adapters.clone()), cached(adapters.clone()));
        assert_eq!(first, Some(0), "{adapters:?}");
        assert!(second > Some(20), "{adapters:?}: {second:?}");
    }
    // Another generation of the same name computes anew.
    engine.load_adapter("llama-plain", &adapter("llama-dora"), None).unwrap();
    assert_eq!(cached(one("llama-plain")), Some(0));
}

#[test]
fn a_name_is_replaced_rolled_back_and_removed() {
    let engine = loaded(&["llama-plain"]);
    let ask = |name: &str| score(&engine, request(1, one(name)));
    let plain = ask("llama-plain").unwrap();
    assert_eq!(engine.adapters()[0].generation, 1);
    let stale = engine.load_adapter("llama-plain", &adapter("llama-dora"), Some(0)).unwrap_err();
    assert!(stale.to_string().contains("generation 1 instead of 0"), "{stale}");
    assert_eq!(ask("llama-plain").unwrap(), plain, "nothing changed");
    assert_eq!(engine.load_adapter("llama-plain", &adapter("llama-dora"), Some(1)).unwrap().generation, 2);
    let dora = ask("llama-plain").unwrap();
    assert_ne!(dora, plain);
    assert_eq!(engine.roll_back_adapter("llama-plain").unwrap().generation, 3);
    assert_eq!(ask("llama-plain").unwrap(), plain);
    // A ticket that was submitted before keeps its adapter.
    let ticket = engine.submit_score(request(2, one("llama-plain")), &Cancel::new()).unwrap();
    engine.unload_adapter("llama-plain", None).unwrap();
    assert!(ticket.wait().is_ok());
    let gone = ask("llama-plain").unwrap_err().to_string();
    assert!(gone.contains("no adapter is named `llama-plain`"), "{gone}");
    assert!(
        engine.unload_adapter("llama-plain", None).is_err()
            && engine.roll_back_adapter("llama-plain").is_err()
    );
}

#[test]
fn evicted_adapters_are_read_again_when_they_are_needed() {
    let names = ["llama-plain", "llama-dora", "llama-headless"];
    let whole = loaded(&names);
    let want: Vec<_> = names.iter().map(|name| score(&whole, request(1, one(name))).unwrap()).collect();
    let largest = whole.adapters().iter().map(|adapter| adapter.bytes).max().unwrap();
    let tight = engine(AdapterOptions { memory: largest, ..AdapterOptions::default() });
    for name in names {
        tight.load_adapter(name, &adapter(name), None).unwrap();
    }
    for round in 0..3 {
        for (name, want) in names.iter().zip(&want) {
            assert_eq!(&score(&tight, request(1, one(name))).unwrap(), want, "{name} in round {round}");
            let bytes: u64 = tight.adapters().iter().map(|adapter| adapter.bytes).sum();
            assert!(bytes > 0 && bytes <= largest, "{bytes} of {largest}");
        }
    }
    assert_eq!(tight.adapters().iter().map(|adapter| adapter.generation).collect::<Vec<_>>(), [2, 3, 1]);
    // Two that do not fit together cannot be combined.
    let bytes = |name: &str| whole.adapters().iter().find(|adapter| adapter.name == name).unwrap().bytes;
    let memory = bytes("llama-plain").max(bytes("llama-headless"));
    let narrow = engine(AdapterOptions { memory, ..AdapterOptions::default() });
    for name in ["llama-plain", "llama-headless"] {
        narrow.load_adapter(name, &adapter(name), None).unwrap();
    }
    let both = vec![one("llama-plain").remove(0), one("llama-headless").remove(0)];
    let refused = score(&narrow, request(1, both)).unwrap_err().to_string();
    assert!(refused.contains("does not hold the 2 that are combined"), "{refused}");
    let none = engine(AdapterOptions { memory: 100, ..AdapterOptions::default() });
    let refused = none.load_adapter("a", &adapter("llama-plain"), None).unwrap_err().to_string();
    assert!(refused.contains("exceeds the 100 bytes for adapters"), "{refused}");
}

/// Threads that evict each other's adapters do not keep a request from beginning.
#[test]
fn several_threads_read_what_requests_combine() {
    let names = ["llama-plain", "llama-headless"];
    let choice = |name: &str, scale| AdapterChoice { name: name.to_owned(), scale };
    let combined = |scale| vec![choice(names[0], scale), choice(names[1], 0.5)];
    let whole = loaded(&names);
    let want: Vec<_> =
        [0.25, 0.5, 1.0].iter().map(|&scale| score(&whole, request(1, combined(scale))).unwrap()).collect();
    // There is no room for a third one, which is used in turn with these and evicts one of them again and again.
    whole.load_adapter("third", &adapter("llama-dora"), None).unwrap();
    let all: u64 = whole.adapters().iter().map(|adapter| adapter.bytes).sum();
    let memory = all - 1;
    let tight = engine(AdapterOptions { memory, threads: 3, ..AdapterOptions::default() });
    for name in names {
        tight.load_adapter(name, &adapter(name), None).unwrap();
    }
    tight.load_adapter("third", &adapter("llama-dora"), None).unwrap();
    let tickets: Vec<_> = (0..60)
        .map(|i| {
            let adapters = if i % 4 == 3 { one("third") } else { combined([0.25, 0.5, 1.0][i % 4]) };
            tight.submit_score(request(1, adapters), &Cancel::new()).unwrap()
        })
        .collect();
    for (i, ticket) in tickets.into_iter().enumerate() {
        let items = ticket.wait().unwrap().items.into_iter().map(Result::unwrap);
        let scores: Vec<u32> = items.flat_map(|item| item.scores).map(f32::to_bits).collect();
        assert!(i % 4 == 3 || scores == want[i % 4], "request {i}");
    }
    let kept: u64 = tight.adapters().iter().map(|adapter| adapter.bytes).sum();
    assert!(kept <= memory, "{kept} of {memory}");
}

#[test]
fn an_engine_reports_when_it_works() {
    let reported: Arc<Mutex<Vec<StageTime>>> = Arc::default();
    let log: StageLog = {
        let reported = reported.clone();
        Arc::new(move |time| reported.lock().unwrap().push(time))
    };
    let whole = loaded(&["llama-plain", "llama-dora"]);
    let memory = whole.adapters().iter().map(|adapter| adapter.bytes).max().unwrap();
    let adapters = AdapterOptions { memory, ..AdapterOptions::default() };
    let of_base = options(&golden("llama-a"));
    let format = Some(Format::W8 { group: 128 });
    let engine =
        Engine::load(Options { adapters: Some(adapters), format, stages: Some(log), ..of_base }).unwrap();
    let stages = || {
        let all = std::mem::take(&mut *reported.lock().unwrap());
        assert!(all.iter().all(|time| time.start <= time.end), "{all:?}");
        all.iter().map(|time| time.stage).collect::<Vec<_>>()
    };
    engine.load_adapter("a", &adapter("llama-plain"), None).unwrap();
    assert_eq!(stages(), [Stage::Load]);
    engine.load_adapter("b", &adapter("llama-dora"), None).unwrap();
    assert_eq!(stages(), [Stage::Load]);
    score(&engine, request(1, Vec::new())).unwrap();
    let passes = stages();
    assert!(!passes.is_empty() && passes.iter().all(|stage| *stage == Stage::Pass), "{passes:?}");
    score(&engine, request(1, one("a"))).unwrap();
    assert_eq!(stages()[..2], [Stage::Restore, Stage::Pass], "the first one was evicted");
    score(&engine, request(1, one("a"))).unwrap();
    assert!(!stages().contains(&Stage::Restore), "it is in memory");
}

#[cfg(target_os = "linux")]
#[test]
fn bound_threads_give_the_same_answers() {
    let adapters = AdapterOptions { threads: 2, ..AdapterOptions::default() };
    let with = |pin: bool, threads: usize| {
        let of_base = options(&golden("llama-a"));
        let engine = Engine::load(Options { adapters: Some(adapters), pin, threads, ..of_base })?;
        engine.load_adapter("a", &adapter("llama-plain"), None)?;
        score(&engine, request(1, one("a")))
    };
    assert_eq!(with(true, 1).unwrap(), with(false, 1).unwrap());
    let refused = with(true, 1024).unwrap_err().to_string();
    assert!(refused.contains("logical CPUs to bind them to"), "{refused}");
}

#[test]
fn random_adapters_fit_the_model_and_follow_from_their_seed() {
    let engine = engine(AdapterOptions::default());
    let folder = tempfile::tempdir().unwrap();
    let dir = |name: &str| folder.path().join(name);
    for (name, seed) in [("one", 1), ("again", 1), ("two", 2)] {
        engine.synth_adapter(&dir(name), 3, seed).unwrap();
    }
    let file = |name: &str| std::fs::read(dir(name).join("adapter_model.safetensors")).unwrap();
    assert_eq!(file("one"), file("again"));
    assert_ne!(file("one"), file("two"));
    for name in ["one", "two"] {
        engine.load_adapter(name, &dir(name), None).unwrap();
    }
    let answers = [Vec::new(), one("one"), one("two")].map(|adapters| continued(&engine, adapters));
    assert!(answers[0] != answers[1] && answers[1] != answers[2], "{answers:?}");
    assert!(engine.synth_adapter(&dir("one"), 3, 1).is_err(), "the directory is not empty");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let engine = loaded(&["llama-plain", "llama-dora"]);
    let refused = |adapters| score(&engine, request(1, adapters)).unwrap_err().to_string();
    let choice = |name: &str, scale| AdapterChoice { name: name.to_owned(), scale };
    assert!(refused(one("tone")).contains("no adapter is named `tone`"));
    assert!(refused(vec![choice("llama-plain", f32::NAN)]).contains("the scale of `llama-plain` is NaN"));
    assert!(refused(vec![choice("llama-plain", 1e20)]).contains("the scale of `llama-plain` is 1e20"));
    assert!(refused(vec![choice("llama-dora", 0.5)]).contains("DoRA"));
    assert!(refused(vec![choice("llama-plain", 1.0), choice("llama-dora", 1.0)]).contains("DoRA"));
    assert!(refused(vec![choice("llama-plain", 0.1); 5]).contains("5 adapters are combined"));
    let load = |name: &str, dir: PathBuf| engine.load_adapter(name, &dir, None).unwrap_err().to_string();
    assert!(load("other", adapter("llama-plain")).contains("`other` is the same adapter as `llama-plain`"));
    assert!(load("base", adapter("llama-headless")).contains("`base` is no name"));
    assert!(load("a b", adapter("llama-headless")).contains("is no name"));
    assert!(load("gpt", adapter("gpt2-conv1d")).len() > 20);
    assert!(load("missing", adapter("no-such")).contains("no-such"));
    assert_eq!(engine.adapters().len(), 2);
    let idle = AdapterOptions { threads: 0, ..AdapterOptions::default() };
    let options_of = |adapters| Options { adapters: Some(adapters), ..options(&golden("llama-a")) };
    assert!(
        Engine::load(options_of(idle)).is_err_and(|e| e.to_string().contains("0 threads that read adapters"))
    );
    let without = Engine::load(options(&golden("llama-a"))).unwrap();
    assert!(without.load_adapter("a", &adapter("llama-plain"), None).is_err());
    assert!(score(&without, request(1, one("a"))).unwrap_err().to_string().contains("no adapter is loaded"));
}

/// While a name is replaced again and again, half of the time by an adapter that is damaged, every request succeeds with the scores of
/// one generation.
#[test]
fn requests_go_on_while_adapters_are_replaced() {
    const RELOADS: usize = 60;
    let engine = loaded(&["llama-plain"]);
    let of = |name: &str| score(&loaded(&[name]), request(1, one(name))).unwrap();
    let (plain, dora) = (of("llama-plain"), of("llama-dora"));
    let damaged = tempfile::tempdir().unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        let bytes = std::fs::read(adapter("llama-dora").join(file)).unwrap();
        let kept = if file.ends_with("json") { bytes.len() } else { bytes.len() - 9 };
        std::fs::write(damaged.path().join(file), &bytes[..kept]).unwrap();
    }
    let done = AtomicBool::new(false);
    let (mut answered, mut seen) = (0, [false; 2]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..RELOADS {
                let bad = engine.load_adapter("llama-plain", damaged.path(), None).unwrap_err();
                assert!(bad.to_string().contains("adapter_model.safetensors"), "{bad}");
                let next = if i % 2 == 0 { "llama-dora" } else { "llama-plain" };
                engine.load_adapter("llama-plain", &adapter(next), None).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let scores = score(&engine, request(1, one("llama-plain"))).unwrap();
            assert!(scores == plain || scores == dora, "a mixture of generations");
            seen[usize::from(scores == dora)] = true;
            answered += 1;
        }
    });
    assert!(answered > 0 && (seen[0] || seen[1]));
    assert_eq!(engine.adapters()[0].generation, 1 + RELOADS as u64);
    assert_eq!(engine.in_use().unwrap().requests, 0);
}

#[test]
fn room_for_adapters_changes_no_bit() {
    let plain =
        Engine::load(Options { format: Some(Format::W8 { group: 128 }), ..options(&golden("llama-a")) })
            .unwrap();
    let with = loaded(&["llama-plain"]);
    assert_eq!(score(&plain, request(4, Vec::new())).unwrap(), score(&with, request(4, Vec::new())).unwrap());
}
