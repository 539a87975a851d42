//! Converts between tests of llama-bench and rows of a lane.

use serde_json::{Map, Value};

use super::super::{FilePosition, Result, values};
use super::record::Record;
use super::{COLUMNS, missing};
use crate::result::{Metric, Row};
use crate::run::Run;
use crate::stats::{Direction, Samples};

/// Allowed deviation between rate times time and the number of tokens, due to rounding.
const ROUNDING: f64 = 0.01;
/// Prefixes of weight format names; those of [`NUMBERED`] are followed by a digit.
const WEIGHTS: &[&str] = &["F16", "F32", "BF16", "MXFP4", "NVFP4", "w4", "w8", "f32", "bf16"];
const NUMBERED: &[&str] = &["Q", "IQ", "TQ"];

/// The tokens and times of a record.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) place: FilePosition,
    prompt: u64,
    /// Number of passes that generate one token each.
    pub(super) new: u64,
    /// Number of tokens stored before.
    depth: u64,
    threads: Option<u64>,
    /// Tokens per second.
    rates: Vec<f64>,
    /// Seconds; empty if the file has only rates.
    seconds: Vec<f64>,
    /// Whether there is only a mean without samples.
    aggregate: bool,
    /// The deviation that goes with a mean.
    deviation: Vec<f64>,
    pub(super) time: Option<String>,
}

impl Test {
    pub(super) fn of(record: &Record) -> Result<Self> {
        let place = record.place;
        let count = |name: &str| Ok(record.count(name)?.unwrap_or(0));
        let (prompt, new) = (count("n_prompt")?, count("n_gen")?);
        if prompt + new == 0 {
            let fact = "`n_prompt` and `n_gen` are 0 or missing: nothing was measured";
            return Err(place.error(fact, "is this a file of llama-bench, and whole?"));
        }
        let (depth, threads) = (count("n_depth")?, record.count("n_threads")?);
        let (mut rates, mut times) = (record.numbers("samples_ts")?, record.numbers("samples_ns")?);
        let aggregate = rates.is_empty() && times.is_empty();
        let mut deviation = Vec::new();
        if aggregate {
            rates.extend(record.not_negative("avg_ts")?);
            times.extend(record.not_negative("avg_ns")?);
            deviation.extend(record.not_negative("stddev_ts")?);
        }
        let seconds: Vec<f64> = times.iter().map(|ns| ns / 1e9).collect();
        if rates.is_empty() {
            rates = seconds.iter().map(|s| (prompt + new) as f64 / s).collect();
        }
        let time = record.text("test_time");
        let test = Self { place, prompt, new, depth, threads, rates, seconds, aggregate, deviation, time };
        test.agree().map(|()| test)
    }

    /// Returns an error if rates and times do not match.
    fn agree(&self) -> Result<()> {
        let fault = |fact: String| Err(self.place.error(fact, "is the file damaged?"));
        let tokens = (self.prompt + self.new) as f64;
        let (rates, seconds) = (&self.rates, &self.seconds);
        if rates.is_empty() {
            return Err(missing(self.place, "avg_ts"));
        }
        if !seconds.is_empty() && rates.len() != seconds.len() {
            let (rates, times) = (rates.len(), seconds.len());
            return fault(format!("`samples_ts` holds {rates} values, `samples_ns` {times}"));
        }
        let off = |(rate, seconds): &(&f64, &f64)| (*rate * *seconds / tokens - 1.0).abs() > ROUNDING;
        // The mean of rates is larger than the rate of the mean time, and more so the more the times scatter.
        match rates.iter().zip(seconds).find(off).filter(|_| !self.aggregate) {
            Some((rate, seconds)) => fault(format!(
                "{rate} tokens/s for {seconds} s are {:.1} tokens, not {tokens}",
                rate * seconds
            )),
            None => Ok(()),
        }
    }

    /// The row of the test, without its metrics. `generates` selects the lane `generate`.
    pub(super) fn row(&self, record: &Record, generates: bool) -> Row {
        let threads = self.threads.map(|n| format!("/t{n}")).unwrap_or_default();
        let (prompt, new, depth) = (self.prompt, self.new, self.depth);
        let behind = if depth > 0 { format!("/d{depth}") } else { String::new() };
        let case = match (prompt, new) {
            (_, 0) if generates => format!("prefill{behind}{threads}"),
            (_, 0) => format!("forward/b1/l{prompt}{behind}{threads}"),
            (0, _) => format!("decode{threads}"),
            _ => format!("prompt-and-generate{behind}{threads}"),
        };
        let text = |name: &str| record.text(name);
        let mut row = Row { kernel_path: text("backends"), checked: true, ..Row::new(case) };
        row = values::param(row, "model", text("model_filename").or_else(|| text("model_type")));
        row = values::param(row, "threads", self.threads);
        row = values::param(row, "format", text("format").or_else(|| weights(&text("model_type")?)));
        let kv_format = match (text("type_k"), text("type_v")) {
            (Some(k), Some(v)) if k != v => Some(format!("{k}/{v}")),
            (k, v) => k.or(v),
        };
        row = values::param(row, "kv_format", kv_format);
        row = match (prompt, new) {
            (_, 0) if generates => row.param("prompt_tokens", prompt),
            (_, 0) => row.param("batch", 1).param("length", prompt),
            // Stored tokens correspond to our prompt.
            (0, _) => row.param("prompt_tokens", depth),
            _ => row.param("prompt_tokens", prompt),
        };
        if new > 0 {
            row = row.param("new_tokens", new + 1).param("kv_cache", true);
        }
        row = values::param(row, "n_depth", (depth > 0 && prompt > 0).then_some(depth));
        row = values::param(row, "aggregate", self.aggregate.then_some("mean"));
        for (name, value) in record.settings() {
            if row.params.get(name).is_none() {
                row = row.param(name, value.clone());
            }
        }
        row
    }
}

/// The weight format in a name like `qwen2 7B Q4_K - Medium`.
fn weights(kind: &str) -> Option<String> {
    // A model may be called `Qwen3`.
    let is_numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let is_format = |word: &&str| {
        WEIGHTS.iter().any(|begin| word.starts_with(begin))
            || NUMBERED.iter().any(|begin| word.strip_prefix(begin).is_some_and(is_numbered))
    };
    let words: Vec<&str> = kind.split(' ').skip_while(|word| !is_format(word)).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Adds the metrics of all processes to the row.
pub(super) fn measured(mut row: Row, processes: &[&Test], generates: bool) -> Result<Row> {
    let Some(first) = processes.first() else { return Ok(row) };
    let (rate, time, direction) = match (first.prompt, first.new) {
        // The lane has no prefill time for these tests, so ours is reported but not judged.
        (_, 0) if generates => ("prefill_tokens_per_s", "seconds", Direction::Info),
        (_, 0) => ("tokens_per_s", "seconds", Direction::Lower),
        (0, _) => ("decode_tokens_per_s", "decode_s", Direction::Lower),
        _ => ("total_tokens_per_s", "seconds", Direction::Lower),
    };
    let of = |part: fn(&Test) -> &Vec<f64>| processes.iter().map(|t| part(t).clone()).collect::<Vec<_>>();
    let metrics = [
        (rate, "tokens/s", Direction::Higher, of(|test| &test.rates)),
        (time, "s", direction, of(|test| &test.seconds)),
        ("deviation", "tokens/s", Direction::Info, of(|test| &test.deviation)),
    ];
    for (name, unit, direction, values) in metrics {
        let samples = values::samples(first.place, (unit, direction), &values)?;
        if samples.n() > 0 {
            row = row.metric(name, samples);
        }
    }
    Ok(row)
}

/// The measured shape of a row: prompt tokens, passes, depth, and the rate.
fn shape(row: &Row) -> Result<(u64, u64, u64, &Samples), String> {
    let count = |name: &str| row.params.get(name).and_then(Value::as_u64);
    let rate = |name: &str| row.metrics.get(name).map(Metric::samples).filter(|s| s.n() > 0);
    if let Some(batch) = count("batch").filter(|&batch| batch != 1) {
        return Err(format!("{batch} sequences together, but llama-bench runs one"));
    }
    if row.params.get("kv_cache").and_then(Value::as_bool) == Some(false) {
        return Err("it ran without a KV cache, but llama-bench has one".to_owned());
    }
    let (prompt, new) = (count("prompt_tokens"), count("new_tokens").map(|new| new.saturating_sub(1)));
    let depth = count("n_depth").unwrap_or(0);
    let named = |name: &str| row.case.split('/').next().is_some_and(|first| first.starts_with(name));
    let any = rate("tokens_per_s");
    let decoding = rate("decode_tokens_per_s").or_else(|| any.filter(|_| named("decode")));
    if let (Some(rate), Some(new)) = (decoding, new) {
        return Ok((0, new, prompt.unwrap_or(0), rate));
    }
    // Lane `mixed` has such a rate too, but over several streams and prompts.
    let whole = rate("total_tokens_per_s").filter(|_| named("prompt-and-generate"));
    if let (Some(rate), Some(prompt), Some(new)) = (whole, prompt, new) {
        return Ok((prompt, new, depth, rate));
    }
    let reading =
        rate("prefill_tokens_per_s").or_else(|| any.filter(|_| named("prefill") || named("forward")));
    if let (Some(rate), Some(length)) = (reading, count("length").or(prompt)) {
        return Ok((length, 0, depth, rate));
    }
    Err("it is neither a prompt nor a generation".to_owned())
}

/// The record of a row, or why there is none.
pub(super) fn record(run: &Run, row: &Row) -> Result<Record, String> {
    let (prompt, new, depth, rate) = shape(row)?;
    let tokens = (prompt + new) as f64;
    let times: Vec<f64> = rate.values().iter().map(|v| (tokens * 1e9 / v).round()).collect();
    if times.iter().any(|ns| !(1.0..9e18).contains(ns)) {
        return Err("a rate of 0, or no tokens, has no time".to_owned());
    }
    let time = Samples::new("ns", Direction::Lower, times).map_err(|e| e.to_string())?;
    let integer = |value: f64| value.round() as i64;
    let measured: [(&str, Value); 9] = [
        ("n_prompt", prompt.into()),
        ("n_gen", new.into()),
        ("n_depth", depth.into()),
        ("avg_ns", time.mean().map(integer).into()),
        ("stddev_ns", integer(time.std().unwrap_or(0.0)).into()),
        ("avg_ts", rate.mean().into()),
        ("stddev_ts", rate.std().unwrap_or(0.0).into()),
        ("samples_ns", time.values().iter().copied().map(integer).collect::<Vec<_>>().into()),
        ("samples_ts", rate.values().into()),
    ];
    let mut fields = described(run, row);
    fields.extend(measured.map(|(name, value)| (name.to_owned(), value)));
    Ok(Record { place: FilePosition::File, fields })
}

/// The fields that describe what was measured: parameters of the row, else what the run says.
fn described(run: &Run, row: &Row) -> Map<String, Value> {
    let param = |name: &str| row.params.get(name).filter(|value| !value.is_null());
    let text = |name: &str| param(name).map(values::text);
    let engine = &run.engine;
    let build = engine.version.as_deref().and_then(|v| v.strip_prefix('b')?.parse::<i64>().ok());
    let model_type: Vec<String> = [text("model"), text("format")].into_iter().flatten().collect();
    let of_run: [(&str, Value); 13] = [
        ("build_commit", engine.git.clone().into()),
        ("build_number", build.into()),
        ("cpu_info", run.machine.summary().into()),
        ("gpu_info", "".into()),
        ("backends", row.kernel_path.clone().into()),
        ("model_filename", text("model").into()),
        ("model_type", model_type.join(" ").into()),
        ("n_threads", param("threads").cloned().into()),
        ("type_k", text("kv_format").into()),
        ("type_v", text("kv_format").into()),
        ("test_time", run.started_at.clone().into()),
        ("engine", engine.name.clone().into()),
        ("engine_version", engine.version.clone().into()),
    ];
    let mut fields: Map<String, Value> =
        COLUMNS.iter().map(|column| (column.name.to_owned(), Value::Null)).collect();
    fields.extend(of_run.map(|(name, value)| (name.to_owned(), value)));
    for column in COLUMNS {
        let value = param(column.name).map(|value| column.typed(value)).filter(|value| !value.is_null());
        fields.extend(value.map(|value| (column.name.to_owned(), value)));
    }
    fields
}
