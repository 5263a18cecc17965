import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.filter.column_range_filter import ColumnRangeFilter
from rejuice.operators.registry import build


def reasons(operator, values, kind=None):
    table = pa.table({"score": pa.array(values, kind or pa.float64())})
    return check_operator(operator, table).reasons.to_pylist()


def test_bounds_are_inclusive_and_zero_is_a_value():
    # Data-Juicer 1.6.1's specified_numeric_field_filter drops every 0.0.
    operator = ColumnRangeFilter(column="score", min=0, max=1)
    assert reasons(operator, [-0.1, 0.0, -0.0, 1.0, 1.1]) == [
        "below_min",
        None,
        None,
        None,
        "above_max",
    ]


def test_null_and_nan_are_missing():
    values = [1.0, None, float("nan")]
    dropped = [None, "missing_value", "missing_value"]
    assert reasons(ColumnRangeFilter(column="score", min=0), values) == dropped
    assert reasons(ColumnRangeFilter(column="score", max=2), values) == dropped
    keep = ColumnRangeFilter(column="score", min=0, on_missing="keep")
    assert reasons(keep, values) == [None] * 3


def test_infinity_is_a_value():
    operator = ColumnRangeFilter(column="score", max=1)
    assert reasons(operator, [float("inf"), -float("inf")]) == ["above_max", None]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal128(5, 1)]
)
def test_every_numeric_type_will_do(kind):
    values = pa.array([1.0, 5.0, None]).cast(kind).to_pylist()
    operator = ColumnRangeFilter(column="score", min=2)
    assert reasons(operator, values, kind) == ["below_min", None, "missing_value"]


def test_a_column_of_nulls_is_all_missing():
    operator = ColumnRangeFilter(column="score", min=0)
    assert reasons(operator, [None], pa.null()) == ["missing_value"]


def test_numbers_as_text_are_numbers_and_n_a_is_none():
    values = [
        "0.84375",
        " 1e-3 ",
        "True",
        "false",
        "n/a",
        "N/A",
        "None",
        "null",
        "",
        "-",
        "nan",
        None,
    ]
    values += ["#N/A", "n.a.", "NaN", "unknown", "?", "<NA>"]
    expected = [None, "below_min", None, "below_min", *["missing_value"] * 14]
    assert reasons(ColumnRangeFilter(column="score", min=0.1), values, pa.string()) == expected


@pytest.mark.parametrize("value", ["50%", "3/8", "1,000", "0,5", "good", "yes", "4/5"])
def test_other_texts_are_named_with_a_way(value):
    with pytest.raises(
        DataError,
        match=f"column 'score' is string, not numeric .*'{value}'.*reward_function_mapper",
    ):
        ColumnRangeFilter(column="score", min=0).apply(pa.table({"score": ["1", value]}))


@pytest.mark.parametrize(("values", "kind"), [([b"1"], "binary"), ([[1.0]], "list<item: double>")])
def test_a_column_without_numbers_is_one_clear_error(values, kind):
    table = pa.table({"score": values})
    with pytest.raises(DataError) as caught:
        ColumnRangeFilter(column="score", min=0).apply(table)
    text = str(caught.value)
    assert text.startswith(f"column 'score' is {kind}, not numeric")
    assert text.endswith("; name a column of numbers")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"^neither min nor max is given$"),
        ({"min": 2, "max": 1}, r"^min 2.0 is above max 1.0$"),
        ({"min": float("nan")}, r"^field 'min' is nan; input should be a finite number$"),
    ],
)
def test_impossible_bounds_are_an_error(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(ColumnRangeFilter, {"column": "score", **fields})


@given(st.lists(st.none() | st.floats(width=32)), st.floats(-5, 0), st.floats(0, 5))
def test_it_agrees_with_plain_python(values, low, high):
    def reason(value):
        if value is None or value != value:
            return "missing_value"
        return "below_min" if value < low else "above_max" if value > high else None

    table = pa.table({"score": pa.array(values, pa.float64())})
    change = ColumnRangeFilter(column="score", min=low, max=high).apply(table)
    assert change.reasons.to_pylist() == [reason(value) for value in values]
