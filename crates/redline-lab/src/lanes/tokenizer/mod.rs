//! Lane `tokenizer`: tokens per second of the native encoder compared with Hugging Face's `tokenizers` crate, and with its Python
//! package if a file provides those measurements.
//!
//! Both crates encode the same batches with the same threads in one process, in turn, in an order that is reversed every round. The
//! quotient of a round's two times is one sample of the speedup. The arm with a prefix cache is reported separately and is not part
//! of the gate, because it has cached the texts in earlier rounds.
//!
//! There are three kinds of built-in text: English prose, source code, and chats with a common system prompt. `--input-file`
//! provides other texts, one per line. Python's measurements are accepted only for such a file, so that both use the same texts.

mod arms;
mod python;
#[cfg(test)]
mod tests;
mod texts;

use std::path::PathBuf;

use redline_tokenizer::{Encoder, PrefixCacheCounters, PrefixCacheOptions};

use super::prelude::*;
use crate::baseline::Rule;
use crate::bench::Text;
use crate::canary::Watched;
use crate::warmup::Warmup;
use arms::{Arm, Arms, Ids, Sample};
use python::Python;
use texts::Input;

pub(super) const LANE: Lane = Lane {
    asks: "How many tokens per second does the native tokenizer make, and how many times what the `tokenizers` crate makes?",
    checks: "the ids of all texts are those of the `tokenizers` crate, in every run",
    against: "the `tokenizers` crate, in turn in the same process; Python's package where `--python-csv` brings figures",
    metrics: "+tokens_per_s tokens/s|+mb_per_s MB/s|-seconds s|cpu_time s|#tokens tokens|#bytes bytes|\
              speedup_over_library x|speedup_over_python x|prefix_*",
    flags: &Flags::ALL,
    smoke: "texts=6 num-runs=2 min-speedup=0",
    standard: "texts=256",
    threads: |_| vec![1, 2, 4, 8],
    columns: &["text|encoder|threads|texts|~bytes|~tokens|~tokens_per_s|tokens_per_s_min=min:tokens_per_s|\
                tokens_per_s_max=max:tokens_per_s|~mb_per_s|~speedup_over_library|~speedup_over_python|\
                min_speedup|prefix_k|prefix_cache_entries|~prefix_hits|~prefix_misses|runs=#tokens_per_s|\
                kernel_path=@kernels"],
    shown: "text|encoder|threads|tokens/s=~tokens_per_s|min=min:tokens_per_s|max=max:tokens_per_s|\
            MB/s=~mb_per_s|x library=~speedup_over_library|x min=min:speedup_over_library|\
            x max=max:speedup_over_library|x python=~speedup_over_python|hits=~prefix_hits|\
            misses=~prefix_misses",
    styles: &[("tokenizer", SEED)],
    baseline: Some(Rule { keys: &["text", "encoder", "threads"], value: "tokens_per_s", most_drop: 0.10 }),
    ..Lane::new("tokenizer", 0.10, LaneFunction::Text(run))
};

flags! {
    struct Flags;
    input_file: Option<PathBuf> = "input-file", "FILE", "none", "Texts, one per line; none: our own prose, code and chats";
    texts: usize = "texts", "N", "1024", "Texts of each kind, of our own";
    runs: usize = "num-runs", "N", "10", RUNS;
    warmups: usize = "warmup-runs", "N", "1", WARMUPS;
    prefix_k: usize = "prefix-k", "N", "128", "Bytes of a text that are its beginning, for the prefix cache";
    prefix_entries: usize = "prefix-cache-entries", "N", "32", "Beginnings that the prefix cache keeps";
    min_speedup: f64 = "min-speedup", "X", "5.0",
        "Fail where the median speedup is less; 0: no gate [env: REDLINE_TOKENIZER_MIN_SPEEDUP]";
    python_csv: Option<PathBuf> = "python-csv", "FILE", "none",
        "Figures of Python for the same --input-file, as xtask/peers/tokenizer.py writes them";
}

/// The columns of Google Benchmark, as in the seed's `tokenizer.csv`.
const SEED: &str = "name=@case|iterations=#seconds|real_time=~seconds*1e9|cpu_time=~cpu_time*1e9|time_unit='ns'|\
     bytes_per_second=~mb_per_s*1e6|items_per_second=~tokens_per_s|label=''|error_occurred=''|\
     error_message=''";

const RATE: &str = "tokens_per_s";
const OVER_LIBRARY: &str = "speedup_over_library";
const OVER_PYTHON: &str = "speedup_over_python";

struct Plan {
    inputs: Vec<Input>,
    runs: usize,
    prefix: PrefixCacheOptions,
    min_speedup: f64,
    python: Option<Python>,
}

impl Plan {
    fn of(flags: &Flags, threads: &[usize]) -> Result<Self> {
        let &Flags { runs, min_speedup, prefix_k: bytes, prefix_entries: entries, .. } = flags;
        let inputs = match &flags.input_file {
            Some(path) => vec![texts::read(path)?],
            None => texts::of_our_own(flags.texts),
        };
        let python = match &flags.python_csv {
            None => None,
            Some(_) if flags.input_file.is_none() => {
                let fact = "`--python-csv` tells of a file of texts, but there is none";
                return Err(LaneError::Usage(format!("{fact}; give it too: `--input-file FILE`")));
            }
            Some(path) => Some(Python::read(path, &inputs[0], threads)?),
        };
        Ok(Self { inputs, runs, prefix: PrefixCacheOptions { entries, bytes }, min_speedup, python })
    }
}

/// A round over all arms.
type Round = [Sample; Arm::ALL.len()];
/// Runs warm-up rounds, then a given number of rounds that count.
type Take<'a> = &'a dyn Fn(usize, Rounds<'_>) -> Result<(Warmup, Vec<Watched<Round>>)>;
/// Runs a round, given its number.
type Rounds<'a> = &'a dyn Fn(usize) -> Result<Round>;

fn run(bench: &Bench<'_>, text: &Text<'_>, values: &Values) -> Result<()> {
    let (canary, flags) = (bench.canary(1)?, Flags::of(values)?);
    let take = |runs: usize, round: Rounds<'_>| {
        let warmup = bench.warm_up(flags.warmups, |at| round(at).map(drop))?;
        Ok((warmup, canary.watch(runs, bench.clock, |at| round(warmup.runs + at))?))
    };
    run_rounds(bench, text, &flags, &take)
}

fn run_rounds(bench: &Bench<'_>, text: &Text<'_>, flags: &Flags, take: Take<'_>) -> Result<()> {
    let plan = Plan::of(flags, &bench.threads)?;
    let native = (text.tokenizer)(Encoder::Native)?;
    if let Some(reason) = native.fallback() {
        let fact = format!("the native encoder does not cover this tokenizer: {reason}");
        return Err(LaneError::Usage(format!("{fact}\n  in `{}`", text.name)));
    }
    let cached = (text.tokenizer)(Encoder::Native)?.with_prefix_cache(plan.prefix);
    let arms = Arms([native, cached, (text.tokenizer)(Encoder::Library)?]);
    for input in &plan.inputs {
        let ids = arms.checked(input)?;
        if let Some(python) = &plan.python {
            python.check(&ids)?;
        }
        for &threads in &bench.threads {
            let round = |at: usize| arms.round(bench.clock, input, &ids, threads, at);
            let (warmup, rounds) = take(plan.runs, &round)?;
            let case = Case { text, plan: &plan, input, threads, ids: &ids };
            let rows = case.rows(&rounds)?.into_iter().map(|row| row.warmed(warmup)).collect();
            bench.done(&format!("{}, {threads} threads", input.name), rows)?;
        }
    }
    Ok(())
}

/// One kind of text with one number of threads.
struct Case<'a> {
    text: &'a Text<'a>,
    plan: &'a Plan,
    input: &'a Input,
    threads: usize,
    ids: &'a Ids,
}

impl Case<'_> {
    /// One row per arm, with Python last.
    fn rows(&self, rounds: &[Watched<Round>]) -> Result<Vec<Row>> {
        let library: Vec<f64> =
            rounds.iter().map(|round| round.value[Arm::Library as usize].seconds).collect();
        let python = self.plan.python.as_ref().map(|python| python.seconds(self.threads));
        let tokens = self.ids.iter().map(Vec::len).sum();
        let mut rows = Vec::new();
        for &arm in Arm::ALL {
            let samples: Vec<&Sample> = rounds.iter().map(|round| &round.value[arm as usize]).collect();
            let seconds: Vec<f64> = samples.iter().map(|sample| sample.seconds).collect();
            let mut row = self.row(arm.name(), arm.encodes(), tokens, &seconds)?;
            let cpu = samples.iter().filter_map(|sample| sample.cpu_seconds).collect();
            row = row.measured(LANE.metrics, &samples).all("cpu_time", cpu)?.row;
            if arm != Arm::Library {
                row = against(row, &seconds, &library, python.as_deref())?;
            }
            rows.push(match arm {
                Arm::Native => self.gated(row),
                Arm::Cached => self.looked_up(row, &samples)?,
                Arm::Library => row,
            });
        }
        if let (Some(python), Some(seconds)) = (&self.plan.python, &python) {
            let row = self.row("python", "Python package tokenizers", python.first().tokens, seconds)?;
            rows.push(row.param("version", python.first().version.clone()));
        }
        let conditions: Vec<_> = rounds.iter().map(|round| round.condition).collect();
        Ok(rows.into_iter().map(|row| row.conditions(conditions.clone())).collect())
    }

    fn row(&self, encoder: &str, code: &str, tokens: usize, seconds: &[f64]) -> Result<Row> {
        let (bytes, tokens) = (self.input.bytes() as f64, tokens as f64);
        let row = Row::new(format!("tokenizer/{}/{encoder}/t{}", self.input.name, self.threads))
            .param("model", self.text.name)
            .param("text", self.input.name)
            .param("encoder", encoder)
            .param("threads", self.threads)
            .param("texts", self.input.texts.len())
            .digest(arms::digest(self.ids))
            .checked_on(code)
            .measured(LANE.metrics, seconds)
            .each(RATE, |seconds| tokens / seconds)?
            .each("mb_per_s", |seconds| bytes * 1e-6 / seconds)?
            .each("seconds", |seconds| *seconds)?
            .one("tokens", tokens)?
            .one("bytes", bytes)?;
        Ok(row.row)
    }

    fn gated(&self, row: Row) -> Row {
        let least = self.plan.min_speedup;
        if least == 0.0 {
            return row;
        }
        let row = row.param("min_speedup", least).gate(OVER_LIBRARY, least);
        if self.plan.python.is_some() { row.gate(OVER_PYTHON, least) } else { row }
    }

    /// Adds the counters of the prefix cache.
    fn looked_up(&self, row: Row, samples: &[&Sample]) -> Result<Row> {
        let of = |unit: &str, count: fn(&PrefixCacheCounters) -> u64| {
            let counts = samples.iter().filter_map(|sample| sample.lookups.as_ref());
            Samples::new(unit, Direction::Info, counts.map(|lookups| count(lookups) as f64).collect())
        };
        Ok(row
            .param("prefix_k", self.plan.prefix.bytes)
            .param("prefix_cache_entries", self.plan.prefix.entries)
            .metric("prefix_hits", of("texts", |lookups| lookups.hits)?)
            .metric("prefix_misses", of("texts", |lookups| lookups.misses)?)
            .metric("prefix_reused", of("bytes", |lookups| lookups.reused_bytes)?))
    }
}

/// Adds the speedup over the library for each round, and over Python's median.
fn against(row: Row, ours: &[f64], library: &[f64], python: Option<&[f64]>) -> Result<Row> {
    let times = library.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
    let row = row.measured(LANE.metrics, ours).all(OVER_LIBRARY, times)?;
    let Some(python) = python else { return Ok(row.row) };
    let median = Samples::new("s", Direction::Info, python.to_vec())?.median().unwrap_or_default();
    Ok(row.each(OVER_PYTHON, |ours| median / ours)?.row)
}
