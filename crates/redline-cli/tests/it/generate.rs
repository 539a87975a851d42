//! `generate`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use redline_engine::FinishReason;

#[cfg(target_os = "linux")]
use crate::harness::limited;
use crate::harness::{command, finish, generate, redline, tiers};

const PROMPT: &[&str] = &["--prompt", "And the king said unto", "--max-new-tokens", "24", "--ignore-eos"];

fn ids(extra: &[&str]) -> Vec<u32> {
    generate(&[PROMPT, extra].concat()).choices[0].token_ids.clone()
}

#[test]
fn the_document_has_the_documented_shape() {
    let run = redline(&[&["generate", "--model", "demo", "--json"], PROMPT].concat()).ok();
    assert_eq!((run.out.matches('\n').count(), &*run.err), (1, ""));
    let document = run.completion();
    assert_eq!((&*document.object, &*document.model), ("text_completion", "demo"));
    assert_eq!(document.choices.len(), 1);
    assert_eq!(document.choices[0].finish_reason, FinishReason::Length);
    assert_eq!(document.usage.completion_tokens, 24);
    assert_eq!(document.usage.total_tokens, document.usage.prompt_tokens + 24);
    assert!(document.meta.prefill_s.0 > 0.0 && document.meta.decode_s.0 > 0.0);
    let meta = &document.meta;
    let tokens = document.choices[0].token_ids.len() as f64;
    let (whole, decode) = (meta.tokens_per_s.unwrap().0, meta.decode_tokens_per_s.unwrap().0);
    assert!((whole * (meta.prefill_s.0 + meta.decode_s.0) / tokens - 1.0).abs() < 1e-9, "{meta:?}");
    assert!((decode * meta.decode_s.0 / (tokens - 1.0) - 1.0).abs() < 1e-9, "{meta:?}");
    assert!(document.meta.peak_memory_bytes.unwrap() > 0);
    assert!(document.choices[0].index == 0 && document.choices[0].logprobs.is_none());
}

#[test]
fn the_text_is_streamed_and_its_cost_told_apart() {
    let run = redline(&[&["generate", "--model", "demo"], PROMPT].concat()).ok();
    let document = generate(PROMPT);
    assert_eq!(run.out, format!("{}\n", document.choices[0].text));
    assert!(run.err.contains("tokens/s") && run.err.contains("24 new tokens"), "{}", run.err);
    assert!(run.err.contains(" (length reached)"), "{}", run.err);
    let told = format!("{} prompt tokens in ", document.usage.prompt_tokens);
    assert!(run.err.starts_with(&told), "{}", run.err);
    assert_eq!(redline(&[&["generate", "--model", "demo", "--quiet"], PROMPT].concat()).ok().err, "");
}

#[test]
fn one_token_is_not_told_as_several() {
    let one = ["generate", "--model", "demo", "--prompt-ids", "5", "--max-new-tokens", "1", "--ignore-eos"];
    let run = redline(&one).ok();
    assert!(run.err.starts_with("1 prompt token in ") && run.err.contains(", 1 new token "), "{}", run.err);
    let score = ["score", "--model", "demo", "--query-ids", "5", "--item-ids", "", "--label-id", "7"];
    let run = redline(&score).ok();
    assert!(run.err.starts_with("1 prompt token, "), "{}", run.err);
    let masked = ["diffuse", "--model", "demo-diffusion", "--prompt-ids", "5", "--max-new-tokens", "1"];
    let run = redline(&masked).ok();
    assert!(run.err.starts_with("1 prompt token, 1 mask filled in 1 pass over 2 rows, "), "{}", run.err);
}

#[test]
fn the_same_text_on_every_tier_thread_count_and_without_cache() {
    let expect = ids(&[]);
    assert_eq!(expect.len(), 24);
    assert_eq!(ids(&["--no-kv-cache"]), expect);
    for tier in tiers() {
        for threads in ["1", "2"] {
            assert_eq!(ids(&["--isa", tier, "--threads", threads]), expect, "{tier} {threads}");
        }
    }
}

#[test]
fn sampling_is_a_function_of_the_seed() {
    let sampled = ["--temperature", "1", "--top-p", "0.95"];
    let first = ids(&[&sampled[..], &["--seed", "1"]].concat());
    assert_eq!(ids(&[&sampled[..], &["--seed", "1", "--no-kv-cache"]].concat()), first);
    assert_ne!(ids(&[&sampled[..], &["--seed", "2"]].concat()), first);
    let greedy = ids(&[]);
    assert_eq!(ids(&["--top-k", "1"]), greedy, "one token to choose from");
    assert_eq!(
        ids(&["--temperature", "0", "--top-p", "0.5", "--seed", "9"]),
        greedy,
        "temperature 0 stays greedy"
    );
    assert_eq!(ids(&["--seed", "9"]), greedy, "a seed alone does not sample");
}

#[test]
fn the_document_repeats_what_was_asked_for() {
    let ask = ["--prompt-ids", "5,6", "--max-new-tokens", "1", "--seed", "9"];
    let plain = generate(&ask).meta;
    assert_eq!((plain.seed, plain.kv_cache, plain.prefix_cache.is_some()), (9, true, true));
    let uncached = generate(&[&ask[..], &["--no-kv-cache"]].concat()).meta;
    assert_eq!((uncached.seed, uncached.kv_cache, uncached.prefix_cache), (9, false, None));
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let whole = generate(PROMPT).choices[0].text.clone();
    let middle: String = whole.chars().skip(whole.chars().count() / 2).take(4).collect();
    let before = &whole[..whole.find(&middle).unwrap()];
    let stopped = generate(&[PROMPT, &["--stop", "\u{1}never", "--stop", &middle]].concat());
    assert_eq!(stopped.choices[0].text, before);
    assert_eq!(stopped.choices[0].finish_reason, FinishReason::Stop);
    let streamed = redline(&[&["generate", "--model", "demo", "--stop", &middle], PROMPT].concat()).ok();
    assert_eq!(streamed.out, format!("{before}\n"));
    assert!(streamed.err.contains(" (stopped)"), "{}", streamed.err);
}

#[test]
fn logprobs_name_the_chosen_and_the_best() {
    let document = generate(&[PROMPT, &["--logprobs", "3"]].concat());
    let choice = &document.choices[0];
    let positions = choice.logprobs.as_ref().unwrap();
    assert_eq!(positions.len(), choice.token_ids.len());
    for (position, id) in positions.iter().zip(&choice.token_ids) {
        assert_eq!((position.chosen.id, position.top.len()), (*id, 3));
        assert_eq!(position.top[0], position.chosen, "greedy takes the best");
        assert!(position.top.windows(2).all(|pair| pair[0].logprob >= pair[1].logprob));
        assert!(position.chosen.logprob.0 <= 0.0);
    }
    let text = redline(&[&["generate", "--model", "demo", "--logprobs", "2"], PROMPT].concat()).ok().out;
    assert_eq!(text.lines().filter(|line| line.contains("  | ")).count(), 24, "{text}");
}

#[test]
fn prompts_may_be_ids() {
    let by_ids = generate(&["--prompt-ids", "5,6,7", "--max-new-tokens", "3", "--ignore-eos"]);
    assert_eq!(by_ids.usage.prompt_tokens, 3);
    let run = redline(&["generate", "--model", "demo", "--prompt-ids", "5,-6"]);
    run.failed(&["-6"]);
    redline(&["generate", "--model", "demo", "--prompt-ids", "99999999"]).failed(&["99999999"]);
    redline(&["generate", "--model", "demo", "--prompt-ids", ""]).failed(&["0 tokens"]);
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_with_both_lengths() {
    let run = redline(&[&["generate", "--model", "demo", "--max-context", "16"], PROMPT].concat());
    run.failed(&["16", "24"]);
}

#[test]
fn a_reader_that_leaves_is_not_an_error() {
    let mut child = command(&[&["generate", "--model", "demo", "--no-kv-cache"], PROMPT].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let run = finish(child.wait_with_output().unwrap());
    assert_eq!((run.code, &*run.err), (0, ""));
}

/// Sends a process SIGINT, as Ctrl-C does.
fn interrupt(process: u32) {
    assert!(Command::new("sh").arg("-c").arg(format!("kill -INT {process}")).status().unwrap().success());
}

#[test]
fn ctrl_c_ends_a_generation_in_good_order() {
    // Recomputing everything on the slowest tier leaves enough time for the signal.
    let slow =
        ["generate", "--model", "demo", "--no-kv-cache", "--isa", "scalar", "--threads", "1", "--ignore-eos"];
    let mut child = command(&[&slow[..], &["--prompt", "And the king", "--max-new-tokens", "200"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    interrupt(child.id());
    let mut output = child.wait_with_output().unwrap();
    output.stdout.insert(0, first[0]);
    let run = finish(output);
    assert_eq!(run.code, 130, "{}", run.err);
    assert!(run.out.ends_with('\n'), "the partial text stays and its line is ended");
    assert!(run.err.contains("(cancelled)"), "{}", run.err);
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_a_document_in_good_order() {
    // As above. The trace begins with the first pass.
    let slow = ["generate", "--model", "demo", "--no-kv-cache", "--isa", "scalar", "--threads", "1"];
    let ask = ["--ignore-eos", "--prompt", "And the king", "--max-new-tokens", "200"];
    let told = ["--json", "--precision-trace=/dev/stderr"];
    let mut child = command(&[&slow[..], &ask, &told].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stderr.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    interrupt(child.id());
    let run = finish(child.wait_with_output().unwrap());
    assert_eq!(run.code, 130, "{}", run.out);
    let document = run.completion();
    assert_eq!(document.choices[0].finish_reason, FinishReason::Cancelled);
    assert!(document.usage.completion_tokens < 200, "{document:?}");
}

#[test]
fn a_second_ctrl_c_ends_work_that_cannot_end_in_good_order() {
    use std::io::Write as _;
    // The answer names the key, so it is longer than a pipe can hold, and nobody reads it.
    let line = format!("{{\"{}\":1}}\n", "x".repeat(1 << 20));
    let mut child = command(&["generate", "--model", "demo", "--jsonl", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(line.as_bytes()).unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    for _ in 0..500 {
        interrupt(child.id());
        std::thread::sleep(Duration::from_millis(5));
        if child.try_wait().unwrap().is_some() {
            break;
        }
    }
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn ctrl_c_while_waiting_for_input_ends_at_once() {
    let mut child = command(&["generate", "--model", "demo", "--jsonl", "-", "--max-new-tokens", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Write as _;
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"prompt\":\"And\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
    assert!(answer.contains("text_completion"), "answered before the input ended: {answer}");
    interrupt(child.id());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(stdin);
}

#[cfg(target_os = "linux")]
#[test]
fn a_closed_standard_output_is_an_error() {
    for arguments in [
        &[&["generate", "--model", "demo"], PROMPT].concat()[..],
        &[&["generate", "--model", "demo", "--json"], PROMPT].concat(),
        &["tokenize", "--model", "demo", "text"],
        &["--help"],
        &["generate", "--help"],
        &["--version"],
    ] {
        finish(limited("exec >&-;", arguments)).failed(&["standard output is closed", "hint: "]);
        finish(limited("exec >/dev/null;", arguments)).ok();
        finish(limited("exec >/dev/full;", arguments)).failed(&["No space left", "standard output"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told() {
    for extra in [&["--json"][..], &[]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut child = command(&[&["generate", "--model", "demo"], PROMPT, extra].concat());
        let run =
            finish(child.stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap());
        run.failed(&["No space left", "standard output"]);
    }
}
