"""The advantage of the recipe inside verl.

verl's own `grpo` computes in float32, in which the mean of n equal rewards need not be the reward:
eight rewards of 0.9 get advantages of 0.056, divided by a standard deviation that is all rounding.
Here equal rewards have an advantage of exactly 0, and elsewhere the two agree to 1e-6.

The rows of an agent are turns, and rewards belong to trajectories. Of four right answers in one
turn and four wrong ones in three turns each, half are right, not a quarter; so an advantage is
computed over trajectories, and all turns of a trajectory have it. The field `uid` of a row is then
the key of its trajectory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ..run import ESTIMATOR


def register(operator: GrpoAdvantageMapper, *, of_turns: bool = False) -> None:
    """Make the operator verl's estimator `rejuice`.

    Args:
        operator: the recipe's.
        of_turns: whether rows are turns of trajectories; otherwise each is a whole response.
    """
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

    def estimate(
        token_level_rewards: Any, response_mask: Any, index: Any, **_: Any
    ) -> tuple[Any, Any]:
        """Advantages and returns, float[N, T], from rewards float[N, T] and `uid` of rows [N]."""
        reward_N = token_level_rewards.sum(-1)
        of_rows = turn_advantages if of_turns else advantages
        advantage_N = reward_N.new_tensor(of_rows(operator, reward_N.numpy(), index))
        per_token = advantage_N[:, None] * response_mask
        return per_token, per_token

    ADV_ESTIMATOR_REGISTRY.pop(ESTIMATOR, None)  # verl refuses a second one by the same name.
    register_adv_est(ESTIMATOR)(estimate)


def advantages(
    operator: GrpoAdvantageMapper, reward_N: NDArray[Any], group_N: NDArray[Any]
) -> NDArray[np.float64]:
    """The operator's advantages of rows in any order; 0 where it gives none, as for padding."""
    order_N = np.argsort(group_N.astype(str), kind="stable")
    table = pa.table(
        {
            "prompt_id": pa.array(group_N[order_N].astype(str)),
            "reward": pa.array(reward_N[order_N].astype(np.float64)),
        }
    )
    found = operator.apply(table).columns["advantage"].fill_null(0.0)
    out_N = np.zeros(len(reward_N))
    out_N[order_N] = found.to_numpy()
    return out_N


def turn_advantages(
    operator: GrpoAdvantageMapper, reward_R: NDArray[Any], trajectory_R: NDArray[Any]
) -> NDArray[np.float64]:
    """The operator's advantages of trajectories, for each of their turns, in any order.

    Args:
        operator: the recipe's.
        reward_R: that of its trajectory, for each turn.
        trajectory_R: key of the trajectory's first row; rows of padding have one of their own.
    """
    names_T, first_T, nth_R = np.unique(
        trajectory_R.astype(str), return_index=True, return_inverse=True
    )
    group_T = np.array([name.rsplit("_", 2)[0] for name in names_T])
    found_R: NDArray[np.float64] = advantages(operator, reward_R[first_T], group_T)[nth_R]
    return found_R
