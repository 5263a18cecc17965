"""Which tokens of a response train: those that decide, or those from its first error on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import Self

from ..columns import ItemsOfLists, flat, is_list, lists_of, numbers
from ..errors import DataError
from ..operator import Columns, Mapper, Scope, ScopeByField

_TOKENS, _LOGPROBS = "response_token_ids", "response_logprobs"


class TokenWeightMapper(Mapper):
    """Write `token_weight`, list<float32>[N], of 1 for tokens that train and 0 for masked ones.

    `top_entropy`: the tokens of highest entropy train, `share` of all, which are those where a
    response could go another way. With q the (1 - share) quantile of the entropies of the tokens,
    those of at least q (https://arxiv.org/abs/2506.01939, TRL's `top_entropy_quantile`); where q is
    the least of all, as in a policy that is certain of most tokens, those above it. Put it
    after the step that writes the advantage: there, in training, the rows are those that train.

    Entropies come from the column `entropies`. Without one, -log p of `response_logprobs` takes
    their place: its mean over draws is the entropy, but that of a single draw is high for any
    unlikely token, also where the policy is nearly certain. A response that has neither is masked.

    `first_error`: the column `first_error` has the place of the first token, from 0, of the first
    wrong step, as a process reward model or a checker of steps finds it. `part: from` trains the
    tokens from there on, so that the right steps before are not punished with the response;
    `before` trains these right steps alone. A null, or -1 as in ProcessBench, is no error: all
    tokens train.

    For trajectories, lists are of the tokens of all turns of the policy, one after the other.

    Raises:
        DataError: a list has another length than the response has tokens, or an entropy is not
            finite, or an error is at no token.
    """

    style: Literal["top_entropy", "first_error"]
    """Which tokens train."""
    share: float = Field(0.2, gt=0, lt=1)
    """For `top_entropy`: how many of the tokens train."""
    entropies: str | None = None
    """For `top_entropy`: a column with a list of numbers, the entropy of each token in nats. Null:
    an estimate from `response_logprobs`."""
    first_error: str | None = None
    """For `first_error`: a column of integers, the place of the first token of the error."""
    part: Literal["from", "before"] = "from"
    """For `first_error`: whether the tokens from the error on train, or those before it."""

    scope = ScopeByField("style", Scope.ROW, {"top_entropy": Scope.DATASET})

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        others = {"top_entropy": ("first_error", "part"), "first_error": ("share", "entropies")}
        defaults = type(self).model_fields
        for name in others[self.style]:
            if getattr(self, name) != defaults[name].default:
                raise ValueError(f"style {self.style} has no {name}")
        if self.style == "first_error" and self.first_error is None:
            raise ValueError("style first_error needs first_error, the column of the place")
        return self

    @property
    def estimates(self) -> str:  # type: ignore[override]
        """What it computes of all rows: nothing, where an error is at its place."""
        return "the quantile of the entropies" if self.style == "top_entropy" else ""

    def reads(self) -> Columns:
        if self.style == "first_error":
            assert self.first_error is not None
            return (_TOKENS, self.first_error)
        return (_TOKENS, self.entropies or _LOGPROBS)

    def writes(self) -> Columns:
        return ("token_weight",)

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        tokens = _items(table, _TOKENS)
        by_error = self.style == "first_error"
        trains_M = self._from_error(table, tokens) if by_error else self._highest(table, tokens)
        weights_M = pa.array(trains_M.astype(np.float32))
        return {"token_weight": lists_of(weights_M, tokens.lengths_N, tokens.given_N)}

    def _highest(self, table: pa.Table, tokens: ItemsOfLists) -> NDArray[np.bool_]:
        """Which tokens have an entropy of at least the quantile."""
        name = self.entropies or _LOGPROBS
        items = _items(table, name)
        items.check_lengths(f"'{name}'", tokens, f"tokens in '{_TOKENS}'")
        right = "give a number for each token, or null in place of the list"
        items.check_finite(f"a value in '{name}'", right)
        entropy_M = items.values_M if self.entropies else -items.values_M
        least = np.quantile(entropy_M, 1 - self.share) if len(entropy_M) else 0.0
        highest_M = entropy_M >= least
        if highest_M.all() and (entropy_M > least).any():
            highest_M = entropy_M > least  # The quantile is the least of all: few are above it.
        trains_M = np.zeros(len(tokens.values_M), bool)
        trains_M[np.repeat(items.given_N, tokens.lengths_N)] = highest_M
        return trains_M

    def _from_error(self, table: pa.Table, tokens: ItemsOfLists) -> NDArray[np.bool_]:
        """Which tokens are on the side of the error that trains."""
        assert self.first_error is not None
        place_N, sizes_N = numbers(table, self.first_error), tokens.lengths_N
        none_N = np.asarray(flat(table[self.first_error]).is_null()) | (place_N == -1)
        place_N = np.where(none_N, -1.0, place_N)
        whole_N = np.isfinite(place_N) & (place_N == np.floor(place_N)) & (place_N >= -1)
        wrong_N = ~(whole_N & (place_N < sizes_N)) & tokens.given_N
        if wrong_N.any():
            row = int(np.argmax(wrong_N))
            found = f"row {row} has {place_N[row]:g} in '{self.first_error}', and its response"
            right = "give the place of a token, from 0, or null where there is no error"
            raise DataError(f"{found} has {sizes_N[row]} tokens", right)
        starts_N = np.cumsum(sizes_N) - sizes_N
        at_M = np.arange(sizes_N.sum()) - np.repeat(starts_N, sizes_N)
        error_M = np.repeat(place_N, sizes_N)
        side_M = at_M >= error_M if self.part == "from" else at_M < error_M
        return np.asarray(side_M | (error_M < 0))


def _items(table: pa.Table, name: str) -> ItemsOfLists:
    column = flat(table[name])
    kind = column.type
    if pa.types.is_null(kind) or (is_list(kind) and _is_number(kind.value_type)):
        return ItemsOfLists.of(column)
    raise DataError(f"column '{name}' is {kind}, not a list of numbers", "give one per token")


def _is_number(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_null))
