"""Give each source its share of the prompts of every training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..columns import at_path, numbers
from ..config import Weight, weight_at
from ..groups import Array
from ..operator import Change, Columns, Kind, Scope, drop
from ..training_step import PROMPT_ROW, RANK, PerStepOperator, mixed, ranks


class SourceQuotaSelector(PerStepOperator):
    """Give each source its share of the prompts of every training step.

    The prompts of a step are divided among the sources by their quotas: each gets its share,
    rounded down or up, so that the sum is exact and each has its share on average over the steps
    (systematic sampling). So are those of its refills. Within a source, prompts are in the order of
    `choice_rank`, such as `difficulty_selector` writes it; where there is none, the one that was
    visited longest ago comes first, and then a random one. Where a source has too few prompts, the
    others fill its places by their quotas, and the notes say how many it is `short`. Prompts of
    sources without a quota, or with one of 0, are dropped.

    With `unit: tokens`, a prompt counts as many tokens as its responses had on average at its last
    visit, which `history_mapper` finds; the mean of a source is that of its prompts that were
    visited, or of all if none was. Token shares are then as exact as these means.
    """

    quotas: dict[str, Weight] = Field(min_length=1)
    """Quota of each value of the column, of which only the ratios count. A number, or
    `{from: 1, to: 3, kind: linear}` (or `cosine`) for one that changes over training."""
    column: str = "data_source"
    """The column that names the source."""
    unit: Literal["prompts", "tokens"] = "prompts"
    """What the quotas divide."""
    keep: PositiveInt | None = None
    """Prompts to keep. Null: all; a training step takes the first of them."""
    seed: NonNegativeInt = 0
    """Another seed gives other random numbers. In training those of the run and the step are
    added."""

    kind: ClassVar[Kind] = Kind.SELECTOR
    scope: ClassVar[Scope] = Scope.DATASET
    reasons: ClassVar[Mapping[str, str]] = {
        "no_quota": "its source has no quota, or one of 0",
        "over_keep": "`keep` is reached, and its source has its quota",
    }

    def reads(self) -> Columns:
        return (*super().reads(), *((_TOKENS,) if self.unit == "tokens" else ()))

    def paths(self) -> Columns:
        return (self.column,)

    def optional_reads(self) -> Mapping[str, str]:
        return {RANK: RANK, PROMPT_ROW: "prompt_id"}

    def writes(self) -> Columns:
        return (RANK,)

    def replaces(self) -> Columns:
        return (RANK,)

    @field_validator("quotas", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        # A level may be a number, and is compared as text.
        return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _has_quotas(self) -> Self:
        for name, each in self.quotas.items():
            if min(weight_at(each, 0), weight_at(each, 1)) < 0:
                raise ValueError(f"the quota of '{name}' is below 0")
        for progress, when in ((0, "at first"), (1, "at the end")):
            if not any(weight_at(each, progress) for each in self.quotas.values()):
                raise ValueError(f"all quotas are 0 {when}: nothing would be sampled")
        return self

    def apply(self, table: pa.Table) -> Change:
        # In training, of each step; offline, of those that are kept.
        size = self.step.prompts if self.step else self.keep or max(table.num_rows, 1)
        random = self.random(self.seed)
        by_rank_P = np.lexsort([random.random(table.num_rows), self.last_visits(table)])
        if RANK in table.column_names:
            by_rank_P = by_rank_P[np.argsort(numbers(table, RANK)[by_rank_P], kind="stable")]
        quotas = self._quotas()
        names = pa.array(list(quotas), pa.string())
        sources = at_path(table, self.column).cast(pa.string())
        code_P = np.asarray(pc.index_in(sources, value_set=names).fill_null(-1))
        queues_S = [by_rank_P[code_P[by_rank_P] == at] for at in range(len(quotas))]
        quota_S = np.array([*quotas.values()])
        if self.unit == "tokens":
            quota_S = quota_S / _tokens(numbers(table, _TOKENS), code_P, len(quota_S))
        order, short_S = _in_quotas(queues_S, quota_S, size, random)
        none_P = code_P < 0
        rank_P = np.asarray(ranks(np.concatenate([order, np.flatnonzero(none_P)])))
        reasons = {"no_quota": none_P}
        if self.keep is not None:
            reasons["over_keep"] = rank_P >= self.keep
        short = zip(quotas, short_S.tolist(), strict=True)
        notes = {f"short/{name}": float(lacking) for name, lacking in short if lacking}
        return Change(columns={RANK: pa.array(rank_P)}, reasons=drop(reasons), notes=notes)

    def _quotas(self) -> dict[str, float]:
        """Those that are not 0 now."""
        progress = self.step.progress if self.step else 0.0
        quotas = {name: weight_at(each, progress) for name, each in self.quotas.items()}
        largest = max(quotas.values())  # Of numbers near the largest, the sum would be infinite.
        return {name: quota / largest for name, quota in quotas.items() if quota}


_TOKENS = "history_response_tokens"
_STEPS = 8
"""So many times the prompts of a step are divided exactly: of those of a step, and of its refills.
What follows is in the quotas as nearly as can be."""


def _in_quotas(
    queues_S: list[Array], quota_S: Array, size: int, random: np.random.Generator
) -> tuple[Array, Array]:
    """All prompts of S queues in an order in which each `size` of them are in the quotas; and how
    many of the first `size` each queue lacks."""
    taken_S, rows = np.zeros(len(queues_S), np.int64), list[Array]()
    sizes_S = np.array([len(queue) for queue in queues_S], np.int64)
    due_S = np.floor(np.round(size * quota_S / quota_S.sum(), 9)).astype(np.int64)
    short_S = np.maximum(due_S - sizes_S, 0)
    for _ in range(_STEPS):
        given_S = _divided(sizes_S - taken_S, quota_S, size, random)
        rows.append(mixed(_next(queues_S, taken_S, given_S), given_S))
        taken_S = taken_S + given_S
    rows.append(mixed(_next(queues_S, taken_S, sizes_S - taken_S), quota_S))
    return np.concatenate(rows), short_S


def _divided(left_S: Array, quota_S: Array, size: int, random: np.random.Generator) -> Array:
    """How many each queue gives to a step, where they have so many left."""
    given_S = np.zeros_like(left_S)
    while missing := min(size, int(left_S.sum())) - int(given_S.sum()):
        wanted_S = rounded(np.where(given_S < left_S, quota_S, 0.0), missing, random)
        given_S = np.minimum(given_S + wanted_S, left_S)
    return given_S


def _next(queues_S: list[Array], taken_S: Array, given_S: Array) -> list[Array]:
    return [q[t : t + g] for q, t, g in zip(queues_S, taken_S, given_S, strict=True)]


def rounded(quota_S: Array, total: int, random: np.random.Generator) -> Array:
    """Divide a number by quotas: each gets its share rounded down or up, on average exactly.
    Systematic sampling with one random number, Madow, Annals of Mathematical Statistics 20
    (1949)."""
    until_S = np.round(np.cumsum(quota_S) / quota_S.sum() * total, 9)
    steps_S1 = np.floor(np.concatenate(([0.0], until_S)) + random.random())
    return np.diff(steps_S1).astype(np.int64)


def _tokens(tokens_P: Array, code_P: Array, sources: int) -> Array:
    """The mean tokens of responses to the prompts of each source, where they are known."""
    known_P = np.isfinite(tokens_P) & (code_P >= 0)
    if not known_P.any():
        return np.ones(sources)
    count_S = np.bincount(code_P[known_P], minlength=sources)
    sum_S = np.bincount(code_P[known_P], tokens_P[known_P], minlength=sources)
    mean = sum_S.sum() / count_S.sum()
    return np.maximum(np.where(count_S, sum_S / np.maximum(count_S, 1), mean), 1.0)
