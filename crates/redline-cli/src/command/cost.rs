//! The cost of a scoring request as a line for people.

use redline_api::model::LoadedModel;
use redline_engine::RequestCost;
use redline_system::number;

use crate::display;

/// The cost of a scoring request as text. `all` is the number of items that `noun` names. `prompts` yields, for each item that is
/// shown, its token count and whether it was truncated; `None` if it failed.
pub(super) fn summary(
    loaded: &LoadedModel,
    cost: &RequestCost,
    (all, noun): (usize, &str),
    prompts: impl Iterator<Item = Option<(usize, bool)>> + Clone,
) -> String {
    let mut text = format!(
        "{}, {} computed, {} shared by all {noun}s; {}",
        number::count(cost.usage.prompt_tokens, "prompt token"),
        cost.computed_tokens,
        cost.shared_prefix_tokens,
        number::seconds(cost.compute_s),
    );
    text.push_str(&display::ran(cost.peak_memory_bytes, &cost.kernel_path, loaded.threads()));
    if let Some((tokens, _)) = prompts.clone().flatten().find(|(_, truncated)| *truncated) {
        text.push_str(&format!(
            "note: prompts were cut to fit the context (to {})\n",
            number::count(tokens, "token")
        ));
    }
    let failed = prompts.filter(Option::is_none).count();
    if failed > 0 {
        text.push_str(&format!("note: {failed} of {} failed\n", number::count(all, noun)));
    }
    text
}
