"""The model for lm-evaluation-harness. Skipped where it is not installed (`pip install lm_eval`); the comparison with its own model
needs `torch` and `transformers` too."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")

from lm_eval.api.instance import Instance

from redline.lm_eval import RedlineLM

PAIRS = [
    ("The king sat on", " the throne"),
    ("The king sat on", " a horse of great strength"),
    ("The king sat on ", "the throne"),
    ("", "In the beginning"),
    ("In the", " morning"),
]


def instances(kind, arguments):
    return [Instance(request_type=kind, doc={}, arguments=one, idx=index) for index, one in enumerate(arguments)]


@pytest.fixture(scope="module")
def model():
    return RedlineLM("demo", max_gen_toks=12)


def test_pairs_have_the_likelihood_of_their_tokens(model):
    found = model.loglikelihood(instances("loglikelihood", PAIRS), disable_tqdm=True)
    for (context, continuation), (logprob, greedy) in zip(PAIRS, found, strict=True):
        if context:
            ids, rest = model._encode_pair(context, continuation)
        else:
            ids, rest = [model.prefix_token_id], model.tok_encode(continuation, False)
        one = model.engine.answer("score", query=ids, items=[[]], label_token_ids=[rest], long_labels="sum", tokenization="separate")
        assert logprob == pytest.approx(one["meta"]["logprobs"][0][0], abs=1e-5)
        most = model.engine.generate(ids, len(rest), temperature=0, ignore_eos=True)["choices"][0]["token_ids"]
        assert greedy == (most == rest)
    greedy_text = model.engine.generate(PAIRS[0][0], 3, temperature=0)["choices"][0]["text"]
    assert model.loglikelihood(instances("loglikelihood", [(PAIRS[0][0], greedy_text)]), disable_tqdm=True)[0][1] is True


def test_a_whole_context_is_scored(model, words):
    small = RedlineLM("demo", max_length=16)
    text = " ".join(words[:40])
    ids = small.tok_encode(text)
    windows = [(None, ids[at : at + 1], ids[at + 1 : at + 17]) for at in (0, 16)]
    greedy = model.engine.generate(ids[:8], 12, temperature=0, ignore_eos=True)["choices"][0]["token_ids"]
    for context, continuation in [(15, 1), (14, 1), (16, 1), (13, 2), (14, 2), (15, 2), (8, 8), (8, 9)]:
        windows.append((None, ids[:context], ids[context : context + continuation]))
        if context == 8:
            windows.append((None, ids[:8], greedy[:continuation]))
            windows.append((None, ids[:8], [*greedy[: continuation - 1], 5]))
            windows.append((None, ids[:8], [*greedy[: continuation - 2], 5, greedy[continuation - 1]]))
    long = small._loglikelihood_tokens(windows, disable_tqdm=True)
    for (_, context, continuation), (logprob, greedy) in zip(windows, long, strict=True):
        # A model with a larger context has room for one more token.
        want = model._loglikelihood_tokens([(None, context, continuation)], disable_tqdm=True)
        assert logprob == pytest.approx(want[0][0], abs=1e-4) and greedy == want[0][1]
    assert sum(greedy for _, greedy in long) >= 2
    (rolling,) = small.loglikelihood_rolling(instances("loglikelihood_rolling", [(text,)]), disable_tqdm=True)
    # Every token counts once; the last window reaches back, so that it has a whole context.
    want = 0
    for at in range(0, len(ids), 16):
        predicted = ids[at : at + 16]
        before = ids[max(0, at + len(predicted) - 17) : at] or [small.prefix_token_id]
        want += model._loglikelihood_tokens([(None, before, predicted)], disable_tqdm=True)[0][0]
    assert rolling == pytest.approx(want, abs=1e-3)


def test_a_generation_ends_where_it_is_told(model):
    asked = [("The king", {"until": [" "], "max_gen_toks": 9}), ("The king", {"do_sample": True, "temperature": 0.7, "seed": 1})]
    first, second = model.generate_until(instances("generate_until", asked), disable_tqdm=True)
    assert " " not in first
    want = model.engine.generate("The king", 12, temperature=0.7, seed=1)["choices"][0]["text"]
    assert second == want


@pytest.mark.skipif("REDLINE" not in os.environ, reason="REDLINE names no binary to compare with")
def test_likelihoods_are_those_of_the_command_line(model):
    lines = []
    for context, continuation in PAIRS[:3]:
        ids, rest = model._encode_pair(context, continuation)
        lines.append({"prompt": ids + rest, "prompt_logprobs": 1, "prompt_logprobs_from": len(ids), "max_new_tokens": 1})
    call = [os.environ["REDLINE"], "generate", "--model", "demo", "--quiet", "--jsonl", "-"]
    given = "".join(json.dumps(one) + "\n" for one in lines)
    said = subprocess.run(call, input=given, capture_output=True, text=True, check=True).stdout
    found = model.loglikelihood(instances("loglikelihood", PAIRS[:3]), disable_tqdm=True)
    for line, (logprob, _) in zip(said.splitlines(), found, strict=True):
        positions = [at for at in json.loads(line)["choices"][0]["prompt_logprobs"] if at is not None]
        assert np.float32(logprob) == np.float32(sum(np.float64(np.float32(at["logprob"])) for at in positions))


def test_the_reference_says_the_same(words):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    from lm_eval.models.huggingface import HFLM

    directory = str(ROOT / "models/demo")
    ours = RedlineLM(directory, format="f32", max_gen_toks=12)
    # With its cache of logits, lm_eval 0.4.13 takes the last of the pairs at the first token of the fourth, which ends alike.
    theirs = HFLM(pretrained=directory, dtype="float32", device="cpu", batch_size=1, logits_cache=False)
    assert (ours.eot_token_id, ours.prefix_token_id, ours.max_length) == (theirs.eot_token_id, theirs.prefix_token_id, theirs.max_length)
    pairs = instances("loglikelihood", PAIRS)
    found, want = (it.loglikelihood(pairs, disable_tqdm=True) for it in (ours, theirs))
    for one, other in zip(found, want, strict=True):
        assert one[0] == pytest.approx(other[0], abs=1e-4) and one[1] == other[1]
    texts = instances("loglikelihood_rolling", [(" ".join(words[:40]),), (" ".join(words[:900]),)])
    found, want = (it.loglikelihood_rolling(texts, disable_tqdm=True) for it in (ours, theirs))
    tokens = [len(ours.tok_encode(one.args[0])) for one in texts]
    assert all(abs(a - b) <= 1e-4 * n for a, b, n in zip(found, want, tokens, strict=True)), (found, want)
    asked = instances("generate_until", [("The king sat on", {"until": ["\n"], "max_gen_toks": 12})])
    assert ours.generate_until(asked, disable_tqdm=True) == theirs.generate_until(asked, disable_tqdm=True)


def test_a_task_runs_by_the_name_of_the_model(tmp_path, words):
    from lm_eval.evaluator import simple_evaluate

    cloze = [json.loads(line) for line in (ROOT / "models/demo/cloze.jsonl").read_text().splitlines()[:40]]
    (tmp_path / "cloze.jsonl").write_text("".join(json.dumps(one) + "\n" for one in cloze))
    (tmp_path / "rolling.jsonl").write_text(json.dumps({"text": " ".join(words[:300])}) + "\n")
    data = "dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {}\ntest_split: test\n"
    (tmp_path / "cloze.yaml").write_text(
        "task: redline_cloze\n"
        + data.format(tmp_path / "cloze.jsonl")
        + 'output_type: multiple_choice\ndoc_to_text: "{{context}}"\ndoc_to_target: answer\ndoc_to_choice: choices\n'
        + 'target_delimiter: ""\nmetric_list:\n  - metric: acc\n    aggregation: mean\n    higher_is_better: true\n'
    )
    (tmp_path / "rolling.yaml").write_text(
        "task: redline_rolling\n"
        + data.format(tmp_path / "rolling.jsonl")
        + 'output_type: loglikelihood_rolling\ndoc_to_text: ""\ndoc_to_target: text\n'
        + "metric_list:\n  - metric: word_perplexity\n"
    )
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    out = simple_evaluate(
        model="redline", model_args="model=demo,threads=2", tasks=["redline_cloze", "redline_rolling"], task_manager=manager, bootstrap_iters=0
    )
    accuracy = out["results"]["redline_cloze"]["acc,none"]
    engine = RedlineLM("demo").engine
    right = 0
    for one in cloze:
        ids = [engine.tokenizer.encode(one["context"])] * len(one["choices"])
        rest = [engine.tokenizer.encode(one["context"] + choice)[len(ids[0]) :] for choice in one["choices"]]
        answer = engine.answer("score", query=ids[0], items=[[]], label_token_ids=rest, long_labels="sum", tokenization="separate")
        right += int(np.argmax(answer["meta"]["logprobs"][0])) == one["answer"]
    assert accuracy == pytest.approx(right / len(cloze)) and accuracy > 0.4
    assert out["results"]["redline_rolling"]["word_perplexity,none"] > 1

    call = [sys.executable, "-m", "redline.lm_eval", "run", "--model", "redline", "--model_args", "model=demo,threads=1"]
    task = ["--tasks", "redline_cloze", "--include_path", str(tmp_path), "--output_path", str(tmp_path / "out")]
    ended = subprocess.run([*call, *task], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (written,) = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(written.read_text())["results"]["redline_cloze"]["acc,none"] == accuracy
