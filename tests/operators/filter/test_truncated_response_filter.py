import pyarrow as pa
import pytest

from rejuice.operators import RecipeError
from rejuice.operators.check import check_operator
from rejuice.operators.filter.truncated_response_filter import TruncatedResponseFilter
from rejuice.operators.registry import build


def table(*finish):
    return pa.table({"finish_reason": pa.array(finish, pa.string())})


def test_drops_what_ran_into_the_limit_and_keeps_what_is_unknown():
    change = check_operator(TruncatedResponseFilter(), table("stop", "length", None, "abort"))
    assert change.reasons.to_pylist() == [None, "truncated", None, None]


def test_unknown_and_other_reasons_on_demand():
    operator = TruncatedResponseFilter(reasons_to_drop=("abort", "length"), keep_unknown=False)
    change = check_operator(operator, table("stop", "length", None, "abort"))
    assert change.reasons.to_pylist() == [None, "truncated", "unknown_finish", "truncated"]


def test_a_column_of_nulls_has_no_type_of_its_own():
    nulls = pa.table({"finish_reason": pa.nulls(2)})
    assert TruncatedResponseFilter().apply(nulls).reasons.to_pylist() == [None, None]


def test_nothing_to_drop_is_an_error():
    message = r"^field 'reasons_to_drop' is \[\]; tuple should have at least 1 item"
    with pytest.raises(RecipeError, match=message):
        build(TruncatedResponseFilter, {"reasons_to_drop": []})
