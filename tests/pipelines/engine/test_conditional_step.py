"""A step with `where:` is about the rows that match; all others pass as they are."""

import json
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rejuice.operators import (
    Change,
    DataError,
    ExactDeduplicator,
    FormatRewardMapper,
    GdpoAdvantageMapper,
    GroupStatsMapper,
    GrpoAdvantageMapper,
    LengthFilter,
    Mapper,
    Operator,
    OperatorError,
    RecordedRolloutMapper,
    ResumableOperator,
    RewardSumMapper,
)
from rejuice.operators.check import check_operator
from rejuice.operators.columns import NOT_APPLICABLE, component, component_columns
from rejuice.pipelines.engine import run as engine
from rejuice.pipelines.engine.plan import Plan
from rejuice.pipelines.engine.report import check_not_empty, retry_hints
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load

RIGHT = "<think>a</think><answer>1</answer>"
A = {"source": "a"}
B = {"source": "b"}


def table(rows):
    return pa.Table.from_pylist(rows)


def responses(*sources, text=RIGHT, **columns):
    """A row for each source, all of one prompt."""
    return table(
        [
            {"prompt_id": "p", "source": source, "response": text, **columns}
            for source in sources
        ]
    )  # fmt: skip


# --- What becomes of the other rows -------------------------------------------------------------


def test_a_new_component_is_not_applicable_in_other_rows():
    found = run_in_memory([FormatRewardMapper(where=A)], responses("a", "b", None, "a"))
    assert found["reward_format"].to_pylist() == [0.1, None, None, 0.1]
    assert found["reward_format_missing"].to_pylist() == [None, *[NOT_APPLICABLE] * 2, None]


def test_a_column_that_is_there_keeps_its_values_in_other_rows():
    steps = [FormatRewardMapper(where=A), FormatRewardMapper(where=B, right=5.0)]
    found = run_in_memory(steps, responses("a", "b", "c"))
    assert found["reward_format"].to_pylist() == [0.1, 5.0, None]
    assert found["reward_format_missing"].to_pylist() == [None, None, NOT_APPLICABLE]


def test_a_number_of_the_dataset_is_not_missing_where_a_step_adds_reasons():
    rows = responses("a", "b", reward_format=0.7)
    found = run_in_memory([FormatRewardMapper(where=A)], rows)
    assert found["reward_format"].to_pylist() == [0.1, 0.7]
    assert found["reward_format_missing"].to_pylist() == [None, None]


def test_other_columns_are_null_in_other_rows():
    rows = responses("a", "b", verdict="correct")
    found = run_in_memory([GroupStatsMapper(where=B)], rows)
    assert found["group_n"].to_pylist() == [None, 1]


def test_a_filter_drops_none_of_the_other_rows():
    step = LengthFilter(min=100, unit="characters", where=A)
    found = run_in_memory([step], responses("a", "b", "a", text="short"))
    assert found["source"].to_pylist() == ["b"]


def test_the_rows_of_a_group_that_match_are_the_group():
    rows = pa.table(
        {
            "prompt_id": ["p"] * 4 + ["q"] * 2,
            "source": ["a", "b", "a", "b", "b", "b"],
            "reward": [1.0, 9.0, 0.0, 9.0, 1.0, 0.0],
        }
    )
    step = GrpoAdvantageMapper(normalise="none", where=A)
    found = run_in_memory([step], rows)
    assert found["advantage"].to_pylist() == [0.5, None, -0.5, None, None, None]


def test_rows_made_of_a_row_take_its_place():
    rows = table(
        [
            {"prompt_id": "p", "source": "b", "responses": ["x"]},
            {"prompt_id": "q", "source": "a", "responses": ["y", "z"]},
            {"prompt_id": "r", "source": "b", "responses": ["w"]},
        ]
    )
    found = run_in_memory([RecordedRolloutMapper(columns=["responses"], where=A)], rows)
    assert found["prompt_id"].to_pylist() == ["p", "q", "q", "r"]
    assert found["response"].to_pylist() == [None, "y", "z", None]
    # What the step takes away is taken from its own rows.
    assert found["responses"].to_pylist() == [["x"], None, None, ["w"]]


class AddedRowMapper(Operator):
    """Adds a row without a parent behind each row."""

    def reads(self):
        return ("prompt_id",)

    def writes(self):
        return ("prompt_id", "made")

    def apply(self, table):
        ids = [each for name in table["prompt_id"].to_pylist() for each in (name, f"new {name}")]
        made = [each.startswith("new") for each in ids]
        parents = [each for row in range(table.num_rows) for each in (row, -1)]
        columns = {"prompt_id": pa.array(ids, pa.string()), "made": pa.array(made, pa.bool_())}
        return Change(columns, parents=np.array(parents, np.int64))


def test_a_new_row_cuts_no_group_in_two():
    rows = pa.table({"prompt_id": ["p", "p", "p", "q"], "source": ["a", "b", "b", "a"]})
    found = run_in_memory([AddedRowMapper(where=A)], rows)
    assert found["prompt_id"].to_pylist() == ["p", "p", "p", "new p", "q", "new q"]
    assert found["made"].to_pylist() == [False, None, None, True, False, True]


def test_no_row_matches():
    rows = responses("b", "b")
    for step in (
        FormatRewardMapper(where=A),
        LengthFilter(where=A, min=1, unit="words"),
        ExactDeduplicator(where=A),
        AddedRowMapper(where=A),
    ):
        found = run_in_memory([step], rows)
        assert found.num_rows == 2
        assert found["response"].to_pylist() == rows["response"].to_pylist()


def test_all_rows_match():
    rows = responses("a", "a")
    steps = [FormatRewardMapper(), FormatRewardMapper(where=A)]
    assert run_in_memory(steps[:1], rows).equals(run_in_memory(steps[1:], rows))


# --- Errors -------------------------------------------------------------------------------------


def test_two_types_of_a_column_are_an_error_of_the_step():
    rows = responses("a", "b", reward_format="high")
    with pytest.raises(
        OperatorError, match="writes column 'reward_format' as double, which is str"
    ):
        run_in_memory([FormatRewardMapper(where=A)], rows)


def test_a_missing_column_is_named_with_the_step():
    with pytest.raises(DataError, match=r"step 1 format_reward_mapper: there is no column 'sauce'"):
        run_in_memory([FormatRewardMapper(where={"sauce": 1})], responses("a"))


class FailingMapper(Operator):
    """Fails on the text `bad`."""

    def reads(self):
        return ("response",)

    def apply(self, table):
        if "bad" in table["response"].to_pylist():
            raise ValueError("no")
        return Change()


def test_the_row_that_fails_is_that_of_the_dataset():
    rows = table([{"source": s, "response": r} for s, r in ("bx", "ax", "bx", ("a", "bad"))])
    with pytest.raises(OperatorError, match="at row 4"):
        run_in_memory([FailingMapper(where=A)], rows)
    run_in_memory([FailingMapper(where=B)], rows)


# --- What is not applicable is no failure -------------------------------------------------------


@pytest.mark.parametrize("on_missing", ["fail", "drop_row", "drop_group", "group_mean"])
def test_a_sum_skips_what_is_not_applicable(on_missing):
    rows = responses("a", "b", "a", reward_accuracy=1.0)
    total = RewardSumMapper(weights={"accuracy": 1.0, "format": 2.0}, on_missing=on_missing)
    found = run_in_memory([FormatRewardMapper(where=A), total], rows)
    assert found["reward"].to_pylist() == [1.2, 1.0, 1.2]
    parts = total.contributions(run_in_memory([FormatRewardMapper(where=A)], rows))
    assert parts["format"].tolist() == [0.2, 0.0, 0.2]


class FlatMapper(Mapper):
    """A component that is 0 in all of its rows."""

    def reads(self):
        return ("response",)

    def writes(self):
        return component_columns("flat")

    def map(self, table):
        return component("flat", np.zeros(table.num_rows))


def test_a_sum_still_misses_what_is_missing():
    rows = table(
        [
            {"prompt_id": "p", "source": "a", "response": None},
            {"prompt_id": "p", "source": "b", "response": "x"},
        ]
    )
    total = RewardSumMapper(weights={"format": 1.0, "flat": 1.0}, on_missing="drop_row")
    found = run_in_memory([FormatRewardMapper(where=A), FlatMapper(where=B), total], rows)
    assert found.select(["source", "reward"]).to_pylist() == [{"source": "b", "reward": 0.0}]


def test_a_substitute_is_the_mean_of_rows_that_the_component_is_for():
    rows = table(
        [
            {"prompt_id": "p", "source": source, "response": text}
            for source, text in [("a", RIGHT), ("a", None), ("b", RIGHT)]
        ]
    )
    total = RewardSumMapper(weights={"format": 1.0, "flat": 1.0}, on_missing="group_mean")
    found = run_in_memory([FormatRewardMapper(where=A), FlatMapper(where=B), total], rows)
    assert found["reward"].to_pylist() == [0.1, 0.1, 0.0]


@pytest.mark.parametrize(
    ("on_missing", "left"),
    [("drop_row", [0, 2, 3]), ("drop_group", [3]), ("group_mean", [3])],
)
@pytest.mark.parametrize("kind", [RewardSumMapper, GdpoAdvantageMapper])
def test_a_row_that_no_component_is_for_has_no_reward(kind, on_missing, left):
    rows = table(
        [
            {"prompt_id": prompt, "source": source, "response": RIGHT, "row": at}
            for at, (prompt, source) in enumerate(["pa", "pb", "pa", "qa", "qa"])
        ]
    )
    step = kind(weights={"format": 1.0}, on_missing=on_missing)
    graded = run_in_memory([FormatRewardMapper(where=A)], rows)
    change = check_operator(step, graded)
    reasons = change.reasons.to_pylist()
    kept = [at for at in (0, 2, 3) if reasons[at] is None]
    assert kept == left
    assert {reason for reason in reasons if reason} == {"no_component"}
    written = change.columns[step.writes()[0]]
    assert written[1].as_py() is None
    assert written[3].as_py() is not None


def test_a_weight_of_0_is_a_component_all_the_same():
    """A schedule that ends at 0, or an ablation, leaves no row without a reward."""
    rows = responses("a", "b", reward_accuracy=1.0)
    total = RewardSumMapper(weights={"format": 1.0, "accuracy": 0.0})
    found = run_in_memory([FormatRewardMapper(where=A), total], rows)
    assert found["reward"].to_pylist() == [0.1, 0.0]


def test_a_row_that_no_component_is_for_ends_the_run_by_default():
    message = (
        "no reward component is for response 1 of prompt 'p': reward_format is for other rows; "
        "correct the `where` of the steps that write them, add a component for such rows, or set "
        "on_missing to drop_row or drop_group to go on without them"
    )
    total = RewardSumMapper(weights={"format": 1.0})
    with pytest.raises(DataError, match=re.escape(message)):
        run_in_memory([FormatRewardMapper(where=A), total], responses("a", "b"))


def _run(recipe_file, process, rows, **head):
    recipe = load(recipe_file(process, rows, **head))
    report = engine.run(recipe, chunk_rows=head.pop("chunk_rows", 2))
    return recipe, report, pq.read_table(recipe.head.export_path)


def test_rows_that_no_template_is_for_may_lie_between_prompts(recipe_file):
    rows = [{"source": s, "question": f"{at}?", "answer": "1"} for at, s in enumerate("bababb")]
    _, _, found = _run(recipe_file, [{"prompt_template_mapper": {"where": A}}], rows)
    has_prompt = [prompt is not None for prompt in found["prompt_id"].to_pylist()]
    assert has_prompt == [False, True, False, True, False, False]


def test_templates_of_different_columns_make_chunks_of_whole_groups(recipe_file):
    names = {"a": ("question", "answer"), "b": ("problem", "solution")}
    rows = [
        {
            "source": source,
            names[source][0]: f"{source}{at}?",
            names[source][1]: "1",
            "verdict": verdict,
        }
        for source in "ab"
        for at in range(4)
        for verdict in ("correct", "incorrect")
    ]
    steps = [
        {"prompt_template_mapper": {"question": q, "reference": a, "where": {"source": source}}}
        for source, (q, a) in names.items()
    ]
    recipe, _, found = _run(recipe_file, [*steps, "group_stats_mapper"], rows)
    plan = Plan.open(recipe, recipe.head.export_path.parent / ".rejuice", 2)
    assert list(plan.source.rows) == [2] * 8
    assert found["group_n"].to_pylist() == [2] * 16


def test_a_step_without_a_row_of_its_own_ends_no_run(recipe_file):
    rows = responses("b", "b").to_pylist()
    recipe, report, _ = _run(recipe_file, [{"format_reward_mapper": {"where": A}}], rows)
    check_not_empty(recipe, report)
    # The figures of a step are those of the rows that it is about.
    assert report.steps[0].columns["reward_format_missing"]["counts"] == {}


def test_a_step_that_fails_on_all_of_its_rows_ends_the_run(recipe_file):
    rows = [*responses("b").to_pylist(), *responses("a", "a", text=None).to_pylist()]
    recipe, report, _ = _run(recipe_file, [{"format_reward_mapper": {"where": A}}], rows)
    with pytest.raises(Exception, match="none of 2 rows has a reward_format: no_response 2"):
        check_not_empty(recipe, report)


FLAKY = """
from typing import ClassVar
from pathlib import Path
import pyarrow as pa
from rejuice.operators import Mapper, component

class FlakyMapper(Mapper):
    file: Path
    code: ClassVar = "1"

    def reads(self):
        return ("response",)

    def writes(self):
        return ("reward_flaky", "reward_flaky_missing")

    def map(self, table):
        texts = table["response"].to_pylist()
        with self.file.open("a") as file:
            file.write("".join(f"{text}\\n" for text in texts))
        again = self.file.with_suffix(".up").exists()
        missing = [None if again or text == "good" else "down" for text in texts]
        return component("flaky", [1.0] * len(texts), pa.array(missing, pa.string()))
"""


def test_only_failures_are_retried(recipe_file, tmp_path):
    (tmp_path / "flaky.py").write_text(FLAKY)
    calls = tmp_path / "calls"
    rows = [
        {"source": source, "response": text}
        for source, text in [("a", "good"), ("b", "other"), ("a", "weak"), ("b", "other")]
    ]
    process = [{"flaky_mapper": {"file": str(calls), "where": A}}]
    head = {"custom_operator_paths": [str(tmp_path / "flaky.py")]}
    recipe, report, _ = _run(recipe_file, process, rows, **head)
    assert list(retry_hints(recipe, report)) == [
        "1 rows failed in flaky_mapper: add --retry_missing flaky_mapper to retry"
    ]
    calls.with_suffix(".up").touch()
    calls.write_text("")
    report = engine.run(recipe, chunk_rows=2, retry_missing="flaky_mapper", overwrite=True)
    assert calls.read_text().split() == ["weak"]
    assert report.steps[0].retried == 1
    found = pq.read_table(recipe.head.export_path)
    assert found["reward_flaky"].to_pylist() == [1.0, None, 1.0, None]
    assert found["reward_flaky_missing"].to_pylist() == [None, NOT_APPLICABLE, None, NOT_APPLICABLE]


def test_failures_of_another_step_are_not_retried_by_this_one(recipe_file, tmp_path):
    """Two steps write one column, each in its own rows; those of the first have failed."""
    (tmp_path / "flaky.py").write_text(FLAKY)
    calls = tmp_path / "calls"
    rows = [{"source": source, "response": "weak"} for source in "abab"]
    process = [
        {"flaky_mapper": {"file": str(calls), "where": A}},
        {"flaky_mapper": {"file": str(calls), "where": {"source": "b"}}},
    ]
    head = {"custom_operator_paths": [str(tmp_path / "flaky.py")]}
    recipe, _, _ = _run(recipe_file, process, rows, **head)
    calls.with_suffix(".up").touch()
    report = engine.run(recipe, chunk_rows=2, retry_missing="flaky_mapper_2", overwrite=True)
    assert [step.retried for step in report.steps] == [0, 2]
    found = pq.read_table(recipe.head.export_path)
    assert found["reward_flaky"].to_pylist() == [None, 1.0, None, 1.0]


# --- A run in chunks gives what is computed in memory -------------------------------------------

COUNTED = """
from typing import ClassVar
from pathlib import Path
import pyarrow as pa
from rejuice.operators import Change, ResumableOperator

class CountedCallsMapper(ResumableOperator):
    file: Path
    code: ClassVar = "1"

    def reads(self):
        return ("response",)

    def writes(self):
        return ("length",)

    def process_rows(self, table, rows):
        for row in rows:
            text = table["response"][row].as_py()
            with self.file.open("a") as file:
                file.write(f"{text}\\n")
            yield row, Change({"length": pa.array([len(text or "")])})

    def apply(self, table):
        return Change({"length": pa.array([len(t or "") for t in table["response"].to_pylist()],
                                          pa.int64())})
"""


@pytest.fixture
def counted(tmp_path):
    (tmp_path / "counted.py").write_text(COUNTED)
    return {"custom_operator_paths": [str(tmp_path / "counted.py")]}


def test_each_row_of_a_resumable_step_is_computed_once_whatever_the_condition(
    recipe_file, counted, tmp_path
):
    calls = tmp_path / "calls"
    rows = [{"source": s, "response": f"{s}{n}"} for n, s in enumerate("abcabc")]

    def run(where):
        calls.write_text("")
        step = {"counted_calls_mapper": {"file": str(calls), **({"where": where} if where else {})}}
        recipe = load(recipe_file([step], rows, **counted))
        engine.run(recipe, chunk_rows=2, overwrite=True)
        return pq.read_table(recipe.head.export_path)["length"].to_pylist(), calls.read_text()

    assert run(A) == ([2, None, None, 2, None, None], "a0\na3\n")
    assert run({"source": ["a", "b"]}) == ([2, 2, None, 2, 2, None], "b1\nb4\n")
    assert run(None) == ([2] * 6, "c2\nc5\n")
    assert run(A) == ([2, None, None, 2, None, None], "")


SOURCES = st.sampled_from(["a", "b", None])
STEPS = [
    {"exact_deduplicator": {"where": A}},
    {"exact_deduplicator": {"within": "all", "where": {"source": ["a", None]}}},
    {"minhash_deduplicator": {"ngram": 1, "threshold": 0.5, "within": "all", "where": B}},
    {"length_filter": {"min": 2, "unit": "characters", "where": {"size": {"min": 2}}}},
    {"format_reward_mapper": {"where": A}},
    {"grpo_advantage_mapper": {"where": {"source": ["a", "b"]}}},
    {"label_balance_selector": {"column": "label", "positive": "x", "where": A}},
    {"counted_calls_mapper": {"where": B}},
]


@st.composite
def groups(draw):
    found = []
    for group in range(draw(st.integers(1, 5))):
        for _ in range(draw(st.integers(1, 4))):
            found.append(
                {
                    "prompt_id": f"p{group}",
                    "source": draw(SOURCES),
                    "size": draw(st.none() | st.integers(0, 4)),
                    "response": draw(st.sampled_from(["x", "xy", "xy z", "z"])),
                    "label": draw(st.sampled_from(["x", "y"])),
                    "reward": draw(st.sampled_from([0.0, 1.0])),
                }
            )
    return found


SCHEMA = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("source", pa.string()),
        ("size", pa.int64()),
        ("response", pa.string()),
        ("label", pa.string()),
        ("reward", pa.float64()),
    ]
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: next(iter(step)))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=groups())
def test_chunks_change_nothing(step, rows, recipe_file, counted, tmp_path, folder_in_memory):
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / "rows.parquet")
    ((name, fields),) = step.items()
    if name == "counted_calls_mapper":
        step = {name: {**fields, "file": str(tmp_path / "calls")}}
    head = {"dataset_path": str(tmp_path / "rows.parquet"), **counted}
    recipe = load(recipe_file([step], **head))
    whole = run_in_memory([s.operator for s in recipe.steps], pa.Table.from_pylist(rows, SCHEMA))
    engine.run(recipe, chunk_rows=3, cache=folder_in_memory / "cache", overwrite=True)
    found = pq.read_table(recipe.head.export_path)
    assert found.to_pylist() == whole.to_pylist()
    # No row that does not match is gone.
    where = recipe.steps[0].operator.where
    if "source" in where:
        wanted = where["source"] if isinstance(where["source"], tuple) else (where["source"],)
        others = Counter(json.dumps(r) for r in rows if r["source"] not in wanted)
        left = found.select(SCHEMA.names).to_pylist()
        assert not others - Counter(json.dumps(row) for row in left)


def test_rows_of_resumable_steps_are_not_of_those_that_do_not_match():
    seen = []

    class SeenMapper(ResumableOperator):
        def reads(self):
            return ("response",)

        def process_rows(self, table, rows):
            raise AssertionError

        def apply(self, table):
            seen.extend(table["response"].to_pylist())
            return Change()

    rows = table([{"source": s, "response": f"{s}!"} for s in "abab"])
    run_in_memory([SeenMapper(where=B)], rows)
    assert seen == ["b!", "b!"]
