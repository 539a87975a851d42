//! The text of `/metrics`.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use redline_engine::HistogramCounts;

use super::table::{METRICS, MetricInfo, MetricKind, metric};

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// The label with the name of a model.
const MODEL: &str = "model";

/// Labels with their values.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// A value of a metric.
#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    Counts(HistogramCounts),
}

/// All metrics with their values at a moment.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    values: BTreeMap<&'static str, Vec<(Labels, Value)>>,
    /// The model's name, if vLLM's names are written too.
    vllm_model: Option<String>,
    /// The model of several that is added about.
    model: Option<String>,
}

impl Exposition {
    /// Writes the metrics under the names that vLLM gives them, too.
    pub(crate) fn with_vllm(self, model: &str) -> Self {
        Self { vllm_model: Some(model.to_owned()), ..self }
    }

    /// Says which model of several is added about from now on.
    pub(crate) fn concern(&mut self, model: Option<String>) {
        self.model = model;
    }

    fn push(&mut self, name: &str, mut labels: Labels, value: Value) {
        if let Some(model) = self.model.clone().filter(|_| labels.iter().all(|(name, _)| *name != MODEL)) {
            labels.push((MODEL, model));
        }
        if let Some(metric) = metric(name) {
            self.values.entry(metric.name).or_default().push((labels, value));
        }
    }

    /// Adds a number without labels.
    pub(crate) fn number(&mut self, name: &str, value: impl Number) {
        self.labelled(name, Vec::new(), value);
    }

    /// Adds a number with labels.
    pub(crate) fn labelled(&mut self, name: &str, labels: Labels, value: impl Number) {
        self.push(name, labels, Value::Number(value.number()));
    }

    /// Adds a histogram.
    pub(crate) fn counts(&mut self, name: &str, labels: Labels, counts: HistogramCounts) {
        self.push(name, labels, Value::Counts(counts));
    }

    /// The text.
    pub(crate) fn into_text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry)?;
        Ok(text)
    }

    /// Writes a metric under a name, with one more label if there is one.
    fn write(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, metric): (&str, &MetricInfo),
        more: Option<&str>,
    ) -> fmt::Result {
        let Some(values) = self.values.get(metric.name) else { return Ok(()) };
        let kind = match metric.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        // The encoder appends `_total` to the names of counters.
        let stem = name.strip_suffix("_total").unwrap_or(name);
        let mut family = encoder.encode_descriptor(stem, metric.help, None, kind)?;
        for (labels, value) in values {
            let of_several = labels.iter().find(|(name, _)| *name == MODEL);
            let named = of_several.map_or(more, |(_, model)| more.map(|_| model.as_str()));
            let more = named.map(|model| ("model_name", model.to_owned()));
            let labels: Labels = labels.iter().cloned().chain(more).collect();
            if labels.is_empty() {
                write_value(&mut family, metric.kind, value)?;
            } else {
                write_value(&mut family.encode_family(&labels)?, metric.kind, value)?;
            }
        }
        Ok(())
    }
}

fn write_value(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: &Value) -> fmt::Result {
    match value {
        Value::Number(number) if kind == MetricKind::Counter => {
            encoder.encode_counter::<NoLabelSet, f64, f64>(number, None)
        }
        Value::Number(number) => encoder.encode_gauge(number),
        Value::Counts(counts) => {
            let bounds = counts.bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts.counts.iter().copied()).collect();
            encoder.encode_histogram::<NoLabelSet>(counts.sum, counts.count(), &buckets, None)
        }
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in METRICS {
            self.write(&mut encoder, (metric.name, metric), None)?;
        }
        if let Some(model) = &self.vllm_model {
            for metric in METRICS {
                if let Some(name) = metric.vllm {
                    self.write(&mut encoder, (name, metric), Some(model))?;
                }
            }
        }
        Ok(())
    }
}

/// A number of a metric.
pub(crate) trait Number {
    fn number(self) -> f64;
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for u64 {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for usize {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_prometheus_and_labels_cannot_break_it() {
        let mut exposition = Exposition::default();
        exposition.number("redline_requests_waiting", 3usize);
        exposition.labelled("redline_adapter_requests", vec![("adapter", "a\"\\\n}".to_owned())], 1usize);
        exposition.number("redline_prompt_tokens_total", 12u64);
        let bounds = &[0.5, 1.0];
        let counts = HistogramCounts { bounds, counts: vec![1, 0, 2], sum: 4.25 };
        exposition.counts("redline_request_queue_seconds", Vec::new(), counts);
        let text = exposition.with_vllm("demo").into_text().unwrap();
        let has = |line: &str| assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        has("# TYPE redline_requests_waiting gauge");
        has("redline_requests_waiting 3.0");
        has(r#"redline_adapter_requests{adapter="a\"\\\n}"} 1.0"#);
        has("# TYPE redline_prompt_tokens_total counter");
        has("redline_prompt_tokens_total 12.0");
        has(r#"redline_request_queue_seconds_bucket{le="0.5"} 1"#);
        has(r#"redline_request_queue_seconds_bucket{le="+Inf"} 3"#);
        has("redline_request_queue_seconds_sum 4.25");
        has("redline_request_queue_seconds_count 3");
        has(r#"vllm:num_requests_waiting{model_name="demo"} 3.0"#);
        has(r#"vllm:prompt_tokens_total{model_name="demo"} 12.0"#);
        has(r#"vllm:request_queue_time_seconds_count{model_name="demo"} 3"#);
    }
}
