//! Runs generations, and answers with a document or with events.

use axum::body::Body;
use redline_api::ApiError;
use redline_api::foreign::StreamedAnswer;
use redline_engine::{GenerateOutcome, GenerateRequest, Prompt};

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
pub(crate) fn answer_bytes(requests: &[GenerateRequest], context: usize, echoes: bool) -> usize {
    let of = |request: &GenerateRequest| {
        let positions = |tokens: usize, top: usize| tokens.saturating_mul(1 + top).saturating_mul(LOGPROB);
        let prompt = match &request.prompt {
            Prompt::Text(text) | Prompt::Formatted(text) => text.len(),
            Prompt::Ids(ids) => ids.len(),
        };
        let new = request.max_new_tokens.min(context).saturating_mul(request.continuations());
        let tokens =
            new.saturating_mul(TOKEN).saturating_add(request.logprobs.map_or(0, |top| positions(new, top)));
        let of_prompt = request.prompt_logprobs.map_or(0, |asked| positions(prompt.min(context), asked.top));
        let echoed = if echoes { prompt.min(context * TOKEN).saturating_mul(2 * request.n) } else { 0 };
        tokens.saturating_add(of_prompt).saturating_add(echoed)
    };
    requests.iter().map(of).fold(ANSWER, usize::saturating_add)
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
    M: FnOnce(&Desk<'_>) -> Result<Vec<GenerateRequest>, ApiError> + Send + 'static,
    B: FnOnce(&App, Vec<GenerateOutcome>) -> Result<Answer, Fault> + Send + 'static,
{
    let streams = stream.is_some();
    let work = move |desk: &Desk<'_>| {
        let mut tickets = Vec::new();
        for mut request in make(desk)? {
            request.timeout_s = desk.time_left(request.timeout_s)?;
            let ticket = desk.engine.submit_generate(request, desk.cancel)?;
            tickets.push(if streams { ticket } else { ticket.outcome_only() });
        }
        Ok::<_, ApiError>(tickets)
    };
    let Some(stream) = stream else {
        let builds = |app: &App, outcomes: Vec<GenerateOutcome>| {
            if outcomes.iter().any(|outcome| outcome.cancelled) {
                return Err(Fault::draining());
            }
            build(app, outcomes)
        };
        return run(call, need, work, builds).await;
    };
    let (place, tickets) = submit(call, need, work).await?;
    let prompts = tickets.len();
    let app = call.app.clone();
    let pipe = (PipeReader::of(tickets, app.config.limits.stream_bytes), prompts);
    Ok(Answer::events(move |record| Body::new(EventBody::new(app, place, pipe, stream, need.param, record))))
}

#[cfg(test)]
mod tests {
    use redline_engine::PromptLogprobs;

    use super::*;

    #[test]
    fn the_size_of_an_answer_counts_everything_that_a_request_can_multiply() {
        let ids = || Prompt::Ids(vec![1; 10]);
        let one = GenerateRequest::new(ids(), 100);
        let size =
            |request: &GenerateRequest| answer_bytes(std::slice::from_ref(request), 1000, false) - ANSWER;
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
        assert_eq!(answer_bytes(&[several], 1000, true) - ANSWER, 5 * 100 * TOKEN + 10 * 2 * 3);
        assert_eq!(answer_bytes(&[one.clone(), one], 1000, false) - ANSWER, 2 * 100 * TOKEN);
    }
}
