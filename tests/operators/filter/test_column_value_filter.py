import pyarrow as pa
import pytest

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.filter.column_value_filter import ColumnValueFilter
from rejuice.operators.registry import build


def reasons(values, **fields):
    column = values if isinstance(values, pa.Array) else pa.array(values)
    operator = build(ColumnValueFilter, {"column": "task", **fields})
    return check_operator(operator, pa.table({"task": column})).reasons.to_pylist()


def test_keep():
    assert reasons(["a", "b", None, "c"], keep=["a", "c"]) == [
        None,
        "value_not_kept",
        "missing_value",
        None,
    ]


def test_drop():
    assert reasons(["a", "b", None], drop=["a"]) == ["value_dropped", None, "missing_value"]


@pytest.mark.parametrize("fields", [{"keep": ["a"]}, {"drop": ["b"]}])
def test_missing_values_are_kept_on_demand(fields):
    assert reasons(["a", None], on_missing="keep", **fields) == [None, None]


def test_integers_and_booleans():
    assert reasons([0, 1, 2], keep=[0, 1]) == [None, None, "value_not_kept"]
    assert reasons([True, False, None], drop=[False]) == [None, "value_dropped", "missing_value"]


def test_whole_numbers_of_a_column_of_floats():
    assert reasons([0.0, 1.5, None], keep=[0]) == [None, "value_not_kept", "missing_value"]


def test_dictionary_and_large_strings():
    column = pa.array(["a", "b", None])
    expected = [None, "value_not_kept", "missing_value"]
    assert reasons(column.dictionary_encode(), keep=["a"]) == expected
    assert reasons(column.cast(pa.large_string()), keep=["a"]) == expected


def test_a_column_of_nulls_is_all_missing():
    assert reasons(pa.nulls(2), keep=["a"]) == ["missing_value"] * 2


def test_an_integer_too_wide_for_the_column_is_in_no_row():
    narrow = pa.array([-128, 127, 0], pa.int8())
    assert reasons(narrow, keep=[127, 128, 300]) == ["value_not_kept", None, "value_not_kept"]
    assert reasons(narrow, drop=[-128, -129]) == ["value_dropped", None, None]
    assert reasons(pa.array([255, 1], pa.uint8()), drop=[255, 256, -1]) == ["value_dropped", None]


@pytest.mark.parametrize(
    ("column", "keep", "message"),
    [
        (
            ["1"],
            [1],
            "keep compares column 'task', which is string, with 1; give values of the column's type",
        ),
        (
            [1],
            [True],
            "keep compares column 'task', which is int64, with True; give values of the column's type",
        ),
        (
            [[1.5]],
            [1],
            "keep compares column 'task', which is list<item: double>, with 1; give values of the column's type",
        ),
    ],
)
def test_values_of_another_kind_are_an_error(column, keep, message):
    with pytest.raises(DataError) as caught:
        ColumnValueFilter(column="task", keep=keep).apply(pa.table({"task": column}))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"^exactly one of keep and drop must be given$"),
        ({"keep": ["a"], "drop": ["b"]}, r"^exactly one of keep and drop must be given$"),
        ({"keep": []}, r"^the list of values is empty$"),
        ({"drop": []}, r"^the list of values is empty$"),
    ],
)
def test_exactly_one_list_is_given(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(ColumnValueFilter, {"column": "task", **fields})
