"""A server is checked before anything depends on it, and what is waited for is logged."""

import asyncio
import time
from collections import Counter
from itertools import count, pairwise

import pytest
from aiohttp import web
from fake_chat import FakeChat
from fake_server import FakeServer, Trouble

from rejuice.operators.agents.tools.http_search import HttpSearch
from rejuice.operators.agents.tools.mcp import Mcp
from rejuice.operators.config import deciding_fields
from rejuice.operators.errors import EngineError, RecipeError
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.registry import build
from rejuice.operators.servers.client import OpenAIClient, Request, check_server
from rejuice.operators.servers.endpoints import Endpoints, ServerDownError
from rejuice.operators.servers.options import DialectServer, ServerOptions

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class Server(FakeServer):
    """Answers requests for its models with some statuses first; knows models by what it lists."""

    def __init__(self, *statuses, knows_all=False):
        self.statuses = list(statuses)
        super().__init__(always=None if knows_all else Trouble.NOT_FOUND)

    def seed_and_n(self, body):
        return 0, 1

    async def _models(self, request):
        if self.statuses:
            error = {"error": {"message": "Loading model"}}
            return web.json_response(error, status=self.statuses.pop(0))
        return await super()._models(request)


def options_of(server, **fields):
    return ServerOptions(base_url=server.url, back_off_s=0.001, **fields)


def seconds(step):
    """A clock that is `step` seconds later at every look."""
    times = count(1000.0, step)
    return lambda: next(times)


def waits(caplog):
    return [each.message for each in caplog.records if each.message.startswith("waiting for")]


def test_a_server_that_is_up_is_asked_once():
    with Server() as server:
        check_server(options_of(server), "m")
        assert server.attempts.total() == 0, "no model was asked"


def test_a_model_that_is_not_served_is_reported_with_those_that_are():
    with Server() as server:
        with pytest.raises(EngineError) as error:
            check_server(options_of(server), "n")
        assert str(error.value) == "the server has no model 'n'; it has m, other"


def test_a_server_may_know_its_model_by_other_names_than_it_lists():
    with Server(knows_all=True) as server:
        check_server(options_of(server), "n")
        assert server.attempts.total() == 1


def test_a_server_without_a_list_of_models_only_has_to_be_up():
    for status in (403, 404, 500):
        with Server(status) as server:
            check_server(options_of(server), "n")


def test_a_key_that_is_refused():
    with Server(401) as server, pytest.raises(EngineError, match="is the key right"):
        check_server(options_of(server), "m")


def test_a_model_that_is_loaded_is_waited_for(caplog):
    with Server(503, 503, 502) as server:
        check_server(options_of(server, patience_s=600), "m", clock=seconds(3))
    assert server.statuses == []
    line, *_ = waits(caplog)
    assert line.startswith(f"waiting for {server.url} (503: Loading model): ")
    assert line.endswith(" s of 600 s")


def test_a_model_that_is_loaded_for_ever_is_given_up():
    with Server(*[503] * 999) as server:
        with pytest.raises(ServerDownError) as error:
            check_server(options_of(server, patience_s=60), "m", clock=seconds(3))
        assert str(error.value) == (
            f"{server.url} could not be reached for 60 s: 503: Loading model; is the server up?"
        )


def test_a_server_that_is_down_is_waited_for_aloud(caplog):
    with Server() as server:
        server.kill()
        start = time.monotonic()
        with pytest.raises(ServerDownError) as error:
            check_server(options_of(server, patience_s=100), "m", clock=seconds(4))
        assert time.monotonic() - start < 90
        assert str(error.value).startswith(f"{server.url} could not be reached for 100 s: ")
    lines = waits(caplog)
    assert 3 <= len(lines) <= 7
    elapsed = []
    for line in lines:
        before, _, rest = line.partition(" (connection refused): ")
        assert before == f"waiting for {server.url}"
        assert rest.endswith(" s of 100 s")
        elapsed.append(int(rest.split()[0]))
    assert elapsed == sorted(elapsed)
    assert all(later - earlier >= 15 for earlier, later in pairwise(elapsed))


def test_many_requests_that_wait_log_one_line_and_a_short_wait_none(caplog):
    times = iter([90.0, 100.0, 100.1, 107.0, 115.0])
    waiting = Endpoints(ServerOptions(base_url="http://s/v1"), lambda: next(times), None)
    for waited_s in (1.9, 45, 45.1, 52, 60.4):
        waiting.report_wait("connection refused", waited_s, 600)
    assert waits(caplog) == [
        "waiting for http://s/v1 (connection refused): 45 s of 600 s",
        "waiting for http://s/v1 (connection refused): 60 s of 600 s",
    ]


def test_a_server_that_fails_every_request_is_waited_for_aloud(caplog):
    script = [Trouble.ERROR_503] * 5

    async def answer(server):
        options = options_of(server, give_up_s=1800)
        async with OpenAIClient(options, clock=seconds(3)) as client:
            body = {"model": "m", "seed": 0, "n": 1}
            request = Request("{}/completions".format, body, lambda body: body)
            return await client.answer(request, request, Counter())

    with FakeServer({0: script}) as server:
        assert b"choices" in asyncio.run(answer(server))
    assert waits(caplog)[0].startswith(f"waiting for {server.url} (503: 503): ")
    assert all(line.endswith(" s of 1800 s") for line in waits(caplog))


def several(*servers, **fields):
    return ServerOptions(base_url=[each.url for each in servers], back_off_s=0.001, **fields)


def test_of_several_one_that_is_down_is_a_warning(caplog):
    with Server() as one, Server() as other:
        other.kill()
        check_server(several(one, other), "m")
    (line,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert line == f"{other.url} is set aside (connection refused): 1 of 2 servers carry on"


def test_of_several_each_must_have_the_model():
    with Server(knows_all=True) as one, Server() as other, pytest.raises(EngineError) as error:
        check_server(several(one, other), "n")
    assert str(error.value) == f"the server {other.url} has no model 'n'; it has m, other"


def test_several_that_are_all_down():
    with Server(*[503] * 99) as one, Server() as other:
        other.kill()
        with pytest.raises(ServerDownError) as error:
            check_server(several(one, other, patience_s=60), "m", clock=seconds(9))
    assert str(error.value) == (
        f"none of 2 servers could be reached for 60 s: {one.url} (503: Loading model), "
        f"{other.url} (connection refused); are they up?"
    )


def test_several_of_which_one_comes_up():
    with Server(503, 503, 503) as one, Server(*[503] * 999) as other:
        check_server(several(one, other, patience_s=600), "m", clock=seconds(1))
    assert one.statuses == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("gpu7:8000", "it must begin with http:// or https://"),
        (["http://a/v1", "b"], "each must begin with http:// or https://"),
        (["http://a/v1", "http://a/v1/"], "each address must be given once"),
        ([], "it must have at least one address"),
    ],
)
def test_wrong_addresses(url, message):
    with pytest.raises(ValueError, match=message):
        ServerOptions(base_url=url)


@pytest.mark.parametrize(
    "address",
    [
        "http://user:hush@host/v1",
        "http://hush@host/v1",
        "http://:hush@host",
        "HTTP://a:hush@b",
        "user:hush@host:8000/v1",
    ],
)
def test_a_key_in_an_address_is_refused_and_not_shown(address):
    for kind, fields in (
        (LlmQualityRewardMapper, {"model": "m", "server": {"base_url": address}}),
        (HttpSearch, {"base_url": address}),
        (ServerOptions, {"base_url": ["http://a/v1", address]}),
    ):
        with pytest.raises(RecipeError) as error:
            build(kind, fields)
        assert str(error.value) == (
            "base_url has a user name or a password before an '@'; "
            "take it out; api_key_env names the variable with a server's key"
        )
    with pytest.raises(RecipeError, match=r"^url has a user name or a password before an '@'; "):
        build(Mcp, {"url": address})


def test_an_at_sign_in_a_path_is_no_key():
    assert ServerOptions(base_url="http://a/@m/v1?x=a@b").addresses == ("http://a/@m/v1?x=a@b",)


def test_addresses_and_limits_stay_out_of_cache_keys():
    plain = ServerOptions()
    other = ServerOptions(base_url=["http://a/v1"], requests_per_minute=5, tokens_per_minute=7)
    assert deciding_fields(plain) == deciding_fields(other) == {}
    assert ServerOptions(base_url="http://a/v1/").addresses == ("http://a/v1",) == other.addresses


class NoModels(FakeServer):
    """Has no list of models; what it is asked for instead is in `asked`."""

    def __init__(self, status=404):
        self.asked, self.status = [], status
        super().__init__()

    def add_routes(self, router):
        super().add_routes(router)
        router.add_get("/v1", self._root)

    async def _models(self, request):
        self.asked.append("models")
        return web.json_response({"detail": "Not Found"}, status=self.status)

    async def _root(self, request):
        self.asked.append("root")
        return web.json_response({"detail": "Not Found"}, status=503)


def test_a_server_without_a_list_of_models_is_up():
    with NoModels() as server:
        check_server(options_of(server), "m")
        assert server.asked == ["models"]


def test_a_server_that_is_asked_for_no_list_is_up_whatever_it_answers():
    with NoModels(503) as server:
        with pytest.raises(ServerDownError):
            check_server(options_of(server, patience_s=0.01), "m")
        server.asked.clear()
        options = DialectServer(base_url=server.url, server={"models": False})
        check_server(options, "m")
        assert (server.asked, server.attempts) == (["root"], {})
        server.kill()
        with pytest.raises(ServerDownError, match="could not be reached"):
            check_server(options.model_copy(update={"patience_s": 0.01}), "m")


def test_a_model_that_is_not_listed_is_asked_for_in_the_dialect_of_the_server():
    with FakeChat() as server:
        options = DialectServer(base_url=server.url, server={"kind": "openai"})
        check_server(options, "another")
        (body,) = server.bodies[-1]
    assert body["max_completion_tokens"] == 1
    assert "max_tokens" not in body
