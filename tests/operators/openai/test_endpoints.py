"""Several addresses of one server, in virtual time and without sockets: hours pass at once."""

import asyncio
import json
import logging
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import run_in_virtual_time

from rejuice.operators.errors import EngineError
from rejuice.operators.openai.client import OpenAIClient, Request
from rejuice.operators.openai.concurrently import run_concurrently
from rejuice.operators.openai.endpoints import ServerDownError
from rejuice.operators.openai.options import ServerOptions
from rejuice.operators.openai.wire import AttemptError, HttpResponse, RetryClass

A, B, C = "http://a/v1", "http://b/v1", "http://c/v1"


class Fault(NamedTuple):
    """What a server does from one time to another, in seconds from the beginning.

    `down`, `drops` (packets), `500`, `429`, `hangs` or `garbage`; a number: it takes so long.
    """

    begin: float
    end: float
    kind: str | float


class Simulated(OpenAIClient):
    """A client whose servers are simulated.

    Attributes:
        sent: of each request, when it was sent, where to and what for.
        answered: whole answers that were received, by prompt.
        probes: when each address was probed.
    """

    def __init__(self, options, faults, usage=None, answer_s=1.0):
        self.loop = asyncio.get_running_loop()
        super().__init__(options, 64, clock=self.loop.time)
        self.faults, self.usage, self.answer_s = faults, usage, answer_s
        self.begin = self.loop.time()
        self.sent, self.answered, self.probes = [], Counter(), []

    @property
    def now(self):
        return self.loop.time() - self.begin

    def fault(self, base):
        return next((f.kind for f in self.faults.get(base, ()) if f.begin <= self.now < f.end), "")

    async def _exchange_http(self, method, url, body, timeout_s, connect_s=30.0):
        base = url[: url.index("/v1") + 3]
        kind = self.fault(base)
        if method == "GET":
            self.probes.append((self.now, base))
        else:
            self.sent.append((self.now, base, body["seed"]))
        await asyncio.sleep(0.001)
        if kind == "down":
            raise aiohttp.ClientConnectorError(_KEY, ConnectionRefusedError(111, "refused"))
        if kind == "drops":
            await asyncio.sleep(min(connect_s, timeout_s))
            raise aiohttp.ConnectionTimeoutError if connect_s < timeout_s else asyncio.TimeoutError
        if method == "GET":
            return HttpResponse(200, b"{}")
        if kind in ("429", "500"):
            return HttpResponse(int(kind), kind.encode(), "20" if kind == "429" else "")
        if kind == "hangs":
            await asyncio.sleep(timeout_s)
            raise asyncio.TimeoutError
        if kind == "garbage":
            return HttpResponse(200, b"<html>")
        await asyncio.sleep(kind or self.answer_s)
        if self.fault(base) == "down":
            raise aiohttp.ServerDisconnectedError
        usage = {} if self.usage is None else {"usage": self.usage}
        return HttpResponse(200, json.dumps({"seed": body["seed"], **usage}).encode())

    async def get(self, seed, **body):
        def read(text):
            if text == b"<html>":
                raise AttemptError("bad_response", "a page", RetryClass.BAD_ANSWER)
            found = json.loads(text)["seed"]  # That of the prompt, or of the probe.
            self.answered[found] += 1
            return found

        request, probe = (
            Request("{}/completions".format, {"model": "m", "seed": each, **body}, read)
            for each in (seed, -1)
        )
        return await self.answer(request, probe, Counter())


_KEY = aiohttp.client_reqrep.ConnectionKey("host", 80, False, True, None, None, None)


def run(faults, count=60, *, addresses=(A, B, C), usage=None, answer_s=1.0, body=None, **fields):
    """The simulated client after all its requests, and their results."""
    found = {}

    async def all_of_them():
        options = ServerOptions(base_url=addresses, **{"concurrency": 6, **fields})
        async with Simulated(options, faults, usage, answer_s) as client:

            async def work(seed):
                assert seed not in found
                found[seed] = await client.get(seed, **(body or {}))

            await run_concurrently(work, range(count), options.concurrency)
            return client

    client = run_in_virtual_time(all_of_them())
    return client, found


def all_once(client, found, count=60):
    return (
        found
        == {k: k for k in range(count)}
        == {k: k for k, n in client.answered.items() if n == 1}
    )


def places(client, begin=0.0, end=float("inf")):
    return Counter(base for at, base, _ in client.sent if begin <= at < end)


def test_requests_go_where_the_fewest_are_in_flight():
    client, found = run({A: [Fault(0, 9999, 4.0)]})
    assert all_once(client, found)
    counts = places(client)
    assert counts.total() == 60
    assert counts[A] * 2.5 < counts[B] == pytest.approx(counts[C], abs=2)


def test_one_dies_one_answers_429_for_minutes_one_slows_down(caplog):
    faults = {A: [Fault(5, 9999, "down")], B: [Fault(8, 400, "429")], C: [Fault(20, 9999, 7.0)]}
    client, found = run(faults, 600)
    assert all_once(client, found, 600)
    # What is down is not sent to again, and one that asks to wait is asked once in a while.
    assert places(client, 5.1)[A] <= 6
    assert places(client, 30, 400)[B] <= 2 * 400 / 20
    assert places(client, 430)[B] > places(client, 430)[C] > 0
    assert [each.message for each in caplog.records if "aside" in each.message] == [
        f"{A} is set aside (connection refused): 2 of 3 servers carry on"
    ]


def test_an_address_that_comes_back_is_used_again():
    client, found = run({A: [Fault(0, 60, "down")], B: [Fault(0, 60, "500")]}, 300)
    assert all_once(client, found, 300)
    assert places(client, 0, 60)[A] <= 6
    assert places(client, 1, 60)[B] <= 24, "a server that fails is tried ever more rarely"
    after = places(client, 90)
    assert after[A] == pytest.approx(after[B], abs=4) == pytest.approx(after[C], abs=4)


def test_probes_have_growing_pauses():
    client, found = run({A: [Fault(0, 200, "down")]}, 600)
    assert all_once(client, found, 600)
    times = [at for at, base in client.probes if base == A and at < 200]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] < 1.1
    assert all(pause <= 5.1 for pause in pauses)
    assert all(pause >= 2.5 for pause in pauses[5:])


def test_an_answer_in_the_wrong_form_is_asked_for_elsewhere():
    client, found = run({A: [Fault(0, 9999, "garbage")]}, 100)
    assert all_once(client, found, 100)
    assert places(client)[A] < 30


def test_hanging_requests_are_sent_elsewhere():
    client, found = run({A: [Fault(0, 9999, "hangs")]}, 60, timeout_s=30)
    assert all_once(client, found)


def test_all_429_for_minutes_lose_nothing():
    faults = {each: [Fault(0, 600, "429")] for each in (A, B, C)}
    client, found = run(faults, 60)
    assert all_once(client, found)
    assert max(places(client, 0, 600).values()) < 4 * 600 / 20, "all of its requests wait"


def test_all_429_for_longer_than_give_up():
    faults = {each: [Fault(0, 9999, "429")] for each in (A, B)}
    with pytest.raises(ServerDownError) as error:
        run(faults, 9, addresses=(A, B), give_up_s=300)
    assert str(error.value) == f"{A} and {B} answer no prompt: rate_limited, 429: 429"


def test_a_long_wait_asked_of_one_server_holds_all_its_requests():
    client, found = run({A: [Fault(0, 50, "429")]}, 12, addresses=A)
    assert all_once(client, found, 12)
    first = sorted(at for at, _, _ in client.sent)
    assert len([at for at in first if at < 20]) == 6, "those in flight"


def test_all_down_end_the_run_with_one_line():
    faults = {A: [Fault(0, 9999, "down")], B: [Fault(30, 9999, "down")]}
    with pytest.raises(ServerDownError) as error:
        run(faults, 999, addresses=(A, B), patience_s=100)
    assert str(error.value).startswith(f"none of 2 servers could be used for 100 s: {A} (Cannot ")
    assert str(error.value).endswith("; are they up?")
    assert "\n" not in str(error.value)


def test_one_that_is_down_is_the_error_that_it_always_was():
    with pytest.raises(ServerDownError) as error:
        run({A: [Fault(0, 9999, "down")]}, 9, addresses=A, patience_s=100)
    assert str(error.value).startswith(f"{A} could not be reached for 100 s: Cannot connect to ")
    assert str(error.value).endswith("; is the server up?")


@pytest.mark.parametrize("addresses", [A, (A, B)])
def test_once_all_have_been_down_for_long_no_request_waits_for_them(addresses):
    async def main():
        options = ServerOptions(base_url=addresses, patience_s=100)
        down = {each: [Fault(0, 9999, "down")] for each in (A, B)}
        async with Simulated(options, down) as client:
            for longest_s in (101, 1, 1):
                begin = client.now
                with pytest.raises(ServerDownError):
                    await client.get(0)
                assert client.now - begin < longest_s

    run_in_virtual_time(main())


@pytest.mark.parametrize("addresses", [A, (A, B)])
def test_servers_that_drop_packets_are_down(addresses):
    """A connection that is never made takes as long as a slow answer, for a probe as well."""
    faults = {each: [Fault(0, 99_999, "drops")] for each in (A, B)}
    with pytest.raises(ServerDownError, match=r" could (not be reached|be used) for 100 s: "):
        run(faults, 9, addresses=addresses, patience_s=100, timeout_s=600)


def test_a_short_outage_of_all_is_waited_for():
    faults = {each: [Fault(5, 80, "down")] for each in (A, B, C)}
    client, found = run(faults, 200, patience_s=100)
    assert all_once(client, found, 200)


faults_of_one = st.lists(
    st.builds(
        lambda begin, length, kind: Fault(begin, begin + length, kind),
        st.floats(0, 200),
        st.floats(0, 300),
        st.sampled_from(["down", "500", "429", "hangs", "garbage", 5.0, 40.0]),
    ),
    max_size=4,
)


def test_patience_applies_to_each_outage_separately():
    outages = [Fault(begin, begin + 40, "down") for begin in (5, 60, 115)]
    client, found = run({A: outages}, addresses=A, concurrency=1, patience_s=60)
    assert all_once(client, found)
    assert client.now > 175  # All three were waited for, longer together than its patience.


@pytest.mark.slow
@settings(max_examples=150)
@given(faults_of_one, faults_of_one, st.integers(1, 12))
def test_any_faults_of_two_while_the_third_is_well(of_a, of_b, concurrency):
    client, found = run({A: of_a, B: of_b}, 80, concurrency=concurrency, timeout_s=60, attempts=30)
    assert all_once(client, found, 80)


@pytest.mark.slow
@settings(max_examples=100)
@given(faults_of_one, faults_of_one)
def test_any_faults_lose_nothing_and_answer_nothing_twice(of_a, of_b):
    try:
        client, found = run({A: of_a, B: of_b}, 40, addresses=(A, B), timeout_s=60, give_up_s=600)
    except EngineError:
        return  # Both were down, or answered nothing, for too long.
    failures = {k: each for k, each in found.items() if isinstance(each, AttemptError)}
    assert sorted(found) == list(range(40))
    assert client.answered.keys() - {-1} == found.keys() - failures.keys()
    assert all(n == 1 for k, n in client.answered.items() if k != -1)


def test_requests_per_minute():
    client, found = run({}, 300, requests_per_minute=60, concurrency=64, answer_s=0.1)
    assert all_once(client, found, 300)
    times = sorted(at for at, _, _ in client.sent)
    assert times[-1] == pytest.approx(240, abs=5), "60 at once, then one a second"


def test_less_than_one_request_a_minute():
    client, _ = run({}, 3, requests_per_minute=0.5)
    assert [round(at) for at, _, _ in client.sent] == [0, 120, 240]


def test_tokens_per_minute_are_those_that_were_used():
    body = {"prompt": [1] * 100, "n": 4, "max_tokens": 1000}
    usage = {"prompt_tokens": 100, "completion_tokens": 400}
    client, found = run(
        {}, 300, usage=usage, body=body, tokens_per_minute=60_000, concurrency=64, answer_s=2.0
    )
    assert all_once(client, found, 300)
    # 150,000 tokens at 60,000 a minute, of which the first 60,000 at once.
    assert 80 < max(at for at, _, _ in client.sent) < 150


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        (None, "no usage"),
        ({"prompt_tokens": -5, "completion_tokens": 10}, "-5 and 10 tokens used where about 23 at most were expected"),
        ({"prompt_tokens": 3, "completion_tokens": 10**9}, "3 and 1000000000 tokens used where about 23 at most were expected"),
        ({"prompt_tokens": 0, "completion_tokens": 0}, "0 and 0 tokens used where about 23 at most were expected"),
        ({"prompt_tokens": "many"}, "usage that is not in numbers"),
    ],
)  # fmt: skip
def test_a_server_that_lies_about_its_tokens(usage, found, caplog):
    body = {"prompt": [5, 6, 7], "n": 2, "max_tokens": 10}
    fields = {"usage": usage, "body": body, "tokens_per_minute": 60}
    client, results = run({}, 9, addresses=A, **fields)
    assert all_once(client, results, 9)
    lines = [each.message for each in caplog.records if "tokens_per_minute" in each.message]
    counted = "tokens_per_minute counts its requests by their longest response"
    assert lines == [f"{A} reports {found}: {counted}"]
    assert max(at for at, _, _ in client.sent) == pytest.approx((9 * 23 - 60), abs=25)
    assert logging.WARNING in {each.levelno for each in caplog.records}
