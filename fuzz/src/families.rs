//! The formats of chat models, and the marks in them.

use redline_chat::Marker;

/// What the format of each family is found by.
pub const TEMPLATES: &[&str] = &[
    "<think></think><tool_call>arguments</tool_call>",
    "<think></think><tool_call><function=f><parameter=k>",
    "\"parameters\" ipython",
    "[TOOL_CALLS]",
    "[TOOL_CALLS] [ARGS] [THINK] [/THINK]",
    "<|tool_call|> <|/tool_call|>",
    "<|tool_list_start|>",
    "<function_calls>",
    "<|python_start|>",
    "<|tool_call>call: <|channel>thought <channel|>",
    "<start_function_call>",
    "<|channel|>",
];

/// Marks, which come as tokens after a byte that no text has.
pub const MARKS: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<function_calls>",
    "</function_calls>",
    "<|python_start|>",
    "<|python_end|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<|channel>",
    "<channel|>",
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|start|>",
    "<|constrain|>",
];

/// The token of a mark.
pub fn marker(name: &str) -> Option<Marker> {
    let index = MARKS.iter().position(|mark| *mark == name)?;
    Some(Marker { id: index as u32, name: name.to_owned(), is_special: index % 2 == 0 })
}
