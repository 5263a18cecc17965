"""A reward component from the length of a response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import FiniteFloat, PositiveInt, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import component, component_columns, flat, is_list, is_text, right_and_wrong
from ..errors import DataError
from ..groups import Array, Groups
from ..operator import Columns, Mapper, Scope, ScopeByField, drop

_TOKENS = "response_token_ids"
_RIGHT, _WRONG = (1.0, 0.5), (-1.0, -0.5)


class LengthRewardMapper(Mapper):
    """Write `reward_length`, from the length L of a response, by one of three styles.

    `soft_overlong`: DAPO's soft overlong punishment, with M `max_length` and B `buffer`:

        0 up to M - B,  (M - B - L) / B up to M,  -1 beyond   (13) of https://arxiv.org/abs/2503.14476

    `cosine`: open-r1's cosine scaled reward (https://arxiv.org/abs/2502.03373). From a, that of an
    empty response, to b, that of one with M: b + (a - b) (1 + cos(pi L / M)) / 2. `right` and
    `wrong` are the pairs (a, b): a right response gets more the shorter it is, a wrong one loses
    less the longer it is. Beyond M it stays at b, where open-r1's rises again.

    `shorter`: among the right responses of the group, with l the shortest and m the longest:

        (m - L) / (m - l), and 0 where all are equally long or only one is right

    A wrong response gets 0 however long it is: a bonus for being short would teach to fail fast.

    As a component of its own, it leaves accuracy as it is: whether all responses of a group are
    right is still seen, such as by `pass_rate_filter` or `reward_std_filter: {column:
    reward_accuracy}`, where in a single reward the bonus would look like signal.
    """

    style: Literal["soft_overlong", "cosine", "shorter"]
    """Which reward."""
    unit: Literal["tokens", "characters"] = "tokens"
    """What is counted: `response_token_ids`, or characters of `response`."""
    max_length: PositiveInt | None = None
    """For `soft_overlong` and `cosine`: M, such as `max_tokens` of sampling."""
    buffer: PositiveInt | None = None
    """For `soft_overlong`: B, how long before M the punishment begins."""
    right: tuple[FiniteFloat, FiniteFloat] = _RIGHT
    """For `cosine`: the reward of an empty right response, and of one as long as M."""
    wrong: tuple[FiniteFloat, FiniteFloat] = _WRONG
    """For `cosine`: the reward of an empty wrong response, and of one as long as M."""

    scope = ScopeByField("style", Scope.ROW, {"shorter": Scope.GROUP})
    retryable: ClassVar[frozenset[str] | None] = frozenset()
    reasons: ClassVar[Mapping[str, str]] = {
        "no_length": "the response is null, or has no token ids",
        "not_graded": "the style needs a verdict, which is missing",
    }

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        needs = {"soft_overlong": ("max_length", "buffer"), "cosine": ("max_length",)}
        needed = needs.get(self.style, ())
        for name in ("max_length", "buffer"):
            given = getattr(self, name) is not None
            if given != (name in needed):
                raise ValueError(f"style {self.style} {'needs' if not given else 'has no'} {name}")
        if self.max_length and self.buffer and self.buffer > self.max_length:
            raise ValueError(f"buffer {self.buffer} is above max_length {self.max_length}")
        if self.style != "cosine" and (self.right, self.wrong) != (_RIGHT, _WRONG):
            raise ValueError(f"style {self.style} has no right and wrong")
        return self

    def reads(self) -> Columns:
        text = _TOKENS if self.unit == "tokens" else "response"
        verdict = () if self.style == "soft_overlong" else ("verdict",)
        group = ("prompt_id",) if self.style == "shorter" else ()
        return (*group, text, *verdict)

    def writes(self) -> Columns:
        return component_columns("length")

    def map(self, table: pa.Table) -> Mapping[str, pa.Array]:
        length_N = self._lengths(table)
        none_N = np.isnan(length_N)
        if self.style == "soft_overlong":
            return component("length", self._overlong(length_N), drop({"no_length": none_N}))
        right_N, wrong_N = right_and_wrong(table["verdict"])
        missing = drop({"no_length": none_N, "not_graded": ~(right_N | wrong_N)})
        if self.style == "cosine":
            value_N = np.where(
                right_N, self._cosine(length_N, *self.right), self._cosine(length_N, *self.wrong)
            )
        else:
            value_N = _shorter(Groups.of(table), length_N, right_N & ~none_N)
        return component("length", value_N, missing)

    def _lengths(self, table: pa.Table) -> Array:
        """float64[N]; nan where there is no response."""
        name = _TOKENS if self.unit == "tokens" else "response"
        column = flat(table[name])
        kind = column.type
        if pa.types.is_null(kind):
            return np.full(len(column), np.nan)
        if self.unit == "tokens" and not is_list(kind):
            raise DataError(
                f"column '{name}' is {kind}, not a list",
                "fill it with lists of token ids, or set unit: characters",
            )
        if self.unit == "characters" and not is_text(kind):
            raise DataError(f"column '{name}' is {kind}, not text", "give responses as strings")
        count = pc.list_value_length if self.unit == "tokens" else pc.utf8_length
        return np.asarray(pc.fill_null(count(column).cast(pa.float64()), np.nan))

    def _overlong(self, length_N: Array) -> Array:
        assert self.max_length is not None
        assert self.buffer is not None
        return np.clip((self.max_length - self.buffer - length_N) / self.buffer, -1.0, 0.0)

    def _cosine(self, length_N: Array, empty: float, full: float) -> Array:
        assert self.max_length is not None
        progress_N = np.minimum(length_N / self.max_length, 1.0)
        return np.asarray(full + (empty - full) * (1 + np.cos(np.pi * progress_N)) / 2)


def _shorter(groups: Groups, length_N: Array, right_N: Array) -> Array:
    """How much shorter a right response is than the longest right one, 0 to 1; 0 if wrong."""
    if not len(length_N):
        return length_N
    longest_G = np.maximum.reduceat(np.where(right_N, length_N, -np.inf), groups.starts_G)
    shortest_G = np.minimum.reduceat(np.where(right_N, length_N, np.inf), groups.starts_G)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread_N = (longest_G - shortest_G)[groups.codes_N]
        share_N = (longest_G[groups.codes_N] - length_N) / spread_N
    return np.where(right_N & (spread_N > 0), share_N, 0.0)
