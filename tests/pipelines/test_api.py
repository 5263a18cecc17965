"""Recipes in Python: the rows, the checks and the messages of recipes in YAML."""

import operator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import rejuice.operators
from rejuice.operators import (
    DataError,
    ExactDeduplicator,
    Filter,
    GroupSizeFilter,
    PassRateFilter,
    RecipeError,
    drop,
    installed,
)
from rejuice.pipelines import Recipe, Result, load, run
from rejuice.pipelines.engine.run import run as run_to_export
from rejuice.pipelines.engine.steps import run_in_memory

PROCESS = [
    GroupSizeFilter(min=2),
    {"pass_rate_filter": {"min": 0.1, "max": 0.9}},
    "exact_deduplicator",
]
OPERATORS = [GroupSizeFilter(min=2), PassRateFilter(min=0.1, max=0.9), ExactDeduplicator()]


class LongFilter(Filter):
    """Drop short responses."""

    reasons: ClassVar = {"short": "it has fewer than 3 characters"}

    def reads(self):
        return ("response",)

    def decide(self, table):
        return drop({"short": pc.less(pc.utf8_length(table["response"]), 3)})


@pytest.fixture
def table(rollouts):
    table = rollouts(40)
    verdicts = ["correct" if row % 3 else "wrong_answer" for row in range(table.num_rows)]
    return (
        table.set_column(table.column_names.index("verdict"), "verdict", pa.array(verdicts))
        if "verdict" in table.column_names
        else table.append_column("verdict", pa.array(verdicts))
    )


@pytest.fixture
def dataset(table, tmp_path):
    pq.write_table(table, tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def test_a_table_in_a_table_out(table):
    result = run(Recipe(process=PROCESS, dataset=table))
    assert isinstance(result, Result)
    assert result.table.equals(run_in_memory(OPERATORS, table))
    assert 0 < result.table.num_rows < table.num_rows
    assert result.decisions.num_rows == table.num_rows - result.table.num_rows
    assert set(result.decisions["step"].to_pylist()) <= {
        "group_size_filter", "pass_rate_filter", "exact_deduplicator"
    }  # fmt: skip
    report = result.report
    assert (report.rows_in, report.rows_out) == (table.num_rows, result.table.num_rows)
    assert [step.step for step in report.steps] == [o.name() for o in OPERATORS]
    assert (report.dataset_path, report.export_path) == ("the table", "")


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl"])
def test_an_export_is_the_table_and_what_the_command_writes(dataset, tmp_path, suffix):
    export = tmp_path / "python" / f"rows.{suffix}"
    recipe = Recipe(PROCESS, dataset, export_path=export)
    result = run(recipe)
    assert export.exists()
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml())
    other = tmp_path / f"yaml.{suffix}"
    report = run_to_export(load(path, {"export_path": str(other)}))
    assert other.read_bytes() == export.read_bytes()
    assert result.table.num_rows == report.rows_out
    assert result.table["response_id"].to_pylist() == (
        run_in_memory(OPERATORS, pq.read_table(dataset))["response_id"].to_pylist()
    )


def test_suffixes_are_of_files_and_not_of_a_table(table):
    assert run(Recipe(PROCESS, table, suffixes="jsonl")).table.equals(
        run(Recipe(PROCESS, table)).table
    )


def test_a_round_trip_through_yaml(dataset, tmp_path):
    recipe = Recipe(
        PROCESS, str(dataset), export_path="out/x.parquet", np=2, open_tracer=True,
        text_keys="response", train={"steps": 3},
    )  # fmt: skip
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml())
    again = load(path)
    assert (again.head, again.steps) == (recipe.head, recipe.steps)
    assert again.for_data_juicer == recipe.for_data_juicer == {"open_tracer": True}
    assert again.to_yaml() == recipe.to_yaml()


def test_a_recipe_read_from_yaml_runs(dataset, tmp_path, table):
    path = tmp_path / "recipe.yaml"
    path.write_text(Recipe(PROCESS, dataset, export_path=tmp_path / "x.parquet").to_yaml())
    assert run(load(path)).table.equals(run_in_memory(OPERATORS, table))


def test_operators_of_this_process(table, dataset, tmp_path):
    assert run(Recipe([LongFilter()], table)).table.equals(run_in_memory([LongFilter()], table))
    recipe = Recipe([LongFilter()], dataset, export_path=tmp_path / "x.parquet")
    with pytest.raises(RecipeError) as caught:
        recipe.to_yaml()
    assert str(caught.value) == (
        "Recipe, step 1 long_filter: LongFilter is only defined in this Python process; "
        "put it into a file and name that in custom_operator_paths"
    )


@pytest.mark.slow
def test_operators_of_data_juicer(table):
    lowest = {"text_length_filter": {"min_len": 2, "text_key": "response"}}
    long = pc.greater_equal(pc.utf8_length(table["response"]), 2)
    assert run(Recipe([lowest], table)).table["response_id"].equals(table.filter(long)["response_id"])  # fmt: skip


@pytest.mark.parametrize(
    ("process", "settings", "message"),
    [
        ([], {}, "Recipe: 'process' is empty; make it a list of operators"),
        (["pass_rate_filtr"], {}, "Recipe, step 1 pass_rate_filtr: unknown operator; did you mean 'pass_rate_filter'?"),
        ([{"pass_rate_filter": {"mx": 1}}], {}, "Recipe, step 1 pass_rate_filter: unknown field 'mx'; did you mean 'max'?"),
        ([{"a": {}, "b": {}}], {}, "Recipe, step 1: a step is one operator and its fields; write `- name: {…}`"),
        (PROCESS, {"project_nam": "x"}, "Recipe: unknown key 'project_nam'; did you mean 'project_name'?"),
        (PROCESS, {"name": "mine", "np": 0}, "mine: 'np' is 0; input should be greater than or equal to 1"),
    ],
)  # fmt: skip
def test_errors_are_reported_as_for_a_recipe_in_yaml(table, process, settings, message):
    with pytest.raises(RecipeError) as caught:
        Recipe(process, table, **settings)
    assert str(caught.value) == message


def test_a_missing_column_is_reported_before_anything_runs(table):
    with pytest.raises(RecipeError) as caught:
        run(Recipe(PROCESS, table.drop_columns(["verdict"])))
    assert str(caught.value).startswith(
        "Recipe, step 2 pass_rate_filter: column 'verdict' is missing; "
    )


def test_an_error_in_the_table_is_reported_for_the_table(table):
    mixed = table.take(pa.array([0, table.num_rows - 1, 0]))
    with pytest.raises(DataError) as caught:
        run(Recipe([GroupSizeFilter(min=1)], mixed))
    assert str(caught.value).startswith("the table: rows 1 and 3 have the same prompt")


def test_chunks_are_kept_on_request(table, tmp_path):
    recipe = Recipe(PROCESS, table)
    first = run(recipe, cache=tmp_path / "cache")
    again = run(recipe, cache=tmp_path / "cache")
    assert not any(step.cached for step in first.report.steps)
    assert all(step.cached for step in again.report.steps)
    assert again.table.equals(first.table)
    assert not any(step.cached for step in run(recipe).report.steps)


def test_an_export_of_something_else_is_not_replaced(table, tmp_path):
    export = tmp_path / "x.parquet"
    export.write_bytes(b"mine")
    with pytest.raises(RecipeError, match="exists"):
        run(Recipe(PROCESS, table, export_path=export))
    assert export.read_bytes() == b"mine"
    assert run(Recipe(PROCESS, table, export_path=export), overwrite=True).table.num_rows


def test_yaml_cannot_hold_a_table_and_needs_an_export(table, dataset):
    with pytest.raises(RecipeError, match="the dataset is a table; write it to a file"):
        Recipe(PROCESS, table, export_path="x.parquet").to_yaml()
    with pytest.raises(RecipeError, match="there is no export_path; give one"):
        Recipe(PROCESS, dataset).to_yaml()


def test_a_step_that_changes_groups_is_warned_of_where_the_run_is_called(table):
    with pytest.warns(UserWarning, match="exact_deduplicator: drops repeated responses") as caught:
        run(Recipe(["exact_deduplicator", "pass_rate_filter"], table))
    assert [warning.filename for warning in caught] == [__file__]


def test_references_that_cannot_be_graded_are_found_before_anything_runs():
    rows = pa.table({"question": ["1 + 1?", "2 + 2?"], "answer": ["#### 2", "#### 4"]})
    template = {"prompt_template_mapper": {"reference_pattern": "#### .*"}}
    recorded = {"recorded_rollout_mapper": {"columns": ["answer"]}}
    with pytest.raises(RecipeError) as caught:
        run(Recipe([template, recorded, "math_verify_mapper"], rows))
    assert str(caught.value) == (
        "Recipe, step 1 prompt_template_mapper: of the first 2 rows of the table, none has a "
        "reference that can be graded against: '#### 2' (the reference is a worked solution, not a "
        "bare answer); put the answer into a group of reference_pattern, as in '#### (.*)'"
    )


def test_no_row_may_be_left(table, tmp_path):
    everything = [GroupSizeFilter(min=1000)]
    for name in ("", "x.parquet", "y.jsonl"):
        export = str(tmp_path / name) if name else None
        recipe = Recipe(everything, table, export_path=export)
        assert run(recipe, allow_empty=True).table.num_rows == 0


def test_every_built_in_operator_is_a_name_of_the_package():
    ours = {p.attr for p in installed().values() if p.module.startswith("rejuice.operators.")}
    assert ours <= set(rejuice.operators.__all__)
    for name in ours:
        assert operator.attrgetter(name)(rejuice.operators).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'PassRateFilte'"):
        _ = rejuice.operators.PassRateFilte
    source = Path(rejuice.operators.__file__).read_text()
    assert all(f"import {name}\n" in source for name in ours), "type checkers need them, too"
