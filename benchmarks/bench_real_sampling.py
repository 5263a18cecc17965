"""Tokens per second of a real language model: our engine, `generate`, and a server, in turns.

python benchmarks/bench_real_sampling.py FOLDER [--prompts 12] [--n 8] [--tokens 64] [--rounds 2]
    [--batch 48] [--workers 1 2] [--server URL --model NAME]

FOLDER is a policy in the Hugging Face format. Prompts are word problems like those of GSM8K. Our
engine runs as one process with all cores, and as others that `--workers` names; `generate` has all
cores and batches of `--batch` responses; a server with OpenAI's API is asked for completions of the
same token ids. Tokens are counted by what comes back, `processor` and `kernel` are seconds of a
core for each second of the clock, of our own processes and of `generate`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import psutil
from bench_sampling import Generate

from rejuice.operators.sampling.openai_engine import OpenAIEngine
from rejuice.operators.sampling.processes import EngineProcesses
from rejuice.operators.sampling.protocol import Failure, OpenAIOptions, Prompt, Settings
from rejuice.operators.sampling.tokenizer import chat_encoder
from rejuice.operators.sampling.transformers_engine import TransformersEngine
from rejuice.pipelines.demo.problems import problem

ASK = " Reason step by step, and put the final answer in \\boxed{}."


class Run(NamedTuple):
    """What one pass took: tokens per second, cores in use, those in the kernel, and memory."""

    tokens: float
    processor: float
    kernel: float
    gib: float


def take(engine: Any, tokenizer: Any, prompts: list[Prompt], settings: Settings) -> Run:
    """Sample once; the tokens of a server that reports none are counted in its text."""
    pids = engine.pids if isinstance(engine, EngineProcesses) else []
    began, before, tokens = time.perf_counter(), _times(pids), 0
    for _, found in engine.sample(prompts, settings):
        if isinstance(found, Failure):
            sys.exit(f"a prompt failed with {found.reason}: {found.detail}")
        samples = [] if isinstance(found, int) else found.samples
        ids = (each.token_ids or tokenizer.encode(each.text) for each in samples)
        tokens += found if isinstance(found, int) else sum(map(len, ids))
    seconds = time.perf_counter() - began
    user, kernel = (b - a for a, b in zip(before, _times(pids), strict=True))
    peak = sum(psutil.Process(pid).memory_info().rss for pid in pids) / 2**30
    return Run(tokens / seconds, (user + kernel) / seconds, kernel / seconds, peak)


def main() -> None:
    """Take turns, so that what else the machine does falls on all alike; print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    for name, default in (("prompts", 12), ("n", 8), ("tokens", 64), ("rounds", 2), ("batch", 48)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--workers", type=int, nargs="*", default=[os.cpu_count() or 1])
    parser.add_argument("--server")
    parser.add_argument("--model", help="its name on the server; by default FOLDER")
    given = parser.parse_args()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.folder)
    settings = Settings(n=given.n, max_tokens=given.tokens)
    prompts = [
        Prompt((("user", problem(0, "validation", i, (2, 4)).question + ASK),), i)
        for i in range(given.prompts)
    ]
    engines = _engines(given)
    runs: dict[str, list[Run]] = {name: [] for name in engines}
    for turn in range(given.rounds + 1):
        for name, engine in engines.items():
            run = take(engine, tokenizer, prompts[: len(prompts) if turn else 1], settings)
            runs[name] += [run] if turn else []  # the first warms up
    for engine in engines.values():
        engine.close()
    print(f"{len(prompts)} prompts x {given.n}, {given.tokens} tokens, medians of {given.rounds}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'':42}tokens/s  processor  kernel  memory GiB")
    for name, taken in runs.items():
        run = Run(*map(statistics.median, zip(*taken, strict=True)))
        print(
            f"{name:42}{run.tokens:8,.1f}{run.processor:11.2f}{run.kernel:8.2f}{run.gib:12.1f}",
            flush=True,
        )


def _engines(given: argparse.Namespace) -> dict[str, Any]:
    cores = os.cpu_count() or 1
    ours = partial(TransformersEngine, given.folder)
    engines: dict[str, Any] = {}
    for workers in given.workers:
        threads = max(1, cores // workers)
        engines[f"ours, {workers} x {threads} threads"] = EngineProcesses(
            ours, workers=workers, threads=threads
        )
    batch = max(1, given.batch // given.n)
    build: Callable[[], Any] = partial(Generate, given.folder, "dynamic", batch)
    engines[f"generate, {cores} threads"] = EngineProcesses(build, threads=cores)
    if given.server:
        name = given.model or given.folder
        encode = chat_encoder(given.folder, {})
        options = OpenAIOptions(base_url=given.server)
        engines["server"] = OpenAIEngine(name, options, encode=encode, exact=False)
    return engines


def _times(pids: Sequence[int]) -> tuple[float, float]:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(each.user for each in times), sum(each.system for each in times)


if __name__ == "__main__":
    main()
