"""llama.cpp through the low-level interface of llama-cpp-python."""

import ctypes
import sys
import time

import llama_cpp
import numpy

from stepper import Stepper

# Tokens of one sequence, and of one pass.
ALONE, BATCHED, PASS = 1024, 256, 512
# Sequences that may share a token.
MAX_ITEMS = 64
F32 = 0  # GGML_TYPE_F32
ERROR = 4  # GGML_LOG_LEVEL_ERROR


@llama_cpp.llama_log_callback
def complain(level, text, _):
    """llama.cpp tells much about every step; only its errors matter here."""
    if level == ERROR:
        sys.stderr.buffer.write(text)


class Llama(Stepper):
    """F32 weights get an F32 cache, so that its ids can be compared; the others its default, F16."""

    def __init__(self, path, weights, threads):
        llama_cpp.llama_log_set(complain, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.use_extra_bufts = not weights.endswith("-norepack")
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._threads, self._wide_cache = threads, weights == "F32"
        self._context, self._sequences, self._position = None, 0, 0
        self._shared, self._known = False, None
        self._batch = llama_cpp.llama_batch_init(PASS, 0, MAX_ITEMS)
        self.kv_format = "f32" if self._wide_cache else "f16"
        self.version = f"llama-cpp-python {llama_cpp.__version__}"

    def _open(self, sequences, shared=False):
        """A context with a cache of its own for every sequence, or with one in which they share tokens."""
        if self._context:
            llama_cpp.llama_free(self._context)
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = ALONE if sequences == 1 else BATCHED * sequences
        parameters.n_batch = parameters.n_ubatch = PASS
        parameters.n_seq_max = sequences
        parameters.kv_unified = shared
        parameters.n_threads = parameters.n_threads_batch = self._threads
        if self._wide_cache:
            parameters.type_k = parameters.type_v = F32
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot make a context of {parameters.n_ctx} tokens")
        self._sequences, self._shared, self._known = sequences, shared, None

    def prefill(self, prompts):
        if len(prompts) != self._sequences or self._shared:
            self._open(len(prompts))
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        self._position = 0
        return self._decode(prompts)

    def score(self, query, items, labels, warm):
        """One batch: the tokens of the query belong to every sequence, those of an item to its own.

        A warm query has been run before, and only the items are.
        """
        if len(items) != self._sequences or not self._shared:
            self._open(len(items), shared=True)
        memory = llama_cpp.llama_get_memory(self._context)
        if warm and self._known != query:
            llama_cpp.llama_memory_clear(memory, True)
            self._begin()
            self._append_query(query, len(items))
            self._run()
            self._known = query
        start = time.perf_counter()
        if warm:
            llama_cpp.llama_memory_seq_rm(memory, -1, len(query), -1)
        else:
            llama_cpp.llama_memory_clear(memory, True)
            self._known = None
        self._begin()
        if not warm:
            self._append_query(query, len(items))
        last = []
        for row, tokens in enumerate(items):
            for index, token in enumerate(tokens):
                self._append(token, len(query) + index, [row], index == len(tokens) - 1)
            last.append(self._batch.n_tokens - 1)
        self._run()
        logits = numpy.stack([self._logits(slot)[labels] for slot in last]).astype(numpy.float64)
        weights = numpy.exp(logits - logits.max(axis=1, keepdims=True))
        scores = (weights / weights.sum(axis=1, keepdims=True)).tolist()
        return {"scores": scores, "seconds": time.perf_counter() - start}

    def _begin(self):
        self._batch.n_tokens = 0

    def _append_query(self, query, sequences):
        for position, token in enumerate(query):
            self._append(token, position, range(sequences), False)

    def _append(self, token, position, sequences, wanted):
        batch, slot = self._batch, self._batch.n_tokens
        if slot == PASS:
            raise NotImplementedError(f"more than {PASS} tokens in a pass")
        batch.token[slot], batch.pos[slot], batch.logits[slot] = token, position, wanted
        batch.n_seq_id[slot] = len(sequences)
        for index, sequence in enumerate(sequences):
            batch.seq_id[slot][index] = sequence
        batch.n_tokens += 1

    def _run(self):
        status = llama_cpp.llama_decode(self._context, self._batch)
        if status != 0:
            raise RuntimeError(f"llama_decode of {self._batch.n_tokens} tokens returned {status}")

    def step(self, ids):
        return self._decode([[token] for token in ids])

    def _decode(self, rows):
        """One pass; logits of the last token of every row."""
        batch, length = self._batch, len(rows[0])
        if len(rows) * length > PASS:
            raise NotImplementedError(f"{len(rows)} x {length} tokens, but a pass holds {PASS}")
        batch.n_tokens = len(rows) * length
        last = []
        for row, tokens in enumerate(rows):
            for index, token in enumerate(tokens):
                slot = row * length + index
                batch.token[slot] = token
                batch.pos[slot] = self._position + index
                batch.n_seq_id[slot] = 1
                batch.seq_id[slot][0] = row
                batch.logits[slot] = index == length - 1
            last.append(row * length + length - 1)
        self._run()
        self._position += length
        return numpy.stack([self._logits(slot) for slot in last]) if len(last) > 1 else self._logits(last[0])[None]

    def _logits(self, slot):
        pointer = llama_cpp.llama_get_logits_ith(self._context, slot)
        address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        return numpy.ctypeslib.as_array(address, shape=(self._vocab,))
