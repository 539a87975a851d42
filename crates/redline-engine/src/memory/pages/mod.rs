//! Pages of earlier requests that outlive the process.
//!
//! The engine's thread asks for pages and hands over others; what takes time happens on other threads, and [`PageEvent`]s say when
//! it is done. Nothing here knows sequences: a page is a key and bytes.

pub(crate) mod disk;
mod index;
mod unsaved;

use redline_weights::PageKey;

pub(crate) use self::index::PageIndex;
pub(crate) use self::unsaved::{NextPage, Unsaved};

/// Where pages outlive the process.
pub(crate) trait PageArchive {
    /// Begins to read these pages, in this order. Ends with the first that is missing or damaged.
    fn read(&mut self, job: u64, keys: Vec<PageKey>);

    /// Says that no more pages of the job that is being read are wanted; `slow`: because it takes too long.
    fn stop_reading(&mut self, slow: bool);

    /// Takes back the memory of a page that was read.
    fn give_back(&mut self, page: Vec<u8>);

    /// Memory for a page to write, unless all is in use; with `wait`, waits a second for some. Its content is unspecified.
    fn take_buffer(&mut self, wait: bool) -> Option<Vec<u8>>;

    /// Begins to write a page. [`PageEvent::Written`] follows.
    fn write(&mut self, key: PageKey, page: Vec<u8>);
}

/// What other threads did.
#[derive(Debug)]
pub(crate) enum PageEvent {
    /// The next page of a job was read.
    Read { job: u64, key: PageKey, page: Vec<u8> },
    /// No more pages of a job follow.
    Finished { job: u64 },
    /// A page was written, or could not be; memory for another is free.
    Written { key: PageKey },
}
