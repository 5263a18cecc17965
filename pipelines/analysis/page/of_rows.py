"""A set of a page from the values that steps wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ....operators.compute import pc
from ....operators.groups import Array
from ...engine.report import StepReport
from ...recipe.steps import Step
from ..figures import column_values, set_figures
from ..rows import RowTable
from .content import PageColumn, PageSet, PageStep
from .evidence import COLUMN, RowEvidence
from .joined import joined, texts
from .map_of_responses import map_columns
from .written import WrittenValues

_NAMED = ("response_id", "prompt_id", "prompt", "reference", "response", "extracted_answer")
_LEFT_OUT = frozenset({*_NAMED, "reward", "advantage", "sampling", "policy_version"})
_HEAVY = ("token_ids", "logprobs", "ids_and_logprobs")
_MANY_SLUGS = 256


def page_set(
    name: str,
    values: Sequence[WrittenValues],
    rows: RowTable,
    steps: Sequence[Step],
    funnel: Sequence[StepReport],
    *,
    kind: str = "answers",
    step: int | None = None,
    banner: str = "",
    evidence: RowEvidence | None = None,
) -> PageSet:
    """The set of some parts of a run.

    Args:
        name: of the set.
        values: of each part, in order.
        rows: of all parts.
        steps: those after sampling.
        funnel: of the whole run.
        kind: `answers` or `judgements`.
        step: the training step, or None.
        banner: what is missing.
        evidence: of the rows; None: there is none.
    """
    responses = texts(_of_all(values, "response"))
    lengths_N, unit = _lengths(rows)
    figures = {**set_figures(rows, funnel, lengths_N).as_json(), "length_unit": unit}
    starts_G = rows.groups.starts_G
    row_texts = _with_evidence(_row_texts(values, rows, responses), evidence)
    if evidence is not None and COLUMN in row_texts.column_names:
        banner += evidence.banner()
    return PageSet(
        name,
        kind,
        step,
        tuple(_page_step(each) for each in steps),
        figures,
        (*_columns(rows, lengths_N), *_map(rows, responses)),
        rows.components,
        starts_G.astype(np.int32),
        _group_texts(values, rows, starts_G),
        row_texts,
        banner,
    )


def _page_step(step: Step) -> PageStep:
    operator = step.operator
    return PageStep(step.number, step.name, operator.writes(), dict(operator.reasons))


def _lengths(rows: RowTable) -> tuple[Array, str]:
    """int32[N], -1 where there is no response; and the unit."""
    unit = "tokens" if rows.table["tokens"].null_count < rows.table.num_rows else "characters"
    return np.array(pc.fill_null(rows.table[unit], -1), np.int32), unit


def _columns(rows: RowTable, lengths_N: Array) -> list[PageColumn]:
    table = rows.table
    found = [
        PageColumn("fate", np.array(table["fate"], np.int32)),
        *(slug_column(name, table[name]) for name in ("reason", "verdict", "finish_reason")),
        PageColumn("length", lengths_N),
        *(PageColumn(name, column_values(table, name)) for name in ("reward", "advantage")),
    ]
    for name in rows.components:
        missing = f"reward_{name}_missing"
        found += [
            PageColumn(f"reward_{name}", column_values(table, f"reward_{name}")),
            slug_column(missing, table[missing]),
            PageColumn(f"contribution_{name}", column_values(table, f"contribution_{name}")),
        ]
    return found


def _map(rows: RowTable, responses: pa.ChunkedArray) -> tuple[PageColumn, ...]:
    ids = pc.fill_null(rows.table["response_id"].cast(pa.string()), "")
    return map_columns(responses, ids, rows.table["verdict"].cast(pa.string()))


def slug_column(name: str, column: pa.ChunkedArray) -> PageColumn:
    """A column of few different texts; the first slug is "" and stands for null."""
    slugs = ("", *sorted(pc.unique(column.drop_null().cast(pa.string())).to_pylist()))
    places = pc.index_in(column.cast(pa.string()), pa.array(slugs[1:], pa.string()))
    kind = np.uint8 if len(slugs) < _MANY_SLUGS else np.int32
    return PageColumn(name, (np.asarray(pc.fill_null(places, -1)) + 1).astype(kind), slugs)


def _group_texts(values: Sequence[WrittenValues], rows: RowTable, starts_G: Array) -> pa.Table:
    at = pa.array(starts_G)
    return pa.table(
        {
            "prompt_id": rows.table["prompt_id"].take(at),
            "prompt": _of_all(values, "prompt").take(at),
            "reference": texts(_of_all(values, "reference")).take(at),
        }
    )


def _row_texts(
    values: Sequence[WrittenValues], rows: RowTable, responses: pa.ChunkedArray
) -> pa.Table:
    columns: dict[str, Any] = {
        "response_id": rows.table["response_id"],
        "response": responses,
        "extracted_answer": texts(_of_all(values, "extracted_answer")),
    }
    in_columns = {"verdict", "finish_reason", *_component_names(rows)}
    written = dict.fromkeys(name for part in values for name in part.names)
    for name in written:
        shown = name not in _LEFT_OUT and name not in in_columns and not name.endswith(_HEAVY)
        # Without responses, what is looked at are the texts of the dataset.
        wanted = "response" not in written or any(name in part.written for part in values)
        if shown and wanted:
            columns[name] = _shown(_of_all(values, name))
    if "turns" in written:
        columns["turns"] = _turns(_of_all(values, "turns"))
    return pa.table(columns)


def _with_evidence(texts: pa.Table, evidence: RowEvidence | None) -> pa.Table:
    if evidence is None or evidence.entries.null_count == len(evidence.entries):
        return texts
    kept = [name for name in texts.column_names if name != COLUMN]
    return texts.select(kept).append_column(COLUMN, evidence.entries)


def _component_names(rows: RowTable) -> set[str]:
    both = ((f"reward_{name}", f"reward_{name}_missing") for name in rows.components)
    return {name for pair in both for name in pair}


def _of_all(values: Sequence[WrittenValues], name: str) -> pa.ChunkedArray:
    """A column of all parts; nulls where a part has none."""
    return joined(
        [
            each.column(name) if name in each.names else pa.chunked_array([pa.nulls(each.num_rows)])
            for each in values
        ]
    )


def _shown(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as they are where JSON has them, else as text."""
    kind = column.type
    plain = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
    return column if any(of_kind(kind) for of_kind in plain) else texts(column)


def _turns(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turns without token ids and log-probabilities."""
    lists = column.to_pylist()
    wanted = ("role", "text", "tool", "arguments", "observation", "status", "finish_reason")
    slim = [_slim(turns, wanted) for turns in lists]
    return pa.chunked_array([pa.array(slim, pa.list_(pa.map_(pa.string(), pa.string())))])


def _slim(turns: Any, wanted: Sequence[str]) -> Any:
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        return None
    return [[(k, str(turn[k])) for k in wanted if turn.get(k) is not None] for turn in turns]
