//! What a run consists of: the flags.

use std::path::PathBuf;
use std::time::Duration;

use super::kind::Kind;
use crate::bench::random::{Arrivals, Random};
use crate::bench::{Result, Runs, Values, require};

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

/// The flags.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) kinds: Vec<Kind>,
    pub(super) pacing: Vec<Pacing>,
    /// Requests of a run, at most; `None`: as many as its pace suggests.
    requests: Option<usize>,
    /// Seconds in which requests are begun.
    pub(super) duration_s: Option<f64>,
    pub(super) prompt_tokens: usize,
    pub(super) shared_tokens: usize,
    pub(super) output_tokens: usize,
    pub(super) items: usize,
    pub(super) label_ids: Vec<usize>,
    /// Steps of a diffusion; `None`: one per mask.
    pub(super) steps: Option<usize>,
    pub(super) prompts: Option<PathBuf>,
    /// Names that requests ask for instead of the model, the most popular one first.
    pub(super) adapters: Vec<String>,
    pub(super) alpha: f64,
    pub(super) slo: Slo,
    pub(super) stream: Option<bool>,
    pub(super) seed: u64,
    pub(super) patience: Duration,
    pub(super) max_errors: f64,
    pub(super) runs: Runs,
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
    fn parse(values: &Values) -> Result<Self> {
        let mut slo = Self::default();
        let Some(text) = values.some_text("slo") else { return Ok(slo) };
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
            found.ok_or_else(|| {
                values
                    .invalid("slo", "milliseconds of ttft, tpot or e2e are needed, such as ttft=500,tpot=50")
            })?;
        }
        Ok(slo)
    }

    pub(super) fn is_set(self) -> bool {
        self != Self::default()
    }
}

impl Workload {
    pub(super) fn of(values: &Values) -> Result<Self> {
        let kind = |part: &str| Kind::ALL.iter().find(|(name, _)| *name == part).map(|(_, kind)| *kind);
        let names: Vec<&str> = Kind::ALL.iter().map(|(name, _)| *name).collect();
        let duration_s = positive_or_none(values, "duration")?;
        let ids = |part: &str| part.parse::<usize>().ok();
        let adapters =
            values.some_text("adapters").map(|text| text.split(',').map(|name| name.trim().to_owned()));
        let adapters: Vec<String> = adapters.into_iter().flatten().collect();
        let is_name = |name: &String| !name.is_empty() && !name.contains(char::is_whitespace);
        if !adapters.iter().all(is_name) {
            return Err(values.invalid("adapters", "names between commas are needed, such as a,b"));
        }
        let stream = values.choice("stream", &[("auto", None), ("on", Some(true)), ("off", Some(false))])?;
        let max_errors = values.number("max-errors")?;
        require(max_errors <= 100.0, || format!("`--max-errors` is {max_errors}, but it is a percentage"))?;
        let timeout = positive_or_none(values, "timeout")?.unwrap_or(600.0).clamp(1e-3, 604_800.0);
        Ok(Self {
            kinds: values.list("kind", &format!("one or more of {} are needed", names.join(", ")), kind)?,
            pacing: pacing(values)?,
            requests: values.count_or_auto("requests")?.map(|n| n.min(MAX_REQUESTS)),
            duration_s,
            prompt_tokens: values.count("prompt-tokens")?,
            shared_tokens: values.whole("shared-prefix-tokens")?,
            output_tokens: values.count("output-tokens")?,
            items: values.count("items")?,
            label_ids: values.list("label-ids", "token ids are needed, such as 1,2", ids)?,
            steps: values.count_or_auto("steps")?,
            prompts: values.file("prompts"),
            adapters,
            alpha: values.number("alpha")?,
            slo: Slo::parse(values)?,
            stream,
            seed: values.whole("seed")? as u64,
            patience: Duration::from_secs_f64(timeout),
            max_errors,
            runs: values.runs()?,
        })
    }

    /// Requests of a run, at most.
    pub(super) fn requests(&self, pacing: Pacing) -> usize {
        match (self.requests, self.duration_s, pacing) {
            (Some(requests), _, _) => requests,
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

fn positive_or_none(values: &Values, name: &str) -> Result<Option<f64>> {
    if values.text(name) == "none" {
        return Ok(None);
    }
    let number = values.number(name)?;
    if number > 0.0 { Ok(Some(number)) } else { Err(values.invalid(name, "a number above 0 is needed")) }
}

/// Closed loops for each concurrency, or open loops for each rate.
fn pacing(values: &Values) -> Result<Vec<Pacing>> {
    let within = |connections: usize, name: &str| {
        require(connections <= MAX_CONNECTIONS, || {
            format!("`--{name}` is {connections}, but at most {MAX_CONNECTIONS} connections are supported")
        })
    };
    let shape = values.number("burstiness")?;
    if shape <= 0.0 {
        return Err(values.invalid("burstiness", "a number above 0 is needed"));
    }
    let choices =
        [("poisson", Arrivals::Poisson), ("gamma", Arrivals::Gamma(shape)), ("constant", Arrivals::Constant)];
    let arrivals = values.choice("arrivals", &choices)?;
    let connections = values.count("max-in-flight")?;
    within(connections, "max-in-flight")?;
    let counts = values.counts("concurrency")?;
    counts.iter().try_for_each(|&count| within(count, "concurrency"))?;
    if values.text("rate") == "none" {
        return Ok(counts.into_iter().map(Pacing::Closed).collect());
    }
    let rate = |part: &str| part.parse::<f64>().ok().filter(|rate| *rate > 0.0 && rate.is_finite());
    let rates = values.list("rate", "requests per second are needed, such as 2,4", rate)?;
    Ok(rates.into_iter().map(|rate| Pacing::Open { rate, arrivals, connections }).collect())
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
pub(super) mod tests {
    use super::*;
    use crate::bench::LaneError;

    pub(in super::super) fn workload(given: &[(&'static str, &'static str)]) -> Result<Workload> {
        Workload::of(&Values::new(super::super::LANE.flags, given.iter().copied()))
    }

    #[test]
    fn loops_are_closed_unless_there_is_a_rate() {
        let closed = workload(&[("concurrency", "1, 8")]).unwrap();
        assert_eq!(closed.pacing, [Pacing::Closed(1), Pacing::Closed(8)]);
        assert_eq!(closed.pacing.iter().map(|pacing| closed.requests(*pacing)).collect::<Vec<_>>(), [8, 32]);
        assert_eq!(closed.schedule(Pacing::Closed(8), 0).unwrap(), None);
        let open = workload(&[("rate", "2.5,50"), ("arrivals", "gamma"), ("burstiness", "0.5")]).unwrap();
        let names: Vec<String> = open.pacing.iter().map(|pacing| pacing.name()).collect();
        assert_eq!(names, ["q2.5-gamma0.5", "q50-gamma0.5"]);
        assert_eq!(open.pacing.iter().map(|pacing| open.requests(*pacing)).collect::<Vec<_>>(), [25, 500]);
        let timed = workload(&[("duration", "3")]).unwrap();
        assert_eq!(timed.requests(Pacing::Closed(1)), MAX_REQUESTS);
        assert_eq!(workload(&[("duration", "3"), ("requests", "5")]).unwrap().requests(Pacing::Closed(1)), 5);
    }

    #[test]
    fn a_schedule_follows_from_the_seed_and_the_run() {
        let due = |given: &[(&'static str, &'static str)], run| {
            let load = workload(given).unwrap();
            load.schedule(load.pacing[0], run).unwrap().unwrap()
        };
        let steady = [("rate", "4"), ("arrivals", "constant"), ("requests", "3")];
        assert_eq!(due(&steady, 0), [250_000_000, 500_000_000, 750_000_000]);
        let poisson = [("rate", "100"), ("duration", "2")];
        assert_eq!(due(&poisson, 0), due(&poisson, 0));
        assert_ne!(due(&poisson, 0), due(&poisson, 1));
        assert!(due(&poisson, 0).is_sorted() && due(&poisson, 0).last() < Some(&2_000_000_000));
        let load = workload(&[("rate", "0.001"), ("duration", "0.001")]).unwrap();
        assert!(load.schedule(load.pacing[0], 0).is_err());
    }

    #[test]
    fn objectives_are_milliseconds() {
        let slo = workload(&[("slo", "ttft=500, tpot=50")]).unwrap().slo;
        assert_eq!(slo, Slo { ttft_s: Some(0.5), tpot_s: Some(0.05), e2e_s: None });
        assert!(slo.is_set() && !workload(&[]).unwrap().slo.is_set());
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
            let Err(LaneError::Usage(fact)) = workload(&[(name, value)]) else { panic!("{name} {value}") };
            assert!(fact.contains(&format!("`--{name}` is")) && fact.contains(part), "{fact}");
        }
    }
}
