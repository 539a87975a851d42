//! The kinds of requests: their routes and bodies.

use serde_json::{Map, Value, json};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Completion,
    Chat,
    /// A completion by a model that fills masks.
    Diffusion,
    Score,
    Rerank,
    Classify,
    Decisions,
}

/// A field that only some servers know. It is left out where it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// The count of tokens with every chunk.
    EachCount,
    /// The count of tokens at the end of a stream.
    FinalCount,
    Stream,
    IgnoreEnd,
    MinTokens,
}

impl Feature {
    /// All of them; one that needs another comes before it.
    pub(super) const ALL: &[Self] =
        &[Self::EachCount, Self::FinalCount, Self::Stream, Self::IgnoreEnd, Self::MinTokens];

    /// The field's name, with which servers refuse it.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::EachCount => "continuous_usage_stats",
            Self::FinalCount => "stream_options",
            Self::Stream => "stream",
            Self::IgnoreEnd => "ignore_eos",
            Self::MinTokens => "min_tokens",
        }
    }
}

/// What the body of a request holds.
#[derive(Clone, Debug)]
pub(super) struct Content<'a> {
    pub(super) model: &'a str,
    /// A text for each prompt or item of the request: one of a generation, and of others one for the shared part, then the items.
    pub(super) texts: Vec<String>,
    pub(super) output_tokens: usize,
    pub(super) label_ids: &'a [usize],
    /// Steps of a diffusion; `None`: one per mask.
    pub(super) steps: Option<usize>,
    pub(super) features: &'a [Feature],
}

impl Kind {
    /// All kinds by name.
    pub(super) const ALL: &[(&str, Self)] = &[
        ("completion", Self::Completion),
        ("chat", Self::Chat),
        ("diffusion", Self::Diffusion),
        ("score", Self::Score),
        ("rerank", Self::Rerank),
        ("classify", Self::Classify),
        ("decisions", Self::Decisions),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Completion | Self::Diffusion => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
            Self::Score => "/v1/score",
            Self::Rerank => "/v1/rerank",
            Self::Classify => "/v1/classify",
            Self::Decisions => "/v1/decisions",
        }
    }

    /// Whether answers are tokens.
    pub(super) fn generates(self) -> bool {
        matches!(self, Self::Completion | Self::Chat | Self::Diffusion)
    }

    /// The body of a request. `replaced` are fields of the user's own.
    pub(super) fn body(self, content: &Content<'_>, replaced: Option<&Map<String, Value>>) -> String {
        let mut body = json!({ "model": content.model });
        let (first, items) =
            content.texts.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let fields = match self {
            Self::Completion => json!({"prompt": first}),
            Self::Diffusion => match content.steps {
                Some(steps) => json!({"prompt": first, "steps": steps}),
                None => json!({"prompt": first}),
            },
            Self::Chat => json!({"messages": [{"role": "user", "content": first}]}),
            Self::Score => {
                json!({"query": first, "items": items, "label_token_ids": content.label_ids, "apply_softmax": true})
            }
            Self::Rerank => json!({"query": first, "documents": items}),
            Self::Classify => json!({"input": items, "classes": ["good", "bad"]}),
            Self::Decisions => {
                let question = |(index, text): (usize, &String)| json!({"type": "predicate", "name": format!("q{index}"), "instructions": text});
                json!({"input": first, "questions": items.iter().enumerate().map(question).collect::<Vec<_>>()})
            }
        };
        let mut extend = |fields: Value| {
            if let (Some(body), Value::Object(fields)) = (body.as_object_mut(), fields) {
                body.extend(fields);
            }
        };
        extend(fields);
        if self.generates() {
            extend(json!({"max_tokens": content.output_tokens, "temperature": 0}));
            let has = |feature| content.features.contains(&feature);
            if has(Feature::Stream) {
                extend(json!({"stream": true}));
            }
            if has(Feature::Stream) && has(Feature::FinalCount) {
                let mut options = json!({"include_usage": true});
                if has(Feature::EachCount) {
                    options["continuous_usage_stats"] = true.into();
                }
                extend(json!({"stream_options": options}));
            }
            if has(Feature::IgnoreEnd) {
                extend(json!({"ignore_eos": true}));
            }
            if has(Feature::MinTokens) {
                extend(json!({"min_tokens": content.output_tokens}));
            }
        }
        if let Some(replaced) = replaced {
            extend(Value::Object(replaced.clone()));
        }
        body.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(kind: Kind, features: &[Feature], replaced: &Value) -> Value {
        let texts = ["a", "b", "c"].map(str::to_owned).to_vec();
        let content =
            Content { model: "m", texts, output_tokens: 7, label_ids: &[3, 4], steps: Some(5), features };
        serde_json::from_str(&kind.body(&content, replaced.as_object())).unwrap()
    }

    #[test]
    fn bodies_are_those_of_the_routes() {
        let plain = |kind| body(kind, &[], &Value::Null);
        assert_eq!(
            plain(Kind::Completion),
            json!({"model": "m", "prompt": "a", "max_tokens": 7, "temperature": 0})
        );
        let diffusion = json!({"model": "m", "prompt": "a", "max_tokens": 7, "temperature": 0, "steps": 5});
        assert_eq!(plain(Kind::Diffusion), diffusion);
        assert_eq!(plain(Kind::Chat)["messages"], json!([{"role": "user", "content": "a"}]));
        let score = json!({"model": "m", "query": "a", "items": ["b", "c"], "label_token_ids": [3, 4], "apply_softmax": true});
        assert_eq!(plain(Kind::Score), score);
        assert_eq!(plain(Kind::Rerank), json!({"model": "m", "query": "a", "documents": ["b", "c"]}));
        assert_eq!(
            plain(Kind::Classify),
            json!({"model": "m", "input": ["b", "c"], "classes": ["good", "bad"]})
        );
        assert_eq!(plain(Kind::Decisions)["questions"][1]["instructions"], "c");
    }

    #[test]
    fn fields_that_few_servers_know_can_be_left_out() {
        let all = body(Kind::Chat, Feature::ALL, &Value::Null);
        assert_eq!(all["stream_options"], json!({"include_usage": true, "continuous_usage_stats": true}));
        assert_eq!(
            (&all["stream"], &all["ignore_eos"], &all["min_tokens"]),
            (&true.into(), &true.into(), &7.into())
        );
        // The count comes after every pass; events of the canvas would add their reading to what is measured.
        assert_eq!(
            body(Kind::Diffusion, Feature::ALL, &Value::Null)["stream_options"],
            all["stream_options"]
        );
        let whole = body(Kind::Chat, &[Feature::FinalCount, Feature::EachCount], &Value::Null);
        assert!(whole.get("stream_options").is_none() && whole.get("stream").is_none());
        let own = body(Kind::Completion, &[], &json!({"max_tokens": 3, "prompt": "x", "logprobs": 1}));
        assert_eq!(
            own,
            json!({"model": "m", "prompt": "x", "max_tokens": 3, "temperature": 0, "logprobs": 1})
        );
    }
}
