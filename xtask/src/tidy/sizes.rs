//! Nothing grows past what a reader can hold.

use super::tree::{Findings, Tree};

/// Lines of a Rust file.
const FILE_LINES: usize = 800;

/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 80;

/// Bytes of a file in the repository.
const FILE_BYTES: u64 = 4_000_000;

/// Files that may be larger, and how large.
const LARGE_FILES: &[(&str, u64)] =
    &[("models/demo/model.safetensors", 8 << 20), ("models/demo-diffusion/model.safetensors", 10 << 20)];

/// Rust files and functions keep their limits.
pub(super) fn lines(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for source in tree.rust(&[""], &mut findings) {
        let lines = source.text.lines().count();
        if lines > FILE_LINES {
            findings.broken(
                source.path,
                FILE_LINES + 1,
                format!("{lines} lines, limit {FILE_LINES}: split it"),
            );
        }
        for function in source.functions().iter().filter(|f| f.lines > FUNCTION_LINES) {
            let message = format!("`{}` has {} lines, limit {FUNCTION_LINES}", function.name, function.lines);
            findings.broken(source.path, function.line, message);
        }
    }
    findings
}

/// The repository stays quick to clone.
pub(super) fn bytes(tree: &Tree) -> Findings {
    let mut findings = Findings { seen: tree.files.len(), ..Findings::default() };
    for file in &tree.files {
        let limit =
            LARGE_FILES.iter().find(|(path, _)| *path == file.path).map_or(FILE_BYTES, |(_, limit)| *limit);
        if file.bytes > limit {
            findings.broken(&file.path, 0, format!("{} bytes, limit {limit}", file.bytes));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(findings: &Findings) -> Vec<String> {
        findings.violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn long_files_are_found() {
        let file = |lines: usize| format!("//- a.rs\n{}", "//\n".repeat(lines));
        assert_eq!(messages(&lines(&Tree::fixture(&file(800)))), [""; 0]);
        assert_eq!(
            messages(&lines(&Tree::fixture(&file(801)))),
            ["a.rs:801: 801 lines, limit 800: split it"]
        );
    }

    #[test]
    fn long_functions_are_found() {
        let file =
            |lines: usize| format!("//- a.rs\n\nfn f() {{\n{}}}\nfn g() {{}}", "x;\n".repeat(lines - 2));
        assert_eq!(messages(&lines(&Tree::fixture(&file(80)))), [""; 0]);
        assert_eq!(messages(&lines(&Tree::fixture(&file(81)))), ["a.rs:2: `f` has 81 lines, limit 80"]);
    }

    #[test]
    fn large_files_are_found() {
        let sized = |path: &str, bytes: u64| {
            let mut tree = Tree::fixture(&format!("//- {path}"));
            tree.files[0].bytes = bytes;
            messages(&super::bytes(&tree))
        };
        assert_eq!(sized("a.bin", 4_000_000), [""; 0]);
        assert_eq!(sized("a.bin", 4_000_001), ["a.bin: 4000001 bytes, limit 4000000"]);
        assert_eq!(sized("models/demo/model.safetensors", 8 << 20), [""; 0]);
        assert_eq!(sized("models/demo/model.safetensors", (8 << 20) + 1).len(), 1);
    }
}
