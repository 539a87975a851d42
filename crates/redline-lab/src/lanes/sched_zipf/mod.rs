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
use crate::bench::{MetricSpec, Serving};
use crate::warning::{Over, Warning};
use busy::Recorder;
use case::{Case, Pair};
use library::Library;
use rows::Outcome;
use run::Server;

pub(super) const LANE: Lane = Lane {
    asks: "What do many adapters of different popularity cost while requests arrive at a rate?",
    checks: "every request is answered, sampled ones with the ids that they have alone, and all with the same ids in every run",
    against: "the same requests at the same times without adapters, in alternating blocks",
    metrics: METRICS,
    flags: FLAGS,
    smoke: &[
        ("adapters", "6"),
        ("mean-adapters", "2"),
        ("rank", "4"),
        ("load-rps", "40"),
        ("duration-s", "1"),
        ("prompt-tokens", "8"),
        ("new-tokens", "8"),
        ("reload-s", "0.1"),
        ("num-runs", "2"),
    ],
    standard: &[("duration-s", "20"), ("num-runs", "3")],
    columns: Some(COLUMNS),
    shown: Some(SHOWN),
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

const FLAGS: &[Flag] = &[
    flag("alpha", "X", "1.1").help("Exponent of the adapters' popularity (Zipf); 0: all are equally popular"),
    flag("adapters", "N", "512").help("Number of adapters"),
    flag("mean-adapters", "X", "4")
        .help("Mean number of adapters that a request combines: one, and a Poisson number more"),
    flag("rank", "N", "8").help("Rank of the adapters"),
    flag("load-rps", "X", "24").help("Requests per second"),
    flag("arrivals", "WHICH", "poisson").help("Time between arrivals: poisson (exponential) or gamma"),
    flag("burstiness", "X", "1").help("Shape of gamma: 1 is poisson, less has more bursts"),
    flag("duration-s", "S", "90").help("Seconds of a run, half of them with adapters"),
    flag("prompt-tokens", "N", "32").help("Tokens of a prompt"),
    flag("new-tokens", "N", "32").help("New tokens of a request"),
    flag("decode-threads", "N", "auto").help("Threads of the model, instead of those of --threads"),
    flag("adapter-threads", "N", "1").help("Threads that read adapters"),
    flag("pin-cores", "", "false")
        .help("Bind each thread of the model to a CPU, and those for adapters to the CPUs that are left"),
    flag("adapter-mib", "N", "auto").help("Memory for adapters in MiB; auto: room for a quarter of them"),
    flag("reload-s", "S", "1").help("Seconds between adapters that are replaced while requests run; 0: none"),
    flag("seed", "N", "0").help("Seed of the schedule"),
    Flag::runs("1"),
    Flag::warmups("1"),
    flag("max-tax", "PERCENT", "0").help("Fail where adapters add more; 0: no gate"),
];

const METRICS: &[MetricSpec] = &[
    higher("tokens_per_s", "tokens/s"),
    lower("p50_ms", "ms"),
    info("p95_ms", "ms"),
    info("base_p50_ms", "ms"),
    info("base_p95_ms", "ms"),
    info("lora_tax_pct", "%"),
    info("p95_tax_pct", "%"),
    info("hot_reload_ms_p95", "ms"),
    info("cold_load_ms_p95", "ms"),
    info("queue_ms_p95", "ms"),
    info("adapter_wait_ms_p95", "ms"),
    info("late_ms_p95", "ms"),
    info("load_rps", "requests/s"),
    info("decode_util", "fraction"),
    info("adapter_util", "fraction"),
    info("overlap_ratio", "fraction"),
    info("cold_loads", "loads"),
    info("reloads", "loads"),
    count("mean_adapters_per_req", "adapters"),
    count("requests", "requests"),
];

/// The columns of the seed.
const SEED: &[Column] = COLUMNS.split_at(20).0;

/// The columns of the seed, then ours.
const COLUMNS: &[Column] = &[
    Column::param("sched"),
    Column::param("alpha"),
    Column { name: "adapters_N", cell: Cell::Param("adapters_n") },
    Column::median("mean_adapters_per_req"),
    Column { name: "rank", cell: Cell::Param("adapter_rank") },
    Column::median("load_rps"),
    Column::param("duration_s"),
    Column::param("decode_threads"),
    Column::param("adapter_threads"),
    Column::param("pin_cores"),
    Column::median("p50_ms"),
    Column::median("p95_ms"),
    Column::median("base_p95_ms"),
    Column::median("lora_tax_pct"),
    Column::median("hot_reload_ms_p95"),
    Column::median("tokens_per_s"),
    Column::median("queue_ms_p95"),
    Column::median("decode_util"),
    Column::median("adapter_util"),
    Column::median("overlap_ratio"),
    Column { name: "name", cell: Cell::Case },
    Column::median("cold_load_ms_p95"),
    Column::median("cold_loads"),
    Column::median("reloads"),
    Column::median("p95_tax_pct"),
    Column::median("adapter_wait_ms_p95"),
    Column::median("late_ms_p95"),
    Column::median("requests"),
    Column::param("offered_rps"),
    Column::param("arrivals"),
    Column::param("prompt_tokens"),
    Column::param("new_tokens"),
    Column::param("adapter_bytes"),
    Column::param("adapter_memory"),
    Column::param("format"),
    Column { name: "num_runs", cell: Cell::Samples("tokens_per_s") },
    Column::KERNEL_PATH,
];

/// The columns of the printed table.
const SHOWN: &[Column] = &[
    Column { name: "case", cell: Cell::Case },
    median("rps", "load_rps"),
    median("tokens/s", "tokens_per_s"),
    median("p50 ms", "p50_ms"),
    median("p95 ms", "p95_ms"),
    median("base p95", "base_p95_ms"),
    median("tax %", "lora_tax_pct"),
    median("queue p95", "queue_ms_p95"),
    median("hot reload p95", "hot_reload_ms_p95"),
    median("cold load p95", "cold_load_ms_p95"),
    median("cold loads", "cold_loads"),
    median("decode util", "decode_util"),
    median("adapter util", "adapter_util"),
    median("overlap", "overlap_ratio"),
];

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let (case, runs) = (Case::of(values)?, values.runs()?);
    let schedule = case.schedule()?;
    for threads in case.threads(bench) {
        let row = measure(bench, model, (&case, &schedule), threads, runs)?;
        bench.done(&format!("{} adapters, {threads} threads", case.load.adapters), vec![row])?;
    }
    Ok(())
}

/// Measures with so many threads of the model.
fn measure(
    bench: &Bench<'_>,
    model: &BenchModel<'_>,
    (case, schedule): (&Case, &[Pair]),
    threads: usize,
    runs: Runs,
) -> Result<Row> {
    let recorder = Recorder::default();
    let requests: usize = schedule.iter().map(|pair| pair.requests.len()).sum();
    let setup = |memory| {
        let adapters = AdapterOptions {
            memory,
            max_rank: case.rank,
            max_uses: case.load.most_adapters,
            threads: case.adapter_threads,
        };
        let serving =
            Serving { adapters, queue: requests.max(1), pin: case.pin_cores, stages: recorder.log() };
        Setup { serving: Some(serving), ..Setup::new(threads) }
    };
    // The size of an adapter is known once one is loaded.
    let (library, adapter_bytes) = {
        let engine = (model.load)(setup(AdapterOptions::default().memory))?;
        let library = Library::new(&engine, case.load.adapters, case.rank, case.seed)?;
        let first = engine.load_adapter(&Library::name(0), &library.dir(0), None)?;
        (library, first.bytes)
    };
    let adapter_memory = memory(case, schedule, adapter_bytes);
    bench.fits(&format!("{} adapters", case.load.adapters), adapter_memory as f64)?;
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
fn memory(case: &Case, schedule: &[Pair], adapter_bytes: u64) -> u64 {
    match case.adapter_mib {
        Some(mib) => (mib as u64).saturating_mul(1 << 20),
        None => {
            let combined = schedule.iter().flat_map(|pair| &pair.requests).map(|one| one.adapters.len());
            let adapters = case.load.adapters.div_ceil(4).max(combined.max().unwrap_or(1));
            adapter_bytes.saturating_mul(adapters as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::case::tests::case;
    use super::*;

    #[test]
    fn the_columns_of_the_seed_come_first() {
        let names: Vec<&str> = SEED.iter().map(|column| column.name).collect();
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
            let case = case(given).unwrap();
            memory(&case, &case.schedule().unwrap(), 10)
        };
        assert_eq!(of(&[]), 10 * 128);
        assert_eq!(of(&[("adapters", "5"), ("mean-adapters", "1")]), 10 * 2);
        assert_eq!(of(&[("adapters", "5"), ("mean-adapters", "4")]), 10 * 5);
        assert_eq!(of(&[("adapter-mib", "3")]), 3 << 20);
    }
}
