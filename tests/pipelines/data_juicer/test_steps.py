"""Data-Juicer's operators as steps of ours."""

import inspect
import math
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from rejuice.operators import Change, OperatorError, RecipeError, Scope, build
from rejuice.pipelines import recipe
from rejuice.pipelines.data_juicer import catalogue, steps, tables
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import compute_change, run_in_memory

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

TEXTS = ["  a b  ", "hello world, this is long", "x", "x", "hello world, this is long"]


def table(**more):
    columns = {
        "text": TEXTS,
        "n": pa.array([5, 1, 4, 2, 3], pa.int32()),
        "f": pa.array([0.1, None, math.nan, 1, 2], pa.float32()),
        "prompt": pa.array([[{"role": "user", "content": "q"}]] * 5),
        "ids": pa.array([[1, 2], [], None, [3], [4]], pa.list_(pa.int32())),
        "large": pa.array(["a"] * 5, pa.large_string()),
        "nothing": pa.nulls(5),
    }
    return pa.table({**columns, **more})


def change(name, rows=None, **fields):
    rows = table() if rows is None else rows
    operator = steps.step(name, fields)
    return compute_change(operator, Frame.of(rows))


def reasons(change):
    return [] if change.reasons is None else change.reasons.to_pylist()


# What is known without importing


def test_nothing_is_imported_for_recipes_without_them():
    code = (
        "import sys; from rejuice.pipelines import Recipe; from rejuice.operators import RecipeError\n"
        "from rejuice.pipelines.analysis import reference\n"
        "from rejuice.pipelines.data_juicer import catalogue\n"
        "Recipe([{'length_filter': {'min': 1}}], 'a.jsonl', keep_stats_in_res_ds=True)\n"
        "try: Recipe(['lenght_filter'], 'a.jsonl')\n"
        "except RecipeError as error: assert 'length_filter' in str(error)\n"
        "reference.listing(); assert 'text_length_filter' in str(reference.recipe_schema())\n"
        "assert catalogue.exists('text_length_filter') and not catalogue.exists('no_filter')\n"
        "print({'data_juicer', 'datasets'} & set(sys.modules))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, errors="replace", check=True
    )
    assert out.stdout.strip() == "set()"


def test_exists():
    assert catalogue.exists("text_length_filter")
    assert catalogue.exists("key_value_grouper")
    for name in ("pass_rate_filter", "dialog_quality_llm_base", "__init__", "../base_op", ""):
        assert not catalogue.exists(name)
        assert catalogue.find(name) is None


def test_settings_are_those_of_data_juicers_parser():
    from data_juicer.config.config import build_base_parser

    keys = {action.dest.split(".")[0] for action in build_base_parser()._actions}
    ours = {"train", "generated_datasets", "columns", "max_rows_per_file"}
    # Ours are there because the plug-in adds them to their parser.
    assert catalogue.settings() == keys - {"help", "config", *ours}


def test_fields_are_those_that_data_juicer_checks():
    from data_juicer.core.preflight import _get_valid_params
    from data_juicer.ops import OPERATORS

    assert len(catalogue.names()) > 150
    for name in catalogue.names():
        kind = OPERATORS.modules[name]
        found = catalogue.find(name)
        assert set(found.known) == set(_get_valid_params(kind)), name
        free = [
            n
            for n, p in inspect.signature(kind.__init__).parameters.items()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        assert [*found.required] == free[1:], name


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "text_length_filter",
            {"max_length": 1},
            "unknown field 'max_length'; did you mean 'max_len'?",
        ),
        (
            "text_length_filter",
            {"txt_key": "a"},
            "unknown field 'txt_key'; did you mean 'text_key'?",
        ),
        (
            "llm_extract_mapper",
            {"input_keys": []},
            "field 'output_schema' is missing; it has no default",
        ),
        (
            "text_length_filter",
            {"skip_op_error": True},
            "field 'skip_op_error' is True, which loses rows silently; leave it out",
        ),
        (
            "key_value_grouper",
            {},
            "it is of Data-Juicer's kind grouper, whose rows come from several rows each; "
            "run this recipe with dj-process",
        ),
        (
            "text_lenth_filter",
            {},
            "Data-Juicer has no operator 'text_lenth_filter'; did you mean 'text_length_filter'?",
        ),
    ],
)
def test_errors_are_one_line(name, fields, message):
    with pytest.raises(RecipeError) as raised:
        steps.step(name, fields)
    assert str(raised.value) == message


def test_scopes():
    scopes = {
        "whitespace_normalization_mapper": Scope.ROW,
        "text_length_filter": Scope.ROW,
        "document_deduplicator": Scope.DATASET,
        "random_selector": Scope.DATASET,
    }
    assert {name: steps.step(name, {}).scope for name in scopes} == scopes


def test_kinds_are_those_that_data_juicer_has():
    kinds = {"text_length_filter": "filter", "document_deduplicator": "deduplicator"}
    assert {name: steps.step(name, {}).kind.value for name in kinds} == kinds


def test_a_step_survives_pickling_and_its_own_config():
    step = steps.step("text_length_filter", {"max_len": 10}, text_key="response")
    assert step.name() == "text_length_filter"
    assert step.model_dump(mode="json") == {"max_len": 10, "text_key": "response"}
    assert pickle.loads(pickle.dumps(step)) == step
    assert build(type(step), step.model_dump(mode="json")) == step


def test_text_keys_of_the_recipe_are_the_text(tmp_path):
    head = "dataset_path: a.jsonl\nexport_path: b.jsonl\n"
    steps = "process:\n- text_length_filter: {}\n- words_num_filter: {text_key: mine}\n"
    for keys, expected in [
        ("", [None, "mine"]),
        ("text_keys: response\n", ["response", "mine"]),
        ("text_keys: [response, prompt]\n", ["response", "mine"]),
    ]:
        (tmp_path / "r.yaml").write_text(head + keys + steps)
        read = recipe.load(tmp_path / "r.yaml")
        assert [s.operator.model_dump().get("text_key") for s in read.steps] == expected
    (tmp_path / "r.yaml").write_text(head + "text_keys: []\n" + steps)
    with pytest.raises(RecipeError, match="'text_keys'"):
        recipe.load(tmp_path / "r.yaml")


# What they do


def test_a_mapper_writes_what_it_changed_and_nothing_else():
    done = change("whitespace_normalization_mapper")
    assert {n: c.to_pylist() for n, c in done.columns.items()} == {"text": ["a b", *TEXTS[1:]]}
    assert (done.reasons, done.parents, done.without) == (None, None, ())


def test_a_mapper_that_changes_nothing_writes_nothing():
    assert change("clean_links_mapper") == Change()


def test_a_filter_gives_its_name_as_the_reason():
    done = change("text_length_filter", min_len=1, max_len=10)
    gone = "text_length_filter"
    assert reasons(done) == [None, gone, None, None, gone]
    assert set(done.columns) == {"__dj__stats__"}


def test_a_mapper_that_makes_several_rows_of_one():
    done = change("text_chunk_mapper", max_len=20)
    assert done.parents.tolist() == [0, 1, 1, 2, 3, 4, 4]
    assert done.reasons is None
    assert "".join(done.columns["text"].to_pylist()) == "".join(TEXTS)
    assert set(done.columns) == {"text"}


def test_a_deduplicator_keeps_the_first():
    gone = "document_deduplicator"
    assert reasons(change("document_deduplicator")) == [None, None, None, gone, gone]


def test_a_selector_that_sorts_keeps_the_order_of_the_rows():
    done = change("topk_specified_field_selector", field_key="n", topk=2, reverse=True)
    gone = "topk_specified_field_selector"
    assert reasons(done) == [None, gone, None, gone, gone]


def test_columns_of_a_row_that_is_dropped_as_well():
    rows = pa.table({"text": ["dropped dropped", "a  b"]})
    written = tables.change(
        rows, pa.table({"text": ["A"], "new": [7], tables.ROW: [1], "__dj__context__": [0]}), "x"
    )
    assert {n: c.to_pylist() for n, c in written.columns.items()} == {
        "text": [None, "A"],
        "new": [None, 7],
    }
    assert reasons(written) == ["x", None]
    after = Frame.of(rows).after(written).table()
    assert after.to_pylist() == [{"text": "A", "new": 7}]


def test_a_column_that_is_gone_and_one_of_another_type():
    rows = pa.table(
        {"a": pa.array([1, 2], pa.int8()), "b": [1, 2], "c": pa.array([1, 2], pa.int8())}
    )
    out = pa.table({"a": [1, 2], "c": [1, 2000], tables.ROW: [0, 1]})
    written = tables.change(rows, out, "x")
    assert written.without == ("b",)
    assert list(written.columns) == ["c"]
    assert written.columns["c"].type == pa.int64()


def test_rows_come_back_in_their_order():
    rows = pa.table({"a": [10, 20, 30]})
    out = pa.table({"a": [30, 10, 31], tables.ROW: [2, 0, 2]})
    written = tables.change(rows, out, "x")
    assert written.parents.tolist() == [0, 2, 2]
    assert written.columns["a"].to_pylist() == [10, 30, 31]
    assert reasons(written) == [None, "x", None]


def test_an_empty_table():
    assert change("text_length_filter", table().slice(0, 0)) == Change()


def test_a_row_it_cannot_take_stops_the_run():
    rows = pa.table({"text": ["fine", None]})
    with pytest.raises(OperatorError, match=r"^failed with \w+Error: [^\n]+$"):
        change("whitespace_normalization_mapper", rows)


def test_loading_an_operator_installs_nothing(monkeypatch):
    environments = []

    def load(self):
        import os

        environments.append((os.environ["UV_OFFLINE"], os.environ["PIP_NO_INDEX"]))
        raise ImportError("Failed to install nltk.\nError details: a page")

    monkeypatch.delenv("UV_OFFLINE", raising=False)
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    from data_juicer.ops import OPERATORS

    monkeypatch.setitem(OPERATORS.modules, "words_num_filter", lambda **_: load(None))
    with pytest.raises(OperatorError, match=r"^failed with ImportError: Failed to install nltk\.$"):
        change("words_num_filter", min_num=77)
    assert environments == [("1", "1")]


RECIPE = [
    ("whitespace_normalization_mapper", {}),
    ("text_length_filter", {"min_len": 3}),
    ("clean_email_mapper", {"repl": "<MAIL>"}),
    ("words_num_filter", {"min_num": 2, "tokenization": False}),
    ("document_deduplicator", {"lowercase": True}),
    ("text_chunk_mapper", {"max_len": 15}),
    ("average_line_length_filter", {"max_len": 15}),
    ("range_specified_field_selector", {"field_key": "n", "lower_rank": 3, "upper_rank": 150}),
]


def test_a_recipe_of_theirs_gives_what_data_juicer_gives():
    from data_juicer.core.data import NestedDataset
    from data_juicer.ops import load_ops
    from datasets import Dataset

    draw = np.random.default_rng(3)
    words = ["alpha", " Beta", "x@y.org", "\u3000gamma", "d", ""]
    texts = [" ".join(draw.choice(words, draw.integers(0, 6))) for _ in range(400)]
    rows = pa.table({"text": texts, "n": draw.permutation(400), "ids": [[1, 2]] * 400})
    theirs = NestedDataset(Dataset(rows)).process(
        load_ops([{name: {**fields, "num_proc": 1}} for name, fields in RECIPE]), open_monitor=False
    )
    ours = run_in_memory([steps.step(name, fields) for name, fields in RECIPE], rows)
    expected = theirs.remove_columns([n for n in theirs.column_names if n.startswith("__dj__")])
    assert ours.column_names == expected.column_names
    # The selector sorts; our rows keep their order.
    key = str
    assert sorted(ours.to_pylist(), key=key) == sorted(expected.to_list(), key=key)
    assert 20 < ours.num_rows < 400


def test_a_step_is_about_the_rows_of_its_condition():
    fields = {"min_len": 4, "text_key": "text", "where": {"n": {"max": 3}}}
    step = steps.step("text_length_filter", fields)
    again = pickle.loads(pickle.dumps(step))
    for each in (step, again, build(type(step), step.model_dump(mode="json"))):
        found = run_in_memory([each], table())
        # Of the rows with an n of 3 or less, the short text is gone; another short one stays.
        assert found["n"].to_pylist() == [5, 1, 4, 3]
    assert "where" not in step.model_extra
    with pytest.raises(RecipeError, match="field 'where' is"):
        steps.step("text_length_filter", {"where": {}})


def test_a_mapper_leaves_the_other_rows_as_they_are():
    step = steps.step("whitespace_normalization_mapper", {"where": {"n": 5}})
    rows = table().set_column(0, "text", pa.array([" a"] * 5))
    assert run_in_memory([step], rows)["text"].to_pylist() == ["a", *[" a"] * 4]
