//! An adapter directory in the terms of a model: plain matrices, each with its place in the specification.

use redline_weights::{AdapterFiles, BaseModule, Checkpoint, Checksum, ModuleKind};

use crate::ModelError;
use crate::plan::Site;
use crate::spec::{DecoderSpec, HEAD, LinearSpec};

/// The part of a model that an adapter changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModulePlace {
    /// The token embedding, as a table. If the head is tied to it, the head is not changed.
    Embedding,
    /// One projection of a layer.
    Part {
        /// Index of the layer.
        layer: usize,
        /// The linear layer in it.
        site: Site,
        /// Index of the projection in [`LinearSpec::parts`].
        part: usize,
    },
    /// The head. If it is tied to the token embedding, the embedding is not changed.
    Head,
}

/// What an adapter adds to one weight: `scaling * B A`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleDelta {
    /// The weight.
    pub place: ModulePlace,
    /// Rows of A and columns of B, at least 1.
    pub rank: usize,
    /// A: `[rank, inputs]`. For [`ModulePlace::Embedding`] its transpose, `[vocab, rank]`: one row for each token.
    pub a: Vec<f32>,
    /// B: `[outputs, rank]`; `[hidden, rank]` for [`ModulePlace::Embedding`].
    pub b: Vec<f32>,
    /// The factor, finite: alpha / rank, or alpha / sqrt(rank) (rsLoRA).
    pub scaling: f32,
    /// `[outputs]`, of DoRA: output i of the adapted layer, without its bias, is scaled by `magnitude[i]` over the length of row
    /// i of `W + scaling * B A`, `[outputs, inputs]`. For [`ModulePlace::Embedding`], `[hidden]`: the rows are those of the transposed
    /// table, `[hidden, vocab]`.
    pub magnitude: Option<Vec<f32>>,
}

/// An adapter that fits a model.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterWeights {
    /// The changed weights, each at most once, in the order of their places.
    pub modules: Vec<ModuleDelta>,
    /// A hash over places, ranks, factors and values: equal for adapters that change a model equally.
    pub digest: Checksum,
}

/// Reads an adapter for the model of this specification.
///
/// # Errors
/// The adapter does not fit the model, a module has a rank above `max_rank`, or a value is not finite.
pub fn read(spec: &DecoderSpec, files: &AdapterFiles, max_rank: usize) -> Result<AdapterWeights, ModelError> {
    if spec.holds_factors {
        return Err(ModelError::AdapterFactors { file: files.file().display().to_string() });
    }
    let modules = base_modules(spec, files);
    let bases: Vec<BaseModule> = modules.iter().map(|(_, base)| base.clone()).collect();
    let adapter = files.read(&bases, max_rank)?;
    let is_used = |place| match place {
        Some(ModulePlace::Part { site, part, .. }) => spec.is_used_at_load(site, part),
        _ => false,
    };
    if let Some(it) = adapter.modules.iter().find(|it| is_used(modules[it.module].0)) {
        let (module, file) = (bases[it.module].path.clone(), files.file().display().to_string());
        return Err(ModelError::AdapterPositions { module, file });
    }
    let delta = |low_rank: redline_weights::LowRank| {
        let place = modules[low_rank.module].0?;
        let a = match place {
            ModulePlace::Embedding => transposed(&low_rank.a, low_rank.rank),
            _ => low_rank.a,
        };
        let (rank, b, scaling, magnitude) = (low_rank.rank, low_rank.b, low_rank.scaling, low_rank.magnitude);
        Some(ModuleDelta { place, rank, a, b, scaling, magnitude })
    };
    Ok(AdapterWeights {
        modules: adapter.modules.into_iter().filter_map(delta).collect(),
        digest: adapter.digest,
    })
}

/// Compares the copies of embedding and head that the adapter may contain with the checkpoint of the base model.
///
/// PEFT stores these copies with an adapter that changes embedding or head, and uses them in place of the base model's weights.
///
/// # Errors
/// A copy differs from the checkpoint by more than a rounding to bf16.
pub fn check_base(
    spec: &DecoderSpec,
    files: &AdapterFiles,
    max_rank: usize,
    checkpoint: &Checkpoint,
) -> Result<(), ModelError> {
    let modules = base_modules(spec, files);
    let bases: Vec<BaseModule> = modules.iter().map(|(_, base)| base.clone()).collect();
    let names = spec.names(|name| checkpoint.info(name).is_some());
    let embedding = names.full(&format!("{}.weight", spec.embedding));
    let head = if spec.tied { embedding.clone() } else { names.full(spec.head) };
    let mut buffer = Vec::new();
    files.check_base(&bases, max_rank, |module, row, out: &mut [f32]| {
        let tensor = if modules[module].0 == Some(ModulePlace::Head) { &head } else { &embedding };
        checkpoint.read_f32_range_with(tensor, row * out.len(), out, &mut buffer)?;
        Ok::<_, ModelError>(())
    })
}

/// The modules of a model by PEFT's paths, in the order of [`ModulePlace`]; without a place if PEFT could adapt one, but Redline
/// cannot.
///
/// The paths have the family's prefix, or `model.` as in transformers 5, if the adapter was trained on the model with its head
/// (`AutoModelForCausalLM`), and none if it was trained on the model without a head (`AutoModel`), which the names in the adapter tell.
pub fn base_modules(spec: &DecoderSpec, files: &AdapterFiles) -> Vec<(Option<ModulePlace>, BaseModule)> {
    modules_of(spec, files.paths())
}

/// The name of a decoder in its model with a head, whatever the family's checkpoints say.
const TRANSFORMERS_5: &str = "model.";

/// As [`base_modules`], for an adapter of modules with these paths.
pub(super) fn modules_of<'a>(
    spec: &DecoderSpec,
    paths: impl Iterator<Item = &'a str>,
) -> Vec<(Option<ModulePlace>, BaseModule)> {
    let head = spec.head.strip_suffix(".weight").unwrap_or(spec.head);
    let mut prefix = None;
    for path in paths {
        if let Some(of_path) = [spec.prefix, TRANSFORMERS_5].into_iter().find(|of| path.starts_with(of)) {
            prefix = Some(of_path);
            break;
        }
        if path == head {
            prefix = Some(spec.prefix);
        }
    }
    let with_head = prefix.is_some();
    let full = |name: &str| prefix.map_or(name.to_owned(), |prefix| spec.with_prefix(prefix, name));
    let table =
        |name: &str, rows, kind| BaseModule { path: full(name), kind, inputs: rows, outputs: spec.hidden };
    let embedding = table(&spec.embedding, spec.vocab, ModuleKind::Embedding);
    let mut all = vec![(Some(ModulePlace::Embedding), embedding)];
    for (layer, layer_spec) in spec.layers.iter().enumerate() {
        for (site, linear) in layer_spec.linears() {
            let adaptable = layer_spec.linear(site).is_some();
            all.extend(parts(linear).enumerate().map(|(part, mut base)| {
                base.path = full(&base.path);
                if !adaptable {
                    return (None, BaseModule { kind: ModuleKind::Fixed, ..base });
                }
                (Some(ModulePlace::Part { layer, site, part }), base)
            }));
        }
    }
    // Transformers has a module for a tied head, too; LLaDA's code does not.
    if with_head && (!spec.tied || spec.head == HEAD) && spec.objective.predicts() {
        let path = spec.names(|_| true).full(spec.head);
        let path = path.strip_suffix(".weight").unwrap_or(&path).to_owned();
        let base = BaseModule { path, kind: ModuleKind::Head, inputs: spec.hidden, outputs: spec.vocab };
        all.push((Some(ModulePlace::Head), base));
    }
    for fixed in [spec.position_table(), spec.type_table()].into_iter().flatten() {
        all.push((None, table(&fixed.parts[0].name, fixed.outputs(), ModuleKind::Fixed)));
    }
    if let Some(inputs) = &spec.layer_inputs {
        for linear in [&inputs.table, &inputs.projection.linear] {
            let path = full(&linear.parts[0].name);
            let base = BaseModule {
                path,
                kind: ModuleKind::Fixed,
                inputs: linear.inputs,
                outputs: linear.outputs(),
            };
            all.push((None, base));
        }
    }
    all
}

/// The projections of a linear layer, by their names in the specification.
fn parts(linear: &LinearSpec) -> impl Iterator<Item = BaseModule> {
    linear.parts.iter().map(|part| BaseModule {
        path: part.name.clone(),
        kind: ModuleKind::Linear,
        inputs: linear.inputs,
        outputs: part.outputs,
    })
}

/// The transpose of `values`, `[rows, columns]`.
pub(super) fn transposed(values: &[f32], rows: usize) -> Vec<f32> {
    let columns = values.len() / rows.max(1);
    (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
}
