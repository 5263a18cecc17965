"""A frozen model answers, or gives no answer with a reason; it never answers by an error."""

import asyncio

import pytest
from fake_chat import FakeChat
from fake_server import Trouble

from rejuice.operators import EngineError
from rejuice.operators.agents.model import FrozenModel, ModelError

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def chat(number):
    return (("system", "Be brief."), ("user", f"question {number}"))


def model_at(server, **fields):
    quick = {"back_off_s": 0.001, "attempts": 3, "patience_s": 0}
    return FrozenModel(base_url=server.url, model="m", **quick | fields)


async def outcomes(model, *numbers):
    """The answer to each chat, or the error instead of it."""
    try:
        todo = [model.ask(chat(number)) for number in numbers]
        return await asyncio.gather(*todo, return_exceptions=True)
    finally:
        await model.close()


def test_an_answer_and_the_request_for_it():
    with FakeChat() as server:
        assert asyncio.run(outcomes(model_at(server), 7)) == ["echo: question 7"]
        messages = [{"role": "system", "content": "Be brief."}]
        messages += [{"role": "user", "content": "question 7"}]
        sampling = {"temperature": 0.0, "max_tokens": 2048}
        assert server.bodies[7] == [{"model": "m", "messages": messages, **sampling}]


def test_the_same_chat_has_the_same_seed():
    with FakeChat() as server:
        model = model_at(server, temperature=0.5, parameters={"top_k": 20})
        asyncio.run(outcomes(model, 1, 1, 2))
        one, again = server.bodies[1]
        assert one == again
        assert one["seed"] != server.bodies[2][0]["seed"]
        assert one["top_k"] == 20


def test_it_asks_by_the_shared_client(asked_of_shared_client):
    with FakeChat() as server:
        (found,) = asyncio.run(outcomes(model_at(server), 1))
    assert (type(found), str(found)) == (ModelError, "request_refused: by the shared client")
    assert len(asked_of_shared_client) == 1


def test_a_failure_passes_or_is_an_error_of_its_chat():
    with FakeChat({2: [Trouble.ERROR_503], 3: [Trouble.CUT_JSON, Trouble.ABORTED] * 9}) as server:
        good, late, bad = asyncio.run(outcomes(model_at(server, attempts=2), 1, 2, 3))
        assert (good, late) == ("echo: question 1", "echo: question 2")
        assert isinstance(bad, ModelError)
        assert str(bad) == (
            "bad_response: it finished with 'abort'; set server: {finish_reasons: {abort: length}} "
            "to take it as cut off"
        )


def test_an_answer_that_was_cut_off_counts_unless_it_never_began():
    with FakeChat(says={1: ("The answer is", "length"), 2: (None, "length")}) as server:
        begun, not_begun = asyncio.run(outcomes(model_at(server), 1, 2))
        assert begun == "The answer is"
        assert str(not_begun) == "no_answer: max_tokens was used up before the answer began"
        assert server.attempts[2] == 1


def test_a_server_that_is_gone_does_not_end_the_run():
    async def work(server, model):
        try:
            assert await model.ask(chat(1)) == "echo: question 1"
            await asyncio.to_thread(server.kill)
            with pytest.raises(ModelError, match=r"could not be reached: .*; is the server up\?$"):
                await model.ask(chat(2))
            await asyncio.to_thread(server.start)
            await asyncio.sleep(0.5)  # Until a probe has found it.
            assert await model.ask(chat(3)) == "echo: question 3"
        finally:
            await model.close()

    with FakeChat() as server:
        asyncio.run(work(server, model_at(server)))


def test_a_server_that_fails_every_request_does_not_end_the_run():
    with FakeChat(always=Trouble.ERROR_503) as server:
        (found,) = asyncio.run(outcomes(model_at(server, attempts=1), 1))
        assert isinstance(found, ModelError)
        assert str(found) == f"{server.url} answers no prompt: server_error, 503: 503"


def test_what_no_request_can_pass_ends_the_run():
    with FakeChat(always=Trouble.NO_KEY) as server:
        (found,) = asyncio.run(outcomes(model_at(server), 1))
    assert isinstance(found, EngineError)
    assert str(found) == f"{server.url} answers 401: 401; is the key right? see api_key_env"


def test_parameters_that_the_server_refuses_every_time_end_the_run():
    with FakeChat(always=Trouble.REFUSED) as server:
        (found,) = asyncio.run(outcomes(model_at(server), 1))
        assert isinstance(found, EngineError)
        assert server.attempts[1] == 1


def test_preflight_names_the_models_of_the_server():
    with FakeChat() as server:
        model_at(server).preflight()
        server.always = Trouble.NOT_FOUND
        with pytest.raises(EngineError) as error:
            model_at(server).model_copy(update={"model": "n"}).preflight()
        assert str(error.value) == "the server has no model 'n'; it has m, other"
        server.kill()
        with pytest.raises(EngineError, match=r"is the server up\?$"):
            model_at(server).preflight()


def test_models_at_one_server_share_its_connections_and_its_limit():
    async def work(server):
        one, other = model_at(server, concurrency=2), model_at(server, concurrency=2, max_tokens=9)
        await asyncio.gather(*(m.ask(chat(k)) for m in (one, other) for k in range(10)))
        await one.close()
        assert await other.ask(chat(1)) == "echo: question 1"  # It is opened again.
        await other.close()

    with FakeChat(think_s=0.002) as server:
        asyncio.run(work(server))
        assert server.peak == 2


def test_each_event_loop_has_connections_of_its_own():
    with FakeChat() as server:
        model = model_at(server)
        for _ in range(2):
            assert asyncio.run(outcomes(model, 1)) == ["echo: question 1"]
        assert server.attempts[1] == 2


def test_only_what_decides_answers_is_in_the_cache_key():
    one = FrozenModel(model="m", base_url="http://a/v1", timeout_s=1, concurrency=3)
    other = FrozenModel(model="m", base_url="http://b/v1")
    assert one.cache_key_fields() == other.cache_key_fields()
    assert one.cache_key_fields() == {
        "model": "m",
        "revision": "",
        "temperature": 0.0,
        "max_tokens": 2048,
        "chat_template_kwargs": {},
        "parameters": {},
        "server": {"seed": "64_bit"},
        "code": "1",
    }


def test_parameters_must_not_hide_a_field():
    with pytest.raises(ValueError, match="parameters must not name 'max_tokens'"):
        FrozenModel(model="m", parameters={"max_tokens": 3})
