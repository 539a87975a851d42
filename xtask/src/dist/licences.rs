//! The licences of the packages in the binary, from their sources on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::output;

/// Beginnings of the names of files with licences.
const FILES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The licence of the C library in binaries for musl.
const MUSL: &str = include_str!("musl.txt");

/// What a package says about its licence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
    repository: String,
}

/// All packages of the lock file that this target may need.
pub(super) fn metadata(target: &str) -> Result<Value> {
    let cargo = ["metadata", "--format-version=1", "--locked", "--filter-platform", target];
    serde_json::from_str(&output("cargo", &cargo)?).context("`cargo metadata` gives no JSON")
}

/// The folder in which the sources of packages lie.
pub(super) fn registry(metadata: &Value) -> Option<String> {
    let packages = metadata["packages"].as_array()?;
    let package = packages.iter().find(|package| !package["source"].is_null())?;
    let folder = Path::new(package["manifest_path"].as_str()?).parent()?.parent()?;
    folder.to_str().map(str::to_owned)
}

/// A list of the packages in the binary, and the text of every licence, once.
pub(super) fn third_party(target: &str) -> Result<String> {
    let packages = packages(target)?;
    let metadata = metadata(target)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in &packages {
        for text in texts_of(package, &metadata)? {
            texts.entry(text).or_default().push(format!("{} {}", package.name, package.version));
        }
    }
    if target.contains("musl") {
        texts.entry(MUSL.trim().to_owned()).or_default().push("musl (C library)".to_owned());
    }
    Ok(document(&packages, texts))
}

/// The packages that are linked into the binary. `cargo metadata` lists more, since it does not know which optional ones are used.
fn packages(target: &str) -> Result<Vec<Package>> {
    let tree =
        ["tree", "--locked", "--offline", "--package", "redline-cli", "--edges", "normal,no-proc-macro"];
    let format = ["--target", target, "--prefix", "none", "--format", "{p}\t{l}\t{r}"];
    let tree = output("cargo", &[&tree[..], &format[..]].concat())?;
    let mut packages: Vec<_> = tree.lines().filter_map(parse).collect();
    packages.sort();
    packages.dedup();
    if packages.is_empty() {
        bail!("`cargo tree` lists no package");
    }
    Ok(packages)
}

/// A line of `cargo tree`; `None` for a package of this repository.
fn parse(line: &str) -> Option<Package> {
    let mut fields = line.split('\t');
    let (package, licence, repository) = (fields.next()?, fields.next()?, fields.next()?);
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    // The path of a package of this repository, or the mark of one that was listed before.
    let is_ours = words.next().is_some_and(|word| word.starts_with("(/"));
    let repository = repository.trim_end_matches(" (*)");
    let [name, version, licence, repository] = [name, version, licence, repository].map(str::to_owned);
    (!is_ours).then_some(Package { name, version, licence, repository })
}

/// The texts of a package's licences. A package without any is under the Apache licence, if it may be.
fn texts_of(package: &Package, metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = packages.iter().find(|p| p["name"] == *package.name && p["version"] == *package.version);
    let manifest = found.and_then(|found| found["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    let folder = folder.with_context(|| format!("`cargo metadata` lacks {}", package.name))?;
    let mut texts = Vec::new();
    for file in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && FILES.iter().any(|begin| name.starts_with(begin)) {
            let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            texts.push(String::from_utf8_lossy(&text).replace("\r\n", "\n").trim().to_owned());
        }
    }
    if texts.is_empty() && package.licence.contains("Apache-2.0") {
        texts.push("The Apache License 2.0: see the file LICENSE-APACHE.".to_owned());
    }
    if texts.is_empty() {
        bail!(
            "no text of the licence `{}` of {}\n  in `{}`",
            package.licence,
            package.name,
            folder.display()
        );
    }
    Ok(texts)
}

/// Puts list and texts into one document. Texts are ordered by the packages under them.
fn document(packages: &[Package], texts: BTreeMap<String, Vec<String>>) -> String {
    let mut document = String::from("The program `redline` contains these packages:\n\n");
    for package in packages {
        let Package { name, version, licence, repository } = package;
        document.push_str(format!("{name} {version} ({licence}) {repository}").trim_end());
        document.push('\n');
    }
    let mut texts: Vec<_> = texts.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, text) in texts {
        document.push_str(&format!("\n{}\n{}:\n\n{text}\n", "=".repeat(80), names.join(", ")));
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, licence: &str) -> Package {
        let [name, version, licence, repository] = [name, "1.0.0", licence, "https://x"].map(str::to_owned);
        Package { name, version, licence, repository }
    }

    #[test]
    fn lines_of_the_tree_are_read() {
        assert_eq!(parse("a v1.0.0\tMIT\thttps://x"), Some(package("a", "MIT")));
        assert_eq!(parse("a v1.0.0\tMIT\thttps://x (*)"), Some(package("a", "MIT")));
        assert_eq!(parse("redline-cli v0.1.0 (/src/crates/redline-cli)\tMIT\t"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_text_is_printed_once_with_all_its_packages() {
        let packages = [package("a", "MIT"), package("b", "MIT")];
        let texts = [("Text.".to_owned(), vec!["a 1.0.0".to_owned(), "b 1.0.0".to_owned()])].into();
        let document = document(&packages, texts);
        assert!(document.starts_with(
            "The program `redline` contains these packages:\n\na 1.0.0 (MIT) https://x\nb 1.0.0"
        ));
        assert!(document.ends_with("=\na 1.0.0, b 1.0.0:\n\nText.\n"), "{document}");
    }

    #[test]
    fn every_package_in_the_binary_has_its_licence() {
        let document = third_party("x86_64-unknown-linux-gnu").unwrap();
        for part in ["\nserde 1.", "\nrustls 0.", "Permission is hereby granted", "Apache License"] {
            assert!(document.contains(part), "{part}");
        }
        // Packages of this repository, of tests and of other platforms, and the optional ones that are not used.
        for part in ["\nredline-cli ", "\nproptest ", "\nwindows-sys ", "\nring ", "musl (C library)"] {
            assert!(!document.contains(part), "{part}");
        }
    }

    #[test]
    fn a_package_without_a_text_must_be_under_the_apache_licence() {
        let folder = std::env::temp_dir().join(format!("redline-licences-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let manifest = folder.join("Cargo.toml").display().to_string();
        let metadata =
            serde_json::json!({"packages": [{"name": "a", "version": "1.0.0", "manifest_path": manifest}]});
        let texts = |licence: &str| texts_of(&package("a", licence), &metadata);
        assert!(texts("ISC OR Apache-2.0").unwrap()[0].contains("LICENSE-APACHE"));
        assert!(texts("ISC").unwrap_err().to_string().starts_with("no text of the licence `ISC` of a"));
        fs::write(folder.join("License-ISC.txt"), "Text\r\nof it.\n").unwrap();
        assert_eq!(texts("ISC").unwrap(), ["Text\nof it."]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
