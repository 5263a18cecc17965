"""A retrieval server: what the policy sees, and what is missing with a reason."""

import asyncio
from typing import ClassVar

import pytest
from fake_search import TEST, FakeSearch
from fake_server import Trouble
from virtual_time import run_in_virtual_time

from rejuice.operators import EngineError
from rejuice.operators.agents.tool import Observation, ToolError
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.tools import http_search
from rejuice.operators.agents.tools.http_search import HttpSearch
from rejuice.operators.servers import client
from rejuice.operators.servers.client import OpenAIClient
from rejuice.operators.servers.wire import AttemptError, HttpResponse

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def tool_at(server, **fields):
    quick = {"back_off_s": 0.001, "attempts": 3, "patience_s": 0}
    return HttpSearch(**{"base_url": server.url, **quick, **fields})


def outcomes(tool, *queries):
    """The observation of each query, or the error instead of it."""

    async def work():
        toolbox = await Toolbox.of([tool])
        calls = [toolbox.call("http_search", {"query": query}, {}) for query in queries]
        try:
            return await asyncio.gather(*calls, return_exceptions=True)
        finally:
            await tool.close()

    return asyncio.run(work())


def test_what_search_r1_finds():
    with FakeSearch() as server:
        tool = tool_at(server, k=2)
        tool.preflight()
        assert outcomes(tool, "drink 7") == [
            Observation("[1] Tea: drink 7 is hot.\n[2] drink 7 is cold.")
        ]
        assert server.bodies[7] == [{"queries": ["drink 7"], "topk": 2, "return_scores": True}]


def test_what_searxng_finds():
    with FakeSearch() as server:
        tool = tool_at(server, style="searxng", k=1, longest=5)
        tool.preflight()
        assert outcomes(tool, "7 & 8 + é?") == [Observation("Page 1: about […]")]
        assert server.bodies[7] == [{"q": "7 & 8 + é?", "format": "json"}]


def test_nothing_is_found():
    says = {1: {"result": [[]]}}
    with FakeSearch(says=says) as server:
        found = outcomes(tool_at(server), "1", " ")
        assert found == [
            Observation("nothing was found"),
            Observation("the query is empty", "error"),
        ]


@pytest.mark.parametrize("style", ["search_r1", "searxng"])
def test_it_asks_by_the_shared_client(style, asked_of_shared_client):
    with FakeSearch() as server:
        (found,) = outcomes(tool_at(server, style=style), "7")
    assert found == Observation("the search refuses this query: by the shared client", "error")
    assert len(asked_of_shared_client) == 1


def test_a_failure_passes_or_is_an_error_of_its_search():
    with FakeSearch({7: [Trouble.ERROR_503], 9: [Trouble.ERROR_500] * 9}) as server:
        late, good, bad = outcomes(tool_at(server), "7", "8", "9")
        assert (late.status, good.status, server.attempts[7]) == ("ok", "ok", 2)
        assert (type(bad), str(bad)) == (ToolError, "server_error: 500: 500")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"result": []}, "bad_response: 0 results, not 1"),
        ({"result": [[{"document": {"id": "1"}}]]}, "bad_response: a document has no text, but"),
        ([], "bad_response: body: Input should be "),
    ],
)
def test_an_answer_of_another_form_is_missing_with_a_reason(answer, message):
    with FakeSearch(says={7: answer}) as server:
        (found,) = outcomes(tool_at(server), "7")
        assert isinstance(found, ToolError)
        assert str(found).startswith(message)


def test_a_query_that_the_server_refuses_is_the_policys_own_doing():
    with FakeSearch({7: [Trouble.REFUSED]}) as server:
        assert outcomes(tool_at(server), "7") == [
            Observation("the search refuses this query: 400: 400", "error")
        ]


def test_a_server_that_vanishes_and_comes_back():
    async def work(server, tool):
        toolbox = await Toolbox.of([tool])
        assert (await toolbox.call("http_search", {"query": "1"}, {})).status == "ok"
        await asyncio.to_thread(server.kill)
        with pytest.raises(ToolError, match=r"could not be reached: .*; is the server up\?$"):
            await toolbox.call("http_search", {"query": "2"}, {})
        await asyncio.to_thread(server.start)
        await asyncio.sleep(0.5)  # Until a probe has found it.
        assert (await toolbox.call("http_search", {"query": "3"}, {})).status == "ok"
        await tool.close()

    with FakeSearch() as server:
        asyncio.run(work(server, tool_at(server)))


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (Trouble.NOT_FOUND, "answers 404: 404; is base_url right?"),
        (Trouble.ERROR_500, "answers no search: server_error, 500: 500; is it a server of the st"),
    ],
)
def test_what_is_wrong_with_a_server_is_found_before_sampling(trouble, message):
    with FakeSearch({TEST: [trouble] * 9}) as server, pytest.raises(EngineError) as error:
        tool_at(server).preflight()
    assert str(error.value).startswith(f"{server.url} {message}")


def test_no_server():
    with FakeSearch() as server:
        server.kill()
        with pytest.raises(EngineError, match=r"is the server up\?$"):
            tool_at(server).preflight()


def test_a_revision_stands_for_what_is_searched_wherever_the_server_is():
    one, other = "http://a:1", "http://b:2"
    assert (
        HttpSearch(base_url=one, timeout_s=1).cache_key_fields()
        == HttpSearch(base_url=one).cache_key_fields()
        != HttpSearch(base_url=other).cache_key_fields()
    )
    named = [
        HttpSearch(base_url=url, revision="wiki-18").cache_key_fields() for url in (one, other)
    ]
    assert named[0] == named[1]


class SimulatedSearch(OpenAIClient):
    """A client in virtual time, whose server asks to wait for 20 s in the first second."""

    sent: ClassVar[list[float]] = []

    def __init__(self, *arguments, **fields):
        self._loop = asyncio.get_running_loop()
        self._begin = self._loop.time()
        super().__init__(*arguments, clock=self._loop.time, **fields)

    async def _exchange_http(self, *_, **__):
        at = self._loop.time() - self._begin
        self.sent.append(at)
        await asyncio.sleep(0.1)
        return HttpResponse(429, b"", "20") if at < 1 else HttpResponse(200, b'{"result": [[]]}')


@pytest.mark.parametrize("style", ["search_r1", "searxng"])
def test_limits_per_minute_and_being_asked_to_wait_are_as_for_any_server(style, monkeypatch):
    monkeypatch.setattr(client, "OpenAIClient", SimulatedSearch)
    monkeypatch.setattr(SimulatedSearch, "sent", [])
    if style == "searxng":
        monkeypatch.setattr(http_search, "_read_web_pages", lambda body: ())
    tool = HttpSearch(base_url="http://a", style=style, requests_per_minute=60)

    async def work():
        try:
            return await asyncio.gather(*(tool.call(f"{number}") for number in range(100)))
        finally:
            await tool.close()

    assert run_in_virtual_time(work()) == [Observation("nothing was found")] * 100
    sent = SimulatedSearch.sent
    assert max(sum(begin <= at < begin + 60 for at in sent) for begin in sent) <= 60 + 1
    assert len([at for at in sent if at < 20]) <= 3, "one answer that asks to wait is for all"


def test_answers_that_are_too_large_or_too_deep_are_unusable(monkeypatch):
    monkeypatch.setattr(http_search, "_LARGEST", 1 << 20)
    deep = b'{"result": ' + b"[" * 100_000
    names = ("{" + ", ".join(f'"name{n}": 1' for n in range(9999)) + "}").encode()
    large = b'{"result": [[' + b'{"document": ""},' * 100_000
    for body, found in [
        (large, "an answer of more than 1 MiB"),
        (deep, "body: Invalid JSON: recursion limit exceeded"),
        (b'{"result": [[{"document": ' + names + b"}]]}", "a document has no text, but the fields"),
        (b'{"result": [[{"document": 7}]]}', "result.0.0.document"),
    ]:
        with pytest.raises(AttemptError) as error:
            http_search._read_retrieved(body)
        assert error.value.detail.startswith(found)
        assert len(error.value.detail) < 300
