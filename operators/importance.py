"""Importance ratios: responses by the policy that trains, relative to the policy that sampled them.

log ratio of a token   policy_logprobs - response_logprobs
of a response          their sum, as in importance sampling of whole responses
of its mean token      their mean, as in GSPO (https://arxiv.org/abs/2507.18071)
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .columns import ItemsOfLists, flat
from .groups import Array

REPLAYED_FROM = "replayed_from"
"""Column of int64: the training step that sampled the response; null: the present one."""
POLICY_AGE = "policy_age"
"""Column of int64: how many training steps before the present one that was."""
LAST_VERSION = "last_policy_version"
"""Column of int64: as `policy_version`, of the last token: weights may change within a response."""
POLICY_LOGPROBS = "policy_logprobs"
"""Column of list<float32>: the log-probability of each token of the response by the current policy,
as `response_logprobs` has those by the policy that sampled it; null: it is the same policy."""
SAMPLED_LOGPROBS = "response_logprobs"
RATIOS = ("importance_ratio", "mean_token_ratio")
"""Columns of float64: the ratio of a response, its geometric mean over tokens; null: unknown."""
_BOUND = 20.0  # verl's SAFETY_BOUND: a ratio is within exp(-20) and exp(20)


class LogRatios(ItemsOfLists):
    """The log ratios of the tokens of N responses, given where there are log-probabilities by both
    policies."""

    @classmethod
    def of_table(cls, table: pa.Table) -> LogRatios:
        """Nothing is known where a table has no `policy_logprobs`."""
        if not {POLICY_LOGPROBS, SAMPLED_LOGPROBS} <= {*table.column_names}:
            return cls(*ItemsOfLists.of(pa.nulls(table.num_rows)))
        new, old = (ItemsOfLists.of(flat(table[n])) for n in (POLICY_LOGPROBS, SAMPLED_LOGPROBS))
        new, old = new.only(old.given_N), old.only(new.given_N)
        new.check_lengths(POLICY_LOGPROBS, old, f"in {SAMPLED_LOGPROBS}")
        ratios = cls(new.given_N, new.lengths_N, new.values_M - old.values_M)
        right = f"look at {POLICY_LOGPROBS} and {SAMPLED_LOGPROBS}"
        ratios.check_finite("a log-probability", right)
        return ratios

    def of_tokens(self) -> Array:
        return _ratio(self.values_M)

    def of_responses(self) -> Array:
        """The product over tokens, float64[N]; nan: unknown."""
        return np.where(self.given_N, _ratio(self.sum(self.values_M)), np.nan)

    def geometric_means(self) -> Array:
        """Over the tokens of each response, float64[N]; nan: unknown."""
        mean_N = self.sum(self.values_M) / np.maximum(self.lengths_N, 1)
        return np.where(self.given_N, _ratio(mean_N), np.nan)

    def columns(self) -> dict[str, pa.Array]:
        found = zip(RATIOS, (self.of_responses(), self.geometric_means()), strict=True)
        return {name: pa.array(values_N, mask=np.isnan(values_N)) for name, values_N in found}

    def divergence(self, name: str, of: str | None) -> Array:
        """An estimate `k1`, `k2` or `k3` at each token, float64[M]: see `importance_weight_mapper`;
        or the `sum`, `mean` or `max` of them over the tokens of its response."""
        log_ratio_M = np.clip(self.values_M, -_BOUND, _BOUND)
        if name == "k1":
            value_M = -log_ratio_M
        elif name == "k2":
            value_M = log_ratio_M**2 / 2
        else:
            value_M = np.exp(log_ratio_M) - 1 - log_ratio_M
        if of is None:
            return value_M
        rows_M = self.rows_M
        if of == "max":
            value_N = np.full(len(self.lengths_N), -np.inf)
            np.maximum.at(value_N, rows_M, value_M)
        else:
            value_N = self.sum(value_M)
            if of == "mean":
                value_N = value_N / np.maximum(self.lengths_N, 1)
        return value_N[rows_M]


def _ratio(log_ratio: Array) -> Array:
    ratio: Array = np.exp(np.clip(log_ratio, -_BOUND, _BOUND))
    return ratio
