"""Post-processing: pass rate, deduplication, length, balance, over one million responses.

The same work by `rejuice run`, by a hand-written polars script, and by Data-Juicer's default
executor with operators in its own style; then ten million rows through `rejuice run`, for memory.
Data-Juicer gets fewer rows, or it would run for an hour; its rate per row does not depend on it.

    python benchmarks/bench_postprocess.py [rows of rejuice and polars] [of data-juicer] [of memory]
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
BIN = Path(sys.executable).parent
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
    words = np.array(
        [
            "so",
            "we",
            "add",
            "the",
            "apples",
            "and",
            "then",
            "take",
            "away",
            "what",
            "was",
            "sold",
            "to",
            "get",
            "that",
        ]
    )
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


def run_all(folder, data, rows, label=""):
    """The work by rejuice and by polars; their costs by name."""
    runs = {}
    for workers in (1, 2):
        name = f"rejuice run, {workers} worker{'s' * (workers > 1)}"
        path = recipe(folder, data, f"rejuice-{workers}{label}", PROCESS, np=workers)
        runs[name] = cost(str(BIN / "rejuice"), "run", path, "-q", "--overwrite")
        exported = folder / f"rejuice-{workers}{label}" / "curated.parquet"
        show(name, rows, runs[name], f"{pq.read_metadata(exported).num_rows:,} kept")
    out = folder / f"polars{label}.parquet"
    script = str(HERE / "peers" / "postprocess_polars.py")
    runs["polars, by hand"] = cost(sys.executable, script, str(data), str(out))
    kept = pq.read_metadata(out).num_rows
    show("polars, by hand", rows, runs["polars, by hand"], f"{kept:,} kept")
    return runs


def run_data_juicer(folder, rows):
    """The work by Data-Juicer's default executor."""
    data = folder / "data-juicer.parquet"
    write_rollouts(data, rows)
    path = recipe(
        folder, data, "data-juicer", yaml.safe_load((HERE / "peers" / "process.yaml").read_text()),
        np=2, text_keys="response", skip_op_error=False,
        custom_operator_paths=[str(HERE / "peers" / "postprocess_data_juicer.py")],
    )  # fmt: skip
    # Two settings of its own: never to install packages while it runs.
    spent = cost(str(BIN / "dj-process"), "--config", path, UV_OFFLINE="1", PIP_NO_INDEX="1")
    kept = pq.read_metadata(folder / "data-juicer" / "curated.parquet").num_rows
    show("dj-process, default executor", rows, spent, f"{kept:,} kept")
    return spent


def main(rows=1_000_000, rows_dj=50_000, rows_memory=10_000_000):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = folder / "few.parquet"
        write_rollouts(few, 80)
        print("Start-up: 80 rows")
        start = run_all(folder, few, 80, "-start")
        print(f"{rows:,} rows")
        data = folder / "rollouts.parquet"
        write_rollouts(data, rows)
        runs = run_all(folder, data, rows)
        dj = run_data_juicer(folder, rows_dj)
        peer = runs.pop("polars, by hand")
        net = peer.cpu - start["polars, by hand"].cpu
        for label, ours in runs.items():
            print(
                f"{label}: {(rows / ours.cpu) / (rows_dj / dj.cpu):.0f} times dj-process's rows "
                f"per CPU-second, {(rows / ours.wall) / (rows_dj / dj.wall):.0f} times by the "
                f"wall; {ours.cpu / peer.cpu:.2f} times polars' CPU "
                f"({(ours.cpu - start[label].cpu) / net:.2f} without start-up), "
                f"{ours.wall / peer.wall:.2f} times its wall time"
            )
        if rows_memory:
            write_rollouts(data, rows_memory)
            path = recipe(folder, data, "memory", PROCESS, np=2)
            spent = cost(str(BIN / "rejuice"), "run", path, "-q")
            show("rejuice run, streaming", rows_memory, spent)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
