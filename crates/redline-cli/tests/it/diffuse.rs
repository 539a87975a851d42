//! `diffuse`.

use redline_api::jsonl::diffuse::{Diffusion, DiffusionStep};
use redline_api::jsonl::score::Scoring;
use redline_engine::{Algorithm, FinishReason};

use crate::harness::{Run, redline, redline_reading, tiers};

const MODEL: &[&str] = &["diffuse", "--model", "demo-diffusion"];
const PROMPT: &[&str] = &["--prompt", "And the king said unto", "--max-new-tokens", "16", "--ignore-eos"];

fn document(run: &Run) -> Diffusion {
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {} {}", run.out, run.err))
}

#[track_caller]
fn diffuse(extra: &[&str]) -> Diffusion {
    document(&redline(&[MODEL, PROMPT, &["--json"], extra].concat()).ok())
}

fn ids(extra: &[&str]) -> Vec<u32> {
    diffuse(extra).choices[0].token_ids.clone()
}

#[test]
fn the_document_has_the_documented_shape() {
    let answer = diffuse(&["--trace"]);
    assert_eq!((&*answer.object, &*answer.model), ("diffusion", "demo-diffusion"));
    let choice = &answer.choices[0];
    assert_eq!((choice.token_ids.len(), choice.finish_reason), (16, FinishReason::Length));
    assert!(choice.canvas.is_none() && !choice.text.is_empty());
    let passes = choice.passes.as_ref().unwrap();
    // The first of sixteen steps fills nothing and is left out, the last fills two.
    assert_eq!((passes.len(), answer.meta.passes, passes[14].positions.len()), (15, 15, 2));
    assert_eq!(passes.iter().map(|pass| pass.positions.len()).sum::<usize>(), 16);
    assert_eq!(answer.usage.completion_tokens, 16);
    assert_eq!(answer.meta.computed_tokens, 15 * (answer.usage.prompt_tokens + 16));
    assert_eq!(answer.meta.algorithm, Algorithm::Entropy);
    assert!(answer.meta.tokens_per_s.unwrap().0 > 0.0 && answer.meta.peak_memory_bytes.unwrap() > 0);
    assert!(diffuse(&[]).choices[0].passes.is_none());
}

#[test]
fn the_text_is_let_out_and_its_cost_told_apart() {
    let run = redline(&[MODEL, PROMPT].concat()).ok();
    let answer = diffuse(&[]);
    assert_eq!(run.out, format!("{}\n", answer.choices[0].text));
    let (prompt, rows) = (answer.usage.prompt_tokens, answer.meta.computed_tokens);
    let told = format!("{prompt} prompt tokens, 16 masks filled in 15 passes over {rows} rows, ");
    assert!(run.err.starts_with(&told), "no `{told}` in {}", run.err);
    assert_eq!(redline(&[MODEL, PROMPT, &["--quiet"]].concat()).ok().err, "");
}

#[test]
fn the_same_tokens_on_every_tier_and_thread_count() {
    for extra in [&[][..], &["--cache", "dual", "--threshold", "0.4", "--block-length", "8"]] {
        let expect = ids(extra);
        for tier in tiers() {
            for threads in ["1", "2"] {
                assert_eq!(
                    ids(&[extra, &["--isa", tier, "--threads", threads]].concat()),
                    expect,
                    "{tier} {threads}"
                );
            }
        }
    }
}

#[test]
fn every_algorithm_fills_every_mask_and_sampling_follows_the_seed() {
    for name in ["origin", "maskgit-plus", "topk_margin", "entropy", "low-confidence", "random"] {
        let answer = diffuse(&["--algorithm", name, "--steps", "4"]);
        assert_eq!(answer.choices[0].token_ids.len(), 16, "{name}");
        assert!(
            !answer.choices[0].token_ids.contains(&4096) && answer.meta.passes <= 4,
            "{name}: {answer:?}"
        );
    }
    let sampled = ["--temperature", "1", "--top-p", "0.95"];
    let first = ids(&[&sampled[..], &["--seed", "1"]].concat());
    assert_eq!(ids(&[&sampled[..], &["--seed", "1"]].concat()), first);
    assert_ne!(ids(&[&sampled[..], &["--seed", "2"]].concat()), first);
}

#[test]
fn masks_in_a_prompt_are_filled() {
    let prompt = "And <|mask|><|mask|> said unto the king,";
    let run = redline(&[MODEL, &["--prompt", prompt, "--max-new-tokens", "0", "--json"]].concat()).ok();
    let answer = document(&run);
    let (choice, meta) = (&answer.choices[0], &answer.meta);
    assert_eq!((meta.prompt_masks, choice.token_ids.len(), answer.usage.completion_tokens), (2, 0, 2));
    assert!(choice.text.ends_with(" said unto the king,"), "{}", choice.text);
    assert!(!choice.canvas.as_ref().unwrap().contains(&4096));
    let one = ["--prompt", "And <|mask|> said unto the king,", "--max-new-tokens", "0", "--json"];
    let answer = document(&redline(&[MODEL, &one].concat()).ok());
    assert!(answer.meta.prompt_masks == 1 && answer.choices[0].canvas.is_some(), "{answer:?}");
}

#[test]
fn lines_are_answered_together_as_alone() {
    let lines = [
        r#"{"prompt":"And the king said unto","max_new_tokens":16,"ignore_eos":true}"#,
        r#"{"prompt":[5,6,7],"max_new_tokens":8,"cache":"dual","threshold":0.5,"block_length":4,"ignore_eos":true}"#,
        r#"{"prompt":"p","max_new_tokens":8,"steps":5000}"#,
        r#"{"prompt":"In the","max_new_tokens":12,"cfg_scale":1.5,"algorithm":"low-confidence","ignore_eos":true}"#,
    ];
    let run = redline_reading(&[MODEL, &["--jsonl", "-"]].concat(), lines.join("\n").as_bytes());
    assert_eq!(run.code, 1, "{}", run.err);
    let answers: Vec<&str> = run.out.lines().collect();
    assert!(answers.len() == 4 && answers[2].contains("5000 steps for 8 masks"), "{}", run.out);
    let parsed =
        |text: &str| serde_json::from_str::<Diffusion>(text).unwrap().choices.swap_remove(0).token_ids;
    assert_eq!(parsed(answers[0]), ids(&[]));
    for index in [1, 3] {
        let alone = redline_reading(&[MODEL, &["--jsonl", "-"]].concat(), lines[index].as_bytes()).ok();
        assert_eq!(parsed(answers[index]), parsed(&alone.out), "{}", lines[index]);
    }
}

#[test]
fn steps_are_shown_and_written_as_a_page_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("steps.html");
    let shown = [MODEL, PROMPT, &["--show-steps", "--steps-html", page.to_str().unwrap()]].concat();
    let run = redline(&shown).ok();
    assert_eq!(run.out.matches("pass ").count(), 15, "{}", run.out);
    assert!(
        run.out.contains("pass 1 over all rows: 1 filled, 15 left") && run.out.contains('░'),
        "{}",
        run.out
    );
    assert!(!run.out.contains('\x1b'), "colours without a terminal");
    let text = std::fs::read_to_string(page).unwrap();
    assert_eq!(text.matches("class=t ").count(), 16);
    assert!(!text.contains("title=\"pass 0,"), "passes are counted from 1");
    assert!(text.contains("title=\"pass 1, ") && text.contains("title=\"pass 15, "), "{text}");
    for foreign in ["http", "<script", "url(", "@import"] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    let bad = [MODEL, PROMPT, &["--steps-html", "/nonexistent/steps.html"]].concat();
    let run = redline(&bad);
    assert!(run.code == 1 && run.err.contains("/nonexistent/steps.html"), "{}", run.err);
}

#[test]
fn a_page_tells_the_pass_and_the_confidence_of_every_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("steps.html");
    let answer = diffuse(&["--steps", "4", "--trace", "--steps-html", path.to_str().unwrap()]);
    let mut filled = Vec::new();
    for (at, pass) in answer.choices[0].passes.as_ref().unwrap().iter().enumerate() {
        for (position, confidence) in pass.positions.iter().zip(&pass.confidences) {
            filled.push((*position, format!("pass {}, {:.3}", at + 1, confidence.0)));
        }
    }
    filled.sort();
    let page = std::fs::read_to_string(path).unwrap();
    let titles: Vec<&str> =
        page.split(" title=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(titles, filled.iter().map(|(_, title)| title.as_str()).collect::<Vec<_>>());
    let (passes, rows) = (answer.meta.passes, answer.meta.computed_tokens);
    let facts = format!(": 16 masks filled in {passes} passes over {rows} rows, ");
    assert!(page.contains(&facts) && page.contains("<main style=\"--pace:0.250s\">"), "{page}");
}

#[test]
fn passes_over_a_part_of_the_canvas_name_their_rows() {
    let cached = ["--cache", "dual", "--block-length", "8"];
    let answer = diffuse(&[&cached[..], &["--trace"]].concat());
    let passes = answer.choices[0].passes.as_ref().unwrap();
    let rows: Vec<usize> = passes.iter().map(|pass| pass.rows).collect();
    let whole = answer.usage.prompt_tokens + 16;
    assert!(rows.contains(&whole) && rows.contains(&8), "{rows:?}");
    assert_eq!(rows.iter().sum::<usize>(), answer.meta.computed_tokens);
    let shown = redline(&[MODEL, PROMPT, &cached, &["--show-steps", "--quiet"]].concat()).ok().out;
    let mut left = 16;
    let head = |(at, pass): (usize, &DiffusionStep)| {
        let last = pass.from + pass.rows - 1;
        let rows =
            if pass.rows == whole { "all rows".to_owned() } else { format!("rows {} to {last}", pass.from) };
        let filled = pass.positions.len();
        left -= filled;
        format!("pass {} over {rows}: {filled} filled, {left} left", at + 1)
    };
    let expected: Vec<String> = passes.iter().enumerate().map(head).collect();
    let heads: Vec<&str> = shown.lines().filter(|line| line.starts_with("pass ")).collect();
    assert_eq!(heads, expected);
}

#[test]
fn lines_have_their_passes_on_request() {
    let line = r#"{"prompt":"In the","max_new_tokens":4,"ignore_eos":true}"#;
    let passes = |extra: &[&str]| {
        let run = redline_reading(&[MODEL, &["--jsonl", "-"], extra].concat(), line.as_bytes()).ok();
        document(&run).choices[0].passes.clone()
    };
    let told = passes(&["--trace"]).unwrap();
    assert_eq!(told.iter().map(|pass| pass.positions.len()).sum::<usize>(), 4);
    assert_eq!(passes(&[]), None);
}

#[test]
fn a_page_shows_a_prompt_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("steps.html");
    let ask = ["--prompt", "a <b> & c", "--max-new-tokens", "2", "--quiet", "--steps-html"];
    redline(&[MODEL, &ask, &[path.to_str().unwrap()]].concat()).ok();
    let page = std::fs::read_to_string(path).unwrap();
    let (_, prompt) = page.split_once("<main").unwrap();
    assert!(["&lt;", "&gt;", "&amp;"].iter().all(|text| prompt.contains(text)), "{prompt}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let with = |extra: &[&str]| redline(&[MODEL, PROMPT, extra].concat());
    with(&["--algorithm", "best"]).usage(&["`best` is not known", "maskgit-plus"]);
    with(&["--cache", "all"]).usage(&["`all` is not known", "dual"]);
    with(&["--threshold", "-1"]).usage(&["threshold"]);
    with(&["--eps", "1"]).usage(&["eps"]);
    with(&["--steps", "4097"]).failed(&["4097 steps for 16 masks", "hint: ", "--steps 16"]);
    with(&["--steps", "0"]).usage(&["steps", "at least 1"]);
    with(&["--block-length", "5"]).failed(&["blocks of 5 do not divide 16"]);
    with(&["--threshold", "0.9", "--algorithm", "origin"]).failed(&["`origin`"]);
    with(&["--cfg-scale", "1", "--cache", "dual"]).usage(&["guidance and a block cache"]);
    redline(&[MODEL, &["--prompt", "p", "--max-new-tokens", "0"]].concat()).failed(&["has no mask"]);
    redline(&[MODEL, &["--prompt", "p", "--max-new-tokens", "512"]].concat())
        .failed(&["exceed the context of 512"]);
    redline(MODEL).usage(&["no prompt given"]);
    redline(&[&["diffuse", "--model", "demo"], PROMPT].concat())
        .failed(&["fills no masks", "redline generate"]);
    let generate = ["generate", "--model", "demo-diffusion", "--prompt", "p"];
    redline(&generate).failed(&["fills masks", "redline diffuse"]);
    let lines = ["generate", "--model", "demo-diffusion", "--prompt-ids", "1,2", "--prompt-logprobs", "0"];
    redline(&lines).failed(&["fills masks"]);
}

#[test]
fn labels_are_scored_by_their_bound() {
    let score = |extra: &[&str]| {
        let asked = [
            "score",
            "--model",
            "demo-diffusion",
            "--query",
            "And the king said unto",
            "--item",
            "",
            "--json",
        ];
        redline(&[&asked[..], extra].concat())
    };
    let answer = |extra: &[&str]| -> Scoring {
        let run = score(extra).ok();
        serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {} {}", run.out, run.err))
    };
    let labels = ["--label", " his servants", "--label", " the", "--long-labels", "sum"];
    let exact = answer(&labels);
    let told = exact.meta.monte_carlo.unwrap();
    assert_eq!((told.samples, told.seed, told.sampled_labels), (128, 0, 0));
    let drawn = answer(&[&labels[..], &["--mc-samples", "1", "--seed", "7"]].concat());
    let told = drawn.meta.monte_carlo.unwrap();
    assert_eq!((told.samples, told.seed, told.sampled_labels), (1, 7, 1));
    // A label of one token is exact in either case.
    assert_eq!(exact.scores[0].as_ref().unwrap()[1], drawn.scores[0].as_ref().unwrap()[1]);
    score(&[&labels[..], &["--mc-samples", "0"]].concat()).failed(&["`mc_samples` is 0", "from 1 to 65536"]);
    redline(&["score", "--model", "demo", "--query", "a", "--item", "b", "--label", " the", "--seed", "1"])
        .failed(&["`seed` is for models that fill masks", "its scores are exact"]);
    let classes =
        ["--model", "demo-diffusion", "--text", "And God said", "--class", "holy", "--class", "green"];
    assert!(redline(&[&["classify"], &classes[..]].concat()).ok().out.contains("holy"));
}
