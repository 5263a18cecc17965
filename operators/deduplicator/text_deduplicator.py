"""The base of deduplicators: responses to a prompt, responses to all, or prompts are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import model_validator
from typing_extensions import Self

from ..arrow_compute import pc
from ..groups import Array, group_starts, row_type, scoped_keys
from ..operator import Columns, Filter, Kind, Scope, drop


class TextDeduplicator(Filter):
    """Base of those that drop repeated texts: only rows with the same key are compared."""

    unit: Literal["response", "prompt"] = "response"
    column: str | None = None
    """The column to compare, of strings or of messages; by default `response` or `prompt`, as
    `unit` says. For prompts, the first row of each prompt is compared."""
    within: Literal["prompt", "all"] | None = None
    """Compare a response with those to the same prompt (`prompt`, the default) or with those to
    all prompts (`all`). Prompts are always compared with all others."""

    kind: ClassVar[Kind] = Kind.DEDUPLICATOR
    scope: ClassVar[Scope] = Scope.DATASET

    @model_validator(mode="after")
    def _unit_fits(self) -> Self:
        if self.unit == "prompt" and self.within == "prompt":
            raise ValueError("unit prompt compares prompts with each other, so within must be all")
        if self.unit == "prompt" and self.column == "response":
            found = "unit prompt needs a column that all rows of a prompt share"
            raise ValueError(f"{found}, not response")
        return self

    def reads(self) -> Columns:
        column = self.column or self.unit
        alone = self.unit == "response" and self.within == "all"
        return (column,) if alone else ("prompt_id", column)

    def drops_within_groups(self) -> bool:
        return self.unit == "response"

    def keys(self, table: pa.Table, keys_N: Array, compared_N: Array) -> dict[str, pa.Array]:
        """The columns of a digest that say which rows are compared: `key`, null of the others, and
        for prompts, whose rows all follow the first, `starts`."""
        if self.unit == "prompt":
            starts = group_starts(table)
            compared_N = compared_N & np.asarray(starts)
            return {"key": pa.array(keys_N, mask=~compared_N), "starts": starts}
        if self.within != "all":
            keys_N = scoped_keys(keys_N, table["prompt_id"])
        return {"key": pa.array(keys_N, mask=~compared_N)}

    def shard(self, digest: pa.Table) -> Array:
        # A row without a key is compared with none, so it may be in any shard.
        return self.as_first(_keys(digest), digest)

    def repeats(
        self, digest: pa.Table, slug: str, find: Callable[[Array, Array], Array]
    ) -> pa.Array:
        """Reasons of the rows that repeat another one, which `find` says of rows, ascending, and
        their keys: `slug`, or with `_prompt` after it for prompts."""
        compared_N = np.asarray(digest["key"].is_valid())
        rows_M = np.flatnonzero(compared_N).astype(row_type(len(compared_N)))
        keys_N, repeats_N = _keys(digest), np.zeros(digest.num_rows, bool)
        # All of them, as a rule: then nothing is copied.
        keys_M = keys_N if len(rows_M) == len(keys_N) else keys_N[rows_M]
        repeats_N[rows_M] = find(rows_M, keys_M)
        reason = slug if self.unit == "response" else f"{slug}_prompt"
        return drop({reason: self.as_first(repeats_N, digest)})

    def as_first(self, values_N: Array, digest: pa.Table) -> Array:
        """What each row has; of prompts, what the first row of the prompt has."""
        if self.unit == "response":
            return values_N
        starts_N = np.asarray(digest["starts"])
        first_N: Array = values_N[starts_N][np.cumsum(starts_N) - 1]
        return first_N


def _keys(digest: pa.Table) -> Array:
    return np.asarray(pc.fill_null(digest["key"], 0))


def take_rows(parts: Sequence[Array], rows_K: Array, taken: Array) -> Array:
    """Fill `taken` with rows of a matrix in parts that are never joined, as of mapped batches."""
    starts = np.cumsum([0, *map(len, parts)])
    part_K = np.searchsorted(starts, rows_K, side="right") - 1
    order_K = np.argsort(part_K, kind="stable")
    bounds = np.searchsorted(part_K[order_K], np.arange(len(parts) + 1))
    for at in np.flatnonzero(np.diff(bounds)).tolist():
        here = order_K[bounds[at] : bounds[at + 1]]
        taken[here] = parts[at][rows_K[here] - starts[at]]
    return taken
