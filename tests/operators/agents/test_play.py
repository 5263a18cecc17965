"""One trajectory: its budgets, its record, and how it ends."""

import asyncio
import re

import pytest
from played import END, Says, ScriptedPolicy, encode, played

from rejuice.operators.agents import Flow, Observation, Tool, ToolError
from rejuice.operators.agents.flows.react import React
from rejuice.operators.agents.play import TrajectoryEnd
from rejuice.operators.agents.trajectory import FAILURES, POLICY_ENDS, Turn, columns_of
from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.protocol import Failure, turn_seed


class Echo(Tool):
    """Repeat a text."""

    async def call(self, text: str) -> str:
        return text


class Broken(Tool):
    """Fail in many ways."""

    async def call(self, how: str) -> Observation:
        if how == "down":
            raise ToolError("no answer from http://x")
        if how == "hang":
            await asyncio.Event().wait()
        if how == "bug":
            raise KeyError("place")
        raise ValueError("the policy's fault")


class Repeats(Flow):
    """Acts until a budget ends."""

    async def run(self, task, play):
        while True:
            await play.act(task.messages)


TOOLS = (Echo(), Broken())
LINES = {"format": "lines"}


def ended(trajectory):
    return trajectory.response, trajectory.finish_reason


def test_every_turn_is_recorded():
    found = played(React(**LINES), "echo: a b", "answer: c", tools=TOOLS)
    first = encode((("user", "why?"),))
    second = encode((("user", "why?\necho: a b\n-> a b"),))
    assert ended(found) == ("c", "stop")
    assert found.turns == (
        Turn(
            role="policy",
            text="echo: a b",
            prompt_token_ids=tuple(first),
            token_ids=(*b"echo: a b", END),
            logprobs=(-1.0,) * 10,
            finish_reason="stop",
            policy_version=3,
            seed=turn_seed(7, 0, 0),
        ),
        Turn(role="tool", tool="echo", arguments="a b", observation="a b", status="ok"),
        Turn(
            role="policy",
            text="answer: c",
            prompt_token_ids=tuple(second),
            token_ids=(*b"answer: c", END),
            logprobs=(-1.0,) * 10,
            finish_reason="stop",
            policy_version=3,
            seed=turn_seed(7, 0, 1),
        ),
    )


# --- budgets --------------------------------------------------------------------------------


def test_turns():
    found = played(React(**LINES, max_turns=2), "echo: a", "echo: b", tools=TOOLS)
    assert ended(found) == ("", "turn_limit")
    assert [turn.observation for turn in found.turns if turn.role == "tool"] == ["a", "b"]


@pytest.mark.parametrize("most", [0, 1])
def test_tool_calls(most):
    found = played(React(**LINES, max_tool_calls=most), *["echo: a"] * 2, tools=TOOLS)
    assert ended(found) == ("", "call_limit")
    assert sum(turn.role == "tool" for turn in found.turns) == most


def test_a_malformed_action_is_no_tool_call():
    found = played(React(**LINES, max_tool_calls=0), "hm", "answer: a", tools=TOOLS)
    assert ended(found) == ("a", "stop")
    columns = columns_of([found])
    assert [columns[name].to_pylist() for name in ("tool_calls", "tool_errors")] == [[0], [1]]


def test_tokens_of_a_trajectory():
    policy = ScriptedPolicy("a" * 9, "a" * 5, "a" * 40)
    found = played(Repeats(trajectory_tokens=24), policy=policy, max_tokens=20)
    assert [prompt.max_tokens for prompt in policy.prompts] == [20, 14, 8]
    assert [len(turn.token_ids) for turn in found.actions] == [10, 6, 8]
    assert ended(found) == ("", "length")


@pytest.mark.parametrize(("own", "whole"), [(30, None), (None, 30), (30, 99), (99, 30)])
def test_a_prompt_that_is_too_long_is_not_truncated(own, whole):
    policy = ScriptedPolicy("echo: 123456789", "answer: a")
    flow = React(**LINES, max_prompt_tokens=own)
    found = played(flow, policy=policy, tools=TOOLS, max_prompt_tokens=whole)
    assert ended(found) == ("", "context_full")
    assert found.detail == "38 tokens, and a prompt may have 30"
    assert [prompt.token_ids for prompt in policy.prompts] == [(*b"u:why?", END, *b"a:")]


def test_a_prompt_that_the_engine_finds_too_long():
    found = played(Repeats(), "a", Failure("prompt_too_long", "600 tokens"))
    assert (*ended(found), found.detail) == ("", "context_full", "600 tokens")


def test_observations_are_cut_with_a_marker():
    text = "".join(map(str, range(200)))
    flow = React(**LINES, max_observation=64)
    found = played(flow, f"echo: {text}", "answer: a", tools=TOOLS, max_tokens=1000)
    seen = found.turns[1].observation
    assert seen == f"{text[:42]}\n[… 426 characters left out …]\n{text[-22:]}"
    assert f"-> {seen}".encode() in bytes(found.turns[2].prompt_token_ids)


@pytest.mark.parametrize("who", ["tool", "model"])
def test_time(who):
    """The clock is the loop's, which skips the waiting."""

    class Hangs:
        async def ask(self, messages):
            await asyncio.Event().wait()

        async def close(self): ...

    class Asks(React):
        async def run(self, task, play):
            await play.call("echo", {"text": "a"})
            return await play.ask("judge", task.messages)

    flow = {"tool": React, "model": Asks}[who](**LINES, seconds=20)
    found = played(flow, "echo: a", "broken: hang", tools=TOOLS, models={"judge": Hangs()})
    seen = "tools and models took longer than 20 s"
    assert (*ended(found), found.detail) == (None, "time_limit", seen)
    assert [turn.role for turn in found.turns][-1] == {"tool": "policy", "model": "tool"}[who]


class Slow(ScriptedPolicy):
    """Each of its turns waits for those of others, for minutes."""

    async def sample(self, prompt, max_tokens):
        await asyncio.sleep(100)
        return await super().sample(prompt, max_tokens)


class Naps(Tool):
    """Take a while."""

    async def call(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "well rested"


@pytest.mark.parametrize(("naps", "end"), [((9, 9), "stop"), ((9, 12), "time_limit")])
def test_time_in_which_the_engine_is_busy_does_not_count(naps, end):
    policy = Slow(*(f"naps: {seconds}" for seconds in naps), "answer: a")
    found = played(React(**LINES, seconds=20), policy=policy, tools=[Naps()])
    assert found.finish_reason == end
    assert len(policy.prompts) == {"stop": 3, "time_limit": 2}[end]
    assert found.tool_seconds == pytest.approx({"stop": 18, "time_limit": 20}[end], abs=0.5)


def test_time_of_a_flow_that_samples_two_turns_at_once():
    class Twice(Flow):
        async def run(self, task, play):
            await asyncio.gather(play.act(task.messages), play.act(task.messages))
            await play.call("naps", {"seconds": 19})
            return "a"

    policy = Slow("one", "two")
    found = played(Twice(seconds=20), policy=policy, tools=[Naps()])
    assert ended(found) == ("a", "stop")


# --- failures -------------------------------------------------------------------------------


def test_what_the_policy_does_wrong_is_an_observation():
    says = ["broken: x", "ecko: a", "hm", '{"tool": "echo"}', "answer: a"]
    found = played(React(**LINES), *says, tools=TOOLS)
    assert ended(found) == ("a", "stop")
    seen = [(turn.status, turn.observation) for turn in found.turns if turn.role == "tool"]
    assert seen[:3] == [
        ("error", "the policy's fault"),
        ("unknown_tool", "there is no tool 'ecko'; the tools are: echo, broken"),
        ("malformed", "expected one line: echo: ... or broken: ... or answer: ..."),
    ]


def test_a_tool_that_cannot_be_used():
    found = played(React(**LINES), "broken: down", tools=TOOLS)
    assert ended(found) == (None, "tool_failed")
    assert found.detail == "broken: no answer from http://x"


def test_a_tool_with_a_bug():
    found = played(React(**LINES), "broken: bug", "answer: 4", tools=TOOLS)
    (seen,) = [turn for turn in found.turns if turn.status is not None]
    assert (seen.status, seen.observation) == ("error", "KeyError: 'place'")


def test_a_later_turn_that_cannot_be_sampled():
    found = played(Repeats(), "a", Failure("timeout", "no answer in 5 s"))
    assert ended(found) == (None, "sampling_failed")
    assert found.detail == "timeout: no answer in 5 s"
    assert len(found.turns) == 1


def test_a_frozen_model_that_gives_no_answer():
    class Asks(Flow):
        async def run(self, task, play):
            return await play.ask("judge", task.messages)

    found = played(Asks(), models={"judge": Says(None)})
    assert (*ended(found), found.detail) == (None, "model_failed", "judge: the server is down")


def test_time_runs_out_after_the_turns_of_the_policy():
    """Whatever the frozen model would have answered is unknown: it is missing, and not wrong."""

    class Answers(Flow):
        async def run(self, task, play):
            try:
                while True:
                    await play.act(task.messages)
            except TrajectoryEnd:
                return await play.ask("generator", task.messages)

    class Hangs(Says):
        async def ask(self, messages):
            await asyncio.Event().wait()

    flow = Answers(max_turns=1, seconds=5)
    assert ended(played(flow, "hm", models={"generator": Hangs()})) == (None, "time_limit")


def test_turns_of_frozen_models_have_no_tokens():
    class Asks(Flow):
        async def run(self, task, play):
            await play.act(task.messages)
            return await play.ask("judge", task.messages)

    found = played(Asks(), "hm", models={"judge": Says("yes")})
    assert found.turns[1] == Turn(role="judge", text="yes")
    assert [turn.text for turn in found.actions] == ["hm"]


def test_every_reason_is_known():
    assert not POLICY_ENDS.keys() & FAILURES.keys()


# --- flows that misbehave -------------------------------------------------------------------


def test_no_answer_counts_after_a_failure():
    seen = []

    class GoesOn(Flow):
        async def run(self, task, play):
            for tool, text in (("broken", "down"), ("echo", "a")):
                try:
                    await play.call_text(tool, text)
                except TrajectoryEnd as end:
                    seen.append(end.reason)
            return "an answer"

    found = played(GoesOn(), tools=TOOLS)
    assert seen == ["tool_failed", "tool_failed"]
    assert (*ended(found), found.turns) == (None, "tool_failed", ())


def test_an_answer_counts_after_a_budget_has_ended():
    class Answers(Flow):
        async def run(self, task, play):
            try:
                while True:
                    await play.act(task.messages)
            except TrajectoryEnd:
                return await play.ask("generator", task.messages)

    found = played(Answers(max_turns=1), "hm", models={"generator": Says("42")})
    assert ended(found) == ("42", "turn_limit")
    assert [turn.role for turn in found.turns] == ["policy", "generator"]


def test_an_error_of_the_engine_cannot_be_swallowed():
    class Hopes(Flow):
        async def run(self, task, play):
            try:
                await play.act(task.messages)
            except Exception:
                return "fine"

    with pytest.raises(EngineError, match=r"^the engine is gone$"):
        played(Hopes(), EngineError("the engine is gone"))


def test_a_bug_of_a_flow_fails_its_trajectory():
    class Bug(Flow):
        async def run(self, task, play):
            raise KeyError("x")

    class Cancels(Flow):
        async def run(self, task, play):
            raise asyncio.CancelledError

    class Number(Flow):
        async def run(self, task, play):
            return 42

    details = {
        Bug: r"bug: KeyError: 'x' \(test_play.py, line \d+, in run\)",
        Cancels: "cancels: it cancelled itself",
        Number: "number: it returned int, not text or None",
    }
    for flow, detail in details.items():
        found = played(flow())
        assert (found.finish_reason, found.response) == ("flow_failed", None)
        assert re.fullmatch(detail, found.detail)


def test_what_utf_8_cannot_express_becomes_a_question_mark():
    class Half(Flow):
        async def run(self, task, play):
            await play.call("echo", {"text": "a\ud800", "more": 1 << 70})
            return "b\udfff"

    found = played(Half(), tools=TOOLS)
    assert found.response == "b?"
    assert found.turns[0].arguments == f'{{"text": "a?", "more": {1 << 70}}}'
    columns_of([found])
