"""Tests of what needs no package: python -m unittest discover xtask/peers"""

import json
import os
import tempfile
import unittest
from pathlib import Path

import arms
import check
import document
import encoders
import processor
import report
import rope
import samples
import served_jobs
import serving_overhead
import serving_report
import shapes
import tokenizer
from jobs import JOBS, prompt_ids

GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
LLAMA_1B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": True,
}
TINYLLAMA = LLAMA_1B | {
    "vocab_size": 32000,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
}
LFM2_1B = {
    "model_type": "lfm2",
    "vocab_size": 65536,
    "hidden_size": 2048,
    "block_ff_dim": 12288,
    "block_auto_adjust_ff_dim": True,
    "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 256,
    "num_hidden_layers": 16,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "conv_L_cache": 3,
    "tie_embedding": True,
}
QWEN3_5 = {
    "model_type": "qwen3_5_text",
    "vocab_size": 248320,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 24,
    "full_attention_interval": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "tie_word_embeddings": True,
}


GEMMA4_E2B = {
    "model_type": "gemma4_text",
    "vocab_size": 262144,
    "hidden_size": 1536,
    "hidden_size_per_layer_input": 256,
    "intermediate_size": 6144,
    "use_double_wide_mlp": True,
    "num_hidden_layers": 35,
    "num_kv_shared_layers": 20,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "global_head_dim": 512,
    "tie_word_embeddings": True,
}


def shape(config):
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return shapes.read(directory)


def arm(name):
    return next(arm for arm in arms.ARMS if arm.name == name)


def job(name):
    return next(job for job in JOBS if job.name == name)


def result(name, work, values, bandwidth=40e9, threads=2):
    made = [samples.Sample(value, bandwidth, bandwidth, turn) for turn, value in enumerate(values)]
    return samples.Result(arm(name), job(work), threads, made, {"kv_format": "f16", "agreement": ""})


class Shapes(unittest.TestCase):
    def test_parameters_are_the_published_ones(self):
        self.assertEqual(shape(GPT2).parameters, 124_439_808)
        self.assertEqual(shape(LLAMA_1B).parameters, 1_235_814_400)
        self.assertEqual(shape(TINYLLAMA).parameters, 1_100_048_384)
        self.assertEqual(shape(LFM2_1B).parameters, 1_170_340_608)
        self.assertEqual(shape(QWEN3_5).parameters, 752_393_024)
        self.assertEqual(shape(GEMMA4_E2B).parameters, 4_621_490_979)

    def test_bytes_and_operations_of_a_token(self):
        one = shape(LLAMA_1B)
        # llama.cpp reads 1313 MB per token at 8.5 bits; 512 tokens take 1.98 GFLOP each, 0.13 of them in attention.
        self.assertAlmostEqual(one.weight_bytes(8.5) / 1e6, 1313, delta=1)
        self.assertAlmostEqual(one.operations(512) / 512 / 1e9, 1.98, delta=0.01)
        self.assertEqual(one.kv_bytes(1, 2), 2 * 16 * 8 * 64 * 2)
        self.assertEqual(one.operations(1, 9) - one.operations(1, 8), 4 * 16 * 32 * 64)

    def test_layers_without_keys_and_values_keep_states(self):
        one = shape(QWEN3_5)
        self.assertEqual(one.state, 18 * 16 * 128 * 128)
        self.assertEqual(one.kv_bytes(1, 2) - one.kv_bytes(0, 2), 2 * 6 * 2 * 256 * 2)
        self.assertEqual(shape(LFM2_1B).kv_bytes(1, 2) - shape(LFM2_1B).kv_bytes(0, 2), 2 * 6 * 8 * 64 * 2)

    def test_another_architecture_is_named(self):
        with self.assertRaisesRegex(ValueError, "`model_type` is `mamba`"):
            shape({"model_type": "mamba"})


class Rope(unittest.TestCase):
    def test_llama_3_slows_the_long_waves_only(self):
        divisors = rope.divisors(LLAMA_1B)
        self.assertEqual((len(divisors), divisors[0], divisors[-1]), (32, 1.0, 32.0))
        self.assertEqual(divisors, sorted(divisors))
        self.assertAlmostEqual(rope.frequencies(LLAMA_1B)[-1], 500000 ** (-62 / 64) / 32)
        self.assertIsNone(rope.divisors(TINYLLAMA))


class Jobs(unittest.TestCase):
    def test_cases_pair_engines_at_equal_bits(self):
        self.assertEqual(job("prefill512").case(8, 1), "prefill512/8bit/t1")
        self.assertEqual(job("decode").case(4, 2), "decode/4bit/t2")
        self.assertEqual(job("decode-b16").case(16, 2), "decode/16bit/t2/b16")
        self.assertEqual(job("score-warm-b8").case(8, 2), "score-warm/8bit/t2/b8")
        self.assertEqual((job("score-cold-b8").computed, job("score-warm-b8").computed), (72, 32))

    def test_ids_are_those_of_the_lane_generate(self):
        self.assertEqual(prompt_ids(3, 10000), [11, 7930, 5849])

    def test_no_prompt_comes_twice(self):
        prompts = [ids for call in range(64) for ids in job("decode-b16").prompts(32000, call)]
        self.assertEqual(len({ids[0] for ids in prompts}), 64 * 16)

    def test_arms_are_chosen_by_engine_or_format(self):
        names = [arm.name for arm in arms.chosen(["llama.cpp:Q8_0", "jax"])]
        self.assertEqual(names, ["llama.cpp:Q8_0", "jax:f32"])
        with self.assertRaisesRegex(ValueError, "no engine `vllm`"):
            arms.chosen(["jax", "vllm"])


class Samples(unittest.TestCase):
    def test_samples_between_unequal_readings_do_not_count(self):
        one = result("torch:f32", "decode", [10, 11, 12])
        one.samples.append(samples.Sample(99, 40e9, 20e9, 3))
        self.assertEqual(one.values, [10, 11, 12])
        self.assertEqual(one.median, 11)
        one.samples += [samples.Sample(99, 40e9, 20e9, 4)] * 9
        self.assertEqual(len(one.values), 13)

    def test_the_median_is_that_of_the_processes(self):
        made = [samples.Sample(value, 1, 1, turn) for value, turn in [(1, 0), (2, 0), (3, 0), (8, 1), (9, 2)]]
        one = samples.Result(arm("jax:f32"), job("decode"), 1, made)
        self.assertEqual(one.processes, [[1, 2, 3], [8], [9]])
        self.assertEqual(one.median, 8)

    def test_two_modes_are_told_apart(self):
        divide = samples.threshold([36e9, 37e9, 36e9, 64e9, 63e9])
        marks = [samples.mode(samples.Sample(1, speed, speed, 0), divide) for speed in (36e9, 64e9)]
        self.assertEqual(marks, ["slow", "fast"])
        self.assertIsNone(samples.threshold([36e9, 40e9, 38e9]))

    def test_limits_follow_the_kind_of_work(self):
        one, peaks = shape(LLAMA_1B), {"int8_peak": 930e9}
        decode = samples.limit(result("llama.cpp:Q8_0", "decode", [20]), one, 8.5, peaks)
        self.assertEqual(decode.name, "read_bandwidth")
        self.assertAlmostEqual(decode.share, 20 * (1313e6 + 95 * 32768 + 0.5 * 32768) / 40e9, places=3)
        prefill = samples.limit(result("llama.cpp:Q8_0", "prefill512", [100]), one, 8.5, peaks)
        self.assertEqual(prefill.name, "int8_peak")
        self.assertAlmostEqual(prefill.share, 100 * 1.98e9 / 930e9, places=2)
        slow_arithmetic = samples.limit(result("llama.cpp:Q8_0", "decode-b16", [80]), one, 8.5, {"int8_peak": 250e9})
        self.assertEqual(slow_arithmetic.name, "int8_peak")
        unknown = samples.limit(result("llama.cpp:Q8_0", "decode-b16", [80]), one, 8.5, {})
        self.assertEqual(unknown.name, "read_bandwidth")
        self.assertIsNone(samples.limit(result("llama.cpp:Q8_0", "prefill512", [80]), one, 8.5, {}).share)


class Check(unittest.TestCase):
    REFERENCE = [{"ids": [[7, 8, 9]], "margins": [0.5, 1e-4, 0.5], "top": [7, 5, 3]}]

    def agrees(self, name, ids):
        return check.judge(arm(name), [ids], self.REFERENCE).agrees

    def test_f32_must_agree_up_to_the_first_close_call(self):
        self.assertTrue(self.agrees("jax:f32", [7, 1, 2]))
        self.assertFalse(self.agrees("jax:f32", [5, 8, 9]))

    def test_fewer_bits_must_choose_one_of_the_best(self):
        self.assertTrue(self.agrees("openvino:int8", [5, 1, 1]))
        self.assertFalse(self.agrees("openvino:int8", [4, 8, 9]))

    def test_four_bits_may_miss_once_in_four_prompts(self):
        def agrees(name, misses):
            answers = [[4, 8, 9]] * misses + [[7, 8, 9]] * (8 - misses)
            return check.judge(arm(name), answers, self.REFERENCE * 8).agrees

        self.assertTrue(agrees("llama.cpp:Q4_0", 2))
        self.assertFalse(agrees("llama.cpp:Q4_0", 3))
        self.assertFalse(agrees("llama.cpp:Q8_0", 1))

    def test_a_short_answer_is_wrong(self):
        self.assertFalse(self.agrees("openvino:int8", [7, 8]))


class Documents(unittest.TestCase):
    def written(self, results, limit):
        limits = {id(one): limit for one in results}
        run = {"started_at": "2026-11-21T02:01:00Z", "command": ["run.py"], "machine": {}, "model": "gpt2"}
        return document.document(run, results[0].arm.engine, "1", results, limits, {2: None})

    def test_the_fastest_format_stands_for_the_engine(self):
        results = [result("llama.cpp:Q4_0", "decode", [40]), result("llama.cpp:Q4_K_M", "decode", [41])]
        made = self.written(results, samples.Limit("read_bandwidth", 0.5))
        self.assertEqual([row["case"] for row in made["rows"]], ["decode/4bit/t2/Q4_0", "decode/4bit/t2"])
        self.assertEqual((made["schema"], made["engine"]["name"]), ("redline.bench.run/1", "llama.cpp"))

    def test_rows_hold_what_compare_reads(self):
        one = result("jax:f32", "prefill512", [3.0, 1.0, 2.0])
        one.extras["compile_s"] = [2.5]
        (row,) = self.written([one], samples.Limit("f32_peak", 0.25))["rows"]
        metric = row["metrics"]["tokens_per_s"]
        self.assertEqual((metric["unit"], metric["direction"], metric["median"]), ("tokens/s", "higher", 2.0))
        self.assertEqual((metric["samples"], metric["processes"]), ([3.0, 1.0, 2.0], [[3.0], [1.0], [2.0]]))
        self.assertEqual((row["limit"], row["share_of_limit"], row["checked"]), ("f32_peak", 0.25, True))
        self.assertEqual(row["metrics"]["compile_s"]["samples"], [2.5])
        self.assertEqual([mark["mode"] for mark in row["marks"]], ["single"] * 3)

    def test_a_share_of_another_arithmetic_is_not_written(self):
        (row,) = self.written([result("torch:bf16", "prefill512", [9.0])], samples.Limit("bf16_peak", 3.0))["rows"]
        self.assertIsNone(row["share_of_limit"])

    def test_tables_hold_redline_against_the_best_peer(self):
        results = [result("redline:bf16", "decode", [30]), result("torch:bf16", "decode", [10])]
        results.append(result("llama.cpp:BF16", "decode", [20]))
        results[1].extras["compile_s"] = [2.0, 3.0]
        limits = {id(one): samples.Limit("read_bandwidth", 0.5) for one in results}
        left_out = {(arm("redline:w8"), "all jobs"): "not available in this build"}
        text = report.tables(results, limits, left_out)
        self.assertIn("| 1.50 (best peer) | 1.50 |", text)
        self.assertIn("| 3.00 | 3.00 |", text)
        self.assertIn("torch:bf16 compiles for 2.5 s first.", text)
        self.assertIn("- redline:w8, all jobs: not available in this build", text)


class Encoders(unittest.TestCase):
    def test_redline_is_compared_with_engines_of_as_many_bits_or_more(self):
        rates = {arm: 100.0 for arm in encoders.ARMS}
        by_name = {arm.name: arm for arm in encoders.ARMS}
        rates |= {by_name["redline:w8"]: 300.0, by_name["openvino:bf16"]: 200.0, by_name["onnxruntime:int8"]: 150.0}
        self.assertEqual([encoders.ratio(rates, bits) for bits in (32, 16, 8)], ["1.00x", "0.50x", "1.50x"])
        alone = {arm: rate for arm, rate in rates.items() if arm.engine == "redline"}
        self.assertEqual(encoders.ratio(alone, 8), "")

    def test_calls_have_rows_of_their_own(self):
        case = encoders.Case(2, 3)
        rows = [row for call in range(3) for row in case.rows(1000, call)]
        self.assertEqual([len(row) for row in rows], [3] * 6)
        self.assertEqual(len({tuple(row) for row in rows}), 6)

    def test_cosines(self):
        self.assertAlmostEqual(encoders.cosine([1.0, 0.0], [2.0, 0.0]), 1.0)
        self.assertAlmostEqual(encoders.cosine([1.0, 0.0], [1.0, 1.0]), 0.5**0.5)
        self.assertNotEqual(nothing := encoders.cosine([0.0, 0.0], [1.0, 1.0]), nothing)


class Tokenizers(unittest.TestCase):
    def test_texts_are_lines_as_redline_reads_them(self):
        self.assertEqual(tokenizer.texts_of("a b\r\n\n\u2028é\n c\rd".encode()), ["a b", "\u2028é", " c\rd"])
        self.assertEqual(tokenizer.texts_of(b"\n\r\n"), [])

    def test_digests_are_those_of_redline(self):
        self.assertEqual(tokenizer.digest([]), "cbf29ce484222325")
        self.assertEqual(tokenizer.digest([[0x0201], [7]]), tokenizer.digest([[0x0201, 7]]))
        # FNV-1a of the bytes "a", 0, 0, 0.
        self.assertEqual(tokenizer.digest([[ord("a")]]), "ac804b820e4fe984")

    def test_there_is_a_row_per_repeat(self):
        measured = {"seconds": [0.5, 0.25], "tokens": 3, "digest": "d", "version": "v"}
        rows = tokenizer.rows(2, ["é", "a"], measured)
        self.assertEqual(rows, [[2, 2, 3, 3, 0.5, "d", "v"], [2, 2, 3, 3, 0.25, "d", "v"]])
        self.assertEqual(len(rows[0]), len(tokenizer.COLUMNS))

    def test_threads_are_those_of_the_environment(self):
        self.assertEqual(tokenizer.environment(4), {"RAYON_NUM_THREADS": "4", "TOKENIZERS_PARALLELISM": "true"})
        self.assertEqual(tokenizer.environment(1)["TOKENIZERS_PARALLELISM"], "false")


class Serving(unittest.TestCase):
    LABELS = [34, 35]

    def prompts(self, name, seed="a"):
        """The texts of a job as the two forms of llama.cpp read them."""
        one = next(one for one in served_jobs.JOBS if one.name == name)
        asked = served_jobs.texts(one, seed)
        _, completion = served_jobs.completion(one, asked, self.LABELS)
        _, systemone = served_jobs.systemone(one, asked)
        return one, asked, completion["prompt"], systemone

    def test_both_forms_of_a_peer_have_the_same_prompts(self):
        for name in ("score-16", "rerank-16"):
            _, _, prompts, body = self.prompts(name)
            questions = body["questions"].values()
            self.assertEqual([body["state"] + question["instructions"] for question in questions], prompts)
        one, asked, prompts, body = self.prompts("decisions-8")
        self.assertEqual([body["questions"][f"q{i}"]["instructions"] for i in range(8)], asked.parts)
        self.assertTrue(prompts[7].startswith(f"State:\n{asked.shared}\n\nQuestion: {asked.parts[7]}\nA. yes\nB. no\n"))
        route, ours = served_jobs.redline(one, asked, self.LABELS)
        self.assertEqual((route, ours["input"], len(ours["questions"])), ("/v1/decisions", asked.shared, 8))

    def test_items_continue_their_query(self):
        one, asked, prompts, _ = self.prompts("score-16")
        _, ours = served_jobs.redline(one, asked, self.LABELS)
        self.assertEqual([ours["query"] + item for item in ours["items"]], prompts)
        self.assertTrue(all(len(prompt.split()) == one.shared + one.own for prompt in prompts))

    def test_texts_have_their_size_and_come_once(self):
        one, asked, *_ = self.prompts("decisions-8")
        self.assertEqual((len(asked.shared.split()), len(asked.parts)), (1000, 8))
        self.assertEqual(len(served_jobs.texts(one, "a", 2.0).shared.split()), 500)
        others = [served_jobs.texts(job, seed).shared for job in served_jobs.JOBS for seed in "abc"]
        self.assertEqual(len({text[:30] for text in others}), len(others))

    def test_answers_of_all_servers_are_probabilities_of_the_first_label(self):
        ours = {"scores": [[0.25, 0.75], [0.5, 0.5]]}
        questions = {"answers": {"q0": {"noul": 0.25}, "q1": {"noul": 0.5}}}
        tops = [[{"id": 35, "prob": 0.5}, {"id": 34, "prob": 0.5}], [{"id": 35, "prob": 0.75}, {"id": 34, "prob": 0.25}]]
        prompts = [{"index": 1 - at, "completion_probabilities": [{"top_probs": top}]} for at, top in enumerate(tops)]
        for answer in (ours, questions, prompts):
            self.assertEqual(served_jobs.probabilities(answer, self.LABELS), [0.25, 0.5])

    def test_metrics_are_added_over_their_labels(self):
        text = '# HELP a b\na_total{kind="x"} 1.5\na_total{kind="y"} 2\nb_sum 1e-3\n'
        self.assertEqual(serving_overhead.totals(text), {"a_total": 3.5, "b_sum": 1e-3})

    def test_ratios_are_those_of_medians_with_the_range_of_rounds(self):
        self.assertEqual(serving_report.ratio_of([4, 6, 9], [2, 4, 3]), (2, 1.5, 3))

    def test_a_load_is_held_against_the_better_peer(self):
        def row(server, rate, **times):
            return {"server": server, "concurrency": 8, "output_tok_s": rate, "requests": 9, "samples": {}, **times}

        rows = [row("redline", 50, ttft_p50_s=1, ttft_p95_s=2), row("a", 20, ttft_p50_s=5), row("b", 40, ttft_p50_s=9, ttft_p95_s=3)]
        report = serving_report.Report({"load": rows})
        self.assertIn("of the better peer: 1.25; at least 2: no", report.text)
        self.assertIn("| 2.50 | 5.00 (p50) |", report.text)
        self.assertIn("| 1.25 | 1.50 (p95) |", report.text)
        self.assertTrue(report.missed)
        rows[0]["output_tok_s"] = 80
        self.assertFalse(serving_report.Report({"load": rows}).missed)

    def test_a_load_with_failed_short_or_cached_answers_in_one_run_is_not_compared(self):
        def report(of=0, rate=30, **samples):
            row = {"concurrency": 8, "requests": 9, "prompt_tokens": 1000, "samples": {}}
            rows = [row | {"server": "redline", "output_tok_s": 90}, row | {"server": "a", "output_tok_s": rate}]
            rows[of]["samples"] = samples
            return serving_report.Report({"load": rows})

        whole = report(errors=[0, 0, 0], short=[0, 0, 0], cached_tokens=[0, 20, 20])
        self.assertIn("of the better peer: 3.00; at least 2: yes", whole.text)
        self.assertFalse(whole.missed)
        counts = [{"errors": [0, 0, 1]}, {"short": [1, 0, 0]}, {"cached_tokens": [0, 0, 21]}, {"errors": [0, 1], "of": 1}, {"rate": 0}]
        for samples in counts:
            found = report(**samples)
            self.assertIn("of the better peer: not comparable", found.text)
            self.assertNotIn("3.00", found.text)
            self.assertTrue(found.missed)

    def test_answers_after_a_restart_must_be_equal(self):
        found = {"known": [1.0], "unknown": [20.0], "cached_tokens": [1984], "equal": True}
        self.assertFalse(serving_report.Report({"restart": found}).missed)
        self.assertTrue(serving_report.Report({"restart": found | {"equal": False}}).missed)

    def test_processor_time_is_of_threads_and_of_the_whole_process(self):
        with tempfile.TemporaryDirectory() as folder:
            stat = Path(folder) / "stat"
            stat.write_text("7 (a) b (c)) S 1 1 1 0 -1 0 0 0 0 0 150 50 9 9 20 0 3\n", encoding="ascii")
            name, spent = processor.stat(stat)
        self.assertEqual((name, spent), ("a) b (c)", 200 / os.sysconf("SC_CLK_TCK")))

    def test_overhead_is_the_time_beside_passes_and_engine_threads(self):
        alone = [{"client": 0.0305, "engine": 0.03}] * 3
        run = {"seconds": 10, "passes": 9.9, "engine_cpu": 19.0, "other_cpu": 1.0, "client_cpu": 0.1, "tokens": 640}
        found = {"health": [1e-4], "completion": alone, "score": alone, "streams": [run]}
        report = serving_report.Report({"overhead": found})
        text = report.text
        self.assertIn("| 30.50 | 30.00 | 0.500 |", text)
        self.assertIn("Seconds: at most 0.001: yes", text)
        self.assertIn("| 1 | 10.00 | 64.0 | 1.00 | 5.00 | 6.00 | 0.10 |", text)
        self.assertIn("Share of the throughput: at most 0.03: no", text)
        self.assertTrue(report.missed)


if __name__ == "__main__":
    unittest.main()
