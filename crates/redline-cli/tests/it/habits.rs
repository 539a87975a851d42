//! What users of other programs type: short flags, prompts without a flag, `run`, `list`, `show`, and tables in CSV.

use std::fs;

use crate::harness::{Run, command, commands, finish, redline, redline_reading};

const PROMPT: &str = "In the beginning";
const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/chat/qwen-3.jinja");

#[test]
fn a_flag_has_the_same_short_name_in_every_command() {
    let mut seen = 0;
    for name in commands() {
        let help = redline(&[&name, "--help-all"]).ok().out;
        for (long, short) in
            [("model", 'm'), ("prompt", 'p'), ("max-new-tokens", 'n'), ("max-context", 'c'), ("threads", 't')]
        {
            for line in help.lines().filter(|line| line.contains(&format!("--{long} <"))) {
                assert!(line.trim_start().starts_with(&format!("-{short}, --{long} <")), "{name}: {line}");
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn short_flags_and_a_prompt_without_a_flag_mean_the_same() {
    let long =
        ["--model", "demo", "--max-new-tokens", "4", "--threads", "1", "--max-context", "64", "--quiet"];
    let short = ["-m", "demo", "-n", "4", "-t", "1", "-c", "64", "-q"];
    for (command, model) in [("generate", "demo"), ("diffuse", "demo-diffusion")] {
        let of = |flags: &[&str], prompt: &[&str]| {
            let flags: Vec<&str> =
                flags.iter().map(|flag| if *flag == "demo" { model } else { flag }).collect();
            redline(&[&[command], &flags[..], prompt].concat()).ok().out
        };
        let expect = of(&long, &["--prompt", PROMPT]);
        assert_eq!(of(&short, &["-p", PROMPT]), expect);
        assert_eq!(of(&short, &[PROMPT]), expect);
        assert_eq!(
            of(&["--model", "demo", "--max-tokens", "4", "-t", "1", "-c", "64", "-q"], &[PROMPT]),
            expect
        );
        redline(&[command, "-m", model, PROMPT, "-p", PROMPT]).usage(&["cannot be used with"]);
    }
}

#[test]
fn run_answers_a_prompt_or_converses() {
    let text = |run: Run| run.ok().out;
    let plain = redline(&["run", "demo", "In", "the", "beginning", "-n", "6", "-q"]);
    assert_eq!(text(plain), text(redline(&["generate", "-m", "demo", PROMPT, "-n", "6", "-q"])));
    let chat = ["--chat-template", TEMPLATE, "-n", "6", "-q"];
    let expect = text(redline_reading(&[&["chat", "-m", "demo"], &chat[..]].concat(), b"Hello\n"));
    assert_eq!(text(redline(&[&["run", "demo", "Hello"], &chat[..]].concat())), expect);
    assert_eq!(text(redline_reading(&[&["run", "demo"], &chat[..]].concat(), b"Hello\n")), expect);
    // Without a template, a conversation is refused, and so is what concerns one.
    redline(&["run", "demo"]).usage(&["`demo` has no chat template"]);
    redline(&["run", "demo", "Hello", "--system", "Be brief."]).usage(&["`demo` has no chat template"]);
    redline(&["run", "demo-diffusion", "Hello"]).failed(&["redline diffuse"]);
}

#[test]
fn models_are_listed_by_the_names_that_find_them() {
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join(".cache/huggingface/hub");
    let commit = "0".repeat(40);
    for (folder, revision) in
        [("models--org--name", "main"), ("models--gpt2", "v1"), ("datasets--a--b", "main")]
    {
        let folder = cache.join(folder);
        fs::create_dir_all(folder.join("refs")).unwrap();
        fs::write(folder.join("refs").join(revision), &commit).unwrap();
        fs::create_dir_all(folder.join("snapshots").join(&commit).join("1_Dense")).unwrap();
        fs::write(folder.join("snapshots").join(&commit).join("config.json"), "x".repeat(1024)).unwrap();
        fs::write(folder.join("snapshots").join(&commit).join("1_Dense/config.json"), "x".repeat(1024))
            .unwrap();
    }
    // A download that has not ended.
    fs::create_dir_all(cache.join("models--org--begun/blobs")).unwrap();
    let listed = |name: &str| finish(command(&[name]).env("HOME", home.path()).output().unwrap()).ok().out;
    let list = listed("list");
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["NAME", "demo", "demo-chat", "demo-diffusion", "gpt2@v1", "org/name"], "{list}");
    let last = list.lines().last().unwrap();
    assert!(last.contains(" 2 KiB ") && last.ends_with(&commit), "{list}");
    assert_eq!(listed("ls"), list);
}

#[test]
fn a_model_is_described_without_being_loaded() {
    let demo = redline(&["show", "demo"]).ok().out;
    for fact in [
        "architecture   Llama",
        "task           predicts the next token",
        "context        512 tokens",
        "as bf16",
        "chat template  no",
    ] {
        assert!(demo.contains(fact), "no `{fact}` in: {demo}");
    }
    let masked = redline(&["show", "demo-diffusion"]).ok().out;
    assert!(masked.contains("fills masks"), "{masked}");
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama-a");
    let golden = redline(&["show", dir, "--chat-template", TEMPLATE]).ok().out;
    assert!(
        golden.contains("chat template  yes") && golden.trim_end().ends_with("golden/llama-a"),
        "{golden}"
    );
    redline(&["show", "org/none"]).failed(&["`org/none` was not found"]);
}

#[test]
fn texts_come_from_a_column_of_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let table = file("t.csv", "\u{feff}id,review\n1,\"The king, \"\"he\"\" said\"\n2,\"It\nrains.\"\n");
    let single = file("one.CSV", "review\nIt rains.\n");
    let classify = ["classify", "-m", "demo", "--class", "king", "--class", "rain", "--json"];
    let embed = ["embed", "-m", "demo", "--pooling", "mean", "--json"];
    let rerank = ["rerank", "-m", "demo", "--query", "Who?", "--json"];
    let numbers = |run: Run| {
        let mut answer: serde_json::Value = serde_json::from_str(&run.ok().out).unwrap();
        for key in ["timing", "meta", "cost"] {
            answer.as_object_mut().unwrap().remove(key);
        }
        answer
    };
    for (command, flag) in [(&classify[..], "--text"), (&embed[..], "--text"), (&rerank[..], "--document")] {
        let typed =
            numbers(redline(&[command, &[flag, "The king, \"he\" said", flag, "It\nrains."]].concat()));
        let column = ["--file", &table, "--column", "review"];
        assert_eq!(numbers(redline(&[command, &column[..]].concat())), typed, "{command:?}");
        let typed = numbers(redline(&[command, &[flag, "It rains."]].concat()));
        assert_eq!(numbers(redline(&[command, &["--file", &single]].concat())), typed);
        let piped = [command, &["--file", "-", "--column", "review"]].concat();
        assert_eq!(numbers(redline_reading(&piped, b"review\nIt rains.\n")), typed);
        redline(&[command, &["--file", &table]].concat()).usage(&["no column of 2 is named", "id, review"]);
        let unknown = [command, &["--file", &table, "--column", "text"]].concat();
        redline(&unknown).usage(&["no column `text`", "id, review"]);
        let uneven = file("uneven.csv", "a,b\n1\n");
        redline(&[command, &["--file", &uneven, "--column", "a"]].concat()).failed(&["uneven.csv", "hint: "]);
    }
}

#[test]
fn classes_have_one_spelling() {
    let of = |classes: &[&str]| {
        redline(&[&["classify", "-m", "demo", "--text", "It rains.", "--csv"], classes].concat()).ok().out
    };
    let expect = of(&["--class", "king", "--class", "rain"]);
    for classes in [&["--class", "king,rain"][..], &["--classes", "king, rain"]] {
        assert_eq!(of(classes), expect);
    }
    redline(&["serve", "-m", "demo", "--class", "good", "--class", "good"])
        .usage(&["--class good --class bad"]);
}
