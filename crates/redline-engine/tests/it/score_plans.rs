//! The cases of three written plans for score tests, by their numbers: twelve core ones, ten edge ones, four features.

use redline_engine::{
    Cancel, Engine, Label, LongLabels, Options, PrefixCacheCounts, Prompt, ScoreRequest, Tokenization,
};
use redline_kernels::Format;
use serde_json::Value;

use crate::demo::read;
use crate::models::{
    bits, demo, demo_dir, generation, golden, ids, options, pledge, refusal, request, scores, text,
};
use crate::perplexity::{goldens, log_softmax, reference};
use crate::scoring::{engine_labels, labels};

const QUERY: &str = "I pledge allegiance";
/// Items of one token.
const SHORT: [&str; 3] = [" to", " of", " for"];
/// Items that begin with those.
const LONG: [&str; 3] = [" to the flag", " of the United States", " for which it stands"];
const WORDS: [&str; 16] = [
    " to", " of", " for", " the", " a", " his", " and", " in", " that", " which", " it", " with", " not",
    " be", " was", " he",
];
/// Maximum difference between a sum of probabilities and one.
const SUM: f64 = 1e-6;
/// Maximum relative difference between a probability and the reference implementation's. The plan allows 0.01; both ran in f32.
const REFERENCE: f64 = 1e-4;

/// The ids of labels that must be one token each.
fn single(engine: &Engine, texts: &[&str]) -> Vec<i64> {
    let one = |(text, ids): (&&str, Vec<u32>)| {
        assert_eq!(ids.len(), 1, "{text:?} is not a single token: {ids:?}");
        ids[0].into()
    };
    texts.iter().zip(engine_labels(engine, texts)).map(one).collect()
}

/// The plans' query with these items and these labels, which must be one token each.
fn asked(engine: &Engine, items: &[&str], labels_: &[&str]) -> ScoreRequest {
    request(text(QUERY), items.iter().map(|item| text(item)).collect(), labels(&single(engine, labels_)))
}

/// The same with a softmax over the labels.
fn soft(engine: &Engine, items: &[&str], labels: &[&str]) -> ScoreRequest {
    ScoreRequest { softmax: true, ..asked(engine, items, labels) }
}

/// The scores of a request whose labels are the same for all items: one row per item, one probability per label.
fn run(engine: &Engine, request: ScoreRequest) -> Vec<Vec<f32>> {
    let (items, labels, softmax) = (request.items.len(), request.labels.len(), request.softmax);
    let rows = scores(&engine.score(request).unwrap());
    assert_eq!(rows.len(), items);
    for row in &rows {
        assert_eq!(row.len(), labels);
        assert!(row.iter().all(|p| (0.0..=1.0).contains(p)), "{row:?}");
        let sum: f64 = row.iter().map(|&p| f64::from(p)).sum();
        assert!(!softmax || (sum - 1.0).abs() < SUM, "{sum}");
    }
    rows
}

/// The token ids of the prompts that a request is scored by.
fn prompts(engine: &Engine, request: ScoreRequest) -> Vec<Vec<u32>> {
    let outcome = engine.score(ScoreRequest { return_token_ids: true, ..request }).unwrap();
    outcome.items.into_iter().map(|item| item.unwrap().token_ids.unwrap()).collect()
}

/// The token ids of a text as a prompt.
fn encoded(engine: &Engine, text: &str) -> Vec<u32> {
    engine.tokenizer().unwrap().encode(text, true).unwrap()
}

fn signed(ids: &[u32]) -> Vec<i64> {
    ids.iter().map(|&id| id.into()).collect()
}

fn of_format(format: Format) -> Engine {
    Engine::load(Options { format: Some(format), ..options(&demo_dir()) }).unwrap()
}

#[test]
fn core_01_text_input() {
    let engine = demo();
    let rows = run(&engine, soft(&engine, &SHORT, &SHORT));
    // The softmax must match the log-probabilities that generation reports for the same text.
    for (item, row) in SHORT.iter().zip(&rows) {
        let mut next = generation(text(&format!("{QUERY}{item}")), 1);
        next.logprobs = Some(engine.info().vocab);
        let all = engine.generate(next, &Cancel::new(), &mut |_| ()).unwrap().logprobs.unwrap().remove(0).top;
        let of = |&id: &i64| f64::from(all.iter().find(|t| i64::from(t.id) == id).unwrap().logprob);
        let expected = log_softmax(&single(&engine, &SHORT).iter().map(of).collect::<Vec<_>>());
        for (p, expected) in row.iter().zip(expected) {
            assert!((f64::from(*p) - expected.exp()).abs() < SUM, "{item:?}: {p} is not {}", expected.exp());
        }
    }
}

#[test]
fn core_02_token_input() {
    let engine = demo();
    let by_text = soft(&engine, &LONG, &SHORT);
    let items: Vec<Prompt> =
        engine_labels(&engine, &LONG).iter().map(|tokens| ids(&signed(tokens))).collect();
    let query = ids(&signed(&encoded(&engine, QUERY)));
    let by_ids = ScoreRequest { query, items, ..by_text.clone() };
    assert_eq!(prompts(&engine, by_ids.clone()), prompts(&engine, by_text.clone()));
    assert_eq!(bits(&run(&engine, by_ids.clone())), bits(&run(&engine, by_text)));
    // Ids are used unchanged: without the token that precedes a text, they are a different prompt.
    let bare = signed(&engine_labels(&engine, &[QUERY])[0]);
    let bare = ScoreRequest { query: ids(&bare), ..by_ids.clone() };
    assert_ne!(bits(&run(&engine, bare)), bits(&run(&engine, by_ids)));
}

#[test]
fn core_03_softmax_true() {
    let engine = demo();
    let plain = run(&engine, asked(&engine, &LONG, &SHORT));
    for (row, plain) in run(&engine, soft(&engine, &LONG, &SHORT)).iter().zip(plain) {
        let mass: f64 = plain.iter().map(|&p| f64::from(p)).sum();
        for (p, plain) in row.iter().zip(plain) {
            assert!((f64::from(*p) - f64::from(plain) / mass).abs() < SUM, "{p}");
        }
    }
}

#[test]
fn core_04_softmax_false() {
    let engine = demo();
    let outcome = engine.score(asked(&engine, &LONG, &SHORT)).unwrap();
    for item in outcome.items {
        let item = item.unwrap();
        for (p, logprob) in item.scores.iter().zip(&item.logprobs) {
            assert!(*p > 0.0 && *logprob < 0.0 && (logprob.exp() - p).abs() < 1e-6 * p, "{p} {logprob}");
        }
        assert!(item.scores.iter().sum::<f32>() < 0.999, "other tokens are possible too");
    }
    let all: Vec<i64> = (0..engine.info().vocab as i64).collect();
    let rows = run(&engine, ScoreRequest { labels: labels(&all), ..asked(&engine, &LONG, &[]) });
    for row in rows {
        let sum: f64 = row.iter().map(|&p| f64::from(p)).sum();
        assert!((sum - 1.0).abs() < 1e-5, "over the whole vocabulary: {sum}");
    }
}

#[test]
fn core_05_item_first_false_and_true() {
    let engine = demo();
    let straight = soft(&engine, &LONG, &SHORT);
    let turned = ScoreRequest { item_first: true, ..straight.clone() };
    let (before, after) = (prompts(&engine, turned.clone()), prompts(&engine, straight.clone()));
    for (i, item) in LONG.iter().enumerate() {
        assert_eq!(after[i], encoded(&engine, &format!("{QUERY}{item}")));
        assert_eq!(before[i], encoded(&engine, &format!("{item}{QUERY}")));
    }
    let (turned, straight) = (bits(&run(&engine, turned)), bits(&run(&engine, straight)));
    assert!(turned.iter().zip(&straight).all(|(turned, straight)| turned != straight));
}

#[test]
fn core_06_label_counts() {
    let engine = demo();
    let most = bits(&run(&engine, asked(&engine, &SHORT, &WORDS)));
    for count in [1, 2, 4, 8, 16] {
        let rows = run(&engine, soft(&engine, &SHORT, &WORDS[..count]));
        assert!(count > 1 || rows.iter().all(|row| row[..] == [1.0]), "one label has it all");
        // A true probability does not depend on the other requested labels.
        let plain = bits(&run(&engine, asked(&engine, &SHORT, &WORDS[..count])));
        assert!(plain.iter().zip(&most).all(|(few, most)| few[..] == most[..count]), "{count} labels");
    }
}

#[test]
fn core_07_single_item() {
    let engine = demo();
    let outcome = engine.score(soft(&engine, &LONG[..1], &SHORT)).unwrap();
    let length = encoded(&engine, &format!("{QUERY}{}", LONG[0])).len();
    assert_eq!((outcome.cost.usage.prompt_tokens, outcome.cost.usage.completion_tokens), (length, 0));
    assert_eq!(outcome.cost.computed_tokens, length);
    let beside_others = run(&engine, soft(&engine, &LONG, &SHORT));
    assert_eq!(bits(&scores(&outcome)), bits(&beside_others[..1]));
}

#[test]
fn core_08_batch_sizes() {
    let engine = demo();
    let pool = [&SHORT[..], &LONG, &["", " and to the republic"]].concat();
    let alone: Vec<_> =
        pool.iter().map(|item| bits(&run(&engine, soft(&engine, &[item], &SHORT))).remove(0)).collect();
    for count in [1, 2, 4, 8] {
        let outcome = engine.score(soft(&engine, &pool[..count], &SHORT)).unwrap();
        assert_eq!(bits(&scores(&outcome)), alone[..count], "{count} items");
        let lengths = pool[..count].iter().map(|item| encoded(&engine, &format!("{QUERY}{item}")).len());
        assert_eq!(outcome.cost.usage.prompt_tokens, lengths.sum::<usize>());
    }
}

#[test]
fn core_09_determinism() {
    let cold = Engine::load(Options { prefix_cache: None, ..options(&demo_dir()) }).unwrap();
    let first = bits(&run(&cold, soft(&cold, &LONG, &SHORT)));
    for engine in [cold, demo(), demo()] {
        for _ in 0..3 {
            assert_eq!(bits(&run(&engine, soft(&engine, &LONG, &SHORT))), first);
        }
    }
}

#[test]
fn core_10_default_params() {
    let engine = demo();
    let bare = ScoreRequest {
        query: text("I ple"),
        items: vec![text("dge allegiance")],
        long_labels: LongLabels::default(),
        tokenization: Tokenization::default(),
        ..asked(&engine, &[], &SHORT)
    };
    // The texts are concatenated with the query first; a different order or split gives a different prompt.
    assert_eq!(prompts(&engine, bare.clone()), [encoded(&engine, QUERY)]);
    let item_first = ScoreRequest { item_first: true, ..bare.clone() };
    let separate = ScoreRequest { tokenization: Tokenization::Separate, ..bare.clone() };
    for other in [item_first, separate] {
        assert_ne!(prompts(&engine, other), [encoded(&engine, QUERY)]);
    }
    // Without softmax: probabilities over the vocabulary.
    let outcome = engine.score(bare.clone()).unwrap().items.remove(0).unwrap();
    assert!(outcome.label_mass.is_some_and(|mass| mass < 0.999), "{outcome:?}");
    assert!(outcome.token_ids.is_none() && !outcome.truncated, "{outcome:?}");
    // A label is one token.
    let long = ScoreRequest { labels: vec![Label::Text(" the king of Babylon".into())], ..bare };
    assert!(refusal(engine.score(long)).contains("must be one token"));
}

/// Probabilities from the logits of the reference implementation: all ids as labels, then some by softmax.
fn scores_are_those_of_the_reference_logits() {
    for dir in goldens() {
        let engine = Engine::load(Options { format: Some(Format::F32), ..options(&dir) }).unwrap();
        let (prompt, logits) = reference(&dir);
        let split = prompt.len() / 2;
        let items = (split..prompt.len()).map(|at| ids(&prompt[split..=at])).collect();
        let all: Vec<i64> = (0..engine.info().vocab as i64).collect();
        let plain = request(ids(&prompt[..split]), items, labels(&all));
        let some: Vec<i64> = all.iter().copied().step_by(17).collect();
        let softmax = ScoreRequest { softmax: true, labels: labels(&some), ..plain.clone() };
        for (asked, ids) in [(plain, all), (softmax, some)] {
            for (row, logits) in run(&engine, asked).iter().zip(&logits[split..]) {
                let logits: Vec<f64> = ids.iter().map(|&id| logits[id as usize]).collect();
                for (p, expected) in row.iter().zip(log_softmax(&logits)) {
                    let off = (f64::from(*p) / expected.exp() - 1.0).abs();
                    assert!(off < REFERENCE, "{}: {p} is not {}", dir.display(), expected.exp());
                }
            }
        }
    }
}

/// The reference implementation recorded its choices on the demo model, and the smallest margin of a choice over the runner-up.
fn the_demo_model_chooses_as_the_reference() {
    let engine = of_format(Format::F32);
    let all: Vec<i64> = (0..engine.info().vocab as i64).collect();
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    for prompt in expected["prompts"].as_array().unwrap() {
        let list = |name: &str| -> Vec<i64> {
            prompt[name].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
        };
        let chosen = list("greedy_ids");
        let items = (0..chosen.len()).map(|n| ids(&chosen[..n])).collect();
        let rows = run(&engine, request(ids(&list("prompt_ids")), items, labels(&all)));
        let mut least = f64::INFINITY;
        for (row, &chosen) in rows.iter().zip(&chosen) {
            let best = f64::from(row[chosen as usize]);
            let others = row.iter().enumerate().filter(|&(id, _)| id as i64 != chosen);
            let second = f64::from(others.map(|(_, &p)| p).fold(0.0, f32::max));
            least = least.min((best / second).ln());
        }
        // The file rounds it to four places.
        let lead = prompt["smallest_lead"].as_f64().unwrap();
        assert!((least - lead).abs() <= 0.5e-4 + REFERENCE * lead, "{least} is not {lead}");
    }
}

#[test]
fn core_11_reference_consistency() {
    scores_are_those_of_the_reference_logits();
    the_demo_model_chooses_as_the_reference();
}

#[test]
fn core_12_request_construction() {
    let engine = demo();
    let outcome =
        engine.score(ScoreRequest { return_token_ids: true, ..asked(&engine, &LONG, &SHORT) }).unwrap();
    let prompts = LONG.map(|item| encoded(&engine, &format!("{QUERY}{item}")));
    for (item, prompt) in outcome.items.iter().zip(&prompts) {
        let item = item.as_ref().unwrap();
        assert_eq!((item.token_ids.as_ref(), item.prompt_tokens), (Some(prompt), prompt.len()));
        assert_eq!((item.boundary_mismatch, item.truncated), (Some(false), false));
    }
    assert_eq!(outcome.label_token_ids, engine_labels(&engine, &SHORT));
    assert_eq!(outcome.item_label_token_ids, None);
    // The query is computed once, every item once, and nothing is generated.
    let query = encoded(&engine, QUERY).len();
    let total: usize = prompts.iter().map(Vec::len).sum();
    assert_eq!((outcome.cost.usage.prompt_tokens, outcome.cost.usage.completion_tokens), (total, 0));
    assert_eq!((outcome.cost.shared_prefix_tokens, outcome.cost.computed_tokens), (query, total - 2 * query));
}

/// Rule S9: an answer without rows that costs nothing.
#[test]
fn edge_01_empty_items() {
    let engine = demo();
    let outcome = engine.score(asked(&engine, &[], &SHORT)).unwrap();
    assert!(outcome.items.is_empty());
    assert_eq!((outcome.cost.usage.prompt_tokens, outcome.cost.computed_tokens), (0, 0));
    // The labels are still checked.
    let message = refusal(engine.score(ScoreRequest { labels: labels(&[-5]), ..asked(&engine, &[], &[]) }));
    assert!(message.contains("-5"), "{message}");
}

#[test]
fn edge_02_empty_labels() {
    let engine = demo();
    let none = asked(&engine, &SHORT, &[]);
    for softmax in [false, true] {
        let message = refusal(engine.score(ScoreRequest { softmax, ..none.clone() }));
        assert!(message.contains("there are 0 labels") && message.contains("hint: give"), "{message}");
    }
    let item_labels = Some(vec![labels(&[5]), Vec::new(), labels(&[6])]);
    let message = refusal(engine.score(ScoreRequest { item_labels, ..none }));
    assert!(message.contains("item 1: there are 0 labels"), "{message}");
}

#[test]
fn edge_03_negative_ids() {
    let engine = demo();
    let bad = ScoreRequest { labels: labels(&[100, -5, 200, -10]), ..asked(&engine, &SHORT, &[]) };
    let message = refusal(engine.score(bad));
    assert!(message.contains("labels: 2 token ids outside 0..4096: -5, -10\n"), "{message}");
}

#[test]
fn edge_04_ids_beyond_the_vocabulary() {
    let engine = demo();
    let vocab = engine.info().vocab as i64;
    let with = |ids: &[i64]| ScoreRequest { labels: labels(ids), ..asked(&engine, &SHORT, &[]) };
    for id in [vocab, vocab + 1000, i64::from(u32::MAX) + 1, i64::MAX] {
        let message = refusal(engine.score(with(&[0, id])));
        assert!(message.contains(&format!("1 token id outside 0..{vocab}: {id}\n")), "{message}");
        assert!(message.contains(&format!("vocabulary has {vocab} entries")), "{message}");
    }
    // Both ends of the vocabulary are labels, special tokens included.
    run(&engine, with(&[0, 1, vocab - 1]));
}

#[test]
fn edge_05_mixed_types() {
    let engine = demo();
    let tokens = || ids(&[5, 6]);
    let cases = [
        (text(QUERY), vec![tokens()], "the query is text, but item 0 is token ids"),
        (tokens(), vec![text(" to")], "the query is token ids, but item 0 is text"),
        (text(QUERY), vec![text(" to"), text(" of"), tokens()], "the query is text, but item 2 is token ids"),
        (tokens(), vec![tokens(), text(""), tokens()], "the query is token ids, but item 1 is text"),
    ];
    for (query, items, fact) in cases {
        for item_errors in [false, true] {
            let (query, items) = (query.clone(), items.clone());
            let mixed = ScoreRequest { query, items, item_errors, ..asked(&engine, &[], &SHORT) };
            let message = refusal(engine.score(mixed));
            assert!(
                message.contains(fact) && message.contains("either as text or as token ids"),
                "{message}"
            );
        }
    }
}

#[test]
fn edge_06_duplicate_labels() {
    let engine = demo();
    let plain = bits(&run(&engine, asked(&engine, &LONG, &[" to", " of"])));
    let doubled = bits(&run(&engine, asked(&engine, &LONG, &[" to", " of", " to"])));
    for (plain, doubled) in plain.iter().zip(doubled) {
        assert_eq!(doubled, [plain[0], plain[1], plain[0]]);
    }
    // In a softmax, each duplicate counts.
    for row in run(&engine, soft(&engine, &LONG, &[" to", " to"])) {
        assert_eq!(row, [0.5, 0.5]);
    }
}

#[test]
fn edge_07_unicode() {
    let engine = demo();
    let queries = ["The capital of France \u{1f1eb}\u{1f1f7}", "\u{4e1c}\u{4eac}", "cafe\u{301} \u{202e}abc"];
    let items = [" is Paris", " \u{1f469}\u{200d}\u{1f680}", "\u{6771}\u{4eac}", "\u{10ffff}"];
    for query in queries {
        let asked = ScoreRequest { query: text(query), ..asked(&engine, &items, &SHORT) };
        for (item, prompt) in items.iter().zip(prompts(&engine, asked.clone())) {
            let read = engine.tokenizer().unwrap().decode(&prompt, true).unwrap();
            assert_eq!(read, format!("{query}{item}"), "no byte is lost");
        }
        let rows = run(&engine, asked);
        assert!(rows.iter().flatten().all(|&p| p > 0.0), "{rows:?}");
        assert!((1..rows.len()).all(|i| rows[i] != rows[0]), "{rows:?}");
    }
}

#[test]
fn edge_08_whitespace() {
    let engine = demo();
    let texts = [
        ("Query", " item"),
        ("  Query", " item"),
        ("Query", "  item"),
        ("Query", " item "),
        ("Query\t", "item"),
        ("Query\n", "item"),
        ("Query\r\n", "item"),
        ("Query\u{a0}", "item"),
        ("Query", ""),
        (" ", " "),
    ];
    let mut rows = Vec::new();
    for (query, item) in texts {
        let asked = ScoreRequest { query: text(query), ..asked(&engine, &[item], &SHORT) };
        let prompt = prompts(&engine, asked.clone()).remove(0);
        let read = engine.tokenizer().unwrap().decode(&prompt, true).unwrap();
        assert_eq!(read, format!("{query}{item}"), "white space is text like any other");
        rows.push(bits(&run(&engine, asked)));
    }
    for i in 0..rows.len() {
        assert!(rows[..i].iter().all(|other| *other != rows[i]), "{:?} scores like another text", texts[i]);
    }
}

#[test]
fn edge_09_ordering() {
    let engine = demo();
    let items = [" A is first", " B is second", " C is third"];
    let row = |item: &str| bits(&run(&engine, asked(&engine, &[item], &WORDS))).remove(0);
    let alone = items.map(row);
    assert!(alone[0] != alone[1] && alone[1] != alone[2] && alone[0] != alone[2]);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let rows = bits(&run(&engine, asked(&engine, &order.map(|i| items[i]), &WORDS)));
        assert_eq!(rows, order.map(|i| alone[i].clone()), "{order:?}");
    }
    let mut turned = WORDS;
    turned.reverse();
    for (mut row, alone) in bits(&run(&engine, asked(&engine, &items, &turned))).into_iter().zip(alone) {
        row.reverse();
        assert_eq!(row, alone, "columns follow the labels");
    }
}

/// Errors that the types allow; errors that only JSON can express are refused where JSON is read.
#[test]
fn edge_10_invalid_types() {
    let engine = demo();
    let base = asked(&engine, &[], &SHORT);
    let query = |query: &[i64]| ScoreRequest { query: ids(query), items: vec![ids(&[5])], ..base.clone() };
    let item =
        |item: &[i64]| ScoreRequest { query: ids(&[5]), items: vec![ids(&[6]), ids(item)], ..base.clone() };
    let label = |label: Label| ScoreRequest { labels: vec![label], ..pledge() };
    let cases = [
        (query(&[5, -1]), "query: 1 token id outside 0..4096: -1"),
        (query(&[4096, i64::MIN]), "query: 2 token ids outside 0..4096: 4096, -9223372036854775808"),
        (item(&[-7]), "item 1: 1 token id outside 0..4096: -7"),
        (item(&[5, i64::MAX]), "item 1: 1 token id outside 0..4096: 9223372036854775807"),
        (label(Label::Ids(Vec::new())), "label [] is 0 tokens"),
        (label(Label::Ids(vec![5, 6])), "label [5, 6] is 2 tokens"),
        (label(Label::Text(String::new())), "label \"\" is 0 tokens"),
        (label(Label::Text("7".repeat(9))), "label \"777777777\" is "),
    ];
    for (bad, fact) in cases {
        let message = refusal(engine.score(bad));
        assert!(message.contains(fact), "no `{fact}` in: {message}");
    }
    // A text for a model without a tokenizer.
    let message = refusal(golden().score(ScoreRequest { labels: labels(&[5]), ..pledge() }));
    assert!(message.contains("text needs a tokenizer"), "{message}");
    // The engine continues.
    run(&engine, pledge());
}

#[test]
fn feature_1_bf16_against_f32() {
    let [bf16, f32] = [Format::Bf16, Format::F32].map(of_format);
    let mut differ = false;
    for softmax in [false, true] {
        for (items, labels) in [(&LONG, &SHORT[..]), (&SHORT, &WORDS)] {
            let of = |engine| run(engine, ScoreRequest { softmax, ..asked(engine, items, labels) }).concat();
            for (bf16, f32) in of(&bf16).into_iter().zip(of(&f32)) {
                let off = (bf16 - f32).abs();
                assert!(bf16.is_finite() && f32.is_finite() && off < 0.01, "{bf16} is not {f32}");
                assert!(f32 <= 0.001 || off < 0.05 * f32, "{bf16} is not {f32}");
                differ |= off > 0.0;
            }
        }
    }
    assert!(differ, "two formats that never differ are one");
}

/// The scores of an engine with the given number of threads and devices.
fn split(threads: usize, tp: usize) -> Vec<Vec<u32>> {
    let engine = Engine::load(Options { threads, tp, ..options(&demo_dir()) }).unwrap();
    assert_eq!(engine.info().tp, tp);
    let rows = [soft(&engine, &LONG, &SHORT), asked(&engine, &LONG, &WORDS)];
    rows.into_iter().flat_map(|request| bits(&run(&engine, request))).collect()
}

/// The plan requires six places; the bits are equal.
#[test]
fn feature_2_sharding() {
    let alone = split(1, 1);
    for (threads, tp) in [(2, 1), (1, 2), (2, 2), (3, 2), (2, 4), (1, 8), (3, 3)] {
        assert_eq!(split(threads, tp), alone, "{threads} threads as {tp} devices");
    }
    for tp in [0, 9] {
        let refused = refusal(Engine::load(Options { tp, ..options(&demo_dir()) }));
        assert!(refused.contains(&format!("{tp} logical devices")), "{refused}");
    }
}

#[test]
fn feature_3_prefix_caching() {
    let engine = demo();
    let cold = Engine::load(Options { prefix_cache: None, ..options(&demo_dir()) }).unwrap();
    let of = |engine: &Engine, query: &str, salt: &str| {
        let (query, cache_salt) = (text(query), salt.to_owned());
        engine.score(ScoreRequest { query, cache_salt, ..soft(engine, &LONG, &SHORT) }).unwrap()
    };
    let used = |hits, misses, cached_tokens| Some(PrefixCacheCounts { hits, misses, cached_tokens });
    // Long enough to be worth keeping.
    let query = format!("{QUERY} to the flag of the United States. ").repeat(12);
    let (first, second) = (of(&engine, &query, "salt"), of(&engine, &query, "salt"));
    let (other_salt, without) = (of(&engine, &query, ""), of(&cold, &query, ""));
    let shared = first.cost.shared_prefix_tokens;
    assert!(shared + 1 >= encoded(&engine, &query).len(), "{shared}");
    assert_eq!((first.cost.prefix_cache, first.cost.usage.cached_tokens), (used(0, 3, 0), 0));
    assert_eq!(
        (second.cost.prefix_cache, second.cost.usage.cached_tokens),
        (used(3, 0, 3 * shared), 3 * shared)
    );
    assert_eq!(second.cost.computed_tokens, first.cost.computed_tokens - shared);
    assert_eq!((other_salt.cost.prefix_cache, other_salt.cost.usage.cached_tokens), (used(0, 3, 0), 0));
    assert_eq!((without.cost.prefix_cache, without.cost.usage.cached_tokens), (None, 0));
    for other in [&second, &other_salt, &without] {
        assert_eq!(bits(&scores(other)), bits(&scores(&first)));
        assert_eq!(other.cost.usage.prompt_tokens, first.cost.usage.prompt_tokens);
    }
    for cold in [&other_salt, &without] {
        assert_eq!(cold.cost.computed_tokens, first.cost.computed_tokens);
    }
    // The plan's own query has few tokens: the answer is the same whether it is kept or not, and reports what was computed.
    let short = [of(&engine, QUERY, "short"), of(&engine, QUERY, "short")];
    let expected = of(&cold, QUERY, "");
    for short in short {
        let had = short.cost.prefix_cache.unwrap();
        assert_eq!((had.hits + had.misses, had.cached_tokens), (3, short.cost.usage.cached_tokens));
        assert_eq!(short.cost.computed_tokens, expected.cost.computed_tokens - had.cached_tokens / 3);
        assert_eq!(bits(&scores(&short)), bits(&scores(&expected)));
    }
}

#[test]
fn feature_4_same_dtype_repeated() {
    let mut seen = Vec::new();
    for &format in Format::ALL {
        let engine = of_format(format);
        let again = || bits(&run(&engine, soft(&engine, &LONG, &SHORT)));
        let first = again();
        for _ in 0..2 {
            assert_eq!(again(), first, "{format}");
        }
        let anew = of_format(format);
        assert_eq!(bits(&run(&anew, soft(&anew, &LONG, &SHORT))), first, "{format}, loaded again");
        assert!(!seen.contains(&first), "{format} is another format by name only");
        seen.push(first);
    }
}
