"""Writes an encoder of a Hugging Face directory for other engines.

    python encoder_model.py onnx DIR OUT.onnx              f32, with the operators that ONNX Runtime fuses for BERT
    python encoder_model.py onnx-int8 IN.onnx OUT.onnx     weights and inputs of linear layers in int8, scales made as it runs
    python encoder_model.py openvino DIR OUT.xml           f32
    python encoder_model.py openvino-int8 DIR IN.xml OUT.xml  int8, with scales from rows of random ids
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy

# Rows that OpenVINO's scales are made from, and their tokens.
CALIBRATION = (32, 128)


def _model(directory):
    """The encoder as a function of three tensors, with such tensors."""
    import torch
    import transformers

    class States(torch.nn.Module):
        def __init__(self):
            super().__init__()
            types = {"dtype": torch.float32, "attn_implementation": "eager"}
            self.encoder = transformers.AutoModel.from_pretrained(directory, **types).eval()

        def forward(self, input_ids, attention_mask, token_type_ids):
            # In the form that the first exports of BERT had, which is the one that is fused.
            seen = attention_mask.unsqueeze(1).unsqueeze(2).to(torch.float32)
            mask = (1.0 - seen) * torch.finfo(torch.float32).min
            given = {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": token_type_ids}
            return self.encoder(**given).last_hidden_state

    torch.set_grad_enabled(False)
    ids = torch.ones((2, 8), dtype=torch.int64)
    return States(), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}


def _divide(path):
    """Logits that are divided by the root of the width of a head, not multiplied by its inverse, are the form that is fused."""
    import onnx

    model = onnx.load(path)
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type == "Softmax" and makers[node.input[0]].op_type == "Add":
            scores = makers[makers[node.input[0]].input[0]]
            factor = onnx.numpy_helper.to_array(makers[scores.input[1]].attribute[0].t)
            scores.op_type, scores.input[1] = "Div", f"{node.name}/root"
            root = numpy.array(1 / float(factor), dtype=numpy.float32)
            graph.initializer.append(onnx.numpy_helper.from_array(root, scores.input[1]))
    onnx.save(model, path)


def write_onnx(directory, out):
    import torch
    from onnxruntime.transformers import optimizer

    model, example = _model(directory)
    axes = dict.fromkeys([*example, "last_hidden_state"], {0: "batch", 1: "length"})
    plain = f"{out}.plain"
    torch.onnx.export(
        model,
        tuple(example.values()),
        plain,
        input_names=list(example),
        output_names=["last_hidden_state"],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )
    _divide(plain)
    config = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    fused = optimizer.optimize_model(plain, model_type="bert", num_heads=heads, hidden_size=hidden)
    counts = fused.get_fused_operator_statistics()
    if counts["Attention"] != config["num_hidden_layers"]:
        raise RuntimeError(f"ONNX Runtime fuses {counts['Attention']} of {config['num_hidden_layers']} layers of attention")
    fused.save_model_to_file(out)
    Path(plain).unlink()


def write_onnx_int8(source, out):
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Nothing infers the types of fused operators.
    types = {"DefaultTensorType": TensorProto.FLOAT}
    quantize_dynamic(source, out, per_channel=True, weight_type=QuantType.QInt8, extra_options=types)


def write_openvino(directory, out):
    import openvino

    model, example = _model(directory)
    openvino.save_model(openvino.convert_model(model, example_input=example), out, compress_to_fp16=False)


def write_openvino_int8(directory, source, out):
    import nncf
    import openvino

    count, tokens = CALIBRATION
    model = openvino.Core().read_model(source)
    vocab = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    random = numpy.random.default_rng(0)
    rows = [random.integers(0, vocab, (1, tokens)) for _ in range(count)]
    given = [{"input_ids": row, "attention_mask": numpy.ones_like(row), "token_type_ids": numpy.zeros_like(row)} for row in rows]
    quantised = nncf.quantize(model, nncf.Dataset(given), model_type=nncf.ModelType.TRANSFORMER, subset_size=count)
    openvino.save_model(quantised, out, compress_to_fp16=False)


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    writers = {"onnx": write_onnx, "onnx-int8": write_onnx_int8, "openvino": write_openvino, "openvino-int8": write_openvino_int8}
    writers[what](*arguments)
