"""The seed with which the responses to a prompt are sampled, offline and in training.

Samples that are already paid for are found by it: changing the formula would sample them again.
"""

from __future__ import annotations

import pyarrow as pa

from ..groups import Array, hash_each

_STEP_STRIDE = 0x9E3779B97F4A7C15
_SEEDS = 2**62
_WORD = 2**64 - 1


def prompt_seeds(prompt_ids: pa.ChunkedArray | pa.Array, seed: int, step: int = 0) -> Array:
    """The seed of each prompt's samples, uint64[N] in [0, 2**62).

    Args:
        prompt_ids: string[N].
        seed: of the run, any integer.
        step: the training step; 0 when sampling offline.
    """
    return hash_each(prompt_ids, seed=step_seed(seed, step)) % _SEEDS


def step_seed(seed: int, step: int) -> int:
    """The seed with which a run offline samples what training samples at a step."""
    return (seed + step * _STEP_STRIDE) & _WORD


def prompt_seed(prompt_id: str, seed: int, step: int) -> int:
    """`prompt_seeds` of a single prompt."""
    return int(prompt_seeds(pa.array([prompt_id], pa.string()), seed, step)[0])


def turn_seed(seed: int, index: int, turn: int) -> int:
    """The seed of a turn of a trajectory, in [0, 2**62).

    Args:
        seed: of the prompt.
        index: which of the prompt's trajectories, from 0.
        turn: which turn of the policy, from 0.
    """
    for part in (index, turn):
        seed = _mixed((_mixed(seed) + part + 1) & _WORD)
    return seed % _SEEDS


def _mixed(z: int) -> int:
    """`groups.mix` of one number; in numpy, that takes twenty times as long."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)
