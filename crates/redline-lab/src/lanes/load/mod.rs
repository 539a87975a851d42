//! Lane `load`: HTTP servers under load, in a closed or an open loop.
//!
//! The client measures any server that speaks the routes of OpenAI and its relatives, and several servers in turns (A B, B A), so that they
//! stand in one table. In a closed loop, each connection sends its next request when the answer to the last one has ended. In an open
//! loop, requests arrive on a schedule whether or not earlier ones were answered, and latency counts from the time at which a request
//! was due. Without this, a server that stalls would also stall the client, and the wait would be missing from the latencies
//! (coordinated omission).

mod case;
mod drive;
mod figures;
mod kind;
mod prompt;
mod reply;
mod server;

use super::prelude::*;
use crate::bench::{MeasuredServer, Servers};
use crate::canary::Watched;
use case::{Flags, Pacing};
use drive::Pace;
use figures::Turn;
use kind::Kind;
use prompt::Prompts;
use reply::Reply;
use server::{Measured, Ready};

/// What requests wait for, by name, with what it is.
const QUANTITIES: &[(&str, &str)] = &[
    ("ttft", "from the due time to the first token"),
    ("tpot", "mean time between tokens of a request"),
    ("itl", "time between tokens, all requests together"),
    ("stall", "longest time between tokens of a request"),
    ("e2e", "from the due time to the end of the answer"),
    ("dispatch_delay", "from the due time until the request was sent"),
];
/// The percentiles, with their names.
const PERCENTILES: &[(f64, &str)] = &[(50.0, "p50"), (90.0, "p90"), (95.0, "p95"), (99.0, "p99")];

pub(super) const LANE: Lane = Lane {
    asks: "How many requests does a server answer over HTTP, and how long do they wait?",
    checks: "each server answers requests that run alone",
    against: "the first server, in alternating runs; without a server, one of this program is started",
    metrics: METRICS,
    flags: &Flags::ALL,
    smoke: "concurrency=1,2 requests=6 prompt-tokens=8 output-tokens=4 num-runs=2",
    standard: "concurrency=1,8 requests=40 num-runs=3",
    shown: SHOWN,
    note: Some(
        "times are p50/p90/p95/p99, `-` where there are too few requests (6, 36, 72, 368); ttft and e2e count from the time at which a \
         request was due",
    ),
    ..Lane::new("load", 0.10, LaneFunction::Server(run))
};

const METRICS: &str = "+req_s requests/s|+output_tok_s tokens/s|steady_output_tok_s tokens/s|+items_s items/s|\
     total_tok_s tokens/s|-ttft_p50_s s|-ttft_p95_s s|ttft_p90_s s|ttft_p99_s s|-tpot_p50_s s|tpot_p* s|\
     itl_* s|stall_* s|-e2e_p50_s s|e2e_p* s|dispatch_delay_* s|+goodput_req_s requests/s|good_pct %|\
     offered_rps requests/s|sent_rps requests/s|requests requests|errors requests|error_pct %|\
     errors_* requests|short requests|changed requests|output_tokens tokens|prompt_tokens tokens|\
     cached_tokens tokens|rate_vs_first x|ttft_p95_vs_first x";

/// The columns of the printed table.
const SHOWN: &str = "@case|~requests|~errors|req/s=~req_s|tokens/s=~output_tok_s|\
     ttft ms=~ttft_p50_s/ttft_p90_s/ttft_p95_s/ttft_p99_s*1e3|\
     tpot ms=~tpot_p50_s/tpot_p90_s/tpot_p95_s/tpot_p99_s*1e3|\
     itl ms=~itl_p50_s/itl_p90_s/itl_p95_s/itl_p99_s*1e3|\
     e2e ms=~e2e_p50_s/e2e_p90_s/e2e_p95_s/e2e_p99_s*1e3|good req/s=~goodput_req_s|vs first=~rate_vs_first";

/// Name of a server that this program starts.
const OWN: &str = "redline";

fn run(bench: &Bench<'_>, servers: &Servers<'_>, values: &Values) -> Result<()> {
    let load = Flags::of(values)?;
    if !servers.running.is_empty() {
        let measured = servers.running.iter().map(|server| Measured::new(server.clone(), servers, None));
        return measure(bench, &load, &measured.collect::<Result<Vec<_>>>()?);
    }
    for &threads in &bench.threads {
        let started = (servers.start)(threads)?;
        let server =
            MeasuredServer { name: OWN.to_owned(), address: started.address.clone(), base: String::new() };
        measure(bench, &load, &[Measured::new(server, servers, Some(started.info.clone()))?])?;
    }
    Ok(())
}

/// Measures all cases on all servers.
fn measure(bench: &Bench<'_>, load: &Flags, servers: &[Measured]) -> Result<()> {
    let (mut block, pacing) = (0, load.pacing());
    for &kind in &load.kinds {
        let mut prompts = Prompts::new(load.seed, load.items);
        if let Some(path) = &load.prompts {
            prompts = prompts.reading(path)?;
        }
        let probed = Prompts { words: load.prompt_tokens, ..prompts.clone() };
        let ready = servers.iter().map(|server| Ready::new(server, kind, load, bench.clock, &probed));
        let mut ready = ready.collect::<Result<Vec<_>>>()?;
        if let (Some(first), true) = (ready.first(), prompts.digest.is_none()) {
            prompts.words = first.words(load.prompt_tokens, &prompts);
            let part = load.shared_tokens as f64 / load.prompt_tokens as f64;
            prompts.shared = ((prompts.words as f64 * part).round() as usize).min(prompts.words);
        }
        for server in &mut ready {
            server.check(&prompts)?;
            if server.digest.is_none() {
                let name = &server.server.name;
                (bench.note)(&format!("{name}: the same requests alone got other answers the second time"));
            }
        }
        for &pacing in &pacing {
            let rows = measure_case(bench, load, &ready, &prompts, (pacing, &mut block))?;
            bench.done(&format!("{} {}", kind.name(), pacing.name()), rows)?;
        }
    }
    Ok(())
}

/// Measures one case on all servers, in turns.
fn measure_case(
    bench: &Bench<'_>,
    load: &Flags,
    ready: &[Ready<'_>],
    prompts: &Prompts,
    (pacing, block): (Pacing, &mut usize),
) -> Result<Vec<Row>> {
    for _ in 0..load.warmups {
        let pace = Pace {
            connections: pacing.connections(),
            requests: pacing.connections().min(load.requests(pacing)),
            most_ns: None,
            due: None,
        };
        for server in ready {
            server.drive(prompts, *block, &pace)?;
        }
        *block += 1;
    }
    let (first, count) = (*block, ready.len());
    *block += load.timed;
    let watched = bench.canary(1)?.watch(load.timed * count, bench.clock, |sample| {
        let (run, place) = (sample / count, sample % count);
        let server = &ready[if run % 2 == 0 { place } else { count - 1 - place }];
        turn(server, load, prompts, (pacing, run, first + run))
    })?;
    let mut turns: Vec<Vec<Watched<Turn>>> = vec![Vec::new(); count];
    for (sample, turn) in watched.into_iter().enumerate() {
        let place = sample % count;
        turns[if (sample / count) % 2 == 0 { place } else { count - 1 - place }].push(turn);
    }
    let mut rows = Vec::with_capacity(count);
    for (index, server) in ready.iter().enumerate() {
        if let (Some(last), true) = (turns[index].last_mut(), load.timed > 0) {
            let changed = server.changed(prompts, first + load.timed - 1, &last.value.replies);
            last.value.changed = changed;
        }
        let first = (index > 0).then_some(&turns[0][..]);
        let row = figures::row(server, load, pacing, &turns[index], first)?;
        note(bench, load, (server.kind, &row.case), &turns[index]);
        rows.push(row);
    }
    Ok(rows)
}

/// One run of a case on a server.
fn turn(
    server: &Ready<'_>,
    load: &Flags,
    prompts: &Prompts,
    (pacing, run, block): (Pacing, usize, usize),
) -> Result<Turn> {
    let due = load.schedule(pacing, run)?;
    let scheduled = due.as_ref().map(Vec::len);
    let pace = Pace {
        connections: pacing.connections(),
        requests: scheduled.unwrap_or_else(|| load.requests(pacing)),
        most_ns: load.duration_s.map(|seconds| (seconds * 1e9) as u64),
        due,
    };
    let exchanges = server.drive(prompts, block, &pace)?;
    let replies = exchanges.iter().map(|exchange| Reply::of(exchange, server.kind)).collect();
    Ok(Turn::new(&exchanges, replies, scheduled))
}

/// Tells what the table does not show: errors by kind, answers that are too short or changed, cached prompts, a late client.
fn note(bench: &Bench<'_>, load: &Flags, (kind, case): (Kind, &str), turns: &[Watched<Turn>]) {
    // The items of other requests share a part that is computed once.
    let tells_cache = kind.generates();
    let turns: Vec<&Turn> = turns.iter().map(|it| &it.value).collect();
    let replies = || turns.iter().flat_map(|turn| &turn.replies);
    let all = replies().count();
    for kind in figures::error_kinds(&turns) {
        let faults = || replies().filter_map(|reply| reply.fault.as_ref()).filter(|fault| fault.kind == kind);
        let message = faults().next().map(|fault| fault.message.as_str()).unwrap_or_default();
        (bench.note)(&format!(
            "{case}: {} of {all} requests failed with {kind}: {message}",
            faults().count()
        ));
    }
    let short: usize = turns.iter().map(|turn| turn.short(load)).sum();
    if short > 0 && replies().any(|reply| reply.output_tokens > 0) {
        let asked = load.output_tokens;
        (bench.note)(&format!("{case}: {short} of {all} answers have fewer than {asked} tokens"));
    }
    let changed: usize = turns.iter().map(|turn| turn.changed).sum();
    if changed > 0 {
        (bench.note)(&format!("{case}: {changed} answers differ from those to the same requests alone"));
    }
    let sum = |of: fn(&Reply) -> Option<usize>| replies().filter_map(of).sum::<usize>();
    let (cached, prompt) = (sum(|reply| reply.cached_tokens), sum(|reply| reply.prompt_tokens));
    if 10 * cached > prompt && tells_cache && load.shared_tokens == 0 && load.prompts.is_none() {
        let advice = "another --seed gives other prompts";
        (bench.note)(&format!(
            "{case}: {cached} of {prompt} prompt tokens came from a prefix cache; {advice}"
        ));
    }
    if turns.iter().any(|turn| turn.is_late()) {
        (bench.note)(&format!("{case}: the client was late, so its figures are not those of the server"));
    }
}
