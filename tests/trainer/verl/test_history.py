"""history.parquet: what a step has learned about each prompt."""

from types import SimpleNamespace

import pyarrow as pa

from rejuice.trainer.verl.history import HISTORY, history_of

LIST = pa.list_(pa.int32())


def part_of(rollouts, values, trained, decisions):
    """The answers of a step, as far as its history is of them."""
    curated = SimpleNamespace(decisions=decisions)
    return SimpleNamespace(rollouts=rollouts, values=values, trained=trained, curated=curated)


def test_a_row_for_each_prompt_of_what_was_sampled():
    rollouts = pa.table(
        {
            "response_id": ["a0", "a1", "b0", "b1", "c0"],
            "prompt_id": ["a", "a", "b", "b", "c"],
            "response_token_ids": pa.array([[1], [1, 2, 3], [1], [1], None], LIST),
            "finish_reason": ["stop", "length", "stop", "stop", None],
            "policy_version": [7, 7, 7, 7, 7],
            "data_source": ["x", "x", "y", "y", None],
        }
    )
    values = pa.table(
        {
            "verdict": ["correct", "wrong_answer", "correct", "correct", "timeout"],
            "reward": [1.0, 0.0, 1.0, 1.0, None],
        }
    )
    decisions = pa.table(
        {
            "row_id": ["b0", "b1", "c0"],
            "reason": ["no_reward_spread", "no_reward_spread", "no_reward"],
        }
    )
    trained = rollouts.slice(0, 2)
    found = history_of(3, part_of(rollouts, values, trained, decisions))
    assert found.schema == HISTORY
    assert found.to_pylist() == [
        dict(zip(HISTORY.names, row, strict=True))
        for row in [
            (3, "a", 2, 2, 0.5, 0.5, 0.5, 2.0, 0.5, 2, None, 7, "x"),
            (3, "b", 2, 2, 1.0, 1.0, 0.0, 1.0, 0.0, 0, "no_reward_spread", 7, "y"),
            (3, "c", 1, 0, None, None, None, 0.0, 0.0, 0, "no_reward", 7, None),
        ]
    ]


def test_of_nothing_there_is_no_history():
    empty = pa.table({"prompt_id": pa.array([], pa.string())})
    assert history_of(1, part_of(empty, empty, empty, empty)).equals(HISTORY.empty_table())
