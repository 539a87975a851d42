//! Models of made-up shapes: layers with different keys and values, rows with many experts.

use std::sync::Arc;

use redline_kernels::op::kv::{AttentionMask, KvFormat, PAGE_TOKENS};
use redline_kernels::{Exec, Format, Matrix, Simd, Team};
use redline_weights::ConfigFile;

use super::{Builder, WeightSource, model};
use crate::adapter::Adapters;
use crate::footprint::Footprint;
use crate::formats::Formats;
use crate::kv::KvCache;
use crate::model::{Batch, Model};
use crate::spec::{DecoderSpec, LinearSpec};
use crate::step::{Arena, Watchers};
use crate::tensors::{Tensors, pieces};
use crate::{ModelError, arch};

const HIDDEN: usize = 32;
const HEADS: usize = 4;
const HEAD_DIM: usize = 8;

/// Weights that depend on name and position. All KV heads of a layer are equal, so their number changes no result.
#[derive(Clone, Copy)]
struct MadeUp<'a>(Exec<'a>);

impl Tensors for MadeUp<'_> {
    fn read(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), ModelError> {
        let equal_heads = name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight");
        let period = if equal_heads { HEAD_DIM * HIDDEN } else { usize::MAX };
        let name = name.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
        for (i, value) in out.iter_mut().enumerate() {
            let place = ((first + i) % period) as u64;
            let bits = (name ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
            *value = (bits as f32 / 32768.0 - 1.0) * 0.5;
        }
        Ok(())
    }
}

impl WeightSource for MadeUp<'_> {
    fn matrix(&self, linear: &LinearSpec, format: Format) -> Result<Matrix, ModelError> {
        let mut matrix = Matrix::zeroed(format, linear.outputs(), linear.inputs)?;
        let mut first = 0;
        for part in &linear.parts {
            pieces(self, linear, part, |piece| {
                piece.pack(self.0, &mut matrix, first + piece.first);
                Ok(())
            })?;
            first += part.outputs;
        }
        Ok(matrix)
    }

    fn values(&self, name: &str, out: &mut [f32]) -> Result<(), ModelError> {
        self.read(name, 0, out)
    }
}

/// A Llama with the given number of KV heads in each layer.
fn llama(kv_heads: &[usize]) -> DecoderSpec {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "vocab_size": 40, "max_position_embeddings": 512, "hidden_act": "silu",
            "hidden_size": {HIDDEN}, "intermediate_size": 24, "num_hidden_layers": {}, "num_attention_heads": {HEADS},
            "num_key_value_heads": {HEADS}, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false}}"#,
        kv_heads.len()
    );
    let config = ConfigFile::from_bytes("config.json", json.as_bytes()).unwrap();
    let mut spec = (arch::find(&config).unwrap().spec)(&config).unwrap();
    for (layer, &kv_heads) in spec.layers.iter_mut().zip(kv_heads) {
        let attention = layer.mixer.attention_mut().unwrap();
        attention.kv_heads = kv_heads;
        for part in &mut attention.qkv.parts[1..] {
            part.outputs = kv_heads * HEAD_DIM;
        }
    }
    spec
}

fn build(exec: Exec<'_>, spec: DecoderSpec, format: Format) -> Model {
    let formats = Formats::one(&spec, format);
    let builder = Builder { spec: &spec, from: MadeUp(exec), formats: &formats };
    let pieces = (0..builder.pieces()).map(|i| builder.piece(i)).collect::<Result<_, _>>().unwrap();
    let parts = builder.assemble(exec, pieces).unwrap();
    let footprint = Footprint::new(&spec, &formats, |_, _| 0);
    model(spec, "made up", &formats, parts, footprint)
}

/// Bits of the logits of every token, run in pieces of `piece` tokens.
fn logits(exec: Exec<'_>, mut model: Model, format: KvFormat, piece: usize) -> Vec<u32> {
    model.reserve_positions(512).unwrap();
    let mut kv = KvCache::new(&model.page_shape(format), usize::MAX);
    let mut arena = Arena::new(model.arena_size(piece, piece)).unwrap();
    let sequence = kv.create();
    let tokens: Vec<u32> = (0..150).map(|i| i * 7 % 40).collect();
    let mut all = Vec::new();
    for tokens in tokens.chunks(piece) {
        kv.reserve(sequence, tokens.len()).unwrap();
        let mut batch = Batch::default();
        batch.push(sequence, kv.tokens(sequence), tokens, AttentionMask::Causal, Adapters::default());
        let rows: Vec<usize> = (0..tokens.len()).collect();
        model.run(exec, &mut arena, &mut kv, (&batch, &rows), None, Watchers::default(), |model, x, step| {
            let logits = model.logits(x, &rows, None, None, step);
            let values = step.read(logits);
            all.extend(rows.iter().flat_map(|&r| values.row(r)).map(|x| x.to_bits()));
        });
    }
    all
}

/// A row goes to more experts than a group can hold. With two devices, they run one after the other.
#[test]
fn a_row_may_go_to_more_experts_than_a_group_holds() {
    let json = format!(
        r#"{{"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 40, "max_position_embeddings": 512, "hidden_act": "silu",
            "hidden_size": {HIDDEN}, "intermediate_size": 24, "moe_intermediate_size": 32, "num_experts": 80, "num_experts_per_tok": 70,
            "num_hidden_layers": 2, "num_attention_heads": {HEADS}, "num_key_value_heads": {HEADS}, "head_dim": {HEAD_DIM},
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "norm_topk_prob": true, "tie_word_embeddings": false}}"#
    );
    let config = ConfigFile::from_bytes("config.json", json.as_bytes()).unwrap();
    let all = [1, 2].map(|devices| {
        let team = Team::with_devices(2, devices).unwrap();
        let exec = Exec { simd: Simd::best(), team: &team };
        let of = |piece| {
            let spec = (arch::find(&config).unwrap().spec)(&config).unwrap();
            logits(exec, build(exec, spec, Format::W8 { group: 32 }), KvFormat::Bf16, piece)
        };
        assert!(of(1) == of(40), "{devices} devices");
        of(1)
    });
    assert!(all[0] == all[1] && all[0].iter().all(|bits| f32::from_bits(*bits).is_finite()));
}

#[test]
fn layers_may_have_different_numbers_of_kv_heads() {
    let team = Team::new(2).unwrap();
    let exec = Exec { simd: Simd::best(), team: &team };
    for &format in KvFormat::ALL {
        let of = |kv_heads: &[usize]| build(exec, llama(kv_heads), Format::F32);
        let alike = logits(exec, of(&[4, 4, 4]), format, 150);
        assert!(alike.iter().all(|bits| f32::from_bits(*bits).is_finite()));
        for piece in [150, 40, 1] {
            assert!(logits(exec, of(&[4, 1, 2]), format, piece) == alike, "{format:?} in pieces of {piece}");
            assert!(logits(exec, of(&[1, 4, 4]), format, piece) == alike, "{format:?} in pieces of {piece}");
        }
    }
}

#[test]
fn every_layer_has_its_own_share_of_a_page() {
    let team = Team::new(1).unwrap();
    let exec = Exec { simd: Simd::best(), team: &team };
    let page = build(exec, llama(&[4, 1, 2]), Format::F32).page_shape(KvFormat::F32);
    assert_eq!(page.keys.iter().map(|shape| shape.kv_heads).collect::<Vec<_>>(), [4, 1, 2]);
    // Keys of 8 dimensions, and values padded to 16.
    assert_eq!(page.bytes(), (4 + 1 + 2) * PAGE_TOKENS * (8 + 16) * 4);
}

#[test]
fn a_model_has_a_window_if_all_of_its_layers_have_one() {
    let team = Team::new(1).unwrap();
    let mut model = build(Exec { simd: Simd::best(), team: &team }, llama(&[4, 4, 4]), Format::F32);
    let mut window_of = |windows: [Option<usize>; 3]| {
        let spec = Arc::get_mut(&mut model.spec).unwrap();
        spec.attentions_mut().zip(windows).for_each(|(attention, window)| attention.window = window);
        model.window()
    };
    assert_eq!(window_of([None; 3]), None);
    assert_eq!(window_of([Some(3), None, Some(5)]), None);
    assert_eq!(window_of([Some(3), Some(7), Some(5)]), Some(7));
}
