"""What the window over open chunks saves: ragged lengths, against chunks that wait for one another.

python tests/bench/bench_window.py [prompts] [ms per token]: a recipe samples prompts in chunks of
2,048 from a simulated server, 1,024 at a time; once with one open chunk at a time, once with the
window. Lengths are log-normal with a mean of about 4,000 tokens, 32,768 at most. Both must write
the same bytes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rejuice.operators.mapper import policy_rollout_mapper
from rejuice.operators.openai.concurrently import run_concurrently
from rejuice.operators.openai.loop_thread import LoopThread
from rejuice.operators.sampling import Prompt, Settings, rollout
from rejuice.operators.sampling.prompt_feed import PromptFeed
from rejuice.operators.sampling.protocol import Group, Sample
from rejuice.pipelines.engine import local as engine
from rejuice.pipelines.engine import resumable
from rejuice.pipelines.recipe.read import load

CONCURRENCY, CHUNK, MEAN, SIGMA, LONGEST = 1024, 2048, 4000, 1.0, 32_768


class SimulatedServer:
    """Answers each prompt after as many ticks as its response has tokens."""

    def __init__(self, tick_s: float) -> None:
        self._tick_s, self._thread = tick_s, LoopThread("simulated server")
        self.busy_s = 0.0

    def sample(
        self, prompts: Iterable[Prompt | None], settings: Settings
    ) -> Iterator[tuple[int, Group]]:
        feed, todo = PromptFeed(prompts), asyncio.Queue[Any]()

        def refill() -> None:
            begins = not feed.exhausted
            taken = feed.take_up_to(self.capacity(settings) - feed.under_way)
            ends = [None] * CONCURRENCY if begins and feed.exhausted else []
            if taken or ends:
                self._thread.put(todo, [*taken, *ends])

        for index, found in self._thread.stream(partial(self._sample, todo), refill):
            feed.finish()
            yield index, found

    async def _sample(self, todo: asyncio.Queue[Any], put: Any) -> None:
        async def worker(_: int) -> None:
            while (following := await todo.get()) is not None:
                index, prompt = following
                seconds = length(prompt.seed) * self._tick_s
                await asyncio.sleep(seconds)
                self.busy_s += seconds
                text = Sample(f"answer {prompt.seed}", (1,), (-1.0,), "stop")
                put((index, Group("simulated", 0, prompt.seed, (1,), (text,))))

        await run_concurrently(worker, range(CONCURRENCY), CONCURRENCY)

    def capacity(self, settings: Settings) -> int:
        """As that of a real server's client."""
        return CONCURRENCY + CONCURRENCY // 4

    def close(self) -> None:
        """End the thread."""
        self._thread.close()


def length(seed: int) -> float:
    """The tokens of the response to a prompt."""
    drawn = np.random.default_rng(seed).lognormal(np.log(MEAN) - SIGMA**2 / 2, SIGMA)
    return min(float(drawn), LONGEST)


def run(folder: Path, prompts: int, tick_s: float, open_chunks: int) -> tuple[float, float, bytes]:
    """Run the recipe; gives its seconds, those that an always full server takes, and the export."""
    folder.mkdir()
    lines = (json.dumps({"question": f"{k}?", "answer": "1"}) for k in range(prompts))
    (folder / "prompts.jsonl").write_text("\n".join(lines))
    document = {
        "dataset_path": str(folder / "prompts.jsonl"),
        "export_path": str(folder / "out" / "rollouts.parquet"),
        "process": [
            {"prompt_template_mapper": {}},
            {"policy_rollout_mapper": {"n": 1, "max_tokens": LONGEST}},
        ],
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(document))
    server = SimulatedServer(tick_s)
    policy_rollout_mapper.open_engine = lambda _: server
    rollout.release = lambda _: None
    resumable._OPEN_CHUNKS = open_chunks
    start = time.perf_counter()
    engine.run(load(folder / "recipe.yaml"), chunk_rows=CHUNK)
    seconds = time.perf_counter() - start
    server.close()
    full_s = server.busy_s / CONCURRENCY
    return seconds, full_s, (folder / "out" / "rollouts.parquet").read_bytes()


def main(prompts: int, ms_per_token: float) -> None:
    """Run both and print the ratio."""
    window = resumable._OPEN_CHUNKS
    with tempfile.TemporaryDirectory() as made:
        tick_s = ms_per_token / 1000
        barrier_s, full_s, before = run(Path(made) / "barrier", prompts, tick_s, 1)
        window_s, _, after = run(Path(made) / "window", prompts, tick_s, window)
    print(f"{prompts:,} prompts in chunks of {CHUNK:,}, {CONCURRENCY:,} at a time")
    print(f"a server that is always full: {full_s:.1f} s")
    print(f"one chunk at a time: {barrier_s:.1f} s; window of {window}: {window_s:.1f} s")
    print(f"the window takes {barrier_s / window_s:.2f} times less; same bytes: {before == after}")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 8192,
        float(sys.argv[2]) if len(sys.argv) > 2 else 0.5,
    )
