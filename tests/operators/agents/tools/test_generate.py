"""A frozen model as a tool."""

import asyncio

import pytest
from fake_chat import FakeChat
from fake_server import Trouble

from rejuice.operators import EngineError
from rejuice.operators.agents.tool import Observation, ToolError
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.tools.generate import Generate

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def tool_at(server, **fields):
    model = {"base_url": server.url, "model": "m", "patience_s": 0, "attempts": 2}
    return Generate(model=model | {"back_off_s": 0.001}, **fields)


def call(tool, query):
    async def work():
        try:
            toolbox = await Toolbox.of([tool])
            return await toolbox.call("generate", {"query": query}, {})
        finally:
            await tool.close()

    return asyncio.run(work())


def test_the_models_answer_is_the_observation():
    with FakeChat() as server:
        tool = tool_at(server, system="Be brief.")
        tool.preflight()
        assert call(tool, "capital 3?") == Observation("echo: capital 3?")
        messages = server.bodies[3][0]["messages"]
        assert [message["role"] for message in messages] == ["system", "user"]


def test_no_answer_is_not_the_policys_fault():
    troubles = {3: [Trouble.ERROR_500] * 9}
    with FakeChat(troubles) as server, pytest.raises(ToolError, match=r"^server_error: 500: 500$"):
        call(tool_at(server), "3")


def test_an_empty_query_costs_no_request():
    with FakeChat() as server:
        assert call(tool_at(server), "  ") == Observation("the query is empty", "error")
        assert not server.attempts


def test_a_server_that_is_not_there_is_found_before_sampling():
    with FakeChat() as server:
        server.kill()
        with pytest.raises(EngineError, match=r"is the server up\?$"):
            tool_at(server).preflight()


def test_where_the_model_is_does_not_decide_what_it_says():
    keys = [
        Generate(model={"model": "m", "base_url": url}).cache_key_fields()
        for url in ("http://a/v1", "http://b/v1")
    ]
    assert keys[0] == keys[1]
    assert "base_url" not in keys[0]["model"]
