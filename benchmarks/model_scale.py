"""What breaks first on 100 nodes, at 1e8 rows, with 8 endpoints: a model of measured constants.

python benchmarks/model_scale.py [rows]: runs the seven steps of `bench_scale.py` on so many rows in
this process with clocks around the parts that only the driver can do, measures what a commit, a task
of Ray, an answer of the cache and a listed key cost, and prints docs/design/scale.md's tables. CPU
seconds, but for fsync and Ray. What is assumed is in `ASSUMED`, and is printed beside the rest.
"""

from __future__ import annotations

import os
import pickle
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import bench_scale
import pyarrow as pa

from rejuice.pipelines.dataset.files import write_checked
from rejuice.pipelines.engine import dataset_step, run
from rejuice.pipelines.recipe.recipe import load

ROWS, GROUP, CHUNK_ROWS, KEPT_PROMPTS = 10**8, 8, 65_536, 2_048
NODES, CORES, ENDPOINTS = 100, 16, 8


class Assumed(NamedTuple):
    """What was not measured here.

    Attributes:
        tokens: of a response, on average.
        endpoint_tokens_s: tokens that an endpoint samples in a second: a node with 8 GPUs and a
            model of 7 billion parameters.
        coordinator_tokens_s: tokens that one process parses, builds and keeps in a second, by
            an earlier measurement of two shared cores.
        judge_call_s: CPU seconds of one judged response in one process (docs/quality.md).
        put_s, list_s: seconds of an object store's PUT or GET, and of a LIST of 1,000 names.
        store_bytes_s: of one connection to an object store.
        network_bytes_s: of a node.
    """

    tokens: int = 1_000
    endpoint_tokens_s: float = 20_000
    coordinator_tokens_s: float = 2.4e6
    judge_call_s: float = 1.6e-3
    put_s: float = 0.03
    list_s: float = 0.1
    store_bytes_s: float = 100e6
    network_bytes_s: float = 1.25e9


ASSUMED = Assumed()


def run_in_parts(rows: int) -> tuple[Counter[str], Counter[str]]:
    """CPU seconds of the parts of a run, and bytes that it leaves: digests, cache, export."""
    seconds, sizes = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        bench_scale.write_rows(folder / "rows.parquet", rows)
        recipe = load(bench_scale.recipe(folder, 1, one_key=False))

        def clock(
            module: Any, function: str, label: str, after: Callable[..., object] | None = None
        ):
            real = getattr(module, function)

            def timed(*args: Any, **kwargs: Any) -> Any:
                start = time.process_time()
                try:
                    return real(*args, **kwargs)
                finally:
                    seconds[label] += time.process_time() - start
                    if after:
                        after(*args)

            stack.enter_context(patch.object(module, function, timed))

        digests = Counter[str]()

        def measure(plan: Any, step: Any, _: Any, chunk: int) -> None:
            files = plan.folder(step).glob(f"digest-{chunk:06d}-*")
            digests[step.name] += sum(file.stat().st_size for file in files)
            sizes["largest digests of a step"] = max(digests.values())

        clock(run, "write_digest", "tasks: digests", measure)
        clock(dataset_step, "_decide", "tasks: deciding shards")
        clock(dataset_step, "commit_decisions", "driver: commits of decisions")
        clock(run.Run, "write_export", "driver: export and decisions")
        clock(run.Plan, "open", "driver: source and plan")
        start = time.process_time()
        run.run(recipe)
        total = time.process_time() - start
        seconds["tasks: chunks"] = total - sum(seconds.values())
        cache = [file for file in (folder / "out").rglob("*") if file.is_file()]
        sizes["cache and export"] = sum(file.stat().st_size for file in cache)
        sizes["rows.parquet"] = (folder / "rows.parquet").stat().st_size
    return seconds, sizes


def commit_s(rows: int = CHUNK_ROWS, repeats: int = 15) -> tuple[float, float]:
    """Wall seconds of the commit of three float columns of a chunk, and of the same unsynced."""
    table = pa.table({name: pa.array([0.5] * rows) for name in "abc"})
    with tempfile.TemporaryDirectory() as folder:
        with_sync = [
            _wall(lambda i=i: write_checked(Path(folder) / str(i), table)) for i in range(repeats)
        ]
        with patch.object(os, "fsync", lambda _: None):
            without = [
                _wall(lambda i=i: write_checked(Path(folder) / str(i), table))
                for i in range(repeats)
            ]
    return statistics.median(with_sync), statistics.median(without)


def _wall(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ray_task_s(tasks: int = 1_000) -> float:
    """Wall seconds of a task that does nothing, of two at a time, on a Ray that is running."""
    import ray

    with _ray():
        task = ray.remote(num_cpus=1, max_retries=0)(_nothing)
        ray.get([task.remote() for _ in range(20)])
        return _wall(lambda: ray.get([task.remote() for _ in range(tasks)])) / tasks


def _nothing() -> None:
    """What a task does whose own cost is measured."""


@contextmanager
def _ray():
    import ray

    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    try:
        yield
    finally:
        ray.shutdown()


def listed_key_s(keys: int = 10_000) -> float:
    """CPU seconds to send and receive a key of TransferQueue with the tags of a trajectory."""
    tags = {
        f"{i:032x}_{i % 16}_0": {"status": "success", "global_steps": 3, "prompt_len": 100 + i,
                                 "response_len": i, "seq_len": 100 + 2 * i}
        for i in range(keys)
    }  # fmt: skip
    start = time.process_time()
    pickle.loads(pickle.dumps({"train": tags}))
    return (time.process_time() - start) / keys


def main(rows: int = 400_000) -> None:
    """Print the constants, then what they come to."""
    load_before = os.getloadavg()[0]
    seconds, sizes = run_in_parts(rows)
    print(
        f"measured on {rows:,} rows, CPU us per row, load {load_before:.0f}; at {ROWS:.0e} rows, h"
    )
    for name, spent in sorted(seconds.items()):
        each = spent / rows
        cores = 1 if name.startswith("driver") else NODES * CORES
        print(f"  {name:32} {each * 1e6:8.2f}   {each * ROWS / 3600:8.2f} CPU h   "
              f"{each * ROWS / cores / 60:8.1f} min")  # fmt: skip
    print("bytes per row")
    for name, size in sizes.items():
        print(f"  {name:32} {size / rows:8.1f}   {size / rows * ROWS / 1e9:8.1f} GB")
    synced, unsynced = commit_s()
    print(f"commit of a chunk: {synced * 1e3:.1f} ms, without fsync {unsynced * 1e3:.1f} ms")
    print(f"Ray task: {ray_task_s() * 1e3:.2f} ms")
    print(f"a listed key of TransferQueue: {listed_key_s() * 1e6:.1f} us")
    digest = sizes["largest digests of a step"] / rows
    decided = digest + dataset_step._WORKING_BYTES
    chunks = ROWS / CHUNK_ROWS
    shards = decided * ROWS / dataset_step.SHARD_BYTES
    read = digest * ROWS / shards
    print(f"shards of MinHash: {shards:.0f}, each reads {read / 1e6:.0f} MB in {chunks:.0f} files, "
          f"{chunks * ASSUMED.put_s / dataset_step._REQUESTS:.1f} s; "
          f"{chunks * shards:.0f} files in all")  # fmt: skip
    prompts = ROWS / GROUP
    tokens = ROWS * ASSUMED.tokens
    print(f"assumed: {ASSUMED._asdict()}")
    print(f"chunks: {ROWS / CHUNK_ROWS:.0f} of rows, {prompts / KEPT_PROMPTS:.0f} of prompts")  # fmt: skip
    rate = ENDPOINTS * ASSUMED.endpoint_tokens_s
    print(f"sampling {tokens:.0e} tokens: {tokens / rate / 86400:.1f} days by {ENDPOINTS} endpoints, "
          f"{tokens / ASSUMED.coordinator_tokens_s / 3600:.1f} h of the coordinator, which is full at "
          f"{ASSUMED.coordinator_tokens_s / ASSUMED.endpoint_tokens_s:.0f} endpoints")  # fmt: skip
    print(f"judging all rows: {ROWS * ASSUMED.judge_call_s / 3600:.0f} h of the coordinator; "
          f"{1 / ASSUMED.judge_call_s:.0f} calls/s at most")  # fmt: skip
    names = 7 * ROWS / CHUNK_ROWS
    print(f"object store: {names:.0f} commits, {names * ASSUMED.put_s:.0f} s of PUTs one by one, "
          f"{names / 1000 * ASSUMED.list_s:.1f} s of LISTs")  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
