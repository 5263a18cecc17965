"""A connection to Ray: to a cluster, or to one that is started on this machine for a while."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..operators import EngineError
from ..operators.errors import first_line
from ..operators.workers import interrupts_deferred

LOCAL, AUTO = "local", "auto"
_REACH_S = 5.0


@contextmanager
def connected_to_ray(address: str = AUTO, *, num_cpus: int | None = None) -> Iterator[bool]:
    """Connect this process to Ray, unless it is connected; it is disconnected at the end.

    An address is that of a cluster, `HOST:PORT` or `ray://HOST:PORT`; `local`: Ray is started on
    this machine, and stopped at the end; `auto`: the cluster of the environment variable
    RAY_ADDRESS, else the one that runs on this machine, else as `local`. It yields whether
    Ray was started here; then it runs `num_cpus` tasks at a time, by default one per core.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray warns that a later version will not hide GPUs from tasks that ask for none.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if ray.is_initialized():
        yield False
        return
    try:
        with interrupts_deferred():  # So it is connected or it is not, and never half.
            ours = _connect(address, num_cpus)
        yield ours
    finally:
        with interrupts_deferred():
            ray.shutdown()


def _connect(address: str, num_cpus: int | None) -> bool:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == AUTO:
        address = os.environ.get("RAY_ADDRESS") or AUTO
    if address != LOCAL:
        _check_listens(address)
        try:
            ray.init(address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if address != AUTO or not isinstance(error, ConnectionError):
                raise _unreachable(address, first_line(error)) from error
        else:
            return False
    ray.init(LOCAL, num_cpus=num_cpus, include_dashboard=False, **quiet)
    return True


def _check_listens(address: str) -> None:
    """Check that something listens at an address: Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdecimal():
        return  # `auto`, or what Ray reports to be no address.
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, getattr(error, "strerror", None) or str(error)) from error


def _unreachable(address: str, found: str) -> EngineError:
    right = "give HOST:PORT of its head node, or local"
    if os.environ.get("RAY_AUTH_MODE") != "token":
        right += "; if it asks for a token, set RAY_AUTH_MODE=token"
    return EngineError(f"the Ray cluster at {address} cannot be reached: {found}", right)
