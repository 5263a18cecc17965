"""Where and when a request is sent: the addresses of a server, and its limits per minute.

    usable ──(cannot be reached, or failed 3 times in a row)──> set aside ──(a probe)──> usable
       └──(429, or asked to wait)── rests: all its requests wait, the other addresses carry on

A request goes to the usable address with the fewest requests in flight.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any

from pydantic import BaseModel, ValidationError

from ..errors import EngineError
from ..logs import logger
from .options import ServerOptions
from .wire import AttemptError, ReportedUsage, RetryClass

_log = logger(__name__)
_FAILURES = 3
"""So many in a row, and an address is set aside, unless it is the only one."""
LONGEST_PAUSE_S = 30.0
LONGEST_POLL_INTERVAL_S = 5.0
"""Between probes of the only address."""


class ServerDownError(EngineError):
    """The server cannot be reached, or answers no request; it may recover."""


def server_down(reasons: Mapping[str, str], waited_s: float) -> ServerDownError:
    """The error about addresses, each with the reason why it cannot be used."""
    waited = f" for {waited_s:g} s" if waited_s else ""
    if len(reasons) == 1:
        ((base, reason),) = reasons.items()
        return ServerDownError(
            f"{base} could not be reached{waited}: {reason}", "is the server up?"
        )
    listed = ", ".join(f"{base} ({reason})" for base, reason in reasons.items())
    found = f"none of {len(reasons)} servers could be reached{waited}: {listed}"
    return ServerDownError(found, "are they up?")


class Endpoint:
    """One address, and how it fares."""

    def __init__(self, base: str) -> None:
        self.base = base  # without a slash at the end
        self.in_flight = 0  # requests that it has not answered
        self.last_used = 0
        self.failures = 0  # in a row
        self.rests_until = -inf
        self.aside_since: float | None = None  # None: it is not set aside
        self.reason = ""  # why it was
        self.recovery: asyncio.Task[None] | None = None  # probes it while it is


class Endpoints:
    """All addresses of a client, for one event loop; `probe` says whether one can be reached."""

    def __init__(
        self,
        options: ServerOptions,
        clock: Callable[[], float],
        probe: Callable[[Endpoint], Awaitable[bool]],
    ) -> None:
        self._options, self._clock, self._probe = options, clock, probe
        self.all = [Endpoint(address) for address in options.addresses]
        self.name = " and ".join(each.base for each in self.all)
        self.only_one = len(self.all) == 1
        self.waits = WaitLog(self.name, clock=clock)
        self._changed = asyncio.Event()
        self._uses = count(1)

    def take(self, failed: Mapping[Endpoint, int]) -> Endpoint | None:
        """The address for the next request, which is in flight from now on; None: wait first.

        Args:
            failed: how often this request has failed where; elsewhere is preferred.
        """
        now = self._clock()
        ready = (e for e in self.all if e.aside_since is None and e.rests_until <= now)
        order = lambda e: (failed.get(e, 0), e.in_flight, e.last_used)  # noqa: E731
        taken = min(ready, key=order, default=None)
        if taken is not None:
            taken.in_flight, taken.last_used = taken.in_flight + 1, next(self._uses)
        return taken

    async def usable(self, deadline: float) -> bool:
        """Wait until there is an address to take; False: there is none before the deadline.

        Raises:
            ServerDownError: all have been set aside for `patience_s`.
        """
        while True:
            now, patience_s = self._clock(), self._options.patience_s
            asides = [each.aside_since for each in self.all if each.aside_since is not None]
            if len(asides) == len(self.all):
                change_s = max(asides) + patience_s - now
                if change_s <= 0:
                    raise server_down({each.base: each.reason for each in self.all}, patience_s)
            else:
                ready = min(each.rests_until for each in self.all if each.aside_since is None)
                if ready <= now:
                    return True
                change_s = min(ready, deadline) - now
                if change_s <= 0:
                    return False
            self._changed.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), change_s)

    def answered(self, endpoint: Endpoint) -> None:
        """Note an answer that shows that it works."""
        endpoint.failures = 0
        self._use_again(endpoint)

    def failed(self, endpoint: Endpoint, error: AttemptError) -> None:
        """Note an attempt without a usable answer."""
        if error.retry_class is RetryClass.REFUSED:
            self.answered(endpoint)  # It works: it is the request that it does not like.
            return
        if endpoint.aside_since is not None or endpoint.rests_until > self._clock():
            return  # It was under way when another one failed.
        endpoint.failures += 1
        overloaded = error.retry_class is RetryClass.OVERLOADED
        if overloaded or error.after:
            # A wait beyond `give_up_s` is for that request, which fails, and not for all.
            give_up_s = self._options.give_up_s
            after = error.after if error.after <= give_up_s else 0.0
            pause_s = after + self._pause_s(endpoint.failures - 1, LONGEST_PAUSE_S)
            endpoint.rests_until = self._clock() + min(pause_s, give_up_s)
        if not (overloaded or self.only_one) and endpoint.failures >= _FAILURES:
            self.set_aside(endpoint, error.detail)

    def set_aside(self, endpoint: Endpoint, reason: str) -> None:
        """Send an address nothing until a probe reaches it, as where it cannot be reached."""
        endpoint.reason = reason
        if endpoint.aside_since is None:
            endpoint.aside_since = self._clock()
            endpoint.recovery = asyncio.ensure_future(self._recover(endpoint))
            self._changed.set()
            if not self.only_one:
                left = sum(each.aside_since is None for each in self.all)
                text = "%s is set aside (%s): %d of %d servers carry on"
                _log.warning(text, endpoint.base, reason, left, len(self.all))
        if all(each.aside_since is not None for each in self.all):
            waited_s = self._clock() - endpoint.aside_since
            self.waits.report(reason, waited_s, self._options.patience_s)

    async def close(self) -> None:
        tasks = [each.recovery for each in self.all if each.recovery is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _recover(self, endpoint: Endpoint) -> None:
        longest_s = LONGEST_POLL_INTERVAL_S if self.only_one else LONGEST_PAUSE_S
        for number in count(max(0, endpoint.failures - _FAILURES)):
            await asyncio.sleep(self._pause_s(number, longest_s))
            if await self._probe(endpoint):
                break
        self._use_again(endpoint)  # One more failure sets it aside for longer.

    def _use_again(self, endpoint: Endpoint) -> None:
        if endpoint.aside_since is None:
            return
        endpoint.aside_since = None
        if endpoint.recovery is not asyncio.current_task() and endpoint.recovery is not None:
            endpoint.recovery.cancel()
        if not self.only_one:
            _log.info("%s is used again", endpoint.base)
        self._changed.set()

    def _pause_s(self, number: int, longest_s: float) -> float:
        # Not seeded: it affects when a request is sent, never the answer.
        longest = min(longest_s, self._options.back_off_s * 2.0 ** min(number, 30))
        return longest * random.uniform(0.5, 1)


# --- A line in the log now and then while all requests wait ---------------------------

_FIRST_S = 2.0
"""A shorter wait is not worth a line."""
_INTERVAL_S = 15.0


class WaitLog:
    """Logs what is waited for, how long already, and how long at most."""

    def __init__(
        self,
        address: str,
        *,
        log: Callable[[str], object] = _log.warning,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._log, self._clock = address, log, clock
        self._logged = -inf

    def report(self, reason: str, waited_s: float, longest_s: float) -> None:
        now = self._clock()
        if waited_s < _FIRST_S or now - self._logged < _INTERVAL_S:
            return
        self._logged = now
        self._log(f"waiting for {self._address} ({reason}): {waited_s:.0f} s of {longest_s:g} s")


# --- Limits of requests and tokens per minute, over all addresses of a client ---------

_AT_ONCE_S = 1.0
"""So many seconds' worth of requests may pass at once, so that a late timer costs no request."""
_MINUTE_S = 60 + _AT_ONCE_S
"""What the limits apply to. The second more is what passes at once; and requests do not all take
equally long to arrive, so that the server's minute is not quite ours."""
_LOOK_S = 0.1
_CHARACTERS_PER_TOKEN = 4


class _UsageBody(BaseModel):
    usage: ReportedUsage | None = None


@dataclass(eq=False)
class Admission:
    """A request that may be sent."""

    at: float  # when it was admitted, in seconds of the event loop
    tokens: int  # that count for it, for a minute


class Rates:
    """Lets requests through no faster than the options allow, in the order in which they ask.

    Requests pass evenly. Of tokens, no more than the limit are in any minute: those that requests
    may use at most, until it is known what they have used. A request that may use more than the
    limit passes alone.
    """

    def __init__(self, options: ServerOptions) -> None:
        requests = options.requests_per_minute
        self._interval_s = _MINUTE_S / requests if requests else 0.0
        self._next_at = -inf  # when a request may pass
        self._most_tokens = options.tokens_per_minute or inf
        self._admitted = deque[Admission]()  # in the last minute
        self._turn = asyncio.Lock()

    async def admit(self, body: Mapping[str, Any]) -> Admission:
        """Wait until a request may be sent, which it should be at once."""
        now, tokens = asyncio.get_running_loop().time, 0
        if self._most_tokens < inf:
            tokens = estimated_tokens(body)
        async with self._turn:
            while (wait_s := self._wait_s(now(), tokens)) > 0:
                # What others have used may be known before that.
                await asyncio.sleep(min(wait_s, _LOOK_S))
            admission = Admission(now(), tokens)
            self._next_at = max(self._next_at, admission.at - _AT_ONCE_S) + self._interval_s
            if tokens:
                self._admitted.append(admission)
        return admission

    def _wait_s(self, now: float, tokens: int) -> float:
        while self._admitted and self._admitted[0].at <= now - _MINUTE_S:
            self._admitted.popleft()
        wait_s = max(0.0, self._next_at - now)
        used = sum(each.tokens for each in self._admitted) if tokens else 0
        if used and used + tokens > self._most_tokens:
            wait_s = max(wait_s, self._admitted[0].at + _MINUTE_S - now)
        return wait_s

    def correct(self, admission: Admission, body: bytes) -> None:
        """Take the usage that an answer reports instead of the estimate, if it reports any."""
        if admission.tokens:
            with suppress(ValidationError):
                usage = _UsageBody.model_validate_json(body).usage or ReportedUsage()
                used = usage.prompt_tokens + usage.completion_tokens
                # More than it can have used is a total of several answers, and no usage.
                is_usage = 0 < used <= _MOST_USED * admission.tokens
                admission.tokens = used if is_usage else admission.tokens


_MOST_USED = 4  # times the estimate


def estimated_tokens(body: Mapping[str, Any]) -> int:
    """Tokens that a request uses at most, with all responses; four characters of a text are one.

    >>> estimated_tokens({"prompt": [5, 6, 7], "n": 2, "max_tokens": 10})
    23
    """
    sampling = body.get("sampling_params", body)
    longest = sampling.get("max_tokens") or sampling.get("max_completion_tokens") or 0
    names = ("token_ids", "prompt", "input_ids", "input")
    given = next((body[name] for name in names if body.get(name)), None)
    if isinstance(given, list) and isinstance(given[0], int):
        prompt = len(given)
    else:
        texts: Iterable[Any] = [given]
        if given is None:
            texts = (message.get("content") or "" for message in body.get("messages") or ())
        prompt = -(-sum(len(str(text)) for text in texts) // _CHARACTERS_PER_TOKEN)
    return prompt + int(sampling.get("n", 1)) * int(longest)
