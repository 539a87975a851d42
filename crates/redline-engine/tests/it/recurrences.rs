//! A model whose layers are recurrences, with states beside the pages: no cache, company, division or budget shows in an answer.

use std::path::Path;
use std::sync::Arc;

use redline_engine::{
    Buckets, Cancel, Engine, GenerateRequest, GenerateTicket, Options, PrefixDir, Sampling,
};
use redline_kernels::Format;
use redline_kernels::op::kv::KvFormat;

use crate::models::{
    asking, bits, continuations, generate, generation, ids, options, prompt, score, scores, tiny_of,
};

/// Three recurrences, one of them before attention.
const RECURRENT: &str = r#"{"architectures":["Qwen3_5ForCausalLM"],"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":4,"layer_types":["linear_attention","full_attention","linear_attention","linear_attention"],
    "num_attention_heads":2,"num_key_value_heads":1,"head_dim":16,"linear_num_key_heads":1,"linear_num_value_heads":2,
    "linear_key_head_dim":8,"linear_value_head_dim":24,"linear_conv_kernel_dim":4,"vocab_size":300,"max_position_embeddings":4096,
    "rms_norm_eps":1e-5,"tie_word_embeddings":false,
    "rope_parameters":{"rope_type":"default","rope_theta":10000.0,"partial_rotary_factor":0.5}}"#;

fn model(dir: &Path) -> Options {
    Options { poison: true, ..options(&tiny_of(RECURRENT, dir, |_, _| ())) }
}

/// A conversation goes on at its end, where its prompt ended, and at regular distances in a long prompt.
#[test]
fn a_conversation_continues_at_its_end_and_at_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    let plain = Engine::load(Options { prefix_cache: None, ..base.clone() }).unwrap();
    let engine = Engine::load(base).unwrap();
    let first = prompt(3, 150);
    let (answer, _) = generate(&plain, &first, 30);
    assert_eq!(generate(&engine, &first, 30), (answer.clone(), 0));
    let mut next = first.clone();
    next.extend(answer.iter().map(|id| i64::from(*id)));
    next.extend([5, 6, 7]);
    // The last token of the answer was never run.
    let (expected, _) = generate(&plain, &next, 20);
    assert_eq!(generate(&engine, &next, 20), (expected, 179));
    // A prompt of two snapshots, and others that part from it before, between and after them.
    let long = prompt(9, 2500);
    let (expected, _) = generate(&plain, &long, 4);
    assert_eq!(generate(&engine, &long, 4), (expected, 0));
    for (same, cached) in [(700, 0), (1500, 1024), (2300, 2048)] {
        let mut other = long[..same].to_vec();
        other.extend(prompt(31, 90));
        let (expected, _) = generate(&plain, &other, 8);
        assert_eq!(generate(&engine, &other, 8), (expected, cached), "{same}");
    }
}

/// Pages on disk, with states of snapshots, outlive the engine. What is damaged is computed.
#[test]
fn a_long_prompt_continues_at_a_snapshot_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    let pages = folder.path().join("pages");
    let prefix_dir = Some(PrefixDir { dir: pages.clone(), bytes: 1 << 30, log: Arc::new(|_| ()) });
    let start = || Engine::load(Options { prefix_dir: prefix_dir.clone(), ..base.clone() }).unwrap();
    let plain = Engine::load(Options { prefix_cache: None, ..base.clone() }).unwrap();
    // Few tokens after a state: what is wrong in it shows.
    let long = prompt(9, 2052);
    let (expected, _) = generate(&plain, &long, 4);
    assert_eq!(generate(&start(), &long, 4), (expected.clone(), 0));
    assert_eq!(generate(&start(), &long, 4), (expected.clone(), 2048));
    for (same, cached) in [(700, 0), (1026, 1024), (2049, 2048)] {
        let mut other = long[..same].to_vec();
        other.extend(prompt(31, 3));
        let (expected, _) = generate(&plain, &other, 8);
        assert_eq!(generate(&start(), &other, 8), (expected, cached), "{same}");
    }
    // In one engine, too, which already keeps more tokens than the state covers.
    let (engine, mut branch) = (start(), long[..1026].to_vec());
    branch.extend(prompt(33, 3));
    assert_eq!(generate(&engine, &long, 4), (expected.clone(), 2048));
    let (of_branch, _) = generate(&plain, &branch, 8);
    assert_eq!(generate(&engine, &branch, 8), (of_branch, 1024));
    drop(engine);
    let files = || -> Vec<_> {
        let mut found = vec![pages.clone()];
        let mut files = Vec::new();
        while let Some(path) = found.pop() {
            if path.is_dir() {
                found.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                files.push(path);
            }
        }
        files.sort();
        files
    };
    let all = files();
    let info = start().info().clone();
    let states = 2 * (info.state_bytes / (64 * info.kv_bytes_per_token)) as usize;
    assert!(all.len() >= 2052 / 64 + states, "{} files, of which {states} hold states", all.len());
    for path in all {
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(generate(&start(), &long, 4).0, expected, "{}", path.display());
        // What it needs was written again.
        assert_eq!(generate(&start(), &long, 4), (expected.clone(), 2048), "{}", path.display());
    }
}

#[test]
fn pieces_threads_devices_and_formats_do_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    for (format, kv_format) in [(Format::F32, KvFormat::F32), (Format::W8 { group: 32 }, KvFormat::W8)] {
        let with = |threads, tp, chunk| {
            let mut options =
                Options { threads, tp, format: Some(format), kv_format: Some(kv_format), ..base.clone() };
            options.plans.buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, chunk);
            Engine::load(options).unwrap()
        };
        let plain = with(1, 1, 512);
        let expected = (score(&plain, 3), generate(&plain, &prompt(3, 150), 30).0);
        for (threads, tp, chunk) in [(2, 1, 64), (3, 1, 16), (2, 2, 512), (4, 2, 32)] {
            let engine = with(threads, tp, chunk);
            let found = (score(&engine, 3), generate(&engine, &prompt(3, 150), 30).0);
            assert!(found == expected, "{format}: {threads} threads, {tp} devices, passes of {chunk}");
            // Warm.
            let found = (score(&engine, 3), generate(&engine, &prompt(3, 150), 30).0);
            assert!(found == expected, "{format} again: {threads} threads, {tp} devices, passes of {chunk}");
        }
    }
}

/// Requests in company, with memory for some of them only, answer as alone.
#[test]
fn company_and_a_small_budget_do_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    let alone = Engine::load(Options { prefix_cache: None, ..base.clone() }).unwrap();
    let info = alone.info();
    let prompts: Vec<Vec<i64>> = (0..6).map(|i| prompt(11 * i + 1, 60 + 37 * i)).collect();
    let request = |prompt: &[i64]| GenerateRequest {
        sampling: Sampling { temperature: 0.9, seed: 7, ..Sampling::default() },
        n: 2,
        ..generation(ids(prompt), 40)
    };
    let expected: Vec<_> = prompts
        .iter()
        .map(|prompt| continuations(alone.generate(request(prompt), &Cancel::new(), &mut |_| ()).unwrap()))
        .collect();
    let scored = score(&alone, 5);
    let page = 64 * info.kv_bytes_per_token;
    assert!(info.state_bytes > 0 && info.state_bytes % page == 0);
    let states = info.state_bytes / page;
    // Pages of the longest request with its states, and of several more.
    for pages in [8 + 3 * states, 12 + 4 * states, 60 + 20 * states] {
        let memory = Some(info.weight_bytes + info.activation_bytes + pages * page);
        let engine = Engine::load(Options { memory, ..base.clone() }).unwrap();
        for _ in 0..2 {
            let tickets: Vec<GenerateTicket> = prompts
                .iter()
                .map(|prompt| engine.submit_generate(request(prompt), &Cancel::new()).unwrap())
                .collect();
            let other = engine.submit_score(asking(5), &Cancel::new()).unwrap();
            for (ticket, expected) in tickets.into_iter().zip(&expected) {
                assert_eq!(&continuations(ticket.wait().unwrap()), expected, "{pages} pages");
            }
            assert!(bits(&scores(&other.wait().unwrap())) == scored, "{pages} pages");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_before() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    let info = Engine::load(base.clone()).unwrap().info().clone();
    let page = 64 * info.kv_bytes_per_token;
    // Two pages without two states.
    let memory = Some(info.weight_bytes + info.activation_bytes + 2 * page + info.state_bytes);
    let error = Engine::load(Options { memory, ..base }).err().unwrap().to_string();
    assert!(error.contains("does not hold"), "{error}");
}
