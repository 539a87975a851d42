//! The hostile GGUF files of `attacks/`, one test each: the exact error message.

use std::path::{Path, PathBuf};

use redline_weights::{Gguf, Result};

const FILE: &str = "model.gguf";
const FIRST: &str = "model-00001-of-00002.gguf";
const SECOND: &str = "model-00002-of-00002.gguf";

/// One test per attack: its directory, the fact its message states, and the file about which it does; none for the directory.
macro_rules! attacks {
    ($list:ident, { $($name:ident => $file:expr, $fact:expr;)* }) => {
        pub(crate) const $list: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                refused(stringify!($name), $file, $fact);
            }
        )*
    };
}

attacks!(OF_FILE, {
    gguf_empty => FILE, "the file type takes 4 bytes from byte 0 on, but the file has 0";
    gguf_not_gguf => FILE, "the file begins with `vers`, not with `GGUF`";
    gguf_older => FILE, "the file begins with `tjgg`, not with `GGUF`";
    gguf_version_0 => FILE, "the file has version 0 of the format, but 2 and 3 are read";
    gguf_version_1 => FILE, "the file has version 1 of the format, but 2 and 3 are read";
    gguf_version_4 => FILE, "the file has version 4 of the format, but 2 and 3 are read";
    gguf_big_endian => FILE,
        "the file is big-endian (version 3 of the format), but only little-endian files are read";
    gguf_keys_huge => FILE,
        "the list of keys has 18446744073709551615 entries from byte 24 on, which the 72 bytes of the file cannot hold";
    gguf_keys_one_more => FILE, "tensor 0 has no name";
    gguf_key_length_huge => FILE, "key 0 takes 9223372036854775808 bytes from byte 32 on, but the file has 104";
    gguf_key_empty => FILE, "key 0 is empty";
    gguf_key_twice => FILE, "the key `k` stands twice";
    gguf_key_not_utf8 => FILE, "key 0 is not UTF-8: byte 33 of the file is wrong";
    gguf_value_type_13 => FILE, "`k` has a value of type 13, but types are 0 to 12";
    gguf_value_text_length => FILE,
        "the value of `k` takes 18446744073709551615 bytes from byte 45 on, but the file has 104";
    gguf_value_text_not_utf8 => FILE, "the value of `k` is not UTF-8: byte 47 of the file is wrong";
    gguf_value_boolean_2 => FILE, "`k` has the byte 2 for a boolean, but 0 and 1 are allowed";
    gguf_array_huge => FILE,
        "the value of `k` has 1152921504606846976 entries from byte 49 on, which the 104 bytes of the file cannot hold";
    gguf_array_wraps => FILE,
        "the value of `k` has 2305843009213693952 entries from byte 49 on, which the 104 bytes of the file cannot hold";
    gguf_array_one_more => FILE,
        "the value of `k` has 22 entries from byte 49 on, which the 136 bytes of the file cannot hold";
    gguf_array_of_texts_huge => FILE,
        "the value of `k` has 1152921504606846976 entries from byte 49 on, which the 104 bytes of the file cannot hold";
    gguf_array_text_length => FILE,
        "the value of `k` takes 1099511627776 bytes from byte 66 on, but the file has 136";
    gguf_array_text_not_utf8 => FILE, "the value of `k` is not UTF-8: byte 66 of the file is wrong";
    gguf_array_texts_divide_a_character => FILE,
        "the value of `k` is not UTF-8: byte 57 of the file is wrong";
    gguf_array_boolean_2 => FILE, "`k` has the byte 2 for a boolean, but 0 and 1 are allowed";
    gguf_array_type_13 => FILE, "`k` has a value of type 13, but types are 0 to 12";
    gguf_array_nested => FILE, "`k` is an array of arrays, which are not read";
    gguf_array_nested_deep => FILE, "`k` is an array of arrays, which are not read";
    gguf_alignment_0 => FILE, "`general.alignment` is 0, but a power of two is needed";
    gguf_alignment_24 => FILE, "`general.alignment` is 24, but a power of two is needed";
    gguf_alignment_text => FILE, "`general.alignment` is \"32\" (string), but u32 is needed";
    gguf_alignment_huge => FILE, "tensor `w` has 8 bytes from 0 on, but the file has 0 data bytes";
    gguf_tensors_huge => FILE,
        "the list of tensors has 1152921504606846976 entries from byte 24 on, which the 72 bytes of the file cannot hold";
    gguf_tensors_one_more => FILE,
        "the list of tensors has 2 entries from byte 24 on, which the 72 bytes of the file cannot hold";
    gguf_tensor_name_empty => FILE, "tensor 0 has no name";
    gguf_tensor_name_length => FILE,
        "the name of tensor 0 takes 4611686018427387904 bytes from byte 32 on, but the file has 104";
    gguf_tensor_name_not_utf8 => FILE, "the name of tensor 0 is not UTF-8: byte 33 of the file is wrong";
    gguf_tensor_twice => FILE, "tensor `w` is listed twice";
    gguf_rank_5 => FILE, "tensor `w` has 5 dimensions, but at most 4 are read";
    gguf_rank_huge => FILE, "tensor `w` has 4294967295 dimensions, but at most 4 are read";
    gguf_shape_overflow => FILE,
        "tensor `w` has shape 8589934592 x 8589934592: more elements or bytes than can be counted";
    gguf_shape_wraps => FILE,
        "tensor `w` has shape 2 x 9223372036854775809: more elements or bytes than can be counted";
    gguf_shape_bytes_overflow => FILE,
        "tensor `w` has shape 4611686018427387904: more elements or bytes than can be counted";
    gguf_shape_negative => FILE,
        "tensor `w` has shape 18446744073709551614: more elements or bytes than can be counted";
    gguf_type_unknown => FILE, "tensor `w` has type 99, which is not known";
    gguf_type_removed => FILE, "tensor `w` is Q4_0_4_4, a type that GGML no longer has";
    gguf_row_of_33 => FILE, "tensor `w` has rows of 33 values, but Q8_0 has blocks of 32";
    gguf_offset_misaligned => FILE, "tensor `w` begins at 4, which is not a multiple of the alignment 32";
    gguf_offset_huge => FILE,
        "tensor `w` has 8 bytes from 18446744073709551584 on, but the file has 8 data bytes";
    gguf_offset_at_end => FILE, "tensor `w` has 8 bytes from 32 on, but the file has 32 data bytes";
    gguf_data_truncated => FILE, "tensor `w` has 8 bytes from 0 on, but the file has 7 data bytes";
    gguf_overlap => FILE, "tensor `w` begins at 32, but `v` before it ends at 36: an overlap";
    gguf_overlap_shared => FILE, "tensor `w` begins at 0, but `v` before it ends at 8: an overlap";
    gguf_overlap_inside => FILE, "tensor `w` begins at 64, but `v` before it ends at 256: an overlap";
    gguf_tensor_not_read => FILE, "tensor `w` is IQ2_XXS, which is not read";
    gguf_weight_nan => FILE, "tensor `w` is NaN at element 1 (F32)";
    gguf_weight_scale_infinite => FILE, "tensor `w` is inf at element 32 (Q8_0)";
});

attacks!(OF_FILES, {
    gguf_models_none => "", "no file here ends in `.gguf`";
    gguf_models_two => "", "there are 3 models here, like `a-Q8_0.gguf` and `b.gguf`, but one is needed";
    gguf_part_missing => "", "`model-00002-of-00002.gguf` is missing";
    gguf_part_first_missing => "", "`model-00001-of-00002.gguf` is missing";
    gguf_part_renamed => FILE,
        "the file is part 2 of 3, but its name does not end in `-00002-of-00003.gguf`";
    gguf_part_cycle => SECOND, "the number of the part is 1 in the metadata, but 2 in the name";
    gguf_part_count => FIRST, "the number of parts is 3 in the metadata, but 2 in the name";
    gguf_part_without_count => FIRST, "the number of parts is 1 in the metadata, but 2 in the name";
    gguf_part_without_number => FIRST, "the key `split.no` is missing";
    gguf_part_foreign => SECOND, "`split.tensors.count` has another value than in the first part";
    gguf_part_of_other_model => SECOND, "`general.name` has another value than in the first part";
    gguf_part_tensor_twice => SECOND, "tensor `w` is in `model-00001-of-00002.gguf` too";
    gguf_part_tensors_missing => FIRST, "the parts hold 2 tensors, but `split.tensors.count` is 3";
    gguf_part_truncated => SECOND, "tensor `v` has 8 bytes from 0 on, but the file has 7 data bytes";
});

const HINTS: &[(&str, &str)] = &[
    ("not_gguf", "perhaps a git LFS pointer, a file from before GGUF, or another format under its name"),
    ("version_1", "convert the model again with a current version of llama.cpp"),
    ("big_endian", "take the little-endian file of the model"),
    ("key_length_huge", "the file is incomplete: download it again"),
    ("array_huge", "the file is incomplete: download it again"),
    ("data_truncated", "the file is incomplete: download it again"),
    ("type_removed", "take a file of type Q4_0 or IQ4_NL: these types were copies of them"),
    ("tensor_not_read", "take a file of another type, like Q4_K_M or Q8_0"),
    ("weight_nan", "the weights are damaged, or the training that made them diverged"),
    ("models_none", "the directory may belong to another kind of model, or its download is not complete"),
    ("models_two", "give the path of the file, or of the first part"),
    ("part_missing", "the download is not complete: get this part too"),
    ("part_renamed", "give the file its name back: the other parts are found by it"),
    ("part_cycle", "the parts are not from one model; download them again"),
    ("part_count", "the parts are not from one model; download them again"),
    ("part_foreign", "the parts are not from one model; download them again"),
    ("part_tensor_twice", "the parts are not from one model; download them again"),
    ("part_tensors_missing", "the parts are not from one model; download them again"),
];

#[test]
fn a_refusal_comes_with_advice() {
    for (attack, hint) in HINTS {
        let error = read(&directory(&format!("gguf_{attack}"))).expect_err(attack);
        assert_eq!(error.hint().map(|hint| hint.to_string()).as_deref(), Some(*hint), "{attack}");
    }
}

fn refused(attack: &str, file: &str, fact: &str) {
    let dir = directory(attack);
    let message = read(&dir).expect_err(attack).to_string();
    let place = if file.is_empty() { dir.clone() } else { dir.join(file) };
    assert_eq!(message, format!("{fact}\n  in `{}`", place.display()));

    if dir.join(FILE).exists() {
        let bytes = std::fs::read(dir.join(FILE)).unwrap().leak();
        let embedded = Gguf::from_bytes("embedded", bytes).and_then(|gguf| read_all(&gguf));
        assert_eq!(embedded.expect_err(attack).to_string(), format!("{fact}\n  in `embedded`"));
    }
}

fn read(dir: &Path) -> Result<()> {
    Gguf::open(dir).and_then(|gguf| read_all(&gguf))
}

fn read_all(gguf: &Gguf) -> Result<()> {
    gguf.names().try_for_each(|name| {
        let elements = gguf.tensor(name).unwrap().elements();
        gguf.read_f32(name, &mut vec![0.0; elements])
    })
}

fn directory(attack: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("attacks").join(attack)
}
