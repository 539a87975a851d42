//! The flags about adapters that commands share.

use std::path::{Path, PathBuf};

use clap::Args;
use redline_api::adapter::{AdapterName, AdapterNames};
use redline_api::options::RequestOptions;
use redline_engine::{AdapterChoice, AdapterOptions};

use crate::message::Failure;
use crate::value::{self, BadValue};

/// The name of the model without adapters.
const BASE: &str = "base";

/// Adapters that are loaded, and those that requests use.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Adapters")]
pub(crate) struct AdapterFlags {
    #[command(flatten)]
    loaded: LoadedAdapters,
    /// Adapters that requests use, applied one after the other, with a factor if it is not 1; `base` for none. Default: the loaded
    /// one, if there is one only
    #[arg(long = "use", value_name = "NAME[:SCALE],...", value_parser = uses)]
    uses: Option<Uses>,
}

/// Adapters that are loaded.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Adapters")]
pub(crate) struct LoadedAdapters {
    /// Load a LoRA adapter: a directory that PEFT or `adapter convert` wrote, under a name; without one, that of the directory (repeatable)
    #[arg(long, value_name = "NAME=DIR", value_parser = named)]
    adapter: Vec<Named>,
    /// Load every directory that matches a pattern, such as 'tenants/*', under its own name; in quotes, so that the shell leaves it
    /// as it is (repeatable)
    #[arg(long, value_name = "GLOB", value_parser = matching)]
    adapters: Vec<Matching>,
    /// Memory for adapters; those that are worth least are read again when they are needed. Default: 1GiB, or a quarter of --memory
    /// if that is less
    #[arg(long, value_name = "SIZE", value_parser = value::bytes, help_heading = "Memory")]
    adapter_memory: Option<u64>,
}

/// An adapter to load.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
}

/// The adapters that a pattern names.
#[derive(Clone, Debug)]
struct Matching(Vec<Named>);

/// The adapters that a command uses.
#[derive(Clone, Debug)]
pub(crate) struct Uses(Vec<AdapterChoice>);

/// Parses `--adapter`.
fn named(text: &str) -> Result<Named, BadValue> {
    let (name, dir) = match text.split_once('=') {
        Some((name, dir)) => (name.to_owned(), Path::new(dir)),
        None => {
            let dir = Path::new(text);
            let name = dir.file_name().map(|name| name.display().to_string());
            (name.unwrap_or_default(), dir)
        }
    };
    if name.is_empty() || dir.as_os_str().is_empty() {
        return value::bad(format!("`{text}` is no adapter"), "write NAME=DIR, or a directory");
    }
    Ok(Named { name, dir: dir.to_owned() })
}

/// Parses `--adapters`: the directories that match, by name. Files are left out.
fn matching(pattern: &str) -> Result<Matching, BadValue> {
    let bad = |fact: String, hint| value::bad(format!("`{pattern}`: {fact}"), hint);
    let paths = match glob::glob(pattern) {
        Ok(paths) => paths,
        Err(error) => {
            return bad(error.to_string(), "`*` and `?` stand for parts of a name, `**` for folders");
        }
    };
    let mut found = Vec::new();
    for path in paths {
        match path {
            Ok(dir) if dir.is_dir() => {
                let name = dir.file_name().map(|name| name.display().to_string());
                found.extend(name.map(|name| Named { name, dir }));
            }
            Ok(_) => {}
            Err(error) => {
                return bad(error.to_string(), "make the directory readable, or leave it out of the pattern");
            }
        }
    }
    if found.is_empty() {
        return bad(
            "no directory matches".to_owned(),
            "give a pattern of directories with an adapter each, such as 'tenants/*'",
        );
    }
    Ok(Matching(found))
}

/// Parses `--use`.
fn uses(text: &str) -> Result<Uses, BadValue> {
    if text == BASE {
        return Ok(Uses(Vec::new()));
    }
    let mut choices = Vec::new();
    for part in text.split(',') {
        let (name, scale) = part.split_once(':').unwrap_or((part, "1"));
        let Some(scale) = scale.parse::<f32>().ok().filter(|scale| scale.is_finite()) else {
            return value::bad(format!("`{scale}` is no scale"), "write NAME:SCALE, such as tone:0.5");
        };
        if name.is_empty() || name == BASE {
            return value::bad(format!("`{text}` names no adapters"), "write NAME,NAME, or `base` alone");
        }
        choices.push(AdapterChoice { name: name.to_owned(), scale });
    }
    Ok(Uses(choices))
}

/// Refuses two adapters of one name.
pub(crate) fn check_names(adapters: &[Named]) -> Result<(), Failure> {
    for (index, Named { name, .. }) in adapters.iter().enumerate() {
        if adapters[..index].iter().any(|other| other.name == *name) {
            let fact = format!("two adapters are named `{name}`");
            return Err(Failure::usage(fact, "give each a name of its own: `--adapter NAME=DIR`"));
        }
    }
    Ok(())
}

impl LoadedAdapters {
    /// The adapters to load.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Named> {
        self.adapter.iter().chain(self.adapters.iter().flat_map(|Matching(named)| named))
    }

    /// The engine's options for adapters; `None` if none is loaded, unless `later` says that some may be. `budget` finds the memory
    /// budget, if it is needed.
    pub(crate) fn options(
        &self,
        later: bool,
        budget: impl FnOnce() -> Option<u64>,
    ) -> Option<AdapterOptions> {
        if self.named().next().is_none() && !later {
            return None;
        }
        Some(match self.adapter_memory {
            Some(memory) => AdapterOptions { memory, ..AdapterOptions::default() },
            None => AdapterOptions::within(budget()),
        })
    }
}

impl AdapterFlags {
    /// The adapters to load.
    pub(crate) fn loaded(&self) -> &LoadedAdapters {
        &self.loaded
    }

    /// What the flags say for requests that do not: their adapters, and their time limit in seconds.
    pub(crate) fn options(&self, timeout_s: Option<f64>) -> RequestOptions {
        let name = |choice: AdapterChoice| AdapterName { name: choice.name, scale: choice.scale };
        let names = AdapterNames(self.choices().into_iter().map(name).collect());
        RequestOptions { adapter: Some(names), timeout_s, ..RequestOptions::default() }
    }

    /// The adapters of requests that name none.
    pub(crate) fn choices(&self) -> Vec<AdapterChoice> {
        if let Some(Uses(choices)) = &self.uses {
            return choices.clone();
        }
        let mut loaded = self.loaded.named();
        match (loaded.next(), loaded.next()) {
            (Some(Named { name, .. }), None) => vec![AdapterChoice { name: name.clone(), scale: 1.0 }],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_without_a_name_has_that_of_its_directory() {
        let read = |text| named(text).map(|named| (named.name, named.dir.display().to_string())).ok();
        let found = |name: &str, dir: &str| Some((name.to_owned(), dir.to_owned()));
        assert_eq!(read("tone=some/dir=x"), found("tone", "some/dir=x"));
        assert_eq!(read("some/dir/"), found("dir", "some/dir/"));
        assert_eq!([read("="), read("tone="), read("=dir"), read("")], [None, None, None, None]);
    }

    #[test]
    fn a_pattern_names_directories_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c-other"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("d"), "").unwrap();
        let at = |pattern: &str| matching(&folder.path().join(pattern).display().to_string());
        let names = |pattern| {
            let Matching(found) = at(pattern).unwrap();
            assert!(found.iter().all(|named| named.dir == folder.path().join(&named.name)), "{found:?}");
            found.into_iter().map(|named| named.name).collect::<Vec<_>>()
        };
        assert_eq!(
            [names("*"), names("?"), names("c*")],
            [vec!["a", "b", "c-other"], vec!["a", "b"], vec!["c-other"]]
        );
        for (pattern, fact) in
            [("x*", "no directory matches"), ("d", "no directory matches"), ("a/***", "wildcards")]
        {
            let error = at(pattern).unwrap_err().to_string();
            assert!(error.contains(pattern) && error.contains(fact), "{error}");
        }
        let flags = |patterns: &[&str]| AdapterFlags {
            loaded: LoadedAdapters {
                adapters: patterns.iter().map(|pattern| at(pattern).unwrap()).collect(),
                ..LoadedAdapters::default()
            },
            uses: None,
        };
        let loaded =
            |flags: &AdapterFlags| flags.loaded.named().map(|named| named.name.clone()).collect::<Vec<_>>();
        let (one, all) = (flags(&["c*"]), flags(&["c*", "?"]));
        assert_eq!((loaded(&one), one.choices().len()), (vec!["c-other".to_owned()], 1));
        assert_eq!((loaded(&all).len(), all.choices().len()), (3, 0));
        assert!(one.loaded.options(false, || None).is_some());
    }

    #[test]
    fn uses_are_names_with_scales() {
        let read = |text| {
            let uses = uses(text).ok()?;
            Some(uses.0.into_iter().map(|choice| (choice.name, choice.scale)).collect::<Vec<_>>())
        };
        let of = |name: &str, scale| (name.to_owned(), scale);
        assert_eq!(read("base"), Some(vec![]));
        assert_eq!(read("a"), Some(vec![of("a", 1.0)]));
        assert_eq!(read("a:0.5,b,c:-2"), Some(vec![of("a", 0.5), of("b", 1.0), of("c", -2.0)]));
        assert_eq!(
            [read("a,base"), read("a:x"), read("a:nan"), read(""), read("a,")],
            [None, None, None, None, None]
        );
    }

    #[test]
    fn one_loaded_adapter_is_used_and_of_several_none() {
        let flags = |adapters: &[&str], uses: Option<&str>| AdapterFlags {
            loaded: LoadedAdapters {
                adapter: adapters.iter().map(|text| named(text).unwrap()).collect(),
                adapters: Vec::new(),
                adapter_memory: Some(7),
            },
            uses: uses.map(|text| super::uses(text).unwrap()),
        };
        let names = |flags: AdapterFlags| flags.choices().into_iter().map(|c| c.name).collect::<Vec<_>>();
        assert_eq!(names(flags(&["a=x"], None)), ["a"]);
        assert_eq!(names(flags(&["a=x"], Some("base"))), [""; 0]);
        assert_eq!(names(flags(&["a=x", "b=y"], None)), [""; 0]);
        assert_eq!(names(flags(&["a=x", "b=y"], Some("b,a"))), ["b", "a"]);
        let options = |flags: AdapterFlags, later, budget| {
            flags.loaded.options(later, || budget).map(|options| options.memory)
        };
        assert_eq!(options(flags(&["a=x"], None), false, None), Some(7));
        assert_eq!(options(flags(&[], None), false, None), None);
        assert_eq!(options(flags(&[], None), true, None), Some(7));
        let memory = |budget| {
            let mut flags = flags(&["a=x"], None);
            flags.loaded.adapter_memory = None;
            options(flags, false, budget)
        };
        assert_eq!(memory(None), Some(1 << 30));
        assert_eq!(memory(Some(8 << 30)), Some(1 << 30));
        assert_eq!(memory(Some(320 << 20)), Some(80 << 20));
    }
}
