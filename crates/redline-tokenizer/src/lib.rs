//! Text to token ids and back.
//!
//! A [`Tokenizer`] is loaded from a Hugging Face directory (`tokenizer.json`, or `vocab.json` with
//! `merges.txt`) and gives the ids that the `tokenizers` library gives. What it reads: BPE models, byte-level
//! (GPT-2, Llama 3, Qwen) and SentencePiece style with byte fallback (Llama 2, Mistral). Anything else, and
//! anything broken, is a named error at load: afterwards encoding and decoding are total functions of their
//! input, apart from ids that the vocabulary does not have.
//!
//! Text is encoded natively where the form is one of the common families', and by the library elsewhere, which
//! [`Tokenizer::fallback`] tells.
//!
//! Two settings of `tokenizer.json` are not followed, on purpose: `truncation` and `padding`. A caller that wants
//! fewer ids must say so; nothing is cut or added silently.
//!
//! ```no_run
//! # fn main() -> Result<(), redline_tokenizer::TokenizerError> {
//! let tokenizer = redline_tokenizer::Tokenizer::from_dir("models/llama".as_ref())?;
//! let ids = tokenizer.encode("Once upon a time", true)?;
//! let mut stream = tokenizer.stream();
//! for id in ids {
//!     print!("{}", stream.push(id)?);
//! }
//! println!("{}", stream.finish());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod added;
mod affix;
mod backend;
mod batch;
mod byte_level;
mod chat;
mod decoder;
mod directory;
mod encoding;
mod error;
mod json;
mod library;
mod model;
mod native;
mod pad;
mod prefix_cache;
mod stream;
mod text;
mod tokenizer;

pub use added::AddedToken;
pub use backend::Encoder;
pub use byte_level::{ByteLevelOptions, Split};
pub use chat::{ChatMessage, ChatTemplate};
pub use encoding::Encoding;
pub use error::TokenizerError;
pub use native::Beginning;
pub use pad::padded;
pub use prefix_cache::{PrefixCacheCounters, PrefixCacheOptions};
pub use stream::TextStream;
pub use tokenizer::Tokenizer;
