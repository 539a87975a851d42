//! Adapters that PEFT saved, read and compared with what PEFT computes from them.

use std::path::{Path, PathBuf};

use redline_models::adapter::{self, AdapterWeights, ModuleDelta, ModulePlace};
use redline_models::arch;
use redline_models::plan::Site;
use redline_models::spec::{DecoderSpec, HEAD, LayerSpec, LinearSpec, Orientation};
use redline_weights::{AdapterFiles, Checkpoint, ConfigFile, DirWriter, Dtype, TensorDeclaration};
use serde_json::Value;

use crate::reference::{golden_root, masked_goldens};

/// An adapter of `tests/golden/adapters`, its base, and what the manifest says about it.
struct Golden {
    name: String,
    dir: PathBuf,
    spec: DecoderSpec,
    base: Checkpoint,
    facts: Value,
    reference: Checkpoint,
}

fn goldens() -> Vec<Golden> {
    let root = golden_root().join("adapters");
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(root.join("manifest.json")).unwrap()).unwrap();
    let goldens: Vec<Golden> = manifest
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, facts)| {
            let base = golden_root().join(facts["base"].as_str().unwrap());
            let dir = root.join(name);
            Golden {
                name: name.clone(),
                spec: spec(&base),
                base: Checkpoint::open(&base).unwrap(),
                reference: Checkpoint::open_file(&dir.join("reference.safetensors")).unwrap(),
                facts: facts.clone(),
                dir,
            }
        })
        .collect();
    let folders = std::fs::read_dir(&root).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(goldens.len(), folders.count(), "every folder is in the manifest");
    goldens
}

fn golden(name: &str) -> Golden {
    goldens().into_iter().find(|golden| golden.name == name).unwrap()
}

fn spec(base: &Path) -> DecoderSpec {
    let config = ConfigFile::open(&base.join("config.json")).unwrap();
    (arch::find(&config).unwrap().spec)(&config).unwrap()
}

impl Golden {
    fn files(&self) -> AdapterFiles {
        AdapterFiles::open(&self.dir).unwrap()
    }

    fn read(&self) -> AdapterWeights {
        adapter::read(&self.spec, &self.files(), 8).unwrap()
    }

    /// Module paths with what the manifest has under `key`, and the module that was read for each.
    fn modules<'a>(&'a self, adapter: &'a AdapterWeights, key: &str) -> Vec<(&'a str, f64, &'a ModuleDelta)> {
        let facts = self.facts[key].as_object().unwrap();
        let of = |(path, value): (&'a String, &Value)| {
            let place = place(path);
            let module = adapter.modules.iter().find(|module| module.place == place);
            (
                path.as_str(),
                value.as_f64().unwrap(),
                module.unwrap_or_else(|| panic!("{}: {path}", self.name)),
            )
        };
        assert_eq!(adapter.modules.len(), facts.len(), "{}", self.name);
        facts.iter().map(of).collect()
    }

    fn tensor(&self, name: &str) -> Vec<f32> {
        let mut values = vec![0.0; self.reference.info(name).unwrap_or_else(|| panic!("{name}")).elements()];
        self.reference.read_f32(name, &mut values).unwrap();
        values
    }

    /// The base weight of a module, `[outputs, inputs]`, or `[vocab, hidden]` for the embedding.
    fn weight(&self, place: ModulePlace) -> Vec<f32> {
        let (name, transposed) = match place {
            ModulePlace::Embedding => (self.spec.embedding.clone(), None),
            ModulePlace::Head if self.spec.tied => (self.spec.embedding.clone(), None),
            ModulePlace::Head => ("lm_head".to_owned(), None),
            ModulePlace::Part { layer, site, part } => {
                let layer = &self.spec.layers[layer];
                let linear = layer.linear(site).unwrap();
                let stored = (linear.orientation == Orientation::InOut).then_some(linear.inputs);
                (linear.parts[part].name.clone(), stored)
            }
        };
        let names = self.spec.names(|name| self.base.info(name).is_some());
        let name = names.full(&format!("{name}.weight"));
        let mut values = vec![0.0; self.base.info(&name).unwrap().elements()];
        self.base.read_f32(&name, &mut values).unwrap();
        transposed.map_or(values.clone(), |inputs| transpose(&values, inputs))
    }
}

/// `[rows, columns]` to `[columns, rows]`.
fn transpose(values: &[f32], rows: usize) -> Vec<f32> {
    let columns = values.len() / rows;
    (0..values.len()).map(|at| values[at % rows * columns + at / rows]).collect()
}

/// The place of a module by the last parts of its path, independent of the specification.
fn place(path: &str) -> ModulePlace {
    let parts: Vec<&str> = path.split('.').collect();
    let name = parts[parts.len() - 1];
    if matches!(name, "embed_tokens" | "wte") {
        return ModulePlace::Embedding;
    }
    if name == "lm_head" {
        return ModulePlace::Head;
    }
    let (site, part) = match (parts[parts.len() - 2], name) {
        ("self_attn", "q_proj") | ("attn", "c_attn") => (Site::Qkv, 0),
        ("self_attn", "k_proj") => (Site::Qkv, 1),
        ("self_attn", "v_proj") => (Site::Qkv, 2),
        ("self_attn", "o_proj") | ("attn", "c_proj") => (Site::Output, 0),
        ("mlp", "gate_proj" | "c_fc") => (Site::Up, 0),
        ("mlp", "up_proj") => (Site::Up, 1),
        ("mlp", "down_proj" | "c_proj") => (Site::Down, 0),
        _ => panic!("{path}"),
    };
    let layer = parts.iter().find_map(|part| part.parse().ok()).unwrap();
    ModulePlace::Part { layer, site, part }
}

/// Row `row` of `scaling * B A`, `[outputs, inputs]`; of the embedding row `row` of `[vocab, hidden]`.
fn delta_row(module: &ModuleDelta, row: usize) -> Vec<f32> {
    let rank = module.rank;
    let (left, right) = match module.place {
        ModulePlace::Embedding => (&module.a, transpose(&module.b, module.b.len() / rank)),
        _ => (&module.b, module.a.clone()),
    };
    let columns = right.len() / rank;
    let product = |column: usize| -> f64 {
        (0..rank).map(|r| f64::from(left[row * rank + r]) * f64::from(right[r * columns + column])).sum()
    };
    (0..columns).map(|column| (f64::from(module.scaling) * product(column)) as f32).collect()
}

/// Number of rows of the changed weight: outputs, or the vocabulary for the embedding.
fn rows(module: &ModuleDelta) -> usize {
    let left = if module.place == ModulePlace::Embedding { &module.a } else { &module.b };
    left.len() / module.rank
}

fn assert_close(got: &[f32], want: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance * largest, "{what}: {got} instead of {want} at {at}");
    }
}

#[test]
fn ranks_and_factors_are_those_of_peft() {
    for golden in goldens() {
        let adapter = golden.read();
        for (path, rank, module) in golden.modules(&adapter, "rank") {
            assert_eq!(module.rank as f64, rank, "{}: {path}", golden.name);
        }
        for (path, scaling, module) in golden.modules(&adapter, "scaling") {
            assert_eq!(module.scaling, scaling as f32, "{}: {path}", golden.name);
        }
        assert!(adapter.modules.is_sorted_by_key(|module| module.place), "{}", golden.name);
    }
}

#[test]
fn every_module_changes_its_weight_as_in_peft() {
    for golden in goldens() {
        let adapter = golden.read();
        for (path, _, module) in golden.modules(&adapter, "rank") {
            let want = golden.tensor(&format!("delta.{path}"));
            let got = [delta_row(module, 0), delta_row(module, rows(module) - 1)].concat();
            assert_close(&got, &want, 1e-6, &format!("{}: {path}", golden.name));
        }
    }
}

/// Magnitudes, lengths and orientation: the weight that PEFT merges follows from the base weight and what was read.
#[test]
fn magnitudes_scale_the_rows_that_peft_scales() {
    let mut seen = 0;
    for golden in goldens() {
        let adapter = golden.read();
        for (path, _, module) in golden.modules(&adapter, "rank") {
            let Some(magnitude) = &module.magnitude else {
                assert!(golden.reference.info(&format!("norm.{path}")).is_none(), "{}: {path}", golden.name);
                continue;
            };
            let (what, base) = (format!("{}: {path}", golden.name), golden.weight(module.place));
            let width = base.len() / rows(module);
            let adapted: Vec<f32> = (0..rows(module))
                .flat_map(|row| delta_row(module, row))
                .zip(&base)
                .map(|(delta, base)| base + delta)
                .collect();
            let of_columns = module.place == ModulePlace::Embedding;
            let vectors = if of_columns { transpose(&adapted, rows(module)) } else { adapted.clone() };
            let length =
                |vector: &[f32]| vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt() as f32;
            let norms: Vec<f32> = vectors.chunks_exact(vectors.len() / magnitude.len()).map(length).collect();
            assert_close(&norms, &golden.tensor(&format!("norm.{path}")), 1e-6, &what);
            let merged = |row: usize| {
                let of = |column: usize| if of_columns { column } else { row };
                let scale = |column| magnitude[of(column)] / norms[of(column)];
                (0..width).map(|column| scale(column) * adapted[row * width + column]).collect::<Vec<f32>>()
            };
            let got = [merged(0), merged(rows(module) - 1)].concat();
            assert_close(&got, &golden.tensor(&format!("merged.{path}")), 2e-6, &what);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} modules with magnitudes");
}

#[test]
fn copies_of_the_base_are_compared_with_the_base() {
    for golden in goldens() {
        adapter::check_base(&golden.spec, &golden.files(), 8, &golden.base).unwrap();
    }
    let golden = golden("qwen2-tied");
    let name = "model.embed_tokens.weight";
    let folder = tempfile::tempdir().unwrap();
    let changed = folder.path().join("base.safetensors");
    let mut bytes = std::fs::read(golden.base.file_of(name).unwrap()).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    // The last of 257 x 60 values.
    let at = header + json[name]["data_offsets"][1].as_u64().unwrap() as usize - 4;
    bytes[at..at + 4].copy_from_slice(&2.5f32.to_le_bytes());
    std::fs::write(&changed, bytes).unwrap();
    let base = Checkpoint::open_file(&changed).unwrap();
    let refused = adapter::check_base(&golden.spec, &golden.files(), 8, &base).unwrap_err().to_string();
    let fact = "tensor `base_model.model.model.embed_tokens.base_layer.weight` is ";
    assert!(refused.starts_with(fact), "{refused}");
    assert!(refused.contains(" at element 15419, but the base model has 2.5 there\n"), "{refused}");
}

/// Writes an adapter of rank 1 for these modules, `(path, kind, inputs, outputs)`; A of module k holds k.
fn write(dir: &Path, modules: &[(String, bool, usize, usize)]) {
    let (mut tensors, mut values) = (Vec::new(), Vec::new());
    for (index, (path, embedding, inputs, outputs)) in modules.iter().enumerate() {
        let ends = if *embedding {
            ["lora_embedding_A", "lora_embedding_B"]
        } else {
            ["lora_A.weight", "lora_B.weight"]
        };
        for (end, shape, value) in [(ends[0], [1, *inputs], index as f32), (ends[1], [*outputs, 1], 1.0)] {
            let name = format!("base_model.model.{path}.{end}");
            values.push(vec![value; shape[0] * shape[1]]);
            tensors.push(TensorDeclaration::new(name, Dtype::F32, shape));
        }
    }
    // Every module that has one of these names is targeted, so that no module of the model may be left out.
    let last = |path: &'_ str| path.rsplit('.').next().unwrap().to_owned();
    let names: Vec<String> = modules.iter().map(|(path, ..)| last(path)).collect();
    let config = serde_json::json!({"peft_type": "LORA", "r": 1, "target_modules": names});
    let mut writer = DirWriter::create(dir).unwrap();
    writer.write("adapter_config.json", config.to_string().as_bytes()).unwrap();
    let written = writer.safetensors("adapter_model.safetensors", &tensors, |out| {
        values.iter().try_for_each(|values| out.write_f32(values))
    });
    written.unwrap();
    writer.finish().unwrap();
}

/// The matrices of a checkpoint by PEFT's paths, in the order of the forward pass.
fn matrices(spec: &DecoderSpec, prefixed: bool) -> Vec<(String, bool, usize, usize)> {
    let of_layers = spec.layers.iter().flat_map(LayerSpec::adaptable);
    let mut linears = vec![spec.token_table()];
    linears.extend(of_layers.map(|(_, linear)| linear.clone()));
    linears.extend(spec.head_linear());
    // A tied head is a module in transformers, but not in LLaDA's code.
    if spec.tied && spec.head == HEAD && prefixed {
        linears.push(LinearSpec::plain("lm_head".into(), spec.hidden, spec.vocab));
    } else if !spec.tied && !prefixed {
        linears.pop();
    }
    let prefix = if prefixed { spec.prefix } else { "" };
    let mut modules = vec![(format!("{prefix}{}", spec.embedding), true, spec.vocab, spec.hidden)];
    for linear in &linears[1..] {
        modules.extend(linear.parts.iter().map(|part| {
            let path =
                if part.name == "lm_head" { part.name.clone() } else { format!("{prefix}{}", part.name) };
            (path, false, linear.inputs, part.outputs)
        }));
    }
    modules
}

/// A random adapter has matrices for every linear layer of the layers, of every family.
#[test]
fn random_adapters_of_every_family_are_read() {
    for dir in crate::reference::goldens().into_iter().chain(masked_goldens()) {
        let spec = spec(&dir);
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("adapter");
        adapter::synth(&spec, 3, 7, &to).unwrap();
        let adapter = adapter::read(&spec, &AdapterFiles::open(&to).unwrap(), 3).unwrap();
        let of_layers = spec.layers.iter().flat_map(LayerSpec::adaptable);
        let parts: usize = of_layers.map(|(_, linear)| linear.parts.len()).sum();
        assert_eq!(adapter.modules.len(), parts, "{}", dir.display());
        for module in &adapter.modules {
            assert!(
                matches!(module.place, ModulePlace::Part { .. }) && module.rank == 3,
                "{:?}",
                module.place
            );
            assert!(module.b.iter().any(|b| *b != 0.0) && module.scaling == 32.0, "{:?}", module.place);
        }
    }
}

/// transformers 5 calls the decoder of Nemotron-H `model`, and its checkpoints `backbone`.
#[test]
fn paths_of_transformers_5_are_those_of_the_family() {
    let spec = spec(&golden_root().join("nemotron-h-a"));
    let modules = matrices(&spec, true);
    let mut renamed = modules.clone();
    for module in &mut renamed {
        module.0 = module.0.replace("backbone.", "model.");
    }
    assert!(renamed != modules);
    let places = [modules, renamed].map(|modules| {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("adapter");
        write(&to, &modules);
        let read = adapter::read(&spec, &AdapterFiles::open(&to).unwrap(), 1).unwrap();
        read.modules.iter().map(|module| module.place).collect::<Vec<_>>()
    });
    assert_eq!(places[0], places[1]);
    assert!(places[0].len() > 8);
}

/// llama.cpp multiplies the weights of Falcon-H1 by factors that an adapter of the checkpoint would need.
#[test]
fn a_gguf_file_of_falcon_h1_takes_no_adapters() {
    let of_checkpoint = spec(&golden_root().join("falcon-h1-b"));
    let gguf = redline_weights::Gguf::open(&golden_root().join("gguf/falcon-h1-b.gguf")).unwrap();
    let (_, of_gguf) =
        redline_models::arch::specification(&redline_models::gguf_config::config(&gguf).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("adapter");
    write(&to, &matrices(&of_checkpoint, true));
    let files = AdapterFiles::open(&to).unwrap();
    assert!(adapter::read(&of_checkpoint, &files, 1).is_ok());
    let refused = adapter::read(&of_gguf, &files, 1).unwrap_err();
    assert!(
        refused.to_string().starts_with("the weights of this model were multiplied by its factors"),
        "{refused}"
    );
    assert!(refused.hint().is_some());
}

/// Queries and keys of relative position embeddings were computed without the adapter; values and other layers can be adapted.
#[test]
fn an_adapter_changes_no_projection_that_was_used_at_load() {
    let spec = spec(&golden_root().join("encoders/deberta-a"));
    let mut modules = matrices(&spec, true);
    modules.pop_if(|module| module.0 == "lm_head");
    let read = |left_out: &[&str]| {
        let kept = modules.iter().filter(|module| !left_out.iter().any(|name| module.0.ends_with(name)));
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("adapter");
        write(&to, &kept.cloned().collect::<Vec<_>>());
        adapter::read(&spec, &AdapterFiles::open(&to).unwrap(), 1)
    };
    for (left_out, refused) in
        [(vec![], "query_proj"), (vec!["query_proj"], "key_proj"), (vec!["key_proj"], "query_proj")]
    {
        let error = read(&left_out).unwrap_err();
        let fact = format!("module `deberta.encoder.layer.0.attention.self.{refused}` projects the relative");
        assert!(error.to_string().starts_with(&fact), "{error}");
        assert!(error.to_string().contains("adapter_model.safetensors") && error.hint().is_some(), "{error}");
    }
    assert_eq!(read(&["query_proj", "key_proj"]).unwrap().modules.len(), modules.len() - 4);
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("adapter");
    adapter::synth(&spec, 2, 7, &to).unwrap();
    let random = adapter::read(&spec, &AdapterFiles::open(&to).unwrap(), 2).unwrap();
    assert_eq!(random.modules.len(), 2 * 4);
}

/// Every matrix of every family has a place, with the family's prefix and without.
#[test]
fn every_family_can_be_adapted_completely() {
    for dir in crate::reference::goldens().into_iter().chain(masked_goldens()) {
        let spec = spec(&dir);
        for prefixed in [true, false] {
            let modules = matrices(&spec, prefixed);
            let folder = tempfile::tempdir().unwrap();
            let to = folder.path().join("adapter");
            write(&to, &modules);
            let adapter = adapter::read(&spec, &AdapterFiles::open(&to).unwrap(), 1).unwrap();
            let what = format!("{}, prefix {prefixed}", dir.display());
            assert_eq!(adapter.modules.len(), modules.len(), "{what}");
            assert!(adapter.modules.is_sorted_by(|a, b| a.place < b.place), "{what}");
            for (index, (module, (path, ..))) in adapter.modules.iter().zip(&modules).enumerate() {
                assert_eq!(module.a[0], index as f32, "{what}: {path} is at {:?}", module.place);
                if let ModulePlace::Part { layer, site, .. } = module.place {
                    assert!(Site::OF_LAYER.contains(&site), "{what}: {path} would be dropped");
                    assert!(
                        path.contains(&format!(".{layer}.")) || path.contains(&format!("h.{layer}.")),
                        "{what}: {path}"
                    );
                }
            }
            assert_eq!(adapter.modules[0].place, ModulePlace::Embedding, "{what}");
            let head = prefixed && (!spec.tied || spec.head == HEAD);
            assert_eq!(adapter.modules.last().unwrap().place == ModulePlace::Head, head, "{what}");
        }
    }
}

#[test]
fn an_adapter_of_another_base_is_refused_with_both_shapes() {
    let adapter = golden("llama-plain");
    let on = |base: &str| {
        let read = adapter::read(&spec(&golden_root().join(base)), &adapter.files(), 8);
        read.unwrap_err().to_string()
    };
    let place = format!("\n  in `{}`", adapter.dir.join("adapter_model.safetensors").display());
    assert_eq!(
        on("llama-b"),
        format!(
            "tensor `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight` is 4 x 72, but this model needs \
             4 x 100{place}"
        )
    );
    assert_eq!(
        on("gpt2-a"),
        format!(
            "tensor `base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight` belongs to module \
             `model.layers.0.self_attn.q_proj`, which this model does not have{place}"
        )
    );
}

#[test]
fn the_digest_is_that_of_the_values() {
    let digests: std::collections::BTreeSet<_> =
        goldens().iter().map(|golden| golden.read().digest).collect();
    assert_eq!(digests.len(), goldens().len());
    assert_eq!(golden("llama-plain").read(), golden("llama-plain").read());
}

#[test]
fn a_rank_above_the_limit_is_refused() {
    let adapter = golden("qwen2-rslora");
    let limited = |most| adapter::read(&adapter.spec, &adapter.files(), most);
    assert!(limited(8).is_ok());
    let refused = limited(7).unwrap_err().to_string();
    let fact = "module `model.layers.0.self_attn.o_proj` has rank 8, but at most 7 is allowed\n";
    assert!(refused.starts_with(fact), "{refused}");
}
