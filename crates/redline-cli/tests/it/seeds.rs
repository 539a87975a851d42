//! The commands and names in `docs/seeds.md` and other documents: what they name exists, and the commands run.
//!
//! The last cell of every row of `docs/seeds.md` says how the row is verified; the beginning of the document lists the forms. The
//! commands of a section run row by row in one directory, so that a row may use the output of an earlier one. Every command has
//! names that its output must show.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use crate::harness::{command, commands, finish, redline};
use crate::shown::shows;

/// The document.
static MAP: LazyLock<String> = LazyLock::new(|| read("docs/seeds.md"));
/// The sections that are about a seed.
const SEEDS: [&str; 5] = ["Score", "Generation", "Diffusion", "Plans", "Kernels"];
/// Minimum length in bytes of the reason why a program is missing.
const REASON: usize = 20;

/// A row of a table in the document.
#[derive(Debug)]
struct Row {
    line: usize,
    section: &'static str,
    cells: Vec<&'static str>,
}

/// A command whose output is checked.
#[derive(Debug, PartialEq)]
struct Checked {
    command: &'static str,
    /// What the output shows.
    names: Vec<&'static str>,
    /// The file with the output; `None`: standard output.
    file: Option<&'static str>,
    /// The exit code that it ends with.
    code: i32,
}

/// How a row is verified.
#[derive(Debug, PartialEq)]
enum Proof {
    /// A command.
    Run(Checked),
    /// The names of tests.
    Tests(Vec<&'static str>),
    /// A heading of a document.
    See(&'static str, &'static str),
    /// A missing feature, with the reason.
    Missing(&'static str),
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}: {}", path.display()))
}

/// The rows of all tables, without header rows.
fn rows() -> Vec<Row> {
    let (mut rows, mut section, mut in_table) = (Vec::new(), "", false);
    for (index, text) in MAP.lines().enumerate() {
        if let Some(title) = text.strip_prefix("## ") {
            section = title;
        }
        let Some(inner) = text.strip_prefix('|').and_then(|text| text.strip_suffix('|')) else {
            in_table = false;
            continue;
        };
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        if !in_table {
            assert_eq!(cells.len(), 3, "line {}: {text}", index + 1);
            assert_eq!(cells[2], "proof", "line {}: {text}", index + 1);
        } else if !inner.starts_with("---") {
            rows.push(Row { line: index + 1, section, cells });
        }
        in_table = true;
    }
    rows
}

/// The texts between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

impl Row {
    /// The forms of verification in the last cell.
    fn proofs(&self) -> Vec<Proof> {
        assert_eq!(self.cells.len(), 3, "line {}: {:?}", self.line, self.cells);
        self.cells[2].split("; ").map(|text| self.proof(text)).collect()
    }

    fn proof(&self, text: &'static str) -> Proof {
        let line = self.line;
        if let Some(reason) = text.strip_prefix("not built yet: ") {
            return Proof::Missing(reason);
        }
        if let Some(rest) = text.strip_prefix("see ") {
            let place = rest.split_once("](").and_then(|(_, place)| place.strip_suffix(')'));
            let place = place.and_then(|place| place.split_once('#'));
            let (file, heading) =
                place.unwrap_or_else(|| panic!("line {line}: no link to a heading: {text}"));
            return Proof::See(file, heading);
        }
        if text.starts_with("test ") {
            return Proof::Tests(quoted(text));
        }
        let Some(rest) = text.strip_prefix("run ") else { panic!("line {line}: proved by what? {text}") };
        Proof::Run(checked(rest).unwrap_or_else(|why| panic!("line {line}: {why}: {text}")))
    }
}

/// Reads a command, its names, and perhaps a file and an exit code.
fn checked(text: &'static str) -> Result<Checked, String> {
    let (text, code) = text.split_once("` exits ").unwrap_or((text, "0"));
    let code = code.parse().map_err(|error| format!("{error}: {code}"))?;
    let mut parts = text.splitn(3, '`').skip(1);
    let command = parts.next().ok_or("no command")?;
    let expected = parts.next().and_then(|rest| rest.strip_prefix(" shows "));
    let expected = expected.ok_or("no names that its output shows")?;
    let (names, file) = expected
        .split_once(" in `")
        .map_or((expected, None), |(names, file)| (names, Some(file.trim_end_matches('`'))));
    let names = quoted(names);
    if names.is_empty() || names.contains(&"") {
        return Err("an empty name".to_owned());
    }
    Ok(Checked { command, names, file, code })
}

/// The words of a command, with the flags that the document adds.
fn words(line: &str) -> Vec<String> {
    let mut words = shlex::split(line).unwrap_or_else(|| panic!("an open quote in {line}"));
    assert_eq!(words.remove(0), "redline", "{line}");
    if words[0] == "bench" && !words[1].starts_with('-') {
        if !words.iter().any(|word| word == "--portable") {
            words.push("--portable".to_owned());
        }
        for (flag, value) in [("--profile", "smoke"), ("--threads", "1")] {
            if !words.iter().any(|word| word.split('=').next() == Some(flag)) {
                words.extend([flag.to_owned(), value.to_owned()]);
            }
        }
    }
    words
}

/// Runs the commands of a section in order.
fn run_section(section: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("prompts.txt"),
        "The quick brown fox\nbenchmarks are read, not believed\n".repeat(4),
    )
    .unwrap();
    fs::create_dir(folder.path().join("model")).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(root().join("models/demo").join(name), folder.path().join("model").join(name)).unwrap();
    }
    let (mut ran, mut wrong) = (0, Vec::new());
    for row in rows().iter().filter(|row| row.section == section) {
        for proof in row.proofs() {
            let Proof::Run(checked) = proof else { continue };
            if let Err(why) = checked.run(folder.path()) {
                wrong.push(format!("line {}: `{}`: {why}", row.line, checked.command));
            }
            ran += 1;
        }
    }
    assert!(ran > 0, "no command in section {section}");
    assert!(wrong.is_empty(), "{} of {ran} commands:\n{}", wrong.len(), wrong.join("\n"));
}

impl Checked {
    /// Runs the command in a directory, which is also the home directory, below which plans are stored.
    fn run(&self, folder: &Path) -> Result<(), String> {
        let words = words(self.command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = command(&words);
        command.env("HOME", folder).current_dir(folder).stdin(Stdio::null());
        let run = finish(command.output().map_err(|error| error.to_string())?);
        let output = format!("{}\n{}", run.out, run.err);
        if self.code != run.code || run.err.contains("panicked") {
            return Err(format!("it ended with {}\n{output}", run.code));
        }
        let text = match self.file {
            Some(file) => {
                fs::read_to_string(folder.join(file)).map_err(|error| format!("{file}: {error}"))?
            }
            None => run.out,
        };
        match self.names.iter().find(|name| !shows(&text, name)) {
            Some(name) => Err(format!("no `{name}` in {}\n{output}", self.file.unwrap_or("standard output"))),
            None => Ok(()),
        }
    }
}

#[test]
fn score_commands_run() {
    run_section(SEEDS[0]);
}

#[test]
fn generation_commands_run() {
    run_section(SEEDS[1]);
}

#[test]
fn diffusion_commands_run() {
    run_section(SEEDS[2]);
}

#[test]
fn plan_commands_run() {
    run_section(SEEDS[3]);
}

#[test]
fn kernel_commands_run() {
    run_section(SEEDS[4]);
}

/// The source of a test `crate::module::name`, if it exists.
fn is_a_test(path: &str) -> bool {
    let parts: Vec<&str> = path.split("::").filter(|part| *part != "tests").collect();
    let [package, modules @ .., name] = &parts[..] else { return false };
    let folder =
        if package.starts_with("redline-") { format!("crates/{package}") } else { (*package).to_owned() };
    let module = modules.join("/");
    let files = ["tests/it/{}.rs", "src/{}.rs", "src/{}/mod.rs"];
    let files = files.map(|file| root().join(&folder).join(file.replace("{}", &module)));
    let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    text.find(&format!("fn {name}(")).is_some_and(|at| text[..at].trim_end().ends_with("#[test]"))
}

/// The anchors of a document's headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title.chars().filter(|c| kept(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_row_is_proved() {
    let rows = rows();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &rows {
        assert!(SEEDS.contains(&row.section), "line {}: no seed is called {}", row.line, row.section);
        let told = |proof: &Proof| matches!(proof, Proof::See(..) | Proof::Missing(_));
        let elsewhere = row.proofs().iter().all(told);
        let named = !row.cells[0].is_empty() && (elsewhere || !row.cells[1].is_empty());
        assert!(named, "line {}: an empty cell", row.line);
        for proof in row.proofs() {
            match &proof {
                Proof::Run(Checked { command, .. }) => {
                    assert!(command.starts_with("redline "), "line {}: {command}", row.line);
                }
                Proof::Tests(names) => {
                    assert!(!names.is_empty(), "line {}", row.line);
                    for name in names {
                        assert!(is_a_test(name), "line {}: there is no test `{name}`", row.line);
                    }
                }
                Proof::See(file, heading) => {
                    let there = anchors(&read(Path::new("docs").join(file))).iter().any(|one| one == heading);
                    assert!(there, "line {}: {file} has no heading #{heading}", row.line);
                }
                Proof::Missing(what) => {
                    let whole = what.len() >= REASON && what.contains("comes with");
                    assert!(whole, "line {}: what is missing, and what does it come with? {what}", row.line);
                }
            }
        }
        *counts.entry(row.section).or_default() += 1;
    }
    assert!(SEEDS.iter().all(|seed| counts.get(seed) > Some(&10)), "{counts:?}");
}

#[test]
fn a_command_has_names_that_its_output_shows() {
    let of = |text| checked(text).map(|checked| (checked.command, checked.names, checked.file, checked.code));
    assert_eq!(of("`redline a` shows `b`, `c d=1`"), Ok(("redline a", vec!["b", "c d=1"], None, 0)));
    let both = of("`redline a -o f` shows `b` in `f/g.csv` exits 1");
    assert_eq!(both, Ok(("redline a -o f", vec!["b"], Some("f/g.csv"), 1)));
    for bad in [
        "`redline a`",
        "`redline a` exits 0",
        "`redline a` shows b",
        "`redline a` shows ``",
        "`redline a` shows `b` exits 0 or 1",
        "`redline a` shows `b` exits never",
        "redline a shows b",
    ] {
        assert!(of(bad).is_err(), "{bad}");
    }
}

#[test]
fn names_that_are_no_test_are_told_apart() {
    assert!(is_a_test("redline-cli::seeds::every_row_is_proved"));
    assert!(is_a_test("redline-lab::lanes::plan_cache::tests::grades_are_those_of_the_seed"));
    assert!(!is_a_test("redline-cli::seeds::is_a_test") && !is_a_test("redline-cli::seeds::no_such"));
    assert_eq!(anchors("# A b\ntext\n## C, d: e-f\n"), ["a-b", "c-d-e-f"]);
}

/// The documents whose commands are checked.
fn documents() -> Vec<(String, String)> {
    let mut names = vec!["README.md".to_owned()];
    let listed = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let listed = listed.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"));
    names.extend(listed.map(|name| format!("docs/{}", name.to_string_lossy())));
    names.sort();
    names.into_iter().map(|name| (name.clone(), read(name))).collect()
}

/// The command lines of a document: code lines with their continuations, and inline code.
fn command_lines(text: &str) -> Vec<String> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for line in text.replace("\\\n", " ").lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let code = if fenced || line.starts_with("    ") { vec![line.trim()] } else { quoted(line) };
        let each = code.into_iter().flat_map(|code| code.split("; ")).map(str::trim);
        found.extend(each.filter(|code| code.starts_with("redline ")).map(str::to_owned));
    }
    found
}

/// The long flags among the words, including those of `--versus`, up to the next shell command.
fn flags(words: &[String]) -> Vec<String> {
    let own = words.iter().take_while(|word| !matches!(word.as_str(), "|" | ">" | "2>" | "&&" | "||" | ";"));
    let parts = own.flat_map(|word| word.split_whitespace());
    let long = parts.filter_map(|part| part.strip_prefix("--")).filter(|part| !part.is_empty());
    long.map(|part| part.split(['=', '.', '[']).next().unwrap_or_default().to_owned()).collect()
}

/// Whether a command knows a flag: its help lists it, or it is an alias, which clap does not reject as unknown.
fn knows(help: &str, command: &[&str], flag: &str) -> bool {
    let long = format!("--{}", flag.replace('_', "-"));
    let listed = help
        .match_indices(&long)
        .any(|(at, _)| !help[at + long.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-'));
    let given = format!("--{flag}");
    listed || !redline(&[command, &[given.as_str(), "--help"]].concat()).err.contains("unexpected argument")
}

#[test]
fn commands_in_the_documents_are_known() {
    let known = commands();
    let lanes: Vec<&str> = redline_lab::lanes::ALL.iter().map(|lane| lane.name).collect();
    let mut helps: BTreeMap<Vec<&str>, String> = BTreeMap::new();
    let mut lines = 0;
    for (name, text) in documents() {
        for line in command_lines(&text) {
            let words = shlex::split(&line).unwrap_or_else(|| panic!("{name}: an open quote in `{line}`"));
            let plain: Vec<&str> =
                words[1..].iter().map(String::as_str).take_while(|word| !word.starts_with('-')).collect();
            let Some(first) = plain.first() else {
                redline(&words[1..].iter().map(String::as_str).collect::<Vec<_>>()).ok();
                continue;
            };
            // If the document means any command or lane, use one that has all flags.
            let command = match known.iter().find(|command| command == first) {
                Some(command) => command.as_str(),
                None if *first == "CMD" => "score",
                None => panic!("{name}: no command `{first}` in `{line}`"),
            };
            let lane = plain.get(1).filter(|_| command == "bench").map(|lane| {
                let found = lanes.iter().copied().chain(["all"]).find(|known| known == lane);
                found
                    .or((*lane == "LANE").then_some("generate"))
                    .unwrap_or_else(|| panic!("{name}: no lane `{lane}` in `{line}`"))
            });
            let below = ["convert", "inspect", "merge"].into_iter();
            let below = below.filter(|name| command == "adapter" && plain.get(1) == Some(name));
            let path: Vec<&str> = [command].into_iter().chain(lane).chain(below).collect();
            let help = helps
                .entry(path.clone())
                .or_insert_with(|| redline(&[&path[..], &["--help-all"]].concat()).ok().out);
            for flag in flags(&words) {
                assert!(knows(help, &path, &flag), "{name}: `{path:?}` has no flag `--{flag}`, in `{line}`");
            }
            lines += 1;
        }
    }
    assert!(lines > 30, "{lines} command lines were found");
}

#[test]
fn command_lines_are_found_and_taken_apart() {
    let text = "a `redline x --a` b `other`\n```\nredline y --b-c=1 \\\n  --d 2 > f   # --no\n```\n    redline z\nredline w\n";
    assert_eq!(
        command_lines(text),
        ["redline x --a", "redline y --b-c=1    --d 2 > f   # --no", "redline z"]
    );
    let words = shlex::split("redline y --b_c=1 --versus '--d 2' > f --no # --no").unwrap();
    assert_eq!(flags(&words), ["b_c", "versus", "d"]);
    assert!(!knows("", &["bench", "gemm"], "no-such-flag") && knows("", &["bench", "gemm"], "trials"));
}
