//! A loaded model to name in answers, and the cost of a request.

use std::path::Path;

use redline_api::model::LoadedModel;
use redline_engine::{
    Engine, Format, KvFormat, Options, PrefixCacheCounts, RequestCost, Source, TokenCounts,
};
use serde_json::{Value, json};

/// A small checkpoint that runs in these formats on that many threads.
pub(crate) fn model(name: &str, threads: usize, format: Format, kv_format: KvFormat) -> LoadedModel {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama-b");
    let (format, kv_format) = (Some(format), Some(kv_format));
    let options = Options { threads, format, kv_format, ..Options::new(Source::Path(dir)) };
    LoadedModel { name: name.to_owned(), engine: Engine::load(options).unwrap() }
}

/// A model on three threads.
pub(crate) fn small() -> LoadedModel {
    model("small", 3, Format::F32, KvFormat::F32)
}

/// Costs that all differ.
pub(crate) fn cost() -> RequestCost {
    RequestCost {
        usage: TokenCounts { prompt_tokens: 21, completion_tokens: 0, cached_tokens: 8 },
        computed_tokens: 13,
        shared_prefix_tokens: 5,
        prefix_cache: Some(PrefixCacheCounts { hits: 2, misses: 1, cached_tokens: 8 }),
        plan_misses: 4,
        queue_s: 0.25,
        compute_s: 1.5,
        peak_memory_bytes: Some(4096),
        kernel_path: "tier/format".to_owned(),
    }
}

/// [`cost`] as the documents have it, of the model [`small`], beside the other `details`.
pub(crate) fn meta(details: Value) -> Value {
    let mut meta = json!({
        "cache_miss_count": 4,
        "computed_tokens": 13,
        "shared_prefix_tokens": 5,
        "prefix_cache": { "hits": 2, "misses": 1, "cached_tokens": 8 },
        "queue_s": 0.25,
        "compute_s": 1.5,
        "peak_memory_bytes": 4096,
        "kernel_path": "tier/format",
        "threads": 3,
    });
    let (Value::Object(meta_keys), Value::Object(details)) = (&mut meta, details) else {
        unreachable!("both are objects")
    };
    meta_keys.extend(details);
    meta
}

/// Token counts as the documents have them.
pub(crate) fn usage(prompt: usize, completion: usize, cached: usize) -> Value {
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": { "cached_tokens": cached },
    })
}
