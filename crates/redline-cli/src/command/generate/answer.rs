//! Converts the engine's outcome to JSON, and to lines for people.

use redline_engine as engine;
use redline_engine::{GenerateOutcome, GenerateRequest};
use redline_wire as wire;
use redline_wire::{Choice, Finite, GenerateMeta, TextCompletion};

use crate::command::{ending, taken};
use crate::figure;
use crate::model::Loaded;

/// The parts of a request that the answer repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestEcho {
    kv_cache: bool,
    seed: u64,
}

impl RequestEcho {
    /// Of that request.
    pub(super) fn of(request: &GenerateRequest) -> Self {
        Self { kv_cache: request.kv_cache, seed: request.sampling.seed }
    }
}

/// Builds the JSON document.
pub(super) fn completion(loaded: &Loaded, echo: RequestEcho, outcome: GenerateOutcome) -> TextCompletion {
    TextCompletion {
        object: "text_completion".to_owned(),
        model: loaded.name.clone(),
        choices: vec![Choice {
            text: outcome.text,
            token_ids: outcome.token_ids,
            finish_reason: outcome.finish_reason,
            logprobs: outcome.logprobs.map(|all| all.into_iter().map(position).collect()),
            prompt_logprobs: outcome
                .prompt_logprobs
                .map(|all| all.into_iter().map(|one| one.map(position)).collect()),
        }],
        usage: taken::tokens(outcome.usage),
        meta: GenerateMeta {
            cache_miss_count: outcome.plan_misses,
            queue_s: Finite(outcome.queue_s),
            prefill_s: Finite(outcome.prefill_s),
            decode_s: Finite(outcome.decode_s),
            tokens_per_s: outcome.decode_tokens_per_s.map(Finite),
            peak_memory_bytes: outcome.peak_memory_bytes,
            kernel_path: outcome.kernel_path,
            threads: loaded.engine.info().threads,
            kv_cache: echo.kv_cache,
            prefix_cache: outcome.prefix_cache.map(taken::prefix_cache),
            seed: echo.seed,
        },
    }
}

fn position(from: engine::PositionLogprobs) -> wire::PositionLogprobs {
    wire::PositionLogprobs { chosen: token(from.chosen), top: from.top.into_iter().map(token).collect() }
}

fn token(from: engine::TokenLogprob) -> wire::TokenLogprob {
    wire::TokenLogprob { id: from.id, text: from.text, logprob: Finite(from.logprob) }
}

/// One line per new token: the token, its log-probability, then the most probable tokens.
pub(super) fn logprobs(positions: &[engine::PositionLogprobs]) -> String {
    let mut text = String::new();
    for position in positions {
        let one =
            |t: &engine::TokenLogprob| format!("{:<14} {:>9.4}", figure::shortened(&t.text, 12), t.logprob);
        let tops: Vec<_> = position.top.iter().map(one).collect();
        let line = format!("{}  | {}", one(&position.chosen), tops.join("  "));
        text.push_str(line.trim_end_matches([' ', '|']));
        text.push('\n');
    }
    text
}

/// A summary line with token counts and timings.
pub(super) fn summary(loaded: &Loaded, outcome: &GenerateOutcome) -> String {
    let usage = outcome.usage;
    let mut text = format!(
        "{} prompt tokens in {}, {} new tokens",
        usage.prompt_tokens,
        figure::seconds(outcome.prefill_s),
        usage.completion_tokens,
    );
    if let Some(rate) = outcome.decode_tokens_per_s {
        text.push_str(&format!(" at {rate:.1} tokens/s"));
    }
    text.push_str(ending::remark(outcome.finish_reason));
    let threads = loaded.engine.info().threads;
    text + &figure::ran(outcome.peak_memory_bytes, &outcome.kernel_path, threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logprobs_read_as_a_table() {
        let token = |id, text: &str, logprob| engine::TokenLogprob { id, text: text.to_owned(), logprob };
        let position = |top| engine::PositionLogprobs { chosen: token(1, " a", -0.5), top };
        assert_eq!(logprobs(&[position(vec![])]), "\" a\"             -0.5000\n");
        let two = logprobs(&[position(vec![token(1, " a", -0.5), token(2, "\n", -12.25)])]);
        assert_eq!(
            two,
            "\" a\"             -0.5000  | \" a\"             -0.5000  \"\\n\"            -12.2500\n"
        );
    }
}
