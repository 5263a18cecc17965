"""Which Ray a run trains on: one of its own on this machine, or a cluster that it joins."""

from __future__ import annotations

import os

from ...pipelines.ray_session import AUTO, LOCAL
from ..run import TrainingRun

ADDRESS = "ray_kwargs.ray_init.address"
"""The key of verl that goes to `ray.init`. Without one, Ray joins any cluster that was started on
this machine, or fails where that has ended."""


def ray_address(run: TrainingRun) -> str:
    """The address that a run gives to Ray: `local`, `auto`, or HOST:PORT of a cluster.

    The user's own in `train.verl` wins.
    """
    # Without a value, Ray looks for a cluster as it does for `auto`.
    return str(run.config.verl_keys.get(ADDRESS, default_ray_address(run)) or AUTO)


def default_ray_address(run: TrainingRun) -> str:
    """`ray_address` of a run whose `train.verl` has none.

    Profile cpu and one node have a Ray of their own, whatever runs beside it. With profile gpu the
    environment variable RAY_ADDRESS names a cluster.
    """
    if run.config.profile == "cpu":
        return LOCAL
    named = (os.environ.get("RAY_ADDRESS") or LOCAL) != LOCAL
    return AUTO if run.config.gpu.nodes > 1 or named else LOCAL
