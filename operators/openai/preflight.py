"""Checks a server before anything depends on it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type

from .client import OpenAIClient
from .endpoints import ServerDownError
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

_log = logging.getLogger(__name__)
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

    A server that does not list its models only has to be up, and so has one that may have any. Of
    several addresses one must be up, and all that are up must have the model; a line in the log
    names those that are down.

    Args:
        options: which server, and how long to wait for it.
        model: its name; None: any will do.
        clock: in seconds.
        key: see `OpenAIClient`.

    Raises:
        ServerDownError: it is not up.
        EngineError: it lacks the model or refuses the key, or its address is wrong.
    """

    several = len(options.addresses) > 1

    async def check(address: str) -> None:
        patience_s = 0.0 if several else options.patience_s
        one = options.model_copy(update={"base_url": address, "patience_s": patience_s})
        async with OpenAIClient(one, 1, clock=clock, key=key) as client:
            models = await _models_when_ready(client, patience_s, clock)
            await _check_model(client, model, models, address if several else "")

    # A thread of its own, because a notebook already runs an event loop in this one.
    thread = LoopThread(f"check of {options.addresses[0]}")
    try:
        each = _check_all(options, check, clock) if several else check(options.addresses[0])
        thread.run(each)
    finally:
        thread.close()


async def _check_all(
    options: ServerOptions,
    check: Callable[[str], Coroutine[Any, Any, None]],
    clock: Callable[[], float],
) -> None:
    """Check each address; those that are not up are waited for only if none is."""
    addresses = options.addresses
    # Once, without waiting; then until one of them is up.
    start, down = clock(), await _down(addresses, check)
    while len(down) == len(addresses) and clock() - start < options.patience_s:
        await asyncio.sleep(options.back_off_s)
        down = await _down(addresses, check)
    if len(down) == len(addresses):
        waited = f" for {options.patience_s:g} s" if options.patience_s else ""
        reasons = ", ".join(error.found for error in down)
        found = f"none of {len(addresses)} servers was ready{waited}: {reasons}"
        raise ServerDownError(found, "are they up?")
    for error in down:
        _log.warning("%s: the run begins without it", error.found)


async def _down(
    addresses: Sequence[str], check: Callable[[str], Coroutine[Any, Any, None]]
) -> list[ServerDownError]:
    """Why addresses are not up, of each that is not.

    Raises:
        EngineError: that of the first address that is up and lacks something.
    """
    found = await asyncio.gather(*map(check, addresses), return_exceptions=True)
    for each in found:
        if each is not None and not isinstance(each, ServerDownError):
            raise each
    return [each for each in found if isinstance(each, ServerDownError)]


async def _models_when_ready(
    client: OpenAIClient, patience_s: float, clock: Callable[[], float]
) -> HttpResponse:
    start = clock()

    async def models() -> HttpResponse:
        try:
            found = await client.send_when_reachable(
                "GET", "{}/models".format, timeout_s=_TIMEOUT_S
            )
            if found.status in _NOT_READY:
                check_status(found, client.name)
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
        found = f"{client.name} was not ready{waited}: {error.detail}"
        raise ServerDownError(found, "is the server up?") from None


async def _check_model(
    client: OpenAIClient, model: str | None, models: HttpResponse, place: str
) -> None:
    if models.status == 401:
        check_status(models, client.name)
    known = served_models(models)
    if model is None or not known or model in known:
        return
    # It may know the model by another name, as llama.cpp does by any: only a request tells.
    url = partial(endpoint, api="chat")
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    with suppress(AttemptError):  # A server that is up may refuse such a chat.
        found = await client.send_when_reachable("POST", url, body, timeout_s=_TIMEOUT_S)
        if found.status == 404:
            raise model_not_found(model, url(client.name), models, "", place)
