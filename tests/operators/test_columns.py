import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators.columns import (
    ROW_CONTRACT,
    component,
    component_columns,
    content_ids,
    right_and_wrong,
)

PARTS = st.lists(st.none() | st.text(max_size=4), max_size=4)


def test_ids_are_pinned():
    # Stored results and resumed runs hang on these: a change here makes every cache stale.
    assert content_ids([("what is 1 + 1?", "2"), ("é",)]).to_pylist() == [
        "2dfc69bf674714d545be91926b815293",
        "4f9ad86a66945b28cff3ffb0e6605c4e",
    ]


def test_ids_depend_on_the_content_and_on_nothing_else():
    one, two, again = content_ids([("q", "1"), ("q", "2"), ("q", "1")]).to_pylist()
    assert one == again != two
    assert content_ids([("q", "2")]).to_pylist() == [two]


def test_where_a_part_ends_matters():
    assert len(set(content_ids([("ab", "c"), ("a", "bc"), ("abc",), ("abc", "")]).to_pylist())) == 4


def test_a_null_part_is_not_an_empty_one():
    assert len(set(content_ids([("q", None), ("q", ""), ("q", "None"), ("q",)]).to_pylist())) == 4


def test_a_null_part_is_not_a_nul_character():
    null, nul = content_ids([(None,), ("\0",)]).to_pylist()
    assert null != nul


def test_a_lone_surrogate_has_an_id():
    assert len(content_ids([("\ud800",)])[0].as_py()) == 32


def test_no_rows_have_no_ids():
    assert content_ids([]).type == pa.string()
    assert len(content_ids([])) == 0


@given(PARTS, PARTS)
def test_different_parts_have_different_ids(one, other):
    first, second = content_ids([one, other]).to_pylist()
    assert (first == second) == (one == other)


def test_a_component_is_a_number_or_missing_with_a_reason():
    columns = component(
        "accuracy", np.array([1.0, 0.0, 0.5]), pa.array([None, "timeout", None], pa.string())
    )
    assert columns["reward_accuracy"].to_pylist() == [1.0, None, 0.5]
    assert columns["reward_accuracy_missing"].to_pylist() == [None, "timeout", None]
    assert tuple(columns) == component_columns("accuracy")


def test_a_component_without_reasons_is_never_missing():
    columns = component("format", np.array([0.1, -0.1]))
    assert columns["reward_format"].to_pylist() == [0.1, -0.1]
    assert columns["reward_format_missing"].to_pylist() == [None, None]
    assert columns["reward_format_missing"].type == pa.string()


@pytest.mark.parametrize(
    "name", ["prompt_id", "response", "verdict", "extracted_answer", "task", "label"]
)
def test_texts_of_the_contract_are_strings(name):
    assert ROW_CONTRACT[name] == pa.string()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])  # fmt: skip
def test_right_and_wrong_responses(kind):
    verdicts = ["correct", "wrong_answer", None, "timeout", "no_answer", "verifier_error"]
    right, wrong = right_and_wrong(pa.chunked_array([pa.array(verdicts).cast(kind)]))
    assert right.tolist() == [True, False, False, False, False, False]
    assert wrong.tolist() == [False, True, False, False, True, False]


def test_verdicts_of_a_dataset_that_has_none():
    right, wrong = right_and_wrong(pa.chunked_array([pa.nulls(2)]))
    assert right.tolist() == wrong.tolist() == [False, False]
