"""The engine: a loaded model that answers requests."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _redline
from ._redline import Tokenizer
from .errors import LoadError, RedlineError, RequestError

__all__ = ["Engine", "Piece", "Tokenizer"]

Prompt = str | Sequence[int] | npt.NDArray[np.integer]
"""A text, or its token ids."""
Floats = npt.NDArray[np.float32]

_KINDS = ("score", "classify", "rerank", "embed", "generate", "diffuse", "perplexity")


class Piece(NamedTuple):
    """A piece of a generation that is streamed."""

    text: str
    """The text that has become final; often empty, because characters of several tokens are held back."""
    token_id: int | None
    """The token, or ``None`` if the continuation was cut short after its last one."""
    continuation: int
    """Which of several continuations it belongs to, from 0 on."""
    finish_reason: str | None
    """In the last piece of a continuation: ``"stop"`` or ``"length"``."""


def _plain(value: object) -> object:
    """What `json` does not know: arrays and numbers of numpy, paths."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is no part of a request")


def _generation(prompt: Prompt | None, max_new_tokens: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a generation. A class of Pydantic stands for its schema."""
    fields: dict[str, Any] = {"prompt": prompt, "max_new_tokens": max_new_tokens, **options}
    schema = fields.pop("schema", None)
    if schema is not None:
        fields["json_schema"] = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema
    return fields


def _json(fields: Mapping[str, object], error: type[RedlineError] = RequestError) -> str:
    """The fields that are given, as JSON."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        text = json.dumps(given, default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError) as cause:
        if "JSON compliant" in str(cause):
            raise error("a number is not finite", "give finite numbers, or leave them out") from None
        raise error(f"the arguments are no JSON: {cause}") from None
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        near = text[max(0, cause.start - 20) : cause.start]
        fact = f"a text is not valid Unicode: half of a surrogate pair after {near!r}"
        raise error(fact, 'decode bytes with `errors="replace"`') from None
    return text


class Engine:
    """A model, loaded and ready.

    Args:
        model: a directory, a GGUF file, a Hugging Face id in the local cache, ``"demo"``,
            ``"demo-chat"``, or ``"demo-diffusion"``.
        format: format of weights, ``"f32"``, ``"bf16"``, ``"w8"`` or ``"w4"``; default: the model's own.
        group: number of inputs that share a scale, for ``w8`` and ``w4``.
        outliers: share of the input columns of every layer that ``w8`` and ``w4`` keep as bf16.
        threads: threads of every pass; default: up to one per physical core, fewer while other processes keep cores busy.
        tp_size: number of logical devices, from 1 to 8.
        isa: ``"auto"``, ``"scalar"``, ``"avx2"``, ``"avx512"`` or ``"amx"``.
        kv_format: format of keys and values.
        memory: bytes for weights, activations, keys and values, as a number or such as ``"8GiB"``; default: 80 % of what is free.
        max_context: tokens of the longest sequence; default: the model's.
        max_chunk: tokens of the largest pass.
        mmap: map the weights of a converted model instead of copying them.
        prefix_cache: keep keys and values of finished requests for later ones that begin with the same tokens.
        adapters: directories of LoRA adapters by name; requests choose by ``adapter``.
        adapter_memory: bytes for adapters in memory; default: 1 GiB, or a quarter of ``memory`` if that is less.
        chat: put prompts into the model's chat template.
        chat_template: a file with a template to use instead of the model's.
        queue: most requests that wait or run at a time; one more raises ``RedlineError``. Default: 65,536.

    Raises:
        LoadError: if the model cannot be loaded.

    An engine may be used by several threads. It is a context manager, and is pickled as its arguments: the process that unpickles it loads
    the model. A process that is forked after the model was loaded must load its own.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        format: str | None = None,
        group: int | None = None,
        outliers: float = 0.0,
        threads: int | None = None,
        tp_size: int = 1,
        isa: str = "auto",
        kv_format: str | None = None,
        memory: int | str | None = None,
        max_context: int | None = None,
        max_chunk: int | None = None,
        mmap: bool = False,
        prefix_cache: bool = True,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        adapter_memory: int | str | None = None,
        chat: bool = False,
        chat_template: str | os.PathLike[str] | None = None,
        queue: int | None = None,
    ) -> None:
        arguments = dict(
            model=os.fspath(model),
            format=format,
            group=group,
            outliers=outliers,
            threads=threads,
            tp_size=tp_size,
            isa=isa,
            kv_format=kv_format,
            memory=memory,
            max_context=max_context,
            max_chunk=max_chunk,
            mmap=mmap,
            prefix_cache=prefix_cache,
            adapters=adapters,
            adapter_memory=adapter_memory,
            chat=chat,
            chat_template=chat_template,
            queue=queue,
        )
        self._arguments = arguments
        places = {
            "hub_cache": os.environ.get("HF_HUB_CACHE") or None,
            "hf_home": os.environ.get("HF_HOME") or None,
            "xdg_cache": os.environ.get("XDG_CACHE_HOME") or None,
            "home": os.environ.get("HOME") or None,
        }
        self._engine = _redline.Engine(_json({**arguments, **places}, LoadError))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, (type(self), self._arguments)

    def __repr__(self) -> str:
        defaults = {name: one.default for name, one in inspect.signature(Engine.__init__).parameters.items()}
        given = [f"{name}={value!r}" for name, value in self._arguments.items() if value != defaults[name]]
        return f"Engine({', '.join(given)})"

    def close(self) -> None:
        """Frees the model when its last request has ended. Later requests raise ``RuntimeError``."""
        self._engine.close()

    @property
    def info(self) -> dict[str, Any]:
        """Facts about the model and how it runs: its name, sizes, formats, kernels and threads."""
        return self._engine.info()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer: ``encode(text)`` gives ids, ``decode(ids)`` a text."""
        return self._engine.tokenizer()

    def score(
        self,
        query: Prompt,
        items: str | Sequence[Prompt],
        label_token_ids: Sequence[int] | npt.NDArray[np.integer] | None = None,
        apply_softmax: bool = False,
        item_first: bool = False,
        *,
        labels: Sequence[str] | None = None,
        **options: Any,
    ) -> list[list[float] | None]:
        """The probability of each label as the next token after query and item.

        Args:
            query: what all items share: a text, or token ids.
            items: the items; each gets a row.
            label_token_ids: the labels as token ids.
            apply_softmax: divide by the sum over the labels, instead of over the whole vocabulary.
            item_first: put the item before the query.
            labels: labels as texts, each of one token; they precede ``label_token_ids``.
            options: what else a line of ``redline score`` may say, such as ``truncate="left"``, ``item_errors=True``,
                ``long_labels="mean"``, ``adapter="name"`` or ``timeout_s=10``.

        Returns:
            ``scores[item][label]``, in the order of the request; ``None`` for items that failed, with ``item_errors``.
            :meth:`answer` gives what else there is to know, such as why an item failed.
        """
        fields = _score_fields(query, items, label_token_ids, apply_softmax, item_first, labels, options)
        scores: list[list[float] | None] = self._answer("score", fields)["scores"]
        return scores

    async def score_async(
        self,
        query: Prompt,
        items: str | Sequence[Prompt],
        label_token_ids: Sequence[int] | npt.NDArray[np.integer] | None = None,
        apply_softmax: bool = False,
        item_first: bool = False,
        *,
        labels: Sequence[str] | None = None,
        **options: Any,
    ) -> list[list[float] | None]:
        """As :meth:`score`, awaited. Requests that wait together run in common passes."""
        fields = _score_fields(query, items, label_token_ids, apply_softmax, item_first, labels, options)
        scores: list[list[float] | None] = (await self._answer_async("score", fields))["scores"]
        return scores

    def score_array(
        self,
        query: Prompt,
        items: str | Sequence[Prompt],
        label_token_ids: Sequence[int] | npt.NDArray[np.integer] | None = None,
        apply_softmax: bool = False,
        item_first: bool = False,
        *,
        labels: Sequence[str] | None = None,
        **options: Any,
    ) -> Floats:
        """As :meth:`score`, as a float32 array of shape ``(items, labels)``; rows of items that failed are NaN."""
        fields = _score_fields(query, items, label_token_ids, apply_softmax, item_first, labels, options)
        scores: Floats = self._answer("score_array", fields)
        return scores

    def answer(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The whole answer to a request, as the command of that name prints it with ``--json``.

        Args:
            kind: ``"score"``, ``"classify"``, ``"rerank"``, ``"embed"``, ``"generate"``, ``"diffuse"`` or ``"perplexity"``.
            fields: what a line of ``--jsonl`` may say. With ``receipt=True``, the answer has a ``receipt``, which :meth:`verify` confirms.

        Returns:
            A dictionary, with the numbers of tokens in ``usage``, and details such as log-probabilities, the reasons of items that
            failed, and times in ``meta``.
        """
        _check_kind(kind)
        answer: dict[str, Any] = self._answer(kind, fields)
        return answer

    async def answer_async(self, kind: str, **fields: Any) -> dict[str, Any]:
        """As :meth:`answer`, awaited. Requests that wait together run in common passes."""
        _check_kind(kind)
        answer: dict[str, Any] = await self._answer_async(kind, fields)
        return answer

    def classify(
        self, texts: str | Sequence[str], classes: Sequence[str] | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """The probability of each class for each text.

        Args:
            texts: the texts.
            classes: the classes; models with a classifier have their own.
            options: what else a line of ``redline classify`` may say, such as ``template``, ``threshold``, ``calibrate``.

        Returns:
            For each text a dictionary with ``class`` (``None`` below the threshold), ``probabilities`` in the order of the classes,
            ``margin`` between the best two, ``prompt_tokens`` and ``truncated``.
        """
        results: list[dict[str, Any]] = self._answer("classify", {"text": texts, "classes": classes, **options})["results"]
        return results

    async def classify_async(
        self, texts: str | Sequence[str], classes: Sequence[str] | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """As :meth:`classify`, awaited."""
        fields = {"text": texts, "classes": classes, **options}
        results: list[dict[str, Any]] = (await self._answer_async("classify", fields))["results"]
        return results

    def rerank(self, query: str, documents: str | Sequence[str], **options: Any) -> list[dict[str, Any]]:
        """Documents by their relevance to a query, the most relevant first.

        Args:
            query: the query.
            documents: the documents.
            options: what else a line of ``redline rerank`` may say, such as ``top_n``, ``threshold``, ``template``, ``yes``, ``no``.

        Returns:
            For each document a dictionary with its ``index`` in ``documents``, ``relevance``, ``prompt_tokens`` and ``truncated``.
        """
        results: list[dict[str, Any]] = self._answer("rerank", {"query": query, "documents": documents, **options})["results"]
        return results

    async def rerank_async(self, query: str, documents: str | Sequence[str], **options: Any) -> list[dict[str, Any]]:
        """As :meth:`rerank`, awaited."""
        fields = {"query": query, "documents": documents, **options}
        results: list[dict[str, Any]] = (await self._answer_async("rerank", fields))["results"]
        return results

    def embed(self, texts: str | Sequence[str], **options: Any) -> Floats:
        """A vector for each text, as the model's files say, or by ``pooling``.

        Args:
            texts: the texts.
            options: what else a line of ``redline embed`` may say: ``pooling`` (``"cls"``, ``"mean"``, ``"last"``), ``normalize``,
                ``dimensions``, ``prompt_name``, ``truncate``.

        Returns:
            A float32 array of shape ``(texts, dimensions)``.
        """
        vectors: Floats = self._answer("embed_array", {"text": texts, **options})
        return vectors

    async def embed_async(self, texts: str | Sequence[str], **options: Any) -> Floats:
        """As :meth:`embed`, awaited."""
        vectors: Floats = await self._answer_async("embed_array", {"text": texts, **options})
        return vectors

    def generate(self, prompt: Prompt | None = None, max_new_tokens: int = 128, **options: Any) -> dict[str, Any]:
        """Continues a prompt.

        Args:
            prompt: a text or token ids; or give ``messages``, a conversation for the chat template.
            max_new_tokens: the most new tokens.
            options: what else a line of ``redline generate`` may say: ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``seed``,
                ``stop``, ``n``, ``logprobs``, ``adapter``, ``timeout_s``, ... ``schema`` is a JSON schema, or a class of Pydantic:
                the text is a value that it allows. ``regex``, ``choice`` and ``grammar`` say otherwise what the text has to be.

        Returns:
            The answer as ``redline generate --json`` prints it: ``choices`` with ``text``, ``token_ids`` and ``finish_reason``,
            ``usage`` and ``meta``.
        """
        fields = _generation(prompt, max_new_tokens, options)
        answer: dict[str, Any] = self._answer("generate", fields)
        return answer

    async def generate_async(
        self, prompt: Prompt | None = None, max_new_tokens: int = 128, **options: Any
    ) -> dict[str, Any]:
        """As :meth:`generate`, awaited."""
        fields = _generation(prompt, max_new_tokens, options)
        answer: dict[str, Any] = await self._answer_async("generate", fields)
        return answer

    def stream(self, prompt: Prompt | None = None, max_new_tokens: int = 128, **options: Any) -> Iterator[Piece]:
        """As :meth:`generate`, token by token. The request is cancelled if the iterator is dropped before its end."""
        fields = _generation(prompt, max_new_tokens, options)
        ticket = self._engine.submit("stream", _json(fields))
        return _pieces(ticket)

    def diffuse(self, prompt: Prompt | None = None, max_new_tokens: int = 128, **options: Any) -> dict[str, Any]:
        """Fills masks, with a model that does, such as ``"demo-diffusion"``.

        Args:
            prompt: a text, which may have masks of its own, or token ids; or give ``messages``.
            max_new_tokens: number of masks after the prompt.
            options: what else a line of ``redline diffuse`` may say: ``steps``, ``algorithm``, ``block_length``, ``threshold``,
                ``cache``, ``temperature``, ``seed``, ``stop``, ...

        Returns:
            The answer as ``redline diffuse --json --trace`` prints it: ``choices`` with ``text``, ``token_ids`` and the ``passes``,
            each with the positions that it filled; ``usage`` and ``meta``.
        """
        fields = {"prompt": prompt, "max_new_tokens": max_new_tokens, **options}
        answer: dict[str, Any] = self._answer("diffuse", fields)
        return answer

    def perplexity(
        self, text: Prompt, window: int | None = None, *, adapter: str | Sequence[Any] | None = None
    ) -> dict[str, Any]:
        """How well the model predicts a text.

        Args:
            text: the text, or its token ids. It is cut into windows that do not overlap.
            window: tokens of a window; default: 512, or the context if that is shorter.
            adapter: the adapter, or several.

        Returns:
            A dictionary with ``perplexity`` and ``nll`` (nats per token), each with ``value`` and ``standard_error``; ``tokens``
            and ``meta``.
        """
        answer: dict[str, Any] = self._answer("perplexity", {"text": text, "window": window, "adapter": adapter})
        return answer

    def verify(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        """Runs the request of a receipt again, and tells whether this engine computes the same.

        Args:
            receipt: the ``receipt`` of an answer to a request with ``receipt=True``, also one of a server or of the command line.

        Returns:
            A dictionary with ``confirmed``. If that is ``False``: ``reason`` (``"changed"`` if a part of the receipt does not have its
            digest, ``"differs"`` if this engine finds something else), the first ``place`` that is wrong, what the ``receipt`` says
            there, and what was ``found``.
        """
        verdict: dict[str, Any] = self._answer("verify", {"receipt": receipt})
        return verdict

    def _answer(self, kind: str, fields: Mapping[str, object]) -> Any:
        return self._engine.submit(kind, _json(fields)).wait()

    async def _answer_async(self, kind: str, fields: Mapping[str, object]) -> Any:
        ticket = self._engine.submit(kind, _json(fields))
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def tell() -> None:
            if not done.done():
                done.set_result(None)

        def tell_loop() -> None:
            # The loop may have been closed while the request ran.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

        ticket.call_when_done(tell_loop)
        try:
            await done
        except asyncio.CancelledError:
            ticket.cancel()
            raise
        return ticket.wait()


def _check_kind(kind: str) -> None:
    if kind not in _KINDS:
        raise RequestError(f"no request is called {kind!r}", f"one of {', '.join(_KINDS)}")


def _score_fields(
    query: Prompt,
    items: str | Sequence[Prompt],
    label_token_ids: Sequence[int] | npt.NDArray[np.integer] | None,
    apply_softmax: bool,
    item_first: bool,
    labels: Sequence[str] | None,
    options: Mapping[str, Any],
) -> dict[str, object]:
    return {
        "query": query,
        "items": items,
        "labels": labels,
        "label_token_ids": label_token_ids,
        "apply_softmax": apply_softmax,
        "item_first": item_first,
        **options,
    }


def _pieces(ticket: _redline.Ticket) -> Iterator[Piece]:
    while (piece := ticket.next_piece()) is not None:
        yield Piece(piece["text"], piece["token_id"], piece["continuation"], piece["finish_reason"])
    ticket.wait()


def _load(engine: type[Engine], arguments: dict[str, Any]) -> Engine:
    return engine(**arguments)
