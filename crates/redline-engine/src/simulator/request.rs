//! Requests at random, and what they must be answered.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use redline_kernels::Simd;
use redline_kernels::op::kv::PAGE_TOKENS;

use super::Random;
use super::machine::{VOCABULARY, canvas_digest, digest, logits, normaliser};
use crate::cancel::Cancel;
use crate::core::Arrival;
use crate::error::EngineError;
use crate::mode::autoregressive::{BatchJob, BatchTask, Continued, Event, GenerateJob, GenerateTask};
use crate::mode::diffusion::{self, Course, DiffuseJob, DiffuseTask, Diffused, Guess, Guesser, Rules};
use crate::mode::score::{MaskedScoreTask, Maskings, Masks, ScoreJob, ScoreTask};
use crate::outcome::ScoreOutcome;
use crate::prompt::{PromptIds, Tokens};
use crate::request::{Algorithm, BlockCache, PromptLogprobs, Sampling};
use crate::runner::Place;
use crate::sampler::{Sampler, greedy};
use crate::task::Task;
use crate::transcript::Transcript;

/// A request whose answer has not been heard.
pub(super) struct Asked {
    answer: Answer,
    cancel: Cancel,
    /// It has been given a time.
    timed: bool,
}

enum Answer {
    /// The new ids, and the log-probabilities of the prompt's.
    Generate(Receiver<Event>, Vec<u32>, Vec<f32>),
    Batch(Receiver<Result<Continued, EngineError>>, Vec<Vec<u32>>),
    /// The canvas after every pass.
    Diffuse(Receiver<diffusion::Event>, Vec<Vec<u32>>),
    /// The summed log-probabilities of the labels of every item.
    Score(Receiver<Result<ScoreOutcome, EngineError>>, Vec<Vec<f32>>),
}

/// An answer.
pub(super) struct Heard {
    /// The request was cancelled, or its time was over.
    pub(super) ended: bool,
    pub(super) cached_tokens: u64,
}

impl Asked {
    pub(super) fn cancel(&self) {
        self.cancel.cancel();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// The answer, if it has come; an error if it is not the right one.
    pub(super) fn answer(&self) -> Result<Option<Heard>, String> {
        match &self.answer {
            Answer::Generate(events, expected, of_prompt) => loop {
                match events.try_recv() {
                    Ok(Event::Text(_)) => {}
                    Ok(Event::Done(Ok(generated))) => {
                        let ids: Vec<u32> = generated.tokens.iter().map(|token| token.id).collect();
                        let told: Vec<f32> = generated.prompt.iter().map(|(own, _)| *own).collect();
                        if !of_prompt.starts_with(&told) || told.len() < of_prompt.len() && !self.may_end() {
                            return Err(format!("of the prompt {told:?} instead of {of_prompt:?}"));
                        }
                        let cached = generated.timing.cached_tokens.unwrap_or(0);
                        return self.compare("generated", &ids, expected, cached);
                    }
                    Ok(Event::Done(Err(error))) => return self.failed(&error),
                    Err(empty) => return waits(empty),
                }
            },
            Answer::Batch(answer, expected) => match answer.try_recv() {
                Ok(Ok(continued)) => {
                    let short = |new: &Vec<u32>, all: &Vec<u32>| all.starts_with(new) && self.may_end();
                    let pairs = || continued.new.iter().zip(expected);
                    if continued.new.len() == expected.len() && pairs().all(|(a, b)| a == b || short(a, b)) {
                        return Ok(Some(Heard { ended: continued.new != *expected, cached_tokens: 0 }));
                    }
                    Err(format!("a batch gave {:?} instead of {expected:?}", continued.new))
                }
                Ok(Err(error)) => self.failed(&error),
                Err(empty) => waits(empty),
            },
            Answer::Diffuse(events, expected) => loop {
                match events.try_recv() {
                    Ok(diffusion::Event::Done(Ok(diffused))) => return self.drawn(&diffused, expected),
                    Ok(diffusion::Event::Done(Err(error))) => return self.failed(&error),
                    Ok(_) => {}
                    Err(empty) => return waits(empty),
                }
            },
            Answer::Score(answer, expected) => match answer.try_recv() {
                Ok(Ok(outcome)) => {
                    let rows: Vec<Vec<f32>> =
                        outcome.items.iter().flatten().map(|item| item.logprobs.clone()).collect();
                    let bits = |rows: &[Vec<f32>]| -> Vec<u32> {
                        rows.concat().iter().map(|x| x.to_bits()).collect()
                    };
                    if bits(&rows) != bits(expected) {
                        return Err(format!("scores {rows:?} instead of {expected:?}"));
                    }
                    let cached_tokens = outcome.taken.usage.cached_tokens as u64;
                    Ok(Some(Heard { ended: false, cached_tokens }))
                }
                Ok(Err(error)) => self.failed(&error),
                Err(empty) => waits(empty),
            },
        }
    }

    fn may_end(&self) -> bool {
        self.timed || self.is_cancelled()
    }

    fn compare(
        &self,
        what: &str,
        ids: &[u32],
        expected: &[u32],
        cached: usize,
    ) -> Result<Option<Heard>, String> {
        if ids == expected || self.may_end() && expected.starts_with(ids) {
            return Ok(Some(Heard { ended: ids != expected, cached_tokens: cached as u64 }));
        }
        Err(format!("{what} {ids:?} instead of {expected:?}"))
    }

    /// Compares what became of a canvas with what it must be after so many passes.
    fn drawn(&self, diffused: &Diffused, expected: &[Vec<u32>]) -> Result<Option<Heard>, String> {
        let (canvas, passes) = (&diffused.canvas, diffused.passes.len());
        let ended = passes + 1 < expected.len();
        if expected.get(passes) == Some(canvas) && (!ended || self.may_end()) {
            return Ok(Some(Heard { ended, cached_tokens: 0 }));
        }
        let last = expected.last();
        Err(format!("after {passes} of {} passes {canvas:?}, at the end {last:?}", expected.len() - 1))
    }

    fn failed(&self, error: &EngineError) -> Result<Option<Heard>, String> {
        let heard = Ok(Some(Heard { ended: true, cached_tokens: 0 }));
        match error {
            EngineError::Cancelled if self.is_cancelled() => heard,
            EngineError::Late { .. } if self.timed => heard,
            other => Err(format!("a request failed: {other}")),
        }
    }
}

fn waits(empty: TryRecvError) -> Result<Option<Heard>, String> {
    match empty {
        TryRecvError::Empty => Ok(None),
        TryRecvError::Disconnected => Err("a request was lost".into()),
    }
}

/// A request that fits `pages` pages, and what it must be answered.
pub(super) fn ask(random: &mut Random, pages: usize, place: Place) -> (Asked, Arrival) {
    let cancel = Cancel::new();
    let timeout_s = random.once_in(10).then(|| random.below(2000) as f64 * 1e-6);
    // One page is left for where sequences part, and one for labels.
    let most = (pages - 2) * PAGE_TOKENS;
    let (answer, task): (Answer, Box<dyn Task + Send>) = match random.below(9) {
        0..=2 => generation(random, most),
        3 => batch(random, pages),
        4..=5 => filling(random, pages),
        _ => scoring(random, most),
    };
    let asked = Asked { answer, cancel: cancel.clone(), timed: timeout_s.is_some() };
    (asked, Arrival { task, cancels: vec![cancel], timeout_s, place })
}

/// Tokens that begin like others: one of few stems, up to a random length, then a tail of its own.
fn tokens(random: &mut Random, most: usize) -> Vec<u32> {
    let typical = random.of(&[4, 30, 200]);
    let length = 1 + random.below(most.min(typical));
    let (stem, own) = (random.below(3), random.below(1 + length / 2));
    let stemmed = |i: usize| ((i * 7 + stem * (1 + i / 50)) % VOCABULARY) as u32;
    let mut tokens: Vec<u32> = (0..length - own).map(stemmed).collect();
    tokens.extend((0..own).map(|_| random.below(VOCABULARY) as u32));
    tokens
}

fn salt(random: &mut Random) -> String {
    random.of(&["", "", "", "other"]).to_owned()
}

/// What follows a prompt, computed from all tokens for every new one.
fn continuation(
    prompt: &[u32],
    new: usize,
    end_ids: &[u32],
    mut choose: impl FnMut(&[f32], usize) -> u32,
) -> Vec<u32> {
    let mut all = prompt.to_vec();
    while all.len() < prompt.len() + new {
        let id = choose(&logits(digest(all.iter().copied())), all.len());
        all.push(id);
        if end_ids.contains(&id) {
            break;
        }
    }
    all.split_off(prompt.len())
}

fn generation(random: &mut Random, most: usize) -> (Answer, Box<dyn Task + Send>) {
    let new = 1 + random.below(12);
    let prompt = tokens(random, most - new);
    let sampling = if random.once_in(2) {
        Sampling { temperature: 1.0, seed: random.next(), ..Sampling::default() }
    } else {
        Sampling::default()
    };
    let end_ids = vec![random.below(3 * VOCABULARY) as u32];
    let simd = Simd::best();
    let mut sampler = Sampler::default();
    let choose = |row: &[f32], position| sampler.choose(simd, row, &sampling, position).unwrap_or(u32::MAX);
    let expected = continuation(&prompt, new, &end_ids, choose);
    let (reply, events) = channel();
    let from = random.below(prompt.len() + 2);
    let prompt_logprobs = random.once_in(4).then_some(PromptLogprobs { from, top: 1 });
    let of_prompt = prompt_logprobs.map(|asked| {
        let logprob = |at: usize| logprob(&prompt[..at], &prompt[at..=at]) as f32;
        (asked.from.max(1)..prompt.len()).map(logprob).collect()
    });
    let of_prompt: Vec<f32> = of_prompt.unwrap_or_default();
    let job = GenerateJob {
        prompt,
        max_new_tokens: new,
        sampling,
        end_ids,
        logprobs: random.once_in(2).then_some(2),
        prompt_logprobs,
        kv_cache: !random.once_in(6),
        cache_salt: salt(random),
    };
    let task = GenerateTask::new(job, simd, Transcript::new(None, Vec::new()), reply);
    (Answer::Generate(events, expected, of_prompt), Box::new(task))
}

fn batch(random: &mut Random, pages: usize) -> (Answer, Box<dyn Task + Send>) {
    let new = 1 + random.below(8);
    let end_ids = vec![random.below(3 * VOCABULARY) as u32];
    // Every sequence takes whole pages.
    let prompts: Vec<Vec<u32>> =
        (0..=random.below(pages)).map(|_| tokens(random, PAGE_TOKENS - new)).collect();
    let choose = |row: &[f32], _| greedy(row).unwrap_or(u32::MAX);
    let expected = prompts.iter().map(|prompt| continuation(prompt, new, &end_ids, choose)).collect();
    let (reply, answer) = channel();
    let task = BatchTask::new(BatchJob { prompts, max_new_tokens: new, end_ids }, reply);
    (Answer::Batch(answer, expected), Box::new(task))
}

/// The id that stands for a mask.
const MASK: u32 = VOCABULARY as u32 - 1;

fn filling(random: &mut Random, pages: usize) -> (Answer, Box<dyn Task + Send>) {
    let block = 1 + random.below(9);
    let blocks = 1 + random.below(3);
    let guided = pages > 4 && random.once_in(4);
    let most = if guided { (pages - 2) / 2 } else { pages - 2 } * PAGE_TOKENS;
    let mut canvas = tokens(random, most - block * blocks);
    for id in &mut canvas {
        *id %= MASK;
    }
    let prompt = canvas.len();
    canvas.resize(prompt + block * blocks, MASK);
    let cache = if guided { BlockCache::None } else { random.of(BlockCache::ALL) };
    let threshold = random.once_in(3).then_some(0.3);
    let algorithm = if threshold.is_some() { Algorithm::MaskgitPlus } else { random.of(Algorithm::ALL) };
    let sampling = Sampling {
        temperature: random.of(&[0.0, 0.0, 0.7]),
        top_k: random.of(&[0, 0, 5]),
        seed: random.next(),
        ..Sampling::default()
    };
    let starts = (0..blocks).map(|index| prompt + index * block);
    let rules = Rules {
        algorithm,
        steps: blocks * (1 + random.below(block)),
        eps: 1e-3,
        alg_temp: 0.0,
        seed: sampling.seed,
        blocks: starts.map(|start| start..start + block).collect(),
        threshold,
        cache,
        refresh: random.once_in(3).then(|| 1 + random.below(3)),
        shifted: random.once_in(2),
        savings: cache != BlockCache::None || threshold.is_some() || !random.once_in(3),
    };
    let guesser = Guesser { algorithm, sampling, simd: Simd::best() };
    let cfg_scale = if guided { 1.5 } else { 0.0 };
    let expected = drawings(&canvas, prompt, &rules, &guesser, cfg_scale);
    let (reply, events) = channel();
    let job = DiffuseJob { canvas, mask: MASK, end_ids: Vec::new(), rules, guesser, cfg_scale };
    let task = DiffuseTask::new(job, Transcript::new(None, Vec::new()), reply);
    (Answer::Diffuse(events, expected), Box::new(task))
}

/// A canvas before its first pass and after every one, each row computed from all tokens that it sees.
fn drawings(
    canvas: &[u32],
    prompt: usize,
    rules: &Rules,
    guesser: &Guesser,
    cfg_scale: f32,
) -> Vec<Vec<u32>> {
    let mut canvas = canvas.to_vec();
    let mut all = vec![canvas.clone()];
    let mut course = Course::new(rules.clone());
    // What the rows that are not run had in the last pass over all.
    let mut stored = canvas.clone();
    while let Some(pass) = course.next(canvas.len(), &|p| canvas[p] == MASK) {
        stored[pass.rows.clone()].copy_from_slice(&canvas[pass.rows.clone()]);
        let unconditioned: Vec<u32> =
            stored.iter().enumerate().map(|(p, &id)| if p < prompt { MASK } else { id }).collect();
        let guess = |&p: &usize| -> Guess {
            let row = if rules.shifted { p.saturating_sub(1).max(pass.rows.start) } else { p };
            let of = |tokens: &[u32]| logits(canvas_digest(tokens.iter().copied(), row));
            let (c, u) = (of(&stored), of(&unconditioned));
            let guided: Vec<f32> = c.iter().zip(&u).map(|(c, u)| u + (cfg_scale + 1.0) * (c - u)).collect();
            let row = if cfg_scale > 0.0 { &guided[..] } else { &c[..] };
            guesser.alone(row, pass.step, p).expect("logits are finite")
        };
        let guesses: Vec<Guess> = pass.masks.iter().map(guess).collect();
        for position in course.filled(&pass, &guesses) {
            if let Ok(place) = pass.masks.binary_search(&position) {
                canvas[position] = guesses[place].token;
            }
        }
        all.push(canvas.clone());
    }
    all
}

fn scoring(random: &mut Random, most: usize) -> (Answer, Box<dyn Task + Send>) {
    let long = random.once_in(3);
    let label = |random: &mut Random| -> Vec<u32> {
        let tokens = if long { 1 + random.below(4) } else { 1 };
        (0..tokens).map(|_| random.below(VOCABULARY) as u32).collect()
    };
    let mut labels: Vec<Vec<Vec<u32>>> = Vec::new();
    for _ in 0..=random.below(2) {
        labels.push((0..=random.below(3)).map(|_| label(random)).collect());
    }
    let long_anywhere = labels.iter().flatten().any(|label| label.len() > 1);
    let query = tokens(random, most - 8);
    let masks = random.once_in(3).then(|| Masks {
        id: MASK,
        shifted: random.once_in(2),
        samples: random.of(&[1, 3, 15]),
        seed: random.next(),
    });
    let items = random.of(&[3, 9, 50]);
    let ids: Vec<Vec<u32>> = (0..random.below(items))
        .map(|_| {
            let item = (0..=random.below(3)).map(|_| random.below(VOCABULARY) as u32);
            query.iter().copied().chain(item).collect()
        })
        .collect();
    let labels_of: Option<Vec<usize>> =
        (labels.len() > 1).then(|| ids.iter().map(|_| random.below(labels.len())).collect());
    let (softmax, full_logprobs) = (random.once_in(2), random.once_in(2));
    let rows = ids.iter().enumerate().map(|(item, ids)| {
        let labels = &labels[labels_of.as_ref().map_or(0, |of: &Vec<usize>| of[item])];
        let over = |logprob: &dyn Fn(&[u32]) -> f64| labels.iter().map(|label| logprob(label)).collect();
        let whole: Vec<f64> = over(&|label| match masks {
            None => logprob(ids, label),
            Some(masks) => masked_logprob(ids, label, masks),
        });
        let told = match (softmax && !full_logprobs, long_anywhere) {
            (false, _) => whole,
            // Over labels of one token each, the normaliser over the vocabulary is never computed.
            (true, false) => log_softmax(&over(&|label| {
                let row = match masks {
                    None => logits(digest(ids.iter().copied())),
                    Some(masks) => masked_logits(ids, &[None], 0, masks),
                };
                f64::from(row[label[0] as usize])
            })),
            (true, true) => log_softmax(&whole),
        };
        told.into_iter().map(|x| x as f32).collect()
    });
    let expected = rows.collect();
    let mut stem = None;
    let prompts = ids.into_iter().map(|ids| {
        Ok(Tokens { ids: PromptIds::new(&mut stem, ids), truncated: false, boundary_mismatch: None })
    });
    let job = ScoreJob {
        prompts: prompts.collect(),
        labels,
        labels_of,
        mean: false,
        softmax,
        full_logprobs,
        return_token_ids: false,
        item_errors: false,
        cache_salt: salt(random),
        kernel_path: String::new(),
    };
    let (reply, answer) = channel();
    let task: Box<dyn Task + Send> = match masks {
        None => Box::new(ScoreTask::new(job, reply)),
        Some(masks) => Box::new(MaskedScoreTask::new(job, masks, reply)),
    };
    (Answer::Score(answer, expected), task)
}

fn log_softmax(values: &[f64]) -> Vec<f64> {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = values.iter().map(|x| libm::exp(x - max)).sum();
    values.iter().map(|x| x - (max + libm::log(sum))).collect()
}

/// Log-probability of a label after a prompt, token by token.
fn logprob(prompt: &[u32], label: &[u32]) -> f64 {
    let mut all = prompt.to_vec();
    let mut sum = 0.0;
    for &token in label {
        let row = logits(digest(all.iter().copied()));
        sum += f64::from(row[token as usize]) - normaliser(&row);
        all.push(token);
    }
    sum
}

/// Logits of a token of a label, some of which are covered.
fn masked_logits(prompt: &[u32], label: &[Option<u32>], at: usize, masks: Masks) -> [f32; VOCABULARY] {
    let shown = label.iter().map(|token| token.unwrap_or(masks.id));
    let row = prompt.len() + at - usize::from(masks.shifted);
    logits(canvas_digest(prompt.iter().copied().chain(shown), row))
}

/// What a model that fills masks says of a label after a prompt.
fn masked_logprob(prompt: &[u32], label: &[u32], masks: Masks) -> f64 {
    let maskings = Maskings::of(&[label.to_vec()], masks.samples, masks.seed);
    let mut sum = 0.0;
    for masking in &maskings.all {
        let mut of_masking = 0.0;
        for (at, &token) in label.iter().enumerate() {
            if masking.tokens[at].is_none() {
                let row = masked_logits(prompt, &masking.tokens, at, masks);
                of_masking += masking.tells[0].1 * (f64::from(row[token as usize]) - normaliser(&row));
            }
        }
        sum += of_masking;
    }
    sum
}
