//! The directories of `attacks/`, one test each: the exact error message.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use redline_weights::{Checkpoint, Result};

use crate::adapter_attacks;
use crate::gguf::attacks as gguf_attacks;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const PYTORCH: &str = "pytorch_model.bin";
const PYTORCH_INDEX: &str = "pytorch_model.bin.index.json";
const SHARD: &str = "model-00001-of-00002.safetensors";

/// One test per attack: its directory, and the fact its message states about `$file`.
macro_rules! attacks {
    ($list:ident, $file:expr, { $($name:ident => $fact:expr,)* }) => {
        const $list: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                refused(stringify!($name), $file, $fact);
            }
        )*
    };
}

attacks!(OF_SINGLE, SINGLE, {
    file_empty => "the file has 0 bytes, but the header length alone takes 8",
    file_of_7_bytes => "the file has 7 bytes, but the header length alone takes 8",
    length_huge => "the header claims 18446744073709551615 bytes, but at most 100000000 are allowed",
    length_over_limit => "the header claims 100000001 bytes, but at most 100000000 are allowed",
    length_beyond_file => "the header claims 1000 bytes, but only 2 follow its length",
    length_zero => "the header is not a JSON object: it begins with ``",
    header_not_utf8 => "the header is not UTF-8: byte 3 of it is wrong",
    header_not_json => "the header is wrong at `w`: EOF while parsing a string at line 1 column 10",
    header_not_object => "the header is not a JSON object: it begins with `[1, 2, 3`",
    header_is_a_pickle => "the header claims 67324752 bytes, but only 16 follow its length",
    header_leading_space => "the header is not a JSON object: it begins with ` {\"w\":{\"`",
    header_trailing_text => "the header is wrong: trailing characters at line 1 column 55",
    nested_outer =>
        "the header is wrong at `w`: invalid type: sequence, expected an object with `dtype`, `shape` and \
         `data_offsets` at line 1 column 5",
    nested_in_metadata =>
        "the header is wrong at `__metadata__`: invalid type: map, expected a string at line 1 column 21",
    nested_in_shape =>
        "the header is wrong at `w`: invalid type: sequence, expected usize at line 1 column 29",
    duplicate_tensor => "the header is wrong at `w`: the key `w` stands twice at line 1 column 57",
    duplicate_tensor_escaped => "the header is wrong at `w`: the key `w` stands twice at line 1 column 62",
    duplicate_inner_key => "the header is wrong at `w`: the key `dtype` stands twice at line 1 column 27",
    duplicate_metadata =>
        "the header is wrong at `__metadata__`: the key `__metadata__` stands twice at line 1 column 33",
    duplicate_metadata_key =>
        "the header is wrong at `__metadata__`: the key `format` stands twice at line 1 column 45",
    metadata_not_strings =>
        "the header is wrong at `__metadata__`: invalid type: integer `1`, expected a string at line 1 \
         column 27",
    name_empty => "the header is wrong at ``: a tensor without a name at line 1 column 3",
    key_unknown => "the header is wrong at `w`: unknown key `stride` at line 1 column 61",
    key_missing => "the header is wrong at `w`: the key `shape` is missing at line 1 column 41",
    dtype_unknown => "the header is wrong at `w`: unknown dtype `F33` at line 1 column 19",
    shape_negative =>
        "the header is wrong at `w`: invalid value: integer `-2`, expected usize at line 1 column 31",
    shape_float =>
        "the header is wrong at `w`: invalid type: floating point `2.0`, expected usize at line 1 column 32",
    shape_number_huge =>
        "the header is wrong at `w`: invalid type: floating point `1.8446744073709552e+19`, expected usize \
         at line 1 column 49",
    shape_product_overflow =>
        "tensor `w` has shape 8589934592 x 8589934592: more elements or bytes than can be counted",
    shape_product_wraps =>
        "tensor `w` has shape 9223372036854775809 x 2: more elements or bytes than can be counted",
    shape_bits_overflow =>
        "tensor `w` has shape 1152921504606846976: more elements or bytes than can be counted",
    shape_rank_9 => "the header is wrong at `w`: more than 8 numbers in a list at line 1 column 47",
    size_mismatch => "tensor `w` is 3 of F32: 12 bytes, but its offsets hold 8",
    size_partial_byte => "tensor `w` is 3 of F4: 12 bits are no whole number of bytes",
    offsets_one => "the header is wrong at `w`: 1 data offsets instead of 2 at line 1 column 51",
    offsets_three => "the header is wrong at `w`: more than 2 numbers in a list at line 1 column 54",
    offsets_negative =>
        "the header is wrong at `w`: invalid value: integer `-8`, expected u64 at line 1 column 50",
    offsets_reversed => "tensor `w` ends at 0, before it begins at 8",
    offsets_huge => "tensor `w` begins at 18446744073709551607, but the data before it ends at 0: a hole",
    offsets_beyond_end => "tensor `w` ends at 16, but the file has 8 data bytes",
    offsets_overlap => "tensor `w` begins at 4, but the data before it ends at 8: an overlap",
    offsets_shared => "tensor `w` begins at 0, but the data before it ends at 8: an overlap",
    offsets_hole => "tensor `w` begins at 12, but the data before it ends at 8: a hole",
    offsets_hole_at_start => "tensor `w` begins at 4, but the data before it ends at 0: a hole",
    data_trailing => "the tensors end at 8, but the file has 30 data bytes",
    data_without_tensors => "the tensors end at 0, but the file has 8 data bytes",
    data_truncated => "tensor `w` ends at 8, but the file has 7 data bytes",
    value_nan_f32 => "tensor `w` is NaN at element 1",
    value_signalling_nan_f32 => "tensor `w` is NaN at element 0",
    value_inf_f16 => "tensor `w` is -inf at element 2",
    value_nan_bf16 => "tensor `w` is NaN at element 3",
    value_integers => "tensor `w` is I64, but weights are read from F32, F16 and BF16",
});

attacks!(OF_INDEX, INDEX, {
    index_parent_path =>
        "tensor `v` is said to be in `../data_truncated/model.safetensors`, which is no file of this \
         directory",
    index_absolute_path => "tensor `v` is said to be in `/etc/passwd`, which is no file of this directory",
    index_backslash_path =>
        "tensor `v` is said to be in `..\\secret.safetensors`, which is no file of this directory",
    index_nul_path =>
        "tensor `v` is said to be in `model\\u{0}.safetensors`, which is no file of this directory",
    index_dot_path => "tensor `v` is said to be in `.`, which is no file of this directory",
    index_missing_shard =>
        "tensor `w` is said to be in `model-00002-of-00002.safetensors`, which does not exist",
    index_missing_tensor =>
        "tensor `u` is in `model-00001-of-00002.safetensors`, but the index does not list it there",
    index_extra_tensor =>
        "tensor `x` is said to be in `model-00002-of-00002.safetensors`, which does not hold it",
    index_wrong_shard =>
        "tensor `w` is in `model-00001-of-00002.safetensors`, but the index does not list it there",
    index_tensor_in_two_shards =>
        "tensor `v` is in `model-00002-of-00002.safetensors`, but the index does not list it there",
    index_duplicate_tensor => "the index is wrong at `v`: the key `v` stands twice at line 1 column 57",
    index_duplicate_map => "the index is wrong: the key `weight_map` stands twice at line 1 column 67",
    index_not_json => "the index is wrong: expected value at line 1 column 1",
    index_not_object =>
        "the index is wrong: invalid type: sequence, expected an object with `weight_map` at line 1 column 0",
    index_no_map => "the index has no `weight_map`",
    index_empty_map => "the index lists no tensors",
    index_value_not_string =>
        "the index is wrong at `v`: invalid type: integer `1`, expected a string at line 1 column 20",
    index_nested =>
        "the index is wrong: invalid type: sequence, expected an object from tensor names to file names at \
         line 1 column 4026",
});

attacks!(OF_SHARD, SHARD, {
    index_broken_shard => "tensor `v` ends at 8, but the file has 7 data bytes",
});

attacks!(OF_PYTORCH, PYTORCH, {
    pytorch_legacy => "the file has the format of PyTorch before 1.6, a bare pickle",
    pytorch_not_zip => "the file has 72 bytes and does not end like a zip archive",
    pytorch_empty => "the file has 0 bytes and does not end like a zip archive",
    pytorch_zip_truncated => "the file has 429 bytes and does not end like a zip archive",
    pytorch_zip_cut_at_front => "the archive's end of the directory is 437, but 429 is needed",
    pytorch_zip_other_disk => "the archive's number of its disk is 1, but 0 is needed",
    pytorch_zip_directory_offset => "the archive's end of the directory is 168, but 437 is needed",
    pytorch_zip_directory_length =>
        "the archive's directory length is 1073741824, but at most 67108864 is read",
    pytorch_zip_more_entries => "entry 3 of the archive's directory is cut short or has no valid name",
    pytorch_zip_fewer_entries => "the archive's rest of the directory is 54, but 0 is needed",
    pytorch_zip_compressed => "entry `m/data.pkl` is compressed, but only plain entries are read",
    pytorch_zip_encrypted => "entry `m/data/0` is encrypted, but only plain entries are read",
    pytorch_zip_two_lengths => "entry `m/data/0` is of two lengths, but only plain entries are read",
    pytorch_zip_entry_beyond_end =>
        "the archive's entry header lies at 4294967294 and has 38 bytes, but the file has 459",
    pytorch_zip_data_beyond_end => "entry `m/data/0` ends at 1048838, but the next one begins at 270",
    pytorch_zip_overlap => "entry `m/data/0` ends at 308, but the next one begins at 262",
    pytorch_zip_duplicate => "entry `m/data/0` is in the archive twice",
    pytorch_zip_local_name => "entry `m/data/0` differs between the archive's directory and its own header",
    pytorch_zip_name_not_utf8 => "entry 2 of the archive's directory is cut short or has no valid name",
    pytorch_zip64_field_missing => "entry 2 of the archive's directory is cut short or has no valid name",
    pytorch_zip64_disagrees => "the archive's number of entries is 4, but 3 is needed",
    pytorch_zip64_offset_huge =>
        "the archive's directory lies at 18446744073709551615 and has 167 bytes, but the file has 535",
    pytorch_zip64_record_elsewhere => "the archive's end of the zip64 record is 56, but 493 is needed",
    pytorch_zip64_record_length => "the archive's zip64 record length is 45, but 44 is needed",
    pytorch_pickle_missing => "the archive has 0 entries `data.pkl`, but one is needed",
    pytorch_pickle_twice => "the archive has 2 entries `data.pkl`, but one is needed",
    pytorch_byte_order_big => "the archive's byte order is `bigger`, but `little` is needed",
    pytorch_global_os_system => "the pickle asks for `posix.system`, which is not executed",
    pytorch_global_eval => "the pickle asks for `builtins.eval`, which is not executed",
    pytorch_global_torch_load => "the pickle asks for `torch.load`, which is not executed",
    pytorch_global_long => "the pickle's operation at byte 2 needs a line with a short name",
    pytorch_operation_inst => "the pickle has operation 0x69 at byte 10, which no state dict needs",
    pytorch_operation_obj => "the pickle has operation 0x6f at byte 28, which no state dict needs",
    pytorch_operation_newobj => "the pickle has operation 0x81 at byte 28, which no state dict needs",
    pytorch_operation_stack_global => "the pickle has operation 0x93 at byte 23, which no state dict needs",
    pytorch_operation_extension => "the pickle has operation 0x82 at byte 2, which no state dict needs",
    pytorch_operation_list => "the pickle has operation 0x5d at byte 10, which no state dict needs",
    pytorch_protocol_4 => "the pickle has protocol 4, but 2 is needed",
    pytorch_pickle_truncated => "the pickle ends at byte 132, inside an operation",
    pytorch_pickle_trailing => "the pickle goes on after its end at byte 137",
    pytorch_memo_unset => "the pickle's operation at byte 2 needs a value remembered before",
    pytorch_memo_bomb => "`w` is a tuple, not a tensor",
    pytorch_stack_empty => "the pickle's operation at byte 2 needs a value on the stack",
    pytorch_stack_below_mark => "the pickle's operation at byte 4 needs a value on the stack",
    pytorch_mark_missing => "the pickle's operation at byte 2 needs a mark on the stack",
    pytorch_marks_nested => "the pickle has more than 64 marks at byte 66",
    pytorch_tuples_nested => "`w` is a tuple, not a tensor",
    pytorch_items_odd => "the pickle's operation at byte 10 needs a dict, and keys with values",
    pytorch_items_into_tuple => "the pickle's operation at byte 11 needs a dict, and keys with values",
    pytorch_build_object => "the pickle's operation at byte 28 needs a dict and a dict of its attributes",
    pytorch_reduce_text => "the pickle's operation at byte 9 needs a function and a tuple of arguments",
    pytorch_reduce_arguments =>
        "the pickle's operation at byte 36 needs the arguments that `torch.save` writes",
    pytorch_text_beyond_end => "the pickle ends at byte 9, inside an operation",
    pytorch_text_not_utf8 => "the pickle's operation at byte 2 needs UTF-8",
    pytorch_integer_huge => "the pickle's operation at byte 2 needs an integer of at most 64 bits",
    pytorch_state_number => "the pickle holds a number, not a state dict",
    pytorch_state_of_numbers => "`epoch` is a number, not a tensor",
    pytorch_state_nested => "`state_dict` is a dict, not a tensor",
    pytorch_state_key_number => "the pickle holds a dict with keys that are no text, not a state dict",
    pytorch_state_twice => "tensor `w` is listed twice",
    pytorch_storage_missing => "tensor `w` is in storage `9`, which is not in the archive",
    pytorch_storage_path => "tensor `w` is in storage `../../../etc/passwd`, which is not in the archive",
    pytorch_storage_key_long => "the pickle's operation at byte 5093 needs a short key of a storage",
    pytorch_storage_size => "tensor `w` is in storage `0`, said to hold 3 of F32, but it has 8 bytes",
    pytorch_storage_size_huge =>
        "tensor `w` is in storage `0`, said to hold 4611686018427387906 of F32, but it has 8 bytes",
    pytorch_storage_size_negative => "the pickle's operation at byte 102 needs a number of elements",
    pytorch_storage_type_unknown => "tensor `w` has the unsupported storage type `QInt8Storage`",
    pytorch_storage_not_described => "the pickle's operation at byte 21 needs the description of a storage",
    pytorch_tensor_offset => "tensor `w` has 2 elements from 1 on, but its storage has 2",
    pytorch_tensor_offset_huge =>
        "tensor `w` has 2 elements from 9223372036854775807 on, but its storage has 2",
    pytorch_tensor_offset_negative => "`w` is a tensor without whole sizes, not a tensor",
    pytorch_tensor_shape_negative => "`w` is a tensor without whole sizes, not a tensor",
    pytorch_tensor_shape_huge =>
        "tensor `w` has shape 8589934592 x 8589934592: more elements or bytes than can be counted",
    pytorch_tensor_shape_wraps =>
        "tensor `w` has shape 4611686018427387904 x 4: more elements or bytes than can be counted",
    pytorch_tensor_rank_9 => "tensor `w` has 9 dimensions, but at most 8 are read",
    pytorch_tensor_transposed => "tensor `w` is 2 x 2 with strides [1, 2]: not contiguous",
    pytorch_tensor_expanded => "tensor `w` is 2 x 2 with strides [0, 1]: not contiguous",
    pytorch_tensor_stride_count => "tensor `w` is 2 with strides [2, 1]: not contiguous",
    pytorch_tensor_too_large => "tensor `w` has 3 elements from 0 on, but its storage has 2",
    pytorch_value_nan => "tensor `w` is NaN at element 1",
    pytorch_value_booleans => "tensor `w` is BOOL, but weights are read from F32, F16 and BF16",
});

attacks!(OF_PYTORCH_INDEX, PYTORCH_INDEX, {
    pytorch_index_parent_path =>
        "tensor `w` is said to be in `../pytorch_value_nan/pytorch_model.bin`, which is no file of this \
         directory",
    pytorch_index_missing_shard =>
        "tensor `w` is said to be in `pytorch_model-00001-of-00001.bin`, which does not exist",
    pytorch_index_extra_tensor =>
        "tensor `v` is said to be in `pytorch_model-00001-of-00001.bin`, which does not hold it",
    pytorch_index_missing_tensor =>
        "tensor `w` is in `pytorch_model-00001-of-00001.bin`, but the index does not list it there",
});

#[test]
fn every_attack_is_listed_and_tested() {
    let of_models = [OF_SINGLE, OF_INDEX, OF_SHARD, OF_PYTORCH, OF_PYTORCH_INDEX].concat();
    let of_adapters = [adapter_attacks::OF_CONFIG, adapter_attacks::OF_TENSORS].concat();
    let of_gguf = [gguf_attacks::OF_FILE, gguf_attacks::OF_FILES].concat();
    let all = of_models.into_iter().chain(of_adapters).chain(of_gguf);
    let tested: BTreeSet<String> = all.map(str::to_owned).collect();
    let entries = std::fs::read_dir(directory("")).unwrap().map(Result::unwrap);
    let there = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    assert_eq!(there.map(|entry| entry.file_name().into_string().unwrap()).collect::<BTreeSet<_>>(), tested);

    let readme = std::fs::read_to_string(directory("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    assert_eq!(rows.map(|(name, _)| name.to_owned()).collect::<BTreeSet<_>>(), tested);
}

fn refused(attack: &str, file: &str, fact: &str) {
    let dir = directory(attack);
    let opened = Checkpoint::open(&dir);
    let error = opened.and_then(|checkpoint| read_all(&checkpoint)).expect_err(attack);
    let message = error.to_string();
    let (first, place) = message.split_once('\n').expect(&message);
    assert_eq!(first, fact);
    assert!(place.starts_with(&format!("  in `{}`", dir.join(file).display())), "{place}");

    if file == SINGLE {
        let bytes = std::fs::read(dir.join(file)).unwrap().leak();
        let opened = Checkpoint::from_bytes("embedded", bytes);
        let message = opened.and_then(|checkpoint| read_all(&checkpoint)).expect_err(attack).to_string();
        assert!(message.starts_with(&format!("{fact}\n  in `embedded`")), "{message}");
    }
}

fn read_all(checkpoint: &Checkpoint) -> Result<()> {
    checkpoint.names().try_for_each(|name| {
        let elements = checkpoint.info(name).unwrap().elements();
        checkpoint.read_f32(name, &mut vec![0.0; elements])
    })
}

fn directory(attack: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("attacks").join(attack)
}
