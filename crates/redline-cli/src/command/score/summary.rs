//! Describes the outcome for people.

use redline_api::model::LoadedModel;
use redline_engine::ScoreOutcome;

use crate::command::cost;

/// A summary line with token counts and timings.
pub(super) fn summary(loaded: &LoadedModel, outcome: &ScoreOutcome) -> String {
    let items = outcome.items.iter().map(|item| item.as_ref().ok().map(|i| (i.prompt_tokens, i.truncated)));
    cost::summary(loaded, &outcome.cost, (outcome.items.len(), "item"), items)
}
