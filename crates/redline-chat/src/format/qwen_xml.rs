//! `<tool_call>\n<function=f>\n<parameter=k>\nVALUE\n</parameter>\n</function>\n</tool_call>`: Qwen 3 Coder, Qwen 3.5, Nemotron 3.

use serde_json::Value;

use super::Family;
use crate::buffer::{Buffer, Needle, find, held, visible};
use crate::deltas::Deltas;
use crate::python;
use crate::reader::{CallReader, Step};
use crate::rules::literal;
use crate::tool::{Tools, Types, types};

pub(super) const QWEN_XML: Family = Family {
    name: "qwen-xml",
    fits: |source| source.has("<function=") && source.has("<parameter="),
    // Some models leave the outer mark out.
    openers: &["<tool_call>", "<function="],
    starts: &[],
    marks: &["</tool_call>"],
    reader: |format| {
        Box::new(Call {
            open: format.needle("<tool_call>"),
            close: format.needle("</tool_call>"),
            place: Place::Function,
            name: String::new(),
            count: 0,
        })
    },
    rules: |rules| {
        let (open, close) = (rules.mark("<tool_call>"), rules.mark("</tool_call>"));
        let function = rules.alternatives("function", |rules, tool| {
            let mut parts = vec![literal(&format!("<function={}>\n", rules.tool(tool).name))];
            for (name, schema, is_required) in rules.named(tool)? {
                // Texts are written as they are.
                let value = if types(&schema).other {
                    format!("{} {}", rules.json(tool, &schema)?, literal("\n</parameter>"))
                } else {
                    rules.plain_text(tool, &schema, &schema, "\n</parameter>")?
                };
                let parameter = format!(r#"{} {value} "\n""#, literal(&format!("<parameter={name}>\n")));
                parts.push(if is_required { parameter } else { format!("({parameter})?") });
            }
            parts.push(literal("</function>"));
            Ok(parts.join(" "))
        })?;
        rules.calls(&format!(r#"{open} "\n" {function} "\n" {close}"#), r#""\n""#);
        Ok(())
    },
};

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Before the name.
    Function,
    /// Before a parameter, or the end.
    Parameter,
    /// Before a value of these types.
    Begin(Types),
    /// In a value of these types, and whether it began on a line of its own: then it ends on one, and may contain the end mark.
    Value(Types, bool),
    /// After the function.
    Close,
}

/// A call.
struct Call {
    open: Needle,
    close: Needle,
    place: Place,
    name: String,
    /// Number of arguments.
    count: usize,
}

impl CallReader for Call {
    fn read(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, tools: &Tools) -> Step {
        loop {
            let next = match self.place {
                Place::Function => self.function(buffer, deltas),
                Place::Parameter => self.parameter(buffer, deltas, tools),
                Place::Begin(types) => self.begin(buffer, deltas, types),
                Place::Value(types, has_line) => self.value(buffer, deltas, types, has_line),
                Place::Close => Err(self.close(buffer)),
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

impl Call {
    /// What to say if nothing more can be read.
    fn nothing(&self, buffer: &Buffer) -> Step {
        match (buffer.ended, self.name.is_empty()) {
            (false, _) => Step::More,
            (true, false) => Step::Done,
            (true, true) => Step::Failed,
        }
    }

    /// What to say if the end of a name has not come.
    fn no_name(&self, buffer: &Buffer) -> Step {
        match (buffer.has_no_name(), self.name.is_empty()) {
            (false, _) => Step::More,
            (true, false) => Step::Done,
            (true, true) => Step::Failed,
        }
    }

    /// The mark and the name, which are short: they are read anew until they have come.
    fn function(&mut self, buffer: &mut Buffer, deltas: &mut Deltas) -> Next {
        buffer.reset();
        buffer.skip_if(&self.open).ok_or(Step::More)?;
        buffer.skip_space();
        match buffer.skip_if(&Needle::text("<function=")) {
            None => return Err(Step::More),
            Some(false) => return Err(Step::Failed),
            Some(true) => {}
        }
        let (name, _) = buffer.skip_until(&[&Needle::text(">")]).ok_or_else(|| self.no_name(buffer))?;
        let name = visible(&name);
        if name.trim().is_empty() {
            return Err(Step::Failed);
        }
        name.trim().clone_into(&mut self.name);
        deltas.call(&self.name);
        buffer.commit();
        Ok(Place::Parameter)
    }

    fn parameter(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, tools: &Tools) -> Next {
        buffer.reset();
        buffer.skip_space();
        let begins = buffer.skip_if(&Needle::text("<parameter="));
        if begins == Some(true) {
            let (key, _) = buffer.skip_until(&[&Needle::text(">")]).ok_or_else(|| self.no_name(buffer))?;
            let key = visible(&key).trim().to_owned();
            let separator = if self.count == 0 { "{" } else { ", " };
            self.count += 1;
            deltas.arguments(&format!("{separator}{}: ", Value::from(&*key)));
            buffer.commit();
            return Ok(Place::Begin(tools.types(&self.name, &key)));
        }
        let ends = buffer.skip_if(&Needle::text("</function>"));
        if begins.is_none() || ends.is_none() {
            return Err(self.nothing(buffer));
        }
        // Whatever else comes ends the call too.
        deltas.arguments(if self.count == 0 { "{}" } else { "}" });
        buffer.commit();
        Ok(Place::Close)
    }

    fn begin(&self, buffer: &mut Buffer, deltas: &mut Deltas, types: Types) -> Next {
        let has_line = buffer.skip_if(&Needle::text("\n")).ok_or_else(|| self.nothing(buffer))?;
        buffer.commit();
        if !types.other {
            deltas.arguments("\"");
        }
        Ok(Place::Value(types, has_line))
    }

    fn value(&self, buffer: &mut Buffer, deltas: &mut Deltas, types: Types, has_line: bool) -> Next {
        let ends = [Needle::text("\n</parameter>"), Needle::text("</parameter>")];
        let ends: Vec<&Needle> = ends.iter().take(if has_line { 1 } else { 2 }).collect();
        let found = find(buffer.rest(), &ends);
        if types.other && found.is_none() {
            return Err(self.nothing(buffer));
        }
        let rest = buffer.rest();
        let all = if buffer.ended { rest.len() } else { rest.len() - held(rest, &ends) };
        let text = visible(&buffer.take(found.map_or(all, |(at, _)| at)));
        if types.other {
            deltas.arguments(&value(&text, types).to_string());
        } else {
            let quoted = Value::from(text).to_string();
            deltas.arguments(&quoted[1..quoted.len() - 1]);
        }
        let (_, which) = found.ok_or_else(|| self.nothing(buffer))?;
        buffer.take(ends[which].len());
        if !types.other {
            deltas.arguments("\"");
        }
        Ok(Place::Parameter)
    }

    fn close(&self, buffer: &mut Buffer) -> Step {
        buffer.skip_space();
        match buffer.skip_if(&self.close) {
            None => return Step::More,
            Some(true) => buffer.commit(),
            Some(false) => buffer.reset(),
        }
        Step::Done
    }
}

/// The value that a text is. What is in quotation marks is the string that JSON has for it, and what is no value is the string itself.
fn value(text: &str, types: Types) -> Value {
    match python::value(text.trim()) {
        Some(Value::String(_)) | None => {
            serde_json::from_str::<String>(text.trim()).map_or_else(|_| Value::from(text), Value::from)
        }
        Some(value) if types.other => value,
        Some(_) => Value::from(text),
    }
}
