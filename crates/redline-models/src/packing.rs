//! Layout of packed matrices in an INFQ directory: encodings, attributes and parts, for writing and for reading.

use std::collections::BTreeMap;

use redline_kernels::Format;
use redline_kernels::matrix::{Element, Plane};
use redline_weights::{Infq, Scheme, StoredDtype, Weight, WeightPart};

use crate::ModelError;
use crate::formats::Formats;
use crate::spec::DecoderSpec;

/// The attribute that names the group of an integer format.
const GROUP: &str = "group";
/// Number of outputs in a strip.
pub(crate) const STRIP: usize = 16;

fn attributes(format: Format) -> BTreeMap<String, u64> {
    format.group().map(|group| (GROUP.to_owned(), group as u64)).into_iter().collect()
}

/// Declares a matrix `[rows, cols]` with the given outlier columns.
pub(crate) fn declare(name: String, rows: usize, cols: usize, format: Format, columns: Vec<u32>) -> Weight {
    let strips = rows.div_ceil(STRIP);
    let planes = format.planes(cols, columns.len());
    let parts = planes.into_iter().filter(|plane| plane.bytes > 0).map(|plane| {
        let (size, name) = (plane.element.bytes(), plane.plane.name());
        let dtype = match plane.element {
            Element::Byte => return WeightPart::new(name, StoredDtype::U8, [strips, plane.bytes]),
            Element::F16 => StoredDtype::F16,
            Element::Bf16 => StoredDtype::BF16,
            Element::F32 => StoredDtype::F32,
        };
        WeightPart::new(name, dtype, [strips, plane.bytes / size / STRIP, STRIP])
    });
    let parts = parts.collect();
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
        parts: vec![WeightPart::new(Plane::Words.name(), StoredDtype::F32, [len])],
    }
}

/// The quantisation scheme that a directory declares.
pub(crate) fn scheme(format: Format) -> Scheme {
    Scheme { encoding: format.name().to_owned(), options: attributes(format) }
}

/// The encoding of a directory whose matrices have different formats.
const MIXED: &str = "mixed";

/// The quantisation scheme of a directory with matrices of these formats.
pub(crate) fn scheme_of(formats: &Formats) -> Scheme {
    match formats.only() {
        Some(format) => scheme(format),
        None => Scheme { encoding: MIXED.to_owned(), options: BTreeMap::new() },
    }
}

/// The format of a directory.
pub(crate) fn format_of_scheme(infq: &Infq) -> Result<Format, ModelError> {
    let Scheme { encoding, options } = infq.scheme();
    format_of(infq, encoding, options)
}

/// The formats of the matrices of a directory; `declared` returns what it says about a tensor.
pub(crate) fn formats<'a>(
    spec: &DecoderSpec,
    infq: &Infq,
    declared: impl Fn(&str) -> Result<&'a Weight, ModelError>,
) -> Result<Formats, ModelError> {
    if infq.scheme().encoding != MIXED {
        return format_of_scheme(infq).map(|format| Formats::one(spec, format));
    }
    let mut each = BTreeMap::new();
    for part in spec.linears().into_iter().chain(spec.unquantised()).flat_map(|linear| linear.parts) {
        let weight = declared(&part.weight())?;
        each.insert(part.weight(), format_of(infq, &weight.encoding, &weight.attributes)?);
    }
    Ok(Formats::each(spec, |weight| each.get(weight).copied().unwrap_or(Format::F32)))
}

/// The format that an encoding and its attributes name.
fn format_of(infq: &Infq, encoding: &str, attributes: &BTreeMap<String, u64>) -> Result<Format, ModelError> {
    let named = Format::parse(encoding).or_else(|| Format::stored(encoding));
    let format = match (named, attributes.get(GROUP)) {
        (Some(format), None) if format.group().is_none() => Some(format),
        (Some(format), Some(&group)) => {
            usize::try_from(group).ok().and_then(|group| format.with_group(group))
        }
        _ => None,
    };
    format.ok_or_else(|| ModelError::Config {
        fact: format!("the encoding `{encoding}` {attributes:?} is not known"),
        file: infq.dir().display().to_string(),
    })
}
