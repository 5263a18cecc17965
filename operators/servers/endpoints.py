"""Where and when a request is sent: the addresses of a server, and its limits per minute.

A request goes to the address with the fewest requests in flight, of those that do not rest. One
rests that asks for it, that cannot be reached, or of several that has failed `_FAILURES` times in a
row. One that could not be reached is down until a look, which a request begins that finds its rest
over, has reached it. Only where nothing else is up does that request wait for the look.
"""

from __future__ import annotations

import asyncio
import random
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
LONGEST_PAUSE_S = 30.0
_LONGEST_POLL_S = 5.0  # between looks while none can be reached
_FIRST_LOGGED_S, _LOG_INTERVAL_S = 2.0, 15.0  # A shorter wait is not worth a line.


class ServerDownError(EngineError):
    """The server cannot be reached, or answers no request; it may recover."""


def server_down(reasons: Mapping[str, str], waited_s: float) -> ServerDownError:
    waited = f" for {waited_s:g} s" if waited_s else ""
    if len(reasons) == 1:
        ((base, reason),) = reasons.items()
        found = f"{base} could not be reached{waited}: {reason}"
        return ServerDownError(found, "is the server up?")
    listed = ", ".join(f"{base} ({reason})" for base, reason in reasons.items())
    found = f"none of {len(reasons)} servers could be reached{waited}: {listed}"
    return ServerDownError(found, "are they up?")


class Endpoint:
    def __init__(self, base: str) -> None:
        self.base = base  # without a slash at the end
        self.in_flight = 0  # requests that it has not answered
        self.last_used = 0
        self.failures = 0  # in a row
        self.rests_until = -inf
        self.down_since: float | None = None  # None: it can be reached
        self.reason = ""  # why it cannot
        self.models: list[str] = []  # that it lists
        self.look: asyncio.Task[None] | None = None  # whether it can be reached


class Endpoints:
    """All addresses of a client, for one event loop.

    `why_down` looks at an address, and says why it cannot be used; empty: it can.
    """

    def __init__(
        self,
        options: ServerOptions,
        clock: Callable[[], float],
        why_down: Callable[[Endpoint], Awaitable[str]],
    ) -> None:
        self._options, self._clock, self._why_down = options, clock, why_down
        self.all = [Endpoint(address) for address in options.addresses]
        self.name = " and ".join(each.base for each in self.all)
        self.only_one = len(self.all) == 1
        self._changed = asyncio.Event()
        self._uses = count(1)
        self._logged = -inf

    def take(self, failed: Mapping[Endpoint, int]) -> Endpoint | None:
        """The address for the next request, which is in flight from now on; None: wait first.

        Preferred is one where this request has `failed` less often.
        """
        now = self._clock()
        ready = (e for e in self.all if e.down_since is None and e.rests_until <= now)
        order = lambda e: (failed.get(e, 0), e.in_flight, e.last_used)  # noqa: E731
        taken = min(ready, key=order, default=None)
        if taken is not None:
            taken.in_flight, taken.last_used = taken.in_flight + 1, next(self._uses)
        return taken

    async def usable(self, deadline: float) -> bool:
        """Wait until there is an address to take; False: there is none before the deadline.

        Raises:
            ServerDownError: all have been down for `patience_s`.
        """
        while True:
            down = [each for each in self.all if each.down_since is not None]
            due = [e for e in down if e.look is None and e.rests_until <= self._clock()]
            looks = [self._begin_look(each) for each in due]
            if looks and len(down) == len(self.all):
                # Unlike `gather`, it leaves the looks, for which others wait, if this is cancelled.
                done, _ = await asyncio.wait(looks)
                for each in done:
                    each.result()
            now, patience_s = self._clock(), self._options.patience_s
            up = [each.rests_until for each in self.all if each.down_since is None]
            if min(up, default=inf) <= now:
                return True
            if up and deadline <= now:
                return False
            since = max(each.down_since or 0.0 for each in self.all)
            if not up and since + patience_s <= now:
                raise server_down({each.base: each.reason for each in self.all}, patience_s)
            ends = deadline if up else since + patience_s
            change = min([ends, *(each.rests_until for each in self.all if each.look is None)])
            self._changed.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), change - now)

    def _begin_look(self, endpoint: Endpoint) -> asyncio.Task[None]:
        endpoint.look = asyncio.ensure_future(self._look_again(endpoint))
        return endpoint.look

    async def look(self, endpoint: Endpoint) -> None:
        if reason := await self._why_down(endpoint):
            self.not_reached(endpoint, reason)
        else:
            self.works(endpoint)

    async def _look_again(self, endpoint: Endpoint) -> None:
        try:
            await self.look(endpoint)
        except EngineError:
            self.works(endpoint)  # The next request reports what is wrong with it.
        finally:
            endpoint.look = None
            self._changed.set()

    def stop_looking(self) -> None:
        for each in self.all:
            if each.look is not None:
                each.look.cancel()

    def works(self, endpoint: Endpoint) -> None:
        if endpoint.down_since is not None or endpoint.failures >= _FAILURES:
            if endpoint.down_since is not None:
                endpoint.rests_until = -inf
            if not self.only_one:
                _log.info("%s is used again", endpoint.base)
            self._changed.set()
        endpoint.failures, endpoint.down_since = 0, None

    def failed(self, endpoint: Endpoint, error: AttemptError) -> None:
        if error.retry_class is RetryClass.REFUSED:
            self.works(endpoint)  # It is the request that it does not like.
        elif endpoint.rests_until <= self._clock():  # Not one under way when another failed.
            endpoint.failures += 1
            has_failed = endpoint.failures >= _FAILURES and not self.only_one
            overloaded = error.retry_class is RetryClass.OVERLOADED
            if has_failed or error.after or overloaded:
                # A wait beyond `give_up_s` is for that request, which fails, and not for all.
                give_up_s = self._options.give_up_s
                after = error.after if error.after <= give_up_s else 0.0
                pause_s = min(after + self._pause_s(endpoint, LONGEST_PAUSE_S), give_up_s)
                endpoint.rests_until = self._clock() + pause_s
            if has_failed and endpoint.failures == _FAILURES and not overloaded:
                self._warn(endpoint, "rests", error.detail)

    def not_reached(self, endpoint: Endpoint, reason: str) -> None:
        now, endpoint.reason = self._clock(), reason
        if endpoint.down_since is None:
            endpoint.down_since = now
            if not self.only_one:
                self._warn(endpoint, "is set aside", reason)
        all_down = all(each.down_since is not None for each in self.all)
        if endpoint.rests_until <= now:  # Else it is as for those that were under way together.
            endpoint.failures += 1
            longest_s = _LONGEST_POLL_S if all_down else LONGEST_PAUSE_S
            endpoint.rests_until = now + self._pause_s(endpoint, longest_s)
        self._changed.set()
        if all_down:
            self.report_wait(reason, now - endpoint.down_since, self._options.patience_s)

    def report_wait(self, reason: str, waited_s: float, longest_s: float) -> None:
        """Log now and then what all requests wait for, how long already, and how long at most."""
        now = self._clock()
        if waited_s >= _FIRST_LOGGED_S and now - self._logged >= _LOG_INTERVAL_S:
            self._logged = now
            waited = f"{waited_s:.0f} s of {longest_s:g} s"
            _log.warning("waiting for %s (%s): %s", self.name, reason, waited)

    def _warn(self, endpoint: Endpoint, what: str, why: str) -> None:
        now, total = self._clock(), len(self.all)
        left = sum(each.down_since is None and each.rests_until <= now for each in self.all)
        text = "%s %s (%s): %d of %d servers carry on"
        _log.warning(text, endpoint.base, what, why, left, total)

    def _pause_s(self, endpoint: Endpoint, longest_s: float) -> float:
        # Not seeded: it affects when a request is sent, never the answer.
        doubled_s = self._options.back_off_s * 2.0 ** min(endpoint.failures - 1, 30)
        return min(longest_s, doubled_s) * random.uniform(0.5, 1)


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
        if admission.tokens:
            with suppress(ValidationError):
                usage = _UsageBody.model_validate_json(body).usage or ReportedUsage()
                used = usage.prompt_tokens + usage.completion_tokens
                admission.tokens = used if used > 0 else admission.tokens


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
