//! Converted models give the same logits as packing at load, and the same bytes for any tier and number of threads.

use std::path::Path;

use redline_kernels::{Exec, Format, Matrix, Simd, Team};
use redline_models::{ConvertOptions, LoadOptions, Model, ModelError, Weights, convert, load};
use redline_weights::{ConfigFile, Infq};

use crate::reference::{Bench, bits, goldens, kv, on_team, open, reference};

fn formats() -> Vec<Format> {
    let groups = |f: Format| f.groups().iter().filter_map(move |&g| f.with_group(g)).collect::<Vec<_>>();
    Format::ALL.iter().flat_map(|&f| if f.is_integer() { groups(f) } else { vec![f] }).collect()
}

fn make(exec: Exec<'_>, from: &Path, to: &Path, format: Format, outliers: f64) -> Result<(), ModelError> {
    convert(exec, from, to, ConvertOptions { format, outliers }, &mut |_| Ok(()))
}

fn load_packed(dir: &Path, options: LoadOptions) -> Result<Model, ModelError> {
    let config = ConfigFile::open(&dir.join("config.json")).unwrap();
    let infq = Infq::open(dir)?;
    on_team(|exec| load(exec, &config, Weights::Infq(&infq), options))
}

fn logits(mut model: Model, format: Format, prompt: &[u32]) -> Vec<u32> {
    model.reserve_positions(64).unwrap();
    let mut bench = Bench::new(model, kv(format), Simd::best(), 2);
    let sequence = bench.sequence();
    bits(&bench.pass(&[(sequence, prompt)]))
}

#[test]
fn a_converted_model_gives_the_logits_of_one_packed_at_load() {
    let work = tempfile::tempdir().unwrap();
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        for format in formats() {
            let to = work.path().join(format!("{}-{format}", dir.file_name().unwrap().display()));
            on_team(|exec| make(exec, &dir, &to, format, 0.0)).unwrap();
            let packed = load_packed(&to, LoadOptions::default()).unwrap();
            assert_eq!(packed.facts().format, format);
            let want = logits(open(&dir, Some(format)), format, &prompt);
            assert!(logits(packed, format, &prompt) == want, "{}", to.display());
        }
    }
}

#[test]
fn outlier_columns_survive_conversion() {
    let work = tempfile::tempdir().unwrap();
    for dir in goldens().into_iter().take(4) {
        let prompt = reference(&dir).prompt;
        let format = Format::W4 { group: 32 };
        let options = LoadOptions { format: Some(format), outliers: 0.1 };
        let to = work.path().join(dir.file_name().unwrap());
        on_team(|exec| make(exec, &dir, &to, format, 0.1)).unwrap();
        let config = ConfigFile::open(&dir.join("config.json")).unwrap();
        let checkpoint = redline_weights::Checkpoint::open(&dir).unwrap();
        let unpacked =
            on_team(|exec| load(exec, &config, Weights::Checkpoint(&checkpoint), options)).unwrap();
        let columns = |m: &Matrix| m.outlier_columns().to_vec();
        let hidden = unpacked.facts().hidden as f64;
        assert_eq!(columns(unpacked.head()).len(), (hidden * 0.1).round() as usize);
        let packed = load_packed(&to, LoadOptions::default()).unwrap();
        assert_eq!(columns(packed.head()), columns(unpacked.head()));
        let want = logits(unpacked, format, &prompt);
        assert!(logits(packed, format, &prompt) == want, "{}", dir.display());
        assert!(want != logits(open(&dir, Some(format)), format, &prompt), "outliers change nothing");
    }
}

#[test]
fn the_bytes_do_not_depend_on_threads_or_tier() {
    let work = tempfile::tempdir().unwrap();
    let dir = &goldens()[0];
    for format in formats() {
        let mut first: Option<Vec<(String, Vec<u8>)>> = None;
        for (i, simd) in Simd::variants().into_iter().enumerate() {
            for threads in [1, 3] {
                let to = work.path().join(format!("{format}-{i}-{threads}"));
                let team = Team::new(threads).unwrap();
                make(Exec { simd, team: &team }, dir, &to, format, 0.05).unwrap();
                let mut files: Vec<_> = std::fs::read_dir(&to)
                    .unwrap()
                    .map(|e| e.unwrap())
                    .map(|e| (e.file_name().display().to_string(), std::fs::read(e.path()).unwrap()))
                    .collect();
                files.sort();
                assert!(*first.get_or_insert_with(|| files.clone()) == files, "{format} {}", simd.name());
            }
        }
    }
}

#[test]
fn what_cannot_be_converted_or_loaded_is_refused_by_name() {
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("w8");
    let format = Format::W8 { group: 128 };
    on_team(|exec| make(exec, &goldens()[0], &to, format, 0.0)).unwrap();
    let again = on_team(|exec| make(exec, &to, &work.path().join("w4"), format, 0.0)).unwrap_err();
    assert!(again.to_string().contains("converted"), "{again}");
    let other = LoadOptions { format: Some(Format::Bf16), outliers: 0.0 };
    let error = load_packed(&to, other).unwrap_err();
    assert!(error.to_string().contains("converted to w8; bf16 cannot be made"), "{error}");
    let other = LoadOptions { format: format.with_group(0), outliers: 0.0 };
    let error = load_packed(&to, other).unwrap_err();
    assert!(error.to_string().contains("converted to w8; w8g0 cannot be made"), "{error}");
    let same = LoadOptions { format: Some(format), outliers: 0.0 };
    assert!(load_packed(&to, same).is_ok());
}
