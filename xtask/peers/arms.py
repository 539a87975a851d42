"""What is compared: every engine in every weight format, in the order of the run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arm:
    """`bits` puts formats side by side; `peak` is the arithmetic that its prefill is held against."""

    engine: str
    format: str
    bits: int
    peak: str = ""

    @property
    def name(self):
        return f"{self.engine}:{self.format}"

    @property
    def reads_gguf(self):
        """Whether it reads a file that llama.cpp wrote."""
        return self.engine == "llama.cpp" or self.format.startswith("Q")

    @property
    def kv_bytes(self):
        """Bytes of a number in the KV cache."""
        return 4 if self.bits == 32 else 2


REDLINE = "redline"

ARMS = [
    Arm(REDLINE, "f32", 32, "f32_peak"),
    Arm(REDLINE, "bf16", 16, "bf16_peak"),
    Arm(REDLINE, "w8", 8, "int8_peak"),
    Arm(REDLINE, "w4", 4, "int8_peak"),
    Arm(REDLINE, "Q8_0", 8, "int8_peak"),
    Arm(REDLINE, "Q4_K_M", 4, "int8_peak"),
    Arm("llama.cpp", "F32", 32, "f32_peak"),
    Arm("llama.cpp", "BF16", 16, "bf16_peak"),
    Arm("llama.cpp", "Q8_0", 8, "int8_peak"),
    Arm("llama.cpp", "Q4_0", 4, "int8_peak"),
    Arm("llama.cpp", "Q4_K_M", 4, "int8_peak"),
    Arm("llama.cpp", "Q4_K_M-norepack", 4, "int8_peak"),
    Arm("ctranslate2", "float32", 32, "f32_peak"),
    Arm("ctranslate2", "int8", 8, "int8_peak"),
    Arm("openvino", "int8", 8, "int8_peak"),
    Arm("torch", "f32", 32, "f32_peak"),
    Arm("torch", "bf16", 16, "bf16_peak"),
    Arm("jax", "f32", 32, "f32_peak"),
]


def chosen(words):
    """The arms that `words` name, as ENGINE or ENGINE:FORMAT, in the order of ARMS."""
    for word in words:
        if not any(word in (arm.engine, arm.name) for arm in ARMS):
            known = ", ".join(dict.fromkeys(arm.engine for arm in ARMS))
            raise ValueError(f"no engine `{word}`\n\nhint: ENGINE or ENGINE:FORMAT of {known}")
    return [arm for arm in ARMS if arm.engine in words or arm.name in words]
