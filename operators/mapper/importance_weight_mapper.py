"""Correct what older policies have sampled: importance weights of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..columns import BoolArray, ItemsOfLists, flat, lists_of
from ..groups import Array
from ..importance import POLICY_LOGPROBS, RATIOS, SAMPLED_LOGPROBS, LogRatios
from ..operator import Columns, Mapper

_WEIGHTS = "token_weight"
Rejection = Literal[
    "token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_sum_k2", "seq_sum_k3", "seq_mean_k1",
    "seq_mean_k2", "seq_mean_k3", "seq_max_k2", "seq_max_k3",
]  # fmt: skip


class ImportanceWeightMapper(Mapper):
    """Write `token_weight`, list<float32>[N]: importance weights of responses of older policies.

    Tokens of a response that has `policy_logprobs`, as those have that `replay_selector` replays or
    that were sampled ahead (`train.mode`), have the weight min(ratio, max), where the ratio is
    exp(policy_logprobs - response_logprobs) of the token, or with `level: sequence` of the whole
    response: truncated importance sampling. With `min`, a weight outside `min` and `max` is 0
    instead, as in IcePop. Tokens of other responses have the weight 1, and weights that are there
    already are multiplied. Responses have `importance_ratio`, the ratio of the whole response, and
    `mean_token_ratio`, its geometric mean over tokens, too.

    `rejection` gives tokens, or all tokens of a response, the weight 0 where the policies differ
    too much: `{seq_mean_k1: [0.999, 1.001]}` bounds the geometric mean of a response, and
    `{seq_mean_k3: 0.01}` the estimated KL divergence of a token.

    Weights of tokens have a bias, as the tokens before are those of the older policy, and a low
    variance; the weight of a whole response has no bias but that of `max`, and a variance that
    grows with its length. As everywhere, a token of weight 0 does not train: unlike in verl, it is
    not in the mean of the loss either.

    Source: verl's `rollout_correction`, whose `rollout_is` is the level, whose
    `rollout_is_threshold` is `max`, or `min_max`, and whose `rollout_rs` is `rejection`. With r =
    response_logprobs - policy_logprobs of a token, k1 = r, k2 = r^2 / 2 and k3 = exp(-r) - 1 + r
    (http://joschu.net/blog/kl-approx.html).

    Raises:
        DataError: there is not one log-probability for each token, or one is not finite.
    """

    level: Literal["token", "sequence", "none"] = "token"
    """What has a ratio of its own. `none`: weights are 1, or 0 by `rejection`."""
    max: float = Field(2.0, gt=0)
    """The greatest weight."""
    min: float | None = Field(None, gt=0)
    """The least weight. Null: there is none, and greater ones are `max`."""

    rejection: dict[Rejection, float | tuple[float, float]] = Field({})
    """By verl's names what is rejected: the most that `k2` or `k3` may be, or the least and the
    most that exp(k1) may be, of a token or of a response's sum, mean or maximum of them."""

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        for name, bound in self.rejection.items():
            pair = bound if isinstance(bound, tuple) else (bound,)
            if len(pair) != (2 if name.endswith("k1") else 1):
                right = "a least and a greatest value" if name.endswith("k1") else "one number"
                raise ValueError(f"rejection {name} has {right}")
            if not 0 < pair[0] <= pair[-1]:
                raise ValueError(f"the bounds of rejection {name} are not above 0, or not in order")
        if self.level == "none" and not self.rejection:
            raise ValueError("level none without rejection: every weight would be 1")
        if self.level == "none" and {"min", "max"} & self.model_fields_set:
            raise ValueError("level none has no ratios that min or max would bound: leave them out")
        if self.min is not None and self.min > self.max:
            raise ValueError("min is above max: every weight would be 0")
        return self

    def reads(self) -> Columns:
        return ("response_token_ids",)

    def optional_reads(self) -> Mapping[str, str]:
        return {name: name for name in (POLICY_LOGPROBS, SAMPLED_LOGPROBS, _WEIGHTS)}

    def writes(self) -> Columns:
        return (_WEIGHTS, *RATIOS)

    def replaces(self) -> Columns:
        return (_WEIGHTS, *RATIOS)

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        there = _WEIGHTS in table.column_names
        own = ItemsOfLists.of(flat(table[_WEIGHTS]) if there else pa.nulls(table.num_rows))
        ratios = LogRatios.of_table(table)
        known_N, lengths_N = ratios.given_N, ratios.lengths_N
        own.only(known_N).check_lengths(_WEIGHTS, ratios, "tokens")
        lengths_N = np.where(known_N, lengths_N, own.lengths_N)
        weight_M = np.ones(int(lengths_N.sum()))
        weight_M[np.repeat(known_N, lengths_N)] = np.where(
            self._kept(ratios), self._bounded(ratios), 0.0
        )
        weight_M[np.repeat(own.given_N, lengths_N)] *= own.values_M
        weights = lists_of(pa.array(weight_M.astype(np.float32)), lengths_N, known_N | own.given_N)
        return {_WEIGHTS: weights, **ratios.columns()}

    def notes(self, table: pa.Table, columns: Mapping[str, pa.Array]) -> Mapping[str, float]:
        ratios = LogRatios.of_table(table)
        if not ratios.given_N.any():
            return {}
        bounded_M = self._ratios(ratios) != self._bounded(ratios)
        found = {"tokens_weighted": len(bounded_M), "tokens_bounded": int(bounded_M.sum())}
        if self.rejection:
            found["tokens_rejected"] = int((~self._kept(ratios)).sum())
        return {name: float(n) for name, n in found.items()}

    def _ratios(self, ratios: LogRatios) -> Array:
        """Before bounds, float64[M]."""
        if self.level == "none":
            return np.ones(len(ratios.values_M))
        if self.level == "token":
            return ratios.of_tokens()
        return np.repeat(ratios.of_responses(), ratios.lengths_N)

    def _kept(self, ratios: LogRatios) -> BoolArray:
        """Which tokens are not rejected."""
        kept_M = np.ones(len(ratios.values_M), bool)
        for name, bound in self.rejection.items():
            low, high = np.log(bound) if isinstance(bound, tuple) else (-np.inf, bound)
            of, _, divergence = name.removeprefix("seq_").rpartition("_")
            found_M = ratios.divergence(divergence, None if of == "token" else of)
            kept_M &= (found_M >= low) & (found_M <= high)
        return kept_M

    def _bounded(self, ratios: LogRatios) -> Array:
        """The weight of each token before rejection."""
        ratio_M = self._ratios(ratios)
        if self.min is None:
            return np.minimum(ratio_M, self.max)
        return np.where((ratio_M >= self.min) & (ratio_M <= self.max), ratio_M, 0.0)
