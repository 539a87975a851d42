//! A file of tensor data: its safetensors header, and the bytes of its tensors.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Result, WeightsError};
use crate::fault::HeaderFault;
use crate::file::open_regular;
use crate::safetensors::{LENGTH_BYTES, TensorInfo, header_length, parse_header};
use crate::source::{Positioned, Source};

/// An open file that holds tensors.
pub(crate) struct Shard {
    pub(crate) file: PathBuf,
    pub(crate) source: Source,
}

impl Shard {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, _) = open_regular(path)?;
        Ok(Self { file: path.to_owned(), source: Source::File(Positioned::new(file)) })
    }

    /// Reads the tensors of the safetensors header, and the raw header including its length.
    pub(crate) fn header(&self) -> Result<(Vec<TensorInfo>, Vec<u8>)> {
        let refuse = |fault| WeightsError::Header { file: self.file.clone(), fault };
        let bytes = self.bytes()?;
        if bytes < LENGTH_BYTES {
            return Err(refuse(HeaderFault::TooShort { bytes }));
        }
        let mut first = [0; LENGTH_BYTES as usize];
        self.read_header(0, &mut first)?;
        let length = header_length(first, bytes).map_err(refuse)?;
        let mut header = vec![0; (LENGTH_BYTES + length) as usize];
        self.read_header(0, &mut header)?;
        let tensors = parse_header(&header[LENGTH_BYTES as usize..], bytes).map_err(refuse)?;
        Ok((tensors, header))
    }

    /// The current length of the file.
    pub(crate) fn bytes(&self) -> Result<u64> {
        self.source.len().map_err(WeightsError::io("read the header", &self.file))
    }

    /// Fills `out` from `offset`; for bytes that describe the tensors.
    pub(crate) fn read_header(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.source.read_into(offset, out).map_err(WeightsError::io("read the header", &self.file))
    }

    /// Refuses a buffer of `given` values for a whole tensor of `elements`.
    pub(crate) fn check_length(&self, tensor: &str, elements: usize, given: usize) -> Result<()> {
        if given == elements {
            return Ok(());
        }
        let (tensor, file) = (tensor.to_owned(), self.file.clone());
        Err(WeightsError::BufferLength { tensor, elements, given, file })
    }

    /// Refuses `count` elements from `first` on that are not all among the `elements` of a tensor.
    pub(crate) fn check_range(
        &self,
        tensor: &str,
        elements: usize,
        first: usize,
        count: usize,
    ) -> Result<()> {
        if first.checked_add(count).is_some_and(|end| end <= elements) {
            return Ok(());
        }
        let (tensor, file) = (tensor.to_owned(), self.file.clone());
        Err(WeightsError::Range { tensor, elements, first, count, file })
    }

    /// For `map_err`: the error of a read inside the tensor.
    pub(crate) fn read_error(&self, info: &TensorInfo) -> impl FnOnce(io::Error) -> WeightsError {
        self.read_error_of(&info.name, info.offset() + info.bytes())
    }

    /// For `map_err`: the error of a read inside the tensor of this name, which ends at byte `needs` of the file.
    pub(crate) fn read_error_of(&self, tensor: &str, needs: u64) -> impl FnOnce(io::Error) -> WeightsError {
        move |error| match self.source.len() {
            Ok(has) if error.kind() == io::ErrorKind::UnexpectedEof => {
                WeightsError::Truncated { tensor: tensor.to_owned(), needs, has, file: self.file.clone() }
            }
            _ => WeightsError::io("read a tensor", &self.file)(error),
        }
    }
}
