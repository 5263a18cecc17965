import time

from rejuice.trainer.verl import figures
from rejuice.trainer.verl.figures import UsedCores


def test_cores_are_those_of_all_processes(monkeypatch):
    """One has ended since, and another has begun."""
    spent, times = iter([{1: 2.0, 2: 5.0}, {1: 5.0, 3: 2.0}, {1: 5.0, 3: 2.0}]), iter([0.0, 4.0, 6.0])  # fmt: skip
    monkeypatch.setattr(UsedCores, "_spent", staticmethod(lambda: next(spent)))
    monkeypatch.setattr(figures.time, "perf_counter", lambda: next(times))
    used = UsedCores()
    assert [used.read(), used.read()] == [(3.0 + 2.0) / 4.0, 0.0]


def test_work_of_this_process_is_counted():
    used, began = UsedCores(), time.process_time()
    while time.process_time() < began + 0.1:
        sum(range(10_000))
    assert used.read() > 0
