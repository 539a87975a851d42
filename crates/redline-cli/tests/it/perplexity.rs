//! `perplexity`.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use redline_api::documents::profile::TraceDocument;
use redline_api::documents::trace::TraceLine;
use redline_api::jsonl::perplexity::Perplexity;

use crate::checkpoint::Copy;
use crate::harness::{Run, command, finish, redline, redline_reading, tiers};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama-b");

/// The first bytes of text that the demo model was not trained on.
fn held_out(bytes: usize) -> String {
    fs::read_to_string(format!("{DEMO}/held-out.txt")).unwrap()[..bytes].to_owned()
}

/// Runs with `--model demo` and a text on standard input.
fn demo(text: &str, extra: &[&str]) -> Run {
    let arguments = [&["perplexity", "--model", "demo", "--file", "-"], extra].concat();
    redline_reading(&arguments, text.as_bytes())
}

#[track_caller]
fn document(run: Run) -> Perplexity {
    let run = run.ok();
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {} {}", run.out, run.err))
}

/// The values of `--format`.
fn formats() -> Vec<String> {
    let help = redline(&["perplexity", "--format", "no-such"]).err;
    let names = help.split("one of ").nth(1).expect("a list").trim();
    let names: Vec<_> = names.split(", ").map(str::to_owned).collect();
    assert!(names.contains(&"f32".to_owned()) && names.len() >= 2, "{names:?}");
    names
}

#[test]
fn the_demo_model_predicts_held_out_text_as_its_card_says() {
    let card: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(format!("{DEMO}/expected.json")).unwrap()).unwrap();
    let text = format!("{DEMO}/held-out.txt");
    let got = document(redline(&["perplexity", "--model", "demo", "--file", &text, "--json"]));
    assert_eq!((&*got.object, &*got.model, got.meta.complete), ("perplexity", "demo", true));
    assert_eq!(got.tokens as u64, card["held_out_tokens"].as_u64().unwrap());
    assert_eq!((got.meta.windows, got.meta.window), (got.tokens.div_ceil(511), 512));
    // The model card holds figures of f32 arithmetic.
    let (value, want) = (got.perplexity.value.0, card["perplexity"].as_f64().unwrap());
    assert!((value / want - 1.0).abs() < 5e-4, "{value}, the card says {want}");
    assert!((value.ln() - got.nll.value.0).abs() < 1e-9);
    let error = got.nll.standard_error.unwrap().0;
    assert!((0.005..0.02).contains(&error), "{error}");
    assert!((got.perplexity.standard_error.unwrap().0 / value - error).abs() < 1e-9);
    assert!(got.against.is_none() && got.meta.peak_memory_bytes.unwrap() > 0);
    let run = &got.meta.run;
    assert_eq!((&*run.format, &*run.kv_format), ("bf16", "bf16"));
    assert!(run.compute_s.0 > 0.0 && run.tokens_per_s.unwrap().0 > 0.0 && run.threads > 0);
}

#[test]
fn figures_go_to_standard_output_and_costs_to_standard_error() {
    let text = held_out(600);
    let json = document(demo(&text, &["--json", "--window", "100"]));
    let run = demo(&text, &["--window", "100"]).ok();
    let lines: Vec<_> = run.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", run.out);
    let figure = format!("{:.4} ± ", json.perplexity.value.0);
    assert!(lines[0].starts_with("perplexity ") && lines[0].contains(&figure), "{}", run.out);
    assert!(lines[1].contains(&format!("{:.5} ± ", json.nll.value.0)), "{}", run.out);
    assert!(
        lines[2].contains(&format!("{} in {} windows of 100", json.tokens, json.meta.windows)),
        "{}",
        run.out
    );
    assert!(run.err.contains("tokens/s") && run.err.contains("peak memory"), "{}", run.err);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    fs::write(&file, &text).unwrap();
    let file = file.to_str().unwrap();
    let quiet =
        redline(&["perplexity", "--model", "demo", "--file", file, "--window", "100", "--quiet"]).ok();
    assert_eq!((quiet.out, quiet.err), (run.out.clone(), String::new()));
    let typed =
        redline(&["perplexity", "--model", "demo", "--text", &text, "--window", "100", "--quiet"]).ok();
    assert_eq!(typed.out, run.out);
}

#[test]
fn the_same_bits_on_every_tier_and_thread_count() {
    let text = held_out(3000);
    let mut first = None;
    for tier in tiers() {
        for threads in ["1", "2"] {
            let got = document(demo(&text, &["--json", "--isa", tier, "--threads", threads]));
            let bits = (got.nll.value.0.to_bits(), got.nll.standard_error.unwrap().0.to_bits());
            assert_eq!(*first.get_or_insert(bits), bits, "{tier} {threads}");
        }
    }
}

#[test]
fn a_format_is_at_no_distance_from_itself_and_near_every_other() {
    let text = held_out(1500);
    for format in formats() {
        let against = |other: &str| {
            let flags = ["--json", "--format", &format, "--against", "demo", "--against-format", other];
            document(demo(&text, &flags))
        };
        let got = against(&format);
        let same = got.against.unwrap();
        assert_eq!((&got.meta.run.format, &same.run.format), (&format, &format));
        assert_eq!((same.kl_divergence.mean.value.0, same.kl_divergence.max.0), (0.0, 0.0), "{format}");
        assert_eq!((same.top1_agreement.0, same.ln_ratio.value.0), (1.0, 0.0), "{format}");
        assert_eq!((same.nll, same.perplexity), (got.nll, got.perplexity), "{format}");
        if format != "f32" {
            let got = against("f32");
            let other = got.against.unwrap();
            let kl = other.kl_divergence;
            assert_eq!(&*other.run.format, "f32");
            assert!(kl.mean.value.0 > 0.0 && kl.mean.value.0 < 0.2, "{format}: {kl:?}");
            assert!(kl.median.unwrap() < kl.p99.unwrap() && kl.p99.unwrap() < kl.max, "{format}: {kl:?}");
            assert!(other.top1_agreement.0 > 0.8 && other.top1_agreement.0 <= 1.0, "{format}");
            let ratio = (got.perplexity.value.0 / other.perplexity.value.0).ln();
            assert!((ratio - other.ln_ratio.value.0).abs() < 1e-12, "{format}");
        }
    }
}

#[test]
fn a_reference_has_neither_the_outliers_nor_the_traces_of_the_model() {
    let both =
        ["--format", "w8", "--outliers", "0.1", "--against", "demo", "--against-format", "w8", "--json"];
    let against = document(demo(&held_out(600), &both)).against.unwrap();
    assert!(against.kl_divergence.mean.value.0 > 0.0, "{against:?}");
    // Without a format of its own, the reference takes that of its checkpoint.
    let against =
        document(demo(&held_out(600), &["--format", "w8", "--against", "demo", "--json"])).against.unwrap();
    assert!(against.run.format != "w8" && against.kl_divergence.mean.value.0 > 0.0, "{against:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let trace = format!("--precision-trace={}", path("trace"));
    let profile = format!("--profile-trace={}", path("profile"));
    demo("In the beginning", &["--against", "demo", &trace, &profile]).ok();
    // The text is one pass of the model.
    let text = fs::read_to_string(path("trace")).unwrap();
    let lines: Vec<TraceLine> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 1 && lines.iter().all(|line| line.pass == 0), "{text}");
    let text = fs::read_to_string(path("profile")).unwrap();
    let profile: TraceDocument = serde_json::from_str(&text).unwrap();
    assert!(profile.trace_events.iter().any(|event| event.cat == "pass"), "{text}");
    assert!(profile.trace_events.iter().all(|event| event.pid == 1), "{text}");
}

#[test]
fn a_comparison_reads_as_lines() {
    let flags = ["--against", "demo", "--against-format", "f32"];
    let run = demo(&held_out(1500), &flags).ok();
    for start in
        ["perplexity ", "against          demo (", "its perplexity ", "ln ratio ", "KL divergence ", "top-1 "]
    {
        assert!(run.out.lines().any(|line| line.starts_with(start)), "{start}: {}", run.out);
    }
    assert!(
        run.out.contains("median") && run.out.contains("99 % below") && run.out.contains("/f32/"),
        "{}",
        run.out
    );
    assert!(run.err.contains("the reference in"), "{}", run.err);
    // The figures are those of the document.
    let json = document(demo(&held_out(1500), &[&flags[..], &["--json"]].concat())).against.unwrap();
    let kl = json.kl_divergence;
    let (median, p99) = (kl.median.unwrap().0, kl.p99.unwrap().0);
    for figure in [
        format!("its perplexity   {:.4} ± ", json.perplexity.value.0),
        format!("ln ratio         {:.6} ± ", json.ln_ratio.value.0),
        format!(", median {median:.3e}, 99 % below {p99:.3e}, largest {:.3e}\n", kl.max.0),
        format!("top-1 agreement  {:.3} %\n", 100.0 * json.top1_agreement.0),
    ] {
        assert!(run.out.contains(&figure), "no `{figure}` in {}", run.out);
    }
}

#[test]
fn a_reference_has_a_cache_format_and_a_context_of_its_own() {
    let text = held_out(600);
    let formats = |extra: &[&str]| {
        let got = document(demo(&text, &[&["--against", "demo", "--json"], extra].concat()));
        (got.meta.run.kv_format, got.against.unwrap().run.kv_format)
    };
    let told = |own: &str, other: &str| (own.to_owned(), other.to_owned());
    assert_eq!(formats(&["--kv-format", "f32"]), told("f32", "bf16"));
    assert_eq!(formats(&["--against-kv-format", "f32"]), told("bf16", "f32"));
    // What the flag allows the model is more than the context of the reference.
    let copy = Copy::new();
    copy.config(|config| drop(config.insert("max_position_embeddings".to_owned(), 64.into())));
    demo(&text, &["--max-context", "128", "--window", "32", "--against", copy.dir()]).ok();
}

#[test]
fn ids_need_no_tokenizer() {
    let ids = "1 2 3, 4,5\n6 7\n\n8";
    let run = |extra: &[&str]| {
        let arguments = [&["perplexity", "--model", GOLDEN, "--ids", "-"], extra].concat();
        redline_reading(&arguments, ids.as_bytes())
    };
    let got = document(run(&["--json"]));
    assert_eq!((got.tokens, got.meta.windows, got.meta.window), (7, 1, 256), "the context is 256");
    assert!(run(&[]).ok().out.contains("tokens           7 in 1 window of 256\n"));
    let halves = document(run(&["--json", "--window", "4"]));
    assert_eq!((halves.tokens, halves.meta.windows), (6, 2));
    run(&["--window", "257"]).failed(&["257", "256", "--window"]);
    redline_reading(&["perplexity", "--model", GOLDEN, "--file", "-"], b"text")
        .failed(&["tokenizer", "hint: "]);
    let against = ["--against", "demo"];
    run(&against).failed(&["131", "4096", "vocabulary", "hint: "]);
}

#[test]
fn texts_that_cannot_be_predicted() {
    let golden =
        |ids: &str| redline_reading(&["perplexity", "--model", GOLDEN, "--ids", "-"], ids.as_bytes());
    golden("7").failed(&["1 token:", "nothing to predict", "hint: "]);
    golden(" \n").failed(&["0 tokens", "hint: "]);
    golden("1 2\n3 x4").failed(&["`x4` is not a token id", "standard input, line 2", "hint: "]);
    golden("1 -2 131").failed(&["-2", "131", "0..131"]);
    demo("", &[]).failed(&["0 bytes", "standard input", "hint: "]);
    let broken = b"first line\nsecond \xff line";
    let run = redline_reading(&["perplexity", "--model", "demo", "--file", "-"], broken);
    run.failed(&["byte 18", "0xff", "UTF-8", "line 2", "hint: "]);
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    for path in [folder.path(), &missing] {
        let path = path.to_str().unwrap();
        redline(&["perplexity", "--model", "demo", "--file", path]).failed(&[path, "hint: "]);
    }
    demo("words", &["--window", "513"]).failed(&["513", "512", "--window"]);
    demo("words", &["--against", "nobody/nothing"]).failed(&["nobody/nothing"]);
}

#[test]
fn models_with_different_tokenizers_are_not_compared() {
    let copy = Copy::new();
    let path = copy.file("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    json["model"]["merges"].as_array_mut().unwrap().clear();
    fs::write(path, json.to_string()).unwrap();
    let run = demo("In the beginning", &["--against", copy.dir()]);
    run.failed(&["tokenise the text differently", "token 0", "hint: "]);
}

#[test]
fn ctrl_c_ends_it() {
    // The text is longer than a pipe buffer. Once it is written, the command is reading, or already at work for
    // minutes.
    let slow = ["perplexity", "--model", "demo", "--file", "-", "--isa", "scalar", "--threads", "1"];
    let mut child = command(&slow);
    let piped = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(held_out(200_000).repeat(5).as_bytes()).unwrap();
    drop(stdin);
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").arg("-c").arg(kill).status().unwrap().success());
    let run = finish(child.wait_with_output().unwrap());
    assert_eq!(run.code, 130, "{}", run.err);
    assert!(run.out.is_empty() || run.err.contains("(cancelled)"), "{} {}", run.out, run.err);
}
