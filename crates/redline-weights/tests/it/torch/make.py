"""Makes the files beside it: state dicts as PyTorch itself saves them, and the same tensors as safetensors.

Needs `torch` and `safetensors`; made with torch 2.15.0. `wide` is `single` saved again by Python's zipfile, with
zip64 fields in its directory where PyTorch has them for files over 4 GiB.
"""

import collections
import json
import pathlib
import struct
import zipfile

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent


def tensors():
    torch.manual_seed(7)
    weight = torch.randn(3, 4)
    state = collections.OrderedDict()
    state["layer.weight"] = weight
    state["tied.weight"] = weight
    state["slice"] = weight.view(-1)[5:9]
    state["row"] = weight[2:3, :]
    state["half"] = torch.randn(2, 2).to(torch.float16)
    state["brain"] = torch.nn.Parameter(torch.randn(5).to(torch.bfloat16))
    state["scalar"] = torch.tensor(-1.5)
    state["empty"] = torch.empty(0, 3)
    state["mask"] = torch.tensor([[True, False], [True, True]])
    state["positions"] = torch.arange(300).reshape(1, 300)
    state["frozen"] = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    return state


def widen(source, target):
    """The archive with a zip64 record and every size of its directory in a zip64 field."""
    with zipfile.ZipFile(source) as file:
        listed = file.infolist()
        start = file.start_dir
    directory = b""
    for entry in listed:
        extra = struct.pack("<HHQQQ", 1, 24, entry.file_size, entry.compress_size, entry.header_offset)
        name = entry.filename.encode()
        directory += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 0, 45, entry.flag_bits, 0, 0, 0, entry.CRC,
                                 0xFFFFFFFF, 0xFFFFFFFF, len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF)
        directory += name + extra
    count, end = len(listed), start + len(directory)
    record = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, len(directory), start)
    locator = struct.pack("<IIQI", 0x07064B50, 0, end, 1)
    last = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    target.write_bytes(source.read_bytes()[:start] + directory + record + locator + last)


def main():
    state = tensors()
    for folder in ("single", "sharded", "wide"):
        (HERE / folder).mkdir(exist_ok=True)
    own = {name: tensor.detach().clone() for name, tensor in state.items()}
    save_file(own, HERE / "expected.safetensors")
    state._metadata = collections.OrderedDict([("", {"version": 1})])
    torch.save(state, HERE / "single" / "pytorch_model.bin")
    widen(HERE / "single" / "pytorch_model.bin", HERE / "wide" / "pytorch_model.bin")

    names = list(state)
    shards = {f"pytorch_model-0000{nth}-of-00002.bin": names[nth - 1 :: 2] for nth in (1, 2)}
    for shard, inside in shards.items():
        torch.save({name: state[name] for name in inside}, HERE / "sharded" / shard)
    weight_map = {name: shard for shard, inside in shards.items() for name in inside}
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (HERE / "sharded" / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2) + "\n")


main()
