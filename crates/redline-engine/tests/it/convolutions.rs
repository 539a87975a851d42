//! A model with short convolutions, whose last inputs stay in the pages of a sequence: no cache, company or budget shows in an answer.

use std::path::Path;
use std::sync::Arc;

use redline_engine::{
    AdapterChoice, AdapterOptions, Buckets, Cancel, Engine, GenerateRequest, GenerateTicket, Options,
    PrefixDir, Sampling,
};
use redline_kernels::Format;
use redline_kernels::op::kv::KvFormat;

use crate::models::{continuations, generate, generation, ids, options, prompt, score, tiny_of};

/// Two convolutions of four taps, one of them before attention.
const CONVOLVED: &str = r#"{"architectures":["Lfm2ForCausalLM"],"hidden_size":32,"intermediate_size":48,
    "block_auto_adjust_ff_dim":false,"num_hidden_layers":3,"layer_types":["conv","full_attention","conv"],
    "conv_L_cache":4,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":300,"max_position_embeddings":2048,
    "norm_eps":1e-5,"rope_theta":10000.0}"#;

fn model(dir: &Path) -> Options {
    Options { poison: true, ..options(&tiny_of(CONVOLVED, dir, |_, _| ())) }
}

#[test]
fn a_conversation_continues_where_it_ended_and_elsewhere_where_a_page_ends() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    let plain = Engine::load(Options { prefix_cache: None, ..base.clone() }).unwrap();
    let engine = Engine::load(base).unwrap();
    let first = prompt(3, 150);
    let (answer, _) = generate(&plain, &first, 30);
    assert_eq!(generate(&engine, &first, 30), (answer.clone(), 0));
    // The end of the prompt is in the middle of a page that has been filled since.
    assert_eq!(generate(&engine, &first, 30), (answer.clone(), 128));
    let mut next = first;
    next.extend(answer.iter().map(|id| i64::from(*id)));
    next.extend([5, 6, 7]);
    // The last token of the answer was never run.
    let (expected, _) = generate(&plain, &next, 20);
    assert_eq!(generate(&engine, &next, 20), (expected, 179));
    let mut other = next[..100].to_vec();
    other.extend(prompt(90, 40));
    let (expected, _) = generate(&plain, &other, 20);
    assert_eq!(generate(&engine, &other, 20), (expected, 64));
}

#[test]
fn pieces_threads_devices_and_formats_of_keys_do_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    for (format, kv_format) in [(Format::F32, KvFormat::F32), (Format::W8 { group: 32 }, KvFormat::W8)] {
        let with = |threads, tp, chunk| {
            let format = (Some(format), Some(kv_format));
            let mut options = Options { threads, tp, format: format.0, kv_format: format.1, ..base.clone() };
            options.plans.buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, chunk);
            Engine::load(options).unwrap()
        };
        let plain = with(1, 1, 512);
        let expected = (score(&plain, 3), generate(&plain, &prompt(3, 150), 30).0);
        for (threads, tp, chunk) in [(2, 1, 512), (2, 2, 512), (2, 1, 16), (1, 1, 3), (2, 1, 1)] {
            let engine = with(threads, tp, chunk);
            let found = (score(&engine, 3), generate(&engine, &prompt(3, 150), 30).0);
            assert!(found == expected, "{format}, {threads} threads, {tp} devices, passes of {chunk}");
        }
    }
}

#[test]
fn stored_pages_hold_what_a_convolution_needs() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    let keeping = || {
        let prefix_dir =
            PrefixDir { dir: folder.path().join("pages"), bytes: 1 << 30, log: Arc::new(|_| ()) };
        Engine::load(Options { prefix_dir: Some(prefix_dir), ..base.clone() }).unwrap()
    };
    let plain = Engine::load(base.clone()).unwrap();
    let (expected, scored) = (generate(&plain, &prompt(3, 150), 30).0, score(&plain, 9));
    let engine = keeping();
    assert_eq!(generate(&engine, &prompt(3, 150), 30), (expected.clone(), 0));
    assert_eq!(score(&engine, 9), scored);
    drop(engine);
    let engine = keeping();
    assert_eq!(generate(&engine, &prompt(3, 150), 30), (expected, 128));
    assert_eq!(score(&engine, 9), scored);
    assert!(engine.gauges().disk_pages.unwrap().read > 2);
}

/// Many requests, each with several continuations, in so little memory that they displace each other.
#[test]
fn company_and_preemption_do_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    let asked = |first: i64| GenerateRequest {
        n: 3,
        sampling: Sampling { temperature: 1.0, seed: 7, ..Sampling::default() },
        ..generation(ids(&prompt(first % 3, 60 + 11 * first)), 70)
    };
    let plain = Engine::load(Options { prefix_cache: None, ..base.clone() }).unwrap();
    let expected: Vec<_> = (0..6)
        .map(|first| continuations(plain.generate(asked(first), &Cancel::new(), &mut |_| ()).unwrap()))
        .collect();
    let info = plain.info();
    for pages in [14, 20, 400] {
        let memory = Some(info.weight_bytes + info.activation_bytes + pages * 64 * info.kv_bytes_per_token);
        let engine = Engine::load(Options { memory, ..base.clone() }).unwrap();
        let tickets: Vec<GenerateTicket> =
            (0..6).map(|first| engine.submit_generate(asked(first), &Cancel::new()).unwrap()).collect();
        for (ticket, expected) in tickets.into_iter().zip(&expected) {
            assert_eq!(continuations(ticket.wait().unwrap()), *expected, "{pages} pages");
        }
        let preempted = engine.gauges().preemptions;
        assert_eq!(preempted > 0, pages < 100, "{preempted} of {pages} pages");
    }
}

#[test]
fn adapters_change_convolutions() {
    let folder = tempfile::tempdir().unwrap();
    let base = model(folder.path());
    let options =
        Options { adapters: Some(AdapterOptions { memory: 1 << 30, ..AdapterOptions::default() }), ..base };
    let engine = Engine::load(options).unwrap();
    let dir = folder.path().join("adapter");
    engine.synth_adapter(&dir, 4, 3).unwrap();
    let config = std::fs::read_to_string(dir.join("adapter_config.json")).unwrap();
    assert!(
        ["layers.0.conv.in_proj", "layers.2.conv.out_proj", "layers.1.self_attn.q_proj"]
            .iter()
            .all(|it| config.contains(it))
    );
    engine.load_adapter("a", &dir, None).unwrap();
    let adapted = |first: i64| {
        let adapters = vec![AdapterChoice { name: "a".to_owned(), scale: 1.0 }];
        GenerateRequest { adapters, ..generation(ids(&prompt(first, 100)), 20) }
    };
    let run = |request| engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap().token_ids;
    let alone = run(adapted(3));
    assert_ne!(alone, run(generation(ids(&prompt(3, 100)), 20)));
    let tickets: Vec<_> = [adapted(3), generation(ids(&prompt(3, 100)), 20), adapted(3)]
        .map(|request| engine.submit_generate(request, &Cancel::new()).unwrap())
        .into_iter()
        .collect();
    let together: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap().token_ids).collect();
    assert!(together[0] == alone && together[2] == alone && together[1] != alone);
}
