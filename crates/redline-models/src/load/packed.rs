//! Reads packed matrices: no arithmetic, and a checksum for every byte.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use redline_kernels::matrix::Plane;
use redline_kernels::{Buffer, FileBytes, Format, Matrix, Team};
use redline_weights::{Infq, Weight};

use super::{LoadOptions, WeightSource};
use crate::ModelError;
use crate::footprint::unquantised_format;
use crate::formats::Formats;
use crate::packing::{self, STRIP};
use crate::spec::{DecoderSpec, LinearSpec, Names, PartSpec, Role};

pub(super) struct Packed<'a> {
    infq: &'a Infq,
    names: Names,
    formats: Formats,
    /// Whether weights are mapped where that is possible.
    maps: bool,
}

impl<'a> Packed<'a> {
    /// Refuses a directory whose tensors do not match the specification, or whose format is not the requested one.
    pub(super) fn check(
        spec: &DecoderSpec,
        infq: &'a Infq,
        options: LoadOptions,
    ) -> Result<Self, ModelError> {
        let dir = || infq.dir().display().to_string();
        if options.outliers > 0.0 {
            return Err(ModelError::PackedOutliers { dir: dir() });
        }
        let names = spec.names(|name| infq.weight(name).is_some());
        let formats = packing::formats(spec, infq, |name| declared(infq, names, name))?;
        if let Some(wanted) = options.format.filter(|wanted| formats.only() != Some(*wanted)) {
            let (format, wanted) = (formats.to_string(), wanted.to_string());
            return Err(ModelError::Converted { format, wanted, dir: dir() });
        }
        let packed = Self { infq, names, formats, maps: options.mmap };
        let tensors = spec.tensors();
        let expected: BTreeSet<String> = tensors.iter().map(|t| packed.names.full(&t.name)).collect();
        ModelError::refuse_unexpected(infq.names().filter(|n| !expected.contains(*n)), infq.dir())?;
        for tensor in &tensors {
            match tensor.role {
                Role::Weight => packed.weight(&tensor.name)?,
                _ => packed.vector(&tensor.name, tensor.shape.iter().product())?,
            };
        }
        for (run, format) in spec.linears().iter().flat_map(|linear| packed.formats.runs(linear)) {
            packed.columns(&run, format)?;
        }
        for linear in spec.unquantised() {
            packed.columns(&linear, unquantised_format(packed.formats.of(&linear.parts[0].weight())))?;
        }
        Ok(packed)
    }

    pub(super) fn formats(&self) -> &Formats {
        &self.formats
    }

    fn weight(&self, name: &str) -> Result<&'a Weight, ModelError> {
        declared(self.infq, self.names, name)
    }

    fn damaged(&self, fact: String) -> ModelError {
        damaged(self.infq, fact)
    }

    /// The declaration of one projection, checked against the specification.
    fn part(&self, linear: &LinearSpec, part: &PartSpec, format: Format) -> Result<&'a Weight, ModelError> {
        let found = self.weight(&part.weight())?;
        if linear.inputs % format.multiple() != 0 {
            let fact = format!(
                "`{}` is {format}, which needs a multiple of {} inputs, but there are {}",
                found.name,
                format.multiple(),
                linear.inputs
            );
            return Err(self.damaged(fact));
        }
        let columns = if format.group().is_some() { found.outlier_columns.clone() } else { Vec::new() };
        let needed = packing::declare(found.name.clone(), part.outputs, linear.inputs, format, columns);
        if *found == needed {
            return Ok(found);
        }
        if (&found.encoding, &found.shape, found.parts.len())
            == (&needed.encoding, &needed.shape, needed.parts.len())
        {
            return Err(self.damaged(format!(
                "`{}` is {format}, but laid out as in another version; convert the original model again",
                found.name
            )));
        }
        Err(self.damaged(format!(
            "`{}` is {} {:?} in {} parts, but {format} {:?} in {} is needed",
            found.name,
            found.encoding,
            found.shape,
            found.parts.len(),
            needed.shape,
            needed.parts.len(),
        )))
    }

    /// The outlier columns of a layer, which all its projections must declare.
    pub(super) fn columns(&self, linear: &LinearSpec, format: Format) -> Result<&'a [u32], ModelError> {
        let mut columns: Option<&'a [u32]> = None;
        for part in &linear.parts {
            let weight = self.part(linear, part, format)?;
            if columns.is_some_and(|columns| columns != weight.outlier_columns) {
                let first = self.names.full(&linear.parts[0].weight());
                let fact = format!("`{}` keeps other columns apart than `{first}`", weight.name);
                return Err(self.damaged(fact));
            }
            columns = Some(&weight.outlier_columns);
        }
        Ok(columns.unwrap_or_default())
    }

    /// The declaration of a vector of `len` values.
    fn vector(&self, name: &str, len: usize) -> Result<&'a Weight, ModelError> {
        let weight = self.weight(name)?;
        if *weight == packing::declare_values(weight.name.clone(), len) {
            return Ok(weight);
        }
        let Weight { name, encoding, shape, .. } = weight;
        Err(self.damaged(format!("`{name}` is {encoding} {shape:?}, but f32 [{len}] is needed")))
    }

    /// Reads the planes of some strips of a weight, or only verifies its words if those are `mapped`.
    fn read(
        &self,
        weight: &Weight,
        matrix: &mut Matrix,
        strips: Range<usize>,
        mapped: bool,
    ) -> Result<(), ModelError> {
        for (plane, bytes) in matrix.planes_mut(strips) {
            if plane == Plane::Words && mapped {
                self.infq.check_part(&weight.name, plane.name(), bytes)?;
            } else if !bytes.is_empty() {
                self.infq.read_part(&weight.name, plane.name(), bytes)?;
            }
        }
        Ok(())
    }
}

impl Packed<'_> {
    /// The words of all projections of a layer, mapped; `None` if they are to be copied.
    fn map(&self, linear: &LinearSpec, format: Format) -> Result<Option<Buffer<u32>>, ModelError> {
        if !self.maps {
            return Ok(None);
        }
        let (mut stretches, mut first) = (Vec::with_capacity(linear.parts.len()), 0);
        for part in &linear.parts {
            let weight = self.part(linear, part, format)?;
            let end = first + part.outputs;
            let suffix = Plane::Words.name();
            let place = self.infq.place(&weight.name, suffix).zip(self.infq.part_bytes(&weight.name, suffix));
            let (Some(((file, offset), bytes)), Some(_)) =
                (place, whole_strips(first..end, linear.outputs()))
            else {
                return Ok(None);
            };
            let Ok(bytes) = usize::try_from(bytes) else { return Ok(None) };
            stretches.push(FileBytes { file, offset, bytes });
            first = end;
        }
        Ok(Buffer::over(&stretches))
    }
}

impl WeightSource for &Packed<'_> {
    fn matrix(&self, linear: &LinearSpec, format: Format) -> Result<Matrix, ModelError> {
        let columns = self.columns(linear, format)?.to_vec();
        let (rows, inputs) = (linear.outputs(), linear.inputs);
        let over = |words| Matrix::over(format, rows, inputs, columns.clone(), words);
        let mapped = self.map(linear, format)?.map(over).transpose()?.flatten();
        let is_mapped = mapped.is_some();
        let mut matrix =
            mapped.map_or_else(|| Matrix::with_outliers(format, rows, inputs, columns.clone()), Ok)?;
        let mut first = 0;
        for part in &linear.parts {
            let weight = self.part(linear, part, format)?;
            let end = first + part.outputs;
            if let Some(strips) = whole_strips(first..end, matrix.rows()) {
                self.read(weight, &mut matrix, strips, is_mapped)?;
            } else {
                let mut rows = Matrix::with_outliers(format, part.outputs, linear.inputs, columns.clone())?;
                let strips = 0..rows.strips();
                self.read(weight, &mut rows, strips, false)?;
                matrix.copy_rows(first, &rows);
            }
            first = end;
        }
        Ok(matrix)
    }

    fn values(&self, name: &str, out: &mut [f32]) -> Result<(), ModelError> {
        let weight = self.vector(name, out.len())?;
        let mut values = Buffer::<f32>::zeroed(out.len())?;
        self.infq.read_part(&weight.name, Plane::Words.name(), values.as_bytes_mut())?;
        out.copy_from_slice(&values);
        Ok(())
    }
}

/// What a directory says about a weight.
fn declared<'a>(infq: &'a Infq, names: Names, name: &str) -> Result<&'a Weight, ModelError> {
    let name = names.full(name);
    infq.weight(&name).ok_or_else(|| damaged(infq, format!("`{name}` is missing")))
}

fn damaged(infq: &Infq, fact: String) -> ModelError {
    ModelError::Config { fact, file: infq.dir().display().to_string() }
}

/// The strips that these rows fill, if they start at a strip and end at one or at the end of the matrix.
fn whole_strips(rows: Range<usize>, all: usize) -> Option<Range<usize>> {
    let whole = rows.start % STRIP == 0 && (rows.end % STRIP == 0 || rows.end == all);
    whole.then(|| rows.start / STRIP..rows.end.div_ceil(STRIP))
}

/// Runs `make(0..count)` on the threads of a team, and returns the results in order. After an error, no further call starts.
pub(super) fn in_parallel<T: Send>(
    team: &Team,
    count: usize,
    make: impl Fn(usize) -> Result<T, ModelError> + Sync,
) -> Result<Vec<T>, ModelError> {
    let next = AtomicUsize::new(0);
    let made = Mutex::new(Vec::with_capacity(count));
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return;
            }
            let result = make(i);
            if result.is_err() {
                next.store(count, Ordering::Relaxed);
            }
            made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((i, result));
        }
    };
    team.run(|_| work());
    let mut made = made.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    made.sort_by_key(|(i, _)| *i);
    made.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_order_whichever_ends_first() {
        let team = Team::new(2).unwrap();
        let ended = AtomicUsize::new(0);
        let made = in_parallel(&team, 5, |i| {
            // The first part ends last: the other thread makes all others meanwhile.
            while i == 0 && ended.load(Ordering::Acquire) < 4 {
                std::thread::yield_now();
            }
            ended.fetch_add(1, Ordering::Release);
            Ok(10 * i)
        });
        assert_eq!(made.unwrap(), [0, 10, 20, 30, 40]);
    }

    #[test]
    fn no_part_is_begun_after_an_error() {
        let team = Team::new(1).unwrap();
        let begun = AtomicUsize::new(0);
        let made = in_parallel(&team, 5, |i| {
            begun.fetch_add(1, Ordering::Relaxed);
            if i == 2 { Err(ModelError::Cancelled) } else { Ok(i) }
        });
        assert!(matches!(made, Err(ModelError::Cancelled)), "{made:?}");
        assert_eq!(begun.into_inner(), 3);
    }
}
