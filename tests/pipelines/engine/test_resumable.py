"""Rows of a resumable operator are committed one by one, and none is done twice."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter

import pyarrow.parquet as pq
import pytest

from rejuice.operators import OperatorError, kept_rows
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.plan import load as load_commit
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load

EXPENSIVE = """
import os, pathlib, signal, time
import pyarrow as pa
from rejuice.operators import Change, ResumableOperator

class ExpensiveMapper(ResumableOperator):
    log: str
    failure: str = ""
    reasons = {"gone": "it ends in 1"}
    def reads(self): return ("response_id",)
    def writes(self): return ("sample",)
    def apply(self, table): return self._change(table["response_id"].to_pylist())
    def process_rows(self, table, rows):
        ids = table["response_id"].to_pylist()
        for row in rows[:-1] if self.failure == "left out" else reversed(rows):
            fate = pathlib.Path(self.log + ".fate")
            if fate.exists() and ids[row] < "response-0006":
                what = fate.read_text()
                fate.unlink()
                if what == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise KeyboardInterrupt
            time.sleep(0.005)
            if self.failure == "bug": 1 / 0
            yield (0 if self.failure == "twice" else row), self._change(ids[row:row + 1])
            with open(self.log, "a") as log:
                log.write(f"{ids[row]}\\n")
    def close(self):
        with open(self.log, "a") as log:
            log.write("closed\\n")
    def _change(self, ids):
        reasons = pa.array(["gone" if i.endswith("-1") else None for i in ids], pa.string())
        parents = [row for row, i in enumerate(ids) if not i.endswith("-1") for _ in range(2)]
        samples = [f"{ids[row]}!" for row in parents]
        if self.failure == "wrong":
            samples = samples[1:]
        return Change({"sample": pa.array(samples, pa.string())}, reasons,
                      pa.array(parents, pa.int64()).to_numpy())
"""


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def recipe_path(recipe_file, rollouts, tmp_path, log):
    (tmp_path / "expensive.py").write_text(EXPENSIVE)
    return recipe_file(
        [
            {"group_size_filter": {"min": 2}},
            {"expensive_mapper": {"log": str(log)}},
            {"length_filter": {"column": "sample", "min": 1}},
        ],
        rollouts(12).to_pylist(),
        custom_operator_paths=[str(tmp_path / "expensive.py")],
    )


def exported(path):
    return pq.read_table(load(path).head.export_path)


def check_whole(path, rollouts):
    recipe = load(path)
    expected = run_in_memory([step.operator for step in recipe.steps], rollouts(12))
    assert exported(path).to_pylist() == expected.to_pylist()
    assert expected.num_rows > 40


@pytest.mark.parametrize("chunk_rows", [1, 7, 20, 1000])
def test_it_gives_what_the_operator_gives_in_memory(recipe_path, rollouts, log, chunk_rows):
    report = engine.run(load(recipe_path), chunk_rows=chunk_rows)
    assert log.read_text().splitlines().count("closed") == 1
    check_whole(recipe_path, rollouts)
    kept = [i for i in rollouts(12)["response_id"].to_pylist() if i.endswith("-1")]
    assert report.steps[1].dropped == {"gone": len(kept)}


LOUD = """
import numpy as np, pathlib
import pyarrow as pa
from rejuice.operators import Change, ResumableOperator

class LoudMapper(ResumableOperator):
    stop: str
    def reads(self): return ("response_id",)
    def writes(self): return ("sample",)
    def apply(self, table):
        every = [self._change(i) for i in table["response_id"].to_pylist()]
        return every[0] if every else Change({"sample": pa.array([], pa.string())})
    def process_rows(self, table, rows):
        ids = table["response_id"].to_pylist()
        for at, row in enumerate(rows):
            stop = pathlib.Path(self.stop)
            if at == 9 and stop.exists():
                stop.unlink()
                raise KeyboardInterrupt
            yield row, self._change(ids[row])
    def _change(self, name):
        fails = name.endswith("-1")
        logged = {"no answer": 2} if fails else {}
        failed = np.zeros(int(fails), np.int64)
        return Change({"sample": pa.array([name])}, notes={"rows": 1.0}, logged=logged, failed=failed)
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_a_resumed_run_reports_what_an_uninterrupted_one_does(recipe_file, rollouts, tmp_path, stopped):  # fmt: skip
    (tmp_path / "loud.py").write_text(LOUD)
    path = recipe_file(
        [{"loud_mapper": {"stop": str(tmp_path / "stop")}}],
        rollouts(12).to_pylist(),
        custom_operator_paths=[str(tmp_path / "loud.py")],
    )
    if stopped:
        (tmp_path / "stop").touch()
        with pytest.raises(KeyboardInterrupt):
            engine.run(load(path))
    (step,) = engine.run(load(path)).steps
    ids = rollouts(12)["response_id"].to_pylist()
    failures = [row for row, name in enumerate(ids) if name.endswith("-1")]
    assert step.logged == {"no answer": 2 * len(failures)}
    assert step.notes == {"rows": len(ids)}
    (chunk,) = (path.parent / "out" / ".rejuice").glob("loud_mapper-*/*.arrow")
    assert load_commit(chunk).change.failed.tolist() == failures


@pytest.mark.slow
@pytest.mark.parametrize("fate", ["stop", "kill"])
def test_what_was_finished_is_not_done_again(recipe_path, rollouts, log, tmp_path, fate):
    (tmp_path / "log.fate").write_text(fate)
    code = (
        "import sys; from pathlib import Path; from rejuice.pipelines.engine import run as engine\n"
        "from rejuice.pipelines.recipe.recipe import load\n"
        "engine.run(load(Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(recipe_path)], check=False, capture_output=True
    )
    assert done.returncode == (-signal.SIGKILL if fate == "kill" else -signal.SIGINT)
    before = {line for line in log.read_text().split() if line != "closed"}
    assert len(before) > 10
    assert not exported_yet(recipe_path)
    log.unlink()
    engine.run(load(recipe_path))
    after = Counter(log.read_text().split())
    # What is dropped may fare better in another run: it is not committed before all is done.
    assert {i for i in before if not i.endswith("-1")}.isdisjoint(after)
    assert set(after.values()) == {1}
    check_whole(recipe_path, rollouts)


def exported_yet(path):
    return load(path).head.export_path.exists()


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("left out", "left out 1 of 30 rows"),
        ("twice", "finished row 0, which it was not asked for"),
        ("wrong", "column 'sample' has 1 values for 2 rows"),
    ],
)
def test_a_resumable_operator_that_breaks_its_contract(recipe_path, rollouts, failure, message):
    with pytest.raises(OperatorError, match=message) as caught:
        engine.run(load(recipe_path, {"expensive_mapper.failure": failure}))
    assert str(caught.value).startswith(f"{recipe_path}, line 6, step 2 expensive_mapper: ")


@pytest.mark.recommended(
    "pipelines/engine/retry_missing.py", "--retry_dropped retries the rows that {…} dropped"
)
def test_dropped_rows_are_tried_again_on_request(recipe_path, rollouts, log):
    first = engine.run(load(recipe_path), chunk_rows=10)
    (recipe_path.parent / "log").unlink()
    again = engine.run(load(recipe_path), chunk_rows=10, retry_dropped=True)
    processed = [line for line in log.read_text().split() if line != "closed"]
    assert len(processed) == first.steps[1].dropped["gone"] > 5
    assert all(i.endswith("-1") for i in processed)
    assert again.steps == tuple(
        step.model_copy(update={"seconds": again.steps[at].seconds, "cached": at < 1})
        for at, step in enumerate(first.steps)
    )
    check_whole(recipe_path, rollouts)
    # What was made of the rows before is not taken for what is made of them now.
    assert first.key != again.key
    third = engine.run(load(recipe_path), chunk_rows=10)
    assert third.key == again.key
    assert all(step.cached for step in third.steps)


def test_a_bug_of_the_operator_is_reported_as_its_own(recipe_path):
    with pytest.raises(
        OperatorError, match=r"failed with ZeroDivisionError: .* \(expensive\.py:\d+\)"
    ):
        engine.run(load(recipe_path, {"expensive_mapper.failure": "bug"}))


def test_killed_between_the_last_row_and_the_commit(recipe_path, rollouts, log):
    engine.run(load(recipe_path))
    cache = recipe_path.parent / "out" / ".rejuice"
    (commit,) = cache.glob("expensive_mapper-*/*.arrow")
    commit.unlink()
    log.unlink()
    engine.run(load(recipe_path))
    assert all(row.endswith("-1") for row in new_rows(log)), "what is dropped is tried again"
    check_whole(recipe_path, rollouts)


def new_rows(log):
    found = [line for line in log.read_text().split() if line != "closed"] if log.exists() else []
    log.unlink(missing_ok=True)
    return found


@pytest.mark.slow
def test_what_was_done_counts_for_the_same_rows_whatever_led_to_them(recipe_path, log):
    """Another step before, other chunks, fewer rows, more rows: only what is new is done, and what
    was dropped tried again."""

    engine.run(load(recipe_path), chunk_rows=10)
    assert len(new_rows(log)) == 30
    report = engine.run(load(recipe_path, {"group_size_filter.max": "100"}), chunk_rows=10)
    assert all(row.endswith("-1") for row in new_rows(log))
    assert not report.steps[0].cached

    def rewrite(lines):
        (recipe_path.parent / "data.jsonl").write_text("".join(f"{line}\n" for line in lines))

    lines = (recipe_path.parent / "data.jsonl").read_text().splitlines()
    whole = pq.read_table(load(recipe_path).head.export_path).to_pylist()
    for rows, size in ((lines[2:-2], 10), (lines[::-1][3:], 7), (lines, 1000), (lines, 1)):
        rewrite(rows)
        engine.run(load(recipe_path), chunk_rows=size)
        assert all(row.endswith("-1") for row in new_rows(log))
    rewrite(lines)
    engine.run(load(recipe_path), chunk_rows=9)
    assert pq.read_table(load(recipe_path).head.export_path).to_pylist() == whole
    new_rows(log)
    rewrite([*lines, *(line.replace("-0011", "-0099") for line in lines[-2:])])
    engine.run(load(recipe_path), chunk_rows=10)
    assert {row for row in new_rows(log) if not row.endswith("-1")} == {
        json.loads(line.replace("-0011", "-0099"))["response_id"]
        for line in lines[-2:]
        if not json.loads(line)["response_id"].endswith("-1")
    }
    assert len(list((recipe_path.parent / "out").glob(".rejuice/kept-*"))) == 1
    engine.run(load(recipe_path, {"expensive_mapper.failure": "none"}), chunk_rows=10)
    assert len(new_rows(log)) > 30


def test_rows_of_a_chunk_that_was_stopped_count_in_another(recipe_path, log, tmp_path):
    (tmp_path / "log.fate").write_text("stop")
    with pytest.raises(KeyboardInterrupt):
        engine.run(load(recipe_path))
    before = {row for row in new_rows(log) if not row.endswith("-1")}
    assert len(before) > 5
    engine.run(load(recipe_path), chunk_rows=7)
    assert before.isdisjoint(new_rows(log))


def test_another_run_of_the_same_rows_waits(recipe_path, rollouts, log):
    """Two recipes may begin alike: the rows are done once, and both have them."""
    others = [{"export_path": str(recipe_path.parent / "out" / f"{k}.parquet")} for k in range(2)]
    runs = [
        threading.Thread(target=engine.run, args=(load(recipe_path, other),)) for other in others
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    tables = [pq.read_table(other["export_path"]) for other in others]
    assert tables[0] == tables[1]
    counts = Counter(log.read_text().split())
    assert counts.pop("closed") == 2
    assert set(counts.values()) == {1}


def test_a_disk_that_is_full_ends_the_run(recipe_path, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(kept_rows._SqliteRows, "put", full)
    with pytest.raises(Exception, match=r"no space left for .*; free some and run again"):
        engine.run(load(recipe_path))
