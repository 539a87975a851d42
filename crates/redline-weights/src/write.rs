//! Writes a safetensors file in one pass, from streamed values or raw bytes.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::dtype::{Dtype, StoredDtype};
use crate::error::{Result, WeightsError};
use crate::fault::HeaderFault;
use crate::header::METADATA;
use crate::safetensors::{LENGTH_BYTES, MAX_HEADER, TensorInfo, count, header_length, parse_header};

/// Number of values converted at once.
const CHUNK: usize = 1 << 16;
/// Alignment of the data in the file.
const ALIGN: usize = 64;

/// The declaration of a tensor to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorDeclaration {
    /// Name in the file.
    pub name: String,
    /// Element type in the file. Values are rounded to F32, F16 and BF16, to nearest, ties to even. Other types can
    /// only be written as raw bytes.
    pub dtype: StoredDtype,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

impl TensorDeclaration {
    /// Declares a tensor of this name, type and shape.
    pub fn new(name: impl Into<String>, dtype: impl Into<StoredDtype>, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), dtype: dtype.into(), shape: shape.into() }
    }

    fn elements(&self) -> usize {
        count(self.dtype, &self.shape).map_or(0, |(elements, _)| elements)
    }

    pub(crate) fn bytes(&self) -> u64 {
        count(self.dtype, &self.shape).map_or(0, |(_, bits)| bits / 8)
    }
}

/// Writes a safetensors file: the header at once, then the tensors in the order they were declared.
///
/// [`crate::Checkpoint`] can open every file it writes: a declaration that violates the format is rejected before
/// anything is written, and so is a value that is not finite; raw bytes are not checked. After an error the file must
/// not be used.
pub struct SafetensorsWriter<W: Write> {
    writer: W,
    file: PathBuf,
    tensors: Vec<TensorDeclaration>,
    /// The index of the tensor being written, and the number of its bytes written.
    current: usize,
    written: u64,
    buffer: Vec<u8>,
}

impl<W: Write> SafetensorsWriter<W> {
    /// Writes the header for `tensors`; their data must follow in this order.
    pub fn new(writer: W, tensors: &[TensorDeclaration]) -> Result<Self> {
        Self::in_file(writer, Path::new("safetensors stream"), tensors)
    }

    /// Like [`Self::new`]; messages name `file`.
    pub(crate) fn in_file(mut writer: W, file: &Path, tensors: &[TensorDeclaration]) -> Result<Self> {
        let (header, _) =
            header(tensors, ALIGN).map_err(|fault| WeightsError::Header { file: file.to_owned(), fault })?;
        writer.write_all(&header).map_err(WeightsError::io("write the header", file))?;
        let (file, tensors) = (file.to_owned(), tensors.to_owned());
        Ok(Self { writer, file, tensors, current: 0, written: 0, buffer: Vec::new() })
    }

    /// Writes the whole tensor `name`, which must be the next one, from chunks of any length.
    pub fn tensor_f32<C: AsRef<[f32]>>(
        &mut self,
        name: &str,
        chunks: impl IntoIterator<Item = C>,
    ) -> Result<()> {
        self.skip_complete(Some(name));
        let next = self.tensors.get(self.current).filter(|_| self.written == 0);
        let declared = next.map_or("nothing", |tensor| &tensor.name);
        if declared != name {
            let (given, declared, file) = (name.to_owned(), declared.to_owned(), self.file.clone());
            return Err(WeightsError::WriteOrder { given, declared, file });
        }
        let declared = next.map_or(0, TensorDeclaration::elements);
        let file = self.file.clone();
        let amount = |given| WeightsError::Written { tensor: name.to_owned(), declared, given, file };
        let mut given = 0;
        for chunk in chunks {
            given += chunk.as_ref().len();
            if given > declared {
                return Err(amount(given));
            }
            self.write_f32(chunk.as_ref())?;
        }
        if given == declared { Ok(()) } else { Err(amount(given)) }
    }

    /// Writes the next `values` of the current tensor, row-major. Once it is full, the next tensor is current.
    pub fn write_f32(&mut self, values: &[f32]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        self.skip_complete(None);
        let Some(tensor) = self.tensors.get(self.current) else { return Err(self.amount(values.len())) };
        let Some(dtype) = tensor.dtype.float() else {
            let (tensor, dtype, file) = (tensor.name.clone(), tensor.dtype, self.file.clone());
            return Err(WeightsError::WriteDtype { tensor, dtype, file });
        };
        let size = dtype.bytes() as u64;
        if self.written % size != 0 {
            return Err(self.amount_of_bytes(0));
        }
        if values.len() as u64 > (tensor.bytes() - self.written) / size {
            return Err(self.amount(values.len()));
        }
        for chunk in values.chunks(CHUNK) {
            self.refuse_unholdable(dtype, chunk)?;
            dtype.encode(chunk, &mut self.buffer);
            let written = self.writer.write_all(&self.buffer);
            written.map_err(WeightsError::io("write a tensor", &self.file))?;
            self.written += self.buffer.len() as u64;
        }
        Ok(())
    }

    /// Writes the next `bytes` of the current tensor, little-endian, of any type. Once it is full, the next tensor is
    /// current.
    pub fn write_raw(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.skip_complete(None);
        let left = self.tensors.get(self.current).map_or(0, |tensor| tensor.bytes() - self.written);
        if bytes.len() as u64 > left {
            return Err(self.amount_of_bytes(bytes.len()));
        }
        self.writer.write_all(bytes).map_err(WeightsError::io("write a tensor", &self.file))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Checks that every declared element was written, flushes and returns the writer.
    pub fn finish(mut self) -> Result<W> {
        self.skip_complete(None);
        if let Some(tensor) = self.tensors.get(self.current) {
            let whole = tensor.dtype.float().is_some_and(|dtype| self.written % dtype.bytes() as u64 == 0);
            return Err(if whole { self.amount(0) } else { self.amount_of_bytes(0) });
        }
        self.writer.flush().map_err(WeightsError::io("write a tensor", &self.file))?;
        Ok(self.writer)
    }

    /// Advances to the first tensor that is not full, or that is named `stop` and not begun.
    fn skip_complete(&mut self, stop: Option<&str>) {
        while let Some(tensor) = self.tensors.get(self.current) {
            let stops = self.written == 0 && Some(tensor.name.as_str()) == stop;
            if stops || self.written < tensor.bytes() {
                return;
            }
            self.current += 1;
            self.written = 0;
        }
    }

    /// The error for `more` elements too many, or for missing elements.
    fn amount(&self, more: usize) -> WeightsError {
        let (tensor, before) = self.reached();
        let bits = tensor.map_or(8, |tensor| tensor.dtype.bits() as u64);
        WeightsError::Written {
            tensor: tensor.map_or_else(String::new, |tensor| tensor.name.clone()),
            declared: tensor.map_or(0, TensorDeclaration::elements),
            given: (before * 8 / bits) as usize + more,
            file: self.file.clone(),
        }
    }

    /// The same error, in bytes.
    fn amount_of_bytes(&self, more: usize) -> WeightsError {
        let (tensor, before) = self.reached();
        WeightsError::WrittenBytes {
            tensor: tensor.map_or_else(String::new, |tensor| tensor.name.clone()),
            declared: tensor.map_or(0, TensorDeclaration::bytes),
            given: before + more as u64,
            file: self.file.clone(),
        }
    }

    /// The current tensor and the number of its bytes written. Past the end, the last tensor, which got too many
    /// bytes.
    fn reached(&self) -> (Option<&TensorDeclaration>, u64) {
        let last = self.tensors.last();
        match self.tensors.get(self.current) {
            Some(tensor) => (Some(tensor), self.written),
            None => (last, last.map_or(0, TensorDeclaration::bytes)),
        }
    }

    fn refuse_unholdable(&self, dtype: Dtype, values: &[f32]) -> Result<()> {
        let Some(place) = values.iter().position(|&value| !dtype.holds(value)) else { return Ok(()) };
        let (tensor, file) = (self.tensors[self.current].name.clone(), self.file.clone());
        let (index, value) = (self.written as usize / dtype.bytes() + place, values[place]);
        Err(if value.is_finite() {
            WeightsError::Overflow { tensor, index, value, dtype, file }
        } else {
            WeightsError::NonFinite { tensor, index, value, dtype, file }
        })
    }
}

/// The header with its length, padded with spaces so that the data are aligned, and the tensors that a reader will find in it.
pub(crate) fn header(
    tensors: &[TensorDeclaration],
    align: usize,
) -> Result<(Vec<u8>, Vec<TensorInfo>), HeaderFault> {
    // Readers based on PyTorch reject files without this metadata.
    let mut json = format!(r#"{{"{METADATA}":{{"format":"pt"}}"#);
    let mut begin = 0u64;
    for TensorDeclaration { name, dtype, shape } in tensors {
        let overflow = || HeaderFault::ShapeOverflow { tensor: name.clone(), shape: shape.clone() };
        let (_, bits) = count(*dtype, shape).ok_or_else(overflow)?;
        let end = begin.checked_add(bits / 8).ok_or_else(overflow)?;
        let (name, shape) = (Value::from(name.as_str()), Value::from(shape.as_slice()));
        json.push_str(&format!(
            r#",{name}:{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#
        ));
        begin = end;
    }
    json.push('}');
    let data = (LENGTH_BYTES as usize + json.len()).next_multiple_of(align);
    json.push_str(&" ".repeat(data - LENGTH_BYTES as usize - json.len()));

    let length = json.len() as u64;
    let overflow = || HeaderFault::LengthLimit { declared: length, limit: MAX_HEADER };
    let file = begin.checked_add(LENGTH_BYTES + length).ok_or_else(overflow)?;
    header_length(length.to_le_bytes(), file)?;
    let tensors = parse_header(json.as_bytes(), file)?;
    Ok(([&length.to_le_bytes(), json.as_bytes()].concat(), tensors))
}
