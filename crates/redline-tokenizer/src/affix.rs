//! The ids that a post-processor adds around every text.

use crate::{TokenizerError, json::form};
use serde_json::Value;

/// The ids before (BOS) and after (EOS) a text encoded with `special = true`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Affixes {
    pub(crate) prefix: Vec<u32>,
    pub(crate) suffix: Vec<u32>,
    /// One entry per processor that trims whitespace from offsets. `true` keeps a single space before the first
    /// token, because that space was added to the text.
    pub(crate) trims: Vec<bool>,
    /// What stands around two texts; `None` if the post-processor has no form for them that is known here.
    pub(crate) pair: Option<PairAffixes>,
}

/// The ids around two texts that are judged together: `before`, the first text, `between`, the second text, `after`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PairAffixes {
    /// The ids before the first text.
    pub before: Vec<u32>,
    /// The ids between the texts.
    pub between: Vec<u32>,
    /// The ids after the second text.
    pub after: Vec<u32>,
    /// Whether the second text is of token type 1, as the first is of type 0.
    pub has_types: bool,
    /// Number of ids of `between` that count as part of the first text.
    pub first_of_between: usize,
}

const KNOWN: &str = "`ByteLevel`, one of `TemplateProcessing`, `RobertaProcessing` and `BertProcessing`, and a `Sequence` of these";

impl Affixes {
    /// Reads the `post_processor` of a `tokenizer.json`, for one text and for two.
    pub(crate) fn from_json(place: &str, value: &Value) -> Result<Self, TokenizerError> {
        // Without a template, two texts follow each other.
        let pair = PairAffixes { has_types: true, ..PairAffixes::default() };
        let mut affixes = Self { pair: Some(pair), ..Self::default() };
        affixes.surround(place, value, &mut false)?;
        Ok(affixes)
    }

    /// Reads whether a processor trims offsets, and how. Both keys are required, as in the `tokenizers` crate.
    fn trim(&mut self, place: &str, value: &Value) -> Result<(), TokenizerError> {
        let flag = |name: &str| {
            let flag = value[name].as_bool();
            flag.ok_or_else(|| form(place, format!("`post_processor.{name}` is neither true nor false")))
        };
        let (trims, keeps_first) = (flag("trim_offsets")?, flag("add_prefix_space")?);
        self.trims.extend(trims.then_some(keeps_first));
        Ok(())
    }

    /// Adds the ids that one processor puts around the text. `added`: whether an earlier one has put ids there.
    fn surround(&mut self, place: &str, value: &Value, added: &mut bool) -> Result<(), TokenizerError> {
        let kind = match value {
            Value::Null => return Ok(()),
            _ => value["type"].as_str().unwrap_or("without a type"),
        };
        let unsupported = |found: &str| TokenizerError::Unsupported {
            place: place.to_owned(),
            part: "post-processor",
            found: found.to_owned(),
            known: KNOWN.to_owned(),
        };
        match kind {
            "ByteLevel" => self.trim(place, value),
            "Sequence" => {
                let list = value["processors"].as_array();
                let list = list.ok_or_else(|| form(place, "`post_processor.processors` is not a list"))?;
                list.iter().try_for_each(|processor| self.surround(place, processor, added))
            }
            // A second one would take the ids of the first for the text: the library gives it a list of parts.
            "TemplateProcessing" | "RobertaProcessing" | "BertProcessing" if *added => {
                Err(unsupported(&format!("second {kind}")))
            }
            "TemplateProcessing" => {
                *added = true;
                let (before, after) = template(place, value)?;
                self.prefix.extend(before);
                self.suffix.extend(after);
                self.pair = pair_template(place, value);
                Ok(())
            }
            "RobertaProcessing" | "BertProcessing" => {
                let id = |name: &str| {
                    let id = value[name][1].as_u64().and_then(|id| u32::try_from(id).ok());
                    id.ok_or_else(|| form(place, format!("`post_processor.{name}` is not a token and an id")))
                };
                *added = true;
                let (cls, sep) = (id("cls")?, id("sep")?);
                self.prefix.push(cls);
                self.suffix.push(sep);
                let has_types = kind == "BertProcessing";
                let between = if has_types { vec![sep] } else { vec![sep, sep] };
                let (before, after, first_of_between) = (vec![cls], vec![sep], between.len());
                self.pair = Some(PairAffixes { before, between, after, has_types, first_of_between });
                if kind == "RobertaProcessing" { self.trim(place, value) } else { Ok(()) }
            }
            _ => Err(unsupported(kind)),
        }
    }
}

/// The ids before and after the text `$A` in the template for one text.
fn template(place: &str, value: &Value) -> Result<(Vec<u32>, Vec<u32>), TokenizerError> {
    let single = value["single"].as_array();
    let single = single.ok_or_else(|| form(place, "`post_processor.single` is not a list"))?;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut texts = 0;
    for piece in single {
        if let Some(name) = piece["SpecialToken"]["id"].as_str() {
            let ids = special_ids(place, value, name)?;
            if texts == 0 { &mut before } else { &mut after }.extend(ids);
        } else if piece["Sequence"]["id"] == "A" {
            texts += 1;
        } else {
            let reason =
                format!("`post_processor.single` has a piece that is neither a token nor `A`: {piece}");
            return Err(form(place, reason));
        }
    }
    match texts {
        1 => Ok((before, after)),
        _ => Err(form(place, format!("`post_processor.single` has the text {texts} times instead of once"))),
    }
}

/// The ids in the template for two texts: the first one of token type 0, the second one of type 1 or of no type of its own. `None`
/// if it has another form.
fn pair_template(place: &str, value: &Value) -> Option<PairAffixes> {
    let mut pair = PairAffixes::default();
    let mut texts = 0;
    let mut before_types = Vec::new();
    for piece in value["pair"].as_array()? {
        if let Some(name) = piece["SpecialToken"]["id"].as_str() {
            let ids = special_ids(place, value, name).ok()?;
            if texts == 1 {
                before_types.extend(ids.iter().map(|_| piece["SpecialToken"]["type_id"].as_u64()));
            }
            [&mut pair.before, &mut pair.between, &mut pair.after][texts].extend(ids);
        } else {
            let expected = [("A", 0..=0), ("B", 0..=1)];
            let (name, types) = expected.get(texts)?;
            let text = &piece["Sequence"];
            let kind = text["type_id"].as_u64()?;
            if text["id"] != *name || !types.contains(&kind) {
                return None;
            }
            pair.has_types = kind == 1;
            texts += 1;
        }
    }
    pair.first_of_between = before_types.iter().take_while(|kind| **kind == Some(0)).count();
    (texts == 2).then_some(pair)
}

fn special_ids(place: &str, value: &Value, name: &str) -> Result<Vec<u32>, TokenizerError> {
    let ids = value["special_tokens"][name]["ids"].as_array();
    let ids = ids.ok_or_else(|| form(place, format!("`post_processor.special_tokens` lacks `{name}`")))?;
    let number = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
    ids.iter()
        .map(|id| {
            let reason =
                || format!("`post_processor.special_tokens` gives `{name}` the id {id}, not a number");
            number(id).ok_or_else(|| form(place, reason()))
        })
        .collect()
}
