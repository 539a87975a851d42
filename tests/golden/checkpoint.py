"""What a golden checkpoint is made of."""

from dataclasses import dataclass, field


@dataclass
class Checkpoint:
    name: str
    # "transformers-5": arguments for the config class; config.json is what save_pretrained writes.
    # "classic": the literal config.json, laid out as transformers 4 and the published checkpoints have it.
    style: str
    covers: str
    config: dict
    matters: list[dict] = field(default_factory=list)
    layer_types: list[str] | None = None
    shard_size: str | None = None  # save in several files of at most this size
    shards: int = 1
    legacy_gpt2: bool = False  # names without `transformer.`, causal-mask buffers included
    four_bits: bool = False  # the experts of gpt-oss as blocks of four-bit floats
    unread_keys: tuple[int, ...] = ()  # layers that take the keys and values of others, and have weights for them in the file
    duplicate_head: bool = False  # tied, yet lm_head.weight is in the file as well
    stacked_experts: bool = False  # those of a layer in two tensors instead of each in its own
