//! Prompts that are texts with a gap, which the model fills.

use redline_engine::{Engine, EngineError, Prompt};

use crate::error::ApiError;
use crate::generation::mode::GenerationRequest;
use crate::json::fields::refused;

/// A text with a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GapText {
    /// The text before the gap.
    pub(crate) before: String,
    /// The text after the gap.
    pub(crate) after: String,
    /// The beginning of the text of the gap.
    pub(crate) begun: String,
    /// Other files, by name, the least important first.
    pub(crate) files: Vec<(String, String)>,
}

/// The name of the repository that other files belong to; no request gives it.
const REPOSITORY: &str = "repository\n";
/// What separates other files, where the model has no token for that.
const SEPARATOR: &str = "\n\n--- file ---\n\n";

/// Sets the prompt of a request to this text, between the tokens with which the model was trained to fill gaps. With `room`, the prompt has
/// at most this number of tokens. The errors of a model without such tokens name `param`.
pub(crate) fn set_prompt(
    request: &mut GenerationRequest,
    engine: &Engine,
    text: &GapText,
    room: Option<usize>,
    param: &str,
) -> Result<(), ApiError> {
    let tokenizer = engine.tokenizer().ok_or_else(|| EngineError::NoTokenizer(engine.info().name.clone()))?;
    let gap = tokenizer.gap_tokens().ok_or_else(|| {
        let fact = format!("`{}` has no tokens that mark a gap in a text", engine.info().name);
        refused(param, fact, "serve a model that fills gaps, such as Qwen2.5-Coder, or continue a text")
    })?;
    let encode = |text: &str| engine.encode(text, false);
    let mut files = Vec::new();
    for (name, text) in &text.files {
        match gap.file {
            Some(file) => files.extend([vec![file], encode(&format!("{name}\n"))?].concat()),
            None => files.extend(encode(SEPARATOR)?),
        }
        files.extend(encode(text)?);
    }
    if let Some(repository) = gap.repository.filter(|_| !files.is_empty()) {
        files = [vec![repository], encode(REPOSITORY)?, files].concat();
    }
    let (mut before, mut after) = (encode(&text.before)?, encode(&text.after)?);
    let begun = encode(&text.begun)?;
    let first = tokenizer.prefix_ids();
    if let Some(room) = room {
        let fixed = first.len() + 2 + usize::from(gap.middle.is_some()) + begun.len();
        cut(&mut files, &mut before, &mut after, room.saturating_sub(fixed));
    }
    let (before, after) = ([&[gap.prefix], &before[..]].concat(), [&[gap.suffix], &after[..]].concat());
    let parts = match gap.middle {
        Some(middle) => [before, after, vec![middle]].concat(),
        None => [after, before].concat(),
    };
    let ids = [first, &files, &parts, &begun].concat();
    let shared = request.shared();
    *shared.prompt = Prompt::Ids(ids.into_iter().map(i64::from).collect());
    shared.stop_ids.extend(gap.ends.iter().map(|&id| i64::from(id)));
    Ok(())
}

/// Cuts the parts to this number of tokens together: first the beginning of the other files, then the far ends of the texts around the
/// gap, of which the one before it gets three quarters if both are long.
fn cut(files: &mut Vec<u32>, before: &mut Vec<u32>, after: &mut Vec<u32>, room: usize) {
    let around = before.len() + after.len();
    files.drain(..files.len() - files.len().min(room.saturating_sub(around)));
    if around > room {
        let least = room.saturating_sub(before.len()).max(room / 4);
        after.truncate(least);
        before.drain(..before.len() - before.len().min(room - after.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_cut_first_and_then_the_far_ends() {
        let check = |[files, before, after]: [u32; 3], room: usize, expect: [&[u32]; 3]| {
            let list = |count: u32| (0..count).collect::<Vec<_>>();
            let (mut files, mut before, mut after) = (list(files), list(before), list(after));
            cut(&mut files, &mut before, &mut after, room);
            assert_eq!([&files[..], &before, &after], expect, "{room}");
        };
        check([2, 2, 2], 6, [&[0, 1], &[0, 1], &[0, 1]]);
        check([2, 2, 2], 5, [&[1], &[0, 1], &[0, 1]]);
        check([9, 2, 2], 3, [&[], &[0, 1], &[0]]);
        check([0, 9, 9], 8, [&[], &[3, 4, 5, 6, 7, 8], &[0, 1]]);
        check([0, 9, 1], 8, [&[], &[2, 3, 4, 5, 6, 7, 8], &[0]]);
        check([0, 1, 9], 8, [&[], &[0], &[0, 1, 2, 3, 4, 5, 6]]);
        check([3, 3, 3], 0, [&[], &[], &[]]);
    }
}
