"""Stored trajectories of agents, as the turns that train."""

import pyarrow.parquet as pq
import pytest
from training_stage import AGENTS, PLAIN, Stage
from trajectories import failed, trajectory

pytestmark = pytest.mark.slow  # Imports verl.

STEP = {
    0: [trajectory("1", (2,)), trajectory("0", (2, 3)), trajectory("0.5", (1, 1, 1))],
    1: [trajectory("0", (4,)), trajectory("1", (1, 2)), trajectory("", (2,), "turn_limit")],
}
TRAINED = ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores", "turn_weight")


def test_they_train_as_they_did_when_they_were_sampled(tmp_path, queue):
    from rejuice.trainer.verl.replay import ReplayManager

    live = Stage(tmp_path / "live", queue, PLAIN, rollout=AGENTS, prompts_per_step=2)
    live.play(STEP)
    batch, _ = live.sample(1, 2)
    wanted = trained(queue, batch)
    stored = live.saved("curated")
    pq.write_table(stored, tmp_path / "collected.parquet")
    queue.partitions.clear()

    replay = {"replay": str(tmp_path / "collected.parquet"), "validation_path": None}
    again = Stage(tmp_path / "again", queue, PLAIN, rollout=AGENTS, **replay)
    names = again.run.prompts("train")["prompt_id"].to_pylist()
    assert names == stored["prompt_id"].unique().to_pylist()
    ReplayManager(again.run.folder, None).generate_sequences(again.prompt_batch([0, 1]))
    batch, _ = again.sample(1, 2)
    assert trained(queue, batch) == wanted
    assert again.trainer.config.actor_rollout_ref.actor.ppo_mini_batch_size == 3, "10 rows of turns"


def trained(queue, batch):
    """What the update reads, by place in the step."""
    found = {}
    for key in batch.keys:
        uid, session, turn = key.rsplit("_", 2)
        fields = queue.partitions["train"][key].fields
        owner = fields["uid"].rsplit("_", 2)[1:]
        found[uid[:4], session, turn] = {n: fields[n].tolist() for n in TRAINED}, owner
    return found


def test_what_cannot_train_is_left_out_with_a_reason(tmp_path, queue):
    from rejuice.operators.agents.trajectory import columns_of
    from rejuice.trainer.launch.prompts import make_replay

    live = Stage(tmp_path / "live", queue, PLAIN, rollout=AGENTS)
    live.play({0: STEP[0], 1: STEP[1], 2: STEP[0]})
    live.sample(1, 3)
    table = live.saved("curated")
    no_logprobs = trajectory("1", (2, 2))
    turns = list(no_logprobs.turns)
    turns[-1] = turns[-1]._replace(logprobs=(-1.0, None))
    changed = [
        *STEP[0],
        trajectory("0", (9,)), no_logprobs._replace(turns=tuple(turns)), failed((1,)),
        trajectory("0", ()), *STEP[0][1:],
    ]  # fmt: skip
    for name, column in columns_of(changed).items():
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, tmp_path / "collected.parquet")
    path = tmp_path / "collected.parquet"
    made = make_replay(path, tmp_path, source="x", longest=(4, 4), most=4, of_agents=True)
    assert made == 2
    reasons = pq.read_table(tmp_path / "train-decisions.parquet")["reason"].to_pylist()
    assert sorted(reasons) == ["failed_trajectory", "not_sampled", "not_sampled", "too_long"]
