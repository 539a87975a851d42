//! Merges an adapter into the checkpoint of its base, tensor by tensor: one update and some rows of one weight are in memory.
//!
//! Order per value: `d = sum over the rank of a * b`, ascending, each product rounded; then `w + factor * d`, where the factor is the
//! scaling times the scale of the caller; with DoRA, the result is finally multiplied by its gain. All of this is in f32, but for
//! the squares of DoRA, which are summed in f64. The value is stored in the type of the checkpoint, rounded to nearest, ties to even.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use redline_weights::{
    AdapterFiles, Checkpoint, ConfigFile, DirWriter, Disk, FittedModule, Gguf, Infq, TensorInfo,
    TensorWriter, WeightsError,
};

use super::source::{ModulePlace, base_modules, check_base};
use super::update::Update;
use crate::ModelError;
use crate::convert::{COMPANIONS, Progress};
use crate::spec::{DecoderSpec, Names, Orientation};
use crate::tensors::Source;

/// Number of values of a weight in memory: whole rows, at least one.
const PIECE: usize = 1 << 20;

/// Merges the adapter in `adapter`, with its updates multiplied by `scale`, into the checkpoint in `base`, and writes the result to
/// `destination`: a checkpoint with the names, types, shapes and files of the base, and a copy of every other file that a model needs.
///
/// # Errors
/// The base is converted, the destination exists and is not empty, the adapter does not fit the base, or the result is not the model
/// with the adapter: `scale` is not 1 with DoRA, or embedding and head are one tensor and the adapter changes one of them.
pub fn merge(
    base: &Path,
    adapter: &Path,
    destination: &Path,
    scale: f32,
    progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    merge_on(&Disk::default(), base, adapter, destination, scale, progress)
}

/// As [`merge`], with files written through `disk`.
pub fn merge_on(
    disk: &Disk,
    base: &Path,
    adapter: &Path,
    destination: &Path,
    scale: f32,
    progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    if Infq::is(base) {
        return Err(ModelError::MergeConverted { dir: base.display().to_string() });
    }
    if Gguf::is(base) {
        return Err(ModelError::MergeGguf { file: base.display().to_string() });
    }
    DirWriter::refuse_occupied(destination)?;
    let config = ConfigFile::open(&base.join("config.json"))?;
    let spec = crate::arch::specification(&config)?.1;
    let checkpoint = Checkpoint::open(base)?;
    let source = Source::check(&spec, &checkpoint)?;
    source.check_tied(&spec)?;
    let files = AdapterFiles::open(adapter)?;
    let modules = base_modules(&spec, &files);
    let bases: Vec<_> = modules.iter().map(|(_, base)| base.clone()).collect();
    let fitted = files.fit(&bases, usize::MAX)?;
    if files.config().dora() && scale != 1.0 {
        return Err(ModelError::MergeScale { scale, adapter: adapter.display().to_string() });
    }
    let mut updates = BTreeMap::new();
    for fitted in fitted {
        if let Some(place) = modules[fitted.module].0 {
            refuse_tied(&spec, place, &bases[fitted.module].path)?;
            let (name, transposed) = weight(&spec, source.names(&spec), place);
            updates.insert(name, (fitted, transposed));
        }
    }
    check_base(&spec, &files, usize::MAX, &checkpoint)?;

    let mut out = DirWriter::create_on(disk.clone(), destination)?;
    for path in companions(base)? {
        out.copy_file(&path)?;
    }
    let total = checkpoint.names().filter_map(|name| checkpoint.info(name)).map(TensorInfo::bytes).sum();
    let mut merging = Merging { checkpoint: &checkpoint, files: &files, updates, scale, done: 0, total };
    checkpoint.rewrite(&mut out, |info, writer| merging.tensor(info, writer, progress))?;
    Ok(out.finish()?)
}

/// Refuses an update of one of embedding and head if they are one tensor: merged, it would change both, but an adapter changes only
/// the one that it names.
fn refuse_tied(spec: &DecoderSpec, place: ModulePlace, path: &str) -> Result<(), ModelError> {
    let (changed, other) = match place {
        ModulePlace::Embedding => ("token embedding", "head"),
        ModulePlace::Head => ("head", "token embedding"),
        ModulePlace::Part { .. } => return Ok(()),
    };
    if !spec.tied {
        return Ok(());
    }
    Err(ModelError::MergeTied { module: path.to_owned(), changed, other })
}

/// The name of a module's weight in the checkpoint, and whether it is stored as `[inputs, outputs]`.
fn weight(spec: &DecoderSpec, names: Names, place: ModulePlace) -> (String, bool) {
    match place {
        ModulePlace::Embedding => (names.full(&format!("{}.weight", spec.embedding)), true),
        ModulePlace::Head => (names.full(spec.head), false),
        ModulePlace::Part { layer, site, part } => {
            let linear = spec.layers[layer].at(site);
            let transposed = linear.orientation == Orientation::InOut;
            (names.full(&linear.parts[part].weight()), transposed)
        }
    }
}

/// The files of a model directory to copy besides the weights: those of a conversion, those that only other programs read, and the
/// code of models that transformers does not contain.
fn companions(base: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let unread = |error| WeightsError::Io { action: "look into the directory", path: base.to_owned(), error };
    let mut found = Vec::new();
    for entry in fs::read_dir(base).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if COMPANIONS.contains(&&*name) || name == "tokenizer.model" || name.ends_with(".py") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A merge under way.
struct Merging<'a> {
    checkpoint: &'a Checkpoint,
    files: &'a AdapterFiles,
    /// The adapted modules by the names of their weights, and whether these are stored as `[inputs, outputs]`.
    updates: BTreeMap<String, (FittedModule<'a>, bool)>,
    scale: f32,
    /// Bytes of the checkpoint that were written.
    done: u64,
    total: u64,
}

impl Merging<'_> {
    /// Writes a tensor, with its update if it has one.
    fn tensor(
        &mut self,
        info: &TensorInfo,
        writer: &mut TensorWriter<'_>,
        progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let total = self.total;
        let Some((fitted, transposed)) = self.updates.get(&info.name) else {
            let done = &mut self.done;
            return self.checkpoint.read_raw(&info.name, |raw| {
                writer.write_raw(raw)?;
                *done += raw.len() as u64;
                progress(Progress { done: *done, total })
            });
        };
        let mut update = Update::new(self.files.low_rank(fitted)?, *transposed, self.scale);
        let rows = Rows::new(self.checkpoint, info);
        if update.needs_squares() {
            rows.each(|first, values| {
                update.add_squares(first, values);
                progress(Progress { done: self.done, total })
            })?;
        }
        let bytes = info.bytes() / (info.elements() as u64).max(1);
        rows.each(|first, values| {
            update.apply(first, values);
            writer.write_f32(values)?;
            self.done += bytes * values.len() as u64;
            progress(Progress { done: self.done, total })
        })
    }
}

/// The rows of a weight in a checkpoint.
struct Rows<'a> {
    checkpoint: &'a Checkpoint,
    info: &'a TensorInfo,
    columns: usize,
}

impl<'a> Rows<'a> {
    fn new(checkpoint: &'a Checkpoint, info: &'a TensorInfo) -> Self {
        let columns = info.shape.last().copied().unwrap_or(1).max(1);
        Self { checkpoint, info, columns }
    }

    /// Passes the index of their first row and the values of some rows to `take`, until it has been passed all of them.
    fn each(
        &self,
        mut take: impl FnMut(usize, &mut [f32]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let elements = self.info.elements();
        let step = (PIECE / self.columns).max(1) * self.columns;
        let (mut values, mut buffer) = (vec![0f32; step.min(elements)], Vec::new());
        for first in (0..elements).step_by(step) {
            let values = &mut values[..step.min(elements - first)];
            self.checkpoint.read_f32_range_with(&self.info.name, first, values, &mut buffer)?;
            take(first / self.columns, values)?;
        }
        Ok(())
    }
}
