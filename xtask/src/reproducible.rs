//! Checks that the release binary does not depend on the build path: two clean builds of the last commit at different paths,
//! compared byte by byte.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::Failure;
use crate::ci::cargo;
use crate::process::Call;

/// The build folders, under `target/reproducible`. They differ in length and depth.
const PLACES: [&str; 2] = ["one", "another/place"];

/// `cargo xtask reproducible`: fails if the two binaries differ, and then keeps them.
pub(crate) fn reproducible(_: &[String]) -> Result<(), Failure> {
    let work = crate::root().join("target/reproducible");
    clear(&work)?;
    let binaries = PLACES.map(|place| build(&work.join(place)));
    let [one, other] = binaries;
    let (one, other) = (one?, other?);
    let read = |path: &PathBuf| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    if let Some(what) = difference(&read(&one)?, &read(&other)?) {
        let (one, other) = (one.display(), other.display());
        return Err(anyhow::anyhow!("two builds differ: {what}\n  in `{one}` and `{other}`").into());
    }
    let sum = Call::new("sha256sum").path(&one).path(&other);
    // The checksum is for comparing with another machine by hand; the bytes have already been compared.
    if let Err(error) = sum.run() {
        eprintln!("no sum to show: {error:#}");
    }
    Ok(clear(&work)?)
}

/// Builds the last commit in a clone at `place` and returns the binary.
fn build(place: &Path) -> Result<PathBuf> {
    let git = Call::new("git").args(["clone", "--quiet", "--no-hardlinks"]);
    git.path(crate::root()).path(place).run()?;
    let build =
        cargo().args(["build", "--release", "--locked", "--package", "redline-cli", "--manifest-path"]);
    build.path(&place.join("Cargo.toml")).arg("--target-dir").path(&place.join("target")).run()?;
    Ok(place.join("target/release/redline"))
}

fn clear(work: &Path) -> Result<()> {
    match fs::remove_dir_all(work) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("cannot remove {}: {error}", work.display())
        }
        _ => Ok(()),
    }
}

/// Describes the difference between two files; `None` if they are equal.
fn difference(one: &[u8], other: &[u8]) -> Option<String> {
    let first = one.iter().zip(other).position(|(a, b)| a != b);
    let count = one.iter().zip(other).filter(|(a, b)| a != b).count();
    match first {
        Some(at) => {
            Some(format!("{count} bytes, the first at {at}; lengths {} and {}", one.len(), other.len()))
        }
        None if one.len() != other.len() => Some(format!("lengths {} and {}", one.len(), other.len())),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_with_its_place() {
        assert_eq!(difference(b"abc", b"abc"), None);
        assert_eq!(difference(b"abc", b"axd").unwrap(), "2 bytes, the first at 1; lengths 3 and 3");
        assert_eq!(difference(b"abc", b"abcd").unwrap(), "lengths 3 and 4");
    }

    #[test]
    fn the_places_differ_in_length_and_depth() {
        let [one, other] = PLACES.map(Path::new);
        assert_ne!(one.components().count(), other.components().count());
        assert_ne!(PLACES[0].len(), PLACES[1].len());
    }
}
