//! The tokens after which generation ends. Files rarely list all of them, so most are known by their name.

use super::GgufVocabulary;
use super::kind::Kind;
use hashbrown::HashMap;

/// Tokens that end a turn, a message or a text.
const ENDS: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Tokens of texts with a gap, in which generation ends at padding, at the next repository and at the next file. The first
/// name that exists counts.
const PADDINGS: [&str; 5] = ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
const REPOSITORIES: [&str; 5] = ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
const FILES: [&str; 1] = ["<|file_sep|>"];

/// The ids after which generation ends, ascending. `eos` is the id of EOS, also if it is a default.
///
/// Unlike in llama.cpp, a normal token `</s>` does not count, because it is HTML (in Qwen 2 and Gemma 4).
pub(super) fn end_ids(
    vocabulary: &GgufVocabulary,
    eos: Option<u32>,
    kinds: &[Kind],
    names: &HashMap<&str, u32>,
) -> Vec<u32> {
    let special = &vocabulary.special;
    let id = |name: &&str| names.get(*name).copied();
    let first = |given: Option<u32>, known: &[&str]| given.or_else(|| known.iter().find_map(id));
    let is_html = |id: &u32| names.get("</s>") == Some(id) && kinds.get(*id as usize) == Some(&Kind::Normal);
    let mut ends: Vec<u32> = ENDS.iter().filter_map(id).filter(|id| !is_html(id)).collect();
    ends.extend(special.eot);
    ends.extend(special.eom);
    ends.extend(first(special.fim_pad, &PADDINGS));
    ends.extend(first(special.fim_rep, &REPOSITORIES));
    ends.extend(first(special.fim_sep, &FILES));
    let has = |name: &str| id(&name).is_some();
    // There, `<|end|>` ends a part of an answer.
    let parted =
        has("<|call|>") && has("<|return|>") || (has("<|call|>") || has("<|calls|>")) && has("<|flush|>");
    let part = id(&"<|end|>").filter(|_| parted);
    ends.retain(|id| Some(*id) != part);
    ends.extend(eos);
    ends.sort_unstable();
    ends.dedup();
    ends
}
