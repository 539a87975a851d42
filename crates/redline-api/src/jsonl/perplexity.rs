//! `perplexity`: how well a model predicts a text.

use redline_engine::{ComparisonOutcome, Estimate, PerplexityOutcome};
use serde::{Deserialize, Serialize};

use crate::json::finite::Finite;
use crate::json::version::SchemaVersion;
use crate::model::LoadedModel;

/// A mean and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerplexityEstimate {
    /// The mean.
    pub value: Finite<f64>,
    /// Its standard error; `null` if there was only one value.
    pub standard_error: Option<Finite<f64>>,
}

/// Perplexity of a text under a model, with an optional comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Perplexity {
    /// Always `perplexity`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// Perplexity.
    pub perplexity: PerplexityEstimate,
    /// Negative log-likelihood, nats per token.
    pub nll: PerplexityEstimate,
    /// Number of tokens predicted.
    pub tokens: usize,
    /// The comparison with a reference, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    /// Further details.
    pub meta: PerplexityMeta,
}

/// Comparison of the model Q with the reference P.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// The reference's name.
    pub model: String,
    /// Its perplexity.
    pub perplexity: PerplexityEstimate,
    /// Its negative log-likelihood, nats per token.
    pub nll: PerplexityEstimate,
    /// KL(P || Q), nats per token.
    pub kl_divergence: KlDivergence,
    /// Share of tokens for which both models have the same most probable token.
    pub top1_agreement: Finite<f64>,
    /// ln(perplexity of Q / perplexity of P).
    pub ln_ratio: PerplexityEstimate,
    /// How the reference was run.
    pub run: PerplexityRun,
}

/// A KL divergence over many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KlDivergence {
    /// Its mean.
    #[serde(flatten)]
    pub mean: PerplexityEstimate,
    /// The median; `null` with fewer than 100 tokens.
    pub median: Option<Finite<f64>>,
    /// The 99th percentile; `null` with fewer than 100 tokens.
    pub p99: Option<Finite<f64>>,
    /// The largest value.
    pub max: Finite<f64>,
}

/// How a model was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerplexityRun {
    /// Format of weights.
    pub format: String,
    /// Format of keys and values.
    pub kv_format: String,
    /// The tier and formats that were used.
    pub kernel_path: String,
    /// Threads of the engine.
    pub threads: usize,
    /// Seconds inside the engine.
    pub compute_s: Finite<f64>,
    /// Tokens predicted per second of `compute_s`.
    pub tokens_per_s: Option<Finite<f64>>,
}

/// Details of a perplexity answer besides the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerplexityMeta {
    /// Number of windows that were run.
    pub windows: usize,
    /// Tokens per window; the last window may be shorter.
    pub window: usize,
    /// Whether the whole text was run. If not, the figures cover the tokens before Ctrl-C.
    pub complete: bool,
    /// Peak of the bytes allocated by the process while the request ran, including weights; `null` if allocations are not
    /// counted, or if another request ran at the same time.
    pub peak_memory_bytes: Option<u64>,
    /// How the model was run.
    #[serde(flatten)]
    pub run: PerplexityRun,
}

/// Builds the JSON document of the answer for one model.
pub fn answer(model: &LoadedModel, outcome: &PerplexityOutcome) -> Perplexity {
    Perplexity {
        object: "perplexity".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        perplexity: estimate(outcome.perplexity),
        nll: estimate(outcome.nll),
        tokens: outcome.tokens,
        against: None,
        meta: PerplexityMeta {
            windows: outcome.windows,
            window: outcome.window,
            complete: !outcome.cancelled,
            peak_memory_bytes: outcome.peak_memory_bytes,
            run: run(model, outcome),
        },
    }
}

/// Builds the JSON document of the answer for a model that was compared with a reference.
pub fn comparison(model: &LoadedModel, reference: &LoadedModel, outcome: &ComparisonOutcome) -> Perplexity {
    Perplexity { against: Some(against(reference, outcome)), ..answer(model, &outcome.model) }
}

fn against(reference: &LoadedModel, outcome: &ComparisonOutcome) -> Against {
    let divergence = &outcome.divergence;
    Against {
        model: reference.name.clone(),
        perplexity: estimate(outcome.reference.perplexity),
        nll: estimate(outcome.reference.nll),
        kl_divergence: KlDivergence {
            mean: estimate(divergence.kl),
            median: divergence.kl_median.map(Finite),
            p99: divergence.kl_p99.map(Finite),
            max: Finite(divergence.kl_max),
        },
        top1_agreement: Finite(divergence.top1_agreement),
        ln_ratio: estimate(divergence.ln_ratio),
        run: run(reference, &outcome.reference),
    }
}

fn estimate(from: Estimate) -> PerplexityEstimate {
    PerplexityEstimate { value: Finite(from.value), standard_error: from.standard_error.map(Finite) }
}

fn run(model: &LoadedModel, outcome: &PerplexityOutcome) -> PerplexityRun {
    let info = model.engine.info();
    PerplexityRun {
        format: info.format.to_string(),
        kv_format: info.kv_format.name().to_owned(),
        kernel_path: outcome.kernel_path.clone(),
        threads: info.threads,
        compute_s: Finite(outcome.compute_s),
        tokens_per_s: tokens_per_s(outcome).map(Finite),
    }
}

/// Tokens per second of computation; `None` if no time was measured.
pub fn tokens_per_s(outcome: &PerplexityOutcome) -> Option<f64> {
    (outcome.compute_s > 0.0).then(|| outcome.tokens as f64 / outcome.compute_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, standard_error: Option<f64>) -> PerplexityEstimate {
        PerplexityEstimate { value: Finite(value), standard_error: standard_error.map(Finite) }
    }

    #[test]
    fn an_answer_has_the_documented_shape() {
        let run = PerplexityRun {
            format: "w8".to_owned(),
            kv_format: "bf16".to_owned(),
            kernel_path: "avx2/w8/kv-bf16".to_owned(),
            threads: 2,
            compute_s: Finite(0.5),
            tokens_per_s: Some(Finite(6.0)),
        };
        let mut answer = Perplexity {
            object: "perplexity".to_owned(),
            schema: SchemaVersion,
            model: "demo".to_owned(),
            perplexity: estimate(33.5, Some(0.25)),
            nll: estimate(3.5, None),
            tokens: 3,
            against: None,
            meta: PerplexityMeta {
                windows: 1,
                window: 512,
                complete: true,
                peak_memory_bytes: None,
                run: run.clone(),
            },
        };
        let json = serde_json::to_string(&answer).unwrap();
        let run_json = r#""format":"w8","kv_format":"bf16","kernel_path":"avx2/w8/kv-bf16","threads":2,"compute_s":0.5,"tokens_per_s":6.0}"#;
        let expect = [
            r#"{"object":"perplexity","schema":1,"model":"demo","perplexity":{"value":33.5,"standard_error":0.25},"nll":{"value":3.5,"standard_error":null},"tokens":3,"#,
            r#""meta":{"windows":1,"window":512,"complete":true,"peak_memory_bytes":null,"#,
            run_json,
            "}",
        ];
        assert_eq!(json, expect.concat());
        assert_eq!(serde_json::from_str::<Perplexity>(&json).unwrap(), answer);
        answer.against = Some(Against {
            model: "demo".to_owned(),
            perplexity: estimate(33.0, Some(0.25)),
            nll: estimate(3.25, Some(0.125)),
            kl_divergence: KlDivergence {
                mean: estimate(0.5, Some(0.25)),
                median: Some(Finite(0.25)),
                p99: None,
                max: Finite(2.0),
            },
            top1_agreement: Finite(0.75),
            ln_ratio: estimate(0.25, Some(0.5)),
            run,
        });
        let json = serde_json::to_string(&answer).unwrap();
        let kl = r#""kl_divergence":{"value":0.5,"standard_error":0.25,"median":0.25,"p99":null,"max":2.0},"top1_agreement":0.75,"#;
        assert!(json.contains(kl), "{json}");
        assert_eq!(serde_json::from_str::<Perplexity>(&json).unwrap(), answer);
    }
}
