//! Chat templates: rendered as in transformers, read from the files of a directory, and hostile ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use redline_tokenizer::{ChatDate, ChatMessage, ChatTemplate, ChatValue, Conversation, TokenizerError};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Templates, and what transformers renders from them: written by `tests/golden/chat.py`.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/chat");

#[derive(Deserialize)]
struct Manifest {
    tokens: BTreeMap<String, String>,
    date: String,
    conversations: BTreeMap<String, Vec<Box<RawValue>>>,
    tools: BTreeMap<String, Vec<Box<RawValue>>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    conversation: String,
    tools: Option<String>,
    arguments: BTreeMap<String, Box<RawValue>>,
    text: Option<String>,
    error: Option<String>,
}

fn message(role: &str, content: &str) -> Vec<ChatMessage> {
    vec![ChatMessage::new(role, content)]
}

/// A conversation of one message of the user.
fn user(content: &str) -> Conversation {
    Conversation {
        messages: message("user", content),
        add_generation_prompt: true,
        ..Conversation::default()
    }
}

fn compiled(source: &str) -> Result<ChatTemplate, TokenizerError> {
    ChatTemplate::new("test", source, BTreeMap::new())
}

fn rendered(source: &str, conversation: &Conversation) -> Result<String, String> {
    compiled(source).and_then(|template| template.render(conversation)).map_err(|error| error.to_string())
}

fn render(source: &str, content: &str) -> Result<String, String> {
    rendered(source, &user(content))
}

fn json_values(list: &[Box<RawValue>]) -> Vec<ChatValue> {
    list.iter().map(|json| ChatValue::from_json(json.get()).unwrap()).collect()
}

/// The template of a case; the one for tools belongs to a model that has two.
fn template_of(manifest: &Manifest, case: &Case) -> ChatTemplate {
    let path = Path::new(GOLDEN).join(format!("{}.jinja", case.template));
    let source = fs::read_to_string(path).unwrap();
    if case.template != "tool-use" {
        return ChatTemplate::new("test", &source, manifest.tokens.clone()).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let named =
        json!([{"name": "default", "template": "not chosen"}, {"name": "tool_use", "template": source}]);
    let mut config: Map<String, Value> = Map::new();
    config.insert("chat_template".to_owned(), named);
    config.extend(manifest.tokens.iter().map(|(name, token)| (name.clone(), json!(token))));
    fs::write(folder.path().join("tokenizer_config.json"), Value::Object(config).to_string()).unwrap();
    ChatTemplate::from_dir(folder.path()).unwrap().unwrap()
}

fn conversation_of(manifest: &Manifest, case: &Case) -> Conversation {
    let messages = manifest.conversations[&case.conversation].iter().enumerate();
    let mut arguments = case.arguments.clone();
    let mut flag = |name: &str| arguments.remove(name).is_some_and(|json| json.get() == "true");
    let (add_generation_prompt, continue_final_message) =
        (flag("add_generation_prompt"), flag("continue_final_message"));
    let documents = arguments.remove("documents").map(|documents| {
        let list: Vec<Box<RawValue>> = serde_json::from_str(documents.get()).unwrap();
        json_values(&list)
    });
    let value = |json: &RawValue| ChatValue::from_json(json.get()).unwrap();
    Conversation {
        messages: messages
            .map(|(index, json)| ChatMessage::from_json(index, json.get()))
            .collect::<Result<_, _>>()
            .unwrap(),
        tools: case.tools.as_ref().map(|name| json_values(&manifest.tools[name])),
        documents,
        arguments: arguments.iter().map(|(name, json)| (name.clone(), value(json))).collect(),
        add_generation_prompt,
        continue_final_message,
        date: Some(ChatDate::parse(&manifest.date).unwrap()),
    }
}

#[test]
fn texts_are_those_of_transformers() {
    let manifest = fs::read_to_string(Path::new(GOLDEN).join("manifest.json")).unwrap();
    let manifest: Manifest = serde_json::from_str(&manifest).unwrap();
    let templates: BTreeSet<&str> = manifest.cases.iter().map(|case| &*case.template).collect();
    assert_eq!((templates.len(), manifest.cases.len()), (13, 295));
    let mut wrong = Vec::new();
    for case in &manifest.cases {
        let name =
            format!("{}, {}, {:?}, {:?}", case.template, case.conversation, case.tools, case.arguments);
        let found = template_of(&manifest, case).render(&conversation_of(&manifest, case));
        match (found, &case.text, &case.error) {
            (Ok(found), Some(text), _) if found == *text => {}
            (Err(found), _, Some(error)) => {
                // The message is that of the template, or Python's.
                let raised = error.strip_prefix("TemplateError: ").unwrap_or_default();
                assert!(found.to_string().contains(raised), "{name}: {found}");
            }
            (found, text, error) => wrong.push(format!("{name}\n{found:#?}\n{text:#?}{error:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_directory_has_its_templates_in_one_of_four_places() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let found = |with_tools: bool| {
        let template = ChatTemplate::from_dir(folder.path()).map_err(|error| error.to_string())?;
        let conversation = Conversation { tools: with_tools.then(Vec::new), ..user("hi") };
        let render = |template: ChatTemplate| template.render(&conversation);
        template.map(render).transpose().map_err(|error| error.to_string())
    };
    let both = || (found(false).unwrap().unwrap(), found(true).unwrap().unwrap());
    let texts = |plain: &str, tools: &str| (plain.to_owned(), tools.to_owned());
    assert_eq!(found(false), Ok(None));
    write("tokenizer_config.json", &json!({"bos_token": {"content": "<b>"}, "eos_token": null}).to_string());
    assert_eq!(found(false), Ok(None));
    let text = json!({"bos_token": {"content": "<b>"}, "chat_template": "{{ bos_token }}one {{ messages[0].content }}"});
    write("tokenizer_config.json", &text.to_string());
    assert_eq!(both(), texts("<b>one hi", "<b>one hi"));
    let several = json!([{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "two"}, {"name": "rag"}]);
    write("tokenizer_config.json", &json!({"chat_template": several}).to_string());
    assert_eq!(both(), texts("two", "tools"));
    for wrong in [
        json!([{"name": "rag", "template": "no"}]),
        json!([{"name": "default", "template": 1}]),
        json!([1]),
        json!(1),
    ] {
        write("tokenizer_config.json", &json!({"chat_template": wrong}).to_string());
        assert!(found(false).unwrap_err().contains("`chat_template` is not a text"));
    }
    write("chat_template.jinja", "three");
    assert_eq!(both(), texts("three", "three"));
    for (name, expected) in [("additional_chat_templates", "four"), ("chat_templates", "five")] {
        write(&format!("{name}/tool_use.jinja"), expected);
        write(&format!("{name}/other.jinja"), "{% if %}");
        assert_eq!(both(), texts("three", expected));
    }
    write("chat_templates/default.jinja", "six");
    assert_eq!(both(), texts("six", "five"));
    fs::write(folder.path().join("chat_template.jinja"), b"a\xff").unwrap();
    assert!(found(false).unwrap_err().contains("offset 1"));
    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    fs::remove_file(folder.path().join("tokenizer_config.json")).unwrap();
    assert_eq!(both(), texts("six", "five"));
}

#[test]
fn a_file_is_read_with_the_tokens_of_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jinja");
    fs::write(&file, "{{ bos_token }}{{ messages[0].content }}").unwrap();
    fs::write(folder.path().join("tokenizer_config.json"), json!({"bos_token": "<b>"}).to_string()).unwrap();
    let text = |dir: Option<&Path>| ChatTemplate::from_file(&file, dir).unwrap().render(&user("hi")).unwrap();
    assert_eq!((text(None), text(Some(folder.path()))), ("hi".to_owned(), "<b>hi".to_owned()));
    let error = ChatTemplate::from_file(&folder.path().join("none"), None).unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
}

#[test]
fn what_fails_is_told_with_its_place() {
    let failed = |source: &str, expect: &[&str]| {
        let message = render(source, "x").unwrap_err();
        assert!(expect.iter().all(|part| message.contains(part)), "{message}");
    };
    failed("{% for %}", &["the chat template failed", "line 1", "in `test`"]);
    failed("\n{{ raise_exception('only questions') }}", &["only questions", "line 2"]);
    failed("{{ strftime_now('%Y') }}", &["strftime_now"]);
    failed("{% generation %}x", &["line 1"]);
}

#[test]
fn the_date_is_that_of_the_request() {
    let date = |text: &str| {
        let date = Some(ChatDate::parse(text).unwrap());
        rendered("{{ strftime_now('%d %b %Y') }}", &Conversation { date, ..user("x") }).unwrap()
    };
    assert_eq!((date("2026-07-26"), date("0001-01-01")), ("26 Jul 2026".into(), "01 Jan 0001".into()));
    assert_eq!(render("{{ strftime_now is defined }}", "x"), Ok("False".to_owned()));
    for wrong in ["", "26.7.2026", "2026-02-30", "2026-07-26T00:00", "9999999-01-01"] {
        let error = ChatDate::parse(wrong).unwrap_err();
        assert!(error.to_string().contains("is not a date") && error.hint().is_some(), "{error}");
    }
    let format = |format: &str| {
        let date = Some(ChatDate::parse("2026-07-26").unwrap());
        rendered(&format!("{{{{ strftime_now('{format}') }}}}"), &Conversation { date, ..user("x") })
    };
    assert!(format("%Q").unwrap_err().contains("%Q"));
}

#[test]
fn messages_are_checked() {
    let error = |json: &str| {
        let error = ChatMessage::from_json(3, json).unwrap_err();
        assert!(error.hint().is_some_and(|hint| hint.contains("`role`")));
        error.to_string()
    };
    for (json, expected) in [
        ("", "message 3: not valid JSON: EOF"),
        ("[]", "message 3: a message is an object"),
        ("{}", "message 3: `role` is missing or not a text"),
        (r#"{"role":1,"content":"x"}"#, "`role` is missing or not a text"),
        (r#"{"role":"user"}"#, "`content` is missing in a message of role `user`"),
        (r#"{"role":"user","content":null}"#, "`content` is missing"),
        (r#"{"role":"user","content":1}"#, "not a text or a list of parts"),
        (r#"{"role":"user","content":["x"]}"#, "part 0 of `content` has no `type`"),
        (
            r#"{"role":"user","content":[{"type":"text","text":"x"},{"type":"text"}]}"#,
            "part 1 of `content` has no `text`",
        ),
        (r#"{"role":"user","content":[{"type":"image"}]}"#, "of type `image`, but only `text` can be read"),
        (r#"{"role":"assistant","tool_calls":{}}"#, "`tool_calls` is not a list of objects"),
        (r#"{"role":"assistant","tool_calls":[1]}"#, "`tool_calls` is not a list of objects"),
    ] {
        assert!(error(json).contains(expected), "{json}: {}", error(json));
    }
    let json = r#"{"role":"assistant","tool_calls":[{"b":1,"a":2}],"z":3}"#;
    assert_eq!(ChatMessage::from_json(0, json).unwrap().to_json(), json);
    assert!(ChatMessage::from_json(0, &"[".repeat(10_000)).is_err());
}

#[test]
fn conversations_are_checked() {
    let refused = |conversation: Conversation, expected: &str| {
        let error = compiled("{{ messages[0].content }}").unwrap().render(&conversation).unwrap_err();
        assert!(error.to_string().contains(expected) && error.hint().is_some(), "{error}");
    };
    let value = |json: &str| ChatValue::from_json(json).unwrap();
    refused(Conversation::default(), "0 messages");
    refused(
        Conversation { continue_final_message: true, ..user("x") },
        "both `add_generation_prompt` and `continue_final_message`",
    );
    refused(
        Conversation { tools: Some(vec![value("{}"), value("1")]), ..user("x") },
        "tool 1 is not an object",
    );
    refused(Conversation { documents: Some(vec![value("[]")]), ..user("x") }, "document 0 is not an object");
    for name in ["messages", "tools", "documents", "add_generation_prompt"] {
        refused(Conversation { arguments: vec![(name.to_owned(), value("1"))], ..user("x") }, name);
    }
}

#[test]
fn a_final_message_that_cannot_be_continued_is_refused() {
    let refused = |source: &str, json: &str, expected: &str| {
        let messages = vec![ChatMessage::from_json(0, json).unwrap()];
        let conversation = Conversation { messages, continue_final_message: true, ..Conversation::default() };
        let error = compiled(source).unwrap().render(&conversation).unwrap_err();
        assert!(error.to_string().contains(expected) && error.hint().is_some(), "{error}");
    };
    let text = r#"{"role":"assistant","content":"so"}"#;
    refused("{{ messages[0].content[:2] }}", text, "does not appear");
    refused("{{ messages[0].role }}", text, "does not use the `content`");
    refused("{{ messages[0].content }}", r#"{"role":"assistant"}"#, "has no `content` to continue");
    refused("{{ messages[0].content }}", r#"{"role":"assistant","content":[]}"#, "has no text to continue");
}

#[test]
fn parts_are_joined_unless_the_template_reads_them() {
    let parts = r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#;
    let of = |source: &str| {
        let messages = vec![ChatMessage::from_json(0, parts).unwrap()];
        rendered(source, &Conversation { messages, ..Conversation::default() }).unwrap()
    };
    assert_eq!(of("{{ messages[0].content }}"), "a\nb");
    assert_eq!(of("{% for p in messages[0].content %}{{ p.text }}{% endfor %}"), "ab");
    assert_eq!(of("{{ messages[0].content | tojson }}"), "\"a\\nb\"");
}

#[test]
fn hostile_templates_end() {
    for source in [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% include '/etc/passwd' %}",
        "{{ 'a' | indent(18446744073709551615) }}",
        "{{ '{:99999999}'.format(1) }}",
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.mro() }}",
    ] {
        assert!(render(source, "x").is_err(), "{source}");
    }
    // The text of a message is never interpreted as template code.
    assert_eq!(
        render("{{ messages[0].content }}", "{{ 1 + 1 }}{% raw %}"),
        Ok("{{ 1 + 1 }}{% raw %}".into())
    );
}

#[test]
fn special_tokens_are_also_those_of_the_older_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, json: Value| {
        fs::write(folder.path().join(name), json.to_string()).unwrap();
    };
    write("special_tokens_map.json", json!({"eos_token": {"content": "<e>"}}));
    let source = "{{ bos_token }}{{ eos_token }}";
    write(
        "tokenizer_config.json",
        json!({"bos_token": "<b>", "eos_token": "<other>", "chat_template": source}),
    );
    let template = ChatTemplate::from_dir(folder.path()).unwrap().unwrap();
    assert_eq!(template.render(&user("x")).unwrap(), "<b><e>");
    write("tokenizer_config.json", json!({"bos_token": "<b>", "chat_template": null}));
    assert!(ChatTemplate::from_dir(folder.path()).unwrap().is_none());
}

#[test]
fn no_filter_makes_a_text_of_any_width_from_a_number() {
    for source in ["{{ '%d' | format(7) }}", "{{ '%s' | format('a') }}", "{{ 'a' | indent(17) }}"] {
        assert!(render(source, "x").is_err(), "{source}");
    }
    let indented = |width: usize| render(&format!("{{{{ [1] | tojson(indent={width}) }}}}"), "x").unwrap();
    assert_eq!(indented(3), "[\n   1\n]");
    let widest = format!("[\n{}1\n]", " ".repeat(16));
    assert_eq!([indented(16), indented(17), indented(1000)], [widest.clone(), widest.clone(), widest]);
}

#[test]
fn arguments_of_a_filter_are_known_or_refused() {
    let json = |arguments: &str| {
        render(
            &format!("{{{{ {{'b': messages[0].content, 'a': [1, {{}}]}} | tojson({arguments}) }}}}"),
            "\u{fc}",
        )
    };
    // What json.dumps of Python 3.11 writes.
    for (arguments, expected) in [
        ("", "{\"b\": \"ü\", \"a\": [1, {}]}"),
        ("ensure_ascii=true", "{\"b\": \"\\u00fc\", \"a\": [1, {}]}"),
        ("true", "{\"b\": \"\\u00fc\", \"a\": [1, {}]}"),
        ("sort_keys=true", "{\"a\": [1, {}], \"b\": \"ü\"}"),
        ("separators=(',', ':')", "{\"b\":\"ü\",\"a\":[1,{}]}"),
        ("indent=1", "{\n \"b\": \"ü\",\n \"a\": [\n  1,\n  {}\n ]\n}"),
        ("indent=0", "{\n\"b\": \"ü\",\n\"a\": [\n1,\n{}\n]\n}"),
        ("indent='-'", "{\n-\"b\": \"ü\",\n-\"a\": [\n--1,\n--{}\n-]\n}"),
        ("indent=1, separators=('; ', ' = ')", "{\n \"b\" = \"ü\"; \n \"a\" = [\n  1; \n  {}\n ]\n}"),
    ] {
        assert_eq!(json(arguments), Ok(expected.to_owned()), "{arguments}");
    }
    for wrong in ["width=3", "separators=1", "separators=(',',)", "separators=(1, 2)", "indent=1.5"] {
        assert!(json(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_long_conversation_is_no_hostile_template() {
    let source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let template = ChatTemplate::new("test", source, BTreeMap::new()).unwrap();
    let messages = vec![ChatMessage::new("user", "hi"); 20_000];
    let text = template.render(&Conversation { messages, ..Conversation::default() }).unwrap();
    assert_eq!(text, "user: hi\n".repeat(20_000));
}
