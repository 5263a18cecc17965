import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_rows import generated, judged_rows

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator, run
from rejuice.operators.filter.verification_filter import VerificationFilter
from rejuice.operators.mapper.self_verified_vote_mapper import SelfVerifiedVoteMapper
from rejuice.operators.registry import build


def reasons(table, **fields):
    """Per response; the judgements are kept."""
    change = check_operator(VerificationFilter(**fields), table)
    assert change.reasons.null_count >= table["task"].to_pylist().count("verify")
    return generated(table, change.reasons)


def test_answers_that_the_policy_rejects_are_dropped():
    table = judged_rows("1:YYN 2:YNN 3:YN", "4:N 5:Y")
    assert reasons(table) == [None, "rejected", None, "rejected", None]


@pytest.mark.parametrize(
    ("least", "dropped"), [(0, 0), (1 / 3, 1), (0.34, 2), (0.5, 2), (0.6, 3), (2 / 3, 3), (1, 4)]
)
def test_the_threshold_is_inclusive(least, dropped):
    table = judged_rows("1:N 2:YNN 3:YN 4:YYN 5:Y")
    assert reasons(table, min=least) == ["rejected"] * dropped + [None] * (5 - dropped)


def test_a_response_that_was_not_judged_goes_with_its_answer():
    assert reasons(judged_rows("1:N 1 2 2:Y 1")) == ["rejected", "rejected", None, None, "rejected"]


def test_what_was_not_judged_is_kept_or_dropped_for_a_reason_of_its_own():
    table = judged_rows("1:N 2 3:-", "4 :")
    assert reasons(table) == ["rejected", None, None, None, None]
    assert reasons(table, unjudged="drop") == ["rejected", *["not_judged"] * 4]


def test_a_malformed_judgement_rejects_nothing():
    assert reasons(judged_rows("1:Y- 2:---"), min=1) == [None, None]


def test_whole_responses_may_have_been_judged():
    table = judged_rows("7:NN 7:YY 7:Y 7")
    texts = pa.array(["weak", "good", "fine", "weak", *["…"] * 5], pa.string())
    table = table.set_column(table.schema.get_field_index("response"), "response", texts)
    assert reasons(table) == ["rejected", None, None, None]
    assert reasons(table, mode="response") == ["rejected", None, None, "rejected"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min": -0.1}, "field 'min' is -0.1; input should be greater than or equal to 0"),
        ({"unjudged": 0.5}, "field 'unjudged' is 0.5; input should be 'keep' or 'drop'"),
    ],
)
def test_fields_that_do_not_fit_are_one_plain_clause(fields, message):
    with pytest.raises(RecipeError) as error:
        build(VerificationFilter, fields)
    assert str(error.value) == message


VOTE = st.builds("{}:{}".format, st.sampled_from(["1", "2", ""]), st.text("YN-", max_size=3))
GROUPS = st.lists(st.lists(VOTE, min_size=1, max_size=5).map(" ".join), max_size=4)


@pytest.mark.slow
@settings(max_examples=30)
@given(GROUPS, st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.sampled_from(["keep", "drop"]))
def test_it_drops_by_the_judged_right_of_the_vote(groups, least, unjudged):
    table = judged_rows(*groups)
    right = generated(table, run(SelfVerifiedVoteMapper(), table).columns["judged_right"])
    unknown = "not_judged" if unjudged == "drop" else None
    below = {True: "rejected", False: None}
    expected = [unknown if r is None else below[bool(np.less(r, least))] for r in right]
    assert reasons(table, min=least, unjudged=unjudged) == expected
