"""Train on groups of earlier steps in place of those without signal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from ..columns import flat, numbers
from ..groups import Array, Groups, hash_each
from ..importance import (
    POLICY_AGE,
    POLICY_LOGPROBS,
    RATIOS,
    REPLAYED_FROM,
    SAMPLED_LOGPROBS,
    LogRatios,
)
from ..operator import Change, Columns, Kind, Operator, Scope, drop


class ReplaySelector(Operator):
    """Train on groups of earlier steps in place of those without signal.

    Put it after what drops groups without signal, such as `reward_std_filter`, and before the step
    that writes the advantage. Where fewer groups are left than a training step has prompts, also
    after refills, groups that trained in one of the last `max_age` steps fill the places, with the
    rewards that they had: the newest first, and of those of one step the ones with the greatest
    spread of rewards. A prompt that the step has sampled itself is left out.

    The current policy gives their tokens log-probabilities (`policy_logprobs`), from which the
    update starts, and of which this operator makes columns: `importance_ratio`, the probability of
    a response by the current policy relative to that by the policy that sampled it, and
    `mean_token_ratio`, its geometric mean over tokens, as in GSPO. A group with a response whose
    mean is outside `ratio_range` is not replayed. Twice as many groups as are missing are looked
    at, so fewer may be left.

    Follow it by `importance_weight_mapper`: without it, responses count as if the current policy
    had sampled them. Steps after this one run on the replayed groups separately. Replayed rows are
    in steps/000012/replayed, and have `replayed_from`, the step that sampled them, and
    `policy_age`, how many steps ago; pass rates and the history are of what was sampled.

    Offline there are no earlier steps, and it does nothing.

    TRL's `GRPOWithReplayBufferTrainer` replaces groups without signal, too; RePO
    (https://arxiv.org/abs/2506.09340) adds stored responses to those of each prompt.
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

    def most(self, prompts: int) -> int:
        """How many groups a training step of so many prompts may replay."""
        return int(self.max_share * prompts + 1e-9)

    def reads(self) -> Columns:
        return ("prompt_id",)

    def optional_reads(self) -> Mapping[str, str]:
        # Which training adds.
        names = (REPLAYED_FROM, POLICY_AGE, POLICY_LOGPROBS, SAMPLED_LOGPROBS, "reward")
        return {name: name for name in names}

    def writes(self) -> Columns:
        return (REPLAYED_FROM, POLICY_AGE, *RATIOS)

    def drops_within_groups(self) -> bool:
        return False

    def apply(self, table: pa.Table) -> Change:
        if REPLAYED_FROM not in table.column_names:
            kinds = (pa.int64(), pa.int64(), pa.float64(), pa.float64())
            nothing = (pa.nulls(table.num_rows, kind) for kind in kinds)
            return Change(columns=dict(zip(self.writes(), nothing, strict=True)))
        ratios, groups = LogRatios.of_table(table), Groups.of(table)
        mean_N = ratios.geometric_means()
        stored_G = np.asarray(table[REPLAYED_FROM].is_valid())[groups.starts_G]
        low, high = self.ratio_range
        # A comparison with nan is false: a response without log-probabilities is outside.
        outside_G = stored_G & (groups.sum((mean_N >= low) & (mean_N <= high)) < groups.sizes_G)
        reasons = {"ratio_out_of_range": outside_G[groups.codes_N]}
        if self.keep is not None:
            order_G = preferred(table, groups)
            order_G = order_G[(stored_G & ~outside_G)[order_G]]
            over_G = np.zeros(len(stored_G), bool)
            over_G[order_G[self.keep :]] = True
            reasons["over_keep"] = over_G[groups.codes_N]
        columns = {
            REPLAYED_FROM: flat(table[REPLAYED_FROM]),
            POLICY_AGE: flat(table[POLICY_AGE]),
            **ratios.columns(),
        }
        return Change(columns=columns, reasons=drop(reasons))

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        if row is None or row.get(REPLAYED_FROM) is None:
            return {}
        age, ratio = row.get(POLICY_AGE), row.get("mean_token_ratio")
        found = f"by step {row[REPLAYED_FROM]}, {age} step{'' if age == 1 else 's'} before"
        return {"sampled": found if ratio is None else f"{found}; mean token ratio {ratio:.3f}"}


def preferred(table: pa.Table, groups: Groups) -> Array:
    """In the order in which they are replayed, int64[G]."""
    age_N, spread_G = numbers(table, POLICY_AGE), np.zeros(len(groups.starts_G))
    if "reward" in table.column_names:
        reward_N = numbers(table, "reward")
        spread_G = np.nan_to_num(groups.std(reward_N, np.isfinite(reward_N)))
    tie_G = hash_each(table["prompt_id"].take(pa.array(groups.starts_G)))
    order_G: Array = np.lexsort([tie_G, -np.round(spread_G, 9), age_N[groups.starts_G]])
    return order_G
