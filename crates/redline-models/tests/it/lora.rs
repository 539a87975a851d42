//! Passes with adapters: logits compared with PEFT in f32, and their independence of other rows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};
use redline_models::adapter::{
    Adapter, AdapterBuilder, AdapterFit, AdapterLimits, AdapterUse, AdapterWeights, Adapters, fit, read,
};
use redline_models::{LoadOptions, Model, Weights, arch, load};
use redline_weights::{AdapterFiles, Checkpoint, ConfigFile};

use crate::reference::{Bench, golden_root, kv, nmse, on_team, open, reference};

const LIMITS: AdapterLimits = AdapterLimits { rank: 16, uses: 3 };

/// Every golden adapter: its directory, and the name of its base.
fn goldens() -> Vec<(PathBuf, String)> {
    let root = golden_root().join("adapters");
    let manifest = std::fs::read(root.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let of = |(name, facts): (&String, &serde_json::Value)| {
        (root.join(name), facts["base"].as_str().unwrap().to_owned())
    };
    manifest.as_object().unwrap().iter().map(of).collect()
}

/// A golden model in a format, with room for adapters.
fn model(base: &str, format: Format) -> Model {
    let mut model = open(&golden_root().join(base), Some(format));
    model.limit_adapters(LIMITS);
    model
}

fn weights(base: &str, dir: &Path) -> AdapterWeights {
    let config = ConfigFile::open(&golden_root().join(base).join("config.json")).unwrap();
    let spec = (arch::find(&config).unwrap().spec)(&config).unwrap();
    read(&spec, &AdapterFiles::open(dir).unwrap(), LIMITS.rank).unwrap()
}

fn build(model: &Model, weights: &AdapterWeights) -> Arc<Adapter> {
    Arc::new(on_team(|exec| AdapterBuilder::new(model).build(exec, weights)).unwrap())
}

/// The golden adapters of a base, each read for the model.
fn adapters_of(model: &Model, base: &str) -> Vec<Arc<Adapter>> {
    let of_base = goldens().into_iter().filter(|(_, of)| of == base);
    of_base.map(|(dir, _)| build(model, &weights(base, &dir))).collect()
}

fn uses(of: &[(&Arc<Adapter>, f32)]) -> Adapters {
    of.iter().map(|(adapter, scale)| AdapterUse { adapter: (*adapter).clone(), scale: *scale }).collect()
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn f32_logits_match_peft() {
    let goldens = goldens();
    assert!(goldens.len() >= 14, "{} golden adapters", goldens.len());
    for (dir, base) in goldens {
        let model = model(&base, Format::F32);
        let adapter = build(&model, &weights(&base, &dir));
        let want = reference(&dir);
        let mut bench = Bench::new(model, KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let got = bench.adapted_pass(&[(sequence, &want.prompt, uses(&[(&adapter, 1.0)]))]).concat();
        let error = nmse(&got, &want.logits);
        assert!(error <= 1e-8, "{}: NMSE {error:e}", dir.display());
    }
}

/// What an adapter adds stays close to what it adds in f32, however the weights are stored.
#[test]
fn other_formats_stay_close_to_f32() {
    for (dir, base) in goldens() {
        let want = reference(&dir);
        for (format, most) in [(Format::Bf16, 3e-4), (Format::W8 { group: 128 }, 3e-3)] {
            let model = model(&base, format);
            let adapter = build(&model, &weights(&base, &dir));
            let mut bench = Bench::new(model, kv(format), Simd::best(), 2);
            let sequence = bench.sequence();
            let got = bench.adapted_pass(&[(sequence, &want.prompt, uses(&[(&adapter, 1.0)]))]).concat();
            let error = nmse(&got, &want.logits);
            assert!(error <= most, "{} as {format}: NMSE {error:e}", dir.display());
        }
    }
}

/// Sequences with different adapters, with several, and with none share a pass, and each has the bits that it has alone.
#[test]
fn a_row_has_the_same_bits_whatever_adapters_others_have() {
    let formats = [Format::F32, Format::Bf16, Format::W8 { group: 128 }, Format::W4 { group: 64 }];
    for (base, format) in
        ["llama-a", "gpt2-b", "qwen2-a"].into_iter().flat_map(|base| formats.map(|f| (base, f)))
    {
        let mut alone: Option<Vec<Vec<Vec<u32>>>> = None;
        for simd in Simd::variants() {
            let model = model(base, format);
            let adapters = adapters_of(&model, base);
            assert!(adapters.len() >= 2, "adapters of {base}");
            let plain = adapters.iter().find(|adapter| !adapter.has_gains()).unwrap();
            let mut mixes: Vec<Adapters> = adapters.iter().map(|adapter| uses(&[(adapter, 1.0)])).collect();
            mixes.push(Adapters::default());
            mixes.push(uses(&[(plain, 0.5), (plain, -2.0)]));
            mixes.push(uses(&[(plain, -0.25)]));
            let prompts: Vec<Vec<u32>> = (0..mixes.len())
                .map(|i| (0..3 + 7 * i as u32 % 20).map(|t| (t * 5 + i as u32) % 100).collect())
                .collect();
            let mut bench = Bench::new(model, kv(format), simd, 2);
            let of = |bench: &mut Bench, i: usize| {
                let sequence = bench.sequence();
                bits(&bench.adapted_pass(&[(sequence, &prompts[i], mixes[i].clone())]))
            };
            let want = alone.get_or_insert_with(|| (0..mixes.len()).map(|i| of(&mut bench, i)).collect());
            let sequences: Vec<_> = mixes.iter().map(|_| bench.sequence()).collect();
            // First all but the last token, then one token of each.
            let part = |last: bool| {
                let all = sequences.iter().zip(&prompts).zip(&mixes);
                all.map(|((sequence, prompt), mix)| {
                    let (head, tail) = prompt.split_at(prompt.len() - 1);
                    (*sequence, if last { tail } else { head }, mix.clone())
                })
                .collect::<Vec<_>>()
            };
            let first = bits(&bench.adapted_pass(&part(false)));
            let second = bits(&bench.adapted_pass(&part(true)));
            let mut rest = &first[..];
            for (i, want) in want.iter().enumerate() {
                let (own, others) = rest.split_at(want.len() - 1);
                rest = others;
                assert_eq!(own, &want[..want.len() - 1], "{base} {format} sequence {i} on {}", simd.name());
                assert_eq!(second[i], want[want.len() - 1], "{base} {format} end of {i} on {}", simd.name());
            }
            let different: std::collections::BTreeSet<_> = want.iter().map(|rows| &rows[2]).collect();
            assert_eq!(different.len(), want.len(), "every adapter changes {base}");
        }
    }
}

#[test]
fn rows_whose_logits_are_wanted_have_the_bits_of_the_whole_pass() {
    for format in [Format::F32, Format::W8 { group: 128 }] {
        let model = model("qwen2-a", format);
        let adapters = adapters_of(&model, "qwen2-a");
        let mut bench = Bench::new(model, kv(format), Simd::best(), 2);
        let prompts = [&[1, 2, 3, 4, 5][..], &[9, 8, 7], &[3; 9]];
        let mixes = [uses(&[(&adapters[0], 1.0)]), Adapters::default(), uses(&[(&adapters[1], 1.0)])];
        let mut parts = || {
            let each = prompts.iter().zip(&mixes);
            each.map(|(prompt, mix)| (bench.sequence(), *prompt, mix.clone())).collect::<Vec<_>>()
        };
        let (all, some) = (parts(), parts());
        let want = bits(&bench.adapted_pass(&all));
        let rows = [1, 4, 6, 7, 9, 16];
        let got = bits(&bench.wanted_pass(&some, &rows));
        assert_eq!(got, rows.map(|row| want[row].clone()), "{format}");
    }
}

#[test]
fn an_adapter_with_zero_b_leaves_every_bit_alone() {
    for format in [Format::F32, Format::Bf16, Format::W8 { group: 128 }] {
        let model = model("llama-b", format);
        let mut weights = weights("llama-b", &golden_root().join("adapters/llama-patterns"));
        weights.modules.iter_mut().for_each(|module| module.b.fill(0.0));
        let zero = build(&model, &weights);
        let mut bench = Bench::new(model, kv(format), Simd::best(), 2);
        let (a, b) = (bench.sequence(), bench.sequence());
        let prompt = [1, 2, 3, 4, 5, 6];
        let with = bench.adapted_pass(&[(a, &prompt, uses(&[(&zero, 1.0)]))]);
        assert_eq!(bits(&with), bits(&bench.pass(&[(b, &prompt)])), "{format}");
    }
}

/// The bytes that are told before an adapter is packed are those that it takes.
#[test]
fn the_memory_of_an_adapter_is_known_before_it_is_packed() {
    let formats = [Format::F32, Format::Bf16, Format::W8 { group: 128 }, Format::W4 { group: 64 }];
    for (dir, base) in goldens() {
        for (format, outliers) in formats.into_iter().flat_map(|f| [(f, 0.0), (f, 0.25)]) {
            let root = golden_root().join(&base);
            let config = ConfigFile::open(&root.join("config.json")).unwrap();
            let checkpoint = Checkpoint::open(&root).unwrap();
            let options = LoadOptions { format: Some(format), outliers, mmap: false };
            let from = Weights::Checkpoint(&checkpoint);
            let files = AdapterFiles::open(&dir).unwrap();
            let told = fit(&config, from, options, &files, LIMITS.rank).unwrap();
            let model = on_team(|exec| load(exec, &config, from, options)).unwrap();
            let weights = weights(&base, &dir);
            let bytes = build(&model, &weights).bytes();
            assert_eq!(told, AdapterFit { format, bytes, digest: weights.digest }, "{}", dir.display());
            let few = fit(&config, from, options, &files, 1).unwrap_err().to_string();
            assert!(few.contains("but at most 1 is allowed"), "{few}");
        }
    }
}

#[test]
fn values_that_the_format_cannot_hold_are_refused_by_name() {
    let base = "llama-b";
    let model = model(base, Format::W8 { group: 128 });
    let dir = golden_root().join("adapters/llama-patterns");
    let refused = |change: fn(&mut AdapterWeights)| {
        let mut weights = weights(base, &dir);
        change(&mut weights);
        on_team(|exec| AdapterBuilder::new(&model).build(exec, &weights)).unwrap_err().to_string()
    };
    let of_a = refused(|weights| weights.modules[0].a[1] = 1e30);
    assert!(of_a.contains(".lora_A") && of_a.contains("w8"), "{of_a}");
    // Each value is finite, and with the factor it is not.
    let of_b = refused(|weights| {
        weights.modules[3].b[0] = 1e30;
        weights.modules[3].scaling = 1e30;
    });
    assert!(of_b.contains(".lora_B"), "{of_b}");
}
