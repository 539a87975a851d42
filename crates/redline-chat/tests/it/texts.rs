//! What models of each family write, as their templates and others' parsers have it.

use crate::{Whole, format, inputs, parsed, tools};

/// Reads a text with its marks as tokens and as characters.
fn check(name: &str, text: &str, reasoning: &str, content: &str, calls: &[(&str, &str)]) {
    let calls = calls.iter().map(|(name, json)| ((*name).to_owned(), (*json).to_owned())).collect();
    let expected = Whole { reasoning: reasoning.to_owned(), content: content.to_owned(), calls };
    for has_tokens in [true, false] {
        // Channels are tokens.
        if name == "harmony" && !has_tokens {
            continue;
        }
        let whole = parsed(format(name, has_tokens), tools(), &inputs(text, has_tokens), false);
        assert_eq!(whole, expected, "{name}, tokens: {has_tokens}: {text}");
    }
}

const WEATHER: (&str, &str) = ("get_weather", r#"{"text": "a\nb", "count": 2}"#);

#[test]
fn hermes() {
    let call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"text\": \"a\\nb\", \"count\": 2}}\n</tool_call>";
    check("hermes", call, "", "", &[WEATHER]);
    check("hermes", &format!("Let me see.\n\n{call}\n{call}\n"), "", "Let me see.", &[WEATHER, WEATHER]);
    check("hermes", &format!("<think>\nA call?\n</think>\n\n{call}"), "A call?", "", &[WEATHER]);
    check("hermes", "<think>\n\n</think>\n\nNo call. \n", "", "No call. \n", &[]);
    // Without spaces, with the arguments first, as `parameters`, as a text, and without any.
    check("hermes", "<tool_call>{\"arguments\":{},\"name\":\"now\"}</tool_call>", "", "", &[("now", "{}")]);
    check(
        "hermes",
        "<tool_call>{\"name\":\"now\",\"parameters\":{\"a\":[{}]}}</tool_call>",
        "",
        "",
        &[("now", r#"{"a":[{}]}"#)],
    );
    check(
        "hermes",
        "<tool_call>{\"name\":\"now\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>",
        "",
        "",
        &[("now", r#"{"a": 1}"#)],
    );
    check("hermes", "<tool_call>{\"id\": 1.5e3, \"name\":\"now\"}</tool_call>ok", "", "ok", &[("now", "{}")]);
    // A line end in a string, which JSON does not have.
    check(
        "hermes",
        "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":\"x\ny\"}}</tool_call>",
        "",
        "",
        &[("now", r#"{"a":"x\ny"}"#)],
    );
    // What is no call stays.
    check("hermes", "a <tool_call>\nb</tool_call> c", "", "a <tool_call>\nb</tool_call> c", &[]);
    check("hermes", "<tool_call>{\"a\": 1}</tool_call>", "", "<tool_call>{\"a\": 1}</tool_call>", &[]);
    check("hermes", "<tool_call>{\"name\": 5", "", "<tool_call>{\"name\": 5", &[]);
    // What breaks off is reported as far as it came.
    check(
        "hermes",
        "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1,",
        "",
        "",
        &[("now", "{\"a\": [1,")],
    );
}

#[test]
fn qwen_xml() {
    let call = |inner: &str| format!("<tool_call>\n<function=get_weather>\n{inner}</function>\n</tool_call>");
    let one = "<parameter=text>\na\nb\n</parameter>\n<parameter=count>\n2\n</parameter>\n";
    check("qwen-xml", &call(one), "", "", &[WEATHER]);
    check("qwen-xml", &format!("{}\n{}", call(one), call("")), "", "", &[WEATHER, ("get_weather", "{}")]);
    check("qwen-xml", &format!("<think>\nx\n</think>\n\ny\n\n{}", call(one)), "x", "y", &[WEATHER]);
    // The type decides: a text stays one, and other types may be written as Python has them.
    let typed = "<parameter=text>\n5\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n<parameter=nested>\n{\"a\": [1]}\n</parameter>\n";
    check(
        "qwen-xml",
        &call(typed),
        "",
        "",
        &[("get_weather", r#"{"text": "5", "on": true, "nested": {"a":[1]}}"#)],
    );
    // A text that may be something else too, in quotation marks and without.
    let maybe = |text: &str| call(&format!("<parameter=unknown>\n{text}\n</parameter>\n"));
    check("qwen-xml", &maybe("\"x\""), "", "", &[("get_weather", r#"{"unknown": "x"}"#)]);
    check("qwen-xml", &maybe("x 'y'"), "", "", &[("get_weather", r#"{"unknown": "x 'y'"}"#)]);
    // Without the outer mark, and with values on the lines of their marks.
    let bare =
        "<function=get_weather><parameter=text>x</parameter><parameter=unknown>1</parameter></function>";
    check("qwen-xml", bare, "", "", &[("get_weather", r#"{"text": "x", "unknown": 1}"#)]);
    // Marks in a text that began on a line of its own.
    let marks = "<parameter=text>\n\n</function></parameter> \"é\"\\\n\n</parameter>\n";
    check(
        "qwen-xml",
        &call(marks),
        "",
        "",
        &[("get_weather", r#"{"text": "\n</function></parameter> \"é\"\\\n"}"#)],
    );
    check("qwen-xml", "<tool_call>\nno", "", "<tool_call>\nno", &[]);
}

#[test]
fn llama() {
    let call = r#"{"name": "get_weather", "parameters": {"text": "a\nb", "count": 2}}"#;
    check("llama", call, "", "", &[WEATHER]);
    check("llama", &format!("<|python_tag|>{call}; {call}"), "", "", &[WEATHER, WEATHER]);
    // A call only at the beginning, and only of a tool that there is.
    check("llama", &format!("Well: {call}"), "", &format!("Well: {call}"), &[]);
    let other = r#"{"name": "Ann", "parameters": {}}"#;
    check("llama", other, "", other, &[]);
    check("llama", "{\"a\": 1} is JSON", "", "{\"a\": 1} is JSON", &[]);
}

#[test]
fn lists() {
    let call = r#"{"name": "get_weather", "arguments": {"text": "a\nb", "count": 2}}"#;
    for (name, open, close) in [
        ("mistral", "[TOOL_CALLS]", ""),
        ("granite", "<|tool_call|>", ""),
        ("phi4", "<|tool_call|>", "<|/tool_call|>"),
    ] {
        check(name, &format!("{open}[{call}]{close}"), "", "", &[WEATHER]);
        check(name, &format!("Hm. {open} [{call}, {call}]{close} done"), "", "Hm.done", &[WEATHER, WEATHER]);
        check(name, &format!("{open}{call}"), "", "", &[WEATHER]);
    }
}

#[test]
fn mistral_with_arguments() {
    let call = r#"[TOOL_CALLS]get_weather[ARGS]{"text": "a\nb", "count": 2}"#;
    check("mistral-args", &format!("{call}{call}"), "", "", &[WEATHER, WEATHER]);
    check("mistral-args", &call.replace("[ARGS]", "[CALL_ID]abcdef123[ARGS]"), "", "", &[WEATHER]);
    check("mistral-args", &format!("[THINK]x[/THINK]y {call}"), "x", "y", &[WEATHER]);
    check("mistral-args", "[TOOL_CALLS]now[ARGS]", "", "", &[("now", "")]);
    // What is too long for a name is text, and is not held back.
    let long = format!("[TOOL_CALLS]{}", "a".repeat(600));
    let mut parser = redline_chat::Parser::new(format("mistral-args", false), tools(), false, 1);
    let told = parser.push(redline_chat::Input::Text(&long));
    assert_eq!(told, [redline_chat::Delta::Content(long)]);
}

#[test]
fn pythonic() {
    let call = r#"get_weather(text="a\nb", count=2)"#;
    check("lfm2", &format!("<|tool_call_start|>[{call}]<|tool_call_end|>ok"), "", "ok", &[WEATHER]);
    check(
        "lfm2",
        &format!("x <|tool_call_start|>[{call}, now()]<|tool_call_end|>"),
        "",
        "x",
        &[WEATHER, ("now", "{}")],
    );
    check(
        "olmo3",
        &format!("<function_calls>\n{call}\nnow()\n</function_calls>"),
        "",
        "",
        &[WEATHER, ("now", "{}")],
    );
    check("pythonic", &format!("[{call}, now()]"), "", "", &[WEATHER, ("now", "{}")]);
    check("pythonic", &format!("<|python_start|>[{call}]<|python_end|>"), "", "", &[WEATHER]);
    let nested = "[get_weather(text='it\\'s, (a) \"b\"', nested={'a': [True, None, (1, 2)]}, on=false)]";
    let json = r#"{"text": "it's, (a) \"b\"", "nested": {"a":[true,null,[1,2]]}, "on": false}"#;
    check("pythonic", nested, "", "", &[("get_weather", json)]);
    for text in ["[1, 2]", "[unknown(a=1)]", "[see](http://x)", "a [now()]"] {
        check("pythonic", text, "", text, &[]);
    }
    check(
        "lfm2",
        "<|tool_call_start|>[a.b-c(from=1)]<|tool_call_end|>",
        "",
        "",
        &[("a.b-c", r#"{"from": 1}"#)],
    );
}

#[test]
fn gemma() {
    for (name, open, quote, close) in [
        ("gemma4", "<|tool_call>", "<|\"|>", "<tool_call|>"),
        ("function-gemma", "<start_function_call>", "<escape>", "<end_function_call>"),
    ] {
        let text = |text: &str| format!("{quote}{text}{quote}");
        let inner = format!("n:42,o:{{a:{},b:[true,{}]}},t:{}", text("x}"), text("]"), text("a\n\"b\""));
        let json = r#"{"n":42,"o":{"a":"x}","b":[true,"]"]},"t":"a\n\"b\""}"#;
        let call = format!("{open}call:f{{{inner}}}{close}");
        check(name, &format!("Hm.{call}{call}"), "", "Hm.", &[("f", json), ("f", json)]);
        check(name, &format!("{open}call:now{{}}{close}"), "", "", &[("now", "{}")]);
    }
    check("gemma4", "<|channel>thought\nA?\n<channel|>B.", "A?", "B.", &[]);
}

#[test]
fn harmony() {
    let think = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
    check("harmony", &format!("{think}<|channel|>final<|message|>Yes.\n<|return|>"), "Hm.", "Yes.\n", &[]);
    let call = r#"<|constrain|>json<|message|>{"text": "a\nb", "count": 2}<|call|>"#;
    check(
        "harmony",
        &format!("{think}<|channel|>commentary to=functions.get_weather {call}"),
        "Hm.",
        "",
        &[WEATHER],
    );
    check(
        "harmony",
        &format!("{think} to=functions.get_weather<|channel|>commentary {call}"),
        "Hm.",
        "",
        &[WEATHER],
    );
    let preamble = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
    check(
        "harmony",
        &format!("{preamble}<|channel|>analysis to=functions.now<|message|>{{}}"),
        "",
        "I look.",
        &[("now", "{}")],
    );
    check("harmony", "<|channel|>final", "", "", &[]);
    let text = format!("<|channel|>commentary to=functions.now {call}");
    let whole = parsed(format("harmony", true), redline_chat::Tools::default(), &inputs(&text, true), false);
    assert!(
        whole.calls.is_empty() && whole.content.contains("count"),
        "without tools, calls are text: {whole:?}"
    );
}

/// The characters of a mark are text in a vocabulary that has a token for it.
#[test]
fn marks_in_prose_are_text() {
    let prose = "Write <tool_call>{\"name\": \"now\"}</tool_call> and </think>.".to_owned();
    let whole = parsed(format("hermes", true), tools(), &[Err(prose.clone())], false);
    assert_eq!(whole, Whole { content: prose, ..Whole::default() });
}

#[test]
fn reasoning_that_the_prompt_began_ends_with_its_mark_or_a_call() {
    let read = |text: &str| parsed(format("hermes", true), tools(), &inputs(text, true), true);
    let whole = read("x\n</think>\n\ny");
    assert_eq!((&*whole.reasoning, &*whole.content), ("x", "y"));
    let whole = read("x<tool_call>{\"name\": \"now\"}</tool_call>");
    assert_eq!((&*whole.reasoning, &*whole.content, whole.calls.len()), ("x", "", 1));
    assert_eq!(read("x").reasoning, "x");
    // Reasoning that ends twice.
    assert_eq!(read("x</think>y</think>z").content, "yz");
}

#[test]
fn calls_beyond_the_most_are_dropped_with_their_arguments() {
    let mut parser = redline_chat::Parser::new(format("hermes", false), tools(), false, 1);
    let call = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}}</tool_call>";
    let mut whole = Whole::default();
    for c in format!("{call}{call}ok").chars() {
        whole.add(parser.push(redline_chat::Input::Text(&c.to_string())));
    }
    whole.add(parser.finish());
    assert_eq!(whole.calls, [("now".to_owned(), "{\"a\": 1}".to_owned())]);
    assert_eq!((&*whole.content, parser.calls()), ("ok", 1));
}

#[test]
fn without_tools_calls_are_text() {
    let call = "<tool_call>{\"name\": \"now\"}</tool_call>";
    let whole =
        parsed(format("hermes", false), redline_chat::Tools::default(), &[Err(call.to_owned())], false);
    assert_eq!(whole, Whole { content: call.to_owned(), ..Whole::default() });
}
