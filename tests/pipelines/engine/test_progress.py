"""Lines for a log, a bar for a terminal, nothing where quiet."""

import io
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from rejuice.pipelines.engine import progress
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.progress import Progress
from rejuice.pipelines.recipe.recipe import load


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


def lines(monkeypatch, events, rows=4000):
    """The lines of a log, given (time, what happens to the task)."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    console = Console(file=io.StringIO(), force_terminal=False, width=40)
    with Progress(console).task("sample", rows) as task:
        for clock.now, event in events:
            event(task)
    return console.file.getvalue().splitlines()


def rows(count):
    return lambda task: task(count)


def tokens(count):
    return lambda task: task.sample(count)


def found(count):
    return lambda task: task.find(count)


def test_rows_of_the_cache_are_in_no_rate_and_cost_no_time(monkeypatch):
    events = [(1.0, rows(10)), (2.0, found(3000)), (2.5, found(500)), (11.0, rows(20))]
    assert lines(monkeypatch, events) == [
        "sample: 3,530 of 4,000 rows, 3,500 from the cache, 2 rows/s, 235 s left"
    ]


def test_a_batch_of_groups_is_no_rate(monkeypatch):
    # A model is loaded for 100 s; then groups finish in batches, milliseconds apart.
    batch = [(100 + 0.01 * k, rows(1)) for k in range(32)]
    assert lines(monkeypatch, batch) == []
    assert lines(monkeypatch, [*batch, (116.0, rows(1))]) == [
        "sample: 33 of 4,000 rows, 2 rows/s, 1,984 s left"
    ]


def test_tokens_are_counted_while_no_group_is_finished(monkeypatch):
    events = [(100.0 + k, tokens(40)) for k in range(25)]
    assert lines(monkeypatch, events, rows=200) == [
        "sample: 0 of 200 rows, 240 tokens, 40 tokens/s",
        "sample: 0 of 200 rows, 640 tokens, 40 tokens/s",
    ]


def test_rates_begin_with_the_first_tokens(monkeypatch):
    events = [(100.0, tokens(40)), (160.0, tokens(2400)), (160.1, rows(8)), (170.0, rows(6))]
    assert lines(monkeypatch, events, rows=200) == [
        "sample: 0 of 200 rows, 2,440 tokens, 40 tokens/s",
        "sample: 14 of 200 rows, 2,440 tokens, 34 tokens/s, 0.61 rows/s, 307 s left",
    ]


def test_a_terminal_shows_tokens_and_what_was_found(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Progress(console).task("sample", 10) as task:
        task.find(4)
        task.sample(1234)
    assert "4 from the cache, 1,234 tokens" in console.file.getvalue()
    assert "4/10" in console.file.getvalue()


class Recorded(Progress):
    """Keeps the tasks that it was asked to show."""

    def __init__(self):
        super().__init__(quiet=True)
        self.tasks = {}

    @contextmanager
    def task(self, title, rows):
        with super().task(title, rows) as task:
            self.tasks[title] = task
            yield task


def test_a_run_counts_what_it_found_apart_from_what_it_computed(recipe_file, rollouts, tmp_path):
    recorded = tmp_path / "recorded.parquet"
    made = rollouts(6)
    keys = made["prompt_id"].to_pylist()
    firsts = [keys.index(key) for key in dict.fromkeys(keys)]
    chats = [[{"role": "user", "content": key}] for key in keys]
    pq.write_table(pa.table({"prompt": chats, "response": made["response"]}), recorded)
    sampling = {"engine": "recorded", "recorded": {"path": str(recorded)}, "n": 1}
    process = [
        {"policy_rollout_mapper": {**sampling, "on_policy": False}},
        {"length_filter": {"min": 1}},
    ]
    path = recipe_file(process, [{"prompt_id": keys[k], "prompt": chats[k]} for k in firsts])
    for overrides, counts in (
        ({}, {"policy_rollout_mapper": (0, 6), "length_filter": (0, 6)}),
        (None, {"policy_rollout_mapper": (6, 0), "length_filter": (6, 0)}),
        ({"length_filter.min": "2"}, {"policy_rollout_mapper": (6, 0), "length_filter": (0, 6)}),
    ):
        shown = Recorded()
        if overrides is None:  # A finished run has no tasks.
            load(path).head.export_path.unlink()
        engine.run(load(path, overrides), progress=shown)
        tasks = {name: shown.tasks[name] for name in counts}
        assert {name: (task.found, task.computed) for name, task in tasks.items()} == counts
