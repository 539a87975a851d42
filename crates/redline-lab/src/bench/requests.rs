//! Requests that several lanes send to an engine.

use redline_engine::{
    Cancel, DiffuseOutcome, DiffuseRequest, Engine, EngineError, GenerateOutcome, GenerateRequest, ItemScore,
    Prompt, ScoreOutcome, Ticket,
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

    /// `batch` prompts of `tokens` ids.
    pub(crate) fn batch(&self, batch: usize, tokens: usize, vocab: usize) -> Vec<Vec<i64>> {
        (0..batch).map(|index| self.ids(tokens, index, vocab)).collect()
    }
}

/// A request for exactly `new_tokens` tokens, whatever the model predicts.
pub(crate) fn continuation(prompt: Vec<i64>, new_tokens: usize) -> GenerateRequest {
    GenerateRequest { ignore_eos: true, ..GenerateRequest::new(Prompt::Ids(prompt), new_tokens) }
}

/// Runs a generation to its end.
pub(crate) fn generate(engine: &Engine, request: GenerateRequest) -> Result<GenerateOutcome> {
    Ok(engine.submit_generate(request, &Cancel::new())?.wait()?)
}

/// Generations that began together.
#[derive(Clone, Debug)]
pub(crate) struct Together {
    /// The new tokens of each.
    pub token_ids: Vec<Vec<u32>>,
    /// Seconds until each had its first new token.
    pub prefill_s: f64,
    /// Seconds for all tokens after that.
    pub decode_s: f64,
    /// Number of tokens after that.
    pub decoded: usize,
    /// Peak of allocated bytes of a generation on its own, if allocations are counted.
    pub peak_memory_bytes: Option<u64>,
}

/// Continues prompts by exactly `new_tokens` tokens each. All begin in the same pass, as far as they fit.
pub(crate) fn continue_together(
    engine: &Engine,
    prompts: Vec<Vec<i64>>,
    new_tokens: usize,
) -> Result<Together> {
    let (hold, cancel) = (engine.hold()?, Cancel::new());
    let submit = |prompt| engine.submit_generate(continuation(prompt, new_tokens), &cancel);
    let tickets = prompts.into_iter().map(submit).collect::<Result<Vec<_>, _>>()?;
    drop(hold);
    let outcomes = tickets.into_iter().map(Ticket::wait).collect::<Result<Vec<_>, _>>()?;
    Ok(Together::of(outcomes))
}

impl Together {
    /// What several generations were together.
    pub(crate) fn of(mut outcomes: Vec<GenerateOutcome>) -> Self {
        let begin = outcomes.iter().map(|outcome| outcome.arrived_s).fold(f64::INFINITY, f64::min);
        let times = |outcome: &GenerateOutcome| {
            outcome.token_s.iter().map(|token_s| outcome.arrived_s - begin + token_s).collect()
        };
        let times: Vec<Vec<f64>> = outcomes.iter().map(times).collect();
        let (prefill_s, decode_s, decoded) = parted(&times);
        Self {
            prefill_s,
            decode_s,
            decoded,
            peak_memory_bytes: outcomes.iter().find_map(|outcome| outcome.peak_memory_bytes),
            token_ids: outcomes.iter_mut().map(|outcome| std::mem::take(&mut outcome.token_ids)).collect(),
        }
    }
}

/// Less than the time of a pass, in seconds.
const NOTHING: f64 = 1e-9;

/// From the seconds from the beginning to each token of each generation: the seconds until all have their first, the seconds after
/// that, and the number of tokens after that.
fn parted(times: &[Vec<f64>]) -> (f64, f64, usize) {
    let latest = |of: fn(&Vec<f64>) -> Option<&f64>| times.iter().filter_map(of).copied().fold(0.0, f64::max);
    let (first, end) = (latest(|times| times.first()), latest(|times| times.last()));
    (first, end - first, times.iter().flatten().filter(|s| **s > first + NOTHING).count())
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
    fn a_token_is_decoded_once_every_sequence_has_its_first() {
        let same = vec![vec![0.5, 1.0, 2.0], vec![0.5 + 1e-12, 1.0, 2.0]];
        assert_eq!(parted(&same), (0.5 + 1e-12, 1.5 - 1e-12, 4));
        let later = vec![vec![0.5, 1.0, 2.0, 3.0], vec![2.0, 3.0, 4.0, 5.0]];
        assert_eq!(parted(&later), (2.0, 3.0, 4));
        assert_eq!(parted(&[vec![0.5], vec![0.25]]), (0.5, 0.0, 0));
    }

    #[test]
    fn prompts_of_a_text_go_round() {
        let text = Prompts(Some(vec![5, 6, 7]));
        assert_eq!((text.length(9), Prompts::default().length(9)), (3, 9));
        assert_eq!(text.ids(3, 0, 10), [5, 6, 7]);
        assert_eq!((text.ids(3, 1, 10), text.ids(5, 5, 10)), (vec![6, 7, 5], vec![7, 5, 6, 7, 5]));
        assert_eq!(text.batch(2, 3, 10), [[5, 6, 7], [6, 7, 5]]);
        assert_eq!(Prompts::default().ids(2, 0, 10), ids(2, 0, 10));
    }
}
