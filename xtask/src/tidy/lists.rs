//! List rules: a folder, the modules declared in its `mod.rs`, and its registry contain the same names.

use std::collections::BTreeSet;

use super::source::Source;
use super::tree::{Findings, Tree};

/// A folder with modules of one kind.
struct List {
    folder: &'static str,
    /// Files, one of which contains the `ALL` that names every module; empty if there is no registry.
    registry: &'static [&'static str],
}

const LISTS: &[List] = &[
    List { folder: "crates/redline-models/src/arch", registry: &["crates/redline-models/src/arch/mod.rs"] },
    List {
        folder: "crates/redline-kernels/src/format",
        registry: &["crates/redline-kernels/src/format/mod.rs"],
    },
    List { folder: "crates/redline-kernels/src/op", registry: &[] },
    List {
        folder: "crates/redline-simd/src/isa",
        registry: &["crates/redline-simd/src/isa/mod.rs", "crates/redline-simd/src/detect.rs"],
    },
    List { folder: "crates/redline-lab/src/lanes", registry: &["crates/redline-lab/src/lanes/mod.rs"] },
    List { folder: "crates/redline-engine/src/mode", registry: &[] },
    List {
        folder: "crates/redline-weights/src/gguf/block",
        registry: &["crates/redline-weights/src/gguf/block/mod.rs"],
    },
    List {
        folder: "crates/redline-server/src/routes",
        registry: &["crates/redline-server/src/routes/mod.rs"],
    },
];

/// Every file of a folder is declared, every declaration has a file, and the registry contains them all.
pub(super) fn lists(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for list in LISTS {
        let index = format!("{}/mod.rs", list.folder);
        let Some(file) = tree.file(&index) else {
            if tree.has(&format!("{}/", list.folder)) {
                findings.broken(&index, 0, "is missing: it is the list of its folder");
            } else {
                findings.absent.push(format!("{}/", list.folder));
            }
            continue;
        };
        findings.seen += 1;
        findings.expect(tree, list.registry);
        let declared = declared(&Source::new(&file.path, &file.text));
        let present = present(tree, list.folder);
        for name in present.difference(&declared) {
            findings.broken(&index, 0, format!("`mod {name};` is missing, but `{name}.rs` is there"));
        }
        for name in declared.difference(&present) {
            findings.broken(&index, 0, format!("`mod {name};` has no file beside it"));
        }
        if !list.registry.is_empty() {
            check_registry(tree, list, &declared, &mut findings);
        }
    }
    findings
}

/// The declared modules that have their own file.
fn declared(index: &Source) -> BTreeSet<String> {
    let modules = index.find(index.all(), "mod").into_iter();
    modules.filter(|at| index.token(at + 2) == ";").map(|at| index.token(at + 1).to_string()).collect()
}

/// The modules in `folder`, as files or folders.
fn present(tree: &Tree, folder: &str) -> BTreeSet<String> {
    let inside = tree.files.iter().filter_map(|f| f.path.strip_prefix(folder)?.strip_prefix('/'));
    let module = |path: &str| match path.split_once('/') {
        Some((name, _)) => Some(name.to_string()),
        None => path.strip_suffix(".rs").filter(|name| *name != "mod").map(str::to_string),
    };
    inside.filter_map(module).collect()
}

/// Reports modules that are missing in the registry's `ALL`.
fn check_registry(tree: &Tree, list: &List, declared: &BTreeSet<String>, findings: &mut Findings) {
    let files = list.registry.iter().filter_map(|path| tree.file(path));
    let named: Vec<BTreeSet<String>> =
        files.filter_map(|file| names_in_all(&Source::new(&file.path, &file.text))).collect();
    let place = list.registry[0];
    if named.is_empty() {
        findings.broken(place, 0, "has no list `const ALL`");
        return;
    }
    for module in declared.iter().filter(|m| !m.ends_with("tests")) {
        if !named.iter().any(|names| names.contains(&plain(module))) {
            findings.broken(place, 0, format!("`ALL` does not name `{module}`"));
        }
    }
}

/// The identifiers in the value of `const ALL`, normalised.
fn names_in_all(source: &Source) -> Option<BTreeSet<String>> {
    let starts = source.find(source.all(), "ALL :");
    let start =
        starts.into_iter().find(|&at| at > 0 && matches!(source.token(at - 1), "const" | "static"))?;
    let value = source.outside_brackets(start, &["="]);
    let end = source.outside_brackets(value, &[";"]);
    Some((value..end).map(|at| plain(source.token(at))).collect())
}

/// A name in lower case without underscores, so that a module matches its variant.
fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}
