"""Train on groups of earlier steps in place of those without signal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from ..columns import numbers
from ..groups import Array, Groups, hash_each
from ..importance import POLICY_AGE, POLICY_LOGPROBS, REPLAYED_FROM, SAMPLED_LOGPROBS, LogRatios
from ..operator import Change, Columns, Kind, Operator, Scope, drop


class ReplaySelector(Operator):
    """Train on groups of earlier steps in place of those without signal.

    Put it behind what drops groups without signal, such as `reward_std_filter`, and before the step
    that writes the advantage. Where fewer groups are left than a training step has prompts, also
    after refills, groups that trained in one of the last `max_age` steps fill the places, with the
    rewards that they had. The policy of today gives their tokens new log-probabilities
    (`policy_logprobs`), from which the steps of the update start, and of which this operator makes
    columns: `importance_ratio`, the probability of a response by the policy of today relative to
    that by the policy that sampled it, and `mean_token_ratio`, its geometric mean over tokens, as
    in GSPO. A group with a response whose mean is outside `ratio_range` is not replayed, nor is one
    whose prompt the step has sampled itself. The newest groups come first, and of those of one step
    the ones with the greatest spread of rewards.

    Follow it by `importance_weight_mapper`: without it, responses count as if the policy of today
    had sampled them. Steps after this one run on the replayed groups apart from the others.
    Replayed rows are in steps/000012/replayed; pass rates and the history are of what was sampled.

    Offline there are no earlier steps, and it does nothing.

    Sources: RePO (https://arxiv.org/abs/2506.09340) and TRL's `GRPOWithReplayBufferTrainer`, which
    replace groups without signal, too.
    """

    max_age: PositiveInt = 4
    """Groups of so many steps before the present one may be replayed."""
    ratio_range: tuple[float, float] = (0.5, 2.0)
    """The least and the greatest `mean_token_ratio` of a response."""
    max_share: float = Field(0.5, gt=0, le=1)
    """The most groups that are replayed, as a share of the prompts of a training step."""
    max_replays: PositiveInt = 1
    """How often a group may be replayed."""
    keep: PositiveInt | None = None
    """The most groups to replay. Null: as many as are missing. The recipe of a training step has
    their number."""

    kind: ClassVar[Kind] = Kind.SELECTOR
    scope: ClassVar[Scope] = Scope.DATASET
    reasons: ClassVar[Mapping[str, str]] = {
        "ratio_out_of_range": "a response of the group has a `mean_token_ratio` outside "
        "`ratio_range`",
        "over_keep": "`keep` groups are newer, or have a greater spread of rewards",
    }

    @model_validator(mode="after")
    def _is_range(self) -> Self:
        low, high = self.ratio_range
        if not 0 < low <= 1 <= high:
            raise ValueError("ratio_range is not from a number up to 1 to a number of at least 1")
        return self

    def reads(self) -> Columns:
        return ("prompt_id",)

    def optional_reads(self) -> Mapping[str, str]:
        # Which training adds.
        names = (REPLAYED_FROM, POLICY_AGE, POLICY_LOGPROBS, SAMPLED_LOGPROBS, "reward")
        return {name: name for name in names}

    def writes(self) -> Columns:
        return ("importance_ratio", "mean_token_ratio")

    def drops_within_groups(self) -> bool:
        return False

    def apply(self, table: pa.Table) -> Change:
        if REPLAYED_FROM not in table.column_names:
            none = pa.nulls(table.num_rows, pa.float64())
            return Change(columns=dict.fromkeys(self.writes(), none))
        ratios, groups = LogRatios.of(table), Groups.of(table)
        mean_N, age_N = ratios.of_mean_tokens(), numbers(table, POLICY_AGE)
        old_G = groups.mean(np.isfinite(age_N).astype(float)) > 0
        low, high = self.ratio_range
        # A comparison with nan is false: a response without log-probabilities is outside.
        outside_G = old_G & (groups.sum((mean_N >= low) & (mean_N <= high)) < groups.sizes_G)
        reasons = {"ratio_out_of_range": outside_G[groups.codes_N]}
        if self.keep is not None:
            rank_G = _ranks(table, groups, age_N, old_G & ~outside_G)
            reasons["over_keep"] = (rank_G >= self.keep)[groups.codes_N]
        columns = {
            "importance_ratio": _known(ratios.of_responses()),
            "mean_token_ratio": _known(mean_N),
        }
        return Change(columns=columns, reasons=drop(reasons))

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        if row is None or row.get(REPLAYED_FROM) is None:
            return {}
        age, ratio = row.get(POLICY_AGE), row.get("mean_token_ratio")
        found = f"sampled by step {row[REPLAYED_FROM]}, {age} steps before"
        return {"replayed": found if ratio is None else f"{found}; mean token ratio {ratio:.3f}"}


def _ranks(table: pa.Table, groups: Groups, age_N: Array, among_G: Array) -> Array:
    """Return the place of each group among those that may be replayed, int64[G]; of others, -1."""
    spread_G = np.zeros(len(among_G))
    if "reward" in table.column_names:
        reward_N = numbers(table, "reward")
        spread_G = np.nan_to_num(groups.std(reward_N, np.isfinite(reward_N)))
    tie_G = hash_each(table["prompt_id"].take(pa.array(groups.starts_G)))
    order_G = np.lexsort([tie_G, -np.round(spread_G, 9), age_N[groups.starts_G], ~among_G])
    rank_G = np.full(len(among_G), -1, np.int64)
    chosen = order_G[: int(among_G.sum())]
    rank_G[chosen] = np.arange(len(chosen))
    return rank_G


def _known(values_N: Array) -> pa.Array:
    return pa.array(values_N, mask=~np.isfinite(values_N))
