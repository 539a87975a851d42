//! The template and the answers with which a model was trained to rerank, if its files say so: Qwen3-Reranker.
//!
//! Its `config.json` is that of any Qwen3. What tells it apart: a cross-encoder of sentence-transformers that compares the logits of two
//! tokens (`LogitScore`), the name of the model, or in a GGUF file a chat template of the name `rerank`. Models that others trained from
//! it have other names, and keep the default template.

use std::path::Path;

use redline_models::ModelError;
use redline_models::sentence::{self, LogitScore};
use redline_tokenizer::GgufVocabulary;

use crate::request::{Label, RerankRequest};

/// How a model was trained to rerank.
#[derive(Clone, Debug, PartialEq)]
pub struct RerankPreset {
    /// A text with `{query}` and `{document}` once each.
    pub template: String,
    /// What the model writes for a relevant document.
    pub yes: Label,
    /// What it writes for an irrelevant one.
    pub no: Label,
    /// Where the template comes from, for a message.
    pub source: String,
}

/// The template of Qwen3-Reranker (its model card), around the instruction.
const QWEN3: [&str; 2] = [
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the \
     answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: ",
    "\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
];
/// The instruction that it was trained with most.
const INSTRUCTION: &str = "Given a web search query, retrieve relevant passages that answer the query";
/// Names of its checkpoints begin so.
const NAME: &str = "Qwen3-Reranker";
/// Architectures of its checkpoints, as published and with a classifier in place of the head.
const ARCHITECTURES: [&str; 2] = ["Qwen3ForCausalLM", "Qwen3ForSequenceClassification"];
/// Key of the template in a GGUF file.
const TEMPLATE_NAME: &str = "rerank";

impl RerankPreset {
    fn new(template: String, source: String) -> Self {
        let text = |text: &str| Label::Text(text.to_owned());
        Self { template, yes: text("yes"), no: text("no"), source }
    }

    /// Puts the preset into a request without a template of its own. Labels are replaced if they are the defaults and the model writes
    /// some.
    pub(super) fn complete(&self, request: &mut RerankRequest, writes: bool) {
        if request.options.template.is_some() {
            return;
        }
        request.options.template = Some(self.template.clone());
        if writes {
            let plain = RerankRequest::new(String::new(), Vec::new());
            for (label, default, own) in
                [(&mut request.yes, plain.yes, &self.yes), (&mut request.no, plain.no, &self.no)]
            {
                if *label == default {
                    *label = own.clone();
                }
            }
        }
    }
}

/// The preset of a model in a directory.
pub(crate) fn of_directory(dir: &Path, architecture: &str) -> Result<Option<RerankPreset>, ModelError> {
    if !ARCHITECTURES.contains(&architecture) {
        return Ok(None);
    }
    let preset =
        |instruction: &str, source: &str| RerankPreset::new(QWEN3.join(instruction), format!("`{source}`"));
    if let Some(LogitScore { yes, no, prompt }) = sentence::logit_score(dir)? {
        let id = |id| Label::Ids(vec![i64::from(id)]);
        // Braces would be placeholders of the template.
        let instruction =
            prompt.as_deref().map(str::trim).filter(|it| !it.is_empty() && !it.contains(['{', '}']));
        let preset = preset(instruction.unwrap_or(INSTRUCTION), sentence::MODULES);
        return Ok(Some(RerankPreset { yes: id(yes), no: id(no), ..preset }));
    }
    Ok(name(dir).map(|name| preset(INSTRUCTION, &name)))
}

/// The preset that a GGUF file names.
pub(crate) fn of_gguf(vocabulary: &GgufVocabulary) -> Option<RerankPreset> {
    let template = vocabulary.chat_templates.get(TEMPLATE_NAME)?;
    let once = |name: &str| template.matches(name).count() == 1;
    let source = "`tokenizer.chat_template.rerank`".to_owned();
    ["{query}", "{document}"].into_iter().all(once).then(|| RerankPreset::new(template.clone(), source))
}

/// The name of a checkpoint of Qwen3-Reranker: that of the directory, or of the model in the cache of the hub.
fn name(dir: &Path) -> Option<String> {
    let is_one = |name: &&str| name.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME));
    let own = dir.file_name().and_then(|name| name.to_str());
    // models--ORG--NAME/snapshots/COMMIT
    let cached = || {
        let snapshots = dir.parent().filter(|parent| parent.ends_with("snapshots"))?;
        snapshots.parent()?.file_name()?.to_str()?.strip_prefix("models--")?.rsplit("--").next()
    };
    own.filter(is_one).or_else(|| cached().filter(is_one)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_with_that_of_the_published_models() {
        let of = |path: &str| name(Path::new(path)).is_some();
        for path in [
            "/x/Qwen3-Reranker-0.6B",
            "qwen3-reranker-w8",
            "/c/models--Qwen--Qwen3-Reranker-4B/snapshots/0123",
            "/c/models--tomaarsen--Qwen3-Reranker-0.6B-seq-cls/snapshots/0123",
        ] {
            assert!(of(path), "{path}");
        }
        for path in [
            "/x/Qwen3-0.6B",
            "/x/my-Qwen3-Reranker",
            "/Qwen3-Reranker-0.6B/finetuned",
            "/c/models--Qwen--Qwen3-Embedding-0.6B/snapshots/0123",
            "/Qwen3-Reranker/snapshots/0123",
            "/",
        ] {
            assert!(!of(path), "{path}");
        }
    }

    #[test]
    fn a_template_of_a_gguf_file_has_both_placeholders() {
        let of = |template: &str| {
            let chat_templates = [("rerank".to_owned(), template.to_owned())].into();
            of_gguf(&GgufVocabulary { chat_templates, ..GgufVocabulary::default() })
        };
        assert_eq!(
            of("{query} {document}:").map(|preset| preset.template).as_deref(),
            Some("{query} {document}:")
        );
        assert_eq!(of("{query} {query} {document}"), None);
        assert_eq!(of("{{ messages }}"), None);
        assert_eq!(of_gguf(&GgufVocabulary::default()), None);
    }
}
