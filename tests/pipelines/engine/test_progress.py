"""Lines for a log, a bar for a terminal, nothing where quiet."""

import io

from rich.console import Console

from rejuice.pipelines.engine import progress
from rejuice.pipelines.engine.progress import Progress


def logged(terminal=False, quiet=False, clock=(), monkeypatch=None):
    times = iter([0.0, *clock])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200)
    with Progress(console, quiet=quiet).task("read", 4000) as advance:
        for _ in clock:
            advance(1000)
    return console.file.getvalue()


def test_a_log_gets_a_line_every_ten_seconds(monkeypatch):
    text = logged(clock=[1.0, 10.0, 12.0, 20.0], monkeypatch=monkeypatch)
    assert text == (
        "read: 2,000 of 4,000 rows, 111 rows/s, 18 s left\n"
        "read: 4,000 of 4,000 rows, 158 rows/s, 0 s left\n"
    )


def test_what_came_before_the_first_rows_is_not_in_the_rate(monkeypatch):
    text = logged(clock=[100.0, 110.0], monkeypatch=monkeypatch)
    assert text == "read: 2,000 of 4,000 rows, 100 rows/s, 20 s left\n"


def test_quick_work_writes_nothing_to_a_log(monkeypatch):
    assert logged(clock=[1.0, 2.0], monkeypatch=monkeypatch) == ""


def test_quiet_is_quiet(monkeypatch):
    assert logged(quiet=True, clock=[10.0, 20.0], monkeypatch=monkeypatch) == ""


def test_a_terminal_gets_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Progress(console).task("read", 10) as advance:
        advance(10)
    assert "read" in console.file.getvalue()
    assert "10/10" in console.file.getvalue()
