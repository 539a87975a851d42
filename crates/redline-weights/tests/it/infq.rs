//! INFQ directories: round trips, rejected input, and no partial directories.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redline_weights::{
    Checkpoint, Checksum, Dtype, Infq, InfqWriter, Result, Scheme, StoredDtype, Weight, WeightPart,
};
use tempfile::{TempDir, tempdir};

const TOKENIZER: &[u8] = br#"{"model":{"type":"BPE"}}"#;

fn scheme() -> Scheme {
    Scheme { encoding: "w4".into(), options: BTreeMap::from([("group".into(), 64)]) }
}

fn weight(name: &str, shape: &[usize], encoding: &str, parts: Vec<WeightPart>) -> Weight {
    let (name, encoding) = (name.to_owned(), encoding.to_owned());
    let attributes = BTreeMap::from([("group".into(), 64)]);
    Weight { name, shape: shape.to_vec(), encoding, attributes, outlier_columns: Vec::new(), parts }
}

/// Weights declared with odd sizes first, so that the order in the file differs.
fn weights() -> Vec<Weight> {
    let outliers = WeightPart::new("outliers", Dtype::BF16, [13, 2]);
    let packed = |rows: usize, columns: usize| WeightPart::new("", StoredDtype::U8, [rows, columns]);
    let mut projection = weight(
        "layers.0.proj.weight",
        &[13, 128],
        "w4",
        vec![packed(16, 64), WeightPart::new("scales", Dtype::F16, [16, 2]), outliers],
    );
    projection.outlier_columns = vec![3, 127];
    vec![
        weight("norm.weight", &[7], "f32", vec![WeightPart::new("", Dtype::F32, [7])]),
        projection,
        weight("odd", &[3, 1], "bytes", vec![packed(3, 1)]),
        // Over 1 MiB, so that it is read in several blocks.
        weight(
            "embed.weight",
            &[1024, 1024],
            "w8",
            vec![packed(1024, 1024), WeightPart::new("sums", StoredDtype::I32, [0])],
        ),
    ]
}

/// Bytes of a part; neighbouring bytes differ.
fn content(tensor: &str, bytes: usize) -> Vec<u8> {
    let seed = tensor.len() as u32;
    (0..bytes as u32).map(|nth| (nth.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn bytes_of(part: &WeightPart) -> usize {
    part.shape.iter().product::<usize>() * part.dtype.bits() / 8
}

fn tensor(weight: &str, suffix: &str) -> String {
    if suffix.is_empty() { weight.to_owned() } else { format!("{weight}.{suffix}") }
}

fn source() -> Checksum {
    Checksum::of(b"source")
}

/// Writes copied files and parts in pieces of `piece` bytes, with the parts of a weight interleaved.
fn fill(writer: &mut InfqWriter, piece: usize) -> Result<()> {
    writer.write_file("config.json", b"{\"hidden_size\":128}")?;
    for weight in weights() {
        let contents: Vec<_> = weight
            .parts
            .iter()
            .map(|part| content(&tensor(&weight.name, &part.suffix), bytes_of(part)))
            .collect();
        let mut pieces: Vec<_> = contents.iter().map(|content| content.chunks(piece)).collect();
        while pieces.iter().any(|rest| rest.len() > 0) {
            for (part, rest) in weight.parts.iter().zip(&mut pieces) {
                writer.write_part(&weight.name, &part.suffix, rest.next().unwrap_or_default())?;
            }
        }
    }
    Ok(())
}

fn write(dir: &Path, piece: usize) -> Result<()> {
    let mut writer = InfqWriter::create(dir, scheme(), weights())?;
    let beside = tempdir().unwrap();
    fs::write(beside.path().join("tokenizer.json"), TOKENIZER).unwrap();
    writer.copy_file(&beside.path().join("tokenizer.json"))?;
    fill(&mut writer, piece)?;
    writer.finish(source())
}

fn model() -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let model = dir.path().join("model");
    write(&model, 4096).unwrap();
    (dir, model)
}

/// Opens the directory and reads every part.
fn read_all(dir: &Path) -> Result<()> {
    read_each(dir, |_, _| ())
}

fn read_each(dir: &Path, see: impl Fn(&str, &[u8])) -> Result<()> {
    let infq = Infq::open(dir)?;
    for weight in infq.names().map(|name| infq.weight(name).unwrap()) {
        for part in &weight.parts {
            let mut bytes = vec![0; bytes_of(part)];
            infq.read_part(&weight.name, &part.suffix, &mut bytes)?;
            see(&tensor(&weight.name, &part.suffix), &bytes);
        }
    }
    Ok(())
}

/// The message without its place, and the hint.
fn refusal<T>(result: Result<T>) -> (String, Option<String>) {
    let error = result.err().expect("a refusal");
    let message = error.to_string();
    (message.split_once("\n  in `").expect(&message).0.to_owned(), error.hint().map(|hint| hint.to_string()))
}

/// The byte range of each tensor of a safetensors file, in file order.
fn places(file: &[u8]) -> Vec<(Range<usize>, String)> {
    let data = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..data]).unwrap();
    let tensors = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    let offset =
        |tensor: &serde_json::Value, nth: usize| tensor["data_offsets"][nth].as_u64().unwrap() as usize;
    let place = |tensor| data + offset(tensor, 0)..data + offset(tensor, 1);
    let mut places: Vec<_> = tensors.map(|(name, tensor)| (place(tensor), name.clone())).collect();
    places.sort_by_key(|(range, _)| (range.start, range.end));
    places
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_written_is_read_back() {
    let (_dir, model) = model();
    assert!(Infq::is(&model) && !Infq::is(model.parent().unwrap()));
    let infq = Infq::open(&model).unwrap();
    assert_eq!((infq.dir(), infq.scheme(), infq.source()), (model.as_path(), &scheme(), source()));
    assert_eq!(
        infq.names().collect::<Vec<_>>(),
        ["embed.weight", "layers.0.proj.weight", "norm.weight", "odd"]
    );
    for weight in weights() {
        assert_eq!(infq.weight(&weight.name), Some(&weight));
    }
    assert_eq!(infq.weight("gone"), None);
    assert_eq!(infq.part_bytes("layers.0.proj.weight", "scales"), Some(64));
    assert_eq!(infq.part_bytes("layers.0.proj.weight", "sums"), None);
    assert_eq!(infq.weight("embed.weight").unwrap().part("sums").unwrap().dtype, StoredDtype::I32);
    read_each(&model, |tensor, bytes| assert_eq!(bytes, content(tensor, bytes.len()), "{tensor}")).unwrap();

    let (message, _) = refusal(infq.read_part("odd", "", &mut [0; 4]));
    assert_eq!(message, "tensor `odd` has 3 bytes, but the buffer for it has 4");
    let (message, _) = refusal(infq.read_part("odd", "scales", &mut []));
    assert_eq!(message, "tensor `odd.scales` is missing");
}

#[test]
fn parts_are_read_from_several_threads_at_once() {
    let (_dir, model) = model();
    let infq = Infq::open(&model).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut bytes = vec![0; 1 << 20];
                infq.read_part("embed.weight", "", &mut bytes).unwrap();
                assert_eq!(bytes, content("embed.weight", 1 << 20));
            });
        }
    });
}

#[test]
fn the_same_bytes_however_they_were_cut() {
    let (_dir, model) = model();
    let read =
        |dir: &Path| names(dir).into_iter().map(|name| fs::read(dir.join(name)).unwrap()).collect::<Vec<_>>();
    let whole = read(&model);
    assert_eq!(
        names(&model),
        ["config.json", "infq.json", "model.safetensors", "tokenizer.json"].map(String::from).into()
    );
    for piece in [13, 1 << 20] {
        let dir = tempdir().unwrap();
        write(&dir.path().join("model"), piece).unwrap();
        assert_eq!(read(&dir.path().join("model")), whole, "{piece}");
    }
}

#[test]
fn the_manifest_word_by_word() {
    let dir = tempdir().unwrap();
    let model = dir.path().join("model");
    let mut odd = weight("w", &[2, 2], "w4", vec![WeightPart::new("", StoredDtype::U8, [2])]);
    odd.outlier_columns = vec![1];
    let mut writer = InfqWriter::create(&model, scheme(), vec![odd]).unwrap();
    writer.write_file("config.json", b"{}").unwrap();
    writer.write_part("w", "", &[1, 2]).unwrap();
    writer.finish(source()).unwrap();

    let header = fs::read(model.join("model.safetensors")).unwrap();
    assert_eq!(header.len() % 4096, 2, "the data begins at a multiple of 4096");
    let header = Checksum::of(&header[..header.len() - 2]);
    let (files, source, part) = (Checksum::of(b"{}"), source(), Checksum::of(&[1, 2]));
    let begins = format!(
        r#"{{"files":{{"config.json":"{files}"}},"format":"infq","format_version":1,"header":"{header}","#
    );
    let rest = format!(
        r#""scheme":{{"encoding":"w4","options":{{"group":64}}}},"source":{{"digest":"{source}"}},"tensors":{{"w":{{"#
    );
    let entry = format!(
        r#""attributes":{{"group":64}},"encoding":"w4","outlier_columns":[1],"parts":[{{"checksum":"{part}","#
    );
    let ends = r#""dtype":"U8","shape":[2],"tensor":"w"}],"shape":[2,2]}}"#;
    let body = format!("{begins}{rest}{entry}{ends}");
    let checksum = Checksum::of(format!("{body}}}").as_bytes());
    let expect = format!("{body},\"checksum\":\"{checksum}\"}}\n");
    assert_eq!(fs::read_to_string(model.join("infq.json")).unwrap(), expect);
}

#[test]
fn parts_are_aligned_as_far_as_the_format_allows() {
    let (_dir, model) = model();
    let tensors = places(&fs::read(model.join("model.safetensors")).unwrap());
    let order: Vec<&str> = tensors.iter().map(|(_, tensor)| tensor.as_str()).collect();
    let (proj, embed) = ("layers.0.proj.weight", "embed.weight");
    let [scales, outliers] = [format!("{proj}.scales"), format!("{proj}.outliers")];
    assert_eq!(order, [embed, "embed.weight.sums", proj, &scales, "norm.weight", &outliers, "odd"]);
    assert!(tensors[..2].iter().all(|(range, _)| range.start % 4096 == 0), "{tensors:?}");
    assert!(tensors[..5].iter().all(|(range, _)| range.start % 64 == 0), "{tensors:?}");
    assert!(tensors[5..].iter().all(|(range, _)| range.start % 4 == 0), "{tensors:?}");
    // Other tools can read it too.
    let checkpoint = Checkpoint::open(&model).unwrap();
    assert_eq!(checkpoint.info("layers.0.proj.weight").unwrap().shape, [16, 64]);
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let (_dir, model) = model();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let weights = fs::read(model.join("model.safetensors")).unwrap();
    let tensors = places(&weights);
    let data = tensors[0].0.start;
    let large = tensors.iter().map(|(range, _)| range.clone()).find(|range| range.len() > 4096).unwrap();
    let manifest = fs::metadata(model.join("infq.json")).unwrap().len() as usize;
    for (file, range) in [
        ("model.safetensors", 0..weights.len()),
        ("model.safetensors", 0..data),
        ("model.safetensors", large.start..large.start + 64),
        ("model.safetensors", large.end..weights.len()),
        ("infq.json", 0..manifest),
        ("config.json", 0..18),
    ] {
        let path = model.join(file);
        let whole = fs::read(&path).unwrap();
        let file_of = File::options().write(true).open(&path).unwrap();
        let put = |at: usize, byte: u8| {
            let mut file = &file_of;
            file.seek(SeekFrom::Start(at as u64)).and_then(|_| file.write_all(&[byte])).unwrap();
        };
        for _ in 0..1000 {
            let (at, bit) = (range.start + next(range.len()), next(8));
            put(at, whole[at] ^ 1 << bit);
            let message =
                read_all(&model).expect_err(&format!("bit {bit} of byte {at} of {file}")).to_string();
            assert!(message.contains(&format!("  in `{}`", path.display())), "{at}.{bit}: {message}");
            if file == "model.safetensors" && at >= data {
                let (_, tensor) = tensors.iter().find(|(range, _)| range.contains(&at)).unwrap();
                let expect = format!("tensor `{tensor}` has checksum ");
                assert!(message.starts_with(&expect), "{at}.{bit}: {message}");
            }
            put(at, whole[at]);
        }
    }
    read_all(&model).unwrap();
}

#[test]
fn damaged_and_foreign_directories_are_refused_by_name() {
    let hint = Some("the files are damaged: copy them again, or repeat `convert`".to_owned());
    let (_dir, model) = model();
    let (manifest, weights) = (model.join("infq.json"), model.join("model.safetensors"));
    let (json, tensors) = (fs::read_to_string(&manifest).unwrap(), fs::read(&weights).unwrap());
    let with = |file: &Path, bytes: &[u8]| {
        let before = fs::read(file).ok();
        fs::write(file, bytes).unwrap();
        let refused = refusal(read_all(&model));
        before.map_or_else(|| fs::remove_file(file), |bytes| fs::write(file, bytes)).unwrap();
        refused
    };

    let (message, advice) = with(&manifest, json.replace("64", "65").as_bytes());
    assert!(
        message.starts_with("the manifest has checksum ") && message.contains(", but says "),
        "{message}"
    );
    assert_eq!(advice, hint);
    let (message, _) = with(&manifest, &json.as_bytes()[..json.len() / 2]);
    assert!(message.starts_with("the manifest is wrong: EOF while parsing"), "{message}");
    let (message, advice) = with(&manifest, b"{\"format\":\"infq\",\"format_version\":2}");
    assert_eq!(message, "the manifest's `format_version` is 2, but only 1 is read");
    assert_eq!(advice.unwrap(), "it was written by another version of redline: repeat `convert`");
    let (message, _) = with(&manifest, b"{\"format\":\"gguf\"}");
    assert_eq!(message, "the manifest's `format` is \"gguf\", not \"infq\"");
    let (message, _) = with(&manifest, b"[1]");
    assert_eq!(message, "the manifest's `format` is absent, not \"infq\"");
    let (message, _) = with(&manifest, b"{\"format\":\"infq\",\"format_version\":1}\n");
    assert_eq!(message, "the manifest does not end with its checksum");
    let (message, _) = with(&manifest, json.replacen('{', "{\"files\":{},", 1).as_bytes());
    assert!(message.starts_with("the manifest is wrong: the key `files` stands twice"), "{message}");

    let (message, _) = with(&weights, &tensors[..tensors.len() - 1]);
    assert!(message.starts_with("tensor `odd` ends at "), "{message}");
    let (message, advice) = with(&weights, &crate::file("{}  ", &[]));
    assert!(message.starts_with("the header has checksum "), "{message}");
    assert_eq!(advice, hint);
    let mut swapped = tensors.clone();
    swapped.swap(tensors.len() - 1, tensors.len() - 2);
    let (message, _) = with(&weights, &swapped);
    assert!(message.starts_with("tensor `odd` has checksum "), "{message}");

    let (message, advice) = with(&model.join("config.json"), b"{\"hidden_size\":256}");
    assert!(message.starts_with("the file has checksum "), "{message}");
    let expect = "it was changed after the conversion: change it in the source and repeat `convert`";
    assert_eq!(advice.unwrap(), expect);
    let (message, advice) = with(&model.join("generation_config.json"), b"{}");
    assert_eq!(message, "the file is not listed in `infq.json`");
    assert_eq!(advice.unwrap(), "what the conversion did not write is not trusted: remove it");
    fs::write(model.join("README.md"), "mine").unwrap();
    fs::create_dir(model.join(".cache")).unwrap();
    read_all(&model).unwrap();
    fs::remove_file(model.join("tokenizer.json")).unwrap();
    let (message, _) = refusal(Infq::open(&model));
    assert!(message.starts_with("cannot open the file: No such file"), "{message}");
}

#[test]
fn folders_hidden_files_and_notes_beside_the_weights_are_ignored() {
    let (_dir, model) = model();
    fs::create_dir(model.join("onnx")).unwrap();
    fs::write(model.join("onnx/model.onnx"), "mine").unwrap();
    fs::write(model.join(".gitattributes"), "mine").unwrap();
    fs::write(model.join("NOTES.md"), "mine").unwrap();
    read_all(&model).unwrap();
}

#[test]
fn a_large_file_beside_the_weights_is_kept_and_checked_to_its_last_byte() {
    let dir = tempdir().unwrap();
    let (model, tokenizer) = (dir.path().join("model"), dir.path().join("tokenizer.json"));
    // Two and a half reads.
    let mut large = content("tokenizer.json", 5 << 19);
    fs::write(&tokenizer, &large).unwrap();
    let mut writer = InfqWriter::create(&model, scheme(), weights()).unwrap();
    writer.copy_file(&tokenizer).unwrap();
    fill(&mut writer, 1 << 20).unwrap();
    writer.finish(source()).unwrap();
    assert!(fs::read(model.join("tokenizer.json")).unwrap() == large);
    Infq::open(&model).unwrap();
    *large.last_mut().unwrap() ^= 1;
    fs::write(model.join("tokenizer.json"), &large).unwrap();
    let (message, _) = refusal(Infq::open(&model));
    assert!(message.starts_with("the file has checksum "), "{message}");
}

/// Rewrites the manifest with a valid checksum, as an attacker could.
fn forge(model: &Path, from: &str, to: &str) {
    let json = fs::read_to_string(model.join("infq.json")).unwrap();
    let (body, _) = json.rsplit_once(r#","checksum":""#).unwrap();
    assert!(body.contains(from), "{from}");
    let body = body.replacen(from, to, 1);
    let checksum = Checksum::of(format!("{body}}}").as_bytes());
    fs::write(model.join("infq.json"), format!("{body},\"checksum\":\"{checksum}\"}}\n")).unwrap();
}

#[test]
fn forged_manifests_are_refused_by_name() {
    for (from, to, expect) in [
        (r#""config.json":"#, r#""../secret":"#, "`../secret` is not a name for a file beside the weights"),
        (
            r#""config.json":"#,
            r#""model.safetensors":"#,
            "`model.safetensors` is not a name for a file beside the weights",
        ),
        (r#""tensor":"odd""#, r#""tensor":"norm""#, "tensor `norm` cannot be a part of weight `odd`"),
        (r#""tensor":"odd""#, r#""tensor":"odd.""#, "tensor `odd.` cannot be a part of weight `odd`"),
        (r#""tensor":"odd""#, r#""tensor":"odd.x""#, "tensor `odd.x` is in `infq.json`, but not in the file"),
        (
            r#""dtype":"U8","shape":[3,1]"#,
            r#""dtype":"I8","shape":[3,1]"#,
            "tensor `odd` is 3 x 1 of U8, but `infq.json` says 3 x 1 of I8",
        ),
        (
            r#""dtype":"U8","shape":[3,1]"#,
            r#""dtype":"U8","shape":[1,3]"#,
            "tensor `odd` is 3 x 1 of U8, but `infq.json` says 1 x 3 of U8",
        ),
        (
            r#""dtype":"U8","shape":[3,1]"#,
            r#""dtype":"U9","shape":[3,1]"#,
            "tensor `odd` has the unknown dtype `U9`",
        ),
        (
            "[3,127]",
            "[127,3]",
            "weight `layers.0.proj.weight` has outlier column 3, but they must ascend and stay below 128",
        ),
        (
            "[3,127]",
            "[3,3]",
            "weight `layers.0.proj.weight` has outlier column 3, but they must ascend and stay below 128",
        ),
        (
            "[3,127]",
            "[3,128]",
            "weight `layers.0.proj.weight` has outlier column 128, but they must ascend and stay below 128",
        ),
        (
            "[13,128]",
            "[13,128,1]",
            "weight `layers.0.proj.weight` is 13 x 128 x 1, but [out, in] or [n] is needed",
        ),
        (r#""encoding":"bytes""#, r#""encoding":"""#, "weight `odd` has no encoding"),
    ] {
        let (_dir, model) = model();
        forge(&model, from, to);
        assert_eq!(refusal(read_all(&model)).0, expect);
    }

    let (_dir, model) = model();
    let json = fs::read_to_string(model.join("infq.json")).unwrap();
    let from = json.find(r#","odd":"#).unwrap();
    let to = json.find(r#"},"checksum":"#).unwrap();
    let odd = json[from..to].to_owned();
    forge(&model, &odd, "");
    assert_eq!(refusal(read_all(&model)).0, "tensor `odd` is in the file, but not in `infq.json`");
    forge(&model, r#""tensors":{"#, r#""unknown":1,"tensors":{"#);
    assert!(refusal(read_all(&model)).0.starts_with("the manifest is wrong: unknown field `unknown`"));
}

#[test]
fn declarations_that_contradict_themselves() {
    let dir = tempdir().unwrap();
    let part = |suffix: &str| WeightPart::new(suffix, StoredDtype::U8, [1]);
    let says = |weights: Vec<Weight>, expect: &str| {
        let created = InfqWriter::create(&dir.path().join("model"), scheme(), weights).map(drop);
        assert!(refusal(created).0.contains(expect), "{expect}");
        assert!(names(dir.path()).is_empty());
    };
    says(vec![weight("w", &[1], "w8", vec![])], "weight `w` has no parts");
    says(
        vec![weight("w", &[], "w8", vec![part("")])],
        "weight `w` is a scalar, but [out, in] or [n] is needed",
    );
    says(vec![weight("w", &[1], "w8", vec![part(""), part("")])], "the key `w` stands twice");
    let twice = [part(""), part("scales")].map(|part| weight("w", &[1], "w8", vec![part]));
    says(twice.into(), "weight `w` is declared twice");
    let meeting = [weight("w", &[1], "w8", vec![part("b")]), weight("w.b", &[1], "w8", vec![part("")])];
    says(meeting.into(), "the key `w.b` stands twice");
    let huge = WeightPart::new("", StoredDtype::U8, [usize::MAX, 2]);
    says(vec![weight("w", &[1], "w8", vec![huge])], "more elements or bytes than can be counted");
}

#[test]
fn an_unfinished_or_wrong_writer_leaves_nothing() {
    let dir = tempdir().unwrap();
    let model = dir.path().join("model");
    let begun = || InfqWriter::create(&model, scheme(), weights()).unwrap();
    drop(begun());
    assert!(names(dir.path()).is_empty());

    let (message, _) = refusal(begun().finish(source()));
    assert_eq!(message, "tensor `norm.weight` was declared with 28 bytes, but 0 were given");
    let mut writer = begun();
    writer.write_part("norm.weight", "", &[0; 20]).unwrap();
    let (message, _) = refusal(writer.write_part("norm.weight", "", &[0; 9]));
    assert_eq!(message, "tensor `norm.weight` was declared with 28 bytes, but 29 were given");
    let (message, _) = refusal(writer.write_part("norm.weight", "scales", &[]));
    assert_eq!(message, "tensor `norm.weight.scales` was not declared");
    for name in ["model.safetensors", "infq.json", "../x", ""] {
        let (message, _) = refusal(writer.write_file(name, b""));
        assert_eq!(message, format!("`{name}` is not a name for a file beside the weights"));
    }
    assert!(refusal(writer.copy_file(&dir.path().join("gone"))).0.starts_with("cannot open the file"));
    drop(writer);
    assert!(names(dir.path()).is_empty());

    write(&model, 4096).unwrap();
    let (message, _) = refusal(InfqWriter::create(&model, scheme(), weights()).map(drop));
    assert_eq!(message, "the directory to be written exists and is not empty");
    read_all(&model).unwrap();
}

#[test]
fn what_a_writer_holds_is_not_taken_for_left_over() {
    let dir = tempdir().unwrap();
    let model = dir.path().join("model");
    let mut first = InfqWriter::create(&model, scheme(), weights()).unwrap();
    // Not left over by a writer of this destination: another name, a file, another destination.
    for name in [".model.tmp-x", ".model2.tmp-1", ".model.tmp-"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join(".model.tmp-7"), "").unwrap();
    // A directory without a lock holder.
    fs::create_dir(dir.path().join(".model.tmp-99-1")).unwrap();
    fs::write(dir.path().join(".model.tmp-99-1/model.safetensors"), "half").unwrap();
    drop(InfqWriter::create(&model, scheme(), weights()).unwrap());
    fill(&mut first, 4096).unwrap();
    first.finish(source()).unwrap();
    let left = [".model.tmp-", ".model.tmp-7", ".model.tmp-x", ".model2.tmp-1", "model"];
    assert_eq!(names(dir.path()), left.map(String::from).into());
    Infq::open(&model).unwrap();
}

/// The file that marks the test below as the child process, and says after how many steps it dies.
const CHILD: &str = "child";

/// Runs this test again in `dir`, which contains the file `CHILD`.
#[cfg(unix)]
fn child(dir: &Path, test: &str, steps: &str, before: &str) -> std::process::ExitStatus {
    fs::write(dir.join(CHILD), steps).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{before} exec \"$0\" --exact {test}")]);
    let status = shell.arg(std::env::current_exe().unwrap()).current_dir(dir);
    let status = status.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    fs::remove_file(dir.join(CHILD)).unwrap();
    status
}

#[cfg(unix)]
#[test]
fn a_writer_that_dies_leaves_the_target_alone_and_the_next_one_clears_up() {
    if let Ok(steps) = fs::read_to_string(CHILD) {
        let mut left: usize = steps.parse().unwrap();
        let mut step = || {
            // Abort without unwinding, as when killed.
            if left == 0 {
                std::process::abort();
            }
            left -= 1;
        };
        let mut writer = InfqWriter::create(Path::new("model"), scheme(), weights()).unwrap();
        step();
        writer.write_file("config.json", b"{}").unwrap();
        step();
        writer.write_part("norm.weight", "", &[0; 5]).unwrap();
        step();
        writer.write_part("embed.weight", "", &content("embed.weight", 1 << 20)).unwrap();
        std::process::abort();
    }
    let dir = tempdir().unwrap();
    let model = dir.path().join("model");
    for steps in ["0", "1", "2", "3"] {
        let test = "infq::a_writer_that_dies_leaves_the_target_alone_and_the_next_one_clears_up";
        assert!(!child(dir.path(), test, steps, "ulimit -c 0;").success());
        let mut left = names(dir.path());
        left.remove("model");
        assert!(left.len() == 1 && left.first().unwrap().starts_with(".model.tmp-"), "{left:?}");
        if steps == "2" {
            fs::create_dir(&model).unwrap();
        }
    }
    write(&model, 4096).unwrap();
    assert_eq!(names(dir.path()), ["model".to_owned()].into());
    read_all(&model).unwrap();
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    if Path::new(CHILD).exists() {
        let error = write(Path::new("model"), 4096).unwrap_err().to_string();
        assert!(error.starts_with("cannot write ") && error.contains("\n  in `"), "{error}");
        fs::write("refused", error).unwrap();
        return;
    }
    let test = "infq::a_full_disk_is_an_error_and_leaves_nothing";
    // Blocks are 512 bytes or 1 KiB, so the limits lie between 0 and 1 MiB. The signal is ignored, so that the write
    // returns an error.
    for blocks in [0, 1, 8, 900] {
        let dir = tempdir().unwrap();
        let status = child(dir.path(), test, "", &format!("trap '' XFSZ; ulimit -f {blocks};"));
        assert!(!names(dir.path()).iter().any(|name| name.contains("model")), "{:?}", names(dir.path()));
        // Below one block not even the marker file can be written.
        if blocks > 0 {
            assert!(status.success(), "{blocks}");
            assert!(dir.path().join("refused").exists());
        }
    }
}

#[test]
fn a_manifest_that_is_too_long_is_not_read() {
    let (_dir, model) = model();
    let manifest = File::options().write(true).open(model.join("infq.json")).unwrap();
    manifest.set_len((32 << 20) + 1).unwrap();
    let (message, _) = refusal(Infq::open(&model));
    assert_eq!(message, "the file has 33554433 bytes, but at most 33554432 are read");
}
