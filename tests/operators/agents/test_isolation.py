"""Whatever a user's flow or tool does, its trajectory ends in time, and no other one is touched."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from rejuice.operators.agents.flow import build_flow, build_tools
from rejuice.operators.agents.isolation import isolated
from rejuice.operators.agents.play import Limits
from rejuice.operators.agents.runner import play_trajectory
from rejuice.operators.agents.tool import close_all
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.trajectory import Task
from rejuice.operators.sampling.protocol import Group, Sample

pytestmark = pytest.mark.slow

MINE = '''
import argparse, asyncio, ctypes, json, os, re, signal, subprocess, sys, threading, time

from rejuice.operators.agents import Flow, Observation, Tool, ToolError
from rejuice.operators.agents.play import TrajectoryEnd

class Word(str):
    """A text of one's own."""

def library(): return {}["no such key"]

def option(text):
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int)
    return str(parser.parse_args(["--n", text]).n)

def ends(text):
    raise text

async def swallows():
    while True:
        try: await asyncio.sleep(1000)
        except BaseException: pass

def stubborn():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
    time.sleep(1000)

def threads():
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return "started"

def moves():
    os.chdir("/"); os.environ.clear()
    return "moved"

class Ways(Tool):
    """Does something."""
    calls: int = 0

    async def call(self, way: str, word: str = "x"):
        match way:
            case "fine": return word
            case "exits": sys.exit(3)
            case "option": return option(word)
            case "os_exits": os._exit(0)
            case "crashes": return str(ctypes.string_at(0))
            case "kills": os.kill(os.getpid(), signal.SIGKILL)
            case "kills_group": os.killpg(0, signal.SIGKILL)
            case "cancels": raise asyncio.CancelledError
            case "interrupts": raise KeyboardInterrupt
            case "stops": return next(iter([]))
            case "closes": raise GeneratorExit
            case "outage": raise ToolError("the library is closed")
            case "refused": raise ConnectionRefusedError("nobody is there")
            case "late": raise TimeoutError("no answer")
            case "library": return library()
            case "value": raise ValueError("no such word")
            case "key": return {}[word]
            case "index": return [][0]
            case "divides": return 1 / 0
            case "type": return 1 + word
            case "json": return json.loads(word)
            case "none": return None
            case "number": return 4
            case "dict": return {"text": word}
            case "bytes": return b"word"
            case "word": return Word("mine")
            case "mega": return "x" * 30_000_000
            case "deep": return await self.call("deep")
            case "sleeps": time.sleep(1000)
            case "spins":
                while True: pass
            case "regex": return str(re.match(r"(a+)+$", "a" * 40 + "b"))
            case "runs": subprocess.run(["sleep", "1234.5"])
            case "hangs": await asyncio.sleep(1000)
            case "swallows": await swallows()
            case "stubborn": stubborn()
            case "threads": return threads()
            case "moves": return moves()
            case "descriptors": os.closerange(3, 200)
            case "prints": print("x" * 100_000); return "printed"
            case "reads": return input()
            case "never_back":
                loop = asyncio.get_running_loop()
                loop.call_later(0.1, time.sleep, 1000)
                await asyncio.sleep(1)

class Acts(Flow):
    """Does what the question says."""
    async def run(self, task, play):
        kind, _, way = task.question.partition(" ")
        if kind == "tool": return (await play.call("ways", {"way": way})).text
        match way:
            case "fine":
                one, two = await asyncio.gather(play.act(task.messages), play.act(task.messages))
                left, refused = play.turns_left, play.refuse("no").text
                names = [each.name for each in play.tools]
                return f"{one.text} {two.text} {left} {refused} {names} {len(play.turns)}"
            case "races":
                slow = asyncio.create_task(play.call("ways", {"way": "hangs"}))
                await asyncio.wait([slow], timeout=0.2)
                slow.cancel()
                return (await play.call("ways", {"way": "fine"})).text
            case "leaves":
                asyncio.create_task(self.later(play))
                return "left"
            case "waits": await asyncio.sleep(0.5); return "waited"
            case "exits": sys.exit(1)
            case "os_exits": os._exit(1)
            case "raises": return {}["question"]
            case "cancels": raise asyncio.CancelledError
            case "number": return 4
            case "sleeps": time.sleep(1000)
            case "spins":
                while True: pass
            case "until_found":
                while (await play.call("ways", {"way": "fine"})).text != "5": pass
            case "unknown":
                while (await play.call("no_such", {})).status != "ok": pass
            case "refuses":
                while True: play.refuse("no")
            case "swallows": await swallows()
            case "goes_on":
                while True:
                    try: await play.call("ways", {"way": "outage"})
                    except BaseException: pass
            case "ends": raise TrajectoryEnd("context_full", "it is enough")
            case "sub_task": await asyncio.gather(self.exits())
            case "own_type": await play.call("ways", {"way": Word("fine")})
            case "wrong": await play.act(5)

    async def exits(self): sys.exit(2)

    async def later(self, play):
        await asyncio.sleep(0.2)
        await play.call("ways", {"way": "fine", "word": "of another trajectory"})
'''

TOOL_WAYS = {
    "fine": ("stop", "x"),
    "exits": ("tool_failed", "SystemExit: 3"),
    "option": ("tool_failed", "SystemExit: 2"),
    "os_exits": ("tool_failed", "its process ended"),
    "crashes": ("tool_failed", "its process ended"),
    "kills": ("tool_failed", "its process ended"),
    "kills_group": ("tool_failed", "its process ended"),
    "cancels": ("tool_failed", "CancelledError"),
    "interrupts": ("tool_failed", "KeyboardInterrupt"),
    "stops": ("tool_failed", "StopIteration"),
    "closes": ("tool_failed", "GeneratorExit"),
    "outage": ("tool_failed", "ways: the library is closed"),
    "refused": ("tool_failed", "ConnectionRefusedError: nobody is there (mine.py, line"),
    "late": ("tool_failed", "TimeoutError: no answer"),
    "library": ("tool_failed", "KeyError: 'no such key' (mine.py, line"),
    "value": ("stop", "no such word"),
    "key": ("stop", "KeyError: 'x'"),
    "index": ("stop", "IndexError: list index out of range"),
    "divides": ("stop", "ZeroDivisionError: division by zero"),
    "type": ("stop", "TypeError: unsupported operand"),
    "json": ("stop", "Expecting value"),
    "none": ("tool_failed", "Ways.call returned NoneType"),
    "number": ("tool_failed", "Ways.call returned int"),
    "dict": ("tool_failed", "Ways.call returned dict"),
    "bytes": ("tool_failed", "Ways.call returned bytes"),
    "word": ("stop", "mine"),
    "mega": ("stop", "characters left out"),
    "deep": ("tool_failed", "RecursionError"),
    "sleeps": ("time_limit", "longer than 3 s"),
    "spins": ("time_limit", "longer than 3 s"),
    "regex": ("time_limit", "longer than 3 s"),
    "runs": ("time_limit", "longer than 3 s"),
    "hangs": ("time_limit", "longer than 3 s"),
    "swallows": ("time_limit", "longer than 3 s"),
    "stubborn": ("time_limit", "longer than 3 s"),
    "never_back": ("time_limit", "longer than 3 s"),
    "threads": ("stop", "started"),
    "moves": ("stop", "moved"),
    "descriptors": ("tool_failed", "its process ended"),
    "prints": ("stop", "printed"),
    "reads": ("tool_failed", "EOFError"),
}
FLOW_WAYS = {
    "fine": ("stop", "hello hello 8 no ['ways'] 3"),
    "races": ("stop", "x"),
    "leaves": ("stop", "left"),
    "waits": ("stop", "waited"),
    "exits": ("flow_failed", "SystemExit: 1"),
    "os_exits": ("flow_failed", "its process ended"),
    "raises": ("flow_failed", "KeyError: 'question' (mine.py, line"),
    "cancels": ("flow_failed", "CancelledError"),
    "number": ("flow_failed", "it returned int, not text or None"),
    "sleeps": ("time_limit", "longer than 3 s"),
    "spins": ("time_limit", "longer than 3 s"),
    "until_found": ("time_limit", "longer than 3 s"),
    "unknown": ("time_limit", "longer than 3 s"),
    "refuses": ("time_limit", "longer than 3 s"),
    "swallows": ("time_limit", "longer than 3 s"),
    "goes_on": ("tool_failed", "the library is closed"),
    "ends": ("context_full", "it is enough"),
    "sub_task": ("flow_failed", "its process ended"),
    "own_type": ("stop", ""),
    "wrong": ("flow_failed", "TypeError"),
}


class Hello:
    """A policy that says hello."""

    async def sample(self, prompt, max_tokens):
        sample = Sample("hello", (1, 2), (0.0, 0.0), "stop")
        return Group("hello", 0, prompt.seed, (1,), (sample,))


async def _played(files, questions):
    flow = isolated(build_flow({"acts": {"seconds": 3}}, files), {"acts": {"seconds": 3}})
    tools = [isolated(build_tools([{"ways": {}}], files)[0], {"ways": {}})]
    box = await Toolbox.of(tools)
    loop, began = asyncio.get_running_loop(), {}

    async def play(question):
        task = Task(question, (("user", question),), {})
        began[question] = loop.time()
        found = await play_trajectory(
            flow, task, sampler=Hello(), encode=None, toolbox=box, models={},
            limits=Limits(10, None), seed=1, index=0,
        )  # fmt: skip
        return found, loop.time() - began[question]

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
        said = found.detail or found.response
        if found.finish_reason != reason or text not in said:
            wrong[question] = (found.finish_reason, said[:200])
    assert wrong == {}


def test_each_way_ends_within_its_limit_and_five_seconds(played):
    """A deadline is what is tested, so this is a matter of time; nothing of it takes a second."""
    assert {question: took for question, (_, took) in played.items() if took > 3 + 5} == {}


def test_what_is_left_behind_does_not_act_in_the_next_trajectory(played):
    for question, (found, _) in played.items():
        assert "of another trajectory" not in str(found.turns), question


def test_no_process_is_left(played):
    """Neither a process of a flow or tool, nor what it has started."""
    for _ in range(200):
        if not (left := _processes_with(b"isolated_process", b"1234.5")):
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
            return await play_trajectory(
                apart, task, sampler=Hello(), encode=None, toolbox=Toolbox([]), models={},
                limits=Limits(10, None), seed=1, index=0,
            )  # fmt: skip
        finally:
            await apart.close()

    found = asyncio.run(run())
    assert found.finish_reason == "flow_failed"
    assert "does not import" in found.detail
    assert "no such index" in found.detail


def test_what_comes_with_rejuice_stays_in_the_event_loop():
    calculator = build_tools([{"calculator": {}}])[0]
    assert isolated(calculator, {"calculator": {}}) is calculator
