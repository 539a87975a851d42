//! The files of a repository that Redline reads.

use redline_weights::{HubId, weight_layouts};
use serde_json::Value;

use crate::error::{HubError, Result, printable};
use crate::gguf::is_plain;
use crate::repository::{RemoteFile, Repository};

/// The configuration of a model.
pub(crate) const CONFIG: &str = "config.json";
/// The list of digests of a signed model.
pub(crate) const DIGESTS: &str = "SHA256SUMS";
/// The list of the modules of an embedding model.
pub(crate) const MODULES: &str = "modules.json";

/// Files of a module, in a folder of its own.
const OF_MODULE: [&str; 2] = [CONFIG, "model.safetensors"];

/// Files besides the weights. Licences are downloaded because conversions copy them.
const COMPANIONS: &[&str] = &[
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    MODULES,
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    // The layers of bge-m3 for sparse vectors and for vectors of tokens.
    "sparse_linear.pt",
    "colbert_linear.pt",
    // What ColBERT was trained with, in the form of its authors' library, and its layer in a converted directory.
    "artifact.metadata",
    "linear.safetensors",
    "infq.json",
    DIGESTS,
    "SHA256SUMS.minisig",
    "LICENSE",
    "LICENSE.txt",
    "NOTICE",
    "USE_POLICY.md",
];

/// Folders of further chat templates, which are files with the extension `.jinja`.
const TEMPLATE_FOLDERS: [&str; 2] = ["additional_chat_templates/", "chat_templates/"];

/// Maximum number of files in an error message.
const SHOWN: usize = 8;

/// The files besides the weights that the repository has.
pub(crate) fn companions(repository: &Repository) -> impl Iterator<Item = &RemoteFile> {
    repository.files.iter().filter(|file| COMPANIONS.contains(&file.name.as_str()) || is_template(&file.name))
}

fn is_template(name: &str) -> bool {
    let inner = TEMPLATE_FOLDERS.iter().find_map(|folder| name.strip_prefix(folder)?.strip_suffix(".jinja"));
    inner.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    })
}

/// The files in the folders that a list of modules names, or what is wrong with the list.
pub(crate) fn of_modules<'a>(repository: &'a Repository, list: &[u8]) -> Result<Vec<&'a RemoteFile>, String> {
    let list: Value = serde_json::from_slice(list).map_err(|error| format!("`{MODULES}`: {error}"))?;
    let modules = list.as_array().ok_or_else(|| format!("`{MODULES}` is not a list"))?;
    let mut files = Vec::new();
    for module in modules {
        let folder = module["path"].as_str().unwrap_or_default();
        if folder.is_empty() {
            continue;
        }
        if !is_plain(folder) {
            return Err(format!("`{MODULES}` names the folder `{}`", printable(folder)));
        }
        files.extend(OF_MODULE.iter().filter_map(|name| repository.file(&format!("{folder}/{name}"))));
    }
    Ok(files)
}

/// The file that holds the weights, or the index that lists the files that do (`true`): the one that would be opened.
pub(crate) fn weights<'a>(repository: &'a Repository, id: &HubId) -> Result<(&'a RemoteFile, bool)> {
    let missing = |missing| HubError::Unusable { id: id.to_string(), missing, files: names(repository) };
    if repository.file(CONFIG).is_none() {
        return Err(missing("`config.json`"));
    }
    let found = weight_layouts().find_map(|(name, is_index)| Some((repository.file(name)?, is_index)));
    found.ok_or_else(|| missing("`model.safetensors` or `pytorch_model.bin`"))
}

/// The first names of a repository, for a message.
fn names(repository: &Repository) -> String {
    let shown: Vec<_> =
        repository.files.iter().take(SHOWN).map(|file| format!("`{}`", printable(&file.name))).collect();
    match repository.files.len() {
        0 => "no files".to_owned(),
        count if count > SHOWN => format!("{} and {} more", shown.join(", "), count - SHOWN),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(names: &[&str]) -> Repository {
        let file = |name: &&str| RemoteFile { name: (*name).to_owned(), content: None };
        Repository { commit: String::new(), files: names.iter().map(file).collect() }
    }

    fn chosen(names: &[&str]) -> Result<(String, bool), String> {
        let id = HubId::parse("org/name").unwrap();
        let repository = repository(names);
        let weights = weights(&repository, &id).map_err(|error| error.to_string())?;
        Ok((weights.0.name.clone(), weights.1))
    }

    #[test]
    fn safetensors_come_before_pytorch_and_a_single_file_before_an_index() {
        let all = [
            "config.json",
            "pytorch_model.bin.index.json",
            "pytorch_model.bin",
            "model.safetensors.index.json",
            "model.safetensors",
        ];
        for (count, name) in [(5, "model.safetensors"), (3, "pytorch_model.bin")] {
            assert_eq!(chosen(&all[..count]), Ok((name.to_owned(), false)));
        }
        for (count, name) in [(4, "model.safetensors.index.json"), (2, "pytorch_model.bin.index.json")] {
            assert_eq!(chosen(&all[..count]), Ok((name.to_owned(), true)));
        }
    }

    #[test]
    fn a_repository_without_a_model_is_refused_with_its_files() {
        let error = chosen(&["config.json", "a.gguf"]).unwrap_err();
        assert_eq!(
            error,
            "the repository has no `model.safetensors` or `pytorch_model.bin`; it has `config.json`, `a.gguf`\n  in `org/name`"
        );
        assert!(chosen(&["model.safetensors"]).unwrap_err().contains("no `config.json`"));
        assert!(chosen(&["a"; 20]).unwrap_err().contains("and 12 more"));
        assert!(chosen(&[]).unwrap_err().contains("it has no files"));
    }

    #[test]
    fn only_known_names_are_companions() {
        let repository = repository(&[
            "config.json",
            "../config.json",
            "x/config.json",
            "modeling.py",
            "tokenizer.json",
            "additional_chat_templates/rag.jinja",
            "additional_chat_templates/../../x.jinja",
            "additional_chat_templates/.jinja",
            "chat_templates/tools.jinja",
            "model.safetensors",
        ]);
        let names: Vec<_> = companions(&repository).map(|file| file.name.as_str()).collect();
        assert_eq!(names[..2], ["config.json", "tokenizer.json"]);
        assert_eq!(names[2..], ["additional_chat_templates/rag.jinja", "chat_templates/tools.jinja"]);
    }
}
