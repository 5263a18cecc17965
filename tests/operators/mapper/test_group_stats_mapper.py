import pyarrow as pa
import pytest

from rejuice.operators import ExactDeduplicator
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.group_stats_mapper import GroupStatsMapper
from rejuice.pipelines.apply.steps import run_in_memory

LETTERS = {
    "c": "correct", "w": "wrong_answer", "n": "no_answer", "t": "timeout", "e": "verifier_error",
    "?": None,
}  # fmt: skip


def table(*verdicts_of_group):
    pairs = [(f"p{g}", LETTERS[x]) for g, of in enumerate(verdicts_of_group) for x in of]
    ids, verdicts = ([pair[at] for pair in pairs] for at in (0, 1))
    return pa.table(
        {"prompt_id": pa.array(ids, pa.string()), "verdict": pa.array(verdicts, pa.string())}
    )


def stats(rows):
    columns = check_operator(GroupStatsMapper(), rows).columns
    assert {name: str(column.type) for name, column in columns.items()} == {
        "pass_rate": "double",
        "group_n": "int64",
    }
    return list(zip(columns["pass_rate"].to_pylist(), columns["group_n"].to_pylist(), strict=True))


def test_all_rows_of_a_group_have_its_statistics():
    assert stats(table("cwww", "cc")) == [(0.25, 4)] * 4 + [(1.0, 2)] * 2


@pytest.mark.parametrize(
    ("verdicts", "rate"),
    [
        ("cn", 0.5),  # No answer is a wrong answer ...
        ("ct", 1.0),  # ... but a failure is no 0,
        ("ce?", 1.0),
        ("wt", 0.0),
        ("te?", None),  # and without a grade there is no rate.
    ],
)
def test_failures_are_not_counted_as_wrong(verdicts, rate):
    # The group's size is that of the sample, failures included.
    assert stats(table("cw", verdicts))[2:] == [(rate, len(verdicts))] * len(verdicts)


def test_later_steps_do_not_change_them():
    rows = table("ccww", "cwww").append_column("response", pa.array(list("aabbabbb")))
    found = run_in_memory(
        [GroupStatsMapper(), ExactDeduplicator()], rows
    ).select(["prompt_id", "pass_rate", "group_n"])  # fmt: skip
    assert found.to_pylist() == [
        {"prompt_id": f"p{g}", "pass_rate": rate, "group_n": 4}
        for g, rate in ((0, 0.5), (0, 0.5), (1, 0.25), (1, 0.25))
    ]
