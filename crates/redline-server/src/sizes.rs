//! The memory that the answers to generations take.

use redline_api::error::ApiError;
use redline_api::generation::mode::GenerationRequest;
use redline_engine::{DiffuseRequest, DiffusionPass, Engine, FilledMask, GenerateRequest, Prompt};

/// Bytes that a new token takes until it is sent: its id, its time and its text, in the outcome and in JSON.
const TOKEN: usize = 40;
/// Bytes that a log-probability takes until it is sent: with its text in the outcome, in the answer and in JSON.
const LOGPROB: usize = 180;
/// Bytes that an answer takes besides its tokens.
const ANSWER: usize = 2048;

/// The sizes of a model that bound the memory of an answer.
#[derive(Debug)]
pub(crate) struct ModelSizes {
    /// Most tokens of a sequence.
    context: usize,
    vocab: usize,
    /// The mask token's id, and its text if the tokenizer knows it.
    mask: Option<(u32, Option<String>)>,
}

impl ModelSizes {
    pub(crate) fn of(engine: &Engine) -> Self {
        let info = engine.info();
        let text = |id| engine.tokenizer().and_then(|tokenizer| tokenizer.token(id));
        Self { context: info.context, vocab: info.vocab, mask: info.mask_id.map(|id| (id, text(id))) }
    }

    /// Number of masks in a prompt.
    fn masks(&self, prompt: &Prompt) -> usize {
        match (&self.mask, prompt) {
            (Some((id, _)), Prompt::Ids(ids)) => ids.iter().filter(|&&one| one == i64::from(*id)).count(),
            (Some((_, Some(mask))), Prompt::Text(text) | Prompt::Formatted(text)) => {
                text.matches(mask.as_str()).count()
            }
            _ => 0,
        }
    }

    /// Bytes of logits that guidance keeps while it fills a canvas.
    fn guidance_bytes(&self, request: &DiffuseRequest) -> usize {
        let masks = self.masks(&request.prompt).saturating_add(request.max_new_tokens).min(self.context);
        usize::try_from(request.guidance_bytes(masks, self.vocab)).unwrap_or(usize::MAX)
    }
}

/// Bytes that the answer to these requests may take. `echoes` is whether continuations begin with their prompts.
pub(crate) fn answer_bytes(requests: &[GenerationRequest], model: &ModelSizes, echoes: bool) -> usize {
    let of = |request: &GenerationRequest| match request {
        GenerationRequest::Autoregressive(request) => continuation_bytes(request, model.context, echoes),
        GenerationRequest::Diffusion(request) => canvas_bytes(request, model),
    };
    requests.iter().map(of).fold(ANSWER, usize::saturating_add)
}

/// Bytes of the continuations of a prompt.
fn continuation_bytes(request: &GenerateRequest, context: usize, echoes: bool) -> usize {
    let positions = |tokens: usize, top: usize| tokens.saturating_mul(1 + top).saturating_mul(LOGPROB);
    let prompt = longest(&request.prompt);
    let new = request.max_new_tokens.min(context).saturating_mul(request.continuations());
    let tokens =
        new.saturating_mul(TOKEN).saturating_add(request.logprobs.map_or(0, |top| positions(new, top)));
    let of_prompt = request.prompt_logprobs.map_or(0, |asked| positions(prompt.min(context), asked.top));
    let echoed = if echoes { prompt.min(context * TOKEN).saturating_mul(2 * request.n) } else { 0 };
    tokens.saturating_add(of_prompt).saturating_add(echoed)
}

/// Bytes of a canvas: its tokens and their text, what each pass filled, the passes, and the logits that guidance keeps.
fn canvas_bytes(request: &DiffuseRequest, model: &ModelSizes) -> usize {
    let tokens = longest(&request.prompt).saturating_add(request.max_new_tokens).min(model.context);
    // The engine refuses more steps.
    let passes = request.steps.unwrap_or(tokens).min(tokens.max(DiffuseRequest::MAX_STEPS));
    (tokens * (TOKEN + size_of::<FilledMask>()) + passes * size_of::<DiffusionPass>())
        .saturating_add(model.guidance_bytes(request))
}

/// Refuses a canvas whose guidance takes more memory than the answer has. The memory for an answer to a conversation is reserved before
/// the template renders the prompt, so masks in the rendered prompt were not counted.
pub(crate) fn check_guidance(
    request: &GenerationRequest,
    model: &ModelSizes,
    granted: usize,
) -> Result<(), ApiError> {
    let GenerationRequest::Diffusion(request) = request else { return Ok(()) };
    let needed = model.guidance_bytes(request);
    if needed <= granted {
        return Ok(());
    }
    let masks = model.masks(&request.prompt);
    let fact = format!(
        "guidance over {masks} masks in the prompt and {} after it takes {needed} bytes of logits, and the answer has {granted} bytes of \
         memory",
        request.max_new_tokens
    );
    let hint = "leave `cfg_scale` out, or fill masks of a prompt with `/v1/completions`";
    Err(ApiError::Field { param: "cfg_scale".to_owned(), fact, hint: Some(hint.into()) })
}

/// Most tokens that a prompt may have, whatever the tokenizer.
fn longest(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Text(text) | Prompt::Formatted(text) => text.len(),
        Prompt::Ids(ids) => ids.len(),
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::PromptLogprobs;

    use super::*;

    const MODEL: ModelSizes = ModelSizes { context: 1000, vocab: 500, mask: Some((1, None)) };

    #[test]
    fn the_size_of_an_answer_counts_everything_that_a_request_can_multiply() {
        let ids = || Prompt::Ids(vec![1; 10]);
        let of = |request: &GenerateRequest| GenerationRequest::Autoregressive(request.clone());
        let one = GenerateRequest::new(ids(), 100);
        let size = |request: &GenerateRequest| answer_bytes(&[of(request)], &MODEL, false) - ANSWER;
        assert_eq!(size(&one), 100 * TOKEN);
        let several = GenerateRequest { n: 3, best_of: Some(5), ..one.clone() };
        assert_eq!(size(&several), 5 * 100 * TOKEN);
        let scored = GenerateRequest { logprobs: Some(4), ..several.clone() };
        assert_eq!(size(&scored), 5 * 100 * (TOKEN + 5 * LOGPROB));
        let endless = GenerateRequest { max_new_tokens: usize::MAX, ..one.clone() };
        assert_eq!(size(&endless), 1000 * TOKEN, "no more than the context");
        let prompt =
            GenerateRequest { prompt_logprobs: Some(PromptLogprobs { from: 0, top: 1 }), ..one.clone() };
        assert_eq!(size(&prompt), 100 * TOKEN + 10 * 2 * LOGPROB);
        assert_eq!(answer_bytes(&[of(&several)], &MODEL, true) - ANSWER, 5 * 100 * TOKEN + 10 * 2 * 3);
        assert_eq!(answer_bytes(&[of(&one), of(&one)], &MODEL, false) - ANSWER, 2 * 100 * TOKEN);
    }

    #[test]
    fn the_size_of_a_canvas_counts_its_tokens_and_its_passes() {
        let size = |prompt, new, steps| {
            let request = DiffuseRequest { steps, ..DiffuseRequest::new(Prompt::Ids(vec![1; prompt]), new) };
            answer_bytes(&[GenerationRequest::Diffusion(request)], &MODEL, false) - ANSWER
        };
        let (token, pass) = (TOKEN + size_of::<FilledMask>(), size_of::<DiffusionPass>());
        assert_eq!(size(10, 90, None), 100 * (token + pass));
        assert_eq!(size(10, 90, Some(3)), 100 * token + 3 * pass);
        assert_eq!(size(10, usize::MAX, None), 1000 * (token + pass), "no more than the context");
        assert_eq!(size(0, 1, Some(usize::MAX)), token + DiffuseRequest::MAX_STEPS * pass);
    }

    #[test]
    fn guidance_takes_the_logits_of_every_mask_at_once() {
        let model = ModelSizes { mask: Some((7, Some("<m>".to_owned()))), ..MODEL };
        let bytes = |prompt, new| {
            let request = DiffuseRequest { cfg_scale: 0.5, ..DiffuseRequest::new(prompt, new) };
            let plain = DiffuseRequest { cfg_scale: 0.0, ..request.clone() };
            let guided = canvas_bytes(&request, &model);
            let request = GenerationRequest::Diffusion(request);
            let granted = guided - canvas_bytes(&plain, &model);
            assert!(check_guidance(&request, &model, granted).is_ok());
            assert!(check_guidance(&request, &model, granted - 1).is_err());
            assert!(check_guidance(&GenerationRequest::Diffusion(plain), &model, 0).is_ok());
            granted
        };
        let row = 500 * size_of::<f32>();
        assert_eq!(bytes(Prompt::Ids(vec![7, 8, 7]), 5), 7 * row);
        assert_eq!(bytes(Prompt::Formatted("<m>a<m".to_owned()), 5), 6 * row);
        assert_eq!(bytes(Prompt::Ids(vec![7; 2000]), usize::MAX), 1000 * row, "no more than the context");
    }
}
