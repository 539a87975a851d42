//! Describes the outcome for people.

use redline_api::jsonl::diffuse;
use redline_api::model::LoadedModel;
use redline_engine::DiffuseOutcome;
use redline_system::number;

use crate::command::finish;
use crate::display;

/// A summary line with token counts and timings.
pub(super) fn summary(loaded: &LoadedModel, outcome: &DiffuseOutcome) -> String {
    let passes = match outcome.passes.len() {
        1 => "1 pass".to_owned(),
        passes => format!("{passes} passes"),
    };
    let mut text = format!(
        "{}, {} filled in {passes} over {}, {}",
        number::count(outcome.prompt_tokens, "prompt token"),
        number::count(diffuse::filled(outcome), "mask"),
        number::count(outcome.computed_tokens, "row"),
        number::seconds(outcome.compute_s),
    );
    if let Some(rate) = outcome.tokens_per_s {
        text.push_str(&format!(", {rate:.1} tokens/s"));
    }
    text.push_str(finish::remark(outcome.finish_reason));
    let threads = loaded.threads();
    text + &display::ran(outcome.peak_memory_bytes, &outcome.kernel_path, threads)
}
