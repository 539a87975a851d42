//! Answers in the formats of all families.

mod cuts;
mod grammars;
mod leaderboard;
mod round_trips;
mod texts;

use redline_chat::{ChatFormat, Delta, Input, Marker, Parser, Tool, Tools};
use serde_json::json;

/// A part of the template of each family, by which its format is found.
pub(crate) const TEMPLATES: &[(&str, &str)] = &[
    ("hermes", r#"<think></think><tool_call>{"name": , "arguments": }</tool_call>"#),
    ("qwen-xml", "<think></think><tool_call>\n<function=f>\n<parameter=k>"),
    ("llama", r#"{"name": "f", "parameters": {}} ipython"#),
    ("mistral", "[TOOL_CALLS]"),
    ("mistral-args", "[TOOL_CALLS] [ARGS] [THINK] [/THINK]"),
    ("phi4", "<|tool_call|> <|/tool_call|>"),
    ("granite", "<|tool_call|>"),
    ("lfm2", "<|tool_list_start|> <|tool_call_start|>"),
    ("olmo3", "<function_calls>"),
    ("pythonic", "<|python_start|>"),
    ("gemma4", "<|tool_call>call: <|channel>thought <channel|>"),
    ("function-gemma", "<start_function_call>"),
    ("harmony", "<|channel|>"),
];

/// Marks that some vocabularies have tokens for.
pub(crate) const MARKS: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "[THINK]",
    "[/THINK]",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|python_tag|>",
    "<|python_start|>",
    "<|python_end|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<function_calls>",
    "</function_calls>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    "<|channel>",
    "<channel|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|start|>",
    "<|constrain|>",
];

/// The first of their tokens.
pub(crate) const FIRST: u32 = 256;

/// The token of a mark.
pub(crate) fn marker(name: &str) -> Option<Marker> {
    let index = MARKS.iter().position(|mark| *mark == name)?;
    let is_special = !["<think>", "</think>", "<tool_call>", "</tool_call>"].contains(&name);
    Some(Marker { id: FIRST + index as u32, name: name.to_owned(), is_special })
}

/// A format by its name; in a vocabulary that has tokens for marks, or not.
pub(crate) fn format(name: &str, has_tokens: bool) -> ChatFormat {
    let (_, template) = TEMPLATES.iter().find(|(other, _)| *other == name).unwrap();
    // And the token that ends an answer.
    let special = (FIRST..=FIRST + MARKS.len() as u32).collect();
    // Older vocabularies of Mistral have no token before arguments.
    let has = |mark: &str| has_tokens && !(name == "mistral" && mark == "[ARGS]");
    let format = ChatFormat::of_template(template, &|mark| marker(mark).filter(|_| has(mark)), special);
    assert_eq!(format.name(), Some(name));
    format
}

pub(crate) fn tools() -> Tools {
    let schema = json!({
        "type": "object",
        "properties": {
            "text": { "type": "string" },
            "count": { "type": "integer" },
            "on": { "type": "boolean" },
            "nested": { "type": "object", "additionalProperties": { "type": "boolean" } }
        },
        "required": ["text"],
        "additionalProperties": false
    });
    let tool = |name: &str, parameters| Tool { name: name.to_owned(), parameters, strict: true };
    Tools(vec![tool("get_weather", Some(schema)), tool("now", None)])
}

/// What is written, with the marks in it as tokens if the vocabulary has them.
pub(crate) fn inputs(text: &str, has_tokens: bool) -> Vec<Result<Marker, String>> {
    let mut all = Vec::new();
    let mut rest = text;
    let next = |rest: &str| {
        let found = MARKS.iter().filter_map(|mark| Some((rest.find(mark)?, *mark)));
        // Of two in a place, the longer.
        found.min_by_key(|(at, mark)| (*at, usize::MAX - mark.len()))
    };
    while let Some((at, mark)) = next(rest).filter(|_| has_tokens) {
        all.push(Err(rest[..at].to_owned()));
        all.extend(marker(mark).map(Ok));
        rest = &rest[at + mark.len()..];
    }
    all.push(Err(rest.to_owned()));
    all
}

/// The parts of an answer, each kind together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    pub(crate) calls: Vec<(String, String)>,
}

impl Whole {
    pub(crate) fn add(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match delta {
                Delta::Content(text) => self.content.push_str(&text),
                Delta::Reasoning(text) => self.reasoning.push_str(&text),
                Delta::Call(name) => self.calls.push((name, String::new())),
                Delta::Arguments(json) => self.calls.last_mut().expect("a call").1.push_str(&json),
            }
        }
    }
}

/// The parts of an answer that comes in these pieces.
pub(crate) fn parsed(
    format: ChatFormat,
    tools: Tools,
    pieces: &[Result<Marker, String>],
    reasons: bool,
) -> Whole {
    let mut parser = Parser::new(format, tools, reasons, usize::MAX);
    let mut whole = Whole::default();
    for piece in pieces {
        whole.add(parser.push(match piece {
            Ok(marker) => Input::Marker(marker),
            Err(text) => Input::Text(text),
        }));
    }
    whole.add(parser.finish());
    whole
}
