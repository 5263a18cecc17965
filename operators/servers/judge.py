"""Sends each distinct scoring request once, however many threads need its outcome.

    threads ──> requests ──> in flight already? ──> cached? ──> the server ──> the cache

There is one judge for each server and cache in a process, with one event loop, one pool of
connections and one limit of concurrent requests, shared by all threads that call it.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..disk import in_user_cache
from .answer_cache import AnswerCache
from .client import OpenAIClient, Request
from .concurrency import InFlight, LoopThread, results_of
from .endpoints import ServerDownError
from .options import ServerOptions
from .verdict import STORED_ANSWER, MalformedError, ScorerAnswer
from .wire import AttemptError

CODE = 1
"""Version of what the fields of a request do not show, and of the stored answers: part of keys."""
_MALFORMED = "scorer_malformed"
_REASONS = {
    "request_refused": "scorer_refused",
    "content_refused": "scorer_refused",
    "timeout": "scorer_timeout",
    "rate_limited": "scorer_busy",
}
REASONS: Mapping[str, str] = {
    "scorer_malformed": "the scorer's verdict does not have the requested form",
    "scorer_refused": "the server refuses the request, or the scorer refuses to answer it",
    "scorer_timeout": "the scorer took too long at every attempt",
    "scorer_busy": "the server was too busy at every attempt",
    "scorer_error": "the server failed, broke the connection or gave an unusable answer at "
    "every attempt",
    "scorer_unreachable": "the server is down",
}
"""Why an outcome may have no scores."""


def key_of(body: Mapping[str, Any], revision: str) -> bytes:
    """The key of an answer, which is kept as it came: SHA-256 of everything that determines it."""
    request = json.dumps([CODE, revision, body], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(request.encode()).digest()


def user_cache() -> Path:
    return in_user_cache("scores.answers")


def open_cache(path: Path, *, writes: bool = True) -> AnswerCache:
    right = "set `cache` to another path, or to null to keep no scores"
    return AnswerCache(path, "scores", right, writes=writes)


@dataclass(frozen=True, eq=False)
class ScoringRequest:
    """How a response is scored: one of the `sent` after the other, each with another seed, until
    `read` gives the scores instead of a MalformedError."""

    key: bytes  # the same for requests with the same answer
    sent: Sequence[Request[ScorerAnswer]]
    read: Callable[[ScorerAnswer], tuple[float, ...]]


class ScoringOutcome(NamedTuple):
    scores: tuple[float, ...] | None  # one for each dimension; None if they are missing
    reason: str | None = None  # why they are missing: a slug of `REASONS`
    detail: str = ""  # the message of the failure
    notes: Mapping[str, float] = {}  # figures for the run report, such as tokens used
    # the answer that the scores were read from, or the last one if none could be read
    text: str = ""

    def for_equal_request(self) -> ScoringOutcome:
        return self._replace(notes={"same_as_another": 1})


def open_judge(server: ServerOptions, cache: Path | None) -> Judge:
    """The judge at that server, with that cache; the same one until it is released."""
    with _opening:
        if (server, cache) not in _open:
            _open[server, cache] = Judge(server, cache)
        return _open[server, cache]


def release(server: ServerOptions, cache: Path | None) -> None:
    with _opening:
        judge = _open.pop((server, cache), None)
    if judge:
        judge.close()


_open: dict[tuple[ServerOptions, Path | None], Judge] = {}
_opening = threading.Lock()


@atexit.register
def _close_all() -> None:
    for key in list(_open):
        release(*key)


class Judge:
    """A scorer behind a server; see `open_judge`. Thread-safe.

    `cache` has its answers, and what came instead of a score.
    """

    def __init__(self, server: ServerOptions, cache: Path | None) -> None:
        self._size = server.concurrency
        self._client = OpenAIClient(server)
        self._cache = None if cache is None else open_cache(cache)
        self._in_flight: InFlight[ScoringOutcome] = InFlight()
        self._thread = LoopThread(f"scorer at {server.addresses[0]}")
        self._thread.run(self._client.__aenter__())

    def outcomes(
        self, requests: Iterable[ScoringRequest], probe: Request[ScorerAnswer], *, fail: bool
    ) -> Iterator[tuple[int, ScoringOutcome]]:
        """The outcome of each request with its index, as they finish.

        Requests are taken in the thread that iterates, as slots of `concurrency` become free.
        Whether a server that is down is an error: `fail`; otherwise the outcome is
        `scorer_unreachable`.
        """

        async def outcome(request: ScoringRequest) -> ScoringOutcome:
            try:
                return await self._shared(request, probe)
            except ServerDownError as error:
                if fail:
                    raise
                return ScoringOutcome(None, "scorer_unreachable", str(error))

        return results_of(self._thread, requests, nullcontext(outcome), self._size, "the scorer")

    def close(self) -> None:
        self._thread.run(self._end())
        self._thread.close()
        if self._cache is not None:
            self._cache.close()

    async def _end(self) -> None:
        await self._in_flight.close()
        await self._client.__aexit__()

    async def _shared(
        self, request: ScoringRequest, probe: Request[ScorerAnswer]
    ) -> ScoringOutcome:
        """The outcome; requests are shared by callers, and cancelled once none of them waits."""
        work = partial(self._cached_or_sent, request, probe)
        outcome, first = await self._in_flight.result(request.key, work)
        if first:
            return outcome
        # Another step may read another score out of the same answer.
        own = self._stored(request) if outcome.reason is None else None
        return (own or outcome).for_equal_request()

    def _stored(self, request: ScoringRequest) -> ScoringOutcome | None:
        """The outcome by the answer that is kept of an equal request; None: it is asked for."""
        if not (stored := self._cache and self._cache.get(request.key)):
            return None
        try:
            answer = STORED_ANSWER.validate_json(stored)
            return ScoringOutcome(request.read(answer), notes={"from_cache": 1}, text=answer.text)
        except MalformedError:
            return None  # Another version could read it.

    async def _cached_or_sent(
        self, request: ScoringRequest, probe: Request[ScorerAnswer]
    ) -> ScoringOutcome:
        # Looked up here, where no one else can send the same request before its answer is stored.
        if stored := self._stored(request):
            return stored
        outcome = await self._send(request, probe)
        if outcome.reason is not None and self._cache is not None:
            text = outcome.text if outcome.reason == _MALFORMED else outcome.detail
            await asyncio.to_thread(self._cache.put_failure, request.key, outcome.reason, text)
        return outcome

    async def _send(self, request: ScoringRequest, probe: Request[ScorerAnswer]) -> ScoringOutcome:
        cost: Counter[str] = Counter(asked=1)
        detail = text = ""
        for sent in request.sent:
            failed = Counter[str]()
            try:
                found = await self._client.answer(sent, probe, failed)
            except AttemptError as error:
                reason = _REASONS.get(error.reason, "scorer_error")
                return ScoringOutcome(None, reason, f"{error.reason}: {error.line}", cost)
            finally:
                cost.update({f"fault_{reason}": number for reason, number in failed.items()})
            cost["prompt_tokens"] += found.prompt_tokens
            cost["completion_tokens"] += found.completion_tokens
            try:
                scores = request.read(found)
            except MalformedError as error:
                detail, text = str(error), found.text
                cost["fault_malformed"] += 1
                continue
            if self._cache:
                text = STORED_ANSWER.dump_json(found).decode()
                await asyncio.to_thread(self._cache.put, request.key, text)
            return ScoringOutcome(scores, notes=cost, text=found.text)
        return ScoringOutcome(None, _MALFORMED, detail, cost, text)
