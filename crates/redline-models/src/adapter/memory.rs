//! Bytes of an adapter in memory, computed before it is packed.

use redline_kernels::matrix::MatrixShape;
use redline_kernels::op::linear::Lora;

use super::build::STRIP;
use super::source::{AdapterWeights, ModuleDelta, ModulePlace};
use crate::footprint::{Footprint, unquantised_format};
use crate::plan::Site;
use crate::spec::DecoderSpec;
use crate::step::padded;

/// Bytes that the builder of the model's adapters would pack this one into.
pub(super) fn bytes(footprint: &Footprint, spec: &DecoderSpec, adapter: &AdapterWeights) -> u64 {
    let layers = adapter.modules.chunk_by(|a, b| layer(a.place) == layer(b.place));
    layers
        .map(|modules| match layer(modules[0].place) {
            None => modules.iter().map(|module| embedding(footprint, spec, module)).sum(),
            Some((layer, site)) => linear(footprint, spec, (layer, site), modules),
        })
        .sum()
}

/// The linear layer that a module is a part of; `None` for the embedding.
fn layer(place: ModulePlace) -> Option<(Option<usize>, Site)> {
    match place {
        ModulePlace::Embedding => None,
        ModulePlace::Part { layer, site, .. } => Some((Some(layer), site)),
        ModulePlace::Head => Some((None, Site::Head)),
    }
}

fn embedding(footprint: &Footprint, spec: &DecoderSpec, module: &ModuleDelta) -> u64 {
    let format = unquantised_format(footprint.head().format);
    let table = |rows| MatrixShape { format, rows, cols: module.rank, outliers: 0 }.bytes();
    table(spec.vocab) + table(spec.hidden) + gains(module.magnitude.as_ref().map(|_| spec.hidden))
}

fn linear(
    footprint: &Footprint,
    spec: &DecoderSpec,
    (layer, site): (Option<usize>, Site),
    modules: &[ModuleDelta],
) -> u64 {
    let base = layer.and_then(|layer| footprint.linear(layer, site)).unwrap_or(footprint.head());
    let (down, up) = Lora::formats(base.format);
    let rescales = modules.iter().any(|module| module.magnitude.is_some());
    // An update of zeros is not kept.
    if !rescales && modules.iter().all(|module| module.b.iter().all(|b| *b == 0.0)) {
        return 0;
    }
    let matrices = modules.iter().map(|module| {
        let first = match (layer, module.place) {
            (Some(layer), ModulePlace::Part { part, .. }) => {
                let parts = &spec.layers[layer].at(site).parts;
                parts[..part].iter().map(|part| part.outputs).sum::<usize>()
            }
            _ => 0,
        };
        let outputs = first % STRIP + module.b.len() / module.rank;
        let down = MatrixShape { format: down, rows: module.rank, ..base };
        let up = MatrixShape { format: up, rows: outputs, cols: module.rank, outliers: 0 };
        down.bytes() + up.bytes()
    });
    matrices.sum::<u64>() + gains(rescales.then_some(padded(base.rows)))
}

/// Bytes of this many gains (DoRA).
fn gains(len: Option<usize>) -> u64 {
    (len.unwrap_or(0) * size_of::<f32>()) as u64
}
