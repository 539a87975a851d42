//! Sampling of `generate`: penalties, bias, typical sampling, several continuations.

use redline_api::jsonl::fault::LineFault;
use redline_api::jsonl::generate::TextCompletion;

use crate::harness::{generate, redline, redline_reading};

const PROMPT: &[&str] = &["--prompt", "And the king said unto", "--max-new-tokens", "12", "--ignore-eos"];
const SAMPLED: &[&str] = &["--temperature", "1", "--seed", "5"];

/// A greedy text of this length repeats itself.
const LONG: &[&str] = &["--prompt", "And the king said unto", "--max-new-tokens", "48", "--ignore-eos"];

fn ids(prompt: &[&str], extra: &[&str]) -> Vec<u32> {
    generate(&[prompt, extra].concat()).choices[0].token_ids.clone()
}

#[test]
fn each_flag_changes_the_text_and_its_neutral_value_does_not() {
    let greedy = ids(LONG, &[]);
    let first = greedy[0].to_string();
    for (flag, value, neutral) in [
        ("--repetition-penalty", "3", "1"),
        ("--presence-penalty", "2", "0"),
        ("--frequency-penalty", "2", "0"),
        ("--logit-bias", &*format!("{first}=-100"), &*format!("{first}=0")),
    ] {
        assert_ne!(ids(LONG, &[flag, value]), greedy, "{flag}");
        assert_eq!(ids(LONG, &[flag, neutral]), greedy, "{flag}");
    }
    let sampled = ids(PROMPT, SAMPLED);
    assert_ne!(ids(PROMPT, &[SAMPLED, &["--typical-p", "0.2"]].concat()), sampled);
    assert_eq!(ids(PROMPT, &[SAMPLED, &["--typical-p", "1"]].concat()), sampled);
    assert_eq!(ids(PROMPT, &["--typical-p", "1", "--seed", "5"]), sampled, "a filter alone samples");
    assert_eq!(ids(PROMPT, &["--logit-bias", "300=100"]), [300; 12]);
}

#[test]
fn several_continuations_are_choices() {
    let ask = [PROMPT, SAMPLED, &["--n", "3", "--logprobs", "0"]].concat();
    let document = generate(&ask);
    assert_eq!((document.usage.completion_tokens, document.choices.len()), (36, 3));
    for (index, choice) in document.choices.iter().enumerate() {
        let seed = choice.seed.to_string();
        let alone = generate(&[PROMPT, &["--temperature", "1", "--logprobs", "0", "--seed", &seed]].concat());
        assert_eq!((choice.index, alone.choices[0].index), (index, 0));
        let parts = |of: &TextCompletion, at: usize| {
            let one = &of.choices[at];
            (one.text.clone(), one.token_ids.clone(), one.logprobs.clone(), one.seed)
        };
        assert_eq!(parts(&document, index), parts(&alone, 0));
        assert_eq!(choice.mean_logprob, None);
    }
    assert_eq!((document.choices[0].seed, document.meta.seed), (5, 5));
    let best = generate(&[&ask[..], &["--best-of", "8", "--prompt-logprobs", "0"]].concat());
    assert_eq!((best.usage.completion_tokens, best.choices.len()), (96, 3));
    let means: Vec<f64> = best.choices.iter().map(|choice| choice.mean_logprob.unwrap().0).collect();
    assert!(means.is_sorted_by(|a, b| a >= b), "{means:?}");
    for (index, (choice, mean)) in best.choices.iter().zip(means).enumerate() {
        let own = choice.logprobs.iter().flatten().map(|entry| f64::from(entry.chosen.logprob.0));
        assert!((own.sum::<f64>() / 12.0 - mean).abs() < 1e-9);
        assert_eq!(choice.prompt_logprobs.is_some(), index == 0);
    }
}

#[test]
fn several_continuations_are_printed_below_headings() {
    let ask = [PROMPT, SAMPLED, &["--n", "2"]].concat();
    let document = generate(&ask);
    let printed =
        |extra: &[&str]| redline(&[&["generate", "--model", "demo"], &ask[..], extra].concat()).ok();
    let texts = document.choices.iter().map(|choice| {
        let (place, seed) = (choice.index + 1, choice.seed);
        format!("--- {place} of 2, seed {seed} (length reached) ---\n{}\n", choice.text)
    });
    let expected: String = texts.collect();
    let run = printed(&[]);
    assert_eq!(run.out, expected);
    assert!(run.err.contains("24 new tokens") && !run.err.contains("(length reached)"), "{}", run.err);
    let quiet = printed(&["--quiet"]);
    assert_eq!((quiet.out, &*quiet.err), (expected, ""));
    let table = printed(&["--logprobs", "1"]).out;
    assert_eq!(table.lines().filter(|line| line.contains("  | ")).count(), 24, "{table}");
    let ranked = printed(&["--best-of", "3"]).out;
    assert_eq!(ranked.matches("mean log-probability -").count(), 2, "{ranked}");
    // The best of several is a single text, without a heading.
    let one = [PROMPT, SAMPLED, &["--best-of", "3"]].concat();
    let best = redline(&[&["generate", "--model", "demo", "--quiet"], &one[..]].concat()).ok();
    assert_eq!(best.out, format!("{}\n", generate(&one).choices[0].text));
}

#[test]
fn values_out_of_range_are_refused_with_the_range() {
    let refuse = |flag: &str, value: &str, hint: &str| {
        let run = redline(&["generate", "--model", "demo", "--prompt", "x", flag, value]);
        run.usage(&[flag, hint]);
    };
    for (flag, bad) in [
        ("--typical-p", ["0", "1.5", "nan"]),
        ("--repetition-penalty", ["0", "-1", "inf"]),
        ("--presence-penalty", ["2.5", "-2.5", "nan"]),
        ("--frequency-penalty", ["2.5", "-2.5", "x"]),
        ("--logit-bias", ["5", "5=101", "x=1"]),
        ("--n", ["0", "129", "x"]),
        ("--best-of", ["0", "129", "-1"]),
    ] {
        let hint = match flag {
            "--typical-p" => "above 0 and at most 1",
            "--repetition-penalty" => "a number above 0",
            "--logit-bias" => "from -100 to 100, as `50256=-100,11=2.5`",
            "--n" | "--best-of" => "from 1 to 128",
            _ => "from -2 to 2",
        };
        for value in bad {
            refuse(flag, value, hint);
        }
    }
}

#[test]
fn requests_that_contradict_themselves_are_refused() {
    let run = |extra: &[&str]| redline(&[&["generate", "--model", "demo"], PROMPT, extra].concat());
    let refused = |extra: &[&str], expect: &[&str]| run(extra).usage(expect);
    let failed = |extra: &[&str], expect: &[&str]| run(extra).failed(expect);
    refused(&["--n", "3"], &["3 greedy continuations are all the same", "`--temperature 1`"]);
    refused(&["--best-of", "2"], &["2 greedy continuations", "`--temperature 1`"]);
    refused(&["--logprobs", "16385"], &["16385 log-probabilities per token", "at most 16384"]);
    refused(&["--stop", ""], &["a stop string is empty", "leave it out"]);
    refused(
        &["--temperature", "1", "--n", "3", "--best-of", "2"],
        &["3 continuations of the best 2", "give `--best-of` at least 3"],
    );
    // 128 continuations of 20 tokens, and 4096 more at each position.
    let large = ["--prompt", "x", "--max-new-tokens", "20", "--logprobs", "9999"];
    redline(&[&["generate", "--model", "demo", "--temperature", "1", "--n", "128"], &large[..]].concat())
        .failed(&["the answer may have 10488320 tokens", "more than 8388608", "fewer `--max-new-tokens`"]);
    failed(&["--logit-bias", "99999=1"], &["logit_bias: 1 token id outside", "99999"]);
    failed(&["--logit-bias", "-4=1"], &["-4"]);
    failed(&["--logit-bias", "7=1,7=2"], &["token 7 has more than one bias"]);
}

#[test]
fn lines_have_the_same_keys() {
    let input = r#"{"prompt":"And the king said unto","n":2,"temperature":1,"seed":5}
{"prompt":"And the king said unto","repetition_penalty":1.5,"presence_penalty":0.5,"frequency_penalty":0.25,"logit_bias":{"300":2.5,"7":-100}}
{"prompt":"And the king said unto","typical_p":0.5,"best_of":3,"seed":5}
{"prompt":"x","n":2,"temperature":0}
{"prompt":"x","repetition_penalty":0}
{"prompt":"x","logit_bias":{"7":101}}
{"prompt":"x","logit_bias":{"7":1,"7":2}}
{"prompt":"x","logit_bias":{"x":1}}
{"prompt":"x","best_of":1,"n":2,"temperature":1}
"#;
    let flags = ["generate", "--model", "demo", "--jsonl", "-", "--max-new-tokens", "12", "--ignore-eos"];
    let run = redline_reading(&flags, input.as_bytes());
    assert_eq!(run.code, 1, "{}", run.err);
    let answers: Vec<&str> = run.out.lines().collect();
    assert_eq!(answers.len(), 9, "{}", run.out);
    for (line, flags) in [
        (0, &["--n", "2", "--temperature", "1", "--seed", "5"][..]),
        (
            1,
            &[
                "--repetition-penalty",
                "1.5",
                "--presence-penalty",
                "0.5",
                "--frequency-penalty",
                "0.25",
                "--logit-bias",
                "300=2.5,7=-100",
            ],
        ),
        (2, &["--typical-p", "0.5", "--best-of", "3", "--seed", "5"]),
    ] {
        let answer: TextCompletion = serde_json::from_str(answers[line]).unwrap();
        assert_eq!(answer.choices, generate(&[PROMPT, flags].concat()).choices, "line {line}");
    }
    for (line, fact) in [
        (3, "2 greedy continuations"),
        (4, "`repetition_penalty` is 0"),
        (5, "the bias of token 7 is 101"),
        (6, "token 7 has more than one bias"),
        (7, "invalid"),
        (8, "2 continuations of the best 1"),
    ] {
        let fault: LineFault = serde_json::from_str(answers[line]).unwrap();
        assert!(fault.message.contains(fact), "{}", fault.message);
    }
}

#[test]
fn lines_take_their_defaults_from_the_flags() {
    let flags = ["--n", "2", "--temperature", "1", "--repetition-penalty", "1.5", "--logit-bias", "300=4"];
    let command = ["generate", "--model", "demo", "--jsonl", "-", "--max-new-tokens", "12", "--ignore-eos"];
    let run =
        redline_reading(&[&command[..], &flags].concat(), br#"{"prompt":"And the king said unto"}"#).ok();
    let answer: TextCompletion = serde_json::from_str(&run.out).unwrap();
    assert_eq!(answer.choices, generate(&[PROMPT, &flags].concat()).choices);
}
