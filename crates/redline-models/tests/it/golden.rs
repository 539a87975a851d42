//! Logits and greedy ids of every architecture, compared with transformers in f32.

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};
use redline_weights::{Checkpoint, DirWriter, Dtype, TensorSpec};

use crate::reference::{Bench, argmax, goldens, nmse, open, reference};

#[test]
fn f32_logits_match_the_reference() {
    for dir in goldens() {
        let want = reference(&dir);
        let mut bench = Bench::new(open(&dir, Some(Format::F32)), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let got = bench.pass(&[(sequence, &want.prompt)]).concat();
        let error = nmse(&got, &want.logits);
        assert!(error <= 1e-9, "{}: NMSE {error:e}", dir.display());
    }
}

#[test]
fn greedy_ids_match_the_reference() {
    for dir in goldens() {
        let want = reference(&dir);
        let mut bench = Bench::new(open(&dir, Some(Format::F32)), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let mut next = argmax(bench.pass(&[(sequence, &want.prompt)]).last().unwrap());
        let mut ids = vec![next];
        while ids.len() < want.greedy.len() {
            next = argmax(&bench.pass(&[(sequence, &[next])])[0]);
            ids.push(next);
        }
        assert_eq!(ids, want.greedy, "{}", dir.display());
    }
}

#[test]
fn bf16_logits_stay_close_to_the_reference() {
    for dir in goldens() {
        let want = reference(&dir);
        for &kv in KvFormat::ALL {
            let mut bench = Bench::new(open(&dir, Some(Format::Bf16)), kv, Simd::best(), 2);
            let sequence = bench.sequence();
            let got = bench.pass(&[(sequence, &want.prompt)]).concat();
            let error = nmse(&got, &want.logits);
            assert!(error <= 1e-4, "{}: NMSE {error:e} with {} keys", dir.display(), kv.name());
        }
    }
}

/// Without a format of its own choice a model keeps that of its matrices: bf16 only if all have it.
#[test]
fn matrices_of_two_types_are_kept_as_f32() {
    let dir = goldens().into_iter().find(|dir| dir.ends_with("llama-b")).unwrap();
    let checkpoint = Checkpoint::open(&dir).unwrap();
    let load_with = |dtype: fn(&str) -> Dtype| {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = DirWriter::create(&folder.path().join("model")).unwrap();
        writer.write("config.json", &std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        let tensors: Vec<TensorSpec> = checkpoint
            .names()
            .map(|name| {
                TensorSpec::new(name.to_owned(), dtype(name), checkpoint.info(name).unwrap().shape.clone())
            })
            .collect();
        let written = writer.safetensors("model.safetensors", &tensors, |out| {
            for name in checkpoint.names() {
                let mut values = vec![0.0; checkpoint.info(name).unwrap().elements()];
                checkpoint.read_f32(name, &mut values)?;
                out.write_f32(&values)?;
            }
            Ok(())
        });
        written.unwrap();
        writer.finish().unwrap();
        open(&folder.path().join("model"), None).facts().format
    };
    assert_eq!(load_with(|_| Dtype::F32), Format::F32);
    assert_eq!(load_with(|_| Dtype::BF16), Format::Bf16);
    let norms = |name: &str| if name.contains("norm") { Dtype::F32 } else { Dtype::BF16 };
    assert_eq!(load_with(norms), Format::Bf16, "only matrices count");
    let one = |name: &str| if name.ends_with("1.mlp.down_proj.weight") { Dtype::F32 } else { Dtype::BF16 };
    assert_eq!(load_with(one), Format::F32);
    let rest = |name: &str| if name.ends_with("1.mlp.down_proj.weight") { Dtype::BF16 } else { Dtype::F32 };
    assert_eq!(load_with(rest), Format::F32);
}

#[test]
fn a_decoding_step_reads_everything_but_tables_that_are_no_head() {
    // Name, rows and columns of the lookup tables. llama-b, qwen3-a and gpt2-a are tied.
    for (name, rows, cols) in
        [("llama-a", 131u64, 72), ("llama-b", 0, 100), ("qwen3-a", 0, 72), ("gpt2-a", 80, 60)]
    {
        let dir = goldens().into_iter().find(|dir| dir.ends_with(name)).unwrap();
        let model = open(&dir, Some(Format::F32));
        let tables = model.weight_bytes() - model.bytes_per_token();
        // Rows and columns may be padded.
        let (least, most) = (rows * cols * 4, rows.next_multiple_of(16) * (cols + 4) * 4);
        assert!((least..=most).contains(&tables), "{name}: {tables} bytes, {least} to {most}");
    }
}
