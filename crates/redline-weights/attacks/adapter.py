"""Write the hostile adapters `adapter_*`: python adapter.py

Each differs in one thing from an adapter of rank 1 for three modules (`MODULES` in ../tests/it/attacks.rs): `layers.0.q` (2 inputs,
3 outputs), the embedding `embed` (4 tokens, width 2) and the head `lm_head` (2 inputs, 4 outputs). Only `layers.0.q` is targeted, unless
the attack says otherwise.
"""

import json
import shutil
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
Q = "base_model.model.layers.0.q"
EMBED = "base_model.model.embed"
A, B = f"{Q}.lora_A.weight", f"{Q}.lora_B.weight"
CONFIG = {"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["q"]}
TENSORS = {A: [1, 2], B: [3, 1]}
NAN, INFINITY = 0x7FC00000, 0x7F800000


def safetensors(tensors, dtype="F32", values=None):
    """Tensors of ones, except for the words of `values`: {(tensor, element): bits}."""
    header, data = {}, b""
    for name, shape in tensors.items():
        count = 1
        for dim in shape:
            count *= dim
        words = [(values or {}).get((name, element), 0x3F800000) for element in range(count)]
        size = {"F32": 4, "I64": 8}[dtype]
        begin = len(data)
        data += b"".join(word.to_bytes(size, "little") for word in words)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(name, config=None, tensors=None, raw=None, **how):
    folder = HERE / f"adapter_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    text = raw if raw is not None else json.dumps(CONFIG | (config or {}))
    (folder / "adapter_config.json").write_text(text + "\n", encoding="utf-8")
    weights = safetensors(TENSORS if tensors is None else tensors, **how)
    (folder / "adapter_model.safetensors").write_bytes(weights)


def main():
    # Configurations.
    write("config_not_object", raw="[1]")
    write("config_duplicate_key", raw='{"peft_type": "LORA", "r": 1, "r": 2, "target_modules": ["q"]}')
    write("config_prefix_tuning", {"peft_type": "PREFIX_TUNING"})
    write("config_without_type", raw='{"r": 1, "target_modules": ["q"]}')
    write("config_rank_zero", {"r": 0})
    write("config_rank_negative", {"r": -1})
    write("config_rank_huge", {"r": 2**63})
    write("config_pattern_rank_zero", {"rank_pattern": {"q": 0}})
    write("config_pattern_not_object", {"rank_pattern": ["q"]})
    write("config_alpha_text", {"lora_alpha": "2"})
    write("config_alpha_infinite", {"lora_alpha": 1e300})
    write("config_without_targets", raw='{"peft_type": "LORA", "r": 1}')
    write("config_targets_number", {"target_modules": 7})
    write("config_targets_numbers", {"target_modules": ["q", 7]})
    write("config_layers_with_expression", {"target_modules": ".*q", "layers_to_transform": [0]})
    write("config_layers_pattern_alone", {"layers_pattern": "layers"})
    write("config_layers_negative", {"layers_to_transform": [-1]})
    write("config_bias", {"bias": "lora_only"})
    write("config_modules_to_save", {"modules_to_save": ["lm_head"]})
    write("config_pissa", {"init_lora_weights": "pissa_niter_16"})
    write("config_invocation_tokens", {"alora_invocation_tokens": [1, 2]})
    write("config_token_indices", {"trainable_token_indices": [5]})
    write("config_lora_bias", {"lora_bias": True})
    write("config_megatron", {"megatron_config": {"a": 1}})
    write("config_layer_replication", {"layer_replication": [[0, 1]]})
    write("config_qalora", {"use_qalora": True})
    write("config_target_parameters", {"target_parameters": ["q.weight"]})
    write("config_weight_tying", {"ensure_weight_tying": True})
    write("config_unknown_key", {"use_something_new": 1})
    write("config_expression_broken", {"target_modules": "(q"})
    write("config_expression_backtracks", {"target_modules": "(?:(?:(?:(?:(?=.).)+)+)+)+x"})
    write("config_expression_huge", {"target_modules": "(?:(?:a{1,1000}){1,1000}){1,1000}"})
    write("config_expression_long", {"rank_pattern": {"+" * 5000: 1}})
    write("config_expressions_many", {"rank_pattern": {f"q+{n}": 1 for n in range(65)}})
    # Tensors.
    write("empty", tensors={})
    write("tensor_without_prefix", tensors={"layers.0.q.lora_A.weight": [1, 2], B: [3, 1]})
    write("tensor_without_module", tensors=TENSORS | {"base_model.model..lora_A.weight": [1, 2]})
    write("tensor_bias", tensors=TENSORS | {f"{Q}.lora_B.bias": [3]})
    write("tensor_whole_weight", tensors=TENSORS | {f"{EMBED}.weight": [4, 2]})
    write("tensor_twice", tensors=TENSORS | {f"{Q}.lora_A.default.weight": [1, 2]})
    write("tensor_of_base", tensors=TENSORS | {f"{Q}.base_layer.weight": [3, 2]})
    write("tensor_without_half", tensors={A: [1, 2]})
    write("tensor_mixed_kinds", tensors={A: [1, 2], f"{Q}.lora_embedding_B": [3, 1]})
    write("tensor_embedding_as_linear", {"target_modules": ["embed"]}, {f"{EMBED}.lora_A.weight": [1, 4], f"{EMBED}.lora_B.weight": [2, 1]})
    write("tensor_linear_as_embedding", tensors={f"{Q}.lora_embedding_A": [1, 2], f"{Q}.lora_embedding_B": [3, 1]})
    write("tensor_other_module", tensors=TENSORS | {f"{Q}x.lora_A.weight": [1, 2], f"{Q}x.lora_B.weight": [3, 1]})
    write("tensor_fixed_module", {"target_modules": ["q", "positions"]}, TENSORS | {
        "base_model.model.positions.lora_embedding_A": [1, 8],
        "base_model.model.positions.lora_embedding_B": [2, 1],
    })
    write("tensor_not_targeted", {"target_modules": ["k"]})
    write("target_without_tensors", {"target_modules": ["q", "lm_head", "embed"]})
    write("rank_of_shape", {"r": 2})
    write("rank_of_pattern", {"rank_pattern": {"q": 3}})
    write("rank_over_limit", {"r": 9}, {A: [9, 2], B: [3, 9]})
    write("shape_inputs", tensors={A: [1, 3], B: [3, 1]})
    write("shape_outputs", tensors={A: [1, 2], B: [4, 1]})
    write("shape_flat", tensors={A: [2], B: [3, 1]})
    write("shape_embedding", {"target_modules": ["embed"]}, {f"{EMBED}.lora_embedding_A": [1, 5], f"{EMBED}.lora_embedding_B": [2, 1]})
    write("shape_base_copy", {"target_modules": ["embed"]}, {
        f"{EMBED}.lora_embedding_A": [1, 4],
        f"{EMBED}.lora_embedding_B": [2, 1],
        f"{EMBED}.base_layer.weight": [5, 2],
    })
    write("shape_head_copy", {"target_modules": ["lm_head"]}, {
        "base_model.model.lm_head.lora_A.weight": [1, 2],
        "base_model.model.lm_head.lora_B.weight": [4, 1],
        "base_model.model.lm_head.base_layer.weight": [2, 4],
    })
    write("magnitude_missing", {"use_dora": True})
    write("magnitude_without_dora", tensors=TENSORS | {f"{Q}.lora_magnitude_vector": [3]})
    write("magnitude_shape", {"use_dora": True}, TENSORS | {f"{Q}.lora_magnitude_vector": [2]})
    write("value_nan", values={(A, 1): NAN})
    write("value_infinite", values={(B, 2): INFINITY})
    write("value_magnitude_nan", {"use_dora": True}, TENSORS | {f"{Q}.lora_magnitude_vector": [3]}, values={(f"{Q}.lora_magnitude_vector", 0): NAN})
    write("value_integers", dtype="I64")
    write("file_truncated")
    whole = HERE / "adapter_file_truncated" / "adapter_model.safetensors"
    whole.write_bytes(whole.read_bytes()[:-1])


if __name__ == "__main__":
    main()
