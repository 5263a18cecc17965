from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.columns import MESSAGES
from rejuice.operators.deduplicator.exact_deduplicator import ExactDeduplicator
from rejuice.operators.groups import occurred_before
from rejuice.operators.registry import build


def table(*groups, column="response"):
    return pa.table(
        {
            "prompt_id": pa.array([f"p{i}" for i, g in enumerate(groups) for _ in g], pa.string()),
            column: pa.array([text for g in groups for text in g], pa.string()),
        }
    )


def rows_of(*prompts, n=2):
    """n responses to each prompt, given as its messages' contents."""
    messages = [None if p is None else [{"role": "user", "content": c} for c in p] for p in prompts]
    return pa.table(
        {
            "prompt_id": [f"p{i}" for i in range(len(prompts)) for _ in range(n)],
            "prompt": pa.array([m for m in messages for _ in range(n)], MESSAGES),
        }
    )


def dropped(operator, rows):
    return check_operator(operator, rows).reasons.to_pylist()


def test_keeps_the_first_response_within_each_prompt():
    rows = table(["a", "b", "a", "a"], ["a", "b"])
    assert dropped(ExactDeduplicator(), rows) == [None, None, "duplicate", "duplicate", None, None]


class OfThreeReasons(ExactDeduplicator):
    """Its reasons are in another order, with one of its own."""

    reasons: ClassVar = {"own": "?", **dict(reversed(ExactDeduplicator.reasons.items()))}


def test_a_subclass_may_have_reasons_of_its_own():
    assert dropped(OfThreeReasons(), table(["a", "a"], ["a"])) == [None, "duplicate", None]
    prompts = rows_of(["a"], ["a"], n=1)
    assert dropped(OfThreeReasons(unit="prompt"), prompts) == [None, "duplicate_prompt"]


def test_keeps_the_first_response_of_all():
    rows = table(["a", "b", "a"], ["c", "b"])
    assert dropped(ExactDeduplicator(within="all"), rows) == [
        None, None, "duplicate", None, "duplicate",
    ]  # fmt: skip


def test_nulls_are_kept_and_are_not_the_empty_text():
    rows = table([None, None, "", "", None])
    assert dropped(ExactDeduplicator(), rows) == [None, None, None, "duplicate", None]


def test_normalisation_is_optional():
    rows = table(["A  b\n", "a b", " a\tb", "ab"])
    assert dropped(ExactDeduplicator(), rows) == [None] * 4
    assert dropped(ExactDeduplicator(lowercase=True), rows) == [None] * 4
    assert dropped(ExactDeduplicator(ignore_whitespace=True), rows)[2:] == ["duplicate", None]
    both = ExactDeduplicator(lowercase=True, ignore_whitespace=True)
    assert dropped(both, rows) == [None, "duplicate", "duplicate", None]


def test_a_repeated_prompt_loses_its_whole_group_and_the_first_group_loses_nothing():
    rows = rows_of(["sys", "1+1?"], ["sys", "2+2?"], ["sys", "1+1?"], n=3)
    assert dropped(ExactDeduplicator(unit="prompt"), rows) == [None] * 6 + ["duplicate_prompt"] * 3


def test_where_one_message_ends_counts():
    assert (
        dropped(ExactDeduplicator(unit="prompt"), rows_of(["ab", "c"], ["a", "bc"])) == [None] * 4
    )


def test_prompts_without_messages_are_kept():
    assert dropped(ExactDeduplicator(unit="prompt"), rows_of(None, None)) == [None] * 4


def test_messages_without_content_are_compared_too():
    rows = rows_of(["a", None], ["a", None], ["b", None])
    assert dropped(ExactDeduplicator(unit="prompt"), rows)[2:4] == ["duplicate_prompt"] * 2


def test_the_digest_is_eight_bytes_a_row():
    rows = table(["a" * 1000, None] * 50)
    assert ExactDeduplicator().digest(rows).nbytes <= 8 * 100 + 16


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "", "A", None]), min_size=1, max_size=4), max_size=6
    ),
    st.sampled_from(["prompt", "all"]),
    st.data(),
)
def test_the_same_as_a_set_whatever_the_chunks(groups, within, data):
    operator = ExactDeduplicator(within=within)
    rows = table(*groups)
    seen, expected = set(), []
    for i, group in enumerate(groups):
        for text in group:
            key = (text, i if within == "prompt" else 0)
            expected.append("duplicate" if text is not None and key in seen else None)
            seen.add(key)
    at = data.draw(st.sampled_from([0, *np.cumsum([len(g) for g in groups]).tolist()]))
    digest = pa.concat_tables([operator.digest(rows.slice(0, at)), operator.digest(rows.slice(at))])
    assert operator.apply(digest).reasons.to_pylist() == expected
    assert operator.apply(operator.digest(rows)).reasons.to_pylist() == expected


@given(st.lists(st.integers(0, 5)))
def test_not_first(keys):
    expected = [key in keys[:i] for i, key in enumerate(keys)]
    assert occurred_before(np.array(keys, np.uint64)).tolist() == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"unit": "prompt", "within": "prompt"},
            "unit prompt compares prompts with each other, so within must be all",
        ),
        (
            {"unit": "prompt", "column": "response"},
            "unit prompt needs a column that all rows of a prompt share, not response",
        ),
    ],
)
def test_fields_that_do_not_fit_are_an_error(fields, message):
    with pytest.raises(RecipeError) as error:
        build(ExactDeduplicator, fields)
    assert str(error.value) == message


def test_a_column_without_text_is_an_error():
    rows = pa.table({"prompt_id": ["a"], "ids": pa.array([[1, 2]])})
    with pytest.raises(DataError) as error:
        ExactDeduplicator(column="ids").digest(rows)
    assert str(error.value) == (
        "a column of type list<item: int64> has no text; choose one of strings or of messages"
    )
