"""The tools of an MCP server: over stdio and HTTP, dying in the middle, and behind the cache."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from rejuice.operators import EngineError, RecipeError
from rejuice.operators.agents.tool import Observation, ToolError
from rejuice.operators.agents.toolbox import Toolbox, cached
from rejuice.operators.agents.tools.mcp import Mcp

SUPPORT = Path(__file__).parents[3] / "support"
SERVER = str(SUPPORT / "mcp_server.py")
PROGRAM = (sys.executable, SERVER)
ADD = ("add", {"one": 8, "other": 46})
slow = pytest.mark.slow  # A server takes two seconds to start.


def calls(tool, *calls):
    """The observation of each call (tool, arguments), or the error instead of it."""

    async def work():
        found = []
        try:
            toolbox = await Toolbox.of([tool])
            for name, arguments in calls:
                try:
                    found.append(await toolbox.call(name, arguments, {}))
                except ToolError as error:
                    found.append(str(error))
        finally:
            await tool.close()
        return found

    return asyncio.run(work())


@contextmanager
def http_server():
    """A server on a free port, as its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started(port):
        yield port


@contextmanager
def started(port):
    process = subprocess.Popen([*PROGRAM, str(port)], stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


@slow
def test_a_program_is_started_and_its_tools_are_those_of_the_policy(monkeypatch):
    monkeypatch.setenv("GIVEN", "yes")
    monkeypatch.setenv("SECRET", "no")
    tool = Mcp(command=PROGRAM, environment=("GIVEN",))
    found = calls(
        tool,
        ADD,
        ("add", {"one": "eight", "other": 46}),
        ("fail", {"why": "bad"}),
        ("picture", {}),
        ("nothing", {}),
        ("variable", {"name": "GIVEN"}),
        ("variable", {"name": "SECRET"}),
    )
    text, status = found.pop(1)  # The server checks the arguments.
    assert "one\n  Input should be a valid integer" in text
    assert status == "error"
    assert found == [
        Observation("54"),
        Observation("Error executing tool fail", "error"),
        Observation("a dot\n[image: image/png]"),
        Observation('{"result": null}'),
        Observation("yes"),
        Observation("not set"),
    ]


@slow
def test_a_server_that_dies_in_the_middle_is_missing_and_comes_back():
    found = calls(Mcp(command=PROGRAM, allow=("add", "die")), ADD, ("die", {}), ADD)
    assert found == [
        Observation("54"),
        "mcp: die: Connection closed",
        Observation("54"),
    ]


@slow
def test_a_call_that_never_ends_is_missing():
    tool = Mcp(command=PROGRAM, timeout_s=3)
    assert calls(tool, ("wait", {}), ADD) == [
        "mcp: wait: no answer in 3 s",
        Observation("54"),
    ]


@slow
def test_a_server_over_http_that_dies_and_is_started_again():
    async def work(port):
        tool = Mcp(url=f"http://127.0.0.1:{port}/mcp", prefix="my_", read_only=True)
        try:
            toolbox = await Toolbox.of([tool])
            assert await toolbox.call("my_add", ADD[1], {}) == Observation("54")
            with pytest.raises(ToolError, match=r"^mcp: die: "):
                await toolbox.call("my_die", {}, {})
            with pytest.raises(ToolError, match=r"^mcp: add: .*All connection attempts failed"):
                await toolbox.call("my_add", ADD[1], {})
            with started(port):
                assert await toolbox.call("my_add", ADD[1], {}) == Observation("54")
        finally:
            await tool.close()

    with http_server() as port:
        asyncio.run(work(port))


@slow
def test_a_read_only_server_is_cached(tmp_path):
    (tool,) = cached([Mcp(command=PROGRAM, read_only=True)], "read_write", tmp_path / "t.sqlite")
    assert calls(tool, ADD) == [Observation("54")]
    (again,) = cached([Mcp(command=PROGRAM, read_only=True)], "read_only", tmp_path / "t.sqlite")
    found = calls(again, ADD, ("add", {"one": 1, "other": 1}))
    assert found[0] == Observation("54")
    assert found[1].startswith("the tool cache is read-only and has no observation of add(")


@slow
def test_a_tool_that_the_server_does_not_have():
    with pytest.raises(RecipeError) as error:
        Mcp(command=PROGRAM, allow=("ad",)).preflight()
    assert str(error.value) == "mcp: the server has no tool 'ad'; did you mean 'add'?"


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", __file__])
def test_a_program_that_is_not_there_is_found_without_starting_it(program):
    with pytest.raises(RecipeError) as error:
        Mcp(command=(program, "--port", "1")).check()
    assert str(error.value) == (
        f"the program '{program}' of `command` is not found; install it, or give its path"
    )
    Mcp(command=("sh",)).check()
    Mcp(url="http://127.0.0.1:9/mcp").check()


@pytest.mark.slow
def test_a_server_that_is_none():
    for fields, message in [
        ({"command": ("/no/such/program",)}, "[Errno 2] No such file or directory"),
        ({"command": ("true",)}, "Connection closed"),
        ({"url": "http://127.0.0.1:9/mcp"}, "All connection attempts failed"),
    ]:
        with pytest.raises(EngineError) as error:
            Mcp(**fields).preflight()
        text = str(error.value)
        assert text.startswith("mcp: the server gives no list of its tools: ")
        assert message in text


@pytest.mark.slow
def test_a_server_that_does_not_answer():
    with pytest.raises(EngineError) as error:
        Mcp(command=("sh", "-c", "cat > /dev/null"), start_s=0.2).preflight()
    assert str(error.value) == (
        "mcp: the server gives no list of its tools: no answer in 0.2 s; is the server right?"
    )


def hostile(fault, schema=None, **fields):
    """A server that does one thing wrong; its process starts at once."""
    given = [] if schema is None else [json.dumps(schema)]
    return Mcp(
        command=(sys.executable, str(SUPPORT / "hostile_mcp_server.py"), fault, *given), **fields
    )


NO_LIST = "mcp: the server gives no list of its tools: {}; is the server right?"
BAD_TOOL = "mcp: {}: the tool {}; leave it out by `allow`, or correct the server"


@slow
def test_what_is_wrong_with_a_server_is_one_line_before_anything_is_sampled():
    for fault, error, found in [
        ("endless_pages", EngineError, "it has more than 100 pages"),
        ("same_cursor", EngineError, "it has more than 100 pages"),
        ("tools_of_wrong_type", EngineError, "tools: Input should be a valid list"),
        ("no_list", EngineError, "no answer in 0.5 s"),
        ("same_name", RecipeError, "'act' is there twice"),
        ("escape_in_name", RecipeError,
         r"'act\x1b[31m' has a name that is not 1 to 128 printable letters"),
        ("long_description", RecipeError,
         "'act' has a description and a schema of 1,024 KiB, more than 128"),
    ]:  # fmt: skip
        allow = ("act",) if fault == "same_name" else None
        start_s = 0.5 if fault == "no_list" else 60
        tool = hostile(fault, start_s=start_s, allow=allow)
        with pytest.raises(error) as caught:
            tool.preflight()
        server = " ".join(tool.command)[:128]
        expected = NO_LIST.format(found) if error is EngineError else BAD_TOOL.format(server, found)
        assert str(caught.value) == expected, fault


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": 5},
        {"properties": ["x"]},
        {"required": 5},
        {"required": [5]},
        {"type": "array"},
    ],
)
def test_a_schema_that_is_not_of_an_object_is_one_line_that_names_the_tool(schema):
    tool = SimpleNamespace(name="act", description="", input_schema=schema)
    with pytest.raises(RecipeError, match="the tool 'act' has a schema that is not of an object"):
        Mcp(url="u")._function(None, tool)
    tool.input_schema = {"type": "object", "properties": {"x": {}}, "required": ["x"]}
    assert Mcp(url="u")._function(None, tool).parameters == tool.input_schema


@slow
def test_a_call_that_goes_wrong_is_missing_and_the_next_one_is_made(capfd, caplog):
    for fault, found in [
        ("garbage", Observation("done")),
        ("no_answer", "mcp: act: no answer in 0.5 s"),
        ("progress", "mcp: act: no answer in 0.5 s"),
        ("other_id", "mcp: act: no answer in 0.5 s"),
        ("deep_result", "mcp: act: no answer in 0.5 s"),
        ("result_of_wrong_type", "mcp: act: content: Input should be a valid list"),
        ("bad_arguments", Observation("text is missing", "bad_arguments")),
        ("internal_error", "mcp: act: out of order"),
        ("other_output_schema", Observation("done")),
    ]:
        assert calls(hostile(fault, timeout_s=0.5), ("act", {})) == [found], fault
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


@pytest.mark.parametrize("fields", [{}, {"command": ["x"], "url": "u"}, {"command": []}])
def test_a_server_is_a_program_or_an_address(fields):
    with pytest.raises(ValueError, match="either `command`, a program, or `url`, an address"):
        Mcp(**fields)


def test_calls_may_change_something_unless_the_recipe_knows_better():
    assert not Mcp(url="u").is_read_only()
    assert Mcp(url="u", read_only=True).is_read_only()
