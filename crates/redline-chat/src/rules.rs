//! Makes the rules of a grammar in llguidance's variant of Lark.

use redline_grammar::{Grammar, escaped};
use serde_json::Value;

use crate::buffer::{Marker, begin_of};
use crate::error::{ChatFormatError, Subject};
use crate::tool::Tool;

/// Most calls in an answer that has to be calls.
const MAX_CALLS: usize = 32;
/// Most bytes of a grammar.
const MAX_BYTES: usize = 1 << 20;

/// The rules of a grammar, of which each has its name.
pub(crate) struct Rules<'a> {
    markers: &'a [Marker],
    /// The tokens that mark a place and are no part of a text.
    special: &'a [u32],
    tools: &'a [Tool],
    /// Whether there may be several calls.
    parallel: bool,
    /// What was added.
    pub(crate) lark: String,
    /// Number of rules with made names.
    count: usize,
}

impl<'a> Rules<'a> {
    /// No rules, with these marks and tools, of which several may be called if `parallel`.
    pub(crate) fn new(markers: &'a [Marker], special: &'a [u32], tools: &'a [Tool], parallel: bool) -> Self {
        Self { markers, special, tools, parallel, lark: String::new(), count: 0 }
    }

    /// Adds a rule.
    pub(crate) fn define(&mut self, name: &str, body: &str) {
        self.lark.push_str(&format!("{name}: {body}\n"));
    }

    /// A tool.
    pub(crate) fn tool(&self, index: usize) -> &Tool {
        &self.tools[index]
    }

    /// A mark: its token, or its characters.
    pub(crate) fn mark(&self, name: &str) -> String {
        match begin_of(name, self.markers) {
            None => literal(name),
            Some((marker, "")) => format!("<[{}]>", marker.id),
            Some((marker, rest)) => format!("<[{}]> {}", marker.id, literal(rest)),
        }
    }

    /// Any text without tokens that mark a place.
    pub(crate) fn any_text(&self) -> String {
        match self.special {
            [] => r"/(.|\n)*/".to_owned(),
            ids => format!("(<[^{}]>)*", ranges(ids)),
        }
    }

    /// Anything that the model may write: text, and the marks of the format.
    pub(crate) fn any_output(&self) -> String {
        let is_own = |id: &u32| self.markers.iter().any(|marker| marker.id == *id);
        let ids: Vec<u32> = self.special.iter().copied().filter(|id| !is_own(id)).collect();
        match ids.as_slice() {
            [] => "<[*]>*".to_owned(),
            ids => format!("(<[^{}]>)*", ranges(ids)),
        }
    }

    /// Any text up to these characters, and these.
    pub(crate) fn text_before(&mut self, end: &str) -> String {
        let name = self.new_name("text");
        let attribute = format!("{name}[suffix={}]", literal(end));
        self.define(&attribute, r"/(.|\n)*/");
        name
    }

    /// A text of a schema of strings as it is, up to this mark or these characters, and that. Of a tool that is not strict any text, if the
    /// schema cannot be met. References begin at `root`.
    pub(crate) fn plain_text(
        &mut self,
        tool: usize,
        root: &Value,
        schema: &Value,
        end: &str,
    ) -> Result<String, ChatFormatError> {
        self.check_size()?;
        let mark = begin_of(end, self.markers).is_some();
        let text = redline_grammar::plain_text(root, schema, (!mark).then_some(end));
        let text = match text {
            Err(error) if self.tools[tool].strict => {
                return Err(ChatFormatError::of_grammar(error, Subject::Tool(tool)));
            }
            text => text.ok().flatten(),
        };
        let name = self.new_name("text");
        let (mark, end) = (mark.then(|| self.mark(end)), literal(end));
        match (text, mark) {
            (Some(text), Some(mark)) => {
                let terminal = name.to_uppercase();
                self.define(&terminal, &text);
                self.define(&name, &format!("{terminal} {mark}"));
            }
            (None, Some(mark)) => {
                let any = self.any_text();
                self.define(&name, &format!("{any} {mark}"));
            }
            (text, None) => {
                let text = text.unwrap_or_else(|| r"/(.|\n)*/".to_owned());
                self.define(&format!("{name}[suffix={end}]"), &text);
            }
        }
        Ok(name)
    }

    /// Up to this number of tokens that are parts of a text, up to another one, and that one.
    pub(crate) fn tokens_before(&mut self, end: u32, most: Option<usize>) -> String {
        let mut ids: Vec<u32> = self.special.iter().copied().chain([end]).collect();
        ids.sort_unstable();
        let count = most.map_or_else(|| "*".to_owned(), |most| format!("{{0,{most}}}"));
        let name = self.new_name("thought");
        self.define(&name, &format!("(<[^{}]>){count} <[{end}]>", ranges(&ids)));
        name
    }

    /// Calls of this form with this separator, as the rule `calls`.
    pub(crate) fn calls(&mut self, call: &str, separator: &str) {
        let list = self.list(call, separator);
        self.define("calls", &list);
    }

    /// One, or several with this separator if there may be several.
    pub(crate) fn list(&self, one: &str, separator: &str) -> String {
        if self.parallel {
            format!("{one} ({separator} {one}){{0,{}}}", MAX_CALLS - 1)
        } else {
            one.to_owned()
        }
    }

    /// A rule with an alternative for each tool.
    pub(crate) fn alternatives(
        &mut self,
        name: &str,
        of: impl Fn(&mut Self, usize) -> Result<String, ChatFormatError>,
    ) -> Result<String, ChatFormatError> {
        let all: Result<Vec<String>, _> = (0..self.tools.len()).map(|tool| of(self, tool)).collect();
        self.define(name, &all?.join(" | "));
        Ok(name.to_owned())
    }

    /// A rule of an object with a name and arguments, under this key.
    pub(crate) fn objects(&mut self, key: &str) -> Result<String, ChatFormatError> {
        self.alternatives("object", |rules, tool| {
            let name = escaped(&literal(&rules.tool(tool).name));
            let head = rules.new_name("HEAD");
            rules.define(&head, &format!(r#"/\{{"name": ?{name}, ?"{key}": ?/"#));
            Ok(format!(r#"{head} {} "}}""#, rules.arguments(tool)?))
        })
    }

    /// The arguments of a tool as JSON.
    pub(crate) fn arguments(&mut self, tool: usize) -> Result<String, ChatFormatError> {
        let schema = self.tools[tool].schema();
        self.json(tool, &schema)
    }

    /// A value of a schema that belongs to a tool, as JSON.
    pub(crate) fn json(&mut self, tool: usize, schema: &Value) -> Result<String, ChatFormatError> {
        self.check_size()?;
        let is_strict = self.tools[tool].strict;
        let value = redline_grammar::json_value(schema).or_else(|error| {
            // Agents pass on schemas of others, which they do not know.
            let kind = schema.get("type").filter(|kind| kind.is_string());
            let any = kind.map_or_else(|| serde_json::json!({}), |kind| serde_json::json!({ "type": kind }));
            if is_strict { Err(error) } else { redline_grammar::json_value(&any) }
        });
        let value = value.map_err(|error| ChatFormatError::of_grammar(error, Subject::Tool(tool)))?;
        let name = self.new_name("json");
        self.define(&name, &value);
        Ok(name)
    }

    /// Refuses schemas that are too large together.
    pub(crate) fn check_size(&self) -> Result<(), ChatFormatError> {
        if self.lark.len() <= MAX_BYTES {
            return Ok(());
        }
        Err(ChatFormatError {
            fact: "the schemas of the tools have more than 1 MiB together".to_owned(),
            subject: Subject::Tools,
            hint: "give fewer tools, or simpler ones",
        })
    }

    /// The named arguments of a tool.
    pub(crate) fn named(&self, tool: usize) -> Result<Vec<(String, Value, bool)>, ChatFormatError> {
        self.tools[tool].arguments().ok_or_else(|| ChatFormatError {
            fact: "it has more than 256 arguments, or a name of one has other characters than letters, digits, `_`, `.`, `-`"
                .to_owned(),
            subject: Subject::Tool(tool),
            hint: "give `tool_choice` = \"auto\", or simpler arguments",
        })
    }

    /// Arguments in a list with this separator, in their order: all that are required, and any of the others.
    pub(crate) fn sequence(&mut self, arguments: &[(String, bool)], separator: &str) -> String {
        // From an argument on: what comes after others, and what comes first.
        let (mut more, mut first) = (r#""""#.to_owned(), r#""""#.to_owned());
        for (argument, is_required) in arguments.iter().rev() {
            let (next_more, next_first) = (self.new_name("more"), self.new_name("first"));
            let or_none = if *is_required { "" } else { "?" };
            let or_later = if *is_required { String::new() } else { format!(" | {first}") };
            self.define(&next_first, &format!("{argument} {more}{or_later}"));
            self.define(&next_more, &format!("({} {argument}){or_none} {more}", literal(separator)));
            (more, first) = (next_more, next_first);
        }
        first
    }

    /// The grammar of a request as a rule.
    pub(crate) fn nested(&mut self, text: &Grammar) -> Result<String, ChatFormatError> {
        let lark = text.nested().map_err(|error| ChatFormatError::of_grammar(error, Subject::Text))?;
        let name = self.new_name("answer");
        self.define(&name, &lark);
        Ok(name)
    }

    /// A name that no other rule has.
    pub(crate) fn new_name(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }
}

/// These characters.
pub(crate) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// Sorted ids as the library writes them: `1,4-7`.
fn ranges(ids: &[u32]) -> String {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for &id in ids {
        match all.last_mut() {
            Some((_, last)) if id <= last.saturating_add(1) => *last = id.max(*last),
            _ => all.push((id, id)),
        }
    }
    let written = all
        .iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    written.collect::<Vec<_>>().join(",")
}
