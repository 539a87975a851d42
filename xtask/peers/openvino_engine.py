"""OpenVINO GenAI; its times are those at which it hands out tokens."""

import sys

import numpy
import openvino
import openvino_genai


class OpenVino:
    def __init__(self, directory, _, threads):
        properties = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        # As the pipeline's own default, but every prompt is computed: the default looks for it in a prefix cache.
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = sys.maxsize
        scheduler.enable_prefix_caching = False
        self._pipeline = openvino_genai.LLMPipeline(directory, "CPU", scheduler_config=scheduler, **properties)
        self.kv_format = "default"
        self.version = f"openvino-genai {openvino_genai.__version__}"

    def generate(self, prompts, new, _):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = new
        config.ignore_eos = True
        config.do_sample = False
        ids = openvino.Tensor(numpy.array(prompts, dtype=numpy.int64))
        mask = openvino.Tensor(numpy.ones((len(prompts), len(prompts[0])), dtype=numpy.int64))
        result = self._pipeline.generate(openvino_genai.TokenizedInputs(ids, mask), config)
        moments = result.perf_metrics.raw_metrics.m_new_token_times
        if len(moments) != new:
            raise RuntimeError(f"OpenVINO reported {len(moments)} steps where {new} were asked for")
        return {
            "ids": [list(tokens) for tokens in result.tokens],
            "compile_s": 0.0,
            "prefill_s": result.perf_metrics.get_ttft().mean / 1e3,
            "decode_s": (moments[-1] - moments[0]) / 1e3,
        }
