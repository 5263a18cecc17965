"""Simulated agents: their trajectories are real in all but the policy."""

from collections import Counter

import pyarrow.parquet as pq
import pytest

from rejuice.operators import RejuiceError
from rejuice.operators.agents.trajectory import turns_of
from rejuice.pipelines.demo.agents import MAX_TURNS
from rejuice.pipelines.demo.datasets import write_dataset
from rejuice.pipelines.demo.problems import DemoOptions, problems


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("agents") / "trajectories.parquet"
    write_dataset(path, "trajectories", DemoOptions(prompts=40, responses=8))
    return pq.read_table(path).to_pylist()


def test_every_problem_has_its_trajectories_in_order(rows):
    questions = [row["prompt"][0]["content"] for row in rows]
    assert questions == [problem.question for problem in problems(0, "train", 40) for _ in range(8)]


def test_there_are_all_kinds_of_ends(rows):
    ends = Counter(row["finish_reason"] for row in rows)
    assert set(ends) == {"stop", "turn_limit", "tool_failed"}
    assert ends["tool_failed"] < 0.05 * len(rows) < ends["turn_limit"]
    for row in rows:
        if row["finish_reason"] == "tool_failed":
            assert row["response"] is None
        elif row["finish_reason"] == "turn_limit":
            assert (row["response"], row["turn_count"]) == ("", MAX_TURNS)
        else:
            assert "The answer is" in row["response"]


def test_the_calculator_is_the_real_one(rows):
    statuses = Counter()
    for row in rows:
        for turn in turns_of(row["turns"]):
            if turn.role == "tool":
                statuses[turn.status] += 1
            if turn.status == "ok" and "/" not in turn.arguments:
                assert turn.observation == str(eval(turn.arguments))
    assert set(statuses) == {"ok", "error", "malformed"}


def test_the_same_arguments_give_the_same_bytes_and_others_do_not(tmp_path):
    paths = [tmp_path / f"{k}.parquet" for k in range(3)]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        write_dataset(path, "trajectories", DemoOptions(prompts=3, responses=2, seed=seed))
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(RejuiceError, match="has no known format"):
        write_dataset(tmp_path / "x.csv", "trajectories", DemoOptions())
