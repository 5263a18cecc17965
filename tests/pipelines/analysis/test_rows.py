"""One line per row as sampled: fate, reason, components and what they add."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_run import PROCESS, ROWS, run_tiny

from rejuice.operators import Change
from rejuice.operators.columns import component
from rejuice.operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from rejuice.operators.mapper.reward_sum_mapper import RewardSumMapper
from rejuice.pipelines.analysis.figures import group_figures, headline, row_figures
from rejuice.pipelines.analysis.rows import KEPT, row_table, stored_rows
from rejuice.pipelines.analysis.stored import open_stored
from rejuice.pipelines.engine.frame import Frame
from rejuice.pipelines.engine.steps import AppliedStep, StepResult, iterate_steps
from rejuice.pipelines.recipe.steps import Step, number_steps


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    run_tiny(folder)
    return folder


def set_of(folder):
    (one,) = open_stored(folder / "curated.parquet").sets
    return one


def test_each_row_as_sampled_has_its_line(tiny):
    rows = stored_rows(set_of(tiny))
    assert rows.table.column_names == [
        "response_id", "prompt_id", "fate", "reason", "data_source", "verdict", "finish_reason", "tokens",
        "characters", "reward", "advantage", "loss_weight", "policy_age", "masked_tokens", "reward_accuracy",
        "reward_accuracy_missing", "contribution_accuracy", "reward_format", "reward_format_missing",
        "contribution_format",
    ]  # fmt: skip
    assert rows.components == ("accuracy", "format")
    assert rows.groups.sizes_G.tolist() == [4, 4, 4]
    assert rows.table["fate"].to_pylist() == [KEPT] * 4 + [6] * 4 + [KEPT] * 4
    assert rows.table["reason"].to_pylist() == [None] * 4 + ["too_easy"] * 4 + [None] * 4
    texts = [text for row in ROWS for text in row["responses"]]
    assert rows.table["characters"].to_pylist() == [len(text) for text in texts]
    assert rows.table["tokens"].null_count == 12
    second = rows.table.slice(1, 1).to_pylist()[0]
    assert second["verdict"] == "correct"
    assert (second["contribution_accuracy"], second["contribution_format"]) == (1.0, -0.1)
    assert second["reward"] == 0.9
    assert second["advantage"] == pytest.approx(0.679365, abs=1e-5)


def test_a_dropped_row_keeps_what_it_had(tiny):
    dropped = stored_rows(set_of(tiny)).table.slice(4, 4)
    assert dropped["verdict"].to_pylist() == ["correct"] * 4
    assert dropped["reward_accuracy"].to_pylist() == [1.0] * 4
    assert dropped["reward"].null_count == dropped["contribution_format"].null_count == 4


def test_chunks_do_not_matter(tiny, tmp_path):
    run_tiny(tmp_path, chunk_rows=None)
    assert set_of(tmp_path).parts == 1
    whole, cut = stored_rows(set_of(tmp_path)), stored_rows(set_of(tiny))
    assert whole.table.to_pylist() == cut.table.to_pylist()
    assert whole.components == cut.components


def test_rows_of_steps_that_run_now_are_those_of_the_run(tiny):
    one = set_of(tiny)
    base = Frame.of(pa.concat_tables([one.base(part).table() for part in range(one.parts)]))
    now = row_table(base, iterate_steps(one.steps, base))
    assert now.table.to_pylist() == stored_rows(one).table.to_pylist()


def test_contributions_sum_to_the_reward_to_the_bit(tmp_path):
    weights = {"accuracy": 0.7, "format": {"from": 0.1, "to": 0.3}}
    gates = {"format": "mixed_groups_only"}
    fields = {"weights": weights, "gates": gates, "progress": 0.3}
    process = [*PROCESS[:5], {"reward_sum_mapper": fields}, {"grpo_advantage_mapper": {}}]
    run_tiny(tmp_path, process)
    rows = stored_rows(set_of(tmp_path))
    total_N = np.zeros(rows.table.num_rows)
    for name in rows.components:
        total_N += rows.table[f"contribution_{name}"].to_numpy()
    assert total_N.tolist() == rows.table["reward"].to_pylist()
    assert rows.table["contribution_format"].to_pylist()[4:8] == [0.0] * 4


def test_a_missing_component_has_no_contribution_and_its_row_no_reward():
    missing = pa.array([None, "timeout", None], pa.string())
    table = pa.table(
        {
            "prompt_id": ["a"] * 3,
            **component("accuracy", np.array([1.0, 0.0, 0.5]), missing),
            **component("format", np.array([0.1, 0.1, 0.3])),
        }
    )
    weights = {"accuracy": 1.0, "format": 2.0}
    operator = RewardSumMapper(weights=weights, on_missing="drop_row")
    found = operator.contributions(table)
    np.testing.assert_array_equal(found["accuracy"], [1.0, np.nan, 0.5])
    np.testing.assert_array_equal(found["format"], [0.2, 0.2, 0.6])
    rows = _rows([operator], table)
    assert rows["contribution_accuracy"].to_pylist() == [1.0, None, 0.5]
    assert rows["reward"].to_pylist() == [1.2, None, 1.1]
    assert rows["fate"].to_pylist() == [KEPT, 1, KEPT]
    assert rows["reason"].to_pylist() == [None, "missing_component", None]
    filled = RewardSumMapper(weights=weights, on_missing="group_mean").contributions(table)
    assert filled["accuracy"].tolist() == [1.0, 0.75, 0.5]


def test_two_tasks_have_their_own_sums():
    table = pa.table(
        {
            "prompt_id": ["a", "a", "b", "b"],
            "task": ["generate", "generate", "verify", "verify"],
            "reward": pa.nulls(4, pa.float64()),
            **component("accuracy", np.array([1.0, 0.0, 0.0, 1.0])),
            **component("judgement", np.array([0.0, 0.0, 1.0, 0.0])),
        }
    )
    first = RewardSumMapper(weights={"accuracy": 2.0}, task="generate")
    second = RewardSumMapper(weights={"judgement": 3.0}, task="verify")
    assert np.isnan(first.contributions(table)["accuracy"][2:]).all()
    rows = _rows([first, second], table)
    assert rows["contribution_accuracy"].to_pylist() == [2.0, 0.0, None, None]
    assert rows["contribution_judgement"].to_pylist() == [None, None, 3.0, 0.0]
    assert rows["reward"].to_pylist() == [2.0, 0.0, 3.0, 0.0]


def test_a_second_sum_replaces_the_parts_of_the_first():
    table = pa.table(
        {
            "prompt_id": ["a", "a"],
            **component("accuracy", np.array([1.0, 0.0])),
            **component("format", np.array([0.1, 0.2])),
        }
    )
    steps = [RewardSumMapper(weights={name: 1.0}) for name in ("accuracy", "format")]
    rows = _rows(steps, table)
    assert rows["contribution_accuracy"].to_pylist() == [None, None]
    assert rows["contribution_format"].to_pylist() == rows["reward"].to_pylist() == [0.1, 0.2]


def test_rows_that_a_step_adds_stand_behind_the_others():
    base = Frame.of(pa.table({"prompt_id": ["a", "b"], "verdict": ["correct", "no_answer"]}))
    columns = {"reward": pa.array([1.0, 2.0, 3.0, 4.0])}
    change = Change(columns, parents=np.array([0, 0, -1, 1]))
    step = Step(1, "copy", RewardSumMapper(weights={"accuracy": 1.0}))
    # The step only lends its number; it wrote no component.
    after = base.after(change)
    applied = AppliedStep(step, Frame.of(base.table().slice(0, 0)), StepResult(change, 2), after)
    rows = row_table(base, [applied]).table
    assert rows["prompt_id"].to_pylist() == ["a", "b", "a", None]
    assert rows["verdict"].to_pylist() == ["correct", "no_answer", "correct", None]
    assert rows["reward"].to_pylist() == [1.0, 4.0, 2.0, 3.0]


def test_tokens_are_counted_where_there_are_ids_and_columns_of_users_are_left_alone():
    table = pa.table(
        {
            "prompt_id": ["a", "a"],
            "response": ["one two", None],
            "response_token_ids": pa.array([[1, 2, 3], None], pa.list_(pa.int32())),
            "reward_note": ["mine", "not a number"],
            "finish_reason": ["stop", None],
        }
    )
    rows = row_table(Frame.of(table), ())
    assert rows.components == ()
    assert rows.table["tokens"].to_pylist() == [3, None]
    assert rows.table["characters"].null_count == 2
    assert rows.table["finish_reason"].to_pylist() == ["stop", None]


@pytest.mark.parametrize(
    ("ids", "unit", "lengths"),
    [
        ([[1, 2, 3], [4], None], "tokens", [3, 1, -1]),
        ([None, None, None], "characters", [7, 0, -1]),  # As a chat server answers.
        ([[1, 2, 3], None, None], "characters", [7, 0, -1]),  # One unit for all.
    ],
)
def test_a_response_is_where_its_text_is(ids, unit, lengths):
    table = pa.table(
        {
            "prompt_id": ["a", "a", "b"],
            "response": ["one two", "", None],
            "response_token_ids": pa.array(ids, pa.list_(pa.int32())),
        }
    )
    rows = row_table(Frame.of(table), ())
    assert (rows.unit, rows.lengths_N.tolist()) == (unit, lengths)
    assert group_figures(rows).groups == 1


def test_without_commits_there_are_the_rows_that_are_left(tmp_path):
    run_tiny(tmp_path)
    kept = stored_rows(set_of(tmp_path)).table
    shutil.rmtree(tmp_path / ".rejuice")
    rows = stored_rows(set_of(tmp_path))
    left = pq.read_table(tmp_path / "curated.parquet")
    assert rows.table["response_id"].to_pylist() == left["response_id"].to_pylist()
    assert rows.table["reward"].to_pylist() == left["reward"].to_pylist()
    assert set(rows.components) == {"accuracy", "format"}
    assert not rows.with_dropped
    # Of rows that are left, nobody knows how many groups have no signal, or how many were right.
    assert group_figures(rows).without_signal is None
    assert np.isnan(row_figures(rows).silent)
    assert (headline(rows).accuracy, headline(rows).pass_at) == (None, {})
    names = ["response_id", "verdict", "reward_format", "advantage", "contribution_accuracy"]
    of_kept = kept.filter(pa.compute.equal(kept["fate"], KEPT))
    assert rows.table.select(names).to_pylist() == of_kept.select(names).to_pylist()


@pytest.mark.parametrize("by_turns", [False, True])
def test_what_a_step_wrote_last_is_the_advantage(by_turns):
    turns = pa.array([[7.0, 9.0], None], pa.list_(pa.float64()))
    table = pa.table({"prompt_id": ["a", "a"], "reward": [0.0, 1.0], "turn_advantage": turns})
    steps = () if by_turns else (GrpoAdvantageMapper(normalise="none"),)
    expected = [8.0, None] if by_turns else [-0.5, 0.5]
    assert _rows(steps, table)["advantage"].to_pylist() == expected


def _rows(operators, table):
    steps, base = number_steps(operators), Frame.of(table)
    return row_table(base, iterate_steps(steps, base)).table
