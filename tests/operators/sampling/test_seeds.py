"""Seeds of samples are the same as in earlier versions: another value would sample them again."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rejuice.operators.groups import mix
from rejuice.operators.sampling.protocol import prompt_seed, prompt_seeds, turn_seed

# Computed by version 0.4.0, by policy_rollout_mapper (step 0) and by the trainer's loop.
PINNED = {
    (0, 0): [2793976376608575007, 423480968850928935, 2136989939305324398],
    (7, 0): [2221832125074808980, 4430433096599105916, 411794496367443110],
    (-5, 0): [1629653760672608292, 108679202625581774, 1453309603504566608],
    (11, 3): [7150536509175053, 3002496405859294920, 1208713847337840829],
    (9223372036854775808, 1000): [552832638855531675, 1111547879746357652, 3254738959839674353],
}


@pytest.mark.parametrize(("seed", "step"), PINNED)
def test_seeds_of_earlier_versions(seed, step):
    expected = PINNED[seed, step]
    assert prompt_seeds(pa.array(["a", "prompt-2", "ü"]), seed, step).tolist() == expected
    assert [prompt_seed(name, seed, step) for name in ("a", "prompt-2", "ü")] == expected


def test_seeds_are_in_range():
    assert 0 <= prompt_seed("prompt-2", 2**63, 2**40) < 2**62


def test_the_step_is_0_by_default():
    ids = pa.chunked_array([["a"], ["b"]])
    assert prompt_seeds(ids, 7).tolist() == prompt_seeds(ids, 7, 0).tolist()


@example(2**62 - 1, 0, 0)
@given(st.integers(0, 2**62 - 1), st.integers(0, 1000), st.integers(0, 1000))
def test_the_seed_of_a_turn_mixes_what_decides_it(seed, index, turn):
    key = np.array([seed], np.uint64)
    for part in (index, turn):
        key = mix(mix(key) + np.uint64(part + 1))
    assert turn_seed(seed, index, turn) == int(key[0]) % 2**62
