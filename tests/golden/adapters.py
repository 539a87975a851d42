"""Write adapters/: small LoRA adapters of golden checkpoints as PEFT saves them, with reference logits (f32).

    python adapters.py             rewrite adapters/ in this folder, from the checkpoints that lie here
    python adapters.py --check     build in a temporary folder and compare with what lies here

Every adapter is the directory that `save_pretrained` wrote (without its README.md), plus `reference.safetensors`:

    prompt         i64 [P]            token ids
    logits         f32 [P, vocab]     full forward of the prompt with the adapter, eager attention, no cache
    delta.PATH     f32 [2, columns]   first and last row of PEFT's `get_delta_weight` for the module, as [outputs, inputs]; of an
                                      embedding as [vocab, hidden]
    merged.PATH    f32 [2, columns]   DoRA only: the same rows of the weight after `merge_and_unload`
    norm.PATH      f32 [outputs]      DoRA only: PEFT's `get_weight_norm`, lengths of the rows of W + scaling B A

adapters/manifest.json: by adapter {base, covers, rank: {PATH: rank}, scaling: {PATH: scaling}, effect}; effect is the largest
change of a logit by the adapter.

adapters/rules.json: {modules, cases}; a case is a configuration (`config`, whose order of keys matters) and by PEFT's own functions
the indices of the modules that it targets (`targeted`), and the rank and scaling of each of them.

A and B come from a seed, and neither is zero. Before anything is written, the script makes sure that the directory, read back by
PEFT, gives exactly the same logits; that the logits move by more than VISIBLE without any one of the modules; and that every config
value under `matters` matters as much.
"""

import copy
import json
import shutil
import sys
import warnings
from dataclasses import dataclass, field

import make  # first: it tells the Hugging Face libraries that there is no network
import peft
import torch
from make import HERE, VISIBLE, largest_change, require, significant, size, write_json
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners import lora
from peft.tuners.lora import LoraLayer
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM

FOLDER = "adapters"
PROMPT_TOKENS = 16
MAX_BYTES = 1_500_000
CONFIG = "adapter_config.json"
LISTS = ("target_modules", "exclude_modules")  # sets in PEFT, whose order differs between runs: sorted here


@dataclass
class Adapter:
    name: str
    base: str
    covers: str
    config: dict
    matters: list[dict] = field(default_factory=list)
    dtype: torch.dtype = torch.float32
    headless: bool = False  # trained on the model without its head (AutoModel)
    pickled: bool = False  # adapter_model.bin


ADAPTERS = [
    Adapter(
        name="llama-plain",
        base="llama-a",
        covers="queries and values only; grouped heads, base with biases",
        config=dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", lora_dropout=0.05),
        matters=[dict(lora_alpha=4)],
    ),
    Adapter(
        name="llama-patterns",
        base="llama-b",
        covers="all-linear; rank_pattern and alpha_pattern with a name, a path, `^` and an expression",
        config=dict(
            r=4,
            lora_alpha=6,
            target_modules="all-linear",
            rank_pattern={"down_proj": 2, "layers.0.self_attn.q_proj": 8, "^model.layers.1.mlp.up_proj": 3, "^layers.1": 7},
            alpha_pattern={"(q|k)_proj": 16, "o_proj": 5, "proj": 1, "layers.[1-9].mlp.gate_proj": 10},
        ),
        matters=[dict(alpha_pattern={}), dict(alpha_pattern={"o_proj": 5})],
    ),
    Adapter(
        name="qwen2-rslora",
        base="qwen2-a",
        covers="rsLoRA: alpha over the root of the rank, with a rank pattern",
        config=dict(
            r=8,
            lora_alpha=6,
            use_rslora=True,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
            rank_pattern={"k_proj": 3},
        ),
        matters=[dict(use_rslora=False)],
    ),
    Adapter(
        name="llama-dora",
        base="llama-a",
        covers="DoRA on projections with and without biases of their base",
        config=dict(r=2, lora_alpha=4, use_dora=True, target_modules=["q_proj", "k_proj", "o_proj", "gate_proj", "down_proj"]),
    ),
    Adapter(
        name="qwen2-regex",
        base="qwen2-b",
        covers="target_modules as an expression, which leaves out a layer and some projections",
        config=dict(
            r=3,
            lora_alpha=9,
            target_modules=r".*\.(?:0|2)\.(?:self_attn\.[qk]_proj|mlp\.(?:up|down)_proj)",
        ),
        matters=[dict(lora_alpha=3)],
    ),
    Adapter(
        name="gpt2-conv1d",
        base="gpt2-a",
        covers="Conv1D modules, whose base weights are stored [inputs, outputs]",
        config=dict(r=3, lora_alpha=6, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True),
    ),
    Adapter(
        name="gpt2-dora",
        base="gpt2-b",
        covers="DoRA on Conv1D modules; fan_in_fan_out false, which PEFT corrects for each module; base without prefix in its file",
        config=dict(r=2, lora_alpha=3, use_dora=True, target_modules=["attn.c_attn", "mlp.c_proj"]),
    ),
    Adapter(
        name="qwen2-tied",
        base="qwen2-a",
        covers="embedding and head of a base that ties them: each has an adapter of its own, and a copy of the base weight",
        config=dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "lm_head", "v_proj"], task_type="CAUSAL_LM"),
    ),
    Adapter(
        name="qwen2-untied",
        base="qwen2-b",
        covers="embedding and head of a base that does not tie them",
        config=dict(r=3, lora_alpha=3, target_modules=["embed_tokens", "lm_head"]),
    ),
    Adapter(
        name="llama-dora-embedding",
        base="llama-a",
        covers="DoRA on embedding and head: one magnitude for each hidden dimension, and one for each token",
        config=dict(r=2, lora_alpha=2, use_dora=True, target_modules=["embed_tokens", "lm_head", "up_proj"]),
    ),
    Adapter(
        name="mistral-layers",
        base="mistral-a",
        covers="layers_to_transform and layers_pattern, a complete path that they do not restrict; adapter_model.bin",
        config=dict(
            r=2,
            lora_alpha=4,
            target_modules=["q_proj", "down_proj", "model.layers.1.self_attn.o_proj"],
            layers_to_transform=[0, 2],
            layers_pattern="layers",
        ),
        pickled=True,
    ),
    Adapter(
        name="qwen3-exclude",
        base="qwen3-a",
        covers="exclude_modules with a name and a path; bf16 tensors",
        config=dict(
            r=2,
            lora_alpha=5,
            target_modules=["o_proj", "up_proj", "down_proj"],
            exclude_modules=["o_proj", "model.layers.0.mlp.up_proj"],
        ),
        dtype=torch.bfloat16,
    ),
    Adapter(
        name="llama-headless",
        base="llama-a",
        covers="trained on AutoModel: paths without the family's prefix; f16 tensors",
        config=dict(r=2, lora_alpha=4, target_modules=["k_proj", "up_proj"], task_type="FEATURE_EXTRACTION"),
        dtype=torch.float16,
        headless=True,
    ),
    Adapter(
        name="gpt2-headless",
        base="gpt2-b",
        covers="Conv1D modules with paths without the family's prefix",
        config=dict(r=2, lora_alpha=4, target_modules=["attn.c_proj", "c_fc"]),
        headless=True,
    ),
]


RULE_MODULES = [
    *(
        f"{prefix}layers.{layer}.{module}"
        for prefix in ("model.", "")
        for layer in (0, 1, 2, 10, 11)
        for module in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
    ),
    *(f"{prefix}h.{layer}.{module}" for prefix in ("transformer.", "") for layer in (0, 3) for module in ("attn.c_proj", "mlp.c_proj")),
    "model.layers.1.mlp.experts.0.up_proj",
    "model.layers.0.block.1.q_proj",
    "model.embed_tokens",
    "embed_tokens",
    "lm_head",
    "layers.1",
]

ALL = ["q_proj", "o_proj", "up_proj", "down_proj", "c_proj", "embed_tokens", "lm_head"]
RULES = [
    dict(target_modules=["q_proj"]),
    dict(target_modules=["proj"]),
    dict(target_modules=["attn.c_proj", "mlp.up_proj"]),
    dict(target_modules=["layers.1.mlp.up_proj", "1"]),
    dict(target_modules=["model.layers.1.mlp.up_proj"], layers_to_transform=[0]),
    dict(target_modules=ALL, layers_to_transform=[1, 11]),
    dict(target_modules=ALL, layers_to_transform=0),
    dict(target_modules=ALL, layers_to_transform=[]),
    dict(target_modules=ALL, layers_to_transform=[0, 3], layers_pattern="h"),
    dict(target_modules=ALL, layers_to_transform=[0, 1], layers_pattern=["h", "layers"]),
    dict(target_modules=ALL, layers_to_transform=[0, 1], layers_pattern=["layers|h"]),
    dict(target_modules=ALL, layers_to_transform=[0, 1], layers_pattern=["layers|h", "layers"]),
    dict(target_modules=ALL, layers_to_transform=[0, 1], layers_pattern="[a-z]+"),
    dict(target_modules=ALL, layers_to_transform=[0], layers_pattern="[a-z]+"),
    dict(target_modules=ALL, layers_to_transform=[0, 1], layers_pattern=""),
    dict(target_modules=ALL, layers_to_transform=[0], layers_pattern="experts"),
    dict(target_modules="q_proj"),
    dict(target_modules="model.embed_tokens|lm_head"),
    dict(target_modules="model|lm_head|embed"),
    dict(target_modules="lm|lm_head"),
    dict(target_modules=r".*\.(q|o)_proj"),
    dict(target_modules=r"(?:.*?(?:self_attn|mlp).*?(?:q_proj|up_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.mlp\.(?:down_proj))"),
    dict(target_modules=r"model\.layers\.(?!10\.)\d+\.(?P<kind>self_attn|mlp)\..*(?<!down)_proj"),
    dict(target_modules=r"(?i)MODEL\..*Q_PROJ"),
    dict(target_modules=r"(layers)\.(\d)\2?\..*"),
    dict(target_modules=ALL, exclude_modules=["o_proj", "layers.1.mlp.up_proj"]),
    dict(target_modules=ALL, exclude_modules=r"model\..*"),
    dict(target_modules=ALL, exclude_modules=r"layers\.1"),
    dict(target_modules=ALL, exclude_modules=[]),
    dict(target_modules=ALL, exclude_modules=""),
    dict(target_modules=ALL, exclude_modules=["embed_tokens"], layers_to_transform=[2]),
    dict(target_modules=ALL, r=4, rank_pattern={"q_proj": 2, "layers.0.self_attn.q_proj": 3}),
    dict(target_modules=ALL, r=4, rank_pattern={"layers.0.self_attn.q_proj": 3, "q_proj": 2}),
    dict(target_modules=ALL, r=4, rank_pattern={"layers.1": 9, "^layers.1.*": 5, "model.layers.1.*up_proj": 6}),
    dict(target_modules=ALL, r=4, rank_pattern={"^model.layers.0.self_attn.q_proj": 5, "^self_attn.o_proj": 6, "mlp.+": 7}),
    dict(target_modules=ALL, r=4, rank_pattern={r"mlp\.up_proj": 5, "mlp.down.proj": 6, "(q|o)_proj": 7, "^(.*)c_proj": 3}),
    dict(target_modules=ALL, r=4, rank_pattern={"_proj": 5, ".*_proj": 6}),
    dict(target_modules=ALL, r=4, rank_pattern={"(a|p)roj": 9, "[qo]?_proj": 3, "(?:c_)+proj": 2}),
    dict(target_modules=ALL, r=4, rank_pattern={"": 5, "lm_head|embed_tokens": 6}),
    dict(target_modules=ALL, r=4, lora_alpha=6, alpha_pattern={"q_proj": 3, "layers.[01].mlp.up_proj": 2.5}),
    dict(target_modules=ALL, r=6, lora_alpha=7, use_rslora=True, rank_pattern={"q_proj": 3}, alpha_pattern={"q_proj": 11}),
    dict(target_modules=ALL, r=3, lora_alpha=1),
    dict(target_modules=ALL, r=7, lora_alpha=0),
    dict(target_modules=ALL, r=7, lora_alpha=-3, use_rslora=True),
    dict(target_modules=ALL),
]


def rule(config):
    """What PEFT makes of a configuration."""
    # Through JSON, as a file would be read.
    read = LoraConfig(**json.loads(json.dumps(config)))
    found = {"config": {"peft_type": "LORA"} | config, "targeted": [], "rank": [], "scaling": []}
    for index, module in enumerate(RULE_MODULES):
        if not check_target_module_exists(read, module):
            continue
        rank = read.rank_pattern.get(get_pattern_key(read.rank_pattern.keys(), module), read.r)
        alpha = read.alpha_pattern.get(get_pattern_key(read.alpha_pattern.keys(), module), read.lora_alpha)
        layer = lora.Linear(torch.nn.Linear(1, 1), "default", read, r=rank, lora_alpha=alpha)
        found["targeted"].append(index)
        found["rank"].append(rank)
        found["scaling"].append(layer.scaling["default"])
    return found


def write_rules(path):
    cases = [rule(config) for config in RULES]
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{{"modules": {json.dumps(RULE_MODULES)},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")


def base_model(adapter):
    """The base model, and the weight of the head for one that has none."""
    read = lambda cls: cls.from_pretrained(HERE / adapter.base, dtype=torch.float32, attn_implementation="eager").eval()
    whole = read(AutoModelForCausalLM)
    if not adapter.headless:
        whole.name_or_path = adapter.base
        return whole, None
    model = read(AutoModel)
    model.name_or_path = adapter.base
    return model, whole.get_output_embeddings().weight.detach()


@torch.no_grad()
def logits_of(model, head, ids):
    out = model(ids[None], use_cache=False)
    return out.logits[0] if head is None else out.last_hidden_state[0] @ head.T


def layers(model):
    """Adapted modules by the paths that PEFT matches."""
    found = {name.removeprefix("base_model.model."): module for name, module in model.named_modules()}
    return {name: module for name, module in sorted(found.items()) if isinstance(module, LoraLayer)}


def fill(model, seed, dtype):
    """Seeded A and B, such that every adapted module shows in the logits; magnitudes near those of the base."""
    generator = torch.Generator().manual_seed(seed)
    uniform = lambda shape: 2 * torch.rand(shape, generator=generator) - 1
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if "lora_embedding_A" in name:
                parameter.copy_(0.3 * uniform(parameter.shape))
            elif "lora_A" in name or "lora_embedding_B" in name:
                parameter.copy_(0.5 * uniform(parameter.shape))
            elif "lora_B" in name:
                parameter.copy_(0.08 * uniform(parameter.shape))
            elif "lora_magnitude_vector" in name:
                parameter.mul_(1 + 0.3 * uniform(parameter.shape))
            else:
                continue
            parameter.copy_(parameter.to(dtype))


def rows(weight):
    return torch.stack([weight[0], weight[-1]]).contiguous()


def oriented(module, weight):
    """As [outputs, inputs], which Conv1D stores the other way round."""
    return weight.T if type(module.get_base_layer()).__name__ == "Conv1D" else weight


@torch.no_grad()
def reference(adapter, model, head, prompt):
    found = {"prompt": prompt, "logits": logits_of(model, head, prompt).contiguous()}
    for path, module in layers(model).items():
        found[f"delta.{path}"] = rows(oriented(module, module.get_delta_weight("default")))
        if not adapter.config.get("use_dora"):
            continue
        embedding = "default" in module.lora_embedding_A
        dora = module.lora_magnitude_vector["default"]
        if embedding:
            a, b = module.lora_embedding_A["default"], module.lora_embedding_B["default"]
            delta = b @ a
        else:
            delta = module.lora_B["default"].weight @ module.lora_A["default"].weight
        weight = module.get_base_layer().weight
        found[f"norm.{path}"] = dora.get_weight_norm(weight, delta, module.scaling["default"]).contiguous()
        merged = copy.deepcopy(module)
        merged.merge()
        found[f"merged.{path}"] = rows(oriented(merged, merged.get_base_layer().weight))
    return found


@torch.no_grad()
def check_modules(adapter, model, head, ref):
    """The logits must move when any one module loses its adapter."""
    for path, module in layers(model).items():
        embedding = "default" in module.lora_embedding_A
        parameter = module.lora_embedding_A["default"] if embedding else module.lora_B["default"].weight
        kept = parameter.clone()
        parameter.zero_()
        effect = largest_change(logits_of(model, head, ref["prompt"]), ref)
        parameter.copy_(kept)
        require(effect > VISIBLE, f"{adapter.name}: {path} hardly matters ({effect})")


def attach(adapter, change=None):
    model, head = base_model(adapter)
    return get_peft_model(model, LoraConfig(**json.loads(json.dumps(adapter.config | (change or {}))))), head


def check_config(adapter, ref, seed):
    for change in adapter.matters:
        model, head = attach(adapter, change)
        fill(model, seed, adapter.dtype)
        effect = largest_change(logits_of(model, head, ref["prompt"]), ref)
        require(effect > VISIBLE, f"{adapter.name}: {change} hardly matters ({effect})")


def save(adapter, model, directory):
    if directory.exists():
        shutil.rmtree(directory)
    stored = copy.deepcopy(model)
    for name, parameter in stored.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(adapter.dtype)
    stored.save_pretrained(directory, safe_serialization=not adapter.pickled)
    (directory / "README.md").unlink()
    values = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    for key in LISTS:
        values[key] = sorted(values[key]) if isinstance(values[key], list) else values[key]
    # As PEFT writes it.
    (directory / CONFIG).write_text(json.dumps(values, indent=2, sort_keys=True), encoding="utf-8")


def make_one(adapter, seed, out):
    """Write one adapter and return its manifest entry."""
    model, head = attach(adapter)
    model.eval()
    fill(model, seed, adapter.dtype)
    vocab = model.config.vocab_size
    prompt = make.make_prompt(seed, vocab)[:PROMPT_TOKENS].clone()
    directory = out / FOLDER / adapter.name
    save(adapter, model, directory)
    ref = reference(adapter, model, head, prompt)
    base, _ = base_model(adapter)
    read_back = PeftModel.from_pretrained(base, directory).eval()
    require(largest_change(logits_of(read_back, head, prompt), ref) == 0.0, f"{adapter.name}: logits after reading")
    with model.disable_adapter():
        effect = largest_change(logits_of(model, head, prompt), ref)
    require(effect > 0.1, f"{adapter.name}: hardly matters ({effect})")
    check_modules(adapter, model, head, ref)
    check_config(adapter, ref, seed)
    save_file(ref, directory / "reference.safetensors")
    found = layers(model)
    print(f"{adapter.name:20} {len(found):3} modules  {size(directory):7} bytes  effect {effect:.3f}")
    return {
        "base": adapter.base,
        "covers": adapter.covers,
        "seed": seed,
        "rank": {path: module.r["default"] for path, module in found.items()},
        "scaling": {path: module.scaling["default"] for path, module in found.items()},
        "effect": significant(effect),
        "peft": peft.__version__,
    }


def make_all(out):
    warnings.simplefilter("ignore")
    manifest = {adapter.name: make_one(adapter, seed, out) for seed, adapter in enumerate(ADAPTERS, start=1)}
    write_json(out / FOLDER / "manifest.json", manifest)
    write_rules(out / FOLDER / "rules.json")
    total = size(out / FOLDER)
    require(total <= MAX_BYTES, f"{total} bytes in all")
    print(f"{len(manifest)} adapters, {total} bytes")


def differences(ours, theirs):
    """What differs between two folders: bytes, except for numbers that depend on the CPU's rounding."""
    for adapter in ADAPTERS:
        names = {path.name for folder in (ours, theirs) for path in (folder / FOLDER / adapter.name).glob("*")}
        for name in sorted(names):
            a, b = (folder / FOLDER / adapter.name / name for folder in (ours, theirs))
            label = f"{adapter.name}/{name}"
            if not (a.is_file() and b.is_file()):
                yield f"{label}: only in one of the folders"
            elif name == CONFIG:
                if a.read_bytes() != b.read_bytes():
                    yield f"{label}: other bytes"
            elif name.endswith(".safetensors"):
                x, y = load_file(a), load_file(b)
                if {key: value.shape for key, value in x.items()} != {key: value.shape for key, value in y.items()}:
                    yield f"{label}: other tensors"
                    continue
                for key in sorted(x):
                    if not torch.allclose(x[key].float(), y[key].float(), rtol=0, atol=make.CHECK_TOLERANCE):
                        yield f"{label}: {key} differs"
    a, b = (json.loads((folder / FOLDER / "manifest.json").read_text(encoding="utf-8")) for folder in (ours, theirs))
    for name in sorted(a.keys() | b.keys()):
        stable = [{key: value for key, value in side.get(name, {}).items() if key != "effect"} for side in (a, b)]
        if stable[0] != stable[1]:
            yield f"manifest.json: {name}"
    if len({(folder / FOLDER / "rules.json").read_bytes() for folder in (ours, theirs)}) > 1:
        yield "rules.json: other bytes"


if __name__ == "__main__":
    if sys.argv[1:2] != ["--check"]:
        (HERE / FOLDER).mkdir(exist_ok=True)
    make.command(__doc__, make_all, differences)
