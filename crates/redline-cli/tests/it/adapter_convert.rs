//! `adapter convert`: converted adapters give the bits of their sources, and belong to one model in one format.

use std::fs;
use std::path::Path;

use redline_api::documents::adapter::AdapterInspection;

use crate::golden::{adapter, adapters, golden};
use crate::harness::{bits, redline};

fn scored(base: &str, adapter: Option<&str>, format: &[&str]) -> crate::harness::Run {
    let given =
        ["score", "--json", "--model", base, "--query-ids", "1,2,3", "--item-ids", "4,5", "--label-id", "7"];
    let named = adapter.map(|dir| format!("a={dir}"));
    let adapter: Vec<&str> = named.iter().flat_map(|named| ["--adapter", named]).collect();
    redline(&[&given[..], &["--label-id", "9", "--full-logprobs"], format, &adapter].concat())
}

fn inspected(arguments: &[&str]) -> AdapterInspection {
    let run = redline(&[&["adapter", "inspect", "--json"], arguments].concat()).ok();
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {}", run.out))
}

#[track_caller]
fn convert(base: &str, adapter: &str, to: &str, format: &[&str]) {
    let run = redline(&[&["adapter", "convert", base, adapter, to], format].concat()).ok();
    assert_eq!((run.out, run.err), (format!("{to}\n"), String::new()));
}

#[test]
fn converted_adapters_have_the_bits_of_their_sources() {
    let work = tempfile::tempdir().unwrap();
    let formats: [&[&str]; 4] = [
        &["--format", "f32"],
        &["--format", "bf16"],
        &["--format", "w8", "--outliers", "0.1"],
        &["--format", "w4", "--group", "32"],
    ];
    for (number, (name, base)) in adapters().into_iter().enumerate() {
        let (source, base) = (adapter(&name), golden(&base));
        let peft = inspected(&[&source]);
        for (at, format) in formats.iter().enumerate() {
            let to = work.path().join(format!("{name}-{at}"));
            let to = to.to_str().unwrap();
            convert(&base, &source, to, format);
            let want = bits(&scored(&base, Some(&source), format).ok().scoring());
            let got = bits(&scored(&base, Some(to), format).ok().scoring());
            assert_eq!(got, want, "{name} beside {format:?}");
            let memory = |dir: &str| {
                let model = [&[dir, "--model", &base], *format].concat();
                inspected(&model).fit.map(|fit| (fit.format, fit.memory_bytes))
            };
            let seen = inspected(&[to]);
            assert_eq!(memory(to), memory(&source), "{name} beside {format:?}");
            assert_eq!((seen.digest, seen.dora, seen.rslora), (peft.digest.clone(), peft.dora, peft.rslora));
            assert_eq!((seen.modules, seen.parameters), (peft.modules, peft.parameters), "{name}");
            let kinds = |of: &AdapterInspection| {
                let kind = |t: &redline_api::documents::adapter::AdapterTarget| {
                    (t.name.clone(), t.rank, t.scaling.0.to_bits())
                };
                of.targets.iter().map(kind).collect::<Vec<_>>()
            };
            assert_eq!(kinds(&inspected(&[to])), kinds(&peft), "{name}");
        }
        if number == 0 {
            // A converted base has the same weights.
            let w8 = work.path().join("base");
            redline(&["convert", &base, w8.to_str().unwrap(), "--format", "w8", "--outliers", "0.1"]).ok();
            let converted = work.path().join(format!("{name}-2"));
            let want = bits(&scored(&base, Some(&source), formats[2]).ok().scoring());
            let got = scored(w8.to_str().unwrap(), Some(converted.to_str().unwrap()), &[]);
            assert_eq!(bits(&got.ok().scoring()), want);
        }
    }
}

#[test]
fn a_converted_adapter_is_refused_by_every_other_model() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    let (base, w8) = (golden("llama-a"), path("w8"));
    convert(&base, &adapter("llama-dora"), &w8, &["--format", "w8"]);
    for (model, format, message) in [
        (
            &base,
            &["--format", "bf16"][..],
            "the adapter was converted for w8 weights, but this model has bf16",
        ),
        (&base, &["--format", "w8", "--group", "0"], "but this model has w8"),
        (&base, &["--format", "w8", "--outliers", "0.1"], "converted for other weights"),
        (&golden("llama-b"), &["--format", "w8"], "belongs to no module of this model"),
        (&golden("gpt2-a"), &["--format", "w8"], "belongs to no module of this model"),
    ] {
        scored(model, Some(&w8), format).failed(&[message, &w8]);
        let inspect = [&["adapter", "inspect", &w8, "--model", model], format].concat();
        redline(&inspect).failed(&[message]);
    }
    // The same shapes, other weights.
    let merged = path("merged");
    redline(&["adapter", "merge", &base, &adapter("llama-plain"), &merged]).ok();
    scored(&merged, Some(&w8), &["--format", "w8"]).failed(&["converted for other weights", &w8]);
    for arguments in
        [["adapter", "merge", &base, &w8, &path("to")], ["adapter", "convert", &base, &w8, &path("to")]]
    {
        redline(&arguments).failed(&["the adapter is converted", &w8]);
    }
    redline(&["adapter", "convert", &base, &adapter("llama-plain"), &w8]).failed(&["not empty", &w8]);
    redline(&["adapter", "convert", &golden("llama-b"), &adapter("llama-plain"), &path("to")])
        .failed(&["but this model needs"]);
    redline(&["adapter", "convert", &base, &adapter("llama-plain")]).usage(&["OUT"]);
    redline(&["generate", "--model", &w8, "--prompt-ids", "1"]).failed(&["config.json"]);
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 2, "nothing else is written");
}

#[test]
fn damage_is_found_wherever_it_is() {
    let work = tempfile::tempdir().unwrap();
    let (base, whole) = (golden("llama-a"), work.path().join("whole"));
    let format = ["--format", "bf16"];
    convert(&base, &adapter("llama-dora"), whole.to_str().unwrap(), &format);
    let copy = |name: &str, file: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let to = work.path().join(name);
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(&whole).unwrap() {
            let from = entry.unwrap().path();
            let mut bytes = fs::read(&from).unwrap();
            if from.ends_with(file) {
                change(&mut bytes);
            }
            fs::write(to.join(from.file_name().unwrap()), bytes).unwrap();
        }
        to.to_str().unwrap().to_owned()
    };
    let refused = |dir: &str, message: &str| {
        scored(&base, Some(dir), &format).failed(&[message, dir]);
    };
    for (number, file) in ["model.safetensors", "infq.json", "adapter_config.json"].into_iter().enumerate() {
        let length = fs::metadata(whole.join(file)).unwrap().len() as usize;
        for cut in [0, 1, length / 2, length - 1] {
            refused(&copy(&format!("cut-{number}-{cut}"), file, &|bytes| bytes.truncate(cut)), file);
        }
        for at in (0..length).step_by(length / 9 + 1) {
            let dir = copy(&format!("flip-{number}-{at}"), file, &|bytes| bytes[at] ^= 4);
            refused(&dir, "");
        }
        let dir = copy(&format!("gone-{number}"), "", &|_| ());
        fs::remove_file(Path::new(&dir).join(file)).unwrap();
        let without_manifest = if file == "infq.json" { "adapter_model.safetensors" } else { file };
        refused(&dir, without_manifest);
    }
    let version = copy("version", "infq.json", &|bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        *bytes = text.replace("\"format_version\":1", "\"format_version\":2").into_bytes();
    });
    refused(&version, "`format_version` is 2");
    let more = copy("more", "", &|_| ());
    fs::write(Path::new(&more).join("adapter_model.bin"), "").unwrap();
    refused(&more, "not listed in `infq.json`");
}
