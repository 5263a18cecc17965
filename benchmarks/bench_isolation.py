"""What it costs a tool's call, and a flow's turn, that a user's code runs in another process.

    python benchmarks/bench_isolation.py

The same code runs in the event loop and in its processes, in turns: the difference is the cost.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from rejuice.operators.agents.flow import build_flow, build_tools
from rejuice.operators.agents.isolation import isolated
from rejuice.operators.agents.play import Play
from rejuice.operators.agents.runner import play_trajectory
from rejuice.operators.agents.tool import close_all
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.trajectory import Task
from rejuice.operators.sampling.protocol import Group, Sample

CALLS, ROUNDS = 1000, 5
MINE = '''
from rejuice.operators.agents import Flow, Tool

class Echo(Tool):
    """Say it again."""
    async def call(self, text: str): return text

class Turns(Flow):
    """Answer many times."""
    async def run(self, task, play):
        for _ in range(self.max_turns): await play.act(task.messages)
        return "done"
'''


class Hello:
    """A policy that takes no time."""

    async def sample(self, prompt, max_tokens):
        return Group("hello", 0, prompt.seed, (1,), (Sample("x", (1,), (0.0,), "stop"),))


async def measured(flow, tool):
    """Milliseconds of a call and of a turn, one after the other, and of the first of each."""
    box = await Toolbox.of([tool])
    task = Task("p", (("user", "hi"),), {})
    began = time.perf_counter()
    for _ in range(CALLS):
        await box.call("echo", {"text": "x"}, {})
    call = (time.perf_counter() - began) / CALLS * 1000
    times = []
    for _ in range(2):  # The first one starts the process.
        began = time.perf_counter()
        play = Play(task, flow, sampler=Hello(), encode=None, toolbox=box, models={}, max_tokens=1, seed=0, index=0)  # fmt: skip
        await play_trajectory(flow, play)
        times.append((time.perf_counter() - began) * 1000)
    await close_all(tool, flow)
    return call, times[1] / CALLS, times[0] - times[1]


async def main() -> None:
    """Print the medians."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.py"
        file.write_text(MINE)
        found = {"in the event loop": [], "in processes": []}
        entries = {"turns": {"max_turns": CALLS}}, {"echo": {}}
        for _ in range(ROUNDS):
            flow, (tool,) = build_flow(entries[0], [file]), build_tools([entries[1]], [file])
            found["in the event loop"].append(await measured(flow, tool))
            apart = isolated(flow, entries[0]), isolated(tool, entries[1])
            found["in processes"].append(await measured(*apart))
    print(f"{'':20} {'ms a call':>10} {'ms a turn':>10} {'ms to start':>12}")
    for name, rows in found.items():
        call, turn, start = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name:20} {call:10.3f} {turn:10.3f} {start:12.0f}")


if __name__ == "__main__":
    asyncio.run(main())
