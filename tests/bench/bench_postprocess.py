"""Post-processing: pass rate, deduplication, length, balance, over one million responses.

The same work by `rejuice run`, by a hand-written polars script, and by Data-Juicer's default
executor with operators in its own style; then ten million rows through `rejuice run`, for memory.
Data-Juicer gets fewer rows, or it would run for an hour; its rate per row does not depend on it.

    python tests/bench/bench_postprocess.py [rows of rejuice and polars] [of data-juicer] [of memory]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from measure import cost

HERE = Path(__file__).resolve().parent
GROUP = 8
PROCESS = [
    {"pass_rate_filter": {"min": 0.01, "max": 0.99}},
    {"exact_deduplicator": {}},
    {"length_filter": {"min": 40}},
    {"label_balance_selector": {"seed": 1}},
]


def write_rollouts(path, rows):
    """Groups of 8 graded responses of some 30 to 260 characters, one in twenty a repetition."""
    rng = np.random.default_rng(0)
    words = np.array("so we add the apples and then take away what was sold to get that".split())
    with pq.ParquetWriter(path, schema()) as writer:
        for begin in range(0, rows, 80_000):
            n = min(80_000, rows - begin)
            picks = words[rng.integers(0, len(words), (n, 24))]
            counts = rng.integers(4, 25, n)
            texts = [
                f"{' '.join(pick[:count])} is {row}"
                for row, (pick, count) in enumerate(zip(picks.tolist(), counts, strict=True))
            ]
            for row in np.flatnonzero(rng.random(n) < 0.05):
                texts[row] = texts[row - row % GROUP]
            ids = np.arange(begin, begin + n)
            easy = np.repeat(rng.random(n // GROUP), GROUP)
            columns = [
                [f"prompt-{i // GROUP:032d}" for i in ids],
                [f"response-{i:032d}" for i in ids],
                texts,
                np.where(rng.random(n) < easy, "correct", "wrong_answer").tolist(),
            ]
            writer.write_table(pa.table(columns, schema=schema()))


def schema():
    names = ("prompt_id", "response_id", "response", "verdict")
    return pa.schema([(name, pa.string()) for name in names])


def recipe(folder, data, name, process, **head):
    path = folder / f"{name}.yaml"
    document = {
        "dataset_path": str(data),
        "export_path": str(folder / name / "curated.parquet"),
        **head,
        "process": process,
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return str(path)


def show(name, rows, spent, kept=""):
    print(
        f"{name:<34}{rows:>11,} rows {spent.wall:8.1f} s wall {spent.cpu:8.1f} s CPU "
        f"{rows / spent.cpu:>10,.0f} rows/CPU-s {spent.anonymous:7.0f} MiB anonymous "
        f"{spent.resident:6.0f} MiB resident  {kept}",
        flush=True,
    )


def main(rows=1_000_000, rows_dj=50_000, rows_memory=10_000_000):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "rollouts.parquet"
        write_rollouts(data, rows)
        rejuice = str(Path(sys.executable).parent / "rejuice")
        runs = {}
        for workers in (1, 2):
            label = f"rejuice run, {workers} worker{'s' * (workers > 1)}"
            path = recipe(folder, data, f"rejuice-{workers}", PROCESS, np=workers)
            runs[label] = cost(rejuice, "run", path, "-q")
            exported = folder / f"rejuice-{workers}" / "curated.parquet"
            show(label, rows, runs[label], f"{pq.read_metadata(exported).num_rows:,} kept")
        polars = [sys.executable, str(HERE / "peers" / "postprocess_polars.py")]
        runs["polars"] = cost(*polars, str(data), str(folder / "polars.parquet"))
        kept = pq.read_metadata(folder / "polars.parquet").num_rows
        show("polars, by hand", rows, runs["polars"], f"{kept:,} kept")
        small = folder / "small.parquet"
        write_rollouts(small, rows_dj)
        path = recipe(
            folder, small, "data-juicer", yaml.safe_load((HERE / "peers/process.yaml").read_text()),
            np=2, text_keys="response", skip_op_error=False,
            custom_operator_paths=[str(HERE / "peers" / "postprocess_data_juicer.py")],
        )  # fmt: skip
        dj = cost(
            str(Path(sys.executable).parent / "dj-process"), "--config", path,
            UV_OFFLINE="1", PIP_NO_INDEX="1",
        )  # fmt: skip
        kept = pq.read_metadata(folder / "data-juicer" / "curated.parquet").num_rows
        show("dj-process, default executor", rows_dj, dj, f"{kept:,} kept")
        for label in ("rejuice run, 1 worker", "rejuice run, 2 workers"):
            ours = runs[label]
            print(
                f"{label}: {(rows / ours.cpu) / (rows_dj / dj.cpu):.1f} times dj-process per "
                f"CPU-second, {(rows / ours.wall) / (rows_dj / dj.wall):.1f} times by the wall; "
                f"{ours.cpu / runs['polars'].cpu:.2f} times polars' CPU, "
                f"{ours.wall / runs['polars'].wall:.2f} times its wall time"
            )
        if rows_memory:
            write_rollouts(data, rows_memory)
            path = recipe(folder, data, "memory", PROCESS, np=2)
            show("rejuice run, streaming", rows_memory, cost(rejuice, "run", path, "-q"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
