"""What is called, what is kept, and what is missing, in each mode of the tool cache."""

import asyncio
from typing import ClassVar

import pytest
from pydantic import TypeAdapter

from rejuice.operators import EngineError, RecipeError
from rejuice.operators.agents.tool import Observation, Tool, ToolError
from rejuice.operators.agents.toolbox import CachedTool, Toolbox, ToolCacheMode, cached
from rejuice.operators.agents.tools.calculator import Calculator

CALLS: list[str] = []
GATES: list[asyncio.Event] = []


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()
    GATES.clear()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "tools.answers"


class Weather(Tool):
    """Ask for the weather, which costs something."""

    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset({"key"})
    unit: str = "C"
    key: str = ""

    async def call(self, city: str, days: int = 1, *, task) -> str:
        CALLS.append(city)
        for gate in GATES:
            await gate.wait()
        if city == "Atlantis":
            raise ValueError("there is no such city")
        if city == "down":
            raise ToolError("the service is down")
        return f"{city}, {days}: {len(CALLS)} {self.unit} {task['season']}"

    def reads(self):
        return ("season",)


class Order(Tool):
    """Order something, which changes the world."""

    async def call(self, what: str) -> str:
        CALLS.append(what)
        return f"ordered {len(CALLS)}"

    def is_read_only(self):
        return False


def calls(tools, *calls, season="summer"):
    """The observation of each call (tool, arguments), or the error instead of it."""

    async def work():
        found = []
        toolbox = await Toolbox.of(tools)
        for name, arguments in calls:
            try:
                found.append(await toolbox.call(name, arguments, {"season": season, "other": 1}))
            except ToolError as error:
                found.append(error)
        for tool in tools:
            await tool.close()
        return found

    return asyncio.run(work())


ROME = ("weather", {"city": "Rome", "days": 2})


def test_what_is_known_is_not_called_again(path):
    tools = cached([Weather()], "read_write", path)
    assert calls(tools, ROME, ROME) == [Observation("Rome, 2: 1 C summer")] * 2
    again = cached([Weather(key="another")], "read_write", path)
    assert calls(again, ("weather", '{"days": 2, "city": "Rome"}')) == [
        Observation("Rome, 2: 1 C summer")
    ]
    assert CALLS == ["Rome"]


@pytest.mark.parametrize(
    ("tool", "call", "season"),
    [
        (Weather(unit="F"), ROME, "summer"),
        (Weather(), ("weather", {"city": "Rome", "days": 3}), "summer"),
        (Weather(), ROME, "winter"),
    ],
)
def test_what_decides_the_observation_is_in_the_key(path, tool, call, season):
    calls(cached([Weather()], "read_write", path), ROME)
    calls(cached([tool], "read_write", path), call, season=season)
    assert len(CALLS) == 2


def test_errors_of_the_call_are_kept_and_failures_of_the_tool_are_not(path):
    tools = cached([Weather()], "read_write", path)
    wrong, down = ("weather", {"city": "Atlantis"}), ("weather", {"city": "down"})
    found = calls(tools, wrong, wrong, down, down)
    assert found[:2] == [Observation("there is no such city", "error")] * 2
    assert [str(error) for error in found[2:]] == ["the service is down"] * 2
    assert CALLS == ["Atlantis", "down", "down"]


def test_read_only_calls_nothing(path):
    calls(cached([Weather()], "read_write", path), ROME)
    CALLS.clear()
    tools = cached([Weather(), Calculator()], "read_only", path)
    found = calls(
        tools,
        ROME,
        ("weather", {"city": "Oslo"}),
        ("weather", {"town": "Oslo"}),
        ("calculator", {"expression": "2 * 3"}),
    )
    assert found[0] == Observation("Rome, 2: 1 C summer")
    assert isinstance(found[1], ToolError)
    assert str(found[1]) == (
        'the tool cache is read-only and has no observation of weather({"city": "Oslo"})'
    )
    assert found[2] == Observation("city: Field required", "bad_arguments")
    assert found[3] == Observation("6")
    assert CALLS == []


def test_read_only_needs_no_server(path, monkeypatch):
    checked = []
    monkeypatch.setattr(Weather, "preflight", lambda tool: checked.append(tool))
    calls(cached([Weather()], "read_write", path), ROME)
    for mode in ("read_only", "read_write"):
        for tool in cached([Weather()], mode, path):
            tool.preflight()
    assert len(checked) == 1


def test_read_only_without_a_file(path):
    with pytest.raises(RecipeError) as error:
        cached([Weather()], "read_only", path)
    assert str(error.value) == (
        f"`tool_cache: read_only`, but there is no tool cache {path}; "
        "fill it with `tool_cache: read_write`"
    )
    assert cached([Calculator()], "read_only", path) == (Calculator(),)


def test_read_only_with_a_tool_that_changes_something(path):
    with pytest.raises(RecipeError) as error:
        cached([Order()], "read_only", path)
    assert str(error.value) == (
        "`tool_cache: read_only`, but calls of the tool 'order' may change something, so they are "
        "not kept; leave one of them out"
    )


def test_tools_that_cost_nothing_or_change_something_are_left_alone(path):
    tools = (Order(), Calculator())
    assert cached(tools, "read_write", path) == tools
    assert cached((Weather(),), "off", path) == (Weather(),)
    assert not path.exists()


def test_the_same_call_at_the_same_time_is_made_once(path):
    async def work():
        gate = asyncio.Event()
        GATES.append(gate)
        (tool,) = cached([Weather()], "read_write", path)
        toolbox = await Toolbox.of([tool])
        tasks = [asyncio.ensure_future(toolbox.call(*ROME, {"season": "summer"})) for _ in range(8)]
        while not CALLS:
            await asyncio.sleep(0)
        tasks[0].cancel()  # The time of a trajectory is over; the others still wait.
        gate.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await tool.close()
        return found

    first, *others = asyncio.run(work())
    assert isinstance(first, asyncio.CancelledError)
    assert others == [Observation("Rome, 2: 1 C summer")] * 7
    assert CALLS == ["Rome"]


def test_a_cached_tool_is_the_tool_in_all_else(path):
    tool = Weather(unit="F")
    (wrapped,) = cached([tool], "read_write", path)
    assert isinstance(wrapped, CachedTool)
    assert wrapped.reads() == tool.reads()
    assert wrapped.cache_key_fields() == tool.cache_key_fields()
    names = asyncio.run(described_by(wrapped)), asyncio.run(described_by(tool))
    assert names[0] == names[1]


async def described_by(tool):
    found = [each[:3] for each in await tool.functions()]
    await tool.close()
    return found


def test_a_path_that_cannot_be_used(path):
    path.parent.mkdir(exist_ok=True)
    path.write_text("a file")
    with pytest.raises(EngineError) as error:
        calls(cached([Weather()], "read_write", path), ROME)
    assert all(each in str(error.value) for each in (str(path), "`tool_cache_path`"))


def test_off_is_a_truth_value_in_yaml():
    mode = TypeAdapter(ToolCacheMode)
    assert [mode.validate_python(each) for each in (False, "off", "read_only")] == [
        "off",
        "off",
        "read_only",
    ]
    with pytest.raises(ValueError, match="'off', 'read_write' or 'read_only'"):
        mode.validate_python(True)
