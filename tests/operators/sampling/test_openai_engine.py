import signal
import threading
import time

import pytest
from fake_server import FakeServer, Trouble

from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.openai_engine import OpenAIEngine
from rejuice.operators.sampling.protocol import (
    Failure,
    Group,
    OpenAIOptions,
    Prompt,
    Sample,
    Settings,
    listening,
)
from rejuice.operators.sampling.tokenizer import TemplateRefusedError

FOUR = Settings(n=4)
pytestmark = pytest.mark.usefixtures("no_thread_is_left")
QUICK = {"back_off_s": 0.002, "timeout_s": 60.0, "patience_s": 60.0, "concurrency": 3}


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


def test_it_asks_by_the_shared_client(make, asked_of_shared_client):
    ((_, found),) = make("http://nowhere.invalid/v1").sample(prompts(1), FOUR)
    assert found == Failure("request_refused", "by the shared client")
    assert len(asked_of_shared_client) == 1


def test_a_failure_passes_or_is_that_of_its_prompt(make):
    script = {1: [Trouble.ERROR_503, Trouble.FEWER], 2: [Trouble.REFUSED]}
    with FakeServer(script) as server:
        engine = make(server)
        found = dict(engine.sample(prompts(4), FOUR))
    check_group(found[0], 0, 0)
    check_group(found[1], 1, 2)
    assert found[2] == Failure("request_refused", "400: 400")
    check_group(found[3], 3, 0)
    reasons = ("server_error", "too_few_samples", "request_refused")
    assert engine.failed_attempts == dict.fromkeys(reasons, 1)


def test_a_server_that_answers_no_prompt_ends_the_run(make):
    with FakeServer(always=Trouble.ERROR_500) as server:
        message = rf"^{server.url} answers no prompt: server_error, 500: 500$"
        with pytest.raises(EngineError, match=message):
            list(make(server, attempts=2).sample(prompts(5), FOUR))


def test_a_restart_of_the_server_loses_nothing(make):
    script = {seed: [Trouble.RESTART] for seed in (3, 20)}
    with FakeServer(script, think_s=0.001) as server:
        found = list(make(server, attempts=60).sample(prompts(30), FOUR))
    assert sorted(index for index, _ in found) == list(range(30))
    for index, group in found:
        check_group(group, index, server.attempts[index] - 1)


def test_a_server_without_this_api_is_pointed_to_another_one(make):
    with FakeServer(always=Trouble.NOT_FOUND) as server:
        with pytest.raises(EngineError) as error:
            list(make(server).sample(prompts(5), FOUR))
        assert str(error.value) == (
            f"the server has the model 'm' but no {server.url}/completions; "
            "choose another api; vLLM has 'generate' with --enable-scale-out"
        )


def test_another_model_that_answers_in_between_is_named_once(make, caplog):
    names = iter(["m-v1"] * 3 + ["m-v2"] * 3 + ["m-v3"])

    class Named(FakeServer):
        def answer(self, *request):
            choices = super().answer(*request)
            choices["choices"][0]["text"] = '"model": "none"'
            return {**choices, "model": next(names)}

    with Named() as server:
        assert len(dict(make(server).sample(prompts(3), FOUR))) == 3
        assert not caplog.records
        assert len(dict(make(server).sample(prompts(4), FOUR))) == 4
    (line,) = [record.getMessage() for record in caplog.records]
    assert all(fact in line for fact in (server.url, "'m-v2'", "'m-v1'", "'m'"))


def test_a_server_that_lies_about_its_tokens(make):
    """Nothing of such an answer is taken: what is wrong in it would be trained on."""
    lies = {
        Trouble.MISCOUNTED: "choice 3 has 3 token ids, 4 logprobs",
        Trouble.OVERLONG: "choice 3 has 5000 token ids, more than max_tokens 1024",
        Trouble.NO_TOKEN: "choices.3.token_ids.1: Input should be greater than or equal to 0",
        Trouble.UNLIKELY: "choice 3 has a log-probability of 0.7, above 0",
        Trouble.UNCOUNTED: "choice 3 has text, but no token ids",
    }
    script = {seed: [lie] * 3 for seed, lie in enumerate(lies)}
    with FakeServer(script) as server:
        found = dict(make(server).sample(prompts(6), FOUR))
    for seed, detail in enumerate(lies.values()):
        assert found[seed].reason == "bad_response"
        assert found[seed].detail.startswith(detail)
    check_group(found[5], 5, 0)  # The others are kept.
    with FakeServer(always=Trouble.OVERLONG) as server, pytest.raises(EngineError) as caught:
        list(make(server).sample(prompts(1), FOUR))
    assert str(caught.value) == (
        f"{server.url} answers no prompt: bad_response, "
        "choice 3 has 5000 token ids, more than max_tokens 1024"
    )


def test_dead_server_ends_the_run_and_what_was_yielded_stays(make):
    # It dies while it thinks about three of them: of an answer that it writes then, nobody knows.
    with FakeServer({seed: [Trouble.SLOW] for seed in (5, 6, 7)}) as server:
        sampling = make(server, patience_s=0.1).sample(prompts(30), FOUR)
        found = [next(sampling) for _ in range(5)]
        server.kill()
        with pytest.raises(EngineError) as error:
            found.extend(sampling)
        assert str(error.value).startswith(f"{server.url} could not be reached for 0.1 s: ")
        assert str(error.value).endswith("; is the server up?")
        assert "\n" not in str(error.value)
        assert sorted(index for index, _ in found) == list(range(5))
        assert server.answered == dict.fromkeys(range(5), 1)
        server.script.clear()
        server.start()
        rest = dict(make(server).sample(prompts(30)[5:], FOUR))
        assert sorted(rest) == list(range(25))
        assert server.answered == dict.fromkeys(range(30), 1)


def test_a_probe_has_the_first_tokens_of_the_prompt_that_failed(make):
    probe = (1 << 62) - 1
    with FakeServer({5: [Trouble.REFUSED]}) as server:
        ((_, failure),) = make(server).sample([Prompt((("user", "x" * 99),), 5)], FOUR)
        assert failure == Failure("request_refused", "400: 400")
        assert server.attempts == {5: 1, probe: 1}
        body = server.bodies[probe][0]
        assert (body["prompt"], body["n"]) == ([99, 9], 4)


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
        with pytest.raises(EngineError, match=r"^the engine was closed while it worked$"):
            list(sampling)


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
        with pytest.raises(KeyboardInterrupt):
            list(engine.sample(prompts(50), FOUR))
        assert connections_gone(server)
        assert server.answered.total() == 0, "no answer was waited for"
        interrupting.join()


def test_errors_of_the_caller_are_not_hidden(make):
    def broken(_):
        raise ValueError("no such role")

    with FakeServer() as server:
        engine = make(server)
        engine.encode = broken
        with pytest.raises(ValueError, match=r"^no such role$"):
            list(engine.sample(prompts(3), FOUR))


def test_error_of_one_prompt_does_not_wait_for_the_others(make):
    def broken(messages):
        if len(messages[0][1]) == 3:
            raise ValueError("no such role")
        return encode(messages)

    with FakeServer(think_s=60) as server:
        engine = make(server)
        engine.encode = broken
        with pytest.raises(ValueError, match=r"^no such role$"):
            list(engine.sample(prompts(3), FOUR))
        assert server.answered.total() == 0


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
