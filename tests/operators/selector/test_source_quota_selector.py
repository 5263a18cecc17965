"""Each source has its quota, to the prompt."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rejuice.operators.selector.source_quota_selector import SourceQuotaSelector, rounded
from rejuice.operators.training_step import StepContext


def at(step, number=1, prompts=8, progress=0.0):
    return step.at_step(StepContext(number, progress, prompts, 0, pa.table({})))


def order_of(change):
    """The rows that have a quota, in the order in which they are taken."""
    rank, reasons = np.asarray(change.columns["choice_rank"]), change.reasons.to_pylist()
    return [row for row in np.argsort(rank, kind="stable").tolist() if reasons[row] is None]


SOURCES = st.dictionaries(
    st.sampled_from("abcd"), st.tuples(st.floats(0.01, 10), st.integers(0, 30)), min_size=1
)


@given(sources=SOURCES, size=st.integers(1, 20), step=st.integers(1, 5))
def test_quotas_are_exact_in_every_step(sources, size, step):
    quotas = {name: quota for name, (quota, _) in sources.items()}
    rows = [name for name, (_, n) in sources.items() for _ in range(n)]
    table = pa.table({"data_source": pa.array(rows, pa.string())})
    change = at(SourceQuotaSelector(quotas=quotas), step, size).apply(table)
    order = order_of(change)
    assert sorted(order) == list(range(len(rows)))
    first = Counter(rows[row] for row in order[:size])
    assert first.total() == min(size, len(rows))
    share = {name: size * quota / sum(quotas.values()) for name, quota in quotas.items()}
    due = {name: np.floor(round(share[name], 9)) for name in sources}
    if all(n >= np.ceil(share[name]) for name, (_, n) in sources.items()):
        assert all(abs(first[name] - share[name]) < 1 for name in sources)
    else:  # Others take the places of a source that has run dry.
        assert all(first[name] >= min(n, due[name]) for name, (_, n) in sources.items())
    reported = {name.removeprefix("short/"): n for name, n in change.notes.items()}
    assert reported == {name: due[name] - n for name, (_, n) in sources.items() if n < due[name]}


def test_the_steps_of_refills_are_in_the_quotas_too():
    table = pa.table({"data_source": ["a"] * 40 + ["b"] * 40})
    order = order_of(at(SourceQuotaSelector(quotas={"a": 3, "b": 1})).apply(table))
    for start in range(0, 32, 8):
        assert Counter(row < 40 for row in order[start : start + 8]) == {True: 6, False: 2}
        # A refill may take a part of it.
        assert Counter(row < 40 for row in order[start : start + 4]) == {True: 3, False: 1}
    kept = order_of(at(SourceQuotaSelector(quotas={"a": 3, "b": 1}, keep=32)).apply(table))
    assert Counter(row < 40 for row in kept[:8]) == {True: 6, False: 2}
    assert len(kept) == 32


def test_without_a_rank_the_one_visited_longest_ago_comes_first():
    table = pa.table({"data_source": ["a"] * 6, "prompt_row": range(6)})
    visits = pa.table({"prompt_row": [2, 0, 2, 5], "step": [1, 2, 3, 3]})
    step = SourceQuotaSelector(quotas={"a": 1}).at_step(StepContext(4, 0.5, 2, 0, visits))
    order = order_of(step.apply(table))
    assert set(order[:3]) == {1, 3, 4}
    assert order[3] == 0
    assert set(order[4:]) == {2, 5}


def test_fractions_are_had_on_average():
    counts = [rounded(np.array([0.3, 7.7]), 8, np.random.default_rng(n))[0] for n in range(4000)]
    assert set(counts) == {0, 1}
    assert np.mean(counts) == pytest.approx(0.3, abs=0.03)


def test_within_a_source_the_rank_decides():
    table = pa.table({"data_source": ["a", "a", "b", "b"], "choice_rank": [9, 3, 5, 4]})
    change = at(SourceQuotaSelector(quotas={"a": 1, "b": 1}), prompts=2).apply(table)
    assert set(order_of(change)[:2]) == {1, 3}


def test_tokens_are_divided_by_what_responses_had():
    tokens = [300.0] * 50 + [100.0] * 25 + [None] * 25
    table = pa.table({"data_source": ["a"] * 50 + ["b"] * 50, "history_response_tokens": tokens})
    order = order_of(at(SourceQuotaSelector(quotas={"a": 1, "b": 1}, unit="tokens")).apply(table))
    assert Counter(row < 50 for row in order[:8]) == {True: 2, False: 6}


def test_a_quota_follows_its_schedule():
    table = pa.table({"data_source": ["a"] * 8 + ["b"] * 8})
    step = SourceQuotaSelector(quotas={"a": {"from": 1, "to": 0}, "b": 1})
    assert Counter(row < 8 for row in order_of(at(step).apply(table))[:8]) == {True: 4, False: 4}
    last = at(step, progress=1.0).apply(table)
    assert sorted(order_of(last)) == list(range(8, 16))
    assert Counter(last.reasons.to_pylist()) == {None: 8, "no_quota": 8}


def test_offline_the_prompts_to_keep_are_divided():
    table = pa.table({"data_source": ["a"] * 8 + ["b"] * 8 + ["c", None]})
    change = SourceQuotaSelector(quotas={"a": 3, "b": 1}, keep=8).apply(table)
    assert Counter(change.reasons.to_pylist()) == {None: 8, "over_keep": 8, "no_quota": 2}
    every = SourceQuotaSelector(quotas={"a": 3, "b": 1}).apply(table)
    assert sorted(order_of(every)) == list(range(16))


def test_quotas_of_any_size_and_of_numbers_are_read():
    table = pa.table({"level": [1, 2] * 8})
    step = at(SourceQuotaSelector(quotas={1: 1e308, 2: 1e308}, column="level"))
    assert Counter(row % 2 for row in order_of(step.apply(table))[:8]) == {0: 4, 1: 4}


@pytest.mark.parametrize(
    ("quotas", "found"),
    [
        ({"a": 1, "b": -1}, "the quota of 'b' is below 0"),
        ({"a": 0}, "all quotas are 0 at first"),
        ({"a": {"from": 1, "to": 0}}, "all quotas are 0 at the end"),
    ],
)
def test_quotas_that_are_none_are_refused(quotas, found):
    with pytest.raises(ValidationError, match=found):
        SourceQuotaSelector(quotas=quotas)


def test_the_source_may_be_a_field_of_a_column():
    step = SourceQuotaSelector(column="extra_info.source", quotas={"a": 1})
    assert step.reads_of({"extra_info"}) == ["extra_info"]
    rows = pa.table({"extra_info": [{"source": name} for name in "aba"]})
    assert step.apply(rows).reasons.to_pylist() == [None, "no_quota", None]
