//! Adapters of models that fill masks.

use std::path::{Path, PathBuf};

use redline_engine::{
    AdapterChoice, AdapterOptions, BlockCache, Cancel, DiffuseOutcome, DiffuseRequest, Engine, Label,
    Options, ScoreRequest,
};
use redline_kernels::Format;
use redline_models::arch;
use redline_models::random::{STEP, mix};
use redline_weights::{ConfigFile, DirWriter, Dtype, TensorDeclaration};

use crate::models::{ids, options};

const RANK: usize = 3;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

/// Writes an adapter of all linear layers of a model. A has random values below 0.5, B random ones below `most`.
fn write(model: &Path, dir: &Path, seed: u64, most: f32) {
    let config = ConfigFile::open(&model.join("config.json")).unwrap();
    let spec = (arch::find(&config).unwrap().spec)(&config).unwrap();
    let mut state = seed;
    let mut random = |most: f32| {
        state = state.wrapping_add(STEP);
        ((mix(state) >> 40) as f32 / 8_388_608.0 - 1.0) * most
    };
    let (mut tensors, mut values, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (_, linear) in spec.layers.iter().flat_map(redline_models::spec::LayerSpec::linears) {
        for part in &linear.parts {
            let module = spec.prefixed(&part.name);
            let path = format!("base_model.model.{module}");
            for (end, shape, most) in
                [("lora_A", [RANK, linear.inputs], 0.5), ("lora_B", [part.outputs, RANK], most)]
            {
                values.push((0..shape[0] * shape[1]).map(|_| random(most)).collect::<Vec<f32>>());
                tensors.push(TensorDeclaration::new(format!("{path}.{end}.weight"), Dtype::F32, shape));
            }
            names.push(module);
        }
    }
    let config = serde_json::json!({
        "peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "target_modules": names,
    });
    let mut writer = DirWriter::create(dir).unwrap();
    writer.write("adapter_config.json", config.to_string().as_bytes()).unwrap();
    let written = writer.safetensors("adapter_model.safetensors", &tensors, |out| {
        values.iter().try_for_each(|values| out.write_f32(values))
    });
    written.unwrap();
    writer.finish().unwrap();
}

/// An engine with the adapters `zero` (B is zero), `a` and `b`.
fn engine(model: &str, format: Format, folder: &Path) -> Engine {
    let model = golden(model);
    let adapters = Some(AdapterOptions::default());
    let engine = Engine::load(Options { adapters, format: Some(format), ..options(&model) }).unwrap();
    for (name, seed, most) in [("zero", 1, 0.0), ("a", 2, 0.5), ("b", 3, 0.5)] {
        let dir = folder.join(name);
        if !dir.exists() {
            write(&model, &dir, seed, most);
        }
        engine.load_adapter(name, &dir, None).unwrap();
    }
    engine
}

fn named(name: &str) -> Vec<AdapterChoice> {
    if name == "base" { Vec::new() } else { vec![AdapterChoice { name: name.to_owned(), scale: 1.0 }] }
}

fn request(name: &str, cache: BlockCache, cfg_scale: f32) -> DiffuseRequest {
    let prompt = ids(&(0..20).map(|i| (3 + 7 * i) % 100).collect::<Vec<i64>>());
    DiffuseRequest {
        adapters: named(name),
        cache,
        cfg_scale,
        block_length: Some(6),
        ignore_eos: true,
        ..DiffuseRequest::new(prompt, 12)
    }
}

/// Every token and every confidence.
fn filled(outcome: &DiffuseOutcome) -> String {
    let passes: Vec<_> = outcome.passes.iter().map(|pass| &pass.filled).collect();
    format!("{:?} {passes:?}", outcome.canvas)
}

fn alone(engine: &Engine, request: DiffuseRequest) -> String {
    filled(&engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap())
}

const NAMES: [&str; 4] = ["base", "zero", "a", "b"];

#[test]
fn canvases_with_different_adapters_are_filled_together_as_alone() {
    for (model, format) in [
        ("llada-a", Format::Bf16),
        ("llada-b", Format::W8 { group: 128 }),
        ("dream-a", Format::F32),
        ("dream-b", Format::W4 { group: 64 }),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(model, format, folder.path());
        let kinds: Vec<(BlockCache, f32)> =
            BlockCache::ALL.iter().map(|cache| (*cache, 0.0)).chain([(BlockCache::None, 1.5)]).collect();
        for (cache, cfg_scale) in kinds {
            let of = |name: &str| request(name, cache, cfg_scale);
            let want = NAMES.map(|name| alone(&engine, of(name)));
            let what = format!("{model} {cache:?} {cfg_scale}");
            assert_eq!(want[1], want[0], "{what}: an adapter whose B is zero changes nothing");
            assert!(want[2] != want[0] && want[3] != want[0] && want[2] != want[3], "{what}");
            let cancel = Cancel::new();
            let tickets: Vec<_> = [3, 2, 0, 2, 1, 3]
                .map(|i| (i, engine.submit_diffuse(of(NAMES[i]), &cancel).unwrap()))
                .into_iter()
                .collect();
            for (i, ticket) in tickets {
                assert_eq!(filled(&ticket.wait().unwrap()), want[i], "{what}: {} beside others", NAMES[i]);
            }
        }
    }
}

#[test]
fn scores_of_a_model_that_fills_masks_take_adapters() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine("llada-a", Format::Bf16, folder.path());
    let asked = |name: &str| {
        let items = vec![ids(&[5, 6]), ids(&[9])];
        let labels = vec![Label::Ids(vec![1, 2]), Label::Ids(vec![2]), Label::Ids(vec![40])];
        let plain = ScoreRequest::new(ids(&[3, 10, 17, 24]), items, labels);
        let long_labels = redline_engine::LongLabels::Sum;
        ScoreRequest { adapters: named(name), long_labels, ..plain }
    };
    let bits = |outcome: redline_engine::ScoreOutcome| -> Vec<u32> {
        let items = outcome.items.into_iter().map(Result::unwrap);
        items.flat_map(|item| item.logprobs).map(f32::to_bits).collect()
    };
    let want = NAMES.map(|name| bits(engine.score(asked(name)).unwrap()));
    assert_eq!(want[1], want[0]);
    assert!(want[2] != want[0] && want[3] != want[0] && want[2] != want[3]);
    let cancel = Cancel::new();
    let tickets = [2, 0, 3, 1].map(|i| (i, engine.submit_score(asked(NAMES[i]), &cancel).unwrap()));
    for (i, ticket) in tickets {
        assert_eq!(bits(ticket.wait().unwrap()), want[i], "{} beside others", NAMES[i]);
    }
}
