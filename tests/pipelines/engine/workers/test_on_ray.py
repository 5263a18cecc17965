"""On Ray a run writes the bytes of the local engine, whatever dies on the way."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from run_files import rows_of

from rejuice.operators import EngineError, OperatorError, RejuiceError
from rejuice.pipelines import run as run_from_python
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine import workers_on_ray
from rejuice.pipelines.engine.plan import Plan
from rejuice.pipelines.engine.workers_on_ray import RayWorkers
from rejuice.pipelines.ray_session import connected_to_ray
from rejuice.pipelines.recipe.recipe import load

pytestmark = pytest.mark.slow
REJUICE = [sys.executable, "-m", "rejuice.pipelines.cli"]
CHUNK_ROWS = 40
OPERATORS = """
import os, signal, time
from pathlib import Path
from rejuice.operators import Filter, drop

class SlowFilter(Filter):
    seconds: float = 0.0
    def reads(self): return ("response",)
    def decide(self, table):
        time.sleep(self.seconds)
        return drop({"never": [False] * table.num_rows})

class DyingFilter(Filter):
    folder: Path
    deaths: int
    def reads(self): return ("response_id",)
    def decide(self, table):
        if "response-0020-0" in table["response_id"].to_pylist():
            died = len(list(self.folder.glob("died-*")))
            if died < self.deaths:
                (self.folder / f"died-{died}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return drop({"never": [False] * table.num_rows})

class FailingFilter(Filter):
    def reads(self): return ("response_id",)
    def decide(self, table):
        for name in table["response_id"].to_pylist():
            if name == "response-0030-0":
                raise ValueError("no such thing")
        return drop({"never": [False] * table.num_rows})
"""
PROCESS = [
    {"pass_rate_filter": {"min": 0.1}},
    {"grpo_advantage_mapper": {}},
    {"exact_deduplicator": {}},
    {"minhash_deduplicator": {"threshold": 0.9}},
    {"label_balance_selector": {}},
    {"length_filter": {"min": 3}},
]


@pytest.fixture
def made(recipe_file, rollouts, tmp_path):
    """A factory of recipes with some steps in front of PROCESS."""
    (tmp_path / "mine.py").write_text(OPERATORS)

    def make(*steps, **head):
        rows = rollouts(60).to_pylist()
        files = [str(tmp_path / "mine.py")]
        return recipe_file([*steps, *PROCESS], rows, custom_operator_paths=files, **head)

    return make


@pytest.fixture
def run(ray_cluster, tmp_path):
    """A function that runs a recipe into a folder, on Ray or here, and returns what it wrote."""

    def run(path, out, *, np=1, ray=True, name="curated.parquet", **more):
        overrides = {"np": str(np), "export_path": str(tmp_path / out / name), **more}
        on_ray = {"engine": "ray", "ray_address": ray_cluster.address}
        engine.run(load(path, overrides), chunk_rows=CHUNK_ROWS, **(on_ray if ray else {}))
        return rows_of(tmp_path / out)

    return run


@pytest.mark.smoke
def test_one_two_and_four_workers_write_the_bytes_of_the_local_engine(made, run):
    path = made({"slow_filter": {}})
    expected = run(path, "local", ray=False)
    assert expected["report.json"]["rows_out"] > 0
    assert run(path, "local 2", np=2, ray=False) == expected
    for np in (1, 2, 4):
        assert run(path, f"ray {np}", np=np) == expected


def test_parts_of_an_export_are_written_by_the_workers(made, run, tmp_path):
    path = made()
    parts = {"name": "curated", "max_rows_per_file": "20"}
    expected = run(path, "local", ray=False, **parts)
    assert len(list((tmp_path / "local" / "curated").glob("part-*.parquet"))) > 3
    assert run(path, "ray", np=2, **parts) == expected


def test_a_damaged_commit_is_computed_again(made, run, tmp_path):
    path = made()
    expected = run(path, "out", ray=False)
    (tmp_path / "out" / "curated.parquet").unlink()
    shutil.rmtree(tmp_path / "out" / "curated.run")
    commit = next((tmp_path / "out").glob(".rejuice/grpo_advantage_mapper-*/000001.arrow"))
    data = bytearray(commit.read_bytes())
    data[len(data) // 2] ^= 1
    commit.write_bytes(data)
    assert run(path, "out", np=2) == expected


def test_a_worker_that_is_killed_is_replaced(made, run, tmp_path):
    path = made({"dying_filter": {"folder": str(tmp_path), "deaths": 2}})
    found = run(path, "ray", np=2)
    assert len(list(tmp_path.glob("died-*"))) == 2
    assert found == run(path, "local", ray=False)


def test_a_worker_that_dies_every_time_is_reported_in_one_line(made, run, tmp_path):
    path = made({"dying_filter": {"folder": str(tmp_path), "deaths": 99}})
    with pytest.raises(EngineError) as error:
        run(path, "ray", np=2)
    assert str(error.value) == (
        "step 1 dying_filter: the Ray worker of part 2 of 5 died 3 times: The worker died "
        "unexpectedly while executing this task. Check python-core-worker-*.log files for more "
        "information; run it again: finished parts are kept"
    )
    assert len(list(tmp_path.glob("died-*"))) == 3


@pytest.mark.parametrize("ray_first", [True, False], ids=["ray, local", "local, ray"])
def test_a_driver_that_is_killed_is_finished_by_the_other_engine(
    made, run, tmp_path, ray_cluster, ray_first
):
    path = made({"slow_filter": {"seconds": 0.2}})
    out = tmp_path / "killed"
    words = ["run", path, "--export_path", out / "curated.parquet", "--np", "2"]
    options = ["--ray", ray_cluster.address] if ray_first else ["--engine", "local"]
    driver = subprocess.Popen(
        [*REJUICE, *map(str, words), "--chunk_rows", str(CHUNK_ROWS), *options],
        stderr=subprocess.DEVNULL,
    )

    def commits():
        return sorted(out.glob(".rejuice/slow_filter-*/[0-9]*.arrow"))

    deadline = time.monotonic() + 60
    while len(commits()) < 2:
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    before = {path: path.stat().st_mtime_ns for path in commits()}
    assert not (out / "curated.parquet").exists()
    found = run(path, "killed", np=2, ray=not ray_first)
    assert len(commits()) > len(before) >= 2
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    assert found == run(path, "whole", ray=False)


def test_the_error_of_an_operator_reads_as_it_does_locally(made, run):
    path = made({"failing_filter": {}})
    with pytest.raises(OperatorError) as here:
        run(path, "local", ray=False)
    with pytest.raises(OperatorError) as there:
        run(path, "ray", np=2)
    assert str(here.value) == str(there.value)
    assert "no such thing (mine.py:" in str(there.value)
    assert "decide" in str(there.value.__cause__), "--debug prints the traceback of the worker"


def test_an_error_of_the_system_keeps_its_number(made, ray_cluster, tmp_path):
    def fill_up(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    plan = Plan.open(load(made()), tmp_path / "cache", CHUNK_ROWS)
    with (
        RayWorkers(plan, ray_cluster.address, print) as workers,
        pytest.raises(OSError, match="No space left on device") as error,
    ):
        list(workers.map(plan.steps, fill_up, 1))
    assert error.value.errno == errno.ENOSPC


def test_where_the_connection_stays_tasks_end_before_the_run(made, ray_cluster, tmp_path):
    """They would write beside what this process does next."""

    def fail_or_write(item):
        if not item:
            raise OSError(errno.EIO, "Input/output error")
        time.sleep(1)
        (tmp_path / f"written-{item}").touch()

    plan = Plan.open(load(made(), {"np": "2"}), tmp_path / "cache", CHUNK_ROWS)
    with (
        connected_to_ray(ray_cluster.address),
        RayWorkers(plan, ray_cluster.address, print) as workers,
    ):
        with pytest.raises(OSError, match="Input/output error"):
            list(workers.map((), fail_or_write, 9))
        assert [path.name for path in tmp_path.glob("written-*")] == ["written-1"]


def test_no_more_tasks_than_workers_at_a_time(made, ray_cluster, tmp_path):
    def begin_and_end(_):
        begin = time.monotonic()
        time.sleep(0.1)
        return begin, time.monotonic()

    plan = Plan.open(load(made(), {"np": "2"}), tmp_path / "cache", CHUNK_ROWS)
    with RayWorkers(plan, ray_cluster.address, print) as workers:
        results = dict(workers.map((), begin_and_end, 9))
    assert sorted(results) == list(range(9))
    begins = sorted(begin for begin, _ in results.values())
    ends = sorted(end for _, end in results.values())
    assert all(end <= begin for begin, end in zip(begins[2:], ends[:-2], strict=True))


def test_a_node_with_other_code_is_refused(made, run, monkeypatch):
    path = made()
    monkeypatch.setattr(workers_on_ray, "operator_key", lambda operator: "other")
    with pytest.raises(RejuiceError) as error:
        run(path, "ray")
    assert str(error.value).startswith(f"{path}, line 4, step 1 pass_rate_filter: node ")
    assert str(error.value).endswith(
        " of the Ray cluster has other code for this step; install there what is installed here"
    )


def test_a_cache_that_a_node_does_not_see_is_refused(made, run, second_node):
    with pytest.raises(EngineError, match=r"cannot read the cache in .*of one node/\.rejuice; "):
        run(made(), second_node)


def test_from_python(made, ray_cluster, tmp_path):
    recipe = load(made())
    here = run_from_python(recipe, chunk_rows=CHUNK_ROWS, cache=tmp_path / "a")
    there = run_from_python(
        recipe, chunk_rows=CHUNK_ROWS, cache=tmp_path / "b", engine="ray",
        ray_address=ray_cluster.address,
    )  # fmt: skip
    assert there.table.equals(here.table)
    assert there.decisions.equals(here.decisions)


@pytest.mark.usefixtures("interrupts")
def test_a_ray_of_its_own_ends_with_the_run(made, tmp_path):
    path = made({"slow_filter": {"seconds": 2.0}})
    words = ["run", path, "--chunk_rows", CHUNK_ROWS, "--np", "2", "--engine", "ray", "--ray"]
    command = [*REJUICE, *map(str, words), "local"]
    driver = psutil.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out/.rejuice/slow_filter-*/[0-9]*.arrow")):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    children = driver.children(recursive=True)
    assert any("raylet" in child.name() for child in children)
    os.kill(driver.pid, signal.SIGINT)
    _, err = driver.communicate()
    assert driver.returncode == 130, err
    assert err.splitlines()[-1] == "rejuice: stopped; run it again to continue where it stopped"
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "GCS" not in done.stderr
    assert Path(tmp_path / "out" / "curated.parquet").exists()
