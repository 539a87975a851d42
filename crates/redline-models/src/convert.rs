//! Converts a checkpoint to an INFQ directory, tensor by tensor: at most one piece of one tensor and its scales are in memory.
//! The bytes depend on the source and the options only.

use std::ops::Range;
use std::path::Path;

use redline_kernels::matrix::{Plane, QuantisedRows};
use redline_kernels::{Exec, Format, Matrix};
use redline_weights::{Checkpoint, ConfigFile, DirWriter, Disk, Gguf, Infq, InfqWriter};

use crate::ModelError;
use crate::footprint::unquantised_format;
use crate::formats::Formats;
use crate::gguf_config;
use crate::packing;
use crate::quantised::QuantisedTensors;
use crate::sentence::{self, stanford};
use crate::spec::{DecoderSpec, LinearSpec, Names, PartSpec, Role};
use crate::tensors::{Source, Tensors, check_magnitude, outlier_columns, piece_rows, pieces};

/// Options of a conversion.
#[derive(Clone, Copy, Debug)]
pub struct ConvertOptions {
    /// The format of all matrices.
    pub format: Format,
    /// Share of every layer's input columns that integer formats keep as bf16, in `[0, 1]`.
    pub outliers: f64,
}

/// Progress of a conversion, in parameters, or of a merge, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The part that is written.
    pub done: u64,
    /// The whole.
    pub total: u64,
}

/// A file that a model needs besides its weights: its name, and its contents.
pub type Companion = (&'static str, Vec<u8>);

/// Converts the model in `source`, a Hugging Face directory, to `destination`, and copies every other file that a model needs.
pub fn convert(
    exec: Exec<'_>,
    source: &Path,
    destination: &Path,
    options: ConvertOptions,
    progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    convert_on(&Disk::default(), exec, source, destination, options, progress)
}

/// As [`convert`], but every matrix keeps the format in which it is stored. For a checkpoint whose matrices are floats, that is the format
/// in which it would be loaded.
pub fn convert_stored(
    exec: Exec<'_>,
    source: &Path,
    destination: &Path,
    progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    convert_directory(&Disk::default(), exec, source, destination, None, progress)
}

/// Converts the model in a GGUF file to `destination`, with its `config.json` and with `companions`: the files of its tokenizer. Without
/// options, every matrix keeps the format in which it is stored.
pub fn convert_gguf(
    exec: Exec<'_>,
    gguf: &Gguf,
    companions: &[Companion],
    destination: &Path,
    options: Option<ConvertOptions>,
    progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    DirWriter::refuse_occupied(destination)?;
    let spec = crate::arch::specification(&gguf_config::config(gguf)?)?.1;
    let tensors = Source::of_gguf(&spec, gguf)?;
    let (formats, outliers) = formats_of(&spec, &tensors, options);
    let plan = Plan::new(&spec, tensors.names(&spec), &tensors, &formats, outliers)?;
    let scheme = packing::scheme_of(&formats);
    let mut out = InfqWriter::create_on(Disk::default(), destination, scheme, plan.declare())?;
    out.write_file(CONFIG, &gguf_config::config_json(gguf)?)?;
    for (name, contents) in companions {
        out.write_file(name, contents)?;
    }
    for (name, contents) in sentence::files_of_gguf(gguf)? {
        out.write_file(name, &contents)?;
    }
    let total = plan.write(exec, &tensors, &mut out, progress)?;
    let digest = gguf.digest()?;
    progress(Progress { done: total, total })?;
    Ok(out.finish(digest)?)
}

/// The formats of all matrices, and the share of columns that are kept.
fn formats_of(spec: &DecoderSpec, tensors: &Source<'_>, options: Option<ConvertOptions>) -> (Formats, f64) {
    match options {
        Some(ConvertOptions { format, outliers }) => (Formats::one(spec, format), outliers),
        None => (tensors.stored_formats(spec), 0.0),
    }
}

/// As [`convert`], with files written through `disk`.
pub fn convert_on(
    disk: &Disk,
    exec: Exec<'_>,
    source: &Path,
    destination: &Path,
    options: ConvertOptions,
    progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    convert_directory(disk, exec, source, destination, Some(options), progress)
}

fn convert_directory(
    disk: &Disk,
    exec: Exec<'_>,
    source: &Path,
    destination: &Path,
    options: Option<ConvertOptions>,
    progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    if Infq::is(source) {
        return Err(ModelError::AlreadyConverted { dir: source.display().to_string() });
    }
    DirWriter::refuse_occupied(destination)?;
    let config = ConfigFile::open(&source.join(CONFIG))?;
    let mut spec = crate::arch::specification(&config)?.1;
    let checkpoint = Checkpoint::open(source)?;
    spec.match_files(|name| checkpoint.info(name).is_some());
    let tensors = Source::check(&spec, &checkpoint)?;
    tensors.check_tied(&spec)?;
    let (formats, outliers) = formats_of(&spec, &tensors, options);
    let plan = Plan::new(&spec, tensors.names(&spec), &tensors, &formats, outliers)?;
    let weights = plan.declare();
    let scheme = packing::scheme_of(&formats);
    let mut out = InfqWriter::create_on(disk.clone(), destination, scheme, weights)?;
    for name in COMPANIONS {
        let path = source.join(name);
        // A dangling link counts as present; copying it reports the error.
        if path.symlink_metadata().is_ok() {
            out.copy_file(&path)?;
        }
    }
    for (path, name) in sentence::files(source)? {
        out.copy_file_as(&path, &name)?;
    }
    if let Some(layer) = stanford::layer_file(source, &checkpoint)? {
        out.write_file(stanford::LAYER_FILE, &layer)?;
    }
    let total = plan.write(exec, &tensors, &mut out, progress)?;
    let digest = checkpoint.digest()?;
    progress(Progress { done: total, total })?;
    Ok(out.finish(digest)?)
}

const CONFIG: &str = "config.json";

/// Files of a model directory to copy besides the weights; licences are included.
pub(crate) const COMPANIONS: &[&str] = &[
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    stanford::METADATA,
    "LICENSE",
    "LICENSE.txt",
    "NOTICE",
    "USE_POLICY.md",
];

/// The contents of the directory, decided before anything is written.
pub(crate) struct Plan<'a> {
    spec: &'a DecoderSpec,
    names: Names,
    /// Every matrix with its format and its outlier columns.
    matrices: Vec<(LinearSpec, Format, Vec<u32>)>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(
        spec: &'a DecoderSpec,
        names: Names,
        tensors: &impl Tensors,
        formats: &Formats,
        outliers: f64,
    ) -> Result<Self, ModelError> {
        let mut matrices = Vec::new();
        for (run, format) in spec.linears().iter().flat_map(|linear| formats.runs(linear)) {
            let fraction = if format.is_integer() { outliers } else { 0.0 };
            let columns = outlier_columns(tensors, &run, fraction)?;
            matrices.push((run, format, columns));
        }
        for linear in spec.unquantised() {
            let format = unquantised_format(formats.of(&linear.parts[0].weight()));
            matrices.push((linear, format, Vec::new()));
        }
        Ok(Self { spec, names, matrices })
    }

    /// Declarations of all weights in the directory.
    pub(crate) fn declare(&self) -> Vec<redline_weights::Weight> {
        let mut weights = Vec::new();
        for (linear, format, columns) in &self.matrices {
            for part in &linear.parts {
                let name = self.names.full(&part.weight());
                weights.push(packing::declare(name, part.outputs, linear.inputs, *format, columns.clone()));
            }
        }
        for tensor in self.spec.tensors().into_iter().filter(|t| t.role != Role::Weight) {
            weights
                .push(packing::declare_values(self.names.full(&tensor.name), tensor.shape.iter().product()));
        }
        weights
    }

    /// Writes every weight. Returns the number of parameters.
    pub(crate) fn write(
        &self,
        exec: Exec<'_>,
        tensors: &impl Tensors,
        out: &mut InfqWriter,
        progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
    ) -> Result<u64, ModelError> {
        let all = self.spec.tensors();
        let total = all.iter().map(|t| t.shape.iter().product::<usize>() as u64).sum();
        let mut done = 0;
        for tensor in all.iter().filter(|t| t.role != Role::Weight) {
            let mut values = vec![0f32; tensor.shape.iter().product()];
            tensors.read(&tensor.name, 0, &mut values)?;
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            out.write_part(&self.names.full(&tensor.name), Plane::Words.name(), &bytes)?;
            done += values.len() as u64;
        }
        for (linear, format, columns) in &self.matrices {
            for part in &linear.parts {
                let name = self.names.full(&part.weight());
                let mut write = |rows: &Matrix| {
                    for (plane, bytes) in rows.planes(0..rows.strips()) {
                        if !bytes.is_empty() {
                            out.write_part(&name, plane.name(), bytes)?;
                        }
                    }
                    done += (rows.rows() * linear.inputs) as u64;
                    progress(Progress { done, total })
                };
                if let Some(stored) =
                    tensors.quantised(&part.weight(), *format).filter(|_| columns.is_empty())
                {
                    write_stored(exec, stored, (linear, part, *format), &mut write)?;
                    continue;
                }
                pieces(tensors, linear, part, |piece| {
                    check_magnitude(piece.values(), &name, *format)?;
                    let mut rows =
                        Matrix::with_outliers(*format, piece.rows, linear.inputs, columns.clone())?;
                    piece.pack(exec, &mut rows, 0);
                    write(&rows)
                })?;
            }
        }
        Ok(total)
    }
}

/// Passes the rows of a projection to `write` as they are stored, in pieces and in order.
fn write_stored(
    exec: Exec<'_>,
    stored: &dyn QuantisedTensors,
    (linear, part, format): (&LinearSpec, &PartSpec, Format),
    write: &mut dyn FnMut(&Matrix) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let (name, step) = (part.weight(), piece_rows(linear, part));
    for first in (0..part.outputs).step_by(step.max(1)) {
        let count = step.min(part.outputs - first);
        let mut rows = Matrix::zeroed(format, count, linear.inputs)?;
        rows.read_quantised_rows(exec, 0, count, |range: Range<usize>, to: &mut QuantisedRows, buffer| {
            stored.read_quantised(&name, first + range.start..first + range.end, to, buffer)
        })?;
        write(&rows)?;
    }
    Ok(())
}
