//! Random-weight models of real shapes, written as ordinary Hugging Face directories: a machine can be measured before
//! any download.

mod shapes;

use std::path::Path;

use redline_kernels::Format;
use redline_weights::{ConfigFile, DirWriter, Dtype, SafetensorsWriter, TensorSpec, WeightsError};

use crate::spec::{Role, TensorSpec as Tensor};
use crate::{ModelError, arch};

pub use shapes::{SHAPES, Shape, find};

/// Values that are made at a time.
const CHUNK: usize = 1 << 16;

/// Writes a model of `shape` to `dir`, which must not exist or be empty. Weights are a pure function of shape, seed
/// and tensor name; `tokenizer_json` is copied as it is.
pub fn write(
    shape: &Shape,
    dir: &Path,
    format: Format,
    seed: u64,
    tokenizer_json: &[u8],
) -> Result<(), ModelError> {
    let dtype = match format {
        Format::F32 => Dtype::F32,
        Format::Bf16 => Dtype::BF16,
    };
    let torch = match format {
        Format::F32 => "float32",
        Format::Bf16 => "bfloat16",
    };
    let config = format!(
        "{{\n  {},\n  \"bos_token_id\": 0,\n  \"eos_token_id\": {},\n  \"torch_dtype\": \"{torch}\"\n}}\n",
        shape.config, shape.eos
    );
    let parsed = ConfigFile::from_bytes(shape.name, config.as_bytes())?;
    let spec = (arch::find(&parsed)?.spec)(&parsed)?;
    let tensors = spec.tensors();
    let files: Vec<TensorSpec> =
        tensors.iter().map(|t| TensorSpec::new(spec.prefixed(&t.name), dtype, t.shape.clone())).collect();
    let generation = format!("{{\n  \"bos_token_id\": 0,\n  \"eos_token_id\": {}\n}}\n", shape.eos);
    let mut out = DirWriter::create(dir)?;
    out.write("config.json", config.as_bytes())?;
    out.write("generation_config.json", generation.as_bytes())?;
    out.write("tokenizer.json", tokenizer_json)?;
    out.safetensors("model.safetensors", &files, |writer| {
        tensors.iter().try_for_each(|tensor| fill(writer, tensor, seed))
    })?;
    Ok(out.finish()?)
}

fn fill<W: std::io::Write>(
    writer: &mut SafetensorsWriter<W>,
    tensor: &Tensor,
    seed: u64,
) -> Result<(), WeightsError> {
    let mut state = mix(seed ^ name_digest(&tensor.name));
    // Weights spread as trained ones do at their start; scales near one; biases small.
    let (centre, spread) = match tensor.role {
        Role::Weight => (0.0, 0.035),
        Role::Scale => (1.0, 0.1),
        Role::Bias => (0.0, 0.02),
    };
    let mut left: usize = tensor.shape.iter().product();
    let mut values = vec![0f32; CHUNK.min(left)];
    while left > 0 {
        let now = CHUNK.min(left);
        for value in &mut values[..now] {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            // 24 bits give every step of a uniform f32 in [-1, 1).
            let uniform = (mix(state) >> 40) as f32 / 8_388_608.0 - 1.0;
            *value = uniform.mul_add(spread, centre);
        }
        writer.write_f32(&values[..now])?;
        left -= now;
    }
    Ok(())
}

/// FNV-1a, 64 bits.
fn name_digest(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
