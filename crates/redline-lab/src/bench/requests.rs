//! Requests that several lanes send to an engine.

use redline_engine::{
    BatchRequest, Cancel, DiffuseOutcome, DiffuseRequest, Engine, GenerateOutcome, GenerateRequest,
    ItemScore, Prompt, ScoreOutcome, Ticket,
};

use super::{LaneError, Result};

/// The ids of sequence `index`; neighbouring sequences begin differently.
pub(crate) fn ids(tokens: usize, index: usize, vocab: usize) -> Vec<i64> {
    (0..tokens).map(|i| ((i * 7919 + index + 11) % vocab) as i64).collect()
}

/// A request for exactly `new_tokens` tokens, whatever the model predicts.
pub(crate) fn continuation(prompt: Vec<i64>, new_tokens: usize) -> GenerateRequest {
    GenerateRequest { ignore_eos: true, ..GenerateRequest::new(Prompt::Ids(prompt), new_tokens) }
}

/// A request for `batch` sequences that begin differently.
pub(crate) fn batch_request(batch: usize, prompt: usize, new_tokens: usize, vocab: usize) -> BatchRequest {
    let prompts = (0..batch).map(|index| Prompt::Ids(ids(prompt, index, vocab))).collect();
    BatchRequest { prompts, max_new_tokens: new_tokens, ignore_eos: true }
}

/// Runs a generation to its end.
pub(crate) fn generate(engine: &Engine, request: GenerateRequest) -> Result<GenerateOutcome> {
    Ok(engine.submit_generate(request, &Cancel::new())?.wait()?)
}

/// Fills several canvases together.
pub(crate) fn diffuse(
    engine: &Engine,
    requests: impl IntoIterator<Item = DiffuseRequest>,
) -> Result<Vec<DiffuseOutcome>> {
    let cancel = Cancel::new();
    let tickets = requests.into_iter().map(|request| engine.submit_diffuse(request, &cancel));
    let tickets = tickets.collect::<Result<Vec<_>, _>>()?;
    Ok(tickets.into_iter().map(Ticket::wait).collect::<Result<_, _>>()?)
}

/// The scores of all items; an error if an item has none.
pub(crate) fn item_scores(outcome: &ScoreOutcome) -> Result<Vec<&ItemScore>> {
    let items = outcome.items.iter().map(Result::as_ref).collect::<Result<_, _>>();
    items.map_err(|error| LaneError::Incorrect(error.message.clone()))
}
