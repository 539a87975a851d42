//! The engine's thread: it takes requests in, and runs one pass after another while there are any.

pub(crate) mod core;
pub(crate) mod loader;
pub(crate) mod machine;
pub(crate) mod places;
pub(crate) mod runner;
pub(crate) mod team_size;
