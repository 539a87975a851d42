"""Ray: tables that many machines answer, and a deployment of Ray Serve.

Each actor loads an engine of its own, whose threads are the CPUs that Ray gives it. Answers are the same bits, however the work is divided.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import offline
from .engine import Engine

if TYPE_CHECKING:
    import pyarrow
    import ray.data

__all__ = ["Rows", "deployment", "map_rows"]

Options = Mapping[str, Any]


class Rows:
    """Answers batches of rows, as a class for ``ray.data.Dataset.map_batches`` with ``batch_format="pyarrow"``.

    Args:
        model: what ``redline.Engine`` takes.
        kind: as for :func:`redline.offline.run`.
        engine: further arguments of ``redline.Engine``. Without ``threads``, there are as many as Ray gives the actor CPUs.
        request: ``columns``, ``keep``, ``prefix`` and the values, as for :func:`redline.offline.answer`.
    """

    def __init__(self, model: str | os.PathLike[str], kind: str, engine: Options | None = None, request: Options | None = None) -> None:
        self.kind = kind
        self.request = dict(request or {})
        self.engine = Engine(model, **{"threads": _cpus(), **(engine or {})})

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        return offline.answer(self.engine, self.kind, batch, **self.request)


def map_rows(
    data: ray.data.Dataset,
    kind: str,
    model: str | os.PathLike[str],
    *,
    actors: int | tuple[int, int] = 1,
    cpus: int = 1,
    batch_size: int = 4096,
    engine: Options | None = None,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    prefix: str = "",
    **values: Any,
) -> ray.data.Dataset:
    """A dataset with the answers to the rows of another one, by a pool of actors.

    Args:
        data: the rows.
        kind: ``"score"``, ``"classify"``, ``"rerank"``, ``"embed"``, ``"generate"`` or ``"diffuse"``.
        model: what ``redline.Engine`` takes; every machine must find it under this name.
        actors: number of actors, or the least and the most.
        cpus: CPUs of an actor, which are the threads of its engine.
        batch_size: rows that an actor gets at a time.
        engine: further arguments of ``redline.Engine``.
        columns: as for :func:`redline.offline.run`, like ``keep``, ``prefix`` and ``values``.
    """
    from ray.data import ActorPoolStrategy

    least, most = actors if isinstance(actors, tuple) else (actors, actors)
    request = {"columns": columns, "keep": keep, "prefix": prefix, **values}
    return data.map_batches(
        Rows,
        fn_constructor_args=(os.fspath(model), kind, dict(engine or {}), request),
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        num_cpus=cpus,
        batch_size=batch_size,
        batch_format="pyarrow",
    )


def deployment(
    model: str | os.PathLike[str],
    *,
    cpus: int = 1,
    replicas: int = 1,
    engine: Options | None = None,
    **options: Any,
) -> Any:
    """An application of Ray Serve, for ``serve.run``.

    It takes JSON: ``kind`` and the fields of a request, as a line of the command line has them, and returns the answer as
    :meth:`redline.Engine.answer` does. If a request has a model id (the header ``serve_multiplexed_model_id``), it uses the adapter of
    that name.

    Args:
        model: what ``redline.Engine`` takes.
        cpus: CPUs of a replica, which are the threads of its engine.
        replicas: number of replicas, each with an engine.
        engine: further arguments of ``redline.Engine``, such as ``adapters``.
        options: further options of ``serve.deployment``.
    """
    from ray import serve
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    from .errors import RedlineError, RequestError, RequestTimeout

    arguments = {"threads": cpus, **(engine or {})}

    @serve.deployment(num_replicas=replicas, ray_actor_options={"num_cpus": cpus}, **options)
    class Redline:
        def __init__(self) -> None:
            self.engine = Engine(model, **arguments)

        async def answer(self, kind: str, **fields: Any) -> dict[str, Any]:
            """The answer to a request, for other deployments."""
            adapter = serve.get_multiplexed_model_id()
            if adapter and "adapter" not in fields:
                fields["adapter"] = adapter
            return await self.engine.answer_async(kind, **fields)

        async def __call__(self, request: Request) -> JSONResponse:
            try:
                body = await request.json()
            except ValueError as error:
                return _failure(400, f"the body is no JSON: {error}", None)
            if not isinstance(body, dict) or not isinstance(body.get("kind"), str):
                return _failure(400, "the body has no `kind`", 'such as {"kind": "classify", "text": "...", "classes": [...]}')
            try:
                return JSONResponse(await self.answer(**body))
            except TypeError as error:
                return _failure(400, str(error), None)
            except RequestError as error:
                return _failure(400, error.fact, error.hint)
            except RequestTimeout as error:
                return _failure(504, error.fact, error.hint)
            except RedlineError as error:
                return _failure(500, error.fact, error.hint)

    def _failure(status: int, fact: str, hint: str | None) -> JSONResponse:
        return JSONResponse({"error": {"message": fact, "hint": hint}}, status_code=status)

    application: Any = Redline
    return application.bind()


def _cpus() -> int:
    """The number of CPUs that Ray gives this actor, at least one."""
    import ray

    context: Any = ray.get_runtime_context()
    assigned = context.get_assigned_resources() if ray.is_initialized() else {}
    return max(1, int(assigned.get("CPU", 1)))
