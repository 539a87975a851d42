//! What a run consists of: the flags.

use std::path::PathBuf;
use std::time::Duration;

use super::kind::Kind;
use crate::bench::random::{Arrivals, Random};
use crate::bench::{Flag, FlagValue as _, RUNS, Result, flags, optional, positive, require};

/// Most connections: each has a thread.
const MAX_CONNECTIONS: usize = 1024;
/// Most requests of a run.
const MAX_REQUESTS: usize = 1_000_000;
/// Seconds of arrivals if neither a number of requests nor a duration is given.
const OPEN_S: f64 = 10.0;
/// Requests of each connection if neither is given.
const PER_CONNECTION: usize = 4;
/// Fewest requests of a run in the same case.
const FEWEST: usize = 8;

flags! {
    pub(super) struct Flags;
    kinds: Vec<Kind> = "kind", "KIND,..", "completion",
        "Requests: completion, chat, diffusion, score, rerank, classify, decisions",
        |flag, text| {
            let names: Vec<&str> = Kind::ALL.iter().map(|(name, _)| *name).collect();
            let kind = |part: &str| Kind::ALL.iter().find(|(name, _)| *name == part).map(|(_, kind)| *kind);
            flag.list(text, &format!("one or more of {} are needed", names.join(", ")), kind)
        };
    concurrency: Vec<usize> = "concurrency", "N,..", "1,8,32",
        "Connections of closed loops: each sends one request after the other", connections;
    rates: Option<Vec<f64>> = "rate", "X,..", "none", "Requests per second of open loops, instead of closed ones",
        |flag, text| optional(flag, text, |flag, text| {
            let rate = |part: &str| part.parse::<f64>().ok().filter(|rate| *rate > 0.0 && rate.is_finite());
            flag.list(text, "requests per second are needed, such as 2,4", rate)
        });
    arrivals: Arrivals = "arrivals", "WHICH", "poisson",
        "Time between arrivals of an open loop: poisson (exponential), gamma or constant";
    burstiness: f64 = "burstiness", "X", "1", "Shape of gamma: 1 is poisson, less has more bursts", positive;
    in_flight: usize = "max-in-flight", "N", "256",
        "Connections of an open loop, at most; further requests wait, which counts",
        |flag, text| usize::parse(flag, text).and_then(|count| connections(flag, text).map(|_| count));
    most_requests: Option<usize> = "requests", "N", "auto",
        "Requests of a run; auto: four for each connection, or those of ten seconds";
    duration_s: Option<f64> = "duration", "S", "none", "Seconds in which requests of a run begin",
        |flag, text| optional(flag, text, positive);
    prompt_tokens: usize = "prompt-tokens", "N", "128", "Tokens of a prompt, about: words, counted by the first server";
    output_tokens: usize = "output-tokens", "N", "64",
        "Tokens of an answer, also after its end where the server knows `ignore_eos`";
    shared_tokens: u64 = "shared-prefix-tokens", "N", "0",
        "Tokens with which all prompts begin alike, of those of a prompt";
    items: usize = "items", "N", "8", "Items, documents, texts or questions of a request of the other kinds";
    label_ids: Vec<usize> = "label-ids", "ID,..", "1,2", "Label ids of score requests", |flag, text| {
        flag.list(text, "token ids are needed, such as 1,2", |part| part.parse().ok())
    };
    steps: Option<usize> = "steps", "N", "auto", "Steps of a diffusion; auto: one per mask";
    prompts: Option<PathBuf> = "prompts", "FILE", "none",
        "JSON lines, whose fields replace those of the requests in turn";
    adapters: Vec<String> = "adapters", "NAME,..", "none",
        "Models or adapters that requests name, the most popular first",
        |flag, text| {
            let is_name = |name: &str| !name.is_empty() && !name.contains(char::is_whitespace);
            let name = |name: &str| is_name(name).then(|| name.to_owned());
            let needed = "names between commas are needed, such as a,b";
            if text == flag.default { Ok(Vec::new()) } else { flag.list(text, needed, name) }
        };
    alpha: f64 = "alpha", "X", "1", "Exponent of their popularity (Zipf); 0: all are equally popular";
    slo: Slo = "slo", "LIST", "none", "Objectives in ms for goodput, such as ttft=500,tpot=50,e2e=5000",
        |flag, text| Ok(optional(flag, text, Slo::parse)?.unwrap_or_default());
    stream: Option<bool> = "stream", "WHICH", "auto",
        "Whether answers are streamed: auto (if the server can), on, off",
        |flag, text| flag.choice(text, &[("auto", None), ("on", Some(true)), ("off", Some(false))]);
    patience: Duration = "timeout", "S", "600", "Seconds that a request waits for the next byte of its answer",
        |flag, text| Ok(Duration::from_secs_f64(positive(flag, text)?.clamp(1e-3, 604_800.0)));
    max_errors: f64 = "max-errors", "PERCENT", "0", "Fail where more requests fail", |flag, text| {
        let percent = f64::parse(flag, text)?;
        if percent <= 100.0 { Ok(percent) } else { Err(flag.invalid(text, "it is a percentage")) }
    };
    seed: u64 = "seed", "N", "0", "Seed of prompts and arrivals";
    timed: usize = "num-runs", "N", "3", RUNS;
    warmups: usize = "warmup-runs", "N", "1", "Runs of each case before, with one request for each connection";
}

/// Counts of connections, none of them too large.
fn connections(flag: &Flag, text: &str) -> Result<Vec<usize>> {
    let counts = Vec::parse(flag, text)?;
    let needed = format!("at most {MAX_CONNECTIONS} connections are supported");
    if counts.iter().all(|&count| count <= MAX_CONNECTIONS) {
        Ok(counts)
    } else {
        Err(flag.invalid(text, &needed))
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pacing {
    /// A closed loop: so many connections, each with one request after the other.
    Closed(usize),
    /// An open loop: requests per second, whether or not earlier ones were answered, on at most so many connections.
    Open { rate: f64, arrivals: Arrivals, connections: usize },
}

/// What a good request keeps, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Slo {
    pub(super) ttft_s: Option<f64>,
    pub(super) tpot_s: Option<f64>,
    pub(super) e2e_s: Option<f64>,
}

impl Slo {
    fn parse(flag: &Flag, text: &str) -> Result<Self> {
        let mut slo = Self::default();
        for part in text.split(',') {
            let found = part.split_once(['=', ':']).and_then(|(name, ms)| {
                let s = ms.trim().parse::<f64>().ok().filter(|ms| *ms > 0.0 && ms.is_finite())? * 1e-3;
                let slot = match name.trim() {
                    "ttft" => &mut slo.ttft_s,
                    "tpot" => &mut slo.tpot_s,
                    "e2e" | "e2el" => &mut slo.e2e_s,
                    _ => return None,
                };
                *slot = Some(s);
                Some(())
            });
            let needed = "milliseconds of ttft, tpot or e2e are needed, such as ttft=500,tpot=50";
            found.ok_or_else(|| flag.invalid(text, needed))?;
        }
        Ok(slo)
    }

    pub(super) fn is_set(self) -> bool {
        self != Self::default()
    }
}

impl Flags {
    /// Closed loops for each concurrency, or open loops for each rate.
    pub(super) fn pacing(&self) -> Vec<Pacing> {
        let Some(rates) = &self.rates else {
            return self.concurrency.iter().copied().map(Pacing::Closed).collect();
        };
        let (arrivals, connections) = (self.arrivals.with_shape(self.burstiness), self.in_flight);
        rates.iter().map(|&rate| Pacing::Open { rate, arrivals, connections }).collect()
    }

    /// Requests of a run, at most.
    pub(super) fn requests(&self, pacing: Pacing) -> usize {
        match (self.most_requests, self.duration_s, pacing) {
            (Some(requests), _, _) => requests.min(MAX_REQUESTS),
            (None, None, Pacing::Closed(connections)) => (PER_CONNECTION * connections).max(FEWEST),
            (None, None, Pacing::Open { rate, .. }) => {
                ((rate * OPEN_S).ceil() as usize).clamp(FEWEST, MAX_REQUESTS)
            }
            (None, Some(_), _) => MAX_REQUESTS,
        }
    }

    /// When the requests of an open loop are due, in nanoseconds from the beginning; `None` for a closed loop.
    pub(super) fn schedule(&self, pacing: Pacing, run: usize) -> Result<Option<Vec<u64>>> {
        let Pacing::Open { rate, arrivals, .. } = pacing else { return Ok(None) };
        let mut random = Random::new(self.seed.wrapping_add(run as u64));
        let (mut at_s, mut due) = (0.0, Vec::new());
        let end_s = self.duration_s.unwrap_or(f64::INFINITY);
        while due.len() < self.requests(pacing) {
            at_s += arrivals.gap(&mut random) / rate;
            if at_s >= end_s {
                break;
            }
            due.push((at_s * 1e9) as u64);
        }
        require(!due.is_empty(), || {
            format!("`--rate` is {rate} and `--duration` is {end_s}, so no request arrives")
        })?;
        Ok(Some(due))
    }
}

impl Pacing {
    /// Its part of the case's name.
    pub(super) fn name(self) -> String {
        match self {
            Self::Closed(connections) => format!("c{connections}"),
            Self::Open { rate, arrivals, .. } => format!("q{rate}-{}", arrivals_name(arrivals)),
        }
    }

    pub(super) fn connections(self) -> usize {
        match self {
            Self::Closed(connections) | Self::Open { connections, .. } => connections,
        }
    }
}

/// `poisson`, `constant`, or `gamma` with its shape.
pub(super) fn arrivals_name(arrivals: Arrivals) -> String {
    match arrivals {
        Arrivals::Poisson => "poisson".to_owned(),
        Arrivals::Gamma(shape) => format!("gamma{shape}"),
        Arrivals::Constant => "constant".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::LaneError;

    #[test]
    fn loops_are_closed_unless_there_is_a_rate() {
        let closed = Flags::with(&[("concurrency", "1, 8")]).unwrap();
        assert_eq!(closed.pacing(), [Pacing::Closed(1), Pacing::Closed(8)]);
        assert_eq!(
            closed.pacing().iter().map(|pacing| closed.requests(*pacing)).collect::<Vec<_>>(),
            [8, 32]
        );
        assert_eq!(closed.schedule(Pacing::Closed(8), 0).unwrap(), None);
        let open = Flags::with(&[("rate", "2.5,50"), ("arrivals", "gamma"), ("burstiness", "0.5")]).unwrap();
        let names: Vec<String> = open.pacing().iter().map(|pacing| pacing.name()).collect();
        assert_eq!(names, ["q2.5-gamma0.5", "q50-gamma0.5"]);
        assert_eq!(open.pacing().iter().map(|pacing| open.requests(*pacing)).collect::<Vec<_>>(), [25, 500]);
        let timed = Flags::with(&[("duration", "3")]).unwrap();
        assert_eq!(timed.requests(Pacing::Closed(1)), MAX_REQUESTS);
        assert_eq!(
            Flags::with(&[("duration", "3"), ("requests", "5")]).unwrap().requests(Pacing::Closed(1)),
            5
        );
    }

    #[test]
    fn a_schedule_follows_from_the_seed_and_the_run() {
        let due = |given: &[(&'static str, &'static str)], run| {
            let load = Flags::with(given).unwrap();
            load.schedule(load.pacing()[0], run).unwrap().unwrap()
        };
        let steady = [("rate", "4"), ("arrivals", "constant"), ("requests", "3")];
        assert_eq!(due(&steady, 0), [250_000_000, 500_000_000, 750_000_000]);
        let poisson = [("rate", "100"), ("duration", "2")];
        assert_eq!(due(&poisson, 0), due(&poisson, 0));
        assert_ne!(due(&poisson, 0), due(&poisson, 1));
        assert!(due(&poisson, 0).is_sorted() && due(&poisson, 0).last() < Some(&2_000_000_000));
        let load = Flags::with(&[("rate", "0.001"), ("duration", "0.001")]).unwrap();
        assert!(load.schedule(load.pacing()[0], 0).is_err());
    }

    #[test]
    fn objectives_are_milliseconds() {
        let slo = Flags::with(&[("slo", "ttft=500, tpot=50")]).unwrap().slo;
        assert_eq!(slo, Slo { ttft_s: Some(0.5), tpot_s: Some(0.05), e2e_s: None });
        assert!(slo.is_set() && !Flags::with(&[]).unwrap().slo.is_set());
    }

    #[test]
    fn values_without_sense_are_refused() {
        for (name, value, part) in [
            ("kind", "sing", "completion, chat"),
            ("concurrency", "0", "at least 1"),
            ("concurrency", "2000", "at most 1024"),
            ("max-in-flight", "2000", "at most 1024"),
            ("rate", "0", "requests per second"),
            ("arrivals", "never", "poisson, gamma, constant"),
            ("burstiness", "0", "above 0"),
            ("duration", "0", "above 0"),
            ("timeout", "0", "above 0"),
            ("requests", "0", "at least 1"),
            ("slo", "ttft=0", "milliseconds"),
            ("slo", "speed=3", "milliseconds"),
            ("slo", "ttft", "milliseconds"),
            ("adapters", "a,,b", "names between commas"),
            ("adapters", "a b", "names between commas"),
            ("label-ids", "a", "token ids"),
            ("max-errors", "101", "percentage"),
            ("stream", "maybe", "auto, on, off"),
        ] {
            let Err(LaneError::Usage(fact)) = Flags::with(&[(name, value)]) else { panic!("{name} {value}") };
            assert!(fact.contains(&format!("`--{name}` is")) && fact.contains(part), "{fact}");
        }
    }
}
