"""Correct what older policies have sampled: importance weights of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..columns import ItemsOfLists, flat
from ..errors import DataError
from ..groups import Array
from ..importance import POLICY_LOGPROBS, SAMPLED_LOGPROBS, LogRatios
from ..operator import Columns, Mapper

_WEIGHTS = "token_weight"


class ImportanceWeightMapper(Mapper):
    """Write `token_weight`, list<float32>[N]: importance weights of responses of older policies.

    Tokens of a response that has `policy_logprobs`, such as `replay_selector` replays, have the
    weight min(ratio, max), where the ratio is exp(policy_logprobs - response_logprobs) of the
    token, or with `level: sequence` of the whole response: truncated importance sampling. With
    `min`, a weight outside `min` and `max` is 0 instead, as in IcePop. Tokens of other responses
    have the weight 1, and weights that are there already are multiplied.

    Weights of tokens have a bias, as the tokens before are those of the older policy, and a low
    variance; the weight of a whole response has no bias but that of `max`, and a variance that
    grows with its length. As everywhere, a token of weight 0 does not train: unlike in verl, it is
    not in the mean of the loss either.

    Source: verl's `rollout_correction`, whose `rollout_is` is the level, and whose
    `rollout_is_threshold` is `max`, or `min_max`.

    Raises:
        DataError: there is not one log-probability for each token, or one is not finite.
    """

    level: Literal["token", "sequence"] = "token"
    """What has a ratio of its own."""
    max: float = Field(2.0, gt=0)
    """The greatest weight."""
    min: float | None = Field(None, gt=0)
    """The least weight. Null: there is none, and greater ones are `max`."""

    @model_validator(mode="after")
    def _is_range(self) -> Self:
        if self.min is not None and self.min > self.max:
            raise ValueError("min is above max: every weight would be 0")
        return self

    def reads(self) -> Columns:
        return ("response_token_ids",)

    def optional_reads(self) -> Mapping[str, str]:
        return {name: name for name in (POLICY_LOGPROBS, SAMPLED_LOGPROBS, _WEIGHTS)}

    def writes(self) -> Columns:
        return (_WEIGHTS,)

    def replaces(self) -> Columns:
        return (_WEIGHTS,)

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        if _WEIGHTS not in table.column_names:
            own = ItemsOfLists.of(pa.nulls(table.num_rows))
        else:
            own = ItemsOfLists.of(flat(table[_WEIGHTS]))
        ratios = LogRatios.of(table)
        lengths_N = np.where(ratios.known_N, ratios.lengths_N, own.lengths_N)
        wrong_N = ratios.known_N & own.given_N & (own.lengths_N != ratios.lengths_N)
        if wrong_N.any():
            row = int(np.flatnonzero(wrong_N)[0])
            found = f"row {row} has {own.lengths_N[row]} values in {_WEIGHTS} and "
            raise DataError(f"{found}{ratios.lengths_N[row]} tokens", "give one for each token")
        weight_M = np.ones(int(lengths_N.sum()))
        weight_M[np.repeat(ratios.known_N, lengths_N)] = self._weights(ratios)
        weight_M[np.repeat(own.given_N, lengths_N)] *= own.values_M
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths_N)]), pa.int32())
        none_N = ~(ratios.known_N | own.given_N)
        values = pa.array(weight_M.astype(np.float32))
        return {_WEIGHTS: pa.ListArray.from_arrays(offsets, values, mask=pa.array(none_N))}

    def notes(self, table: pa.Table, columns: Mapping[str, pa.Array]) -> Mapping[str, float]:
        ratios = LogRatios.of(table)
        if not ratios.known_N.any():
            return {}
        bounded_M = self._ratios(ratios) != self._weights(ratios)
        return {"tokens_weighted": float(len(bounded_M)), "tokens_bounded": float(bounded_M.sum())}

    def _ratios(self, ratios: LogRatios) -> Array:
        """Return the ratio of each token before bounds, float64[M]."""
        if self.level == "token":
            return ratios.of_tokens()
        return np.repeat(ratios.of_responses(), ratios.lengths_N)

    def _weights(self, ratios: LogRatios) -> Array:
        ratio_M = self._ratios(ratios)
        if self.min is None:
            return np.minimum(ratio_M, self.max)
        return np.where((ratio_M >= self.min) & (ratio_M <= self.max), ratio_M, 0.0)
