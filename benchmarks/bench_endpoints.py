"""Prompts per second of 1, 2 and 4 simulated servers of limited capacity, in one run.

python benchmarks/bench_endpoints.py [prompts]: each server answers 8 requests at a time, in 100 to
400 ms. Printed are rates relative to one server; then with four of which one is killed half way, and
with four of which one takes ten times as long.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from aiohttp import web

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from fake_server import FakeServer

from rejuice.operators.sampling.openai_engine import OpenAIEngine
from rejuice.operators.sampling.protocol import OpenAIOptions, Prompt, Settings

_AT_A_TIME = 8


class LimitedServer(FakeServer):
    """Answers 8 requests at a time; others wait in line, as in a server with a full batch."""

    def __init__(self, slowness: float = 1.0) -> None:
        self._slots, self._slowness = asyncio.Semaphore(_AT_A_TIME), slowness
        self._random = random.Random(0)
        super().__init__()

    async def _post(self, request: web.Request) -> web.StreamResponse:
        async with self._slots:
            await asyncio.sleep(self._slowness * self._random.uniform(0.1, 0.4))
            return await super()._post(request)


def prompts_per_second(
    servers: list[LimitedServer], count: int, half_way: Callable[[], object] = lambda: None
) -> float:
    """The rate at which all prompts are answered, each once."""
    urls = [server.url for server in servers]
    options = OpenAIOptions(base_url=tuple(urls), concurrency=2 * _AT_A_TIME * len(urls))
    engine = OpenAIEngine("m", options, encode=lambda messages: [1, 2, 3])
    prompts = [Prompt((("user", "x"),), seed) for seed in range(count)]
    start, done = time.monotonic(), set[int]()
    for index, _ in engine.sample(prompts, Settings(n=4)):
        assert index not in done
        done.add(index)
        if len(done) == count // 2:
            half_way()
    engine.close()
    assert len(done) == count
    return count / (time.monotonic() - start)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    base = 0.0
    for number in (1, 2, 4):
        with ExitStack() as stack:
            servers = [stack.enter_context(LimitedServer()) for _ in range(number)]
            rate = prompts_per_second(servers, count)
        base = base or rate
        print(f"{number} servers: {rate:,.0f} prompts/s, {rate / base:.2f}x one")
    with ExitStack() as stack:
        servers = [stack.enter_context(LimitedServer()) for _ in range(4)]
        rate = prompts_per_second(servers, count, servers[0].kill)
        print(f"4 servers, one killed half way: {rate:,.0f} prompts/s, {rate / base:.2f}x one")
    with ExitStack() as stack:
        slow = [1.0, 1.0, 1.0, 10.0]
        servers = [stack.enter_context(LimitedServer(each)) for each in slow]
        rate = prompts_per_second(servers, count)
        print(f"4 servers, one ten times slower: {rate:,.0f} prompts/s, {rate / base:.2f}x one")


if __name__ == "__main__":
    main()
