"""The advantage of the recipe inside verl.

verl's own `grpo` computes in float32, in which the mean of n equal rewards need not be the reward:
eight rewards of 0.9 get advantages of 0.056, divided by a standard deviation that is all rounding.
Here equal rewards have an advantage of exactly 0, and elsewhere the two agree to 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...operators.mapper.grpo_advantage_mapper import GrpoAdvantageMapper
from ..run import ESTIMATOR


def register(operator: GrpoAdvantageMapper) -> None:
    """Make the operator verl's estimator `rejuice`."""
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

    def estimate(
        token_level_rewards: Any, response_mask: Any, index: Any, **_: Any
    ) -> tuple[Any, Any]:
        """Advantages and returns, float[N, T], from rewards float[N, T] and groups `index` [N]."""
        reward_N = token_level_rewards.sum(-1)
        advantage_N = reward_N.new_tensor(advantages(operator, reward_N.numpy(), index))
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
