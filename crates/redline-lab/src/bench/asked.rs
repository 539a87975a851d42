//! What several lanes ask of an engine.

use redline_engine::{Cancel, DiffuseOutcome, DiffuseRequest, Engine, EngineError, Ticket};

/// The ids of sequence `index`; neighbouring sequences begin differently.
pub(crate) fn ids(tokens: usize, index: usize, vocab: usize) -> Vec<i64> {
    (0..tokens).map(|i| ((i * 7919 + index + 11) % vocab) as i64).collect()
}

/// Several canvases that are filled together.
pub(crate) fn canvases(
    engine: &Engine,
    requests: impl Iterator<Item = DiffuseRequest>,
) -> Result<Vec<DiffuseOutcome>, EngineError> {
    let cancel = Cancel::new();
    let tickets = requests.map(|request| engine.submit_diffuse(request, &cancel));
    let tickets = tickets.collect::<Result<Vec<_>, _>>()?;
    tickets.into_iter().map(Ticket::wait).collect()
}
