//! Subcommands that are Python scripts. Those that need third-party packages have virtual environments of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Failure;
use crate::process::Call;

/// A script, its packages, and where they are installed.
struct Script {
    venv: &'static str,
    requirements: &'static str,
    /// An environment variable set while the packages are installed.
    environment: Option<(&'static str, &'static str)>,
    file: &'static str,
}

/// llama.cpp is compiled on the machine. GCC 12 treats `ldtilecfg` as a read of 8 of the 64 bytes of a tile configuration and
/// removes the stores of the others as dead: on processors with AMX the quantised formats then end in a segmentation fault.
const BUILD_LLAMA: (&str, &str) = ("CXXFLAGS", "-fno-tree-dse -fno-dse");

/// Options of the caller: an existing environment, and arguments for the script.
#[derive(Debug, Default, PartialEq)]
struct Options {
    venv: Option<PathBuf>,
    rest: Vec<String>,
}

/// `cargo xtask golden`: autoregressive models, models that fill masks, label scores of the latter, sampled continuations, chat
/// templates, adapters, encoders, and tables.
pub(crate) fn golden(arguments: &[String]) -> Result<(), Failure> {
    let options = options(arguments)?;
    for file in [
        "tests/golden/make.py",
        "tests/golden/diffusion.py",
        "tests/golden/likelihood.py",
        "tests/golden/sampling.py",
        "tests/golden/chat.py",
        "tests/golden/adapters.py",
        "tests/golden/encoders.py",
        "tests/golden/vectors.py",
        "tests/golden/tables.py",
    ] {
        let requirements = "tests/golden/requirements.txt";
        let script = Script { venv: ".venv-golden", requirements, environment: None, file };
        python(&script, &options)?.run()?;
    }
    Ok(())
}

/// `cargo xtask parity-reference`, in the environment of `golden`.
pub(crate) fn parity_reference(arguments: &[String]) -> Result<(), Failure> {
    let script = Script {
        venv: ".venv-golden",
        requirements: "tests/golden/requirements.txt",
        environment: None,
        file: "xtask/reference/parity.py",
    };
    let options = options(arguments)?;
    Ok(python(&script, &options)?.run()?)
}

/// `cargo xtask train-demo`
pub(crate) fn train_demo(arguments: &[String]) -> Result<(), Failure> {
    train(arguments, "models/demo/train.py")
}

/// `cargo xtask train-demo-diffusion`, with the same packages.
pub(crate) fn train_demo_diffusion(arguments: &[String]) -> Result<(), Failure> {
    train(arguments, "models/demo-diffusion/train.py")
}

fn train(arguments: &[String], file: &'static str) -> Result<(), Failure> {
    let requirements = "models/demo/requirements.txt";
    let script = Script { venv: ".venv-demo", requirements, environment: None, file };
    let options = options(arguments)?;
    Ok(python(&script, &options)?.run()?)
}

/// `cargo xtask peers`, `cargo xtask peers torch` for models that fill masks, `cargo xtask peers serving` for servers,
/// and `cargo xtask peers encoders` for encoders.
pub(crate) fn peers(arguments: &[String]) -> Result<(), Failure> {
    let (file, arguments) = match arguments {
        [first, rest @ ..] if first == "torch" => ("xtask/peers/diffusion.py", rest),
        [first, rest @ ..] if first == "serving" => ("xtask/peers/serving.py", rest),
        [first, rest @ ..] if first == "encoders" => ("xtask/peers/encoders.py", rest),
        all => ("xtask/peers/run.py", all),
    };
    let script = Script {
        venv: ".venv-peers",
        requirements: "xtask/peers/requirements.txt",
        environment: Some(BUILD_LLAMA),
        file,
    };
    with_redline(&script, arguments)
}

/// `cargo xtask clients`: the server through clients that others wrote, in two groups whose packages do not go together. Arguments that
/// name a group are for it alone.
pub(crate) fn clients(arguments: &[String]) -> Result<(), Failure> {
    let of_one = arguments.iter().position(|argument| argument == "--group").map(|at| arguments.get(at + 1));
    for (group, venv, requirements) in [
        ("base", ".venv-clients", "xtask/clients/requirements.txt"),
        ("frameworks", ".venv-clients-frameworks", "xtask/clients/requirements-frameworks.txt"),
    ] {
        let script = Script { venv, requirements, environment: None, file: "xtask/clients/run.py" };
        match &of_one {
            Some(one) if one.is_some_and(|one| one != group) => {}
            Some(_) => with_redline(&script, arguments)?,
            None => with_redline(&script, &[arguments, &["--group".into(), group.into()]].concat())?,
        }
    }
    Ok(())
}

/// `cargo xtask schemas`: grammars of JSON schemas, judged by others.
pub(crate) fn schemas(arguments: &[String]) -> Result<(), Failure> {
    let script = Script {
        venv: ".venv-schemas",
        requirements: "xtask/schemas/requirements.txt",
        environment: None,
        file: "xtask/schemas/run.py",
    };
    with_redline(&script, arguments)
}

/// `cargo xtask page`: the server's page in a headless browser.
pub(crate) fn page(arguments: &[String]) -> Result<(), Failure> {
    let script = Script {
        venv: ".venv-page",
        requirements: "xtask/page/requirements.txt",
        environment: None,
        file: "xtask/page/run.py",
    };
    with_redline(&script, arguments)
}

/// `cargo xtask python`: the Python package, built, installed into a fresh virtual environment and tested.
pub(crate) fn bindings(arguments: &[String]) -> Result<(), Failure> {
    let script = Script {
        venv: ".venv-python",
        requirements: "bindings/python/requirements.txt",
        environment: None,
        file: "bindings/python/check.py",
    };
    with_redline(&script, arguments)
}

/// `cargo xtask stress`: the server under overload and faults. The script needs no package.
pub(crate) fn stress(arguments: &[String]) -> Result<(), Failure> {
    let options = options(arguments)?;
    if options.venv.is_some() {
        let message = "`stress` needs no package, so it takes no `--venv`\n\nhint: leave out `--venv`";
        return Err(Failure::Usage(message.into()));
    }
    build(&options.rest)?;
    Ok(Call::new("python3").args(["-B", "xtask/stress/run.py"]).args(options.rest).run()?)
}

/// Runs a script that runs Redline.
fn with_redline(script: &Script, arguments: &[String]) -> Result<(), Failure> {
    let options = options(arguments)?;
    let call = python(script, &options)?;
    build(&options.rest)?;
    Ok(call.run()?)
}

/// Builds Redline for a script, unless its arguments name a binary or ask only for its help.
fn build(arguments: &[String]) -> Result<(), Failure> {
    let named = |a: &String| a == "--redline" || a.starts_with("--redline=") || a == "--help" || a == "-h";
    if !arguments.iter().any(named) {
        crate::ci::cargo().args(["build", "--locked", "--release", "--package", "redline-cli"]).run()?;
    }
    Ok(())
}

/// Whether there is a Python that can make virtual environments.
pub(crate) fn is_there() -> bool {
    let check = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";
    Command::new("python3").args(["-c", check]).status().is_ok_and(|status| status.success())
}

/// Removes `--venv DIR` from the arguments. All others, and everything after `--`, go to the script.
fn options(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            options.rest.extend(arguments.by_ref().cloned());
        } else if argument == "--venv" {
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

/// The call of the script with the Python of its environment, which is created unless the caller provides one.
fn python(script: &Script, options: &Options) -> Result<Call> {
    let root = crate::root();
    for file in [script.requirements, script.file] {
        if !root.join(file).is_file() {
            bail!("`{file}` is not there");
        }
    }
    let venv = match &options.venv {
        Some(venv) => std::path::absolute(venv)?,
        None => installed(script, root)?,
    };
    let python = venv.join("bin/python");
    if !python.exists() {
        bail!("`{}` holds no `bin/python`\n\nhint: python3 -m venv {}", venv.display(), venv.display());
    }
    Ok(Call::new(python.display().to_string()).arg(script.file).args(options.rest.iter().cloned()))
}

/// Creates the environment of a script, unless it already exists with the same requirements.
fn installed(script: &Script, root: &Path) -> Result<PathBuf> {
    let (venv, requirements) = (root.join(script.venv), root.join(script.requirements));
    let stamp = venv.join("installed.txt");
    let wanted =
        fs::read(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    if fs::read(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(venv);
    }
    eprintln!("==> installing {} into {}", requirements.display(), venv.display());
    Call::new("python3").args(["-m", "venv"]).path(&venv).run()?;
    let python = venv.join("bin/python").display().to_string();
    let install = Call::new(python).args(["-m", "pip", "install", "--requirement"]).path(&requirements);
    script.environment.into_iter().fold(install, |call, (name, value)| call.env(name, value)).run()?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(venv)
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
        let behind = Options { venv: Some("x".into()), rest: vec!["--venv".into(), "y".into()] };
        assert_eq!(parsed("--venv x -- --venv y"), behind);
    }

    #[test]
    fn an_environment_is_refused_where_none_is_needed() {
        let arguments = ["--venv", "x", "--help"].map(str::to_string);
        let Err(Failure::Usage(message)) = stress(&arguments) else { panic!("`--venv` was accepted") };
        assert!(message.contains("takes no `--venv`"), "{message}");
    }

    #[test]
    fn an_environment_without_python_is_named() {
        let file = "xtask/Cargo.toml";
        let script = Script { venv: "", requirements: file, environment: None, file };
        let options = Options { venv: Some("/nowhere".into()), rest: Vec::new() };
        let error = python(&script, &options).unwrap_err().to_string();
        assert!(error.contains("`/nowhere` holds no `bin/python`"), "{error}");
    }

    /// The arithmetic, documents and tables of the scripts, which need Python but no package, server or time.
    #[test]
    fn the_tests_of_the_scripts_pass() {
        let python = |arguments: &[&str]| {
            std::process::Command::new("python3").args(arguments).current_dir(crate::root()).output()
        };
        let recent = python(&["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]);
        if !recent.is_ok_and(|done| done.status.success()) {
            eprintln!("no Python 3.11 here: the tests in xtask/peers and xtask/stress did not run");
            return;
        }
        for folder in ["xtask/peers", "xtask/stress"] {
            let done = python(&["-B", "-m", "unittest", "discover", folder]).expect("python3 just ran");
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success() && !said.contains("Ran 0 tests"), "{said}");
        }
    }
}
