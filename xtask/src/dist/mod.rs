//! Makes a release: static binaries with their documents and licences, the Python wheel, the script that installs, the container file,
//! and the checksums of all. The same commit and tools give the same bytes.

#[cfg(test)]
mod install;
mod licences;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::ci::cargo;
use crate::process::Call;
use crate::{Failure, python};

/// The targets of a release. Their binaries are static: the C library comes with the target.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];

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

/// The line of `install.sh` that names the release.
const FROM: &str = "\nfrom=\"\"\n";

/// What is made.
#[derive(Debug, Default, PartialEq)]
struct Options {
    /// Only the archive for this target, and no wheel.
    target: Option<String>,
    /// Where the files will be published.
    url: String,
}

/// `cargo xtask dist`: writes the files of a release to `target/dist`.
pub(crate) fn dist(arguments: &[String]) -> Result<(), Failure> {
    let options = parse(arguments)?;
    let host = host()?;
    let folder = crate::root().join("target/dist");
    match &options.target {
        Some(target) => drop(pack(&host, target, &folder)?),
        None => {
            clear(&folder)?;
            let binaries = TARGETS.iter().map(|target| Ok((*target, pack(&host, target, &folder)?)));
            let binaries = binaries.collect::<Result<Vec<_>>>()?;
            let own = binaries.iter().find(|(target, _)| architecture(target) == architecture(&host));
            let (_, own) = own.with_context(|| format!("no binary of a release runs on {host}"))?;
            python::bindings(&[format!("--redline={}", own.display())])?;
            sh("cp target/wheels/*.whl target/dist/")?;
        }
    }
    let script = text("deploy/install.sh")?.replace(FROM, &format!("\nfrom=\"{}\"\n", options.url));
    write(&folder.join("install.sh"), &script)?;
    write(&folder.join("Dockerfile"), &text("deploy/container/Dockerfile")?)?;
    sh(
        "cd target/dist && export LC_ALL=C && sha256sum Dockerfile install.sh redline-* > SHA256SUMS && cat SHA256SUMS",
    )?;
    if options.target.is_none_or(|target| architecture(&target) == architecture(&host)) {
        try_out(&folder)?;
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options::default();
    for pair in arguments.chunks(2) {
        match pair {
            [flag, target] if flag == "--target" => options.target = Some(target.clone()),
            [flag, url] if flag == "--url" && !url.contains(['"', '\\', '$', '`', '\n']) => {
                options.url.clone_from(url);
            }
            _ => {
                let hint = "hint: cargo xtask dist [--target x86_64-unknown-linux-musl] [--url https://...]";
                return Err(Failure::Usage(format!("`{}` makes no sense\n\n{hint}", pair.join(" "))));
            }
        }
    }
    Ok(options)
}

/// Installs the release as its users do, and runs the program without any environment.
fn try_out(folder: &Path) -> Result<()> {
    let to = crate::root().join("target/dist-installed");
    let install = Call::new("sh").path(&folder.join("install.sh")).arg("--from").path(folder);
    install.arg("--to").path(&to).run()?;
    for arguments in [["--version"], ["demo"]] {
        let run = Command::new(to.join("redline")).args(arguments).env_clear().current_dir("/").output()?;
        ensure!(run.status.success(), "`redline {}`: {}", arguments[0], String::from_utf8_lossy(&run.stderr));
    }
    Ok(())
}

/// Builds the archive for a target, and returns the binary in it.
fn pack(host: &str, target: &str, folder: &Path) -> Result<PathBuf> {
    let is_foreign = architecture(host) != architecture(target);
    let binary = build(target, is_foreign)?;
    let program = binary.to_str().context("the path of the binary is not UTF-8")?;
    let headers = output("readelf", &["--program-headers", "--wide", program])?;
    ensure!(!headers.contains("INTERP"), "the binary is not static:\n{headers}");

    let name = format!("redline-{}-{target}", env!("CARGO_PKG_VERSION"));
    let staged = folder.join(&name);
    clear(&staged)?;
    for document in DOCUMENTS {
        write(&staged.join(document), &text(document)?)?;
    }
    let sysroot = output("rustc", &["--print", "sysroot"])?;
    copy(&Path::new(sysroot.trim()).join(RUST), &staged.join("LICENSES-RUST.html"))?;
    write(&staged.join("LICENSES-THIRD-PARTY.txt"), &licences::third_party(target)?)?;
    copy(&binary, &staged.join("redline"))?;
    if !is_foreign {
        for (shell, path) in COMPLETIONS {
            write(&staged.join(path), &output(program, &["completions", shell])?)?;
        }
        let pages = staged.join("man/man1");
        fs::create_dir_all(&pages).with_context(|| format!("cannot create {}", pages.display()))?;
        Call::new(program).arg("man").path(&pages).run()?;
    }

    let archive = folder.join(format!("{name}.tar"));
    let tar = Call::new("tar").args(["--create", "--sort=name", "--format=gnu", "--mode=u=rwX,go=rX"]);
    let tar =
        tar.args(["--owner=0", "--group=0", "--numeric-owner", &format!("--mtime=@{}", commit_time()?)]);
    tar.arg("--file").path(&archive).arg("--directory").path(folder).arg(name).run()?;
    Call::new("gzip").args(["--best", "--no-name", "--force"]).path(&archive).run()?;
    clear(&staged)?;
    Ok(binary)
}

/// Builds the binary and returns its path. Paths of this machine are left out of it.
fn build(target: &str, is_foreign: bool) -> Result<PathBuf> {
    let libraries = output("rustc", &["--print", "target-libdir", "--target", target])?;
    if !Path::new(libraries.trim()).is_dir() {
        Call::new("rustup").args(["target", "add", target]).run()?;
    }
    let metadata = licences::metadata(target)?;
    let folder = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    let mut build =
        cargo().args(["build", "--release", "--locked", "--package", "redline-cli", "--target", target]);
    if let Some(registry) = licences::registry(&metadata) {
        let flag = format!("--remap-path-prefix={registry}=registry");
        build = build.arg("--config").arg(format!("target.{target}.rustflags=[{flag:?}]"));
    }
    if is_foreign {
        // The linker of the toolchain knows every architecture, and there is no C to compile.
        build = build.arg("--config").arg(format!("target.{target}.linker=\"rust-lld\""));
    }
    build.run()?;
    Ok(Path::new(folder).join(target).join("release/redline"))
}

/// The triple of this machine.
fn host() -> Result<String> {
    let version = output("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
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

fn sh(line: &str) -> Result<()> {
    Call::new("sh").args(["-ec", line]).run()
}

/// The text of a file of the repository.
fn text(path: &str) -> Result<String> {
    fs::read_to_string(crate::root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// Writes a file, and creates its folder.
fn write(path: &Path, text: &str) -> Result<()> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

fn clear(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("cannot remove {}: {error}", folder.display())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_in_pairs() {
        let parse = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let Ok(options) = parse("--url https://x/v1 --target a-b") else { panic!("refused") };
        assert_eq!(options, Options { target: Some("a-b".into()), url: "https://x/v1".into() });
        for bad in ["--url", "--target", "--speed 1", "--url $(x)"] {
            assert!(
                matches!(parse(bad), Err(Failure::Usage(message)) if message.contains("--url https")),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_script_has_a_line_for_the_release() {
        assert_eq!(text("deploy/install.sh").unwrap().matches(FROM).count(), 1);
        assert_eq!(architecture("aarch64-apple-darwin"), "aarch64");
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
