//! Encoders: states and classes, compared with transformers in f32; the same bits in any company and on any tier.

use std::path::{Path, PathBuf};

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};
use redline_models::spec::{Mask, Objective, Role, TensorSpec};
use redline_models::{ConvertOptions, LoadOptions, Loader, ModelFiles, arch, convert, sentence};
use redline_weights::ConfigFile;
use serde_json::{Map, Value, json};

use crate::reference::{Bench, Values, bits, golden_root, kv, nmse, on_team, open};
use crate::rewritten::{Tensor, rewrite};

/// A text with its results by the reference.
struct Text {
    ids: Vec<u32>,
    second: Option<usize>,
    /// `[tokens, hidden]`
    states: Vec<f32>,
}

fn goldens() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::fs::read_dir(golden_root().join("encoders"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() && !path.ends_with("qwen3-embed-a"))
        .collect();
    dirs.sort();
    assert!(dirs.len() >= 13, "two of each family, found {dirs:?}");
    dirs
}

fn texts(values: &Values, hidden: usize) -> Vec<Text> {
    let (ids, types, lengths) = (values.ids("ids"), values.ids("types"), values.ids("lengths"));
    let (states, longest) = (values.floats("hidden"), ids.len() / lengths.len());
    let text = |(at, &length): (usize, &u32)| {
        let (first, length) = (at * longest, length as usize);
        let of_text = first..first + length;
        Text {
            ids: ids[of_text.clone()].to_vec(),
            second: types[of_text].iter().position(|kind| *kind == 1),
            states: states[first * hidden..(first + length) * hidden].to_vec(),
        }
    };
    lengths.iter().enumerate().map(text).collect()
}

fn reference(dir: &Path, hidden: usize) -> (Values, Vec<Text>) {
    let values = Values::read(&dir.join("reference.safetensors"));
    let texts = texts(&values, hidden);
    (values, texts)
}

/// Formats of weights, with the largest NMSE.
const EXACT_AND_ROUNDED: [(Format, f64); 2] = [(Format::F32, 1e-9), (Format::Bf16, 1e-4)];

#[test]
fn states_match_the_reference() {
    for dir in goldens() {
        for (format, most) in EXACT_AND_ROUNDED {
            let mut bench = Bench::new(open(&dir, Some(format)), kv(format), Simd::best(), 2);
            let causal = dir.display().to_string().contains("-class-");
            let mask = if causal { Mask::Causal } else { Mask::Bidirectional };
            assert_eq!(bench.model.facts().objective, Objective { mask, ..Objective::STATES });
            let (_, texts) = reference(&dir, bench.model.facts().hidden);
            let mut found = (Vec::new(), Vec::new());
            for text in &texts {
                let sequence = bench.sequence();
                found.0.extend(bench.states(&[(sequence, &text.ids, text.second)], None).concat());
                found.1.extend(&text.states);
            }
            let error = nmse(&found.0, &found.1);
            assert!(error <= most, "{}: NMSE {error:e} in {format}", dir.display());
        }
    }
}

/// Pooled by hand, then through the layers of the head. Keys and values are f32: as bf16, they change a dozen logits of Gemma 2 more
/// than rounded weights do (NMSE 1.4e-4).
#[test]
fn classes_match_the_reference() {
    let mut checked = 0;
    for (dir, (format, most)) in goldens().iter().flat_map(|dir| EXACT_AND_ROUNDED.map(|each| (dir, each))) {
        let mut bench = Bench::new(open(dir, Some(format)), KvFormat::F32, Simd::best(), 2);
        let Some(classifier) = bench.model.classifier().cloned() else { continue };
        let hidden = bench.model.facts().hidden;
        let (values, texts) = reference(dir, hidden);
        let mut found = Vec::new();
        for text in &texts {
            let sequence = bench.sequence();
            let states = bench.states(&[(sequence, &text.ids, text.second)], None);
            let pooled = match classifier.pooling {
                redline_settings::Pooling::First => states[0].clone(),
                redline_settings::Pooling::Last => {
                    let last = text.ids.iter().rposition(|id| Some(*id) != classifier.padding);
                    states[last.unwrap()].clone()
                }
                redline_settings::Pooling::Mean => (0..hidden)
                    .map(|i| states.iter().map(|state| state[i]).sum::<f32>() / states.len() as f32)
                    .collect(),
            };
            found.extend(on_team(|exec| classifier.layers.apply(exec, &pooled)));
        }
        let error = nmse(&found, &values.floats("logits"));
        assert!(error <= most, "{}: NMSE {error:e} in {format}", dir.display());
        assert_eq!(found.len(), texts.len() * classifier.labels.len());
        checked += 1;
    }
    assert!(checked >= 14, "{checked} classifiers");
}

/// A batch with enough rows is cut into micro-batches, each of which one thread runs: all layers are one region. Decoders with a classifier
/// and logical devices are not cut.
#[test]
fn a_text_has_the_same_bits_in_a_micro_batch() {
    for dir in goldens() {
        for format in [Format::F32, Format::parse("w8").unwrap()] {
            let new = |threads| Bench::new(open(&dir, Some(format)), kv(format), Simd::best(), threads);
            let mut benches = [new(1), new(2), new(3), new(2).on_devices(2)];
            let (_, texts) = reference(&dir, benches[0].model.facts().hidden);
            // No two alike: shorter ones, and with the token that pads RoBERTa's texts in another place.
            let mut texts: Vec<_> =
                texts.iter().cycle().take(80).map(|it| (it.ids.clone(), it.second)).collect();
            let mut rows = 0;
            for (i, (ids, second)) in texts.iter_mut().enumerate() {
                ids.truncate(ids.len().min(41).saturating_sub(i % 5).max(1));
                let place = i % ids.len();
                ids[place] = 1;
                *second = second.filter(|second| *second < ids.len());
                rows += ids.len();
            }
            while rows > 200 {
                rows -= texts.pop().map_or(0, |(ids, _)| ids.len());
            }
            // All rows, some, and none of the last sequences.
            for wanted in
                [None, Some((0..rows).step_by(3).collect()), Some(vec![0, 7, 50])] as [Option<Vec<_>>; 3]
            {
                let found = benches.each_mut().map(|bench| {
                    let texts = texts.iter().map(|(ids, second)| (bench.sequence(), &ids[..], *second));
                    let texts: Vec<_> = texts.collect();
                    (bits(&bench.states(&texts, wanted.as_deref())), bench.regions())
                });
                let [alone, two, three, devices] = found;
                let name = format!("{} in {format}", dir.display());
                assert!([&two.0, &three.0, &devices.0].iter().all(|found| **found == alone.0), "{name}");
                if !name.contains("-class-") {
                    assert!(two.1 < 5, "{name}: {} regions", two.1);
                    assert!(devices.1 > 10, "{name}: {} regions", devices.1);
                }
            }
        }
    }
}

/// Alone or with other texts, all rows or some, on any tier and number of threads.
#[test]
fn a_text_has_the_same_bits_in_any_company() {
    for dir in goldens() {
        for format in [Format::F32, Format::Bf16, Format::parse("w8").unwrap(), Format::parse("w4").unwrap()]
        {
            let new = |simd, threads| Bench::new(open(&dir, Some(format)), kv(format), simd, threads);
            let mut alone = new(Simd::best(), 1);
            let (_, texts) = reference(&dir, alone.model.facts().hidden);
            let each = |bench: &mut Bench, text: &Text| {
                let sequence = bench.sequence();
                bench.states(&[(sequence, &text.ids, text.second)], None)
            };
            let expected: Vec<Vec<Vec<f32>>> = texts.iter().map(|text| each(&mut alone, text)).collect();
            for simd in Simd::variants() {
                let mut bench = new(simd, 3);
                let sequences: Vec<_> = texts.iter().map(|_| bench.sequence()).collect();
                let parts: Vec<_> = texts
                    .iter()
                    .zip(&sequences)
                    .map(|(text, &sequence)| (sequence, &text.ids[..], text.second))
                    .collect();
                let together = bench.states(&parts, None);
                assert_eq!(bits(&together), bits(&expected.concat()), "{} {format}", dir.display());
                // Every third row, so that the wanted rows of a text are not neighbours.
                let some: Vec<usize> = (0..together.len()).step_by(3).collect();
                let few = bench.states(&parts, Some(&some));
                let of_all: Vec<Vec<f32>> = some.iter().map(|&row| together[row].clone()).collect();
                assert_eq!(bits(&few), bits(&of_all), "{} {format}, some rows", dir.display());
            }
        }
    }
}

/// One function makes them: the decoder of the family, `score` without bias, and no head.
#[test]
fn a_classifier_takes_the_place_of_the_head_of_a_decoder() {
    for (golden, name) in [
        ("llama-a", "LlamaForSequenceClassification"),
        ("mistral-a", "MistralForSequenceClassification"),
        ("qwen2-a", "Qwen2ForSequenceClassification"),
        ("qwen3-a", "Qwen3ForSequenceClassification"),
        ("gemma2-a", "Gemma2ForSequenceClassification"),
        ("gemma3-a", "Gemma3TextForSequenceClassification"),
    ] {
        let text = std::fs::read(golden_root().join(golden).join("config.json")).unwrap();
        let mut config: Map<String, Value> = serde_json::from_slice(&text).unwrap();
        let read = |config: &Map<String, Value>| {
            let bytes = serde_json::to_vec(config).unwrap();
            arch::specification(&ConfigFile::from_bytes("config.json", &bytes).unwrap()).unwrap().1
        };
        let decoder = read(&config);
        config.insert("architectures".to_owned(), json!([name]));
        config.insert("num_labels".to_owned(), json!(5));
        config.insert("pad_token_id".to_owned(), json!(3));
        let spec = read(&config);
        let expected: Vec<TensorSpec> = decoder
            .tensors()
            .into_iter()
            .filter(|tensor| tensor.name != "lm_head.weight")
            .chain([TensorSpec {
                name: "score.weight".to_owned(),
                shape: vec![5, decoder.hidden],
                role: Role::Weight,
                stored: None,
            }])
            .collect();
        assert_eq!(spec.tensors(), expected, "{name}");
        assert_eq!(spec.names(|_| true).full("score.weight"), "score.weight");
        assert_eq!(spec.objective, Objective { mask: Mask::Causal, ..Objective::STATES }, "{name}");
        assert_eq!(spec.classifier.unwrap().padding, Some(3), "{name}");
    }
}

/// transformers renames them when it loads a checkpoint.
#[test]
fn norms_may_have_their_names_of_tensorflow() {
    let golden = golden_root().join("encoders/bert-b");
    let work = tempfile::tempdir().unwrap();
    std::fs::copy(golden.join("config.json"), work.path().join("config.json")).unwrap();
    let bytes = std::fs::read(golden.join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let text = std::str::from_utf8(&bytes[8..8 + header]).unwrap();
    let old = text.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    assert_ne!(old, text);
    let mut file = (old.len() as u64).to_le_bytes().to_vec();
    file.extend(old.bytes().chain(bytes[8 + header..].iter().copied()));
    std::fs::write(work.path().join("model.safetensors"), file).unwrap();
    let converted = work.path().join("converted");
    let options = ConvertOptions { format: Format::F32, outliers: 0.0 };
    on_team(|exec| convert(exec, work.path(), &converted, options, &mut |_| Ok(()))).unwrap();
    let states = |dir: &Path| {
        let mut bench = Bench::new(open(dir, Some(Format::F32)), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        bits(&bench.states(&[(sequence, &[1, 2, 3], None)], None))
    };
    assert_eq!(states(work.path()), states(&golden));
    assert_eq!(states(&converted), states(&golden));
}

/// Encoders with the architecture of a model that fills masks, the prefix of its names, and those of its head, as transformers writes them.
fn mask_fillers() -> [(&'static str, &'static str, &'static str, Vec<String>); 8] {
    let transform = |start: &str, norm: &str| {
        ["dense.weight", "dense.bias", &format!("{norm}.weight"), &format!("{norm}.bias")]
            .map(|name| format!("{start}{name}"))
    };
    let bert = transform("cls.predictions.transform.", "LayerNorm").into_iter().chain(
        [
            "predictions.bias",
            "predictions.decoder.weight",
            "predictions.decoder.bias",
            "seq_relationship.weight",
        ]
        .map(|name| format!("cls.{name}")),
    );
    let roberta = || {
        let more = ["bias", "decoder.weight", "decoder.bias"].map(|name| format!("lm_head.{name}"));
        transform("lm_head.", "layer_norm").into_iter().chain(more).collect()
    };
    let gte = || {
        let more = ["decoder.weight", "decoder.bias"].map(|name| format!("lm_head.{name}"));
        transform("lm_head.", "norm").into_iter().chain(more).collect::<Vec<_>>()
    };
    let modernbert = ["head.dense.weight", "head.norm.weight", "decoder.weight", "decoder.bias"];
    let distilbert = [
        "vocab_transform.weight",
        "vocab_transform.bias",
        "vocab_layer_norm.weight",
        "vocab_layer_norm.bias",
        "vocab_projector.weight",
        "vocab_projector.bias",
    ];
    [
        ("bert-a", "BertForMaskedLM", "bert.", bert.collect::<Vec<_>>()),
        ("roberta-b", "RobertaForMaskedLM", "roberta.", roberta()),
        ("xlmr-a", "XLMRobertaForMaskedLM", "roberta.", roberta()),
        ("modernbert-a", "ModernBertForMaskedLM", "model.", modernbert.map(str::to_owned).to_vec()),
        ("distilbert-a", "DistilBertForMaskedLM", "distilbert.", distilbert.map(str::to_owned).to_vec()),
        ("mpnet-a", "MPNetForMaskedLM", "mpnet.", roberta()),
        ("gte-a", "NewForMaskedLM", "new.", gte()),
        ("gte-b", "GteForMaskedLM", "gte.", gte()),
    ]
}

/// Its states are those of the encoder. Many such checkpoints were saved without their head.
#[test]
fn a_checkpoint_that_fills_masks_is_the_encoder_with_or_without_its_head() {
    for (golden, architecture, prefix, head) in mask_fillers() {
        let (golden, work) = (golden_root().join("encoders").join(golden), tempfile::tempdir().unwrap());
        let (hidden, vocab) = {
            let model = open(&golden, None);
            (model.facts().hidden, model.facts().vocab)
        };
        let shape = |name: &str| match name {
            // The head is the embedding: what is stored a second time is not read.
            _ if name.ends_with("decoder.weight") || name == "vocab_projector.weight" => vec![3],
            "vocab_transform.weight" => vec![hidden, hidden],
            "vocab_projector.bias" | "lm_head.bias" | "cls.predictions.bias" => vec![vocab],
            _ if name.ends_with("decoder.bias") => vec![vocab],
            _ if name.ends_with("dense.weight") => vec![hidden, hidden],
            _ => vec![hidden],
        };
        let write = |name: &str, head: &[String]| {
            let to = work.path().join(name);
            rewrite(&golden, &to, |config, tensors| {
                config["architectures"] = json!([architecture]);
                let unread = ["pooler.", "classifier.", "gte.pooler."];
                tensors.retain(|tensor| !unread.iter().any(|start| tensor.name.starts_with(start)));
                for tensor in tensors.iter_mut().filter(|tensor| !tensor.name.starts_with(prefix)) {
                    tensor.name.insert_str(0, prefix);
                }
                tensors.extend(head.iter().map(|name| Tensor::ones(name, &shape(name))));
            });
            to
        };
        let [filler, without] = [write("filler", &head), write("without", &[])];
        assert!(open(&filler, None).has_mask_head() && !open(&without, None).has_mask_head());
        let (_, texts) = reference(&golden, open(&golden, None).facts().hidden);
        let states = |dir: &Path| {
            let mut bench = Bench::new(open(dir, Some(Format::F32)), KvFormat::F32, Simd::best(), 2);
            assert_eq!(bench.model.facts().objective, Objective::STATES);
            let sequence = bench.sequence();
            bits(&bench.states(&[(sequence, &texts[0].ids, texts[0].second)], None))
        };
        for dir in [&filler, &without] {
            assert_eq!(states(dir), states(&golden), "{architecture}");
        }
        let other = ModelFiles::open(&write("other", &["other.weight".to_owned()])).unwrap();
        let error = Loader::new(other.config(), other.weights(), LoadOptions::default()).err().unwrap();
        assert!(error.to_string().contains("`other.weight`"), "{error}");
    }
}

#[test]
fn layers_of_an_encoder_share_the_place_of_their_keys() {
    let model = open(&golden_root().join("encoders/modernbert-a"), None);
    assert_eq!((model.layers(), model.page_shape(KvFormat::F32).keys.len()), (4, 1));
    // Nothing is kept for logits over a vocabulary.
    let [one, two] = [1, 2].map(|outputs| model.arena_size(1, outputs).values);
    assert_eq!(two - one, 3 * 48);
}

#[test]
fn the_memory_of_an_encoder_is_known_before_it_is_read() {
    for dir in goldens() {
        for format in [Format::F32, Format::Bf16, Format::parse("w8").unwrap()] {
            let files = ModelFiles::open(&dir).unwrap();
            let options = LoadOptions { format: Some(format), ..LoadOptions::default() };
            let loader = Loader::new(files.config(), files.weights(), options).unwrap();
            let (expected, model) = (loader.footprint().weight_bytes(), open(&dir, Some(format)));
            assert_eq!(model.weight_bytes(), expected, "{} {format}", dir.display());
            // One token reads no table but the rows of its own embeddings.
            assert!(model.bytes_per_token() < expected, "{}", dir.display());
        }
    }
}

/// The specification of a golden checkpoint's configuration with other values. A change of null removes the key.
fn changed(golden: &str, changes: &Value) -> Result<(), String> {
    let text = std::fs::read(golden_root().join("encoders").join(golden).join("config.json")).unwrap();
    let mut config: Map<String, Value> = serde_json::from_slice(&text).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(config.remove(key)),
            value => drop(config.insert(key.clone(), value.clone())),
        }
    }
    let config = ConfigFile::from_bytes("config.json", &serde_json::to_vec(&config).unwrap()).unwrap();
    arch::specification(&config).map(drop).map_err(|error| error.to_string())
}

/// Changes of a golden's configuration, and what their messages name.
fn refused(cases: &[(&str, Value, &[&str])]) {
    for (golden, changes, names) in cases {
        let message = changed(golden, changes).expect_err(&format!("{golden} {changes}"));
        for name in names.iter().chain(&["config.json"]) {
            assert!(message.contains(name), "{golden} {changes}: {message:?} does not name {name}");
        }
    }
}

#[test]
fn keys_that_would_change_the_result_are_refused_by_name() {
    refused(&[
        ("bert-a", json!({"hidden_act": "relu6"}), &["hidden_act", "relu6", "gelu"][..]),
        (
            "bert-a",
            json!({"position_embedding_type": "relative_key"}),
            &["position_embedding_type", "absolute"],
        ),
        ("bert-a", json!({"is_decoder": true}), &["is_decoder", "false"]),
        ("bert-a", json!({"num_attention_heads": 7}), &["hidden_size", "60", "7"]),
        ("bert-a", json!({"type_vocab_size": 0}), &["type_vocab_size", "from 1"]),
        ("bert-a", json!({"layer_norm_eps": -1.0}), &["layer_norm_eps", "at least 0"]),
        ("bert-b", json!({"id2label": {"0": "a", "2": "b"}}), &["id2label.1", "missing"]),
        ("bert-b", json!({"id2label": {}}), &["id2label", "1 to"]),
        ("bert-b", json!({"id2label": null, "num_labels": 0}), &["num_labels", "from 1"]),
        ("xlmr-a", json!({"pad_token_id": [1, 2]}), &["pad_token_id", "several"]),
        ("xlmr-a", json!({"max_position_embeddings": 2}), &["max_position_embeddings", "more than 2"]),
        ("distilbert-a", json!({"n_heads": 7}), &["`dim` 36", "`n_heads` 7"]),
        ("distilbert-a", json!({"activation": "relu6"}), &["`activation`", "gelu"]),
        (
            "distilbert-a",
            json!({"architectures": ["DistilBertForMaskedLM"], "tie_word_embeddings": false}),
            &["tie_word_embeddings", "true"],
        ),
        (
            "modernbert-a",
            json!({"architectures": ["ModernBertForMaskedLM"], "decoder_bias": false}),
            &["decoder_bias", "true"],
        ),
        ("electra-a", json!({"position_embedding_type": "relative_key"}), &["position_embedding_type"]),
        ("electra-a", json!({"embedding_size": 0}), &["embedding_size", "from 1"]),
        ("mpnet-a", json!({"relative_attention_num_buckets": 16}), &["relative_attention_num_buckets", "32"]),
        ("lfm2-embed-a", json!({"conv_L_cache": 4}), &["conv_L_cache", "an odd number"]),
        ("lfm2-embed-a", json!({"conv_L_cache": 1}), &["conv_L_cache", "at least 3"]),
        ("nomic-a", json!({"prenorm": true}), &["prenorm", "false"]),
        ("nomic-a", json!({"rotary_emb_fraction": 0.5}), &["rotary_emb_fraction", "`1`"]),
        ("nomic-a", json!({"rotary_scaling_factor": 2.0}), &["rotary_scaling_factor", "null"]),
        ("nomic-a", json!({"moe_every_n_layers": 2}), &["moe_every_n_layers", "`0`"]),
        ("nomic-a", json!({"activation_function": "gelu"}), &["activation_function", "`swiglu`"]),
        ("nomic-a", json!({"n_head": 16}), &["head of 3 values"]),
        ("nomic-b", json!({"rope_scaling": {"type": "linear", "factor": 2.0}}), &["rope_scaling"]),
        ("gte-a", json!({"layer_norm_type": "rms_norm"}), &["layer_norm_type", "`layer_norm`"]),
        ("gte-a", json!({"position_embedding_type": "absolute"}), &["position_embedding_type", "`rope`"]),
        ("gte-a", json!({"logn_attention_scale": true}), &["logn_attention_scale", "false"]),
        ("gte-a", json!({"pack_qkv": false}), &["pack_qkv", "true"]),
        (
            "gte-a",
            json!({"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.5}}),
            &["mixed_b", "null"],
        ),
        ("gte-a", json!({"rope_scaling": {"type": "ntk", "factor": 0.5}}), &["factor", "at least 1"]),
        ("jina3-a", json!({"rope_scaling": {"type": "linear", "factor": 2.0}}), &["rope_scaling"]),
        ("modernbert-a", json!({"hidden_activation": "relu6"}), &["hidden_activation", "gelu"]),
        (
            "modernbert-a",
            json!({"global_attn_every_n_layers": 0}),
            &["global_attn_every_n_layers", "at least 1"],
        ),
        ("modernbert-a", json!({"sliding_window": 4}), &["sliding_window"]),
        ("modernbert-a", json!({"num_attention_heads": 16}), &["num_attention_heads", "16"]),
        ("modernbert-b", json!({"classifier_pooling": "max"}), &["classifier_pooling", "`cls` or `mean`"]),
        ("modernbert-b", json!({"classifier_activation": "relu6"}), &["classifier_activation", "gelu"]),
        (
            "gemma3-embed-a",
            json!({"use_bidirectional_attention": false}),
            &["use_bidirectional_attention", "true"],
        ),
    ]);
}

#[test]
fn keys_of_distances_are_refused_by_name() {
    refused(&[
        (
            "jina2-a",
            json!({"position_embedding_type": "absolute"}),
            &["position_embedding_type", "`alibi`"][..],
        ),
        ("jina2-a", json!({"feed_forward_type": "original"}), &["feed_forward_type", "`geglu` or `reglu`"]),
        ("jina2-a", json!({"sliding_window": 4}), &["sliding_window"]),
        ("deberta-a", json!({"relative_attention": false}), &["relative_attention", "`true`"]),
        (
            "deberta-a",
            json!({"max_position_embeddings": 1 << 18}),
            &["max_position_embeddings", "at most 131072"],
        ),
        ("deberta-a", json!({"type_vocab_size": 1u64 << 40}), &["type_vocab_size"]),
        ("deberta-a", json!({"position_buckets": 1u64 << 40}), &["position_buckets"]),
        ("deberta-a", json!({"max_relative_positions": 1u64 << 40}), &["max_relative_positions"]),
        ("deberta-a", json!({"pos_att_type": ["c2p|p2c"]}), &["pos_att_type"]),
        ("deberta-a", json!({"share_att_key": null}), &["share_att_key", "`true`"]),
        ("deberta-a", json!({"pos_att_type": "c2p"}), &["pos_att_type", "`c2p` and `p2c`"]),
        ("deberta-a", json!({"pos_att_type": null}), &["pos_att_type", "`c2p` and `p2c`"]),
        (
            "deberta-a",
            json!({"position_buckets": 15}),
            &["position_buckets", "even", "at least 4", "less than 598"],
        ),
        ("deberta-a", json!({"position_buckets": 2}), &["position_buckets", "at least 4"]),
        ("deberta-a", json!({"max_relative_positions": 9}), &["position_buckets", "less than 16"]),
        ("deberta-a", json!({"norm_rel_ebd": "rms_norm"}), &["norm_rel_ebd", "`layer_norm`"]),
        ("deberta-a", json!({"conv_kernel_size": 3}), &["conv_kernel_size", "`0`"]),
        ("deberta-a", json!({"embedding_size": 20}), &["embedding_size", "`36`"]),
        ("deberta-a", json!({"attention_head_size": 20}), &["attention_head_size", "`12`"]),
        ("deberta-a", json!({"position_embedding_type": "rope"}), &["position_embedding_type"]),
        ("deberta-b", json!({"pooler_hidden_size": 20}), &["pooler_hidden_size", "`40`"]),
        ("deberta-b", json!({"pooler_hidden_act": "relu6"}), &["pooler_hidden_act", "gelu"]),
    ]);
}

/// A copy of a directory with all that is in it.
fn copied(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copied(&path, &to.join(name));
        } else {
            std::fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

#[test]
fn the_path_of_a_module_may_end_in_a_slash() {
    let golden = golden_root().join("encoders/qwen3-embed-a");
    let work = tempfile::tempdir().unwrap();
    let [slashed, converted] = ["slashed", "converted"].map(|name| work.path().join(name));
    copied(&golden, &slashed);
    let modules = std::fs::read_to_string(golden.join("modules.json")).unwrap();
    std::fs::write(slashed.join("modules.json"), modules.replace("1_Pooling", "1_Pooling/")).unwrap();
    let options = ConvertOptions { format: Format::F32, outliers: 0.0 };
    on_team(|exec| convert(exec, &slashed, &converted, options, &mut |_| Ok(()))).unwrap();
    let rules = |dir: &Path| format!("{:?}", on_team(|exec| sentence::read(exec, dir, (48, false))).unwrap());
    assert_eq!([rules(&slashed), rules(&converted)], [rules(&golden), rules(&golden)]);
}

/// Published encoders have the name of what they were trained for, and its layers.
#[test]
fn what_an_encoder_was_trained_with_is_left_unread() {
    for (golden, architecture, prefix, layer) in [
        ("electra-a", "ElectraForPreTraining", "electra.", "discriminator_predictions.dense.weight"),
        ("gte-a", "NewForTokenClassification", "new.", "classifier.weight"),
    ] {
        let (golden, work) = (golden_root().join("encoders").join(golden), tempfile::tempdir().unwrap());
        let to = work.path().join("model");
        rewrite(&golden, &to, |config, tensors| {
            config["architectures"] = json!([architecture]);
            for tensor in tensors.iter_mut() {
                tensor.name.insert_str(0, prefix);
            }
            tensors.push(Tensor::ones(layer, &[3]));
        });
        let (found, want) = (open(&to, None), open(&golden, None));
        assert_eq!(found.facts().parameters, want.facts().parameters, "{architecture}");
        assert_eq!(found.facts().objective, Objective::STATES);
    }
}

/// As transformers does, which has no place for it.
#[test]
fn a_head_in_the_checkpoint_of_a_classifier_is_left_unread() {
    let golden = golden_root().join("encoders/qwen3-class-a");
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("model");
    let embedding = [131, open(&golden, None).facts().hidden];
    rewrite(&golden, &to, |_, tensors| tensors.push(Tensor::ones("lm_head.weight", &embedding)));
    assert_eq!(open(&to, None).facts().parameters, open(&golden, None).facts().parameters);
}

#[test]
fn modules_that_would_change_the_embedding_are_refused_by_name() {
    let golden = golden_root().join("encoders/gemma3-embed-a");
    let check = |file: &str, change: &dyn Fn(&mut Value), names: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        for name in ["modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"] {
            std::fs::copy(golden.join(name), folder.path().join(name)).unwrap();
        }
        for (dir, files) in [
            ("1_Pooling", &["config.json"][..]),
            ("2_Dense", &["config.json", "model.safetensors"]),
            ("3_Dense", &["config.json", "model.safetensors"]),
        ] {
            std::fs::create_dir(folder.path().join(dir)).unwrap();
            for name in files {
                std::fs::copy(golden.join(dir).join(name), folder.path().join(dir).join(name)).unwrap();
            }
        }
        let path = folder.path().join(file);
        let mut value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        std::fs::write(&path, value.to_string()).unwrap();
        let read = on_team(|exec| sentence::read(exec, folder.path(), (48, false)));
        match names {
            [] => assert!(read.unwrap().is_some()),
            names => {
                let message = read.expect_err(file).to_string();
                for name in names.iter().chain(&[file]) {
                    assert!(message.contains(name), "{message:?} does not name {name}");
                }
            }
        }
    };
    check("modules.json", &|_| (), &[]);
    let kind = |value: &mut Value, at: usize, kind: &str| value[at]["type"] = json!(kind);
    check(
        "modules.json",
        &|v| kind(v, 4, "sentence_transformers.models.LayerNorm"),
        &["4.type", "LayerNorm"],
    );
    check(
        "modules.json",
        &|v| kind(v, 0, "sentence_transformers.models.CLIPModel"),
        &["0.type", "CLIPModel"],
    );
    check("modules.json", &|v| drop(v.as_array_mut().unwrap().drain(1..)), &["Pooling"]);
    check("modules.json", &|v| *v = json!({}), &["{}"]);
    check("modules.json", &|v| v[1]["path"] = json!("../1_Pooling"), &["1.path", "folder"]);
    check("modules.json", &|v| v[2]["path"] = json!("/2_Dense"), &["2.path", "folder"]);
    check("1_Pooling/config.json", &|v| v["pooling_mode_mean_tokens"] = json!(false), &[]);
    check(
        "1_Pooling/config.json",
        &|v| v["pooling_mode"] = json!("max"),
        &["pooling_mode", "max", "lasttoken"],
    );
    check("2_Dense/config.json", &|v| v["use_residual"] = json!(true), &["use_residual"]);
    let name = |v: &mut Value| v["module_input_name"] = json!("token_embeddings");
    check("2_Dense/config.json", &name, &["module_input_name"]);
    check("2_Dense/config.json", &|v| v["out_features"] = json!(0), &["out_features", "from 1"]);
    check(
        "1_Pooling/config.json",
        &|v| v["pooling_mode_cls_token"] = json!(true),
        &["pooling_mode_mean_tokens"],
    );
    check(
        "1_Pooling/config.json",
        &|v| v["pooling_mode_max_tokens"] = json!(true),
        &["pooling_mode_max_tokens"],
    );
    check("1_Pooling/config.json", &|v| v["include_prompt"] = json!(false), &["include_prompt"]);
    check("2_Dense/config.json", &|v| v["in_features"] = json!(47), &["in_features", "48"]);
    check(
        "2_Dense/config.json",
        &|v| v["activation_function"] = json!("torch.nn.modules.activation.ELU"),
        &["activation_function"],
    );
    check("sentence_bert_config.json", &|v| v["max_seq_length"] = json!(0), &["max_seq_length"]);
    let default = |v: &mut Value| v["default_prompt_name"] = json!("nothing");
    check("config_sentence_transformers.json", &default, &["default_prompt_name", "nothing"]);
}

/// What ColBERT's authors say beside the weights is honoured or refused by name; without it, theirs are the defaults.
#[test]
fn what_colbert_was_trained_with_is_honoured_or_refused() {
    let golden = golden_root().join("vectors/colbert-stanford-a");
    let read = |dir: &Path| on_team(|exec| sentence::read(exec, dir, (48, false)));
    let changed = |file: &str, change: Option<Value>| {
        let work = tempfile::tempdir().unwrap();
        let (to, path) = (work.path().join("model"), work.path().join("model").join(file));
        copied(&golden, &to);
        match change {
            Some(change) => {
                let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
                value.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
                std::fs::write(&path, value.to_string()).unwrap();
            }
            None => std::fs::remove_file(&path).unwrap(),
        }
        (work, to)
    };
    for (change, names) in [
        (json!({"similarity": "l2"}), &["similarity", "`cosine`"][..]),
        (json!({"interaction": "flipr"}), &["interaction", "`colbert`"]),
        (json!({"dim": 15}), &["dim", "16, the rows of `linear.weight`"]),
        (json!({"doc_maxlen": 0}), &["doc_maxlen"]),
        (json!({"query_maxlen": 0}), &["query_maxlen"]),
        (json!({"attend_to_mask_tokens": 1}), &["attend_to_mask_tokens"]),
    ] {
        let (_work, to) = changed("artifact.metadata", Some(change));
        let message = read(&to).unwrap_err().to_string();
        assert!(names.iter().all(|name| message.contains(name)), "{names:?}: {message}");
        assert!(message.contains("artifact.metadata"), "{message}");
    }
    let (_work, to) = changed("artifact.metadata", None);
    let rules = read(&to).unwrap().unwrap().multi_vector.unwrap();
    let expansion = rules.expansion.as_ref().unwrap();
    assert_eq!((expansion.length, expansion.is_fixed, expansion.is_seen), (32, true, false));
    assert_eq!((&*expansion.token, rules.lengths["document"], rules.skipped.len()), ("[MASK]", 220, 32));
    assert_eq!([&*rules.markers["query"], &*rules.markers["document"]], ["[unused0]", "[unused1]"]);
    let change = json!({"attend_to_mask_tokens": true, "mask_punctuation": false, "doc_token_id": "[D]"});
    let (_work, to) = changed("artifact.metadata", Some(change));
    let rules = read(&to).unwrap().unwrap().multi_vector.unwrap();
    assert!(rules.expansion.as_ref().unwrap().is_seen && rules.skipped.is_empty());
    assert_eq!(rules.markers["document"], "[D]");
    let (_work, to) = changed("config.json", Some(json!({"model_type": "llama"})));
    let message = ModelFiles::open(&to)
        .and_then(|files| Loader::new(files.config(), files.weights(), LoadOptions::default()).map(|_| ()));
    let message = message.unwrap_err().to_string();
    assert!(message.contains("model_type") && message.contains("`bert`"), "{message}");
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("model");
    rewrite(&golden, &to, |_, tensors| tensors.retain(|tensor| tensor.name != "linear.weight"));
    let message = read(&to).unwrap_err().to_string();
    assert!(message.contains("`linear.weight`"), "{message}");
}

/// A converted directory has no folders, and the same rules, states and classes.
#[test]
fn a_converted_encoder_is_the_same() {
    for name in [
        "gemma3-embed-a",
        "modernbert-a",
        "bert-b",
        "xlmr-a",
        "qwen3-class-a",
        "deberta-a",
        "deberta-b",
        "jina2-a",
        "lfm2-embed-a",
    ] {
        let golden = golden_root().join("encoders").join(name);
        let work = tempfile::tempdir().unwrap();
        let to = work.path().join("to");
        let format = Format::parse("w8").unwrap();
        let options = ConvertOptions { format, outliers: 0.0 };
        on_team(|exec| convert(exec, &golden, &to, options, &mut |_| Ok(()))).unwrap();
        let width = open(&golden, None).facts().hidden;
        let rules =
            |dir: &Path| format!("{:?}", on_team(|exec| sentence::read(exec, dir, (width, false))).unwrap());
        assert_eq!(rules(&to), rules(&golden), "{name}");
        let [mut ours, mut theirs] =
            [&golden, &to].map(|dir| Bench::new(open(dir, Some(format)), kv(format), Simd::best(), 2));
        let (_, texts) = reference(&golden, width);
        for text in &texts {
            let states = |bench: &mut Bench| {
                let sequence = bench.sequence();
                bench.states(&[(sequence, &text.ids, text.second)], None)
            };
            let (a, b) = (states(&mut ours), states(&mut theirs));
            assert_eq!(bits(&a), bits(&b), "{name}");
            let classes = |bench: &Bench, pooled: &[f32]| {
                let classifier = bench.model.classifier().cloned();
                on_team(|exec| classifier.map(|it| it.layers.apply(exec, pooled)))
            };
            assert_eq!(classes(&ours, &a[0]), classes(&theirs, &a[0]), "{name}");
        }
        // Integers are close to the reference.
        let found: Vec<f32> = texts
            .iter()
            .flat_map(|text| {
                let sequence = ours.sequence();
                ours.states(&[(sequence, &text.ids, text.second)], None).concat()
            })
            .collect();
        let want: Vec<f32> = texts.iter().flat_map(|text| text.states.clone()).collect();
        let error = nmse(&found, &want);
        assert!(error <= 5e-3, "{name}: NMSE {error:e}");
    }
}

#[test]
fn a_directory_without_modules_has_no_rules() {
    let golden = golden_root().join("encoders/xlmr-b");
    assert!(ModelFiles::open(&golden).is_ok());
    assert!(on_team(|exec| sentence::read(exec, &golden, (48, false))).unwrap().is_none());
}
