//! The names of settings and commands.

/// Something that a caller can set: of a request, or of how a model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// An adapter to load.
    Adapter,
    /// Bytes that adapters may take.
    AdapterMemory,
    /// Continuations that are generated, of which the best are returned.
    BestOf,
    /// Masks of a block.
    BlockLength,
    /// How keys and values of a canvas are reused.
    Cache,
    /// The text without content by which labels are calibrated.
    Calibrate,
    /// Whether prompts are put into the model's chat template.
    Chat,
    /// A file with the chat template to use instead of the model's.
    ChatTemplate,
    /// The columns of a table that give values to requests.
    Columns,
    /// Weight format.
    Format,
    /// The columns of a table that its results repeat.
    Keep,
    /// Format of keys and values.
    KvFormat,
    /// Whether the end of a label is scored.
    LabelEnd,
    /// The labels of a score request.
    Labels,
    /// How labels of several tokens count.
    LongLabels,
    /// Tokens of the longest sequence.
    MaxContext,
    /// New tokens of a request.
    MaxNewTokens,
    /// Samples of a Monte Carlo estimate.
    McSamples,
    /// Bytes that the model and its requests may take.
    Memory,
    /// Whether packed weights are mapped.
    Mmap,
    /// Share of columns that integer formats keep apart.
    Outliers,
    /// What is done about a pass without a plan.
    PlanPolicy,
    /// How the states of a text become its embedding.
    Pooling,
    /// What the names of new columns begin with.
    Prefix,
    /// The query of a request to rerank.
    Query,
    /// Steps of a diffusion.
    Steps,
    /// Sampling temperature.
    Temperature,
    /// Threads of the team.
    Threads,
    /// Instruction tier.
    Tier,
    /// Documents that are ranked.
    TopN,
    /// Which end of a text is cut where it is too long.
    Truncate,
    /// Tokens of a window of text.
    Window,
}

impl Setting {
    /// Every setting.
    pub const ALL: &[Self] = &[
        Self::Adapter,
        Self::AdapterMemory,
        Self::BestOf,
        Self::BlockLength,
        Self::Cache,
        Self::Calibrate,
        Self::Chat,
        Self::ChatTemplate,
        Self::Columns,
        Self::Format,
        Self::Keep,
        Self::KvFormat,
        Self::LabelEnd,
        Self::Labels,
        Self::LongLabels,
        Self::MaxContext,
        Self::MaxNewTokens,
        Self::McSamples,
        Self::Memory,
        Self::Mmap,
        Self::Outliers,
        Self::PlanPolicy,
        Self::Pooling,
        Self::Prefix,
        Self::Query,
        Self::Steps,
        Self::Temperature,
        Self::Threads,
        Self::Tier,
        Self::TopN,
        Self::Truncate,
        Self::Window,
    ];

    /// The name of the field, as requests and options have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adapter => "adapter",
            Self::AdapterMemory => "adapter_memory",
            Self::BestOf => "best_of",
            Self::BlockLength => "block_length",
            Self::Cache => "cache",
            Self::Calibrate => "calibrate",
            Self::Chat => "chat",
            Self::ChatTemplate => "chat_template",
            Self::Columns => "columns",
            Self::Format => "format",
            Self::Keep => "keep",
            Self::KvFormat => "kv_format",
            Self::LabelEnd => "label_end",
            Self::Labels => "labels",
            Self::LongLabels => "long_labels",
            Self::MaxContext => "max_context",
            Self::MaxNewTokens => "max_new_tokens",
            Self::McSamples => "mc_samples",
            Self::Memory => "memory",
            Self::Mmap => "mmap",
            Self::Outliers => "outliers",
            Self::PlanPolicy => "plan_policy",
            Self::Pooling => "pooling",
            Self::Prefix => "prefix",
            Self::Query => "query",
            Self::Steps => "steps",
            Self::Temperature => "temperature",
            Self::Threads => "threads",
            Self::Tier => "tier",
            Self::TopN => "top_n",
            Self::Truncate => "truncate",
            Self::Window => "window",
        }
    }
}

/// Something that a caller can have done instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Packs a model into a weight format.
    Convert,
    /// Fills masks.
    Diffuse,
    /// Tells what the machine can do.
    Doctor,
    /// Makes a vector of a text.
    Embed,
    /// Continues a prompt.
    Generate,
    /// Makes plans for every bucket.
    Precompile,
    /// Downloads a model.
    Pull,
}

impl Command {
    /// Every command.
    pub const ALL: &[Self] = &[
        Self::Convert,
        Self::Diffuse,
        Self::Doctor,
        Self::Embed,
        Self::Generate,
        Self::Precompile,
        Self::Pull,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Convert => "convert",
            Self::Diffuse => "diffuse",
            Self::Doctor => "doctor",
            Self::Embed => "embed",
            Self::Generate => "generate",
            Self::Precompile => "precompile",
            Self::Pull => "pull",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct() {
        let settings: BTreeSet<&str> = Setting::ALL.iter().map(|setting| setting.name()).collect();
        let commands: BTreeSet<&str> = Command::ALL.iter().map(|command| command.name()).collect();
        assert_eq!((settings.len(), commands.len()), (Setting::ALL.len(), Command::ALL.len()));
    }

    /// `MaxNewTokens` becomes `max_new_tokens`.
    fn snake_case(variant: &str) -> String {
        let mut name = String::new();
        for letter in variant.chars() {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }

    #[test]
    fn a_name_is_that_of_its_variant() {
        for setting in Setting::ALL {
            assert_eq!(setting.name(), snake_case(&format!("{setting:?}")));
        }
        for command in Command::ALL {
            assert_eq!(command.name(), snake_case(&format!("{command:?}")));
        }
    }
}
