"""Disks that are full, used up, or read-only: one clear line, and the next run goes on.

The disks are real ones, in memory; making them needs root. Without root, the errors of a quota and
of a read-only disk are raised where files reach the disk.
"""

import errno
import os
import subprocess
from collections import Counter
from contextlib import contextmanager

import pytest
from forked_command import ForkedCommand
from paid_run import PaidRun, is_refused

from rejuice.operators import RejuiceError
from rejuice.pipelines.dataset import files
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.recipe.recipe import load


@pytest.fixture
def whole(tmp_path):
    """A run, and the command that runs it; it was run once, elsewhere."""
    run = PaidRun(tmp_path / "run")
    command = ForkedCommand(run.arguments, tmp_path / "output.log")
    run.paid()
    run.right = run.result()
    subprocess.run(["rm", "-r", str(run.out)], check=True)
    run.out.mkdir()
    return run, command


@contextmanager
def small_disk(folder, size):
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield lambda options: subprocess.run(
            ["mount", "-o", f"remount,{options}", str(folder)], check=True
        )
    finally:
        # Lazily: a table that was read here may not be collected yet.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def last_line(ended):
    assert ended.status == 2, ended
    assert "Traceback" not in ended.output
    return ended.output.rstrip().rpartition("\n")[2]


def check_nothing_lost(run, samples):
    """The result is right, and only what was refused was sampled again."""
    assert run.result() == run.right
    twice = {prompt for prompt, number in samples.items() if number > 1}
    assert all(map(is_refused, twice))
    unfinished = [path for path in run.out.rglob(".*") if path.suffix not in ("", ".lock")]
    assert not [path for path in unfinished if path.is_file()]


@pytest.mark.slow
def test_a_disk_may_be_full_at_any_file(whole):
    run, command = whole
    lines = Counter()
    for size in (*range(4, 64, 8), *range(64, 240, 16)):
        with small_disk(run.out, size) as remount:
            ended = command.run(*run.arguments)
            if ended.status != 0:
                line = last_line(ended)
                assert str(run.out) in line
                assert "o space left" in line or "disk is full" in line, line
                lines[line] += 1
                remount("size=8m")
                assert command.run(*run.arguments).status == 0
            check_nothing_lost(run, run.paid()[0])
    assert f"rejuice: no space left for {run.out}/.rejuice; " in " ".join(lines)
    assert sum(lines.values()) > 5


@pytest.mark.slow
def test_a_read_only_disk(whole):
    run, command = whole
    with small_disk(run.out, 8192) as remount:
        assert command.run(*run.arguments, environment={"DIE_AFTER": "13"}).status == -9
        remount("ro")
        assert last_line(command.run(*run.arguments)) == (
            f"rejuice: {run.out}/.rejuice/lock: Read-only file system"
        )
        remount("rw")
        assert command.run(*run.arguments).status == 0
        check_nothing_lost(run, run.paid()[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "line"),
    [
        (errno.ENOSPC, "no space left for {cache}; free some and run again: finished chunks are kept"),
        (errno.EDQUOT, "no space left for {cache}; free some and run again: finished chunks are kept"),
        (errno.EROFS, "{file}: Read-only file system"),
        (errno.EIO, "{file}: Input/output error"),
    ],
    ids=["full", "quota", "read-only", "broken"],
)  # fmt: skip
def test_an_error_when_a_file_reaches_the_disk(tmp_path, monkeypatch, code, line):
    run = PaidRun(tmp_path / "run")
    recipe = load(tmp_path / "run" / "recipe.yaml")
    sync, left = files.sync, [0]

    def failing(path):
        left[0] -= 1
        if not left[0]:
            raise OSError(code, os.strerror(code), str(path))
        sync(path)

    monkeypatch.setattr(files, "sync", failing)
    cache = run.out / ".rejuice"
    for at in (1, 2, 5, 12, 20, 31):
        left[0] = at
        with pytest.raises(RejuiceError) as caught:
            engine.run(recipe, chunk_rows=8)
        found = str(caught.value)
        assert found.startswith(line.partition("{file}")[0].format(cache=cache))
        assert found.endswith(line.rpartition("{file}")[2].format(cache=cache))
        assert "\n" not in found
    left[0] = 0
    engine.run(recipe, chunk_rows=8)
    samples, judgements = run.paid()
    assert all(prompt.endswith("3") for prompt, number in samples.items() if number > 1)
    assert max(judgements.values()) == 1
    right = run.result()
    again = PaidRun(tmp_path / "again")
    engine.run(load(tmp_path / "again" / "recipe.yaml"), chunk_rows=8)
    assert again.result()["export"] == right["export"]
