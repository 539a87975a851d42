//! Writing an INFQ directory from streamed pieces.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use super::{InfqFault, MANIFEST, Scheme, WEIGHTS, Weight, WeightPart, is_companion, tensor_name};
use crate::checksum::{Checksum, Hash};
use crate::directory::DirWriter;
use crate::disk::{Disk, DiskFile};
use crate::error::{Result, WeightsError};
use crate::file::open_regular;
use crate::safetensors::TensorInfo;
use crate::write::{TensorDeclaration, header};

/// Alignment of the data in the file: that of memory pages, so that tensors can be mapped. The format allows no holes
/// between tensors, so a tensor is aligned too if the lengths of all earlier tensors are multiples of this.
const ALIGN: usize = 4096;
/// Bytes per copy of a file.
const CHUNK: usize = 1 << 20;

/// Writes an INFQ directory beside its destination; [`InfqWriter::finish`] makes it durable and renames it.
///
/// Parts may be written in any order and interleaved, since every part has a fixed place in the file; the pieces of
/// one part come in order. Dropping the writer unfinished removes everything.
pub struct InfqWriter {
    dir: DirWriter,
    scheme: Scheme,
    weights: Vec<Weight>,
    files: BTreeMap<String, Checksum>,
    file: DiskFile,
    /// The final path of `file`, for messages.
    path: PathBuf,
    /// The offset of the next write to `file`.
    position: u64,
    header: Checksum,
    parts: BTreeMap<String, Progress>,
}

/// Progress of a part.
struct Progress {
    info: TensorInfo,
    written: u64,
    hash: Hash,
}

impl InfqWriter {
    /// Begins the directory `destination`, which must not exist yet or be empty, for these weights.
    pub fn create(destination: &Path, scheme: Scheme, weights: Vec<Weight>) -> Result<Self> {
        Self::create_on(Disk::default(), destination, scheme, weights)
    }

    /// Like [`Self::create`], but writes through `disk`.
    pub fn create_on(disk: Disk, destination: &Path, scheme: Scheme, weights: Vec<Weight>) -> Result<Self> {
        let shown = destination.join(WEIGHTS);
        let refuse = |fault| WeightsError::Infq { file: shown.clone(), fault };
        weights.iter().try_for_each(Weight::check).map_err(refuse)?;
        if let Some(name) = twice(&weights) {
            return Err(refuse(InfqFault::WeightTwice { weight: name.to_owned() }));
        }
        let header = header(&layout(&weights), ALIGN);
        let (header, tensors) =
            header.map_err(|fault| WeightsError::Header { file: shown.clone(), fault })?;
        let mut dir = DirWriter::create_on(disk, destination)?;
        let (mut file, path) = dir.create_file(WEIGHTS)?;
        file.write_all(&header).map_err(WeightsError::io("write the header", &path))?;
        let begin = |info: TensorInfo| (info.name.clone(), Progress { info, written: 0, hash: Hash::new() });
        let parts = tensors.into_iter().map(begin).collect();
        let (position, header) = (header.len() as u64, Checksum::of(&header));
        Ok(Self { dir, scheme, weights, files: BTreeMap::new(), file, path, position, header, parts })
    }

    /// Writes the file `name` with these bytes beside the weights.
    pub fn write_file(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.add_file(name, bytes, Path::new(name))
    }

    /// Copies a file into the directory, under its own name.
    pub fn copy_file(&mut self, from: &Path) -> Result<()> {
        let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.copy_file_as(from, &name)
    }

    /// Copies a file into the directory, under the name `name`.
    pub fn copy_file_as(&mut self, from: &Path, name: &str) -> Result<()> {
        self.add_file(name, open_regular(from)?.0, from)
    }

    /// Writes the next `bytes` of the part `suffix` of a weight.
    pub fn write_part(&mut self, weight: &str, suffix: &str, bytes: &[u8]) -> Result<()> {
        let tensor = tensor_name(weight, suffix);
        let Some(part) = self.parts.get_mut(&tensor) else {
            let fault = InfqFault::Undeclared { tensor };
            return Err(WeightsError::Infq { file: self.path.clone(), fault });
        };
        if bytes.len() as u64 > part.info.bytes() - part.written {
            return Err(part.amount(bytes.len(), &self.path));
        }
        let at = part.info.offset() + part.written;
        let there = if at == self.position { Ok(at) } else { self.file.seek(SeekFrom::Start(at)) };
        // An error leaves the position unknown, so the next write seeks.
        self.position = u64::MAX;
        let written = there.and_then(|_| self.file.write_all(bytes));
        written.map_err(WeightsError::io("write a tensor", &self.path))?;
        self.position = at + bytes.len() as u64;
        part.written += bytes.len() as u64;
        part.hash.write(bytes);
        Ok(())
    }

    /// Checks that every part is complete, writes the manifest, makes everything durable and renames the directory.
    /// `source` is the [`crate::Checkpoint::digest`] of the source.
    pub fn finish(mut self, source: Checksum) -> Result<()> {
        let mut weights = Vec::with_capacity(self.weights.len());
        for weight in std::mem::take(&mut self.weights) {
            let parts = weight.parts.iter().filter_map(|part| {
                let tensor = tensor_name(&weight.name, &part.suffix);
                self.parts.get(&tensor)
            });
            let sums = parts.map(|part| part.complete(&self.path)).collect::<Result<_>>()?;
            weights.push((weight, sums));
        }
        self.file.sync().map_err(WeightsError::io("write a tensor", &self.path))?;
        drop(self.file);
        let manifest = Manifest::new(self.files, self.header, self.scheme, source, weights).render();
        let path = self.dir.destination().join(MANIFEST);
        let manifest =
            manifest.map_err(|error| WeightsError::io("write the manifest", &path)(error.into()))?;
        self.dir.write(MANIFEST, manifest.as_bytes())?;
        self.dir.finish()
    }

    fn add_file(&mut self, name: &str, mut from: impl Read, source: &Path) -> Result<()> {
        if !is_companion(name) {
            let (name, file) = (name.to_owned(), self.dir.destination().to_owned());
            return Err(WeightsError::Infq { file, fault: InfqFault::FileName { name } });
        }
        let (mut file, path) = self.dir.create_file(name)?;
        let (mut hash, mut buffer) = (Hash::new(), vec![0; CHUNK]);
        loop {
            let length = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(WeightsError::io("read the file", source)(error)),
            };
            hash.write(&buffer[..length]);
            file.write_all(&buffer[..length]).map_err(WeightsError::io("write the file", &path))?;
        }
        file.sync().map_err(WeightsError::io("write the file", &path))?;
        self.files.insert(name.to_owned(), hash.checksum());
        Ok(())
    }
}

impl Progress {
    /// Returns the checksum; an error if bytes are missing.
    fn complete(&self, file: &Path) -> Result<Checksum> {
        if self.written == self.info.bytes() { Ok(self.hash.checksum()) } else { Err(self.amount(0, file)) }
    }

    /// The error for `more` bytes too many, or for missing bytes.
    fn amount(&self, more: usize, file: &Path) -> WeightsError {
        WeightsError::WrittenBytes {
            tensor: self.info.name.clone(),
            declared: self.info.bytes(),
            given: self.written + more as u64,
            file: file.to_owned(),
        }
    }
}

fn twice(weights: &[Weight]) -> Option<&str> {
    let mut names = BTreeSet::new();
    weights.iter().map(|weight| weight.name.as_str()).find(|name| !names.insert(*name))
}

/// The tensors in file order: those with the highest alignment come first.
fn layout(weights: &[Weight]) -> Vec<TensorDeclaration> {
    let parts = weights.iter().flat_map(|weight| {
        let spec = |part: &WeightPart| {
            TensorDeclaration::new(tensor_name(&weight.name, &part.suffix), part.dtype, part.shape.clone())
        };
        weight.parts.iter().map(spec)
    });
    let mut tensors: Vec<TensorDeclaration> = parts.collect();
    tensors.sort_by_key(|tensor| Reverse(tensor.bytes().trailing_zeros().min(ALIGN.trailing_zeros())));
    tensors
}
