"""Whatever a user's flow or tool does, its trajectory ends in time, and no other one is touched."""

import asyncio
import copy
import os
import time
from pathlib import Path

import pytest
from user_ways import FLOW_WAYS, MINE, TOOL_WAYS

from rejuice.operators.agents.flow import build_flow, build_tools
from rejuice.operators.agents.isolation import isolated
from rejuice.operators.agents.play import Play
from rejuice.operators.agents.runner import play_trajectory
from rejuice.operators.agents.tool import close_all
from rejuice.operators.agents.toolbox import CachedTool, Toolbox
from rejuice.operators.agents.trajectory import Task
from rejuice.operators.sampling.protocol import Group, Sample

pytestmark = pytest.mark.slow


class Hello:
    """A policy that says hello."""

    async def sample(self, prompt, max_tokens):
        sample = Sample("hello", (1, 2), (0.0, 0.0), "stop")
        return Group("hello", 0, prompt.seed, (1,), (sample,))


async def _played(files, questions):
    flow = isolated(build_flow({"acts": {"seconds": 3}}, files), {"acts": {"seconds": 3}})
    tools = [isolated(build_tools([{"ways": {}}], files)[0], {"ways": {}})]
    box = await Toolbox.of(tools)

    async def play(question):
        task = Task(question, (("user", question),), {})
        began = time.monotonic()
        hello = Play(
            task, flow, sampler=Hello(), encode=None, toolbox=box, models={}, max_tokens=10, seed=1,
            index=0,
        )  # fmt: skip
        found = await play_trajectory(flow, hello)
        return found, time.monotonic() - began

    try:
        await play("flow fine")  # The first one starts the processes.
        return dict(zip(questions, await asyncio.gather(*map(play, questions)), strict=True))
    finally:
        await close_all(*tools, flow)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """What became of each way, all at the same time; some of them twice."""
    file = tmp_path_factory.mktemp("ways") / "mine.py"
    file.write_text(MINE)
    questions = [f"tool {way}" for way in TOOL_WAYS] + [f"flow {way}" for way in FLOW_WAYS]
    return asyncio.run(_played([file], questions))


def test_each_way_ends_with_its_cause(played):
    ways = {f"tool {k}": v for k, v in TOOL_WAYS.items()}
    ways |= {f"flow {k}": v for k, v in FLOW_WAYS.items()}
    assert len(ways) >= 40
    wrong = {}
    for question, (reason, text) in ways.items():
        found, _ = played[question]
        given = found.detail or found.response
        if found.finish_reason != reason or text not in given:
            wrong[question] = (found.finish_reason, given[:200])
    assert wrong == {}


def test_what_is_left_behind_does_not_act_in_the_next_trajectory(played):
    for question, (found, _) in played.items():
        assert "of another trajectory" not in str(found.turns), question


def test_no_process_is_left(played):
    """Neither a process of a flow or tool, nor what it has started."""
    for _ in range(200):
        if not (left := _processes_with(b"agents.isolation", b"1234.5")):
            return
        time.sleep(0.05)
    pytest.fail(f"{left} are left")


def _processes_with(*words):
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != os.getpid():
            try:
                line = (each / "cmdline").read_bytes()
            except OSError:
                continue
            found += [line] * any(word in line for word in words)
    return found


def test_a_file_that_does_not_import_there_is_named(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(
        "import os\nif 'ELSEWHERE' in os.environ: raise OSError('no such index')\n" + MINE
    )
    flow = build_flow({"acts": {}}, [file])
    monkeypatch.setenv("ELSEWHERE", "1")
    apart = isolated(flow, {"acts": {}})

    async def run():
        try:
            task = Task("flow fine", (("user", "flow fine"),), {})
            play = Play(
                task, apart, sampler=Hello(), encode=None, toolbox=Toolbox([]), models={},
                max_tokens=10, seed=1, index=0,
            )  # fmt: skip
            return await play_trajectory(apart, play)
        finally:
            await apart.close()

    found = asyncio.run(run())
    assert found.finish_reason == "flow_failed"
    assert "does not import" in found.detail
    assert "no such index" in found.detail


def test_the_parts_that_wrap_others_can_be_copied(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    (tool,) = build_tools([{"ways": {}}], [file])
    apart = isolated(tool, {"ways": {}})
    assert copy.copy(apart).name() == copy.copy(CachedTool(apart, file, asks=True)).name() == "ways"


def test_what_comes_with_rejuice_stays_in_the_event_loop():
    calculator = build_tools([{"calculator": {}}])[0]
    assert isolated(calculator, {"calculator": {}}) is calculator
