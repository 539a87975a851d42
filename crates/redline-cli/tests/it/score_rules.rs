//! The rules of scoring, S1 to S16, through the binary.

use redline_api::json::input::LabelIds;
use redline_api::jsonl::fault::LineFault;
use redline_api::jsonl::score::Scoring;

use crate::harness::{bits, redline, redline_reading, score, tiers};

const LABELS: &[&str] = &["--label-id", "20", "--label-id", "300", "--label-id", "7"];
const ITEMS: &[&str] = &["--item", " him", "--item", "", "--item", " the people of the land"];

fn pledge(extra: &[&str]) -> Scoring {
    score(&[&["--query", "And the king said unto"], ITEMS, LABELS, extra].concat())
}

/// S1, S5, S7: without softmax a score is the true probability, and `logprobs` its logarithm over the vocabulary.
#[test]
fn s7_without_softmax_scores_are_probabilities() {
    let plain = pledge(&[]);
    let mass = plain.meta.label_mass.as_ref().unwrap();
    for ((row, logprobs), mass) in plain.scores.iter().zip(&plain.meta.logprobs).zip(mass) {
        let (row, logprobs) = (row.as_ref().unwrap(), logprobs.as_ref().unwrap());
        for (score, logprob) in row.iter().zip(logprobs) {
            assert!(score.0 > 0.0 && score.0 < 1.0 && logprob.0 < 0.0);
            assert!((score.0 - logprob.0.exp()).abs() <= 1e-6 * score.0);
        }
        let sum: f32 = row.iter().map(|score| score.0).sum();
        assert!((sum - mass.unwrap().0).abs() <= 1e-6 * sum);
    }
}

/// S7: with softmax a row sums to one, and its ratios are those of the probabilities.
#[test]
fn s7_with_softmax_rows_sum_to_one() {
    let (plain, softmax) = (pledge(&[]), pledge(&["--softmax"]));
    assert_eq!(softmax.meta.label_mass, None);
    for (plain, row) in plain.scores.iter().zip(&softmax.scores) {
        let (plain, row) = (plain.as_ref().unwrap(), row.as_ref().unwrap());
        let sum: f64 = row.iter().map(|score| f64::from(score.0)).sum();
        assert!((sum - 1.0).abs() <= 1e-6, "{sum}");
        let ratio = (plain[0].0 / plain[1].0) / (row[0].0 / row[1].0);
        assert!((ratio - 1.0).abs() <= 1e-4, "{ratio}");
    }
}

/// S1: `--full-logprobs` evaluates the whole vocabulary and changes no score.
#[test]
fn s1_full_logprobs_are_those_over_the_vocabulary() {
    let (plain, softmax, full) =
        (pledge(&[]), pledge(&["--softmax"]), pledge(&["--softmax", "--full-logprobs"]));
    assert_eq!(bits(&full), bits(&softmax));
    assert_eq!(full.meta.logprobs, plain.meta.logprobs);
    assert_eq!(full.meta.label_mass, plain.meta.label_mass);
}

/// S2, S4: an item's row does not depend on other items, its position, the threads, the tier or a shared prefix.
#[test]
fn s4_a_row_has_the_same_bits_in_any_company() {
    let together = bits(&pledge(&[]));
    for (at, item) in [" him", "", " the people of the land"].into_iter().enumerate() {
        let alone = score(&[&["--query", "And the king said unto", "--item", item], LABELS].concat());
        assert_eq!(bits(&alone)[0], together[at], "{item:?}");
    }
    let turned = ["--item", " the people of the land", "--item", " him", "--item", ""];
    let turned = bits(&score(&[&["--query", "And the king said unto"], &turned[..], LABELS].concat()));
    assert_eq!([&turned[1], &turned[2], &turned[0]], [&together[0], &together[1], &together[2]]);
    for format in ["f32", "bf16"] {
        let expect = bits(&pledge(&["--format", format]));
        for tier in tiers() {
            for threads in ["1", "2", "3"] {
                let other = pledge(&["--format", format, "--isa", tier, "--threads", threads]);
                assert_eq!(bits(&other), expect, "{format} {tier} {threads}");
            }
        }
    }
}

/// S2: the query is computed once.
#[test]
fn s2_the_shared_prefix_is_computed_once() {
    let scoring = pledge(&["--return-token-ids"]);
    let meta = &scoring.meta;
    let lengths: Vec<usize> = meta.prompt_tokens.iter().map(|n| n.unwrap()).collect();
    assert_eq!(scoring.usage.prompt_tokens, lengths.iter().sum::<usize>(), "S16: the sum over items");
    let ids: Vec<_> = meta.token_ids.as_ref().unwrap().iter().map(|ids| ids.as_ref().unwrap()).collect();
    // Every prompt keeps at least one token of its own.
    let most = lengths.iter().copied().min().unwrap() - 1;
    let common = (0..most).take_while(|&at| ids.iter().all(|row| row[at] == ids[0][at])).count();
    assert!(common >= 3);
    assert_eq!(meta.cost.shared_prefix_tokens, common, "S15: the longest common token prefix");
    assert!(meta.cost.computed_tokens < scoring.usage.prompt_tokens);
}

/// S8: rows and columns follow the request; duplicates keep their position.
#[test]
fn s8_duplicates_keep_their_place() {
    let query = ["--query", "And", "--item", " a", "--item", " b", "--item", " a"];
    let scoring = score(&[&query[..], &["--label-id", "9", "--label-id", "8", "--label-id", "9"]].concat());
    assert_eq!(scoring.meta.label_token_ids, [9, 8, 9].map(|id| LabelIds(vec![id])));
    let rows = bits(&scoring);
    assert_eq!(rows[0], rows[2]);
    assert_ne!(rows[0], rows[1]);
    assert!(rows.iter().all(|row| row[0] == row[2] && row[0] != row[1]));
    // A duplicate label is counted once in the mass.
    let mass = scoring.meta.label_mass.unwrap()[0].unwrap().0;
    let row = scoring.scores[0].as_ref().unwrap();
    assert!((mass - row[0].0 - row[1].0).abs() <= 1e-6 * mass);
}

/// S10: labels are token ids of the model, or texts of exactly one token.
#[test]
fn s10_bad_labels_are_named() {
    let check = |labels: &[&str], expect: &[&str]| {
        let base = ["score", "--model", "demo", "--query", "And", "--item", " a"];
        redline(&[&base[..], labels].concat()).failed(expect);
    };
    check(&["--label-id", "-1"], &["-1"]);
    check(&["--label-id", "99999999"], &["99999999"]);
    check(&["--label-id", "5", "--label-id", "99999999", "--label-id", "-2"], &["99999999", "-2"]);
    check(&["--label", " incomprehensibilities"], &[" incomprehensibilities", "tokens"]);
    check(&["--label", ""], &["label"]);
}

/// S12: an empty query is fine if the prompt is not empty.
#[test]
fn s12_an_empty_query_is_allowed_but_not_an_empty_prompt() {
    let query_empty = score(&[&["--query", "", "--item", "And the king"], LABELS].concat());
    let item_empty = score(&[&["--query", "And the king", "--item", ""], LABELS].concat());
    assert_eq!(bits(&query_empty), bits(&item_empty));
    let base = ["score", "--model", "demo", "--query-ids", "", "--item-ids", "5", "--item-ids", ""];
    redline(&[&base[..], LABELS].concat()).failed(&["item 1"]);
}

/// S13: a prompt longer than the context is an error that gives both lengths, unless `--truncate` is set.
#[test]
fn s13_over_long_prompts() {
    let long = "And the king said unto him. ".repeat(40);
    let base = ["--query", "The", "--item", " a", "--item", &long, "--max-context", "32"];
    let flags = [&base[..], LABELS].concat();
    redline(&[&["score", "--model", "demo"], &flags[..]].concat()).failed(&["item 1", "32"]);
    for end in ["left", "right"] {
        let cut = score(&[&flags[..], &["--truncate", end, "--return-token-ids"]].concat());
        assert_eq!(cut.meta.truncated, [Some(false), Some(true)]);
        assert_eq!(cut.meta.prompt_tokens[1], Some(32));
        assert_eq!(cut.meta.token_ids.unwrap()[1].as_ref().unwrap().len(), 32);
    }
    let in_place = score(&[&flags[..], &["--item-errors"]].concat());
    assert!(in_place.scores[0].is_some() && in_place.scores[1].is_none());
    assert_eq!(in_place.meta.item_errors.len(), 1);
    assert_eq!(in_place.meta.item_errors[0].index, 1);
    assert!(in_place.meta.item_errors[0].message.contains("32"), "{:?}", in_place.meta.item_errors);
    let masses = in_place.meta.label_mass.as_ref().unwrap();
    assert_eq!(masses.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
    let alone = score(&[&["--query", "The", "--item", " a"], LABELS].concat());
    assert_eq!(bits(&in_place)[0], bits(&alone)[0]);
    let table = redline(&[&["score", "--model", "demo", "--item-errors"], &flags[..]].concat()).ok();
    assert!(table.out.lines().nth(2).unwrap().contains("error: "), "{}", table.out);
}

/// S14: `--item-first` is honoured.
#[test]
fn s14_the_item_may_come_first() {
    let turned =
        score(&[&["--query", " said unto", "--item", "And the king", "--item-first"], LABELS].concat());
    let straight = score(&[&["--query", "And the king", "--item", " said unto"], LABELS].concat());
    assert_eq!(bits(&turned), bits(&straight));
}

/// S15: `concat` joins the texts, `separate` joins the tokens; a difference is reported.
#[test]
fn s15_tokenization_is_named_and_its_boundary_reported() {
    let run = |how: &str, item: &str| {
        score(
            &[&["--query", "The ki", "--item", item, "--tokenization", how, "--return-token-ids"], LABELS]
                .concat(),
        )
    };
    let whole = score(&[&["--query", "The king", "--item", "", "--return-token-ids"], LABELS].concat());
    let (concat, separate) = (run("concat", "ng"), run("separate", "ng"));
    assert_eq!(concat.meta.token_ids, whole.meta.token_ids);
    assert_eq!(bits(&concat), bits(&whole));
    assert_ne!(separate.meta.token_ids, concat.meta.token_ids);
    assert_eq!(
        (&*concat.meta.boundary_mismatch, &*separate.meta.boundary_mismatch),
        (&[Some(true)][..], &[Some(true)][..])
    );
    let clean = run("concat", " and");
    assert_eq!(clean.meta.boundary_mismatch, [Some(false)]);
    assert_eq!(bits(&clean), bits(&run("separate", " and")));
}

/// S3: labels of several tokens are rejected by default; with `--long-labels` the answer lists their tokens.
#[test]
fn s3_labels_of_several_tokens() {
    let query =
        &["--query", "And the king said unto", "--item", " him", "--label", " zyxwvut", "--label", " the"];
    redline(&[&["score", "--model", "demo"], &query[..]].concat()).failed(&["zyxwvut", "--long-labels"]);
    let sum = score(&[query, &["--long-labels", "sum"][..]].concat());
    let several = &sum.meta.label_token_ids[0].0;
    assert!(several.len() > 1 && sum.meta.label_token_ids[1].0.len() == 1);
    let mean = score(&[query, &["--long-labels", "mean"][..]].concat());
    let logprob = |of: &Scoring| of.meta.logprobs[0].as_ref().unwrap()[0].0;
    assert!((logprob(&sum) / several.len() as f32 - logprob(&mean)).abs() < 1e-5);
    let soft = score(&[query, &["--long-labels", "sum", "--softmax"][..]].concat());
    let row: f32 = soft.scores[0].as_ref().unwrap().iter().map(|score| score.0).sum();
    assert!((row - 1.0).abs() < 1e-6);
    let line = r#"{"query":"And the king said unto","items":" him","labels":[" zyxwvut"," the"],"long_labels":"sum"}"#;
    let run = redline_reading(&["score", "--model", "demo", "--json", "--jsonl", "-"], line.as_bytes()).ok();
    assert_eq!(bits(&run.scoring()), bits(&sum));
    // The same labels as ids, and in a JSON line.
    let ids = several.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let the = sum.meta.label_token_ids[1].0[0].to_string();
    let by_ids =
        ["--query", "And the king said unto", "--item", " him", "--label-id", &ids, "--label-id", &the];
    assert_eq!(bits(&score(&[&by_ids[..], &["--long-labels", "sum"]].concat())), bits(&sum));
    let line = format!(
        r#"{{"query":"And the king said unto","items":" him","label_token_ids":[[{ids}],{the}],"long_labels":"sum"}}"#
    );
    let run = redline_reading(&["score", "--model", "demo", "--json", "--jsonl", "-"], line.as_bytes()).ok();
    assert_eq!(bits(&run.scoring()), bits(&sum));
    redline(&[&["score", "--model", "demo"], &by_ids[..]].concat()).failed(&["--long-labels"]);
    redline(&["score", "--long-labels", "product"]).usage(&["--long-labels", "sum", "mean"]);
}

/// S10, S11: a value of the wrong type is an error in its place, and the next line is answered.
#[test]
fn s10_values_of_a_wrong_type_are_refused() {
    let good = r#"{"query":"And","items":" a","label_token_ids":[7]}"#;
    let cases = [
        (r#"{"query":12345,"items":["a"],"label_token_ids":[7]}"#, "integer `12345`"),
        (r#"{"query":null,"items":["a"],"label_token_ids":[7]}"#, "neither `query` nor `messages` is given"),
        (r#"{"query":["And"],"items":["a"],"label_token_ids":[7]}"#, "string \"And\""),
        (r#"{"query":[5,true],"items":[[6]],"label_token_ids":[7]}"#, "boolean `true`"),
        (r#"{"query":[5.5],"items":[[6]],"label_token_ids":[7]}"#, "floating point `5.5`"),
        (r#"{"query":"And","items":12345,"label_token_ids":[7]}"#, "integer `12345`"),
        (r#"{"query":"And","items":{"a":1},"label_token_ids":[7]}"#, "found an object"),
        (r#"{"query":"And","items":["a",null],"label_token_ids":[7]}"#, "a string or a list of token ids"),
        (r#"{"query":[5],"items":[["6"]],"label_token_ids":[7]}"#, "string \"6\""),
        (r#"{"query":[5],"items":[[6.25]],"label_token_ids":[7]}"#, "floating point `6.25`"),
        (r#"{"query":"And","items":["a"],"label_token_ids":123}"#, "integer `123`"),
        (r#"{"query":"And","items":["a"],"label_token_ids":"7"}"#, "string \"7\""),
        (r#"{"query":"And","items":["a"],"label_token_ids":["7"]}"#, "string \"7\""),
        (r#"{"query":"And","items":["a"],"label_token_ids":[null]}"#, "a token id or a list of token ids"),
        (r#"{"query":"And","items":["a"],"label_token_ids":[18446744073709551615]}"#, "18446744073709551615"),
        (r#"{"query":"And","items":["a"],"label_token_ids":[7],"apply_softmax":"true"}"#, "string \"true\""),
        (r#"{"query":"And","items":["a"],"label_token_ids":[7],"item_first":1}"#, "integer `1`"),
    ];
    let lines: Vec<&str> = cases.iter().map(|(line, _)| *line).chain([good]).collect();
    let run = redline_reading(&["score", "--model", "demo", "--jsonl", "-"], lines.join("\n").as_bytes());
    assert_eq!(run.code, 1, "{}", run.err);
    let answers: Vec<_> = run.out.lines().collect();
    assert_eq!(answers.len(), cases.len() + 1, "{}", run.out);
    for (at, (line, expect)) in cases.iter().enumerate() {
        let fault: LineFault = serde_json::from_str(answers[at]).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(fault.line, at as u64 + 1);
        assert!(fault.message.contains(expect), "{line}: {}", fault.message);
    }
    let alone = score(&["--query", "And", "--item", " a", "--label-id", "7"]);
    let last: Scoring = serde_json::from_str(answers[cases.len()]).unwrap();
    assert_eq!(bits(&last), bits(&alone));
}

/// S7, S14, S15: an omitted key has its documented default, and any other value changes the answer.
#[test]
fn s7_defaults_are_those_of_the_documents() {
    let base = r#""query":"The ki","items":["ng",""],"label_token_ids":[20,300,7]"#;
    let line = |keys: &str| {
        let line = format!("{{{base}{keys}}}");
        redline_reading(&["score", "--model", "demo", "--jsonl", "-"], line.as_bytes()).ok().scoring()
    };
    let told = |scoring: &Scoring| {
        let meta = &scoring.meta;
        let masses = meta.label_mass.clone();
        (bits(scoring), meta.logprobs.clone(), masses, meta.token_ids.clone(), scoring.usage)
    };
    let bare = told(&line(""));
    let defaults = [
        r#","apply_softmax":false"#,
        r#","item_first":false"#,
        r#","tokenization":"concat""#,
        r#","full_logprobs":false"#,
        r#","truncate":null"#,
        r#","item_errors":false"#,
        r#","return_token_ids":false"#,
        r#","cache_salt":"""#,
    ];
    assert_eq!(told(&line(&defaults.concat())), bare);
    let others = [
        r#","apply_softmax":true"#,
        r#","item_first":true"#,
        r#","tokenization":"separate""#,
        r#","return_token_ids":true"#,
    ];
    for other in others {
        assert_ne!(told(&line(other)), bare, "{other}");
    }
}
