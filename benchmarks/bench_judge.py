"""Whether a judge's server gets as many requests at once as it may have, in training and offline.

    python benchmarks/bench_judge.py [--groups 96] [--latency 1.0] [--concurrency 128]

A server in a process of its own answers every request after the same time, so that from its first
request to its last answer at least rows x latency / concurrency pass. In training, the replay buffer
of verl gets the groups one by one, as they are sampled, and the recipe scores them; offline,
`rejuice run` scores a dataset.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

_N = 8
_PLUGINS = "rejuice.trainer.verl.plugin,rejuice.trainer.cpu.platform"
_EVERY_S = 0.03  # a group is finished; the buffer looks every 0.02 s, so it finds them one by one


def serve(latency_s: float) -> None:
    """Answer until the process is killed; the first line printed is the address."""
    from fake_judge import FakeJudge

    class TimedJudge(FakeJudge):
        """Knows when its first request came and when it gave its last answer."""

        times: ClassVar[list[float]] = []

        @contextmanager
        def _counted(self) -> Iterator[None]:
            self.times.append(time.perf_counter())
            with super()._counted():
                yield
            self.times.append(time.perf_counter())

    with TimedJudge(think_s=latency_s) as judge:
        print(judge.url, flush=True)
        for _ in sys.stdin:
            print(judge.peak, max(judge.times) - min(judge.times), flush=True)
            judge.peak = 0
            judge.times.clear()


class Load(NamedTuple):
    """What a server had to do: most requests at once, and how long it was asked."""

    peak: int
    seconds: float


class Server:
    """The judge's process."""

    def __init__(self, latency_s: float) -> None:
        command = [sys.executable, __file__, "--serve", "--latency", str(latency_s)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = self._line()

    def load(self) -> Load:
        """What it had to do since the last call."""
        assert self._process.stdin
        print(file=self._process.stdin, flush=True)
        peak, seconds = self._line().split()
        return Load(int(peak), float(seconds))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()


def judging(server: Server, concurrency: int, folder: Path) -> dict[str, Any]:
    """The step of a recipe."""
    options = {"base_url": server.url, "concurrency": concurrency}
    return {"llm_quality_reward_mapper": {"model": "m", "server": options,
                                          "cache": str(folder / "scores.sqlite")}}  # fmt: skip


def in_training(server: Server, groups: int, concurrency: int, folder: Path) -> None:
    """Judge the groups of a training step."""
    with pytest.MonkeyPatch.context() as patch:
        # As a process of a run on a CPU imports verl.
        patch.setenv("VERL_PLATFORM", "cpu")
        patch.setenv("VERL_USE_EXTERNAL_MODULES", _PLUGINS)
        patch.setitem(sys.modules, "trl", None)
        from fake_queue import FakeQueue
        from training_stage import Stage

        queue = FakeQueue()
        queue.install(patch)
        after = [
            {"scripted_mapper": None},  # Accuracy, by which a validation would grade.
            judging(server, concurrency, folder),
            {"reward_sum_mapper": {"weights": {"quality": 1.0}}},
            {"grpo_advantage_mapper": None},
        ]
        stage = Stage(folder / "run", queue, after, prompts=groups, n=_N, prompts_per_step=groups)
        # The first step imports much.
        stage.answer({0: [f"warm {k}" for k in range(_N)]})
        stage.sample(step=1, groups=1)
        server.load()
        texts = {g: [f"response {g * _N + k}" for k in range(_N)] for g in range(groups)}
        slots = stage.ask(range(groups), step=2)
        stage.answer(texts, step=2, slots=slots)
        uids = [slot.uid for slot in slots]
        queue.kv_batch_put(uids, "train", tags=[{"status": "pending"}] * groups)

        def finish() -> None:
            for uid in uids:
                queue.kv_put(uid, "train", tag={"status": "finished"})
                time.sleep(_EVERY_S)

        sampling = threading.Thread(target=finish)
        sampling.start()
        batch, figures = stage.sample(step=2, groups=groups)
        sampling.join()
    assert len(batch.keys) == groups * _N, figures


def offline(server: Server, groups: int, concurrency: int, folder: Path) -> None:
    """Judge as many responses by `rejuice run`."""
    from rejuice.operators.columns import MESSAGES
    from rejuice.pipelines.engine.run import run
    from rejuice.pipelines.recipe.recipe import load

    rows = range(groups * _N)
    chats = [[{"role": "user", "content": f"What is {row // _N} + 1?"}] for row in rows]
    columns = {
        "prompt_id": [f"p{row // _N:04d}" for row in rows],
        "prompt": pa.array(chats, MESSAGES),
        "response": [f"response {row}" for row in rows],
    }
    pq.write_table(pa.table(columns), folder / "responses.parquet")
    recipe = folder / "recipe.yaml"
    head = {"project_name": "judge", "dataset_path": str(folder / "responses.parquet"),
            "export_path": str(folder / "out" / "scored.parquet")}  # fmt: skip
    recipe.write_text(json.dumps({**head, "process": [judging(server, concurrency, folder)]}))
    run(load(recipe))
    scored = pq.read_table(folder / "out" / "scored.parquet")
    assert scored["reward_quality"].null_count == 0


def main(groups: int, latency_s: float, concurrency: int) -> None:
    """Measure both and print their ratios to the least time there is."""
    least = groups * _N * latency_s / concurrency
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {groups} groups of {_N},"
          f" {latency_s:g} s a call, concurrency {concurrency}: at least {least:.2f} s")  # fmt: skip
    server = Server(latency_s)
    try:
        for measured in (in_training, offline):
            with tempfile.TemporaryDirectory() as folder:
                measured(server, groups, concurrency, Path(folder))
            peak, seconds = server.load()
            print(f"{measured.__name__}: {seconds:.2f} s, {seconds / least:.2f} times that,"
                  f" at most {peak} requests at once")  # fmt: skip
    finally:
        server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=96)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--concurrency", type=int, default=128)
    parser.add_argument("--serve", action="store_true", help="be the server")
    given = parser.parse_args()
    if given.serve:
        serve(given.latency)
    else:
        main(given.groups, given.latency, given.concurrency)
