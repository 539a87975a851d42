//! The score rules, by their numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_engine::{Cancel, Engine, Label, LongLabels, Options, ScoreRequest, Tokenization, Truncate};

use crate::models::{
    bits, demo, demo_dir, generation, golden, ids, long, options, pledge, refusal, request, scores, text,
    tiny,
};

pub(crate) fn labels(ids: &[i64]) -> Vec<Label> {
    ids.iter().map(|&id| Label::Ids(vec![id])).collect()
}

#[test]
fn s1_a_score_is_the_probability_that_generation_reports() {
    let engine = demo();
    let outcome = engine.score(pledge()).unwrap();
    for (item, label_row) in [" to", " of", " for"].iter().zip(&outcome.items) {
        let mut request = generation(text(&format!("I pledge allegiance{item}")), 1);
        request.logprobs = Some(engine.info().vocab);
        let generated = engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap();
        let all = &generated.logprobs.unwrap()[0].top;
        assert_eq!(all.len(), engine.info().vocab);
        for (id, logprob) in outcome.label_token_ids.iter().zip(&label_row.as_ref().unwrap().logprobs) {
            let same = all.iter().find(|t| t.id == id[0]).unwrap();
            assert_eq!(same.logprob.to_bits(), logprob.to_bits());
        }
    }
}

#[test]
fn s1_probabilities_of_the_whole_vocabulary_sum_to_one() {
    let engine = golden();
    let vocab = engine.info().vocab as i64;
    let all: Vec<i64> = (0..vocab).collect();
    let outcome = engine.score(request(ids(&[5, 6, 7]), vec![ids(&[9])], labels(&all))).unwrap();
    let item = outcome.items[0].as_ref().unwrap();
    let sum: f64 = item.scores.iter().map(|&p| f64::from(p)).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    assert!((item.label_mass.unwrap() - 1.0).abs() < 1e-5);
}

#[test]
fn s5_logits_beyond_the_range_of_exp_are_scored() {
    let folder = tempfile::tempdir().unwrap();
    let large = tiny(folder.path(), |name, values| {
        if name == "lm_head.weight" {
            for weight in values {
                *weight *= 1e5;
            }
        }
    });
    let engine = Engine::load(options(&large)).unwrap();
    let vocab = engine.info().vocab as i64;
    let all: Vec<i64> = (0..vocab).collect();
    for softmax in [false, true] {
        let request = ScoreRequest { softmax, ..request(ids(&[1, 2]), vec![ids(&[3])], labels(&all)) };
        let outcome = engine.score(request).unwrap();
        let item = outcome.items[0].as_ref().unwrap();
        let sum: f64 = item.scores.iter().map(|&p| f64::from(p)).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        let least = item.logprobs.iter().copied().fold(0.0, f32::min);
        assert!(least < -1000.0 && least.is_finite(), "{least}");
    }
}

#[test]
fn s7_softmax_is_over_the_labels_and_the_default_is_not() {
    let engine = demo();
    let plain = engine.score(pledge()).unwrap();
    let soft = engine.score(ScoreRequest { softmax: true, ..pledge() }).unwrap();
    let full = engine.score(ScoreRequest { softmax: true, full_logprobs: true, ..pledge() }).unwrap();
    for ((plain, soft), full) in plain.items.iter().zip(&soft.items).zip(&full.items) {
        let (plain, soft, full) = (plain.as_ref().unwrap(), soft.as_ref().unwrap(), full.as_ref().unwrap());
        let sum: f64 = soft.scores.iter().map(|&p| f64::from(p)).sum();
        assert!((sum - 1.0).abs() <= 1e-6);
        let mass: f32 = plain.scores.iter().sum();
        assert!(mass < 0.999, "true probabilities leave room for other tokens");
        assert!((plain.label_mass.unwrap() - mass).abs() < 1e-5);
        assert_eq!(soft.label_mass, None);
        for i in 0..3 {
            assert!((plain.scores[i] / mass - soft.scores[i]).abs() < 1e-5);
            assert!((plain.logprobs[i].exp() - plain.scores[i]).abs() < 1e-6);
            assert!((soft.logprobs[i].exp() - soft.scores[i]).abs() < 1e-6);
            assert_eq!(full.scores[i].to_bits(), soft.scores[i].to_bits(), "the normaliser cancels exactly");
            assert_eq!(full.logprobs[i].to_bits(), plain.logprobs[i].to_bits());
        }
    }
}

#[test]
fn s8_rows_and_columns_keep_the_order_of_the_request() {
    let engine = demo();
    let outcome = engine.score(pledge()).unwrap();
    let mut reversed = pledge();
    reversed.items.reverse();
    reversed.labels.reverse();
    let mut other = scores(&engine.score(reversed).unwrap());
    other.reverse();
    for row in &mut other {
        row.reverse();
    }
    assert_eq!(bits(&scores(&outcome)), bits(&other));
}

#[test]
fn s8_duplicate_labels_keep_their_places_and_share_the_softmax() {
    let engine = golden();
    let run = |ids_: &[i64], softmax| {
        let request = ScoreRequest { softmax, ..request(ids(&[1, 2, 3]), vec![ids(&[4])], labels(ids_)) };
        engine.score(request).unwrap().items.remove(0).unwrap()
    };
    let plain = run(&[8, 9, 8], false);
    assert_eq!(plain.scores[0].to_bits(), plain.scores[2].to_bits());
    assert_eq!(plain.label_mass, run(&[8, 9], false).label_mass, "a label counts once in the mass");
    let soft = run(&[8, 9, 8], true);
    assert!((soft.scores.iter().sum::<f32>() - 1.0).abs() < 1e-6);
}

#[test]
fn s9_no_items_is_an_empty_answer_and_an_empty_item_is_one() {
    let engine = demo();
    let none = engine.score(ScoreRequest { items: Vec::new(), ..pledge() }).unwrap();
    assert!(none.items.is_empty() && none.cost.usage.prompt_tokens == 0 && none.cost.computed_tokens == 0);
    let one = engine.score(ScoreRequest { items: vec![text("")], ..pledge() }).unwrap();
    assert_eq!(one.items.len(), 1);
}

#[test]
fn s10_labels_are_checked_on_both_sides() {
    let engine = golden();
    let vocab = engine.info().vocab as i64;
    let run = |labels: Vec<Label>| engine.score(request(ids(&[1]), vec![ids(&[2])], labels));
    assert!(refusal(run(Vec::new())).contains("0 labels"));
    let message = refusal(run(labels(&[3, -1, vocab, 99_999])));
    for part in ["3 token ids", "-1", &vocab.to_string(), "99999"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(run(labels(&[0, vocab - 1])).is_ok());
    let demo = demo();
    let message =
        refusal(demo.score(ScoreRequest { labels: vec![Label::Text(" zyxwvut".into())], ..pledge() }));
    assert!(message.contains("zyxwvut") && message.contains("tokens:"), "{message}");
    let message = refusal(demo.score(ScoreRequest { labels: vec![Label::Text(String::new())], ..pledge() }));
    assert!(message.contains("0 tokens"), "{message}");
}

#[test]
fn s11_text_and_ids_do_not_mix_and_the_item_is_named() {
    let engine = demo();
    let mut mixed = pledge();
    mixed.items.push(ids(&[1]));
    let message = refusal(engine.score(mixed));
    assert!(message.contains("item 3") && message.contains("token ids"), "{message}");
    let message = refusal(engine.score(request(ids(&[1]), vec![text("x")], labels(&[1]))));
    assert!(message.contains("item 0"), "{message}");
}

#[test]
fn s12_an_empty_query_is_fine_unless_nothing_is_left() {
    let engine = golden();
    let empty = engine.score(request(ids(&[]), vec![ids(&[4, 5])], labels(&[1]))).unwrap();
    let whole = engine.score(request(ids(&[4]), vec![ids(&[5])], labels(&[1]))).unwrap();
    assert_eq!(bits(&scores(&empty)), bits(&scores(&whole)));
    let message = refusal(engine.score(request(ids(&[]), vec![ids(&[4]), ids(&[])], labels(&[1]))));
    assert!(message.contains("item 1") && message.contains("0 tokens"), "{message}");
}

#[test]
fn s13_over_long_items_are_refused_cut_or_reported() {
    let engine = golden();
    let context = engine.info().context as i64;
    let many: Vec<i64> = (0..context).map(|i| i % 7).collect();
    let base = request(ids(&[100, 101]), vec![ids(&[3]), ids(&many)], labels(&[1, 2]));
    let message = refusal(engine.score(base.clone()));
    let (have, limit) = ((context + 2).to_string(), context.to_string());
    assert!(message.contains("item 1") && message.contains(&have) && message.contains(&limit), "{message}");
    for (truncate, kept) in
        [(Truncate::Left, many.clone()), (Truncate::Right, [&[100, 101], &many[..many.len() - 2]].concat())]
    {
        let cut = ScoreRequest { truncate: Some(truncate), return_token_ids: true, ..base.clone() };
        let outcome = engine.score(cut).unwrap();
        let item = outcome.items[1].as_ref().unwrap();
        assert!(item.truncated && !outcome.items[0].as_ref().unwrap().truncated);
        let kept: Vec<u32> = kept.iter().map(|&i| i as u32).collect();
        assert_eq!(item.token_ids.as_ref().unwrap(), &kept);
    }
    let outcome = engine.score(ScoreRequest { item_errors: true, ..base.clone() }).unwrap();
    assert!(outcome.items[1].as_ref().unwrap_err().message.contains(&have));
    let alone = engine.score(ScoreRequest { items: vec![ids(&[3])], ..base }).unwrap();
    assert_eq!(outcome.items[0].as_ref().unwrap().scores, alone.items[0].as_ref().unwrap().scores);
}

#[test]
fn s14_item_first_puts_the_item_before_the_query() {
    let engine = golden();
    let first = ScoreRequest {
        item_first: true,
        ..request(ids(&[4, 5]), vec![ids(&[6]), ids(&[7, 8])], labels(&[1]))
    };
    let outcome = engine.score(first).unwrap();
    let by_hand = request(ids(&[]), vec![ids(&[6, 4, 5]), ids(&[7, 8, 4, 5])], labels(&[1]));
    assert_eq!(bits(&scores(&outcome)), bits(&scores(&engine.score(by_hand).unwrap())));
    let demo = demo();
    let outcome = demo.score(ScoreRequest { item_first: true, return_token_ids: true, ..pledge() }).unwrap();
    let tokenizer = demo.tokenizer().unwrap();
    let ids = outcome.items[0].as_ref().unwrap().token_ids.as_ref().unwrap();
    assert_eq!(tokenizer.decode(ids, true).unwrap(), " toI pledge allegiance");
}

#[test]
fn s15_special_tokens_stand_once_in_both_modes_and_a_moved_boundary_is_flagged() {
    let engine = demo();
    let prefix = engine.tokenizer().unwrap().prefix_ids().to_vec();
    assert!(!prefix.is_empty(), "the demo tokenizer puts a token in front");
    let run = |query: &str, item: &str, tokenization| {
        let request = ScoreRequest {
            tokenization,
            return_token_ids: true,
            ..request(text(query), vec![text(item)], labels(&[1]))
        };
        engine.score(request).unwrap().items.remove(0).unwrap()
    };
    for (query, item, moves) in
        [("I pledge", " allegiance", false), ("I ple", "dge allegiance", true), ("", "In", false)]
    {
        let concat = run(query, item, Tokenization::Concat);
        let separate = run(query, item, Tokenization::Separate);
        assert_eq!(concat.boundary_mismatch, Some(moves), "{query}|{item}");
        assert_eq!(separate.boundary_mismatch, Some(moves));
        assert_eq!(concat.token_ids == separate.token_ids, !moves);
        for row in [&concat, &separate] {
            let ids = row.token_ids.as_ref().unwrap();
            assert!(ids.starts_with(&prefix) && !ids[prefix.len()..].starts_with(&prefix), "{ids:?}");
        }
    }
    let bos = engine.tokenizer().unwrap().token(prefix[0]).unwrap();
    let doubled = run(&format!("{bos}I pledge"), " allegiance", Tokenization::Concat);
    assert_eq!(doubled.token_ids, run("I pledge", " allegiance", Tokenization::Concat).token_ids);
}

#[test]
fn usage_sums_over_items_and_the_shared_prefix_is_computed_once() {
    let engine = golden();
    let outcome = engine
        .score(request(ids(&[1, 2, 3, 4]), vec![ids(&[5]), ids(&[6, 7]), ids(&[5, 8])], labels(&[1])))
        .unwrap();
    assert_eq!((outcome.cost.usage.prompt_tokens, outcome.cost.usage.completion_tokens), (5 + 6 + 6, 0));
    assert_eq!(outcome.cost.shared_prefix_tokens, 4);
    assert_eq!(outcome.cost.computed_tokens, 4 + 1 + 2 + 2);
}

#[test]
fn many_items_and_long_items_equal_items_alone() {
    let dir = tempfile::tempdir().unwrap();
    let engine = long(dir.path());
    let query: Vec<i64> = (0..70).map(|i| i % 290).collect();
    let lengths = [1usize, 600, 3, 511, 512, 513, 1100, 2];
    let mut items: Vec<Vec<i64>> =
        lengths.iter().map(|&n| (0..n as i64).map(|i| (i * 31 + n as i64) % 300).collect()).collect();
    items.extend((0..150).map(|i| vec![i % 300, 7]));
    let all = request(ids(&query), items.iter().map(|i| ids(i)).collect(), labels(&[1, 2, 299]));
    let together = bits(&scores(&engine.score(all.clone()).unwrap()));
    for (item, row) in items.iter().zip(&together).take(12) {
        let alone = engine.score(ScoreRequest { items: vec![ids(item)], ..all.clone() }).unwrap();
        assert_eq!(&bits(&scores(&alone))[0], row, "an item of {} tokens", item.len());
    }
}

#[test]
fn items_that_exceed_a_small_context_together_still_fit_a_pass() {
    let engine = Engine::load(Options { max_context: Some(16), ..options(&demo_dir()) }).unwrap();
    let items: Vec<_> = (0..20).map(|i| ids(&[i + 10, i + 11, i + 12, 4, 5])).collect();
    let outcome = engine.score(request(ids(&[7]), items, labels(&[1, 2]))).unwrap();
    assert_eq!(scores(&outcome).len(), 20);
}

#[test]
fn more_labels_than_the_vocabulary_has_entries() {
    let engine = golden();
    let many: Vec<i64> = (0..400).map(|i| i % 7).collect();
    for softmax in [false, true] {
        let request = ScoreRequest { softmax, ..request(ids(&[1, 2]), vec![ids(&[3])], labels(&many)) };
        let row = engine.score(request).unwrap().items.remove(0).unwrap();
        assert_eq!(row.scores.len(), 400);
        assert!((7..400).all(|i| row.scores[i].to_bits() == row.scores[i % 7].to_bits()));
    }
}

#[test]
fn s13_cutting_a_text_keeps_the_special_token_in_front() {
    let engine = Engine::load(Options { max_context: Some(8), ..options(&demo_dir()) }).unwrap();
    let prefix = engine.tokenizer().unwrap().prefix_ids().to_vec();
    let long = "and it came to pass in those days that there went out a decree";
    let whole = demo().tokenizer().unwrap().encode(long, true).unwrap();
    for (truncate, kept) in [(Truncate::Left, &whole[whole.len() - 7..]), (Truncate::Right, &whole[1..8])] {
        let cut = ScoreRequest {
            truncate: Some(truncate),
            return_token_ids: true,
            ..request(text(""), vec![text(long)], labels(&[1]))
        };
        let ids = engine.score(cut).unwrap().items.remove(0).unwrap().token_ids.unwrap();
        assert_eq!(ids, [&prefix, kept].concat());
    }
}

/// The demo model with a tokenizer that also puts a special token after a text.
#[test]
fn cutting_a_text_keeps_the_special_token_after_it() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        std::fs::copy(demo_dir().join(file), folder.path().join(file)).unwrap();
    }
    let tokenizer = std::fs::read_to_string(demo_dir().join("tokenizer.json")).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_str(&tokenizer).unwrap();
    let end = serde_json::json!({"SpecialToken": {"id": "<|eos|>", "type_id": 0}});
    tokenizer["post_processor"]["single"].as_array_mut().unwrap().push(end);
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let engine = Engine::load(Options { max_context: Some(8), ..options(folder.path()) }).unwrap();
    let long = "and it came to pass in those days that there went out a decree";
    let whole = engine.tokenizer().unwrap().encode(long, true).unwrap();
    let (first, last, text_ids) = (whole[0], whole[whole.len() - 1], &whole[1..whole.len() - 1]);
    assert_eq!(engine.tokenizer().unwrap().suffix_ids(), [last]);
    let ends = [(Truncate::Left, &text_ids[text_ids.len() - 6..]), (Truncate::Right, &text_ids[..6])];
    for (truncate, kept) in ends {
        let cut = ScoreRequest {
            truncate: Some(truncate),
            return_token_ids: true,
            ..request(text(""), vec![text(long)], labels(&[1]))
        };
        let ids = engine.score(cut).unwrap().items.remove(0).unwrap().token_ids.unwrap();
        assert_eq!(ids, [&[first], kept, &[last]].concat(), "{truncate:?}");
    }
}

/// The log-probability of `tokens` after `prompt`, one request per token.
fn chained(engine: &Engine, prompt: &[i64], tokens: &[u32]) -> f64 {
    let mut so_far = prompt.to_vec();
    let mut sum = 0.0;
    for &token in tokens {
        let asked = request(ids(&so_far), vec![ids(&[])], vec![Label::Ids(vec![token.into()])]);
        sum += f64::from(engine.score(asked).unwrap().items[0].as_ref().unwrap().logprobs[0]);
        so_far.push(token.into());
    }
    sum
}

#[test]
fn a_label_of_several_tokens_is_the_product_of_its_tokens() {
    let engine = demo();
    let texts = [" zyxwvut", " the", " the king of Babylon", " the", " Nebuchadnezzar the king"];
    let long = texts.map(|text| Label::Text(text.into())).to_vec();
    let asked = |long_labels, softmax| ScoreRequest {
        labels: long.clone(),
        long_labels,
        softmax,
        return_token_ids: true,
        ..pledge()
    };
    let sum = engine.score(asked(LongLabels::Sum, false)).unwrap();
    let mean = engine.score(asked(LongLabels::Mean, false)).unwrap();
    let soft = engine.score(asked(LongLabels::Sum, true)).unwrap();
    let lengths: Vec<usize> = sum.label_token_ids.iter().map(Vec::len).collect();
    assert!(lengths[0] > 1 && lengths[1] == 1 && lengths[2] > 2, "{lengths:?}");
    for ((sum, mean), soft) in sum.items.iter().zip(&mean.items).zip(&soft.items) {
        let (sum, mean, soft) = (sum.as_ref().unwrap(), mean.as_ref().unwrap(), soft.as_ref().unwrap());
        let prompt: Vec<i64> = sum.token_ids.as_ref().unwrap().iter().map(|&id| id.into()).collect();
        for (i, ids) in engine_labels(&engine, &texts).iter().enumerate() {
            let expected = chained(&engine, &prompt, ids);
            assert!((f64::from(sum.logprobs[i]) - expected).abs() < 1e-4, "{} {expected}", sum.logprobs[i]);
            let per_token = expected / ids.len() as f64;
            assert!(
                (f64::from(mean.logprobs[i]) - per_token).abs() < 1e-4,
                "{} {per_token}",
                mean.logprobs[i]
            );
            // The logarithm was rounded to f32, so its exponential has a relative error of its magnitude times the rounding.
            let off = f32::EPSILON * (1.0 + sum.logprobs[i].abs());
            assert!((sum.scores[i] - sum.logprobs[i].exp()).abs() <= off * sum.scores[i]);
        }
        assert_eq!(sum.scores[1].to_bits(), sum.scores[3].to_bits(), "duplicates keep their place");
        assert!((soft.scores.iter().map(|&x| f64::from(x)).sum::<f64>() - 1.0).abs() < 1e-6);
        assert_eq!((sum.label_mass, soft.label_mass), (None, None));
    }
    // All but the last token of each distinct label, for every item; none of it was kept.
    let behind: usize = [0, 2, 4].iter().map(|&i| lengths[i] - 1).sum();
    let plain = demo().score(pledge()).unwrap();
    assert_eq!(sum.cost.computed_tokens, plain.cost.computed_tokens + 3 * behind);
    // A single-token label gets the same score with and without long labels beside it.
    let plain = engine.score(ScoreRequest { labels: vec![long[1].clone()], ..pledge() }).unwrap();
    for (plain, sum) in scores(&plain).iter().zip(scores(&sum)) {
        assert_eq!(plain[0].to_bits(), sum[1].to_bits());
    }
}

#[test]
fn labels_of_other_items_change_nothing() {
    let engine = demo();
    let label = |text: &str| Label::Text(text.into());
    let lists = [
        vec![label(" the"), label(" God")],
        vec![label(" zyxwvut"), label(" the")],
        vec![label(" of"), label(" king")],
    ];
    let asked = |at: &[usize], softmax, full_logprobs, return_reading| ScoreRequest {
        items: at.iter().map(|&at| pledge().items[at].clone()).collect(),
        labels: Vec::new(),
        item_labels: Some(at.iter().map(|&at| lists[at].clone()).collect()),
        long_labels: LongLabels::Sum,
        softmax,
        full_logprobs,
        return_reading,
        ..pledge()
    };
    for (softmax, full, reading) in [
        (false, false, false),
        (true, false, false),
        (true, true, false),
        (true, true, true),
        (true, false, true),
    ] {
        let all = engine.score(asked(&[0, 1, 2], softmax, full, reading)).unwrap();
        for at in 0..3 {
            let alone = engine.score(asked(&[at], softmax, full, reading)).unwrap();
            let [alone, beside] = [&alone.items[0], &all.items[at]].map(|item| format!("{item:?}"));
            assert_eq!(alone, beside, "{at} {softmax} {full} {reading}");
        }
    }
}

#[test]
fn a_reading_tells_what_the_model_would_write() {
    let engine = demo();
    let vocab = engine.info().vocab as i64;
    let every: Vec<Label> = (0..vocab).map(|id| Label::Ids(vec![id])).collect();
    let all = engine.score(ScoreRequest { labels: every, ..pledge() }).unwrap();
    let texts = [" the", " zyxwvut", " the king"].map(|text| Label::Text(text.into())).to_vec();
    let long_labels = LongLabels::Sum;
    let asked = ScoreRequest { labels: texts, long_labels, return_reading: true, ..pledge() };
    let outcome = engine.score(asked).unwrap();
    for (all, item) in all.items.iter().zip(&outcome.items) {
        let (all, item) = (all.as_ref().unwrap(), item.as_ref().unwrap());
        let reading = item.reading.unwrap();
        let most = all.scores.iter().copied().fold(0.0, f32::max);
        let first = all.scores.iter().position(|&score| score == most).unwrap();
        assert_eq!(reading.most_probable as usize, first);
        // What begins with ` the` is part of it.
        assert!((reading.label_mass - item.scores[0] - item.scores[1]).abs() < 1e-7, "{reading:?} {item:?}");
        assert_eq!(all.reading, None);
    }
}

/// The tokens of labels, as tokenised by the engine.
pub(crate) fn engine_labels(engine: &Engine, texts: &[&str]) -> Vec<Vec<u32>> {
    texts.iter().map(|text| engine.tokenizer().unwrap().encode(text, false).unwrap()).collect()
}

#[test]
fn many_long_labels_and_items_score_as_alone() {
    let engine = demo();
    let texts: Vec<String> = (0..40).map(|i| format!(" word{i} and of{}", "x".repeat(i))).collect();
    let labels: Vec<Label> = texts.iter().cloned().map(Label::Text).collect();
    let items: Vec<_> = (0..9).map(|i| text(&" king".repeat(i))).collect();
    let asked =
        |labels: Vec<Label>, items| ScoreRequest { labels, items, long_labels: LongLabels::Sum, ..pledge() };
    let together = bits(&scores(&engine.score(asked(labels.clone(), items.clone())).unwrap()));
    for (i, item) in items.iter().enumerate().step_by(4) {
        for (j, label) in labels.iter().enumerate().step_by(7) {
            let alone = engine.score(asked(vec![label.clone()], vec![item.clone()])).unwrap();
            assert_eq!(bits(&scores(&alone))[0][0], together[i][j], "item {i}, label {j}");
        }
    }
}

#[test]
fn long_labels_have_limits() {
    let engine = demo();
    let with = |text: String| ScoreRequest {
        labels: vec![Label::Text(text)],
        long_labels: LongLabels::Mean,
        ..pledge()
    };
    assert!(refusal(engine.score(with(String::new()))).contains("0 tokens"));
    let message = refusal(engine.score(with(" zyx".repeat(100))));
    assert!(message.contains("at most 64 tokens"), "{message}");
    // The label must fit after the prompt.
    let context = engine.info().context;
    let label = with(" the king of Babylon".into());
    let behind = engine.tokenizer().unwrap().encode(" the king of Babylon", false).unwrap().len() - 1;
    let fits = |tokens| {
        engine.score(ScoreRequest { query: ids(&vec![5; tokens]), items: vec![ids(&[])], ..label.clone() })
    };
    assert!(fits(context - behind).is_ok());
    assert!(refusal(fits(context - behind + 1)).contains("context"));
    let tiny = Engine::load(Options { max_context: Some(behind), ..options(&demo_dir()) }).unwrap();
    let message = refusal(tiny.score(ScoreRequest { truncate: Some(Truncate::Left), ..label }));
    assert!(message.contains("leaves nothing of the context"), "{message}");
}

#[test]
fn a_request_waits_for_less_time_than_it_takes() {
    // One second passes between two clock readings.
    let readings = AtomicU64::new(0);
    let clock = Arc::new(move || readings.fetch_add(1, Ordering::Relaxed) * 1_000_000_000);
    let engine = Engine::load(Options { clock, ..options(&demo_dir()) }).unwrap();
    let taken = engine.score(pledge()).unwrap().cost;
    assert!(0.0 < taken.queue_s && taken.queue_s < taken.compute_s, "{taken:?}");
}

#[test]
fn log_probabilities_of_long_labels_are_those_of_their_scores_unless_true_ones_are_asked_for() {
    let engine = demo();
    let asked = |softmax, full_logprobs| {
        let labels = [" the", " the king of Babylon"].map(|text| Label::Text(text.into())).to_vec();
        let long_labels = LongLabels::Sum;
        let request = ScoreRequest { labels, long_labels, softmax, full_logprobs, ..pledge() };
        engine.score(request).unwrap().items.remove(0).unwrap()
    };
    let (plain, soft, full) = (asked(false, false), asked(true, false), asked(true, true));
    for (score, logprob) in soft.scores.iter().zip(&soft.logprobs) {
        assert!((logprob.exp() - score).abs() < 1e-6, "{soft:?}");
    }
    assert_eq!(full.scores, soft.scores);
    assert_eq!(full.logprobs, plain.logprobs);
    assert_ne!(full.logprobs, soft.logprobs);
}
