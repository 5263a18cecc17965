"""The funnel as people see it."""

import io

from rich.console import Console

from rejuice.pipelines.apply.report import Report, StepReport
from rejuice.pipelines.show.funnel import show_funnel

STEPS = (
    StepReport(
        "recorded_rollout_mapper", 1000, 4000, 3000, {}, 1.234, False, {"shortfall": 2.0},
        {"reward": {"n": 3, "null": 0, "mean": 0.5, "std": 0.25, "min": 0, "max": 1}},
    ),
    StepReport(
        "pass_rate_filter", 4000, 3998, 0, {"too_hard": 1, "too_easy": 1}, 9.0, True, {},
        {"policy": {"counts": {"[/INST]": 2}}, "empty": {"n": 0, "null": 4}},
    ),
)  # fmt: skip


def shown(project="try", export="out/[x]/curated.parquet"):
    report = Report(
        project, "r.yaml", "d.jsonl", export, "key", "", 0, 1000, 3998, 3000, 2, 1.2, STEPS
    )
    console = Console(file=io.StringIO())
    show_funnel(report, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_golden():
    assert shown() == [
        "try",
        "step                     rows in  added  dropped  rows out  seconds  dropped because         found",
        "recorded_rollout_mapper    1,000  3,000              4,000     1.23                          reward 0.500 ± 0.250, shortfall 2",
        "pass_rate_filter           4,000               2     3,998   cached  too_hard 1, too_easy 1  [/INST] 2",
        "3,998 rows in out/[x]/curated.parquet",
        "decisions and report.json in out/[x]/curated.run",
    ]


def test_names_are_never_markup_and_long_paths_are_not_cut():
    lines = shown(project="[/b]", export=f"{'deep/' * 60}x.parquet")
    assert lines[0] == "[/b]"
    assert lines[-2] == f"3,998 rows in {'deep/' * 60}x.parquet"
