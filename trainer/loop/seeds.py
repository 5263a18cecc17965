"""The seed of a prompt's samples, in a run and at a step."""

from __future__ import annotations

import xxhash

_STEP = 0x9E3779B97F4A7C15


def prompt_seed(prompt_id: str, seed: int, step: int) -> int:
    """The seed, in [0, 2**62), by which a prompt is sampled at a step of training.

    Step 0 is what `policy_rollout_mapper` takes offline.
    """
    mixed = (seed + step * _STEP) & 0xFFFFFFFFFFFFFFFF
    return int(xxhash.xxh3_64_intdigest(prompt_id.encode(), seed=mixed)) % 2**62
