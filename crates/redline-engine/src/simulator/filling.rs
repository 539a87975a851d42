//! Random requests to fill canvases.

use std::cell::RefCell;

use redline_kernels::Simd;
use redline_kernels::op::kv::PAGE_TOKENS;

use super::Random;
use super::answer::{Checked, Outcome, Work, answered};
use super::machine::VOCABULARY;
use super::mix::{LENGTHS, Mix, tokens};
use super::oracle::diffusion::{CanvasRequest, Followed, follow};
use crate::answer::ticket::{DiffuseTicket, Ticket};
use crate::answer::transcript::Transcript;
use crate::mode::diffusion::{DiffuseJob, DiffuseTask, Predictor, Rules};
use crate::request::{Algorithm, BlockCache, Sampling};
use crate::task::Task;

/// Id of the mask token.
pub(super) const MASK: u32 = VOCABULARY as u32 - 1;

/// A canvas whose answer has not arrived.
pub(super) struct Filling {
    request: CanvasRequest,
    ticket: RefCell<DiffuseTicket>,
}

/// A random canvas: a prompt that may contain masks, followed by masks; and the starts of the blocks.
fn canvas(random: &mut Random, most: usize, block: usize, blocks: usize) -> (Vec<u32>, Vec<usize>) {
    let mut canvas = tokens(random, most - block * blocks, LENGTHS);
    for id in &mut canvas {
        *id %= MASK;
    }
    let prompt = canvas.len();
    if random.once_in(4) {
        let at = random.below(prompt);
        canvas[at] = MASK;
    }
    canvas.resize(prompt + block * blocks, MASK);
    let mut starts: Vec<usize> = (0..blocks).map(|index| prompt + index * block).collect();
    // Masks of the prompt belong to the first block.
    starts[0] = canvas.iter().position(|id| *id == MASK).unwrap_or(prompt);
    (canvas, starts)
}

impl Filling {
    pub(super) fn new(random: &mut Random, pages: usize, mix: Mix) -> (Self, Box<dyn Task + Send>) {
        let (block, blocks) = (1 + random.below(9), 1 + random.below(3));
        let guided = random.once_in(4);
        // The engine accepts canvases that fit together, in whole pages.
        let most = if guided { pages / 2 } else { pages } * PAGE_TOKENS;
        let (canvas, starts) = canvas(random, most, block, blocks);
        let prompt_tokens = canvas.len() - block * blocks;
        let end = |index: usize| starts.get(index + 1).copied().unwrap_or(canvas.len());
        let cache = if guided { BlockCache::None } else { random.of(BlockCache::ALL) };
        let threshold = random.once_in(3).then_some(0.3);
        let algorithm = if threshold.is_some() {
            random.of(&[Algorithm::MaskgitPlus, Algorithm::LowConfidence])
        } else {
            random.of(Algorithm::ALL)
        };
        let by_confidence =
            threshold.is_none() && !matches!(algorithm, Algorithm::Origin | Algorithm::Random);
        let sampling = Sampling {
            temperature: random.of(&[0.0, 0.0, 0.7]),
            top_k: random.of(&[0, 0, 5]),
            top_p: random.of(&[1.0, 1.0, 0.8]),
            seed: random.next(),
            ..Sampling::default()
        };
        let rules = Rules {
            algorithm,
            // Up to two steps per mask.
            steps: blocks * (1 + random.below(2 * block)),
            eps: 1e-3,
            alg_temp: if by_confidence { random.of(&[0.0, 0.0, 0.5]) } else { 0.0 },
            seed: sampling.seed,
            blocks: starts.iter().enumerate().map(|(index, &start)| start..end(index)).collect(),
            threshold,
            cache,
            refresh: (cache != BlockCache::None && random.once_in(2)).then(|| 1 + random.below(3)),
            shifted: random.once_in(2),
            savings: cache != BlockCache::None || threshold.is_some() || !random.once_in(3),
        };
        let end_ids =
            if random.once_in(3) { vec![random.below(VOCABULARY) as u32 % MASK] } else { Vec::new() };
        let cfg_scale = if guided { 1.5 } else { 0.0 };
        let (ticket, reply) = Ticket::new();
        let job = DiffuseJob {
            canvas: canvas.clone(),
            prompt_tokens,
            mask: MASK,
            end_ids: end_ids.clone(),
            rules: rules.clone(),
            predictor: Predictor { algorithm, sampling, simd: Simd::best() },
            cfg_scale,
            kernel_path: String::new(),
        };
        let task = DiffuseTask::new(job, Transcript::new(None, Vec::new()), reply);
        let ticket = RefCell::new(ticket);
        let request = CanvasRequest {
            canvas,
            prompt_tokens,
            mask: MASK,
            end_ids,
            rules,
            algorithm,
            sampling,
            cfg_scale,
            model: mix.model,
        };
        (Self { request, ticket }, Box::new(task))
    }

    pub(super) fn work(&self) -> Work {
        let request = &self.request;
        // A pass fills a mask or is one of the steps; blocks with a cache take one more pass.
        let masks = request.canvas.iter().filter(|id| **id == request.mask).count();
        let passes = masks + request.rules.steps + 2 * request.rules.blocks.len();
        let sequences = if request.cfg_scale > 0.0 { 2 * passes } else { passes };
        // A preempted canvas is run whole before its block is run.
        let longest = request.canvas.len();
        Work { tokens: 2 * sequences * longest, sequences: 2 * sequences, grown: 0 }
    }

    pub(super) fn hear(&self) -> Result<Option<Checked>, String> {
        answered(&self.ticket, |outcome| {
            Ok(Checked::of(match follow(&self.request, outcome)? {
                Followed::Whole => Outcome::Whole,
                Followed::Part => Outcome::Part,
            }))
        })
    }
}
