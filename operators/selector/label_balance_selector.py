"""Balance two labels over the whole dataset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

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
        columns = {"label": pa.array(code_N, pa.int8()), "uniform": pa.array(uniform)}
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
        label_N, uniform_N = np.asarray(table["label"]), np.asarray(table["uniform"])
        is_labelled_N, capped_N = label_N >= 0, np.zeros(len(label_N), bool)
        if self.max_per_prompt is not None:
            place_N = _places(uniform_N, label_N, np.asarray(table["prompt"]))
            capped_N = is_labelled_N & (place_N >= self.max_per_prompt)
        found, free_N = np.bincount(label_N[is_labelled_N], minlength=2), is_labelled_N & ~capped_N
        negatives, positives = np.bincount(label_N[free_N], minlength=2).tolist()
        first, second = self._ratio()
        # Multiples of the ratio: of the rows that there are, and of those to keep.
        by_ratio = min(positives // first, negatives // second)
        kept = by_ratio if self.most is None else min(by_ratio, self.most // (first + second))
        place_N, share_N = _places(uniform_N, label_N, capped_N), np.where(label_N, first, second)
        masks = {
            "over_prompt_cap": capped_N,
            "over_ratio": free_N & (place_N >= by_ratio * share_N),
            "over_target": free_N & (place_N >= kept * share_N),
        }
        return Change(reasons=drop(masks), notes=self._notes(kept, found))

    def _ratio(self) -> tuple[int, int]:
        common = math.gcd(*self.ratio)
        return self.ratio[0] // common, self.ratio[1] // common

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


def _places(by_N: Array, *keys: Array) -> Array:
    """The place of each row, by ascending `by_N`, among those with the same keys, int64[N]."""
    order = np.lexsort((by_N, *keys))
    starts = np.ones(len(order), bool)
    starts[1:] = np.logical_or.reduce([np.diff(key[order]) != 0 for key in keys])
    run = np.arange(len(order))
    place_N = np.empty(len(order), np.int64)
    place_N[order] = run - np.maximum.accumulate(np.where(starts, run, 0))
    return place_N


def _bools(mask: pa.ChunkedArray) -> Array:
    return np.asarray(pc.fill_null(mask, False))
