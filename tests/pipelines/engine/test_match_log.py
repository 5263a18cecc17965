"""How many rows a `where` matches, and the warning where that is none."""

import pyarrow as pa
import pytest
from command import runner

from rejuice.operators import FormatRewardMapper
from rejuice.pipelines.engine import conditional_step
from rejuice.pipelines.engine.conditional_step import MatchLog
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.report import Report

SOURCES = ["gsm8k"] * 5 + ["math"] * 2 + [None]


def message(where, rows=None, parts=2):
    table = rows or pa.table({"source": SOURCES, "level": [1, 2, 3, 4, 5, 6, 7, None]})
    step, size = FormatRewardMapper(where=where), -(-table.num_rows // parts)
    logs = [
        MatchLog.of(step, Frame.of(table.slice(start, size)))
        for start in range(0, table.num_rows, size)
    ]
    for each in logs[1:]:
        logs[0].merge(each)
    return logs[0].why_none()


@pytest.mark.parametrize("parts", [1, 2, 8])
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"source": "gsm8k"}, ""),
        (
            {"source": "gsm8kk"},
            "source is gsm8kk in no row, but gsm8k 5, math 2, null 1; did you mean 'gsm8k'?",
        ),
        (
            {"source": ["code", "Math"]},
            "source is code or Math in no row, but gsm8k 5, math 2, null 1; did you mean 'math'?",
        ),
        ({"level": {"min": 8}}, "level at least 8 in no row, but from 1 to 7, null 1"),
        (
            {"source": "gsm8kk", "level": 3},
            "source is gsm8kk in no row, but gsm8k 5, math 2, null 1; did you mean 'gsm8k'?",
        ),
        (
            {"source": "math", "level": 1},
            "some match each of its columns, but none all of them",
        ),
    ],
)
def test_why_no_row_matches(where, found, parts):
    assert message(where, parts=parts) == (found and f"`where` matches none of 8 rows: {found}")


def test_values_are_listed_as_far_as_a_line_holds_them():
    rows = pa.table({"source": [f"s{n}" for n in range(9)] + ["s0"]})
    assert message({"source": "x"}, rows).endswith(
        "source is x in no row, but s0 2, s1 1, s2 1, s3 1, s4 1, 4 other values"
    )


def test_long_values_that_begin_alike_are_counted_together():
    rows = pa.table({"source": ["a" * 200 + end for end in "xyz"] + ["b"]})
    assert f"but {'a' * 200}... 3, b 1" in message({"source": "c"}, rows)


def test_a_log_of_many_parts_keeps_the_most_frequent_values(monkeypatch):
    monkeypatch.setattr(conditional_step, "_MOST_KEPT", 2)
    rows = pa.table({"source": ["a", "a", "b", "c", "d", "a"]})
    for parts in (1, 3, 6):
        # Of two values that are as frequent, the first one is kept.
        assert message({"source": "x"}, rows, parts).endswith("in no row, but a 3, b 1")


def test_what_values_have_that_cannot_be_seen_is_escaped():
    rows = pa.table({"source": ["one\ntwo \x1b[31mred"]})
    assert message({"source": "x"}, rows).endswith(r"but one\ntwo \u001b[31mred 1")


def test_a_value_that_need_not_occur_is_nothing_unusual():
    rows = pa.table({"finish_reason": ["stop"], "verdict": ["correct"], "task": ["generate"]})
    for where in ({"finish_reason": "length"}, {"verdict": "timeout"}, {"task": "verify"}):
        assert message(where, rows, 1) == ""
    rows = pa.table({"finish_reason": ["stop"] * 3})
    assert "did you mean 'stop'?" in message({"finish_reason": "stopp"}, rows)


ROWS = [
    {"prompt_id": f"p{n}", "data_source": source, "response": "x", "reward_accuracy": 1.0}
    for n, source in enumerate(["gsm8k"] * 3 + ["math"])
]
LINE = (
    "format_reward_mapper: `where` matches none of 4 rows: data_source is gsm8kk in no row, but "
    "gsm8k 3, math 1; did you mean 'gsm8k'?"
)


def test_a_run_names_the_step_and_counts_the_rows(recipe_file, monkeypatch, capsys, tmp_path):
    rejuice = runner(monkeypatch, capsys, tmp_path)
    steps = [
        {"format_reward_mapper": {"where": {"data_source": "gsm8kk"}}},
        {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "where": {"data_source": "math"}}},
    ]
    path = recipe_file(steps, ROWS)
    code, out, _ = rejuice("run", path, "--chunk_rows", "1")
    assert code == 0
    assert f"warning: {LINE}\n" in out
    first, last = Report.read(tmp_path / "out" / "curated.parquet").steps
    assert (first.matched, last.matched) == (0, 1)
    assert (first.unmatched, last.unmatched) == (LINE.partition(": ")[2], "")
    # From the cache, and of a run that has nothing to do, it is the same.
    assert f"warning: {LINE}\n" in rejuice("run", path, "--chunk_rows", "1")[1]
    assert f"warning: {LINE}\n" in rejuice("report", path)[1]
    monkeypatch.setenv("COLUMNS", "200")
    assert "applied to 1 of 4 rows" in rejuice("report", path)[1]


def test_a_step_without_a_condition_has_no_such_figure(recipe_file, monkeypatch, capsys, tmp_path):
    rejuice = runner(monkeypatch, capsys, tmp_path)
    rejuice("run", recipe_file([{"format_reward_mapper": {}}], ROWS))
    (step,) = Report.read(tmp_path / "out" / "curated.parquet").steps
    assert (step.matched, step.unmatched) == (None, "")
