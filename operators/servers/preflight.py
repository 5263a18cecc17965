"""Checks a server before anything depends on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type

from ..logs import logger
from .client import OpenAIClient
from .concurrency import LoopThread
from .endpoints import ServerDownError
from .options import Dialect, ServerOptions, dialect_of, probed_url
from .wire import AttemptError, HttpResponse, check_status, endpoint, model_not_found, served_models

_log = logger(__name__)
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

    A server that does not list its models only has to be up, and so has one that may have any; with
    `models: false` it is asked for no list, and is up if it answers anything. Of several addresses
    one must be up, and all that are up must have the model; a line in the log names those that are
    down.

    Raises:
        ServerDownError: it is not up.
        EngineError: it lacks the model or refuses the key, or its address is wrong.
    """

    several = len(options.addresses) > 1

    async def check(address: str) -> None:
        patience_s = 0.0 if several else options.patience_s
        one = options.model_copy(update={"base_url": address, "patience_s": patience_s})
        place = address if several else ""
        async with OpenAIClient(one, 1, clock=clock, key=key) as client:
            first = await _answer_when_ready(client, one, clock)
            if dialect_of(options).models:
                await _check_model(client, dialect_of(options), model, first, place)

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


async def _answer_when_ready(
    client: OpenAIClient, options: ServerOptions, clock: Callable[[], float]
) -> HttpResponse:
    """What a server answers first: its list of models, if it has one."""
    start, patience_s = clock(), options.patience_s
    lists_models = dialect_of(options).models

    async def answer() -> HttpResponse:
        try:
            url = partial(probed_url, options=options)
            found = await client.send_when_reachable("GET", url, timeout_s=_TIMEOUT_S)
            if found.status in _NOT_READY and lists_models:
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
        return await ready(answer)
    except AttemptError as error:
        waited = f" for {patience_s:g} s" if patience_s else ""
        found = f"{client.name} was not ready{waited}: {error.detail}"
        raise ServerDownError(found, "is the server up?") from None


async def _check_model(
    client: OpenAIClient, dialect: Dialect, model: str | None, models: HttpResponse, place: str
) -> None:
    if models.status == 401:
        check_status(models, client.name)
    known = served_models(models)
    if model is None or not known or model in known:
        return
    # It may know the model by another name, as llama.cpp does by any: only a request tells.
    url = partial(endpoint, api="chat")
    chat = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    body = dialect.sent(chat)
    with suppress(AttemptError):  # A server that is up may refuse such a chat.
        found = await client.send_when_reachable("POST", url, body, timeout_s=_TIMEOUT_S)
        if found.status == 404:
            raise model_not_found(model, url(client.name), models, "", place)
