import inspect

import numpy as np
import pyarrow as pa
import pytest
from each import check_each
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError, model_validator

from rejuice.operators import (
    Filter,
    Kind,
    Mapper,
    Operator,
    RecipeError,
    ResumableOperator,
    Scope,
    build,
    drop,
    get,
)
from rejuice.operators.config import field_docs
from rejuice.operators.filter.pass_rate_filter import PassRateFilter
from rejuice.operators.operator import ScopeByField


class LLMScore2Filter(Filter):
    """Keep everything."""

    threshold: int
    """A number without a default."""
    nested: dict[str, int] = Field({})
    """A field with fields of its own."""

    @model_validator(mode="after")
    def _checked(self):
        if self.threshold > 9:
            raise ValueError("threshold is above 9")
        return self

    def decide(self, table):
        return drop({"never": np.zeros(table.num_rows, bool)})


def test_the_name_is_the_class_name_in_snake_case():
    assert PassRateFilter.name() == "pass_rate_filter"
    assert LLMScore2Filter.name() == "llmscore2_filter"


def test_the_kind_is_that_of_the_base_class_unless_it_is_declared():
    assert LLMScore2Filter.kind is PassRateFilter.kind is Kind.FILTER
    assert Mapper.kind is Operator.kind is ResumableOperator.kind is Kind.MAPPER
    assert get("exact_deduplicator").kind is Kind.DEDUPLICATOR
    assert get("label_balance_selector").kind is Kind.SELECTOR
    assert "kind" not in PassRateFilter.model_fields


class SpanMapper(Mapper):
    """Write nothing."""

    over: str = "prompt"
    """What it sees at once."""
    scope = ScopeByField("over", Scope.GROUP, {"all": Scope.DATASET})

    def map(self, table):
        return {}


def test_a_scope_may_depend_on_a_field():
    assert SpanMapper.scope is SpanMapper().scope is Scope.GROUP
    assert SpanMapper(over="all").scope is Scope.DATASET
    assert "scope" not in SpanMapper.model_fields


def test_operators_declare_whether_they_drop_single_responses():
    cases = [
        ("pass_rate_filter", {}, False),
        ("reward_std_filter", {}, False),
        ("group_size_filter", {}, False),
        ("exact_deduplicator", {"unit": "prompt"}, False),
        ("minhash_deduplicator", {"unit": "prompt"}, False),
        ("label_balance_selector", {"column": "label"}, False),
        ("reward_sum_mapper", {"weights": {"a": 1}, "on_missing": "drop_row"}, False),
        ("exact_deduplicator", {}, True),
        ("minhash_deduplicator", {}, True),
        ("length_filter", {"max": 9}, True),
        ("truncated_response_filter", {}, True),
        ("diverse_response_selector", {"k": 1}, True),
        ("label_balance_selector", {}, True),
    ]

    def check(name, fields, found):
        assert build(get(name), fields).drops_within_groups() is found

    check_each(cases, check)


def test_a_filter_of_yours_drops_single_responses_unless_it_says_otherwise():
    assert LLMScore2Filter(threshold=1).drops_within_groups()


def test_an_operator_is_frozen():
    operator = PassRateFilter()
    with pytest.raises(ValidationError, match="frozen"):
        operator.min = 0.5


def test_fields_carry_their_docstrings():
    assert field_docs(PassRateFilter)["min"] == "Lowest pass rate to keep."
    schema = PassRateFilter.model_json_schema()
    assert schema["properties"]["min"]["description"] == "Lowest pass rate to keep."


def test_docstrings_of_fields_are_read_when_they_are_asked_for(monkeypatch):
    read = []

    def findsource(found):
        read.append(found)
        raise OSError

    monkeypatch.setattr(inspect, "findsource", findsource)

    class PlainFilter(PassRateFilter):
        most: int = 1
        """Read late."""

    assert not read
    field_docs(PlainFilter)
    assert PlainFilter in read


def test_a_field_without_a_docstring_of_its_own_has_that_of_its_base():
    class NarrowFilter(PassRateFilter):
        min: float = 0.5
        most: int = 1
        """The most."""

    docs = field_docs(NarrowFilter)
    assert docs["most"] == "The most."
    for name in ("min", "max"):
        assert docs[name] == field_docs(PassRateFilter)[name]


def test_the_first_slug_wins():
    reasons = drop({"one": [True, False, True], "two": [True, True, False]})
    assert reasons.to_pylist() == ["one", "two", "one"]
    assert reasons.type == pa.string()


@pytest.mark.parametrize(
    "mask",
    [
        [True, None, False],
        np.array([True, False, False]),
        pa.array([True, None, False]),
        pa.chunked_array([[True], [None, False]], pa.bool_()),
    ],
    ids=lambda mask: type(mask).__name__,
)
def test_every_kind_of_mask_will_do_and_a_null_keeps(mask):
    assert drop({"bad": mask}).to_pylist() == ["bad", None, None]


@pytest.mark.parametrize("mask", [[], np.zeros(0, bool), pa.array([], pa.bool_())])
def test_no_rows_give_no_reasons(mask):
    reasons = drop({"bad": mask, "worse": mask})
    assert reasons.to_pylist() == []
    assert reasons.type == pa.string()


def test_a_mask_that_is_not_boolean_is_an_error():
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        drop({"bad": ["yes"]})


tables_of_masks = st.integers(0, 9).flatmap(
    lambda n: st.lists(
        st.lists(st.none() | st.booleans(), min_size=n, max_size=n), min_size=1, max_size=4
    )
)


@given(tables_of_masks)
@settings(max_examples=50)
def test_drop_agrees_with_a_plain_loop(masks):
    named = {f"slug_{i}": mask for i, mask in enumerate(masks)}
    expected = [
        next((slug for slug, mask in named.items() if mask[row]), None)
        for row in range(len(masks[0]))
    ]
    assert drop(named).to_pylist() == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "field 'threshold' is missing; it has no default"),
        ({"treshold": 1, "threshold": 1}, "unknown field 'treshold'; did you mean 'threshold'?"),
        (
            {"threshold": 1, "qqq": 1},
            "unknown field 'qqq'; its fields are: threshold, nested",
        ),
        (
            {"threshold": "x"},
            "field 'threshold' is 'x'; input should be a valid integer, "
            "unable to parse string as an integer",
        ),
        (
            {"threshold": 1, "nested": {"a": None}},
            "field 'nested.a' is None; input should be a valid integer",
        ),
        ({"threshold": 10}, "threshold is above 9"),
        ({"threshold": 1, 5: 1}, "field '5' is 5; keys should be strings"),
    ],
)
def test_wrong_fields_are_one_clear_line(fields, message):
    with pytest.raises(RecipeError) as caught:
        build(LLMScore2Filter, fields)
    assert str(caught.value) == message


def test_right_fields_build_an_operator():
    assert build(LLMScore2Filter, {"threshold": 3}) == LLMScore2Filter(threshold=3)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(RecipeError) as caught:
        get("pas_rate_filter")
    assert str(caught.value) == (
        "unknown operator 'pas_rate_filter'; did you mean 'pass_rate_filter'?"
    )
    with pytest.raises(RecipeError) as caught:
        get("zzz")
    assert str(caught.value) == "unknown operator 'zzz'; see `rejuice ops`"
