import json
from pathlib import Path

import pyarrow as pa
import pytest

from rejuice.operators import ExactDeduplicator
from rejuice.operators.check import check_operator
from rejuice.operators.mapper.group_stats_mapper import GroupStatsMapper
from rejuice.pipelines.engine.steps import run_in_memory

SOLUTIONS = Path(__file__).parents[4] / "shared" / "data" / "gsm8k" / "model_solutions.jsonl"
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


def solved(*groups):
    """Paths and counts of groups of pairs: a verdict's letter and a response."""
    rows = table(*["".join(letter for letter, _ in group) for group in groups])
    texts = pa.array([text for group in groups for _, text in group], pa.string())
    columns = check_operator(
        GroupStatsMapper(solution_paths=True), rows.append_column("response", texts)
    ).columns
    assert list(columns) == ["pass_rate", "group_n", "solution_path", "solution_paths"]
    return columns["solution_path"].to_pylist(), columns["solution_paths"].to_pylist()


def test_other_words_are_no_other_path():
    """What a reward for other wordings pushes: six texts, two paths."""
    texts = [
        "12 + 5 = 17, 17 * 2 = 34. The answer is 34.",
        "First 12+5=17. Then 17 x 2 = 34!",
        "Kate has 5 + 12 = <<5+12=17>>17 and pays 2 * $17 = $34.00",
        "12 + 5 = 17\n\n17 \\times 2 = 34; I check: 12 + 5 = 17",
        "12 * 2 = 24, 5 * 2 = 10, 24 + 10 = 34",
        "So 5 * 2 = 10 after 12 * 2 = 24: another order is another path: 24 + 10 = 34",
    ]
    paths, counts = solved([("c", text) for text in texts])
    assert paths[:4] == ["12+5=17; 17*2=34"] * 3 + ["12+5=17; 17*2=34"]
    assert paths[4:] == ["12*2=24; 2*5=10; 10+24=34", "2*5=10; 12*2=24; 10+24=34"]
    assert counts == [3] * 6


def test_paths_are_counted_among_right_responses():
    one, other = "1 + 1 = 2", "2 * 1 = 2"
    paths, counts = solved([("c", one), ("w", other), ("c", one)], [("c", other), ("n", None)])
    assert paths == ["1+1=2", "1*2=2", "1+1=2", "1*2=2", None]
    assert counts == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("group", "count"),
    [
        ([("w", "1 + 1 = 3"), ("w", "2")], 0),
        ([("c", "It is 2."), ("c", "2")], None),  # Right by no equations: not by no path.
        ([("c", "It is 2."), ("c", "1 + 1 = 2")], 1),
        ([("t", "1 + 1 = 2"), ("?", "1 + 1 = 2")], None),
    ],
)
def test_no_right_response_is_0_and_what_is_not_known_is_null(group, count):
    assert solved(group)[1] == [count, count]


def test_no_rows_have_no_paths():
    assert solved() == ([], [])


@pytest.mark.slow
@pytest.mark.skipif(not SOLUTIONS.exists(), reason="GSM8K is not beside this checkout")
def test_recorded_solutions_differ_in_words_more_than_in_paths():
    """Two or more models have solved 296 of the questions."""
    groups = []
    for line in SOLUTIONS.read_text("utf-8").splitlines():
        found = [value for value in json.loads(line).values() if isinstance(value, dict)]
        groups.append([("c" if each["is_correct"] else "w", each["solution"]) for each in found])
    paths, counts = solved(*groups)
    assert sum(path is None for path in paths) == 27  # All of them wrong.
    right = [{text for letter, text in group if letter == "c"} for group in groups]
    several = [at for at, group in enumerate(groups) if sum(x == "c" for x, _ in group) > 1]
    assert len(several) == 296
    assert sum(len(right[at]) for at in several) / 296 == pytest.approx(2.90, abs=0.01)
    assert sum(counts[4 * at] for at in several) / 296 == pytest.approx(1.40, abs=0.01)


def test_later_steps_do_not_change_them():
    rows = table("ccww", "cwww").append_column("response", pa.array(list("aabbabbb")))
    found = run_in_memory(
        [GroupStatsMapper(), ExactDeduplicator()], rows
    ).select(["prompt_id", "pass_rate", "group_n"])  # fmt: skip
    assert found.to_pylist() == [
        {"prompt_id": f"p{g}", "pass_rate": rate, "group_n": 4}
        for g, rate in ((0, 0.5), (0, 0.5), (1, 0.25), (1, 0.25))
    ]
