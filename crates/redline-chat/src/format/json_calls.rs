//! Calls as objects in JSON: Hermes, Qwen, Llama, Mistral, Granite, Phi.

use super::{ChatFormat, Family};
use crate::buffer::{Buffer, Needle};
use crate::deltas::Deltas;
use crate::error::ChatFormatError;
use crate::json::CallObject;
use crate::reader::{CallReader, Step};
use crate::rules::Rules;
use crate::tool::Tools;

/// `<tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>`: Hermes, Qwen 2.5 and 3, SmolLM 3, Granite 4.
pub(super) const HERMES: Family = Family {
    name: "hermes",
    fits: |source| source.has("<tool_call>") && source.has("arguments") && !source.has("<arg_key>"),
    openers: &["<tool_call>"],
    starts: &[],
    marks: &["</tool_call>"],
    reader: |format| Calls::boxed(format, "<tool_call>", Some("</tool_call>"), false),
    rules: |rules| {
        let (open, close) = (rules.mark("<tool_call>"), rules.mark("</tool_call>"));
        let object = rules.objects("arguments")?;
        rules.calls(&format!(r#"{open} "\n" {object} "\n" {close}"#), r#""\n""#);
        Ok(())
    },
};

/// `[TOOL_CALLS][{"name": "f", "arguments": {...}}]`: Mistral up to version 7 of its tokenizers.
pub(super) const MISTRAL: Family = Family {
    name: "mistral",
    fits: |source| source.has("[TOOL_CALLS]"),
    openers: &["[TOOL_CALLS]"],
    starts: &[],
    marks: &[],
    reader: |format| Calls::boxed(format, "[TOOL_CALLS]", None, false),
    rules: |rules| of_list(rules, "[TOOL_CALLS]", None),
};

/// `<|tool_call|>[{"name": "f", "arguments": {...}}]<|/tool_call|>`: Phi 4 mini.
pub(super) const PHI_4: Family = Family {
    name: "phi4",
    fits: |source| source.has("<|/tool_call|>"),
    openers: &["<|tool_call|>"],
    starts: &[],
    marks: &["<|/tool_call|>"],
    reader: |format| Calls::boxed(format, "<|tool_call|>", Some("<|/tool_call|>"), false),
    rules: |rules| of_list(rules, "<|tool_call|>", Some("<|/tool_call|>")),
};

/// `<|tool_call|>[{"name": "f", "arguments": {...}}]`: Granite 3.
pub(super) const GRANITE: Family = Family {
    name: "granite",
    fits: |source| source.has("<|tool_call|>"),
    openers: &["<|tool_call|>", "<tool_call>"],
    starts: &[],
    marks: &[],
    reader: |format| Calls::boxed(format, "<|tool_call|>", None, false),
    rules: |rules| of_list(rules, "<|tool_call|>", None),
};

/// `{"name": "f", "parameters": {...}}` as the whole answer: Llama 3.1 to 3.3.
pub(super) const LLAMA: Family = Family {
    name: "llama",
    fits: |source| {
        source.has("\"parameters\"") && (source.has_token("<|python_tag|>") || source.has("ipython"))
    },
    openers: &[],
    starts: &["{", "<|python_tag|>"],
    marks: &["<|python_tag|>"],
    reader: |format| Calls::boxed(format, "<|python_tag|>", None, true),
    rules: |rules| {
        let object = rules.objects("parameters")?;
        rules.calls(&object, r#""; ""#);
        Ok(())
    },
};

/// A list of calls between marks.
fn of_list(rules: &mut Rules<'_>, open: &str, close: Option<&str>) -> Result<(), ChatFormatError> {
    let (open, close) = (rules.mark(open), close.map(|close| rules.mark(close)).unwrap_or_default());
    let object = rules.objects("arguments")?;
    let list = rules.list(&object, "/, ?/");
    rules.define("calls", &format!(r#"{open} "[" {list} "]" {close}"#));
    Ok(())
}

/// Where among calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the mark.
    Mark,
    /// Before the first object, or the list.
    Begin,
    /// Before an object.
    Object,
    InObject,
    /// After an object.
    After,
    /// After all.
    Close,
}

/// One object, several, or a list of them.
#[derive(Clone, Debug)]
struct Calls {
    place: Place,
    openers: Vec<Needle>,
    close: Option<Needle>,
    /// Whether a call of a tool that was not given is none.
    known_only: bool,
    is_list: bool,
    object: CallObject,
}

impl Calls {
    fn boxed(format: &ChatFormat, open: &str, close: Option<&str>, known_only: bool) -> Box<dyn CallReader> {
        let openers = [open].into_iter().chain(format.openers().iter().copied());
        Box::new(Self {
            place: Place::Mark,
            openers: openers.map(|open| format.needle(open)).collect(),
            close: close.map(|close| format.needle(close)),
            known_only,
            is_list: false,
            object: CallObject::default(),
        })
    }
}

impl CallReader for Calls {
    fn read(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, tools: &Tools) -> Step {
        loop {
            if self.place != Place::InObject {
                buffer.skip_space();
            }
            let next = buffer.rest().first().copied();
            let any = self.place == Place::After || self.place == Place::Close;
            let nothing = match (buffer.ended, any) {
                (false, _) => Step::More,
                (true, true) => Step::Done,
                (true, false) => Step::Failed,
            };
            match self.place {
                Place::Mark => {
                    let begins = self.openers.iter().map(|open| open.begins(buffer.rest(), buffer.ended));
                    let begins: Vec<_> = begins.collect();
                    if let Some(which) = begins.iter().position(|begins| *begins == Some(true)) {
                        buffer.skip(self.openers[which].len());
                    } else if begins.contains(&None) {
                        return Step::More;
                    }
                    self.place = Place::Begin;
                }
                Place::Begin => {
                    match next {
                        None => return nothing,
                        Some(b'[') => {
                            self.is_list = true;
                            buffer.skip(1);
                        }
                        Some(_) => {}
                    }
                    self.place = Place::Object;
                }
                Place::Object => {
                    match next {
                        None => return nothing,
                        Some(b'{') => self.object = CallObject::default(),
                        Some(_) => return Step::Failed,
                    }
                    self.place = Place::InObject;
                }
                Place::InObject => {
                    let known_only = self.known_only;
                    match self.object.read(buffer, deltas, &|name| !known_only || tools.has(name)) {
                        Step::Done => self.place = Place::After,
                        other => return other,
                    }
                }
                Place::After => {
                    buffer.commit();
                    self.place = match (next, self.is_list) {
                        (None, _) => return nothing,
                        (Some(b','), true) | (Some(b';'), false) => {
                            buffer.skip(1);
                            Place::Object
                        }
                        (Some(b'{'), false) => Place::Object,
                        (Some(b']'), true) => {
                            buffer.skip(1);
                            Place::Close
                        }
                        _ => Place::Close,
                    };
                }
                Place::Close => {
                    let closes = self.close.as_ref().map_or(Some(false), |close| buffer.skip_if(close));
                    let Some(_) = closes else { return Step::More };
                    buffer.commit();
                    return Step::Done;
                }
            }
        }
    }
}
