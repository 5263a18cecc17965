"""Data-Juicer's model-free operators give the same rows in `rejuice run` as in Data-Juicer.

`benchmarks/bench_both_ways.py` runs all of its text operators, those that need a model included.
"""

import both_ways
import pytest
from djrows import rows

pytest.importorskip("data_juicer")

pytestmark = pytest.mark.slow

FIELDS = both_ways.effective_fields()
EQUAL = (both_ways.IDENTICAL, both_ways.ORDER)


def label(case):
    return f"{case[0]}-{case[1]}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("both_ways")


def check(name, number, folder, **how):
    """The rows are equal, their order aside where that is documented, and something has happened."""
    outcome = both_ways.outcome(name, number, folder, **how)
    if outcome.verdict == both_ways.NEEDS:
        pytest.skip(outcome.line)
    assert outcome.verdict in EQUAL, outcome.line
    assert outcome.effect
    assert name in both_ways.SORTING or outcome.verdict == both_ways.IDENTICAL


# Functions of a user's may see more of the rows than operators do, so they are all here.
EVERY = [(name, number) for name, sets in FIELDS.items() for number in range(len(sets))]
QUICK = [case for case in EVERY if case[1] == 0 or case[0].startswith("python_")]


ONE = pytest.param(QUICK[0], marks=pytest.mark.smoke)


@pytest.mark.parametrize("case", [ONE, *QUICK[1:]], ids=label)
def test_the_same_rows_both_ways(case, folder):
    check(*case, folder, quick=True)


@pytest.mark.parametrize("case", [case for case in EVERY if case not in QUICK], ids=label)
def test_the_same_rows_with_other_fields(case, folder):
    check(*case, folder)


@pytest.mark.parametrize("name", FIELDS)
def test_default_fields_give_the_same_rows(name, folder):
    outcome = both_ways.outcome(name, -1, folder, quick=True)
    assert outcome.verdict not in both_ways.BAD, outcome.line


@pytest.mark.smoke
def test_a_difference_is_found(folder):
    table = rows(folder, groups=1)
    assert both_ways.difference(table, table) == ""
    other = table.set_column(7, "n", table["small"])
    assert "column 'n' is int64" in both_ways.difference(table, other)
    assert "32 rows became 31" in both_ways.difference(table, table.slice(1))
    swapped = table.select([1, 0, *range(2, table.num_columns)])
    assert "became ['second', 'text'" in both_ways.difference(table, swapped)
    moved = table.take([1, 0, *range(2, table.num_rows)])
    assert both_ways.difference(table, moved).startswith("column 'text', row 0: ")
