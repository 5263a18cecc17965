"""The steps after sampling: in whatever pieces groups come, the outcome is that of one table."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from threading import Barrier, Lock

import numpy as np
import pyarrow as pa
import pytest
from fake_judge import FakeJudge, scores_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rejuice.operators import (
    Change,
    DataError,
    EngineError,
    Filter,
    Mapper,
    Operator,
    OperatorError,
    Scope,
)
from rejuice.operators.columns import MESSAGES, component
from rejuice.operators.config import WeightSchedule
from rejuice.operators.deduplicator.exact_deduplicator import ExactDeduplicator
from rejuice.operators.filter.column_range_filter import ColumnRangeFilter
from rejuice.operators.filter.group_size_filter import GroupSizeFilter
from rejuice.operators.filter.length_filter import LengthFilter
from rejuice.operators.filter.pass_rate_filter import PassRateFilter
from rejuice.operators.mapper.format_reward_mapper import FormatRewardMapper
from rejuice.operators.mapper.group_stats_mapper import GroupStatsMapper
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.operators.mapper.llm_quality_reward_mapper import LlmQualityRewardMapper
from rejuice.operators.mapper.reward_sum_mapper import RewardSumMapper
from rejuice.operators.selector.label_balance_selector import LabelBalanceSelector
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.steps import Step, step_names
from rejuice.trainer.verl.curation import (
    Curation,
    at_progress,
    curate,
    drop_rows,
    threads,
    values_table,
)
from rejuice.trainer.verl.figures import response_figures


class LengthMapper(Mapper):
    """Accuracy by length, missing where the response has a comma; and a label."""

    def reads(self):
        return ("response",)

    def writes(self):
        return ("reward_accuracy", "reward_accuracy_missing", "verdict")

    def map(self, table):
        texts = table["response"].to_pylist()
        long = np.array([len(text) % 2 for text in texts], float)
        missing = pa.array(["timeout" if "," in text else None for text in texts], pa.string())
        verdicts = [["wrong_answer", "correct"][int(each)] for each in long]
        return {**component("accuracy", long, missing), "verdict": pa.array(verdicts)}


class FailingMapper(Mapper):
    """Fails, as a bug does."""

    def map(self, table):
        return {"x": pa.array([1 / 0] * table.num_rows)}


SUM = RewardSumMapper(
    weights={"accuracy": WeightSchedule.model_validate({"from": 1.0, "to": 0.5}), "format": 0.3},
    on_missing="drop_row",
)
ROWS = [LengthMapper(), FormatRewardMapper(), LengthFilter(max=11)]
GROUPS = [SUM, GroupSizeFilter(min=2), PassRateFilter(min=0.2, max=0.9), GrpoAdvantageMapper()]
ALL = [ExactDeduplicator(within="prompt"), LabelBalanceSelector()]
RECIPES = {
    "row": ROWS,
    "group": [*ROWS, *GROUPS],
    "dataset at the end": [*ROWS, *GROUPS, *ALL],
    "dataset at the start": [ALL[0], *ROWS, *GROUPS],
    "dataset between": [*ROWS, ALL[0], SUM, *ALL[1:], GrpoAdvantageMapper()],
    "group statistics": [ROWS[0], GroupStatsMapper(), *ROWS[1:], ALL[0], *GROUPS],
    "nothing": [],
}


def steps_of(operators):
    names = step_names([operator.name() for operator in operators])
    return [
        Step(number, *each) for number, each in enumerate(zip(names, operators, strict=True), 4)
    ]


TEXTS = st.text("ab,<>", min_size=0, max_size=14)
TABLES = st.lists(st.lists(TEXTS, min_size=1, max_size=5), min_size=1, max_size=8)


def table_of(groups):
    rows = [
        {"prompt_id": f"p{g:02d}", "response_id": f"r{g:02d}-{k}", "response": text}
        for g, group in enumerate(groups)
        for k, text in enumerate(group)
    ]
    schema = pa.schema([(name, pa.string()) for name in ("prompt_id", "response_id", "response")])
    return pa.Table.from_pylist(rows, schema=schema)


def pieces_of(table, groups, cuts, order):
    """The groups of a table, in pieces, in an order of arrival."""
    ends = np.cumsum([len(group) for group in groups])
    starts = ends - [len(group) for group in groups]
    parts = [table.slice(s, e - s) for s, e in zip(starts, ends, strict=True)]
    arrived = [parts[g] for g in order]
    bounds = sorted({0, *cuts, len(groups)})
    return [pa.concat_tables(arrived[a:b]) for a, b in pairwise(bounds)]


def written(table):
    """The content of a table, bit by bit: a float differs from any other float, and -0.0 from 0.0."""
    columns = [(field.name, str(field.type)) for field in table.schema]
    return columns, [repr(row) for row in table.to_pylist()]


@pytest.fixture(scope="module")
def pool():
    with threads() as pool:
        yield pool


@pytest.mark.slow
@given(groups=TABLES, data=st.data())
@settings(deadline=None, max_examples=12)
@pytest.mark.parametrize("recipe", RECIPES)
def test_any_pieces_give_the_bytes_of_the_whole(pool, recipe, groups, data):
    table, operators = table_of(groups), RECIPES[recipe]
    steps = steps_of(operators)
    whole = curate(steps, table)
    assert written(whole.table) == written(run_in_memory(operators, table))
    cuts = data.draw(st.lists(st.integers(0, len(groups)), max_size=4))
    order = data.draw(st.permutations(range(len(groups))))
    curation = Curation(steps, pool)
    for piece in pieces_of(table, groups, cuts, order):
        curation.add(piece)
    found = curation.close(table["prompt_id"].unique())
    assert written(found.table) == written(whole.table)
    key = [("step", "ascending"), ("row_id", "ascending")]
    assert found.decisions.sort_by(key).equals(whole.decisions.sort_by(key))
    assert found.notes == pytest.approx(whole.notes)
    assert found.verdicts == whole.verdicts
    assert set(found.seconds) == set(whole.seconds)
    # Every row is there, or has a reason.
    ids = sorted([*found.table["response_id"].to_pylist(), *found.decisions["row_id"].to_pylist()])
    assert ids == sorted(table["response_id"].to_pylist())


def test_figures_of_columns_are_left_to_reports(monkeypatch):
    monkeypatch.setattr("rejuice.pipelines.engine.report.summarise", None)
    steps = steps_of(RECIPES["dataset at the end"])
    assert curate(steps, table_of([["a", "ab", "abc"], ["b", "bb"]])).table.num_rows


def test_it_may_be_closed_again_when_more_has_come(pool):
    groups = [["a", "ab", "abc"], ["b", "bb"], ["aa", "a"]]
    table, steps = table_of(groups), steps_of(RECIPES["dataset at the end"])
    first, rest = pieces_of(table, groups, [2], [0, 1, 2])
    curation = Curation(steps, pool)
    curation.add(first)
    early = curation.close(table["prompt_id"].unique())
    assert written(early.table) == written(curate(steps, first).table)
    curation.add(rest)
    found = curation.close(table["prompt_id"].unique())
    assert written(found.table) == written(curate(steps, table).table)
    assert found.verdicts == curate(steps, table).verdicts


@pytest.mark.parametrize("together", [False, True], ids=["in pieces", "all at once"])
def test_an_error_carries_the_name_of_its_step(pool, together):
    table = table_of([["a", "b"], ["c", "d,"]])
    failing = RewardSumMapper(weights={"accuracy": 1.0})
    operators = [*([ALL[0]] if together else []), LengthMapper(), failing]
    steps = steps_of(operators)
    curation = Curation(steps, pool)
    curation.add(table)
    with pytest.raises(DataError) as caught:
        curation.close(table["prompt_id"].unique())
    number = steps[-1].number
    assert str(caught.value).startswith(
        f"step {number} reward_sum_mapper: reward_accuracy is missing (timeout) for response 1"
    )
    with pytest.raises(DataError, match=f"^step {number} reward_sum_mapper: "):
        curate(steps, table)


def test_a_column_that_is_missing_is_named_with_the_step(pool):
    curation = Curation(steps_of([ColumnRangeFilter(column="level", min=1)]), pool)
    curation.add(table_of([["a"]]))
    with pytest.raises(DataError, match=r"^step 4 column_range_filter: column 'level' is missing"):
        curation.close(pa.array(["p00"]))


def test_a_bug_is_named_with_the_step_and_its_cause(pool):
    curation = Curation(steps_of([LengthMapper(), FailingMapper()]), pool)
    curation.add(table_of([["a"]]))
    with pytest.raises(
        OperatorError, match=r"^step 5 failing_mapper: failed with ZeroDivision"
    ) as caught:
        curation.close(pa.array(["p00"]))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_only_weights_with_a_schedule_move(pool):
    steps = steps_of([LengthMapper(), FormatRewardMapper(), SUM])
    late = at_progress(steps, 1.0)
    assert [step.operator for step in late[:2]] == [step.operator for step in steps[:2]]
    assert late[2].operator.weight("accuracy") == 0.5
    assert steps[2].operator.weight("accuracy") == 1.0
    assert [step.name for step in late] == [step.name for step in steps]


def test_pieces_are_begun_before_all_are_there():
    """A step that waits does so while others are still sampled."""
    seen = []

    class SeenMapper(Mapper):
        def map(self, table):
            seen.append(table.num_rows)
            return {}

        def reads(self):
            return ("prompt_id",)

    class BarrierFilter(Filter):
        scope = Scope.DATASET

        def reads(self):
            return ("prompt_id",)

        def decide(self, table):
            seen.append(-table.num_rows)
            return pa.nulls(table.num_rows, pa.string())

    with ThreadPoolExecutor(1) as pool:
        curation = Curation(steps_of([SeenMapper(), BarrierFilter(), SeenMapper()]), pool)
        curation.add(table_of([["a", "b"]]))
        pool.submit(lambda: None).result()
        assert seen == [2]
        curation.add(table_of([["c"]]).set_column(0, "prompt_id", pa.array(["p01"])))
        curation.close(pa.array(["p00", "p01"]))
    assert seen == [2, 1, -3, 3]


def judged_groups(count, n):
    groups = [[f"response {g * n + k}" for k in range(n)] for g in range(count)]
    table = table_of(groups)
    chat = [{"role": "user", "content": "1 + 1?"}]
    return groups, table.append_column("prompt", pa.array([chat] * table.num_rows, MESSAGES))


def judge_at(url, **fields):
    server = {"concurrency": 64, "timeout_s": 120, "attempts": 1, "patience_s": 0, "base_url": url}
    return LlmQualityRewardMapper(model="m", server=server, cache=None, **fields)


def curated_one_by_one(pool, operator, count, n):
    """The outcome of a step to whose operator the groups come one by one, the last ones first."""
    groups, table = judged_groups(count, n)
    curation = Curation(steps_of([LengthMapper(), operator, FormatRewardMapper()]), pool)
    for piece in pieces_of(table, groups, range(count), range(count)[::-1]):
        curation.add(piece)
    with closing(operator):
        return curation.close(table["prompt_id"].unique()), table


def test_a_judge_gets_as_many_requests_as_it_may_have_from_small_groups(pool):
    with FakeJudge(crowd=64) as judge:  # It answers nobody before.
        found, table = curated_one_by_one(pool, judge_at(judge.url), count=12, n=8)
        assert judge.peak == 64
    assert found.table["response_id"].equals(table["response_id"])
    assert found.table["quality"].to_pylist() == [
        dict(zip(LlmQualityRewardMapper(model="m").dimensions, scores_of(row), strict=True))
        for row in range(96)
    ]
    assert found.notes["llm_quality_reward_mapper/asked"] == 96


def test_a_judge_that_is_down_ends_the_step_or_leaves_all_its_rewards_missing(pool):
    with FakeJudge() as judge:
        url = judge.url
    with pytest.raises(EngineError, match=r"^step 5 llm_quality_reward_mapper: .*not be reached"):
        curated_one_by_one(pool, judge_at(url), count=6, n=2)
    operator = judge_at(url, on_server_down="missing")
    found, _ = curated_one_by_one(pool, operator, count=6, n=2)
    assert found.table["reward_quality"].null_count == 12
    assert set(found.table["reward_quality_missing"].to_pylist()) == {"scorer_unreachable"}


def test_four_pieces_compute_at_a_time(pool):
    running, most, lock, four = 0, 0, Lock(), Barrier(4)

    class CountingMapper(Mapper):
        """Four of them must run at a time, for one to go on."""

        def map(self, table):
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            four.wait(timeout=120)
            with lock:
                running -= 1
            return {}

    groups = [["a"] for _ in range(40)]
    curation = Curation(steps_of([CountingMapper()]), pool)
    for piece in pieces_of(table_of(groups), groups, range(40), range(40)):
        curation.add(piece)
    curation.close(table_of(groups)["prompt_id"])
    assert most == 4


def test_what_training_leaves_out_is_booked_as_its_own():
    whole = curate(steps_of([LengthMapper()]), table_of([["a", "b"], ["c"]]))
    assert drop_rows(whole, np.zeros(3, bool), "no_reward") is whole
    left = drop_rows(whole, np.array([False, True, False]), "no_reward")
    assert left.table["response_id"].to_pylist() == ["r00-0", "r01-0"]
    assert left.decisions.to_pylist() == [
        {"row_id": "r00-1", "step": "training", "reason": "no_reward"}
    ]
    assert left.verdicts == whole.verdicts


class CommaOperator(Operator):
    """Notes how many responses have a comma, and how many have none."""

    scope = Scope.ROW

    def reads(self):
        return ("response",)

    def apply(self, table):
        commas = sum("," in text for text in table["response"].to_pylist())
        return Change(notes={"commas": commas, "plain": table.num_rows - commas})


def test_a_figure_that_is_0_is_reported_as_by_a_run_over_all_rows(pool):
    groups = [["a", "abc"], ["b"], ["bbb", "a"]]  # Of odd length: all are right.
    table = table_of(groups)
    steps = steps_of([CommaOperator(), LengthMapper(), LabelBalanceSelector(target=2)])
    curation = Curation(steps, pool)
    for piece in pieces_of(table, groups, [1, 2], [2, 0, 1]):
        curation.add(piece)
    found = curation.close(table["prompt_id"].unique())
    balance = {
        "positive_found": 5,
        "negative_found": 0,
        "positive_kept": 0,
        "negative_kept": 0,
        "asked": 2,
        "short_of_target": 2,
    }
    assert found.notes == {
        "comma_operator/commas": 0,
        "comma_operator/plain": 5,
        **{f"label_balance_selector/{note}": value for note, value in balance.items()},
    }
    assert found.notes == curate(steps, table).notes
    assert found.verdicts == {"correct": 5}


class StoredVerdictMapper(Mapper):
    """The verdict is what the response says."""

    def reads(self):
        return ("response",)

    def writes(self):
        return ("verdict",)

    def map(self, table):
        return {"verdict": table["response"]}


@pytest.mark.parametrize(
    ("verdicts", "pass_rate", "mixed"),
    [
        (["correct", "timeout", "correct", "no_answer"], 2 / 3, 0.5),
        (["correct", "verifier_error", "timeout", None], 1.0, 0.0),
        (["timeout", None, "verifier_error", "timeout"], None, 0.0),
    ],
)
def test_a_failure_to_grade_is_neither_right_nor_wrong_in_the_figures(verdicts, pass_rate, mixed):
    rollouts = pa.table(
        {
            "prompt_id": ["a", "a", "b", "b"],
            "response_id": ["a0", "a1", "b0", "b1"],
            "response": pa.array(verdicts, pa.string()),
            "response_token_ids": [[1], [2], [3], [4]],
        }
    )
    steps = steps_of([StoredVerdictMapper()])
    curated = curate(steps, rollouts)
    values = values_table(rollouts, steps, curated.written)
    found = response_figures(curated, rollouts, values, steps)
    assert (found.get("pass_rate"), found["mixed_groups"]) == (pass_rate, mixed)
