//! `[TOOL_CALLS]f[ARGS]{...}`: Mistral from version 11 of its tokenizers on, with `[CALL_ID]id` before the arguments in version 11.

use super::Family;
use crate::buffer::{Buffer, Needle};
use crate::deltas::Deltas;
use crate::json::Value;
use crate::reader::{CallReader, Step};
use crate::rules::literal;
use crate::tool::Tools;

pub(super) const MISTRAL_ARGS: Family = Family {
    name: "mistral-args",
    fits: |source| source.has("[TOOL_CALLS]") && (source.has("[ARGS]") || source.has_token("[ARGS]")),
    openers: &["[TOOL_CALLS]"],
    starts: &[],
    marks: &["[ARGS]", "[CALL_ID]"],
    reader: |format| {
        Box::new(Call {
            marks: ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"].map(|mark| format.needle(mark)),
            place: Place::Mark,
            value: Value::default(),
        })
    },
    rules: |rules| {
        let (open, arguments) = (rules.mark("[TOOL_CALLS]"), rules.mark("[ARGS]"));
        let call = rules.alternatives("call", |rules, tool| {
            let schema = rules.arguments(tool)?;
            Ok(format!("{open} {} {arguments} {schema}", literal(&rules.tool(tool).name)))
        })?;
        rules.calls(&call, "");
        Ok(())
    },
};

#[derive(Clone, Copy, Debug)]
enum Place {
    Mark,
    Name,
    /// After the mark before the arguments.
    Begin,
    Arguments,
}

/// A call.
#[derive(Clone, Debug)]
struct Call {
    /// Before the name, the id and the arguments.
    marks: [Needle; 3],
    place: Place,
    value: Value,
}

impl CallReader for Call {
    fn read(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, _: &Tools) -> Step {
        let [open, id, arguments] = &self.marks;
        let nothing = if buffer.has_no_name() { Step::Failed } else { Step::More };
        loop {
            match self.place {
                Place::Mark => {
                    buffer.skip(open.len());
                    self.place = Place::Name;
                }
                Place::Name => {
                    // The name ends where the id or the arguments begin.
                    let Some((text, which)) = buffer.skip_until(&[id, arguments]) else { return nothing };
                    if which == 0 && buffer.skip_until(&[arguments]).is_none() {
                        buffer.reset();
                        self.place = Place::Mark;
                        return nothing;
                    }
                    let name = String::from_utf8_lossy(&text);
                    let name = name.trim();
                    if name.is_empty() || name.contains(char::is_whitespace) {
                        return Step::Failed;
                    }
                    deltas.call(name);
                    buffer.commit();
                    self.place = Place::Begin;
                }
                Place::Begin => {
                    buffer.skip_space();
                    match buffer.rest().first() {
                        None if buffer.ended => return Step::Done,
                        None => return Step::More,
                        Some(b'{') => self.place = Place::Arguments,
                        Some(_) => {
                            deltas.arguments("{}");
                            return Step::Done;
                        }
                    }
                }
                Place::Arguments => {
                    let mut json = Vec::new();
                    let ended = self.value.read(buffer, &mut json);
                    buffer.commit();
                    deltas.arguments(&String::from_utf8_lossy(&json));
                    return if ended || buffer.ended { Step::Done } else { Step::More };
                }
            }
        }
    }
}
