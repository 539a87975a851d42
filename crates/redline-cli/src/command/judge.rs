//! Shared parts of `classify` and `rerank`: flags, chat templates, input texts, and CSV.

use std::path::Path;

use clap::Args;
use redline_api::jsonl::judge::ChatFrames;
use redline_api::model::LoadedModel;
use redline_engine::{JudgeOptions, Label, LabelEnd, LongLabels, Truncate};

use super::Context;
use super::template::ChatFlags;
use crate::adapters::AdapterFlags;
use crate::message::{self, Failure};
use crate::model::{MachineFlags, ModelName};
use crate::prefix_cache::PrefixCacheFlags;
use crate::{text, value};

/// Keys of a line of `--jsonl` that both have, for the help.
pub(super) const KEYS: &str = "threshold, template, length, label_end, end, calibrate, truncate, item_errors, cache_salt, adapter (a name, or a list of names and of objects with name and scale), timeout_s, \
     receipt (true, or an object with layers). An \
     absent key takes the value of the command's flag. Up to 64 lines are run together; answers come in the order of the lines.";

/// How labels are scored, for the help.
pub(super) const LABELS: &str = "The score of a label is the probability that the model writes it after the prompt, divided so that all \
     labels add up to 1. A label of several tokens is less probable than a shorter one only because it is longer: --length mean takes \
     the geometric mean per token, --length bytes per byte, and --calibrate divides by the probabilities that a text without content \
     gets. Where one label begins another (`neutral`, `neutral positive`), the end of the labels is scored too, or the shorter label \
     would be preferred.";

/// Flags of both.
#[derive(Debug, Args)]
pub(super) struct JudgeFlags {
    /// The template into which every text is put; default: one for models that follow instructions (see below). With --chat: the
    /// user's message
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// How a label of several tokens is scored: by the probability of all its tokens (sum), or by the geometric mean per token (mean)
    /// or per byte (bytes)
    #[arg(long, value_parser = length, default_value = "sum", value_name = "HOW")]
    length: LongLabels,
    /// Score the end of every label with it: always, never, or if one label begins another (auto)
    #[arg(long, value_parser = value::choice::<LabelEnd>(), default_value_t, value_name = "WHEN")]
    label_end: LabelEnd,
    /// What the model writes after a label; default: with --chat what ends an answer in the template, else the end-of-text token
    #[arg(long, value_name = "TEXT")]
    end: Option<String>,
    /// Divide the probabilities by those for a text without content, `N/A` unless given, and normalise them again
    #[arg(long, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = JudgeOptions::CONTENT_FREE)]
    calibrate: Option<String>,
    /// Which end of a text is cut if its prompt exceeds the context; without this flag, such a text is an error
    #[arg(long, value_parser = value::choice::<Truncate>(), value_name = "END")]
    truncate: Option<Truncate>,
    /// Report a text's error in its place instead of failing the whole request
    #[arg(long)]
    item_errors: bool,
    /// Time limit of a request in seconds; a request that exceeds it fails
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    timeout: Option<f64>,
    /// Print one JSON document
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Print comma-separated values with a header
    #[arg(long)]
    pub(super) csv: bool,
    /// Print nothing but the answer
    #[arg(long, short)]
    pub(super) quiet: bool,
    #[command(flatten)]
    chat: ChatFlags,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    prefix_cache: PrefixCacheFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// Parses `--length`.
fn length(text: &str) -> Result<LongLabels, String> {
    match text {
        "sum" => Ok(LongLabels::Sum),
        "mean" => Ok(LongLabels::Mean),
        "bytes" => Ok(LongLabels::Bytes),
        _ => Err("one of sum, mean, bytes".to_owned()),
    }
}

impl JudgeFlags {
    /// The options that the flags give to all requests. A template is not yet put into a chat template.
    pub(super) fn options(&self) -> JudgeOptions {
        JudgeOptions {
            template: self.template.clone(),
            long_labels: self.length,
            label_end: self.label_end,
            end: self.end.clone().map(Label::Text),
            calibrate: self.calibrate.clone(),
            truncate: self.truncate,
            item_errors: self.item_errors,
            timeout_s: self.timeout,
            adapters: self.adapters.choices(),
            ..JudgeOptions::default()
        }
    }

    /// Refuses to read standard input twice.
    pub(super) fn check_input(&self, others: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
        self.chat.check_input(others)
    }

    /// Whether prompts are put into the model's chat template.
    pub(super) fn has_chat(&self) -> bool {
        self.chat.is_requested()
    }

    /// Loads the model, and reads its chat template if that is requested.
    pub(super) fn load(
        &self,
        model: &ModelName,
        context: &Context,
    ) -> Result<(LoadedModel, Option<ChatFrames>), Failure> {
        let chat = self.chat.requested(model, context.environment, self.quiet)?;
        let settings = self.machine.resolve(context.environment, &context.clock)?;
        let settings =
            self.prefix_cache.resolve(settings, context.environment)?.with_adapters(&self.adapters);
        let loaded = settings.load(model, context.environment)?;
        let chat = chat.map(|chat| ChatFrames::new(chat, &loaded.engine)).transpose()?;
        Ok((loaded, chat))
    }
}

/// Puts the template of a request, or else `instruction`, into the model's chat template, if there is one.
pub(super) fn framed(
    chat: Option<&mut ChatFrames>,
    options: JudgeOptions,
    instruction: &str,
) -> Result<JudgeOptions, Failure> {
    Ok(match chat {
        Some(chat) => chat.apply(options, instruction)?,
        None => options,
    })
}

/// The texts from the flags or a file.
pub(super) fn texts(
    typed: &[String],
    file: Option<&Path>,
    column: Option<&str>,
) -> Result<Vec<String>, Failure> {
    file.map_or_else(|| Ok(typed.to_vec()), |file| text::read_texts(file, column))
}

/// The classes from the flags: one each, or all in one, with commas between them.
pub(super) fn classes(given: &[String]) -> Vec<String> {
    match given {
        [all] if all.contains(',') => all.split(',').map(|class| class.trim().to_owned()).collect(),
        each => each.to_vec(),
    }
}

/// Warns of a label that begins another one, if the end is not scored.
pub(super) fn warn_of_prefix(prefix: Option<(&str, &str)>) {
    if let Some((one, other)) = prefix {
        message::note(&format!(
            "`{other}` begins with `{one}`, and the end of labels is not scored, which prefers `{one}` (`--label-end always --end TEXT`, \
             where TEXT is what the model writes after a label)"
        ));
    }
}

/// Formats rows as comma-separated values.
pub(super) fn csv(rows: &[Vec<String>]) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string(), None);
    for row in rows {
        writer.write_record(row).map_err(|error| failed(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
