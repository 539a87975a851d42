//! Each field of an outcome has its place in the document. The outcomes have no two fields of one value, and parts that a real
//! answer rarely has: a failed item, a second model, a request that was cancelled.

use redline_api::jsonl::{classify, diffuse, generate, perplexity, rerank, score};
use redline_engine::{
    Algorithm, Classified, ClassifyOutcome, ComparisonOutcome, Continuation, DiffuseOutcome, DiffuseRequest,
    DiffusionPass, Divergence, Estimate, FilledMask, FinishReason, Format, GenerateOutcome, GenerateRequest,
    ItemError, ItemScore, KvFormat, Label, MaskSamples, PerplexityOutcome, PositionLogprobs,
    PrefixCacheCounts, Prompt, Ranked, RerankOutcome, Sampling, ScoreOutcome, TokenCounts, TokenLogprob,
};
use serde_json::{Value, json, to_value};

use crate::model::{cost, meta, model, small, usage};

fn failed(index: usize) -> ItemError {
    ItemError { index, message: "too long".to_owned() }
}

fn scored() -> ItemScore {
    ItemScore {
        scores: vec![0.25, 0.5],
        logprobs: vec![-1.5, -0.75],
        label_mass: Some(0.75),
        prompt_tokens: 7,
        truncated: true,
        boundary_mismatch: Some(true),
        token_ids: Some(vec![3, 4]),
        reading: None,
    }
}

#[test]
fn a_scoring_tells_everything_of_its_items_and_its_cost() {
    let outcome = ScoreOutcome {
        receipt: None,
        items: vec![Err(failed(0)), Ok(scored())],
        label_token_ids: vec![vec![5], vec![6, 9]],
        item_label_token_ids: None,
        end_token_ids: Vec::new(),
        monte_carlo: Some(MaskSamples { samples: 16, seed: 2, sampled_labels: 1 }),
        cost: cost(),
    };
    let details = json!({
        "label_token_ids": [5, [6, 9]],
        "logprobs": [null, [-1.5, -0.75]],
        "label_mass": [null, 0.75],
        "prompt_tokens": [null, 7],
        "truncated": [null, true],
        "boundary_mismatch": [null, true],
        "item_errors": [{ "index": 0, "message": "too long" }],
        "token_ids": [null, [3, 4]],
        "monte_carlo": { "samples": 16, "seed": 2, "sampled_labels": 1 },
    });
    let expected = json!({
        "object": "scoring",
        "schema": 1,
        "model": "small",
        "scores": [null, [0.25, 0.5]],
        "usage": usage(21, 0, 8),
        "meta": meta(details),
    });
    assert_eq!(to_value(score::answer(&small(), outcome)).unwrap(), expected);
}

#[test]
fn a_scoring_lists_masses_unless_an_item_has_none() {
    let masses = |items: Vec<Result<ItemScore, ItemError>>| {
        let outcome = ScoreOutcome {
            receipt: None,
            items,
            label_token_ids: Vec::new(),
            item_label_token_ids: Some(vec![vec![vec![5], vec![6, 9]], Vec::new()]),
            end_token_ids: Vec::new(),
            monte_carlo: None,
            cost: cost(),
        };
        let answer = to_value(score::answer(&small(), outcome)).unwrap();
        let meta = &answer["meta"];
        assert_eq!(meta["label_token_ids"], json!([]));
        assert_eq!(meta["item_label_token_ids"], json!([[5, [6, 9]], []]));
        meta["label_mass"].clone()
    };
    let without = || ItemScore { label_mass: None, token_ids: None, ..scored() };
    assert_eq!(masses(vec![Ok(without()), Ok(scored())]), Value::Null);
    assert_eq!(masses(vec![Err(failed(0)), Err(failed(1))]), json!([null, null]));
}

#[test]
fn a_classification_tells_everything_of_its_texts() {
    let sound = Classified {
        probabilities: vec![0.25, 0.75],
        logprobs: vec![-2.0, -0.5],
        best: Some(1),
        margin: 0.5,
        prompt_tokens: 7,
        truncated: true,
    };
    let outcome = ClassifyOutcome {
        receipt: None,
        classes: ["a", "b"].map(|class| Label::Text(class.to_owned())).to_vec(),
        texts: vec![Err(failed(0)), Ok(sound)],
        class_token_ids: vec![vec![5], vec![6, 9]],
        end_token_ids: vec![2],
        prefix_class: None,
        cost: cost(),
    };
    let failed = json!({ "index": 0, "class": null, "probabilities": null, "margin": null,
        "prompt_tokens": null, "truncated": null, "error": "too long" });
    let sound = json!({ "index": 1, "class": "b", "probabilities": [0.25, 0.75], "margin": 0.5,
        "prompt_tokens": 7, "truncated": true });
    let expected = json!({
        "object": "classification",
        "schema": 1,
        "model": "small",
        "classes": ["a", "b"],
        "results": [failed, sound],
        "usage": usage(21, 0, 8),
        "meta": meta(json!({ "label_token_ids": [5, [6, 9]], "end_token_ids": [2] })),
    });
    assert_eq!(to_value(classify::answer(&small(), outcome)).unwrap(), expected);
}

#[test]
fn a_reranking_tells_everything_of_its_documents() {
    let outcome = RerankOutcome {
        receipt: None,
        results: vec![
            Ok(Ranked { index: 2, relevance: 0.75, log_odds: 1.5, prompt_tokens: 7, truncated: true }),
            Err(failed(1)),
        ],
        label_token_ids: vec![vec![5], vec![6, 9]],
        end_token_ids: vec![2],
        prefix_label: None,
        cost: cost(),
    };
    let expected = json!({
        "object": "rerank",
        "schema": 1,
        "model": "small",
        "results": [
            { "index": 2, "relevance": 0.75, "prompt_tokens": 7, "truncated": true },
            { "index": 1, "relevance": null, "prompt_tokens": null, "truncated": null,
                "error": "too long" },
        ],
        "usage": usage(21, 0, 8),
        "meta": meta(json!({ "label_token_ids": [5, [6, 9]], "end_token_ids": [2] })),
    });
    assert_eq!(to_value(rerank::answer(&small(), outcome)).unwrap(), expected);
}

/// An answer with a second continuation, which has no log-probabilities.
fn completion() -> GenerateOutcome {
    let token = |id: u32, text: &str, logprob: f32| TokenLogprob { id, text: text.to_owned(), logprob };
    let position = || PositionLogprobs {
        chosen: token(6, "b", -1.5),
        top: vec![token(5, "a", -0.25), token(6, "b", -1.5)],
        masked_mass: None,
    };
    GenerateOutcome {
        receipt: None,
        text: "b".to_owned(),
        token_ids: vec![6],
        prompt_token_ids: vec![3, 4],
        finish_reason: FinishReason::Cancelled,
        logprobs: Some(vec![position()]),
        prompt_logprobs: Some(vec![None, Some(position())]),
        usage: TokenCounts { prompt_tokens: 21, completion_tokens: 3, cached_tokens: 8 },
        prefix_cache: Some(PrefixCacheCounts { hits: 2, misses: 1, cached_tokens: 8 }),
        plan_misses: 4,
        queue_s: 0.25,
        prefill_s: 1.5,
        decode_s: 0.5,
        decode_tokens_per_s: Some(12.0),
        token_s: vec![1.5],
        seed: 78,
        mean_logprob: Some(-1.5),
        others: vec![Continuation {
            text: "c".to_owned(),
            token_ids: vec![7],
            finish_reason: FinishReason::Length,
            logprobs: None,
            token_s: vec![1.75],
            seed: 79,
            mean_logprob: None,
        }],
        cancelled: true,
        arrived_s: 64.0,
        peak_memory_bytes: Some(4096),
        kernel_path: "tier/format".to_owned(),
    }
}

#[test]
fn a_completion_tells_everything_of_its_text_and_its_times() {
    let request = GenerateRequest {
        sampling: Sampling { seed: 77, ..Sampling::default() },
        kv_cache: false,
        ..GenerateRequest::new(Prompt::Ids(vec![3, 4]), 3)
    };
    let top = json!([{ "id": 5, "text": "a", "logprob": -0.25 }, { "id": 6, "text": "b", "logprob": -1.5 }]);
    let position = json!({ "id": 6, "text": "b", "logprob": -1.5, "top": top });
    let expected = json!({
        "object": "text_completion",
        "schema": 1,
        "model": "small",
        "choices": [{
            "index": 0,
            "text": "b",
            "token_ids": [6],
            "finish_reason": "cancelled",
            "logprobs": [position],
            "prompt_logprobs": [null, position],
            "seed": 78,
            "mean_logprob": -1.5,
        }, {
            "index": 1,
            "text": "c",
            "token_ids": [7],
            "finish_reason": "length",
            "logprobs": null,
            "seed": 79,
        }],
        "usage": usage(21, 3, 8),
        "meta": {
            "cache_miss_count": 4,
            "queue_s": 0.25,
            "prefill_s": 1.5,
            "decode_s": 0.5,
            "decode_tokens_per_s": 12.0,
            "tokens_per_s": 1.5,
            "peak_memory_bytes": 4096,
            "kernel_path": "tier/format",
            "threads": 3,
            "kv_cache": false,
            "prefix_cache": { "hits": 2, "misses": 1, "cached_tokens": 8 },
            "seed": 77,
        },
    });
    let echo = generate::RequestEcho::of(&request);
    assert_eq!(to_value(generate::answer(&small(), echo, completion())).unwrap(), expected);
}

#[test]
fn a_diffusion_tells_everything_of_its_passes() {
    let filled = |position: usize, token: u32, confidence: f64| FilledMask { position, token, confidence };
    let outcome = DiffuseOutcome {
        receipt: None,
        text: "ab".to_owned(),
        token_ids: vec![5, 6],
        canvas: vec![3, 4, 5, 6],
        prompt_tokens: 9,
        prompt_masks: 2,
        finish_reason: FinishReason::Stop,
        algorithm: Algorithm::TopkMargin,
        passes: vec![
            DiffusionPass {
                step: 4,
                rows: 0..11,
                outputs: 10,
                filled: vec![filled(8, 6, 0.5), filled(1, 4, 0.25)],
            },
            DiffusionPass { step: 6, rows: 7..10, outputs: 2, filled: vec![filled(7, 5, 0.75)] },
        ],
        computed_tokens: 14,
        tokens_per_pass: Some(1.5),
        plan_misses: 12,
        queue_s: 0.25,
        compute_s: 0.125,
        sampling_s: 0.0625,
        tokens_per_s: Some(24.0),
        peak_memory_bytes: Some(4096),
        kernel_path: "tier/format".to_owned(),
    };
    let request = DiffuseRequest {
        sampling: Sampling { seed: 77, ..Sampling::default() },
        ..DiffuseRequest::new(Prompt::Ids(vec![3, 4]), 2)
    };
    let expected = json!({
        "object": "diffusion",
        "schema": 1,
        "model": "small",
        "choices": [{
            "index": 0,
            "text": "ab",
            "token_ids": [5, 6],
            "finish_reason": "stop",
            "canvas": [3, 4, 5, 6],
            "passes": [
                { "step": 4, "from": 0, "rows": 11,
                    "positions": [8, 1], "token_ids": [6, 4], "confidences": [0.5, 0.25] },
                { "step": 6, "from": 7, "rows": 3,
                    "positions": [7], "token_ids": [5], "confidences": [0.75] },
            ],
        }],
        "usage": usage(9, 3, 0),
        "meta": {
            "algorithm": "topk-margin",
            "passes": 2,
            "computed_tokens": 14,
            "tokens_per_pass": 1.5,
            "prompt_masks": 2,
            "cache_miss_count": 12,
            "queue_s": 0.25,
            "compute_s": 0.125,
            "tokens_per_s": 24.0,
            "peak_memory_bytes": 4096,
            "kernel_path": "tier/format",
            "threads": 3,
            "seed": 77,
        },
    });
    let echo = diffuse::RequestEcho::of(&request, true);
    assert_eq!(to_value(diffuse::answer(&small(), echo, &outcome)).unwrap(), expected);
}

fn estimate(value: f64) -> Estimate {
    Estimate { value, standard_error: Some(value / 16.0) }
}

fn told(value: f64) -> Value {
    json!({ "value": value, "standard_error": value / 16.0 })
}

#[test]
fn a_comparison_keeps_the_model_and_its_reference_apart() {
    let outcome = ComparisonOutcome {
        model: PerplexityOutcome {
            perplexity: estimate(32.0),
            nll: Estimate { value: 3.5, standard_error: None },
            tokens: 12,
            windows: 3,
            window: 5,
            cancelled: true,
            compute_s: 0.5,
            peak_memory_bytes: Some(4096),
            kernel_path: "tier/model".to_owned(),
        },
        reference: PerplexityOutcome {
            perplexity: estimate(24.0),
            nll: estimate(3.25),
            tokens: 12,
            windows: 3,
            window: 5,
            cancelled: true,
            compute_s: 0.0,
            peak_memory_bytes: Some(8192),
            kernel_path: "tier/reference".to_owned(),
        },
        divergence: Divergence {
            kl: estimate(0.5),
            kl_median: Some(0.25),
            kl_p99: Some(1.5),
            kl_max: 2.0,
            top1_agreement: 0.75,
            ln_ratio: estimate(0.125),
        },
    };
    let expected = json!({
        "object": "perplexity",
        "schema": 1,
        "model": "small",
        "perplexity": told(32.0),
        "nll": { "value": 3.5, "standard_error": null },
        "tokens": 12,
        "against": {
            "model": "other",
            "perplexity": told(24.0),
            "nll": told(3.25),
            "kl_divergence": { "value": 0.5, "standard_error": 0.03125, "median": 0.25, "p99": 1.5,
                "max": 2.0 },
            "top1_agreement": 0.75,
            "ln_ratio": told(0.125),
            "run": {
                "format": "bf16",
                "kv_format": "f32",
                "kernel_path": "tier/reference",
                "threads": 1,
                "compute_s": 0.0,
                "tokens_per_s": null,
            },
        },
        "meta": {
            "windows": 3,
            "window": 5,
            "complete": false,
            "peak_memory_bytes": 4096,
            "format": "f32",
            "kv_format": "bf16",
            "kernel_path": "tier/model",
            "threads": 3,
            "compute_s": 0.5,
            "tokens_per_s": 24.0,
        },
    });
    let own = model("small", 3, Format::F32, KvFormat::Bf16);
    let reference = model("other", 1, Format::Bf16, KvFormat::F32);
    assert_eq!(to_value(perplexity::comparison(&own, &reference, &outcome)).unwrap(), expected);
    let without = PerplexityOutcome { cancelled: false, ..outcome.model };
    let alone = to_value(perplexity::answer(&own, &without)).unwrap();
    assert_eq!((&alone["meta"]["complete"], alone.get("against")), (&Value::Bool(true), None));
}
