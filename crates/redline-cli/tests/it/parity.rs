//! `redline parity` against dumps of transformers, and against dumps with one error each.

use std::fs;
use std::path::{Path, PathBuf};

use redline_api::documents::parity::Parity;
use serde_json::{Value, json};

use crate::checkpoint::{Tensor, named, read, written};
use crate::harness::{Run, redline};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests");
/// Checkpoints with dumps: without rotary embeddings, with them, with per-head norms, with convolutions, and diffusion models, whose
/// steps are whole canvases.
const DUMPED: &[&str] = &["gpt2-b", "llama-b", "qwen3-b", "lfm2-b", "dream-b", "llada-a"];

fn golden(name: &str) -> String {
    format!("{TESTS}/golden/{name}")
}

fn parity(model: &str, reference: &Path, arguments: &[&str]) -> Run {
    let reference = reference.to_str().unwrap();
    redline(&[&["parity", "--model", &golden(model), "--reference", reference], arguments].concat())
}

fn document(run: &Run) -> Parity {
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {} {}", run.out, run.err))
}

/// A copy of a dump, to be corrupted.
struct Dump(tempfile::TempDir);

impl Dump {
    fn of(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in ["parity.json", "activations.safetensors"] {
            fs::copy(Path::new(TESTS).join("parity").join(name).join(file), folder.path().join(file))
                .unwrap();
        }
        Self(folder)
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn activations(&self) -> PathBuf {
        self.dir().join("activations.safetensors")
    }

    /// Edits the activations.
    fn tensors(self, change: impl FnOnce(&mut Vec<Tensor>)) -> Self {
        let mut tensors = read(&fs::read(self.activations()).unwrap());
        change(&mut tensors);
        fs::write(self.activations(), written(&tensors)).unwrap();
        self
    }

    /// Edits one value of an activation.
    fn value(self, name: &str, at: usize, change: impl FnOnce(f32) -> f32) -> Self {
        self.tensors(|tensors| {
            let bytes = &mut named(tensors, name).bytes[4 * at..4 * at + 4];
            let value = f32::from_le_bytes(bytes.try_into().unwrap());
            bytes.copy_from_slice(&change(value).to_le_bytes());
        })
    }

    /// Edits `parity.json`.
    fn description(self, change: impl FnOnce(&mut Value)) -> Self {
        let path = self.dir().join("parity.json");
        let mut description: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut description);
        fs::write(path, description.to_string()).unwrap();
        self
    }
}

#[test]
fn golden_checkpoints_are_at_parity_with_transformers() {
    for name in DUMPED {
        let dump = Path::new(TESTS).join("parity").join(name);
        let run = parity(name, &dump, &["--json", "--all"]).ok();
        let found = document(&run);
        assert!(found.within && found.first_divergence.is_none() && found.diverging == 0);
        let is_masked = matches!(*name, "dream-b" | "llada-a");
        let rows = if is_masked { &[(7, 7); 3][..] } else { &[(5, 5), (1, 1), (1, 1), (1, 1)] };
        let told = (found.steps, found.tolerance.0, found.compared);
        assert_eq!(told, (rows.len(), 1e-9, found.activations.len()));
        assert!(found.worst.unwrap().nmse.unwrap().0 < 1e-11, "{name}");
        assert!(found.activations.iter().all(|line| line.within && line.cosine.unwrap().0 > 0.999_999));
        assert_eq!(found.top1.iter().map(|top| (top.rows, top.agree)).collect::<Vec<_>>(), rows);
        let order: Vec<_> = found.activations.iter().map(|line| line.activation.as_str()).collect();
        assert_eq!(
            (order[0], order[1], *order.last().unwrap()),
            ("embedding", "layers.0.attention_norm", "logits")
        );
        assert_eq!(order.contains(&"layers.1.query_norm"), matches!(*name, "qwen3-b" | "lfm2-b"));
        assert_eq!(order.contains(&"layers.0.conv"), *name == "lfm2-b");
        assert_eq!(order.contains(&"layers.1.key_rope"), *name != "gpt2-b");
    }
}

#[test]
fn other_formats_have_tolerances_of_their_own() {
    let dump = Path::new(TESTS).join("parity/llama-b");
    for (format, kv_format, tolerance) in [
        ("f32", "bf16", 4e-4),
        ("bf16", "bf16", 2e-3),
        ("bf16", "f32", 2e-3),
        ("w8", "bf16", 1e-2),
        ("w4", "bf16", 0.9),
    ] {
        let arguments = ["--json", "--format", format, "--kv-format", kv_format];
        let found = document(&parity("llama-b", &dump, &arguments).ok());
        assert_eq!(found.tolerance.0, tolerance, "{format}");
        assert_eq!((found.meta.format.as_str(), found.meta.kv_format.as_str()), (format, kv_format));
        // The rounding error is visible, so the comparison is not empty.
        assert!(found.worst.unwrap().nmse.unwrap().0 > 1e-7, "{format}");
    }
    let strict = parity("llama-b", &dump, &["--format", "bf16", "--tolerance", "1e-7"]);
    assert_eq!(strict.code, 6, "{}", strict.err);
    assert!(
        strict.out.contains("<- first divergence") && strict.out.contains("more diverge"),
        "{}",
        strict.out
    );
}

#[test]
fn a_pass_in_pieces_is_compared_as_a_whole() {
    let dump = Path::new(TESTS).join("parity/qwen3-b");
    let whole = parity("qwen3-b", &dump, &["--json", "--all"]).ok();
    let pieces = parity("qwen3-b", &dump, &["--json", "--all", "--max-chunk", "2", "--threads", "3"]).ok();
    assert_eq!(document(&whole).activations, document(&pieces).activations, "the same bits, differently cut");
}

#[test]
fn the_first_activation_that_differs_is_named() {
    // One value in a hundred thousand is changed, and nothing else.
    for (step, activation, at) in [
        (0, "embedding", 250),
        (0, "layers.0.value", 33),
        (1, "layers.1.key_rope", 7),
        (2, "layers.1.up", 59),
        (3, "logits", 130),
    ] {
        let dump = Dump::of("llama-b").value(&format!("step{step}.{activation}"), at, |value| value + 1.0);
        let run = parity("llama-b", dump.dir(), &["--json"]);
        assert_eq!(run.code, 6, "{}", run.err);
        let found = document(&run);
        let first = found.first_divergence.unwrap();
        assert_eq!((first.step, first.activation.as_str()), (step, activation));
        assert!((first.max_error.unwrap().0 - 1.0).abs() < 1e-3, "{first:?}");
        assert_eq!((found.within, found.diverging, &found.activations[..]), (false, 1, &[first][..]));
        let table = parity("llama-b", dump.dir(), &[]);
        let line = table.out.lines().find(|line| line.contains("<- first divergence")).unwrap();
        assert!(
            table.code == 6 && line.contains(activation) && line.starts_with(&step.to_string()),
            "{line}"
        );
    }
}

#[test]
fn the_place_of_the_largest_error_is_a_row_and_a_column() {
    // A row of the embedding has 100 values.
    let dump = Dump::of("llama-b").value("step0.embedding", 250, |value| value + 1.0);
    let first = document(&parity("llama-b", dump.dir(), &["--json"])).first_divergence.unwrap();
    assert_eq!((first.row, first.column), (2, 50));
    let table = parity("llama-b", dump.dir(), &[]).out;
    let cells: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((cells[0], cells[1], cells[5], cells[6]), ("0", "embedding", "2", "50"), "{table}");
    assert!(table.contains(" activations in 4 steps: 1 beyond 1e-9; largest NMSE "), "{table}");
}

#[test]
fn a_table_lists_the_first_that_diverge_or_all() {
    let dump = Path::new(TESTS).join("parity/llama-b");
    let strict = ["--format", "bf16", "--tolerance", "1e-7"];
    let found = document(&parity("llama-b", &dump, &[&strict[..], &["--json"]].concat()));
    let (compared, diverging) = (found.compared, found.diverging);
    let table = parity("llama-b", &dump, &strict).out;
    let rest = format!("{} more diverge; `--all` lists them", diverging - 8);
    assert_eq!(table.lines().nth(9), Some(rest.as_str()), "{table}");
    let verdict = format!("{compared} activations in 4 steps: {diverging} beyond 1e-7; largest NMSE ");
    assert!(table.contains(&verdict), "no `{verdict}` in {table}");
    let all = parity("llama-b", &dump, &["--all"]).ok().out;
    assert_eq!(all.lines().take_while(|line| !line.is_empty()).count(), 1 + compared, "{all}");
    assert!(all.contains(&format!("{compared} activations in 4 steps: within 1e-9; largest NMSE ")), "{all}");
}

#[test]
fn what_was_compared_is_told_unless_quiet() {
    let dump = Path::new(TESTS).join("parity/llama-b");
    let told = parity("llama-b", &dump, &["--threads", "1"]).ok();
    assert!(told.err.contains(" against llama-b; ") && told.err.ends_with(", 1 thread\n"), "{}", told.err);
    let quiet = parity("llama-b", &dump, &["--threads", "1", "--quiet"]).ok();
    assert_eq!((quiet.out, quiet.err), (told.out, String::new()));
}

#[test]
fn another_choice_of_token_is_told() {
    let dump = Dump::of("gpt2-b").value("step1.logits", 77, |_| 1000.0);
    let run = parity("gpt2-b", dump.dir(), &["--json"]);
    let found = document(&run);
    let top = &found.top1[1];
    assert_eq!((run.code, top.rows, top.agree, top.first_other.unwrap().reference), (6, 1, 0, 77));
    let other = top.first_other.unwrap();
    assert!(other.reference_margin.0 > 500.0 && other.own_margin.0 < 500.0, "{other:?}");
    let closest = top.closest.unwrap();
    let (reference, own) = (closest.reference_margin.0, closest.own_margin.0);
    let margins = format!("; smallest margin {reference:.3e} (here {own:.3e}), in row 0; ");
    let table = parity("gpt2-b", dump.dir(), &[]).out;
    assert!(table.contains("instead of 77") && table.contains(&margins), "{table}");
}

#[test]
fn a_dump_of_another_model_is_refused_with_numbers() {
    let llama = Path::new(TESTS).join("parity/llama-b");
    parity("llama-a", &llama, &[]).usage(&["2 layers", "has 3", "llama-b"]);
    parity("qwen3-b", &llama, &[]).usage(&["100 hidden values", "has 40"]);
    let edited =
        |key: &str, value: usize| Dump::of("llama-b").description(|d| d["model"][key] = json!(value));
    parity("llama-b", edited("vocab", 130).dir(), &[]).usage(&["130 vocabulary entries", "131"]);
    let dump = Dump::of("llama-b").description(|d| d["steps"][0]["tokens"][2] = json!(131));
    parity("llama-b", dump.dir(), &[]).usage(&["token id 131", "131 entries"]);
    let dump = Dump::of("llama-b").description(|d| d["steps"][0]["tokens"] = json!(vec![1; 254]));
    parity("llama-b", dump.dir(), &[]).usage(&["257 tokens", "256"]);
    let dump = Dump::of("llama-b").description(|d| d["steps"][0]["tokens"] = json!([1, 2]));
    parity("llama-b", dump.dir(), &[]).usage(&["`step0.embedding` has the shape [5, 100]", "[2, 100]"]);
}

#[test]
fn a_dump_may_fill_the_context() {
    // With three more steps of a token each these are 256 tokens, so only the shapes are wrong.
    let dump = Dump::of("llama-b").description(|d| d["steps"][0]["tokens"] = json!(vec![1; 253]));
    parity("llama-b", dump.dir(), &[]).usage(&["`step0.embedding` has the shape [5, 100]", "[253, 100]"]);
}

#[test]
fn what_is_missing_or_too_much_is_named() {
    let dump = Dump::of("llama-b").tensors(|tensors| tensors.retain(|t| t.name != "step2.layers.1.gate"));
    parity("llama-b", dump.dir(), &[])
        .usage(&["1 activation is missing: `step2.layers.1.gate`", "docs/parity.md"]);
    let dump = Dump::of("llama-b").tensors(|tensors| tensors.retain(|t| !t.name.starts_with("step3.")));
    parity("llama-b", dump.dir(), &[]).usage(&["33 activations are missing: `step3.embedding`", ".."]);
    let dump = Dump::of("llama-b").tensors(|t| named(t, "step0.logits").name = "step0.logit".to_owned());
    parity("llama-b", dump.dir(), &[]).usage(&["`step0.logits`"]);
    let dump = Dump::of("llama-b").description(|d| drop(d["steps"].as_array_mut().unwrap().pop()));
    parity("llama-b", dump.dir(), &[]).usage(&["33 activations are not of this model: `step3.embedding`"]);
}

#[test]
fn damaged_dumps_fail_by_name() {
    let dump = Dump::of("llama-b").value("step1.layers.0.up", 3, |_| f32::NAN);
    parity("llama-b", dump.dir(), &[])
        .failed(&["`step1.layers.0.up` is NaN at element 3", "activations.safetensors"]);
    let dump = Dump::of("llama-b");
    let bytes = fs::read(dump.activations()).unwrap();
    fs::write(dump.activations(), &bytes[..bytes.len() - 5]).unwrap();
    parity("llama-b", dump.dir(), &[]).failed(&["activations.safetensors", "incomplete"]);
    fs::write(dump.activations(), "").unwrap();
    parity("llama-b", dump.dir(), &[]).failed(&["activations.safetensors"]);
    fs::remove_file(dump.activations()).unwrap();
    parity("llama-b", dump.dir(), &[]).failed(&["activations.safetensors", "parity-reference"]);
    for (change, expect) in [
        (json!({"schema": "redline.parity/2"}), "redline.parity/2"),
        (json!({"steps": []}), "no steps"),
        (json!({"steps": [{"tokens": []}]}), "step 0 has no tokens"),
        (json!({"steps": [{"tokens": [-1]}]}), "-1"),
        (json!({"tolerances": {"bf17": 1.0}}), "bf17"),
        (json!({"tolerances": {"bf16": -1.0}}), "-1"),
        (json!({"model": null}), "null"),
    ] {
        let dump = Dump::of("llama-b").description(|description| {
            let change = change.as_object().unwrap().clone();
            description.as_object_mut().unwrap().extend(change);
        });
        parity("llama-b", dump.dir(), &[]).failed(&["parity.json", expect]);
    }
    parity("llama-b", Path::new("/nonexistent"), &[]).failed(&["/nonexistent/parity.json"]);
}

#[test]
fn a_dump_may_bring_its_tolerance_and_a_flag_wins() {
    let dump = Dump::of("llama-b").description(|d| d["tolerances"] = json!({"bf16": 1e-8, "f32": 1e-6}));
    let of = |arguments: &[&str]| document(&parity("llama-b", dump.dir(), arguments)).tolerance.0;
    assert_eq!(of(&["--json"]), 1e-6);
    assert_eq!(of(&["--json", "--format", "bf16"]), 1e-8);
    assert_eq!(of(&["--json", "--format", "w8"]), 1e-2);
    assert_eq!(of(&["--json", "--format", "bf16", "--tolerance", "0.5"]), 0.5);
    for bad in ["-1", "inf", "x"] {
        parity("llama-b", dump.dir(), &["--tolerance", bad]).usage(&[bad, "--tolerance"]);
    }
}

#[test]
fn a_model_that_overflows_is_beyond_every_tolerance() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(Path::new(&golden("gpt2-b")).join(file), folder.path().join(file)).unwrap();
    }
    let path = folder.path().join("model.safetensors");
    let mut tensors = read(&fs::read(&path).unwrap());
    for bytes in named(&mut tensors, "h.1.mlp.c_fc.weight").bytes.chunks_exact_mut(4) {
        bytes.copy_from_slice(&3e38f32.to_le_bytes());
    }
    fs::write(&path, written(&tensors)).unwrap();
    let (model, dump) = (folder.path().to_str().unwrap(), format!("{TESTS}/parity/gpt2-b"));
    let arguments = ["parity", "--model", model, "--reference", &dump, "--tolerance", "1e30"];
    let run = redline(&[&arguments[..], &["--json"]].concat());
    let first = document(&run).first_divergence.unwrap();
    assert_eq!((run.code, first.activation.as_str(), first.nmse), (6, "layers.1.mlp_hidden", None));
    assert!(first.non_finite > 0);
    assert!(redline(&arguments).out.contains("values are no numbers"));
}
