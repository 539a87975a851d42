//! Requests to fill masks: invalid requests are refused here.

use std::fmt;
use std::ops::Range;

use redline_settings::{Command, Hint, Setting, hint};

use super::budget::canvas_bytes;
use super::receipt::{completing_canvas, signed};
use super::{Engine, checked_timeout};
use crate::answer::outcome::{DiffuseOutcome, DiffusionProgress};
use crate::answer::ticket::{DiffuseTicket, Ticket};
use crate::answer::transcript::Transcript;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::mode::diffusion::{DiffuseJob, DiffuseTask, Predictor, Rules, divisor};
use crate::mode::sampler;
use crate::plan::Buckets;
use crate::receipt::ReceiptRequest;
use crate::request::{Algorithm, BlockCache, DiffuseRequest, Prompt, Queueing};

/// Default number of masks in a block, if the algorithm needs blocks.
const BLOCK: usize = 32;

impl Engine {
    /// Fills the masks of a canvas. `on_text` receives the text as it becomes final.
    pub fn diffuse(
        &self,
        request: DiffuseRequest,
        cancel: &Cancel,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<DiffuseOutcome, EngineError> {
        self.submit_diffuse(request, cancel)?.wait_with(|progress| {
            if let DiffusionProgress::Text(text) = progress {
                on_text(&text);
            }
        })
    }

    /// Starts to fill masks. Other requests may be submitted before this one is finished.
    pub fn submit_diffuse(
        &self,
        request: DiffuseRequest,
        cancel: &Cancel,
    ) -> Result<DiffuseTicket, EngineError> {
        let shifted = self.shifted()?;
        let mask = self.mask_id()?;
        let timeout_s = checked_timeout(request.timeout_s)?;
        request.check()?;
        if !request.stop.is_empty() && self.tokenizer.is_none() {
            return Err(EngineError::NoTokenizer(self.info.name.clone()));
        }
        let mut canvas = self.canvas_of(&request)?;
        let prompt_tokens = canvas.len();
        let first_mask = canvas.iter().position(|&id| id == mask).unwrap_or(prompt_tokens);
        let prompt_masks = canvas[first_mask..].iter().filter(|&&id| id == mask).count();
        let length = prompt_tokens.saturating_add(request.max_new_tokens);
        let masks = prompt_masks.saturating_add(request.max_new_tokens);
        if masks == 0 {
            let fact =
                format!("the prompt of {prompt_tokens} tokens has no mask, and 0 new tokens were asked for");
            return Err(EngineError::request(
                fact,
                hint!["give ", Setting::MaxNewTokens, " at least 1, or masks in the prompt"],
            ));
        }
        let sequences = if request.cfg_scale > 0.0 { 2 } else { 1 };
        let guidance = request.guidance_bytes(masks, self.info.vocab);
        self.check_canvas(format_args!("the canvas"), length, sequences, guidance)?;
        let draft = self.receipt_draft(request.receipt.as_ref(), &request.adapters, || {
            ReceiptRequest::Diffuse(Box::new(DiffuseRequest {
                prompt: Prompt::Ids(signed(&canvas)),
                adapters: Vec::new(),
                timeout_s: None,
                queueing: Queueing::default(),
                receipt: None,
                ..request.clone()
            }))
        })?;
        canvas.resize(length, mask);
        let blocks = blocks(&request, first_mask, prompt_tokens)?;
        let algorithm = algorithm(&request, shifted)?;
        let rules = Rules {
            algorithm,
            steps: steps(&request, masks, blocks.len())?,
            eps: request.eps,
            alg_temp: request.alg_temp,
            seed: request.sampling.seed,
            blocks,
            threshold: request.threshold.map(f64::from),
            cache: request.cache,
            refresh: request.refresh,
            shifted,
            savings: request.savings,
        };
        let predictor = Predictor { algorithm, sampling: request.sampling, simd: self.simd };
        let stop_ids = self.limits().ids("stop_token_ids", &request.stop_ids)?;
        let end_ids = if request.ignore_eos { stop_ids } else { [&self.end_ids[..], &stop_ids].concat() };
        let job = DiffuseJob {
            canvas,
            prompt_tokens,
            mask,
            end_ids,
            rules,
            predictor,
            cfg_scale: request.cfg_scale,
            kernel_path: self.info.kernel_path.clone(),
        };
        let transcript = Transcript::new(self.tokenizer.clone(), request.stop);
        let (completion, recorder) = completing_canvas(draft);
        Ticket::begin(cancel, |mut reply, cancels| {
            reply.complete_with(completion);
            let task = DiffuseTask::new(job, transcript, reply);
            self.run(task, cancels, timeout_s, request.queueing, &request.adapters, recorder)
        })
    }

    /// Refuses canvases if the model fills no masks.
    pub fn check_fills_masks(&self) -> Result<(), EngineError> {
        self.shifted().map(drop)
    }

    /// Whether the rows of a model that fills masks predict the token at the next position. It is an error if it fills none.
    fn shifted(&self) -> Result<bool, EngineError> {
        let objective = self.info.objective;
        if objective.fills_masks() {
            return Ok(objective.shift > 0);
        }
        if !objective.predicts() {
            return Err(self.only_encodes());
        }
        let fact = format!("`{}` predicts the token that follows and fills no masks", self.info.architecture);
        let hint = hint!["take ", Command::Generate, ", or a model such as Dream or LLaDA"];
        Err(EngineError::request(fact, hint))
    }

    /// Id of the mask token.
    pub(super) fn mask_id(&self) -> Result<u32, EngineError> {
        let file = "`mask_token_id` in `config.json` is the id of the mask token";
        match self.info.mask_id {
            Some(id) if (id as usize) < self.info.vocab => Ok(id),
            Some(id) => {
                let fact = format!("the mask's id {id} is outside 0..{}, the vocabulary", self.info.vocab);
                Err(EngineError::request(fact, file))
            }
            None => Err(EngineError::request(format!("`{}` names no mask", self.info.name), file)),
        }
    }

    /// Token ids of the prompt.
    fn canvas_of(&self, request: &DiffuseRequest) -> Result<Vec<u32>, EngineError> {
        let has_prefix = self.tokenizer.as_ref().is_some_and(|tokenizer| !tokenizer.prefix_ids().is_empty());
        let nothing = match &request.prompt {
            Prompt::Text(text) => text.is_empty() && !has_prefix,
            Prompt::Formatted(text) => text.is_empty(),
            Prompt::Ids(ids) => ids.is_empty(),
        };
        // Masks need no token before them.
        if nothing && request.max_new_tokens > 0 {
            return Ok(Vec::new());
        }
        self.limits().prompt(&request.prompt, None, request.max_new_tokens)
    }

    /// Refuses canvases that could never run, given their lengths in tokens. Each runs in one pass. `guidance` is the number of bytes
    /// of logits that guidance keeps between the passes of its two sequences.
    pub(super) fn check_canvas(
        &self,
        what: fmt::Arguments<'_>,
        tokens: usize,
        sequences: usize,
        guidance: u64,
    ) -> Result<(), EngineError> {
        let (most, context) = (Buckets::MAX_TOKENS, self.info.context);
        if tokens > context {
            let fact = format!("{what}: {tokens} tokens exceed the context of {context}");
            return Err(EngineError::request(fact, "shorten the prompt, or what comes after it"));
        }
        if tokens > most {
            let fact = format!("{what}: {tokens} tokens exceed the largest pass, {most}");
            return Err(EngineError::request(fact, "shorten the prompt, or what comes after it"));
        }
        let info = &self.info;
        let activations = canvas_bytes(info.activation_bytes, info.activation_bytes_per_row, tokens);
        // Half of the bytes that the memory budget leaves are for keys and values, half for these activations and logits.
        let needed = activations.saturating_add(guidance);
        if let Some(room) = self.info.kv_budget_bytes.filter(|room| needed > *room) {
            let logits =
                if guidance > 0 { format!(" and {guidance} of logits for guidance") } else { String::new() };
            let fact = format!(
                "{what}: {tokens} tokens, run in one pass, take {activations} bytes of activations{logits}, more than the {room} that \
                 the memory budget leaves for them"
            );
            return Err(EngineError::request(fact, hint!["give more ", Setting::Memory, ", or shorten it"]));
        }
        self.check_room(what, &vec![tokens; sequences], 0)
    }
}

impl DiffuseRequest {
    /// Bytes of logits that guidance keeps for these masks, from the pass of one of its two sequences to that of the other; 0 without
    /// guidance. Masks that an earlier block left are predicted again, so blocks do not lower this bound.
    pub fn guidance_bytes(&self, masks: usize, vocab: usize) -> u64 {
        let rows = if self.cfg_scale > 0.0 { masks } else { 0 };
        (rows as u64).saturating_mul((vocab * size_of::<f32>()) as u64)
    }

    /// Refuses values out of range and options that cannot be combined, for every model. [`Engine::diffuse`] checks this too.
    pub fn check(&self) -> Result<(), EngineError> {
        sampler::check(&self.sampling)?;
        let refuse = |field, fact: String, hint: &'static str| Err(EngineError::field(field, fact, hint));
        let DiffuseRequest { eps, alg_temp, cfg_scale, threshold, cache, refresh, .. } = *self;
        if self.sampling.min_p > 0.0 {
            return refuse("min_p", "`min_p` is not part of these algorithms".into(), "leave it out");
        }
        if !(eps > 0.0 && eps < 1.0) {
            return refuse("eps", format!("`eps` is {eps}"), "`eps` must be above 0 and below 1");
        }
        if !(alg_temp.is_finite() && alg_temp >= 0.0) {
            return refuse(
                "alg_temp",
                format!("`alg_temp` is {alg_temp}"),
                "`alg_temp` must be a finite number of at least 0",
            );
        }
        let most = Self::MAX_GUIDANCE;
        if !(0.0..=most).contains(&cfg_scale) {
            let hint = format!("`cfg_scale` must be from 0 to {most}");
            return Err(EngineError::field("cfg_scale", format!("`cfg_scale` is {cfg_scale}"), hint));
        }
        if let Some(bad) = threshold.filter(|threshold| !(0.0..=1.0).contains(threshold)) {
            return refuse(
                "threshold",
                format!("`threshold` is {bad}"),
                "`threshold` must be a probability from 0 to 1",
            );
        }
        if self.stop.iter().any(String::is_empty) {
            return refuse("stop", "a stop string is empty".into(), "leave it out");
        }
        if refresh == Some(0) {
            return refuse("refresh", "`refresh` is 0 passes".into(), "give at least 1, or leave it out");
        }
        if refresh.is_some() && cache == BlockCache::None {
            let fact = "`refresh` is for a block cache, and there is none";
            return Err(EngineError::field("refresh", fact, hint!["give ", Setting::Cache, " too"]));
        }
        if cfg_scale > 0.0 && cache != BlockCache::None {
            return refuse(
                "cfg_scale",
                "guidance and a block cache do not go together".into(),
                "leave one of them out",
            );
        }
        if threshold.is_some() && self.steps.is_some() {
            let hint = "with a threshold there are as many steps as it takes: leave one of them out";
            return refuse("steps", "`steps` and `threshold` were given".into(), hint);
        }
        if alg_temp > 0.0 && threshold.is_some() {
            return refuse(
                "alg_temp",
                "`alg_temp` and `threshold` were given".into(),
                "leave one of them out",
            );
        }
        if !self.savings && (cache != BlockCache::None || threshold.is_some()) {
            let fact = "every step over all rows (no exact savings), with a block cache or a threshold";
            return refuse("cache", fact.into(), "leave one of them out");
        }
        Ok(())
    }
}

/// The requested algorithm, or the default of the model family.
fn algorithm(request: &DiffuseRequest, shifted: bool) -> Result<Algorithm, EngineError> {
    let by_probability = request.threshold.is_some();
    let natural = match (shifted, by_probability) {
        (true, false) => Algorithm::Entropy,
        (true, true) => Algorithm::MaskgitPlus,
        (false, _) => Algorithm::LowConfidence,
    };
    let algorithm = request.algorithm.unwrap_or(natural);
    let refuse = |fact: String, hint: &'static str| Err(EngineError::field("algorithm", fact, hint));
    let probable = matches!(algorithm, Algorithm::MaskgitPlus | Algorithm::LowConfidence);
    if by_probability && !probable {
        let fact =
            format!("a threshold compares probabilities, and `{}` is about something else", algorithm.name());
        return refuse(fact, "take `maskgit-plus` or `low-confidence`, or leave out the algorithm");
    }
    let random = matches!(algorithm, Algorithm::Origin | Algorithm::Random);
    if random && request.alg_temp > 0.0 {
        let fact = format!("`alg_temp` applies to confidences, and `{}` takes any", algorithm.name());
        return refuse(fact, "leave one of them out");
    }
    Ok(algorithm)
}

/// The blocks of the canvas, from the first mask to the end.
fn blocks(
    request: &DiffuseRequest,
    first_mask: usize,
    prompt_tokens: usize,
) -> Result<Vec<Range<usize>>, EngineError> {
    let new = request.max_new_tokens;
    let needed = request.threshold.is_some() || request.cache != BlockCache::None;
    let length = match request.block_length {
        Some(length) if length == 0 || new % length != 0 => {
            let fact = format!("blocks of {length} do not divide {new} new tokens");
            let hint = hint![Setting::BlockLength.to(divisor(new, BLOCK)), " does"];
            return Err(EngineError::field("block_length", fact, hint));
        }
        Some(length) => length,
        None if needed => divisor(new, BLOCK),
        None => new,
    };
    let end = prompt_tokens + new;
    // Without new tokens, only the prompt has masks; they form one block.
    if new == 0 {
        return Ok(std::iter::once(first_mask..end).collect());
    }
    let starts = (prompt_tokens..end).step_by(length);
    // Masks of the prompt belong to the first block.
    Ok(starts
        .map(|start| (if start == prompt_tokens { first_mask } else { start })..start + length)
        .collect())
}

/// Number of steps; each block gets the same number.
fn steps(request: &DiffuseRequest, masks: usize, blocks: usize) -> Result<usize, EngineError> {
    let steps = request.steps.unwrap_or(masks.next_multiple_of(blocks));
    let refuse = |fact: String, hint: Hint| Err(EngineError::field("steps", fact, hint));
    if steps == 0 {
        let hint = format!("give at least 1; {masks} fills one mask per step");
        return refuse("0 steps were asked for".into(), hint.into());
    }
    let most = masks.max(DiffuseRequest::MAX_STEPS);
    if request.steps.is_some() && steps > most {
        let fact = format!("{steps} steps for {masks} masks, but at most {most} are possible");
        return refuse(fact, hint![Setting::Steps.to(masks), " fills one mask per step"]);
    }
    if steps % blocks != 0 {
        let fact = format!("{steps} steps cannot be shared out evenly to {blocks} blocks");
        return refuse(fact, hint![Setting::Steps.to((steps / blocks).max(1) * blocks), " can"]);
    }
    Ok(steps)
}
