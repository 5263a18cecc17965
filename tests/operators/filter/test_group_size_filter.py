import pyarrow as pa
import pytest

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.filter.group_size_filter import GroupSizeFilter
from rejuice.operators.registry import build


def table(prompts):
    return pa.table({"prompt_id": pa.array(list(prompts), pa.string())})


def test_the_default_drops_groups_of_one():
    change = check_operator(GroupSizeFilter(), table("abbccc"))
    assert change.reasons.to_pylist() == ["group_too_small"] + [None] * 5


def test_bounds_are_inclusive():
    change = check_operator(GroupSizeFilter(min=2, max=3), table("abbcccdddd"))
    assert change.reasons.to_pylist() == (
        ["group_too_small"] + [None] * 5 + ["group_too_large"] * 4
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min": 4, "max": 3}, r"^min 4 is above max 3$"),
        ({"min": 0}, r"^field 'min' is 0; input should be greater than or equal to 1$"),
    ],
)
def test_impossible_bounds_are_an_error(fields, message):
    with pytest.raises(RecipeError, match=message):
        build(GroupSizeFilter, fields)
