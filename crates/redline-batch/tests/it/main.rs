//! Tables that are answered by the embedded models.

mod answers;
mod divided;
mod refused;
mod tables;
