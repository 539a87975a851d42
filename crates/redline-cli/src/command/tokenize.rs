//! `redline tokenize`: encodes text as token ids.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::jsonl::tokenize::{self, TokenIds, TokenizeLine, with_offsets, without_offsets};
use redline_tokenizer::{Encoder, Tokenizer, TokenizerError};

use super::Context;
use crate::jsonl::{self, Answer, Answers, Done, TargetFlags};
use crate::message::{self, Failure};
use crate::tokenizer::TokenizerFlags;
use crate::{model, output, text, value};

/// Forms of input and output, for the help.
const FORMS: &str = "Prints the ids on one line, separated by spaces; with --offsets a line per id: the id, its first byte in \
    the text and the byte after its last. A line of --jsonl is {\"text\": ..}, and may have an \"id\" for the answer to repeat, its answer {\"ids\": [..]}, with --offsets \
    also \"offsets\": [[begin, end], ..]; answers come in the order of the lines. Special tokens that are written in a text \
    become their ids, with --no-special too.";

/// Flags of `tokenize`.
#[derive(Debug, Args)]
#[command(after_help = FORMS)]
pub(super) struct TokenizeArgs {
    #[command(flatten)]
    tokenizer: TokenizerFlags,
    /// The text
    #[arg(value_name = "TEXT")]
    words: Option<String>,
    /// The text
    #[arg(long, value_name = "TEXT", conflicts_with = "words")]
    text: Option<String>,
    /// A file whose whole content is the text, line ends included; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["words", "text"])]
    file: Option<PathBuf>,
    /// Texts from a file, one JSON object per line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["words", "text", "file"])]
    jsonl: Option<PathBuf>,
    #[command(flatten)]
    target: TargetFlags,
    /// Leave out the tokens that the tokenizer puts around a text (BOS, EOS)
    #[arg(long)]
    no_special: bool,
    /// Print the byte range of the text for each id
    #[arg(long)]
    offsets: bool,
    /// Number of threads for --jsonl; default: one per physical core that this process may use [env: REDLINE_THREADS]
    #[arg(long, value_name = "N", value_parser = value::threads, requires = "jsonl")]
    threads: Option<usize>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Tokenises the text from the flags, or a file of JSON lines.
pub(super) fn run(args: &TokenizeArgs, context: &Context) -> Result<ExitCode, Failure> {
    args.target.check(args.jsonl.is_some())?;
    let source = args.tokenizer.resolve(context.environment)?;
    let threads = model::threads(args.threads, context.environment)?;
    let load = || -> Result<Tokenizer, Failure> {
        let tokenizer = source.load(Encoder::Native).map_err(refused)?;
        message::warn_of_fallback(&source.name, &tokenizer);
        Ok(tokenizer)
    };
    if let Some(path) = &args.jsonl {
        let lines = jsonl::Lines::open(path)?;
        let how = How { tokenizer: &load()?, special: !args.no_special, offsets: args.offsets, threads };
        return tokenize_lines(how, lines, &args.target);
    }
    let text = the_text(args)?;
    let how = How { tokenizer: &load()?, special: !args.no_special, offsets: args.offsets, threads };
    let tokens = how.encode(&text).map_err(refused)?;
    if args.json {
        output::line(&output::json(&tokenize::answer(&source.name, how.tokenizer, tokens))?)?;
    } else {
        output::piece(&plain(&tokens))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn the_text(args: &TokenizeArgs) -> Result<String, Failure> {
    match (args.words.as_ref().or(args.text.as_ref()), &args.file) {
        (Some(text), _) => Ok(text.clone()),
        (None, Some(path)) => text::read(path),
        (None, None) => Err(Failure::usage(
            "no text given",
            "`redline tokenize --model M 'TEXT'`, `--file FILE`, `--file -` for standard input, or many with `--jsonl FILE`",
        )),
    }
}

fn refused(error: TokenizerError) -> Failure {
    Failure::failed(error.to_string(), error.hint())
}

/// The ids as plain text.
fn plain(tokens: &TokenIds) -> String {
    let Some(offsets) = &tokens.offsets else {
        let ids: Vec<String> = tokens.ids.iter().map(u32::to_string).collect();
        return ids.join(" ") + "\n";
    };
    let mut lines = String::new();
    for (id, [begin, end]) in tokens.ids.iter().zip(offsets) {
        let _ = writeln!(lines, "{id} {begin} {end}");
    }
    lines
}

/// The settings for encoding.
#[derive(Clone, Copy)]
struct How<'a> {
    tokenizer: &'a Tokenizer,
    special: bool,
    offsets: bool,
    threads: usize,
}

impl How<'_> {
    fn encode(&self, text: &str) -> Result<TokenIds, TokenizerError> {
        if self.offsets {
            return Ok(with_offsets(self.tokenizer.encode_with_offsets(text, self.special)?));
        }
        Ok(without_offsets(self.tokenizer.encode(text, self.special)?))
    }

    fn encode_batch(&self, texts: &[&str]) -> Result<Vec<TokenIds>, TokenizerError> {
        if self.offsets {
            let all = self.tokenizer.encode_batch_with_offsets(texts, self.special, self.threads)?;
            return Ok(all.into_iter().map(with_offsets).collect());
        }
        let all = self.tokenizer.encode_batch(texts, self.special, self.threads)?;
        Ok(all.into_iter().map(without_offsets).collect())
    }
}

fn tokenize_lines(how: How<'_>, lines: jsonl::Lines, target: &TargetFlags) -> Result<ExitCode, Failure> {
    let mut encoder = Lines { how, waiting: Vec::new(), encoded: VecDeque::new() };
    let tally = jsonl::answer_all(lines, target, &mut encoder, None)?;
    Ok(tally.code())
}

/// Answers JSON lines with tokens. Lines that arrive together are encoded as one batch, when the first answer is
/// needed.
struct Lines<'a> {
    how: How<'a>,
    waiting: Vec<String>,
    /// Results in line order; all of them precede the waiting lines.
    encoded: VecDeque<Result<TokenIds, TokenizerError>>,
}

impl Lines<'_> {
    fn encode_waiting(&mut self) {
        let texts: Vec<&str> = self.waiting.iter().map(String::as_str).collect();
        match self.how.encode_batch(&texts) {
            Ok(all) => self.encoded.extend(all.into_iter().map(Ok)),
            // An error in one text fails the whole batch; encoding each text alone finds the one.
            Err(_) => self.encoded.extend(texts.iter().map(|text| self.how.encode(text))),
        }
        self.waiting.clear();
    }
}

impl Answers for Lines<'_> {
    type Request = TokenizeLine;
    type Context = ();
    type Outcome = ();

    fn begin(&mut self, line: TokenizeLine, done: Done<()>) -> Result<(), Failure> {
        self.waiting.push(line.text);
        done.with(());
        Ok(())
    }

    fn answer(&mut self, (): (), (): ()) -> Result<Answer, Failure> {
        if self.encoded.is_empty() {
            self.encode_waiting();
        }
        let Some(tokens) = self.encoded.pop_front() else {
            unreachable!("a line is encoded before it is answered: `begin` has put it among those that wait");
        };
        Ok(Answer { json: output::json(&tokens.map_err(refused)?)?, stop: false })
    }
}
