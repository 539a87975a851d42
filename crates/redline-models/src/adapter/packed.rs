//! Adapters in INFQ directories: packed beside the weights of one model in one format, so that loading rounds nothing.
//!
//! For every module, the directory has the weight `<path>.lora_A`, `[rank, inputs]`, with the outlier columns of its layer;
//! `<path>.lora_B`, `[outputs, rank]`; and with DoRA `<path>.lora_gains`, `[outputs]`. Of the embedding, A is `[vocab, rank]` and B
//! `[hidden, rank]`. [`BASE`] is the checksum of the adapted weights of the model, [`SAME`] is [`AdapterWeights::digest`], and the
//! scheme is that of the model. `adapter_config.json` is copied, and the source is [`AdapterFiles::digest`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::PoisonError;

use redline_kernels::matrix::Plane;
use redline_kernels::op::linear::{Lora, LoraPart};
use redline_kernels::{Exec, Format, Matrix};
use redline_weights::{
    AdapterConfig, AdapterFault, AdapterFiles, AdapterModule, BaseModule, Checksum, DirWriter, Infq,
    InfqWriter, ModuleKind, StoredDtype, Weight, WeightPart, WeightsError,
};

use super::build::{AdapterBuilder, STRIP, ones};
use super::source::{AdapterWeights, ModuleDelta, ModulePlace, modules_of, read};
use crate::ModelError;
use crate::adapter_rows::{Adapter, EmbeddingUpdate};
use crate::convert::Progress;
use crate::footprint::unquantised_format;
use crate::packing;
use crate::plan::Site;
use crate::step::padded;

/// The name of the checksum of the base.
const BASE: &str = "base_checksum";
/// The name of the checksum of the adapter's values.
const SAME: &str = "adapter_checksum";
/// Encoding of checksums: hexadecimal digits.
const CHECKSUM: &str = "checksum";
/// Number of their digits.
const DIGITS: usize = 32;

const CONFIG: &str = "adapter_config.json";
const A: &str = ".lora_A";
const B: &str = ".lora_B";
const GAINS: &str = ".lora_gains";

/// A matrix that a module updates: the layer's, from row `first` on.
struct Updated<'a> {
    matrix: &'a Matrix,
    first: usize,
    outputs: usize,
}

impl Updated<'_> {
    /// The formats of A and B.
    fn formats(&self, place: ModulePlace) -> (Format, Format) {
        if place == ModulePlace::Embedding {
            let format = unquantised_format(self.matrix.format());
            return (format, format);
        }
        Lora::formats(self.matrix.format())
    }

    /// The declarations of A, B and the gains.
    fn declare(&self, place: ModulePlace, path: &str, rank: usize) -> [Weight; 3] {
        let (a_format, b_format) = self.formats(place);
        let columns = self.matrix.outlier_columns();
        let (a, outputs) = if place == ModulePlace::Embedding {
            let (vocab, hidden) = (self.matrix.rows(), self.matrix.cols());
            (packing::declare(format!("{path}{A}"), vocab, rank, a_format, Vec::new()), hidden)
        } else {
            let inputs = self.matrix.cols();
            (packing::declare(format!("{path}{A}"), rank, inputs, a_format, columns.to_vec()), self.outputs)
        };
        let b = packing::declare(format!("{path}{B}"), outputs, rank, b_format, Vec::new());
        [a, b, packing::declare_values(format!("{path}{GAINS}"), outputs)]
    }

    /// A checksum over the weights of the outputs.
    fn checksum(&self) -> Checksum {
        let Self { matrix, first, outputs } = self;
        let planes = matrix.planes(first / STRIP..(first + outputs).div_ceil(STRIP));
        // The planes that every integer format may have always count, the others only where they exist.
        let counts = |plane| matches!(plane, Plane::Words | Plane::Scales | Plane::Outliers);
        let counted = planes.filter(|&(plane, bytes)| counts(plane) || !bytes.is_empty());
        let sums: Vec<Checksum> = counted.map(|(_, bytes)| Checksum::of(bytes)).collect();
        let shape = (first, outputs, matrix.cols(), matrix.format(), matrix.outlier_columns());
        Checksum::of(format!("{shape:?} {sums:?}").as_bytes())
    }
}

impl AdapterBuilder {
    fn updated(&self, place: ModulePlace) -> Updated<'_> {
        match place {
            ModulePlace::Embedding => {
                let matrix = &self.decoder.embedding.tokens;
                Updated { matrix, first: 0, outputs: matrix.rows() }
            }
            ModulePlace::Head => {
                let matrix = self.head.as_deref().unwrap_or(&self.decoder.embedding.tokens);
                Updated { matrix, first: 0, outputs: matrix.rows() }
            }
            ModulePlace::Part { layer, site, part } => {
                let parts = &self.spec.layers[layer].at(site).parts;
                let first = parts[..part].iter().map(|part| part.outputs).sum();
                Updated { matrix: self.matrix(layer, site), first, outputs: parts[part].outputs }
            }
        }
    }

    /// The checksum of the weights that these modules update.
    fn base_checksum(&self, places: impl Iterator<Item = ModulePlace>) -> Checksum {
        let sums = places.map(|place| format!("{place:?} {}\n", self.weights_checksum(place)));
        Checksum::of(sums.collect::<String>().as_bytes())
    }

    /// The checksum of the weights that a module updates. It is computed once.
    fn weights_checksum(&self, place: ModulePlace) -> Checksum {
        let sums = || self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sums().get(&place).copied();
        known.unwrap_or_else(|| {
            let sum = self.updated(place).checksum();
            sums().insert(place, sum);
            sum
        })
    }

    /// The format of the model's weights.
    fn format(&self) -> Format {
        self.head.as_deref().unwrap_or(&self.decoder.embedding.tokens).format()
    }

    /// Packs the adapter in the PEFT directory `source` for this model, and writes it to the INFQ directory `destination`.
    ///
    /// # Errors
    /// The destination exists and is not empty, the adapter does not fit the model, or a file cannot be written.
    pub fn convert(
        &self,
        exec: Exec<'_>,
        source: &Path,
        destination: &Path,
        max_rank: usize,
        progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        self.check_formats()?;
        DirWriter::refuse_occupied(destination)?;
        let files = AdapterFiles::open(source)?;
        let adapter = read(&self.spec, &files, max_rank)?;
        let paths = modules_of(&self.spec, files.paths());
        let path = |place| {
            let named = paths.iter().find(|(of, _)| *of == Some(place));
            named.map(|(_, base)| base.path.clone()).unwrap_or_default()
        };
        let modules: Vec<(String, &ModuleDelta)> =
            changing(&adapter).into_iter().map(|module| (path(module.place), module)).collect();
        let mut weights = vec![checksum_weight(BASE), checksum_weight(SAME)];
        for (path, module) in &modules {
            let [a, b, gains] = self.updated(module.place).declare(module.place, path, module.rank);
            weights.extend([a, b]);
            weights.extend(module.magnitude.is_some().then_some(gains));
        }
        let scheme = packing::scheme(self.format());
        let mut out = InfqWriter::create(destination, scheme, weights)?;
        out.copy_file(&source.join(CONFIG))?;
        let base = self.base_checksum(modules.iter().map(|(_, module)| module.place));
        for (name, checksum) in [(BASE, base), (SAME, adapter.digest)] {
            out.write_part(name, Plane::Words.name(), checksum.to_string().as_bytes())?;
        }
        let total = modules.len() as u64;
        for (done, (path, module)) in modules.iter().enumerate() {
            self.write_module(exec, path, module, &mut out)?;
            progress(Progress { done: done as u64 + 1, total })?;
        }
        Ok(out.finish(files.digest()?)?)
    }

    fn write_module(
        &self,
        exec: Exec<'_>,
        path: &str,
        module: &ModuleDelta,
        out: &mut InfqWriter,
    ) -> Result<(), ModelError> {
        let (down, up, gains) = if module.place == ModulePlace::Embedding {
            let EmbeddingUpdate { down, up, gains } = self.embedding(exec, module)?;
            (down, up, gains.map(|gains| gains.to_vec()))
        } else {
            let Updated { matrix, first, outputs } = self.updated(module.place);
            let (down, up) = module.matrices(exec, matrix, 0, path)?;
            let gains = module.magnitude.as_ref().map(|magnitude| {
                let mut gains = vec![0.0; outputs];
                module.gains(matrix, first, magnitude, &mut gains);
                gains
            });
            (down, up, gains)
        };
        for (suffix, matrix) in [(A, &down), (B, &up)] {
            for (plane, bytes) in matrix.planes(0..matrix.strips()) {
                if !bytes.is_empty() {
                    out.write_part(&format!("{path}{suffix}"), plane.name(), bytes)?;
                }
            }
        }
        if let Some(gains) = gains {
            let bytes: Vec<u8> = gains.iter().flat_map(|gain| gain.to_le_bytes()).collect();
            out.write_part(&format!("{path}{GAINS}"), Plane::Words.name(), &bytes)?;
        }
        Ok(())
    }

    /// Reads an adapter that [`Self::convert`] wrote for this model.
    ///
    /// # Errors
    /// The directory is damaged, was written for another model or another format, or a rank is above `max_rank`.
    pub fn load(&self, infq: &Infq, max_rank: usize) -> Result<(Checksum, Adapter), ModelError> {
        self.check_formats()?;
        let dir = || infq.dir().display().to_string();
        let scheme = packing::scheme(self.format());
        if *infq.scheme() != scheme {
            let found = packing::format_of_scheme(infq)?.to_string();
            return Err(ModelError::AdapterFormat { found, needed: self.format().to_string(), dir: dir() });
        }
        let paths: BTreeSet<&str> = infq.names().filter_map(|name| name.strip_suffix(A)).collect();
        let named: BTreeMap<String, ModulePlace> = modules_of(&self.spec, paths.iter().copied())
            .into_iter()
            .filter_map(|(place, BaseModule { path, .. })| Some((path, place?)))
            .collect();
        let mut modules = Vec::new();
        let mut known = BTreeSet::from([BASE, SAME].map(str::to_owned));
        for path in paths {
            let Some(&place) = named.get(path) else { continue };
            modules.push((place, path));
            known.extend([A, B, GAINS].map(|part| format!("{path}{part}")));
        }
        if let Some(foreign) = infq.names().find(|name| !known.contains(*name)) {
            return Err(ModelError::AdapterModule { name: foreign.to_owned(), dir: dir() });
        }
        modules.sort_by_key(|(place, _)| *place);
        let packed = Packed { builder: self, infq, max_rank, modules };
        packed.check()?;
        Ok((packed.checksum(SAME)?, packed.adapter()?))
    }
}

/// The modules that are not left out because their layer's update is zero.
fn changing(adapter: &AdapterWeights) -> Vec<&ModuleDelta> {
    let layer = |module: &ModuleDelta| match module.place {
        ModulePlace::Part { layer, site, .. } => Some((layer, site)),
        ModulePlace::Embedding | ModulePlace::Head => None,
    };
    let changes = |module: &ModuleDelta| {
        module.place == ModulePlace::Embedding
            || module.magnitude.is_some()
            || module.b.iter().any(|b| *b != 0.0)
    };
    let all = &adapter.modules;
    let together =
        |a: &ModuleDelta, b: &ModuleDelta| a.place == b.place || layer(a).is_some() && layer(a) == layer(b);
    all.iter().filter(|one| all.iter().any(|other| together(one, other) && changes(other))).collect()
}

fn checksum_weight(name: &str) -> Weight {
    Weight {
        name: name.to_owned(),
        shape: vec![DIGITS],
        encoding: CHECKSUM.to_owned(),
        attributes: BTreeMap::new(),
        outlier_columns: Vec::new(),
        parts: vec![WeightPart::new(Plane::Words.name(), StoredDtype::U8, [DIGITS])],
    }
}

/// An INFQ directory with modules of a model.
struct Packed<'a> {
    builder: &'a AdapterBuilder,
    infq: &'a Infq,
    max_rank: usize,
    /// In the order of their places.
    modules: Vec<(ModulePlace, &'a str)>,
}

impl Packed<'_> {
    fn dir(&self) -> String {
        self.infq.dir().display().to_string()
    }

    fn damaged(&self, fact: String) -> ModelError {
        ModelError::Config { fact, file: self.dir() }
    }

    /// The declaration of a weight, which must be there.
    fn weight(&self, name: &str) -> Result<&Weight, ModelError> {
        self.infq.weight(name).ok_or_else(|| self.damaged(format!("`{name}` is missing")))
    }

    /// Refuses shapes and formats that are not those of the model, and weights of another model.
    fn check(&self) -> Result<(), ModelError> {
        for &(place, path) in &self.modules {
            let updated = self.builder.updated(place);
            let rank = self.rank(place, path)?;
            let [a, b, gains] = updated.declare(place, path, rank);
            for needed in [a, b].into_iter().chain(self.has_gains(path).then_some(gains)) {
                let found = self.weight(&needed.name)?;
                if *found != needed {
                    if found.outlier_columns != needed.outlier_columns && found.shape == needed.shape {
                        return Err(ModelError::AdapterBase { dir: self.dir() });
                    }
                    return Err(self.damaged(format!(
                        "`{}` is {} {:?}, but this model needs {} {:?}",
                        needed.name, found.encoding, found.shape, needed.encoding, needed.shape
                    )));
                }
            }
        }
        let needed = self.builder.base_checksum(self.modules.iter().map(|(place, _)| *place));
        if self.checksum(BASE)? != needed {
            return Err(ModelError::AdapterBase { dir: self.dir() });
        }
        Ok(())
    }

    fn checksum(&self, name: &str) -> Result<Checksum, ModelError> {
        let is_not = || self.damaged(format!("`{name}` is no checksum"));
        if *self.weight(name)? != checksum_weight(name) {
            return Err(is_not());
        }
        let mut digits = [0; DIGITS];
        self.infq.read_part(name, Plane::Words.name(), &mut digits)?;
        str::from_utf8(&digits).ok().and_then(Checksum::from_hex).ok_or_else(is_not)
    }

    fn has_gains(&self, path: &str) -> bool {
        self.infq.weight(&format!("{path}{GAINS}")).is_some()
    }

    fn rank(&self, place: ModulePlace, path: &str) -> Result<usize, ModelError> {
        let shape = &self.weight(&format!("{path}{A}"))?.shape;
        let rank = match shape[..] {
            [_, rank] if place == ModulePlace::Embedding => rank,
            [rank, _] => rank,
            _ => 0,
        };
        if rank == 0 {
            return Err(self.damaged(format!("`{path}{A}` is {shape:?}")));
        }
        if rank > self.max_rank {
            let fault = AdapterFault::RankLimit { module: path.to_owned(), rank, limit: self.max_rank };
            return Err(WeightsError::Adapter { place: self.infq.dir().to_owned(), fault }.into());
        }
        Ok(rank)
    }

    /// Reads a matrix whose declaration was checked.
    fn matrix(&self, name: &str, format: Format) -> Result<Matrix, ModelError> {
        let weight = self.weight(name)?;
        let (&[rows, cols], columns) = (&weight.shape[..], weight.outlier_columns.clone()) else {
            return Err(self.damaged(format!("`{name}` is {:?}", weight.shape)));
        };
        let mut matrix = Matrix::with_outliers(format, rows, cols, columns)?;
        let strips = 0..matrix.strips();
        for (plane, bytes) in matrix.planes_mut(strips) {
            if !bytes.is_empty() {
                self.infq.read_part(name, plane.name(), bytes)?;
            }
        }
        Ok(matrix)
    }

    /// The gains of a module, if it has any.
    fn gains(&self, path: &str, gains: &mut [f32]) -> Result<(), ModelError> {
        let mut bytes = vec![0; size_of_val(gains)];
        self.infq.read_part(&format!("{path}{GAINS}"), Plane::Words.name(), &mut bytes)?;
        let (values, _) = bytes.as_chunks::<4>();
        gains.iter_mut().zip(values).for_each(|(gain, value)| *gain = f32::from_le_bytes(*value));
        Ok(())
    }

    fn adapter(&self) -> Result<Adapter, ModelError> {
        let layers = self.builder.spec.layers.len();
        let mut sites = Vec::with_capacity(layers);
        for layer in 0..layers {
            let mut updates = [const { None }; Site::OF_LAYER.len()];
            for (update, &of) in updates.iter_mut().zip(Site::OF_LAYER) {
                *update = self.lora(|place| {
                    matches!(place, ModulePlace::Part { layer: at, site, .. } if (at, site) == (layer, of))
                })?;
            }
            sites.push(updates);
        }
        let head = self.lora(|place| place == ModulePlace::Head)?;
        let embedding = self.modules.iter().find(|(place, _)| *place == ModulePlace::Embedding);
        let embedding = embedding.map(|(place, path)| self.embedding(*place, path)).transpose()?;
        Ok(Adapter::new(sites, head, embedding))
    }

    /// The update of a layer by the modules of these places.
    fn lora(&self, of_layer: impl Fn(ModulePlace) -> bool) -> Result<Option<Lora>, ModelError> {
        let (mut parts, mut gains) = (Vec::new(), None);
        for &(place, path) in self.modules.iter().filter(|(place, _)| of_layer(*place)) {
            let updated = self.builder.updated(place);
            let Updated { matrix, first, outputs } = updated;
            let (a_format, b_format) = updated.formats(place);
            let down = self.matrix(&format!("{path}{A}"), a_format)?;
            let mut up = self.matrix(&format!("{path}{B}"), b_format)?;
            let before = first % STRIP;
            if before > 0 {
                let mut whole = Matrix::zeroed(b_format, before + outputs, up.cols())?;
                whole.copy_rows(before, &up);
                up = whole;
            }
            if self.has_gains(path) {
                let gains = match &mut gains {
                    Some(gains) => gains,
                    none => none.insert(ones(padded(matrix.rows()))?),
                };
                self.gains(path, &mut gains[first..first + outputs])?;
            }
            parts.push(LoraPart { down, up, first_strip: first / STRIP });
        }
        Ok((!parts.is_empty()).then(|| Lora::new(parts, gains)))
    }

    fn embedding(&self, place: ModulePlace, path: &str) -> Result<EmbeddingUpdate, ModelError> {
        let (a_format, b_format) = self.builder.updated(place).formats(place);
        let down = self.matrix(&format!("{path}{A}"), a_format)?;
        let up = self.matrix(&format!("{path}{B}"), b_format)?;
        let mut gains = None;
        if self.has_gains(path) {
            let mut values = redline_kernels::Buffer::zeroed(up.rows())?;
            self.gains(path, &mut values)?;
            gains = Some(values);
        }
        Ok(EmbeddingUpdate { down, up, gains })
    }
}

/// The files of a converted adapter.
pub struct PackedFiles {
    infq: Infq,
    config: AdapterConfig,
}

impl PackedFiles {
    /// Opens an INFQ directory with an adapter.
    pub fn open(dir: &Path) -> Result<Self, ModelError> {
        let infq = Infq::open(dir)?;
        Ok(Self { infq, config: AdapterConfig::open(&dir.join(CONFIG))? })
    }

    /// The directory.
    pub fn infq(&self) -> &Infq {
        &self.infq
    }

    /// The configuration of the adapter that was converted.
    pub fn config(&self) -> &AdapterConfig {
        &self.config
    }

    /// The modules by their paths. Their types are formats, and gains count as parameters.
    pub fn contents(&self) -> Result<Vec<AdapterModule>, ModelError> {
        let paths = self.infq.names().filter_map(|name| name.strip_suffix(A));
        paths.map(|path| self.module(path)).collect()
    }

    fn module(&self, path: &str) -> Result<AdapterModule, ModelError> {
        let of = |name: &str| {
            let weight = self.infq.weight(&format!("{path}{name}"))?;
            let &[rows, cols] = &weight.shape[..] else { return None };
            Some((rows, cols, weight.encoding.clone()))
        };
        let (Some(a), Some(b)) = (of(A), of(B)) else {
            let fact = format!("`{path}` has no matrices A and B");
            return Err(ModelError::Config { fact, file: self.infq.dir().display().to_string() });
        };
        let rank = b.1;
        // The embedding is the only module whose A is transposed.
        let inputs = if a.0 == rank { a.1 } else { a.0 };
        let mut module = AdapterModule {
            base: BaseModule { path: path.to_owned(), kind: ModuleKind::Linear, inputs, outputs: b.0 },
            rank,
            alpha: self.config.alpha(path)?,
            scaling: self.config.scaling(path)?,
            parameters: 0,
            bytes: 0,
            dtypes: vec![a.2],
        };
        for name in [A, B, GAINS].map(|part| format!("{path}{part}")) {
            let Some(weight) = self.infq.weight(&name) else { continue };
            let values = weight.shape.iter().fold(1, |all: u64, n| all.saturating_mul(*n as u64));
            module.parameters = module.parameters.saturating_add(values);
            let bytes = weight.parts.iter().filter_map(|part| self.infq.part_bytes(&name, &part.suffix));
            module.bytes = bytes.fold(module.bytes, u64::saturating_add);
        }
        Ok(module)
    }
}
