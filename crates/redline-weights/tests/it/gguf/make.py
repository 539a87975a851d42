"""Makes the files beside it: what the package `gguf` reads from blocks, and files that it writes.

Needs `gguf` and `numpy`; made with gguf 0.19.0 and numpy 2.4.6.

- `blocks.txt`: for each type, a digest of the values of 20,000 blocks (65,536 of the 16-bit floats, all there are), and
  eight values. The blocks come from a generator that `blocks.rs` repeats.
- `single/`, `split/`: a model in one file, and in three parts.
- `tensors.txt`: its tensors with type, shape and the digest of their values.
"""

import pathlib

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

HERE = pathlib.Path(__file__).parent
GAMMA = np.uint64(0x9E3779B97F4A7C15)

# Type, and the places of its 16-bit scales.
TYPES = {
    "F32": (2,), "F16": (), "BF16": (), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
    "MXFP4": (),
}
# Zeros, subnormal numbers, the smallest normal one, ones, a tenth, the largest, infinities, NaNs.
SCALES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x2E66,
                   0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0xFE00, 0x7F80, 0xFFFF], dtype="<u2")
# The first blocks have chosen scales, all pairs of them.
CHOSEN = 4096
BLOCKS = 20000


def mix(x):
    """The output function of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def steps(count):
    return np.arange(1, count + 1, dtype=np.uint64) * GAMMA


def random_bytes(seed, count):
    return mix(np.uint64(seed) + steps(-(-count // 8))).astype("<u8").view(np.uint8)[:count]


def blocks_of(name):
    kind = GGMLQuantizationType[name]
    size = GGML_QUANT_SIZES[kind][1]
    if size == 2:
        return np.arange(65536, dtype="<u2").view(np.uint8).reshape(-1, 2)
    blocks = random_bytes(kind, BLOCKS * size).reshape(BLOCKS, size).copy()
    nth = np.arange(CHOSEN)
    for place, digit in zip(TYPES[name], (nth % 16, nth // 16 % 16)):
        blocks[:CHOSEN, place : place + 2] = SCALES[digit].view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:CHOSEN, 0] = nth % 256
    return blocks


def bits(values):
    """The bits of the values, the same for every NaN."""
    values = np.ascontiguousarray(values, dtype=np.float32).ravel()
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32)).astype(np.uint64)


def digest(values):
    values = bits(values)
    return int(mix(values + steps(len(values))).sum(dtype=np.uint64))


def blocks():
    lines = []
    for name in TYPES:
        kind = GGMLQuantizationType[name]
        values = gguf.dequantize(blocks_of(name), kind).ravel()
        begin = (CHOSEN + 2) * GGML_QUANT_SIZES[kind][0]
        some = " ".join(f"{int(word):08x}" for word in bits(values[begin : begin + 8]))
        lines.append(f"{name} {digest(values):016x} {some}\n")
    (HERE / "blocks.txt").write_text("".join(lines))


def tensors():
    """Names, types and stored bytes."""
    random = np.random.RandomState(7)
    for name, scales in TYPES.items():
        kind = GGMLQuantizationType[name]
        shape = (3, 2, 32) if GGML_QUANT_SIZES[kind][0] <= 32 else (2, 512)
        try:
            data = gguf.quantize(random.standard_normal(shape).astype(np.float32), kind)
        except NotImplementedError:
            values, size = GGML_QUANT_SIZES[kind]
            data = random_bytes(1000 + kind, int(np.prod(shape)) // values * size).reshape(-1, size).copy()
            for place in scales:
                data[:, place : place + 2] = [0x66, 0x2E]
            data = data.reshape(*shape[:-1], -1)
        yield f"blk.{int(kind)}.weight", kind, data
    yield "vector", GGMLQuantizationType.F32, np.arange(5, dtype=np.float32)


def metadata(writer):
    writer.add_uint8("test.u8", 255)
    writer.add_int8("test.i8", -128)
    writer.add_uint16("test.u16", 65535)
    writer.add_int16("test.i16", -32768)
    writer.add_uint32("test.u32", 4294967295)
    writer.add_int32("test.i32", -2147483648)
    writer.add_uint64("test.u64", 18446744073709551615)
    writer.add_int64("test.i64", -9223372036854775808)
    writer.add_float32("test.f32", 0.1)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.true", True)
    writer.add_bool("test.false", False)
    writer.add_string("test.string", "G\u00fcte \U0001f600\n\0")
    writer.add_string("test.empty", "\u200b")
    arrays = {
        "UINT8": [0, 255], "INT8": [-128, 127], "UINT16": [65535], "INT16": [-1, 2], "UINT32": [4294967295, 0],
        "INT32": [-2147483648, 3], "UINT64": [18446744073709551615], "INT64": [-1], "FLOAT32": [0.5, -1.5],
        "FLOAT64": [0.1], "BOOL": [True, False, True], "STRING": ["", "a", "\u00e9\u00e9", ""],
    }
    for kind, values in arrays.items():
        writer.add_key_value(f"test.array.{kind.lower()}", values, GGUFValueType.ARRAY, GGUFValueType[kind])


def write(folder, per_part):
    (HERE / folder).mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(HERE / folder / "model.gguf", "test", split_max_tensors=per_part)
    metadata(writer)
    for name, kind, data in tensors():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    np.seterr(all="ignore")
    blocks()
    write("single", 0)
    write("split", 7)
    lines = []
    for name, kind, data in tensors():
        values = gguf.dequantize(data, kind)
        shape = "x".join(map(str, values.shape))
        lines.append(f"{name} {kind.name} {shape} {digest(values):016x}\n")
    (HERE / "tensors.txt").write_text("".join(lines))


main()
