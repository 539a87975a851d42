//! Tables, models and runs for the tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use redline_api::chat::template::{Chat, ChatOptions};
use redline_api::jsonl::model::ChatModel;
use redline_api::model::LoadedModel;
use redline_batch::{BatchError, BatchPlaces, BatchSummary, Json, Shard, TableRequest, run};
use redline_demo::EMBEDDED;
use redline_engine::{Cancel, Engine, Options, Source};
use redline_weights::Disk;
use serde_json::Value;
use tempfile::TempDir;

/// An embedded model with its template, loaded once.
pub(crate) fn model(name: &str) -> ChatModel<'static> {
    static MODELS: OnceLock<Vec<(LoadedModel, Chat)>> = OnceLock::new();
    let load = || EMBEDDED.iter().map(|embedded| loaded(embedded.name, 256)).collect();
    let (model, chat) = MODELS.get_or_init(load).iter().find(|(model, _)| model.name == name).unwrap();
    ChatModel { model, chat, frames: None }
}

/// An embedded model whose engine takes so many requests at a time.
pub(crate) fn loaded(name: &str, queue: usize) -> (LoadedModel, Chat) {
    let embedded = EMBEDDED.iter().find(|embedded| embedded.name == name).unwrap();
    let source = Source::Embedded(**embedded);
    let chat = Chat::open(name, &source, ChatOptions::default());
    let options = Options { threads: 2, queue, ..Options::new(source) };
    (LoadedModel { name: name.to_owned(), engine: Engine::load(options).unwrap() }, chat)
}

/// A directory with tables and results.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes lines of JSON.
    pub(crate) fn lines(&self, name: &str, lines: &[&str]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, lines.join("\n")).unwrap();
        path
    }

    /// Writes texts as a Parquet file with columns `id` and `text`, in groups of `group` rows.
    pub(crate) fn parquet(&self, name: &str, texts: &[Option<&str>], group: usize) -> PathBuf {
        let ids: Int64Array = (0..texts.len() as i64).collect();
        let columns: Vec<(&str, ArrayRef, bool)> =
            vec![("id", Arc::new(ids), false), ("text", Arc::new(StringArray::from(texts.to_vec())), true)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let path = self.path(name);
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group)).build();
        let file = fs::File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        path
    }
}

/// A request with values for all rows, as a JSON object.
pub(crate) fn request(kind: &str, values: Value) -> TableRequest {
    let values: BTreeMap<String, Json> = serde_json::from_str(&values.to_string()).unwrap();
    TableRequest { values, ..TableRequest::new(kind) }
}

/// Where the work on one input is done.
pub(crate) fn places(input: &Path, output: &Path) -> BatchPlaces {
    let (inputs, output) = (vec![input.to_owned()], output.to_owned());
    BatchPlaces { inputs, output, shard: Shard::ALL, disk: Disk::default() }
}

/// Answers with the model `demo`.
pub(crate) fn answer(request: &TableRequest, places: &BatchPlaces) -> Result<BatchSummary, BatchError> {
    run(request, places, model("demo"), &mut |_| (), &Cancel::new())
}

/// The results of all files in `output`, in order, as JSON Lines have them.
pub(crate) fn results(output: &Path) -> Vec<Value> {
    let files = content(output).into_iter().filter(|(name, _)| name.starts_with("part-"));
    let text: String = files.map(|(_, bytes)| String::from_utf8(bytes).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Names and bytes of all files below a directory, without locks.
pub(crate) fn content(output: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(output).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let below = content(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes));
            all.extend(below);
        } else if path.extension().is_none_or(|ending| ending != "lock") {
            all.insert(name, fs::read(path).unwrap());
        }
    }
    all
}
