//! Converts the engine's outcome to JSON, and to a line for people.

use redline_engine as engine;
use redline_engine::{ItemScore, ScoreOutcome};
use redline_wire::{Finite, ItemFault, MonteCarlo, ScoreMeta, Scoring};

use crate::command::taken;
use crate::model::Loaded;

/// Builds the JSON document.
pub(super) fn scoring(loaded: &Loaded, outcome: ScoreOutcome) -> Scoring {
    Scoring {
        object: "scoring".to_owned(),
        model: loaded.name.clone(),
        scores: each(&outcome, |item| finite(&item.scores)),
        usage: taken::tokens(outcome.taken.usage),
        meta: meta(loaded, outcome),
    }
}

fn meta(loaded: &Loaded, outcome: ScoreOutcome) -> ScoreMeta {
    let rows = || outcome.items.iter().flatten();
    let masses = rows().all(|item| item.label_mass.is_some());
    let ids = rows().any(|item| item.token_ids.is_some());
    let faults = outcome.items.iter().filter_map(|item| item.as_ref().err());
    ScoreMeta {
        logprobs: each(&outcome, |item| finite(&item.logprobs)),
        label_mass: masses.then(|| each_known(&outcome, |item| item.label_mass.map(Finite))),
        prompt_tokens: each(&outcome, |item| item.prompt_tokens),
        truncated: each(&outcome, |item| item.truncated),
        boundary_mismatch: each_known(&outcome, |item| item.boundary_mismatch),
        item_errors: faults.map(|e| ItemFault { index: e.index, message: e.message.clone() }).collect(),
        token_ids: ids.then(|| each_known(&outcome, |item| item.token_ids.clone())),
        label_token_ids: taken::label_ids(outcome.label_token_ids),
        item_label_token_ids: outcome
            .item_label_token_ids
            .map(|lists| lists.into_iter().map(taken::label_ids).collect()),
        monte_carlo: outcome.monte_carlo.map(monte_carlo),
        took: taken::took(loaded, outcome.taken),
    }
}

fn monte_carlo(from: engine::MonteCarlo) -> MonteCarlo {
    MonteCarlo { samples: from.samples, seed: from.seed, sampled_labels: from.sampled_labels }
}

/// Applies `of` to every item; `None` for items that failed.
fn each<T>(outcome: &ScoreOutcome, of: impl Fn(&ItemScore) -> T) -> Vec<Option<T>> {
    each_known(outcome, |item| Some(of(item)))
}

/// Like `each`, for values that not every item has.
fn each_known<T>(outcome: &ScoreOutcome, of: impl Fn(&ItemScore) -> Option<T>) -> Vec<Option<T>> {
    outcome.items.iter().map(|item| item.as_ref().ok().and_then(&of)).collect()
}

fn finite(row: &[f32]) -> Vec<Finite<f32>> {
    row.iter().copied().map(Finite).collect()
}

/// A summary line with token counts and timings.
pub(super) fn summary(loaded: &Loaded, outcome: &ScoreOutcome) -> String {
    let items = outcome.items.iter().map(|item| item.as_ref().ok().map(|i| (i.prompt_tokens, i.truncated)));
    taken::summary(loaded, &outcome.taken, (outcome.items.len(), "items"), items)
}
