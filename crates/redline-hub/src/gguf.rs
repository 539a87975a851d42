//! Models in GGUF files: those that a repository has, and the one that is chosen.

use std::path::Path;

use redline_weights::{GgufPartName, HubId, is_gguf_name};

use crate::error::{GgufChoice, HubError, Result, printable};
use crate::repository::{RemoteFile, Repository};

/// The files of one model.
struct Model<'a> {
    /// The parts in order; at least one.
    parts: Vec<&'a RemoteFile>,
    /// Number of parts that the names promise.
    count: u32,
}

impl Model<'_> {
    fn name(&self) -> &str {
        self.parts.first().map_or("", |part| &part.name)
    }

    fn choice(&self) -> GgufChoice {
        let lengths = self.parts.iter().map(|part| part.content.as_ref().map(|(_, bytes)| *bytes));
        let bytes = lengths.sum();
        GgufChoice { name: printable(self.name()), files: self.parts.len(), bytes }
    }

    /// Whether it is the rest of a model that also reads images.
    fn is_projector(&self) -> bool {
        file_name(self.name()).to_ascii_lowercase().starts_with("mmproj")
    }
}

/// The files of the model that `wanted` names: by a path, a file name, or a part of it that no other has. Without it, the only one.
pub(crate) fn chosen<'a>(
    repository: &'a Repository,
    id: &HubId,
    wanted: Option<&str>,
) -> Result<Vec<&'a RemoteFile>> {
    let all = models(repository);
    let refuse = |fact: String, models: &[Model<'_>]| {
        let models = models.iter().map(Model::choice).collect();
        Err(HubError::Choice { id: id.to_string(), fact, models })
    };
    let found: Vec<&Model<'a>> = match wanted {
        None => all.iter().filter(|model| !model.is_projector()).collect(),
        Some(wanted) => named(&all, wanted),
    };
    let model = match (&found[..], wanted) {
        ([model], _) => model,
        ([], Some(wanted)) => return refuse(format!("no GGUF file is called `{}`", printable(wanted)), &all),
        (_, Some(wanted)) => {
            let fact = format!("`{}` is part of the names of {} GGUF models", printable(wanted), found.len());
            return refuse(fact, &all);
        }
        (_, None) => return refuse(format!("there are {} models in GGUF files", found.len()), &all),
    };
    if model.parts.len() != model.count as usize {
        let fact =
            format!("`{}` has {} of {} parts", printable(model.name()), model.parts.len(), model.count);
        return refuse(fact, &all);
    }
    Ok(model.parts.clone())
}

/// Those that a name means, the closest sense of it first.
fn named<'m, 'a>(all: &'m [Model<'a>], wanted: &str) -> Vec<&'m Model<'a>> {
    let lower = wanted.to_ascii_lowercase();
    let is_any = |model: &Model<'_>, is: &dyn Fn(&str) -> bool| model.parts.iter().any(|part| is(&part.name));
    let senses: [&dyn Fn(&str) -> bool; 3] = [
        &|name: &str| name == wanted,
        &|name: &str| file_name(name) == wanted || format!("{wanted}.gguf") == file_name(name),
        &|name: &str| name.to_ascii_lowercase().contains(&lower),
    ];
    let found = |is: &&dyn Fn(&str) -> bool| {
        let found: Vec<_> = all.iter().filter(|model| is_any(model, *is)).collect();
        (!found.is_empty()).then_some(found)
    };
    senses.iter().find_map(found).unwrap_or_default()
}

/// The models in the order of the repository. Files whose path leaves the repository count for nothing.
fn models(repository: &Repository) -> Vec<Model<'_>> {
    let mut all: Vec<(&str, Model<'_>)> = Vec::new();
    let files = repository.files.iter().filter(|file| is_gguf(&file.name) && is_plain(&file.name));
    for file in files {
        let part = GgufPartName::parse(&file.name);
        let GgufPartName { stem, count } = part.unwrap_or(GgufPartName { stem: &file.name, count: 1 });
        match all.iter_mut().find(|(other, model)| *other == stem && model.count == count) {
            Some((_, model)) => model.parts.push(file),
            None => all.push((stem, Model { parts: vec![file], count })),
        }
    }
    for (_, model) in &mut all {
        model.parts.sort_by(|one, other| one.name.cmp(&other.name));
    }
    all.into_iter().map(|(_, model)| model).collect()
}

/// Whether a path ends in `.gguf`.
pub(crate) fn is_gguf(path: &str) -> bool {
    is_gguf_name(Path::new(path))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a path stays in its repository.
pub(crate) fn is_plain(path: &str) -> bool {
    let is_plain = |part: &str| {
        !matches!(part, "" | "." | "..") && !part.chars().any(|c| c.is_control() || matches!(c, '\\' | ':'))
    };
    path.split('/').all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[&str], wanted: Option<&str>) -> Result<Vec<String>, String> {
        let file = |name: &&str| RemoteFile { name: (*name).to_owned(), content: Some(("0".repeat(64), 10)) };
        let repository = Repository { commit: String::new(), files: files.iter().map(file).collect() };
        let id = HubId::parse("org/name").unwrap();
        let parts = chosen(&repository, &id, wanted).map_err(|error| error.to_string())?;
        Ok(parts.iter().map(|part| part.name.clone()).collect())
    }

    const FILES: [&str; 7] = [
        "README.md",
        "m-Q4_K_M.gguf",
        "m-Q4_K_S.gguf",
        "m-Q8_0-00002-of-00002.gguf",
        "m-Q8_0-00001-of-00002.gguf",
        "bf16/m-BF16.gguf",
        "mmproj-m.gguf",
    ];

    #[test]
    fn a_model_is_named_by_its_path_its_file_or_a_part_of_it() {
        let one = |wanted: &str| names(&FILES, Some(wanted)).map(|names| names.join(" "));
        for wanted in ["m-Q4_K_M.gguf", "m-Q4_K_M", "q4_k_m"] {
            assert_eq!(one(wanted).as_deref(), Ok("m-Q4_K_M.gguf"), "{wanted}");
        }
        for wanted in ["Q8_0", "m-Q8_0-00002-of-00002.gguf"] {
            let parts = "m-Q8_0-00001-of-00002.gguf m-Q8_0-00002-of-00002.gguf";
            assert_eq!(one(wanted).as_deref(), Ok(parts), "{wanted}");
        }
        for wanted in ["bf16/m-BF16.gguf", "m-BF16.gguf", "m-BF16"] {
            assert_eq!(one(wanted).as_deref(), Ok("bf16/m-BF16.gguf"), "{wanted}");
        }
        assert!(one("Q4_K").unwrap_err().starts_with("`Q4_K` is part of the names of 2 GGUF models"));
        assert!(one("Q5").unwrap_err().starts_with("no GGUF file is called `Q5`"));
        assert!(one("README.md").unwrap_err().starts_with("no GGUF file"));
    }

    #[test]
    fn without_a_name_there_must_be_one_model() {
        assert!(names(&FILES, None).unwrap_err().starts_with("there are 4 models in GGUF files"));
        let one = ["config.json", "m.gguf", "mmproj-m.gguf"];
        assert_eq!(names(&one, None), Ok(vec!["m.gguf".to_owned()]));
    }

    #[test]
    fn a_split_is_whole_or_refused() {
        let files = ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"];
        assert!(names(&files, None).unwrap_err().starts_with("`m-00001-of-00003.gguf` has 2 of 3 parts"));
    }

    #[test]
    fn a_path_that_leaves_the_repository_is_no_choice() {
        for path in ["../m.gguf", "/m.gguf", "a/../m.gguf", "a//m.gguf", "a\\m.gguf", "c:m.gguf"] {
            assert!(names(&[path], Some(path)).is_err(), "{path}");
        }
    }
}
