//! Calls as templates write them are read as the same calls, whatever their strings contain.

use proptest::prelude::*;
use redline_chat::Marker;
use serde_json::{Map, Value, json};

use crate::{MARKS, format, marker, parsed, tools};

/// Texts with quotes, line ends, and the characters of every mark.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(MARKS.to_vec()).prop_map(str::to_owned),
        prop::sample::select(vec![
            "</parameter>",
            "</function>",
            "<function=x>",
            "}",
            "]",
            ")",
            "\"",
            "'",
            "\\",
            "\n",
            ",",
            "="
        ])
        .prop_map(str::to_owned),
        "[a-zA-Z0-9 é😀]{0,5}",
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    (texts(), any::<i32>(), any::<bool>(), texts()).prop_map(|(text, count, on, inner)| {
        let all =
            json!({ "text": text, "count": count, "on": on, "nested": { "a": [inner, null, 1.5], "b": {} } });
        all.as_object().unwrap().clone()
    })
}

/// What is written: texts, and marks as tokens.
pub(crate) struct Writer(pub(crate) Vec<Result<Marker, String>>);

impl Writer {
    fn text(&mut self, text: impl Into<String>) {
        self.0.push(Err(text.into()));
    }

    fn mark(&mut self, name: &str) {
        self.0.push(Ok(marker(name).unwrap()));
    }

    /// A value as Gemma writes it.
    fn gemma(&mut self, value: &Value, quote: &str) {
        match value {
            Value::String(text) => {
                self.mark(quote);
                self.text(text);
                self.mark(quote);
            }
            Value::Array(values) => {
                self.text("[");
                for (index, value) in values.iter().enumerate() {
                    self.text(if index == 0 { "" } else { "," });
                    self.gemma(value, quote);
                }
                self.text("]");
            }
            Value::Object(values) => {
                self.text("{");
                for (index, (key, value)) in values.iter().enumerate() {
                    self.text(format!("{}{key}:", if index == 0 { "" } else { "," }));
                    self.gemma(value, quote);
                }
                self.text("}");
            }
            other => self.text(other.to_string()),
        }
    }

    /// A call as a family writes it. `None` if the family cannot.
    pub(crate) fn call(
        &mut self,
        family: &str,
        name: &str,
        arguments: &Map<String, Value>,
        is_first: bool,
    ) -> Option<()> {
        let json = Value::Object(arguments.clone()).to_string();
        let object = |key: &str| format!("{{\"name\": \"{name}\", \"{key}\": {json}}}");
        let python = || {
            let all: Vec<_> = arguments.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("{name}({})", all.join(", "))
        };
        match family {
            "hermes" => {
                self.mark("<tool_call>");
                self.text(format!("\n{}\n", object("arguments")));
                self.mark("</tool_call>");
                self.text("\n");
            }
            "qwen-xml" => {
                self.mark("<tool_call>");
                self.text(format!("\n<function={name}>\n"));
                for (key, value) in arguments {
                    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    if value.contains("\n</parameter>") {
                        return None;
                    }
                    self.text(format!("<parameter={key}>\n{value}\n</parameter>\n"));
                }
                self.text("</function>\n");
                self.mark("</tool_call>");
            }
            "llama" => self.text(format!("{}{}", if is_first { "" } else { "; " }, object("parameters"))),
            "mistral-args" => {
                self.mark("[TOOL_CALLS]");
                self.text(name);
                self.mark("[ARGS]");
                self.text(&*json);
            }
            "mistral" | "granite" | "phi4" => {
                self.mark(if family == "mistral" { "[TOOL_CALLS]" } else { "<|tool_call|>" });
                self.text(format!("[{}]", object("arguments")));
                if family == "phi4" {
                    self.mark("<|/tool_call|>");
                }
            }
            "lfm2" => {
                self.mark("<|tool_call_start|>");
                self.text(format!("[{}]", python()));
                self.mark("<|tool_call_end|>");
            }
            "olmo3" => {
                self.mark("<function_calls>");
                self.text(format!("\n{}\n", python()));
                self.mark("</function_calls>");
            }
            "pythonic" if is_first => self.text(format!("[{}]", python())),
            "gemma4" | "function-gemma" => {
                let (open, quote, close) = match family {
                    "gemma4" => ("<|tool_call>", "<|\"|>", "<tool_call|>"),
                    _ => ("<start_function_call>", "<escape>", "<end_function_call>"),
                };
                self.mark(open);
                self.text(format!("call:{name}"));
                self.gemma(&Value::Object(arguments.clone()), quote);
                self.mark(close);
            }
            "harmony" if is_first => {
                self.mark("<|channel|>");
                self.text(format!("commentary to=functions.{name} "));
                self.mark("<|constrain|>");
                self.text("json");
                self.mark("<|message|>");
                self.text(&*json);
                self.mark("<|call|>");
            }
            _ => return None,
        }
        Some(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn calls_survive(all in prop::collection::vec(arguments(), 1..3)) {
        for (family, _) in crate::TEMPLATES {
            let mut writer = Writer(Vec::new());
            let mut written = Vec::new();
            for (index, one) in all.iter().enumerate() {
                let before = writer.0.len();
                match writer.call(family, "get_weather", one, index == 0) {
                    Some(()) => written.push(Value::Object(one.clone())),
                    None => writer.0.truncate(before),
                }
            }
            let whole = parsed(format(family, true), tools(), &writer.0, false);
            let read = whole.calls.iter().map(|(_, json)| serde_json::from_str(json).unwrap());
            let read: Vec<Value> = read.collect();
            prop_assert_eq!(&read, &written, "{}: {:?}", family, writer.0);
            prop_assert_eq!(&whole.content, "");
        }
    }
}
