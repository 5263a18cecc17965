"""Time and memory of `rejuice run` against the number of rows, with MinHash over all of them.

    python benchmarks/bench_scale.py [--full] [--one-key] [--plot docs/images/scale.png]

The rows are generated: eight recorded responses to each prompt, about 250 characters with numbers;
a tenth repeats an earlier response, as it is or with a word replaced. Seven steps are run on
them, each time in a process of its own without a cache. `--full` adds 3 and 10 million rows, which
take 20 GB of disk. With `--one-key` numbers are not compared, so that all texts are one shard.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from measure import Cost, cost

_GROUP = 8
_WORDS = 20_000
_BLOCK = 80_000
_COMMAND = "import sys; from rejuice.pipelines.cli.main import main; sys.exit(main())"


class Point(NamedTuple):
    """A run: its rows and workers, and what it cost."""

    rows: int
    workers: int
    cost: Cost


def write_rows(path: Path, rows: int) -> None:
    """A Parquet file of recorded responses, in groups, with planted repeats."""
    rng = np.random.default_rng(0)
    letters = rng.integers(97, 123, (_WORDS, 8), dtype=np.uint8)
    sizes = rng.integers(2, 9, _WORDS)
    words = np.array([bytes(row[:k]).decode() for row, k in zip(letters, sizes, strict=True)])
    writer = None
    for start in range(0, rows, _BLOCK):
        table = _rows(rng, pa.array(words), start, min(_BLOCK, rows - start))
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer:
        writer.close()


def _rows(rng: np.random.Generator, words: pa.Array, start: int, n: int) -> pa.Table:
    ids_NW = rng.integers(0, _WORDS, (n, 38))
    numbers_N = rng.integers(0, 10_000, n)
    source_N = np.arange(n)
    copies = rng.choice(np.arange(1, n), n // 10, replace=False)
    # Half of them repeat the response before, the others any response before.
    source_N[copies] = np.where(copies % 2, copies - 1, rng.integers(0, copies))
    ids_NW, numbers_N = ids_NW[source_N], numbers_N[source_N]
    changed = copies[: n // 20]
    ids_NW[changed, rng.integers(0, 38, len(changed))] = rng.integers(0, _WORDS, len(changed))
    offsets = pa.array(np.arange(n + 1) * ids_NW.shape[1], pa.int32())
    texts = pa.compute.binary_join(
        pa.ListArray.from_arrays(offsets, words.take(pa.array(ids_NW.ravel()))), " "
    )
    boxed = pa.array([rf" so it is \boxed{{{number}}}" for number in numbers_N.tolist()])
    is_right = rng.random(n) < rng.random(n // _GROUP + 1).repeat(_GROUP)[:n]
    prompts = ((start + np.arange(n)) // _GROUP).tolist()
    return pa.table(
        {
            "prompt_id": [f"prompt-{prompt:09d}" for prompt in prompts],
            "prompt": [f"What is {prompt} plus {prompt % 97}?" for prompt in prompts],
            "response": pa.compute.binary_join_element_wise(texts, boxed, ""),
            "verdict": pa.compute.if_else(pa.array(is_right), "correct", "wrong_answer"),
            "reward_accuracy": is_right.astype(float),
            "reward_accuracy_missing": pa.nulls(n, pa.string()),
        }
    )


def recipe(folder: Path, workers: int, *, one_key: bool) -> Path:
    """A recipe of seven steps on the rows in a folder."""
    minhash = {"within": "all", "keep_different_numbers": not one_key}
    document = {
        "dataset_path": str(folder / "rows.parquet"),
        "export_path": str(folder / "out" / "curated.parquet"),
        "np": workers,
        "process": [
            {"format_reward_mapper": {"style": "boxed"}},
            {"group_stats_mapper": {}},
            {"pass_rate_filter": {"min": 0.05, "max": 0.95}},
            {"exact_deduplicator": {}},
            {"minhash_deduplicator": minhash},
            {"reward_sum_mapper": {"weights": {"accuracy": 1.0, "format": 0.1}}},
            {"grpo_advantage_mapper": {}},
        ],
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def exponent(points: list[Point]) -> float:
    """The power of rows with which CPU time grows, by least squares on the logarithms."""
    rows, seconds = (np.log([float(each) for each in axis]) for axis in _axes(points))
    return float(np.polyfit(rows, seconds, 1)[0])


def _axes(points: list[Point]) -> tuple[list[int], list[float]]:
    return [point.rows for point in points], [point.cost.cpu for point in points]


def plot(path: Path, points: list[Point]) -> None:
    """Draw CPU time, which other work on the machine changes little, and memory against rows."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for workers in sorted({point.workers for point in points}):
        own = [point for point in points if point.workers == workers]
        rows = [point.rows for point in own]
        left.loglog(rows, [point.cost.cpu for point in own], "o-", label=f"np {workers}")
        memory = [point.cost.proportional / 1024 for point in own]
        right.semilogx(rows, memory, "o-", label=f"np {workers}")
    right.axhline(2, color="0.6", linewidth=1)
    right.set_ylim(0, 2.2)
    left.set(xlabel="rows", ylabel="CPU seconds")
    right.set(xlabel="rows", ylabel="memory of all processes, GiB")
    for axis in (left, right):
        axis.legend(frameon=False)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, print a table, fit the exponent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--one-key", action="store_true")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    sizes = [*options.rows, *([3_000_000, 10_000_000] if options.full else [])]
    points = list[Point]()
    print("     rows  np   wall s    CPU s  us/row  anonymous MiB  all MiB")
    for rows in sizes:
        folder = Path(tempfile.mkdtemp(prefix="bench-scale-"))
        try:
            write_rows(folder / "rows.parquet", rows)
            for workers in options.workers:
                path = recipe(folder, workers, one_key=options.one_key)
                spent = cost(sys.executable, "-c", _COMMAND, "run", str(path), "-q")
                points.append(Point(rows, workers, spent))
                print(
                    f"{rows:9,} {workers:3} {spent.wall:8.1f} {spent.cpu:8.1f} "
                    f"{spent.cpu / rows * 1e6:7.1f} {spent.anonymous:14.0f} "
                    f"{spent.proportional:8.0f}",
                    flush=True,
                )
                shutil.rmtree(folder / "out")
        finally:
            shutil.rmtree(folder)
    for workers in options.workers if len(sizes) > 1 else ():
        own = [point for point in points if point.workers == workers]
        print(f"np {workers}: CPU time grows with rows to the power of {exponent(own):.3f}")
    if options.plot:
        plot(options.plot, points)


if __name__ == "__main__":
    main()
