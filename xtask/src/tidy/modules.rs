//! Modules: files of a crate do not import each other in circles, and a public type has a name of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use super::tree::{Findings, Tree};

/// The path of a module from the root of its crate.
type Module = Vec<String>;

/// The files of one crate as modules, and what each name that a module imports stands for.
struct Modules<'a> {
    files: BTreeMap<Module, &'a Source<'a>>,
    names: BTreeMap<(Module, String), Module>,
}

/// Crates whose folders still import each other in circles. The list may only get shorter.
const TANGLED: [&str; 1] = ["redline-weights"];

/// No file imports, directly or through others, a file that imports it, and no folder a folder beside it that imports it. Imports between
/// a module and those inside it are not followed, because `use super::Type` is usual; the report says how many circles that leaves out.
pub(super) fn circles(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    findings.expect(tree, &TANGLED.map(|name| format!("crates/{name}/")).each_ref().map(String::as_str));
    let mut nested = 0;
    for name in tree.crates() {
        let source_folder = format!("crates/{name}/src/");
        let sources = tree.rust(&[&source_folder], &mut findings);
        let all = Modules::new(&source_folder, &sources).imports();
        let imports = between_unrelated(&all);
        let found = groups(&imports);
        nested += groups(&all).len() - found.len();
        for circle in found {
            let files: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
            findings.broken(
                &source_folder,
                0,
                format!("these files import each other in a circle: {}", files.join(", ")),
            );
        }
        let circles = folder_circles(&imports);
        if circles.is_empty() && TANGLED.contains(&name) {
            let fact = "no folders import each other in a circle any more: take it off the list `TANGLED`";
            findings.broken(&source_folder, 0, fact.to_owned());
        }
        for circle in circles.iter().filter(|_| !TANGLED.contains(&name)) {
            let fact = format!("these folders import each other in a circle: {}", circle.join(", "));
            findings.broken(&source_folder, 0, fact);
        }
    }
    findings.left_out = format!("; not checked: {nested} circles through a module and one inside it");
    findings
}

/// The imports without those between a module and one inside it.
fn between_unrelated(imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeMap<Module, BTreeSet<Module>> {
    let of = |(from, to): (&Module, &BTreeSet<Module>)| {
        let unrelated = |other: &&Module| !other.starts_with(from) && !from.starts_with(other);
        (from.clone(), to.iter().filter(unrelated).cloned().collect())
    };
    imports.iter().map(of).collect()
}

/// The groups of folders, and files beside them, that can be reached from each other.
fn folder_circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<String>> {
    let mut beside: BTreeMap<&[String], BTreeMap<Module, BTreeSet<Module>>> = BTreeMap::new();
    for (from, to) in imports.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let folder = beside.entry(&from[..common]).or_default();
        folder.entry(to[..=common].to_vec()).or_default();
        folder.entry(from[..=common].to_vec()).or_default().insert(to[..=common].to_vec());
    }
    let joined = |circle: Vec<Module>| circle.iter().map(|module| module.join("/")).collect();
    beside.values().flat_map(groups).map(joined).collect()
}

impl<'a> Modules<'a> {
    fn new(source_folder: &str, sources: &'a [Source<'a>]) -> Self {
        let module = |path: &str| -> Module {
            let path = path.strip_prefix(source_folder).unwrap_or(path);
            let path = path.strip_suffix(".rs").unwrap_or(path);
            let mut parts: Module = path.split('/').map(str::to_string).collect();
            if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
                parts.pop();
            }
            parts
        };
        let files = sources.iter().filter(|source| !source.path.ends_with("/tests.rs"));
        let files = files.map(|source| (module(source.path), source)).collect();
        let mut modules = Self { files, names: BTreeMap::new() };
        let mut names = BTreeMap::new();
        for module in modules.files.keys() {
            for path in modules.paths(module) {
                if let (Some(target), Some(name)) = (modules.module_of(module, &path), path.last()) {
                    names.insert((module.clone(), name.clone()), target);
                }
            }
        }
        modules.names = names;
        modules
    }

    /// Every path of a module that may lead to another one: its imports, and paths in its code that begin at a module.
    fn paths(&self, module: &Module) -> Vec<Vec<String>> {
        let source = self.files[module];
        let mut paths: Vec<Vec<String>> = Vec::new();
        for (path, line) in source.imported() {
            if !source.in_tests(line) {
                paths.push(path.iter().map(ToString::to_string).collect());
            }
        }
        for start in ["crate", "super", "self"] {
            for at in source.find(source.all(), &format!("{start} ::")) {
                if source.in_tests(source.line(at)) || source.token(at.wrapping_sub(1)) == "::" {
                    continue;
                }
                let mut path = vec![start.to_string()];
                let mut at = at + 1;
                while source.token(at) == "::" && is_name(source.token(at + 1)) {
                    path.push(source.token(at + 1).to_string());
                    at += 2;
                }
                paths.push(path);
            }
        }
        paths
    }

    /// Splits a path into the module where it begins and the rest; `None` if it begins outside the crate.
    fn start<'p>(&self, module: &Module, path: &'p [String]) -> Option<(Module, &'p [String])> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((Module::new(), rest)),
            "self" => Some((module.clone(), rest)),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                Some((module[..module.len().checked_sub(ups)?].to_vec(), &path[ups..]))
            }
            child => {
                let own = [module.as_slice(), &[child.to_string()]].concat();
                self.files.contains_key(&own).then(|| (module.clone(), path))
            }
        }
    }

    /// The file that a path leads to, by the names of modules alone.
    fn module_of(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (mut at, rest) = self.start(module, path)?;
        for part in rest {
            let inner = [at.as_slice(), std::slice::from_ref(part)].concat();
            if !self.files.contains_key(&inner) {
                break;
            }
            at = inner;
        }
        Some(at)
    }

    /// The file that defines what a path names: modules pass on names that they import.
    fn definition(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut at = self.module_of(module, path)?;
        let name = path.last()?;
        let mut seen = BTreeSet::new();
        while let Some(next) = self.names.get(&(at.clone(), name.clone())) {
            if *next == at || !seen.insert(at.clone()) {
                break;
            }
            at.clone_from(next);
        }
        Some(at)
    }

    /// For each file, the files that it imports.
    fn imports(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let mut all = BTreeMap::new();
        for module in self.files.keys() {
            let targets = self.paths(module).into_iter().filter_map(|path| self.definition(module, &path));
            all.insert(module.clone(), targets.filter(|target| target != module).collect());
        }
        all
    }
}

/// Whether a token is a name.
fn is_name(token: &str) -> bool {
    token.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
}

/// The groups of files that can be reached from each other.
fn groups(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let reached = |from: &Module| {
        let mut seen: BTreeSet<&Module> = BTreeSet::new();
        let mut next: Vec<&Module> = imports[from].iter().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(imports.get(module).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (module, reached(module))).collect();
    let mut grouped = BTreeSet::new();
    let mut groups = Vec::new();
    for (module, others) in &reached {
        if grouped.contains(module) || !others.contains(module) {
            continue;
        }
        let back = |other: &&&Module| reached.get(**other).is_some_and(|back| back.contains(module));
        let group: Vec<Module> = others.iter().filter(back).map(|other| (*other).clone()).collect();
        grouped.extend(others.iter().filter(back).copied());
        groups.push(group);
    }
    groups
}

/// No two crates have public types of the same name, so that a name in a document or a message means one thing.
pub(super) fn type_names(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let sources = tree.rust(&["crates/"], &mut findings);
    let mut first: BTreeMap<String, (String, String)> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.contains("/src/")) {
        let owner = source.path.split('/').nth(1).unwrap_or("").to_string();
        for kind in ["struct", "enum", "trait", "type", "union"] {
            for at in source.find(source.all(), &format!("pub {kind}")) {
                let (name, line) = (source.token(at + 2).to_string(), source.line(at));
                // A macro gets the name from where it is used.
                if source.in_tests(line) || name == "$" {
                    continue;
                }
                match first.get(&name) {
                    Some((other, path)) if *other != owner => {
                        findings.broken(source.path, line, format!("`{name}` is also a type of {path}"));
                    }
                    Some(_) => {}
                    None => {
                        first.insert(name, (owner.clone(), source.path.to_string()));
                    }
                }
            }
        }
    }
    findings
}
