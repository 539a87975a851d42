//! An opened checkpoint: names, shapes and values of its tensors, in whichever files they are stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::checksum::{Checksum, Hash};
use crate::dtype::Dtype;
use crate::error::{Result, WeightsError};
use crate::fault::IndexFault;
use crate::file::{exists, read_file};
use crate::index::{self, WeightMap};
use crate::pytorch;
use crate::safetensors::{MAX_HEADER, TensorInfo};
use crate::shard::Shard;
use crate::source::Source;

/// A file of tensors and the tensors in it.
type Opened = (Shard, Vec<TensorInfo>);
/// A function that opens a file of one format.
type Open = fn(&Path) -> Result<Opened>;

/// The possible layouts of a weights directory, in the order they are tried; `true` marks an index with shards.
const LAYOUTS: [(&str, bool, Open); 4] = [
    ("model.safetensors", false, safetensors),
    ("model.safetensors.index.json", true, safetensors),
    ("pytorch_model.bin", false, pytorch::open),
    ("pytorch_model.bin.index.json", true, pytorch::open),
];
/// Weight files of unsupported formats, recognised for a better error message.
const OTHERS: [&str; 2] = ["tf_model.h5", "flax_model.msgpack"];
/// Bytes per read. Every read of a tensor needs this much memory besides its destination.
const CHUNK: usize = 1 << 20;

/// The weights of one model: a directory with `model.safetensors` or `pytorch_model.bin`, or with the index of
/// either and its shards, or one safetensors file embedded in the binary.
///
/// Headers are read and checked on opening. The files stay open, and tensors are read on demand, from any number of
/// threads. No code in a `pytorch_model.bin` is executed.
pub struct Checkpoint {
    origin: PathBuf,
    shards: Vec<Shard>,
    tensors: BTreeMap<String, Located>,
}

struct Located {
    shard: usize,
    info: TensorInfo,
}

impl Checkpoint {
    /// Opens the model directory `dir`. Looks for `model.safetensors`, its index, `pytorch_model.bin`, and its index,
    /// in this order, and uses the first that exists. Shards must be plain names in `dir`; links are followed, as the
    /// Hugging Face cache needs. Index and shards must list the same tensors.
    pub fn open(dir: &Path) -> Result<Self> {
        let about = fs::metadata(dir).map_err(WeightsError::io("open the model directory", dir))?;
        if !about.is_dir() {
            return Err(WeightsError::NotADirectory { path: dir.to_owned() });
        }
        for (name, has_shards, open) in LAYOUTS {
            let path = dir.join(name);
            if exists(&path)? {
                let files = if has_shards { indexed(&path, open)? } else { vec![open(&path)?] };
                let mut checkpoint = Self::empty(dir.to_owned());
                for (shard, tensors) in files {
                    checkpoint.add(shard, tensors);
                }
                return Ok(checkpoint);
            }
        }
        let other = OTHERS.into_iter().find(|name| dir.join(name).exists());
        Err(WeightsError::NoWeights { dir: dir.to_owned(), other })
    }

    /// Opens one safetensors file of any name, for tensors that are not a model's weights.
    pub fn open_file(path: &Path) -> Result<Self> {
        Self::one(path, safetensors)
    }

    /// Opens one file that `torch.save` wrote, like [`Self::open_file`].
    pub fn open_pytorch(path: &Path) -> Result<Self> {
        Self::one(path, pytorch::open)
    }

    fn one(path: &Path, open: Open) -> Result<Self> {
        let (shard, tensors) = open(path)?;
        let mut checkpoint = Self::empty(path.to_owned());
        checkpoint.add(shard, tensors);
        Ok(checkpoint)
    }

    /// Opens a safetensors file in memory; `origin` replaces the path in messages.
    pub fn from_bytes(origin: &str, safetensors: &'static [u8]) -> Result<Self> {
        let shard = Shard { file: origin.into(), source: Source::Bytes(safetensors) };
        let (tensors, _) = shard.header()?;
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

    /// Type and shape of a tensor, or `None` if it does not exist.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name).map(|located| &located.info)
    }

    /// The file that holds a tensor, or `None` if it does not exist.
    pub fn file_of(&self, name: &str) -> Option<&Path> {
        self.tensors.get(name).map(|located| self.shards[located.shard].file.as_path())
    }

    /// Type and shape of a tensor. It is an error if the tensor is missing, has another shape, or is not in a
    /// readable float format.
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

    /// Reads a whole tensor, row-major, converted exactly. A NaN or infinity is an error that names the element;
    /// `out` then holds a part of the tensor.
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Result<()> {
        let (info, shard) = self.locate(name)?;
        float(info, shard)?;
        shard.check_length(name, info.elements(), out.len())?;
        self.read_f32_range(name, 0, out)
    }

    /// Reads the `out.len()` elements that begin at element `first` of a tensor, counted row-major. Otherwise like
    /// [`Self::read_f32`]; errors count elements from the beginning of the tensor.
    pub fn read_f32_range(&self, name: &str, first: usize, out: &mut [f32]) -> Result<()> {
        self.read_f32_range_with(name, first, out, &mut Vec::new())
    }

    /// Like [`Self::read_f32_range`], with a buffer for the bytes of the file, which many calls can share.
    pub fn read_f32_range_with(
        &self,
        name: &str,
        first: usize,
        out: &mut [f32],
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let (info, shard) = self.locate(name)?;
        let dtype = float(info, shard)?;
        shard.check_range(name, info.elements(), first, out.len())?;
        let mut offset = info.offset() + (first * dtype.bytes()) as u64;
        let step = CHUNK / dtype.bytes();
        for (nth, part) in out.chunks_mut(step).enumerate() {
            let length = part.len() * dtype.bytes();
            let raw = shard.source.read(offset, length, buffer).map_err(shard.read_error(info))?;
            dtype.decode(raw, part);
            shard.refuse_non_finite(info, dtype, part, first + nth * step)?;
            offset += length as u64;
        }
        Ok(())
    }

    /// Identifies the checkpoint: a hash over name, type, shape and bytes of all tensors, in name order. File format
    /// and sharding do not matter. Reads everything.
    pub fn digest(&self) -> Result<Checksum> {
        let mut hash = Hash::new();
        let mut buffer = Vec::new();
        for (name, located) in &self.tensors {
            let (info, shard) = (&located.info, &self.shards[located.shard]);
            // Each text and list is preceded by its length, so that different checkpoints never hash the same bytes.
            for text in [name.as_str(), info.dtype.name()] {
                hash.write(&(text.len() as u64).to_le_bytes());
                hash.write(text.as_bytes());
            }
            hash.write(&(info.shape.len() as u64).to_le_bytes());
            info.shape.iter().for_each(|&dim| hash.write(&(dim as u64).to_le_bytes()));
            shard.pieces(info, &mut buffer, |raw| {
                hash.write(raw);
                Ok::<_, WeightsError>(())
            })?;
        }
        Ok(hash.checksum())
    }

    /// Passes the bytes of a tensor, of any type and as they are stored, to `take`, in order and in pieces of at most 1 MiB.
    pub fn read_raw<E: From<WeightsError>>(
        &self,
        name: &str,
        take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (info, shard) = self.locate(name)?;
        shard.pieces(info, &mut Vec::new(), take)
    }

    /// The files, each with its tensors in the order of their bytes.
    pub(crate) fn files(&self) -> Vec<(&Path, Vec<&TensorInfo>)> {
        let mut files: Vec<_> = self.shards.iter().map(|shard| (shard.file.as_path(), Vec::new())).collect();
        for located in self.tensors.values() {
            files[located.shard].1.push(&located.info);
        }
        // Tensors of PyTorch may share their bytes: those are in the order of their names.
        for (_, tensors) in &mut files {
            tensors.sort_by_key(|info| info.offset());
        }
        files
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

    pub(crate) fn locate(&self, name: &str) -> Result<(&TensorInfo, &Shard)> {
        let located = self.tensors.get(name).ok_or_else(|| WeightsError::MissingTensor {
            tensor: name.to_owned(),
            file: self.origin.clone(),
        })?;
        Ok((&located.info, &self.shards[located.shard]))
    }
}

impl Shard {
    /// Passes the bytes of a tensor to `take`, in order.
    fn pieces<E: From<WeightsError>>(
        &self,
        info: &TensorInfo,
        buffer: &mut Vec<u8>,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = info.offset() + info.bytes();
        for offset in (info.offset()..end).step_by(CHUNK) {
            let length = (end - offset).min(CHUNK as u64) as usize;
            take(self.source.read(offset, length, buffer).map_err(self.read_error(info))?)?;
        }
        Ok(())
    }

    /// Returns an error if a value is not finite. `values` begins at element `first` of the tensor.
    fn refuse_non_finite(&self, info: &TensorInfo, dtype: Dtype, values: &[f32], first: usize) -> Result<()> {
        // A branch-free pass first; the position is searched only if a value is not finite.
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

fn safetensors(path: &Path) -> Result<Opened> {
    let shard = Shard::open(path)?;
    let (tensors, _) = shard.header()?;
    Ok((shard, tensors))
}

/// The names of files that hold the weights of a model, in the order they are tried; `true` marks an index with shards.
pub fn weight_layouts() -> impl Iterator<Item = (&'static str, bool)> {
    LAYOUTS.iter().map(|&(name, has_shards, _)| (name, has_shards))
}

/// The names of the files that an index (`model.safetensors.index.json`) lists: plain names, sorted.
pub fn shard_names(index: &Path) -> Result<BTreeSet<String>> {
    Ok(weight_map(index)?.into_values().collect())
}

/// Reads the map from tensors to shards of an index.
fn weight_map(file: &Path) -> Result<WeightMap> {
    let refuse = |fault| WeightsError::Index { file: file.to_owned(), fault };
    index::parse(&read_file(file, MAX_HEADER)?).map_err(refuse)
}

/// Opens every shard of the index and checks that index and shards list the same tensors.
fn indexed(file: &Path, open: Open) -> Result<Vec<Opened>> {
    let refuse = |fault| WeightsError::Index { file: file.to_owned(), fault };
    let map = weight_map(file)?;
    let first_of: BTreeMap<&String, &String> =
        map.iter().rev().map(|(tensor, shard)| (shard, tensor)).collect();
    let mut all = Vec::new();
    let mut found = BTreeSet::new();
    for (shard, tensor) in first_of {
        let path = file.with_file_name(shard);
        if !exists(&path)? {
            let (tensor, shard) = (tensor.clone(), shard.clone());
            return Err(refuse(IndexFault::MissingShard { tensor, shard }));
        }
        let (opened, tensors) = open(&path)?;
        if let Some(info) = tensors.iter().find(|info| map.get(&info.name) != Some(shard)) {
            let (tensor, shard) = (info.name.clone(), shard.clone());
            return Err(refuse(IndexFault::Unlisted { tensor, shard }));
        }
        found.extend(tensors.iter().map(|info| info.name.clone()));
        all.push((opened, tensors));
    }
    match map.iter().find(|(tensor, _)| !found.contains(*tensor)) {
        Some((tensor, shard)) => {
            Err(refuse(IndexFault::NotInShard { tensor: tensor.clone(), shard: shard.clone() }))
        }
        None => Ok(all),
    }
}
