"""How well a policy answers questions of the look-up world, through the real flow and tools."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

from rejuice.operators.agents.runner import AgentRunner
from rejuice.operators.agents.trajectory import SeededTask, Task, TrajectoryGroup, columns_of
from rejuice.operators.sampling.protocol import Settings
from rejuice.operators.sampling.tokenizer import chat_encoder
from rejuice.operators.sampling.transformers_engine import TransformersEngine
from rejuice.pipelines.demo.problems import Split, lookup_tasks
from tools.embedded_policy.lookups import FLOW, TOOLS


def playing(
    folder: Path, tasks: int, n: int = 2, split: Split = "validation", seed: int = 100
) -> dict[str, float]:
    """Success in all (and half of its 95% interval over tasks) and by kind, pass@n, turns, errors of
    tools; at temperature 1."""
    chosen = list(lookup_tasks(seed, split, tasks))
    start = time.perf_counter()
    groups = _trajectories(folder, chosen, n)
    kinds, rates = defaultdict[str, list[bool]](list), list[float]()
    for task, group in zip(chosen, groups, strict=True):
        right = [each.response == str(task.answer) for each in group]
        kinds[task.kind] += right
        rates.append(mean(right))
    everything = [each for group in groups for each in group]
    columns = columns_of(everything)
    turns, calls, errors = (
        sum(columns[name].to_pylist()) for name in ("turn_count", "tool_calls", "tool_errors")
    )
    return {
        "success": mean(rates),
        "interval": 1.96 * stdev(rates) / len(rates) ** 0.5,
        f"pass@{n}": mean(rate > 0 for rate in rates),
        "turns": turns / len(everything),
        "tool errors per call": errors / max(calls, 1),
        "without an answer": mean(not each.response for each in everything),
        **{f"kind {kind}": mean(right) for kind, right in sorted(kinds.items())},
        "seconds": time.perf_counter() - start,
    }


def _trajectories(folder, chosen, n):  # type: ignore[no-untyped-def]
    engine = TransformersEngine(folder)
    runner = AgentRunner(
        FLOW, TOOLS, engine, Settings(n, max_tokens=32),
        policy="it", encode=chat_encoder(str(folder)),
    )  # fmt: skip
    asked = [
        SeededTask(Task(str(i), (("user", each.question),), {"documents": list(each.documents)}), i)
        for i, each in enumerate(chosen)
    ]
    try:
        found = dict(runner.run(asked, n))
    finally:
        runner.close()
        engine.close()
    for each in found.values():
        assert isinstance(each, TrajectoryGroup), each
    return [found[i].trajectories for i in range(len(chosen))]
