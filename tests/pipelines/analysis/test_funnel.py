"""The funnel as people see it."""

import io
import re

from rich.console import Console

from rejuice.pipelines.analysis.funnel import show_funnel
from rejuice.pipelines.console import LOG_WIDTH
from rejuice.pipelines.engine.report import Report, StepReport

STEPS = (
    StepReport(
        step="recorded_rollout_mapper",
        rows_in=1000,
        rows_out=4000,
        added=3000,
        dropped={},
        seconds=1.234,
        cached=False,
        notes={"shortfall": 2.0},
        columns={"reward": {"n": 3, "null": 0, "mean": 0.5, "std": 0.25, "min": 0, "max": 1}},
    ),
    StepReport(
        step="pass_rate_filter",
        rows_in=4000,
        rows_out=3998,
        added=0,
        dropped={"too_hard": 1, "too_easy": 1},
        seconds=9.0,
        cached=True,
        notes={},
        columns={
            "policy": {"counts": {"[/INST]": 2, "b": 1}},
            "empty": {"n": 0, "null": 4},
            "task": {"counts": {"solve": 4000}},
            "policy_version": {"n": 9, "null": 0, "mean": 3, "std": 0, "min": 3, "max": 3},
        },
    ),
)


def shown(project="try", export="out/[x]/curated.parquet", steps=STEPS, **console):
    report = Report(
        project_name=project,
        recipe="r.yaml",
        dataset_path="d.jsonl",
        export_path=export,
        key="key",
        cache="",
        chunk_rows=0,
        rows_in=1000,
        rows_out=3998,
        added=3000,
        dropped=2,
        seconds=1.2,
        steps=steps,
    )
    console = Console(file=io.StringIO(), **console)
    show_funnel(report, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_golden():
    assert shown() == [
        "try",
        "step                     rows in  added  dropped  rows out  seconds  drop reasons            details",
        "recorded_rollout_mapper    1,000  3,000              4,000     1.23                          reward: 0.500 (sd 0.250); shortfall: 2",
        "pass_rate_filter           4,000               2     3,998   cached  too_hard 1, too_easy 1  policy: [/INST] 2, b 1",
        "3,998 rows in out/[x]/curated.parquet",
        "audit log and report: out/[x]/curated.run",
    ]


def test_a_narrow_terminal_has_the_drop_reasons_below_the_table():
    narrow = {"force_terminal": True, "color_system": None}
    assert shown(**narrow, width=LOG_WIDTH) == shown()
    lines = shown(**narrow, width=80)
    assert lines == shown(**narrow, width=LOG_WIDTH - 1)
    assert lines == [
        "try",
        "step                     rows in  added  dropped  rows out  seconds",
        "recorded_rollout_mapper    1,000  3,000              4,000     1.23",
        "pass_rate_filter           4,000               2     3,998   cached",
        "pass_rate_filter dropped: too_hard 1, too_easy 1",
        "(a terminal of 140 columns shows the details of each step)",
        "3,998 rows in out/[x]/curated.parquet",
        "audit log and report: out/[x]/curated.run",
    ]


def test_what_was_retried_is_the_first_of_the_details():
    again = STEPS[0].model_copy(update={"retried": 1200, "notes": {}})
    assert shown(steps=(again,))[2].endswith("  retried: 1,200; reward: 0.500 (sd 0.250)")


def test_what_data_juicer_has_logged_is_below_the_table():
    logged = {"ERROR [/b] 500": 1400, "WARNING a": 2, "WARNING b": 1, "WARNING c": 1}
    lines = shown(steps=(STEPS[0], STEPS[1].model_copy(update={"logged": logged})))
    assert lines[-4:] == [
        "pass_rate_filter: logged 1,400 times: ERROR [/b] 500",
        "pass_rate_filter: logged 2 times: WARNING a",
        "pass_rate_filter: logged once: WARNING b",
        "pass_rate_filter: 1 more message is in report.json",
    ]


def test_prompts_that_were_cut_and_dialogues_have_a_line():
    notes = {"prompt_cut": 1200.0, "prompt_alone": 2.0, "dialogues": 3.0, "other": 1.0}
    lines = shown(steps=(STEPS[0].model_copy(update={"notes": notes}),))
    assert "recorded_rollout_mapper: 2 responses are their prompt" in lines[-2]
    assert [lines[-3], lines[-1]] == [
        "recorded_rollout_mapper: 1,200 responses began with their prompt, which was cut",
        "recorded_rollout_mapper: 3 questions were read as dialogues",
    ]


def test_names_are_never_markup_and_long_paths_are_not_cut():
    lines = shown(project="[/b]", export=f"{'deep/' * 60}x.parquet")
    assert lines[0] == "[/b]"
    assert lines[-2] == f"3,998 rows in {'deep/' * 60}x.parquet"


def constant(value, n=4, null=0):
    return {"n": n, "null": null, "mean": value, "std": 0.0, "min": value, "max": value}


def details(columns):
    """What is in the table about a step that wrote these columns."""
    lines = shown(steps=(STEPS[1].model_copy(update={"dropped": {}, "columns": columns}),))
    text = " ".join(" ".join(lines[2:]).split()).removeprefix("pass_rate_filter 4,000 3,998 cached")
    return re.split(" missing rewards: | 3,998 rows in ", text)[0].strip()


def test_what_a_row_is_graded_by_is_shown_even_if_it_is_the_same_in_all_rows():
    found = details(
        {
            "verdict": {"counts": {"wrong_answer": 4000}},
            "reward_accuracy": constant(0.0),
            "reward_accuracy_missing": {"counts": {"timeout": 2}},
            "reward": constant(-0.1),
            "advantage": constant(-0.0),
        }
    )
    assert found == (
        "verdict: wrong_answer 4,000; reward_accuracy: 0.000; reward: -0.100; advantage: 0.000"
    )


def test_what_no_row_is_graded_by_is_left_out_where_it_is_the_same_in_all_rows():
    found = details(
        {
            "task": {"counts": {"generate": 4000}},
            "finish_reason": {"counts": {"stop": 4000}},
            "turn_count": constant(2.0),
            "pass_rate": constant(0.5),
            "reward_model": {"counts": {}},
            "verdict": {"counts": {}},
        }
    )
    assert found == ""


def test_a_reward_that_no_row_has_is_missing():
    nothing = {"n": 0, "null": 1200}
    found = details({"reward": nothing, "advantage": {"n": 0, "null": 0}, "pass_rate": nothing})
    assert found == "reward: missing 1,200"


def test_what_weights_mask_and_what_a_condition_is_about_is_shown():
    of_tokens = {"n": 40, "null": 0, "mean": 0.25, "std": 0.1, "min": 0, "max": 1}
    of_rows = {"n": 30, "null": 0, "mean": 1.0, "std": 0.0, "min": 1, "max": 1}
    weights = {"token_weight_masked": of_tokens, "was_masked": of_tokens}
    steps = [
        STEPS[1].model_copy(update={"columns": weights}),
        STEPS[1].model_copy(update={"columns": {"loss_weight_masked": of_rows}, "matched": 30}),
    ]
    text = " ".join(" ".join(shown(steps=steps, width=LOG_WIDTH + 100)).split())
    assert "token_weight masks 25.0% of the tokens of a response" in text
    assert "was_masked: 0.250 (sd 0.100)" in text
    assert "token_weight:" not in text
    assert "token_weight_masked" not in text
    expected = (
        "applied to 30 of 4,000 rows; loss_weight masks 100.0% of the tokens of their responses"
    )
    assert expected in text
