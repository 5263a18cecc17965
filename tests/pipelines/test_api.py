"""Recipes in Python: the rows, the checks and the messages of recipes in YAML."""

import gc
import operator
import os
import pickle
from pathlib import Path
from tempfile import gettempdir
from typing import ClassVar
from xml.etree import ElementTree

import datasets
import pandas as pd
import polars as pl
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
from rejuice.pipelines import EmptyRunError, Recipe, Result, load, run
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
    assert again.head == recipe.head
    assert [s.operator for s in again.steps] == [s.operator for s in recipe.steps]
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
        "bare answer); let the first group of reference_pattern be the bare answer, as in '#### (.*)'"
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


# --- What a notebook gives and shows --------------------------------------------------

SAMPLES = [
    {"question": "What is 3 * 4?", "answer": "12", "samples": ["It is 12.", "12", "7"], "level": 1},
    {"question": "What is 7 - 9?", "answer": "-2", "samples": ["-2", None, "3"], "level": None},
    {"question": "What is 1 + 1?", "answer": "2", "samples": ["2", "It is 2.", "2"], "level": 3},
]
GRADED = [
    "prompt_template_mapper",
    {"recorded_rollout_mapper": {"columns": ["samples"]}},
    "math_verify_mapper",
    "group_stats_mapper",
    {"pass_rate_filter": {"max": 0.9}},
    {"reward_sum_mapper": {"weights": {"accuracy": 1.0}, "on_missing": "drop_row"}},
    "grpo_advantage_mapper",
]


@pytest.fixture
def in_terminal(monkeypatch, tmp_path):
    """The working directory is empty, and pages are opened in a browser, which only notes them."""
    opened = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("webbrowser.open", opened.append)
    return opened


def frames():
    table = pa.Table.from_pylist(SAMPLES)
    pandas = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    yield SAMPLES
    yield pandas.astype({"question": "category", "answer": "category"})
    yield pl.from_arrow(table).with_columns(pl.col("question").cast(pl.Categorical)).lazy()
    yield datasets.Dataset(table)


def test_whatever_holds_the_dataset_the_rows_are_the_same():
    expected = run(Recipe(GRADED, pa.Table.from_pylist(SAMPLES)))
    assert expected.table["level"].to_pylist() == [1, 1, 1, None, None]
    for data in frames():
        found = run(Recipe(GRADED, data))
        assert found.table.to_pylist() == expected.table.to_pylist()
        assert found.decisions == expected.decisions


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "mine: dataset is a NoneType; give a path, a pyarrow.Table, a DataFrame of pandas or polars, a datasets.Dataset, or a list of dicts"),
        ([{"a": 1}, 2], "mine: dataset is a list whose item 2 is a int, not a dict; give a list of dicts, or a list of paths"),
    ],
)  # fmt: skip
def test_a_dataset_of_another_type_is_refused_in_one_line(data, message):
    with pytest.raises(RecipeError) as caught:
        Recipe(GRADED, data, name="mine")
    assert str(caught.value) == message


def test_a_recipe_and_a_result_are_shown_in_a_few_lines():
    recipe = Recipe(GRADED[:3], SAMPLES)
    steps = "prompt_template_mapper, recorded_rollout_mapper, math_verify_mapper"
    assert repr(recipe) == f"<Recipe: a table of 3 rows -> {steps}>"
    lines = repr(run(Recipe(GRADED, SAMPLES))).splitlines()
    assert lines == [
        "rejuice: 3 rows in, 6 added, 4 dropped, 5 rows out; 7 steps",
        "  recorded_rollout_mapper  3 -> 9",
        "  pass_rate_filter         9 -> 6, too_easy 3",
        "  reward_sum_mapper        6 -> 5, missing_component 1",
        "table: 5 rows, 16 columns; decisions: 4 rows",
    ]


def test_a_notebook_shows_a_result_with_three_plots():
    table = pa.Table.from_pylist(SAMPLES).append_column("<b>", pa.array([1, 2, 3]))
    result = run(Recipe(GRADED, table, project_name="<i>"))
    html = result._repr_html_()
    titles = [each.text for each in ElementTree.fromstring(f"<div>{html}</div>").iter("figcaption")]
    assert titles == ["rows after each step", "reward of rows left", "verdicts"]
    assert "too_easy 3" in html
    assert "&lt;i&gt;" in html
    assert "table: 5 rows of question, answer, level, &lt;b&gt;, " in html
    rates = run(Recipe(GRADED[:5], table))._repr_html_()
    assert "pass rate of prompts left" in rates
    own = pa.table({"reward": ["high", "low"], "response": ["a", "bcd"]})
    assert "reward of" not in run(Recipe([LongFilter()], own))._repr_html_()


@pytest.mark.parametrize(
    ("export", "from_file"), [(None, False), (None, True), ("out/mine.parquet", False)]
)
def test_a_result_writes_its_page_and_explains_its_rows(in_terminal, tmp_path, export, from_file):
    pq.write_table(pa.Table.from_pylist(SAMPLES), "rows.parquet")
    dataset = "rows.parquet" if from_file else SAMPLES
    result = run(Recipe([*GRADED, LongFilter()], dataset, export_path=export))
    page = result.view()
    assert page.path == Path("rejuice.html" if export is None else "out/mine.html")
    assert in_terminal == [(tmp_path / page.path).as_uri()]
    html = page.path.read_text("utf-8")
    assert "Only rows that are left are here" not in html
    assert '"name":"long_filter"' in html
    assert f'<iframe src="{page.path}"' in page._repr_html_()
    dropped = result.decisions.to_pylist()[-1]
    text = result.explain(dropped["row_id"])
    assert repr(text) == text
    assert text.endswith("08_long_filter: dropped, short (it has fewer than 3 characters)\n")
    assert f"{'rows.parquet' if from_file else 'the table'}, row 2\n" in text
    rows = result.explain("row 1")
    kept = result.table["response_id"][0].as_py()[:8]
    hint = f'3 rows; one of them in full: result.explain("{kept}"), all: everything=True'
    assert rows.splitlines()[-1] == hint
    assert result.explain(kept).splitlines()[0] == f"response_id {result.table['response_id'][0]}"
    assert result.explain(1) == rows
    assert "04_group_stats_mapper: kept" in result.explain("row 1", everything=True)
    assert gettempdir() + "/rejuice-" not in html + text + rows
    assert ("rejuice audit " in html) == ("rejuice audit out/mine.parquet" in html) == bool(export)
    with pytest.raises(DataError) as caught:
        result.explain("row 9")
    origin = "rows.parquet" if from_file else "the table"
    assert caught.value.found == f"{origin} has 3 rows, and no row 9"


def test_a_page_elsewhere_is_named_and_not_replaced(in_terminal, tmp_path):
    result = run(Recipe(GRADED, SAMPLES))
    elsewhere = tmp_path.parent / f"{tmp_path.name}.html"
    page = result.view(elsewhere, show=False)
    assert not in_terminal
    assert page._repr_html_() == f"<p>the page of the run is {elsewhere}</p>"
    assert os.fspath(page) == str(elsewhere)
    elsewhere.write_text("mine")
    with pytest.raises(DataError, match="exists; give another path, or --overwrite"):
        result.view(elsewhere)


def test_files_of_a_run_last_as_long_as_its_result(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run(Recipe(GRADED, SAMPLES))
    copied = pickle.loads(pickle.dumps(result))
    assert copied == result
    with pytest.raises(DataError, match="this is a copy of a result"):
        copied.explain("row 1")
    assert len([*tmp_path.iterdir()]) == 1
    del result
    gc.collect()
    assert not [*tmp_path.iterdir()]
    with pytest.raises(EmptyRunError) as caught:
        run(Recipe([GroupSizeFilter(min=9)], [{"prompt_id": "a"}]))
    assert "dropped, group_too_small" in caught.value.result.explain("row 1")
    with pytest.raises(RecipeError):
        run(Recipe(["math_verify_mapper"], SAMPLES))
    assert len([*tmp_path.iterdir()]) == 1  # That of the result that the first error has.


def test_every_column_of_a_result_is_one_of_pandas():
    nested = [[{"role": "user", "n": 1}], None, []]
    columns = {
        "nested": pa.array(nested),
        "kind": pa.array(["a", None, "a"]).dictionary_encode(),
        "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None, "[]"])),
        "time": pa.array([0, None, 253_370_764_800], pa.timestamp("s")),
        "bytes": pa.array([b"\xff", None, b""]),
        "view": pa.array(["a", None, "b"], pa.string_view()),
    }
    table = pa.Table.from_pylist(SAMPLES)
    for name, column in columns.items():
        table = table.append_column(name, column)
    frame = run(Recipe(GRADED, table)).table.to_pandas()
    assert frame["kind"].tolist()[0] == "a"
    assert frame["json"][0] == '{"a": 1}'
    assert frame["bytes"][0] == b"\xff"
    assert frame["nested"][0][0] == {"role": "user", "n": 1}
    assert frame["view"][3] is None or pd.isna(frame["view"][3])
