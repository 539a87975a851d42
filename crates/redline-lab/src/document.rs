//! JSON documents that commands print: indented, with the name and version of their form.

use serde::Serialize;

/// `value` as a JSON object that begins with `schema`, with a line break at the end.
pub(crate) fn json(schema: &'static str, value: &impl Serialize) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Document<'a, T> {
        schema: &'static str,
        #[serde(flatten)]
        value: &'a T,
    }
    serde_json::to_string_pretty(&Document { schema, value }).map(|text| text + "\n")
}
