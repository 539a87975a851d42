//! Texts as models of late interaction read them, and how similar two of them are.

use std::sync::Arc;

use redline_models::sentence::{DOCUMENT, MultiVectorRules, QUERY};
use redline_settings::{Setting, Truncate, hint};
use redline_tokenizer::Tokenizer;

use super::Engine;
use super::encode::fitting;
use super::prompt::Limits;
use crate::answer::outcome::Encoded;
use crate::error::EngineError;
use crate::mode::encode::EncodeText;
use crate::request::Prompt;

impl Engine {
    /// The rules of a model that makes a vector for each token; refuses any other.
    pub(super) fn token_vector_rules(&self) -> Result<Arc<MultiVectorRules>, EngineError> {
        let rules = self.sentence.as_ref().and_then(|rules| rules.multi_vector.clone());
        rules.ok_or_else(|| {
            let fact = format!("`{}` makes no vectors of single tokens for late interaction", self.info.name);
            EngineError::request(fact, "take a model such as GTE-ModernColBERT or bge-m3")
        })
    }

    /// A text as a model of late interaction reads it, with the positions that get vectors. Token ids are used as they are.
    pub(super) fn token_vector_text(
        &self,
        place: (&str, usize),
        text: &Prompt,
        task: Option<&str>,
        truncate: Option<Truncate>,
    ) -> Result<EncodeText, EngineError> {
        let rules = &*self.token_vector_rules()?;
        let sentence = self.sentence.as_deref();
        let task = task.or(sentence.and_then(|rules| rules.default_prompt.as_deref()));
        let limits = self.encode_limits();
        let limits = Limits { context: limits.context.min(most_tokens(rules, task)), ..limits };
        let (noun, index) = place;
        let (mut ids, truncated) = match text {
            Prompt::Ids(ids) => {
                let ids = limits.ids_of("texts", format_args!("{noun} {index}"), ids)?;
                fitting(&limits, place, ids, (0, 0), truncate)?
            }
            Prompt::Text(text) | Prompt::Formatted(text) => {
                let own = task.and_then(|task| sentence?.prompts.get(task));
                let prompt = match (own, task) {
                    // Every such model knows these two.
                    (None, Some(QUERY | DOCUMENT)) => "",
                    _ => self.task_prompt(task)?,
                };
                let tokenizer = limits.tokenizer()?;
                let marker = task.and_then(|task| rules.markers.get(task));
                let (marker, before) = marker.map_or((None, ""), |marker| marker_of(tokenizer, marker));
                let text = format!("{before}{prompt}{text}");
                let text =
                    if sentence.is_some_and(|rules| rules.lower_case) { text.to_lowercase() } else { text };
                let mut ids = tokenizer.encode(&text, true)?;
                let (front, back) = limits.special_ends(&ids);
                ids.splice(front..front, marker);
                let around = (front + usize::from(marker.is_some()), back);
                fitting(&limits, place, ids, around, truncate)?
            }
        };
        let mut keys = None;
        if let (Some(QUERY), Some(expansion), true) = (task, &rules.expansion, text.is_text()) {
            let token = limits.tokenizer()?.id(&expansion.token).ok_or_else(|| {
                let fact = format!(
                    "the model fills queries up with `{}`, which its tokenizer does not know",
                    expansion.token
                );
                EngineError::request(fact, "take the tokenizer that the model was trained with")
            })?;
            let most = self.encode_limits().context;
            if expansion.length > most {
                let fact = format!(
                    "the model fills queries up to {} tokens, more than the maximum of {most}",
                    expansion.length
                );
                return Err(EngineError::request(fact, hint!["give it a larger ", Setting::MaxContext]));
            }
            keys = (!expansion.is_seen && ids.len() < expansion.length).then_some(ids.len());
            ids.resize(ids.len().max(expansion.length), token);
            self.check_keys(keys, ids.len())?;
        }
        self.check_fits(place, ids.len())?;
        let skips = rules.skipping.iter().any(|skipping| skipping == task.unwrap_or(DOCUMENT));
        let skipped: Vec<u32> = match limits.tokenizer() {
            Ok(tokenizer) if skips => rules.skipped.iter().filter_map(|word| tokenizer.id(word)).collect(),
            _ => Vec::new(),
        };
        let is_left_out = |at: &usize| rules.skips_first && *at == 0 || skips && skipped.contains(&ids[*at]);
        let with_vectors: Vec<usize> = (0..ids.len()).filter(|at| !is_left_out(at)).collect();
        if with_vectors.is_empty() {
            let fact = format!("{noun} {index}: none of its {} tokens gets a vector", ids.len());
            return Err(EngineError::request(fact, "give a text with other tokens"));
        }
        Ok(EncodeText { index, ids, second_text: None, keys, with_vectors, truncated })
    }

    /// Refuses rows that would see no key.
    fn check_keys(&self, keys: Option<usize>, tokens: usize) -> Result<(), EngineError> {
        let windows = self.spec.layers.iter().filter_map(|layer| layer.attention()?.window);
        match (keys, windows.min()) {
            (Some(keys), Some(window)) if tokens >= keys + window => {
                let fact = format!(
                    "a query of {keys} tokens is filled up to {tokens}, of which the last ones would see none in a window of {window}"
                );
                Err(EngineError::request(fact, "give a longer query"))
            }
            _ => Ok(()),
        }
    }
}

/// Most tokens of a text of a task.
fn most_tokens(rules: &MultiVectorRules, task: Option<&str>) -> usize {
    let own = task.and_then(|task| rules.lengths.get(task)).copied();
    match &rules.expansion {
        Some(expansion) if task == Some(QUERY) && expansion.is_fixed => expansion.length,
        Some(expansion) if task == Some(QUERY) => own.map_or(usize::MAX, |own| own.max(expansion.length)),
        _ => own.unwrap_or(usize::MAX),
    }
}

/// The token of a marker, if the tokenizer knows it or its first word, and what is left of it as text.
fn marker_of<'a>(tokenizer: &Tokenizer, marker: &'a str) -> (Option<u32>, &'a str) {
    let first_word = marker.split_whitespace().next().unwrap_or(marker);
    let known = [marker, first_word].into_iter().find_map(|part| Some((tokenizer.id(part)?, part.len())));
    match known {
        Some((id, length)) => (Some(id), &marker[length..]),
        None => (None, marker),
    }
}

/// How similar a document is to a query: the sum over the query's vectors of the largest product with any of the document's vectors
/// (MaxSim). Products are summed over the dimensions in ascending order, and so are the maxima.
pub fn max_sim(query: &Encoded, document: &Encoded) -> f32 {
    let queries = query.each_vector().len();
    let mut columns = vec![0f32; query.values.len()];
    for (i, vector) in query.each_vector().enumerate() {
        vector.iter().enumerate().for_each(|(d, x)| columns[d * queries + i] = *x);
    }
    let (mut largest, mut products) = (vec![f32::NEG_INFINITY; queries], vec![0f32; queries]);
    for vector in document.each_vector() {
        products.fill(0.0);
        for (column, y) in columns.chunks_exact(queries.max(1)).zip(vector) {
            products.iter_mut().zip(column).for_each(|(product, x)| *product += x * y);
        }
        largest.iter_mut().zip(&products).for_each(|(most, product)| *most = most.max(*product));
    }
    largest.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(values: &[f32], vectors: usize) -> Encoded {
        Encoded {
            values: values.to_vec(),
            indices: Vec::new(),
            vectors,
            prompt_tokens: vectors,
            truncated: false,
        }
    }

    #[test]
    fn each_vector_of_the_query_counts_once() {
        let query = vectors(&[1.0, 0.0, 0.0, 2.0], 2);
        let document = vectors(&[0.5, 0.25, -1.0, 3.0, 0.75, -1.0], 3);
        assert_eq!(max_sim(&query, &document), 0.75 + 6.0);
        assert_eq!(max_sim(&document, &query), 0.5 + 6.0 + 0.75);
        assert_eq!(max_sim(&query, &vectors(&[-1.0, -1.0], 1)), -3.0);
    }

    #[test]
    fn a_query_has_the_length_of_its_expansion() {
        let of = |is_fixed| MultiVectorRules {
            lengths: [(QUERY.to_owned(), 20), (DOCUMENT.to_owned(), 90)].into(),
            expansion: Some(redline_models::sentence::QueryExpansion {
                length: 32,
                is_fixed,
                is_seen: false,
                token: String::new(),
            }),
            ..MultiVectorRules::default()
        };
        assert_eq!(
            [Some(QUERY), Some(DOCUMENT), None].map(|task| most_tokens(&of(true), task)),
            [32, 90, usize::MAX]
        );
        assert_eq!(most_tokens(&of(false), Some(QUERY)), 32);
        let plain = MultiVectorRules { expansion: None, ..of(true) };
        assert_eq!(most_tokens(&plain, Some(QUERY)), 20);
    }
}
