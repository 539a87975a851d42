//! Conversations and the chat templates that format them.

pub mod keys;
pub mod template;
pub mod tools;
