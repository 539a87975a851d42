//! GGUF files: the format of llama.cpp, with metadata and tensors in one file, or in the parts of a split.
//!
//! - `header.rs`: version, metadata (`metadata.rs`, `value.rs`), and descriptions of tensors (`tensor.rs`), read with a
//!   `cursor.rs` that checks each length against the bytes that follow.
//! - `parts.rs`: finds the files and checks that they belong together.
//! - `block/`: how each type stores its values, `integers.rs`: how integers and scales become values.
//! - `read.rs`: reads ranges of rows and of values, and identifies a model by a checksum.
//!
//! Versions 2 and 3 are read, little-endian. The format allows bytes between tensors and after the last one; they are not read.

mod block;
mod cursor;
mod fault;
mod header;
mod integers;
mod metadata;
mod parts;
mod read;
mod strings;
mod tensor;
mod value;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::checkpoint::weight_layouts;
use crate::error::{Result, WeightsError};
use crate::infq::Infq;
use crate::shard::Shard;
use crate::source::Source;

pub use block::GgufType;
pub use fault::GgufFault;
use header::{Header, MAGIC};
pub use integers::GgufParts;
pub use metadata::GgufMetadata;
use parts::Opened;
pub use parts::{GgufPartName, is_gguf_name};
pub use strings::GgufStrings;
pub use tensor::GgufTensor;
pub use value::{GgufArray, GgufValue};

/// A model in a GGUF file, or in the parts of one that was split.
///
/// Headers are read and checked on opening. The files stay open, and tensors are read on demand, from any number of threads.
pub struct Gguf {
    origin: PathBuf,
    metadata: GgufMetadata,
    shards: Vec<Shard>,
    tensors: BTreeMap<String, Located>,
}

struct Located {
    shard: usize,
    tensor: GgufTensor,
}

impl Gguf {
    /// Whether `path` is a model in this format: a file that begins like one, or a directory with such files and no other weights.
    pub fn is(path: &Path) -> bool {
        if path.is_dir() {
            return !Infq::is(path)
                && !weight_layouts().any(|(name, _)| path.join(name).exists())
                && parts::are_in(path);
        }
        let mut first = [0; MAGIC.len()];
        path.is_file()
            && (is_gguf_name(path)
                || File::open(path)
                    .is_ok_and(|mut file| file.read_exact(&mut first).is_ok() && first == MAGIC))
    }

    /// Opens a GGUF file, or the only one in a directory. The name of a part (`NAME-00001-of-00003.gguf`) stands for all parts,
    /// which are looked for beside it. They must say of themselves what their names say, agree in their metadata, and hold
    /// as many tensors as the first part says.
    pub fn open(path: &Path) -> Result<Self> {
        let about = fs::metadata(path).map_err(WeightsError::io("open the model", path))?;
        let found = if about.is_dir() { Some(parts::in_directory(path)?) } else { None };
        let (metadata, files) = parts::open(found.as_deref().unwrap_or(path))?;
        Ok(Self::of(path.to_owned(), metadata, files))
    }

    /// Opens a GGUF file in memory; `origin` replaces the path in messages.
    pub fn from_bytes(origin: &str, gguf: &'static [u8]) -> Result<Self> {
        let shard = Shard { file: origin.into(), source: Source::Bytes(gguf) };
        let Header { metadata, tensors } = Header::read(&shard)?;
        parts::check_whole(&metadata)?;
        Ok(Self::of(origin.into(), metadata, vec![(shard, tensors)]))
    }

    /// The path it was opened from, or the name of the embedded bytes.
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// What the file, or the first part, says about the model.
    pub fn metadata(&self) -> &GgufMetadata {
        &self.metadata
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Type, shape and place of a tensor, or `None` if it does not exist.
    pub fn tensor(&self, name: &str) -> Option<&GgufTensor> {
        self.tensors.get(name).map(|located| &located.tensor)
    }

    /// The file that holds a tensor, or `None` if it does not exist.
    pub fn file_of(&self, name: &str) -> Option<&Path> {
        self.tensors.get(name).map(|located| self.shards[located.shard].file.as_path())
    }

    fn of(origin: PathBuf, metadata: GgufMetadata, files: Vec<Opened>) -> Self {
        let (mut shards, mut all) = (Vec::new(), BTreeMap::new());
        for (nth, (shard, tensors)) in files.into_iter().enumerate() {
            shards.push(shard);
            all.extend(
                tensors.into_iter().map(|tensor| (tensor.name.clone(), Located { shard: nth, tensor })),
            );
        }
        Self { origin, metadata, shards, tensors: all }
    }

    fn locate(&self, name: &str) -> Result<(&GgufTensor, &Shard)> {
        let located = self.tensors.get(name).ok_or_else(|| WeightsError::MissingTensor {
            tensor: name.to_owned(),
            file: self.origin.clone(),
        })?;
        Ok((&located.tensor, &self.shards[located.shard]))
    }
}
