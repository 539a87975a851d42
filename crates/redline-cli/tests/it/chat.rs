//! Prompts and conversations in the format of a chat template: `--chat`, its flags, and the keys of lines.

use std::fs;
use std::path::Path;

use redline_api::jsonl::diffuse::Diffusion;
use redline_api::jsonl::generate::TextCompletion;

use crate::checkpoint;
use crate::harness::{Run, bits, redline, redline_reading};

/// Prints all variables that flags and keys set. Without them, the text of a conversation is its turns.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}\
    {% if tools %}tools {{ tools | tojson }}\n{% endif %}{% if documents %}documents {{ documents | tojson }}\n{% endif %}\
    {% if mode is defined %}mode {{ mode | tojson }}\n{% endif %}{% if prints_date %}{{ strftime_now('%d.%m.%Y') }}\n{% endif %}\
    {% if add_generation_prompt %}king:{% endif %}";

/// The demo model with a chat template.
struct Model {
    folder: tempfile::TempDir,
}

impl Model {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        checkpoint::copy_to(folder.path());
        let model = Self { folder };
        model.write("tokenizer_config.json", &serde_json::json!({"chat_template": TEMPLATE}).to_string());
        model
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file of the directory and returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.folder.path().join(name), text).unwrap();
        self.path(name)
    }

    fn generate(&self, extra: &[&str]) -> Run {
        redline(&[&["generate", "--model", &self.path(""), "--max-new-tokens", "3"], extra].concat())
    }

    /// The first tokens after a prompt, and the number of its tokens.
    #[track_caller]
    fn ids(&self, extra: &[&str]) -> (Vec<u32>, usize) {
        let answer = self.generate(&[extra, &["--json", "--quiet"]].concat()).ok().completion();
        (answer.choices[0].token_ids.clone(), answer.usage.prompt_tokens)
    }

    /// The same for a prompt that is not formatted, to which the tokenizer adds nothing.
    #[track_caller]
    fn plain(&self, prompt: &str) -> (Vec<u32>, usize) {
        let ids = redline(&["tokenize", "--model", &self.path(""), "--no-special", prompt]).ok().out;
        let ids: Vec<&str> = ids.split_whitespace().collect();
        self.ids(&["--prompt-ids", &ids.join(",")])
    }

    /// The answers to lines.
    fn lines(&self, lines: &str, extra: &[&str]) -> Run {
        let fixed = ["generate", "--model", &self.path(""), "--max-new-tokens", "3", "--jsonl", "-"];
        redline_reading(&[&fixed[..], extra].concat(), lines.as_bytes())
    }
}

/// The tokens of every answer, and the number of tokens of its prompt.
fn answers(run: &Run) -> Vec<(Vec<u32>, usize)> {
    let answer = |line: &str| {
        let answer: TextCompletion = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        (answer.choices[0].token_ids.clone(), answer.usage.prompt_tokens)
    };
    run.out.lines().map(answer).collect()
}

#[test]
fn a_prompt_is_put_into_the_template() {
    let model = Model::new();
    let chat = |extra: &[&str]| model.ids(&[&["--chat", "--prompt", " Who goes there?  "], extra].concat());
    assert_eq!(chat(&[]), model.plain("user: Who goes there?\nking:"));
    assert_eq!(chat(&["--system", "Speak."]), model.plain("system: Speak.\nuser: Who goes there?\nking:"));
}

#[test]
fn every_flag_reaches_the_template() {
    let model = Model::new();
    let list = model.write("list.json", r#"[{"b": 1, "a": "x"}]"#);
    let other = model.write("other.jinja", "<{{ messages[0].content }}>");
    let check = |extra: &[&str], text: &str| {
        let found = model.ids(&[&["--chat", "--prompt", "p"], extra].concat());
        assert_eq!(found, model.plain(text), "{extra:?}");
    };
    check(&["--tools", &list], "user: p\ntools [{\"b\": 1, \"a\": \"x\"}]\nking:");
    check(&["--documents", &list], "user: p\ndocuments [{\"b\": 1, \"a\": \"x\"}]\nking:");
    check(&["--template-arg", "mode=false"], "user: p\nmode false\nking:");
    check(&["--template-arg", "mode=a=b"], "user: p\nmode \"a=b\"\nking:");
    check(&["--template-arg", "mode={\"a\": [1]}"], "user: p\nmode {\"a\": [1]}\nking:");
    let date = ["--template-arg", "prints_date=true", "--template-arg", "mode=1", "--date", "2026-07-06"];
    check(&date, "user: p\nmode 1\n06.07.2026\nking:");
    check(&["--chat-template", &other], "<p>");
}

#[test]
fn a_model_may_have_a_template_for_tools() {
    let model = Model::new();
    let named = serde_json::json!([
        {"name": "default", "template": "plain {{ messages[0].content }}"},
        {"name": "tool_use", "template": "tools {{ messages[0].content }}"},
    ]);
    model.write("tokenizer_config.json", &serde_json::json!({"chat_template": named}).to_string());
    let tools = model.write("tools.json", "[]");
    assert_eq!(model.ids(&["--chat", "--prompt", "p"]), model.plain("plain p"));
    assert_eq!(model.ids(&["--chat", "--prompt", "p", "--tools", &tools]), model.plain("tools p"));
}

#[test]
fn lines_have_conversations() {
    let model = Model::new();
    let two =
        r#"[{"role":"user","content":"Who?"},{"role":"assistant","content":[{"type":"text","text":"I"}]}]"#;
    let keys = r#""tools":[{"z":1,"a":2}],"documents":[{}],"chat_template_kwargs":{"mode":0,"prints_date":true},"date":"2026-01-02""#;
    let lines = [
        format!(r#"{{"messages":{two}}}"#),
        format!(r#"{{"messages":{two},"add_generation_prompt":false}}"#),
        format!(r#"{{"messages":{two},"continue_final_message":true}}"#),
        format!(r#"{{"messages":{two},{keys}}}"#),
    ];
    let expected = [
        "user: Who?\nassistant: I\nking:",
        "user: Who?\nassistant: I\n",
        "user: Who?\nassistant: I",
        "user: Who?\nassistant: I\ntools [{\"z\": 1, \"a\": 2}]\ndocuments [{}]\nmode 0\n02.01.2026\nking:",
    ];
    let plain: Vec<_> = expected.iter().map(|text| model.plain(text)).collect();
    // The same with and without `--chat`, which concerns prompts.
    for extra in [&[][..], &["--chat"]] {
        let run = model.lines(&lines.join("\n"), extra).ok();
        assert_eq!((answers(&run), &*run.err), (plain.clone(), ""));
    }
    let flags = ["--system", "s", "--template-arg", "mode=7", "--template-arg", "x=1"];
    let line = r#"{"messages":[{"role":"user","content":"u"}],"chat_template_kwargs":{"mode":8}}"#;
    let run = model.lines(line, &flags).ok();
    assert_eq!(answers(&run), [model.plain("system: s\nuser: u\nmode 8\nking:")]);
}

#[test]
fn a_line_that_cannot_be_formatted_is_refused_in_its_place() {
    let model = Model::new();
    for (line, expected) in [
        ("{}", "neither `prompt` nor `messages` is given"),
        (r#"{"prompt":"p","messages":[]}"#, "both `prompt` and `messages` are given"),
        (r#"{"prompt":"p","tools":[]}"#, "`tools` is given without `messages`"),
        (r#"{"messages":[]}"#, "the conversation has 0 messages"),
        (r#"{"messages":[{"content":"x"}]}"#, "message 0: `role` is missing"),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image","url":"x"}]}]}"#,
            "of type `image`, but only `text` can be read",
        ),
        (r#"{"messages":[{"role":"user","content":"u"}],"date":"now"}"#, "is not a date"),
        (
            r#"{"messages":[{"role":"user","content":"u"}],"add_generation_prompt":true,"continue_final_message":true}"#,
            "both `add_generation_prompt` and `continue_final_message`",
        ),
        (r#"{"messages":[{"role":"user","content":"u"}],"tools":[1]}"#, "tool 0 is not an object"),
    ] {
        let run = model.lines(line, &[]);
        assert!(run.code == 1 && run.out.contains(expected), "{line}: {}", run.out);
        assert!(run.out.contains("\"line\":1") && !run.out.contains("\"hint\":null"), "{}", run.out);
    }
    let run = model.lines("{\"prompt\":[5]}", &["--chat"]);
    assert!(run.code == 1 && run.out.contains("a prompt of token ids"), "{}", run.out);
    let run = redline_reading(
        &["generate", "--model", "demo", "--jsonl", "-"],
        br#"{"messages":[{"role":"user","content":"u"}]}"#,
    );
    assert!(run.code == 1 && run.out.contains("`demo` has no chat template"), "{}", run.out);
}

#[test]
fn an_item_continues_the_conversation_that_is_the_query() {
    let model = Model::new();
    let path = model.path("");
    let score = |extra: &[&str]| {
        let fixed = ["score", "--model", &path, "--label", " the", "--json", "--quiet", "--return-token-ids"];
        redline(&[&fixed[..], extra].concat())
    };
    let chat = score(&["--chat", "--query", "Who?", "--item", " I", "--item", ""]).ok().scoring();
    let ids = redline(&["tokenize", "--model", &path, "--no-special", "user: Who?\nking: I"]).ok().out;
    let ids: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert_eq!(chat.meta.token_ids.as_ref().unwrap()[0].as_ref(), Some(&ids));
    let line = r#"{"messages":[{"role":"user","content":"Who?"}],"items":[" I",""],"labels":[" the"]}"#;
    let lines = redline_reading(&["score", "--model", &path, "--jsonl", "-"], line.as_bytes()).ok();
    assert_eq!((bits(&lines.scoring()), &*lines.err), (bits(&chat), ""));
    score(&["--chat", "--query", "q", "--item", "i", "--item-first"])
        .failed(&["items continue a conversation", "hint: leave out"]);
    score(&["--chat", "--query-ids", "1", "--item-ids", "2"]).usage(&["takes text"]);
    let run =
        redline_reading(&["score", "--model", &path, "--jsonl", "-", "--label", "x"], b"{\"items\":[]}");
    assert!(run.out.contains("neither `query` nor `messages` is given"), "{}", run.out);
}

#[test]
fn masks_follow_a_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("t.jinja");
    fs::write(&template, format!("<|bos|>{TEMPLATE}")).unwrap();
    let template = template.to_str().unwrap();
    let fixed = ["diffuse", "--model", "demo-diffusion", "--max-new-tokens", "4", "--json", "--quiet"];
    let document = |run: Run| -> Diffusion { serde_json::from_str(&run.ok().out).unwrap() };
    let chat = ["--chat", "--chat-template", template, "--prompt", "Who?"];
    let chat = document(redline(&[&fixed[..], &chat].concat()));
    let plain = document(redline(&[&fixed[..], &["--prompt", "user: Who?\nking:"]].concat()));
    let line = r#"{"messages":[{"role":"user","content":"Who?"}],"max_new_tokens":4}"#;
    let lines = ["diffuse", "--model", "demo-diffusion", "--chat-template", template, "--jsonl", "-"];
    let line = document(redline_reading(&lines, line.as_bytes()));
    for answer in [&chat, &line] {
        assert_eq!(answer.choices[0].token_ids, plain.choices[0].token_ids);
        assert_eq!(answer.usage.prompt_tokens, plain.usage.prompt_tokens);
    }
}

#[test]
fn plain_text_for_a_model_with_a_template_is_noted_once() {
    let model = Model::new();
    let note = |run: Run| run.err.lines().filter(|line| line.starts_with("note: ")).count();
    let prompt = ["--prompt", "p", "--json"];
    let run = model.generate(&prompt).ok();
    assert!(run.err.contains("has a chat template") && run.err.contains("--chat"), "{}", run.err);
    assert_eq!(note(run), 1);
    assert_eq!(note(model.lines("{\"prompt\":\"p\"}\n{\"prompt\":\"q\"}", &[]).ok()), 1);
    for extra in [&["--quiet"][..], &["--chat"]] {
        assert_eq!(note(model.generate(&[&prompt[..], extra].concat()).ok()), 0);
        assert_eq!(note(model.lines("{\"prompt\":\"p\"}", extra).ok()), 0);
    }
    assert_eq!(note(model.generate(&["--prompt-ids", "1", "--json"]).ok()), 0);
    // A template from a file is not the model's.
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/chat/phi-4.jinja");
    let run = redline_reading(
        &[
            "generate",
            "--model",
            "demo",
            "--jsonl",
            "-",
            "--chat-template",
            template,
            "--max-new-tokens",
            "1",
        ],
        br#"{"prompt":"p"}"#,
    );
    let expected =
        "note: `--chat-template` is for `messages`, and the prompt is used as it is; --chat formats";
    assert!(run.err.starts_with(expected), "{}", run.err);
    assert_eq!(note(model.lines("{\"prompt\":[1]}", &[]).ok()), 0);
    let score = ["score", "--model", &model.path(""), "--query", "q", "--item", "", "--label", " the"];
    assert_eq!(note(redline(&score).ok()), 1);
    assert_eq!(note(redline(&[&score[..], &["--quiet"]].concat()).ok()), 0);
}

#[test]
fn what_cannot_be_put_into_a_template_is_refused() {
    let model = Model::new();
    redline(&["generate", "--model", "demo", "--chat", "--prompt", "p"])
        .usage(&["`demo` has no chat template", "`--chat-template FILE`"]);
    redline(&["diffuse", "--model", "demo-diffusion", "--chat", "--prompt", "p"])
        .usage(&["no chat template"]);
    model.generate(&["--chat", "--prompt-ids", "1,2"]).usage(&["takes text"]);
    let empty = model.write("empty.json", "[]");
    for flag in [
        &["--system", "s"][..],
        &["--tools", &empty],
        &["--documents", &empty],
        &["--template-arg", "a=1"],
        &["--date", "2026-07-26"],
        &["--chat-template", &empty],
    ] {
        let expected = format!("`{}` without `--chat`", flag[0]);
        model.generate(&[flag, &["--prompt", "p"]].concat()).usage(&[&expected, "add `--chat`"]);
    }
    let chat = |extra: &[&str]| model.generate(&[&["--chat", "--prompt", "p"], extra].concat());
    chat(&["--date", "26.7.2026"]).usage(&["is not a date", "2026-07-26"]);
    chat(&["--template-arg", "mode"]).usage(&["`mode` has no name and value", "enable_thinking=false"]);
    chat(&["--template-arg", "messages=1"]).failed(&["`messages` has a place of its own"]);
    chat(&["--tools", &model.path("none.json")]).failed(&["none.json"]);
    for text in ["{}", "[1", "x"] {
        let file = model.write("wrong.json", text);
        chat(&["--tools", &file]).failed(&["wrong.json", "one JSON list"]);
    }
    let file = model.write("wrong.json", "[1]");
    chat(&["--documents", &file]).failed(&["document 0 is not an object"]);
    chat(&["--chat-template", &model.path("none.jinja")]).failed(&["none.jinja"]);
}

#[test]
fn an_invalid_template_matters_only_where_it_is_used() {
    let model = Model::new();
    model.write("chat_template.jinja", "{{ raise_exception('no questions') }}");
    model.generate(&["--chat", "--prompt", "p"]).failed(&[
        "no questions",
        "chat_template.jinja",
        "leave out `--chat`",
    ]);
    model.write("chat_template.jinja", "{% if %}");
    model.generate(&["--chat", "--prompt", "p"]).failed(&["chat_template.jinja", "line 1"]);
    let run = model.generate(&["--prompt", "p", "--json"]).ok();
    assert_eq!(run.err, "");
    let run = model.lines("{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]}", &[]);
    assert!(run.code == 1 && run.out.contains("chat_template.jinja"), "{}", run.out);
}

#[test]
fn a_model_that_fills_masks_may_have_a_template() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-diffusion");
    for name in ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"] {
        fs::copy(demo.join(name), folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("chat_template.jinja"), TEMPLATE).unwrap();
    let model = folder.path().to_str().unwrap();
    let whole = "user: Who goes there?\nking:";
    let ids = redline(&["tokenize", "--model", model, "--no-special", whole]).ok().out;
    let expected = ids.split_whitespace().count();
    let prompt_tokens = |run: Run| {
        let answer: Diffusion = serde_json::from_str(&run.ok().out).unwrap();
        answer.usage.prompt_tokens
    };
    let ask = ["diffuse", "--model", model, "--chat", "--max-new-tokens", "2"];
    let one = redline(&[&ask[..], &["--json", "--prompt", "Who goes there?"]].concat());
    assert_eq!(prompt_tokens(one), expected);
    let line = b"{\"prompt\":\"Who goes there?\"}\n";
    assert_eq!(prompt_tokens(redline_reading(&[&ask[..], &["--jsonl", "-"]].concat(), line)), expected);
}
