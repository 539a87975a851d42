//! Golden checkpoints that llama.cpp's converter wrote as GGUF (`tests/golden/gguf.py`), compared with the checkpoints themselves.

use std::path::{Path, PathBuf};

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};
use redline_models::block::dense::Classifier;
use redline_models::{ConvertOptions, LoadOptions, Model, ModelFiles, arch, convert_gguf, load, sentence};
use redline_settings::Pooling;
use redline_weights::Gguf;
use serde_json::{Value, json};

use crate::reference::{Bench, config_in, golden_root, nmse, on_team, open, reference, reference_in};
use crate::rewritten::{Tensor, rewrite};

/// Checkpoints that have something which GGUF files cannot say, with the values that all files of their family stand for.
fn told(name: &str) -> Vec<(&'static str, Value)> {
    match name {
        "gemma2-a" => vec![("query_pre_attn_scalar", json!(24))],
        "gemma3-a" => vec![("layer_types", Value::Null)],
        "gemma3-b" => vec![("sliding_window_pattern", json!(6))],
        "granite4h-a" => vec![("time_step_limit", Value::Null)],
        "gpt-oss-a" | "gpt-oss-b" => vec![("swiglu_limit", json!(7.0))],
        "mistral-a" => vec![("sliding_window", Value::Null)],
        "jina2-a" => vec![("architectures", json!(["JinaBertModel"]))],
        "nomic-a" => vec![("n_positions", json!(2048))],
        "roberta-a" => vec![("hidden_act", json!("gelu"))],
        "smollm3-a" => vec![
            ("layer_types", Value::Null),
            ("no_rope_layers", Value::Null),
            ("use_sliding_window", json!(false)),
        ],
        _ => Vec::new(),
    }
}

/// Every GGUF file, with the directory of its checkpoint.
fn files() -> Vec<(PathBuf, PathBuf)> {
    let mut files: Vec<_> = std::fs::read_dir(golden_root().join("gguf"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), golden_root().join(path.file_stem().unwrap())))
        .collect();
    files.sort();
    files
}

fn logits(path: &Path, prompt: &[u32]) -> Vec<f32> {
    let mut bench = Bench::new(open(path, Some(Format::Bf16)), KvFormat::F32, Simd::best(), 2);
    let sequence = bench.sequence();
    bench.pass(&[(sequence, prompt)]).concat()
}

/// A copy of a checkpoint with other values of its configuration.
fn changed(dir: &Path, values: &[(&str, Value)], to: &Path) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let mut config = config_in(dir);
    for (key, value) in values {
        config[*key] = value.clone();
    }
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
}

#[test]
fn a_gguf_file_gives_the_logits_of_its_checkpoint() {
    for (file, dir) in files() {
        let name = dir.file_name().unwrap().to_str().unwrap();
        let (told, prompt) = (told(name), reference(&dir).prompt);
        let folder = tempfile::tempdir().unwrap();
        changed(&dir, &told, folder.path());
        let (got, want) = (logits(&file, &prompt), logits(folder.path(), &prompt));
        let differ = got.iter().zip(&want).filter(|(got, want)| got.to_bits() != want.to_bits()).count();
        // Several value heads of a recurrence for each head of keys are in another order in the file, and their sums are too.
        if ["qwen3_5-a", "qwen3_5moe-a"].contains(&name) {
            assert!(nmse(&got, &want) < 1e-10, "{name}: NMSE {:e}", nmse(&got, &want));
            continue;
        }
        assert_eq!((got.len(), differ), (want.len(), 0), "{name}: NMSE {:e}", nmse(&got, &want));
        // What the file cannot say matters.
        assert!(told.is_empty() || got != logits(&dir, &prompt), "{name}");
    }
}

#[test]
fn every_architecture_of_llama_cpp_has_a_file() {
    let named = |name: &str| files().iter().any(|(file, _)| open(file, None).facts().architecture == name);
    let encoders = || encoders().into_iter().filter(|(_, dir)| !dir.ends_with("bert-b"));
    let named_encoder =
        |name: &str| encoders().any(|(file, _)| open(&file, None).facts().architecture == name);
    let named = |name: &str| named(name) || named_encoder(name);
    for architecture in arch::ALL.iter().filter(|architecture| architecture.gguf.is_some()) {
        assert!(named(architecture.name), "{}", architecture.name);
    }
    assert!(named("Olmo3ForCausalLM"));
}

/// Every GGUF file of an encoder, with the directory of its checkpoint.
fn encoders() -> Vec<(PathBuf, PathBuf)> {
    let names = [
        "bert-a",
        "bert-b",
        "jina2-a",
        "lfm2-embed-b",
        "modernbert-a",
        "modernbert-c",
        "nomic-a",
        "roberta-a",
        "roberta-b",
        "xlmr-a",
        "xlmr-b",
    ];
    let of = |name| {
        let file = golden_root().join(format!("gguf/encoders/{name}.gguf"));
        (file, golden_root().join("encoders").join(name))
    };
    names.map(of).into()
}

/// Bits of the states of a text, and of the outputs of the classifier for the first and the last of them.
fn encoded(path: &Path, tokens: &[u32], second: Option<usize>) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let mut bench = Bench::new(open(path, Some(Format::Bf16)), KvFormat::F32, Simd::best(), 2);
    let (sequence, classifier) = (bench.sequence(), bench.model.classifier().cloned());
    let states = bench.states(&[(sequence, tokens, second)], None);
    let ends = [&states[0], &states[states.len() - 1]];
    let outputs = |classifier: &Classifier| {
        let of = |state: &Vec<f32>| on_team(|exec| classifier.layers.apply(exec, state));
        ends.iter().map(|state| of(state)).collect::<Vec<_>>()
    };
    (bits_of(&states), bits_of(&classifier.as_deref().map(outputs).unwrap_or_default()))
}

fn bits_of(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|value| value.to_bits()).collect()).collect()
}

/// The directory of an encoder as its file stands for it: with values that the file cannot say, and with a zero position for padding
/// tokens, which the files of RoBERTa and XLM-R leave out. Training leaves it zero.
fn stands_for(dir: &Path, to: &Path) {
    rewrite(dir, to, |config, tensors| {
        for (key, value) in told(dir.file_name().unwrap().to_str().unwrap()) {
            config[key] = value;
        }
        let table = tensors.iter_mut().find(|it| it.name.ends_with("position_embeddings.weight"));
        let Some(Tensor { shape, values, .. }) = table.filter(|_| config["model_type"] != "bert") else {
            return;
        };
        let padding = config["pad_token_id"].as_u64().unwrap() as usize;
        let row = &mut values[padding * shape[1]..][..shape[1]];
        assert!(row.iter().all(|value| *value != 0.0));
        row.fill(0.0);
    });
}

#[test]
fn a_gguf_file_of_an_encoder_gives_what_its_checkpoint_gives() {
    for (file, dir) in encoders() {
        if dir.ends_with("bert-b") {
            continue;
        }
        let work = tempfile::tempdir().unwrap();
        let same = work.path().join("same");
        stands_for(&dir, &same);
        let types = open(&dir, None).token_types().is_some_and(|types| types > 1);
        // 1 is the padding token of RoBERTa and XLM-R, 0 that of BERT.
        let text = [7, 90, 4, 33, 1, 61, 12, 0, 5, 1, 77, 20];
        for second in [None, types.then_some(4)] {
            let (ours, theirs) = (encoded(&file, &text, second), encoded(&same, &text, second));
            assert_eq!(ours, theirs, "{}", file.display());
        }
        let (file, dir) = (open(&file, None), open(&same, None));
        assert_eq!(file.facts().architecture, dir.facts().architecture);
        assert_eq!(file.facts().context, dir.facts().context);
        let pooling = |model: &Model| model.classifier().map(|classifier| classifier.pooling);
        assert_eq!(pooling(&file), pooling(&dir));
    }
    let labels = |name: &str| {
        let file = golden_root().join(format!("gguf/encoders/{name}.gguf"));
        open(&file, None).classifier().unwrap().labels.clone()
    };
    assert_eq!(labels("modernbert-c"), ["other", "same"]);
    assert_eq!(labels("roberta-a"), ["anger", "joy", "optimism", "sadness"]);
    assert_eq!(labels("xlmr-b"), ["LABEL_0"]);
}

/// llama.cpp's converter leaves the pooler out of `BertForSequenceClassification`.
#[test]
fn a_classifier_without_its_first_layer_is_refused() {
    let error = ModelFiles::open(&golden_root().join("gguf/encoders/bert-b.gguf")).err().unwrap().to_string();
    assert!(error.contains("`cls.weight`") && error.contains("bert-b.gguf"), "{error}");
}

/// Of the head, the file has the rows of yes and no.
#[test]
fn a_reranker_of_a_decoder_gives_the_logits_of_yes_and_no() {
    let file = golden_root().join("gguf/encoders/qwen3-reranker-a.gguf");
    let dir = golden_root().join("qwen3-a");
    let prompt = reference(&dir).prompt;
    let logits = logits(&dir, &prompt);
    let vocab = logits.len() / prompt.len();
    let last = &logits[logits.len() - vocab..];
    let (_, outputs) = encoded(&file, &prompt, None);
    assert_eq!(outputs[1], [last[7].to_bits(), last[3].to_bits()]);
    assert_eq!(open(&file, None).classifier().unwrap().labels, ["yes", "no"]);
}

/// `pooling_type`, and what becomes of it in a converted directory.
#[test]
fn a_gguf_file_says_how_its_states_are_pooled() {
    let pooling = |name: &str| {
        let gguf = Gguf::open(&golden_root().join(format!("gguf/encoders/{name}.gguf"))).unwrap();
        let rules = sentence::of_gguf(&gguf).unwrap();
        let work = tempfile::tempdir().unwrap();
        let to = work.path().join("to");
        on_team(|exec| convert_gguf(exec, &gguf, &[], &to, None, &mut |_| Ok(()))).unwrap();
        // The values of all tensors, and the positions of RoBERTa that the file leaves out.
        let states = |path: &Path| {
            let mut bench = Bench::new(open(path, None), KvFormat::F32, Simd::best(), 2);
            let sequence = bench.sequence();
            bits_of(&bench.states(&[(sequence, &[7, 1, 90, 0, 1, 4], None)], None))
        };
        assert_eq!(states(&to), states(gguf.origin()), "{name}");
        let converted = on_team(|exec| sentence::read(exec, &to, (48, false))).unwrap();
        assert_eq!(format!("{converted:?}"), format!("{rules:?}"), "{name}");
        rules.map(|rules| rules.dense.unwrap().pooling)
    };
    assert_eq!(pooling("bert-a"), Some(Pooling::Mean));
    assert_eq!(pooling("nomic-a"), Some(Pooling::Mean));
    assert_eq!(pooling("xlmr-a"), Some(Pooling::First));
    assert_eq!(pooling("roberta-b"), Some(Pooling::Mean));
    assert_eq!(pooling("xlmr-b"), None);
    assert_eq!(pooling("qwen3-reranker-a"), None);
}

/// Files that llama.cpp quantised, with their prompts and logits.
fn quantized() -> [PathBuf; 2] {
    ["q4_k_m", "mixed"].map(|name| golden_root().join(format!("quantized/{name}.gguf")))
}

#[test]
fn weights_of_every_type_as_f32_give_the_logits_of_the_reference() {
    for file in quantized() {
        let want = reference_in(&file.with_extension("safetensors"));
        let mut bench = Bench::new(open(&file, Some(Format::F32)), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let error = nmse(&bench.pass(&[(sequence, &want.prompt)]).concat(), &want.logits);
        assert!(error <= 1e-8, "{}: NMSE {error:e}", file.display());
    }
}

#[test]
fn weights_as_they_are_stored_stay_close_to_the_reference() {
    for (file, most) in quantized().into_iter().zip([1e-3, 2e-3]) {
        let want = reference_in(&file.with_extension("safetensors"));
        let mut bench = Bench::new(open(&file, None), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let error = nmse(&bench.pass(&[(sequence, &want.prompt)]).concat(), &want.logits);
        assert!(error <= most, "{}: NMSE {error:e}", file.display());
    }
}

/// Bits of the logits of every token, run in pieces of `piece` tokens.
fn bits(file: &Path, prompt: &[u32], simd: Simd, threads: usize, piece: usize) -> Vec<u32> {
    let mut bench = Bench::new(open(file, None), KvFormat::Bf16, simd, threads);
    let sequence = bench.sequence();
    let rows = prompt.chunks(piece).flat_map(|tokens| bench.pass(&[(sequence, tokens)]));
    rows.flatten().map(f32::to_bits).collect()
}

#[test]
fn stored_weights_give_the_same_bits_on_every_tier_with_any_threads_and_pieces() {
    for file in quantized() {
        let prompt = reference_in(&file.with_extension("safetensors")).prompt;
        let want = bits(&file, &prompt, Simd::best(), 1, prompt.len());
        for simd in Simd::variants() {
            for (threads, piece) in [(2, 40), (1, 17), (3, 1)] {
                let got = bits(&file, &prompt, simd, threads, piece);
                assert!(got == want, "{}: {} in pieces of {piece}", file.display(), simd.name());
            }
        }
    }
}

#[test]
fn every_matrix_keeps_the_format_in_which_it_is_stored() {
    let [q4_k_m, mixed] = quantized().map(|file| open(&file, None));
    assert_eq!(q4_k_m.facts().formats, "q4_k+q6_k");
    assert_eq!(q4_k_m.facts().format.to_string(), "q4_k");
    let formats = [
        "w8g32", "w4g32", "q4_1", "q5_1", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4", "f16",
        "bf16",
    ];
    let found = &mixed.facts().formats;
    assert_eq!(found.split('+').count(), formats.len(), "{found}");
    assert!(formats.iter().all(|format| found.split('+').any(|each| each == *format)), "{found}");
    // No more memory than the file has, but for codes of five and six bits, which take a byte.
    let bytes = q4_k_m.weight_bytes() as f64 / std::fs::metadata(&quantized()[0]).unwrap().len() as f64;
    assert!((0.9..1.25).contains(&bytes), "{bytes}");
}

#[test]
fn a_converted_file_keeps_formats_and_bits() {
    for file in quantized() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("converted");
        let gguf = Gguf::open(&file).unwrap();
        on_team(|exec| convert_gguf(exec, &gguf, &[], &to, None, &mut |_| Ok(()))).unwrap();
        let prompt = reference_in(&file.with_extension("safetensors")).prompt;
        assert!(bits(&to, &prompt, Simd::best(), 2, 40) == bits(&file, &prompt, Simd::best(), 2, 40));
        let (from, to) = (open(&file, None), open(&to, None));
        assert_eq!((&from.facts().formats, from.weight_bytes()), (&to.facts().formats, to.weight_bytes()));
        // Other formats are made from the values.
        let to = folder.path().join("other");
        let options = ConvertOptions { format: Format::W8 { group: 128 }, outliers: 0.0 };
        on_team(|exec| convert_gguf(exec, &gguf, &[], &to, Some(options), &mut |_| Ok(()))).unwrap();
        assert_eq!(open(&to, None).facts().formats, "w8");
    }
}

/// A changed declaration must not reach the kernels, which take whole blocks and no columns kept apart.
#[test]
fn a_directory_that_declares_what_its_formats_cannot_hold_is_refused() {
    let [file, _] = quantized();
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("converted");
    let gguf = Gguf::open(&file).unwrap();
    on_team(|exec| convert_gguf(exec, &gguf, &[], &to, None, &mut |_| Ok(()))).unwrap();
    let manifest = std::fs::read_to_string(to.join("infq.json")).unwrap();
    let refused = |manifest: &str| {
        std::fs::write(to.join("infq.json"), manifest).unwrap();
        let files = ModelFiles::open(&to);
        let loaded = files.and_then(|files| {
            let options = LoadOptions::default();
            on_team(|exec| load(exec, files.config(), files.weights(), options)).map(|_| ())
        });
        loaded.err().map(|error| error.to_string())
    };
    assert_eq!(refused(&manifest), None);
    let mut changed = 0;
    for (from, to) in [
        ("\"mixed\"", "\"q4_k\""),
        ("\"mixed\"", "\"other\""),
        ("\"q4_k\"", "\"q5_k\""),
        ("\"q4_k\"", "\"w8\""),
        ("\"outlier_columns\": []", "\"outlier_columns\": [3]"),
    ] {
        let other = manifest.replacen(from, to, 1);
        if other != manifest {
            changed += 1;
            assert!(refused(&other).is_some(), "{from} to {to}");
        }
    }
    assert!(changed >= 4, "{changed}");
}

#[test]
fn a_table_of_positions_keeps_its_format_too() {
    // Its matrices are bf16, the table is f32.
    let (file, dir) = files().into_iter().find(|(_, dir)| dir.ends_with("gpt2-a")).unwrap();
    let prompt = reference(&dir).prompt;
    let run = |format| {
        let mut bench = Bench::new(open(&file, format), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        bench.pass(&[(sequence, &prompt)]).concat()
    };
    assert!(run(None) != run(Some(Format::Bf16)));
}
