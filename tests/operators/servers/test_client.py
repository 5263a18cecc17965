"""What the shared client tells its caller under each fault of HTTP, with real requests in virtual time.

Here alone: who asks by the client has tests of what becomes of the two ends, an answer or an error.
"""

import asyncio
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate
from types import SimpleNamespace
from typing import NamedTuple

import aiohttp
import pytest
from fake_server import FakeServer, Trouble
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_server import VirtualServer
from virtual_time import run_in_virtual_time

from rejuice.operators.errors import EngineError
from rejuice.operators.servers import client, wire
from rejuice.operators.servers.client import OpenAIClient, Request
from rejuice.operators.servers.concurrency import run_concurrently
from rejuice.operators.servers.endpoints import ServerDownError
from rejuice.operators.servers.options import DialectServer, ServerOptions
from rejuice.operators.servers.wire import AttemptError, ChatCompletion, parse_body

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

URL = "http://server/v1"
PROBE = -1
OPTIONS = {"base_url": URL, "attempts": 6, "timeout_s": 4, "give_up_s": 60, "back_off_s": 0.5}
POST, GET = "POST, with a probe", "GET, without one"


class Fault(NamedTuple):
    """What a caller learns of a fault.

    Attributes:
        reason, detail: of the error; how the detail begins.
        cost: attempts that it takes of 6.
        sent_at: seconds to each request, where it lasts and pauses are as long as they may be.
    """

    reason: str
    detail: str
    cost: int
    sent_at: list[float]


DOUBLING = [0, 0.5, 1.5, 3.5, 7.5, 15.5]
FAULTS = {
    Trouble.RATE_LIMIT: Fault("rate_limited", "429: 429", 0, [*DOUBLING, 31.5]),
    Trouble.RATE_LIMIT_AFTER: Fault(  # Which asks to wait for 7 s.
        "rate_limited", "429: 429 with Retry-After", 0, [0, 7.5, 15.5, 24.5, 35.5, 50.5]
    ),
    Trouble.ERROR_500: Fault("server_error", "500: 500", 1, DOUBLING),
    Trouble.ERROR_503: Fault("server_error", "503: 503", 1, DOUBLING),
    Trouble.RESET: Fault("connection_lost", "Server disconnected", 1, DOUBLING),
    Trouble.RESET_MID_BODY: Fault(
        "connection_lost", "Response payload is not completed: ", 1, DOUBLING
    ),
    Trouble.SLOW: Fault("timeout", "no answer in 4 s", 1, [0, 4.5, 9.5, 15.5, 23.5, 35.5]),
    Trouble.WRONG_JSON: Fault(
        "bad_response", 'choices: Input should be a valid array: b\'{"cho', 2, DOUBLING[:3]
    ),
    Trouble.CUT_JSON: Fault(
        "bad_response", "body: Invalid JSON: EOF while parsing ", 2, DOUBLING[:3]
    ),
    Trouble.HTML: Fault(
        "bad_response",
        r"body: Invalid JSON: expected value at line 1 column 1: b'<html>\n<b>Log in</b>'",
        2,
        DOUBLING[:3],
    ),
    Trouble.TOO_MUCH: Fault(
        "bad_response", "an answer of more than 1 MiB", 2, DOUBLING[:3]
    ),
    Trouble.STREAM: Fault(
        "bad_response", "a stream of events, which was not asked for", 2, DOUBLING[:3]
    ),
    Trouble.ERROR_IN_200: Fault(
        "server_error", "200, but an error: no provider is free", 1, DOUBLING
    ),
    Trouble.EMPTY: Fault("bad_response", "0 choices, not 1", 2, DOUBLING[:3]),
    Trouble.ABORTED: Fault("bad_response", "it finished with 'abort'", 2, DOUBLING[:3]),
    Trouble.REFUSED: Fault("request_refused", "400: 400", 6, [0]),
    Trouble.FILTERED: Fault("content_refused", "the server's content filter", 6, [0]),
}  # fmt: skip


class Answers(NamedTuple):
    """What became of some requests.

    Attributes:
        found: text or error, by number.
        server: that answered.
        failed: attempts, by reason.
        took_s: seconds, all of them together; to the tenth.
    """

    found: dict[int, str | BaseException]
    server: VirtualServer
    failed: Counter[str]
    took_s: float


def request(number, way=POST, model="m"):
    if way == GET:
        return Request(f"{{}}/search?seed={number}&n=1".format, None, read)
    return Request("{}/chat/completions".format, {"model": model, "seed": number, "n": 1}, read)


def read(body):
    return parse_body(ChatCompletion, body).the_choice().message.content


def open_client(server, patch, **options):
    patch.setattr(aiohttp, "TCPConnector", server.connector)
    clock = asyncio.get_running_loop().time
    return OpenAIClient(ServerOptions(**OPTIONS | options), clock=clock)


def ask(*numbers, way=POST, at_once=99, jitter=False, model="m", server=None, **options):
    """Ask the client for these numbers, `at_once` at a time."""
    found, failed = {}, Counter()

    async def work(patch):
        async with (
            VirtualServer(**{"retry_after": "7", **(server or {})}) as serving,
            open_client(serving, patch, **options) as client,
        ):
            probe = request(PROBE, model=model) if way == POST else None

            async def one(number):
                try:
                    asked = request(number, way, model)
                    found[number] = await client.answer(asked, probe, failed)
                except (AttemptError, EngineError) as error:
                    found[number] = error

            await run_concurrently(one, numbers, at_once)
            return Answers(found, serving, failed, serving.now)

    with pytest.MonkeyPatch.context() as patch:
        if not jitter:
            patch.setattr("random.uniform", lambda low, high: high)
        patch.setattr(client, "LARGEST", 1 << 20)
        # No request may take a day, or one that is never given up would never end.
        return run_in_virtual_time(asyncio.wait_for(work(patch), 86_400))


def times(trouble, way):
    """When requests are sent: aiohttp sends a GET once more whose connection is lost at once."""
    sent_at = FAULTS[trouble].sent_at
    if (trouble, way) != (Trouble.RESET, GET):
        return sent_at
    return [second for second in sent_at for _ in range(2)]


def check_error(error, fault):
    assert type(error) is AttemptError
    assert error.reason == fault.reason
    assert error.detail.startswith(fault.detail)


# The matrix: a fault of some requests, and of all


@pytest.mark.parametrize("way", [POST, GET])
@pytest.mark.parametrize("trouble", FAULTS)
def test_a_fault_that_passes_and_one_that_does_not(trouble, way):
    fault, expected = FAULTS[trouble], times(trouble, way)
    asked = ask(1, 2, 3, way=way, server={"script": {1: [trouble], 2: [trouble] * 999}})
    sent_at = asked.server.sent_at
    if fault.cost == 6:
        check_error(asked.found[1], fault)
        assert sent_at[1] == [0]
    else:
        assert asked.found[1] == "1:1:0"
        assert sent_at[1] == expected[:2]
    check_error(asked.found[2], fault)
    assert sent_at[2] == expected
    assert asked.found[3] == "3:0:0"
    assert sent_at[3] == [0], "one request's fault is not another one's"
    failed = len(fault.sent_at) + (expected is fault.sent_at)
    assert asked.failed == {fault.reason: failed}


@pytest.mark.parametrize("trouble", FAULTS)
def test_a_server_that_answers_nobody_has_failed_itself(trouble):
    """It may be up for all that: its list of models is."""
    fault = FAULTS[trouble]
    asked = ask(1, server={"always": trouble})
    error, sent_at = asked.found[1], asked.server.sent_at
    # One that refuses everything will not change its mind; another one may recover.
    assert type(error) is (EngineError if fault.cost == 6 else ServerDownError)
    assert str(error).startswith(f"{URL} answers no prompt: {fault.reason}, {fault.detail}")
    assert "\n" not in str(error)
    # The pause that a 429 is for all requests takes most of the minute that a probe may take.
    probes = 3 if 0 < fault.cost < 6 else 1
    assert (sent_at[1], len(sent_at[PROBE])) == (fault.sent_at, probes)
    assert asked.failed == {fault.reason: len(fault.sent_at) + probes}


def test_no_pause_that_a_server_asks_for_outlasts_give_up_s():
    """Only the probe may take as long again. Virtual seconds."""
    dates = [formatdate(time.time() + after, usegmt=True) for after in (-7, 7)]
    numbers = ["0", "7", "7.9", "-5", "8", "1e9", "9" * 11, "9" * 5000, "\u0663", "NaN", "inf"]
    for retry_after in [*numbers, *dates, "Fri, 31 Dec 9999 23:59:59 GMT", "7, 7", "soon", ""]:
        for trouble in (Trouble.RATE_LIMIT_AFTER, Trouble.ERROR_503):
            server = {"always": trouble, "retry_after": retry_after}
            asked = ask(*range(9), give_up_s=8, attempts=99, server=server)
            assert all(type(error) is ServerDownError for error in asked.found.values())
            assert asked.took_s <= 2 * 8, retry_after
            assert max(at for each in asked.server.sent_at.values() for at in each) < 2 * 8


def test_an_answer_that_does_not_come_takes_no_longer_than_is_left():
    slow = {"script": {1: [Trouble.ERROR_500] + [Trouble.SLOW] * 99}}
    asked = ask(1, 2, way=GET, server=slow, timeout_s=30, give_up_s=20, attempts=99)
    assert asked.found[2] == "2:0:0"
    assert asked.found[1].detail == "no answer in 19.5 s"
    assert asked.took_s <= 21  # aiohttp rounds up to a second.


@pytest.mark.parametrize("trouble", FAULTS)
def test_without_a_probe_a_caller_learns_of_its_own_request(trouble):
    asked = ask(1, way=GET, server={"always": trouble})
    check_error(asked.found[1], FAULTS[trouble])
    assert asked.server.sent_at == {1: times(trouble, GET)}


class Refusing(VirtualServer):
    """Refuses each request, with this status and message."""

    status, message = 400, "n must be 1"

    def refusal(self, path, body):
        return self.status, {"error": {"message": self.message}}


def ask_refusing(status, message):
    """The error of a server that refuses everything, and how many requests it got."""

    def one(number):
        advise = lambda body: "set n: 1" if b"n must be 1" in body else ""  # noqa: E731
        return replace(request(number), advise=advise)

    async def work(patch):
        async with Refusing() as server, open_client(server, patch) as client:
            server.status, server.message = status, message
            with pytest.raises(EngineError) as error:
                await client.answer(one(1), one(PROBE), Counter())
            return error.value, server.attempts

    with pytest.MonkeyPatch.context() as patch:
        return run_in_virtual_time(work(patch))


@pytest.mark.parametrize("status", [400, 422, 500])
def test_a_refusal_says_what_to_set_and_is_not_tried_again(status):
    """Whatever its status: llama.cpp refuses a field with 500."""
    error, attempts = ask_refusing(status, "n must be 1.")
    assert type(error) is EngineError
    assert str(error) == (
        f"{URL} answers no prompt: request_refused, {status}: n must be 1; set n: 1"
    )
    assert attempts == {1: 1, PROBE: 1}


def test_another_failure_is_tried_again():
    error, _ = ask_refusing(500, "out of memory")
    assert str(error) == f"{URL} answers no prompt: server_error, 500: out of memory"


@pytest.mark.parametrize("models", [True, False])
def test_a_list_of_models_is_asked_for_only_where_there_is_one(models):
    asked_for = []

    class NoModels(VirtualServer):
        async def _models(self, _):
            asked_for.append("models")
            return await super()._models(_)

    async def work(patch):
        async with NoModels(always=Trouble.NOT_FOUND) as server:
            patch.setattr(aiohttp, "TCPConnector", server.connector)
            options = DialectServer(**OPTIONS, server={"models": models})
            async with OpenAIClient(options) as client:
                with pytest.raises(EngineError) as error:
                    await client.answer(request(1), request(PROBE), Counter())
                return str(error.value)

    with pytest.MonkeyPatch.context() as patch:
        message = run_in_virtual_time(work(patch))
    assert asked_for == ["models"] * models
    assert message.startswith("the server has the model" if models else f"{URL}/chat/completions ")


NO_KEY = f"{URL} answers 401: 401; is the key right? see api_key_env"
REDIRECT = (
    f"{URL} redirects requests to 'http://else.where/v1'; set base_url to the address of the server"
)
NO_PATH = f"{URL}/chat/completions; is it a server with OpenAI's API?"
NO_V2 = (
    "http://server/v2/chat/completions does not exist; is base_url right? it usually ends in /v1"
)


@pytest.mark.parametrize(
    ("trouble", "way", "fields", "message"),
    [
        (Trouble.NO_KEY, POST, {}, NO_KEY),
        (Trouble.NO_KEY, GET, {}, NO_KEY),
        (Trouble.REDIRECT, POST, {}, REDIRECT),
        (Trouble.REDIRECT, GET, {}, REDIRECT),
        (Trouble.NOT_FOUND, POST, {}, f"the server has the model 'm' but no {NO_PATH}"),
        (Trouble.NOT_FOUND, POST, {"model": "n"}, "the server has no model 'n'; it has m, other"),
        (Trouble.NOT_FOUND, GET, {}, f"{URL} answers 404: 404; is base_url right?"),
        (None, POST, {"base_url": "http://server/v2"}, NO_V2),
    ],
)
def test_what_no_request_can_pass_is_reported_at_once_in_one_line(trouble, way, fields, message):
    asked = ask(1, way=way, server={"always": trouble}, **fields)
    assert type(asked.found[1]) is EngineError
    assert str(asked.found[1]) == message
    assert (asked.server.attempts.total(), asked.took_s) == (trouble is not None, 0)
    assert asked.failed == {}


def test_a_server_without_a_valid_certificate_is_not_waited_for(monkeypatch):
    async def work(url):
        async with OpenAIClient(ServerOptions(base_url=url, patience_s=60)) as client:
            await client.answer(request(1), request(PROBE), Counter())

    begun = []
    begin = OpenAIClient._exchange_http

    async def exchange(self, *arguments):
        begun.append(arguments)
        return await begin(self, *arguments)

    monkeypatch.setattr(OpenAIClient, "_exchange_http", exchange)
    with FakeServer() as server, pytest.raises(EngineError) as error:
        url = server.url.replace("http:", "https:")
        asyncio.run(work(url))
    assert len(begun) <= 2, "the request and its probe"
    assert str(error.value).startswith(f"no secure connection to {url}: ")
    assert str(error.value).endswith("; is it https, and is its certificate trusted here?")
    assert "\n" not in str(error.value)


def test_an_address_that_is_none():
    (error,) = ask(1, base_url="http://a:b:c").found.values()
    assert str(error) == "base_url is 'http://a:b:c'; which is not an address"


# How long it waits


@pytest.mark.parametrize(
    ("after", "seconds"),
    [("7", 7), ("0.5", 0.5), (formatdate(1090, usegmt=True), 90), (formatdate(990, usegmt=True), 0),
     ("0", 0), ("", 0), ("soon", 0), ("-5", 0), ("nan", 0), ("1e9", 0), ("9" * 400, 0)],
)  # fmt: skip
def test_the_next_attempt_is_after_what_the_server_asks_for_and_nonsense_is_nothing(
    after, seconds, monkeypatch
):
    now = SimpleNamespace(time=lambda: asyncio.get_running_loop().time())  # It is 1000 at first.
    monkeypatch.setattr(wire, "time", now)
    server = {"script": {1: [Trouble.RATE_LIMIT_AFTER] * 2}, "retry_after": after}
    asked = ask(1, give_up_s=600, server=server)
    assert asked.found[1] == "1:2:0"
    first, second, *_ = asked.server.sent_at[1]
    assert (first, second) == (0, seconds + 0.5)


def test_a_request_that_would_wait_too_long_fails_at_once():
    """That is its own matter: others are not held for so long."""
    server = {"script": {1: [Trouble.RATE_LIMIT_AFTER]}, "retry_after": "3600"}
    asked = ask(1, 2, at_once=1, server=server)
    check_error(asked.found[1], FAULTS[Trouble.RATE_LIMIT_AFTER])
    assert asked.server.sent_at[1] == [0]
    assert asked.found[2] == "2:0:0"
    assert asked.took_s < 2


def test_pauses_are_drawn_below_those_of_the_matrix():
    asked = ask(
        *range(40), jitter=True, server={"script": {k: [Trouble.ERROR_500] for k in range(40)}}
    )
    pauses = [second for _, second in asked.server.sent_at.values()]
    assert 0 <= min(pauses) < 0.2 < 0.3 < max(pauses) <= 0.5


def test_total_time_is_bounded():
    asked = ask(1, attempts=999, server={"script": {1: [Trouble.SLOW] * 999}}, give_up_s=20)
    check_error(asked.found[1], FAULTS[Trouble.SLOW])
    assert asked.server.sent_at[1] == [0, 4.5, 9.5, 15.5]


# Whether it is the request's fault or the server's


def test_a_request_that_fails_alone_is_known_by_a_probe():
    script = {1: [Trouble.ERROR_500] * 6, PROBE: [Trouble.RESET, Trouble.ERROR_503]}
    asked = ask(1, server={"script": script})
    check_error(asked.found[1], FAULTS[Trouble.ERROR_500])
    assert asked.server.attempts == {1: 6, PROBE: 3}
    assert asked.failed == {"server_error": 7, "connection_lost": 1}


@pytest.mark.parametrize("trouble", [Trouble.REFUSED, Trouble.RATE_LIMIT_AFTER])
def test_no_probe_where_the_server_answers_others(trouble):
    script = {1: [trouble] * 99, 2: [Trouble.ERROR_500] * 3}
    asked = ask(0, 1, 2, at_once=1 + (trouble is not Trouble.REFUSED), server={"script": script})
    check_error(asked.found[1], FAULTS[trouble])
    assert sorted(asked.server.attempts) == [0, 1, 2]


def test_a_server_that_answered_before_can_still_fail():
    script = {k: [Trouble.ERROR_503] * 99 for k in (1, 2, PROBE)}
    asked = ask(0, 1, 2, at_once=1, server={"script": script}, attempts=2)
    assert asked.found[0] == "0:0:0"
    for number in (1, 2):
        assert type(asked.found[number]) is ServerDownError
        assert str(asked.found[number]) == f"{URL} answers no prompt: server_error, 503: 503"


@pytest.mark.parametrize("recovers", [True, False])
def test_of_a_server_that_has_answered_nobody_one_trial_decides_for_all_who_wait(recovers):
    """Not for those after them: they have a trial of their own."""

    async def work(patch):
        script = {PROBE: [Trouble.ERROR_503] * (4 if recovers else 99), 1: [Trouble.ERROR_503] * 6}
        async with VirtualServer(script=script) as server, open_client(server, patch) as client:
            ask_for = lambda k: client.answer(request(k), request(PROBE))  # noqa: E731
            with pytest.raises(ServerDownError):
                await ask_for(1)
            before, begin = server.attempts.copy(), server.now
            found = await asyncio.gather(*map(ask_for, range(2, 60)), return_exceptions=True)
            took_s, attempts = server.now - begin, server.attempts - before
            with suppress(ServerDownError):
                found.append(await ask_for(60))
            return found, took_s, attempts, (server.attempts - before)[PROBE]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("random.uniform", lambda low, high: high)
        found, took_s, attempts, probes = run_in_virtual_time(work(patch))
    if recovers:
        assert found == [f"{k}:0:0" for k in range(2, 61)], "none is lost"
        assert (attempts[PROBE], probes) == (2, 2)
    else:
        assert {type(error) for error in found} == {ServerDownError}
        assert attempts == {PROBE: 3}
        assert probes == 6
    assert took_s < 2


@pytest.mark.parametrize("patience_s", [0, 5])
def test_a_server_that_vanishes_and_comes_back(patience_s):
    async def work(patch):
        async with (
            VirtualServer() as server,
            open_client(server, patch, patience_s=patience_s) as client,
        ):
            ask_for = [client.answer(request(k), request(PROBE), Counter()) for k in range(3)]
            assert await ask_for[0] == "0:0:0"
            await server.go_away()
            with pytest.raises(ServerDownError) as error:
                await ask_for[1]
            down_s = server.now
            await server.start_again()
            await asyncio.sleep(6)  # Until a probe has found it.
            assert await ask_for[2] == "2:0:0"
            return str(error.value), down_s

    with pytest.MonkeyPatch.context() as patch:
        message, down_s = run_in_virtual_time(work(patch))
    waited = f" for {patience_s} s" if patience_s else ""
    assert message.startswith(f"{URL} could not be reached{waited}: ")
    assert message.endswith("; is the server up?")
    assert patience_s <= down_s <= patience_s + 1


# The key


@pytest.mark.parametrize("named", [True, False])
def test_the_key_is_sent_where_one_is_named_and_else_none(named, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret\n")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    asked = ask(1, api_key_env="MY_KEY" if named else None)
    assert asked.server.keys == {"Bearer secret" if named else None}


@pytest.mark.parametrize("value", [None, "", " "])
def test_a_key_that_is_named_must_be_there(value, monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("NO_KEY", value)
    with pytest.raises(EngineError) as error:
        ask(1, api_key_env="NO_KEY")
    assert str(error.value) == (
        "api_key_env names the environment variable 'NO_KEY', which is not set; "
        "set it to the server's key"
    )


# Many requests


def test_a_storm_of_429_ends_with_every_request_answered_once():
    """Some are put off more often than they have attempts."""
    scripts = {number: [Trouble.RATE_LIMIT] * (number % 9) for number in range(45)}
    asked = ask(*scripts, at_once=9, jitter=True, give_up_s=1800, server={"script": scripts})
    assert asked.found == {number: f"{number}:{number % 9}:0" for number in scripts}
    assert asked.server.answered == dict.fromkeys(scripts, 1)


def outcome_of(script, attempts=6):
    """What a request with this script comes to: the reason it fails for, or its answer's attempt."""
    for trouble in script:
        attempts -= FAULTS[trouble].cost
        if attempts <= 0:
            return FAULTS[trouble].reason
    return len(script)


scripts = st.lists(st.lists(st.sampled_from([*FAULTS]), max_size=7), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=60)
@given(scripts, st.integers(1, 4))
def test_any_sequence_of_faults_ends_as_specified(scripts, at_once):
    server = {"script": dict(enumerate(scripts)), "think_s": 0.1}
    numbers = range(len(scripts))
    asked = ask(*numbers, at_once=at_once, jitter=True, give_up_s=9999, server=server)
    assert sorted(asked.found) == [*numbers]
    for number, found in asked.found.items():
        expected = outcome_of(scripts[number])
        if isinstance(expected, str):
            assert found.reason == expected
            assert asked.server.answered[number] == 0
        else:
            assert found == f"{number}:{expected}:0"
            assert asked.server.answered[number] == 1
    assert asked.server.peak <= at_once


with_restarts = st.lists(
    st.lists(st.sampled_from([*FAULTS, Trouble.RESTART]), max_size=3), min_size=1, max_size=6
)


@pytest.mark.slow
@settings(max_examples=50)
@given(with_restarts, st.integers(1, 3), st.sampled_from([POST, GET]))
def test_nothing_is_lost_when_the_server_is_restarted(scripts, at_once, way):
    """A restart costs every request under way an attempt, so they have more than in other tests."""
    server = {"script": dict(enumerate(scripts)), "think_s": 0.1}
    numbers = range(len(scripts))
    fields = {"attempts": 60, "give_up_s": 9999, "patience_s": 60}
    asked = ask(*numbers, way=way, at_once=at_once, jitter=True, server=server, **fields)
    assert sorted(asked.found) == [*numbers]
    for number, found in asked.found.items():
        if isinstance(found, str):
            # One attempt, whole, and the last that was made.
            assert found == f"{number}:{asked.server.attempts[number] - 1}:0"
        else:
            # For what its own answers were, never for a restart.
            own = [FAULTS[each] for each in scripts[number] if each is not Trouble.RESTART]
            assert found.reason in {fault.reason for fault in own if fault.cost > 1}
    assert asked.server.peak <= at_once
