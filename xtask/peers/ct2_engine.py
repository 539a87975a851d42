"""CTranslate2; its times are those at which it hands out tokens."""

import time

import ctranslate2


class CTranslate2:
    def __init__(self, directory, weights, threads):
        self._generator = ctranslate2.Generator(
            directory, device="cpu", compute_type=weights, intra_threads=threads, inter_threads=1
        )
        computed = self._generator.compute_type
        if not computed.startswith(weights):
            raise RuntimeError(f"CTranslate2 computes in {computed} where {weights} was asked for")
        self.kv_format = "f32"
        self.version = f"ctranslate2 {ctranslate2.__version__}"

    def generate(self, prompts, new, _):
        moments = []

        def told(result):
            if result.batch_id == len(prompts) - 1:
                moments.append(time.perf_counter())
            return False

        start = time.perf_counter()
        results = self._generator.generate_batch(
            [[str(token) for token in prompt] for prompt in prompts],
            max_length=new,
            sampling_topk=1,
            include_prompt_in_result=False,
            end_token=[],
            callback=told,
        )
        ids = [result.sequences_ids[0] for result in results]
        if len(moments) != new:
            raise RuntimeError(f"CTranslate2 reported {len(moments)} tokens where {new} were asked for")
        times = {"prefill_s": moments[0] - start, "decode_s": moments[-1] - moments[0]}
        return {"ids": ids, "compile_s": 0.0, **times}
