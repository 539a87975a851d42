//! Rules for folders, file names, and the documents that describe them.

use super::tree::{File, Findings, Tree, extension};

/// Names without meaning.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc"];

/// Folder of the chapters of ARCHITECTURE.md.
const CHAPTERS: &str = "docs/architecture/";

/// Line limit of ARCHITECTURE.md and of each chapter.
const ARCHITECTURE_LINES: usize = 200;

/// Maximum characters of their lines, tables aside.
const ARCHITECTURE_WIDTH: usize = 110;

/// The first commands for a newcomer, which the README must contain.
const TWO_COMMANDS: &[&str] = &["cargo run --release -- demo", "cargo xtask test"];

/// Folders and source files are named after their content.
pub(super) fn names(tree: &Tree) -> Findings {
    let mut findings = Findings { seen: tree.files.len(), ..Findings::default() };
    for file in &tree.files {
        let code = file.path.strip_suffix(".rs").or_else(|| file.path.strip_suffix(".py"));
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for part in code.unwrap_or(folder).split('/').filter(|part| EMPTY_NAMES.contains(part)) {
            findings.broken(&file.path, 0, format!("`{part}` says nothing: name what is inside"));
        }
    }
    findings
}

/// The documents exist, and the names of source files and documents in all of them are correct.
pub(super) fn documents(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for path in ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md"] {
        let Some(file) = tree.file(path) else {
            findings.broken(path, 0, "is missing");
            continue;
        };
        let must_name: Vec<&str> = match path {
            "ARCHITECTURE.md" => tree.crates().into_iter().collect(),
            "README.md" => TWO_COMMANDS.to_vec(),
            _ => Vec::new(),
        };
        for name in must_name.iter().filter(|name| !file.text.contains(**name)) {
            findings.broken(path, 0, format!("does not name `{name}`"));
        }
    }
    lengths_of_architecture(tree, &mut findings);
    // The change log names files that no longer exist, and this map those of other engines.
    let exempt = ["CHANGELOG.md", "docs/seeds.md"];
    let of_now = |file: &&File| extension(&file.path) == "md" && !exempt.contains(&file.path.as_str());
    for file in tree.files.iter().filter(of_now) {
        findings.seen += 1;
        for (line, named) in missing_files(tree, &file.text) {
            findings.broken(&file.path, line, format!("names `{named}`, which does not exist"));
        }
    }
    findings
}

/// Checks the lengths of ARCHITECTURE.md and its chapters, and of their lines.
fn lengths_of_architecture(tree: &Tree, findings: &mut Findings) {
    let belongs = |file: &&File| file.path == "ARCHITECTURE.md" || file.path.starts_with(CHAPTERS);
    for file in tree.files.iter().filter(belongs) {
        let lines = file.text.lines().count();
        if lines >= ARCHITECTURE_LINES {
            findings.broken(&file.path, 0, format!("{lines} lines; must be under {ARCHITECTURE_LINES}"));
        }
        for (index, line) in file.text.lines().enumerate().filter(|(_, line)| !line.starts_with('|')) {
            let characters = line.chars().count();
            if characters > ARCHITECTURE_WIDTH {
                let message = format!("{characters} characters, limit {ARCHITECTURE_WIDTH}");
                findings.broken(&file.path, index + 1, message);
            }
        }
    }
}

/// Source files that a document names but the repository lacks, with line numbers. A name may omit leading folders. For a
/// placeholder (`x.rs`, `x_engine.py`, `<operation>.rs`) only the folder must exist.
fn missing_files<'a>(tree: &Tree, text: &'a str) -> Vec<(usize, &'a str)> {
    let mut missing = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2).filter(|name| is_file_of_code(name)) {
            let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
            let open = last.starts_with('<') || last.starts_with("x.") || last.starts_with("x_");
            let ending = if open { format!("/{folder}/") } else { format!("/{name}") };
            let ending = ending.replace("/../", "/");
            let there = tree.files.iter().any(|file| {
                let path = format!("/{}", file.path);
                if open { path.contains(&ending) } else { path.ends_with(&ending) }
            });
            if !there {
                missing.push((index + 1, name));
            }
        }
    }
    missing
}

/// Whether a quoted text in a document is the name of a file of the repository.
fn is_file_of_code(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./<> ".contains(c);
    matches!(extension(name), "rs" | "py" | "yml" | "toml" | "sh" | "md")
        && name.chars().all(plain)
        && (!name.contains(' ') || name.contains('<'))
}

/// One binary of integration tests per crate: `tests/it/main.rs`. A library whose manifest turns unit tests off has none, since nobody
/// would run them.
pub(super) fn test_binaries(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let mut folders: Vec<String> = tree.crates().iter().map(|name| format!("crates/{name}/tests/")).collect();
    folders.push("xtask/tests/".to_string());
    for folder in folders.iter().filter(|folder| tree.has(folder)) {
        findings.seen += 1;
        let it = format!("{folder}it/");
        for file in tree.files.iter().filter(|f| f.path.starts_with(folder) && !f.path.starts_with(&it)) {
            findings.broken(&file.path, 0, "stands beside `tests/it/`: one test binary per crate");
        }
        let main = format!("{it}main.rs");
        if tree.file(&main).is_none() {
            findings.broken(&main, 0, "is missing");
        }
    }
    for name in tree.crates() {
        let manifest = tree.file(&format!("crates/{name}/Cargo.toml"));
        if !manifest.is_some_and(|file| turns_unit_tests_off(&file.text)) {
            continue;
        }
        let sources = format!("crates/{name}/src/");
        for file in tree.files.iter().filter(|file| file.path.starts_with(&sources)) {
            if let Some(line) = file.text.lines().position(|line| line.trim() == "#[test]") {
                findings.broken(
                    &file.path,
                    line + 1,
                    "a unit test that nobody runs: `Cargo.toml` turns them off",
                );
            }
        }
    }
    if findings.seen == 0 {
        findings.absent.push("crates/*/tests/".to_string());
    }
    findings
}

/// Whether a manifest has `test = false` in the table of its library.
fn turns_unit_tests_off(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lib]").skip(1);
    lines.by_ref().take_while(|line| !line.starts_with('[')).any(|line| line.replace(' ', "") == "test=false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_architecture_is_found() {
        let found = |lines: usize| -> Vec<String> {
            let tree = Tree::fixture(&format!("//- ARCHITECTURE.md\n{}", "x\n".repeat(lines)));
            let violations = documents(&tree).violations.into_iter();
            violations.filter(|v| v.path == "ARCHITECTURE.md").map(|v| v.to_string()).collect()
        };
        assert_eq!(found(199), [""; 0]);
        assert_eq!(found(200), ["ARCHITECTURE.md: 200 lines; must be under 200"]);
    }

    #[test]
    fn a_wide_line_of_a_chapter_is_found() {
        let found = |line: &str| -> Vec<String> {
            let tree = Tree::fixture(&format!("//- docs/architecture/a.md\n# A\n{line}\n"));
            let violations = documents(&tree).violations.into_iter();
            violations.filter(|v| v.path.starts_with(CHAPTERS)).map(|v| v.to_string()).collect()
        };
        let wide = "x".repeat(111);
        assert_eq!(found(&wide[1..]), [""; 0]);
        assert_eq!(found(&format!("| {wide} |")), [""; 0]);
        assert_eq!(found(&wide), ["docs/architecture/a.md:2: 111 characters, limit 110"]);
    }
}
