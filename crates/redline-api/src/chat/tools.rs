//! The tools that a model may call, and how it reasons, as OpenAI's routes have them.

use redline_chat::{Tool, Tools};
use redline_engine::closed_schema;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::parts::part;
use crate::json::shape::schemas;
use crate::json::text::JsonText;

/// Most tools of a request.
pub const MAX_TOOLS: usize = 512;
/// Longest name of a tool in characters.
const MAX_NAME: usize = 64;

part! {
    /// Which tools a model may call, beside their list, and how it reasons before it answers.
    pub struct AgentKeys {
        /// Which tool to call: `auto`, `none`, `required`; one by its name; or some of them.
        #[schemars(with = "Option<ToolChoice>")]
        pub tool_choice: JsonText,
        /// Whether an answer may call several tools.
        pub parallel_tool_calls: bool,
        /// Whether the answer shows its reasoning, which is `true` unless it is given.
        pub include_reasoning: bool,
        /// Number of tokens after which reasoning ends, if the model reasons.
        #[schemars(range(min = 1, max = MAX_BUDGET))]
        pub thinking_token_budget: usize,
    }
}

/// Largest number of tokens of reasoning that can be counted.
pub const MAX_BUDGET: usize = 100_000;

/// How much to reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Not at all.
    None,
    /// As little as the model can.
    Minimal,
    /// Little.
    Low,
    /// As usual.
    Medium,
    /// Much.
    High,
    /// Very much.
    Xhigh,
    /// As much as the model can.
    Max,
}

impl Effort {
    /// Its name, which templates read.
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// The variables of the template that say so.
    pub(crate) fn variables(self) -> [(String, JsonText); 2] {
        [
            ("reasoning_effort".to_owned(), JsonText::text(self.name())),
            ("enable_thinking".to_owned(), JsonText::boolean(self != Self::None)),
        ]
    }
}

/// Which tool to call.
struct ToolChoice;
/// A tool.
pub(crate) struct ToolShape;
/// A tool whose description is not in an object of its own.
pub(crate) struct FlatToolShape;

fn described() -> Value {
    json!({
        "name": { "type": "string", "pattern": "^[a-zA-Z0-9_.-]{1,64}$" },
        "description": { "type": ["string", "null"] },
        "parameters": { "type": ["object", "null"] },
        "strict": { "type": ["boolean", "null"] }
    })
}

schemas! {
    ToolChoice: |_g| json!({
        "anyOf": [{ "type": "string", "enum": ["auto", "none", "required"] }, { "type": "object" }]
    });
    ToolShape: |_g| json!({
        "type": "object",
        "properties": {
            "type": { "enum": ["function"] },
            "function": { "type": "object", "properties": described(), "required": ["name"] }
        },
        "required": ["type", "function"]
    });
    FlatToolShape: |_g| {
        let mut properties = described();
        properties["type"] = json!({ "enum": ["function"] });
        json!({ "type": "object", "properties": properties, "required": ["type", "name"] })
    };
}

/// In which form tools are described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolForm {
    /// `{"type": "function", "function": {"name": ..., "parameters": ...}}`.
    Nested,
    /// `{"type": "function", "name": ..., "parameters": ...}`.
    Flat,
    /// `{"name": ..., "input_schema": ...}`.
    Anthropic,
}

/// Which calls an answer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// None.
    #[default]
    None,
    /// As the model chooses.
    Auto,
    /// At least one.
    Required,
    /// One of a tool that the request names.
    Named,
}

/// The tools of a request, and which of them an answer calls.
#[derive(Clone, Debug, Default)]
pub struct ToolUse {
    /// The tools that may be called.
    pub(crate) tools: Tools,
    /// The tools as templates read them.
    pub(crate) shown: Vec<JsonText>,
    pub(crate) choice: Choice,
    /// Whether there may be several calls.
    pub(crate) parallel: bool,
}

impl ToolUse {
    /// Reads tools and the choice among them.
    pub(crate) fn of(
        form: ToolForm,
        tools: Option<Vec<JsonText>>,
        choice: Option<&JsonText>,
        parallel: Option<bool>,
    ) -> Result<Self, ApiError> {
        let given = tools.unwrap_or_default();
        if given.len() > MAX_TOOLS {
            let fact = format!("{} tools are given", given.len());
            return Err(refused("tools", fact, format!("give at most {MAX_TOOLS}")));
        }
        let mut all = Self { parallel: parallel.unwrap_or(true), ..Self::default() };
        for (index, json) in given.into_iter().enumerate() {
            let param = format!("tools[{index}]");
            let (tool, shown) = described_tool(form, &param, json)?;
            if all.tools.0.iter().any(|other| other.name == tool.name) {
                let fact = format!("two tools are named {:?}", tool.name);
                return Err(refused(&param, fact, "give each a name of its own"));
            }
            all.tools.0.push(tool);
            all.shown.push(shown);
        }
        all.choose(choice)?;
        Ok(all)
    }

    fn choose(&mut self, choice: Option<&JsonText>) -> Result<(), ApiError> {
        let default = if self.tools.0.is_empty() { "none" } else { "auto" };
        let value = choice.map_or(Ok(Value::from(default)), |choice| serde_json::from_str(choice.as_str()));
        let value = value.unwrap_or_default();
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let wrong = || {
            let hint = "give \"auto\", \"none\", \"required\", or {\"type\": \"function\", \"function\": {\"name\": ...}}";
            refused("tool_choice", format!("`tool_choice` is {value}"), hint)
        };
        self.choice = match value.as_str().or(text("type")).unwrap_or_default() {
            "none" => Choice::None,
            // Some clients say so although there is nothing to choose.
            "auto" if self.tools.0.is_empty() => Choice::None,
            "auto" => Choice::Auto,
            "required" | "any" => Choice::Required,
            "function" | "tool" => {
                let name = text("name").or_else(|| value.get("function")?.get("name")?.as_str());
                self.keep(&[name.ok_or_else(wrong)?])?;
                Choice::Named
            }
            "allowed_tools" => {
                let of = value.get("allowed_tools").unwrap_or(&value);
                let name = |tool: &Value| {
                    let name = tool.get("name").or_else(|| tool.get("function")?.get("name"));
                    name.and_then(Value::as_str).map(str::to_owned)
                };
                let names = of.get("tools").and_then(Value::as_array).ok_or_else(wrong)?;
                let names: Option<Vec<String>> = names.iter().map(name).collect();
                let names = names.ok_or_else(wrong)?;
                self.keep(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
                match of.get("mode").and_then(Value::as_str) {
                    Some("required") => Choice::Required,
                    Some("auto") | None => Choice::Auto,
                    Some(_) => return Err(wrong()),
                }
            }
            _ => return Err(wrong()),
        };
        if value.get("disable_parallel_tool_use") == Some(&Value::Bool(true)) {
            self.parallel = false;
        }
        if self.choice != Choice::None && self.tools.0.is_empty() {
            let fact = format!("`tool_choice` is {value}, and there are no tools");
            return Err(refused("tool_choice", fact, "give `tools`, or leave it out"));
        }
        Ok(())
    }

    /// Keeps the tools of these names as those that may be called.
    fn keep(&mut self, names: &[&str]) -> Result<(), ApiError> {
        if let Some(unknown) = names.iter().find(|name| self.tools.0.iter().all(|tool| tool.name != **name)) {
            let known: Vec<&str> = self.tools.0.iter().map(|tool| &*tool.name).collect();
            let fact = format!("`tool_choice` names {unknown:?}, and the tools are {known:?}");
            return Err(refused("tool_choice", fact, "name one of them"));
        }
        self.tools.0.retain(|tool| names.contains(&&*tool.name));
        Ok(())
    }
}

/// A call of the history as templates read it. `param` is the field of the arguments, which are an object.
pub(crate) fn past_call(
    id: String,
    name: String,
    arguments: Option<Value>,
    param: &str,
) -> Result<Value, ApiError> {
    let arguments = arguments.unwrap_or_else(|| json!({}));
    if !arguments.is_object() {
        return Err(refused(param, format!("`{param}` is no object"), "give an object"));
    }
    Ok(json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }))
}

/// A tool, and how templates read it.
fn described_tool(form: ToolForm, param: &str, json: JsonText) -> Result<(Tool, JsonText), ApiError> {
    let hint = match form {
        ToolForm::Nested => {
            "give {\"type\": \"function\", \"function\": {\"name\": ..., \"parameters\": {...}}}"
        }
        ToolForm::Flat => "give {\"type\": \"function\", \"name\": ..., \"parameters\": {...}}",
        ToolForm::Anthropic => "give {\"name\": ..., \"input_schema\": {...}}",
    };
    let value: Value = serde_json::from_str(json.as_str())
        .map_err(|error| refused(param, format!("`{param}` cannot be read: {error}"), hint))?;
    let kind = value.get("type");
    let expected = if form == ToolForm::Anthropic { "custom" } else { "function" };
    if kind.is_none() && form != ToolForm::Anthropic || kind.is_some_and(|kind| kind != expected) {
        let param = format!("{param}.type");
        let kind = kind.map_or("missing".to_owned(), Value::to_string);
        let fact = format!("`{param}` is {kind}, and only functions can be called");
        return Err(refused(&param, fact, hint));
    }
    let (of, place) = match form {
        ToolForm::Nested => (value.get("function").unwrap_or(&Value::Null), format!("{param}.function")),
        ToolForm::Flat | ToolForm::Anthropic => (&value, param.to_owned()),
    };
    let name = of.get("name").and_then(Value::as_str).unwrap_or_default();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if !(1..=MAX_NAME).contains(&name.len()) || !name.chars().all(is_part) {
        let param = format!("{place}.name");
        let fact = format!("`{param}` is {name:?}");
        return Err(refused(&param, fact, "give 1 to 64 letters, digits, `_`, `-` and `.`"));
    }
    let key = if form == ToolForm::Anthropic { "input_schema" } else { "parameters" };
    let parameters = of.get(key).filter(|schema| !schema.is_null());
    if parameters.is_some_and(|schema| !schema.is_object()) {
        let param = format!("{place}.{key}");
        return Err(refused(&param, format!("`{param}` is no object"), "give a JSON schema of an object"));
    }
    for (key, is_right, hint) in [
        ("strict", Value::is_boolean as fn(&Value) -> bool, "give true or false"),
        ("description", Value::is_string, "give a text"),
    ] {
        if of.get(key).is_some_and(|value| !value.is_null() && !is_right(value)) {
            let param = format!("{place}.{key}");
            return Err(refused(&param, format!("`{param}` has another type"), hint));
        }
    }
    let strict = of.get("strict") == Some(&Value::Bool(true));
    let parameters = parameters.map(|schema| closed_schema(schema).unwrap_or_else(|| schema.clone()));
    let tool = Tool { name: name.to_owned(), parameters, strict };
    let shown = match form {
        ToolForm::Nested => json,
        ToolForm::Flat | ToolForm::Anthropic => {
            let mut function = json!({ "name": name });
            for (to, from) in [("description", "description"), ("parameters", key)] {
                if let Some(value) = of.get(from).filter(|value| !value.is_null()) {
                    function[to] = value.clone();
                }
            }
            JsonText::object(&json!({ "type": "function", "function": function }).to_string())
        }
    };
    Ok((tool, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: ToolForm, tools: &Value, choice: Option<Value>) -> Result<ToolUse, String> {
        let texts =
            tools.as_array().unwrap().iter().map(|tool| JsonText::object(&tool.to_string())).collect();
        let choice = choice.map(|choice| JsonText::object(&choice.to_string()));
        ToolUse::of(form, Some(texts), choice.as_ref(), None).map_err(|error| error.to_string())
    }

    fn two() -> Value {
        let one =
            |name: &str| json!({ "type": "function", "function": { "name": name, "strict": name == "b" } });
        json!([one("a"), one("b")])
    }

    #[test]
    fn every_choice_is_read() {
        for (choice, expected, names) in [
            (None, Choice::Auto, vec!["a", "b"]),
            (Some(json!("none")), Choice::None, vec!["a", "b"]),
            (Some(json!("required")), Choice::Required, vec!["a", "b"]),
            (Some(json!({ "type": "function", "function": { "name": "b" } })), Choice::Named, vec!["b"]),
            (Some(json!({ "type": "function", "name": "a" })), Choice::Named, vec!["a"]),
            (Some(json!({ "type": "any" })), Choice::Required, vec!["a", "b"]),
            (
                Some(json!({ "type": "allowed_tools", "allowed_tools": { "mode": "required", "tools": [
                    { "type": "function", "function": { "name": "b" } }
                ] } })),
                Choice::Required,
                vec!["b"],
            ),
            (
                Some(json!({ "type": "allowed_tools", "mode": "auto", "tools": [{ "name": "a" }] })),
                Choice::Auto,
                vec!["a"],
            ),
        ] {
            let read = of(ToolForm::Nested, &two(), choice.clone()).unwrap();
            let read_names: Vec<&str> = read.tools.0.iter().map(|tool| &*tool.name).collect();
            assert_eq!(
                (read.choice, read_names, read.shown.len()),
                (expected, names.clone(), 2),
                "{choice:?}"
            );
            assert!(read.tools.0.iter().all(|tool| tool.strict == (tool.name == "b")));
        }
        let none = ToolUse::of(ToolForm::Nested, None, Some(&JsonText::text("auto")), None).unwrap();
        assert_eq!(none.choice, Choice::None);
    }

    #[test]
    fn other_forms_become_that_of_templates() {
        let schema = json!({ "type": "object", "properties": { "x": { "type": "string" } } });
        let expected = json!({ "type": "function", "function": { "name": "f", "description": "d", "parameters": schema } });
        for (form, tool) in [
            (
                ToolForm::Flat,
                json!({ "type": "function", "description": "d", "name": "f", "parameters": schema }),
            ),
            (ToolForm::Anthropic, json!({ "name": "f", "input_schema": schema, "description": "d" })),
        ] {
            let read = of(form, &json!([tool]), None).unwrap();
            assert_eq!(serde_json::from_str::<Value>(read.shown[0].as_str()).unwrap(), expected);
            // Calls have no other arguments.
            let parameters = read.tools.0[0].parameters.as_ref().unwrap();
            assert_eq!(Some(parameters), closed_schema(&schema).as_ref());
            assert_eq!(parameters["additionalProperties"], false);
        }
    }

    #[test]
    fn what_is_no_tool_is_refused_by_its_place() {
        for (tools, choice, expected) in [
            (json!([{ "function": { "name": "f" } }]), None, "`tools[0].type` is missing"),
            (json!([{ "type": "custom", "custom": {} }]), None, "`tools[0].type` is \"custom\""),
            (json!([{ "type": "function" }]), None, "`tools[0].function.name` is \"\""),
            (
                json!([{ "type": "function", "function": { "name": "a", "strict": 1 } }]),
                None,
                "`tools[0].function.strict` has another type",
            ),
            (json!([{ "type": "function", "function": { "name": "a b" } }]), None, "\"a b\""),
            (
                json!([{ "type": "function", "function": { "name": "f", "parameters": [] } }]),
                None,
                "parameters` is no object",
            ),
            (json!([two()[0], two()[0]]), None, "two tools are named \"a\""),
            (two(), Some(json!("maybe")), "`tool_choice` is \"maybe\""),
            (two(), Some(json!({ "type": "function" })), "`tool_choice` is {"),
            (
                two(),
                Some(json!({ "type": "function", "name": "c" })),
                "names \"c\", and the tools are [\"a\", \"b\"]",
            ),
            (json!([]), Some(json!("required")), "and there are no tools"),
            (Value::from(vec![two()[0].clone(); 513]), None, "513 tools are given"),
        ] {
            let error = of(ToolForm::Nested, &tools, choice).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
