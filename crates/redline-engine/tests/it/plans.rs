//! Plans are made once, found again with the same key, and never change a result.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use redline_engine::{
    BucketMode, Buckets, Cancel, Engine, EngineError, Options, PlanCounters, PlanEntry, PlanEvent,
    PlanOptions, PlanOrigin, PlanPolicy, ScoreOutcome, ScoreRequest,
};
use redline_kernels::{Format, Tier};
use redline_weights::PlanStore;

use crate::models::{bits, demo_dir, generation, golden_dir, ids, long, options, pledge, refusal, scores};

/// An engine, and the events of its plans.
struct Planned {
    engine: Engine,
    events: Arc<Mutex<Vec<PlanEvent>>>,
}

/// An engine with a clock that advances by itself, and small buckets.
fn planned(policy: PlanPolicy, cache: Option<&Path>, change: impl FnOnce(&mut Options)) -> Planned {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (log, ticks) = (events.clone(), AtomicU64::new(0));
    let mut options = Options {
        plans: PlanOptions {
            policy,
            cache: cache.map(PathBuf::from),
            buckets: Buckets::new(&[64, 128], &[1, 2, 4], 128),
            tells_misses: true,
            log: Arc::new(move |event| log.lock().unwrap().push(event.clone())),
        },
        clock: Arc::new(move || ticks.fetch_add(5_000_000, Ordering::Relaxed)),
        ..options(&demo_dir())
    };
    change(&mut options);
    Planned { engine: Engine::load(options).unwrap(), events }
}

impl Planned {
    fn score(&self) -> ScoreOutcome {
        self.engine.score(pledge()).unwrap()
    }

    fn counters(&self) -> PlanCounters {
        self.engine.plan_counters()
    }

    fn events(&self) -> Vec<PlanEvent> {
        self.events.lock().unwrap().clone()
    }

    /// The difference that the first miss reports.
    fn differs(&self) -> String {
        let first = self.events().into_iter().find_map(|event| match event {
            PlanEvent::Miss { differs, .. } => Some(differs),
            _ => None,
        });
        first.expect("a miss")
    }
}

fn as_is(_: &mut Options) {}

#[test]
fn a_plan_is_missed_once() {
    let planned = planned(PlanPolicy::Estimate, None, as_is);
    let (first, second) = (planned.score(), planned.score());
    assert!(first.cost.plan_misses > 0, "{first:?}");
    assert_eq!((second.cost.plan_misses, planned.counters().misses), (0, first.cost.plan_misses));
    assert_eq!((planned.counters().compiles, planned.counters().measurements), (0, 0));
    let generated =
        planned.engine.generate(generation(ids(&[5, 6]), 3), &Cancel::new(), &mut |_| ()).unwrap();
    assert!(generated.plan_misses > 0, "one token is a pass of another size");
}

#[test]
fn logits_over_labels_need_no_plan() {
    let planned = planned(PlanPolicy::Estimate, None, as_is);
    let soft = planned.engine.score(ScoreRequest { softmax: true, ..pledge() }).unwrap();
    let of_a_pass = |event: &PlanEvent| match event {
        PlanEvent::Miss { bucket, .. } => bucket.mode == BucketMode::Pass,
        _ => false,
    };
    assert!(planned.events().iter().all(of_a_pass), "{:?}", planned.events());
    assert_eq!(soft.cost.plan_misses, planned.events().len() as u64);
    // Over the vocabulary, the same passes lack the plan for the rows of the three items.
    assert_eq!(planned.score().cost.plan_misses, 1);
}

#[test]
fn off_keeps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    planned(PlanPolicy::Tune, Some(folder.path()), as_is).engine.precompile().unwrap();
    let off = planned(PlanPolicy::Off, Some(folder.path()), as_is);
    let (first, second) = (off.score(), off.score());
    assert!(first.cost.plan_misses > 0);
    assert_eq!(first.cost.plan_misses, second.cost.plan_misses);
    assert_eq!(off.counters().loads, 0);
}

#[test]
fn what_was_measured_is_found_by_the_next_engine() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("plans");
    let first = planned(PlanPolicy::Tune, Some(&cache), as_is);
    let entries = first.engine.precompile().unwrap();
    let names: Vec<String> = entries.iter().map(|entry| entry.bucket.to_string()).collect();
    let expected = [
        "pass/1",
        "pass/2",
        "pass/4",
        "pass/64",
        "pass/128",
        "logits/1",
        "logits/2",
        "logits/4",
        "logits/64",
    ];
    assert_eq!(names, expected);
    assert!(entries.iter().all(|entry| entry.origin == PlanOrigin::Measured));
    let (passes, counters) = (entries.iter().filter(|e| e.bucket.mode == BucketMode::Pass), first.counters());
    assert!(passes.into_iter().all(|entry| entry.choices.len() == 4 && entry.activation_bytes > 0));
    assert_eq!((counters.misses, counters.compiles, counters.loads), (9, 9, 0));
    assert!(counters.measurements > 0);
    assert_eq!(first.score().cost.plan_misses, 0);
    for policy in [PlanPolicy::Tune, PlanPolicy::Estimate, PlanPolicy::Forbid] {
        let next = planned(policy, Some(&cache), as_is);
        assert_eq!(next.score().cost.plan_misses, 0);
        let again = next.engine.precompile().unwrap();
        assert!(again.iter().all(|entry| entry.origin == PlanOrigin::Stored));
        let choices = |all: &[redline_engine::PlanEntry]| -> Vec<_> {
            all.iter().map(|entry| (entry.bucket, entry.choices.clone())).collect()
        };
        assert_eq!(choices(&again), choices(&entries));
        let PlanCounters { misses, compiles, measurements, loads, not_stored: _ } = next.counters();
        assert_eq!((misses, compiles, measurements, loads), (0, 0, 0, 9));
        assert!(next.events().is_empty(), "{:?}", next.events());
    }
}

#[test]
fn a_key_changes_with_what_a_plan_depends_on_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(folder.path());
    planned(PlanPolicy::Tune, cache, as_is).engine.precompile().unwrap();
    let tier = *Tier::ALL.iter().rfind(|t| t.available().is_ok() && **t != Tier::best()).unwrap();
    type Change = Box<dyn FnOnce(&mut Options)>;
    let changes: [(&str, Change); 5] = [
        ("threads 1, stored 2", Box::new(|options| options.threads = 1)),
        ("tp 2, stored 1", Box::new(|options| options.tp = 2)),
        ("isa ", Box::new(move |options| options.tier = Some(tier))),
        ("format w8", Box::new(|options| options.format = Some(Format::W8 { group: 128 }))),
        ("shapes ", Box::new(|options| options.source = redline_engine::Source::Path(golden_dir()))),
    ];
    for (what, change) in changes {
        let other = planned(PlanPolicy::Estimate, cache, change);
        other.engine.precompile().unwrap();
        assert!(other.differs().contains(what), "{what}: {}", other.differs());
        assert_eq!(other.counters().loads, 0, "{what}");
    }
    // These are not part of the key: names, context, memory, the prefix cache, other buckets.
    let same = planned(PlanPolicy::Forbid, cache, |options| {
        options.max_context = Some(100);
        options.prefix_cache = None;
        options.memory = Some(200 << 20);
    });
    assert_eq!((same.score().cost.plan_misses, same.counters().misses), (0, 0));
    let copy = tempfile::tempdir().unwrap();
    let tuned = copy.path().join("tuned-further");
    std::fs::create_dir(&tuned).unwrap();
    for file in std::fs::read_dir(demo_dir()).unwrap().map(|entry| entry.unwrap().path()) {
        if file.is_file() {
            std::fs::copy(&file, tuned.join(file.file_name().unwrap())).unwrap();
        }
    }
    let weights = tuned.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let fine_tune = planned(PlanPolicy::Forbid, cache, |options| {
        options.source = redline_engine::Source::Path(tuned);
    });
    assert_eq!(fine_tune.score().cost.plan_misses, 0);
}

/// Fields that no option changes: plans stored by another machine, version or cache format are not used.
#[test]
fn plans_of_another_processor_version_or_cache_format_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let own = PlanStore::new(folder.path().join("own"));
    planned(PlanPolicy::Tune, Some(own.dir()), as_is).engine.precompile().unwrap();
    let keys = own.keys();
    let names =
        ["engine", "format", "isa", "kv_format", "mode", "processor", "rows", "shapes", "threads", "tp"];
    assert_eq!(keys[0].keys().collect::<Vec<_>>(), names);
    assert_eq!(keys[0]["processor"], redline_kernels::processor());
    assert_eq!(keys[0]["engine"], env!("CARGO_PKG_VERSION"));
    for name in ["processor", "engine", "kv_format"] {
        let other = PlanStore::new(folder.path().join(name));
        for key in &keys {
            let choices = own.read(key).unwrap().unwrap();
            let mut key = key.clone();
            key.insert(name.into(), "another".into());
            other.write(&key, &choices).unwrap();
        }
        let planned = planned(PlanPolicy::Estimate, Some(other.dir()), as_is);
        planned.engine.precompile().unwrap();
        assert_eq!((planned.counters().loads, planned.counters().misses), (0, 9), "{name}");
        let differs = format!("{name} {}, stored another", keys[0][name]);
        assert_eq!(planned.differs(), differs);
    }
}

#[test]
fn forbid_refuses_an_unseen_pass_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(folder.path());
    let empty = planned(PlanPolicy::Forbid, cache, as_is);
    let refused = refusal(empty.engine.score(pledge()));
    assert!(refused.contains("`pass/64`") && refused.contains("`precompile`"), "{refused}");
    planned(PlanPolicy::Tune, cache, as_is).engine.precompile().unwrap();
    let wider =
        |options: &mut Options| options.plans.buckets = Buckets::new(&[64, 128, 512], &[1, 2, 4], 512);
    let known = planned(PlanPolicy::Forbid, cache, wider);
    known.score();
    let many: Vec<i64> = (0..200).map(|i| i % 50).collect();
    let unseen = known.engine.generate(generation(ids(&many), 1), &Cancel::new(), &mut |_| ());
    assert!(matches!(&unseen, Err(EngineError::NoPlan { bucket, .. }) if bucket.size == 512));
    let refused = refusal(unseen);
    assert!(refused.contains("`pass/512`") && refused.contains("rows 512, stored "), "{refused}");
    // The engine continues.
    known.score();
    assert!(matches!(known.engine.precompile(), Err(EngineError::NoPlan { .. })));
}

/// A pass can hold pieces of several requests: if it has no plan, those requests fail, and the engine and its memory are
/// intact.
#[test]
fn a_forbidden_pass_ends_those_in_it_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(folder.path());
    planned(PlanPolicy::Tune, cache, as_is).engine.precompile().unwrap();
    let wider =
        |options: &mut Options| options.plans.buckets = Buckets::new(&[64, 128, 512], &[1, 2, 4], 512);
    let known = planned(PlanPolicy::Forbid, cache, wider);
    let many: Vec<i64> = (0..300).map(|i| i % 50).collect();
    for round in 0..3 {
        let long = known.engine.submit_generate(generation(ids(&many), 1), &Cancel::new()).unwrap();
        let short: Vec<_> =
            (0..4).map(|_| known.engine.submit_score(pledge(), &Cancel::new()).unwrap()).collect();
        assert!(matches!(long.wait(), Err(EngineError::NoPlan { .. })), "round {round}");
        for ticket in short {
            // It fails in a pass with the long request, and is scored otherwise.
            assert!(matches!(ticket.wait(), Ok(_) | Err(EngineError::NoPlan { .. })));
        }
        assert_eq!(known.score().cost.plan_misses, 0);
    }
    let mut wide = options(&demo_dir());
    wide.plans.buckets = Buckets::new(&[], &[], usize::MAX / 8);
    assert!(refusal(Engine::load(wide)).contains("exceed 8192"));
}

#[test]
fn no_plan_and_no_size_of_pass_changes_a_bit() {
    let folder = tempfile::tempdir().unwrap();
    let long_dir = tempfile::tempdir().unwrap();
    drop(long(long_dir.path()));
    let long_dir = long_dir.path().join("long");
    let prompt: Vec<i64> = (0..700).map(|i| i * 7 % 300).collect();
    for format in [Format::F32, Format::Bf16, Format::W8 { group: 128 }, Format::W4 { group: 64 }] {
        let mut expected = [None, None];
        for policy in PlanPolicy::ALL.iter().copied().filter(|policy| *policy != PlanPolicy::Forbid) {
            for chunk in [1, 16, 64, 512] {
                let way = planned(policy, Some(folder.path()), |options| {
                    options.source = redline_engine::Source::Path(long_dir.clone());
                    options.format = Some(format);
                    options.plans.buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, chunk);
                });
                // One token at a time takes too long for the long prompt.
                let lengths = if chunk == 1 { &[40][..] } else { &[40, 700] };
                for (&length, expected) in lengths.iter().zip(&mut expected) {
                    let mut asked = generation(ids(&prompt[..length]), 5);
                    asked.logprobs = Some(2);
                    let got = way.engine.generate(asked, &Cancel::new(), &mut |_| ()).unwrap();
                    let logprobs: Vec<u32> =
                        got.logprobs.unwrap().iter().map(|p| p.chosen.logprob.to_bits()).collect();
                    let got = (got.token_ids, logprobs);
                    assert_eq!(
                        expected.get_or_insert_with(|| got.clone()),
                        &got,
                        "{format} {policy:?} {chunk} {length}"
                    );
                }
            }
        }
    }
    let of = |chunk: usize| {
        let way = planned(PlanPolicy::Tune, None, |options| {
            options.plans.buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, chunk);
        });
        bits(&scores(&way.score()))
    };
    assert!([16, 64, 512].iter().all(|&chunk| of(chunk) == of(1)));
}

#[test]
fn files_that_are_no_plans_are_dropped_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(folder.path());
    let expected = planned(PlanPolicy::Tune, cache, as_is);
    let expected = bits(&scores(&expected.score()));
    let files = || -> Vec<PathBuf> {
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let whole: Vec<_> = files().into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
    assert!(whole.len() >= 2, "a pass and its logits");
    type Damage = fn(&[u8]) -> Vec<u8>;
    let damages: [Damage; 3] = [
        |bytes| bytes[..bytes.len() / 2].to_vec(),
        |_| b"not a plan".to_vec(),
        |bytes| String::from_utf8_lossy(bytes).replace("\"blocked\"", "\"dot\"").into_bytes(),
    ];
    for damage in damages {
        for (bytes, path) in &whole {
            std::fs::write(path, damage(bytes)).unwrap();
        }
        let estimated = planned(PlanPolicy::Estimate, cache, as_is);
        assert_eq!(bits(&scores(&estimated.score())), expected);
        let dropped = |event: &PlanEvent| matches!(event, PlanEvent::Dropped { .. });
        assert_eq!(estimated.events().iter().filter(|event| dropped(event)).count(), whole.len());
        assert_eq!(estimated.counters().loads, 0);
        // An engine that measures replaces them.
        planned(PlanPolicy::Tune, cache, as_is).score();
        assert_eq!(planned(PlanPolicy::Forbid, cache, as_is).score().cost.plan_misses, 0);
    }
}

/// Whole files whose variants are unknown, missing, or of another format.
#[test]
fn plans_that_cannot_run_here_are_dropped_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let own = PlanStore::new(folder.path().join("own"));
    planned(PlanPolicy::Tune, Some(own.dir()), as_is).engine.precompile().unwrap();
    for (name, variant) in [("unknown", Some("sideways")), ("of int8", Some("dot")), ("missing", None)] {
        let other = PlanStore::new(folder.path().join(name));
        for key in own.keys() {
            let mut choices = own.read(&key).unwrap().unwrap();
            let site = choices.keys().next().unwrap().clone();
            match variant {
                Some(variant) => drop(choices.insert(site, variant.into())),
                None => drop(choices.remove(&site)),
            }
            other.write(&key, &choices).unwrap();
        }
        let planned = planned(PlanPolicy::Estimate, Some(other.dir()), as_is);
        planned.engine.precompile().unwrap();
        let dropped = |event: &&PlanEvent| matches!(event, PlanEvent::Dropped { reason, .. } if reason.contains("cannot be run"));
        assert_eq!(planned.events().iter().filter(dropped).count(), own.keys().len(), "{name}");
        assert_eq!((planned.counters().loads, planned.counters().misses), (0, 9), "{name}");
    }
}

#[test]
fn a_cache_that_cannot_be_written_is_told_and_done_without() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let planned = planned(PlanPolicy::Tune, Some(&file.join("plans")), as_is);
    let (first, second) = (planned.score(), planned.score());
    assert!(first.cost.plan_misses > 0 && second.cost.plan_misses == 0);
    // Every plan fails for the same reason, which is logged once.
    assert_eq!(planned.counters().not_stored, first.cost.plan_misses);
    assert!(first.cost.plan_misses > 1);
    let events = planned.events();
    let not_stored = events.iter().filter(|event| matches!(event, PlanEvent::NotStored { .. }));
    assert_eq!(not_stored.count(), 1, "{events:?}");
}

#[test]
fn engines_that_share_a_cache_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let planned = planned(PlanPolicy::Tune, Some(folder.path()), as_is);
                planned.engine.precompile().unwrap();
                // The three engines compete for cores.
                let disturbed =
                    |event: &PlanEvent| !matches!(event, PlanEvent::Miss { .. } | PlanEvent::Busy { .. });
                assert!(!planned.events().iter().any(disturbed));
            });
        }
    });
    let last = planned(PlanPolicy::Forbid, Some(folder.path()), as_is);
    last.engine.precompile().unwrap();
    assert_eq!(last.counters().loads, 9);
}

#[test]
fn a_refusal_names_the_nearest_plan_even_if_misses_are_not_logged() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(folder.path());
    planned(PlanPolicy::Tune, cache, as_is).engine.precompile().unwrap();
    let quiet = planned(PlanPolicy::Forbid, cache, |options| {
        options.plans.tells_misses = false;
        options.threads = 1;
    });
    let refused = refusal(quiet.engine.score(pledge()));
    assert!(refused.contains("threads 1, stored 2"), "{refused}");
    assert!(quiet.events().is_empty(), "{:?}", quiet.events());
}

/// A plan that this engine has stored is one of those with which later misses are compared.
#[test]
fn a_miss_is_compared_with_plans_that_were_stored_since_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let planned = planned(PlanPolicy::Tune, Some(folder.path()), as_is);
    planned.engine.precompile().unwrap();
    let differs = |name: &str| {
        planned.events().into_iter().find_map(|event| match event {
            PlanEvent::Miss { bucket, differs } if bucket.to_string() == name => Some(differs),
            _ => None,
        })
    };
    assert_eq!(differs("pass/1").as_deref(), Some(""), "nothing is stored");
    assert_eq!(differs("pass/2").as_deref(), Some("rows 2, stored 1"));
}

/// The plan of a bucket.
fn of<'a>(entries: &'a [PlanEntry], bucket: &str) -> &'a PlanEntry {
    entries.iter().find(|entry| entry.bucket.to_string() == bucket).unwrap()
}

#[test]
fn activation_bytes_are_those_of_tokens_or_of_rows_of_logits() {
    let planned = planned(PlanPolicy::Estimate, None, as_is);
    let (info, entries) = (planned.engine.info(), planned.engine.precompile().unwrap());
    let more =
        |less: &str, more: &str| of(&entries, more).activation_bytes - of(&entries, less).activation_bytes;
    assert_eq!(more("pass/1", "pass/2"), info.activation_bytes_per_row);
    assert!(more("logits/1", "logits/2") >= 4 * info.vocab as u64);
}

#[test]
fn a_plan_that_is_read_takes_the_seconds_of_reading_it() {
    let folder = tempfile::tempdir().unwrap();
    // With one thread, nothing else reads the clock.
    let alone = |options: &mut Options| options.threads = 1;
    planned(PlanPolicy::Tune, Some(folder.path()), alone).engine.precompile().unwrap();
    let entries = planned(PlanPolicy::Forbid, Some(folder.path()), alone).engine.precompile().unwrap();
    assert_eq!(entries.len(), 9);
    for entry in entries {
        assert_eq!((entry.origin, entry.seconds), (PlanOrigin::Stored, 5_000_000.0 * 1e-9));
    }
}

/// Number of measurements and plans for 1 and 64 rows, on one thread and with a clock that advances by `step(n)` at its reading
/// number n. The layers of one row have nothing to choose; the four layers and the head have two candidates for 64 rows.
fn measured(step: fn(u64) -> u64) -> (u64, Vec<PlanEntry>) {
    let planned = planned(PlanPolicy::Tune, None, |options| {
        let (now, readings) = (AtomicU64::new(0), AtomicU64::new(0));
        options.threads = 1;
        options.plans.buckets = Buckets::new(&[64], &[1], 64);
        options.clock = Arc::new(move || {
            let reading = readings.fetch_add(1, Ordering::Relaxed);
            now.fetch_add(step(reading), Ordering::Relaxed)
        });
    });
    let entries = planned.engine.precompile().unwrap();
    (planned.counters().measurements, entries)
}

#[test]
fn a_candidate_is_timed_three_to_fifteen_times() {
    let (slow, _) = measured(|_| 5_000_000);
    let (instant, entries) = measured(|_| 0);
    assert_eq!((slow, instant), (5 * 2 * 3, 5 * 2 * 15));
    assert!(entries.iter().all(|entry| entry.gain.is_none()), "no time has no ratio");
}

#[test]
fn a_gain_is_the_time_of_the_estimates_over_that_of_the_chosen() {
    // Candidates are timed in turns, so one of two is always slower: the estimate in every second layer.
    let (_, entries) = measured(|reading| [10, 20, 40, 60][(reading % 4) as usize] * 1_000_000);
    assert_eq!(of(&entries, "pass/1").gain, None, "nothing to choose");
    assert!(of(&entries, "pass/64").gain.is_some_and(|gain| gain > 1.5), "{entries:?}");
    assert!(entries.iter().filter_map(|entry| entry.gain).all(|gain| gain >= 1.0), "{entries:?}");
}
