"""Datasets in memory: what notebooks have becomes an Arrow table, with its values as they are."""

import datasets
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from rejuice.operators import RecipeError
from rejuice.pipelines.dataset.in_memory import as_table

ROWS = [
    {"text": "a", "n": 1, "flag": True, "nested": [{"role": "user", "parts": ["x", None]}]},
    {"text": None, "n": None, "flag": None, "nested": None},
    {"text": "c", "n": 3, "flag": False, "nested": []},
]
TABLE = pa.Table.from_pylist(ROWS)


class Stream:
    """A library of its own that has an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema=None):
        return TABLE.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        ROWS,
        tuple(ROWS),
        TABLE.to_reader(),
        TABLE.to_batches()[0],
        Stream(),
        TABLE.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}.get),
        TABLE.to_pandas(types_mapper=pd.ArrowDtype),
        pl.from_arrow(TABLE),
        pl.from_arrow(TABLE).lazy(),
        datasets.Dataset(TABLE),
        datasets.Dataset(pa.concat_tables([TABLE, TABLE])).select([3, 1, 5]),
    ],
    ids=lambda data: f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}",
)  # fmt: skip
def test_values_are_as_they_were(data):
    table = as_table(data)
    assert table.to_pylist() == ROWS
    assert pa.types.is_int64(table.schema.field("n").type)
    if data is TABLE:
        assert table is TABLE
    else:
        assert table.schema.metadata is None


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame({"kind": pd.Categorical(["u", None, "v"])}),
        pl.DataFrame({"kind": pl.Series(["u", None, "v"], dtype=pl.Categorical)}),
        pl.DataFrame({"kind": pl.Series(["u", None, "v"], dtype=pl.Enum(["v", "u"]))}),
    ],
)
def test_categories_are_texts(data):
    column = as_table(data)["kind"]
    assert column.to_pylist() == ["u", None, "v"]
    assert column.type in (pa.string(), pa.large_string())  # A view cannot be computed with.


def test_a_key_that_a_row_lacks_is_null():
    rows = [{"a": 1}, {"b": "x", "a": 2}]
    assert as_table(rows).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (pd.DataFrame({"a": [1, 2, 3]})[1:], ["a"]),
        (pd.DataFrame({"a": [1, 2]}, index=["x", "y"]), ["a"]),
        (pd.DataFrame({"a": [1, 2]}).rename_axis("id"), ["id", "a"]),
        (pd.DataFrame({"a": [1], "b": [2], "c": [3]}).set_index(["a", "b"]), ["a", "b", "c"]),
        (pd.DataFrame([[1, 2]]), ["0", "1"]),
    ],
)
def test_an_index_is_a_column_where_it_has_a_name(frame, names, recwarn):
    assert as_table(frame).column_names == names
    assert not recwarn.list


@pytest.mark.parametrize("data", ["rows.parquet", ["a.parquet", "b.parquet"], [], None, {"a": [1]}])
def test_something_else_is_no_table(data):
    assert as_table(data) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"a": 1}, "rows.parquet"], "dataset is a list whose item 2 is a str, not a dict; give a list of dicts, or a list of paths"),
        ([{1: "a"}], "dataset is a list of dicts with the key 1; give texts as keys: they are the names of columns"),
        ([{"a": 1}, {"a": "x"}], "no type of Arrow holds all values of 'a': Could not convert 'x' with type str: tried to convert to int64; give values of one type"),
        (pd.DataFrame({"a": [1, "x"]}), "dataset is a DataFrame that Arrow cannot hold: Could not convert 'x' with type str: tried to convert to int64 Conversion failed for column a with type object; change that, or give a pyarrow.Table"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "dataset is a DataFrame that Arrow cannot hold: two columns have the same name; change that, or give a pyarrow.Table"),
        (pd.DataFrame({"a": [1]}).rename_axis("a"), "dataset is a DataFrame that Arrow cannot hold: cannot insert a, already exists; change that, or give a pyarrow.Table"),
        (pl.Series("a", [1]), "dataset is a Series, which is a single column; give a path, a pyarrow.Table, a DataFrame of pandas or polars, a datasets.Dataset, or a list of dicts"),
        (datasets.DatasetDict(train=datasets.Dataset(TABLE)), "dataset is a DatasetDict of splits: train; give one of them: dataset['NAME']"),
    ],
)  # fmt: skip
def test_what_arrow_cannot_hold_is_refused_in_one_line(data, message):
    with pytest.raises(RecipeError) as caught:
        as_table(data)
    assert str(caught.value) == message
