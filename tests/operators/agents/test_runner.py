"""Many trajectories at a time: each is what it would be alone."""

import asyncio
import logging
import random
import threading
import time

import pytest
from fake_server import FakeServer, Trouble
from hypothesis import given, settings
from hypothesis import strategies as st
from played import encode
from tiny_policy import save_policy
from wave_engine import WaveEngine

from rejuice.operators.agents import Flow, Task, Tool, ToolError
from rejuice.operators.agents.flows.react import React
from rejuice.operators.agents.runner import AgentRunner
from rejuice.operators.agents.tools.calculator import Calculator
from rejuice.operators.agents.trajectory import SeededTask
from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.openai_engine import OpenAIEngine
from rejuice.operators.sampling.protocol import Failure, OpenAIOptions, Settings, listening
from rejuice.operators.sampling.tokenizer import chat_encoder

SHORT = Settings(max_tokens=8)


def tasks(count, length=3):
    chats = [(("user", "why " * (1 + k % length)),) for k in range(count)]
    return [SeededTask(Task(str(k), chat, {}), k) for k, chat in enumerate(chats)]


class Opened:
    """Runners that are closed in the end."""

    def __init__(self):
        self.runners = []

    def __call__(self, engine, flow=None, tools=(), **fields):
        fields = {"policy": "p", "encode": encode, **fields}
        settings = fields.pop("settings", SHORT)
        flow = flow or React(format="lines", max_turns=3)
        self.runners.append(AgentRunner(flow, tools, engine, settings, **fields))
        return self.runners[-1]


@pytest.fixture
def open_runner():
    opened = Opened()
    yield opened
    for runner in opened.runners:
        runner.close()


# --- determinism ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    from rejuice.operators.sampling.transformers_engine import TransformersEngine

    folder = tmp_path_factory.mktemp("policy")
    save_policy(folder)
    return TransformersEngine(folder), chat_encoder(str(folder))


def without_rounding(group):
    """All of a group but its log-probabilities, whose last bits depend on the batch."""
    return [
        (each.response, each.finish_reason, [turn._replace(logprobs=None) for turn in each.turns])
        for each in group.trajectories
    ]


@pytest.fixture(scope="module")
def alone(tiny):
    """Each task by itself, a trajectory at a time."""
    engine, encode = tiny
    flow = React(format="lines", max_turns=2)
    runner = AgentRunner(flow, [], engine, SHORT, policy="p", encode=encode, under_way=1)
    found = [dict(runner.run([each], 2))[0] for each in tasks(4)]
    runner.close()
    return [without_rounding(each) for each in found]


@pytest.mark.slow  # It loads torch and transformers, as the next one.
@pytest.mark.usefixtures("one_thread")
@settings(max_examples=4, deadline=None)
@given(
    st.permutations(range(4)).flatmap(
        lambda order: st.integers(1, 4).map(lambda size: order[:size])
    ),
    st.integers(1, 9),
)
def test_nothing_beside_a_trajectory_decides_it(tiny, alone, order, under_way):
    engine, encode = tiny
    flow = React(format="lines", max_turns=2)
    runner = AgentRunner(flow, [], engine, SHORT, policy="p", encode=encode, under_way=under_way)
    some = tasks(4)
    for index, group in runner.run([some[k] for k in order], 2):
        assert without_rounding(group) == alone[order[index]]
        assert (group.policy, group.version, group.seed) == ("p", 0, some[order[index]][1])
    runner.close()


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_trajectories_of_a_task_differ(alone):
    assert len({repr(trajectory) for group in alone for trajectory in group}) == 8


def test_interleaved_trajectories_share_no_memory(open_runner):
    class Counts(Flow):
        async def run(self, task, play):
            for _ in range(3):
                play.memory[task.prompt_id] = play.memory.get(task.prompt_id, 0) + 1
                await play.act(task.messages)
            return repr(play.memory)

    engine = WaveEngine(lambda prompt: "x")
    for index, group in open_runner(engine, Counts()).run(tasks(4), 2):
        assert [each.response for each in group.trajectories] == [repr({str(index): 3})] * 2
    assert [len(wave) for wave in engine.waves] == [8, 8, 8]  # They were interleaved.


# --- waves and order ------------------------------------------------------------------------


def test_a_wave_has_a_turn_of_every_trajectory(open_runner):
    engine = WaveEngine(lambda prompt: "calculate: 1 + 1")
    runner = open_runner(engine, tools=[Calculator()])
    found = dict(runner.run(tasks(5), 4))
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert [len(wave) for wave in engine.waves] == [20, 20, 20]
    assert {each.finish_reason for g in found.values() for each in g.trajectories} == {"turn_limit"}


def test_further_trajectories_begin_as_others_end(open_runner):
    engine = WaveEngine(lambda prompt: "answer: a" if prompt.seed % 2 else "hm")
    assert len(dict(open_runner(engine, under_way=6).run(tasks(10), 4))) == 10
    assert max(len(wave) for wave in engine.waves) == 6
    assert [len(wave) for wave in engine.waves[:3]] == [6, 6, 6]


def test_waves_depend_neither_on_timing_nor_on_the_order_of_responses(open_runner):
    """So neither do the last bits of log-probabilities, which depend on the batch."""

    def waves(consumer_s, shuffle):
        class Shuffled(WaveEngine):
            def sample(self, prompts, settings):
                time.sleep(0.002)  # So that what ended during the wave is consumed or not.
                found = list(super().sample(prompts, settings))
                shuffle(found)
                yield from found

        engine = Shuffled(lambda prompt: "answer: a" if prompt.seed % 2 else "hm")
        for _ in open_runner(engine, under_way=8).run(tasks(24), 2):
            time.sleep(consumer_s)
        return [[(each.seed, each.token_ids) for each in wave] for wave in engine.waves]

    undisturbed = waves(0, lambda found: None)
    assert [len(wave) for wave in undisturbed[:8]] == [8] * 8
    for seed in range(3):
        assert waves(0.001 * seed, random.Random(seed).shuffle) == undisturbed


def test_tasks_are_taken_as_trajectories_end(open_runner):
    engine = WaveEngine(lambda prompt: "answer: a" if prompt.seed % 2 else "hm")
    taken, finished = 0, set()

    def each():
        nonlocal taken
        for task in tasks(60):
            taken += 1
            # As many trajectories as are under way wait, so at most 12 groups are unfinished.
            assert taken - len(finished) <= 12 + 1
            yield task

    for index, group in open_runner(engine, under_way=6).run(each(), 4):
        assert (group.seed, len(group.trajectories)) == (index, 4)
        finished.add(index)
    assert finished == set(range(60))
    assert max(len(wave) for wave in engine.waves) == 6


def test_groups_come_as_they_finish(open_runner):
    def says(prompt):
        return "answer: a" if prompt.messages[0][1].startswith("why why") else "hm"

    engine = WaveEngine(says)
    assert {index for index, _ in [*open_runner(engine).run(tasks(6, 2), 2)][:3]} == {1, 3, 5}
    stream = open_runner(WaveEngine(says)).run(tasks(6, 2), 2)
    next(stream)
    stream.close()  # What is under way is left.


def test_a_runner_runs_many_times_and_closes_its_tools(open_runner):
    class Counted(Tool):
        """Count."""

        async def call(self, text: str) -> str:
            return text

        async def close(self) -> None:
            closed.append(asyncio.get_running_loop())

    closed = []
    runner = open_runner(WaveEngine(lambda prompt: "answer: a"), tools=[Counted()])
    for _ in range(2):
        assert len(list(runner.run(tasks(3), 1))) == 3
        assert closed == []
    runner.close()
    runner.close()
    assert len(closed) == 1


def test_a_tool_that_cannot_be_closed_leaves_nothing_else_open(open_runner):
    class Closes(Tool):
        """Close."""

        async def call(self, text: str) -> str:
            return text

        async def close(self) -> None:
            closed.append(type(self))

    class Breaks(Closes):
        """Fail to close."""

        async def close(self) -> None:
            await super().close()
            raise OSError("the connection is lost")

    class HasModel(React):
        def models(self):
            return {"judge": Breaks()}

    closed, before = [], set(threading.enumerate())
    tools = [Breaks(), Closes()]
    flow = HasModel(format="lines", max_turns=3)
    runner = open_runner(WaveEngine(lambda prompt: "answer: a"), flow, tools)
    assert len(list(runner.run(tasks(1), 1))) == 1
    with pytest.raises(OSError, match="the connection is lost"):
        runner.close()
    assert closed == [Breaks, Closes, Breaks]
    assert not {each.name for each in set(threading.enumerate()) - before if "agents" in each.name}
    runner.close()
    assert len(closed) == 3


def test_no_tasks(open_runner):
    assert list(open_runner(WaveEngine(lambda prompt: "x")).run([], 3)) == []


def test_tokens_are_reported_to_whoever_iterates(open_runner):
    reported = []
    with listening(reported.append):
        list(open_runner(WaveEngine(lambda prompt: "answer: a")).run(tasks(2), 2))
    assert reported == [9] * 4


# --- failures -------------------------------------------------------------------------------


def test_a_prompt_whose_first_turn_cannot_be_sampled(open_runner):
    def says(prompt):
        return Failure("timeout", "no answer") if prompt.messages[0][1] == "why " else "answer: a"

    found = dict(open_runner(WaveEngine(says)).run(tasks(3), 2))
    assert found[0] == Failure("timeout", "no answer")
    assert [each.response for each in found[1].trajectories] == ["a", "a"]


def test_a_prompt_that_is_too_long_from_the_beginning(open_runner):
    runner = open_runner(WaveEngine(lambda prompt: "answer: a"), max_prompt_tokens=12)
    found = dict(runner.run(tasks(3), 2))
    assert found[2] == Failure("prompt_too_long", "17 tokens, and a prompt may have 12")
    assert found[0].trajectories[0].response == "a"


def test_a_first_turn_that_fails_in_some_trajectories(open_runner):
    engine = WaveEngine(lambda prompt: "answer: a")
    bad = None

    def says(prompt):
        nonlocal bad
        bad = prompt.seed if bad is None else bad
        return Failure("timeout", "x") if prompt.seed == bad else "answer: a"

    engine.says = says
    ((_, group),) = open_runner(engine).run(tasks(1), 3)
    ends = sorted((each.finish_reason, each.response) for each in group.trajectories[:])
    assert ends == [("sampling_failed", None), ("stop", "a"), ("stop", "a")]


def test_the_first_failure_of_a_kind_is_logged(open_runner, caplog):
    class Down(Tool):
        """Fail."""

        async def call(self, text: str) -> str:
            raise ToolError(f"no answer to {text}")

    engine = WaveEngine(lambda prompt: f"down: {prompt.seed % 7}")
    with caplog.at_level(logging.WARNING):
        ((_, group),) = open_runner(engine, tools=[Down()]).run(tasks(1), 5)
    assert {each.finish_reason for each in group.trajectories} == {"tool_failed"}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("a trajectory failed with tool_failed: down: no answer to ")


def test_an_error_of_the_engine_ends_the_run(open_runner):
    def says(prompt):
        if prompt.messages[0][1].count("why") == 3:
            raise EngineError("the engine is gone")
        return "hm"

    with pytest.raises(EngineError, match=r"^the engine is gone$"):
        list(open_runner(WaveEngine(says)).run(tasks(4), 2))


def test_a_bug_of_a_flow_fails_its_trajectories(open_runner):
    class Bug(Flow):
        async def run(self, task, play):
            await play.act(task.messages)
            return task.columns["no such"]

    for _, group in open_runner(WaveEngine(lambda prompt: "x"), Bug()).run(tasks(4), 2):
        for trajectory in group.trajectories:
            assert trajectory.finish_reason == "flow_failed"
            assert trajectory.detail.startswith("bug: KeyError: 'no such' (test_runner.py, line ")


def test_tools_that_cannot_be_opened(open_runner):
    class Gone(Tool):
        """Look for a server."""

        async def call(self) -> str:
            return ""

        async def functions(self):
            raise ToolError("http://x does not answer")

    engine = WaveEngine(lambda prompt: "x")
    with pytest.raises(EngineError) as raised:
        list(open_runner(engine, tools=[Gone()]).run(tasks(1), 2))
    assert str(raised.value) == "the tools cannot be used; http://x does not answer"
    assert engine.waves == []


# --- servers --------------------------------------------------------------------------------


def server_engine(server, **fields):
    url = server if isinstance(server, str) else server.url
    quick = {"back_off_s": 0.002, "timeout_s": 60, "patience_s": 0.05, "attempts": 2}
    chat = fields.get("api") == "chat"
    options = OpenAIOptions(base_url=url, **{**quick, "concurrency": 3, **fields})
    return OpenAIEngine("m", options, encode=None if chat else encode, exact=not chat)


def test_a_server_gets_a_request_for_each_turn(open_runner):
    reported = []
    with FakeServer(think_s=0.005) as server, listening(reported.append):
        found = dict(open_runner(server_engine(server), policy="m").run(tasks(4), 2))
    assert server.peak == 3
    turns = [turn for g in found.values() for each in g.trajectories for turn in each.actions]
    assert len(turns) == 4 * 2 * 3
    for turn in turns:
        (body,) = server.bodies[turn.seed]
        assert tuple(body["prompt"]) == turn.prompt_token_ids
        assert (body["n"], body["max_tokens"]) == (1, 8)
        assert turn.text == f"{turn.seed}:0:0"
    assert reported == [3] * len(turns)


def test_no_trajectory_waits_for_a_server_that_is_busy_with_others(open_runner):
    """The time of a trajectory would run out meanwhile."""
    with FakeServer() as server:
        engine = server_engine(server, concurrency=1)
        found = dict(open_runner(engine, policy="m").run(tasks(2), 2))
    turns = [t.seed for k in (0, 1) for each in found[k].trajectories for t in each.actions]
    assert list(server.bodies) == turns


def test_a_server_that_applies_the_template_itself(open_runner):
    with FakeServer(token_ids=False) as server:
        engine = server_engine(server, api="chat")
        ((_, group),) = open_runner(engine, policy="m", encode=None).run(tasks(1), 1)
    (trajectory,) = group.trajectories
    assert [turn.token_ids for turn in trajectory.actions] == [None] * 3
    (second,) = server.bodies[trajectory.actions[1].seed]
    assert second["messages"][0]["content"].startswith("why \n")


def test_a_server_that_refuses_a_prompt(open_runner):
    with FakeServer() as server:
        engine = server_engine(server)
        first = dict(open_runner(engine, policy="m").run(tasks(2), 1))
        seed = first[0].trajectories[0].actions[0].seed
        server.script = {seed: [Trouble.REFUSED] * 5}
        found = dict(open_runner(engine, policy="m").run(tasks(2), 1))
    assert found[0].reason == "request_refused"
    assert without_rounding(found[1])[0][1] == "turn_limit"


def test_a_server_that_is_down(open_runner):
    with FakeServer() as server:
        url = server.url
    with pytest.raises(EngineError, match="could not be reached"):
        list(open_runner(server_engine(url), policy="m").run(tasks(2), 2))
