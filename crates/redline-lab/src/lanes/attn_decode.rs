//! Lane `attn-decode`: one query row of each sequence attends to keys and values of a small format, beside f16.

use super::prelude::*;
use crate::attention;

pub(super) const LANE: Lane = Lane {
    asks: "How fast does one token attend to its context, and what does a smaller format of keys and values cost in quality?",
    checks: attention::CHECKS,
    against: attention::AGAINST,
    metrics: attention::METRICS,
    flags: &attention::OF_ONE_ROW,
    smoke: "ctx=300 batch=1,2 head-dim=32 heads-per-kv=3 kv-heads=2 kv-mib=1 perplexity-tokens=256 \
            num-runs=2",
    standard: "ctx=4096 heads-per-kv=4 perplexity-tokens=8192 num-runs=5",
    threads: attention::one_and_all,
    columns: attention::COLUMNS,
    shown: attention::SHOWN,
    note: Some(attention::NOTE),
    styles: &[("attn-decode", attention::SEED)],
    baseline: Some(attention::RULE),
    ..Lane::new(NAME, 0.05, LaneFunction::Model(run))
};

const NAME: &str = "attn-decode";

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    attention::run(NAME, Some(1), bench, model, values)
}
