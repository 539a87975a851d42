//! One run: blocks of requests that arrive at their times, whether or not earlier ones were answered.

use redline_engine::{AdapterChoice, Cancel, Engine, GenerateRequest, GenerateTicket, StageTime};

use super::arrivals::Planned;
use super::busy::{Recorder, Times};
use super::case::{Flags, Pair};
use super::library::Library;
use crate::bench::requests::{continuation, generate, ids};
use crate::bench::{LaneError, Result, verify};
use redline_system::{Clock, digest};

/// An engine that has all adapters, and the requests for it.
pub(super) struct Server<'a> {
    pub(super) engine: &'a Engine,
    pub(super) clock: &'a Clock,
    pub(super) case: &'a Flags,
    pub(super) library: &'a Library,
    pub(super) recorder: &'a Recorder,
    pub(super) schedule: &'a [Pair],
}

/// When a request was due, and what became of it, in seconds of the engine's clock.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) due_s: f64,
    pub(super) submitted_s: f64,
    /// The scheduler had it: its adapters were in memory.
    pub(super) ready_s: f64,
    pub(super) first_pass_s: f64,
    /// The last token was chosen.
    pub(super) end_s: f64,
    pub(super) ids: Vec<u32>,
}

/// Requests of one arm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    /// From its beginning to its planned end, or to the last answer if that comes later.
    pub(super) window: Times,
    pub(super) answers: Vec<Answer>,
    /// Nanoseconds of each hot reload.
    pub(super) reload_ns: Vec<u64>,
}

/// The blocks of a run, by arm and pair, and when the engine worked.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) adapters: Vec<Block>,
    pub(super) base: Vec<Block>,
    pub(super) times: Vec<StageTime>,
}

/// Requests whose answers are compared with those that they have alone.
const SAMPLED: usize = 4;
/// Requests of a run that only warms up.
const WARM: usize = 8;

impl Server<'_> {
    /// The ids of some requests that run alone, with adapters and without.
    pub(super) fn alone(&self) -> Result<[Vec<Vec<u32>>; 2]> {
        let pair = self.first_pair();
        let alone = |with_adapters: bool| {
            let sampled = pair.requests.iter().take(SAMPLED).enumerate();
            let run = |(index, planned): (usize, &Planned)| {
                let outcome =
                    generate(self.engine, self.request(pair.first + index, planned, with_adapters))?;
                Ok(outcome.token_ids)
            };
            sampled.map(run).collect::<Result<Vec<_>>>()
        };
        let (adapters, base) = (alone(true)?, alone(false)?);
        verify(adapters != base, || "the adapters change no answer".to_owned())?;
        Ok([adapters, base])
    }

    /// The first pair with a request.
    fn first_pair(&self) -> &Pair {
        self.schedule.iter().find(|pair| !pair.requests.is_empty()).unwrap_or(&self.schedule[0])
    }

    /// Runs some requests together.
    pub(super) fn warm_up(&self) -> Result<()> {
        let pair = self.first_pair();
        for with_adapters in [true, false] {
            let requests = pair.requests.iter().take(WARM).enumerate();
            let tickets = requests
                .map(|(index, planned)| self.submit(pair.first + index, planned, with_adapters))
                .collect::<Result<Vec<_>>>()?;
            for ticket in tickets {
                ticket.wait()?;
            }
        }
        Ok(())
    }

    /// Runs all blocks. The answers must be those of `alone`.
    pub(super) fn run(&self, alone: &[Vec<Vec<u32>>; 2]) -> Result<Sample> {
        self.recorder.take();
        let mut arms = [Vec::new(), Vec::new()];
        for pair in self.schedule {
            for arm in if pair.base_first { [1, 0] } else { [0, 1] } {
                arms[arm].push(self.block(pair, arm == 0)?);
            }
        }
        let [adapters, base] = arms;
        let sample = Sample { adapters, base, times: self.recorder.take() };
        for (arm, (blocks, alone)) in [&sample.adapters, &sample.base].into_iter().zip(alone).enumerate() {
            let answers = blocks.iter().flat_map(|block| &block.answers);
            for (index, (answer, alone)) in answers.zip(alone).enumerate() {
                verify(answer.ids == *alone, || {
                    let arm = ["with adapters", "without adapters"][arm];
                    format!("request {index} {arm}: ids {:?}, alone {alone:?}", answer.ids)
                })?;
            }
        }
        Ok(sample)
    }

    fn block(&self, pair: &Pair, with_adapters: bool) -> Result<Block> {
        let begin = self.clock.now_ns();
        let reloads = if with_adapters { &pair.reloads[..] } else { &[] };
        let (answers, reload_ns) = std::thread::scope(|scope| {
            let reloading = scope.spawn(|| self.reload(begin, reloads));
            let answers = self.serve(begin, pair, with_adapters);
            let panicked = |_| Err(LaneError::Incorrect("the thread of reloads panicked".to_owned()));
            (answers, reloading.join().unwrap_or_else(panicked))
        });
        let (answers, reload_ns) = (answers?, reload_ns?);
        self.clock.sleep_until(begin + ns(self.case.block_s()));
        Ok(Block { window: (begin, self.clock.now_ns()), answers, reload_ns })
    }

    /// Submits every request when it is due, then waits for all answers.
    fn serve(&self, begin: u64, pair: &Pair, with_adapters: bool) -> Result<Vec<Answer>> {
        let mut tickets = Vec::with_capacity(pair.requests.len());
        for (index, planned) in pair.requests.iter().enumerate() {
            let due = begin + ns(planned.at_s);
            self.clock.sleep_until(due);
            let submitted = self.clock.now_ns();
            tickets.push((due, submitted, self.submit(pair.first + index, planned, with_adapters)?));
        }
        let answer = |(due, submitted, ticket): (u64, u64, GenerateTicket)| {
            let outcome = ticket.wait()?;
            let arrived_s = outcome.arrived_s;
            Ok(Answer {
                due_s: due as f64 * 1e-9,
                submitted_s: submitted as f64 * 1e-9,
                ready_s: arrived_s,
                first_pass_s: arrived_s + outcome.queue_s,
                end_s: arrived_s + outcome.token_s.last().copied().unwrap_or(outcome.prefill_s),
                ids: outcome.token_ids,
            })
        };
        tickets.into_iter().map(answer).collect()
    }

    /// Rewrites adapters and publishes them again, each at its time. Returns the nanoseconds from each call until it was published.
    fn reload(&self, begin: u64, reloads: &[(f64, usize)]) -> Result<Vec<u64>> {
        let mut all = Vec::with_capacity(reloads.len());
        for &(at_s, adapter) in reloads {
            self.clock.sleep_until(begin + ns(at_s));
            self.library.rewrite(adapter)?;
            let (name, dir) = (Library::name(adapter), self.library.dir(adapter));
            let (published, ns) = self.clock.time(|| self.engine.load_adapter(&name, &dir, None));
            published?;
            all.push(ns);
        }
        Ok(all)
    }

    fn submit(&self, index: usize, planned: &Planned, with_adapters: bool) -> Result<GenerateTicket> {
        let request = self.request(index, planned, with_adapters);
        Ok(self.engine.submit_generate(request, &Cancel::new())?)
    }

    /// Request `index` of the run. Each of its K adapters has scale 1/K.
    fn request(&self, index: usize, planned: &Planned, with_adapters: bool) -> GenerateRequest {
        let &Flags { prompt_tokens, new_tokens, .. } = self.case;
        let used = if with_adapters { &planned.adapters[..] } else { &[] };
        let scale = 1.0 / used.len().max(1) as f32;
        let choice = |&adapter: &usize| AdapterChoice { name: Library::name(adapter), scale };
        let prompt = ids(prompt_tokens, index, self.engine.info().vocab);
        GenerateRequest { adapters: used.iter().map(choice).collect(), ..continuation(prompt, new_tokens) }
    }
}

impl Sample {
    /// The digest of all answers, arm by arm, in the order of requests.
    pub(super) fn digest(&self) -> String {
        let answers = self.adapters.iter().chain(&self.base).flat_map(|block| &block.answers);
        digest::of_ids(&answers.flat_map(|answer| &answer.ids).copied().collect::<Vec<_>>())
    }
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
