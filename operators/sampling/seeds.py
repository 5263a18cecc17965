"""The seed with which the responses to a prompt are sampled, offline and in training.

Samples that are already paid for are found by it: changing the formula would sample them again.
"""

from __future__ import annotations

import pyarrow as pa

from ..groups import Array, hash_each

_STEP_STRIDE = 0x9E3779B97F4A7C15
_SEEDS = 2**62


def prompt_seeds(prompt_ids: pa.ChunkedArray | pa.Array, seed: int, step: int = 0) -> Array:
    """The seed of each prompt's samples, uint64[N] in [0, 2**62).

    Args:
        prompt_ids: string[N].
        seed: of the run, any integer.
        step: the training step; 0 when sampling offline.
    """
    return hash_each(prompt_ids, seed=(seed + step * _STEP_STRIDE) & 0xFFFFFFFFFFFFFFFF) % _SEEDS


def prompt_seed(prompt_id: str, seed: int, step: int) -> int:
    """`prompt_seeds` of a single prompt."""
    return int(prompt_seeds(pa.array([prompt_id], pa.string()), seed, step)[0])
