"""What the policy of a ReAct flow reads, and what its actions do."""

import orjson
from played import ScriptedPolicy, played, task

from rejuice.operators.agents import Tool
from rejuice.operators.agents.flows.react import PastStep, React, messages
from rejuice.operators.agents.tools.calculator import Calculator

WIDE = 10_000


class Search(Tool):
    """Search the documents of the task."""

    async def call(self, query: str, *, task) -> str:
        return task["documents"][query]

    def reads(self):
        return ("documents",)


def seen(policy):
    return [prompt.messages for prompt in policy.prompts]


def test_lines_are_the_question_and_what_happened():
    policy = ScriptedPolicy("search: apples", "hm\nhm", "calculate: 8 * 46", "answer: 368")
    about = task("How much are 8?", documents={"apples": "apples are 46"})
    found = played(
        React(format="lines"), policy=policy, about=about, tools=(Search(), Calculator()),
        max_tokens=WIDE,
    )  # fmt: skip
    assert found.response == "368"
    first = "How much are 8?\nsearch: apples\n-> apples are 46"
    second = f"{first}\nhm hm\n-> expected one line: search: ... or calculate: ... or answer: ..."
    assert seen(policy) == [
        (("user", "How much are 8?"),),
        (("user", first),),
        (("user", second),),
        (("user", f"{second}\ncalculate: 8 * 46\n-> 368"),),
    ]
    tools = [(turn.tool, turn.arguments) for turn in found.turns if turn.role == "tool"]
    assert tools == [("search", "apples"), (None, None), ("calculator", "8 * 46")]


def test_the_names_of_actions_can_be_chosen():
    flow = React(format="lines", actions={"look": "search"})
    about = task(documents={"a": "b"})
    found = played(flow, "hm", "look: a", "search: a", "answer: c", about=about, tools=[Search()])
    assert [turn.observation for turn in found.turns if turn.role == "tool"] == [
        "expected one line: look: ... or answer: ...", "b", "b",
    ]  # fmt: skip


def test_json_lists_the_tools_and_keeps_what_was_thought():
    call = '{"tool": "calculator", "arguments": {"expression": "8 * 46"}}'
    policy = ScriptedPolicy(
        f"<think>Hm.</think>I need a product. {call} Observation: 7", "368.", '{"answer": 368}'
    )
    flow = React()
    found = played(flow, policy=policy, tools=[Calculator()], max_tokens=WIDE)
    assert found.response == "368"
    (system, instructions), (user, question) = seen(policy)[0]
    assert (system, user, question) == ("system", "user", "why?")
    assert "{tools}" not in instructions
    described = orjson.loads(instructions.splitlines()[-1])
    assert described["name"] == "calculator"
    assert "expression" in described["parameters"]["properties"]
    last = seen(policy)[2]
    assert last[0] == ("system", instructions)
    assert last[1] == (
        "user",
        f"why?\nI need a product. {call}\n-> 368\n368.\n-> expected exactly one JSON object, "
        '{"tool": name, "arguments": {...}} or {"answer": "..."}',
    )


def test_instructions_of_the_recipe_stand_before_those_of_the_prompt():
    policy = ScriptedPolicy("answer: a")
    about = task()._replace(messages=(("system", "Be kind."), ("user", "why?")))
    flow = React(format="lines", instructions="Use: {tools}")
    played(flow, policy=policy, about=about)
    assert seen(policy) == [(("system", "Use: \n\nBe kind."), ("user", "why?"))]


def test_messages_leave_earlier_turns_of_the_prompt():
    prompt = (("user", "a"), ("assistant", "b"), ("user", "c"))
    assert messages(prompt, [PastStep("d", "e")], "s") == (
        ("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c\nd\n-> e"),
    )  # fmt: skip


def test_append_is_one_chat():
    """The first prompt has the instructions; what follows is the observation alone."""
    policy = ScriptedPolicy("calculate: 1 + 1", "answer: 2")
    flow = React(format="lines", context="append", instructions="s")
    found = played(flow, policy=policy, tools=[Calculator()])
    first, second = (bytes(prompt.token_ids) for prompt in policy.prompts)
    assert second == first + b"calculate: 1 + 1\0u:2\0a:"
    assert found.actions[1].prompt_token_ids == tuple(second)
