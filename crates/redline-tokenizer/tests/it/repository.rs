//! Real texts: the files of this repository.

use crate::dice::Dice;
use std::path::{Path, PathBuf};

const TEXTS: [&str; 10] = ["rs", "md", "py", "toml", "txt", "json", "jsonl", "csv", "sh", "yml"];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text files of the repository that exist, with their names.
pub(crate) fn files() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for folder in ["crates", "docs", "tests", "xtask"] {
        walk(&root().join(folder), &mut paths);
    }
    let beside = [root(), root().join("models/demo")].into_iter().filter_map(|dir| dir.read_dir().ok());
    paths.extend(
        beside.flatten().flatten().map(|entry| entry.path()).filter(|path| {
            path.extension().is_some_and(|kind| kind == "md" || kind == "txt" || kind == "py")
        }),
    );
    paths.sort_unstable();
    let read = |path: PathBuf| Some((path.display().to_string(), std::fs::read_to_string(&path).ok()?));
    paths.into_iter().filter_map(read).collect()
}

fn walk(dir: &Path, paths: &mut Vec<PathBuf>) {
    for entry in dir.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let built = name == "target" || name.to_string_lossy().starts_with('.');
        if path.is_dir() && !built {
            walk(&path, paths);
        } else if path.extension().is_some_and(|kind| TEXTS.iter().any(|text| kind == *text)) {
            paths.push(path);
        }
    }
}

/// Cuts a text into pieces of one to five thousand bytes, at any character.
pub(crate) fn pieces<'a>(mut text: &'a str, dice: &mut Dice) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let at = text.ceil_char_boundary((1000 + dice.below(4000)).min(text.len()));
        let (piece, rest) = text.split_at(at);
        pieces.push(piece);
        text = rest;
    }
    pieces
}
