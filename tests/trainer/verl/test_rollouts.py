"""Trajectories of verl as a table, and rewards on their way back."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow  # Imports verl.

PROMPTS = pa.table(
    {
        "prompt_id": [f"prompt-{k}" for k in range(6)],
        "reference": [str(k) for k in range(6)],
        "level": [k % 3 for k in range(6)],
    }
)
END, PAD = 1, 0

# Of each prompt, the tokens of its responses; some end, some were cut off.
RESPONSES = st.lists(
    st.lists(st.integers(2, 99), min_size=1, max_size=5).flatmap(
        lambda ids: st.sampled_from([ids, [*ids, END]])
    ),
    min_size=1,
    max_size=3,
)
STEPS = st.dictionaries(st.integers(0, 5), RESPONSES, min_size=1)


class Letters:
    """A tokenizer: a token is a letter."""

    def batch_decode(self, rows, clean_up_tokenization_spaces):
        assert clean_up_tokenization_spaces is False
        return ["".join(chr(64 + token) for token in row) for row in rows]


@pytest.fixture
def put(queue):
    """Put groups, in an order: (prompt, responses) with uid `uid<prompt>`."""
    from rejuice.operators.sampling.protocol import Group, Sample
    from rejuice.trainer.verl.advantage import TrajectoryKey
    from rejuice.trainer.verl.trajectories import Slot, put

    def made(groups, step=3):
        queue.partitions.clear()
        for index, responses in groups:
            slot = Slot(
                f"uid{index}", {"extra_info": {"index": index, "prompt_id": f"prompt-{index}"}}
            )
            samples = tuple(
                Sample("", tuple(ids), tuple(-0.5 * k - at for at in range(len(ids))), "stop")
                for k, ids in enumerate(responses)
            )
            ids = tuple(range(10, 12 + index))
            put([(slot, Group("p", step - 1, 7, ids, samples))], "train", step)
        listed = queue.kv_list("train")["train"].items()
        return {TrajectoryKey.parse(k): tag for k, tag in listed if "_" in k}

    return made


def read(tags):
    from rejuice.trainer.run import Policy, Sampling
    from rejuice.trainer.verl.trajectories import read

    policy = Policy("tiny", Letters(), frozenset({END}))
    return read(tags, "train", PROMPTS, policy, Sampling(1.0, 0.9, 5, 11))


each_example = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(step=STEPS, data=st.data())
@each_example
def test_the_order_of_arrival_does_not_matter(put, step, data):
    expected = read(put(sorted(step.items())))
    order = data.draw(st.permutations(list(step.items())))
    tags = put(order)
    shuffled = data.draw(st.permutations(list(tags)))
    found = read({key: tags[key] for key in shuffled})
    assert found.keys == expected.keys
    assert found.index_N.tolist() == expected.index_N.tolist()
    assert found.table.equals(expected.table)


@given(step=STEPS)
@each_example
def test_each_row_is_its_trajectory(put, step):
    found = read(put(step.items()))
    places = [(k, n) for k in sorted(step) for n in range(len(step[k]))]
    assert found.keys == [(f"uid{k}", n, 0) for k, n in places]
    for row, (k, n) in zip(found.table.to_pylist(), places, strict=True):
        ids = step[k][n]
        ended = ids[-1] == END
        assert row["prompt_id"] == f"prompt-{k}"
        assert (row["reference"], row["level"]) == (str(k), k % 3)
        assert row["response_token_ids"] == ids
        assert row["response"] == "".join(chr(64 + token) for token in ids[: len(ids) - ended])
        assert row["finish_reason"] == ("stop" if ended else "length")
        assert row["prompt_token_ids"] == list(range(10, 12 + k))
        assert row["response_logprobs"] == [-0.5 * n - at for at in range(len(ids))]
        assert (row["policy"], row["policy_version"]) == ("tiny", 2)
    assert len(set(found.table["response_id"].to_pylist())) == len(places)


def test_the_table_keeps_the_row_contract(put):
    from rejuice.operators.columns import ROW_CONTRACT

    table = read(put([(0, [[2, 3, END]]), (4, [[5]])])).table
    kept = {
        name: table.schema.field(name).type for name in table.column_names if name in ROW_CONTRACT
    }
    assert kept == {name: ROW_CONTRACT[name] for name in kept}
    assert set(kept) >= {"prompt_id", "response_id", "response", "response_logprobs", "sampling"}


def test_the_seed_is_that_of_the_prompt_at_the_step(put):
    from rejuice.operators.sampling.protocol import prompt_seed

    rows = read(put([(2, [[5, END]])], step=3)).table["sampling"].to_pylist()
    assert rows == [
        {"temperature": 1.0, "top_p": 0.9, "max_tokens": 5, "seed": prompt_seed("prompt-2", 11, 3)}
    ]
    assert prompt_seed("prompt-2", 11, 3) != prompt_seed("prompt-2", 11, 4)
    assert 0 <= prompt_seed("prompt-2", 2**63, 2**40) < 2**62


def test_ids_are_those_of_the_same_samples_offline(put):
    """`policy_rollout_mapper` names a response by prompt, place and text."""
    from rejuice.operators.columns import content_ids

    table = read(put([(1, [[5, END], [6, 7]])])).table
    texts = table["response"].to_pylist()
    names = content_ids([("prompt-1", str(k), text) for k, text in enumerate(texts)])
    assert table["response_id"].combine_chunks().equals(names)


def test_texts_are_those_of_the_sampler(put, queue):
    """Decoded here again, from the tokens that verl trains on."""
    from transformers import AutoTokenizer

    from rejuice.operators.sampling.engines import EMBEDDED
    from rejuice.operators.sampling.protocol import Prompt, Settings
    from rejuice.operators.sampling.transformers_engine import TransformersEngine
    from rejuice.trainer.run import Policy, Sampling
    from rejuice.trainer.verl.advantage import TrajectoryKey
    from rejuice.trainer.verl.trajectories import Slot, put, read

    prompts = [
        Prompt((("user", f"Ivy has {k} eggs. Leo has 4 more. How many has Leo?"),), k)
        for k in range(6)
    ]
    engine = TransformersEngine(EMBEDDED)
    groups = dict(engine.sample(prompts, Settings(n=4, max_tokens=14)))
    slots = [
        Slot(f"uid{k}", {"extra_info": {"index": k, "prompt_id": f"prompt-{k}"}}) for k in range(6)
    ]
    put([(slots[k], groups[k]) for k in range(6)], "train", 1)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    policy = Policy("embedded", tokenizer, frozenset({tokenizer.eos_token_id}))
    listed = queue.kv_list("train")["train"].items()
    tags = {TrajectoryKey.parse(k): tag for k, tag in listed if "_" in k}
    table = read(tags, "train", PROMPTS, policy, Sampling(1.0, 1.0, 14, 0)).table
    samples = [sample for k in range(6) for sample in groups[k].samples]
    assert table["response"].to_pylist() == [sample.text for sample in samples]
    assert table["finish_reason"].to_pylist() == [sample.finish_reason for sample in samples]
    assert {"stop", "length"} == set(table["finish_reason"].to_pylist())


@given(step=STEPS, data=st.data())
@each_example
def test_a_reward_lies_on_the_last_token_of_its_response(put, queue, step, data):
    from rejuice.trainer.verl.trajectories import write

    keys = list(put(step.items()))
    numbers = st.floats(-2, 2, width=32)
    reward_N = np.array(data.draw(st.lists(numbers, min_size=len(keys), max_size=len(keys))))
    names = list(map(str, keys))
    responses = queue.kv_batch_get(names, "train", ["responses"])["responses"].unbind()
    lengths_N = np.array([len(row) for row in responses])
    write(keys, "train", reward_N, lengths_N)
    scores = queue.kv_batch_get(names, "train", ["rm_scores"])["rm_scores"].unbind()
    for row, reward, length in zip(scores, reward_N, lengths_N, strict=True):
        assert row.tolist() == [0.0] * (length - 1) + [reward]
        assert str(row.dtype) == "torch.float32"


def test_some_of_them(put):
    found = read(put([(0, [[2], [3]]), (4, [[5]])])).take(np.array([2, 0]))
    assert found.keys == [("uid4", 0, 0), ("uid0", 0, 0)]
    assert found.index_N.tolist() == [4, 0]
    assert found.table["response_token_ids"].to_pylist() == [[5], [2]]
