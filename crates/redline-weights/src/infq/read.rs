//! Reads INFQ directories. All contents are verified: the weights when they are read, everything else when a directory is opened.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use super::{InfqFault, MANIFEST, Scheme, WEIGHTS, Weight, tensor_name};
use crate::checksum::{Checksum, Hash};
use crate::error::{Result, WeightsError};
use crate::file::{read_blocks, read_file};
use crate::safetensors::TensorInfo;
use crate::shard::Shard;

/// Maximum size of a manifest in bytes.
const MAX_MANIFEST: u64 = 32 << 20;
/// Bytes that are read and then hashed; few enough to stay in the processor's cache in between.
const BLOCK: usize = 256 << 10;

/// An opened INFQ directory.
///
/// Manifest, header and copied files are verified on opening, and each part of a weight when it is read. The weights file stays
/// open, and its parts can be read from any number of threads.
pub struct Infq {
    dir: PathBuf,
    scheme: Scheme,
    source: Checksum,
    shard: Shard,
    /// Weights by name.
    weights: BTreeMap<String, Weight>,
    /// Tensors and their checksums by the tensor's name.
    parts: BTreeMap<String, (TensorInfo, Checksum)>,
}

impl Infq {
    /// Whether the directory has an `infq.json`.
    pub fn is(dir: &Path) -> bool {
        dir.join(MANIFEST).symlink_metadata().is_ok()
    }

    /// Opens the directory. Verifies the checksums of manifest, header and copied files, that manifest and header
    /// list the same tensors, and that there is no file that the conversion did not write. Subdirectories, and files whose names
    /// begin with a dot or end in `.md`, are ignored.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(MANIFEST);
        let in_manifest = |fault| WeightsError::Infq { file: path.clone(), fault };
        let mut manifest = Manifest::parse(&read_file(&path, MAX_MANIFEST)?).map_err(in_manifest)?;
        let files = std::mem::take(&mut manifest.files);
        let (scheme, source, declared) = (manifest.scheme.clone(), manifest.source.digest, manifest.header);

        let shard = Shard::open(&dir.join(WEIGHTS))?;
        let in_weights = |fault| WeightsError::Infq { file: shard.file.clone(), fault };
        let (tensors, header) = shard.header()?;
        let found = Checksum::of(&header);
        if found != declared {
            return Err(in_weights(InfqFault::HeaderChecksum { declared, found }));
        }
        let weights = manifest.weights().map_err(in_manifest)?;
        let parts = match_tensors(&weights, tensors).map_err(in_weights)?;
        let weights = weights.into_iter().map(|(weight, _)| (weight.name.clone(), weight)).collect();
        check_files(dir, &files)?;
        Ok(Self { dir: dir.to_owned(), scheme, source, shard, weights, parts })
    }

    /// The path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The encoding with which the directory was made, and its options.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// The [`crate::Checkpoint::digest`] of the checkpoint from which the directory was made.
    pub fn source(&self) -> Checksum {
        self.source
    }

    /// A checksum over the names and the checksums of all weights.
    pub fn digest(&self) -> Checksum {
        let parts =
            self.parts.iter().map(|(name, (_, checksum))| format!("{} {name} {checksum}\n", name.len()));
        Checksum::of(parts.collect::<String>().as_bytes())
    }

    /// Names of all weights, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.weights.keys().map(String::as_str)
    }

    /// The description of a weight, or `None` if it does not exist.
    pub fn weight(&self, name: &str) -> Option<&Weight> {
        self.weights.get(name)
    }

    /// Size in bytes of the part `suffix` of a weight, or `None` if the part does not exist.
    pub fn part_bytes(&self, weight: &str, suffix: &str) -> Option<u64> {
        self.parts.get(&tensor_name(weight, suffix)).map(|(info, _)| info.bytes())
    }

    /// The file that holds the part `suffix` of a weight, and where it begins; `None` if the part does not exist, or the bytes
    /// are in no file.
    pub fn place(&self, weight: &str, suffix: &str) -> Option<(&File, u64)> {
        let (info, _) = self.parts.get(&tensor_name(weight, suffix))?;
        Some((self.shard.source.file()?, info.offset()))
    }

    /// Verifies bytes that were read as the part `suffix` of a weight in another way.
    pub fn check_part(&self, weight: &str, suffix: &str, bytes: &[u8]) -> Result<()> {
        let mut hash = Hash::new();
        hash.write(bytes);
        let (tensor, _, declared) = self.part(weight, suffix, bytes.len())?;
        self.verify(tensor, declared, hash.checksum())
    }

    /// The tensor of a part, which must have `given` bytes, and its checksum.
    fn part(&self, weight: &str, suffix: &str, given: usize) -> Result<(String, &TensorInfo, Checksum)> {
        let tensor = tensor_name(weight, suffix);
        let file = || self.shard.file.clone();
        let Some((info, declared)) = self.parts.get(&tensor) else {
            return Err(WeightsError::MissingTensor { tensor, file: file() });
        };
        let bytes = info.bytes();
        if given as u64 != bytes {
            return Err(WeightsError::BufferBytes { tensor, bytes, given, file: file() });
        }
        Ok((tensor, info, *declared))
    }

    fn verify(&self, tensor: String, declared: Checksum, found: Checksum) -> Result<()> {
        if found == declared {
            return Ok(());
        }
        let fault = InfqFault::TensorChecksum { tensor, declared, found };
        Err(WeightsError::Infq { file: self.shard.file.clone(), fault })
    }

    /// Reads the part `suffix` of a weight into `out`, which must have the part's size, and verifies it. After an error the
    /// content of `out` is unspecified.
    pub fn read_part(&self, weight: &str, suffix: &str, out: &mut [u8]) -> Result<()> {
        let (tensor, info, declared) = self.part(weight, suffix, out.len())?;
        let (mut hash, mut offset) = (Hash::new(), info.offset());
        for block in out.chunks_mut(BLOCK) {
            self.shard.source.read_into(offset, block).map_err(self.shard.read_error(info))?;
            hash.write(block);
            offset += block.len() as u64;
        }
        self.verify(tensor, declared, hash.checksum())
    }
}

/// Matches the parts that the manifest lists with the tensors in the weights file, which must be the same. Returns the tensors and
/// their checksums by name.
fn match_tensors(
    weights: &[(Weight, Vec<Checksum>)],
    tensors: Vec<TensorInfo>,
) -> Result<BTreeMap<String, (TensorInfo, Checksum)>, InfqFault> {
    let mut remaining: BTreeMap<String, TensorInfo> =
        tensors.into_iter().map(|info| (info.name.clone(), info)).collect();
    let mut parts = BTreeMap::new();
    for (weight, checksums) in weights {
        for (part, &checksum) in weight.parts.iter().zip(checksums) {
            let tensor = tensor_name(&weight.name, &part.suffix);
            let Some(info) = remaining.remove(&tensor) else {
                let is_listed_twice = parts.contains_key(&tensor);
                return Err(if is_listed_twice {
                    InfqFault::Twice { tensor }
                } else {
                    InfqFault::MissingTensor { tensor }
                });
            };
            if (info.dtype, &info.shape) != (part.dtype, &part.shape) {
                let (found, found_shape) = (info.dtype, info.shape);
                let (declared, declared_shape) = (part.dtype, part.shape.clone());
                return Err(InfqFault::Differs { tensor, found, found_shape, declared, declared_shape });
            }
            parts.insert(tensor, (info, checksum));
        }
    }
    match remaining.into_keys().next() {
        Some(tensor) => Err(InfqFault::UnexpectedTensor { tensor }),
        None => Ok(parts),
    }
}

/// Verifies the checksums of the copied files, and that the directory contains no files that the conversion did not write.
fn check_files(dir: &Path, files: &BTreeMap<String, Checksum>) -> Result<()> {
    for (name, &declared) in files {
        let path = dir.join(name);
        let found = checksum_of(&path)?;
        if found != declared {
            let fault = InfqFault::FileChecksum { declared, found };
            return Err(WeightsError::Infq { file: path, fault });
        }
    }
    for entry in fs::read_dir(dir).map_err(WeightsError::io("look into the directory", dir))? {
        let entry = entry.map_err(WeightsError::io("look into the directory", dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_listed = [MANIFEST, WEIGHTS].contains(&name.as_str()) || files.contains_key(&name);
        let is_ignored = name.starts_with('.') || Path::new(&name).extension().is_some_and(|ext| ext == "md");
        if !is_listed && !is_ignored && !entry.path().is_dir() {
            return Err(WeightsError::Infq { file: entry.path(), fault: InfqFault::UnlistedFile });
        }
    }
    Ok(())
}

fn checksum_of(path: &Path) -> Result<Checksum> {
    let mut hash = Hash::new();
    read_blocks(path, |block| hash.write(block))?;
    Ok(hash.checksum())
}
