"""A model for lm-evaluation-harness: import this module, and `--model redline` is known.

    python -m redline.lm_eval run --model redline --model_args model=demo,threads=2 --tasks TASK

Log-likelihoods have the same bits whatever the batch, so `batch_size` changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from .engine import Engine, _json
from .errors import RequestError

__all__ = ["RedlineLM"]

_AT_A_TIME = 4096
"""Most requests that are submitted before the first of them is waited for."""


class _Parts:
    """A context and its continuation as requests of the engine.

    One pass over a prompt tells the probability of every token, and which is the most probable. A prompt leaves room for a new
    token, so where both fill the context, the last one or two tokens are a label. The very last one may follow a whole context.
    """

    def __init__(self, ids: list[int], continuation: int, max_length: int, rolling: bool) -> None:
        self.ids = ids[-(max_length + 1) :]
        self.first = len(self.ids) - continuation
        self.split = max(self.first, min(len(self.ids), max_length - 1))
        self.reads = self.split < max_length
        """Whether the tokens before `split` are a prompt that leaves room."""
        self.asks_last = not rolling and len(self.ids) > max_length
        """Whether all tokens are compared with the last one."""
        self.count = self.reads + (self.split < len(self.ids)) + self.asks_last

    def requests(self, vocab: int) -> Iterable[tuple[str, dict[str, object]]]:
        head, tail = self.ids[: self.split], self.ids[self.split :]
        score: dict[str, object] = {"items": [[]], "tokenization": "separate"}
        if self.reads:
            given = {"prompt": head, "max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
            read = {"prompt_logprobs": 1, "prompt_logprobs_from": self.first} if self.first < self.split else {}
            yield "generate", {**given, **read}
        if tail:
            yield "score", {**score, "query": head, "label_token_ids": [tail], "long_labels": "sum"}
        if self.asks_last:
            yield "score", {**score, "query": self.ids[:-1], "label_token_ids": list(range(vocab))}

    def read(self, answers: Iterator[dict[str, Any]]) -> tuple[float, bool]:
        """The log-likelihood of the continuation, and whether its tokens are the most probable ones."""
        logprob, greedy = 0.0, True
        if self.reads:
            choice = next(answers)["choices"][0]
            positions = choice["prompt_logprobs"][self.first :] if self.first < self.split else []
            logprob = sum(at["logprob"] for at in positions)
            greedy = all(at["top"][0]["id"] == at["id"] for at in positions)
            if self.split < len(self.ids):
                greedy = greedy and choice["token_ids"][0] == self.ids[self.split]
        if self.split < len(self.ids):
            logprob += next(answers)["meta"]["logprobs"][0][0]
        if self.asks_last:
            (scores,) = next(answers)["scores"]
            greedy = greedy and scores.index(max(scores)) == self.ids[-1]
        return logprob, greedy


@register_model("redline")
class RedlineLM(TemplateLM):
    """A model that Redline runs.

    Args:
        model: as for :class:`redline.Engine`.
        max_length: tokens of the longest sequence; default: the model's context.
        max_gen_toks: new tokens of a generation that does not say how many.
        prefix_token_id: the token before texts without a context; default: what the tokenizer puts before a text, or else the
            token that ends one.
        batch_size, max_batch_size: not used; the engine chooses.
        device: not used; the harness gives one even if nobody asked for it.
        engine: further arguments of :class:`redline.Engine`, such as ``format="w8"``.
    """

    def __init__(
        self,
        model: str = "demo",
        max_length: int | None = None,
        max_gen_toks: int = 256,
        prefix_token_id: int | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        **engine: Any,
    ) -> None:
        super().__init__()
        self.engine = Engine(model, **engine)
        info = self.engine.info
        before = self.engine.tokenizer.encode("")
        self._end: int = (info["end_ids"] or [before[0] if before else 0])[0]
        self._prefix = prefix_token_id if prefix_token_id is not None else before[0] if before else self._end
        self.max_length: int = max_length or info["context"]
        self.max_gen_toks = max_gen_toks
        self._name: str = info["name"]
        self._vocab: int = info["vocab_size"]

    @property
    def eot_token_id(self) -> int:
        return self._end

    @property
    def prefix_token_id(self) -> int:
        return self._prefix

    @property
    def tokenizer_name(self) -> str:
        return self._name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        if add_special_tokens is None:
            add_special_tokens = not string.startswith(self.engine.tokenizer.decode([self._prefix], False))
        return self.engine.tokenizer.encode(string, add_special_tokens)

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        rolling: bool = False,
        **_: Any,
    ) -> list[tuple[float, bool]]:
        parts = [_Parts(context + continuation, len(continuation), self.max_length, rolling) for _, context, continuation in requests]
        asked = (one for part in parts for one in part.requests(self._vocab))
        answers = iter(self._answers(asked, sum(part.count for part in parts), disable_tqdm))
        return [part.read(answers) for part in parts]

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        windows: list[tuple[Any, list[int], list[int]]] = []
        counts = []
        for request in requests:
            (text,) = request.args
            of_text = get_rolling_token_windows(self.tok_encode(text), self._prefix, self.max_length, 1)
            pairs = [make_disjoint_window(window) for window in of_text]
            windows += [(None, *pair) for pair in pairs]
            counts.append(len(pairs))
        found = iter(self._loglikelihood_tokens(windows, disable_tqdm, rolling=True))
        return [sum(next(found)[0] for _ in range(count)) for count in counts]

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        def fields() -> Iterable[tuple[str, dict[str, object]]]:
            for request in requests:
                text, given = request.args
                options = normalize_gen_kwargs(given, self.max_gen_toks)
                most = options.pop("max_gen_toks")
                if most >= self.max_length:
                    raise RequestError(
                        f"{most} new tokens leave nothing of the context of {self.max_length}", "give a smaller `max_gen_toks`"
                    )
                stop = handle_stop_sequences(options.pop("until", None), eos=None)
                samples = options.pop("do_sample", False)
                temperature = options.pop("temperature", 1.0 if samples else 0.0)
                prompt = self.tok_encode(text)[-(self.max_length - most) :]
                yield (
                    "generate",
                    {**options, "prompt": prompt, "max_new_tokens": most, "stop": stop, "temperature": temperature if samples else 0.0},
                )

        answers = self._answers(fields(), len(requests), disable_tqdm)
        return [answer["choices"][0]["text"] for answer in answers]

    def _answers(
        self, fields: Iterable[tuple[str, dict[str, object]]], count: int, disable_tqdm: bool
    ) -> Iterable[dict[str, Any]]:
        """The answers in order, of requests that run together."""
        waiting = []
        with tqdm(total=count, disable=disable_tqdm, desc="Running requests") as bar:
            for kind, given in fields:
                waiting.append(self.engine._engine.submit(kind, _json(given)))
                if len(waiting) == _AT_A_TIME:
                    yield waiting.pop(0).wait()
                    bar.update()
            for ticket in waiting:
                yield ticket.wait()
                bar.update()


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
