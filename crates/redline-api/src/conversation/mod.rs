//! Requests for answers to conversations: their prompts, what the answers have to be, and how they are read.

mod answers;
pub mod reading;
pub mod request;
