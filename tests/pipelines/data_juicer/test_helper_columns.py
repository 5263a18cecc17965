"""Statistics, tags and hashes of Data-Juicer's operators: from step to step, and at the export."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rejuice.operators import OperatorError, RecipeError
from rejuice.pipelines import Recipe, run
from rejuice.pipelines.data_juicer import steps, tables
from rejuice.pipelines.data_juicer.tables import named
from rejuice.pipelines.dataset.write import META, STATS
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.columns import check_columns

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

HASH = "__dj__hash"
PROCESS = [
    {"text_length_filter": {"min_len": 5}},
    {"usage_counter_mapper": {"usage_key": "used"}},
    {"whitespace_normalization_mapper": {}},
    {"alphanumeric_filter": {"min_ratio": 0.2}},
    {"document_deduplicator": {}},
    {"specified_field_filter": {"field_key": f"{META}.total_tokens", "target_value": [2, 3, 4]}},
    {"words_num_filter": {"min_num": 2}},
    {
        "general_field_filter": {
            "filter_condition": f"{STATS}.num_words < 6 and {META}.prompt_tokens > 0"
        }
    },
    {"topk_specified_field_selector": {"field_key": f"{STATS}.text_len", "topk": 12}},
]


def rows(n: int = 90) -> pa.Table:
    draw = np.random.default_rng(3)
    words = ["alpha", " Beta", "x@y.org", "\u3000gamma", "d--", "é/"]
    return pa.table(
        {
            "text": [" ".join(draw.choice(words, draw.integers(0, 7))) for _ in range(n)],
            "n": pa.array(draw.permutation(n), pa.int32()),
            "used": [
                {"prompt_tokens": int(a), "completion_tokens": int(b)}
                for a, b in draw.integers(0, 3, (n, 2))
            ],
        }
    )


@pytest.fixture(scope="module")
def processed():
    """What Data-Juicer's own operators make of the rows."""
    from data_juicer.core.data import NestedDataset
    from data_juicer.ops import load_ops
    from datasets import Dataset

    entries = [
        {n: {**f, "auto_op_parallelism": False}} for entry in PROCESS for n, f in entry.items()
    ]
    return NestedDataset(Dataset(rows())).process(load_ops(entries), open_monitor=False)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Commits that the tests share: what is kept at the export changes none of them."""
    return tmp_path_factory.mktemp("cache")


def theirs(processed, path: Path, **keep: bool) -> list:
    from data_juicer.core.exporter import Exporter

    Exporter(str(path), export_stats=False, **keep).export(processed)
    return read(path)


def read(path: Path) -> pa.Table:
    """An export; JSON lines keep the order of their keys, and numbers the digits of datasets."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".arrow":
        return pa.ipc.open_file(path).read_all()
    lines = path.read_text("utf-8").splitlines()
    found = [json.loads(line, parse_float=lambda text: round(float(text), 10)) for line in lines]
    return pa.table({name: [row[name] for row in found] for name in found[0]})


def ours(process, table: pa.Table, path: Path | None = None, **settings):
    keep = {key: settings.pop(key) for key in list(settings) if key.startswith("keep")}
    done = run(Recipe(process, table, export_path=path, **keep), **settings)
    for step in done.report.steps:  # Rows are conserved.
        assert step.rows_in + step.added == step.rows_out + sum(step.dropped.values())
    return done


def entries(table: pa.Table, column: str = STATS) -> list:
    """What a column has of each row, as JSON or as a struct."""
    values = table[column].to_pylist()
    return [json.loads(each) if isinstance(each, str) else each for each in values]


def in_memory(process, table: pa.Table) -> pa.Table:
    operators = [steps.step(name, fields) for name, fields in process]
    return run_in_memory(operators, table, keep_stats=True, keep_hashes=True)


# The export


@pytest.mark.parametrize(
    ("stats", "hashes", "chunk_rows", "suffix"),
    [
        (False, False, 100, ".parquet"),
        (True, False, 31, ".parquet"),
        (False, True, 31, ".parquet"),
        (True, True, 100, ".jsonl"),
    ],
)
def test_the_export_is_that_of_data_juicer(
    tmp_path, cache, processed, stats, hashes, chunk_rows, suffix
):
    keep = {"keep_stats_in_res_ds": stats, "keep_hashes_in_res_ds": hashes}
    expected = theirs(processed, tmp_path / f"theirs{suffix}", **keep)
    assert 3 < expected.num_rows <= 12
    assert [STATS in expected.column_names, HASH in expected.column_names] == [stats, hashes]
    path = tmp_path / f"ours{suffix}"
    ours(PROCESS, rows(), path, chunk_rows=chunk_rows, cache=cache, **keep)
    found = read(path)
    assert found.schema.equals(expected.schema)
    # The selector sorts; our rows keep their order.
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_an_arrow_file_and_a_table_in_python_have_the_same_columns(tmp_path, cache):
    path = tmp_path / "ours.arrow"
    kept = ours(PROCESS, rows(), path, cache=cache, chunk_rows=31, keep_stats_in_res_ds=True).table
    assert kept.equals(read(path))
    assert entries(kept, META)[0].keys() == {"prompt_tokens", "completion_tokens", "total_tokens"}
    done = ours(PROCESS, rows(), cache=cache, chunk_rows=31)
    assert done.table.column_names == rows().column_names
    assert all(step.cached for step in done.report.steps)


def test_a_chunk_that_loses_its_rows_early_does_not_change_the_order_of_columns(tmp_path):
    table = pa.table({"text": ["", "", "a b c", "d e f"]})
    process = [{"text_length_filter": {"min_len": 3}}, {"document_deduplicator": {}}]
    keep = {"keep_stats_in_res_ds": True, "keep_hashes_in_res_ds": True}
    done = ours(process, table, tmp_path / "a.parquet", chunk_rows=2, **keep)
    assert done.table.column_names == ["text", STATS, HASH]


# From step to step


def test_a_filter_computes_its_statistics_again():
    table = pa.table({"text": ["  a  b  ", "  c  "], STATS: [{"text_len": 99, "mine": 1}] * 2})
    filters = ("text_length_filter", {"min_len": 1})
    first = in_memory([filters], table)
    assert entries(first) == [{"text_len": 8, "mine": 1}, {"text_len": 5, "mine": 1}]
    twice = in_memory([filters, ("whitespace_normalization_mapper", {}), filters], table)
    assert entries(twice) == [{"text_len": 4, "mine": 1}, {"text_len": 1, "mine": 1}]


def test_a_condition_on_statistics_is_evaluated_again():
    table = pa.table({"text": ["a", "bcd", "efghi"]})
    process = [
        ("text_length_filter", {"min_len": 1}),
        ("general_field_filter", {"filter_condition": f"{STATS}.text_len > 0"}),
        ("general_field_filter", {"filter_condition": f"{STATS}.text_len > 2"}),
    ]
    assert in_memory(process, table)["text"].to_pylist() == ["bcd", "efghi"]


def test_a_deduplicator_computes_its_hashes_again():
    table = pa.table({"text": ["a", "b", " a"], HASH: ["x", "x", "y"], "__dj__simhash": ["1"] * 3})
    out = in_memory([("document_deduplicator", {})], table)
    assert out["text"].to_pylist() == ["a", "b"]
    assert out[HASH].to_pylist() == [
        "0cc175b9c0f1b6a831c399e269772661",
        "92eb5ffee6ae2fec3ad71c777531578f",
    ]
    assert out["__dj__simhash"].to_pylist() == ["1", "1"]


def test_a_row_without_statistics_and_tags_gets_its_own():
    table = pa.table({"text": ["a b", "c d"], "usage": [{"prompt_tokens": 1}] * 2})
    for column in (
        pa.array(['{"words": 1}', None], pa.string()).cast(pa.json_()),
        pa.array([{"words": 1}, None]),
        pa.array(['{"words": 1}', None], pa.large_string()),
        pa.nulls(2),
    ):
        given = table.append_column(STATS, column).append_column(META, column)
        out = in_memory([("usage_counter_mapper", {})], given)
        assert entries(out, META)[1]["prompt_tokens"] == 1
        out = in_memory([("text_length_filter", {"min_len": 1})], given)
        assert entries(out)[1]["text_len"] == 3


def test_what_an_operator_adds_to_a_struct_is_kept():
    rows = pa.table({"s": pa.array([{"a": 1, "l": [{"x": 1}]}]), "text": ["t"]})
    out = pa.table(
        {"s": [{"a": 1, "b": "new", "l": [{"x": 1, "y": 2}]}], "text": ["t"], tables.ROW: [0]}
    )
    assert tables.change(rows, out, "x").columns["s"].to_pylist() == out["s"].to_pylist()


# Fields that name them


def test_what_fields_name():
    fields = {
        "field_key": f"{STATS}.my words.x",
        "text_key": META,
        "filter_condition": f"{META}.a > 3 and {STATS}.b == 2",
        "n": 3,
    }
    assert named(fields) == [(STATS, "my words"), (META, ""), (META, "a"), (STATS, "b")]


def test_a_statistic_that_nobody_writes_is_an_error_before_anything_runs():
    selector = {"topk_specified_field_selector": {"field_key": f"{STATS}.text_len", "topk": 1}}
    reader = {"general_field_filter": {"filter_condition": f"{STATS}.text_len > 2"}}
    tags = {"tags_specified_field_selector": {"field_key": f"{META}.x", "target_tags": ["a"]}}
    table = pa.table({"text": ["a"]})
    for process, step, what in (
        ([selector], "step 1", "statistic 'text_len'"),
        ([{"words_num_filter": {}}, reader, {"text_length_filter": {}}], "step 2", "statistic 'text_len'"),
        ([{"text_length_filter": {}}, tags], "step 2", "tag 'x'"),
    ):  # fmt: skip
        with pytest.raises(RecipeError) as raised:
            check_columns(Recipe(process, table), table.schema)
        assert step in str(raised.value)
        assert f"no step before it writes {what}; put a step" in str(raised.value)


def test_a_statistic_may_be_of_the_dataset_or_of_a_filter_of_a_field():
    selector = {"topk_specified_field_selector": {"field_key": f"{STATS}.n", "topk": 1}}
    table = pa.table({"n": [1], STATS: [{"n": 3}]})
    check_columns(Recipe([selector], table), table.schema)
    table = table.set_column(1, STATS, pa.array(['{"n": 3}']).cast(pa.json_()))
    check_columns(Recipe([selector], table), table.schema)
    fields = {"field_key": "n", "min_value": 0}
    process = [{"specified_numeric_field_filter": fields}, selector]
    check_columns(Recipe(process, table), table.select(["n"]).schema)


def test_a_tag_that_no_row_has_is_one_clear_error():
    table = pa.table({"text": ["a b", "c d"], "usage": [{"prompt_tokens": 1}] * 2})
    selector = ("tags_specified_field_selector", {"field_key": f"{META}.x", "target_tags": ["a"]})
    with pytest.raises(OperatorError) as raised:
        in_memory([("usage_counter_mapper", {}), selector], table)
    assert str(raised.value) == (
        "step 2 tags_specified_field_selector: no row has the tag 'x'; "
        "there are: prompt_tokens, completion_tokens, total_tokens"
    )
