"""Tokens per second of the embedded engine and of transformers' `generate`, in one run.

python benchmarks/bench_sampling.py [prompts] [rounds]: 8 responses to each prompt, at most 64
tokens long, two cores altogether on either side; first with the embedded policy, whose responses
are of all lengths, then with random weights, whose responses never end.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from tiny_policy import save_policy

from rejuice.operators.sampling.engines import EMBEDDED
from rejuice.operators.sampling.processes import EngineProcesses
from rejuice.operators.sampling.protocol import Failure, Prompt, Settings
from rejuice.operators.sampling.transformers_engine import TransformersEngine
from rejuice.pipelines.demo.problems import problem

SETTINGS = Settings(n=8, max_tokens=64)


class Generate:
    """`generate`, as good as it gets: sorted prompts, static or dynamic cache, best batches."""

    def __init__(self, policy: str | Path, cache: str, batch: int) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(policy, padding_side="left")
        model: Any = AutoModelForCausalLM.from_pretrained(policy, dtype="float32")
        self._model, self._batch = model.eval(), batch
        static = {"cache_implementation": "static", "disable_compile": True}
        self._options = static if cache == "static" else {}

    def capacity(self, settings: Settings) -> int:
        return 1 << 20  # All at once, so that it can sort them.

    def sample(self, prompts: Iterable[Prompt], settings: Settings) -> Iterator[tuple[int, int]]:
        """For each prompt a number of tokens; those of a batch count for its first prompt."""
        numbered = enumerate(prompts)
        while taken := list(islice(numbered, self.capacity(settings))):
            numbers, waiting = zip(*taken, strict=True)
            for tokens, number in zip_longest(
                self._tokens(waiting, settings), numbers, fillvalue=0
            ):
                yield number, tokens

    def _tokens(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[int]:
        """The tokens of each batch."""
        import torch

        chats = [[{"role": r, "content": c} for r, c in prompt.messages] for prompt in prompts]
        ids = self._tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, return_dict=False
        )
        ids.sort(key=len)
        for start in range(0, len(ids), self._batch):
            inputs = self._tokenizer.pad(
                {"input_ids": ids[start : start + self._batch]}, return_tensors="pt"
            )
            with torch.inference_mode():
                out = self._model.generate(
                    **inputs,
                    do_sample=True,
                    temperature=1.0,  # What a policy's own generation config may change.
                    top_k=0,
                    top_p=1.0,
                    repetition_penalty=1.0,
                    num_return_sequences=settings.n,
                    max_new_tokens=settings.max_tokens,
                    **self._options,
                )
            sampled = out[:, inputs["input_ids"].shape[1] :]
            yield int((sampled != self._tokenizer.pad_token_id).sum())

    def close(self) -> None:
        del self._model


class Run(NamedTuple):
    """Tokens per second of the clock and of the processors, and this process's share of time."""

    wall: float
    processor: float
    outside: float


def take(engine: Any, prompts: list[Prompt]) -> Run:
    """Sample once."""
    began, busy, own = time.perf_counter(), _processor_seconds(engine), time.process_time()
    tokens = 0
    for _, result in engine.sample(prompts, SETTINGS):
        assert not isinstance(result, Failure)
        tokens += (
            result if isinstance(result, int) else sum(len(s.token_ids) for s in result.samples)
        )
    seconds, own = time.perf_counter() - began, time.process_time() - own
    return Run(tokens / seconds, tokens / (_processor_seconds(engine) - busy), own / seconds)


def compare(title: str, policy: Path, prompts: list[Prompt], rounds: int) -> None:
    """Take turns, so that what else the machine does falls on all alike; print the medians."""
    ours = partial(TransformersEngine, policy)
    builds: dict[str, tuple[Callable[[], Any], int]] = {
        "ours, 2 processes x 1 thread": (ours, 2),
        "ours, 1 process x 2 threads": (ours, 1),
    }
    for cache, batch, workers in (
        ("dynamic", 8, 2),
        ("dynamic", 16, 2),
        ("dynamic", 32, 2),
        ("static", 16, 2),
        ("dynamic", 32, 1),
        ("static", 64, 1),
    ):
        way = "2 processes x 1 thread" if workers == 2 else "1 process x 2 threads"
        build = partial(Generate, policy, cache, batch)
        builds[f"generate, {cache} cache, {batch} prompts, {way}"] = build, workers
    engines = {
        name: EngineProcesses(build, workers=workers, threads=2 // workers)
        for name, (build, workers) in builds.items()
    }
    runs: dict[str, list[Run]] = {name: [] for name in engines}
    for turn in range(rounds + 1):
        for name, engine in engines.items():
            run = take(engine, prompts)
            runs[name] += [run] if turn else []  # the first warms up
    peaks = {name: _peak_mib(engine) for name, engine in engines.items()}
    for engine in engines.values():
        engine.close()
    print(f"\n{title}: {len(prompts)} prompts x {SETTINGS.n}, medians of {rounds}")
    print(f"{'tokens per second':60}    wall  processor  peak MiB  outside")
    medians = {name: Run(*map(statistics.median, zip(*runs[name], strict=True))) for name in runs}
    for name, run in medians.items():
        row = f"{run.wall:8,.0f}{run.processor:11,.0f}{peaks[name]:10,.0f}{run.outside:9.1%}"
        print(f"{name:60}{row}", flush=True)
    first, rest = next(iter(medians.values())), [medians[n] for n in medians if "generate" in n]
    wall, busy = (first[axis] / max(run[axis] for run in rest) for axis in (0, 1))
    print(f"ratio to the best of generate: wall {wall:.2f}, processor {busy:.2f}", flush=True)


def main() -> None:
    """Both policies."""
    count, rounds = (int(word) for word in (*sys.argv[1:], *(192, 3)[len(sys.argv) - 1 :]))
    prompts = [
        Prompt((("user", problem(0, "validation", i, (1, 2)).question),), i) for i in range(count)
    ]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    compare("embedded policy", EMBEDDED, prompts, rounds)
    with tempfile.TemporaryDirectory() as made:
        save_policy(Path(made), eos_token_id=None)
        draw = random.Random(0)
        words = [Prompt((("user", "x" * draw.randrange(20, 50)),), i) for i in range(count)]
        compare("random weights", Path(made), words, rounds)
    print(f"\nload {os.getloadavg()[0]:.1f}")


def _processor_seconds(engine: EngineProcesses) -> float:
    ticks = 0
    for pid in engine.pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _peak_mib(engine: EngineProcesses) -> float:
    peaks = [Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2] for pid in engine.pids]
    return sum(int(peak.split()[0]) for peak in peaks) / 1024


if __name__ == "__main__":
    import bench_sampling  # under this name the processes find `Generate`

    bench_sampling.main()
