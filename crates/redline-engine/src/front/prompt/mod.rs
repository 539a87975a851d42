//! Converts requests to token ids. Everything that can be refused is refused here, before anything runs.

mod windows;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use redline_settings::{Setting, hint};
use redline_tokenizer::{Beginning, Tokenizer};

use crate::answer::outcome::ItemError;
use crate::error::EngineError;
use crate::mode::score::prompts::{LabelLists, PromptIds, Tokens};
use crate::request::{Label, LongLabels, Prompt, ScoreRequest, Tokenization, Truncate};

pub(crate) use windows::{Window, Windows};

/// The limits and the tokenizer that requests are checked against.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub(crate) vocab: usize,
    pub(crate) context: usize,
    pub(crate) model: &'a str,
    pub(crate) tokenizer: Option<&'a Tokenizer>,
}

/// The query of a score request.
#[derive(Default)]
struct Query {
    /// The query's tokens, without special ones.
    ids: Vec<u32>,
    /// The tokenisation that every text beginning with the query shares.
    beginning: Beginning,
}

/// Maximum number of tokens in a label.
pub(crate) const LABEL_TOKENS: usize = 64;
/// Maximum number of offending ids that an error lists.
const LISTED: usize = 8;

impl Limits<'_> {
    /// The tokenizer; a model without one is an error.
    pub(crate) fn tokenizer(&self) -> Result<&Tokenizer, EngineError> {
        self.tokenizer.ok_or_else(|| EngineError::NoTokenizer(self.model.into()))
    }

    /// Token ids of a field, within the vocabulary.
    pub(super) fn ids(&self, field: &'static str, ids: &[i64]) -> Result<Vec<u32>, EngineError> {
        self.ids_of(field, format_args!("{field}"), ids)
    }

    /// Token ids of a part of a field, within the vocabulary.
    pub(in crate::front) fn ids_of(
        &self,
        field: &'static str,
        part: fmt::Arguments<'_>,
        ids: &[i64],
    ) -> Result<Vec<u32>, EngineError> {
        let vocab = self.vocab;
        let bad: Vec<String> =
            ids.iter().filter(|&&id| id < 0 || id as u64 >= vocab as u64).map(i64::to_string).collect();
        if bad.is_empty() {
            return Ok(ids.iter().map(|&id| id as u32).collect());
        }
        let (count, more) = (bad.len(), if bad.len() > LISTED { ", ..." } else { "" });
        let fact = format!(
            "{part}: {count} token id{} outside 0..{vocab}: {}{more}",
            if count == 1 { "" } else { "s" },
            bad[..count.min(LISTED)].join(", ")
        );
        let hint = format!("this model's vocabulary has {vocab} entries, special tokens included");
        Err(EngineError::field(field, fact, hint))
    }

    /// Tokenises a text. With `add_special_tokens`, the tokenizer's special tokens are put around it; those at the front appear
    /// exactly once.
    pub(crate) fn text(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, EngineError> {
        let tokenizer = self.tokenizer()?;
        let ids = tokenizer.encode(text, add_special_tokens)?;
        Ok(if add_special_tokens { with_prefix_once(ids, tokenizer.prefix_ids()) } else { ids })
    }

    /// Token ids of a prompt for generation; with `most`, at most this number of the last ones, and no more than fit.
    pub(crate) fn prompt(
        &self,
        prompt: &Prompt,
        most: Option<usize>,
        new_tokens: usize,
    ) -> Result<Vec<u32>, EngineError> {
        let mut ids = match prompt {
            Prompt::Text(text) => self.text(text, true)?,
            Prompt::Formatted(text) => self.text(text, false)?,
            Prompt::Ids(ids) => self.ids("prompt", ids)?,
        };
        self.check_ids("the prompt", &ids)?;
        if ids.is_empty() {
            return Err(EngineError::request(
                "the prompt has 0 tokens",
                "give at least one token to continue from",
            ));
        }
        if let Some(most) = most {
            let fits = self.context.saturating_sub(new_tokens).max(1);
            ids.drain(..ids.len().saturating_sub(most.min(fits)));
        }
        let (have, context) = (ids.len(), self.context);
        if have.saturating_add(new_tokens) > context {
            let hint = if have < context {
                hint!["at most ", Setting::MaxNewTokens.to(context - have), " fits"]
            } else {
                format!("shorten the prompt to at most {} tokens", context.saturating_sub(1)).into()
            };
            let fact = format!(
                "the prompt of {have} tokens and {new_tokens} new ones exceed the context of {context}"
            );
            return Err(EngineError::request(fact, hint));
        }
        Ok(ids)
    }

    /// Checks ids from the tokenizer, which may know more ids than the model has rows.
    pub(in crate::front) fn check_ids(&self, what: &str, ids: &[u32]) -> Result<(), EngineError> {
        match ids.iter().find(|&&id| id as usize >= self.vocab) {
            None => Ok(()),
            Some(id) => Err(EngineError::request(
                format!("{what} contains token id {id}, but the model has {} rows", self.vocab),
                "the tokenizer belongs to another model",
            )),
        }
    }

    /// The tokens of each label. A text must be a single token unless `long` allows more.
    pub(crate) fn labels(&self, labels: &[Label], long: LongLabels) -> Result<Vec<Vec<u32>>, EngineError> {
        if labels.is_empty() {
            return Err(EngineError::request(
                "there are 0 labels",
                hint!["give at least one of ", Setting::Labels],
            ));
        }
        let numbers = labels.iter().filter_map(|l| if let Label::Ids(ids) = l { Some(ids) } else { None });
        self.ids("labels", &numbers.flatten().copied().collect::<Vec<_>>())?;
        labels
            .iter()
            .map(|label| match label {
                Label::Ids(ids) => {
                    let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
                    self.label(&format!("{ids:?}"), ids, long)
                }
                Label::Text(text) => {
                    let ids = self.tokenizer()?.encode(text, false)?;
                    self.label(&format!("{text:?}"), ids, long)
                }
            })
            .collect()
    }

    /// The tokens of what follows a label.
    pub(crate) fn label_end(&self, end: &Label) -> Result<Vec<u32>, EngineError> {
        let mut ids = self.labels(std::slice::from_ref(end), LongLabels::Sum)?;
        Ok(ids.pop().unwrap_or_default())
    }

    /// The number by which the log-probability of a label with these tokens, its end included, is divided.
    fn divisor(&self, tokens: &[u32], long: LongLabels) -> Result<f64, EngineError> {
        Ok(match long {
            LongLabels::Refuse | LongLabels::Sum => 1.0,
            LongLabels::Mean => tokens.len() as f64,
            // Special tokens count as they are written; some have no text.
            LongLabels::Bytes => self.tokenizer()?.decode(tokens, false)?.len().max(1) as f64,
        })
    }

    /// Builds the lists of a score request from its labels, list by list.
    fn with_ends(
        &self,
        request: &ScoreRequest,
        mut lists: Vec<Vec<Vec<u32>>>,
        of_item: Option<Vec<usize>>,
    ) -> Result<LabelLists, EngineError> {
        let end = request.label_end.as_ref().map(|end| self.label_end(end)).transpose()?.unwrap_or_default();
        let mut divisors = Vec::with_capacity(lists.len());
        for labels in &mut lists {
            for label in labels.iter_mut() {
                label.extend(&end);
            }
            let divisor = |label: &Vec<u32>| self.divisor(label, request.long_labels);
            divisors.push(labels.iter().map(divisor).collect::<Result<_, _>>()?);
        }
        Ok(LabelLists { lists, divisors, end_tokens: end.len(), of_item })
    }

    /// The lists of labels of a score request, and the list that each item uses.
    pub(crate) fn label_lists(&self, request: &ScoreRequest) -> Result<LabelLists, EngineError> {
        let Some(lists) = &request.item_labels else {
            let labels = self.labels(&request.labels, request.long_labels);
            return self.with_ends(request, vec![labels.map_err(|error| error.of_field("labels"))?], None);
        };
        if !request.labels.is_empty() {
            let fact = format!("{} labels for all items, and labels of each item", request.labels.len());
            return Err(EngineError::request(fact, "give one or the other"));
        }
        if lists.len() != request.items.len() {
            let fact = format!("{} lists of labels for {} items", lists.len(), request.items.len());
            return Err(EngineError::request(fact, "give one list for each item"));
        }
        let mut distinct: Vec<&Vec<Label>> = Vec::new();
        let mut places: HashMap<&Vec<Label>, usize> = HashMap::new();
        let mut labels_of = Vec::with_capacity(lists.len());
        for list in lists {
            labels_of.push(*places.entry(list).or_insert_with(|| {
                distinct.push(list);
                distinct.len() - 1
            }));
        }
        let labels = distinct.iter().enumerate().map(|(place, list)| {
            let of_item = |fact: EngineError| match fact {
                EngineError::Request { fact, hint, field } => {
                    let item = labels_of.iter().position(|&of| of == place).unwrap_or(0);
                    EngineError::Request { fact: format!("item {item}: {fact}"), hint, field }
                }
                other => other,
            };
            self.labels(list, request.long_labels).map_err(of_item)
        });
        let lists = labels.collect::<Result<_, _>>()?;
        self.with_ends(request, lists, Some(labels_of))
    }

    /// Checks the tokens of one label. `name` is used in messages.
    fn label(&self, name: &str, ids: Vec<u32>, long: LongLabels) -> Result<Vec<u32>, EngineError> {
        let fact = format!("label {name} is {} token{}", ids.len(), if ids.len() == 1 { "" } else { "s" });
        match ids.len() {
            0 => Err(EngineError::request(fact, "a label must be at least one token")),
            1 => self.check_ids(&format!("label {name}"), &ids).map(|()| ids),
            n if n > LABEL_TOKENS && long != LongLabels::Refuse => {
                let hint = format!("a label has at most {LABEL_TOKENS} tokens");
                Err(EngineError::request(format!("a label is {n} tokens"), hint))
            }
            _ if long == LongLabels::Refuse => {
                let parts = ids
                    .iter()
                    .take(LISTED)
                    .map(|&id| self.named(id))
                    .collect::<Result<Vec<_>, _>>()?
                    .join(" ");
                let sum = Setting::LongLabels.to("sum");
                let rule = "a label must be one token; a leading space often makes it one, and ";
                let hint = hint![rule, sum, " takes more"];
                Err(EngineError::request(format!("{fact}: {parts}"), hint))
            }
            _ => self.check_ids(&format!("label {name}"), &ids).map(|()| ids),
        }
    }

    /// A token as shown in messages. A model may have rows for which its tokenizer has no tokens.
    fn named(&self, id: u32) -> Result<String, EngineError> {
        Ok(match self.tokenizer.filter(|tokenizer| tokenizer.token(id).is_some()) {
            Some(tokenizer) => format!("{:?} ({id})", tokenizer.token_text(id)?),
            None => id.to_string(),
        })
    }

    /// All prompts of a score request, in the order of the items.
    pub(crate) fn items(
        &self,
        request: &ScoreRequest,
    ) -> Result<Vec<Result<Tokens, ItemError>>, EngineError> {
        for (index, item) in request.items.iter().enumerate() {
            if item.is_text() != request.query.is_text() {
                let kind = |p: &Prompt| if p.is_text() { "text" } else { "token ids" };
                let fact =
                    format!("the query is {}, but item {index} is {}", kind(&request.query), kind(item));
                return Err(EngineError::request(
                    fact,
                    "give query and all items either as text or as token ids",
                ));
            }
        }
        if request.item_first && matches!(request.query, Prompt::Formatted(_)) {
            let hint = "leave out `item_first`";
            return Err(EngineError::request("items continue a conversation, so they follow it", hint));
        }
        let query = self.query(request)?;
        let mut prompts = Vec::with_capacity(request.items.len());
        let mut stem = None;
        for (index, item) in request.items.iter().enumerate() {
            match self.item(request, &query, &mut stem, index, item) {
                Ok(tokens) => prompts.push(Ok(tokens)),
                Err(e) if request.item_errors => {
                    prompts.push(Err(ItemError { index, message: e.to_string() }));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(prompts)
    }

    fn query(&self, request: &ScoreRequest) -> Result<Query, EngineError> {
        match &request.query {
            Prompt::Text(text) | Prompt::Formatted(text) if !request.items.is_empty() => {
                let tokenizer = self.tokenizer()?;
                let beginning =
                    if request.item_first { Beginning::default() } else { tokenizer.begin(text)? };
                Ok(Query { ids: tokenizer.encode_after(&beginning, text, false)?, beginning })
            }
            Prompt::Text(_) | Prompt::Formatted(_) => Ok(Query::default()),
            Prompt::Ids(ids) => {
                let ids = self.ids("query", ids)?;
                Ok(Query { ids, ..Query::default() })
            }
        }
    }

    fn item(
        &self,
        request: &ScoreRequest,
        query: &Query,
        stem: &mut Option<Arc<[u32]>>,
        index: usize,
        item: &Prompt,
    ) -> Result<Tokens, EngineError> {
        let (ids, boundary_mismatch) = match (&request.query, item) {
            (_, Prompt::Ids(ids)) => {
                let ids = self.ids_of("items", format_args!("item {index}"), ids)?;
                let both = if request.item_first { [&ids[..], &query.ids] } else { [&query.ids[..], &ids] };
                (both.concat(), None)
            }
            // Mixed kinds were refused earlier.
            (Prompt::Ids(_), _) => (Vec::new(), None),
            (
                before @ (Prompt::Text(start) | Prompt::Formatted(start)),
                Prompt::Text(text) | Prompt::Formatted(text),
            ) => {
                let adds_special = matches!(before, Prompt::Text(_));
                let separate = self.separate(&query.ids, text, request.item_first, adds_special)?;
                let joined =
                    if request.item_first { format!("{text}{start}") } else { format!("{start}{text}") };
                let tokenizer = self.tokenizer()?;
                let mut concat = tokenizer.encode_after(&query.beginning, &joined, adds_special)?;
                if adds_special {
                    concat = with_prefix_once(concat, tokenizer.prefix_ids());
                }
                let mismatch = concat != separate;
                let ids = if request.tokenization == Tokenization::Concat { concat } else { separate };
                (ids, Some(mismatch))
            }
        };
        self.check_ids(&format!("item {index}"), &ids)?;
        let (ids, truncated) = self.fit(item.is_text(), request.truncate, index, ids)?;
        Ok(Tokens { ids: PromptIds::new(stem, ids), truncated, boundary_mismatch })
    }

    /// Tokenises query and item separately, with special tokens around the whole if they are to be added.
    fn separate(
        &self,
        query: &[u32],
        item: &str,
        item_first: bool,
        adds_special: bool,
    ) -> Result<Vec<u32>, EngineError> {
        let tokenizer = self.tokenizer()?;
        let item = tokenizer.encode(item, false)?;
        let (first, second) = if item_first { (&item[..], query) } else { (query, &item[..]) };
        let both = [first, second].concat();
        if !adds_special {
            return Ok(both);
        }
        let prefix = tokenizer.prefix_ids();
        let prefix = if both.starts_with(prefix) { &[][..] } else { prefix };
        Ok([prefix, &both, tokenizer.suffix_ids()].concat())
    }

    /// Number of special tokens that the tokenizer put before a text and after it.
    pub(in crate::front) fn special_ends(&self, ids: &[u32]) -> (usize, usize) {
        let Some(tokenizer) = self.tokenizer else { return (0, 0) };
        let (prefix, suffix) = (tokenizer.prefix_ids(), tokenizer.suffix_ids());
        let count = |there: bool, part: &[u32]| if there { part.len() } else { 0 };
        (count(ids.starts_with(prefix), prefix), count(ids.ends_with(suffix), suffix))
    }

    fn fit(
        &self,
        is_text: bool,
        truncate: Option<Truncate>,
        index: usize,
        mut ids: Vec<u32>,
    ) -> Result<(Vec<u32>, bool), EngineError> {
        let (have, context) = (ids.len(), self.context);
        if have == 0 {
            return Err(EngineError::request(
                format!("item {index}: query and item have 0 tokens together"),
                "give at least one token",
            ));
        }
        if have <= context {
            return Ok((ids, false));
        }
        match truncate {
            None => Err(EngineError::request(
                format!("item {index}: {have} tokens exceed the context of {context}"),
                hint!["shorten it, or choose an end to cut with ", Setting::Truncate.to("left|right")],
            )),
            Some(end) => {
                // Special tokens around a text stay; tokens are cut between them.
                let (front, back) = if is_text { self.special_ends(&ids) } else { (0, 0) };
                let surplus = have - context;
                let room = have.saturating_sub(front + back);
                let (front, back) = if room < surplus { (0, 0) } else { (front, back) };
                match end {
                    Truncate::Left => drop(ids.drain(front..front + surplus)),
                    Truncate::Right => drop(ids.drain(have - back - surplus..have - back)),
                }
                Ok((ids, true))
            }
        }
    }
}

/// Removes a prefix of special tokens that the text itself contains after the tokenizer's own.
fn with_prefix_once(mut ids: Vec<u32>, prefix: &[u32]) -> Vec<u32> {
    if ids.starts_with(prefix) && ids[prefix.len()..].starts_with(prefix) {
        ids.drain(..prefix.len());
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three letters and `ab`. Two special tokens stand before a text, and one after it.
    const TOKENIZER: &str = r#"{
        "version": "1.0",
        "added_tokens": [
            {"id": 0, "content": "<s>", "special": true},
            {"id": 1, "content": "<t>", "special": true},
            {"id": 2, "content": "</s>", "special": true}
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}],
            "special_tokens": {"<s>": {"ids": [0, 1]}, "</s>": {"ids": [2]}}
        },
        "decoder": {"type": "ByteLevel"},
        "model": {
            "type": "BPE",
            "vocab": {"<s>": 0, "<t>": 1, "</s>": 2, "a": 3, "b": 4, "c": 5, "ab": 6},
            "merges": ["a b"]
        }
    }"#;

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_bytes("tokenizer.json", TOKENIZER.as_bytes()).unwrap()
    }

    /// The limits of a model with one row for each token.
    fn limits(tokenizer: &Tokenizer, context: usize) -> Limits<'_> {
        Limits { vocab: 7, context, model: "tiny", tokenizer: Some(tokenizer) }
    }

    fn text(text: &str) -> Prompt {
        Prompt::Text(text.to_owned())
    }

    fn ids(ids: &[i64]) -> Prompt {
        Prompt::Ids(ids.to_vec())
    }

    /// A request for one item.
    fn asked(query: Prompt, item: Prompt) -> ScoreRequest {
        ScoreRequest::new(query, vec![item], Vec::new())
    }

    /// The tokens of the only item, and whether joining the texts moves a boundary.
    fn prompt(limits: Limits<'_>, request: &ScoreRequest) -> (Vec<u32>, Option<bool>) {
        let tokens = limits.items(request).unwrap().remove(0).unwrap();
        (tokens.ids.to_vec(), tokens.boundary_mismatch)
    }

    #[test]
    fn special_tokens_that_a_text_writes_itself_stand_once() {
        let tokenizer = tokenizer();
        let limits = limits(&tokenizer, 8);
        for written in ["ab", "<s><t>ab"] {
            assert_eq!(limits.text(written, true).unwrap(), [0, 1, 6, 2]);
            assert_eq!(limits.prompt(&text(written), None, 4).unwrap(), [0, 1, 6, 2]);
        }
    }

    #[test]
    fn tokens_of_separate_texts_have_the_order_and_the_special_tokens_of_joined_texts() {
        let tokenizer = tokenizer();
        let of = |query: &str, item: &str, item_first: bool, tokenization: Tokenization| {
            let request = ScoreRequest { item_first, tokenization, ..asked(text(query), text(item)) };
            prompt(limits(&tokenizer, 8), &request)
        };
        let cases = [
            ("a", "c", false, &[0, 1, 3, 5, 2][..], &[0, 1, 3, 5, 2]),
            ("a", "c", true, &[0, 1, 5, 3, 2], &[0, 1, 5, 3, 2]),
            ("a", "b", false, &[0, 1, 6, 2], &[0, 1, 3, 4, 2]),
            ("b", "a", true, &[0, 1, 6, 2], &[0, 1, 3, 4, 2]),
            ("<s><t>a", "c", false, &[0, 1, 3, 5, 2], &[0, 1, 3, 5, 2]),
        ];
        for (query, item, item_first, joined, separate) in cases {
            let moved = Some(joined != separate);
            let concat = of(query, item, item_first, Tokenization::Concat);
            assert_eq!(concat, (joined.to_vec(), moved), "{query}|{item}");
            let apart = of(query, item, item_first, Tokenization::Separate);
            assert_eq!(apart, (separate.to_vec(), moved), "{query}|{item}");
        }
    }

    #[test]
    fn no_special_tokens_are_added_to_a_formatted_text() {
        let tokenizer = tokenizer();
        let limits = limits(&tokenizer, 8);
        let formatted = |text: &str| Prompt::Formatted(text.to_owned());
        assert_eq!(limits.prompt(&formatted("<s>ab"), None, 1).unwrap(), [0, 6]);
        assert_eq!(limits.windows(&formatted("<s>ab"), 2).unwrap().iter().next().unwrap().tokens, [0, 6]);
        let of = |query: &str, item: &str, tokenization: Tokenization| {
            prompt(limits, &ScoreRequest { tokenization, ..asked(formatted(query), text(item)) })
        };
        assert_eq!(of("<s>a", "b", Tokenization::Concat), (vec![0, 6], Some(true)));
        assert_eq!(of("<s>a", "b", Tokenization::Separate), (vec![0, 3, 4], Some(true)));
        assert_eq!(of("<s><t><s><t>", "c", Tokenization::Concat), (vec![0, 1, 0, 1, 5], Some(false)));
        let before = ScoreRequest { item_first: true, ..asked(formatted("a"), text("b")) };
        let error = limits.items(&before).unwrap_err();
        assert_eq!(error.to_string(), "items continue a conversation, so they follow it");
    }

    #[test]
    fn special_tokens_survive_a_cut_of_a_text_if_there_is_room_for_them() {
        let tokenizer = tokenizer();
        let cut = |query: Prompt, item: Prompt, context: usize, end: Truncate| {
            let request = ScoreRequest { truncate: Some(end), ..asked(query, item) };
            prompt(limits(&tokenizer, context), &request).0
        };
        let of_text = |context, end| cut(text(""), text("ccc"), context, end);
        for end in [Truncate::Left, Truncate::Right] {
            assert_eq!(of_text(5, end), [0, 1, 5, 5, 2]);
            assert_eq!(of_text(3, end), [0, 1, 2], "nothing of the text is left");
        }
        assert_eq!(of_text(2, Truncate::Left), [5, 2]);
        assert_eq!(of_text(2, Truncate::Right), [0, 1]);
        // Ids are cut as they are, whatever they begin and end with.
        let of_ids = |end| cut(ids(&[0, 1]), ids(&[3, 4, 5, 2]), 4, end);
        assert_eq!(of_ids(Truncate::Left), [3, 4, 5, 2]);
        assert_eq!(of_ids(Truncate::Right), [0, 1, 3, 4]);
    }

    #[test]
    fn the_last_tokens_of_a_prompt_are_kept_as_far_as_they_fit() {
        let tokenizer = tokenizer();
        let limits = limits(&tokenizer, 8);
        let prompt = |most, new| limits.prompt(&text("abcc"), Some(most), new);
        assert_eq!(prompt(6, 1).unwrap(), [0, 1, 6, 5, 5, 2]);
        assert_eq!(prompt(2, 1).unwrap(), [5, 2]);
        assert_eq!(prompt(usize::MAX, 5).unwrap(), [5, 5, 2]);
        assert!(prompt(usize::MAX, 8).unwrap_err().to_string().contains("1 tokens and 8 new ones exceed"));
        let error = limits.prompt(&ids(&[]), Some(2), 1).unwrap_err();
        assert_eq!(error.to_string(), "the prompt has 0 tokens");
    }

    #[test]
    fn ids_from_the_tokenizer_are_checked_against_the_rows_of_the_model() {
        let tokenizer = tokenizer();
        let label = [Label::Text("ab".to_owned())];
        let narrow = Limits { vocab: 6, ..limits(&tokenizer, 8) };
        let refused = [
            narrow.prompt(&text("ab"), None, 1).unwrap_err(),
            narrow.labels(&label, LongLabels::Refuse).unwrap_err(),
            narrow.windows(&text("ab"), 4).unwrap_err(),
        ];
        for error in refused {
            assert!(error.to_string().contains("contains token id 6, but the model has 6 rows"), "{error}");
        }
        let wide = limits(&tokenizer, 8);
        assert_eq!(wide.prompt(&text("ab"), None, 1).unwrap(), [0, 1, 6, 2]);
        assert_eq!(wide.labels(&label, LongLabels::Refuse).unwrap(), [[6]]);
        assert_eq!(wide.windows(&text("ab"), 4).unwrap().iter().count(), 1);
    }

    #[test]
    fn a_window_has_room_for_the_special_tokens_and_one_more() {
        let tokenizer = tokenizer();
        let limits = limits(&tokenizer, 8);
        let error = limits.windows(&text("abc"), 2).unwrap_err();
        assert_eq!(error.to_string(), "a window of 2 tokens has nothing to predict");
        assert_eq!(error.hint().unwrap().to_string(), "give at least `window` = 3");
        let windows = limits.windows(&text("abc"), 3).unwrap();
        let windows: Vec<Vec<u32>> = windows.iter().map(|window| window.tokens).collect();
        assert_eq!(windows, [[0, 1, 6], [0, 1, 5]]);
    }

    #[test]
    fn the_hint_for_a_prompt_that_is_too_long_names_what_fits() {
        let tokenizer = tokenizer();
        let limits = limits(&tokenizer, 8);
        let hint = |tokens: usize, new: usize| {
            limits.prompt(&ids(&vec![3; tokens]), None, new).unwrap_err().hint().unwrap().to_string()
        };
        for tokens in [8, 9] {
            assert_eq!(hint(tokens, 1), "shorten the prompt to at most 7 tokens");
        }
        assert_eq!(hint(7, 2), "at most `max_new_tokens` = 1 fits");
        assert_eq!(limits.prompt(&ids(&[3; 7]), None, 1).unwrap().len(), 7);
    }

    #[test]
    fn a_refused_label_shows_its_first_tokens_with_the_texts_that_they_have() {
        let tokenizer = tokenizer();
        let padded = Limits { vocab: 9, ..limits(&tokenizer, 8) };
        let refused = |ids: &[i64]| {
            padded.labels(&[Label::Ids(ids.to_vec())], LongLabels::Refuse).unwrap_err().to_string()
        };
        assert_eq!(refused(&[3, 7, 6]), "label [3, 7, 6] is 3 tokens: \"a\" (3) 7 \"ab\" (6)");
        let eight = ["\"c\" (5)"; 8].join(" ");
        assert_eq!(refused(&[5; 9]), format!("label {:?} is 9 tokens: {eight}", [5; 9]));
    }

    #[test]
    fn a_fault_in_labels_is_told_of_the_first_item_that_has_them() {
        let tokenizer = tokenizer();
        let good = || vec![Label::Ids(vec![3])];
        let request = ScoreRequest {
            item_labels: Some(vec![good(), good(), Vec::new(), Vec::new()]),
            ..ScoreRequest::new(ids(&[3]), vec![ids(&[4]); 4], Vec::new())
        };
        let error = limits(&tokenizer, 8).label_lists(&request).unwrap_err();
        assert_eq!(error.to_string(), "item 2: there are 0 labels");
    }
}
