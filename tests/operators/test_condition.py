"""The condition of a step: which rows match, and which conditions exclude each other."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError, FormatRewardMapper, RecipeError, build
from rejuice.operators.cache_key import cache_key_json
from rejuice.operators.condition import described, exclude_each_other, matches

TABLE = pa.table(
    {
        "source": ["gsm8k", "math", None, "code"],
        "level": pa.array([1, 2, None, 4]),
        "score": [0.5, float("nan"), None, 2.0],
        "ok": [True, False, None, True],
        "extra_info": [{"level": 1}, {"level": 3}, None, {"level": None}],
        "kind": pa.array(["a", "b", "a", None]).dictionary_encode(),
        "price": pa.array([1, 2, None, 3], pa.decimal128(10, 2)),
        "empty": pa.nulls(4),
    }
)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ({"source": "gsm8k"}, [0]),
        ({"source": ["gsm8k", "code"]}, [0, 3]),
        ({"source": None}, [2]),
        ({"source": ["math", None]}, [1, 2]),
        ({"level": 2}, [1]),
        ({"level": 2.0}, [1]),
        ({"level": {"min": 2}}, [1, 3]),
        ({"level": {"min": 1, "max": 2}}, [0, 1]),
        ({"level": {"min": None, "max": 1}}, [0]),
        ({"score": {"min": 0}}, [0, 3]),  # A nan is in no range.
        ({"ok": True}, [0, 3]),
        ({"extra_info.level": {"max": 3}}, [0, 1]),
        ({"extra_info.level": [3, None]}, [1, 2, 3]),
        ({"kind": "a"}, [0, 2]),
        ({"score": [2, 0.5, 7]}, [0, 3]),
        ({"level": [4, 1, 1.5]}, [0, 3]),
        ({"price": [3, 1.0, None]}, [0, 2, 3]),
        ({"empty": "anything"}, []),
        ({"empty": [1, None]}, [0, 1, 2, 3]),
        ({"empty": {"min": 1}}, []),
        ({"source": ["gsm8k", "math"], "level": {"min": 2}}, [1]),
    ],
)
def test_rows_that_match(where, rows):
    operator = build(FormatRewardMapper, {"where": where})  # As it is after it was read.
    found = [row for row, match in enumerate(matches(operator.where, TABLE)) if match]
    assert found == rows == [r for r, m in enumerate(matches(where, TABLE)) if m]


def test_chunks_with_dictionaries_of_their_own():
    def chunk(values):
        indices = pa.array(range(len(values)), pa.int8())
        return pa.DictionaryArray.from_arrays(indices, pa.array(values))

    column = pa.chunked_array([chunk([f"{name}{i}" for i in range(99)] + [None]) for name in "ab"])
    table = pa.table({"kind": column})
    assert np.flatnonzero(matches({"kind": ["a3", "b5"]}, table)).tolist() == [3, 105]
    assert np.flatnonzero(matches({"kind": None}, table)).tolist() == [99, 199]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"level": "hard"}, "where compares column 'level', which is int64, with 'hard'"),
        ({"source": {"min": 1}}, "which is string, not numeric .*'code'"),
        ({"ok": 1}, "which is bool, with 1"),
        ({"level": True}, "which is int64, with True"),
        ({"sauce": "gsm8k"}, "there is no column 'sauce'"),
        ({"extra_info.lvl": 1}, "there is no 'extra_info.lvl'"),
    ],
)
def test_a_value_that_the_column_cannot_have_is_an_error(where, found):
    with pytest.raises(DataError, match=found):
        matches(where, TABLE)


@pytest.mark.parametrize(
    ("kind", "values", "wanted", "rows"),
    [
        (pa.uint64(), [5, 2**64 - 1], 5, [0]),
        (pa.uint64(), [5, 2**64 - 1], 2**64 - 1, [1]),
        (pa.int8(), [5, 6], 2**70, []),
        (pa.int64(), [2**53 + 1, 2**53], float(2**53), [1]),
        (pa.int64(), [1, 2], 1.5, []),
        (pa.float32(), [0.1, 0.2], 0.1, [0]),
        (pa.float64(), [0.1, None], 0.1, [0]),
        (pa.float16(), [0.5, 1.0, None], 0.5, [0]),
        (pa.float16(), [0.5, 1.0], 1e9, []),
    ],
)
def test_numbers_are_compared_as_the_column_has_them(kind, values, wanted, rows):
    scalars = np.array(values, np.float16) if pa.types.is_float16(kind) else values
    table = pa.table({"n": pa.array(scalars, kind, from_pandas=True)})
    assert np.flatnonzero(matches({"n": wanted}, table)).tolist() == rows


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({}, "name a column and its value"),
        ("gsm8k", "name a column and its value"),
        ({True: "x"}, "the column True is no text"),
        ({"source": []}, "the list of 'source' is empty"),
        ({"source": [["a"]]}, "'source' is compared with"),
        ({"level": {"least": 1}}, "a range is {min: 1, max: 3}"),
        ({"level": {}}, "a range is {min: 1, max: 3}"),
        ({"level": {"min": "a"}}, "a range is {min: 1, max: 3}"),
        ({"level": {"min": 3, "max": 1}}, "has a min above its max"),
        ({"level": float("inf")}, "give a finite number"),
    ],
)
def test_what_is_no_condition_is_refused(where, found):
    with pytest.raises(RecipeError) as error:
        build(FormatRewardMapper, {"where": where})
    assert found in str(error.value)
    assert "field 'where'" in str(error.value)


VALUES = [None, True, False, 0, 1, 2, "1", "a"]
WANTED = st.one_of(
    st.sampled_from(VALUES),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3),
    st.tuples(st.integers(-1, 3), st.integers(0, 2)).map(
        lambda ends: {"min": ends[0], "max": ends[0] + ends[1]}
    ),
)


def _match(wanted, value):
    """Whether a value is wanted, as the page says it, for values of any type."""
    number = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(wanted, dict):
        return number and wanted["min"] <= value <= wanted["max"]
    values = wanted if isinstance(wanted, list) else [wanted]
    return any(type(each) is type(value) and each == value for each in values)


@given(WANTED, WANTED)
def test_conditions_exclude_each_other_where_no_value_matches_both(one, other):
    both = any(_match(one, value) and _match(other, value) for value in [*VALUES, -1, 3, 4, 5])
    assert exclude_each_other({"x": one}, {"x": other}) == (not both)
    assert exclude_each_other({"x": other}, {"x": one}) == (not both)
    # One column that they do not share says nothing, and one that excludes is enough.
    assert not exclude_each_other({"x": one}, {"y": other})
    assert exclude_each_other({"x": one, "z": 1}, {"x": other, "z": 2})


def test_without_a_condition_nothing_is_excluded():
    assert not exclude_each_other(None, {"x": 1})
    assert not exclude_each_other(None, None)


def test_a_condition_in_words():
    where = {"source": ["gsm8k", None], "ok": True, "a": {"min": 2}, "b": {"max": 4.5}}
    where["c"] = {"min": 1, "max": 2}
    assert described(where) == (
        "source is gsm8k or null, ok is true, a at least 2, b at most 4.5, c from 1 to 2"
    )


# --- The fields ---------------------------------------------------------------------------------


def test_unset_they_are_in_no_recipe_and_in_no_key():
    plain = FormatRewardMapper()
    assert {"where", "on"}.isdisjoint(plain.model_dump())
    assert plain.model_dump() == plain.model_dump(mode="json") | {"tags": ()}
    assert "where" not in cache_key_json(plain)


def test_a_condition_is_in_the_key_of_a_step_and_not_in_that_of_a_row():
    plain, some = FormatRewardMapper(), FormatRewardMapper(where={"source": ["a", "b"]})
    here = FormatRewardMapper(on="train")
    keys = [cache_key_json(each) for each in (plain, some, here)]
    assert keys[0] == keys[2] != keys[1]
    assert cache_key_json(some, of_row=True) == keys[0]


def test_they_are_written_last_and_read_again():
    operator = FormatRewardMapper(where={"source": ["a", None], "n": {"min": 2}}, on="run")
    dumped = operator.model_dump(mode="json")
    assert list(dumped)[-2:] == ["where", "on"]
    assert build(FormatRewardMapper, dumped) == operator
    assert dumped["where"] == {"source": ["a", None], "n": {"min": 2.0, "max": None}}


def test_a_field_of_an_operator_cannot_have_their_names():
    for name in ("where", "on"):
        with pytest.raises(TypeError, match=f"{name} is a field of every operator: rename it"):
            type("MyMapper", (FormatRewardMapper,), {"__annotations__": {name: str}, name: "x"})


def test_an_unknown_field_names_those_of_the_operator_itself():
    with pytest.raises(RecipeError, match="its fields are: style, tags, response_prefix, right"):
        build(FormatRewardMapper, {"zzz": 1})
    with pytest.raises(RecipeError, match="did you mean 'where'"):
        build(FormatRewardMapper, {"wher": 1})


def test_columns_of_a_condition_are_needed():
    operator = FormatRewardMapper(where={"extra_info.level": 1, "a.b": 2})
    columns = ["response", "extra_info", "a.b"]
    assert operator.needs_of(columns) == ["response", "extra_info", "a.b"]
    assert operator.reads_of(columns) == ["response"]
    # Of one that is not there, the first part is what is missing.
    assert operator.needs_of(["response"]) == ["response", "extra_info", "a"]


def test_every_pair_of_types_is_decided():
    for one, other in itertools.product(VALUES, VALUES):
        same = type(one) is type(other) and one == other
        assert exclude_each_other({"x": one}, {"x": other}) == (not same)
