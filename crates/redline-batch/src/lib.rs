//! Tables in, tables out: a request is made of every row, and its answer becomes columns of the results.
//!
//! The rows of the inputs are divided into parts. Each part becomes one file of results, which is named by a digest of all that its
//! content depends on, and written whole or not at all. So workers need no coordinator: any number of processes, on any machines,
//! share a directory; they may be killed at any time, and others may go on in another division. Because the engine gives equal bits
//! everywhere, the files are always the same.
//!
//! `table/` knows the formats of files, `kind/` what is asked, `work/` which parts there are and which are done, [`run`] does it.

#![forbid(unsafe_code)]

mod cell;
mod error;
mod fields;
mod json;
mod kind;
mod request;
mod run;
mod table;
mod work;

pub use error::BatchError;
pub use json::Json;
pub use kind::kinds;
pub use request::{ROWS_PER_FILE, TableRequest};
pub use run::{BatchProgress, BatchSummary, answer_rows, run};
pub use table::formats;
pub use work::{BadShard, BatchPlaces, Shard};
