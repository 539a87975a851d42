//! The values of settings that are a choice, with their names.

/// A choice whose values have names, the same in every front end.
pub trait Named: Copy + Sized + 'static {
    /// The names of all values.
    const NAMES: &'static [&'static str];

    /// The name of the value.
    fn name(self) -> &'static str;

    /// The value with that name.
    fn parse(name: &str) -> Option<Self>;
}

/// Defines choices: each value with its documentation and its name.
macro_rules! choices {
    ($($(#[$about:meta])* $choice:ident { $($(#[$what:meta])* $value:ident = $name:literal,)+ })+) => { $(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $choice { $($(#[$what])* $value,)+ }

        impl $choice {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// The name of the value.
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)+ }
            }
        }

        impl Named for $choice {
            const NAMES: &'static [&'static str] = &[$($name),+];

            fn name(self) -> &'static str {
                self.name()
            }

            fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    )+ };
}

choices! {
    /// How a label of several tokens is scored.
    #[derive(Default)]
    LongLabels {
        /// Such labels are refused.
        #[default]
        Refuse = "refuse",
        /// By the probability of all its tokens in sequence: log-probabilities are added.
        Sum = "sum",
        /// By their geometric mean: the sum is divided by the number of tokens.
        Mean = "mean",
        /// By the mean per byte: the sum is divided by the number of bytes of the label's text.
        Bytes = "bytes",
    }

    /// Whether the end of a label is scored with it: that the model writes nothing more.
    #[derive(Default)]
    LabelEnd {
        /// If the tokens of one label begin another label, because the shorter label would otherwise win whatever the text.
        #[default]
        Auto = "auto",
        /// For every set of labels.
        Always = "always",
        /// For none: what follows a label does not count.
        Never = "never",
    }

    /// How query and item become one token sequence.
    #[derive(Default)]
    Tokenization {
        /// The texts are concatenated, then tokenised as one string (the default).
        #[default]
        Concat = "concat",
        /// Query and item are tokenised separately; special tokens are added only to the first of the two.
        Separate = "separate",
    }

    /// Which end of a prompt longer than the context is dropped.
    Truncate {
        /// Tokens at the beginning.
        Left = "left",
        /// Tokens at the end.
        Right = "right",
    }

    /// How the states of a text's tokens become one vector.
    Pooling {
        /// The state of the first token.
        First = "cls",
        /// The mean of all states.
        Mean = "mean",
        /// The state of the last token.
        Last = "last",
    }

    /// What represents a text.
    #[derive(Default)]
    VectorForm {
        /// One vector.
        #[default]
        Dense = "dense",
        /// Weights of tokens of the vocabulary, most of which are zero.
        Sparse = "sparse",
        /// A vector for each token, for late interaction. Queries and documents are told apart by the name of their prompt.
        MultiVector = "multi_vector",
        /// The state of every token, special ones included, as the last layer leaves it: not pooled, not passed through layers that a
        /// directory of sentence-transformers adds, and not divided by its length.
        States = "states",
    }

    /// Why generation ended.
    FinishReason {
        /// An end-of-sequence token or a stop string.
        Stop = "stop",
        /// `max_new_tokens` reached.
        Length = "length",
        /// The caller cancelled.
        Cancelled = "cancelled",
    }

    /// Which masks are filled first, and how many per step.
    Algorithm {
        /// Dream's `origin`: each mask at random, with the probability of its step.
        Origin = "origin",
        /// Dream's `maskgit_plus`: masks with the most probable tokens first.
        MaskgitPlus = "maskgit-plus",
        /// Dream's `topk_margin`: masks with the largest margin between the two most probable tokens first.
        TopkMargin = "topk-margin",
        /// Dream's `entropy`: masks with the lowest entropy first.
        Entropy = "entropy",
        /// LLaDA's `low_confidence` remasking: masks with the most probable tokens first, block by block, equally many in each
        /// step.
        LowConfidence = "low-confidence",
        /// LLaDA's `random` remasking: masks in random order, block by block, equally many in each step.
        Random = "random",
    }

    /// Which keys and values are reused from the last pass over the whole canvas (Fast-dLLM). Reuse makes passes cheaper; the
    /// results are approximations.
    #[derive(Default)]
    BlockCache {
        /// None: every pass runs the whole canvas.
        #[default]
        None = "none",
        /// Those of all positions before the block.
        Prefix = "prefix",
        /// Those of all positions outside the block.
        Dual = "dual",
    }

    /// What happens when there is no plan for a bucket.
    #[derive(Default)]
    PlanPolicy {
        /// The plan is made by measuring, and stored.
        Tune = "tune",
        /// The plan is estimated, and kept in memory.
        #[default]
        Estimate = "estimate",
        /// The requests of the pass fail.
        Forbid = "forbid",
        /// Plans are estimated anew for every pass, and neither stored nor looked up: for debugging, and as a reference arm.
        Off = "off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Named + PartialEq + std::fmt::Debug>(all: &[T]) {
        assert_eq!(all.len(), T::NAMES.len());
        for (&value, &name) in all.iter().zip(T::NAMES) {
            assert_eq!((value.name(), T::parse(name)), (name, Some(value)));
        }
        assert_eq!(T::parse(""), None);
    }

    #[test]
    fn names_lead_back_to_their_values() {
        check(LongLabels::ALL);
        check(Tokenization::ALL);
        check(Truncate::ALL);
        check(Pooling::ALL);
        check(FinishReason::ALL);
        check(Algorithm::ALL);
        check(BlockCache::ALL);
        check(PlanPolicy::ALL);
        assert_eq!(format!("{:>6}|", Truncate::Left), "  left|");
    }
}
