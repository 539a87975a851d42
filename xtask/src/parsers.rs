//! `cargo xtask fuzz-parsers`: fuzzes the parsers of files, of grammars and of answers with libFuzzer. `cargo xtask asan`: runs the
//! tests on hostile files under the address sanitizer.
//!
//! The targets are in `fuzz/`, for `cargo fuzz`, which needs unstable compiler flags: `RUSTC_BOOTSTRAP=1` makes the pinned compiler accept
//! them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::Failure;
use crate::ci::cargo;
use crate::tools::Tool;

/// Default duration per target in seconds, used by the nightly job.
const SECONDS: &str = "600";

/// Timeout per input in seconds.
const TIMEOUT: &str = "20";

/// The host target, which the sanitizer requires explicitly.
const HOST: &str = "x86_64-unknown-linux-gnu";

const FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };

/// A fuzz target, and where its seed inputs are found.
struct Target {
    name: &'static str,
    /// Folders of the repository, and the file name suffixes of seeds in them.
    seeds: &'static [(&'static str, &'static str)],
    /// Maximum length of an input in bytes.
    longest: usize,
}

const TARGETS: &[Target] = &[
    Target {
        name: "safetensors",
        seeds: &[("crates/redline-weights/attacks", "model.safetensors")],
        longest: 4096,
    },
    Target {
        name: "pickle",
        seeds: &[
            ("crates/redline-weights/attacks", "pytorch_model.bin"),
            ("crates/redline-weights/tests/it/torch", "pytorch_model.bin"),
        ],
        longest: 16384,
    },
    Target {
        name: "tokenizer",
        seeds: &[("crates/redline-tokenizer/tests/it/fixtures", ".json"), ("fuzz/seeds/tokenizer", ".json")],
        longest: 32768,
    },
    Target {
        name: "config",
        seeds: &[("tests/golden", "config.json"), ("models", "config.json")],
        longest: 4096,
    },
    Target {
        name: "adapter",
        seeds: &[
            ("crates/redline-weights/attacks", "adapter_config.json"),
            ("tests/golden/adapters", "adapter_config.json"),
        ],
        longest: 4096,
    },
    Target { name: "infq", seeds: &[("fuzz/seeds/infq", "")], longest: 8192 },
    Target { name: "answer", seeds: &[("fuzz/seeds/answer", "")], longest: 4096 },
    Target { name: "demand", seeds: &[("fuzz/seeds/demand", "")], longest: 4096 },
    Target { name: "grammar", seeds: &[("fuzz/seeds/grammar", "")], longest: 4096 },
    Target {
        name: "gguf",
        seeds: &[
            ("crates/redline-weights/attacks", ".gguf"),
            ("crates/redline-weights/tests/it/gguf", ".gguf"),
        ],
        longest: 16384,
    },
];

/// `cargo xtask fuzz-parsers`: runs all targets, or the named ones.
pub(crate) fn fuzz(arguments: &[String]) -> Result<(), Failure> {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    let (mut seconds, mut wanted) = (SECONDS.to_owned(), Vec::new());
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if word == "--seconds" {
            let value = rest.next().filter(|value| value.parse::<u32>().is_ok());
            seconds.clone_from(value.ok_or_else(|| usage("`--seconds` needs a number", &names))?);
        } else if let Some(target) = TARGETS.iter().find(|target| target.name == word) {
            wanted.push(target);
        } else {
            return Err(usage(&format!("no target `{word}`"), &names));
        }
    }
    if wanted.is_empty() {
        wanted = TARGETS.iter().collect();
    }
    Ok(wanted.into_iter().try_for_each(|target| run(target, &seconds))?)
}

fn usage(fact: &str, names: &[&str]) -> Failure {
    Failure::Usage(format!("{fact}\n\nhint: cargo xtask fuzz-parsers [--seconds N] [{}]", names.join("|")))
}

fn run(target: &Target, seconds: &str) -> Result<()> {
    let corpus = crate::root().join("target/fuzz-parsers").join(target.name);
    fs::create_dir_all(&corpus)?;
    let seeds = collect(target, &corpus)?;
    eprintln!("==> {}: {seeds} seeds, {seconds} s", target.name);
    let call = FUZZ.call()?.env("RUSTC_BOOTSTRAP", "1").args(["fuzz", "run", "--fuzz-dir", "fuzz"]);
    let call = call.args(["--target-dir", "target/fuzz-parsers/build", target.name]).path(&corpus).arg("--");
    let call = call.args([format!("-max_total_time={seconds}"), format!("-timeout={TIMEOUT}")]);
    let call = call.arg(format!("-max_len={}", target.longest));
    call.args(["-malloc_limit_mb=1024", "-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=0"]).run()
}

/// Copies the seeds into the corpus and returns their number.
fn collect(target: &Target, corpus: &Path) -> Result<usize> {
    let mut count = 0;
    for (folder, end) in target.seeds {
        let mut open = vec![crate::root().join(folder)];
        while let Some(folder) = open.pop() {
            let entries =
                fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
            for entry in entries {
                let path = entry?.path();
                if path.is_dir() {
                    open.push(path);
                } else if path.to_string_lossy().ends_with(end)
                    && fs::metadata(&path)?.len() <= target.longest as u64
                {
                    let bytes = fs::read(&path)?;
                    for (n, seed) in [Some(bytes.clone()), pickle(&bytes)].into_iter().flatten().enumerate() {
                        fs::write(corpus.join(format!("seed-{count}-{n}")), seed)?;
                    }
                    count += 1;
                }
            }
        }
    }
    if count == 0 {
        bail!("no seeds for `{}`", target.name);
    }
    Ok(count)
}

/// The pickle of an archive in the form that the target accepts without an archive: after one byte.
fn pickle(archive: &[u8]) -> Option<Vec<u8>> {
    let rest = archive.strip_prefix(b"PK\x03\x04")?;
    let begin = rest.windows(2).position(|bytes| bytes == [0x80, 2])?;
    let length = rest[begin..].windows(3).position(|bytes| bytes == b".PK")? + 1;
    Some([b"\0", &rest[begin..begin + length]].concat())
}

/// `cargo xtask asan`: runs the tests of the crates that read files, including the hostile ones, under the address
/// sanitizer.
pub(crate) fn asan(_: &[String]) -> Result<(), Failure> {
    let call = cargo().env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    let call = call.args([
        "test",
        "--locked",
        "-p",
        "redline-weights",
        "-p",
        "redline-tokenizer",
        "--lib",
        "--tests",
    ]);
    Ok(call.args(["--target", HOST, "--target-dir", "target/asan"]).run()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_a_binary_and_has_seeds() {
        let manifest = fs::read_to_string(crate::root().join("fuzz/Cargo.toml")).unwrap();
        let binaries = manifest.matches("[[bin]]").count();
        assert_eq!(TARGETS.len(), binaries);
        let folder = crate::root().join("target/fuzz-parsers/test-of-seeds");
        for target in TARGETS {
            assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
            let corpus = folder.join(target.name);
            fs::create_dir_all(&corpus).unwrap();
            assert!(collect(target, &corpus).unwrap() > 1, "{}", target.name);
        }
        let pickles = fs::read_dir(folder.join("pickle")).unwrap();
        let alone = |path: std::path::PathBuf| fs::read(path).unwrap().starts_with(&[0, 0x80, 2]);
        assert!(pickles.filter(|entry| alone(entry.as_ref().unwrap().path())).count() > 20);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn wrong_use_names_the_targets() {
        for line in ["onnx", "--seconds", "--seconds x"] {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let Err(Failure::Usage(message)) = fuzz(&arguments) else { panic!("{line}") };
            assert!(message.contains("[safetensors|pickle|"), "{message}");
            for target in TARGETS {
                assert!(message.contains(target.name), "{message}");
            }
        }
    }
}
