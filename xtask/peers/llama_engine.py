"""llama.cpp through the low-level interface of llama-cpp-python: ids in, logits of the last id out."""

import ctypes
import sys

import llama_cpp
import numpy

CONTEXT = 1024
F32 = 0  # GGML_TYPE_F32
ERROR = 4  # GGML_LOG_LEVEL_ERROR


@llama_cpp.llama_log_callback
def complain(level, text, _):
    """llama.cpp tells much about every step; only its errors matter here."""
    if level == ERROR:
        sys.stderr.buffer.write(text)


class Llama:
    def __init__(self, path):
        llama_cpp.llama_log_set(complain, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = CONTEXT
        parameters.n_batch = parameters.n_ubatch = CONTEXT // 2
        parameters.type_k = parameters.type_v = F32
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot make a context of {CONTEXT} tokens")
        self._vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self.version = f"llama-cpp-python {llama_cpp.__version__}"

    def threads(self, count):
        llama_cpp.llama_set_n_threads(self._context, count, count)

    def reset(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def step(self, ids):
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        # Without a list of outputs only the last token of the batch gets logits.
        status = llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(tokens, len(ids)))
        if status != 0:
            raise RuntimeError(f"llama_decode of {len(ids)} tokens returned {status}")
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        address = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
        return numpy.ctypeslib.as_array(address, shape=(self._vocab,))
