//! An opened checkpoint: names, shapes and values of its tensors, wherever they lie.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::dtype::Dtype;
use crate::error::{Result, WeightsError};
use crate::fault::{HeaderFault, IndexFault};
use crate::file::{exists, open_regular, read_file};
use crate::index;
use crate::safetensors::{LENGTH_BYTES, MAX_HEADER, TensorInfo, header_length, parse_header};
use crate::source::{Positioned, Source};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Weight files of other formats, recognised to say so.
const OTHERS: [&str; 3] = ["pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5"];
/// Bytes read at once; every read of a tensor needs this much memory besides its destination.
const CHUNK: usize = 1 << 20;

/// The weights of one model: a directory with `model.safetensors` or with an index and its shards, or one
/// safetensors file embedded in the binary.
///
/// Headers are read and checked when it is opened; the files stay open, and tensors are read on demand, from
/// any number of threads.
pub struct Checkpoint {
    origin: PathBuf,
    shards: Vec<Shard>,
    tensors: BTreeMap<String, Located>,
}

struct Shard {
    file: PathBuf,
    source: Source,
}

struct Located {
    shard: usize,
    info: TensorInfo,
}

impl Checkpoint {
    /// Opens the model directory `dir`. `model.safetensors` is taken before an index. Shards are plain names
    /// in `dir` (links are followed, as the Hugging Face cache needs); index and shards must list the same
    /// tensors.
    pub fn open(dir: &Path) -> Result<Self> {
        let about = fs::metadata(dir).map_err(WeightsError::io("open the model directory", dir))?;
        if !about.is_dir() {
            return Err(WeightsError::NotADirectory { path: dir.to_owned() });
        }
        let mut checkpoint = Self::empty(dir.to_owned());
        if exists(&dir.join(SINGLE))? {
            let (shard, tensors) = open_shard(dir.join(SINGLE))?;
            checkpoint.add(shard, tensors);
        } else if exists(&dir.join(INDEX))? {
            checkpoint.add_indexed(dir)?;
        } else {
            let other = OTHERS.into_iter().find(|name| dir.join(name).exists());
            return Err(WeightsError::NoWeights { dir: dir.to_owned(), other });
        }
        Ok(checkpoint)
    }

    /// Opens one safetensors file held in memory; `origin` stands for its path in messages.
    pub fn from_bytes(origin: &str, safetensors: &'static [u8]) -> Result<Self> {
        let shard = Shard { file: origin.into(), source: Source::Bytes(safetensors) };
        let tensors = read_header(&shard)?;
        let mut checkpoint = Self::empty(origin.into());
        checkpoint.add(shard, tensors);
        Ok(checkpoint)
    }

    /// The directory it was opened from, or the name of the embedded bytes.
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Type and shape of a tensor, or `None` when there is none of that name.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name).map(|located| &located.info)
    }

    /// The file that holds a tensor, or `None` when there is none of that name.
    pub fn file_of(&self, name: &str) -> Option<&Path> {
        self.tensors.get(name).map(|located| self.shards[located.shard].file.as_path())
    }

    /// Type and shape of a tensor that has to be there with this shape and in a format weights are read from.
    pub fn require(&self, name: &str, shape: &[usize]) -> Result<&TensorInfo> {
        let (info, shard) = self.locate(name)?;
        float(info, shard)?;
        if info.shape != shape {
            let (tensor, file) = (name.to_owned(), shard.file.clone());
            let (found, needed) = (info.shape.clone(), shape.to_owned());
            return Err(WeightsError::Shape { tensor, found, needed, dtype: info.dtype, file });
        }
        Ok(info)
    }

    /// Reads a whole tensor, row-major, converted exactly. A NaN or infinity in it is an error that names the
    /// element; `out` then holds a part of the tensor.
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Result<()> {
        let (info, shard) = self.locate(name)?;
        let dtype = float(info, shard)?;
        if out.len() != info.elements() {
            let (tensor, file) = (name.to_owned(), shard.file.clone());
            let (elements, given) = (info.elements(), out.len());
            return Err(WeightsError::BufferLength { tensor, elements, given, file });
        }
        let mut buffer = Vec::new();
        let mut offset = info.offset();
        let step = CHUNK / dtype.bytes();
        for (nth, part) in out.chunks_mut(step).enumerate() {
            let length = part.len() * dtype.bytes();
            let raw = shard.source.read(offset, length, &mut buffer);
            dtype.decode(raw.map_err(|error| shard.read_error(error, info))?, part);
            shard.refuse_non_finite(info, dtype, part, nth * step)?;
            offset += length as u64;
        }
        Ok(())
    }

    fn empty(origin: PathBuf) -> Self {
        Self { origin, shards: Vec::new(), tensors: BTreeMap::new() }
    }

    fn add(&mut self, shard: Shard, tensors: Vec<TensorInfo>) {
        let nth = self.shards.len();
        self.shards.push(shard);
        self.tensors
            .extend(tensors.into_iter().map(|info| (info.name.clone(), Located { shard: nth, info })));
    }

    /// Opens every shard of the index and holds the two lists of tensors against each other.
    fn add_indexed(&mut self, dir: &Path) -> Result<()> {
        let file = dir.join(INDEX);
        let refuse = |fault| WeightsError::Index { file: file.clone(), fault };
        let map = index::parse(&read_file(&file, MAX_HEADER)?).map_err(refuse)?;
        let first_of: BTreeMap<&String, &String> =
            map.iter().rev().map(|(tensor, shard)| (shard, tensor)).collect();
        for (shard, tensor) in first_of {
            if !exists(&dir.join(shard))? {
                let (tensor, shard) = (tensor.clone(), shard.clone());
                return Err(refuse(IndexFault::MissingShard { tensor, shard }));
            }
            let (opened, tensors) = open_shard(dir.join(shard))?;
            if let Some(info) = tensors.iter().find(|info| map.get(&info.name) != Some(shard)) {
                let (tensor, shard) = (info.name.clone(), shard.clone());
                return Err(refuse(IndexFault::Unlisted { tensor, shard }));
            }
            self.add(opened, tensors);
        }
        match map.iter().find(|(tensor, _)| !self.tensors.contains_key(*tensor)) {
            Some((tensor, shard)) => {
                Err(refuse(IndexFault::NotInShard { tensor: tensor.clone(), shard: shard.clone() }))
            }
            None => Ok(()),
        }
    }

    fn locate(&self, name: &str) -> Result<(&TensorInfo, &Shard)> {
        let located = self.tensors.get(name).ok_or_else(|| WeightsError::MissingTensor {
            tensor: name.to_owned(),
            file: self.origin.clone(),
        })?;
        Ok((&located.info, &self.shards[located.shard]))
    }
}

impl Shard {
    fn read_error(&self, error: io::Error, info: &TensorInfo) -> WeightsError {
        match self.source.len() {
            Ok(has) if error.kind() == io::ErrorKind::UnexpectedEof => WeightsError::Truncated {
                tensor: info.name.clone(),
                needs: info.offset() + info.bytes(),
                has,
                file: self.file.clone(),
            },
            _ => WeightsError::io("read a tensor", &self.file)(error),
        }
    }

    /// `values` begin at element `first` of the tensor.
    fn refuse_non_finite(&self, info: &TensorInfo, dtype: Dtype, values: &[f32], first: usize) -> Result<()> {
        // One pass without branches; the search for the place runs only when there is one.
        if values.iter().fold(true, |finite, value| finite & value.is_finite()) {
            return Ok(());
        }
        let place = values.iter().position(|value| !value.is_finite()).unwrap_or(0);
        let (tensor, file) = (info.name.clone(), self.file.clone());
        Err(WeightsError::NonFinite { tensor, index: first + place, value: values[place], dtype, file })
    }
}

fn float(info: &TensorInfo, shard: &Shard) -> Result<Dtype> {
    let (dtype, file) = (info.dtype, &shard.file);
    let refuse = || WeightsError::Dtype { tensor: info.name.clone(), dtype, file: file.clone() };
    dtype.float().ok_or_else(refuse)
}

fn open_shard(path: PathBuf) -> Result<(Shard, Vec<TensorInfo>)> {
    let (file, _) = open_regular(&path)?;
    let shard = Shard { file: path, source: Source::File(Positioned::new(file)) };
    let tensors = read_header(&shard)?;
    Ok((shard, tensors))
}

fn read_header(shard: &Shard) -> Result<Vec<TensorInfo>> {
    let refuse = |fault| WeightsError::Header { file: shard.file.clone(), fault };
    let io = |error| WeightsError::io("read the header", &shard.file)(error);
    let bytes = shard.source.len().map_err(io)?;
    if bytes < LENGTH_BYTES {
        return Err(refuse(HeaderFault::TooShort { bytes }));
    }
    let mut buffer = Vec::new();
    let first = shard.source.read(0, LENGTH_BYTES as usize, &mut buffer).map_err(io)?;
    let mut length = [0; LENGTH_BYTES as usize];
    length.copy_from_slice(first);
    let length = header_length(length, bytes).map_err(refuse)?;
    let header = shard.source.read(LENGTH_BYTES, length as usize, &mut buffer).map_err(io)?;
    parse_header(header, bytes).map_err(refuse)
}
