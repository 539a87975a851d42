//! Gathers the values of all metrics.

use redline_engine::{AdapterGauges, EngineGauges, PulseState, RequestGauges};

use crate::app::App;
use crate::clock::unix_seconds;
use crate::fault::Fault;
use crate::metrics::{Exposition, gather_process};
use crate::models::Models;

/// Most adapters that are named. Names of further ones are left out, so that the number of series is bounded.
const MAX_ADAPTERS: usize = 100;

/// The text of `/metrics`. What concerns one of several models has its name as a label.
pub(crate) fn text(models: &Models) -> Result<String, Fault> {
    let (mut to, shared) = (Exposition::default(), &models.shared);
    let all = models.all();
    if let Some((first, ..)) = all.first().filter(|_| shared.config.vllm_metrics) {
        to = to.with_vllm(&first.name);
    }
    for (served, _, app) in &all {
        to.concern(models.are_several().then(|| served.name.clone()));
        to.labelled("redline_model_loaded", vec![("model", served.name.clone())], app.is_some());
        if let Some(app) = app {
            of_app(&mut to, app);
        }
    }
    to.concern(None);
    let bodies = shared.config.limits.all_body_bytes.saturating_sub(shared.body_bytes.available_permits());
    to.number("redline_http_body_reserved_bytes", bodies);
    shared.metrics.gather(&mut to);
    to.number("process_start_time_seconds", shared.started);
    gather_process(&mut to);
    to.into_text().map_err(|_| Fault::internal("metrics"))
}

/// Adds what concerns a loaded model.
fn of_app(to: &mut Exposition, app: &App) {
    let gauges = app.model.engine.gauges();
    let info = app.model.engine.info();
    let labels = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("model", app.model.name.clone()),
        ("kernel_path", info.kernel_path.clone()),
    ];
    to.labelled("redline_build_info", labels, true);
    to.number("redline_engine_up", app.model.engine.pulse().state != PulseState::Stopped);
    to.number("redline_engine_frozen", app.is_frozen());
    of_engine(to, &gauges);
    of_requests(to, &gauges.requests, gauges.adapters);
    let places = app.config.limits.queue;
    to.number("redline_queue_places_used", places.saturating_sub(app.places.available_permits()));
    to.number("redline_queue_places_limit", places);
}

/// Adds the gauges and totals of the engine.
fn of_engine(to: &mut Exposition, gauges: &EngineGauges) {
    for (end, count) in gauges.ends {
        to.labelled("redline_engine_requests_total", vec![("end", end.name().to_owned())], count);
    }
    to.number("redline_sequences_running", gauges.sequences);
    to.number("redline_kv_pages_used", gauges.pages);
    to.number("redline_kv_pages_allocated", gauges.pages_allocated);
    to.number("redline_kv_used_bytes", gauges.pages * gauges.page_bytes);
    to.number("redline_kv_used_tokens", gauges.pages * gauges.page_tokens);
    if let Some(limit) = gauges.pages_limit {
        to.number("redline_kv_pages_limit", limit);
        to.number("redline_kv_limit_bytes", limit * gauges.page_bytes);
        to.number("redline_kv_cache_usage_ratio", gauges.pages as f64 / limit.max(1) as f64);
        let pages =
            vec![("block_size", gauges.page_tokens.to_string()), ("num_gpu_blocks", limit.to_string())];
        to.labelled("redline_cache_config_info", pages, true);
    }
    to.number("redline_prefix_cache_tokens", gauges.kept_tokens);
    to.number("redline_prompt_tokens_total", gauges.prompt_tokens);
    to.number("redline_prefix_cache_queries_total", gauges.prompt_tokens);
    to.number("redline_cached_prompt_tokens_total", gauges.cached_tokens);
    to.number("redline_prefix_cache_evictions_total", gauges.evictions);
    if let Some(pages) = gauges.disk_pages {
        to.number("redline_disk_pages", pages.pages);
        to.number("redline_disk_pages_read_total", pages.read);
        to.number("redline_disk_pages_written_total", pages.written);
        to.number("redline_disk_pages_removed_total", pages.removed);
        to.number("redline_disk_pages_damaged_total", pages.damaged);
        to.number("redline_disk_pages_not_written_total", pages.not_written);
    }
    to.number("redline_generation_tokens_total", gauges.generated_tokens);
    to.number("redline_score_items_total", gauges.items);
    to.number("redline_preemptions_total", gauges.preemptions);
    to.number("redline_plan_misses_total", gauges.plans.misses);
    for totals in &gauges.passes {
        let kind = || vec![("kind", totals.kind.name().to_owned())];
        to.labelled("redline_passes_total", kind(), totals.count);
        to.labelled("redline_pass_seconds_total", kind(), totals.seconds);
        to.labelled("redline_pass_tokens_total", kind(), totals.rows);
    }
    for (name, counts) in [
        ("redline_request_queue_seconds", &gauges.queue_s),
        ("redline_time_to_first_token_seconds", &gauges.first_token_s),
        ("redline_inter_token_latency_seconds", &gauges.between_tokens_s),
        ("redline_time_per_output_token_seconds", &gauges.per_token_s),
        ("redline_request_prefill_seconds", &gauges.prompt_s),
        ("redline_request_decode_seconds", &gauges.generation_s),
        ("redline_engine_request_seconds", &gauges.request_s),
    ] {
        to.counts(name, Vec::new(), counts.clone());
    }
}

/// Adds the requests, and the adapters that they use.
fn of_requests(to: &mut Exposition, requests: &RequestGauges, adapters: Option<AdapterGauges>) {
    to.number("redline_requests_waiting", requests.waiting);
    to.number("redline_requests_running", requests.running);
    to.number("redline_requests_limit", requests.limit);
    let adapters = adapters.unwrap_or_default();
    for (state, count) in
        [("loaded", adapters.loaded), ("evicted", adapters.evicted), ("loading", adapters.loading)]
    {
        to.labelled("redline_adapters", vec![("state", state.to_owned())], count);
    }
    to.number("redline_adapter_bytes", adapters.bytes);
    to.number("redline_adapter_loads_total", adapters.loads);
    to.number("redline_adapter_load_failures_total", adapters.failures);
    to.number("redline_adapter_evictions_total", adapters.evictions);
    to.number("redline_adapter_restores_total", adapters.restores);
    let (mut waiting, mut running) = (Vec::new(), Vec::new());
    for (name, waits, runs) in requests.by_adapter.iter().take(MAX_ADAPTERS) {
        for (state, count, names) in [("waiting", *waits, &mut waiting), ("running", *runs, &mut running)] {
            let labels = vec![("adapter", name.clone()), ("state", state.to_owned())];
            to.labelled("redline_adapter_requests", labels, count);
            if count > 0 {
                names.push(name.as_str());
            }
        }
    }
    let labels = vec![
        ("max_lora", adapters.most_uses.to_string()),
        ("running_lora_adapters", running.join(",")),
        ("waiting_lora_adapters", waiting.join(",")),
    ];
    to.labelled("redline_lora_info", labels, unix_seconds());
}
