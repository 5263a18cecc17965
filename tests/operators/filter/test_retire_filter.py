"""Prompts that have become too easy, or are too hard, rest."""

import pyarrow as pa
import pytest

from rejuice.operators.filter.retire_filter import RetireFilter

SEEN = pa.table({
    "history_mean_pass_rate": [0.5, 1.0, 1.0, 1.0, 0.0, 0.9, None, None],
    "history_visits": [3, 2, 2, 1, 3, 2, 2, 0],
    "history_age": [0, 4, 5, 0, 0, 0, 0, None],
})  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "dropped"),
    [
        ({}, {1: "too_easy", 2: "too_easy"}),
        ({"for_steps": 5}, {1: "too_easy"}),
        ({"visits": 1}, {1: "too_easy", 2: "too_easy", 3: "too_easy"}),
        ({"max": 0.875}, {1: "too_easy", 2: "too_easy", 5: "too_easy"}),
        ({"min": 0}, {1: "too_easy", 2: "too_easy", 4: "too_hard"}),
        ({"max": None, "min": 0.5}, {0: "too_hard", 4: "too_hard"}),
    ],
)
def test_prompts_that_are_too_easy_or_too_hard_are_dropped_for_a_while(fields, dropped):
    found = RetireFilter(**fields).decide(SEEN).to_pylist()
    assert {row: why for row, why in enumerate(found) if why} == dropped
