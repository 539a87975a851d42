//! The files of a model: one, or the parts of a split, which are named `NAME-00001-of-00003.gguf` and so on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::fault::GgufFault;
use super::header::Header;
use super::metadata::GgufMetadata;
use super::tensor::GgufTensor;
use crate::error::{Result, WeightsError};
use crate::file::exists;
use crate::shard::Shard;

const END: &str = ".gguf";
/// Digits of the numbers in the name of a part.
const DIGITS: usize = 5;
/// Place of a part, from 0.
const NUMBER_KEY: &str = "split.no";
/// Number of parts.
const COUNT_KEY: &str = "split.count";
/// Number of tensors in all parts.
const TENSORS_KEY: &str = "split.tensors.count";

/// An open file with its tensors.
pub(super) type Opened = (Shard, Vec<GgufTensor>);

/// The name of a part of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgufPartName<'a> {
    /// What all parts begin with.
    pub stem: &'a str,
    /// Number of parts.
    pub count: u32,
}

impl<'a> GgufPartName<'a> {
    /// Reads a name; `None` if it is not that of a part.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (rest, count) = name.strip_suffix(END)?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let parse = |digits: &str| {
            let plain = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
            if plain { digits.parse::<u32>().ok() } else { None }
        };
        let (number, count) = (parse(number)?, parse(count)?);
        (1..=count).contains(&number).then_some(Self { stem, count })
    }

    fn of(path: &'a Path) -> Option<Self> {
        Self::parse(path.file_name()?.to_str()?)
    }

    /// The name of the part of this number, from 1.
    fn part(&self, number: u32) -> String {
        let Self { stem, count } = self;
        format!("{stem}-{number:0DIGITS$}-of-{count:0DIGITS$}{END}")
    }
}

/// Whether a directory holds GGUF files.
pub(super) fn are_in(dir: &Path) -> bool {
    fs::read_dir(dir)
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|it| is_gguf_name(&it.path()))))
}

/// Whether a path ends like that of a GGUF file.
pub fn is_gguf_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == &END[1..])
}

/// The only GGUF file of a directory, or the first part of the only split.
pub(super) fn in_directory(dir: &Path) -> Result<PathBuf> {
    let list = || WeightsError::io("look into the directory", dir);
    // Of a split, its first part.
    let mut models = BTreeSet::new();
    for entry in fs::read_dir(dir).map_err(list())? {
        let path = entry.map_err(list())?.path();
        if is_gguf_name(&path) {
            let first = GgufPartName::of(&path).map(|part| path.with_file_name(part.part(1)));
            models.insert(first.unwrap_or(path));
        }
    }
    let found = models.len();
    if found > 1 {
        let names = models.iter().filter_map(|path| path.file_name());
        let names = names.take(2).map(|name| name.to_string_lossy().into_owned()).collect();
        return Err(refuse(dir, GgufFault::SeveralModels { found, names }));
    }
    models.pop_first().ok_or_else(|| refuse(dir, GgufFault::NoFile))
}

/// Opens the file at `path`, or all parts of the split to which it belongs. Returns the metadata of the first.
pub(super) fn open(path: &Path) -> Result<(GgufMetadata, Vec<Opened>)> {
    let Some(name) = GgufPartName::of(path) else {
        let shard = Shard::open(path)?;
        let Header { metadata, tensors } = Header::read(&shard)?;
        check_whole(&metadata)?;
        return Ok((metadata, vec![(shard, tensors)]));
    };
    let mut opened = Vec::new();
    let mut first: Option<GgufMetadata> = None;
    for number in 1..=name.count {
        let path = path.with_file_name(name.part(number));
        if !exists(&path)? {
            let fault = GgufFault::MissingPart { part: name.part(number) };
            return Err(refuse(path.parent().unwrap_or(&path), fault));
        }
        let shard = Shard::open(&path)?;
        let Header { metadata, tensors } = Header::read(&shard)?;
        check_part(&metadata, number, name.count)?;
        if let Some(first) = &first
            && let Some(key) = first.contradicts(&metadata, NUMBER_KEY)
        {
            return Err(refuse(&path, GgufFault::ForeignPart { key: key.to_owned() }));
        }
        first.get_or_insert(metadata);
        opened.push((shard, tensors));
    }
    let metadata = first.ok_or_else(|| refuse(path, GgufFault::NoFile))?;
    check_tensors(&metadata, &opened)?;
    Ok((metadata, opened))
}

/// Checks that a file is not one of several parts.
pub(super) fn check_whole(metadata: &GgufMetadata) -> Result<()> {
    match metadata.u32_or(COUNT_KEY, 1)? {
        0 | 1 => Ok(()),
        count => {
            let number = metadata.u32_or(NUMBER_KEY, 0)?.saturating_add(1);
            Err(refuse(metadata.file(), GgufFault::PartName { number, count }))
        }
    }
}

/// Checks what a part says of itself against its name.
fn check_part(metadata: &GgufMetadata, number: u32, count: u32) -> Result<()> {
    let found = metadata.u32_or(COUNT_KEY, 1)?.max(1);
    if found != count {
        return Err(refuse(metadata.file(), GgufFault::PartCount { found, needed: count }));
    }
    let found = if count == 1 { metadata.u32_or(NUMBER_KEY, 0) } else { metadata.u32(NUMBER_KEY) }?;
    if found != number - 1 {
        let found = found.saturating_add(1);
        return Err(refuse(metadata.file(), GgufFault::PartNumber { found, needed: number }));
    }
    Ok(())
}

/// Checks that the parts hold as many tensors as the first says, each in one part.
fn check_tensors(first: &GgufMetadata, opened: &[Opened]) -> Result<()> {
    let mut part_of = BTreeMap::new();
    for (shard, tensors) in opened {
        for tensor in tensors {
            if let Some(other) = part_of.insert(&tensor.name, shard) {
                let other = other.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let tensor = tensor.name.clone();
                return Err(refuse(&shard.file, GgufFault::TensorInTwoParts { tensor, other }));
            }
        }
    }
    match first.opt_u32(TENSORS_KEY)? {
        Some(declared) if declared as usize != part_of.len() => {
            let found = part_of.len();
            Err(refuse(first.file(), GgufFault::TensorsOfParts { found, declared }))
        }
        _ => Ok(()),
    }
}

fn refuse(file: &Path, fault: GgufFault) -> WeightsError {
    WeightsError::Gguf { file: file.to_owned(), fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let parse = |name: &str| GgufPartName::parse(name).map(|part| part.part(1));
        assert_eq!(parse("a-b-00002-of-00013.gguf").as_deref(), Some("a-b-00001-of-00013.gguf"));
        assert_eq!(parse("-00001-of-00001.gguf").as_deref(), Some("-00001-of-00001.gguf"));
        for other in [
            "a.gguf",
            "a-00000-of-00002.gguf",
            "a-00003-of-00002.gguf",
            "a-1-of-2.gguf",
            "a-00001-of-00002.bin",
            "a-00001-of-000002.gguf",
            "a-+0001-of-00002.gguf",
            "a00001-of-00002.gguf",
            "a-00001-00002.gguf",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
