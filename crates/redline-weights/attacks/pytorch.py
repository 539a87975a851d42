"""Writes the `pytorch_*` directories beside this file: hostile `pytorch_model.bin` files, one broken rule each.

Needs Python 3.11 and nothing else; the same bytes every time. Nothing here is ever loaded by Python.
"""

import io
import json
import pathlib
import struct
import zipfile

HERE = pathlib.Path(__file__).parent
MASK = (1 << 32) - 1


# --- a pickle, operation by operation ---

def text(value):
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    raw = value.to_bytes(8, "little", signed=True)
    return b"\x8a\x08" + raw


def name(module, attribute):
    return b"c" + f"{module}\n{attribute}\n".encode()


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


def storage(kind="FloatStorage", key="0", elements=2):
    return tuple_of(text("storage"), name("torch", kind), text(key), text("cpu"), number(elements)) + b"Q"


def tensor(stored=None, offset=0, shape=(2,), strides=(1,)):
    sizes = [tuple_of(*map(number, values)) for values in (shape, strides)]
    hooks = name("collections", "OrderedDict") + b")R"
    rebuild = name("torch._utils", "_rebuild_tensor_v2")
    return rebuild + tuple_of(stored or storage(), number(offset), *sizes, b"\x89", hooks) + b"R"


def state(*pairs):
    items = b"".join((text(key) if isinstance(key, str) else key) + value for key, value in pairs)
    return b"\x80\x02}(" + items + b"u."


# --- an archive ---

PAIR = struct.pack("<2f", 1.0, 2.0)
GOOD = state(("w", tensor()))


def archive(pickle=GOOD, data=PAIR, more=(), compression=zipfile.ZIP_STORED):
    entries = [("m/data.pkl", pickle), ("m/byteorder", b"little"), ("m/data/0", data), *more]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for entry, content in entries:
            file.writestr(zipfile.ZipInfo(entry), content, compression)
    return out.getvalue()


def patched(whole, at, form, value):
    raw = bytearray(whole)
    struct.pack_into(form, raw, at if at >= 0 else len(raw) + at, value)
    return bytes(raw)


def in_directory(whole, entry, at, form, value):
    """Changes a field of an entry in the archive's directory, where names stand for the last time."""
    return patched(whole, whole.rindex(entry.encode()) - 46 + at, form, value)


def zip64(whole, **wrong):
    """The archive with a zip64 record, as PyTorch writes it; `wrong` changes fields of it."""
    body, end = whole[:-22], whole[-22:]
    entries, length, offset = struct.unpack_from("<HII", end, 10)
    fields = {"entries": entries, "length": length, "offset": offset, "size": 44, **wrong}
    record = struct.pack("<IQHHIIQQQQ", 0x06064B50, fields["size"], 30, 45, 0, 0, fields["entries"],
                         fields["entries"], fields["length"], fields["offset"])
    locator = struct.pack("<IIQI", 0x07064B50, 0, fields.get("at", len(body)), 1)
    return body + record + locator + end


def overlapping():
    """`data/1` whose header lies inside the data of `data/0`."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as file:
        file.writestr(zipfile.ZipInfo("m/data/1"), PAIR)
    local = inner.getvalue()[: 30 + 8 + 8]
    whole = archive(data=local, more=[("m/data/1", PAIR)])
    inside = whole.index(b"m/data/0") + 8
    return in_directory(whole, "m/data/1", 42, "<I", inside)


def attacks():
    good = archive()
    yield "legacy", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00."
    yield "not_zip", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 548118077\n"
    yield "empty", b""
    yield "zip_truncated", good[:-30]
    yield "zip_cut_at_front", good[8:]
    yield "zip_other_disk", patched(good, -18, "<H", 1)
    yield "zip_directory_offset", patched(good, -6, "<I", 1)
    yield "zip_directory_length", patched(good, -10, "<I", 1 << 30)
    yield "zip_more_entries", patched(good, -12, "<H", 4)
    yield "zip_fewer_entries", patched(good, -12, "<H", 2)
    yield "zip_compressed", archive(compression=zipfile.ZIP_DEFLATED)
    yield "zip_encrypted", in_directory(good, "m/data/0", 8, "<H", 1)
    yield "zip_two_lengths", in_directory(good, "m/data/0", 20, "<I", 7)
    yield "zip_entry_beyond_end", in_directory(good, "m/data/0", 42, "<I", MASK - 1)
    yield "zip_data_beyond_end", in_directory(in_directory(good, "m/data/0", 20, "<I", 1 << 20),
                                              "m/data/0", 24, "<I", 1 << 20)
    yield "zip_overlap", overlapping()
    yield "zip_duplicate", archive(more=[("m/data/0", PAIR)])
    yield "zip_local_name", patched(good, good.index(b"m/data/0"), "<B", ord("n"))
    yield "zip_name_not_utf8", patched(good, good.rindex(b"m/data/0"), "<B", 0xFF)
    yield "zip64_field_missing", in_directory(good, "m/data/0", 42, "<I", MASK)
    yield "zip64_disagrees", zip64(good, entries=4)
    yield "zip64_offset_huge", patched(zip64(good, offset=(1 << 64) - 1), -6, "<I", MASK)
    yield "zip64_record_elsewhere", zip64(good, at=0)
    yield "zip64_record_length", zip64(good, size=45)
    yield "pickle_missing", archive().replace(b"data.pkl", b"data.pkm")
    yield "pickle_twice", archive(more=[("n/data.pkl", GOOD)])
    yield "byte_order_big", archive().replace(b"little", b"bigger")

    system = name("posix", "system") + b"(" + text("id") + b"tR"
    yield "global_os_system", archive(state(("w", system)))
    yield "global_eval", archive(b"\x80\x02" + name("builtins", "eval") + b"(" + text("1") + b"tR.")
    yield "global_torch_load", archive(state(("w", name("torch", "load"))))
    yield "global_long", archive(b"\x80\x02c" + b"a" * 5000 + b"\n.")
    yield "operation_inst", archive(b"\x80\x02(" + text("id") + b"iposix\nsystem\n.")
    yield "operation_obj", archive(b"\x80\x02(" + name("collections", "OrderedDict") + b"o.")
    yield "operation_newobj", archive(b"\x80\x02" + name("collections", "OrderedDict") + b")\x81.")
    yield "operation_stack_global", archive(b"\x80\x02" + text("posix") + text("system") + b"\x93.")
    yield "operation_extension", archive(b"\x80\x02\x82\x01.")
    yield "operation_list", archive(state(("w", b"]")))
    yield "protocol_4", archive(b"\x80\x04" + GOOD[2:])
    yield "pickle_truncated", archive(GOOD[:-5])
    yield "pickle_trailing", archive(GOOD + GOOD)
    yield "memo_unset", archive(b"\x80\x02h\x07.")
    yield "memo_bomb", archive(state(("w", b")q\x00" + b"h\x00h\x00\x86q\x00" * 500)))
    yield "stack_empty", archive(b"\x80\x02.")
    yield "stack_below_mark", archive(b"\x80\x02}(s.")
    yield "mark_missing", archive(b"\x80\x02t.")
    yield "marks_nested", archive(b"\x80\x02" + b"(" * 5000)
    yield "tuples_nested", archive(state(("w", b")" + b"\x85" * 5000)))
    yield "items_odd", archive(b"\x80\x02}(" + text("w") + b"u.")
    yield "items_into_tuple", archive(b"\x80\x02)(" + text("w") + b"Nu.")
    yield "build_object", archive(b"\x80\x02" + name("collections", "OrderedDict") + b"}b.")
    yield "reduce_text", archive(b"\x80\x02" + text("f") + b")R.")
    yield "reduce_arguments", archive(b"\x80\x02" + name("torch._utils", "_rebuild_tensor_v2") + b")R.")
    yield "text_beyond_end", archive(b"\x80\x02X" + struct.pack("<I", MASK) + b"w.")
    yield "text_not_utf8", archive(b"\x80\x02X\x01\x00\x00\x00\xff.")
    yield "integer_huge", archive(b"\x80\x02\x8a\x09" + b"\x01" * 9 + b".")

    yield "state_number", archive(b"\x80\x02K\x07.")
    yield "state_of_numbers", archive(state(("epoch", number(7)), ("w", tensor())))
    yield "state_nested", archive(state(("state_dict", b"}(" + text("w") + tensor() + b"u")))
    yield "state_key_number", archive(state((number(7), tensor())))
    yield "state_twice", archive(state(("w", tensor()), ("w", tensor())))
    yield "storage_missing", archive(state(("w", tensor(storage(key="9")))))
    yield "storage_path", archive(state(("w", tensor(storage(key="../../../etc/passwd")))))
    yield "storage_key_long", archive(state(("w", tensor(storage(key="0" * 5000)))))
    yield "storage_size", archive(state(("w", tensor(storage(elements=3)))))
    yield "storage_size_huge", archive(state(("w", tensor(storage(elements=(1 << 62) + 2)))))
    yield "storage_size_negative", archive(state(("w", tensor(storage(elements=-1)))))
    yield "storage_type_unknown", archive(state(("w", tensor(storage("QInt8Storage")))))
    yield "storage_not_described", archive(b"\x80\x02" + tuple_of(text("module"), text("w")) + b"Q.")
    yield "tensor_offset", archive(state(("w", tensor(offset=1))))
    yield "tensor_offset_huge", archive(state(("w", tensor(offset=(1 << 63) - 1))))
    yield "tensor_offset_negative", archive(state(("w", tensor(offset=-1))))
    yield "tensor_shape_negative", archive(state(("w", tensor(shape=(-2,)))))
    yield "tensor_shape_huge", archive(state(("w", tensor(shape=(1 << 33, 1 << 33), strides=(1 << 33, 1)))))
    yield "tensor_shape_wraps", archive(state(("w", tensor(shape=(1 << 62, 4), strides=(4, 1)))))
    yield "tensor_rank_9", archive(state(("w", tensor(shape=(1,) * 9, strides=(1,) * 9))))
    yield "tensor_transposed", archive(
        state(("w", tensor(storage(elements=4), shape=(2, 2), strides=(1, 2)))), data=PAIR * 2)
    yield "tensor_expanded", archive(state(("w", tensor(shape=(2, 2), strides=(0, 1)))))
    yield "tensor_stride_count", archive(state(("w", tensor(shape=(2,), strides=(2, 1)))))
    yield "tensor_too_large", archive(state(("w", tensor(shape=(3,)))))
    yield "value_nan", archive(data=struct.pack("<2f", 1.0, float("nan")))
    yield "value_booleans", archive(state(("w", tensor(storage("BoolStorage", elements=8), shape=(8,)))))


def write(attack, file, content):
    folder = HERE / f"pytorch_{attack}"
    folder.mkdir(exist_ok=True)
    (folder / file).write_bytes(content)


def index(shard, **tensors):
    return json.dumps({"weight_map": tensors or {"w": shard}}).encode()


for attack, content in attacks():
    write(attack, "pytorch_model.bin", content)
INDEX, SHARD = "pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"
write("index_parent_path", INDEX, index("../pytorch_value_nan/pytorch_model.bin"))
write("index_missing_shard", INDEX, index(SHARD))
write("index_extra_tensor", INDEX, index(SHARD, v=SHARD, w=SHARD))
write("index_extra_tensor", SHARD, archive())
write("index_missing_tensor", INDEX, index(SHARD, v=SHARD))
write("index_missing_tensor", SHARD, archive())
