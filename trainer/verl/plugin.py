"""What verl imports in every process of a run: `VERL_USE_EXTERNAL_MODULES` names it."""

import sys
import time
from typing import Any

# private: ray==2.60.0, tests/trainer/launch/test_failure.py::test_ray_may_take_longer_to_start
from ray._private import services

# verl imports trl's model with a value head wherever trl is installed, and fails with versions of
# trl that have none. GRPO needs no such model: in these processes, trl is reported as missing.
# private: trl==1.16.0, tests/trainer/cpu/test_seams.py::test_the_platform_is_there_where_it_is_named_and_nowhere_else
sys.modules.setdefault("trl", None)  # type: ignore[arg-type]

_START_S = 300.0
_get_node = services.get_node


def get_node(gcs_address: str, node_id: str) -> Any:
    """Ray's, for longer than the 30 s that it waits for its node: a busy machine takes minutes."""
    end = time.monotonic() + _START_S
    while True:
        try:
            return _get_node(gcs_address, node_id)
        except RuntimeError:
            if time.monotonic() > end:
                raise
            time.sleep(1)


services.get_node = get_node
