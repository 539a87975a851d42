//! `redline verify`: runs the request of a receipt again, and compares.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_api::model::LoadedModel;
use redline_api::receipt::document::{ReceiptDocument, ReceiptSettings, ReceiptVerdict};
use redline_api::receipt::{self, Verified};
use redline_engine::{Cancel, EngineError, ReceiptDifference};
use redline_system::number::count;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Context;
use crate::adapters::AdapterFlags;
use crate::display::shortened;
use crate::interrupt::Interrupt;
use crate::message::{self, FAILED, Failure, INTERRUPTED, Message};
use crate::model::{MachineFlags, ModelFlag};
use crate::prefix_cache::PrefixCacheFlags;
use crate::{json, output, text};

/// Flags of `verify`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct VerifyArgs {
    /// A file with receipts, or with JSON answers that contain them; `-` is standard input
    #[arg(value_name = "RECEIPT", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelFlag,
    /// Print a JSON document for each receipt, one per line
    #[arg(long)]
    json: bool,
    /// Print nothing; the exit code tells
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    prefix_cache: PrefixCacheFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// The help text about what is compared.
const HELP: &str = "A receipt tells what a model was asked (token ids and settings), what it answered, and digests of what its layers \
     computed. It is confirmed if this machine computes the same, whatever its processor, threads, instructions (--isa) and cache are. \
     Otherwise the first difference is told: a part of the receipt that was changed, another model or adapter, the first layer that \
     differs, or the answer. The model must be the same in the same formats (--format, --group, --outliers, --kv-format), of the same \
     version of Redline; adapters may have other names.\n\n\
     A file may hold several receipts, one after the other, as answers to --jsonl do, or in a list. Of an answer, only the receipt in it \
     is verified: compare its text with the answer.\n\n\
     Exit codes: 0 all receipts are confirmed; 1 failed, also if one is not confirmed; 2 wrong usage; 130 interrupted by Ctrl-C.";

/// Longest part of a text of a receipt that is shown, in columns.
const SHOWN: usize = 200;

/// A receipt with the place where it was read, or why it cannot be read.
struct Read {
    place: String,
    document: Result<ReceiptDocument, Message>,
}

/// A verdict with the place of its receipt.
#[derive(Serialize)]
struct Placed<'a> {
    #[serde(rename = "in")]
    place: &'a str,
    #[serde(flatten)]
    verdict: ReceiptVerdict,
    /// Number of rows and of layers whose digests were compared.
    rows: u64,
    layers: usize,
}

/// Verifies all receipts of the files.
pub(super) fn run(args: &VerifyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let receipts: Vec<Read> = args.files.iter().flat_map(|path| read(path)).collect();
    if receipts.iter().all(|read| read.document.is_err()) {
        // Nothing that needs a model.
        for failed in receipts.into_iter().filter_map(|read| read.document.err()) {
            Failure::Failed(failed).report();
        }
        return Ok(ExitCode::from(FAILED));
    }
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args.prefix_cache.resolve(settings, context.environment)?.with_adapters(&args.adapters);
    let loaded = settings.load(&model, context.environment)?;
    let interrupt = Interrupt::install()?;
    interrupt.during(|cancel| verify_all(args, &loaded, receipts, cancel))
}

fn verify_all(
    args: &VerifyArgs,
    loaded: &LoadedModel,
    receipts: Vec<Read>,
    cancel: &Cancel,
) -> Result<ExitCode, Failure> {
    let mut refused = false;
    for Read { place, document } in receipts {
        let (mut summary, mut rows, mut layers) = (String::new(), 0, 0);
        let verified = document.and_then(|document| {
            summary = self::summary(&document);
            (rows, layers) = (document.rows, document.layers.len());
            receipt::verify(&loaded.engine, document, cancel).map_err(|error| at(&place, &error))
        });
        if cancel.is_cancelled() {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        refused |= !matches!(verified, Ok(Verified::Confirmed));
        let told = if args.json {
            let verdict = match verified {
                Ok(verified) => receipt::verdict(verified),
                Err(Message { fact, .. }) => ReceiptVerdict {
                    confirmed: false,
                    reason: Some("failed"),
                    place: None,
                    receipt: None,
                    found: Some(fact),
                },
            };
            output::json(&Placed { place: &place, verdict, rows, layers })?
        } else {
            message::printable(&told(&place, &verified, &summary))
        };
        // A reader that left must not turn a receipt that is refused into a success.
        match if args.quiet { Ok(()) } else { output::line(&told) } {
            Ok(()) | Err(Failure::Closed) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(if refused { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// The error of a receipt whose request cannot be run here.
fn at(place: &str, error: &EngineError) -> Message {
    let fact = format!("its request cannot be run here: {error}\n  in {place}");
    Message { fact, hint: error.hint().map(|hint| hint.to_string()) }
}

/// The verdict in words.
fn told(place: &str, verified: &Result<Verified, Message>, summary: &str) -> String {
    let both = |difference: &ReceiptDifference, [says, found]: [&str; 2]| {
        let (receipt, here) = (shortened(&difference.receipt, SHOWN), shortened(&difference.found, SHOWN));
        format!("\n  in {place}\n  {says} {receipt}\n  {found} {here}")
    };
    match verified {
        Ok(Verified::Confirmed) => format!("confirmed: {summary}\n  in {place}"),
        Ok(Verified::Malformed(difference)) => format!(
            "refused: `{}` is not as receipts are written{}",
            difference.place,
            both(difference, ["found:   ", "expected:"])
        ),
        Ok(Verified::Changed(difference)) => format!(
            "refused: `{}` was changed after the receipt was made{}",
            difference.place,
            both(difference, ["its digest there:", "computed here:   "])
        ),
        Ok(Verified::Differs(difference)) => {
            let hint = match difference.place.as_str() {
                "model.weights" => {
                    "\n  load the same model with the same --format, --group, --outliers and --kv-format"
                }
                "model.texts" => {
                    "\n  the directory needs the same files of tokenizer, templates and configuration"
                }
                _ => "",
            };
            let both = both(difference, ["the receipt:", "here:        "]);
            format!("refused: `{}` differs{both}{hint}", difference.place)
        }
        Err(Message { fact, hint }) => {
            let hint = hint.as_ref().map_or_else(String::new, |hint| format!("\n  hint: {hint}"));
            format!("failed: {fact}{hint}")
        }
    }
}

/// What a receipt is of, in short.
fn summary(document: &ReceiptDocument) -> String {
    let tokens: usize = document.prompts.iter().map(|prompt| prompt.token_ids.len()).sum();
    let of =
        |thing: &str| format!("{} with {}", count(document.prompts.len(), thing), count(tokens, "token"));
    let what = match &document.request {
        ReceiptSettings::Generate(_) => {
            let new: usize =
                document.answer.iter().map(|one| one.token_ids.as_ref().map_or(0, Vec::len)).sum();
            format!("a generation of {} after {tokens}", count(new, "token"))
        }
        ReceiptSettings::Diffuse(_) => format!("a canvas after {}", count(tokens, "token")),
        ReceiptSettings::Score(_) => format!("the scores of {}", of("prompt")),
        ReceiptSettings::Embed(_) => format!("the embeddings of {}", of("text")),
        ReceiptSettings::Classifier => format!("the classes of {}", of("text")),
    };
    let rows = count(usize::try_from(document.rows).unwrap_or(usize::MAX), "row");
    format!("{what}, {rows} in {}", count(document.layers.len(), "layer"))
}

/// An answer that contains a receipt.
#[derive(Deserialize)]
struct Containing<'a> {
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    receipt: Option<&'a RawValue>,
}

/// Reads all receipts of a file. There is at least one, or an error in its place.
fn read(path: &Path) -> Vec<Read> {
    let file = message::place(path);
    let failed = |place: String, message: Message| Read { place, document: Err(message) };
    let text = match text::read(path) {
        Ok(text) => text,
        Err(failure) => return vec![failed(file, failure.into_message())],
    };
    let mut receipts = Vec::new();
    let mut values: Vec<Result<&RawValue, serde_json::Error>> = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<&RawValue>() {
        match value {
            // A list of receipts.
            Ok(list) if list.get().starts_with('[') => {
                match serde_json::from_str::<Vec<&RawValue>>(list.get()) {
                    Ok(elements) => values.extend(elements.into_iter().map(Ok)),
                    Err(error) => values.push(Err(error)),
                }
            }
            value => values.push(value),
        }
    }
    for (index, value) in values.into_iter().enumerate() {
        let place = format!("receipt {index} of {file}");
        match value.and_then(document) {
            Ok(None) => {}
            Ok(Some(document)) => receipts.push(Read { place, document: Ok(document) }),
            Err(error) => {
                let message = unreadable(&place, &error);
                receipts.push(failed(place, message));
            }
        }
    }
    if receipts.is_empty() {
        let fact = format!("there is no receipt\n  in {file}");
        let hint =
            "`--receipt FILE` of a command writes one, and `\"receipt\": true` in a request asks for one";
        return vec![failed(file, Message { fact, hint: Some(hint.to_owned()) })];
    }
    receipts
}

/// The receipt that a value is or contains; `None` if it is an answer without one.
fn document(value: &RawValue) -> Result<Option<ReceiptDocument>, serde_json::Error> {
    if !value.get().starts_with('{') {
        return Ok(None);
    }
    let Containing { object, receipt } = serde_json::from_str(value.get())?;
    let is_receipt = object.is_some_and(|object| object.get() == "\"receipt\"");
    let receipt = if is_receipt { Some(value) } else { receipt.filter(|inner| inner.get().starts_with('{')) };
    receipt.map(|receipt| serde_json::from_str(receipt.get())).transpose()
}

fn unreadable(place: &str, error: &serde_json::Error) -> Message {
    let fact = format!("{}\n  in {place}", json::explained(error));
    Message {
        fact,
        hint: Some("give a receipt as it was written, or an answer that contains one".to_owned()),
    }
}
