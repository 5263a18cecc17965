"""Balance two labels over the whole dataset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt, model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..errors import DataError
from ..groups import Array, Groups, hash_each, uniform_N
from ..operator import Change, Columns, Kind, Operator, Scope, drop

_UNKNOWN = ("timeout", "verifier_error")


class LabelBalanceSelector(Operator):
    """Keep a random choice of rows in which two labels are exactly in a given ratio.

    As many rows are kept as the rarer label, the caps and the target allow: with `ratio: [a, b]`
    the counts are k * a and k * b for the largest such k. Rows are chosen without replacement; the
    notes report how many are missing to `target`. Every row has the same probability, whatever its
    position, and the kept rows keep their order.

    Rows with neither label, and those whose label is null, are not affected: all of them are kept.
    So verification prompts can be balanced by `label` in a table that contains other rows.
    """

    column: str = "verdict"
    """Column with the labels."""
    positive: str = "correct"
    """Value of one label."""
    negative: tuple[str, ...] | None = None
    """Values of the other label. Null: all values except `positive`, null, `timeout` and
    `verifier_error`; the last two say nothing about the response."""
    ratio: tuple[PositiveInt, PositiveInt] = (1, 1)
    """Rows with the positive label to rows with the negative one."""
    target: PositiveInt | None = None
    """Rows of both labels to keep. Null: as many as possible."""
    max_per_prompt: PositiveInt | None = None
    """Most rows of each label per prompt."""
    spare: str | None = None
    """Boolean column, such as `spare` of `self_verification_mapper`: rows where it is true are
    kept only where the others of their label are too few."""
    seed: int = 0
    """Another seed gives another choice."""

    kind: ClassVar[Kind] = Kind.SELECTOR
    scope: ClassVar[Scope] = Scope.DATASET
    reasons: ClassVar[Mapping[str, str]] = {
        "over_prompt_cap": "the prompt has more than `max_per_prompt` rows of the label",
        "over_ratio": "there are too few rows of the other label",
        "over_target": "`target` is reached",
    }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.negative is not None and self.positive in self.negative:
            raise ValueError(f"'{self.positive}' is both positive and negative")
        if self.negative == ():
            raise ValueError("negative contains no value")
        if self.target is not None and self.target < sum(self._ratio()):
            raise ValueError(f"target {self.target} is too small for the ratio")
        return self

    @property
    def most(self) -> int | None:
        """Rows of both labels that are kept where there are enough: the target, in the ratio."""
        both = sum(self._ratio())
        return None if self.target is None else self.target // both * both

    def reads(self) -> Columns:
        return ("prompt_id", self.column, *(() if self.spare is None else (self.spare,)))

    def drops_within_groups(self) -> bool:
        # A label is that of a verification prompt: a group of one row until it is judged.
        return self.column != "label"

    def digest(self, table: pa.Table) -> pa.Table:
        labels = table[self.column].cast(pa.string())
        is_positive = pc.equal(labels, self.positive)
        if self.negative is not None:
            is_negative = pc.is_in(labels, pa.array(self.negative, pa.string()))
        else:
            others = pa.array([self.positive, *_UNKNOWN])
            is_negative = pc.and_(labels.is_valid(), pc.invert(pc.is_in(labels, others)))
        uniform = uniform_N(table, seed=self.seed, salt=self.name())
        if self.spare is not None:
            # After all others, in a random order of their own.
            uniform += _bools(self._spares(table))
        code_N = np.where(_bools(is_positive), 1, np.where(_bools(is_negative), 0, -1))
        columns = {
            "label": pa.array(code_N, pa.int8()),
            "uniform": pa.array(uniform),
        }
        if self.max_per_prompt is not None:
            groups = Groups.of(table)
            hashes_G = hash_each(table["prompt_id"].take(pa.array(groups.starts_G)))
            columns["prompt"] = pa.array(hashes_G[groups.codes_N], pa.uint64())
        return pa.table(columns)

    def _spares(self, table: pa.Table) -> pa.ChunkedArray:
        column = table[self.spare]
        if not (pa.types.is_boolean(column.type) or pa.types.is_null(column.type)):
            raise DataError(
                f"column {self.spare} has {column.type}", "a column of spares is true or false"
            )
        return column.cast(pa.bool_())

    def apply(self, table: pa.Table) -> Change:
        label_N, uniform = np.asarray(table["label"]), np.asarray(table["uniform"])
        capped_N = self._capped(table, label_N, uniform)
        ranks = {code: _ranks(capped_N, label_N, uniform, code) for code in (1, 0)}
        plan = self._plan(len(ranks[1].rows), len(ranks[0].rows))
        over_ratio_N, over_target_N = np.zeros((2, len(label_N)), bool)
        for code, share in zip((1, 0), self._ratio(), strict=True):
            rows, rank = ranks[code]
            over_ratio_N[rows] = rank >= plan.by_ratio * share
            over_target_N[rows] = rank >= plan.kept * share
        return Change(
            reasons=drop(
                {
                    "over_prompt_cap": capped_N,
                    "over_ratio": over_ratio_N,
                    "over_target": over_target_N,
                }
            ),
            notes=self._notes(plan.kept, np.bincount(label_N[label_N >= 0], minlength=2)),
        )

    def _capped(self, table: pa.Table, label_N: Array, uniform: Array) -> Array:
        capped_N = np.zeros(len(label_N), bool)
        if self.max_per_prompt is None:
            return capped_N
        rows = np.flatnonzero(label_N >= 0)
        prompt, label = np.asarray(table["prompt"])[rows], label_N[rows]
        order = np.lexsort((uniform[rows], label, prompt))
        # Sorted, the rows of one (prompt, label) are a run.
        prompt, label = prompt[order], label[order]
        starts = np.ones(len(rows), bool)
        starts[1:] = (np.diff(prompt) != 0) | (np.diff(label) != 0)
        places = np.arange(len(rows))
        rank = places - np.maximum.accumulate(np.where(starts, places, 0))
        capped_N[rows[order]] = rank >= self.max_per_prompt
        return capped_N

    def _ratio(self) -> tuple[int, int]:
        common = math.gcd(*self.ratio)
        return self.ratio[0] // common, self.ratio[1] // common

    def _plan(self, positives: int, negatives: int) -> _BalancePlan:
        first, second = self._ratio()
        by_ratio = min(positives // first, negatives // second)
        wanted = by_ratio if self.target is None else self.target // (first + second)
        return _BalancePlan(by_ratio, min(by_ratio, wanted))

    def _notes(self, kept: int, count: Array) -> dict[str, float]:
        first, second = self._ratio()
        notes = {
            "positive_found": int(count[1]),
            "negative_found": int(count[0]),
            "positive_kept": kept * first,
            "negative_kept": kept * second,
        }
        if self.target is not None:
            notes["asked"] = self.target
            notes["short_of_target"] = self.target - kept * (first + second)
        return {name: float(value) for name, value in notes.items()}


class _BalancePlan(NamedTuple):
    """Multiples of the ratio: among the rows there are, and among those to keep."""

    by_ratio: int
    kept: int


class _Ranked(NamedTuple):
    """Rows of one label, and the rank of each in their random order."""

    rows: Array
    rank: Array


def _ranks(capped_N: Array, label_N: Array, uniform: Array, code: int) -> _Ranked:
    rows = np.flatnonzero((label_N == code) & ~capped_N)
    rank = np.empty(len(rows), np.int64)
    rank[np.argsort(uniform[rows], kind="stable")] = np.arange(len(rows))
    return _Ranked(rows, rank)


def _bools(mask: pa.ChunkedArray) -> Array:
    return np.asarray(pc.fill_null(mask, False))
