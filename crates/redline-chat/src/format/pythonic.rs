//! Calls as Python writes them: Llama 4, LFM 2, OLMo 3.

use serde_json::Value;

use super::{ChatFormat, Family};
use crate::buffer::{Buffer, Needle, marker_length};
use crate::deltas::Deltas;
use crate::error::ChatFormatError;
use crate::python;
use crate::reader::{CallReader, Step};
use crate::rules::{Rules, literal};
use crate::tool::Tools;

/// `[f(a="x", b=1), g()]` as the whole answer.
pub(super) const LLAMA_4: Family = Family {
    name: "pythonic",
    fits: |source| source.has("<|python_start|>") || source.has("[func_name1("),
    openers: &[],
    starts: &["[", "<|python_start|>"],
    marks: &["<|python_start|>", "<|python_end|>"],
    reader: |format| Calls::boxed(format, ["<|python_start|>", "<|python_end|>"], true, true),
    rules: |rules| of_list(rules, None),
};

/// `<|tool_call_start|>[f(a="x")]<|tool_call_end|>`.
pub(super) const LFM2: Family = Family {
    name: "lfm2",
    fits: |source| source.has("<|tool_list_start|>") || source.has("<|tool_call_start|>"),
    openers: &["<|tool_call_start|>"],
    starts: &[],
    marks: &["<|tool_call_end|>"],
    reader: |format| Calls::boxed(format, ["<|tool_call_start|>", "<|tool_call_end|>"], true, false),
    rules: |rules| of_list(rules, Some(["<|tool_call_start|>", "<|tool_call_end|>"])),
};

/// `<function_calls>\nf(a="x")\ng()\n</function_calls>`.
pub(super) const OLMO_3: Family = Family {
    name: "olmo3",
    fits: |source| source.has("<function_calls>"),
    openers: &["<function_calls>"],
    starts: &[],
    marks: &["</function_calls>"],
    reader: |format| Calls::boxed(format, ["<function_calls>", "</function_calls>"], false, false),
    rules: |rules| {
        let (open, close) = (rules.mark("<function_calls>"), rules.mark("</function_calls>"));
        let call = call(rules)?;
        let list = rules.list(&call, r#""\n""#);
        rules.define("calls", &format!(r#"{open} "\n"? {list} "\n"? {close}"#));
        Ok(())
    },
};

fn of_list(rules: &mut Rules<'_>, marks: Option<[&str; 2]>) -> Result<(), ChatFormatError> {
    let [open, close] = marks.map_or_else(Default::default, |marks| marks.map(|mark| rules.mark(mark)));
    let call = call(rules)?;
    let list = rules.list(&call, "/, ?/");
    rules.define("calls", &format!(r#"{open} "[" {list} "]" {close}"#));
    Ok(())
}

/// The rule of a call, with arguments by name in the order of the schema.
fn call(rules: &mut Rules<'_>) -> Result<String, ChatFormatError> {
    rules.alternatives("call", |rules, tool| {
        let arguments = rules.named(tool)?;
        let mut all = Vec::new();
        for (name, schema, is_required) in arguments {
            let argument = format!("{} {}", literal(&format!("{name}=")), rules.json(tool, &schema)?);
            all.push((argument, is_required));
        }
        let all = rules.sequence(&all, ", ");
        let open = literal(&format!("{}(", rules.tool(tool).name));
        Ok(format!(r#"{open} {all} ")""#))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Mark,
    Begin,
    /// Before a name.
    Name,
    /// Before an argument, or the end of the call.
    Argument,
    /// After a call.
    After,
    Close,
}

/// Calls, in a list or a line each.
struct Calls {
    marks: [Needle; 2],
    is_list: bool,
    /// Whether a call of a tool that was not given is none.
    known_only: bool,
    place: Place,
    /// Number of arguments of the call.
    count: usize,
    any: bool,
}

impl Calls {
    fn boxed(format: &ChatFormat, marks: [&str; 2], is_list: bool, known_only: bool) -> Box<dyn CallReader> {
        let marks = marks.map(|mark| format.needle(mark));
        Box::new(Self { marks, is_list, known_only, place: Place::Mark, count: 0, any: false })
    }
}

/// What was not read, up to a marker, as a text; and whether there is a marker.
fn text(buffer: &Buffer) -> (&str, bool) {
    let rest = buffer.rest();
    let end = (0..rest.len()).find(|at| marker_length(&rest[*at..]).is_some());
    let text = std::str::from_utf8(&rest[..end.unwrap_or(rest.len())]).unwrap_or_default();
    (text, end.is_some())
}

impl CallReader for Calls {
    fn read(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, tools: &Tools) -> Step {
        loop {
            buffer.skip_space();
            let nothing = match (buffer.ended, self.any) {
                (false, _) => Step::More,
                (true, true) => Step::Done,
                (true, false) => Step::Failed,
            };
            let next = match self.place {
                Place::Mark => buffer.skip_if(&self.marks[0]).map(|_| Place::Begin).ok_or(Step::More),
                Place::Begin => match buffer.rest().first() {
                    None => Err(nothing),
                    Some(b'[') if self.is_list => {
                        buffer.skip(1);
                        Ok(Place::Name)
                    }
                    Some(_) if self.is_list => Err(Step::Failed),
                    Some(_) => Ok(Place::Name),
                },
                Place::Name => self.name(buffer, deltas, tools, nothing),
                Place::Argument => self.argument(buffer, deltas, nothing),
                Place::After => self.after(buffer, nothing),
                Place::Close => match buffer.skip_if(&self.marks[1]) {
                    None => Err(Step::More),
                    Some(_) => {
                        buffer.commit();
                        Err(Step::Done)
                    }
                },
            };
            match next {
                Ok(place) => self.place = place,
                Err(step) => return step,
            }
        }
    }
}

/// The next place, or how far the reader came.
type Next = Result<Place, Step>;

impl Calls {
    fn name(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, tools: &Tools, nothing: Step) -> Next {
        let (text, is_cut) = text(buffer);
        let is_part = |c: char| c.is_alphanumeric() || "_.-".contains(c);
        let end = text.find(|c| !is_part(c)).ok_or(if is_cut { Step::Failed } else { nothing })?;
        let name = text[..end].to_owned();
        if end == 0 || !text[end..].starts_with('(') || (self.known_only && !tools.has(&name)) {
            return Err(Step::Failed);
        }
        buffer.skip(end + 1);
        deltas.call(&name);
        buffer.commit();
        (self.count, self.any) = (0, true);
        Ok(Place::Argument)
    }

    fn argument(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, nothing: Step) -> Next {
        let (text, is_cut) = text(buffer);
        if text.starts_with(')') {
            buffer.skip(1);
            deltas.arguments(if self.count == 0 { "{}" } else { "}" });
            buffer.commit();
            return Ok(Place::After);
        }
        // A marker that is no part of a value ends the calls.
        let end = python::length(text, &[',', ')']).ok_or(if is_cut { Step::Done } else { nothing })?;
        let argument = text[..end].to_owned();
        let comma = usize::from(text[end..].starts_with(','));
        buffer.skip(end + comma);
        if let Some((key, value)) = argument.split_once('=') {
            let value = python::value(value).unwrap_or_else(|| Value::from(value.trim()));
            let separator = if self.count == 0 { "{" } else { ", " };
            deltas.arguments(&format!("{separator}{}: {value}", Value::from(key.trim())));
            self.count += 1;
        }
        buffer.commit();
        Ok(Place::Argument)
    }

    fn after(&self, buffer: &mut Buffer, nothing: Step) -> Next {
        match buffer.rest().first() {
            None => Err(nothing),
            Some(b',') if self.is_list => {
                buffer.skip(1);
                Ok(Place::Name)
            }
            Some(b']') if self.is_list => {
                buffer.skip(1);
                Ok(Place::Close)
            }
            Some(_) if self.is_list => Err(Step::Done),
            Some(_) => match self.marks[1].begins(buffer.rest(), buffer.ended) {
                None => Err(Step::More),
                Some(true) => Ok(Place::Close),
                Some(false) => Ok(Place::Name),
            },
        }
    }
}
