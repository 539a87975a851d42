//! Requests that several lanes send to an engine.

use redline_engine::{
    BatchRequest, Cancel, DiffuseOutcome, DiffuseRequest, Engine, EngineError, GenerateOutcome,
    GenerateRequest, ItemScore, Prompt, ScoreOutcome, Ticket,
};

use super::{LaneError, Result, require};

/// The ids of sequence `index`; neighbouring sequences begin differently.
pub(crate) fn ids(tokens: usize, index: usize, vocab: usize) -> Vec<i64> {
    (0..tokens).map(|i| ((i * 7919 + index + 11) % vocab) as i64).collect()
}

/// The ids of prompts: those of a text, or [`ids`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Prompts(Option<Vec<i64>>);

impl Prompts {
    /// Encodes a text, if there is one, with the tokenizer of the engine.
    pub(crate) fn new(engine: &Engine, text: Option<&str>) -> Result<Self> {
        let Some(text) = text else { return Ok(Self(None)) };
        let Some(tokenizer) = engine.tokenizer() else {
            return Err(EngineError::NoTokenizer(engine.info().name.clone()).into());
        };
        let ids: Vec<i64> = tokenizer.encode(text, true)?.into_iter().map(i64::from).collect();
        require(!text.is_empty() && !ids.is_empty(), || "the prompt has no token".to_owned())?;
        Ok(Self(Some(ids)))
    }

    /// Tokens of the text; without a text, `tokens`.
    pub(crate) fn length(&self, tokens: usize) -> usize {
        self.0.as_ref().map_or(tokens, Vec::len)
    }

    /// `tokens` ids of prompt `index`. Those of a text begin with its token `index` and go round, so that prompts of a batch begin
    /// differently.
    pub(crate) fn ids(&self, tokens: usize, index: usize, vocab: usize) -> Vec<i64> {
        match &self.0 {
            Some(text) => text.iter().copied().cycle().skip(index % text.len().max(1)).take(tokens).collect(),
            None => ids(tokens, index, vocab),
        }
    }

    /// A request for `batch` sequences.
    pub(crate) fn batch(&self, batch: usize, prompt: usize, new_tokens: usize, vocab: usize) -> BatchRequest {
        let prompts = (0..batch).map(|index| Prompt::Ids(self.ids(prompt, index, vocab))).collect();
        BatchRequest { prompts, max_new_tokens: new_tokens, ignore_eos: true, adapters: Vec::new() }
    }
}

/// A request for exactly `new_tokens` tokens, whatever the model predicts.
pub(crate) fn continuation(prompt: Vec<i64>, new_tokens: usize) -> GenerateRequest {
    GenerateRequest { ignore_eos: true, ..GenerateRequest::new(Prompt::Ids(prompt), new_tokens) }
}

/// A request for `batch` sequences that begin differently.
pub(crate) fn batch_request(batch: usize, prompt: usize, new_tokens: usize, vocab: usize) -> BatchRequest {
    Prompts::default().batch(batch, prompt, new_tokens, vocab)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_of_a_text_go_round() {
        let text = Prompts(Some(vec![5, 6, 7]));
        assert_eq!((text.length(9), Prompts::default().length(9)), (3, 9));
        assert_eq!(text.ids(3, 0, 10), [5, 6, 7]);
        assert_eq!((text.ids(3, 1, 10), text.ids(5, 5, 10)), (vec![6, 7, 5], vec![7, 5, 6, 7, 5]));
        let prompts = text.batch(2, 3, 4, 10).prompts;
        assert!(
            matches!(&prompts[..], [Prompt::Ids(a), Prompt::Ids(b)] if *a == [5, 6, 7] && *b == [6, 7, 5])
        );
        assert_eq!(Prompts::default().ids(2, 0, 10), ids(2, 0, 10));
    }
}
