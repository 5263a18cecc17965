import re
import signal
import socket
import threading
import time
from email.utils import formatdate

import pytest
from fake_server import FakeServer, Trouble
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators.errors import EngineError
from rejuice.operators.openai import client as openai_client
from rejuice.operators.sampling.openai_engine import OpenAIEngine
from rejuice.operators.sampling.options import OpenAIOptions
from rejuice.operators.sampling.protocol import Failure, Group, Prompt, Sample, Settings
from rejuice.operators.sampling.token_count import listening
from rejuice.operators.sampling.tokenizer import TemplateRefusedError

FOUR = Settings(n=4)
pytestmark = pytest.mark.usefixtures("no_thread_is_left", "slow_at_once")
QUICK = {"back_off_s": 0.002, "timeout_s": 60.0, "patience_s": 60.0, "concurrency": 3}
SOON_S = 25
"""Any busy machine is faster, and all that must not be waited for takes longer."""
COSTS = {  # reason, attempts that it costs of 6
    Trouble.RATE_LIMIT: ("rate_limited", 0),
    Trouble.RATE_LIMIT_AFTER: ("rate_limited", 0),
    Trouble.ERROR_500: ("server_error", 1),
    Trouble.ERROR_503: ("server_error", 1),
    Trouble.RESET: ("connection_lost", 1),
    Trouble.RESET_MID_BODY: ("connection_lost", 1),
    Trouble.SLOW: ("timeout", 1),
    Trouble.WRONG_JSON: ("bad_response", 2),
    Trouble.CUT_JSON: ("bad_response", 2),
    Trouble.EMPTY: ("too_few_samples", 2),
    Trouble.FEWER: ("too_few_samples", 2),
    Trouble.TWICE: ("bad_response", 2),
    Trouble.ABORTED: ("bad_response", 2),
    Trouble.HTML: ("bad_response", 2),
    Trouble.MISCOUNTED: ("bad_response", 2),
    Trouble.OVERLONG: ("bad_response", 2),
    Trouble.NO_TOKEN: ("bad_response", 2),
    Trouble.UNLIKELY: ("bad_response", 2),
    Trouble.UNCOUNTED: ("bad_response", 2),
    Trouble.REFUSED: ("request_refused", 6),
    Trouble.FILTERED: ("content_refused", 6),
}


def encode(messages):
    return [len(content) for _, content in messages] + [9]


def prompts(count):
    return [Prompt((("user", "x" * (seed + 1)),), seed) for seed in range(count)]


def engine_of(server, *, api="completions", version=0, exact=True, kwargs=None, **fields):
    url = server if isinstance(server, str) else server.url
    return OpenAIEngine(
        "m",
        OpenAIOptions(**{"base_url": url, "api": api, **QUICK, "attempts": 6, **fields}),
        encode=None if api == "chat" else encode,
        version=version,
        exact=exact,
        chat_template_kwargs=kwargs or {},
    )


def outcome_of(script, attempts=6):
    """What a prompt with this script comes to: the reason it fails for, or the attempt that
    succeeds."""
    for trouble in script:
        reason, cost = COSTS[trouble]
        attempts -= cost
        if attempts <= 0:
            return reason
    return len(script)


def check_group(group, seed, attempt):
    assert [sample.text for sample in group.samples] == [f"{seed}:{attempt}:{i}" for i in range(4)]


@pytest.fixture
def make():
    """Engines that are closed in the end."""
    engines = []

    def make(server, **fields):
        engines.append(engine_of(server, **fields))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def test_samples_exactly_what_the_server_gave(make):
    with FakeServer() as server:
        ((index, group),) = make(server, version=5).sample(
            [Prompt((("system", "ab"), ("user", "c")), 11)], Settings(n=2, max_tokens=30)
        )
    assert index == 0
    assert group == Group(
        policy="m",
        version=5,
        seed=11,
        prompt_token_ids=(2, 1, 9),
        samples=(
            Sample("11:0:0", (0, 0, 7), (-0.5, -0.0, -0.25), "stop"),
            Sample("11:0:1", (0, 1, 7), (-0.5, -1.0, -0.25), "stop"),
        ),
    )
    assert server.bodies[11] == [
        {
            "model": "m",
            "prompt": [2, 1, 9],
            "n": 2,
            "temperature": 1.0,
            "top_p": 1.0,
            "max_tokens": 30,
            "seed": 11,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "logprobs": 0,
            "return_token_ids": True,
        }
    ]


def test_tokens_are_reported_with_each_group(make):
    reported = []
    with FakeServer() as server, listening(reported.append):
        list(make(server).sample(prompts(2), FOUR))
    assert reported == [12, 12]


def test_chat_leaves_the_template_to_the_server(make):
    with FakeServer() as server:
        ((_, group),) = make(server, api="chat").sample(prompts(1), FOUR)
    assert group.prompt_token_ids == (1, 2, 3)
    assert group.samples[2] == Sample("0:0:2", (0, 2, 7), (-0.5, -2.0, -0.25), "stop")
    body = server.bodies[0][0]
    assert body["messages"] == [{"role": "user", "content": "x"}]
    assert body["logprobs"] is True
    assert "chat_template_kwargs" not in body


def test_chat_sends_the_template_arguments(make):
    kwargs = {"enable_thinking": False}
    with FakeServer() as server:
        for exact in (True, False):
            list(make(server, api="chat", exact=exact, kwargs=kwargs).sample(prompts(1), FOUR))
            assert server.bodies[0][-1]["chat_template_kwargs"] == kwargs
        list(make(server, kwargs=kwargs).sample(prompts(1), FOUR))
        assert "chat_template_kwargs" not in server.bodies[0][-1]


@pytest.mark.parametrize("api", ["completions", "chat", "generate"])
def test_greedy(make, api):
    with FakeServer() as server:
        wanted = Settings(n=1, temperature=0.0)
        ((_, group),) = make(server, api=api, exact=False).sample(prompts(1), wanted)
        assert len(group.samples) == 1
        body = server.bodies[0][0]
        sampling = body.get("sampling_params", body)
        assert (sampling["temperature"], sampling["n"]) == (0.0, 1)


def test_a_group_of_two_versions_is_sampled_again(make):
    script = {1: [Trouble.NEW_WEIGHTS], 2: [Trouble.NEW_WEIGHTS] * 3}
    with FakeServer(script, version="3") as server:
        engine = make(server, api="generate")
        found = dict(engine.sample(prompts(3), FOUR))
        assert (found[0].version, found[1].version) == (3, 3)
        check_group(found[1], 1, 1)
        message = "weights changed from 3 to 4 while it was sampled"
        assert found[2] == Failure("bad_response", message)
        assert engine.failed_attempts == {"bad_response": 4}
        server.attempts.clear()
        loose = make(server, api="generate", exact=False)
        assert {g.version for _, g in loose.sample(prompts(3), FOUR)} == {3}
        assert server.attempts == {0: 1, 1: 1, 2: 1}


def test_weight_version_is_the_one_that_the_server_states(make):
    with FakeServer(version="12") as server:
        ((_, group),) = make(server, api="generate", version=5).sample(prompts(1), FOUR)
        check_group(group, 0, 0)
        assert group.version == 12
        assert server.bodies[0][0]["sampling_params"]["n"] == 4
        server.version = "default"
        ((_, group),) = make(server, api="generate", version=5).sample(prompts(1), FOUR)
        assert group.version == 5
        server.version = "step-3"
        with pytest.raises(EngineError, match=r"^the server calls its weights 'step-3'; label"):
            list(make(server, api="generate").sample(prompts(1), FOUR))


def test_without_token_ids_only_text_is_requested(make):
    with FakeServer(token_ids=False) as server:
        with pytest.raises(
            EngineError,
            match=r"^the server gives no token ids and no log-probabilities, which on-policy "
            r"training needs; sample from one that does, such as vLLM, or set on_policy: false$",
        ):
            list(make(server).sample(prompts(9), FOUR))
        assert sum(server.attempts.values()) <= 2 * QUICK["concurrency"]
        ((_, group),) = make(server, exact=False).sample(prompts(1), FOUR)
        assert group.samples[1] == Sample("0:1:1", None, None, "stop")
        assert group.prompt_token_ids == (1, 9)
        assert not {"logprobs", "top_k", "return_token_ids"} & set(server.bodies[0][-1])
        ((_, group),) = make(server, exact=False, api="chat").sample(prompts(1), FOUR)
        assert group.prompt_token_ids is None


def test_tokenizer_and_api_must_fit():
    with pytest.raises(EngineError, match=r"^api 'completions' needs a tokenizer$"):
        OpenAIEngine("m", OpenAIOptions())
    with pytest.raises(EngineError, match=r"^api 'chat' takes no tokenizer$"):
        OpenAIEngine("m", OpenAIOptions(api="chat"), encode=encode)


def test_prompt_that_the_template_refuses_is_never_sent(make):
    def strict(messages):
        if len(messages[0][1]) == 2:
            raise TemplateRefusedError("the chat template refuses: no")
        return encode(messages)

    with FakeServer() as server:
        engine = make(server)
        engine.encode = strict
        found = dict(engine.sample(prompts(3), FOUR))
        assert found[1] == Failure("template_refused", "the chat template refuses: no")
        assert sorted(server.attempts) == [0, 2]


@pytest.mark.parametrize("trouble", COSTS)
def test_each_failure_is_retried_or_reported(make, trouble):
    reason, cost = COSTS[trouble]
    once, always = [trouble], [trouble] * 6
    with FakeServer({1: once, 2: always}) as server:
        engine = make(server)
        found = dict(engine.sample(prompts(3), FOUR))
        check_group(found[0], 0, 0)
        if cost == 6:
            assert found[1].reason == reason
        else:
            check_group(found[1], 1, 1)
        failures = 6 // cost if cost else 6
        if cost:
            assert found[2].reason == reason
            assert found[2].detail
            assert server.attempts[2] == failures
        else:
            check_group(found[2], 2, 6)
        assert engine.failed_attempts == {reason: failures + 1}


def test_details_contain_the_message_of_the_server(make):
    script = [[Trouble.REFUSED], [Trouble.CUT_JSON] * 3, [Trouble.FEWER] * 3, [Trouble.TWICE] * 3]
    with FakeServer(dict(enumerate(script))) as server:
        found = dict(make(server).sample(prompts(4), FOUR))
    assert found[0] == Failure("request_refused", "400: 400")
    assert found[1].detail.startswith("body: Invalid JSON: EOF while parsing")
    assert found[2] == Failure("too_few_samples", "3 of 4 responses")
    assert found[3] == Failure("bad_response", "choices [0, 0, 1, 2], not 0 to 3")


def test_a_server_that_lies_about_its_tokens(make):
    """Nothing of such an answer is taken: what is wrong in it would be trained on."""
    lies = {
        Trouble.MISCOUNTED: "choice 3 has 3 token ids, 4 logprobs",
        Trouble.OVERLONG: "choice 3 has 5000 token ids, more than max_tokens 1024",
        Trouble.NO_TOKEN: "choice 3 has token id -100",
        Trouble.UNLIKELY: "choice 3 has a log-probability of 0.7, above 0",
        Trouble.UNCOUNTED: "choice 3 has text, but no token ids",
    }
    script = {seed: [lie] * 3 for seed, lie in enumerate(lies)}
    with FakeServer(script) as server:
        found = dict(make(server).sample(prompts(6), FOUR))
    for seed, detail in enumerate(lies.values()):
        assert found[seed] == Failure("bad_response", detail)
    check_group(found[5], 5, 0)  # The others are kept.
    with FakeServer(always=Trouble.OVERLONG) as server, pytest.raises(EngineError) as caught:
        list(make(server).sample(prompts(1), FOUR))
    assert str(caught.value) == (
        f"{server.url} answers no prompt: bad_response, "
        "choice 3 has 5000 token ids, more than max_tokens 1024"
    )


troubles = st.lists(st.sampled_from([t for t in COSTS if t is not Trouble.SLOW]), max_size=7)


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(troubles, min_size=1, max_size=8), st.integers(1, 4))
def test_any_sequence_of_failures_ends_as_specified(scripts, concurrency):
    with FakeServer(dict(enumerate(scripts)), retry_after="0", think_s=0.001) as server:
        engine = engine_of(server, concurrency=concurrency)
        try:
            found = list(engine.sample(prompts(len(scripts)), FOUR))
        finally:
            engine.close()
    assert sorted(index for index, _ in found) == list(range(len(scripts)))
    for seed, result in found:
        expected = outcome_of(scripts[seed])
        if isinstance(expected, str):
            assert result.reason == expected
            assert server.answered[seed] == 0
        else:
            check_group(result, seed, expected)
            assert server.answered[seed] == 1
    assert server.peak <= concurrency


with_restarts = st.lists(st.sampled_from([*COSTS, Trouble.RESTART]), max_size=3)


@pytest.mark.slow
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(with_restarts, min_size=1, max_size=6), st.integers(1, 3))
def test_nothing_is_lost_when_the_server_is_restarted(scripts, concurrency):
    start = time.monotonic()
    with FakeServer(dict(enumerate(scripts)), think_s=0.001) as server:
        # A restart costs every prompt under way an attempt, so more than in the other tests.
        engine = engine_of(server, concurrency=concurrency, attempts=60)
        try:
            found = list(engine.sample(prompts(len(scripts)), FOUR))
        finally:
            engine.close()
    assert sorted(index for index, _ in found) == list(range(len(scripts)))
    for seed, result in found:
        if isinstance(result, Failure):
            # For what its own answers were, never for a restart.
            own = {COSTS[t] for t in scripts[seed] if t is not Trouble.RESTART}
            assert result.reason in {reason for reason, cost in own if cost > 1}
        else:
            # One attempt, whole, and the last that was made.
            check_group(result, seed, server.attempts[seed] - 1)
    assert server.peak <= concurrency
    assert time.monotonic() - start < QUICK["timeout_s"], "a restart is not waited for so long"


@pytest.mark.alone
def test_retry_after_is_honoured(make):
    with FakeServer({0: [Trouble.RATE_LIMIT_AFTER]}, retry_after="1") as server:
        start = time.monotonic()
        ((_, group),) = make(server).sample(prompts(1), FOUR)
        assert 1.0 <= time.monotonic() - start < SOON_S
        check_group(group, 0, 1)


@pytest.mark.alone
def test_retry_after_may_be_a_date(make):
    due = int(time.time()) + 2  # A date has no fractions.
    retry_after = formatdate(due, usegmt=True)
    with FakeServer({0: [Trouble.RATE_LIMIT_AFTER]}, retry_after=retry_after) as server:
        list(make(server).sample(prompts(1), FOUR))
        assert due <= time.time() < due + SOON_S


@pytest.mark.alone
def test_a_request_that_would_wait_too_long_fails_at_once(make):
    with FakeServer({0: [Trouble.RATE_LIMIT_AFTER]}, retry_after="3600") as server:
        start = time.monotonic()
        ((_, failure),) = make(server, give_up_s=60).sample(prompts(1), FOUR)
        assert time.monotonic() - start < SOON_S
        assert failure.reason == "rate_limited"  # A probe was answered.
        assert server.attempts[0] == 1


@pytest.mark.alone
def test_total_time_is_bounded(make):
    with FakeServer({0: [Trouble.SLOW] * 999}) as server:
        start = time.monotonic()
        ((_, failure),) = make(server, give_up_s=0.5, attempts=999).sample(prompts(1), FOUR)
        assert time.monotonic() - start < SOON_S
        assert failure == Failure("timeout", "no answer in 60 s")


@pytest.mark.alone
def test_dead_server_ends_the_run_and_what_was_yielded_stays(make):
    with FakeServer(think_s=0.02) as server:
        found, sampling = [], make(server, patience_s=0.3).sample(prompts(30), FOUR)
        found.append(next(sampling))
        server.kill()
        start = time.monotonic()
        with pytest.raises(EngineError) as error:
            found.extend(sampling)
        assert time.monotonic() - start < SOON_S
        assert str(error.value).startswith(f"{server.url} could not be reached for 0.3 s: ")
        assert str(error.value).endswith("; is the server up?")
        assert "\n" not in str(error.value)
        indices = [index for index, _ in found]
        assert sum(server.answered.values()) == len(indices) == len(set(indices))
        server.start()
        rest = [prompt for prompt in prompts(30) if prompt.seed not in indices]
        again = make(server).sample(rest, FOUR)
        assert len(list(again)) == 30 - len(indices)
        assert set(server.answered.values()) == {1}


def test_an_unreachable_server(make):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(
            EngineError, match=r"could not be reached for 0.1 s: Cannot connect to host"
        ):
            list(make(url, patience_s=0.1).sample(prompts(5), FOUR))


@pytest.mark.parametrize("trouble", [t for t in COSTS if COSTS[t][1] and t is not Trouble.SLOW])
def test_a_server_that_answers_no_prompt_has_failed_itself(make, trouble):
    # It may be up for all that: its list of models is.
    with FakeServer(always=trouble) as server:
        message = rf"^{server.url} answers no prompt: {COSTS[trouble][0]}, .+$"
        with pytest.raises(EngineError, match=message):
            list(make(server).sample(prompts(5), FOUR))


def test_prompt_that_fails_alone_is_known_by_a_probe(make):
    probe = (1 << 62) - 1
    scripts = {5: [Trouble.ERROR_500] * 6, probe: [Trouble.RESET, Trouble.ERROR_503]}
    with FakeServer(scripts) as server:
        ((_, failure),) = make(server).sample([Prompt((("user", "x" * 99),), 5)], FOUR)
        assert failure == Failure("server_error", "500: 500")
        assert server.attempts == {5: 6, probe: 3}
        body = server.bodies[probe][0]
        assert (body["prompt"], body["n"]) == ([99, 9], 4)


def test_no_probe_where_the_server_answers_others(make):
    with FakeServer({1: [Trouble.REFUSED]}) as server:
        found = dict(make(server, concurrency=1).sample(prompts(3), FOUR))
        assert found[1].reason == "request_refused"
        assert sorted(server.attempts) == [0, 1, 2]


def test_a_server_that_answered_before_can_still_fail(make):
    with FakeServer() as server:
        sampling = make(server, concurrency=1, attempts=2).sample(prompts(9), FOUR)
        next(sampling)
        server.always = Trouble.ERROR_503
        with pytest.raises(EngineError, match=r"answers no prompt: server_error, 503: 503$"):
            list(sampling)


ONE_LINE = {
    Trouble.REDIRECT: r"{url} redirects requests to 'http://else.where/v1'; "
    r"set base_url to the address of the server",
    Trouble.NO_KEY: r"{url} answers 401: 401; is the key right\? see api_key_env",
    Trouble.NOT_FOUND: r"the server has the model 'm' but no {url}/completions; "
    r"choose another api; vLLM has 'generate' with --enable-scale-out",
    Trouble.HTML: r"{url} answers no prompt: bad_response, body: Invalid JSON: expected value at "
    r"line 1 column 1: b'<html>\\n<b>Log in</b>'",
    Trouble.TOO_MUCH: r"{url} answers no prompt: bad_response, an answer of more than 1 MiB",
}


@pytest.mark.parametrize("trouble", ONE_LINE)
def test_wrong_servers_end_the_run_with_one_line(make, trouble, monkeypatch):
    monkeypatch.setattr(openai_client, "_LARGEST_ANSWER", 1 << 20)
    with FakeServer(always=trouble) as server:
        with pytest.raises(EngineError) as error:
            list(make(server, timeout_s=5).sample(prompts(5), FOUR))
        assert re.fullmatch(ONE_LINE[trouble].format(url=server.url), str(error.value))


def test_wrong_address_is_an_error_at_once(make):
    message = r"/v2/completions does not exist; is base_url right\? it usually ends in /v1$"
    with FakeServer() as server, pytest.raises(EngineError, match=message):
        list(make(server.url.replace("v1", "v2")).sample(prompts(5), FOUR))


def test_a_wrong_model_lists_the_models_there_are(make):
    with FakeServer(always=Trouble.NOT_FOUND) as server:
        engine = make(server)
        engine.policy = "n"
        message = r"^the server has no model 'n'; it has m, other$"
        with pytest.raises(EngineError, match=message):
            list(engine.sample(prompts(5), FOUR))


def test_a_server_without_a_valid_certificate_is_not_waited_for(make):
    with FakeServer() as server:
        url = server.url.replace("http:", "https:")
        message = (
            rf"^no secure connection to {url}: .+; "
            r"is it https, and is its certificate trusted here\?$"
        )
        start = time.monotonic()
        with pytest.raises(EngineError, match=message):
            list(make(url, patience_s=60).sample(prompts(5), FOUR))
        assert time.monotonic() - start < SOON_S


def test_address_that_is_none(make):
    with pytest.raises(EngineError, match=r"^base_url is 'http://a:b:c'; which is not an address$"):
        list(make("http://a:b:c").sample(prompts(1), FOUR))


def test_429_storm_ends_with_every_prompt_answered_once(make):
    # Some prompts are put off more often than they have attempts.
    scripts = {seed: [Trouble.RATE_LIMIT] * (seed % 9) for seed in range(100)}
    with FakeServer(scripts) as server:
        found = dict(make(server, concurrency=20).sample(prompts(100), FOUR))
        assert set(found) == set(range(100))
        assert all(isinstance(group, Group) for group in found.values())
        assert server.answered == dict.fromkeys(range(100), 1)
        assert server.peak <= 20


def test_429_without_end_ends_the_run(make):
    with FakeServer(always=Trouble.RATE_LIMIT) as server:
        message = r"answers no prompt: rate_limited, 429: 429$"
        with pytest.raises(EngineError, match=message):
            list(make(server, give_up_s=0.1).sample(prompts(5), FOUR))


def test_429_without_end_for_one_prompt_is_its_failure(make):
    with FakeServer({1: [Trouble.RATE_LIMIT] * 999}) as server:
        found = dict(make(server, give_up_s=0.1).sample(prompts(9), FOUR))
        assert found[1] == Failure("rate_limited", "429: 429")
        assert sum(isinstance(result, Group) for result in found.values()) == 8


@pytest.mark.parametrize("after", ["0", "", "soon", "-5", "1e9", "9" * 400])
def test_429_with_nonsense_is_tried_again_soon(make, after):
    with FakeServer({0: [Trouble.RATE_LIMIT_AFTER] * 3}, retry_after=after) as server:
        start = time.monotonic()
        ((_, group),) = make(server).sample(prompts(1), FOUR)
        check_group(group, 0, 3)
        assert time.monotonic() - start < SOON_S


def test_concurrency_is_used_and_bounded(make):
    with FakeServer(crowd=7) as server:
        list(make(server, concurrency=7).sample(prompts(40), FOUR))
        assert server.peak == 7


def connections_gone(server):
    for _ in range(3000):
        if server.connections == 0:
            return True
        time.sleep(0.01)
    return False


def test_leaving_early_leaves_no_request(make):
    with FakeServer(think_s=0.05) as server:
        sampling = make(server).sample(prompts(2000), FOUR)
        next(sampling)
        sampling.close()
        assert connections_gone(server)
        attempts = sum(server.attempts.values())
        time.sleep(0.1)
        assert sum(server.attempts.values()) == attempts < 2000


def test_closing_in_the_middle_leaves_no_thread_and_no_connection():
    with FakeServer(think_s=0.05) as server:
        engine = engine_of(server)
        sampling = engine.sample(prompts(50), FOUR)
        next(sampling)
        engine.close()
        engine.close()
        assert not [t for t in threading.enumerate() if t.name == "engine of m"]
        assert connections_gone(server)
        with pytest.raises(EngineError, match=r"^the engine was closed while it sampled$"):
            list(sampling)


@pytest.mark.alone
@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_in_the_middle_leaves_no_connection(make):
    with FakeServer(think_s=60) as server:
        engine = make(server)

        def interrupt():
            while server.peak < QUICK["concurrency"]:
                time.sleep(0.01)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        interrupting = threading.Thread(target=interrupt, daemon=True)
        interrupting.start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            list(engine.sample(prompts(50), FOUR))
        assert time.monotonic() - start < SOON_S
        assert connections_gone(server)
        interrupting.join()


def test_errors_of_the_caller_are_not_hidden(make):
    def broken(_):
        raise ValueError("no such role")

    with FakeServer() as server:
        engine = make(server)
        engine.encode = broken
        with pytest.raises(ValueError, match=r"^no such role$"):
            list(engine.sample(prompts(3), FOUR))


@pytest.mark.alone
def test_error_of_one_prompt_does_not_wait_for_the_others(make):
    def broken(messages):
        if len(messages[0][1]) == 3:
            raise ValueError("no such role")
        return encode(messages)

    with FakeServer(think_s=60) as server:
        engine = make(server)
        engine.encode = broken
        start = time.monotonic()
        with pytest.raises(ValueError, match=r"^no such role$"):
            list(engine.sample(prompts(3), FOUR))
        assert time.monotonic() - start < SOON_S


def test_no_prompts_need_no_server(make):
    assert list(make("http://127.0.0.1:9/v1").sample([], FOUR)) == []


def test_one_engine_samples_many_batches(make):
    with FakeServer() as server:
        engine = make(server)
        for version in range(3):
            engine.version = version
            groups = [group for _, group in engine.sample(prompts(5), FOUR)]
            assert {group.version for group in groups} == {version}
        assert set(server.answered.values()) == {3}


def test_key_is_sent_and_not_shown(make, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret\n")
    with FakeServer() as server:
        engine = make(server, api_key_env="MY_KEY")
        list(engine.sample(prompts(1), FOUR))
        assert server.keys == {"Bearer secret"}
        assert "secret" not in repr(vars(engine)) + engine.options.model_dump_json()


def test_no_key_is_sent_unless_one_is_named(make, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with FakeServer() as server:
        list(make(server).sample(prompts(1), FOUR))
        assert server.keys == {None}


@pytest.mark.parametrize("value", [None, "", " "])
def test_key_that_is_named_must_be_there(make, monkeypatch, value):
    monkeypatch.delenv("NO_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("NO_KEY", value)
    message = (
        r"^api_key_env names the environment variable 'NO_KEY', which is not set; "
        r"set it to the server's key$"
    )
    with pytest.raises(EngineError, match=message):
        make("http://127.0.0.1:9/v1", api_key_env="NO_KEY")


@pytest.mark.parametrize("api", ["completions", "generate"])
def test_token_ids_are_sent_as_they_are(make, api):
    asked = [Prompt((("user", "x"),), 0, (5, 6, 7), 3), Prompt((("user", "x"),), 1, None, 99)]
    with FakeServer() as server:
        found = dict(make(server, api=api).sample(asked, Settings(n=1, max_tokens=30)))
    (first,), (second,) = server.bodies[0], server.bodies[1]
    assert found[0].prompt_token_ids == (5, 6, 7)
    if api == "completions":
        assert (first["prompt"], first["max_tokens"], second["max_tokens"]) == ([5, 6, 7], 3, 30)
    else:
        assert first["token_ids"] == [5, 6, 7]
        limits = [body["sampling_params"]["max_tokens"] for body in (first, second)]
        assert limits == [3, 30]


def test_chat_refuses_token_ids(make):
    with FakeServer() as server, pytest.raises(EngineError) as raised:
        list(make(server, api="chat").sample([Prompt((), 0, (5, 6))], FOUR))
    assert str(raised.value) == (
        "api 'chat' cannot sample from token ids; choose api: completions or generate"
    )


def test_prompts_are_taken_as_slots_become_free(make):
    taken, finished = 0, 0
    with FakeServer() as server:
        engine = make(server, concurrency=8)

        def each():
            nonlocal taken
            for prompt in prompts(60):
                taken += 1
                assert taken - finished <= engine.capacity(FOUR) == 10
                if taken % 7 == 0 and finished < taken - 3:
                    yield None
                yield prompt

        for index, group in engine.sample(each(), FOUR):
            check_group(group, index, 0)
            finished += 1
    assert (taken, finished) == (60, 60)


def test_several_servers_share_the_prompts(make):
    with FakeServer(crowd=3) as one, FakeServer(crowd=3) as other:
        urls = (one.url, other.url)
        engine = make(one, base_url=urls, concurrency=6)
        found = dict(engine.sample(prompts(60), FOUR))
        assert sorted(found) == list(range(60))
        assert one.answered.total() + other.answered.total() == 60
        assert one.peak == other.peak == 3


def test_one_of_two_servers_is_killed(make):
    with FakeServer(think_s=0.01) as one, FakeServer(think_s=0.01) as other:
        engine = make(one, base_url=(one.url, other.url), concurrency=6)
        found = {}
        for index, group in engine.sample(prompts(80), FOUR):
            assert index not in found
            found[index] = group
            if len(found) == 10:
                one.kill()
        assert sorted(found) == list(range(80))
        assert all(isinstance(group, Group) for group in found.values())


class WrongIds(FakeServer):
    """Its first answer to each prompt has a token id that is none, or one id too many."""

    def __init__(self, wrong):
        self.wrong = wrong
        super().__init__()

    def answer(self, path, body, seed, attempt, n):
        found = super().answer(path, body, seed, attempt, n)
        if attempt == 0:
            found["choices"][1]["token_ids"] = self.wrong
        return found


@pytest.mark.parametrize("wrong", [[0, -1, 7], [0, 1 << 40, 7], [0, 1, 7, 8]])
def test_answers_with_impossible_token_ids_are_requested_again(make, wrong):
    with WrongIds(wrong) as server:
        engine = make(server)
        found = dict(engine.sample(prompts(3), FOUR))
        for index, group in found.items():
            check_group(group, index, 1)
        assert engine.failed_attempts == {"bad_response": 3}
