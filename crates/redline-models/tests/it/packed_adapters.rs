//! Adapters in INFQ directories, right ones and hostile ones: files with correct checksums that no conversion wrote.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use redline_kernels::Format;
use redline_models::adapter::{AdapterBuilder, PackedFiles, read};
use redline_models::{LoadOptions, Model, Weights, arch, load};
use redline_weights::{AdapterFiles, Checkpoint, Checksum, ConfigFile, Infq, InfqWriter, Weight, WeightPart};

use crate::reference::{golden_root, on_team};

const MAX_RANK: usize = 16;

fn model(base: &str, format: Format, outliers: f64) -> Model {
    let dir = golden_root().join(base);
    let config = ConfigFile::open(&dir.join("config.json")).unwrap();
    let checkpoint = Checkpoint::open(&dir).unwrap();
    let options = LoadOptions { format: Some(format), outliers, mmap: false };
    on_team(|exec| load(exec, &config, Weights::Checkpoint(&checkpoint), options)).unwrap()
}

fn adapter(name: &str) -> PathBuf {
    golden_root().join("adapters").join(name)
}

fn convert(model: &Model, name: &str, to: &Path) {
    let builder = AdapterBuilder::new(model);
    on_team(|exec| builder.convert(exec, &adapter(name), to, MAX_RANK, &mut |_| Ok(()))).unwrap();
}

#[test]
fn a_converted_adapter_is_the_same_adapter() {
    let folder = tempfile::tempdir().unwrap();
    for (at, (name, base)) in
        [("llama-patterns", "llama-b"), ("llama-dora-embedding", "llama-a"), ("gpt2-dora", "gpt2-b")]
            .into_iter()
            .enumerate()
    {
        let model = model(base, Format::W8 { group: 128 }, 0.05);
        let to = folder.path().join(at.to_string());
        convert(&model, name, &to);
        let config = ConfigFile::open(&golden_root().join(base).join("config.json")).unwrap();
        let spec = (arch::find(&config).unwrap().spec)(&config).unwrap();
        let files = AdapterFiles::open(&adapter(name)).unwrap();
        let weights = read(&spec, &files, MAX_RANK).unwrap();
        let (digest, packed) = AdapterBuilder::new(&model).load(&Infq::open(&to).unwrap(), MAX_RANK).unwrap();
        let built = on_team(|exec| AdapterBuilder::new(&model).build(exec, &weights)).unwrap();
        assert_eq!(digest, weights.digest, "{name}");
        assert_eq!((packed.bytes(), packed.has_gains()), (built.bytes(), built.has_gains()), "{name}");
        assert_eq!(format!("{packed:?}"), format!("{built:?}"), "{name}");
        assert_eq!(PackedFiles::open(&to).unwrap().infq().source(), files.digest().unwrap());
    }
}

/// The weights of a converted adapter with their bytes.
struct Contents {
    weights: Vec<(Weight, Vec<Vec<u8>>)>,
    source: Checksum,
    infq: Infq,
}

impl Contents {
    fn read(dir: &Path) -> Self {
        let infq = Infq::open(dir).unwrap();
        let weights = infq.names().map(|name| {
            let weight = infq.weight(name).unwrap().clone();
            let part = |part: &WeightPart| {
                let bytes = infq.part_bytes(name, &part.suffix).unwrap();
                let mut bytes = vec![0; usize::try_from(bytes).unwrap()];
                infq.read_part(name, &part.suffix, &mut bytes).unwrap();
                bytes
            };
            let parts = weight.parts.iter().map(part).collect();
            (weight, parts)
        });
        Self { weights: weights.collect(), source: infq.source(), infq }
    }

    fn write(&self, to: &Path) {
        let weights = self.weights.iter().map(|(weight, _)| weight.clone()).collect();
        let mut out = InfqWriter::create(to, self.infq.scheme().clone(), weights).unwrap();
        out.copy_file(&self.infq.dir().join("adapter_config.json")).unwrap();
        for (weight, parts) in &self.weights {
            for (part, bytes) in weight.parts.iter().zip(parts) {
                out.write_part(&weight.name, &part.suffix, bytes).unwrap();
            }
        }
        out.finish(self.source).unwrap();
    }

    fn at(&mut self, name: &str) -> &mut (Weight, Vec<Vec<u8>>) {
        let at = self.weights.iter().position(|(weight, _)| weight.name == name);
        &mut self.weights[at.unwrap_or_else(|| panic!("no `{name}`"))]
    }
}

#[test]
fn hostile_directories_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let base = model("llama-a", Format::W8 { group: 128 }, 0.1);
    let whole = folder.path().join("whole");
    convert(&base, "llama-dora", &whole);
    let q = "model.layers.0.self_attn.q_proj";
    let [a, b, gains] = ["A", "B", "gains"].map(|part| format!("{q}.lora_{part}"));
    type Change<'a> = Box<dyn Fn(&mut Contents) + 'a>;
    let changes: Vec<(&str, Change<'_>)> = vec![
        (
            "belongs to no module",
            Box::new(|c| c.at(&a).0.name = "model.layers.9.self_attn.q_proj.lora_A".into()),
        ),
        ("belongs to no module", Box::new(|c| c.at(&b).0.name = "other".into())),
        (
            "`model.layers.0.self_attn.q_proj.lora_B` is missing",
            Box::new(|c| c.weights.retain(|w| w.0.name != b)),
        ),
        ("`base_checksum` is missing", Box::new(|c| c.weights.retain(|w| w.0.name != "base_checksum"))),
        ("`adapter_checksum` is missing", Box::new(|c| c.weights.retain(|w| w.0.name != "adapter_checksum"))),
        ("`base_checksum` is no checksum", Box::new(|c| c.at("base_checksum").1[0][3] = b'X')),
        ("`adapter_checksum` is no checksum", Box::new(|c| c.at("adapter_checksum").1[0].fill(0xff))),
        ("converted for other weights", Box::new(|c| c.at("base_checksum").1[0].rotate_left(1))),
        (
            "converted for other weights",
            Box::new(|c| {
                c.at(&a).0.outlier_columns[0] += 1;
            }),
        ),
        ("has rank 1000000000000, but at most 16", Box::new(|c| c.at(&a).0.shape[0] = 1_000_000_000_000)),
        ("but this model needs w8", Box::new(|c| c.at(&a).0.shape[0] = 5)),
        ("lora_A` is [0, ", Box::new(|c| c.at(&a).0.shape[0] = 0)),
        (
            "lora_A` is [72]",
            Box::new(|c| {
                let shape = &mut c.at(&a).0;
                shape.shape = vec![72];
                shape.outlier_columns.clear();
            }),
        ),
        ("but this model needs w8", Box::new(|c| c.at(&b).0.shape.reverse())),
        ("but this model needs w8", Box::new(|c| c.at(&b).0.encoding = "w4".into())),
        ("but this model needs w8", Box::new(|c| c.at(&a).0.attributes = BTreeMap::new())),
        ("but this model needs f32", Box::new(|c| c.at(&gains).0.shape[0] += 1)),
        (
            "but this model needs w8",
            Box::new(|c| {
                // Fewer bytes than the shape needs.
                let (weight, parts) = c.at(&b);
                weight.parts[0].shape = vec![1, 1];
                parts[0].truncate(1);
            }),
        ),
    ];
    for (at, (message, change)) in changes.into_iter().enumerate() {
        let mut contents = Contents::read(&whole);
        change(&mut contents);
        let dir = folder.path().join(at.to_string());
        contents.write(&dir);
        let refused = AdapterBuilder::new(&base).load(&Infq::open(&dir).unwrap(), MAX_RANK).map(|_| ());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(message), "{at}: {refused} instead of {message}");
        assert!(refused.contains(&dir.display().to_string()), "{at}: {refused}");
        // What an inspection says of it does not matter, but it must not panic.
        let _ = PackedFiles::open(&dir).map(|files| files.contents().map(|modules| modules.len()));
    }
    let mut scheme = Contents::read(&whole);
    scheme.weights.retain(|(weight, _)| weight.name.ends_with("checksum"));
    let dir = folder.path().join("empty");
    scheme.write(&dir);
    let refused =
        AdapterBuilder::new(&base).load(&Infq::open(&dir).unwrap(), MAX_RANK).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("converted for other weights"), "{refused}");
    let narrow = AdapterBuilder::new(&base).load(&Infq::open(&whole).unwrap(), 1).map(|_| ()).unwrap_err();
    assert!(narrow.to_string().contains("at most 1 is allowed"), "{narrow}");
}
