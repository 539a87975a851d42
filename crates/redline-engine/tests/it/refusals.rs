//! Invalid requests and options give a clear error, and the engine continues.

use std::sync::Arc;

use redline_engine::{
    Buckets, Cancel, DiffuseRequest, Engine, GenerateRequest, KvFormat, Label, LongLabels, Options,
    Penalties, PrefixCacheSize, PromptLogprobs, Sampling, ScoreRequest, Source,
};

use crate::models::{
    budget, demo, demo_dir, generation, golden, golden_dir, ids, options, refusal, request, text,
};

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
    assert!(with(Sampling { typical_p: 0.0, ..base }).contains("typical_p"));
    let empty_stop = GenerateRequest { stop: vec![String::new()], ..generation(ids(&[1]), 2) };
    assert!(generate(&engine, empty_stop).contains("stop string"));
}

#[test]
fn penalties_and_biases_out_of_range() {
    let engine = golden();
    let with = |penalties| generate(&engine, GenerateRequest { penalties, ..generation(ids(&[1]), 2) });
    let base = Penalties::default();
    assert!(with(Penalties { repetition: -1.0, ..base }).contains("`repetition_penalty` is -1"));
    assert!(with(Penalties { frequency: 2.5, ..base }).contains("`frequency_penalty` must be from -2 to 2"));
    assert!(with(Penalties { presence: f32::NAN, ..base }).contains("`presence_penalty` is NaN"));
    let with = |logit_bias: &[(i64, f32)]| {
        let logit_bias = logit_bias.to_vec();
        generate(&engine, GenerateRequest { logit_bias, ..generation(ids(&[1]), 2) })
    };
    assert!(
        with(&[(1, 0.0), (-1, 0.0), (131, 0.0)]).contains("logit_bias: 2 token ids outside 0..131: -1, 131")
    );
    assert!(
        with(&[(130, 100.1)]).contains("the bias of token 130 is 100.1\nhint: a bias is from -100 to 100")
    );
    assert!(with(&[(1, f32::NAN)]).contains("the bias of token 1 is NaN"));
    assert!(with(&[(1, 1.0), (2, 1.0), (1, 1.0)]).contains("token 1 has more than one bias"));
    let most = GenerateRequest { logit_bias: vec![(1, -100.0), (130, 100.0)], ..generation(ids(&[1]), 2) };
    engine.generate(most, &Cancel::new(), &mut |_| ()).unwrap();
}

#[test]
fn continuations_that_cannot_be_given() {
    let engine = golden();
    let sampling = Sampling { temperature: 1.0, ..Sampling::default() };
    let with = |n, best_of| GenerateRequest { sampling, n, best_of, ..generation(ids(&[1]), 2) };
    let refused = |n, best_of| generate(&engine, with(n, best_of));
    assert!(refused(0, None).contains("0 continuations were asked for\nhint: ask for 1 to 128"));
    assert!(refused(0, Some(2)).contains("0 continuations were asked for"));
    assert!(refused(129, None).contains("129 continuations"));
    assert!(refused(1, Some(129)).contains("129 continuations"));
    let message = refused(3, Some(2));
    assert!(message.contains("3 continuations of the best 2"), "{message}");
    assert!(message.contains("give `best_of` at least 3"), "{message}");
    for (n, best_of) in [(2, None), (1, Some(2))] {
        let greedy = GenerateRequest { sampling: Sampling::default(), ..with(n, best_of) };
        let message = generate(&engine, greedy);
        assert!(message.contains("2 greedy continuations are all the same"), "{message}");
        assert!(message.contains("`temperature` = 1"), "{message}");
    }
    let most = engine.generate(with(128, None), &Cancel::new(), &mut |_| ()).unwrap();
    assert_eq!(most.others.len(), 127);
}

#[test]
fn options_that_cannot_be_met() {
    let load = |options: Options| refusal(Engine::load(options));
    assert!(load(Options { threads: 0, ..options(&demo_dir()) }).contains("0 threads"));
    assert!(load(Options { threads: 1025, ..options(&demo_dir()) }).contains("1025 threads exceed 1024"));
    assert!(load(Options { max_context: Some(0), ..options(&demo_dir()) }).contains("0 tokens"));
    let message = load(Options { max_context: Some(1_000_000), ..options(&demo_dir()) });
    assert!(message.contains("1000000") && message.contains("512"), "{message}");
    let message = load(Options { kv_format: Some(KvFormat::W4), ..options(&golden_dir()) });
    assert!(
        message.contains(
            "keys and values in `w4` need a `head_dim` that is a power of two up to 256, and this model's is 20"
        ) && message.contains("`kv_format` = w8"),
        "{message}"
    );
    let nowhere = demo_dir().join("nothing-here");
    let message = load(Options { source: Source::Path(nowhere), ..options(&demo_dir()) });
    assert!(message.contains("nothing-here") && message.contains("config.json"), "{message}");
}

#[test]
fn a_smaller_context_is_kept() {
    let engine = Engine::load(Options { max_context: Some(10), ..options(&demo_dir()) }).unwrap();
    assert_eq!(engine.info().context, 10);
    assert!(generate(&engine, generation(text("In the beginning"), 20)).contains("context of 10"));
    assert_eq!(demo().info().context, 512);
    let at = |tokens| Engine::load(Options { max_context: Some(tokens), ..options(&golden_dir()) });
    assert_eq!(at(256).unwrap().info().context, 256);
    let message = refusal(at(257));
    assert!(message.contains("a context of 257 tokens exceeds the model's own 256"), "{message}");
}

#[test]
fn options_that_are_not_given_have_their_defaults() {
    let options = Options::new(Source::Path(golden_dir()));
    assert_eq!((options.threads, options.adaptive_threads, options.tp), (1, false, 1));
    assert_eq!((options.tier, options.format, options.outliers, options.kv_format), (None, None, 0.0, None));
    assert_eq!((options.max_context, options.memory, options.stall_s), (None, None, None));
    assert_eq!(
        (options.prefix_cache, options.queue, options.poison),
        (Some(PrefixCacheSize::Automatic), 256, false)
    );
}

#[test]
fn time_limits_that_leave_no_time() {
    let engine = golden();
    let dream = Engine::load(options(&golden_dir().join("../dream-a"))).unwrap();
    let refused = |seconds: f64| {
        let timeout_s = Some(seconds);
        let score = request(ids(&[1]), vec![ids(&[2])], vec![Label::Ids(vec![3])]);
        let canvas = DiffuseRequest { timeout_s, ..DiffuseRequest::new(ids(&[1]), 2) };
        [
            generate(&engine, GenerateRequest { timeout_s, ..generation(ids(&[1]), 2) }),
            refusal(engine.score(ScoreRequest { timeout_s, ..score })),
            refusal(dream.diffuse(canvas, &Cancel::new(), &mut |_| ())),
        ]
    };
    for seconds in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        let fact = format!("a timeout of {seconds} seconds leaves no time\n");
        for message in refused(seconds) {
            assert!(message.starts_with(&fact), "{seconds}: {message}");
        }
    }
    let ample = GenerateRequest { timeout_s: Some(f64::INFINITY), ..generation(ids(&[1]), 2) };
    engine.generate(ample, &Cancel::new(), &mut |_| ()).unwrap();
}

/// One of the two files of an older tokenizer: the model is not loaded without it.
#[test]
fn half_a_tokenizer_is_refused() {
    for name in ["vocab.json", "merges.txt"] {
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(golden_dir().join(file), folder.path().join(file)).unwrap();
        }
        Engine::load(options(folder.path())).expect("no tokenizer at all is fine");
        std::fs::write(folder.path().join(name), "{}").unwrap();
        let message = refusal(Engine::load(options(folder.path())));
        assert!(message.contains(&format!("only `{name}` is there")), "{message}");
    }
}

#[test]
fn unknown_ids_are_listed_up_to_eight() {
    let engine = golden();
    let message =
        |count: i64| generate(&engine, generation(ids(&(1..=count).map(|i| 999 + i).collect::<Vec<_>>()), 4));
    let eight = message(8);
    assert!(
        eight.contains("8 token ids outside 0..131: 1000, 1001, ") && eight.contains(", 1007\n"),
        "{eight}"
    );
    let nine = message(9);
    assert!(nine.contains("9 token ids outside") && nine.contains(", 1007, ...\n"), "{nine}");
    assert!(message(1).contains("1 token id outside 0..131: 1000\n"), "{}", message(1));
    let last = generate(&engine, generation(ids(&[130, 131]), 4));
    assert!(last.contains("1 token id outside 0..131: 131"), "{last}");
}

#[test]
fn more_than_a_request_may_ask_for() {
    let engine = golden();
    let most = 1 << 14;
    let with = |logprobs, top: Option<usize>| GenerateRequest {
        logprobs,
        prompt_logprobs: top.map(|top| PromptLogprobs { from: 0, top }),
        ..generation(ids(&[1]), 2)
    };
    for (logprobs, top) in [(Some(most + 1), None), (None, Some(most + 1)), (Some(1), Some(most + 1))] {
        let message = generate(&engine, with(logprobs, top));
        assert!(
            message.contains("16385 log-probabilities") && message.contains("at most 16384"),
            "{message}"
        );
    }
    engine.generate(with(Some(most), Some(most)), &Cancel::new(), &mut |_| ()).unwrap();
    let stop = GenerateRequest { stop: vec!["x".to_owned()], ..generation(ids(&[1]), 2) };
    assert!(generate(&engine, stop).contains("tokenizer"));
}

#[test]
fn steps_that_cannot_be_observed() {
    let engine = golden();
    let (context, vocab) = (engine.info().context, engine.info().vocab as u32);
    let observe = |steps: Vec<Vec<u32>>| engine.observe(steps, Arc::new(|_, _| ()));
    assert!(refusal(observe(vec![vec![1], vec![], vec![2]])).contains("step 1 has no tokens"));
    assert!(refusal(observe(Vec::new())).contains("0 tokens in 0 steps"));
    let long = refusal(observe(vec![vec![1; context], vec![2]]));
    assert!(
        long.contains(&format!("{} tokens in 2 steps, for a context of {context}", context + 1)),
        "{long}"
    );
    let unknown = refusal(observe(vec![vec![0, vocab - 1], vec![vocab]]));
    assert!(unknown.contains(&format!("token id {vocab} exceeds the vocabulary of {vocab}")), "{unknown}");
    observe(vec![vec![1; context - 1], vec![vocab - 1]]).unwrap();
}

/// A tokenizer that knows more tokens than the model has rows, as when the files of two models were mixed.
#[test]
fn a_tokenizer_of_another_model_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden_dir().join(name), folder.path().join(name)).unwrap();
    }
    std::fs::copy(demo_dir().join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
    let engine = Engine::load(options(folder.path())).unwrap();
    let message = generate(&engine, generation(text("In the beginning"), 4));
    assert!(
        message.contains("but the model has 131 rows\n") && message.contains("another model"),
        "{message}"
    );
    let items = || vec![ids(&[2])];
    let label = |text: &str| vec![Label::Text(text.to_owned())];
    let score = |request: ScoreRequest| refusal(engine.score(request));
    let message = score(request(ids(&[1]), items(), label(" the")));
    assert!(
        message.contains("label \" the\" contains token id") && message.contains("131 rows"),
        "{message}"
    );
    let long =
        ScoreRequest { long_labels: LongLabels::Sum, ..request(ids(&[1]), items(), label(" the king")) };
    let message = score(long);
    assert!(message.contains("contains token id") && message.contains("131 rows"), "{message}");
    let message = score(request(text("In the"), vec![text(" beginning")], vec![Label::Ids(vec![3])]));
    assert!(
        message.contains("item 0 contains token id") || message.contains("contains token id"),
        "{message}"
    );
}

#[test]
fn labels_that_are_too_long() {
    let engine = golden();
    let with = |tokens: usize, long_labels| {
        let asked = request(ids(&[1]), vec![ids(&[2])], vec![Label::Ids(vec![3; tokens])]);
        engine.score(ScoreRequest { long_labels, ..asked })
    };
    with(64, LongLabels::Sum).unwrap();
    let message = refusal(with(65, LongLabels::Sum));
    assert!(message.contains("a label is 65 tokens") && message.contains("at most 64"), "{message}");
    let message = refusal(with(65, LongLabels::Refuse));
    assert!(message.contains("is 65 tokens") && message.contains("`long_labels` = sum"), "{message}");
    assert!(refusal(with(0, LongLabels::Sum)).contains("is 0 tokens"));
}

#[test]
fn steps_that_do_not_fit_the_memory_budget_are_refused_before_they_run() {
    let memory = Some(budget(golden().info(), 2, 0));
    let engine = Engine::load(Options { memory, ..options(&golden_dir()) }).unwrap();
    let observe = |steps: Vec<Vec<u32>>| engine.observe(steps, Arc::new(|_, _| ()));
    observe(vec![vec![1; 100], vec![2; 28]]).unwrap();
    let message = refusal(observe(vec![vec![1; 100], vec![2; 29]]));
    let fact = "the steps: 129 tokens need room for 192, in pages of 64, and the memory budget leaves room for \
                128\n";
    assert!(message.starts_with(fact), "{message}");
}

/// Each step of a model that fills masks is a canvas of its own.
#[test]
fn canvases_are_observed_one_by_one() {
    let dir = golden_dir().with_file_name("dream-a");
    let context = Engine::load(options(&dir)).unwrap().info().context;
    let engine = Engine::load(options(&dir)).unwrap();
    let observe = |steps: Vec<Vec<u32>>| engine.observe(steps, Arc::new(|_, _| ()));
    observe(vec![vec![1; context], vec![1; 2]]).unwrap();
    let message = refusal(observe(vec![vec![1; 2], vec![1; context + 1]]));
    assert!(message.contains(&format!("{} tokens the longest of 2 steps", context + 1)), "{message}");
}

#[test]
fn a_queue_and_a_pass_have_their_limits() {
    let message = refusal(Engine::load(Options { queue: 0, ..options(&golden_dir()) }));
    assert!(message.contains("a queue of 0 places takes no request"), "{message}");
    let load = |most: usize| {
        let mut options = options(&golden_dir());
        options.plans.buckets = Buckets::new(&[], &[], most);
        Engine::load(options)
    };
    assert_eq!(load(8192).unwrap().info().max_chunk, 8192);
    let message = refusal(load(8193));
    assert!(message.contains("passes of 8193 tokens exceed 8192"), "{message}");
}
