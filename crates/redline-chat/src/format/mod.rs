//! The formats in which families of models write calls: one file each, and one line in [`FAMILIES`].

mod gemma;
mod harmony;
mod json_calls;
mod mistral;
mod pythonic;
mod qwen_xml;

use std::fmt;
use std::sync::Arc;

pub(crate) use harmony::final_text;

use crate::buffer::{Marker, Needle, begin_of};
use crate::error::{ChatFormatError, Subject};
use crate::reader::CallReader;
use crate::rules::Rules;
use crate::tool::Tool;

/// Every family; of several that a template fits, the first.
const FAMILIES: &[&Family] = &[
    &harmony::HARMONY,
    &gemma::GEMMA_4,
    &gemma::FUNCTION_GEMMA,
    &qwen_xml::QWEN_XML,
    &pythonic::LFM2,
    &pythonic::OLMO_3,
    &mistral::MISTRAL_ARGS,
    &json_calls::MISTRAL,
    &json_calls::PHI_4,
    &json_calls::GRANITE,
    &json_calls::HERMES,
    &json_calls::LLAMA,
    &pythonic::LLAMA_4,
];

/// A format of calls.
pub(crate) struct Family {
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether a template is of this family.
    pub(crate) fits: fn(&Source<'_>) -> bool,
    /// What a call begins with; the reader begins before it.
    pub(crate) openers: &'static [&'static str],
    /// What an answer begins with that is a call as a whole.
    pub(crate) starts: &'static [&'static str],
    /// Other marks that the reader looks for.
    pub(crate) marks: &'static [&'static str],
    /// Reads calls from their mark on.
    pub(crate) reader: fn(&ChatFormat) -> Box<dyn CallReader>,
    /// Adds the rule `calls`: from the mark of the first call to the end of the last.
    pub(crate) rules: AddRules,
}

/// Adds the rules of calls to a grammar.
type AddRules = fn(&mut Rules<'_>) -> Result<(), ChatFormatError>;

/// What is known of a model when its format is looked for.
pub(crate) struct Source<'a> {
    template: &'a str,
    marker: &'a dyn Fn(&str) -> Option<Marker>,
}

impl Source<'_> {
    /// Whether the template has this text.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.template.contains(text)
    }

    /// Whether the vocabulary has this marker.
    pub(crate) fn has_token(&self, name: &str) -> bool {
        (self.marker)(name).is_some()
    }
}

/// Between which marks a model reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reasoning {
    /// The mark before it, such as `<think>`.
    pub open: String,
    /// The mark after it.
    pub close: String,
}

/// The marks of reasoning that templates have.
const REASONING: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"),
];

/// The format of a model's answers. Clones share it.
#[derive(Clone)]
pub struct ChatFormat(Arc<Inner>);

struct Inner {
    reasoning: Option<Reasoning>,
    family: Option<&'static Family>,
    /// The tokens of all marks that have one.
    markers: Vec<Marker>,
    /// All tokens that mark a place and are no part of a text.
    special: Vec<u32>,
}

impl fmt::Debug for ChatFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatFormat")
            .field("calls", &self.name())
            .field("reasoning", &self.0.reasoning)
            .finish()
    }
}

impl ChatFormat {
    /// The format of a model with this chat template. `marker` tells the token that is written like this and marks a place, if there is
    /// one; `special` are all tokens that texts leave out.
    pub fn of_template(template: &str, marker: &dyn Fn(&str) -> Option<Marker>, special: Vec<u32>) -> Self {
        let source = Source { template, marker };
        let family = FAMILIES.iter().find(|family| (family.fits)(&source)).copied();
        let of_marks =
            |(open, close): &&(&str, &str)| source.has(open.trim_end()) && source.has(close.trim_end());
        let reasoning = REASONING.iter().find(of_marks);
        let reasoning =
            reasoning.map(|(open, close)| Reasoning { open: (*open).to_owned(), close: (*close).to_owned() });
        let marks = family.map_or(&[][..], |family| family.openers).iter().copied();
        let marks = marks.chain(family.map_or(&[][..], |family| family.marks).iter().copied());
        let marks = marks.chain(family.map_or(&[][..], |family| family.starts).iter().copied());
        let marks = marks.chain(reasoning.iter().flat_map(|marks| [&*marks.open, &*marks.close]));
        // A mark may begin with a token, and go on as text.
        let of_mark = |mark: &str| marker(mark).or_else(|| marker(&mark[..=mark.find('>')?]));
        let mut markers: Vec<Marker> = marks.filter_map(of_mark).collect();
        markers.dedup();
        Self(Arc::new(Inner { reasoning, family, markers, special }))
    }

    /// The name of the format of calls, if the model has one.
    pub fn name(&self) -> Option<&'static str> {
        self.0.family.map(|family| family.name)
    }

    /// Between which marks the model reasons, if it does. Models whose calls have channels reason in one of them.
    pub fn reasoning(&self) -> Option<&Reasoning> {
        self.0.reasoning.as_ref()
    }

    /// Number of letters and digits in an id of a call: templates of some families take no other, and none before them.
    pub fn id_length(&self) -> Option<usize> {
        self.name().is_some_and(|name| name.starts_with("mistral")).then_some(9)
    }

    /// Whether answers have parts: calls, or reasoning.
    pub fn has_parts(&self) -> bool {
        self.0.family.is_some() || self.0.reasoning.is_some()
    }

    /// Whether all text of an answer is in channels.
    pub fn has_channels(&self) -> bool {
        self.name() == Some(harmony::HARMONY.name)
    }

    pub(crate) fn family(&self) -> Option<&'static Family> {
        self.0.family
    }

    /// What calls begin with.
    pub(crate) fn openers(&self) -> &'static [&'static str] {
        self.0.family.map_or(&[], |family| family.openers)
    }

    /// The token with which a mark begins, and the text after it.
    pub(crate) fn marker<'a>(&self, mark: &'a str) -> Option<(&Marker, &'a str)> {
        begin_of(mark, &self.0.markers)
    }

    /// A mark as it is looked for.
    pub(crate) fn needle(&self, mark: &str) -> Needle {
        self.marker(mark).map_or_else(|| Needle::text(mark), |(marker, rest)| Needle::of(marker, rest))
    }

    /// Rules of a grammar with the marks of this format.
    pub(crate) fn new_rules<'a>(&'a self, tools: &'a [Tool], parallel: bool) -> Rules<'a> {
        Rules::new(&self.0.markers, &self.0.special, tools, parallel)
    }

    /// The rules of calls, if the model has a format of them.
    pub(crate) fn rules(&self, rules: &mut Rules<'_>) -> Result<(), ChatFormatError> {
        let no_format = || ChatFormatError {
            fact: "the chat template of this model has no format of calls".to_owned(),
            subject: Subject::Demand,
            hint: "give `tool_choice` = \"auto\", or serve a model whose template has tools",
        };
        (self.family().ok_or_else(no_format)?.rules)(rules)
    }
}
