"""Writes the `gguf_*` directories beside this file: hostile GGUF files, one broken rule each.

Needs Python 3.11 and nothing else; the same bytes every time.
"""

import pathlib
import struct

HERE = pathlib.Path(__file__).parent
ALIGNMENT = 32
U16, U32, I32, BOOL, STRING, ARRAY, F64 = 2, 4, 5, 7, 8, 9, 12
F32, Q8_0, IQ2_XXS = 0, 8, 16
PAIR = struct.pack("<2f", 1.0, 2.0)


# --- parts of a file ---

def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def array(kind, count, values=b""):
    return struct.pack("<IQ", kind, count) + values


def u32(value):
    return struct.pack("<I", value)


def tensor(name="w", shape=(2,), kind=F32, offset=0):
    dimensions = b"".join(struct.pack("<Q", size) for size in reversed(shape))
    return text(name) + struct.pack("<I", len(shape)) + dimensions + struct.pack("<IQ", kind, offset)


def file(keys=(), tensors=None, data=PAIR, version=3, key_count=None, tensor_count=None):
    tensors = [tensor()] if tensors is None else tensors
    key_count = len(keys) if key_count is None else key_count
    tensor_count = len(tensors) if tensor_count is None else tensor_count
    header = b"GGUF" + struct.pack("<IQQ", version, tensor_count, key_count) + b"".join([*keys, *tensors])
    return header + bytes(-len(header) % ALIGNMENT) + data


def value(kind, content):
    """A file whose only key is `k`."""
    return file([key("k", kind, content)])


def part(number, count=2, tensors=2, name="w", more=()):
    """A part, its number from 0, with one tensor."""
    keys = [key("split.no", U16, struct.pack("<H", number)), key("split.count", U16, struct.pack("<H", count)),
            key("split.tensors.count", I32, struct.pack("<i", tensors)), *more]
    return file(keys, [tensor(name)])


def attacks():
    whole = file()
    yield "empty", b""
    yield "not_gguf", b"version https://git-lfs.github.com/spec/v1\n"
    yield "older", b"tjgg" + whole[4:]
    yield "version_0", file(version=0)
    yield "version_1", file(version=1)
    yield "version_4", file(version=4)
    yield "big_endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)

    yield "keys_huge", file(key_count=(1 << 64) - 1)
    yield "keys_one_more", file(key_count=1)
    yield "key_length_huge", file([struct.pack("<Q", 1 << 63)])
    yield "key_empty", file([key("", U32, u32(1))])
    yield "key_twice", file([key("k", U32, u32(1)), key("k", STRING, text("a"))])
    yield "key_not_utf8", file([key(b"k\xff", U32, u32(1))])
    yield "value_type_13", value(13, u32(1))
    yield "value_text_length", value(STRING, struct.pack("<Q", (1 << 64) - 1))
    yield "value_text_not_utf8", value(STRING, text(b"ab\xc3"))
    yield "value_boolean_2", value(BOOL, b"\x02")
    yield "array_huge", value(ARRAY, array(U32, 1 << 60))
    yield "array_wraps", value(ARRAY, array(F64, 1 << 61))
    yield "array_one_more", value(ARRAY, array(U32, 22, u32(7) * 4))
    yield "array_of_texts_huge", value(ARRAY, array(STRING, 1 << 60))
    yield "array_text_length", value(ARRAY, array(STRING, 2, text("a") + struct.pack("<Q", 1 << 40)))
    yield "array_text_not_utf8", value(ARRAY, array(STRING, 2, text("a") + text(b"\xff")))
    # Each of these is no text, but together they are.
    yield "array_texts_divide_a_character", value(ARRAY, array(STRING, 2, text(b"\xc3") + text(b"\xa9")))
    yield "array_boolean_2", value(ARRAY, array(BOOL, 3, b"\x00\x01\x02"))
    yield "array_type_13", value(ARRAY, array(13, 1, u32(1)))
    yield "array_nested", value(ARRAY, array(ARRAY, 1, array(U32, 1, u32(1))))
    yield "array_nested_deep", value(ARRAY, array(ARRAY, 1) * 300)
    yield "alignment_0", file([key("general.alignment", U32, u32(0))])
    yield "alignment_24", file([key("general.alignment", U32, u32(24))])
    yield "alignment_text", file([key("general.alignment", STRING, text("32"))])
    yield "alignment_huge", file([key("general.alignment", U32, u32(1 << 31))])

    yield "tensors_huge", file(tensor_count=1 << 60)
    yield "tensors_one_more", file(tensor_count=2)
    yield "tensor_name_empty", file(tensors=[tensor("")])
    yield "tensor_name_length", file(tensors=[struct.pack("<Q", 1 << 62) + tensor()])
    yield "tensor_name_not_utf8", file(tensors=[tensor(b"w\xff")])
    yield "tensor_twice", file(tensors=[tensor(), tensor(offset=32)], data=bytes(64))
    yield "rank_5", file(tensors=[tensor(shape=(1, 1, 1, 1, 2))])
    yield "rank_huge", file(tensors=[text("w") + u32((1 << 32) - 1) + bytes(64)])
    yield "shape_overflow", file(tensors=[tensor(shape=(1 << 33, 1 << 33))])
    yield "shape_wraps", file(tensors=[tensor(shape=(2, (1 << 63) + 1))])
    yield "shape_bytes_overflow", file(tensors=[tensor(shape=(1 << 62,))])
    yield "shape_negative", file(tensors=[tensor(shape=((1 << 64) - 2,))])
    yield "type_unknown", file(tensors=[tensor(kind=99)])
    yield "type_removed", file(tensors=[tensor(kind=31)])
    yield "row_of_33", file(tensors=[tensor(shape=(32, 33), kind=Q8_0)], data=bytes(4096))
    yield "offset_misaligned", file(tensors=[tensor(offset=4)], data=bytes(64))
    yield "offset_huge", file(tensors=[tensor(offset=(1 << 64) - 32)])
    yield "offset_at_end", file(tensors=[tensor(offset=32)], data=bytes(32))
    yield "data_truncated", file(data=PAIR[:7])
    yield "overlap", file(tensors=[tensor("v", (9,)), tensor("w", offset=32)], data=bytes(64))
    yield "overlap_shared", file(tensors=[tensor("v"), tensor("w")])
    yield "overlap_inside", file(tensors=[tensor("v", (64,)), tensor("w", offset=64)], data=bytes(256))

    yield "tensor_not_read", file(tensors=[tensor(shape=(256,), kind=IQ2_XXS)], data=bytes(66))
    yield "weight_nan", file(data=struct.pack("<2f", 1.0, float("nan")))
    yield "weight_scale_infinite", file(
        tensors=[tensor(shape=(2, 32), kind=Q8_0)], data=bytes(34) + b"\x00\x7c" + b"\x01" * 32)


def directories():
    """Directories with other files than `model.gguf`."""
    first, second = "model-00001-of-00002.gguf", "model-00002-of-00002.gguf"
    yield "models_none", {"config.json": b"{}\n"}
    yield "models_two", {"a-Q8_0.gguf": file(), "b.gguf": file(), first: part(0), second: part(1, name="v")}
    yield "part_missing", {first: part(0)}
    yield "part_first_missing", {second: part(1)}
    yield "part_renamed", {"model.gguf": part(1, 3)}
    # Part 2 is part 1 again: reading on from it would not end.
    yield "part_cycle", {first: part(0), second: part(0)}
    yield "part_count", {first: part(0, 3), second: part(1, 3, name="v")}
    yield "part_without_count", {first: file(), second: file()}
    yield "part_without_number", {first: file([key("split.count", U16, struct.pack("<H", 2))]), second: file()}
    yield "part_foreign", {first: part(0), second: part(1, name="v", tensors=3)}
    yield "part_of_other_model", {
        first: part(0, more=[key("general.name", STRING, text("a"))]),
        second: part(1, name="v", more=[key("general.name", STRING, text("b"))])}
    yield "part_tensor_twice", {first: part(0), second: part(1)}
    yield "part_tensors_missing", {first: part(0, tensors=3), second: part(1, tensors=3, name="v")}
    yield "part_truncated", {first: part(0), second: part(1, name="v")[:-1]}


def write(attack, file_name, content):
    folder = HERE / f"gguf_{attack}"
    folder.mkdir(exist_ok=True)
    (folder / file_name).write_bytes(content)


for name, content in attacks():
    write(name, "model.gguf", content)
for name, files in directories():
    for file_name, content in files.items():
        write(name, file_name, content)
