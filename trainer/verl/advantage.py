"""The keys of trajectories in TransferQueue, and the loss over the turns of agents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...operators.groups import Array

_TRAJECTORY = re.compile(r".*_\d+_\d+", re.DOTALL)


class TrajectoryKey(NamedTuple):
    """The key of a row of TransferQueue: `{uid}_{session}_{output}`.

    A response has one row. The trajectory of an agent has one for each turn of the policy, and is
    named by the key of the first.
    """

    uid: str  # key of the prompt; it may contain underscores
    session: int  # which of the prompt's trajectories, from 0
    output: int = 0  # which turn of the policy, from 0; 0 for single-turn responses

    @classmethod
    def parse(cls, key: str) -> TrajectoryKey:
        uid, session, output = key.rsplit("_", 2)
        return cls(uid, int(session), int(output))

    @classmethod
    def of_trajectories(cls, tags: Mapping[str, Any]) -> dict[TrajectoryKey, Any]:
        """Tags by parsed keys; keys of prompts, which are no trajectories, are left out."""
        return {cls.parse(key): tag for key, tag in tags.items() if _TRAJECTORY.fullmatch(key)}

    @property
    def first(self) -> TrajectoryKey:
        """The key of the trajectory: that of its first row."""
        return self._replace(output=0)

    def __str__(self) -> str:
        return f"{self.uid}_{self.session}_{self.output}"


# --- The loss of Flow-GRPO, over the turns of trajectories ----------------------------
#     - sum over tokens of  w [min(rho A, clip(rho, 1 - low, 1 + high) A) - beta k3]
#
#     w = updates / (P G_p T_i |a_t|)    P prompts, G_p trajectories of the prompt, T_i turns of the
#                                        policy in the trajectory, |a_t| tokens in the turn
#
# A mean over prompts, of means over trajectories, of means over turns, of means over tokens:
# neither a long trajectory nor a long action weighs more than another. The paper puts the
# divergence from the reference outside its sums; here it has the weights of the rest, and so has an
# entropy bonus.
#
# A training row is one turn. verl's own modes of aggregation cannot know which rows are one
# trajectory: `seq-mean-token-mean` lets one of four turns weigh four times as much as one of one.
#
# Source: Flow-GRPO, of the paper on AgentFlow, arXiv:2510.05592.


WEIGHT = "turn_weight"
"""Field of a row: the weight of each token of its action, float32[T]."""


def turn_weights(keys: Sequence[TrajectoryKey], lengths_R: Array, updates: int = 1) -> Array:
    """The weight of a token in each turn, float64[R].

    Over all rows of a step, the weights of all tokens sum to `updates`: each update divides by its
    own share of the rows, as verl's modes of aggregation do. That share is one of rows, so that the
    loss is exactly the paper's with one update a step; with more, updates get trajectories of other
    numbers of turns, and the sum of their weights varies about 1.
    """
    if len(set(keys)) < len(keys) or not (lengths_R > 0).all():
        raise ValueError("each turn must be one row, with a token to train on")
    _, group_R = np.unique([key.uid for key in keys], return_inverse=True)
    _, first_T, trajectory_R, turns_T = np.unique(
        [str(key.first) for key in keys], return_index=True, return_inverse=True, return_counts=True
    )
    sizes_G = np.bincount(group_R[first_T])
    weights_R: Array = updates / (
        len(sizes_G) * sizes_G[group_R] * turns_T[trajectory_R] * lengths_R
    )
    return weights_R


class LossSettings(NamedTuple):
    """What the loss takes from verl's configuration of the actor."""

    clip_low: float  # the ratio is clipped at 1 minus this
    clip_high: float  # the ratio is clipped at 1 plus this
    kl_coef: float  # weight of the divergence from the reference; 0: there is no reference
    kl_type: str  # verl's name of its estimator
    entropy_coef: float  # weight of the entropy bonus

    @classmethod
    def of(cls, actor: Any) -> LossSettings:
        return cls(
            actor.clip_ratio_low,
            actor.clip_ratio_high,
            actor.kl_loss_coef if actor.use_kl_loss else 0.0,
            actor.kl_loss_type,
            actor.entropy_coeff,
        )

    def loss(self) -> Any:
        """For `set_loss_fn`; workers import it by its name."""
        return partial(trajectory_loss, self)


def trajectory_loss(
    settings: LossSettings, model_output: Any, data: Any, dp_group: Any = None
) -> tuple[Any, dict[str, Any]]:
    """The loss of a micro-batch of turns, and its figures by verl's names.

    The losses of all micro-batches add up to that of their update. There is no dual clip, which
    verl's own loss has for negative advantages. Rows of padding have no token in the mask.
    """
    from torch.nn.functional import pad
    from verl.trainer.ppo.core_algos import kl_penalty
    from verl.utils.metric import AggregationType, Metric
    from verl.utils.torch_functional import masked_mean, masked_sum
    from verl.workers.utils.padding import no_padding_2_padding

    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    optional = {"ref_log_prob", "rollout_is_weights"} & set(data.keys())
    names = ("response_mask", "old_log_probs", "advantages", WEIGHT, *optional)
    rows = data.select(*names).to_padded_tensor()
    mask, advantages = rows["response_mask"].bool(), rows["advantages"]
    # Ranks average their gradients, and their metrics. A row of padding has the weights of the row
    # that it was made of, which may have more tokens.
    weights = data["dp_size"] * pad(rows[WEIGHT], (0, mask.shape[1] - rows[WEIGHT].shape[1]))

    def summed(values: Any) -> Any:
        return masked_sum(weights * values, mask)

    of_all = partial(Metric, AggregationType.SUM)
    of_some = partial(Metric, AggregationType.MEAN)
    log_ratio = (log_probs - rows["old_log_probs"]).clamp(-20, 20)  # As verl, against overflow.
    ratio = log_ratio.exp()
    plain = ratio * advantages
    clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high) * advantages
    gain = plain.minimum(clipped)
    if "rollout_is_weights" in optional:
        gain = gain * rows["rollout_is_weights"]
    loss = pg_loss = summed(-gain)
    metrics = {
        "actor/pg_loss": of_all(pg_loss),
        "actor/pg_clipfrac": of_some(masked_mean((clipped < plain).float(), mask)),
        "actor/ppo_kl": of_some(masked_mean(-log_ratio, mask)),
    }
    if model_output.get("entropy") is not None:
        entropy = summed(no_padding_2_padding(model_output["entropy"], data))
        metrics["actor/entropy_loss"] = of_all(entropy)
        loss = loss - settings.entropy_coef * entropy
    if settings.kl_coef:
        divergence = summed(kl_penalty(log_probs, rows["ref_log_prob"], settings.kl_type))
        loss = loss + settings.kl_coef * divergence
        metrics |= {"kl_loss": of_all(divergence), "kl_coef": settings.kl_coef}
    return loss, metrics
