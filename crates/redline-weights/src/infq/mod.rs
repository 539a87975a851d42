//! INFQ: a directory of packed weights that are verified while they are read.
//!
//! - the files of the source (`config.json`, tokenizer files, ...), copied;
//! - `model.safetensors`: one tensor per part of a weight. Its data begins at a multiple of 64 bytes. Parts whose
//!   length is a multiple of 64 come first and are aligned to 64 too, since the format allows no holes; then
//!   come those with multiples of 32, 16, ... 1, each group in the order of declaration;
//! - `infq.json`, written last: what the weights mean, and the checksum of everything.
//!
//! The container does not interpret the weights: an encoding is a name, its attributes are numbers, its parts are
//! bytes. Equal declarations and equal bytes give equal files.

mod fault;
mod manifest;
mod read;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dtype::StoredDtype;

pub use fault::InfqFault;
pub use read::Infq;
pub use write::InfqWriter;

const MANIFEST: &str = "infq.json";
const WEIGHTS: &str = "model.safetensors";
const FORMAT: &str = "infq";
/// Version of the container; other versions are rejected.
const FORMAT_VERSION: u64 = 1;

/// How the directory was made: the main encoding and its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheme {
    /// Name of the encoding, like `w4`.
    pub encoding: String,
    /// Options of the encoding, like `group` = 64.
    pub options: BTreeMap<String, u64>,
}

/// One weight of the model, in one or more parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// Name in the source.
    pub name: String,
    /// Logical shape, `[out, in]` or `[n]`, independent of the shapes of its parts.
    pub shape: Vec<usize>,
    /// How the parts are interpreted, like `w4` or `f32`.
    pub encoding: String,
    /// Numeric attributes of the encoding, like `group` = 64.
    pub attributes: BTreeMap<String, u64>,
    /// Columns (of `in`) stored apart, ascending; empty if the encoding has none.
    pub outlier_columns: Vec<u32>,
    /// The parts; at least one.
    pub parts: Vec<WeightPart>,
}

/// One tensor of `model.safetensors`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightPart {
    /// The part of the tensor's name after the weight's name and a dot, like `scales`; empty if the tensor has the
    /// weight's own name.
    pub suffix: String,
    /// Element type of the stored bytes.
    pub dtype: StoredDtype,
    /// Shape of the stored tensor.
    pub shape: Vec<usize>,
}

impl WeightPart {
    /// Creates a part with this suffix, type and shape.
    pub fn new(
        suffix: impl Into<String>,
        dtype: impl Into<StoredDtype>,
        shape: impl Into<Vec<usize>>,
    ) -> Self {
        Self { suffix: suffix.into(), dtype: dtype.into(), shape: shape.into() }
    }
}

impl Weight {
    /// The part of this suffix, or `None`.
    pub fn part(&self, suffix: &str) -> Option<&WeightPart> {
        self.parts.iter().find(|part| part.suffix == suffix)
    }

    /// Checks the rules for declarations and manifests.
    fn check(&self) -> Result<(), InfqFault> {
        let weight = || self.name.clone();
        let columns = match self.shape[..] {
            [_] => 0,
            [_, columns] => columns,
            _ => return Err(InfqFault::Rank { weight: weight(), shape: self.shape.clone() }),
        };
        if self.encoding.is_empty() {
            return Err(InfqFault::NoEncoding { weight: weight() });
        }
        if self.parts.is_empty() {
            return Err(InfqFault::NoParts { weight: weight() });
        }
        let mut next = 0;
        for &column in &self.outlier_columns {
            if (column as usize) < next || column as usize >= columns {
                return Err(InfqFault::OutlierColumn { weight: weight(), column, columns });
            }
            next = column as usize + 1;
        }
        Ok(())
    }
}

/// The name of a part's tensor.
fn tensor_name(weight: &str, suffix: &str) -> String {
    if suffix.is_empty() { weight.to_owned() } else { format!("{weight}.{suffix}") }
}

/// Whether a directory may contain an additional file of this name.
fn is_companion(name: &str) -> bool {
    crate::file::is_plain_name(name) && name != MANIFEST && name != WEIGHTS
}
