"""Asks a scorer, each distinct thing once, whoever wants to know it.

    calls of threads ──> questions ──> under way already? ──> kept? ──> a place among `concurrency`
                                                                        ──> the server ──> kept

There is one judge for each server and cache in a process, with one event loop, one pool of
connections and one bound on requests under way, however many threads call it.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import EngineError
from ..openai.client import OpenAIClient, Request, ServerDownError, share_out
from ..openai.loop_thread import LoopThread
from ..openai.options import ServerOptions
from ..openai.wire import Fault, endpoint
from .answer import Answer, read_answer
from .cache import AnswerCache, key_of
from .verdict import MalformedError

_Put = Callable[[tuple[int, "Outcome"]], None]
_REASONS = {
    "request_refused": "scorer_refused",
    "content_refused": "scorer_refused",
    "timeout": "scorer_timeout",
    "rate_limited": "scorer_busy",
}
REASONS: Mapping[str, str] = {
    "scorer_malformed": "the scorer's verdict is not what it was asked for",
    "scorer_refused": "the server refuses the request, or the scorer to answer it",
    "scorer_timeout": "the scorer took too long at every attempt",
    "scorer_busy": "the server was too busy at every attempt",
    "scorer_error": "the server failed, broke the connection or answered with something else, at "
    "every attempt",
    "scorer_unreachable": "the server is down",
}
"""Why an outcome has no scores."""


class Question:
    """Something to ask a scorer, and how to read what it says.

    Args:
        body: of the request: model, messages and parameters.
        revision: which weights the name of the model stands for.
        read: the scores in an answer; raises MalformedError where they are not there.
        tries: how often to ask, each time with another seed, until the verdict can be read.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        revision: str,
        read: Callable[[Answer], tuple[float, ...]],
        tries: int,
    ) -> None:
        self.body, self.read, self.tries = body, read, tries
        self.key = key_of(body, revision)

    def bodies(self) -> Iterator[Mapping[str, Any]]:
        """The body of each try."""
        for number in range(self.tries):
            yield {**self.body, "seed": self.body["seed"] + number} if number else self.body


class Outcome(NamedTuple):
    """What became of a question.

    Attributes:
        scores: one for each dimension; None where they are missing.
        reason: why they are missing: a slug of `REASONS`.
        detail: what was said.
        notes: what it cost, for the report.
    """

    scores: tuple[float, ...] | None
    reason: str | None = None
    detail: str = ""
    notes: Mapping[str, float] = {}


def judge_of(server: ServerOptions, cache: Path | None) -> Judge:
    """The judge at that server, with that cache; the same one until it is released.

    Raises:
        EngineError: it cannot be had.
    """
    with _opening:
        if (server, cache) not in _open:
            _open[server, cache] = Judge(server, cache)
        return _open[server, cache]


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


class _Flight:
    """A question that is being asked.

    Attributes:
        task: gives the outcome.
        waiting: how many want to know it.
    """

    def __init__(self, task: asyncio.Task[Outcome]) -> None:
        self.task, self.waiting = task, 0


class Judge:
    """A scorer behind a server; see `judge_of`. For many threads.

    Args:
        server: which, and how patiently.
        cache: where its answers are kept; None keeps none.
    """

    def __init__(self, server: ServerOptions, cache: Path | None) -> None:
        self._options = server
        self._client = OpenAIClient(server, server.concurrency)
        self._cache = None if cache is None else AnswerCache(cache)
        self._slots = asyncio.Semaphore(server.concurrency)
        self._flights: dict[bytes, _Flight] = {}
        self._thread = LoopThread(f"scorer at {server.base_url}")
        self._thread.run(self._client.__aenter__())

    def outcomes(
        self, questions: Sequence[Question], probe: Mapping[str, Any], *, fail: bool
    ) -> Iterator[tuple[int, Outcome]]:
        """The outcome of each question with its index, as they come; each index once.

        Args:
            questions: what to ask. Of equal ones one is asked.
            probe: the body of a short request like theirs.
            fail: whether a server that is down is an error; else what it does not answer any more
                is `scorer_unreachable`.

        Raises:
            EngineError: nothing more will come of it.
        """
        try:
            yield from self._thread.stream(partial(self._all, questions, probe, fail))
        except asyncio.CancelledError:
            raise EngineError("the scorer was closed while it scored") from None

    def close(self) -> None:
        """End what is under way and let go of connections and cache."""
        self._thread.run(self._end())
        self._thread.close()
        if self._cache is not None:
            self._cache.close()

    async def _end(self) -> None:
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.__aexit__()

    async def _all(
        self, questions: Sequence[Question], probe: Mapping[str, Any], fail: bool, put: _Put
    ) -> None:
        equal: dict[bytes, list[int]] = {}
        for index, question in enumerate(questions):
            equal.setdefault(question.key, []).append(index)
        down = ""

        async def work(indices: list[int]) -> None:
            nonlocal down
            outcome = _unreachable(down)
            if not down:
                try:
                    outcome = await self._shared(questions[indices[0]], probe)
                except ServerDownError as error:
                    if fail:
                        raise
                    down = str(error)
                    outcome = _unreachable(down)
            put((indices[0], outcome))
            for index in indices[1:]:
                put((index, outcome._replace(notes={"same_as_another": 1})))

        await share_out(work, equal.values(), min(self._options.concurrency, len(equal)))

    async def _shared(self, question: Question, probe: Mapping[str, Any]) -> Outcome:
        """The outcome, which others may wait for too; asked as long as somebody does."""
        flight = self._flights.get(question.key)
        first = flight is None
        if flight is None:
            flight = _Flight(asyncio.ensure_future(self._asked(question, probe)))
            self._flights[question.key] = flight
        flight.waiting += 1
        try:
            outcome = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                flight.task.cancel()  # Which does nothing where it is done.
                if self._flights.get(question.key) is flight:
                    del self._flights[question.key]
        return outcome if first else outcome._replace(notes={"same_as_another": 1})

    async def _asked(self, question: Question, probe: Mapping[str, Any]) -> Outcome:
        # Looked up here, where nobody else can begin to ask it before it is kept.
        kept = self._cache and self._cache.get(question.key)
        if kept:
            try:
                return Outcome(question.read(Answer.load(kept)), notes={"from_cache": 1})
            except MalformedError:
                pass  # An earlier version could read it.
        async with self._slots:
            return await self._ask(question, probe)

    async def _ask(self, question: Question, probe: Mapping[str, Any]) -> Outcome:
        cost: Counter[str] = Counter(asked=1)
        detail = ""
        for body in question.bodies():
            faults: Counter[str] = Counter()
            found = await self._client.answer(self._request(body), self._request(probe), faults)
            cost.update({f"fault_{reason}": count for reason, count in faults.items()})
            if isinstance(found, Fault):
                reason = _REASONS.get(found.reason, "scorer_error")
                return Outcome(None, reason, f"{found.reason}: {found.detail}", cost)
            cost["prompt_tokens"] += found.prompt_tokens
            cost["completion_tokens"] += found.completion_tokens
            try:
                scores = question.read(found)
            except MalformedError as error:
                detail = str(error)
                cost["fault_malformed"] += 1
                continue
            if self._cache:
                await asyncio.to_thread(self._cache.put, question.key, found.dump())
            return Outcome(scores, notes=cost)
        return Outcome(None, "scorer_malformed", detail, cost)

    def _request(self, body: Mapping[str, Any]) -> Request[Answer]:
        return Request(endpoint(self._client.base, "chat"), body, read_answer)


def _unreachable(said: str) -> Outcome:
    return Outcome(None, "scorer_unreachable", said)
