//! Reads the text from a flag, a file or standard input.

use std::path::Path;

use redline_engine::Prompt;

use super::PerplexityArgs;
use crate::message::{Failure, place};
use crate::text;

/// The hint for an empty text.
const SHORTEST: &str = "give a text of at least 2 tokens";

/// Reads the text that the flags name.
pub(super) fn read(args: &PerplexityArgs) -> Result<Prompt, Failure> {
    match (&args.text, &args.file, &args.ids) {
        (Some(text), _, _) if text.is_empty() => Err(Failure::usage("0 bytes of text", SHORTEST)),
        (Some(text), _, _) => Ok(Prompt::Text(text.clone())),
        (None, Some(path), _) => utf8(path).map(Prompt::Text),
        (None, None, Some(path)) => ids(path, &utf8(path)?).map(Prompt::Ids),
        (None, None, None) => Err(Failure::usage(
            "no text given",
            "`--text TEXT`, `--file FILE`, `--file -` for standard input, or token ids with `--ids FILE`",
        )),
    }
}

/// Reads a file as UTF-8; an empty file is an error.
fn utf8(path: &Path) -> Result<String, Failure> {
    let text = text::read(path)?;
    if text.is_empty() {
        let fact = format!("0 bytes of text\n  in {}", place(path));
        return Err(Failure::failed(fact, Some(SHORTEST.to_owned())));
    }
    Ok(text)
}

/// Parses ids separated by white space and commas.
fn ids(path: &Path, text: &str) -> Result<Vec<i64>, Failure> {
    let mut ids = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        for part in content.split([' ', '\t', ',']).filter(|part| !part.trim().is_empty()) {
            let id = part.trim().parse().map_err(|_| {
                let fact = format!("`{}` is not a token id\n  in {}, line {line}", part.trim(), place(path));
                Failure::failed(fact, Some("ids are whole numbers, separated by spaces or commas".to_owned()))
            })?;
            ids.push(id);
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_separated_by_spaces_commas_and_line_ends() {
        assert_eq!(ids(Path::new("f"), "1, 2,3\r\n\n4\t-5\n").unwrap(), [1, 2, 3, 4, -5]);
        assert_eq!(ids(Path::new("f"), " \n").unwrap(), [0i64; 0]);
        let Err(Failure::Failed(message)) = ids(Path::new("f"), "1\n2 x") else { panic!("accepted") };
        assert_eq!(message.fact, "`x` is not a token id\n  in `f`, line 2");
    }
}
