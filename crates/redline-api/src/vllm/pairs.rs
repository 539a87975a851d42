//! `/score`, as vLLM has it: the relevance of a text to another.

use redline_engine::{RerankOutcome, RerankRequest, Truncate};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::head::AnswerHead;
use crate::json::cases::{case, cases, given};
use crate::json::fields::{count, refused, salt, timeout};
use crate::json::finite::Finite;
use crate::json::input::Strings;
use crate::json::limits::MAX_PAIRS;
use crate::json::shape;

/// Asks for the relevance of texts. Two lists are given under one of the pairs of names.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields)]
pub struct PairsBody {
    /// The model's name.
    pub model: Option<String>,
    /// The queries, with `documents` or `items`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub queries: Option<Strings>,
    /// The documents, with `queries`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub documents: Option<Strings>,
    /// The documents, with `queries`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub items: Option<Strings>,
    /// The queries, with `data_2`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub data_1: Option<Strings>,
    /// The documents, with `data_1`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub data_2: Option<Strings>,
    /// The queries, with `text_2`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub text_1: Option<Strings>,
    /// The documents, with `text_1`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub text_2: Option<Strings>,
    /// -1: documents that are too long are cut at their end. Nothing else is supported.
    #[schemars(range(min = -1, max = -1))]
    pub truncate_prompt_tokens: Option<i64>,
    /// `false`: scores are log-odds instead of probabilities.
    pub use_activation: Option<bool>,
    /// Only requests with the same salt share cached prefixes.
    #[schemars(with = "Option<shape::Salt>")]
    pub cache_salt: Option<String>,
    /// Time limit in seconds.
    #[schemars(with = "Option<shape::Seconds>")]
    pub timeout_s: Option<f64>,
}

/// Answer of `/score` in vLLM's form.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PairsAnswer {
    /// Identifies the answer.
    pub id: String,
    /// Always `list`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// One entry per pair.
    pub data: Vec<PairScore>,
    /// Token counts.
    pub usage: Usage,
}

/// The score of a pair.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PairScore {
    /// The index of the pair.
    pub index: usize,
    /// Always `score`.
    pub object: &'static str,
    /// The relevance.
    pub score: Finite<f32>,
}

/// One of four pairs of lists.
fn request_cases(schema: &mut Schema) {
    let all = ["queries", "documents", "items", "data_1", "data_2", "text_1", "text_2"];
    let sides = [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")];
    let side = |(left, right)| {
        let absent: Vec<&str> = all.into_iter().filter(|name| *name != left && *name != right).collect();
        case([(left, given()), (right, given())], &absent)
    };
    cases(schema, sides.map(side));
}

/// The keys that only this form has.
pub const KEYS: [&str; 6] = ["queries", "documents", "data_1", "data_2", "text_1", "text_2"];

/// The form of the answer.
#[derive(Clone, Copy, Debug)]
pub struct PairsForm {
    log_odds: bool,
}

/// Builds the engine's requests: one for each query, with the documents in their order.
pub fn request(body: PairsBody) -> Result<(Vec<RerankRequest>, PairsForm), ApiError> {
    let sides = [
        ("queries", "documents", &body.queries, &body.documents),
        ("queries", "items", &body.queries, &body.items),
        ("data_1", "data_2", &body.data_1, &body.data_2),
        ("text_1", "text_2", &body.text_1, &body.text_2),
    ];
    let given =
        [&body.queries, &body.documents, &body.items, &body.data_1, &body.data_2, &body.text_1, &body.text_2];
    let both = sides
        .into_iter()
        .find_map(|(left, right, one, other)| Some(((left, right), (one.as_ref()?, other.as_ref()?))));
    let Some(((left, right), (Strings(queries), Strings(documents)))) =
        both.filter(|_| given.into_iter().flatten().count() == 2)
    else {
        let names = sides.map(|(left, right, ..)| format!("`{left}` and `{right}`")).join(", ");
        let fact = "the texts are not given as one pair of lists";
        return Err(refused("queries", fact, format!("give two of these: {names}")));
    };
    count(left, queries.len(), 1..=MAX_PAIRS)?;
    count(right, documents.len(), 1..=MAX_PAIRS)?;
    let one_to_one = queries.len() == documents.len();
    if !one_to_one && queries.len() != 1 {
        let fact = format!("`{left}` has {} elements and `{right}` {}", queries.len(), documents.len());
        return Err(refused(right, fact, format!("give one element in `{left}`, or equally many in both")));
    }
    let truncate = match body.truncate_prompt_tokens {
        None => None,
        Some(-1) => Some(Truncate::Right),
        Some(tokens) => {
            let fact = format!("`truncate_prompt_tokens` is {tokens}");
            return Err(refused("truncate_prompt_tokens", fact, "give -1, for the length of the context"));
        }
    };
    let (cache_salt, timeout_s) = (salt(body.cache_salt)?, timeout(body.timeout_s)?);
    // Consecutive pairs of one query are one request, so that the query is computed once.
    let mut requests: Vec<RerankRequest> = Vec::new();
    let last = queries.len() - 1;
    for (at, document) in documents.iter().enumerate() {
        let query = &queries[at.min(last)];
        match requests.last_mut().filter(|request| request.query == *query) {
            Some(request) => request.documents.push(document.clone()),
            None => requests.push(RerankRequest::new(query.clone(), vec![document.clone()])),
        }
    }
    for request in &mut requests {
        request.options.truncate = truncate;
        request.options.cache_salt.clone_from(&cache_salt);
        request.options.timeout_s = timeout_s;
    }
    Ok((requests, PairsForm { log_odds: body.use_activation == Some(false) }))
}

/// Builds the answer from the outcomes of the requests.
pub fn answer(head: AnswerHead, form: PairsForm, outcomes: Vec<RerankOutcome>) -> PairsAnswer {
    let (mut data, mut usage) = (Vec::new(), Usage::default());
    for outcome in outcomes {
        let of = cost::usage(outcome.cost.usage);
        let cached = of.prompt_tokens_details.cached_tokens + usage.prompt_tokens_details.cached_tokens;
        usage = Usage::new(usage.prompt_tokens + of.prompt_tokens, 0, cached);
        let first = data.len();
        let mut ranked: Vec<_> = outcome.results.into_iter().flatten().collect();
        ranked.sort_by_key(|ranked| ranked.index);
        data.extend(ranked.into_iter().map(|ranked| PairScore {
            index: first + ranked.index,
            object: "score",
            score: Finite(if form.log_odds { ranked.log_odds } else { ranked.relevance }),
        }));
    }
    PairsAnswer { id: head.id, object: "list", created: head.created, model: head.model, data, usage }
}
