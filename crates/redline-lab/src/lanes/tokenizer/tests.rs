//! Tests of the lane with a scripted clock.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::conditions::Condition;
use crate::lanes::LaneProfile;
use crate::lanes::tests::{bench, samples};
use redline_system::Clock;

const VOCABULARY: &[u8] = include_bytes!("../../../../../models/demo/tokenizer.json");

fn load(encoder: Encoder) -> Result<redline_tokenizer::Tokenizer, redline_tokenizer::TokenizerError> {
    redline_tokenizer::Tokenizer::from_bytes_with("demo", VOCABULARY, encoder)
}

/// Runs one warm-up round, then `runs` rounds that count.
fn take(runs: usize, round: Rounds<'_>) -> Result<(Warmup, Vec<Watched<Round>>)> {
    let watched = |value| Watched { value, condition: Condition::default() };
    let mut all = (0..=runs).map(|at| round(at).map(watched)).collect::<Result<Vec<_>, _>>()?;
    Ok((Warmup { runs: 1, seconds: 0.0, converged: true }, all.split_off(1)))
}

/// Runs the lane with a clock by which a sample takes as many ms as its position in the round: 1, 2, 3 ms, then 3, 2,
/// 1.
fn run_with(given: &[(&'static str, &str)]) -> Result<Vec<Row>> {
    let reads = AtomicU64::new(0);
    let now = AtomicU64::new(0);
    let clock = Clock::scripted(move || {
        let read = reads.fetch_add(1, Ordering::Relaxed);
        let turn = [1, 2, 3, 3, 2, 1][(read / 2 % 6) as usize];
        let step = if read % 2 == 1 { turn * 1_000_000 } else { 0 };
        now.fetch_add(step, Ordering::Relaxed) + step
    });
    let rows = std::cell::RefCell::new(Vec::new());
    let record = |case: Vec<Row>| {
        rows.borrow_mut().extend(case);
        Ok(())
    };
    let bench = Bench { threads: vec![1, 2], record: &record, ..bench(&clock) };
    let text = Text { name: "demo", tokenizer: &load };
    let smoke: Vec<_> = LANE.values(LaneProfile::Smoke).chain([("num-runs", "3")]).collect();
    let flags = Flags::with(&[&smoke[..], given].concat())?;
    run_rounds(&bench, &text, &flags, &take)?;
    Ok(rows.take())
}

#[test]
fn arms_take_turns_over_every_kind_of_text() {
    let rows = run_with(&[]).unwrap();
    let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    let of = |text: &str, threads: usize| {
        ["native", "native-cached", "library"].map(|arm| format!("tokenizer/{text}/{arm}/t{threads}"))
    };
    let expected: Vec<String> =
        ["prose", "code", "chat"].iter().flat_map(|text| [of(text, 1), of(text, 2)].concat()).collect();
    assert_eq!(cases, expected);
    let [native, cached, library] = &rows[..3] else { panic!() };
    let close = |a: Vec<f64>, b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a / b - 1.0).abs() < 1e-9);
    // The warm-up round went forwards, the next one backwards.
    assert!(close(samples(native, "seconds"), [1e-3; 3]) && close(samples(library, "seconds"), [3e-3; 3]));
    assert!(close(samples(native, OVER_LIBRARY), [3.0; 3]) && close(samples(cached, OVER_LIBRARY), [1.5; 3]));
    assert!(samples(library, OVER_LIBRARY).is_empty() && samples(native, "prefix_hits").is_empty());
    let tokens = samples(native, "tokens")[0];
    assert!(close(samples(native, RATE), [tokens * 1e3; 3]), "{:?}", samples(native, RATE));
    let megabytes = samples(native, "bytes")[0] * 1e-6;
    assert!(close(samples(native, "mb_per_s"), [megabytes * 1e3; 3]), "{:?}", samples(native, "mb_per_s"));
    assert!(native.digest == library.digest && cached.digest == library.digest);
    assert!(rows.iter().all(|row| row.gates.is_empty() && row.checked));
}

#[test]
fn the_median_speedup_must_reach_the_gate() {
    for (least, missed) in [("3", 0), ("3.1", 6)] {
        let rows = run_with(&[("min-speedup", least)]).unwrap();
        let gated: Vec<&Row> = rows.iter().filter(|row| !row.gates.is_empty()).collect();
        assert!(gated.iter().all(|row| row.case.contains("/native/")) && gated.len() == 6);
        let facts: Vec<String> = rows.iter().flat_map(Row::missed).collect();
        assert_eq!(facts.len(), missed, "{facts:?}");
        assert!(facts.iter().all(|fact| fact.contains("speedup_over_library is 3")), "{facts:?}");
    }
}

#[test]
fn figures_of_python_are_another_arm() {
    let folder = tempfile::tempdir().unwrap();
    let (input, figures) = (folder.path().join("in"), folder.path().join("p.csv"));
    std::fs::write(&input, "one text\nand another\n").unwrap();
    let (input_flag, figures_flag) = (input.display().to_string(), figures.display().to_string());
    let flags =
        [("input-file", input_flag.as_str()), ("python-csv", figures_flag.as_str()), ("min-speedup", "3")];
    let write = |digest: &str| {
        let lines = [(1, 0.004), (1, 0.006), (1, 0.005), (2, 0.001)]
            .map(|(threads, seconds)| format!("{threads},2,19,7,{seconds},{digest},9.9\n"));
        let header = "threads,texts,bytes,tokens,seconds,digest,version\n";
        std::fs::write(&figures, format!("{header}{}", lines.concat())).unwrap();
    };
    let ids = load(Encoder::Library).unwrap().encode_batch(&["one text", "and another"], true, 1).unwrap();
    write(&arms::digest(&ids));
    let rows = run_with(&flags).unwrap();
    let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    assert_eq!(cases[3], "tokenizer/file/python/t1");
    assert_eq!((rows.len(), samples(&rows[3], "seconds").len()), (8, 3));
    assert!(samples(&rows[0], OVER_PYTHON).iter().all(|x| (x - 5.0).abs() < 1e-9));
    // With two threads Python was as fast as the native encoder.
    let missed: Vec<(usize, Vec<String>)> =
        rows.iter().map(Row::missed).enumerate().filter(|(_, missed)| !missed.is_empty()).collect();
    assert!(missed.len() == 1 && missed[0].0 == 4 && missed[0].1[0].contains(OVER_PYTHON), "{missed:?}");
    write("0");
    assert!(matches!(run_with(&flags), Err(LaneError::Incorrect(fact)) if fact.contains("Python 9.9")));
    assert!(matches!(run_with(&flags[1..]), Err(LaneError::Usage(fact)) if fact.contains("--input-file")));
}

#[test]
fn a_tokenizer_that_is_not_covered_is_not_compared_with_itself() {
    let json = String::from_utf8(VOCABULARY.to_vec()).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&json).unwrap();
    let own = file["pre_tokenizer"].take();
    let all = [serde_json::json!({"type": "Punctuation", "behavior": "Isolated"}), own];
    file["pre_tokenizer"] = serde_json::json!({"type": "Sequence", "pretokenizers": all});
    let json = file.to_string();
    let load = |encoder| redline_tokenizer::Tokenizer::from_bytes_with("odd", json.as_bytes(), encoder);
    let clock = Clock::scripted(|| 0);
    let text = Text { name: "odd", tokenizer: &load };
    let values = Values::new(LANE.flags, []).unwrap();
    let Err(LaneError::Usage(fact)) = run(&bench(&clock), &text, &values) else { panic!() };
    assert!(
        fact.contains("does not cover") && fact.contains("Punctuation") && fact.contains("`odd`"),
        "{fact}"
    );
}
