//! Conversations and the chat templates that format them.

mod answers;
pub mod keys;
pub mod reading;
pub mod request;
pub mod template;
pub mod tools;
