//! Receipts are the same whatever computes them, a second run confirms them, and what was changed in them is named.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use redline_engine::{
    Activation, ActivationId, ActivationName, AdapterChoice, AdapterOptions, BlockCache, Cancel,
    ClassifyRequest, DiffuseRequest, EmbedRequest, Engine, EngineError, GenerateRequest, Label, LongLabels,
    Options, Pooling, PrefixCacheSize, Prompt, PromptLogprobs, Receipt, ReceiptAnswer, ReceiptDifference,
    ReceiptOptions, ReceiptRequest, RerankRequest, Sampling, ScoreRequest,
};
use redline_kernels::{Format, Tier};
use redline_weights::Sha256Digest;

use crate::encoding::reader;
use crate::models::{budget, demo, demo_dir, golden, ids, options, pledge, refusal, text, ways};

const ASKED: Option<ReceiptOptions> = Some(ReceiptOptions { layers: None, most_rows: None });

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

fn generate(engine: &Engine, request: GenerateRequest) -> Receipt {
    let request = GenerateRequest { receipt: ASKED, ..request };
    *engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap().receipt.unwrap()
}

fn score(engine: &Engine, request: ScoreRequest) -> Receipt {
    *engine.score(ScoreRequest { receipt: ASKED, ..request }).unwrap().receipt.unwrap()
}

fn verify(engine: &Engine, receipt: &Receipt) -> Option<ReceiptDifference> {
    engine.verify(receipt, &Cancel::new()).unwrap()
}

fn place(engine: &Engine, receipt: &Receipt) -> String {
    verify(engine, receipt).expect("a difference").place
}

/// Receipts of every kind of request that a model answers which predicts the next token.
fn of_demo(engine: &Engine) -> Vec<(&'static str, Receipt)> {
    generations(engine).into_iter().chain(judgements(engine)).collect()
}

fn generations(engine: &Engine) -> Vec<(&'static str, Receipt)> {
    let prompt = || text("And it came to pass in those days, that");
    let sampled = Sampling { temperature: 0.8, top_p: 0.9, seed: 7, ..Sampling::default() };
    vec![
        ("greedy", generate(engine, GenerateRequest::new(prompt(), 20))),
        (
            "several",
            generate(
                engine,
                GenerateRequest {
                    sampling: sampled,
                    n: 2,
                    best_of: Some(4),
                    ..GenerateRequest::new(prompt(), 9)
                },
            ),
        ),
        (
            "stopped",
            generate(
                engine,
                GenerateRequest {
                    stop: vec![",".to_owned()],
                    logit_bias: vec![(9, 1.5)],
                    ..GenerateRequest::new(prompt(), 30)
                },
            ),
        ),
        (
            "with the prompt",
            generate(
                engine,
                GenerateRequest {
                    prompt_logprobs: Some(PromptLogprobs { from: 2, top: 1 }),
                    ..GenerateRequest::new(prompt(), 4)
                },
            ),
        ),
        (
            "without the cache",
            generate(engine, GenerateRequest { kv_cache: false, ..GenerateRequest::new(prompt(), 5) }),
        ),
    ]
}

fn judgements(engine: &Engine) -> Vec<(&'static str, Receipt)> {
    let mut classify = ClassifyRequest::new(
        vec!["The king is dead".to_owned(), "It rains".to_owned()],
        ["good news", "bad news", "war"].map(|class| Label::Text(class.to_owned())).to_vec(),
    );
    classify.options.receipt = ASKED;
    classify.options.calibrate = Some("N/A".to_owned());
    let documents = ["The king is dead", "It rains"].map(str::to_owned).to_vec();
    let mut rerank = RerankRequest::new("who died".to_owned(), documents);
    rerank.options.receipt = ASKED;
    let words = |labels: &[&str]| -> Vec<Label> {
        labels.iter().map(|label| Label::Text((*label).to_owned())).collect()
    };
    let long = ScoreRequest {
        labels: words(&[" the LORD God", " the LORD", " a man"]),
        long_labels: LongLabels::Mean,
        label_end: Some(Label::Text(".".to_owned())),
        ..pledge()
    };
    let of_items = ScoreRequest {
        item_labels: Some(vec![words(&[" a", " the"]), words(&[" men", " war", " his"]), words(&[" all"])]),
        labels: Vec::new(),
        ..pledge()
    };
    let failing = ScoreRequest {
        items: vec![text(" to"), Prompt::Text(" and".repeat(5000)), text("")],
        item_errors: true,
        softmax: true,
        ..pledge()
    };
    let embed = EmbedRequest {
        pooling: Some(Pooling::Mean),
        normalise: Some(false),
        dimensions: Some(16),
        receipt: ASKED,
        ..EmbedRequest::new(vec![text("The king"), ids(&[5, 6, 7])])
    };
    vec![
        ("scores", score(engine, pledge())),
        ("long labels", score(engine, long)),
        ("labels of items", score(engine, of_items)),
        ("failed items", score(engine, failing)),
        ("nothing", score(engine, ScoreRequest { items: Vec::new(), ..pledge() })),
        ("classes", *engine.classify(classify).unwrap().receipt.unwrap()),
        ("relevance", *engine.rerank(rerank).unwrap().receipt.unwrap()),
        ("embeddings", *engine.embed(embed).unwrap().receipt.unwrap()),
    ]
}

#[test]
fn a_receipt_is_confirmed_on_every_tier_and_thread_count() {
    let way = |tier, threads| Options { tier: Some(tier), threads, ..options(&demo_dir()) };
    let made = Engine::load(Options { threads: 2, ..options(&demo_dir()) }).unwrap();
    let receipts = of_demo(&made);
    for (name, receipt) in &receipts {
        let empty = *name == "nothing";
        assert_eq!((receipt.rows == 0, receipt.answer.is_empty()), (empty, empty), "{name}");
        assert_eq!(receipt.layers.len(), made.info().layers, "{name}");
        assert!(receipt.layers.windows(2).all(|pair| empty || pair[0].sha256 != pair[1].sha256), "{name}");
    }
    let tiers = Tier::ALL.iter().filter(|tier| tier.available().is_ok());
    for (tier, threads) in tiers.flat_map(|&tier| [1, 2, 3].map(|threads| (tier, threads))) {
        let engine = Engine::load(way(tier, threads)).unwrap();
        for (name, receipt) in &receipts {
            assert_eq!(verify(&engine, receipt), None, "{name}, {tier:?}, {threads} threads");
        }
    }
}

#[test]
fn formats_keep_their_receipts_and_have_different_ones() {
    let mut first: Vec<Receipt> = Vec::new();
    for &format in Format::ALL {
        let mut of_format = None;
        for way in ways(format) {
            let engine = Engine::load(way).unwrap();
            let receipt = of_format.get_or_insert_with(|| score(&engine, pledge()));
            assert_eq!(verify(&engine, receipt), None, "{format}");
            if let Some(other) = first.last() {
                assert_eq!(place(&engine, other), "model.weights", "{format}");
            }
        }
        first.extend(of_format);
    }
}

#[test]
fn a_warm_prefix_cache_and_requests_beside_change_no_receipt() {
    let keeps = Options { prefix_cache: Some(PrefixCacheSize::Automatic), ..options(&demo_dir()) };
    let warm = Engine::load(keeps).unwrap();
    let receipts = of_demo(&demo());
    for _ in 0..2 {
        for (name, receipt) in &receipts {
            assert_eq!(verify(&warm, receipt), None, "{name}");
        }
    }
    assert!(warm.gauges().kept_tokens > 100);
    // Made from the cache too.
    for ((name, cold), (_, warm)) in receipts.iter().zip(of_demo(&warm)) {
        assert_eq!(
            (&cold.layers, cold.rows, &cold.answer),
            (&warm.layers, warm.rows, &warm.answer),
            "{name}"
        );
    }
    // Beside others, of which some have receipts of other layers, in passes that are cut.
    let engine = Engine::load(options(&demo_dir())).unwrap();
    let stop = Cancel::new();
    let beside: Vec<_> = (0..12)
        .map(|i| {
            let layers = (i % 3 > 0)
                .then(|| ReceiptOptions { layers: Some(vec![i % 2]), ..ReceiptOptions::default() });
            let sampling = Sampling { temperature: 1.0, seed: i as u64, ..Sampling::default() };
            let prompt = text(&"the people of the land ".repeat(i + 1));
            let request = GenerateRequest {
                sampling,
                receipt: layers,
                ignore_eos: true,
                ..GenerateRequest::new(prompt, 60)
            };
            engine.submit_generate(request, &stop).unwrap()
        })
        .collect();
    for (name, receipt) in &receipts {
        assert_eq!(verify(&engine, receipt), None, "{name}");
    }
    let ended: Vec<_> = beside.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    for (i, outcome) in ended.iter().enumerate() {
        assert_eq!(outcome.receipt.is_some(), i % 3 > 0);
        if let Some(receipt) = &outcome.receipt {
            assert_eq!((receipt.rows, receipt.layers.len()), (60, 1));
            assert_eq!(verify(&warm, receipt), None, "request {i}");
        }
    }
}

/// Requests that lose their pages to others, and run again, have the receipts of those that run alone.
#[test]
fn preempted_requests_have_the_same_receipts() {
    let free = demo();
    let memory = Some(budget(free.info(), 6, 0));
    let tight = Engine::load(Options { memory, ..options(&demo_dir()) }).unwrap();
    let tickets: Vec<_> = (0..10)
        .map(|i| {
            let sampling = Sampling { temperature: 1.0, seed: i, ..Sampling::default() };
            let prompt = text(&"and the king said unto them ".repeat(2 + i as usize % 4));
            let plain = GenerateRequest::new(prompt, 70);
            let request = GenerateRequest { sampling, receipt: ASKED, n: 1 + i as usize % 2, ..plain };
            tight.submit_generate(request, &Cancel::new()).unwrap()
        })
        .collect();
    let outcomes: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert!(tight.gauges().preemptions > 0);
    for (i, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(verify(&free, &outcome.receipt.unwrap()), None, "request {i}");
    }
}

/// The digests as the documentation of [`redline_engine::ReceiptLayer`] says, from activations that an observer saw.
fn digests(engine: &Engine, tokens: &[u32], rows: std::ops::Range<usize>) -> Vec<String> {
    let seen: Arc<Mutex<Vec<Vec<Vec<f32>>>>> = Arc::default();
    let log = seen.clone();
    engine
        .observe(
            vec![tokens.to_vec()],
            Arc::new(move |_, Activation { id, values }| {
                if let ActivationId { layer: Some(layer), name: ActivationName::Residual } = id {
                    let mut seen = log.lock().unwrap();
                    let layers = seen.len().max(layer + 1);
                    seen.resize(layers, Vec::new());
                    seen[layer].extend((0..values.rows()).map(|r| values.row(r).to_vec()));
                }
            }),
        )
        .unwrap();
    let of_layer = |rows_of_layer: &Vec<Vec<f32>>| {
        let mut sum = [0u8; 32];
        for row in &rows_of_layer[rows.clone()] {
            let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
            let mut carry = 0;
            for (sum, byte) in sum.iter_mut().zip(Sha256Digest::of(&bytes).to_bytes()) {
                let all = u16::from(*sum) + u16::from(byte) + carry;
                (*sum, carry) = (all as u8, all >> 8);
            }
        }
        Sha256Digest::of(&[&(rows.len() as u64).to_le_bytes()[..], &sum].concat()).to_string()
    };
    seen.lock().unwrap().iter().map(of_layer).collect()
}

#[test]
fn digests_are_those_of_the_rows_that_are_read() {
    let engine = demo();
    let prompt = engine.encode("And it came to pass", true).unwrap();
    let signed: Vec<i64> = prompt.iter().map(|&id| i64::from(id)).collect();
    let receipt = generate(
        &engine,
        GenerateRequest { ignore_eos: true, ..GenerateRequest::new(Prompt::Ids(signed.clone()), 6) },
    );
    let ReceiptAnswer::Tokens { ids: new, .. } = &receipt.answer[0] else { panic!() };
    let all = [&prompt[..], &new[..5]].concat();
    let layers: Vec<String> = receipt.layers.iter().map(|layer| layer.sha256.clone()).collect();
    assert_eq!((receipt.rows, layers), (6, digests(&engine, &all, prompt.len() - 1..all.len())));
    let request = ScoreRequest {
        labels: vec![Label::Ids(vec![5]), Label::Ids(vec![6])],
        items: vec![ids(&[])],
        query: Prompt::Ids(signed),
        ..pledge()
    };
    let receipt = score(&engine, request);
    let layers: Vec<String> = receipt.layers.iter().map(|layer| layer.sha256.clone()).collect();
    assert_eq!((receipt.rows, layers), (1, digests(&engine, &prompt, prompt.len() - 1..prompt.len())));
}

#[test]
fn encoders_and_canvases_have_receipts() {
    for threads in [1, 2, 3] {
        // Enough texts for micro-batches.
        let texts: Vec<Prompt> =
            (0..40).map(|i| Prompt::Ids((0..12 + i % 7).map(|j| (3 * i + j) % 90 + 5).collect())).collect();
        let open =
            |threads| Engine::load(Options { threads, ..options(&golden_path("encoders/bert-a")) }).unwrap();
        let request = EmbedRequest { receipt: ASKED, ..EmbedRequest::new(texts) };
        let receipt = *open(2).embed(request).unwrap().receipt.unwrap();
        assert!(receipt.rows >= 40);
        assert_eq!(verify(&open(threads), &receipt), None);
        let tokens = receipt.rows;
        let digests = digests(&open(threads), &[9, 8, 7], 0..3);
        let one = EmbedRequest {
            receipt: ASKED,
            pooling: Some(Pooling::Mean),
            ..EmbedRequest::new(vec![ids(&[9, 8, 7])])
        };
        let one = *open(threads).embed(one).unwrap().receipt.unwrap();
        assert_eq!((one.rows, one.layers.iter().map(|it| it.sha256.clone()).collect()), (3, digests));
        assert!(tokens > one.rows);
    }
    let (engine, _dir) = reader("bert-b");
    let mut pairs = ClassifyRequest::new(vec!["Henry is king".to_owned(), "It rains".to_owned()], Vec::new());
    pairs.second_texts = vec![Some("It rains".to_owned()), None];
    pairs.options.receipt = ASKED;
    let receipt = *engine.classify(pairs).unwrap().receipt.unwrap();
    assert_eq!(verify(&engine, &receipt), None);
    let mut changed = receipt.clone();
    let ReceiptRequest::Classifier(texts) = &mut changed.request else { panic!() };
    texts[0].second_text = None;
    assert!(place(&engine, &changed).starts_with("layers[0]"));
    let mut beyond = receipt.clone();
    let ReceiptRequest::Classifier(texts) = &mut beyond.request else { panic!() };
    texts[1].second_text = Some(99);
    let message = refusal(engine.verify(&beyond, &Cancel::new()));
    assert!(message.starts_with("text 1 has a second text from token 99 on"), "{message}");
    for name in ["llada-a", "dream-a"] {
        let engine = Engine::load(options(&golden_path(name))).unwrap();
        let prompt = || ids(&[5, 9, 12, 20]);
        let fill = |request: DiffuseRequest| {
            let request = DiffuseRequest { receipt: ASKED, ..request };
            *engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap().receipt.unwrap()
        };
        let sampled = Sampling { temperature: 0.7, seed: 3, ..Sampling::default() };
        let guided = DiffuseRequest { cfg_scale: 0.5, sampling: sampled, ..DiffuseRequest::new(prompt(), 8) };
        let blocks = DiffuseRequest {
            block_length: Some(4),
            cache: BlockCache::Prefix,
            ..DiffuseRequest::new(prompt(), 8)
        };
        let single = Engine::load(Options { threads: 1, ..options(&golden_path(name)) }).unwrap();
        let labels = vec![Label::Ids(vec![7, 8, 6, 5]), Label::Ids(vec![9])];
        let (mc_samples, seed) = (Some(2), Some(9));
        let scored = ScoreRequest {
            long_labels: LongLabels::Sum,
            mc_samples,
            seed,
            ..ScoreRequest::new(prompt(), vec![ids(&[3]), ids(&[4, 4])], labels)
        };
        for receipt in
            [fill(DiffuseRequest::new(prompt(), 8)), fill(guided), fill(blocks), score(&engine, scored)]
        {
            assert_eq!(verify(&single, &receipt), None, "{name}: {receipt:?}");
        }
    }
}

#[test]
fn adapters_are_known_by_their_weights() {
    let load = |names: &[(&str, &str)]| {
        let options = options(&golden_path("llama-a"));
        let adapters = Some(AdapterOptions::default());
        let engine = Engine::load(Options { adapters, ..options }).unwrap();
        for (name, dir) in names {
            engine.load_adapter(name, &golden_path("adapters").join(dir), None).unwrap();
        }
        engine
    };
    let engine = load(&[("a", "llama-plain"), ("b", "llama-headless")]);
    let choices = ["a", "b"].map(|name| AdapterChoice { name: name.to_owned(), scale: 0.5 }).to_vec();
    let request = GenerateRequest { adapters: choices, ..GenerateRequest::new(ids(&[5, 6, 7]), 8) };
    let receipt = generate(&engine, request);
    assert_eq!(receipt.adapters.len(), 2);
    assert_eq!(verify(&load(&[("x", "llama-headless"), ("y", "llama-plain")]), &receipt), None);
    let missing = verify(&load(&[("a", "llama-plain"), ("b", "llama-dora")]), &receipt).unwrap();
    assert_eq!(missing.place, "adapters[1].checksum");
    assert!(missing.receipt.ends_with("(`b`)") && missing.found.contains("(`a`)"), "{missing:?}");
    let none = Engine::load(options(&golden_path("llama-a"))).unwrap();
    assert_eq!(verify(&none, &receipt).unwrap().found, "no adapter is loaded");
    let mut scaled = receipt.clone();
    scaled.adapters[0].scale = 0.75;
    assert!(place(&engine, &scaled).starts_with("layers["));
    let mut fewer = receipt;
    fewer.adapters.pop();
    assert!(place(&engine, &fewer).starts_with("layers["));
}

#[test]
fn what_was_changed_is_named() {
    let engine = demo();
    let sampled = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
    let receipt = generate(
        &engine,
        GenerateRequest { sampling: sampled, ..GenerateRequest::new(text("In the beginning"), 12) },
    );
    assert_eq!(verify(&engine, &receipt), None);
    let changed = |change: &dyn Fn(&mut Receipt)| {
        let mut receipt = receipt.clone();
        change(&mut receipt);
        place(&engine, &receipt)
    };
    assert_eq!(changed(&|it| it.model.weights.replace_range(3..4, "x")), "model.weights");
    assert_eq!(changed(&|it| it.model.texts.replace_range(60..61, "x")), "model.texts");
    assert_eq!(changed(&|it| it.rows += 1), "rows");
    for layer in 0..receipt.layers.len() {
        let place = changed(&|it| it.layers[layer].sha256.replace_range(9..10, "x"));
        assert_eq!(place, format!("layers[{layer}] (layer {layer})"));
    }
    let tokens = |change: &dyn Fn(&mut Vec<u32>, &mut String)| {
        changed(&|it| {
            let ReceiptAnswer::Tokens { ids, text } = &mut it.answer[0] else { panic!() };
            change(ids, text);
        })
    };
    assert_eq!(tokens(&|ids, _| ids[4] ^= 1), "answer[0].token_ids[4]");
    assert_eq!(tokens(&|ids, _| ids.truncate(3)), "the length of `answer[0].token_ids`");
    assert_eq!(tokens(&|_, text| text.push('.')), "answer[0].text");
    assert_eq!(changed(&|it| it.answer.clear()), "the length of `answer`");
    let request = |change: &dyn Fn(&mut GenerateRequest)| {
        changed(&|it| {
            let ReceiptRequest::Generate(request) = &mut it.request else { panic!() };
            change(request);
        })
    };
    let token = request(&|it| {
        let Prompt::Ids(ids) = &mut it.prompt else { panic!() };
        ids[1] += 1;
    });
    assert_eq!(token, "layers[0] (layer 0)");
    assert_eq!(request(&|it| it.max_new_tokens = 7), "rows");
    // The rows of the first token are the same; those after another one are not.
    assert!(request(&|it| it.sampling.seed = 4).starts_with("layers["));
}

#[test]
fn a_second_run_ends_where_it_has_read_more_rows_than_the_receipt_says() {
    let engine = demo();
    let mut receipt = generate(&engine, GenerateRequest::new(text("And it came to pass"), 3));
    let ReceiptRequest::Generate(request) = &mut receipt.request else { panic!("another request") };
    (request.max_new_tokens, request.ignore_eos) = (200, true);
    let difference = verify(&engine, &receipt).unwrap();
    assert_eq!((&*difference.place, &*difference.receipt, &*difference.found), ("rows", "3", "more than 3"));
}

#[test]
fn receipts_that_cannot_be_made_are_refused_or_left_out() {
    let engine = golden();
    let layers = engine.info().layers;
    let of_layer = |layers: Vec<usize>| {
        let receipt = Some(ReceiptOptions { layers: Some(layers), ..ReceiptOptions::default() });
        let request = GenerateRequest { receipt, ..GenerateRequest::new(ids(&[5, 6]), 2) };
        engine.generate(request, &Cancel::new(), &mut |_| ())
    };
    let message = refusal(of_layer(vec![0, layers]));
    let told = format!("a receipt of layer {layers} was asked for, but the model has {layers}, from 0");
    assert!(message.starts_with(&told), "{message}");
    let some = of_layer(vec![1, 0, 1]).unwrap().receipt.unwrap();
    assert_eq!(some.layers.iter().map(|it| it.layer).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(of_layer(Vec::new()).unwrap().receipt.unwrap().layers, []);
    let cancel = Cancel::new();
    cancel.cancel();
    let request = GenerateRequest { receipt: ASKED, ..GenerateRequest::new(ids(&[5, 6]), 2) };
    let outcome = engine.generate(request, &cancel, &mut |_| ()).unwrap();
    assert!(outcome.cancelled && outcome.receipt.is_none());
    let masked = Engine::load(options(&golden_path("llada-a"))).unwrap();
    let request = DiffuseRequest { receipt: ASKED, ..DiffuseRequest::new(ids(&[5, 6]), 4) };
    assert!(masked.diffuse(request, &cancel, &mut |_| ()).unwrap().receipt.is_none());
    // No label, and an end of labels.
    let empty = ScoreRequest {
        item_labels: Some(Vec::new()),
        items: Vec::new(),
        labels: Vec::new(),
        label_end: Some(Label::Ids(vec![5])),
        ..pledge()
    };
    let query = ids(&[]);
    assert_eq!(score(&engine, ScoreRequest { query, ..empty }).rows, 0);
    let long = ScoreRequest {
        items: vec![ids(&[7; 40]); 1 << 13],
        query: ids(&[]),
        labels: vec![Label::Ids(vec![5])],
        receipt: ASKED,
        ..pledge()
    };
    let message = refusal(engine.score(long));
    assert!(
        message.starts_with("a receipt of 327680 prompt tokens was asked for, more than 262144"),
        "{message}"
    );
    // Layers that the model does not have, and too few.
    let mut more = (*some).clone();
    more.layers[1].layer = layers;
    assert_eq!(place(&engine, &more), "layers[1].layer");
    let mut twice = (*some).clone();
    twice.layers[1] = twice.layers[0].clone();
    assert!(place(&engine, &twice).contains("the numbers of `layers`"));
    assert!(matches!(engine.verify(&some, &cancel), Err(EngineError::Cancelled)));
}

#[test]
fn files_that_changed_after_loading_give_no_receipt() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden_path("llama-b").join(file), folder.path().join(file)).unwrap();
    }
    let engine = Engine::load(options(folder.path())).unwrap();
    let config = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
    std::fs::write(folder.path().join("config.json"), format!("{config} ")).unwrap();
    let asked = |receipt| GenerateRequest { receipt, ..GenerateRequest::new(ids(&[5, 6]), 2) };
    let message = refusal(engine.generate(asked(ASKED), &Cancel::new(), &mut |_| ()));
    assert!(message.starts_with("the model's files changed after it was loaded"), "{message}");
    assert!(engine.generate(asked(None), &Cancel::new(), &mut |_| ()).is_ok());
}
