//! `redline chat`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use crate::harness::{Run, command, finish, redline, redline_reading};

const TEMPLATE: &str = "<|bos|>{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

/// A folder with a template.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::write(folder.path("t.jinja"), TEMPLATE).unwrap();
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// A conversation with short answers.
    fn chat(&self, extra: &[&str], lines: &str) -> Run {
        self.longer(&[&["--max-new-tokens", "5"], extra].concat(), lines)
    }

    /// A conversation with answers of any length.
    fn longer(&self, extra: &[&str], lines: &str) -> Run {
        let template = self.path("t.jinja");
        let fixed = ["chat", "--model", "demo", "--chat-template", &template];
        redline_reading(&[&fixed[..], extra].concat(), lines.as_bytes())
    }
}

/// What `generate` answers to the text of a conversation.
fn generated(text: &str) -> String {
    let fixed = ["generate", "--model", "demo", "--max-new-tokens", "5", "--quiet"];
    redline(&[&fixed[..], &["--prompt", text]].concat()).ok().out
}

/// The messages of a saved conversation: role and content.
fn saved(path: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(path).unwrap();
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    let field = |message: &serde_json::Value, name: &str| message[name].as_str().unwrap().to_owned();
    line["messages"].as_array().unwrap().iter().map(|m| (field(m, "role"), field(m, "content"))).collect()
}

#[test]
fn a_model_that_fills_masks_is_refused_before_the_first_message() {
    let folder = Folder::new();
    let run = redline(&["chat", "--model", "demo-diffusion", "--chat-template", &folder.path("t.jinja")]);
    run.failed(&["fills masks", "redline diffuse"]);
}

#[test]
fn a_conversation_keeps_its_history() {
    let folder = Folder::new();
    let file = folder.path("saved.jsonl");
    let lines = format!("Who goes there?\n\n/save {file}\nWhy? \u{4f60}\n");
    let run = folder.chat(&[], &lines).ok();
    let messages = saved(&file);
    assert_eq!(messages[0], ("user".to_owned(), "Who goes there?".to_owned()));
    assert_eq!((messages.len(), &*messages[1].0), (2, "assistant"));
    let first = generated("user: Who goes there?\nassistant: ");
    assert_eq!(format!("{}\n", messages[1].1), first);
    let second =
        format!("user: Who goes there?\nassistant: {}\nuser: Why? \u{4f60}\nassistant: ", messages[1].1);
    assert_eq!(run.out, first + &generated(&second));
    // The first answer's prompt and tokens need not be computed again.
    let figures: Vec<&str> = run.err.lines().collect();
    assert_eq!(figures.len(), 2, "{}", run.err);
    assert!(figures[0].contains("(0 cached)") && !figures[1].contains("(0 cached)"), "{}", run.err);
    // A saved conversation is a line of `generate`.
    let template = folder.path("t.jinja");
    let again = ["generate", "--model", "demo", "--chat-template", &template, "--jsonl", &file];
    redline(&[&again[..], &["--max-new-tokens", "1"]].concat()).ok();
}

#[test]
fn commands_change_the_conversation() {
    let folder = Folder::new();
    let [one, two, three] = ["1", "2", "3"].map(|name| folder.path(name));
    let lines = format!(
        "/save {one}\n/system  Be a king. \nHello\n/reset\n/save {two}\n/system\n//slash\n/save {three}\n/exit\nnever\n"
    );
    let run = folder.chat(&["--system", "Be brief.", "--quiet"], &lines).ok();
    let message = |role: &str, content: &str| (role.to_owned(), content.to_owned());
    assert_eq!(saved(&one), [message("system", "Be brief.")]);
    assert_eq!(saved(&two), [message("system", "Be a king.")]);
    assert_eq!(saved(&three)[0], message("user", "/slash"));
    let expected = ["system: Be a king.\nuser: Hello\nassistant: ", "user: /slash\nassistant: "];
    assert_eq!(run.out, expected.map(generated).concat());
    assert_eq!(run.err, "");
}

#[test]
fn a_line_that_fails_changes_nothing() {
    let folder = Folder::new();
    let file = folder.path("saved");
    for (line, expected) in [
        ("/quit", "`/quit` is not a command"),
        ("/save", "`/save` without a file"),
        ("/save /no/such/folder/file", "/no/such/folder/file"),
        (&*"long ".repeat(3000), "fills the context of"),
    ] {
        let run = folder.chat(&["--quiet"], &format!("{line}\n/save {file}\nHello\n"));
        assert_eq!((run.code, saved(&file)), (1, Vec::new()), "{line}");
        assert!(run.err.contains(expected) && run.err.contains("\nhint: "), "{}", run.err);
        assert_eq!(run.out, generated("user: Hello\nassistant: "));
    }
    fs::write(
        folder.path("t.jinja"),
        "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}<|bos|>{{ messages[0].content }}",
    )
    .unwrap();
    let run = folder.chat(&["--quiet"], "a\nb\n/reset\nc\n");
    assert!(run.code == 1 && run.err.contains("one only"), "{}", run.err);
    assert_eq!(run.out, generated("a") + &generated("c"));
}

#[test]
fn an_answer_ends_with_the_context_and_by_the_flags() {
    let folder = Folder::new();
    let run = folder.longer(&["--max-context", "40", "--ignore-eos"], "Hello\n").ok();
    assert!(run.err.contains("(length reached)"), "{}", run.err);
    let whole = generated("user: Hello\nassistant: ");
    let stop: String = whole.trim_end_matches('\n').chars().skip(1).take(2).collect();
    let run = folder.chat(&["--stop", &stop], "Hello\n").ok();
    assert_eq!(run.out, format!("{}\n", whole.split(&stop).next().unwrap()));
    let sampled = ["--temperature", "5", "--seed", "3", "--quiet"];
    assert_eq!(folder.chat(&sampled, "Hello\n").ok().out, folder.chat(&sampled, "Hello\n").ok().out);
    assert_ne!(folder.chat(&sampled, "Hello\n").ok().out, whole);
}

/// A template may end answers with a special token that the model's configuration does not list, here that of the beginning.
#[test]
fn an_answer_ends_where_the_template_ends_answers() {
    let folder = Folder::new();
    let at_once = ["--logit-bias", "0=100"];
    let run = folder.chat(&at_once, "Hello\n").ok();
    assert!(run.err.contains("5 new tokens") && run.err.contains("(length reached)"), "{}", run.err);
    let ended = TEMPLATE.replace("{{ m.content }}\n", "{{ m.content }}<|bos|>");
    fs::write(folder.path("t.jinja"), ended).unwrap();
    let run = folder.chat(&at_once, "Hello\n").ok();
    assert!(run.err.contains("1 new token ") && !run.err.contains("length"), "{}", run.err);
    let run = folder.chat(&[&at_once[..], &["--ignore-eos"]].concat(), "Hello\n").ok();
    assert!(run.err.contains("5 new tokens"), "{}", run.err);
    let template = folder.path("t.jinja");
    let fixed = ["generate", "--model", "demo", "--max-new-tokens", "5", "--json"];
    let chat = ["--chat", "--chat-template", &template];
    let tokens = |extra: &[&str]| {
        let run = redline(&[&fixed[..], &at_once, &["--prompt", "Hello"], extra].concat()).ok();
        let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
        json["usage"]["completion_tokens"].as_u64().unwrap()
    };
    assert_eq!((tokens(&chat), tokens(&[])), (1, 5));
    let lines = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}\n{\"prompt\":\"Hello\"}\n";
    let fixed: Vec<&str> =
        "generate --model demo --max-new-tokens 5 --jsonl - --chat-template".split(' ').collect();
    let run = redline_reading(&[&fixed[..], &[&*template], &at_once].concat(), lines.as_bytes()).ok();
    let counts: Vec<u64> = run
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|json| json["usage"]["completion_tokens"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [1, 5]);
}

#[test]
fn a_model_without_a_template_is_refused() {
    redline(&["chat", "--model", "demo"]).usage(&["`demo` has no chat template", "`--chat-template FILE`"]);
    redline(&["chat"]).usage(&["no model given"]);
    let folder = Folder::new();
    fs::write(folder.path("t.jinja"), "{% if %}").unwrap();
    folder.chat(&[], "Hello\n").failed(&["t.jinja", "line 1"]);
    fs::write(folder.path("t.jinja"), TEMPLATE).unwrap();
    let run = redline_reading(
        &["chat", "--model", "demo-diffusion", "--chat-template", &folder.path("t.jinja")],
        b"Hello\n",
    );
    run.failed(&["redline diffuse"]);
    let run = folder.chat(&[], "");
    assert_eq!((run.code, &*run.out, &*run.err), (0, "", ""));
    let run =
        redline_reading(&["chat", "--model", "demo", "--chat-template", &folder.path("t.jinja")], b"\xff\n");
    run.failed(&["UTF-8", "standard input"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_an_answer_and_then_leaves() {
    let folder = Folder::new();
    let template = folder.path("t.jinja");
    // The slowest tier leaves enough time for the signal.
    let slow = ["--isa", "scalar", "--threads", "1", "--ignore-eos", "--max-new-tokens", "100000"];
    let fixed = ["chat", "--model", "demo", "--chat-template", &template, "--quiet"];
    let mut child = command(&[&fixed[..], &slow].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let interrupt = |process: u32| {
        let kill = std::process::Command::new("sh").arg("-c").arg(format!("kill -INT {process}")).status();
        assert!(kill.unwrap().success());
    };
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = [0];
    let file = folder.path("saved");
    for turn in 1..3 {
        stdin.write_all(b"Hello\n").unwrap();
        stdout.read_exact(&mut first).unwrap();
        interrupt(child.id());
        // The answer that was stopped stays. When it is saved, the chat waits for a line again.
        stdin.write_all(format!("/save {file}{turn}\n").as_bytes()).unwrap();
        let saved_file = format!("{file}{turn}");
        while !fs::exists(&saved_file).unwrap() {
            assert!(child.try_wait().unwrap().is_none(), "the chat has ended");
            std::thread::yield_now();
        }
        assert_eq!(saved(&saved_file).len(), 2 * turn);
        let mut rest = Vec::new();
        let answer = saved(&saved_file).pop().unwrap().1;
        let lines = answer.matches('\n').count() + 1 - usize::from(first[0] == b'\n');
        for _ in 0..lines {
            stdout.read_until(b'\n', &mut rest).unwrap();
        }
        let text = [&first[..], &rest].concat();
        assert_eq!(String::from_utf8(text).unwrap(), format!("{answer}\n"));
    }
    interrupt(child.id());
    let run = finish(child.wait_with_output().unwrap());
    assert_eq!((run.code, &*run.err), (130, ""));
    drop(stdin);
}
