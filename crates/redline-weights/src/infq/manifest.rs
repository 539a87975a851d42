//! `infq.json`: one line of JSON with sorted keys, ending with the checksum of everything before it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FORMAT, FORMAT_VERSION, InfqFault, Scheme, Weight, WeightPart, is_companion, tensor_name};
use crate::checksum::{Checksum, DIGITS};
use crate::dtype::StoredDtype;
use crate::json::Unique;

/// The text before the digits of the manifest's own checksum.
const BEFORE: &str = r#","checksum":""#;
/// The text after the digits.
const AFTER: &str = "\"}\n";

/// The manifest without its own checksum.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) files: BTreeMap<String, Checksum>,
    format: String,
    format_version: u64,
    pub(super) header: Checksum,
    pub(super) scheme: Scheme,
    pub(super) source: Source,
    tensors: BTreeMap<String, WeightEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    pub(super) digest: Checksum,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightEntry {
    attributes: BTreeMap<String, u64>,
    encoding: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outlier_columns: Vec<u32>,
    parts: Vec<PartEntry>,
    shape: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartEntry {
    checksum: Checksum,
    dtype: String,
    shape: Vec<usize>,
    tensor: String,
}

impl Manifest {
    /// Builds the manifest of `weights` with the checksums of their parts.
    pub(super) fn new(
        files: BTreeMap<String, Checksum>,
        header: Checksum,
        scheme: Scheme,
        digest: Checksum,
        weights: Vec<(Weight, Vec<Checksum>)>,
    ) -> Self {
        let tensors = weights.into_iter().map(|(weight, sums)| {
            let Weight { name, shape, encoding, attributes, outlier_columns, parts } = weight;
            let part = |(part, checksum): (WeightPart, Checksum)| PartEntry {
                checksum,
                dtype: part.dtype.name().to_owned(),
                tensor: tensor_name(&name, &part.suffix),
                shape: part.shape,
            };
            let parts = parts.into_iter().zip(sums).map(part).collect();
            (name, WeightEntry { attributes, encoding, outlier_columns, parts, shape })
        });
        let tensors = tensors.collect();
        let format = FORMAT.to_owned();
        Self {
            files,
            format,
            format_version: FORMAT_VERSION,
            header,
            scheme,
            source: Source { digest },
            tensors,
        }
    }

    /// Serializes the manifest, with its checksum.
    pub(super) fn render(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string(self)?;
        let checksum = Checksum::of(text.as_bytes());
        text.pop();
        Ok(format!("{text}{BEFORE}{checksum}{AFTER}"))
    }

    /// Parses the file. Format and version are checked first, so that a manifest of another version gives that error.
    pub(super) fn parse(file: &[u8]) -> Result<Self, InfqFault> {
        let wrong = |error: serde_json::Error| InfqFault::Json { message: error.to_string() };
        let Unique(mut json) = serde_json::from_slice(file).map_err(wrong)?;
        if json.get("format") != Some(&FORMAT.into()) {
            return Err(InfqFault::Format { found: shown(json.get("format")) });
        }
        if json.get("format_version") != Some(&FORMAT_VERSION.into()) {
            let found = shown(json.get("format_version"));
            return Err(InfqFault::Version { found, supported: FORMAT_VERSION });
        }
        check(file)?;
        json.as_object_mut().map(|object| object.remove("checksum"));
        let manifest: Self = serde_json::from_value(json).map_err(wrong)?;
        match manifest.files.keys().find(|name| !is_companion(name)) {
            Some(name) => Err(InfqFault::FileName { name: name.clone() }),
            None => Ok(manifest),
        }
    }

    /// The weights and the checksums of their parts.
    pub(super) fn weights(self) -> Result<Vec<(Weight, Vec<Checksum>)>, InfqFault> {
        self.tensors.into_iter().map(|(name, entry)| entry.weight(name)).collect()
    }
}

impl WeightEntry {
    fn weight(self, name: String) -> Result<(Weight, Vec<Checksum>), InfqFault> {
        let Self { attributes, encoding, outlier_columns, parts: entries, shape } = self;
        let (mut parts, mut sums) = (Vec::new(), Vec::new());
        for PartEntry { checksum, dtype, shape, tensor } in entries {
            let Some(suffix) = suffix(&name, &tensor) else {
                return Err(InfqFault::PartName { weight: name, tensor });
            };
            let known = StoredDtype::from_name(&dtype);
            parts.push(WeightPart::new(
                suffix,
                known.ok_or(InfqFault::Dtype { tensor: tensor.clone(), dtype })?,
                shape,
            ));
            sums.push(checksum);
        }
        let weight = Weight { name, shape, encoding, attributes, outlier_columns, parts };
        weight.check().map(|()| (weight, sums))
    }
}

fn suffix<'a>(weight: &str, tensor: &'a str) -> Option<&'a str> {
    match tensor.strip_prefix(weight)? {
        "" => Some(""),
        rest => rest.strip_prefix('.').filter(|suffix| !suffix.is_empty()),
    }
}

/// Verifies the final checksum, which covers the JSON object without its last key.
fn check(file: &[u8]) -> Result<(), InfqFault> {
    let digits = file.strip_suffix(AFTER.as_bytes()).and_then(|rest| rest.split_last_chunk::<DIGITS>());
    let body = digits.and_then(|(rest, digits)| {
        let digits = Checksum::from_hex(str::from_utf8(digits).ok()?)?;
        Some((rest.strip_suffix(BEFORE.as_bytes())?, digits))
    });
    let (body, declared) = body.ok_or(InfqFault::NoChecksum)?;
    let found = Checksum::of(&[body, b"}"].concat());
    if found == declared { Ok(()) } else { Err(InfqFault::ManifestChecksum { declared, found }) }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), Value::to_string)
}
