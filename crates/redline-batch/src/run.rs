//! Does the work: reads rows, asks the engine, and writes the results.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use redline_api::error::ApiError;
use redline_api::jsonl::model::ChatModel;
use redline_api::pump::Pump;
use redline_engine::{Cancel, EngineError};

use crate::cell::{Cell, Column, Holds};
use crate::error::BatchError;
use crate::fields::Fields;
use crate::json::Json;
use crate::kind;
use crate::kind::{ERROR, Kind, Refusal, RowRequest};
use crate::request::{RowRequests, TableRequest};
use crate::table::{OpenTable, Parts, Rows, Shape, Table, guarded};
use crate::work::{BatchPlaces, Finish, Part, Work, read_inputs};

/// Maximum number of rows whose answers are awaited: enough that passes are full of short rows.
const WINDOW: usize = 192;
/// Rows that are answered before a request is refused.
const TRIED: u64 = 16;
/// Number of parts in memory at which no further one is read, if they have rows for four windows.
const CHUNKS: usize = 4;
/// How often a wait is interrupted to see whether the caller cancelled.
const LOOK: Duration = Duration::from_millis(20);

/// How far the work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchProgress {
    /// Inputs are read for their digests.
    Reading {
        /// Bytes so far.
        bytes: u64,
        /// Bytes of all inputs.
        all: u64,
    },
    /// Rows are answered.
    Answering {
        /// Rows of the shard that are done, in this run or before.
        rows: u64,
        /// Of these, rows that were done before.
        before: u64,
        /// Rows of the shard.
        all: u64,
        /// Rows of this run with an error instead of an answer.
        failed: u64,
    },
}

/// What has been done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSummary {
    /// Rows of the shard.
    pub rows: u64,
    /// Rows that were answered in this run; the others had been before.
    pub answered: u64,
    /// Of these, rows with an error instead of an answer.
    pub failed: u64,
    /// Files of results that are done, of all shards.
    pub done: usize,
    /// Files that there will be.
    pub files: usize,
    /// If all files are done: the manifest, and the number of rows without an answer in all of them.
    pub manifest: Option<(PathBuf, u64)>,
}

/// Answers the rows of a shard that are not answered yet. The worker that does the last part writes the manifest.
///
/// # Errors
/// No results are written if the request is wrong whatever the rows, or if the directory has results of other work. If the work is stopped
/// by an error or by `cancel`, the files that were written stay, and the same call goes on.
pub fn run(
    request: &TableRequest,
    places: &BatchPlaces,
    on: ChatModel<'_>,
    watch: &mut dyn FnMut(BatchProgress),
    cancel: &Cancel,
) -> Result<BatchSummary, BatchError> {
    let kind = kind::named(&request.kind)?;
    request.check(kind)?;
    let inputs = read_inputs(&places.inputs, &places.output, cancel, &mut |bytes, all| {
        watch(BatchProgress::Reading { bytes, all });
    })?;
    let tables = inputs.iter().map(|input| match rows_of(&input.open) {
        0 => Ok(Reading::of_nothing(&input.open)),
        _ => Reading::new(&input.open, request, kind),
    });
    let tables = tables.collect::<Result<Vec<_>, _>>()?;
    if let Some(first) = tables.iter().find(|table| rows_of(table.input) > 0) {
        try_out(kind, on, first, cancel)?;
    }
    let work = Work::join(places, request, kind, on, &inputs)?;
    let (parts, rows) = work.open_parts()?;
    let open: u64 = parts.iter().map(Part::rows).sum();
    let before = rows - open;
    watch(BatchProgress::Answering { rows: before, before, all: rows, failed: 0 });
    let (mut answered, mut failed) = (0, 0);
    let mut count = |is_failed| {
        answered += 1;
        failed += u64::from(is_failed);
        watch(BatchProgress::Answering { rows: before + answered, before, all: rows, failed });
    };
    let adapters = on.model.engine.adapter_checksums();
    let mut write = |chunk: Chunk<'_>, answers| {
        if on.model.engine.adapter_checksums() != adapters {
            return Err(BatchError::Adapters);
        }
        let bytes = results(chunk.reading, chunk.rows, answers)?;
        chunk.part.map_or(Ok(()), |part| work.write(&part, &bytes))
    };
    let parts = Box::new(PartReader::new(&tables, parts));
    let done = Runner::new(kind, on, parts, cancel).run(&mut count, &mut write);
    // What cannot be read may be a file that changed.
    done.map_err(|error| match error {
        error @ BatchError::Table { .. } => work.changed().unwrap_or(error),
        error => error,
    })?;
    let Finish { done, files, manifest } = work.finish(cancel)?;
    Ok(BatchSummary { rows, answered, failed, done, files, manifest })
}

/// Answers the rows of a table in memory: an Arrow stream or file. Returns an Arrow file, with the same columns as [`run`] has.
///
/// # Errors
/// As [`run`]; there are no files that could be of other work.
pub fn answer_rows(
    request: &TableRequest,
    table: Vec<u8>,
    on: ChatModel<'_>,
    cancel: &Cancel,
) -> Result<Vec<u8>, BatchError> {
    let kind = kind::named(&request.kind)?;
    request.check(kind)?;
    let input = OpenTable::in_memory(table)?;
    let reading = Reading::new(&input, request, kind)?;
    let all = rows_of(&input);
    let whole = std::iter::once(0..all).collect();
    let rows = input.table.read(0, whole, reading.read.as_deref())?;
    let chunks = rows.map(|rows| Ok(Chunk { reading: &reading, rows: rows?, part: None }));
    let mut answered = Vec::new();
    let mut keep = |chunk: Chunk<'_>, answers| {
        answered = results(chunk.reading, chunk.rows, answers)?;
        Ok(())
    };
    if all > 0 {
        try_out(kind, on, &reading, cancel)?;
    }
    Runner::new(kind, on, Box::new(chunks), cancel).run(&mut |_| (), &mut keep)?;
    Ok(answered)
}

/// Number of rows of an input.
fn rows_of(input: &OpenTable) -> u64 {
    input.table.groups().iter().fold(0, |all, rows| all.saturating_add(*rows))
}

/// How the rows of an input become requests, and what the results have.
struct Reading<'a> {
    input: &'a OpenTable,
    requests: RowRequests,
    /// The columns that are read; `None`: all.
    read: Option<Vec<String>>,
    /// The columns that the results repeat; `None`: all.
    keep: Option<Vec<String>>,
    /// The new columns of the results. The last one is that of errors.
    columns: Vec<Column>,
    /// The columns of them that are properties of an answer in JSON: the last ones before that of errors.
    fields: Fields,
}

impl<'a> Reading<'a> {
    /// The reading of an input without rows, which may lack what the others have.
    fn of_nothing(input: &'a OpenTable) -> Self {
        let requests = RowRequests::new(BTreeMap::new(), &BTreeMap::new());
        Self { input, requests, read: None, keep: None, columns: Vec::new(), fields: Fields::default() }
    }

    fn new(input: &'a OpenTable, request: &TableRequest, kind: &dyn Kind) -> Result<Self, BatchError> {
        let table = input.table.as_ref();
        let path = || input.path.clone();
        let known =
            || table.columns().iter().map(|column| column.name.clone()).collect::<Vec<_>>().join(", ");
        let chosen = request.resolved(kind, table.columns()).map_err(|key| BatchError::NoText {
            key: key.to_owned(),
            known: known(),
            path: path(),
        })?;
        for name in chosen.values().chain(request.keep.iter().flatten()) {
            let is_there = table.columns().iter().any(|column| column.name == *name);
            if !is_there {
                return Err(BatchError::NoColumn { column: name.clone(), known: known(), path: path() });
            }
        }
        for (key, name) in &chosen {
            check_type(kind, key, name, table)
                .map_err(|fact| BatchError::ColumnType { fact, path: path() })?;
        }
        let lists = kind.list().is_some_and(|key| {
            let column = |name: &String| table.columns().iter().find(|column| column.name == *name);
            chosen.get(key).and_then(column).is_some_and(|column| column.shape == Shape::List)
                || request.values.get(key).is_some_and(Json::is_list)
        });
        let (fields, own) = (kind.fields(&request.values), kind.columns(lists));
        let own = own.into_iter().chain(fields.columns()).chain([(ERROR, Holds::Text)]);
        let columns: Vec<_> =
            own.map(|(name, holds)| Column { name: format!("{}{name}", request.prefix), holds }).collect();
        let mut names = HashSet::new();
        if let Some(twice) = columns.iter().find(|column| !names.insert(&column.name)) {
            return Err(BatchError::Property { column: twice.name.clone() });
        }
        let mut kept = table.columns().iter().filter(|column| match &request.keep {
            Some(keep) => keep.contains(&column.name),
            None => true,
        });
        if let Some(twice) = kept.find(|kept| columns.iter().any(|column| column.name == kept.name)) {
            return Err(BatchError::Twice { column: twice.name.clone() });
        }
        let read = request.keep.as_ref().map(|keep| keep.iter().chain(chosen.values()).cloned().collect());
        let requests = RowRequests::new(chosen, &request.values);
        Ok(Self { input, requests, read, keep: request.keep.clone(), columns, fields })
    }
}

/// Refuses a column that no value of a key can be made of: says what it holds, and what is wanted.
fn check_type(kind: &dyn Kind, key: &str, name: &str, table: &dyn Table) -> Result<(), String> {
    let Some(column) = table.columns().iter().find(|column| column.name == name) else { return Ok(()) };
    let is_text = kind.texts().iter().any(|text| text.names.contains(&key));
    let wanted = match column.shape {
        Shape::Unreadable => "a text, a number, a truth value, or lists and structures of these",
        Shape::Other if is_text => "a text",
        Shape::List if key == "text" => "one text",
        _ => return Ok(()),
    };
    Err(format!("column `{name}` holds {}, and `{key}` is {wanted}", column.holds))
}

/// Makes a request of the values that are the same for all rows, with another text, and waits for its answer: what is wrong with it is
/// wrong with every row, unless one of the first rows can be answered.
fn try_out(
    kind: &dyn Kind,
    on: ChatModel<'_>,
    reading: &Reading<'_>,
    cancel: &Cancel,
) -> Result<(), BatchError> {
    let Some(trial) = reading.requests.trial(kind) else { return Ok(()) };
    let Err(wrong) = answer_one(kind, on, trial, cancel)? else { return Ok(()) };
    let table = &reading.input.table;
    let mut groups = table.groups().iter().enumerate();
    let Some((group, rows)) = groups.find(|(_, rows)| **rows > 0) else { return Ok(()) };
    let ranges = std::iter::once(0..TRIED.min(*rows)).collect();
    let first = guarded(&reading.input.path, || {
        table.read(group, ranges, reading.read.as_deref())?.collect::<Result<Vec<_>, _>>()
    })?;
    for rows in first {
        for row in 0..rows.len() {
            if let Ok(request) = reading.requests.of(kind, &rows, row)
                && answer_one(kind, on, request, cancel)?.is_ok()
            {
                return Ok(());
            }
        }
    }
    Err(match wrong {
        ApiError::NoLabel => BatchError::Key {
            fact: wrong.to_string(),
            hint: "give `labels` or `label_token_ids` a value for all rows, or a column".to_owned(),
        },
        ApiError::NoQuery => BatchError::Key {
            fact: wrong.to_string(),
            hint: "give `query` a value for all rows, or a column".to_owned(),
        },
        wrong => wrong.into(),
    })
}

/// Waits for the answer to a request. The inner error is that of the request.
fn answer_one(
    kind: &dyn Kind,
    on: ChatModel<'_>,
    request: RowRequest,
    cancel: &Cancel,
) -> Result<Result<(), ApiError>, BatchError> {
    let (stop, mut rows) = (Cancel::new(), RowPump::default());
    loop {
        match kind.begin(on, request.clone(), &stop, rows.next_done()) {
            Ok(()) => break rows.push((), true),
            // Others have filled the queue.
            Err(ApiError::Engine(EngineError::QueueFull { .. })) if !cancel.is_cancelled() => {
                std::thread::sleep(LOOK);
            }
            Err(error) => return Ok(Err(error)),
        }
    }
    loop {
        rows.receive(LOOK);
        if let Some(((), outcome)) = rows.pop() {
            return Ok(outcome.unwrap_or(Err(EngineError::Stopped)).map(drop).map_err(ApiError::from));
        }
        if cancel.is_cancelled() {
            stop.cancel();
            return Err(BatchError::Cancelled);
        }
    }
}

/// The answer to a row: its cells, or what its column `error` says.
type RowAnswer = Result<Vec<Cell>, String>;
/// Rows under way. `C` is what the answer to a row needs to know of it.
type RowPump<C> = Pump<C, Result<Vec<Cell>, EngineError>, Infallible>;

/// Rows that belong together: a part, or a table in memory.
struct Chunk<'a> {
    reading: &'a Reading<'a>,
    rows: Rows,
    part: Option<Part>,
}

impl Chunk<'_> {
    /// The error of a row for which the engine failed.
    fn failed(&self, index: usize, error: EngineError) -> BatchError {
        let before = self.part.as_ref().map_or(0, |part| part.before);
        let path = self.reading.input.path.clone();
        BatchError::Engine { path, row: before + index as u64 + 1, error: Box::new(error) }
    }
}

/// Reads parts in their order.
struct PartReader<'a> {
    tables: &'a [Reading<'a>],
    waiting: VecDeque<Part>,
    /// The rows of the parts of one group, as they are read.
    reader: Option<((usize, usize), Parts)>,
}

impl<'a> PartReader<'a> {
    fn new(tables: &'a [Reading<'a>], parts: Vec<Part>) -> Self {
        Self { tables, waiting: parts.into(), reader: None }
    }

    /// Reads the rows of a part.
    fn read(&mut self, part: &Part) -> Result<Rows, BatchError> {
        let place = (part.input, part.group);
        let reading = &self.tables[part.input];
        if self.reader.as_ref().is_none_or(|(at, _)| *at != place) {
            // The parts of the group follow one another.
            let others = self.waiting.iter().take_while(|other| (other.input, other.group) == place);
            let ranges = std::iter::once(part).chain(others).map(|part| part.range.clone()).collect();
            let rows = guarded(&reading.input.path, || {
                reading.input.table.read(part.group, ranges, reading.read.as_deref())
            })?;
            self.reader = Some((place, rows));
        }
        let path = &reading.input.path;
        let mut next = || self.reader.as_mut().and_then(|(_, rows)| rows.next());
        guarded(path, || next().unwrap_or_else(|| Err(BatchError::table(path, &"rows are missing"))))
    }
}

impl<'a> Iterator for PartReader<'a> {
    type Item = Result<Chunk<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let part = self.waiting.pop_front()?;
        let rows = self.read(&part);
        Some(rows.map(|rows| Chunk { reading: &self.tables[part.input], rows, part: Some(part) }))
    }
}

/// Rows that are being answered.
struct Running<'a> {
    chunk: Chunk<'a>,
    /// Number of rows that were begun.
    begun: usize,
    /// The answers to the first rows.
    answers: Vec<RowAnswer>,
}

/// Receives chunks whose rows are all answered, in their order.
type Write<'w> = &'w mut dyn FnMut(Chunk<'_>, Vec<RowAnswer>) -> Result<(), BatchError>;

/// Keeps the engine busy with the rows of chunks.
struct Runner<'a> {
    kind: &'a dyn Kind,
    on: ChatModel<'a>,
    /// Chunks that were not begun, in their order.
    waiting: Box<dyn Iterator<Item = Result<Chunk<'a>, BatchError>> + 'a>,
    running: VecDeque<Running<'a>>,
    /// Their rows that were begun and have no answer. The context of a row that cannot be asked says why.
    rows: RowPump<Result<(), String>>,
    /// Whether the engine had no place for a row.
    is_full: bool,
    cancel: &'a Cancel,
    /// Ends what is under way when this ends early.
    stop: Cancel,
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl<'a> Runner<'a> {
    fn new(
        kind: &'a dyn Kind,
        on: ChatModel<'a>,
        waiting: Box<dyn Iterator<Item = Result<Chunk<'a>, BatchError>> + 'a>,
        cancel: &'a Cancel,
    ) -> Self {
        let (running, rows, stop) = (VecDeque::new(), Pump::default(), Cancel::new());
        Self { kind, on, waiting, running, rows, is_full: false, cancel, stop }
    }

    /// Answers all rows. `row` is called for each, with whether it failed.
    fn run(&mut self, row: &mut dyn FnMut(bool), write: Write<'_>) -> Result<(), BatchError> {
        loop {
            self.begin_rows()?;
            if self.take_answers(row, write)? {
                continue;
            }
            if self.running.is_empty() {
                return Ok(());
            }
            if self.rows.receive(LOOK).is_none() {
                self.is_full = false;
            }
            while self.rows.receive(Duration::ZERO).is_some() {
                self.is_full = false;
            }
        }
    }

    /// Begins rows until enough are under way.
    fn begin_rows(&mut self) -> Result<(), BatchError> {
        while self.rows.running() < WINDOW && !self.is_full {
            if self.running.back().is_some_and(|running| running.begun < running.chunk.rows.len()) {
                self.begin_row()?;
                continue;
            }
            let rows: usize = self.running.iter().map(|running| running.chunk.rows.len()).sum();
            if self.running.len() >= CHUNKS && rows >= 4 * WINDOW {
                return Ok(());
            }
            let Some(chunk) = self.waiting.next().transpose()? else { return Ok(()) };
            self.running.push_back(Running { chunk, begun: 0, answers: Vec::new() });
        }
        Ok(())
    }

    /// Begins the next row of the last chunk.
    fn begin_row(&mut self) -> Result<(), BatchError> {
        let Some(running) = self.running.back_mut() else { return Ok(()) };
        let (chunk, index) = (&running.chunk, running.begun);
        let request = chunk.reading.requests.of(self.kind, &chunk.rows, index).map_err(Refusal::Row);
        let begun = request
            .and_then(|request| Ok(self.kind.begin(self.on, request, &self.stop, self.rows.next_done())?));
        match begun {
            Ok(()) => self.rows.push(Ok(()), true),
            Err(Refusal::Row(reason)) => self.rows.push(Err(reason), false),
            // Others may have filled the queue.
            Err(Refusal::Engine(EngineError::QueueFull { .. })) => {
                self.is_full = true;
                return Ok(());
            }
            Err(Refusal::Engine(error)) => return Err(chunk.failed(index, error)),
        }
        running.begun += 1;
        Ok(())
    }

    /// Takes the answers whose turn it is, and writes the chunks whose rows are all answered. Says whether there were any of these.
    fn take_answers(&mut self, row: &mut dyn FnMut(bool), write: Write<'_>) -> Result<bool, BatchError> {
        let mut wrote = false;
        loop {
            if self.cancel.is_cancelled() {
                return Err(BatchError::Cancelled);
            }
            let is_done = |running: &mut Running<'_>| running.answers.len() == running.chunk.rows.len();
            if let Some(Running { chunk, answers, .. }) = self.running.pop_front_if(is_done) {
                write(chunk, answers)?;
                wrote = true;
                continue;
            }
            let (Some(running), Some((asked, outcome))) = (self.running.front_mut(), self.rows.pop()) else {
                return Ok(wrote);
            };
            let answer = match (asked, outcome) {
                (Err(reason), _) => Err(reason),
                (Ok(()), Some(Ok(cells))) => Ok(cells),
                (Ok(()), Some(Err(error))) if error.is_certain() => Err(error.to_string()),
                (Ok(()), failed) => {
                    let error = failed.and_then(Result::err).unwrap_or(EngineError::Stopped);
                    return Err(running.chunk.failed(running.answers.len(), error));
                }
            };
            row(answer.is_err());
            running.answers.push(answer);
        }
    }
}

/// The file of results of a part.
fn results(reading: &Reading<'_>, rows: Rows, answers: Vec<RowAnswer>) -> Result<Vec<u8>, BatchError> {
    let Reading { input, columns, fields, keep, .. } = reading;
    let failed = |reason: String| BatchError::table(&input.path, &reason);
    let width = columns.len() - 1;
    let cells = answers.into_iter().map(|answer| match answer {
        Ok(mut cells) => {
            if let Some(Cell::Text(answer)) = cells.first() {
                cells.extend(fields.cells(answer));
            }
            cells.resize(width, Cell::None);
            cells.push(Cell::None);
            cells
        }
        Err(reason) => {
            let mut cells = vec![Cell::None; width];
            cells.push(Cell::Text(reason));
            cells
        }
    });
    let cells: Vec<_> = cells.collect();
    let rows = match keep {
        Some(keep) => rows.keeping(keep).map_err(failed)?,
        None => rows,
    };
    if let Some(column) = columns.iter().find(|column| rows.has(&column.name)) {
        return Err(BatchError::Twice { column: column.name.clone() });
    }
    input.format.results(&rows, columns, &cells).map_err(failed)
}
