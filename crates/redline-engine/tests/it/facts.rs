//! What an engine tells about its model: the facts of a checkpoint, and the activations of steps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use redline_engine::{Activation, ActivationLog, Cancel, Engine, Objective, Options};
use redline_kernels::Format;
use redline_kernels::op::kv::KvFormat;

use crate::models::{generation, golden, golden_dir, ids, options};

/// The figures follow from the checkpoint's `config.json`.
#[test]
fn the_facts_are_those_of_the_checkpoint() {
    for (format, name) in [(None, "f32"), (Some(Format::Bf16), "bf16")] {
        let engine = Engine::load(Options { format, ..options(&golden_dir()) }).unwrap();
        let info = engine.info();
        assert_eq!((&*info.name, &*info.architecture), ("llama-b", "LlamaForCausalLM"));
        assert_eq!((info.objective, info.mask_id), (Objective::NEXT, None));
        assert_eq!((info.layers, info.hidden, info.vocab, info.context), (2, 100, 131, 256));
        // Embedding (the head too), two layers of attention, gate, up and down with two norms each, the last norm.
        let layer = 2 * 100 * 100 + 2 * 100 * 20 + 3 * 100 * 60 + 2 * 100;
        assert_eq!(info.parameters, 131 * 100 + 2 * layer + 100);
        assert!(info.head_bytes < info.bytes_per_token && info.bytes_per_token <= info.weight_bytes);
        assert_eq!((info.threads, info.tp, info.max_chunk), (2, 1, 512));
        assert_eq!((info.kv_budget_bytes, info.prefix_cache), (None, true));
        assert!(info.kernel_path.ends_with(&format!("/{name}/kv-{name}")), "{}", info.kernel_path);
    }
}

#[test]
fn only_weights_in_f32_come_with_keys_and_values_in_f32() {
    for &format in Format::ALL {
        let engine = Engine::load(Options { format: Some(format), ..options(&golden_dir()) }).unwrap();
        let natural = if format == Format::F32 { KvFormat::F32 } else { KvFormat::Bf16 };
        assert_eq!(engine.info().kv_format, natural, "{format}");
        let path = &engine.info().kernel_path;
        assert!(path.ends_with(&format!("/{format}/kv-{}", natural.name())), "{path}");
    }
}

#[test]
fn encoders_with_integer_weights_have_integer_keys_and_values() {
    let encoder = golden_dir().with_file_name("encoders").join("bert-a");
    for &format in Format::ALL {
        let engine = Engine::load(Options { format: Some(format), ..options(&encoder) }).unwrap();
        let natural = match format {
            Format::F32 => KvFormat::F32,
            Format::Bf16 => KvFormat::Bf16,
            _ => KvFormat::W8,
        };
        assert_eq!(engine.info().kv_format, natural, "{format}");
    }
    let chosen = Options {
        kv_format: Some(KvFormat::Bf16),
        format: Some(Format::W8 { group: 32 }),
        ..options(&encoder)
    };
    assert_eq!(Engine::load(chosen).unwrap().info().kv_format, KvFormat::Bf16);
}

#[test]
fn every_row_of_every_step_is_told_and_none_of_later_requests() {
    let engine = golden();
    let rows = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = rows.clone();
    let log: ActivationLog = Arc::new(move |step: usize, activation: Activation<'_>| {
        *seen.lock().unwrap().entry((step, activation.id)).or_insert(0) += activation.values.rows();
    });
    engine.observe(vec![vec![1; 70], vec![2, 3]], log).unwrap();
    let of_step =
        |step: usize, rows: usize| engine.activations().iter().map(move |(id, _)| ((step, *id), rows));
    let expected: BTreeMap<_, _> = of_step(0, 70).chain(of_step(1, 2)).collect();
    assert_eq!(*rows.lock().unwrap(), expected);
    engine.generate(generation(ids(&[5, 6, 7]), 3), &Cancel::new(), &mut |_| ()).unwrap();
    assert_eq!(*rows.lock().unwrap(), expected, "a request is not observed");
}
