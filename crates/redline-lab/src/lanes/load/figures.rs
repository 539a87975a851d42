//! The figures of a run, and the row with them.

use super::case::{Flags, Pacing, arrivals_name};
use super::drive::Exchange;
use super::reply::{Reply, seconds};
use super::server::Ready;
use super::{METRICS, PERCENTILES, QUANTITIES};
use crate::bench::Result;
use crate::canary::Watched;
use crate::stats::sorted;
use crate::{Direction, Row, Samples};

/// What one run of a case brought.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) replies: Vec<Reply>,
    /// Requests of the schedule, if there is one.
    scheduled: Option<usize>,
    /// From the first due time to the end of the last answer.
    window: (u64, u64),
    /// The time in which every connection had a request.
    steady: (u64, u64),
    /// Answers that differ from those to the same requests alone, of the few that were compared.
    pub(super) changed: usize,
}

impl Turn {
    pub(super) fn new(exchanges: &[Exchange], replies: Vec<Reply>, scheduled: Option<usize>) -> Self {
        let begin = replies.iter().map(|reply| reply.due).min().unwrap_or(0);
        let end = replies.iter().map(|reply| reply.end).max().unwrap_or(begin);
        let workers: std::collections::BTreeSet<usize> =
            exchanges.iter().map(|exchange| exchange.worker).collect();
        let of = |worker: usize| exchanges.iter().filter(move |exchange| exchange.worker == worker);
        let firsts = workers.iter().filter_map(|&worker| of(worker).map(|it| it.sent).min());
        let lasts = workers.iter().filter_map(|&worker| of(worker).map(|it| it.end).max());
        let steady = (firsts.max().unwrap_or(begin), lasts.min().unwrap_or(begin));
        Self { replies, scheduled, window: (begin, end), steady, changed: 0 }
    }

    fn window_s(&self) -> f64 {
        seconds(self.window.0, self.window.1).max(1e-9)
    }

    fn answered(&self) -> impl Iterator<Item = &Reply> {
        self.replies.iter().filter(|reply| reply.is_ok())
    }

    fn rate(&self, count: f64) -> f64 {
        count / self.window_s()
    }

    fn output_tokens(&self) -> usize {
        self.answered().map(|reply| reply.output_tokens).sum()
    }

    pub(super) fn output_rate(&self) -> f64 {
        self.rate(self.output_tokens() as f64)
    }

    pub(super) fn request_rate(&self) -> f64 {
        self.rate(self.answered().count() as f64)
    }

    /// Tokens per second while every connection had a request; `None` if their times are unknown, or if there was no such time.
    fn steady_rate(&self) -> Option<f64> {
        let (begin, end) = self.steady;
        let within = |at: u64| begin < at && at <= end;
        let chunks = self.answered().flat_map(|reply| &reply.chunks);
        let tokens: usize = chunks.filter(|chunk| within(chunk.0)).map(|chunk| chunk.1).sum();
        (end > begin && tokens > 0).then(|| tokens as f64 / seconds(begin, end))
    }

    pub(super) fn errors(&self) -> usize {
        self.replies.len() - self.answered().count()
    }

    /// The number of requests that kept every objective. A failed request kept none.
    fn good(&self, load: &Flags) -> usize {
        let keeps = |limit: Option<f64>, value: Option<f64>| {
            limit.is_none_or(|most| value.is_some_and(|it| it <= most))
        };
        let slo = load.slo;
        let is_good = |reply: &&Reply| {
            // Tokens that came at once have no time between them, and break no bound of it.
            let tpot = reply.tpot_s().or((reply.chunks.len() == 1).then_some(0.0));
            keeps(slo.ttft_s, reply.ttft_s())
                && keeps(slo.tpot_s, tpot)
                && keeps(slo.e2e_s, Some(reply.e2e_s()))
        };
        self.answered().filter(is_good).count()
    }

    /// The values of a quantity.
    fn values(&self, quantity: &str) -> Vec<f64> {
        match quantity {
            "ttft" => self.answered().filter_map(Reply::ttft_s).collect(),
            "tpot" => self.answered().filter_map(Reply::tpot_s).collect(),
            "itl" => self.answered().flat_map(Reply::gaps_s).collect(),
            "stall" => self.answered().filter_map(Reply::stall_s).collect(),
            "e2e" => self.answered().map(Reply::e2e_s).collect(),
            _ => self.replies.iter().map(|reply| seconds(reply.due, reply.sent)).collect(),
        }
    }

    /// Requests per second that were offered, and that were sent.
    fn sending(&self) -> Option<(f64, f64)> {
        let n = self.scheduled.filter(|&n| n > 1)? as f64;
        let span = |of: fn(&Reply) -> u64| {
            let (first, last) = (self.replies.iter().map(of).min()?, self.replies.iter().map(of).max()?);
            Some((n - 1.0) / seconds(first, last).max(1e-9))
        };
        Some((span(|reply| reply.due)?, span(|reply| reply.sent)?))
    }

    /// Whether the client itself was too late for its schedule.
    pub(super) fn is_late(&self) -> bool {
        let Some((offered, sent)) = self.sending() else { return false };
        let delays = sorted(&self.values("dispatch_delay"));
        let late = delays.get(delays.len() * 99 / 100).copied().unwrap_or(0.0);
        sent < 0.98 * offered && late > 0.05 / offered
    }

    /// Answers with fewer tokens than were asked for.
    pub(super) fn short(&self, load: &Flags) -> usize {
        self.answered().filter(|reply| reply.output_tokens < load.output_tokens).count()
    }
}

/// The percentile of each turn, if all have enough values; otherwise that of all turns together, if they do; otherwise nothing.
fn percentiles(turns: &[&Turn], quantity: &str, percent: f64) -> Result<Vec<f64>> {
    let of = |values: Vec<f64>| -> Result<Option<f64>> {
        let samples = Samples::new("s", Direction::Info, values)?;
        Ok(samples.percentile(percent).map(|found| found.value))
    };
    let each = turns.iter().map(|turn| of(turn.values(quantity))).collect::<Result<Vec<_>>>()?;
    match each.into_iter().collect::<Option<Vec<f64>>>() {
        Some(each) => Ok(each),
        None => Ok(of(turns.iter().flat_map(|turn| turn.values(quantity)).collect())?.into_iter().collect()),
    }
}

/// The row of a case on a server. `first` are the turns of the first server in the same runs, if this is another one.
pub(super) fn row(
    ready: &Ready<'_>,
    load: &Flags,
    pacing: Pacing,
    watched: &[Watched<Turn>],
    first: Option<&[Watched<Turn>]>,
) -> Result<Row> {
    let turns: Vec<&Turn> = watched.iter().map(|it| &it.value).collect();
    let (generates, items) = (ready.kind.generates(), load.items as f64);
    let mut row = described(ready, load, pacing, turns.iter().all(|turn| !turn.is_late()))
        .measured(METRICS, &turns)
        .each("req_s", |turn| turn.request_rate())?
        .each("output_tok_s", |turn| generates.then(|| turn.output_rate()))?
        .each("steady_output_tok_s", |turn| turn.steady_rate())?
        .each("items_s", |turn| (!generates).then(|| turn.request_rate() * items))?
        .each("total_tok_s", |turn| {
            let prompt: Option<usize> = turn.answered().map(|reply| reply.prompt_tokens).sum();
            prompt.map(|prompt| turn.rate((prompt + turn.output_tokens()) as f64))
        })?;
    for &(quantity, _) in QUANTITIES {
        for &(percent, name) in PERCENTILES {
            let values = percentiles(&turns, quantity, percent)?;
            if !values.is_empty() {
                row = row.all(&format!("{quantity}_{name}_s"), values)?;
            }
        }
    }
    if load.slo.is_set() {
        row = row
            .each("goodput_req_s", |turn| turn.rate(turn.good(load) as f64))?
            .each("good_pct", |turn| 100.0 * turn.good(load) as f64 / turn.replies.len().max(1) as f64)?;
    }
    row = row
        .each("offered_rps", |turn| turn.sending().map(|it| it.0))?
        .each("sent_rps", |turn| turn.sending().map(|it| it.1))?
        .each("requests", |turn| turn.replies.len() as f64)?
        .each("errors", |turn| turn.errors() as f64)?
        .each("error_pct", |turn| 100.0 * turn.errors() as f64 / turn.replies.len().max(1) as f64)?
        .each("short", |turn| generates.then(|| turn.short(load) as f64))?
        .each("changed", |turn| turn.changed as f64)?
        .each("output_tokens", |turn| generates.then(|| turn.output_tokens() as f64))?
        .each("prompt_tokens", |turn| sum(turn, |reply| reply.prompt_tokens))?
        .each("cached_tokens", |turn| sum(turn, |reply| reply.cached_tokens))?;
    for kind in error_kinds(&turns) {
        let of = |turn: &&Turn| turn.replies.iter().filter(|it| is_of(it, &kind)).count() as f64;
        row = row.each(&format!("errors_{kind}"), of)?;
    }
    if let Some(first) = first {
        let pairs = || turns.iter().zip(first).map(|(turn, first)| (*turn, &first.value));
        let rate = |turn: &Turn| if generates { turn.output_rate() } else { turn.request_rate() };
        let ratios = pairs().map(|(turn, first)| rate(turn) / rate(first)).filter(|it| it.is_finite());
        row = row.all("rate_vs_first", ratios.collect())?;
        if let Some(ratio) = ratio(&turns, first, "ttft", 95.0)? {
            row = row.one("ttft_p95_vs_first", ratio)?;
        }
    }
    let conditions = watched.iter().map(|it| it.condition).collect();
    Ok(row.row.conditions(conditions).at_most("error_pct", load.max_errors))
}

/// The ratio of a percentile to that of the first server, over all turns.
fn ratio(turns: &[&Turn], first: &[Watched<Turn>], quantity: &str, percent: f64) -> Result<Option<f64>> {
    let of = |turns: &[&Turn]| {
        let values = turns.iter().flat_map(|turn| turn.values(quantity)).collect();
        Ok::<_, crate::bench::LaneError>(Samples::new("s", Direction::Info, values)?.percentile(percent))
    };
    let first: Vec<&Turn> = first.iter().map(|it| &it.value).collect();
    let pair = of(turns)?.zip(of(&first)?);
    Ok(pair.map(|(own, first)| own.value / first.value).filter(|ratio| ratio.is_finite()))
}

/// The sum over answers; `None` if none has it.
fn sum(turn: &Turn, of: impl Fn(&Reply) -> Option<usize>) -> Option<f64> {
    turn.answered().filter_map(of).fold(None, |sum: Option<f64>, n| Some(sum.unwrap_or(0.0) + n as f64))
}

fn is_of(reply: &Reply, kind: &str) -> bool {
    reply.fault.as_ref().is_some_and(|fault| fault.kind == kind)
}

/// The kinds of errors that occurred, in alphabetical order.
pub(super) fn error_kinds(turns: &[&Turn]) -> Vec<String> {
    let faults = turns.iter().flat_map(|turn| &turn.replies).filter_map(|reply| reply.fault.as_ref());
    let kinds: std::collections::BTreeSet<&String> = faults.map(|fault| &fault.kind).collect();
    kinds.into_iter().cloned().collect()
}

fn described(ready: &Ready<'_>, load: &Flags, pacing: Pacing, on_time: bool) -> Row {
    let (server, kind) = (ready.server, ready.kind);
    let sizes = if kind.generates() {
        format!("p{}/o{}", load.prompt_tokens, load.output_tokens)
    } else {
        format!("p{}/i{}", load.prompt_tokens, load.items)
    };
    let case = format!("{}/{}/{}/{sizes}", server.name, kind.name(), pacing.name());
    let row = match &server.info {
        Some(info) => Row::of_model(format!("{case}/t{}", info.threads), info),
        None => Row::new(case).param("model", server.model.clone()),
    };
    let mut row = row.param("server", server.name.clone()).param("kind", kind.name());
    row = match pacing {
        Pacing::Closed(connections) => row.param("loop", "closed").param("concurrency", connections),
        Pacing::Open { rate, arrivals, connections } => row
            .param("loop", "open")
            .param("rate_rps", rate)
            .param("arrivals", arrivals_name(arrivals))
            .param("max_in_flight", connections),
    };
    row = row.param("requests", load.requests(pacing)).param("prompt_tokens", load.prompt_tokens);
    for (name, value) in
        [("shared_prefix_tokens", load.shared_tokens), ("adapters_n", load.adapters.len() as u64)]
    {
        if value > 0 {
            row = row.param(name, value);
        }
    }
    row = if kind.generates() {
        row.param("output_tokens", load.output_tokens).param("streamed", ready.streams())
    } else {
        row.param("items", load.items)
    };
    if let Some(seconds) = load.duration_s {
        row = row.param("duration_s", seconds);
    }
    let row = row.param("seed", load.seed);
    let row = match &ready.digest {
        Some(digest) => row.digest(digest.clone()),
        None => row,
    };
    Row { checked: on_time, ..row }
}

#[cfg(test)]
mod tests {
    use super::super::drive::Fault;
    use super::*;

    const MS: u64 = 1_000_000;

    /// An answer with a token at each of these milliseconds, that was due and sent at others.
    fn reply(due: u64, sent: u64, tokens: &[u64], end: u64) -> Reply {
        Reply {
            due: due * MS,
            sent: sent * MS,
            end: end * MS,
            chunks: tokens.iter().map(|at| (at * MS, 1)).collect(),
            output_tokens: tokens.len(),
            prompt_tokens: Some(7),
            cached_tokens: None,
            text: String::new(),
            fault: None,
        }
    }

    fn failed(due: u64, end: u64) -> Reply {
        Reply { fault: Some(Fault::status(429, "full".to_owned())), ..reply(due, due, &[], end) }
    }

    /// A run with one worker for each list of replies.
    fn turn(workers: &[&[Reply]], scheduled: Option<usize>) -> Turn {
        let each = workers
            .iter()
            .enumerate()
            .flat_map(|(worker, replies)| replies.iter().map(move |it| (worker, it)));
        let exchange = |(worker, reply): (usize, &Reply)| Exchange {
            worker,
            due: reply.due,
            sent: reply.sent,
            end: reply.end,
            ..Exchange::default()
        };
        Turn::new(&each.map(exchange).collect::<Vec<_>>(), workers.concat(), scheduled)
    }

    #[test]
    fn rates_are_over_the_whole_window_and_count_what_was_answered() {
        let one = [reply(0, 0, &[100, 200], 250), reply(250, 250, &[300, 400], 500)];
        let two = [failed(50, 60), reply(60, 60, &[500, 900], 1000)];
        let turn = turn(&[&one, &two], None);
        assert_eq!((turn.request_rate(), turn.output_rate()), (3.0, 6.0));
        assert_eq!((turn.errors(), error_kinds(&[&turn])), (1, vec!["status_429".to_owned()]));
        // Both connections had requests from 50 ms until the first one ended at 500 ms: five tokens in 450 ms.
        let steady = turn.steady_rate().unwrap();
        assert!((steady - 5.0 / 0.45).abs() < 1e-9, "{steady}");
        assert_eq!(turn.sending(), None);
    }

    #[test]
    fn good_requests_keep_every_objective_and_failed_ones_none() {
        let replies = [
            reply(0, 0, &[100, 150], 160),
            reply(0, 0, &[100, 250], 260),
            reply(0, 90, &[190, 200], 210),
            reply(0, 0, &[100], 110),
            failed(0, 1),
        ];
        let turn = turn(&[&replies], None);
        let good = |slo| turn.good(&Flags::with(&[("slo", slo)]).unwrap());
        assert_eq!(good("ttft=101"), 3);
        assert_eq!(good("tpot=51"), 3);
        assert_eq!(good("ttft=101,tpot=51"), 2);
        assert_eq!(good("e2e=211,ttft=201"), 3);
        assert_eq!(turn.good(&Flags::with(&[]).unwrap()), 4);
    }

    #[test]
    fn a_late_client_is_noticed() {
        let due = [0, 100, 200, 300];
        let at = |late: [u64; 4]| {
            let replies: Vec<Reply> = due
                .iter()
                .zip(late)
                .map(|(&due, late)| reply(due, due + late, &[due + 400], due + 500))
                .collect();
            turn(&[&replies], Some(4))
        };
        assert!(!at([0; 4]).is_late() && !at([50; 4]).is_late(), "the rate is kept");
        let late = at([0, 20, 40, 80]);
        assert!(late.is_late());
        let (offered, sent) = late.sending().unwrap();
        assert!((offered - 10.0).abs() < 1e-9 && (sent - 3.0 / 0.38).abs() < 1e-9, "{offered} {sent}");
        // What is late is in the latency: it counts from the due time.
        assert_eq!(late.values("ttft"), [0.4; 4]);
        assert_eq!(late.values("dispatch_delay"), [0.0, 0.02, 0.04, 0.08]);
    }

    #[test]
    fn percentiles_need_enough_requests_of_a_run_or_of_all() {
        let of = |n: u64| {
            let replies: Vec<Reply> = (1..=n).map(|ms| reply(0, 0, &[ms], ms)).collect();
            turn(&[&replies], None)
        };
        let (few, some, many) = (of(5), of(6), of(40));
        let found = |turns: &[&Turn], percent| percentiles(turns, "ttft", percent).unwrap().len();
        assert_eq!(
            (found(&[&few], 50.0), found(&[&few, &few], 50.0), found(&[&some, &some], 50.0)),
            (0, 1, 2)
        );
        assert_eq!(
            (found(&[&many, &many], 90.0), found(&[&many, &many], 95.0), found(&[&many], 95.0)),
            (2, 1, 0)
        );
        assert_eq!(percentiles(&[&some], "ttft", 50.0).unwrap(), [0.0035]);
    }
}
