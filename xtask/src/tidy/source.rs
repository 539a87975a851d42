//! A Rust file as seen by the checks: tokens, functions, imports.

use std::ops::{Range, RangeInclusive};

use super::lexer::{self, Token};

/// A Rust file of the repository.
pub(super) struct Source<'a> {
    /// Path from the root of the repository, with `/`.
    pub(super) path: &'a str,
    /// The whole text.
    pub(super) text: &'a str,
    /// Only the comments, at their positions.
    pub(super) comments: String,
    /// Only the literals, at their positions.
    pub(super) literals: String,
    code: String,
    tokens: Vec<Token>,
    /// The lines of each `#[cfg(test)] mod`.
    tests: Vec<RangeInclusive<usize>>,
}

/// A named function.
#[derive(Debug)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    /// The line of `fn`.
    pub(super) line: usize,
    /// Tokens between the name and the body.
    pub(super) signature: Range<usize>,
    /// Tokens of the body, including braces; empty for a declaration.
    pub(super) body: Range<usize>,
}

/// An imported path, with groups expanded.
struct Import<'a> {
    path: Vec<&'a str>,
    renamed: bool,
    line: usize,
}

impl<'a> Source<'a> {
    /// Tokenises the file.
    pub(super) fn new(path: &'a str, text: &'a str) -> Self {
        let lexer::Views { code, comments, literals } = lexer::views(text);
        let tokens = lexer::tokens(&code);
        let mut source = Self { path, text, comments, literals, code, tokens, tests: Vec::new() };
        for at in source.find(source.all(), "# [ cfg ( test ) ] mod") {
            let open = source.outside_brackets(at + 7, &["{", ";"]);
            if source.token(open) == "{" {
                source.tests.push(source.line(at)..=source.line(source.closing(open)));
            }
        }
        source
    }

    /// Only the code, at its positions.
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// All tokens, as a range for [`Source::find`].
    pub(super) fn all(&self) -> Range<usize> {
        0..self.tokens.len()
    }

    /// The text of a token; empty past the end.
    pub(super) fn token(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |t| &self.code[t.span.clone()])
    }

    /// The line of a token; past the end, that of the last token.
    pub(super) fn line(&self, at: usize) -> usize {
        self.tokens.get(at).or(self.tokens.last()).map_or(1, |t| t.line)
    }

    /// The indices in `range` where the tokens of `pattern`, separated by spaces, begin.
    pub(super) fn find(&self, range: Range<usize>, pattern: &str) -> Vec<usize> {
        let pattern: Vec<&str> = pattern.split(' ').collect();
        let fits = |&at: &usize| pattern.iter().enumerate().all(|(i, p)| self.token(at + i) == *p);
        range.filter(fits).collect()
    }

    /// Lines that mention `path` (`a::b`) in code or in an import: directly, in a group, by `*`, or by renaming the
    /// second to last part.
    pub(super) fn mentions(&self, path: &str) -> Vec<usize> {
        let inline = self.find(self.all(), &path.replace("::", " :: "));
        let mut lines: Vec<usize> = inline.into_iter().map(|at| self.line(at)).collect();
        let parts: Vec<&str> = path.split("::").collect();
        let (last, parents) = parts.split_last().expect("a path has a part");
        for import in self.imports() {
            let direct = import.path.windows(parts.len()).any(|w| w == parts);
            let glob = import.path.split_last().is_some_and(|(l, p)| *l == "*" && p.ends_with(parents));
            let hidden = import.renamed && !parents.is_empty() && import.path.ends_with(parents);
            if direct || (glob && !parents.is_empty() && *last != "*") || hidden {
                lines.push(import.line);
            }
        }
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// The paths of all `use` declarations, with their lines.
    pub(super) fn imported(&self) -> Vec<(Vec<&str>, usize)> {
        self.imports().into_iter().map(|import| (import.path, import.line)).collect()
    }

    /// The paths of all `use` declarations.
    fn imports(&self) -> Vec<Import<'_>> {
        let mut imports = Vec::new();
        for at in self.find(self.all(), "use") {
            self.import(at + 1, Vec::new(), &mut imports);
        }
        imports
    }

    /// Parses one tree of a `use` and returns the index of the token after it.
    fn import<'s>(&'s self, mut at: usize, mut path: Vec<&'s str>, out: &mut Vec<Import<'s>>) -> usize {
        let line = self.line(at);
        loop {
            match self.token(at) {
                "{" => {
                    at += 1;
                    while !matches!(self.token(at), "}" | ";" | "") {
                        at = self.import(at, path.clone(), out);
                        at += usize::from(self.token(at) == ",");
                    }
                    return at + 1;
                }
                "as" => {
                    out.push(Import { path, renamed: self.token(at + 1) != "_", line });
                    return at + 2;
                }
                "::" => at += 1,
                part if part.bytes().all(lexer::is_word) && !part.is_empty() || part == "*" => {
                    path.push(part);
                    at += 1;
                }
                _ => {
                    out.push(Import { path, renamed: false, line });
                    return at;
                }
            }
        }
    }

    /// All named functions, including nested ones.
    pub(super) fn functions(&self) -> Vec<Function<'_>> {
        let named =
            |at: &usize| self.token(at + 1).bytes().all(lexer::is_word) && !self.token(at + 1).is_empty();
        self.find(self.all(), "fn").into_iter().filter(named).map(|at| self.function(at)).collect()
    }

    /// The function whose `fn` is the token at `at`.
    fn function(&self, at: usize) -> Function<'_> {
        let end = self.outside_brackets(at, &["{", ";"]);
        let body = if self.token(end) == "{" { end..self.closing(end) + 1 } else { end..end };
        Function { name: self.token(at + 1), line: self.line(at), signature: at + 1..end, body }
    }

    /// The first token from `at` on that is one of `stops` and not inside parentheses or square brackets.
    pub(super) fn outside_brackets(&self, mut at: usize, stops: &[&str]) -> usize {
        let mut depth = 0_i32;
        while at < self.tokens.len() {
            match self.token(at) {
                "(" | "[" => depth += 1,
                ")" | "]" => depth -= 1,
                token if depth == 0 && stops.contains(&token) => break,
                _ => {}
            }
            at += 1;
        }
        at
    }

    /// The token that closes the brace at `open`; the last token if there is none.
    pub(super) fn closing(&self, open: usize) -> usize {
        let mut depth = 0_i32;
        for at in open..self.tokens.len() {
            depth += i32::from(self.token(at) == "{") - i32::from(self.token(at) == "}");
            if depth == 0 {
                return at;
            }
        }
        self.tokens.len() - 1
    }

    /// Whether a line is inside a `#[cfg(test)] mod`.
    pub(super) fn in_tests(&self, line: usize) -> bool {
        self.tests.iter().any(|lines| lines.contains(&line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mentions(text: &str, path: &str) -> Vec<usize> {
        Source::new("x.rs", text).mentions(path)
    }

    #[test]
    fn a_path_is_found_however_it_is_imported() {
        assert_eq!(mentions("\nstd::env::var(x);", "env::var"), [2]);
        assert_eq!(mentions("use std::{fs, env::{args, var}};\nvar(x)", "env::var"), [1]);
        assert_eq!(mentions("use std::env::*;", "env::var"), [1]);
        assert_eq!(mentions("use std::env as e; e::var(x)", "env::var"), [1]);
        assert_eq!(mentions("use core::{arch::x86_64::*, mem};", "core::arch"), [1]);
    }

    #[test]
    fn other_paths_are_not_found() {
        assert_eq!(mentions("use std::env::{args, vars};", "env::var"), [0; 0]);
        assert_eq!(mentions("use std::time::Duration; // Instant::now()", "Instant::now"), [0; 0]);
        assert_eq!(mentions("fn f() -> impl use<'a> Sized; \"env::var\"", "env::var"), [0; 0]);
    }

    #[test]
    fn functions_end_where_their_braces_do() {
        let text =
            "impl X {\n fn a(x: [u8; 2]) -> T where [(); N]: Y {\n '}'; \"}\"; { }\n }\n fn b();\n}\nfn(c)";
        let source = Source::new("x.rs", text);
        let last = |f: &Function| f.body.clone().last().map_or(0, |at| source.line(at));
        let found: Vec<_> = source.functions().iter().map(|f| (f.name, f.line, last(f))).collect();
        assert_eq!(found, [("a", 2, 4), ("b", 5, 0)]);
    }

    #[test]
    fn test_modules_are_known() {
        let source = Source::new("x.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n a();\n}\nfn b() {}");
        let inside: Vec<usize> = (1..=6).filter(|&line| source.in_tests(line)).collect();
        assert_eq!(inside, [2, 3, 4, 5]);
    }

    #[test]
    fn broken_code_ends_too() {
        for text in ["use a::{b", "use a::{b;", "fn f(", "fn f() {", "fn", "use", "'", "\"", "r#\"", "b'"] {
            let source = Source::new("x.rs", text);
            assert!(source.functions().len() <= 1);
            assert!(source.mentions("x::y").is_empty());
        }
    }
}
