"""Checks a server before anything depends on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from tenacity import AsyncRetrying, retry_if_exception_type

from .client import OpenAIClient, ServerDownError
from .loop_thread import LoopThread
from .options import ServerOptions
from .wire import (
    AttemptError,
    HttpResponse,
    check_status,
    endpoint,
    model_not_found,
    served_models,
)

_TIMEOUT_S = 10  # A list of models takes milliseconds.
_NOT_READY = frozenset({502, 503, 504})
"""What a server answers, or a proxy before it, while a model is being loaded."""


def check_server(
    options: ServerOptions,
    model: str | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    key: str = "",
) -> None:
    """Wait until a server is up, `patience_s` at most, and check that it has a model.

    A server that does not list its models only has to be up, and so has one that may have any.

    Args:
        options: which server, and how long to wait for it.
        model: its name; None: any will do.
        clock: in seconds.
        key: see `OpenAIClient`.

    Raises:
        ServerDownError: it is not up.
        EngineError: it lacks the model or refuses the key, or its address is wrong.
    """

    async def check() -> None:
        async with OpenAIClient(options, 1, clock=clock, key=key) as client:
            models = await _models_when_ready(client, options.patience_s, clock)
            await _check_model(client, model, models)

    # A thread of its own, because a notebook already runs an event loop in this one.
    thread = LoopThread(f"check of {options.base_url}")
    try:
        thread.run(check())
    finally:
        thread.close()


async def _models_when_ready(
    client: OpenAIClient, patience_s: float, clock: Callable[[], float]
) -> HttpResponse:
    start = clock()

    async def models() -> HttpResponse:
        try:
            url = f"{client.base}/models"
            found = await client.send_when_reachable("GET", url, timeout_s=_TIMEOUT_S)
            if found.status in _NOT_READY:
                check_status(found, client.base)
        except AttemptError as error:
            client.waits.report(error.detail, clock() - start, patience_s)
            raise
        return found

    ready = AsyncRetrying(
        retry=retry_if_exception_type(AttemptError),
        stop=lambda _: clock() - start >= patience_s,
        wait=client.back_off(),
        reraise=True,
    )
    try:
        return await ready(models)
    except AttemptError as error:
        waited = f" for {patience_s:g} s" if patience_s else ""
        found = f"{client.base} was not ready{waited}: {error.detail}"
        raise ServerDownError(found, "is the server up?") from None


async def _check_model(client: OpenAIClient, model: str | None, models: HttpResponse) -> None:
    if models.status == 401:
        check_status(models, client.base)
    known = served_models(models)
    if model is None or not known or model in known:
        return
    # It may know the model by another name, as llama.cpp does by any: only a request tells.
    url = endpoint(client.base, "chat")
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    with suppress(AttemptError):  # A server that is up may refuse such a chat.
        found = await client.send_when_reachable("POST", url, body, timeout_s=_TIMEOUT_S)
        if found.status == 404:
            raise model_not_found(model, url, models, "")
