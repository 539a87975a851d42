//! Location rules for instructions, unsafe code, files and the network.

use super::source::Source;
use super::tree::{Findings, Tree};

/// The folders to which the rules apply: all Rust code except xtask.
const PRODUCT: &[&str] = &["crates/", "bindings/"];

/// The crates that may use unsafe code.
const UNSAFE: &[&str] = &["crates/redline-simd/", "crates/redline-system/", "crates/redline-kernels/"];

/// Sources of `PRODUCT`, without those in `exempt`.
fn product<'a>(tree: &'a Tree, exempt: &[&str], findings: &mut Findings) -> Vec<Source<'a>> {
    findings.expect(tree, exempt);
    let mut sources = tree.rust(PRODUCT, findings);
    sources.retain(|s| !exempt.iter().any(|e| s.path.starts_with(e)));
    sources
}

/// Reports every mention of `paths` in `sources`.
fn forbid(sources: &[Source], paths: &[&str], why: &str, findings: &mut Findings) {
    for source in sources {
        for path in paths {
            for line in source.mentions(path) {
                findings.broken(source.path, line, format!("`{path}` {why}"));
            }
        }
    }
}

/// Machine instructions are used only in redline-simd.
pub(super) fn instructions(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let sources = product(tree, &["crates/redline-simd/"], &mut findings);
    let paths = ["core::arch", "std::arch", "is_x86_feature_detected", "is_aarch64_feature_detected", "asm"];
    forbid(&sources, &paths, "outside redline-simd", &mut findings);
    findings
}

/// Only the crates in `UNSAFE` contain unsafe code; every other crate forbids it.
pub(super) fn unsafe_code(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    findings.expect(tree, UNSAFE);
    let sources = tree.rust(&["crates/", "xtask/"], &mut findings);
    for source in sources.iter().filter(|s| !UNSAFE.iter().any(|u| s.path.starts_with(u))) {
        for at in source.find(source.all(), "unsafe") {
            let message = "`unsafe` outside redline-simd, redline-system and redline-kernels";
            findings.broken(source.path, source.line(at), message);
        }
        if is_root(source.path) && source.find(source.all(), "# ! [ forbid ( unsafe_code ) ]").is_empty() {
            findings.broken(source.path, 0, "`#![forbid(unsafe_code)]` is missing");
        }
    }
    findings
}

/// Whether the file is the root of a library or a binary.
fn is_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/")
}

/// The engine accesses files only through redline-weights, and uses neither network nor processes.
pub(super) fn engine(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let sources = tree.rust(&["crates/redline-engine/src/"], &mut findings);
    let files = ["std::fs", "fs::read", "fs::write", "File::open", "File::create", "OpenOptions::new"];
    forbid(&sources, &files, "in the engine: files are reached through redline-weights", &mut findings);
    forbid(&sources, &["std::net", "std::process"], "in the engine", &mut findings);
    findings
}

/// Calls that change files or directories.
const WRITES: &[&str] = &[
    "fs::write",
    "fs::copy",
    "fs::rename",
    "fs::hard_link",
    "fs::create_dir",
    "fs::create_dir_all",
    "fs::remove_file",
    "fs::remove_dir",
    "fs::remove_dir_all",
    "File::create",
    "File::create_new",
    "File::options",
    "OpenOptions::new",
];

/// Only one file of redline-weights changes files and directories, so that tests can observe and fail every operation. In
/// addition, the CLI appends to traces, profiles and files of answers.
pub(super) fn writes(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let exempt = [
        "crates/redline-weights/src/disk.rs",
        "crates/redline-cli/src/trace.rs",
        "crates/redline-cli/src/profile.rs",
        "crates/redline-cli/src/jsonl/target.rs",
        // What tests leave for the summary.
        "crates/redline-testing/src/skip.rs",
        // Machines as file trees, below a temporary directory.
        "crates/redline-testing/src/trees.rs",
        // The file of a Unix socket has no content.
        "crates/redline-server/src/socket.rs",
    ];
    let mut sources = product(tree, &exempt, &mut findings);
    sources.retain(|s| s.path.contains("/src/") && !s.path.ends_with("tests.rs"));
    for source in &sources {
        for path in WRITES {
            for line in source.mentions(path).into_iter().filter(|&line| !source.in_tests(line)) {
                let message = format!("`{path}` outside redline-weights/src/disk.rs: write through a `Disk`");
                findings.broken(source.path, line, message);
            }
        }
    }
    findings
}

/// Libraries that any front end may call.
const LIBRARIES: &[&str] = &[
    "crates/redline-settings/src/",
    "crates/redline-simd/src/",
    "crates/redline-system/src/",
    "crates/redline-kernels/src/",
    "crates/redline-weights/src/",
    "crates/redline-hub/src/",
    "crates/redline-tokenizer/src/",
    "crates/redline-models/src/",
    "crates/redline-engine/src/",
    "crates/redline-api/src/",
    "crates/redline-server/src/",
];

/// Messages of a library do not name flags, command lines or environment variables, because a front end may have none.
pub(super) fn front_ends(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let mut sources = tree.rust(LIBRARIES, &mut findings);
    sources.retain(|s| !s.path.ends_with("tests.rs"));
    for source in &sources {
        let names_flag = |line: &str| {
            line.match_indices("--").any(|(at, _)| {
                let before = line[..at].bytes().next_back();
                let after = line[at + 2..].bytes().next();
                before.is_none_or(|b| !b.is_ascii_graphic() || b == b'`')
                    && after.is_some_and(|b| b.is_ascii_lowercase())
            })
        };
        for (index, line) in
            source.literals.lines().enumerate().filter(|(index, _)| !source.in_tests(index + 1))
        {
            let names = names_flag(line) || line.contains("`redline ") || line.contains("REDLINE_");
            if names {
                let message = "the words of the command line in a library: name a `Setting` or a `Command` of redline-settings";
                findings.broken(source.path, index + 1, message);
            }
        }
    }
    findings
}

/// Only the server, its client, the client of the hub and the servers in redline-testing use the network; this applies to tests too,
/// except those of the server's sockets.
pub(super) fn network(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let sources = product(
        tree,
        &[
            "crates/redline-server/",
            "crates/redline-client/",
            "crates/redline-hub/",
            "crates/redline-testing/",
            "crates/redline-cli/tests/it/deploy.rs",
        ],
        &mut findings,
    );
    let why = "outside redline-server, redline-client and redline-hub";
    forbid(&sources, &["std::net", "os::unix::net"], why, &mut findings);
    findings
}

/// Functions of `f32` and `f64` whose last bit depends on the platform.
const INEXACT: &[&str] = &[
    "exp", "exp2", "exp_m1", "ln", "ln_1p", "log2", "log10", "sin", "cos", "tan", "sin_cos", "sinh", "cosh",
    "tanh", "asin", "acos", "atan", "cbrt",
];

/// Results do not depend on the platform's math library: kernels have their own functions, all other code uses
/// libm's.
pub(super) fn same_bits(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let rooms = ["crates/redline-kernels/src/", "crates/redline-models/src/", "crates/redline-engine/src/"];
    let mut sources = tree.rust(&rooms, &mut findings);
    sources.retain(|s| !s.path.ends_with("tests.rs"));
    for source in &sources {
        let methods = INEXACT.iter().map(|name| (*name, format!(". {name} ( )")));
        let with_arguments = ["powf", "powi", "atan2", "hypot"].map(|name| (name, format!(". {name} (")));
        for (name, pattern) in methods.chain(with_arguments) {
            for at in source.find(source.all(), &pattern) {
                let line = source.line(at);
                if !source.in_tests(line) {
                    let message = format!("`{name}` differs between platforms: use libm or the kernels' own");
                    findings.broken(source.path, line, message);
                }
            }
        }
    }
    findings
}
