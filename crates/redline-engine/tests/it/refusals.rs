//! Invalid requests and options give a clear error, and the engine continues.

use redline_engine::{Cancel, Engine, GenerateRequest, Options, Sampling, Source};

use crate::models::{demo, demo_dir, generation, golden, ids, options, refusal, text};

fn generate(engine: &Engine, request: GenerateRequest) -> String {
    refusal(engine.generate(request, &Cancel::new(), &mut |_| ()))
}

#[test]
fn prompts_that_cannot_run() {
    let engine = golden();
    let context = engine.info().context;
    assert!(generate(&engine, generation(ids(&[]), 4)).contains("0 tokens"));
    let message = generate(&engine, generation(ids(&vec![1; context]), 4));
    assert!(message.contains(&context.to_string()) && message.contains("shorten"), "{message}");
    let message = generate(&engine, generation(ids(&vec![1; context - 2]), 4));
    assert!(message.contains("`max_new_tokens` = 2"), "{message}");
    let message = generate(&engine, generation(ids(&[1, -5, 1_000_000]), 4));
    assert!(message.contains("-5") && message.contains("1000000") && message.contains("131"), "{message}");
    assert!(generate(&engine, generation(ids(&[1]), 0)).contains("0 new tokens"));
    assert!(generate(&engine, generation(ids(&[1]), usize::MAX)).contains("exceed the context"));
    assert!(generate(&engine, generation(text("hello"), 4)).contains("tokenizer"));
    let ok = engine.generate(generation(ids(&vec![1; context - 4]), 4), &Cancel::new(), &mut |_| ()).unwrap();
    assert_eq!(ok.token_ids.len(), 4, "a prompt that just fits");
}

#[test]
fn sampling_out_of_range() {
    let engine = golden();
    let with = |sampling| generate(&engine, GenerateRequest { sampling, ..generation(ids(&[1]), 2) });
    let base = Sampling::default();
    assert!(with(Sampling { temperature: f32::INFINITY, ..base }).contains("temperature"));
    assert!(with(Sampling { top_p: 1.5, ..base }).contains("top_p"));
    assert!(with(Sampling { min_p: -0.1, ..base }).contains("min_p"));
    let empty_stop = GenerateRequest { stop: vec![String::new()], ..generation(ids(&[1]), 2) };
    assert!(generate(&engine, empty_stop).contains("stop string"));
}

#[test]
fn options_that_cannot_be_met() {
    let load = |options: Options| refusal(Engine::load(options));
    assert!(load(Options { threads: 0, ..options(&demo_dir()) }).contains("0 threads"));
    assert!(load(Options { max_context: Some(0), ..options(&demo_dir()) }).contains("0 tokens"));
    let message = load(Options { max_context: Some(1_000_000), ..options(&demo_dir()) });
    assert!(message.contains("1000000") && message.contains("512"), "{message}");
    let nowhere = demo_dir().join("nothing-here");
    let message = load(Options { source: Source::Directory(nowhere), ..options(&demo_dir()) });
    assert!(message.contains("nothing-here") && message.contains("config.json"), "{message}");
}

#[test]
fn a_smaller_context_is_kept() {
    let engine = Engine::load(Options { max_context: Some(10), ..options(&demo_dir()) }).unwrap();
    assert_eq!(engine.info().context, 10);
    assert!(generate(&engine, generation(text("In the beginning"), 20)).contains("context of 10"));
    assert_eq!(demo().info().context, 512);
}
