//! Layout of packed matrices in an INFQ directory: encodings, attributes and parts, for writing and for reading.

use std::collections::BTreeMap;

use redline_kernels::Format;
use redline_weights::{Infq, Scheme, StoredDtype, Weight, WeightPart};

use crate::ModelError;

/// The attribute that names the group of an integer format.
const GROUP: &str = "group";
/// Number of outputs in a strip.
pub(crate) const STRIP: usize = 16;

/// The planes of a packed matrix.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Plane {
    Words,
    Scales,
    Outliers,
}

impl Plane {
    /// The suffix of the tensor's name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Words => "",
            Self::Scales => "scales",
            Self::Outliers => "outliers",
        }
    }
}

fn attributes(format: Format) -> BTreeMap<String, u64> {
    format.group().map(|group| (GROUP.to_owned(), group as u64)).into_iter().collect()
}

/// Declares a matrix `[rows, cols]` with the given outlier columns.
pub(crate) fn declare(name: String, rows: usize, cols: usize, format: Format, columns: Vec<u32>) -> Weight {
    let strips = rows.div_ceil(STRIP);
    let bytes = format.strip_bytes(cols, columns.len());
    let mut parts = vec![WeightPart::new(Plane::Words.suffix(), StoredDtype::U8, [strips, bytes.words])];
    if bytes.scales > 0 {
        let (dtype, size) =
            if format.group() == Some(0) { (StoredDtype::F32, 4) } else { (StoredDtype::F16, 2) };
        parts.push(WeightPart::new(
            Plane::Scales.suffix(),
            dtype,
            [strips, bytes.scales / size / STRIP, STRIP],
        ));
    }
    if bytes.outliers > 0 {
        parts.push(WeightPart::new(Plane::Outliers.suffix(), StoredDtype::U8, [strips, bytes.outliers]));
    }
    Weight {
        name,
        shape: vec![rows, cols],
        encoding: format.name().to_owned(),
        attributes: attributes(format),
        outlier_columns: columns,
        parts,
    }
}

/// Declares an f32 vector.
pub(crate) fn declare_values(name: String, len: usize) -> Weight {
    Weight {
        name,
        shape: vec![len],
        encoding: Format::F32.name().to_owned(),
        attributes: BTreeMap::new(),
        outlier_columns: Vec::new(),
        parts: vec![WeightPart::new(Plane::Words.suffix(), StoredDtype::F32, [len])],
    }
}

/// The quantisation scheme that a directory declares.
pub(crate) fn scheme(format: Format) -> Scheme {
    Scheme { encoding: format.name().to_owned(), options: attributes(format) }
}

/// The format of a directory.
pub(crate) fn format_of_scheme(infq: &Infq) -> Result<Format, ModelError> {
    let scheme = infq.scheme();
    let named = Format::parse(&scheme.encoding);
    let format = match (named, scheme.options.get(GROUP)) {
        (Some(format), None) if !format.is_integer() => Some(format),
        (Some(format), Some(&group)) => {
            usize::try_from(group).ok().and_then(|group| format.with_group(group))
        }
        _ => None,
    };
    format.ok_or_else(|| ModelError::Config {
        fact: format!("the encoding `{}` {:?} is not known", scheme.encoding, scheme.options),
        file: infq.dir().display().to_string(),
    })
}
