"""What agents add to the sampling itself: the runner, flows, records of turns, tools.

python benchmarks/bench_agents.py [prompts]: 8 trajectories of 4 turns for each prompt; the turns
are sampled from the embedded policy, in processes, and after each of them a tool is called: in one
run the calculator, in another one the search in the 13 documents of a question like those of
`flow_lookup`. The policy is tiny, so the shares are larger than with any other one.

Before the first figure, torch is loaded here and in the engine's processes, which takes minutes on
a busy machine.

Ours is the processor time of the thread that runs the flows, without chat template and tokenizer,
which sampling a single turn needs as well. All is that of this process and of the engine's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import psutil

from rejuice.operators.agents import Flow, Play, Task
from rejuice.operators.agents.flows.react import PastStep, messages
from rejuice.operators.agents.runner import AgentRunner
from rejuice.operators.agents.tools.calculator import Calculator
from rejuice.operators.agents.tools.search import Search
from rejuice.operators.agents.trajectory import SeededTask
from rejuice.operators.sampling import Settings
from rejuice.operators.sampling.engines import EngineSpec, encoder, open_engine
from rejuice.operators.sampling.protocol import TransformersOptions
from rejuice.operators.sampling.tokenizer import Messages

_TURNS, _N = 4, 8
_WARM = 4  # prompts
_SETTINGS = Settings(max_tokens=32)


class Calls(Flow):
    """ReAct whose actions always make the same call, whatever the policy writes."""

    tool: str
    action: str

    async def run(self, task: Task, play: Play) -> str | None:
        clock.begin = clock.begin or time.thread_time()
        steps: list[PastStep] = []
        for _ in range(_TURNS):
            await play.act(messages(task.messages, steps))
            seen = await play.call_text(self.tool, self.action)
            steps.append(PastStep(f"{self.tool}: {self.action}", seen.text))
        clock.end = time.thread_time()
        return steps[-1].observation


class Clock:
    """Processor time of the thread that runs the flows."""

    begin = end = encoding = 0.0

    @property
    def ours(self) -> float:
        """Seconds without tokenisation."""
        return self.end - self.begin - self.encoding


clock = Clock()


def main(prompts: int) -> None:
    """Run and print the shares."""
    spec = EngineSpec("embedded", 0, True, {}, TransformersOptions())
    engine: Any = open_engine(spec)
    encode = encoder(spec)
    assert encode is not None

    def timed(chat: Messages) -> Sequence[int]:
        start = time.thread_time()
        ids = encode(chat)
        clock.encoding += time.thread_time() - start
        return ids

    turns = prompts * _N * _TURNS
    print(
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {turns:,} turns and calls",
        flush=True,
    )
    for tool, action in ((Calculator(), "8 * 46"), (Search(documents="documents", k=1), "price")):
        flow = Calls(tool=tool.name(), action=action)
        runner = AgentRunner(flow, [tool], engine, _SETTINGS, policy="embedded", encode=timed)
        tasks = [SeededTask(_task(k), k) for k in range(prompts + _WARM)]
        list(runner.run(tasks[prompts:], _N))  # Warm.
        clock.begin = clock.encoding = 0.0
        took = measured(partial(_run, runner, tasks[:prompts]), engine.pids)
        runner.close()
        _show(tool.name(), took, turns)


def _run(runner: AgentRunner, tasks: Sequence[SeededTask]) -> None:
    for _ in runner.run(tasks, _N):
        pass


def _task(number: int) -> Task:
    """A question with documents of its own, as the index of a search is kept for each."""
    goods = ("apples", "pens", "eggs", "cups", "hats", "boxes", "nails", "lamps")
    documents = [
        f"{thing} of shop {number}: the price is {k} dollars" for k, thing in enumerate(goods)
    ]
    documents += [f"Person {k} of town {number} has {k + 3} {goods[k]}." for k in range(5)]
    question = f"Tom has {number} apples and buys {number + 3} more. How many apples does Tom have?"
    return Task(str(number), (("user", question),), {"documents": documents})


def _show(tool: str, took: Measured, turns: int) -> None:
    whole = took.ours_s + took.engine_s
    print(
        f"{tool}: wall {took.wall_s:.1f} s; processor time: {took.engine_s:.1f} s of the engine's"
    )
    print(f"processes, {took.ours_s:.2f} s of this one, {clock.encoding:.2f} s of it tokenisation")
    print(
        f"ours {clock.ours:.2f} s, {clock.ours / turns * 1e6:.0f} us a turn: "
        f"{clock.ours / whole:.1%}; tokenisation {clock.encoding / turns * 1e6:.0f} us a turn: "
        f"{clock.encoding / whole:.1%}",
        flush=True,
    )


class Measured(NamedTuple):
    """Seconds: by the wall, and of processors in this process and in the engine's."""

    wall_s: float
    ours_s: float
    engine_s: float


def measured(work: Callable[[], object], pids: list[int]) -> Measured:
    """What a piece of work takes."""

    def now() -> tuple[float, float, float]:
        engine_s = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)
        return time.perf_counter(), time.process_time(), engine_s

    before = now()
    work()
    return Measured(*(after - start for after, start in zip(now(), before, strict=True)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 512)
