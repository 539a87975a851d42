//! Events of a profile, in the Trace Event Format that Chrome and Perfetto open.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::json::finite::Finite;

/// A profile: the content of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceDocument {
    /// The time unit that viewers display.
    pub display_time_unit: String,
    /// The events; a parent comes before its children.
    pub trace_events: Vec<TraceEvent>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// The displayed name.
    pub name: Cow<'static, str>,
    /// `request`, `pass`, `layer`, `operation`, `thread`, or `__metadata`.
    pub cat: Cow<'static, str>,
    /// `X`: a span; `b` and `e`: begin and end of a request; `M`: the name of a process or a track.
    pub ph: Cow<'static, str>,
    /// Microseconds since the process began.
    pub ts: Finite<f64>,
    /// Duration of a span in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dur: Option<Finite<f64>>,
    /// The engine, from 1.
    pub pid: u32,
    /// The track: 0 requests, 1 passes with their layers and operations, from 2 on the threads.
    pub tid: u32,
    /// The id that a `b` event shares with its `e` event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Further details.
    #[serde(default)]
    pub args: TraceArgs,
}

/// Details of an event. Fields that do not apply are omitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceArgs {
    /// Name of a process or a track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'static, str>>,
    /// Sort position of a track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_index: Option<u32>,
    /// The pass, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<u64>,
    /// The layer, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<usize>,
    /// Number of requests in a pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<u64>>,
    /// Tokens of a pass, or tokens computed for a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<usize>,
    /// Number of sequences in a pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequences: Option<usize>,
    /// Rows of a pass whose logits were needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<usize>,
    /// The bucket of the plan used for a pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Number of rows of an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub m: Option<usize>,
    /// Width of a row of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<usize>,
    /// Length of the reduction: inputs of a linear layer, keys of attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<usize>,
    /// Format of its weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The variant that was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<Cow<'static, str>>,
    /// Why a request ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Cow<'static, str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_shape_that_viewers_read() {
        let event = TraceEvent {
            name: "linear qkv".into(),
            cat: "operation".into(),
            ph: "X".into(),
            ts: Finite(12.345),
            dur: Some(Finite(0.5)),
            pid: 1,
            tid: 1,
            id: None,
            args: TraceArgs {
                layer: Some(0),
                m: Some(4),
                variant: Some("dot".into()),
                ..TraceArgs::default()
            },
        };
        let profile = TraceDocument { display_time_unit: "ms".to_owned(), trace_events: vec![event] };
        let json = serde_json::to_string(&profile).unwrap();
        let expect = concat!(
            r#"{"displayTimeUnit":"ms","traceEvents":[{"name":"linear qkv","cat":"operation","ph":"X","#,
            r#""ts":12.345,"dur":0.5,"pid":1,"tid":1,"args":{"layer":0,"m":4,"variant":"dot"}}]}"#
        );
        assert_eq!(json, expect);
        assert_eq!(serde_json::from_str::<TraceDocument>(&json).unwrap(), profile);
    }
}
