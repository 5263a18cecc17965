"""Killed at any moment, or out of disk: the next run goes on and gives the same bytes."""

import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_files import NAMES_PATHS, files_of

from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load

PROCESS = [
    {"pass_rate_filter": {"min": 0.1}},
    {"exact_deduplicator": {}},
    {"grpo_advantage_mapper": {}},
    {"label_balance_selector": {}},
    {"slow_filter": {}},
]
# Loaded as a custom operator file: kills its process before or after the n-th rename, which is
# where the engine makes things visible.
OPERATORS = """
import os, pathlib, signal, time
from rejuice.operators import Filter, drop

class SlowFilter(Filter):
    gil_bound = True
    def reads(self): return ("response",)
    def decide(self, table):
        time.sleep(float(os.environ.get("SLEEP", "0")))
        return drop({"never": [False] * table.num_rows})

at, when = int(os.environ.get("DIE_AT", "0")), os.environ.get("DIE", "")
renames, rename = 0, pathlib.Path.replace

def replace(self, target):
    global renames
    renames += 1
    if at == renames and when == "before": os.kill(os.getpid(), signal.SIGKILL)
    result = rename(self, target)
    if at == renames and when == "after": os.kill(os.getpid(), signal.SIGKILL)
    return result

pathlib.Path.replace = replace
"""


@pytest.fixture
def command(recipe_file, rollouts, tmp_path):
    (tmp_path / "mine.py").write_text(OPERATORS)
    path = recipe_file(
        PROCESS, rollouts(20).to_pylist(), custom_operator_paths=[str(tmp_path / "mine.py")]
    )
    rename = Path.replace
    yield [sys.executable, "-m", "rejuice.pipelines.cli", "run", str(path), "--chunk_rows", "40"]
    Path.replace = rename


def execute(command, out, check=True, **environment):
    return subprocess.run(
        [*command, "--export_path", str(out / "curated.parquet")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        errors="replace",
        check=check,
    )


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_rename(command, tmp_path, when):
    path = Path(command[4])
    whole = load(path, {"export_path": str(tmp_path / "out" / "curated.parquet")})
    assert run_forked(whole) == 0
    expected = without_manifest(tmp_path / "out")
    assert len(expected) == 2 + len(PROCESS)
    for at in range(1, 100):
        shutil.rmtree(tmp_path / "out")
        killed = run_forked(whole, at, when)
        if killed == 0:
            break
        assert killed == signal.SIGKILL
        assert run_forked(whole) == 0
        assert without_manifest(tmp_path / "out") == expected
    assert at > 20


def without_manifest(out):
    """What a run has written, but for its manifest, which has a checksum of its times."""
    files = files_of(out)
    del files["curated.run/manifest.json"]
    return files


def run_forked(recipe, at=0, when=""):
    """Run a recipe in a fork of this process, which is quick, and give its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            gc.freeze()  # Collections would copy all that this process has loaded.
            # The operators' file was loaded once, before the fork; its counters are ours to set.
            mine = sys.modules[type(recipe.steps[-1].operator).__module__]
            mine.at, mine.when, mine.renames = at, when, 0
            engine.run(recipe, chunk_rows=40)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


@pytest.mark.slow
def test_killed_with_two_workers_leaves_no_process_and_the_same_bytes(command, tmp_path):
    execute(command, tmp_path / "whole")
    out = tmp_path / "out"
    workers = [*command, "--np", "2", "--export_path", str(out / "curated.parquet")]
    rng = random.Random(0)
    for _ in range(4):
        running = subprocess.Popen(
            workers, env={**os.environ, "SLEEP": "0.3"}, stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        time.sleep(rng.uniform(0.8, 2.2))
        running.kill()
        running.wait()
        deadline = time.monotonic() + 60
        while group_is_alive(running.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not group_is_alive(running.pid)
    execute([*command, "--np", "2"], out)
    for name, content in files_of(tmp_path / "whole").items():
        if name.rpartition("/")[2] not in NAMES_PATHS:
            assert files_of(out)[name] == content


def group_is_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_disk_that_fills_up(command, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        full = execute(command, disk, check=False)
        assert full.returncode == 2
        assert full.stderr.splitlines()[-1] == (
            f"rejuice: no space left for {disk}/.rejuice; "
            "free some and run again: finished chunks are kept"
        )
        assert not (disk / "curated.parquet").exists()
        assert not list(disk.rglob(".*.arrow.*")), "no half-written file is left"
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        execute(command, disk)
        execute(command, tmp_path / "whole")
        assert (disk / "curated.parquet").read_bytes() == (
            tmp_path / "whole" / "curated.parquet"
        ).read_bytes()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
