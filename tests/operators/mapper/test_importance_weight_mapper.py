"""Importance weights of tokens; against verl's: tests/trainer/verl/test_importance_weights.py."""

import numpy as np
import pyarrow as pa
import pytest

from rejuice.operators import DataError, RecipeError, build
from rejuice.operators.mapper.importance_weight_mapper import ImportanceWeightMapper

FLOATS, IDS = pa.list_(pa.float32()), pa.list_(pa.int32())


def table(pairs, weights=None):
    """Rows of log-probabilities by the policy of today, None for a response of its own, and before."""
    new, old = zip(*pairs, strict=True)
    columns = {
        "response_token_ids": pa.array([[1] * len(each) for each in old], IDS),
        "response_logprobs": pa.array(old, FLOATS),
        "policy_logprobs": pa.array(new, FLOATS),
    }
    if weights is not None:
        columns["token_weight"] = pa.array(weights, FLOATS)
    return pa.table(columns)


def weights_of(rows, **fields):
    return ImportanceWeightMapper(**fields).apply(rows).columns["token_weight"].to_pylist()


def test_responses_of_the_present_policy_have_no_weights():
    rows = table([([-1.0, -2.0], [-1.5, -1.0]), (None, [-1.0])])
    found = weights_of(rows)
    assert found[1] is None
    assert found[0] == pytest.approx([np.exp(0.5), np.exp(-1)], rel=1e-6)
    plain = rows.drop_columns(["policy_logprobs"])
    assert weights_of(plain) == [None, None]


def test_weights_that_are_there_are_multiplied():
    rows = table([([-1.0, -2.0], [-1.5, -1.0]), (None, [-1.0, -1.0])], [[1.0, 0.0], [0.0, 1.0]])
    found = weights_of(rows)
    assert found[0] == pytest.approx([np.exp(0.5), 0.0], rel=1e-6)
    assert found[1] == [0.0, 1.0]


def test_bounded_tokens_are_counted():
    rows = table([([-1.0, -2.0], [-3.0, -2.0]), (None, [-1.0])])
    operator = ImportanceWeightMapper(max=1.5)
    change = operator.apply(rows)
    assert change.columns["token_weight"].to_pylist()[0] == pytest.approx([1.5, 1.0])
    assert change.notes == {"tokens_weighted": 2.0, "tokens_bounded": 1.0}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (table([([-1.0], [-1.0, -2.0])]), "1 values in policy_logprobs and 2 in response_logprobs"),
        (table([([np.nan], [-1.0])]), "not finite"),
        (table([([-1.0], [-1.0])], [[1.0, 1.0]]), "2 values in token_weight and 1 tokens"),
    ],
)
def test_lists_that_do_not_fit_are_refused(rows, expected):
    with pytest.raises(DataError, match=expected):
        weights_of(rows)


def test_a_range_without_a_weight_is_refused():
    with pytest.raises(RecipeError, match="min is above max"):
        build(ImportanceWeightMapper, {"min": 3, "max": 2})
