//! Dependency rules: which crate may depend on which, and where serde is allowed.

use super::tree::{Findings, Tree};

/// The layers from the bottom up: each crate with the lower crates that it may import.
const EDGES: &[(&str, &[&str])] = &[
    ("redline-settings", &[]),
    ("redline-simd", &[]),
    ("redline-system", &["redline-simd"]),
    ("redline-kernels", &["redline-simd", "redline-system"]),
    ("redline-weights", &["redline-settings"]),
    ("redline-hub", &["redline-weights"]),
    ("redline-tokenizer", &[]),
    ("redline-grammar", &[]),
    ("redline-chat", &["redline-grammar"]),
    ("redline-models", &["redline-kernels", "redline-system", "redline-weights", "redline-settings"]),
    (
        "redline-engine",
        &[
            "redline-models",
            "redline-weights",
            "redline-tokenizer",
            "redline-grammar",
            "redline-kernels",
            "redline-system",
            "redline-settings",
        ],
    ),
    ("redline-api", &["redline-engine", "redline-chat", "redline-tokenizer", "redline-settings"]),
    ("zstd", &[]),
    ("redline-batch", &["redline-api", "redline-engine", "redline-settings", "redline-weights"]),
    ("redline-server", &["redline-api", "redline-engine"]),
    ("redline-client", &[]),
    ("redline-testing", &[]),
    ("redline-reference", &[]),
    ("redline-interpreter", &["redline-kernels", "redline-models", "redline-reference"]),
    ("redline-demo", &["redline-engine", "redline-weights"]),
    ("redline-parity", &["redline-engine", "redline-kernels", "redline-weights"]),
    (
        "redline-lab",
        &[
            "redline-parity",
            "redline-client",
            "redline-engine",
            "redline-kernels",
            "redline-system",
            "redline-tokenizer",
            "redline-models",
            "redline-weights",
        ],
    ),
    (
        "redline-cli",
        &[
            "redline-lab",
            "redline-parity",
            "redline-server",
            "redline-client",
            "redline-demo",
            "redline-batch",
            "redline-api",
            "redline-engine",
            "redline-models",
            "redline-tokenizer",
            "redline-hub",
            "redline-weights",
            "redline-kernels",
            "redline-system",
        ],
    ),
    (
        "redline-python",
        &[
            "redline-api",
            "redline-batch",
            "redline-demo",
            "redline-engine",
            "redline-settings",
            "redline-system",
            "redline-tokenizer",
            "redline-weights",
        ],
    ),
    ("xtask", &[]),
];

/// Additional crates that the tests of a crate may import, besides redline-testing, which all may.
const TEST_EDGES: &[(&str, &[&str])] = &[
    ("redline-kernels", &["redline-reference"]),
    ("redline-models", &["redline-interpreter", "redline-reference"]),
    ("redline-engine", &["redline-interpreter", "redline-reference"]),
    ("redline-server", &["redline-client"]),
    ("redline-batch", &["redline-demo"]),
];

/// Crates whose JSON is public (of redline-system, the description of a machine), and xtask, which reads answers like any client.
const SERDE: &[&str] = &[
    "redline-api",
    "redline-batch",
    "redline-system",
    "redline-lab",
    "redline-server",
    "redline-cli",
    "redline-python",
    "redline-testing",
    "xtask",
];

/// Crates that read JSON: files on disk or in the binary, answers of a hub, and schemas.
const READERS: &[&str] = &[
    "redline-weights",
    "redline-parity",
    "redline-tokenizer",
    "redline-hub",
    "redline-demo",
    "redline-grammar",
    "redline-chat",
];

/// Packages that open connections.
const NETWORK: &[&str] = &[
    "async-std",
    "attohttpc",
    "axum",
    "curl",
    "hf-hub",
    "hyper",
    "hyper-util",
    "isahc",
    "mio",
    "native-tls",
    "quinn",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "surf",
    "tokio",
    "tonic",
    "tungstenite",
    "ureq",
    "warp",
];

/// The crates that may use them: a server, and the client of the hub.
const CONNECTED: &[&str] = &["redline-server", "redline-hub"];

/// A dependency that a manifest declares.
struct Dependency {
    name: String,
    line: usize,
    test: bool,
}

/// Dependencies between the crates match `EDGES`, and every edge in `EDGES` is used.
pub(super) fn edges(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for (crate_name, path, dependencies) in manifests(tree) {
        findings.seen += 1;
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == crate_name) else {
            findings.broken(
                path,
                0,
                format!("`{crate_name}` has no place in EDGES of xtask/src/tidy/edges.rs"),
            );
            continue;
        };
        for dependency in dependencies.iter().filter(|d| is_ours(&d.name)) {
            let name = dependency.name.as_str();
            let sideways = TEST_EDGES.iter().any(|(from, to)| *from == crate_name && to.contains(&name));
            let fits =
                allowed.contains(&name) || (dependency.test && (sideways || name == "redline-testing"));
            if !fits {
                let what = if dependency.test { "the tests of " } else { "" };
                let message =
                    format!("{what}`{crate_name}` may not import `{name}`; it may {}", list(allowed));
                findings.broken(path, dependency.line, message);
            }
        }
        for name in allowed.iter().filter(|name| !dependencies.iter().any(|d| d.name == **name && !d.test)) {
            let message = format!("`{crate_name}` does not use `{name}`: take the edge out of EDGES");
            findings.broken(path, 0, message);
        }
    }
    findings
}

/// JSON types belong to redline-api and to file formats; the engine's types do not implement `Serialize`.
pub(super) fn serde(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for (crate_name, path, dependencies) in manifests(tree) {
        findings.seen += 1;
        let free = SERDE.contains(&crate_name) || READERS.contains(&crate_name);
        for dependency in dependencies.iter().filter(|d| d.name.starts_with("serde") && !d.test && !free) {
            let message =
                format!("`{crate_name}` may not use `{}`: JSON types live above it", dependency.name);
            findings.broken(path, dependency.line, message);
        }
    }
    for source in tree.rust(&["crates/redline-engine/src/"], &mut findings) {
        for word in ["serde", "serde_json", "Serialize", "Deserialize"] {
            for line in source.mentions(word) {
                let message = format!("`{word}` in the engine: JSON types live in redline-api");
                findings.broken(source.path, line, message);
            }
        }
    }
    findings
}

/// Only a server and the client of the hub may depend on a package that opens connections.
pub(super) fn connections(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for (crate_name, path, dependencies) in manifests(tree).into_iter().filter(|m| !CONNECTED.contains(&m.0))
    {
        findings.seen += 1;
        for dependency in dependencies.iter().filter(|d| NETWORK.contains(&d.name.as_str())) {
            let message = format!(
                "`{crate_name}` may not use `{}`: only a server and redline-hub open connections",
                dependency.name
            );
            findings.broken(path, dependency.line, message);
        }
    }
    findings
}

/// Joins `names` for a sentence.
fn list(names: &[&str]) -> String {
    if names.is_empty() { "import no crate of ours".into() } else { format!("import {}", names.join(", ")) }
}

/// Whether the name is a crate of the workspace.
fn is_ours(name: &str) -> bool {
    name.starts_with("redline-") || name == "xtask"
}

/// Every crate's name, manifest and dependencies.
fn manifests(tree: &Tree) -> Vec<(&str, &str, Vec<Dependency>)> {
    let mut found = Vec::new();
    for file in &tree.files {
        let Some(folder) = file.path.strip_suffix("/Cargo.toml") else { continue };
        let name = match folder {
            "bindings/python" => "redline-python",
            _ => folder.strip_prefix("crates/").unwrap_or(folder),
        };
        if !name.contains('/') && (name != folder || name == "xtask") {
            found.push((name, file.path.as_str(), dependencies(&file.text)));
        }
    }
    found
}

/// The dependencies in a manifest, by package name.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section = None;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[').filter(|_| line.ends_with(']')) {
            section = dependency_section(header.trim_end_matches(']'));
            if let Some((test, Some(name))) = &section {
                found.push(Dependency { name: name.clone(), line: index + 1, test: *test });
            }
            continue;
        }
        let (Some((test, table)), Some((key, value))) = (&section, line.split_once('=')) else { continue };
        let key = key.trim().trim_matches('"');
        let renamed = value.split_once("package").and_then(|(_, v)| v.split('"').nth(1));
        let name = match (table, renamed) {
            (_, Some(package)) => package,
            (Some(_), None) if key == "package" => value.trim().trim_matches('"'),
            (Some(_), None) => continue,
            (None, None) => key.split(['.', '"']).next().unwrap_or(key),
        };
        if !name.starts_with('#') {
            found.push(Dependency { name: name.to_string(), line: index + 1, test: *test });
        }
    }
    found
}

/// Whether a table holds dependencies; if so, whether only for tests, and the package if the table is for a single
/// one.
fn dependency_section(header: &str) -> Option<(bool, Option<String>)> {
    let kinds = [("dev-dependencies", true), ("build-dependencies", false), ("dependencies", false)];
    kinds.into_iter().find_map(|(kind, test)| {
        let rest =
            header.rsplit_once(kind).filter(|(before, _)| before.is_empty() || before.ends_with('.'))?.1;
        match rest.strip_prefix('.') {
            Some(name) => Some((test, Some(name.trim_matches('"').to_string()))),
            None => rest.is_empty().then_some((test, None)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_in_every_notation() {
        let manifest = r#"
[package]
name = "redline-x"
[dependencies]
redline-a.workspace = true
"redline-b" = { path = "../b", features = ["c"] }
d = { package = "redline-d", version = "1" }
# redline-z = "1"
[target.'cfg(unix)'.dependencies]
redline-e = "1"
[dependencies.redline-f]
path = "../f"
[build-dependencies]
redline-g = "1"
[dev-dependencies]
redline-h = "1"
[lints]
workspace = true
"#;
        let found: Vec<_> = dependencies(manifest).iter().map(|d| (d.name.clone(), d.test)).collect();
        let expected = ["a", "b", "d", "e", "f", "g", "h"].map(|x| (format!("redline-{x}"), x == "h"));
        assert_eq!(found, expected);
    }

    #[test]
    fn every_crate_of_the_house_exists() {
        let tree = Tree::read(crate::root()).expect("the repository can be read");
        let there: Vec<&str> = manifests(&tree).into_iter().map(|(name, _, _)| name).collect();
        let named =
            EDGES.iter().chain(TEST_EDGES).map(|(name, _)| *name).chain([SERDE, READERS, CONNECTED].concat());
        for name in named {
            assert!(there.contains(&name), "`{name}` has no manifest");
        }
    }

    #[test]
    fn the_house_has_no_cycle() {
        let place =
            |name: &str| EDGES.iter().position(|(n, _)| *n == name).expect("every edge leads to a crate");
        for (from, to) in EDGES {
            for name in *to {
                assert!(place(name) < place(from), "{from} -> {name} leads upward");
            }
        }
    }
}
