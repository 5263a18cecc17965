import pyarrow as pa
import pytest

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.fields import build
from rejuice.operators.filter.pass_rate_filter import PassRateFilter


def table(**verdicts_of_group):
    letters = {"c": "correct", "w": "wrong_answer", "n": "no_answer", "t": "timeout", "?": None}
    return pa.table(
        {
            "prompt_id": pa.array(
                [p for p, v in verdicts_of_group.items() for _ in v], pa.string()
            ),
            "verdict": pa.array(
                [letters[x] for v in verdicts_of_group.values() for x in v], pa.string()
            ),
        }
    )


def test_drops_whole_groups_outside_the_bounds():
    change = check_operator(
        PassRateFilter(min=0.25, max=0.75), table(easy="cccc", mixed="ccww", hard="wwwn")
    )
    assert change.reasons.to_pylist() == ["too_easy"] * 4 + [None] * 4 + ["too_hard"] * 4


def test_bounds_are_inclusive():
    change = check_operator(PassRateFilter(min=0.25, max=0.75), table(a="cwww", b="cccw"))
    assert change.reasons.null_count == 8


def test_ungraded_responses_count_neither_way():
    change = check_operator(PassRateFilter(max=0.9), table(a="ct?", b="tt", c="cw"))
    assert change.reasons.to_pylist() == ["too_easy"] * 3 + ["not_graded"] * 2 + [None] * 2


def test_bounds_in_the_wrong_order_are_an_error():
    with pytest.raises(RecipeError, match=r"^min 0.9 is above max 0.1$"):
        build(PassRateFilter, {"min": 0.9, "max": 0.1})
