//! Engines to test: the demo model, a golden checkpoint, a tiny model with a long context.

use std::path::{Path, PathBuf};

use redline_engine::{
    Cancel, Engine, EngineError, GenerateOutcome, GenerateRequest, Label, LongLabels, ModelInfo, Objective,
    Options, Prompt, ScoreOutcome, ScoreRequest, Source,
};
use redline_kernels::op::kv::PAGE_TOKENS;
use redline_kernels::{Format, Tier};
use redline_models::arch;
use redline_models::spec::Role;
use redline_weights::{ConfigFile, DirWriter, Dtype, TensorDeclaration};

pub(crate) fn demo_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo")
}

pub(crate) fn options(dir: &Path) -> Options {
    let plain = Options::new(Source::Path(dir.to_owned()));
    Options { threads: 2, adaptive_threads: true, ..plain }
}

pub(crate) fn demo() -> Engine {
    Engine::load(options(&demo_dir())).unwrap()
}

/// A checkpoint of the reference set: token ids only, no tokenizer.
pub(crate) fn golden() -> Engine {
    Engine::load(options(&golden_dir())).unwrap()
}

pub(crate) fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama-b")
}

/// All ways to run one weight format that must give the same results.
pub(crate) fn ways(format: Format) -> Vec<Options> {
    let mut all = Vec::new();
    for &tier in Tier::ALL {
        if tier.available().is_ok() {
            for (threads, tp) in [(1, 1), (2, 1), (1, 2), (2, 4)] {
                let way =
                    Options { threads, tp, tier: Some(tier), format: Some(format), ..options(&demo_dir()) };
                all.push(way);
            }
        }
    }
    all
}

/// The configuration of [`long`].
pub(crate) const LONG: &str = r#"{"architectures":["LlamaForCausalLM"],"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":300,
    "max_position_embeddings":2048,"rms_norm_eps":1e-5,"hidden_act":"silu","rope_theta":10000.0}"#;

/// As [`LONG`], but rows see 100 keys.
pub(crate) const WINDOWED: &str = r#"{"architectures":["Qwen2ForCausalLM"],"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":300,"use_sliding_window":true,
    "sliding_window":100,"max_window_layers":0,"max_position_embeddings":2048,"rms_norm_eps":1e-5,"hidden_act":"silu",
    "rope_theta":10000.0}"#;

/// A tiny random model whose context is longer than one pass.
pub(crate) fn long(dir: &Path) -> Engine {
    Engine::load(options(&tiny(dir, |_, _| ()))).unwrap()
}

/// Writes the tiny model, after `edit` has changed the values of each named tensor.
pub(crate) fn tiny(dir: &Path, edit: impl Fn(&str, &mut [f32])) -> PathBuf {
    tiny_of(LONG, dir, edit)
}

/// Writes a tiny model with this configuration.
pub(crate) fn tiny_of(text: &str, dir: &Path, edit: impl Fn(&str, &mut [f32])) -> PathBuf {
    let config = ConfigFile::from_bytes("config.json", text.as_bytes()).unwrap();
    let spec = (arch::find(&config).unwrap().spec)(&config).unwrap();
    let tensors = spec.tensors();
    let files: Vec<_> = tensors
        .iter()
        .map(|t| TensorDeclaration::new(spec.prefixed(&t.name), Dtype::F32, t.shape.clone()))
        .collect();
    let to = dir.join("long");
    let mut writer = DirWriter::create(&to).unwrap();
    writer.write("config.json", text.as_bytes()).unwrap();
    let mut state = 1u64;
    writer
        .safetensors("model.safetensors", &files, |out| {
            for tensor in &tensors {
                let mut values: Vec<f32> = (0..tensor.shape.iter().product::<usize>())
                    .map(|_| {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let x = (state >> 40) as f32 / 8_388_608.0 - 1.0;
                        if tensor.role == Role::Scale { 1.0 + 0.1 * x } else { 0.3 * x }
                    })
                    .collect();
                edit(&tensor.name, &mut values);
                out.write_f32(&values)?;
            }
            Ok(())
        })
        .unwrap();
    writer.finish().unwrap();
    to
}

/// A memory budget of `pages` pages of keys and values; for a model that fills masks, canvases of `canvas` tokens get the same
/// amount.
pub(crate) fn budget(info: &ModelInfo, pages: u64, canvas: u64) -> u64 {
    let kv = pages * PAGE_TOKENS as u64 * info.kv_bytes_per_token;
    let canvases = info.activation_bytes + 2 * canvas * info.activation_bytes_per_row;
    let room = if info.objective == Objective::NEXT { kv } else { 2 * kv.max(canvases) };
    info.weight_bytes + info.activation_bytes + room
}

pub(crate) fn text(s: &str) -> Prompt {
    Prompt::Text(s.into())
}

pub(crate) fn ids(ids: &[i64]) -> Prompt {
    Prompt::Ids(ids.to_vec())
}

/// A score request with defaults.
pub(crate) fn request(query: Prompt, items: Vec<Prompt>, labels: Vec<Label>) -> ScoreRequest {
    ScoreRequest::new(query, items, labels)
}

/// The seed's example.
pub(crate) fn pledge() -> ScoreRequest {
    let items = [" to", " of", " for"].map(text).to_vec();
    let labels = [" the", " a", " his"].map(|l| Label::Text(l.into())).to_vec();
    request(text("I pledge allegiance"), items, labels)
}

pub(crate) fn scores(outcome: &ScoreOutcome) -> Vec<Vec<f32>> {
    outcome.items.iter().map(|i| i.as_ref().unwrap().scores.clone()).collect()
}

pub(crate) fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

pub(crate) fn generation(prompt: Prompt, max_new_tokens: usize) -> GenerateRequest {
    GenerateRequest { ignore_eos: true, ..GenerateRequest::new(prompt, max_new_tokens) }
}

/// The error's text with its hint; panics if there is none.
pub(crate) fn refusal<T>(result: Result<T, EngineError>) -> String {
    match result {
        Ok(_) => panic!("accepted"),
        Err(e) => format!("{e}\nhint: {}", e.hint().map(|hint| hint.to_string()).unwrap_or_default()),
    }
}

/// A prompt of varied ids below 290.
pub(crate) fn prompt(first: i64, length: i64) -> Vec<i64> {
    (0..length).map(|i| (first + 7 * i + i * i / 9) % 290).collect()
}

/// The ids, and the number of cached tokens.
pub(crate) fn generate(engine: &Engine, prompt: &[i64], new: usize) -> (Vec<u32>, usize) {
    let outcome = engine.generate(generation(ids(prompt), new), &Cancel::new(), &mut |_| ()).unwrap();
    (outcome.token_ids, outcome.usage.cached_tokens)
}

/// Items and labels of several lengths after one query.
pub(crate) fn asking(first: i64) -> ScoreRequest {
    let items = [40, 100, 1, 100].map(|length| ids(&prompt(length, length))).to_vec();
    let labels = vec![Label::Ids(vec![1]), Label::Ids(vec![2, 3, 9]), Label::Ids(vec![40])];
    ScoreRequest { long_labels: LongLabels::Sum, ..ScoreRequest::new(ids(&prompt(first, 90)), items, labels) }
}

/// The bits of the scores of [`asking`].
pub(crate) fn score(engine: &Engine, first: i64) -> Vec<Vec<u32>> {
    bits(&scores(&engine.score(asking(first)).unwrap()))
}

/// The ids of all continuations.
pub(crate) fn continuations(outcome: GenerateOutcome) -> Vec<Vec<u32>> {
    let others = outcome.others.into_iter().map(|one| one.token_ids);
    std::iter::once(outcome.token_ids).chain(others).collect()
}
