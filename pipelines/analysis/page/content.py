"""What a page is made of: one plain structure, whatever it came from.

PageData ── sets ──> PageSet ── columns ──> PageColumn       one value per row
                        ├────── groups_at                    the first row of each group
                        ├────── group_texts, row_texts       Arrow tables of texts
                        └────── figures                      `SetFigures.as_json()`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from ....operators.groups import Array


class PageColumn(NamedTuple):
    """One value per row, or per group.

    Attributes:
        name: of the column.
        values: float64, int32, or uint8 and int32 places in `slugs`. NaN is an unknown number.
        slugs: what the places stand for; the first is "", for null. Empty: the values are numbers.
    """

    name: str
    values: Array
    slugs: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """How the bytes are read: f64, i32 or u8, all little-endian."""
        return {"float64": "f64", "int32": "i32", "uint8": "u8"}[str(self.values.dtype)]


class PageStep(NamedTuple):
    """A step, for the path of a row: its number, its columns, and what its reasons mean."""

    number: int
    name: str
    writes: tuple[str, ...]
    reasons: Mapping[str, str]


class PageSet(NamedTuple):
    """Rows that were processed together: an export, or the rows of a training step.

    Attributes:
        name: shown in the list of sets.
        kind: `answers` or `judgements`.
        step: the training step, None for an export.
        steps: the steps after sampling, in order.
        figures: `SetFigures.as_json()`, and `length_unit`, `tokens` or `characters`.
        columns: at least `fate` (int32), `reason`, `verdict`, `length`, `reward`, `advantage`; for
            each component c also `reward_c`, `reward_c_missing` and `contribution_c`.
        components: names.
        groups_at: int32[G], the first row of each group.
        group_texts: one row per group: `prompt_id`, `prompt` (messages or text), `reference`.
        row_texts: one row per row: `response_id`, `response`, `extracted_answer`, and any other
            texts that steps wrote, by the names of their columns.
        banner: what of the set is not in the page; empty if nothing.
        run: of training; empty where the page has only one.
    """

    name: str
    kind: str
    step: int | None
    steps: tuple[PageStep, ...]
    figures: Mapping[str, Any]
    columns: tuple[PageColumn, ...]
    components: tuple[str, ...]
    groups_at: Array
    group_texts: pa.Table
    row_texts: pa.Table
    banner: str = ""
    run: str = ""

    @property
    def rows(self) -> int:
        """Rows of the set."""
        return len(self.row_texts)


class PageCurves(NamedTuple):
    """What was logged of a training run.

    Attributes:
        run: empty where there is only one.
        points: per training step, verl's metrics by name, each with `step`.
    """

    run: str
    points: tuple[Mapping[str, float], ...]


class PageData(NamedTuple):
    """A page.

    Attributes:
        title: shown at its top, and in the browser's tab.
        sets: at least one, unless there are curves.
        curves: of training runs.
        signs: of reward hacking, as `audit` finds them.
        recipe: as YAML.
    """

    title: str
    sets: tuple[PageSet, ...]
    curves: tuple[PageCurves, ...] = ()
    signs: tuple[Mapping[str, Any], ...] = ()
    recipe: str = ""


class PageSummary(NamedTuple):
    """What was written: bytes of the file, and how many of its responses have their texts in it."""

    bytes: int
    sets: int
    rows: int
    groups: int
    with_texts: int
