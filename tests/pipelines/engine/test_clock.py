"""Clocks that jump, between runs and within one: no file is taken for another because of its time."""

import os
import shutil
from functools import partial

import pytest
from forked_command import ForkedCommand
from jumping_clock import jump
from paid_run import PaidRun

HOUR, DAY = 3600.0, 86400.0


def shift_files(folder, seconds):
    """Date files as a clock would have that was wrong by so many seconds."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            then = path.stat().st_mtime + seconds
            os.utime(path, (then, then))


@pytest.fixture
def started(tmp_path):
    """A run that was killed while it sampled, its command, and what it should give."""
    run = PaidRun(tmp_path / "run")
    command = ForkedCommand(run.arguments, tmp_path / "output.log")
    run.paid()
    right = run.result()
    shutil.rmtree(run.out)
    assert command.run(*run.arguments, environment={"DIE_AFTER": "13"}).status == -9
    return run, command, right


@pytest.mark.slow
@pytest.mark.parametrize(
    "seconds", [-HOUR, DAY, -30 * DAY], ids=["back", "forward", "a month back"]
)
def test_a_run_goes_on_whatever_the_clock_says(started, seconds):
    run, command, right = started
    before, _ = run.paid()
    shift_files(run.out, seconds)
    ended = command.run(*run.arguments, before=partial(jump, seconds))
    assert ended.status == 0, ended
    assert run.result() == right
    samples, _ = run.paid()
    assert all(prompt.endswith("3") for prompt in before & samples)
    # What is finished stays finished.
    shift_files(run.out, -2 * seconds)
    ended = command.run(*run.arguments, before=partial(jump, -seconds))
    assert ended.status == 0, ended
    assert run.result() == right
    assert [each.total() for each in run.paid()] == [0, 0]


@pytest.mark.slow
def test_a_dataset_that_was_changed_after_the_clock_went_back_is_read_again(started):
    run, command, right = started
    dataset = run.folder / "prompts.jsonl"
    assert command.run(*run.arguments).status == 0
    assert run.result() == right
    run.paid()
    earlier = dataset.stat().st_mtime - HOUR
    dataset.write_text(dataset.read_text().replace("What is 7?", "What is 5?"))
    os.utime(dataset, (earlier, earlier))
    assert command.run(*run.arguments).status == 0
    samples, _ = run.paid()
    assert set(samples) == {"p0007"}, "the changed prompt"
