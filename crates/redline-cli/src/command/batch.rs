//! `redline batch`: answers the rows of tables, with any number of workers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Args;
use clap::builder::PossibleValuesParser;
use redline_api::chat::template::{Chat, ChatOptions};
use redline_api::jsonl::judge::ChatFrames;
use redline_api::jsonl::model::ChatModel;
use redline_api::model::LoadedModel;
use redline_batch::{
    BatchError, BatchPlaces, BatchProgress, BatchSummary, Json, ROWS_PER_FILE, Shard, TableRequest,
};
use redline_weights::Disk;
use serde::Serialize;
use serde_json::json;

use super::Context;
use crate::adapters::AdapterFlags;
use crate::interrupt::Interrupt;
use crate::message::{self, FAILED, Failure};
use crate::model::{MachineFlags, ModelFlag};
use crate::prefix_cache::PrefixCacheFlags;
use crate::progress::Bar;
use crate::{output, spelling, value};

/// What is read and written, for the help.
const HELP: &str = "Every row becomes a request in the form of a line of --jsonl of the command KIND: `redline help KIND` lists its keys. The \
    text of a row comes from the columns `text` (classify, embed), `query` and `items` or `item` (score), `query` and `documents` or \
    `document` (rerank), `prompt` or `messages` (generate, diffuse), or from those that --column names. Results repeat the columns of the \
    input and add new ones, in files of the format of the input (Parquet, Arrow, JSON Lines), one for at most 4096 rows. A row that \
    cannot be answered has nulls, and the reason in the column `error`.\n\n\
    Files are written whole or not at all, and named by a digest of the input, the model and the request. So work that was interrupted \
    goes on when the command is run again; workers on several machines share a directory, each with a --shard; and the results are the \
    same, to the last byte, however the work was divided. With the last file comes `_manifest.json`. docs/batch.md says more.";

/// Flags of `batch`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct BatchArgs {
    /// What is asked of every row
    #[arg(value_parser = PossibleValuesParser::new(redline_batch::kinds()))]
    kind: String,
    #[command(flatten)]
    model: ModelFlag,
    /// A table, or a directory whose tables are read in the order of their names (repeatable)
    #[arg(long, short, value_name = "PATH", required = true)]
    input: Vec<PathBuf>,
    /// The directory of the results; work that is found there is continued
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// The column that gives a key of the request its values, such as text=review (repeatable)
    #[arg(long, value_name = "KEY=COLUMN", value_parser = value::key_column)]
    column: Vec<(String, String)>,
    /// A key of the request with the same value for all rows, such as max_new_tokens=64; a value that is not JSON is text (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = value::key_value)]
    set: Vec<(String, Json)>,
    /// A column of the input that the results repeat (repeatable); default: all
    #[arg(long, value_name = "COLUMN", conflicts_with = "keep_none")]
    keep: Vec<String>,
    /// Repeat no column of the input
    #[arg(long)]
    keep_none: bool,
    /// What the names of the new columns begin with
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// The most rows of a file of results; a row group of a Parquet file with more rows becomes several files
    #[arg(long, value_name = "N", default_value_t = ROWS_PER_FILE, value_parser = value::count)]
    rows_per_file: usize,
    /// The share of this worker: 1/4 to 4/4 are those of four workers
    #[arg(long, value_name = "I/N", default_value_t = Shard::ALL, value_parser = value::shard)]
    shard: Shard,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print nothing but the directory
    #[arg(long, short)]
    quiet: bool,
    /// Format every prompt with the model's chat template, as the user's message
    #[arg(long, help_heading = "Chat template")]
    chat: bool,
    /// A Jinja file to use instead of the model's chat template
    #[arg(long, value_name = "FILE", help_heading = "Chat template")]
    chat_template: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    prefix_cache: PrefixCacheFlags,
    #[command(flatten)]
    adapters: AdapterFlags,
}

/// Answers the rows of the shard.
pub(super) fn run(args: &BatchArgs, context: &Context) -> Result<ExitCode, Failure> {
    let request = request(args)?;
    let model = args.model.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args.prefix_cache.resolve(settings, context.environment)?.with_adapters(&args.adapters);
    let options = ChatOptions {
        file: args.chat_template.clone(),
        formats_prompts: args.chat,
        ..ChatOptions::default()
    };
    let chat = Chat::open(&model.name, &model.source(context.environment)?, options);
    if args.chat || args.chat_template.is_some() {
        chat.check()?;
    }
    let loaded = settings.load(&model, context.environment)?;
    let frames = args.chat.then(|| ChatFrames::new(chat.clone(), &loaded.engine)).transpose()?;
    let frames = frames.map(Mutex::new);
    let on = ChatModel { model: &loaded, chat: &chat, frames: frames.as_ref() };
    let places = BatchPlaces {
        inputs: args.input.clone(),
        output: args.output.clone(),
        shard: args.shard,
        disk: Disk::default(),
    };
    let bar = Bar::new("reading".to_owned());
    let interrupt = Interrupt::with_termination()?;
    let begin = context.clock.now_ns();
    let done = interrupt
        .during(|cancel| redline_batch::run(&request, &places, on, &mut |at| show(&bar, at), cancel));
    bar.clear();
    match done {
        Ok(summary) => report(args, &loaded, &summary, context.clock.elapsed_s(begin)),
        Err(BatchError::Cancelled) => {
            message::say("stopped: files that were written stay, and the same command goes on\n");
            Ok(ExitCode::from(interrupt.code()))
        }
        Err(error) => Err(failure(error)),
    }
}

/// The request, with the adapters that the flags choose.
fn request(args: &BatchArgs) -> Result<TableRequest, Failure> {
    let mut values = once("--set", args.set.clone())?;
    let adapters = args.adapters.choices();
    if !adapters.is_empty() && !values.contains_key("adapter") {
        let choices = adapters.into_iter().map(|one| json!({ "name": one.name, "scale": one.scale }).into());
        values.insert("adapter".to_owned(), Json::List(choices.collect()));
    }
    let keep = if args.keep.is_empty() && !args.keep_none { None } else { Some(args.keep.clone()) };
    Ok(TableRequest {
        columns: once("--column", args.column.clone())?,
        values,
        keep,
        prefix: args.prefix.clone(),
        rows_per_file: args.rows_per_file,
        ..TableRequest::new(&args.kind)
    })
}

/// The pairs of a flag, whose keys must differ.
fn once<T>(flag: &str, pairs: Vec<(String, T)>) -> Result<BTreeMap<String, T>, Failure> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if map.contains_key(&key) {
            return Err(Failure::usage(format!("`{flag} {key}=` is given twice"), "give it once"));
        }
        map.insert(key, value);
    }
    Ok(map)
}

fn show(bar: &Bar, progress: BatchProgress) {
    match progress {
        BatchProgress::Reading { bytes, all } => bar.show(bytes, all),
        BatchProgress::Answering { rows, before, all, failed } => {
            let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
            bar.name(format!("row {rows} of {all}{failed}"));
            if rows == before {
                bar.start_at(rows, all);
            } else {
                bar.show(rows, all);
            }
        }
    }
}

/// An error, which is one of usage if it says so.
fn failure(error: BatchError) -> Failure {
    match error {
        BatchError::Request(error) => (*error).into(),
        error => {
            let hint = spelling::spelled(error.hint());
            if error.is_usage() {
                Failure::usage(error.to_string(), hint.unwrap_or_default())
            } else {
                Failure::failed(error.to_string(), hint)
            }
        }
    }
}

/// What was done, as JSON.
#[derive(Serialize)]
struct Report<'a> {
    output: String,
    shard: String,
    rows: u64,
    answered: u64,
    failed: u64,
    files_done: usize,
    files: usize,
    manifest: Option<String>,
    seconds: f64,
    kernel_path: &'a str,
}

fn report(
    args: &BatchArgs,
    loaded: &LoadedModel,
    done: &BatchSummary,
    seconds: f64,
) -> Result<ExitCode, Failure> {
    let BatchSummary { rows, answered, failed, done: files_done, files, ref manifest } = *done;
    let shard = args.shard.to_string();
    if args.json {
        let manifest = manifest.as_ref().map(|(path, _)| path.display().to_string());
        let output = args.output.display().to_string();
        let kernel_path = &loaded.engine.info().kernel_path;
        let report = Report {
            output,
            shard,
            rows,
            answered,
            failed,
            files_done,
            files,
            manifest,
            seconds,
            kernel_path,
        };
        output::line(&output::json(&report)?)?;
    } else {
        output::line(&args.output.display().to_string())?;
    }
    if !args.quiet && !args.json {
        let rate = answered as f64 / seconds.max(1e-9);
        let before =
            if answered < rows { format!(" ({} were done before)", rows - answered) } else { String::new() };
        let errors = if failed > 0 { format!(", {failed} with an error") } else { String::new() };
        message::say(format_args!("{answered} rows{errors} in {seconds:.1} s ({rate:.0} rows/s){before}\n"));
        let place = manifest
            .as_ref()
            .map_or_else(String::new, |(path, _)| format!("; manifest `{}`", path.display()));
        message::say(format_args!("files done: {files_done} of {files}{place}\n"));
    }
    let all_failed = manifest.as_ref().map_or(failed, |(_, failed)| *failed);
    Ok(if all_failed > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}
