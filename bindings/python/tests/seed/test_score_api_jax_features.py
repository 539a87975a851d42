"""The score seed's tests of formats, devices and repeatability, with the names that the seed gives them."""

import math

from sgl_jax.test.score_test_utils import (
    ScoreTestConfig,
    build_engine,
    get_label_token_ids,
    get_tokenizer,
    skip_if_no_multidevice,
)
from sgl_jax.test.test_utils import CustomTestCase

QUERY = "I pledge allegiance"
ITEMS = [" to the flag", " of the United States", " for which it stands"]
LABELS = [" to", " of", " for"]


def scores(config, labels=LABELS, items=ITEMS):
    """The scores of an engine that is built for them."""
    runner = build_engine(config)
    try:
        ids = get_label_token_ids(get_tokenizer(config.model), labels)
        return runner.score(query=QUERY, items=items, label_token_ids=ids, apply_softmax=True)
    finally:
        runner.shutdown()


class TestScoreAPIJAXFeatures(CustomTestCase):
    """Formats, devices and the prefix cache."""

    def test_score_numerical_stability_bf16_vs_fp32(self):
        half, single = (scores(ScoreTestConfig(dtype=dtype)) for dtype in ("bfloat16", "float32"))
        for item, (row, reference) in enumerate(zip(half, single, strict=True)):
            for label, (found, want) in enumerate(zip(row, reference, strict=True)):
                place = f"item {item}, label {label}: {found} and {want}"
                self.assertTrue(math.isfinite(found) and math.isfinite(want), place)
                self.assertLess(abs(found - want), 0.01, place)
                if want > 0.001:
                    self.assertLess(abs(found - want) / want, 0.05, place)
        self.assertNotEqual(half, single)

    @skip_if_no_multidevice()
    def test_score_sharding_correctness(self):
        import jax

        devices = len(jax.devices())
        self.assertGreaterEqual(devices, 2)
        # The seed allows a difference of 1e-6; there is none.
        self.assertEqual(scores(ScoreTestConfig(tp_size=1)), scores(ScoreTestConfig(tp_size=devices)))

    def test_score_with_prefix_caching(self):
        runner = build_engine(ScoreTestConfig())
        try:
            ids = get_label_token_ids(get_tokenizer(ScoreTestConfig.model), LABELS)
            asked = {"query": QUERY * 8, "items": ITEMS, "label_token_ids": ids}
            first, second = (runner._engine.answer("score", **asked) for _ in range(2))
            self.assertEqual(first["scores"], second["scores"])
            cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in (first, second)]
            self.assertEqual(cached[0], 0)
            self.assertGreater(cached[1], 0)
            self.assertLess(second["meta"]["computed_tokens"], first["meta"]["computed_tokens"])
        finally:
            runner.shutdown()


class TestScoreAPIDeterminismAdvanced(CustomTestCase):
    """The same request again."""

    def test_score_determinism_across_dtypes(self):
        for dtype in ("bfloat16", "float32", "int8"):
            config = ScoreTestConfig(dtype=dtype, seed=42)
            runs = [scores(config, LABELS[:2], ITEMS[:1]) for _ in range(3)]
            self.assertEqual(runs[1:], runs[:2], dtype)
