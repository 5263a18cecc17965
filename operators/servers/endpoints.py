"""Where and when a request is sent: the addresses of a server, and its limits per minute.

    usable ──(cannot be reached, or failed 3 times in a row)──> set aside ──(a probe)──> usable
       └──(429)── on hold: all its requests wait, the other addresses carry on

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
from math import inf
from types import MappingProxyType
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
"""Between probes of an address that cannot be reached."""


class ServerDownError(EngineError):
    """The server cannot be reached, or answers no request; it may recover."""


class HeldTooLongError(Exception):
    """The time is over that a request could wait for an address that is on hold."""


class Endpoint:
    """One address, and how it fares."""

    def __init__(self, base: str) -> None:
        self.base = base  # without a slash at the end
        self.in_flight = 0  # requests that it has not answered
        self.failures = 0  # in a row
        self.aside_since: float | None = None  # when it was set aside; None: it is not
        self.unreachable, self.reason = False, ""  # why it was set aside
        self.hold_until = self.hold_began = -inf  # no request is sent before the first
        self.holds, self.pauses, self.last_used = 0, 0, 0


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
        self.waits = WaitLog(self.name, clock=clock)
        self._changed = asyncio.Event()
        self._uses = 0
        self._recovering: dict[Endpoint, asyncio.Task[None]] = {}

    @property
    def only_one(self) -> bool:
        """Whether there is no other address to try."""
        return len(self.all) == 1

    def take(
        self, failed: Mapping[Endpoint, int] = MappingProxyType({}), *, tried: bool
    ) -> Endpoint | None:
        """The address for the next request, which is in flight until `release`; None: wait first.

        Args:
            failed: how often this request has failed where; elsewhere is preferred.
            tried: whether it was sent before. One that was not is sent in any case: the server may
                have come back unnoticed.

        Raises:
            ServerDownError: all have been set aside for `patience_s`.
        """
        ready = self._ready(tried=tried)
        if not ready:
            return None
        taken = min(ready, key=lambda e: (failed.get(e, 0), e.in_flight, e.last_used))
        self._uses += 1
        taken.in_flight, taken.last_used = taken.in_flight + 1, self._uses
        return taken

    async def usable(self, *, tried: bool, left_s: Callable[[], float] = lambda: inf) -> None:
        """Wait until there is an address to take.

        Raises:
            ServerDownError: see `take`.
            HeldTooLongError: there is none in time.
        """
        while not self._ready(tried=tried):
            change_s = self._next_change_s(self._clock())
            if any(each.aside_since is None for each in self.all):  # Otherwise patience counts.
                if left_s() <= 0:
                    raise HeldTooLongError
                change_s = min(change_s, left_s())
            self._changed.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), change_s)

    def _ready(self, *, tried: bool) -> list[Endpoint]:
        """Return the addresses that a request may be sent to now."""
        if self._out_of_patience():
            if tried:
                raise self._down()
            return [min(self.all, key=lambda each: each.last_used)]
        now = self._clock()
        return [e for e in self.all if e.aside_since is None and e.hold_until <= now]

    def release(self, endpoint: Endpoint) -> None:
        """Note that a request is no longer in flight."""
        endpoint.in_flight -= 1

    def answered(self, endpoint: Endpoint) -> None:
        """Note a usable answer."""
        if endpoint.pauses > 1 or (endpoint.pauses and not self.only_one):
            _log.info("%s answers again", endpoint.base)
        endpoint.failures = endpoint.holds = endpoint.pauses = 0
        self.reached(endpoint)

    def responded(self, endpoint: Endpoint) -> None:
        """Note a response, usable or not: the address can be reached."""
        if endpoint.unreachable:
            self.reached(endpoint)

    def reached(self, endpoint: Endpoint) -> None:
        """Use an address again."""
        if endpoint.aside_since is not None:
            endpoint.unreachable = False
            endpoint.aside_since = None
            self._changed.set()

    def failed(self, endpoint: Endpoint, error: AttemptError, sent: float) -> None:
        """Note an attempt without a usable answer."""
        if error.retry_class is RetryClass.REFUSED:
            endpoint.failures = 0  # It works: it is the request that it does not like.
            return
        if error.after or error.retry_class is RetryClass.OVERLOADED:
            self._hold(endpoint, error, sent)
        if error.retry_class is not RetryClass.OVERLOADED:
            endpoint.failures += 1
            if endpoint.failures >= _FAILURES and not self.only_one:
                self._set_aside(endpoint, error.detail, LONGEST_PAUSE_S)

    def unreachable(self, endpoint: Endpoint, why: str, message: str) -> None:
        """Note that an address cannot be reached."""
        endpoint.unreachable = True
        since = self._set_aside(endpoint, message, LONGEST_POLL_INTERVAL_S, why)
        if all(each.aside_since is not None for each in self.all):
            waited_s = self._clock() - since
            self.waits.report(why, waited_s, self._options.patience_s)

    async def close(self) -> None:
        """Stop probing."""
        tasks = list(self._recovering.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _hold(self, endpoint: Endpoint, error: AttemptError, sent: float) -> None:
        """Let all requests to an address wait, for which one answer is enough."""
        if sent < endpoint.hold_began:
            return  # It was under way when another one was asked to wait.
        now = self._clock()
        if error.retry_class is RetryClass.OVERLOADED:
            endpoint.holds += 1
        # A wait beyond `give_up_s` is for that request, which fails, and not for all.
        give_up_s = self._options.give_up_s
        after = error.after if error.after <= give_up_s else 0.0
        pause_s = after + self._pause_s(max(0, endpoint.holds - 1), LONGEST_PAUSE_S)
        pause_s = min(pause_s, give_up_s)  # Whoever comes later would otherwise never be sent.
        endpoint.hold_began, endpoint.hold_until = now, max(endpoint.hold_until, now + pause_s)

    def _set_aside(self, endpoint: Endpoint, reason: str, longest_s: float, why: str = "") -> float:
        """Send an address nothing until a probe reaches it; the time when that began."""
        endpoint.reason = reason
        if endpoint.aside_since is None:
            endpoint.aside_since = self._clock()
            endpoint.pauses += 1
            if endpoint.pauses == 1 and not self.only_one:
                left = sum(each.aside_since is None for each in self.all)
                text = "%s is set aside (%s): %d of %d servers carry on"
                _log.warning(text, endpoint.base, why or reason, left, len(self.all))
        task = self._recovering.get(endpoint)
        if task is None or task.done():
            task = asyncio.ensure_future(self._recover(endpoint, longest_s))
            self._recovering[endpoint] = task
        self._changed.set()
        return endpoint.aside_since

    async def _recover(self, endpoint: Endpoint, longest_s: float) -> None:
        """Probe an address, with growing pauses, until it can be reached."""
        polls = 0 if longest_s == LONGEST_POLL_INTERVAL_S else endpoint.pauses - 1
        while endpoint.aside_since is not None:
            await asyncio.sleep(self._pause_s(polls, longest_s))
            polls += 1
            # Not if an answer came meanwhile, which shows more than the probe.
            if await self._probe(endpoint) and endpoint.aside_since is not None:
                endpoint.failures = _FAILURES - 1  # One more failure sets it aside again.
                self.reached(endpoint)

    def _pause_s(self, number: int, longest_s: float) -> float:
        # Not seeded: it affects when a request is sent, never the answer.
        longest = min(longest_s, self._options.back_off_s * 2.0 ** min(number, 30))
        return longest * random.uniform(0.5, 1)

    def _out_of_patience(self) -> bool:
        times = [each.aside_since for each in self.all if each.aside_since is not None]
        if len(times) < len(self.all):
            return False
        return self._clock() - max(times) >= self._options.patience_s

    def _down(self) -> ServerDownError:
        patience_s = self._options.patience_s
        waited = f" for {patience_s:g} s" if patience_s else ""
        if self.only_one:
            found = f"{self.name} could not be reached{waited}: {self.all[0].reason}"
            return ServerDownError(found, "is the server up?")
        reasons = ", ".join(f"{each.base} ({each.reason})" for each in self.all)
        found = f"none of {len(self.all)} servers could be used{waited}: {reasons}"
        return ServerDownError(found, "are they up?")

    def _next_change_s(self, now: float) -> float:
        """Return how long until a hold or the patience ends."""
        times = [each.hold_until for each in self.all if each.aside_since is None]
        if not times:
            asides = [each.aside_since for each in self.all if each.aside_since is not None]
            times = [max(asides) + self._options.patience_s]
        return max(0.0, min(times) - now)


# --- A line in the log now and then while all requests wait ---------------------------

_FIRST_S = 2.0
"""A shorter wait is not worth a line."""
_INTERVAL_S = 15.0


class WaitLog:
    """Logs what is waited for, how long already, and how long at most.

    Example:
        >>> waits = WaitLog("http://localhost:8000/v1", log=print, clock=lambda: 100.0)
        >>> for waited_s in (0.5, 45.0, 45.5):
        ...     waits.report("connection refused", waited_s, 600)
        waiting for http://localhost:8000/v1 (connection refused): 45 s of 600 s
    """

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
        """Log that the server is waited for, unless that was logged a moment ago."""
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
_CHARACTERS_PER_TOKEN = 4
_ABSURD = 4
"""No request uses so many times what was estimated, even in a language with few letters a token."""


class _UsageBody(BaseModel):
    usage: ReportedUsage | None = None


@dataclass(eq=False)
class Admission:
    """A request that may be sent."""

    at: float = 0.0  # when it was admitted, in seconds of the event loop
    estimate: int = 0  # tokens that it uses at most
    tokens: int = 0  # those that count for it, for a minute


class Rates:
    """Lets requests through no faster than the options allow, in the order in which they ask.

    Requests pass evenly. Of tokens, no more than the limit are in any minute: those that requests
    may use at most, until it is known what they have used. A request that may use more than the
    limit passes alone.

    Args:
        options: the limits.
    """

    def __init__(self, options: ServerOptions) -> None:
        requests, tokens = options.requests_per_minute, options.tokens_per_minute
        self._interval_s = _MINUTE_S / requests if requests else 0.0
        self._next_at = -inf  # when a request may pass, unless it was given back since
        self._most_tokens, self._tokens = tokens or inf, 0
        self._admitted = deque[Admission]()  # in the last minute; their tokens together are above
        self._turn, self._given_back = asyncio.Lock(), asyncio.Event()
        self._warned = set[str]()

    async def admit(self, body: Mapping[str, Any]) -> Admission:
        """Wait until a request may be sent, which it should be at once."""
        if not self._interval_s and self._most_tokens == inf:
            return Admission()
        time, estimate = asyncio.get_running_loop().time, estimated_tokens(body)
        async with self._turn:
            while (wait_s := self._wait_s(time(), estimate)) > 0:
                self._given_back.clear()
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._given_back.wait(), wait_s)
            admission = Admission(time(), estimate, estimate)
            self._next_at = max(self._next_at, admission.at - _AT_ONCE_S) + self._interval_s
            self._admitted.append(admission)
            self._tokens += estimate
        return admission

    def _wait_s(self, now: float, tokens: int) -> float:
        """Return how long a request has to wait at most; 0: it need not."""
        while self._admitted and self._admitted[0].at <= now - _MINUTE_S:
            self._count(self._admitted[0], 0)
            self._admitted.popleft().at = -inf
        wait_s = max(0.0, self._next_at - now)
        if self._tokens and self._tokens + tokens > self._most_tokens:
            wait_s = max(wait_s, self._admitted[0].at + _MINUTE_S - now)
        return wait_s

    def give_back(self, admission: Admission, *, sent: bool) -> None:
        """Count no tokens for a request that was not worked on."""
        self._count(admission, 0)
        # Its place is free, unless it took long to find that out: then others have passed since.
        if not sent and admission.at > asyncio.get_running_loop().time() - _AT_ONCE_S:
            self._next_at -= self._interval_s
            self._given_back.set()

    def correct(self, admission: Admission, body: bytes, base: str) -> None:
        """Take the usage that an answer reports instead of the estimate, if it can be true."""
        estimate = admission.estimate
        if self._most_tokens == inf or not estimate:  # A search has none.
            return
        try:
            usage = _UsageBody.model_validate_json(body).usage
        except ValidationError:
            self._warn(base, "usage that is not in numbers")
            return
        if usage is None:
            self._warn(base, "no usage")
            return
        used = usage.prompt_tokens + usage.completion_tokens
        least = min(usage.prompt_tokens, usage.completion_tokens)
        if least < 0 or not 0 < used <= _ABSURD * estimate:
            found = f"{usage.prompt_tokens} and {usage.completion_tokens} tokens used"
            self._warn(base, f"{found} where about {estimate} at most were expected")
            return
        self._count(admission, used)

    def _count(self, admission: Admission, tokens: int) -> None:
        """Count other tokens for a request, if its minute is not over."""
        if admission.at > -inf:
            self._tokens += tokens - admission.tokens
            admission.tokens = tokens
            self._given_back.set()

    def _warn(self, base: str, found: str) -> None:
        if base not in self._warned:
            self._warned.add(base)
            text = "%s reports %s: tokens_per_minute counts its requests by their longest response"
            _log.warning(text, base, found)


def estimated_tokens(body: Mapping[str, Any]) -> int:
    """Tokens that a request uses at most: those of its prompt, and of all responses.

    Where the prompt is text, four characters count as a token.

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
