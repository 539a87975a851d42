//! The files of the repository, read once for all checks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::source::Source;

/// A file; its text is present only if a check reads it.
pub(super) struct File {
    /// Path from the root of the repository, with `/`.
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) text: String,
}

/// The files that belong to the repository, sorted by path.
pub(super) struct Tree {
    pub(super) files: Vec<File>,
}

/// A violation and its place.
#[derive(Debug)]
pub(super) struct Violation {
    pub(super) path: String,
    /// 0 for the file as a whole.
    pub(super) line: usize,
    pub(super) message: String,
}

/// The result of a check.
#[derive(Default)]
pub(super) struct Findings {
    /// Number of things examined.
    pub(super) seen: usize,
    /// Places that the rule names and that do not exist: violations, except in the small trees of the examples.
    pub(super) absent: Vec<String>,
    /// What the check leaves out, for the report; empty if nothing.
    pub(super) left_out: String,
    pub(super) violations: Vec<Violation>,
}

impl Findings {
    /// Records the places among `prefixes` with which no path begins.
    pub(super) fn expect(&mut self, tree: &Tree, prefixes: &[&str]) {
        let missing = prefixes.iter().filter(|prefix| !tree.has(prefix));
        self.absent.extend(missing.map(ToString::to_string));
    }

    /// Adds a violation; line 0 means the file as a whole.
    pub(super) fn broken(&mut self, path: &str, line: usize, message: impl Into<String>) {
        self.violations.push(Violation { path: path.to_string(), line, message: message.into() });
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

impl Tree {
    /// Reads the repository at `root`: files that git tracks or would track; without git, everything except build
    /// outputs.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut paths = git_files(root).unwrap_or_default();
        if paths.is_empty() {
            walk(root, "", &mut paths)?;
        }
        let mut files = Vec::new();
        for path in paths {
            let full = root.join(&path);
            // A tracked file may be deleted in the working tree.
            let Ok(meta) = fs::symlink_metadata(&full) else { continue };
            if !meta.is_file() {
                continue;
            }
            let read = matches!(extension(&path), "rs" | "toml" | "md" | "py");
            let text = if read {
                fs::read(&full).with_context(|| format!("cannot read {path}"))?
            } else {
                Vec::new()
            };
            let text = String::from_utf8_lossy(&text).into_owned();
            files.push(File { bytes: meta.len(), text, path });
        }
        Ok(Self { files })
    }

    /// The Rust files whose path begins with one of `prefixes`. Prefixes without files are recorded as absent.
    pub(super) fn rust(&self, prefixes: &[&str], findings: &mut Findings) -> Vec<Source<'_>> {
        findings.expect(self, prefixes);
        let wanted = |f: &&File| extension(&f.path) == "rs" && prefixes.iter().any(|p| f.path.starts_with(p));
        let sources: Vec<_> =
            self.files.iter().filter(wanted).map(|f| Source::new(&f.path, &f.text)).collect();
        findings.seen += sources.len();
        sources
    }

    /// Whether any path begins with `prefix`.
    pub(super) fn has(&self, prefix: &str) -> bool {
        self.files.iter().any(|f| f.path.starts_with(prefix))
    }

    /// The file at this exact path.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    /// The names of the folders in `crates/`.
    pub(super) fn crates<'a>(&'a self) -> BTreeSet<&'a str> {
        let folder = |f: &'a File| f.path.strip_prefix("crates/")?.split_once('/').map(|(name, _)| name);
        self.files.iter().filter_map(folder).collect()
    }
}

/// The part of the file's name after the last dot.
pub(super) fn extension(path: &str) -> &str {
    Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or("")
}

/// Files that git tracks, and new ones that it does not ignore; `None` if git or its folder is missing.
fn git_files(root: &Path) -> Option<BTreeSet<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().ok().filter(|o| o.status.success())?;
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(list.split('\0').filter(|p| !p.is_empty()).map(str::to_string).collect())
}

/// Adds all files below `directory` (relative to `root`), except build outputs and hidden folders of tools.
fn walk(root: &Path, directory: &str, paths: &mut BTreeSet<String>) -> Result<()> {
    let full = root.join(directory);
    for entry in fs::read_dir(&full).with_context(|| format!("cannot list {}", full.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let outside = matches!(name.as_str(), ".git" | "target" | "__pycache__") || name.starts_with(".venv");
        let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
        if outside {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(root, &path, paths)?;
        } else {
            paths.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
impl Tree {
    /// Parses a small tree from text: each file begins with a line `//- PATH`.
    pub(super) fn fixture(text: &str) -> Self {
        let file = |part: &str| {
            let (path, text) = part.split_once('\n').unwrap_or((part, ""));
            File { path: path.trim().to_string(), bytes: text.len() as u64, text: text.to_string() }
        };
        let mut files: Vec<File> = text.split("//- ").skip(1).map(file).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self { files }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_read_with_and_without_git() {
        let tree = Tree::read(crate::root()).expect("the repository can be read");
        assert!(tree.file("xtask/src/main.rs").is_some_and(|f| f.text.starts_with("//!")));
        assert!(tree.crates().contains("redline-cli"));
        let mut paths = BTreeSet::new();
        walk(crate::root(), "", &mut paths).expect("the repository can be walked");
        assert!(paths.contains("xtask/src/main.rs"));
        assert!(!paths.iter().any(|p| p.starts_with("target/") || p.starts_with(".git/")));
    }
}
