//! Texts of a JSON schema that are written as they are, without quotation marks and escapes.

use llguidance::derivre::RegexBuilder;
use serde_json::Value;

use crate::error::GrammarError;

/// Levels of references and alternatives that are followed.
const MAX_DEPTH: usize = 16;
/// Schemas that are looked at for a text.
const MAX_SCHEMAS: usize = 256;
/// Maximum length that is counted; texts that may be longer are not limited.
const MAX_LENGTH: u64 = 100_000;
const HINT: &str = "leave it out, and check answers for it";

/// Formats of strings, as regular expressions. Other formats are annotations.
const FORMATS: &[(&str, &str)] = &[
    ("date", DATE),
    ("time", TIME),
    (
        "duration",
        r"P(\d+W|(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))?|T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))",
    ),
    (
        "email",
        r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+",
    ),
    (
        "hostname",
        r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*",
    ),
    ("ipv4", r"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"),
    (
        "ipv6",
        r"([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|([0-9A-Fa-f]{1,4}:){1,6}(:[0-9A-Fa-f]{1,4})|([0-9A-Fa-f]{1,4}:){1,7}:|::",
    ),
    ("uuid", r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"),
    ("uri", r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#@!$&'()*+,;=%\[\]-]+"),
];
const DATE: &str =
    r"\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))";
const TIME: &str = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)";

/// A terminal of Lark that is any text of a schema of strings, written as it is, in which `end` does not come. References begin at `root`.
/// `None` if any text is.
///
/// # Errors
/// The schema has something that is not met.
pub fn plain_text(root: &Value, schema: &Value, end: Option<&str>) -> Result<Option<String>, GrammarError> {
    let text = Reader { root, left: MAX_SCHEMAS }.text(schema, MAX_DEPTH)?;
    let without = end.map(|end| format!(r"~/(.|\n)*{}(.|\n)*/", escaped(end)));
    Ok(text.map(|text| without.into_iter().fold(text, |text, without| format!("{text} & {without}"))))
}

struct Reader<'a> {
    root: &'a Value,
    /// Number of schemas that may still be read.
    left: usize,
}

impl Reader<'_> {
    /// What restricts a text, in brackets.
    fn text(&mut self, schema: &Value, depth: usize) -> Result<Option<String>, GrammarError> {
        let too_large = || GrammarError::new("the schema of a text has too many alternatives", HINT);
        let depth = depth.checked_sub(1).ok_or_else(too_large)?;
        self.left = self.left.checked_sub(1).ok_or_else(too_large)?;
        let Some(keys) = schema.as_object() else { return Ok(None) };
        let mut all = Vec::new();
        let listed = keys.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        for values in listed.into_iter().chain(keys.get("const").map(std::slice::from_ref)) {
            let texts: Vec<String> =
                values.iter().filter(|value| value.is_string()).map(Value::to_string).collect();
            all.push(if texts.is_empty() { return Err(nothing()) } else { texts.join(" | ") });
        }
        let least = keys.get("minLength").and_then(length).unwrap_or(0);
        let most = keys.get("maxLength").and_then(length).filter(|most| *most <= MAX_LENGTH);
        if least > MAX_LENGTH {
            return Err(GrammarError::new(format!("`minLength` {least} is above {MAX_LENGTH}"), HINT));
        }
        if most.is_some_and(|most| most < least) {
            return Err(nothing());
        }
        if least > 0 || most.is_some() {
            let most = most.map_or_else(String::new, |most| most.to_string());
            all.push(format!(r"/(.|\n){{{least},{most}}}/"));
        }
        if let Some(pattern) = keys.get("pattern").and_then(Value::as_str) {
            all.push(regex(&found_anywhere(pattern)?)?);
        }
        if let Some(format) = keys.get("format").and_then(Value::as_str) {
            let date_time = format!("{DATE}[Tt]{TIME}");
            let known = FORMATS.iter().find(|(name, _)| *name == format).map(|(_, text)| *text);
            if let Some(text) = known.or_else(|| (format == "date-time").then_some(&*date_time)) {
                all.push(regex(text)?);
            }
        }
        for key in ["anyOf", "oneOf"] {
            let Some(schemas) = keys.get(key).and_then(Value::as_array) else { continue };
            let alternatives: Result<Vec<_>, _> =
                schemas.iter().map(|schema| self.text(schema, depth)).collect();
            // One that restricts nothing is enough.
            let alternatives: Option<Vec<String>> = alternatives?.into_iter().collect();
            all.extend(alternatives.map(|all| all.join(" | ")));
        }
        for schema in keys.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            all.extend(self.text(schema, depth)?);
        }
        if let Some(reference) = keys.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            let unknown = || GrammarError::new(format!("`{reference}` leads nowhere"), HINT);
            all.extend(self.text(target.ok_or_else(unknown)?, depth)?);
        }
        let all: Vec<String> = all.into_iter().map(|one| format!("({one})")).collect();
        Ok((!all.is_empty()).then(|| format!("({})", all.join(" & "))))
    }
}

fn nothing() -> GrammarError {
    GrammarError::new("no text meets the schema of a string", HINT)
}

/// A length, which may be written as 4.0.
fn length(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|value| *value >= 0.0).map(|value| value as u64))
}

/// The regular expression of texts in which a pattern of JSON Schema is found.
fn found_anywhere(pattern: &str) -> Result<String, GrammarError> {
    let branches = branches(pattern)?.into_iter().map(|branch| {
        let (from_start, branch) = branch.strip_prefix('^').map_or((false, branch), |rest| (true, rest));
        let slashes = |text: &str| text.bytes().rev().take_while(|byte| *byte == b'\\').count();
        let (to_end, branch) = match branch.strip_suffix('$') {
            Some(rest) if slashes(rest).is_multiple_of(2) => (true, rest),
            _ => (false, branch),
        };
        let any = |is_fixed: bool| if is_fixed { "" } else { r"(.|\n)*" };
        format!("{}({branch}){}", any(from_start), any(to_end))
    });
    Ok(branches.collect::<Vec<_>>().join("|"))
}

/// The alternatives of a pattern that are in no brackets. An anchor is met at the begin and the end of one only.
fn branches(pattern: &str) -> Result<Vec<&str>, GrammarError> {
    let (mut all, mut begin) = (Vec::new(), 0);
    let (mut depth, mut in_class, mut is_escaped) = (0_usize, false, false);
    let mut anchors = Vec::new();
    for (at, c) in pattern.char_indices() {
        match c {
            _ if is_escaped => {
                is_escaped = false;
                if matches!(c, 'b' | 'B') && !in_class {
                    anchors.push(at);
                }
            }
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            _ if in_class => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => {
                all.push(&pattern[begin..at]);
                begin = at + 1;
            }
            '^' if depth > 0 || at > begin => anchors.push(at),
            '$' => anchors.push(at),
            _ => {}
        }
    }
    all.push(&pattern[begin..]);
    // A `$` before the end of an alternative.
    let ends: Vec<usize> = all
        .iter()
        .scan(0, |at, branch| {
            *at += branch.len() + 1;
            Some(*at - 2)
        })
        .collect();
    let is_end = |at: &usize| pattern[*at..].starts_with('$') && ends.contains(at);
    match anchors.iter().find(|at| !is_end(at)) {
        None => Ok(all),
        Some(at) => Err(GrammarError::new(
            format!("the pattern {pattern:?} has an anchor within, at {at}"),
            "leave it out, or give a pattern with anchors at its ends",
        )),
    }
}

/// A terminal of a regular expression.
fn regex(source: &str) -> Result<String, GrammarError> {
    let lark = llguidance::regex_to_lark(source, "dw");
    RegexBuilder::new().mk_regex(&lark.replace("\\/", "/")).map_err(|error| {
        GrammarError::new(
            format!(
                "the pattern {source:?} cannot be read: {}",
                crate::error::first_lines(&error.to_string())
            ),
            "use the syntax of the crate `regex`",
        )
    })?;
    Ok(format!("/{lark}/"))
}

/// Characters as a regular expression between the slashes of Lark.
pub fn escaped(text: &str) -> String {
    let is_plain = |c: char| !r"\.+*?()|[]{}^$#&-~/".contains(c) && c != '\n';
    let one = |c: char| match c {
        '\n' => "\\n".to_owned(),
        c if is_plain(c) => c.to_string(),
        c => format!("\\{c}"),
    };
    text.chars().map(one).collect()
}
