//! The machine, described by file trees.

mod machine;
