"""What an operator of Data-Juicer's costs as a step of ours, against Data-Juicer with it.

Both sides of a line take turns in this process: the step on a table in memory, the whole of `run`
with it (chunks, commits, audit log and export), and Data-Juicer's `NestedDataset.process` with
`num_proc: 1`, which operators have in `dj-process` with `np: 1`. Then whole processes with all of
the operators. CPU seconds; the least of the rounds.

    python benchmarks/bench_data_juicer.py [rows] [rounds]
"""

import resource
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from measure import cost

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import both_ways

from rejuice.pipelines import Recipe, run
from rejuice.pipelines.data_juicer.steps import step
from rejuice.pipelines.engine.steps import run_in_memory

BIN = Path(sys.executable).parent
OPERATORS = {
    "text_length_filter": {"min_len": 300},
    "words_num_filter": {"min_num": 60},
    "character_repetition_filter": {"rep_len": 5, "max_ratio": 0.3},
    "whitespace_normalization_mapper": {},
    "clean_email_mapper": {},
    "document_deduplicator": {},
}


def texts(rows):
    """Texts of some 500 characters, one in twenty a repetition."""
    draw = np.random.default_rng(0)
    words = np.array(
        ["so", "we", "add", "the", "apples", "a@b.org", "then\u3000take", "away", "what"]
    )
    picks = words[draw.integers(0, len(words), (rows, 140))]
    counts = draw.integers(40, 141, rows)
    made = [" ".join(pick[:n]) for pick, n in zip(picks.tolist(), counts, strict=True)]
    for row in np.flatnonzero(draw.random(rows) < 0.05):
        made[row] = made[row // 2]
    return pa.table({"id": pa.array(map(str, range(rows))), "text": made})


def used():
    """CPU seconds of this process and of those it has started."""
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in each)


def seconds(work):
    start = used()
    rows = work().num_rows
    return used() - start, rows


def steps(table, rounds):
    for name, fields in OPERATORS.items():
        sides = {
            "step": lambda n=name, f=fields: run_in_memory([step(n, f)], table),
            "run": lambda n=name, f=fields: run(Recipe([{n: f}], table)).table,
            "theirs": lambda n=name, f=fields: both_ways.upstream(n, {**f, "num_proc": 1}, table),
        }
        done = {side: [] for side in sides}
        for _ in range(rounds):
            for side, work in sides.items():
                done[side].append(seconds(work))
        (ours, kept), (all_of_it, _), (theirs, kept_by_them) = (min(done[side]) for side in sides)
        assert kept == kept_by_them
        print(
            f"{name:<32} {table.num_rows:,} rows, {kept:,} kept: the step {ours:6.2f} s, the run "
            f"{all_of_it:6.2f} s, Data-Juicer {theirs:6.2f} s CPU; ratios "
            f"{ours / theirs:.2f} and {all_of_it / theirs:.2f}",
            flush=True,
        )


def whole(table, folder):
    pq.write_table(table, folder / "rows.parquet")
    spent = {}
    for name, command in (("ours", ("rejuice", "run")), ("theirs", ("dj-process", "--config"))):
        path = folder / f"{name}.yaml"
        document = {
            "dataset_path": str(folder / "rows.parquet"),
            "export_path": str(folder / name / "out.parquet"),
            "np": 1,
            "skip_op_error": False,
            "process": [{each: fields} for each, fields in OPERATORS.items()],
        }
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        spent[name] = cost(str(BIN / command[0]), *command[1:], str(path), **both_ways.OFFLINE)
    kept = [pq.read_metadata(folder / name / "out.parquet").num_rows for name in spent]
    assert kept[0] == kept[1]
    ours, theirs = spent.values()
    print(
        f"all of them: rejuice run {ours.cpu:.1f} s CPU, {ours.wall:.1f} s wall; dj-process "
        f"{theirs.cpu:.1f} s CPU, {theirs.wall:.1f} s wall; ratio {ours.cpu / theirs.cpu:.2f}"
    )


def main(rows=50_000, rounds=2):
    for side in (1_000, rows):  # The first lines are of imports.
        steps(texts(side), rounds if side == rows else 1)
    with tempfile.TemporaryDirectory() as folder:
        whole(texts(rows), Path(folder))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
