//! `parity`: differences between a model and its reference.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::finite::Finite;
use crate::json::version::SchemaVersion;

/// Comparison of a model with a reference dump.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parity {
    /// Always `parity`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// Whether every activation is within the tolerance.
    pub within: bool,
    /// The largest normalised squared error that is within the tolerance.
    pub tolerance: Finite<f64>,
    /// Number of steps that were run.
    pub steps: usize,
    /// Number of activations compared.
    pub compared: usize,
    /// Number of activations beyond the tolerance.
    pub diverging: usize,
    /// The first activation beyond the tolerance, in pass order; `null` if there is none.
    pub first_divergence: Option<ParityLine>,
    /// The activation with the largest error.
    pub worst: Option<ParityLine>,
    /// The most probable tokens of both sides, step by step.
    pub top1: Vec<ParityTop>,
    /// The activations beyond the tolerance, or all of them on request, in pass order.
    pub activations: Vec<ParityLine>,
    /// Further details.
    pub meta: ParityMeta,
}

/// One activation of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParityLine {
    /// The step; step 0 is the prompt.
    pub step: usize,
    /// The name of the activation in the dump, without the step.
    pub activation: String,
    /// Whether it is within the tolerance.
    pub within: bool,
    /// Squared error over squared reference; `null` if the reference is 0 or a value is not finite.
    pub nmse: Option<Finite<f64>>,
    /// Cosine similarity of both; `null` if one is 0 or not finite.
    pub cosine: Option<Finite<f64>>,
    /// The largest absolute error; `null` if a value is not finite.
    pub max_error: Option<Finite<f64>>,
    /// The row of the largest error, from 0.
    pub row: usize,
    /// The column of the largest error, from 0.
    pub column: usize,
    /// Number of the model's values that are infinite or NaN.
    pub non_finite: usize,
}

/// The most probable tokens of both sides in the rows of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParityTop {
    /// The step, from 0.
    pub step: usize,
    /// Number of rows.
    pub rows: usize,
    /// Rows in which both sides have the same most probable token.
    pub agree: usize,
    /// The row in which the reference has the smallest margin between its two largest logits.
    pub closest: Option<ParityChoice>,
    /// The first row in which the two sides choose different tokens; `null` if there is none.
    pub first_other: Option<ParityChoice>,
}

/// The most probable tokens of one row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParityChoice {
    /// The row, from 0.
    pub row: usize,
    /// The reference's token.
    pub reference: usize,
    /// The margin of its logit over the second largest.
    pub reference_margin: Finite<f64>,
    /// The model's token.
    pub own: usize,
    /// The margin of its logit over the second largest.
    pub own_margin: Finite<f64>,
}

/// Details of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParityMeta {
    /// The model that made the dump.
    pub reference: String,
    /// Versions of the software that made the dump.
    pub versions: BTreeMap<String, String>,
    /// Format of weights.
    pub format: String,
    /// Format of keys and values.
    pub kv_format: String,
    /// The tier and formats that were used.
    pub kernel_path: String,
    /// Threads of the engine.
    pub threads: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_documented_shape() {
        let line = ParityLine {
            step: 1,
            activation: "layers.0.query".to_owned(),
            within: false,
            nmse: Some(Finite(0.5)),
            cosine: None,
            max_error: Some(Finite(2.0)),
            row: 0,
            column: 3,
            non_finite: 0,
        };
        let choice = ParityChoice {
            row: 0,
            reference: 7,
            reference_margin: Finite(0.25),
            own: 7,
            own_margin: Finite(0.5),
        };
        let top = ParityTop { step: 0, rows: 1, agree: 1, closest: Some(choice), first_other: None };
        let answer = Parity {
            object: "parity".to_owned(),
            schema: SchemaVersion,
            model: "demo".to_owned(),
            within: false,
            tolerance: Finite(1e-9),
            steps: 2,
            compared: 8,
            diverging: 1,
            first_divergence: Some(line.clone()),
            worst: None,
            top1: vec![top],
            activations: vec![line],
            meta: ParityMeta {
                reference: "gpt2".to_owned(),
                versions: [("torch".to_owned(), "2".to_owned())].into(),
                format: "f32".to_owned(),
                kv_format: "f32".to_owned(),
                kernel_path: "avx2/f32/kv-f32".to_owned(),
                threads: 2,
            },
        };
        let line = r#"{"step":1,"activation":"layers.0.query","within":false,"nmse":0.5,"cosine":null,"max_error":2.0,"row":0,"column":3,"non_finite":0}"#;
        let expect = [
            r#"{"object":"parity","schema":1,"model":"demo","within":false,"tolerance":1e-9,"steps":2,"compared":8,"diverging":1,"first_divergence":"#,
            line,
            r#","worst":null,"top1":[{"step":0,"rows":1,"agree":1,"closest":{"row":0,"reference":7,"reference_margin":0.25,"own":7,"own_margin":0.5},"first_other":null}],"activations":["#,
            line,
            r#"],"meta":{"reference":"gpt2","versions":{"torch":"2"},"format":"f32","kv_format":"f32","kernel_path":"avx2/f32/kv-f32","threads":2}}"#,
        ];
        let json = serde_json::to_string(&answer).unwrap();
        assert_eq!(json, expect.concat());
        assert_eq!(serde_json::from_str::<Parity>(&json).unwrap(), answer);
    }
}
