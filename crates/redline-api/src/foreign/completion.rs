//! `/v1/completions`: continuations of prompts, in OpenAI's form.

use redline_engine::{
    Continuation, FinishReason, GenerateOutcome, GenerateRequest, Penalties, PositionLogprobs,
    PromptLogprobs, TokenCounts, TokenLogprob,
};
use redline_wire::{
    CompletionBody, Finite, LegacyLogprobs, NamedLogprobs, OpenAiChoice, OpenAiCompletion, TextOrIds,
};

use super::AnswerHead;
use super::fields::{above_zero, count, refused, salt, stops, timeout, within};
use crate::generate::SamplingDefaults;
use crate::prompt::prompt;
use crate::{ApiError, LoadedModel, cost};

/// Maximum number of prompts of a request.
pub const MAX_PROMPTS: usize = 128;
/// Maximum number of log-probabilities per position.
pub const MAX_TOP_LOGPROBS: usize = 20;
/// Default of `max_tokens`, which is OpenAI's.
const MAX_TOKENS: usize = 16;

/// The parts of a request that shape its answer.
#[derive(Clone, Copy, Debug)]
pub struct CompletionForm {
    /// Whether the text begins with the prompt.
    echo: bool,
    /// Whether only the prompt was asked for: the one new token is left out.
    prompt_only: bool,
    /// Whether log-probabilities are returned.
    logprobs: bool,
    /// Whether token ids are returned.
    token_ids: bool,
}

/// Builds the engine's requests, one per prompt.
pub fn request(body: CompletionBody) -> Result<(Vec<GenerateRequest>, CompletionForm), ApiError> {
    check_supported(&body)?;
    let prompts = body.prompt.0;
    count("prompt", prompts.len(), 1..=MAX_PROMPTS)?;
    let several = prompts.len() > 1;
    for (at, one) in prompts.iter().enumerate() {
        if matches!(one, TextOrIds::Ids(ids) if ids.is_empty()) {
            let param = if several { format!("prompt[{at}]") } else { "prompt".to_owned() };
            return Err(refused(&param, format!("`{param}` has no tokens"), "give at least one"));
        }
    }
    let echo = body.echo.unwrap_or(false);
    let max_tokens = body.max_tokens.unwrap_or(MAX_TOKENS);
    if max_tokens == 0 && !echo {
        return Err(refused("max_tokens", "`max_tokens` is 0", "give at least 1, or `echo` the prompt"));
    }
    let logprobs = within("logprobs", body.logprobs, 0..=MAX_TOP_LOGPROBS)?;
    let sampling = SamplingDefaults {
        temperature: within("temperature", body.temperature, 0.0..=100.0)?,
        top_k: within("top_k", body.top_k, -1..=i64::from(u32::MAX))?.map(|k| k.max(0) as usize),
        top_p: above_zero("top_p", body.top_p)?,
        min_p: within("min_p", body.min_p, 0.0..=1.0)?,
        typical_p: above_zero("typical_p", body.typical_p)?,
        seed: body.seed.map(|seed| seed as u64),
    };
    let most = GenerateRequest::MOST_CONTINUATIONS;
    let n = within("n", body.n, 1..=most)?.unwrap_or(1);
    let best_of = within("best_of", body.best_of, n..=most)?;
    let sampling = sampling.sampling();
    if best_of.unwrap_or(n) > 1 && sampling.temperature == 0.0 {
        let (param, value) = if n > 1 { ("n", n) } else { ("best_of", best_of.unwrap_or(n)) };
        let fact = format!("`{param}` is {value}, and greedy continuations are all the same");
        return Err(refused(param, fact, "give a `temperature` above 0"));
    }
    if best_of.unwrap_or(n) > 1 && echo && logprobs.is_some() {
        let fact = format!("`echo` with `logprobs` is given for {} continuations", best_of.unwrap_or(n));
        return Err(refused("echo", fact, "ask for one continuation, or leave one of the two out"));
    }
    let bias = body.logit_bias.map(|bias| bias.0).unwrap_or_default();
    for (id, bias) in &bias {
        within(&format!("logit_bias.{id}"), Some(*bias), -100.0..=100.0)?;
    }
    let penalty = |param, value| Ok::<_, ApiError>(within(param, value, -2.0..=2.0)?.unwrap_or(0.0));
    let repetition = body.repetition_penalty;
    if repetition.is_some_and(|value| !(value > 0.0 && value.is_finite())) {
        let fact = format!("`repetition_penalty` is {}", repetition.unwrap_or_default());
        return Err(refused("repetition_penalty", fact, "give a number above 0"));
    }
    let shared = GenerateRequest {
        sampling,
        penalties: Penalties {
            repetition: repetition.unwrap_or(1.0),
            frequency: penalty("frequency_penalty", body.frequency_penalty)?,
            presence: penalty("presence_penalty", body.presence_penalty)?,
        },
        logit_bias: bias,
        n,
        best_of,
        stop: stops(body.stop.unwrap_or_default().0)?,
        ignore_eos: body.ignore_eos.unwrap_or(false),
        logprobs,
        prompt_logprobs: logprobs.filter(|_| echo).map(|top| PromptLogprobs { from: 0, top }),
        cache_salt: salt(body.cache_salt)?,
        timeout_s: timeout(body.timeout_s)?,
        // The engine generates at least one token.
        ..GenerateRequest::new(redline_engine::Prompt::Ids(Vec::new()), max_tokens.max(1))
    };
    let form = CompletionForm {
        echo,
        prompt_only: max_tokens == 0,
        logprobs: logprobs.is_some(),
        token_ids: body.return_token_ids.unwrap_or(false),
    };
    let of = |text| GenerateRequest { prompt: prompt(text), ..shared.clone() };
    Ok((prompts.into_iter().map(of).collect(), form))
}

/// Refuses fields that are known and not supported.
fn check_supported(body: &CompletionBody) -> Result<(), ApiError> {
    if body.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
        return Err(refused("suffix", "`suffix` is not supported", "leave it out"));
    }
    if body.stream == Some(true) {
        return Err(refused("stream", "answers are not streamed yet", "leave `stream` out"));
    }
    if body.stream_options.is_some() {
        return Err(refused("stream_options", "`stream_options` is given without `stream`", "leave it out"));
    }
    Ok(())
}

/// Builds the answer from the outcomes of all prompts.
pub fn answer(
    model: &LoadedModel,
    head: AnswerHead,
    form: CompletionForm,
    outcomes: Vec<GenerateOutcome>,
) -> Result<OpenAiCompletion, ApiError> {
    let mut counts = TokenCounts::default();
    let mut choices = Vec::new();
    for mut outcome in outcomes {
        counts.prompt_tokens += outcome.usage.prompt_tokens;
        counts.cached_tokens += outcome.usage.cached_tokens;
        if !form.prompt_only {
            counts.completion_tokens += outcome.usage.completion_tokens;
        }
        let echoed = Echoed::of(model, form, &mut outcome)?;
        for one in outcome.take_continuations() {
            choices.push(choice(choices.len(), form, &echoed, one));
        }
    }
    Ok(OpenAiCompletion {
        id: head.id,
        object: "text_completion",
        created: head.created,
        model: head.model,
        choices,
        usage: cost::usage(counts),
    })
}

/// The prompt as its continuations repeat it.
#[derive(Default)]
struct Echoed {
    text: String,
    /// The first token, which has no log-probability, and the others.
    logprobs: LegacyLogprobs,
}

impl Echoed {
    fn of(
        model: &LoadedModel,
        form: CompletionForm,
        outcome: &mut GenerateOutcome,
    ) -> Result<Self, ApiError> {
        let mut echoed = Self::default();
        if !form.echo {
            return Ok(echoed);
        }
        let tokenizer = model.engine.tokenizer();
        let ids = &outcome.prompt_token_ids;
        if let Some(tokenizer) = tokenizer {
            echoed.text = tokenizer.decode(ids, true)?;
        }
        for (at, entry) in outcome.prompt_logprobs.take().into_iter().flatten().enumerate() {
            match entry {
                Some(position) => echoed.logprobs.push(&position),
                None => {
                    let text = match (tokenizer, ids.get(at)) {
                        (Some(tokenizer), Some(&id)) => tokenizer.token_text(id)?,
                        _ => String::new(),
                    };
                    echoed.logprobs.push_first(text);
                }
            }
        }
        Ok(echoed)
    }
}

fn choice(index: usize, form: CompletionForm, echoed: &Echoed, one: Continuation) -> OpenAiChoice {
    let mut logprobs = form.logprobs.then(|| echoed.logprobs.clone());
    let mut text = echoed.text.clone();
    if !form.prompt_only {
        text.push_str(&one.text);
        if let Some(all) = &mut logprobs {
            one.logprobs.iter().flatten().for_each(|position| all.push(position));
        }
    }
    let token_ids = if form.prompt_only { Vec::new() } else { one.token_ids };
    OpenAiChoice {
        index,
        text,
        logprobs,
        finish_reason: if form.prompt_only { "length" } else { reason(one.finish_reason) },
        token_ids: form.token_ids.then_some(token_ids),
    }
}

/// The name of a reason to end.
fn reason(of: FinishReason) -> &'static str {
    match of {
        FinishReason::Stop => "stop",
        FinishReason::Length | FinishReason::Cancelled => "length",
    }
}

/// Appends tokens to the parallel lists.
trait Push {
    fn push_first(&mut self, text: String);
    fn push(&mut self, position: &PositionLogprobs);
}

impl Push for LegacyLogprobs {
    fn push_first(&mut self, text: String) {
        self.text_offset.push(next_offset(self));
        self.tokens.push(text);
        self.token_logprobs.push(None);
        self.top_logprobs.push(None);
    }

    fn push(&mut self, position: &PositionLogprobs) {
        let chosen = &position.chosen;
        self.text_offset.push(next_offset(self));
        self.tokens.push(chosen.text.clone());
        self.token_logprobs.push(Some(Finite(chosen.logprob)));
        self.top_logprobs.push(Some(named(chosen, &position.top)));
    }
}

/// Where the next token begins, in characters.
fn next_offset(of: &LegacyLogprobs) -> usize {
    let last = of.tokens.last().map_or(0, |token| token.chars().count());
    of.text_offset.last().map_or(0, |offset| offset + last)
}

/// The most probable tokens and the chosen one, by their texts. Where two tokens have one text, the chosen one keeps it, and others are
/// named by their ids.
fn named(chosen: &TokenLogprob, top: &[TokenLogprob]) -> NamedLogprobs {
    let mut all: Vec<(String, Finite<f32>)> = Vec::with_capacity(top.len() + 1);
    let beyond = (!top.iter().any(|token| token.id == chosen.id)).then_some(chosen);
    for token in top.iter().chain(beyond) {
        let taken = |text: &str| all.iter().any(|(other, _)| other == text);
        let name = if token.id != chosen.id && (token.text == chosen.text || taken(&token.text)) {
            format!("token_id:{}", token.id)
        } else {
            token.text.clone()
        };
        all.push((name, Finite(token.logprob)));
    }
    NamedLogprobs(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<(Vec<GenerateRequest>, CompletionForm), ApiError> {
        request(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn every_field_reaches_the_request() {
        let json = r#"{"prompt":[[4],[5]],"max_tokens":2,"temperature":0.5,"top_k":7,"top_p":0.75,"min_p":0.0625,"seed":-1,
            "typical_p":0.5,"repetition_penalty":0.75,"frequency_penalty":-1,"presence_penalty":2,"logit_bias":{"9":-100},
            "n":5,"best_of":6,"stop":["x"],"ignore_eos":true,"logprobs":6,"echo":false,"cache_salt":"tenant","timeout_s":3}"#;
        let (requests, form) = parse(json).unwrap();
        let one = &requests[1];
        assert_eq!((requests.len(), &one.prompt), (2, &redline_engine::Prompt::Ids(vec![5])));
        let sampling = one.sampling;
        assert_eq!((sampling.temperature, sampling.top_k, sampling.top_p), (0.5, 7, 0.75));
        assert_eq!((sampling.min_p, sampling.typical_p, sampling.seed), (0.0625, 0.5, u64::MAX));
        assert_eq!(one.penalties, Penalties { repetition: 0.75, frequency: -1.0, presence: 2.0 });
        assert_eq!((&one.logit_bias[..], one.n, one.best_of), (&[(9, -100.0)][..], 5, Some(6)));
        assert_eq!((&one.stop[..], one.ignore_eos, one.logprobs), (&["x".to_owned()][..], true, Some(6)));
        assert_eq!(one.prompt_logprobs, None);
        assert_eq!((one.max_new_tokens, one.timeout_s, one.cache_salt.as_str()), (2, Some(3.0), "tenant"));
        assert!(!form.echo && form.logprobs && !form.prompt_only && !form.token_ids);
        let (requests, form) = parse(r#"{"prompt":"p","logprobs":6,"echo":true,"max_tokens":0}"#).unwrap();
        assert_eq!(requests[0].prompt_logprobs, Some(PromptLogprobs { from: 0, top: 6 }));
        assert!(form.echo && form.prompt_only);
    }

    #[test]
    fn without_fields_generation_is_greedy_with_seed_0() {
        let (requests, _) = parse(r#"{"prompt":"p"}"#).unwrap();
        assert_eq!(requests[0].sampling, redline_engine::Sampling::default());
        assert_eq!((requests[0].max_new_tokens, requests[0].n, requests[0].prompt_logprobs), (16, 1, None));
    }

    #[test]
    fn texts_of_two_tokens_that_are_equal_do_not_hide_the_chosen_one() {
        let token = |id, text: &str, logprob| TokenLogprob { id, text: text.to_owned(), logprob };
        let named = named(&token(3, "x", -2.0), &[token(1, "x", -0.5), token(2, "y", -1.0)]);
        let expect = [("token_id:1", -0.5), ("y", -1.0), ("x", -2.0)];
        assert_eq!(named.0, expect.map(|(name, value)| (name.to_owned(), Finite(value))));
    }
}
