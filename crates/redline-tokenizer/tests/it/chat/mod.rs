//! Chat templates: rendered as in transformers, read from the files of a directory, and hostile ones.

use std::collections::BTreeMap;
use std::fs;

use redline_tokenizer::{ChatMessage, ChatTemplate};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Expected {
    tokens: BTreeMap<String, String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    template: String,
    messages: Vec<Message>,
    prompt: bool,
    text: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: String,
}

fn render(source: &str, content: &str) -> Result<String, String> {
    let template = ChatTemplate::new("test", source, BTreeMap::new());
    template.render(&[ChatMessage::new("user", content)], true).map_err(|error| error.to_string())
}

#[test]
fn texts_are_those_of_transformers() {
    let expected: Expected = serde_json::from_str(include_str!("expected.json")).unwrap();
    assert!(expected.cases.len() == 30 && expected.cases.iter().any(|case| case.error.is_some()));
    for case in &expected.cases {
        let messages: Vec<ChatMessage> =
            case.messages.iter().map(|message| ChatMessage::new(&message.role, &message.content)).collect();
        let template = ChatTemplate::new("test", &case.template, expected.tokens.clone());
        match (template.render(&messages, case.prompt), &case.text, &case.error) {
            (Ok(found), Some(text), _) => assert_eq!(&found, text, "{}", case.name),
            (Err(found), _, Some(error)) => assert!(found.to_string().contains(error), "{found}"),
            (found, ..) => panic!("{}: {found:?}", case.name),
        }
    }
}

#[test]
fn a_directory_keeps_it_in_one_of_three_ways() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let found = || {
        let template = ChatTemplate::from_dir(folder.path()).map_err(|error| error.to_string())?;
        let render = |template: ChatTemplate| template.render(&[ChatMessage::new("user", "hi")], true);
        template.map(render).transpose().map_err(|error| error.to_string())
    };
    assert_eq!(found(), Ok(None));
    write("tokenizer_config.json", &json!({"bos_token": {"content": "<b>"}, "eos_token": null}).to_string());
    assert_eq!(found(), Ok(None));
    let text = json!({"bos_token": {"content": "<b>"}, "chat_template": "{{ bos_token }}one {{ messages[0].content }}"});
    write("tokenizer_config.json", &text.to_string());
    assert_eq!(found(), Ok(Some("<b>one hi".to_owned())));
    let several = json!([{"name": "tool_use", "template": "no"}, {"name": "default", "template": "two"}]);
    write("tokenizer_config.json", &json!({"chat_template": several}).to_string());
    assert_eq!(found(), Ok(Some("two".to_owned())));
    write(
        "tokenizer_config.json",
        &json!({"chat_template": [{"name": "rag", "template": "no"}]}).to_string(),
    );
    assert!(found().unwrap_err().contains("`chat_template` is not a text"));
    write("tokenizer_config.json", &json!({"chat_template": 5}).to_string());
    assert!(found().unwrap_err().contains("`chat_template` is not a text"));
    write("chat_template.jinja", "three");
    assert_eq!(found(), Ok(Some("three".to_owned())));
    fs::write(folder.path().join("chat_template.jinja"), b"a\xff").unwrap();
    assert!(found().unwrap_err().contains("offset 1"));
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
    failed("{% generation %}x{% endgeneration %}", &["generation"]);
}

#[test]
fn hostile_templates_end() {
    for source in [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% include '/etc/passwd' %}",
        "{{ 'a' | indent(18446744073709551615) }}",
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
    let write = |name: &str, json: serde_json::Value| {
        fs::write(folder.path().join(name), json.to_string()).unwrap();
    };
    write("special_tokens_map.json", json!({"eos_token": {"content": "<e>"}}));
    let source = "{{ bos_token }}{{ eos_token }}";
    write(
        "tokenizer_config.json",
        json!({"bos_token": "<b>", "eos_token": "<other>", "chat_template": source}),
    );
    let template = ChatTemplate::from_dir(folder.path()).unwrap().unwrap();
    assert_eq!(template.render(&[], false).unwrap(), "<b><e>");
    write("tokenizer_config.json", json!({"bos_token": "<b>", "chat_template": null}));
    assert!(ChatTemplate::from_dir(folder.path()).unwrap().is_none());
}

#[test]
fn no_filter_makes_a_text_of_any_width_from_a_number() {
    for source in ["{{ '%d' | format(7) }}", "{{ '%s' | format('a') }}", "{{ 'a' | indent(2) }}"] {
        assert!(render(source, "x").is_err(), "{source}");
    }
    let indented = |width: usize| render(&format!("{{{{ [1] | tojson(indent={width}) }}}}"), "x").unwrap();
    assert_eq!(indented(3), "[\n   1\n]");
    let widest = format!("[\n{}1\n]", " ".repeat(16));
    assert_eq!([indented(16), indented(17), indented(1000)], [widest.clone(), widest.clone(), widest]);
}

#[test]
fn arguments_of_a_filter_are_known_or_refused() {
    let json =
        |arguments: &str| render(&format!("{{{{ messages[0].content | tojson({arguments}) }}}}"), "\u{fc}");
    assert_eq!(json("ensure_ascii=false"), Ok("\"\u{fc}\"".to_owned()));
    assert!(json("sort_keys=true").is_err());
}

#[test]
fn a_long_conversation_is_no_hostile_template() {
    let source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let template = ChatTemplate::new("test", source, BTreeMap::new());
    let text = template.render(&vec![ChatMessage::new("user", "hi"); 20_000], true).unwrap();
    assert_eq!(text, "user: hi\n".repeat(20_000));
}
