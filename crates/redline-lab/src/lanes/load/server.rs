//! A server that is measured: its model, the fields that it knows, and answers of requests that run alone.

use redline_client::HttpClient;
use redline_engine::ModelInfo;
use serde_json::{Map, Value};

use super::case::Flags;
use super::drive::{self, Target};
use super::kind::{Content, Feature, Kind};
use super::prompt::{Place, Prompts};
use super::reply::{self, Reply};
use crate::bench::random::{Random, Zipf};
use crate::bench::{LaneError, MeasuredServer, Result, Servers, verify};
use redline_system::Clock;
use redline_system::digest;

/// Tokens that a request of a probe generates.
const PROBED: usize = 2;
/// Most probes until a server accepts a request.
const PROBES: usize = 8;
/// Blocks of requests that are not measured, counted from the end.
const PROBE_BLOCK: usize = u32::MAX as usize >> 1;
/// Requests whose answers are compared.
const SAMPLED: usize = 2;

/// A server.
pub(super) struct Measured {
    pub(super) name: String,
    /// The model that is asked for.
    pub(super) model: String,
    /// The model of a server that was started here.
    pub(super) info: Option<ModelInfo>,
    server: MeasuredServer,
    client: HttpClient,
}

/// A server, ready for requests of a kind.
pub(super) struct Ready<'a> {
    pub(super) server: &'a Measured,
    pub(super) kind: Kind,
    pub(super) features: Vec<Feature>,
    /// The digest of answers to requests that ran alone, if two runs gave the same.
    pub(super) digest: Option<String>,
    load: &'a Flags,
    clock: &'a Clock,
    target: Target,
}

impl Measured {
    /// Asks a server which models it has, unless one is named.
    pub(super) fn new(
        server: MeasuredServer,
        servers: &Servers<'_>,
        info: Option<ModelInfo>,
    ) -> Result<Self> {
        let headers = servers.headers.iter();
        let client =
            headers.fold(HttpClient::new(&server.address), |it, (name, value)| it.with_header(name, value));
        let model = match &servers.model {
            Some(model) if info.is_none() => model.clone(),
            _ => first_model(&client, &server)?,
        };
        Ok(Self { name: server.name.clone(), model, info, server, client })
    }

    fn place(&self, path: &str) -> String {
        format!("http://{}{}{path}", self.server.address, self.server.base)
    }

    fn target(&self, kind: Kind, load: &Flags) -> Target {
        Target {
            client: self.client.clone(),
            path: format!("{}{}", self.server.base, kind.path()),
            patience: load.patience,
        }
    }
}

/// The place of the feature whose field a message names first. A message may go on with the fields that are known.
fn first_named(message: &str, features: &[Feature]) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let of = |feature: &Feature| {
        let places = message.match_indices(feature.field());
        let mut whole = places.filter(|(at, word)| {
            !message[..*at].ends_with(is_part) && !message[at + word.len()..].starts_with(is_part)
        });
        whole.next().map(|(at, _)| at)
    };
    let named = features.iter().enumerate().filter_map(|(index, feature)| Some((of(feature)?, index)));
    named.min().map(|(_, index)| index)
}

/// The first model that a server lists.
fn first_model(client: &HttpClient, server: &MeasuredServer) -> Result<String> {
    let path = format!("{}/v1/models", server.base);
    let failed = |fact: String| LaneError::Input(format!("{fact}\n  in `http://{}{path}`", server.address));
    let answer = client.get(&path).map_err(|error| failed(error.to_string()))?;
    if answer.status != 200 {
        return Err(failed(format!("status {}: {}", answer.status, reply::message_of(&answer.body))));
    }
    let listed: Value = serde_json::from_slice(&answer.body).map_err(|error| failed(error.to_string()))?;
    let first = listed["data"][0]["id"].as_str().ok_or_else(|| failed("it lists no model".to_owned()))?;
    Ok(first.to_owned())
}

impl<'a> Ready<'a> {
    /// Finds out which fields the server knows.
    pub(super) fn new(
        server: &'a Measured,
        kind: Kind,
        load: &'a Flags,
        clock: &'a Clock,
        prompts: &Prompts,
    ) -> Result<Self> {
        let features = Feature::ALL.iter().copied().filter(|_| kind.generates());
        let features =
            features.filter(|feature| *feature != Feature::Stream || load.stream != Some(false)).collect();
        let target = server.target(kind, load);
        let mut ready = Self { server, kind, features, digest: None, load, clock, target };
        for _ in 0..PROBES {
            let reply = ready.probe(prompts);
            let Some(fault) = &reply.fault else { break };
            let named = first_named(&fault.message, &ready.features);
            let refused = fault.kind.starts_with("status_4") || fault.kind == "status_501";
            match named.filter(|_| refused) {
                Some(index) => drop(ready.features.remove(index)),
                None => return Err(ready.failed(&reply)),
            }
        }
        if kind.generates() && load.stream == Some(true) && !ready.streams() {
            let place = server.place(kind.path());
            return Err(LaneError::Input(format!("the server does not stream\n  in `{place}`")));
        }
        Ok(ready)
    }

    pub(super) fn streams(&self) -> bool {
        self.features.contains(&Feature::Stream)
    }

    /// The error for a request that failed although it ran alone.
    fn failed(&self, reply: &Reply) -> LaneError {
        let fact = reply
            .fault
            .as_ref()
            .map(|fault| format!("{}: {}", fault.kind, fault.message))
            .unwrap_or_default();
        LaneError::Input(format!("{fact}\n  in `{}`", self.server.place(self.kind.path())))
    }

    fn probe(&self, prompts: &Prompts) -> Reply {
        let place = Place { block: PROBE_BLOCK, index: 0 };
        self.alone(&self.body_of(prompts, place, PROBED.min(self.load.output_tokens)))
    }

    /// Words that make a prompt of so many tokens on this server; as many as tokens if it does not report counts. Never more
    /// than tokens: a server that truncates prompts, or reports a constant, would get ever longer ones.
    pub(super) fn words(&self, tokens: usize, prompts: &Prompts) -> usize {
        let mut words = tokens.max(1);
        for _ in 0..3 {
            let reply = self.probe(&Prompts { words, shared: 0, ..prompts.clone() });
            let Some(found) = reply.prompt_tokens.filter(|&found| found > 0 && reply.is_ok()) else { break };
            let next = (tokens as f64 * words as f64 / found as f64).round() as usize;
            let next = next.clamp(1, tokens.max(1));
            if next == words {
                break;
            }
            words = next;
        }
        words
    }

    /// The body of a request.
    pub(super) fn body(&self, prompts: &Prompts, place: Place) -> String {
        self.body_of(prompts, place, self.load.output_tokens)
    }

    fn body_of(&self, prompts: &Prompts, place: Place, output_tokens: usize) -> String {
        let replaced: Option<Map<String, Value>> = prompts.line(place, self.kind);
        let content = Content {
            model: self.model(place),
            texts: prompts.texts(place, self.kind),
            output_tokens,
            label_ids: &self.load.label_ids,
            steps: self.load.steps,
            features: &self.features,
        };
        self.kind.body(&content, replaced.as_ref())
    }

    /// The model that a request names: an adapter by Zipf's popularity, if there are any.
    fn model(&self, place: Place) -> &str {
        let Flags { adapters, alpha, seed, .. } = self.load;
        let mut random =
            Random::new(seed.wrapping_mul(31) ^ ((place.block as u64 + 1) << 32) ^ place.index as u64);
        let drawn = Zipf::new(adapters.len(), *alpha).distinct(1, &mut random);
        drawn.first().and_then(|&index| adapters.get(index)).map_or(&self.server.model, |name| name)
    }

    /// Sends a request while no other one of this client runs.
    fn alone(&self, body: &str) -> Reply {
        let mut connection = self.target.client.open(self.target.patience);
        let exchange =
            drive::exchange(self.clock, &mut connection, &self.target, (0, 0, None), body.as_bytes());
        Reply::of(&exchange, self.kind)
    }

    /// Checks that requests which run alone are answered, and remembers their digest if it is the same twice.
    pub(super) fn check(&mut self, prompts: &Prompts) -> Result<()> {
        let mut digests = Vec::new();
        for _ in 0..2 {
            let mut text = String::new();
            for index in 0..SAMPLED {
                let reply = self.alone(&self.body(prompts, Place { block: PROBE_BLOCK + 1, index }));
                if !reply.is_ok() {
                    return Err(self.failed(&reply));
                }
                verify(!self.kind.generates() || reply.output_tokens > 0, || {
                    format!("the answer has no token\n  in `{}`", self.server.place(self.kind.path()))
                })?;
                text.push_str(&reply.text);
                text.push('\0');
            }
            digests.push(digest::digest(text.bytes()));
        }
        self.digest = digests.pop().filter(|last| digests.contains(last));
        Ok(())
    }

    /// How many of the first answers of a block differ from those to the same requests alone.
    pub(super) fn changed(&self, prompts: &Prompts, block: usize, replies: &[Reply]) -> usize {
        let sampled = replies.iter().take(SAMPLED).enumerate().filter(|(_, reply)| reply.is_ok());
        let differs = |(index, reply): &(usize, &Reply)| {
            let alone = self.alone(&self.body(prompts, Place { block, index: *index }));
            alone.is_ok() && alone.text != reply.text
        };
        sampled.filter(differs).count()
    }

    /// Runs a block of requests.
    pub(super) fn drive(
        &self,
        prompts: &Prompts,
        block: usize,
        pace: &drive::Pace,
    ) -> Result<Vec<drive::Exchange>> {
        let body = |index| self.body(prompts, Place { block, index });
        drive::drive(self.clock, &self.target, pace, &body)
            .map_err(|error| LaneError::Usage(format!("{} connections: {error}", pace.connections)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_field_before_the_known_ones() {
        let named = |message| first_named(message, Feature::ALL).map(|index| Feature::ALL[index]);
        let listing = "unknown field `min_tokens`, expected one of `stream`, `stream_options`, `ignore_eos`";
        assert_eq!(named(listing), Some(Feature::MinTokens));
        assert_eq!(named("`stream` is not supported"), Some(Feature::Stream));
        assert_eq!(named("`stream_options` needs `stream`"), Some(Feature::FinalCount));
        assert_eq!(named(r#"[{"loc":["body","ignore_eos"],"msg":"extra"}]"#), Some(Feature::IgnoreEnd));
        assert_eq!(named("the prompt is too long, streams or upstream"), None);
    }
}
