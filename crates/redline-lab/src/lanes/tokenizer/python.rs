//! Measurements of the Python package, from the file that `xtask/peers/tokenizer.py` writes: one line per repeat.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::arms;
use super::texts::Input;
use crate::bench::{LaneError, Result, verify};

/// A line: one repeat with all texts.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Line {
    threads: usize,
    texts: usize,
    bytes: usize,
    pub(super) tokens: usize,
    seconds: f64,
    digest: String,
    pub(super) version: String,
}

/// The measurements for one input; at least one, all with the same ids and version.
#[derive(Debug)]
pub(super) struct Python {
    path: PathBuf,
    lines: Vec<Line>,
}

impl Python {
    /// Reads measurements, which must be for this input and cover every number of threads.
    pub(super) fn read(path: &Path, input: &Input, threads: &[usize]) -> Result<Self> {
        let refused = |fact: String| LaneError::Input(format!("{fact}\n  in `{}`", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        Self::parse(path, &text, input, threads).map_err(refused)
    }

    fn parse(path: &Path, text: &str, input: &Input, threads: &[usize]) -> Result<Self, String> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let lines: Vec<Line> =
            reader.deserialize().collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let Some(first) = lines.first() else { return Err("there is no line of figures".to_owned()) };
        for (number, line) in (2..).zip(&lines) {
            let (texts, bytes) = (input.texts.len(), input.bytes());
            if (line.texts, line.bytes) != (texts, bytes) {
                return Err(format!(
                    "line {number} is about {} texts of {} bytes, but the input has {texts} of {bytes}",
                    line.texts, line.bytes
                ));
            }
            if !(line.seconds > 0.0 && line.seconds.is_finite()) {
                return Err(format!("line {number}: {} seconds cannot have been measured", line.seconds));
            }
            if (line.tokens, &line.digest, &line.version) != (first.tokens, &first.digest, &first.version) {
                return Err(format!("line {number} has other tokens or another version than line 2"));
            }
        }
        let measured: BTreeSet<usize> = lines.iter().map(|line| line.threads).collect();
        if let Some(missing) = threads.iter().find(|threads| !measured.contains(threads)) {
            let measured: Vec<String> = measured.iter().map(usize::to_string).collect();
            return Err(format!(
                "there is no line with {missing} threads, only with {}",
                measured.join(", ")
            ));
        }
        Ok(Self { path: path.to_owned(), lines })
    }

    /// The first line, for what is the same in all.
    pub(super) fn first(&self) -> &Line {
        &self.lines[0]
    }

    /// Checks that Python found the same ids.
    pub(super) fn check(&self, ids: &[Vec<u32>]) -> Result<()> {
        let (digest, first) = (arms::digest(ids), self.first());
        verify(digest == first.digest, || {
            let tokens: usize = ids.iter().map(Vec::len).sum();
            format!(
                "Python {} found other ids: {} of digest {}, and here {tokens} of digest {digest}\n  in `{}`",
                first.version,
                first.tokens,
                first.digest,
                self.path.display()
            )
        })
    }

    /// Seconds of every repeat with this number of threads.
    pub(super) fn seconds(&self, threads: usize) -> Vec<f64> {
        self.lines.iter().filter(|line| line.threads == threads).map(|line| line.seconds).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "threads,texts,bytes,tokens,seconds,digest,version\n";

    fn parse(lines: &str, threads: &[usize]) -> Result<Python, String> {
        let input = Input { name: "file", texts: vec!["one".to_owned(), "two".to_owned()] };
        Python::parse(Path::new("p.csv"), &format!("{HEADER}{lines}"), &input, threads)
    }

    #[test]
    fn repeats_are_kept_by_threads() {
        let digest = arms::digest(&[vec![1], vec![2]]);
        let lines = [(1, 0.5), (2, 0.25), (1, 0.75)]
            .map(|(threads, seconds)| format!("{threads},2,6,2,{seconds},{digest},0.22.2\n"));
        let python = parse(&lines.concat(), &[2, 1]).unwrap();
        assert_eq!((python.seconds(1), python.seconds(2)), (vec![0.5, 0.75], vec![0.25]));
        assert_eq!((python.first().tokens, python.first().version.as_str()), (2, "0.22.2"));
        assert!(python.check(&[vec![1], vec![2]]).is_ok());
        let Err(LaneError::Incorrect(fact)) = python.check(&[vec![1], vec![3]]) else { panic!() };
        assert!(fact.contains("other ids") && fact.contains(&digest) && fact.contains("`p.csv`"), "{fact}");
    }

    #[test]
    fn what_tells_of_something_else_is_refused() {
        let refused = |lines: &str, expect: &str| {
            let fact = parse(lines, &[1, 8]).unwrap_err();
            assert!(fact.contains(expect), "{fact}");
        };
        refused("", "no line");
        refused("1,2,6,2,0.5,d,v\n2,2,6,2,0.5,d,v\n", "no line with 8 threads, only with 1, 2");
        refused("1,2,7,2,0.5,d,v\n", "2 texts of 7 bytes, but the input has 2 of 6");
        refused("1,3,6,2,0.5,d,v\n", "3 texts of 6 bytes");
        refused("1,2,6,2,0,d,v\n", "line 2: 0 seconds");
        refused("1,2,6,2,NaN,d,v\n", "NaN seconds");
        refused("1,2,6,2,1,d,v\n8,2,6,2,1,e,v\n", "line 3 has other tokens");
        refused("1,2,6,2,fast,d,v\n", "line: 2");
        refused("1,2\n", "found record with 2 fields");
    }
}
