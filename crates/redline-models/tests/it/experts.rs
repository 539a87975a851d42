//! Mixtures of experts: what their configurations may say, what is read, and that the experts of other rows never show.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redline_kernels::op::activation::Gating;
use redline_kernels::op::exp::exp_in_place;
use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Matrix, Simd, Stopwatch};
use redline_models::activation::{Activation, ActivationId, ActivationName};
use redline_models::adapter;
use redline_models::plan::Site;
use redline_models::profile::Profile;
use redline_models::spec::{
    DecoderSpec, ExpertsSpec, LayerSpec, LinearSpec, MlpSpec, PartSpec, SharedExpertSpec, WeightingSpec,
};
use redline_models::step::Watchers;
use redline_models::{
    ConvertOptions, LoadOptions, Loader, ModelFiles, Weights, arch, convert, gguf_config, load,
};
use redline_weights::{
    AdapterFiles, Checkpoint, ConfigFile, DirWriter, Dtype, Gguf, Infq, TensorDeclaration, WeightsError,
};
use serde_json::{Value, json};

use crate::reference::{Bench, bits, golden_root, nmse, on_team, open, reference};
use redline_testing::gguf::Writer;

const GOLDENS: [&str; 7] =
    ["gpt-oss-a", "mixtral-a", "mixtral-b", "qwen2moe-a", "qwen2moe-b", "qwen3moe-a", "qwen3moe-b"];

fn config(golden: &str, changes: &Value) -> ConfigFile {
    let file = golden_root().join(golden).join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap()
}

fn spec(golden: &str, changes: &Value) -> Result<DecoderSpec, String> {
    arch::specification(&config(golden, changes)).map(|(_, spec)| spec).map_err(|error| error.to_string())
}

/// Whether the weights of a row's experts are divided by their sum.
fn sums_to_one(experts: &ExpertsSpec) -> bool {
    match experts.weighting {
        WeightingSpec::Softmax { normalise, .. } => normalise,
        WeightingSpec::Sigmoid { .. } => panic!("weights are sigmoids"),
    }
}

/// Number of experts of a layer and of a row, and whether weights are normalised; `None` for a dense layer.
fn mixtures(spec: &DecoderSpec) -> Vec<Option<(usize, usize, bool)>> {
    let of = |experts: &ExpertsSpec| (experts.experts.len(), experts.top_k, sums_to_one(experts));
    spec.layers.iter().map(|layer| layer.mlp.experts().map(of)).collect()
}

#[test]
fn configurations_decide_which_layers_have_experts() {
    let of = |golden, changes| mixtures(&spec(golden, &changes).unwrap());
    assert_eq!(of("qwen3moe-a", json!({})), [Some((8, 3, true)); 2]);
    assert_eq!(of("qwen2moe-b", json!({})), [None, Some((5, 3, true)), Some((5, 3, true))]);
    assert_eq!(of("qwen3moe-b", json!({})), [None, Some((17, 4, false))]);
    let every = Some((17, 4, false));
    assert_eq!(of("qwen3moe-b", json!({"decoder_sparse_step": 1})), [every, every]);
    assert_eq!(of("qwen3moe-b", json!({"decoder_sparse_step": null, "mlp_only_layers": [1]})), [every, None]);
    assert_eq!(of("qwen2moe-a", json!({"norm_topk_prob": null}))[0], Some((6, 2, false)));
    assert_eq!(of("mixtral-a", json!({})), [Some((4, 2, true)); 2]);
    // Keys that some published models have besides.
    let more = json!({"use_qk_norm": true, "qkv_bias": false, "shared_expert_intermediate_size": 0});
    assert_eq!(of("qwen3moe-a", more)[0], Some((8, 3, true)));
    // Both spellings of the number, as transformers 4 and 5 write it.
    assert_eq!(of("qwen3moe-a", json!({"num_experts": 8}))[0], Some((8, 3, true)));
    let windows = |golden, changes| -> Vec<Option<usize>> {
        spec(golden, &changes).unwrap().layers.iter().map(|layer| layer.attention().unwrap().window).collect()
    };
    assert_eq!(windows("qwen3moe-b", json!({})), [Some(14); 2]);
    let four = json!({"num_hidden_layers": 4, "use_sliding_window": true, "max_window_layers": 3});
    assert_eq!(windows("qwen2moe-a", four), [Some(12), None, Some(12), None]);
    assert_eq!(windows("mixtral-b", json!({})), [Some(12); 2]);
}

#[test]
fn configurations_say_how_sigmoids_route() {
    let of = |golden, changes| -> Vec<Option<(bool, Option<f32>, f32)>> {
        let routing = |experts: &ExpertsSpec| match &experts.weighting {
            WeightingSpec::Sigmoid { correction, epsilon, scale } => (correction.is_some(), *epsilon, *scale),
            other @ WeightingSpec::Softmax { .. } => panic!("{other:?}"),
        };
        let spec = spec(golden, &changes).unwrap();
        spec.layers.iter().map(|layer| layer.mlp.experts().map(routing)).collect()
    };
    let scaled = Some((true, Some(1e-20), 1.8));
    assert_eq!(of("nemotron-h-a", json!({})), [None, scaled, None, None, None, scaled]);
    let other = json!({"norm_topk_prob": false, "routed_scaling_factor": null});
    assert_eq!(of("nemotron-h-a", other)[1], Some((true, None, 1.0)));
    let plain = Some((false, None, 0.75));
    let corrected = Some((true, Some(1e-6), 1.0));
    assert_eq!(of("lfm2moe-a", json!({})), [None, plain, plain]);
    assert_eq!(of("lfm2moe-b", json!({})), [None, corrected]);
    assert_eq!(of("lfm2moe-b", json!({"num_dense_layers": 0})), [corrected; 2]);
    assert_eq!(of("lfm2moe-b", json!({"num_dense_layers": 2})), [None; 2]);
    let unsaid = json!({"use_expert_bias": null, "norm_topk_prob": null, "routed_scaling_factor": null});
    assert_eq!(of("lfm2moe-b", unsaid), [None, corrected]);
}

#[test]
fn contradictions_are_refused_by_name() {
    for (golden, changes, names) in [
        ("qwen3moe-a", json!({"num_experts_per_tok": 9}), ["num_experts_per_tok", "more than"]),
        ("qwen3moe-a", json!({"num_experts_per_tok": 0}), ["num_experts_per_tok", "from 1"]),
        ("qwen3moe-b", json!({"num_experts": 0}), ["num_experts", "from 1 to 4096"]),
        ("qwen3moe-b", json!({"num_experts": 5000}), ["num_experts", "from 1 to 4096"]),
        ("qwen3moe-b", json!({"num_local_experts": 16}), ["num_local_experts", "`17`, as in `num_experts`"]),
        ("qwen3moe-b", json!({"decoder_sparse_step": 0}), ["decoder_sparse_step", "at least 1"]),
        ("qwen3moe-b", json!({"moe_intermediate_size": 0}), ["moe_intermediate_size", "from 1"]),
        (
            "qwen3moe-b",
            json!({"shared_expert_intermediate_size": 8}),
            ["shared_expert_", "this architecture"],
        ),
        (
            "qwen3moe-b",
            json!({"layer_types": ["full_attention", "full_attention"]}),
            ["layer_types", "this architecture"],
        ),
        ("qwen3moe-b", json!({"routed_scaling_factor": 2.5}), ["routed_scaling_factor", "`1`"]),
        ("qwen2moe-a", json!({"num_local_experts": 6}), ["num_local_experts", "this architecture"]),
        ("qwen2moe-a", json!({"shared_expert_intermediate_size": 0}), ["shared_expert_", "from 1"]),
        ("lfm2moe-b", json!({"num_experts_per_tok": 6}), ["num_experts_per_tok", "more than"]),
        ("lfm2moe-b", json!({"intermediate_size": 0}), ["intermediate_size", "from 1"]),
        ("lfm2moe-b", json!({"num_local_experts": 5}), ["num_local_experts", "this architecture"]),
        ("mixtral-a", json!({"num_experts": 4}), ["num_experts", "this architecture"]),
        ("mixtral-a", json!({"n_shared_experts": 1}), ["n_shared_experts", "`0`"]),
        ("mixtral-a", json!({"hidden_act": "gelu"}), ["hidden_act", "silu"]),
    ] {
        let message = spec(golden, &changes).map(|spec| mixtures(&spec)).expect_err(&changes.to_string());
        let missing = names.into_iter().find(|name| !message.contains(name));
        assert_eq!(missing, None, "{golden} {changes}: {message:?}");
    }
    let all = ["num_experts_per_tok", "moe_intermediate_size", "num_experts"].map(|key| ("qwen3moe-b", key));
    let of_lfm2 =
        ["num_experts_per_tok", "moe_intermediate_size", "num_dense_layers"].map(|key| ("lfm2moe-b", key));
    for (golden, key) in all.into_iter().chain(of_lfm2) {
        let file = golden_root().join(golden).join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        config.as_object_mut().unwrap().remove(key);
        let config = ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap();
        let message = arch::specification(&config).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(key) && message.contains("missing"), "{message}");
    }
}

/// Writes a golden checkpoint with other values: `value` makes one of the name, the index and the value of before.
fn rewritten(golden: &str, to: &Path, value: impl Fn(&str, usize, f32) -> f32) -> PathBuf {
    let checkpoint = Checkpoint::open(&golden_root().join(golden)).unwrap();
    let names: Vec<&str> = checkpoint.names().collect();
    let shape = |name: &str| checkpoint.info(name).unwrap().shape.clone();
    let tensors: Vec<TensorDeclaration> =
        names.iter().map(|&name| TensorDeclaration::new(name, Dtype::F32, shape(name))).collect();
    let to = to.join("model");
    let mut writer = DirWriter::create(&to).unwrap();
    let config = std::fs::read(golden_root().join(golden).join("config.json")).unwrap();
    writer.write("config.json", &config).unwrap();
    let written = writer.safetensors("model.safetensors", &tensors, |out| {
        for name in names {
            let mut values = vec![0.0; checkpoint.info(name).unwrap().elements()];
            checkpoint.read_f32(name, &mut values)?;
            let values: Vec<f32> = values.iter().enumerate().map(|(i, x)| value(name, i, *x)).collect();
            out.write_f32(&values)?;
        }
        Ok::<_, WeightsError>(())
    });
    written.unwrap();
    writer.finish().unwrap();
    to
}

/// With routers of zeros, every row goes to the first experts: a pass of as many rows as the arena holds, and each sequence alone.
#[test]
fn all_rows_may_go_to_the_same_experts() {
    for golden in GOLDENS {
        let folder = tempfile::tempdir().unwrap();
        let routers = ["mlp.gate.weight", "moe.gate.weight", "mlp.router.weight"];
        let is_router = |name: &str| routers.iter().any(|router| name.ends_with(router));
        let dir = rewritten(golden, folder.path(), |name, _, x| if is_router(name) { 0.0 } else { x });
        for format in [Format::F32, Format::Bf16, Format::W4 { group: 32 }] {
            let mut bench = Bench::new(open(&dir, Some(format)), KvFormat::Bf16, Simd::best(), 2);
            let prompts: Vec<Vec<u32>> =
                (0..3).map(|i| (0..100).map(|token| (token * 7 + i * 31) % 131).collect()).collect();
            let parts: Vec<_> = prompts.iter().map(|prompt| (bench.sequence(), &prompt[..])).collect();
            let together = bench.pass(&parts);
            for (prompt, rows) in prompts.iter().zip(together.chunks(100)) {
                let alone = bench.sequence();
                assert!(bits(&bench.pass(&[(alone, prompt)])) == bits(rows), "{golden} {format}");
            }
        }
    }
}

/// An expert of all rows but one has copies of them, which is the most that a pass can need.
#[test]
fn the_arena_holds_an_expert_with_all_rows_but_one() {
    for golden in GOLDENS {
        for format in [Format::F32, Format::W8 { group: 0 }] {
            let model = open(&golden_root().join(golden), Some(format));
            let mut bench = Bench::new(model, KvFormat::Bf16, Simd::best(), 2);
            // Equal tokens at the same position go to the same experts.
            let tokens: Vec<[u32; 1]> = (0..100).map(|i| [if i == 40 { 7 } else { 100 }]).collect();
            let parts: Vec<_> = tokens.iter().map(|token| (bench.sequence(), &token[..])).collect();
            bench.exact_pass(&parts);
        }
    }
}

/// A group of experts needs memory for all of its rows.
#[test]
fn the_arena_holds_a_group_of_experts() {
    for golden in GOLDENS {
        for format in [Format::W8 { group: 32 }, Format::W4 { group: 32 }] {
            for count in [1, 2, 9, 33] {
                let model = open(&golden_root().join(golden), Some(format));
                let mut bench = Bench::new(model, KvFormat::Bf16, Simd::best(), 2);
                let tokens: Vec<u32> = (0..count).map(|i| i * 5 % 131).collect();
                let sequence = bench.sequence();
                bench.exact_pass(&[(sequence, &tokens)]);
            }
        }
    }
}

/// With several devices, experts run one after the other.
#[test]
fn grouped_experts_have_the_bits_of_experts_in_turn() {
    for golden in GOLDENS {
        for format in [Format::W8 { group: 0 }, Format::W8 { group: 32 }, Format::W4 { group: 64 }] {
            let runs = [1, 2].map(|devices| {
                let model = open(&golden_root().join(golden), Some(format));
                let mut bench = Bench::new(model, KvFormat::Bf16, Simd::best(), 2).on_devices(devices);
                let (mut logits, mut layers) = (Vec::new(), 0);
                for count in [1, 2, 7, 40] {
                    let tokens: Vec<u32> = (0..count).map(|i| (i * 17 + count) % 131).collect();
                    let clock = Arc::new(|| 0);
                    let mut profile = Profile::new(Arc::new(Stopwatch::new(clock, 2, 10_000)), 10_000);
                    profile.begin_pass();
                    let watchers = Watchers { profile: Some(&mut profile), ..Watchers::default() };
                    let sequence = bench.sequence();
                    logits.extend(bench.watched_pass(&[(sequence, &tokens)], watchers));
                    let operations = profile.spans().iter().filter_map(|span| span.operation);
                    layers += operations.filter(|operation| operation.name == "linear_grouped").count();
                }
                (bits(&logits), layers)
            });
            let [(together, layers), (in_turn, none)] = runs;
            assert!(layers > 0 && none == 0, "{golden} {format}: {layers} and {none} grouped layers");
            assert!(together == in_turn, "{golden} {format}");
        }
    }
}

fn values(checkpoint: &Checkpoint, name: &str) -> Vec<f32> {
    let name = format!("model.{name}");
    let mut values = vec![0.0; checkpoint.info(&name).unwrap().elements()];
    checkpoint.read_f32(&name, &mut values).unwrap();
    values
}

/// The f32 weights of a projection, `[outputs, inputs]`, and its biases.
fn weights(checkpoint: &Checkpoint, inputs: usize, part: &PartSpec) -> (Vec<f32>, Vec<f32>) {
    let Some(stack) = &part.stack else {
        let bias = if part.bias { values(checkpoint, &part.bias_name()) } else { vec![0.0; part.outputs] };
        return (values(checkpoint, &part.weight()), bias);
    };
    // `[experts, inputs, outputs]` and `[experts, outputs]`, where the outputs of the parts alternate.
    let (lane, step) = stack.alternating;
    let width = part.outputs * step;
    let whole = values(checkpoint, &stack.weight);
    let column = |output: usize| {
        let at = stack.expert.unwrap().0 * inputs * width + lane + output * step;
        whole[at..].iter().step_by(width).take(inputs).copied().collect::<Vec<f32>>()
    };
    let bias = values(checkpoint, &stack.bias);
    let bias =
        bias[stack.expert.unwrap().0 * width + lane..].iter().step_by(step).take(part.outputs).copied();
    ((0..part.outputs).flat_map(column).collect(), bias.collect())
}

/// A linear layer in its documented order.
fn linear(checkpoint: &Checkpoint, spec: &LinearSpec, x: &[f32]) -> Vec<f32> {
    let mut outputs = Vec::new();
    for part in &spec.parts {
        let (weights, bias) = weights(checkpoint, x.len(), part);
        let dot = |w: &[f32]| w.iter().zip(x).fold(0.0, |sum, (w, x)| w.mul_add(*x, sum));
        outputs.extend(weights.chunks(x.len()).zip(bias).map(|(w, bias)| dot(w) + bias));
    }
    outputs
}

fn exp(x: f32) -> f32 {
    let mut values = [x];
    exp_in_place(Simd::best(), &mut values);
    values[0]
}

fn expert(checkpoint: &Checkpoint, spec: &MlpSpec, x: &[f32]) -> Vec<f32> {
    let gate_up = linear(checkpoint, &spec.up, x);
    let (gate, up) = gate_up.split_at(gate_up.len() / 2);
    let gated = |(gate, up): (&f32, &f32)| match spec.gate.unwrap() {
        Gating::Clamped { alpha, limit } => {
            let (gate, up) = (gate.min(limit), up.min(limit).max(-limit));
            gate / (exp(-(gate * alpha)) + 1.0) * (up + 1.0)
        }
        Gating::Function(_) => gate / (exp(-gate) + 1.0) * up,
        Gating::ScaledSilu(_) => panic!("no factor of a gate"),
    };
    let hidden: Vec<f32> = gate.iter().zip(up).map(gated).collect();
    linear(checkpoint, &spec.down, &hidden)
}

/// A mixture by its definition: experts by (logit, id), their results summed by ascending id, the shared expert last.
fn mixture(checkpoint: &Checkpoint, spec: &ExpertsSpec, x: &[f32]) -> Vec<f32> {
    let logits = linear(checkpoint, &spec.router, x);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let powers: Vec<f32> = logits.iter().map(|logit| exp(logit - logits[order[0]])).collect();
    order.truncate(spec.top_k);
    order.sort_unstable();
    let counted = if sums_to_one(spec) { order.clone() } else { (0..logits.len()).collect() };
    let sum = counted.iter().fold(0.0, |sum, &id| sum + powers[id]);
    let mut output = vec![0f32; x.len()];
    let mut add = |mlp: &MlpSpec, weight: f32| {
        for (output, y) in output.iter_mut().zip(expert(checkpoint, mlp, x)) {
            *output = y.mul_add(weight, *output);
        }
    };
    for id in order {
        add(&spec.experts[id], powers[id] / sum);
    }
    if let Some(SharedExpertSpec { gate, mlp }) = &spec.shared {
        let logit = linear(checkpoint, gate.as_ref().unwrap(), x)[0];
        add(mlp, 1.0 / (exp(-logit) + 1.0));
    }
    output
}

#[test]
fn a_mixture_follows_its_order_to_the_bit() {
    for golden in GOLDENS {
        let (dir, spec) = (golden_root().join(golden), spec(golden, &json!({})).unwrap());
        let checkpoint = Checkpoint::open(&dir).unwrap();
        let prompt = reference(&dir).prompt;
        let mut bench = Bench::new(open(&dir, Some(Format::F32)), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let seen: RefCell<Vec<(ActivationId, Vec<Vec<f32>>)>> = RefCell::default();
        let see = |activation: Activation<'_>| {
            let rows = (0..activation.values.rows()).map(|r| activation.values.row(r).to_vec());
            seen.borrow_mut().push((activation.id, rows.collect()));
        };
        let watchers = Watchers { activations: Some(&see), ..Watchers::default() };
        bench.watched_pass(&[(sequence, &prompt)], watchers);
        let seen = seen.into_inner();
        let of = |layer, name| {
            let id = ActivationId { layer: Some(layer), name };
            &seen.iter().find(|(of, _)| *of == id).unwrap().1
        };
        let mut compared = 0;
        for (i, layer) in spec.layers.iter().enumerate() {
            let Some(experts) = layer.mlp.experts() else { continue };
            for (r, x) in of(i, ActivationName::MlpNorm).iter().enumerate() {
                assert_eq!(linear(&checkpoint, &experts.router, x), of(i, ActivationName::Router)[r]);
                let want = mixture(&checkpoint, experts, x);
                assert!(want == of(i, ActivationName::MlpOutput)[r], "{golden}: layer {i}, row {r}");
                compared += 1;
            }
        }
        assert!(compared >= prompt.len(), "{golden}");
    }
}

#[test]
fn routers_are_never_quantised() {
    for golden in GOLDENS {
        let dir = golden_root().join(golden);
        let routers = spec(golden, &json!({})).unwrap();
        let routers = routers.layers.iter().flat_map(LayerSpec::linears);
        let names: Vec<String> = routers
            .filter(|(site, _)| *site == Site::Router)
            .flat_map(|(_, linear)| linear.parts.iter().map(|part| format!("model.{}", part.weight())))
            .collect();
        for format in [Format::F32, Format::Bf16, Format::W8 { group: 0 }, Format::W4 { group: 32 }] {
            let kept = if format == Format::F32 { Format::F32 } else { Format::Bf16 };
            let model = open(&dir, Some(format));
            let (routers, experts) = (model.formats_at(Site::Router), model.formats_at(Site::ExpertUp));
            assert_eq!(routers, vec![kept; names.len()], "{golden} {format}");
            assert!(experts.iter().all(|of| *of == format) && model.facts().format == format, "{golden}");
            // The same in a converted directory, which loads to the same model.
            let folder = tempfile::tempdir().unwrap();
            let to = folder.path().join("converted");
            let options = ConvertOptions { format, outliers: 0.0 };
            on_team(|exec| convert(exec, &dir, &to, options, &mut |_| Ok(()))).unwrap();
            let infq = Infq::open(&to).unwrap();
            for name in &names {
                assert_eq!(infq.weight(name).unwrap().encoding, kept.name(), "{golden} {format} {name}");
            }
            let files = ModelFiles::open(&to).unwrap();
            let loader = Loader::new(files.config(), files.weights(), LoadOptions::default()).unwrap();
            assert_eq!(loader.footprint().weight_bytes(), model.weight_bytes(), "{golden} {format}");
            let prompt = reference(&dir).prompt;
            let run = |model| {
                let mut bench = Bench::new(model, KvFormat::Bf16, Simd::best(), 2);
                let sequence = bench.sequence();
                bits(&bench.pass(&[(sequence, &prompt)]))
            };
            assert!(run(open(&to, None)) == run(model), "{golden} {format}");
        }
    }
}

/// GGUF files hold all experts of a layer in one tensor, and routers as f32.
#[test]
fn experts_of_gguf_files_are_used_as_they_are_stored() {
    for (golden, routers) in [("qwen2moe-a", 4), ("qwen3moe-a", 2), ("lfm2moe-b", 1)] {
        let model = open(&golden_root().join(format!("gguf/{golden}.gguf")), None);
        assert_eq!(model.formats_at(Site::Router), vec![Format::F32; routers], "{golden}");
        let experts = model.formats_at(Site::ExpertDown);
        assert!(!experts.is_empty() && experts.iter().all(|format| *format == Format::Bf16), "{golden}");
        let want = reference(&golden_root().join(golden));
        let mut bench = Bench::new(model, KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let error = nmse(&bench.pass(&[(sequence, &want.prompt)]).concat(), &want.logits);
        assert!(error <= 1e-4, "{golden}: NMSE {error:e}");
    }
}

/// A GGUF file of one layer whose experts, and what they share a type with, are Q8_0.
fn quantised_gguf() -> Gguf {
    const KEYS: &[(&str, u32)] = &[
        ("context_length", 64),
        ("embedding_length", 32),
        ("block_count", 1),
        ("feed_forward_length", 48),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("expert_count", 5),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", 32),
    ];
    const TENSORS: &[(&str, &[u64], bool)] = &[
        ("token_embd", &[24, 32], false),
        ("blk.0.attn_norm", &[32], false),
        ("blk.0.attn_q", &[32, 32], false),
        ("blk.0.attn_q_norm", &[16], false),
        ("blk.0.attn_k", &[16, 32], false),
        ("blk.0.attn_k_norm", &[16], false),
        ("blk.0.attn_v", &[16, 32], false),
        ("blk.0.attn_output", &[32, 32], false),
        ("blk.0.ffn_norm", &[32], false),
        ("blk.0.ffn_gate_inp", &[5, 32], false),
        ("blk.0.ffn_gate_exps", &[5, 32, 32], true),
        ("blk.0.ffn_up_exps", &[5, 32, 32], true),
        ("blk.0.ffn_down_exps", &[5, 32, 32], true),
        ("output_norm", &[32], false),
    ];
    let mut writer = Writer::new().string("general.architecture", "qwen3moe");
    for (key, value) in KEYS {
        writer = writer.u32(&format!("qwen3moe.{key}"), *value);
    }
    let mut state = 1u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as i8
    };
    for (name, shape, quantised) in TENSORS {
        let values = shape.iter().product::<u64>() as usize;
        let data: Vec<u8> = if *quantised {
            // Blocks of 32: a scale of 2^-9 as f16, and the integers.
            (0..values / 32)
                .flat_map(|_| [0, 0x18].into_iter().chain((0..32).map(|_| byte() as u8)).collect::<Vec<_>>())
                .collect()
        } else {
            let value = |byte: i8| if name.ends_with("norm") { 1.0 } else { f32::from(byte) / 256.0 };
            (0..values).flat_map(|_| value(byte()).to_le_bytes()).collect()
        };
        writer = writer.tensor(&format!("{name}.weight"), shape, if *quantised { 8 } else { 0 }, &data);
    }
    Gguf::from_bytes("x.gguf", writer.finish().leak()).unwrap()
}

/// The integers of an expert are those of its part of the tensor.
#[test]
fn experts_of_gguf_files_are_used_as_their_integers() {
    let gguf = quantised_gguf();
    let config = gguf_config::config(&gguf).unwrap();
    let logits = |format| {
        let options = LoadOptions { format, ..LoadOptions::default() };
        let mut model = on_team(|exec| load(exec, &config, Weights::Gguf(&gguf), options)).unwrap();
        model.reserve_positions(64).unwrap();
        let formats = model.formats_at(Site::ExpertUp);
        assert!(formats.iter().all(|of| of.is_integer() == format.is_none()), "{formats:?}");
        let mut bench = Bench::new(model, KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        bench.pass(&[(sequence, &(0..24).collect::<Vec<u32>>())])
    };
    let (stored, exact) = (logits(None), logits(Some(Format::F32)));
    let error = nmse(&stored.concat(), &exact.concat());
    assert!(error > 0.0 && error < 1e-3, "NMSE {error:e}");
}

#[test]
fn a_token_reads_its_experts_only() {
    // mixtral-a: 48 values wide, four experts of 60, of which a token goes to two, 131 tokens, untied, two layers.
    let model = open(&golden_root().join("mixtral-a"), Some(Format::F32));
    let bytes = |rows, cols| Matrix::zeroed(Format::F32, rows, cols).unwrap().bytes() as u64;
    let (expert, router) = (3 * 48 * 60, 4 * 48);
    let of_expert = bytes(2 * 60, 48) + bytes(48, 60);
    let unread = model.weight_bytes() - model.bytes_per_token();
    assert_eq!(unread, bytes(131, 48) + 2 * 2 * of_expert);
    let (qkv, output) = (48 * (48 + 2 * 16), 48 * 48);
    let rest = output + router + 2 * expert;
    assert_eq!(model.operations().per_token, 2.0 * f64::from(2 * qkv + rest));
    assert_eq!(model.operations().per_output, 2.0 * f64::from(131 * 48 + rest));
    // One row goes to two of four, and of two rows the second finds half of its experts read.
    let experts = model.experts().unwrap();
    assert_eq!((experts.bytes, experts.share), (2 * 4 * of_expert, 0.5));
    let of = |rows| experts.read_bytes(rows) / experts.bytes as f64;
    assert_eq!([of(0.0), of(1.0), of(2.0)], [0.0, 0.5, 0.75]);
    assert_eq!((model.most_experts(), open(&golden_root().join("llama-b"), None).experts()), (4, None));
    // A shared expert is read by every token: 56 wide, six experts of 24, of which a token goes to two, and one of 40.
    let model = open(&golden_root().join("qwen2moe-a"), Some(Format::F32));
    let unread = model.weight_bytes() - model.bytes_per_token();
    assert_eq!(unread, bytes(131, 56) + 2 * 4 * (bytes(2 * 24, 56) + bytes(56, 24)));
}

/// Writes a PEFT adapter of rank 1 for one module.
fn write_adapter(dir: &Path, module: &str, (inputs, outputs): (usize, usize)) {
    let tensor = |end: &str, shape| {
        TensorDeclaration::new(format!("base_model.model.{module}.lora_{end}.weight"), Dtype::F32, shape)
    };
    let tensors = [tensor("A", vec![1, inputs]), tensor("B", vec![outputs, 1])];
    let config = json!({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": [module]});
    let mut writer = DirWriter::create(dir).unwrap();
    writer.write("adapter_config.json", config.to_string().as_bytes()).unwrap();
    let written = writer.safetensors("adapter_model.safetensors", &tensors, |out| {
        out.write_f32(&vec![0.5; inputs])?;
        out.write_f32(&vec![0.5; outputs])
    });
    written.unwrap();
    writer.finish().unwrap();
}

#[test]
fn adapters_change_attention_and_dense_layers_but_no_expert() {
    let base = spec("qwen2moe-b", &json!({})).unwrap();
    let read = |module: &str, shape| {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("adapter");
        write_adapter(&dir, module, shape);
        let read = adapter::read(&base, &AdapterFiles::open(&dir).unwrap(), 1);
        read.map(|adapter| adapter.modules.len()).map_err(|error| error.to_string())
    };
    assert_eq!(read("model.layers.0.self_attn.q_proj", (48, 48)), Ok(1));
    assert_eq!(read("model.layers.0.mlp.up_proj", (48, 72)), Ok(1));
    for (module, shape) in [
        ("model.layers.1.mlp.experts.3.up_proj", (48, 20)),
        ("model.layers.1.mlp.shared_expert.down_proj", (36, 48)),
        ("model.layers.2.mlp.gate", (48, 5)),
    ] {
        let message = read(module, shape).unwrap_err();
        assert!(message.contains(&format!("module `{module}`, which cannot be adapted")), "{message}");
    }
}
