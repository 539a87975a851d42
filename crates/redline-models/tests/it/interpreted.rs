//! Every golden of every family has the bits of the interpreter, which computes a model by its specification, one value after the other.

use std::path::PathBuf;

use redline_interpreter::Interpreter;
use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};
use redline_models::{LoadOptions, Loader, ModelFiles};
use redline_reference::attention;

use crate::reference::{Bench, golden_root, on_team};

/// Formats of weights, and of keys and values.
const FORMATS: [(&str, KvFormat); 4] =
    [("f32", KvFormat::F32), ("bf16", KvFormat::Bf16), ("w8", KvFormat::W8), ("w4", KvFormat::W4)];

/// The checkpoints of a family: directories of this name with a letter.
fn checkpoints(family: &str) -> Vec<PathBuf> {
    let folders = [golden_root(), golden_root().join("encoders")];
    let all =
        folders.iter().flat_map(|folder| ["a", "b", "c"].map(|one| folder.join(format!("{family}-{one}"))));
    let all: Vec<PathBuf> = all.filter(|dir| dir.is_dir()).collect();
    assert!(!all.is_empty(), "no checkpoint of {family}");
    all
}

fn same(got: &[f32], want: &[f32]) -> bool {
    got.iter().map(|x| x.to_bits()).eq(want.iter().map(|x| x.to_bits()))
}

/// Compares states, logits and classes of a family in all formats.
fn check(family: &str) {
    for (dir, (format, kv)) in checkpoints(family).iter().flat_map(|dir| FORMATS.map(|each| (dir, each))) {
        let files = ModelFiles::open(dir).unwrap();
        let options = LoadOptions { format: Format::parse(format), ..LoadOptions::default() };
        let loader = || Loader::new(files.config(), files.weights(), options).unwrap();
        let mut model = on_team(|exec| loader().load(exec)).unwrap();
        model.reserve_positions(model.facts().context.min(256)).unwrap();
        let holds = model.page_shape(kv).keys.iter().all(|shape| kv.holds(shape.head_dim));
        let kv = if holds { kv } else { KvFormat::Bf16 };
        let name = format!("{} in {format}, {} keys", dir.display(), kv.name());

        let loader = loader();
        let interpreter = Interpreter::new(&loader, attention::KvStorage::named(kv.name())).unwrap();
        let predicts = model.facts().objective.predicts();
        let causal = model.facts().objective.is_causal();
        let pairs = model.token_types().is_some_and(|types| types > 1);
        let (vocab, context) = (model.facts().vocab as u32, model.facts().context.min(300));
        let classifier = model.classifier().cloned();
        let mut bench = Bench::new(model, kv, Simd::best(), 2);
        let ids: Vec<u32> = (0..context as u32).map(|i| i * i * 7 % vocab).collect();
        let second = pairs.then_some(ids.len() / 3);
        let states = interpreter.states(&ids, second);
        let sequence = bench.sequence();
        let (got, want) = if predicts {
            let got = if causal {
                bench.pass(&[(sequence, &ids)])
            } else {
                bench.draw(&[(sequence, 0, &ids, ids.len())])
            };
            (got, states.iter().map(|state| interpreter.logits(state)).collect())
        } else {
            (bench.states(&[(sequence, &ids, second)], None), states)
        };
        for (row, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(same(got, want), "{name}: row {row}");
        }
        assert_eq!((got.len(), want.len()), (ids.len(), ids.len()));
        if let Some(classifier) = classifier {
            let classes = on_team(|exec| classifier.layers.apply(exec, &want[0]));
            assert!(same(&classes, &interpreter.classes(&want[0])), "{name}: classes");
        }
    }
}

/// A test for each family, and one that none is missing.
macro_rules! families {
    ($($test:ident $family:literal)*) => {
        $(#[test]
        fn $test() {
            check($family);
        })*

        #[test]
        fn every_golden_is_of_a_family() {
            let listed: Vec<PathBuf> = [$($family),*].into_iter().flat_map(checkpoints).collect();
            for folder in [golden_root(), golden_root().join("encoders")] {
                for entry in std::fs::read_dir(folder).unwrap() {
                    let dir = entry.unwrap().path();
                    let is_golden = dir.join("config.json").exists();
                    assert!(!is_golden || listed.contains(&dir), "{} belongs to no family", dir.display());
                }
            }
        }
    };
}

families! {
    bamba "bamba"
    bert "bert"
    cohere "cohere"
    cohere2 "cohere2"
    deberta "deberta"
    distilbert "distilbert"
    dream "dream"
    electra "electra"
    ernie4_5 "ernie4_5"
    exaone4 "exaone4"
    falcon_h1 "falcon-h1"
    gemma2 "gemma2"
    gemma2_class "gemma2-class"
    gemma3 "gemma3"
    gemma3_embed "gemma3-embed"
    gemma4 "gemma4"
    glm "glm"
    glm4 "glm4"
    gpt2 "gpt2"
    gpt_oss "gpt-oss"
    granite "granite"
    granite4 "granite4"
    granite4h "granite4h"
    gte "gte"
    hunyuan "hunyuan"
    jina2 "jina2"
    jina3 "jina3"
    lfm2 "lfm2"
    lfm2_embed "lfm2-embed"
    lfm2moe "lfm2moe"
    llada "llada"
    llama "llama"
    ministral3 "ministral3"
    mistral "mistral"
    mixtral "mixtral"
    modernbert "modernbert"
    mpnet "mpnet"
    nemotron_h "nemotron-h"
    nomic "nomic"
    olmo2 "olmo2"
    olmo3 "olmo3"
    phi3 "phi3"
    qwen2 "qwen2"
    qwen2moe "qwen2moe"
    qwen3 "qwen3"
    qwen3_5 "qwen3_5"
    qwen3_5moe "qwen3_5moe"
    qwen3_class "qwen3-class"
    qwen3_embed "qwen3-embed"
    qwen3moe "qwen3moe"
    qwen3next "qwen3next"
    roberta "roberta"
    seed_oss "seed-oss"
    smollm3 "smollm3"
    xlmr "xlmr"
}
