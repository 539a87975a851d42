//! Packs a release: a static binary with its documents and licences, and the checksum of the archive. The same commit gives the
//! same bytes.

mod archive;
mod elf;
mod licences;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::Failure;
use crate::ci::cargo;
use crate::process::Call;
use archive::Entries;

/// Shells with the place of their completions in the archive.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "completions/redline.bash"),
    ("fish", "completions/redline.fish"),
    ("zsh", "completions/_redline"),
];

/// Documents that are copied.
const DOCUMENTS: [&str; 4] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Licences of Rust's standard library, in the toolchain.
const RUST: &str = "share/doc/rust/COPYRIGHT-library.html";

/// `cargo xtask dist`: builds the binary and writes the archive to `target/dist`, and the checksums of all
/// archives there.
pub(crate) fn dist(arguments: &[String]) -> Result<(), Failure> {
    let host = host()?;
    let target = match arguments {
        [] => static_target(&host),
        [flag, target] if flag == "--target" => target.clone(),
        _ => {
            let hint = "hint: cargo xtask dist --target x86_64-unknown-linux-musl";
            return Err(Failure::Usage(format!("`dist` takes `--target TRIPLE` only\n\n{hint}")));
        }
    };
    Ok(pack(&host, &target)?)
}

fn pack(host: &str, target: &str) -> Result<()> {
    let binary = build(target)?;
    let bytes = read(&binary)?;
    if target.contains("-linux-")
        && let Some(interpreter) = elf::interpreter(&bytes)?
    {
        bail!("the binary is not static: it needs `{interpreter}`\n  in `{}`", binary.display());
    }
    let mut entries = documents(target)?;
    if architecture(host) == architecture(target) {
        entries.extend(generated(&binary)?);
    }
    entries.insert("redline".to_owned(), archive::Entry { is_program: true, bytes });

    let version = env!("CARGO_PKG_VERSION");
    let name = format!("redline-{version}-{target}");
    let packed = archive::pack(&name, &entries, commit_time()?)?;
    let folder = crate::root().join("target/dist");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let sum = hexadecimal(&Sha256::digest(&packed));
    let file = format!("{name}.tar.gz");
    write(&folder.join(&file), &packed)?;
    write(&folder.join("SHA256SUMS"), checksums(&folder)?.as_bytes())?;
    println!("{} ({} bytes, {sum})", folder.join(file).display(), packed.len());
    Ok(())
}

/// A line for each archive in a folder, in the order of the names: its SHA-256 and its name, as `sha256sum` writes them.
fn checksums(folder: &Path) -> Result<String> {
    let mut lines = BTreeMap::new();
    for file in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = file?.path();
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(".tar.gz"));
        if let Some(name) = name {
            let sum = hexadecimal(&Sha256::digest(read(&path)?));
            lines.insert(name.to_owned(), format!("{sum}  {name}\n"));
        }
    }
    Ok(lines.into_values().collect())
}

/// Builds the binary and returns its path. Paths of this machine are left out of it.
fn build(target: &str) -> Result<PathBuf> {
    let libraries = output("rustc", &["--print", "target-libdir", "--target", target])?;
    if !Path::new(libraries.trim()).is_dir() {
        Call::new("rustup").args(["target", "add", target]).run()?;
    }
    let metadata = licences::metadata(target)?;
    let folder = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    let build =
        cargo().args(["build", "--release", "--locked", "--package", "redline-cli", "--target", target]);
    let build = match licences::registry(&metadata) {
        Some(registry) => {
            let flag = format!("--remap-path-prefix={registry}=registry");
            build.arg("--config").arg(format!("target.{target}.rustflags=[{flag:?}]"))
        }
        None => build,
    };
    build.run()?;
    Ok(Path::new(folder).join(target).join("release/redline"))
}

/// Documents and licences.
fn documents(target: &str) -> Result<Entries> {
    let mut entries = Entries::new();
    for name in DOCUMENTS {
        entries.insert(name.to_owned(), read(&crate::root().join(name))?.into());
    }
    let sysroot = output("rustc", &["--print", "sysroot"])?;
    entries.insert("LICENSES-RUST.html".to_owned(), read(&Path::new(sysroot.trim()).join(RUST))?.into());
    entries.insert("LICENSES-THIRD-PARTY.txt".to_owned(), licences::third_party(target)?.into_bytes().into());
    Ok(entries)
}

/// Completions and manual pages, as far as the binary has commands for them.
fn generated(binary: &Path) -> Result<Entries> {
    let program = binary.to_str().context("the path of the binary is not UTF-8")?;
    let help = output(program, &["--help"])?;
    let has = |command: &str| help.lines().any(|line| line.split_whitespace().next() == Some(command));
    let mut entries = Entries::new();
    if has("completions") {
        for (shell, path) in COMPLETIONS {
            let script = output(program, &["completions", shell])?;
            entries.insert(path.to_owned(), script.into_bytes().into());
        }
    }
    if has("man") {
        let folder = crate::root().join("target/dist/man");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        output(program, &["man", &folder.display().to_string()])?;
        for page in fs::read_dir(&folder)? {
            let page = page?;
            let name =
                page.file_name().into_string().ok().context("a manual page whose name is not UTF-8")?;
            entries.insert(format!("man/man1/{name}"), read(&page.path())?.into());
        }
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(entries)
}

/// Bytes as lower-case hexadecimal digits.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The triple of this machine.
fn host() -> Result<String> {
    let version = output("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

/// The target for this machine whose binaries are static: on Linux that of musl, whose C library comes with the target.
fn static_target(host: &str) -> String {
    match host.strip_suffix("-linux-gnu") {
        Some(machine) => format!("{machine}-linux-musl"),
        None => host.to_owned(),
    }
}

fn architecture(target: &str) -> &str {
    target.split('-').next().unwrap_or(target)
}

/// The time of the last commit in seconds since 1970, which all files of the archive get.
fn commit_time() -> Result<u64> {
    let time = output("git", &["log", "-1", "--format=%ct"])?;
    time.trim().parse().with_context(|| format!("git gives the time `{}` for the last commit", time.trim()))
}

/// Runs a program in the root of the repository and returns its standard output.
fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let run = Command::new(program).args(arguments).current_dir(crate::root()).output();
    let run = run.with_context(|| format!("cannot start `{program}`"))?;
    if !run.status.success() {
        let call = Call::new(program).args(arguments.iter().copied());
        bail!(
            "{}: {}\n\nhint: repeat with\n  {call}",
            run.status,
            String::from_utf8_lossy(&run.stderr).trim()
        );
    }
    String::from_utf8(run.stdout).with_context(|| format!("the output of `{program}` is not UTF-8"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_is_built_with_musl_and_other_systems_as_they_are() {
        assert_eq!(static_target("x86_64-unknown-linux-gnu"), "x86_64-unknown-linux-musl");
        assert_eq!(static_target("x86_64-unknown-linux-musl"), "x86_64-unknown-linux-musl");
        assert_eq!(static_target("aarch64-apple-darwin"), "aarch64-apple-darwin");
        assert_eq!(architecture("aarch64-apple-darwin"), "aarch64");
    }

    #[test]
    fn checksums_are_those_of_all_archives_by_name() {
        let folder = std::env::temp_dir().join(format!("redline-checksums-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in [("b.tar.gz", ""), ("a.tar.gz", "abc"), ("SHA256SUMS", "old"), ("man", "x")] {
            fs::write(folder.join(name), bytes).unwrap();
        }
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.tar.gz\n\
                        e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b.tar.gz\n";
        assert_eq!(checksums(&folder).unwrap(), expected);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_last_commit_has_a_time() {
        assert!(commit_time().unwrap() > 1_700_000_000);
    }

    #[test]
    fn a_program_that_fails_is_shown() {
        let error = output("git", &["no-such-command"]).unwrap_err().to_string();
        assert!(error.contains("repeat with\n  git no-such-command"), "{error}");
    }
}
