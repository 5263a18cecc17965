"""The figures of agents that are logged of a training step, as `rejuice/agent/...`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...operators.agents.trajectory import FAILURES, TOOL


def agent_figures(rollouts: pa.Table) -> dict[str, float]:
    """The figures of trajectories as they were sampled.

    `turns` and `tool_calls` are means over trajectories, `tool_errors` is the share of calls that
    did not work, where a malformed action counts as a call, too; `finish/*` and `failed/*` count
    trajectories by their `finish_reason`, which is the policy's doing or not.
    """
    found = {
        "agent/trajectories": float(rollouts.num_rows),
        "agent/turns": float(np.asarray(rollouts["turn_count"]).mean()),
        "agent/tool_calls": float(np.asarray(rollouts["tool_calls"]).mean()),
    }
    roles = pc.struct_field(pc.list_flatten(rollouts["turns"]), "role")
    if tried := pc.sum(pc.equal(roles, TOOL)).as_py():  # Calls, and malformed actions.
        found["agent/tool_errors"] = pc.sum(rollouts["tool_errors"]).as_py() / tried
    for count in rollouts["finish_reason"].value_counts().to_pylist():
        kind = "failed" if count["values"] in FAILURES else "finish"
        found[f"agent/{kind}/{count['values']}"] = float(count["counts"])
    return found
