//! Lane `sched-zipf`: requests that arrive at a rate and combine adapters of Zipf's popularity, beside the same requests without
//! adapters.
//!
//! Blocks of both arms alternate, and a pair of blocks has the same requests at the same times. Requests arrive on schedule, whether or
//! not earlier ones were answered, and latency counts from the time at which a request was due. Memory holds a part of the
//! adapters, so that rare ones are read again when they are needed; others are replaced while requests run.

mod arrivals;
mod busy;
mod case;
mod library;
mod rows;
mod run;

use std::cell::RefCell;

use redline_engine::AdapterOptions;

use super::prelude::*;
use crate::baseline::Rule;
use crate::bench::Serving;
use crate::warning::{Over, Warning};
use busy::Recorder;
use case::{Flags, Pair};
use library::Library;
use rows::Outcome;
use run::Server;

pub(super) const LANE: Lane = Lane {
    asks: "What do many adapters of different popularity cost while requests arrive at a rate?",
    checks: "every request is answered, sampled ones with the ids that they have alone, and all with the same ids in every run",
    against: "the same requests at the same times without adapters, in alternating blocks",
    metrics: METRICS,
    flags: &Flags::ALL,
    smoke: "adapters=6 mean-adapters=2 rank=4 load-rps=40 duration-s=1 prompt-tokens=8 new-tokens=8 \
            reload-s=0.1 num-runs=2",
    standard: "duration-s=20 num-runs=3",
    columns: COLUMNS,
    shown: SHOWN,
    note: Some(
        "latencies count from the time at which a request was due; tax % is the median over requests of what adapters add to the time \
         from first pass to last token; cold load p95: to read and pack an evicted adapter",
    ),
    styles: &[("sched-zipf", SEED)],
    baseline: Some(Rule { keys: &["name"], value: "tokens_per_s", most_drop: 0.10 }),
    warnings: &[
        Warning { metric: "lora_tax_pct", most: 10.0, over: Over::Zero, unit: "%" },
        Warning { metric: "queue_ms_p95", most: 200.0, over: Over::Baseline, unit: "ms" },
    ],
    ..Lane::new("sched-zipf", 0.10, LaneFunction::Model(run))
};

const METRICS: &str = "+tokens_per_s tokens/s|-p50_ms ms|p95_ms ms|base_p50_ms ms|base_p95_ms ms|lora_tax_pct %|\
     p95_tax_pct %|hot_reload_ms_p95 ms|cold_load_ms_p95 ms|queue_ms_p95 ms|adapter_wait_ms_p95 ms|\
     late_ms_p95 ms|load_rps requests/s|decode_util fraction|adapter_util fraction|overlap_ratio fraction|\
     cold_loads loads|reloads loads|#mean_adapters_per_req adapters|#requests requests";

/// The columns of the seed.
const SEED: &str = "sched|alpha|adapters_N=adapters_n|~mean_adapters_per_req|rank=adapter_rank|~load_rps|duration_s|\
     decode_threads|adapter_threads|pin_cores|~p50_ms|~p95_ms|~base_p95_ms|~lora_tax_pct|\
     ~hot_reload_ms_p95|~tokens_per_s|~queue_ms_p95|~decode_util|~adapter_util|~overlap_ratio";

/// The columns of the seed, then ours.
const COLUMNS: &[&str] = &[
    SEED,
    "name=@case|~cold_load_ms_p95|~cold_loads|~reloads|~p95_tax_pct|~adapter_wait_ms_p95|~late_ms_p95|\
     ~requests|offered_rps|arrivals|prompt_tokens|new_tokens|adapter_bytes|adapter_memory|format|\
     num_runs=#tokens_per_s|kernel_path=@kernels",
];

/// The columns of the printed table.
const SHOWN: &str = "@case|rps=~load_rps|tokens/s=~tokens_per_s|p50 ms=~p50_ms|p95 ms=~p95_ms|base p95=~base_p95_ms|\
     tax %=~lora_tax_pct|queue p95=~queue_ms_p95|hot reload p95=~hot_reload_ms_p95|\
     cold load p95=~cold_load_ms_p95|cold loads=~cold_loads|decode util=~decode_util|\
     adapter util=~adapter_util|overlap=~overlap_ratio";

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let case = Flags::of(values)?;
    let schedule = case.schedule()?;
    for threads in case.threads(bench) {
        let row = measure(bench, model, (&case, &schedule), threads)?;
        bench.done(&format!("{} adapters, {threads} threads", case.adapters), vec![row])?;
    }
    Ok(())
}

/// Measures with so many threads of the model.
fn measure(
    bench: &Bench<'_>,
    model: &BenchModel<'_>,
    (case, schedule): (&Flags, &[Pair]),
    threads: usize,
) -> Result<Row> {
    let recorder = Recorder::default();
    let requests: usize = schedule.iter().map(|pair| pair.requests.len()).sum();
    let setup = |memory| {
        let adapters = AdapterOptions {
            memory,
            max_rank: case.rank,
            max_uses: case.most_adapters(),
            threads: case.adapter_threads,
        };
        let serving =
            Serving { adapters, queue: requests.max(1), pin: case.pin_cores, stages: recorder.log() };
        Setup { serving: Some(serving), ..Setup::new(threads) }
    };
    // The size of an adapter is known once one is loaded.
    let (library, adapter_bytes) = {
        let engine = (model.load)(setup(AdapterOptions::default().memory))?;
        let library = Library::new(&engine, case.adapters, case.rank, case.seed)?;
        let first = engine.load_adapter(&Library::name(0), &library.dir(0), None)?;
        (library, first.bytes)
    };
    let adapter_memory = memory(case, schedule, adapter_bytes);
    bench.fits(&format!("{} adapters", case.adapters), adapter_memory as f64)?;
    let runs = Runs { timed: case.timed, warmups: case.warmups };
    let tokens = case.prompt_tokens.saturating_add(case.new_tokens);
    let trials = Trials::load(bench, model, setup(adapter_memory), runs, tokens)?;
    library.publish(&trials.engine)?;
    let server = Server {
        engine: &trials.engine,
        clock: bench.clock,
        case,
        library: &library,
        recorder: &recorder,
        schedule,
    };
    let alone = server.alone()?;
    let warmup = trials.warm_up(|_| server.warm_up())?;
    let digest: RefCell<Option<String>> = RefCell::default();
    let samples = trials.take(1, |number| {
        let sample = server.run(&alone)?;
        let (now, mut first) = (sample.digest(), digest.borrow_mut());
        verify(*first.get_or_insert_with(|| now.clone()) == now, || {
            format!("answers of run {} differ from those of the first", number + 1)
        })?;
        Ok(sample)
    })?;
    let used: usize = schedule.iter().flat_map(|pair| &pair.requests).map(|one| one.adapters.len()).sum();
    let outcome = Outcome {
        case,
        info: trials.info(),
        adapter_bytes,
        adapter_memory,
        mean_adapters: used as f64 / requests.max(1) as f64,
        digest: digest.take().unwrap_or_default(),
    };
    Ok(outcome.row(&samples)?.warmed(warmup))
}

/// Bytes of memory for adapters, which holds at least those of every request.
fn memory(case: &Flags, schedule: &[Pair], adapter_bytes: u64) -> u64 {
    match case.adapter_mib {
        Some(mib) => (mib as u64).saturating_mul(1 << 20),
        None => {
            let combined = schedule.iter().flat_map(|pair| &pair.requests).map(|one| one.adapters.len());
            let adapters = case.adapters.div_ceil(4).max(combined.max().unwrap_or(1));
            adapter_bytes.saturating_mul(adapters as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Column;

    #[test]
    fn the_columns_of_the_seed_come_first() {
        let names: Vec<&str> = Column::all(&[SEED]).iter().map(|column| column.name).collect();
        let seed = "sched,alpha,adapters_N,mean_adapters_per_req,rank,load_rps,duration_s,decode_threads,adapter_threads,\
                    pin_cores,p50_ms,p95_ms,base_p95_ms,lora_tax_pct,hot_reload_ms_p95,tokens_per_s,queue_ms_p95,decode_util,\
                    adapter_util,overlap_ratio";
        assert_eq!(names.join(","), seed);
    }

    #[test]
    fn a_tax_above_a_tenth_is_a_warning() {
        let row = |tax: f64, wait: f64| {
            let metric = |unit: &str, value| Samples::new(unit, Direction::Info, vec![value]).unwrap();
            Row::new("a").metric("lora_tax_pct", metric("%", tax)).metric("queue_ms_p95", metric("ms", wait))
        };
        let warnings = |tax, wait| LANE.warnings(&[row(tax, wait)], |_, _| Some(50.0));
        assert!(warnings(10.0, 250.0).is_empty());
        let told = warnings(10.5, 251.0);
        assert!(told.len() == 2 && told[0].starts_with("a: lora_tax_pct is 10.50 %"), "{told:?}");
        assert!(told[1].starts_with("a: queue_ms_p95 is 251.0 ms, more than 200.0 ms"), "{told:?}");
    }

    #[test]
    fn memory_holds_a_quarter_of_the_adapters_or_those_of_a_request() {
        let of = |given: &[(&'static str, &'static str)]| {
            let case = Flags::with(given).unwrap();
            memory(&case, &case.schedule().unwrap(), 10)
        };
        assert_eq!(of(&[]), 10 * 128);
        assert_eq!(of(&[("adapters", "5"), ("mean-adapters", "1")]), 10 * 2);
        assert_eq!(of(&[("adapters", "5"), ("mean-adapters", "4")]), 10 * 5);
        assert_eq!(of(&[("adapter-mib", "3")]), 3 << 20);
    }
}
