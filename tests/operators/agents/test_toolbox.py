"""Tools of one name, and calls with plain text, for a policy that writes no JSON."""

import asyncio

import pytest

from rejuice.operators import RecipeError
from rejuice.operators.agents.tool import Observation, Tool
from rejuice.operators.agents.toolbox import Toolbox


class Repeat(Tool):
    """Say something again."""

    async def call(self, text: str, times: int = 2) -> str:
        return " ".join([text] * times)


class Choose(Tool):
    """Choose with two required arguments."""

    async def call(self, one: str, other: str) -> str:
        return f"{one} or {other}"


class Wait(Tool):
    """Take no arguments."""

    async def call(self) -> str:
        return "done"


class Maybe(Tool):
    """Require nothing."""

    async def call(self, number: int = 1, word: str = "a") -> str:
        return f"{number} {word}"


def test_two_functions_of_one_name():
    with pytest.raises(RecipeError) as error:
        asyncio.run(Toolbox.of([Wait(), Wait()]))
    assert str(error.value) == (
        "tools: two tools are called 'wait'; "
        "leave one of them out, or give those of an MCP server a `prefix`"
    )


@pytest.mark.parametrize(
    ("name", "text", "observation"),
    [
        ("repeat", "tea", Observation("tea tea")),
        ("repeat", '{"text": "tea", "times": 3}', Observation("tea tea tea")),
        ("repeat", '"tea"', Observation('"tea" "tea"')),
        ("repeat", "3", Observation("3 3")),
        ("repeat", "{tea}", Observation("{tea} {tea}")),
        ("maybe", "7", Observation("7 a")),
        ("choose", "tea", Observation("other: Field required", "bad_arguments")),
        ("wait", "{}", Observation("done")),
        (
            "none",
            "tea",
            Observation(
                "there is no tool 'none'; the tools are: repeat, choose, wait, maybe",
                "unknown_tool",
            ),
        ),
    ],
)
def test_plain_text_is_the_argument_that_is_required(name, text, observation):
    async def work():
        toolbox = await Toolbox.of([Repeat(), Choose(), Wait(), Maybe()])
        return await toolbox.call(name, toolbox.arguments_of(name, text), {})

    assert asyncio.run(work()) == observation


def test_a_function_without_arguments_takes_no_text():
    async def work():
        toolbox = await Toolbox.of([Wait()])
        return await toolbox.call("wait", toolbox.arguments_of("wait", "a while"), {})

    found = asyncio.run(work())
    assert (found.status, found.text[:24]) == ("bad_arguments", "the arguments are no JSO")
