"""A server that takes tool calls and thoughts out of the text: the flow sees the text as written."""

import pytest
from fake_chat import FakeChat

from rejuice.operators.agents.flows.react import React
from rejuice.operators.agents.runner import AgentRunner
from rejuice.operators.agents.tools.calculator import Calculator
from rejuice.operators.agents.trajectory import POLICY, SeededTask, Task
from rejuice.operators.sampling.openai_engine import OpenAIEngine
from rejuice.operators.sampling.protocol import OpenAIOptions, Settings

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
QUICK = {"back_off_s": 0.002, "patience_s": 60.0, "attempts": 3, "api": "chat"}


class Parsing(FakeChat):
    """Gives these messages, one after the other, with the finish reasons of such a server."""

    def __init__(self, *messages):
        self.messages, self.sent = messages, []
        super().__init__()

    def seed_and_n(self, body):
        return 1, 1

    def answer(self, path, body, seed, attempt, n):
        self.sent.append(body)
        message = self.messages[min(attempt, len(self.messages) - 1)]
        ending = "tool_calls" if message.get("tool_calls") else "stop"
        ending = message.get("ending", ending)
        return {"choices": [{"index": 0, "finish_reason": ending, "message": message}]}


def call(arguments):
    return {
        "content": None,
        "tool_calls": [{"function": {"name": "calculator", "arguments": arguments}}],
    }


def play(*messages, flow=None, **server):
    with Parsing(*messages) as serving:
        options = OpenAIOptions(base_url=serving.url, server=server, **QUICK)
        engine = OpenAIEngine("m", options, exact=False)
        runner = AgentRunner(
            flow or React(max_turns=3), [Calculator()], engine, Settings(max_tokens=30),
            policy="m", encode=None,
        )  # fmt: skip
        try:
            task = SeededTask(Task("p", (("user", "3 * 4?"),), {}), 1 << 60)
            ((_, group),) = runner.run([task], 1)
        finally:
            runner.close()
            engine.close()
        (trajectory,) = group.trajectories
        return trajectory, serving.sent, group


ANSWER = {"content": '{"answer": "12"}'}


def test_a_call_that_the_server_took_out_is_carried_out():
    trajectory, sent, group = play(call('{"expression": "3*4"}'), ANSWER)
    assert (trajectory.response, trajectory.finish_reason) == ("12", "stop")
    first, tool, _ = trajectory.turns
    assert first.text == (
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "3*4"}}\n</tool_call>'
    )
    assert (tool.tool, tool.observation, tool.status) == ("calculator", "12", "ok")
    assert sent[1]["messages"][-1]["content"] == f"3 * 4?\n{first.text}\n-> 12"
    assert group.seed == 1 << 60


def test_arguments_that_are_no_json_are_the_policys_own_doing():
    trajectory, *_ = play(call('{"expression": '), ANSWER)
    assert trajectory.turns[1].status == "bad_arguments"
    assert trajectory.turns[1].observation.startswith("the arguments are no JSON: ")
    assert trajectory.response == "12"


def test_latex_in_arguments_stays_latex():
    trajectory, *_ = play(call(r'{"expression": "\frac{24}{2}"}'), ANSWER)
    assert r"\\frac{24}{2}" in trajectory.turns[1].arguments


@pytest.mark.parametrize("form", ["json", "lines"])
def test_a_thought_that_the_server_took_out_is_part_of_the_turn_and_of_no_later_one(form):
    acts = {"json": '{"tool": "calculator", "arguments": {"expression": "3*4"}}',
            "lines": "calculate: 3*4"}  # fmt: skip
    answers = {"json": '{"answer": "12"}', "lines": "answer: 12"}
    messages = ({"content": each[form], "reasoning": "So."} for each in (acts, answers))
    trajectory, sent, _ = play(*messages, flow=React(format=form))
    assert trajectory.response == "12"
    turns = [turn.text for turn in trajectory.turns if turn.role == POLICY]
    assert turns[1] == f"<think>\nSo.\n</think>\n\n{answers[form]}"
    assert "So." not in sent[1]["messages"][-1]["content"]


def test_a_turn_that_is_cut_within_its_thought_is_no_action():
    cut = {"content": None, "reasoning": f"I would say {ANSWER['content']}", "ending": "length"}
    trajectory, *_ = play(cut, ANSWER)
    assert [turn.status for turn in trajectory.turns] == [None, "malformed", None]
    assert trajectory.turns[0].text.startswith("<think>\nI would say ")


def test_a_server_that_takes_no_seed_is_recorded_without_one():
    trajectory, sent, group = play(ANSWER, seed="none", one_sample_per_request=True)
    assert (group.seed, trajectory.turns[0].seed) == (None, None)
    assert not {"seed", "n"} & sent[0].keys()
