//! Model directories: good ones, wrong ones, and files that change or are not regular files.

use std::fs::{self, File};
use std::path::Path;

use redline_weights::{Checkpoint, Checksum, Dtype, StoredDtype};
use tempfile::tempdir;

use crate::{check, file};

const PAIR: &str = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;

const MISSING_V: &str = "tensor `v` is missing\n  in `demo`\n\n\
    config and weights are not from one model, or `architectures` names another one";

fn open(dir: &Path) -> redline_weights::Result<()> {
    Checkpoint::open(dir).map(drop)
}

#[test]
fn a_single_file_is_read_in_every_format() {
    let header = r#"{"c":{"dtype":"BF16","shape":[],"data_offsets":[12,14]},
        "b":{"dtype":"F16","shape":[2,1],"data_offsets":[8,12]},
        "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
        "n":{"dtype":"I64","shape":[1],"data_offsets":[14,22]},
        "e":{"dtype":"F32","shape":[0,7],"data_offsets":[14,14]}}  "#;
    let data =
        [&1.5f32.to_le_bytes()[..], &(-0.0f32).to_le_bytes(), &[0x01, 0x00, 0xff, 0xfb, 0x80, 0xbf], &[0; 8]];
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("model.safetensors"), file(header, &data.concat())).unwrap();

    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["a", "b", "c", "e", "n"]);
    assert_eq!(checkpoint.origin(), dir.path());
    assert_eq!(checkpoint.file_of("a").unwrap(), dir.path().join("model.safetensors"));
    assert!(checkpoint.file_of("z").is_none() && checkpoint.info("z").is_none());
    let info = checkpoint.require("b", &[2, 1]).unwrap();
    assert_eq!((info.dtype, info.elements(), info.bytes()), (StoredDtype::F16, 2, 4));
    assert_eq!(checkpoint.info("n").unwrap().dtype.float(), None);
    assert_eq!(checkpoint.info("b").unwrap().dtype.float(), Some(Dtype::F16));

    for (name, expect) in
        [("a", &[1.5, -0.0][..]), ("b", &[2f32.powi(-24), -65504.0]), ("c", &[-1.0]), ("e", &[])]
    {
        let mut values = vec![f32::NAN; expect.len()];
        checkpoint.read_f32(name, &mut values).unwrap();
        assert_eq!(values, expect, "{name}");
    }
}

#[test]
fn a_tensor_longer_than_the_buffer_is_read_whole() {
    let elements = 3 * (1 << 19) + 5;
    let header =
        format!(r#"{{"w":{{"dtype":"BF16","shape":[{elements}],"data_offsets":[0,{}]}}}}"#, 2 * elements);
    let bits = |nth: usize| (nth % 0x7f80) as u16;
    let data: Vec<u8> = (0..elements).flat_map(|nth| bits(nth).to_le_bytes()).collect();
    let dir = tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    fs::write(&path, file(&header, &data)).unwrap();
    let mut values = vec![0.0; elements];
    Checkpoint::open(dir.path()).unwrap().read_f32("w", &mut values).unwrap();
    assert!((0..elements).all(|nth| values[nth] == redline_weights::bf16_to_f32(bits(nth))));

    let mut damaged = data;
    damaged[2 * (elements - 2)..2 * (elements - 1)].copy_from_slice(&0xff80u16.to_le_bytes());
    fs::write(&path, file(&header, &damaged)).unwrap();
    let read = Checkpoint::open(dir.path()).unwrap().read_f32("w", &mut values);
    let expect = "tensor `w` is -inf at element 1572867\n  in `DIR/model.safetensors` (BF16)\n\n\
                  the weights are damaged, or the training that made them diverged";
    check(read, dir.path(), expect);
}

#[test]
fn shards_are_read_through_the_index() {
    let dir = tempdir().unwrap();
    let named = |name: &str| PAIR.replace('w', name);
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("one.safetensors", &file(&named("v"), &[0; 8]));
    write("two.safetensors", &file(&named("w"), &[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]));
    write(
        "model.safetensors.index.json",
        br#"{"metadata":{"total_size":16},"weight_map":{"w":"two.safetensors","v":"one.safetensors"}}"#,
    );
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["v", "w"]);
    assert_eq!(checkpoint.file_of("w").unwrap(), dir.path().join("two.safetensors"));
    let mut values = [0.0; 2];
    checkpoint.read_f32("w", &mut values).unwrap();
    assert_eq!(values, [1.0, 2.0]);
}

#[test]
fn what_a_model_needs_is_named() {
    let here = Path::new("DIR");
    let checkpoint = Checkpoint::from_bytes("demo", file(PAIR, &[0; 8]).leak()).unwrap();
    let hint = "config and weights are not from one model, or `architectures` names another one";
    check(checkpoint.require("v", &[2]), here, &format!("tensor `v` is missing\n  in `demo`\n\n{hint}"));
    let expect = format!("`w` is 2, but this config needs 2 x 3\n  in `demo` (F32)\n\n{hint}");
    check(checkpoint.require("w", &[2, 3]), here, &expect);
    let expect = format!("`w` is 2, but this config needs a scalar\n  in `demo` (F32)\n\n{hint}");
    check(checkpoint.require("w", &[]), here, &expect);
    let expect = "tensor `w` has 2 elements, but the buffer for it has 3\n  in `demo`";
    check(checkpoint.read_f32("w", &mut [0.0; 3]), here, expect);
}

#[test]
fn names_from_files_are_made_fit_for_a_terminal() {
    let header = PAIR.replace('w', r"\u001b[31m\n").replace("[0,8]", "[8,0]");
    let opened = Checkpoint::from_bytes("demo", file(&header, &[0; 8]).leak()).map(drop);
    let expect = "tensor `\\u{1b}[31m\\n` ends at 0, before it begins at 8\n  in `demo`";
    check(opened, Path::new("DIR"), expect);
    let header = PAIR.replace('w', &"w".repeat(1000)).replace("[0,8]", "[8,0]");
    let opened = Checkpoint::from_bytes("demo", file(&header, &[0; 8]).leak());
    assert!(opened.err().unwrap().to_string().len() < 250);
}

#[test]
fn a_directory_without_weights() {
    let dir = tempdir().unwrap();
    let fact =
        "none of `model.safetensors`, `pytorch_model.bin` and their `.index.json` exists\n  in `DIR`\n\n";
    let expect = "the directory may belong to another kind of model, or its download is not complete";
    check(open(dir.path()), dir.path(), &format!("{fact}{expect}"));

    fs::write(dir.path().join("tf_model.h5"), "").unwrap();
    let expect =
        "`tf_model.h5` is not read; it can be converted with transformers: load it and `save_pretrained` it";
    check(open(dir.path()), dir.path(), &format!("{fact}{expect}"));
    fs::rename(dir.path().join("tf_model.h5"), dir.path().join("flax_model.msgpack")).unwrap();
    let expect = expect.replace("tf_model.h5", "flax_model.msgpack");
    check(open(dir.path()), dir.path(), &format!("{fact}{expect}"));
    fs::write(dir.path().join("tf_model.h5"), "").unwrap();

    let expect = "cannot open the model directory: No such file or directory (os error 2)\n  in `DIR/gone`";
    check(open(&dir.path().join("gone")), dir.path(), expect);
    let expect = "a model directory is needed, but this is a file\n  in `DIR/tf_model.h5`\n\n\
                  give the directory that holds `config.json` and the weights, or a GGUF file";
    check(open(&dir.path().join("tf_model.h5")), dir.path(), expect);
}

#[test]
fn ranges_are_parts_of_the_whole() {
    let elements = (1 << 18) + 3;
    let header =
        format!(r#"{{"w":{{"dtype":"F32","shape":[{elements}],"data_offsets":[0,{}]}}}}"#, 4 * elements);
    let data: Vec<u8> = (0..elements).flat_map(|nth| (nth as f32).to_le_bytes()).collect();
    let checkpoint = Checkpoint::from_bytes("demo", file(&header, &data).leak()).unwrap();
    for (first, count) in [(0, 0), (0, 1), (7, 5), (1, elements - 1), (elements - 2, 2), (elements, 0)] {
        let mut values = vec![f32::NAN; count];
        checkpoint.read_f32_range("w", first, &mut values).unwrap();
        assert!(values.iter().enumerate().all(|(nth, &value)| value == (first + nth) as f32), "{first}");
    }
    let here = Path::new("DIR");
    for (first, count) in [(elements, 1), (elements - 1, 2), (usize::MAX, 1), (usize::MAX, 0)] {
        let read = checkpoint.read_f32_range("w", first, &mut vec![0.0; count]);
        let expect = format!(
            "tensor `w` has {elements} elements, but {count} from {first} on are to be read\n  in `demo`"
        );
        check(read, here, &expect);
    }
    check(checkpoint.read_f32_range("v", 0, &mut [0.0]), here, MISSING_V);
}

#[test]
fn an_element_that_is_not_finite_is_counted_from_the_beginning_of_its_tensor() {
    let data = [&1f32.to_le_bytes()[..], &f32::NAN.to_le_bytes()].concat();
    let checkpoint = Checkpoint::from_bytes("demo", file(PAIR, &data).leak()).unwrap();
    checkpoint.read_f32_range("w", 0, &mut [0.0]).unwrap();
    let error = checkpoint.read_f32_range("w", 1, &mut [0.0]).unwrap_err().to_string();
    assert_eq!(error, "tensor `w` is NaN at element 1\n  in `demo` (F32)");
}

#[test]
fn a_digest_depends_on_the_tensors_and_not_on_the_files() {
    let digest = |header: &str, data: &[u8]| {
        Checkpoint::from_bytes("demo", file(header, data).leak()).unwrap().digest().unwrap()
    };
    let two = r#"{"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
        "w":{"dtype":"I32","shape":[1],"data_offsets":[4,8]}}"#;
    let swapped = r#"{"w":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},
        "v":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let data = [1, 2, 3, 4, 5, 6, 7, 8];
    let whole = digest(two, &data);
    assert_eq!(whole.to_string(), "91fa3f1c2c3024fb1ff81f7cbe5ab745");
    assert_eq!(digest(swapped, &[5, 6, 7, 8, 1, 2, 3, 4]), whole);

    let dir = tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    let one = |name: &str, dtype: &str| {
        format!(r#"{{"{name}":{{"dtype":"{dtype}","shape":[1],"data_offsets":[0,4]}}}}"#)
    };
    write("one.safetensors", &file(&one("v", "F32"), &data[..4]));
    write("two.safetensors", &file(&one("w", "I32"), &data[4..]));
    write("model.safetensors.index.json", br#"{"weight_map":{"w":"two.safetensors","v":"one.safetensors"}}"#);
    assert_eq!(Checkpoint::open(dir.path()).unwrap().digest().unwrap(), whole);

    let others = [
        digest(two, &[1, 2, 3, 4, 5, 6, 7, 9]),
        digest(&two.replace("I32", "U32"), &data),
        digest(&two.replace("\"v\"", "\"u\""), &data),
        digest(&two.replacen("[1]", "[1,1]", 1), &data),
        digest(&two.replacen("[1]", "[]", 1), &data),
        digest("{}", &[]),
    ];
    for (nth, other) in others.iter().enumerate() {
        assert!(*other != whole && !others[..nth].contains(other), "{nth}");
    }
}

#[test]
fn a_digest_covers_a_large_tensor_to_its_last_byte() {
    // Two and a half reads.
    let length = 5_usize << 19;
    let header = format!(r#"{{"w":{{"dtype":"U8","shape":[{length}],"data_offsets":[0,{length}]}}}}"#);
    let data: Vec<u8> = (0..length).map(|nth| (nth % 251) as u8).collect();
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("model.safetensors"), file(&header, &data)).unwrap();
    // The lengths of name, type and shape precede them.
    let [one, two, dim] = [1, 2, length as u64].map(u64::to_le_bytes);
    let expect = Checksum::of(&[&one[..], b"w", &two, b"U8", &one, &dim, &data].concat());
    assert_eq!(Checkpoint::open(dir.path()).unwrap().digest().unwrap(), expect);
    let embedded = Checkpoint::from_bytes("demo", file(&header, &data).leak()).unwrap();
    assert_eq!(embedded.digest().unwrap(), expect);
}

#[test]
fn an_index_ends_with_its_object() {
    let dir = tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("one.safetensors", &file(PAIR, &[0; 8]));
    write("model.safetensors.index.json", b"{\"weight_map\":{\"w\":\"one.safetensors\"}} \n");
    open(dir.path()).unwrap();
    write("model.safetensors.index.json", b"{\"weight_map\":{\"w\":\"one.safetensors\"}} {}");
    let expect = "the index is wrong: trailing characters at line 1 column 40\n  \
                  in `DIR/model.safetensors.index.json`";
    check(open(dir.path()), dir.path(), expect);
}

#[test]
fn a_header_of_the_largest_size_in_a_sparse_file() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    fs::write(&path, 100_000_000u64.to_le_bytes()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(100_000_008).unwrap();
    let expect = "the header is not a JSON object: it begins with `\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}\\u{0}`\n  \
                  in `DIR/model.safetensors`\n\n\
                  this is not a safetensors file: perhaps a git LFS pointer, or another format under its name";
    check(open(dir.path()), dir.path(), expect);
}

#[test]
fn a_file_that_shrinks_after_it_was_opened() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    fs::write(&path, file(PAIR, &[0; 8])).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(66).unwrap();
    let expect = "tensor `w` ends at byte 70, but the file now has 66\n  in `DIR/model.safetensors`\n\n\
                  the file changed while it was being read";
    check(checkpoint.read_f32("w", &mut [0.0; 2]), dir.path(), expect);
}

#[test]
fn a_file_that_is_replaced_after_it_was_opened_is_read_as_it_was() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    fs::write(&path, file(PAIR, &[0; 8])).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    fs::write(dir.path().join("new"), "").unwrap();
    fs::rename(dir.path().join("new"), &path).unwrap();
    let mut values = [1.0; 2];
    checkpoint.read_f32("w", &mut values).unwrap();
    assert_eq!(values, [0.0; 2]);
}

#[test]
fn a_directory_in_the_place_of_the_weights() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("model.safetensors")).unwrap();
    let expect = "a regular file is needed, but this is something else\n  in `DIR/model.safetensors`";
    check(open(dir.path()), dir.path(), expect);
}

#[cfg(unix)]
#[test]
fn devices_pipes_and_dangling_links_do_not_block() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    let expect = "a regular file is needed, but this is something else\n  in `DIR/model.safetensors`";
    check(open(dir.path()), dir.path(), expect);

    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    check(open(dir.path()), dir.path(), expect);

    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("blobs/gone", &path).unwrap();
    let expect = "cannot open the file: No such file or directory (os error 2)\n  in `DIR/model.safetensors`";
    check(open(dir.path()), dir.path(), expect);
}

#[test]
fn a_file_that_is_refused_comes_with_advice() {
    let refused = |header: &str, data: &[u8], expect: &str| {
        let opened = Checkpoint::from_bytes("demo", file(header, data).leak()).map(drop);
        check(opened, Path::new("DIR"), expect);
    };
    let incomplete = "the file is incomplete: download it again";
    let fact = "tensor `w` ends at 8, but the file has 7 data bytes";
    refused(PAIR, &[0; 7], &format!("{fact}\n  in `demo`\n\n{incomplete}"));
    let fact = "the tensors end at 8, but the file has 9 data bytes";
    let hidden = "data that no tensor owns is refused: it may hide another file";
    refused(PAIR, &[0; 9], &format!("{fact}\n  in `demo`\n\n{hidden}"));
    for (bytes, fact) in [
        (&b"\x02\0\0"[..], "the file has 3 bytes, but the header length alone takes 8"),
        (&b"\x02\0\0\0\0\0\0\0{"[..], "the header claims 2 bytes, but only 1 follow its length"),
    ] {
        let opened = Checkpoint::from_bytes("demo", bytes).map(drop);
        check(opened, Path::new("DIR"), &format!("{fact}\n  in `demo`\n\n{incomplete}"));
    }
}

#[test]
fn an_index_that_does_not_fit_its_shards_comes_with_advice() {
    let dir = tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    let index = "model.safetensors.index.json";
    write("one.safetensors", &file(PAIR, &[0; 8]));
    let place = "\n  in `DIR/model.safetensors.index.json`\n\n";
    // Of several tensors in a shard that is missing, the first is named.
    write(
        index,
        br#"{"weight_map":{"w":"one.safetensors","z":"b.safetensors","x":"b.safetensors","y":"b.safetensors"}}"#,
    );
    let expect = format!(
        "tensor `x` is said to be in `b.safetensors`, which does not exist{place}\
         the download is not complete: get `b.safetensors` too"
    );
    check(open(dir.path()), dir.path(), &expect);
    let advice = "index and shards are not from one model; download them again";
    for (map, fact) in [
        (
            r#"{"weight_map":{"v":"one.safetensors"}}"#,
            "tensor `w` is in `one.safetensors`, but the index does not list it there",
        ),
        (
            r#"{"weight_map":{"w":"one.safetensors","x":"one.safetensors"}}"#,
            "tensor `x` is said to be in `one.safetensors`, which does not hold it",
        ),
    ] {
        write(index, map.as_bytes());
        check(open(dir.path()), dir.path(), &format!("{fact}{place}{advice}"));
    }
}

#[test]
fn an_index_that_is_too_long_is_not_read() {
    let dir = tempdir().unwrap();
    let index = File::create(dir.path().join("model.safetensors.index.json")).unwrap();
    index.set_len(100_000_001).unwrap();
    let expect = "the file has 100000001 bytes, but at most 100000000 are read\n  \
                  in `DIR/model.safetensors.index.json`";
    check(open(dir.path()), dir.path(), expect);
}
