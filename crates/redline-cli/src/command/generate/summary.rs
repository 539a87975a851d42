//! Describes the outcome for people.

use redline_api::model::LoadedModel;
use redline_engine as engine;
use redline_engine::GenerateOutcome;
use redline_system::{number, width};

use crate::command::finish;
use crate::display;

/// One line per new token: the token, its log-probability, then the most probable tokens.
pub(super) fn logprobs<'a>(positions: impl Iterator<Item = &'a engine::PositionLogprobs>) -> String {
    let mut text = String::new();
    for position in positions {
        let one = |t: &engine::TokenLogprob| {
            format!("{} {:>9.4}", width::left(&display::shortened(&t.text, 12), 14), t.logprob)
        };
        let tops: Vec<_> = position.top.iter().map(one).collect();
        let masked = position.masked_mass.map(|mass| format!("  masked {mass:.4}")).unwrap_or_default();
        let line = format!("{}{masked}  | {}", one(&position.chosen), tops.join("  "));
        text.push_str(line.trim_end_matches([' ', '|']));
        text.push('\n');
    }
    text
}

/// The line above one of several continuations.
pub(super) fn heading(index: usize, count: usize, of: &engine::Continuation) -> String {
    let mean = of.mean_logprob.map(|mean| format!(", mean log-probability {mean:.4}")).unwrap_or_default();
    let remark = finish::remark(of.finish_reason);
    format!("--- {} of {count}, seed {}{mean}{remark} ---", index + 1, of.seed)
}

/// A summary line with token counts and timings.
pub(super) fn summary(loaded: &LoadedModel, outcome: &GenerateOutcome) -> String {
    let usage = outcome.usage;
    let mut text = format!(
        "{} in {}, {}",
        number::count(usage.prompt_tokens, "prompt token"),
        number::seconds(outcome.prefill_s),
        number::count(usage.completion_tokens, "new token"),
    );
    if let Some(rate) = outcome.decode_tokens_per_s {
        text.push_str(&format!(" at {rate:.1} tokens/s"));
    }
    // Several continuations have remarks in their headings.
    if outcome.others.is_empty() {
        text.push_str(finish::remark(outcome.finish_reason));
    }
    let threads = loaded.threads();
    text + &display::ran(outcome.peak_memory_bytes, &outcome.kernel_path, threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logprobs_read_as_a_table() {
        let token = |id, text: &str, logprob| engine::TokenLogprob { id, text: text.to_owned(), logprob };
        let position =
            |top| engine::PositionLogprobs { chosen: token(1, " a", -0.5), top, masked_mass: None };
        assert_eq!(logprobs([position(vec![])].iter()), "\" a\"             -0.5000\n");
        let masked = engine::PositionLogprobs { masked_mass: Some(0.25), ..position(vec![]) };
        assert_eq!(logprobs([masked].iter()), "\" a\"             -0.5000  masked 0.2500\n");
        let two = logprobs([position(vec![token(1, " a", -0.5), token(2, "\n", -12.25)])].iter());
        assert_eq!(
            two,
            "\" a\"             -0.5000  | \" a\"             -0.5000  \"\\n\"            -12.2500\n"
        );
    }

    #[test]
    fn a_heading_names_seed_and_rank() {
        let mut one = engine::Continuation {
            text: String::new(),
            token_ids: Vec::new(),
            finish_reason: engine::FinishReason::Stop,
            logprobs: None,
            token_s: Vec::new(),
            seed: 7,
            mean_logprob: None,
        };
        assert_eq!(heading(0, 3, &one), "--- 1 of 3, seed 7 (stopped) ---");
        one.mean_logprob = Some(-0.5);
        assert_eq!(heading(1, 2, &one), "--- 2 of 2, seed 7, mean log-probability -0.5000 (stopped) ---");
    }
}
