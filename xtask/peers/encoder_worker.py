"""An encoder in a process of its own: loads once, then embeds what comes on stdin, one JSON object per line.

    python encoder_worker.py ENGINE MODEL FORMAT THREADS

First line out: {"version": TEXT}. After it:

    {"rows": [[ids], ..]}
    -> {"vectors": [[..], ..], "seconds": S}    the mean state of each row, in f32

Rows of other lengths than the longest are padded and masked, as these engines want it. The time includes that and the means.
"""

import json
import os
import sys
import time

import numpy


class Torch:
    def __init__(self, model, weights, threads):
        import torch
        import transformers

        torch.set_grad_enabled(False)
        torch.set_num_threads(threads)
        types = {"f32": torch.float32, "bf16": torch.bfloat16}
        self._torch = torch
        self._model = transformers.AutoModel.from_pretrained(model, dtype=types[weights]).eval()
        self.version = f"torch {torch.__version__}, transformers {transformers.__version__}"

    def states(self, given):
        tensors = {name: self._torch.from_numpy(values) for name, values in given.items()}
        return self._model(**tensors).last_hidden_state.float().numpy()


class Onnx:
    def __init__(self, model, _, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._names = [given.name for given in self._session.get_inputs()]
        self.version = f"onnxruntime {onnxruntime.__version__}"

    def states(self, given):
        return self._session.run(None, {name: given[name] for name in self._names})[0]


class OpenVino:
    def __init__(self, model, weights, threads):
        import openvino

        # Its default is bf16 where the processor has it, whatever the weights are.
        precision = "bf16" if weights == "bf16" else "f32"
        properties = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision}
        properties["PERFORMANCE_HINT"] = "LATENCY"
        compiled = openvino.Core().compile_model(model, "CPU", properties)
        self._names = [given.any_name for given in compiled.inputs]
        self._request = compiled.create_infer_request()
        self.version = f"openvino {openvino.__version__}"

    def states(self, given):
        self._request.infer({name: given[name] for name in self._names})
        return self._request.get_output_tensor(0).data


ENGINES = {"torch": Torch, "onnxruntime": Onnx, "openvino": OpenVino}


def embedded(engine, rows):
    """The mean of the states of each row."""
    longest = max(map(len, rows))
    ids = numpy.array([row + [0] * (longest - len(row)) for row in rows], dtype=numpy.int64)
    mask = numpy.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], dtype=numpy.int64)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
    states = engine.states(given)
    return (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)


def main():
    name, model, weights, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    # Before the engine is imported: libraries count processors when they start.
    os.environ["OMP_NUM_THREADS"] = threads
    os.environ["HF_HUB_OFFLINE"] = "1"
    engine = ENGINES[name](model, weights, int(threads))
    print(json.dumps({"version": engine.version}), file=answers)
    for line in sys.stdin:
        rows = json.loads(line)["rows"]
        begin = time.perf_counter()
        vectors = embedded(engine, rows)
        seconds = time.perf_counter() - begin
        print(json.dumps({"vectors": vectors.tolist(), "seconds": seconds}), file=answers)


if __name__ == "__main__":
    main()
