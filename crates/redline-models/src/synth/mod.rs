//! Random-weight models of real shapes, written as ordinary Hugging Face directories: a machine can be measured before
//! any download.

mod blocks;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use redline_kernels::{Exec, Format};
use redline_weights::{
    Checkpoint, Checksum, DirWriter, Dtype, InfqWriter, SafetensorsWriter, StoredDtype, TensorDeclaration,
    WeightsError, bf16_to_f32, f32_to_bf16_rne,
};

use crate::convert::{Plan, Progress};
use crate::formats::Formats;
use crate::place::Place;
use crate::random::mix;
use crate::spec::{DecoderSpec, Role, StoredAs, StoredSpec, TensorSpec as Tensor};
use crate::tensors::Tensors;
use crate::{ModelError, packing};

use blocks::RandomBlocks;

pub use shapes::{SHAPES, Shape, find};

/// Number of values made at a time.
const CHUNK: usize = 1 << 16;

/// Writes a model of `shape` to `dir`, which must not exist or be empty: a Hugging Face directory, or for integer formats the
/// result of [`crate::convert()`]. What the shape's checkpoints hold in blocks of integers is in such blocks in any float format. Weights
/// are a pure function of shape, seed and tensor name; `tokenizer_json` is copied unchanged. `progress` is called again and again; its
/// error ends the work, and nothing is left of it.
pub fn write(
    exec: Exec<'_>,
    shape: &Shape,
    dir: &Path,
    format: Format,
    seed: u64,
    tokenizer_json: &[u8],
    progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let stored = if format.is_integer() { shape.format } else { format };
    let (dtype, torch) =
        if stored == Format::Bf16 { (Dtype::BF16, "bfloat16") } else { (Dtype::F32, "float32") };
    let config = format!(
        "{},\n  \"bos_token_id\": 0,\n  \"eos_token_id\": {},\n  \"torch_dtype\": \"{torch}\"\n}}\n",
        shape.config.trim_end_matches("\n}\n"),
        shape.eos
    );
    let generation = format!("{{\n  \"bos_token_id\": 0,\n  \"eos_token_id\": {}\n}}\n", shape.eos);
    let companions = [
        ("config.json", config.as_bytes()),
        ("generation_config.json", generation.as_bytes()),
        ("tokenizer.json", tokenizer_json),
    ];
    let spec = shape.spec()?;
    if format.is_integer() {
        let tensors = spec.tensors().into_iter().map(|t| (t.name.clone(), t)).collect();
        let random = Random { spec: &spec, tensors, stored, seed };
        return write_packed(exec, &random, format, dir, &companions, progress);
    }
    let tensors = in_file(&spec);
    let files: Vec<TensorDeclaration> = tensors.iter().map(|file| file.declare(&spec, dtype)).collect();
    let mut out = DirWriter::create(dir)?;
    for (name, bytes) in companions {
        out.write(name, bytes)?;
    }
    let total = tensors.iter().map(InFile::values).sum();
    let (mut done, mut ended) = (0, Ok(()));
    let written = out.safetensors("model.safetensors", &files, |writer| {
        tensors.iter().try_for_each(|tensor| {
            tensor.write(writer, seed, &mut |values| {
                done += values;
                ended = progress(Progress { done, total });
                // Ends the writing; the error itself is returned below.
                let end = |action| WeightsError::Io {
                    action,
                    path: dir.into(),
                    error: io::ErrorKind::Interrupted.into(),
                };
                if ended.is_ok() { Ok(()) } else { Err(end("write the weights")) }
            })
        })
    });
    ended?;
    written?;
    Ok(out.finish()?)
}

fn write_packed(
    exec: Exec<'_>,
    random: &Random<'_>,
    format: Format,
    dir: &Path,
    companions: &[(&str, &[u8])],
    progress: &mut dyn FnMut(Progress) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let spec = random.spec;
    let plan = Plan::new(spec, spec.names(|_| true), random, &Formats::one(spec, format), 0.0)?;
    let weights = plan.declare();
    let mut out = InfqWriter::create(dir, packing::scheme(format), weights)?;
    for (name, bytes) in companions {
        out.write_file(name, bytes)?;
    }
    plan.write(exec, random, &mut out, progress)?;
    let recipe: Vec<u8> = companions.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    Ok(out.finish(Checksum::of(&[&random.seed.to_le_bytes()[..], &recipe].concat()))?)
}

/// Writes a tensor. `written` is called with the number of values of each part.
pub(crate) fn write_tensor<W: io::Write>(
    writer: &mut SafetensorsWriter<W>,
    tensor: &Tensor,
    seed: u64,
    written: &mut dyn FnMut(u64) -> Result<(), WeightsError>,
) -> Result<(), WeightsError> {
    let elements: usize = tensor.shape.iter().product();
    let mut values = vec![0f32; CHUNK.min(elements)];
    for first in (0..elements).step_by(CHUNK) {
        let values = &mut values[..CHUNK.min(elements - first)];
        fill(tensor, seed, first, values);
        writer.write_f32(values)?;
        written(values.len() as u64)?;
    }
    Ok(())
}

/// A tensor of a file.
enum InFile {
    /// Floats.
    Floats(Tensor),
    /// The blocks of a matrix of four-bit floats.
    Blocks(Tensor),
    /// Their scales.
    Scales(Tensor),
}

/// The tensors of a checkpoint.
fn in_file(spec: &DecoderSpec) -> Vec<InFile> {
    let (mut files, mut wholes) = (Vec::new(), BTreeSet::new());
    for tensor in spec.tensors() {
        let Some(StoredSpec { name, slice, stored_as }) = &tensor.stored else {
            files.push(InFile::Floats(tensor));
            continue;
        };
        if wholes.insert(name.clone()) {
            let whole = Tensor { name: name.clone(), shape: slice.shape(&tensor.shape), ..tensor.clone() };
            match stored_as {
                StoredAs::Floats => files.push(InFile::Floats(whole)),
                StoredAs::Mxfp4 => files.extend([InFile::Blocks(whole.clone()), InFile::Scales(whole)]),
            }
        }
    }
    files
}

impl InFile {
    /// Number of values that are counted for it.
    fn values(&self) -> u64 {
        match self {
            Self::Floats(tensor) | Self::Blocks(tensor) => tensor.shape.iter().product::<usize>() as u64,
            Self::Scales(_) => 0,
        }
    }

    fn declare(&self, spec: &DecoderSpec, dtype: Dtype) -> TensorDeclaration {
        let (Self::Floats(Tensor { name, shape, .. })
        | Self::Blocks(Tensor { name, shape, .. })
        | Self::Scales(Tensor { name, shape, .. })) = self;
        let (name, mut shape) = (spec.prefixed(name), shape.clone());
        let [blocks, scales] = Checkpoint::block_tensors(&name);
        if let (Self::Blocks(_) | Self::Scales(_), Some(k)) = (self, shape.last_mut()) {
            *k /= 32;
        }
        match self {
            Self::Floats(_) => TensorDeclaration::new(name, dtype, shape),
            Self::Blocks(_) => TensorDeclaration::new(blocks, StoredDtype::U8, [&shape[..], &[16]].concat()),
            Self::Scales(_) => TensorDeclaration::new(scales, StoredDtype::U8, shape),
        }
    }

    fn write<W: io::Write>(
        &self,
        writer: &mut SafetensorsWriter<W>,
        seed: u64,
        written: &mut dyn FnMut(u64) -> Result<(), WeightsError>,
    ) -> Result<(), WeightsError> {
        let (tensor, of_byte, byte): (_, _, fn(RandomBlocks, usize) -> u8) = match self {
            Self::Floats(tensor) => return write_tensor(writer, tensor, seed, written),
            Self::Blocks(tensor) => (tensor, 2, RandomBlocks::pair),
            Self::Scales(tensor) => (tensor, 32, RandomBlocks::scale),
        };
        let random = random_blocks(tensor, seed);
        let count = tensor.shape.iter().product::<usize>() / of_byte;
        for first in (0..count).step_by(CHUNK) {
            let bytes: Vec<u8> = (first..count.min(first + CHUNK)).map(|i| byte(random, i)).collect();
            writer.write_raw(&bytes)?;
            written(if of_byte == 2 { 2 * bytes.len() as u64 } else { 0 })?;
        }
        Ok(())
    }
}

/// A random matrix of four-bit floats.
fn random_blocks(tensor: &Tensor, seed: u64) -> RandomBlocks {
    RandomBlocks { state: mix(seed ^ name_digest(&tensor.name)) }
}

/// The random tensors of a shape, as its checkpoint would hold them.
struct Random<'a> {
    spec: &'a DecoderSpec,
    tensors: BTreeMap<String, Tensor>,
    stored: Format,
    seed: u64,
}

impl Tensors for Random<'_> {
    fn read(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), ModelError> {
        let missing = || shapes::unknown(format!("with a tensor `{name}`"));
        let tensor = self.tensors.get(name).ok_or_else(missing)?;
        match &tensor.stored {
            None => fill(tensor, self.seed, first, out),
            Some(stored) => self.fill_part(tensor, stored, first, out),
        }
        if self.stored == Format::Bf16 {
            for value in out {
                *value = bf16_to_f32(f32_to_bf16_rne(*value));
            }
        }
        Ok(())
    }
}

impl Random<'_> {
    /// Values `first..` of a tensor that is a part of another one.
    fn fill_part(&self, tensor: &Tensor, stored: &StoredSpec, first: usize, out: &mut [f32]) {
        let StoredSpec { name, slice, stored_as } = stored;
        let place = Place { shape: tensor.shape.clone(), slice: Some(*slice), ..Place::default() };
        let whole = Tensor { name: name.clone(), shape: place.file_shape(), ..tensor.clone() };
        let blocks = random_blocks(&whole, self.seed);
        let filled = place.read(first, out, |at, to| {
            match stored_as {
                StoredAs::Floats => fill(&whole, self.seed, at, to),
                StoredAs::Mxfp4 => to.iter_mut().zip(at..).for_each(|(to, at)| *to = blocks.value(at)),
            }
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(()) = filled;
    }
}

/// Values `first..` of a tensor.
fn fill(tensor: &Tensor, seed: u64, first: usize, values: &mut [f32]) {
    // Weights with the spread of a usual initialisation; scales near one; small biases.
    let (centre, spread) = match tensor.role {
        Role::Weight => (0.0, 0.035),
        Role::Scale => (1.0, 0.1),
        Role::ScaleLessOne => (0.0, 0.1),
        Role::Bias => (0.0, 0.02),
        Role::Taps => (0.0, 0.5),
        Role::LogDecay => (0.0, 0.7),
        Role::Decay => (-1.0, 0.5),
    };
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let mut state = mix(seed ^ name_digest(&tensor.name)).wrapping_add(step.wrapping_mul(first as u64));
    for value in values {
        state = state.wrapping_add(step);
        // 24 bits give every step of a uniform f32 in [-1, 1).
        let uniform = (mix(state) >> 40) as f32 / 8_388_608.0 - 1.0;
        *value = uniform.mul_add(spread, centre);
    }
}

/// FNV-1a, 64 bits.
fn name_digest(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use redline_kernels::{Simd, Team};
    use redline_weights::{Checkpoint, ConfigFile, Infq};

    use super::*;

    #[test]
    fn a_tensor_has_the_same_values_in_parts() {
        let tensor =
            Tensor { name: "model.norm.weight".into(), shape: vec![3000], role: Role::Scale, stored: None };
        let mut whole = vec![0.0; 3000];
        fill(&tensor, 7, 0, &mut whole);
        let mut parts = vec![0.0; 3000];
        for (part, values) in parts.chunks_mut(700).enumerate() {
            fill(&tensor, 7, part * 700, values);
        }
        assert_eq!(parts, whole);
        assert_ne!(whole[..700], whole[700..1400]);
    }

    /// A shape's weights are the same in every version, so that measurements of two versions can be compared.
    #[test]
    fn values_are_those_of_every_version() {
        for (name, role, first, bits) in [
            ("model.embed_tokens.weight", Role::Weight, 0, [0xbbc2_ea11_u32, 0x3c51_aac6, 0xbc0c_bf6f]),
            ("model.norm.weight", Role::Scale, 70_000, [0x3f7b_e938, 0x3f6f_bb59, 0x3f87_e485]),
            ("h.0.attn.c_attn.bias", Role::Bias, 5, [0x3bd7_c880, 0xbc3b_37cf, 0x3bee_eacc]),
        ] {
            let tensor = Tensor { name: name.into(), shape: vec![100_000], role, stored: None };
            let mut values = [0.0; 3];
            fill(&tensor, 7, first, &mut values);
            assert_eq!(values.map(f32::to_bits), bits, "{name}");
        }
    }

    const TINY: Shape = Shape {
        name: "tiny",
        vocab: 160,
        eos: 3,
        format: Format::F32,
        config: r#"{
  "architectures": ["Qwen2ForCausalLM"],
  "vocab_size": 160, "max_position_embeddings": 64, "hidden_size": 32, "intermediate_size": 48,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
  "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false
}
"#,
    };

    const STACKED: Shape = Shape {
        name: "stacked",
        config: r#"{
  "architectures": ["GptOssForCausalLM"],
  "vocab_size": 160, "max_position_embeddings": 64, "hidden_size": 64, "intermediate_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 3,
  "num_experts_per_tok": 2, "sliding_window": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
  "quantization_config": {"quant_method": "mxfp4"}
}
"#,
        ..TINY
    };

    fn on_team(work: impl FnOnce(Exec<'_>)) {
        work(Exec { simd: Simd::best(), team: &Team::new(1).unwrap() });
    }

    fn written(shape: &Shape, to: &Path, format: Format, seed: u64) {
        on_team(|exec| write(exec, shape, to, format, seed, b"{}", &mut |_| Ok(())).unwrap());
    }

    /// Names, shapes and values of a checkpoint.
    fn values(dir: &Path) -> BTreeMap<String, Vec<f32>> {
        let checkpoint = Checkpoint::open(dir).unwrap();
        let spec = TINY.spec().unwrap();
        let tensor = |tensor: &Tensor| {
            let mut values = vec![0.0; tensor.shape.iter().product()];
            checkpoint.read_f32(&spec.prefixed(&tensor.name), &mut values).unwrap();
            (tensor.name.clone(), values)
        };
        spec.tensors().iter().map(tensor).collect()
    }

    #[test]
    fn an_error_of_the_progress_ends_the_writing_and_leaves_nothing() {
        for format in [Format::F32, Format::W8 { group: 0 }] {
            let folder = tempfile::tempdir().unwrap();
            let mut calls = 0;
            let mut progress = |progress: Progress| {
                calls += 1;
                assert!(progress.done <= progress.total && !folder.path().join("to").exists());
                if calls == 2 { Err(ModelError::Cancelled) } else { Ok(()) }
            };
            on_team(|exec| {
                let to = folder.path().join("to");
                let written = write(exec, &TINY, &to, format, 0, b"{}", &mut progress);
                assert!(matches!(written, Err(ModelError::Cancelled)), "{format:?}");
            });
            assert_eq!(calls, 2);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{format:?}");
        }
    }

    #[test]
    fn a_written_model_has_its_shape_and_depends_on_the_seed() {
        let folder = tempfile::tempdir().unwrap();
        let dir = |name: &str| folder.path().join(name);
        for (name, format, seed) in [
            ("f32", Format::F32, 1),
            ("again", Format::F32, 1),
            ("other", Format::F32, 2),
            ("bf16", Format::Bf16, 1),
        ] {
            written(&TINY, &dir(name), format, seed);
        }
        let (f32s, bf16s) = (values(&dir("f32")), values(&dir("bf16")));
        assert_eq!(f32s, values(&dir("again")));
        for (name, of) in &values(&dir("other")) {
            assert_ne!(of, &f32s[name], "{name} with another seed");
        }
        for (name, of) in &f32s {
            let rounded: Vec<f32> = of.iter().map(|&x| bf16_to_f32(f32_to_bf16_rne(x))).collect();
            assert_eq!(rounded, bf16s[name], "{name} in bf16");
            assert!(of.windows(2).all(|pair| pair[0] != pair[1]), "{name} repeats a value");
            let (centre, spread) = match name {
                _ if name.ends_with("norm.weight") => (1.0, 0.1),
                _ if name.ends_with("bias") => (0.0, 0.02),
                _ => (0.0, 0.035),
            };
            assert!(of.iter().all(|x| (x - centre).abs() <= spread * 1.0001), "{name}");
            assert!(of.iter().any(|x| (x - centre).abs() > spread * 0.7), "{name}");
        }
        let config = ConfigFile::open(&dir("bf16").join("config.json")).unwrap();
        assert_eq!(
            (config.opt_str("torch_dtype").unwrap(), config.ids("eos_token_id").unwrap()),
            (Some("bfloat16"), vec![3])
        );
        let generation = ConfigFile::open(&dir("f32").join("generation_config.json")).unwrap();
        assert_eq!(
            (generation.ids("bos_token_id").unwrap(), generation.ids("eos_token_id").unwrap()),
            (vec![0], vec![3])
        );
        assert_eq!(std::fs::read(dir("f32").join("tokenizer.json")).unwrap(), b"{}");
    }

    /// A packed model is what `convert` makes of the checkpoint in the shape's own format.
    #[test]
    fn a_packed_model_is_the_converted_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let dir = |name: &str| folder.path().join(name);
        for (of, stored) in [(TINY, Format::F32), (TINY, Format::Bf16), (STACKED, Format::Bf16)] {
            let shape = Shape { format: stored, ..of };
            for format in [Format::W8 { group: 128 }, Format::W4 { group: 32 }] {
                let name = |what: &str| format!("{what} {} {stored}", shape.name);
                let (plain, packed, converted) =
                    (name("plain"), name(&format!("packed {format}")), name(&format!("converted {format}")));
                if !dir(&plain).exists() {
                    written(&shape, &dir(&plain), stored, 9);
                }
                written(&shape, &dir(&packed), format, 9);
                let options = crate::ConvertOptions { format, outliers: 0.0 };
                let (from, to) = (dir(&plain), dir(&converted));
                on_team(|exec| crate::convert(exec, &from, &to, options, &mut |_| Ok(())).unwrap());
                for name in ["model.safetensors", "config.json", "generation_config.json", "tokenizer.json"] {
                    let read = |of: &str| std::fs::read(dir(of).join(name)).unwrap();
                    assert!(read(&packed) == read(&converted), "{name} of {packed}");
                }
            }
        }
    }

    #[test]
    fn the_source_of_a_packed_model_is_its_shape_and_seed() {
        let folder = tempfile::tempdir().unwrap();
        let source = |name: &str, shape: &Shape, seed: u64| {
            let to = folder.path().join(name);
            written(shape, &to, Format::W8 { group: 128 }, seed);
            Infq::open(&to).unwrap().source()
        };
        let first = source("first", &TINY, 1);
        assert_eq!(source("again", &TINY, 1), first);
        assert_ne!(source("another seed", &TINY, 2), first);
        assert_ne!(source("another shape", &Shape { eos: 4, ..TINY }, 1), first);
    }
}
