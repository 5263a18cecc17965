import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.filter.length_filter import LengthFilter
from rejuice.operators.registry import build

TEXTS = ["", "ab", "a b", " a  b c ", "é\u00a0ü", None]


def reasons(operator, name, values, kind):
    table = pa.table({name: pa.array(values, kind)})
    return check_operator(operator, table).reasons.to_pylist()


def test_characters_are_code_points():
    operator = LengthFilter(min=2, max=3)
    assert reasons(operator, "response", TEXTS, pa.string()) == [
        "too_short",
        None,
        None,
        "too_long",
        None,
        "no_text",
    ]


def test_words_are_what_white_space_separates():
    operator = LengthFilter(unit="words", min=1, max=2)
    assert reasons(operator, "response", TEXTS, pa.string()) == [
        "too_short",
        None,
        None,
        "too_long",
        None,
        "no_text",
    ]


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int64())])
def test_tokens_are_the_sampled_ones(kind):
    ids = [[], [1], [1, 2], [1, 2, 3], None]
    operator = LengthFilter(unit="tokens", min=1, max=2)
    assert operator.reads() == ("response_token_ids",)
    assert reasons(operator, "response_token_ids", ids, kind) == [
        "too_short",
        None,
        None,
        "too_long",
        "no_text",
    ]


def test_another_column_and_large_strings():
    operator = LengthFilter(column="reference", max=1)
    assert reasons(operator, "reference", ["a", "bc"], pa.large_string()) == [None, "too_long"]


def test_a_column_of_nulls_has_no_text():
    assert reasons(LengthFilter(min=1), "response", [None], pa.null()) == ["no_text"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"^neither min nor max is given$"),
        ({"min": 3, "max": 2}, r"^min 3 is above max 2$"),
        ({"min": -1}, r"^field 'min' is -1; input should be greater than or equal to 0$"),
        (
            {"unit": "tokens", "column": "reference", "min": 1},
            r"^tokens are counted in response_token_ids, not in 'reference'$",
        ),
    ],
)
def test_impossible_fields_are_an_error(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(LengthFilter, fields)


def test_a_column_of_another_type_is_an_error():
    with pytest.raises(DataError, match=r"^column 'response' is int64, not text; name a text"):
        LengthFilter(min=1).apply(pa.table({"response": [1]}))
    with pytest.raises(DataError, match=r"^column 'response_token_ids' is string, not a list"):
        LengthFilter(unit="tokens", min=1).apply(pa.table({"response_token_ids": ["a"]}))


@given(st.lists(st.text(st.sampled_from("a b\t\n\u00a0\u2003é\U0001f600"))), st.integers(0, 5))
def test_it_counts_as_python_does(texts, most):
    table = pa.table({"response": pa.array(texts, pa.string())})
    for unit, count in (("characters", len), ("words", lambda text: len(text.split()))):
        change = LengthFilter(unit=unit, max=most).apply(table)
        expected = ["too_long" if count(text) > most else None for text in texts]
        assert change.reasons.to_pylist() == expected
