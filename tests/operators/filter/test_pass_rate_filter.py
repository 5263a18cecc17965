import pyarrow as pa
import pytest

from rejuice.operators import DataError, RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.filter.pass_rate_filter import PassRateFilter
from rejuice.operators.registry import build


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


def test_the_column_counts_instead_of_the_rows_that_are_left():
    rows = table(a="cw", b="cc", c="tt", d="ww")
    rates = [0.9, 0.9, 0.5, 0.5, None, None, 0.2, 0.2]
    change = check_operator(
        PassRateFilter(min=0.2, max=0.8), rows.append_column("pass_rate", pa.array(rates))
    )
    assert change.reasons.to_pylist()[::2] == ["too_easy", None, "not_graded", None]


def test_a_column_that_differs_within_a_prompt_is_an_error():
    rows = table(a="cw", b="cw").append_column("pass_rate", pa.array([0.5, 0.5, 0.5, 0.25]))
    with pytest.raises(DataError) as caught:
        PassRateFilter().apply(rows)
    assert str(caught.value) == (
        "column 'pass_rate' differs between the responses to prompt 'b'; "
        "a pass rate is that of the prompt: let group_stats_mapper write it"
    )


def test_bounds_in_the_wrong_order_are_an_error():
    with pytest.raises(RecipeError, match=r"^min 0.9 is above max 0.1$"):
        build(PassRateFilter, {"min": 0.9, "max": 0.1})
