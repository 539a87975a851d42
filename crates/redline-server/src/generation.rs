//! Runs generations, and answers with a document or with events.

use axum::body::Body;
use redline_api::ApiError;
use redline_api::foreign::{GenerationOutcome, GenerationRequest, StreamedAnswer};
use redline_engine::{DiffuseRequest, DiffusionPass, FilledMask, GenerateRequest, Prompt};

use crate::admission::{Desk, Need, run, submit};
use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::pipe::PipeReader;
use crate::route::Call;
use crate::stream::EventBody;

/// Bytes that a new token takes until it is sent: its id, its time and its text, in the outcome and in JSON.
const TOKEN: usize = 40;
/// Bytes that a log-probability takes until it is sent: with its text in the outcome, in the answer and in JSON.
const LOGPROB: usize = 180;
/// Bytes that an answer takes besides its tokens.
const ANSWER: usize = 2048;

/// Bytes that the answer to these requests may take. `context` is the most tokens of a sequence; `echoes` is whether continuations begin
/// with their prompts.
pub(crate) fn answer_bytes(requests: &[GenerationRequest], context: usize, echoes: bool) -> usize {
    let of = |request: &GenerationRequest| match request {
        GenerationRequest::Autoregressive(request) => continuation_bytes(request, context, echoes),
        GenerationRequest::Diffusion(request) => canvas_bytes(request, context),
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

/// Bytes of a canvas: its tokens and their text, what each pass filled, and the passes.
fn canvas_bytes(request: &DiffuseRequest, context: usize) -> usize {
    let tokens = longest(&request.prompt).saturating_add(request.max_new_tokens).min(context);
    // The engine refuses more steps.
    let passes = request.steps.unwrap_or(tokens).min(tokens.max(DiffuseRequest::MOST_STEPS));
    tokens * (TOKEN + size_of::<FilledMask>()) + passes * size_of::<DiffusionPass>()
}

/// Most tokens that a prompt may have, whatever the tokenizer.
fn longest(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Text(text) | Prompt::Formatted(text) => text.len(),
        Prompt::Ids(ids) => ids.len(),
    }
}

/// Runs the requests that `make` completes. Without a stream, the answer is what `build` makes of their outcomes.
pub(crate) async fn generate<S, M, B>(
    call: &Call,
    need: Need,
    stream: Option<S>,
    make: M,
    build: B,
) -> Result<Answer, Fault>
where
    S: StreamedAnswer,
    M: FnOnce(&Desk<'_>) -> Result<Vec<GenerationRequest>, ApiError> + Send + 'static,
    B: FnOnce(&App, Vec<GenerationOutcome>) -> Result<Answer, Fault> + Send + 'static,
{
    let streams = stream.is_some();
    let work = move |desk: &Desk<'_>| {
        let mut tickets = Vec::new();
        for mut request in make(desk)? {
            let limit = request.shared().timeout_s;
            *limit = desk.time_left(*limit)?;
            let choices = request.choices();
            let ticket = request.submit(desk.engine, desk.cancel)?;
            tickets.push((if streams { ticket } else { ticket.outcome_only() }, choices));
        }
        Ok::<_, ApiError>(tickets)
    };
    let Some(stream) = stream else {
        let builds = |app: &App, outcomes: Vec<GenerationOutcome>| {
            if outcomes.iter().any(|outcome| outcome.end.cancelled) {
                return Err(Fault::draining());
            }
            build(app, outcomes)
        };
        let tickets = move |desk: &Desk<'_>| {
            work(desk).map(|tickets| tickets.into_iter().map(|(ticket, _)| ticket).collect())
        };
        return run(call, need, tickets, builds).await;
    };
    let (place, tickets) = submit(call, need, work).await?;
    let app = call.app.clone();
    let most = app.config.limits.stream_bytes;
    let pipe = PipeReader::of(tickets, most, stream.tells_canvas());
    Ok(Answer::events(move |record| Body::new(EventBody::new(app, place, pipe, stream, need.param, record))))
}

#[cfg(test)]
mod tests {
    use redline_engine::PromptLogprobs;

    use super::*;

    #[test]
    fn the_size_of_an_answer_counts_everything_that_a_request_can_multiply() {
        let ids = || Prompt::Ids(vec![1; 10]);
        let of = |request: &GenerateRequest| GenerationRequest::Autoregressive(request.clone());
        let one = GenerateRequest::new(ids(), 100);
        let size = |request: &GenerateRequest| answer_bytes(&[of(request)], 1000, false) - ANSWER;
        assert_eq!(size(&one), 100 * TOKEN);
        let several = GenerateRequest { n: 3, best_of: Some(5), ..one.clone() };
        assert_eq!(size(&several), 5 * 100 * TOKEN);
        let told = GenerateRequest { logprobs: Some(4), ..several.clone() };
        assert_eq!(size(&told), 5 * 100 * (TOKEN + 5 * LOGPROB));
        let endless = GenerateRequest { max_new_tokens: usize::MAX, ..one.clone() };
        assert_eq!(size(&endless), 1000 * TOKEN, "no more than the context");
        let prompt =
            GenerateRequest { prompt_logprobs: Some(PromptLogprobs { from: 0, top: 1 }), ..one.clone() };
        assert_eq!(size(&prompt), 100 * TOKEN + 10 * 2 * LOGPROB);
        assert_eq!(answer_bytes(&[of(&several)], 1000, true) - ANSWER, 5 * 100 * TOKEN + 10 * 2 * 3);
        assert_eq!(answer_bytes(&[of(&one), of(&one)], 1000, false) - ANSWER, 2 * 100 * TOKEN);
    }

    #[test]
    fn the_size_of_a_canvas_counts_its_tokens_and_its_passes() {
        let size = |prompt, new, steps| {
            let request = DiffuseRequest { steps, ..DiffuseRequest::new(Prompt::Ids(vec![1; prompt]), new) };
            answer_bytes(&[GenerationRequest::Diffusion(request)], 1000, false) - ANSWER
        };
        let (token, pass) = (TOKEN + size_of::<FilledMask>(), size_of::<DiffusionPass>());
        assert_eq!(size(10, 90, None), 100 * (token + pass));
        assert_eq!(size(10, 90, Some(3)), 100 * token + 3 * pass);
        assert_eq!(size(10, usize::MAX, None), 1000 * (token + pass), "no more than the context");
        assert_eq!(size(0, 1, Some(usize::MAX)), token + DiffuseRequest::MOST_STEPS * pass);
    }
}
