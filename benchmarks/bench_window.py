"""What the window over open chunks saves: ragged lengths, against chunks that wait for one another.

python benchmarks/bench_window.py [rows] [ms per token] [policy | agents | judge ...]: a recipe
samples prompts, runs agents of 1 to 4 turns, or has responses judged, in chunks of 2,048 and by a
simulated server, 1,024 at a time; once with one open chunk at a time, once with the window. Lengths
are log-normal with a mean of about 4,000 tokens, 32,768 at most. Both must write the same bytes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
import yaml

from rejuice.operators.agents import runner
from rejuice.operators.mapper import agent_rollout_mapper, policy_rollout_mapper
from rejuice.operators.sampling import Prompt, Settings, rollout
from rejuice.operators.sampling.protocol import Group, Sample
from rejuice.operators.servers.concurrency import LoopThread, work_on_demand
from rejuice.operators.servers.judge import Judge, ScoringOutcome, ScoringRequest
from rejuice.operators.servers.judged_mapper import JudgedMapper
from rejuice.pipelines.engine import resumable_step
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

CONCURRENCY, CHUNK, MEAN, SIGMA, LONGEST = 1024, 2048, 4000, 1.0, 32_768
SAMPLE = {"n": 1, "max_tokens": LONGEST}
JUDGE = {"model": "simulated", "cache": None, "server": {"concurrency": CONCURRENCY}}
STEPS: Mapping[str, list[dict[str, Any]]] = {
    "policy": [{"prompt_template_mapper": {}}, {"policy_rollout_mapper": SAMPLE}],
    "agents": [
        {"prompt_template_mapper": {}},
        {
            "agent_rollout_mapper": {
                **SAMPLE,
                "flow": {"react": {"format": "lines", "max_turns": 4}},
            }
        },
    ],
    "judge": [{"llm_quality_reward_mapper": JUDGE}],
}


class SimulatedServer:
    """Answers each request after as many ticks as its response has tokens.

    Attributes:
        busy_s: seconds that all requests took.
    """

    def __init__(self, tick_s: float) -> None:
        self._tick_s, self._thread = tick_s, LoopThread("simulated server")
        self.busy_s = 0.0

    def sample(self, prompts: Iterable[Prompt], settings: Settings) -> Iterator[tuple[int, Group]]:
        """As an engine."""
        capacity = self.capacity(settings)
        return work_on_demand(self._thread, prompts, self._open_work, CONCURRENCY, capacity)

    def capacity(self, settings: Settings) -> int:
        """As that of a real server's client."""
        return CONCURRENCY + CONCURRENCY // 4

    @asynccontextmanager
    async def _open_work(
        self, put: Callable[[tuple[int, Group]], None]
    ) -> AsyncIterator[Callable[[int, Prompt], Awaitable[None]]]:
        async def sample(index: int, prompt: Prompt) -> None:
            put((index, await self.group(prompt)))

        yield sample

    async def group(self, prompt: Prompt) -> Group:
        """A group of one response; it is an answer for every second prompt."""
        await self.think(prompt.seed)
        answers = prompt.seed % 2 == 0
        text = f"answer: {prompt.seed}" if answers else f"thought: {prompt.seed}"
        sample = Sample(text, (1,), (-1.0,), "stop")
        return Group("simulated", 0, prompt.seed, (1,), (sample,))

    async def think(self, seed: int) -> None:
        """Wait as long as a response takes."""
        seconds = length(seed) * self._tick_s
        await asyncio.sleep(seconds)
        self.busy_s += seconds

    @asynccontextmanager
    async def turn_sampler(self, *_: Any) -> AsyncIterator[Turns]:
        """As that of a real server."""
        yield Turns(self, asyncio.Semaphore(CONCURRENCY))

    async def send(self, request: ScoringRequest, _: Any) -> ScoringOutcome:
        """As a scorer."""
        await self.think(xxhash.xxh3_64_intdigest(request.key))
        return ScoringOutcome((3.0,) * 4, text="{}")

    def close(self) -> None:
        """End the thread."""
        self._thread.close()


class Turns(NamedTuple):
    """Turns of agents from a simulated server."""

    server: SimulatedServer
    slots: asyncio.Semaphore

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group:
        """One turn."""
        async with self.slots:
            return await self.server.group(prompt)


def length(seed: int) -> float:
    """The tokens of the response to a prompt."""
    drawn = np.random.default_rng(seed).lognormal(np.log(MEAN) - SIGMA**2 / 2, SIGMA)
    return min(float(drawn), LONGEST)


def use(server: SimulatedServer) -> None:
    """Have everything that is sampled or judged in this process come from a simulated server."""
    policy_rollout_mapper.open_engine = agent_rollout_mapper.open_engine = lambda _: server
    agent_rollout_mapper.encoder = lambda _: lambda chat: [len(text) for _, text in chat]
    rollout.release = lambda _: None
    runner.turn_sampler = server.turn_sampler
    runner.turns_at_a_time = lambda _: CONCURRENCY
    Judge.send = lambda _, request, probe: server.send(request, probe)
    JudgedMapper.preflight = lambda _: None


def row(number: int, kind: str) -> dict[str, Any]:
    """A row of the dataset: a question, or a response to judge."""
    question = f"{number}?"
    if kind != "judge":
        return {"question": question, "answer": "1"}
    chat = [{"role": "user", "content": question}]
    return {"prompt_id": f"{number:08}", "prompt": chat, "response": f"It is {number}."}


def run(
    folder: Path, kind: str, rows: int, tick_s: float, open_chunks: int
) -> tuple[float, float, bytes]:
    """Run the recipe; gives its seconds, those that an always full server takes, and the export."""
    folder.mkdir()
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(row(k, kind)) for k in range(rows)))
    document = {
        "dataset_path": str(folder / "rows.jsonl"),
        "export_path": str(folder / "out" / "rows.parquet"),
        "process": STEPS[kind],
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(document))
    server = SimulatedServer(tick_s)
    use(server)
    resumable_step._OPEN_CHUNKS = open_chunks
    start = time.perf_counter()
    engine.run(load(folder / "recipe.yaml"), chunk_rows=CHUNK)
    seconds = time.perf_counter() - start
    server.close()
    full_s = server.busy_s / CONCURRENCY
    return seconds, full_s, (folder / "out" / "rows.parquet").read_bytes()


def main(rows: int, ms_per_token: float, kinds: Iterable[str]) -> None:
    """Run both and print the ratio."""
    window = resumable_step._OPEN_CHUNKS
    print(f"{rows:,} rows in chunks of {CHUNK:,}, {CONCURRENCY:,} at a time")
    for kind in kinds:
        with tempfile.TemporaryDirectory() as made:
            tick_s = ms_per_token / 1000
            barrier_s, full_s, before = run(Path(made) / "barrier", kind, rows, tick_s, 1)
            window_s, _, after = run(Path(made) / "window", kind, rows, tick_s, window)
        print(f"{kind}: a server that is always full: {full_s:.1f} s")
        print(f"one chunk at a time: {barrier_s:.1f} s; window of {window}: {window_s:.1f} s")
        ratio = barrier_s / window_s
        print(f"the window takes {ratio:.2f} times less; same bytes: {before == after}", flush=True)


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 8192,
        float(sys.argv[2]) if len(sys.argv) > 2 else 0.5,
        sys.argv[3:] or STEPS,
    )
