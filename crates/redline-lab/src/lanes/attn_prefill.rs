//! Lane `attn-prefill`: a tile of query rows at the end of each context attends to keys and values of a small format, beside f16.

use super::prelude::*;
use crate::attention;

pub(super) const LANE: Lane = Lane {
    asks: "How fast do the tokens of a prompt attend to their context, and what does a smaller format of keys and values cost in quality?",
    checks: attention::CHECKS,
    against: attention::AGAINST,
    metrics: attention::METRICS,
    flags: &attention::Flags::ALL,
    smoke: "ctx=300 rows=20 head-dim=32 heads-per-kv=3 kv-heads=2 kv-mib=1 perplexity-tokens=256 \
            num-runs=2",
    standard: "ctx=4096 heads-per-kv=4 perplexity-tokens=8192 num-runs=5",
    threads: attention::one_and_all,
    columns: attention::COLUMNS,
    shown: attention::SHOWN,
    note: Some(attention::NOTE),
    styles: &[("attn-prefill", attention::SEED)],
    baseline: Some(attention::RULE),
    ..Lane::new(NAME, 0.05, LaneFunction::Model(run))
};

const NAME: &str = "attn-prefill";

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    attention::run(NAME, None, bench, model, values)
}
