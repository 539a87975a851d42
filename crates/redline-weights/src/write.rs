//! Writing a safetensors file in one pass, from values that stream.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::dtype::{Dtype, StoredDtype};
use crate::error::{Result, WeightsError};
use crate::fault::HeaderFault;
use crate::header::METADATA;
use crate::safetensors::{LENGTH_BYTES, MAX_HEADER, count, header_length, parse_header};

/// Values converted at once.
const CHUNK: usize = 1 << 16;
/// The data begins at a multiple of this.
const ALIGN: usize = 8;

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name in the file.
    pub name: String,
    /// Element type in the file; values are rounded to it, to nearest, ties to even.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// A tensor of this name, type and shape.
    pub fn new(name: impl Into<String>, dtype: Dtype, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), dtype, shape: shape.into() }
    }

    fn elements(&self) -> usize {
        count(self.dtype.into(), &self.shape).map_or(0, |(elements, _)| elements)
    }
}

/// Writes a safetensors file: the header at once, then the tensors in the order they were declared.
///
/// What it writes, [`crate::Checkpoint`] reads: a declaration that breaks a rule of the format is refused
/// before anything is written, and so is a value that is not finite. After an error the file is not to be
/// used.
pub struct SafetensorsWriter<W: Write> {
    writer: W,
    file: PathBuf,
    tensors: Vec<TensorSpec>,
    /// The tensor being written, and how many of its elements are.
    current: usize,
    written: usize,
    buffer: Vec<u8>,
}

impl<W: Write> SafetensorsWriter<W> {
    /// Writes the header for `tensors`, whose data will lie in this order.
    pub fn new(writer: W, tensors: &[TensorSpec]) -> Result<Self> {
        Self::in_file(writer, Path::new("safetensors stream"), tensors)
    }

    /// The same; messages name `file`.
    pub(crate) fn in_file(mut writer: W, file: &Path, tensors: &[TensorSpec]) -> Result<Self> {
        let header =
            header(tensors).map_err(|fault| WeightsError::Header { file: file.to_owned(), fault })?;
        let length = (header.len() as u64).to_le_bytes();
        let written = writer.write_all(&length).and_then(|()| writer.write_all(header.as_bytes()));
        written.map_err(WeightsError::io("write the header", file))?;
        let (file, tensors) = (file.to_owned(), tensors.to_owned());
        Ok(Self { writer, file, tensors, current: 0, written: 0, buffer: Vec::new() })
    }

    /// Writes the whole tensor `name`, which must be the next one, from chunks of any lengths.
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
        let declared = next.map_or(0, TensorSpec::elements);
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

    /// Writes the next `values` of the current tensor, row-major; once it is full, the next one is current.
    pub fn write_f32(&mut self, values: &[f32]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        self.skip_complete(None);
        let left = self.tensors.get(self.current).map_or(0, |tensor| tensor.elements() - self.written);
        if values.len() > left {
            return Err(self.amount(values.len()));
        }
        let dtype = self.tensors[self.current].dtype;
        for chunk in values.chunks(CHUNK) {
            self.refuse_unholdable(dtype, chunk)?;
            dtype.encode(chunk, &mut self.buffer);
            let written = self.writer.write_all(&self.buffer);
            written.map_err(WeightsError::io("write a tensor", &self.file))?;
            self.written += chunk.len();
        }
        Ok(())
    }

    /// Checks that every declared element was written, flushes and gives the writer back.
    pub fn finish(mut self) -> Result<W> {
        self.skip_complete(None);
        if self.current < self.tensors.len() {
            return Err(self.amount(0));
        }
        self.writer.flush().map_err(WeightsError::io("write a tensor", &self.file))?;
        Ok(self.writer)
    }

    /// Moves to the first tensor that is not full, or that is called `stop` and was not begun.
    fn skip_complete(&mut self, stop: Option<&str>) {
        while let Some(tensor) = self.tensors.get(self.current) {
            let stops = self.written == 0 && Some(tensor.name.as_str()) == stop;
            if stops || self.written < tensor.elements() {
                return;
            }
            self.current += 1;
            self.written = 0;
        }
    }

    /// The error of `more` elements that are too many, or of the elements that are missing.
    fn amount(&self, more: usize) -> WeightsError {
        // Past the end, the last tensor is the one that got too many.
        let last = self.tensors.last();
        let (tensor, before) = match self.tensors.get(self.current) {
            Some(tensor) => (Some(tensor), self.written),
            None => (last, last.map_or(0, TensorSpec::elements)),
        };
        WeightsError::Written {
            tensor: tensor.map_or_else(String::new, |tensor| tensor.name.clone()),
            declared: tensor.map_or(0, TensorSpec::elements),
            given: before + more,
            file: self.file.clone(),
        }
    }

    fn refuse_unholdable(&self, dtype: Dtype, values: &[f32]) -> Result<()> {
        let Some(place) = values.iter().position(|&value| !dtype.holds(value)) else { return Ok(()) };
        let (tensor, file) = (self.tensors[self.current].name.clone(), self.file.clone());
        let (index, value) = (self.written + place, values[place]);
        Err(if value.is_finite() {
            WeightsError::Overflow { tensor, index, value, dtype, file }
        } else {
            WeightsError::NonFinite { tensor, index, value, dtype, file }
        })
    }
}

/// The header, padded with spaces, and held against the reader's rules.
fn header(tensors: &[TensorSpec]) -> Result<String, HeaderFault> {
    // Readers of the PyTorch world refuse files that do not say so.
    let mut json = format!(r#"{{"{METADATA}":{{"format":"pt"}}"#);
    let mut begin = 0u64;
    for TensorSpec { name, dtype, shape } in tensors {
        let overflow = || HeaderFault::ShapeOverflow { tensor: name.clone(), shape: shape.clone() };
        let (_, bits) = count(StoredDtype::from(*dtype), shape).ok_or_else(overflow)?;
        let end = begin.checked_add(bits / 8).ok_or_else(overflow)?;
        let (name, shape) = (Value::from(name.as_str()), Value::from(shape.as_slice()));
        json.push_str(&format!(
            r#",{name}:{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#
        ));
        begin = end;
    }
    json.push('}');
    json.push_str(&" ".repeat(json.len().next_multiple_of(ALIGN) - json.len()));

    let length = json.len() as u64;
    let overflow = || HeaderFault::LengthLimit { declared: length, limit: MAX_HEADER };
    let file = begin.checked_add(LENGTH_BYTES + length).ok_or_else(overflow)?;
    header_length(length.to_le_bytes(), file)?;
    parse_header(json.as_bytes(), file)?;
    Ok(json)
}
