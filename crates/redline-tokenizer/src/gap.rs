//! The tokens with which a model fills a gap in a text (fill in the middle, Bavarian et al. 2022, arXiv 2207.14255).

/// The tokens around the parts of a text with a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapTokens {
    /// Stands before the text before the gap.
    pub prefix: u32,
    /// Stands before the text after the gap.
    pub suffix: u32,
    /// Stands before the text of the gap. Without it, the text after the gap comes first, and the gap follows the text before it.
    pub middle: Option<u32>,
    /// Stands before the name of a repository.
    pub repository: Option<u32>,
    /// Stands before the name of a file.
    pub file: Option<u32>,
    /// The tokens that end the text of the gap, besides those that end every text.
    pub ends: Vec<u32>,
}

/// The names of these tokens in a family of models. A token may have several names.
struct Names {
    prefix: &'static str,
    suffix: &'static str,
    middle: Option<&'static str>,
    repository: &'static [&'static str],
    file: &'static [&'static str],
    /// Further tokens that end the text.
    ends: &'static [&'static str],
}

const FAMILIES: &[Names] = &[
    // Qwen2.5-Coder, Qwen3-Coder, CodeGemma.
    Names {
        prefix: "<|fim_prefix|>",
        suffix: "<|fim_suffix|>",
        middle: Some("<|fim_middle|>"),
        repository: &["<|repo_name|>", "<|fim_repo|>"],
        file: &["<|file_sep|>", "<|file_separator|>"],
        ends: &["<|fim_pad|>"],
    },
    // Granite, StarCoder 2.
    Names {
        prefix: "<fim_prefix>",
        suffix: "<fim_suffix>",
        middle: Some("<fim_middle>"),
        repository: &["<reponame>", "<repo_name>"],
        file: &["<file_sep>"],
        ends: &["<fim_pad>"],
    },
    // StarCoder 1.
    Names {
        prefix: "<fim-prefix>",
        suffix: "<fim-suffix>",
        middle: Some("<fim-middle>"),
        repository: &["<fim-repo>", "<reponame>"],
        file: &[],
        ends: &["<fim-pad>"],
    },
    // DeepSeek Coder: the hole stands where the text after it begins.
    Names {
        prefix: "<｜fim▁begin｜>",
        suffix: "<｜fim▁hole｜>",
        middle: Some("<｜fim▁end｜>"),
        repository: &[],
        file: &[],
        ends: &[],
    },
    // CodeLlama.
    Names {
        prefix: "▁<PRE>",
        suffix: "▁<SUF>",
        middle: Some("▁<MID>"),
        repository: &[],
        file: &[],
        ends: &["▁<EOT>"],
    },
    // GLM 4.5.
    Names {
        prefix: "<|code_prefix|>",
        suffix: "<|code_suffix|>",
        middle: Some("<|code_middle|>"),
        repository: &[],
        file: &[],
        ends: &[],
    },
    // Codestral.
    Names { prefix: "[PREFIX]", suffix: "[SUFFIX]", middle: None, repository: &[], file: &[], ends: &[] },
];

/// The tokens of the first family whose names the vocabulary has.
pub(crate) fn find(id: impl Fn(&str) -> Option<u32>) -> Option<GapTokens> {
    FAMILIES.iter().find_map(|names| names.tokens(&id))
}

impl Names {
    fn tokens(&self, id: &impl Fn(&str) -> Option<u32>) -> Option<GapTokens> {
        let first = |names: &[&str]| names.iter().find_map(|name| id(name));
        let middle = match self.middle {
            Some(name) => Some(id(name)?),
            None => None,
        };
        let (repository, file) = (first(self.repository), first(self.file));
        Some(GapTokens {
            prefix: id(self.prefix)?,
            suffix: id(self.suffix)?,
            middle,
            repository,
            file,
            ends: self.ends.iter().filter_map(|name| id(name)).chain(repository).chain(file).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a vocabulary of these tokens, whose ids are their places.
    fn found(tokens: &[&str]) -> Option<GapTokens> {
        find(|name| tokens.iter().position(|token| *token == name).map(|id| id as u32))
    }

    #[test]
    fn every_family_is_found_by_its_names() {
        for names in FAMILIES {
            let middle: Vec<&str> = names.middle.into_iter().collect();
            let own = [names.prefix, names.suffix];
            let all = [&["a"], &own[..], &middle, names.repository, names.file, names.ends].concat();
            let gap = found(&all).unwrap();
            let expect = (1, 2, names.middle.map(|_| 3));
            assert_eq!((gap.prefix, gap.suffix, gap.middle), expect, "{}", names.prefix);
            assert_eq!(gap.repository.is_some(), !names.repository.is_empty());
            assert_eq!(gap.file.is_some(), !names.file.is_empty());
            for end in names.ends.iter().chain(names.repository.first()).chain(names.file.first()) {
                let id = all.iter().position(|token| token == end).unwrap();
                assert!(gap.ends.contains(&(id as u32)), "{end}");
            }
            for missing in [&own[..], &middle].concat() {
                let rest: Vec<&str> = all.iter().copied().filter(|token| *token != missing).collect();
                assert_eq!(found(&rest), None, "without {missing}");
            }
        }
        assert_eq!(found(&["a"]), None);
    }
}
