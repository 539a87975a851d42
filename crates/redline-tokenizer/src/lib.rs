//! Converts text to token ids and back.
//!
//! A [`Tokenizer`] is loaded from a Hugging Face directory (`tokenizer.json`, or `vocab.json` with `merges.txt`) and
//! produces the same ids as the `tokenizers` library, or made from the metadata of a GGUF file ([`GgufVocabulary`]). It
//! supports BPE models, byte-level (GPT-2, Llama 3, Qwen) and SentencePiece style with byte fallback (Llama 2, Mistral),
//! WordPiece (BERT) and Unigram (T5, XLM-RoBERTa). Unsupported or broken input is an error at load. After that,
//! encoding and decoding cannot fail, except for ids that are not in the vocabulary.
//!
//! The native encoder covers the forms of the common families. For other forms the library encodes;
//! [`Tokenizer::fallback`] reports it.
//!
//! Two settings of `tokenizer.json` are ignored on purpose: `truncation` and `padding`. Nothing is cut or added
//! silently.
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
mod charsmap;
mod chat;
mod decoder;
mod directory;
mod encoding;
mod error;
mod file;
mod gap;
mod gguf;
mod json;
mod library;
mod model;
mod native;
mod pad;
mod prefix_cache;
mod source;
mod stream;
mod text;
mod tokenizer;

pub use added::AddedToken;
pub use affix::PairAffixes;
pub use backend::Encoder;
pub use byte_level::{ByteLevelOptions, Split};
pub use chat::{ChatDate, ChatMessage, ChatTemplate, ChatValue, Conversation};
pub use encoding::Encoding;
pub use error::TokenizerError;
pub use gap::GapTokens;
pub use gguf::{GgufSpecialIds, GgufVocabulary};
pub use native::Beginning;
pub use pad::padded;
pub use prefix_cache::{PrefixCacheCounters, PrefixCacheOptions};
pub use stream::TextStream;
pub use tokenizer::Tokenizer;
