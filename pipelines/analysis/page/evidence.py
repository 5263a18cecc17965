"""The evidence of a seeded sample of the rows of a page: whole groups, those whose texts are first.

applied steps ──> rows of the sample, as each step had them ──> `evidence` ──> a list for each row
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ....operators.columns import flat, is_text
from ....operators.compute import pc
from ....operators.groups import Array
from ...engine.steps import AppliedStep
from ..evidence import evidence, has_evidence, seen_by
from ..rows import RowTable
from .blocks import drawn
from .written import WrittenValues

COLUMN = "evidence of steps"
"""The name among the texts of a row; no column of a dataset is likely to have it."""
MOST_ROWS, MOST_CHARACTERS = 20_000, 3_000_000
"""The most responses with evidence: finding the rules of answers takes 0.2 us a character."""
_ENTRY = pa.struct([("step", pa.int32()), ("name", pa.string()), ("text", pa.string())])


class RowEvidence(NamedTuple):
    """The evidence of the rows of a set.

    Attributes:
        entries: of each row a list of `{step, name, text}`; null where there are none.
        rows: so many rows were looked at.
    """

    entries: pa.Array
    rows: int

    def banner(self) -> str:
        """A sentence for the page, where it does not have the evidence of all rows."""
        if self.rows == len(self.entries):
            return ""
        return (
            f"Evidence is shown of {self.rows:,} of {len(self.entries):,} responses, whole groups "
            "that were drawn. "
        )


def evidence_of(
    parts: Sequence[Sequence[AppliedStep]],
    values: Sequence[WrittenValues],
    rows: RowTable,
    most_rows: int = MOST_ROWS,
) -> RowEvidence:
    """What the values of the rows of a set rest on.

    Args:
        parts: the steps that were applied to each part.
        values: what they wrote; the rows of all parts, one after the other, are `rows`.
        rows: of the set.
        most_rows: that are looked at, but always one group.

    Raises:
        RejuiceError: what is on file does not fit the steps.
    """
    sampled_N = _sampled(rows, _characters(values), most_rows)
    found: list[list[dict[str, Any]]] = [[] for _ in range(len(sampled_N))]
    starts = np.cumsum([0, *(part.num_rows for part in values)])
    for each in zip(*parts, strict=True):
        _add(found, each, values, starts, sampled_N)
    return RowEvidence(pa.array([e or None for e in found], pa.list_(_ENTRY)), int(sampled_N.sum()))


def _characters(values: Sequence[WrittenValues]) -> Array:
    """int64[N]: the length of each response."""
    found = []
    for part in values:
        column = part.column("response") if "response" in part.names else None
        known = column is not None and is_text(column.type)
        lengths = pc.fill_null(pc.utf8_length(column), 0) if known else np.zeros(part.num_rows)
        found.append(np.asarray(lengths).astype(np.int64))
    return np.concatenate([np.zeros(0, np.int64), *found])


def _sampled(rows: RowTable, characters_N: Array, most_rows: int) -> Array:
    """bool[N]: rows of whole groups, in the order in which their texts go into the page."""
    sizes_G = rows.groups.sizes_G
    if not len(sizes_G):
        return np.zeros(0, bool)
    characters_G = rows.groups.sum(characters_N)
    ids = rows.table["prompt_id"].take(pa.array(rows.groups.starts_G))
    order = np.argsort(drawn(ids), kind="stable")
    within = np.cumsum(sizes_G[order]) <= most_rows
    within &= np.cumsum(characters_G[order]) <= MOST_CHARACTERS
    within[0] = True
    sampled_G = np.zeros(len(sizes_G), bool)
    sampled_G[order[within]] = True
    return np.asarray(sampled_G[rows.groups.codes_N])


def _add(
    found: list[list[dict[str, Any]]],
    parts: Sequence[AppliedStep],
    values: Sequence[WrittenValues],
    starts: Array,
    sampled_N: Array,
) -> None:
    """Add what a step has, from its input rows of all parts."""
    step, tables, reasons, places = parts[0].step, list[pa.Table](), list[Any](), list[Array]()
    if not all(has_evidence(step, each.before) for each in parts):
        return
    for each, part, start in zip(parts, values, starts, strict=False):
        places_I = part.inputs[step.number] + start
        rows = np.flatnonzero(sampled_N[places_I])
        if not len(rows):
            continue
        change = each.result.change
        tables.append(seen_by(each, rows))
        none = pa.nulls(len(rows), pa.string())
        dropped = change.reasons
        reasons.append(none if dropped is None else flat(dropped).take(pa.array(rows)))
        places.append(places_I[rows])
    if tables:
        table = pa.concat_tables(tables, promote_options="permissive")
        columns = evidence(step, table, pa.concat_arrays(reasons))
        _add_entries(found, step.number, columns, np.concatenate(places))


def _add_entries(
    found: list[list[dict[str, Any]]],
    number: int,
    columns: Mapping[str, pa.Array],
    places: Array,
) -> None:
    for name, column in columns.items():
        for place, value in zip(places.tolist(), column.to_pylist(), strict=True):
            if value is not None:
                text = f"{value:.3f}" if isinstance(value, float) else str(value)
                found[place].append({"step": number, "name": name, "text": text})
