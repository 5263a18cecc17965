"""The recipe between trajectories and their turns' update, on a TransferQueue in memory."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from training_stage import AGENTS, PLAIN, SUM, summed
from trajectories import failed, trajectory

from rejuice.operators.agents.trajectory import turns_of
from rejuice.operators.errors import DataError
from rejuice.pipelines.engine.steps import run_in_memory
from rejuice.pipelines.recipe.recipe import load

pytestmark = pytest.mark.slow  # Imports verl.

MIXED = {
    0: [trajectory("1", (2,)), trajectory("0", (2, 3)), trajectory("0.5", (1, 1, 1))],
    1: [trajectory("0", (4,)), trajectory("1", (1, 2)), trajectory("", (2,), "turn_limit")],
}


@pytest.fixture
def agents(stage):
    """A factory of runs whose trajectories the test makes up."""

    def make(after=PLAIN, **settings):
        return stage(after, rollout=AGENTS, **settings)

    return make


def places(batch):
    """The rows that train: prompt, session and turn."""
    parts = [key.rsplit("_", 2) for key in batch.keys]
    return [(int(uid[:4]), int(session), int(turn)) for uid, session, turn in parts]


def test_every_turn_has_the_reward_of_its_trajectory(agents):
    stage = agents()
    stage.play(MIXED)
    batch, _ = stage.sample(1, 2)
    rewards = [1, 0, 0, 0.5, 0.5, 0.5, 0, 1, 1, 0]
    assert places(batch) == [
        (0, 0, 0), (0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1), (0, 2, 2),
        (1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 2, 0),
    ]  # fmt: skip
    assert stage.rewards(batch) == rewards
    data = stage.queue.kv_batch_get(batch.keys, "train", ["rm_scores", "responses", "turn_weight"])
    for row, ids in zip(data["rm_scores"].unbind(), data["responses"].unbind(), strict=True):
        assert len(row) == len(ids)
        assert not row[:-1].any()
    weights = [row.numpy().sum() for row in data["turn_weight"].unbind()]
    turns = [1, 2, 2, 3, 3, 3, 1, 2, 2, 1]
    assert weights == pytest.approx([1 / (2 * 3 * each) for each in turns])
    assert [tag["seq_len"] for tag in batch.tags] == [3 + len(ids) for ids in data["responses"]]
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)


def test_the_table_has_a_row_for_each_trajectory(agents):
    stage = agents()
    stage.play(MIXED)
    _, figures = stage.sample(1, 2)
    rollouts, curated = stage.saved("rollouts"), stage.saved("curated")
    assert rollouts.num_rows == curated.num_rows == 6
    stored = [turns_of(cell) for cell in rollouts["turns"].to_pylist()]
    assert stored == [one.turns for group in MIXED.values() for one in group]
    assert curated["response"].to_pylist() == ["1", "0", "0.5", "0", "1", ""]
    assert (figures["rejuice/rows_sampled"], figures["rejuice/rows_trained"]) == (6, 6)
    tokens = sum(len(turn.token_ids) for turns in stored for turn in turns if turn.token_ids)
    assert figures["rejuice/tokens_sampled"] == tokens == 19


def test_what_is_logged_of_agents(agents):
    stage = agents([{"scripted_mapper": None}, summed("drop_row")])
    wrong_call = trajectory("0", (1, 1))
    wrong_call = wrong_call._replace(
        turns=tuple(
            turn._replace(status=turn.status and "bad_arguments") for turn in wrong_call.turns
        )
    )
    slow = trajectory("1", (1,))._replace(tool_seconds=2.5)  # Of others it is not known.
    stage.play({**MIXED, 2: [slow, wrong_call, failed((2,)), failed(())]})
    batch, figures = stage.sample(1, 3)
    logged = {
        name.removeprefix("rejuice/agent/"): value
        for name, value in figures.items()
        if name.startswith("rejuice/agent/")
    }
    assert logged == {
        "trajectories": 10, "turns": pytest.approx(1.4), "tool_calls": pytest.approx(0.5),
        "tool_seconds": 2.5, "tool_errors": pytest.approx(0.2), "finish/stop": 7, "finish/turn_limit": 1,
        "failed/tool_failed": 2, "turn_rows": 13,
    }  # fmt: skip
    assert len(batch.keys) == 13
    assert figures["rejuice/rows_trained"] == 8
    seconds = stage.saved("rollouts")["tool_seconds"].to_pylist()
    assert seconds == [None] * 6 + [2.5, None, None, None]


def test_malformed_actions_are_calls_that_did_not_work(agents):
    """A policy whose every action is malformed has no call, and all of its errors."""
    stage = agents()
    malformed = [
        each._replace(
            turns=tuple(
                turn._replace(tool=None, arguments=None, status=turn.status and "malformed")
                for turn in each.turns
            )
        )
        for each in (trajectory("0", (1, 1, 1)), trajectory("1", (1, 1)))
    ]
    stage.play({0: malformed})
    _, figures = stage.sample(1, 1)
    assert figures["rejuice/agent/tool_calls"] == 0
    assert figures["rejuice/agent/tool_errors"] == 1
    stage.play({1: [*malformed, trajectory("1", (1, 1))]}, step=2)
    _, figures = stage.sample(2, 1)
    assert figures["rejuice/agent/tool_errors"] == pytest.approx(3 / 4)


def test_a_trajectory_that_is_dropped_leaves_the_queue_with_all_its_turns(agents):
    stage = agents([{"column_range_filter": {"column": "turn_count", "max": 2}}, *PLAIN])
    stage.play(MIXED)
    batch, _ = stage.sample(1, 2)
    assert {place[:2] for place in places(batch)} == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)}
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)
    data = stage.queue.kv_batch_get(batch.keys, "train", ["turn_weight"])
    assert float(data["turn_weight"].values().sum()) == pytest.approx(1)


@pytest.mark.parametrize("on_missing", ["drop_row", "group_mean"])
def test_what_failed_never_trains_and_is_never_a_zero(agents, on_missing):
    stage = agents([{"scripted_mapper": None}, summed(on_missing)])
    group = [trajectory("1", (1,)), failed((2, 1)), trajectory("0", (1,)), failed((), "time_limit")]
    stage.play({0: group, 1: [failed((1,)), failed(())]})
    batch, figures = stage.sample(1, 2)
    assert places(batch) == [(0, 0, 0), (0, 2, 0)]
    assert stage.rewards(batch) == [1, 0]
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)
    # They were sampled, and a group of failures is a group: nobody asks for another one.
    assert stage.saved("rollouts")["finish_reason"].to_pylist() == [
        "stop", "tool_failed", "stop", "time_limit", "tool_failed", "tool_failed",
    ]  # fmt: skip
    assert figures["rejuice/failed_prompts"] == 0
    dropped = stage.dropped()
    if on_missing == "drop_row":
        assert dropped == {("reward_sum_mapper", "missing_component"): 4}
    else:
        assert dropped == {
            ("reward_sum_mapper", "missing_component"): 2,
            ("training", "failed_trajectory"): 2,
        }


def test_an_outage_skips_a_step_and_ends_training_after_three(agents, capsys):
    stage = agents([{"scripted_mapper": None}, summed("drop_row")])
    for step in (1, 2, 3):
        stage.play({0: [failed((1,)), failed(())], 1: [failed((1,)), failed((2,))]}, step=step)
        with nullcontext() if step < 3 else pytest.raises(DataError) as found:
            stage.train(step, 2)
        stage.queue.partitions.clear()
    warned = capsys.readouterr().out
    assert warned.count("4 of 4 trajectories failed, so the step is left out") == 3
    assert "4 of 4 trajectories failed, in 3 steps in a row" in str(found.value)
    assert "refill" not in str(found.value)


def test_rows_are_shared_out_to_the_updates(agents):
    stage = agents(prompts_per_step=4, updates_per_step=2)
    stage.play(MIXED)
    batch, _ = stage.sample(1, 2)
    # 10 turns: two updates of up to 2 x 4 rows, with padding.
    assert stage.trainer.config.actor_rollout_ref.actor.ppo_mini_batch_size == 2
    data = stage.queue.kv_batch_get(batch.keys, "train", ["turn_weight"])
    assert float(data["turn_weight"].values().sum()) == pytest.approx(2)


def test_verl_gives_each_turn_the_column_advantage_of_its_trajectory(agents):
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl_configs import config_of

    stage = agents([{"scripted_mapper": None}, SUM, {"grpo_advantage_mapper": {"std_floor": 0.1}}])
    stage.play(MIXED)
    batch, _ = stage.sample(1, 2)
    turns = [1, 2, 3, 1, 2, 1]
    column = np.repeat(stage.saved("curated")["advantage"].to_numpy(), turns)
    padded = upsample_batch_to_divisible_size(batch, 16, 779)
    trainer = SimpleNamespace(config=config_of(stage.run))
    PPOTrainer._compute_old_log_prob(trainer, padded, {})
    PPOTrainer._compute_advantage(trainer, padded, {})
    data = stage.queue.kv_batch_get(padded.keys, "train", ["advantages", "responses"])
    found = data["advantages"].unbind()
    for row, ids, wanted in zip(found[:10], data["responses"].unbind(), column, strict=False):
        np.testing.assert_allclose(row.numpy(), np.full(len(ids), wanted), rtol=1e-5, atol=1e-6)
    assert not any(row.any() for row in found[10:])


def test_validation_hands_over_the_last_turn_of_what_was_graded(agents):
    stage = agents()
    groups = {
        1: [failed((2, 1))],
        0: [trajectory("1", (1, 2, 2))],
        2: [trajectory("", (), "length")],
    }
    stage.play(groups, partition="val", step=0)
    batch, _ = stage.sample(0, 3, "val")
    assert places(batch) == [(0, 0, 2), (2, 0, 0)]
    assert stage.rewards(batch) == [1, 0]
    assert set(stage.queue.kv_list("val")["val"]) == set(batch.keys)
    fields = [stage.queue.partitions["val"][key].fields for key in batch.keys]
    uids = [key.rsplit("_", 2)[0] for key in batch.keys]
    assert [each["uid"] for each in fields] == uids, "verl groups by it"
    assert [each["num_turns"] for each in fields] == [6, 1]
    kept = pq.read_table(stage.run.folder / "validations" / "000000.parquet")
    assert kept["reward_accuracy_missing"].to_pylist() == [None, "no_response", None]
    assert len(kept["turns"][0]) == 5


def test_the_step_is_repeated_by_its_own_recipe(agents, monkeypatch):
    after = [
        {"scripted_mapper": None},
        summed("drop_row"),
        {"column_range_filter": {"column": "tool_calls", "max": 1}},
        {"grpo_advantage_mapper": None},
    ]
    stage = agents(after)
    stage.play({**MIXED, 2: [failed(()), trajectory("1", (1, 1)), trajectory("0", (3,))]})
    stage.sample(1, 3)
    folder = stage.run.folder / "steps" / "000001"
    kept = stage.saved("curated")
    monkeypatch.chdir(folder)
    recipe = load(folder / "recipe.yaml")
    again = run_in_memory(
        [step.operator for step in recipe.steps], pq.read_table(recipe.head.dataset_path)
    )
    assert again.equals(kept)
    assert kept.num_rows == 7
    assert pa.types.is_list(kept.schema.field("turns").type)


def test_a_sampler_that_dies_leaves_no_turn_of_its_prompts(agents):
    from rejuice.trainer.verl.trajectories import fail

    stage = agents()
    stage.play({0: MIXED[0]})
    slots = stage.ask([1])
    keys = [f"{slots[0].uid}_0_{turn}" for turn in range(3)]
    # TransferQueue registers keys first, then stores the rows, and gives them their tags last.
    stage.queue.kv_batch_put(keys, "train", tags=[{}] * 3)
    fail(slots, "train")
    batch, figures = stage.sample(1, 2)
    assert {prompt for prompt, *_ in places(batch)} == {0}
    assert figures["rejuice/failed_prompts"] == 1
    assert set(stage.queue.kv_list("train")["train"]) == set(batch.keys)
