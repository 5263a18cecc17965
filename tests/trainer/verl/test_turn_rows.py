"""Trajectories of agents in TransferQueue: a row for each turn, and one row of the table."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trajectories import failed, trajectory

pytestmark = pytest.mark.slow  # Imports verl.

PROMPTS = pa.table({"prompt_id": [f"prompt-{k}" for k in range(4)], "turns": [0, 1, 2, 3]})

TRAJECTORY = st.builds(
    trajectory,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.lists(st.integers(1, 4), max_size=3),
    st.sampled_from(["stop", "turn_limit"]),
) | st.builds(
    failed, st.lists(st.integers(1, 4), max_size=2), st.sampled_from(["time_limit", "tool_failed"])
)
STEPS = st.dictionaries(st.integers(0, 3), st.lists(TRAJECTORY, min_size=1, max_size=3), min_size=1)

each_example = settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def put(queue):
    """Put groups of trajectories, of (prompt, trajectories); gives the tags of their rows."""
    from rejuice.operators.agents.trajectory import TrajectoryGroup
    from rejuice.trainer.verl.advantage import TrajectoryKey
    from rejuice.trainer.verl.trajectories import Slot, put

    def made(groups, rewards=None):
        queue.partitions.clear()
        for at, (index, found) in enumerate(groups):
            fields = {"extra_info": {"index": index, "prompt_id": f"prompt-{index}"}}
            group = TrajectoryGroup("p", 2, 7, tuple(found))
            slot = Slot(f"uid{index}", fields)
            put([(slot, group)], "train", 3, rewards and [rewards[at]])
        return TrajectoryKey.of_trajectories(queue.kv_list("train")["train"])

    return made


def read(tags):
    from rejuice.trainer.run import Policy, Sampling
    from rejuice.trainer.verl.trajectories import read

    policy = Policy("tiny", None, frozenset())
    sampling = Sampling(1.0, 0.9, 5, 11)
    return read(tags, "train", PROMPTS, policy, sampling, of_agents=True)


@given(step=STEPS, data=st.data())
@each_example
def test_a_row_of_the_table_is_a_trajectory_whatever_came_first(put, step, data):
    from rejuice.operators.agents.trajectory import columns_of
    from rejuice.operators.columns import ROW_CONTRACT

    tags = put(data.draw(st.permutations(list(step.items()))))
    shuffled = data.draw(st.permutations(list(tags)))
    found = read({key: tags[key] for key in shuffled})
    places = [(k, n) for k in sorted(step) for n in range(len(step[k]))]
    assert found.keys == [(f"uid{k}", n, 0) for k, n in places]
    assert found.index_N.tolist() == [k for k, _ in places]
    table = found.table
    for name, column in columns_of([step[k][n] for k, n in places]).items():
        assert table[name].combine_chunks().equals(column), name
        assert table.schema.field(name).type == ROW_CONTRACT[name]
    assert table["prompt_id"].to_pylist() == [f"prompt-{k}" for k, _ in places]
    assert set(table["policy_version"].to_pylist()) == {2}
    assert len(set(table["response_id"].to_pylist())) == len(places)


@given(step=STEPS)
@each_example
def test_a_row_of_the_queue_is_what_the_policy_saw_and_did_in_a_turn(put, queue, step):
    put(step.items())
    rows = {k: e for k, e in queue.partitions["train"].items() if "_" in k}
    assert len({frozenset(entry.fields) for entry in rows.values()}) == 1
    wanted = {}
    for k, trajectories in step.items():
        for n, one in enumerate(trajectories):
            turns = [(turn.prompt_token_ids, turn.token_ids, 1) for turn in one.actions]
            for at, turn in enumerate(turns or [((0,), (0,), 0)]):
                wanted[f"uid{k}_{n}_{at}"] = turn
    assert rows.keys() == wanted.keys()
    for key, (prompt, ids, trained) in wanted.items():
        fields, tag = rows[key].fields, rows[key].tag
        assert fields["prompts"].tolist() == list(prompt)
        assert fields["responses"].tolist() == list(ids)
        assert fields["input_ids"].tolist() == [*prompt, *ids]
        assert fields["response_mask"].tolist() == [trained] * len(ids)
        assert fields["loss_mask"].tolist() == [trained] * len(ids)
        assert (tag["prompt_len"], tag["response_len"]) == (len(prompt), len(ids))
        assert tag["seq_len"] == len(prompt) + len(ids)


def test_ids_and_seeds_are_those_of_the_same_trajectories_offline(put):
    from rejuice.operators.columns import content_ids
    from rejuice.operators.sampling.protocol import prompt_seed

    table = read(put([(1, [trajectory("7"), failed()])])).table
    names = content_ids([("prompt-1", "0", "7"), ("prompt-1", "1", None)])
    assert table["response_id"].combine_chunks().equals(names)
    seed = prompt_seed("prompt-1", 11, 3)
    wanted = {"temperature": 1.0, "top_p": 0.9, "max_tokens": 5, "seed": seed}
    assert table["sampling"].to_pylist() == [wanted] * 2


def test_stored_rewards_lie_on_the_last_token_of_each_turn(put, queue):
    put([(0, [trajectory("7", (2, 3)), trajectory("8", (1,))])], [[0.5, -1.0]])
    rows = queue.partitions["train"]
    scores = {key: rows[key].fields["rm_scores"].tolist() for key in rows if "_" in key}
    assert scores == {"uid0_0_0": [0, 0.5], "uid0_0_1": [0, 0, 0.5], "uid0_1_0": [-1]}


def test_what_turns_get_before_they_train(put, queue):
    """Weights as in the formula, and in the place of the prompt's key their own."""
    from rejuice.trainer.verl.trajectories import TrainedRows, write_trained

    tags = put([(0, [trajectory("7", (2, 3)), trajectory("8", (1,))]), (2, [trajectory("", (4,))])])
    keys = sorted(tags)
    masks = [np.ones(tags[key]["response_len"], bool) for key in keys]
    write_trained(TrainedRows(keys, np.zeros(len(keys)), masks, masks), "train", 1)
    rows = {key: queue.partitions["train"][key].fields for key in map(str, keys)}
    weights = {key: fields["turn_weight"].tolist() for key, fields in rows.items()}
    assert weights == {
        "uid0_0_0": pytest.approx([1 / (2 * 2 * 2 * 2)] * 2),
        "uid0_0_1": pytest.approx([1 / (2 * 2 * 2 * 3)] * 3),
        "uid0_1_0": pytest.approx([1 / (2 * 2)]),
        "uid2_0_0": pytest.approx([1 / (2 * 4)] * 4),
    }
    assert not any("trajectory" in fields["extra_fields"] for fields in rows.values())
    assert {key: fields["uid"] for key, fields in rows.items()} == {key: key for key in rows}
