//! Passes the commit and the compiler version to the binary, if git and rustc report them.

use std::path::Path;
use std::process::Command;

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The paths that make up the binary, relative to the repository root.
const BUILT: &[&str] = &["crates", "models", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];

fn main() {
    let root = Path::new(PACKAGE).join("../..");
    let git = |arguments: &[&str]| said(Command::new("git").arg("-C").arg(&root).args(arguments));
    tell("REDLINE_BUILT_BY", said(Command::new("rustc").arg("--version")));
    tell("REDLINE_BUILT_FROM", git(&["rev-parse", "HEAD"]));
    let changes = git(&[&["status", "--porcelain", "--untracked-files=no", "--"], BUILT].concat());
    tell("REDLINE_BUILT_DIRTY", changes.map(|lines| (!lines.is_empty()).to_string()));

    // Rebuild when sources or the commit change. A path that does not exist would rerun the script every time.
    let sources =
        std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten().map(|e| e.path().join("src"));
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).map(|path| root.join(path));
    for path in sources.chain(log).chain([root.join("Cargo.lock"), Path::new(PACKAGE).join("build.rs")]) {
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
}

/// Returns the standard output of a program, if it succeeded.
fn said(program: &mut Command) -> Option<String> {
    let output = program.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn tell(name: &str, value: Option<String>) {
    if let Some(value) = value {
        println!("cargo:rustc-env={name}={value}");
    }
}
