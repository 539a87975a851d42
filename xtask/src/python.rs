//! The chores that need other people's Python packages, each in a virtual environment of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::Failure;
use crate::process::Call;

/// A script, the packages it needs and where they are installed.
struct Script {
    venv: &'static str,
    requirements: &'static str,
    file: &'static str,
}

/// What the caller asked for: an environment that is ready, and arguments for the script.
#[derive(Debug, Default, PartialEq)]
struct Options {
    venv: Option<PathBuf>,
    rest: Vec<String>,
}

/// `cargo xtask golden`
pub(crate) fn golden(arguments: &[String]) -> Result<(), Failure> {
    let script = Script {
        venv: ".venv-golden",
        requirements: "tests/golden/requirements.txt",
        file: "tests/golden/make.py",
    };
    let options = options(arguments)?;
    Ok(python(&script, &options)?.run()?)
}

/// `cargo xtask train-demo`
pub(crate) fn train_demo(arguments: &[String]) -> Result<(), Failure> {
    let script = Script {
        venv: ".venv-demo",
        requirements: "models/demo/requirements.txt",
        file: "models/demo/train.py",
    };
    let options = options(arguments)?;
    Ok(python(&script, &options)?.run()?)
}

/// `cargo xtask peers`: builds Redline first, so that the script can run it.
pub(crate) fn peers(arguments: &[String]) -> Result<(), Failure> {
    let script = Script {
        venv: ".venv-peers",
        requirements: "xtask/peers/requirements.txt",
        file: "xtask/peers/run.py",
    };
    let options = options(arguments)?;
    let call = python(&script, &options)?;
    if !options.rest.iter().any(|a| a == "--redline" || a == "--help" || a == "-h") {
        crate::ci::cargo().args(["build", "--locked", "--release", "--package", "redline-cli"]).run()?;
    }
    Ok(call.run()?)
}

/// Takes `--venv DIR` out of the arguments; the others are the script's.
fn options(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--venv" {
            let directory = arguments.next().filter(|d| !d.starts_with('-'));
            let Some(directory) = directory else {
                return Err(Failure::Usage("`--venv` needs a directory\n\nhint: --venv .venv-mine".into()));
            };
            options.venv = Some(PathBuf::from(directory));
        } else {
            options.rest.push(argument.clone());
        }
    }
    Ok(options)
}

/// The call of the script by the Python of its environment, which is made if the caller did not bring one.
fn python(script: &Script, options: &Options) -> Result<Call> {
    let root = crate::root();
    for file in [script.requirements, script.file] {
        if !root.join(file).is_file() {
            bail!("`{file}` is not there");
        }
    }
    let venv = match &options.venv {
        Some(venv) => std::path::absolute(venv)?,
        None => installed(&root.join(script.venv), &root.join(script.requirements))?,
    };
    let python = venv.join("bin/python");
    if !python.exists() {
        bail!("`{}` holds no `bin/python`\n\nhint: python3 -m venv {}", venv.display(), venv.display());
    }
    Ok(Call::new(python.display().to_string()).arg(script.file).args(options.rest.iter().cloned()))
}

/// Makes the environment at `venv`, or leaves it alone when it was made from the same requirements.
fn installed(venv: &Path, requirements: &Path) -> Result<PathBuf> {
    let stamp = venv.join("installed.txt");
    let wanted = fs::read(requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    if fs::read(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(venv.to_path_buf());
    }
    eprintln!("==> installing {} into {}", requirements.display(), venv.display());
    Call::new("python3").args(["-m", "venv"]).path(venv).run()?;
    let python = venv.join("bin/python").display().to_string();
    Call::new(python).args(["-m", "pip", "install", "--requirement"]).path(requirements).run()?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(venv.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Options {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        options(&arguments).unwrap_or_else(|_| panic!("`{line}` was refused"))
    }

    #[test]
    fn the_environment_is_ours_and_the_rest_is_the_scripts() {
        assert_eq!(parsed("--quick"), Options { venv: None, rest: vec!["--quick".into()] });
        let expected = Options { venv: Some("x".into()), rest: vec!["--only".into(), "gpt2".into()] };
        assert_eq!(parsed("--only --venv x gpt2"), expected);
    }

    #[test]
    fn an_environment_without_python_is_named() {
        let script = Script { venv: "", requirements: "xtask/Cargo.toml", file: "xtask/Cargo.toml" };
        let options = Options { venv: Some("/nowhere".into()), rest: Vec::new() };
        let error = python(&script, &options).unwrap_err().to_string();
        assert!(error.contains("`/nowhere` holds no `bin/python`"), "{error}");
    }
}
