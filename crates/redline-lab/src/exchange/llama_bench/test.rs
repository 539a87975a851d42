//! Converts between tests of llama-bench and rows of a lane.

use serde_json::{Map, Value};

use super::super::{BadFile, Place, values};
use super::record::{Record, typed};
use super::{COLUMNS, lacks};
use crate::result::{Metric, Row};
use crate::run::Run;
use crate::stats::{Direction, Samples};

/// Allowed deviation between rate times time and the number of tokens, due to rounding.
const ROUNDING: f64 = 0.01;
/// Columns that describe the measurement and are not parameters.
const TOLD: &[&str] = &[
    "build_commit",
    "build_number",
    "cpu_info",
    "gpu_info",
    "n_threads",
    "n_prompt",
    "n_gen",
    "n_depth",
    "test_time",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
    "engine",
    "engine_version",
];
/// Prefixes of weight format names.
const WEIGHTS: &[&str] =
    &["Q", "IQ", "TQ", "F16", "F32", "BF16", "MXFP4", "NVFP4", "w4", "w8", "f32", "bf16"];

/// The tokens and times of a record.
#[derive(Clone, Debug)]
pub(super) struct Test {
    place: Place,
    /// Tokens of the prompt.
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
    /// Start time.
    pub(super) time: Option<String>,
}

impl Test {
    /// Parses a record.
    pub(super) fn of(record: &Record) -> Result<Self, BadFile> {
        let place = record.place;
        let count = |name: &str| Ok(record.count(name)?.unwrap_or(0));
        let (prompt, new) = (count("n_prompt")?, count("n_gen")?);
        if prompt + new == 0 {
            let fact = "`n_prompt` and `n_gen` are 0 or missing: nothing was measured";
            return Err(BadFile::at(place, fact, "is this a file of llama-bench, and whole?"));
        }
        let mut test = Self {
            place,
            prompt,
            new,
            depth: count("n_depth")?,
            threads: record.count("n_threads")?,
            rates: Vec::new(),
            seconds: Vec::new(),
            aggregate: false,
            deviation: Vec::new(),
            time: record.text("test_time"),
        };
        let to_seconds = |ns: Vec<f64>| ns.into_iter().map(|v| v / 1e9).collect::<Vec<f64>>();
        let (rates, times) = (record.numbers("samples_ts")?, record.numbers("samples_ns")?.map(to_seconds));
        let given = |list: &Option<Vec<f64>>| list.as_ref().is_some_and(|list| !list.is_empty());
        test.aggregate = !given(&rates) && !given(&times);
        if test.aggregate {
            let positive = |name: &str, value: Option<f64>| {
                value.map(|v| values::not_negative(place, name, v)).transpose()
            };
            test.rates.extend(positive("avg_ts", record.number("avg_ts")?)?);
            test.seconds.extend(positive("avg_ns", record.number("avg_ns")?)?.map(|ns| ns / 1e9));
            test.deviation.extend(positive("stddev_ts", record.number("stddev_ts")?)?);
        } else {
            (test.rates, test.seconds) = (rates.unwrap_or_default(), times.unwrap_or_default());
        }
        let tokens = (prompt + new) as f64;
        if test.rates.is_empty() {
            test.rates = test.seconds.iter().map(|s| tokens / s).collect();
        }
        test.agree(tokens).map(|()| test)
    }

    /// Returns an error if rates and times do not match.
    fn agree(&self, tokens: f64) -> Result<(), BadFile> {
        let fault = |fact: String| Err(BadFile::at(self.place, fact, "is the file damaged?"));
        if self.rates.is_empty() {
            return Err(lacks(self.place, "avg_ts"));
        }
        if self.seconds.is_empty() {
            return Ok(());
        }
        if self.rates.len() != self.seconds.len() {
            return fault(format!(
                "`samples_ts` holds {} values, `samples_ns` {}",
                self.rates.len(),
                self.seconds.len()
            ));
        }
        let off = |(rate, seconds): &(&f64, &f64)| (*rate * *seconds / tokens - 1.0).abs() > ROUNDING;
        // The mean of rates is larger than the rate of the mean time, and more so the more the times scatter.
        match self.rates.iter().zip(&self.seconds).find(off).filter(|_| !self.aggregate) {
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
        let mut row = Row::new(match (prompt, new) {
            (_, 0) if generates => format!("prefill{behind}{threads}"),
            (_, 0) => format!("forward/b1/l{prompt}{behind}{threads}"),
            (0, _) => format!("decode{threads}"),
            _ => format!("prompt-and-generate{behind}{threads}"),
        });
        let text = |name: &str| record.text(name);
        if let Some(model) = text("model_filename").or_else(|| text("model_type")) {
            row = row.param("model", model);
        }
        if let Some(threads) = self.threads {
            row = row.param("threads", threads);
        }
        let format = text("format").or_else(|| text("model_type").and_then(|kind| weights(&kind)));
        if let Some(format) = format {
            row = row.param("format", format);
        }
        match (text("type_k"), text("type_v")) {
            (Some(k), Some(v)) if k != v => row = row.param("kv_format", format!("{k}/{v}")),
            (Some(one), _) | (_, Some(one)) => row = row.param("kv_format", one),
            (None, None) => {}
        }
        row = match (prompt, new) {
            (_, 0) if generates => row.param("prompt_tokens", prompt),
            (_, 0) => row.param("batch", 1).param("length", prompt),
            // Stored tokens correspond to our prompt.
            (0, _) => row.param("prompt_tokens", depth).param("new_tokens", new + 1).param("kv_cache", true),
            _ => row.param("prompt_tokens", prompt).param("new_tokens", new + 1).param("kv_cache", true),
        };
        if depth > 0 && prompt > 0 {
            row = row.param("n_depth", depth);
        }
        if self.aggregate {
            row = row.param("aggregate", "mean");
        }
        row.kernel_path = text("backends");
        for (name, value) in settings(record) {
            if row.params.get(name).is_none() {
                row = row.param(name.clone(), value.clone());
            }
        }
        row
    }
}

/// The remaining settings of a test, in column order, then those of later versions.
fn settings(record: &Record) -> impl Iterator<Item = (&String, &Value)> {
    let known = COLUMNS.iter().filter_map(|(name, _)| record.fields.get_key_value(*name));
    let plain = |value: &Value| {
        value.is_number() || value.is_boolean() || value.as_str().is_some_and(|t| !t.is_empty())
    };
    known
        .chain(record.others())
        .filter(move |(name, value)| !TOLD.contains(&name.as_str()) && *name != "backends" && plain(value))
}

/// The weight format in a name like `qwen2 7B Q4_K - Medium`.
fn weights(kind: &str) -> Option<String> {
    let words: Vec<&str> = kind.split(' ').collect();
    let at = words.iter().position(|word| WEIGHTS.iter().any(|format| word.starts_with(format)))?;
    Some(words[at..].join(" "))
}

/// Adds the metrics of all processes to the row.
pub(super) fn measured(mut row: Row, processes: &[&Test], generates: bool) -> Result<Row, BadFile> {
    let Some(first) = processes.first() else { return Ok(row) };
    let names = match (first.prompt, first.new) {
        // The lane has no prefill time for these tests, so ours is reported but not judged.
        (_, 0) if generates => ("prefill_tokens_per_s", "seconds", Direction::Info),
        (_, 0) => ("tokens_per_s", "seconds", Direction::Lower),
        (0, _) => ("decode_tokens_per_s", "decode_s", Direction::Lower),
        _ => ("total_tokens_per_s", "seconds", Direction::Lower),
    };
    let of = |part: fn(&Test) -> &Vec<f64>| processes.iter().map(|t| part(t).clone()).collect::<Vec<_>>();
    let rates = values::samples(first.place, ("tokens/s", Direction::Higher), &of(|t| &t.rates))?;
    row = row.metric(names.0, rates);
    let seconds = values::samples(first.place, ("s", names.2), &of(|t| &t.seconds))?;
    if seconds.n() > 0 {
        row = row.metric(names.1, seconds);
    }
    let deviation = values::samples(first.place, ("tokens/s", Direction::Info), &of(|t| &t.deviation))?;
    if deviation.n() > 0 {
        row = row.metric("deviation", deviation);
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
    if let (Some(rate), Some(prompt), Some(new)) = (rate("total_tokens_per_s"), prompt, new) {
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
    if tokens == 0.0 || times.iter().any(|ns| !(1.0..9e18).contains(ns)) {
        return Err("a rate of 0, or no tokens, has no time".to_owned());
    }
    let integer = |v: Option<f64>| v.map_or(Value::Null, |v| (v.round() as i64).into());
    let time = Samples::new("ns", Direction::Lower, times.clone()).map_err(|e| e.to_string())?;
    let param = |name: &str| row.params.get(name).cloned().filter(|v| !v.is_null());
    let text = |name: &str| param(name).map(|v| v.as_str().map_or_else(|| v.to_string(), ToOwned::to_owned));
    let (model, format) = (text("model"), text("format"));
    let kind = [model.clone(), format].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let mut fields: Map<String, Value> = COLUMNS
        .iter()
        .map(|(name, kind)| {
            ((*name).to_owned(), param(name).map_or(Value::Null, |value| typed(*kind, &value)))
        })
        .collect();
    let mut set = |name: &str, value: Value| {
        let known = fields.get(name).is_some_and(|v| !v.is_null());
        if !known {
            fields.insert(name.to_owned(), value);
        }
    };
    let engine = &run.engine;
    let number = engine.version.as_deref().and_then(|v| v.strip_prefix('b')?.parse::<i64>().ok());
    set("build_commit", engine.git.clone().into());
    set("build_number", number.into());
    set("cpu_info", run.machine.summary().into());
    set("gpu_info", "".into());
    set("backends", row.kernel_path.clone().into());
    set("model_filename", model.into());
    set("model_type", kind.into());
    set("n_threads", param("threads").unwrap_or_default());
    let kv = text("kv_format");
    set("type_k", kv.clone().into());
    set("type_v", kv.into());
    set("test_time", run.started_at.clone().into());
    let counts = [("n_prompt", prompt), ("n_gen", new), ("n_depth", depth)];
    fields.extend(counts.map(|(name, value)| (name.to_owned(), value.into())));
    let numbers = [
        ("avg_ns", integer(time.mean())),
        ("stddev_ns", integer(time.std().or(Some(0.0)))),
        ("avg_ts", rate.mean().into()),
        ("stddev_ts", rate.std().unwrap_or(0.0).into()),
        ("samples_ns", times.iter().map(|ns| *ns as i64).collect::<Vec<_>>().into()),
        ("samples_ts", rate.values().into()),
        ("engine", engine.name.clone().into()),
        ("engine_version", engine.version.clone().into()),
    ];
    fields.extend(numbers.map(|(name, value)| (name.to_owned(), value)));
    Ok(Record { place: Place::File, fields })
}
