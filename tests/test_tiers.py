"""What a fast test may not do, and which files are left out of a run."""

import multiprocessing
import os
import subprocess
import sys

import pytest
import tiers

NAME = "tests/test_some.py::test_some"


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda: os.system("true"),
        os.fork,
        lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
    ],
    ids=["subprocess", "system", "fork", "multiprocessing"],
)
def test_a_fast_test_that_starts_a_process_fails(start):
    with tiers.fast_test(NAME), pytest.raises(tiers.NotFastError, match=f"{NAME} starts a process"):
        start()


def test_a_fast_test_that_loads_torch_fails(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with tiers.fast_test(NAME), pytest.raises(tiers.NotFastError, match=f"{NAME} loads torch"):
        exec("import torch")


@pytest.mark.parametrize(
    ("text", "fast", "smoke"),
    [
        ("pytestmark = pytest.mark.slow\n", True, True),
        ("pytestmark = pytest.mark.slow  # It loads torch.\n", True, True),
        ("pytestmark = [\n    pytest.mark.vllm,\n]\n", True, True),
        ("pytestmark = [pytest.mark.slow, pytest.mark.smoke]\n", True, False),
        ("@pytest.mark.slow\ndef test(): ...\n", False, True),
        ("pytestmark = pytest.mark.usefixtures('one_thread')\n", False, True),
    ],
)
def test_files_of_which_nothing_is_run_are_left_out(tmp_path, text, fast, smoke):
    file = tmp_path / "test_file.py"
    file.write_text(text)
    assert tiers.is_left_out(file, "not slow") is fast
    assert tiers.is_left_out(file, "smoke") is smoke
    assert not tiers.is_left_out(file, "")


class Item:
    """A test with marks."""

    def __init__(self, *marks):
        self.nodeid, self.marks = NAME, [*marks]

    def get_closest_marker(self, name):
        return name if name in self.marks else None

    def add_marker(self, name):
        self.marks.append(name)


def test_marks_imply_slow_and_smoke_needs_it():
    alone, plain = Item("alone"), Item()
    tiers.mark_slow([alone, plain, Item("slow", "smoke")])
    assert (alone.marks, plain.marks) == (["alone", "slow"], [])
    for marks in (["smoke"], ["smoke", "slow", "alone"]):
        with pytest.raises(pytest.UsageError, match="mark it slow and smoke, and nothing else"):
            tiers.mark_slow([Item(*marks)])
