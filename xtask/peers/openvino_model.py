"""Writes a Hugging Face directory as OpenVINO IR with int8 weights (one scale per row), with a key/value cache.

    python openvino_model.py DIR OUT
"""

import sys

from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

if __name__ == "__main__":
    directory, out = sys.argv[1:]
    config = OVWeightQuantizationConfig(bits=8, sym=True)
    OVModelForCausalLM.from_pretrained(
        directory, export=True, use_cache=True, compile=False, quantization_config=config
    ).save_pretrained(out)
