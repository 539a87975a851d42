//! Size limits of files and lines; those of functions are in `clippy.toml`.

use super::tree::{Findings, Tree};

/// Maximum lines of a Rust file.
const FILE_LINES: usize = 800;

/// Maximum characters of a line of code: `max_width` of rustfmt.toml, which rustfmt applies to lines that it can
/// break.
const CODE_WIDTH: usize = 110;

/// Maximum characters of a line with a comment. The settings of rustfmt for it (`comment_width`, `error_on_line_overflow`) have no
/// effect in the pinned toolchain, which is stable.
const COMMENT_WIDTH: usize = 140;

/// Maximum bytes of a file in the repository.
const FILE_BYTES: u64 = 4_000_000;

/// Exceptions, with their limits.
const LARGE_FILES: [(&str, u64); 2] =
    [("models/demo/model.safetensors", 8 << 20), ("models/demo-diffusion/model.safetensors", 10 << 20)];

/// Checks the lengths of Rust files.
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
    }
    findings
}

/// Checks the widths of code and comment lines. Lines with literals are exempt: a pattern, a page or a JSON document is
/// not broken to fit.
pub(super) fn width(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for source in tree.rust(&[""], &mut findings) {
        let views = source.text.lines().zip(source.comments.lines()).zip(source.code().lines());
        for (index, ((text, comment), code)) in views.enumerate() {
            let characters = text.trim_end().chars().count();
            let (what, limit) = if !comment.trim().is_empty() {
                ("a comment", COMMENT_WIDTH)
            } else if code.trim_end() == text.trim_end() {
                ("code", CODE_WIDTH)
            } else {
                continue;
            };
            if characters > limit {
                let message = format!("{what} of {characters} characters, limit {limit}");
                findings.broken(source.path, index + 1, message);
            }
        }
    }
    findings
}

/// Checks file sizes, so that the repository is quick to clone.
pub(super) fn bytes(tree: &Tree) -> Findings {
    let mut findings = Findings { seen: tree.files.len(), ..Findings::default() };
    findings.expect(tree, &LARGE_FILES.map(|(path, _)| path));
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
    fn wide_lines_are_found() {
        let found = |line: &str| messages(&width(&Tree::fixture(&format!("//- a.rs\n//! A.\n{line}\n"))));
        let line = |before: &str, length: usize, after: &str| {
            format!("{before}{}{after}", "x".repeat(length - before.len() - after.len()))
        };
        assert_eq!(found(&line("", 110, "")), [""; 0]);
        assert_eq!(found(&line("", 111, "")), ["a.rs:2: code of 111 characters, limit 110"]);
        assert_eq!(found(&line("// ", 140, "")), [""; 0]);
        assert_eq!(found(&line("// ", 141, "")), ["a.rs:2: a comment of 141 characters, limit 140"]);
        assert_eq!(found(&line("y; // ", 141, "")), ["a.rs:2: a comment of 141 characters, limit 140"]);
        assert_eq!(found(&line("let y = \"", 200, "\";")), [""; 0]);
        assert_eq!(found(&format!("// {}", "\u{e9}".repeat(137))), [""; 0], "characters, not bytes");
    }

    #[test]
    fn the_width_of_code_is_that_of_rustfmt() {
        let tree = Tree::read(crate::root()).expect("the repository can be read");
        let settings = &tree.file("rustfmt.toml").expect("rustfmt.toml").text;
        assert!(settings.lines().any(|line| line == format!("max_width = {CODE_WIDTH}")), "{settings}");
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
