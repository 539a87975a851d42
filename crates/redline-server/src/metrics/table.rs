//! The metrics: one list, from which `/metrics`, its guide and its dashboard are made or checked.

/// What the values of a metric are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A total that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts of values by size.
    Histogram,
}

impl MetricKind {
    /// The kind as Prometheus names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    /// Its name, with the unit and, for totals, `_total`.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: MetricKind,
    /// What it measures.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// The name under which vLLM has it.
    pub vllm: Option<&'static str>,
}

/// The metric of this name; an unknown name is a bug that the tests of this file find.
pub(super) fn metric(name: &str) -> Option<&'static MetricInfo> {
    METRICS.iter().find(|metric| metric.name == name)
}

const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> MetricInfo {
    MetricInfo { name, kind: MetricKind::Gauge, help, labels, vllm: None }
}

const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> MetricInfo {
    MetricInfo { name, kind: MetricKind::Counter, help, labels, vllm: None }
}

const fn histogram(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> MetricInfo {
    MetricInfo { name, kind: MetricKind::Histogram, help, labels, vllm: None }
}

impl MetricInfo {
    const fn vllm(self, name: &'static str) -> Self {
        Self { vllm: Some(name), ..self }
    }
}

/// Every metric.
pub const METRICS: &[MetricInfo] = &[
    gauge("redline_build_info", "Version, model and kernels; always 1", &["version", "model", "kernel_path"]),
    gauge("redline_model_loaded", "1 while the model is in memory", &["model"]),
    gauge("redline_engine_up", "1 while the engine's thread runs", &[]),
    gauge("redline_engine_frozen", "1 while the engine has work and makes no progress", &[]),
    gauge("redline_requests_waiting", "Requests without a pass so far", &[])
        .vllm("vllm:num_requests_waiting"),
    gauge("redline_requests_running", "Requests that have had a pass", &[]).vllm("vllm:num_requests_running"),
    gauge("redline_requests_limit", "Most requests that wait or run", &[]),
    counter("redline_engine_requests_total", "Requests that left the engine, by how they ended", &["end"]),
    gauge("redline_sequences_running", "Sequences of requests with keys and values", &[]),
    gauge("redline_kv_cache_usage_ratio", "Share of the pages of keys and values in use", &[])
        .vllm("vllm:kv_cache_usage_perc"),
    gauge("redline_kv_pages_used", "Pages of keys and values in use, with those of the prefix cache", &[]),
    gauge("redline_kv_pages_allocated", "Pages of keys and values in memory", &[]),
    gauge("redline_kv_pages_limit", "Most pages of keys and values", &[]),
    gauge("redline_kv_used_bytes", "Bytes of the pages in use", &[]),
    gauge("redline_kv_limit_bytes", "Most bytes of keys and values", &[]),
    gauge("redline_kv_used_tokens", "Tokens for which the pages in use have room", &[]),
    gauge(
        "redline_cache_config_info",
        "Tokens of a page, and most pages; always 1",
        &["block_size", "num_gpu_blocks"],
    )
    .vllm("vllm:cache_config_info"),
    gauge("redline_prefix_cache_tokens", "Tokens that the prefix cache keeps", &[]),
    counter("redline_prompt_tokens_total", "Prompt tokens, run or taken from the prefix cache", &[])
        .vllm("vllm:prompt_tokens_total"),
    counter(
        "redline_prefix_cache_queries_total",
        "Prompt tokens that were looked up in the prefix cache",
        &[],
    )
    .vllm("vllm:prefix_cache_queries_total"),
    counter("redline_cached_prompt_tokens_total", "Prompt tokens taken from the prefix cache", &[])
        .vllm("vllm:prefix_cache_hits_total"),
    counter("redline_prefix_cache_evictions_total", "Sequences that the prefix cache evicted", &[]),
    gauge("redline_disk_pages", "Pages of keys and values on disk, as far as the process knows", &[]),
    counter("redline_disk_pages_read_total", "Pages of keys and values that were read from disk", &[]),
    counter("redline_disk_pages_written_total", "Pages of keys and values that were written to disk", &[]),
    counter("redline_disk_pages_removed_total", "Pages on disk that were removed to make room", &[]),
    counter("redline_disk_pages_damaged_total", "Damaged pages on disk", &[]),
    counter("redline_disk_pages_not_written_total", "Pages that could not be written to disk", &[]),
    counter("redline_generation_tokens_total", "New tokens", &[]).vllm("vllm:generation_tokens_total"),
    counter("redline_score_items_total", "Items that were scored", &[]),
    counter("redline_preemptions_total", "Sequences that were preempted", &[])
        .vllm("vllm:num_preemptions_total"),
    counter("redline_passes_total", "Passes of the model, by what they ran", &["kind"]),
    counter("redline_pass_seconds_total", "Time of the passes", &["kind"]),
    counter("redline_pass_tokens_total", "Tokens that the passes ran", &["kind"]),
    counter("redline_plan_misses_total", "Plans that were missing", &[]),
    histogram("redline_request_queue_seconds", "Time from arrival to the first pass", &[])
        .vllm("vllm:request_queue_time_seconds"),
    histogram("redline_time_to_first_token_seconds", "Time from arrival to the first new token", &[])
        .vllm("vllm:time_to_first_token_seconds"),
    histogram("redline_inter_token_latency_seconds", "Time between new tokens", &[])
        .vllm("vllm:inter_token_latency_seconds"),
    histogram(
        "redline_time_per_output_token_seconds",
        "Mean time per new token after the first, by request",
        &[],
    )
    .vllm("vllm:request_time_per_output_token_seconds"),
    histogram("redline_request_prefill_seconds", "Time from the first pass to the first new token", &[])
        .vllm("vllm:request_prefill_time_seconds"),
    histogram("redline_request_decode_seconds", "Time from the first new token to the end", &[])
        .vllm("vllm:request_decode_time_seconds"),
    histogram("redline_engine_request_seconds", "Time from arrival at the engine to the end", &[])
        .vllm("vllm:e2e_request_latency_seconds"),
    gauge("redline_adapters", "Adapters that are loaded, evicted, or being read", &["state"]),
    gauge("redline_adapter_bytes", "Bytes of the adapters in memory", &[]),
    gauge("redline_adapter_requests", "Requests with an adapter that wait or run", &["adapter", "state"]),
    gauge(
        "redline_lora_info",
        "Adapters of the requests that wait and run; the value is the time",
        &["max_lora", "running_lora_adapters", "waiting_lora_adapters"],
    )
    .vllm("vllm:lora_requests_info"),
    counter("redline_adapter_loads_total", "Adapters that were published", &[]),
    counter("redline_adapter_load_failures_total", "Adapters that could not be published", &[]),
    counter("redline_adapter_evictions_total", "Adapters that left memory until they are needed", &[]),
    counter("redline_adapter_restores_total", "Evicted adapters that were read again", &[]),
    counter("redline_http_requests_total", "Answered requests, by route and status", &["route", "status"]),
    histogram(
        "redline_request_duration_seconds",
        "Time from the head of a request to its answer",
        &["route"],
    ),
    gauge("redline_http_requests_in_flight", "Requests that are not answered yet", &[]),
    counter("redline_requests_refused_total", "Requests refused with status 429 or 503, by code", &["code"]),
    gauge("redline_queue_places_used", "Places for prompts that are taken", &[]),
    gauge("redline_queue_places_limit", "Places for prompts", &[]),
    gauge("redline_http_connections", "Open connections", &[]),
    counter("redline_http_connections_total", "Accepted connections", &[]),
    counter("redline_http_connections_refused_total", "Connections beyond the maximum", &[]),
    counter("redline_http_body_bytes_total", "Bytes of the bodies of requests", &[]),
    gauge("redline_http_body_reserved_bytes", "Memory reserved for the bodies of requests", &[]),
    gauge("process_start_time_seconds", "When the server began to answer, since 1970", &[]),
    gauge("process_resident_memory_bytes", "Memory of the process; Linux only", &[]),
    gauge("process_open_fds", "Open files of the process; Linux only", &[]),
    gauge("process_threads", "Threads of the process; Linux only", &[]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let mut seen = BTreeSet::new();
        for MetricInfo { name, kind, help, labels, vllm } in METRICS {
            let plain =
                |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            assert!(plain(name) && labels.iter().all(|label| plain(label)), "{name}");
            assert!(seen.insert(*name) && vllm.is_none_or(|alias| seen.insert(alias)), "{name} occurs twice");
            assert!(name.starts_with("redline_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert!(*kind != MetricKind::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(!help.is_empty() && !help.ends_with('.'), "{name}");
            assert!(vllm.is_none_or(|alias| alias.ends_with("_total") == name.ends_with("_total")), "{name}");
        }
    }
}
