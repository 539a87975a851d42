//! Answers of every kind of request, as their JSON documents.

mod answers;
mod model;
