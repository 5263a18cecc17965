"""What a run adds to the sampling itself: reading, commits, joining, the export, the audit log.

python benchmarks/bench_sampling_run.py [prompts]: 8 responses to each prompt from the embedded
policy, first by the engine alone, then by a recipe, with the same open engine.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import yaml

from rejuice.operators.mapper import policy_rollout_mapper
from rejuice.operators.sampling import Prompt, Settings, rollout
from rejuice.operators.sampling.engines import open_engine
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import Recipe, load


def main(prompts: int) -> None:
    """Run both and print the shares."""
    with tempfile.TemporaryDirectory() as made:
        recipe = recipe_in(Path(made), prompts)
        operator: Any = recipe.steps[1].operator
        opened = Timed(open_engine(operator._engine_spec()))
        policy_rollout_mapper.open_engine = lambda _: opened
        rollout.release = lambda _: None
        texts = (Path(made) / "prompts.jsonl").read_text().splitlines()
        chats = [(("user", json.loads(text)["question"]),) for text in texts]
        requests = [Prompt(chat, seed) for seed, chat in enumerate(chats)]
        settings = Settings(8, max_tokens=64)
        list(opened.sample(requests[:64], settings))
        pids = opened.inner.pids
        alone = measured(lambda: list(opened.sample(requests, settings)), pids)
        opened.seconds = 0.0
        whole = measured(lambda: engine.run(recipe), pids)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {prompts} prompts x 8")
    print(f"the engine alone: {alone.wall_s:.1f} s; the run: {whole.wall_s:.1f} s")
    print(f"wall time while the engine does not sample: {1 - opened.seconds / whole.wall_s:.1%}")
    outside = whole.outside_s / (whole.outside_s + whole.inside_s)
    print(f"processor time outside the engine's processes: {outside:.1%}, {whole.outside_s:.2f} s")


class Timed:
    """An engine, and the seconds from its first prompt to its last group."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.seconds = inner, 0.0

    def sample(self, prompts: Any, settings: Settings) -> Iterator[Any]:
        start = time.perf_counter()
        yield from self.inner.sample(prompts, settings)
        self.seconds += time.perf_counter() - start

    def capacity(self, settings: Settings) -> int:
        return int(self.inner.capacity(settings))


class Measured(NamedTuple):
    """Seconds: by the wall, and of processors in this process and in the engine's."""

    wall_s: float
    outside_s: float
    inside_s: float


def measured(work: Callable[[], object], pids: list[int]) -> Measured:
    """What a piece of work takes."""

    def now() -> tuple[float, float, float]:
        engine_s = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)
        return time.perf_counter(), time.process_time(), engine_s

    before = now()
    work()
    return Measured(*(end - start for start, end in zip(before, now(), strict=True)))


def recipe_in(folder: Path, prompts: int) -> Recipe:
    """A recipe that samples and does nothing else."""
    write_dataset(
        folder / "prompts.jsonl", "arithmetic", DemoOptions(prompts=prompts, levels=(1, 2))
    )
    document = {
        "dataset_path": str(folder / "prompts.jsonl"),
        "export_path": str(folder / "rollouts.parquet"),
        "process": [
            {"prompt_template_mapper": {"reference_pattern": "#### (.*)"}},
            {"policy_rollout_mapper": {"n": 8, "max_tokens": 64}},
        ],
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(document))
    return load(folder / "recipe.yaml")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
