//! Written tensors are read back unchanged, for all names, shapes, formats and chunk sizes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use redline_weights::{
    Checkpoint, DirWriter, Dtype, SafetensorsWriter, TensorDeclaration, bf16_to_f32, f16_to_f32,
    f32_to_bf16_rne, f32_to_f16_rne,
};

/// A tensor with values that are finite in its format.
fn tensor() -> impl Strategy<Value = (Dtype, Vec<usize>, Vec<f32>)> {
    let dtype = prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::BF16]);
    (dtype, prop::collection::vec(0usize..6, 0..5)).prop_flat_map(|(dtype, shape)| {
        let limit = if dtype == Dtype::F16 { 65519.0f32 } else { 3.3e38 };
        let value =
            prop_oneof![-limit..limit, -1.0f32..1.0, -1e-6f32..1e-6, Just(-0.0), Just(f32::from_bits(1))];
        let elements: usize = shape.iter().product();
        (Just(dtype), Just(shape), prop::collection::vec(value, elements))
    })
}

fn model() -> impl Strategy<Value = BTreeMap<String, (Dtype, Vec<usize>, Vec<f32>)>> {
    prop::collection::btree_map("[a-z.\"\\\\\u{1}é\u{1F600}_]{1,12}", tensor(), 0..6)
}

fn rounded(dtype: Dtype, value: f32) -> f32 {
    match dtype {
        Dtype::F32 => value,
        Dtype::F16 => f16_to_f32(f32_to_f16_rne(value)),
        Dtype::BF16 => bf16_to_f32(f32_to_bf16_rne(value)),
    }
}

proptest! {
    #[test]
    fn written_is_read_back(model in model(), chunk in 1usize..9) {
        let specs: Vec<_> = model
            .iter()
            .map(|(name, (dtype, shape, _))| TensorDeclaration::new(name, *dtype, &shape[..]))
            .collect();
        let mut writer = SafetensorsWriter::new(Vec::new(), &specs).unwrap();
        for (name, (_, _, values)) in &model {
            writer.tensor_f32(name, values.chunks(chunk)).unwrap();
        }
        let bytes = writer.finish().unwrap();

        let dir = tempfile::tempdir().unwrap();
        let mut directory = DirWriter::create(&dir.path().join("model")).unwrap();
        directory.write("model.safetensors", &bytes).unwrap();
        directory.finish().unwrap();
        let from_file = Checkpoint::open(&dir.path().join("model")).unwrap();
        let from_memory = Checkpoint::from_bytes("memory", bytes.leak()).unwrap();
        for checkpoint in [from_file, from_memory] {
            prop_assert!(checkpoint.names().eq(model.keys()));
            for (name, (dtype, shape, values)) in &model {
                let info = checkpoint.require(name, shape).unwrap();
                prop_assert_eq!(info.dtype.float(), Some(*dtype));
                let mut read = vec![f32::NAN; values.len()];
                checkpoint.read_f32(name, &mut read).unwrap();
                for (read, value) in read.iter().zip(values) {
                    prop_assert_eq!(read.to_bits(), rounded(*dtype, *value).to_bits());
                }
            }
        }
    }
}
