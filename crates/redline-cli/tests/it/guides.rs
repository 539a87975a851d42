//! The commands in the README and in the guides run as they are typed, and print what stands below them.
//!
//! In a block of type `console`, a line that begins with `$ ` is a command; the following lines are what it prints, standard error
//! included. The commands of a document run in order in one directory. A number before a unit of time, rate or size may differ, and
//! so may the spaces between words. A word `…` stands for any words, a line `…` for any lines. Compiled with the environment variable
//! `UPDATE_GUIDES=1`, the output of every command is written into the document instead, without such wildcards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Run, finish};
use redline_testing::hub::{File, ID, TestHub};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// What commands read from the repository.
const READ: &[&str] = &["LICENSE-MIT", "models", "tests"];
/// Units of what is measured.
const UNITS: &[&str] = &[
    "s",
    "ms",
    "us",
    "ns",
    "tokens/s",
    "items/s",
    "texts/s",
    "documents/s",
    "rows/s",
    "KiB",
    "MiB",
    "GiB",
    "GB/s",
    "GOP/s",
];
/// Stands for any words or lines.
const ANY: &str = "…";

/// A command of a document.
struct Typed {
    /// The number of its line, from 1.
    line: usize,
    command: String,
    /// What it prints, according to the document.
    shown: Vec<String>,
}

/// The commands of a document.
fn typed(text: &str) -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    let mut in_block = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = line.trim() == "```console";
        } else if let (true, Some(command)) = (in_block, line.strip_prefix("$ ")) {
            all.push(Typed { line: index + 1, command: command.to_owned(), shown: Vec::new() });
        } else if let (true, Some(last)) = (in_block, all.last_mut()) {
            match last.command.strip_suffix('\\') {
                Some(begun) if last.shown.is_empty() => last.command = format!("{begun}\\\n{line}"),
                _ => last.shown.push(line.to_owned()),
            }
        }
    }
    all
}

/// A directory with what commands read.
fn directory() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in READ {
        std::os::unix::fs::symlink(Path::new(ROOT).join(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// Runs a command line as a shell does.
fn run(command: &str, here: &Path) -> Run {
    let program = Path::new(env!("CARGO_BIN_EXE_redline")).parent().unwrap().display();
    let mut shell = Command::new("sh");
    shell.env_clear().env("HOME", here).env("PATH", format!("{program}:/usr/bin:/bin")).current_dir(here);
    // A continued line may end with a comment or a backslash, so the group is closed on a line of its own.
    shell.args(["-c", &format!("{{ {command}\n}} 2>&1")]).stdin(Stdio::null());
    finish(shell.output().unwrap())
}

/// Whether a word is a number.
fn is_number(word: &str) -> bool {
    word.trim_start_matches('~').replace(',', "").parse::<f64>().is_ok()
}

/// The words of a line, without the numbers that were measured.
fn words(line: &str) -> Vec<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let measured = |index: usize| {
        let unit = words.get(index + 1).map(|unit| unit.trim_end_matches([',', ';', '.', ':', ')']));
        is_number(words[index].trim_start_matches('(')) && unit.is_some_and(|unit| UNITS.contains(&unit))
    };
    (0..words.len()).map(|index| if measured(index) { "#" } else { words[index] }).collect()
}

/// Whether a list matches a pattern in which some elements stand for any elements.
fn matches<T>(pattern: &[T], list: &[T], is_any: &dyn Fn(&T) -> bool, same: &dyn Fn(&T, &T) -> bool) -> bool {
    match (pattern, list) {
        ([], []) => true,
        ([any, rest @ ..], _) if is_any(any) => {
            (0..=list.len()).any(|taken| matches(rest, &list[taken..], is_any, same))
        }
        ([one, rest @ ..], [other, others @ ..]) => same(one, other) && matches(rest, others, is_any, same),
        _ => false,
    }
}

/// Whether a printed line is the one in the document.
fn same_line(shown: &&str, printed: &&str) -> bool {
    matches(&words(shown), &words(printed), &|word| *word == ANY, &|a, b| a == b)
}

/// Whether the output of a command is the one in the document.
fn same_output(shown: &[&str], printed: &[&str]) -> bool {
    matches(shown, printed, &|line| line.trim() == ANY, &same_line)
}

fn path_of(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

/// Runs the commands of a document.
#[track_caller]
fn check(name: &str) {
    let path = path_of(name);
    let text = fs::read_to_string(&path).unwrap();
    let commands = typed(&text);
    assert!(!commands.is_empty(), "{name} has no commands");
    let folder = directory();
    let mut outputs = Vec::new();
    let mut wrong = String::new();
    for Typed { line, command, shown } in &commands {
        let run = run(command, folder.path());
        let printed: Vec<&str> = run.out.lines().collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        let refuses = run.out.contains("error: ");
        assert_eq!(
            run.code == 0,
            !refuses,
            "{name}, line {line}: {command}\nended with {}\n{}",
            run.code,
            run.out
        );
        assert!(!run.out.contains("panicked"), "{name}, line {line}: {}", run.out);
        if !same_output(&shown, &printed) {
            wrong.push_str(&format!("{name}, line {line}: {command}\nprints\n{}\n", run.out));
        }
        outputs.push(run.out);
    }
    if option_env!("UPDATE_GUIDES").is_some() {
        fs::write(&path, updated(&text, &commands, &outputs)).unwrap();
    } else {
        assert_eq!(wrong, "");
    }
}

/// The document with other outputs, if they do not match.
fn updated(text: &str, commands: &[Typed], outputs: &[String]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (mut written, mut at) = (Vec::new(), 0);
    for (Typed { line, command, shown }, output) in commands.iter().zip(outputs) {
        let begin = line - 1 + command.lines().count();
        written.extend_from_slice(&lines[at..begin]);
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        let printed: Vec<&str> = output.lines().collect();
        written.extend(if same_output(&shown, &printed) { &shown[..] } else { &printed[..] });
        at = begin + shown.len();
    }
    written.extend_from_slice(&lines[at..]);
    written.join("\n") + "\n"
}

#[test]
fn readme() {
    check("README.md");
}

#[test]
fn scoring() {
    check("docs/scoring.md");
}

#[test]
fn classification() {
    check("docs/classification.md");
}

#[test]
fn reranking() {
    check("docs/reranking.md");
}

#[test]
fn embedding() {
    check("docs/embedding.md");
}

#[test]
fn tables() {
    check("docs/batch.md");
}

#[test]
fn receipts() {
    check("docs/receipts.md");
}

#[test]
fn generation() {
    check("docs/generation.md");
}

#[test]
fn diffusion() {
    check("docs/diffusion.md");
}

#[test]
fn formats() {
    check("docs/formats.md");
}

#[test]
fn adapters() {
    check("docs/adapters.md");
}

#[test]
fn plans() {
    check("docs/plans.md");
}

/// The commands for a model of one's own, with another model under that name: the demo model with the chat template of Qwen3.
#[test]
fn readme_with_a_model_of_the_hub() {
    let text = fs::read_to_string(path_of("README.md")).unwrap();
    let (_, section) = text.split_once("## With a model of your own").unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let demo = |name: &str| fs::read(path_of("models/demo").join(name)).unwrap();
    let template = fs::read_to_string(path_of("tests/golden/chat/qwen-3.jinja")).unwrap();
    let config = serde_json::json!({ "chat_template": template, "eos_token": "<|eos|>" }).to_string();
    let hub = TestHub::start(&[
        File::small("config.json", &demo("config.json")),
        File::small("tokenizer.json", &demo("tokenizer.json")),
        File::small("tokenizer_config.json", config.as_bytes()),
        File::large("model.safetensors", &demo("model.safetensors")),
    ]);
    let folder = directory();
    let commands: Vec<&str> = block.lines().filter(|line| line.starts_with("redline ")).collect();
    assert!(commands.len() >= 4, "{block}");
    for command in commands {
        let command = format!("HF_ENDPOINT={} {}", hub.endpoint, command.replace("Qwen/Qwen3-0.6B", ID));
        let run = run(&command, folder.path());
        assert!(run.code == 0 && !run.out.is_empty(), "{command}: {} {}", run.code, run.out);
        assert!(!run.out.contains("chat template, and the prompt"), "{}", run.out);
    }
}

/// Commands elsewhere are in blocks that say that they are not run here: what is installed, downloaded, or takes minutes.
#[test]
fn every_block_has_a_type() {
    let guides = fs::read_dir(path_of("docs")).unwrap().map(|entry| entry.unwrap().path());
    for path in
        guides.filter(|path| path.extension().is_some_and(|end| end == "md")).chain([path_of("README.md")])
    {
        let text = fs::read_to_string(&path).unwrap();
        let fences = text.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
        for fence in fences.step_by(2) {
            assert!(!fence.is_empty(), "{}: a block without a type", path.display());
        }
    }
}

#[test]
fn what_was_measured_may_differ_and_nothing_else() {
    let same = |shown: &str, printed: &str| {
        same_output(&shown.lines().collect::<Vec<_>>(), &printed.lines().collect::<Vec<_>>())
    };
    assert!(same("took 3.5 ms, 12 tokens/s", "took 17 ms, 1,200 tokens/s"));
    assert!(
        same("a  b", "a b") && same("a\n…\nz", "a\nb\nc\nz") && same("a … z", "a b c z") && same("…", "")
    );
    for (shown, printed) in
        [("3 tokens", "4 tokens"), ("a", "b"), ("a", ""), ("a\n…", "b\nc"), ("3 ms", "x ms")]
    {
        assert!(!same(shown, printed), "{shown} / {printed}");
    }
    let document = "```console\n$ a \\\n  b\nc\n```\n\n```sh\n$ x\n```\n";
    let commands = typed(document);
    assert_eq!(
        (commands.len(), &*commands[0].command, &*commands[0].shown),
        (1, "a \\\n  b", &["c".to_owned()][..])
    );
    assert_eq!(updated(document, &commands, &["d\n".to_owned()]), document.replace("\nc\n", "\nd\n"));
}
