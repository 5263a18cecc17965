"""Sends each distinct scoring request once, however many threads need its outcome.

    threads ──> requests ──> in flight already? ──> cached? ──> a slot of `concurrency`
                                                                ──> the server ──> the cache

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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..disk import in_user_cache
from ..errors import EngineError
from .answer_cache import AnswerCache
from .client import OpenAIClient, Request
from .concurrency import InFlight, LoopThread, capacity_for, work_on_demand
from .endpoints import ServerDownError
from .options import ServerOptions, dialect_of
from .verdict import MalformedError, ScorerAnswer, read_answer
from .wire import AttemptError, advice, endpoint

# --- The cache of scorers' answers, by request: no response is scored twice -----------
# It stores the answer as the server gave it, so that it can be interpreted differently without
# another request.

CODE = 1
"""Version of what the fields of a request do not show, and of the stored answers: part of keys."""


def key_of(body: Mapping[str, Any], revision: str) -> bytes:
    """Return the key of an answer: SHA-256 of everything that determines it."""
    request = json.dumps([CODE, revision, body], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(request.encode()).digest()


def user_cache() -> Path:
    """Return the cache in the user's cache folder."""
    return in_user_cache("scores.answers")


def open_cache(path: Path, *, writes: bool = True) -> AnswerCache:
    """Return the cache at a path; see `AnswerCache`.

    Raises:
        EngineError: it cannot be used; all methods of the cache may raise it.
    """
    right = "set `cache` to another path, or to null to keep no scores"
    return AnswerCache(path, "scores", right, writes=writes)


# --- Judges ---------------------------------------------------------------------------

_PutOutcome = Callable[[tuple[int, "ScoringOutcome"]], None]
_Score = Callable[[tuple[int, tuple["ScoringBatch", "ScoringRequest"]]], Awaitable[None]]
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


class ScoringApi(NamedTuple):
    """Where a scorer is asked, if not by a chat, and how its answer is read.

    A request's body is then sent as it is, without the fields in `unsent`.
    """

    name: str  # part of the keys of answers
    url: Callable[[str], str]  # address to post to, from that of the server
    # the answer in a body; raises AttemptError if there is no usable one
    read: Callable[[bytes], ScorerAnswer]
    hint: str  # what to try if the server has the model, but nothing at this address
    unsent: tuple[str, ...] = ()  # what only tells requests apart, such as a model's name


class ScoringRequest:
    """A request to score a response, and how to read the answer.

    It is sent up to `tries` times, each with another seed, until `read` gives the scores instead of
    a MalformedError. `revision` identifies the weights behind the name of the model. Without an
    `api` the body is that of a chat.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        revision: str,
        read: Callable[[ScorerAnswer], tuple[float, ...]],
        tries: int = 1,
        api: ScoringApi | None = None,
    ) -> None:
        self.body, self.read, self.tries, self.api = body, read, tries, api
        # The same for requests with the same answer.
        self.key = key_of(body if api is None else {"api": api.name, "body": body}, revision)

    def bodies(self) -> Iterator[Mapping[str, Any]]:
        """Yield the body of each try."""
        for number in range(self.tries):
            # A server may take no seed.
            another = number > 0 and "seed" in self.body
            yield {**self.body, "seed": self.body["seed"] + number} if another else self.body


class ScoringBatch:
    """Requests that are given up together, once the server is down; those of another are tried."""

    down = ""  # the message, once it is


class ScoringOutcome(NamedTuple):
    """The outcome of a scoring request."""

    scores: tuple[float, ...] | None  # one for each dimension; None if they are missing
    reason: str | None = None  # why they are missing: a slug of `REASONS`
    detail: str = ""  # the message of the failure
    notes: Mapping[str, float] = {}  # figures for the run report, such as tokens used
    # the answer that the scores were read from, or the last one if none could be read
    text: str = ""

    def for_equal_request(self) -> ScoringOutcome:
        """Return that of an equal request, which was not sent."""
        return self._replace(notes={"same_as_another": 1})


def open_judge(server: ServerOptions, cache: Path | None, *, keeps_failures: bool = False) -> Judge:
    """Return the judge at that server, with that cache; the same one until it is released.

    Raises:
        EngineError: it cannot be opened.
    """
    with _opening:
        if (server, cache) not in _open:
            _open[server, cache] = Judge(server, cache, keeps_failures=keeps_failures)
        return _open[server, cache]


def is_open(server: ServerOptions, cache: Path | None) -> bool:
    """Return whether that judge is open."""
    return (server, cache) in _open


def release(server: ServerOptions, cache: Path | None) -> None:
    """Close that judge, if it is open."""
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

    `cache` has its answers and, if it `keeps_failures`, what came instead of a score.
    """

    def __init__(
        self, server: ServerOptions, cache: Path | None, *, keeps_failures: bool = False
    ) -> None:
        self._options, self._keeps_failures = server, keeps_failures
        self._client = OpenAIClient(server)
        self._cache = None if cache is None else open_cache(cache)
        self._in_flight: InFlight[ScoringOutcome] = InFlight()
        self._thread = LoopThread(f"scorer at {server.addresses[0]}")
        self._thread.run(self._client.__aenter__())

    def outcomes(
        self,
        requests: Iterable[tuple[ScoringBatch, ScoringRequest]],
        probe: ScoringRequest,
        *,
        fail: bool,
    ) -> Iterator[tuple[int, ScoringOutcome]]:
        """Yield the outcome of each request with its index, as they finish; each index once.

        Args:
            requests: taken in the thread that iterates, as slots of `concurrency` become free.
                Equal requests that wait at the same time are sent once.
            probe: a short request of the same kind.
            fail: whether a server that is down is an error; otherwise the outcomes of the batch's
                requests that it has not answered are `scorer_unreachable`.

        Raises:
            EngineError: the server gives no further outcomes.
        """
        open_work = partial(self._open_work, probe, fail)
        size, numbered = self._options.concurrency, enumerate(requests)
        try:
            yield from work_on_demand(self._thread, numbered, open_work, size, capacity_for(size))
        except asyncio.CancelledError:
            raise EngineError("the scorer was closed while it scored") from None

    def close(self) -> None:
        """Cancel requests in flight and close connections and cache."""
        self._thread.run(self._end())
        self._thread.close()
        if self._cache is not None:
            self._cache.close()

    async def _end(self) -> None:
        await self._in_flight.close()
        await self._client.__aexit__()

    @asynccontextmanager
    async def _open_work(
        self, probe: ScoringRequest, fail: bool, put: _PutOutcome
    ) -> AsyncIterator[_Score]:
        async def score(numbered: tuple[int, tuple[ScoringBatch, ScoringRequest]]) -> None:
            index, (batch, request) = numbered
            if not batch.down:
                try:
                    put((index, await self._shared(request, probe)))
                    return
                except ServerDownError as error:
                    if fail:
                        raise
                    batch.down = str(error)
            put((index, ScoringOutcome(None, "scorer_unreachable", batch.down)))

        yield score

    async def _shared(self, request: ScoringRequest, probe: ScoringRequest) -> ScoringOutcome:
        """The outcome; requests are shared by callers, and cancelled once none of them waits."""
        work = partial(self._cached_or_sent, request, probe)
        outcome, first = await self._in_flight.result(request.key, work)
        return outcome if first else outcome.for_equal_request()

    async def _cached_or_sent(
        self, request: ScoringRequest, probe: ScoringRequest
    ) -> ScoringOutcome:
        # Looked up here, where no one else can send the same request before its answer is stored.
        stored = self._cache and self._cache.get(request.key)
        if stored:
            try:
                answer = ScorerAnswer.load(stored)
                scores = request.read(answer)
                return ScoringOutcome(scores, notes={"from_cache": 1}, text=answer.text)
            except MalformedError:
                pass  # Another version could read it; it is asked for again.
        outcome = await self._send(request, probe)
        if outcome.reason is not None and self._keeps_failures and self._cache is not None:
            text = outcome.text if outcome.reason == _MALFORMED else outcome.detail
            await asyncio.to_thread(self._cache.put_failure, request.key, outcome.reason, text)
        return outcome

    async def _send(self, request: ScoringRequest, probe: ScoringRequest) -> ScoringOutcome:
        cost: Counter[str] = Counter(asked=1)
        detail = text = ""
        probed = self._post(probe.body, probe.api)
        for body in request.bodies():
            failed_attempts: Counter[str] = Counter()
            posted = self._post(body, request.api)
            try:
                found = await self._client.answer(posted, probed, failed_attempts)
            except AttemptError as error:
                reason = _REASONS.get(error.reason, "scorer_error")
                return ScoringOutcome(None, reason, f"{error.reason}: {error.line}", cost)
            finally:
                cost.update({f"fault_{reason}": n for reason, n in failed_attempts.items()})
            cost["prompt_tokens"] += found.prompt_tokens
            cost["completion_tokens"] += found.completion_tokens
            try:
                scores = request.read(found)
            except MalformedError as error:
                detail, text = str(error), found.text
                cost["fault_malformed"] += 1
                continue
            if self._cache:
                await asyncio.to_thread(self._cache.put, request.key, found.dump())
            return ScoringOutcome(scores, notes=cost, text=found.text)
        return ScoringOutcome(None, _MALFORMED, detail, cost, text)

    def _post(self, body: Mapping[str, Any], api: ScoringApi | None) -> Request[ScorerAnswer]:
        if api is not None:
            sent = {name: value for name, value in body.items() if name not in api.unsent}
            return Request(api.url, sent, api.read, hint=api.hint)
        dialect = dialect_of(self._options)
        sent = dialect.sent(body)
        return Request(
            partial(endpoint, api="chat"),
            sent,
            partial(read_answer, dialect=dialect),
            advise=partial(advice, sent=sent, dialect=dialect),
        )
